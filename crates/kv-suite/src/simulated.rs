//! The store as machines of a simulated world.

use crate::data::Consumer;
use crate::operation::{OperationAction, OperationInProgress};
use crate::{Kv, SUITE, store_bug};
use seatrial_generator::Thread;
use seatrial_history::{Op, Process};
use seatrial_kv::{Bug, Client, ClientOptions, Outcome, Replica, ReplicaOptions, Transaction};
use seatrial_machine::{
    DataFolder, FaultKind, Input, LogName, Machine, NodeId, OpenLog, Output, Rng, Time,
};
use seatrial_sim::Booted;
use seatrial_suite::{
    BootMachine, ClientStep, SimulatedRun, SimulatedSystem, SimulatedTest, Simulator, SuiteError,
    Timing, simulate,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Default faults. Synced data stays intact.
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
            servers: simulation.faults.servers.clone(),
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
    servers: Vec<NodeId>,
    /// Each client's positions in logs, with the process that they belong to.
    consumers: BTreeMap<Thread, (Process, Consumer)>,
}

/// A follower that hears nothing for two to the power of a number below this, in latencies, campaigns. Short times give worlds
/// in which terms follow each other and candidates compete.
const ELECTION: u64 = 5;

impl SimulatedSystem for KvWorld {
    type Machine = Actor;
    type Call = (Process, OperationInProgress);

    fn boot(&self, timing: Timing, rng: Rng) -> BootMachine<Actor> {
        let (bug, servers) = (self.bug, self.servers.clone());
        let latency = timing.latency.max(Duration::from_micros(40));
        let election = latency * (1 << rng.fork("election").below(ELECTION));
        // From a checkpoint every few transactions to none within a test.
        let checkpoint_bytes = 200 << rng.fork("checkpoints").below(12);
        let mut incarnations = rng.fork("incarnations");
        Box::new(move |id: NodeId, data: &DataFolder| {
            let seed = rng.fork(&id.to_string()).word();
            if id.is_client() {
                let mut options = ClientOptions::new(id, seed);
                options.servers.clone_from(&servers);
                // Clients begin at different nodes.
                let home = id.number() as usize % servers.len();
                options.servers.rotate_left(home);
                options.request_timeout = timing.timeout;
                options.hello_interval = timing.timeout / 4;
                options.repeat_interval = timing.timeout / 3;
                return Ok(Booted::new(Actor::Client(Box::new(Client::new(options)))));
            }
            let mut options = ReplicaOptions::new(id, servers.iter().copied());
            options.bug = bug;
            options.seed = seed;
            options.incarnation = incarnations.word();
            options.heartbeat = (election / 4).min(latency);
            options.election = election;
            options.checkpoint_bytes = checkpoint_bytes;
            let (replica, report) =
                Replica::boot(data, options).map_err(|error| error.to_string())?;
            let machine = Actor::Replica(Box::new(replica));
            let log = OpenLog {
                // Small, so that journals are freed at their heads.
                segment_length: checkpoint_bytes,
                reuses_segments: true,
                ..OpenLog::new(LogName::MAIN, report.recovery.end)
            };
            Ok(Booted {
                machine,
                logs: vec![log],
            })
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

/// A machine of the world: a replica or a client.
pub(crate) enum Actor {
    Replica(Box<Replica>),
    Client(Box<Client>),
}

impl Machine for Actor {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        match self {
            Actor::Replica(replica) => replica.turn(now, input, out),
            Actor::Client(client) => client.turn(now, input, out),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            Actor::Replica(replica) => replica.wake_at(),
            Actor::Client(client) => client.wake_at(),
        }
    }

    fn check_invariants(&self) {
        match self {
            Actor::Replica(replica) => replica.check_invariants(),
            Actor::Client(client) => client.check_invariants(),
        }
    }
}

#[cfg(test)]
mod tests;
