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

/// Where a column stands in a chunk and what its values are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descriptor {
    id: u8,
    width: u8,
    count: u32,
    base: i64,
    /// Where its values begin in the chunk.
    at: u32,
}

impl Descriptor {
    /// The column in the bytes of its chunk.
    pub(crate) fn of(self, chunk: &[u8]) -> Column<'_> {
        let at = self.at as usize;
        let length = self.count as usize * usize::from(self.width);
        Column {
            descriptor: self,
            bytes: chunk.get(at..at + length).unwrap_or_default(),
        }
    }
}

/// A column as it stands in a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Column<'a> {
    descriptor: Descriptor,
    bytes: &'a [u8],
}

/// A number of `WIDTH` bytes.
fn number<const WIDTH: usize>(bytes: [u8; WIDTH]) -> u64 {
    let mut wide = [0; 8];
    wide[..WIDTH].copy_from_slice(&bytes);
    u64::from_le_bytes(wide)
}

/// Each stored number in order. Those of 1, 2, 4 and 8 bytes are one instruction each; others are cut out of eight bytes
/// where so many are left.
fn each<const WIDTH: usize>(bytes: &[u8], mut take: impl FnMut(u64)) {
    let mut rest = bytes;
    if !WIDTH.is_power_of_two() {
        while let Some(wide) = rest.first_chunk::<8>() {
            take(u64::from_le_bytes(*wide) & (u64::MAX >> (64 - 8 * WIDTH)));
            rest = &rest[WIDTH..];
        }
    }
    for value in rest.as_chunks::<WIDTH>().0 {
        take(number(*value));
    }
}

/// The highest of the numbers; its loop compares many at once.
fn highest<const WIDTH: usize>(bytes: &[u8]) -> u64 {
    let mut highest = 0;
    each::<WIDTH>(bytes, |value| highest = value.max(highest));
    highest
}

impl<'a> Column<'a> {
    /// How many values it has.
    pub(crate) fn len(&self) -> usize {
        self.descriptor.count as usize
    }

    /// An error about this column.
    pub(crate) fn error(&self, problem: &str) -> ChunkError {
        let Descriptor { id, at, .. } = self.descriptor;
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

    /// The base, if all values equal it.
    pub(crate) fn constant(&self) -> Option<i64> {
        (self.descriptor.width == 0).then_some(self.descriptor.base)
    }

    /// What is added to each stored number.
    pub(crate) fn base(&self) -> i64 {
        self.descriptor.base
    }

    /// Bytes of each stored number.
    pub(crate) fn width(&self) -> u8 {
        self.descriptor.width
    }

    /// The stored bytes.
    pub(crate) fn stored(&self) -> &'a [u8] {
        self.bytes
    }

    /// The stored bytes of a column of bytes.
    pub(crate) fn raw(&self) -> Result<&'a [u8], ChunkError> {
        let plain = self.width() == 1 && self.base() == 0 || self.len() == 0;
        plain
            .then_some(self.bytes)
            .ok_or_else(|| self.error("bytes of text have width 1 and base 0"))
    }

    /// The highest stored number, without the base.
    pub(crate) fn highest(&self) -> u64 {
        match self.width() {
            0 => 0,
            1 => u64::from(self.bytes.iter().fold(0, |high, &value| high.max(value))),
            2 => {
                let values = self.bytes.as_chunks().0.iter();
                let values = values.map(|value| u16::from_le_bytes(*value));
                u64::from(values.fold(0, u16::max))
            }
            3 => highest::<3>(self.bytes),
            4 => {
                let values = self.bytes.as_chunks().0.iter();
                let values = values.map(|value| u32::from_le_bytes(*value));
                u64::from(values.fold(0, u32::max))
            }
            5 => highest::<5>(self.bytes),
            6 => highest::<6>(self.bytes),
            7 => highest::<7>(self.bytes),
            _ => highest::<8>(self.bytes),
        }
    }

    /// Calls `take` with each stored number, without the base.
    fn each(&self, mut take: impl FnMut(u64)) {
        match self.width() {
            0 => (0..self.len()).for_each(|_| take(0)),
            1 => each::<1>(self.bytes, take),
            2 => each::<2>(self.bytes, take),
            3 => each::<3>(self.bytes, take),
            4 => each::<4>(self.bytes, take),
            5 => each::<5>(self.bytes, take),
            6 => each::<6>(self.bytes, take),
            7 => each::<7>(self.bytes, take),
            _ => each::<8>(self.bytes, take),
        }
    }

    /// Calls `take` with each value.
    pub(crate) fn for_each(&self, mut take: impl FnMut(i64)) {
        let base = self.base();
        self.each(|value| take(base.wrapping_add(value.cast_signed())));
    }

    /// Is it one of the values?
    pub(crate) fn contains(&self, value: i64) -> bool {
        let mut found = false;
        self.for_each(|other| found |= other == value);
        found
    }

    /// The values' sum, which cannot pass 128 bits, if the base is not negative and no value passes 64 bits.
    pub(crate) fn sum(&self) -> Option<u128> {
        let base = u64::try_from(self.base()).ok()?;
        base.checked_add(self.highest())?;
        let mut sum = 0_u128;
        match self.width() {
            1 => {
                for values in self.bytes.chunks(1 << 16) {
                    let of = values
                        .iter()
                        .fold(0_u32, |sum, &value| sum + u32::from(value));
                    sum += u128::from(of);
                }
            }
            2 => {
                for values in self.bytes.chunks(1 << 16) {
                    let values = values.as_chunks().0.iter();
                    let of = values.fold(0_u32, |sum, &value| {
                        sum + u32::from(u16::from_le_bytes(value))
                    });
                    sum += u128::from(of);
                }
            }
            3 | 4 => {
                let mut of = 0_u64;
                self.each(|value| of = of.wrapping_add(value));
                sum = u128::from(of);
            }
            _ => self.each(|value| sum += u128::from(value)),
        }
        Some(sum + u128::from(base) * self.len() as u128)
    }

    /// The value at `place`; the base behind the end.
    pub(crate) fn value(&self, place: usize) -> i64 {
        fn at<const WIDTH: usize>(bytes: &[u8], place: usize) -> u64 {
            let value = bytes.as_chunks::<WIDTH>().0.get(place);
            value.map_or(0, |value| number(*value))
        }
        let stored = match self.width() {
            0 => 0,
            1 => at::<1>(self.bytes, place),
            2 => at::<2>(self.bytes, place),
            3 => at::<3>(self.bytes, place),
            4 => at::<4>(self.bytes, place),
            5 => at::<5>(self.bytes, place),
            6 => at::<6>(self.bytes, place),
            7 => at::<7>(self.bytes, place),
            _ => at::<8>(self.bytes, place),
        };
        self.base().wrapping_add(stored.cast_signed())
    }

    /// All values, behind what is in `out`.
    pub(crate) fn integers(&self, out: &mut Vec<i64>) {
        let base = self.base();
        out.reserve(self.len());
        match self.width() {
            0 => out.resize(out.len() + self.len(), base),
            1 => {
                let values = self.bytes.iter();
                out.extend(values.map(|&value| base.wrapping_add(i64::from(value))));
            }
            2 => self.widen::<2, i64>(out, |value| base.wrapping_add(value.cast_signed())),
            4 => self.widen::<4, i64>(out, |value| base.wrapping_add(value.cast_signed())),
            8 => self.widen::<8, i64>(out, |value| base.wrapping_add(value.cast_signed())),
            _ => self.each(|value| out.push(base.wrapping_add(value.cast_signed()))),
        }
    }

    fn widen<const WIDTH: usize, T>(&self, out: &mut Vec<T>, of: impl Fn(u64) -> T) {
        let values = self.bytes.as_chunks::<WIDTH>().0.iter();
        out.extend(values.map(|value| of(number(*value))));
    }

    /// Fails unless each value is below `limit`.
    pub(crate) fn expect_ids(&self, limit: usize) -> Result<(), ChunkError> {
        if self.len() == 0 {
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

    /// All values of a column of ids, behind what is in `out`.
    pub(crate) fn widen_ids(&self, out: &mut Vec<u32>) {
        let base = self.base() as u32;
        out.reserve(self.len());
        match self.width() {
            0 => out.resize(out.len() + self.len(), base),
            1 => {
                let values = self.bytes.iter();
                out.extend(values.map(|&value| base.wrapping_add(u32::from(value))));
            }
            2 => self.widen::<2, u32>(out, |value| base.wrapping_add(value as u32)),
            4 => self.widen::<4, u32>(out, |value| base.wrapping_add(value as u32)),
            _ => self.each(|value| out.push(base.wrapping_add(value as u32))),
        }
    }

    /// All values, each below `limit`, replacing what is in `out`.
    pub(crate) fn ids(&self, limit: usize, out: &mut Vec<u32>) -> Result<(), ChunkError> {
        out.clear();
        self.expect_ids(limit)?;
        self.widen_ids(out);
        Ok(())
    }

    /// Fails unless each value is a byte below `limit`, which is at most 256.
    pub(crate) fn expect_bytes(&self, limit: usize) -> Result<(), ChunkError> {
        let base = u8::try_from(self.base());
        if self.width() > 1 || (self.len() > 0 && base.is_err()) {
            return Err(self.error("holds no bytes"));
        }
        if self.len() > 0 && self.highest() as usize + usize::from(base.unwrap_or(0)) >= limit {
            return Err(self.error("holds an unknown number"));
        }
        Ok(())
    }

    /// All values of a column of bytes, behind what is in `out`.
    pub(crate) fn widen_bytes(&self, out: &mut Vec<u8>) {
        let base = self.base() as u8;
        if self.width() == 0 {
            out.resize(out.len() + self.len(), base);
        } else {
            out.extend(self.bytes.iter().map(|&value| base.wrapping_add(value)));
        }
    }

    /// All values, each below `limit`, which is at most 256, replacing what is in `out`.
    pub(crate) fn bytes(&self, limit: usize, out: &mut Vec<u8>) -> Result<(), ChunkError> {
        out.clear();
        self.expect_bytes(limit)?;
        self.widen_bytes(out);
        Ok(())
    }

    /// Where runs of these lengths start, and where the last ends: one more than there are values. Their sum must not
    /// exceed `sum_max`.
    pub(crate) fn starts(&self, sum_max: usize, out: &mut Vec<u32>) -> Result<(), ChunkError> {
        self.ids(sum_max.saturating_add(1), out)?;
        let mut end = 0_u64;
        for length in out.iter_mut() {
            let start = end;
            end += u64::from(*length);
            *length = start as u32;
        }
        out.push(end as u32);
        if end > sum_max.min(u32::MAX as usize) as u64 {
            return Err(self.error("is longer in sum than what it measures"));
        }
        Ok(())
    }
}

/// Where the columns of a chunk stand, by id.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    known: [Descriptor; column::LAST as usize + 1],
    /// Those of id 22, in their order.
    field_values: Vec<Descriptor>,
}

impl Default for Descriptors {
    fn default() -> Descriptors {
        Descriptors {
            known: [Descriptor::default(); column::LAST as usize + 1],
            field_values: Vec::new(),
        }
    }
}

impl Descriptors {
    /// The column with this id in the bytes of its chunk.
    pub(crate) fn get<'a>(&self, id: u8, chunk: &'a [u8]) -> Column<'a> {
        self.known[usize::from(id)].of(chunk)
    }

    /// The columns of id 22.
    pub(crate) fn field_values<'a>(&self, chunk: &'a [u8]) -> impl Iterator<Item = Column<'a>> {
        self.field_values.iter().map(|column| column.of(chunk))
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
            known: std::array::from_fn(|id| {
                let (id, at) = (id as u8, at as u32);
                let descriptor = Descriptor {
                    id,
                    at,
                    ..Descriptor::default()
                };
                descriptor.of(&[])
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
        let id = column.descriptor.id;
        if id == column::FIELD_VALUE {
            self.field_values.push(column);
        } else if id < column::SKIPPABLE {
            match self.known.get_mut(usize::from(id)) {
                Some(slot) if id > 0 && slot.len() == 0 => *slot = column,
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

    /// Where all of them stand.
    pub(crate) fn descriptors(&self, out: &mut Descriptors) {
        out.known = self.known.map(|column| column.descriptor);
        out.field_values.clear();
        let field_values = self.field_values.iter();
        out.field_values
            .extend(field_values.map(|column| column.descriptor));
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
        let descriptor = Descriptor {
            id,
            width,
            count,
            base: i64::from_le_bytes(base),
            at: at as u32,
        };
        Ok(descriptor.of(chunk))
    }
}
