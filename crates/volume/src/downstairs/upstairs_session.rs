//! The session of an upstairs with a replica.

use crate::volume_message::SessionNumber;
use seatrial_machine::NodeId;
use std::collections::BTreeMap;

/// What is due when a position of the log is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PendingAck {
    /// The reply to the upstairs that began this session.
    Attached(SessionNumber),
    /// The acknowledgement of a flush of this session.
    Flushed(SessionNumber, u64),
}

/// Messages that are kept because an earlier one is missing; further ones are dropped, and sent again by the upstairs.
const HELD_MAX: usize = 1_024;
/// Bytes of them.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The session: puts the messages that change the replica in order.
#[derive(Debug)]
pub(crate) struct ReplicaSession {
    pub(crate) upstairs: NodeId,
    pub(crate) number: SessionNumber,
    /// All messages up to this number were carried out.
    pub(crate) applied: u64,
    /// The last flush of the session that is durable.
    pub(crate) flushed: u64,
    pub(crate) is_ack_due: bool,
    /// Messages that wait for an earlier one, or for their turn.
    held: BTreeMap<u64, Vec<u8>>,
    held_bytes: usize,
}

impl ReplicaSession {
    pub(crate) fn new(upstairs: NodeId, number: SessionNumber) -> ReplicaSession {
        ReplicaSession {
            upstairs,
            number,
            applied: 0,
            flushed: 0,
            is_ack_due: false,
            held: BTreeMap::new(),
            held_bytes: 0,
        }
    }

    /// Takes a message; one that was carried out, or for which there is no room, is dropped.
    pub(crate) fn arrive(&mut self, number: u64, bytes: Vec<u8>) {
        let is_next = number == self.applied + 1;
        let has_room =
            self.held.len() < HELD_MAX && self.held_bytes + bytes.len() <= HELD_BYTES_MAX;
        if number <= self.applied || !(is_next || has_room) || self.held.contains_key(&number) {
            return;
        }
        self.held_bytes += bytes.len();
        self.held.insert(number, bytes);
    }

    /// Takes out the next message in order.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.held.remove(&(self.applied + 1))?;
        self.held_bytes -= bytes.len();
        self.applied += 1;
        Some(bytes)
    }
}
