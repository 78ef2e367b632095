//! Anomalies that need no cycle.

use super::lists::{Append, List, Lists, Read, Update, elements};
use crate::txn::anomaly::{
    DIRTY_UPDATE, DUPLICATE_ELEMENTS, FUTURE_READ, G1A, G1B, GARBAGE_READ, INCOMPATIBLE_ORDER,
    INTERNAL, LOST_UPDATE,
};
use crate::txn::explain::{list, micro_operation, shown};
use crate::txn::findings::Findings;
use crate::txn::transactions::NONE;
use seatrial_history::Mop;
use std::collections::BTreeSet;

/// Checks what a transaction read against what it did itself before (Cerone's axiom INT, for lists). Keeps its
/// scratch space.
#[derive(Default)]
pub(super) struct Own {
    /// Key and number of each micro-operation, by key.
    mops: Vec<(u32, u32)>,
    /// Elements that the transaction appended since its last read of the key.
    appended: Vec<i64>,
}

impl Own {
    /// Adds internal contradictions, reads of what the transaction appends later, and updates.
    pub(super) fn check(&mut self, lists: &mut Lists<'_>, number: u32, findings: &mut Findings) {
        let transactions = lists.transactions;
        self.mops.clear();
        let keys = transactions.mop_keys(number).iter();
        self.mops
            .extend(keys.zip(0..).map(|(&key, mop)| (key, mop)));
        if self.mops.len() < 2 {
            return;
        }
        self.mops.sort_unstable();
        let mops = std::mem::take(&mut self.mops);
        let (mut is_internal, mut is_future) = (false, false);
        for group in mops
            .chunk_by(|a, b| a.0 == b.0)
            .filter(|group| group.len() > 1)
        {
            let of = |&(_, mop): &(u32, u32)| &transactions.mops(number)[mop as usize];
            if !is_internal && let Some((mop, expected)) = self.contradiction(group.iter().map(of))
            {
                is_internal = true;
                findings.tell(INTERNAL, || {
                    let summary = format!(
                        "{}\nIts {} contradicts what it read or appended before: {expected} was to be \
                         expected.",
                        shown(transactions, number),
                        micro_operation(mop)
                    );
                    (vec![transactions.index(number)], summary)
                });
            }
            if !is_future && let Some((read, append)) = future_read(group.iter().map(of)) {
                is_future = true;
                findings.tell(FUTURE_READ, || {
                    let summary = format!(
                        "{}\nIts {} observes its own {append}, which it performs only later.",
                        shown(transactions, number),
                        micro_operation(read)
                    );
                    (vec![transactions.index(number)], summary)
                });
            }
            let appends = group
                .iter()
                .map(of)
                .any(|mop| matches!(mop, Mop::Append { .. }));
            if let (Some(first), true) = (elements(of(&group[0])), appends) {
                lists.updates.push(Update {
                    key: group[0].0,
                    length: first.len() as u32,
                    transaction: number,
                });
            }
        }
        self.mops = mops;
    }

    /// The first read that contradicts the micro-operations before it on the same key, and what it should have been.
    fn contradiction<'a>(
        &mut self,
        mops: impl Iterator<Item = &'a Mop>,
    ) -> Option<(&'a Mop, String)> {
        self.appended.clear();
        let mut known: Option<&[i64]> = None;
        for mop in mops {
            if let Mop::Append { element, .. } = mop {
                self.appended.push(*element);
            }
            let Some(seen) = elements(mop) else {
                continue;
            };
            let before = seen.strip_suffix(&self.appended[..]);
            match (known, before) {
                (Some(known), Some(before)) if known == before => {}
                (None, Some(_)) => {}
                (Some(known), _) => {
                    return Some((mop, list(&[known, &self.appended].concat())));
                }
                (None, None) => return Some((mop, format!("[… {}", &list(&self.appended)[1..]))),
            }
            known = Some(seen);
            self.appended.clear();
        }
        None
    }
}

/// The first append of an element that an earlier read of the same key observed, with that read.
fn future_read<'a>(mops: impl Iterator<Item = &'a Mop>) -> Option<(&'a Mop, &'a Mop)> {
    let mut read: Option<(&Mop, &[i64])> = None;
    for mop in mops {
        match (mop, read) {
            (Mop::Append { element, .. }, Some((read, seen))) if seen.contains(element) => {
                return Some((read, mop));
            }
            _ => {}
        }
        if let Some(seen) = elements(mop) {
            read = Some((mop, seen));
        }
    }
    None
}

impl Lists<'_> {
    /// Adds anomalies of version orders.
    pub(super) fn tell_versions(&self, findings: &mut Findings) {
        for key in 0..self.by_key.len() as u32 {
            let list = &self.by_key[key as usize];
            if let Some(pair) = list.conflict {
                findings.tell(INCOMPATIBLE_ORDER, || self.incompatible(key, list, pair));
            }
            if self.versions(key).contains(&NONE) {
                let agreed = &list.longest[..list.agreed as usize];
                self.tell_duplicates(key, list.reader, agreed, 0, findings);
            }
            self.tell_dirty(key, findings);
        }
    }

    fn incompatible(
        &self,
        key: u32,
        list: &List<'_>,
        (one, other): (u32, u32),
    ) -> (Vec<u64>, String) {
        let transactions = self.transactions;
        let name = transactions.keys.key(key);
        let summary = format!(
            "No order of appends to key {name} explains both of these reads, which agree on the first {} \
             elements only:\n  {}\n  {}",
            list.agreed,
            shown(transactions, one),
            shown(transactions, other)
        );
        (
            vec![transactions.index(one), transactions.index(other)],
            summary,
        )
    }

    /// Adds the elements that occur at position `from` or later, and before that too.
    fn tell_duplicates(
        &self,
        key: u32,
        reader: u32,
        elements: &[i64],
        from: u32,
        findings: &mut Findings,
    ) {
        let (mut seen, mut told) = (BTreeSet::new(), BTreeSet::new());
        for (position, element) in elements.iter().enumerate() {
            let is_new = seen.insert(element);
            if is_new || position < from as usize || !told.insert(element) {
                continue;
            }
            findings.tell(DUPLICATE_ELEMENTS, || {
                let count = elements.iter().filter(|one| *one == element).count();
                let summary = format!(
                    "{}\nIt read element {element} of key {} {count} times.",
                    shown(self.transactions, reader),
                    self.transactions.keys.key(key)
                );
                (self.indices(&[reader]), summary)
            });
        }
    }

    /// A committed append directly on top of an aborted one; unknown ones between them are passed over.
    fn tell_dirty(&self, key: u32, findings: &mut Findings) {
        let mut aborted: Option<&Append> = None;
        for &version in self
            .versions(key)
            .iter()
            .filter(|&&version| version != NONE)
        {
            let append = &self.appends[version as usize];
            let transaction = &self.transactions.all[append.transaction as usize];
            if transaction.is_fail() {
                aborted.get_or_insert(append);
            } else if transaction.is_ok()
                && let Some(below) = aborted.take()
            {
                findings.tell(DIRTY_UPDATE, || {
                    let summary = format!(
                        "{}\ncommitted its append of {} to key {} on top of {}, which was aborted:\n{}",
                        shown(self.transactions, append.transaction),
                        append.element,
                        self.transactions.keys.key(key),
                        below.element,
                        shown(self.transactions, below.transaction)
                    );
                    (self.indices(&[append.transaction, below.transaction]), summary)
                });
            }
        }
    }

    fn indices(&self, transactions: &[u32]) -> Vec<u64> {
        let numbers = transactions.iter();
        numbers
            .map(|&number| self.transactions.index(number))
            .collect()
    }

    /// Adds anomalies of reads.
    pub(super) fn tell_reads(&self, findings: &mut Findings) {
        let mut tainted: Vec<Option<Vec<u32>>> = vec![None; self.by_key.len()];
        for read in &self.reads {
            let elements = self.elements(read);
            let agreed = self.by_key[read.key as usize].agreed;
            let tainted = tainted[read.key as usize].get_or_insert_with(|| self.tainted(read.key));
            for &position in tainted
                .iter()
                .take_while(|&&position| position < read.length)
            {
                self.tell_tainted(read, elements[position as usize], findings);
            }
            for &element in elements.iter().skip(agreed as usize) {
                self.tell_tainted(read, element, findings);
            }
            if read.length > agreed {
                self.tell_duplicates(read.key, read.transaction, elements, agreed, findings);
            }
            if let Some(&last) = elements.last()
                && let Some(append) = self.find(read.key, last)
                && !append.is_final
                && append.transaction != read.transaction
            {
                findings.tell(G1B, || self.intermediate(read, append));
            }
        }
        self.tell_lost_updates(findings);
    }

    /// Agreed positions of a key whose element was aborted or never appended.
    fn tainted(&self, key: u32) -> Vec<u32> {
        let list = &self.by_key[key as usize];
        let positions = 0..list.agreed;
        let is_tainted = |&position: &u32| {
            let append = match self.versions(key)[position as usize] {
                // Unknown or there before.
                NONE => self.find(key, list.longest[position as usize]),
                number => Some(&self.appends[number as usize]),
            };
            append.is_none_or(|append| self.transactions.all[append.transaction as usize].is_fail())
        };
        positions.filter(is_tainted).collect()
    }

    /// Adds an aborted or garbage read, if this is one.
    fn tell_tainted(&self, read: &Read, element: i64, findings: &mut Findings) {
        let transactions = self.transactions;
        let key = transactions.keys.key(read.key);
        match self.find(read.key, element) {
            None => findings.tell(GARBAGE_READ, || {
                let summary = format!(
                    "{}\nobserved element {element} of key {key}, which nobody ever appended.",
                    shown(transactions, read.transaction)
                );
                (self.indices(&[read.transaction]), summary)
            }),
            Some(append) if transactions.all[append.transaction as usize].is_fail() => {
                findings.tell(G1A, || {
                    let summary = format!(
                        "{}\nobserved element {element} of key {key}, whose append was aborted:\n{}",
                        shown(transactions, read.transaction),
                        shown(transactions, append.transaction)
                    );
                    (self.indices(&[read.transaction, append.transaction]), summary)
                });
            }
            Some(_) => {}
        }
    }

    fn intermediate(&self, read: &Read, append: &Append) -> (Vec<u64>, String) {
        let transactions = self.transactions;
        let summary = format!(
            "{}\nobserved key {} as it was in the middle of another transaction, which appended more after \
             {}:\n{}",
            shown(transactions, read.transaction),
            transactions.keys.key(read.key),
            append.element,
            shown(transactions, append.transaction)
        );
        (
            self.indices(&[read.transaction, append.transaction]),
            summary,
        )
    }

    /// Adds the versions that two or more transactions read and then appended to.
    fn tell_lost_updates(&self, findings: &mut Findings) {
        let of = |update: &&Update| (update.key, update.length, update.transaction);
        let regular = |update: &&Update| update.length <= self.by_key[update.key as usize].agreed;
        let mut updates: Vec<_> = self.updates.iter().filter(regular).collect();
        updates.sort_unstable_by_key(of);
        for group in updates.chunk_by(|a, b| (a.key, a.length) == (b.key, b.length)) {
            if let [one, other, ..] = group {
                findings.tell(LOST_UPDATE, || {
                    let version = &self.by_key[one.key as usize].longest[..one.length as usize];
                    let summary = format!(
                        "{} transactions read key {} as {} and then appended to it, among them:\n  {}\n  {}",
                        group.len(),
                        self.transactions.keys.key(one.key),
                        list(version),
                        shown(self.transactions, one.transaction),
                        shown(self.transactions, other.transaction)
                    );
                    let numbers: Vec<_> = group.iter().map(|update| update.transaction).collect();
                    (self.indices(&numbers), summary)
                });
            }
        }
    }
}
