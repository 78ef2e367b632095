//! What must be known of a part of a history to tell what was found in it.

use super::lists::Lists;
use super::table::NONE;
use seatrial_history::Key;
use std::collections::{BTreeMap, BTreeSet};

/// A list as it was known.
pub(super) struct Shown {
    pub(super) key: Key,
    pub(super) elements: Vec<i64>,
    /// So many of them are agreed.
    pub(super) agreed: usize,
}

/// The transactions that take part in what was found in one part of a history, and all lists that they touched. The
/// operations themselves are read again.
#[derive(Default)]
pub(super) struct Stage {
    /// By number: positions of invocation and completion.
    pub(super) transactions: BTreeMap<u32, [u32; 2]>,
    pub(super) lists: BTreeMap<u32, Shown>,
    numbers: BTreeMap<Key, u32>,
}

impl Stage {
    /// The stage of these transactions; the lists that are `named` are on it in any case.
    pub(super) fn new(lists: &Lists, transactions: BTreeSet<u32>, named: Vec<u32>) -> Stage {
        let table = &lists.table;
        let mut touched: BTreeSet<u32> = named.into_iter().collect();
        let reads = table.each_read();
        let reads = reads.filter(|(reader, _)| transactions.contains(reader));
        touched.extend(reads.map(|(_, (at, _))| at));
        for (list, at) in table.lists.iter().zip(0..) {
            let mut writers = list.writers().filter_map(|writer| writer.number());
            if writers.any(|number| transactions.contains(&number)) {
                touched.insert(at);
            }
        }
        let mut stage = Stage::default();
        for number in transactions {
            let at = number as usize;
            let positions = [table.invocations[at], table.completions[at]];
            stage.transactions.insert(number, positions);
        }
        for at in touched {
            let list = &table.lists[at as usize];
            stage.numbers.insert(list.key.clone(), at);
            let shown = Shown {
                key: list.key.clone(),
                elements: list.elements.clone(),
                agreed: list.agreed as usize,
            };
            stage.lists.insert(at, shown);
        }
        stage
    }

    /// Where the operations of its transactions stand.
    pub(super) fn positions(&self) -> impl Iterator<Item = u64> {
        let positions = self.transactions.values().flatten();
        let known = positions.filter(|&&position| position != NONE);
        known.map(|&position| u64::from(position))
    }

    /// The list of this key, if it is on the stage.
    pub(super) fn number(&self, key: &Key) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// The place of an element in the order of versions of a list; `None` when none is known.
    pub(super) fn position(&self, at: u32, element: i64) -> Option<u32> {
        let list = self.lists.get(&at)?;
        let agreed = &list.elements[..list.agreed.min(list.elements.len())];
        let place = agreed.iter().position(|&one| one == element)?;
        Some(place as u32)
    }
}
