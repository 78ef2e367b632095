//! What a certificate is replayed against: the transactions of a history, in columns.

use seatrial_history::chunk::{MopView, ValueView};
use seatrial_history::{Chunk, Key, OpType, Process};
use std::collections::{BTreeMap, BTreeSet};

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

/// What a micro-operation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    /// Appended this element.
    Append(i64),
    /// Wrote this value.
    Write(i64),
    /// Read nothing: an empty list, an unborn register.
    ReadNothing,
    /// Read this value.
    ReadValue(i64),
    /// Read so many elements of [`Table::longest`].
    ReadPrefix(u32),
    /// Read the list of this number that is no such prefix.
    ReadOther(u32),
}

/// One micro-operation. Of a transaction that did not succeed only what it may have written is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) key: u32,
    pub(super) did: Did,
}

/// What a register holds: nothing at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) Option<i64>);

impl Event {
    /// What it appended.
    pub(super) fn appended(&self) -> Option<i64> {
        match self.did {
            Did::Append(element) => Some(element),
            _ => None,
        }
    }

    /// What it wrote to a register.
    pub(super) fn written(&self) -> Option<i64> {
        match self.did {
            Did::Write(value) => Some(value),
            _ => None,
        }
    }

    /// What it read of a register.
    pub(super) fn read(&self) -> Option<State> {
        match self.did {
            Did::ReadNothing => Some(State(None)),
            Did::ReadValue(value) => Some(State(Some(value))),
            _ => None,
        }
    }
}

/// All transactions of clients, in the order of their places.
///
/// A read of a list is kept as its length as long as it is a prefix of the longest list that was read of the key so far.
/// About 40 bytes a transaction and 16 a micro-operation, whatever was read; a read that contradicts others is kept as it is.
#[derive(Default)]
pub(super) struct Table {
    pub(super) all: Vec<Transaction>,
    events: Vec<Event>,
    /// By key: its name, and the longest list that a successful transaction read of it.
    names: Vec<Key>,
    lists: Vec<Vec<i64>>,
    /// Lists that contradict those.
    others: Vec<Box<[i64]>>,
    numbers: BTreeMap<Key, u32>,
    sessions: BTreeMap<u64, u32>,
    /// By position of an invocation: transactions without a completion so far.
    open: BTreeMap<u64, Open>,
    /// Does anybody touch a list, or a register?
    pub(super) is_of_lists: bool,
    is_of_registers: bool,
    /// Why this is no history of transactions.
    refusal: Option<String>,
}

/// A transaction without a completion so far: what it may write, or that it is none.
struct Open {
    number: u32,
    writes: Option<Vec<Event>>,
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
        for (position, open) in std::mem::take(&mut self.open) {
            self.close(open, OpType::Info, None, position);
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
        let kind = chunk.kinds()[place];
        if kind == OpType::Invoke {
            let number = self.begin(chunk.index(place), client, position, true);
            let writes = self.events_of(chunk, place, names, false);
            self.open.insert(position, Open { number, writes });
            return;
        }
        let open = match chunk.invocation(place) {
            Some(invocation) => self.open.remove(&invocation),
            None if kind == OpType::Ok => {
                let number = self.begin(chunk.index(place), client, position, false);
                let writes = None;
                Some(Open { number, writes })
            }
            None => None,
        };
        let Some(mut open) = open else { return };
        if kind == OpType::Ok {
            open.writes = self.events_of(chunk, place, names, true);
        }
        self.close(open, kind, Some(position), chunk.index(place));
    }

    fn begin(&mut self, index: u64, client: u64, position: u64, is_invoked: bool) -> u32 {
        let sessions = self.sessions.len() as u32;
        let session = *self.sessions.entry(client).or_insert(sessions);
        self.all.push(Transaction {
            index,
            place: position as u32,
            ended: NONE,
            session,
            start: 0,
            length: 0,
            outcome: OpType::Info,
            is_invoked,
        });
        self.all.len() as u32 - 1
    }

    /// Notes how a transaction ended; `index` is that of its completion, if it has one.
    fn close(&mut self, open: Open, outcome: OpType, ended: Option<u64>, index: u64) {
        let start = self.events.len();
        let one = &mut self.all[open.number as usize];
        if ended.is_some() {
            one.index = index;
        }
        let Some(writes) = open.writes else {
            let reason = format!("op {} is no transaction", one.index);
            return self.refuse(reason);
        };
        one.ended = ended.map_or(NONE, |position| position as u32);
        one.outcome = outcome;
        one.start = start as u32;
        one.length = writes.len() as u32;
        self.events.extend(writes);
        if self.events.len() >= NONE as usize {
            self.refuse("the history has more than 2^32 micro-operations".into());
        }
    }

    /// What the operation at `place` did: writes, and reads as well if they are known. `None`: it is no transaction.
    fn events_of(
        &mut self,
        chunk: &Chunk,
        place: usize,
        names: &mut Names,
        reads: bool,
    ) -> Option<Vec<Event>> {
        let ValueView::Txn(mops) = chunk.value(place) else {
            return None;
        };
        let mut events = Vec::with_capacity(mops.len());
        for mop in mops.iter() {
            let id = mop.key();
            let did = match mop {
                MopView::Append { element, .. } => {
                    self.is_of_lists = true;
                    Did::Append(element)
                }
                MopView::Write { value, .. } => {
                    self.is_of_registers = true;
                    Did::Write(value)
                }
                _ if !reads => continue,
                MopView::ReadNil { .. } => Did::ReadNothing,
                MopView::ReadRegister { value, .. } => {
                    self.is_of_registers = true;
                    Did::ReadValue(value)
                }
                MopView::ReadList {
                    elements, shared, ..
                } => {
                    self.is_of_lists = true;
                    let key = self.key(chunk, id, names);
                    let agreed = &mut names.agreed[id as usize];
                    self.list_read(key, elements, shared.then_some(agreed))
                }
            };
            let key = self.key(chunk, id, names);
            events.push(Event { key, did });
        }
        Some(events)
    }

    /// The number of a key.
    fn key(&mut self, chunk: &Chunk, id: u32, names: &mut Names) -> u32 {
        let known = &mut names.keys[id as usize];
        if *known == NONE {
            let key = chunk.key(id);
            let next = self.names.len() as u32;
            *known = *self.numbers.entry(key.clone()).or_insert(next);
            if *known == next {
                self.names.push(key.clone());
                self.lists.push(Vec::new());
            }
        }
        *known
    }

    /// A read of a list. `agreed`: the elements of the chunk's list, of which this is a prefix, that are known to be those of the
    /// longest one.
    fn list_read(&mut self, key: u32, elements: &[i64], agreed: Option<&mut u32>) -> Did {
        let longest = &mut self.lists[key as usize];
        let from = agreed.as_ref().map_or(0, |agreed| **agreed as usize);
        if elements.len() > from {
            let common = elements.len().min(longest.len());
            if common < from || elements[from..common] != longest[from..common] {
                self.others.push(elements.into());
                return Did::ReadOther(self.others.len() as u32 - 1);
            }
            longest.extend_from_slice(&elements[common..]);
            if let Some(agreed) = agreed {
                *agreed = elements.len() as u32;
            }
        }
        Did::ReadPrefix(elements.len() as u32)
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
        match event.did {
            Did::ReadPrefix(length) => Some(&self.longest(event.key)[..length as usize]),
            Did::ReadOther(number) => Some(&self.others[number as usize]),
            Did::ReadNothing | Did::ReadValue(_) => Some(&[]),
            Did::Append(_) | Did::Write(_) => None,
        }
    }

    /// What a read saw, if that contradicts the longest list.
    pub(super) fn other(&self, event: &Event) -> Option<&[i64]> {
        match event.did {
            Did::ReadOther(number) => Some(&self.others[number as usize]),
            _ => None,
        }
    }

    pub(super) fn key_count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// A key's name.
    pub(super) fn name(&self, key: u32) -> &Key {
        &self.names[key as usize]
    }

    /// The transaction at a place of a certificate.
    pub(super) fn at(&self, place: u64) -> Option<u32> {
        let found = self
            .all
            .binary_search_by_key(&place, |one| u64::from(one.place));
        found.ok().map(|number| number as u32)
    }

    /// The transactions at these places.
    pub(super) fn at_all(&self, places: &[u64]) -> Result<Vec<u32>, String> {
        let found = places.iter().map(|&place| {
            let found = self.at(place);
            found.ok_or_else(|| format!("no transaction begins at {place}"))
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

/// What was written, so that it is found by key and value.
pub(super) struct Written {
    /// Sorted by key, value and writer.
    all: Vec<Write>,
}

/// A write; the writer's number is doubled, and one more if it wrote the key again afterwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    key: u32,
    writer: u32,
    value: i64,
}

/// Who wrote a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) transaction: u32,
    /// Was this the last that it wrote to the key?
    pub(super) is_last: bool,
}

impl Write {
    fn writer(self) -> Writer {
        Writer {
            transaction: self.writer / 2,
            is_last: self.writer & 1 == 0,
        }
    }
}

impl Written {
    /// What these transactions append or write.
    pub(super) fn new(table: &Table, whose: impl Fn(u32) -> bool) -> Written {
        let mut all = Vec::new();
        let mut keys = BTreeSet::new();
        for (number, _, events) in table.each().filter(|(number, ..)| whose(*number)) {
            keys.clear();
            for event in events.iter().rev() {
                if let Some(value) = event.appended().or(event.written()) {
                    let key = event.key;
                    let writer = 2 * number + u32::from(!keys.insert(key));
                    all.push(Write { key, writer, value });
                }
            }
        }
        all.sort_unstable_by_key(|one| (one.key, one.value, one.writer));
        Written { all }
    }

    /// Who wrote a value to a key.
    pub(super) fn of(&self, key: u32, value: i64) -> impl Iterator<Item = Writer> {
        let start = self
            .all
            .partition_point(|one| (one.key, one.value) < (key, value));
        let rest = self.all[start..].iter();
        let same = rest.take_while(move |one| (one.key, one.value) == (key, value));
        same.map(|one| one.writer())
    }

    /// A value that two of these wrote to a key, if there is any: key, value.
    pub(super) fn twice(&self, counts: impl Fn(u32) -> bool) -> Option<(u32, i64)> {
        let mut groups = self
            .all
            .chunk_by(|a, b| (a.key, a.value) == (b.key, b.value));
        let found = groups.find(|group| {
            let writers = group.iter().map(|one| one.writer().transaction);
            writers.filter(|&one| counts(one)).count() > 1
        })?;
        Some((found[0].key, found[0].value))
    }
}
