//! Simulated tests: the interpreter and a world of machines side by side, in one thread, from one seed.

use crate::{OptionValues, PlantedBug, Suite, SuiteError, planned_workloads};
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{
    FaultOptions, FaultOrder, Generator, Interpreter, InterpreterOptions,
    InterpreterReply as Instruction, InterpreterRequest, Membership, TestPhasesOptions, Thread,
    fault_of, fault_package, membership_value, test_phases,
};
use seatrial_history::{History, Op, OpType, Value};
use seatrial_machine::{
    DataFolder, Fault, FaultKind, Input, Machine, NodeId, Output, Rng, Ticket, Time,
};
use seatrial_plan::{Plan, PlanEnvironment, PlanLimits};
use seatrial_runner::{NodeState, state_operation};
use seatrial_sim::{Booted, World, WorldOptions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Runs tests of a suite in simulated worlds.
pub trait Simulator: Send + Sync {
    /// The default kinds of faults.
    fn faults(&self) -> &'static [FaultKind];

    /// The default workloads, in turn from seed to seed.
    fn workloads(&self) -> &'static [&'static str];

    /// Runs one test. Equal tests give the same run, byte for byte.
    fn run(&self, test: &SimulatedTest) -> Result<SimulatedRun, SuiteError>;
}

/// The description of one simulated test.
#[derive(Clone, Debug)]
pub struct SimulatedTest {
    /// The seed of all random choices.
    pub seed: u64,
    /// The workload or plan.
    pub work: Work,
    /// The faults to inject, and the servers; the interval is drawn.
    pub faults: FaultOptions,
    /// Overrides the order of faults of a plan.
    pub order: Option<FaultOrder>,
    /// Number of client operations.
    pub operations: u64,
    /// Number of client threads.
    pub concurrency: u32,
    /// Mean time between operations; drawn unless given.
    pub operation_interval: Option<Duration>,
    /// A bug to plant.
    pub bug: Option<&'static PlantedBug>,
    /// The suite's own options.
    pub options: OptionValues,
}

/// The operations of a simulated test.
#[derive(Clone, Debug)]
pub enum Work {
    /// A workload of the suite, with concurrent faults.
    Named(&'static str, WorkloadOptions),
    /// A plan, at its own pace.
    Planned {
        /// The plan.
        plan: Box<Plan>,
        /// Its name in messages.
        label: String,
        /// Do the kinds of faults of the command line override those of the plan?
        other_kinds: bool,
        /// Maximum length of the test.
        time: Duration,
    },
}

impl Work {
    /// Its name in messages.
    pub fn label(&self) -> &str {
        match self {
            Work::Named(name, _) => name,
            Work::Planned { label, .. } => label,
        }
    }

    /// The workload; empty for a plan.
    pub const fn workload(&self) -> &'static str {
        match self {
            Work::Named(name, _) => name,
            Work::Planned { .. } => "",
        }
    }
}

/// The result of a simulated test.
#[derive(Debug)]
pub struct SimulatedRun {
    /// The recorded history.
    pub history: Arc<History>,
    /// The options of the world, in one line.
    pub world: String,
    /// Number of turns of all machines, including the interpreter.
    pub turns: u64,
    /// Hash of all events of the world.
    pub fingerprint: u64,
    /// Nodes that could not start again, and why.
    pub boot_failures: Vec<String>,
    /// Does the history end with the states of nodes, for the checker `divergence`?
    pub has_states: bool,
}

/// A system as machines of one simulated world: its servers, and one client machine for each client thread.
///
/// [`simulate`] owns the world, the clock and the interpreter. These methods define what only the system knows: how its
/// machines boot, and how an operation of a test becomes requests to a client's machine.
///
/// ```text
///   Invoke(thread, op) ─► begin ─► Ask(call, request) ─► client machine ─► reply ─► resume ─► Ask … or Done(completion)
/// ```
pub trait SimulatedSystem {
    /// A server or a client: a world has machines of one type.
    type Machine: Machine + 'static;
    /// An operation in progress.
    type Call;

    /// The function that boots an endpoint of the world: a server from its disk, a client from an empty state.
    fn boot(&self, timing: Timing, rng: Rng) -> BootMachine<Self::Machine>;

    /// Begins an operation of this thread.
    fn begin(&mut self, thread: Thread, op: &Op) -> StepOf<Self>;

    /// Continues an operation of this thread after the reply to its last request.
    fn resume(
        &mut self,
        thread: Thread,
        call: Self::Call,
        reply: <Self::Machine as Machine>::Reply,
    ) -> StepOf<Self>;

    /// The members and primaries as the running nodes of the world report them, for faults of membership. By default all
    /// servers are members, always.
    fn view(&self, _world: &World<Self::Machine>, servers: &[NodeId]) -> Membership {
        let all: BTreeSet<NodeId> = servers.iter().copied().collect();
        Membership {
            members: servers.iter().map(|node| (*node, all.clone())).collect(),
            primaries: servers.first().copied().into_iter().collect(),
        }
    }

    /// Asks the system to let a node join or leave, or to continue to try. False, the default: the system has no such changes.
    fn change_membership(&mut self, _world: &mut World<Self::Machine>, _change: &Fault) -> bool {
        false
    }

    /// Do the servers report their states ([`SimulatedSystem::state`])?
    fn reports_states(&self) -> bool {
        false
    }

    /// The state of a server at the end of a test; `None`: it does not run, or takes no part in the system.
    fn state(&self, _world: &World<Self::Machine>, _node: NodeId) -> Option<NodeState> {
        None
    }
}

/// Boots a machine; an error message leaves its node down.
pub type BootMachine<M> = Box<dyn FnMut(NodeId, &DataFolder) -> Result<Booted<M>, String>>;

/// The step of a system's operation.
type StepOf<S> =
    ClientStep<<S as SimulatedSystem>::Call, <<S as SimulatedSystem>::Machine as Machine>::Request>;

/// The next step of a client's operation.
#[derive(Debug)]
pub enum ClientStep<C, R> {
    /// Send this request to the thread's client machine, and resume the call with the reply.
    Ask(C, R),
    /// The operation ends with this completion.
    Done(Op),
}

/// Durations of a simulated test. They depend on the world: in a slow network the test is longer, so that operations and
/// faults still overlap.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Mean time between operations.
    pub interval: Duration,
    /// Length of the fault phase.
    pub duration: Duration,
    /// Timeout of an operation.
    pub timeout: Duration,
    /// What a message to a node, its sync and the reply take, usually: the unit of a system's own timeouts.
    pub latency: Duration,
}

impl Timing {
    fn new(simulation: &SimulatedTest, world: &WorldOptions, rng: &mut Rng) -> Timing {
        let (network, disk) = (&world.network, &world.disk);
        let latency =
            network.delay_min * 2 + network.delay_spread + disk.sync_min + disk.sync_spread / 2;
        let drawn = Duration::from_micros(20).mul_f64(10_f64.powf(rng.unit() * 2.0));
        let interval = simulation.operation_interval.unwrap_or(drawn);
        let each = interval.max(latency / simulation.concurrency.max(1));
        let operations = u32::try_from(simulation.operations).unwrap_or(u32::MAX);
        Timing {
            interval,
            duration: each.saturating_mul(operations),
            timeout: latency * (5 + rng.below(45) as u32),
            latency,
        }
    }
}

/// Runs one simulated test of `suite` on `system`: boots its servers and clients in a world drawn from the seed, carries out
/// operations and faults, and returns the history. The same simulation gives the same run, byte for byte.
pub fn simulate<S: SimulatedSystem>(
    suite: &'static dyn Suite,
    simulation: &SimulatedTest,
    system: S,
) -> Result<SimulatedRun, SuiteError> {
    let rng = Rng::from_seed(simulation.seed);
    let options = WorldOptions::swarm(&mut rng.fork("swarm"), &simulation.faults.kinds);
    let timing = Timing::new(simulation, &options, &mut rng.fork("pace"));
    let clients: Vec<NodeId> = (0..simulation.concurrency).map(NodeId::client).collect();
    let servers = simulation.faults.servers.clone();
    let generator = match &simulation.work {
        Work::Named(name, options) => phases(suite, simulation, name, options, &timing, &rng)?,
        Work::Planned {
            plan,
            other_kinds,
            time,
            ..
        } => plan.generator(PlanEnvironment {
            rng: rng.clone(),
            servers: servers.clone(),
            clients: clients.clone(),
            workloads: planned_workloads(suite),
            kinds: other_kinds.then(|| simulation.faults.kinds.clone()),
            interval: None,
            order: simulation.order,
            limits: PlanLimits {
                time: Some(*time),
                ops: Some(simulation.operations),
                interval: simulation.operation_interval,
            },
        }),
    };
    let mut interpreter = InterpreterOptions::new(simulation.concurrency, rng.fork("interpreter"));
    interpreter.drain_timeout = timing.timeout * 4;
    let boot = system.boot(timing, rng.fork("clients"));
    let mut test = SimulationDriver {
        world: World::new(rng.fork("world").word(), options.clone(), boot),
        interpreter: Interpreter::new(generator, &interpreter),
        system,
        servers: servers.clone(),
        open: BTreeMap::new(),
        tickets: 0,
        completed: VecDeque::new(),
        ops: Vec::new(),
        out: Vec::new(),
        turns: 0,
        boot_failures: Vec::new(),
        failure: None,
        is_over: false,
        has_states: false,
    };
    for endpoint in servers.into_iter().chain(clients) {
        test.world.add(endpoint);
    }
    test.run();
    test.observe(timing.latency);
    if let Some(failure) = test.failure {
        let label = simulation.work.label();
        return Err(format!("{label}: {failure}").into());
    }
    Ok(SimulatedRun {
        history: Arc::new(History::from_ops(test.ops)),
        world: options.to_string(),
        turns: test.turns + test.world.turns(),
        fingerprint: test.world.fingerprint(),
        boot_failures: test.boot_failures,
        has_states: test.has_states,
    })
}

/// The phases of a test of a workload, with 2 to 15 faults.
fn phases(
    suite: &dyn Suite,
    simulation: &SimulatedTest,
    workload: &str,
    options: &WorkloadOptions,
    timing: &Timing,
    rng: &Rng,
) -> Result<Box<dyn Generator>, SuiteError> {
    let workload = suite.workload(workload, &rng.fork("workload"), options)?;
    let mut fault_rng = rng.fork("faults");
    let fault_count = 2 + fault_rng.below(14) as u32;
    let faults = fault_package(
        FaultOptions {
            interval: timing.duration / fault_count,
            ..simulation.faults.clone()
        },
        fault_rng,
    );
    let clients = workload
        .generator
        .limit(simulation.operations)
        .stagger(rng.fork("stagger"), timing.interval);
    let phase_options = TestPhasesOptions {
        duration: timing.duration,
        recovery: timing.duration / 4,
    };
    let last_limit = timing.duration + timing.timeout * 20;
    let phases = test_phases(clients, Some(faults), phase_options);
    Ok(phases.with_final(workload.last, last_limit).boxed())
}

/// Runs the interpreter and the world side by side: the one that is due first takes its turn. Of equal times the world is
/// first, so that completions precede new invocations.
struct SimulationDriver<S: SimulatedSystem> {
    world: World<S::Machine>,
    interpreter: Interpreter<Box<dyn Generator>>,
    system: S,
    servers: Vec<NodeId>,
    /// Operations that wait for a reply: their thread and call.
    open: BTreeMap<Ticket, (Thread, S::Call)>,
    tickets: u64,
    /// Completions not passed to the interpreter yet.
    completed: VecDeque<(Thread, Op)>,
    ops: Vec<Op>,
    out: Vec<Output<Instruction>>,
    turns: u64,
    boot_failures: Vec<String>,
    /// The failure of the generator.
    failure: Option<String>,
    is_over: bool,
    has_states: bool,
}

/// How often the states of servers are compared at the end of a test.
const LOOKS: usize = 50;

impl<S: SimulatedSystem> SimulationDriver<S> {
    fn run(&mut self) {
        while !self.is_over {
            let wake = self.interpreter.wake_at().unwrap_or(Time::MAX);
            match self.world.next_time() {
                Some(next) if next < wake => {
                    self.world.step();
                }
                _ => {
                    self.world.run_until(wake);
                    self.turn(Input::Wake);
                }
            }
            self.collect();
        }
    }

    /// Runs the world on until the servers that run have equal revisions, and records their states. What has not caught up
    /// by then is left out: that a server is behind is no divergence, and clients see a system that does not recover.
    fn observe(&mut self, latency: Duration) {
        if !self.system.reports_states() {
            return;
        }
        let mut states = self.states();
        for _ in 0..LOOKS {
            let is_even = |two: &[(NodeId, NodeState)]| two[0].1.revision == two[1].1.revision;
            if states.windows(2).all(is_even) {
                break;
            }
            self.world.run_until(self.world.now() + latency * 20);
            self.world.drain_replies();
            states = self.states();
        }
        let count_at = |revision: &String| {
            let at = states.iter().filter(|(_, it)| it.revision == *revision);
            at.count()
        };
        let most = states.iter().map(|(_, it)| it.revision.clone());
        let Some(revision) = most.max_by_key(count_at) else {
            return;
        };
        let time = self.world.now();
        for (node, state) in states {
            if state.revision == revision {
                self.ops.push(Op {
                    index: self.ops.len() as u64,
                    time: time.nanoseconds() as i64,
                    ..state_operation(node, Ok(Some(state)), None)
                });
                self.has_states = true;
            }
        }
    }

    fn states(&self) -> Vec<(NodeId, NodeState)> {
        let servers = self.servers.iter();
        let states = servers.map(|node| Some((*node, self.system.state(&self.world, *node)?)));
        states.flatten().collect()
    }

    /// Gives the interpreter a turn and carries out its instructions.
    fn turn(&mut self, input: Input<InterpreterRequest>) {
        let mut out = std::mem::take(&mut self.out);
        self.interpreter.turn(self.world.now(), input, &mut out);
        self.interpreter.check_invariants();
        self.turns += 1;
        for output in out.drain(..) {
            let Output::Reply(_, instruction) = output else {
                continue;
            };
            match instruction {
                Instruction::Record(op) => self.ops.push(op),
                Instruction::Invoke(Thread::NEMESIS, op) => self.inject(&op),
                Instruction::Invoke(thread, op) => {
                    let step = self.system.begin(thread, &op);
                    self.follow(thread, step);
                }
                Instruction::Log(_) => {}
                Instruction::Failed(failure) => self.failure = Some(failure.to_string()),
                Instruction::Done => self.is_over = true,
            }
        }
        self.out = out;
    }

    /// Passes the replies of client machines on: an operation continues, or its completion goes to the interpreter.
    fn collect(&mut self) {
        let replies: Vec<_> = self.world.drain_replies().collect();
        for (_, ticket, reply) in replies {
            if let Some((thread, call)) = self.open.remove(&ticket) {
                let step = self.system.resume(thread, call, reply);
                self.follow(thread, step);
            }
        }
        while let Some((thread, op)) = self.completed.pop_front() {
            self.turn(Input::Request(
                Ticket(0),
                InterpreterRequest::Completed(thread, op),
            ));
            if self.completed.is_empty() {
                self.turn(Input::Wake);
            }
        }
    }

    /// Carries out the next step of an operation.
    fn follow(&mut self, thread: Thread, step: StepOf<S>) {
        match step {
            ClientStep::Ask(call, request) => {
                self.tickets += 1;
                let ticket = Ticket(self.tickets);
                self.open.insert(ticket, (thread, call));
                let client = NodeId::client(thread.0);
                self.world.request(client, ticket, request);
            }
            ClientStep::Done(op) => {
                let node = self.servers[thread.0 as usize % self.servers.len()];
                let op = op.with("node", Value::text(node.to_string()));
                self.completed.push_back((thread, op));
            }
        }
    }

    /// Injects a fault; its completion carries an error when it changed nothing.
    fn inject(&mut self, op: &Op) {
        let done = op.complete(OpType::Info, op.value.clone());
        let done = match fault_of(op) {
            Ok(Fault::View) => {
                let view = self.system.view(&self.world, &self.servers);
                if view.merged().is_empty() {
                    // As when no node answers: a schedule waits before it asks again.
                    let text = "no majority of the nodes reports a member";
                    op.complete(OpType::Info, Value::Nil)
                        .with("error", Value::text(text))
                } else {
                    op.complete(OpType::Info, membership_value(&view))
                }
            }
            Ok(fault) => {
                let had_effect = match fault {
                    Fault::Join(_) | Fault::Leave(_) => {
                        self.system.change_membership(&mut self.world, &fault)
                    }
                    _ => self.world.apply(&fault),
                };
                let failures = self.world.take_boot_failures();
                let failures = failures.into_iter();
                self.boot_failures
                    .extend(failures.map(|(node, why)| format!("{node}: {why}")));
                if had_effect {
                    done
                } else {
                    done.with("error", Value::text("it changed nothing"))
                }
            }
            Err(error) => done.with("error", Value::text(error.to_string())),
        };
        self.completed.push_back((Thread::NEMESIS, done));
    }
}
