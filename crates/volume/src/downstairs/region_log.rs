//! The end of a replica's log: makes blocks, and knows which of them can be read and which are durable.

use crate::downstairs::region_record::REGION_LOG;
use seatrial_blocks::HEADER_LENGTH;
use seatrial_blocks::block::{self, flags};
use seatrial_machine::{LogName, Output, Ticket};
use std::collections::VecDeque;

/// A block that the driver has not reported.
#[derive(Clone, Copy, Debug)]
struct PendingAppend {
    ticket: Ticket,
    end: u64,
    is_synced: bool,
}

/// The writer of a replica's log.
///
/// Data are written without a sync; a flush is appended with one, which makes everything before it durable. Blocks that are
/// written while an earlier one is not durable have the flag *unordered*: if the earlier one is lost in a crash, that is a torn
/// end and no damage.
#[derive(Debug)]
pub(crate) struct RegionLog {
    /// Position of the next block.
    position: u64,
    sequence: u64,
    /// Everything before can be read.
    written: u64,
    /// Everything before is durable.
    durable: u64,
    under_way: VecDeque<PendingAppend>,
}

impl RegionLog {
    /// Continues a log at its durable end.
    pub(crate) fn new(position: u64, sequence: u64) -> RegionLog {
        RegionLog {
            position,
            sequence,
            written: position,
            durable: position,
            under_way: VecDeque::new(),
        }
    }

    /// Position of the next block.
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// Number of the next block.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The position up to which the log can be read.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// The position up to which the log is durable.
    pub(crate) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Begins a block: the payload is appended to the result.
    pub(crate) fn begin(capacity: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LENGTH + capacity + 128);
        block::begin(&mut bytes);
        bytes
    }

    /// Position of the payload of the next block.
    pub(crate) const fn payload_position(&self) -> u64 {
        self.position + HEADER_LENGTH as u64
    }

    /// Completes a block and pushes it; returns its end.
    pub(crate) fn push<R>(
        &mut self,
        mut bytes: Vec<u8>,
        is_synced: bool,
        out: &mut Vec<Output<R>>,
    ) -> u64 {
        let flags = if self.durable == self.position {
            0
        } else {
            flags::UNORDERED
        };
        // A message that became a block is as long as its memory, which must not double for the padding.
        bytes.reserve_exact(block::block_length(bytes.len() - HEADER_LENGTH) - bytes.len());
        block::finish_plain(&mut bytes, 0, REGION_LOG, flags, self.sequence);
        let ticket = Ticket(self.sequence);
        self.sequence += 1;
        self.position += bytes.len() as u64;
        self.under_way.push_back(PendingAppend {
            ticket,
            end: self.position,
            is_synced,
        });
        let log = LogName::MAIN;
        out.push(if is_synced {
            Output::Append { log, bytes, ticket }
        } else {
            Output::Write { log, bytes, ticket }
        });
        self.position
    }

    /// The driver reports a block, and with it all before it.
    pub(crate) fn reported(&mut self, ticket: Ticket) {
        while let Some(done) = self.under_way.pop_front_if(|it| it.ticket <= ticket) {
            self.written = done.end;
            if done.is_synced {
                self.durable = done.end;
            }
        }
    }
}
