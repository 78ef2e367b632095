//! The keys and what is under them: the outcome of the log's commands and of nothing else.

use crate::answer::{put_absent, put_done, put_list, put_register};
use crate::message::{Code, LIST_LENGTH_MAX};
use crate::transaction::{Operation, Operations};
use std::collections::BTreeMap;

/// Registers and lists by key. Executes transactions one at a time; each either takes effect completely or leaves
/// everything as it was: every change leaves a note on how to take it back until the transaction commits.
///
/// A list is one buffer of encoded elements, so reading it is one copy. Everything is in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    items: BTreeMap<Box<[u8]>, Item>,
    /// How to take back the changes of the present transaction, oldest first; one entry per change.
    undo: Vec<Undo>,
    planted: Planted,
}

/// The bugs that change how transactions are executed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planted {
    /// Failed transactions are not taken back.
    pub(crate) dirty_abort: bool,
    /// The lists as they were when the present group commit began to gather.
    pub(crate) lost_append: Option<BTreeMap<Box<[u8]>, Base>>,
}

/// A list when the group commit `batch` first touched it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    batch: u64,
    count: u32,
    length: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Register(Vec<u8>),
    List(List),
}

/// Elements, each as length `u32` and bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct List {
    count: u32,
    bytes: Vec<u8>,
}

/// How to take one change back.
#[derive(Clone, Debug)]
enum Undo {
    /// The key was absent.
    Remove,
    /// The register held this.
    Register(Vec<u8>),
    /// The list was this long.
    Truncate { count: u32, length: usize },
    /// The list was this one.
    List(List),
}

/// A transaction that cannot be done; nothing of it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abort {
    /// Index of the first operation that could not be done.
    pub(crate) operation: u32,
    /// Why not.
    pub(crate) code: Code,
    /// Planted: something of it took effect nevertheless.
    pub(crate) is_dirty: bool,
}

impl Abort {
    /// A request whose header already says that it is none.
    pub(crate) const MALFORMED: Abort = Abort {
        operation: 0,
        code: Code::Malformed,
        is_dirty: false,
    };
}

/// Did the transaction change anything (and has to be logged)?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No.
    Read,
    /// Yes.
    Change,
}

impl State {
    /// Nothing under any key.
    pub(crate) fn new(planted: Planted) -> State {
        State {
            planted,
            ..State::default()
        }
    }

    /// Executes the operations of a request and adds their answers to `answers`. `batch` is the block of the log that
    /// the request belongs to.
    pub(crate) fn execute(
        &mut self,
        operations: Operations<'_>,
        batch: u64,
        answers: &mut Vec<u8>,
    ) -> Result<Effect, Abort> {
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
            Effect::Read
        } else {
            Effect::Change
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
            let mut list = List::default();
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

    /// Takes back the changes of the present transaction, newest first.
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

impl List {
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

    /// The planted lost append: forgets what others of the same group commit have appended.
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
