//! The workload `log` of systems without transactions: its operations, and the positions of their clients.

use crate::SuiteError;
use seatrial_generator::Generator as _;
use seatrial_generator::workload::{LogOptions, Workload, WorkloadOptions, logs};
use seatrial_history::{Key, Value};
use seatrial_machine::Rng;
use std::collections::BTreeMap;

/// What [`Suite::workload`](crate::Suite::workload) returns for a system of logs without transactions: as
/// [`Workload::new`], but an operation on a log has one send or poll.
///
/// # Errors
///
/// An unknown name, or options that do not fit.
pub fn workload_without_transactions(
    name: &str,
    rng: &Rng,
    options: &WorkloadOptions,
) -> Result<Workload, SuiteError> {
    let mut workload = Workload::new(name, rng, options)?;
    if workload.name == "log" {
        let defaults = LogOptions::default();
        let (generator, polls) = logs(
            rng.fork("log"),
            LogOptions {
                keys: options.keys(defaults.keys),
                length_max: 1,
                ..defaults
            },
        );
        workload.generator = generator.boxed();
        workload.last = Some(polls.clients().synchronize().boxed());
    }
    Ok(workload)
}

/// The positions of these logs, which an operation `assign` names, after it: those that were known, else `first`, the position
/// of the first message.
///
/// # Errors
///
/// `logs` is no list of keys.
pub fn assigned_positions(
    logs: &Value,
    known: &BTreeMap<Key, i64>,
    from_start: bool,
    first: i64,
) -> Result<BTreeMap<Key, i64>, String> {
    let Value::List(keys) = logs else {
        return Err(format!("{logs}: no list of logs"));
    };
    let keys = keys.iter().map(|key| {
        let key = key
            .as_key()
            .ok_or_else(|| format!("{key} is not the name of a log"))?;
        let position = known.get(&key).filter(|_| !from_start);
        Ok((key, position.copied().unwrap_or(first)))
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_kept_until_the_beginning_is_wanted() {
        let known = BTreeMap::from([(Key::Int(1), 40), (Key::Int(2), 50)]);
        let logs = Value::List([Value::Int(2), Value::Int(3)].into_iter().collect());
        for first in [0, 1] {
            let kept = assigned_positions(&logs, &known, false, first).unwrap();
            let expected = [(Key::Int(2), 50), (Key::Int(3), first)];
            assert_eq!(kept, BTreeMap::from(expected));
            let all = assigned_positions(&logs, &known, true, first).unwrap();
            let expected = [(Key::Int(2), first), (Key::Int(3), first)];
            assert_eq!(all, BTreeMap::from(expected));
        }
        assert!(assigned_positions(&Value::Int(1), &known, false, 0).is_err());
    }
}
