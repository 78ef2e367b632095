//! Generators from plans.

use super::fault::FaultsDraw;
use super::node::{Child, Keys, Kind, Modifiers, Node, On, Operation, Times, Who};
use super::value::Drawer;
use super::{Limits, Surroundings};
use seatrial_generator::KeyDistribution;
use seatrial_generator::Places;
use seatrial_generator::not_before;
use seatrial_generator::renamed;
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{
    Context, Generator, Next, SingleOp, TestPhasesOptions, Tree, any, concurrent_keys, cycle_times,
    each_process, each_thread, fault_operation, fault_package, flip_flop, function, log, operation,
    phases, reserve, sequence, sequential_keys, shortest_any, sleep, test_phases, weighted_mix,
};
use seatrial_history::{Key, Op, Process, Symbol, Value};
use seatrial_machine::{FaultKind, Rng, Time};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Built = Box<dyn Generator>;

/// Everything that nodes need to become generators. Shared by the generators that make others while the test runs.
///
/// Random streams are forked by place: the third node of a sequence draws the same whatever the second one does.
pub(super) struct Builder {
    surroundings: Surroundings,
    counters: Mutex<BTreeMap<String, Arc<AtomicI64>>>,
    /// The tables of distributions, which are large: one for all that are the same.
    places: Mutex<Vec<(KeyDistribution, usize, Arc<Places>)>>,
    /// By workload: what ends the one that was built last. It may know what that one did: the last polls of logs how far
    /// each of them reaches.
    lasts: Mutex<BTreeMap<&'static str, Built>>,
}

impl Builder {
    pub(super) fn new(surroundings: Surroundings) -> Arc<Builder> {
        Arc::new(Builder {
            surroundings,
            counters: Mutex::new(BTreeMap::new()),
            places: Mutex::new(Vec::new()),
            lasts: Mutex::default(),
        })
    }

    /// The counter of this name; everybody who asks gets the same.
    pub(super) fn counter(&self, name: &str) -> Arc<AtomicI64> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counters.get(name) {
            return Arc::clone(counter);
        }
        let counter = Arc::new(AtomicI64::new(1));
        counters.insert(name.to_owned(), Arc::clone(&counter));
        counter
    }

    /// The sampler of `count` places; shared between nodes with the same distribution and count.
    pub(super) fn places(&self, distribution: KeyDistribution, count: usize) -> Arc<Places> {
        let mut known = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known
            .iter()
            .find(|(one, size, _)| *one == distribution && *size == count);
        if let Some((_, _, places)) = same {
            return Arc::clone(places);
        }
        let places = Arc::new(Places::new(count, distribution));
        known.push((distribution, count, Arc::clone(&places)));
        places
    }

    /// The whole plan. Whatever may be left broken at the end is mended.
    pub(super) fn plan(
        self: &Arc<Builder>,
        root: &Child,
        kinds: &[FaultKind],
        heal: bool,
    ) -> Built {
        let rng = self.surroundings.rng.fork("plan");
        let limits = self.surroundings.limits;
        let (time, inside) = (
            limits.time,
            Limits {
                time: None,
                ..limits
            },
        );
        let beside = root.modifiers.faults.is_some() && !matches!(root.kind, Kind::Faults);
        let mut whole = if beside {
            // The limits are the clients', and the faults end with them.
            self.modified(root, &rng, inside)
        } else {
            let whole = self.node(root, &rng, Who::Parts);
            Self::limited(whole, &rng, inside)
        };
        if let Some(time) = time {
            whole = whole.time_limit(time).boxed();
        }
        if kinds.is_empty() || !(heal || time.is_some()) {
            return whole;
        }
        phases([whole, self.healing(kinds)]).boxed()
    }

    /// Applies the limits of the whole test: number and rate of client operations.
    fn limited(generator: Built, rng: &Rng, limits: Limits) -> Built {
        let mut generator = generator;
        if let Some(interval) = limits.interval {
            generator = generator.stagger(rng.fork("test rate"), interval).boxed();
        }
        if let Some(remaining) = limits.ops {
            generator = ClientLimit {
                remaining,
                is_client: false,
                generator,
            }
            .boxed();
        }
        generator
    }

    /// A node inside another, or the whole plan. Where the children of a node run on different threads, each is restricted
    /// to its own.
    fn node(self: &Arc<Builder>, node: &Child, rng: &Rng, around: Who) -> Built {
        let generator = self.modified(node, rng, Limits::default());
        match (around, node.who) {
            (Who::Parts, Who::Clients) => generator.clients().boxed(),
            (Who::Parts, Who::Nemesis) => generator.nemesis().boxed(),
            _ => generator,
        }
    }

    /// What the node does, with everything around it.
    fn modified(self: &Arc<Builder>, node: &Child, rng: &Rng, limits: Limits) -> Built {
        let modifiers = &node.modifiers;
        let mut generator = match modifiers.cycle {
            None => self.repeated(node, rng),
            Some(times) => {
                let (builder, node, rng) = (Arc::clone(self), Arc::clone(node), rng.clone());
                let mut round = 0_u64;
                function(move || {
                    let more = match times {
                        Times::Endless => true,
                        Times::Count(count) => round < count,
                    };
                    round += 1;
                    more.then(|| builder.repeated(&node, &rng.fork(&format!("round {round}"))))
                })
                .boxed()
            }
        };
        generator = sieve(generator, modifiers);
        generator = timing(generator, modifiers, rng);
        generator = match modifiers.on {
            None => generator,
            Some(On::Clients) => generator.clients().boxed(),
            Some(On::Nemesis) => generator.nemesis().boxed(),
            Some(On::Threads(first, last)) => generator
                .on_threads(move |thread| thread.is_client() && (first..=last).contains(&thread.0))
                .boxed(),
        };
        generator = Self::limited(generator, rng, limits);
        if let Some(faults) = &modifiers.faults
            && !matches!(node.kind, Kind::Faults)
        {
            generator = self.beside(generator, faults, rng);
        }
        if modifiers.synchronize {
            generator = generator.synchronize().boxed();
        }
        generator
    }

    /// What the node does, perhaps again and again.
    fn repeated(self: &Arc<Builder>, node: &Child, rng: &Rng) -> Built {
        let repeat = node.modifiers.repeat;
        if let Kind::Operation(operation) = &node.kind {
            let remaining = match repeat {
                None => Some(1),
                Some(Times::Endless) => None,
                Some(Times::Count(count)) => Some(count),
            };
            return Operations::new(self, operation, rng.fork("operation"), remaining).boxed();
        }
        let generator = self.kind(node, rng);
        match repeat {
            None => generator,
            Some(Times::Endless) => generator.repeat().boxed(),
            Some(Times::Count(count)) => generator.repeat_times(count).boxed(),
        }
    }

    fn kind(self: &Arc<Builder>, node: &Child, rng: &Rng) -> Built {
        let around = node.who_inside();
        let one = |child: &Child| self.node(child, &rng.fork("0"), around);
        match &node.kind {
            Kind::Operation(operation) => {
                Operations::new(self, operation, rng.fork("operation"), Some(1)).boxed()
            }
            Kind::Workload(name, options) => {
                let (generator, last) = self.workload(name, options, rng);
                let mut lasts = self.lasts.lock().unwrap_or_else(PoisonError::into_inner);
                lasts.extend(last.map(|last| (*name, last)));
                generator
            }
            Kind::LastOf(name, options) => {
                let mut lasts = self.lasts.lock().unwrap_or_else(PoisonError::into_inner);
                let last = lasts.remove(name);
                last.or_else(|| self.workload(name, options, rng).1).boxed()
            }
            Kind::Sequence(nodes) => sequence(self.later(nodes, rng, around)).boxed(),
            Kind::Phases(nodes) => phases(self.later(nodes, rng, around)).boxed(),
            Kind::Mix(nodes) => {
                let weights = nodes.iter().map(|(weight, _)| *weight);
                let nodes = self.all(nodes.iter().map(|(_, node)| node), rng, around);
                weighted_mix(rng.fork("mix"), weights.zip(nodes)).boxed()
            }
            Kind::Any(nodes) => any(rng.fork("any"), self.all(nodes, rng, around)).boxed(),
            Kind::ShortestAny(nodes) => {
                shortest_any(rng.fork("any"), self.all(nodes, rng, around)).boxed()
            }
            Kind::FlipFlop([first, second]) => {
                let second = self.node(second, &rng.fork("1"), around);
                flip_flop(one(first), second).boxed()
            }
            Kind::Reserve(ranges, default) => {
                let counts = ranges.iter().map(|(count, _)| *count);
                let nodes = self.all(ranges.iter().map(|(_, node)| node), rng, around);
                let default = self.node(default, &rng.fork("default"), around);
                reserve(rng.fork("reserve"), counts.zip(nodes), default).boxed()
            }
            Kind::EachThread(child) => {
                let make = self.maker(child, rng, around);
                each_thread(move |thread| make(&thread.0.to_string())).boxed()
            }
            Kind::EachProcess(child) => {
                let make = self.maker(child, rng, around);
                each_process(move |process| make(&process.to_string())).boxed()
            }
            Kind::SequentialKeys(keys, child) => {
                let make = self.maker(child, rng, around);
                sequential_keys(keys.iter(), move |key| make(&key.to_string())).boxed()
            }
            Kind::ConcurrentKeys(keys, threads, child) => {
                let make = self.maker(child, rng, around);
                concurrent_keys(*threads, keys.iter(), move |key| make(&key.to_string())).boxed()
            }
            Kind::CycleTimes(turns) => {
                let durations = turns.iter().map(|(duration, _)| *duration);
                let nodes = self.all(turns.iter().map(|(_, node)| node), rng, around);
                cycle_times(durations.zip(nodes)).boxed()
            }
            Kind::Sleep(duration) => sleep(*duration).boxed(),
            Kind::Log(text) => log(text).boxed(),
            Kind::Fault(fault) => fault_operation(fault).boxed(),
            Kind::Heal(kinds) => self.healing(kinds),
            Kind::Of(child) => one(child),
            Kind::Faults => self.faults(node, rng),
            Kind::Nothing => None::<SingleOp>.boxed(),
        }
    }

    /// Nodes that are built when their turn comes.
    fn later(
        self: &Arc<Builder>,
        nodes: &[Child],
        rng: &Rng,
        around: Who,
    ) -> impl Iterator<Item = Built> + Send + use<> {
        let (builder, nodes, rng) = (Arc::clone(self), nodes.to_vec(), rng.clone());
        let nodes = nodes.into_iter().enumerate();
        nodes.map(move |(index, node)| builder.node(&node, &rng.fork(&index.to_string()), around))
    }

    /// Nodes that are built at once.
    fn all<'n>(
        self: &Arc<Builder>,
        nodes: impl IntoIterator<Item = &'n Child>,
        rng: &Rng,
        around: Who,
    ) -> Vec<Built> {
        let nodes = nodes.into_iter().enumerate();
        let build =
            |(index, node): (usize, &Child)| self.node(node, &rng.fork(&index.to_string()), around);
        nodes.map(build).collect()
    }

    /// Builds a node for each thread, process or key, each with a stream of its own.
    fn maker(
        self: &Arc<Builder>,
        child: &Child,
        rng: &Rng,
        around: Who,
    ) -> impl Fn(&str) -> Built + Send + use<> {
        let (builder, child, rng) = (Arc::clone(self), Arc::clone(child), rng.clone());
        move |name| builder.node(&child, &rng.fork(name), around)
    }

    /// The operations of a workload, and those at its very end.
    fn workload(&self, name: &str, options: &WorkloadOptions, rng: &Rng) -> (Built, Option<Built>) {
        let made = (self.surroundings.workloads)(name, &rng.fork("workload"), options);
        // Names were checked when the plan was read.
        made.map_or_else(
            || (None::<SingleOp>.boxed(), None),
            |made| (made.generator, made.last),
        )
    }

    /// The faults that are drawn, as the command line may have changed them.
    fn drawn(&self, faults: &FaultsDraw) -> Option<seatrial_generator::FaultOptions> {
        let surroundings = &self.surroundings;
        let mut options = faults.options(&surroundings.servers, &surroundings.clients);
        if let Some(kinds) = &surroundings.kinds {
            options.kinds.clone_from(kinds);
        }
        if let Some(interval) = surroundings.interval {
            options.interval = interval;
        }
        options.order = surroundings.order.unwrap_or(options.order);
        (!options.kinds.is_empty()).then_some(options)
    }

    /// Faults without end.
    fn faults(&self, node: &Node, rng: &Rng) -> Built {
        let options = node
            .modifiers
            .faults
            .as_ref()
            .and_then(|faults| self.drawn(faults));
        let package = options.map(|options| fault_package(options, rng.fork("faults")));
        package.map(|package| package.faults).boxed()
    }

    /// The node with faults beside it, and everything mended after it.
    fn beside(&self, generator: Built, faults: &FaultsDraw, rng: &Rng) -> Built {
        let options = self.drawn(faults);
        let package = options.map(|options| fault_package(options, rng.fork("faults")));
        let options = TestPhasesOptions {
            duration: faults.duration.unwrap_or(Duration::MAX),
            recovery: faults.recovery,
        };
        test_phases(generator, package, options).boxed()
    }

    fn healing(&self, kinds: &[FaultKind]) -> Built {
        let surroundings = &self.surroundings;
        let options = seatrial_generator::FaultOptions::new(
            kinds,
            surroundings.servers.clone(),
            surroundings.clients.clone(),
            super::fault::INTERVAL,
        );
        fault_package(options, surroundings.rng.fork("healing"))
            .healing
            .nemesis()
            .boxed()
    }
}

impl Node {
    /// The default threads of the nodes inside.
    fn who_inside(&self) -> Who {
        // Restricted by `on`, or clients beside faults: the nodes inside have no default of their own.
        if self.modifiers.on.is_some() || self.modifiers.faults.is_some() {
            return Who::Anyone;
        }
        self.who
    }
}

/// Which operations come, and how many.
fn sieve(generator: Built, modifiers: &Modifiers) -> Built {
    let mut generator = generator;
    if !modifiers.f_map.is_empty() {
        let names = modifiers.f_map.clone();
        generator = generator.map(move |op| renamed(op, &names)).boxed();
    }
    if let Some(only) = modifiers.only.clone() {
        generator = generator.filter(move |op| only.contains(&op.f)).boxed();
    }
    if let Some(except) = modifiers.except.clone() {
        generator = generator.filter(move |op| !except.contains(&op.f)).boxed();
    }
    if modifiers.until_ok {
        generator = generator.until_ok().boxed();
    }
    if let Some(count) = modifiers.process_limit {
        generator = generator.process_limit(count).boxed();
    }
    if let Some(count) = modifiers.concurrency_limit {
        generator = generator.concurrency_limit(count).boxed();
    }
    if let Some(count) = modifiers.limit {
        generator = generator.limit(count).boxed();
    }
    generator
}

/// When operations come.
fn timing(generator: Built, modifiers: &Modifiers, rng: &Rng) -> Built {
    let mut generator = generator;
    if let Some(mean) = modifiers.stagger {
        generator = generator.stagger(rng.fork("stagger"), mean).boxed();
    }
    if let Some(interval) = modifiers.delay {
        generator = generator.delay(interval).boxed();
    }
    if let Some(interval) = modifiers.delay_til {
        generator = generator.delay_til(interval).boxed();
    }
    if let Some(duration) = modifiers.time_limit {
        generator = generator.time_limit(duration).boxed();
    }
    generator
}

impl Keys {
    fn iter(&self) -> Box<dyn Iterator<Item = Key> + Send> {
        match self {
            Keys::Range(from, to) => Box::new((*from..=*to).map(Key::Int)),
            Keys::List(keys) => Box::new(keys.clone().into_iter()),
        }
    }
}

/// Operations of one template, each with freshly drawn values, which are kept until the operation is taken.
#[derive(Debug)]
struct Operations {
    f: Symbol,
    key: Option<Drawer>,
    value: Option<Drawer>,
    fields: Vec<(Symbol, Drawer)>,
    process: Option<u64>,
    at: Option<Duration>,
    rng: Rng,
    /// `None` is for ever.
    remaining: Option<u64>,
    drawn: Option<SingleOp>,
}

impl Operations {
    fn new(builder: &Builder, model: &Operation, rng: Rng, remaining: Option<u64>) -> Operations {
        let fields = model.fields.iter();
        Operations {
            f: model.f,
            key: model.key.as_ref().map(|draw| draw.drawer(builder)),
            value: model.value.as_ref().map(|draw| draw.drawer(builder)),
            fields: fields
                .map(|(name, draw)| (*name, draw.drawer(builder)))
                .collect(),
            process: model.process,
            at: model.at,
            rng,
            remaining,
            drawn: None,
        }
    }

    fn draw(&mut self) -> SingleOp {
        let rng = &mut self.rng;
        let key = self.key.as_ref().map(|drawer| drawer.key(rng));
        let value = self
            .value
            .as_ref()
            .map_or(Value::Nil, |drawer| drawer.draw(rng));
        let value = match key {
            Some(key) => Value::Keyed(key, Arc::new(value)),
            None => value,
        };
        let mut template = operation(self.f, value);
        for (name, drawer) in &self.fields {
            template = template.with(*name, drawer.draw(rng));
        }
        if let Some(process) = self.process {
            template = template.by(Process::Client(process));
        }
        template
    }
}

impl Generator for Operations {
    fn next(&mut self, context: &Context) -> Next {
        if self.remaining == Some(0) {
            return Next::Exhausted;
        }
        if self.drawn.is_none() {
            self.drawn = Some(self.draw());
        }
        let mut next = self.drawn.next(context);
        if let (Next::Op(op), Some(at)) = (&mut next, self.at) {
            not_before(op, Time::ZERO + at);
        }
        next
    }

    fn commit(&mut self) {
        self.drawn = None;
        if let Some(remaining) = &mut self.remaining {
            *remaining -= 1;
        }
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        Tree::leaf(match self.remaining {
            None => format!("{}, endless", self.f),
            Some(remaining) => format!("{}, {remaining} more", self.f),
        })
    }
}

/// Limits the number of client operations. Operations of the nemesis do not count, but end with them.
struct ClientLimit {
    remaining: u64,
    /// Was the last answer a client's?
    is_client: bool,
    generator: Built,
}

impl Generator for ClientLimit {
    fn next(&mut self, context: &Context) -> Next {
        if self.remaining == 0 {
            return Next::Exhausted;
        }
        let next = self.generator.next(context);
        if let Next::Op(op) = &next {
            self.is_client = op.process.is_client() && op.is_invoke();
        }
        next
    }

    fn commit(&mut self) {
        self.remaining -= u64::from(self.is_client);
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around(
            format!("{} more of clients", self.remaining),
            &self.generator,
        )
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}
