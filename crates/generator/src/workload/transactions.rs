//! Transactions of reads and writes on lists or registers: Elle's workloads `list-append` and `rw-register`.

use super::rotating_keys::{KeyOptions, RotatingKeys};
use crate::{Context, Generator, KeyDistribution, Next, Tree};
use seatrial_history::{Key, Mop, Observed, Op, Symbol, Value};
use seatrial_machine::Rng;

/// Keys and length of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// The keys to access. A key retires after its maximum number of writes, which keeps lists short.
    pub keys: KeyOptions,
    /// Minimum number of micro-operations of a transaction.
    pub length_min: usize,
    /// Maximum number of micro-operations of a transaction.
    pub length_max: usize,
}

/// Elle's defaults: ten keys, exponential, one to four micro-operations, 32 writes per key.
impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions {
            keys: KeyOptions {
                count: 10,
                distribution: KeyDistribution::Exponential,
                writes_per_key: 32,
            },
            length_min: 1,
            length_max: 4,
        }
    }
}

/// The objects that the transactions of a workload access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TxnObjects {
    Lists,
    Registers,
}

/// Endless transactions `txn` whose micro-operations are reads and, half of the time, writes.
///
/// Keys are integers from 0 and are not reused after retirement. The values written to a key are 1, 2, 3, …, each once, so
/// that every read identifies the writes that it observed (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
/// Experimental Observations", VLDB 2020).
#[derive(Debug)]
pub struct TxnWorkload {
    objects: TxnObjects,
    rng: Rng,
    keys: RotatingKeys,
    length_min: usize,
    /// Number of different lengths, at least 1.
    lengths: u64,
    /// The next transaction; kept until it is committed.
    drawn: Option<Value>,
}

const TXN: Symbol = Symbol::new("txn");

/// Endless transactions of appends to lists and reads of them: a read list shows the order of its appends.
pub fn list_append(rng: Rng, options: TransactionOptions) -> TxnWorkload {
    TxnWorkload::new(TxnObjects::Lists, rng, options)
}

/// Endless transactions of writes to registers and reads of them.
pub fn rw_register(rng: Rng, options: TransactionOptions) -> TxnWorkload {
    TxnWorkload::new(TxnObjects::Registers, rng, options)
}

impl TxnWorkload {
    fn new(objects: TxnObjects, rng: Rng, options: TransactionOptions) -> TxnWorkload {
        let longer = options.length_max.saturating_sub(options.length_min) as u64;
        TxnWorkload {
            objects,
            rng,
            keys: RotatingKeys::new(options.keys),
            length_min: options.length_min,
            lengths: longer + 1,
            drawn: None,
        }
    }

    fn draw_mop(&mut self) -> Mop {
        // One random bit: reads and writes are equally likely.
        if self.rng.word() >> 63 == 0 {
            return Mop::Read {
                key: Key::Int(self.keys.read(&mut self.rng)),
                observed: Observed::Nil,
            };
        }
        let (key, number) = self.keys.write(&mut self.rng);
        let (key, number) = (Key::Int(key), i64::from(number));
        match self.objects {
            TxnObjects::Lists => Mop::Append {
                key,
                element: number,
            },
            TxnObjects::Registers => Mop::Write { key, value: number },
        }
    }

    fn draw(&mut self) -> Value {
        let length = self.length_min + self.rng.below(self.lengths) as usize;
        Value::Txn((0..length).map(|_| self.draw_mop()).collect())
    }
}

impl Generator for TxnWorkload {
    fn next(&mut self, context: &Context) -> Next {
        if self.drawn.is_none() {
            self.drawn = Some(self.draw());
        }
        context.operation(TXN, self.drawn.clone().unwrap_or_default())
    }

    fn commit(&mut self) {
        self.drawn = None;
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        let name = match self.objects {
            TxnObjects::Lists => "list-append",
            TxnObjects::Registers => "rw-register",
        };
        Tree::leaf(format!("{name}, {} keys so far", self.keys.used()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use std::collections::{BTreeMap, BTreeSet};

    fn transactions(generator: TxnWorkload, count: u64) -> Vec<Vec<Mop>> {
        let generator = generator.limit(count).clients();
        let history = Simulation::perfect(generator, 5).run().unwrap();
        let invocations = history.iter().filter(|op| op.is_invoke());
        invocations
            .map(|op| op.value.as_txn().unwrap().to_vec())
            .collect()
    }

    fn number(key: &Key) -> i64 {
        match key {
            Key::Int(number) => *number,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn elements_are_unique_and_in_order_and_keys_retire() {
        let mut options = TransactionOptions::default();
        options.keys.count = 3;
        let rng = Rng::from_seed(5);
        for (objects, generator) in [
            (TxnObjects::Lists, list_append(rng.clone(), options)),
            (TxnObjects::Registers, rw_register(rng, options)),
        ] {
            let (mut last, mut keys, mut lengths) = (BTreeMap::new(), BTreeSet::new(), [0; 5]);
            let mut reads = 0;
            for txn in transactions(generator, 5_000) {
                lengths[txn.len()] += 1;
                for mop in &txn {
                    keys.insert(number(mop.key()));
                    let written = match (objects, mop) {
                        (TxnObjects::Lists, Mop::Append { element, .. }) => *element,
                        (TxnObjects::Registers, Mop::Write { value, .. }) => *value,
                        (_, Mop::Read { observed, .. }) => {
                            assert_eq!(*observed, Observed::Nil);
                            reads += 1;
                            continue;
                        }
                        (_, other) => panic!("{objects:?} has {other:?}"),
                    };
                    let before = last.insert(number(mop.key()), written).unwrap_or(0);
                    assert_eq!(written, before + 1);
                    assert!(written <= 32);
                }
            }
            assert!((5_500..7_000).contains(&reads), "{reads} reads");
            assert!(keys.len() > 100, "{} keys", keys.len());
            let retired = last.values().filter(|&&count| count == 32).count();
            assert!(
                retired + 3 >= last.len(),
                "only the last keys are unfinished"
            );
            assert!(
                lengths[0] == 0 && lengths[1..].iter().all(|&count| count > 1_000),
                "{lengths:?}"
            );
        }
    }

    #[test]
    fn keys_have_their_distribution() {
        for (distribution, weights) in [
            (KeyDistribution::Exponential, [8.0, 4.0, 2.0, 1.0]),
            (KeyDistribution::ALL[1], [12.0, 6.0, 4.0, 3.0]),
            (KeyDistribution::Uniform, [1.0; 4]),
        ] {
            let options = TransactionOptions {
                keys: KeyOptions {
                    count: 4,
                    distribution,
                    writes_per_key: u32::MAX,
                },
                ..TransactionOptions::default()
            };
            let mut counts = [0_u32; 4];
            for txn in transactions(list_append(Rng::from_seed(5), options), 8_000) {
                for mop in &txn {
                    counts[number(mop.key()) as usize] += 1;
                }
            }
            let total = f64::from(counts.iter().sum::<u32>());
            let sum: f64 = weights.iter().sum();
            for (count, weight) in counts.into_iter().zip(weights) {
                let share = f64::from(count) / total;
                assert!((share - weight / sum).abs() < 0.015, "{counts:?}");
            }
        }
    }
}
