//! Chunks: up to 65,536 operations in columns. Byte map in `docs/formats/test-file.md`.
//!
//! A chunk keeps the bytes that it was read from. Reading checks every column once, as it stands there; what somebody
//! asks for is widened then, and borrowed from there on. Fast readers use
//! whole columns ([`Chunk::kinds`], [`Chunk::times`], [`Chunk::mops`]) and compare key ids and lengths instead of keys
//! and lists; ordinary ones take operation by operation ([`Chunk::ops`], [`Chunk::op`]).

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

/// What stands at the front of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Operations.
    pub operations: u32,
    /// How many operations the history has before this chunk.
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

/// What recurs from operation to operation.
#[derive(Clone, Copy, Debug)]
struct OpTemplate {
    kind: OpType,
    shape: u8,
    f: Symbol,
    /// Its fields in [`Chunk::template_fields`].
    fields: (u32, u32),
}

impl OpTemplate {
    /// How many operands an operation of it has.
    fn operands(&self) -> u32 {
        u32::from(layout::shape::OPERANDS[usize::from(self.shape)])
    }
}

/// Where an operation's tape begins.
#[derive(Clone, Copy, Debug)]
struct TapeStart {
    /// The operation's place in the chunk.
    place: u32,
    /// The number of its first operand.
    operand: u32,
    tag: u32,
    integer: u32,
}

/// Operations in columns, all checked: every id points at something, every list is inside the pool, every tape is
/// well-formed, so that reading cannot fail. Operations are named by their place in the chunk, from 0.
///
/// It owns the bytes that it was read from. Columns of one value per operation or micro-operation stay as they stand
/// there until somebody asks for them; the smaller ones (dictionaries, templates, lengths) are read at once. All memory
/// is kept when another chunk is read into the same value. Its downside: looking up one operation means checking all of
/// the chunk, some tenths of a millisecond.
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
    /// One more than lists: those of the keys, then the branches.
    list_starts: Vec<u32>,
    /// Per reference the range in the pool.
    references: Vec<(u32, u32)>,
    tape_starts: Vec<TapeStart>,
    tape_tags: Vec<u8>,
    tape_integers: Vec<i64>,
    /// Per entry where its tags and integers begin; one more than entries.
    entry_starts: Vec<(u32, u32)>,
    entry_tags: Vec<u8>,
    entry_integers: Vec<i64>,
    wide: Wide,
}

/// What is made from columns when somebody asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wide {
    /// Empty when each index is one more than the one before.
    indices: Lazy<u64>,
    times: Lazy<i64>,
    kinds: Lazy<OpType>,
    process_ids: Lazy<u32>,
    template_ids: Lazy<u32>,
    pairs: Lazy<i64>,
    /// Key id and 1; empty when no operation has a key.
    keys: Lazy<u32>,
    operands: Lazy<i64>,
    /// One more than operations.
    operand_starts: Lazy<u32>,
    /// One more than operations; empty when there are no micro-operations.
    mop_starts: Lazy<u32>,
    /// Only when they are not in the bytes as they are.
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
    /// An empty chunk that says where it stands.
    pub(crate) fn numbered(first_position: u64) -> Chunk {
        let mut chunk = Chunk::default();
        chunk.header.first_position = first_position;
        chunk
    }
}

impl Chunk {
    /// Operations in it.
    pub fn len(&self) -> usize {
        self.header.operations as usize
    }

    /// Is nothing in it? Only so before a chunk was read.
    pub fn is_empty(&self) -> bool {
        self.header.operations == 0
    }

    /// Counts, times and where it stands.
    pub fn header(&self) -> &ChunkHeader {
        &self.header
    }

    /// The bytes that it was read from.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many operations the history has before this chunk.
    pub fn first_position(&self) -> u64 {
        self.header.first_position
    }

    /// The index of the operation at `place`.
    pub fn index(&self, place: usize) -> u64 {
        match self.indices().get(place) {
            Some(&index) => index,
            None => self.header.first_index + place as u64,
        }
    }

    /// Where the operation with this index stands in the chunk.
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

    /// The distinct processes; [`Chunk::process_ids`] points here.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// What the operation at `place` does.
    pub fn f(&self, place: usize) -> Symbol {
        self.template(place).f
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

    /// The key with this id. (Ids that were handed out name one.)
    pub fn key(&self, id: u32) -> &Key {
        self.names.key(id as usize)
    }

    /// How many keys there are.
    pub fn key_count(&self) -> usize {
        self.names.keys.len()
    }

    /// The longest list of integers that was read of a key, in this chunk.
    pub fn list(&self, key: u32) -> &[i64] {
        let key = key as usize;
        &self.pool()[self.list_starts[key] as usize..self.list_starts[key + 1] as usize]
    }

    /// The elements that the argument of a [`mop_tag::READ_BRANCH`] names.
    ///
    /// # Panics
    /// When the number is no such argument.
    pub fn reference(&self, id: i64) -> &[i64] {
        let (start, end) = self.references[id as usize];
        &self.pool()[start as usize..end as usize]
    }

    /// The extra fields of the operation at `place`, in its order.
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

    /// How many elements all lists have together that were read, each list counted by itself.
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

    /// The operation at `place` with everything that belongs to it. To go through all, [`Chunk::ops`] is faster.
    pub fn op(&self, place: usize) -> Op {
        ChunkOps::forgetful(self).op(place)
    }

    /// All operations in order.
    pub fn ops(&self) -> ChunkOps<'_> {
        ChunkOps::new(self)
    }
}
