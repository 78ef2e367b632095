//! Encodes columns with the smallest width and base that hold their values.

use super::layout::column;

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
        /// In lanes, so that no comparison waits for the one before; as many as registers hold.
        fn of<const LANES: usize, T: Copy + Ord + Into<i64>>(values: &[T]) -> (i64, i64) {
            let Some(&first) = values.first() else {
                return (0, 0);
            };
            let (mut low, mut high) = ([first; LANES], [first; LANES]);
            let (blocks, rest) = values.as_chunks::<LANES>();
            for block in blocks {
                for ((low, high), value) in low.iter_mut().zip(&mut high).zip(block) {
                    *low = (*low).min(*value);
                    *high = (*high).max(*value);
                }
            }
            let low = low
                .iter()
                .chain(rest)
                .fold(first, |low, &value| low.min(value));
            let high = high
                .iter()
                .chain(rest)
                .fold(first, |high, &value| high.max(value));
            (low.into(), high.into())
        }
        match self {
            Values::Bytes(values) => of::<16, _>(values),
            Values::Ids(values) => of::<8, _>(values),
            Values::Integers(values) => of::<4, _>(values),
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
