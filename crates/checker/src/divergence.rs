//! Replicas whose states differ when nothing changes any more.

use crate::{
    Aims, Anomaly, Checker, Details, Figures, Finding, FoldChecker, OnlineChecker, Validity,
    Verdict, check_source,
};
use seatrial_history::{Chunk, Fold, History, Order, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Compares the states that the nodes reported at quiescence: after the last fault was healed and the clients had ended. Valid if
/// all are equal. Nodes at the same revision with different hashes have diverged. Unknown if a node did not report its state, if
/// one is still behind, or if there is no state in the history.
///
/// The states are operations of a process that is no client, with the function [`Divergence::FUNCTION`]; the last one of each
/// node counts. Memory: one state of each of `NODES_MAX` nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Divergence;

/// Name of the checker, and of its anomaly.
const NAME: &str = "divergence";
const ANOMALY: Anomaly = "divergence";
/// Nodes whose states are compared.
const NODES_MAX: usize = 10_000;
/// Longest text of a difference in characters.
const DIFFERENCE_LENGTH_MAX: usize = 400;

impl Divergence {
    /// The function of operations that carry the state of a node.
    pub const FUNCTION: &'static str = "node-state";

    /// The value of an operation: the state of a node, which is at this revision. Nodes with equal hashes have the same state.
    /// `contents` is what a finding compares to show the first difference.
    pub fn state(node: &str, revision: &str, hash: &str, contents: Option<Value>) -> Value {
        let mut fields = vec![
            field("node", Value::text(node)),
            field("revision", Value::text(revision)),
            field("hash", Value::text(hash)),
        ];
        fields.extend(contents.map(|contents| field("contents", contents)));
        Value::Map(fields.into())
    }

    /// The value of an operation for a node that holds the same data as others of this group, such as the replicas of one
    /// shard, and is compared with them alone.
    pub fn in_group(state: Value, group: &str) -> Value {
        let Value::Map(fields) = state else {
            return state;
        };
        let mut fields = fields.to_vec();
        fields.push(field("group", Value::text(group)));
        Value::Map(fields.into())
    }

    /// The value of an operation for a node whose state is not known, for this reason.
    pub fn no_state(node: &str, reason: &str) -> Value {
        let fields = [
            field("node", Value::text(node)),
            field("unknown", Value::text(reason)),
        ];
        Value::Map(fields.into())
    }
}

fn field(name: &'static str, value: Value) -> (Value, Value) {
    (Value::Word(name.into()), value)
}

/// Figures of [`Divergence`]: the state of each node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DivergenceFigures {
    /// By node.
    pub states: BTreeMap<String, StateFigures>,
}

/// The state of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateFigures {
    /// The nodes with which it is compared; `None`: all without a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its revision: an index of a log, a number of changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The hash of its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Why its state is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// A state as it was recorded.
#[derive(Clone, Debug, Default)]
struct RecordedState {
    figures: StateFigures,
    contents: Option<Value>,
    operation: u64,
}

impl Checker for Divergence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(self.name()).unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new(NAME, DivergenceFold))
    }
}

/// Collects the last state of each node.
struct DivergenceFold;

impl Fold for DivergenceFold {
    type Accumulator = BTreeMap<String, RecordedState>;
    type Output = Verdict;

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Self::Accumulator {
        BTreeMap::new()
    }

    fn reduce(&self, states: &mut Self::Accumulator, chunk: &Chunk) -> ControlFlow<()> {
        let has_others = chunk.processes().iter().any(|process| !process.is_client());
        if !has_others {
            return ControlFlow::Continue(());
        }
        for view in chunk.views().filter(|view| !view.process().is_client()) {
            if view.f() != *Divergence::FUNCTION {
                continue;
            }
            let op = view.op();
            if let Some((node, state)) = recorded(&op.value, op.index)
                && (states.len() < NODES_MAX || states.contains_key(&node))
            {
                states.insert(node, state);
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut Self::Accumulator, _: Self::Accumulator) -> ControlFlow<()> {
        unreachable!("a linear fold has one accumulator")
    }

    fn finish(&self, states: Self::Accumulator) -> Verdict {
        decide(states)
    }
}

/// The node and the state that a value holds.
fn recorded(value: &Value, operation: u64) -> Option<(String, RecordedState)> {
    let Value::Map(fields) = value else {
        return None;
    };
    let (mut node, mut state) = (None, RecordedState::default());
    for (name, value) in fields.iter() {
        let name = match name {
            Value::Word(name) => name.as_str(),
            Value::Text(name) => name,
            _ => continue,
        };
        let text = match value {
            Value::Text(text) => text.to_string(),
            other => other.to_string(),
        };
        match name {
            "node" => node = Some(text),
            "revision" => state.figures.revision = Some(text),
            "hash" => state.figures.hash = Some(text),
            "unknown" => state.figures.unknown = Some(text),
            "group" => state.figures.group = Some(text),
            "contents" => state.contents = Some(value.clone()),
            _ => {}
        }
    }
    state.operation = operation;
    if state.figures.hash.is_none() && state.figures.unknown.is_none() {
        state.figures.unknown = Some("it reported no hash".to_owned());
    }
    Some((node?, state))
}

/// The states of a group of nodes, by revision.
type ByRevision<'s> = BTreeMap<&'s str, Vec<(&'s str, &'s RecordedState)>>;

/// Which nodes of a group are at which revision, if that is not the same one.
fn still_behind(by_revision: &ByRevision<'_>) -> Option<String> {
    let at = by_revision.iter().map(|(revision, nodes)| {
        let nodes: Vec<&str> = nodes.iter().map(|(node, _)| *node).collect();
        format!("{} at {revision}", nodes.join(", "))
    });
    let at: Vec<String> = at.collect();
    (at.len() > 1).then(|| format!("the nodes had not caught up: {}", at.join("; ")))
}

/// The verdict about these states.
fn decide(states: BTreeMap<String, RecordedState>) -> Verdict {
    let mut verdict = Verdict::valid(NAME);
    let mut groups: BTreeMap<Option<&str>, ByRevision<'_>> = BTreeMap::new();
    for (node, state) in &states {
        if state.figures.unknown.is_none() {
            let by_revision = groups.entry(state.figures.group.as_deref()).or_default();
            let revision = state.figures.revision.as_deref().unwrap_or_default();
            by_revision.entry(revision).or_default().push((node, state));
        }
    }
    let found = groups.values().flatten();
    let found: Vec<Finding> = found
        .flat_map(|(revision, nodes)| diverged(revision, nodes))
        .collect();
    let silent = states.iter().filter_map(|(node, state)| {
        let reason = state.figures.unknown.as_ref()?;
        Some(format!("the state of {node} is not known: {reason}"))
    });
    let silent: Vec<String> = silent.collect();
    if !found.is_empty() {
        verdict.valid = Validity::Invalid;
        verdict.anomalies = [(ANOMALY, found.len() as u64)].into();
        verdict.findings = found;
        verdict.findings.truncate(crate::FINDINGS_MAX);
    } else if states.is_empty() {
        verdict = verdict.unknown("no node reported its state");
    } else if !silent.is_empty() {
        verdict = verdict.unknown(silent.join("; "));
    } else if let Some(reason) = groups.values().find_map(still_behind) {
        verdict = verdict.unknown(reason);
    }
    let states = states
        .into_iter()
        .map(|(node, state)| (node, state.figures));
    verdict.details = Details::of(Figures::Divergence(DivergenceFigures {
        states: states.collect(),
    }));
    verdict
}

/// A finding for each group of nodes whose hash is not that of the largest group at this revision.
fn diverged(revision: &str, nodes: &[(&str, &RecordedState)]) -> Vec<Finding> {
    let mut by_hash: BTreeMap<&str, Vec<(&str, &RecordedState)>> = BTreeMap::new();
    for (node, state) in nodes {
        let hash = state.figures.hash.as_deref().unwrap_or_default();
        by_hash.entry(hash).or_default().push((node, state));
    }
    let largest = by_hash.values().max_by_key(|group| group.len()).cloned();
    let Some(largest) = largest.filter(|_| by_hash.len() > 1) else {
        return Vec::new();
    };
    let usual = largest[0].1.figures.hash.as_deref().unwrap_or_default();
    let names = |group: &[(&str, &RecordedState)]| {
        let names: Vec<&str> = group.iter().map(|(node, _)| *node).collect();
        names.join(", ")
    };
    let others = by_hash.iter().filter(|(hash, _)| **hash != usual);
    let findings = others.map(|(hash, group)| {
        let mut summary = format!(
            "{} diverged from {} at revision {revision}: hash {hash}, not {usual}",
            names(group),
            names(&largest)
        );
        let contents = (&group[0].1.contents, &largest[0].1.contents);
        if let (Some(one), Some(other)) = contents
            && let Some(difference) = difference(one, other)
        {
            summary.push_str("\nfirst difference: ");
            summary.push_str(&difference);
        }
        Finding {
            anomaly: ANOMALY,
            summary,
            operations: group
                .iter()
                .chain(&largest)
                .map(|(_, state)| state.operation)
                .collect(),
            steps: Vec::new(),
            linearization: None,
        }
    });
    findings.collect()
}

/// The first difference of two contents: an entry of a map or a list, or the whole.
fn difference(one: &Value, other: &Value) -> Option<String> {
    let shortened = |value: &Value| {
        let text = value.to_string();
        text.chars()
            .take(DIFFERENCE_LENGTH_MAX / 2)
            .collect::<String>()
    };
    match (one, other) {
        (Value::Map(one), Value::Map(other)) => {
            let value_of = |fields: &[(Value, Value)], key: &Value| {
                let mut found = fields.iter().filter(|(name, _)| name == key);
                found.next().map_or(Value::Nil, |(_, value)| value.clone())
            };
            let keys = one.iter().chain(other.iter()).map(|(key, _)| key);
            keys.into_iter().find_map(|key| {
                let (left, right) = (value_of(one, key), value_of(other, key));
                let (left, right) = (left != right).then_some((left, right))?;
                Some(format!(
                    "{key}: {}, not {}",
                    shortened(&left),
                    shortened(&right)
                ))
            })
        }
        (Value::List(one), Value::List(other)) => {
            let length = one.len().max(other.len());
            (0..length).find_map(|at| {
                let nil = Value::Nil;
                let (left, right) = (one.get(at).unwrap_or(&nil), other.get(at).unwrap_or(&nil));
                (left != right)
                    .then(|| format!("entry {at}: {}, not {}", shortened(left), shortened(right)))
            })
        }
        (one, other) => {
            (one != other).then(|| format!("{}, not {}", shortened(one), shortened(other)))
        }
    }
}

#[cfg(test)]
mod tests;
