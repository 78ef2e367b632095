//! The tree of a plan: kinds of nodes and their modifiers, decoded from a document.

use super::document::PlanValue;
use super::drawn_value::{Draw, KEYS_MAX, TXN_LENGTH_MAX, ValueType, named, range, symbol};
use super::fields::{Field, Problem, Result, TableReader, unknown};
use super::plan_fault::{FaultsDraw, fault, healing};
use super::{Vocabulary, WEIGHT_MAX};
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{KeyDistribution, THREADS_MAX};
use seatrial_history::{Key, Symbol};
use seatrial_machine::{Fault, FaultKind};
use std::sync::Arc;
use std::time::Duration;

/// Maximum depth of the tree.
pub(super) const DEPTH_MAX: usize = 32;

/// Maximum number of nodes of a plan.
pub(super) const NODES_MAX: usize = 10_000;

/// The keys of kinds: each node has exactly one of them.
pub const KINDS: [&str; 21] = [
    "f",
    "workload",
    "last_of",
    "sequence",
    "phases",
    "mix",
    "any",
    "shortest_any",
    "flip_flop",
    "reserve",
    "each_thread",
    "each_process",
    "sequential_keys",
    "concurrent_keys",
    "cycle_times",
    "sleep",
    "log",
    "fault",
    "heal",
    "of",
    "nothing",
];

/// The keys of modifiers, in the order in which they apply: the first is the innermost.
pub const MODIFIERS: [&str; 18] = [
    "repeat",
    "cycle",
    "f_map",
    "only",
    "except",
    "until_ok",
    "process_limit",
    "concurrency_limit",
    "limit",
    "once",
    "rate",
    "stagger",
    "delay",
    "delay_til",
    "time_limit",
    "on",
    "faults",
    "synchronize",
];

/// One node: a generator as data.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Byte offset in the text.
    pub(super) at: usize,
    /// Path in the document, for messages.
    pub(super) path: String,
    pub(super) name: Option<String>,
    pub(super) kind: NodeKind,
    pub(super) modifiers: Modifiers,
    /// The threads on which it runs without `on`.
    pub(super) thread_group: ThreadGroup,
}

pub(super) type Child = Arc<Node>;

/// The kind of a node.
#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    Operation(OperationTemplate),
    Workload(&'static str, WorkloadOptions),
    LastOf(&'static str, WorkloadOptions),
    Sequence(Vec<Child>),
    Phases(Vec<Child>),
    Mix(Vec<(u64, Child)>),
    Any(Vec<Child>),
    ShortestAny(Vec<Child>),
    FlipFlop([Child; 2]),
    Reserve(Vec<(u32, Child)>, Child),
    EachThread(Child),
    EachProcess(Child),
    SequentialKeys(IndependentKeys, Child),
    ConcurrentKeys(IndependentKeys, u32, Child),
    CycleTimes(Vec<(Duration, Child)>),
    Sleep(Duration),
    Log(String),
    Fault(Fault),
    Heal(Vec<FaultKind>),
    Of(Child),
    /// No key of a kind but the modifier `faults`: drawn faults without an end.
    Faults,
    Nothing,
}

/// A template of operations: values are drawn for each operation.
#[derive(Clone, Debug)]
pub(super) struct OperationTemplate {
    pub(super) f: Symbol,
    pub(super) key: Option<Draw>,
    pub(super) value: Option<Draw>,
    pub(super) fields: Vec<(Symbol, Draw)>,
    pub(super) process: Option<u64>,
    pub(super) at: Option<Duration>,
}

impl OperationTemplate {
    /// Total number of keys of the zipf distributions in it.
    pub(super) fn zipf_keys(&self) -> u64 {
        let fields = self.fields.iter().map(|(_, draw)| draw);
        let draws = self.key.iter().chain(&self.value).chain(fields);
        draws.map(Draw::zipf_keys).sum()
    }
}

/// The keys of independent objects.
#[derive(Clone, Debug)]
pub(super) enum IndependentKeys {
    /// From the first number to the last, inclusive.
    Range(i64, i64),
    /// Listed keys.
    List(Vec<Key>),
}

/// The modifiers of a node: combinators around it.
#[derive(Clone, Debug, Default)]
pub(super) struct Modifiers {
    pub(super) repeat: Option<Repetition>,
    pub(super) cycle: Option<Repetition>,
    pub(super) f_map: Vec<(Symbol, Symbol)>,
    pub(super) only: Option<Vec<Symbol>>,
    pub(super) except: Option<Vec<Symbol>>,
    pub(super) until_ok: bool,
    pub(super) process_limit: Option<u64>,
    pub(super) concurrency_limit: Option<usize>,
    pub(super) limit: Option<u64>,
    pub(super) stagger: Option<Duration>,
    pub(super) delay: Option<Duration>,
    pub(super) delay_til: Option<Duration>,
    pub(super) time_limit: Option<Duration>,
    pub(super) on: Option<ThreadSelection>,
    pub(super) faults: Option<FaultsDraw>,
    pub(super) synchronize: bool,
}

/// How many times a node is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    Endless,
    Count(u64),
}

/// The value of the modifier `on`.
#[derive(Clone, Debug)]
pub(super) enum ThreadSelection {
    Clients,
    Nemesis,
    /// Clients by number, from the first to the last, inclusive.
    Threads(u32, u32),
}

/// The threads on which a node runs by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadGroup {
    /// Clients: its operations are invoked on the system.
    Clients,
    /// The nemesis: its operations are faults.
    Nemesis,
    /// Any free thread.
    Any,
    /// Its children run on different threads, each restricted to its own.
    Mixed,
}

impl ThreadGroup {
    /// The group of a node with children of both groups.
    const fn and(self, other: ThreadGroup) -> ThreadGroup {
        match (self, other) {
            (ThreadGroup::Any, group) | (group, ThreadGroup::Any) => group,
            (ThreadGroup::Clients, ThreadGroup::Clients) => ThreadGroup::Clients,
            (ThreadGroup::Nemesis, ThreadGroup::Nemesis) => ThreadGroup::Nemesis,
            _ => ThreadGroup::Mixed,
        }
    }
}

impl NodeKind {
    /// Its child nodes, in the order of the text.
    pub(super) fn children(&self) -> Vec<&Child> {
        match self {
            NodeKind::Sequence(nodes)
            | NodeKind::Phases(nodes)
            | NodeKind::Any(nodes)
            | NodeKind::ShortestAny(nodes) => nodes.iter().collect(),
            NodeKind::Mix(nodes) => nodes.iter().map(|(_, node)| node).collect(),
            NodeKind::FlipFlop(both) => both.iter().collect(),
            NodeKind::Reserve(nodes, default) => {
                let ranges = nodes.iter().map(|(_, node)| node);
                ranges.chain([default]).collect()
            }
            NodeKind::CycleTimes(nodes) => nodes.iter().map(|(_, node)| node).collect(),
            NodeKind::EachThread(node)
            | NodeKind::EachProcess(node)
            | NodeKind::SequentialKeys(_, node)
            | NodeKind::ConcurrentKeys(_, _, node)
            | NodeKind::Of(node) => vec![node],
            NodeKind::Operation(_)
            | NodeKind::Workload(..)
            | NodeKind::LastOf(..)
            | NodeKind::Sleep(_)
            | NodeKind::Log(_)
            | NodeKind::Fault(_)
            | NodeKind::Heal(_)
            | NodeKind::Faults
            | NodeKind::Nothing => Vec::new(),
        }
    }

    fn thread_group(&self) -> ThreadGroup {
        match self {
            NodeKind::Operation(_)
            | NodeKind::Workload(..)
            | NodeKind::LastOf(..)
            | NodeKind::ConcurrentKeys(..) => ThreadGroup::Clients,
            NodeKind::Fault(_) | NodeKind::Heal(_) | NodeKind::Faults => ThreadGroup::Nemesis,
            NodeKind::Sleep(_) | NodeKind::Log(_) | NodeKind::Nothing => ThreadGroup::Any,
            other => {
                let children = other.children().into_iter();
                children.fold(ThreadGroup::Any, |thread_group, child| {
                    thread_group.and(child.thread_group)
                })
            }
        }
    }
}

/// Decodes nodes, with counts of nodes and depth for the limits.
pub(super) struct Decoder<'v> {
    pub(super) vocabulary: &'v Vocabulary<'v>,
    pub(super) nodes: usize,
    pub(super) depth: usize,
}

impl Decoder<'_> {
    /// Decodes a node from its table.
    fn node(&mut self, field: &Field<'_>) -> Result<Child> {
        let fields = field.table("a node (a table with the key of a kind)")?;
        self.fields(fields)
    }

    /// Decodes a node from the keys of a table; unknown keys are problems.
    pub(super) fn fields(&mut self, mut fields: TableReader<'_>) -> Result<Child> {
        self.nodes += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let problem = format!("the plan is nested more than {DEPTH_MAX} nodes deep");
            return Err(fields.field.problem(problem));
        }
        if self.nodes > NODES_MAX {
            let problem = format!("the plan has more than {NODES_MAX} nodes");
            return Err(fields.field.problem(problem));
        }
        let name = fields.read("name", |field| Ok(field.text("a name")?.to_owned()))?;
        let modifiers = Modifiers::decode(&mut fields)?;
        let kind = self.kind(&mut fields, &modifiers)?;
        let thread_group = if modifiers.on.is_some()
            || (modifiers.faults.is_some() && !matches!(kind, NodeKind::Faults))
        {
            ThreadGroup::Mixed
        } else {
            kind.thread_group()
        };
        let node = Node {
            at: fields.field.entry.at,
            path: fields.field.path.clone(),
            name,
            kind,
            modifiers,
            thread_group,
        };
        fields.finish()?;
        self.depth -= 1;
        Ok(Arc::new(node))
    }

    /// Decodes the kind of a node: exactly one key of a kind.
    fn kind(&mut self, fields: &mut TableReader<'_>, modifiers: &Modifiers) -> Result<NodeKind> {
        let mut found = None;
        for key in KINDS {
            if let Some(field) = fields.take(key)
                && let Some((other, _)) = found.replace((key, field))
            {
                let problem = format!(
                    "both `{other}` and `{key}`: a node has one kind; nest one in the other"
                );
                return Err(fields.field.problem(problem));
            }
        }
        match found {
            Some((key, field)) => self.kind_of(key, &field, fields),
            None if modifiers.faults.is_some() => Ok(NodeKind::Faults),
            None => {
                let missing = || {
                    let keys = KINDS.join(", ");
                    let problem =
                        format!("the node has no kind; it must have one of the keys {keys}");
                    fields.field.problem(problem)
                };
                Err(fields.unknown_key().unwrap_or_else(missing))
            }
        }
    }

    fn kind_of(
        &mut self,
        key: &str,
        field: &Field<'_>,
        fields: &mut TableReader<'_>,
    ) -> Result<NodeKind> {
        Ok(match key {
            "f" => NodeKind::Operation(self.operation(field, fields)?),
            "workload" => {
                let (name, options) = self.workload(field, fields)?;
                NodeKind::Workload(name, options)
            }
            "last_of" => {
                let (name, options) = self.workload(field, fields)?;
                NodeKind::LastOf(name, options)
            }
            "sequence" => NodeKind::Sequence(self.nodes(field)?),
            "phases" => NodeKind::Phases(self.nodes(field)?),
            "mix" => NodeKind::Mix(self.mix(field)?),
            "any" => NodeKind::Any(self.nodes(field)?),
            "shortest_any" => NodeKind::ShortestAny(self.nodes(field)?),
            "flip_flop" => match &self.nodes(field)?[..] {
                [first, second] => NodeKind::FlipFlop([Arc::clone(first), Arc::clone(second)]),
                _ => return Err(field.wrong("a list of two nodes")),
            },
            "reserve" => {
                let ranges = self.ranges(field)?;
                let default = fields.require("default", "the node of all other threads")?;
                NodeKind::Reserve(ranges, self.node(&default)?)
            }
            "each_thread" => NodeKind::EachThread(self.node(field)?),
            "each_process" => NodeKind::EachProcess(self.node(field)?),
            "sequential_keys" => NodeKind::SequentialKeys(keys(fields)?, self.node(field)?),
            "concurrent_keys" => {
                let keys = keys(fields)?;
                let threads =
                    fields.require("threads_per_key", "the number of threads that share a key")?;
                NodeKind::ConcurrentKeys(keys, threads_of(&threads)?, self.node(field)?)
            }
            "cycle_times" => NodeKind::CycleTimes(self.turns(field)?),
            "sleep" => NodeKind::Sleep(field.duration()?),
            "log" => NodeKind::Log(field.text("a message")?.to_owned()),
            "fault" => NodeKind::Fault(fault(field, fields)?),
            "heal" => NodeKind::Heal(healing(field)?),
            "of" => NodeKind::Of(self.node(field)?),
            _ => {
                if !field.flag()? {
                    return Err(field.wrong("true"));
                }
                NodeKind::Nothing
            }
        })
    }

    fn operation(
        &self,
        field: &Field<'_>,
        fields: &mut TableReader<'_>,
    ) -> Result<OperationTemplate> {
        let f = symbol(field)?;
        if let Some(known) = self.vocabulary.functions
            && !known.contains(&f.as_str())
        {
            return Err(field.problem(unknown("operation", f.as_str(), known)));
        }
        let extras = fields.read("fields", |field| {
            let table = field.table("a table of names and values")?;
            let extra = |(name, field): (&str, Field<'_>)| {
                let name = named(name).ok_or_else(|| {
                    field.problem("must be a name of 1 to 256 bytes that does not begin with @")
                })?;
                Ok((name, Draw::decode(&field, ValueType::Any)?))
            };
            table.entries().map(extra).collect::<Result<Vec<_>>>()
        })?;
        Ok(OperationTemplate {
            f,
            key: fields.read("key", |field| Draw::decode(field, ValueType::Key))?,
            value: fields.read("value", |field| Draw::decode(field, ValueType::Any))?,
            fields: extras.unwrap_or_default(),
            process: fields.read("process", Field::count)?,
            at: fields.read("at", Field::duration)?,
        })
    }

    /// The name of a workload and its options.
    fn workload(
        &self,
        field: &Field<'_>,
        fields: &mut TableReader<'_>,
    ) -> Result<(&'static str, WorkloadOptions)> {
        let name = field.one_of("workload", self.vocabulary.workloads)?;
        let keys = fields.read("keys", |field| field.whole(1..=KEYS_MAX))?;
        let writes = fields.read("writes_per_key", |field| {
            field.whole(1..=i64::from(u32::MAX))
        })?;
        let length = fields.read("txn_length", |field| range(field, 1..=TXN_LENGTH_MAX))?;
        let options = WorkloadOptions {
            key_count: keys.map(|count| count as usize),
            distribution: fields.read("distribution", distribution)?,
            writes_per_key: writes.map(|count| count as u32),
            transaction_length: length.map(|(low, high)| low as u32..=high as u32),
        };
        options
            .check(name)
            .map_err(|error| field.problem(error.to_string()))?;
        Ok((name, options))
    }

    /// A list of nodes.
    fn nodes(&mut self, field: &Field<'_>) -> Result<Vec<Child>> {
        let items = field.items("a list of nodes")?;
        items.iter().map(|item| self.node(item)).collect()
    }

    /// A list of nodes, each with a further key that `read_key` reads.
    fn nodes_with<T>(
        &mut self,
        field: &Field<'_>,
        read_key: impl Fn(&mut TableReader<'_>) -> Result<T>,
    ) -> Result<Vec<(T, Child)>> {
        let items = field.items("a list of nodes")?;
        let read = |item: &Field<'_>| {
            let mut fields = item.table("a node (a table with the key of a kind)")?;
            let extra = read_key(&mut fields)?;
            Ok((extra, self.fields(fields)?))
        };
        items.iter().map(read).collect()
    }

    fn mix(&mut self, field: &Field<'_>) -> Result<Vec<(u64, Child)>> {
        self.nodes_with(field, |fields| {
            let weight = fields.read("weight", |field| field.whole(1..=WEIGHT_MAX))?;
            Ok(weight.map_or(1, i64::cast_unsigned))
        })
    }

    fn ranges(&mut self, field: &Field<'_>) -> Result<Vec<(u32, Child)>> {
        self.nodes_with(field, |fields| {
            threads_of(&fields.require("threads", "the number of reserved threads")?)
        })
    }

    fn turns(&mut self, field: &Field<'_>) -> Result<Vec<(Duration, Child)>> {
        self.nodes_with(field, |fields| {
            fields
                .require("for", "the duration of its turn")?
                .interval()
        })
    }
}

impl Modifiers {
    fn decode(fields: &mut TableReader<'_>) -> Result<Modifiers> {
        let limit = fields.read("limit", Field::count)?;
        let once = fields.read("once", Field::flag)?.unwrap_or(false);
        if once && limit.is_some() {
            return Err(fields.field.problem("both `limit` and `once`"));
        }
        let rate = fields.read("rate", interval_of_rate)?;
        let stagger = fields.read("stagger", Field::duration)?;
        if rate.is_some() && stagger.is_some() {
            return Err(fields
                .field
                .problem("both `rate` and `stagger`: a rate of 100 is a stagger of 10ms"));
        }
        Ok(Modifiers {
            repeat: fields.read("repeat", times)?.flatten(),
            cycle: fields.read("cycle", times)?.flatten(),
            f_map: fields.read("f_map", names)?.unwrap_or_default(),
            only: fields.read("only", symbols)?,
            except: fields.read("except", symbols)?,
            until_ok: fields.read("until_ok", Field::flag)?.unwrap_or(false),
            process_limit: fields.read("process_limit", Field::count)?,
            concurrency_limit: fields.read("concurrency_limit", |field| {
                Ok(field.whole(1..=i64::from(THREADS_MAX))? as usize)
            })?,
            limit: if once { Some(1) } else { limit },
            stagger: rate.or(stagger),
            delay: fields.read("delay", Field::duration)?,
            delay_til: fields.read("delay_til", Field::interval)?,
            time_limit: fields.read("time_limit", Field::duration)?,
            on: fields.read("on", on)?,
            faults: fields.read("faults", FaultsDraw::decode)?,
            synchronize: fields.read("synchronize", Field::flag)?.unwrap_or(false),
        })
    }
}

/// The mean time between operations at a rate.
pub(super) fn interval_of_rate(field: &Field<'_>) -> Result<Duration> {
    Ok(Duration::from_secs_f64(
        1.0 / field.positive(1e9)?.max(1e-6),
    ))
}

/// A distribution of keys.
fn distribution(field: &Field<'_>) -> Result<KeyDistribution> {
    const EXPECTED: &str =
        "uniform, zipf, zipf:SKEW (such as zipf:0.99, from 0.01 to 10), or exponential";
    let name = field.text(EXPECTED)?;
    KeyDistribution::by_name(name).ok_or_else(|| field.wrong(EXPECTED))
}

/// `true`: endless; `false`: the modifier is absent; or a count.
fn times(field: &Field<'_>) -> Result<Option<Repetition>> {
    match field.entry.value {
        PlanValue::Bool(flag) => Ok(flag.then_some(Repetition::Endless)),
        PlanValue::Int(count) if count >= 0 => Ok(Some(Repetition::Count(count.cast_unsigned()))),
        _ => Err(field.wrong("true (endless) or a whole number, 0 or greater")),
    }
}

fn threads_of(field: &Field<'_>) -> Result<u32> {
    Ok(field.whole(1..=i64::from(THREADS_MAX))? as u32)
}

/// A table of old and new names.
fn names(field: &Field<'_>) -> Result<Vec<(Symbol, Symbol)>> {
    let table = field.table("a table of old and new names")?;
    let pair = |(old, field): (&str, Field<'_>)| {
        let old = named(old).ok_or_else(|| {
            field.problem("must be a name of 1 to 256 bytes that does not begin with @")
        })?;
        Ok((old, symbol(&field)?))
    };
    table.entries().map(pair).collect()
}

fn symbols(field: &Field<'_>) -> Result<Vec<Symbol>> {
    let items = field.items("a list of names of operations")?;
    items.iter().map(symbol).collect()
}

fn on(field: &Field<'_>) -> Result<ThreadSelection> {
    if let PlanValue::Text(_) = field.entry.value {
        let word = field.one_of("group of threads", &["clients", "nemesis"])?;
        return Ok(if word == "clients" {
            ThreadSelection::Clients
        } else {
            ThreadSelection::Nemesis
        });
    }
    match range(field, 0..=i64::from(THREADS_MAX) - 1) {
        Ok((first, last)) => Ok(ThreadSelection::Threads(first as u32, last as u32)),
        Err(Problem { at, path, .. }) => {
            let most = THREADS_MAX - 1;
            let expected = format!(
                "\"clients\", \"nemesis\", or the first and the last of the clients, [0, {most}] at most"
            );
            let reason = format!("must be {expected}");
            Err(Problem { at, path, reason })
        }
    }
}

/// The keys of independent objects; default: all numbers from 0.
fn keys(fields: &mut TableReader<'_>) -> Result<IndependentKeys> {
    const EXPECTED: &str = "a number of keys, the first and the last key ({ from = 10, to = 19 }), \
or a list of whole numbers and texts";
    let Some(field) = fields.take("keys") else {
        return Ok(IndependentKeys::Range(0, i64::MAX));
    };
    match &field.entry.value {
        PlanValue::Int(_) => Ok(IndependentKeys::Range(0, field.whole(0..=i64::MAX)? - 1)),
        PlanValue::Table(_) => {
            let mut table = field.table(EXPECTED)?;
            let whole = |field: &Field<'_>| field.whole(i64::MIN..=i64::MAX);
            let from = table.read("from", whole)?.unwrap_or(0);
            let to = table.read("to", whole)?.unwrap_or(i64::MAX);
            table.finish()?;
            Ok(IndependentKeys::Range(from, to))
        }
        _ => {
            let items = field.items(EXPECTED)?;
            let key = |item: &Field<'_>| match &item.entry.value {
                PlanValue::Int(number) => Ok(Key::Int(*number)),
                PlanValue::Text(text) => Ok(Key::Text(text.as_str().into())),
                _ => Err(item.wrong("a key: a whole number or text")),
            };
            Ok(IndependentKeys::List(
                items.iter().map(key).collect::<Result<_>>()?,
            ))
        }
    }
}
