//! An order of commits of all transactions, or the cycles that rule one out.

use super::session_program::SessionProgram;
use seatrial_cycles::Csr;
use seatrial_cycles::components::components_from;

/// The predecessors of each transaction: the one before it in its session, those that it read from, and those that a
/// level forces before it.
pub(super) struct Predecessors(Csr<u32>);

impl Predecessors {
    /// The predecessors in `program`; `forced` are pairs of a later and an earlier transaction.
    pub(super) fn new(program: &SessionProgram<'_>, forced: &mut [(u32, u32)]) -> Predecessors {
        forced.sort_unstable();
        let mut forced = forced.iter().peekable();
        let transactions = program.columns.len() as u32;
        let mut sources = Csr::with_capacity(transactions as usize);
        // By session: its last transaction so far.
        let mut last = vec![None; program.session_count()];
        for transaction in 0..transactions {
            if program.columns.happened(transaction) {
                let last = &mut last[program.session(transaction) as usize];
                let row = sources.open_row();
                row.extend(last.replace(transaction));
                program.add_sources(transaction, row);
                while let Some((_, before)) = forced.next_if(|pair| pair.0 == transaction) {
                    row.push(*before);
                }
            }
            sources.end_row();
        }
        assert_eq!(sources.row_count(), transactions as usize);
        assert!(
            forced.next().is_none(),
            "a pair is forced on a transaction that did not take place"
        );
        Predecessors(sources)
    }

    /// Number of edges.
    pub(super) fn edge_count(&self) -> usize {
        self.0.item_count()
    }

    /// All transactions that took place, each after its predecessors; `None` if there is a cycle. Removes transactions
    /// without successors, from the end on (Kahn 1962, in reverse), since the table has predecessors only.
    pub(super) fn order(&self, program: &SessionProgram<'_>) -> Option<Vec<u32>> {
        let mut after = vec![0_u32; self.0.row_count()];
        for &source in self.0.items() {
            after[source as usize] += 1;
        }
        let members = program.all();
        let mut order = Vec::with_capacity(members.len());
        let last = members
            .iter()
            .filter(|&&member| after[member as usize] == 0);
        order.extend(last);
        let mut next = 0;
        while let Some(&transaction) = order.get(next) {
            next += 1;
            for &source in self.0.row(transaction) {
                let count = &mut after[source as usize];
                *count -= 1;
                if *count == 0 {
                    order.push(source);
                }
            }
        }
        order.reverse();
        assert!(
            order.len() <= members.len(),
            "a transaction is in the order twice"
        );
        (order.len() == members.len()).then_some(order)
    }

    /// The strongly connected components of two transactions or more, each sorted.
    pub(super) fn components(&self) -> Vec<Vec<u32>> {
        let transactions = self.0.row_count() as u32;
        components_from(&self.0, transactions, 0..transactions)
    }
}
