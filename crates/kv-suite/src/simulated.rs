//! The store as machines of a simulated world.

mod operator;

use crate::data::Consumer;
use crate::node_process::JOURNAL_SPARES;
use crate::operation_in_progress::{OperationAction, OperationInProgress};
use crate::processes::node_state;
use crate::{Kv, SUITE, store_bug};
use operator::{OPERATOR, Operator};
use seatrial_generator::{Membership, Thread};
use seatrial_history::{Op, Process};
use seatrial_kv::{Bug, Replica, ReplicaOptions};
use seatrial_kv_protocol::{
    Outcome, ReplicaStatus, Transaction, TransactionClient, TransactionClientOptions,
};
use seatrial_machine::{
    DataFolder, DirectWrites, Fault, FaultKind, Input, LogName, Machine, NodeId, OpenLog, Output,
    Rng, Ticket, Time,
};
use seatrial_runner::NodeState;
use seatrial_sim::{Booted, World};
use seatrial_suite::{
    BootMachine, ClientStep, SimulatedRun, SimulatedSystem, SimulatedTest, Simulator, SuiteError,
    Timing, simulate,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Default faults. Synced data stays intact.
const FAULTS: [FaultKind; 7] = [
    FaultKind::Kill,
    FaultKind::Pause,
    FaultKind::Partition,
    FaultKind::Packet,
    FaultKind::Clock,
    FaultKind::Disk,
    FaultKind::Membership,
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
            leaving: BTreeSet::new(),
            has_operator: false,
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
    /// Nodes that were asked to leave, and not to join since.
    leaving: BTreeSet<NodeId>,
    /// Was a change of the membership asked for?
    has_operator: bool,
}

/// A request to a machine of the world.
#[derive(Debug)]
pub(crate) enum StoreRequest {
    /// To a client.
    Transaction(Transaction),
    /// To the operator: let the node join, or leave.
    Change {
        /// The node.
        node: NodeId,
        /// Does it join?
        joins: bool,
    },
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
        // Mostly one: some bugs are of commands that gather.
        let log_blocks = [1, 1, 2, 4][rng.fork("log blocks").index(4)];
        // From a few entries in a turn to as many as there are.
        let turn_bytes_max = 200 << rng.fork("turns").below(12);
        let mut incarnations = rng.fork("incarnations");
        Box::new(move |id: NodeId, data: &DataFolder| {
            let seed = rng.fork(&id.to_string()).word();
            if id == OPERATOR {
                let operator = Operator::new(servers.clone(), election * 2);
                return Ok(Booted::new(Actor::Operator(operator)));
            }
            if id.is_client() {
                let mut options = TransactionClientOptions::new(id, seed);
                options.servers.clone_from(&servers);
                // Clients begin at different nodes.
                let home = id.number() as usize % servers.len();
                options.servers.rotate_left(home);
                options.request_timeout = timing.timeout;
                options.hello_interval = timing.timeout / 4;
                options.repeat_interval = timing.timeout / 3;
                return Ok(Booted::new(Actor::Client(Box::new(
                    TransactionClient::new(options),
                ))));
            }
            let mut options = ReplicaOptions::new(id, servers.iter().copied());
            options.bug = bug;
            options.seed = seed;
            options.incarnation = incarnations.word();
            options.heartbeat = (election / 4).min(latency);
            options.election = election;
            options.checkpoint_bytes = checkpoint_bytes;
            options.log_blocks = log_blocks;
            options.turn_bytes_max = turn_bytes_max;
            let (replica, report) =
                Replica::boot(data, options).map_err(|error| error.to_string())?;
            let machine = Actor::Replica(Box::new(replica));
            let log = OpenLog {
                // Small, so that journals are freed at their heads.
                segment_length: checkpoint_bytes,
                spares_max: JOURNAL_SPARES,
                direct: DirectWrites::WholeUnits,
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
    ) -> ClientStep<(Process, OperationInProgress), StoreRequest> {
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
    ) -> ClientStep<(Process, OperationInProgress), StoreRequest> {
        // A reply to an abandoned process must not change the positions of its successor.
        let mut lost = Consumer::default();
        let consumer = match self.consumers.get_mut(&thread) {
            Some((owner, consumer)) if *owner == process => consumer,
            _ => &mut lost,
        };
        let action = operation.resume(&outcome, consumer);
        step((process, operation), action)
    }

    fn view(&self, world: &World<Actor>, servers: &[NodeId]) -> Membership {
        let mut membership = Membership::default();
        for status in servers.iter().filter_map(|node| status_of(world, *node)) {
            if status.member.leader == Some(status.node) {
                membership.primaries.insert(status.node);
            }
            // The operator does not give up, so a node that was asked to leave counts as gone until it is asked to join.
            let voters = status.members.voters.difference(&self.leaving);
            let voters = voters.copied().collect();
            membership.members.insert(status.node, voters);
        }
        membership
    }

    fn change_membership(&mut self, world: &mut World<Actor>, change: &Fault) -> bool {
        let Some(node) = change.node() else {
            return false;
        };
        if !self.has_operator {
            world.add(OPERATOR);
            self.has_operator = true;
        }
        let joins = matches!(change, Fault::Join(_));
        if joins {
            self.leaving.remove(&node);
        } else {
            self.leaving.insert(node);
        }
        // It sends no reply, so any ticket will do.
        world.request(
            OPERATOR,
            Ticket(u64::MAX),
            StoreRequest::Change { node, joins },
        )
    }

    fn reports_states(&self) -> bool {
        true
    }

    fn state(&self, world: &World<Actor>, node: NodeId) -> Option<NodeState> {
        let Actor::Replica(replica) = world.machine(node)? else {
            return None;
        };
        let status = replica.status();
        let takes_part = status.members.contains(node) && !status.is_rejoining;
        let digest = takes_part.then(|| replica.state_digest())?;
        (digest.index > 0).then(|| node_state(digest))
    }
}

/// The status of a replica that runs.
fn status_of(world: &World<Actor>, node: NodeId) -> Option<ReplicaStatus> {
    match world.machine(node)? {
        Actor::Replica(replica) => Some(replica.status()),
        Actor::Client(_) | Actor::Operator(_) => None,
    }
}

fn step<C>(call: C, action: OperationAction) -> ClientStep<C, StoreRequest> {
    match action {
        OperationAction::Ask(transaction) => {
            ClientStep::Ask(call, StoreRequest::Transaction(transaction))
        }
        OperationAction::Complete(op) => ClientStep::Done(op),
    }
}

/// A machine of the world.
pub(crate) enum Actor {
    Replica(Box<Replica>),
    Client(Box<TransactionClient>),
    Operator(Operator),
}

impl Machine for Actor {
    type Request = StoreRequest;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<StoreRequest>, out: &mut Vec<Output<Outcome>>) {
        if let Actor::Operator(operator) = self {
            return operator.turn(now, &input, out);
        }
        let input = match input {
            Input::Request(ticket, StoreRequest::Transaction(it)) => Input::Request(ticket, it),
            Input::Request(_, StoreRequest::Change { .. }) => return, // for an operator
            Input::Wake => Input::Wake,
            Input::Message { from, bytes } => Input::Message { from, bytes },
            Input::Appended(ticket) => Input::Appended(ticket),
            Input::Computed(ticket, result) => Input::Computed(ticket, result),
            Input::FileDone(ticket, result) => Input::FileDone(ticket, result),
        };
        match self {
            Actor::Replica(replica) => replica.turn(now, input, out),
            Actor::Client(client) => client.turn(now, input, out),
            Actor::Operator(_) => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            Actor::Replica(replica) => replica.wake_at(),
            Actor::Client(client) => client.wake_at(),
            Actor::Operator(operator) => operator.wake_at(),
        }
    }

    fn check_invariants(&self) {
        match self {
            Actor::Replica(replica) => replica.check_invariants(),
            Actor::Client(client) => client.check_invariants(),
            Actor::Operator(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
