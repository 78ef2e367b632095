//! The least part of a table that a monitor still rejects.

use super::peeks_by_value::PeeksByValue;
use super::sub_history::Conflict;
use super::value_table::ValueTable;
use std::ops::Range;

/// Values and observations that tests may look at for each that there is, beyond [`WORK_MIN`].
const WORK_PER_PART: usize = 4;
const WORK_MIN: usize = 1 << 18;

/// A part of a table that may be left out.
#[derive(Clone, Copy)]
enum ConflictPart {
    /// A value, with its peeks.
    Value(u32),
    /// The number of an observation of an empty collection.
    Empty(u32),
}

/// A conflict among these values, their peeks, and these observations of an empty collection, by number. They are rejected
/// together, with all pending removals of the table; none of the values can be left out, nor any of the others, unless the
/// work is at its bound. `is_rejected` gets parts of the table, and the numbers of their values in it; it must be monotone:
/// what is rejected stays so with further values, peeks and observations.
///
/// QuickXplain's idea (Junker, AAAI 2004) with a linear chain: the shortest prefix of the parts that is rejected ends with a
/// necessary one; put it first and repeat with what is before it. The parts are ordered by distance from a position, and
/// prefixes double, so a conflict of parts that are near each other costs little, whatever their number. O(k log n) tests for
/// k necessary parts, each of the size of its prefix.
pub(super) fn minimal_conflict(
    table: &ValueTable,
    values: &[u32],
    empties: Range<u32>,
    near: u32,
    is_rejected: &dyn Fn(ValueTable, &[u32]) -> bool,
) -> Conflict {
    let by_value = PeeksByValue::new(table);
    let is_rejected = |values: &[u32], peeks: &[u32], empties: &[u32]| {
        let part = table.project(values, peeks, empties);
        let size = values.len() + peeks.len() + empties.len() + part.unknown_removals.len();
        (is_rejected(part, values), size)
    };
    let split = |parts: &[ConflictPart]| {
        let (mut values, mut peeks, mut empties) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match *part {
                ConflictPart::Value(value) => {
                    values.push(value);
                    peeks.extend(by_value.of(value));
                }
                ConflictPart::Empty(empty) => empties.push(empty),
            }
        }
        (values, peeks, empties)
    };
    let values = values.iter().map(|&value| ConflictPart::Value(value));
    let mut parts: Vec<ConflictPart> = values.chain(empties.map(ConflictPart::Empty)).collect();
    parts.sort_by_cached_key(|part| match *part {
        ConflictPart::Value(value) => table.spans[value as usize].first_ret.abs_diff(near),
        ConflictPart::Empty(empty) => table.empties[empty as usize].ret.abs_diff(near),
    });
    let work = WORK_MIN + WORK_PER_PART * (parts.len() + table.peeks.len());
    let parts = minimal(parts, work, &|chosen| {
        let (values, peeks, empties) = split(chosen);
        is_rejected(&values, &peeks, &empties)
    });
    let (values, peeks, empties) = split(&parts);
    let peeks = minimal(peeks, work, &|chosen| {
        is_rejected(&values, chosen, &empties)
    });
    let peek = |&peek: &u32| table.peeks[peek as usize].operation;
    let empty = |&empty: &u32| table.empties[empty as usize].operation;
    Conflict {
        operations: peeks
            .iter()
            .map(peek)
            .chain(empties.iter().map(empty))
            .collect(),
        values,
    }
}

/// A least part of `all` that is rejected; all are. The test also returns its work.
pub fn minimal<T: Copy>(
    all: Vec<T>,
    work_max: usize,
    test: &dyn Fn(&[T]) -> (bool, usize),
) -> Vec<T> {
    let mut work = 0;
    let mut is_rejected = |needed: &[T], rest: &[T]| {
        let (is_rejected, size) = test(&[needed, rest].concat());
        work += size;
        // At the bound nothing is left out any more: a larger part is rejected as well.
        (is_rejected, work > work_max)
    };
    let (mut needed, mut rest) = (Vec::new(), all);
    while !rest.is_empty() && !is_rejected(&needed, &[]).0 {
        // What is needed is accepted with `low` of the others, and rejected with `high`.
        let (mut low, mut high) = (0, rest.len());
        let mut step = 1;
        while high - low > 1 {
            let middle = (low + step).min(low.midpoint(high));
            let (rejected, is_exhausted) = is_rejected(&needed, &rest[..middle]);
            if rejected {
                high = middle;
                step = usize::MAX / 2;
            } else {
                low = middle;
                step = step.saturating_mul(2).min(usize::MAX / 2);
            }
            if is_exhausted {
                rest.truncate(high);
                needed.extend(rest);
                return needed;
            }
        }
        needed.push(rest[high - 1]);
        rest.truncate(high - 1);
    }
    needed
}
