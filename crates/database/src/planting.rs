//! Planting of anomalies: when one begins, and which client runs which of its operations.

use super::data_types::PERMITS;
use super::database_options::{DatabaseOptions, DatabaseWorkload};
use super::planted_anomaly::{Anomaly, KEYS_MAX, MEMBERS_MAX, Member, PlantedMop};
use seatrial_history::{Key, Mop, Observed, OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// The anomaly that is being planted.
#[derive(Debug)]
struct CurrentAnomaly {
    anomaly: Anomaly,
    keys: [i64; KEYS_MAX],
    /// By role: its client, once assigned.
    clients: [Option<u32>; MEMBERS_MAX],
    stage: u8,
    /// Bitmap of the members that were invoked.
    invoked: u8,
    /// Bitmap of the members that have completed; a subset of `invoked`.
    done: u8,
}

/// The part of a free client in the current anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantingTurn {
    /// None: it runs an operation of its own.
    None,
    /// It invokes this member of the anomaly.
    Invoke(usize),
    /// It waits for other members.
    Wait,
}

/// Decides when anomalies begin, and assigns their operations to clients. At most one anomaly is planted at a time.
///
/// ```text
///   stage 0            │ stage 1                 members of a stage run concurrently: each completes
///   role 0  ├─ w x ─┤  │                         only when all of its stage were invoked
///   role 1  ├── w x ─┤ │
///   role 2             │ ├─ r x ─┤               the next stage begins when all have completed
/// ```
#[derive(Debug)]
pub(super) struct Planting {
    workload: DatabaseWorkload,
    anomalies: Vec<Anomaly>,
    rate: f64,
    /// Number of operations left at which each anomaly begins once; `None`: anomalies begin at the rate.
    due: Option<u64>,
    current: Option<CurrentAnomaly>,
    begun: usize,
    /// Number of complete instances of each anomaly.
    counts: Vec<u64>,
}

impl Planting {
    pub(super) fn new(options: &DatabaseOptions) -> Planting {
        // A queue has one key, so its store produces the anomalies itself.
        let is_queue = options.workload == DatabaseWorkload::Queue;
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

    /// The anomalies, with the number of complete instances of each.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Anomaly, u64)> {
        let counts = self.counts.iter().copied();
        self.anomalies.iter().copied().zip(counts)
    }

    /// Is an anomaly being planted?
    pub(super) const fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Begins an anomaly, at the rate or when it is due, if it fits into `left` operations. Returns the number of
    /// operations that it reserves.
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
        self.current = Some(CurrentAnomaly {
            anomaly,
            keys: std::array::from_fn(|_| key()),
            clients: [None; MEMBERS_MAX],
            stage: 0,
            invoked: 0,
            done: 0,
        });
        operations
    }

    /// The part of this client, which is free.
    pub(super) fn turn(&mut self, client: u32) -> PlantingTurn {
        let Some(current) = &mut self.current else {
            return PlantingTurn::None;
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
                PlantingTurn::Invoke(number)
            }
            // A client with a role runs nothing else until the anomaly is complete.
            None if role.is_some() => PlantingTurn::Wait,
            None => PlantingTurn::None,
        }
    }

    /// May this planted operation complete? All of its stage must have been invoked.
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

    /// Is this planted operation the first of its process, and is it the last?
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

    /// The `f` and value of the invocation of a planted operation.
    pub(super) fn invocation(&self, number: usize) -> (Symbol, Value) {
        self.operation(number, false)
            .unwrap_or((Symbol::new("txn"), Value::Nil))
    }

    /// Ends a planted operation; returns the type and value of its completion.
    pub(super) fn end(&mut self, number: usize) -> (OpType, Value) {
        let fails = |current: &CurrentAnomaly| current.anomaly.members()[number].fails;
        let fails = self.current.as_ref().is_some_and(fails);
        let value = self.operation(number, !fails);
        let value = value.map_or(Value::Nil, |operation| operation.1);
        if let Some(current) = &mut self.current {
            current.done |= 1 << number;
            debug_assert_eq!(current.done & !current.invoked, 0, "completed, not invoked");
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

    /// The `f` and value of a planted operation: of its completion if `is_done`, else of its invocation.
    fn operation(&self, number: usize, is_done: bool) -> Option<(Symbol, Value)> {
        let current = self.current.as_ref()?;
        let micros = current.anomaly.members()[number].micros;
        let key = |number: u8| current.keys[usize::from(number)];
        if matches!(
            self.workload,
            DatabaseWorkload::ListAppend | DatabaseWorkload::RwRegister
        ) {
            let mops: Arc<[Mop]> = micros
                .iter()
                .map(|micro| self.mop(micro, key, is_done))
                .collect();
            return Some((Symbol::new("txn"), Value::Txn(mops)));
        }
        // Operations of the other workloads consist of one micro-operation.
        let (number, name, value) = match micros[0] {
            PlantedMop::Write(number, value) => {
                let (name, value) = self.write(value, is_done);
                (number, name, value)
            }
            PlantedMop::Read(number, seen) => {
                let (name, value) = self.read(seen, is_done);
                (number, name, value)
            }
        };
        let value = Value::Keyed(Key::Int(key(number)), Arc::new(value));
        Some((Symbol::new(name), value))
    }

    /// A write of an object. What is free is acquired instead.
    fn write(&self, value: i64, is_done: bool) -> (&'static str, Value) {
        let value = Value::Int(value);
        let pair = |one: i64, other: Value| Value::List([Value::Int(one), other].into());
        match self.workload {
            DatabaseWorkload::LinearizableSet if is_done => ("add", Value::Bool(true)),
            DatabaseWorkload::Set | DatabaseWorkload::LinearizableSet => ("add", value),
            DatabaseWorkload::AppendLog if is_done => ("append", pair(0, value)),
            DatabaseWorkload::AppendLog => ("append", value),
            DatabaseWorkload::BlockDevice => ("write", pair(0, Value::List([value].into()))),
            DatabaseWorkload::MultiRegister => {
                ("write", Value::Map([(Value::Int(0), value)].into()))
            }
            DatabaseWorkload::Semaphore => ("acquire", Value::Int(PERMITS)),
            DatabaseWorkload::LinearizableLock => {
                ("acquire", if is_done { value } else { Value::Nil })
            }
            _ => ("write", value),
        }
    }

    /// A read of an object that saw these writes. What is seen to be free is acquired, and what is not is released.
    fn read(&self, seen: &[i64], is_done: bool) -> (&'static str, Value) {
        let last = seen.last().copied();
        let is_free = last.is_none();
        let all = || seen.iter().copied().map(Value::Int);
        let value = match self.workload {
            DatabaseWorkload::Semaphore => {
                let f = if is_free { "acquire" } else { "release" };
                return (f, Value::Int(PERMITS));
            }
            DatabaseWorkload::LinearizableLock => {
                let f = if is_free { "acquire" } else { "release" };
                // A fence that is larger than all others.
                let fence = Value::Int(9);
                return (
                    f,
                    if is_free && is_done {
                        fence
                    } else {
                        Value::Nil
                    },
                );
            }
            DatabaseWorkload::BlockDevice => {
                let contents = Value::List([Value::Int(last.unwrap_or(0))].into());
                let second = if is_done { contents } else { Value::Int(1) };
                Value::List([Value::Int(0), second].into())
            }
            DatabaseWorkload::MultiRegister => {
                let value = last.filter(|_| is_done).map_or(Value::Nil, Value::Int);
                Value::Map([(Value::Int(0), value)].into())
            }
            _ if !is_done => Value::Nil,
            DatabaseWorkload::Set | DatabaseWorkload::LinearizableSet => {
                Value::Set(all().collect())
            }
            DatabaseWorkload::AppendLog => Value::List(all().collect()),
            _ => last.map_or(Value::Nil, Value::Int),
        };
        ("read", value)
    }

    fn mop(&self, micro: &PlantedMop, key: impl Fn(u8) -> i64, is_done: bool) -> Mop {
        let is_register = self.workload == DatabaseWorkload::RwRegister;
        match *micro {
            PlantedMop::Write(number, value) => {
                let key = Key::Int(key(number));
                if is_register {
                    return Mop::Write { key, value };
                }
                Mop::Append {
                    key,
                    element: value,
                }
            }
            PlantedMop::Read(number, seen) => Mop::Read {
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
