//! Faults in a plan: single faults, and the options of drawn faults.

use super::document::PlanValue;
use super::fields::{Field, Result, TableReader, unknown};
use seatrial_generator::{FaultOptions, FaultOrder, FaultTarget, parse_fault};
use seatrial_machine::{
    Fault, FaultInfo, FaultKind, FaultParameter, FaultSubject, Link, NodeId, ParameterUnit,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Default of the mean time between two faults.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// The modifier `faults`: faults drawn while a node runs.
#[derive(Clone, Debug)]
pub(super) struct FaultsDraw {
    pub(super) kinds: Vec<FaultKind>,
    /// The targets of each kind; a kind without an entry has all of its targets.
    pub(super) targets: BTreeMap<FaultKind, Vec<FaultTarget>>,
    pub(super) interval: Duration,
    /// The order of the kinds.
    pub(super) order: FaultOrder,
    /// The nodes that may have faults; `None`: all.
    pub(super) nodes: Option<Vec<NodeId>>,
    /// Time from the start of the node to the end of the faults; `None`: they end with the node.
    pub(super) duration: Option<Duration>,
    /// Time for which the node continues after the end of the faults.
    pub(super) recovery: Duration,
}

impl FaultsDraw {
    pub(super) fn decode(field: &Field<'_>) -> Result<FaultsDraw> {
        let mut faults = FaultsDraw {
            kinds: Vec::new(),
            targets: BTreeMap::new(),
            interval: INTERVAL,
            order: FaultOrder::default(),
            nodes: None,
            duration: None,
            recovery: Duration::ZERO,
        };
        if let PlanValue::List(_) = field.entry.value {
            faults.add_kinds(field)?;
            return Ok(faults);
        }
        let mut fields = field.table("a list of kinds of faults, or a table with `kinds`")?;
        faults.add_kinds(&fields.require("kinds", "a list of kinds of faults")?)?;
        if let Some(interval) = fields.read("interval", Field::interval)? {
            faults.interval = interval;
        }
        if let Some(field) = fields.take("schedule") {
            let name = field.one_of("fault schedule", &FaultOrder::ALL.map(FaultOrder::name))?;
            faults.order = FaultOrder::from_name(name).unwrap_or_default();
        }
        faults.nodes = fields.read("targets", |field| {
            let items = field.items("a list of nodes such as \"n1\"")?;
            items.iter().map(server).collect()
        })?;
        faults.duration = fields.read("for", Field::interval)?;
        if let Some(recovery) = fields.take("recovery") {
            if faults.duration.is_none() {
                return Err(recovery.problem(
                    "requires `for`: recovery is the time for which the node continues after the end of the faults",
                ));
            }
            faults.recovery = recovery.duration()?;
        }
        fields.finish()?;
        Ok(faults)
    }

    /// Adds the kinds of a list, each with optional targets: `partition:bridge+majorities-ring`.
    fn add_kinds(&mut self, field: &Field<'_>) -> Result<()> {
        let items = fault_names(field)?;
        for item in items {
            let (kind, name) = kind(&item)?;
            let text = item.text("a kind of faults")?;
            let (_, targets) =
                parse_fault(text).map_err(|error| item.problem(error.to_string()))?;
            if self.kinds.contains(&kind) {
                return Err(item.problem(format!("duplicate kind of faults {name:?}")));
            }
            self.kinds.push(kind);
            if !targets.is_empty() {
                self.targets.insert(kind, targets);
            }
        }
        Ok(())
    }

    /// The options of the faults for a system of these nodes.
    pub(super) fn options(&self, servers: &[NodeId], clients: &[NodeId]) -> FaultOptions {
        let servers = self.nodes.clone().unwrap_or_else(|| servers.to_vec());
        FaultOptions {
            order: self.order,
            targets: self.targets.clone(),
            ..FaultOptions::new(self.kinds.clone(), servers, clients, self.interval)
        }
    }
}

/// The kind of an item (the text before the targets), and its name.
fn kind<'e>(item: &Field<'e>) -> Result<(FaultKind, &'e str)> {
    const WHAT: &str = "kind of faults";
    let names = FaultKind::ALL.map(FaultKind::name);
    let text = item.text(&format!("{WHAT}: {}", names.join(", ")))?;
    let name = text.split(':').next().unwrap_or_default().trim();
    match FaultKind::from_name(name) {
        Some(kind) => Ok((kind, name)),
        None => Err(item.problem(unknown(WHAT, name, &names))),
    }
}

/// A list of names of faults, at least one.
fn fault_names<'e>(field: &Field<'e>) -> Result<Vec<Field<'e>>> {
    let names = FaultKind::ALL.map(FaultKind::name);
    let items = field.items(&format!("a list of kinds of faults: {}", names.join(", ")))?;
    if items.is_empty() {
        return Err(field.wrong("a list of at least one kind of faults"));
    }
    Ok(items)
}

/// A list of kinds of faults, without targets or duplicates.
pub(super) fn kinds(field: &Field<'_>) -> Result<Vec<FaultKind>> {
    let mut kinds = Vec::new();
    for item in fault_names(field)? {
        let (kind, name) = kind(&item)?;
        if item.text(name)? != name {
            return Err(item.problem(
                "must be a kind of faults without targets: `heal` ends all faults of a kind",
            ));
        }
        if kinds.contains(&kind) {
            return Err(item.problem(format!("duplicate kind of faults {name:?}")));
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

/// The kinds that `heal` ends; `true`: all except membership.
pub(super) fn healing(field: &Field<'_>) -> Result<Vec<FaultKind>> {
    match field.entry.value {
        PlanValue::Bool(true) => {
            // Membership is restored only by plans that name it: its healing queries the members of the system.
            let is_healed = |kind: &FaultKind| *kind != FaultKind::Membership;
            Ok(FaultKind::ALL.into_iter().filter(is_healed).collect())
        }
        PlanValue::List(_) => kinds(field),
        _ => Err(field.wrong("true (everything) or a list of kinds of faults")),
    }
}

/// Maximum number of a node in a plan.
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
        number.filter(|number| {
            i64::from(*number) <= SERVERS_MAX.max(i64::from(seatrial_generator::THREADS_MAX))
        })
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

/// A list of links, one direction each: `[["n1", "n2"], …]`.
fn links(field: &Field<'_>) -> Result<Vec<Link>> {
    const EXPECTED: &str = "a list of links such as [\"n1\", \"n2\"]: from the first to the second";
    let link = |item: &Field<'_>| match &item.items(EXPECTED)?[..] {
        [from, to] => Ok(Link {
            from: node(from)?,
            to: node(to)?,
        }),
        _ => Err(item.wrong("a link such as [\"n1\", \"n2\"]: from the first to the second")),
    };
    field.items(EXPECTED)?.iter().map(link).collect()
}

/// A single fault: its name, and the subject and numbers that the table of faults requires for it.
pub(super) fn fault(field: &Field<'_>, fields: &mut TableReader<'_>) -> Result<Fault> {
    let names: Vec<&str> = FaultInfo::all().iter().map(|info| info.name).collect();
    let name = field.one_of("fault", &names)?;
    let info = FaultInfo::named(name).expect("one of the names of the table");
    let mut node = None;
    let mut between = Vec::new();
    if info.takes_node() {
        node = Some(server(&fields.require("node", "a node such as \"n1\"")?)?);
    } else if info.takes_links() {
        between = links(&fields.require("links", "a list of links such as [\"n1\", \"n2\"]")?)?;
    }
    let subject = match node {
        Some(node) => FaultSubject::Node(node),
        None if info.takes_links() => FaultSubject::Links(&between),
        None => FaultSubject::System,
    };
    let mut numbers = Vec::new();
    for parameter in info.parameters {
        numbers.push(number(parameter, fields)?);
    }
    let fault = info.fault(subject, &numbers);
    Ok(fault.expect("the subject fits, and each number was read within its range"))
}

/// Nanoseconds per millisecond.
const MILLISECOND: i64 = 1_000_000;

/// Reads a number of a fault; its default if the plan has none.
fn number(parameter: &FaultParameter, fields: &mut TableReader<'_>) -> Result<i64> {
    let field = match parameter.default {
        None => fields.require(parameter.plan_key, parameter.about)?,
        Some(default) => match fields.take(parameter.plan_key) {
            Some(field) => field,
            None => return Ok(default),
        },
    };
    let (least, most) = (*parameter.range.start(), *parameter.range.end());
    match parameter.unit {
        ParameterUnit::Count => field.whole(least..=most),
        ParameterUnit::Milliseconds => {
            let milliseconds = field.whole(least / MILLISECOND..=most / MILLISECOND)?;
            Ok(milliseconds * MILLISECOND)
        }
        ParameterUnit::Duration => {
            let duration = match least {
                0 => field.duration()?,
                _ => field.interval()?,
            };
            Ok(i64::try_from(duration.as_nanos()).unwrap_or(most))
        }
    }
}

/// The names of kinds, separated by commas.
pub(super) fn joined(kinds: &[FaultKind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

impl std::fmt::Display for FaultsDraw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = |kind: &FaultKind| {
            let targets = self.targets.get(kind).into_iter().flatten();
            let names: Vec<&str> = targets.map(|target| target.name()).collect();
            let colon = if names.is_empty() { "" } else { ":" };
            format!("{kind}{colon}{}", names.join("+"))
        };
        let kinds: Vec<String> = self.kinds.iter().map(kind).collect();
        write!(f, "faults {} every {:?}", kinds.join(", "), self.interval)?;
        if self.order != FaultOrder::default() {
            write!(f, ", {}", self.order)?;
        }
        if let Some(nodes) = &self.nodes {
            let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
            write!(f, " of {}", names.join(", "))?;
        }
        if let Some(duration) = self.duration {
            write!(f, " for {duration:?}, then {:?} of recovery", self.recovery)?;
        }
        Ok(())
    }
}
