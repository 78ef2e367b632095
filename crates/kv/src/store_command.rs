//! Commands: what the entries of the replicated log carry, one entry a batch of them.

use crate::replica_message::RejoinRequest;
use seatrial_machine::{FieldReader, MessageError, NodeId, Time};
use std::net::SocketAddr;

/// Bytes of commands that share one entry; a single longer command has an entry of its own.
pub(crate) const BATCH_LENGTH: usize = 1 << 20;

const REQUEST: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;
const ASK_TURN: u8 = 4;
const END_TURN: u8 = 5;
const ADDRESS: u8 = 6;
const REJOIN: u8 = 7;

/// Bytes of a command before its fields: kind and length.
const HEADER_LENGTH: usize = 5;
/// Bytes of an entry before its commands: the time.
const TIME_LENGTH: usize = 8;

/// One command. All replicas execute the commands of the log in its order, each with the time of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreCommand<'a> {
    /// A transaction: the client's whole message.
    Request(&'a [u8]),
    /// Opens a session. The fields identify the hello at the node that received it.
    Open(OpenRequest),
    /// Closes a session.
    Close {
        /// The session.
        session: u64,
    },
    /// A node asks for a turn to write a checkpoint, or renews it.
    AskTurn(NodeId),
    /// A node gives its turn back.
    EndTurn {
        /// The node.
        node: NodeId,
        /// Index and digest of the checkpoint that it has made.
        made: Option<(u64, [u8; 16])>,
    },
    /// The address of a node that joins.
    Address {
        /// The node.
        node: NodeId,
        /// Its address.
        address: SocketAddr,
    },
    /// A node lost its journal. The entry has no effect on the state: that it is committed is what the node waits for.
    Rejoin {
        /// The node.
        node: NodeId,
        /// What it asked.
        request: RejoinRequest,
    },
}

/// A hello that waits for its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenRequest {
    /// The node that received the hello.
    pub(crate) origin: NodeId,
    /// The start of that node: after another one no client waits there.
    pub(crate) start: u64,
    /// Unique for that start.
    pub(crate) number: u64,
}

impl StoreCommand<'_> {
    /// Appends the encoded command.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            StoreCommand::Request(message) => {
                put_header(out, REQUEST, message.len());
                out.extend_from_slice(message);
            }
            StoreCommand::Open(open) => {
                put_header(out, OPEN, 20);
                out.extend_from_slice(&open.origin.number().to_le_bytes());
                out.extend_from_slice(&open.start.to_le_bytes());
                out.extend_from_slice(&open.number.to_le_bytes());
            }
            StoreCommand::Close { session } => {
                put_header(out, CLOSE, 8);
                out.extend_from_slice(&session.to_le_bytes());
            }
            StoreCommand::AskTurn(node) => {
                put_header(out, ASK_TURN, 4);
                out.extend_from_slice(&node.number().to_le_bytes());
            }
            StoreCommand::Address { node, address } => {
                let address = address.to_string();
                put_header(out, ADDRESS, 4 + address.len());
                out.extend_from_slice(&node.number().to_le_bytes());
                out.extend_from_slice(address.as_bytes());
            }
            StoreCommand::Rejoin { node, request } => {
                put_header(out, REJOIN, 20);
                out.extend_from_slice(&node.number().to_le_bytes());
                out.extend_from_slice(&request.nonce.to_le_bytes());
                out.extend_from_slice(&request.start.to_le_bytes());
            }
            StoreCommand::EndTurn { node, made } => {
                put_header(out, END_TURN, if made.is_some() { 28 } else { 4 });
                out.extend_from_slice(&node.number().to_le_bytes());
                if let Some((index, digest)) = made {
                    out.extend_from_slice(&index.to_le_bytes());
                    out.extend_from_slice(digest);
                }
            }
        }
    }

    /// Bytes of an encoded request with a message of this length.
    pub(crate) const fn request_length(message: usize) -> usize {
        HEADER_LENGTH + message
    }
}

fn put_header(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(&(length as u32).to_le_bytes());
}

/// Begins an entry: its leader's time, which never goes back within the log.
pub(crate) fn begin_entry(out: &mut Vec<u8>, time: Time) {
    out.extend_from_slice(&time.nanoseconds().to_le_bytes());
}

/// The time and the commands of an entry.
pub(crate) fn read_entry(entry: &[u8]) -> Option<(Time, Commands<'_>)> {
    let (time, rest) = entry.split_first_chunk::<TIME_LENGTH>()?;
    let time = Time::from_nanoseconds(u64::from_le_bytes(*time));
    Some((time, Commands::new(rest)))
}

/// Encoded commands, in order. The first invalid one is an error and the end: every replica sees the same bytes, so all stop at
/// the same command.
#[derive(Clone, Debug)]
pub(crate) struct Commands<'a> {
    rest: &'a [u8],
}

impl<'a> Commands<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Commands<'a> {
        Commands { rest: bytes }
    }

    fn read(&mut self) -> Result<StoreCommand<'a>, MessageError> {
        let mut fields = FieldReader::new(self.rest);
        let kind = fields.byte("kind of a command")?;
        let length = fields.word("length of a command")? as usize;
        let body = fields.bytes("command", length)?;
        let mut fields = FieldReader::new(body);
        let command = match kind {
            REQUEST => StoreCommand::Request(body),
            OPEN => StoreCommand::Open(OpenRequest {
                origin: read_node(&mut fields)?,
                start: fields.long("start")?,
                number: fields.long("number")?,
            }),
            CLOSE => StoreCommand::Close {
                session: fields.long("session")?,
            },
            ASK_TURN => StoreCommand::AskTurn(read_node(&mut fields)?),
            END_TURN => StoreCommand::EndTurn {
                node: read_node(&mut fields)?,
                made: match length {
                    4 => None,
                    _ => Some((fields.long("index")?, read_digest(&mut fields)?)),
                },
            },
            ADDRESS => StoreCommand::Address {
                node: read_node(&mut fields)?,
                address: std::str::from_utf8(fields.rest())
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| fields.never("address", 0, length as u64))?,
            },
            REJOIN => StoreCommand::Rejoin {
                node: read_node(&mut fields)?,
                request: RejoinRequest {
                    nonce: fields.long("nonce")?,
                    start: fields.long("start")?,
                },
            },
            other => {
                return Err(MessageError::Value {
                    field: "kind of a command",
                    offset: 0,
                    value: u64::from(other),
                });
            }
        };
        self.rest = &self.rest[HEADER_LENGTH + length..];
        Ok(command)
    }
}

fn read_digest(fields: &mut FieldReader<'_>) -> Result<[u8; 16], MessageError> {
    let mut digest = [0; 16];
    digest.copy_from_slice(fields.bytes("digest", 16)?);
    Ok(digest)
}

fn read_node(fields: &mut FieldReader<'_>) -> Result<NodeId, MessageError> {
    let number = fields.word("node")?;
    if number == 0 || number >= 1 << 31 {
        return Err(fields.never("node", 4, u64::from(number)));
    }
    Ok(NodeId::server(number))
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<StoreCommand<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let command = self.read();
        if command.is_err() {
            self.rest = &[];
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn samples() -> Vec<StoreCommand<'static>> {
        vec![
            StoreCommand::Request(b"a message"),
            StoreCommand::Open(OpenRequest {
                origin: NodeId::server(3),
                start: 7,
                number: 9,
            }),
            StoreCommand::Close { session: 5 },
            StoreCommand::AskTurn(NodeId::server(2)),
            StoreCommand::EndTurn {
                node: NodeId::server(2),
                made: None,
            },
            StoreCommand::EndTurn {
                node: NodeId::server(1),
                made: Some((17, [3; 16])),
            },
            StoreCommand::Address {
                node: NodeId::server(4),
                address: "[::1]:7400".parse().unwrap(),
            },
            StoreCommand::Rejoin {
                node: NodeId::server(2),
                request: RejoinRequest { nonce: 8, start: 3 },
            },
            StoreCommand::Request(b""),
        ]
    }

    #[test]
    fn commands_survive_their_encoding() {
        let mut bytes = Vec::new();
        begin_entry(&mut bytes, Time::from_milliseconds(3));
        for command in samples() {
            command.encode(&mut bytes);
        }
        let (time, commands) = read_entry(&bytes).unwrap();
        assert_eq!(time, Time::from_milliseconds(3));
        let read: Vec<StoreCommand<'_>> = commands.map(Result::unwrap).collect();
        assert_eq!(read, samples());
    }

    #[test]
    fn the_first_invalid_command_is_the_end() {
        let mut bytes = Vec::new();
        for command in samples() {
            command.encode(&mut bytes);
        }
        let whole = bytes.clone();
        bytes[HEADER_LENGTH + 9] = 77; // the kind of the second command
        let read: Vec<_> = Commands::new(&bytes).collect();
        assert_eq!(read.len(), 2);
        assert!(read[0].is_ok() && read[1].is_err());
        for length in 1..whole.len() {
            let read: Vec<_> = Commands::new(&whole[..length]).collect();
            assert!(read.iter().rev().skip(1).all(Result::is_ok));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut rng = Rng::from_seed(5);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..rng.index(40)).map(|_| rng.word() as u8 % 8).collect();
            if let Some((_, commands)) = read_entry(&bytes) {
                assert!(commands.count() <= bytes.len());
            }
        }
    }
}
