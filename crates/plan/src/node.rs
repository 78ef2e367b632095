//! The tree of a plan: kinds of nodes and their modifiers, decoded from a document.

use super::document::Shape;
use super::fault::{FaultsDraw, fault, healing};
use super::fields::{Field, Fields, Problem, Result, unknown};
use super::value::{Draw, KEYS_MAX, Kind as ValueKind, TXN_LENGTH_MAX, named, range, symbol};
use super::{Vocabulary, WEIGHT_MAX};
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{KeyDistribution, THREADS_MAX};
use seatrial_history::{Key, Symbol};
use seatrial_machine::{Fault, FaultKind};
use std::sync::Arc;
use std::time::Duration;

/// Nodes inside nodes.
pub(super) const DEPTH_MAX: usize = 32;

/// Nodes of one plan.
pub(super) const NODES_MAX: usize = 10_000;

/// What a node does: each node has exactly one of these words.
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

/// What a node may say besides, in the order in which it is put around the node: the first is the innermost.
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
    /// Where it stands, for messages.
    pub(super) at: usize,
    pub(super) path: String,
    pub(super) name: Option<String>,
    pub(super) kind: Kind,
    pub(super) modifiers: Modifiers,
    /// The threads that it runs on without `on`.
    pub(super) who: Who,
}

pub(super) type Child = Arc<Node>;

/// What a node does.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Operation(Operation),
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
    SequentialKeys(Keys, Child),
    ConcurrentKeys(Keys, u32, Child),
    CycleTimes(Vec<(Duration, Child)>),
    Sleep(Duration),
    Log(String),
    Fault(Fault),
    Heal(Vec<FaultKind>),
    Of(Child),
    /// Only the modifier `faults`: breaks and mends without end.
    Faults,
    Nothing,
}

/// An operation, drawn anew each time.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) f: Symbol,
    pub(super) key: Option<Draw>,
    pub(super) value: Option<Draw>,
    pub(super) fields: Vec<(Symbol, Draw)>,
    pub(super) process: Option<u64>,
    pub(super) at: Option<Duration>,
}

impl Operation {
    /// The keys of all zipf distributions in here.
    pub(super) fn zipf_keys(&self) -> u64 {
        let fields = self.fields.iter().map(|(_, draw)| draw);
        let draws = self.key.iter().chain(&self.value).chain(fields);
        draws.map(Draw::zipf_keys).sum()
    }
}

/// Independent keys.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// From the first number to the last.
    Range(i64, i64),
    /// These.
    List(Vec<Key>),
}

/// The modifiers of a node: combinators around it.
#[derive(Clone, Debug, Default)]
pub(super) struct Modifiers {
    pub(super) repeat: Option<Times>,
    pub(super) cycle: Option<Times>,
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
    pub(super) on: Option<On>,
    pub(super) faults: Option<FaultsDraw>,
    pub(super) synchronize: bool,
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    Endless,
    Count(u64),
}

/// Which threads.
#[derive(Clone, Debug)]
pub(super) enum On {
    Clients,
    Nemesis,
    /// Clients from this number to that.
    Threads(u32, u32),
}

/// On whose threads a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Its operations are the clients'.
    Clients,
    /// Its operations are faults.
    Nemesis,
    /// Any free process.
    Anyone,
    /// Its parts know.
    Parts,
}

impl Who {
    /// Of a node that contains both.
    const fn and(self, other: Who) -> Who {
        match (self, other) {
            (Who::Anyone, who) | (who, Who::Anyone) => who,
            (Who::Clients, Who::Clients) => Who::Clients,
            (Who::Nemesis, Who::Nemesis) => Who::Nemesis,
            _ => Who::Parts,
        }
    }
}

impl Kind {
    /// The nodes in it.
    pub(super) fn children(&self) -> Vec<&Child> {
        match self {
            Kind::Sequence(nodes)
            | Kind::Phases(nodes)
            | Kind::Any(nodes)
            | Kind::ShortestAny(nodes) => nodes.iter().collect(),
            Kind::Mix(nodes) => nodes.iter().map(|(_, node)| node).collect(),
            Kind::FlipFlop(both) => both.iter().collect(),
            Kind::Reserve(nodes, default) => {
                let ranges = nodes.iter().map(|(_, node)| node);
                ranges.chain([default]).collect()
            }
            Kind::CycleTimes(nodes) => nodes.iter().map(|(_, node)| node).collect(),
            Kind::EachThread(node)
            | Kind::EachProcess(node)
            | Kind::SequentialKeys(_, node)
            | Kind::ConcurrentKeys(_, _, node)
            | Kind::Of(node) => vec![node],
            Kind::Operation(_)
            | Kind::Workload(..)
            | Kind::LastOf(..)
            | Kind::Sleep(_)
            | Kind::Log(_)
            | Kind::Fault(_)
            | Kind::Heal(_)
            | Kind::Faults
            | Kind::Nothing => Vec::new(),
        }
    }

    fn who(&self) -> Who {
        match self {
            Kind::Operation(_)
            | Kind::Workload(..)
            | Kind::LastOf(..)
            | Kind::ConcurrentKeys(..) => Who::Clients,
            Kind::Fault(_) | Kind::Heal(_) | Kind::Faults => Who::Nemesis,
            Kind::Sleep(_) | Kind::Log(_) | Kind::Nothing => Who::Anyone,
            other => {
                let children = other.children().into_iter();
                children.fold(Who::Anyone, |who, child| who.and(child.who))
            }
        }
    }
}

/// Reads nodes, counts them, and knows how deep it is.
pub(super) struct Decoder<'v> {
    pub(super) vocabulary: &'v Vocabulary<'v>,
    pub(super) nodes: usize,
    pub(super) depth: usize,
}

impl Decoder<'_> {
    /// A node that is a table of its own.
    fn node(&mut self, field: &Field<'_>) -> Result<Child> {
        let fields = field.table("a node: a table that says what is done")?;
        self.fields(fields)
    }

    /// A node of these words; nothing else may be among them.
    pub(super) fn fields(&mut self, mut fields: Fields<'_>) -> Result<Child> {
        self.nodes += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let problem = format!("nodes lie in nodes more than {DEPTH_MAX} deep");
            return Err(fields.field.problem(problem));
        }
        if self.nodes > NODES_MAX {
            let problem = format!("the plan has more than {NODES_MAX} nodes");
            return Err(fields.field.problem(problem));
        }
        let name = fields.read("name", |field| Ok(field.text("a name")?.to_owned()))?;
        let modifiers = Modifiers::decode(&mut fields)?;
        let kind = self.kind(&mut fields, &modifiers)?;
        let who = if modifiers.on.is_some()
            || (modifiers.faults.is_some() && !matches!(kind, Kind::Faults))
        {
            Who::Parts
        } else {
            kind.who()
        };
        let node = Node {
            at: fields.field.entry.at,
            path: fields.field.path.clone(),
            name,
            kind,
            modifiers,
            who,
        };
        fields.finish()?;
        self.depth -= 1;
        Ok(Arc::new(node))
    }

    /// What the node does.
    fn kind(&mut self, fields: &mut Fields<'_>, modifiers: &Modifiers) -> Result<Kind> {
        let mut found = None;
        for word in KINDS {
            if let Some(field) = fields.take(word)
                && let Some((other, _)) = found.replace((word, field))
            {
                let problem = format!(
                    "both `{other}` and `{word}`: a node does one thing; put one into the other"
                );
                return Err(fields.field.problem(problem));
            }
        }
        match found {
            Some((word, field)) => self.word(word, &field, fields),
            None if modifiers.faults.is_some() => Ok(Kind::Faults),
            None => {
                let nothing = || {
                    let words = KINDS.join(", ");
                    let problem = format!(
                        "does not say what is done; one of these words must be there: {words}"
                    );
                    fields.field.problem(problem)
                };
                Err(fields.stranger().unwrap_or_else(nothing))
            }
        }
    }

    fn word(&mut self, word: &str, field: &Field<'_>, fields: &mut Fields<'_>) -> Result<Kind> {
        Ok(match word {
            "f" => Kind::Operation(self.operation(field, fields)?),
            "workload" => {
                let (name, options) = self.workload(field, fields)?;
                Kind::Workload(name, options)
            }
            "last_of" => {
                let (name, options) = self.workload(field, fields)?;
                Kind::LastOf(name, options)
            }
            "sequence" => Kind::Sequence(self.nodes(field)?),
            "phases" => Kind::Phases(self.nodes(field)?),
            "mix" => Kind::Mix(self.mix(field)?),
            "any" => Kind::Any(self.nodes(field)?),
            "shortest_any" => Kind::ShortestAny(self.nodes(field)?),
            "flip_flop" => match &self.nodes(field)?[..] {
                [first, second] => Kind::FlipFlop([Arc::clone(first), Arc::clone(second)]),
                _ => return Err(field.wrong("a list of two nodes")),
            },
            "reserve" => {
                let ranges = self.ranges(field)?;
                let default = fields.need("default", "the node of all other threads")?;
                Kind::Reserve(ranges, self.node(&default)?)
            }
            "each_thread" => Kind::EachThread(self.node(field)?),
            "each_process" => Kind::EachProcess(self.node(field)?),
            "sequential_keys" => Kind::SequentialKeys(keys(fields)?, self.node(field)?),
            "concurrent_keys" => {
                let keys = keys(fields)?;
                let threads = fields.need("threads_per_key", "how many threads share a key")?;
                Kind::ConcurrentKeys(keys, threads_of(&threads)?, self.node(field)?)
            }
            "cycle_times" => Kind::CycleTimes(self.turns(field)?),
            "sleep" => Kind::Sleep(field.duration()?),
            "log" => Kind::Log(field.text("a message")?.to_owned()),
            "fault" => Kind::Fault(fault(field, fields)?),
            "heal" => Kind::Heal(healing(field)?),
            "of" => Kind::Of(self.node(field)?),
            _ => {
                if !field.flag()? {
                    return Err(field.wrong("true"));
                }
                Kind::Nothing
            }
        })
    }

    fn operation(&self, field: &Field<'_>, fields: &mut Fields<'_>) -> Result<Operation> {
        let f = symbol(field)?;
        if let Some(known) = self.vocabulary.functions
            && !known.contains(&f.as_str())
        {
            return Err(field.problem(unknown("operation", f.as_str(), known)));
        }
        let extras = fields.read("fields", |field| {
            let table = field.table("a table of names and values")?;
            let extra = |(name, field): (&str, Field<'_>)| {
                let name = named(name)
                    .ok_or_else(|| field.problem("this cannot be the name of a field"))?;
                Ok((name, Draw::decode(&field, ValueKind::Any)?))
            };
            table.free().map(extra).collect::<Result<Vec<_>>>()
        })?;
        Ok(Operation {
            f,
            key: fields.read("key", |field| Draw::decode(field, ValueKind::Key))?,
            value: fields.read("value", |field| Draw::decode(field, ValueKind::Any))?,
            fields: extras.unwrap_or_default(),
            process: fields.read("process", Field::count)?,
            at: fields.read("at", Field::duration)?,
        })
    }

    /// The name of a workload and its options.
    fn workload(
        &self,
        field: &Field<'_>,
        fields: &mut Fields<'_>,
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

    /// A list of nodes that say something more.
    fn more<T>(
        &mut self,
        field: &Field<'_>,
        more: impl Fn(&mut Fields<'_>) -> Result<T>,
    ) -> Result<Vec<(T, Child)>> {
        let items = field.items("a list of nodes")?;
        let read = |item: &Field<'_>| {
            let mut fields = item.table("a node: a table that says what is done")?;
            let more = more(&mut fields)?;
            Ok((more, self.fields(fields)?))
        };
        items.iter().map(read).collect()
    }

    fn mix(&mut self, field: &Field<'_>) -> Result<Vec<(u64, Child)>> {
        self.more(field, |fields| {
            let weight = fields.read("weight", |field| field.whole(1..=WEIGHT_MAX))?;
            Ok(weight.map_or(1, i64::cast_unsigned))
        })
    }

    fn ranges(&mut self, field: &Field<'_>) -> Result<Vec<(u32, Child)>> {
        self.more(field, |fields| {
            threads_of(&fields.need("threads", "how many threads are reserved")?)
        })
    }

    fn turns(&mut self, field: &Field<'_>) -> Result<Vec<(Duration, Child)>> {
        self.more(field, |fields| {
            fields.need("for", "how long its turn is")?.interval()
        })
    }
}

impl Modifiers {
    fn decode(fields: &mut Fields<'_>) -> Result<Modifiers> {
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

/// How often which key is used.
fn distribution(field: &Field<'_>) -> Result<KeyDistribution> {
    const EXPECTED: &str =
        "uniform, zipf, zipf:SKEW (such as zipf:0.99, from 0.01 to 10), or exponential";
    let name = field.text(EXPECTED)?;
    KeyDistribution::by_name(name).ok_or_else(|| field.wrong(EXPECTED))
}

/// `true` for ever, `false` not at all, or a count.
fn times(field: &Field<'_>) -> Result<Option<Times>> {
    match field.entry.shape {
        Shape::Bool(flag) => Ok(flag.then_some(Times::Endless)),
        Shape::Int(count) if count >= 0 => Ok(Some(Times::Count(count.cast_unsigned()))),
        _ => Err(field.wrong("true (for ever) or how often, a whole number, 0 or greater")),
    }
}

fn threads_of(field: &Field<'_>) -> Result<u32> {
    Ok(field.whole(1..=i64::from(THREADS_MAX))? as u32)
}

/// Old and new names.
fn names(field: &Field<'_>) -> Result<Vec<(Symbol, Symbol)>> {
    let table = field.table("a table of old and new names")?;
    let pair = |(old, field): (&str, Field<'_>)| {
        let old =
            named(old).ok_or_else(|| field.problem("this cannot be the name of an operation"))?;
        Ok((old, symbol(&field)?))
    };
    table.free().map(pair).collect()
}

fn symbols(field: &Field<'_>) -> Result<Vec<Symbol>> {
    let items = field.items("a list of names of operations")?;
    items.iter().map(symbol).collect()
}

fn on(field: &Field<'_>) -> Result<On> {
    if let Shape::Text(_) = field.entry.shape {
        let word = field.one_of("group of threads", &["clients", "nemesis"])?;
        return Ok(if word == "clients" {
            On::Clients
        } else {
            On::Nemesis
        });
    }
    match range(field, 0..=i64::from(THREADS_MAX) - 1) {
        Ok((first, last)) => Ok(On::Threads(first as u32, last as u32)),
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

/// Most keys that may be listed by a count.
fn keys(fields: &mut Fields<'_>) -> Result<Keys> {
    const EXPECTED: &str = "how many keys (a whole number), the first and the last ({ from = 10, to = 19 }), \
or a list of whole numbers and texts";
    let Some(field) = fields.take("keys") else {
        return Ok(Keys::Range(0, i64::MAX));
    };
    match &field.entry.shape {
        Shape::Int(_) => Ok(Keys::Range(0, field.whole(0..=i64::MAX)? - 1)),
        Shape::Table(_) => {
            let mut table = field.table(EXPECTED)?;
            let whole = |field: &Field<'_>| field.whole(i64::MIN..=i64::MAX);
            let from = table.read("from", whole)?.unwrap_or(0);
            let to = table.read("to", whole)?.unwrap_or(i64::MAX);
            table.finish()?;
            Ok(Keys::Range(from, to))
        }
        _ => {
            let items = field.items(EXPECTED)?;
            let key = |item: &Field<'_>| match &item.entry.shape {
                Shape::Int(number) => Ok(Key::Int(*number)),
                Shape::Text(text) => Ok(Key::Text(text.as_str().into())),
                _ => Err(item.wrong("a key: a whole number or text")),
            };
            Ok(Keys::List(items.iter().map(key).collect::<Result<_>>()?))
        }
    }
}
