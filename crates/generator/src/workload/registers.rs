//! Reads, writes and compare-and-sets of registers, many keys after one another.

use super::keys::{KeyOptions, keyed};
use crate::distribution::Places;
use crate::{Context, Distribution, Generator, Next, OnThreads, Thread, Tree};
use seatrial_history::{Key, Op, Symbol, Value};
use seatrial_machine::Rng;

/// How the registers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterOptions {
    /// Client threads that share keys, so that few operations on one key are open at a time.
    pub threads_per_key: u32,
    /// The keys of each group of threads; compare-and-sets count as writes.
    pub keys: KeyOptions,
    /// A key is given up after so many operations on it crashed: each leaves an operation open for ever, and the search
    /// for a linearization is exponential in those.
    pub crashes_per_key: u32,
}

/// Three threads, one key at a time of 90 writes (150 operations, in the mean), and six crashes per key.
impl Default for RegisterOptions {
    fn default() -> RegisterOptions {
        RegisterOptions {
            threads_per_key: 3,
            keys: KeyOptions {
                count: 1,
                distribution: Distribution::Exponential,
                writes_per_key: 90,
            },
            crashes_per_key: 6,
        }
    }
}

/// Endless operations on registers, values `[key value]`. The threads are divided into groups, each with keys and a random
/// stream of its own: of `n` groups the first has the keys 0, n, 2n, …, whatever the others do, and how fast.
/// Every value written to a key is new (1, 2, 3, …), so that a read tells whose write it saw; a compare-and-set as a rule
/// expects the value that was seen last, so that it has a chance to succeed. Short histories per key keep the check for
/// linearizability cheap.
#[derive(Debug)]
pub struct Registers {
    rng: Rng,
    options: RegisterOptions,
    has_cas: bool,
    places: Places,
    /// By number of the first thread; empty before the threads are known.
    groups: Vec<Group>,
    /// The group that gave the last answer.
    winner: usize,
}

/// Threads that share keys.
#[derive(Debug)]
struct Group {
    rng: Rng,
    /// By place.
    registers: Vec<Register>,
    /// The next key.
    fresh: i64,
    /// The operation that comes next; kept until it is taken.
    drawn: Option<(Symbol, Value)>,
}

/// One key.
#[derive(Debug)]
struct Register {
    key: i64,
    /// The last value handed out to a write.
    written: i64,
    /// The value that a completed operation showed last.
    seen: Option<i64>,
    crashes: u32,
}

const READ: Symbol = Symbol::new("read");
const WRITE: Symbol = Symbol::new("write");
const CAS: Symbol = Symbol::new("cas");

/// Chance that a compare-and-set expects what was seen last rather than any value written so far.
const SEEN_CHANCE: f64 = 0.8;

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
            winner: 0,
            options,
        }
    }

    /// The group of this thread. The threads that are seen first tell how many groups there are.
    fn group_of(&mut self, thread: Thread, context: &Context) -> usize {
        let number = |thread: Thread| (thread.0 / self.options.threads_per_key.max(1)) as usize;
        if self.groups.is_empty() {
            let count = context.threads().map(number).max().unwrap_or(0) + 1;
            let place = |key| Register::new((key * count) as i64);
            let group = |group: usize| Group {
                rng: self.rng.fork(&format!("group {group}")),
                registers: (0..self.places.count()).map(place).collect(),
                fresh: (self.places.count() * count) as i64,
                drawn: None,
            };
            self.groups = (0..count).map(group).collect();
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
            *register = Register::new(group.fresh);
            group.fresh += stride;
        }
        let (f, value) = register.draw(&mut group.rng, self.has_cas);
        (f, keyed(register.key, value))
    }
}

impl Register {
    /// A key that nobody has written to.
    const fn new(key: i64) -> Register {
        Register {
            key,
            written: 0,
            seen: None,
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
        let expected = match self.seen {
            Some(seen) if rng.chance(SEEN_CHANCE) => seen,
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
        self.winner = group;
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
        self.groups[self.winner].drawn = None;
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
                register.seen = Some(value);
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
