//! One open segment: its bytes, from a mapped view or a buffer, and its first block.

use super::block_check::{BlockDamage, ExpectedBlock, check_header, check_payload};
use crate::segment::{SegmentHeader, SegmentName};
use seatrial_blocks::ReadAhead;
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::{BlockHeader, Defect, HEADER_LENGTH};
use seatrial_machine::{Disk, Mapped, Medium, Storage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment's file, open for reading.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) path: PathBuf,
    pub(crate) name: SegmentName,
    pub(crate) view: SegmentBytes,
}

/// The bytes of an open segment. Owns a mapped view, or one buffer. The buffer has the bytes that the file had when they
/// were read: after an incomplete block, call [`SegmentBytes::forget`] before reading it again.
#[derive(Debug)]
pub(crate) struct SegmentBytes {
    medium: Arc<dyn Medium>,
    /// The tag of the recording.
    tag: Option<RecordingTag>,
    /// The view and its length, if the file is mapped.
    map: Option<(Arc<dyn Mapped>, u64)>,
    buffer: ReadAhead,
}

impl OpenSegment {
    /// Opens the file of this name; reads nothing.
    pub(crate) fn open(
        storage: &dyn Storage,
        folder: &Path,
        name: SegmentName,
        tag: Option<RecordingTag>,
    ) -> Result<OpenSegment, (PathBuf, io::Error)> {
        let path = folder.join(name.file());
        match storage.open(&path) {
            Ok(medium) => Ok(OpenSegment {
                path,
                name,
                view: SegmentBytes {
                    medium,
                    tag,
                    map: None,
                    buffer: ReadAhead::default(),
                },
            }),
            Err(source) => Err((path, source)),
        }
    }

    /// Reads and checks the first block of the segment. `chain` is what it has to match, if the previous block is known;
    /// `there` is the length of the file.
    pub(crate) fn first(
        &mut self,
        chain: Option<&ExpectedBlock>,
        there: u64,
    ) -> io::Result<Result<FirstBlock, BlockDamage>> {
        let sequence = chain.map(|chain| chain.sequence);
        let header = match self.view.header(0, sequence, there)? {
            Ok(header) => header,
            Err(defect) => return Ok(Err(defect.into())),
        };
        let length = header.block_length() as usize;
        let block = self.view.bytes(0, length, there)?;
        Ok(FirstBlock::check(
            header,
            &block[HEADER_LENGTH..],
            self.name,
            chain,
        ))
    }
}

/// The first block of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstBlock {
    pub(crate) block: BlockHeader,
    pub(crate) segment: SegmentHeader,
}

impl FirstBlock {
    /// Checks the block's body; the header was checked before.
    fn check(
        block: BlockHeader,
        body: &[u8],
        name: SegmentName,
        chain: Option<&ExpectedBlock>,
    ) -> Result<FirstBlock, BlockDamage> {
        check_payload(&block, body, None)?;
        let payload = &body[..block.payload_length as usize];
        let segment = SegmentHeader::decode(block.kind, payload)?;
        segment.check(name)?;
        if let Some(chain) = chain {
            chain.check_segment(&segment)?;
        }
        Ok(FirstBlock { block, segment })
    }

    /// What the next block has to match.
    pub(crate) fn next(&self) -> ExpectedBlock {
        ExpectedBlock {
            sequence: self.block.sequence.wrapping_add(1),
            message: Some(self.segment.first_message),
            time: self.segment.time,
        }
    }
}

impl SegmentBytes {
    /// Maps the first `length` bytes, if the storage can. They must be bytes that no recovery cuts off.
    pub(crate) fn map(&mut self, length: u64) -> io::Result<()> {
        self.map = self.medium.map(length)?.map(|map| (map, length));
        Ok(())
    }

    /// The same file and view, with a buffer of its own for another thread.
    pub(crate) fn with_own_buffer(&self) -> SegmentBytes {
        SegmentBytes {
            medium: Arc::clone(&self.medium),
            tag: self.tag,
            map: self.map.clone(),
            buffer: ReadAhead::default(),
        }
    }

    /// Current length of the file.
    pub(crate) fn length(&self) -> u64 {
        self.medium.len()
    }

    /// The file.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.medium
    }

    /// Frees the buffer.
    pub(crate) fn release(&mut self) {
        self.buffer = ReadAhead::default();
    }

    /// Drops buffered bytes from `offset` on, so that they are read again.
    pub(crate) fn forget(&mut self, offset: u64) {
        self.buffer.forget(offset);
    }

    /// The `length` bytes at `offset`, which must be within the `there` bytes of the file.
    pub(crate) fn bytes(&mut self, offset: u64, length: usize, there: u64) -> io::Result<&[u8]> {
        let end = offset + length as u64;
        if let Some((map, mapped)) = &self.map
            && end <= *mapped
        {
            match map.bytes(offset, length) {
                // The view has the file's old length, and the file has grown: read instead.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                lent => return lent,
            }
        }
        self.buffer.read(&*self.medium, offset, length, there)
    }

    /// The header of the block at `offset`, which must fit the `there` bytes of the file, or why it is not valid.
    pub(crate) fn header(
        &mut self,
        offset: u64,
        sequence: Option<u64>,
        there: u64,
    ) -> io::Result<Result<BlockHeader, Defect>> {
        let left = there.saturating_sub(offset);
        if left < HEADER_LENGTH as u64 {
            return Ok(Err(Defect::Short {
                needed: HEADER_LENGTH as u64,
                there: left,
            }));
        }
        let tag = self.tag;
        let bytes = self.bytes(offset, HEADER_LENGTH, there)?;
        let Some(bytes) = bytes.first_chunk() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        Ok(check_header(bytes, tag, sequence, left))
    }
}
