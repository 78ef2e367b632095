//! Linearizations in which the values are nested: those of stacks and priority queues.

use super::linearization::{OperationsByValue, Placement, PlacementClass, empty_instants};
use super::value_table::ValueTable;
use super::{NEVER, peeks_by_value::PeeksByValue};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// The instants at which operations could take effect if there were no values of lower levels.
pub(super) struct ChosenInstants {
    /// By value.
    pub(super) additions: Vec<u32>,
    /// By peek of the table.
    pub(super) peeks: Vec<u32>,
    /// By value; [`NEVER`] if it is not removed, or at any time from the end of its critical interval.
    pub(super) removals: Vec<u32>,
}

impl ChosenInstants {
    pub(super) fn new(table: &ValueTable) -> ChosenInstants {
        ChosenInstants {
            additions: vec![NEVER; table.spans.len()],
            peeks: vec![NEVER; table.peeks.len()],
            removals: vec![NEVER; table.spans.len()],
        }
    }
}

/// The linearization that the induction of `stack_monitor.rs` and `priority_queue_monitor.rs` ends with. Values have levels,
/// lowest first: of a stack in the order in which they are released, of a priority queue by ascending priority. `chosen` has
/// instants that no value of a higher level covers, of all operations (a stack: `are_additions_bound`) or of removals and
/// peeks.
///
/// A value must be gone at each instant that a value of a lower level chose (or an observation of an empty collection), since
/// there that one must be found on top. It does not cover these instants: each is no later than its first return, or not
/// before its end. So let its operations take effect between the last such instant before its end, `begin`, and the first one
/// from its end on, `until`: no call is after its end, and no return before `begin`, so its chosen instants can be cut to
/// these. At one instant, first the values leave that end there, by descending level, each after its peeks; then comes the
/// value that chose the instant; then the values enter that begin there, by ascending level, each before its peeks. Thus an
/// operation that was moved to `begin` or `until` finds no value of a higher level either, since those are gone at the same
/// instants; and one at its own instant finds none, since the higher values are gone there.
///
/// O(n log n): two searches in the set of chosen instants for each value.
pub(super) fn nested_order<'a>(
    table: &ValueTable,
    by_value: &OperationsByValue,
    chosen: &ChosenInstants,
    levels: impl Iterator<Item = &'a [u32]>,
    are_additions_bound: bool,
) -> Vec<Placement> {
    let mut placements = Vec::new();
    let mut instants: BTreeSet<u32> = BTreeSet::new();
    for (empty, instant) in table.empties.iter().zip(empty_instants(table)) {
        instants.insert(instant);
        placements.push(Placement {
            segment: 0,
            time: instant,
            class: PlacementClass::Middle,
            rank: NEVER,
            step: 0,
            operation: empty.operation,
        });
    }
    let peeks = PeeksByValue::new(table);
    for (level, values) in (0u32..).zip(levels) {
        for &value in values {
            let mut gap = Gap::new(table, value, &instants, level);
            gap.place_all(table, by_value, chosen, peeks.of(value), &mut placements);
        }
        for &value in values {
            if are_additions_bound {
                instants.insert(chosen.additions[value as usize]);
            }
            instants.extend(
                peeks
                    .of(value)
                    .iter()
                    .map(|&peek| chosen.peeks[peek as usize]),
            );
            instants.extend(Some(chosen.removals[value as usize]).filter(|&it| it != NEVER));
        }
    }
    placements
}

/// Where a value must be, between two instants at which lower values are on top.
struct Gap {
    value: u32,
    level: u32,
    begin: Option<u32>,
    until: Option<u32>,
}

impl Gap {
    fn new(table: &ValueTable, value: u32, instants: &BTreeSet<u32>, level: u32) -> Gap {
        let end = table.spans[value as usize].end;
        let before = instants.range((Unbounded, Excluded(end)));
        let after = instants.range((Included(end), Unbounded));
        let gap = Gap {
            value,
            level,
            begin: before.last().copied(),
            until: after.min().copied(),
        };
        debug_assert!(
            gap.begin <= Some(table.spans[value as usize].first_ret),
            "a chosen instant is covered by a higher value"
        );
        gap
    }

    fn place_all(
        &mut self,
        table: &ValueTable,
        by_value: &OperationsByValue,
        chosen: &ChosenInstants,
        peeks: &[u32],
        placements: &mut Vec<Placement>,
    ) {
        let value = self.value as usize;
        let span = &table.spans[value];
        placements.push(self.placement(chosen.additions[value], 0, by_value.additions[value]));
        for &peek in peeks {
            let operation = table.peeks[peek as usize].operation;
            placements.push(self.placement(chosen.peeks[peek as usize], 1, operation));
        }
        // A pending removal takes place where its value must be gone, or never.
        let removal = match chosen.removals[value] {
            NEVER if span.is_removed() => self.until,
            NEVER => None,
            instant => Some(instant),
        };
        if let Some(instant) = removal {
            placements.push(self.placement(instant, 2, by_value.removals[value]));
        }
    }

    /// An operation of the value at this instant, cut to the gap.
    fn placement(&self, instant: u32, step: u8, operation: u32) -> Placement {
        let time = instant.max(self.begin.unwrap_or(0));
        let time = time.min(self.until.unwrap_or(NEVER));
        let (class, rank) = if Some(time) == self.until {
            (PlacementClass::First, !self.level)
        } else if Some(time) == self.begin {
            (PlacementClass::Last, self.level)
        } else {
            (PlacementClass::Middle, self.level)
        };
        Placement {
            segment: 0,
            time,
            class,
            rank,
            step,
            operation,
        }
    }
}
