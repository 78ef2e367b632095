//! Putting anomalies into a history.

use super::anomaly::{Anomaly, KEYS_MAX, MEMBERS_MAX, Member, Planted};
use super::options::{Options, Workload};
use seatrial_history::{Key, Mop, Observed, OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// An anomaly on its way.
#[derive(Debug)]
struct Current {
    anomaly: Anomaly,
    keys: [i64; KEYS_MAX],
    /// Which client plays which role.
    clients: [Option<u32>; MEMBERS_MAX],
    stage: u8,
    /// Bits of the members that were invoked.
    invoked: u8,
    /// Bits of the members that are over.
    done: u8,
}

/// What a client that could invoke something is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Whatever it likes.
    None,
    /// This operation of the anomaly.
    Invoke(usize),
    /// Wait for the others.
    Wait,
}

/// Chooses when anomalies begin and hands their operations to clients. There is at most one at a time.
#[derive(Debug)]
pub(super) struct Planting {
    workload: Workload,
    anomalies: Vec<Anomaly>,
    rate: f64,
    /// Operations that are left when each anomaly comes once, instead of at a rate.
    due: Option<u64>,
    current: Option<Current>,
    begun: usize,
    /// How many of each came to their end.
    counts: Vec<u64>,
}

impl Planting {
    pub(super) fn new(options: &Options) -> Planting {
        // A queue's anomalies are its own: it has one key.
        let is_queue = options.workload == Workload::Queue;
        Planting {
            workload: options.workload,
            anomalies: options.anomalies.clone(),
            rate: if is_queue { 0.0 } else { options.anomaly_rate },
            due: options
                .anomaly_at
                .map(|at| ((1.0 - at) * options.operations as f64) as u64),
            current: None,
            begun: 0,
            counts: vec![0; options.anomalies.len()],
        }
    }

    /// The anomalies and how many of each are complete.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Anomaly, u64)> {
        let counts = self.counts.iter().copied();
        self.anomalies.iter().copied().zip(counts)
    }

    /// Is an anomaly on its way?
    pub(super) const fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Begins an anomaly now and then, if it fits into as many operations as are left; how many it takes.
    pub(super) fn begin(&mut self, left: u64, rng: &mut Rng, mut key: impl FnMut() -> i64) -> u64 {
        if self.anomalies.is_empty() || self.is_busy() {
            return 0;
        }
        let is_time = match self.due {
            Some(due) => left <= due && self.begun < self.anomalies.len(),
            None => rng.chance(self.rate),
        };
        if !is_time {
            return 0;
        }
        let anomaly = self.anomalies[self.begun % self.anomalies.len()];
        let operations = 2 * anomaly.members().len() as u64;
        if operations > left {
            return 0;
        }
        self.begun += 1;
        self.current = Some(Current {
            anomaly,
            keys: std::array::from_fn(|_| key()),
            clients: [None; MEMBERS_MAX],
            stage: 0,
            invoked: 0,
            done: 0,
        });
        operations
    }

    /// What this client is to do.
    pub(super) fn part(&mut self, client: u32) -> Part {
        let Some(current) = &mut self.current else {
            return Part::None;
        };
        let role = current.clients.iter().position(|one| *one == Some(client));
        let members = current.anomaly.members().iter().enumerate();
        let mut open = members.filter(|(number, member)| {
            member.stage == current.stage && current.invoked & (1 << number) == 0
        });
        let fits = |member: &Member| {
            let player = current.clients[usize::from(member.role)];
            player == Some(client) || (player.is_none() && role.is_none())
        };
        match open.find(|(_, member)| fits(member)) {
            Some((number, member)) => {
                current.clients[usize::from(member.role)] = Some(client);
                current.invoked |= 1 << number;
                Part::Invoke(number)
            }
            None if role.is_some() => Part::Wait,
            None => Part::None,
        }
    }

    /// May this operation of the anomaly end? All of its stage must have begun.
    pub(super) fn may_end(&self, number: usize) -> bool {
        self.current.as_ref().is_some_and(|current| {
            let members = current.anomaly.members();
            let stage = members[number].stage;
            let mut same = members
                .iter()
                .enumerate()
                .filter(|one| one.1.stage == stage);
            same.all(|(other, _)| current.invoked & (1 << other) != 0)
        })
    }

    /// Is this operation of the anomaly the first of its process, and is it the last?
    pub(super) fn ends_of_process(&self, number: usize) -> (bool, bool) {
        let Some(current) = &self.current else {
            return (true, true);
        };
        let members = current.anomaly.members();
        let same = |member: &Member| member.role == members[number].role;
        (
            !members[..number].iter().any(same),
            !members[number + 1..].iter().any(same),
        )
    }

    /// The invocation of an operation of the anomaly.
    pub(super) fn invocation(&self, number: usize) -> (Symbol, Value) {
        self.operation(number, false)
            .unwrap_or((Symbol::new("txn"), Value::Nil))
    }

    /// Ends an operation of the anomaly: how, and with what.
    pub(super) fn end(&mut self, number: usize) -> (OpType, Value) {
        let fails = |current: &Current| current.anomaly.members()[number].fails;
        let fails = self.current.as_ref().is_some_and(fails);
        let value = self.operation(number, !fails);
        let value = value.map_or(Value::Nil, |operation| operation.1);
        if let Some(current) = &mut self.current {
            current.done |= 1 << number;
            let mut members = current.anomaly.members().iter().enumerate();
            let next = members.find(|(number, _)| current.done & (1 << number) == 0);
            if let Some((_, next)) = next {
                current.stage = next.stage;
            } else {
                let mut anomalies = self.anomalies.iter();
                let place = anomalies.position(|one| *one == current.anomaly);
                self.counts[place.unwrap_or_default()] += 1;
                self.current = None;
            }
        }
        (if fails { OpType::Fail } else { OpType::Ok }, value)
    }

    /// The `f` and value of an operation, before or after it took place.
    fn operation(&self, number: usize, is_done: bool) -> Option<(Symbol, Value)> {
        let current = self.current.as_ref()?;
        let micros = current.anomaly.members()[number].micros;
        let key = |number: u8| current.keys[usize::from(number)];
        if matches!(self.workload, Workload::ListAppend | Workload::RwRegister) {
            let mops: Arc<[Mop]> = micros
                .iter()
                .map(|micro| self.mop(micro, key, is_done))
                .collect();
            return Some((Symbol::new("txn"), Value::Txn(mops)));
        }
        // These workloads have one micro-operation each.
        let (name, number, value) = match (micros[0], self.workload) {
            (Planted::Write(number, value), Workload::Set) => ("add", number, Value::Int(value)),
            (Planted::Write(number, value), _) => ("write", number, Value::Int(value)),
            (Planted::Read(number, _), _) if !is_done => ("read", number, Value::Nil),
            (Planted::Read(number, seen), Workload::Set) => {
                let seen = seen.iter().copied().map(Value::Int);
                ("read", number, Value::Set(seen.collect()))
            }
            (Planted::Read(number, seen), _) => {
                let last = seen.last().copied();
                ("read", number, last.map_or(Value::Nil, Value::Int))
            }
        };
        let value = Value::Keyed(Key::Int(key(number)), Arc::new(value));
        Some((Symbol::new(name), value))
    }

    fn mop(&self, micro: &Planted, key: impl Fn(u8) -> i64, is_done: bool) -> Mop {
        let is_register = self.workload == Workload::RwRegister;
        match *micro {
            Planted::Write(number, value) => {
                let key = Key::Int(key(number));
                if is_register {
                    return Mop::Write { key, value };
                }
                Mop::Append {
                    key,
                    element: value,
                }
            }
            Planted::Read(number, seen) => Mop::Read {
                key: Key::Int(key(number)),
                observed: match seen.last() {
                    Some(&last) if is_done && is_register => Observed::Register(last),
                    Some(_) if is_done => Observed::List(seen.into()),
                    _ => Observed::Nil,
                },
            },
        }
    }
}
