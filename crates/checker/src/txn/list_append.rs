//! Transactions that append to lists and read them.
//!
//! A read of a list tells the order of all appends before it, so version orders need no guessing (Kingsbury and
//! Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", 2020).

mod edges;
mod lists;
mod reads;

use super::findings::{Findings, Summary, verdict};
use super::level::Level;
use super::search::search;
use super::transactions::Transactions;
use super::{Bound, cyclic, explain};
use crate::{Checker, Verdict};
use lists::Lists;
use seatrial_history::History;

/// Judges transactions of appends (`[:append k e]`) and reads (`[:r k [..]]`); no element may be appended twice to a
/// key.
///
/// The order of a key's versions is that of its longest read; what nobody read comes after it. From that follow, for
/// every transaction that took place (successful, or unknown with an effect that was seen), the edges *ww* (wrote the
/// next version), *wr* (read what was written) and *rw* (overwrote what was read), and, as the level demands, the
/// order of each process and real time. A cycle contradicts the level.
///
/// Its downside: appends that no read orders among themselves are not ordered, so an anomaly that only they would
/// show stays unseen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListAppend {
    level: Level,
    bound: Bound,
}

impl ListAppend {
    /// The checker of this level.
    pub fn new(level: Level) -> ListAppend {
        ListAppend {
            level,
            bound: Bound::default(),
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> ListAppend {
        ListAppend { bound, ..self }
    }

    fn judge(&self, history: &History) -> Result<Verdict, String> {
        let transactions = Transactions::new(history)?;
        let mut findings = Findings::default();
        let lists = Lists::new(&transactions, self.level, &mut findings)?;
        lists.tell_versions(&mut findings);
        lists.tell_reads(&mut findings);
        let wanted = cyclic(self.level);
        let graph = lists.graph(&wanted);
        let found = search(&graph, &wanted, self.bound.search_steps_max);
        for (kind, cycle) in &found.cycles {
            let name = kind.name();
            findings.add(name, || explain::cycle(&transactions, &lists, name, cycle));
        }
        let summary = Summary {
            checker: self.name(),
            level: self.level,
            transactions: &transactions,
            edges: graph.edge_count(),
            found: &found,
            undecided: lists.undecided(),
        };
        Ok(verdict(findings, &summary))
    }
}

impl Checker for ListAppend {
    fn name(&self) -> &'static str {
        "list-append"
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history).unwrap_or_else(|reason| {
            let mut verdict = Verdict::valid(self.name());
            verdict.model = Some(self.level.name().to_owned());
            verdict.unknown(reason)
        })
    }
}

#[cfg(test)]
mod tests;
