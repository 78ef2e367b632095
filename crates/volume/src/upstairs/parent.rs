//! The parent of a volume: where blocks are read that were never written here.

use crate::geometry::BlockSpan;
use crate::upstairs::{Outputs, Upstairs};
use seatrial_machine::{Computed, Job, Output, Time};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// What a volume is a clone of: blocks that never change. Jobs read it, so it may wait for a disk or a network, with a time
/// limit.
pub trait ParentVolume: fmt::Debug + Send + Sync {
    /// Reads blocks of `block_length` bytes; those past its end are zeros. The error says why it cannot be read now.
    fn read(&self, span: BlockSpan, block_length: u32) -> Result<Vec<u8>, String>;
}

/// What needs blocks of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParentAsker {
    /// A part of a guest's read.
    Part(u64),
    /// The sweep that copies the parent.
    Fill(u64),
}

/// Reads of the parent.
///
/// Few are under way at a time, since each occupies a thread that encrypts as well. A read that fails is repeated after a while:
/// guests that need the parent wait for it, as they wait for a quorum.
#[derive(Debug, Default)]
pub(crate) struct ParentReads {
    waiting: VecDeque<(ParentAsker, BlockSpan)>,
    under_way: usize,
    retry_at: Time,
    /// Why the last read failed; empty if it did not.
    pub(super) reason: String,
    /// Bytes that were read.
    pub(super) bytes: u64,
}

/// Most reads of the parent under way.
const UNDER_WAY_MAX: usize = 2;

impl ParentReads {
    /// Forgets what waits.
    pub(super) fn give_up(&mut self) {
        self.waiting.clear();
    }
}

/// Reads blocks of a parent.
struct ReadParent {
    parent: Arc<dyn ParentVolume>,
    asker: ParentAsker,
    span: BlockSpan,
    block_length: u32,
}

/// Blocks of a parent.
pub(crate) struct ParentBlocks {
    asker: ParentAsker,
    span: BlockSpan,
    result: Result<Vec<u8>, String>,
}

impl Job for ReadParent {
    fn run(self: Box<Self>) -> Computed {
        let length = self.span.count as usize * self.block_length as usize;
        let read = self.parent.read(self.span, self.block_length);
        let result = read.and_then(|bytes| {
            let found = bytes.len();
            let is_whole = found == length;
            is_whole
                .then_some(bytes)
                .ok_or_else(|| format!("{found} bytes instead of {length}"))
        });
        Box::new(ParentBlocks {
            asker: self.asker,
            span: self.span,
            result,
        })
    }
}

impl Upstairs {
    /// Reads blocks of the parent, for a part or a sweep.
    pub(super) fn read_parent(
        &mut self,
        now: Time,
        asker: ParentAsker,
        span: BlockSpan,
        out: &mut Outputs,
    ) {
        self.parent_reads.waiting.push_back((asker, span));
        self.step_parent(now, out);
    }

    /// Begins the reads that wait.
    pub(super) fn step_parent(&mut self, now: Time, out: &mut Outputs) {
        let Some(parent) = self.options.parent.clone() else {
            return;
        };
        while self.parent_reads.under_way < UNDER_WAY_MAX && self.parent_reads.retry_at <= now {
            let Some((asker, span)) = self.parent_reads.waiting.pop_front() else {
                return;
            };
            self.parent_reads.under_way += 1;
            let job = ReadParent {
                parent: Arc::clone(&parent),
                asker,
                span,
                block_length: self.options.geometry.block_length,
            };
            let ticket = self.next_ticket();
            out.push(Output::Compute(Box::new(job), ticket));
        }
    }

    /// Blocks of the parent arrived, or cannot be read now.
    pub(super) fn have_parent(&mut self, now: Time, read: ParentBlocks, out: &mut Outputs) {
        let ParentBlocks {
            asker,
            span,
            result,
        } = read;
        self.parent_reads.under_way -= 1;
        match result {
            Ok(bytes) => {
                self.parent_reads.reason.clear();
                self.parent_reads.bytes += bytes.len() as u64;
                match asker {
                    ParentAsker::Part(id) => self.complete_part(id, span, &bytes, out),
                    ParentAsker::Fill(number) => self.have_fill(now, number, span, bytes, out),
                }
            }
            Err(reason) => {
                self.parent_reads.reason = reason;
                self.parent_reads.retry_at = now + self.options.resend_after;
                let is_needed = match asker {
                    ParentAsker::Part(id) => self.reads.has_part(id),
                    ParentAsker::Fill(number) => self.has_fill(number),
                };
                if is_needed {
                    self.parent_reads.waiting.push_back((asker, span));
                }
            }
        }
        self.step_parent(now, out);
    }
}
