//! The replay of orders of commits for read committed (PL-2) and read uncommitted (PL-1) of registers.

use super::writer;
use crate::dense_number::OrderPlace;
use crate::keyed_rows::WrittenValues;
use crate::order_clock::OrderClock;
use crate::transaction_table::{RegisterState, TransactionTable};

/// The models that such an order proves: must reads be of committed values, and which order does it follow?
const MODELS: [(&str, bool, &str); 6] = [
    ("read-uncommitted", false, ""),
    ("strong-session-read-uncommitted", false, "process"),
    ("strong-read-uncommitted", false, "realtime"),
    ("read-committed", true, ""),
    ("strong-session-read-committed", true, "process"),
    ("strong-read-committed", true, "realtime"),
];

/// Does an order of commits prove this model here?
pub(super) fn is_proven(model: &str) -> bool {
    MODELS.iter().any(|row| row.0 == model)
}

/// Checks that each transaction reads values that were committed before it in this order, or that it wrote itself. Then
/// versions in the order of their transactions make no cycle of overwrites and reads.
pub(super) fn replay(table: &TransactionTable, model: &str, order: &[u64]) -> Result<(), String> {
    let row = MODELS.iter().find(|row| row.0 == model);
    let &(_, is_committed, time) =
        row.ok_or_else(|| format!("this proves nothing about {model}"))?;
    let order = table.at_all(order)?;
    let mut places: Vec<Option<OrderPlace>> = vec![None; table.len()];
    let mut clock = OrderClock::new(table, time);
    for (place, &number) in order.iter().enumerate() {
        let one = &table.one(number);
        let before = places[number as usize].replace(OrderPlace::new(place as u32));
        if before.is_some() || one.is_fail() {
            return Err(format!("op {} failed, or takes place again", one.index));
        }
        clock.end(one)?;
        clock.begin(one);
    }
    let mut all = table.all().zip(&places);
    if all.any(|(one, &place)| one.is_ok() && place.is_none()) {
        return Err("not all transactions are in the order".into());
    }
    let written = WrittenValues::new(table, |_| true);
    let is_sound = |number: u32| !table.one(number).is_fail();
    if let Some((key, value)) = written.twice(is_sound) {
        let name = table.name(key);
        return Err(format!("{value} is written to key {name} more than once"));
    }
    for (number, one, events) in table.each().filter(|(_, one, _)| one.is_ok()) {
        for (at, event) in events.iter().enumerate() {
            let Some(RegisterState(Some(value))) = event.read() else {
                continue;
            };
            let holds = writer(table, &written, event.key, value).is_some_and(|found| {
                if found.transaction == number {
                    let mut before = events[..at].iter().rev().filter(|it| it.key == event.key);
                    return !is_committed || before.any(|it| it.written() == Some(value));
                }
                // The reader succeeded, so it is in the order; a writer that is not was not committed before it.
                let (written, read) = (places[found.transaction as usize], places[number as usize]);
                let is_before = written.is_some() && written < read;
                !is_committed || is_before && found.is_last
            });
            if !holds {
                let (index, name) = (one.index, table.name(event.key));
                return Err(format!(
                    "op {index} reads {value} of key {name}, which was not committed then"
                ));
            }
        }
    }
    Ok(())
}
