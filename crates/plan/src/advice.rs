//! Warnings about plans that are valid but probably not intended.

use super::Problem;
use super::plan_node::{Child, IndependentKeys, Node, NodeKind, Repetition};

/// Warnings about a node and its descendants, in the order of the text.
pub(super) fn advice(root: &Child, is_limited: bool) -> Vec<Problem> {
    let mut advice = Vec::new();
    if !is_limited && root.is_endless() {
        let reason =
            "the plan never ends; set test.time or test.ops, or a time_limit or limit in it";
        advice.push(root.problem(reason));
    }
    advise(root, false, &mut advice);
    advice
}

fn advise(node: &Child, is_mixed: bool, advice: &mut Vec<Problem>) {
    if is_mixed && node.modifiers.until_ok {
        advice
            .push(node.problem("until_ok never ends inside a mix, which forwards no completions"));
    }
    match &node.kind {
        NodeKind::Sequence(nodes) | NodeKind::Phases(nodes) => {
            let before = nodes.split_last().map_or(&[][..], |(_, before)| before);
            if let Some(endless) = before.iter().find(|node| node.is_endless()) {
                advice.push(endless.problem(
                    "never ends, so the nodes after it never run; give it a limit or time_limit",
                ));
            }
        }
        NodeKind::Mix(nodes) => {
            for (_, node) in nodes {
                let modifiers = &node.modifiers;
                let runs_once = modifiers.repeat.is_none()
                    && modifiers.cycle.is_none()
                    && modifiers.limit.is_none();
                if runs_once && matches!(node.kind, NodeKind::Operation(_)) {
                    let reason = "runs once in the whole mix; set repeat = true to repeat it";
                    advice.push(node.problem(reason));
                }
            }
        }
        _ => {}
    }
    let is_mixed = is_mixed || matches!(node.kind, NodeKind::Mix(_));
    for child in node.kind.children() {
        advise(child, is_mixed, advice);
    }
}

impl Node {
    fn problem(&self, reason: &str) -> Problem {
        Problem {
            at: self.at,
            path: self.path.clone(),
            reason: reason.to_owned(),
        }
    }

    /// Is the node endless, by the structure of the plan? False if unsure.
    fn is_endless(&self) -> bool {
        let modifiers = &self.modifiers;
        let is_limited = modifiers.limit.is_some()
            || modifiers.time_limit.is_some()
            || modifiers.until_ok
            || modifiers
                .faults
                .as_ref()
                .is_some_and(|faults| faults.duration.is_some());
        let repeats = [modifiers.repeat, modifiers.cycle].contains(&Some(Repetition::Endless));
        let counted = matches!(modifiers.repeat, Some(Repetition::Count(_)));
        !is_limited && (repeats || (!counted && self.kind.is_endless()))
    }
}

impl NodeKind {
    fn is_endless(&self) -> bool {
        let endless = |node: &&Child| node.is_endless();
        match self {
            NodeKind::Workload(..) | NodeKind::Faults => true,
            NodeKind::ShortestAny(nodes) => {
                !nodes.is_empty() && nodes.iter().all(|node| node.is_endless())
            }
            NodeKind::FlipFlop(both) => both.iter().all(|node| node.is_endless()),
            NodeKind::SequentialKeys(keys, node) | NodeKind::ConcurrentKeys(keys, _, node) => {
                matches!(keys, IndependentKeys::Range(_, i64::MAX)) || node.is_endless()
            }
            other => other.children().iter().any(endless),
        }
    }
}
