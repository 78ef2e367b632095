//! The builder of columns.

use super::columns::{Columns, RegisterEvent};
use super::version_table::{GlanceBuffers, NumberPages, VersionTable, WrittenId};
use crate::recorded_transactions::{CompletionRows, ProcessNumber, RefusedOperation};
use seatrial_cycles::{Csr, KeyId, Position, Txn, Version};
use seatrial_history::FixedMap;
use seatrial_history::{Chunk, Key, OpType};
use seatrial_history::{Stamps, TransactionSink};
use std::collections::BTreeMap;

/// Numbers of versions, keys included, are below this: the top bit is a flag.
const NUMBERS_MAX: usize = (1 << 31) - 1;
/// Stands for the initial version of a read until the number of keys, and so of initial versions, is known.
const INITIAL: u32 = NUMBERS_MAX as u32;
/// Events that are looked up together, so that cache misses overlap.
const PENDING_MAX: usize = 256;
/// A longer transaction is searched with a table by key, a shorter one event against event.
pub(super) const EVENTS_FEW: usize = 32;

/// Why a history has no columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// An operation is not a transaction on registers.
    #[error(transparent)]
    Operation(#[from] RefusedOperation),
    /// Two transactions wrote the same value to a key, so reads of it do not show which write they saw.
    #[error(
        "{one} and {other} both write {value} to key {key}: values must be unique for each key"
    )]
    Twice {
        /// The first transaction that wrote it.
        one: String,
        /// The second one; the same one if it wrote the value twice.
        other: String,
        /// The key.
        key: String,
        /// The value.
        value: i64,
    },
    /// More than 31 or 32 bits can number.
    #[error("more than 2^{bits} {what}")]
    Size {
        /// Transactions, events or versions.
        what: &'static str,
        /// The limit, as a power of two.
        bits: u32,
    },
}

/// Makes [`Columns`].
///
/// Transactions are opened in order; the events of each are added without a break, at once ([`ColumnsBuilder::begin`]) or
/// when its completion is read ([`ColumnsBuilder::open`], [`ColumnsBuilder::fill`]). A failed write and another write may
/// have the same value; any other two are a [`ColumnsError`]. Linear.
#[derive(Default)]
pub struct ColumnsBuilder {
    columns: Columns,
    table: VersionTable,
    /// Integer keys close to zero, other integers, other names.
    near: NumberPages<KeyId>,
    far: FixedMap<i64, Option<KeyId>>,
    others: BTreeMap<Key, KeyId>,
    /// By name of a client process: its number.
    processes: FixedMap<u64, ProcessNumber>,
    /// The events of transactions so far; those of [`ColumnsBuilder::pending`] are placeholders at its end.
    rows: CompletionRows<RegisterEvent>,
    /// The transaction to which events are added; `None` before the first.
    current: Option<Txn>,
    /// The last events, whose versions have no numbers yet.
    pending: Vec<PendingEvent>,
    glance_buffers: GlanceBuffers,
    /// Versions that were written more than once, and the transactions of the later writes.
    again: Vec<(WrittenId, Txn)>,
    has_lists: bool,
    is_stretch: bool,
    refusal: Option<ColumnsError>,
}

/// A read or write whose version has no number yet.
#[derive(Clone, Copy)]
struct PendingEvent {
    key: KeyId,
    /// The transaction that writes; `None` for a read.
    writer: Option<Txn>,
    value: Option<i64>,
}

/// Takes transactions from a foreign file; lists are refused.
impl TransactionSink for ColumnsBuilder {
    fn begin(&mut self, session: u64, stamps: Option<Stamps>) {
        self.columns
            .commits
            .extend(stamps.map(|stamps| stamps.commit));
        self.begin(session);
    }

    fn read(&mut self, key: i64, value: Option<i64>) {
        self.read(key, value);
    }

    fn write(&mut self, key: i64, value: i64) {
        self.write(key, value);
    }

    fn append(&mut self, _key: i64, _element: i64) {
        self.has_lists = true;
    }

    fn read_list(&mut self, _key: i64, _elements: &[i64]) {
        self.has_lists = true;
    }

    fn end(&mut self, outcome: OpType) -> Result<(), String> {
        self.end(outcome);
        self.check()
    }
}

impl ColumnsBuilder {
    /// The reason why there will be no columns, if one is known already.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.refusal {
            Some(refusal) => Err(refusal.to_string()),
            None if self.has_lists => Err("a list is no register".to_owned()),
            None => Ok(()),
        }
    }

    /// A builder of the columns of a stretch, which leaves out reads of values that were not written in it. What is left violates
    /// no model that the whole history satisfies: no order has to explain more than before.
    pub(super) fn of_stretch() -> ColumnsBuilder {
        ColumnsBuilder {
            is_stretch: true,
            ..ColumnsBuilder::default()
        }
    }

    /// Opens the next transaction of the session with this name; its events follow.
    pub fn begin(&mut self, session: u64) {
        let number = self.open(session, None);
        self.fill(number);
    }

    /// Closes the transaction of [`ColumnsBuilder::begin`] with this outcome.
    pub fn end(&mut self, outcome: OpType) {
        self.close(outcome, None);
    }

    /// Adds a read of an integer key; `None` is its initial state.
    pub fn read(&mut self, key: i64, value: Option<i64>) {
        let key = self.integer(key);
        self.read_key(key, value);
    }

    /// Adds a write of an integer key.
    pub fn write(&mut self, key: i64, value: i64) {
        let key = self.integer(key);
        self.write_key(key, value);
    }

    /// Opens the next transaction of the session with this name, invoked at this position, if known.
    pub fn open(&mut self, session: u64, begun: Option<Position>) -> Txn {
        let process = self.process(session);
        self.open_numbered(process, begun)
    }

    /// The number of the session with this name.
    pub(super) fn process(&mut self, session: u64) -> ProcessNumber {
        let next = ProcessNumber::new(self.processes.len() as u32);
        let number = *self.processes.entry(session).or_insert(next);
        if number == next {
            self.columns.clients.push(session);
        }
        number
    }

    /// Opens the next transaction of this session, invoked at this position, if known.
    pub(super) fn open_numbered(&mut self, process: ProcessNumber, begun: Option<Position>) -> Txn {
        if self.columns.len() >= NUMBERS_MAX {
            self.refuse(ColumnsError::Size {
                what: "transactions",
                bits: 31,
            });
            // Any transaction will do, since there will be no columns.
            return Txn::new(0);
        }
        self.columns.has_times |= begun.is_some();
        self.columns.table.open(process, begun)
    }

    /// The events that follow belong to this transaction.
    pub fn fill(&mut self, transaction: Txn) {
        self.current = Some(transaction);
    }

    /// Closes the transaction of [`ColumnsBuilder::fill`], which completed with this outcome at this position.
    pub fn close(&mut self, outcome: OpType, ended: Option<Position>) {
        let current = self.current();
        if self.rows.item_count() >= u32::MAX as usize {
            self.refuse(ColumnsError::Size {
                what: "reads and writes",
                bits: 32,
            });
            return;
        }
        self.rows.end_row(current);
        self.columns.has_times |= ended.is_some();
        self.columns.table.complete(current, outcome, ended);
    }

    /// The transaction to which events are added.
    fn current(&self) -> Txn {
        self.current
            .expect("a transaction is begun or filled before it gets events")
    }

    /// The id of a key, a new one if necessary.
    pub fn key(&mut self, key: &Key) -> KeyId {
        if let Key::Int(integer) = key {
            return self.integer(*integer);
        }
        if let Some(&id) = self.others.get(key) {
            return id;
        }
        let id = KeyId::new(self.columns.keys.len() as u32);
        self.columns.keys.push(key.clone());
        self.others.insert(key.clone(), id);
        id
    }

    fn integer(&mut self, key: i64) -> KeyId {
        let count = self.columns.keys.len();
        let slot = match self.near.slot(key, count) {
            Some(slot) => slot,
            None => self.far.entry(key).or_default(),
        };
        *slot.get_or_insert_with(|| {
            self.columns.keys.push(Key::Int(key));
            KeyId::new(count as u32)
        })
    }

    /// Adds a read of this key; `None` is its initial state.
    pub fn read_key(&mut self, key: KeyId, value: Option<i64>) {
        let writer = None;
        self.add(PendingEvent { key, writer, value });
    }

    /// Adds a write of this key.
    pub fn write_key(&mut self, key: KeyId, value: i64) {
        let (writer, value) = (Some(self.current()), Some(value));
        self.add(PendingEvent { key, writer, value });
    }

    fn add(&mut self, event: PendingEvent) {
        self.pending.push(event);
        let placeholder = RegisterEvent::new(event.key, INITIAL, event.writer.is_some());
        self.rows.push(placeholder);
        if self.pending.len() == PENDING_MAX {
            self.take();
        }
    }

    /// Numbers the versions of pending events.
    fn take(&mut self) {
        let numbers = self.columns.keys.len() + self.table.versions.len();
        if numbers + self.pending.len() >= NUMBERS_MAX {
            // Past this, versions would run into the flags of events.
            self.pending.clear();
            self.refuse(ColumnsError::Size {
                what: "versions",
                bits: 31,
            });
            return;
        }
        let pairs = self
            .pending
            .iter()
            .filter_map(|it| Some((it.key, it.value?)));
        self.table.glance(pairs, &mut self.glance_buffers);
        let first = self.rows.item_count() - self.pending.len();
        let events = &mut self.rows.items_mut()[first..];
        for (PendingEvent { key, writer, value }, event) in self.pending.drain(..).zip(events) {
            // The placeholder of a read of the initial state is right.
            let Some(value) = value else { continue };
            let id = self.table.id(key, value);
            if let Some(writer) = writer {
                let known = &mut self.table.versions[id.index()].writer;
                if known.is_none() {
                    *known = Some(writer);
                } else {
                    self.again.push((id, writer));
                }
            }
            *event = RegisterEvent::new(key, id.get(), writer.is_some());
        }
    }

    /// Operations from this position on have indices from this one on.
    pub fn number_from(&mut self, position: u32, index: u64) {
        let last = self.columns.indices.last();
        let (from, known) = last.copied().unwrap_or((0, 0));
        if index != known + u64::from(position - from) {
            self.columns.indices.push((position, index));
        }
    }

    /// The operations of this chunk, the next one, have the indices that it says.
    pub(super) fn number_chunk(&mut self, chunk: &Chunk) {
        let first = chunk.first_position() as u32;
        for place in 0..chunk.len() {
            self.number_from(first + place as u32, chunk.index(place));
        }
    }

    /// Records the first reason why there will be no columns.
    pub(super) fn refuse(&mut self, refusal: ColumnsError) {
        self.refusal.get_or_insert(refusal);
    }

    /// Has no transaction been opened yet?
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Is there a reason why there will be no columns?
    pub fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// The columns, or the reason why there are none.
    pub fn finish(mut self) -> Result<Columns, ColumnsError> {
        self.take();
        if self.columns.commits.len() != self.columns.len() {
            self.columns.commits = Vec::new();
        }
        if self.refusal.is_none() {
            self.settle();
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let versions = std::mem::take(&mut self.table).versions;
        let columns = &mut self.columns;
        columns.writers = versions.iter().map(|version| version.writer).collect();
        columns.version_keys = versions.iter().map(|version| version.key.get()).collect();
        columns.values = versions.iter().map(|version| version.value).collect();
        drop(versions);
        columns.overwritten = vec![0; columns.writers.len().div_ceil(64)];
        let events = std::mem::take(&mut self.rows).by_transaction(columns.len());
        columns.events = number_after_initial(events, columns.keys.len() as u32);
        if self.is_stretch {
            columns.events = without_unwritten(columns);
        }
        mark(columns);
        see(columns);
        columns.assert_complete();
        Ok(self.columns)
    }

    /// Finds the writer of each version that was written more than once.
    fn settle(&mut self) {
        let columns = &self.columns;
        for &(id, transaction) in &self.again {
            let version = &mut self.table.versions[id.index()];
            let known = version
                .writer
                .expect("a version that is written again was written");
            let failed = |transaction: Txn| columns.table.is_failed(transaction);
            if failed(known) {
                version.writer = Some(transaction);
            } else if !failed(transaction) {
                self.refusal = Some(ColumnsError::Twice {
                    one: columns.name(known.get()),
                    other: columns.name(transaction.get()),
                    key: columns.key(version.key.get()).to_string(),
                    value: version.value,
                });
                return;
            }
        }
    }
}

/// Puts the numbers of versions after those of the initial ones.
fn number_after_initial(mut events: Csr<RegisterEvent>, keys: u32) -> Csr<RegisterEvent> {
    for event in events.open_row() {
        let version = match event.version().get() {
            INITIAL => event.key(),
            version => version + keys,
        };
        *event = RegisterEvent::new(KeyId::new(event.key()), version, event.is_write());
    }
    events
}

/// The events without reads of versions without a writer.
fn without_unwritten(columns: &Columns) -> Csr<RegisterEvent> {
    let is_known = |event: &&RegisterEvent| {
        let version = event.version();
        columns.is_initial(version) || columns.writer(version).is_some()
    };
    let mut kept = Csr::with_capacity(columns.events.row_count());
    for row in columns.events.rows() {
        kept.open_row().extend(row.iter().filter(is_known));
        kept.end_row();
    }
    kept
}

/// Marks inner events, and the versions that their own transactions overwrote.
fn mark(columns: &mut Columns) {
    let keys = columns.keys.len();
    // By key: the transaction that wrote it last, plus one, and the event; only used if a transaction is long.
    let mut wrote = Vec::new();
    let mut overwritten = std::mem::take(&mut columns.overwritten);
    let mut bury = |version: Version| {
        let place = version.index() - keys;
        overwritten[place / 64] |= 1 << (place % 64);
    };
    for transaction in columns.events.row_numbers() {
        let events = columns.events.row_mut(transaction);
        if events.len() <= EVENTS_FEW {
            for at in 1..events.len() {
                let event = events[at];
                let mut before = events[..at].iter().rev();
                let written = before.position(|other| {
                    other.is_write() && other.key() == event.key() && !other.is_inner()
                });
                let Some(distance) = written else { continue };
                if event.is_write() {
                    let other = at - 1 - distance;
                    bury(events[other].version());
                    events[other] = events[other].inner();
                } else {
                    events[at] = event.inner();
                }
            }
            continue;
        }
        wrote.resize(keys, (0, 0));
        let stamp = transaction + 1;
        for at in 0..events.len() {
            let event = events[at];
            let (by, last) = &mut wrote[event.key() as usize];
            let is_written = *by == stamp;
            if event.is_write() {
                if is_written {
                    bury(events[*last as usize].version());
                    events[*last as usize] = events[*last as usize].inner();
                }
                (*by, *last) = (stamp, at as u32);
            } else if is_written {
                events[at] = event.inner();
            }
        }
    }
    columns.overwritten = overwritten;
}

/// Finds out which transactions took place.
fn see(columns: &mut Columns) {
    let outcomes = columns.outcomes();
    let mut happened: Vec<bool> = outcomes.iter().map(|&one| one == OpType::Ok).collect();
    if outcomes.contains(&OpType::Info) {
        for (reader, _) in (0..).zip(outcomes).filter(|(_, one)| **one == OpType::Ok) {
            for read in columns.events(reader).iter().filter(|it| !it.is_write()) {
                if let Some(writer) = columns.writer(read.version())
                    && outcomes[writer.index()] == OpType::Info
                {
                    happened[writer.index()] = true;
                }
            }
        }
    }
    columns.happened = happened;
}
