//! Transactions and their timestamps in columns.

use seatrial_history::FixedMap;
use seatrial_history::{
    Chunk, Fold, History, Key, Mop, Observed, Op, OpType, Order, Process, Stamps, TransactionSink,
    Value,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

/// The kind of an event is in the upper bits of its key.
const KIND_SHIFT: u32 = 30;
const READ: u32 = 0;
const WRITE: u32 = 1;
const APPEND: u32 = 2;
/// A read of a list, or of an initial state, which counts as an empty list. Its value is its index in `elements` (32 bits)
/// and its length (32 bits).
const READ_LIST: u32 = 3;

/// Committed transactions with the database's timestamps: 12 bytes an operation, 56 a transaction, 8 an element of a list
/// that was read. They come from a history whose completions have the fields `start-stamp` and `commit-stamp`, or from a
/// file without operations ([`TransactionSink`]).
#[derive(Debug, Default)]
pub struct Timestamped {
    stamps: Vec<Stamps>,
    sessions: Vec<u64>,
    /// By transaction: the operation's index; where its events and where its elements start.
    indices: Vec<u64>,
    starts: Vec<u32>,
    element_starts: Vec<u32>,
    keys: Vec<u32>,
    values: Vec<i64>,
    elements: Vec<i64>,
    /// The names of keys, and their numbers.
    names: Vec<Key>,
    numbers: FixedMap<i64, u32>,
    /// The numbers of keys that are not integers.
    others: BTreeMap<Key, u32>,
    /// Values that transactions of unknown outcome wrote, by number of the key. They may have been committed, at a time that no
    /// timestamp shows.
    unknown: BTreeSet<(u32, i64)>,
    /// What the transaction that each session has under way writes.
    open: BTreeMap<u64, Value>,
    /// Number of transactions so far, committed or not.
    transactions_read: u64,
    current: Option<Stamps>,
    /// The reason why there can be no verdict.
    refused: Option<String>,
}

/// One operation of a transaction.
pub(super) struct StampedOperation<'a> {
    pub(super) key: &'a Key,
    pub(super) number: u32,
    pub(super) does: StampedAccess<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampedAccess<'a> {
    Read(i64),
    ReadList(&'a [i64]),
    Write(i64),
    Append(i64),
}

impl StampedOperation<'_> {
    pub(super) fn is_write(&self) -> bool {
        matches!(
            self.does,
            StampedAccess::Write(_) | StampedAccess::Append(_)
        )
    }

    /// The value, or the last element of a list.
    pub(super) fn last(&self) -> Option<i64> {
        match self.does {
            StampedAccess::Read(value)
            | StampedAccess::Write(value)
            | StampedAccess::Append(value) => Some(value),
            StampedAccess::ReadList(elements) => elements.last().copied(),
        }
    }

    /// The value that was read or written, as text.
    pub(super) fn value(&self) -> String {
        match self.does {
            StampedAccess::ReadList([]) => "nothing".to_owned(),
            StampedAccess::ReadList(elements) => super::timestamp_replay::listed(elements),
            StampedAccess::Read(value)
            | StampedAccess::Write(value)
            | StampedAccess::Append(value) => value.to_string(),
        }
    }
}

/// Collects [`Timestamped`], chunk by chunk in order.
pub(super) struct GatherStamps;

impl Fold for GatherStamps {
    type Accumulator = Timestamped;
    type Output = Timestamped;

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Timestamped {
        Timestamped::default()
    }

    fn reduce(&self, gathered: &mut Timestamped, chunk: &Chunk) -> ControlFlow<()> {
        chunk.ops().try_for_each(|op| gathered.take_op(&op))
    }

    fn combine(&self, _: &mut Timestamped, _: Timestamped) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, mut gathered: Timestamped) -> Timestamped {
        gathered.end_history();
        gathered
    }
}

impl Timestamped {
    /// The committed transactions of a history.
    pub fn of(history: &History) -> Timestamped {
        let mut gathered = Timestamped::default();
        for op in history {
            if gathered.take_op(op).is_break() {
                break;
            }
        }
        gathered.end_history();
        gathered
    }

    /// Adds the next operation; breaks if there can be no verdict.
    fn take_op(&mut self, op: &Op) -> ControlFlow<()> {
        let Process::Client(session) = op.process else {
            return ControlFlow::Continue(());
        };
        let Value::Txn(mops) = &op.value else {
            self.refuse(|| format!("op {} is no transaction", op.index));
            return ControlFlow::Break(());
        };
        let begun = if op.is_invoke() {
            self.open.insert(session, op.value.clone())
        } else {
            self.open.remove(&session)
        };
        if op.is_ok() {
            self.begin(session, Stamps::of(&op.extra));
            for mop in mops.iter() {
                self.take(mop);
            }
            self.commit(op.index);
        } else if op.is_info() {
            self.take_unknown(mops);
        }
        // An invocation that is followed by another one, or completes as `info`, may have taken place.
        if let (false, false, Some(Value::Txn(mops))) = (op.is_ok(), op.is_fail(), begun) {
            self.take_unknown(&mops);
        }
        ControlFlow::Continue(())
    }

    /// Adds the writes of transactions that are still under way at the end of the history.
    fn end_history(&mut self) {
        for value in std::mem::take(&mut self.open).into_values() {
            if let Value::Txn(mops) = value {
                self.take_unknown(&mops);
            }
        }
    }

    /// Adds the writes of a transaction of unknown outcome.
    fn take_unknown(&mut self, mops: &[Mop]) {
        for mop in mops {
            if let Mop::Append { element: value, .. } | Mop::Write { value, .. } = mop {
                let number = self.key(mop.key());
                self.unknown.insert((number, *value));
            }
        }
    }

    /// May a transaction of unknown outcome have written this value?
    pub(super) fn is_unknown(&self, key: u32, value: i64) -> bool {
        self.unknown.contains(&(key, value))
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

    /// Commits the current transaction.
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

    /// The reason why there can be no verdict, if there is one.
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

    /// Are there no transactions?
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

    /// The operation of an event.
    #[inline]
    pub(super) fn operation(&self, event: usize) -> StampedOperation<'_> {
        let (key, value) = (self.keys[event], self.values[event]);
        let number = key & !(READ_LIST << KIND_SHIFT);
        let does = match key >> KIND_SHIFT {
            READ => StampedAccess::Read(value),
            WRITE => StampedAccess::Write(value),
            APPEND => StampedAccess::Append(value),
            _ => StampedAccess::ReadList(self.list_of(value)),
        };
        StampedOperation {
            key: &self.names[number as usize],
            number,
            does,
        }
    }

    /// The list that a read saw.
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
        let index = 2 * self.transactions_read + 1;
        self.transactions_read += 1;
        if outcome == OpType::Ok {
            self.commit(index);
        } else {
            let start = self.starts.pop().unwrap_or_default() as usize;
            let element = self.element_starts.pop().unwrap_or_default() as usize;
            self.sessions.pop();
            if outcome == OpType::Info {
                for event in start..self.keys.len() {
                    let (kind, number) = (
                        self.keys[event] >> KIND_SHIFT,
                        self.keys[event] & !(READ_LIST << KIND_SHIFT),
                    );
                    if kind == WRITE || kind == APPEND {
                        self.unknown.insert((number, self.values[event]));
                    }
                }
            }
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
