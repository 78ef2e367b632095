//! The state of a store: keys and their values, determined by the log's commands alone.

use crate::answer::{put_absent, put_done, put_list, put_register};
use crate::message::{Code, LIST_LENGTH_MAX};
use crate::transaction::{Operation, Operations};
use std::collections::BTreeMap;

/// Registers and lists by key. Executes transactions one at a time; each takes effect completely or not at all: every change
/// pushes an undo entry, which is kept until the transaction commits.
///
/// A list is one buffer of encoded elements, so reading it is one copy. Everything is in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreState {
    items: BTreeMap<Box<[u8]>, Item>,
    /// Undo log of the present transaction, oldest change first.
    undo: Vec<Undo>,
    planted: Planted,
}

/// The planted bugs that change the execution of transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planted {
    /// Failed transactions are not rolled back.
    pub(crate) dirty_abort: bool,
    /// The lists as they were when the present group commit began to gather.
    pub(crate) lost_append: Option<BTreeMap<Box<[u8]>, Base>>,
}

/// A list when the group commit `batch` first changed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    batch: u64,
    count: u32,
    length: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Register(Vec<u8>),
    List(StoredList),
}

/// Elements, each as length `u32` and bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StoredList {
    count: u32,
    bytes: Vec<u8>,
}

/// Undoes one change.
#[derive(Clone, Debug)]
enum Undo {
    /// The key did not exist.
    Remove,
    /// The register had this value.
    Register(Vec<u8>),
    /// The list had this length.
    Truncate { count: u32, length: usize },
    /// The list was this one.
    List(StoredList),
}

/// An aborted transaction; it had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abort {
    /// Index of the first operation that failed.
    pub(crate) operation: u32,
    /// The reason.
    pub(crate) code: Code,
    /// Planted bug: a part of it took effect.
    pub(crate) is_dirty: bool,
}

impl Abort {
    /// A request whose header is already invalid.
    pub(crate) const MALFORMED: Abort = Abort {
        operation: 0,
        code: Code::Malformed,
        is_dirty: false,
    };
}

/// Did the transaction change the state, so that it must be logged?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutionEffect {
    /// No.
    Read,
    /// Yes.
    Change,
}

impl StoreState {
    /// An empty state.
    pub(crate) fn new(planted: Planted) -> StoreState {
        StoreState {
            planted,
            ..StoreState::default()
        }
    }

    /// Executes the operations of a request and appends their answers to `answers`. `batch` is the sequence number of the log
    /// block that the request belongs to.
    pub(crate) fn execute(
        &mut self,
        operations: Operations<'_>,
        batch: u64,
        answers: &mut Vec<u8>,
    ) -> Result<ExecutionEffect, Abort> {
        self.undo.clear();
        for (index, operation) in operations.clone().enumerate() {
            let done = match operation {
                Ok(operation) => self.apply(operation, batch, answers),
                Err(_) => Err(Code::Malformed),
            };
            if let Err(code) = done {
                self.roll_back(operations);
                return Err(Abort {
                    operation: index as u32,
                    code,
                    is_dirty: !self.undo.is_empty(),
                });
            }
        }
        Ok(if self.undo.is_empty() {
            ExecutionEffect::Read
        } else {
            ExecutionEffect::Change
        })
    }

    /// Executes one operation.
    #[inline]
    fn apply(
        &mut self,
        operation: Operation<'_>,
        batch: u64,
        answers: &mut Vec<u8>,
    ) -> Result<(), Code> {
        match operation {
            Operation::Read { key } => return self.read(key, answers),
            Operation::Write { key, value } => match self.items.get_mut(key) {
                Some(Item::Register(held)) => {
                    let before = std::mem::replace(held, value.to_vec());
                    self.undo.push(Undo::Register(before));
                }
                Some(Item::List(_)) => return Err(Code::WrongKind),
                None => self.insert(key, Item::Register(value.to_vec())),
            },
            Operation::Append { key, value } => self.append(key, value, batch)?,
            Operation::CompareAndSet {
                key,
                expected,
                value,
            } => match self.items.get_mut(key) {
                Some(Item::Register(held)) if expected == Some(held.as_slice()) => {
                    let before = std::mem::replace(held, value.to_vec());
                    self.undo.push(Undo::Register(before));
                }
                Some(Item::List(_)) => return Err(Code::WrongKind),
                None if expected.is_none() => self.insert(key, Item::Register(value.to_vec())),
                _ => return Err(Code::CompareFailed),
            },
        }
        put_done(answers);
        Ok(())
    }

    #[inline]
    fn read(&self, key: &[u8], answers: &mut Vec<u8>) -> Result<(), Code> {
        let put = match self.items.get(key) {
            None => {
                put_absent(answers);
                Ok(())
            }
            Some(Item::Register(value)) => put_register(answers, value),
            Some(Item::List(list)) => put_list(answers, list.count, &list.bytes),
        };
        put.map_err(|_| Code::AnswerTooLong)
    }

    fn insert(&mut self, key: &[u8], item: Item) {
        self.items.insert(key.into(), item);
        self.undo.push(Undo::Remove);
    }

    fn append(&mut self, key: &[u8], value: &[u8], batch: u64) -> Result<(), Code> {
        let Some(item) = self.items.get_mut(key) else {
            let mut list = StoredList::default();
            list.push(value);
            self.insert(key, Item::List(list));
            return Ok(());
        };
        let Item::List(list) = item else {
            return Err(Code::WrongKind);
        };
        if list.bytes.len() + 4 + value.len() > LIST_LENGTH_MAX {
            return Err(Code::ListFull);
        }
        let (count, length) = (list.count, list.bytes.len());
        let mut undo = Undo::Truncate { count, length };
        if let Some(bases) = &mut self.planted.lost_append {
            undo = Undo::List(list.clone());
            list.return_to_base(
                bases.entry(key.into()).or_insert(Base {
                    batch,
                    count,
                    length,
                }),
                batch,
            );
        }
        list.push(value);
        self.undo.push(undo);
        Ok(())
    }

    /// Undoes the changes of the present transaction, newest first.
    #[cold]
    fn roll_back(&mut self, operations: Operations<'_>) {
        if self.planted.dirty_abort {
            return;
        }
        let changes = operations
            .flatten()
            .filter(|operation| !operation.is_read());
        let keys: Vec<&[u8]> = changes
            .take(self.undo.len())
            .map(|operation| operation.key())
            .collect();
        for (key, undo) in keys.into_iter().zip(self.undo.drain(..)).rev() {
            match (undo, self.items.get_mut(key)) {
                (Undo::Remove, _) => {
                    self.items.remove(key);
                }
                (Undo::Register(before), Some(Item::Register(held))) => *held = before,
                (Undo::Truncate { count, length }, Some(Item::List(list))) => {
                    list.truncate(count, length);
                }
                (Undo::List(before), Some(Item::List(list))) => *list = before,
                (undo, item) => unreachable!("{undo:?} does not fit {item:?}"),
            }
        }
    }
}

impl StoredList {
    #[inline]
    fn push(&mut self, value: &[u8]) {
        self.bytes
            .extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(value);
        self.count += 1;
    }

    fn truncate(&mut self, count: u32, length: usize) {
        self.count = count;
        self.bytes.truncate(length);
    }

    /// The planted lost append: removes the appends of other transactions of the same group commit.
    fn return_to_base(&mut self, base: &mut Base, batch: u64) {
        if base.batch == batch {
            self.truncate(base.count, base.length);
        } else {
            *base = Base {
                batch,
                count: self.count,
                length: self.bytes.len(),
            };
        }
    }
}

#[cfg(test)]
mod tests;
