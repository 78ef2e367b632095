//! Faults in a plan: single ones, and those that are drawn.

use super::document::Shape;
use super::fields::{Field, Fields, Result};
use crate::{FaultOptions, fault_of};
use seatrial_history::{Op, Process, Symbol, Value};
use seatrial_machine::{Fault, FaultKind, NodeId};
use std::time::Duration;

/// Mean time between two faults, unless the plan says otherwise.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Faults that are drawn beside a node.
#[derive(Clone, Debug)]
pub(super) struct FaultsDraw {
    pub(super) kinds: Vec<FaultKind>,
    pub(super) interval: Duration,
    /// The nodes that may be broken; `None`: all.
    pub(super) targets: Option<Vec<NodeId>>,
    /// They end so long after the node's beginning; `None`: with the node.
    pub(super) duration: Option<Duration>,
    /// When the faults end by time, the node goes on for so long.
    pub(super) recovery: Duration,
}

impl FaultsDraw {
    pub(super) fn decode(field: &Field<'_>) -> Result<FaultsDraw> {
        let mut faults = FaultsDraw {
            kinds: Vec::new(),
            interval: INTERVAL,
            targets: None,
            duration: None,
            recovery: Duration::ZERO,
        };
        if let Shape::List(_) = field.entry.shape {
            faults.kinds = kinds(field)?;
            return Ok(faults);
        }
        let mut fields = field.table("a list of kinds of faults, or a table with `kinds`")?;
        faults.kinds = kinds(&fields.need("kinds", "what is broken")?)?;
        if let Some(interval) = fields.read("interval", Field::interval)? {
            faults.interval = interval;
        }
        faults.targets = fields.read("targets", |field| {
            let items = field.items("a list of nodes such as \"n1\"")?;
            items.iter().map(server).collect()
        })?;
        faults.duration = fields.read("for", Field::interval)?;
        if let Some(recovery) = fields.take("recovery") {
            if faults.duration.is_none() {
                return Err(recovery.problem(
                    "goes with `for`: how long clients go on after the faults have ended",
                ));
            }
            faults.recovery = recovery.duration()?;
        }
        fields.finish()?;
        Ok(faults)
    }

    /// The options of the faults for a system of these nodes.
    pub(super) fn options(&self, servers: &[NodeId], clients: &[NodeId]) -> FaultOptions {
        let servers = self.targets.as_deref().unwrap_or(servers);
        options(&self.kinds, servers, clients, self.interval)
    }
}

/// These faults, however they come.
pub(super) fn options(
    kinds: &[FaultKind],
    servers: &[NodeId],
    clients: &[NodeId],
    interval: Duration,
) -> FaultOptions {
    FaultOptions {
        kinds: kinds.to_vec(),
        servers: servers.to_vec(),
        clients: clients.to_vec(),
        interval,
    }
}

/// Families of faults.
pub(super) fn kinds(field: &Field<'_>) -> Result<Vec<FaultKind>> {
    let names = FaultKind::ALL.map(FaultKind::name);
    let items = field.items(&format!("a list of kinds of faults: {}", names.join(", ")))?;
    if items.is_empty() {
        return Err(field.wrong("a list of at least one kind of faults"));
    }
    let mut kinds = Vec::new();
    for item in items {
        let name = item.one_of("kind of faults", &names)?;
        let kind = FaultKind::from_name(name).ok_or_else(|| item.wrong("a kind of faults"))?;
        if kinds.contains(&kind) {
            return Err(item.problem(format!("{name:?} is there twice")));
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

/// What `heal` mends: `true` is everything.
pub(super) fn healing(field: &Field<'_>) -> Result<Vec<FaultKind>> {
    match field.entry.shape {
        Shape::Bool(true) => Ok(FaultKind::ALL.to_vec()),
        Shape::List(_) => kinds(field),
        _ => Err(field.wrong("true (everything) or a list of kinds of faults")),
    }
}

/// Most nodes that a plan may name.
pub(super) const SERVERS_MAX: i64 = 1_000;

fn server(field: &Field<'_>) -> Result<NodeId> {
    let node = node(field)?;
    if node.is_client() {
        return Err(field.wrong("a node such as \"n1\""));
    }
    Ok(node)
}

/// `n1`, or `c0` for a client.
fn node(field: &Field<'_>) -> Result<NodeId> {
    const EXPECTED: &str = "a node such as \"n1\", or a client such as \"c0\"";
    let text = field.text(EXPECTED)?;
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = plain.then(|| digits.parse::<u32>().ok()).flatten();
        number.filter(|number| i64::from(*number) <= SERVERS_MAX.max(i64::from(crate::THREADS_MAX)))
    };
    let node = match (text.strip_prefix('n'), text.strip_prefix('c')) {
        (Some(digits), _) => number(digits)
            .filter(|number| *number > 0)
            .map(NodeId::server),
        (_, Some(digits)) => number(digits).map(NodeId::client),
        _ => None,
    };
    node.ok_or_else(|| field.wrong(EXPECTED))
}

/// `[["n1", "n2"], …]`: one direction each.
fn links(field: &Field<'_>) -> Result<Value> {
    const EXPECTED: &str = "a list of links such as [\"n1\", \"n2\"]: from the first to the second";
    let link = |item: &Field<'_>| match &item.items(EXPECTED)?[..] {
        [from, to] => {
            let ends = [node(from)?, node(to)?].map(|end| Value::text(end.to_string()));
            Ok(Value::List(ends.into()))
        }
        _ => Err(item.wrong("a link such as [\"n1\", \"n2\"]: from the first to the second")),
    };
    let links: Vec<Value> = field
        .items(EXPECTED)?
        .iter()
        .map(link)
        .collect::<Result<_>>()?;
    Ok(Value::List(links.into()))
}

/// A word beside the name of a fault.
struct Word {
    name: &'static str,
    /// What the operation's value calls it.
    field: &'static str,
    shape: WordShape,
}

/// What follows a word.
enum WordShape {
    /// A node of the system.
    Node,
    /// Links in one direction each.
    Links,
    /// A time, nothing unless it is said; `None` when it must be.
    Time(Option<Duration>),
    /// A whole number between these, in units of the value's, and what it is unless it is said.
    Whole(i64, i64, i64, i64),
}

const NODE: Word = Word {
    name: "node",
    field: "node",
    shape: WordShape::Node,
};
const LINKS: Word = Word {
    name: "links",
    field: "links",
    shape: WordShape::Links,
};
const LATENCY: Word = Word {
    name: "latency",
    field: "delay-ns",
    shape: WordShape::Time(None),
};
const JITTER: Word = Word {
    name: "jitter",
    field: "jitter-ns",
    shape: WordShape::Time(Some(Duration::ZERO)),
};
const OFFSET: Word = Word {
    name: "offset_ms",
    field: "offset-ns",
    shape: WordShape::Whole(-1_000_000_000_000, 1_000_000_000_000, 1_000_000, 0),
};
const RATE: Word = Word {
    name: "rate_ppm",
    field: "rate-ppm",
    shape: WordShape::Whole(-1_000_000, 1_000_000, 1, 0),
};
const BITS: Word = Word {
    name: "bits",
    field: "bits",
    shape: WordShape::Whole(1, 1_000_000, 1, 1),
};

/// The faults that a plan may order one by one, and the words of each.
const FAULTS: [(&str, &[Word]); 10] = [
    ("kill", &[NODE]),
    ("restart", &[NODE]),
    ("pause", &[NODE]),
    ("resume", &[NODE]),
    ("cut", &[LINKS]),
    ("reset", &[LINKS]),
    ("heal", &[]),
    ("slow", &[LINKS, LATENCY, JITTER]),
    ("skew", &[NODE, OFFSET, RATE]),
    ("bit-rot", &[NODE, BITS]),
];

impl Word {
    /// Its value, beside the fault.
    fn read(&self, fields: &mut Fields<'_>) -> Result<Value> {
        let said = match (&self.shape, fields.take(self.name)) {
            (WordShape::Node, Some(field)) => return Ok(Value::text(server(&field)?.to_string())),
            (WordShape::Links, Some(field)) => return links(&field),
            (WordShape::Time(_), Some(field)) => nanoseconds(field.duration()?),
            (WordShape::Time(Some(usual)), None) => nanoseconds(*usual),
            (WordShape::Whole(least, most, unit, _), Some(field)) => {
                field.whole(*least..=*most)? * unit
            }
            (WordShape::Whole(_, _, unit, usual), None) => usual * unit,
            (_, None) => {
                let what = match self.shape {
                    WordShape::Node => "which node",
                    WordShape::Links => "which links, each [\"from\", \"to\"]",
                    _ => "how long",
                };
                return fields.need(self.name, what).map(|_| Value::Nil);
            }
        };
        Ok(Value::Int(said))
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// One fault: its name and the words beside it.
pub(super) fn fault(field: &Field<'_>, fields: &mut Fields<'_>) -> Result<Fault> {
    let name = field.one_of("fault", &FAULTS.map(|(name, _)| name))?;
    let (_, words) = FAULTS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or(&FAULTS[0]);
    let mut values = Vec::new();
    for word in *words {
        let value = word.read(fields)?;
        values.push((Value::Word(Symbol::new(word.field)), value));
    }
    // As histories have it: what a fault is about stands alone when there is nothing else to say.
    let value = match &values[..] {
        [] => Value::Nil,
        [(_, value)] => value.clone(),
        _ => Value::Map(values.into()),
    };
    fault_of(&Op::invoke(Process::NEMESIS, name, value))
        .map_err(|error| field.problem(error.to_string()))
}

/// Names of families, one after the other.
pub(super) fn joined(kinds: &[FaultKind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

impl std::fmt::Display for FaultsDraw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "faults {} every {:?}",
            joined(&self.kinds),
            self.interval
        )?;
        if let Some(targets) = &self.targets {
            let names: Vec<String> = targets.iter().map(NodeId::to_string).collect();
            write!(f, " of {}", names.join(", "))?;
        }
        if let Some(duration) = self.duration {
            write!(f, " for {duration:?}, then {:?} without", self.recovery)?;
        }
        Ok(())
    }
}
