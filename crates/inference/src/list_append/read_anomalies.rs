//! Anomalies of single reads and lists, which need no graph.

use super::list_table::{ElementWriter, ListId, Update};
use super::lists::OrderedLists;
use seatrial_checker::Anomaly;
use seatrial_checker::FINDINGS_MAX;
use seatrial_cycles::Txn;
use seatrial_cycles::anomaly::{
    DIRTY_UPDATE, DUPLICATE_ELEMENTS, FUTURE_READ, G1A, G1B, GARBAGE_READ, INCOMPATIBLE_ORDER,
    INTERNAL, LOST_UPDATE,
};
use seatrial_cycles::search::Cycle;
use seatrial_history::OpType;
use std::collections::{BTreeMap, BTreeSet};

/// An anomaly in numbers of lists and transactions.
#[derive(Clone, Debug)]
pub(super) enum Suspect {
    /// A transaction with an internal contradiction.
    Internal(Txn),
    /// A transaction that reads an element that it appends later.
    Future(Txn),
    /// Two contradictory reads of a list, which agree on the first `agreed` elements.
    Incompatible {
        list: ListId,
        readers: [Txn; 2],
        agreed: u32,
    },
    /// A read of an element without the one before it that the same transaction had appended first.
    Reordered {
        list: ListId,
        reader: Txn,
        writer: Txn,
        /// The element that is missing or comes later, and the one that was read.
        elements: [i64; 2],
    },
    /// An element that a read has `count` times.
    Duplicate {
        list: ListId,
        reader: Txn,
        element: i64,
        count: usize,
    },
    /// A committed append and the aborted one before it: writers and elements.
    Dirty {
        list: ListId,
        above: (Txn, i64),
        below: (Txn, i64),
    },
    /// A read of an element that was never appended.
    Garbage {
        list: ListId,
        reader: Txn,
        element: i64,
    },
    /// A read of an aborted append.
    Aborted {
        list: ListId,
        reader: Txn,
        writer: Txn,
        element: i64,
    },
    /// A read of an intermediate version.
    Intermediate {
        list: ListId,
        reader: Txn,
        writer: Txn,
        element: i64,
    },
    /// Transactions that read the same version and appended to it.
    Lost {
        list: ListId,
        length: u32,
        transactions: Vec<Txn>,
    },
    /// Transactions without an order: no order of their unread appends to these lists explains their reads.
    Unordered {
        lists: Vec<ListId>,
        transactions: Vec<Txn>,
    },
    /// A cycle.
    Cycle(Cycle),
}

impl Suspect {
    /// The transactions that take part.
    pub(super) fn transactions(&self) -> Vec<Txn> {
        match self {
            Suspect::Internal(number) | Suspect::Future(number) => vec![*number],
            Suspect::Incompatible { readers, .. } => readers.to_vec(),
            Suspect::Duplicate { reader, .. } | Suspect::Garbage { reader, .. } => vec![*reader],
            Suspect::Dirty { above, below, .. } => vec![above.0, below.0],
            Suspect::Reordered { reader, writer, .. }
            | Suspect::Aborted { reader, writer, .. }
            | Suspect::Intermediate { reader, writer, .. } => vec![*reader, *writer],
            Suspect::Lost { transactions, .. } | Suspect::Unordered { transactions, .. } => {
                transactions.clone()
            }
            Suspect::Cycle(cycle) => cycle.nodes.iter().copied().map(Txn::new).collect(),
        }
    }
}

impl Suspect {
    /// The list of the anomaly, if it is about one.
    pub(super) fn list(&self) -> Option<ListId> {
        match self {
            Suspect::Incompatible { list, .. }
            | Suspect::Reordered { list, .. }
            | Suspect::Duplicate { list, .. }
            | Suspect::Dirty { list, .. }
            | Suspect::Garbage { list, .. }
            | Suspect::Aborted { list, .. }
            | Suspect::Intermediate { list, .. }
            | Suspect::Lost { list, .. } => Some(*list),
            Suspect::Unordered { lists, .. } => lists.first().copied(),
            Suspect::Internal(_) | Suspect::Future(_) | Suspect::Cycle(_) => None,
        }
    }
}

/// Counts of all suspects, and the first of each anomaly.
#[derive(Default)]
pub(super) struct Suspects {
    pub(super) counts: BTreeMap<Anomaly, u64>,
    pub(super) kept: BTreeMap<Anomaly, Vec<Suspect>>,
}

impl Suspects {
    pub(super) fn add(&mut self, anomaly: Anomaly, make: impl FnOnce() -> Suspect) {
        *self.counts.entry(anomaly).or_default() += 1;
        let kept = self.kept.entry(anomaly).or_default();
        if kept.len() < FINDINGS_MAX {
            kept.push(make());
        }
    }
}

/// What must be checked of the reads of a list.
enum ReadCheck {
    /// Nothing.
    Nothing,
    /// The last element of each read, since its reads agree and its versions are committed; the first of its versions.
    Last(usize),
    /// All elements of each read; the positions whose elements are tainted.
    All(Vec<u32>),
}

impl OrderedLists {
    /// Adds the anomalies of the lists in question, and those of single transactions.
    pub(super) fn find_direct(&self, asked: &[bool], suspects: &mut Suspects) {
        for (anomaly, found, suspect) in [
            (
                INTERNAL,
                &self.table.internal,
                Suspect::Internal as fn(Txn) -> Suspect,
            ),
            (FUTURE_READ, &self.table.future, Suspect::Future),
        ] {
            if found.count > 0 {
                suspects.counts.insert(anomaly, found.count);
                let first = found.first.iter().map(|&number| suspect(number));
                suspects.kept.insert(anomaly, first.collect());
            }
        }
        self.find_in_versions(asked, suspects);
        self.find_reordered(asked, suspects);
        self.find_in_reads(asked, suspects);
        self.find_lost_updates(asked, suspects);
    }

    /// Adds anomalies of version orders.
    fn find_in_versions(&self, asked: &[bool], suspects: &mut Suspects) {
        assert!(
            asked.len() == self.table.lists.len(),
            "each list is in question or not"
        );
        for (at, list) in ListId::all(asked.len()).zip(&self.table.lists) {
            if !asked[at.index()] {
                continue;
            }
            if let Some(readers) = list.conflict {
                // The list was open until now, and its readers with it.
                let reader = |reader: Option<Txn>| reader.expect("a reader that is not freed");
                suspects.add(INCOMPATIBLE_ORDER, || Suspect::Incompatible {
                    list: at,
                    readers: readers.map(reader),
                    agreed: list.agreed,
                });
            }
            if self.is_committed(at) {
                continue;
            }
            let versions = self.versions(at);
            if versions.iter().any(|writer| writer.number().is_none()) {
                let agreed = &list.elements[..list.agreed as usize];
                if let Some(reader) = list.reader {
                    find_duplicates((at, reader), agreed, 0, suspects);
                }
            }
            self.find_dirty_updates(at, suspects);
        }
    }

    /// Adds committed appends directly after an aborted one; appends of unknown outcome between them are skipped.
    fn find_dirty_updates(&self, at: ListId, suspects: &mut Suspects) {
        let mut aborted: Option<(Txn, i64)> = None;
        let elements = &self.table.lists[at.index()].elements;
        for (&version, &element) in self.versions(at).iter().zip(elements) {
            let Some(number) = version.number() else {
                continue;
            };
            match self.table.transactions.outcome(number) {
                OpType::Fail => {
                    aborted.get_or_insert((number, element));
                }
                OpType::Ok => {
                    if let Some(below) = aborted.take() {
                        suspects.add(DIRTY_UPDATE, || Suspect::Dirty {
                            list: at,
                            above: (number, element),
                            below,
                        });
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds anomalies of reads.
    fn find_in_reads(&self, asked: &[bool], suspects: &mut Suspects) {
        let looks = asked.iter().zip(ListId::all(asked.len()));
        let looks = looks.map(|(&is_asked, at)| {
            let list = &self.table.lists[at.index()];
            if !is_asked {
                ReadCheck::Nothing
            } else if list.conflict.is_none() && self.is_committed(at) {
                ReadCheck::Last(list.first)
            } else {
                ReadCheck::All(self.tainted(at))
            }
        });
        let looks: Vec<_> = looks.collect();
        for (reader, read) in self.table.each_read() {
            let (at, length) = read;
            match &looks[at.index()] {
                ReadCheck::Nothing => {}
                ReadCheck::Last(first) => {
                    if length > 0 && self.is_intermediate(first + length as usize - 1) {
                        self.find_intermediate(reader, read, suspects);
                    }
                }
                ReadCheck::All(tainted) => self.find_in_read(reader, read, tainted, suspects),
            }
        }
    }

    /// Adds anomalies of a read of a list with these tainted positions.
    fn find_in_read(
        &self,
        reader: Txn,
        read: (ListId, u32),
        tainted: &[u32],
        suspects: &mut Suspects,
    ) {
        let (at, length) = read;
        let agreed = self.table.lists[at.index()].agreed;
        if self.is_regular(read) && tainted.is_empty() {
            // A second occurrence of an element may be intermediate, too.
            let last = length.checked_sub(1);
            let last = last.map(|last| self.versions(at)[last as usize]);
            if last.is_some_and(|last| last.is_intermediate() || last == ElementWriter::UNKNOWN) {
                self.find_intermediate(reader, read, suspects);
            }
            return;
        }
        let elements = self.table.elements(read);
        for &position in tainted
            .iter()
            .take_while(|&&one| one < elements.len() as u32)
        {
            self.find_tainted(reader, at, elements[position as usize], suspects);
        }
        for &element in elements.iter().skip(agreed as usize) {
            self.find_tainted(reader, at, element, suspects);
        }
        if elements.len() > agreed as usize {
            find_duplicates((at, reader), elements, agreed, suspects);
        }
        self.find_intermediate(reader, read, suspects);
    }

    /// Agreed positions of a list whose append was aborted or does not exist.
    fn tainted(&self, at: ListId) -> Vec<u32> {
        let list = &self.table.lists[at.index()];
        let versions = self.versions(at).iter().zip(0..);
        let is_tainted = |&(&version, position): &(&ElementWriter, u32)| {
            if list.again.is_some_and(|again| position < again.base) {
                return false; // it was without anomalies when it was closed, or it would not have been reopened
            }
            let number = version.number().or_else(|| {
                // Unknown, or an earlier occurrence.
                let writer = list.writer(list.elements[position as usize]);
                writer.and_then(ElementWriter::number)
            });
            number.is_none_or(|number| self.table.transactions.is_failed(number))
        };
        versions
            .filter(is_tainted)
            .map(|(_, position)| position)
            .collect()
    }

    /// Adds an aborted or garbage read, if this is one.
    fn find_tainted(&self, reader: Txn, list: ListId, element: i64, suspects: &mut Suspects) {
        let writer = self
            .writer(list, element)
            .and_then(|writer| writer.number());
        match writer {
            None => suspects.add(GARBAGE_READ, || Suspect::Garbage {
                list,
                reader,
                element,
            }),
            Some(writer) if self.table.transactions.is_failed(writer) => {
                suspects.add(G1A, || Suspect::Aborted {
                    list,
                    reader,
                    writer,
                    element,
                });
            }
            Some(_) => {}
        }
    }

    /// Adds an intermediate read, if this is one.
    fn find_intermediate(&self, reader: Txn, read: (ListId, u32), suspects: &mut Suspects) {
        let Some(&element) = self.table.elements(read).last() else {
            return;
        };
        if let Some(writer) = self.writer(read.0, element)
            && writer.is_intermediate()
            && let Some(writer) = writer.number().filter(|&writer| writer != reader)
        {
            suspects.add(G1B, || Suspect::Intermediate {
                list: read.0,
                reader,
                writer,
                element,
            });
        }
    }

    /// Adds the versions that two or more transactions read and then appended to.
    fn find_lost_updates(&self, asked: &[bool], suspects: &mut Suspects) {
        let regular = |update: &&Update| {
            let list = update.list.index();
            asked[list] && update.length <= self.table.lists[list].agreed
        };
        // Few versions have several updates. One flag per version finds them, so that only their updates are sorted; two
        // lists may share the flag of the last version of one, which costs a comparison and no error.
        let updates = self.table.updates.iter().filter(regular);
        let version =
            |update: &Update| self.table.lists[update.list.index()].first + update.length as usize;
        let count = self.version_count() + 1;
        let (mut seen, mut twice) = (vec![false; count], BTreeSet::new());
        for update in updates.clone() {
            let version = version(update);
            if std::mem::replace(&mut seen[version], true) {
                twice.insert(version);
            }
        }
        if twice.is_empty() {
            return;
        }
        let updates = updates.filter(|update| twice.contains(&version(update)));
        let mut updates: Vec<_> = updates.copied().collect();
        updates.sort_unstable();
        for group in updates.chunk_by(|a, b| (a.list, a.length) == (b.list, b.length)) {
            if group.len() > 1 {
                suspects.add(LOST_UPDATE, || Suspect::Lost {
                    list: group[0].list,
                    length: group[0].length,
                    transactions: group.iter().map(|update| update.transaction).collect(),
                });
            }
        }
    }
}

/// Adds elements that occur at position `from` or later, and also before.
fn find_duplicates(
    (list, reader): (ListId, Txn),
    elements: &[i64],
    from: u32,
    suspects: &mut Suspects,
) {
    let (mut seen, mut reported) = (BTreeSet::new(), BTreeSet::new());
    for (position, element) in elements.iter().enumerate() {
        let is_new = seen.insert(element);
        if is_new || position < from as usize || !reported.insert(element) {
            continue;
        }
        suspects.add(DUPLICATE_ELEMENTS, || Suspect::Duplicate {
            list,
            reader,
            element: *element,
            count: elements.iter().filter(|one| *one == element).count(),
        });
    }
}
