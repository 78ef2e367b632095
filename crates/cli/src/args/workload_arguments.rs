//! The options of workloads.

use super::parse_range;
use clap::Args;
use seatrial_generator::KeyDistribution;
use seatrial_generator::workload::WorkloadOptions;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// Options of workloads, in `test` and `sim`; a workload without the option ignores it.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkloadArguments {
    /// Keys in use at a time; of registers, by each group of threads [default: the workload's].
    #[arg(long, value_name = "N")]
    keys: Option<usize>,
    /// Distribution of keys: uniform, zipf, zipf:SKEW, exponential [default: exponential].
    #[arg(long, value_name = "NAME", value_parser = parse_distribution)]
    distribution: Option<KeyDistribution>,
    /// Writes after which a key is replaced by a fresh one [default: the workload's].
    #[arg(long, value_name = "N")]
    writes_per_key: Option<u32>,
    /// Micro-operations of a transaction [default: 1..4].
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_range)]
    txn_length: Option<RangeInclusive<u32>>,
}

impl WorkloadArguments {
    pub(crate) fn options(&self) -> WorkloadOptions {
        WorkloadOptions {
            key_count: self.keys,
            distribution: self.distribution,
            writes_per_key: self.writes_per_key,
            transaction_length: self.txn_length.clone(),
        }
    }

    /// As words of a command line, each with a space before it.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        // Writing to a string cannot fail.
        if let Some(keys) = self.keys {
            let _ = write!(words, " --keys {keys}");
        }
        if let Some(distribution) = self.distribution {
            let _ = write!(words, " --distribution {distribution}");
        }
        if let Some(writes) = self.writes_per_key {
            let _ = write!(words, " --writes-per-key {writes}");
        }
        if let Some(length) = &self.txn_length {
            let _ = write!(words, " --txn-length {}..{}", length.start(), length.end());
        }
        words
    }

    pub(crate) fn json(&self) -> Json {
        let length = self.txn_length.as_ref();
        json!({
            "keys": self.keys,
            "distribution": self.distribution.map(|one| one.to_string()),
            "writes_per_key": self.writes_per_key,
            "txn_length": length.map(|length| [*length.start(), *length.end()]),
        })
    }
}

fn parse_distribution(text: &str) -> Result<KeyDistribution, String> {
    KeyDistribution::by_name(text).ok_or_else(|| {
        let known = KeyDistribution::ALL.map(KeyDistribution::name).join(", ");
        format!("unknown distribution {text:?} (available: {known}, zipf:SKEW from 0.01 to 10)")
    })
}
