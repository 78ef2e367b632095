//! Writes the parts of a transaction into a chunk without building an operation.

use super::Encoder;
use super::layout::{mop, shape};
use super::shared_lists::SharedList;
use crate::{Key, OpType, Process, Symbol};
use std::cell::Cell;

/// What stands before the micro-operations of a client's transaction.
#[derive(Clone, Copy, Debug)]
pub struct TransactionHead {
    /// Its index.
    pub index: u64,
    /// When, in nanoseconds.
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
    /// One that reads no list.
    Plain {
        /// What it is: see [`mop_tag`](super::mop_tag).
        tag: u8,
        /// Its key.
        key: PartKey<'a>,
        /// What it appends, writes, or read.
        argument: i64,
    },
    /// A read of a list.
    List {
        /// Its key.
        key: PartKey<'a>,
        /// What it saw, oldest first.
        elements: &'a [i64],
        /// A memory of whoever knows longer and longer lists of the key, of which each is a prefix of the next, and hands over
        /// the first elements of one: 0 at first, and when another list was begun.
        bond: Option<&'a Cell<u64>>,
    },
}

impl Encoder {
    /// Adds a transaction that can be stored; `pair` is the distance to its invocation, or 0. What [`Encoder::push`] makes of
    /// the same operation.
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
    }

    fn part_key(&mut self, key: PartKey<'_>) -> u32 {
        match key {
            PartKey::Integer(number) => self.names.key(&Key::Int(number)),
            PartKey::Name(key) => self.names.key(key),
        }
    }

    /// Adds what every operation has.
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
