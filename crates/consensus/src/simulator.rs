//! A small deterministic simulator: members with disks, a bad network, a state machine that is a chain of hashes. One seed is
//! one schedule; it checks agreement on every position, reads, and progress after all faults end.

mod host;
mod tests;

pub(crate) use tests::quiet_panics;

use crate::rule::WrapperRule;
use crate::{
    LogEntry, MemberChange, Members, Payload, PeerMessage, Role, SnapshotMark, decode, encode,
};
use bytes::Bytes;
use host::{Host, Work};
use seatrial_machine::{NodeId, Rng, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What a schedule contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Founding voters.
    pub(crate) voters: usize,
    /// Nodes that may join.
    pub(crate) spares: usize,
    /// Probability that a message is lost.
    pub(crate) loss: f64,
    /// Probability that it is delivered again later.
    pub(crate) repetition: f64,
    /// Probability that it is late enough to be overtaken.
    pub(crate) overtaking: f64,
    /// Longest sync in milliseconds.
    pub(crate) sync_max: u64,
    /// Milliseconds with faults.
    pub(crate) faults_end: u64,
    /// Entries between checkpoints.
    pub(crate) checkpoint_every: u64,
    /// A planted bug.
    pub(crate) bug: Option<ConsensusBug>,
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsensusBug {
    /// A rule of the core is off.
    Without(WrapperRule),
    /// The vote is left out of the writes.
    VoteForgotten,
    /// A leader applies its entries when they are durable on itself.
    CommitWithoutQuorum,
    /// Writes are reported as durable when they are issued.
    MissingSync,
    /// The leader answers reads without asking a quorum.
    StaleRead,
}

pub(crate) const STEP: u64 = 5;
pub(crate) const HEARTBEAT: u64 = 20;
pub(crate) const ELECTION: u64 = 100;
/// Healing takes at most this long, in milliseconds.
const HEAL_MAX: u64 = 20_000;

/// Something that happens at a time.
enum SimulationEvent {
    Deliver {
        to: usize,
        from: usize,
        bytes: Bytes,
    },
    Work {
        node: usize,
        start: u64,
        work: Work,
    },
    Restart {
        node: usize,
    },
    Mend {
        from: usize,
        to: usize,
    },
}

/// The world: hosts, the network, and what is known to be decided.
pub(crate) struct ConsensusSimulation {
    pub(crate) scenario: Scenario,
    rng: Rng,
    pub(crate) now: u64,
    hosts: Vec<Host>,
    queue: BTreeMap<(u64, u64), SimulationEvent>,
    sequence: u64,
    cuts: BTreeSet<(usize, usize)>,
    is_healing: bool,
    /// (term, hash) of each position from 1.
    decided: Vec<(u64, u64)>,
    /// Hash of all positions up to each; `chain[0]` is 0.
    chain: Vec<u64>,
    proposals: u64,
    pub(crate) trace: u64,
    pub(crate) reads: u64,
    pub(crate) changes: u64,
    pub(crate) installs: u64,
    pub(crate) fetches: u64,
    pub(crate) failure: Option<String>,
}

/// One step of a hash of words (FNV with a rotation).
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

fn hash_entry(entry: &LogEntry) -> u64 {
    match &entry.payload {
        Payload::Empty => 1,
        Payload::Data(data) => data
            .iter()
            .fold(2, |hash, byte| mix(hash, u64::from(*byte))),
        Payload::Membership(changes) => changes.iter().fold(3, |hash, change| {
            mix(hash, u64::from(change.node().number()))
        }),
        Payload::LeaveJoint => 4,
    }
}

pub(crate) fn node(index: usize) -> NodeId {
    NodeId::server(index as u32 + 1)
}

pub(crate) fn index_of(node: NodeId) -> usize {
    node.number() as usize - 1
}

impl ConsensusSimulation {
    pub(crate) fn new(scenario: Scenario, seed: u64) -> ConsensusSimulation {
        let rng = Rng::from_seed(seed);
        let founding = Members::of_voters((0..scenario.voters).map(node));
        let hosts = (0..scenario.voters + scenario.spares)
            .map(|index| Host::new(index, &founding, seed))
            .collect();
        let mut world = ConsensusSimulation {
            scenario,
            rng,
            now: 0,
            hosts,
            queue: BTreeMap::new(),
            sequence: 0,
            cuts: BTreeSet::new(),
            is_healing: false,
            decided: Vec::new(),
            chain: vec![0],
            proposals: 0,
            trace: 0,
            reads: 0,
            changes: 0,
            installs: 0,
            fetches: 0,
            failure: None,
        };
        for index in 0..world.hosts.len() {
            world.start(index);
        }
        world
    }

    /// Runs faults, then healing.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.now < self.scenario.faults_end && self.failure.is_none() {
            self.disturb();
            self.step();
        }
        self.heal();
        let goal = self.decided.len() as u64 + 10;
        let end = self.now + HEAL_MAX;
        while self.failure.is_none() && !self.is_caught_up(goal) {
            if self.now > end {
                self.fail(format!(
                    "no progress after healing: goal {goal}, {}",
                    self.describe()
                ));
            }
            self.step();
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn describe(&self) -> String {
        let describe = |host: &Host| match &host.core {
            Some(core) => format!("{}:{:?}", host.index + 1, core.status()),
            None => format!("{}: down", host.index + 1),
        };
        self.hosts
            .iter()
            .map(describe)
            .collect::<Vec<_>>()
            .join("; ")
    }

    fn is_caught_up(&self, goal: u64) -> bool {
        let Some(leader) = self.leader() else {
            return false;
        };
        let Some(core) = self.hosts[leader].core.as_ref() else {
            return false;
        };
        let members = core.membership();
        members.outgoing.is_empty()
            && members
                .nodes()
                .iter()
                .all(|node| self.hosts[index_of(*node)].applied >= goal)
    }

    fn leader(&self) -> Option<usize> {
        let leads = |host: &&Host| {
            host.core
                .as_ref()
                .is_some_and(|core| core.status().role == Role::Leader)
        };
        let term = |host: &&Host| host.core.as_ref().map(|core| core.status().term);
        self.hosts
            .iter()
            .filter(leads)
            .max_by_key(term)
            .map(|host| host.index)
    }

    fn heal(&mut self) {
        self.is_healing = true;
        self.cuts.clear();
        for index in 0..self.hosts.len() {
            if self.hosts[index].core.is_none() {
                self.start(index);
            }
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        while let Some(first) = self.queue.first_entry() {
            if first.key().0 > self.now || self.failure.is_some() {
                break;
            }
            let event = first.remove();
            self.handle(event);
        }
        for index in 0..self.hosts.len() {
            let now = Time::from_milliseconds(self.now);
            self.with_core(index, |core| {
                core.tick(now).map_err(|stopped| stopped.to_string())
            });
        }
        self.clients();
    }

    fn handle(&mut self, event: SimulationEvent) {
        match event {
            SimulationEvent::Deliver { to, from, bytes } => {
                let message = decode(&bytes).expect("what was encoded decodes");
                self.trace = mix(self.trace, (to as u64) << 32 | bytes.len() as u64);
                self.with_core(to, |core| {
                    core.step(node(from), message)
                        .map_err(|stopped| stopped.to_string())?;
                    Ok(())
                });
            }
            SimulationEvent::Work { node, start, work } => {
                if self.hosts[node].start == start && self.hosts[node].core.is_some() {
                    self.work(node, work);
                }
            }
            SimulationEvent::Restart { node } => {
                if self.hosts[node].core.is_none() {
                    self.start(node);
                }
            }
            SimulationEvent::Mend { from, to } => {
                self.cuts.remove(&(from, to));
            }
        }
    }

    pub(crate) fn after(&mut self, delay: u64, node: usize, work: Work) {
        let start = self.hosts[node].start;
        self.push(delay, SimulationEvent::Work { node, start, work });
    }

    fn push(&mut self, delay: u64, event: SimulationEvent) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), event);
    }

    pub(crate) fn fail(&mut self, text: String) {
        self.failure.get_or_insert(text);
    }

    /// Sends a message over a network that may lose, repeat and delay it.
    pub(crate) fn send(&mut self, from: usize, message: &PeerMessage) {
        let to = index_of(message.to);
        let Scenario {
            loss,
            repetition,
            overtaking,
            ..
        } = self.scenario;
        let is_bad = !self.is_healing;
        if to >= self.hosts.len()
            || self.cuts.contains(&(from, to))
            || (is_bad && self.rng.chance(loss))
        {
            return;
        }
        let bytes = Bytes::from(encode(message));
        let copies = if is_bad && self.rng.chance(repetition) {
            2
        } else {
            1
        };
        for copy in 0..copies {
            let late = copy > 0 || (is_bad && self.rng.chance(overtaking));
            let delay = 1 + self.rng.below(if late { 150 } else { 8 });
            self.push(
                delay,
                SimulationEvent::Deliver {
                    to,
                    from,
                    bytes: bytes.clone(),
                },
            );
        }
    }

    /// One step of faults.
    fn disturb(&mut self) {
        let count = self.hosts.len();
        let victim = self.rng.index(count);
        match self.rng.below(200) {
            0 => self.crash(victim),
            1 | 2 => {
                let other = self.rng.index(count);
                let length = 50 + self.rng.below(600);
                self.cut(victim, other, length);
                if self.rng.chance(0.5) {
                    self.cut(other, victim, length);
                }
            }
            3 => {
                // A bridge or an isolated node: all links of one node but perhaps one.
                let spared = self.rng.index(count);
                let length = 100 + self.rng.below(600);
                for other in (0..count).filter(|other| *other != spared) {
                    self.cut(victim, other, length);
                    self.cut(other, victim, length);
                }
            }
            4 => {
                if let Some(leader) = self.leader() {
                    self.with_core(leader, |core| {
                        let _ = core.transfer_leadership(node(victim));
                        Ok(())
                    });
                }
            }
            5..=8 if self.scenario.spares > 0 => self.change_membership(victim),
            _ => {}
        }
    }

    fn cut(&mut self, from: usize, to: usize, length: u64) {
        if from != to {
            self.cuts.insert((from, to));
            self.push(length, SimulationEvent::Mend { from, to });
        }
    }

    fn crash(&mut self, victim: usize) {
        let kept = self.rng.index(self.hosts[victim].writes.len() + 1);
        let forgets = self.scenario.bug == Some(ConsensusBug::VoteForgotten);
        self.hosts[victim].crash(kept, forgets);
        self.trace = mix(self.trace, 0xdead ^ victim as u64);
        let pause = 20 + self.rng.below(800);
        self.push(pause, SimulationEvent::Restart { node: victim });
    }

    fn start(&mut self, index: usize) {
        let rules = self.scenario.bug.and_then(|bug| match bug {
            ConsensusBug::Without(rule) => Some(rule),
            _ => None,
        });
        if let Err(text) = self.hosts[index].boot(rules) {
            self.fail(format!("node {} does not start: {text}", index + 1));
        }
        // The state machine starts from the checkpoint: its hash must be the one of the cluster.
        let checkpoint = self.hosts[index].durable.checkpoint.clone();
        self.check_mark(index, &checkpoint);
    }

    fn change_membership(&mut self, at: usize) {
        let Some(leader) = self.leader() else { return };
        let Some(core) = self.hosts[leader].core.as_ref() else {
            return;
        };
        let members = core.membership().clone();
        let target = node(at);
        let learner = members.learners.first().copied();
        let is_voter = members.voters.contains(&target);
        let changes = match (is_voter, learner) {
            (true, Some(learner)) if self.rng.chance(0.5) => {
                vec![
                    MemberChange::AddVoter(learner),
                    MemberChange::Remove(target),
                ]
            }
            (true, _) if members.voters.len() > 2 => vec![MemberChange::Remove(target)],
            (true, _) => return,
            (false, _) if members.learners.contains(&target) => {
                vec![MemberChange::AddVoter(target)]
            }
            (false, _) => vec![MemberChange::AddLearner(target)],
        };
        let mut done = false;
        self.with_core(leader, |core| {
            done = core.propose_membership(&changes).is_ok();
            Ok(())
        });
        self.changes += u64::from(done);
    }

    /// Clients propose at the leader, and read everywhere.
    fn clients(&mut self) {
        let at = self.rng.index(self.hosts.len());
        let chance = if self.is_healing { 0.5 } else { 0.8 };
        if self.rng.chance(chance) {
            self.proposals += 1;
            let (number, leader) = (self.proposals, self.leader());
            let value = Bytes::copy_from_slice(&number.to_le_bytes());
            // During faults also to old leaders: anyone who believes to lead.
            for index in 0..self.hosts.len() {
                if Some(index) == leader || !self.is_healing {
                    self.with_core(index, |core| {
                        let _ = core.propose(value.clone());
                        Ok(())
                    });
                }
            }
        }
        if self.rng.chance(0.2) {
            let must_see = self.decided.len() as u64;
            let stale = self.scenario.bug == Some(ConsensusBug::StaleRead);
            let token = self.hosts[at].next_read();
            let mut is_asked = false;
            let mut answer = None;
            self.with_core(at, |core| {
                if stale && core.status().role == Role::Leader {
                    answer = Some(core.status().committed);
                } else {
                    is_asked = core.read(token).is_ok();
                }
                Ok(())
            });
            if is_asked {
                self.hosts[at].reads.insert(token, must_see);
            }
            if let Some(index) = answer.filter(|index| *index < must_see) {
                self.fail(format!("read at {index} must see {must_see}"));
            }
        }
    }

    /// A node hands out a committed entry: it must be the decided one.
    pub(crate) fn decide(&mut self, at: usize, entry: &LogEntry) {
        let decision = (entry.term, hash_entry(entry));
        let position = entry.index as usize;
        let decided_alone = self.scenario.bug == Some(ConsensusBug::CommitWithoutQuorum)
            && entry.index <= self.hosts[at].applied;
        if decided_alone {
            // The planted bug must be found by what it does, not by entries that come twice.
            if self.decided[position - 1] != decision {
                self.fail(format!("node {} disagrees at position {position}", at + 1));
            }
            return;
        }
        if entry.index != self.hosts[at].applied + 1 {
            let applied = self.hosts[at].applied;
            return self.fail(format!(
                "node {} applies {position} after {applied}",
                at + 1
            ));
        }
        match self.decided.get(position - 1) {
            None => {
                assert_eq!(self.decided.len() + 1, position, "positions have no gaps");
                self.decided.push(decision);
                let last = self.chain[position - 1];
                self.chain.push(mix(mix(last, decision.0), decision.1));
            }
            Some(known) if *known != decision => {
                self.fail(format!("node {} disagrees at position {position}", at + 1));
            }
            Some(_) => {}
        }
        self.trace = mix(self.trace, decision.1 ^ (at as u64) << 56);
        let state = mix(mix(self.hosts[at].state, decision.0), decision.1);
        self.hosts[at].applied = entry.index;
        self.hosts[at].state = state;
    }

    /// A checkpoint must have the state of its index.
    pub(crate) fn check_mark(&mut self, at: usize, mark: &SnapshotMark) {
        let expected = self.chain.get(mark.index as usize).copied();
        let found = u64::from_le_bytes(mark.digest[..8].try_into().expect("8 bytes"));
        if expected != Some(found) {
            self.fail(format!(
                "node {}: checkpoint {} has another state",
                at + 1,
                mark.index
            ));
        }
    }
}
