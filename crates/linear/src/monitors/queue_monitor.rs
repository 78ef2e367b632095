//! The monitor of first-in-first-out queues.

use super::coverage::{cover_of_empty, covered_empty};
use super::sub_history::Conflict;
use super::unknown_removals::decide;
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
    decide(operations, CollectionKind::Ordered, &|table, _| {
        check(table)
    })
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
                self.found[value as usize] |= NO_ADDITION_BEFORE;
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
            self.found[value as usize] |= NO_FRONT_BEFORE;
            self.by_end.at += 1;
            has_moved = true;
        }
        // A peeked value may itself have the least return, and end later: it is compared with the others only.
        let is_new = self.found[front as usize] & NO_FRONT_BEFORE == 0;
        if is_new && self.spans[front as usize].end <= self.second_front_ret() {
            self.found[front as usize] |= NO_FRONT_BEFORE;
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
