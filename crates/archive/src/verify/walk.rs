//! Stepping over the headers of files, and over what is damaged, so that threads can check what is between.

use super::piece::{Found, Piece, Range, Segment};
use super::{RecordingReport, VerifyDamage, VerifyFault};
use crate::block::{ALIGNMENT, BlockHeader, Defect, MAGIC};
use crate::cursor::{Extent, First, Source, Steps, segments};
use crate::segment::SegmentName;
use crate::{CursorError, Fault, HEADER_LENGTH, Position, RecordingId, RecordingTag};
use seatrial_machine::{Disk, Storage};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes that one thread checks before it asks for more.
const RANGE_LENGTH: u64 = 4 << 20;
/// Bytes searched at a time for the next header.
const SEARCH_LENGTH: usize = 64 << 10;

/// Walks files in order and cuts them into ranges. Owns what follows from headers alone.
pub(super) struct Walk<'a> {
    storage: &'a dyn Storage,
    folder: &'a Path,
    files: VecDeque<(usize, SegmentName)>,
    pub(super) recordings: Vec<Walked>,
    open: Option<Open>,
    total: u64,
}

/// A recording as far as its headers say.
pub(super) struct Walked {
    pub(super) extent: Extent,
    pub(super) report: RecordingReport,
    /// What is wrong, in the order in which it was found.
    pub(super) found: Vec<Found>,
    /// The first blocks of segments.
    pub(super) firsts: Vec<Piece>,
    /// Where the next file belongs.
    pub(super) expected: Position,
    /// The number of the block that comes next, if it is known.
    sequence: Option<u64>,
    /// The last file.
    pub(super) last: Option<Arc<Segment>>,
}

/// The file in hand.
struct Open {
    segment: Arc<Segment>,
    steps: Steps,
    at: u64,
}

impl<'a> Walk<'a> {
    /// Lists the files.
    pub(super) fn new(
        storage: &'a dyn Storage,
        folder: &'a Path,
        recordings: &[RecordingId],
    ) -> Result<Walk<'a>, CursorError> {
        let mut walk = Walk {
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
                if let Ok(source) = Source::open(storage, folder, name, extent.tag) {
                    walk.total += source.view.length();
                }
            }
            walk.files.extend(names.iter().map(|&name| (index, name)));
            let mut walked = Walked::new(extent, recording);
            if names.is_empty() {
                walked.miss_all(folder);
            }
            walk.recordings.push(walked);
        }
        Ok(walk)
    }

    /// Bytes of all files.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The next blocks to check.
    pub(super) fn next_range(&mut self) -> Option<Range> {
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
        let mut segment = Segment {
            recording: index,
            name,
            path,
            length: 0,
            view: None,
        };
        let (first, segment) =
            match Source::open(self.storage, self.folder, name, walked.extent.tag) {
                Ok(mut source) => {
                    segment.length = source.view.length();
                    let settled = walked.extent.settled(name.start, segment.length, is_last);
                    let mapped = source.view.map(settled);
                    let first = mapped.and_then(|()| source.first(None, segment.length));
                    segment.view = Some(source.view.again());
                    (first, segment)
                }
                Err((_, error)) => (Err(error), segment),
            };
        let segment = Arc::new(segment);
        walked.begin(&segment);
        let at = walked.first(&segment, first);
        self.open = Some(Open {
            steps: Steps::new(segment.length, walked.extent.tag),
            segment,
            at,
        });
    }
}

impl Walked {
    /// Not one file of a recording is there.
    fn miss_all(&mut self, folder: &Path) {
        let expected = self.extent.promised;
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

    fn new(extent: Extent, recording: RecordingId) -> Walked {
        Walked {
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

    /// Goes on to a file, which may be elsewhere than the one before ends.
    fn begin(&mut self, segment: &Arc<Segment>) {
        let (expected, found) = (self.expected, segment.name.start);
        if expected != found {
            self.found(segment, 0, 0, VerifyFault::Gap { expected, found });
            self.sequence = None;
            // Without a file before it, the first one is the file that is missing.
            if self.last.is_none()
                && let Some(Found { damage, .. }) = self.found.last_mut()
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

    /// What the first block of a file is; answers where to go on.
    fn first(&mut self, segment: &Arc<Segment>, first: io::Result<Result<First, Fault>>) -> u64 {
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
                    self.found(segment, 0, length, Fault::Block(defect));
                }
                self.sequence = Some(found.wrapping_add(1));
                self.firsts.push(Piece::first(segment, &first));
                length
            }
            Ok(Err(fault)) => self.skip(segment, 0, fault.into()),
            Err(error) => self.skip(segment, 0, VerifyFault::unreadable(&error)),
        }
    }

    /// Finds where to go on behind `at`, and that what is between is damaged.
    fn skip(&mut self, segment: &Segment, at: u64, fault: VerifyFault) -> u64 {
        let disk = segment.view.as_ref().map(|view| view.disk());
        let next = disk.and_then(|disk| {
            let expected = (self.extent.tag, self.sequence);
            next_header(disk, at, segment.length, expected)
        });
        let end = next.map_or(segment.length, |(at, _)| at);
        self.found(segment, at, end - at, fault);
        self.sequence = next.map(|(_, header)| header.sequence);
        end
    }

    fn found(&mut self, segment: &Segment, at: u64, length: u64, fault: impl Into<VerifyFault>) {
        self.found.push(Found {
            sequence: self.sequence,
            damage: segment.damage(at, length, fault),
        });
    }
}

impl Open {
    /// The blocks from here on whose headers are whole; nothing if there is damage here, which is stepped over.
    fn range(&mut self, walked: &mut Walked) -> Option<Range> {
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
                Ok(Err(defect)) => Fault::Block(defect).into(),
                Err(error) => VerifyFault::unreadable(&error),
            };
            self.at = walked.skip(&self.segment, self.at, fault);
            return None;
        }
        Some(Range {
            segment: Arc::clone(&self.segment),
            from,
            to: self.at,
            sequence: first?,
        })
    }
}

/// The next whole header at `invalid` or behind it that is newer than the block `expected` there, by the rule of
/// `docs/formats/block.md`. What cannot be read is stepped over.
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
            at += Steps::LENGTH as u64;
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
            // The first place without an expectation is the one that was found invalid.
            if is_newer && (expected.is_some() || place > invalid) {
                return Some((place, header));
            }
        }
        // The last header may begin in the bytes behind the last place that was looked at.
        let stepped = (there - HEADER_LENGTH) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
        at += stepped as u64;
    }
    None
}
