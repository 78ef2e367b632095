//! Summaries of chunks: position, bounds and counts, known without reading the chunk.

use super::Chunk;
use super::layout::column;

/// The directory's entry of a chunk: its position, and bounds that exclude operations from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSummary {
    /// Number of the chunk, from 0.
    pub number: u64,
    /// Position of its first operation.
    pub first_position: u64,
    /// Number of operations, at least one.
    pub operations: u64,
    /// Index of its first operation.
    pub first_index: u64,
    /// Index of its last operation.
    pub last_index: u64,
    /// Lowest time in nanoseconds.
    pub time_min: i64,
    /// Highest time in nanoseconds.
    pub time_max: i64,
    /// Operations of type `ok`.
    pub ok: u64,
    /// Operations of type `fail`.
    pub fail: u64,
    /// Operations of type `info`; the others are invocations.
    pub info: u64,
}

impl ChunkSummary {
    /// The summary of a chunk, which must not be empty.
    pub fn of(number: u64, chunk: &Chunk) -> ChunkSummary {
        assert!(!chunk.is_empty(), "an empty chunk has no summary");
        let header = chunk.header();
        ChunkSummary {
            number,
            first_position: header.first_position,
            operations: u64::from(header.operations),
            first_index: header.first_index,
            last_index: chunk.index(chunk.len() - 1),
            time_min: header.time_min,
            time_max: header.time_max,
            ok: u64::from(header.ok),
            fail: u64::from(header.fail),
            info: u64::from(header.info),
        }
    }

    /// Operations of type `invoke`.
    pub const fn invocations(&self) -> u64 {
        let completions = self.ok.saturating_add(self.fail).saturating_add(self.info);
        self.operations.saturating_sub(completions)
    }

    /// One past the position of its last operation.
    pub const fn end_position(&self) -> u64 {
        self.first_position.saturating_add(self.operations)
    }
}

/// Address of a chunk in a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkAddress {
    /// By its number, from 0.
    Chunk(u64),
    /// By the position of an operation in it.
    Position(u64),
    /// By an index: the first chunk whose last operation's index is not below it.
    Index(u64),
}

/// Bytes of an operation in all columns of one value per operation.
const WIDE_OPERATION_BYTES: usize = 6 * size_of::<u64>() + 5 * size_of::<u32>() + 1;
/// Bytes of a micro-operation in all its columns.
const WIDE_MOP_BYTES: usize = size_of::<i64>() + size_of::<u32>() + 1;

impl Chunk {
    /// Approximate bytes of memory once all columns are widened.
    pub fn memory_bytes(&self) -> u64 {
        fn of<T>(column: &Vec<T>) -> usize {
            column.capacity() * size_of::<T>()
        }
        let known = [
            size_of::<Chunk>(),
            of(&self.bytes),
            self.names.memory_bytes(),
            of(&self.processes),
            of(&self.templates),
            of(&self.template_counts),
            of(&self.template_fields),
            of(&self.field_names),
            of(&self.list_starts),
            of(&self.references),
            of(&self.tape_starts),
            of(&self.tape_tags),
            of(&self.tape_integers),
            of(&self.entry_starts),
            of(&self.entry_tags),
            of(&self.entry_integers),
        ];
        let count = |id: u8| self.column(id).len();
        let integers = count(column::OPERAND) + count(column::POOL);
        let extras = self.columns.field_values(&self.bytes);
        let extras: usize = extras.map(|column| column.len()).sum();
        let wide = [
            self.len() * WIDE_OPERATION_BYTES,
            count(column::MOP_TAG) * WIDE_MOP_BYTES,
            (integers + extras) * size_of::<i64>(),
        ];
        (known.iter().sum::<usize>() + wide.iter().sum::<usize>()) as u64
    }

    /// The `f` of each template.
    pub fn template_fs(&self) -> impl ExactSizeIterator<Item = crate::Symbol> {
        self.templates.iter().map(|template| template.f)
    }
}
