//! Systems of all data types as models, and simulated tests of them.

use crate::locks_and_logs::Shared;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{
    Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation, phases,
};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// All data types at once; a broken one now and then forgets what it acknowledged, gives something twice, or shows what
/// was at the beginning.
#[derive(Default)]
struct Model {
    sets: BTreeMap<Option<Key>, Vec<i64>>,
    sums: BTreeMap<Option<Key>, i64>,
    queue: VecDeque<i64>,
    /// What was written to registers and lists, in order.
    written: BTreeMap<Key, Vec<i64>>,
    is_lists: bool,
    balances: BTreeMap<i64, i64>,
    identifier: i64,
    registers: BTreeMap<Key, i64>,
    rows: BTreeMap<Option<Key>, Vec<(i64, i64)>>,
    shared: Shared,
}

impl Model {
    fn new(name: &str) -> Model {
        let balances = (0..8).map(|account| (account, if account == 0 { 100 } else { 0 }));
        Model {
            balances: balances.collect(),
            is_lists: name == "list-append",
            ..Model::default()
        }
    }

    /// What a success shows; `None` when it fails.
    fn answer(&mut self, name: &str, op: &Op, is_broken: bool) -> Option<Value> {
        match name {
            "log" => return self.shared.log(op, is_broken),
            "long-fork" => return Some(self.registers(&op.value, is_broken)),
            _ => {}
        }
        if let Value::Txn(mops) = &op.value {
            let mops = mops.iter().map(|mop| self.micro(mop, is_broken));
            return Some(Value::Txn(mops.collect()));
        }
        let (key, value) = unkeyed(&op.value);
        let answer = match (name, op.f.as_str()) {
            ("register" | "cas-register", _) => {
                let written = self.written.entry(key.clone()?).or_default();
                let now = written.last().copied().filter(|_| !is_broken);
                match value {
                    Value::Nil => return Some(keyed(key, now.map_or(Value::Nil, Value::Int))),
                    Value::Cas(from, _) if now != Some(from) => return None,
                    Value::Cas(_, to) | Value::Int(to) => written.push(to),
                    other => panic!("{other}"),
                }
                value
            }
            ("set", "read") => Value::integers(self.sets.entry(key.clone()).or_default()),
            ("set", _) if is_broken => value,
            ("set", _) => {
                let set = self.sets.entry(key.clone()).or_default();
                set.push(value.as_int()?);
                value
            }
            ("counter", "read") => Value::Int(*self.sums.entry(key.clone()).or_default()),
            ("counter", _) if is_broken => value,
            ("counter", _) => {
                *self.sums.entry(key.clone()).or_default() += value.as_int()?;
                value
            }
            ("bank", "read") => {
                let balances: Vec<_> = self.balances.clone().into_iter().collect();
                Value::balances(&balances)
            }
            ("bank", _) => {
                let transfer = value.as_transfer()?;
                if self.balances[&transfer.from] < transfer.amount {
                    return None;
                }
                *self.balances.get_mut(&transfer.from)? -= transfer.amount;
                if !is_broken {
                    *self.balances.get_mut(&transfer.to)? += transfer.amount;
                }
                value
            }
            ("unique-ids", _) => {
                self.identifier += i64::from(!is_broken);
                Value::Int(self.identifier)
            }
            ("mutex" | "lock", _) => self.shared.lock(key.clone(), op, is_broken)?,
            ("monotonic", f) => self.table(key.clone(), f, is_broken),
            (_, "drain") => Value::integers(&self.queue.drain(..).collect::<Vec<_>>()),
            (_, "enqueue") => {
                if !is_broken {
                    self.queue.push_back(value.as_int()?);
                }
                value
            }
            _ if is_broken => Value::Int(*self.queue.front()?),
            _ => Value::Int(self.queue.pop_front()?),
        };
        Some(keyed(key, answer))
    }

    fn micro(&mut self, mop: &Mop, is_broken: bool) -> Mop {
        let written = self.written.entry(mop.key().clone()).or_default();
        match mop {
            Mop::Append { element, .. } => written.push(*element),
            Mop::Write { value, .. } => written.push(*value),
            Mop::Read { key, .. } => {
                let seen: &[i64] = if is_broken { &[] } else { written };
                let observed = match (self.is_lists, seen.last()) {
                    (true, _) => Observed::List(seen.into()),
                    (false, Some(last)) => Observed::Register(*last),
                    (false, None) => Observed::Nil,
                };
                return Mop::Read {
                    key: key.clone(),
                    observed,
                };
            }
        }
        mop.clone()
    }
}

fn keyed(key: Option<Key>, value: Value) -> Value {
    match key {
        Some(key) => Value::Keyed(key, value.into()),
        None => value,
    }
}

impl Model {
    /// A table; the clock of a broken one is late.
    fn table(&mut self, key: Option<Key>, f: &str, is_broken: bool) -> Value {
        let rows = self.rows.entry(key).or_default();
        if f == "read" {
            let mut rows = rows.clone();
            rows.sort_by_key(|(_, stamp)| *stamp);
            let rows = rows.iter().map(|(number, stamp)| row(*number, *stamp));
            return Value::List(rows.collect());
        }
        self.identifier += 1;
        let number = rows.last().map_or(0, |(number, _)| number + 1);
        let late = if is_broken { 1_000 } else { 0 };
        rows.push((number, 10_000 + self.identifier - late));
        row(number, 10_000 + self.identifier - late)
    }

    /// A transaction on registers; a broken one misses a write that others have seen.
    fn registers(&mut self, value: &Value, is_broken: bool) -> Value {
        let mut unseen = is_broken;
        let mops = value.as_txn().unwrap().iter().map(|mop| match mop {
            Mop::Write { key, value } => {
                self.registers.insert(key.clone(), *value);
                mop.clone()
            }
            Mop::Read { key, .. } => {
                let known = self.registers.get(key);
                let is_missed = known.is_some() && std::mem::take(&mut unseen);
                let known = known.filter(|_| !is_missed);
                let observed = known.map_or(Observed::Nil, |known| Observed::Register(*known));
                let key = key.clone();
                Mop::Read { key, observed }
            }
            Mop::Append { .. } => mop.clone(),
        });
        Value::Txn(mops.collect())
    }
}

fn unkeyed(value: &Value) -> (Option<Key>, Value) {
    match value {
        Value::Keyed(key, value) => (Some(key.clone()), (**value).clone()),
        value => (None, value.clone()),
    }
}

fn row(number: i64, stamp: i64) -> Value {
    let field = |name: &'static str, number| (Value::Word(Symbol::new(name)), Value::Int(number));
    Value::Map([field("val", number), field("sts", stamp)].into())
}

/// A test of `operations` operations of the workload; one in `broken_every` gets a wrong answer.
pub(crate) fn run(name: &'static str, seed: u64, broken_every: u64, operations: u64) -> History {
    let rng = Rng::from_seed(seed);
    let workload = Workload::new(name, &rng, &WorkloadOptions::default()).unwrap();
    let clients = workload.generator.limit(operations).clients().boxed();
    let generator = phases([Some(clients), workload.last].into_iter().flatten());
    let options = InterpreterOptions::new(5, rng.fork("interpreter"));
    let (mut model, mut rng) = (Model::new(name), rng.fork("model"));
    let client = move |op: &Op| {
        let latency = rng.duration_below(Duration::from_millis(10));
        let is_drain = op.f == "drain";
        let fate = rng.below(40);
        if fate == 0 && !is_drain {
            return SimulatedReply::After(latency, OpType::Info, Value::Nil);
        }
        if fate == 1 {
            return SimulatedReply::After(latency, OpType::Fail, op.value.clone());
        }
        let is_broken = rng.below(broken_every) == 0;
        match model.answer(name, op, is_broken) {
            Some(value) => SimulatedReply::After(latency, OpType::Ok, value),
            None => SimulatedReply::After(latency, OpType::Fail, op.value.clone()),
        }
    };
    let interpreter = Interpreter::new(generator, &options);
    Simulation::new(interpreter, client).run().unwrap()
}
