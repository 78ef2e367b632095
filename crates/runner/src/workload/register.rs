//! Reads, writes and compare-and-sets of registers, many keys after one another.

use seatrial_generator::{
    ConcurrentKeys, Context, Generator, Limit, Next, OnThreads, ProcessLimit, Tree, concurrent_keys,
};
use seatrial_history::{Key, Op, Symbol, Value};
use seatrial_machine::Rng;

/// How the registers are used.
#[derive(Clone, Copy, Debug)]
pub struct RegisterOptions {
    /// Client threads that work on one key together.
    pub threads_per_key: u32,
    /// Most operations on one key; the next keys get up to a tenth fewer, so that they do not all change at once.
    pub operations_per_key: u64,
    /// A key is given up before so many processes more than its threads have worked on it: each crash leaves an
    /// operation open for ever, and the search for a linearization is exponential in those.
    pub crashes_per_key: u64,
}

/// Three threads, 150 operations and six crashes per key.
impl Default for RegisterOptions {
    fn default() -> RegisterOptions {
        RegisterOptions {
            threads_per_key: 3,
            operations_per_key: 150,
            crashes_per_key: 6,
        }
    }
}

/// All the keys there are.
type Keys = std::iter::Map<std::ops::RangeFrom<i64>, fn(i64) -> Key>;

/// Makes the generator of a key.
type MakeKey = Box<dyn FnMut(&Key) -> ProcessLimit<Limit<Register>> + Send>;

/// Endless registers, one key per group of threads at a time: operations `read`, `write` and `cas` with values
/// `[key value]`. Short histories per key keep the check for linearizability cheap.
pub fn registers(
    mut rng: Rng,
    options: RegisterOptions,
) -> OnThreads<ConcurrentKeys<Keys, MakeKey, ProcessLimit<Limit<Register>>>> {
    let make: MakeKey = Box::new(move |_key| {
        let fewer = rng.below(options.operations_per_key / 10 + 1);
        let register = Register::new(Rng::from_seed(rng.word()));
        let processes = u64::from(options.threads_per_key) + options.crashes_per_key;
        register
            .limit(options.operations_per_key - fewer)
            .process_limit(processes)
    });
    let keys: Keys = (0_i64..).map(Key::Int as fn(i64) -> Key);
    concurrent_keys(options.threads_per_key, keys, make)
}

/// Endless operations on one register. Every written value is new (1, 2, 3, …), so that a read tells whose write it
/// saw; a compare-and-set as a rule expects the value that was seen last, so that it has a chance to succeed.
#[derive(Debug)]
pub struct Register {
    rng: Rng,
    /// The last value handed out to a write.
    written: i64,
    /// The value that a completed operation showed last.
    seen: Option<i64>,
    /// The operation that comes next; kept until it is taken.
    drawn: Option<(Symbol, Value)>,
}

const READ: Symbol = Symbol::new("read");
const WRITE: Symbol = Symbol::new("write");
const CAS: Symbol = Symbol::new("cas");

/// Chance that a compare-and-set expects what was seen last rather than any value written so far.
const SEEN_CHANCE: f64 = 0.8;

impl Register {
    /// A register that nobody has written to.
    pub fn new(rng: Rng) -> Register {
        Register {
            rng,
            written: 0,
            seen: None,
            drawn: None,
        }
    }

    fn draw(&mut self) -> (Symbol, Value) {
        let choice = self.rng.below(10);
        if choice < 4 {
            return (READ, Value::Nil);
        }
        let before = self.written;
        self.written += 1;
        let expected = match self.seen {
            Some(seen) if self.rng.chance(SEEN_CHANCE) => Some(seen),
            _ if before > 0 => Some(1 + self.rng.below(before as u64) as i64),
            _ => None,
        };
        match expected {
            Some(expected) if choice < 7 => (CAS, Value::Cas(expected, self.written)),
            _ => (WRITE, Value::Int(self.written)),
        }
    }
}

impl Generator for Register {
    fn next(&mut self, context: &Context) -> Next {
        if self.drawn.is_none() {
            self.drawn = Some(self.draw());
        }
        match &self.drawn {
            Some((f, value)) => context.operation(*f, value.clone()),
            None => Next::Pending,
        }
    }

    fn commit(&mut self) {
        self.drawn = None;
    }

    fn update(&mut self, _context: &Context, event: &Op) {
        if event.is_ok() {
            match event.value {
                Value::Int(value) | Value::Cas(_, value) => self.seen = Some(value),
                _ => {}
            }
        }
    }

    fn tree(&self) -> Tree {
        Tree::leaf(format!("register, {} values written", self.written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_checker::Validity;
    use seatrial_generator::{Answer, Interpreter, InterpreterOptions, Simulation};
    use seatrial_history::{History, OpType};
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    /// A client whose registers are perfect; one operation in `crash_every` crashes without a trace.
    fn run(threads: u32, count: u64, crash_every: u64) -> History {
        run_stale(threads, count, crash_every, u64::MAX)
    }

    /// The same, but one read in `stale_every` sees the value before the last.
    fn run_stale(threads: u32, count: u64, crash_every: u64, stale_every: u64) -> History {
        let generator = registers(Rng::from_seed(3), RegisterOptions::default()).limit(count);
        let options = InterpreterOptions::new(threads, Rng::from_seed(3));
        let mut registers: BTreeMap<Key, (i64, i64)> = BTreeMap::new();
        let mut rng = Rng::from_seed(8);
        let client = move |op: &Op| {
            let Value::Keyed(key, value) = &op.value else {
                panic!("{op}")
            };
            let (before, now) = registers.entry(key.clone()).or_default();
            let keyed = |value| Value::Keyed(key.clone(), std::sync::Arc::new(value));
            let latency = rng.duration_below(Duration::from_millis(10));
            if rng.below(crash_every) == 0 {
                return Answer::After(latency, OpType::Info, op.value.clone());
            }
            let (kind, value) = match **value {
                Value::Nil => {
                    let stale = rng.below(stale_every) == 0;
                    let seen = if stale { *before } else { *now };
                    let value = (seen != 0).then_some(Value::Int(seen));
                    (OpType::Ok, value.unwrap_or_default())
                }
                Value::Cas(old, _) if *now != old => (OpType::Fail, (**value).clone()),
                Value::Int(new) | Value::Cas(_, new) => {
                    (*before, *now) = (*now, new);
                    (OpType::Ok, (**value).clone())
                }
                ref other => panic!("{other}"),
            };
            Answer::After(latency, kind, keyed(value))
        };
        Simulation::new(Interpreter::new(generator, &options), client)
            .run()
            .unwrap()
    }

    fn key(op: &Op) -> i64 {
        match &op.value {
            Value::Keyed(Key::Int(key), _) => *key,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn few_threads_share_a_key_and_leave_it_in_time() {
        let history = run(10, 20_000, u64::MAX);
        let mut keys: BTreeMap<i64, (u64, BTreeSet<_>)> = BTreeMap::new();
        for op in history.iter().filter(|op| op.is_invoke()) {
            let entry = keys.entry(key(op)).or_default();
            entry.0 += 1;
            entry.1.insert(op.process);
        }
        assert!(keys.len() > 130, "{} keys", keys.len());
        assert!(
            keys.values()
                .all(|(count, threads)| *count <= 150 && threads.len() <= 3)
        );
        let done = keys.values().filter(|(count, _)| *count >= 135).count();
        assert!(done >= keys.len() - 4, "only the last keys are unfinished");
    }

    #[test]
    fn written_values_are_new_and_many_swaps_succeed() {
        let history = run(6, 6_000, u64::MAX);
        let mut written = BTreeSet::new();
        let (mut swaps, mut swapped) = (0, 0);
        for op in &history {
            let Value::Keyed(_, value) = &op.value else {
                panic!()
            };
            let new = match **value {
                Value::Int(new) if op.f == "write" => new,
                Value::Cas(_, new) => new,
                _ => continue,
            };
            if op.is_invoke() {
                assert!(written.insert((key(op), new)), "{op}");
            }
            swaps += u32::from(op.f == "cas" && op.is_invoke());
            swapped += u32::from(op.f == "cas" && op.is_ok());
        }
        assert!(
            swaps > 1_000 && swapped * 10 > swaps * 3,
            "{swapped} of {swaps}"
        );
    }

    #[test]
    fn crashes_end_a_key_early() {
        let history = run(6, 3_000, 10);
        let mut crashes: BTreeMap<i64, u64> = BTreeMap::new();
        for op in history.iter().filter(|op| op.is_info()) {
            *crashes.entry(key(op)).or_default() += 1;
        }
        // The last crash of a key may be followed by those of operations that were already open.
        assert!(crashes.values().all(|&count| count <= 6 + 3), "{crashes:?}");
        assert!(crashes.len() > 30);
    }

    #[test]
    fn the_checker_tells_sound_registers_from_stale_ones() {
        let judge = |history: &History| {
            let checkers = seatrial_checker::for_workload("register", None).unwrap();
            seatrial_checker::compose(&checkers, history).valid
        };
        assert_eq!(judge(&run(6, 2_000, 40)), Validity::Valid);
        assert_eq!(judge(&run_stale(6, 2_000, 40, 20)), Validity::Invalid);
    }
}
