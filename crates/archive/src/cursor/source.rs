//! One open segment: its bytes, lent from a mapped file or from a buffer.

use super::replay::{Chain, Fault, check_header, check_payload};
use crate::RecordingTag;
use crate::block::{BlockHeader, Defect, HEADER_LENGTH};
use crate::segment::{SegmentHeader, SegmentName};
use crate::window::ReadAhead;
use seatrial_machine::{Disk, Mapped, Medium, Storage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment's file, open for reading.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) name: SegmentName,
    pub(crate) view: View,
}

/// The bytes of an open segment. Owns the mapped file, or one buffer, which only holds bytes that the file had when they
/// were read: who finds a block in it that is not whole calls [`View::forget`] before looking again.
#[derive(Debug)]
pub(crate) struct View {
    medium: Arc<dyn Medium>,
    /// What the blocks of the recording are known by.
    tag: Option<RecordingTag>,
    map: Option<(Arc<dyn Mapped>, u64)>,
    buffer: ReadAhead,
}

impl Source {
    /// Opens the file of this name; nothing is read.
    pub(crate) fn open(
        storage: &dyn Storage,
        folder: &Path,
        name: SegmentName,
        tag: Option<RecordingTag>,
    ) -> Result<Source, (PathBuf, io::Error)> {
        let path = folder.join(name.file());
        match storage.open(&path) {
            Ok(medium) => Ok(Source {
                path,
                name,
                view: View {
                    medium,
                    tag,
                    map: None,
                    buffer: ReadAhead::default(),
                },
            }),
            Err(source) => Err((path, source)),
        }
    }

    /// Reads and checks the first block: that of this segment. Answers with it and what the block behind it has to
    /// continue; `chain` is what it has to continue itself, if that is known. The file holds `there` bytes.
    pub(crate) fn first(
        &mut self,
        chain: Option<&Chain>,
        there: u64,
    ) -> io::Result<Result<First, Fault>> {
        let sequence = chain.map(|chain| chain.sequence);
        let header = match self.view.header(0, sequence, there)? {
            Ok(header) => header,
            Err(defect) => return Ok(Err(defect.into())),
        };
        let length = header.block_length() as usize;
        let block = self.view.bytes(0, length, there)?;
        Ok(First::check(
            header,
            &block[HEADER_LENGTH..],
            self.name,
            chain,
        ))
    }
}

/// The first block of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) block: BlockHeader,
    pub(crate) segment: SegmentHeader,
}

impl First {
    /// Checks the body of the block, whose header was.
    fn check(
        block: BlockHeader,
        body: &[u8],
        name: SegmentName,
        chain: Option<&Chain>,
    ) -> Result<First, Fault> {
        check_payload(&block, body, None)?;
        let payload = &body[..block.payload_length as usize];
        let segment = SegmentHeader::decode(block.kind, payload)?;
        segment.check(name)?;
        if let Some(chain) = chain {
            chain.check_segment(&segment)?;
        }
        Ok(First { block, segment })
    }

    /// What the next block has to continue.
    pub(crate) fn next(&self) -> Chain {
        Chain {
            sequence: self.block.sequence.wrapping_add(1),
            message: Some(self.segment.first_message),
            time: self.segment.time,
        }
    }
}

impl View {
    /// Maps the first `length` bytes, where the storage can. Only bytes that nobody will cut off may be asked for then.
    pub(crate) fn map(&mut self, length: u64) -> io::Result<()> {
        self.map = self.medium.map(length)?.map(|map| (map, length));
        Ok(())
    }

    /// The same file and view with a buffer of its own.
    pub(crate) fn again(&self) -> View {
        View {
            medium: Arc::clone(&self.medium),
            tag: self.tag,
            map: self.map.clone(),
            buffer: ReadAhead::default(),
        }
    }

    /// Bytes of the file now.
    pub(crate) fn length(&self) -> u64 {
        self.medium.len()
    }

    /// The file.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.medium
    }

    /// Frees what was read.
    pub(crate) fn release(&mut self) {
        self.buffer = ReadAhead::default();
    }

    /// Forgets what was read from `offset` on.
    pub(crate) fn forget(&mut self, offset: u64) {
        self.buffer.forget(offset);
    }

    /// The `length` bytes at `offset`, which the caller knows to be there: the file holds `there` in all.
    pub(crate) fn bytes(&mut self, offset: u64, length: usize, there: u64) -> io::Result<&[u8]> {
        let end = offset + length as u64;
        if let Some((map, mapped)) = &self.map
            && end <= *mapped
        {
            match map.bytes(offset, length) {
                // The view is of the file as it was, and the file has grown.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                lent => return lent,
            }
        }
        self.buffer.read(&*self.medium, offset, length, there)
    }

    /// The header of the block at `offset`, of which the file's `there` bytes hold all, or what is wrong with it.
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
