//! What can be asked of a workload.

use super::{Changeable, KeyOptions, NAMES, RegisterOptions, TABLE, TransactionOptions};
use crate::Distribution;
use seatrial_machine::unknown_name;
use std::ops::RangeInclusive;

/// Wishes; what is `None` is as the workload has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadOptions {
    /// Keys in use at any time; of registers, by each group of threads.
    pub key_count: Option<usize>,
    /// How often which of them is used.
    pub distribution: Option<Distribution>,
    /// Writes after which a key retires.
    pub writes_per_key: Option<u32>,
    /// Micro-operations of a transaction.
    pub transaction_length: Option<RangeInclusive<u32>>,
}

/// Why there is no such workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No workload of this name.
    #[error("{}", unknown_name("workload", name, NAMES))]
    Unknown {
        /// The name that was asked for.
        name: String,
    },
    /// The workload has nothing that the option could change.
    #[error("the workload {workload} has no {option}")]
    Option {
        /// The workload.
        workload: &'static str,
        /// What the option is about.
        option: &'static str,
    },
    /// The value is out of bounds.
    #[error("{option} must be from {min} to {max}, not {value}")]
    Bounds {
        /// What the option is about.
        option: &'static str,
        /// The value that was asked for.
        value: u64,
        /// The least that is possible.
        min: u64,
        /// The most that is possible.
        max: u64,
    },
}

/// The most micro-operations of a transaction.
const TRANSACTION_LENGTH_MAX: u32 = 1_000;

/// The value, if it is there, must be within bounds.
fn bounds(
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
    /// Can this workload be had like this?
    pub fn check(&self, workload: &'static str) -> Result<(), WorkloadError> {
        let row = TABLE.iter().find(|row| row.name == workload);
        // A workload of a suite's own is made by the suite, which may take any option.
        let Some(row) = row else {
            return self.check_bounds();
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
        self.check_bounds()
    }

    fn check_bounds(&self) -> Result<(), WorkloadError> {
        let count = self.key_count.map(|count| count as u64);
        bounds(
            "the number of keys",
            count,
            1..=KeyOptions::COUNT_MAX as u64,
        )?;
        let writes = self.writes_per_key.map(u64::from);
        bounds("the writes per key", writes, 1..=u64::from(u32::MAX))?;
        let (shortest, longest) = match &self.transaction_length {
            Some(lengths) => (Some(*lengths.start()), Some(*lengths.end())),
            None => (None, None),
        };
        let most = u64::from(TRANSACTION_LENGTH_MAX);
        bounds(
            "the length of a transaction",
            shortest.map(u64::from),
            1..=most,
        )?;
        let least = u64::from(shortest.unwrap_or(1));
        bounds(
            "the length of a transaction",
            longest.map(u64::from),
            least..=most,
        )
    }

    /// The keys, where the workload has these.
    pub(super) fn keys(&self, usual: KeyOptions) -> KeyOptions {
        KeyOptions {
            count: self.key_count.unwrap_or(usual.count),
            distribution: self.distribution.unwrap_or(usual.distribution),
            writes_per_key: self.writes_per_key.unwrap_or(usual.writes_per_key),
        }
    }

    pub(super) fn register(&self) -> RegisterOptions {
        let usual = RegisterOptions::default();
        RegisterOptions {
            keys: self.keys(usual.keys),
            ..usual
        }
    }

    pub(super) fn transaction(&self) -> TransactionOptions {
        let usual = TransactionOptions::default();
        let lengths = self.transaction_length.as_ref();
        let length = |one: Option<&u32>, usual| one.map_or(usual, |&length| length as usize);
        TransactionOptions {
            keys: self.keys(usual.keys),
            length_min: length(lengths.map(RangeInclusive::start), usual.length_min),
            length_max: length(lengths.map(RangeInclusive::end), usual.length_max),
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
    fn wishes_that_cannot_be_met_are_refused() {
        let usual = WorkloadOptions::default();
        assert!(error("nope", &usual).contains("unknown workload `nope` (available: register, "));
        for name in NAMES {
            assert_eq!(error(name, &usual), "");
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
            "the length of a transaction must be from 5 to 1000, not 2"
        );
        let none = WorkloadOptions {
            key_count: Some(0),
            ..WorkloadOptions::default()
        };
        assert!(error("counter", &none).contains("must be from 1 to "));
    }

    #[test]
    fn transactions_have_the_length_that_was_asked_for() {
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
