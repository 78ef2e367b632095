//! Map files, and the freeing of a log's head.

use super::{Downstairs, Outputs};
use crate::downstairs::map_file::{ReplayStart, WriteMap};
use crate::downstairs::region::Region;
use crate::downstairs::region_jobs::{HeadRead, HeadSlot, ReadHead};
use crate::downstairs::region_record::{put_grant, put_moved, put_region};
use seatrial_machine::{DataFolder, LogName, Output, Ticket};

/// Bytes of zones in use that are read at a time to move what is in use; and the longest piece of the log in which they may be.
const MOVE_LENGTH: u64 = 1 << 20;
const MOVE_ZONES: usize = 1_024;

/// What a replica does besides its work, one thing at a time.
#[derive(Debug)]
enum UpkeepStep {
    Idle,
    /// A map file will be written when the log is durable up to here.
    Syncing(Box<Region>, ReplayStart),
    /// A map file is being written; when it is published the log before this position can be freed.
    Writing {
        from: ReplayStart,
        free: u64,
    },
    /// A piece of the log's head is being read.
    Moving,
}

/// Map files and cleaning.
///
/// A map file has the state at a position up to which the log is durable. When it is published, all segments in which it has no
/// slot are freed. If the log is longer than twice what is in use and some slack, the slots in use at its head are appended
/// again, oldest first, until half of the excess can be freed by the next map file. (Rosenblum and Ousterhout's log-structured
/// file system, 1992, with the simplest choice of a segment: the oldest. At twice the space in use it writes each block less
/// than twice.)
#[derive(Debug)]
pub(crate) struct Upkeep {
    data: DataFolder,
    step: UpkeepStep,
    /// Position of the last map file; 0: none.
    map: u64,
    /// The first position of the log, as far as it was freed.
    head: u64,
    /// Position of a block: what is before it was moved.
    moved: u64,
    /// Move up to here, then write a map file.
    target: u64,
    /// The last piece that was read, for its open log: the head cannot be freed before the next map file.
    piece: Option<HeadRead>,
    /// Writing a map file failed: not again before the log has grown.
    failed_at: u64,
}

impl Upkeep {
    pub(crate) fn new(data: DataFolder, head: u64, map: Option<u64>) -> Upkeep {
        Upkeep {
            data,
            step: UpkeepStep::Idle,
            map: map.unwrap_or(0),
            head,
            moved: head,
            target: head,
            piece: None,
            failed_at: 0,
        }
    }

    /// The first position of the log.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Position of the last map file; 0: none.
    pub(crate) const fn map(&self) -> u64 {
        self.map
    }

    /// Bytes of the log's head that are to be moved.
    pub(crate) const fn to_clean(&self) -> u64 {
        self.target.saturating_sub(self.moved)
    }

    /// What is under way, for people.
    pub(crate) const fn activity(&self) -> &'static str {
        match self.step {
            UpkeepStep::Idle => "none",
            UpkeepStep::Syncing(..) => "syncs the log for a map file",
            UpkeepStep::Writing { .. } => "writes a map file",
            UpkeepStep::Moving => "moves slots in use from the log's head",
        }
    }
}

impl Downstairs {
    /// Begins what is due.
    pub(super) fn maintain(&mut self, out: &mut Outputs) {
        match &self.upkeep.step {
            UpkeepStep::Idle => self.choose_upkeep(out),
            UpkeepStep::Syncing(_, from) if from.position <= self.log.durable() => {
                let step = std::mem::replace(&mut self.upkeep.step, UpkeepStep::Moving);
                if let UpkeepStep::Syncing(region, from) = step {
                    self.write_map(*region, from, out);
                }
            }
            _ => {}
        }
    }

    fn choose_upkeep(&mut self, out: &mut Outputs) {
        let upkeep = &self.upkeep;
        let position = self.log.position();
        let since = position - upkeep.map.max(upkeep.failed_at);
        let has_moved = upkeep.target > upkeep.head && upkeep.moved >= upkeep.target;
        // A map file costs 24 bytes a block: of a large volume it is written less often.
        let map_bytes =
            self.region.used_bytes() / u64::from(self.options.geometry.block_length) * 24;
        let interval = self.options.map_interval.max(4 * map_bytes);
        let is_old = since >= interval;
        if is_old || has_moved && since > 0 {
            self.begin_map(out);
            return;
        }
        let length = position - upkeep.head;
        let limit = 2 * self.region.used_bytes() + self.options.log_slack;
        if upkeep.moved < upkeep.target {
            self.read_head(out);
        } else if length > limit {
            // Not only a segment: each time a map file is written.
            let least = self.options.map_interval.max(self.options.segment_length);
            let goal = upkeep.head + (length - limit) / 2 + least;
            self.upkeep.target = goal.min(self.log.durable());
            // Its log may end before the target.
            self.upkeep.piece = None;
            if self.upkeep.moved < self.upkeep.target {
                self.read_head(out);
            }
        }
    }

    /// Marks a position, and lets the log be durable up to it.
    fn begin_map(&mut self, out: &mut Outputs) {
        self.upkeep.piece = None;
        let (geometry, grant) = (self.options.geometry, self.region.grant);
        let put = |bytes: &mut Vec<u8>| {
            put_region(bytes, &geometry);
            put_grant(bytes, grant);
        };
        let position = self.append(true, 64, put, out);
        let from = ReplayStart {
            position,
            sequence: self.log.sequence(),
        };
        self.upkeep.step = UpkeepStep::Syncing(Box::new(self.region.clone()), from);
    }

    fn write_map(&mut self, region: Region, from: ReplayStart, out: &mut Outputs) {
        let free = region.used.start().unwrap_or(from.position);
        let job = WriteMap {
            data: self.upkeep.data.clone(),
            region,
            from,
        };
        self.tickets += 1;
        self.upkeep.step = UpkeepStep::Writing {
            from,
            free: free.min(from.position),
        };
        out.push(Output::Compute(Box::new(job), Ticket(self.tickets)));
    }

    /// A map file was published: the log before what it needs is freed.
    pub(super) fn map_written(&mut self, written: &Result<(), String>, out: &mut Outputs) {
        let step = std::mem::replace(&mut self.upkeep.step, UpkeepStep::Idle);
        let UpkeepStep::Writing { from, free } = step else {
            return;
        };
        self.upkeep.target = self.upkeep.head;
        if written.is_err() {
            self.figures.failed_maps += 1;
            // The disk may be full. The log is whole, so nothing is lost but time at the next start.
            self.upkeep.failed_at = self.log.position();
            return;
        }
        self.figures.maps += 1;
        self.upkeep.map = from.position;
        if free > self.upkeep.head {
            self.upkeep.head = free;
            self.reader.forget(free);
            out.push(Output::TruncateHead {
                log: LogName::MAIN,
                position: free,
            });
        }
    }

    fn read_head(&mut self, out: &mut Outputs) {
        let from = self.upkeep.moved;
        let piece = (from, self.upkeep.target);
        let (free, to) = self.region.used.free_zones(piece, MOVE_LENGTH, MOVE_ZONES);
        let job = ReadHead {
            data: self.upkeep.data.clone(),
            earlier: self.upkeep.piece.take(),
            from,
            to,
            free,
            block_length: self.options.geometry.block_length,
        };
        self.tickets += 1;
        self.upkeep.step = UpkeepStep::Moving;
        out.push(Output::Compute(Box::new(job), Ticket(self.tickets)));
    }

    /// Appends the slots that are in use again.
    pub(super) fn move_head(&mut self, read: std::io::Result<HeadRead>, out: &mut Outputs) {
        self.upkeep.step = UpkeepStep::Idle;
        let Ok(read) = read else {
            self.upkeep.target = self.upkeep.head;
            self.upkeep.failed_at = self.log.position();
            return;
        };
        let used = |slot: &&HeadSlot| self.region.is_used(slot.block, slot.position);
        let slots: Vec<&HeadSlot> = read.slots.iter().filter(used).collect();
        if !slots.is_empty() {
            let length: usize = slots.iter().map(|it| read.bytes(it).len() + 32).sum();
            self.figures.moved_bytes += length as u64;
            let put = |bytes: &mut Vec<u8>| {
                for slot in &slots {
                    put_moved(bytes, slot.block, slot.position, read.bytes(slot));
                }
            };
            self.append(false, length, put, out);
        }
        debug_assert!(
            read.next >= self.upkeep.moved,
            "moving goes through the log in order"
        );
        self.upkeep.moved = read.next.max(self.upkeep.moved);
        self.upkeep.piece = Some(read);
    }
}
