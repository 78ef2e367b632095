//! Findings about cycles as text.

use seatrial_checker::{Anomaly, Component, Dependency, Finding, FindingStep};
use seatrial_cycles::graph::{PROCESS, REALTIME, RW, WR, relation};
use seatrial_cycles::search::{ComponentSketch, Cycle};
use seatrial_history::{Mop, Observed, Op, OpType, Process};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Number of elements of a list that are shown; the middle of a longer one is left out.
const ELEMENTS_MAX: usize = 16;
/// Number of micro-operations of a transaction that are shown.
const MOPS_MAX: usize = 24;

/// Gives access to the operations of transactions by number.
pub trait RecordedTransactions {
    /// Its invocation, if it was recorded.
    fn invocation(&self, number: u32) -> Option<&Op>;

    /// Its completion, if there is one.
    fn completion(&self, number: u32) -> Option<&Op>;

    /// The operation to show for it.
    fn shown(&self, number: u32) -> Option<&Op> {
        self.completion(number).or(self.invocation(number))
    }

    /// The index of [`RecordedTransactions::shown`].
    fn shown_index(&self, number: u32) -> u64 {
        self.shown(number).map_or(0, |op| op.index)
    }

    /// Its micro-operations: those of its completion if it took place, otherwise those of its invocation.
    fn shown_mops(&self, number: u32) -> &[Mop] {
        let completion = self.completion(number).filter(|op| op.kind == OpType::Ok);
        let op = completion.or(self.invocation(number));
        op.and_then(|op| op.value.as_txn()).unwrap_or_default()
    }
}

/// Explains the dependencies between transactions.
pub trait DependencyReasons {
    /// Why `from` comes before `to` by an edge of this kind (`ww`, `wr` or `rw`), in terms of their names.
    fn reason(&self, from: (u32, &str), to: (u32, &str), kind: u8) -> String;
}

/// The finding of a cycle: its transactions, and the reason for each edge.
pub fn cycle(
    recorded: &impl RecordedTransactions,
    reasons: &impl DependencyReasons,
    anomaly: Anomaly,
    cycle: &Cycle,
) -> Finding {
    let index = |number| recorded.shown_index(number);
    let reason = |from: (u32, &str), to: (u32, &str), kind| match kind {
        PROCESS => process(recorded, from, to),
        REALTIME => realtime(recorded, from, to),
        kind => reasons.reason(from, to, kind),
    };
    let written = |number| {
        let mops = recorded.shown_mops(number).iter();
        let writes = mops.filter(|mop| !matches!(mop, Mop::Read { .. }));
        writes.map(|mop| mop.key().clone()).collect()
    };
    let nodes = (|number| shown(recorded, number), index, written);
    explain_cycle(anomaly, cycle, nodes, reason)
}

/// The name that the shape of a few transactions has besides Adya's, as a sentence. `edges` lead from each of `nodes` to the
/// next, the last to the first; `written` returns the keys that a transaction writes.
///
/// - Write skew (Berenson and others, "A Critique of ANSI SQL Isolation Levels", 1995, A5B): of two transactions, each reads
///   what the other overwrites, and they write different keys.
/// - Long fork (Sovran and others, "Transactional storage for geo-replicated systems", 2011): of two writes of different
///   keys, one reader sees only the first, another only the second.
pub fn shape<K: Ord>(
    nodes: &[u32],
    edges: &[u8],
    written: impl Fn(u32) -> BTreeSet<K>,
) -> Option<&'static str> {
    let are_apart = |one: u32, other: u32| {
        let (one, other) = (written(one), written(other));
        !one.is_empty() && !other.is_empty() && one.is_disjoint(&other)
    };
    match (nodes, edges) {
        (&[one, other], [RW, RW]) if are_apart(one, other) => Some(
            "This is write skew: each transaction read a key that the other one wrote, and they wrote different keys.",
        ),
        (&[one, _, other, _], [WR, RW, WR, RW]) | (&[_, one, _, other], [RW, WR, RW, WR])
            if are_apart(one, other) =>
        {
            Some(
                "This is a long fork: two readers saw two writes of different keys in opposite orders.",
            )
        }
        _ => None,
    }
}

/// The finding of a cycle, for callers that can show a transaction, know its index and the keys that it writes, and can give
/// the reason of an edge.
pub fn explain_cycle<K: Ord>(
    anomaly: Anomaly,
    cycle: &Cycle,
    (shown, index, written): (
        impl Fn(u32) -> String,
        impl Fn(u32) -> u64,
        impl Fn(u32) -> BTreeSet<K>,
    ),
    reason: impl Fn((u32, &str), (u32, &str), u8) -> String,
) -> Finding {
    let length = cycle.nodes.len();
    let names: Vec<_> = (1..=length).map(|number| format!("T{number}")).collect();
    let mut text = String::from("Let:");
    for (name, &number) in names.iter().zip(&cycle.nodes) {
        let _ = write!(text, "\n  {name} = {}", shown(number));
    }
    text.push_str("\nThen:");
    let mut steps = Vec::new();
    for at in 0..length {
        let next = (at + 1) % length;
        let from = (cycle.nodes[at], names[at].as_str());
        let to = (cycle.nodes[next], names[next].as_str());
        let kind = cycle.edges[at];
        let reason = reason(from, to, kind);
        let (start, end) = if next == 0 {
            ("However, ", ": a contradiction!")
        } else {
            ("", ".")
        };
        let _ = write!(
            text,
            "\n  - {start}{} < {}, because {reason}{end}",
            from.1, to.1
        );
        steps.push(FindingStep {
            from: index(from.0),
            to: index(to.0),
            relation: relation(kind),
            reason,
        });
    }
    if let Some(shape) = shape(&cycle.nodes, &cycle.edges, written) {
        let _ = write!(text, "\n{shape}");
    }
    Finding {
        anomaly,
        summary: text,
        operations: cycle.nodes.iter().map(|&number| index(number)).collect(),
        steps,
        linearization: None,
    }
}

/// A component with the indices of the operations that stand for its transactions.
pub fn component(index: impl Fn(u32) -> u64, sketch: &ComponentSketch) -> Component {
    let operations = sketch.nodes.iter().map(|&node| index(node));
    let dependencies = sketch.edges.iter().map(|&(from, to, kind)| Dependency {
        from: index(from),
        to: index(to),
        relation: relation(kind),
    });
    Component {
        transactions: sketch.size as u64,
        operations: operations.collect(),
        dependencies: dependencies.collect(),
        left_out: sketch.left_out as u64,
    }
}

fn process(recorded: &impl RecordedTransactions, from: (u32, &str), to: (u32, &str)) -> String {
    let process = recorded
        .shown(from.0)
        .map_or(Process::NEMESIS, |op| op.process);
    format!("process {process} executed {} before {}", from.1, to.1)
}

fn realtime(recorded: &impl RecordedTransactions, from: (u32, &str), to: (u32, &str)) -> String {
    let (Some(completion), Some(invocation)) =
        (recorded.completion(from.0), recorded.invocation(to.0))
    else {
        return format!("{} completed before {} was invoked", from.1, to.1);
    };
    let between = invocation.time.saturating_sub(completion.time);
    let ahead = if completion.time >= 0 && between >= 0 {
        format!("{:.3} s ", between as f64 / 1e9)
    } else {
        String::new()
    };
    format!(
        "{} completed at op {}, {ahead}before {} was invoked at op {}",
        from.1, completion.index, to.1, invocation.index
    )
}

/// A transaction on one line: `op 4 (ok, process 1): [[:append 1 2] [:r 1 [1 2]]]`.
pub fn shown(recorded: &impl RecordedTransactions, number: u32) -> String {
    let Some(op) = recorded.shown(number) else {
        return String::new();
    };
    let outcome = match op.kind {
        OpType::Invoke => "never completed",
        kind => kind.name(),
    };
    with_mops(op, outcome, recorded.shown_mops(number))
}

/// The transaction of one operation on one line.
pub fn line(op: &Op, outcome: &str) -> String {
    with_mops(op, outcome, op.value.as_txn().unwrap_or_default())
}

fn with_mops(op: &Op, outcome: &str, mops: &[Mop]) -> String {
    let mut text = format!("op {} ({outcome}, process {}): [", op.index, op.process);
    for (at, mop) in mops.iter().take(MOPS_MAX).enumerate() {
        text.push_str(if at > 0 { " " } else { "" });
        text.push_str(&micro_operation(mop));
    }
    if mops.len() > MOPS_MAX {
        let _ = write!(text, " … {} more", mops.len() - MOPS_MAX);
    }
    text + "]"
}

/// A micro-operation, the middle of a long list left out.
pub fn micro_operation(mop: &Mop) -> String {
    match mop {
        Mop::Read {
            key,
            observed: Observed::List(elements),
        } => format!("[:r {key} {}]", list(elements)),
        other => other.to_string(),
    }
}

/// A list, the middle of a long one left out.
pub fn list(elements: &[i64]) -> String {
    let join = |elements: &[i64]| {
        let texts: Vec<_> = elements.iter().map(i64::to_string).collect();
        texts.join(" ")
    };
    if elements.len() <= ELEMENTS_MAX {
        return format!("[{}]", join(elements));
    }
    let (start, end) = (4, elements.len() - (ELEMENTS_MAX - 4));
    format!(
        "[{} … {}]",
        join(&elements[..start]),
        join(&elements[end..])
    )
}

#[cfg(test)]
mod tests;
