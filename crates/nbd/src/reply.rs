//! Replies to requests: simple ones, and structured ones in chunks.

use crate::handshake::ALLOCATION_CONTEXT;
use crate::nbd_request::{FLAG_DF, FLAG_REQ_ONE, NbdErrno, NbdHeader};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;

/// The last chunk of a reply.
const FLAG_DONE: u16 = 1;

const CHUNK_NONE: u16 = 0;
const CHUNK_OFFSET_DATA: u16 = 1;
const CHUNK_OFFSET_HOLE: u16 = 2;
const CHUNK_BLOCK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = 0x8001;

/// State of an extent without data: a hole that reads as zeros.
const STATE_HOLE_ZERO: u32 = 3;

/// Length in which zeros of a read are looked for: shorter runs are sent as data.
const ZERO_RUN: usize = 64 << 10;

/// The bytes of a reply, in two parts so that the data of a read is not copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NbdReply {
    /// Sent first.
    pub head: Vec<u8>,
    /// Sent after it.
    pub payload: Vec<u8>,
    /// [`NbdHeader::memory`] of the request, which its driver reserved and frees when the reply is written; 0 if the header's
    /// [check](NbdHeader::check) failed.
    pub memory: usize,
}

/// The form of the replies to one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyForm {
    pub(super) header: NbdHeader,
    pub(super) is_structured: bool,
}

impl ReplyForm {
    fn of(self, head: Vec<u8>, payload: Vec<u8>) -> NbdReply {
        NbdReply {
            head,
            payload,
            memory: self.header.memory(),
        }
    }

    fn simple(self, error: u32, payload: Vec<u8>) -> NbdReply {
        let mut head = Vec::with_capacity(16);
        head.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
        head.extend_from_slice(&error.to_be_bytes());
        head.extend_from_slice(&self.header.cookie.to_be_bytes());
        self.of(head, payload)
    }

    /// Appends the head of a chunk whose `length` bytes follow.
    fn chunk(self, head: &mut Vec<u8>, flags: u16, kind: u16, length: usize) {
        head.extend_from_slice(&STRUCTURED_MAGIC.to_be_bytes());
        head.extend_from_slice(&flags.to_be_bytes());
        head.extend_from_slice(&kind.to_be_bytes());
        head.extend_from_slice(&self.header.cookie.to_be_bytes());
        head.extend_from_slice(&(length as u32).to_be_bytes());
    }

    /// Done, without data. The protocol permits simple replies here in either case.
    pub(super) fn done(self) -> NbdReply {
        self.simple(0, Vec::new())
    }

    /// Failed, with a text if the client reads structured replies.
    pub(super) fn failed(self, error: NbdErrno, text: &str) -> NbdReply {
        if !self.is_structured {
            return self.simple(error as u32, Vec::new());
        }
        let text = &text.as_bytes()[..text.floor_char_boundary(1_000)];
        let mut head = Vec::with_capacity(26 + text.len());
        self.chunk(&mut head, FLAG_DONE, CHUNK_ERROR, 6 + text.len());
        head.extend_from_slice(&(error as u32).to_be_bytes());
        head.extend_from_slice(&(text.len() as u16).to_be_bytes());
        head.extend_from_slice(text);
        self.of(head, Vec::new())
    }

    /// The bytes of a read.
    pub(super) fn data(self, bytes: Vec<u8>) -> NbdReply {
        debug_assert_eq!(bytes.len(), self.header.length as usize);
        if !self.is_structured {
            return self.simple(0, bytes);
        }
        if bytes.is_empty() {
            // A chunk of data has a byte at least.
            let mut head = Vec::with_capacity(20);
            self.chunk(&mut head, FLAG_DONE, CHUNK_NONE, 0);
            return self.of(head, bytes);
        }
        let runs = if self.header.flags & FLAG_DF == 0 {
            zero_runs(&bytes)
        } else {
            Vec::new()
        };
        if runs.iter().all(|(_, is_zero)| !is_zero) {
            let mut head = Vec::with_capacity(28);
            self.chunk(&mut head, FLAG_DONE, CHUNK_OFFSET_DATA, 8 + bytes.len());
            head.extend_from_slice(&self.header.offset.to_be_bytes());
            return self.of(head, bytes);
        }
        let (mut head, mut start) = (Vec::new(), 0);
        for (length, is_zero) in runs {
            let flags = u16::from(start + length == bytes.len()) * FLAG_DONE;
            let offset = self.header.offset + start as u64;
            if is_zero {
                self.chunk(&mut head, flags, CHUNK_OFFSET_HOLE, 12);
                head.extend_from_slice(&offset.to_be_bytes());
                head.extend_from_slice(&(length as u32).to_be_bytes());
            } else {
                self.chunk(&mut head, flags, CHUNK_OFFSET_DATA, 8 + length);
                head.extend_from_slice(&offset.to_be_bytes());
                head.extend_from_slice(&bytes[start..start + length]);
            }
            start += length;
        }
        self.of(head, Vec::new())
    }

    /// The extents of a range, in order: bytes, and whether they hold data.
    pub(super) fn extents(self, extents: &[(u32, bool)]) -> NbdReply {
        let count = if self.header.flags & FLAG_REQ_ONE == 0 {
            extents.len()
        } else {
            1
        };
        let extents = &extents[..count.min(extents.len())];
        let mut head = Vec::with_capacity(24 + 8 * extents.len());
        self.chunk(
            &mut head,
            FLAG_DONE,
            CHUNK_BLOCK_STATUS,
            4 + 8 * extents.len(),
        );
        head.extend_from_slice(&ALLOCATION_CONTEXT.to_be_bytes());
        for (length, has_data) in extents {
            let state = if *has_data { 0 } else { STATE_HOLE_ZERO };
            head.extend_from_slice(&length.to_be_bytes());
            head.extend_from_slice(&state.to_be_bytes());
        }
        self.of(head, Vec::new())
    }
}

/// Lengths of runs, and whether they are zeros.
fn zero_runs(bytes: &[u8]) -> Vec<(usize, bool)> {
    let mut runs: Vec<(usize, bool)> = Vec::new();
    for piece in bytes.chunks(ZERO_RUN) {
        let is_zero = is_zero(piece);
        match runs.last_mut() {
            Some((length, is_same)) if *is_same == is_zero => *length += piece.len(),
            _ => runs.push((piece.len(), is_zero)),
        }
    }
    runs
}

/// Are all bytes zero? Bytes of data are found at the first words, as a rule.
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    let is_zero = |word: &[u8; 64]| word.iter().fold(0, |sum, byte| sum | byte) == 0;
    words.iter().all(is_zero) && rest.iter().all(|&byte| byte == 0)
}
