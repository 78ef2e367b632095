//! Protocol messages and their encoding. Byte map in `docs/formats/archive-protocol.md`.
//!
//! [`ClientMessage`] and [`ServerMessage`] decode without copying what they carry; whatever decodes encodes to the same bytes.

use crate::answer::{Answer, Refusal, RefusalCode};
use crate::operation::Operation;
use seatrial_machine::FieldReader;
pub use seatrial_machine::MessageError;

/// The name of the protocol.
pub const PROTOCOL: &str = "archive";
/// The version of the protocol that is spoken.
pub const VERSION: u8 = 2;
/// Bytes of the header that every message starts with.
pub const HEADER_LENGTH: usize = 24;
/// The longest message: 18 MiB, which holds one block with a message of the longest length.
pub const MESSAGE_LENGTH_MAX: usize = 18 << 20;
/// Bytes of a label.
pub const LABEL_LENGTH_MAX: usize = 1_024;
/// Bytes of the words of an error.
pub const TEXT_LENGTH_MAX: usize = 4_096;
/// Requests of one session that may be under way.
pub const REQUEST_WINDOW: u64 = 64;
/// Bytes of the header of the body of a `record` or `copy` message, in front of the messages.
pub const RECORD_HEADER_LENGTH: usize = 16;
/// Entries of one `recorded` message.
pub const ENTRIES_MAX: usize = 4_096;

/// The first byte of every message.
mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const REQUEST: u8 = 2;
    pub(super) const RECORD: u8 = 3;
    pub(super) const CREDIT: u8 = 4;
    pub(super) const CLOSE: u8 = 5;
    pub(super) const ALIVE: u8 = 6;
    pub(super) const GOODBYE: u8 = 7;
    pub(super) const COPY: u8 = 8;
    pub(super) const WELCOME: u8 = 16;
    pub(super) const REPLY: u8 = 17;
    pub(super) const RECORDED: u8 = 18;
    pub(super) const DATA: u8 = 19;
    pub(super) const REPLAY: u8 = 20;
    pub(super) const ALIVE_TOO: u8 = 21;
    pub(super) const GONE: u8 = 22;
}

/// The fields that every message starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    kind: u8,
    code: u8,
    detail: u32,
    first: u64,
    second: u64,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&[self.kind, self.code, 0, 0]);
        bytes.extend_from_slice(&self.detail.to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.second.to_le_bytes());
        bytes
    }

    fn decode(reader: &mut FieldReader<'_>) -> Result<Header, MessageError> {
        let kind = reader.byte("kind")?;
        let code = reader.byte("code")?;
        reader.zeros(2)?;
        Ok(Header {
            kind,
            code,
            detail: reader.word("detail")?,
            first: reader.long("first id")?,
            second: reader.long("second id")?,
        })
    }

    /// This kind is never sent by that side.
    fn unknown_kind(&self) -> MessageError {
        MessageError::Value {
            field: "kind",
            offset: 0,
            value: u64::from(self.kind),
        }
    }

    /// An error unless the fields that this kind does not use are zero.
    fn only(self, code: bool, detail: bool, second: bool) -> Result<Header, MessageError> {
        let never = |field, offset, value| MessageError::Value {
            field,
            offset,
            value,
        };
        if !code && self.code != 0 {
            return Err(never("code", 1, u64::from(self.code)));
        }
        if !detail && self.detail != 0 {
            return Err(never("detail", 4, u64::from(self.detail)));
        }
        if !second && self.second != 0 {
            return Err(never("second id", 16, self.second));
        }
        Ok(self)
    }
}

/// What the body of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchForm {
    /// Frames back to back, to be put into blocks.
    Frames,
    /// Blocks of another archive, to be appended as they are: for each its position (8 bytes) and the block, padding included.
    Blocks,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// Asks for a session.
    Hello {
        /// The version that the client speaks.
        version: u8,
        /// A number that no client has used before, or that of the session.
        token: u64,
        /// The session to resume on this connection; 0: a new one.
        session: u64,
    },
    /// Asks for something; answered by [`ServerMessage::Reply`].
    Request {
        /// The session.
        session: u64,
        /// Rises by 1 from 1; the same number again is the same request again.
        request: u64,
        /// What is asked.
        operation: Operation,
    },
    /// Messages to be recorded; answered by [`ServerMessage::Recorded`].
    Record {
        /// The session.
        session: u64,
        /// The claim of this client on the recording.
        claim: u64,
        /// The number that the first message has to get.
        first_message: u64,
        /// How many messages.
        messages: u32,
        /// CRC-32C of the body.
        checksum: u32,
        /// What the body is.
        form: BatchForm,
        /// The messages.
        body: &'a [u8],
    },
    /// Allows a replay to send more.
    Credit {
        /// The session.
        session: u64,
        /// The replay.
        replay: u64,
        /// A data message may be sent while fewer bytes than this were sent since the replay began.
        limit: u64,
    },
    /// The replay is not wanted any more.
    Close {
        /// The session.
        session: u64,
        /// The replay.
        replay: u64,
    },
    /// The client is still there.
    Alive {
        /// The session.
        session: u64,
    },
    /// The session has ended: what it has claimed is free, its replays end.
    Goodbye {
        /// The session.
        session: u64,
    },
}

impl<'a> ClientMessage<'a> {
    /// The message in `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<ClientMessage<'a>, MessageError> {
        let mut reader = FieldReader::new(bytes);
        let header = Header::decode(&mut reader)?;
        let message = match header.kind {
            kind::HELLO => {
                let header = header.only(true, false, true)?;
                ClientMessage::Hello {
                    version: header.code,
                    token: header.first,
                    session: header.second,
                }
            }
            kind::REQUEST => {
                let header = header.only(false, false, true)?;
                ClientMessage::Request {
                    session: header.first,
                    request: header.second,
                    operation: Operation::decode(&mut reader)?,
                }
            }
            kind::RECORD | kind::COPY => ClientMessage::decode_record(header, &mut reader)?,
            kind::CREDIT => {
                let header = header.only(false, false, true)?;
                ClientMessage::Credit {
                    session: header.first,
                    replay: header.second,
                    limit: reader.long("limit")?,
                }
            }
            kind::CLOSE => {
                let header = header.only(false, false, true)?;
                ClientMessage::Close {
                    session: header.first,
                    replay: header.second,
                }
            }
            kind::ALIVE => ClientMessage::Alive {
                session: header.only(false, false, false)?.first,
            },
            kind::GOODBYE => ClientMessage::Goodbye {
                session: header.only(false, false, false)?.first,
            },
            _ => return Err(header.unknown_kind()),
        };
        reader.end()?;
        Ok(message)
    }

    /// Session and number of a request whose body makes no sense.
    pub(crate) fn request_header(bytes: &[u8]) -> Option<(u64, u64)> {
        let header = Header::decode(&mut FieldReader::new(bytes)).ok()?;
        (header.kind == kind::REQUEST).then_some((header.first, header.second))
    }

    fn decode_record(
        header: Header,
        reader: &mut FieldReader<'a>,
    ) -> Result<ClientMessage<'a>, MessageError> {
        let header = header.only(false, true, true)?;
        let first_message = reader.long("first message")?;
        let checksum = reader.word("checksum")?;
        reader.zeros(4)?;
        Ok(ClientMessage::Record {
            session: header.first,
            claim: header.second,
            first_message,
            messages: header.detail,
            checksum,
            form: match header.kind {
                kind::COPY => BatchForm::Blocks,
                _ => BatchForm::Frames,
            },
            body: reader.rest(),
        })
    }

    /// The message as sent.
    pub fn encode(&self) -> Vec<u8> {
        let header = |kind, first, second| Header {
            kind,
            first,
            second,
            ..Header::default()
        };
        match self {
            ClientMessage::Hello {
                version,
                token,
                session,
            } => Header {
                code: *version,
                ..header(kind::HELLO, *token, *session)
            }
            .encode(),
            ClientMessage::Request {
                session,
                request,
                operation,
            } => {
                let mut bytes = header(kind::REQUEST, *session, *request).encode();
                operation.encode(&mut bytes);
                bytes
            }
            ClientMessage::Record {
                session,
                claim,
                first_message,
                messages,
                checksum,
                form,
                body,
            } => {
                let kind = match form {
                    BatchForm::Frames => kind::RECORD,
                    BatchForm::Blocks => kind::COPY,
                };
                let mut bytes = Header {
                    detail: *messages,
                    ..header(kind, *session, *claim)
                }
                .encode();
                bytes.reserve_exact(RECORD_HEADER_LENGTH + body.len());
                bytes.extend_from_slice(&first_message.to_le_bytes());
                bytes.extend_from_slice(&checksum.to_le_bytes());
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(body);
                bytes
            }
            ClientMessage::Credit {
                session,
                replay,
                limit,
            } => {
                let mut bytes = header(kind::CREDIT, *session, *replay).encode();
                bytes.extend_from_slice(&limit.to_le_bytes());
                bytes
            }
            ClientMessage::Close { session, replay } => {
                header(kind::CLOSE, *session, *replay).encode()
            }
            ClientMessage::Alive { session } => header(kind::ALIVE, *session, 0).encode(),
            ClientMessage::Goodbye { session } => header(kind::GOODBYE, *session, 0).encode(),
        }
    }
}

/// What a client of another version, whose first message this is, is answered: a refusal that it understands. `None`: it is
/// no client.
pub fn refuse_version(first_message: &[u8]) -> Option<Vec<u8>> {
    match ClientMessage::decode(first_message) {
        Ok(ClientMessage::Hello { version, token, .. }) => {
            let granted = Err(wrong_version(version));
            Some(ServerMessage::Welcome { token, granted }.encode())
        }
        _ => None,
    }
}

/// The refusal of a version.
pub(crate) fn wrong_version(version: u8) -> Refusal {
    let text = format!("version {version} is not spoken here, version {VERSION} is");
    Refusal::new(RefusalCode::WrongVersion, text)
}

/// Where one batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// The number of its first message.
    pub first_message: u64,
    /// The position of that message.
    pub position: u64,
    /// The position after its last message.
    pub end: u64,
}

/// How far a claim's recording has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The number that the next message gets.
    pub written_message: u64,
    /// The position after the last written message.
    pub written_position: u64,
    /// Messages with lower numbers are durable.
    pub durable_message: u64,
    /// The position after the last durable message.
    pub durable_position: u64,
}

/// How a replay is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayState {
    /// There is more to come, or there may be.
    Open = 0,
    /// Everything up to its bound was sent.
    Complete = 1,
    /// Everything was sent and the recording was stopped.
    Stopped = 2,
    /// It cannot continue, for this reason.
    Failed = 3,
    /// The server does not know it.
    Unknown = 4,
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    /// A session, or why there is none.
    Welcome {
        /// The token of the hello.
        token: u64,
        /// The session and its limits, or why there is none.
        granted: Result<Granted, Refusal>,
    },
    /// The answer to a request.
    Reply {
        /// The session.
        session: u64,
        /// The request.
        request: u64,
        /// What came of it.
        result: Result<Answer, Refusal>,
    },
    /// How far a claim's recording has come, and where batches went; also why a batch was not taken.
    Recorded {
        /// The session.
        session: u64,
        /// The claim.
        claim: u64,
        /// How far it has come.
        reached: Reached,
        /// Batches that were written, or found to be there already.
        places: Vec<BatchPlace>,
        /// Why a batch was refused, or the claim has ended.
        refusal: Option<Refusal>,
    },
    /// A piece of a replay.
    Data {
        /// The session.
        session: u64,
        /// The replay.
        replay: u64,
        /// Bytes of this replay that were sent before: those of the `blocks` of all messages before this one.
        offset: u64,
        /// For each block its position (8 bytes) and the block as it is in its segment, padding included.
        blocks: &'a [u8],
    },
    /// How a replay is doing: sent when it ends, and now and then while nothing else is sent.
    Replay {
        /// The session.
        session: u64,
        /// The replay.
        replay: u64,
        /// How it is doing.
        state: ReplayState,
        /// Bytes of it that were sent.
        offset: u64,
        /// The position up to which it was sent.
        position: u64,
        /// Why it failed.
        refusal: Option<Refusal>,
    },
    /// The server is still there.
    Alive {
        /// The session.
        session: u64,
    },
    /// The server does not know this session (any more).
    Gone {
        /// The session.
        session: u64,
    },
}

/// A session and what may be done in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its number.
    pub session: u64,
    /// Bytes of frames that one claim may have under way, not yet written.
    pub record_window_bytes: u32,
    /// Bytes of frames of one `record` message.
    pub batch_bytes_max: u32,
    /// The largest window of one replay.
    pub replay_window_bytes_max: u32,
    /// A session that is silent for so long ends.
    pub session_timeout_ms: u32,
}

impl<'a> ServerMessage<'a> {
    /// The message in `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<ServerMessage<'a>, MessageError> {
        let mut reader = FieldReader::new(bytes);
        let header = Header::decode(&mut reader)?;
        let message = match header.kind {
            kind::WELCOME => ServerMessage::decode_welcome(header, &mut reader)?,
            kind::REPLY => {
                let header = header.only(true, false, true)?;
                let result = match Refusal::decode(header.code, &mut reader)? {
                    Some(refusal) => Err(refusal),
                    None => Ok(Answer::decode(&mut reader)?),
                };
                ServerMessage::Reply {
                    session: header.first,
                    request: header.second,
                    result,
                }
            }
            kind::RECORDED => ServerMessage::decode_recorded(header, &mut reader)?,
            kind::DATA => {
                let header = header.only(false, false, true)?;
                ServerMessage::Data {
                    session: header.first,
                    replay: header.second,
                    offset: reader.long("offset")?,
                    blocks: reader.rest(),
                }
            }
            kind::REPLAY => ServerMessage::decode_replay(header, &mut reader)?,
            kind::ALIVE_TOO => ServerMessage::Alive {
                session: header.only(false, false, false)?.first,
            },
            kind::GONE => ServerMessage::Gone {
                session: header.only(false, false, false)?.first,
            },
            _ => return Err(header.unknown_kind()),
        };
        reader.end()?;
        Ok(message)
    }

    fn decode_welcome(
        header: Header,
        reader: &mut FieldReader<'a>,
    ) -> Result<ServerMessage<'a>, MessageError> {
        let refused = Refusal::decode(header.code, reader)?;
        let header = header.only(true, false, refused.is_none())?;
        let granted = match refused {
            Some(refusal) => Err(refusal),
            None => Ok(Granted {
                session: header.second,
                record_window_bytes: reader.word("record window")?,
                batch_bytes_max: reader.word("longest batch")?,
                replay_window_bytes_max: reader.word("replay window")?,
                session_timeout_ms: reader.word("session time-out")?,
            }),
        };
        Ok(ServerMessage::Welcome {
            token: header.first,
            granted,
        })
    }

    fn decode_recorded(
        header: Header,
        reader: &mut FieldReader<'a>,
    ) -> Result<ServerMessage<'a>, MessageError> {
        let header = header.only(true, true, true)?;
        let reached = Reached {
            written_message: reader.long("written message")?,
            written_position: reader.long("written position")?,
            durable_message: reader.long("durable message")?,
            durable_position: reader.long("durable position")?,
        };
        if header.detail as usize > ENTRIES_MAX {
            return Err(MessageError::Value {
                field: "detail",
                offset: 4,
                value: u64::from(header.detail),
            });
        }
        let mut places = Vec::new();
        for _ in 0..header.detail {
            places.push(BatchPlace {
                first_message: reader.long("first message")?,
                position: reader.long("position")?,
                end: reader.long("end")?,
            });
        }
        Ok(ServerMessage::Recorded {
            session: header.first,
            claim: header.second,
            reached,
            places,
            refusal: Refusal::decode(header.code, reader)?,
        })
    }

    fn decode_replay(
        header: Header,
        reader: &mut FieldReader<'a>,
    ) -> Result<ServerMessage<'a>, MessageError> {
        let header = header.only(true, true, true)?;
        let state = match header.detail {
            0 => ReplayState::Open,
            1 => ReplayState::Complete,
            2 => ReplayState::Stopped,
            3 => ReplayState::Failed,
            4 => ReplayState::Unknown,
            other => {
                return Err(MessageError::Value {
                    field: "detail",
                    offset: 4,
                    value: u64::from(other),
                });
            }
        };
        Ok(ServerMessage::Replay {
            session: header.first,
            replay: header.second,
            state,
            offset: reader.long("offset")?,
            position: reader.long("position")?,
            refusal: Refusal::decode(header.code, reader)?,
        })
    }

    /// The message as sent.
    pub fn encode(&self) -> Vec<u8> {
        let header = |kind, first, second| Header {
            kind,
            first,
            second,
            ..Header::default()
        };
        match self {
            ServerMessage::Welcome { token, granted } => encode_welcome(*token, granted),
            ServerMessage::Reply {
                session,
                request,
                result,
            } => {
                let mut bytes = Header {
                    code: result.as_ref().err().map_or(0, Refusal::code_byte),
                    ..header(kind::REPLY, *session, *request)
                }
                .encode();
                match result {
                    Ok(answer) => answer.encode(&mut bytes),
                    Err(refusal) => refusal.encode(&mut bytes),
                }
                bytes
            }
            ServerMessage::Recorded {
                session,
                claim,
                reached,
                places,
                refusal,
            } => encode_recorded(
                header(kind::RECORDED, *session, *claim),
                reached,
                places,
                refusal.as_ref(),
            ),
            ServerMessage::Data {
                session,
                replay,
                offset,
                blocks,
            } => {
                let mut bytes = data_header(*session, *replay, *offset);
                bytes.extend_from_slice(blocks);
                bytes
            }
            ServerMessage::Replay {
                session,
                replay,
                state,
                offset,
                position,
                refusal,
            } => {
                let header = Header {
                    code: refusal.as_ref().map_or(0, Refusal::code_byte),
                    detail: *state as u32,
                    ..header(kind::REPLAY, *session, *replay)
                };
                encode_replay(header, *offset, *position, refusal.as_ref())
            }
            ServerMessage::Alive { session } => header(kind::ALIVE_TOO, *session, 0).encode(),
            ServerMessage::Gone { session } => header(kind::GONE, *session, 0).encode(),
        }
    }
}

/// Bytes of a data message in front of its blocks.
pub const DATA_HEADER_LENGTH: usize = HEADER_LENGTH + 8;

/// A data message without its blocks, which follow it and are read in place.
pub(crate) fn data_header(session: u64, replay: u64, offset: u64) -> Vec<u8> {
    let header = Header {
        kind: kind::DATA,
        first: session,
        second: replay,
        ..Header::default()
    };
    let mut bytes = header.encode();
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes
}

fn encode_welcome(token: u64, granted: &Result<Granted, Refusal>) -> Vec<u8> {
    let header = Header {
        kind: kind::WELCOME,
        code: granted.as_ref().err().map_or(0, Refusal::code_byte),
        detail: 0,
        first: token,
        second: granted.as_ref().map_or(0, |granted| granted.session),
    };
    let mut bytes = header.encode();
    match granted {
        Ok(granted) => {
            for limit in [
                granted.record_window_bytes,
                granted.batch_bytes_max,
                granted.replay_window_bytes_max,
                granted.session_timeout_ms,
            ] {
                bytes.extend_from_slice(&limit.to_le_bytes());
            }
        }
        Err(refusal) => refusal.encode(&mut bytes),
    }
    bytes
}

fn encode_replay(header: Header, offset: u64, position: u64, refusal: Option<&Refusal>) -> Vec<u8> {
    let mut bytes = header.encode();
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&position.to_le_bytes());
    if let Some(refusal) = refusal {
        refusal.encode(&mut bytes);
    }
    bytes
}

fn encode_recorded(
    header: Header,
    reached: &Reached,
    places: &[BatchPlace],
    refusal: Option<&Refusal>,
) -> Vec<u8> {
    let mut bytes = Header {
        code: refusal.map_or(0, Refusal::code_byte),
        detail: places.len() as u32,
        ..header
    }
    .encode();
    for field in [
        reached.written_message,
        reached.written_position,
        reached.durable_message,
        reached.durable_position,
    ] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    for place in places {
        for field in [place.first_message, place.position, place.end] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
    }
    if let Some(refusal) = refusal {
        refusal.encode(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests;
