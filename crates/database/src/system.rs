//! The store of a workload, behind one type: transactions, objects, a queue, or a data type.

use super::data_types::TypedStore;
use super::database_options::{DatabaseOptions, DatabaseWorkload};
use super::objects::ObjectStore;
use super::planted_anomaly::Anomaly;
use super::queue_store::QueueStore;
use super::step::{OperationFate, StepResult};
use super::txn_store::TxnStore;
use seatrial_history::Stamps;
use seatrial_history::{Symbol, Value};
use seatrial_machine::Rng;

/// The system of a workload.
#[derive(Debug)]
pub(super) enum StoreSystem {
    Transactions(TxnStore),
    Objects(ObjectStore),
    Queue(QueueStore),
    Typed(TypedStore),
}

impl StoreSystem {
    pub(super) fn new(options: &DatabaseOptions, rng: &mut Rng) -> StoreSystem {
        match options.workload {
            DatabaseWorkload::ListAppend | DatabaseWorkload::RwRegister => {
                StoreSystem::Transactions(TxnStore::new(options, rng))
            }
            DatabaseWorkload::Register | DatabaseWorkload::Set => {
                StoreSystem::Objects(ObjectStore::new(options, rng))
            }
            DatabaseWorkload::Queue => StoreSystem::Queue(QueueStore::new(options)),
            _ => StoreSystem::Typed(TypedStore::new(options, rng)),
        }
    }

    /// A client's next operation, `is_last` when nothing follows it: its invocation's `f` and value.
    pub(super) fn begin(&mut self, client: u32, is_last: bool, rng: &mut Rng) -> (Symbol, Value) {
        match self {
            StoreSystem::Transactions(system) => system.begin(client, rng),
            StoreSystem::Objects(system) => system.begin(client, rng),
            StoreSystem::Queue(system) => system.begin(client, is_last, rng),
            StoreSystem::Typed(system) => system.begin(client, rng),
        }
    }

    /// Carries out a step of a client's operation.
    pub(super) fn step(&mut self, client: u32, fate: OperationFate, rng: &mut Rng) -> StepResult {
        match self {
            StoreSystem::Transactions(system) => system.step(client, fate, rng),
            StoreSystem::Objects(system) => system.step(client, fate, rng),
            StoreSystem::Queue(system) => system.step(client, fate, rng),
            StoreSystem::Typed(system) => system.step(client, fate),
        }
    }

    /// Does a client hold a lock or permits?
    pub(super) fn is_holding(&self, client: u32) -> bool {
        matches!(self, StoreSystem::Typed(system) if system.is_holding(client))
    }

    /// Drops a client's operation whose request was lost.
    pub(super) fn abandon(&mut self, client: u32) {
        match self {
            StoreSystem::Transactions(system) => system.end(client),
            StoreSystem::Objects(system) => system.end(client),
            StoreSystem::Queue(_) => {}
            StoreSystem::Typed(system) => system.end(client),
        }
    }

    /// The value of an `ok` completion.
    pub(super) fn result(&mut self, client: u32) -> Value {
        match self {
            StoreSystem::Transactions(system) => system.result(client),
            StoreSystem::Objects(system) => system.result(client),
            StoreSystem::Queue(system) => system.result(client),
            StoreSystem::Typed(system) => system.result(client),
        }
    }

    /// The timestamps of a client's last transaction; with `None`, of one that the store did not run.
    pub(super) fn stamps(&mut self, client: Option<u32>) -> Option<Stamps> {
        match (self, client) {
            (StoreSystem::Transactions(system), Some(client)) => Some(system.stamps(client)),
            (StoreSystem::Transactions(system), None) => Some(system.foreign_stamps()),
            _ => None,
        }
    }

    /// The value of any other completion.
    pub(super) fn invoked(&self, client: u32) -> Value {
        match self {
            StoreSystem::Transactions(system) => system.invoked(client),
            StoreSystem::Objects(system) => system.invoked(client),
            StoreSystem::Queue(system) => system.invoked(client),
            StoreSystem::Typed(system) => system.invoked(client),
        }
    }

    /// A key that no client uses.
    pub(super) fn foreign_key(&mut self) -> i64 {
        match self {
            StoreSystem::Transactions(system) => system.store.foreign_key(),
            StoreSystem::Objects(system) => system.store.foreign_key(),
            StoreSystem::Queue(_) => 0,
            StoreSystem::Typed(system) => system.foreign_key(),
        }
    }

    /// The anomalies that the store itself produces, with their counts.
    pub(super) fn anomalies(&self) -> Vec<(Anomaly, u64)> {
        match self {
            StoreSystem::Queue(queue) => queue.counts().collect(),
            _ => Vec::new(),
        }
    }
}
