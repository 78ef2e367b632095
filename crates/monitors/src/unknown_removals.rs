//! Pending removals, which may have taken any value or none.

use super::minimal_conflict::minimal_conflict;
use super::removal_deadlines::KnownDeadlines;
use super::removal_matching::can_match;
use super::sub_history::{Conflict, project, sub_history};
use super::value_table::{CollectionKind, ValueTable};
use super::{CollectionOperation, NEVER, Rejection};
use std::collections::BTreeSet;

type Check<'a> = &'a dyn Fn(&ValueTable, Option<&[u32]>) -> Result<(), Conflict>;

/// What a data type knows of its histories. The second arguments have the values' numbers in the history, if they were
/// renumbered.
pub(super) struct Monitor<'a> {
    pub(super) kind: CollectionKind,
    /// Decides a table without pending removals, but for assumed ones.
    pub(super) check: Check<'a>,
    /// By when pending removals must have taken values. The check accepts the table if each was taken by the earliest of them.
    pub(super) deadlines: &'a dyn Fn(&ValueTable, Option<&[u32]>) -> KnownDeadlines,
}

/// Operations that the search may look at per operation of the history, beyond [`WORK_MIN`].
const WORK_PER_OPERATION: usize = 48;
const WORK_MIN: usize = 1 << 20;

/// Decides a history whose removals may be of unknown result.
///
/// A pending removal may take effect at any time from its call, and each takes at most one value. A value that none takes is as
/// one that is removed after the end, so to be taken only relaxes what is asked of it, and the earlier the call of what takes
/// it the more. Hence, for each type, in this order:
///
/// 1. Linearizable without them: linearizable.
/// 2. Not linearizable if each value without removal had the earliest of them for itself: not linearizable.
/// 3. What later operations require gives values deadlines. Not linearizable if the removals cannot be matched to these (with
///    observations of an empty collection: `removal_matching.rs`). Linearizable if they can, and the deadlines are all that
///    is required: multisets always; queues unless a value that may have been taken was peeked.
/// 4. Linearizable if a matching by deadline and call is accepted, for one of a few guesses of deadlines.
/// 5. Else search: a state gives values the latest call by which they must be taken (at first none); it is possible if the
///    removals can be matched to these deadlines (as many removals up to each deadline as values: Hall's condition for
///    intervals with a common begin). A state that the monitor accepts proves linearizability. Otherwise it returns a
///    conflict; in any solution below this state one of the conflict's values has an earlier deadline, or the conflict would
///    be in the solution. So the successors are the states with the deadline of one of these values moved to the next earlier
///    call. The search is exhaustive; states that were seen are not entered again.
///
/// Conflicts that were found are remembered as small histories, and checked before the whole. The search ends undecided
/// ([`Rejection::NotApplicable`]) when it has looked at [`WORK_PER_OPERATION`] times the operations: few states of large
/// histories, thousands of small ones. Without pending removals, or with conflicts that no pending removal can resolve, the
/// answer is exact.
pub(super) fn decide(
    operations: &[CollectionOperation],
    monitor: &Monitor<'_>,
) -> Result<(), Rejection> {
    accept(operations, monitor).map(drop)
}

/// A history that a monitor accepts.
pub(super) struct Accepted {
    table: ValueTable,
    matching: RemovalMatching,
}

/// Which values the pending removals take.
enum RemovalMatching {
    /// Those of this list, one after another, the earliest call the first.
    Values(Vec<u32>),
    /// They can be matched to these deadlines, and those of observations of an empty collection.
    Deadlines(Vec<u32>),
}

impl Accepted {
    /// The table with an assumed removal of each value that a pending removal takes, and these values by its call.
    pub(super) fn matched(self) -> (ValueTable, Vec<u32>) {
        let mut table = self.table;
        let values = match self.matching {
            RemovalMatching::Values(values) => values,
            RemovalMatching::Deadlines(deadlines) => matched_values(&mut table, &deadlines),
        };
        let calls = table.unknown_removals.clone();
        assert!(values.len() <= calls.len(), "a removal for each value");
        for (&value, &call) in values.iter().zip(&calls) {
            table.assume_removal(value, Some(call));
        }
        (table, values)
    }
}

/// [`decide`], with what the acceptance rests on.
pub(super) fn accept(
    operations: &[CollectionOperation],
    monitor: &Monitor<'_>,
) -> Result<Accepted, Rejection> {
    let mut table = ValueTable::new(operations, monitor.kind)?;
    let by_values = |table, values| Accepted {
        table,
        matching: RemovalMatching::Values(values),
    };
    let Err(conflict) = (monitor.check)(&table, None) else {
        return Ok(by_values(table, Vec::new()));
    };
    let Some(&earliest) = table.unknown_removals.first() else {
        return Err(sub_history(operations, &conflict, 0));
    };
    if unremoved(&table, &conflict).is_empty() {
        return Err(sub_history(operations, &conflict, 0));
    }
    let all: Vec<u32> = table.unremoved().collect();
    for &value in &all {
        table.assume_removal(value, Some(earliest));
    }
    if let Err(conflict) = (monitor.check)(&table, None) {
        return Err(rejection(operations, &table, &conflict));
    }
    for &value in &all {
        table.assume_removal(value, None);
    }
    let known = (monitor.deadlines)(&table, None);
    let (deadlines, likely) = match known {
        KnownDeadlines::Exact(deadlines) => (deadlines, None),
        KnownDeadlines::Necessary { deadlines, likely } => (deadlines, Some(likely)),
    };
    if let Err(position) = can_match(&mut table, &deadlines, None) {
        let conflict = unmatched(&table, monitor, position);
        return Err(rejection(operations, &table, &conflict));
    }
    let Some(likely) = likely else {
        return Ok(Accepted {
            table,
            matching: RemovalMatching::Deadlines(deadlines),
        });
    };
    for deadlines in std::iter::once(deadlines).chain(likely) {
        if let Some(values) = accepted_by_deadline(&mut table, monitor, &all, &deadlines) {
            return Ok(by_values(table, values));
        }
    }
    let mut search = DeadlineSearch::new(operations, monitor, table);
    search.learn(&conflict);
    let (table, values) = search.run()?;
    Ok(by_values(table, values))
}

/// The values that pending removals must take if deadlines are all that is required, by deadline. The removals can be matched
/// to them, each call up to its deadline.
fn matched_values(table: &mut ValueTable, deadlines: &[u32]) -> Vec<u32> {
    let mut chosen = Vec::new();
    let is_matched = can_match(table, deadlines, Some(&mut chosen)).is_ok();
    assert!(is_matched, "the removals were matched before");
    debug_assert!(chosen.is_sorted(), "chosen instants ascend");
    let mut values: Vec<(u32, u32)> = Vec::new();
    for value in table.unremoved() {
        // The first chosen observation of an empty collection that follows the value's first return.
        let first_ret = table.spans[value as usize].first_ret;
        let next = chosen.partition_point(|&instant| instant <= first_ret);
        let empty = chosen.get(next).copied().unwrap_or(NEVER);
        let deadline = deadlines[value as usize].min(empty);
        if deadline != NEVER {
            values.push((deadline, value));
        }
    }
    values.sort_unstable();
    values.into_iter().map(|(_, value)| value).collect()
}

/// The rejection of a history for a conflict that pending removals cannot resolve. Of these, as many count as there are values
/// that they may take: the earliest allow the most.
fn rejection(
    operations: &[CollectionOperation],
    table: &ValueTable,
    conflict: &Conflict,
) -> Rejection {
    let count = unremoved(table, conflict).len();
    sub_history(operations, conflict, count)
}

/// Values and observations whose deadlines cannot be met; not by this position, with all of them.
fn unmatched(table: &ValueTable, monitor: &Monitor<'_>, position: u32) -> Conflict {
    let values = 0..table.spans.len() as u32;
    let added = values.filter(|&value| table.spans[value as usize].is_added());
    let added: Vec<u32> = added.collect();
    let empties = 0..table.empties.len() as u32;
    minimal_conflict(table, &added, empties, position, &|mut part, values| {
        let deadlines = match (monitor.deadlines)(&part, Some(values)) {
            KnownDeadlines::Exact(deadlines) | KnownDeadlines::Necessary { deadlines, .. } => {
                deadlines
            }
        };
        can_match(&mut part, &deadlines, None).is_err()
    })
}

/// The values by deadline, if the table is accepted when the removals, by call, take them in this order.
fn accepted_by_deadline(
    table: &mut ValueTable,
    monitor: &Monitor<'_>,
    unremoved: &[u32],
    deadlines: &[u32],
) -> Option<Vec<u32>> {
    let deadline = |&value: &u32| (deadlines[value as usize], value);
    let mut by_deadline: Vec<(u32, u32)> = unremoved.iter().map(deadline).collect();
    by_deadline.sort_unstable();
    let calls = table.unknown_removals.clone();
    by_deadline.truncate(calls.len());
    for (&(_, value), &call) in by_deadline.iter().zip(&calls) {
        table.assume_removal(value, Some(call));
    }
    let is_accepted = (monitor.check)(table, None).is_ok();
    for &value in unremoved {
        table.assume_removal(value, None);
    }
    is_accepted.then(|| by_deadline.into_iter().map(|(_, value)| value).collect())
}

/// The values of a conflict that have no known removal.
fn unremoved(table: &ValueTable, conflict: &Conflict) -> Vec<u32> {
    let values = conflict.values.iter().copied();
    values
        .filter(|&value| table.spans[value as usize].remove_ret == NEVER)
        .collect()
}

/// A conflict as a history of its own.
struct LearnedConflict {
    table: ValueTable,
    /// As [`DeadlineSearch::calls`], in the positions of this table.
    calls: Vec<u32>,
    /// The values' numbers in the whole history, ascending.
    values: Vec<u32>,
    operations: usize,
}

/// Values with deadlines, ascending by value. A deadline is the number of a call in [`DeadlineSearch::calls`].
type Deadlines = Vec<(u32, u32)>;

struct DeadlineSearch<'a> {
    operations: &'a [CollectionOperation],
    monitor: &'a Monitor<'a>,
    table: ValueTable,
    /// Different calls of pending removals, ascending, and how many there are up to each.
    calls: Vec<u32>,
    counts: Vec<usize>,
    learned: Vec<LearnedConflict>,
    /// All conflicts, in one.
    conflict: Conflict,
    work: usize,
    work_max: usize,
}

impl<'a> DeadlineSearch<'a> {
    fn new(
        operations: &'a [CollectionOperation],
        monitor: &'a Monitor<'a>,
        table: ValueTable,
    ) -> DeadlineSearch<'a> {
        let mut calls = table.unknown_removals.clone();
        calls.dedup();
        let up_to = |call: u32| {
            table
                .unknown_removals
                .partition_point(|&other| other <= call)
        };
        let counts = calls.iter().map(|&call| up_to(call)).collect();
        DeadlineSearch {
            operations,
            monitor,
            calls,
            counts,
            table,
            learned: Vec::new(),
            conflict: Conflict::default(),
            work: 0,
            work_max: WORK_MIN + WORK_PER_OPERATION * operations.len(),
        }
    }

    /// The table, and the values that the removals take, by call.
    fn run(mut self) -> Result<(ValueTable, Vec<u32>), Rejection> {
        let mut seen: BTreeSet<Deadlines> = BTreeSet::new();
        let mut stack: Vec<Deadlines> = vec![Vec::new()];
        while let Some(mut deadlines) = stack.pop() {
            if self.work > self.work_max {
                return Err(Rejection::NotApplicable(
                    "too many ways to match pending removals with values",
                ));
            }
            let Err(values) = self.check(&deadlines) else {
                // As many calls up to each deadline as values: so in this order each value has a removal in time.
                deadlines.sort_by_key(|&(_, deadline)| deadline);
                let values = deadlines.into_iter().map(|(value, _)| value);
                return Ok((self.table, values.collect()));
            };
            for value in values {
                let next = self.with_earlier(&deadlines, value);
                if let Some(next) = next.filter(|next| self.is_possible(next))
                    && seen.insert(next.clone())
                {
                    stack.push(next);
                }
            }
        }
        Err(rejection(self.operations, &self.table, &self.conflict))
    }

    /// The monitor's answer with these deadlines; of a conflict, its values without known removal.
    fn check(&mut self, deadlines: &Deadlines) -> Result<(), Vec<u32>> {
        for number in 0..self.learned.len() {
            self.check_learned(number, deadlines)?;
        }
        for &(value, deadline) in deadlines {
            let call = self.calls[deadline as usize];
            self.table.assume_removal(value, Some(call));
        }
        self.work += self.operations.len();
        let result = (self.monitor.check)(&self.table, None);
        for &(value, _) in deadlines {
            self.table.assume_removal(value, None);
        }
        result.map_err(|conflict| {
            self.learn(&conflict);
            unremoved(&self.table, &conflict)
        })
    }

    fn check_learned(&mut self, number: usize, deadlines: &Deadlines) -> Result<(), Vec<u32>> {
        let learned = &mut self.learned[number];
        self.work += learned.operations;
        let unremoved: Vec<u32> = learned.table.unremoved().collect();
        for &value in &unremoved {
            let original = learned.values[value as usize];
            let deadline = deadlines.binary_search_by_key(&original, |&(value, _)| value);
            let call = deadline.map(|at| learned.calls[deadlines[at].1 as usize]);
            learned.table.assume_removal(value, call.ok());
        }
        let result = (self.monitor.check)(&learned.table, Some(&learned.values));
        result.map_err(|_| {
            let unremoved = unremoved.iter();
            unremoved
                .map(|&value| learned.values[value as usize])
                .collect()
        })
    }

    /// Remembers a conflict.
    fn learn(&mut self, conflict: &Conflict) {
        self.conflict.values.extend(&conflict.values);
        self.conflict.operations.extend(&conflict.operations);
        // With all pending removals, whose calls may be replaced by ranks together with the other positions.
        let rejection = sub_history(self.operations, conflict, usize::MAX);
        let Rejection::NotLinearizable(numbers) = rejection else {
            unreachable!("the sub-history of a conflict");
        };
        let (operations, values) = project(self.operations, &numbers);
        let table = ValueTable::new(&operations, self.monitor.kind);
        let table = table.expect("single values of the history have no conflict");
        let mut calls = table.unknown_removals.clone();
        calls.dedup();
        assert!(calls.len() == self.calls.len(), "ranks keep what is equal");
        self.learned.push(LearnedConflict {
            table,
            calls,
            values,
            operations: operations.len(),
        });
    }

    /// The deadlines with that of `value` moved to an earlier call that makes a difference.
    fn with_earlier(&self, deadlines: &Deadlines, value: u32) -> Option<Deadlines> {
        let at = deadlines.binary_search_by_key(&value, |&(value, _)| value);
        let last_call = self.table.spans[value as usize].last_call;
        let current = match at {
            Ok(at) => deadlines[at].1,
            Err(_) => self.calls.len() as u32,
        };
        // To be removed no earlier than its last call makes no difference before that.
        if at.is_ok() && self.calls[current as usize] <= last_call {
            return None;
        }
        let earlier = current.checked_sub(1)?;
        let mut next = deadlines.clone();
        match at {
            Ok(at) => next[at].1 = earlier,
            Err(at) => next.insert(at, (value, earlier)),
        }
        Some(next)
    }

    /// Can each value be taken by a removal of its own, with a call up to its deadline?
    fn is_possible(&self, deadlines: &Deadlines) -> bool {
        let mut all: Vec<u32> = deadlines.iter().map(|&(_, deadline)| deadline).collect();
        all.sort_unstable();
        let mut all = all.iter().enumerate();
        all.all(|(number, &deadline)| number < self.counts[deadline as usize])
    }
}
