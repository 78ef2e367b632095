//! Iterates over the operations of a chunk.

use super::layout::shape;
use super::{Chunk, MopView, ValueView};
use crate::{Extra, Mop, Observed, Op, Value};
use std::sync::Arc;

/// Builds the operations of a chunk in order. Consecutive equal texts, fields and lists share memory.
pub struct ChunkOps<'a> {
    chunk: &'a Chunk,
    // Columns of the chunk, which are asked for once here and not for each operation.
    template_ids: &'a [u32],
    operand_starts: &'a [u32],
    operands: &'a [i64],
    next: usize,
    /// Values of the entries of extra fields, once built.
    entries: Vec<Option<Value>>,
    /// Per entry that was the only field of an operation: the field's id and the built fields.
    single: Vec<Option<(u32, Extra)>>,
    /// The last list of each key.
    lists: Vec<Option<Arc<[i64]>>>,
}

impl<'a> ChunkOps<'a> {
    pub(crate) fn new(chunk: &'a Chunk) -> ChunkOps<'a> {
        let entries = chunk.entry_starts.len().saturating_sub(1);
        ChunkOps {
            entries: vec![None; entries],
            single: vec![None; entries],
            lists: vec![None; chunk.key_count()],
            ..ChunkOps::forgetful(chunk)
        }
    }

    /// Without memory: to build a single operation.
    pub(crate) fn forgetful(chunk: &'a Chunk) -> ChunkOps<'a> {
        ChunkOps {
            chunk,
            template_ids: chunk.template_ids(),
            operand_starts: chunk.operand_starts(),
            operands: chunk.operands(),
            next: 0,
            entries: Vec::new(),
            single: Vec::new(),
            lists: Vec::new(),
        }
    }

    /// The operation at `place`.
    pub(crate) fn op(&mut self, place: usize) -> Op {
        let chunk = self.chunk;
        let value = self.value(place);
        let value = match chunk.key_id(place) {
            Some(key) => Value::Keyed(chunk.key(key).clone(), value.into()),
            None => value,
        };
        Op {
            index: chunk.index(place),
            time: chunk.times()[place],
            kind: chunk.kinds()[place],
            process: chunk.process(place),
            f: chunk.f(place),
            value,
            extra: self.extra(place),
        }
    }

    /// The value of the operation at `place`, without its independent key. It shares memory with those built before.
    #[inline]
    pub fn value(&mut self, place: usize) -> Value {
        let template = &self.chunk.templates[self.template_ids[place] as usize];
        if template.shape == shape::INT {
            // Most values by far.
            return Value::Int(self.operands[self.operand_starts[place] as usize]);
        }
        self.any_value(place)
    }

    fn any_value(&mut self, place: usize) -> Value {
        let values = |integers: &[i64]| integers.iter().map(|&number| Value::Int(number)).collect();
        match self.chunk.value(place) {
            ValueView::Nil => Value::Nil,
            ValueView::Bool(truth) => Value::Bool(truth),
            ValueView::Int(number) => Value::Int(number),
            ValueView::Cas(from, to) => Value::Cas(from, to),
            ValueView::Word(word) => Value::Word(word),
            ValueView::Text(text) => Value::text(text),
            ValueView::Integers(integers) => Value::List(values(integers)),
            ValueView::IntegerSet(integers) => Value::Set(values(integers)),
            ValueView::Transfer { from, to, amount } => Value::transfer(from, to, amount),
            ValueView::Other(tape) => tape.to_value(),
            ValueView::Txn(mops) => Value::Txn(mops.iter().map(|mop| self.mop(mop)).collect()),
        }
    }

    fn mop(&mut self, mop: MopView<'_>) -> Mop {
        let id = mop.key();
        let key = self.chunk.key(id).clone();
        let observed = match mop {
            MopView::Append { element, .. } => return Mop::Append { key, element },
            MopView::Write { value, .. } => return Mop::Write { key, value },
            MopView::ReadNil { .. } => Observed::Nil,
            MopView::ReadRegister { value, .. } => Observed::Register(value),
            MopView::ReadList { elements, .. } => Observed::List(self.list(id, elements)),
        };
        Mop::Read { key, observed }
    }

    fn list(&mut self, key: u32, elements: &[i64]) -> Arc<[i64]> {
        let Some(last) = self.lists.get_mut(key as usize) else {
            return elements.into();
        };
        match last {
            Some(list) if **list == *elements => list.clone(),
            _ => last.insert(elements.into()).clone(),
        }
    }

    /// The extra fields of the operation at `place`. They share memory with those built before.
    pub fn extra(&mut self, place: usize) -> Extra {
        let chunk = self.chunk;
        match *chunk.extra_ids(place) {
            [] => Extra::NONE,
            [(field, entry)] => {
                if let Some(Some((known, extra))) = self.single.get(entry as usize)
                    && *known == field
                {
                    return extra.clone();
                }
                let name = chunk.field_names[field as usize];
                let extra = Extra::new(&[(name, self.entry(entry))]);
                if let Some(single) = self.single.get_mut(entry as usize) {
                    *single = Some((field, extra.clone()));
                }
                extra
            }
            ref several => {
                let fields = several
                    .iter()
                    .map(|&(field, entry)| (chunk.field_names[field as usize], self.entry(entry)));
                Extra::new(&fields.collect::<Vec<_>>())
            }
        }
    }

    fn entry(&mut self, id: u32) -> Value {
        let make = || self.chunk.entry(id).to_value();
        match self.entries.get_mut(id as usize) {
            Some(entry) => entry.get_or_insert_with(make).clone(),
            None => make(),
        }
    }
}

impl Iterator for ChunkOps<'_> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let place = self.next;
        if place == self.chunk.len() {
            return None;
        }
        self.next += 1;
        Some(self.op(place))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.chunk.len() - self.next;
        (rest, Some(rest))
    }
}

impl ExactSizeIterator for ChunkOps<'_> {}
