//! Chunks: up to 65,536 operations in columns. Byte map in `docs/formats/test-file.md`.
//!
//! A chunk keeps the bytes from which it was read. Reading validates every column once, in its packed form; a column is
//! widened when it is first accessed, and borrowed from then on. Fast readers use whole columns ([`Chunk::kinds`],
//! [`Chunk::times`], [`Chunk::mops`]) and compare key ids and lengths instead of keys and lists; others read operations
//! one by one ([`Chunk::ops`], [`Chunk::op`]).

mod assembly;
mod column;
mod column_writer;
mod decode;
mod dictionary;
mod encode;
pub(crate) mod layout;
mod lazy;
mod op_view;
mod ops;
mod parts;
mod shared_lists;
mod summary;
mod tape;
#[cfg(test)]
mod tests;
mod value_view;
mod widen;

pub use assembly::Assembly;
pub use column::ChunkError;
pub use encode::{CHUNK_BYTES_MAX, OPERATION_BYTES_MAX, Unstorable};
pub use encode::{Encoder, measure};
pub use layout::{OPERATIONS_MAX, mop as mop_tag};
pub use op_view::OpView;
pub use ops::ChunkOps;
pub use parts::{PartKey, TransactionHead, TransactionPart};
pub use summary::{ChunkAddress, ChunkSummary};
pub use tape::{Tape, Token};
pub use value_view::{MopView, Mops, ValueView};

use crate::{Key, Op, OpType, Process, Symbol};
use column::Descriptors;
use dictionary::ChunkDictionary;
use lazy::Lazy;
use std::sync::OnceLock;

/// The header of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Number of operations.
    pub operations: u32,
    /// Position of the first operation in the history.
    pub first_position: u64,
    /// Index of the first operation.
    pub first_index: u64,
    /// Time of the first operation.
    pub first_time: i64,
    /// Lowest time.
    pub time_min: i64,
    /// Highest time.
    pub time_max: i64,
    /// Operations of type `ok`.
    pub ok: u32,
    /// Operations of type `fail`.
    pub fail: u32,
    /// Operations of type `info`; the others are invocations.
    pub info: u32,
}

/// The part of an operation that recurs: type, shape of the value, function, fields.
#[derive(Clone, Copy, Debug)]
struct OpTemplate {
    kind: OpType,
    shape: u8,
    f: Symbol,
    /// Its fields in [`Chunk::template_fields`].
    fields: (u32, u32),
}

impl OpTemplate {
    /// Operands of an operation with this template.
    fn operands(&self) -> u32 {
        u32::from(layout::shape::OPERANDS[usize::from(self.shape)])
    }
}

/// Where the tape of an operation's value begins.
#[derive(Clone, Copy, Debug)]
struct TapeStart {
    /// The operation's place in the chunk.
    place: u32,
    /// The number of its first operand.
    operand: u32,
    tag: u32,
    integer: u32,
}

/// Operations in columns, fully validated: every id is in range, every list inside the pool, every tape well-formed, so that
/// access cannot fail. Operations are addressed by their place in the chunk, from 0.
///
/// It owns the bytes from which it was read. Columns with one value per operation or micro-operation stay packed until their
/// first access; the smaller ones (dictionaries, templates, lengths) are read at once. All memory is reused when another
/// chunk is read into the same value. Cost: reading one operation validates the whole chunk, some tenths of a millisecond.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    header: ChunkHeader,
    bytes: Vec<u8>,
    columns: Descriptors,
    names: ChunkDictionary,
    processes: Vec<Process>,
    templates: Vec<OpTemplate>,
    /// Operations of each template.
    template_counts: Vec<u32>,
    template_fields: Vec<u32>,
    field_names: Vec<Symbol>,
    /// Starts of the lists, of the keys and then of the branches, and the end of the last.
    list_starts: Vec<u32>,
    /// Per reference the range in the pool.
    references: Vec<(u32, u32)>,
    tape_starts: Vec<TapeStart>,
    tape_tags: Vec<u8>,
    tape_integers: Vec<i64>,
    /// Starts of the tags and integers of each entry, and the end of the last.
    entry_starts: Vec<(u32, u32)>,
    entry_tags: Vec<u8>,
    entry_integers: Vec<i64>,
    wide: Wide,
}

/// Widened columns, made at their first access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wide {
    /// Empty when each index is one more than the one before.
    indices: Lazy<u64>,
    times: Lazy<i64>,
    kinds: Lazy<OpType>,
    process_ids: Lazy<u32>,
    template_ids: Lazy<u32>,
    pairs: Lazy<i64>,
    paired_count: OnceLock<u64>,
    /// Key id plus one, 0 without key; empty when no operation has a key.
    keys: Lazy<u32>,
    operands: Lazy<i64>,
    /// One more than operations.
    operand_starts: Lazy<u32>,
    /// One more than operations; empty when there are no micro-operations.
    mop_starts: Lazy<u32>,
    /// Empty if the stored bytes can be borrowed.
    mop_tags: Lazy<u8>,
    mop_keys: Lazy<u32>,
    mop_arguments: Lazy<i64>,
    pool: Lazy<i64>,
    /// One more than operations; empty when no operation has extra fields.
    extra_starts: Lazy<u32>,
    /// Field id and entry id.
    extras: Lazy<(u32, u32)>,
}

#[cfg(test)]
impl Chunk {
    /// An empty chunk with this position.
    pub(crate) fn numbered(first_position: u64) -> Chunk {
        let mut chunk = Chunk::default();
        chunk.header.first_position = first_position;
        chunk
    }
}

impl Chunk {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.header.operations as usize
    }

    /// Is it empty? Only before a chunk was read.
    pub fn is_empty(&self) -> bool {
        self.header.operations == 0
    }

    /// Counts, times and position.
    pub fn header(&self) -> &ChunkHeader {
        &self.header
    }

    /// The bytes from which it was read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Position of the first operation in the history.
    pub fn first_position(&self) -> u64 {
        self.header.first_position
    }

    /// The index of the operation at `place`.
    #[inline]
    pub fn index(&self, place: usize) -> u64 {
        match self.indices().get(place) {
            Some(&index) => index,
            None => self.header.first_index + place as u64,
        }
    }

    /// The place of the operation with this index, if it is in the chunk.
    pub fn place(&self, index: u64) -> Option<usize> {
        let indices = self.indices();
        if !indices.is_empty() {
            return indices.binary_search(&index).ok();
        }
        let place = index.checked_sub(self.header.first_index)?;
        (place < self.len() as u64).then_some(place as usize)
    }

    /// The process of the operation at `place`.
    pub fn process(&self, place: usize) -> Process {
        self.processes[self.process_ids()[place] as usize]
    }

    /// The distinct processes, by the ids of [`Chunk::process_ids`].
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The function of the operation at `place`.
    pub fn f(&self, place: usize) -> Symbol {
        self.template(place).f
    }

    /// The type and function of the operations with each template, by the ids in [`Chunk::template_ids`]. Operations of one type
    /// and function may have several templates.
    pub fn template_functions(&self) -> impl ExactSizeIterator<Item = (OpType, Symbol)> {
        self.templates
            .iter()
            .map(|template| (template.kind, template.f))
    }

    /// The position in the history of the invocation that the operation at `place` completes.
    pub fn invocation(&self, place: usize) -> Option<u64> {
        let distance = self.pairs()[place];
        let position = self.header.first_position + place as u64;
        (distance > 0).then(|| position - distance.cast_unsigned())
    }

    /// The independent key of the operation at `place`, as an id of this chunk.
    pub fn key_id(&self, place: usize) -> Option<u32> {
        self.keys().get(place)?.checked_sub(1)
    }

    /// The key with this id of the chunk.
    pub fn key(&self, id: u32) -> &Key {
        self.names.key(id as usize)
    }

    /// Number of keys.
    pub fn key_count(&self) -> usize {
        self.names.keys.len()
    }

    /// The longest list of integers read at a key in this chunk, branches apart.
    pub fn list(&self, key: u32) -> &[i64] {
        let key = key as usize;
        &self.pool()[self.list_starts[key] as usize..self.list_starts[key + 1] as usize]
    }

    /// The elements of the reference that is the argument of a [`mop_tag::READ_BRANCH`].
    ///
    /// # Panics
    /// If `id` is no such argument of this chunk.
    pub fn reference(&self, id: i64) -> &[i64] {
        let (start, end) = self.references[id as usize];
        &self.pool()[start as usize..end as usize]
    }

    /// Does some operation have extra fields?
    pub fn has_extra(&self) -> bool {
        !self.extra_starts().is_empty()
    }

    /// The extra fields of the operation at `place`, in order.
    pub fn extra(&self, place: usize) -> impl Iterator<Item = (Symbol, Tape<'_>)> {
        let fields = self.extra_ids(place).iter();
        fields.map(|&(field, entry)| (self.field_names[field as usize], self.entry(entry)))
    }

    /// Field and entry ids of the operation at `place`.
    fn extra_ids(&self, place: usize) -> &[(u32, u32)] {
        match self.extra_starts().get(place..) {
            Some(&[start, end, ..]) => &self.extras()[start as usize..end as usize],
            _ => &[],
        }
    }

    /// The distinct value with this id.
    fn entry(&self, id: u32) -> Tape<'_> {
        let id = id as usize;
        let ((tag, integer), (tag_end, integer_end)) =
            (self.entry_starts[id], self.entry_starts[id + 1]);
        let tags = &self.entry_tags[tag as usize..tag_end as usize];
        let integers = &self.entry_integers[integer as usize..integer_end as usize];
        Tape::new(tags, integers, &self.names)
    }

    /// Total number of elements of all lists that were read, shared ones counted each time.
    pub fn elements_read(&self) -> u64 {
        let reads = self.mop_tags().iter().zip(self.mop_arguments());
        let of_mops = reads.map(|(&tag, &argument)| match tag {
            layout::mop::READ_PREFIX => argument.cast_unsigned(),
            layout::mop::READ_BRANCH => self.reference(argument).len() as u64,
            _ => 0,
        });
        let values = (0..self.len()).map(|place| match self.value(place) {
            ValueView::Integers(elements) | ValueView::IntegerSet(elements) => {
                elements.len() as u64
            }
            _ => 0,
        });
        of_mops.sum::<u64>() + values.sum::<u64>()
    }

    /// Builds the operation at `place`. For all operations [`Chunk::ops`] is faster.
    pub fn op(&self, place: usize) -> Op {
        ChunkOps::forgetful(self).op(place)
    }

    /// All operations in order.
    pub fn ops(&self) -> ChunkOps<'_> {
        ChunkOps::new(self)
    }
}
