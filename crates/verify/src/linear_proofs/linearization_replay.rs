//! The replay of an order of linearization points.

use super::linear_model::{LinearModel, ObjectState, OperationEffect};
use super::operation_table::{NEVER, OperationTable, OperationValue, RowOutcome};
use crate::certificate::Linearization;
use std::collections::BTreeMap;

/// Checks that the operations, executed in this order, return what they returned, each object by itself (linearizability
/// is local: Herlihy and Wing 1990, theorem 1). Each successful operation takes place once, one of unknown outcome at most
/// once, one that failed never; none after an operation that was invoked when it had completed.
///
/// O(n log n) time for looking places up; one bit an operation, and the state of each object.
pub(super) fn replay(
    table: &OperationTable,
    model: LinearModel,
    linearization: &Linearization,
) -> Result<(), String> {
    let mut replay = LinearizationReplay {
        table,
        model,
        objects: vec![None; table.key_count()],
        is_placed: vec![0; table.rows().len().div_ceil(64)],
        drained: BTreeMap::new(),
        taken: linearization.taken.iter(),
    };
    for &place in &linearization.order {
        replay.place(place)?;
    }
    if replay.taken.next().is_some() {
        return Err("more elements were taken than there are removals of them".into());
    }
    replay.ensure_all()
}

/// An object in the course of a replay.
#[derive(Clone)]
struct ReplayedObject {
    state: ObjectState,
    /// The latest invocation of the operations so far.
    latest_call: u32,
}

struct LinearizationReplay<'a> {
    table: &'a OperationTable,
    model: LinearModel,
    /// By key.
    objects: Vec<Option<ReplayedObject>>,
    /// By row, one bit each.
    is_placed: Vec<u64>,
    /// By the first row of an element of a drain: how many rows of that element are placed.
    drained: BTreeMap<usize, usize>,
    /// The additions of the elements that removals from a bag took.
    taken: std::slice::Iter<'a, u64>,
}

impl LinearizationReplay<'_> {
    /// The operation at this place takes effect.
    fn place(&mut self, place: u64) -> Result<(), String> {
        let rows = self.table.at(place);
        if rows.is_empty() {
            return Err(format!("there is no operation at {place}"));
        }
        let first = self.table.rows()[rows.start];
        let f = self.table.function(&first);
        let is_bag = self.model == LinearModel::Bag;
        let is_drain = f == "drain" && first.outcome == RowOutcome::Ok;
        let is_open = is_bag && first.outcome == RowOutcome::Unknown && first.result().is_none();
        let mut named = None;
        if is_bag && (is_drain || is_open && self.is_removal(rows.start)?) {
            named = Some(self.named()?);
        }
        let number = if is_drain {
            // Which of the drain's elements it is follows from the state of a queue.
            let front = self.objects[first.key as usize].as_ref();
            let front = front.map_or(OperationValue::Nil, |object| {
                object
                    .state
                    .next(super::linear_model::EndOfCollection::Front)
            });
            let element = named.unwrap_or(front);
            let all = &self.table.rows()[rows.clone()];
            let before = all.partition_point(|row| row.result() < Some(element));
            let same = all[before..].iter();
            let same = same.take_while(|row| row.result() == Some(element));
            let first = rows.start + before;
            let used = self.drained.entry(first).or_default();
            *used += 1;
            if *used > same.count() {
                let element = self.table.text(element);
                return Err(format!("the drain at {place} does not take {element} here"));
            }
            first + *used - 1
        } else {
            rows.start
        };
        self.apply(number, named)
    }

    /// Does the operation of this row remove an element?
    fn is_removal(&self, number: usize) -> Result<bool, String> {
        let row = &self.table.rows()[number];
        let effect = self.model.effect(self.table, row)?;
        Ok(matches!(effect, OperationEffect::Take(..)))
    }

    /// The element that the next removal from a bag takes.
    fn named(&mut self) -> Result<OperationValue, String> {
        let Some(&place) = self.taken.next() else {
            return Err("the elements that removals took are missing".into());
        };
        let row = self.table.at(place).next();
        let row = row.map(|number| &self.table.rows()[number]);
        let effect = row.map(|row| self.model.effect(self.table, row));
        match effect.transpose()? {
            Some(OperationEffect::Put(_, element)) => Ok(element),
            _ => Err(format!("there is no addition at {place}")),
        }
    }

    /// The operation of this row takes effect.
    fn apply(&mut self, number: usize, named: Option<OperationValue>) -> Result<(), String> {
        let row = &self.table.rows()[number];
        let (place, f) = (row.place, self.table.function(row));
        if row.outcome == RowOutcome::Failed {
            return Err(format!("the operation at {place} failed"));
        }
        let bit = 1 << (number % 64);
        if self.is_placed[number / 64] & bit != 0 {
            return Err(format!("the operation at {place} takes effect again"));
        }
        self.is_placed[number / 64] |= bit;
        let effect = match (self.model.effect(self.table, row)?, named) {
            (OperationEffect::Take(end, None), Some(element)) => {
                OperationEffect::Take(end, Some(element))
            }
            (effect, _) => effect,
        };
        let object = self.objects[row.key as usize].get_or_insert_with(|| ReplayedObject {
            state: ObjectState::new(self.model),
            latest_call: 0,
        });
        if row.ret() != NEVER && row.ret() < object.latest_call {
            return Err(format!(
                "the operation at {place} had completed before an earlier one of the order was invoked"
            ));
        }
        object.latest_call = object.latest_call.max(row.call());
        if object.state.apply(self.table, effect) {
            return Ok(());
        }
        let key = self.table.of_key(row.key);
        Err(format!(
            "the result of the operation at {place} ({f}{key}) contradicts the state"
        ))
    }

    fn ensure_all(&self) -> Result<(), String> {
        for (number, row) in self.table.rows().iter().enumerate() {
            let is_placed = self.is_placed[number / 64] >> (number % 64) & 1 == 1;
            match row.outcome {
                RowOutcome::Ok if !is_placed => {
                    return Err(format!(
                        "the operation at {} is not in the order",
                        row.place
                    ));
                }
                // Of one that is not in the order, too: the data type must have it.
                RowOutcome::Unknown if !is_placed => {
                    self.model.effect(self.table, row)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
