//! Protocol messages and their encoding. Byte map in `docs/formats/archive-protocol.md`.
//!
//! [`ClientMessage`] and [`ServerMessage`] decode without copying their bodies. Bytes that decode are the encoding of the
//! decoded message.

use crate::archive_answer::{ArchiveAnswer, Refusal, RefusalCode};
use crate::archive_operation::ArchiveOperation;
use seatrial_machine::FieldReader;
pub use seatrial_machine::MessageError;

/// The name of the protocol.
pub const PROTOCOL: &str = "archive";
/// The version of the protocol.
pub const VERSION: u8 = 2;
/// Length in bytes of the header of every message.
pub const HEADER_LENGTH: usize = 24;
/// The longest message: 18 MiB, which holds one block with a message of the longest length.
pub const MESSAGE_LENGTH_MAX: usize = 18 << 20;
/// Maximum length of a label in bytes.
pub const LABEL_LENGTH_MAX: usize = 1_024;
/// Maximum length of the text of a refusal in bytes.
pub const TEXT_LENGTH_MAX: usize = 4_096;
/// Maximum number of requests of one session in flight.
pub const REQUEST_WINDOW: u64 = 64;
/// Length in bytes of the second header of a `record` or `copy` message, before the batch.
pub const RECORD_HEADER_LENGTH: usize = 16;
/// Maximum number of places in one `recorded` message.
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
    pub(super) const SERVER_ALIVE: u8 = 21;
    pub(super) const GONE: u8 = 22;
}

/// The header of every message.
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

    /// The error of a kind that the sending side does not have.
    fn unknown_kind(&self) -> MessageError {
        MessageError::Value {
            field: "kind",
            offset: 0,
            value: u64::from(self.kind),
        }
    }

    /// Checks that the fields that this kind does not use are zero.
    fn only(self, code: bool, detail: bool, second: bool) -> Result<Header, MessageError> {
        let invalid = |field, offset, value| MessageError::Value {
            field,
            offset,
            value,
        };
        if !code && self.code != 0 {
            return Err(invalid("code", 1, u64::from(self.code)));
        }
        if !detail && self.detail != 0 {
            return Err(invalid("detail", 4, u64::from(self.detail)));
        }
        if !second && self.second != 0 {
            return Err(invalid("second id", 16, self.second));
        }
        Ok(self)
    }
}

/// The form of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchForm {
    /// Frames back to back, to be put into blocks.
    Frames,
    /// Blocks of another archive, to be appended as they are: for each its position (8 bytes) and the block, padding included.
    Blocks,
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// Asks for a session.
    Hello {
        /// The protocol version of the client.
        version: u8,
        /// A number that identifies the client: new, or that of the session to resume.
        token: u64,
        /// The session to resume on this connection; 0: open a new one.
        session: u64,
    },
    /// A request; answered by [`ServerMessage::Reply`].
    Request {
        /// The session.
        session: u64,
        /// The number of the request: from 1, in steps of 1. A repeated number is the same request.
        request: u64,
        /// The requested operation.
        operation: ArchiveOperation,
    },
    /// Messages to be recorded; answered by [`ServerMessage::Recorded`].
    Record {
        /// The session.
        session: u64,
        /// The claim of this client on the recording.
        claim: u64,
        /// The number that the first message has to get.
        first_message: u64,
        /// Number of messages.
        messages: u32,
        /// CRC-32C of the body.
        checksum: u32,
        /// The form of the body.
        form: BatchForm,
        /// The messages.
        body: &'a [u8],
    },
    /// Credit of a replay.
    Credit {
        /// The session.
        session: u64,
        /// The replay.
        replay: u64,
        /// The server may send a data message while it has sent fewer bytes than this since the replay began.
        limit: u64,
    },
    /// Cancels a replay.
    Close {
        /// The session.
        session: u64,
        /// The replay.
        replay: u64,
    },
    /// Keeps the session alive.
    Alive {
        /// The session.
        session: u64,
    },
    /// Ends the session, its claims and its replays.
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
                    operation: ArchiveOperation::decode(&mut reader)?,
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

    /// Session and number of a request whose body may be malformed.
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

    /// The encoded message.
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

/// The refusal for a client of another version, in the form of a welcome that every version decodes; `None` if
/// `first_message` is not a hello.
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
    let text = format!("protocol version {version} is not supported, expected version {VERSION}");
    Refusal::new(RefusalCode::WrongVersion, text)
}

/// The positions of one recorded batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// The number of its first message.
    pub first_message: u64,
    /// The position of that message.
    pub position: u64,
    /// The position after its last message.
    pub end: u64,
}

/// The written and the durable end of a live recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordProgress {
    /// The number that the next message gets.
    pub written_message: u64,
    /// The position after the last written message.
    pub written_position: u64,
    /// Messages with lower numbers are durable.
    pub durable_message: u64,
    /// The position after the last durable message.
    pub durable_position: u64,
}

/// The state of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayState {
    /// Not ended: data may follow.
    Open = 0,
    /// Everything up to its bound was sent.
    Complete = 1,
    /// Everything was sent and the recording was stopped.
    Stopped = 2,
    /// It cannot continue; the message has the reason.
    Failed = 3,
    /// The server does not know it.
    Unknown = 4,
}

/// A message of the server.
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
        /// The answer, or why it was refused.
        result: Result<ArchiveAnswer, Refusal>,
    },
    /// The progress of a live recording, the places of batches, and why a batch was refused.
    Recorded {
        /// The session.
        session: u64,
        /// The claim.
        claim: u64,
        /// The written and the durable end.
        reached: RecordProgress,
        /// Places of batches that were written, or found equal to recorded ones.
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
    /// The state of a replay: sent when it ends, and in reply to [`ClientMessage::Alive`].
    Replay {
        /// The session.
        session: u64,
        /// The replay.
        replay: u64,
        /// The state.
        state: ReplayState,
        /// Bytes of it that were sent.
        offset: u64,
        /// The position up to which it was sent.
        position: u64,
        /// Why it failed.
        refusal: Option<Refusal>,
    },
    /// The reply to [`ClientMessage::Alive`].
    Alive {
        /// The session.
        session: u64,
    },
    /// The server has no such session (any more).
    Gone {
        /// The session.
        session: u64,
    },
}

/// A session and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its number.
    pub session: u64,
    /// Maximum number of bytes of frames of one claim that are not written yet.
    pub record_window_bytes: u32,
    /// Maximum number of bytes of one batch.
    pub batch_bytes_max: u32,
    /// Maximum window of one replay in bytes.
    pub replay_window_bytes_max: u32,
    /// Silence in milliseconds after which a session ends.
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
                    None => Ok(ArchiveAnswer::decode(&mut reader)?),
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
            kind::SERVER_ALIVE => ServerMessage::Alive {
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
        let reached = RecordProgress {
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

    /// The encoded message.
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
            ServerMessage::Alive { session } => header(kind::SERVER_ALIVE, *session, 0).encode(),
            ServerMessage::Gone { session } => header(kind::GONE, *session, 0).encode(),
        }
    }
}

/// Length in bytes of the headers of a data message, before its blocks.
pub const DATA_HEADER_LENGTH: usize = HEADER_LENGTH + 8;

/// The headers of a data message; the blocks are read into the same buffer after them.
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
    reached: &RecordProgress,
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
