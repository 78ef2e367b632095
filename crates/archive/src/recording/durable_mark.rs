//! The mark of a live recording's durable end, in its own file: it detects a recording that has lost its end in a crash.
//! Byte map in `docs/formats/archive.md`.

use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::catalog::{Boundary, Recording};
use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::crc32c;
use seatrial_machine::{Disk, Medium, Storage};
use std::path::Path;
use std::sync::Arc;

/// Length of the file in bytes.
const LENGTH: usize = 64;
/// Its first bytes.
const MAGIC: [u8; 8] = *b"SEADURAB";

/// The file's name.
pub(crate) fn mark_file(recording: RecordingId) -> String {
    format!("{:010}.mark", recording.0)
}

/// A lower bound of a recording's end. It is written after each sync and not synced itself: a power failure may leave an
/// older mark, or none, but never one after the durable end. A recording that was left open and ends before its mark has
/// lost durable messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DurableMark {
    recording: RecordingId,
    tag: RecordingTag,
    end: Boundary,
}

impl DurableMark {
    fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        let Boundary {
            position,
            message,
            sequence,
            time,
        } = self.end;
        let words = [self.recording.0, position.0, message, sequence, time];
        for (place, word) in bytes[8..48].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[48..52].copy_from_slice(&self.tag.0.to_le_bytes());
        let checksum = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; LENGTH]) -> Option<DurableMark> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let is_whole = bytes.starts_with(&MAGIC)
            && word(6) >> 32 == 0
            && word(7) == u64::from(crc32c(&bytes[..60])) << 32;
        is_whole.then(|| DurableMark {
            recording: RecordingId(word(1)),
            tag: RecordingTag(word(6) as u32),
            end: Boundary {
                position: Position(word(2)),
                message: word(3),
                sequence: word(4),
                time: word(5),
            },
        })
    }
}

/// The recording with its end raised to its mark, if it is open and has one.
pub(crate) fn with_mark(
    storage: &dyn Storage,
    folder: &Path,
    mut recording: Recording,
) -> Recording {
    if recording.stopped.is_none()
        && let Some(end) = read(storage, folder, &recording)
        && end.position > recording.end.position
    {
        recording.end = end;
    }
    recording
}

/// The mark of a recording; `None` if it has no valid one, or the file is of another recording.
fn read(storage: &dyn Storage, folder: &Path, recording: &Recording) -> Option<Boundary> {
    let tag = recording.tag?;
    let medium = storage.open(&folder.join(mark_file(recording.id))).ok()?;
    let mut bytes = [0; LENGTH];
    Disk::read_at(&*medium, 0, &mut bytes).ok()?;
    let mark = DurableMark::decode(&bytes)?;
    ((mark.recording, mark.tag) == (recording.id, tag)).then_some(mark.end)
}

/// Removes a recording's mark, which no longer holds; durable once the folder is synced.
pub(crate) fn remove(folder: &ArchiveFolder, recording: RecordingId) -> Result<(), StorageError> {
    folder.remove_if_there(&mark_file(recording))
}

/// The file of a mark, created at the first write. Failures are ignored: without a mark, only the detection of a loss is
/// missing.
#[derive(Debug)]
pub(crate) struct MarkWriter {
    recording: RecordingId,
    tag: Option<RecordingTag>,
    medium: Option<Arc<dyn Medium>>,
}

impl MarkWriter {
    pub(crate) fn new(recording: &Recording) -> MarkWriter {
        MarkWriter {
            recording: recording.id,
            tag: recording.tag,
            medium: None,
        }
    }

    /// Records that everything before `end` is durable.
    pub(crate) fn write(&mut self, folder: &ArchiveFolder, end: Boundary) {
        let Some(tag) = self.tag else {
            return;
        };
        let (recording, name) = (self.recording, mark_file(self.recording));
        if self.medium.is_none() {
            let opened = folder.open_write(&name).or_else(|_| folder.create(&name));
            self.medium = opened.ok();
        }
        if let Some(medium) = &self.medium {
            let mark = DurableMark {
                recording,
                tag,
                end,
            };
            let _ = folder.write(&name, &**medium, 0, &mark.encode());
        }
    }

    /// Removes the mark of a stopped recording, whose end is in the catalog.
    pub(crate) fn end(self, folder: &ArchiveFolder) {
        if self.medium.is_some() {
            let _ = remove(folder, self.recording);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_decodes_to_itself_and_no_flipped_bit_does() {
        let mark = DurableMark {
            recording: RecordingId(7),
            tag: RecordingTag(0x1122_3344),
            end: Boundary {
                position: Position(0x55_6677),
                message: 88,
                sequence: 99,
                time: 1_763_800_000_000_000_000,
            },
        };
        let bytes = mark.encode();
        assert_eq!(DurableMark::decode(&bytes), Some(mark));
        for bit in 0..LENGTH * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(DurableMark::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(DurableMark::decode(&[0; LENGTH]), None);
    }
}
