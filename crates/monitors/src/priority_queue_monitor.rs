//! The monitor of priority queues.

use super::coverage::{UncoveredInstants, cover_of, cover_of_empty, covered_empty};
use super::linearization::{LinearizedOperation, OperationsByValue, Placement, linearize};
use super::nested_order::{ChosenInstants, nested_order};
use super::peeks_by_value::PeeksByValue;
use super::removal_deadlines::{KnownDeadlines, Requirement, deadlines_of};
use super::sub_history::Conflict;
use super::unknown_removals::{Monitor, decide};
use super::value_table::{CollectionKind, ValueTable};
use super::{CollectionOperation, NEVER, Rejection};

/// Is this history of a priority queue, empty at first, linearizable? Removals and peeks find a value of the greatest priority;
/// `priorities` has that of each value, equal ones allowed. Exact if each value is added at most once; for pending
/// removals see [`super::Rejection`]. O(n log n).
///
/// Condition: each removal and peek of `v` has an instant that no value of greater priority covers (and an observation of an
/// empty queue one that no value covers). It is necessary, since a covered instant finds the covering value in the queue.
///
/// It is sufficient, by induction over priorities. Lemma: a linearizable history has, for any set of uncovered instants, a
/// linearization with the queue empty at each of them. For one instant `t` and a value that is in the queue at `t`: its first
/// return is not before `t`, and all its operations from before `t` can be moved to `t`; or its last call is not after `t`,
/// and those from after `t` can. First the latter values leave, by descending priority, each after its peeks; then the former
/// enter, by ascending priority, each before its peeks. Elsewhere there are only fewer values in the queue. This keeps the
/// queue empty at other instants. Now let `v` be of the least priority. The others are linearizable by induction, and by the
/// lemma with the queue empty at the instants chosen for the removal and peeks of `v`, which are uncovered; so these, and its
/// addition at the first of them or before, can be inserted, and disturb none of the others. Values of equal priority do not
/// constrain each other.
pub fn priority_queue(
    operations: &[CollectionOperation],
    priorities: &[u32],
) -> Result<(), Rejection> {
    with_monitor(priorities, |monitor| decide(operations, monitor))
}

/// A linearization of a history that [`priority_queue`] accepts, constructed as in `nested_order.rs`. O(n log n).
pub fn priority_queue_order(
    operations: &[CollectionOperation],
    priorities: &[u32],
) -> Result<Vec<LinearizedOperation>, Rejection> {
    with_monitor(priorities, |monitor| {
        linearize(operations, monitor, &|table, by_value| {
            place_all(table, by_value, &|value| priorities[value as usize])
        })
    })
}

fn with_monitor<T>(priorities: &[u32], run: impl FnOnce(&Monitor<'_>) -> T) -> T {
    run(&Monitor {
        kind: CollectionKind::Ordered,
        check: &|table, values| check(table, &|value| priorities[original(value, values)]),
        deadlines: &|table, values| deadlines(table, &|value| priorities[original(value, values)]),
    })
}

/// Chooses an uncovered instant for each removal and peek, as [`check`] does, and nests the values by their priorities.
fn place_all(
    table: &ValueTable,
    by_value: &OperationsByValue,
    priority: &dyn Fn(u32) -> u32,
) -> Vec<Placement> {
    let by_priority = values_by_priority(table, priority);
    let peeks = PeeksByValue::new(table);
    let mut uncovered = UncoveredInstants::all(table.positions);
    let mut chosen = ChosenInstants::new(table);
    for equals in by_priority.chunk_by(|one, other| one >> 32 == other >> 32) {
        for value in equals.iter().map(|&key| key as u32) {
            let span = &table.spans[value as usize];
            // Anywhere before the value is seen: at its earliest.
            chosen.additions[value as usize] = span.add_call;
            for &peek in peeks.of(value) {
                let call = table.peeks[peek as usize].call;
                chosen.peeks[peek as usize] = uncovered.first_from(call);
            }
            // A pending removal has no return: see `nested_order`.
            if span.remove_ret != NEVER {
                chosen.removals[value as usize] = uncovered.first_from(span.end);
            }
        }
        for value in equals.iter().map(|&key| key as u32) {
            uncovered.cover(&table.spans[value as usize]);
        }
    }
    let levels = by_priority.chunk_by(|one, other| one >> 32 == other >> 32);
    let levels: Vec<Vec<u32>> = levels
        .rev()
        .map(|equals| equals.iter().map(|&key| key as u32).collect())
        .collect();
    let levels = levels.iter().map(Vec::as_slice);
    nested_order(table, by_value, &chosen, levels, false)
}

/// The number of a value in the history, if it was renumbered.
fn original(value: u32, values: Option<&[u32]>) -> usize {
    values.map_or(value, |values| values[value as usize]) as usize
}

/// A removal or peek of a value needs those of greater priority to be gone.
fn deadlines(table: &ValueTable, priority: &dyn Fn(u32) -> u32) -> KnownDeadlines {
    // 0 is less than all.
    let key = |value: u32| priority(value).saturating_add(1);
    let mut requirements = Vec::new();
    for (value, span) in table.spans.iter().enumerate() {
        if span.remove_ret != NEVER {
            requirements.push(Requirement {
                key: key(value as u32),
                call: span.end,
                ret: span.remove_ret,
            });
        }
    }
    requirements.extend(table.peeks.iter().map(|peek| Requirement {
        key: key(peek.value),
        call: peek.call,
        ret: peek.ret,
    }));
    let (deadlines, earlier) = deadlines_of(table, requirements, &key);
    KnownDeadlines::Necessary {
        deadlines,
        likely: vec![earlier],
    }
}

/// A removal or a peek.
#[derive(Clone, Copy)]
struct FrontSpan {
    value: u32,
    call: u32,
    ret: u32,
    /// Of a peek, its number.
    operation: Option<u32>,
}

fn check(table: &ValueTable, priority: &dyn Fn(u32) -> u32) -> Result<(), Conflict> {
    if let Some(empty) = covered_empty(table) {
        return Err(Conflict {
            values: cover_of_empty(table, &empty),
            operations: vec![empty.operation],
        });
    }
    let by_priority = values_by_priority(table, priority);
    let peeks = PeeksByValue::new(table);
    let mut uncovered = UncoveredInstants::all(table.positions);
    for equals in by_priority.chunk_by(|one, other| one >> 32 == other >> 32) {
        for value in equals.iter().map(|&key| key as u32) {
            let blocked = blocked_front(table, value, &peeks, &mut uncovered);
            if let Some(front) = blocked {
                return Err(conflict(table, front, priority));
            }
        }
        for value in equals.iter().map(|&key| key as u32) {
            uncovered.cover(&table.spans[value as usize]);
        }
    }
    Ok(())
}

/// The added values by descending priority: (inverse of the priority, value) in one word.
fn values_by_priority(table: &ValueTable, priority: &dyn Fn(u32) -> u32) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..table.spans.len() as u32)
        .filter(|&value| table.spans[value as usize].is_added())
        .map(|value| u64::from(u32::MAX - priority(value)) << 32 | u64::from(value))
        .collect();
    keys.sort_unstable();
    keys
}

/// The first removal or peek of `value` that has no uncovered instant.
fn blocked_front(
    table: &ValueTable,
    value: u32,
    peeks: &PeeksByValue,
    uncovered: &mut UncoveredInstants,
) -> Option<FrontSpan> {
    let span = &table.spans[value as usize];
    if span.is_removed() && !uncovered.has_between(span.end, span.remove_ret) {
        return Some(FrontSpan {
            value,
            call: span.end,
            ret: span.remove_ret,
            operation: None,
        });
    }
    let peeks = peeks.of(value).iter();
    let mut peeks = peeks.map(|&peek| &table.peeks[peek as usize]);
    let blocked = peeks.find(|peek| !uncovered.has_between(peek.call, peek.ret))?;
    Some(FrontSpan {
        value,
        call: blocked.call,
        ret: blocked.ret,
        operation: Some(blocked.operation),
    })
}

/// The value of a blocked removal or peek, with the fewest values of greater priority that cover it.
fn conflict(table: &ValueTable, front: FrontSpan, priority: &dyn Fn(u32) -> u32) -> Conflict {
    let least = priority(front.value);
    let spans = table.spans.iter().enumerate();
    let greater = spans
        .filter(|&(value, span)| span.is_added() && priority(value as u32) > least)
        .map(|(value, span)| (value as u32, *span));
    let cover = cover_of(greater, front.call, front.ret);
    let mut values = cover.expect("what has no uncovered instant is covered");
    assert!(
        !values.contains(&front.value),
        "a value does not cover itself"
    );
    values.push(front.value);
    Conflict {
        values,
        operations: front.operation.into_iter().collect(),
    }
}
