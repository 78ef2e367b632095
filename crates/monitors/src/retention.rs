//! Which operations can still matter: the state of a check that runs beside a test.

use super::coverage::UncoveredInstants;
use super::value_table::{CollectionKind, ObservationSpan, ValueSpan, ValueTable};
use super::{CollectionAction, CollectionOperation, NEVER};

/// Marks the operations of a queue that a longer history may still need; the others can be dropped without a change of any
/// later answer. [`super::queue`] must accept `operations`. All operations that are not in it, or that are pending in it and may
/// still return, have calls at `horizon` or later, and return after everything in it. O(n log n), and O(n) for each observation
/// of an empty queue that rests on pending removals.
///
/// A value is settled if it was removed, and all its operations returned before the horizon. Nothing later can be ordered before
/// it, so what it can still contradict are values that are not settled: those without a known removal, which a pending removal
/// may have taken, and those that an open peek may still show.
///
/// - By order: a settled `a` that was added after `w` requires that `w` is gone by the return of `a`'s removal. Of all settled
///   values that require this of `w`, the one whose removal returned first requires the most: it alone is kept.
/// - By coverage: an observation of an empty queue is decided once it has an instant that no value covers, those without
///   removal included: values that are added or removed later cover none of its instants. One that has such an instant only if
///   pending removals took values is kept with the removed values around it, unless a kept one that returned earlier requires
///   the same.
///
/// With peeks, a cycle of edges may have three values. Then a settled value is dropped if no value that is kept comes before it:
/// what comes before it is known, so it is in no cycle.
pub fn retained_in_queue(operations: &[CollectionOperation], horizon: u32) -> Vec<bool> {
    Retention::new(operations, CollectionKind::Ordered, horizon).marks(operations)
}

/// Marks the operations of a multiset that a longer history may still need: as [`retained_in_queue`], without the rules of
/// order.
pub fn retained_in_multiset(operations: &[CollectionOperation], horizon: u32) -> Vec<bool> {
    Retention::new(operations, CollectionKind::Multiset, horizon).marks(operations)
}

/// What is kept, by value and by observation of an empty collection.
struct Retention {
    kind: CollectionKind,
    table: ValueTable,
    /// By value: is it settled?
    settled: Vec<bool>,
    /// By value: is it kept? True for all that are not settled.
    kept: Vec<bool>,
    /// Numbers of the observations that are kept.
    empties: Vec<u32>,
}

impl Retention {
    fn new(operations: &[CollectionOperation], kind: CollectionKind, horizon: u32) -> Retention {
        let (known, horizon) = ranked(operations, horizon);
        let table = ValueTable::new(&known, kind);
        let table = table.expect("the history was accepted");
        let mut greatest_ret = vec![0; table.spans.len()];
        for one in known.iter().filter(|one| one.ret != NEVER) {
            if let Some(greatest) = greatest_ret.get_mut(one.value as usize)
                && one.action != CollectionAction::Empty
            {
                *greatest = one.ret.max(*greatest);
            }
        }
        let is_settled = |(span, &ret): (&ValueSpan, &u32)| {
            span.is_added() && span.remove_ret != NEVER && ret < horizon
        };
        let settled: Vec<bool> = table
            .spans
            .iter()
            .zip(&greatest_ret)
            .map(is_settled)
            .collect();
        let mut retention = Retention {
            kind,
            kept: settled.iter().map(|is_settled| !is_settled).collect(),
            settled,
            table,
            empties: Vec::new(),
        };
        if kind == CollectionKind::Ordered && retention.table.peeks.is_empty() {
            retention.keep_by_order();
        } else if kind == CollectionKind::Ordered {
            retention.keep_by_edges();
        }
        retention.keep_by_coverage();
        retention
    }

    /// Keeps the settled values that require most of values that are not settled.
    fn keep_by_order(&mut self) {
        let spans = &self.table.spans;
        let all = 0..spans.len();
        let unsettled = all.filter(|&value| !self.settled[value] && spans[value].is_added());
        let mut first_rets: Vec<u32> = unsettled.map(|value| spans[value].first_ret).collect();
        first_rets.retain(|&ret| ret != NEVER);
        first_rets.sort_unstable();
        let settled = (0..spans.len()).filter(|&value| self.settled[value]);
        let mut by_removal: Vec<usize> = settled.collect();
        by_removal.sort_unstable_by_key(|&value| spans[value].remove_ret);
        // Values with a first return before this are required to be gone by a value that is kept.
        let mut required = 0;
        for value in by_removal {
            let add_call = spans[value].add_call;
            let next = first_rets.partition_point(|&ret| ret < required);
            if first_rets.get(next).is_some_and(|&ret| ret < add_call) {
                self.kept[value] = true;
                required = add_call;
            }
        }
    }

    /// Keeps the settled values that a value that is kept comes before, until there are no more.
    fn keep_by_edges(&mut self) {
        let spans = &self.table.spans;
        let (mut first_ret, mut front_ret) = (NEVER, NEVER);
        let mut add = |span: &ValueSpan| {
            first_ret = first_ret.min(span.first_ret);
            front_ret = front_ret.min(span.front_ret);
            (first_ret, front_ret)
        };
        let mut least = (NEVER, NEVER);
        for (value, span) in spans.iter().enumerate() {
            if self.kept[value] && span.is_added() {
                least = add(span);
            }
        }
        loop {
            let mut has_grown = false;
            for (value, span) in spans.iter().enumerate() {
                if !self.kept[value] && (least.0 < span.add_call || least.1 < span.end) {
                    self.kept[value] = true;
                    least = add(span);
                    has_grown = true;
                }
            }
            if !has_grown {
                return;
            }
        }
    }

    /// Keeps the observations of an empty collection that rest on pending removals, and the removed values around them.
    fn keep_by_coverage(&mut self) {
        let mut by_ret: Vec<ObservationSpan> = self.table.empties.clone();
        by_ret.sort_unstable_by_key(|empty| (empty.ret, empty.call));
        let positions = self.table.positions;
        let mut uncovered = UncoveredInstants::outside(&self.spans_after(0), positions);
        // Returns of those that are kept, and the greatest call up to each.
        let mut kept: Vec<(u32, u32)> = Vec::new();
        // The values with a first return before this end before the observation.
        let mut required = 0;
        for empty in by_ret {
            let earlier = kept.partition_point(|&(ret, _)| ret < empty.call);
            let greatest = earlier.checked_sub(1).map_or(0, |last| kept[last].1);
            if greatest != required {
                required = greatest;
                uncovered = UncoveredInstants::outside(&self.spans_after(required), positions);
            }
            if uncovered.has_between(empty.call, empty.ret) {
                continue;
            }
            let before = kept.last().map_or(0, |&(_, call)| call);
            kept.push((empty.ret, before.max(empty.call)));
            self.empties.push(empty.operation);
            for (value, span) in self.table.spans.iter().enumerate() {
                let is_around = span.first_ret < empty.ret && span.end > empty.call;
                self.kept[value] |= is_around;
            }
        }
        self.empties.sort_unstable();
    }

    /// The spans as they may still become: of a value that is not settled, a peek under way may show that it was there until its
    /// removal returned. Without those that have no known removal and are gone by now: their first returns are less than
    /// `required`.
    fn spans_after(&self, required: u32) -> Vec<ValueSpan> {
        let spans = self.table.spans.iter().zip(&self.settled);
        let spans = spans.map(|(span, &is_settled)| {
            let is_removed = span.remove_ret != NEVER;
            let end = match is_removed {
                true if is_settled => span.end,
                true => span.end.max(span.remove_ret),
                false if span.first_ret < required => 0,
                false => span.end,
            };
            ValueSpan { end, ..*span }
        });
        spans.collect()
    }

    fn marks(&self, operations: &[CollectionOperation]) -> Vec<bool> {
        assert!(
            self.kind != CollectionKind::Set,
            "sets have rules of their own"
        );
        let marks = (0..).zip(operations).map(|(number, one)| match one.action {
            CollectionAction::RemoveUnknown => true,
            CollectionAction::Empty => self.empties.binary_search(&number).is_ok(),
            // Pending reads say nothing.
            CollectionAction::Peek | CollectionAction::Contains if one.ret == NEVER => false,
            _ => self.kept.get(one.value as usize).is_none_or(|&kept| kept),
        });
        marks.collect()
    }
}

/// The operations with dense positions, and the horizon among them. Numbers of operations stay.
fn ranked(operations: &[CollectionOperation], horizon: u32) -> (Vec<CollectionOperation>, u32) {
    let positions = operations.iter().flat_map(|one| [one.call, one.ret]);
    let mut distinct: Vec<u32> = positions.filter(|&position| position != NEVER).collect();
    distinct.push(horizon);
    distinct.sort_unstable();
    distinct.dedup();
    let rank = |position: u32| match position {
        NEVER => NEVER,
        position => distinct.partition_point(|&other| other < position) as u32,
    };
    let operations = operations.iter().map(|one| CollectionOperation {
        call: rank(one.call),
        ret: rank(one.ret),
        ..*one
    });
    (operations.collect(), rank(horizon))
}
