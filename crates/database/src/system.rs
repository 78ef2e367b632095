//! What the clients talk to.

use super::anomaly::Anomaly;
use super::objects::Objects;
use super::options::{Options, Workload};
use super::queue::Queue;
use super::step::{Plan, Step};
use super::transactions::Transactions;
use seatrial_history::Stamps;
use seatrial_history::{Symbol, Value};
use seatrial_machine::Rng;

/// The system of a workload.
#[derive(Debug)]
pub(super) enum System {
    Transactions(Transactions),
    Objects(Objects),
    Queue(Queue),
}

impl System {
    pub(super) fn new(options: &Options, rng: &mut Rng) -> System {
        match options.workload {
            Workload::ListAppend | Workload::RwRegister => {
                System::Transactions(Transactions::new(options, rng))
            }
            Workload::Register | Workload::Set => System::Objects(Objects::new(options, rng)),
            Workload::Queue => System::Queue(Queue::new(options)),
        }
    }

    /// A client's next operation, `is_last` when nothing follows it: its invocation's `f` and value.
    pub(super) fn begin(&mut self, client: u32, is_last: bool, rng: &mut Rng) -> (Symbol, Value) {
        match self {
            System::Transactions(system) => system.begin(client, rng),
            System::Objects(system) => system.begin(client, rng),
            System::Queue(system) => system.begin(client, is_last, rng),
        }
    }

    /// A client's operation takes a step.
    pub(super) fn step(&mut self, client: u32, plan: Plan, rng: &mut Rng) -> Step {
        match self {
            System::Transactions(system) => system.step(client, plan, rng),
            System::Objects(system) => system.step(client, plan, rng),
            System::Queue(system) => system.step(client, plan, rng),
        }
    }

    /// A client's operation will never take place.
    pub(super) fn give_up(&mut self, client: u32) {
        match self {
            System::Transactions(system) => system.end(client),
            System::Objects(system) => system.end(client),
            System::Queue(_) => {}
        }
    }

    /// The value of an `ok` completion.
    pub(super) fn result(&mut self, client: u32) -> Value {
        match self {
            System::Transactions(system) => system.result(client),
            System::Objects(system) => system.result(client),
            System::Queue(system) => system.result(client),
        }
    }

    /// The timestamps of a client's last transaction, or of one that the store never saw.
    pub(super) fn stamps(&mut self, client: Option<u32>) -> Option<Stamps> {
        match (self, client) {
            (System::Transactions(system), Some(client)) => Some(system.stamps(client)),
            (System::Transactions(system), None) => Some(system.foreign_stamps()),
            _ => None,
        }
    }

    /// The value of any other completion.
    pub(super) fn invoked(&self, client: u32) -> Value {
        match self {
            System::Transactions(system) => system.invoked(client),
            System::Objects(system) => system.invoked(client),
            System::Queue(system) => system.invoked(client),
        }
    }

    /// A key that nobody else uses.
    pub(super) fn foreign_key(&mut self) -> i64 {
        match self {
            System::Transactions(system) => system.store.foreign_key(),
            System::Objects(system) => system.store.foreign_key(),
            System::Queue(_) => 0,
        }
    }

    /// Anomalies of the system's own making.
    pub(super) fn anomalies(&self) -> Vec<(Anomaly, u64)> {
        match self {
            System::Queue(queue) => queue.counts().collect(),
            _ => Vec::new(),
        }
    }
}
