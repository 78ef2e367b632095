//! Encodes operations as the bytes of a chunk.

use super::column_writer::ChunkColumnWriter;
use super::dictionary::{Dictionary, NO_ID};
use super::layout::{
    DEPTH_MAX, NAME_LENGTH_MAX, OPERATIONS_MAX, SHARED_LENGTH_MIN, VERSION, column, kind, mop,
    shape,
};
use super::shared_lists::SharedList;
use super::tape::TapeWriter;
use crate::hash::FixedMap;
use crate::{Extra, Key, Mop, Observed, Op, OpType, Process, Symbol, Value};
use seatrial_blocks::packed::IntegerSlice;

/// Most bytes that one operation may take.
pub const OPERATION_BYTES_MAX: usize = 16 << 20;
/// A chunk of this many bytes takes no further operation; with one of maximal size it still fits a block.
pub const CHUNK_BYTES_MAX: usize = 32 << 20;
/// Bytes of an operation without its value.
const OPERATION_BYTES: usize = 40;

/// Counted for each extra field, which has a column of its own: a chunk's header has room for 65,535 columns, and this fills a
/// chunk with half as many.
const FIELD_BYTES: usize = 1_024;
const _: () = assert!(CHUNK_BYTES_MAX / FIELD_BYTES <= 32_768);

/// Why an operation cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unstorable {
    /// A name is too long.
    #[error("a name of {length} bytes, at most {NAME_LENGTH_MAX} are allowed")]
    Name {
        /// Its length.
        length: usize,
    },
    /// A value is nested too deep.
    #[error("a value nested deeper than {DEPTH_MAX}")]
    Depth,
    /// The operation is too large.
    #[error("more than {OPERATION_BYTES_MAX} bytes")]
    Size,
}

/// An upper bound of the bytes that `op` adds to a chunk, or why it cannot be stored.
pub fn measure(op: &Op) -> Result<usize, Unstorable> {
    measure_with(op, measure_value(&op.value, 0)?)
}

/// [`measure`] with a known size of the value.
#[inline]
fn measure_with(op: &Op, value: usize) -> Result<usize, Unstorable> {
    let mut bytes = OPERATION_BYTES + name(op.f)? + value;
    if let Process::Named(process) = op.process {
        bytes += name(process)?;
    }
    if !op.extra.is_empty() {
        for (field, value) in op.extra.iter() {
            bytes += FIELD_BYTES + name(*field)? + measure_value(value, 0)?;
        }
    }
    if bytes > OPERATION_BYTES_MAX {
        return Err(Unstorable::Size);
    }
    Ok(bytes)
}

/// Bytes of a name and its length.
fn name(word: Symbol) -> Result<usize, Unstorable> {
    let length = word.as_str().len();
    if length > NAME_LENGTH_MAX {
        return Err(Unstorable::Name { length });
    }
    Ok(4 + length)
}

fn measure_key(key: &Key) -> Result<usize, Unstorable> {
    Ok(17
        + match key {
            Key::Int(_) => 0,
            Key::Word(word) => name(*word)?,
            Key::Text(text) => 8 + text.len(),
        })
}

fn measure_value(value: &Value, depth: u32) -> Result<usize, Unstorable> {
    if depth > DEPTH_MAX {
        return Err(Unstorable::Depth);
    }
    let all = |values: &[Value]| {
        let mut bytes = 25;
        for value in values {
            bytes += measure_value(value, depth + 1)?;
        }
        Ok(bytes)
    };
    match value {
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => Ok(9),
        Value::Cas(..) => Ok(17),
        Value::Text(text) => Ok(17 + text.len()),
        Value::Word(word) => Ok(9 + name(*word)?),
        Value::List(values) | Value::Set(values) => all(values),
        Value::Map(pairs) => {
            let mut bytes = 9;
            for (key, value) in pairs.iter() {
                bytes += measure_value(key, depth + 1)? + measure_value(value, depth + 1)?;
            }
            Ok(bytes)
        }
        Value::Keyed(key, value) => Ok(measure_key(key)? + measure_value(value, depth + 1)?),
        Value::Txn(mops) => measure_mops(mops),
    }
}

/// Bytes of micro-operations without names of keys and elements of lists.
fn mops_bytes(mops: &[Mop]) -> usize {
    9 + 30 * mops.len()
}

/// Bytes of a list that was read.
fn list_bytes(elements: &[i64]) -> usize {
    16 + 8 * elements.len()
}

fn measure_mops(mops: &[Mop]) -> Result<usize, Unstorable> {
    let mut bytes = mops_bytes(mops);
    for mop in mops {
        let key = mop.key();
        if !matches!(key, Key::Int(_)) {
            bytes += measure_key(key)?;
        }
        if let Mop::Read {
            observed: Observed::List(elements),
            ..
        } = mop
        {
            bytes += list_bytes(elements);
        }
    }
    Ok(bytes)
}

/// The distinct templates of a chunk: type, shape, `f`, fields, each as one row of ids.
#[derive(Default)]
pub(super) struct Templates {
    by_row: FixedMap<Box<[u32]>, u32>,
    types: Vec<u8>,
    shapes: Vec<u8>,
    fs: Vec<u32>,
    field_counts: Vec<u32>,
    fields: Vec<u32>,
    /// Type and shape, `f`, fields of the present operation.
    row: Vec<u32>,
    /// Where the fields of each template start in `fields`.
    field_starts: Vec<u32>,
    /// The last template by type and shape: saves most look-ups.
    recent: Vec<u32>,
}

/// At least types times shapes.
const RECENT_TEMPLATES: usize = 64;

impl Templates {
    fn clear(&mut self) {
        self.by_row.clear();
        self.types.clear();
        self.shapes.clear();
        self.fs.clear();
        self.field_counts.clear();
        self.fields.clear();
        self.field_starts.clear();
        self.recent.clear();
    }

    /// The id of the template with this type, shape and `f` and without fields.
    pub(super) fn plain(&mut self, kind: OpType, shape: u8, f: u32) -> u32 {
        let place = (kind as usize | usize::from(shape) << 2) % RECENT_TEMPLATES;
        if let Some(&id) = self.recent.get(place)
            && self.fs.get(id as usize) == Some(&f)
            && self.field_counts[id as usize] == 0
        {
            return id;
        }
        self.begin(kind, shape, f);
        self.id()
    }

    fn begin(&mut self, kind: OpType, shape: u8, f: u32) {
        self.row.clear();
        self.row.extend([kind as u32 | u32::from(shape) << 2, f]);
    }

    /// The id of the template in `row`.
    fn id(&mut self) -> u32 {
        let place = self.row[0] as usize % RECENT_TEMPLATES;
        if let Some(&id) = self.recent.get(place)
            && id != NO_ID
            && self.is_row(id as usize)
        {
            return id;
        }
        let id = self.look_up();
        if self.recent.is_empty() {
            self.recent.resize(RECENT_TEMPLATES, NO_ID);
        }
        self.recent[place] = id;
        id
    }

    /// Is this template, whose type and shape equal those of `row`, equal in `f` and fields, too?
    fn is_row(&self, id: usize) -> bool {
        let (start, count) = (self.field_starts[id], self.field_counts[id]);
        let fields = &self.fields[start as usize..(start + count) as usize];
        // A comparison of empty slices is a call, which costs as much as everything else here.
        let same = |fields: &[u32]| fields.is_empty() || *fields == self.row[2..];
        self.fs[id] == self.row[1] && fields.len() + 2 == self.row.len() && same(fields)
    }

    fn look_up(&mut self) -> u32 {
        if let Some(&id) = self.by_row.get(self.row.as_slice()) {
            return id;
        }
        let id = self.types.len() as u32;
        self.types.push((self.row[0] & 3) as u8);
        self.shapes.push((self.row[0] >> 2) as u8);
        self.fs.push(self.row[1]);
        self.field_starts.push(self.fields.len() as u32);
        self.field_counts.push(self.row.len() as u32 - 2);
        self.fields.extend_from_slice(&self.row[2..]);
        let before = self.by_row.insert(self.row.as_slice().into(), id);
        debug_assert!(before.is_none(), "a template has two ids");
        debug_assert_eq!(self.by_row.len(), self.types.len());
        id
    }
}

/// Extra fields: per name a column of ids of distinct values.
#[derive(Default)]
struct ExtraFields {
    /// Per word id the field.
    by_word: Vec<u32>,
    names: Vec<u32>,
    /// Per field the value ids of the operations that have it. Memory is kept when cleared.
    values: Vec<Vec<u32>>,
    /// The distinct values.
    tape: TapeWriter,
    entry_tags: Vec<u32>,
    entry_integers: Vec<u32>,
    by_text: Vec<u32>,
    by_tape: FixedMap<Box<[i64]>, u32>,
    /// Tags, then integers of the present value.
    row: Vec<i64>,
}

impl ExtraFields {
    fn clear(&mut self) {
        for values in &mut self.values[..self.names.len()] {
            values.clear();
        }
        self.by_word.clear();
        self.names.clear();
        self.tape.clear();
        self.entry_tags.clear();
        self.entry_integers.clear();
        self.by_text.clear();
        self.by_tape.clear();
    }

    fn bytes(&self) -> usize {
        let entries = 8 * self.entry_tags.len() + FIELD_BYTES * self.names.len();
        entries + self.tape.tags.len() + 8 * self.tape.integers.len()
    }

    /// Adds a field of the present operation; returns the id of its name.
    fn put(&mut self, word: u32, value: &Value, names: &mut Dictionary) -> u32 {
        let entry = self.entry(value, names);
        let place = word as usize;
        if self.by_word.len() <= place {
            self.by_word.resize(place + 1, NO_ID);
        }
        if self.by_word[place] == NO_ID {
            self.by_word[place] = self.names.len() as u32;
            self.names.push(word);
            if self.values.len() < self.names.len() {
                self.values.push(Vec::new());
            }
        }
        let field = self.by_word[place];
        self.values[field as usize].push(entry);
        debug_assert!(
            (entry as usize) < self.entry_tags.len(),
            "a field has a value that is not stored"
        );
        field
    }

    /// The id of a value among the distinct ones.
    fn entry(&mut self, value: &Value, names: &mut Dictionary) -> u32 {
        if let Value::Text(text) = value {
            let place = names.text(text) as usize;
            if self.by_text.len() <= place {
                self.by_text.resize(place + 1, NO_ID);
            }
            if self.by_text[place] == NO_ID {
                self.by_text[place] = self.entry_tags.len() as u32;
                self.add(value, names);
            }
            return self.by_text[place];
        }
        let (tags, integers) = (self.tape.tags.len(), self.tape.integers.len());
        self.tape.put(value, names);
        self.row.clear();
        let new_tags = self.tape.tags[tags..].iter();
        self.row.extend(new_tags.map(|&tag| i64::from(tag)));
        self.row.extend_from_slice(&self.tape.integers[integers..]);
        self.tape.tags.truncate(tags);
        self.tape.integers.truncate(integers);
        if let Some(&id) = self.by_tape.get(self.row.as_slice()) {
            return id;
        }
        let id = self.entry_tags.len() as u32;
        self.by_tape.insert(self.row.as_slice().into(), id);
        self.add(value, names);
        id
    }

    fn add(&mut self, value: &Value, names: &mut Dictionary) {
        let (tags, integers) = (self.tape.tags.len(), self.tape.integers.len());
        self.tape.put(value, names);
        self.entry_tags.push((self.tape.tags.len() - tags) as u32);
        let integers = self.tape.integers.len() - integers;
        self.entry_integers.push(integers as u32);
    }

    fn put_columns<'a>(&'a self, columns: &mut ChunkColumnWriter<'a>) {
        assert_eq!(self.entry_tags.len(), self.entry_integers.len());
        // A field without operations would be a column that is left out, and shift those after it.
        debug_assert!(
            self.values[..self.names.len()]
                .iter()
                .all(|values| !values.is_empty()),
            "a field that no operation has"
        );
        for values in &self.values[..self.names.len()] {
            columns.put(column::FIELD_VALUE, IntegerSlice::Ids(values));
        }
        columns.put(column::FIELD_NAME, IntegerSlice::Ids(&self.names));
        columns.put(column::ENTRY_TAGS, IntegerSlice::Ids(&self.entry_tags));
        columns.put(
            column::ENTRY_INTEGERS,
            IntegerSlice::Ids(&self.entry_integers),
        );
        columns.put(column::ENTRY_TAPE_TAG, IntegerSlice::Bytes(&self.tape.tags));
        let integers = IntegerSlice::Integers(&self.tape.integers);
        columns.put(column::ENTRY_TAPE_INTEGER, integers);
    }
}

/// Slots for recent clients, by the lowest bits of their numbers.
const RECENT_CLIENTS: usize = 256;

/// The processes of a chunk.
#[derive(Default)]
pub(super) struct Processes {
    clients: FixedMap<u64, u32>,
    /// Recent clients, number and id: saves most look-ups.
    recent: Vec<(u64, u32)>,
    named: FixedMap<Symbol, u32>,
    kinds: Vec<u8>,
    numbers: Vec<i64>,
}

impl Processes {
    fn clear(&mut self) {
        self.clients.clear();
        self.recent.clear();
        self.named.clear();
        self.kinds.clear();
        self.numbers.clear();
    }

    pub(super) fn id(&mut self, process: Process, names: &mut Dictionary) -> u32 {
        let fresh = self.kinds.len() as u32;
        match process {
            Process::Client(number) => {
                let place = number as usize % RECENT_CLIENTS;
                if let Some(&(known, id)) = self.recent.get(place)
                    && known == number
                    && id != NO_ID
                {
                    return id;
                }
                let id = *self.clients.entry(number).or_insert(fresh);
                if id == fresh {
                    self.kinds.push(kind::CLIENT);
                    self.numbers.push(number.cast_signed());
                }
                if self.recent.is_empty() {
                    self.recent.resize(RECENT_CLIENTS, (0, NO_ID));
                }
                self.recent[place] = (number, id);
                id
            }
            Process::Named(name) => {
                let id = *self.named.entry(name).or_insert(fresh);
                if id == fresh {
                    self.kinds.push(kind::NAMED);
                    self.numbers.push(i64::from(names.word(name)));
                }
                id
            }
        }
    }
}

/// Gathers operations in columns, then writes them as one chunk. Its vectors and maps are reused from chunk to chunk, so that
/// in the long run no operation allocates.
#[derive(Default)]
pub struct Encoder {
    pub(super) templates: Templates,
    fields: ExtraFields,
    pub(super) processes: Processes,
    pub(super) names: Dictionary,
    tape: TapeWriter,
    pub(super) template_ids: Vec<u32>,
    pub(super) process_ids: Vec<u32>,
    pub(super) indices: Vec<i64>,
    pub(super) times: Vec<i64>,
    pub(super) pairs: Vec<i64>,
    pub(super) keys: Vec<u32>,
    pub(super) operands: Vec<i64>,
    pub(super) mop_tags: Vec<u8>,
    pub(super) mop_keys: Vec<u32>,
    pub(super) mop_arguments: Vec<i64>,
    /// Places of the micro-operations of the present transaction that read lists.
    list_reads: Vec<u32>,
    /// A list of integers on its way to the shared lists.
    elements: Vec<i64>,
    /// Operations of each type.
    pub(super) counts: [u32; 4],
}

impl Encoder {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.templates.clear();
        self.fields.clear();
        self.processes.clear();
        self.names.clear();
        self.tape.clear();
        self.template_ids.clear();
        self.process_ids.clear();
        self.indices.clear();
        self.times.clear();
        self.pairs.clear();
        self.keys.clear();
        self.operands.clear();
        self.mop_tags.clear();
        self.mop_keys.clear();
        self.mop_arguments.clear();
        self.counts = [0; 4];
    }

    /// Is no operation gathered?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of gathered operations.
    pub fn len(&self) -> usize {
        self.template_ids.len()
    }

    /// A lower bound of the bytes of the chunk so far.
    pub fn bytes(&self) -> usize {
        let operations = OPERATION_BYTES * self.len() + 8 * self.operands.len();
        let mops = 13 * self.mop_tags.len();
        let tape = self.tape.tags.len() + 8 * self.tape.integers.len();
        operations + mops + tape + self.names.bytes() + self.fields.bytes()
    }

    /// Adds an operation that [`measure`] accepts; `pair` is the distance to its invocation, or 0.
    pub fn push(&mut self, op: &Op, pair: u64) {
        if let Some(mops) = transaction(&op.value) {
            // Cannot fail: it was measured.
            let _ = self.stage(mops);
        }
        self.push_staged(op, pair);
    }

    /// Measures an operation and adds it if it can be stored; returns the result of [`measure`]. On error the encoder is
    /// unchanged. `pair` is called after measuring, if it succeeded. Saves one loop over the micro-operations, which for random
    /// reads and writes mispredicts a branch at every other one.
    pub fn measure_and_push(
        &mut self,
        op: &Op,
        pair: impl FnOnce() -> u64,
    ) -> Result<usize, Unstorable> {
        let bytes = match transaction(&op.value) {
            Some(mops) => self.stage(mops).and_then(|value| match &op.value {
                Value::Keyed(key, _) => measure_with(op, measure_key(key)? + value),
                _ => measure_with(op, value),
            }),
            None => measure(op),
        };
        match bytes {
            Ok(_) => self.push_staged(op, pair()),
            Err(_) => self.unstage(),
        }
        bytes
    }

    /// [`Encoder::push`] of an operation whose micro-operations are staged.
    #[inline]
    fn push_staged(&mut self, op: &Op, pair: u64) {
        assert!(self.len() < OPERATIONS_MAX, "a chunk is full");
        let (key, value) = match &op.value {
            Value::Keyed(key, value) => (Some(self.names.key(key)), &**value),
            value => (None, value),
        };
        let shape = self.value(value, key);
        let f = self.names.word(op.f);
        let template = if op.extra.is_empty() {
            self.templates.plain(op.kind, shape, f)
        } else {
            self.templates.begin(op.kind, shape, f);
            self.extra(&op.extra);
            self.templates.id()
        };
        let process = self.processes.id(op.process, &mut self.names);
        self.put_row(template, process, op.index, op.time, pair);
        self.keys.push(key.map_or(0, |key| key + 1));
        self.counts[op.kind as usize] += 1;
        // Last, so that the processor can fetch the next operation while it compares lists.
        if let Some(mops) = transaction(&op.value) {
            self.see_lists(mops);
        }
    }

    fn extra(&mut self, extra: &Extra) {
        for (name, value) in extra.iter() {
            let word = self.names.word(*name);
            let field = self.fields.put(word, value, &mut self.names);
            self.templates.row.push(field);
        }
    }

    /// Stores a value and returns its shape.
    fn value(&mut self, value: &Value, key: Option<u32>) -> u8 {
        let operand = match value {
            Value::Nil => return shape::NIL,
            Value::Bool(false) => return shape::FALSE,
            Value::Bool(true) => return shape::TRUE,
            Value::Cas(from, to) => {
                self.operands.extend([from, to]);
                return shape::CAS;
            }
            Value::Int(number) => (shape::INT, *number),
            Value::Word(word) => (shape::WORD, i64::from(self.names.word(*word))),
            Value::Text(text) => (shape::TEXT, i64::from(self.names.text(text))),
            Value::Txn(mops) => {
                for mop in mops.iter() {
                    let key = self.names.key(mop.key());
                    self.mop_keys.push(key);
                }
                (shape::TXN, mops.len() as i64)
            }
            Value::List(items) => match self.shared(items, key) {
                Some(SharedList::Prefix(length)) => (shape::LIST_PREFIX, i64::from(length)),
                Some(SharedList::Branch(reference)) => (shape::LIST_BRANCH, i64::from(reference)),
                None => return self.other(value),
            },
            Value::Set(items) => match self.shared(items, key) {
                Some(SharedList::Prefix(length)) => (shape::SET_PREFIX, i64::from(length)),
                Some(SharedList::Branch(reference)) => (shape::SET_BRANCH, i64::from(reference)),
                None => return self.other(value),
            },
            Value::Map(pairs) => {
                let Some(operands) = transfer(pairs) else {
                    return self.other(value);
                };
                self.operands.extend(operands);
                return shape::TRANSFER;
            }
            Value::Float(_) | Value::Keyed(..) => return self.other(value),
        };
        self.operands.push(operand.1);
        operand.0
    }

    /// Stores a value on the tape.
    fn other(&mut self, value: &Value) -> u8 {
        let (tags, integers) = (self.tape.tags.len(), self.tape.integers.len());
        self.tape.put(value, &mut self.names);
        self.operands.extend([
            (self.tape.tags.len() - tags) as i64,
            (self.tape.integers.len() - integers) as i64,
        ]);
        shape::TAPE
    }

    /// Stores a list of integers among the shared lists; `None` if it does not qualify.
    fn shared(&mut self, items: &[Value], key: Option<u32>) -> Option<SharedList> {
        self.elements.clear();
        for item in items {
            let Value::Int(number) = item else {
                return None;
            };
            self.elements.push(*number);
        }
        let key = if items.len() >= SHARED_LENGTH_MIN {
            key.unwrap_or_else(|| self.names.none_key())
        } else {
            let key = key.or_else(|| self.names.known_none_key())?;
            if !self.names.lists.is_prefix(key, &self.elements) {
                return None;
            }
            key
        };
        Some(self.names.lists.see(key, &self.elements))
    }

    /// Stores tags and arguments of a transaction's micro-operations, which changes no dictionary; returns their bytes as
    /// [`measure`] counts. The caller then pushes the operation or unstages.
    fn stage(&mut self, mops: &[Mop]) -> Result<usize, Unstorable> {
        self.list_reads.clear();
        let mut bytes = mops_bytes(mops);
        let mut keys = Ok(0);
        for (place, mop) in mops.iter().enumerate() {
            let (key, tag, argument) = match mop {
                Mop::Append { key, element } => (key, mop::APPEND, *element),
                Mop::Write { key, value } => (key, mop::WRITE, *value),
                Mop::Read { key, observed } => match observed {
                    Observed::Nil => (key, mop::READ_NIL, 0),
                    Observed::Register(value) => (key, mop::READ_REGISTER, *value),
                    Observed::List(elements) => {
                        bytes += list_bytes(elements);
                        self.list_reads.push(place as u32);
                        (key, mop::READ_PREFIX, elements.len() as i64)
                    }
                },
            };
            if !matches!(key, Key::Int(_)) {
                keys = keys.and_then(|sum| Ok(sum + measure_key(key)?));
            }
            self.mop_tags.push(tag);
            self.mop_arguments.push(argument);
        }
        Ok(bytes + keys?)
    }

    /// Removes the staged micro-operations.
    fn unstage(&mut self) {
        self.mop_tags.truncate(self.mop_keys.len());
        self.mop_arguments.truncate(self.mop_keys.len());
        debug_assert_eq!(self.mop_tags.len(), self.mop_arguments.len());
    }

    /// Stores the lists read by these micro-operations, which are the last ones.
    fn see_lists(&mut self, mops: &[Mop]) {
        let start = self.mop_keys.len() - mops.len();
        for &place in &self.list_reads {
            if let Mop::Read {
                observed: Observed::List(elements),
                ..
            } = &mops[place as usize]
            {
                let row = start + place as usize;
                let seen = self.names.lists.see(self.mop_keys[row], elements);
                if let SharedList::Branch(reference) = seen {
                    self.mop_tags[row] = mop::READ_BRANCH;
                    self.mop_arguments[row] = i64::from(reference);
                }
            }
        }
        debug_assert_eq!(
            self.mop_keys.len(),
            self.mop_tags.len(),
            "micro-operations are staged that were not pushed"
        );
    }

    /// Appends the chunk of all operations since the last [`Encoder::clear`], at least one, and clears. `first_position` is the
    /// position of the first.
    pub fn write(&mut self, first_position: u64, out: &mut Vec<u8>) {
        self.assert_complete();
        let (first_index, first_time) = (self.indices[0], self.times[0]);
        let times = self.times.iter();
        let (low, high) = times.fold((first_time, first_time), |(low, high), &time| {
            (low.min(time), high.max(time))
        });
        let (operations, counts) = (self.len() as u32, self.counts);
        differences(&mut self.indices);
        differences(&mut self.times);
        let columns = self.columns();
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 2]);
        out.extend(operations.to_le_bytes());
        out.extend(first_position.to_le_bytes());
        for number in [first_index, first_time, low, high] {
            out.extend(number.to_le_bytes());
        }
        for count in &counts[1..] {
            out.extend(count.to_le_bytes());
        }
        out.extend((columns.count() as u16).to_le_bytes());
        out.extend([0; 2]);
        columns.write(out);
        self.clear();
        assert!(self.is_empty(), "a written operation is written again");
    }

    /// Asserts that the columns of operations, and those of micro-operations, are of one length.
    fn assert_complete(&self) {
        let operations = self.len();
        assert!(operations > 0, "a chunk without operations");
        assert_eq!(self.counts.iter().sum::<u32>() as usize, operations);
        assert_eq!(self.process_ids.len(), operations);
        assert_eq!(self.indices.len(), operations);
        assert_eq!(self.times.len(), operations);
        assert_eq!(self.pairs.len(), operations);
        assert_eq!(self.keys.len(), operations);
        assert_eq!(self.mop_tags.len(), self.mop_keys.len());
        assert_eq!(self.mop_arguments.len(), self.mop_keys.len());
        assert_eq!(self.processes.kinds.len(), self.processes.numbers.len());
    }

    /// All columns.
    fn columns(&mut self) -> ChunkColumnWriter<'_> {
        let mut columns = ChunkColumnWriter::default();
        columns.put(column::TEMPLATE, IntegerSlice::Ids(&self.template_ids));
        columns.put(column::PROCESS, IntegerSlice::Ids(&self.process_ids));
        columns.put(
            column::INDEX_STEP,
            IntegerSlice::Integers(&self.indices[1..]),
        );
        columns.put(column::TIME_STEP, IntegerSlice::Integers(&self.times[1..]));
        columns.put(column::PAIR, IntegerSlice::Integers(&self.pairs));
        columns.put(column::KEY, IntegerSlice::Ids(&self.keys));
        columns.put(column::OPERAND, IntegerSlice::Integers(&self.operands));
        columns.put(column::MOP_TAG, IntegerSlice::Bytes(&self.mop_tags));
        columns.put(column::MOP_KEY, IntegerSlice::Ids(&self.mop_keys));
        let arguments = IntegerSlice::Integers(&self.mop_arguments);
        columns.put(column::MOP_ARGUMENT, arguments);
        columns.put(column::TAPE_TAG, IntegerSlice::Bytes(&self.tape.tags));
        columns.put(
            column::TAPE_INTEGER,
            IntegerSlice::Integers(&self.tape.integers),
        );
        let templates = &self.templates;
        columns.put(column::TEMPLATE_TYPE, IntegerSlice::Bytes(&templates.types));
        columns.put(
            column::TEMPLATE_SHAPE,
            IntegerSlice::Bytes(&templates.shapes),
        );
        columns.put(column::TEMPLATE_F, IntegerSlice::Ids(&templates.fs));
        let field_counts = IntegerSlice::Ids(&templates.field_counts);
        columns.put(column::TEMPLATE_FIELD_COUNT, field_counts);
        columns.put(column::TEMPLATE_FIELD, IntegerSlice::Ids(&templates.fields));
        self.fields.put_columns(&mut columns);
        columns.put(
            column::PROCESS_KIND,
            IntegerSlice::Bytes(&self.processes.kinds),
        );
        let numbers = IntegerSlice::Integers(&self.processes.numbers);
        columns.put(column::PROCESS_NUMBER, numbers);
        self.names.put(&mut columns);
        columns
    }
}

/// The micro-operations of a value, keyed or not, that are stored in separate columns.
fn transaction(value: &Value) -> Option<&[Mop]> {
    let value = match value {
        Value::Keyed(_, value) => value,
        value => value,
    };
    match value {
        Value::Txn(mops) => Some(mops),
        _ => None,
    }
}

/// The three integers of a map with exactly the keys `from`, `to`, `amount` in this order.
fn transfer(pairs: &[(Value, Value)]) -> Option<[i64; 3]> {
    let [from, to, amount] = pairs else {
        return None;
    };
    let number = |name: &str, (key, value): &(Value, Value)| match (key, value) {
        (Value::Word(word), Value::Int(number)) if *word == *name => Some(*number),
        _ => None,
    };
    Some([
        number("from", from)?,
        number("to", to)?,
        number("amount", amount)?,
    ])
}

/// Replaces each value but the first by its difference to the one before.
fn differences(values: &mut [i64]) {
    for place in (1..values.len()).rev() {
        values[place] = values[place].wrapping_sub(values[place - 1]);
    }
}
