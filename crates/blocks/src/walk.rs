//! The blocks of a log in order, each checked before it is returned.

use crate::block::{ALIGNMENT, BlockHeader, Defect, HEADER_LENGTH, MAGIC};
use crate::window::{ReadAhead, Window};
use crate::{RecordingTag, crc32c};
use seatrial_machine::Disk;
use std::io;

/// Bytes searched at a time for the next header after an invalid block.
const SEARCH_LENGTH: u64 = 64 << 10;

/// A block whose header, payload and sequence number were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Offset of the block in the file.
    pub offset: u64,
    /// Its header.
    pub header: BlockHeader,
    /// Its payload as stored (compressed, if the flags name a codec).
    pub payload: &'a [u8],
}

/// The torn tail of a log: the remains of a write that a crash interrupted. Nothing in it was acknowledged as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("torn tail of {length} bytes at {offset}: {defect}")]
pub struct Torn {
    /// End of the log's valid blocks.
    pub offset: u64,
    /// Bytes from there to the end of the file.
    pub length: u64,
    /// Why the bytes there are not the next block.
    pub defect: Defect,
    /// Newer blocks after the invalid one that were written before its sync (flag *unordered*); they are cut off too.
    pub unordered: u64,
}

impl Torn {
    /// Does the tail begin with a block of another recording? An interrupted write cannot leave one.
    pub fn is_foreign(&self) -> bool {
        matches!(self.defect, Defect::Recording { .. })
    }
}

/// A block that was durable and is no longer valid: newer blocks, written after its sync, follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damage at {offset}: {defect}; a newer block ({newer_sequence}) is at {newer_offset}")]
pub struct Damage {
    /// Offset of the damaged block.
    pub offset: u64,
    /// Why it is not valid.
    pub defect: Defect,
    /// Offset of the evidence, a newer block. To read the rest of the log, start a new [`Walker`] here.
    pub newer_offset: u64,
    /// The newer block's number.
    pub newer_sequence: u64,
}

/// Why a [`Walker`] stopped.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// A read failed.
    #[error("cannot read at {offset}: {cause}")]
    Fault {
        /// Offset of the read.
        offset: u64,
        /// The disk's error.
        cause: io::Error,
    },
    /// A valid header of a version that this program does not know.
    #[error("block at {offset} is of format version {version}, this program reads version 1")]
    Version {
        /// Offset of the block.
        offset: u64,
        /// Its version.
        version: u8,
    },
    /// The log ends in an interrupted write.
    #[error(transparent)]
    Torn(Torn),
    /// A block that had been durable is lost.
    #[error(transparent)]
    Damaged(Damage),
}

/// Reads a log's blocks in order. Owns one read-ahead buffer; a payload is borrowed until the next call. At the first
/// invalid block it decides between torn tail and damage by the rule of `docs/formats/block.md`, which reads the rest of
/// the file once; later calls return the end of the log.
///
/// The first block may have any sequence number (but see [`Walker::expecting`]); each later one must have the next.
/// Time is linear in the file, memory is the longest block.
pub struct Walker<'a> {
    window: Window<'a>,
    /// Offset of the next block.
    offset: u64,
    /// The next block's sequence number, once it is known.
    expected: Option<u64>,
    owner: Owner,
    /// Was an invalid block found?
    stopped: bool,
}

impl<'a> Walker<'a> {
    /// A walk from `from_offset`, the offset of a block.
    pub fn new(disk: &'a dyn Disk, from_offset: u64) -> Walker<'a> {
        Walker {
            window: Window::new(disk),
            offset: from_offset,
            expected: None,
            owner: Owner::Any,
            stopped: false,
        }
    }

    /// Reads into the buffer of an earlier walk ([`Walker::into_buffer`]), which spares its memory from being allocated again.
    pub fn reusing(mut self, mut buffer: ReadAhead) -> Walker<'a> {
        buffer.forget(0);
        self.window.ahead = buffer;
        self
    }

    /// Ends the walk; its buffer can serve the next one.
    pub fn into_buffer(self) -> ReadAhead {
        self.window.ahead
    }

    /// Requires this sequence number of the first block.
    pub fn expecting(mut self, sequence: u64) -> Walker<'a> {
        self.expected = Some(sequence);
        self
    }

    /// Accepts only blocks of the recording with this tag, also as evidence of a loss.
    pub fn of_recording(mut self, tag: Option<RecordingTag>) -> Walker<'a> {
        self.owner = Owner::Recording(tag);
        self
    }

    /// Offset of the next block: the end of the blocks read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next block's sequence number; 0 before the first block.
    pub fn next_sequence(&self) -> u64 {
        self.expected.unwrap_or(0)
    }

    /// The next block; `None` at a clean end of the log.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, WalkError> {
        let Some((offset, header)) = self.advance(true)? else {
            return Ok(None);
        };
        let at = offset + HEADER_LENGTH as u64;
        let payload = self
            .window
            .read(at, header.payload_length as usize)
            .map_err(|cause| WalkError::Fault { offset, cause })?;
        Ok(Some(Block {
            offset,
            header,
            payload,
        }))
    }

    /// The next block's offset and header. The payload is neither read nor checked, it only has to fit the file.
    pub fn next_header(&mut self) -> Result<Option<(u64, BlockHeader)>, WalkError> {
        self.advance(false)
    }

    /// Checks the block at the current offset and steps over it.
    fn advance(&mut self, payload: bool) -> Result<Option<(u64, BlockHeader)>, WalkError> {
        let offset = self.offset;
        if self.stopped || offset >= self.window.disk_length() {
            return Ok(None);
        }
        let fault = |cause| WalkError::Fault { offset, cause };
        match self.check(offset, payload).map_err(fault)? {
            Ok(header) => {
                self.offset += header.block_length();
                assert!(self.offset <= self.window.disk_length());
                self.expected = Some(header.sequence.wrapping_add(1));
                Ok(Some((offset, header)))
            }
            Err(defect) => {
                self.stopped = true;
                Err(self.classify(offset, defect))
            }
        }
    }

    /// The header of the block at `offset`, or why it is not the next block.
    fn check(&mut self, offset: u64, payload: bool) -> io::Result<Result<BlockHeader, Defect>> {
        let header = match self.header(offset)? {
            Ok(header) => header,
            Err(defect) => return Ok(Err(defect)),
        };
        if let Owner::Recording(expected) = self.owner
            && expected != header.tag()
        {
            let found = header.tag();
            return Ok(Err(Defect::Recording { expected, found }));
        }
        if let Some(expected) = self.expected
            && expected != header.sequence
        {
            let found = header.sequence;
            return Ok(Err(Defect::Sequence { expected, found }));
        }
        let needed = header.block_length();
        let there = self.window.available(offset, needed);
        if there < needed {
            return Ok(Err(Defect::Short { needed, there }));
        }
        let body = if payload {
            self.body(offset, &header)?
        } else {
            Ok(())
        };
        Ok(body.map(|()| header))
    }

    /// The header at `offset`.
    fn header(&mut self, offset: u64) -> io::Result<Result<BlockHeader, Defect>> {
        let needed = HEADER_LENGTH as u64;
        let there = self.window.available(offset, needed);
        if there < needed {
            return Ok(Err(Defect::Short { needed, there }));
        }
        let mut bytes = [0; HEADER_LENGTH];
        bytes.copy_from_slice(self.window.read(offset, HEADER_LENGTH)?);
        Ok(BlockHeader::decode(&bytes))
    }

    /// Checks payload and padding of a block that fits the file.
    fn body(&mut self, offset: u64, header: &BlockHeader) -> io::Result<Result<(), Defect>> {
        let at = offset + HEADER_LENGTH as u64;
        let length = header.block_length() as usize - HEADER_LENGTH;
        let bytes = self.window.read(at, length)?;
        let (payload, padding) = bytes.split_at(header.payload_length as usize);
        let (stored, computed) = (header.payload_checksum, crc32c(payload));
        Ok(if stored != computed {
            Err(Defect::PayloadChecksum { stored, computed })
        } else if padding.iter().any(|&byte| byte != 0) {
            Err(Defect::Padding)
        } else {
            Ok(())
        })
    }

    /// Decides whether the invalid block at `offset` is a torn tail or damage.
    fn classify(&mut self, offset: u64, defect: Defect) -> WalkError {
        // A newer program may have other rules for what follows, so its blocks are never cut off.
        if let Defect::Version { found: version } = defect {
            return WalkError::Version { offset, version };
        }
        match self.evidence(offset) {
            Err(cause) => WalkError::Fault { offset, cause },
            Ok(DamageEvidence {
                ordered: Some((newer_offset, newer_sequence)),
                ..
            }) => WalkError::Damaged(Damage {
                offset,
                defect,
                newer_offset,
                newer_sequence,
            }),
            Ok(DamageEvidence { unordered, .. }) => WalkError::Torn(Torn {
                offset,
                length: self.window.disk_length() - offset,
                defect,
                unordered,
            }),
        }
    }

    /// Looks for newer blocks at and after `invalid`, the offset of the invalid block. Reads up to the end of the file.
    fn evidence(&mut self, invalid: u64) -> io::Result<DamageEvidence> {
        let mut evidence = DamageEvidence::default();
        let mut offset = match self.header(invalid)? {
            // A valid header of the expected block: bytes in its payload that look like blocks are no evidence.
            Ok(header) if self.expected.is_none_or(|next| next == header.sequence) => {
                invalid + header.block_length()
            }
            Ok(_) => invalid,
            Err(_) => invalid + ALIGNMENT as u64,
        };
        while let Some(at) = self.find_magic(offset)? {
            offset = at + ALIGNMENT as u64;
            let Ok(header) = self.header(at)? else {
                continue;
            };
            if !self.owner.has(&header) || !self.is_newer(invalid, at, header.sequence) {
                continue;
            }
            if header.is_ordered() {
                evidence.ordered = Some((at, header.sequence));
                break;
            }
            evidence.unordered += 1;
            offset = at + header.block_length();
        }
        Ok(evidence)
    }

    /// Can a block with number `sequence` at `offset` belong to this log, after an invalid block at `invalid`? Blocks
    /// are at least a header long, which bounds how many fit in between; a higher number is a leftover of an older file.
    fn is_newer(&self, invalid: u64, offset: u64, sequence: u64) -> bool {
        let steps_max = (offset - invalid) / HEADER_LENGTH as u64;
        self.expected.is_none_or(|expected| {
            // At the invalid block itself, any higher number means that blocks are missing before it.
            let steps_max = if offset == invalid {
                u64::MAX - expected
            } else {
                steps_max
            };
            sequence > expected && sequence - expected <= steps_max
        })
    }

    /// The next aligned offset, at or after `offset`, with the first bytes of a header.
    fn find_magic(&mut self, offset: u64) -> io::Result<Option<u64>> {
        let mut offset = offset;
        loop {
            let length = self.window.available(offset, SEARCH_LENGTH);
            if length < HEADER_LENGTH as u64 {
                return Ok(None);
            }
            let bytes = self.window.read(offset, length as usize)?;
            let found = bytes
                .chunks_exact(ALIGNMENT)
                .position(|start| start[..MAGIC.len()] == MAGIC);
            if let Some(index) = found {
                return Ok(Some(offset + (index * ALIGNMENT) as u64));
            }
            offset += length.next_multiple_of(ALIGNMENT as u64);
        }
    }
}

/// Which blocks belong to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// All: the log is not a segment, or its recording is unknown.
    Any,
    /// Those of the recording with this tag, or without a tag.
    Recording(Option<RecordingTag>),
}

impl Owner {
    fn has(self, header: &BlockHeader) -> bool {
        match self {
            Owner::Any => true,
            Owner::Recording(tag) => tag == header.tag(),
        }
    }
}

/// Newer blocks after an invalid one.
#[derive(Default)]
struct DamageEvidence {
    /// Offset and sequence number of the first one that was written after the invalid block was durable.
    ordered: Option<(u64, u64)>,
    /// Number of those before it that were not.
    unordered: u64,
}
