//! Messages between guests in other processes and an upstairs. Byte map in `docs/formats/volume.md`.

use crate::geometry::{BlockNumber, BlockSpan};
use crate::guest::{GuestError, GuestReply, GuestRequest, REQUEST_LENGTH_MAX};
use seatrial_machine::{FieldReader, MessageError};

/// Longest message of a guest or to one, in bytes.
pub const GUEST_MESSAGE_MAX: usize = REQUEST_LENGTH_MAX + 64;
/// Longest text in a message.
const TEXT_MAX: usize = 512;

/// A message of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromGuest {
    /// Asks for a session. The same token gets the same session.
    Hello {
        /// A random number, not 0.
        token: u64,
    },
    /// A request.
    Request {
        /// The session.
        session: u64,
        /// From 1 on; the next one is sent after the reply to this one.
        id: u64,
        /// A read, write, trim, flush, or a snapshot.
        request: GuestRequest,
    },
}

/// A message to a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// The session of a hello.
    Welcome {
        /// Of the hello.
        token: u64,
        /// The session.
        session: u64,
    },
    /// There is no such session, or not any more.
    NoSession {
        /// The session of a request.
        session: u64,
    },
    /// The reply to a request.
    Reply {
        /// The session.
        session: u64,
        /// Of the request.
        id: u64,
        /// The result.
        outcome: GuestOutcome,
    },
}

/// What became of a guest's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestOutcome {
    /// Done in the activation of this generation.
    Done(u32, GuestReply),
    /// Not done.
    Failed(String),
    /// Perhaps done.
    Unknown(String),
}

impl GuestOutcome {
    /// The outcome that a reply of the upstairs means.
    pub fn of_reply(generation: u32, reply: GuestReply) -> GuestOutcome {
        match reply {
            // What was accepted before may have reached replicas.
            GuestReply::Failed(error @ (GuestError::Inactive | GuestError::Deposed { .. })) => {
                GuestOutcome::Unknown(error.to_string())
            }
            GuestReply::Failed(error) => GuestOutcome::Failed(error.to_string()),
            reply => GuestOutcome::Done(generation, reply),
        }
    }
}

const HELLO: u8 = 129;
const READ: u8 = 130;
const WRITE: u8 = 131;
const TRIM: u8 = 132;
const FLUSH: u8 = 133;
const SNAPSHOT: u8 = 134;
const WELCOME: u8 = 193;
const NO_SESSION: u8 = 194;
const DONE: u8 = 195;
const BYTES: u8 = 196;
const FAILED: u8 = 197;
const UNKNOWN: u8 = 198;

fn begin(kind: u8, first: u64, second: u64) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&first.to_le_bytes());
    bytes.extend_from_slice(&second.to_le_bytes());
    bytes
}

fn put_span(bytes: &mut Vec<u8>, span: BlockSpan) {
    bytes.extend_from_slice(&span.first.0.to_le_bytes());
    bytes.extend_from_slice(&span.count.to_le_bytes());
}

impl FromGuest {
    /// The message as sent; `None`: a request that guests in other processes do not have.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (session, id, request) = match self {
            FromGuest::Hello { token } => return Some(begin(HELLO, *token, 0)),
            FromGuest::Request {
                session,
                id,
                request,
            } => (*session, *id, request),
        };
        Some(match request {
            GuestRequest::Read(span) => {
                let mut message = begin(READ, session, id);
                put_span(&mut message, *span);
                message
            }
            GuestRequest::Write { first, bytes, fua } => {
                let mut message = begin(WRITE, session, id);
                message.push(u8::from(*fua));
                message.extend_from_slice(&first.0.to_le_bytes());
                message.extend_from_slice(bytes);
                message
            }
            GuestRequest::Trim { range, fua } => {
                let mut message = begin(TRIM, session, id);
                message.push(u8::from(*fua));
                put_span(&mut message, *range);
                message
            }
            GuestRequest::Flush => begin(FLUSH, session, id),
            GuestRequest::Snapshot(name) => {
                let mut message = begin(SNAPSHOT, session, id);
                message.extend_from_slice(name.as_bytes());
                message
            }
            _ => return None,
        })
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<FromGuest, MessageError> {
        let mut fields = FieldReader::new(bytes);
        let kind = fields.byte("kind")?;
        let (first, id) = (fields.long("session")?, fields.long("id")?);
        let span = |fields: &mut FieldReader<'_>| {
            Ok(BlockSpan {
                first: BlockNumber(fields.long("first")?),
                count: fields.word("count")?,
            })
        };
        let request = match kind {
            HELLO => {
                fields.end()?;
                return Ok(FromGuest::Hello { token: first });
            }
            READ => GuestRequest::Read(span(&mut fields)?),
            WRITE => GuestRequest::Write {
                fua: fields.truth("fua")?,
                first: BlockNumber(fields.long("first")?),
                bytes: fields.rest().to_vec(),
            },
            TRIM => GuestRequest::Trim {
                fua: fields.truth("fua")?,
                range: span(&mut fields)?,
            },
            FLUSH => GuestRequest::Flush,
            SNAPSHOT => GuestRequest::Snapshot(text(&mut fields)?),
            other => return Err(fields.never("kind", 1, other.into())),
        };
        fields.end()?;
        Ok(FromGuest::Request {
            session: first,
            id,
            request,
        })
    }
}

/// The rest of a message as text. What is no UTF-8 is replaced.
fn text(fields: &mut FieldReader<'_>) -> Result<String, MessageError> {
    let bytes = fields.rest();
    if bytes.len() > TEXT_MAX {
        return Err(fields.never("text length", 0, bytes.len() as u64));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

impl ToGuest {
    /// The message as sent.
    pub fn encode(&self) -> Vec<u8> {
        let (session, id, outcome) = match self {
            ToGuest::Welcome { token, session } => return begin(WELCOME, *token, *session),
            ToGuest::NoSession { session } => return begin(NO_SESSION, *session, 0),
            ToGuest::Reply {
                session,
                id,
                outcome,
            } => (*session, *id, outcome),
        };
        let (kind, generation, rest): (u8, u32, &[u8]) = match outcome {
            GuestOutcome::Done(generation, GuestReply::Bytes(bytes)) => (BYTES, *generation, bytes),
            GuestOutcome::Done(generation, _) => (DONE, *generation, &[]),
            GuestOutcome::Failed(text) => (FAILED, 0, text.as_bytes()),
            GuestOutcome::Unknown(text) => (UNKNOWN, 0, text.as_bytes()),
        };
        let mut message = begin(kind, session, id);
        message.reserve(4 + rest.len());
        message.extend_from_slice(&generation.to_le_bytes());
        let is_text = matches!(kind, FAILED | UNKNOWN);
        let length = if is_text {
            rest.len().min(TEXT_MAX)
        } else {
            rest.len()
        };
        message.extend_from_slice(&rest[..length]);
        message
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<ToGuest, MessageError> {
        let mut fields = FieldReader::new(bytes);
        let kind = fields.byte("kind")?;
        let (first, second) = (fields.long("session")?, fields.long("id")?);
        if kind == WELCOME || kind == NO_SESSION {
            fields.end()?;
            return Ok(if kind == WELCOME {
                ToGuest::Welcome {
                    token: first,
                    session: second,
                }
            } else {
                ToGuest::NoSession { session: first }
            });
        }
        let generation = fields.word("generation")?;
        let outcome = match kind {
            DONE => GuestOutcome::Done(generation, GuestReply::Done),
            BYTES => {
                let bytes = fields.rest().to_vec();
                GuestOutcome::Done(generation, GuestReply::Bytes(bytes))
            }
            FAILED => GuestOutcome::Failed(text(&mut fields)?),
            UNKNOWN => GuestOutcome::Unknown(text(&mut fields)?),
            other => return Err(fields.never("kind", 1, other.into())),
        };
        fields.end()?;
        Ok(ToGuest::Reply {
            session: first,
            id: second,
            outcome,
        })
    }
}
