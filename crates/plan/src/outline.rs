//! A plan as a tree, for people.

use super::node::{Child, Keys, Kind, Modifiers, On, Operation, Times};
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{Tree, fault_value};
use std::fmt::Write as _;

/// A node and those in it.
pub(super) fn outline(node: &Child) -> Tree {
    let mut name = String::new();
    if let Some(given) = &node.name {
        // Writing to a string cannot fail.
        let _ = write!(name, "{given}: ");
    }
    name.push_str(&title(&node.kind));
    for note in notes(&node.modifiers) {
        name.push_str(", ");
        name.push_str(&note);
    }
    let notes: Vec<String> = match &node.kind {
        Kind::Mix(nodes) => nodes
            .iter()
            .map(|(weight, _)| format!("{weight} × "))
            .collect(),
        Kind::Reserve(ranges, _) => {
            let threads = ranges.iter().map(|(count, _)| format!("{count} threads: "));
            threads.chain(["the others: ".to_owned()]).collect()
        }
        Kind::CycleTimes(turns) => turns
            .iter()
            .map(|(duration, _)| format!("for {duration:?}: "))
            .collect(),
        _ => Vec::new(),
    };
    let mut children: Vec<Tree> = node.kind.children().into_iter().map(outline).collect();
    for (child, note) in children.iter_mut().zip(notes) {
        child.name.insert_str(0, &note);
    }
    Tree { name, children }
}

fn title(kind: &Kind) -> String {
    match kind {
        Kind::Operation(operation) => operation_title(operation),
        Kind::Workload(name, options) => format!("workload {name}{}", wishes(options)),
        Kind::LastOf(name, _) => format!("the last operations of workload {name}"),
        Kind::Sequence(_) => "sequence".into(),
        Kind::Phases(_) => "phases".into(),
        Kind::Mix(_) => "mix".into(),
        Kind::Any(_) => "any".into(),
        Kind::ShortestAny(_) => "any, until one has ended".into(),
        Kind::FlipFlop(_) => "flip-flop".into(),
        Kind::Reserve(..) => "reserve".into(),
        Kind::EachThread(_) => "each thread".into(),
        Kind::EachProcess(_) => "each process".into(),
        Kind::SequentialKeys(keys, _) => format!("key after key, {}", keys_title(keys)),
        Kind::ConcurrentKeys(keys, threads, _) => {
            format!(
                "keys side by side, {threads} threads each, {}",
                keys_title(keys)
            )
        }
        Kind::CycleTimes(_) => "turns by the clock".into(),
        Kind::Sleep(duration) => format!("sleep {duration:?}"),
        Kind::Log(text) => format!("log {text:?}"),
        Kind::Fault(fault) => format!("fault {} {}", fault.name(), fault_value(fault)),
        Kind::Heal(kinds) => format!("heal {}", super::fault::joined(kinds)),
        Kind::Of(_) => "of".into(),
        Kind::Faults => "only faults".into(),
        Kind::Nothing => "nothing".into(),
    }
}

/// The options of a workload.
fn wishes(options: &WorkloadOptions) -> String {
    let wishes = [
        options.key_count.map(|count| format!(", {count} keys")),
        options.distribution.map(|one| format!(", {one}")),
        options
            .writes_per_key
            .map(|count| format!(", {count} writes per key")),
        options
            .transaction_length
            .as_ref()
            .map(|length| format!(", {} to {} micro-operations", length.start(), length.end())),
    ];
    wishes.into_iter().flatten().collect()
}

fn operation_title(operation: &Operation) -> String {
    let mut title = operation.f.to_string();
    if let Some(key) = &operation.key {
        let _ = write!(title, ", key {key}");
    }
    if let Some(value) = &operation.value {
        let _ = write!(title, ", value {value}");
    }
    for (name, draw) in &operation.fields {
        let _ = write!(title, ", {name} {draw}");
    }
    if let Some(process) = operation.process {
        let _ = write!(title, ", by process {process}");
    }
    if let Some(at) = operation.at {
        let _ = write!(title, ", not before {at:?}");
    }
    title
}

fn keys_title(keys: &Keys) -> String {
    match keys {
        Keys::Range(from, i64::MAX) => format!("from {from} on"),
        Keys::Range(from, to) => format!("{from} to {to}"),
        Keys::List(keys) => format!("{} keys", keys.len()),
    }
}

fn times(word: &str, times: Times) -> String {
    match times {
        Times::Endless => format!("{word} for ever"),
        Times::Count(count) => format!("{word} {count} times"),
    }
}

/// The modifiers of a node, the innermost first.
fn notes(modifiers: &Modifiers) -> Vec<String> {
    let symbols = |names: &[seatrial_history::Symbol]| {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        names.join(", ")
    };
    let renamed = modifiers
        .f_map
        .iter()
        .map(|(old, new)| format!("{old} is called {new}"));
    let renamed: Vec<String> = renamed.collect();
    let notes = [
        modifiers.repeat.map(|count| times("repeated", count)),
        modifiers
            .cycle
            .map(|count| times("from its beginning", count)),
        (!renamed.is_empty()).then(|| renamed.join(", ")),
        modifiers
            .only
            .as_ref()
            .map(|names| format!("only {}", symbols(names))),
        modifiers
            .except
            .as_ref()
            .map(|names| format!("except {}", symbols(names))),
        modifiers.until_ok.then(|| "until ok".into()),
        modifiers
            .process_limit
            .map(|count| format!("at most {count} processes")),
        modifiers
            .concurrency_limit
            .map(|count| format!("at most {count} at a time")),
        modifiers.limit.map(|count| format!("at most {count}")),
        modifiers
            .stagger
            .map(|mean| format!("every {mean:?} on average")),
        modifiers
            .delay
            .map(|interval| format!("{interval:?} apart")),
        modifiers
            .delay_til
            .map(|interval| format!("at multiples of {interval:?}")),
        modifiers
            .time_limit
            .map(|duration| format!("for {duration:?}")),
        modifiers.on.as_ref().map(|on| match on {
            On::Clients => "on clients".into(),
            On::Nemesis => "on the nemesis".into(),
            On::Threads(first, last) => format!("on clients {first} to {last}"),
        }),
        modifiers.faults.as_ref().map(|faults| faults.to_string()),
        modifiers
            .synchronize
            .then(|| "when all threads are free".into()),
    ];
    notes.into_iter().flatten().collect()
}
