//! Simulated databases that write histories of any length whose truth is known.
//!
//! A [`Database`] is a store with clients in virtual time: they invoke operations, the store carries them out step by
//! step as its [`Isolation`] says, and they complete, fail, or time out. What comes out is what a recorder would have
//! written. Nothing is kept of the past but what a client may still see, so a history of 10^9 operations needs no more
//! memory than one of 10^6.
//!
//! ```
//! use seatrial_database::{Database, Options, Workload};
//!
//! let database = Database::new(&Options::new(Workload::ListAppend, 1_000))?;
//! let ops: Vec<_> = database.collect();
//! assert_eq!(ops.len(), 1_000);
//! # Ok::<(), seatrial_database::OptionsError>(())
//! ```
//!
//! What is absent: no clock, thread or file (time is virtual), and no checker: what a history violates is known because it was
//! planted.

mod anomaly;
mod keys;
mod objects;
mod options;
mod planting;
mod queue;
mod step;
mod store;
mod system;
mod transactions;

pub use anomaly::Anomaly;
pub use options::{Isolation, Options, OptionsError, Workload};

use planting::{Part, Planting};
use seatrial_history::Stamps;
use seatrial_history::{Extra, Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use step::{Plan, Step, exponential};
use system::System;

/// Nanoseconds that a request or a reply is under way at least.
const NETWORK_NS_MIN: u64 = 100_000;
/// Nanoseconds that it takes on top, on average.
const NETWORK_NS: u64 = 900_000;
/// Nanoseconds between two operations of a client, on average.
const PAUSE_NS: u64 = 100_000;
/// Nanoseconds after which a client gives up.
const TIMEOUT_NS: u64 = 1_000_000_000;
/// Nanoseconds after which a client that waits for others looks again.
const WAIT_NS: u64 = 100_000;
/// When a client that has nothing more to do does it.
const NEVER: u64 = u64::MAX;

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Invoke,
    Step,
    Complete(OpType),
    /// An operation of an anomaly, by number, is under way.
    Plant(usize),
    /// It is to end.
    EndPlanted(usize),
}

/// A client of the database.
#[derive(Debug)]
struct Client {
    process: u64,
    phase: Phase,
    plan: Plan,
    /// When its operation times out.
    deadline: u64,
    f: Symbol,
}

/// A simulated database with its clients. Iterating gives the operations of its history, with index and time.
///
/// Its loop: every client has exactly one event ahead, its next one; the earliest of all takes place, and says when
/// that client's next one is due. So the queue never grows, and same options, same history, byte for byte.
///
/// Its downside: one thread. Whoever encodes and writes the operations should do that on another one.
#[derive(Debug)]
pub struct Database {
    options: Options,
    rng: Rng,
    clients: Vec<Client>,
    /// The time of each client's next event; among equals the lower client comes first.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    system: System,
    planting: Planting,
    /// Clients between invocation and completion.
    busy: u32,
    /// Operations written and owed: an invocation owes its completion.
    reserved: u64,
    written: u64,
    counts: [u64; 4],
}

impl Database {
    /// The database that `options` describe.
    pub fn new(options: &Options) -> Result<Database, OptionsError> {
        options.check()?;
        let mut rng = Rng::from_seed(options.seed);
        let system = System::new(options, &mut rng);
        let clients = (0..u64::from(options.concurrency)).map(|process| Client {
            process,
            phase: Phase::Invoke,
            plan: Plan::Answer,
            deadline: NEVER,
            f: Symbol::new("txn"),
        });
        let starts = (0..options.concurrency)
            .map(|client| Reverse((exponential(&mut rng, NETWORK_NS), client)));
        Ok(Database {
            clients: clients.collect(),
            events: starts.collect(),
            system,
            planting: Planting::new(options),
            busy: 0,
            rng,
            options: options.clone(),
            reserved: 0,
            written: 0,
            counts: [0; 4],
        })
    }

    /// How many operations of each type there were so far: invoke, ok, fail, info.
    pub const fn counts(&self) -> [u64; 4] {
        self.counts
    }

    /// The anomalies that were put in, and how many of each are complete so far.
    pub fn anomalies(&self) -> Vec<(Anomaly, u64)> {
        if self.options.workload == Workload::Queue {
            return self.system.anomalies();
        }
        self.planting.counts().collect()
    }

    /// An operation at the end of the history so far.
    fn record(&mut self, time: u64, client: u32, kind: OpType, value: Value) -> Op {
        let index = self.written;
        self.written += 1;
        self.counts[kind as usize] += 1;
        if kind == OpType::Invoke {
            self.busy += 1;
        } else {
            self.busy -= 1;
        }
        let client = &self.clients[client as usize];
        Op {
            index,
            time: time.cast_signed(),
            kind,
            process: Process::Client(client.process),
            f: client.f,
            value,
            extra: Extra::NONE,
        }
    }

    /// How long a message is under way.
    fn network(&mut self) -> u64 {
        NETWORK_NS_MIN + exponential(&mut self.rng, NETWORK_NS)
    }

    fn plan(&mut self) -> Plan {
        let unit = self.rng.unit();
        let Options { fail, info, .. } = self.options;
        if unit < fail {
            Plan::Abort
        } else if unit >= fail + info {
            Plan::Answer
        } else if unit < fail + info / 2.0 {
            Plan::LoseRequest
        } else {
            Plan::LoseReply
        }
    }

    /// A client invokes its next operation, if there is to be one.
    fn invoke(&mut self, now: u64, client: u32) -> (u64, Option<Op>) {
        let left = self.options.operations - self.reserved;
        let system = &mut self.system;
        let key = || system.foreign_key();
        self.reserved += self.planting.begin(left, &mut self.rng, key);
        match self.planting.part(client) {
            Part::None => {}
            Part::Wait => return (now + WAIT_NS, None),
            Part::Invoke(number) => return self.plant(now, client, number),
        }
        let left = self.options.operations - self.reserved;
        // A queue is drained when all is over.
        let is_last = self.options.workload == Workload::Queue && left == 2;
        if self.planting.is_busy() && left == 0 || is_last && self.busy > 0 {
            return (now + WAIT_NS, None);
        }
        if left == 0 {
            return (NEVER, None);
        }
        // The last invocation of an odd number never completes.
        self.reserved += left.min(2);
        let (f, value) = self.system.begin(client, is_last, &mut self.rng);
        let plan = if is_last { Plan::Answer } else { self.plan() };
        let one = &mut self.clients[client as usize];
        one.f = f;
        one.plan = plan;
        one.deadline = now + TIMEOUT_NS;
        one.phase = Phase::Step;
        let op = self.record(now, client, OpType::Invoke, value);
        if plan == Plan::LoseRequest {
            self.system.give_up(client);
            let one = &mut self.clients[client as usize];
            one.phase = Phase::Complete(OpType::Info);
            return (one.deadline, Some(op));
        }
        (now + self.network(), Some(op))
    }

    /// The store works for a client.
    fn step(&mut self, now: u64, client: u32) -> u64 {
        let plan = self.clients[client as usize].plan;
        match self.system.step(client, plan, &mut self.rng) {
            Step::Again(after) => now + after,
            Step::Done(kind) => {
                let reply = now + self.network();
                let one = &mut self.clients[client as usize];
                let is_late = plan == Plan::LoseReply || reply >= one.deadline;
                if is_late {
                    one.phase = Phase::Complete(OpType::Info);
                    return one.deadline.max(now);
                }
                one.phase = Phase::Complete(kind);
                reply
            }
        }
    }

    /// A client invokes an operation of an anomaly.
    fn plant(&mut self, now: u64, client: u32, number: usize) -> (u64, Option<Op>) {
        let (f, value) = self.planting.invocation(number);
        let is_first = self.planting.ends_of_process(number).0;
        let one = &mut self.clients[client as usize];
        if is_first {
            // An anomaly's processes do nothing else, so nothing else depends on it.
            one.process += u64::from(self.options.concurrency);
        }
        one.f = f;
        one.phase = Phase::Plant(number);
        let op = self.record(now, client, OpType::Invoke, value);
        (now + self.network(), Some(op))
    }

    /// An operation of an anomaly waits until all that belong to it run.
    fn wait(&mut self, now: u64, client: u32, number: usize) -> u64 {
        if !self.planting.may_end(number) {
            return now + WAIT_NS;
        }
        self.clients[client as usize].phase = Phase::EndPlanted(number);
        now + self.network()
    }

    /// An operation of an anomaly is over.
    fn end_planted(&mut self, now: u64, client: u32, number: usize) -> (u64, Option<Op>) {
        let is_last = self.planting.ends_of_process(number).1;
        let (kind, value) = self.planting.end(number);
        let mut op = self.record(now, client, kind, value);
        self.stamp(&mut op, None);
        let one = &mut self.clients[client as usize];
        one.phase = Phase::Invoke;
        if is_last {
            one.process += u64::from(self.options.concurrency);
        }
        (now + exponential(&mut self.rng, PAUSE_NS), Some(op))
    }

    /// Adds the timestamps of a success, if they are told; `None`: of one that the store never saw.
    fn stamp(&mut self, op: &mut Op, client: Option<u32>) {
        if self.options.timestamps && op.kind == OpType::Ok {
            let stamps = self.system.stamps(client);
            op.extra = stamps.map_or(Extra::NONE, Stamps::fields);
        }
    }

    /// A client's operation is over.
    fn complete(&mut self, now: u64, client: u32, kind: OpType) -> (u64, Option<Op>) {
        let value = match kind {
            OpType::Ok => self.system.result(client),
            _ => self.system.invoked(client),
        };
        let mut op = self.record(now, client, kind, value);
        self.stamp(&mut op, Some(client));
        let one = &mut self.clients[client as usize];
        one.phase = Phase::Invoke;
        if kind == OpType::Info {
            // Nobody knows what this process is doing; its thread goes on under another number.
            one.process += u64::from(self.options.concurrency);
        }
        (now + exponential(&mut self.rng, PAUSE_NS), Some(op))
    }
}

impl Iterator for Database {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        while self.written < self.options.operations {
            let &Reverse((now, client)) = self.events.peek()?;
            let (next, op) = match self.clients[client as usize].phase {
                Phase::Invoke => self.invoke(now, client),
                Phase::Step => (self.step(now, client), None),
                Phase::Complete(kind) => self.complete(now, client, kind),
                Phase::Plant(number) => (self.wait(now, client, number), None),
                Phase::EndPlanted(number) => self.end_planted(now, client, number),
            };
            if let Some(mut first) = self.events.peek_mut() {
                *first = Reverse((next, client));
            }
            if op.is_some() {
                return op;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
