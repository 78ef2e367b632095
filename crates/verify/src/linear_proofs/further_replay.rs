//! The replay of linearization points on the further data types.

use super::further_types::{EffectReader, FurtherState, FurtherType};
use super::operation_table::{NEVER, OperationTable, RowOutcome};
use crate::certificate::Linearization;

/// Checks that the operations, executed in this order, return what they returned, each object by itself (linearizability
/// is local: Herlihy and Wing 1990, theorem 1). Each successful operation takes place once, one of unknown outcome at most
/// once, one that failed never; none after an operation that was invoked when it had completed.
///
/// O(n log n) time for looking places up, and one step of the data type for each operation.
pub(super) fn replay(
    table: &OperationTable,
    kind: &FurtherType,
    linearization: &Linearization,
) -> Result<(), String> {
    if !linearization.taken.is_empty() {
        return Err("no removal takes an element that its result does not name".into());
    }
    let mut reader = EffectReader::new(table, kind);
    // By key: the state, and the latest invocation so far.
    let mut objects: Vec<Option<(FurtherState, u32)>> = vec![None; table.key_count()];
    let mut is_placed = vec![false; table.rows().len()];
    for &place in &linearization.order {
        let Some(number) = table.at(place).next() else {
            return Err(format!("there is no operation at {place}"));
        };
        let row = &table.rows()[number];
        if row.outcome == RowOutcome::Failed {
            return Err(format!("the operation at {place} failed"));
        }
        if std::mem::replace(&mut is_placed[number], true) {
            return Err(format!("the operation at {place} takes effect again"));
        }
        let effect = reader.effect(row)?;
        let object = &mut objects[row.key as usize];
        let (state, latest_call) = object.get_or_insert_with(|| (kind.initial(), 0));
        if row.ret() != NEVER && row.ret() < *latest_call {
            return Err(format!(
                "the operation at {place} had completed before an earlier one of the order was invoked"
            ));
        }
        *latest_call = row.call().max(*latest_call);
        if !kind.apply(state, &effect) {
            let (f, key) = (table.function(row), table.of_key(row.key));
            return Err(format!(
                "the result of the operation at {place} ({f}{key}) contradicts the state"
            ));
        }
    }
    for (row, is_placed) in table.rows().iter().zip(is_placed) {
        if is_placed || row.outcome == RowOutcome::Failed {
            continue;
        }
        // Of one that is not in the order, too: the data type must have it.
        reader.effect(row)?;
        if row.outcome == RowOutcome::Ok {
            return Err(format!(
                "the operation at {} is not in the order",
                row.place
            ));
        }
    }
    Ok(())
}
