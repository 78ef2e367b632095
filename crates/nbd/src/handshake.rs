//! The handshake: fixed newstyle, with all options that do not need TLS.

use crate::nbd_request::{NbdError, NbdFields};
use seatrial_volume::REQUEST_LENGTH_MAX;

/// Longest data of an option, in bytes; longer data is skipped and refused.
pub const OPTION_LENGTH_MAX: usize = 16 << 10;
/// Maximum number of options of a connection.
const OPTIONS_MAX: u32 = 1_000;
/// Longest name, by the protocol.
const NAME_LENGTH_MAX: usize = 4_096;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_STARTTLS: u32 = 5;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const OPTION_LIST_META_CONTEXT: u32 = 9;
const OPTION_SET_META_CONTEXT: u32 = 10;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_META_CONTEXT: u32 = 4;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;
const REPLY_POLICY: u32 = 0x8000_0002;
const REPLY_INVALID: u32 = 0x8000_0003;
const REPLY_UNKNOWN: u32 = 0x8000_0006;
const REPLY_TOO_BIG: u32 = 0x8000_0009;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

/// The meta context of extents, and its number.
const ALLOCATION: &[u8] = b"base:allocation";
pub(super) const ALLOCATION_CONTEXT: u32 = 1;

/// What clients can attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExport {
    /// Its name.
    pub name: String,
    /// A text about it.
    pub description: String,
    /// Bytes of the volume.
    pub bytes: u64,
    /// Length of its blocks: requests of whole blocks are fastest.
    pub block_length: u32,
    /// Are writes refused?
    pub is_read_only: bool,
    /// The snapshot whose blocks it has; `None`: the volume itself.
    pub snapshot: Option<String>,
}

impl NbdExport {
    /// The export of a snapshot of this volume: read-only, its name is `NAME@SNAPSHOT`.
    #[must_use]
    pub fn of_snapshot(&self, snapshot: &str) -> NbdExport {
        NbdExport {
            name: format!("{}@{snapshot}", self.name),
            description: format!("snapshot {snapshot} of {}", self.description),
            is_read_only: true,
            snapshot: Some(snapshot.to_owned()),
            ..self.clone()
        }
    }

    /// The transmission flags.
    fn flags(&self, is_structured: bool) -> u16 {
        const HAS_FLAGS: u16 = 1 << 0;
        const READ_ONLY: u16 = 1 << 1;
        const SEND_FLUSH: u16 = 1 << 2;
        const SEND_FUA: u16 = 1 << 3;
        const SEND_TRIM: u16 = 1 << 5;
        const SEND_WRITE_ZEROES: u16 = 1 << 6;
        const SEND_DF: u16 = 1 << 7;
        const CAN_MULTI_CONN: u16 = 1 << 8;
        const SEND_CACHE: u16 = 1 << 10;
        const SEND_FAST_ZERO: u16 = 1 << 11;
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        flags |= if self.is_read_only {
            READ_ONLY
        } else {
            SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO
        };
        if is_structured {
            flags |= SEND_DF;
        }
        flags
    }
}

/// What a handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdSession {
    /// Are replies to reads structured?
    pub is_structured: bool,
    /// May the client ask for extents?
    pub has_block_status: bool,
    /// Are writes refused?
    pub is_read_only: bool,
    /// Bytes of the volume.
    pub bytes: u64,
    /// The snapshot that is read; `None`: the volume itself.
    pub snapshot: Option<String>,
}

/// What a handshake does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdProgress {
    /// It needs more bytes.
    Wait,
    /// Requests follow.
    Begin(NbdSession),
    /// The client ended it; the connection is closed after the reply.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeState {
    /// The client's flags are next.
    Flags,
    /// An option is next.
    Option,
    /// The rest of an option that is too long, and the option.
    Skip(u32, u32),
}

/// One handshake, on the side of the server. Owns no bytes: what is incomplete stays with the caller, at most
/// [`OPTION_LENGTH_MAX`] and 16 bytes.
#[derive(Debug)]
pub struct NbdHandshake {
    exports: Vec<NbdExport>,
    state: HandshakeState,
    options: u32,
    has_zeroes: bool,
    is_structured: bool,
    has_block_status: bool,
}

impl NbdHandshake {
    /// A handshake for one or more exports; the empty name means the first. The server sends [`NbdHandshake::greeting`] first.
    pub fn new(exports: Vec<NbdExport>) -> NbdHandshake {
        assert!(!exports.is_empty(), "a server has an export");
        NbdHandshake {
            exports,
            state: HandshakeState::Flags,
            options: 0,
            has_zeroes: true,
            is_structured: false,
            has_block_status: false,
        }
    }

    /// The export of this name.
    fn export(&self, name: &[u8]) -> Option<&NbdExport> {
        let mut exports = self.exports.iter();
        exports.find(|it| name.is_empty() || name == it.name.as_bytes())
    }

    /// The first bytes of a connection: fixed newstyle, zeros may be omitted.
    pub fn greeting() -> [u8; 18] {
        *b"NBDMAGICIHAVEOPT\x00\x03"
    }

    /// Consumes bytes of the client and appends the replies to `out`. Returns the number of consumed bytes. After
    /// [`NbdProgress::Begin`] the rest are requests. Fails if the client does not speak the protocol.
    pub fn step(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, NbdProgress), NbdError> {
        let mut rest = input;
        loop {
            let before = rest.len();
            let progress = match self.state {
                HandshakeState::Flags => self.flags(&mut rest)?,
                HandshakeState::Option => self.option(&mut rest, out)?,
                HandshakeState::Skip(left, option) => {
                    let taken = NbdFields(rest).take(left as usize).len();
                    rest = &rest[taken..];
                    self.state = HandshakeState::Skip(left - taken as u32, option);
                    if taken as u32 == left {
                        reply(out, option, REPLY_TOO_BIG, b"the option is too long");
                        self.state = HandshakeState::Option;
                    }
                    NbdProgress::Wait
                }
            };
            let is_stuck = rest.len() == before;
            if progress != NbdProgress::Wait || is_stuck {
                return Ok((input.len() - rest.len(), progress));
            }
        }
    }

    fn flags(&mut self, rest: &mut &[u8]) -> Result<NbdProgress, NbdError> {
        if rest.len() >= 4 {
            let mut fields = NbdFields(rest);
            let flags = fields.number32();
            *rest = fields.0;
            if flags & !3 != 0 {
                let text = format!("unknown flags {flags:#x}");
                return Err(NbdError::Protocol(text));
            }
            self.has_zeroes = flags & 2 == 0;
            self.state = HandshakeState::Option;
        }
        Ok(NbdProgress::Wait)
    }

    /// Handles one option, if it is complete.
    fn option(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> Result<NbdProgress, NbdError> {
        if rest.len() < 16 {
            return Ok(NbdProgress::Wait);
        }
        let mut fields = NbdFields(rest);
        let magic = fields.number64();
        if magic != OPTION_MAGIC {
            let text = format!("an option begins with {magic:#018x}");
            return Err(NbdError::Protocol(text));
        }
        let (option, length) = (fields.number32(), fields.number32());
        if length as usize > OPTION_LENGTH_MAX {
            *rest = fields.0;
            self.count()?;
            self.state = HandshakeState::Skip(length, option);
            return Ok(NbdProgress::Wait);
        }
        if fields.0.len() < length as usize {
            return Ok(NbdProgress::Wait);
        }
        let data = fields.take(length as usize);
        *rest = fields.0;
        self.count()?;
        self.answer(option, data, out)
    }

    fn count(&mut self) -> Result<(), NbdError> {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            let text = format!("more than {OPTIONS_MAX} options");
            return Err(NbdError::Protocol(text));
        }
        Ok(())
    }

    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<NbdProgress, NbdError> {
        match option {
            OPTION_EXPORT_NAME => return self.export_name(data, out),
            OPTION_ABORT => {
                reply(out, option, REPLY_ACK, b"");
                return Ok(NbdProgress::End);
            }
            OPTION_GO | OPTION_INFO => return Ok(self.info(option, data, out)),
            OPTION_LIST if data.is_empty() => {
                for export in &self.exports {
                    let name = export.name.as_bytes();
                    let mut server = (name.len() as u32).to_be_bytes().to_vec();
                    server.extend_from_slice(name);
                    reply(out, option, REPLY_SERVER, &server);
                }
                reply(out, option, REPLY_ACK, b"");
            }
            OPTION_STRUCTURED_REPLY if data.is_empty() => {
                self.is_structured = true;
                reply(out, option, REPLY_ACK, b"");
            }
            OPTION_LIST_META_CONTEXT | OPTION_SET_META_CONTEXT => {
                self.meta_contexts(option, data, out);
            }
            OPTION_LIST | OPTION_STRUCTURED_REPLY => {
                reply(out, option, REPLY_INVALID, b"the option has no data");
            }
            OPTION_STARTTLS => reply(out, option, REPLY_POLICY, b"TLS is not offered here"),
            _ => reply(out, option, REPLY_UNSUPPORTED, b"unknown option"),
        }
        Ok(NbdProgress::Wait)
    }

    fn session(&self, export: &NbdExport) -> NbdSession {
        NbdSession {
            is_structured: self.is_structured,
            has_block_status: self.has_block_status,
            is_read_only: export.is_read_only,
            bytes: export.bytes,
            snapshot: export.snapshot.clone(),
        }
    }

    fn export_name(&self, name: &[u8], out: &mut Vec<u8>) -> Result<NbdProgress, NbdError> {
        let Some(export) = self.export(name) else {
            let name = String::from_utf8_lossy(name).chars().take(100).collect();
            return Err(NbdError::UnknownExport(name));
        };
        out.extend_from_slice(&export.bytes.to_be_bytes());
        out.extend_from_slice(&export.flags(self.is_structured).to_be_bytes());
        if self.has_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Ok(NbdProgress::Begin(self.session(export)))
    }

    /// Handles INFO and GO: name, then the numbers of the wanted pieces of information.
    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> NbdProgress {
        let Some((name, wanted)) = name_and_rest(data) else {
            reply(out, option, REPLY_INVALID, b"malformed");
            return NbdProgress::Wait;
        };
        let mut fields = NbdFields(wanted);
        let count = usize::from(fields.number16());
        if wanted.len() != 2 + 2 * count {
            reply(out, option, REPLY_INVALID, b"malformed");
            return NbdProgress::Wait;
        }
        let Some(export) = self.export(name) else {
            reply(out, option, REPLY_UNKNOWN, b"there is no such export");
            return NbdProgress::Wait;
        };
        let mut info = INFO_EXPORT.to_be_bytes().to_vec();
        info.extend_from_slice(&export.bytes.to_be_bytes());
        info.extend_from_slice(&export.flags(self.is_structured).to_be_bytes());
        reply(out, option, REPLY_INFO, &info);
        // A piece that is asked for again is not sent again.
        let mut wanted: Vec<u16> = (0..count).map(|_| fields.number16()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for kind in wanted {
            let mut info = kind.to_be_bytes().to_vec();
            match kind {
                INFO_NAME => info.extend_from_slice(export.name.as_bytes()),
                INFO_DESCRIPTION => info.extend_from_slice(export.description.as_bytes()),
                INFO_BLOCK_SIZE => {
                    let preferred = export.block_length.max(4_096);
                    for length in [1, preferred, REQUEST_LENGTH_MAX as u32] {
                        info.extend_from_slice(&length.to_be_bytes());
                    }
                }
                _ => continue,
            }
            reply(out, option, REPLY_INFO, &info);
        }
        reply(out, option, REPLY_ACK, b"");
        if option == OPTION_GO {
            NbdProgress::Begin(self.session(export))
        } else {
            NbdProgress::Wait
        }
    }

    /// Handles the options of meta contexts: name, number of queries, queries.
    fn meta_contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let is_set = option == OPTION_SET_META_CONTEXT;
        if is_set {
            self.has_block_status = false;
        }
        let Some((name, queries)) = name_and_rest(data).and_then(|(name, rest)| {
            let queries = parse_queries(rest)?;
            Some((name, queries))
        }) else {
            reply(out, option, REPLY_INVALID, b"malformed");
            return;
        };
        if !self.is_structured {
            reply(out, option, REPLY_INVALID, b"needs structured replies");
            return;
        }
        if self.export(name).is_none() {
            reply(out, option, REPLY_UNKNOWN, b"there is no such export");
            return;
        }
        let lists_all = !is_set && (queries.is_empty() || queries.contains(&&b"base:"[..]));
        if lists_all || queries.contains(&ALLOCATION) {
            let number = if is_set { ALLOCATION_CONTEXT } else { 0 };
            let context = [&number.to_be_bytes(), ALLOCATION].concat();
            reply(out, option, REPLY_META_CONTEXT, &context);
            self.has_block_status |= is_set;
        }
        reply(out, option, REPLY_ACK, b"");
    }
}

/// A name after its length, and the bytes after it.
fn name_and_rest(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    let is_valid = length <= NAME_LENGTH_MAX;
    is_valid.then(|| rest.split_at_checked(length)).flatten()
}

/// Queries after their number, to the last byte. At most [`OPTION_LENGTH_MAX`] / 4.
fn parse_queries(data: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = data.split_first_chunk()?;
    let mut queries = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (query, after) = name_and_rest(rest)?;
        queries.push(query);
        rest = after;
    }
    rest.is_empty().then_some(queries)
}

/// Appends the reply to an option.
fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}
