//! Small random histories of registers, and what brute force needs to decide them.

use seatrial_history::{History, Key, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// What a small operation does. Values are unique; 0 is the initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmallAccess {
    Read(i64),
    Write(i64),
    Cas(i64, i64),
}

/// An operation of a small history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallOperation {
    pub(crate) process: u64,
    pub(crate) key: i64,
    pub(crate) access: SmallAccess,
    /// Event numbers of invocation and completion.
    pub(crate) call: u64,
    pub(crate) end: u64,
    pub(crate) outcome: OpType,
}

impl SmallOperation {
    pub(crate) fn read(&self) -> Option<i64> {
        match self.access {
            SmallAccess::Read(value) | SmallAccess::Cas(value, _) => Some(value),
            SmallAccess::Write(_) => None,
        }
    }

    pub(crate) fn written(&self) -> Option<i64> {
        match self.access {
            SmallAccess::Write(value) | SmallAccess::Cas(_, value) => Some(value),
            SmallAccess::Read(_) => None,
        }
    }

    pub(crate) fn is_certain(&self) -> bool {
        self.outcome == OpType::Ok
    }
}

/// What random histories are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallShape {
    pub(crate) operations: usize,
    pub(crate) processes: usize,
    pub(crate) keys: usize,
    pub(crate) has_cas: bool,
    /// Are some values written twice?
    pub(crate) has_repeats: bool,
    /// Does a read return a present value, unless it is spoilt? Otherwise any.
    pub(crate) spoil: f64,
    pub(crate) info: f64,
}

/// A random history: operations begin, take effect and end at random; some reads return another value.
pub(crate) fn random(rng: &mut Rng, shape: SmallShape) -> Vec<SmallOperation> {
    let mut store = RandomStore {
        all: Vec::new(),
        processes: (0..shape.processes as u64).collect(),
        open: vec![None; shape.processes],
        states: vec![0; shape.keys],
        values: vec![vec![0]; shape.keys],
        next_value: 1,
        event: 0,
    };
    loop {
        let is_done = store.all.len() == shape.operations;
        if is_done && store.open.iter().all(Option::is_none) {
            return store.all;
        }
        let client = rng.index(shape.processes);
        match store.open[client] {
            None if is_done => {}
            None => store.begin(rng, shape, client),
            Some((number, false)) => store.take_effect(rng, shape, client, number),
            Some((number, true)) => store.end(rng, shape, client, number),
        }
    }
}

/// Registers and their clients.
struct RandomStore {
    all: Vec<SmallOperation>,
    /// By client: its process.
    processes: Vec<u64>,
    /// By client: its open operation, and whether it took effect.
    open: Vec<Option<(usize, bool)>>,
    states: Vec<i64>,
    /// By key: all values so far.
    values: Vec<Vec<i64>>,
    next_value: i64,
    event: u64,
}

impl RandomStore {
    fn begin(&mut self, rng: &mut Rng, shape: SmallShape, client: usize) {
        let key = rng.index(shape.keys);
        let access = match rng.below(if shape.has_cas { 5 } else { 4 }) {
            0 | 1 => SmallAccess::Read(0),
            2 | 3 => SmallAccess::Write(self.value(rng, shape, key)),
            _ => {
                let from = *rng.pick(&self.values[key]);
                SmallAccess::Cas(from, self.value(rng, shape, key))
            }
        };
        self.open[client] = Some((self.all.len(), false));
        self.all.push(SmallOperation {
            process: self.processes[client],
            key: key as i64,
            access,
            call: self.event,
            end: self.event,
            outcome: OpType::Info,
        });
        self.event += 1;
    }

    /// A value to write.
    fn value(&mut self, rng: &mut Rng, shape: SmallShape, key: usize) -> i64 {
        let values = &mut self.values[key];
        let value = if shape.has_repeats && rng.chance(0.3) && values.len() > 1 {
            values[1 + rng.index(values.len() - 1)]
        } else {
            self.next_value += 1;
            self.next_value - 1
        };
        values.push(value);
        value
    }

    fn take_effect(&mut self, rng: &mut Rng, shape: SmallShape, client: usize, number: usize) {
        let operation = &mut self.all[number];
        let key = operation.key as usize;
        let is_spoilt = rng.chance(shape.spoil);
        match operation.access {
            SmallAccess::Read(_) => {
                let value = if is_spoilt {
                    *rng.pick(&self.values[key])
                } else {
                    self.states[key]
                };
                // Seldom, a value that was never written.
                let value = if rng.chance(0.003) { 999 } else { value };
                operation.access = SmallAccess::Read(value);
            }
            SmallAccess::Write(value) => self.states[key] = value,
            SmallAccess::Cas(from, to) => {
                let found = if is_spoilt { from } else { self.states[key] };
                operation.access = SmallAccess::Cas(found, to);
                self.states[key] = to;
            }
        }
        self.open[client] = Some((number, true));
    }

    fn end(&mut self, rng: &mut Rng, shape: SmallShape, client: usize, number: usize) {
        let operation = &mut self.all[number];
        operation.end = self.event;
        self.event += 1;
        self.open[client] = None;
        operation.outcome = if rng.chance(shape.info) {
            // Its process ends.
            self.processes[client] += shape.processes as u64;
            OpType::Info
        } else if rng.chance(0.03) {
            OpType::Fail
        } else {
            OpType::Ok
        };
    }
}

/// The history in the product's terms.
pub(crate) fn history(operations: &[SmallOperation], is_keyed: bool) -> History {
    let value = |value: i64| match value {
        0 => Value::Nil,
        value => Value::Int(value),
    };
    let mut events: Vec<(u64, Op)> = Vec::new();
    for operation in operations {
        let keyed = |value: Value| {
            if is_keyed {
                Value::Keyed(Key::Int(operation.key), Arc::new(value))
            } else {
                value
            }
        };
        let (f, invoked, completed) = match operation.access {
            SmallAccess::Read(read) => ("read", Value::Nil, value(read)),
            SmallAccess::Write(written) => ("write", value(written), value(written)),
            SmallAccess::Cas(0, to) => {
                let both = Value::List(Arc::new([Value::Nil, Value::Int(to)]));
                ("cas", both.clone(), both)
            }
            SmallAccess::Cas(from, to) => ("cas", Value::Cas(from, to), Value::Cas(from, to)),
        };
        let invocation = Op::invoke(Process::Client(operation.process), f, keyed(invoked));
        let completed = if operation.is_certain() {
            keyed(completed)
        } else {
            invocation.value.clone()
        };
        events.push((operation.call, invocation.clone()));
        events.push((
            operation.end,
            invocation.complete(operation.outcome, completed),
        ));
    }
    events.sort_by_key(|(event, _)| *event);
    let ops = events.into_iter();
    let ops = ops.map(|(event, op)| Op {
        time: event.cast_signed() * 10,
        ..op
    });
    History::from_unindexed(ops.collect())
}

/// Without the operations that say nothing: failed ones, and reads of unknown result.
pub(crate) fn effective(operations: &[SmallOperation]) -> Vec<SmallOperation> {
    let all = operations.iter().copied();
    all.filter(|operation| match operation.access {
        _ if operation.outcome == OpType::Fail => false,
        SmallAccess::Read(_) => operation.is_certain(),
        _ => true,
    })
    .collect()
}

/// Calls `take` for each choice of operations of unknown outcome that took effect, with the operations that then took place.
pub(crate) fn some_choice(
    operations: &[SmallOperation],
    mut holds: impl FnMut(&[SmallOperation]) -> bool,
) -> bool {
    let effective = effective(operations);
    let uncertain: Vec<usize> = (0..effective.len())
        .filter(|&at| !effective[at].is_certain())
        .collect();
    (0u32..1 << uncertain.len()).any(|choice| {
        let chosen = effective.iter().enumerate();
        let chosen = chosen.filter(|(at, operation)| {
            operation.is_certain()
                || uncertain
                    .iter()
                    .position(|it| it == at)
                    .is_some_and(|bit| choice >> bit & 1 == 1)
        });
        let chosen: Vec<SmallOperation> = chosen.map(|(_, operation)| *operation).collect();
        holds(&chosen)
    })
}
