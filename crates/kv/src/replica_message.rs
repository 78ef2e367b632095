//! What replicas say to each other. The last byte of a message is its kind: nothing is moved to add or remove it.

use bytes::Bytes;
use seatrial_consensus as consensus;

/// A message of consensus.
const CONSENSUS: u8 = 1;
/// Commands for the leader.
const FORWARD: u8 = 2;

/// Bound of a message between replicas, its kind included.
pub const LENGTH_MAX: usize = consensus::MESSAGE_LENGTH_MAX + 1;

/// A message between replicas.
#[derive(Debug)]
pub(crate) enum ReplicaMessage {
    /// A message of consensus.
    Consensus(consensus::PeerMessage),
    /// Encoded commands ([`crate::store_command::Commands`]) for the leader. They are not checked yet.
    Forward(Vec<u8>),
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
        _ => None,
    }
}
