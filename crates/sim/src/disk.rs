//! A disk that forgets what was not synced.

use crate::options::DiskOptions;
use seatrial_machine::{Rng, Ticket};
use std::collections::VecDeque;

/// The log of one node: durable bytes, and appended bytes that a crash may lose.
#[derive(Debug, Default)]
pub(crate) struct SimDisk {
    durable: Vec<u8>,
    /// Appended, not yet durable, in order.
    pending: VecDeque<Pending>,
    /// Appends that the sync under way covers; none, no sync is under way.
    covered: usize,
}

/// One append that is not durable.
#[derive(Debug)]
struct Pending {
    bytes: Vec<u8>,
    ticket: Ticket,
}

/// What a disk writes as a whole.
const SECTOR: usize = 512;

impl SimDisk {
    pub(crate) fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// The same as a vector, which can be a `dyn Disk`.
    pub(crate) const fn durable_vec(&self) -> &Vec<u8> {
        &self.durable
    }

    /// Cuts off what is behind the end of the log.
    pub(crate) fn truncate(&mut self, end: u64) {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        self.durable.truncate(end);
    }

    pub(crate) fn append(&mut self, bytes: &[u8], ticket: Ticket) {
        self.pending.push_back(Pending {
            bytes: bytes.to_vec(),
            ticket,
        });
    }

    /// Begins a sync of all appends, unless one is under way or there are none.
    pub(crate) fn begin_sync(&mut self) -> bool {
        let begins = self.covered == 0 && !self.pending.is_empty();
        if begins {
            self.covered = self.pending.len();
        }
        begins
    }

    /// The sync is done: what it covered is durable. Its tickets, in order.
    pub(crate) fn complete(&mut self) -> Vec<Ticket> {
        let covered = std::mem::take(&mut self.covered);
        let mut tickets = Vec::with_capacity(covered);
        for pending in self.pending.drain(..covered) {
            self.durable.extend_from_slice(&pending.bytes);
            tickets.push(pending.ticket);
        }
        tickets
    }

    /// The machine is gone. Of what was not durable the first appends survive, and of the next one perhaps some
    /// bytes: a prefix, or any of its sectors.
    pub(crate) fn crash(&mut self, options: &DiskOptions, rng: &mut Rng) {
        self.covered = 0;
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() || rng.chance(options.crash_loses_all) {
            return;
        }
        let survivors = rng.index(pending.len() + 1);
        for (number, append) in pending.into_iter().enumerate() {
            if number < survivors {
                self.durable.extend_from_slice(&append.bytes);
            } else {
                self.tear(&append.bytes, options, rng);
                return;
            }
        }
    }

    /// Keeps a part of an append.
    fn tear(&mut self, bytes: &[u8], options: &DiskOptions, rng: &mut Rng) {
        if !rng.chance(options.torn_write) {
            return;
        }
        if rng.chance(0.5) {
            self.durable
                .extend_from_slice(&bytes[..rng.index(bytes.len() + 1)]);
            return;
        }
        for sector in bytes.chunks(SECTOR) {
            if rng.chance(0.5) {
                self.durable.extend_from_slice(sector);
            } else {
                self.durable.resize(self.durable.len() + sector.len(), 0);
            }
        }
    }

    /// Flips bits of durable bytes.
    pub(crate) fn rot(&mut self, bits: u32, rng: &mut Rng) {
        if self.durable.is_empty() {
            return;
        }
        for _ in 0..bits {
            let position = rng.index(self.durable.len());
            self.durable[position] ^= 1 << rng.below(8);
        }
    }
}
