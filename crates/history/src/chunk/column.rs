//! Columns: integers of one width above a base.

use super::layout::{DESCRIPTOR_LENGTH, column};

/// Why bytes are not a chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (at byte {at} of the chunk)")]
pub struct ChunkError {
    /// Where in the decompressed payload.
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

/// The values of a column that is to be written.
#[derive(Clone, Copy)]
pub(crate) enum Values<'a> {
    Bytes(&'a [u8]),
    Ids(&'a [u32]),
    Integers(&'a [i64]),
}

impl Values<'_> {
    fn len(self) -> usize {
        match self {
            Values::Bytes(values) => values.len(),
            Values::Ids(values) => values.len(),
            Values::Integers(values) => values.len(),
        }
    }

    /// Lowest and highest.
    fn bounds(self) -> (i64, i64) {
        fn of<T: Copy + Ord + Into<i64>>(values: &[T]) -> (i64, i64) {
            let Some(&first) = values.first() else {
                return (0, 0);
            };
            let low = values.iter().fold(first, |low, &value| low.min(value));
            let high = values.iter().fold(first, |high, &value| high.max(value));
            (low.into(), high.into())
        }
        match self {
            Values::Bytes(values) => of(values),
            Values::Ids(values) => of(values),
            Values::Integers(values) => of(values),
        }
    }
}

/// A column with its width and base settled.
struct Planned<'a> {
    id: u8,
    width: u8,
    base: i64,
    values: Values<'a>,
}

/// Collects the columns of a chunk, then writes descriptors and values. Columns without values are left out.
#[derive(Default)]
pub(crate) struct ColumnWriter<'a> {
    planned: Vec<Planned<'a>>,
}

impl<'a> ColumnWriter<'a> {
    /// The next column, with the least width that holds its values.
    pub(crate) fn put(&mut self, id: u8, values: Values<'a>) {
        if values.len() == 0 {
            return;
        }
        let raw = id == column::WORD_BYTES || id == column::TEXT_BYTES;
        let (low, high) = if raw { (0, 255) } else { values.bounds() };
        let range = high.wrapping_sub(low).cast_unsigned();
        let width = (64 - range.leading_zeros()).div_ceil(8) as u8;
        self.planned.push(Planned {
            id,
            width: width.max(u8::from(column::is_counted(id))),
            base: low,
            values,
        });
    }

    /// How many columns there are.
    pub(crate) fn count(&self) -> usize {
        self.planned.len()
    }

    /// Appends descriptors and values.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for plan in &self.planned {
            out.extend([plan.id, plan.width, 0, 0]);
            out.extend((plan.values.len() as u32).to_le_bytes());
            out.extend(plan.base.to_le_bytes());
        }
        for plan in &self.planned {
            match plan.values {
                Values::Bytes(values) if plan.width == 1 && plan.base == 0 => {
                    out.extend_from_slice(values);
                }
                Values::Bytes(values) => pack(out, plan.width, plan.base, values),
                Values::Ids(values) => pack(out, plan.width, plan.base, values),
                Values::Integers(values) => pack(out, plan.width, plan.base, values),
            }
        }
    }
}

/// Appends each value less `base` in `width` bytes.
fn pack<T: Copy + Into<i64>>(out: &mut Vec<u8>, width: u8, base: i64, values: &[T]) {
    fn all<const WIDTH: usize, T: Copy + Into<i64>>(out: &mut Vec<u8>, base: i64, values: &[T]) {
        let start = out.len();
        out.resize(start + WIDTH * values.len(), 0);
        let (slots, _) = out[start..].as_chunks_mut::<WIDTH>();
        for (slot, &value) in slots.iter_mut().zip(values) {
            let bytes = value.into().wrapping_sub(base).to_le_bytes();
            slot.copy_from_slice(&bytes[..WIDTH]);
        }
    }
    match width {
        0 => {}
        1 => all::<1, T>(out, base, values),
        2 => all::<2, T>(out, base, values),
        3 => all::<3, T>(out, base, values),
        4 => all::<4, T>(out, base, values),
        5 => all::<5, T>(out, base, values),
        6 => all::<6, T>(out, base, values),
        7 => all::<7, T>(out, base, values),
        _ => all::<8, T>(out, base, values),
    }
}

/// A column as it stands in a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Column<'a> {
    id: u8,
    width: u8,
    count: u32,
    base: i64,
    /// Where its values begin in the chunk.
    at: usize,
    bytes: &'a [u8],
}

impl<'a> Column<'a> {
    /// How many values it has.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// An error about this column.
    pub(crate) fn error(&self, problem: &str) -> ChunkError {
        ChunkError::new(
            self.at,
            format!("column {} ({}): {problem}", self.id, column::name(self.id)),
        )
    }

    /// Fails unless there are `count` values.
    pub(crate) fn expect(&self, count: usize) -> Result<(), ChunkError> {
        if self.len() == count {
            return Ok(());
        }
        let problem = format!("{} values where {count} belong", self.count);
        Err(self.error(&problem))
    }

    /// The base, if all values equal it.
    pub(crate) fn constant(&self) -> Option<i64> {
        (self.width == 0).then_some(self.base)
    }

    /// The stored bytes of a column of bytes.
    pub(crate) fn raw(&self) -> Result<&'a [u8], ChunkError> {
        let plain = (self.width == 1 && self.base == 0) || self.count == 0;
        plain
            .then_some(self.bytes)
            .ok_or_else(|| self.error("bytes of text have width 1 and base 0"))
    }

    /// All values, replacing what is in `out`.
    pub(crate) fn integers(&self, out: &mut Vec<i64>) {
        out.clear();
        match self.width {
            0 => out.resize(self.len(), self.base),
            1 => self.widen::<1>(out),
            2 => self.widen::<2>(out),
            3 => self.widen::<3>(out),
            4 => self.widen::<4>(out),
            5 => self.widen::<5>(out),
            6 => self.widen::<6>(out),
            7 => self.widen::<7>(out),
            _ => self.widen::<8>(out),
        }
    }

    fn widen<const WIDTH: usize>(&self, out: &mut Vec<i64>) {
        let values = self.bytes.as_chunks::<WIDTH>().0.iter();
        out.extend(values.map(|value| {
            let mut wide = [0; 8];
            wide[..WIDTH].copy_from_slice(value);
            self.base.wrapping_add(i64::from_le_bytes(wide))
        }));
    }

    /// All values, each below `limit`, replacing what is in `out`.
    pub(crate) fn ids(&self, limit: usize, out: &mut Vec<u32>) -> Result<(), ChunkError> {
        out.clear();
        if self.count == 0 {
            return Ok(());
        }
        let limit = limit.min(u32::MAX as usize) as u64;
        let room = u64::try_from(self.base)
            .ok()
            .and_then(|base| (limit.checked_sub(1)?).checked_sub(base))
            .ok_or_else(|| self.error("points at nothing"))?;
        match self.width {
            0 => out.resize(self.len(), 0),
            1 => self.widen_ids::<1>(out),
            2 => self.widen_ids::<2>(out),
            3 => self.widen_ids::<3>(out),
            4 => self.widen_ids::<4>(out),
            _ => return Err(self.error("is wider than 4 bytes")),
        }
        let highest = out.iter().fold(0, |highest, &id| highest.max(id));
        if u64::from(highest) > room {
            return Err(self.error("points at nothing"));
        }
        if self.base != 0 {
            let base = self.base as u32;
            for id in out.iter_mut() {
                *id += base;
            }
        }
        Ok(())
    }

    fn widen_ids<const WIDTH: usize>(&self, out: &mut Vec<u32>) {
        let values = self.bytes.as_chunks::<WIDTH>().0.iter();
        out.extend(values.map(|value| {
            let mut wide = [0; 4];
            wide[..WIDTH].copy_from_slice(value);
            u32::from_le_bytes(wide)
        }));
    }

    /// All values, each below `limit`, which is at most 256, replacing what is in `out`.
    pub(crate) fn bytes(&self, limit: usize, out: &mut Vec<u8>) -> Result<(), ChunkError> {
        out.clear();
        let base = u8::try_from(self.base);
        if self.width > 1 || (self.count > 0 && base.is_err()) {
            return Err(self.error("holds no bytes"));
        }
        let base = base.unwrap_or(0);
        if self.width == 0 {
            out.resize(self.len(), 0);
        } else {
            out.extend_from_slice(self.bytes);
        }
        let highest = out.iter().fold(0, |highest, &byte| highest.max(byte));
        if usize::from(highest) + usize::from(base) >= limit && self.count > 0 {
            return Err(self.error("holds an unknown number"));
        }
        if base > 0 {
            for byte in out.iter_mut() {
                *byte += base;
            }
        }
        Ok(())
    }

    /// Where runs of these lengths start, and where the last ends: one more than there are values. Their sum must not
    /// exceed `sum_max`.
    pub(crate) fn starts(&self, sum_max: usize, out: &mut Vec<u32>) -> Result<(), ChunkError> {
        let mut lengths = Vec::new();
        self.ids(sum_max.saturating_add(1), &mut lengths)?;
        out.clear();
        out.reserve(lengths.len() + 1);
        let mut end = 0_u64;
        out.push(0);
        for length in lengths {
            end += u64::from(length);
            out.push(end as u32);
        }
        if end > sum_max.min(u32::MAX as usize) as u64 {
            return Err(self.error("is longer in sum than what it measures"));
        }
        Ok(())
    }
}

/// The columns of a chunk by id.
pub(crate) struct Columns<'a> {
    known: [Column<'a>; column::LAST as usize + 1],
    /// Those of id 22, in their order.
    pub(crate) field_values: Vec<Column<'a>>,
}

impl<'a> Columns<'a> {
    /// Reads `count` descriptors at `at` of the chunk and finds their values, which fill the rest.
    pub(crate) fn read(chunk: &'a [u8], at: usize, count: usize) -> Result<Self, ChunkError> {
        let mut columns = Columns {
            known: std::array::from_fn(|id| Column {
                id: id as u8,
                at,
                ..Column::default()
            }),
            field_values: Vec::new(),
        };
        let mut start = at + count * DESCRIPTOR_LENGTH;
        let descriptors = chunk
            .get(at..start)
            .ok_or_else(|| ChunkError::new(chunk.len(), "ends inside the column descriptors"))?;
        let (descriptors, _) = descriptors.as_chunks::<DESCRIPTOR_LENGTH>();
        for (number, descriptor) in descriptors.iter().enumerate() {
            let column = Column::find(chunk, descriptor, start)
                .map_err(|problem| ChunkError::new(at + number * DESCRIPTOR_LENGTH, problem))?;
            start += column.bytes.len();
            columns.keep(column, at + number * DESCRIPTOR_LENGTH)?;
        }
        if start != chunk.len() {
            return Err(ChunkError::new(start, "something follows the last column"));
        }
        Ok(columns)
    }

    fn keep(&mut self, column: Column<'a>, at: usize) -> Result<(), ChunkError> {
        let id = column.id;
        if id == column::FIELD_VALUE {
            self.field_values.push(column);
        } else if id < column::SKIPPABLE {
            match self.known.get_mut(usize::from(id)) {
                Some(slot) if id > 0 && slot.count == 0 => *slot = column,
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

    /// The column with this id; one without values if there is none.
    pub(crate) fn get(&self, id: u8) -> &Column<'a> {
        &self.known[usize::from(id)]
    }

    /// How many values the column with this id has.
    pub(crate) fn len(&self, id: u8) -> usize {
        self.get(id).len()
    }
}

impl<'a> Column<'a> {
    /// The column that a descriptor describes, its values being at `at` of the chunk.
    fn find(
        chunk: &'a [u8],
        descriptor: &[u8; DESCRIPTOR_LENGTH],
        at: usize,
    ) -> Result<Column<'a>, String> {
        let [id, width, zero_low, zero_high, c0, c1, c2, c3, base @ ..] = *descriptor;
        if width > 8 {
            return Err(format!("column {id} has values of {width} bytes"));
        }
        if zero_low != 0 || zero_high != 0 {
            return Err(format!(
                "the descriptor of column {id} is not zero where it should be"
            ));
        }
        let count = u32::from_le_bytes([c0, c1, c2, c3]);
        if column::is_counted(id) && width == 0 {
            return Err(format!("column {id} has values of no bytes"));
        }
        let length = u64::from(count) * u64::from(width);
        let there = (chunk.len() - at) as u64;
        if length > there {
            let name = column::name(id);
            return Err(format!(
                "column {id} ({name}) takes {length} bytes, {there} are there"
            ));
        }
        Ok(Column {
            id,
            width,
            count,
            base: i64::from_le_bytes(base),
            at,
            bytes: &chunk[at..at + length as usize],
        })
    }
}
