//! Values of any shape as runs of tags and integers, walked without building a tree.

use super::dictionary::{ChunkDictionary, Dictionary};
use super::layout::{DEPTH_MAX, tape as tag};
use crate::{Key, Mop, Observed, Symbol, Value};
use std::sync::Arc;

/// Tapes that are being written, one after the other.
#[derive(Default)]
pub(crate) struct TapeWriter {
    pub(crate) tags: Vec<u8>,
    pub(crate) integers: Vec<i64>,
}

impl TapeWriter {
    pub(crate) fn clear(&mut self) {
        self.tags.clear();
        self.integers.clear();
    }

    /// Appends a value; its nesting was checked.
    pub(crate) fn put(&mut self, value: &Value, names: &mut Dictionary) {
        match value {
            Value::Nil => self.tags.push(tag::NIL),
            Value::Bool(false) => self.tags.push(tag::FALSE),
            Value::Bool(true) => self.tags.push(tag::TRUE),
            Value::Int(number) => self.one(tag::INT, *number),
            Value::Float(number) => self.one(tag::FLOAT, number.to_bits().cast_signed()),
            Value::Text(text) => self.one(tag::TEXT, i64::from(names.text(text))),
            Value::Word(word) => self.one(tag::WORD, i64::from(names.word(*word))),
            Value::List(items) if self.pairs(tag::INT_PAIRS, items, integer_pair) => {}
            Value::List(items) => self.items(tag::LIST, tag::INTS, items, names),
            Value::Set(items) => self.items(tag::SET, tag::INT_SET, items, names),
            Value::Map(pairs) if self.pairs(tag::INT_MAP, pairs, integer_entry) => {}
            Value::Map(pairs) => {
                self.one(tag::MAP, pairs.len() as i64);
                for (key, value) in pairs.iter() {
                    self.put(key, names);
                    self.put(value, names);
                }
            }
            Value::Cas(from, to) => {
                self.tags.push(tag::CAS);
                self.integers.extend([from, to]);
            }
            Value::Txn(mops) => {
                self.one(tag::TXN, mops.len() as i64);
                for mop in mops.iter() {
                    self.mop(mop, names);
                }
            }
            Value::Keyed(key, value) => {
                let key = names.key(key);
                self.one(tag::KEYED, i64::from(key));
                self.put(value, names);
            }
        }
    }

    fn one(&mut self, tag: u8, integer: i64) {
        self.tags.push(tag);
        self.integers.push(integer);
    }

    fn items(&mut self, tag: u8, integers: u8, items: &[Value], names: &mut Dictionary) {
        if !items.is_empty() && items.iter().all(|item| matches!(item, Value::Int(_))) {
            self.one(integers, items.len() as i64);
            self.integers.extend(items.iter().filter_map(Value::as_int));
        } else {
            self.one(tag, items.len() as i64);
            for item in items {
                self.put(item, names);
            }
        }
    }

    /// Appends items that are all pairs of integers, under one tag; otherwise, or without items, changes nothing and returns
    /// false.
    fn pairs<T>(&mut self, tag: u8, items: &[T], of: fn(&T) -> Option<[i64; 2]>) -> bool {
        let start = self.integers.len();
        self.integers.push(items.len() as i64);
        for item in items {
            let Some(pair) = of(item) else {
                self.integers.truncate(start);
                return false;
            };
            self.integers.extend(pair);
        }
        if items.is_empty() {
            self.integers.truncate(start);
            return false;
        }
        self.tags.push(tag);
        debug_assert_eq!(self.integers.len(), start + 1 + 2 * items.len());
        true
    }

    fn mop(&mut self, mop: &Mop, names: &mut Dictionary) {
        let key = i64::from(names.key(mop.key()));
        let (tag, arguments) = match mop {
            Mop::Append { element, .. } => (tag::APPEND, std::slice::from_ref(element)),
            Mop::Write { value, .. } => (tag::WRITE, std::slice::from_ref(value)),
            Mop::Read { observed, .. } => match observed {
                Observed::Nil => (tag::READ_NIL, &[][..]),
                Observed::Register(value) => (tag::READ_REGISTER, std::slice::from_ref(value)),
                Observed::List(elements) => (tag::READ_LIST, &elements[..]),
            },
        };
        self.one(tag, key);
        if tag == tag::READ_LIST {
            self.integers.push(arguments.len() as i64);
        }
        self.integers.extend_from_slice(arguments);
    }
}

/// A list of exactly two integers.
fn integer_pair(item: &Value) -> Option<[i64; 2]> {
    match item {
        Value::List(items) => match items[..] {
            [Value::Int(first), Value::Int(second)] => Some([first, second]),
            _ => None,
        },
        _ => None,
    }
}

/// An integer key and an integer value.
fn integer_entry((key, value): &(Value, Value)) -> Option<[i64; 2]> {
    Some([key.as_int()?, value.as_int()?])
}

/// One step of a walk over a value, in preorder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// Nothing.
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(&'a str),
    /// A keyword or symbol.
    Word(Symbol),
    /// A list: this many values follow.
    List(usize),
    /// A set: this many values follow.
    Set(usize),
    /// A map: this many pairs of values follow.
    Map(usize),
    /// A non-empty list of integers.
    Integers(&'a [i64]),
    /// A non-empty set of integers.
    IntegerSet(&'a [i64]),
    /// A non-empty map from integers to integers, such as balances of bank accounts: keys and values alternate.
    IntegerMap(&'a [i64]),
    /// A non-empty list of pairs of integers, such as offsets and values of a log: first and second elements alternate.
    IntegerPairs(&'a [i64]),
    /// A compare-and-set.
    Cas(i64, i64),
    /// A transaction: this many micro-operations follow.
    Txn(usize),
    /// A value of this independent key: one value follows.
    Keyed(&'a Key),
    /// A micro-operation.
    Append(&'a Key, i64),
    /// A micro-operation.
    Write(&'a Key, i64),
    /// A read of the initial state, or with unknown result.
    ReadNil(&'a Key),
    /// A micro-operation.
    ReadRegister(&'a Key, i64),
    /// A micro-operation.
    ReadList(&'a Key, &'a [i64]),
}

/// One value of any shape: an iterator over its [`Token`]s in preorder, borrowed from the chunk.
#[derive(Clone, Copy, Debug)]
pub struct Tape<'a> {
    tags: &'a [u8],
    integers: &'a [i64],
    names: &'a ChunkDictionary,
}

impl<'a> Tape<'a> {
    pub(crate) fn new(tags: &'a [u8], integers: &'a [i64], names: &'a ChunkDictionary) -> Tape<'a> {
        Tape {
            tags,
            integers,
            names,
        }
    }

    /// The next integer; 0 past the end, which a validated tape does not reach.
    fn integer(&mut self) -> i64 {
        self.integers.split_off_first().copied().unwrap_or(0)
    }

    fn length(&mut self) -> usize {
        usize::try_from(self.integer()).unwrap_or(0)
    }

    fn run(&mut self) -> &'a [i64] {
        let length = self.length();
        self.integers.split_off(..length).unwrap_or_default()
    }

    /// A run of pairs: twice its length in integers.
    fn pairs(&mut self) -> &'a [i64] {
        let length = self.length().saturating_mul(2);
        self.integers.split_off(..length).unwrap_or_default()
    }

    fn key(&mut self) -> &'a Key {
        let id = self.length();
        self.names.key(id)
    }

    /// Builds the value.
    pub fn to_value(mut self) -> Value {
        self.build(0)
    }

    fn build(&mut self, depth: u32) -> Value {
        let Some(token) = self.next().filter(|_| depth <= DEPTH_MAX) else {
            return Value::Nil;
        };
        let integers = |run: &[i64]| run.iter().map(|&number| Value::Int(number)).collect();
        match token {
            Token::Bool(truth) => Value::Bool(truth),
            Token::Int(number) => Value::Int(number),
            Token::Float(number) => Value::Float(number),
            Token::Text(text) => Value::text(text),
            Token::Word(word) => Value::Word(word),
            Token::List(count) => Value::List(self.values(count, depth).into()),
            Token::Set(count) => Value::Set(self.values(count, depth).into()),
            Token::Map(count) => {
                let values = self.values(count.saturating_mul(2), depth);
                let pairs = values.as_chunks::<2>().0.iter();
                Value::Map(
                    pairs
                        .map(|[key, value]| (key.clone(), value.clone()))
                        .collect(),
                )
            }
            Token::Integers(run) => Value::List(integers(run)),
            Token::IntegerSet(run) => Value::Set(integers(run)),
            Token::IntegerMap(run) => Value::Map(pairs_of(run, |key, value| (key, value))),
            Token::IntegerPairs(run) => {
                let list = |first, second| Value::List([first, second].into());
                Value::List(pairs_of(run, list))
            }
            Token::Cas(from, to) => Value::Cas(from, to),
            Token::Txn(count) => {
                let count = count.min(self.tags.len());
                Value::Txn((0..count).filter_map(|_| self.mop()).collect())
            }
            Token::Keyed(key) => Value::Keyed(key.clone(), self.build(depth + 1).into()),
            // Micro-operations occur only inside of transactions: validated.
            Token::Nil
            | Token::Append(..)
            | Token::Write(..)
            | Token::ReadNil(_)
            | Token::ReadRegister(..)
            | Token::ReadList(..) => Value::Nil,
        }
    }

    fn values(&mut self, count: usize, depth: u32) -> Vec<Value> {
        let count = count.min(self.tags.len());
        (0..count).map(|_| self.build(depth + 1)).collect()
    }

    fn mop(&mut self) -> Option<Mop> {
        let read = |key: &Key, observed| Mop::Read {
            key: key.clone(),
            observed,
        };
        Some(match self.next()? {
            Token::Append(key, element) => Mop::Append {
                key: key.clone(),
                element,
            },
            Token::Write(key, value) => Mop::Write {
                key: key.clone(),
                value,
            },
            Token::ReadNil(key) => read(key, Observed::Nil),
            Token::ReadRegister(key, value) => read(key, Observed::Register(value)),
            Token::ReadList(key, elements) => read(key, Observed::List(elements.into())),
            _ => return None,
        })
    }
}

/// Maps each pair of integers.
fn pairs_of<T>(run: &[i64], of: impl Fn(Value, Value) -> T) -> Arc<[T]> {
    let pairs = run.as_chunks::<2>().0.iter();
    let values = pairs.map(|&[first, second]| of(Value::Int(first), Value::Int(second)));
    values.collect()
}

#[expect(
    clippy::copy_iterator,
    reason = "a tape is a view; a copy of it starts where it stands"
)]
impl<'a> Iterator for Tape<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let tag = *self.tags.split_off_first()?;
        Some(match tag {
            tag::FALSE => Token::Bool(false),
            tag::TRUE => Token::Bool(true),
            tag::INT => Token::Int(self.integer()),
            tag::FLOAT => Token::Float(f64::from_bits(self.integer().cast_unsigned())),
            tag::TEXT => {
                let id = self.length();
                Token::Text(self.names.text(id))
            }
            tag::WORD => {
                let id = self.length();
                Token::Word(self.names.word(id))
            }
            tag::LIST => Token::List(self.length()),
            tag::SET => Token::Set(self.length()),
            tag::MAP => Token::Map(self.length()),
            tag::INTS => Token::Integers(self.run()),
            tag::INT_SET => Token::IntegerSet(self.run()),
            tag::INT_MAP => Token::IntegerMap(self.pairs()),
            tag::INT_PAIRS => Token::IntegerPairs(self.pairs()),
            tag::CAS => Token::Cas(self.integer(), self.integer()),
            tag::TXN => Token::Txn(self.length()),
            tag::KEYED => Token::Keyed(self.key()),
            tag::APPEND => Token::Append(self.key(), self.integer()),
            tag::WRITE => Token::Write(self.key(), self.integer()),
            tag::READ_NIL => Token::ReadNil(self.key()),
            tag::READ_REGISTER => Token::ReadRegister(self.key(), self.integer()),
            tag::READ_LIST => Token::ReadList(self.key(), self.run()),
            _ => Token::Nil,
        })
    }
}

/// Fails unless this is exactly one well-formed value. Iterative, so that hostile nesting cannot exhaust the stack.
pub(crate) fn check(
    tags: &[u8],
    integers: &[i64],
    names: &ChunkDictionary,
) -> Result<(), &'static str> {
    let mut walk = Walk {
        tags,
        integers,
        names,
    };
    // Values still missing at each depth.
    let mut pending = vec![1_usize];
    while let Some(count) = pending.last_mut() {
        if *count == 0 {
            pending.pop();
            continue;
        }
        *count -= 1;
        let inside = walk.value()?;
        if inside > 0 {
            pending.push(inside);
        }
        if pending.len() > DEPTH_MAX as usize + 1 {
            return Err("nests too deep");
        }
    }
    let rest = !walk.tags.is_empty() || !walk.integers.is_empty();
    if rest {
        Err("has data after its value")
    } else {
        Ok(())
    }
}

struct Walk<'a> {
    tags: &'a [u8],
    integers: &'a [i64],
    names: &'a ChunkDictionary,
}

impl Walk<'_> {
    /// Skips one tag and its integers; returns the number of values that it contains.
    fn value(&mut self) -> Result<usize, &'static str> {
        match self.tag()? {
            tag::NIL | tag::FALSE | tag::TRUE => {}
            tag::INT | tag::FLOAT => self.skip(1)?,
            tag::CAS => self.skip(2)?,
            tag::TEXT => {
                let id = self.length()?;
                if id >= self.names.text_count() {
                    return Err("points at no text");
                }
            }
            tag::WORD => {
                let id = self.length()?;
                if id >= self.names.words.len() {
                    return Err("points at no word");
                }
            }
            tag::LIST | tag::SET => return self.count(1),
            tag::MAP => return self.count(2),
            tag::INTS | tag::INT_SET => {
                let length = self.length()?;
                if length == 0 {
                    return Err("has an empty run of integers");
                }
                self.skip(length)?;
            }
            tag::INT_MAP | tag::INT_PAIRS => {
                let length = self.length()?.checked_mul(2).ok_or("lacks integers")?;
                if length == 0 {
                    return Err("has an empty run of integers");
                }
                self.skip(length)?;
            }
            tag::TXN => {
                for _ in 0..self.count(1)? {
                    self.mop()?;
                }
            }
            tag::KEYED => {
                self.key()?;
                return Ok(1);
            }
            _ => return Err("has an unknown tag"),
        }
        Ok(0)
    }

    fn mop(&mut self) -> Result<(), &'static str> {
        let tag = self.tag()?;
        self.key()?;
        match tag {
            tag::APPEND | tag::WRITE | tag::READ_REGISTER => self.skip(1),
            tag::READ_NIL => Ok(()),
            tag::READ_LIST => {
                let length = self.length()?;
                self.skip(length)
            }
            _ => Err("has an unknown micro-operation"),
        }
    }

    fn tag(&mut self) -> Result<u8, &'static str> {
        self.tags.split_off_first().copied().ok_or("lacks tags")
    }

    fn length(&mut self) -> Result<usize, &'static str> {
        let integer = self.integers.split_off_first().ok_or("lacks integers")?;
        usize::try_from(*integer).map_err(|_| "has a negative length")
    }

    /// Reads a number of values times `each`. Each value takes at least one tag, which bounds it.
    fn count(&mut self, each: usize) -> Result<usize, &'static str> {
        let length = self.length()?;
        let fits = length
            .checked_mul(each)
            .filter(|&count| count <= self.tags.len());
        fits.ok_or("lacks tags")
    }

    fn key(&mut self) -> Result<(), &'static str> {
        let id = self.length()?;
        let known = self.names.is_key(id as i64);
        known.then_some(()).ok_or("points at no key")
    }

    fn skip(&mut self, count: usize) -> Result<(), &'static str> {
        let skipped = self.integers.split_off(..count);
        skipped.map(|_| ()).ok_or("lacks integers")
    }
}
