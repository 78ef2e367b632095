//! Simulated databases that write histories of any length with a known verdict.
//!
//! A [`Database`] is a store with clients in virtual time: they invoke operations, the store carries them out step by step
//! at its level ([`StoreLevel`]), and they complete, fail, or time out. The result is the history that a recorder would have
//! written. Only versions that a client may still read are stored, so a history of 10^9 operations needs no more memory
//! than one of 10^6.
//!
//! ```
//! use seatrial_database::{Database, DatabaseOptions, DatabaseWorkload};
//!
//! let database = Database::new(&DatabaseOptions::new(DatabaseWorkload::ListAppend, 1_000))?;
//! let ops: Vec<_> = database.collect();
//! assert_eq!(ops.len(), 1_000);
//! # Ok::<(), seatrial_database::OptionsError>(())
//! ```
//!
//! An anomaly is planted as a few operations on keys and processes of their own, so the verdict of the rest stays known:
//!
//! ```
//! use seatrial_database::{Anomaly, Database, DatabaseWorkload, DatabaseOptions};
//!
//! let options = DatabaseOptions {
//!     anomalies: vec![Anomaly::G1c],
//!     anomaly_rate: 0.01,
//!     ..DatabaseOptions::new(DatabaseWorkload::ListAppend, 10_000)
//! };
//! assert!(!options.is_valid());
//! let mut database = Database::new(&options)?;
//! assert_eq!(database.by_ref().count(), 10_000);
//! let [(Anomaly::G1c, count)] = database.anomalies()[..] else {
//!     panic!("another anomaly");
//! };
//! assert!(count > 10);
//! # Ok::<(), seatrial_database::OptionsError>(())
//! ```
//!
//! Files in reading order: `database_options.rs` and `planted_anomaly.rs` (what can be simulated, and which level excludes
//! what), this file (clients and events), `system.rs` with the stores `txn_store.rs`, `objects.rs`, `queue_store.rs` and
//! `data_types.rs`, and `planting.rs`.
//!
//! What is absent: this crate has no clock, thread or file (time is virtual), and calls no checker. Which model a history
//! violates is known because the violation was planted.

mod data_types;
mod database_options;
mod live_keys;
mod objects;
mod planted_anomaly;
mod planting;
mod queue_store;
mod step;
mod system;
mod txn_store;
mod version_store;

pub use database_options::{DatabaseOptions, DatabaseWorkload, OptionsError, StoreLevel};
pub use planted_anomaly::Anomaly;

use planting::{Planting, PlantingTurn};
use seatrial_history::Stamps;
use seatrial_history::{Extra, Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use step::{OperationFate, StepResult, exponential};
use system::StoreSystem;

/// Minimum latency of a request or a reply, in nanoseconds.
const NETWORK_NS_MIN: u64 = 100_000;
/// Mean additional latency of a request or a reply, in nanoseconds.
const NETWORK_NS: u64 = 900_000;
/// Mean time between two operations of a client, in nanoseconds.
const PAUSE_NS: u64 = 100_000;
/// Timeout of an operation, in nanoseconds.
const TIMEOUT_NS: u64 = 1_000_000_000;
/// Interval at which a client that waits for others polls, in nanoseconds.
const WAIT_NS: u64 = 100_000;
/// The time of the next event of a client without further operations.
const NEVER: u64 = u64::MAX;

/// The next event of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientPhase {
    Invoke,
    Step,
    Complete(OpType),
    /// A planted operation, by number, waits until the other operations of its stage have begun.
    Plant(usize),
    /// The planted operation completes.
    EndPlanted(usize),
}

/// A client of the database.
#[derive(Debug)]
struct SimulatedClient {
    process: u64,
    phase: ClientPhase,
    fate: OperationFate,
    /// When its operation times out.
    deadline: u64,
    f: Symbol,
}

/// A simulated database with its clients. An iterator over the operations of its history, with index and time.
///
/// Its loop: every client has exactly one pending event; the earliest of all events takes place and yields the time of
/// that client's next one. So the event queue has a fixed size, and equal options yield equal histories, byte for byte.
///
/// It runs on one thread; encode and write the operations on another one.
#[derive(Debug)]
pub struct Database {
    options: DatabaseOptions,
    rng: Rng,
    clients: Vec<SimulatedClient>,
    /// The time of each client's next event; of events at the same time the lower client comes first.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    system: StoreSystem,
    planting: Planting,
    /// Number of clients between invocation and completion.
    busy: u32,
    /// Number of operations written or due: an invocation reserves its completion too.
    reserved: u64,
    written: u64,
    counts: [u64; 4],
}

impl Database {
    /// A database of these options, before its first operation; an error when the options are invalid.
    pub fn new(options: &DatabaseOptions) -> Result<Database, OptionsError> {
        options.check()?;
        let mut rng = Rng::from_seed(options.seed);
        let system = StoreSystem::new(options, &mut rng);
        let clients = (0..u64::from(options.concurrency)).map(|process| SimulatedClient {
            process,
            phase: ClientPhase::Invoke,
            fate: OperationFate::Complete,
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

    /// Number of operations of each type so far: invoke, ok, fail, info.
    pub const fn counts(&self) -> [u64; 4] {
        self.counts
    }

    /// The planted anomalies, and the number of complete instances of each so far.
    pub fn anomalies(&self) -> Vec<(Anomaly, u64)> {
        if self.options.workload == DatabaseWorkload::Queue {
            return self.system.anomalies();
        }
        self.planting.counts().collect()
    }

    /// The next operation of the history.
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

    /// Draws the latency of a message.
    fn network(&mut self) -> u64 {
        NETWORK_NS_MIN + exponential(&mut self.rng, NETWORK_NS)
    }

    /// Draws the fate of an operation.
    fn fate(&mut self) -> OperationFate {
        let unit = self.rng.unit();
        let DatabaseOptions { fail, info, .. } = self.options;
        if unit < fail {
            OperationFate::Abort
        } else if unit >= fail + info {
            OperationFate::Complete
        } else if unit < fail + info / 2.0 {
            OperationFate::LoseRequest
        } else {
            OperationFate::LoseReply
        }
    }

    /// A client invokes its next operation, unless the history is complete. Returns the time of its next event.
    fn invoke(&mut self, now: u64, client: u32) -> (u64, Option<Op>) {
        let left = self.options.operations - self.reserved;
        let system = &mut self.system;
        let key = || system.foreign_key();
        self.reserved += self.planting.begin(left, &mut self.rng, key);
        // The operations of an anomaly run in processes of their own: a client that holds a lock must release it first.
        let turn = if self.system.is_holding(client) {
            PlantingTurn::None
        } else {
            self.planting.turn(client)
        };
        match turn {
            PlantingTurn::None => {}
            PlantingTurn::Wait => return (now + WAIT_NS, None),
            PlantingTurn::Invoke(number) => return self.plant(now, client, number),
        }
        let left = self.options.operations - self.reserved;
        // The last operation drains the queue, when all others have completed.
        let is_last = self.options.workload == DatabaseWorkload::Queue && left == 2;
        if self.planting.is_busy() && left == 0 || is_last && self.busy > 0 {
            return (now + WAIT_NS, None);
        }
        if left == 0 {
            return (NEVER, None);
        }
        // With an odd number of operations, the last invocation never completes.
        self.reserved += left.min(2);
        debug_assert!(self.reserved <= self.options.operations);
        let (f, value) = self.system.begin(client, is_last, &mut self.rng);
        let fate = if is_last {
            OperationFate::Complete
        } else {
            self.fate()
        };
        let one = &mut self.clients[client as usize];
        one.f = f;
        one.fate = fate;
        one.deadline = now + TIMEOUT_NS;
        one.phase = ClientPhase::Step;
        let op = self.record(now, client, OpType::Invoke, value);
        if fate == OperationFate::LoseRequest {
            self.system.abandon(client);
            let one = &mut self.clients[client as usize];
            one.phase = ClientPhase::Complete(OpType::Info);
            return (one.deadline, Some(op));
        }
        (now + self.network(), Some(op))
    }

    /// The store carries out a step of a client's operation. Returns the time of the client's next event.
    fn step(&mut self, now: u64, client: u32) -> u64 {
        let fate = self.clients[client as usize].fate;
        match self.system.step(client, fate, &mut self.rng) {
            StepResult::Again(after) => now + after,
            StepResult::Done(kind) => {
                let reply = now + self.network();
                let one = &mut self.clients[client as usize];
                let is_late = fate == OperationFate::LoseReply || reply >= one.deadline;
                if is_late {
                    one.phase = ClientPhase::Complete(OpType::Info);
                    return one.deadline.max(now);
                }
                one.phase = ClientPhase::Complete(kind);
                reply
            }
        }
    }

    /// A client invokes a planted operation.
    fn plant(&mut self, now: u64, client: u32, number: usize) -> (u64, Option<Op>) {
        let (f, value) = self.planting.invocation(number);
        let is_first = self.planting.ends_of_process(number).0;
        let one = &mut self.clients[client as usize];
        if is_first {
            // The processes of an anomaly run no other operation, so no session order leads out of it.
            one.process += u64::from(self.options.concurrency);
        }
        one.f = f;
        one.phase = ClientPhase::Plant(number);
        let op = self.record(now, client, OpType::Invoke, value);
        (now + self.network(), Some(op))
    }

    /// A planted operation waits until all operations of its stage have begun.
    fn wait(&mut self, now: u64, client: u32, number: usize) -> u64 {
        if !self.planting.may_end(number) {
            return now + WAIT_NS;
        }
        self.clients[client as usize].phase = ClientPhase::EndPlanted(number);
        now + self.network()
    }

    /// A planted operation completes.
    fn end_planted(&mut self, now: u64, client: u32, number: usize) -> (u64, Option<Op>) {
        let is_last = self.planting.ends_of_process(number).1;
        let (kind, value) = self.planting.end(number);
        let mut op = self.record(now, client, kind, value);
        self.stamp(&mut op, None);
        let one = &mut self.clients[client as usize];
        one.phase = ClientPhase::Invoke;
        if is_last {
            one.process += u64::from(self.options.concurrency);
        }
        (now + exponential(&mut self.rng, PAUSE_NS), Some(op))
    }

    /// Adds timestamps to an `ok`, if the options request them. `client` is `None` for a planted operation, which the store
    /// did not run.
    fn stamp(&mut self, op: &mut Op, client: Option<u32>) {
        if self.options.timestamps && op.kind == OpType::Ok {
            let stamps = self.system.stamps(client);
            op.extra = stamps.map_or(Extra::NONE, Stamps::fields);
        }
    }

    /// A client's operation completes.
    fn complete(&mut self, now: u64, client: u32, kind: OpType) -> (u64, Option<Op>) {
        let value = match kind {
            OpType::Ok => self.system.result(client),
            _ => self.system.invoked(client),
        };
        let mut op = self.record(now, client, kind, value);
        self.stamp(&mut op, Some(client));
        let one = &mut self.clients[client as usize];
        one.phase = ClientPhase::Invoke;
        if kind == OpType::Info {
            // The process has crashed: its operation stays open. The thread continues as a new process.
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
                ClientPhase::Invoke => self.invoke(now, client),
                ClientPhase::Step => (self.step(now, client), None),
                ClientPhase::Complete(kind) => self.complete(now, client, kind),
                ClientPhase::Plant(number) => (self.wait(now, client, number), None),
                ClientPhase::EndPlanted(number) => self.end_planted(now, client, number),
            };
            debug_assert!(next >= now, "an event goes back in time");
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
