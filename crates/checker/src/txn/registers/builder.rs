//! Columns while they are made.

use super::columns::{Columns, Event, NONE};
use super::table::{Pages, Table};
use crate::txn::dense::Map;
use seatrial_history::import::registers::{Stamps, TransactionSink};
use seatrial_history::{Key, OpType};
use std::collections::BTreeMap;

/// Numbers of versions, keys included, are below this: the top bit is a mark.
const NUMBERS_MAX: usize = (1 << 31) - 1;
/// The version of a read of the initial state, while numbers of keys are not known.
const INITIAL: u32 = NUMBERS_MAX as u32;
/// Events that are taken into account together.
const PENDING_MAX: usize = 256;
/// A transaction of more events is looked through with a table by key instead of event against event.
pub(super) const EVENTS_FEW: usize = 32;

/// Why a history has no columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An operation is no transaction on registers.
    #[error("op {index}: {reason}")]
    Operation {
        /// Its index.
        index: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody can tell who was read.
    #[error(
        "{one} and {other} both write {value} to key {key}: values must be unique for each key"
    )]
    Twice {
        /// The transaction that came first.
        one: String,
        /// The other one; the same when it writes the value twice.
        other: String,
        /// The key.
        key: String,
        /// The value.
        value: i64,
    },
    /// More than can be numbered.
    #[error("more than 2^{bits} {what}")]
    Size {
        /// Of what.
        what: &'static str,
        /// The limit, as a power of two.
        bits: u32,
    },
}

/// Makes [`Columns`].
///
/// Transactions are opened in order; the events of each are told in one go, at once ([`Builder::begin`]) or when its
/// completion is there ([`Builder::open`], [`Builder::fill`]). A write that failed gives way to another of the same
/// value; any two others are a [`Refusal`].
#[derive(Default)]
pub struct Builder {
    columns: Columns,
    table: Table,
    /// Integer keys that lie close together, and all others.
    near: Pages,
    far: Map<i64, u32>,
    others: BTreeMap<Key, u32>,
    numbers: Map<u64, u32>,
    /// By transaction: where its events begin and end.
    spans: Vec<(u32, u32)>,
    /// The transaction that is told.
    current: u32,
    /// The last events, not taken into account so far.
    pending: Vec<Pending>,
    scratch: Vec<u32>,
    /// Versions that were written again, by whom.
    again: Vec<(u32, u32)>,
    has_times: bool,
    has_lists: bool,
    refusal: Option<Refusal>,
}

/// A read or write.
#[derive(Clone, Copy)]
struct Pending {
    key: u32,
    /// Who writes; [`NONE`] for a read.
    writer: u32,
    value: Option<i64>,
}

/// What a foreign file holds; lists are no registers.
impl TransactionSink for Builder {
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
        match &self.refusal {
            Some(refusal) => Err(refusal.to_string()),
            None if self.has_lists => Err("a list is no register".to_owned()),
            None => Ok(()),
        }
    }
}

impl Builder {
    /// The next transaction of the session of this name, whose events follow.
    pub fn begin(&mut self, session: u64) {
        let number = self.open(session, NONE);
        self.fill(number);
    }

    /// The transaction of [`Builder::begin`] is told, and ended so.
    pub fn end(&mut self, outcome: OpType) {
        self.close(outcome, NONE);
    }

    /// A read of an integer key; `None` is its initial state.
    pub fn read(&mut self, key: i64, value: Option<i64>) {
        let key = self.integer(key);
        self.read_key(key, value);
    }

    /// A write of an integer key.
    pub fn write(&mut self, key: i64, value: i64) {
        let key = self.integer(key);
        self.write_key(key, value);
    }

    /// The next transaction of the session of this name, invoked at this position ([`NONE`]: not known).
    pub fn open(&mut self, session: u64, begun: u32) -> u32 {
        let next = self.numbers.len() as u32;
        let session_number = *self.numbers.entry(session).or_insert(next);
        if session_number == next {
            self.columns.clients.push(session);
        }
        if self.columns.len() >= NUMBERS_MAX {
            self.refuse(Refusal::Size {
                what: "transactions",
                bits: 31,
            });
            return self.columns.len() as u32 - 1;
        }
        let number = self.columns.len() as u32;
        self.columns.sessions.push(session_number);
        self.columns.outcomes.push(OpType::Info);
        self.spans.push((0, 0));
        self.columns.positions.push((begun, NONE));
        self.has_times |= begun != NONE;
        number
    }

    /// The events that follow are those of this transaction.
    pub fn fill(&mut self, transaction: u32) {
        self.current = transaction;
        let start = self.event_count() as u32;
        self.spans[transaction as usize] = (start, start);
    }

    /// The events of the transaction of [`Builder::fill`] are told; it completed so at this position.
    pub fn close(&mut self, outcome: OpType, ended: u32) {
        let current = self.current as usize;
        if self.event_count() >= u32::MAX as usize {
            self.refuse(Refusal::Size {
                what: "reads and writes",
                bits: 32,
            });
        }
        self.spans[current].1 = self.event_count() as u32;
        self.has_times |= ended != NONE;
        self.columns.positions[current].1 = ended;
        self.columns.outcomes[current] = outcome;
    }

    /// The number of a key.
    pub fn key(&mut self, key: &Key) -> u32 {
        if let Key::Int(integer) = key {
            return self.integer(*integer);
        }
        if let Some(&number) = self.others.get(key) {
            return number;
        }
        let number = self.columns.keys.len() as u32;
        self.columns.keys.push(key.clone());
        self.others.insert(key.clone(), number);
        number
    }

    fn integer(&mut self, key: i64) -> u32 {
        let next = self.columns.keys.len() as u32;
        let known = match self.near.slot(key, next as usize) {
            Some(slot) => slot,
            None => self.far.entry(key).or_insert(NONE),
        };
        if *known == NONE {
            *known = next;
            self.columns.keys.push(Key::Int(key));
        }
        *known
    }

    /// A read of the key with this number; `None` is its initial state.
    pub fn read_key(&mut self, key: u32, value: Option<i64>) {
        let writer = NONE;
        self.add(Pending { key, writer, value });
    }

    /// A write of the key with this number.
    pub fn write_key(&mut self, key: u32, value: i64) {
        let (writer, value) = (self.current, Some(value));
        self.add(Pending { key, writer, value });
    }

    fn add(&mut self, event: Pending) {
        self.pending.push(event);
        if self.pending.len() == PENDING_MAX {
            self.take();
        }
    }

    /// Takes what is pending into account.
    fn take(&mut self) {
        let pairs = self
            .pending
            .iter()
            .filter_map(|it| Some((it.key, it.value?)));
        self.table.glance(pairs, &mut self.scratch);
        for Pending { key, writer, value } in self.pending.drain(..) {
            let Some(value) = value else {
                self.columns.events.push(Event::new(key, INITIAL, false));
                continue;
            };
            let version = self.table.number(key, value);
            let is_write = writer != NONE;
            if is_write {
                let known = &mut self.table.versions[version as usize].writer;
                if *known == NONE {
                    *known = writer;
                } else {
                    self.again.push((version, writer));
                }
            }
            self.columns.events.push(Event::new(key, version, is_write));
        }
    }

    fn event_count(&self) -> usize {
        self.columns.events.len() + self.pending.len()
    }

    /// Operations from this position on have the indices from this one on.
    pub(super) fn number_from(&mut self, position: u32, index: u64) {
        let last = self.columns.indices.last();
        let (from, known) = last.copied().unwrap_or((0, 0));
        if index != known + u64::from(position - from) {
            self.columns.indices.push((position, index));
        }
    }

    /// There will be no columns, for this reason unless there is one already.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }

    /// Has no transaction been told so far?
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Is there a reason why there will be no columns?
    pub fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// The columns, or why there are none.
    pub fn finish(mut self) -> Result<Columns, Refusal> {
        self.take();
        if !self.has_times {
            self.columns.positions = Vec::new();
        }
        if self.columns.commits.len() != self.columns.len() {
            self.columns.commits = Vec::new();
        }
        if self.columns.keys.len() + self.table.versions.len() >= NUMBERS_MAX {
            self.refuse(Refusal::Size {
                what: "versions",
                bits: 31,
            });
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
        columns.version_keys = versions.iter().map(|version| version.key).collect();
        columns.values = versions.iter().map(|version| version.value).collect();
        drop(versions);
        columns.overwritten = vec![0; columns.writers.len().div_ceil(64)];
        arrange(columns, self.spans);
        mark(columns);
        see(columns);
        Ok(self.columns)
    }

    /// Decides who wrote what was written more than once.
    fn settle(&mut self) {
        let columns = &self.columns;
        for &(number, transaction) in &self.again {
            let version = &mut self.table.versions[number as usize];
            let failed = |transaction: u32| columns.outcomes[transaction as usize] == OpType::Fail;
            if failed(version.writer) {
                version.writer = transaction;
            } else if !failed(transaction) {
                self.refusal = Some(Refusal::Twice {
                    one: columns.name(version.writer),
                    other: columns.name(transaction),
                    key: columns.key(version.key).to_string(),
                    value: version.value,
                });
                return;
            }
        }
    }
}

/// Puts the events in the order of their transactions, and numbers versions behind the initial ones.
fn arrange(columns: &mut Columns, spans: Vec<(u32, u32)>) {
    let keys = columns.keys.len() as u32;
    let number = |event: Event| {
        let version = match event.version() {
            INITIAL => event.key(),
            version => version + keys,
        };
        Event::new(event.key(), version, event.is_write())
    };
    columns.starts = Vec::with_capacity(spans.len() + 1);
    columns.starts.push(0);
    let mut end = 0;
    for &(from, to) in &spans {
        end += to - from;
        columns.starts.push(end);
    }
    if spans
        .iter()
        .zip(&columns.starts)
        .all(|(span, start)| span.0 == *start)
    {
        drop(spans);
        for event in &mut columns.events {
            *event = number(*event);
        }
        return;
    }
    let mut arranged = Vec::with_capacity(columns.events.len());
    for (from, to) in spans {
        let events = &columns.events[from as usize..to as usize];
        arranged.extend(events.iter().map(|event| number(*event)));
    }
    columns.events = arranged;
}

/// Marks the events that are inner ones, and the versions that their own transactions overwrote.
fn mark(columns: &mut Columns) {
    let keys = columns.keys.len();
    // By key: the transaction (and 1) that wrote it last; only when a transaction is long.
    let mut wrote = Vec::new();
    let mut overwritten = std::mem::take(&mut columns.overwritten);
    let mut bury = |version: u32| {
        let place = version as usize - keys;
        overwritten[place / 64] |= 1 << (place % 64);
    };
    for (transaction, ends) in columns.starts.windows(2).enumerate() {
        let events = &mut columns.events[ends[0] as usize..ends[1] as usize];
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
        let stamp = transaction as u32 + 1;
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

/// Notes which transactions took place.
fn see(columns: &mut Columns) {
    let ok = columns.outcomes.iter();
    let mut happened: Vec<bool> = ok.map(|&outcome| outcome == OpType::Ok).collect();
    if columns.outcomes.contains(&OpType::Info) {
        for reader in 0..columns.len() as u32 {
            if columns.outcomes[reader as usize] != OpType::Ok {
                continue;
            }
            for read in columns.events(reader).iter().filter(|it| !it.is_write()) {
                let writer = columns.writer(read.version());
                if writer != NONE && columns.outcomes[writer as usize] == OpType::Info {
                    happened[writer as usize] = true;
                }
            }
        }
    }
    columns.happened = happened;
}
