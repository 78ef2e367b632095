//! Filters of views as data.

use super::OpRef;
use super::mask::Mask;
use seatrial_history::chunk::ChunkSummary;
use seatrial_history::{Chunk, Op, OpType, Process, Symbol};
use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

/// A conjunction of conditions on operations; the empty one passes all. Because it is data, it is evaluated on the columns of a
/// chunk without building operations, and often the directory's summary of a chunk decides it without reading the chunk.
///
/// Each method adds a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewFilter {
    /// A bit for each type.
    kinds: u8,
    /// A bit for clients, another for all others.
    actors: u8,
    processes: Option<BTreeSet<Process>>,
    fs: Option<BTreeSet<Symbol>>,
    /// Lowest and highest time.
    times: (i64, i64),
    /// Lowest and highest index.
    indices: (u64, u64),
    /// A range is empty, so no operation passes.
    is_nothing: bool,
}

const CLIENTS: u8 = 1;
const OTHERS: u8 = 2;

const fn bit(kind: OpType) -> u8 {
    match kind {
        OpType::Invoke => 1,
        OpType::Ok => 2,
        OpType::Fail => 4,
        OpType::Info => 8,
    }
}

impl Default for ViewFilter {
    fn default() -> ViewFilter {
        ViewFilter {
            kinds: 15,
            actors: CLIENTS | OTHERS,
            processes: None,
            fs: None,
            times: (i64::MIN, i64::MAX),
            indices: (0, u64::MAX),
            is_nothing: false,
        }
    }
}

/// Intersects a set, or begins one.
fn narrow<T: Ord>(known: &mut Option<BTreeSet<T>>, further: BTreeSet<T>) {
    match known {
        None => *known = Some(further),
        Some(known) => known.retain(|element| further.contains(element)),
    }
}

impl ViewFilter {
    /// All operations.
    pub fn all() -> ViewFilter {
        ViewFilter::default()
    }

    /// Only operations of clients.
    #[must_use]
    pub fn clients(mut self) -> ViewFilter {
        self.actors &= CLIENTS;
        self
    }

    /// Only operations of the nemesis and of other processes that are no clients.
    #[must_use]
    pub fn nemesis(mut self) -> ViewFilter {
        self.actors &= OTHERS;
        self
    }

    /// Only operations of these types.
    #[must_use]
    pub fn types(mut self, types: &[OpType]) -> ViewFilter {
        self.kinds &= types.iter().fold(0, |kinds, &kind| kinds | bit(kind));
        self
    }

    /// Only operations that took place or may have: `ok` and `info`.
    #[must_use]
    pub fn possible(self) -> ViewFilter {
        self.types(&[OpType::Ok, OpType::Info])
    }

    /// Only operations of these processes.
    #[must_use]
    pub fn processes(mut self, processes: impl IntoIterator<Item = Process>) -> ViewFilter {
        narrow(&mut self.processes, processes.into_iter().collect());
        self
    }

    /// Only operations with one of these functions.
    #[must_use]
    pub fn fs<F: Into<Symbol>>(mut self, fs: impl IntoIterator<Item = F>) -> ViewFilter {
        narrow(&mut self.fs, fs.into_iter().map(Into::into).collect());
        self
    }

    /// Only operations whose time, in nanoseconds since the test began and -1 if unknown, is in this range.
    #[must_use]
    pub fn times(mut self, times: impl RangeBounds<i64>) -> ViewFilter {
        let start = match times.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(i64::MIN),
        };
        let end = match times.end_bound() {
            Bound::Included(&end) => Some(end),
            Bound::Excluded(&end) => end.checked_sub(1),
            Bound::Unbounded => Some(i64::MAX),
        };
        match (start, end) {
            (Some(start), Some(end)) => {
                self.times = (self.times.0.max(start), self.times.1.min(end));
            }
            _ => self.is_nothing = true,
        }
        self.settle()
    }

    /// Only operations whose index is in this range.
    #[must_use]
    pub fn indices(mut self, indices: impl RangeBounds<u64>) -> ViewFilter {
        let start = match indices.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match indices.end_bound() {
            Bound::Included(&end) => Some(end),
            Bound::Excluded(&end) => end.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        match (start, end) {
            (Some(start), Some(end)) => {
                self.indices = (self.indices.0.max(start), self.indices.1.min(end));
            }
            _ => self.is_nothing = true,
        }
        self.settle()
    }

    fn settle(mut self) -> ViewFilter {
        self.is_nothing |= self.times.0 > self.times.1 || self.indices.0 > self.indices.1;
        self
    }

    /// Only operations that pass both filters.
    #[must_use]
    pub fn and(mut self, other: &ViewFilter) -> ViewFilter {
        self.kinds &= other.kinds;
        self.actors &= other.actors;
        if let Some(processes) = &other.processes {
            narrow(&mut self.processes, processes.clone());
        }
        if let Some(fs) = &other.fs {
            narrow(&mut self.fs, fs.clone());
        }
        self.is_nothing |= other.is_nothing;
        self.times(other.times.0..=other.times.1)
            .indices(other.indices.0..=other.indices.1)
    }

    /// Does this operation pass?
    pub fn admits(&self, op: OpRef<'_>) -> bool {
        let time = op.time();
        !self.is_nothing
            && self.kinds & bit(op.kind()) != 0
            && self.admits_process(op.process())
            && (self.times.0..=self.times.1).contains(&time)
            && self.fs.as_ref().is_none_or(|fs| fs.contains(&op.f()))
            && (self.indices.0..=self.indices.1).contains(&op.index())
    }

    fn admits_process(&self, process: Process) -> bool {
        let actor = if process.is_client() { CLIENTS } else { OTHERS };
        let processes = self.processes.as_ref();
        self.actors & actor != 0 && processes.is_none_or(|known| known.contains(&process))
    }

    /// The number of operations of a chunk that pass, if its summary decides it.
    pub fn count(&self, chunk: &ChunkSummary) -> Option<u64> {
        let (times, indices) = (self.times, self.indices);
        let mut passing = 0;
        let all_kinds = [
            (OpType::Invoke, chunk.invocations()),
            (OpType::Ok, chunk.ok),
            (OpType::Fail, chunk.fail),
            (OpType::Info, chunk.info),
        ];
        for (kind, count) in all_kinds {
            if self.kinds & bit(kind) != 0 {
                passing += count;
            }
        }
        let is_outside = chunk.time_max < times.0
            || chunk.time_min > times.1
            || chunk.last_index < indices.0
            || chunk.first_index > indices.1;
        if self.is_nothing || is_outside || passing == 0 || self.actors == 0 {
            return Some(0);
        }
        let is_empty = |length: Option<usize>| length == Some(0);
        if is_empty(self.processes.as_ref().map(BTreeSet::len))
            || is_empty(self.fs.as_ref().map(BTreeSet::len))
        {
            return Some(0);
        }
        let is_inside = chunk.time_min >= times.0
            && chunk.time_max <= times.1
            && chunk.first_index >= indices.0
            && chunk.last_index <= indices.1;
        let is_open = self.actors == CLIENTS | OTHERS && self.processes.is_none();
        (is_inside && is_open && self.fs.is_none()).then_some(passing)
    }

    /// Keeps the places whose operation passes.
    pub(super) fn retain(&self, chunk: &Chunk, mask: &mut Mask) {
        if self.is_nothing {
            return mask.retain(|_| false);
        }
        if self.kinds != 15 {
            mask.retain_column(chunk.kinds(), |&kind| self.kinds & bit(kind) != 0);
        }
        let (low, high) = self.times;
        if (low, high) != (i64::MIN, i64::MAX) {
            mask.retain_column(chunk.times(), |&time| time >= low && time <= high);
        }
        if self.actors != CLIENTS | OTHERS || self.processes.is_some() {
            let processes = chunk.processes().iter();
            let passing: Vec<bool> = processes
                .map(|&process| self.admits_process(process))
                .collect();
            if passing.iter().any(|&passes| !passes) {
                mask.retain_column(chunk.process_ids(), |&id| passing[id as usize]);
            }
        }
        if let Some(fs) = &self.fs {
            let passing: Vec<bool> = chunk.template_fs().map(|f| fs.contains(&f)).collect();
            if passing.iter().any(|&passes| !passes) {
                mask.retain_column(chunk.template_ids(), |&id| passing[id as usize]);
            }
        }
        let (low, high) = self.indices;
        if (low, high) != (0, u64::MAX) {
            mask.retain(|place| (low..=high).contains(&chunk.index(place)));
        }
    }

    /// The same for operations in memory.
    pub(super) fn retain_ops(&self, ops: &[Op], mask: &mut Mask) {
        mask.retain_column(ops, |op| self.admits(OpRef::Built(op)));
    }
}
