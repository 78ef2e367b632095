//! The workloads `register` and `cas-register`: reads, writes and compare-and-sets, on many keys in turn.

use super::rotating_keys::{KeyOptions, keyed};
use crate::key_distribution::Places;
use crate::{Context, Generator, KeyDistribution, Next, OnThreads, Thread, Tree};
use seatrial_history::{Key, Op, Symbol, Value};
use seatrial_machine::Rng;

/// Groups of threads, and the keys of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterOptions {
    /// Number of client threads that share keys. It bounds the number of concurrent operations on one key.
    pub threads_per_key: u32,
    /// The keys of each group of threads; compare-and-sets count as writes.
    pub keys: KeyOptions,
    /// Number of crashed operations after which a key is abandoned: each stays open forever, and the search for a
    /// linearization is exponential in their number.
    pub crashes_per_key: u32,
}

/// Three threads, one key at a time of 90 writes (150 operations, in the mean), and six crashes per key.
impl Default for RegisterOptions {
    fn default() -> RegisterOptions {
        RegisterOptions {
            threads_per_key: 3,
            keys: KeyOptions {
                count: 1,
                distribution: KeyDistribution::Exponential,
                writes_per_key: 90,
            },
            crashes_per_key: 6,
        }
    }
}

/// Endless operations on registers, with values `[key value]`.
///
/// The threads are divided into groups, each with keys and a random stream of its own: of `n` groups the first has the keys
/// 0, n, 2n, …, independent of the operations and the speed of the others. Every value written to a key is new (1, 2, 3,
/// …), so that a read identifies its write. A compare-and-set usually expects the value observed last, so that it can
/// succeed. Short histories per key keep the check for linearizability cheap.
#[derive(Debug)]
pub struct Registers {
    rng: Rng,
    options: RegisterOptions,
    has_cas: bool,
    places: Places,
    /// The groups in the order of their threads; empty before the first context.
    groups: Vec<RegisterGroup>,
    /// The group whose operation was returned last.
    chosen: usize,
}

/// Threads that share keys.
#[derive(Debug)]
struct RegisterGroup {
    rng: Rng,
    /// The keys in use, by place.
    registers: Vec<RegisterKey>,
    /// The next fresh key.
    fresh: i64,
    /// The next operation; kept until it is committed.
    drawn: Option<(Symbol, Value)>,
}

/// The state of one key.
#[derive(Debug)]
struct RegisterKey {
    key: i64,
    /// The value of the last write; 0 before the first.
    written: i64,
    /// The value observed last by a completed operation.
    observed: Option<i64>,
    /// Number of crashed operations.
    crashes: u32,
}

const READ: Symbol = Symbol::new("read");
const WRITE: Symbol = Symbol::new("write");
const CAS: Symbol = Symbol::new("cas");

/// Probability that a compare-and-set expects the value observed last, rather than any value written so far.
const OBSERVED_PROBABILITY: f64 = 0.8;

/// Endless `read`s (two fifths) and `write`s of registers.
pub fn registers(rng: Rng, options: RegisterOptions) -> OnThreads<Registers> {
    Registers::new(rng, options, false).clients()
}

/// Endless `read`s (two fifths), `write`s and `cas`es of registers.
pub fn cas_registers(rng: Rng, options: RegisterOptions) -> OnThreads<Registers> {
    Registers::new(rng, options, true).clients()
}

impl Registers {
    fn new(rng: Rng, options: RegisterOptions, has_cas: bool) -> Registers {
        Registers {
            rng,
            has_cas,
            places: Places::new(options.keys.count, options.keys.distribution),
            groups: Vec::new(),
            chosen: 0,
            options,
        }
    }

    /// The group of this thread. The first call makes the groups, from the threads of its context.
    fn group_of(&mut self, thread: Thread, context: &Context) -> usize {
        let number = |thread: Thread| (thread.0 / self.options.threads_per_key.max(1)) as usize;
        if self.groups.is_empty() {
            let count = context.threads().map(number).max().unwrap_or(0) + 1;
            let place = |key| RegisterKey::new((key * count) as i64);
            let group = |group: usize| RegisterGroup {
                rng: self.rng.fork(&format!("group {group}")),
                registers: (0..self.places.count()).map(place).collect(),
                fresh: (self.places.count() * count) as i64,
                drawn: None,
            };
            self.groups = (0..count).map(group).collect();
            // The keys of a group are congruent to its number modulo `count`; `update` relies on that.
            for (number, group) in (0..).zip(&mut self.groups) {
                group.fresh += number;
                for register in &mut group.registers {
                    register.key += number;
                }
            }
        }
        number(thread) % self.groups.len()
    }

    fn draw(&mut self, group: usize) -> (Symbol, Value) {
        let stride = self.groups.len() as i64;
        let group = &mut self.groups[group];
        let register = &mut group.registers[self.places.draw(&mut group.rng)];
        let writes_max = i64::from(self.options.keys.writes_per_key.max(1));
        if register.written >= writes_max || register.crashes >= self.options.crashes_per_key {
            *register = RegisterKey::new(group.fresh);
            group.fresh += stride;
        }
        let (f, value) = register.draw(&mut group.rng, self.has_cas);
        (f, keyed(register.key, value))
    }
}

impl RegisterKey {
    /// A key without writes.
    const fn new(key: i64) -> RegisterKey {
        RegisterKey {
            key,
            written: 0,
            observed: None,
            crashes: 0,
        }
    }

    fn draw(&mut self, rng: &mut Rng, has_cas: bool) -> (Symbol, Value) {
        let choice = rng.below(10);
        if choice < 4 {
            return (READ, Value::Nil);
        }
        let before = self.written;
        self.written += 1;
        if !has_cas || choice >= 7 {
            return (WRITE, Value::Int(self.written));
        }
        let expected = match self.observed {
            Some(observed) if rng.chance(OBSERVED_PROBABILITY) => observed,
            _ if before > 0 => 1 + rng.below(before as u64) as i64,
            _ => return (WRITE, Value::Int(self.written)),
        };
        (CAS, Value::Cas(expected, self.written))
    }
}

impl Generator for Registers {
    fn next(&mut self, context: &Context) -> Next {
        let Some(thread) = context.some_free_thread() else {
            return Next::Pending;
        };
        let group = self.group_of(thread, context);
        self.chosen = group;
        if self.groups[group].drawn.is_none() {
            self.groups[group].drawn = Some(self.draw(group));
        }
        match &self.groups[group].drawn {
            Some((f, value)) => {
                Next::Op(context.operation_by(context.process_of(thread), *f, value.clone()))
            }
            None => Next::Pending,
        }
    }

    fn commit(&mut self) {
        self.groups[self.chosen].drawn = None;
    }

    fn update(&mut self, _context: &Context, event: &Op) {
        if event.is_invoke() {
            return;
        }
        let Value::Keyed(Key::Int(key), value) = &event.value else {
            return;
        };
        let count = self.groups.len().max(1);
        let group = usize::try_from(*key).map_or(0, |key| key % count);
        let registers = self.groups.get_mut(group).map(|group| &mut group.registers);
        let mut registers = registers.into_iter().flatten();
        let Some(register) = registers.find(|register| register.key == *key) else {
            return;
        };
        match **value {
            _ if event.is_info() => register.crashes += 1,
            Value::Int(value) | Value::Cas(_, value) if event.is_ok() => {
                register.observed = Some(value);
            }
            _ => {}
        }
    }

    fn tree(&self) -> Tree {
        let name = if self.has_cas {
            "cas-register"
        } else {
            "register"
        };
        let threads = self.options.threads_per_key;
        let groups = self.groups.len();
        Tree::leaf(format!("{name}, {groups} groups of {threads} threads"))
    }
}

#[cfg(test)]
mod tests;
