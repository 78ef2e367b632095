//! The monitor of first-in-first-out queues.

use super::coverage::{cover_of_empty, covered_empty};
use super::linearization::{
    LinearizedOperation, OperationsByValue, Placement, PlacementClass, empty_instants, linearize,
};
use super::peeks_by_value::PeeksByValue;
use super::removal_deadlines::KnownDeadlines;
use super::sub_history::Conflict;
use super::unknown_removals::{Monitor, decide};
use super::value_table::{CollectionKind, ValueSpan, ValueTable};
use super::{CollectionOperation, NEVER, Rejection};

/// Is this history of a first-in-first-out queue, empty at first, linearizable? Exact if each value is added at most once;
/// for pending removals see [`super::Rejection`]. O(n).
///
/// Order of values. In a linearization values are added in the order in which they come to the front, and the peeks and the
/// removal of a value are a contiguous block of the operations at the front. So `u` comes before `v` if the addition of `u`
/// precedes that of `v` (edge E: `first_ret(u) < add_call(v)`), or an operation at the front for `u` precedes one for `v`
/// (edge R: `front_ret(u) < end(v)`). A cycle of edges refutes the history.
///
/// Sufficient: let the edges be without cycle, and each observation of an empty queue have an uncovered instant. These
/// instants cut time into segments; give each value the segment that follows the last of them before `end(v)`. By coverage
/// its first return is not before that segment. An edge from `p` to `q` needs `first_ret(p) < end(q)`, so none leads from a
/// later segment to an earlier one, and a topological order can be sorted by segment. In that order, let each operation take
/// effect at the greatest of the segment's begin and the calls of its kind (additions, or operations at the front) so far: by
/// the edges, no return of a later value is before a call of an earlier one; a block's peeks come before its removal, since
/// `end(v)` is no less than their calls; and no addition is later than the operations at the front for its value, whose calls
/// are cut to that of the addition. All calls of a segment's values lie before its end, so at the cuts the queue is empty.
///
/// Without peeks R is an interval order like E, so a shortest cycle has two values: Henzinger, Sezgin and Vafeiadis's pattern
/// of a violation of order. With peeks it may have three (a block's own first return may precede its last call).
pub fn queue(operations: &[CollectionOperation]) -> Result<(), Rejection> {
    decide(operations, &MONITOR)
}

const MONITOR: Monitor<'static> = Monitor {
    kind: CollectionKind::Ordered,
    check: &|table, _| check(table),
    deadlines: &|table, _| deadlines(table),
};

/// A linearization of a history that [`queue`] accepts. O(n log n).
pub fn queue_order(
    operations: &[CollectionOperation],
) -> Result<Vec<LinearizedOperation>, Rejection> {
    linearize(operations, &MONITOR, &place_all)
}

/// The order that the proof above constructs: the values in a topological order, by segment; additions and operations at the
/// front each at the greatest call of their kind so far.
///
/// After the first value without removal there is none whose operations at the front have a return (it would come before).
/// Assumed removals of later values are left out: a pending removal need not take effect.
fn place_all(table: &ValueTable, by_value: &OperationsByValue) -> Vec<Placement> {
    let mut order = OrderOfValues::new(table);
    order.removed = Some(Vec::new());
    let is_accepted = order.remove_all();
    assert!(is_accepted, "the table was accepted");
    let mut values = order.removed.take().unwrap_or_default();
    let instants = empty_instants(table);
    let mut cuts: Vec<u32> = instants.clone();
    cuts.sort_unstable();
    cuts.dedup();
    let segment = |value: u32| {
        let end = table.spans[value as usize].end;
        cuts.partition_point(|&cut| cut < end) as u32
    };
    // No edge leads to an earlier segment, so a stable sort keeps the topological order.
    values.sort_by_key(|&value| segment(value));
    let mut peeks = PeeksByValue::new(table);
    peeks.sort_each_by_key(|peek| table.peeks[peek as usize].call);
    let mut placements = Vec::with_capacity(2 * values.len() + table.peeks.len());
    let (mut added, mut fronted, mut has_front) = (0, 0, true);
    for (rank, &value) in (0..).zip(&values) {
        let span = &table.spans[value as usize];
        let segment = segment(value);
        let begin = segment.checked_sub(1).map_or(0, |cut| cuts[cut as usize]);
        added = begin.max(added).max(span.add_call);
        fronted = begin.max(fronted);
        let addition = by_value.additions[value as usize];
        placements.push(placement(segment, added, rank, (0, addition)));
        debug_assert!(
            has_front || peeks.of(value).is_empty(),
            "its peeks come before"
        );
        for &peek in peeks.of(value) {
            let peek = &table.peeks[peek as usize];
            fronted = fronted.max(peek.call);
            placements.push(placement(segment, fronted, rank, (1, peek.operation)));
        }
        has_front &= span.is_removed();
        if has_front {
            fronted = fronted.max(span.end);
            let removal = by_value.removals[value as usize];
            placements.push(placement(segment, fronted, rank, (2, removal)));
        }
    }
    for (empty, &instant) in table.empties.iter().zip(&instants) {
        // After all of the segment that ends at its instant.
        let segment = cuts.partition_point(|&cut| cut < instant) as u32;
        placements.push(placement(segment, NEVER, NEVER, (3, empty.operation)));
    }
    placements
}

/// An operation of a queue: at one instant, additions first, then those at the front in the order of values.
fn placement(segment: u32, time: u32, rank: u32, (step, operation): (u8, u32)) -> Placement {
    let class = if step == 0 {
        PlacementClass::First
    } else {
        PlacementClass::Middle
    };
    Placement {
        segment,
        time,
        class,
        rank,
        step,
        operation,
    }
}

pub(super) fn check(table: &ValueTable) -> Result<(), Conflict> {
    if let Some(empty) = covered_empty(table) {
        return Err(Conflict {
            values: cover_of_empty(table, &empty),
            operations: vec![empty.operation],
        });
    }
    let mut order = OrderOfValues::new(table);
    if order.remove_all() {
        Ok(())
    } else {
        Err(Conflict {
            values: order.cycle(),
            operations: Vec::new(),
        })
    }
}

/// Deadlines of values without known removal, in a table without cycle if each is taken as early as can be.
///
/// Exact if none of these values is peeked. Then no edge R begins at one of them (its `front_ret` is [`NEVER`]), and those
/// that end at one of them, `v`, are the only ones that depend on which removal takes it, by `end(v)`. A cycle through such
/// edges to two values can be cut short to one: of `p` R `v` and `x` R `w`, also `p` R `w` or `x` R `v`. So the deadline of
/// `v` is the least `front_ret(x)` of the `x` that `v` comes before by other edges. The first such edge is E; a later edge E
/// can be joined with it (of `v` E `y` R .. `z` E `x` also `v` E `x`, or there is a cycle); and of a chain of edges R from
/// `y` the least `front_ret` is that of `y` or of its direct successors. (Let `y` R `a` R `b`, without cycles of two: if
/// `front_ret(a) >= end(a)`, then `front_ret(y) < end(b)`, so `y` R `b`; else `front_ret(y) < end(a) <= front_ret(b)`.)
///
/// If some are peeked, edges begin at them as well, and which of two goes first may be a choice: the deadlines are only
/// necessary.
fn deadlines(table: &ValueTable) -> KnownDeadlines {
    let positions = table.positions as usize;
    let added = || table.spans.iter().filter(|span| span.is_added());
    // By position: the least `front_ret` of values that end there or later.
    let mut fronts = vec![NEVER; positions + 1];
    for span in added().filter(|span| span.remove_ret != NEVER) {
        let front = &mut fronts[span.end as usize];
        *front = span.front_ret.min(*front);
    }
    suffix_minima(&mut fronts);
    // By position: the least of those, and their successors', that are added there or later.
    let mut reached = vec![NEVER; positions + 1];
    for span in added().filter(|span| span.front_ret != NEVER) {
        let reach = &mut reached[span.add_call as usize];
        let successors = fronts[span.front_ret as usize + 1];
        *reach = span.front_ret.min(successors).min(*reach);
    }
    suffix_minima(&mut reached);
    let mut deadlines = vec![NEVER; table.spans.len()];
    let mut is_peeked = false;
    for value in table.unremoved() {
        let span = &table.spans[value as usize];
        is_peeked |= span.front_ret != NEVER;
        if span.first_ret != NEVER {
            deadlines[value as usize] = reached[span.first_ret as usize + 1];
        }
    }
    if is_peeked {
        KnownDeadlines::Necessary {
            likely: Vec::new(),
            deadlines,
        }
    } else {
        KnownDeadlines::Exact(deadlines)
    }
}

fn suffix_minima(numbers: &mut [u32]) {
    let mut least = NEVER;
    for number in numbers.iter_mut().rev() {
        least = least.min(*number);
        *number = least;
    }
}

/// The topological sort of a queue's values: removes, again and again, a value without predecessor.
///
/// Both kinds of edges compare one number of each end, so "has no predecessor" means "not greater than the least number among
/// the others that remain". That least only grows as values are removed: a cursor over each of the four orders suffices, and
/// each passes each value once. O(n); 16 bytes for each value.
struct OrderOfValues<'a> {
    spans: &'a [ValueSpan],
    /// Whether a value has no predecessor by addition ([`NO_ADDITION_BEFORE`]), by front ([`NO_FRONT_BEFORE`]); both: removed.
    found: Vec<u8>,
    by_add_call: ValueCursor,
    by_first_ret: ValueCursor,
    by_end: ValueCursor,
    by_front_ret: ValueCursor,
    /// Where in the order of `by_front_ret` the second remaining value is.
    second_front: usize,
    /// The values in the order in which they are removed, if it is wanted.
    removed: Option<Vec<u32>>,
}

const NO_ADDITION_BEFORE: u8 = 1;
const NO_FRONT_BEFORE: u8 = 2;
const REMOVED: u8 = NO_ADDITION_BEFORE | NO_FRONT_BEFORE;

/// Values in ascending order of one number, and how many were passed.
struct ValueCursor {
    values: Vec<u32>,
    at: usize,
}

impl ValueCursor {
    /// Counting sort: numbers are positions, or [`NEVER`].
    fn new(spans: &[ValueSpan], positions: u32, number: impl Fn(&ValueSpan) -> u32) -> ValueCursor {
        let slot = |span: &ValueSpan| number(span).min(positions) as usize;
        let added = || spans.iter().enumerate().filter(|(_, span)| span.is_added());
        let mut starts = vec![0u32; positions as usize + 2];
        for (_, span) in added() {
            starts[slot(span) + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut values = vec![0; sum as usize];
        for (value, span) in added() {
            let start = &mut starts[slot(span)];
            values[*start as usize] = value as u32;
            *start += 1;
        }
        debug_assert!(
            values.is_sorted_by_key(|&value| number(&spans[value as usize])),
            "the sort is by this number"
        );
        ValueCursor { values, at: 0 }
    }

    /// The next value that was not removed.
    fn next_remaining(&mut self, found: &[u8]) -> Option<u32> {
        while let Some(&value) = self.values.get(self.at) {
            if found[value as usize] != REMOVED {
                return Some(value);
            }
            self.at += 1;
        }
        None
    }
}

impl<'a> OrderOfValues<'a> {
    fn new(table: &'a ValueTable) -> OrderOfValues<'a> {
        let (spans, positions) = (&table.spans, table.positions);
        OrderOfValues {
            spans,
            found: vec![0; spans.len()],
            by_add_call: ValueCursor::new(spans, positions, |span| span.add_call),
            by_first_ret: ValueCursor::new(spans, positions, |span| span.first_ret),
            by_end: ValueCursor::new(spans, positions, |span| span.end),
            by_front_ret: ValueCursor::new(spans, positions, |span| span.front_ret),
            second_front: 0,
            removed: None,
        }
    }

    /// A value has no predecessor of one kind any more.
    fn mark(&mut self, value: u32, found: u8) {
        let before = self.found[value as usize];
        self.found[value as usize] = before | found;
        if before | found == REMOVED
            && before != REMOVED
            && let Some(removed) = &mut self.removed
        {
            removed.push(value);
        }
    }

    /// Removes values while there is one without predecessor; true if none remains.
    fn remove_all(&mut self) -> bool {
        loop {
            let Some(first_added) = self.by_first_ret.next_remaining(&self.found) else {
                return true;
            };
            let first_ret = self.spans[first_added as usize].first_ret;
            let mut has_moved = false;
            while let Some(&value) = self.by_add_call.values.get(self.by_add_call.at)
                && self.spans[value as usize].add_call <= first_ret
            {
                self.mark(value, NO_ADDITION_BEFORE);
                self.by_add_call.at += 1;
                has_moved = true;
            }
            has_moved |= self.find_fronts();
            if !has_moved {
                return false;
            }
        }
    }

    /// Marks the values that no remaining value precedes at the front; true if there is a new one.
    fn find_fronts(&mut self) -> bool {
        let Some(front) = self.by_front_ret.next_remaining(&self.found) else {
            return false;
        };
        let front_ret = self.spans[front as usize].front_ret;
        let mut has_moved = false;
        while let Some(&value) = self.by_end.values.get(self.by_end.at)
            && self.spans[value as usize].end <= front_ret
        {
            self.mark(value, NO_FRONT_BEFORE);
            self.by_end.at += 1;
            has_moved = true;
        }
        // A peeked value may itself have the least return, and end later: it is compared with the others only.
        let is_new = self.found[front as usize] & NO_FRONT_BEFORE == 0;
        if is_new && self.spans[front as usize].end <= self.second_front_ret() {
            self.mark(front, NO_FRONT_BEFORE);
            has_moved = true;
        }
        has_moved
    }

    fn second_front(&mut self) -> Option<u32> {
        self.second_front = self.second_front.max(self.by_front_ret.at + 1);
        let values = &self.by_front_ret.values;
        while let Some(&value) = values.get(self.second_front) {
            if self.found[value as usize] != REMOVED {
                return Some(value);
            }
            self.second_front += 1;
        }
        None
    }

    fn second_front_ret(&mut self) -> u32 {
        let second = self.second_front();
        second.map_or(NEVER, |value| self.spans[value as usize].front_ret)
    }

    /// A cycle of at most three values, when each that remains has a predecessor: it can be chosen from the one that is
    /// added first and the first two at the front.
    fn cycle(&mut self) -> Vec<u32> {
        let added = self.by_first_ret.next_remaining(&self.found);
        let added = added.expect("values remain");
        let front = self.by_front_ret.next_remaining(&self.found);
        let front = front.expect("values remain");
        let second = self.second_front();
        let spans = self.spans;
        let predecessor = |value: u32| {
            let span = &spans[value as usize];
            if spans[added as usize].first_ret < span.add_call {
                added
            } else if value != front {
                front
            } else {
                second.expect("a value does not precede itself")
            }
        };
        let mut walk = vec![added];
        loop {
            let next = predecessor(walk[walk.len() - 1]);
            if let Some(start) = walk.iter().position(|&value| value == next) {
                walk.drain(..start);
                assert!(
                    (2..=3).contains(&walk.len()),
                    "a cycle of {} values",
                    walk.len()
                );
                return walk;
            }
            walk.push(next);
        }
    }
}
