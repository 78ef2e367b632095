//! Transactions that write registers and read them.

mod edges;
mod registers;

use super::findings::{Findings, Summary, Tally, verdict};
use super::level::Level;
use super::search::search;
use super::transactions::Transactions;
use super::{Bound, cyclic, explain};
use crate::{Checker, Verdict};
use registers::Registers;
use seatrial_history::{History, OpType};

/// Judges transactions of writes (`[:w k v]`) and reads (`[:r k v]`); no value may be written twice to a key.
///
/// A read tells whose write it saw, but not what was before: the order of a key's versions is known only as far as the
/// initial state comes first, and what a transaction writes after it read the key comes after what it read (for levels
/// from read committed up, where nothing else is possible). Edges and cycles are those of
/// [`ListAppend`](super::ListAppend).
///
/// Its downside: blind writes are not ordered, so a history of blind writes may pass although no order explains it;
/// the verdict's details say how many are left open (`undecided`).
#[derive(Clone, Copy, Debug, Default)]
pub struct RwRegister {
    level: Level,
    bound: Bound,
}

impl RwRegister {
    /// The checker of this level.
    pub fn new(level: Level) -> RwRegister {
        RwRegister {
            level,
            bound: Bound::default(),
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> RwRegister {
        RwRegister { bound, ..self }
    }

    fn judge(&self, history: &History) -> Result<Verdict, String> {
        let transactions = Transactions::new(history)?;
        let mut findings = Findings::default();
        let registers = Registers::new(&transactions, self.level, &mut findings)?;
        registers.tell(&mut findings);
        let wanted = cyclic(self.level);
        let graph = registers.graph(&wanted);
        let found = search(&graph, &wanted, self.bound.search_steps_max);
        for (kind, cycle) in &found.cycles {
            let name = kind.name();
            findings.add(name, || {
                explain::cycle(&transactions, &registers, name, cycle)
            });
        }
        let summary = Summary {
            checker: self.name(),
            level: self.level,
            tally: Tally {
                transactions: transactions.len(),
                ok: transactions.count(OpType::Ok),
                fail: transactions.count(OpType::Fail),
            },
            keys: transactions.keys.len(),
            edges: graph.edge_count(),
            found: &found,
            undecided: registers.undecided(),
        };
        Ok(verdict(findings, &summary))
    }
}

impl Checker for RwRegister {
    fn name(&self) -> &'static str {
        "rw-register"
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
