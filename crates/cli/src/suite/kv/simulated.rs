//! The store, its clients and a whole test in one thread from one seed.

use super::consumer::Consumer;
use super::errand::{Errand, Next};
use crate::plan::PlanFile;
use anyhow::Result;
use seatrial_generator::plan::{Limits, Surroundings};
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{
    CourseOptions, Event, FaultOptions, FaultOrder, Generator, Interpreter, InterpreterOptions,
    Step, Thread, View, course, fault_of, fault_package, view_value,
};
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_kv::{Bug, Client, ClientOptions, Outcome, Store, StoreOptions, Transaction};
use seatrial_machine::{Disk, Fault, Input, Machine, NodeId, Output, Rng, Ticket, Time};
use seatrial_sim::{Booted, World, WorldOptions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// One simulated test.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    /// Fixes everything.
    pub(crate) seed: u64,
    /// What is done.
    pub(crate) work: Work,
    /// What is broken; the interval is drawn.
    pub(crate) faults: FaultOptions,
    /// How the kinds of faults take turns, in place of what a plan says.
    pub(crate) order: Option<FaultOrder>,
    /// Client operations.
    pub(crate) operations: u64,
    /// Client threads.
    pub(crate) concurrency: u32,
    /// Mean time between operations; drawn unless given.
    pub(crate) operation_interval: Option<Duration>,
    /// A bug to plant.
    pub(crate) bug: Option<Bug>,
}

/// What is done in a simulated test.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A workload by its name: `register` or `list-append`, with faults beside it.
    Named(&'static str, WorkloadOptions),
    /// A plan, at its own pace.
    Planned {
        /// The plan.
        file: Arc<PlanFile>,
        /// Are the kinds of faults those of the command line, in place of the plan's?
        other_kinds: bool,
        /// When it ends at the latest.
        time: Duration,
    },
}

impl Work {
    /// What people call it.
    pub(crate) fn label(&self) -> &str {
        match self {
            Work::Named(name, _) => name,
            Work::Planned { file, .. } => file.label(),
        }
    }
}

/// What a simulated test left.
#[derive(Debug)]
pub(crate) struct Run {
    /// What happened.
    pub(crate) history: History,
    /// How rough the world was, in one line.
    pub(crate) world: String,
    /// Turns of all machines, the interpreter's included.
    pub(crate) turns: u64,
    /// Changes with every event of the world.
    pub(crate) fingerprint: u64,
    /// Nodes that could not start again, and why.
    pub(crate) boot_failures: Vec<String>,
}

/// A store or a client: what lives in the world.
enum Actor {
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

/// The one server of this form of the store.
const SERVER: NodeId = NodeId::server(1);

/// The pace of a simulated test.
struct Pace {
    /// Mean time between operations.
    interval: Duration,
    /// How long faults happen.
    duration: Duration,
    /// When a client gives up.
    timeout: Duration,
}

impl Simulation {
    /// The pace that fits the world: slow networks get more time, so that the operations and the faults still meet.
    fn pace(&self, world: &WorldOptions, rng: &mut Rng) -> Pace {
        let (network, disk) = (&world.network, &world.disk);
        let latency =
            network.delay_min * 2 + network.delay_spread + disk.sync_min + disk.sync_spread / 2;
        let drawn = Duration::from_micros(20).mul_f64(10_f64.powf(rng.unit() * 2.0));
        let interval = self.operation_interval.unwrap_or(drawn);
        let each = interval.max(latency / self.concurrency.max(1));
        let operations = u32::try_from(self.operations).unwrap_or(u32::MAX);
        Pace {
            interval,
            duration: each.saturating_mul(operations),
            timeout: latency * (5 + rng.below(45) as u32),
        }
    }

    /// Runs the test. The same simulation gives the same run, byte for byte.
    pub(crate) fn run(&self) -> Result<Run> {
        let rng = Rng::from_seed(self.seed);
        let options = WorldOptions::swarm(&mut rng.fork("swarm"), &self.faults.kinds);
        let pace = self.pace(&options, &mut rng.fork("pace"));
        let endpoints: Vec<NodeId> = (0..self.concurrency).map(NodeId::client).collect();
        let generator = match &self.work {
            Work::Named(name, options) => self.course(name, options, &pace, &rng)?,
            Work::Planned {
                file,
                other_kinds,
                time,
            } => file.plan.generator(Surroundings {
                rng: rng.clone(),
                servers: vec![SERVER],
                clients: endpoints.clone(),
                workloads: super::planned_workloads(),
                kinds: other_kinds.then(|| self.faults.kinds.clone()),
                interval: None,
                order: self.order,
                limits: Limits {
                    time: Some(*time),
                    ops: Some(self.operations),
                    interval: self.operation_interval,
                },
            }),
        };
        let mut test = Driver {
            world: self.world(&options, pace.timeout, &rng),
            interpreter: Interpreter::new(generator, &self.interpreter_options(&pace, &rng)),
            workload: match &self.work {
                Work::Named(name, _) => name,
                Work::Planned { .. } => "",
            },
            open: BTreeMap::new(),
            consumers: BTreeMap::new(),
            tickets: 0,
            completed: VecDeque::new(),
            ops: Vec::new(),
            out: Vec::new(),
            turns: 0,
            boot_failures: Vec::new(),
            mistake: None,
            over: false,
        };
        for endpoint in std::iter::once(SERVER).chain(endpoints) {
            test.world.add(endpoint);
        }
        test.run();
        if let Some(mistake) = test.mistake {
            anyhow::bail!(
                "the generator of {} made a mistake: {mistake}",
                self.work.label()
            );
        }
        Ok(Run {
            history: History::from_ops(test.ops),
            world: options.to_string(),
            turns: test.turns + test.world.turns(),
            fingerprint: test.world.fingerprint(),
            boot_failures: test.boot_failures,
        })
    }

    /// A workload with faults beside it, so many that they meet.
    fn course(
        &self,
        workload: &str,
        options: &WorkloadOptions,
        pace: &Pace,
        rng: &Rng,
    ) -> Result<Box<dyn Generator>> {
        let workload = super::workload(workload, &rng.fork("workload"), options)?;
        let mut fault_rng = rng.fork("faults");
        let fault_count = 2 + fault_rng.below(14) as u32;
        let faults = fault_package(
            FaultOptions {
                interval: pace.duration / fault_count,
                ..self.faults.clone()
            },
            fault_rng,
        );
        let clients = workload
            .generator
            .limit(self.operations)
            .stagger(rng.fork("stagger"), pace.interval);
        let course_options = CourseOptions {
            duration: pace.duration,
            recovery: pace.duration / 4,
        };
        let last_limit = pace.duration + pace.timeout * 20;
        let course = course(clients, Some(faults), course_options);
        Ok(course.and_last(workload.last, last_limit).boxed())
    }

    fn interpreter_options(&self, pace: &Pace, rng: &Rng) -> InterpreterOptions {
        let mut options = InterpreterOptions::new(self.concurrency, rng.fork("interpreter"));
        options.drain_timeout = pace.timeout * 4;
        options
    }

    /// A world that boots the store from its disk and clients from nothing.
    fn world(&self, options: &WorldOptions, timeout: Duration, rng: &Rng) -> World<Actor> {
        let bug = self.bug;
        let client_rng = rng.fork("clients");
        let boot = move |id: NodeId, disk: &dyn Disk| {
            if id.is_client() {
                let seed = client_rng.fork(&id.to_string()).word();
                let mut options = ClientOptions::new(SERVER, seed);
                options.request_timeout = timeout;
                options.hello_interval = timeout / 4;
                let machine = Actor::Client(Client::new(options));
                return Ok(Booted {
                    machine,
                    log_end: 0,
                });
            }
            let options = StoreOptions {
                bug,
                ..StoreOptions::default()
            };
            let (store, report) = Store::boot(disk, options).map_err(|error| error.to_string())?;
            Ok(Booted {
                machine: Actor::Store(Box::new(store)),
                log_end: report.recovery.end,
            })
        };
        World::new(rng.fork("world").word(), options.clone(), boot)
    }
}

/// Runs interpreter and world side by side: whichever is due first has its turn.
struct Driver {
    world: World<Actor>,
    interpreter: Interpreter<Box<dyn Generator>>,
    /// What the clients do; empty when a plan says so.
    workload: &'static str,
    /// Requests under way: which thread asked, and what for.
    open: BTreeMap<Ticket, (Thread, Errand)>,
    /// How far each client is in logs.
    consumers: BTreeMap<Thread, (Process, Consumer)>,
    tickets: u64,
    /// What is done and the interpreter does not know yet.
    completed: VecDeque<(Thread, Op)>,
    ops: Vec<Op>,
    out: Vec<Output<Step>>,
    turns: u64,
    boot_failures: Vec<String>,
    mistake: Option<String>,
    over: bool,
}

impl Driver {
    fn run(&mut self) {
        while !self.over {
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

    /// Gives the interpreter a turn and carries out what it wants.
    fn turn(&mut self, input: Input<Event>) {
        let mut out = std::mem::take(&mut self.out);
        self.interpreter.turn(self.world.now(), input, &mut out);
        self.interpreter.check_invariants();
        self.turns += 1;
        for output in out.drain(..) {
            let Output::Reply(_, step) = output else {
                continue;
            };
            match step {
                Step::Record(op) => self.ops.push(op),
                Step::Invoke(thread, op) if thread == Thread::NEMESIS => self.break_world(&op),
                Step::Invoke(thread, op) => self.invoke(thread, &op),
                Step::Log(_) => {}
                Step::Failed(failure) => self.mistake = Some(failure.to_string()),
                Step::Done => self.over = true,
            }
        }
        self.out = out;
    }

    /// Brings answers of the clients to the interpreter, then asks it for more.
    fn collect(&mut self) {
        let replies: Vec<_> = self.world.drain_replies().collect();
        for (_, ticket, outcome) in replies {
            if let Some((thread, mut errand)) = self.open.remove(&ticket) {
                match errand.told(&outcome) {
                    Next::Ask(transaction) => self.ask(thread, errand, transaction),
                    Next::Done(op) => {
                        let consumer = (op.process, errand.into_consumer());
                        self.consumers.insert(thread, consumer);
                        self.complete(thread, op);
                    }
                }
            }
        }
        while let Some((thread, op)) = self.completed.pop_front() {
            self.turn(Input::Request(Ticket(0), Event::Completed(thread, op)));
            if self.completed.is_empty() {
                self.turn(Input::Wake);
            }
        }
    }

    fn complete(&mut self, thread: Thread, op: Op) {
        let op = if thread == Thread::NEMESIS {
            op
        } else {
            op.with("node", Value::text("n1"))
        };
        self.completed.push_back((thread, op));
    }

    fn ask(&mut self, thread: Thread, errand: Errand, transaction: Transaction) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.open.insert(ticket, (thread, errand));
        self.world
            .request(NodeId::client(thread.0), ticket, transaction);
    }

    fn invoke(&mut self, thread: Thread, op: &Op) {
        let known = self.consumers.get(&thread);
        let consumer = known.filter(|(process, _)| *process == op.process);
        let consumer = consumer.map(|(_, consumer)| consumer.clone());
        match Errand::begin(self.workload, op, &consumer.unwrap_or_default()) {
            Ok((errand, transaction)) => self.ask(thread, errand, transaction),
            Err(reason) => {
                let failed = op.complete(OpType::Fail, op.value.clone());
                self.complete(thread, failed.with("error", Value::text(reason)));
            }
        }
    }

    /// Carries a fault out; the completion says so when that changed nothing.
    fn break_world(&mut self, op: &Op) {
        let done = op.complete(OpType::Info, op.value.clone());
        let done = match fault_of(op) {
            Ok(Fault::View) => {
                let view = View {
                    members: BTreeMap::from([(SERVER, BTreeSet::from([SERVER]))]),
                    primaries: BTreeSet::from([SERVER]),
                };
                op.complete(OpType::Info, view_value(&view))
            }
            Ok(fault) => {
                let bit = self.world.apply(&fault);
                let failures = self.world.take_boot_failures();
                let failures = failures.into_iter();
                self.boot_failures
                    .extend(failures.map(|(node, why)| format!("{node}: {why}")));
                if bit {
                    done
                } else {
                    done.with("error", Value::text("it changed nothing"))
                }
            }
            Err(error) => done.with("error", Value::text(error.to_string())),
        };
        self.complete(Thread::NEMESIS, done);
    }
}

#[cfg(test)]
mod tests;
