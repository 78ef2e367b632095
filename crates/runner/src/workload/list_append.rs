//! Transactions of reads and appends on lists: Elle's workload.

use seatrial_generator::{Context, Generator, Next, Tree};
use seatrial_history::{Key, Mop, Observed, Op, Symbol, Value};
use seatrial_machine::Rng;

/// Which of the active keys a micro-operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDistribution {
    /// Each key half as often as the next: many transactions meet on few keys, and all rates of contention occur.
    Exponential,
    /// All alike.
    Uniform,
}

/// The shape of the transactions.
#[derive(Clone, Copy, Debug)]
pub struct ListAppendOptions {
    /// Keys in use at any time.
    pub key_count: usize,
    /// How often which key is used.
    pub distribution: KeyDistribution,
    /// Fewest micro-operations of a transaction.
    pub transaction_length_min: usize,
    /// Most micro-operations of a transaction.
    pub transaction_length_max: usize,
    /// A key to which so much was appended retires, and a fresh one takes its place: lists stay short.
    pub writes_per_key_max: i64,
}

/// Elle's: ten keys, exponential, one to four micro-operations, 32 appends per key.
impl Default for ListAppendOptions {
    fn default() -> ListAppendOptions {
        ListAppendOptions {
            key_count: 10,
            distribution: KeyDistribution::Exponential,
            transaction_length_min: 1,
            transaction_length_max: 4,
            writes_per_key_max: 32,
        }
    }
}

/// A key in use.
#[derive(Clone, Copy, Debug)]
struct ActiveKey {
    key: i64,
    /// The elements 1 to this have been handed out.
    appended: i64,
}

/// Endless transactions `txn` of reads and appends. Keys are integers from 0 on, never used again once retired; the
/// elements appended to a key are 1, 2, 3, …, each handed out once, so that every read tells who wrote before whom
/// (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB 2020).
#[derive(Debug)]
pub struct ListAppend {
    rng: Rng,
    options: ListAppendOptions,
    /// The keys in use, the least used first (if exponential).
    active: Vec<ActiveKey>,
    fresh_key: i64,
    /// The transaction that comes next; kept until it is taken.
    drawn: Option<Value>,
}

/// The operation's name.
const TXN: Symbol = Symbol::new("txn");

impl ListAppend {
    /// The workload with these options, its choices drawn from `rng`.
    pub fn new(rng: Rng, options: ListAppendOptions) -> ListAppend {
        let count = options.key_count.max(1) as i64;
        let active = (0..count)
            .map(|key| ActiveKey { key, appended: 0 })
            .collect();
        ListAppend {
            rng,
            options,
            active,
            fresh_key: count,
            drawn: None,
        }
    }

    /// The place of the key that comes next.
    fn draw_key(&mut self) -> usize {
        let count = self.active.len();
        match self.options.distribution {
            KeyDistribution::Uniform => self.rng.index(count),
            // The number of leading zeros of a random word is n with probability 2^-(n+1).
            KeyDistribution::Exponential => loop {
                let rank = self.rng.word().leading_zeros() as usize;
                if rank < count {
                    return count - 1 - rank;
                }
            },
        }
    }

    fn draw_mop(&mut self) -> Mop {
        let place = self.draw_key();
        let is_read = self.rng.word() >> 63 == 0;
        let active = &mut self.active[place];
        if is_read {
            return Mop::Read {
                key: Key::Int(active.key),
                observed: Observed::Nil,
            };
        }
        if active.appended >= self.options.writes_per_key_max {
            *active = ActiveKey {
                key: self.fresh_key,
                appended: 0,
            };
            self.fresh_key += 1;
        }
        active.appended += 1;
        Mop::Append {
            key: Key::Int(active.key),
            element: active.appended,
        }
    }

    fn draw(&mut self) -> Value {
        let shortest = self.options.transaction_length_min;
        let spread = self.options.transaction_length_max.saturating_sub(shortest) as u64;
        let length = shortest + self.rng.below(spread + 1) as usize;
        Value::Txn((0..length).map(|_| self.draw_mop()).collect())
    }
}

impl Generator for ListAppend {
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
        Tree::leaf(format!("list-append, {} keys so far", self.fresh_key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_generator::Simulation;
    use std::collections::{BTreeMap, BTreeSet};

    fn transactions(options: ListAppendOptions, count: u64) -> Vec<Vec<Mop>> {
        let generator = ListAppend::new(Rng::from_seed(5), options)
            .limit(count)
            .clients();
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
        let options = ListAppendOptions {
            key_count: 3,
            ..ListAppendOptions::default()
        };
        let (mut last, mut keys, mut lengths) = (BTreeMap::new(), BTreeSet::new(), [0; 5]);
        for txn in transactions(options, 5_000) {
            lengths[txn.len()] += 1;
            for mop in &txn {
                keys.insert(number(mop.key()));
                if let Mop::Append { key, element } = mop {
                    let before = last.insert(number(key), *element).unwrap_or(0);
                    assert_eq!(*element, before + 1);
                    assert!(*element <= 32);
                }
            }
        }
        assert!(keys.len() > 100, "{} keys", keys.len());
        let retired = last.values().filter(|&&count| count == 32).count();
        assert_eq!(retired, last.len() - 3);
        assert!(
            lengths[0] == 0 && lengths[1..].iter().all(|&count| count > 1_000),
            "{lengths:?}"
        );
    }

    #[test]
    fn keys_have_their_distribution() {
        let count = |distribution| {
            let writes_per_key_max = i64::MAX;
            let options = ListAppendOptions {
                key_count: 4,
                distribution,
                writes_per_key_max,
                ..<_>::default()
            };
            let mut counts = [0_u32; 4];
            for txn in transactions(options, 8_000) {
                for mop in &txn {
                    counts[number(mop.key()) as usize] += 1;
                }
            }
            let total: u32 = counts.iter().sum();
            counts.map(|count| f64::from(count) / f64::from(total))
        };
        let near = |shares: [f64; 4], wanted: [f64; 4]| {
            shares
                .iter()
                .zip(wanted)
                .all(|(share, wanted)| (share - wanted).abs() < 0.015)
        };
        let exponential = count(KeyDistribution::Exponential);
        assert!(
            near(
                exponential,
                [1.0 / 15.0, 2.0 / 15.0, 4.0 / 15.0, 8.0 / 15.0]
            ),
            "{exponential:?}"
        );
        let uniform = count(KeyDistribution::Uniform);
        assert!(near(uniform, [0.25; 4]), "{uniform:?}");
    }
}
