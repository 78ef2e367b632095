//! Packed integers: all of one width in bytes, stored as differences to a common base.
//!
//! ```
//! use seatrial_blocks::packed::{IntegerSlice, PackedIntegers};
//!
//! let values = IntegerSlice::Integers(&[1_000, 1_003, 1_001]);
//! let packing = values.packing();
//! assert_eq!((packing.width, packing.base), (1, 1_000));
//! let mut bytes = Vec::new();
//! values.pack(packing, &mut bytes);
//! assert_eq!(bytes, [0, 3, 1]);
//!
//! let packed = PackedIntegers::new(packing, 3, &bytes);
//! assert_eq!((packed.value(1), packed.sum()), (1_003, Some(3_004)));
//! ```

/// Width and base of packed integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Bytes of each stored number, 0 to 8. Width 0: all values equal the base.
    pub width: u8,
    /// Added to each stored number.
    pub base: i64,
}

/// Integers as they are stored: `count` numbers of [`Packing::width`] bytes, little-endian, each less the base.
///
/// Borrows the bytes and reads any value in constant time. Sums and bounds are computed on the stored numbers, without
/// widening; loops are specialized by width, so that the processor handles several values at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackedIntegers<'a> {
    packing: Packing,
    count: u32,
    bytes: &'a [u8],
}

/// Widens one stored number of `WIDTH` bytes.
fn number<const WIDTH: usize>(bytes: [u8; WIDTH]) -> u64 {
    let mut wide = [0; 8];
    wide[..WIDTH].copy_from_slice(&bytes);
    u64::from_le_bytes(wide)
}

/// Calls `take` with each stored number. Widths 1, 2, 4 and 8 are one load each; the others load eight bytes and mask, while
/// eight bytes are left.
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

/// The highest stored number; compiles to a loop that compares several at once.
fn highest<const WIDTH: usize>(bytes: &[u8]) -> u64 {
    let mut highest = 0;
    each::<WIDTH>(bytes, |value| highest = value.max(highest));
    highest
}

impl<'a> PackedIntegers<'a> {
    /// Views `bytes` as packed integers. The width is at most 8, and `bytes` has `count` times as many bytes.
    #[inline]
    pub fn new(packing: Packing, count: u32, bytes: &'a [u8]) -> PackedIntegers<'a> {
        PackedIntegers {
            packing,
            count,
            bytes,
        }
    }

    /// Number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Is there no value?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The base, if all values equal it.
    #[inline]
    pub fn constant(&self) -> Option<i64> {
        (self.packing.width == 0).then_some(self.packing.base)
    }

    /// The number added to each stored one.
    #[inline]
    pub fn base(&self) -> i64 {
        self.packing.base
    }

    /// Bytes of each stored number.
    #[inline]
    pub fn width(&self) -> u8 {
        self.packing.width
    }

    /// The stored bytes.
    #[inline]
    pub fn stored(&self) -> &'a [u8] {
        self.bytes
    }

    /// The highest stored number, without the base.
    pub fn highest(&self) -> u64 {
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
    pub fn for_each(&self, mut take: impl FnMut(i64)) {
        let base = self.base();
        self.each(|value| take(base.wrapping_add(value.cast_signed())));
    }

    /// Is `value` one of the values?
    pub fn contains(&self, value: i64) -> bool {
        let mut found = false;
        self.for_each(|other| found |= other == value);
        found
    }

    /// The sum of the values; `None` if the base is negative or base and highest number overflow 64 bits. The sum itself fits
    /// 128 bits, as there are fewer than 2^32 values.
    pub fn sum(&self) -> Option<u128> {
        let base = u64::try_from(self.base()).ok()?;
        base.checked_add(self.highest())?;
        let mut sum = 0_u128;
        match self.width() {
            // Runs of 2^16 bytes: their sums fit 32 bits, where the processor adds most lanes at once.
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
            // Fewer than 2^32 values below 2^32: no overflow.
            3 | 4 => {
                let mut of = 0_u64;
                self.each(|value| of = of.wrapping_add(value));
                sum = u128::from(of);
            }
            _ => self.each(|value| sum += u128::from(value)),
        }
        Some(sum + u128::from(base) * self.len() as u128)
    }

    /// The value at `place`; the base past the end.
    #[inline]
    pub fn value(&self, place: usize) -> i64 {
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

    /// Appends all values to `out`.
    pub fn integers(&self, out: &mut Vec<i64>) {
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

    /// Appends the lowest 32 bits of all values to `out`.
    pub fn widen_ids(&self, out: &mut Vec<u32>) {
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

    /// Appends all values of width 0 or 1 to `out`, as bytes.
    pub fn widen_bytes(&self, out: &mut Vec<u8>) {
        let base = self.base() as u8;
        if self.width() == 0 {
            out.resize(out.len() + self.len(), base);
        } else {
            out.extend(self.bytes.iter().map(|&value| base.wrapping_add(value)));
        }
    }
}

/// Integers to be packed.
#[derive(Clone, Copy, Debug)]
pub enum IntegerSlice<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Numbers of 32 bits.
    Ids(&'a [u32]),
    /// Signed numbers of 64 bits.
    Integers(&'a [i64]),
}

impl IntegerSlice<'_> {
    /// Number of values.
    pub fn len(self) -> usize {
        match self {
            IntegerSlice::Bytes(values) => values.len(),
            IntegerSlice::Ids(values) => values.len(),
            IntegerSlice::Integers(values) => values.len(),
        }
    }

    /// Is there no value?
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Lowest and highest value.
    fn bounds(self) -> (i64, i64) {
        /// `LANES` running bounds, so that no comparison waits for the one before; as many as the processor's registers hold.
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
            IntegerSlice::Bytes(values) => of::<16, _>(values),
            IntegerSlice::Ids(values) => of::<8, _>(values),
            IntegerSlice::Integers(values) => of::<4, _>(values),
        }
    }

    /// The packing of least width: the lowest value is the base.
    pub fn packing(self) -> Packing {
        let (low, high) = self.bounds();
        // Exact for any two values: the difference fits 64 bits without sign.
        let range = high.wrapping_sub(low).cast_unsigned();
        Packing {
            width: (64 - range.leading_zeros()).div_ceil(8) as u8,
            base: low,
        }
    }

    /// Appends the values less the base, each in `packing.width` bytes, which must suffice.
    pub fn pack(self, packing: Packing, out: &mut Vec<u8>) {
        let Packing { width, base } = packing;
        match self {
            IntegerSlice::Bytes(values) if width == 1 && base == 0 => out.extend_from_slice(values),
            IntegerSlice::Bytes(values) => pack(out, width, base, values),
            IntegerSlice::Ids(values) => pack(out, width, base, values),
            IntegerSlice::Integers(values) => pack(out, width, base, values),
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

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// Values of any range, packed and read back in every way.
    #[test]
    fn packed_integers_equal_the_values() {
        for seed in 0..600 {
            let mut rng = Rng::from_seed(seed);
            let bits = rng.below(65) as u32;
            let low = (rng.below(u64::MAX) >> rng.below(64)).cast_signed();
            let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |range| range - 1);
            let value = |rng: &mut Rng| {
                let above = (rng.below(u64::MAX) & mask).cast_signed();
                low.wrapping_add(above)
            };
            let values: Vec<i64> = (0..rng.below(70)).map(|_| value(&mut rng)).collect();
            let slice = IntegerSlice::Integers(&values);
            let packing = slice.packing();
            let mut bytes = Vec::new();
            slice.pack(packing, &mut bytes);
            assert_eq!(bytes.len(), values.len() * usize::from(packing.width));

            let packed = PackedIntegers::new(packing, values.len() as u32, &bytes);
            assert_eq!(packed.is_empty(), values.is_empty());
            let (mut wide, mut each) = (Vec::new(), Vec::new());
            packed.integers(&mut wide);
            packed.for_each(|value| each.push(value));
            assert_eq!(wide, values, "seed {seed}");
            assert_eq!(each, values, "seed {seed}");
            for (place, &value) in values.iter().enumerate() {
                assert_eq!(packed.value(place), value, "seed {seed}");
                assert!(packed.contains(value), "seed {seed}");
            }
            let highest = values.iter().map(|value| value.wrapping_sub(packing.base));
            let highest = highest.map(i64::cast_unsigned).max().unwrap_or(0);
            assert_eq!(packed.highest(), highest, "seed {seed}");
            if let Some(sum) = packed.sum() {
                let unsigned = values
                    .iter()
                    .map(|&value| u128::from(value.cast_unsigned()));
                assert_eq!(sum, unsigned.sum(), "seed {seed}");
            } else {
                let base = u64::try_from(packing.base).ok();
                assert_eq!(base.and_then(|base| base.checked_add(highest)), None);
            }
        }
    }

    #[test]
    fn ids_and_bytes_are_packed_alike() {
        let ids = [70_000, 70_001, 1_u32 << 20];
        let bytes = [9_u8, 9, 9, 200];
        let mut out = Vec::new();
        let packing = IntegerSlice::Ids(&ids).packing();
        IntegerSlice::Ids(&ids).pack(packing, &mut out);
        assert_eq!((packing.width, packing.base), (3, 70_000));
        let mut wide = Vec::new();
        PackedIntegers::new(packing, 3, &out).widen_ids(&mut wide);
        assert_eq!(wide, ids);

        out.clear();
        let packing = IntegerSlice::Bytes(&bytes).packing();
        IntegerSlice::Bytes(&bytes).pack(packing, &mut out);
        let mut wide = Vec::new();
        PackedIntegers::new(packing, 4, &out).widen_bytes(&mut wide);
        assert_eq!((wide, packing.width), (bytes.to_vec(), 1));
        let constant = IntegerSlice::Bytes(&[5; 3]).packing();
        assert_eq!(PackedIntegers::new(constant, 3, &[]).constant(), Some(5));
    }
}
