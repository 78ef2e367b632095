//! An order of all transactions, or what stands against one.

use super::program::Program;
use crate::txn::components::{Arcs, components_from};

/// What each transaction comes after, in compressed rows: the one before it in its session, those that it read from,
/// and those that a level forces before it.
pub(super) struct Predecessors {
    starts: Vec<u32>,
    sources: Vec<u32>,
}

impl Predecessors {
    /// Those of `program`; `forced` are pairs of a later and an earlier transaction.
    pub(super) fn new(program: &Program<'_>, forced: &mut [(u32, u32)]) -> Predecessors {
        forced.sort_unstable();
        let mut forced = forced.iter().peekable();
        let transactions = program.columns.len() as u32;
        let mut starts = Vec::with_capacity(transactions as usize + 1);
        let mut sources = Vec::new();
        // By session: its last transaction so far.
        let mut last = vec![None; program.session_count()];
        for transaction in 0..transactions {
            starts.push(sources.len() as u32);
            if !program.columns.happened(transaction) {
                continue;
            }
            let last = &mut last[program.session(transaction) as usize];
            sources.extend(last.replace(transaction));
            program.add_sources(transaction, &mut sources);
            while let Some((_, before)) = forced.next_if(|pair| pair.0 == transaction) {
                sources.push(*before);
            }
        }
        starts.push(sources.len() as u32);
        Predecessors { starts, sources }
    }

    /// Number of edges.
    pub(super) fn edge_count(&self) -> usize {
        self.sources.len()
    }

    fn of(&self, transaction: u32) -> &[u32] {
        let transaction = transaction as usize;
        &self.sources[self.starts[transaction] as usize..self.starts[transaction + 1] as usize]
    }

    /// All transactions that took place, in an order in which each comes after its predecessors; `None` when there is a
    /// cycle. Takes those away that nobody comes after, from the end on (Kahn 1962, backwards).
    pub(super) fn order(&self, program: &Program<'_>) -> Option<Vec<u32>> {
        let mut after = vec![0_u32; self.len()];
        for &source in &self.sources {
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
            for &source in self.of(transaction) {
                let count = &mut after[source as usize];
                *count -= 1;
                if *count == 0 {
                    order.push(source);
                }
            }
        }
        order.reverse();
        (order.len() == members.len()).then_some(order)
    }

    /// The components of two transactions or more, their members sorted.
    pub(super) fn components(&self) -> Vec<Vec<u32>> {
        let transactions = self.len() as u32;
        components_from(self, transactions, 0..transactions)
    }
}

impl Arcs for Predecessors {
    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn edges(&self, node: u32) -> std::ops::Range<u32> {
        let node = node as usize;
        self.starts[node]..self.starts[node + 1]
    }

    fn target(&self, edge: u32) -> Option<u32> {
        Some(self.sources[edge as usize])
    }
}
