//! Builds the generator of a plan.

use super::drawn_value::Drawer;
use super::plan_fault::FaultsDraw;
use super::plan_node::{
    Child, IndependentKeys, Modifiers, Node, NodeKind, OperationTemplate, Repetition, ThreadGroup,
    ThreadSelection,
};
use super::{PlanEnvironment, PlanLimits};
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type BoxedGenerator = Box<dyn Generator>;

/// Builds the generators of nodes. Shared by generators that build others during the test (one per key, thread or round).
///
/// Random streams are forked by the path of a node: what the third node of a sequence draws does not depend on the second.
pub(super) struct Builder {
    environment: PlanEnvironment,
    /// Counters that the plan shares, by name.
    counters: Mutex<BTreeMap<String, Arc<AtomicI64>>>,
    /// Tables of distributions by distribution and size. They are large, so equal ones are shared.
    places: Mutex<Vec<(KeyDistribution, usize, Arc<Places>)>>,
    /// By workload: the final operations of the generator that was built last. They may share state with it: the final polls
    /// of logs know how far each log reaches.
    final_parts: Mutex<BTreeMap<&'static str, BoxedGenerator>>,
}

impl Builder {
    pub(super) fn new(environment: PlanEnvironment) -> Arc<Builder> {
        Arc::new(Builder {
            environment,
            counters: Mutex::new(BTreeMap::new()),
            places: Mutex::new(Vec::new()),
            final_parts: Mutex::default(),
        })
    }

    /// The counter of this name; created at 1 on first use, then shared.
    pub(super) fn counter(&self, name: &str) -> Arc<AtomicI64> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counters.get(name) {
            return Arc::clone(counter);
        }
        let counter = Arc::new(AtomicI64::new(1));
        counters.insert(name.to_owned(), Arc::clone(&counter));
        counter
    }

    fn final_parts(&self) -> MutexGuard<'_, BTreeMap<&'static str, BoxedGenerator>> {
        let parts = self.final_parts.lock();
        parts.unwrap_or_else(PoisonError::into_inner)
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

    /// The whole plan, with the limits of the test, then the healing of all `kinds` if the plan may end with active faults.
    pub(super) fn plan(
        self: &Arc<Builder>,
        root: &Child,
        kinds: &[FaultKind],
        heal: bool,
    ) -> BoxedGenerator {
        let rng = self.environment.rng.fork("plan");
        let limits = self.environment.limits;
        let (time, without_time) = (
            limits.time,
            PlanLimits {
                time: None,
                ..limits
            },
        );
        let has_concurrent_faults =
            root.modifiers.faults.is_some() && !matches!(root.kind, NodeKind::Faults);
        let mut whole = if has_concurrent_faults {
            // The limits apply to the clients; the faults end with them.
            self.modified(root, &rng, without_time)
        } else {
            let whole = self.node(root, &rng, ThreadGroup::Mixed);
            Self::limited(whole, &rng, without_time)
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
    fn limited(generator: BoxedGenerator, rng: &Rng, limits: PlanLimits) -> BoxedGenerator {
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
    fn node(self: &Arc<Builder>, node: &Child, rng: &Rng, parent: ThreadGroup) -> BoxedGenerator {
        let generator = self.modified(node, rng, PlanLimits::default());
        match (parent, node.thread_group) {
            (ThreadGroup::Mixed, ThreadGroup::Clients) => generator.clients().boxed(),
            (ThreadGroup::Mixed, ThreadGroup::Nemesis) => generator.nemesis().boxed(),
            _ => generator,
        }
    }

    /// A node with its modifiers, from the innermost to the outermost; `limits` go inside `faults`.
    fn modified(
        self: &Arc<Builder>,
        node: &Child,
        rng: &Rng,
        limits: PlanLimits,
    ) -> BoxedGenerator {
        let modifiers = &node.modifiers;
        let mut generator = match modifiers.cycle {
            None => self.repeated(node, rng),
            Some(times) => {
                let (builder, node, rng) = (Arc::clone(self), Arc::clone(node), rng.clone());
                let mut round = 0_u64;
                function(move || {
                    let more = match times {
                        Repetition::Endless => true,
                        Repetition::Count(count) => round < count,
                    };
                    round += 1;
                    more.then(|| builder.repeated(&node, &rng.fork(&format!("round {round}"))))
                })
                .boxed()
            }
        };
        generator = filters(generator, modifiers);
        generator = timing(generator, modifiers, rng);
        generator = match modifiers.on {
            None => generator,
            Some(ThreadSelection::Clients) => generator.clients().boxed(),
            Some(ThreadSelection::Nemesis) => generator.nemesis().boxed(),
            Some(ThreadSelection::Threads(first, last)) => generator
                .on_threads(move |thread| thread.is_client() && (first..=last).contains(&thread.0))
                .boxed(),
        };
        generator = Self::limited(generator, rng, limits);
        if let Some(faults) = &modifiers.faults
            && !matches!(node.kind, NodeKind::Faults)
        {
            generator = self.with_faults(generator, faults, rng);
        }
        if modifiers.synchronize {
            generator = generator.synchronize().boxed();
        }
        generator
    }

    /// A node with its `repeat`.
    fn repeated(self: &Arc<Builder>, node: &Child, rng: &Rng) -> BoxedGenerator {
        let repeat = node.modifiers.repeat;
        if let NodeKind::Operation(operation) = &node.kind {
            let remaining = match repeat {
                None => Some(1),
                Some(Repetition::Endless) => None,
                Some(Repetition::Count(count)) => Some(count),
            };
            return TemplateGenerator::new(self, operation, rng.fork("operation"), remaining)
                .boxed();
        }
        let generator = self.kind(node, rng);
        match repeat {
            None => generator,
            Some(Repetition::Endless) => generator.repeat().boxed(),
            Some(Repetition::Count(count)) => generator.repeat_times(count).boxed(),
        }
    }

    /// The generator of a kind, without modifiers.
    fn kind(self: &Arc<Builder>, node: &Child, rng: &Rng) -> BoxedGenerator {
        let group = node.group_inside();
        let one = |child: &Child| self.node(child, &rng.fork("0"), group);
        match &node.kind {
            NodeKind::Operation(operation) => {
                TemplateGenerator::new(self, operation, rng.fork("operation"), Some(1)).boxed()
            }
            NodeKind::Workload(name, options) => {
                let (generator, last) = self.workload(name, options, rng);
                self.final_parts().extend(last.map(|last| (*name, last)));
                generator
            }
            NodeKind::LastOf(name, options) => {
                let last = self.final_parts().remove(name);
                last.or_else(|| self.workload(name, options, rng).1).boxed()
            }
            NodeKind::Sequence(nodes) => sequence(self.build_lazily(nodes, rng, group)).boxed(),
            NodeKind::Phases(nodes) => phases(self.build_lazily(nodes, rng, group)).boxed(),
            NodeKind::Mix(nodes) => {
                let weights = nodes.iter().map(|(weight, _)| *weight);
                let nodes = self.build_all(nodes.iter().map(|(_, node)| node), rng, group);
                weighted_mix(rng.fork("mix"), weights.zip(nodes)).boxed()
            }
            NodeKind::Any(nodes) => any(rng.fork("any"), self.build_all(nodes, rng, group)).boxed(),
            NodeKind::ShortestAny(nodes) => {
                shortest_any(rng.fork("any"), self.build_all(nodes, rng, group)).boxed()
            }
            NodeKind::FlipFlop([first, second]) => {
                let second = self.node(second, &rng.fork("1"), group);
                flip_flop(one(first), second).boxed()
            }
            NodeKind::Reserve(ranges, default) => {
                let counts = ranges.iter().map(|(count, _)| *count);
                let nodes = self.build_all(ranges.iter().map(|(_, node)| node), rng, group);
                let default = self.node(default, &rng.fork("default"), group);
                reserve(rng.fork("reserve"), counts.zip(nodes), default).boxed()
            }
            NodeKind::EachThread(child) => {
                let make = self.builder_of(child, rng, group);
                each_thread(move |thread| make(&thread.0.to_string())).boxed()
            }
            NodeKind::EachProcess(child) => {
                let make = self.builder_of(child, rng, group);
                each_process(move |process| make(&process.to_string())).boxed()
            }
            NodeKind::SequentialKeys(keys, child) => {
                let make = self.builder_of(child, rng, group);
                sequential_keys(keys.iter(), move |key| make(&key.to_string())).boxed()
            }
            NodeKind::ConcurrentKeys(keys, threads, child) => {
                let make = self.builder_of(child, rng, group);
                concurrent_keys(*threads, keys.iter(), move |key| make(&key.to_string())).boxed()
            }
            NodeKind::CycleTimes(turns) => {
                let durations = turns.iter().map(|(duration, _)| *duration);
                let nodes = self.build_all(turns.iter().map(|(_, node)| node), rng, group);
                cycle_times(durations.zip(nodes)).boxed()
            }
            NodeKind::Sleep(duration) => sleep(*duration).boxed(),
            NodeKind::Log(text) => log(text).boxed(),
            NodeKind::Fault(fault) => fault_operation(fault).boxed(),
            NodeKind::Heal(kinds) => self.healing(kinds),
            NodeKind::Of(child) => one(child),
            NodeKind::Faults => self.faults(node, rng),
            NodeKind::Nothing => None::<SingleOp>.boxed(),
        }
    }

    /// Builds each node when the iterator reaches it.
    fn build_lazily(
        self: &Arc<Builder>,
        nodes: &[Child],
        rng: &Rng,
        parent: ThreadGroup,
    ) -> impl Iterator<Item = BoxedGenerator> + Send + use<> {
        let (builder, nodes, rng) = (Arc::clone(self), nodes.to_vec(), rng.clone());
        let nodes = nodes.into_iter().enumerate();
        nodes.map(move |(index, node)| builder.node(&node, &rng.fork(&index.to_string()), parent))
    }

    /// Builds all nodes at once.
    fn build_all<'n>(
        self: &Arc<Builder>,
        nodes: impl IntoIterator<Item = &'n Child>,
        rng: &Rng,
        parent: ThreadGroup,
    ) -> Vec<BoxedGenerator> {
        let nodes = nodes.into_iter().enumerate();
        let build =
            |(index, node): (usize, &Child)| self.node(node, &rng.fork(&index.to_string()), parent);
        nodes.map(build).collect()
    }

    /// A function that builds a node for one thread, process or key, with a random stream of its own.
    fn builder_of(
        self: &Arc<Builder>,
        child: &Child,
        rng: &Rng,
        parent: ThreadGroup,
    ) -> impl Fn(&str) -> BoxedGenerator + Send + use<> {
        let (builder, child, rng) = (Arc::clone(self), Arc::clone(child), rng.clone());
        move |name| builder.node(&child, &rng.fork(name), parent)
    }

    /// The operations of a workload, and its final ones, if it has any.
    fn workload(
        &self,
        name: &str,
        options: &WorkloadOptions,
        rng: &Rng,
    ) -> (BoxedGenerator, Option<BoxedGenerator>) {
        let made = (self.environment.workloads)(name, &rng.fork("workload"), options);
        // The name was checked when the plan was decoded.
        made.map_or_else(
            || (None::<SingleOp>.boxed(), None),
            |made| (made.generator, made.last),
        )
    }

    /// The options of drawn faults, with the overrides of the command line; `None` without kinds.
    fn fault_options(&self, faults: &FaultsDraw) -> Option<seatrial_generator::FaultOptions> {
        let environment = &self.environment;
        let mut options = faults.options(&environment.servers, &environment.clients);
        if let Some(kinds) = &environment.kinds {
            options.kinds.clone_from(kinds);
        }
        if let Some(interval) = environment.interval {
            options.interval = interval;
        }
        options.order = environment.order.unwrap_or(options.order);
        (!options.kinds.is_empty()).then_some(options)
    }

    /// Drawn faults without an end, for a node that has only the modifier `faults`.
    fn faults(&self, node: &Node, rng: &Rng) -> BoxedGenerator {
        let options = node
            .modifiers
            .faults
            .as_ref()
            .and_then(|faults| self.fault_options(faults));
        let package = options.map(|options| fault_package(options, rng.fork("faults")));
        package.map(|package| package.faults).boxed()
    }

    /// The node with drawn faults concurrent to it, healed at its end.
    fn with_faults(
        &self,
        generator: BoxedGenerator,
        faults: &FaultsDraw,
        rng: &Rng,
    ) -> BoxedGenerator {
        let options = self.fault_options(faults);
        let package = options.map(|options| fault_package(options, rng.fork("faults")));
        let options = TestPhasesOptions {
            duration: faults.duration.unwrap_or(Duration::MAX),
            recovery: faults.recovery,
        };
        test_phases(generator, package, options).boxed()
    }

    /// The operations that heal faults of these kinds.
    fn healing(&self, kinds: &[FaultKind]) -> BoxedGenerator {
        let environment = &self.environment;
        let options = seatrial_generator::FaultOptions::new(
            kinds,
            environment.servers.clone(),
            environment.clients.clone(),
            super::plan_fault::INTERVAL,
        );
        fault_package(options, environment.rng.fork("healing"))
            .healing
            .nemesis()
            .boxed()
    }
}

impl Node {
    /// The default threads of the child nodes.
    fn group_inside(&self) -> ThreadGroup {
        // Restricted by `on`, or clients concurrent to faults: the children have no default of their own.
        if self.modifiers.on.is_some() || self.modifiers.faults.is_some() {
            return ThreadGroup::Any;
        }
        self.thread_group
    }
}

/// Applies the modifiers that rename, filter and limit operations.
fn filters(generator: BoxedGenerator, modifiers: &Modifiers) -> BoxedGenerator {
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

/// Applies the modifiers of time.
fn timing(generator: BoxedGenerator, modifiers: &Modifiers, rng: &Rng) -> BoxedGenerator {
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

impl IndependentKeys {
    fn iter(&self) -> Box<dyn Iterator<Item = Key> + Send> {
        match self {
            IndependentKeys::Range(from, to) => Box::new((*from..=*to).map(Key::Int)),
            IndependentKeys::List(keys) => Box::new(keys.clone().into_iter()),
        }
    }
}

/// A generator of operations from one template. Values are drawn once per operation and kept until it is committed, so that
/// `next` is repeatable.
#[derive(Debug)]
struct TemplateGenerator {
    f: Symbol,
    key: Option<Drawer>,
    value: Option<Drawer>,
    fields: Vec<(Symbol, Drawer)>,
    process: Option<u64>,
    at: Option<Duration>,
    rng: Rng,
    /// Operations left; `None`: no limit.
    remaining: Option<u64>,
    drawn: Option<SingleOp>,
}

impl TemplateGenerator {
    fn new(
        builder: &Builder,
        template: &OperationTemplate,
        rng: Rng,
        remaining: Option<u64>,
    ) -> TemplateGenerator {
        let fields = template.fields.iter();
        TemplateGenerator {
            f: template.f,
            key: template.key.as_ref().map(|draw| draw.drawer(builder)),
            value: template.value.as_ref().map(|draw| draw.drawer(builder)),
            fields: fields
                .map(|(name, draw)| (*name, draw.drawer(builder)))
                .collect(),
            process: template.process,
            at: template.at,
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

impl Generator for TemplateGenerator {
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

/// Limits the number of client operations. Operations of the nemesis do not count, but end with the clients.
struct ClientLimit {
    remaining: u64,
    /// Is the last operation returned, not yet committed, one of a client?
    is_client: bool,
    generator: BoxedGenerator,
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
            format!("{} more client operations", self.remaining),
            &self.generator,
        )
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}
