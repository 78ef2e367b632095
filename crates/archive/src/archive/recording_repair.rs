//! Repair of a damaged recording: it is truncated before its first damage.

use crate::archive::{Archive, ArchiveError};
use crate::archive_folder::StorageError;
use crate::recording::keep_end;
use crate::segment::SegmentName;
use crate::{
    CursorError, Position, RecordingId, VerifyDamage, VerifyFault, VerifyOptions, VerifyProgress,
    verify,
};
use std::path::PathBuf;

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The first damage.
    pub damage: VerifyDamage,
    /// New end of the recording.
    pub end: Position,
    /// The files with copies of what was cut off, in order.
    pub kept: Vec<PathBuf>,
    /// Number of bytes in them.
    pub cut: u64,
    /// Number of these bytes that could not be read; zeros replace them.
    pub unreadable: u64,
}

/// Why a recording was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The recording cannot be verified.
    #[error(transparent)]
    Verify(#[from] CursorError),
    /// What was to be cut off cannot be copied, so nothing was cut.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The recording cannot be truncated. The copies of what was to be cut off remain.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The recording is damaged from its start.
    #[error("no part of recording {recording} is valid: {damage}")]
    Nothing {
        /// The recording.
        recording: RecordingId,
        /// The first damage.
        damage: VerifyDamage,
    },
}

impl Archive {
    /// Verifies a recording that is not live, and truncates it before its first damage: readers lose everything after it,
    /// valid blocks too. What is cut off is copied to files in the same folder with the extension `.segment.cut` (and a
    /// number, if that exists); they are durable before anything is cut. Returns `None` if the recording is valid.
    pub fn repair(
        &mut self,
        id: RecordingId,
        options: VerifyOptions,
        now: u64,
        on_progress: &(dyn Fn(VerifyProgress) + Sync),
    ) -> Result<Option<Repaired>, RepairError> {
        let recording = self.describe(id)?;
        if recording.is_live {
            return Err(ArchiveError::BeingRecorded { recording: id }.into());
        }
        let folder = &self.shared.folder;
        let reports = verify(
            &*folder.storage,
            &folder.path(""),
            &[id],
            options,
            on_progress,
        )?;
        let damage = reports.into_iter().flat_map(|report| report.damages).next();
        let Some(damage) = damage else {
            return Ok(None);
        };
        let position = match damage.fault {
            VerifyFault::Gap { expected, .. } => expected,
            VerifyFault::End { expected, found } => expected.min(found),
            VerifyFault::Fault(_) | VerifyFault::Unreadable(_) => damage.position,
        };
        if position <= recording.recording.start.position {
            return Err(RepairError::Nothing {
                recording: id,
                damage,
            });
        }
        let mut repaired = Repaired {
            damage,
            end: position,
            kept: Vec::new(),
            cut: 0,
            unreadable: 0,
        };
        for segment in &recording.segments {
            if segment.start.plus(segment.length) > position {
                let name = SegmentName {
                    recording: id,
                    start: segment.start,
                };
                let offset = position.since(segment.start);
                let kept = keep_end(&self.shared.folder, &name.file(), offset)?;
                repaired.cut += kept.length;
                repaired.unreadable += kept.unreadable;
                repaired.kept.push(kept.path);
            }
        }
        self.shared.folder.sync()?;
        let end = recording.recording.end.position;
        if recording.recording.stopped.is_some() && position == end {
            self.cut_after(&recording.segments, end)?;
        } else {
            repaired.end = self.truncate(id, position, now)?;
        }
        Ok(Some(repaired))
    }

    /// Cuts off bytes after the end of a stopped recording, which belong to none of its messages.
    fn cut_after(&self, segments: &[super::Segment], end: Position) -> Result<(), ArchiveError> {
        let folder = &self.shared.folder;
        for segment in segments {
            let file = segment.file.file_name().and_then(|name| name.to_str());
            let Some(file) = file.filter(|_| segment.start.plus(segment.length) > end) else {
                continue;
            };
            if segment.start >= end {
                folder.remove_if_there(file)?;
                continue;
            }
            let medium = folder.open_write(file)?;
            folder.cut(file, &*medium, end.since(segment.start))?;
            folder.sync_file(file, &*medium)?;
        }
        folder.sync()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_recording::{FOLDER, RECORDING, SampleRecording, name, small};
    use crate::{Cursor, CursorBound, Origin};
    use seatrial_machine::{Rng, Storage};
    use seatrial_sim::{FileTree, MemoryStorage};
    use std::path::Path;
    use std::sync::Arc;

    const OPTIONS: VerifyOptions = VerifyOptions {
        threads: 2,
        checksums: true,
    };

    fn count(storage: &MemoryStorage) -> Result<usize, CursorError> {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let mut cursor = Cursor::open(
            storage,
            Path::new(FOLDER),
            RECORDING,
            Origin::Start,
            CursorBound::End,
        )?;
        let mut count = 0;
        while let Some(block) = cursor.next_block()? {
            count += block.messages().count();
        }
        Ok(count)
    }

    /// Repairs these files and checks that what is left is the whole part before `place`, and what was cut off is kept.
    fn check(tape: &SampleRecording, tree: &FileTree, place: Position, what: &str) {
        let storage = MemoryStorage::from_files(tree);
        let opened = Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 2_000);
        let (mut archive, _) = opened.expect(what);
        match archive.repair(RECORDING, OPTIONS, 2_001, &|_| ()) {
            // Recovery of a recording that was left open cut it before.
            Ok(None) => assert!(!tape.is_stopped, "{what}"),
            Ok(Some(repaired)) => {
                assert!(repaired.end <= place, "{what}");
                let files = storage.files();
                let kept: usize = (repaired.kept.iter())
                    .map(|path| files.get(path).expect(what).len())
                    .sum();
                assert_eq!(kept as u64, repaired.cut, "{what}");
                assert_eq!(repaired.unreadable, 0);
                let bytes = |tree: &FileTree| {
                    let segments = tape.segments.iter();
                    let paths =
                        segments.map(|(start, _)| Path::new(FOLDER).join(name(*start).file()));
                    paths
                        .map(|path| tree.get(path).map_or(0, <[u8]>::len))
                        .sum::<usize>()
                };
                assert_eq!(bytes(&files) + kept, bytes(tree), "{what}");
            }
            Err(RepairError::Nothing { .. }) => {
                assert!(place < tape.blocks[0], "{what}");
                return;
            }
            Err(error) => panic!("{what}: {error}"),
        }
        // Blocks that begin before the place and were not hit are there, and nothing else is.
        let mut blocks = tape.blocks.iter().rev();
        let hit = *blocks.find(|block| **block <= place).unwrap_or(&place);
        let first_of_segment = tape
            .segments
            .iter()
            .rev()
            .find(|(start, _)| *start <= place);
        let end = hit.max(first_of_segment.map_or(hit, |(start, _)| *start));
        let end = if place < tape.end() { end } else { place };
        let expected = tape
            .messages
            .iter()
            .filter(|seen| seen.position < end)
            .count();
        assert_eq!(count(&storage).expect(what), expected, "{what}");
        // It is sound, and can be gone on with.
        assert_eq!(
            archive
                .repair(RECORDING, OPTIONS, 2_002, &|_| ())
                .expect(what),
            None
        );
        let mut writer = archive.extend(RECORDING, 2_003).expect(what);
        writer.append_batch([&b"more"[..]], 2_004).expect(what);
        writer.stop(2_005).expect(what);
        assert_eq!(count(&storage).expect(what), expected + 1, "{what}");
    }

    #[test]
    fn a_flipped_bit_anywhere_leaves_the_blocks_before_it() {
        for is_stopped in [true, false] {
            let tape = SampleRecording {
                is_stopped,
                ..small()
            };
            for (start, bytes) in &tape.segments {
                for at in 0..bytes.len() {
                    let mut tree = tape.tree();
                    let mut flipped = bytes.clone();
                    flipped[at] ^= 1 << (at % 8);
                    tree.insert(Path::new(FOLDER).join(name(*start).file()), flipped);
                    let what = format!("segment {start}, byte {at}, stopped {is_stopped}");
                    check(&tape, &tree, start.plus(at as u64), &what);
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_shorter_longer_or_missing_is_repaired() {
        let tape = SampleRecording {
            is_stopped: true,
            ..small()
        };
        let mut rng = Rng::from_seed(1);
        let path = |start: Position| Path::new(FOLDER).join(name(start).file());
        for (start, bytes) in &tape.segments {
            for _ in 0..20 {
                let length = 1 + rng.index(bytes.len() - 1);
                let mut tree = tape.tree();
                tree.insert(path(*start), bytes[..length].to_vec());
                let what = format!("segment {start}, length {length}");
                check(&tape, &tree, start.plus(length as u64), &what);
            }
        }
        let (last, bytes) = tape.segments.last().unwrap();
        let mut tree = tape.tree();
        tree.insert(path(*last), [bytes, &[1; 50][..]].concat());
        check(&tape, &tree, tape.end(), "longer");
        let mut tree = tape.tree();
        tree.remove(path(tape.segments[1].0));
        check(&tape, &tree, tape.segments[1].0, "missing");
    }
}
