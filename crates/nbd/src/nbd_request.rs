//! Requests of a client after the handshake: headers, flags and errors.

use crate::handshake::NbdSession;
use seatrial_volume::REQUEST_LENGTH_MAX;

/// Bytes of a request without its payload.
pub const HEADER_LENGTH: usize = 28;

const REQUEST_MAGIC: u32 = 0x2560_9513;

/// Why a connection cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdError {
    /// The client does not speak this protocol, or not as agreed.
    #[error("not NBD: {0}")]
    Protocol(String),
    /// There is no export of this name, and the option has no way to say so.
    #[error("no export is called {0:?}")]
    UnknownExport(String),
}

/// An error of a request, by the protocol's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdErrno {
    /// Not permitted: the export is read-only.
    Permission = 1,
    /// The request could not be carried out.
    Io = 5,
    /// The request is invalid.
    Invalid = 22,
    /// The write is past the end.
    NoSpace = 28,
    /// A read is longer than permitted.
    Overflow = 75,
    /// The volume is not active any more.
    Shutdown = 108,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum NbdCommand {
    /// Reads bytes.
    Read = 0,
    /// Writes the payload.
    Write = 1,
    /// Ends the connection; has no reply.
    Disconnect = 2,
    /// Makes durable what was replied to.
    Flush = 3,
    /// The bytes are not needed any more.
    Trim = 4,
    /// The bytes will be read soon.
    Cache = 5,
    /// Writes zeros.
    WriteZeroes = 6,
    /// Which bytes hold data.
    BlockStatus = 7,
}

impl NbdCommand {
    const ALL: [NbdCommand; 8] = [
        NbdCommand::Read,
        NbdCommand::Write,
        NbdCommand::Disconnect,
        NbdCommand::Flush,
        NbdCommand::Trim,
        NbdCommand::Cache,
        NbdCommand::WriteZeroes,
        NbdCommand::BlockStatus,
    ];

    /// Does it change the volume?
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            NbdCommand::Write | NbdCommand::Trim | NbdCommand::WriteZeroes
        )
    }
}

/// Durable before the reply.
pub(super) const FLAG_FUA: u16 = 1 << 0;
/// The zeros must occupy space.
pub(super) const FLAG_NO_HOLE: u16 = 1 << 1;
/// The reply to a read must be one chunk.
pub(super) const FLAG_DF: u16 = 1 << 2;
/// Only the first extent is wanted.
pub(super) const FLAG_REQ_ONE: u16 = 1 << 3;
/// Fail if writing zeros is not faster than a write; it always is.
const FLAG_FAST_ZERO: u16 = 1 << 4;

/// The fixed part of a request. Its fields are not checked: [`NbdHeader::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdHeader {
    pub(super) flags: u16,
    pub(super) kind: u16,
    /// The client's number of the request, repeated in the reply.
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl NbdHeader {
    /// Decodes a header; fails if it does not begin with the protocol's number.
    pub fn decode(bytes: &[u8; HEADER_LENGTH]) -> Result<NbdHeader, NbdError> {
        let mut fields = NbdFields(bytes);
        let magic = fields.number32();
        if magic != REQUEST_MAGIC {
            let text = format!("a request begins with {magic:#010x}, not {REQUEST_MAGIC:#010x}");
            return Err(NbdError::Protocol(text));
        }
        Ok(NbdHeader {
            flags: fields.number16(),
            kind: fields.number16(),
            cookie: fields.number64(),
            offset: fields.number64(),
            length: fields.number32(),
        })
    }

    /// Bytes that follow the header, up to 4 GiB; the caller skips them if the request is refused.
    pub const fn payload_length(&self) -> u32 {
        if self.kind == NbdCommand::Write as u16 {
            self.length
        } else {
            0
        }
    }

    /// Does the client end the connection?
    pub const fn is_disconnect(&self) -> bool {
        self.kind == NbdCommand::Disconnect as u16
    }

    /// Bytes of memory that the request needs until its reply is written.
    pub const fn memory(&self) -> usize {
        let is_data = self.kind == NbdCommand::Read as u16 || self.kind == NbdCommand::Write as u16;
        if is_data { self.length as usize } else { 0 }
    }

    /// Checks command, flags and range; the error is the reply.
    pub fn check(&self, session: &NbdSession) -> Result<NbdCommand, NbdErrno> {
        use NbdCommand::{BlockStatus, Disconnect, Flush, Read, Write, WriteZeroes};
        let command = NbdCommand::ALL.get(usize::from(self.kind)).copied();
        let command = command.ok_or(NbdErrno::Invalid)?;
        if command == BlockStatus && !session.has_block_status {
            return Err(NbdErrno::Invalid);
        }
        let known = match command {
            Read if session.is_structured => FLAG_FUA | FLAG_DF,
            WriteZeroes => FLAG_FUA | FLAG_NO_HOLE | FLAG_FAST_ZERO,
            BlockStatus => FLAG_FUA | FLAG_REQ_ONE,
            // A client may set FUA on any command.
            _ => FLAG_FUA,
        };
        if self.flags & !known != 0 {
            return Err(NbdErrno::Invalid);
        }
        if command.is_write() && session.is_read_only {
            return Err(NbdErrno::Permission);
        }
        if matches!(command, Flush | Disconnect) {
            return Ok(command);
        }
        let end = self.offset.checked_add(u64::from(self.length));
        let is_inside = end.is_some_and(|end| end <= session.bytes);
        if !is_inside {
            let is_full = matches!(command, Write | WriteZeroes);
            return Err(if is_full {
                NbdErrno::NoSpace
            } else {
                NbdErrno::Invalid
            });
        }
        if self.memory() > REQUEST_LENGTH_MAX {
            return Err(if command == Read {
                NbdErrno::Overflow
            } else {
                NbdErrno::Invalid
            });
        }
        if self.length == 0 && command == BlockStatus {
            return Err(NbdErrno::Invalid);
        }
        Ok(command)
    }
}

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    /// Its header.
    pub header: NbdHeader,
    /// The bytes to write, [`NbdHeader::payload_length`] of them; empty if the driver has skipped them.
    pub payload: Vec<u8>,
}

/// Reads big-endian integers from bytes that are there: the caller has checked the length.
pub(super) struct NbdFields<'a>(pub(super) &'a [u8]);

impl<'a> NbdFields<'a> {
    /// The next `count` bytes; fewer at the end.
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap_or([0; N])
    }

    pub(super) fn number16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(super) fn number32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(super) fn number64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }
}
