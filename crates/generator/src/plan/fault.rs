//! Faults in a plan: single ones, and those that are drawn.

use super::document::Shape;
use super::fields::{Field, Fields, Result, unknown};
use crate::{FaultOptions, FaultOrder, Target, parse_fault};
use seatrial_machine::{DiskTrouble, Disturbance, Fault, FaultKind, Link, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Mean time between two faults, unless the plan says otherwise.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Faults that are drawn beside a node.
#[derive(Clone, Debug)]
pub(super) struct FaultsDraw {
    pub(super) kinds: Vec<FaultKind>,
    /// What each kind strikes, where the plan says so.
    pub(super) targets: BTreeMap<FaultKind, Vec<Target>>,
    pub(super) interval: Duration,
    /// How the kinds take turns.
    pub(super) order: FaultOrder,
    /// The nodes that may be broken; `None`: all.
    pub(super) nodes: Option<Vec<NodeId>>,
    /// They end so long after the node's beginning; `None`: with the node.
    pub(super) duration: Option<Duration>,
    /// When the faults end by time, the node goes on for so long.
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
        if let Shape::List(_) = field.entry.shape {
            faults.strike(field)?;
            return Ok(faults);
        }
        let mut fields = field.table("a list of kinds of faults, or a table with `kinds`")?;
        faults.strike(&fields.need("kinds", "what is broken")?)?;
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
                    "goes with `for`: how long clients go on after the faults have ended",
                ));
            }
            faults.recovery = recovery.duration()?;
        }
        fields.finish()?;
        Ok(faults)
    }

    /// Reads the kinds, each perhaps with its targets: `partition:bridge+majorities-ring`.
    fn strike(&mut self, field: &Field<'_>) -> Result<()> {
        let items = fault_names(field)?;
        for item in items {
            let (kind, name) = kind(&item)?;
            let text = item.text("a kind of faults")?;
            let (_, targets) =
                parse_fault(text).map_err(|error| item.problem(error.to_string()))?;
            if self.kinds.contains(&kind) {
                return Err(item.problem(format!("{name:?} is there twice")));
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

/// The kind in front of what it strikes, and its name.
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

/// Families of faults.
pub(super) fn kinds(field: &Field<'_>) -> Result<Vec<FaultKind>> {
    let mut kinds = Vec::new();
    for item in fault_names(field)? {
        let (kind, name) = kind(&item)?;
        if item.text(name)? != name {
            return Err(item.problem("what is mended has no target"));
        }
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
        Shape::Bool(true) => {
            // Who belongs to the system is asked only where that was changed.
            let mended = |kind: &FaultKind| *kind != FaultKind::Membership;
            Ok(FaultKind::ALL.into_iter().filter(mended).collect())
        }
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

/// Faults that a plan may name.
const NAMES: [&str; 23] = [
    "kill",
    "restart",
    "pause",
    "resume",
    "cut",
    "reset",
    "heal",
    "slow",
    "lose",
    "reorder",
    "throttle",
    "calm",
    "skew",
    "slow-disk",
    "write-errors",
    "read-errors",
    "no-space",
    "mend-disk",
    "lose-unsynced",
    "bit-rot",
    "truncate",
    "snapshot",
    "restore",
];

/// One fault: its name and the words beside it.
pub(super) fn fault(field: &Field<'_>, fields: &mut Fields<'_>) -> Result<Fault> {
    let name = field.one_of("fault", &NAMES)?;
    let broken = |fields: &mut Fields<'_>| server(&fields.need("node", "which node")?);
    let wires = |fields: &mut Fields<'_>| {
        links(&fields.need("links", "which links, each [\"from\", \"to\"]")?)
    };
    Ok(match name {
        "kill" => Fault::Kill(broken(fields)?),
        "restart" => Fault::Restart(broken(fields)?),
        "pause" => Fault::Pause(broken(fields)?),
        "resume" => Fault::Resume(broken(fields)?),
        "cut" => Fault::Cut(wires(fields)?),
        "reset" => Fault::Reset(wires(fields)?),
        "slow" | "lose" | "reorder" | "throttle" => Fault::Disturb {
            links: wires(fields)?,
            how: disturbance(name, fields)?,
        },
        "heal" => Fault::Heal,
        "calm" => Fault::Calm,
        "mend-disk" => Fault::MendDisk(broken(fields)?),
        "lose-unsynced" => Fault::LoseUnsynced(broken(fields)?),
        "snapshot" => Fault::Snapshot(broken(fields)?),
        "restore" => Fault::Restore(broken(fields)?),
        "slow-disk" | "write-errors" | "read-errors" | "no-space" => Fault::Disk {
            node: broken(fields)?,
            trouble: trouble(name, fields)?,
        },
        "truncate" => Fault::Truncate {
            node: broken(fields)?,
            bytes: fields
                .need("bytes", "how many bytes are cut off")?
                .whole(1..=i64::MAX)? as u64,
        },
        "skew" => Fault::Skew {
            node: broken(fields)?,
            offset_ns: offset(fields)?,
            rate_ppm: {
                let rate = |field: &Field<'_>| field.whole(-1_000_000..=1_000_000);
                fields.read("rate_ppm", rate)?.unwrap_or(0) as i32
            },
        },
        _ => Fault::BitRot {
            node: broken(fields)?,
            bits: fields
                .read("bits", |field| field.whole(1..=1_000_000))?
                .unwrap_or(1) as u32,
        },
    })
}

/// How much longer something takes.
fn latency(fields: &mut Fields<'_>) -> Result<Duration> {
    fields
        .need("latency", "how much longer it takes")?
        .duration()
}

/// What is wrong with a disk.
fn trouble(name: &str, fields: &mut Fields<'_>) -> Result<DiskTrouble> {
    Ok(match name {
        "slow-disk" => DiskTrouble::Slow(latency(fields)?),
        "write-errors" => DiskTrouble::WriteErrors,
        "read-errors" => DiskTrouble::ReadErrors,
        _ => DiskTrouble::NoSpace,
    })
}

/// What is wrong with the packets of links.
fn disturbance(name: &str, fields: &mut Fields<'_>) -> Result<Disturbance> {
    let percent = |fields: &mut Fields<'_>| {
        let percent = fields.need("percent", "how many of a hundred packets")?;
        Ok(percent.whole(1..=100)? as u8)
    };
    Ok(match name {
        "slow" => Disturbance::Slow {
            delay: latency(fields)?,
            jitter: fields.read("jitter", Field::duration)?.unwrap_or_default(),
        },
        "lose" => Disturbance::Lose {
            percent: percent(fields)?,
        },
        "reorder" => Disturbance::Reorder {
            percent: percent(fields)?,
            delay: latency(fields)?,
        },
        _ => Disturbance::Throttle {
            bytes_per_second: {
                let rate = fields.need("bytes_per_second", "how many bytes pass in a second")?;
                rate.whole(1..=i64::MAX)? as u64
            },
        },
    })
}

/// How far a clock jumps: forward, or back with a minus.
fn offset(fields: &mut Fields<'_>) -> Result<i64> {
    const MOST: i64 = 1_000_000_000_000;
    let Some(field) = fields.take("offset_ms") else {
        return Ok(0);
    };
    Ok(field.whole(-MOST..=MOST)? * 1_000_000)
}

/// Names of families, one after the other.
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
            write!(f, " for {duration:?}, then {:?} without", self.recovery)?;
        }
        Ok(())
    }
}
