//! A walk over the headers of files, which cuts them into ranges for the threads and skips damage.

use super::checked_range::{BlockRange, CheckedRange, FoundDamage, VerifiedFile};
use super::{RecordingReport, VerifyDamage, VerifyFault};
use crate::cursor::{Extent, FirstBlock, HeaderReader, OpenSegment, segments};
use crate::segment::SegmentName;
use crate::{BlockDamage, CursorError, Position, RecordingId};
use seatrial_blocks::block::{ALIGNMENT, BlockHeader, Defect, MAGIC};
use seatrial_blocks::{HEADER_LENGTH, RecordingTag};
use seatrial_machine::{Disk, Storage};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Length of a range: what one thread checks at a time.
const RANGE_LENGTH: u64 = 4 << 20;
/// Bytes searched at a time for the next header.
const SEARCH_LENGTH: usize = 64 << 10;

/// Walks files in order and cuts them into ranges of blocks. Owns the results that need headers alone.
pub(super) struct FileWalk<'a> {
    storage: &'a dyn Storage,
    folder: &'a Path,
    files: VecDeque<(usize, SegmentName)>,
    pub(super) recordings: Vec<WalkedRecording>,
    open: Option<WalkedFile>,
    total: u64,
}

/// The results of a recording's header walk.
pub(super) struct WalkedRecording {
    pub(super) extent: Extent,
    pub(super) report: RecordingReport,
    /// Damage, in the order in which it was found.
    pub(super) found: Vec<FoundDamage>,
    /// The first blocks of segments.
    pub(super) firsts: Vec<CheckedRange>,
    /// Expected start of the next file.
    pub(super) expected: Position,
    /// Expected sequence number of the next block, if it is known.
    sequence: Option<u64>,
    /// The last file.
    pub(super) last: Option<Arc<VerifiedFile>>,
}

/// The file being walked.
struct WalkedFile {
    segment: Arc<VerifiedFile>,
    steps: HeaderReader,
    at: u64,
}

impl<'a> FileWalk<'a> {
    /// Lists the files.
    pub(super) fn new(
        storage: &'a dyn Storage,
        folder: &'a Path,
        recordings: &[RecordingId],
    ) -> Result<FileWalk<'a>, CursorError> {
        let mut walk = FileWalk {
            storage,
            folder,
            files: VecDeque::new(),
            recordings: Vec::new(),
            open: None,
            total: 0,
        };
        for (index, &recording) in recordings.iter().enumerate() {
            let extent = Extent::read(storage, folder, recording)?
                .ok_or(CursorError::NoRecording { recording })?;
            let mut names = segments(storage, folder, recording)?;
            extent.keep(&mut names);
            for &name in &names {
                if let Ok(source) = OpenSegment::open(storage, folder, name, extent.tag) {
                    walk.total += source.view.length();
                }
            }
            walk.files.extend(names.iter().map(|&name| (index, name)));
            let mut walked = WalkedRecording::new(extent, recording);
            if names.is_empty() {
                walked.miss_all(folder);
            }
            walk.recordings.push(walked);
        }
        Ok(walk)
    }

    /// Total length of all files in bytes.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The next range of blocks to check; `None` after the last file.
    pub(super) fn next_range(&mut self) -> Option<BlockRange> {
        loop {
            let Some(open) = &mut self.open else {
                let (index, name) = self.files.pop_front()?;
                self.begin(index, name);
                continue;
            };
            let walked = &mut self.recordings[open.segment.recording];
            if open.at >= open.segment.length {
                self.open = None;
            } else if let Some(range) = open.range(walked) {
                return Some(range);
            }
        }
    }

    /// Opens the next file and checks its first block.
    fn begin(&mut self, index: usize, name: SegmentName) {
        let walked = &mut self.recordings[index];
        let is_last = self.files.front().is_none_or(|&(next, _)| next != index);
        let path = self.folder.join(name.file());
        let mut segment = VerifiedFile {
            recording: index,
            name,
            path,
            length: 0,
            view: None,
        };
        let (first, segment) =
            match OpenSegment::open(self.storage, self.folder, name, walked.extent.tag) {
                Ok(mut source) => {
                    segment.length = source.view.length();
                    let settled = walked.extent.settled(name.start, segment.length, is_last);
                    let mapped = source.view.map(settled);
                    let first = mapped.and_then(|()| source.first(None, segment.length));
                    segment.view = Some(source.view.with_own_buffer());
                    (first, segment)
                }
                Err((_, error)) => (Err(error), segment),
            };
        let segment = Arc::new(segment);
        walked.begin(&segment);
        let at = walked.first(&segment, first);
        self.open = Some(WalkedFile {
            steps: HeaderReader::new(segment.length, walked.extent.tag),
            segment,
            at,
        });
    }
}

impl WalkedRecording {
    /// Reports a recording that has no file.
    fn miss_all(&mut self, folder: &Path) {
        let expected = self.extent.known_end;
        if self.extent.is_stopped || expected > self.extent.start {
            let (recording, start) = (self.report.recording, self.extent.start);
            let found = start;
            self.report.damages.push(VerifyDamage {
                path: folder.join(SegmentName { recording, start }.file()),
                offset: 0,
                position: start,
                length: 0,
                fault: VerifyFault::End { expected, found },
            });
        }
    }

    fn new(extent: Extent, recording: RecordingId) -> WalkedRecording {
        WalkedRecording {
            report: RecordingReport {
                recording,
                start: extent.start,
                end: extent.start,
                segments: 0,
                blocks: 0,
                messages: 0,
                bytes: 0,
                damages: Vec::new(),
                torn: None,
            },
            found: Vec::new(),
            firsts: Vec::new(),
            expected: extent.start,
            sequence: None,
            last: None,
            extent,
        }
    }

    /// Begins a file, and reports a gap if it does not start where the previous one ends.
    fn begin(&mut self, segment: &Arc<VerifiedFile>) {
        let (expected, found) = (self.expected, segment.name.start);
        if expected != found {
            self.found(segment, 0, 0, VerifyFault::Gap { expected, found });
            self.sequence = None;
            // If there is no previous file, the missing one is the recording's first.
            if self.last.is_none()
                && let Some(FoundDamage { damage, .. }) = self.found.last_mut()
            {
                let recording = self.report.recording;
                let start = expected;
                let missing = SegmentName { recording, start };
                damage.path = segment.path.with_file_name(missing.file());
                damage.position = expected;
            }
        }
        self.expected = found.plus(segment.length);
        self.report.segments += 1;
        self.report.bytes += segment.length;
        self.last = Some(Arc::clone(segment));
    }

    /// Records a file's first block; returns the offset at which to continue.
    fn first(
        &mut self,
        segment: &Arc<VerifiedFile>,
        first: io::Result<Result<FirstBlock, BlockDamage>>,
    ) -> u64 {
        match first {
            Ok(Ok(first)) => {
                if let Err(fault) = self.extent.check_first(&first) {
                    self.found(segment, 0, first.block.block_length(), fault);
                }
                let (length, found) = (first.block.block_length(), first.block.sequence);
                if let Some(expected) = self.sequence
                    && expected != found
                {
                    let defect = Defect::Sequence { expected, found };
                    self.found(segment, 0, length, BlockDamage::Block(defect));
                }
                self.sequence = Some(found.wrapping_add(1));
                self.firsts.push(CheckedRange::first(segment, &first));
                length
            }
            Ok(Err(fault)) => self.skip(segment, 0, fault.into()),
            Err(error) => self.skip(segment, 0, VerifyFault::unreadable(&error)),
        }
    }

    /// Reports damage at `at`, up to the next valid header; returns the offset at which to continue.
    fn skip(&mut self, segment: &VerifiedFile, at: u64, fault: VerifyFault) -> u64 {
        let disk = segment.view.as_ref().map(|view| view.disk());
        let next = disk.and_then(|disk| {
            let expected = (self.extent.tag, self.sequence);
            next_header(disk, at, segment.length, expected)
        });
        let end = next.map_or(segment.length, |(at, _)| at);
        assert!(at <= end && end <= segment.length);
        self.found(segment, at, end - at, fault);
        self.sequence = next.map(|(_, header)| header.sequence);
        end
    }

    fn found(
        &mut self,
        segment: &VerifiedFile,
        at: u64,
        length: u64,
        fault: impl Into<VerifyFault>,
    ) {
        self.found.push(FoundDamage {
            sequence: self.sequence,
            damage: segment.damage(at, length, fault),
        });
    }
}

impl WalkedFile {
    /// The next blocks with valid headers; `None` if the next one is damaged, which is then skipped.
    fn range(&mut self, walked: &mut WalkedRecording) -> Option<BlockRange> {
        let view = self.segment.view.as_ref()?;
        let (from, mut first) = (self.at, None);
        while self.at < self.segment.length && self.at - from < RANGE_LENGTH {
            let header = self.steps.header(view.disk(), self.at, walked.sequence);
            let fault = match header {
                Ok(Ok(header)) => {
                    first = first.or(Some(header.sequence));
                    walked.sequence = Some(header.sequence.wrapping_add(1));
                    self.at += header.block_length();
                    continue;
                }
                _ if first.is_some() => break,
                Ok(Err(defect)) => BlockDamage::Block(defect).into(),
                Err(error) => VerifyFault::unreadable(&error),
            };
            self.at = walked.skip(&self.segment, self.at, fault);
            return None;
        }
        Some(BlockRange {
            segment: Arc::clone(&self.segment),
            from,
            to: self.at,
            sequence: first?,
        })
    }
}

/// The next valid header at or after `invalid` that is newer than the block `expected` there, by the rule of
/// `docs/formats/block.md`. Unreadable pages are skipped.
fn next_header(
    disk: &dyn Disk,
    invalid: u64,
    length: u64,
    (tag, expected): (Option<RecordingTag>, Option<u64>),
) -> Option<(u64, BlockHeader)> {
    let mut bytes = vec![0; SEARCH_LENGTH];
    let mut at = invalid;
    while length.saturating_sub(at) >= HEADER_LENGTH as u64 {
        let there = (length - at).min(SEARCH_LENGTH as u64) as usize;
        let bytes = &mut bytes[..there];
        if disk.read_at(at, bytes).is_err() {
            at += HeaderReader::LENGTH as u64;
            continue;
        }
        for start in (0..=there - HEADER_LENGTH).step_by(ALIGNMENT) {
            let here = &bytes[start..];
            let Some(header) = here.first_chunk().filter(|_| here.starts_with(&MAGIC)) else {
                continue;
            };
            let Ok(header) = BlockHeader::decode(header) else {
                continue;
            };
            let place = at + start as u64;
            let steps_max = match place - invalid {
                0 => u64::MAX,
                between => between / HEADER_LENGTH as u64,
            };
            let is_newer = header.tag() == tag
                && expected.is_none_or(|expected| {
                    header.sequence > expected && header.sequence - expected <= steps_max
                });
            // Without an expectation, the header at `invalid` itself is the invalid one.
            if is_newer && (expected.is_some() || place > invalid) {
                return Some((place, header));
            }
        }
        // A header may begin in the last bytes of the buffer, too short to decode: search these again.
        let stepped = (there - HEADER_LENGTH) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
        at += stepped as u64;
    }
    None
}
