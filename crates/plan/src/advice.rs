//! Warnings about plans that are valid but probably not intended.

use super::Problem;
use super::node::{Child, Keys, Kind, Node, Times};

/// Advice about a node and those inside of it, in the order of the text.
pub(super) fn advice(root: &Child, is_limited: bool) -> Vec<Problem> {
    let mut advice = Vec::new();
    if !is_limited && root.is_endless() {
        let reason = "the plan has no end: test.time, test.ops, or a time_limit or limit in it would give it one";
        advice.push(root.problem(reason));
    }
    look(root, false, &mut advice);
    advice
}

fn look(node: &Child, is_mixed: bool, advice: &mut Vec<Problem>) {
    if is_mixed && node.modifiers.until_ok {
        advice.push(node.problem("a mix forwards no completions, so until_ok never ends in it"));
    }
    match &node.kind {
        Kind::Sequence(nodes) | Kind::Phases(nodes) => {
            let before = nodes.split_last().map_or(&[][..], |(_, before)| before);
            if let Some(endless) = before.iter().find(|node| node.is_endless()) {
                advice
                    .push(endless.problem("this has no end, so that what follows it never comes"));
            }
        }
        Kind::Mix(nodes) => {
            for (_, node) in nodes {
                let modifiers = &node.modifiers;
                let once = modifiers.repeat.is_none()
                    && modifiers.cycle.is_none()
                    && modifiers.limit.is_none();
                if once && matches!(node.kind, Kind::Operation(_)) {
                    let reason = "this happens once in the whole mix; repeat = true makes it happen again and again";
                    advice.push(node.problem(reason));
                }
            }
        }
        _ => {}
    }
    let is_mixed = is_mixed || matches!(node.kind, Kind::Mix(_));
    for child in node.kind.children() {
        look(child, is_mixed, advice);
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

    /// Is the node endless, as far as the plan shows?
    fn is_endless(&self) -> bool {
        let modifiers = &self.modifiers;
        let is_cut = modifiers.limit.is_some()
            || modifiers.time_limit.is_some()
            || modifiers.until_ok
            || modifiers
                .faults
                .as_ref()
                .is_some_and(|faults| faults.duration.is_some());
        let again = [modifiers.repeat, modifiers.cycle].contains(&Some(Times::Endless));
        let counted = matches!(modifiers.repeat, Some(Times::Count(_)));
        !is_cut && (again || (!counted && self.kind.is_endless()))
    }
}

impl Kind {
    fn is_endless(&self) -> bool {
        let endless = |node: &&Child| node.is_endless();
        match self {
            Kind::Workload(..) | Kind::Faults => true,
            Kind::ShortestAny(nodes) => {
                !nodes.is_empty() && nodes.iter().all(|node| node.is_endless())
            }
            Kind::FlipFlop(both) => both.iter().all(|node| node.is_endless()),
            Kind::SequentialKeys(keys, node) | Kind::ConcurrentKeys(keys, _, node) => {
                matches!(keys, Keys::Range(_, i64::MAX)) || node.is_endless()
            }
            other => other.children().iter().any(endless),
        }
    }
}
