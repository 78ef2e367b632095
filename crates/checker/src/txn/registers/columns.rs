//! The columns.

use seatrial_history::import::registers::Stamp;
use seatrial_history::{Key, OpType};

/// No such transaction; no such position.
pub const NONE: u32 = u32::MAX;

/// The top bit of either word of an event.
const MARK: u32 = 1 << 31;

/// One read or write of a transaction: the key and the version, eight bytes with two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key; the top bit is set when the event is an inner one.
    key: u32,
    /// The version; the top bit is set for writes.
    version: u32,
}

impl Event {
    /// A read (or write) of this version of this key.
    pub(super) fn new(key: u32, version: u32, is_write: bool) -> Event {
        let mark = if is_write { MARK } else { 0 };
        let version = version | mark;
        Event { key, version }
    }

    /// The same as an inner one.
    pub(super) fn inner(self) -> Event {
        let key = self.key | MARK;
        Event { key, ..self }
    }

    /// The key's number.
    pub fn key(self) -> u32 {
        self.key & !MARK
    }

    /// The version's number.
    pub fn version(self) -> u32 {
        self.version & !MARK
    }

    /// Is it a write?
    pub fn is_write(self) -> bool {
        self.version & MARK != 0
    }

    /// Is it a read that its transaction's own writes do not answer: none of this key stands before it?
    pub fn is_external_read(self) -> bool {
        (self.key | self.version) & MARK == 0
    }

    /// Is it the last write of its key in its transaction?
    pub fn is_final_write(self) -> bool {
        self.is_write() && self.key & MARK == 0
    }

    /// Does a write of the same key stand before this read (or, if this is a write, behind it) in the same transaction?
    pub fn is_inner(self) -> bool {
        self.key & MARK != 0
    }
}

/// Register transactions in columns.
///
/// Transactions are numbered in the order of their invocations, or as they stand in a file without times; within a
/// session this is the program order. Keys are numbered in order of appearance. Versions are numbered over all keys:
/// version *k* below [`Columns::key_count`] is the initial state of key *k*, then come the values in order of
/// appearance, each (key, value) once. Nothing but names is as wide as in the file: 8 bytes an event, 16 a version
/// (name included), 9 a transaction, 8 more when it has times.
///
/// Its downside: everything is in memory, so a history of some 10^8 events is the end; and a value may be written only
/// once to a key, else nobody knows who was read.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub(super) keys: Vec<Key>,
    /// By session: its name.
    pub(super) clients: Vec<u64>,
    /// By transaction: its session.
    pub(super) sessions: Vec<u32>,
    /// By transaction: where its events begin; the end of the last one too.
    pub(super) starts: Vec<u32>,
    pub(super) outcomes: Vec<OpType>,
    /// By transaction: positions of invocation and completion; empty when nothing is known of any.
    pub(super) positions: Vec<(u32, u32)>,
    /// By transaction: when the database says that it was committed; empty unless it says so of all.
    pub(super) commits: Vec<Stamp>,
    /// Indices of operations by position, where they go on differently than one by one.
    pub(super) indices: Vec<(u32, u64)>,
    pub(super) events: Vec<Event>,
    /// By version behind the initial ones: who wrote it.
    pub(super) writers: Vec<u32>,
    pub(super) version_keys: Vec<u32>,
    pub(super) values: Vec<i64>,
    /// By version behind the initial ones: did its transaction overwrite it? A bit each.
    pub(super) overwritten: Vec<u64>,
    pub(super) happened: Vec<bool>,
}

impl Columns {
    /// Number of transactions, of any outcome.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Number of sessions.
    pub fn session_count(&self) -> usize {
        self.clients.len()
    }

    /// Number of keys.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Number of versions, the initial ones included.
    pub fn version_count(&self) -> usize {
        self.keys.len() + self.writers.len()
    }

    /// Number of reads and writes.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The session of each transaction.
    pub fn sessions(&self) -> &[u32] {
        &self.sessions
    }

    /// The process or session number that the file has for a session.
    pub fn client(&self, session: u32) -> u64 {
        self.clients[session as usize]
    }

    /// How each transaction ended: `ok`, `fail` or `info`.
    pub fn outcomes(&self) -> &[OpType] {
        &self.outcomes
    }

    /// Did it take place? It succeeded, or its outcome is unknown and a successful transaction read what it wrote. One
    /// of unknown outcome that nobody saw can always be left out: it would only add to what must be in order.
    pub fn happened(&self, transaction: u32) -> bool {
        self.happened[transaction as usize]
    }

    /// Position of its invocation in the history; [`NONE`] when nobody knows.
    pub fn begun(&self, transaction: u32) -> u32 {
        let known = self.positions.get(transaction as usize);
        known.map_or(NONE, |&(begun, _)| begun)
    }

    /// Position at which it certainly had ended: that of an `ok` completion, [`NONE`] of anything else. In real time *a*
    /// comes before *b* just when `ended(a) < begun(b)`.
    pub fn ended(&self, transaction: u32) -> u32 {
        if self.outcomes[transaction as usize] != OpType::Ok {
            return NONE;
        }
        let known = self.positions.get(transaction as usize);
        known.map_or(NONE, |&(_, ended)| ended)
    }

    /// When the database says that each transaction was committed; empty unless it says so of all. Nobody has checked that.
    pub fn commits(&self) -> &[Stamp] {
        &self.commits
    }

    /// Are invocations and completions known, so that there is a real time?
    pub fn has_times(&self) -> bool {
        !self.positions.is_empty()
    }

    /// What a transaction did, in order. Of one that failed or whose outcome is unknown only the writes.
    pub fn events(&self, transaction: u32) -> &[Event] {
        let transaction = transaction as usize;
        let range = self.starts[transaction] as usize..self.starts[transaction + 1] as usize;
        &self.events[range]
    }

    /// Is this version a key's initial state?
    pub fn is_initial(&self, version: u32) -> bool {
        (version as usize) < self.keys.len()
    }

    /// Where a version stands in the columns of versions; past their end for an initial one.
    fn place(&self, version: u32) -> usize {
        (version as usize).wrapping_sub(self.keys.len())
    }

    /// Who wrote a version; [`NONE`] for an initial one, and for one that somebody read but nobody ever wrote. A
    /// transaction that failed is named too.
    pub fn writer(&self, version: u32) -> u32 {
        let writer = self.writers.get(self.place(version));
        writer.copied().unwrap_or(NONE)
    }

    /// The key of a version.
    pub fn key_of(&self, version: u32) -> u32 {
        let key = self.version_keys.get(self.place(version));
        key.copied().unwrap_or(version)
    }

    /// The value of a version; `None` for an initial one.
    pub fn value(&self, version: u32) -> Option<i64> {
        self.values.get(self.place(version)).copied()
    }

    /// Did the transaction that wrote this version write the key again later?
    pub fn is_overwritten(&self, version: u32) -> bool {
        let place = self.place(version);
        let word = self.overwritten.get(place / 64);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// The name of a key.
    pub fn key(&self, key: u32) -> &Key {
        &self.keys[key as usize]
    }

    /// How many transactions ended so.
    pub fn count(&self, outcome: OpType) -> usize {
        let outcomes = self.outcomes.iter();
        outcomes.filter(|&&other| other == outcome).count()
    }

    /// The place of a transaction in a certificate: the position in the history of its invocation, of its completion when that
    /// alone was recorded; its number when the file knows no operations.
    pub fn recorded(&self, transaction: u32) -> u64 {
        let known = self.positions.get(transaction as usize);
        known.map_or(u64::from(transaction), |&(begun, ended)| {
            u64::from(if begun == NONE { ended } else { begun })
        })
    }

    /// The index of the operation that stands for a transaction: that of its completion, of its invocation when it has
    /// none. A file without times knows no operations; a history that is made of it has two for each transaction.
    pub fn index(&self, transaction: u32) -> u64 {
        let Some(&(begun, ended)) = self.positions.get(transaction as usize) else {
            return 2 * u64::from(transaction) + 1;
        };
        self.index_at(if ended == NONE { begun } else { ended })
    }

    /// The index of a transaction's invocation; `None` when nobody knows.
    pub fn invocation(&self, transaction: u32) -> Option<u64> {
        let begun = self.begun(transaction);
        (begun != NONE).then(|| self.index_at(begun))
    }

    fn index_at(&self, position: u32) -> u64 {
        let behind = self.indices.partition_point(|&(from, _)| from <= position);
        let known = behind.checked_sub(1).map(|place| self.indices[place]);
        known.map_or(u64::from(position), |(from, index)| {
            index + u64::from(position - from)
        })
    }
}
