//! The columns of a chunk: packed integers found by id, and their checks.

use super::layout::{DESCRIPTOR_LENGTH, column};
use seatrial_blocks::packed::{PackedIntegers, Packing};
use std::ops::Deref;

/// Why bytes are not a chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (at byte {at} of the chunk)")]
pub struct ChunkError {
    /// Offset in the decompressed payload.
    pub at: usize,
    /// What is wrong there.
    pub problem: String,
}

impl ChunkError {
    pub(crate) fn new(at: usize, problem: impl Into<String>) -> ChunkError {
        ChunkError {
            at,
            problem: problem.into(),
        }
    }
}

/// Id, packing and offset of a column, without its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descriptor {
    id: u8,
    packing: Packing,
    count: u32,
    /// Offset of its values in the chunk.
    at: u32,
}

impl Descriptor {
    /// Bytes of its values.
    fn length(self) -> u64 {
        u64::from(self.count) * u64::from(self.packing.width)
    }

    /// The column in the bytes of its chunk, which were checked to contain it.
    pub(crate) fn of(self, chunk: &[u8]) -> Column<'_> {
        let at = self.at as usize;
        let bytes = chunk.get(at..at + self.length() as usize);
        debug_assert!(bytes.is_some(), "a column of another chunk");
        Column {
            id: self.id,
            at: self.at,
            values: PackedIntegers::new(self.packing, self.count, bytes.unwrap_or_default()),
        }
    }
}

/// A column in the bytes of its chunk: packed integers with an id and an offset for errors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Column<'a> {
    id: u8,
    at: u32,
    values: PackedIntegers<'a>,
}

impl<'a> Deref for Column<'a> {
    type Target = PackedIntegers<'a>;

    fn deref(&self) -> &PackedIntegers<'a> {
        &self.values
    }
}

impl<'a> Column<'a> {
    /// An error that names this column.
    pub(crate) fn error(&self, problem: &str) -> ChunkError {
        let Column { id, at, .. } = *self;
        ChunkError::new(
            at as usize,
            format!("column {id} ({}): {problem}", column::name(id)),
        )
    }

    /// Fails unless there are `count` values.
    pub(crate) fn expect(&self, count: usize) -> Result<(), ChunkError> {
        if self.len() == count {
            return Ok(());
        }
        let problem = format!("{} values where {count} belong", self.len());
        Err(self.error(&problem))
    }

    /// The stored bytes of a column of bytes.
    pub(crate) fn raw(&self) -> Result<&'a [u8], ChunkError> {
        let plain = self.width() == 1 && self.base() == 0 || self.is_empty();
        plain
            .then_some(self.stored())
            .ok_or_else(|| self.error("bytes of text have width 1 and base 0"))
    }

    /// Fails unless each value is at least 0 and below `limit`.
    pub(crate) fn expect_ids(&self, limit: usize) -> Result<(), ChunkError> {
        if self.is_empty() {
            return Ok(());
        }
        let limit = limit.min(u32::MAX as usize) as u64;
        let room = u64::try_from(self.base())
            .ok()
            .and_then(|base| (limit.checked_sub(1)?).checked_sub(base))
            .ok_or_else(|| self.error("points at nothing"))?;
        if self.width() > 4 {
            return Err(self.error("is wider than 4 bytes"));
        }
        if self.highest() > room {
            return Err(self.error("points at nothing"));
        }
        Ok(())
    }

    /// Replaces the contents of `out` with all values, each of which must be below `limit`.
    pub(crate) fn ids(&self, limit: usize, out: &mut Vec<u32>) -> Result<(), ChunkError> {
        out.clear();
        self.expect_ids(limit)?;
        self.widen_ids(out);
        Ok(())
    }

    /// Fails unless each value is a byte below `limit`, which is at most 256.
    pub(crate) fn expect_bytes(&self, limit: usize) -> Result<(), ChunkError> {
        let base = u8::try_from(self.base());
        if self.width() > 1 || (!self.is_empty() && base.is_err()) {
            return Err(self.error("holds no bytes"));
        }
        if !self.is_empty() && self.highest() as usize + usize::from(base.unwrap_or(0)) >= limit {
            return Err(self.error("holds an unknown number"));
        }
        Ok(())
    }

    /// Replaces the contents of `out` with all values, each of which must be a byte below `limit`, which is at most 256.
    pub(crate) fn bytes(&self, limit: usize, out: &mut Vec<u8>) -> Result<(), ChunkError> {
        out.clear();
        self.expect_bytes(limit)?;
        self.widen_bytes(out);
        Ok(())
    }

    /// Reads the values as lengths of consecutive runs, and replaces the contents of `out` with the start of each run and the
    /// end of the last: one more than there are values. Fails if their sum exceeds `sum_max`.
    pub(crate) fn starts(&self, sum_max: usize, out: &mut Vec<u32>) -> Result<(), ChunkError> {
        self.ids(sum_max.saturating_add(1), out)?;
        let mut end = 0_u64;
        for length in out.iter_mut() {
            let start = end;
            end += u64::from(*length);
            // May wrap; the sum is checked below, before anything reads a start.
            *length = start as u32;
        }
        out.push(end as u32);
        if end > sum_max.min(u32::MAX as usize) as u64 {
            return Err(self.error("is longer in sum than what it measures"));
        }
        debug_assert!(out.is_sorted() && out[0] == 0, "starts rise from 0");
        Ok(())
    }
}

/// Descriptors of a chunk's columns, by id. Owned by the chunk, whose bytes they refer to.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    known: [Descriptor; column::LAST as usize + 1],
    /// The columns [`column::FIELD_VALUE`], one per field, in order.
    field_values: Vec<Descriptor>,
}

impl Default for Descriptors {
    fn default() -> Descriptors {
        let mut known = [Descriptor::default(); column::LAST as usize + 1];
        for (id, descriptor) in known.iter_mut().enumerate() {
            descriptor.id = id as u8;
        }
        Descriptors {
            known,
            field_values: Vec::new(),
        }
    }
}

impl Descriptors {
    /// The column with this id in the bytes of its chunk; empty if the chunk has none.
    pub(crate) fn get<'a>(&self, id: u8, chunk: &'a [u8]) -> Column<'a> {
        self.known[usize::from(id)].of(chunk)
    }

    /// The columns [`column::FIELD_VALUE`] in the bytes of their chunk.
    pub(crate) fn field_values<'a>(&self, chunk: &'a [u8]) -> impl Iterator<Item = Column<'a>> {
        self.field_values.iter().map(|column| column.of(chunk))
    }

    /// Reads `count` descriptors at `at` of the chunk; their values follow and fill the rest.
    pub(crate) fn read(chunk: &[u8], at: usize, count: usize) -> Result<Descriptors, ChunkError> {
        let mut columns = Descriptors::default();
        for absent in &mut columns.known {
            // Errors about an absent column refer to the descriptors.
            absent.at = at as u32;
        }
        let mut start = at + count * DESCRIPTOR_LENGTH;
        let descriptors = chunk
            .get(at..start)
            .ok_or_else(|| ChunkError::new(chunk.len(), "ends inside the column descriptors"))?;
        let (descriptors, _) = descriptors.as_chunks::<DESCRIPTOR_LENGTH>();
        for (number, descriptor) in descriptors.iter().enumerate() {
            let at = at + number * DESCRIPTOR_LENGTH;
            let descriptor = Descriptor::decode(descriptor, start, chunk.len())
                .map_err(|problem| ChunkError::new(at, problem))?;
            start += descriptor.length() as usize;
            columns.keep(descriptor, at)?;
        }
        if start != chunk.len() {
            return Err(ChunkError::new(start, "something follows the last column"));
        }
        Ok(columns)
    }

    fn keep(&mut self, descriptor: Descriptor, at: usize) -> Result<(), ChunkError> {
        let id = descriptor.id;
        if id == column::FIELD_VALUE {
            self.field_values.push(descriptor);
        } else if id < column::SKIPPABLE {
            match self.known.get_mut(usize::from(id)) {
                Some(slot) if id > 0 && slot.count == 0 => *slot = descriptor,
                Some(_) if id > 0 => {
                    return Err(ChunkError::new(at, format!("column {id} is there twice")));
                }
                _ => {
                    let problem = format!("column {id} is unknown to this program");
                    return Err(ChunkError::new(at, problem));
                }
            }
        }
        Ok(())
    }
}

impl Descriptor {
    /// Decodes a descriptor whose values begin at `at` of a chunk of this length.
    fn decode(
        bytes: &[u8; DESCRIPTOR_LENGTH],
        at: usize,
        chunk_length: usize,
    ) -> Result<Descriptor, String> {
        let [id, width, zero_low, zero_high, c0, c1, c2, c3, base @ ..] = *bytes;
        if width > 8 {
            return Err(format!("column {id} has values of {width} bytes"));
        }
        if zero_low != 0 || zero_high != 0 {
            return Err(format!(
                "the descriptor of column {id} is not zero where it should be"
            ));
        }
        let base = i64::from_le_bytes(base);
        let descriptor = Descriptor {
            id,
            packing: Packing { width, base },
            count: u32::from_le_bytes([c0, c1, c2, c3]),
            at: at as u32,
        };
        // Its count bounds what a reader allocates, so it must be paid for in bytes.
        if column::is_counted(id) && width == 0 {
            return Err(format!("column {id} has values of no bytes"));
        }
        let (length, there) = (descriptor.length(), (chunk_length - at) as u64);
        if length > there {
            let name = column::name(id);
            return Err(format!(
                "column {id} ({name}) takes {length} bytes, {there} are there"
            ));
        }
        Ok(descriptor)
    }
}

/// The columns of a chunk that is being read.
pub(crate) struct ChunkColumns<'a> {
    descriptors: &'a Descriptors,
    chunk: &'a [u8],
}

impl<'a> ChunkColumns<'a> {
    /// The columns that `descriptors` found in `chunk`.
    pub(crate) fn new(descriptors: &'a Descriptors, chunk: &'a [u8]) -> ChunkColumns<'a> {
        ChunkColumns { descriptors, chunk }
    }

    /// The column with this id; empty if there is none.
    pub(crate) fn get(&self, id: u8) -> Column<'a> {
        self.descriptors.get(id, self.chunk)
    }

    /// The columns [`column::FIELD_VALUE`].
    pub(crate) fn field_values(&self) -> impl ExactSizeIterator<Item = Column<'a>> {
        let columns = self.descriptors.field_values.iter();
        columns.map(|column| column.of(self.chunk))
    }
}
