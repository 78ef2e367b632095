//! Operations of a collection by value: intervals instead of operations.

use super::sub_history::{Conflict, sub_history};
use super::{CollectionAction, CollectionOperation, NEVER, Rejection};
use std::borrow::Cow;

/// All that the operations of one value say about when it was in the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueSpan {
    /// Call of its addition; [`NEVER`] if it was not added.
    pub(super) add_call: u32,
    /// Least return of all its operations. The addition takes effect by then: the others need the value.
    pub(super) first_ret: u32,
    /// Least return of its removal and peeks.
    pub(super) front_ret: u32,
    /// Greatest call of all its operations.
    pub(super) last_call: u32,
    /// The removal takes effect no earlier: `last_call`, since the other operations need the value; [`NEVER`] while it has
    /// none.
    pub(super) end: u32,
    /// Return of its removal.
    pub(super) remove_ret: u32,
}

/// A completed observation: a peek, whose interval is cut to the instants when the value can be there, or one of absence or of
/// an empty collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservationSpan {
    /// Its number in the history.
    pub(super) operation: u32,
    pub(super) value: u32,
    pub(super) call: u32,
    pub(super) ret: u32,
}

/// The operations of a history by value: 24 bytes for each value, 16 for each peek and each observation of absence.
///
/// Positions are below [`ValueTable::positions`], which is O(operations): where a history's positions are sparse (one key of
/// many), they are replaced by their ranks. So all tables by position are O(n), and nothing needs to be sorted.
pub(super) struct ValueTable {
    /// By value.
    pub(super) spans: Vec<ValueSpan>,
    pub(super) peeks: Vec<ObservationSpan>,
    /// Observations of an empty collection.
    pub(super) empties: Vec<ObservationSpan>,
    /// Observations of absent values.
    pub(super) absences: Vec<ObservationSpan>,
    /// Calls of removals of unknown result, ascending.
    pub(super) unknown_removals: Vec<u32>,
    /// All calls and returns are less, except [`NEVER`].
    pub(super) positions: u32,
}

/// Which operations a collection has besides those of all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CollectionKind {
    /// `Contains` and `Absent`; a `RemoveUnknown` has a value.
    Set,
    /// No `Absent`. `Contains` is a peek.
    Multiset,
    /// Neither.
    Ordered,
}

/// Positions per operation above which they are replaced by ranks.
const POSITIONS_PER_OPERATION: usize = 4;

const UNSEEN: ValueSpan = ValueSpan {
    add_call: NEVER,
    first_ret: NEVER,
    front_ret: NEVER,
    last_call: 0,
    end: NEVER,
    remove_ret: NEVER,
};

impl ValueSpan {
    pub(super) fn is_added(&self) -> bool {
        self.add_call != NEVER
    }

    fn positions(&mut self) -> [&mut u32; 6] {
        [
            &mut self.add_call,
            &mut self.first_ret,
            &mut self.front_ret,
            &mut self.last_call,
            &mut self.end,
            &mut self.remove_ret,
        ]
    }

    /// Has it a removal, known or assumed?
    pub(super) fn is_removed(&self) -> bool {
        self.end != NEVER
    }
}

impl ValueTable {
    /// The table of a history; an error if one value alone shows that it is not linearizable.
    pub(super) fn new(
        operations: &[CollectionOperation],
        kind: CollectionKind,
    ) -> Result<ValueTable, Rejection> {
        let (ranked, positions) = with_dense_positions(operations);
        let mut table = ValueTable {
            spans: Vec::new(),
            peeks: Vec::new(),
            empties: Vec::new(),
            absences: Vec::new(),
            unknown_removals: Vec::new(),
            positions,
        };
        let mut removed_twice = None;
        for (number, operation) in ranked.iter().enumerate() {
            let was_removed_twice = table.add_operation(number as u32, operation, kind)?;
            if was_removed_twice {
                removed_twice.get_or_insert(operation.value);
            }
        }
        table.unknown_removals.sort_unstable();
        let conflict = table.close().or(removed_twice.map(Conflict::of_value));
        match conflict {
            Some(conflict) => Err(sub_history(operations, &conflict, 0)),
            None => Ok(table),
        }
    }

    /// Takes the next operation; true if it is the second removal of its value.
    fn add_operation(
        &mut self,
        number: u32,
        operation: &CollectionOperation,
        kind: CollectionKind,
    ) -> Result<bool, Rejection> {
        let &CollectionOperation {
            action,
            value,
            call,
            ret,
        } = operation;
        debug_assert!(
            call <= ret && call != NEVER,
            "an operation returns after its call"
        );
        let is_set = kind == CollectionKind::Set;
        match action {
            CollectionAction::Contains if kind == CollectionKind::Ordered => {
                return Err(Rejection::NotApplicable(
                    "`contains` of an ordered collection",
                ));
            }
            CollectionAction::Absent if !is_set => {
                return Err(Rejection::NotApplicable(
                    "`absent` of a collection that is no set",
                ));
            }
            // Pending reads say nothing.
            CollectionAction::Peek
            | CollectionAction::Contains
            | CollectionAction::Absent
            | CollectionAction::Empty
                if ret == NEVER =>
            {
                return Ok(false);
            }
            CollectionAction::RemoveUnknown if !is_set => {
                self.unknown_removals.push(call);
                return Ok(false);
            }
            CollectionAction::Empty | CollectionAction::Absent => {
                let absences = if action == CollectionAction::Empty {
                    &mut self.empties
                } else {
                    &mut self.absences
                };
                absences.push(ObservationSpan {
                    operation: number,
                    value,
                    call,
                    ret,
                });
                return Ok(false);
            }
            _ => {}
        }
        self.add_to_span(number, operation, is_set)
    }

    /// Takes an operation that has a value.
    fn add_to_span(
        &mut self,
        number: u32,
        operation: &CollectionOperation,
        is_set: bool,
    ) -> Result<bool, Rejection> {
        let &CollectionOperation {
            action,
            value,
            call,
            ret,
        } = operation;
        if self.spans.len() <= value as usize {
            self.spans.resize(value as usize + 1, UNSEEN);
        }
        let span = &mut self.spans[value as usize];
        match action {
            CollectionAction::Add => {
                if span.is_added() {
                    return Err(Rejection::NotApplicable("a value is added more than once"));
                }
                span.add_call = call;
            }
            // Of several pending removals of a set's value only one can take effect, if no other removal did; the earliest call
            // allows the most, and to take effect allows more than not to.
            CollectionAction::RemoveUnknown | CollectionAction::Remove if ret == NEVER => {
                if !is_set {
                    return Err(Rejection::NotApplicable("a pending removal has a value"));
                }
                if span.remove_ret == NEVER {
                    span.end = span.end.min(call);
                }
                return Ok(false);
            }
            CollectionAction::Remove => {
                let is_second = span.remove_ret != NEVER;
                (span.end, span.remove_ret) = (call, ret);
                if is_second {
                    return Ok(true);
                }
                span.front_ret = span.front_ret.min(ret);
            }
            _ => {
                span.front_ret = span.front_ret.min(ret);
                // A set's observations of a value are alike: only their extremes count.
                if !is_set {
                    self.peeks.push(ObservationSpan {
                        operation: number,
                        value,
                        call,
                        ret,
                    });
                }
            }
        }
        span.first_ret = span.first_ret.min(ret);
        span.last_call = span.last_call.max(call);
        Ok(false)
    }

    /// Completes the spans when all operations are in; a conflict if the operations of one value contradict each other.
    fn close(&mut self) -> Option<Conflict> {
        let mut conflict = None;
        for (value, span) in self.spans.iter_mut().enumerate() {
            let is_observed = span.front_ret != NEVER || span.is_removed();
            if !is_observed && span.first_ret == NEVER {
                // A pending addition that nothing observes: it can only add constraints.
                *span = UNSEEN;
                continue;
            }
            // Observed but not added, observed before it was added, or observed after it was removed.
            let is_known_removed = span.remove_ret != NEVER;
            if span.add_call > span.first_ret
                || (!span.is_added() && is_observed && span.first_ret != NEVER)
                || (is_known_removed && span.remove_ret < span.last_call)
            {
                conflict.get_or_insert(Conflict::of_value(value as u32));
            }
            if span.is_removed() {
                span.end = span.end.max(span.last_call);
            }
        }
        if conflict.is_none() {
            let spans = &self.spans;
            for peek in &mut self.peeks {
                let span = &spans[peek.value as usize];
                peek.call = peek.call.max(span.add_call);
                peek.ret = peek.ret.min(span.remove_ret);
                assert!(peek.call <= peek.ret, "a conflict of one value was found");
            }
        }
        conflict
    }

    /// Values that were added and have no known removal.
    pub(super) fn unremoved(&self) -> impl Iterator<Item = u32> {
        let spans = self.spans.iter().enumerate();
        spans
            .filter(|(_, span)| span.is_added() && span.remove_ret == NEVER)
            .map(|(value, _)| value as u32)
    }

    /// Assumes that a removal with this call took `value`, or that none did.
    pub(super) fn assume_removal(&mut self, value: u32, call: Option<u32>) {
        let span = &mut self.spans[value as usize];
        assert!(
            span.remove_ret == NEVER,
            "the removal of the value is known"
        );
        span.end = call.map_or(NEVER, |call| call.max(span.last_call));
    }
}

impl ValueTable {
    /// The table of these values, peeks and observations of an empty collection only, renumbered in this order, with as
    /// many pending removals. O(k log k).
    pub(super) fn project(&self, values: &[u32], peeks: &[u32], empties: &[u32]) -> ValueTable {
        let spans = values.iter().map(|&value| self.spans[value as usize]);
        let spans: Vec<ValueSpan> = spans.collect();
        let mut numbers: Vec<(u32, u32)> =
            (0u32..).zip(values).map(|(new, &old)| (old, new)).collect();
        numbers.sort_unstable();
        let peeks = peeks.iter().map(|&peek| {
            let peek = self.peeks[peek as usize];
            let number = numbers.binary_search_by_key(&peek.value, |&(old, _)| old);
            let number = number.expect("a peek of one of the values");
            ObservationSpan {
                value: numbers[number].1,
                ..peek
            }
        });
        let peeks: Vec<ObservationSpan> = peeks.collect();
        let empties = empties.iter().map(|&empty| self.empties[empty as usize]);
        let removals = self.unknown_removals.len().min(values.len());
        let mut table = ValueTable {
            spans,
            peeks,
            empties: empties.collect(),
            absences: Vec::new(),
            // A part with fewer values needs no more: the earliest allow the most.
            unknown_removals: self.unknown_removals[..removals].to_vec(),
            positions: 0,
        };
        let mut distinct: Vec<u32> = Vec::new();
        table.for_each_position(|position| distinct.push(*position));
        distinct.sort_unstable();
        distinct.dedup();
        table.for_each_position(|position| {
            *position = distinct.partition_point(|&other| other < *position) as u32;
        });
        table.positions = distinct.len() as u32;
        table
    }

    /// Visits all positions but [`NEVER`].
    fn for_each_position(&mut self, mut each: impl FnMut(&mut u32)) {
        let spans = self.spans.iter_mut().flat_map(ValueSpan::positions);
        let peeks = self.peeks.iter_mut();
        let peeks = peeks.flat_map(|peek| [&mut peek.call, &mut peek.ret]);
        let empties = self.empties.iter_mut();
        let empties = empties.flat_map(|empty| [&mut empty.call, &mut empty.ret]);
        let others = peeks.chain(empties).chain(&mut self.unknown_removals);
        for position in spans.chain(others) {
            if *position != NEVER {
                each(position);
            }
        }
    }
}

/// The operations with positions that are O(operations), and the number of positions. Ranks keep the order, and what is equal.
fn with_dense_positions(
    operations: &[CollectionOperation],
) -> (Cow<'_, [CollectionOperation]>, u32) {
    let all = || {
        let positions = operations.iter().flat_map(|one| [one.call, one.ret]);
        positions.filter(|&position| position != NEVER)
    };
    let positions = all().max().map_or(0, |most| most as usize + 1);
    if positions <= POSITIONS_PER_OPERATION * operations.len() + 64 {
        return (Cow::Borrowed(operations), positions as u32);
    }
    let mut distinct: Vec<u32> = all().collect();
    distinct.sort_unstable();
    distinct.dedup();
    let rank = |position: u32| {
        if position == NEVER {
            NEVER
        } else {
            distinct.partition_point(|&other| other < position) as u32
        }
    };
    let ranked = operations.iter().map(|operation| CollectionOperation {
        call: rank(operation.call),
        ret: rank(operation.ret),
        ..*operation
    });
    (ranked.collect(), distinct.len() as u32)
}
