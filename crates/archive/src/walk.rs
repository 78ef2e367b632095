//! Reading blocks in order, each checked before it is believed.

use crate::block::{ALIGNMENT, BlockHeader, Defect, HEADER_LENGTH, MAGIC};
use crate::window::Window;
use crate::{RecordingTag, crc32c};
use seatrial_machine::Disk;
use std::io;

/// Bytes searched at a time for the next header behind an invalid block.
const SEARCH_LENGTH: u64 = 64 << 10;

/// A block whose header, payload and place in the log were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Where the block starts in the file.
    pub offset: u64,
    /// Its header.
    pub header: BlockHeader,
    /// Its payload as stored (compressed, if the flags name a codec).
    pub payload: &'a [u8],
}

/// A log that ends in a write which a crash interrupted. Nobody had been promised what is cut here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("torn tail of {length} bytes at {offset}: {defect}")]
pub struct Torn {
    /// Where the log ends.
    pub offset: u64,
    /// Bytes of the file behind that.
    pub length: u64,
    /// What is wrong with the block there.
    pub defect: Defect,
    /// Newer blocks behind the hole that were written before the hole's sync (flag *unordered*); they go too.
    pub unordered: u64,
}

impl Torn {
    /// Is it a block of another recording? No interrupted write leaves one.
    pub fn is_foreign(&self) -> bool {
        matches!(self.defect, Defect::Recording { .. })
    }
}

/// A block that was durable once and is no longer whole: newer blocks, written after its sync, are behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damage at {offset}: {defect}; a newer block ({newer_sequence}) is at {newer_offset}")]
pub struct Damage {
    /// Where the damaged block is.
    pub offset: u64,
    /// What is wrong with it.
    pub defect: Defect,
    /// Where the evidence is: a newer block. A reader that wants the rest starts a new [`Walker`] here.
    pub newer_offset: u64,
    /// The newer block's number.
    pub newer_sequence: u64,
}

/// Why a [`Walker`] stopped.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// The disk did not give the bytes.
    #[error("cannot read at {offset}")]
    Fault {
        /// Where.
        offset: u64,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A whole header of a version that this program does not know.
    #[error("block at {offset} is of format version {version}, this program reads version 1")]
    Version {
        /// Where.
        offset: u64,
        /// The version.
        version: u8,
    },
    /// The log ended in an interrupted write.
    #[error(transparent)]
    Torn(Torn),
    /// The log lost a block that had been durable.
    #[error(transparent)]
    Damaged(Damage),
}

/// Reads a log's blocks in order. Owns one read-ahead buffer; a payload is lent until the next call. At the first
/// invalid block it decides between torn tail and damage by the rule of `docs/formats/block.md`, which reads
/// everything behind it once; afterwards it says that the log has ended.
///
/// The first block may have any sequence number (but see [`Walker::expecting`]); each further one has the next.
pub struct Walker<'a> {
    window: Window<'a>,
    offset: u64,
    expected: Option<u64>,
    owner: Owner,
    stopped: bool,
}

impl<'a> Walker<'a> {
    /// Starts at `from_offset`, where a block starts.
    pub fn new(disk: &'a dyn Disk, from_offset: u64) -> Walker<'a> {
        Walker {
            window: Window::new(disk),
            offset: from_offset,
            expected: None,
            owner: Owner::Any,
            stopped: false,
        }
    }

    /// Only a block with this sequence number is taken for the first one.
    pub fn expecting(mut self, sequence: u64) -> Walker<'a> {
        self.expected = Some(sequence);
        self
    }

    /// Only blocks of the recording with this tag are part of the log, or evidence of a loss.
    pub fn of_recording(mut self, tag: Option<RecordingTag>) -> Walker<'a> {
        self.owner = Owner::Recording(tag);
        self
    }

    /// Where the next block starts: the end of what was read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next block's sequence number; 0 before the first block.
    pub fn next_sequence(&self) -> u64 {
        self.expected.unwrap_or(0)
    }

    /// The next block; nothing at the clean end of the log.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, WalkError> {
        let Some((offset, header)) = self.advance(true)? else {
            return Ok(None);
        };
        let at = offset + HEADER_LENGTH as u64;
        let payload = self
            .window
            .read(at, header.payload_length as usize)
            .map_err(|source| WalkError::Fault { offset, source })?;
        Ok(Some(Block {
            offset,
            header,
            payload,
        }))
    }

    /// The next block's offset and header; its payload is neither read nor checked, only known to fit the file.
    pub fn next_header(&mut self) -> Result<Option<(u64, BlockHeader)>, WalkError> {
        self.advance(false)
    }

    /// Checks the block at the present offset and steps over it.
    fn advance(&mut self, payload: bool) -> Result<Option<(u64, BlockHeader)>, WalkError> {
        let offset = self.offset;
        if self.stopped || offset >= self.window.disk_length() {
            return Ok(None);
        }
        let fault = |source| WalkError::Fault { offset, source };
        match self.check(offset, payload).map_err(fault)? {
            Ok(header) => {
                self.offset += header.block_length();
                self.expected = Some(header.sequence.wrapping_add(1));
                Ok(Some((offset, header)))
            }
            Err(defect) => {
                self.stopped = true;
                Err(self.judge(offset, defect))
            }
        }
    }

    /// The block at `offset`, or what is wrong with it.
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
        let there = self.window.there(offset, needed);
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
        let there = self.window.there(offset, needed);
        if there < needed {
            return Ok(Err(Defect::Short { needed, there }));
        }
        let mut bytes = [0; HEADER_LENGTH];
        bytes.copy_from_slice(self.window.read(offset, HEADER_LENGTH)?);
        Ok(BlockHeader::decode(&bytes))
    }

    /// Checks payload and padding, which are known to be there.
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

    /// Torn tail or damage?
    fn judge(&mut self, offset: u64, defect: Defect) -> WalkError {
        if let Defect::Version { found: version } = defect {
            return WalkError::Version { offset, version };
        }
        match self.evidence(offset) {
            Err(source) => WalkError::Fault { offset, source },
            Ok(Evidence {
                ordered: Some((newer_offset, newer_sequence)),
                ..
            }) => WalkError::Damaged(Damage {
                offset,
                defect,
                newer_offset,
                newer_sequence,
            }),
            Ok(Evidence { unordered, .. }) => WalkError::Torn(Torn {
                offset,
                length: self.window.disk_length() - offset,
                defect,
                unordered,
            }),
        }
    }

    /// Looks for newer blocks at and behind the invalid one at `invalid`.
    fn evidence(&mut self, invalid: u64) -> io::Result<Evidence> {
        let mut evidence = Evidence::default();
        let mut offset = match self.header(invalid)? {
            // A whole header of the right block: what is inside its payload is no evidence.
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

    /// Can a block with number `sequence` at `offset` belong to this log, behind a hole at `invalid`?
    fn is_newer(&self, invalid: u64, offset: u64, sequence: u64) -> bool {
        let steps_max = (offset - invalid) / HEADER_LENGTH as u64;
        self.expected.is_none_or(|expected| {
            // At the hole itself, a higher number says that blocks are missing.
            let steps_max = if offset == invalid {
                u64::MAX - expected
            } else {
                steps_max
            };
            sequence > expected && sequence - expected <= steps_max
        })
    }

    /// The next aligned place at or behind `offset` that starts like a header.
    fn find_magic(&mut self, offset: u64) -> io::Result<Option<u64>> {
        let mut offset = offset;
        loop {
            let length = self.window.there(offset, SEARCH_LENGTH);
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

/// Whose blocks a log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// It is no segment, or its recording is not known.
    Any,
    /// The recording with this tag, or one without a tag.
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

/// What is behind an invalid block.
#[derive(Default)]
struct Evidence {
    /// The first newer block that was written after the invalid one was durable.
    ordered: Option<(u64, u64)>,
    /// Newer blocks before that which were not.
    unordered: u64,
}
