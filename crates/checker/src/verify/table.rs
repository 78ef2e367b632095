//! What a certificate is replayed against: the transactions of a history, in columns.

use crate::certificate::Fingerprint;
use seatrial_history::chunk::{MopView, ValueView};
use seatrial_history::{Chunk, Key, OpType, Process};
use std::collections::BTreeMap;

/// No position, no transaction, no version.
pub(super) const NONE: u32 = u32::MAX;

/// One transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    /// The index of its completion, or of its invocation when it has none.
    pub(super) index: u64,
    /// Its place in a certificate.
    pub(super) place: u32,
    /// Position of its completion; [`NONE`] when there is none.
    pub(super) ended: u32,
    /// Its process, by number.
    pub(super) session: u32,
    /// Where its events are.
    start: u32,
    length: u32,
    outcome: OpType,
    /// Was its invocation recorded?
    is_invoked: bool,
}

impl Transaction {
    /// Position of its invocation, if that was recorded.
    pub(super) fn begun(&self) -> Option<u32> {
        self.is_invoked.then_some(self.place)
    }

    pub(super) fn is_ok(&self) -> bool {
        self.outcome == OpType::Ok
    }

    pub(super) fn is_fail(&self) -> bool {
        self.outcome == OpType::Fail
    }

    /// Had it ended before the other began?
    pub(super) fn is_over_before(&self, other: &Transaction) -> bool {
        self.is_ok() && other.begun().is_some_and(|begun| self.ended < begun)
    }

    /// Did their process run it, and later the other?
    pub(super) fn is_run_before(&self, other: &Transaction) -> bool {
        self.is_ok() && self.session == other.session && self.place < other.place
    }
}

/// What a micro-operation did, and what its value is then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Appended an element.
    Append,
    /// Wrote a value.
    Write,
    /// Read nothing: an empty list, an unborn register.
    ReadNothing,
    /// Read a value.
    ReadValue,
    /// Read so many elements of [`Table::longest`].
    ReadPrefix,
    /// Read the list of a number that is no such prefix.
    ReadOther,
}

/// One micro-operation. Of a transaction that did not succeed only what it may have written is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    value: i64,
    pub(super) key: u32,
    kind: Kind,
}

/// What a register holds: nothing at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) Option<i64>);

impl Event {
    /// What it appended.
    pub(super) fn appended(&self) -> Option<i64> {
        (self.kind == Kind::Append).then_some(self.value)
    }

    /// What it wrote to a register.
    pub(super) fn written(&self) -> Option<i64> {
        (self.kind == Kind::Write).then_some(self.value)
    }

    /// What it read of a register.
    pub(super) fn read(&self) -> Option<State> {
        match self.kind {
            Kind::ReadNothing => Some(State(None)),
            Kind::ReadValue => Some(State(Some(self.value))),
            _ => None,
        }
    }
}

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
/// A read of a list is kept as its length as long as it is a prefix of the longest list that was read of the key so far.
/// 32 bytes a transaction and 16 a micro-operation, whatever was read; a read that contradicts others is kept as it is.
#[derive(Default)]
pub(super) struct Table {
    pub(super) all: Vec<Transaction>,
    events: Vec<Event>,
    /// By key: its name, and the longest list that a successful transaction read of it.
    names: Vec<Key>,
    lists: Vec<Vec<i64>>,
    /// Lists that contradict those.
    others: Vec<Box<[i64]>>,
    numbers: Numbers,
    sessions: Numbers,
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
    /// Its number, and the position of its invocation; `None`: there is none.
    begun: Option<(u32, u64)>,
    /// Is it one?
    is_transaction: bool,
    /// What it may write. The memory is used again.
    writes: Vec<Event>,
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
        self.fingerprint.operations += chunk.len() as u64;
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
            let number = self.begin(index, session, position, true);
            let mut writes = std::mem::take(&mut self.open[session].writes);
            writes.clear();
            let is_transaction = self.tell_events(chunk, place, names, false, &mut writes);
            self.open[session] = Open {
                begun: Some((number, position)),
                is_transaction,
                writes,
            };
            return;
        }
        let number = match (chunk.invocation(place), self.open[session].begun) {
            (Some(invocation), Some((number, begun))) if invocation == begun => number,
            (Some(_), _) => return self.refuse(format!("op {index} completes what never began")),
            (None, _) if kind == OpType::Ok => self.begin(index, session, position, false),
            (None, _) => return,
        };
        let one = &mut self.all[number as usize];
        one.index = index;
        one.ended = position as u32;
        if kind != OpType::Ok {
            return self.close(session, kind);
        }
        let start = self.events.len();
        let mut events = std::mem::take(&mut self.events);
        let is_transaction = self.tell_events(chunk, place, names, true, &mut events);
        self.events = events;
        self.note(number, kind, start, is_transaction);
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

    fn begin(&mut self, index: u64, session: usize, position: u64, is_invoked: bool) -> u32 {
        self.all.push(Transaction {
            index,
            place: position as u32,
            ended: NONE,
            session: session as u32,
            start: 0,
            length: 0,
            outcome: OpType::Info,
            is_invoked,
        });
        self.all.len() as u32 - 1
    }

    /// What is open in a session, if anything, has no completion.
    fn give_up(&mut self, session: usize) {
        self.close(session, OpType::Info);
    }

    /// What is open in a session, if anything, ended without success: what it may have written is known.
    fn close(&mut self, session: usize, outcome: OpType) {
        let open = &mut self.open[session];
        let Some((number, _)) = open.begun.take() else {
            return;
        };
        let (start, is_transaction) = (self.events.len(), open.is_transaction);
        self.events.append(&mut open.writes);
        self.note(number, outcome, start, is_transaction);
    }

    /// Notes how a transaction ended, whose events begin at `start`.
    fn note(&mut self, number: u32, outcome: OpType, start: usize, is_transaction: bool) {
        let one = &mut self.all[number as usize];
        one.outcome = outcome;
        one.start = start as u32;
        one.length = (self.events.len() - start) as u32;
        let index = one.index;
        if !is_transaction {
            self.refuse(format!("op {index} is no transaction"));
        }
        if self.events.len() >= NONE as usize {
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
                self.lists.push(Vec::new());
            }
        }
        *known
    }

    /// A read of a list. `agreed`: the elements of the chunk's list, of which this is a prefix, that are known to be those of the
    /// longest one.
    fn list_read(&mut self, key: u32, elements: &[i64], agreed: Option<&mut u32>) -> (Kind, i64) {
        let longest = &mut self.lists[key as usize];
        let from = agreed.as_ref().map_or(0, |agreed| **agreed as usize);
        if elements.len() > from {
            let common = elements.len().min(longest.len());
            if common < from || elements[from..common] != longest[from..common] {
                self.others.push(elements.into());
                return (Kind::ReadOther, self.others.len() as i64 - 1);
            }
            longest.extend_from_slice(&elements[common..]);
            if let Some(agreed) = agreed {
                *agreed = elements.len() as u32;
            }
        }
        (Kind::ReadPrefix, elements.len() as i64)
    }

    /// What a transaction did.
    pub(super) fn events(&self, number: u32) -> &[Event] {
        let one = &self.all[number as usize];
        &self.events[one.start as usize..(one.start + one.length) as usize]
    }

    /// The same with the numbers of all.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, &Transaction, &[Event])> {
        let all = self.all.iter().enumerate();
        all.map(|(number, one)| (number as u32, one, self.events(number as u32)))
    }

    /// The longest list that a successful transaction read of a key.
    pub(super) fn longest(&self, key: u32) -> &[i64] {
        &self.lists[key as usize]
    }

    /// What a read saw of a list; `None` if it is no read.
    pub(super) fn seen(&self, event: &Event) -> Option<&[i64]> {
        match event.kind {
            Kind::ReadPrefix => Some(&self.longest(event.key)[..event.value as usize]),
            Kind::ReadOther => self.other(event),
            Kind::ReadNothing | Kind::ReadValue => Some(&[]),
            Kind::Append | Kind::Write => None,
        }
    }

    /// What a read saw, if that contradicts the longest list.
    pub(super) fn other(&self, event: &Event) -> Option<&[i64]> {
        let is_other = event.kind == Kind::ReadOther;
        is_other.then(|| &*self.others[event.value as usize])
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
        let end = self.all.last().map_or(0, |last| last.place as usize + 1);
        // By place: the transaction.
        let mut numbers = vec![NONE; end];
        for (number, one) in self.all.iter().enumerate() {
            numbers[one.place as usize] = number as u32;
        }
        let found = places.iter().map(|&place| {
            let number = usize::try_from(place).ok().and_then(|at| numbers.get(at));
            let number = number.copied().filter(|&number| number != NONE);
            number.ok_or_else(|| format!("no transaction begins at {place}"))
        });
        found.collect()
    }

    /// The transactions that these indices name.
    pub(super) fn by_index(&self, wanted: impl Iterator<Item = u64>) -> BTreeMap<u64, u32> {
        let mut wanted: Vec<u64> = wanted.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let all = self.all.iter().enumerate();
        let named = all.filter(|(_, one)| wanted.binary_search(&one.index).is_ok());
        named
            .map(|(number, one)| (one.index, number as u32))
            .collect()
    }
}

/// What is known of the keys of a chunk.
struct Names {
    /// By id: the number.
    keys: Vec<u32>,
    /// By id: so many elements of the chunk's list are known to be in the longest one.
    agreed: Vec<u32>,
}
