//! A lock without owners: acquisitions and releases alternate.

use crate::data::data_type::OperationEvent;
use crate::data::verdict_builder::VerdictBuilder;
use seatrial_history::OpType;
use std::collections::BTreeSet;

/// A lock without owners.
///
/// An operation takes effect at its completion, unless it had to earlier; if it is out of turn then, an open operation of the
/// opposite kind must have taken effect just before. The best choice is the one that completes first, which is known only
/// later: until then there is a *debt* of one operation that began before that moment. Operations of unknown outcome stay open
/// to the end, and pay a debt only when no other operation can. Memory: the operations under way, the debts (a few for each),
/// and one word for each operation of unknown outcome.
#[derive(Default)]
pub(super) struct Alternation {
    is_held: bool,
    releases: OpenOperations,
    acquisitions: OpenOperations,
    /// The completion up to which no order exists.
    stuck: Option<u64>,
}

/// Operations of one kind, by index of their invocation.
#[derive(Default)]
struct OpenOperations {
    open: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    /// Indices before each of which one more operation must have taken effect, ascending.
    debts: Vec<u64>,
}

impl OpenOperations {
    /// Pays the earliest debt that the operation can pay; true if it has thereby taken effect already.
    fn pay(&mut self, invocation: u64) -> bool {
        let place = self.debts.partition_point(|&moment| moment < invocation);
        if place == self.debts.len() {
            return false;
        }
        self.debts.remove(place);
        true
    }

    /// Pays debts that only operations of unknown outcome can pay; false if a debt cannot be paid.
    fn settle(&mut self) -> bool {
        while let Some(&moment) = self.debts.first() {
            if self.open.first().is_some_and(|&first| first < moment) {
                break;
            }
            match self.unknown.first() {
                Some(&first) if first < moment => _ = self.unknown.pop_first(),
                _ => return false,
            }
            self.debts.remove(0);
        }
        // Every debt needs an operation that began before it. The earliest of both kinds are the best, so comparing as many
        // of them as there are debts, pairwise in order, decides (a matching of intervals with a common left end).
        let count = self.debts.len();
        let able = self
            .open
            .iter()
            .take(count)
            .chain(self.unknown.iter().take(count));
        let mut able: Vec<u64> = able.copied().collect();
        able.sort_unstable();
        let mut pairs = self.debts.iter().zip(&able);
        able.len() >= count && pairs.all(|(moment, invocation)| invocation < moment)
    }
}

impl Alternation {
    pub(super) fn apply(&mut self, event: &OperationEvent<'_>, is_acquisition: bool) {
        if self.stuck.is_some() {
            return;
        }
        let (own, other) = if is_acquisition {
            (&mut self.acquisitions, &mut self.releases)
        } else {
            (&mut self.releases, &mut self.acquisitions)
        };
        let invocation = event.started();
        if event.kind == OpType::Invoke {
            own.open.insert(event.index);
            return;
        }
        own.open.remove(&invocation);
        let mut is_possible = true;
        match event.kind {
            OpType::Info => _ = own.unknown.insert(invocation),
            OpType::Ok if !own.pay(invocation) => {
                if self.is_held == is_acquisition {
                    other.debts.push(event.index);
                    is_possible = other.settle();
                }
                self.is_held = is_acquisition;
            }
            _ => {}
        }
        debug_assert!(
            own.debts.is_sorted(),
            "debts are in the order of the history"
        );
        if !(is_possible && own.settle()) {
            self.stuck = Some(event.index);
        }
    }

    pub(super) fn finish(&self, builder: &mut VerdictBuilder) {
        if let Some(index) = self.stuck {
            builder.anomaly("nonlinearizable", || {
                let summary = format!(
                    "There is no order in which acquisitions and releases take turns up to op {index}."
                );
                (vec![index], summary)
            });
        }
    }
}
