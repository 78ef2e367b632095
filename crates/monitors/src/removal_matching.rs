//! Matching pending removals with the values that they must have taken.

use super::NEVER;
use super::coverage::UncoveredInstants;
use super::value_table::ValueTable;
use std::collections::VecDeque;

/// Can each value be taken by a pending removal of its own, with a call up to its deadline, such that each observation of an
/// empty collection has an instant at which no value is certainly there? Exact; the error is the first position by which they
/// cannot. O(p log p) for p positions.
///
/// Let each observation have a chosen instant. A value that returned before a chosen instant must be taken by the first such
/// instant, besides its own deadline. Removals can be matched to deadlines iff up to each time `t` there are as many calls,
/// `W(t)`, as values that must be taken (Hall's condition, for intervals that all begin at 0): the values whose own deadline
/// is not after `t`, and those that returned before `T`, the last chosen instant up to `t`. The number grows with `T`, so for
/// each `t` there is a bound `limit(t)`: all is well iff `T < limit(t)`. It is 1 + the return of the value that is one too
/// many: the k-th by return of those whose deadline is after `t`, k = W(t) - (values with deadline up to `t`) + 1.
///
/// Sweep: keep all instants that can be the last chosen one. At `t`: if `t` is not covered by values with known operations,
/// and some instant can precede it, it is added (any can: only the last chosen one matters). Those not below `limit(t)` are
/// dropped: the greatest ones. Observations that return at `t` drop all instants before their call, if these were the last
/// chosen: the least ones. So the set is a double-ended queue, and what remains in the end is a solution.
///
/// `chosen` gets the chosen instants of one solution, ascending: the one before each is any that was in the set when it was
/// added.
pub(super) fn can_match(
    table: &mut ValueTable,
    deadlines: &[u32],
    chosen: Option<&mut Vec<u32>>,
) -> Result<(), u32> {
    let unremoved: Vec<u32> = table.unremoved().collect();
    // The last call of a value is the earliest end of its critical interval.
    for &value in &unremoved {
        table.assume_removal(value, Some(0));
    }
    let mut uncovered = UncoveredInstants::outside(&table.spans, table.positions);
    for &value in &unremoved {
        table.assume_removal(value, None);
    }
    let mut limits = ChosenLimits::new(table, &unremoved, deadlines);
    let mut empties: Vec<(u32, u32)> = table
        .empties
        .iter()
        .map(|one| (one.ret, one.call))
        .collect();
    empties.sort_unstable();
    let mut empties = empties.into_iter().peekable();
    // Instants plus 1; 0: none is chosen yet.
    let mut last_chosen: VecDeque<u32> = VecDeque::from([0]);
    // The instants in the order in which they were added, each with the one before it, if they are wanted.
    let mut added: Vec<(u32, u32)> = Vec::new();
    for t in 0..table.positions {
        let limit = limits.at(t);
        // Instants are useful only while there are observations.
        if t + 1 < limit && empties.peek().is_some() && uncovered.has_between(t, t) {
            if chosen.is_some()
                && let Some(&before) = last_chosen.back()
            {
                added.push((t + 1, before));
            }
            last_chosen.push_back(t + 1);
        }
        while last_chosen.back().is_some_and(|&chosen| chosen >= limit) {
            last_chosen.pop_back();
        }
        while let Some((_, call)) = empties.next_if(|&(ret, _)| ret == t) {
            while last_chosen.front().is_some_and(|&chosen| chosen < call + 1) {
                last_chosen.pop_front();
            }
        }
        if last_chosen.is_empty() {
            return Err(t);
        }
    }
    if let Some(chosen) = chosen {
        let mut at = last_chosen.back().copied().unwrap_or(0);
        while at > 0 {
            chosen.push(at - 1);
            let place = added.partition_point(|&(instant, _)| instant < at);
            at = added[place].1;
        }
        chosen.reverse();
    }
    Ok(())
}

/// The bound of each time on the last chosen instant, plus 1.
struct ChosenLimits<'a> {
    table: &'a ValueTable,
    /// Values without known removal by deadline.
    by_deadline: Vec<(u32, u32)>,
    passed: usize,
    calls: usize,
    /// The returns of the values whose deadline is not passed: a Fenwick tree of counts.
    returns: Vec<u32>,
    remaining: usize,
}

impl<'a> ChosenLimits<'a> {
    fn new(table: &'a ValueTable, unremoved: &[u32], deadlines: &[u32]) -> ChosenLimits<'a> {
        let deadline = |&value: &u32| (deadlines[value as usize], value);
        let mut by_deadline: Vec<(u32, u32)> = unremoved.iter().map(deadline).collect();
        by_deadline.sort_unstable();
        let mut limits = ChosenLimits {
            by_deadline,
            passed: 0,
            calls: 0,
            returns: vec![0; (table.positions as usize + 1).next_power_of_two() + 1],
            remaining: unremoved.len(),
            table,
        };
        for &value in unremoved {
            limits.count(value, 1);
        }
        limits
    }

    fn count(&mut self, value: u32, change: u32) {
        let ret = self.table.spans[value as usize].first_ret;
        let mut node = ret.min(self.table.positions) as usize + 1;
        while node < self.returns.len() {
            self.returns[node] = self.returns[node].wrapping_add(change);
            node += node & node.wrapping_neg();
        }
    }

    /// The return at this place of the order of the values that remain.
    fn nth_return(&self, place: usize) -> u32 {
        let mut step = (self.returns.len() - 1) / 2;
        let (mut node, mut before) = (0, 0);
        while step > 0 {
            let count = self.returns[node + step] as usize;
            if before + count <= place {
                (node, before) = (node + step, before + count);
            }
            step /= 2;
        }
        node as u32
    }

    /// 2 + the return of the value that is one too many at `t`: in the units of `last_chosen`. Times must ascend.
    fn at(&mut self, t: u32) -> u32 {
        let all = &self.table.unknown_removals;
        while all.get(self.calls).is_some_and(|&call| call <= t) {
            self.calls += 1;
        }
        while let Some(&(deadline, value)) = self.by_deadline.get(self.passed)
            && deadline <= t
        {
            self.passed += 1;
            self.remaining -= 1;
            self.count(value, u32::MAX);
        }
        match self.calls.checked_sub(self.passed) {
            None => 0,
            Some(spare) if spare >= self.remaining => NEVER,
            Some(spare) => self.nth_return(spare) + 2,
        }
    }
}
