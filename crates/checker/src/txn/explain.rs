//! Cycles in words.

use super::graph::{PROCESS, REALTIME, relation};
use super::search::Cycle;
use super::transactions::{NONE, Transactions};
use crate::{Anomaly, Finding, Step};
use seatrial_history::{Mop, Observed, Op};
use std::fmt::Write as _;

/// Elements of a list that are shown; the middle of a longer one is left out.
const ELEMENTS_MAX: usize = 16;
/// Micro-operations of a transaction that are shown.
const MOPS_MAX: usize = 24;

/// Says why data put one transaction before another.
pub(super) trait Reasons {
    /// Why `from` comes before `to` by an edge of this kind (`ww`, `wr` or `rw`), in terms of their names.
    fn reason(&self, from: (u32, &str), to: (u32, &str), kind: u8) -> String;
}

/// The finding of a cycle: its transactions, and why each comes before the next.
pub(super) fn cycle(
    transactions: &Transactions<'_>,
    reasons: &impl Reasons,
    anomaly: Anomaly,
    cycle: &Cycle,
) -> Finding {
    let length = cycle.nodes.len();
    let names: Vec<_> = (1..=length).map(|number| format!("T{number}")).collect();
    let mut text = String::from("Let:");
    for (name, &number) in names.iter().zip(&cycle.nodes) {
        let _ = write!(text, "\n  {name} = {}", shown(transactions, number));
    }
    text.push_str("\nThen:");
    let mut steps = Vec::new();
    for at in 0..length {
        let next = (at + 1) % length;
        let from = (cycle.nodes[at], names[at].as_str());
        let to = (cycle.nodes[next], names[next].as_str());
        let kind = cycle.edges[at];
        let reason = match kind {
            PROCESS => process(transactions, from, to),
            REALTIME => realtime(transactions, from, to),
            kind => reasons.reason(from, to, kind),
        };
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
        steps.push(Step {
            from: transactions.index(from.0),
            to: transactions.index(to.0),
            relation: relation(kind),
            reason,
        });
    }
    Finding {
        anomaly,
        summary: text,
        operations: cycle
            .nodes
            .iter()
            .map(|&number| transactions.index(number))
            .collect(),
        steps,
    }
}

fn process(transactions: &Transactions<'_>, from: (u32, &str), to: (u32, &str)) -> String {
    let process = transactions.process(from.0);
    format!("process {process} executed {} before {}", from.1, to.1)
}

fn realtime(transactions: &Transactions<'_>, from: (u32, &str), to: (u32, &str)) -> String {
    let ops = transactions.history.ops();
    let completion = &ops[transactions.all[from.0 as usize].completion as usize];
    let invocation = &ops[transactions.all[to.0 as usize].invocation as usize];
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
pub(super) fn shown(transactions: &Transactions<'_>, number: u32) -> String {
    let op = transactions.op(number);
    let outcome = if transactions.all[number as usize].completion == NONE {
        "never completed"
    } else {
        op.kind.name()
    };
    with_mops(op, outcome, transactions.mops(number))
}

/// The transaction of one operation on one line.
pub(super) fn line(op: &Op, outcome: &str) -> String {
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
pub(super) fn micro_operation(mop: &Mop) -> String {
    match mop {
        Mop::Read {
            key,
            observed: Observed::List(elements),
        } => format!("[:r {key} {}]", list(elements)),
        other => other.to_string(),
    }
}

/// A list, the middle of a long one left out.
pub(super) fn list(elements: &[i64]) -> String {
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
