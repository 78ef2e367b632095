//! The states of the nodes at the end of a test, as operations of the history.

use crate::{NodeState, Nodes};
use seatrial_checker::Divergence;
use seatrial_history::{Op, Process, Symbol};
use seatrial_machine::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How long nodes have to answer, and to reach equal states at equal revisions.
const QUIESCENCE: Duration = Duration::from_secs(10);
/// How long nodes have to reach equal revisions: what is behind may need a leader first, and NATS took 16 s to elect one after a
/// partition.
const CATCHING_UP: Duration = Duration::from_secs(40);
/// How long nodes have to reach equal revisions by themselves, and again after each [`Nodes::catch_up`].
const UNAIDED: Duration = Duration::from_secs(5);
/// Pause between two looks.
const INTERVAL: Duration = Duration::from_millis(200);
/// Time limit for the answer of one node.
const LIMIT: Duration = Duration::from_secs(2);
/// The process whose operations these are.
const OBSERVER: Process = Process::Named(Symbol::new("observer"));

/// Asks all nodes for their states until they are equal, for ten seconds, or for forty if all answer and one is behind, which is
/// helped meanwhile. Called when all faults are healed and no client is left. Returns one operation for each node; none if the
/// nodes do not report states.
pub(crate) async fn observe(nodes: &Arc<dyn Nodes>) -> Vec<Op> {
    for &node in nodes.ids() {
        // A test that was stopped early may have left a node down. If it does not start, it does not answer either.
        let _ = nodes.start(node).await;
    }
    let mut quiescence = Quiescence::new(Instant::now());
    loop {
        let mut answers = Vec::new();
        for &node in nodes.ids() {
            answers.push((node, ask(nodes, node).await));
        }
        if answers.iter().all(|(_, answer)| matches!(answer, Ok(None))) {
            return Vec::new();
        }
        // A node without a state that can be compared has no part in it.
        answers.retain(|(_, answer)| !matches!(answer, Ok(None)));
        let mut groups: BTreeMap<Option<String>, Vec<Option<&NodeState>>> = BTreeMap::new();
        for (node, answer) in &answers {
            let state = answer.as_ref().ok().and_then(Option::as_ref);
            let group = groups.entry(nodes.state_group(*node)).or_default();
            group.push(state);
        }
        let groups: Vec<_> = groups.into_values().collect();
        match quiescence.after(Instant::now(), &groups) {
            NextStep::Record => {
                let group = |node| nodes.state_group(node);
                let operations = answers.into_iter();
                return operations
                    .map(|(node, answer)| state_operation(node, answer, group(node)))
                    .collect();
            }
            NextStep::CatchUp => {
                // If nothing can be committed, the states tell.
                let _ = timeout(LIMIT, nodes.catch_up()).await;
            }
            NextStep::AskAgain => {}
        }
        sleep(INTERVAL).await;
    }
}

/// What follows after all nodes have been asked.
#[derive(Debug, PartialEq, Eq)]
enum NextStep {
    AskAgain,
    /// [`Nodes::catch_up`], then ask again.
    CatchUp,
    Record,
}

/// How long the states of nodes are awaited.
struct Quiescence {
    began: Instant,
    catch_up_at: Instant,
}

impl Quiescence {
    fn new(now: Instant) -> Quiescence {
        Quiescence {
            began: now,
            catch_up_at: now + UNAIDED,
        }
    }

    /// `groups`: the states of nodes that are to be equal, `None` for one that is not known.
    fn after(&mut self, now: Instant, groups: &[Vec<Option<&NodeState>>]) -> NextStep {
        let is_behind = groups.iter().any(|states| is_one_behind(states));
        let limit = if is_behind { CATCHING_UP } else { QUIESCENCE };
        if groups.iter().all(|states| are_equal(states)) || now - self.began >= limit {
            return NextStep::Record;
        }
        if is_behind && now >= self.catch_up_at {
            self.catch_up_at = now + UNAIDED;
            return NextStep::CatchUp;
        }
        NextStep::AskAgain
    }
}

async fn ask(nodes: &Arc<dyn Nodes>, node: NodeId) -> StateAnswer {
    match timeout(LIMIT, nodes.state(node)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
    }
}

/// Are all of these states known and the same?
fn are_equal(states: &[Option<&NodeState>]) -> bool {
    let first = states.first().copied().flatten();
    first.is_some() && states.iter().all(|state| *state == first)
}

/// Are all of these states known, and not all at the same revision?
fn is_one_behind(states: &[Option<&NodeState>]) -> bool {
    let Some(states) = states.iter().copied().collect::<Option<Vec<_>>>() else {
        return false;
    };
    states
        .windows(2)
        .any(|two| two[0].revision != two[1].revision)
}

/// What a node answered to the question for its state: a state, none that can be compared, or why it is not known.
pub type StateAnswer = Result<Option<NodeState>, String>;

/// The operation that records a node's answer, for the checker `divergence`, which compares the nodes of a group: all that
/// have none, if this is `None`.
pub fn state_operation(node: NodeId, answer: StateAnswer, group: Option<String>) -> Op {
    let value = match answer {
        Ok(Some(state)) => Divergence::state(
            &node.to_string(),
            &state.revision,
            &state.hash,
            state.contents,
        ),
        Ok(None) => Divergence::no_state(&node.to_string(), "it has none"),
        Err(reason) => Divergence::no_state(&node.to_string(), &reason),
    };
    let value = match group {
        Some(group) => Divergence::in_group(value, &group),
        None => value,
    };
    Op {
        kind: seatrial_history::OpType::Info,
        ..Op::invoke(OBSERVER, Divergence::FUNCTION, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_behind_has_answered() {
        let state = |revision: &str, hash: &str| NodeState {
            revision: revision.into(),
            hash: hash.into(),
            contents: None,
        };
        let (one, other, later) = (state("7", "a"), state("7", "b"), state("8", "a"));
        assert!(is_one_behind(&[Some(&one), Some(&one), Some(&later)]));
        assert!(!is_one_behind(&[Some(&one), Some(&other)]));
        assert!(!is_one_behind(&[Some(&one), None, Some(&later)]));
        assert!(!is_one_behind(&[]) && !are_equal(&[]));
        assert!(are_equal(&[Some(&one), Some(&one)]) && !are_equal(&[Some(&one), Some(&other)]));
    }

    #[test]
    fn a_node_that_stays_behind_is_helped_and_has_more_time() {
        let state = |revision: &str| NodeState {
            revision: revision.into(),
            hash: String::new(),
            contents: None,
        };
        let (old, new) = (state("7"), state("8"));
        let behind = &[vec![Some(&old), Some(&new)]];
        let silent = &[vec![Some(&old), None]];
        let equal = &[vec![Some(&new), Some(&new)]];
        let began = Instant::now();
        let mut quiescence = Quiescence::new(began);
        let mut after = |seconds, groups: &[Vec<Option<&NodeState>>]| {
            quiescence.after(began + Duration::from_secs(seconds), groups)
        };
        assert_eq!(after(4, behind), NextStep::AskAgain);
        assert_eq!(after(5, behind), NextStep::CatchUp);
        assert_eq!(after(6, behind), NextStep::AskAgain);
        assert_eq!(after(9, silent), NextStep::AskAgain);
        assert_eq!(after(10, behind), NextStep::CatchUp);
        assert_eq!(after(10, silent), NextStep::Record);
        assert_eq!(after(39, behind), NextStep::CatchUp);
        assert_eq!(after(40, behind), NextStep::Record);
        assert_eq!(after(1, equal), NextStep::Record);
    }
}
