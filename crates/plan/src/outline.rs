//! The outline of a plan: a tree of titles.

use super::plan_node::{
    Child, IndependentKeys, Modifiers, NodeKind, OperationTemplate, Repetition, ThreadSelection,
};
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{Tree, fault_value};
use std::fmt::Write as _;

/// The outline of a node and its descendants.
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
        NodeKind::Mix(nodes) => nodes
            .iter()
            .map(|(weight, _)| format!("{weight} × "))
            .collect(),
        NodeKind::Reserve(ranges, _) => {
            let threads = ranges.iter().map(|(count, _)| format!("{count} threads: "));
            threads.chain(["other threads: ".to_owned()]).collect()
        }
        NodeKind::CycleTimes(turns) => turns
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

fn title(kind: &NodeKind) -> String {
    match kind {
        NodeKind::Operation(operation) => operation_title(operation),
        NodeKind::Workload(name, options) => {
            format!("workload {name}{}", workload_options(options))
        }
        NodeKind::LastOf(name, _) => format!("the last operations of workload {name}"),
        NodeKind::Sequence(_) => "sequence".into(),
        NodeKind::Phases(_) => "phases".into(),
        NodeKind::Mix(_) => "mix".into(),
        NodeKind::Any(_) => "any".into(),
        NodeKind::ShortestAny(_) => "any, until one has ended".into(),
        NodeKind::FlipFlop(_) => "flip-flop".into(),
        NodeKind::Reserve(..) => "reserve".into(),
        NodeKind::EachThread(_) => "each thread".into(),
        NodeKind::EachProcess(_) => "each process".into(),
        NodeKind::SequentialKeys(keys, _) => format!("sequential keys, {}", keys_title(keys)),
        NodeKind::ConcurrentKeys(keys, threads, _) => {
            format!(
                "concurrent keys, {threads} threads each, {}",
                keys_title(keys)
            )
        }
        NodeKind::CycleTimes(_) => "cycle of times".into(),
        NodeKind::Sleep(duration) => format!("sleep {duration:?}"),
        NodeKind::Log(text) => format!("log {text:?}"),
        NodeKind::Fault(fault) => format!("fault {} {}", fault.name(), fault_value(fault)),
        NodeKind::Heal(kinds) => format!("heal {}", super::plan_fault::joined(kinds)),
        NodeKind::Of(_) => "of".into(),
        NodeKind::Faults => "faults only".into(),
        NodeKind::Nothing => "nothing".into(),
    }
}

/// The options of a workload.
fn workload_options(options: &WorkloadOptions) -> String {
    let workload_options = [
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
    workload_options.into_iter().flatten().collect()
}

fn operation_title(operation: &OperationTemplate) -> String {
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

fn keys_title(keys: &IndependentKeys) -> String {
    match keys {
        IndependentKeys::Range(from, i64::MAX) => format!("from {from} on"),
        IndependentKeys::Range(from, to) => format!("{from} to {to}"),
        IndependentKeys::List(keys) => format!("{} keys", keys.len()),
    }
}

fn times(word: &str, times: Repetition) -> String {
    match times {
        Repetition::Endless => format!("{word} endlessly"),
        Repetition::Count(count) => format!("{word} {count} times"),
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
        .map(|(old, new)| format!("{old} renamed to {new}"));
    let renamed: Vec<String> = renamed.collect();
    let notes = [
        modifiers.repeat.map(|count| times("repeated", count)),
        modifiers.cycle.map(|count| times("restarted", count)),
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
            ThreadSelection::Clients => "on clients".into(),
            ThreadSelection::Nemesis => "on the nemesis".into(),
            ThreadSelection::Threads(first, last) => format!("on clients {first} to {last}"),
        }),
        modifiers.faults.as_ref().map(|faults| faults.to_string()),
        modifiers
            .synchronize
            .then(|| "when all threads are free".into()),
    ];
    notes.into_iter().flatten().collect()
}
