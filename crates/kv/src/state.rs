//! The state of a store: keys and their values, determined by the log's commands alone.

mod request;
mod spare_value;
mod state_items;
mod state_key;
mod stored_list;

use crate::session_table::Sessions;
#[allow(unused_imports, reason = "for the replica")]
pub(crate) use request::AppliedRequest;
use seatrial_kv_protocol::answer_encoder::put_done;
use seatrial_kv_protocol::message::Code;
use seatrial_kv_protocol::{Operation, Operations};
use spare_value::SpareValue;
pub(crate) use state_items::{Item, StateItems, Undo};
pub(crate) use state_key::StateKey;
use std::collections::BTreeMap;
pub(crate) use stored_list::StoredList;

/// Registers and lists by key. Executes transactions one at a time; each takes effect completely or not at all: every change
/// pushes an undo entry, which is kept until the transaction commits. (Dropping a changed clone would do as well, but every
/// transaction would then copy the shared nodes on its way.)
///
/// It draws on nothing but its commands: no time, no randomness, no order of a hash table. Everything is in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreState {
    items: StateItems,
    sessions: Sessions,
    /// Answers of the present request, kept for its memory.
    answers: Vec<u8>,
    /// Undo log of the present transaction, oldest change first, each with the number of its operation.
    undo: Vec<(u32, Undo)>,
    spare: SpareValue,
    planted: Planted,
}

/// The state at one index, unaffected by later commands. Taking one takes constant time at any size. While it is alive, each
/// change of the state keeps the replaced value and copies a few nodes of the map.
///
/// It may be read on any thread. Dropping the last snapshot of an index frees everything that only it holds, which takes
/// milliseconds when much was overwritten since: drop it in a [`Job`](seatrial_machine::Job), not in a turn.
#[derive(Clone, Debug)]
pub(crate) struct StateSnapshot {
    items: StateItems,
    sessions: Sessions,
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
    #[cfg(test)]
    pub(crate) fn new(planted: Planted) -> StoreState {
        StoreState {
            planted,
            ..StoreState::default()
        }
    }

    /// The state of a checkpoint, without planted bugs.
    pub(crate) fn restore(items: StateItems, sessions: Sessions) -> StoreState {
        StoreState {
            items,
            sessions,
            ..StoreState::default()
        }
    }

    /// Plants bugs.
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// The items.
    pub(crate) fn items(&self) -> &StateItems {
        &self.items
    }

    /// The sessions, which commands open and close.
    pub(crate) fn sessions(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// Number of open sessions.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes of all keys, values and encoded lists (4 bytes more per element).
    pub(crate) fn size(&self) -> u64 {
        self.items.size()
    }

    /// The present state, in constant time.
    pub(crate) fn snapshot(&self) -> StateSnapshot {
        StateSnapshot {
            items: self.items.clone(),
            sessions: self.sessions.clone(),
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
        debug_assert!(self.undo.is_empty());
        for (index, operation) in operations.clone().enumerate() {
            let index = index as u32;
            let done = match operation {
                Ok(operation) => self.execute_one(index, operation, batch, answers),
                Err(_) => Err(Code::Malformed),
            };
            if let Err(code) = done {
                return Err(Abort {
                    operation: index,
                    code,
                    is_dirty: !self.roll_back(operations),
                });
            }
        }
        let effect = if self.undo.is_empty() {
            ExecutionEffect::Read
        } else {
            ExecutionEffect::Change
        };
        // Frees the overwritten values now, not with the next transaction.
        for (_, undo) in self.undo.drain(..) {
            self.spare.keep(undo);
        }
        Ok(effect)
    }

    /// Executes one operation.
    #[inline]
    fn execute_one(
        &mut self,
        index: u32,
        operation: Operation<'_>,
        batch: u64,
        answers: &mut Vec<u8>,
    ) -> Result<(), Code> {
        let undo = match operation {
            // The last one is refused there: it does not go with writes.
            Operation::Read { .. } | Operation::Scan { .. } | Operation::At { .. } => {
                return self.items.answer(operation, answers);
            }
            Operation::Write { key, value } => {
                Some(self.items.write(key, value, &mut self.spare)?)
            }
            Operation::Append { key, value } => Some(self.append(key, value, batch)?),
            Operation::CompareAndSet {
                key,
                expected,
                value,
            } => Some(
                self.items
                    .compare_and_set(key, expected, value, &mut self.spare)?,
            ),
            Operation::Delete { key } => {
                if let Some(bases) = &mut self.planted.lost_append {
                    bases.remove(key);
                }
                self.items.delete(key)
            }
        };
        self.undo.extend(undo.map(|undo| (index, undo)));
        put_done(answers);
        Ok(())
    }

    fn append(&mut self, key: &[u8], value: &[u8], batch: u64) -> Result<Undo, Code> {
        if self.planted.lost_append.is_none() {
            return self.items.append(key, value);
        }
        let before = self.items.get(key).cloned();
        if let Some(Item::List(list)) = &before {
            self.return_to_base(key, list, batch);
        }
        match (self.items.append(key, value), before) {
            (Ok(_), Some(before)) => Ok(Undo::Restore(before)),
            (Err(code), Some(before)) => {
                self.items.revert(key, Undo::Restore(before));
                Err(code)
            }
            (done, None) => done,
        }
    }

    /// The planted lost append: removes the appends of other transactions of the same group commit.
    fn return_to_base(&mut self, key: &[u8], list: &StoredList, batch: u64) {
        let (count, length) = (list.count(), list.length());
        let present = Base {
            batch,
            count,
            length,
        };
        let Some(bases) = &mut self.planted.lost_append else {
            return;
        };
        let base = bases.entry(key.into()).or_insert(present);
        if base.batch != batch {
            *base = present;
        }
        // An abort since then may have made the list shorter than its base.
        if base.length < length {
            self.items.truncate(key, base.count, base.length);
        }
    }

    /// Undoes the changes of the present transaction, newest first. False: they stay (planted).
    #[cold]
    fn roll_back(&mut self, operations: Operations<'_>) -> bool {
        if self.planted.dirty_abort && !self.undo.is_empty() {
            self.undo.clear();
            return false;
        }
        // Every operation before the failed one has decoded, so the place of a key is the number of its operation.
        let keys: Vec<&[u8]> = operations
            .map_while(|operation| operation.ok().map(|operation| operation.key()))
            .collect();
        for (index, undo) in self.undo.drain(..).rev() {
            self.items.revert(keys[index as usize], undo);
        }
        true
    }
}

impl StateItems {
    /// Adds the answer to a read or scan.
    #[inline]
    fn answer(&self, operation: Operation<'_>, answers: &mut Vec<u8>) -> Result<(), Code> {
        match operation {
            Operation::Read { key } => self.read(key, answers),
            Operation::Scan { from, to, limit } => self.scan(from, to, usize::from(limit), answers),
            _ => Err(Code::Malformed),
        }
    }
}

impl StateSnapshot {
    /// The items.
    pub(crate) fn items(&self) -> &StateItems {
        &self.items
    }

    /// The sessions.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Bytes of all keys, values and encoded lists.
    pub(crate) fn size(&self) -> u64 {
        self.items.size()
    }
}

#[cfg(test)]
mod tests;
