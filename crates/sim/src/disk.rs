//! A disk that forgets what was not synced.

use crate::options::DiskOptions;
use seatrial_machine::{Disk, DiskTrouble, Rng, Ticket};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// The log of one node: durable bytes, and appended bytes that a crash may lose.
#[derive(Debug, Default)]
pub(crate) struct SimDisk {
    durable: Vec<u8>,
    /// Appended, not yet durable, in order.
    pending: VecDeque<Pending>,
    /// Appends that the sync under way covers; none, no sync is under way.
    covered: usize,
    trouble: Option<DiskTrouble>,
    /// An earlier state of the durable bytes.
    snapshot: Option<Vec<u8>>,
}

/// Durable bytes that cannot be read.
pub(crate) struct Unreadable(u64);

impl Disk for Unreadable {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> io::Result<()> {
        Err(io::Error::other("this disk cannot be read"))
    }
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

    pub(crate) const fn set_trouble(&mut self, trouble: Option<DiskTrouble>) {
        self.trouble = trouble;
    }

    pub(crate) const fn trouble(&self) -> Option<DiskTrouble> {
        self.trouble
    }

    /// What the disk shows when it cannot be read.
    pub(crate) fn unreadable(&self) -> Option<Unreadable> {
        let is_so = self.trouble == Some(DiskTrouble::ReadErrors);
        is_so.then_some(Unreadable(self.durable.len() as u64))
    }

    /// Do writes fail?
    pub(crate) const fn refuses_writes(&self) -> bool {
        matches!(
            self.trouble,
            Some(DiskTrouble::WriteErrors | DiskTrouble::NoSpace)
        )
    }

    /// How much longer a sync takes.
    pub(crate) const fn extra_delay(&self) -> Duration {
        match self.trouble {
            Some(DiskTrouble::Slow(delay)) => delay,
            _ => Duration::ZERO,
        }
    }

    /// The power is gone, and all that was not durable.
    pub(crate) fn lose_unsynced(&mut self) {
        self.covered = 0;
        self.pending.clear();
    }

    /// Flips bits of durable bytes; were there any?
    pub(crate) fn rot(&mut self, bits: u32, rng: &mut Rng) -> bool {
        if self.durable.is_empty() {
            return false;
        }
        for _ in 0..bits {
            let position = rng.index(self.durable.len());
            self.durable[position] ^= 1 << rng.below(8);
        }
        bits > 0
    }

    /// Cuts off the last durable bytes; were there any?
    pub(crate) fn cut_off(&mut self, bytes: u64) -> bool {
        let length = self.durable.len() as u64;
        self.truncate(length.saturating_sub(bytes));
        (self.durable.len() as u64) < length
    }

    pub(crate) fn keep_snapshot(&mut self) {
        self.snapshot = Some(self.durable.clone());
    }

    /// Goes back to the snapshot; does that change anything?
    pub(crate) fn restore(&mut self) -> bool {
        let Some(snapshot) = &self.snapshot else {
            return false;
        };
        let changes = *snapshot != self.durable;
        self.durable.clone_from(snapshot);
        changes
    }
}
