//! Transactions of reads and writes: Elle's workloads, on lists and on registers.

use super::keys::{KeyOptions, RotatingKeys};
use crate::{Context, Distribution, Generator, Next, Tree};
use seatrial_history::{Key, Mop, Observed, Op, Symbol, Value};
use seatrial_machine::Rng;

/// The shape of the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// Which keys they touch. A key to which enough was written retires: lists stay short.
    pub keys: KeyOptions,
    /// Fewest micro-operations of a transaction.
    pub length_min: usize,
    /// Most micro-operations of a transaction.
    pub length_max: usize,
}

/// Elle's: ten keys, exponential, one to four micro-operations, 32 writes per key.
impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions {
            keys: KeyOptions {
                count: 10,
                distribution: Distribution::Exponential,
                writes_per_key: 32,
            },
            length_min: 1,
            length_max: 4,
        }
    }
}

/// What the transactions of a workload write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lists,
    Registers,
}

/// Endless transactions `txn` of reads and, half of the time, writes. Keys are integers from 0 on, never used again once
/// retired; what is written to a key is 1, 2, 3, …, each handed out once, so that every read tells whose write it saw
/// (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB 2020).
#[derive(Debug)]
pub struct Transactions {
    kind: Kind,
    rng: Rng,
    keys: RotatingKeys,
    length_min: usize,
    /// Lengths that there are.
    spread: u64,
    /// The transaction that comes next; kept until it is taken.
    drawn: Option<Value>,
}

const TXN: Symbol = Symbol::new("txn");

/// Endless transactions of appends to lists and reads of them: the order of a list's elements is that of its writes.
pub fn list_append(rng: Rng, options: TransactionOptions) -> Transactions {
    Transactions::new(Kind::Lists, rng, options)
}

/// Endless transactions of writes to registers and reads of them.
pub fn rw_register(rng: Rng, options: TransactionOptions) -> Transactions {
    Transactions::new(Kind::Registers, rng, options)
}

impl Transactions {
    fn new(kind: Kind, rng: Rng, options: TransactionOptions) -> Transactions {
        let spread = options.length_max.saturating_sub(options.length_min) as u64;
        Transactions {
            kind,
            rng,
            keys: RotatingKeys::new(options.keys),
            length_min: options.length_min,
            spread: spread + 1,
            drawn: None,
        }
    }

    fn draw_mop(&mut self) -> Mop {
        if self.rng.word() >> 63 == 0 {
            return Mop::Read {
                key: Key::Int(self.keys.read(&mut self.rng)),
                observed: Observed::Nil,
            };
        }
        let (key, number) = self.keys.write(&mut self.rng);
        let (key, number) = (Key::Int(key), i64::from(number));
        match self.kind {
            Kind::Lists => Mop::Append {
                key,
                element: number,
            },
            Kind::Registers => Mop::Write { key, value: number },
        }
    }

    fn draw(&mut self) -> Value {
        let length = self.length_min + self.rng.below(self.spread) as usize;
        Value::Txn((0..length).map(|_| self.draw_mop()).collect())
    }
}

impl Generator for Transactions {
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
        let kind = match self.kind {
            Kind::Lists => "list-append",
            Kind::Registers => "rw-register",
        };
        Tree::leaf(format!("{kind}, {} keys so far", self.keys.used()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use std::collections::{BTreeMap, BTreeSet};

    fn transactions(generator: Transactions, count: u64) -> Vec<Vec<Mop>> {
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
        for (kind, generator) in [
            (Kind::Lists, list_append(rng.clone(), options)),
            (Kind::Registers, rw_register(rng, options)),
        ] {
            let (mut last, mut keys, mut lengths) = (BTreeMap::new(), BTreeSet::new(), [0; 5]);
            let mut reads = 0;
            for txn in transactions(generator, 5_000) {
                lengths[txn.len()] += 1;
                for mop in &txn {
                    keys.insert(number(mop.key()));
                    let written = match (kind, mop) {
                        (Kind::Lists, Mop::Append { element, .. }) => *element,
                        (Kind::Registers, Mop::Write { value, .. }) => *value,
                        (_, Mop::Read { observed, .. }) => {
                            assert_eq!(*observed, Observed::Nil);
                            reads += 1;
                            continue;
                        }
                        (_, other) => panic!("{kind:?} has {other:?}"),
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
        for (distribution, wanted) in [
            (Distribution::Exponential, [8.0, 4.0, 2.0, 1.0]),
            (Distribution::ALL[1], [12.0, 6.0, 4.0, 3.0]),
            (Distribution::Uniform, [1.0; 4]),
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
            let sum: f64 = wanted.iter().sum();
            for (count, wanted) in counts.into_iter().zip(wanted) {
                let share = f64::from(count) / total;
                assert!((share - wanted / sum).abs() < 0.015, "{counts:?}");
            }
        }
    }
}
