//! Maelstrom's workloads: their operations, the requests that these become, and their checkers.

use crate::exchange::Exchange;
use crate::final_counter::FinalCounter;
use crate::protocol_checker::{EchoChecker, ProtocolChecker};
use seatrial_check::{UnknownName, by_name, for_workload};
use seatrial_checker::Checker;
use seatrial_generator::workload::{KeyOptions, LogOptions, Workload, WorkloadOptions, logs, sets};
use seatrial_generator::{Generator, each_thread, function, operation, sequence, sleep};
use seatrial_history::{Key, Value};
use seatrial_machine::Rng;
use seatrial_suite::SuiteError;
use std::sync::Arc;
use std::time::Duration;

/// One workload of Maelstrom.
pub(crate) struct MaelstromWorkload {
    /// Maelstrom's name.
    pub(crate) name: &'static str,
    /// How its operations become requests.
    pub(crate) exchange: Exchange,
    /// Where its operations come from.
    source: OperationSource,
}

/// Where the operations and checkers of a workload come from.
#[derive(Clone, Copy)]
enum OperationSource {
    /// The product's workload of this name, with its checkers.
    Known(&'static str),
    /// Requests to repeat a text.
    Echo,
    /// One set for all, and a read by every client in the end.
    OneSet,
    /// One counter for all, and a read by every client in the end; may it be decremented?
    OneCounter { has_decrements: bool },
    /// Single sends and polls.
    Logs,
}

/// All workloads, in the order of Maelstrom's documentation.
pub(crate) const WORKLOADS: [MaelstromWorkload; 10] = [
    workload("echo", Exchange::Echo, OperationSource::Echo),
    workload(
        "unique-ids",
        Exchange::UniqueIds,
        OperationSource::Known("unique-ids"),
    ),
    workload("broadcast", Exchange::Broadcast, OperationSource::OneSet),
    workload("g-set", Exchange::Set, OperationSource::OneSet),
    workload(
        "g-counter",
        Exchange::Counter,
        OperationSource::OneCounter {
            has_decrements: false,
        },
    ),
    workload(
        "pn-counter",
        Exchange::Counter,
        OperationSource::OneCounter {
            has_decrements: true,
        },
    ),
    workload(
        "lin-kv",
        Exchange::Registers,
        OperationSource::Known("cas-register"),
    ),
    workload(
        "txn-list-append",
        Exchange::Transactions,
        OperationSource::Known("list-append"),
    ),
    workload(
        "txn-rw-register",
        Exchange::Transactions,
        OperationSource::Known("rw-register"),
    ),
    workload("kafka", Exchange::Logs, OperationSource::Logs),
];

/// Their names.
pub(crate) const NAMES: [&str; WORKLOADS.len()] = {
    let mut names = [""; WORKLOADS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = WORKLOADS[at].name;
        at += 1;
    }
    names
};

/// The checker of the counts of operations.
const COUNTS: &str = "stats";
/// Before the final reads, so that nodes that exchange their state now and then have done so. (Maelstrom waits as long.)
const CONVERGENCE: Duration = Duration::from_secs(10);
/// Pause between two attempts of a final read.
const RETRY: Duration = Duration::from_millis(10);
/// The largest amount of one addition to a counter.
const DELTA_MAX: u64 = 5;

const fn workload(
    name: &'static str,
    exchange: Exchange,
    source: OperationSource,
) -> MaelstromWorkload {
    MaelstromWorkload {
        name,
        exchange,
        source,
    }
}

/// The workload called `name`.
pub(crate) fn named(name: &str) -> Option<&'static MaelstromWorkload> {
    WORKLOADS.iter().find(|known| known.name == name)
}

impl MaelstromWorkload {
    /// Its operations.
    ///
    /// # Errors
    ///
    /// An option is out of bounds, or is not one of this workload.
    pub(crate) fn operations(
        &self,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        let rng = rng.fork(self.name);
        let is_plain = *options == WorkloadOptions::default();
        if !is_plain
            && !matches!(
                self.source,
                OperationSource::Known(_) | OperationSource::Logs
            )
        {
            return Err(format!("the workload {} has no options of keys", self.name).into());
        }
        let (generator, last) = match self.source {
            OperationSource::Known(name) => {
                let known = Workload::new(name, &rng, options)?;
                (known.generator, known.last)
            }
            OperationSource::Echo => (echoes(rng).boxed(), None),
            OperationSource::OneSet => {
                let one = KeyOptions {
                    count: 1,
                    writes_per_key: u32::MAX,
                    ..KeyOptions::default()
                };
                let key = Value::Keyed(Key::Int(0), Arc::new(Value::Nil));
                (sets(rng, one).boxed(), Some(read_everywhere(&key)))
            }
            OperationSource::OneCounter { has_decrements } => {
                let counter = additions(rng, has_decrements);
                (counter.boxed(), Some(read_everywhere(&Value::Nil)))
            }
            OperationSource::Logs => {
                options.check("log")?;
                let defaults = LogOptions::default();
                let keys = defaults.keys;
                let single = LogOptions {
                    keys: KeyOptions {
                        count: options.key_count.unwrap_or(keys.count),
                        distribution: options.distribution.unwrap_or(keys.distribution),
                        writes_per_key: options.writes_per_key.unwrap_or(keys.writes_per_key),
                    },
                    length_max: 1,
                    ..defaults
                };
                let (operations, polls) = logs(rng, single);
                let polls = polls.clients().synchronize();
                (operations.boxed(), Some(polls.boxed()))
            }
        };
        Ok(Workload {
            name: self.name,
            generator,
            last,
        })
    }

    /// Its checkers, and that of the protocol.
    ///
    /// # Errors
    ///
    /// `model` is no consistency model of the workload.
    pub(crate) fn checkers(
        &self,
        model: Option<&str>,
    ) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
        let mut checkers = match self.source {
            OperationSource::Known(name) => for_workload(name, model)?,
            OperationSource::Logs => for_workload("log", model)?,
            OperationSource::OneSet => {
                // Nodes that gossip show an element later, not at once.
                for_workload("set", model.or(Some("eventual")))?
            }
            OperationSource::OneCounter { .. } => with_counts(Box::new(FinalCounter))?,
            OperationSource::Echo => with_counts(Box::new(EchoChecker))?,
        };
        checkers.push(Box::new(ProtocolChecker));
        Ok(checkers)
    }
}

/// A checker of this crate, after that of the counts of operations.
fn with_counts(own: Box<dyn Checker>) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
    Ok(vec![by_name(COUNTS, None)?, own])
}

/// Requests to repeat a text, a new one each time.
fn echoes(mut rng: Rng) -> impl Generator {
    function(move || {
        let text = format!("Please echo {}", rng.below(128));
        Some(operation("echo", Value::text(text)))
    })
}

/// Additions to one counter, and reads half of the time.
fn additions(mut rng: Rng, has_decrements: bool) -> impl Generator {
    function(move || {
        if rng.below(2) == 0 {
            return Some(operation("read", Value::Nil));
        }
        let amount = rng.below(DELTA_MAX + 1).cast_signed();
        let is_negative = has_decrements && rng.below(2) == 0;
        let delta = if is_negative { -amount } else { amount };
        Some(operation("add", Value::Int(delta)))
    })
}

/// Every client reads until that succeeds, after all operations have ended and some time has passed. The reads have the field
/// `final`.
fn read_everywhere(value: &Value) -> Box<dyn Generator> {
    let value = value.clone();
    let reads = each_thread(move |_| {
        let read = operation("read", value.clone()).with("final", Value::Bool(true));
        let read = read.repeat().delay(RETRY).until_ok();
        sequence([sleep(CONVERGENCE).boxed(), read.boxed()])
    });
    reads.clients().synchronize().boxed()
}
