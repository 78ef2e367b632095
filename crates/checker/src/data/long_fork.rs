//! Registers that are written once and read in groups.

use super::data_type::{DataType, OperationEvent};
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, CertainAnomalies, Checker, OnlineChecker, Robustness, Verdict};
use seatrial_history::{History, Key, Mop, Observed, OpType, Value};
use seatrial_machine::counted;
use std::collections::{BTreeMap, BTreeSet};

/// Looks for long forks, which parallel snapshot isolation permits and snapshot isolation forbids: one read of a group
/// of keys sees `x` and not `y`, another sees `y` and not `x`. Jepsen's `long-fork`.
///
/// Operations are transactions (`write`, `read` or `txn`): one write of a fresh key, or reads of all keys of a group.
/// Each key is written once, so the reads of a group must form a chain by inclusion. A group costs a few words for each
/// *different* set of keys that a read saw written. Sorted by size, these sets form a chain if and only if each is included in
/// the next; pairs are counted only in a group with a fork.
///
/// Anomaly: `long-fork`, once for each pair of reads that contradict each other. Unknown, as in Jepsen, when a key is
/// written twice, two reads see different values of a key, or groups differ in size. Reads that saw nothing (early) or
/// all (late) cannot be part of a fork: a history with only those has little evidence. Other transactions are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongFork {
    group: Option<usize>,
}

impl LongFork {
    /// A checker that takes the size of groups from the first read.
    pub fn new() -> LongFork {
        LongFork::default()
    }

    /// With groups of `count` keys.
    #[must_use]
    pub fn group(self, count: usize) -> LongFork {
        LongFork { group: Some(count) }
    }
}

/// Keys of a group, at most: the bits of a word.
const GROUP_MAX: usize = 64;
/// Pairs of different sets of keys that are compared in one group to count its forks.
const PAIRS_MAX: usize = 10_000_000;

/// The state of all groups.
#[derive(Default)]
pub(crate) struct LongForkState {
    written: BTreeSet<Key>,
    groups: BTreeMap<Box<[Key]>, KeyGroup>,
    size: Option<usize>,
    reads: u64,
    early: u64,
    late: u64,
    /// A key that was written twice, with the second write.
    rewritten: Option<(Key, u64)>,
    /// The first operation that cannot be checked, and why.
    refused: Option<(u64, String)>,
}

/// The reads of one group of keys.
#[derive(Default)]
struct KeyGroup {
    /// By position of the key.
    values: Vec<Option<i64>>,
    /// By the set of keys that a read saw written, as bits: the number of such reads, and the first.
    sights: BTreeMap<u64, (u64, u64)>,
}

impl LongForkState {
    fn refuse(&mut self, index: u64, reason: impl Into<String>) {
        self.refused.get_or_insert_with(|| (index, reason.into()));
    }

    fn write(&mut self, index: u64, key: &Key) {
        if !self.written.insert(key.clone()) {
            self.rewritten.get_or_insert_with(|| (key.clone(), index));
        }
    }

    fn read(&mut self, index: u64, mops: &[Mop], size: Option<usize>) {
        self.reads += 1;
        // Of several reads of a key in one transaction, the last counts.
        let mut seen: BTreeMap<&Key, Option<i64>> = BTreeMap::new();
        for mop in mops {
            if let Mop::Read { key, observed } = mop {
                let value = match observed {
                    Observed::Nil => None,
                    Observed::Register(value) => Some(*value),
                    Observed::List(_) => return self.refuse(index, "it read a list"),
                };
                seen.insert(key, value);
            }
        }
        let saw = seen.values().flatten().count();
        self.early += u64::from(saw == 0);
        self.late += u64::from(saw == seen.len());
        let size = *self.size.get_or_insert(size.unwrap_or(seen.len()));
        if seen.len() != size || size > GROUP_MAX {
            let count = seen.len();
            return self.refuse(
                index,
                format!(
                    "it read {}, and a group has {}",
                    counted(count as u64, "key"),
                    size.min(GROUP_MAX)
                ),
            );
        }
        let mut contradiction = None;
        let keys = seen.keys().map(|&key| key.clone()).collect();
        let group = self.groups.entry(keys).or_default();
        group.values.resize(size, None);
        let mut sight = 0_u64;
        for (place, (key, value)) in seen.iter().enumerate() {
            let Some(value) = *value else {
                continue;
            };
            sight |= 1 << place;
            let known = *group.values[place].get_or_insert(value);
            if known != value {
                contradiction = Some(format!("it read {value} from {key}, another read {known}"));
            }
        }
        assert!(group.values.len() == size, "a group has one size");
        group.sights.entry(sight).or_insert((0, index)).0 += 1;
        if let Some(reason) = contradiction {
            self.refuse(index, reason);
        }
    }
}

impl KeyGroup {
    /// Two sets of keys of which neither includes the other. Sorted by size, two adjacent ones are such a pair if any are: if
    /// each is included in the next, all form a chain.
    fn fork(&self) -> Option<[u64; 2]> {
        let mut sights: Vec<u64> = self.sights.keys().copied().collect();
        sights.sort_unstable_by_key(|sight| sight.count_ones());
        let mut neighbours = sights.windows(2).map(|pair| [pair[0], pair[1]]);
        neighbours.find(|[smaller, larger]| smaller & larger != *smaller)
    }

    /// Calls `take` for each pair of sets that do not include one another, with the number of pairs of reads; false when
    /// [`PAIRS_MAX`] ended the comparison.
    fn forks(&self, mut take: impl FnMut([u64; 2], u64)) -> bool {
        let mut compared = 0;
        for (place, (&one, &(count, _))) in self.sights.iter().enumerate() {
            for (&other, &(others, _)) in self.sights.iter().skip(place + 1) {
                compared += 1;
                if compared > PAIRS_MAX {
                    return false;
                }
                if one & other != one && one & other != other {
                    take([one, other], count * others);
                }
            }
        }
        true
    }
}

/// The keys whose bits are set, as text.
fn names(keys: &[Key], sight: u64) -> String {
    let keys = keys.iter().enumerate();
    let seen = keys.filter(|(place, _)| sight >> place & 1 == 1);
    let names: Vec<String> = seen.map(|(_, key)| key.to_string()).collect();
    names.join(", ")
}

impl DataType for LongFork {
    type State = LongForkState;
    const NAME: &'static str = "long-fork";
    const FUNCTIONS: &'static [&'static str] = &["read", "write", "txn"];
    const INTEGER_READS: &'static [&'static str] = Self::FUNCTIONS;

    fn apply(&self, state: &mut LongForkState, event: &OperationEvent<'_>) {
        if !matches!(event.kind, OpType::Invoke | OpType::Ok) {
            return;
        }
        let mops: &[Mop] = match event.value {
            Value::Txn(mops) => mops,
            Value::List(items) if items.is_empty() => &[],
            _ if event.integers == Some(&[]) && !event.is_set => &[],
            _ => return state.refuse(event.index, "its value is not a transaction"),
        };
        match (event.kind, mops) {
            (OpType::Invoke, [Mop::Write { key, .. }]) => state.write(event.index, key),
            (OpType::Ok, mops) if mops.iter().all(|mop| matches!(mop, Mop::Read { .. })) => {
                state.read(event.index, mops, self.group);
            }
            _ => {}
        }
    }

    fn finish(&self, state: LongForkState, builder: &mut VerdictBuilder) {
        builder.count("reads", state.reads);
        builder.count("early_reads", state.early);
        builder.count("late_reads", state.late);
        builder.count("groups", state.groups.len() as u64);
        if let Some((key, index)) = state.rewritten {
            return builder.unknown(format!("op {index}: {key} was written before"));
        }
        if let Some((index, reason)) = state.refused {
            return builder.unknown(format!("op {index}: {reason}"));
        }
        if state.reads == 0 {
            return builder.no_evidence("no group was ever read");
        }
        let mut is_complete = true;
        for (keys, group) in &state.groups {
            let Some(fork) = group.fork() else {
                continue;
            };
            builder.count("forked_groups", 1);
            let tell = |[one, other]: [u64; 2]| {
                let (first, second) = (group.sights[&one].1, group.sights[&other].1);
                let (mine, theirs) = (names(keys, one & !other), names(keys, other & !one));
                let summary = format!(
                    "Op {first} saw {mine} and not {theirs}; op {second} saw {theirs} and not {mine}."
                );
                (vec![first, second], summary)
            };
            let mut found = 0;
            let all = group.forks(|pair, count| {
                found += count;
                builder.anomalies("long-fork", count, || tell(pair));
            });
            builder.anomalies("long-fork", u64::from(found == 0), || tell(fork));
            is_complete &= all;
        }
        builder.figure("is_count_complete", is_complete.into());
    }
}

impl Checker for LongFork {
    fn name(&self) -> &'static str {
        LongFork::NAME
    }

    fn robustness(&self) -> Robustness {
        Robustness {
            certain: CertainAnomalies::Only(&["long-fork"]),
            ..Robustness::OF_PREFIX
        }
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
