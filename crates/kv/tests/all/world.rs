//! Replicas and their clients in the simulated world, under faults drawn by swarm.

use crate::lost_journal::JournalDamage;
use crate::oracle::{Action, Asked, Oracle};
use seatrial_kv::{Bug, Replica, ReplicaOptions};
use seatrial_kv_protocol::{
    AdminRequest, Outcome, Transaction, TransactionClient, TransactionClientOptions,
};
use seatrial_machine::{
    DataFolder, DirectWrites, Fault, FaultKind, Input, Link, LogName, Machine, NodeId, OpenLog,
    Output, Rng, Ticket, Time,
};
use seatrial_sim::{Booted, World, WorldOptions, explore};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CLIENTS: u32 = 5;
/// Transactions that a client keeps under way.
const PIPELINE: usize = 3;
/// Transactions of one run.
const ACTIONS: u64 = 300;

/// What lives in this world.
enum StoreMachine {
    Replica(Box<Replica>),
    Client(Box<TransactionClient>),
    /// Sends changes of the membership, one for each request of the test, to all servers.
    Operator(Operator),
}

struct Operator {
    rng: Rng,
    servers: Vec<NodeId>,
}

/// The endpoint of the operator.
const OPERATOR: NodeId = NodeId::client(CLIENTS);

impl Operator {
    fn change(&mut self) -> AdminRequest {
        let node = *self.rng.pick(&self.servers);
        match self.rng.below(5) {
            0 => AdminRequest::AddLearner(node, Some("127.0.0.1:7400".parse().unwrap())),
            1 => AdminRequest::Promote(node),
            2 => AdminRequest::Remove(node),
            3 => AdminRequest::Lead(node),
            _ => AdminRequest::Checkpoint,
        }
    }
}

impl Machine for StoreMachine {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        match self {
            StoreMachine::Replica(replica) => replica.turn(now, input, out),
            StoreMachine::Client(client) => client.turn(now, input, out),
            StoreMachine::Operator(operator) => {
                if matches!(input, Input::Request(..)) {
                    let change = operator.change();
                    let sends = operator.servers.iter().map(|to| Output::Send {
                        to: *to,
                        message: change.into_message(),
                    });
                    out.extend(sends);
                }
            }
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            StoreMachine::Replica(replica) => replica.wake_at(),
            StoreMachine::Client(client) => client.wake_at(),
            StoreMachine::Operator(_) => None,
        }
    }

    fn check_invariants(&self) {
        match self {
            StoreMachine::Replica(replica) => replica.check_invariants(),
            StoreMachine::Client(client) => client.check_invariants(),
            StoreMachine::Operator(_) => {}
        }
    }
}

/// A client takes a lost connection as it would take a real one, and has a new one at once.
fn closed(node: &mut StoreMachine, now: Time, _: NodeId, out: &mut Vec<Output<Outcome>>) {
    if let StoreMachine::Client(client) = node {
        client.connection_closed(out);
        client.connection_opened(now, out);
    }
}

/// Starts a node; every life of a client gets a seed of its own, and every start of a server an incarnation.
fn boot(
    seed: u64,
    servers: Vec<NodeId>,
    founders: usize,
    bug: Option<Bug>,
    damage: JournalDamage,
) -> impl FnMut(NodeId, &DataFolder) -> Result<Booted<StoreMachine>, String> {
    let mut seeds = Rng::from_seed(seed).fork("clients");
    move |id, data| {
        if id == OPERATOR {
            return Ok(Booted::new(StoreMachine::Operator(Operator {
                rng: Rng::from_seed(seed).fork("operator"),
                servers: servers.clone(),
            })));
        }
        if id.is_client() {
            let mut options = TransactionClientOptions {
                request_timeout: Duration::from_millis(500),
                hello_interval: Duration::from_millis(20),
                repeat_interval: Duration::from_millis(100),
                servers: servers.clone(),
                ..TransactionClientOptions::new(id, seeds.word())
            };
            let home = id.number() as usize % servers.len();
            options.servers.rotate_left(home);
            let machine = StoreMachine::Client(Box::new(TransactionClient::new(options)));
            return Ok(Booted::new(machine));
        }
        let mut options = ReplicaOptions::new(id, servers[..founders].iter().copied());
        options.bug = bug;
        options.seed = seed;
        options.incarnation = seeds.word();
        // From storms of elections to quiet terms.
        options.election = Duration::from_millis(8 << (seed % 5));
        options.heartbeat = options.election / 4;
        // Checkpoints after a few transactions, or hardly ever.
        options.checkpoint_bytes = 200 << (seed % 7);
        options.checkpoint_share = [50, 30, 100][(seed / 7 % 3) as usize];
        // From a few entries in a turn to as many as there are.
        options.turn_bytes_max = 200 << (seed % 11);
        damage.before_start(id, data);
        let booted = Replica::boot(data, options).map_err(|error| error.to_string())?;
        let machine = StoreMachine::Replica(Box::new(booted.0));
        // Small segments, so that journals are freed at their heads.
        let log = OpenLog {
            segment_length: 2_048,
            spares_max: 2,
            direct: DirectWrites::WholeUnits,
            ..OpenLog::new(LogName::MAIN, booted.1.recovery.end)
        };
        Ok(Booted {
            machine,
            logs: vec![log],
        })
    }
}

/// One run: its world, the requests under way, and the oracle.
pub(crate) struct Run {
    world: World<StoreMachine>,
    servers: Vec<NodeId>,
    rng: Rng,
    oracle: Oracle,
    asked: BTreeMap<Ticket, (NodeId, Asked)>,
    tickets: u64,
    /// Faults that this run draws from.
    pub(crate) kinds: Vec<FaultKind>,
    is_broken: bool,
    /// A node that stays down until the end, and then needs a checkpoint of another.
    laggard: Option<NodeId>,
    kills: u64,
    /// Mean times between faults are up to two to this, in milliseconds.
    pub(crate) fault_spread: u64,
    /// Are journals lost?
    pub(crate) loses_journals: bool,
    pub(crate) damage: JournalDamage,
    /// Do memberships change?
    changes: bool,
    /// Changes of the membership that were asked for.
    asked_changes: u64,
    /// Checkpoints made and received by the replicas that are up at the end.
    made: u64,
    made_of_changes: u64,
    received: u64,
}

impl Run {
    pub(crate) fn new(seed: u64, servers: u32, bug: Option<Bug>) -> Run {
        Run::with_spares(seed, servers, 0, bug)
    }

    /// Servers, of which the last are not members at first.
    fn with_spares(seed: u64, servers: u32, spares: u32, bug: Option<Bug>) -> Run {
        let founders = (servers - spares) as usize;
        let servers: Vec<NodeId> = (1..=servers).map(NodeId::server).collect();
        let mut rng = Rng::from_seed(seed).fork("run");
        let options = WorldOptions::swarm(&mut rng, &FaultKind::ALL);
        let mut kinds = vec![FaultKind::Kill];
        let others = [FaultKind::Pause, FaultKind::Partition, FaultKind::Clock];
        kinds.extend(others.into_iter().filter(|_| rng.chance(0.5)));
        let damage = JournalDamage::new(Rng::from_seed(seed).fork("damage"));
        let boot = boot(seed, servers.clone(), founders, bug, damage.clone());
        let mut world = World::new(seed, options, boot);
        world.notify_closed(closed);
        for server in &servers {
            world.add(*server);
        }
        for number in 0..CLIENTS {
            world.add(NodeId::client(number));
        }
        world.add(OPERATOR);
        Run {
            world,
            servers,
            rng,
            oracle: Oracle::default(),
            asked: BTreeMap::new(),
            tickets: 0,
            kinds,
            is_broken: false,
            laggard: None,
            kills: 0,
            fault_spread: 8,
            loses_journals: false,
            damage,
            changes: spares > 0,
            asked_changes: 0,
            made: 0,
            made_of_changes: 0,
            received: 0,
        }
    }

    fn ask(&mut self, client: NodeId, action: Action) {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let transaction = action.transaction();
        let asked = self.oracle.ask(action);
        self.asked.insert(ticket, (client, asked));
        self.world.request(client, ticket, transaction);
    }

    fn random_action(&mut self) -> Action {
        let key = *self.rng.pick(&['a', 'b']);
        match self.rng.below(10) {
            0..3 => Action::Append(key, self.tickets),
            3 => Action::AppendAndFail(key, self.tickets),
            4..6 => Action::AppendPair(self.tickets),
            6..8 => Action::ReadPair,
            _ => Action::Read(key),
        }
    }

    /// Runs the world until `time`, and checks the answers.
    fn advance(&mut self, time: Time) -> Result<(), String> {
        while self.world.next_time().is_some_and(|next| next <= time) {
            self.world.step();
            for (_, ticket, outcome) in self.world.drain_replies() {
                // A client's former life may have answered just before it ended.
                if let Some((_, asked)) = self.asked.remove(&ticket) {
                    self.oracle.answer(&asked, &outcome)?;
                }
            }
        }
        self.world.run_until(time);
        match self.world.take_boot_failures().pop() {
            Some((id, reason)) => Err(format!("{id} does not start: {reason}")),
            None => Ok(()),
        }
    }

    /// Everything was read: are the replicas at rest equal, and is nothing there that must not be?
    fn finish(&mut self) -> Result<(), String> {
        for server in &self.servers {
            let Some(StoreMachine::Replica(replica)) = self.world.machine(*server) else {
                return Err(format!("{server} is down"));
            };
            let status = replica.status().checkpoints;
            if status.different > 0 {
                return Err(format!(
                    "checkpoints of {} indices differ",
                    status.different
                ));
            }
            self.made += status.made;
            self.made_of_changes += status.changes;
            self.received += status.received;
        }
        self.oracle.finish()
    }

    /// Breaks something, or mends everything.
    fn next_fault(&mut self) {
        if self.changes && self.rng.chance(0.5) {
            self.asked_changes += 1;
            self.world
                .request(OPERATOR, Ticket(u64::MAX), Transaction::new());
        }
        let client = NodeId::client(self.rng.below(u64::from(CLIENTS)) as u32);
        if self.is_broken {
            self.mend();
            return;
        }
        self.is_broken = true;
        let server = *self.rng.pick(&self.servers);
        let other = if self.rng.chance(0.5) {
            client
        } else {
            *self.rng.pick(&self.servers)
        };
        let fault = match *self.rng.pick(&self.kinds) {
            FaultKind::Kill if self.rng.chance(0.2) => {
                self.asked.retain(|_, (asker, _)| *asker != client);
                Fault::Kill(client)
            }
            FaultKind::Kill
            | FaultKind::Packet
            | FaultKind::Disk
            | FaultKind::Corruption
            | FaultKind::Membership => {
                self.kills += 1;
                if self.loses_journals && self.rng.chance(0.7) {
                    self.lose_journal(server);
                }
                Fault::Kill(server)
            }
            FaultKind::Pause => Fault::Pause(server),
            FaultKind::Partition => {
                let links = Link::both(other, server).into();
                if self.rng.chance(0.5) {
                    Fault::Cut(links)
                } else {
                    Fault::Reset(links)
                }
            }
            FaultKind::Clock => Fault::Skew {
                node: *self.rng.pick(&[client, server]),
                offset_ns: self.rng.below(400_000_000) as i64 - 200_000_000,
                rate_ppm: self.rng.below(200_000) as i32 - 100_000,
            },
        };
        self.world.apply(&fault);
    }

    /// The journal of a node is damaged before its next start, if the nodes without one stay a minority.
    fn lose_journal(&mut self, server: NodeId) {
        let world = &self.world;
        let has_journal = |node: NodeId| match world.machine(node) {
            Some(StoreMachine::Replica(replica)) => !replica.status().is_rejoining,
            _ => false,
        };
        let lost = self.damage.settle(has_journal);
        if lost < (self.servers.len() - 1) / 2 {
            self.damage.plan(server);
        }
    }

    fn mend(&mut self) {
        self.is_broken = false;
        self.world.apply(&Fault::Heal);
        for server in &self.servers {
            self.world.apply(&Fault::Resume(*server));
            if self.laggard != Some(*server) {
                self.world.apply(&Fault::Restart(*server));
            }
        }
        for number in 0..CLIENTS {
            self.world.apply(&Fault::Restart(NodeId::client(number)));
        }
    }

    /// Asks and breaks until all is asked; then mends, and reads everything.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let pace = Duration::from_micros(10 << self.rng.below(8));
        let fault_interval = Duration::from_millis(1 << self.rng.below(self.fault_spread));
        let mut fault_at = Time::ZERO + self.rng.exponential(fault_interval);
        let may_lag = self.servers.len() >= 3 && !self.loses_journals;
        let has_laggard = may_lag && self.rng.chance(0.3);
        while self.tickets < ACTIONS {
            let client = NodeId::client(self.rng.below(u64::from(CLIENTS)) as u32);
            let under_way = self.asked.values().filter(|(asker, _)| *asker == client);
            if self.world.machine(client).is_some() && under_way.count() < PIPELINE {
                let action = self.random_action();
                self.ask(client, action);
            }
            let pause = self.rng.exponential(pace);
            self.advance(self.world.now() + pause)?;
            if has_laggard && self.laggard.is_none() && self.tickets > ACTIONS / 4 {
                let laggard = *self.rng.pick(&self.servers);
                self.laggard = Some(laggard);
                self.world.apply(&Fault::Kill(laggard));
            }
            if self.world.now() >= fault_at {
                self.next_fault();
                fault_at = self.world.now() + self.rng.exponential(fault_interval);
            }
        }
        self.laggard = None;
        self.mend();
        // Where elections are faster than messages nothing is ever decided.
        self.world.calm();
        let committed = self.oracle.committed;
        for _ in 0..200 {
            self.advance(self.world.now() + Duration::from_secs(1))?;
            if self.oracle.committed >= committed + 20 && self.asked.is_empty() {
                return self.finish();
            }
            for action in [Action::ReadPair, Action::Read('a'), Action::Read('b')] {
                self.ask(NodeId::client(0), action);
            }
        }
        let states = self
            .servers
            .iter()
            .map(|server| match self.world.machine(*server) {
                Some(StoreMachine::Replica(replica)) => format!("{:?}", replica.status()),
                _ => "down".into(),
            });
        let states: Vec<String> = states.collect();
        Err(format!("the store does not answer any more: {states:#?}"))
    }
}

fn check_seeds(servers: u32, seeds: u64) {
    let (mut committed, mut unknown, mut kills) = (0, 0, 0);
    let (mut made, mut changes, mut received) = (0, 0, 0);
    let exploration = explore(0..seeds, |seed| {
        let mut run = Run::new(seed, servers, None);
        let checked = run.check();
        committed += run.oracle.committed;
        unknown += run.oracle.unknown;
        kills += run.kills;
        made += run.made;
        changes += run.made_of_changes;
        received += run.received;
        checked
    });
    assert_eq!(exploration.failure, None, "{servers} nodes");
    // It was no walk in the park, and not only trouble either.
    println!(
        "{servers} nodes: {committed} committed, {unknown} unknown, {kills} kills, {made} checkpoints ({changes} of changes), {received} received"
    );
    let seeds = seeds as usize;
    assert!(committed > 100 * seeds && unknown > 5 * seeds && kills > 5 * seeds as u64);
    assert!(changes > seeds as u64 / 10);
    assert!(made > seeds as u64 && (servers == 1 || received > seeds as u64 / 20));
}

#[test]
fn one_node_is_strictly_serializable() {
    check_seeds(1, seatrial_farm::seeds(150));
}

#[test]
fn three_nodes_are_strictly_serializable() {
    check_seeds(3, seatrial_farm::seeds(150));
}

#[test]
fn five_nodes_are_strictly_serializable() {
    check_seeds(5, seatrial_farm::seeds(60));
}

#[test]
fn every_planted_bug_is_found_within_its_seeds() {
    for (bug, servers, seeds) in [
        (Bug::AckBeforeAppend, 1, 10),
        (Bug::StaleRead, 3, 10),
        (Bug::LostAppend, 3, 10),
        (Bug::DirtyAbort, 3, 10),
        (Bug::MissingSync, 1, 50),
        (Bug::MissingSync, 3, 300),
        (Bug::ConflictKept, 3, 1_000),
        (Bug::StaleLeaderRead, 3, 50),
        (Bug::CommitWithoutQuorum, 3, 50),
        (Bug::ReplyAtAppend, 3, 50),
        (Bug::FuzzyCheckpoint, 3, 50),
        (Bug::PurgePastCheckpoint, 1, 50),
        (Bug::PurgePastCheckpoint, 3, 50),
        (Bug::SessionsNotInCheckpoint, 3, 100),
        (Bug::SessionsOfBase, 3, 300),
    ] {
        let found = explore(0..seeds, |seed| Run::new(seed, servers, Some(bug)).check());
        println!("{bug}, {servers} nodes: {found:?}");
        let (seed, reason) = found.failure.expect("the bug is found");
        let again = Run::new(seed, servers, Some(bug)).check();
        assert_eq!(again, Err(reason), "{bug}: the seed replays it");
    }
}

#[test]
fn memberships_change_under_faults() {
    let (mut asked, mut received, mut changed) = (0, 0, 0);
    let exploration = explore(0..seatrial_farm::seeds(150), |seed| {
        let mut run = Run::with_spares(seed, 5, 2, None);
        run.fault_spread = 5;
        let checked = run.check();
        asked += run.asked_changes;
        received += run.received;
        let founders: BTreeSet<NodeId> = run.servers[..3].iter().copied().collect();
        let has_others = run
            .servers
            .iter()
            .any(|server| match run.world.machine(*server) {
                Some(StoreMachine::Replica(replica)) => replica.status().members.voters != founders,
                _ => false,
            });
        changed += u64::from(has_others);
        checked
    });
    assert_eq!(exploration.failure, None);
    println!(
        "{asked} changes asked for, {changed} other memberships, {received} checkpoints received"
    );
    assert!(asked > seatrial_farm::least(1_000) && changed > seatrial_farm::least(50));
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in 0..5 {
        let fingerprints = [(); 2].map(|()| {
            let mut run = Run::new(seed, 3, None);
            run.check().unwrap();
            (run.world.fingerprint(), run.world.turns())
        });
        assert_eq!(fingerprints[0], fingerprints[1], "seed {seed}");
    }
}
