//! The table of register transactions in columns.

use crate::recorded_transactions::{ProcessNumber, TransactionColumns};
use seatrial_cycles::{Csr, KeyId, Position, Txn, Version};
use seatrial_history::Stamp;
use seatrial_history::{Key, OpType};

/// The top bit of either word of an event: a flag.
const MARK: u32 = 1 << 31;

/// One read or write of a transaction: the key and the version, eight bytes with two flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterEvent {
    /// The key; the top bit is set for inner events.
    key: u32,
    /// The version; the top bit is set for writes.
    version: u32,
}

impl RegisterEvent {
    /// A read (or write) of this version of this key, external or final until it is marked as inner.
    pub(super) fn new(key: KeyId, version: u32, is_write: bool) -> RegisterEvent {
        let key = key.get();
        debug_assert!(
            (key | version) & MARK == 0,
            "a number is as large as a flag"
        );
        let mark = if is_write { MARK } else { 0 };
        let version = version | mark;
        RegisterEvent { key, version }
    }

    /// The same, marked as inner.
    pub(super) fn inner(self) -> RegisterEvent {
        let key = self.key | MARK;
        RegisterEvent { key, ..self }
    }

    /// The key's number.
    pub fn key(self) -> u32 {
        self.key & !MARK
    }

    /// The version.
    pub fn version(self) -> Version {
        Version::new(self.version & !MARK)
    }

    /// Is it a write?
    pub fn is_write(self) -> bool {
        self.version & MARK != 0
    }

    /// Is it a read that depends on other transactions: no write of its key is before it in its own transaction?
    pub fn is_external_read(self) -> bool {
        (self.key | self.version) & MARK == 0
    }

    /// Is it the last write of its key in its transaction?
    pub fn is_final_write(self) -> bool {
        self.is_write() && self.key & MARK == 0
    }

    /// Is there a write of the same key before this read (or, if this is a write, after it) in the same transaction?
    pub fn is_inner(self) -> bool {
        self.key & MARK != 0
    }
}

/// Register transactions in columns.
///
/// ```text
///   transaction   0        1              the transaction table, commits, happened
///   events        w x 1    r x 1   r y 0  8 bytes each: key and version, with flags
///   version       0: x initial   1: y initial   2: x = 1   writers, version_keys, values, overwritten
/// ```
///
/// Transactions are numbered in the order of their invocations, or as a file without times lists them; within a session
/// this is the program order. Keys are numbered in order of appearance. Versions are numbered over all keys: version *k*
/// below [`Columns::key_count`] is the initial state of key *k*, then come the values in order of appearance, each (key,
/// value) once. Memory: 8 bytes an event, 16 a version (value included), 18 a transaction.
///
/// Its limits: everything is in memory, so a history of more than some 10^8 events is too large; and a value may be
/// written only once to a key, otherwise a read does not show which write it saw.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub(super) keys: Vec<Key>,
    /// By session: its name in the file.
    pub(super) clients: Vec<u64>,
    /// Process, invocation, completion and status.
    pub(super) table: TransactionColumns,
    /// Is a position of any transaction known?
    pub(super) has_times: bool,
    /// By transaction: the commit timestamp of the database; empty unless all have one.
    pub(super) commits: Vec<Stamp>,
    /// Where indices of operations do not follow one another: from this position on they start at this index.
    pub(super) indices: Vec<(u32, u64)>,
    /// By transaction: its reads and writes.
    pub(super) events: Csr<RegisterEvent>,
    /// By version after the initial ones: the transaction that wrote it.
    pub(super) writers: Vec<Option<Txn>>,
    pub(super) version_keys: Vec<u32>,
    pub(super) values: Vec<i64>,
    /// By version after the initial ones: did its transaction overwrite it? A bit each.
    pub(super) overwritten: Vec<u64>,
    pub(super) happened: Vec<bool>,
}

impl Columns {
    /// Asserts that all columns of a table have the length of their table, and refer to what is there.
    pub(super) fn assert_complete(&self) {
        let transactions = self.len();
        self.table.assert_complete();
        assert_eq!(self.happened.len(), transactions);
        assert_eq!(self.events.row_count(), transactions);
        assert!(self.commits.is_empty() || self.commits.len() == transactions);
        assert!(
            self.sessions()
                .iter()
                .all(|session| session.index() < self.clients.len()),
            "a transaction has no session"
        );
        let versions = self.writers.len();
        assert_eq!(self.version_keys.len(), versions);
        assert_eq!(self.values.len(), versions);
        assert_eq!(self.overwritten.len(), versions.div_ceil(64));
        assert!(
            self.writers
                .iter()
                .flatten()
                .all(|writer| writer.index() < transactions),
            "a version has a writer that does not exist"
        );
        assert!(
            self.version_keys
                .iter()
                .all(|&key| (key as usize) < self.keys.len()),
            "a version has no key"
        );
        // One test for each event would be seen in measurements; the tests of the columns make it.
        debug_assert!(
            self.events
                .items()
                .iter()
                .all(|event| self.key_of(event.version()) == event.key()),
            "an event has a version of another key"
        );
        debug_assert!(
            self.indices.is_sorted(),
            "indices are not sorted by position"
        );
    }

    /// Number of transactions, of any outcome.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Are there no transactions?
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
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
        self.events.item_count()
    }

    /// The session of each transaction.
    pub fn sessions(&self) -> &[ProcessNumber] {
        self.table.processes()
    }

    /// The process or session number that the file has for a session.
    pub fn client(&self, session: ProcessNumber) -> u64 {
        self.clients[session.index()]
    }

    /// By transaction: `ok`, `fail` or `info`.
    pub fn outcomes(&self) -> &[OpType] {
        self.table.outcomes()
    }

    /// Did it take place? It succeeded, or its outcome is unknown and a successful transaction read what it wrote. One of
    /// unknown outcome that was not read can always be left out: it would only add to what must be in order.
    pub fn happened(&self, transaction: u32) -> bool {
        self.happened[transaction as usize]
    }

    /// Position of its invocation in the history, if known.
    pub fn begun(&self, transaction: u32) -> Option<Position> {
        self.table.invocation(Txn::new(transaction))
    }

    /// Position at which it certainly had ended: that of an `ok` completion, `None` for any other. In real time *a* comes
    /// before *b* if and only if both are known and `ended(a) < begun(b)`.
    pub fn ended(&self, transaction: u32) -> Option<Position> {
        let transaction = Txn::new(transaction);
        let completion = self.table.completion(transaction);
        completion.filter(|_| self.table.is_ok(transaction))
    }

    /// By transaction: the commit timestamp of the database, unchecked; empty unless all have one.
    pub fn commits(&self) -> &[Stamp] {
        &self.commits
    }

    /// Are invocations and completions known, so that there is a real-time order?
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// The events of a transaction in order; only the writes if it failed or its outcome is unknown.
    pub fn events(&self, transaction: u32) -> &[RegisterEvent] {
        self.events.row(transaction)
    }

    /// Is this version the initial state of a key?
    pub fn is_initial(&self, version: Version) -> bool {
        version.index() < self.keys.len()
    }

    /// The index of a version in the columns of versions; past their end for an initial one.
    fn place(&self, version: Version) -> usize {
        version.index().wrapping_sub(self.keys.len())
    }

    /// The transaction that wrote a version, even if it failed; `None` for an initial version and for one that was read
    /// but never written.
    pub fn writer(&self, version: Version) -> Option<Txn> {
        self.writers.get(self.place(version)).copied().flatten()
    }

    /// The key of a version.
    pub fn key_of(&self, version: Version) -> u32 {
        let key = self.version_keys.get(self.place(version));
        // An initial state has the number of its key.
        key.copied().unwrap_or(version.get())
    }

    /// The value of a version; `None` for an initial one.
    pub fn value(&self, version: Version) -> Option<i64> {
        self.values.get(self.place(version)).copied()
    }

    /// Did the transaction that wrote this version write the key again later?
    pub fn is_overwritten(&self, version: Version) -> bool {
        let place = self.place(version);
        let word = self.overwritten.get(place / 64);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// The name of a key.
    pub fn key(&self, key: u32) -> &Key {
        &self.keys[key as usize]
    }

    /// Number of transactions with this outcome.
    pub fn count(&self, outcome: OpType) -> usize {
        let outcomes = self.outcomes().iter();
        outcomes.filter(|&&other| other == outcome).count()
    }

    /// The place of a transaction in a certificate: the position in the history of its invocation, of its completion if
    /// only that was recorded; its number if the file has no operations.
    pub fn recorded(&self, transaction: u32) -> u64 {
        if self.has_times {
            u64::from(self.table.recorded(Txn::new(transaction)).get())
        } else {
            u64::from(transaction)
        }
    }

    /// The index of the operation that stands for a transaction: of its completion, or of its invocation if it has none. A
    /// file without times has no operations; a history made from it has two for each transaction.
    pub fn index(&self, transaction: u32) -> u64 {
        if !self.has_times {
            return 2 * u64::from(transaction) + 1;
        }
        let transaction = Txn::new(transaction);
        let completion = self.table.completion(transaction);
        self.index_at(completion.unwrap_or_else(|| self.table.recorded(transaction)))
    }

    /// The index of a transaction's invocation; `None` if unknown.
    pub fn invocation(&self, transaction: u32) -> Option<u64> {
        self.begun(transaction)
            .map(|position| self.index_at(position))
    }

    fn index_at(&self, position: Position) -> u64 {
        let position = position.get();
        let behind = self.indices.partition_point(|&(from, _)| from <= position);
        let known = behind.checked_sub(1).map(|place| self.indices[place]);
        known.map_or(u64::from(position), |(from, index)| {
            index + u64::from(position - from)
        })
    }
}
