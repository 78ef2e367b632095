//! Which nodes lead during a test, and whether that changed.

use crate::{FaultRecord, InjectionResult, NodeError, Nodes};
use seatrial_machine::{FaultKind, NodeId, Time};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Pause between two looks at the nodes.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of one look.
const LIMIT: Duration = Duration::from_secs(5);
/// Changes that are kept; all failovers are counted.
const CHANGES_MAX: usize = 1_000;

/// The primaries from one moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    /// When this was first seen.
    pub at: Time,
    /// The nodes that reported themselves as primary.
    pub primaries: BTreeSet<NodeId>,
}

/// The primaries that were seen during a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaders {
    /// The first primaries, and every change; at most a thousand.
    pub changes: Vec<LeaderChange>,
    /// How often another node became primary.
    pub failovers: u64,
    /// Faults with an effect that affected a primary.
    pub affected: u64,
}

impl Leaders {
    /// Takes one look into account. Nothing changes while no node leads.
    fn look(&mut self, at: Time, primaries: BTreeSet<NodeId>) {
        let last = self.changes.last();
        if primaries.is_empty() || last.is_some_and(|last| last.primaries == primaries) {
            return;
        }
        self.failovers += u64::from(last.is_some_and(|last| !primaries.is_subset(&last.primaries)));
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(LeaderChange { at, primaries });
        } else if let Some(last) = self.changes.last_mut() {
            // The list is full: its end stays what it is now.
            *last = LeaderChange { at, primaries };
        }
    }

    /// Counts the faults that affected a primary of their time.
    fn count_affected(&mut self, faults: &[FaultRecord]) {
        let effective = faults.iter().filter(|record| {
            let unavailable = matches!(
                record.fault.kind(),
                FaultKind::Kill | FaultKind::Pause | FaultKind::Partition
            );
            unavailable && matches!(record.effect, InjectionResult::Done(_))
        });
        let affected = effective.filter(|record| {
            let before = self
                .changes
                .partition_point(|change| change.at <= record.begin);
            let Some(change) = before.checked_sub(1).map(|at| &self.changes[at]) else {
                return false;
            };
            change
                .primaries
                .iter()
                .any(|primary| strikes(record, *primary))
        });
        self.affected = affected.count() as u64;
    }

    /// A warning if primaries were affected and no other node took over.
    pub(crate) fn warning(&self) -> Option<String> {
        let is_idle = self.affected > 0 && self.failovers == 0;
        let faults = seatrial_machine::counted(self.affected, "fault");
        is_idle.then(|| {
            format!("{faults} affected the primary and no failover was seen: the test shows nothing about failover")
        })
    }
}

/// Does the fault take this node away from others? A cut between it and clients alone does not.
fn strikes(record: &FaultRecord, node: NodeId) -> bool {
    if record.fault.node() == Some(node) {
        return true;
    }
    record.fault.links().iter().any(|link| {
        let is_between_nodes = !link.from.is_client() && !link.to.is_client();
        is_between_nodes && (link.from == node || link.to == node)
    })
}

/// Watches the primaries while a test runs; ends by itself if the nodes do not report any.
#[derive(Debug, Default)]
pub(crate) struct LeaderWatch(Mutex<Leaders>);

impl LeaderWatch {
    /// The task that looks, every half second, until it is aborted.
    pub(crate) async fn watch(self: Arc<Self>, nodes: Arc<dyn Nodes>, began: Instant) {
        loop {
            match timeout(LIMIT, nodes.view()).await {
                Ok(Ok(view)) => {
                    let at = Time::ZERO + began.elapsed();
                    self.lock().look(at, view.primaries);
                }
                Ok(Err(NodeError::NoMembership)) => return,
                // No majority answers, or none in time: who leads is not known now.
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(INTERVAL).await;
        }
    }

    /// What was seen; `None` if no primary was.
    pub(crate) fn finish(&self, faults: &[FaultRecord]) -> Option<Leaders> {
        let mut leaders = std::mem::take(&mut *self.lock());
        leaders.count_affected(faults);
        (!leaders.changes.is_empty()).then_some(leaders)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Leaders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::{Fault, Link};

    fn nodes(numbers: &[u32]) -> BTreeSet<NodeId> {
        numbers
            .iter()
            .map(|number| NodeId::server(*number))
            .collect()
    }

    fn leaders(looks: &[(u64, &[u32])]) -> Leaders {
        let mut leaders = Leaders::default();
        for (second, primaries) in looks {
            leaders.look(Time::from_milliseconds(second * 1_000), nodes(primaries));
        }
        leaders
    }

    fn record(fault: Fault, second: u64) -> FaultRecord {
        FaultRecord {
            fault,
            begin: Time::from_milliseconds(second * 1_000),
            end: None,
            effect: InjectionResult::done("done"),
        }
    }

    #[test]
    fn another_primary_is_a_failover() {
        let found = leaders(&[
            (0, &[1]),
            (1, &[1]),
            (2, &[]),
            (3, &[2]),
            (4, &[1, 2]),
            (5, &[1]),
        ]);
        assert_eq!(found.failovers, 2, "to n2, and n1 beside it");
        assert_eq!(found.changes.len(), 4);
        assert_eq!(
            leaders(&[(0, &[]), (1, &[3])]).failovers,
            0,
            "the first one"
        );
    }

    #[test]
    fn an_affected_primary_without_failover_is_a_warning() {
        let (n1, n2, c0) = (NodeId::server(1), NodeId::server(2), NodeId::client(0));
        let faults = [
            record(Fault::Kill(n1), 2),
            record(Fault::Kill(n2), 2),
            record(Fault::Cut(Link::both(n1, n2).to_vec()), 3),
            record(Fault::Cut(Link::both(n1, c0).to_vec()), 3),
            FaultRecord {
                effect: InjectionResult::nothing("it was down"),
                ..record(Fault::Pause(n1), 4)
            },
        ];
        let mut idle = leaders(&[(0, &[1])]);
        idle.count_affected(&faults);
        assert_eq!(idle.affected, 2);
        assert!(
            idle.warning()
                .unwrap()
                .starts_with("2 faults affected the primary")
        );
        let mut moved = leaders(&[(0, &[1]), (4, &[2])]);
        moved.count_affected(&faults);
        assert_eq!((moved.affected, moved.warning()), (2, None));
        let mut unknown = Leaders::default();
        unknown.count_affected(&faults);
        assert_eq!(unknown.warning(), None);
    }

    #[test]
    fn the_list_of_changes_has_a_bound() {
        let mut leaders = Leaders::default();
        for second in 0..5_000 {
            leaders.look(
                Time::from_milliseconds(second),
                nodes(&[(second % 3) as u32]),
            );
        }
        assert_eq!(leaders.changes.len(), CHANGES_MAX);
        assert_eq!(leaders.failovers, 4_999);
    }
}
