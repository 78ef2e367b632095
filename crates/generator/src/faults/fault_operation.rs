//! Encoding of faults as operations with plain data, and decoding.

use crate::{SingleOp, operation};
use seatrial_history::{Op, Symbol, Value};
use seatrial_machine::{Fault, FaultInfo, FaultParameter, FaultSubject, Link, NodeId};

/// The operation of the nemesis that represents this fault: `f` is the fault's name, the value its subject and numbers as
/// plain data. [`fault_of`] is the inverse, so a history contains all that is needed to inject its faults again.
pub fn fault_operation(fault: &Fault) -> SingleOp {
    operation(fault.name(), fault_value(fault))
}

/// The subject and the numbers of a fault as plain data: `"n1"` for a node, `[["n1" "c0"] …]` for links, a map when there
/// are numbers too.
pub fn fault_value(fault: &Fault) -> Value {
    let parts = fault.parts();
    let subject = match parts.subject {
        FaultSubject::System => None,
        FaultSubject::Node(node) => Some(("node", node_value(node))),
        FaultSubject::Links(links) => Some(("links", links_value(links))),
    };
    let parameters = parts.info.parameters;
    if parameters.is_empty() {
        return subject.map_or(Value::Nil, |(_, value)| value);
    }
    let numbers = parameters.iter().zip(parts.numbers);
    let numbers = numbers.map(|(parameter, number)| (parameter.key, Value::Int(number)));
    map_value(subject.into_iter().chain(numbers))
}

pub(super) fn node_value(node: NodeId) -> Value {
    Value::text(node.to_string())
}

fn links_value(links: &[Link]) -> Value {
    let link = |link: &Link| Value::List([node_value(link.from), node_value(link.to)].into());
    Value::List(links.iter().map(link).collect())
}

pub(super) fn map_value(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let pair = |(name, value): (&'static str, Value)| (Value::Word(Symbol::new(name)), value);
    Value::Map(fields.into_iter().map(pair).collect())
}

/// Why an operation represents no fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotAFault {
    /// Unknown name.
    #[error("unknown fault {0}")]
    Name(Symbol),
    /// The value lacks the subject or a number of the fault, or a number is out of its range.
    #[error("the value of {name} must be {expected}, found {value}")]
    Value {
        /// The fault.
        name: Symbol,
        /// Description of a valid value.
        expected: String,
        /// The beginning of the value.
        value: String,
    },
}

/// The fault that an operation of the nemesis represents. `sim` and `runner` both use it, so they inject the same faults.
pub fn fault_of(op: &Op) -> Result<Fault, NotAFault> {
    let info = FaultInfo::named(op.f.as_str()).ok_or(NotAFault::Name(op.f))?;
    read_fault(info, &op.value).ok_or_else(|| NotAFault::Value {
        name: op.f,
        expected: expected_value(info),
        value: shortened(&op.value),
    })
}

fn read_fault(info: &FaultInfo, value: &Value) -> Option<Fault> {
    let subject = |name| match info.parameters {
        [] => Some(value),
        _ => field(value, name),
    };
    let read = |parameter: &FaultParameter| field(value, parameter.key)?.as_int();
    let numbers: Vec<i64> = info.parameters.iter().map(read).collect::<Option<_>>()?;
    if info.takes_node() {
        let node = node(subject("node")?)?;
        return info.fault(FaultSubject::Node(node), &numbers);
    }
    if info.takes_links() {
        let links = links(subject("links")?)?;
        return info.fault(FaultSubject::Links(&links), &numbers);
    }
    info.fault(FaultSubject::System, &numbers)
}

/// Description of a valid value of this fault: `a map of links, percent (1 to 100) and delay-ns`.
fn expected_value(info: &FaultInfo) -> String {
    let subject = match info {
        _ if info.takes_node() => "node",
        _ if info.takes_links() => "links",
        _ => "",
    };
    let number = |parameter: &FaultParameter| match (parameter.range.start(), parameter.range.end())
    {
        (_, &i64::MAX) => parameter.key.to_owned(),
        (least, most) => format!("{} ({least} to {most})", parameter.key),
    };
    let numbers: Vec<String> = info.parameters.iter().map(number).collect();
    match (&numbers[..], subject) {
        ([], "") => "anything".into(),
        ([], "node") => "a node".into(),
        ([], _) => "a list of links".into(),
        ([one], subject) => format!("a map of {subject} and {one}"),
        ([first @ .., last], subject) => {
            format!("a map of {subject}, {} and {last}", first.join(", "))
        }
    }
}

/// The first 200 characters of a value, for a message.
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
