//! The search for a replay's origin: the segment by its name or first block, then the block by headers.

use super::block_check::check_header;
use super::{Cursor, CursorBound, CursorError, ExpectedBlock, Origin, SegmentEntry, system};
use crate::batch::BATCH_HEADER_LENGTH;
use crate::segment::SegmentName;
use crate::{BatchHeader, Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::{self, BlockHeader, Defect};
use seatrial_machine::{Disk, Storage};
use std::io;
use std::path::Path;

use super::open_segment::{FirstBlock, OpenSegment};

/// Length in bytes of a block's header and a batch's header.
const HEADERS_LENGTH: usize = block::HEADER_LENGTH + BATCH_HEADER_LENGTH;

/// The segments of a recording in the order of their positions.
pub(crate) fn segments(
    storage: &dyn Storage,
    folder: &Path,
    recording: RecordingId,
) -> Result<Vec<SegmentName>, CursorError> {
    let files = storage
        .list(folder)
        .map_err(|error| system("list", folder, 0, error))?;
    let names = files.iter().filter_map(|file| SegmentName::parse(file));
    let mut names: Vec<SegmentName> = names.filter(|name| name.recording == recording).collect();
    names.sort_unstable();
    Ok(names)
}

impl Cursor {
    /// Moves to `origin`, and determines the end for [`CursorBound::End`].
    pub(super) fn seek(&mut self, origin: Origin) -> Result<(), CursorError> {
        let mut names = segments(&*self.storage, &self.folder, self.recording)?;
        let start = self.extent.start;
        self.extent.keep(&mut names);
        let end = self.end(names.last().copied())?;
        if matches!(self.bound, CursorBound::End) {
            self.until = end;
        }
        let recording = self.recording;
        self.origin = match origin {
            Origin::Position(from) if from < start => {
                return Err(CursorError::BeforeStart {
                    recording,
                    start,
                    from,
                });
            }
            Origin::Position(from) if from > end => {
                return Err(CursorError::PastEnd {
                    recording,
                    end,
                    from,
                });
            }
            Origin::End => Origin::Position(end),
            Origin::Start => Origin::Position(start),
            origin => origin,
        };
        let Some(name) = self.choose(&names)? else {
            return Ok(());
        };
        match self.enter(name.start)? {
            SegmentEntry::Yes => self.step_over(),
            // The first block is being written: no batch to step over yet.
            SegmentEntry::Partly => Ok(()),
            SegmentEntry::Missing(path) => Err(self.gone(Some(path))?),
        }
    }

    /// The current end of the recording; `last` is its last segment.
    fn end(&self, last: Option<SegmentName>) -> Result<Position, CursorError> {
        if let CursorBound::Live(progress) = &self.bound {
            return Ok(progress.written());
        }
        if let Some(stop) = self.extent.stop() {
            return Ok(stop);
        }
        let known_end = self.extent.known_end;
        let Some(last) = last else {
            return Ok(known_end);
        };
        match OpenSegment::open(&*self.storage, &self.folder, last, self.extent.tag) {
            // At least the known end: durable bytes that are missing are reported when the cursor gets there.
            Ok(source) => Ok(last.start.plus(source.view.length()).max(known_end)),
            Err((path, error)) => Err(system("open", &path, 0, error)),
        }
    }

    /// The segment that contains the origin, or the last one before it.
    fn choose(&self, names: &[SegmentName]) -> Result<Option<SegmentName>, CursorError> {
        let Some(&first) = names.first() else {
            return Ok(None);
        };
        let needs_start = match self.origin {
            Origin::Position(from) => from < first.start,
            Origin::Start | Origin::End | Origin::Time(_) | Origin::Message(_) => true,
        };
        if needs_start && first.start > self.extent.start {
            let missing = SegmentName {
                recording: self.recording,
                start: self.extent.start,
            };
            let path = self.folder.join(missing.file());
            return Err(self.gone(Some(path))?);
        }
        let count_before = match self.origin {
            Origin::Position(from) => names.partition_point(|name| name.start <= from),
            Origin::Start | Origin::End => 0,
            Origin::Message(number) => {
                let before =
                    self.partition(names, |first| first.segment.first_message <= number)?;
                if before == 0 {
                    let first = self.first(first)?.segment.first_message;
                    return Err(CursorError::BeforeFirst {
                        recording: self.recording,
                        first,
                        asked: number,
                    });
                }
                before
            }
            Origin::Time(time) => self.partition(names, |first| first.segment.time < time)?,
        };
        Ok(names.get(count_before.saturating_sub(1)).copied())
    }

    /// The number of segments before the origin, by binary search: O(log(segments)) small reads.
    fn partition(
        &self,
        names: &[SegmentName],
        is_before: impl Fn(&FirstBlock) -> bool,
    ) -> Result<usize, CursorError> {
        let (mut low, mut high) = (0, names.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            // The first block of the last segment may still be being written. Starting at the segment before is then right
            // too: the cursor continues from it.
            let before = match self.first(names[middle]) {
                Err(CursorError::Damaged { .. }) if middle + 1 == names.len() => false,
                first => is_before(&first?),
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        assert!(low == high && low <= names.len());
        Ok(low)
    }

    /// The first block of a segment.
    fn first(&self, name: SegmentName) -> Result<FirstBlock, CursorError> {
        let mut source =
            match OpenSegment::open(&*self.storage, &self.folder, name, self.extent.tag) {
                Ok(source) => source,
                Err((path, error)) => return Err(system("open", &path, 0, error)),
            };
        let there = source.view.length().min(HeaderReader::LENGTH as u64);
        match source.first(None, there) {
            Ok(Ok(first)) => Ok(first),
            Ok(Err(fault)) => Err(CursorError::Damaged {
                path: source.path,
                offset: 0,
                position: name.start,
                fault,
            }),
            Err(error) => Err(system("read", &source.path, 0, error)),
        }
    }

    /// Steps over the headers of blocks that end before the origin. Stops at an invalid one without an error: reading the
    /// block reports it.
    fn step_over(&mut self) -> Result<(), CursorError> {
        let (Some(source), Some(chain)) = (&self.source, self.chain) else {
            return Ok(());
        };
        let disk = source.view.disk();
        let mut steps = HeaderReader::new(self.length, self.extent.tag);
        let fault = |at, error| system("read", &source.path, at, error);
        let mut at = self.position.since(source.name.start);
        let mut chain = chain;
        while let Some((block, batch)) = steps
            .headers(disk, at, chain.sequence)
            .map_err(|error| fault(at, error))?
        {
            let end = at + block.block_length();
            let is_over = match self.origin {
                Origin::Position(from) => source.name.start.plus(end) <= from,
                Origin::Message(number) => {
                    let messages = u64::from(batch.messages);
                    batch.first_message.saturating_add(messages) <= number
                }
                Origin::Time(time) => batch.time < time,
                Origin::Start | Origin::End => false,
            };
            if !is_over {
                break;
            }
            // The payload was not checked, so its message numbers are not used as an expectation.
            chain = ExpectedBlock {
                sequence: block.sequence.wrapping_add(1),
                message: None,
                time: chain.time,
            };
            at = end;
        }
        self.position = source.name.start.plus(at);
        self.chain = Some(chain);
        Ok(())
    }
}

/// Reads block headers one after the other. Owns a buffer of one page, so a longer block costs one small read.
#[derive(Debug)]
pub(crate) struct HeaderReader {
    /// Length of the file.
    length: u64,
    /// The tag of the recording.
    tag: Option<RecordingTag>,
    bytes: [u8; HeaderReader::LENGTH],
    /// Number of valid bytes in the buffer, and offset of the first.
    held: usize,
    start: u64,
}

impl HeaderReader {
    /// Bytes read at a time: the page of the kernel, which reads no less.
    pub(crate) const LENGTH: usize = 4096;

    /// A reader of the first `length` bytes of a file of the recording with this tag.
    pub(crate) fn new(length: u64, tag: Option<RecordingTag>) -> HeaderReader {
        HeaderReader {
            length,
            tag,
            bytes: [0; HeaderReader::LENGTH],
            held: 0,
            start: 0,
        }
    }

    /// The bytes at `at`: at least `length`, which the file must have.
    fn bytes(&mut self, disk: &dyn Disk, at: u64, length: usize) -> io::Result<&[u8]> {
        if at < self.start || at + length as u64 > self.start + self.held as u64 {
            let left = self.length.saturating_sub(at);
            let wanted = left.min(HeaderReader::LENGTH as u64) as usize;
            self.held = 0;
            disk.read_at(at, &mut self.bytes[..wanted])?;
            (self.start, self.held) = (at, wanted);
        }
        Ok(&self.bytes[(at - self.start) as usize..self.held])
    }

    /// The header of the block at `at`, which must fit the file, or why it is not valid.
    pub(crate) fn header(
        &mut self,
        disk: &dyn Disk,
        at: u64,
        sequence: Option<u64>,
    ) -> io::Result<Result<BlockHeader, Defect>> {
        let there = self.length.saturating_sub(at);
        let needed = block::HEADER_LENGTH as u64;
        if there < needed {
            return Ok(Err(Defect::Short { needed, there }));
        }
        let tag = self.tag;
        let bytes = self.bytes(disk, at, block::HEADER_LENGTH)?;
        let header = bytes.first_chunk();
        Ok(
            header.map_or(Err(Defect::Short { needed, there }), |header| {
                check_header(header, tag, sequence, there)
            }),
        )
    }

    /// The headers of the batch at `at`, if it has this sequence number and fits the file. Only the block's header is
    /// checked; the batch's is covered by the payload's checksum.
    fn headers(
        &mut self,
        disk: &dyn Disk,
        at: u64,
        sequence: u64,
    ) -> io::Result<Option<(BlockHeader, BatchHeader)>> {
        let Ok(block) = self.header(disk, at, Some(sequence))? else {
            return Ok(None);
        };
        if block.block_length() < HEADERS_LENGTH as u64 {
            return Ok(None);
        }
        let bytes = self.bytes(disk, at, HEADERS_LENGTH)?;
        let batch = bytes[block::HEADER_LENGTH..].first_chunk().map(peek);
        Ok(batch.map(|batch| (block, batch)))
    }
}

/// Decodes a batch's header without the checks that need its frames.
fn peek(bytes: &[u8; BATCH_HEADER_LENGTH]) -> BatchHeader {
    let (words, _) = bytes.as_chunks::<4>();
    let word = |at: usize| u32::from_le_bytes(words[at]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
    BatchHeader {
        time: long(0),
        first_message: long(2),
        messages: word(4),
    }
}
