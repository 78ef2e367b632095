//! Faults as operations in plain data, there and back.

use crate::{Template, operation};
use seatrial_history::{Op, Symbol, Value};
use seatrial_machine::{DiskTrouble, Disturbance, Fault, Link, NodeId};
use std::time::Duration;

/// The operation of the nemesis that stands for this fault: `f` is the fault's name, the value its targets in plain
/// data, so that a history says what was broken and [`fault_of`] can tell.
pub fn fault_operation(fault: &Fault) -> Template {
    operation(fault.name(), fault_value(fault))
}

/// The targets of a fault in plain data: `"n1"` for a node, `[["n1" "c0"] …]` for links, a map for more.
pub fn fault_value(fault: &Fault) -> Value {
    match fault {
        Fault::Kill(node)
        | Fault::Restart(node)
        | Fault::Pause(node)
        | Fault::Resume(node)
        | Fault::MendDisk(node)
        | Fault::LoseUnsynced(node)
        | Fault::Snapshot(node)
        | Fault::Restore(node)
        | Fault::Join(node)
        | Fault::Leave(node) => node_value(*node),
        Fault::Cut(links) | Fault::Reset(links) => links_value(links),
        Fault::Disturb { links, how } => disturbance_value(links, how),
        Fault::Heal | Fault::Calm | Fault::View => Value::Nil,
        Fault::Skew {
            node,
            offset_ns,
            rate_ppm,
        } => map_value([
            ("node", node_value(*node)),
            ("offset-ns", Value::Int(*offset_ns)),
            ("rate-ppm", Value::Int(i64::from(*rate_ppm))),
        ]),
        Fault::Strobe {
            node,
            delta,
            period,
            length,
        } => map_value([
            ("node", node_value(*node)),
            ("delta-ns", Value::Int(nanoseconds(*delta))),
            ("period-ns", Value::Int(nanoseconds(*period))),
            ("length-ns", Value::Int(nanoseconds(*length))),
        ]),
        Fault::Disk { node, trouble } => match trouble {
            DiskTrouble::Slow(delay) => map_value([
                ("node", node_value(*node)),
                ("delay-ns", Value::Int(nanoseconds(*delay))),
            ]),
            _ => node_value(*node),
        },
        Fault::BitRot { node, bits } => map_value([
            ("node", node_value(*node)),
            ("bits", Value::Int(i64::from(*bits))),
        ]),
        Fault::Truncate { node, bytes } => map_value([
            ("node", node_value(*node)),
            ("bytes", Value::Int(whole(*bytes))),
        ]),
    }
}

fn disturbance_value(links: &[Link], how: &Disturbance) -> Value {
    let links = ("links", links_value(links));
    let percent = |percent: u8| ("percent", Value::Int(i64::from(percent)));
    let delay = |delay| ("delay-ns", Value::Int(nanoseconds(delay)));
    match *how {
        Disturbance::Slow { delay: by, jitter } => {
            let jitter = ("jitter-ns", Value::Int(nanoseconds(jitter)));
            map_value([links, delay(by), jitter])
        }
        Disturbance::Lose { percent: lost } => map_value([links, percent(lost)]),
        Disturbance::Reorder {
            percent: held,
            delay: by,
        } => map_value([links, percent(held), delay(by)]),
        Disturbance::Throttle { bytes_per_second } => {
            let rate = ("bytes-per-second", Value::Int(whole(bytes_per_second)));
            map_value([links, rate])
        }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn node_value(node: NodeId) -> Value {
    Value::text(node.to_string())
}

fn links_value(links: &[Link]) -> Value {
    let link = |link: &Link| Value::List([node_value(link.from), node_value(link.to)].into());
    Value::List(links.iter().map(link).collect())
}

pub(super) fn map_value<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    let pair = |(name, value): (&'static str, Value)| (Value::Word(Symbol::new(name)), value);
    Value::Map(fields.into_iter().map(pair).collect())
}

/// Why an operation stands for no fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotAFault {
    /// There is no fault of this name.
    #[error("{0} is not the name of a fault")]
    Name(Symbol),
    /// The value does not say what is to be broken.
    #[error("the value of {name} must be {expected}, not {value}")]
    Value {
        /// The fault.
        name: Symbol,
        /// What its value looks like.
        expected: &'static str,
        /// What was there.
        value: String,
    },
}

/// The fault that an operation of the nemesis stands for, so that `sim` and `runner` carry out the same.
pub fn fault_of(op: &Op) -> Result<Fault, NotAFault> {
    let value = &op.value;
    let (fault, expected) = match op.f.as_str() {
        "kill" => (node(value).map(Fault::Kill), "a node"),
        "restart" => (node(value).map(Fault::Restart), "a node"),
        "pause" => (node(value).map(Fault::Pause), "a node"),
        "resume" => (node(value).map(Fault::Resume), "a node"),
        "cut" => (links(value).map(Fault::Cut), "a list of links"),
        "reset" => (links(value).map(Fault::Reset), "a list of links"),
        "heal" => (Some(Fault::Heal), "anything"),
        "slow" | "lose" | "reorder" | "throttle" => disturbance(op.f.as_str(), value),
        "calm" => (Some(Fault::Calm), "anything"),
        "skew" => (skew(value), "a map of node, offset-ns and rate-ppm"),
        "strobe" => (
            strobe(value),
            "a map of node, delta-ns, period-ns and length-ns",
        ),
        "slow-disk" => (slow_disk(value), "a map of node and delay-ns"),
        "write-errors" => (trouble(value, DiskTrouble::WriteErrors), "a node"),
        "read-errors" => (trouble(value, DiskTrouble::ReadErrors), "a node"),
        "no-space" => (trouble(value, DiskTrouble::NoSpace), "a node"),
        "mend-disk" => (node(value).map(Fault::MendDisk), "a node"),
        "lose-unsynced" => (node(value).map(Fault::LoseUnsynced), "a node"),
        "bit-rot" => (bit_rot(value), "a map of node and bits"),
        "truncate" => (truncate(value), "a map of node and bytes"),
        "snapshot" => (node(value).map(Fault::Snapshot), "a node"),
        "restore" => (node(value).map(Fault::Restore), "a node"),
        "view" => (Some(Fault::View), "anything"),
        "join" => (node(value).map(Fault::Join), "a node"),
        "leave" => (node(value).map(Fault::Leave), "a node"),
        _ => return Err(NotAFault::Name(op.f)),
    };
    fault.ok_or_else(|| NotAFault::Value {
        name: op.f,
        expected,
        value: shortened(value),
    })
}

/// The beginning of a value as text.
fn shortened(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 200;
    value.to_string().chars().take(CHARACTERS_MAX).collect()
}

pub(super) fn node(value: &Value) -> Option<NodeId> {
    let Value::Text(name) = value else {
        return None;
    };
    let digits = name.get(1..)?;
    let number: u32 = digits.parse().ok().filter(|&number| number < 1 << 31)?;
    match name.get(..1)? {
        "n" => Some(NodeId::server(number)),
        "c" => Some(NodeId::client(number)),
        _ => None,
    }
}

fn links(value: &Value) -> Option<Vec<Link>> {
    let Value::List(links) = value else {
        return None;
    };
    let link = |link: &Value| match link {
        Value::List(ends) => match &ends[..] {
            [from, to] => Some(Link {
                from: node(from)?,
                to: node(to)?,
            }),
            _ => None,
        },
        _ => None,
    };
    links.iter().map(link).collect()
}

pub(super) fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(fields) = value else {
        return None;
    };
    let is_named = |key: &Value| matches!(key, Value::Word(word) if *word == name);
    fields
        .iter()
        .find(|(key, _)| is_named(key))
        .map(|(_, value)| value)
}

fn duration(value: &Value, name: &str) -> Option<Duration> {
    let nanoseconds = u64::try_from(field(value, name)?.as_int()?).ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// The disturbance of this name, and what its value must look like.
fn disturbance(name: &str, value: &Value) -> (Option<Fault>, &'static str) {
    let percent = || {
        let percent = field(value, "percent")?.as_int()?;
        u8::try_from(percent).ok().filter(|percent| *percent <= 100)
    };
    let rate = || {
        let rate = field(value, "bytes-per-second")?.as_int()?;
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    };
    let slow = || {
        Some(Disturbance::Slow {
            delay: duration(value, "delay-ns")?,
            jitter: duration(value, "jitter-ns")?,
        })
    };
    let reorder = || {
        Some(Disturbance::Reorder {
            percent: percent()?,
            delay: duration(value, "delay-ns")?,
        })
    };
    let (how, expected) = match name {
        "slow" => (slow(), "a map of links, delay-ns and jitter-ns"),
        "lose" => (
            percent().map(|percent| Disturbance::Lose { percent }),
            "a map of links and percent",
        ),
        "reorder" => (reorder(), "a map of links, percent and delay-ns"),
        _ => (
            rate().map(|bytes_per_second| Disturbance::Throttle { bytes_per_second }),
            "a map of links and bytes-per-second",
        ),
    };
    let links = field(value, "links").and_then(links);
    let fault = links
        .zip(how)
        .map(|(links, how)| Fault::Disturb { links, how });
    (fault, expected)
}

fn strobe(value: &Value) -> Option<Fault> {
    Some(Fault::Strobe {
        node: node(field(value, "node")?)?,
        delta: duration(value, "delta-ns")?,
        period: duration(value, "period-ns")?,
        length: duration(value, "length-ns")?,
    })
}

fn slow_disk(value: &Value) -> Option<Fault> {
    Some(Fault::Disk {
        node: node(field(value, "node")?)?,
        trouble: DiskTrouble::Slow(duration(value, "delay-ns")?),
    })
}

fn trouble(value: &Value, trouble: DiskTrouble) -> Option<Fault> {
    let node = node(value)?;
    Some(Fault::Disk { node, trouble })
}

fn truncate(value: &Value) -> Option<Fault> {
    Some(Fault::Truncate {
        node: node(field(value, "node")?)?,
        bytes: field(value, "bytes")?.as_int()?.try_into().ok()?,
    })
}

fn skew(value: &Value) -> Option<Fault> {
    Some(Fault::Skew {
        node: node(field(value, "node")?)?,
        offset_ns: field(value, "offset-ns")?.as_int()?,
        rate_ppm: field(value, "rate-ppm")?.as_int()?.try_into().ok()?,
    })
}

fn bit_rot(value: &Value) -> Option<Fault> {
    Some(Fault::BitRot {
        node: node(field(value, "node")?)?,
        bits: field(value, "bits")?.as_int()?.try_into().ok()?,
    })
}
