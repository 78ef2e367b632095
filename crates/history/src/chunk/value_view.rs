//! Values and micro-operations, borrowed from a chunk.

use super::layout::{mop, shape};
use super::{Chunk, Tape};
use crate::{Key, Symbol};

/// The value of an operation, without its independent key.
#[derive(Clone, Copy, Debug)]
pub enum ValueView<'a> {
    /// Nothing, or unknown.
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A compare-and-set.
    Cas(i64, i64),
    /// A transaction.
    Txn(Mops<'a>),
    /// A keyword or symbol.
    Word(Symbol),
    /// Text.
    Text(&'a str),
    /// A list of integers.
    Integers(&'a [i64]),
    /// A set of integers.
    IntegerSet(&'a [i64]),
    /// A transfer between bank accounts: the map `{:from … :to … :amount …}`.
    Transfer {
        /// The debited account.
        from: i64,
        /// The credited account.
        to: i64,
        /// The amount.
        amount: i64,
    },
    /// Anything else.
    Other(Tape<'a>),
}

/// The micro-operations of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Mops<'a> {
    chunk: &'a Chunk,
    start: usize,
    end: usize,
}

/// A micro-operation whose key is an id of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MopView<'a> {
    /// Append to a list.
    Append {
        /// The list.
        key: u32,
        /// The element.
        element: i64,
    },
    /// Write a register.
    Write {
        /// The register.
        key: u32,
        /// The value.
        value: i64,
    },
    /// A read of the initial state, or with unknown result.
    ReadNil {
        /// The list or register.
        key: u32,
    },
    /// A read of a register.
    ReadRegister {
        /// The register.
        key: u32,
        /// What was seen.
        value: i64,
    },
    /// A read of a list.
    ReadList {
        /// The list.
        key: u32,
        /// What was seen.
        elements: &'a [i64],
        /// Is it a prefix of the key's [`Chunk::list`]? Two such reads can be compared by length.
        shared: bool,
    },
}

impl MopView<'_> {
    /// The key's id.
    pub fn key(&self) -> u32 {
        match *self {
            MopView::Append { key, .. }
            | MopView::Write { key, .. }
            | MopView::ReadNil { key }
            | MopView::ReadRegister { key, .. }
            | MopView::ReadList { key, .. } => key,
        }
    }
}

impl<'a> Mops<'a> {
    /// Number of micro-operations.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Is there no micro-operation?
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The key with this id.
    pub fn key(&self, id: u32) -> &'a Key {
        self.chunk.key(id)
    }

    /// All micro-operations in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = MopView<'a>> + use<'a> {
        let chunk = self.chunk;
        (self.start..self.end).map(move |number| chunk.mop(number))
    }
}

impl Chunk {
    /// The value of the operation at `place`, without its key.
    pub fn value(&self, place: usize) -> ValueView<'_> {
        let template = self.template(place);
        let starts = self.operand_starts();
        let operands = &self.operands()[starts[place] as usize..starts[place + 1] as usize];
        let prefix = |length: i64| {
            let key = self.key_id(place).or(self.names.none_key).unwrap_or(0);
            &self.list(key)[..length as usize]
        };
        match (template.shape, operands) {
            (shape::FALSE, _) => ValueView::Bool(false),
            (shape::TRUE, _) => ValueView::Bool(true),
            (shape::INT, &[number]) => ValueView::Int(number),
            (shape::CAS, &[from, to]) => ValueView::Cas(from, to),
            (shape::TXN, _) => ValueView::Txn(self.mops(place)),
            (shape::WORD, &[id]) => ValueView::Word(self.names.word(id as usize)),
            (shape::TEXT, &[id]) => ValueView::Text(self.names.text(id as usize)),
            (shape::LIST_PREFIX, &[length]) => ValueView::Integers(prefix(length)),
            (shape::LIST_BRANCH, &[id]) => ValueView::Integers(self.reference(id)),
            (shape::SET_PREFIX, &[length]) => ValueView::IntegerSet(prefix(length)),
            (shape::SET_BRANCH, &[id]) => ValueView::IntegerSet(self.reference(id)),
            (shape::TRANSFER, &[from, to, amount]) => ValueView::Transfer { from, to, amount },
            (shape::TAPE, &[tags, integers]) => {
                ValueView::Other(self.tape(place, tags as usize, integers as usize))
            }
            _ => ValueView::Nil,
        }
    }

    fn tape(&self, place: usize, tags: usize, integers: usize) -> Tape<'_> {
        let starts = &self.tape_starts;
        let number = starts.partition_point(|start| (start.place as usize) < place);
        let (tag, integer) = (starts[number].tag as usize, starts[number].integer as usize);
        let tags = &self.tape_tags[tag..tag + tags];
        let integers = &self.tape_integers[integer..integer + integers];
        Tape::new(tags, integers, &self.names)
    }

    /// The micro-operations of the operation at `place`; none if it is no transaction.
    pub fn mops(&self, place: usize) -> Mops<'_> {
        let (start, end) = match self.mop_starts().get(place..) {
            Some(&[start, end, ..]) => (start as usize, end as usize),
            _ => (0, 0),
        };
        Mops {
            chunk: self,
            start,
            end,
        }
    }

    fn mop(&self, number: usize) -> MopView<'_> {
        let (key, argument) = (self.mop_keys()[number], self.mop_arguments()[number]);
        match self.mop_tags()[number] {
            mop::APPEND => MopView::Append {
                key,
                element: argument,
            },
            mop::WRITE => MopView::Write {
                key,
                value: argument,
            },
            mop::READ_REGISTER => MopView::ReadRegister {
                key,
                value: argument,
            },
            mop::READ_PREFIX => MopView::ReadList {
                key,
                elements: &self.list(key)[..argument as usize],
                shared: true,
            },
            mop::READ_BRANCH => MopView::ReadList {
                key,
                elements: self.reference(argument),
                shared: false,
            },
            _ => MopView::ReadNil { key },
        }
    }
}
