//! Reads, writes and compare-and-sets of registers, many keys after one another.

use super::keys::{KeyOptions, keyed};
use crate::distribution::Places;
use crate::{Context, Distribution, Generator, Next, OnThreads, Tree};
use seatrial_history::{Key, Op, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::BTreeMap;

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

/// Endless operations on registers, values `[key value]`. The threads are divided into groups, each with keys of its own.
/// Every value written to a key is new (1, 2, 3, …), so that a read tells whose write it saw; a compare-and-set as a rule
/// expects the value that was seen last, so that it has a chance to succeed. Short histories per key keep the check for
/// linearizability cheap.
#[derive(Debug)]
pub struct Registers {
    rng: Rng,
    options: RegisterOptions,
    has_cas: bool,
    places: Places,
    /// By number of the first thread.
    groups: Vec<Group>,
    /// Where the keys in use are: group and place.
    live: BTreeMap<i64, (usize, usize)>,
    fresh: i64,
    /// The group that gave the last answer.
    winner: usize,
}

/// Threads that share keys.
#[derive(Debug, Default)]
struct Group {
    /// By place.
    registers: Vec<Register>,
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
            live: BTreeMap::new(),
            fresh: 0,
            winner: 0,
            options,
        }
    }

    /// A key that nobody has written to, at this place.
    fn register(&mut self, group: usize, place: usize) -> Register {
        let key = self.fresh;
        self.fresh += 1;
        self.live.insert(key, (group, place));
        Register {
            key,
            written: 0,
            seen: None,
            crashes: 0,
        }
    }

    /// Makes sure that there is a group of this number.
    fn found(&mut self, group: usize) {
        while self.groups.len() <= group {
            let number = self.groups.len();
            let places = 0..self.places.count();
            let registers = places.map(|place| self.register(number, place)).collect();
            self.groups.push(Group {
                registers,
                drawn: None,
            });
        }
    }

    fn draw(&mut self, group: usize) -> (Symbol, Value) {
        let place = self.places.draw(&mut self.rng);
        let register = &self.groups[group].registers[place];
        let writes_max = i64::from(self.options.keys.writes_per_key.max(1));
        if register.written >= writes_max || register.crashes >= self.options.crashes_per_key {
            self.live.remove(&register.key);
            let fresh = self.register(group, place);
            self.groups[group].registers[place] = fresh;
        }
        let register = &mut self.groups[group].registers[place];
        let (f, value) = register.draw(&mut self.rng, self.has_cas);
        (f, keyed(register.key, value))
    }
}

impl Register {
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
        let group = (thread.0 / self.options.threads_per_key.max(1)) as usize;
        self.found(group);
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
        let Some(&(group, place)) = self.live.get(key) else {
            return;
        };
        let register = &mut self.groups[group].registers[place];
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
        Tree::leaf(format!(
            "{name}, {} keys so far, {threads} threads each",
            self.fresh
        ))
    }
}

#[cfg(test)]
mod tests;
