//! The log of a store: group commit.

use seatrial_blocks::{BlockKind, block, frame};
use seatrial_machine::Ticket;

/// The kind of the log's blocks.
pub const BATCH: BlockKind = BlockKind(32);
/// Flags of a frame that holds a command.
pub(crate) const COMMAND: u32 = 0;
/// Flags of a frame that holds a boot record.
pub(crate) const BOOT: u32 = 1;

/// Maximum number of bytes that gather for one block.
const BATCH_LENGTH_MAX: usize = 16 << 20;
/// Maximum initial capacity of a batch; otherwise the capacity is that of the last batch.
const BATCH_LENGTH_START_MAX: usize = 64 << 10;

/// Gathers frames into one block while the previous block is being made durable, so that one write and one sync carry all
/// commands of the meantime. A position counts blocks: it covers every block with a smaller sequence number.
#[derive(Debug)]
pub(crate) struct Log {
    /// The gathering block, with room for its header; empty when no frame has gathered.
    gathering: Vec<u8>,
    /// Sequence number of the gathering block.
    sequence: u64,
    /// Every block below this is durable.
    durable: u64,
}

impl Log {
    /// Continues a log whose next block is `sequence`.
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

    /// The position that covers every frame pushed so far.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.sequence + u64::from(!self.gathering.is_empty())
    }

    /// Sequence number of the block that the next frame goes into.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Every block below this position is durable.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Can the gathered block be appended, because no other one is under way?
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

    /// Marks the block with this ticket, and all before it, as durable.
    pub(crate) fn appended(&mut self, ticket: Ticket) {
        if ticket.0 < self.sequence {
            self.durable = self.durable.max(ticket.0 + 1);
        }
    }

    /// Asserts the invariants of the log.
    pub(crate) fn check_invariants(&self) {
        let under_way = self.sequence - self.durable;
        assert!(under_way <= 1, "{under_way} blocks under way");
    }
}
