//! The store as machines of a simulated world.

use crate::data::Consumer;
use crate::operation::{OperationAction, OperationInProgress};
use crate::{Kv, SUITE, store_bug};
use seatrial_generator::Thread;
use seatrial_history::{Op, Process};
use seatrial_kv::{Bug, Client, ClientOptions, Outcome, Store, StoreOptions, Transaction};
use seatrial_machine::{DataFolder, FaultKind, Input, LogName, Machine, NodeId, Output, Rng, Time};
use seatrial_sim::Booted;
use seatrial_suite::{
    BootMachine, ClientStep, SimulatedRun, SimulatedSystem, SimulatedTest, Simulator, SuiteError,
    Timing, simulate,
};
use std::collections::BTreeMap;

/// Default faults. Synced data stays intact: a single unreplicated store cannot survive its loss.
const FAULTS: [FaultKind; 6] = [
    FaultKind::Kill,
    FaultKind::Pause,
    FaultKind::Partition,
    FaultKind::Packet,
    FaultKind::Clock,
    FaultKind::Disk,
];

impl Simulator for Kv {
    fn faults(&self) -> &'static [FaultKind] {
        &FAULTS
    }

    fn workloads(&self) -> &'static [&'static str] {
        &["cas-register", "list-append"]
    }

    fn run(&self, simulation: &SimulatedTest) -> Result<SimulatedRun, SuiteError> {
        let system = KvWorld {
            workload: simulation.work.workload(),
            bug: store_bug(simulation.bug),
            consumers: BTreeMap::new(),
        };
        simulate(&SUITE, simulation, system)
    }
}

/// Server and clients of a world, and the clients' state.
struct KvWorld {
    /// The clients' workload; empty for a plan.
    workload: &'static str,
    bug: Option<Bug>,
    /// Each client's positions in logs, with the process that they belong to.
    consumers: BTreeMap<Thread, (Process, Consumer)>,
}

/// The only server of the unreplicated store.
const SERVER: NodeId = NodeId::server(1);

impl SimulatedSystem for KvWorld {
    type Machine = Actor;
    type Call = (Process, OperationInProgress);

    fn boot(&self, timing: Timing, rng: Rng) -> BootMachine<Actor> {
        let bug = self.bug;
        Box::new(move |id: NodeId, data: &DataFolder| {
            if id.is_client() {
                let seed = rng.fork(&id.to_string()).word();
                let mut options = ClientOptions::new(SERVER, seed);
                options.request_timeout = timing.timeout;
                options.hello_interval = timing.timeout / 4;
                return Ok(Booted::new(Actor::Client(Client::new(options))));
            }
            let options = StoreOptions {
                bug,
                ..StoreOptions::default()
            };
            let log = data.log(LogName::MAIN).map_err(|error| error.to_string())?;
            let (store, report) = Store::boot(&log, options).map_err(|error| error.to_string())?;
            let machine = Actor::Store(Box::new(store));
            Ok(Booted::with_log(machine, report.recovery.end))
        })
    }

    fn begin(
        &mut self,
        thread: Thread,
        op: &Op,
    ) -> ClientStep<(Process, OperationInProgress), Transaction> {
        // A new process begins without positions.
        let fresh = || (op.process, Consumer::default());
        let kept = self.consumers.entry(thread).or_insert_with(fresh);
        if kept.0 != op.process {
            *kept = fresh();
        }
        let (operation, action) = OperationInProgress::begin(self.workload, op, &mut kept.1);
        step((op.process, operation), action)
    }

    fn resume(
        &mut self,
        thread: Thread,
        (process, mut operation): (Process, OperationInProgress),
        outcome: Outcome,
    ) -> ClientStep<(Process, OperationInProgress), Transaction> {
        // A reply to an abandoned process must not change the positions of its successor.
        let mut lost = Consumer::default();
        let consumer = match self.consumers.get_mut(&thread) {
            Some((owner, consumer)) if *owner == process => consumer,
            _ => &mut lost,
        };
        let action = operation.resume(&outcome, consumer);
        step((process, operation), action)
    }
}

fn step<C>(call: C, action: OperationAction) -> ClientStep<C, Transaction> {
    match action {
        OperationAction::Ask(transaction) => ClientStep::Ask(call, transaction),
        OperationAction::Complete(op) => ClientStep::Done(op),
    }
}

/// A machine of the world: the store or a client.
pub(crate) enum Actor {
    Store(Box<Store>),
    Client(Client),
}

impl Machine for Actor {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        match self {
            Actor::Store(store) => store.turn(now, input, out),
            Actor::Client(client) => client.turn(now, input, out),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            Actor::Store(store) => store.wake_at(),
            Actor::Client(client) => client.wake_at(),
        }
    }

    fn check_invariants(&self) {
        match self {
            Actor::Store(store) => store.check_invariants(),
            Actor::Client(client) => client.check_invariants(),
        }
    }
}

#[cfg(test)]
mod tests;
