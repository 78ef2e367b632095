//! Items by key in a persistent map: snapshots in constant time.

use super::spare_value::SpareValue;
use super::state_key::StateKey;
use super::stored_list::StoredList;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use seatrial_kv_protocol::answer_encoder::{self, TooLong};
use seatrial_kv_protocol::message::{Code, LIST_LENGTH_MAX};
use std::ops::Bound;
use std::sync::Arc;

/// A register or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A register: its value.
    Register(Arc<[u8]>),
    /// A list.
    List(Arc<StoredList>),
}

impl Item {
    /// Bytes that the item adds to [`StateItems::size`], besides its key.
    fn length(&self) -> u64 {
        match self {
            Item::Register(value) => value.len() as u64,
            Item::List(list) => list.length() as u64,
        }
    }

    /// Bytes that reading it adds to a reply, about.
    pub(crate) fn answer_length(&self) -> usize {
        self.length() as usize + 16
    }

    /// Adds the item to the answers.
    #[inline]
    fn put(&self, answers: &mut Vec<u8>) -> Result<(), TooLong> {
        match self {
            Item::Register(value) => answer_encoder::put_register(answers, value),
            Item::List(list) => {
                answer_encoder::put_list(answers, list.count(), list.length(), list.chunks())
            }
        }
    }
}

/// All items, in the order of their keys. The map is a B+ tree whose nodes are shared with its clones: `clone` takes constant
/// time at any size, and a later change copies the nodes on the way to its key that are still shared (three or four of up to
/// 16 keys each), never a value. Without a clone alive changes are made in place.
///
/// Each change returns the [`Undo`] that reverts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateItems {
    map: OrdMap<StateKey, Item>,
    /// Bytes of all keys, values and encoded lists.
    size: u64,
}

/// Reverts one change of one key.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    /// The key did not exist.
    Remove,
    /// The key had this item.
    Restore(Item),
    /// The list had this count and length.
    Truncate { count: u32, length: usize },
}

impl StateItems {
    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Bytes of all keys, values and encoded lists.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The item of a key.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Item> {
        self.map.get(key)
    }

    /// The items with keys after `after` (from the first one on for `None`), in order. Finding the first takes O(log n).
    pub(crate) fn after(&self, after: Option<&[u8]>) -> impl Iterator<Item = (&[u8], &Item)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.map.range::<_, [u8]>((from, Bound::Unbounded));
        range.map(|(key, item)| (key.as_slice(), item))
    }

    /// The keys that `older` lacks, or that it has with other contents, or that it has and this state lacks; in order. Nodes
    /// that both share are skipped: O(changes) if one is a snapshot of the other's past.
    pub(crate) fn changed_keys(&self, older: &StateItems) -> Vec<StateKey> {
        let changes = older.map.diff(&self.map).map(|change| match change {
            DiffItem::Add(key, _)
            | DiffItem::Remove(key, _)
            | DiffItem::Update { new: (key, _), .. } => key.clone(),
        });
        changes.collect()
    }

    /// Adds the item of `key` to the answers.
    #[inline]
    pub(crate) fn read(&self, key: &[u8], answers: &mut Vec<u8>) -> Result<(), Code> {
        match self.get(key) {
            None => {
                answer_encoder::put_absent(answers);
                Ok(())
            }
            Some(item) => item.put(answers).map_err(|_| Code::AnswerTooLong),
        }
    }

    /// Adds up to `limit` keys of `from..to` (without end for `None`) and their items to the answers. Stops early at the item
    /// that does not fit any more; an error if that is the first one.
    pub(crate) fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        answers: &mut Vec<u8>,
    ) -> Result<(), Code> {
        let mut range =
            answer_encoder::RangeEncoder::begin(answers).map_err(|_| Code::AnswerTooLong)?;
        let is_before_end = |key: &[u8]| to.is_none_or(|to| key < to);
        let items = self
            .map
            .range::<_, [u8]>((Bound::Included(from), Bound::Unbounded));
        for (key, item) in items.take_while(|(key, _)| is_before_end(key.as_slice())) {
            let is_full = range.count() == limit;
            if is_full
                || range
                    .put(answers, key.as_slice(), |out| item.put(out))
                    .is_err()
            {
                if range.count() == 0 {
                    return Err(Code::AnswerTooLong);
                }
                range.cut();
                break;
            }
        }
        range.finish(answers);
        Ok(())
    }

    /// Writes a register; `spare` may become its buffer.
    #[inline]
    pub(crate) fn write(
        &mut self,
        key: &[u8],
        value: &[u8],
        spare: &mut SpareValue,
    ) -> Result<Undo, Code> {
        match self.map.get_mut(key) {
            Some(Item::Register(held)) => {
                let before = std::mem::replace(held, spare.fill(value));
                self.size = self.size + value.len() as u64 - before.len() as u64;
                Ok(Undo::Restore(Item::Register(before)))
            }
            Some(Item::List(_)) => Err(Code::WrongKind),
            None => Ok(self.insert(key, Item::Register(spare.fill(value)))),
        }
    }

    /// Writes a register that has the value `expected`; `None`: a key that does not exist.
    pub(crate) fn compare_and_set(
        &mut self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
        spare: &mut SpareValue,
    ) -> Result<Undo, Code> {
        // Looks before it changes: a failed comparison copies no shared node.
        match self.map.get(key) {
            Some(Item::Register(held)) if expected == Some(held) => self.write(key, value, spare),
            Some(Item::List(_)) => Err(Code::WrongKind),
            None if expected.is_none() => Ok(self.insert(key, Item::Register(value.into()))),
            _ => Err(Code::CompareFailed),
        }
    }

    /// Appends an element to a list.
    #[inline]
    pub(crate) fn append(&mut self, key: &[u8], value: &[u8]) -> Result<Undo, Code> {
        match self.map.get_mut(key) {
            Some(Item::Register(_)) => Err(Code::WrongKind),
            Some(Item::List(list)) => {
                let (count, length) = (list.count(), list.length());
                if length + 4 + value.len() > LIST_LENGTH_MAX {
                    return Err(Code::ListFull);
                }
                Arc::make_mut(list).push(value);
                self.size += 4 + value.len() as u64;
                Ok(Undo::Truncate { count, length })
            }
            None if 4 + value.len() > LIST_LENGTH_MAX => Err(Code::ListFull),
            None => {
                let mut list = StoredList::default();
                list.push(value);
                Ok(self.insert(key, Item::List(Arc::new(list))))
            }
        }
    }

    /// Removes a key; `None` if it does not exist.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Option<Undo> {
        let before = self.map.remove(key)?;
        self.size -= key.len() as u64 + before.length();
        Some(Undo::Restore(before))
    }

    /// Adds a key that does not exist.
    pub(crate) fn insert(&mut self, key: &[u8], item: Item) -> Undo {
        self.size += key.len() as u64 + item.length();
        let before = self.map.insert(key.into(), item);
        assert!(before.is_none(), "a key was inserted twice");
        Undo::Remove
    }

    /// Writes an item in place of what `key` has.
    pub(crate) fn replace(&mut self, key: &[u8], item: Item) {
        self.delete(key);
        self.insert(key, item);
    }

    /// Returns the list `key` to an earlier count and length.
    pub(crate) fn truncate(&mut self, key: &[u8], count: u32, length: usize) {
        match self.map.get_mut(key) {
            Some(Item::List(list)) => {
                self.size -= (list.length() - length) as u64;
                Arc::make_mut(list).truncate(count, length);
            }
            other => unreachable!("{other:?} is not a list"),
        }
    }

    /// Reverts the newest change of `key`.
    pub(crate) fn revert(&mut self, key: &[u8], undo: Undo) {
        match undo {
            Undo::Remove => {
                self.delete(key);
            }
            Undo::Restore(item) => self.replace(key, item),
            Undo::Truncate { count, length } => self.truncate(key, count, length),
        }
    }

    /// Asserts that the size is the sum over all items; O(n).
    #[cfg(test)]
    pub(crate) fn check_size(&self) {
        let sizes = self
            .after(None)
            .map(|(key, item)| key.len() as u64 + item.length());
        assert_eq!(self.size, sizes.sum::<u64>());
    }
}
