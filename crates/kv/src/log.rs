//! The store's log: group commit.

use seatrial_blocks::{BlockKind, block, frame};
use seatrial_machine::Ticket;

/// The kind of the log's blocks.
pub const BATCH: BlockKind = BlockKind(32);
/// Flags of a frame that holds a command.
pub(crate) const COMMAND: u32 = 0;
/// Flags of a frame that holds a boot record.
pub(crate) const BOOT: u32 = 1;

/// Bytes that may gather for one block.
const BATCH_LENGTH_MAX: usize = 16 << 20;
/// A new batch starts with room for this much, or for what the last one held.
const BATCH_LENGTH_START_MAX: usize = 64 << 10;

/// Gathers frames into one block while the block before it is being made durable: one write and one sync carry as
/// many commands as came in the meantime. Positions count blocks: everything that a block with a sequence number below
/// the position holds.
#[derive(Debug)]
pub(crate) struct Log {
    /// The block that gathers, with room for its header; empty when nothing has gathered.
    gathering: Vec<u8>,
    /// The sequence number that it will have.
    sequence: u64,
    /// Everything below this is durable.
    durable: u64,
}

impl Log {
    /// Goes on behind a log whose next block is `sequence`.
    pub(crate) fn new(sequence: u64) -> Log {
        Log {
            gathering: Vec::new(),
            sequence,
            durable: sequence,
        }
    }

    /// Is there room for a frame with a payload of this length?
    pub(crate) fn has_room(&self, length: usize) -> bool {
        self.gathering.len() + frame::frame_length(length) <= BATCH_LENGTH_MAX
    }

    /// Adds one frame.
    #[inline]
    pub(crate) fn push(&mut self, flags: u32, payload: &[u8]) {
        if self.gathering.is_empty() {
            block::begin(&mut self.gathering);
        }
        frame::write(&mut self.gathering, flags, payload);
    }

    /// What someone waits for who has seen everything that was pushed so far.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.sequence + u64::from(!self.gathering.is_empty())
    }

    /// The sequence number of the block that the next frame goes into.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Everything below this position is durable.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Has something gathered that could be written now, as no other block is under way?
    pub(crate) fn is_ready(&self) -> bool {
        !self.gathering.is_empty() && self.durable == self.sequence
    }

    /// The block to append, if [`Log::is_ready`].
    #[inline]
    pub(crate) fn flush(&mut self) -> Option<(Vec<u8>, Ticket)> {
        if !self.is_ready() {
            return None;
        }
        let next = Vec::with_capacity(self.gathering.len().min(BATCH_LENGTH_START_MAX));
        let mut batch = std::mem::replace(&mut self.gathering, next);
        block::finish_plain(&mut batch, 0, BATCH, 0, self.sequence);
        let ticket = Ticket(self.sequence);
        self.sequence += 1;
        Some((batch, ticket))
    }

    /// The block with this ticket is durable, and every one before it.
    pub(crate) fn appended(&mut self, ticket: Ticket) {
        if ticket.0 < self.sequence {
            self.durable = self.durable.max(ticket.0 + 1);
        }
    }

    /// Panics if the log contradicts itself.
    pub(crate) fn check_invariants(&self) {
        let under_way = self.sequence - self.durable;
        assert!(under_way <= 1, "{under_way} blocks under way");
    }
}
