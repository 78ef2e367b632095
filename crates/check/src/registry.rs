//! Checkers by name.

use crate::workloads::checkers_of;
use seatrial_checker::{
    Agreement, Availability, Bank, Checker, ClientProtocol, ClockPlot, ColorGroup, Counter,
    Discipline, DiskCache, Divergence, Lock, Log, LongFork, Monotonic, OpColorPlot, Queue, Set,
    SetFull, Stats, TotalQueue, UnhandledExceptions, UniqueIds, Visibility,
};
use seatrial_consistency::{
    AdyaG2, CausalRegister, CausalReverse, Comments, Consistency, ConsistencyModel,
    SequentialInserts,
};
use seatrial_cycles::Level;
use seatrial_data_models as data_models;
use seatrial_inference::{G1, Inference, ListAppend, RwRegister};
use seatrial_isolation::{self as isolation, Isolation};
use seatrial_isolation::{TimestampLevel, Timestamps};
use seatrial_linear::{self as linear, Linearizable, ModelChecker};

use seatrial_machine::unknown_name;

/// A name that no checker or model has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// No checker of this name.
    #[error("{}", unknown_name("checker", name, names()))]
    Checker {
        /// The name that was asked for.
        name: String,
    },
    /// The checker takes no model.
    #[error("the checker `{checker}` looks for certain anomalies and takes no model")]
    NoModels {
        /// The checker that was asked for.
        checker: &'static str,
    },
    /// The checker does not know this model.
    #[error("checker `{checker}`: {}", unknown_name("model", model, models.iter().copied()))]
    Model {
        /// The checker that was asked for.
        checker: &'static str,
        /// The model that was asked for.
        model: String,
        /// The models that it has.
        models: Vec<&'static str>,
    },
}

/// A checker: what help texts, documentation and dispatch know of it.
pub struct Entry {
    /// The name that `--checker` takes.
    pub name: &'static str,
    /// What it checks, in one line.
    pub about: &'static str,
    /// Its consistency models by name, none for one that looks for certain anomalies.
    pub models: fn() -> Vec<&'static str>,
    /// Does it prove its verdicts (`--certificate`)? Else why not.
    pub proves: Result<(), &'static str>,
    make: Make,
}

/// Makes a checker for the model of this name.
type Make = fn(Option<&str>) -> Result<Box<dyn Checker>, UnknownName>;

impl Entry {
    /// Does it search independent keys one after another?
    pub fn has_keys(&self) -> bool {
        (self.models)() == ["linearizable"]
            || ["semaphore", "linearizable-lock"].contains(&self.name)
    }
}

/// Why counts and data types have no certificate.
const COUNTED: Result<(), &str> =
    Err("its verdict is a count, which a reader repeats from the history");
/// Why weaker models of registers have none yet.
const UNCERTIFIED: Result<(), &str> = Err("orders of weaker models are not written down");

/// One row of the table.
macro_rules! entry {
    ($name:literal, $about:literal, $models:expr, $proves:expr, $make:expr) => {
        Entry {
            name: $name,
            about: $about,
            models: $models,
            proves: $proves,
            make: $make,
        }
    };
}

/// Makes a checker that takes no model.
macro_rules! plain {
    ($name:literal, $checker:expr) => {
        |model| match model {
            None => Ok(Box::new($checker)),
            Some(_) => Err(UnknownName::NoModels { checker: $name }),
        }
    };
}

/// Makes a checker of a data type's linearizability.
macro_rules! linear {
    ($name:literal, $model:expr) => {
        |model| {
            only("linearizable", $name, model)?;
            Ok(Box::new(Linearizable::new($model)))
        }
    };
}

/// Makes a checker of a history model's linearizability.
macro_rules! modelled {
    ($name:literal, $model:expr) => {
        |model| {
            only("linearizable", $name, model)?;
            Ok(Box::new(ModelChecker::new($model)))
        }
    };
}

fn none() -> Vec<&'static str> {
    Vec::new()
}

fn linearizable() -> Vec<&'static str> {
    vec!["linearizable"]
}

fn levels() -> Vec<&'static str> {
    Level::all().map(Level::name).collect()
}

/// All checkers, in the order of help texts.
#[rustfmt::skip]
pub static CHECKERS: &[Entry] = &[
    entry!("stats", "outcomes by function; unknown when one never succeeds", none, COUNTED,
        plain!("stats", Stats)),
    entry!("client-protocol", "did the clients keep the client protocol; unknown when not", none, COUNTED,
        plain!("client-protocol", ClientProtocol)),
    entry!("unhandled-exceptions", "exceptions and errors by frequency, with examples; always valid", none, COUNTED,
        plain!("unhandled-exceptions", UnhandledExceptions)),
    entry!("availability", "share of successes over time, by function and node; always valid", none, COUNTED,
        plain!("availability", Availability)),
    entry!("clock-plot", "offsets of the nodes' clocks over time; always valid", none, COUNTED,
        plain!("clock-plot", ClockPlot)),
    entry!("op-color-plot", "operations over time, coloured by outcome or function; always valid", color_groups, COUNTED,
        |name| Ok(Box::new(OpColorPlot::new(
            model("op-color-plot", name, |name| named(&ColorGroup::ALL, name, ColorGroup::name))?)))),
    entry!("divergence", "states of the nodes when nothing changes any more; unknown if one is not known", none, COUNTED,
        plain!("divergence", Divergence)),
    entry!("register", "reads and writes of a register", linearizable, Ok(()),
        linear!("register", linear::Model::Register)),
    entry!("cas-register", "a register with compare-and-set", linearizable, Ok(()),
        linear!("cas-register", linear::Model::CasRegister)),
    entry!("mutex", "acquire and release, one holder at a time", linearizable, Ok(()),
        linear!("mutex", linear::Model::Mutex)),
    entry!("kv-map", "get, put and append of text by key", linearizable, Ok(()),
        linear!("kv-map", linear::Model::KeyValue)),
    entry!("fifo-queue", "enqueue, dequeue and peek, first in, first out", linearizable, Ok(()),
        linear!("fifo-queue", linear::Model::FifoQueue)),
    entry!("stack", "push, pop and peek, last in, first out", linearizable, Ok(()),
        linear!("stack", linear::Model::Stack)),
    entry!("priority-queue", "insert, poll and peek, the least value first", linearizable, Ok(()),
        linear!("priority-queue", linear::Model::PriorityQueue)),
    entry!("bag", "a multiset: add, and take of any element", linearizable, Ok(()),
        linear!("bag", linear::Model::Bag)),
    entry!("deque", "push, pop and peek at the front and at the back", linearizable, Ok(()),
        linear!("deque", linear::Model::Deque)),
    entry!("linearizable-counter", "additions and reads of a counter", linearizable, Ok(()),
        linear!("linearizable-counter", linear::Model::Counter)),
    entry!("linearizable-set", "add, remove and contains of elements, and reads of all", linearizable, Ok(()),
        modelled!("linearizable-set", data_models::SetModel)),
    entry!("append-log", "appends with offsets, reads of one offset or of all", linearizable, Ok(()),
        modelled!("append-log", data_models::AppendLogModel)),
    entry!("block-device", "reads, writes and trims of ranges of blocks", linearizable, Ok(()),
        modelled!("block-device", data_models::RegisterArray::Blocks)),
    entry!("multi-register", "transactions of writes and reads, and maps of registers, by search", linearizable, Ok(()),
        modelled!("multi-register", data_models::RegisterArray::Transactions)),
    entry!("semaphore", "acquire and release of permits", semaphores, Ok(()),
        |name| Ok(Box::new(ModelChecker::new(
            model("semaphore", name, data_models::SemaphoreModel::by_name)?)))),
    entry!("linearizable-lock", "locks with owners and fences, by search", disciplines, Ok(()),
        |name| Ok(Box::new(ModelChecker::new(data_models::LockModel::new(
            model("linearizable-lock", name, |name| named(&Discipline::ALL, name, Discipline::name))?))))),
    entry!("table-model", "the data type that the table [model] of a plan states", linearizable, Ok(()),
        modelled!("table-model", data_models::TableModel::default())),
    entry!("consistency", "reads and writes of registers under weaker models", consistency_models,
        UNCERTIFIED,
        |name| Ok(Box::new(Consistency::new(
            model(Consistency::NAME, name, ConsistencyModel::by_name)?)))),
    entry!("list-append", "transactions of appends to lists and reads", levels, Ok(()),
        |name| Ok(Box::new(list_append(name)?))),
    entry!("rw-register", "transactions of writes and reads, version orders inferred", levels, Ok(()),
        |model| Ok(Box::new(rw_register(model, Inference::NONE)?))),
    entry!("isolation", "transactions of writes and reads, decided by search", axioms, Ok(()),
        |name| Ok(Box::new(isolation(name)?))),
    entry!("timestamps", "transactions replayed at the database's timestamps", level_names,
        Err("the timestamps are the proof"),
        |name| Ok(Box::new(Timestamps::new(
            model("timestamps", name, |name| named(&TimestampLevel::ALL, name, TimestampLevel::name))?)))),
    entry!("g1", "direct anomalies of list-append, without cycles", none, COUNTED,
        plain!("g1", G1)),
    entry!("set", "a set that is read once, at the end", none, COUNTED, plain!("set", Set)),
    entry!("set-full", "a set that is read all the time", visibilities, COUNTED,
        |name| Ok(Box::new(SetFull::new(
            model("set-full", name, |name| named(&Visibility::ALL, name, Visibility::name))?)))),
    entry!("queue", "each element dequeued was enqueued, and at most once", none, COUNTED,
        plain!("queue", Queue)),
    entry!("total-queue", "a queue that is drained: nothing lost, nothing unexpected", none, COUNTED,
        plain!("total-queue", TotalQueue)),
    entry!("disk", "reads, writes and flushes of a disk with a volatile cache, and crashes", none, COUNTED,
        plain!("disk", DiskCache)),
    entry!("unique-ids", "identifiers that must differ", none, COUNTED,
        plain!("unique-ids", UniqueIds)),
    entry!("counter", "reads within the bounds of the additions", none, COUNTED,
        plain!("counter", Counter)),
    entry!("bank", "transfers keep the total", none, COUNTED, plain!("bank", Bank::new())),
    entry!("long-fork", "two reads that saw two writes in opposite orders", none, COUNTED,
        plain!("long-fork", LongFork::new())),
    entry!("causal", "a register that one client reads and writes in turn", none, COUNTED,
        plain!("causal", CausalRegister)),
    entry!("causal-reverse", "no insert is visible without earlier completed ones", none, COUNTED,
        plain!("causal-reverse", CausalReverse)),
    entry!("comments", "the same, of rows in several tables", none, COUNTED,
        plain!("comments", Comments)),
    entry!("sequential", "keys written in order and read in reverse", none, COUNTED,
        plain!("sequential", SequentialInserts)),
    entry!("adya-g2", "at most one of two inserts that exclude each other", none, COUNTED,
        plain!("adya-g2", AdyaG2)),
    entry!("monotonic", "values that rise with their timestamps", agreements, COUNTED,
        |name| Ok(Box::new(Monotonic::new(
            model("monotonic", name, |name| named(&Agreement::ALL, name, Agreement::name))?)))),
    entry!("lock", "locks with owners and fencing tokens", disciplines, COUNTED,
        |name| Ok(Box::new(Lock::new(
            model("lock", name, |name| named(&Discipline::ALL, name, Discipline::name))?)))),
    entry!("log", "a log with offsets, producers and consumers", none, COUNTED, plain!("log", Log)),
];

/// The names of all checkers.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKERS.iter().map(|entry| entry.name)
}

/// Does the checker of this name prove its verdicts?
pub fn proves(name: &str) -> bool {
    entry(name).is_some_and(|entry| entry.proves.is_ok())
}

/// The entry of this name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    CHECKERS.iter().find(|entry| entry.name == name)
}

/// The checker called `name`, by `model` (`None`: the checker's strictest, or for a history without times what needs none).
pub fn by_name(name: &str, model: Option<&str>) -> Result<Box<dyn Checker>, UnknownName> {
    let known = entry(name).ok_or_else(|| UnknownName::Checker { name: name.into() })?;
    let checker = (known.make)(model)?;
    assert_eq!(checker.name(), known.name, "a row makes another checker");
    Ok(checker)
}

fn list_append(name: Option<&str>) -> Result<ListAppend, UnknownName> {
    let level = model("list-append", name, Level::by_name)?;
    Ok(name.map_or_else(ListAppend::default, |_| ListAppend::new(level)))
}

/// The checker `isolation`, by the model of this name.
pub(crate) fn isolation(name: Option<&str>) -> Result<Isolation, UnknownName> {
    let axiomatic = model(Isolation::NAME, name, isolation::AxiomaticModel::by_name)?;
    Ok(name.map_or_else(Isolation::default, |_| Isolation::new(axiomatic)))
}

fn axioms() -> Vec<&'static str> {
    isolation::AxiomaticModel::all()
        .map(isolation::AxiomaticModel::name)
        .collect()
}

fn consistency_models() -> Vec<&'static str> {
    ConsistencyModel::NAMES.to_vec()
}

fn level_names() -> Vec<&'static str> {
    TimestampLevel::ALL.map(TimestampLevel::name).to_vec()
}

fn visibilities() -> Vec<&'static str> {
    Visibility::ALL.map(Visibility::name).to_vec()
}

fn color_groups() -> Vec<&'static str> {
    ColorGroup::ALL.map(ColorGroup::name).to_vec()
}

fn agreements() -> Vec<&'static str> {
    Agreement::ALL.map(Agreement::name).to_vec()
}

/// Any number of permits is known.
fn semaphores() -> Vec<&'static str> {
    vec!["permits:1", "permits:2", "permits:3"]
}

fn disciplines() -> Vec<&'static str> {
    Discipline::ALL.map(Discipline::name).to_vec()
}

/// The checker `rw-register`, by the model of this name, with these assumptions about keys.
pub(crate) fn rw_register(
    name: Option<&str>,
    inference: Inference,
) -> Result<RwRegister, UnknownName> {
    let level = model("rw-register", name, Level::by_name)?;
    let checker = name.map_or_else(RwRegister::default, |_| RwRegister::new(level));
    Ok(checker.with_inference(inference))
}

/// The checkers of a workload: statistics, and what its operations are for.
pub fn for_workload(
    workload: &str,
    model: Option<&str>,
) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
    let named = checkers_of(workload);
    if named.is_empty() {
        let name = workload.into();
        return Err(UnknownName::Checker { name });
    }
    let mut checkers: Vec<Box<dyn Checker>> = vec![Box::new(Stats)];
    for (name, usual) in named {
        checkers.push(by_name(name, model.or(usual))?);
    }
    assert!(
        checkers.len() > 1,
        "a workload is checked for more than counts"
    );
    Ok(checkers)
}

/// The model of this name, which the checker knows by `find`; its usual one when none is named.
fn model<T: Default>(
    checker: &'static str,
    name: Option<&str>,
    find: impl FnOnce(&str) -> Option<T>,
) -> Result<T, UnknownName> {
    let Some(name) = name else {
        return Ok(T::default());
    };
    find(name).ok_or_else(|| UnknownName::Model {
        checker,
        model: name.into(),
        models: entry(checker).map_or_else(Vec::new, |entry| (entry.models)()),
    })
}

/// The one of these that has this name.
fn named<T: Copy>(all: &[T], name: &str, name_of: fn(T) -> &'static str) -> Option<T> {
    all.iter().copied().find(|one| name_of(*one) == name)
}

/// Refuses every model but the one that the checker has.
fn only(
    known: &'static str,
    checker: &'static str,
    model: Option<&str>,
) -> Result<(), UnknownName> {
    match model {
        Some(model) if model != known => Err(UnknownName::Model {
            checker,
            model: model.into(),
            models: vec![known],
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_checker() {
        for name in names() {
            assert_eq!(by_name(name, None).unwrap().name(), name);
        }
        let error = |name, model| by_name(name, model).err().unwrap().to_string();
        let text = error("regster", None);
        assert!(
            text.starts_with(
                "unknown checker `regster`; did you mean `register`? (available: stats, "
            ),
            "{text}"
        );
        assert_eq!(
            error("mutex", Some("serializable")),
            "checker `mutex`: unknown model `serializable` (available: linearizable)"
        );
        assert!(by_name("timestamps", Some("serializable")).is_ok());
        assert!(by_name("timestamps", Some("causal")).is_err());
    }

    #[test]
    fn a_workload_has_statistics_and_a_checker() {
        let checkers = for_workload("register", Some("linearizable")).unwrap();
        let names: Vec<_> = checkers.iter().map(|checker| checker.name()).collect();
        assert_eq!(names, ["stats", "cas-register"]);
        assert!(for_workload("register", Some("causal")).is_err());
        for (workload, model) in [("mutex", "owner-aware"), ("lock", "fenced")] {
            let checkers = for_workload(workload, None).unwrap();
            let verdict = checkers[1].check(&seatrial_history::History::default());
            assert_eq!(checkers[1].name(), "lock", "{workload}");
            assert_eq!(verdict.model.as_deref(), Some(model), "{workload}");
        }
    }
}
