//! Transactions and their timestamps in columns.

use crate::txn::Map;
use seatrial_history::import::registers::{Stamps, TransactionSink};
use seatrial_history::{History, Key, Mop, Observed, OpType, Process, Value};
use std::collections::BTreeMap;
use std::ops::Range;

/// What an event is; the upper bits of its key.
const KIND_SHIFT: u32 = 30;
const READ: u32 = 0;
const WRITE: u32 = 1;
const APPEND: u32 = 2;
/// A read of a list, or of the state that nobody wrote: a list without elements. Its value is where it begins in the
/// elements (32 bits) and how many it saw (32 bits).
const READ_LIST: u32 = 3;

/// Committed transactions with the database's timestamps: 12 bytes an operation, 56 a transaction, 8 an element that a
/// read of a list saw. They are gathered from a history whose completions have the fields `start-stamp` and
/// `commit-stamp`, or told by a reader of a file ([`TransactionSink`]) without operations in between.
#[derive(Debug, Default)]
pub struct Timestamped {
    stamps: Vec<Stamps>,
    sessions: Vec<u64>,
    /// By transaction: the operation's index, where its events and where its elements begin.
    indices: Vec<u64>,
    starts: Vec<u32>,
    element_starts: Vec<u32>,
    keys: Vec<u32>,
    values: Vec<i64>,
    elements: Vec<i64>,
    /// The names of keys, and their numbers.
    names: Vec<Key>,
    numbers: Map<i64, u32>,
    /// The numbers of keys that are no integers.
    others: BTreeMap<Key, u32>,
    /// Transactions that were told so far, also those that did not commit.
    told: u64,
    current: Option<Stamps>,
    /// Why there can be no verdict.
    refused: Option<String>,
}

/// One operation of a transaction.
pub(super) struct Operation<'a> {
    pub(super) key: &'a Key,
    pub(super) number: u32,
    pub(super) does: Does<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does<'a> {
    Read(i64),
    ReadList(&'a [i64]),
    Write(i64),
    Append(i64),
}

impl Operation<'_> {
    pub(super) fn is_write(&self) -> bool {
        matches!(self.does, Does::Write(_) | Does::Append(_))
    }

    /// The value, or the last element of a list.
    pub(super) fn last(&self) -> Option<i64> {
        match self.does {
            Does::Read(value) | Does::Write(value) | Does::Append(value) => Some(value),
            Does::ReadList(elements) => elements.last().copied(),
        }
    }

    /// What was read or written, for people.
    pub(super) fn value(&self) -> String {
        match self.does {
            Does::ReadList([]) => "nothing".to_owned(),
            Does::ReadList(elements) => super::replay::listed(elements),
            Does::Read(value) | Does::Write(value) | Does::Append(value) => value.to_string(),
        }
    }
}

impl Timestamped {
    /// The committed transactions of a history.
    pub fn of(history: &History) -> Timestamped {
        let mut gathered = Timestamped::default();
        for op in history.iter().filter(|op| op.process.is_client()) {
            let Value::Txn(mops) = &op.value else {
                gathered.refuse(|| format!("op {} is no transaction", op.index));
                break;
            };
            if !op.is_ok() {
                continue;
            }
            let session = match op.process {
                Process::Client(number) => number,
                Process::Named(_) => 0,
            };
            gathered.begin(session, Stamps::of(&op.extra));
            for mop in mops.iter() {
                gathered.take(mop);
            }
            gathered.commit(op.index);
        }
        gathered
    }

    fn take(&mut self, mop: &Mop) {
        let number = self.key(mop.key());
        match mop {
            Mop::Append { element, .. } => self.event(number, APPEND, *element),
            Mop::Write { value, .. } => self.event(number, WRITE, *value),
            Mop::Read { observed, .. } => match observed {
                Observed::Nil => self.list(number, &[]),
                Observed::List(elements) => self.list(number, elements),
                Observed::Register(value) => self.event(number, READ, *value),
            },
        }
    }

    /// The number of a key.
    fn key(&mut self, key: &Key) -> u32 {
        let next = self.names.len() as u32;
        let number = match key {
            Key::Int(number) => *self.numbers.entry(*number).or_insert(next),
            other => *self.others.entry(other.clone()).or_insert(next),
        };
        if number == next {
            self.names.push(key.clone());
        }
        number
    }

    fn event(&mut self, key: u32, kind: u32, value: i64) {
        self.keys
            .push(key & !(READ_LIST << KIND_SHIFT) | kind << KIND_SHIFT);
        self.values.push(value);
    }

    fn list(&mut self, key: u32, elements: &[i64]) {
        let place = self.elements.len() as u64;
        self.elements.extend_from_slice(elements);
        let place = place << 32 | elements.len() as u64;
        self.event(key, READ_LIST, place.cast_signed());
    }

    /// The transaction that was begun has committed.
    fn commit(&mut self, index: u64) {
        let Some(stamps) = self.current.take() else {
            self.refuse(|| format!("op {index} has no timestamps (start-stamp, commit-stamp)"));
            return;
        };
        if stamps.commit < stamps.start {
            self.refuse(|| format!("op {index} was committed before it started"));
        }
        self.stamps.push(stamps);
        self.indices.push(index);
    }

    fn refuse(&mut self, reason: impl FnOnce() -> String) {
        self.refused.get_or_insert_with(reason);
    }

    /// Why there can be no verdict, if so.
    pub(super) fn refused(&self) -> Option<String> {
        let many = self.keys.len() > u32::MAX as usize
            || self.elements.len() > u32::MAX as usize
            || self.names.len() > 1 << KIND_SHIFT
            || self.stamps.len() > (u32::MAX / 2) as usize;
        let many = many.then(|| "more operations than fit into 32 bits".to_owned());
        self.refused.clone().or(many)
    }

    /// Number of committed transactions.
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// Number of their operations.
    pub fn operation_count(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key_count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, key: u32) -> &Key {
        &self.names[key as usize]
    }

    pub(super) fn stamps(&self, transaction: u32) -> Stamps {
        self.stamps[transaction as usize]
    }

    pub(super) fn session(&self, transaction: u32) -> u64 {
        self.sessions[transaction as usize]
    }

    /// The index of the operation that stands for a transaction.
    pub(super) fn index(&self, transaction: u32) -> u64 {
        self.indices[transaction as usize]
    }

    /// The numbers of a transaction's events.
    pub(super) fn events(&self, transaction: u32) -> Range<usize> {
        let transaction = transaction as usize;
        let end = self.starts.get(transaction + 1);
        self.starts[transaction] as usize..end.map_or(self.keys.len(), |&end| end as usize)
    }

    /// What an event is.
    #[inline]
    pub(super) fn operation(&self, event: usize) -> Operation<'_> {
        let (key, value) = (self.keys[event], self.values[event]);
        let number = key & !(READ_LIST << KIND_SHIFT);
        let does = match key >> KIND_SHIFT {
            READ => Does::Read(value),
            WRITE => Does::Write(value),
            APPEND => Does::Append(value),
            _ => Does::ReadList(self.list_of(value)),
        };
        Operation {
            key: &self.names[number as usize],
            number,
            does,
        }
    }

    /// What a read of a list saw.
    fn list_of(&self, place: i64) -> &[i64] {
        let place = place.cast_unsigned();
        let (start, length) = ((place >> 32) as usize, (place as u32) as usize);
        &self.elements[start..start + length]
    }
}

impl TransactionSink for Timestamped {
    fn begin(&mut self, session: u64, stamps: Option<Stamps>) {
        self.current = stamps;
        self.sessions.push(session);
        self.starts.push(self.keys.len() as u32);
        self.element_starts.push(self.elements.len() as u32);
    }

    fn read(&mut self, key: i64, value: Option<i64>) {
        let key = self.key(&Key::Int(key));
        match value {
            Some(value) => self.event(key, READ, value),
            None => self.list(key, &[]),
        }
    }

    fn write(&mut self, key: i64, value: i64) {
        let key = self.key(&Key::Int(key));
        self.event(key, WRITE, value);
    }

    fn append(&mut self, key: i64, element: i64) {
        let key = self.key(&Key::Int(key));
        self.event(key, APPEND, element);
    }

    fn read_list(&mut self, key: i64, elements: &[i64]) {
        let key = self.key(&Key::Int(key));
        self.list(key, elements);
    }

    fn end(&mut self, outcome: OpType) -> Result<(), String> {
        let index = 2 * self.told + 1;
        self.told += 1;
        if outcome == OpType::Ok {
            self.commit(index);
        } else {
            let start = self.starts.pop().unwrap_or_default() as usize;
            let element = self.element_starts.pop().unwrap_or_default() as usize;
            self.sessions.pop();
            self.keys.truncate(start);
            self.values.truncate(start);
            self.elements.truncate(element);
        }
        match self.refused() {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }
}
