//! One run: a schedule in a world, then healing, then the checks.

use crate::command::{Command, Reply, Request};
use crate::ledger::{Failure, FailureKind, Ledger, SharedLedger};
use crate::member::Member;
use crate::omnipaxos_member::OmniPaxosMember;
use crate::raft_member::RaftMember;
use crate::scenario::{Library, Scenario};
use crate::schedule::{Action, Schedule};
use seatrial_checker::{Checker, Validity};
use seatrial_data_models::AppendLogModel;
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_linear::ModelChecker;
use seatrial_machine::{Fault, NodeId, Ticket, Time};
use seatrial_sim::World;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time of healing.
const HEAL_MAX: Duration = Duration::from_secs(10);
/// Time between client commands while healing.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Commands of the healing phase have numbers from here on.
const PROBES_FROM: u64 = 1_000_000;
/// A refused command is sent to the leader that the refusal names, this often.
const REDIRECTS_MAX: u32 = 3;

/// What a run did.
#[derive(Clone, Debug)]
pub(crate) struct RunReport {
    pub(crate) failure: Option<Failure>,
    /// Hash of all events.
    pub(crate) fingerprint: u64,
    /// The trace, if one was wanted.
    pub(crate) lines: Vec<String>,
    /// Positions decided.
    pub(crate) decided: u64,
    /// Client operations, and acknowledged ones.
    pub(crate) operations: (u64, u64),
}

/// Runs a schedule; twice, where both runs must be equal.
pub(crate) fn run(scenario: &Scenario, schedule: &Schedule, is_tracing: bool) -> RunReport {
    let once = || match scenario.library {
        Library::OmniPaxos if scenario.omnipaxos.snapshots => {
            Simulation::<OmniPaxosMember<true>>::run(scenario, schedule, is_tracing)
        }
        Library::OmniPaxos => {
            Simulation::<OmniPaxosMember<false>>::run(scenario, schedule, is_tracing)
        }
        Library::Raft => Simulation::<RaftMember>::run(scenario, schedule, is_tracing),
    };
    let mut report = once();
    if scenario.twice && report.failure.is_none() {
        let second = once();
        if second.fingerprint != report.fingerprint {
            let text = format!(
                "two runs of one seed have the fingerprints {:016x} and {:016x}",
                report.fingerprint, second.fingerprint
            );
            report.failure = Some(Failure {
                kind: FailureKind::NotReplayable,
                text,
            });
        }
    }
    report
}

/// An operation without a reply.
struct OpenOperation {
    invocation: Op,
    command: Command,
    redirects: u32,
}

/// A world, its clients and what they saw.
struct Simulation<M: Member> {
    world: World<M>,
    ledger: SharedLedger,
    nodes: Vec<NodeId>,
    open: BTreeMap<Ticket, OpenOperation>,
    tickets: u64,
    acknowledged: u64,
    history: Vec<Op>,
    probes: u64,
    /// Offsets of probes that were acknowledged.
    probe_done: bool,
}

impl<M: Member> Simulation<M> {
    fn run(scenario: &Scenario, schedule: &Schedule, is_tracing: bool) -> RunReport {
        let ledger = Ledger::new(is_tracing);
        let (seed, shared, copy) = (schedule.seed, ledger.clone(), *scenario);
        let boot = move |id: NodeId, data: &seatrial_machine::DataFolder| {
            M::boot(&copy, id, data, shared.clone(), seed)
        };
        let mut world = World::new(seed, schedule.world_options(), boot);
        let count = scenario.nodes + scenario.spares;
        let nodes: Vec<NodeId> = (1..=count).map(NodeId::server).collect();
        for node in &nodes {
            world.add(*node);
        }
        let mut simulation = Simulation {
            world,
            ledger,
            nodes,
            open: BTreeMap::new(),
            tickets: 0,
            acknowledged: 0,
            history: Vec::new(),
            probes: PROBES_FROM,
            probe_done: false,
        };
        simulation.carry_out(schedule);
        if !simulation.has_failed() {
            simulation.heal(scenario);
        }
        simulation.report()
    }

    fn has_failed(&self) -> bool {
        self.ledger.borrow().failure.is_some()
    }

    fn carry_out(&mut self, schedule: &Schedule) {
        for step in &schedule.steps {
            self.run_until(Time::from_milliseconds(step.at));
            if self.has_failed() {
                return;
            }
            self.act(&step.action);
        }
        self.run_until(Time::from_milliseconds(schedule.end()));
    }

    fn run_until(&mut self, time: Time) {
        while self.world.next_time().is_some_and(|next| next <= time) && !self.has_failed() {
            let now = self.world.next_time().unwrap_or(time);
            self.ledger.borrow_mut().now = now;
            self.world.step();
            self.collect();
        }
        self.world
            .run_until(time.min(self.world.next_time().unwrap_or(time)));
        self.ledger.borrow_mut().now = time;
    }

    fn act(&mut self, action: &Action) {
        self.ledger.borrow_mut().line(|| format!("--- {action}"));
        match action {
            Action::Append(node, number) => self.invoke(*node, Command::Append(*number)),
            Action::Read(node, number) => self.invoke(*node, Command::Read(*number)),
            Action::Snapshot(node) => self.ask(*node, Request::Snapshot),
            Action::StopSign(node) => self.ask(*node, Request::StopSign),
            Action::Forge(node) => self.ask(*node, Request::Forge),
            Action::Change(node) => self.ask_all(Request::Change(*node)),
            Action::Transfer(node) => self.ask_all(Request::Transfer(*node)),
            Action::Fault(fault) => self.inject(fault),
        }
        self.collect();
    }

    fn inject(&mut self, fault: &Fault) {
        self.world.apply(fault);
        for (node, reason) in self.world.take_boot_failures() {
            let text = format!("{node}: {reason}");
            self.ledger.borrow_mut().fail(FailureKind::Boot, text);
        }
    }

    fn ask(&mut self, node: NodeId, request: Request) {
        self.tickets += 1;
        self.world.request(node, Ticket(self.tickets), request);
    }

    fn ask_all(&mut self, request: Request) {
        for node in self.nodes.clone() {
            self.ask(node, request);
        }
    }

    /// A client of its own begins an operation.
    fn invoke(&mut self, node: NodeId, command: Command) {
        let process = Process::Client(self.history.len() as u64);
        let op = match command {
            Command::Append(value) => Op::invoke(process, "append", Value::Int(value as i64)),
            Command::Read(_) => Op::invoke(process, "read", Value::Nil),
        };
        let op = Op {
            time: self.world.now().nanoseconds() as i64,
            ..op
        };
        self.history.push(op.clone());
        let open = OpenOperation {
            invocation: op,
            command,
            redirects: 0,
        };
        self.submit(node, open);
    }

    fn submit(&mut self, node: NodeId, open: OpenOperation) {
        self.tickets += 1;
        let (ticket, command) = (Ticket(self.tickets), open.command);
        self.open.insert(ticket, open);
        // A request to a node that is down gets no reply: its outcome stays unknown.
        self.world
            .request(node, ticket, Request::Replicate(command));
    }

    /// Replies become completions.
    fn collect(&mut self) {
        let replies: Vec<_> = self.world.drain_replies().collect();
        for (node, ticket, reply) in replies {
            let Some(open) = self.open.remove(&ticket) else {
                continue;
            };
            let (kind, value) = match (reply, open.command) {
                (Reply::Refused(Some(leader)), _)
                    if leader != node && open.redirects < REDIRECTS_MAX =>
                {
                    self.submit(
                        leader,
                        OpenOperation {
                            redirects: open.redirects + 1,
                            ..open
                        },
                    );
                    continue;
                }
                (Reply::Refused(_), _) => (OpType::Fail, open.invocation.value.clone()),
                (Reply::Appended(offset), Command::Append(value)) => {
                    self.probe_done |= value > PROBES_FROM;
                    (OpType::Ok, list([offset, value]))
                }
                (Reply::Values(values), _) => (OpType::Ok, list(values)),
                (Reply::Appended(_), Command::Read(_)) => continue,
            };
            self.acknowledged += u64::from(kind == OpType::Ok);
            let text = format!("{node} replies to {:?}: {kind:?} {value}", open.command);
            self.ledger.borrow_mut().line(|| text);
            let time = self.world.now().nanoseconds() as i64;
            let completion = open.invocation.complete(kind, value);
            self.history.push(Op { time, ..completion });
        }
    }

    /// All faults end; then new commands must be decided, and all members must have everything.
    fn heal(&mut self, scenario: &Scenario) {
        self.ledger
            .borrow_mut()
            .line(|| "--- all faults end".to_owned());
        self.world.calm();
        for (node, reason) in self.world.take_boot_failures() {
            let text = format!("{node}: {reason}");
            self.ledger.borrow_mut().fail(FailureKind::Boot, text);
        }
        let end = self.world.now() + HEAL_MAX;
        let mut goal = None;
        while !self.has_failed() {
            if self.probe_done && goal.is_none() {
                goal = Some(self.ledger.borrow().length());
            }
            if self.has_healed(scenario, goal) {
                return self.last_reads();
            }
            if self.world.now() > end {
                let states: Vec<String> = self.members().map(Member::describe).collect();
                let text = format!("10 s after the last fault: {}", states.join("; "));
                self.ledger.borrow_mut().fail(FailureKind::NoProgress, text);
                return;
            }
            let node = self.nodes[self.probes as usize % self.nodes.len()];
            if scenario.omnipaxos.stop_sign && self.probes == PROBES_FROM {
                self.ask(node, Request::StopSign);
            }
            self.probes += 1;
            self.invoke(node, Command::Append(self.probes));
            let next = self.world.now() + PROBE_INTERVAL;
            self.run_until(next);
        }
    }

    fn members(&self) -> impl Iterator<Item = &M> {
        self.nodes
            .iter()
            .filter_map(|node| self.world.machine(*node))
    }

    /// Has a probe been acknowledged, and do all members (or a majority) of the newest leader have it? Or have all members ended
    /// their configuration?
    fn has_healed(&self, scenario: &Scenario, goal: Option<u64>) -> bool {
        if self.members().any(M::is_ended) {
            return self.members().all(M::is_ended);
        }
        let Some(goal) = goal else { return false };
        let newest = self
            .members()
            .filter_map(M::members_if_leader)
            .max_by_key(|it| it.0);
        newest.is_some_and(|(_, members)| {
            let has_all = |node: &&NodeId| {
                let machine = self.world.machine(**node);
                machine.is_some_and(|machine| machine.applied() >= goal)
            };
            let healed = members.iter().filter(has_all).count();
            let majority = members.len() / 2 + 1;
            healed
                >= if scenario.all_heal {
                    members.len()
                } else {
                    majority
                }
        })
    }

    /// Every node is asked for all values: what was acknowledged must be there.
    fn last_reads(&mut self) {
        for (number, node) in (1..).zip(self.nodes.clone()) {
            self.invoke(node, Command::Read(2 * PROBES_FROM + number));
        }
        self.run_until(self.world.now() + Duration::from_secs(1));
    }

    fn report(mut self) -> RunReport {
        let history = History::from_unindexed(std::mem::take(&mut self.history));
        let operations = history.iter().filter(|op| op.is_invoke()).count() as u64;
        if !self.has_failed() {
            let verdict = ModelChecker::new(AppendLogModel).check(&history);
            if verdict.valid != Validity::Valid {
                let summary = verdict
                    .findings
                    .first()
                    .map(|finding| finding.summary.clone());
                let text = summary.unwrap_or_else(|| format!("{:?}", verdict.valid));
                self.ledger
                    .borrow_mut()
                    .fail(FailureKind::NotLinearizable, text);
            }
        }
        let mut ledger = self.ledger.borrow_mut();
        RunReport {
            failure: ledger.failure.clone(),
            fingerprint: self.world.fingerprint(),
            lines: ledger.take_lines(),
            decided: ledger.length(),
            operations: (operations, self.acknowledged),
        }
    }
}

fn list(numbers: impl IntoIterator<Item = u64>) -> Value {
    let items = numbers.into_iter().map(|number| Value::Int(number as i64));
    Value::List(items.collect())
}
