//! Acquisitions and releases that take turns.

use crate::data::judge::Event;
use crate::data::outcome::Outcome;
use seatrial_history::OpType;
use std::collections::BTreeSet;

/// A lock of which nobody knows who holds it.
///
/// An operation takes place at its completion, unless it had to before; if it is not its turn then, an opposite one takes
/// place just before, one of those that are open. Of these the first that completes is best taken, which is known only
/// later: until then there is a debt of one operation that began before that moment. Operations of unknown outcome are
/// open for ever, and pay a debt when no other can. In memory are operations under way and debts (some for each), and
/// one word for each operation of unknown outcome.
#[derive(Default)]
pub(super) struct Alternation {
    is_held: bool,
    releases: Side,
    acquisitions: Side,
    /// The operation that no order can place.
    stuck: Option<u64>,
}

/// Operations of one kind, by index of their invocation.
#[derive(Default)]
struct Side {
    open: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    /// Moments (indices) before which one more must have taken place, rising.
    debts: Vec<u64>,
}

impl Side {
    /// Has the operation taken place already? The earliest debt that it can pay is paid.
    fn pay(&mut self, invocation: u64) -> bool {
        let place = self.debts.partition_point(|&moment| moment < invocation);
        if place == self.debts.len() {
            return false;
        }
        self.debts.remove(place);
        true
    }

    /// Pays for good what only operations of unknown outcome can pay; false when a debt cannot be paid.
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
        // Every debt needs one that began before it: the first of both kinds are enough to look at.
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
    pub(super) fn take(&mut self, event: &Event<'_>, is_acquisition: bool) {
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
        if !(is_possible && own.settle()) {
            self.stuck = Some(event.index);
        }
    }

    pub(super) fn finish(&self, outcome: &mut Outcome) {
        if let Some(index) = self.stuck {
            outcome.anomaly("nonlinearizable", || {
                let summary = format!(
                    "There is no order in which acquisitions and releases take turns up to op {index}."
                );
                (vec![index], summary)
            });
        }
    }
}
