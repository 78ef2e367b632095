//! Options of workloads, and their validation.

use super::{Changeable, KeyOptions, NAMES, RegisterOptions, TABLE, TransactionOptions};
use crate::KeyDistribution;
use seatrial_machine::unknown_name;
use std::ops::RangeInclusive;

/// Options of a workload; `None` selects the workload's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadOptions {
    /// Number of keys in use at any time; for registers, per group of threads.
    pub key_count: Option<usize>,
    /// Probability of each of them.
    pub distribution: Option<KeyDistribution>,
    /// Number of writes after which a key retires.
    pub writes_per_key: Option<u32>,
    /// Number of micro-operations of a transaction.
    pub transaction_length: Option<RangeInclusive<u32>>,
}

/// Why a workload or its options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// Unknown workload.
    #[error("{}", unknown_name("workload", name, NAMES))]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The workload does not accept the option.
    #[error("the workload {workload} has no {option}")]
    Option {
        /// The workload.
        workload: &'static str,
        /// The objects that the option configures.
        option: &'static str,
    },
    /// The value is out of bounds.
    #[error("{option} must be from {min} to {max}, found {value}")]
    Bounds {
        /// The quantity that the option sets.
        option: &'static str,
        /// The value given.
        value: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
}

/// Maximum number of micro-operations of a transaction.
const TRANSACTION_LENGTH_MAX: u32 = 1_000;

/// Checks that a value, if given, is within bounds.
fn check_bounds(
    option: &'static str,
    value: Option<u64>,
    bounds: RangeInclusive<u64>,
) -> Result<(), WorkloadError> {
    match value {
        Some(value) if !bounds.contains(&value) => Err(WorkloadError::Bounds {
            option,
            value,
            min: *bounds.start(),
            max: *bounds.end(),
        }),
        _ => Ok(()),
    }
}

impl WorkloadOptions {
    /// Checks that this workload accepts these options, and that the values are within bounds.
    pub fn check(&self, workload: &'static str) -> Result<(), WorkloadError> {
        let row = TABLE.iter().find(|row| row.name == workload);
        // A workload that only the suite knows; the suite may accept any option.
        let Some(row) = row else {
            return self.check_values();
        };
        let has_transactions = row.options == Changeable::Transactions;
        let has_keys = has_transactions || row.options == Changeable::Keys;
        let keys = self.key_count.is_some()
            || self.distribution.is_some()
            || self.writes_per_key.is_some();
        let lacks = |option| Err(WorkloadError::Option { workload, option });
        if keys && !has_keys {
            return lacks("keys");
        }
        if self.transaction_length.is_some() && !has_transactions {
            return lacks("transactions");
        }
        self.check_values()
    }

    fn check_values(&self) -> Result<(), WorkloadError> {
        let count = self.key_count.map(|count| count as u64);
        check_bounds(
            "the number of keys",
            count,
            1..=KeyOptions::COUNT_MAX as u64,
        )?;
        let writes = self.writes_per_key.map(u64::from);
        check_bounds("the writes per key", writes, 1..=u64::from(u32::MAX))?;
        let (shortest, longest) = match &self.transaction_length {
            Some(lengths) => (Some(*lengths.start()), Some(*lengths.end())),
            None => (None, None),
        };
        let most = u64::from(TRANSACTION_LENGTH_MAX);
        check_bounds(
            "the length of a transaction",
            shortest.map(u64::from),
            1..=most,
        )?;
        let least = u64::from(shortest.unwrap_or(1));
        check_bounds(
            "the length of a transaction",
            longest.map(u64::from),
            least..=most,
        )
    }

    /// The options of keys, with the workload's defaults.
    pub fn keys(&self, defaults: KeyOptions) -> KeyOptions {
        KeyOptions {
            count: self.key_count.unwrap_or(defaults.count),
            distribution: self.distribution.unwrap_or(defaults.distribution),
            writes_per_key: self.writes_per_key.unwrap_or(defaults.writes_per_key),
        }
    }

    /// The options of registers.
    pub(super) fn register(&self) -> RegisterOptions {
        let defaults = RegisterOptions::default();
        RegisterOptions {
            keys: self.keys(defaults.keys),
            ..defaults
        }
    }

    /// The options of transactions.
    pub(super) fn transaction(&self) -> TransactionOptions {
        let defaults = TransactionOptions::default();
        let lengths = self.transaction_length.as_ref();
        let length = |one: Option<&u32>, default| one.map_or(default, |&length| length as usize);
        TransactionOptions {
            keys: self.keys(defaults.keys),
            length_min: length(lengths.map(RangeInclusive::start), defaults.length_min),
            length_max: length(lengths.map(RangeInclusive::end), defaults.length_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Workload;
    use super::*;
    use crate::{Generator, Simulation};
    use seatrial_machine::Rng;

    fn error(name: &str, options: &WorkloadOptions) -> String {
        let workload = Workload::new(name, &Rng::from_seed(1), options);
        workload
            .err()
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn invalid_options_are_errors() {
        let defaults = WorkloadOptions::default();
        let unknown = "unknown workload `nope` (available: register, ";
        assert!(error("nope", &defaults).contains(unknown));
        for name in NAMES {
            assert_eq!(error(name, &defaults), "");
        }
        let three = WorkloadOptions {
            key_count: Some(3),
            ..WorkloadOptions::default()
        };
        assert_eq!(error("set", &three), "");
        assert_eq!(error("bank", &three), "the workload bank has no keys");
        let long = WorkloadOptions {
            transaction_length: Some(2..=5),
            ..WorkloadOptions::default()
        };
        assert_eq!(error("set", &long), "the workload set has no transactions");
        let backwards = WorkloadOptions {
            transaction_length: Some(RangeInclusive::new(5, 2)),
            ..WorkloadOptions::default()
        };
        assert_eq!(
            error("rw-register", &backwards),
            "the length of a transaction must be from 5 to 1000, found 2"
        );
        let none = WorkloadOptions {
            key_count: Some(0),
            ..WorkloadOptions::default()
        };
        assert!(error("counter", &none).contains("must be from 1 to "));
    }

    #[test]
    fn transactions_have_the_given_length() {
        let options = WorkloadOptions {
            transaction_length: Some(2..=3),
            ..WorkloadOptions::default()
        };
        let workload = Workload::new("rw-register", &Rng::from_seed(1), &options).unwrap();
        let generator = workload.generator.limit(100).clients();
        let history = Simulation::perfect(generator, 2).run().unwrap();
        let lengths = history.iter().map(|op| op.value.as_txn().unwrap().len());
        assert!(lengths.clone().all(|length| (2..=3).contains(&length)));
        assert!(
            lengths.clone().any(|length| length == 2) && lengths.clone().any(|length| length == 3)
        );
    }
}
