//! Writes the parts of a transaction into a chunk without building an operation.

use super::Encoder;
use super::layout::{mop, shape};
use super::shared_lists::SharedList;
use crate::{Key, OpType, Process, Symbol};
use std::cell::Cell;

/// A client's transaction without its micro-operations.
#[derive(Clone, Copy, Debug)]
pub struct TransactionHead {
    /// Its index.
    pub index: u64,
    /// Time in nanoseconds.
    pub time: i64,
    /// Its type.
    pub kind: OpType,
    /// The process.
    pub client: u64,
    /// Its function.
    pub f: Symbol,
}

/// The key of a micro-operation.
#[derive(Clone, Copy)]
pub enum PartKey<'a> {
    /// A number.
    Integer(i64),
    /// Any other key.
    Name(&'a Key),
}

/// A micro-operation.
pub enum TransactionPart<'a> {
    /// A micro-operation that reads no list.
    Plain {
        /// One of [`mop_tag`](super::mop_tag).
        tag: u8,
        /// Its key.
        key: PartKey<'a>,
        /// The element, or the value written or read.
        argument: i64,
    },
    /// A read of a list.
    List {
        /// Its key.
        key: PartKey<'a>,
        /// The elements, oldest first.
        elements: &'a [i64],
        /// For a caller that keeps a growing list of the key and passes prefixes of it: a cell that is 0 at first and whenever
        /// the caller begins another list. Saves the comparison of elements.
        bond: Option<&'a Cell<u64>>,
    },
}

impl Encoder {
    /// Adds a transaction that can be stored, as [`Encoder::push`] does; `pair` is the distance to its invocation, or 0.
    pub(crate) fn push_parts<'a>(
        &mut self,
        head: &TransactionHead,
        parts: impl ExactSizeIterator<Item = TransactionPart<'a>>,
        pair: u64,
    ) {
        self.operands.push(parts.len() as i64);
        for part in parts {
            let (tag, key, argument) = match part {
                TransactionPart::Plain { tag, key, argument } => {
                    (tag, self.part_key(key), argument)
                }
                TransactionPart::List {
                    key,
                    elements,
                    bond,
                } => {
                    let key = self.part_key(key);
                    let seen = match bond {
                        Some(bond) => self.names.lists.see_bound(key, elements, bond),
                        None => self.names.lists.see(key, elements),
                    };
                    match seen {
                        SharedList::Prefix(length) => (mop::READ_PREFIX, key, i64::from(length)),
                        SharedList::Branch(reference) => {
                            (mop::READ_BRANCH, key, i64::from(reference))
                        }
                    }
                }
            };
            self.mop_tags.push(tag);
            self.mop_keys.push(key);
            self.mop_arguments.push(argument);
        }
        let f = self.names.word(head.f);
        let template = self.templates.plain(head.kind, shape::TXN, f);
        let client = Process::Client(head.client);
        let process = self.processes.id(client, &mut self.names);
        self.put_row(template, process, head.index, head.time, pair);
        self.keys.push(0);
        self.counts[head.kind as usize] += 1;
        debug_assert_eq!(self.keys.len(), self.len(), "an operation lacks its key");
    }

    fn part_key(&mut self, key: PartKey<'_>) -> u32 {
        match key {
            PartKey::Integer(number) => self.names.key(&Key::Int(number)),
            PartKey::Name(key) => self.names.key(key),
        }
    }

    /// Adds the columns that every operation has.
    pub(super) fn put_row(
        &mut self,
        template: u32,
        process: u32,
        index: u64,
        time: i64,
        pair: u64,
    ) {
        self.template_ids.push(template);
        self.process_ids.push(process);
        self.indices.push(index.cast_signed());
        self.times.push(time);
        self.pairs.push(pair.cast_signed());
    }
}
