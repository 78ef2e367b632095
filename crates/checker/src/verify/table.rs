//! What a certificate is replayed against: the transactions of a history, in columns.

use super::elements::{Elements, List};
pub(super) use super::records::{Event, State, Transaction};
use super::records::{Events, Kind, Records};
use crate::certificate::Fingerprint;
use seatrial_history::chunk::{MopView, ValueView};
use seatrial_history::{Chunk, Key, OpType, Process};
use std::collections::BTreeMap;

/// No position, no transaction, no version.
pub(super) const NONE: u32 = u32::MAX;

/// Numbers from 0 on for names, in the order in which they come.
#[derive(Default)]
struct Numbers {
    /// Of small integers; [`NONE`]: not seen yet.
    low: Vec<u32>,
    others: BTreeMap<Key, u32>,
    count: u32,
}

/// Integers below are found without a search.
const LOW: usize = 1 << 24;

impl Numbers {
    /// The number of a name, and is it new?
    fn of(&mut self, name: &Key) -> (u32, bool) {
        let integer = match name {
            Key::Int(integer) => usize::try_from(*integer).ok(),
            _ => None,
        };
        let known = match integer.filter(|&integer| integer < LOW) {
            Some(integer) => {
                if self.low.len() <= integer {
                    self.low.resize(integer + 1, NONE);
                }
                &mut self.low[integer]
            }
            None => self.others.entry(name.clone()).or_insert(NONE),
        };
        let is_new = *known == NONE;
        if is_new {
            *known = self.count;
            self.count += 1;
        }
        (*known, is_new)
    }
}

/// All transactions of clients, in the order of their places.
///
/// A read of a list is kept as its length as long as it is a prefix of the longest list that was read of the key so far, and that
/// list once, two bytes an element while its elements are near one another; a read that contradicts others is kept as it is. What
/// transactions take: [`Records`].
#[derive(Default)]
pub(super) struct Table {
    records: Records,
    /// By key: its name, and the longest list that a successful transaction read of it.
    names: Vec<Key>,
    lists: Vec<List>,
    /// Lists that contradict those.
    others: Vec<Box<[i64]>>,
    numbers: Numbers,
    sessions: Numbers,
    /// What a transaction did that ends. The memory is used again.
    events: Vec<Event>,
    /// Micro-operations of all.
    event_count: u64,
    /// By session: its last transaction, while that has no completion.
    open: Vec<Open>,
    /// Does anybody touch a list, or a register?
    pub(super) is_of_lists: bool,
    pub(super) is_of_registers: bool,
    /// Why this is no history of transactions.
    refusal: Option<String>,
    /// What tells this history from others.
    pub(super) fingerprint: Fingerprint,
}

/// A transaction without a completion so far.
#[derive(Default)]
struct Open {
    begun: Option<Begun>,
    /// Is it one?
    is_transaction: bool,
    /// What it may write. The memory is used again.
    writes: Vec<Event>,
}

/// Where a transaction began.
#[derive(Clone, Copy)]
struct Begun {
    number: u32,
    /// The position of its invocation; of its completion if that alone was recorded.
    position: u64,
    index: u64,
    is_invoked: bool,
}

impl Table {
    /// One more chunk, behind those before.
    pub(super) fn take(&mut self, chunk: &Chunk) {
        if chunk.first_position() + chunk.len() as u64 >= u64::from(NONE) {
            self.refuse("the history has more than 2^32 operations".into());
        }
        let mut names = Names {
            keys: vec![NONE; chunk.key_count()],
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

    /// The history has no more chunks.
    pub(super) fn end(&mut self) -> Result<(), String> {
        for session in 0..self.open.len() {
            self.give_up(session);
        }
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

    fn operation(&mut self, chunk: &Chunk, place: usize, client: u64, names: &mut Names) {
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
            let is_transaction = self.tell_events(chunk, place, names, false, &mut writes);
            self.open[session] = Open {
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
        let is_transaction = self.tell_events(chunk, place, names, true, &mut events);
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
            self.open.push(Open::default());
        }
        session as usize
    }

    fn begin(&mut self, index: u64, position: u64, is_invoked: bool) -> Begun {
        let number = self.records.begin(position as u32, self.names.len());
        Begun {
            number,
            position,
            index,
            is_invoked,
        }
    }

    /// What is open in a session, if anything, has no completion.
    fn give_up(&mut self, session: usize) {
        self.close(session, OpType::Info, None);
    }

    /// What is open in a session, if anything, ended without success (with this index, at this position, if it did): what it may
    /// have written is known.
    fn close(&mut self, session: usize, outcome: OpType, end: Option<(u64, u64)>) {
        let open = &mut self.open[session];
        let Some(begun) = open.begun.take() else {
            return;
        };
        let (writes, is_transaction) = (std::mem::take(&mut open.writes), open.is_transaction);
        self.note(begun, session, outcome, end, (&writes, is_transaction));
        self.open[session].writes = writes;
    }

    /// Notes how a transaction ended, and what it did; `false`: it is no transaction.
    fn note(
        &mut self,
        begun: Begun,
        session: usize,
        outcome: OpType,
        end: Option<(u64, u64)>,
        (events, is_transaction): (&[Event], bool),
    ) {
        let (index, ended) = match end {
            Some((index, position)) => (index, position as u32),
            None => (begun.index, NONE),
        };
        let one = Transaction {
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
        if self.event_count >= u64::from(NONE) {
            self.refuse("the history has more than 2^32 micro-operations".into());
        }
    }

    /// What the operation at `place` did: writes, and reads as well if they are known. `false`: it is no transaction.
    fn tell_events(
        &mut self,
        chunk: &Chunk,
        place: usize,
        names: &mut Names,
        reads: bool,
        events: &mut Vec<Event>,
    ) -> bool {
        let ValueView::Txn(mops) = chunk.value(place) else {
            return false;
        };
        for mop in mops.iter() {
            // What the fingerprint has of a read list: its length and its last element.
            let mut shown = None;
            let (kind, value) = match mop {
                MopView::Append { element, .. } => (Kind::Append, element),
                MopView::Write { value, .. } => (Kind::Write, value),
                _ if !reads => continue,
                MopView::ReadNil { .. } => (Kind::ReadNothing, 0),
                MopView::ReadRegister { value, .. } => (Kind::ReadValue, value),
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
                Kind::Append | Kind::ReadPrefix | Kind::ReadOther => self.is_of_lists = true,
                Kind::Write | Kind::ReadValue => self.is_of_registers = true,
                Kind::ReadNothing => {}
            }
            let key = self.key(chunk, mop.key(), names);
            let (code, word) = match (kind, shown) {
                (Kind::Append, _) => (1, value),
                (Kind::Write, _) => (2, value),
                (Kind::ReadValue, _) => (4, value),
                (_, None) => (3, 0),
                (_, Some((length, last))) => (5 + 8 * length as u64, last),
            };
            self.fingerprint.mix(u64::from(key) << 40 ^ code);
            self.fingerprint.mix(word.cast_unsigned());
            events.push(Event { value, key, kind });
        }
        true
    }

    /// The number of a key.
    fn key(&mut self, chunk: &Chunk, id: u32, names: &mut Names) -> u32 {
        let known = &mut names.keys[id as usize];
        if *known == NONE {
            let key = chunk.key(id);
            let (number, is_new) = self.numbers.of(key);
            *known = number;
            if is_new {
                self.fingerprint.mix_name(key);
                self.names.push(key.clone());
                self.lists.push(List::default());
            }
        }
        *known
    }

    /// A read of a list. `agreed`: the elements of the chunk's list, of which this is a prefix, that are known to be those of the
    /// longest one.
    fn list_read(&mut self, key: u32, elements: &[i64], agreed: Option<&mut u32>) -> (Kind, i64) {
        let list = &mut self.lists[key as usize];
        let from = agreed.as_ref().map_or(0, |agreed| **agreed as usize);
        if elements.len() > from {
            let longest = list.elements();
            let common = elements.len().min(longest.len());
            if common < from
                || longest.first(common).after(from) != Elements::Far(&elements[from..common])
            {
                self.others.push(elements.into());
                return (Kind::ReadOther, self.others.len() as i64 - 1);
            }
            list.extend(&elements[common..]);
            if let Some(agreed) = agreed {
                *agreed = elements.len() as u32;
            }
        }
        (Kind::ReadPrefix, elements.len() as i64)
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The transaction of this number.
    pub(super) fn one(&self, number: u32) -> Transaction {
        self.records.one(number)
    }

    /// All transactions.
    pub(super) fn all(&self) -> impl Iterator<Item = Transaction> {
        (0..self.len() as u32).map(|number| self.one(number))
    }

    /// What a transaction did.
    pub(super) fn events(&self, number: u32) -> Events {
        self.records.get(number).1
    }

    /// A transaction and what it did.
    pub(super) fn get(&self, number: u32) -> (Transaction, Events) {
        self.records.get(number)
    }

    /// The same of all, with their numbers.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, Transaction, Events)> {
        (0..self.len() as u32).map(|number| {
            let (one, events) = self.records.get(number);
            (number, one, events)
        })
    }

    /// The longest list that a successful transaction read of a key.
    pub(super) fn longest(&self, key: u32) -> Elements<'_> {
        self.lists[key as usize].elements()
    }

    /// What a read saw of a list; `None` if it is no read.
    pub(super) fn seen(&self, event: &Event) -> Option<Elements<'_>> {
        match event.kind {
            Kind::ReadPrefix => Some(self.longest(event.key).first(event.value as usize)),
            Kind::ReadOther => self.other(event),
            Kind::ReadNothing | Kind::ReadValue => Some(Elements::Far(&[])),
            Kind::Append | Kind::Write => None,
        }
    }

    /// What a read saw, if that contradicts the longest list.
    pub(super) fn other(&self, event: &Event) -> Option<Elements<'_>> {
        let is_other = event.kind == Kind::ReadOther;
        is_other.then(|| Elements::Far(&self.others[event.value as usize]))
    }

    pub(super) fn key_count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn session_count(&self) -> usize {
        self.sessions.count as usize
    }

    /// A key's name.
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

    /// The transactions that these indices name.
    pub(super) fn by_index(&self, wanted: impl Iterator<Item = u64>) -> BTreeMap<u64, u32> {
        let mut wanted: Vec<u64> = wanted.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let named = self.all().zip(0..);
        let named = named.filter(|(one, _)| wanted.binary_search(&one.index).is_ok());
        named.map(|(one, number)| (one.index, number)).collect()
    }
}

/// What is known of the keys of a chunk.
struct Names {
    /// By id: the number.
    keys: Vec<u32>,
    /// By id: so many elements of the chunk's list are known to be in the longest one.
    agreed: Vec<u32>,
}
