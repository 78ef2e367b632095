//! Commands that wait to be proposed by the leader, or forwarded to it.

use crate::store_command::{BATCH_LENGTH, StoreCommand};
use std::collections::VecDeque;

/// Bound of the bytes that wait; more are refused.
const LENGTH_MAX: usize = 16 << 20;

/// Commands in the order in which they arrived. Messages are kept as they came and are copied once, into the entry or the
/// message that carries them.
#[derive(Debug, Default)]
pub(crate) struct PendingCommands {
    queue: VecDeque<PendingCommand>,
    length: usize,
}

#[derive(Debug)]
enum PendingCommand {
    /// A client's request.
    Request(Vec<u8>),
    /// Encoded commands.
    Encoded(Vec<u8>),
}

impl PendingCommand {
    fn length(&self) -> usize {
        match self {
            PendingCommand::Request(message) => StoreCommand::request_length(message.len()),
            PendingCommand::Encoded(bytes) => bytes.len(),
        }
    }
}

impl PendingCommands {
    /// Is there room for this many bytes?
    pub(crate) fn has_room(&self, length: usize) -> bool {
        self.length + length <= LENGTH_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a client's request.
    pub(crate) fn push_request(&mut self, message: Vec<u8>) {
        self.push(PendingCommand::Request(message));
    }

    /// Adds one command.
    pub(crate) fn push_command(&mut self, command: &StoreCommand<'_>) {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        self.push(PendingCommand::Encoded(bytes));
    }

    /// Adds commands that another node has encoded.
    pub(crate) fn push_encoded(&mut self, commands: Vec<u8>) {
        self.push(PendingCommand::Encoded(commands));
    }

    fn push(&mut self, command: PendingCommand) {
        self.length += command.length();
        self.queue.push_back(command);
    }

    /// Moves the oldest commands to the end of `out`: at least one, further ones while they fit in one entry.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        let mut taken = 0;
        out.reserve(self.length.min(BATCH_LENGTH));
        while let Some(next) = self.queue.front() {
            let length = next.length();
            if taken > 0 && taken + length > BATCH_LENGTH {
                break;
            }
            taken += length;
            self.length -= length;
            match self.queue.pop_front() {
                Some(PendingCommand::Request(message)) => {
                    StoreCommand::Request(&message).encode(out);
                }
                Some(PendingCommand::Encoded(bytes)) => out.extend_from_slice(&bytes),
                None => {}
            }
        }
    }

    /// Puts commands back that were taken, before all others.
    pub(crate) fn put_back(&mut self, commands: Vec<u8>) {
        self.length += commands.len();
        self.queue.push_front(PendingCommand::Encoded(commands));
    }

    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.queue.is_empty(), self.length == 0);
    }
}
