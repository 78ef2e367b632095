//! The lists of a history: who appended what, who read what, and in which order the versions came.

use super::reads::Own;
use crate::txn::dense::Elements;
use crate::txn::explain::micro_operation;
use crate::txn::findings::Findings;
use crate::txn::level::Level;
use crate::txn::transactions::{NONE, Transaction, Transactions};
use seatrial_history::{Mop, Observed};

/// An element and who appended it.
pub(super) struct Append {
    pub(super) transaction: u32,
    pub(super) key: u32,
    pub(super) element: i64,
    /// Its place in the version order; [`NONE`] when no place is known.
    pub(super) position: u32,
    /// Did a successful transaction read it?
    pub(super) is_seen: bool,
    /// Is it its transaction's last append to the key?
    pub(super) is_final: bool,
}

/// A successful transaction's read.
pub(super) struct Read {
    pub(super) transaction: u32,
    pub(super) key: u32,
    /// Which of the transaction's micro-operations.
    pub(super) mop: u32,
    /// Number of elements.
    pub(super) length: u32,
}

/// One key.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    /// The longest list that was read.
    pub(super) longest: &'a [i64],
    /// Who read it.
    pub(super) reader: u32,
    /// All reads agree on so many first elements.
    pub(super) agreed: u32,
    /// Two reads that do not agree.
    pub(super) conflict: Option<(u32, u32)>,
    /// Where its versions begin in [`Lists::versions`].
    first: usize,
}

/// A transaction that read a version of a key before anything else and then appended to the key.
pub(super) struct Update {
    pub(super) key: u32,
    pub(super) length: u32,
    pub(super) transaction: u32,
}

/// Everything that the graph and the direct anomalies are derived from.
pub(super) struct Lists<'a> {
    pub(super) transactions: &'a Transactions<'a>,
    pub(super) appends: Vec<Append>,
    index: Elements,
    pub(super) reads: Vec<Read>,
    pub(super) updates: Vec<Update>,
    /// By key.
    pub(super) by_key: Vec<List<'a>>,
    /// The agreed versions of all keys: numbers of appends, [`NONE`] for an element that nobody appended or that was
    /// there before.
    versions: Vec<u32>,
    /// Which transactions took place: the nodes of the graph.
    pub(super) happened: Vec<bool>,
}

impl<'a> Lists<'a> {
    /// Collects the lists; contradictions within one transaction are found on the way. The error says what makes a
    /// judgement impossible.
    pub(super) fn new(
        transactions: &'a Transactions<'a>,
        level: Level,
        findings: &mut Findings,
    ) -> Result<Lists<'a>, String> {
        let empty = List {
            longest: &[],
            reader: NONE,
            agreed: NONE,
            conflict: None,
            first: 0,
        };
        let mut lists = Lists {
            transactions,
            appends: Vec::new(),
            index: Elements::default(),
            reads: Vec::new(),
            updates: Vec::new(),
            by_key: vec![empty; transactions.keys.len()],
            versions: Vec::new(),
            happened: transactions.all.iter().map(Transaction::is_ok).collect(),
        };
        let mut last = vec![NONE; transactions.keys.len()];
        for number in 0..transactions.len() as u32 {
            lists.collect_appends(number, &mut last)?;
        }
        let pairs = lists
            .appends
            .iter()
            .map(|append| (append.key, append.element));
        lists.index = Elements::new(transactions.keys.len(), pairs)
            .map_err(|(one, other)| lists.repeated(one, other))?;
        let mut own = Own::default();
        for number in 0..transactions.len() as u32 {
            if transactions.all[number as usize].is_ok() {
                own.check(&mut lists, number, findings);
                lists.collect_reads(number)?;
            }
        }
        lists.order();
        // Below read committed, effects of an unknown transaction that were seen do not say that it committed.
        if level.implies(Level::ReadCommitted) {
            lists.add_unknown();
        }
        Ok(lists)
    }

    /// Numbers a transaction's appends. `last` holds for each key the last transaction that was seen to append to it.
    fn collect_appends(&mut self, number: u32, last: &mut [u32]) -> Result<(), String> {
        let first = self.appends.len();
        for (key, mop) in self.transactions.keyed_mops(number) {
            match mop {
                Mop::Append { element, .. } => self.appends.push(Append {
                    transaction: number,
                    key,
                    element: *element,
                    position: NONE,
                    is_seen: false,
                    is_final: false,
                }),
                Mop::Read {
                    observed: Observed::List(_) | Observed::Nil,
                    ..
                } => {}
                other => {
                    return Err(format!(
                        "op {}: {other} is neither an append to a list nor a read of one",
                        self.transactions.index(number)
                    ));
                }
            }
        }
        for append in self.appends[first..].iter_mut().rev() {
            append.is_final = last[append.key as usize] != number;
            last[append.key as usize] = number;
        }
        Ok(())
    }

    fn repeated(&self, one: u32, other: u32) -> String {
        let [one, other] = [one, other].map(|number| &self.appends[number as usize]);
        format!(
            "op {} does [:append {} {}], as op {} did: elements must be unique for each key",
            self.transactions.index(other.transaction),
            self.transactions.keys.key(other.key),
            other.element,
            self.transactions.index(one.transaction)
        )
    }

    /// Compares a successful transaction's reads with the longest ones so far.
    fn collect_reads(&mut self, number: u32) -> Result<(), String> {
        let transactions = self.transactions;
        for (mop, (key, read)) in transactions.keyed_mops(number).enumerate() {
            let Some(elements) = elements(read) else {
                continue;
            };
            let length = u32::try_from(elements.len())
                .map_err(|_| format!("{} has too many elements", micro_operation(read)))?;
            self.reads.push(Read {
                transaction: number,
                key,
                mop: mop as u32,
                length,
            });
            let list = &mut self.by_key[key as usize];
            let common = list.longest.len().min(elements.len());
            if list.longest[..common] != elements[..common] {
                let pairs = list.longest.iter().zip(elements);
                let agreed = pairs.take_while(|(a, b)| a == b).count() as u32;
                if list.conflict.is_none() {
                    list.conflict = Some((list.reader, number));
                }
                list.agreed = list.agreed.min(agreed);
            }
            if elements.len() > list.longest.len() {
                list.longest = elements;
                list.reader = number;
            }
        }
        Ok(())
    }

    /// Fixes the version orders, and with them what was seen.
    fn order(&mut self) {
        for key in 0..self.by_key.len() {
            let list = self.by_key[key];
            let agreed = list.agreed.min(list.longest.len() as u32);
            self.by_key[key].agreed = agreed;
            self.by_key[key].first = self.versions.len();
            for (position, element) in list.longest[..agreed as usize].iter().enumerate() {
                let known = self.index.find(key as u32, *element);
                let version = known.filter(|&number| {
                    let append = &mut self.appends[number as usize];
                    let is_new = append.position == NONE;
                    if is_new {
                        append.position = position as u32;
                        append.is_seen = true;
                    }
                    is_new
                });
                self.versions.push(version.unwrap_or(NONE));
            }
        }
        // What lies past the agreed part is known only from the reads themselves.
        for at in 0..self.reads.len() {
            let read = &self.reads[at];
            let (key, agreed) = (read.key, self.by_key[read.key as usize].agreed);
            if read.length > agreed {
                for element in &self.elements(read)[agreed as usize..] {
                    if let Some(number) = self.index.find(key, *element) {
                        self.appends[number as usize].is_seen = true;
                    }
                }
            }
        }
    }

    /// Unknown transactions with an effect that was seen took place.
    fn add_unknown(&mut self) {
        for append in &self.appends {
            let transaction = append.transaction as usize;
            if append.is_seen && !self.transactions.all[transaction].is_fail() {
                self.happened[transaction] = true;
            }
        }
    }

    /// What a read saw.
    pub(super) fn elements(&self, read: &Read) -> &'a [i64] {
        let mops = self.transactions.mops(read.transaction);
        elements(&mops[read.mop as usize]).unwrap_or_default()
    }

    /// The agreed versions of a key.
    pub(super) fn versions(&self, key: u32) -> &[u32] {
        let list = &self.by_key[key as usize];
        &self.versions[list.first..list.first + list.agreed as usize]
    }

    /// Where a key's read lengths (0 to the number of its versions) begin when those of all keys are numbered; with
    /// the number of keys, how many there are.
    pub(super) fn first_length(&self, key: u32) -> usize {
        let list = self.by_key.get(key as usize);
        list.map_or(self.versions.len(), |list| list.first) + key as usize
    }

    /// Who appended this element.
    pub(super) fn find(&self, key: u32, element: i64) -> Option<&Append> {
        let number = self.index.find(key, element)?;
        Some(&self.appends[number as usize])
    }

    /// Did the transaction of this append take place?
    pub(super) fn is_committed(&self, append: &Append) -> bool {
        self.happened[append.transaction as usize]
    }
}

/// The elements of a read of a list; `None` for anything else.
pub(super) fn elements(mop: &Mop) -> Option<&[i64]> {
    match mop {
        Mop::Read { observed, .. } => match observed {
            Observed::List(elements) => Some(elements),
            _ => Some(&[]),
        },
        _ => None,
    }
}
