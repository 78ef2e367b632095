//! What replicas say to each other. The last byte of a message is its kind: nothing is moved to add or remove it.

use bytes::Bytes;
use seatrial_consensus as consensus;

/// A message of consensus.
const CONSENSUS: u8 = 1;
/// Commands for the leader.
const FORWARD: u8 = 2;

/// A request for a piece of a checkpoint file.
const PULL: u8 = 3;
/// A piece of a checkpoint file.
const PIECE: u8 = 4;
/// The node does not have that checkpoint.
const GONE: u8 = 5;

/// The sender lost its journal.
const LOST: u8 = 6;
/// A node that lost its journal may take part again.
const GRANT: u8 = 7;

/// Bytes of a [`FilePart`].
const PART_LENGTH: usize = 32;

/// Bound of a message between replicas, its kind included.
pub const LENGTH_MAX: usize = consensus::MESSAGE_LENGTH_MAX + 1;

/// A message between replicas.
#[derive(Debug)]
pub(crate) enum ReplicaMessage {
    /// A message of consensus.
    Consensus(consensus::PeerMessage),
    /// Encoded commands ([`crate::store_command::Commands`]) for the leader. They are not checked yet.
    Forward(Vec<u8>),
    /// Asks for at most this many bytes of a file.
    Pull(FilePart, u32),
    /// Bytes of a file.
    Piece(FilePart, Vec<u8>),
    /// The sender does not have this file.
    Gone(FilePart),
    /// The sender lost its journal and takes part in nothing.
    Lost(RejoinRequest),
    /// It may take part again.
    Grant(RejoinGrant),
}

/// What a node asks that lost its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RejoinRequest {
    /// Unique for each start of each node: no grant of an earlier loss fits.
    pub(crate) nonce: u64,
    /// The number of its next start; 0: it does not know how often it was started.
    pub(crate) start: u64,
}

/// A leader's reply to a [`RejoinRequest`], once an entry that it proposed after the request is committed and applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RejoinGrant {
    /// Of the request.
    pub(crate) nonce: u64,
    /// The term of the leader and of the entry: the node's vote in it belongs to that leader.
    pub(crate) term: u64,
    /// The entry. The node does not campaign before it has applied it.
    pub(crate) index: u64,
    /// The number of the node's start from now on.
    pub(crate) start: u64,
}

/// A place in a checkpoint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePart {
    /// Index of the checkpoint.
    pub(crate) index: u64,
    /// Digest of the file.
    pub(crate) digest: [u8; 16],
    /// Offset in bytes.
    pub(crate) offset: u64,
}

impl FilePart {
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&self.digest);
        bytes.extend_from_slice(&self.offset.to_le_bytes());
    }

    /// Takes a part off the end of a message, so that what is before it stays where it is.
    fn take(bytes: &mut Vec<u8>) -> Option<FilePart> {
        let at = bytes.len().checked_sub(PART_LENGTH)?;
        let (index, rest) = bytes[at..].split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let part = FilePart {
            index: u64::from_le_bytes(*index),
            digest: *digest,
            offset: u64::from_le_bytes(*rest.first_chunk()?),
        };
        bytes.truncate(at);
        Some(part)
    }
}

/// The message that asks for bytes of a file.
pub(crate) fn encode_pull(part: FilePart, length: u32) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    part.put(&mut bytes);
    bytes.push(PULL);
    bytes
}

/// The message that carries bytes of a file.
pub(crate) fn encode_piece(part: FilePart, mut bytes: Vec<u8>) -> Vec<u8> {
    part.put(&mut bytes);
    bytes.push(PIECE);
    bytes
}

/// The message that a file is not here.
pub(crate) fn encode_gone(part: FilePart) -> Vec<u8> {
    let mut bytes = Vec::new();
    part.put(&mut bytes);
    bytes.push(GONE);
    bytes
}

/// The message of a node that lost its journal.
pub(crate) fn encode_lost(request: RejoinRequest) -> Vec<u8> {
    let mut bytes = request.nonce.to_le_bytes().to_vec();
    bytes.extend_from_slice(&request.start.to_le_bytes());
    bytes.push(LOST);
    bytes
}

/// The message that lets a node take part again.
pub(crate) fn encode_grant(grant: &RejoinGrant) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [grant.nonce, grant.term, grant.index, grant.start] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.push(GRANT);
    bytes
}

/// The `N` numbers that a message consists of.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (fields, rest) = bytes.as_chunks::<8>();
    let fields: &[[u8; 8]; N] = fields.try_into().ok()?;
    rest.is_empty().then(|| fields.map(u64::from_le_bytes))
}

/// The encoded message of consensus.
pub(crate) fn encode_consensus(message: &consensus::PeerMessage) -> Vec<u8> {
    let mut bytes = consensus::encode(message);
    bytes.push(CONSENSUS);
    bytes
}

/// The message that carries these commands.
pub(crate) fn encode_forward(mut commands: Vec<u8>) -> Vec<u8> {
    commands.push(FORWARD);
    commands
}

/// The message of these bytes; `None`: they are not a message of this version.
pub(crate) fn decode(mut bytes: Vec<u8>) -> Option<ReplicaMessage> {
    match bytes.pop()? {
        CONSENSUS => {
            let message = consensus::decode(&Bytes::from(bytes)).ok()?;
            Some(ReplicaMessage::Consensus(message))
        }
        FORWARD => Some(ReplicaMessage::Forward(bytes)),
        PULL => {
            let part = FilePart::take(&mut bytes)?;
            let length = bytes.try_into().ok()?;
            Some(ReplicaMessage::Pull(part, u32::from_le_bytes(length)))
        }
        PIECE => {
            let part = FilePart::take(&mut bytes)?;
            Some(ReplicaMessage::Piece(part, bytes))
        }
        GONE => {
            let part = FilePart::take(&mut bytes)?;
            bytes.is_empty().then_some(ReplicaMessage::Gone(part))
        }
        LOST => {
            let [nonce, start] = numbers(&bytes)?;
            Some(ReplicaMessage::Lost(RejoinRequest { nonce, start }))
        }
        GRANT => {
            let [nonce, term, index, start] = numbers(&bytes)?;
            let is_possible = [term, index, start]
                .iter()
                .all(|it| (1..1 << 62).contains(it));
            is_possible.then_some(ReplicaMessage::Grant(RejoinGrant {
                nonce,
                term,
                index,
                start,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn parts_of_files_survive_their_encoding() {
        let part = FilePart {
            index: 7,
            digest: [9; 16],
            offset: 1 << 40,
        };
        let pull = decode(encode_pull(part, 77)).unwrap();
        assert!(matches!(pull, ReplicaMessage::Pull(found, 77) if found == part));
        let piece = decode(encode_piece(part, vec![1, 2, 3])).unwrap();
        assert!(matches!(&piece, ReplicaMessage::Piece(found, bytes)
            if *found == part && *bytes == [1, 2, 3]));
        let gone = decode(encode_gone(part)).unwrap();
        assert!(matches!(gone, ReplicaMessage::Gone(found) if found == part));
        let forward = decode(encode_forward(vec![4, 5])).unwrap();
        assert!(matches!(forward, ReplicaMessage::Forward(bytes) if bytes == [4, 5]));
    }

    #[test]
    fn rejoining_survives_its_encoding() {
        let request = RejoinRequest { nonce: 5, start: 0 };
        let lost = decode(encode_lost(request)).unwrap();
        assert!(matches!(lost, ReplicaMessage::Lost(found) if found == request));
        let grant = RejoinGrant {
            nonce: 5,
            term: 2,
            index: 9,
            start: 3,
        };
        let bytes = encode_grant(&grant);
        let found = decode(bytes.clone()).unwrap();
        assert!(matches!(found, ReplicaMessage::Grant(found) if found == grant));
        assert!(decode(bytes[1..].to_vec()).is_none());
        let never = RejoinGrant { term: 0, ..grant };
        assert!(decode(encode_grant(&never)).is_none());
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut rng = Rng::from_seed(8);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..rng.index(60)).map(|_| rng.word() as u8 % 8).collect();
            let _ = decode(bytes);
        }
    }
}
