//! The least part of a table that a monitor still rejects.

use super::peeks_by_value::PeeksByValue;
use super::sub_history::Conflict;
use super::value_table::ValueTable;

/// Values and observations that tests may look at for each that there is, beyond [`WORK_MIN`].
const WORK_PER_VALUE: usize = 4;
const WORK_MIN: usize = 1 << 18;

/// A conflict among these values, peeks and observations of an empty collection, which are rejected with all pending removals
/// of the table: none of the values can be left out, nor any of the others, unless the work is at its bound. `is_rejected`
/// gets parts of the table, and the numbers of their values in it; it must be monotone: what is rejected stays so with
/// further values, peeks and observations.
///
/// QuickXplain's idea (Junker, AAAI 2004) with a linear chain: the shortest prefix of the values that is rejected ends with a
/// necessary one; put it first and repeat with what is before it. The values are ordered by distance from one, and prefixes
/// double, so a conflict of values that are near each other costs little, whatever the number of values. O(k log n) tests for
/// k necessary values, each of the size of its prefix.
pub(super) fn minimal_conflict(
    table: &ValueTable,
    mut values: Vec<u32>,
    is_rejected: &dyn Fn(ValueTable, &[u32]) -> bool,
) -> Conflict {
    let span = |value: u32| &table.spans[value as usize];
    let length = |value: u32| span(value).end.saturating_sub(span(value).first_ret);
    // A value that is there for long is in few conflicts with others nearby: begin with a short one.
    let seed = values.iter().copied().min_by_key(|&value| length(value));
    let seed = seed.expect("no values are not rejected");
    values.sort_by_key(|&value| span(value).first_ret.abs_diff(span(seed).first_ret));

    let by_value = PeeksByValue::new(table);
    let peeks_of = |values: &[u32]| -> Vec<u32> {
        let peeks = values.iter().flat_map(|&value| by_value.of(value));
        peeks.copied().collect()
    };
    let empties: Vec<u32> = (0..table.empties.len() as u32).collect();
    let size = values.len() + peeks_of(&values).len() + empties.len();
    let work = WORK_MIN + WORK_PER_VALUE * size;
    let values = minimal(values, work, &|chosen| {
        let peeks = peeks_of(chosen);
        let size = chosen.len() + peeks.len() + empties.len();
        (
            is_rejected(table.project(chosen, &peeks, &empties), chosen),
            size,
        )
    });
    let peeks = minimal(peeks_of(&values), work, &|chosen| {
        let size = values.len() + chosen.len() + empties.len();
        (
            is_rejected(table.project(&values, chosen, &empties), &values),
            size,
        )
    });
    let empties = minimal(empties, work, &|chosen| {
        let size = values.len() + peeks.len() + chosen.len();
        (
            is_rejected(table.project(&values, &peeks, chosen), &values),
            size,
        )
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
fn minimal(all: Vec<u32>, work_max: usize, test: &dyn Fn(&[u32]) -> (bool, usize)) -> Vec<u32> {
    let mut work = 0;
    let mut is_rejected = |needed: &[u32], rest: &[u32]| {
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
