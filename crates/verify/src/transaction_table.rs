//! The transactions of a history in columns, against which a certificate is replayed.

use super::compact_list::{CompactList, ListElements};
use super::packed_records::{AccessKind, PackedRecords, TransactionAccesses};
pub(super) use super::packed_records::{MicroAccess, RecordedTransaction, RegisterState};
use crate::certificate::Fingerprint;
use crate::dense_number::NameNumber;
use seatrial_history::chunk::{MopView, ValueView};
use seatrial_history::{Chunk, Key, OpType, Process};
use std::collections::BTreeMap;

/// Numbers for names, from 0 on in the order of appearance.
#[derive(Default)]
pub(super) struct NameNumbers {
    /// By small integer: its number, if it has one yet.
    low: Vec<Option<NameNumber>>,
    others: BTreeMap<Key, Option<NameNumber>>,
    count: u32,
}

/// Smaller integers are found by index, others in a tree.
const LOW: usize = 1 << 24;

impl NameNumbers {
    /// The number of a name, and whether it is new.
    pub(super) fn of(&mut self, name: &Key) -> (u32, bool) {
        let integer = match name {
            Key::Int(integer) => usize::try_from(*integer).ok(),
            _ => None,
        };
        let known = match integer.filter(|&integer| integer < LOW) {
            Some(integer) => {
                if self.low.len() <= integer {
                    self.low.resize(integer + 1, None);
                }
                &mut self.low[integer]
            }
            None => self.others.entry(name.clone()).or_default(),
        };
        if let Some(number) = known {
            return (number.get(), false);
        }
        let number = self.count;
        *known = Some(NameNumber::new(number));
        self.count += 1;
        (number, true)
    }
}

/// All transactions of clients, in the order of their places.
///
/// A read of a list is kept as its length while it is a prefix of the longest list that was read of the key so far, and
/// that list once, two bytes an element while its elements are close together; a read that contradicts others is kept as
/// it is. The transactions themselves are [`PackedRecords`].
#[derive(Default)]
pub(super) struct TransactionTable {
    records: PackedRecords,
    /// By key: its name, and the longest list that a successful transaction read of it.
    names: Vec<Key>,
    lists: Vec<CompactList>,
    /// Reads of lists that contradict the longest ones.
    others: Vec<Box<[i64]>>,
    numbers: NameNumbers,
    sessions: NameNumbers,
    /// Scratch: the micro-operations of the transaction that ends now.
    events: Vec<MicroAccess>,
    /// Number of micro-operations of all transactions.
    event_count: u64,
    /// By session: its last transaction until it has a completion.
    open: Vec<OpenSession>,
    /// Does any operation access a list, and any a register?
    pub(super) is_of_lists: bool,
    pub(super) is_of_registers: bool,
    /// The reason why this is not a history of transactions.
    refusal: Option<String>,
    /// The fingerprint of all operations so far.
    pub(super) fingerprint: Fingerprint,
}

/// A transaction that has no completion yet.
#[derive(Default)]
struct OpenSession {
    begun: Option<InvokedTransaction>,
    /// Is the value of its invocation a transaction?
    is_transaction: bool,
    /// The writes of its invocation; the memory is reused.
    writes: Vec<MicroAccess>,
}

/// The begin of a transaction.
#[derive(Clone, Copy)]
struct InvokedTransaction {
    number: u32,
    /// The position of its invocation; of its completion if only that was recorded.
    position: u64,
    index: u64,
    is_invoked: bool,
}

impl TransactionTable {
    /// Reads the next chunk.
    pub(super) fn take(&mut self, chunk: &Chunk) {
        // The highest number is no position.
        if chunk.first_position() + chunk.len() as u64 >= u64::from(u32::MAX) {
            self.refuse("the history has more than 2^32 operations".into());
        }
        let mut names = ChunkNames {
            keys: vec![None; chunk.key_count()],
            agreed: vec![0; chunk.key_count()],
        };
        self.fingerprint.events += chunk.len() as u64;
        for place in 0..chunk.len() {
            if self.refusal.is_some() {
                return;
            }
            if let Process::Client(client) = chunk.process(place) {
                self.operation(chunk, place, client, &mut names);
            }
        }
    }

    /// Ends the history: transactions without a completion are of unknown outcome.
    pub(super) fn end(&mut self) -> Result<(), String> {
        for session in 0..self.open.len() {
            self.give_up(session);
        }
        assert_eq!(self.names.len(), self.lists.len(), "a list for each key");
        assert_eq!(self.names.len(), self.numbers.count as usize);
        assert_eq!(self.open.len(), self.sessions.count as usize);
        assert!(
            self.open.iter().all(|open| open.begun.is_none()),
            "a transaction has not ended"
        );
        if self.is_of_lists && self.is_of_registers {
            self.refuse("the history has both lists and registers".into());
        }
        match &self.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(()),
        }
    }

    fn refuse(&mut self, reason: String) {
        self.refusal.get_or_insert(reason);
    }

    fn operation(&mut self, chunk: &Chunk, place: usize, client: u64, names: &mut ChunkNames) {
        let position = chunk.first_position() + place as u64;
        let (kind, index) = (chunk.kinds()[place], chunk.index(place));
        let session = self.session(client);
        self.fingerprint.mix(index << 2 | kind as u64);
        self.fingerprint.mix(client);
        if kind == OpType::Invoke {
            self.give_up(session);
            let begun = self.begin(index, position, true);
            let mut writes = std::mem::take(&mut self.open[session].writes);
            writes.clear();
            let is_transaction = self.read_events(chunk, place, names, false, &mut writes);
            self.open[session] = OpenSession {
                begun: Some(begun),
                is_transaction,
                writes,
            };
            return;
        }
        let begun = match (chunk.invocation(place), self.open[session].begun) {
            (Some(invocation), Some(begun)) if invocation == begun.position => begun,
            (Some(_), _) => return self.refuse(format!("op {index} completes what never began")),
            (None, _) if kind == OpType::Ok => self.begin(index, position, false),
            (None, _) => return,
        };
        if kind != OpType::Ok {
            return self.close(session, kind, Some((index, position)));
        }
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let is_transaction = self.read_events(chunk, place, names, true, &mut events);
        let end = Some((index, position));
        self.note(begun, session, kind, end, (&events, is_transaction));
        self.events = events;
        if chunk.invocation(place).is_some() {
            self.open[session].begun = None;
        }
    }

    fn session(&mut self, client: u64) -> usize {
        let (session, is_new) = self.sessions.of(&Key::Int(client.cast_signed()));
        if is_new {
            self.open.push(OpenSession::default());
        }
        session as usize
    }

    fn begin(&mut self, index: u64, position: u64, is_invoked: bool) -> InvokedTransaction {
        let number = self.records.begin(position as u32, self.names.len());
        InvokedTransaction {
            number,
            position,
            index,
            is_invoked,
        }
    }

    /// Ends the open transaction of a session, if there is one, without a completion.
    fn give_up(&mut self, session: usize) {
        self.close(session, OpType::Info, None);
    }

    /// Ends the open transaction of a session, if there is one, without success: its writes are those of its invocation.
    /// `end` is the index and position of its completion, if it has one.
    fn close(&mut self, session: usize, outcome: OpType, end: Option<(u64, u64)>) {
        let open = &mut self.open[session];
        let Some(begun) = open.begun.take() else {
            return;
        };
        let (writes, is_transaction) = (std::mem::take(&mut open.writes), open.is_transaction);
        self.note(begun, session, outcome, end, (&writes, is_transaction));
        self.open[session].writes = writes;
    }

    /// Records a transaction that ended, with its outcome and micro-operations.
    fn note(
        &mut self,
        begun: InvokedTransaction,
        session: usize,
        outcome: OpType,
        end: Option<(u64, u64)>,
        (events, is_transaction): (&[MicroAccess], bool),
    ) {
        let (index, ended) = match end {
            Some((index, position)) => (index, Some(position as u32)),
            None => (begun.index, None),
        };
        let one = RecordedTransaction {
            index,
            place: begun.position as u32,
            ended,
            session: session as u32,
            outcome,
            is_invoked: begun.is_invoked,
        };
        self.records.close(begun.number, &one, events);
        self.event_count += events.len() as u64;
        if !is_transaction {
            self.refuse(format!("op {index} is no transaction"));
        }
        if self.event_count >= u64::from(u32::MAX) {
            self.refuse("the history has more than 2^32 micro-operations".into());
        }
    }

    /// Adds the micro-operations of the operation at `place` to `events`: the writes, and the reads if `reads`. Returns
    /// false if its value is not a transaction.
    fn read_events(
        &mut self,
        chunk: &Chunk,
        place: usize,
        names: &mut ChunkNames,
        reads: bool,
        events: &mut Vec<MicroAccess>,
    ) -> bool {
        let ValueView::Txn(mops) = chunk.value(place) else {
            return false;
        };
        for mop in mops.iter() {
            // The part of a read list that goes into the fingerprint: its length and its last element.
            let mut shown = None;
            let (kind, value) = match mop {
                MopView::Append { element, .. } => (AccessKind::Append, element),
                MopView::Write { value, .. } => (AccessKind::Write, value),
                _ if !reads => continue,
                MopView::ReadNil { .. } => (AccessKind::ReadNothing, 0),
                MopView::ReadRegister { value, .. } => (AccessKind::ReadValue, value),
                MopView::ReadList {
                    key,
                    elements,
                    shared,
                } => {
                    shown = elements.last().map(|&last| (elements.len(), last));
                    let number = self.key(chunk, key, names);
                    let agreed = &mut names.agreed[key as usize];
                    self.list_read(number, elements, shared.then_some(agreed))
                }
            };
            match kind {
                AccessKind::Append | AccessKind::ReadPrefix | AccessKind::ReadOther => {
                    self.is_of_lists = true;
                }
                AccessKind::Write | AccessKind::ReadValue => self.is_of_registers = true,
                AccessKind::ReadNothing => {}
            }
            let key = self.key(chunk, mop.key(), names);
            let (code, word) = match (kind, shown) {
                (AccessKind::Append, _) => (1, value),
                (AccessKind::Write, _) => (2, value),
                (AccessKind::ReadValue, _) => (4, value),
                (_, None) => (3, 0),
                (_, Some((length, last))) => (5 + 8 * length as u64, last),
            };
            self.fingerprint.mix(u64::from(key) << 40 ^ code);
            self.fingerprint.mix(word.cast_unsigned());
            events.push(MicroAccess { value, key, kind });
        }
        true
    }

    /// The number of a key that has this id in the chunk.
    fn key(&mut self, chunk: &Chunk, id: u32, names: &mut ChunkNames) -> u32 {
        if let Some(known) = names.keys[id as usize] {
            return known.get();
        }
        let key = chunk.key(id);
        let (number, is_new) = self.numbers.of(key);
        names.keys[id as usize] = Some(NameNumber::new(number));
        if is_new {
            self.fingerprint.mix_name(key);
            self.names.push(key.clone());
            self.lists.push(CompactList::default());
        }
        number
    }

    /// Records a read of a list. `agreed` is the number of elements of the chunk's list, of which this is a prefix, that
    /// were already compared with the longest list.
    fn list_read(
        &mut self,
        key: u32,
        elements: &[i64],
        agreed: Option<&mut u32>,
    ) -> (AccessKind, i64) {
        let list = &mut self.lists[key as usize];
        let from = agreed.as_ref().map_or(0, |agreed| **agreed as usize);
        if elements.len() > from {
            let longest = list.elements();
            let common = elements.len().min(longest.len());
            if common < from
                || longest.first(common).after(from) != ListElements::Far(&elements[from..common])
            {
                self.others.push(elements.into());
                return (AccessKind::ReadOther, self.others.len() as i64 - 1);
            }
            list.extend(&elements[common..]);
            assert!(
                list.elements().len() >= elements.len(),
                "the longest list is shorter than a read of it"
            );
            if let Some(agreed) = agreed {
                *agreed = elements.len() as u32;
            }
        }
        (AccessKind::ReadPrefix, elements.len() as i64)
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The transaction with this number.
    pub(super) fn one(&self, number: u32) -> RecordedTransaction {
        self.records.one(number)
    }

    /// All transactions.
    pub(super) fn all(&self) -> impl Iterator<Item = RecordedTransaction> {
        (0..self.len() as u32).map(|number| self.one(number))
    }

    /// The micro-operations of a transaction.
    pub(super) fn events(&self, number: u32) -> TransactionAccesses {
        self.records.get(number).1
    }

    /// A transaction and its micro-operations.
    pub(super) fn get(&self, number: u32) -> (RecordedTransaction, TransactionAccesses) {
        self.records.get(number)
    }

    /// All transactions with their numbers and micro-operations.
    pub(super) fn each(
        &self,
    ) -> impl Iterator<Item = (u32, RecordedTransaction, TransactionAccesses)> {
        (0..self.len() as u32).map(|number| {
            let (one, events) = self.records.get(number);
            (number, one, events)
        })
    }

    /// The longest list that a successful transaction read of a key.
    pub(super) fn longest(&self, key: u32) -> ListElements<'_> {
        self.lists[key as usize].elements()
    }

    /// The list that a read returned; `None` for a write.
    pub(super) fn seen(&self, event: &MicroAccess) -> Option<ListElements<'_>> {
        match event.kind {
            AccessKind::ReadPrefix => Some(self.longest(event.key).first(event.value as usize)),
            AccessKind::ReadOther => self.other(event),
            AccessKind::ReadNothing | AccessKind::ReadValue => Some(ListElements::Far(&[])),
            AccessKind::Append | AccessKind::Write => None,
        }
    }

    /// The list that a read returned, if it contradicts the longest list.
    pub(super) fn other(&self, event: &MicroAccess) -> Option<ListElements<'_>> {
        let is_other = event.kind == AccessKind::ReadOther;
        is_other.then(|| ListElements::Far(&self.others[event.value as usize]))
    }

    pub(super) fn key_count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn session_count(&self) -> usize {
        self.sessions.count as usize
    }

    /// The name of a key.
    pub(super) fn name(&self, key: u32) -> &Key {
        &self.names[key as usize]
    }

    /// The transactions at these places of a certificate.
    pub(super) fn at_all(&self, places: &[u64]) -> Result<Vec<u32>, String> {
        let mut found = Vec::with_capacity(places.len());
        for &place in places {
            let number = self.records.at(place);
            found.push(number.ok_or_else(|| format!("no transaction begins at {place}"))?);
        }
        Ok(found)
    }

    /// The transactions with these indices, by index.
    pub(super) fn by_index(&self, wanted: impl Iterator<Item = u64>) -> BTreeMap<u64, u32> {
        let mut wanted: Vec<u64> = wanted.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let named = self.all().zip(0..);
        let named = named.filter(|(one, _)| wanted.binary_search(&one.index).is_ok());
        named.map(|(one, number)| (one.index, number)).collect()
    }
}

/// The keys of a chunk.
struct ChunkNames {
    /// By id in the chunk: the number of the key.
    keys: Vec<Option<NameNumber>>,
    /// By id in the chunk: how many elements of the chunk's list were compared with the longest list and agree with it.
    agreed: Vec<u32>,
}
