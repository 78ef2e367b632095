//! Regular and safe registers: which versions may a read return, by real time alone?

use crate::register_history::{NONE, RegisterHistory};
use seatrial_cycles::Csr;

/// Why a read contradicts a regular register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RealTimeViolation {
    /// The read ended before any write of its value began (or nothing wrote it).
    Early {
        /// The read.
        read: u32,
    },
    /// Every write of its value that began before the read's end had ended before `overwrite` began, which ended before the read
    /// began.
    Overwritten {
        /// The read.
        read: u32,
        /// The latest such write of its value; `None` for the initial state.
        source: Option<u32>,
        /// The write after it.
        overwrite: u32,
    },
}

/// Reads that were decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RealTimeCounts {
    /// All.
    pub(crate) reads: u64,
    /// Those that a safe register leaves open, because a write is concurrent.
    pub(crate) free: u64,
}

/// Multi-writer regularity of single reads (MWR-weak of Shao, Welch, Pierce and Lee 2011, for one writer the regular register
/// of Lamport 1986): for each read there is an order of the writes and this read that follows real time, in which it returns the
/// last write before it. Two reads may see two concurrent writes in different orders.
///
/// A read may return the version of a write that began before the read's end, unless another write began after that one's end
/// and ended before the read began. `is_safe`: only reads without a concurrent write are decided, another one may return
/// anything (the safe register of Lamport 1986, with the same rule for several writers). An operation of unknown outcome may
/// still be writing, so it is concurrent with all that ends after its invocation.
///
/// Calls `take` for each violation. Values may be written more than once: one of the writes suffices. O(n log n).
pub(crate) fn real_time_violations(
    history: &RegisterHistory,
    is_safe: bool,
    mut take: impl FnMut(RealTimeViolation),
) -> RealTimeCounts {
    let writes = KeyWrites::new(history);
    let mut counts = RealTimeCounts::default();
    for (action, read) in history.actions.iter().zip(0..) {
        let Some(version) = action.read().filter(|_| action.is_certain()) else {
            continue;
        };
        counts.reads += 1;
        if is_safe && writes.is_concurrent(action.key, action.call, action.ret) {
            counts.free += 1;
            continue;
        }
        let overwrite = writes.latest_before(action.key, action.call);
        let source = writes.writer_before(version, action.ret);
        let is_initial = history.versions[version as usize].is_initial();
        match (source, overwrite) {
            (None, None) if is_initial => {}
            (None, None) => take(RealTimeViolation::Early { read }),
            (None, Some(_)) if !is_initial => take(RealTimeViolation::Early { read }),
            (source, Some(overwrite)) => {
                let end = source.map_or(0, |source| history.actions[source as usize].ret);
                if end < history.actions[overwrite as usize].call || source.is_none() {
                    take(RealTimeViolation::Overwritten {
                        read,
                        source,
                        overwrite,
                    });
                }
            }
            (Some(_), None) => {}
        }
    }
    counts
}

/// The writes of each key and of each version, sorted for the questions above.
struct KeyWrites {
    /// By key: the invocations, sorted.
    calls: Csr<u32>,
    /// By key: (completion, latest invocation among the writes that completed so far, that write), sorted.
    ends: Csr<(u32, u32, u32)>,
    /// By version: (invocation, latest completion among its writes that began so far, that write), sorted.
    writers: Csr<(u32, u32, u32)>,
}

impl KeyWrites {
    fn new(history: &RegisterHistory) -> KeyWrites {
        let numbered = history.actions.iter().zip(0u32..);
        let writes = numbered.filter_map(|(action, number)| {
            let version = action.written()?;
            Some((action, version, number))
        });
        let keys = history.keys.len();
        let calls = writes.clone().map(|(it, ..)| (it.key, it.call));
        let mut calls = Csr::group(keys, calls);
        for key in calls.row_numbers() {
            calls.row_mut(key).sort_unstable();
        }
        let ends = writes.clone().filter(|(it, ..)| it.ret != NONE);
        let ends = ends.map(|(it, _, number)| (it.key, (it.ret, it.call, number)));
        let mut ends = Csr::group(keys, ends);
        let by_version = writes.map(|(it, version, number)| (version, (it.call, it.ret, number)));
        let mut writers = Csr::group(history.versions.len(), by_version);
        for rows in [&mut ends, &mut writers] {
            for row in rows.row_numbers() {
                let row = rows.row_mut(row);
                row.sort_unstable();
                // The second number becomes the largest so far, the third one whose it is.
                for at in 1..row.len() {
                    if row[at].1 < row[at - 1].1 {
                        (row[at].1, row[at].2) = (row[at - 1].1, row[at - 1].2);
                    }
                }
            }
        }
        KeyWrites {
            calls,
            ends,
            writers,
        }
    }

    /// Is a write of the key concurrent with this interval?
    fn is_concurrent(&self, key: u32, call: u32, ret: u32) -> bool {
        let begun = self.calls.row(key).partition_point(|&it| it < ret);
        let ended = self.ends.row(key).partition_point(|&(it, ..)| it < call);
        debug_assert!(ended <= begun, "a write ended before it began");
        begun > ended
    }

    /// Of the writes that ended before this position, the one that began last.
    fn latest_before(&self, key: u32, position: u32) -> Option<u32> {
        let ends = self.ends.row(key);
        let ended = ends.partition_point(|&(it, ..)| it < position);
        Some(ends[ended.checked_sub(1)?].2)
    }

    /// Of the writes of this version that began before this position, the one that ended last.
    fn writer_before(&self, version: u32, position: u32) -> Option<u32> {
        let writers = self.writers.row(version);
        let begun = writers.partition_point(|&(it, ..)| it < position);
        Some(writers[begun.checked_sub(1)?].2)
    }
}
