//! Witness context: what a window must keep so that its findings can be explained.

use super::list_table::ListId;
use super::lists::OrderedLists;
use seatrial_cycles::{Position, Txn};
use seatrial_history::Key;
use std::collections::{BTreeMap, BTreeSet};

/// A list as it was in its window.
pub(super) struct WitnessList {
    pub(super) key: Key,
    pub(super) elements: Vec<i64>,
    /// Elements on which all reads agree.
    pub(super) agreed: usize,
}

/// The transactions that take part in the findings of one window, and all lists that they accessed. The operations themselves
/// are read again.
#[derive(Default)]
pub(super) struct WitnessContext {
    /// By number: positions of invocation and completion.
    pub(super) transactions: BTreeMap<Txn, [Option<Position>; 2]>,
    pub(super) lists: BTreeMap<ListId, WitnessList>,
    numbers: BTreeMap<Key, ListId>,
}

impl WitnessContext {
    /// The context of these transactions; it has the lists in `named` in any case.
    pub(super) fn new(
        lists: &OrderedLists,
        transactions: BTreeSet<Txn>,
        named: Vec<ListId>,
    ) -> WitnessContext {
        let table = &lists.table;
        let mut touched: BTreeSet<ListId> = named.into_iter().collect();
        let reads = table.each_read();
        let reads = reads.filter(|(reader, _)| transactions.contains(reader));
        touched.extend(reads.map(|(_, (at, _))| at));
        for (list, at) in table.lists.iter().zip(ListId::all(table.lists.len())) {
            let mut writers = list.writers().filter_map(|writer| writer.number());
            if writers.any(|number| transactions.contains(&number)) {
                touched.insert(at);
            }
        }
        let mut context = WitnessContext::default();
        for number in transactions {
            let (invocation, completion) = (
                table.transactions.invocation(number),
                table.transactions.completion(number),
            );
            let positions = [invocation, completion];
            context.transactions.insert(number, positions);
        }
        for at in touched {
            let list = &table.lists[at.index()];
            context.numbers.insert(list.key.clone(), at);
            let shown = WitnessList {
                key: list.key.clone(),
                elements: list.elements.clone(),
                agreed: list.agreed as usize,
            };
            context.lists.insert(at, shown);
        }
        assert!(
            context.numbers.len() == context.lists.len(),
            "each list has a key of its own"
        );
        context
    }

    /// Positions of the operations of its transactions.
    pub(super) fn positions(&self) -> impl Iterator<Item = u64> {
        let known = self.transactions.values().flatten().flatten();
        known.map(|position| u64::from(position.get()))
    }

    /// The list of this key, if the context has it.
    pub(super) fn number(&self, key: &Key) -> Option<ListId> {
        self.numbers.get(key).copied()
    }

    /// The position of an element in the version order of a list; `None` if it is unknown.
    pub(super) fn position(&self, at: ListId, element: i64) -> Option<u32> {
        let list = self.lists.get(&at)?;
        let agreed = &list.elements[..list.agreed.min(list.elements.len())];
        let place = agreed.iter().position(|&one| one == element)?;
        Some(place as u32)
    }
}
