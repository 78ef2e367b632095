//! CRC-32C, the checksum of all durable data, and checksums of concatenations.

pub mod instruction;

/// Inputs up to this many bytes use the processor's CRC instruction, which has no set-up cost; longer ones use the
/// carry-less multiply, which folds many bytes in one step.
const SHORT_LENGTH_MAX: usize = 96;
/// The same bound for [`crc32c_more`], where the carry-less multiply also needs a new [`Shift`].
const MORE_LENGTH_MAX: usize = 2048;
/// The polynomial of CRC-32C, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial 1 in the same bit order.
const ONE: u32 = 1 << 31;
/// The order of x: powers of x modulo the polynomial repeat after this many.
const PERIOD: u64 = (1 << 31) - 1;

/// CRC-32C (Castagnoli; the one of iSCSI, RFC 3720 section 12.1), by the processor's CRC instruction for short inputs
/// and its carry-less multiply for long ones, where it has them.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() <= SHORT_LENGTH_MAX && instruction::is_supported() {
        return instruction::crc32c(0, bytes);
    }
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of a concatenation: a first piece with checksum `checksum`, followed by `bytes`.
#[inline]
pub fn crc32c_more(checksum: u32, bytes: &[u8]) -> u32 {
    if bytes.len() <= MORE_LENGTH_MAX && instruction::is_supported() {
        return instruction::crc32c(checksum, bytes);
    }
    let length = bytes.len();
    let shift = match POWERS_OF_TWO.get(length.trailing_zeros() as usize) {
        Some(shift) if length.is_power_of_two() => *shift,
        _ => Shift::by(length as u64),
    };
    shift.combine(checksum, crc32c(bytes))
}

/// The shifts by 1, 2, 4 … bytes, the usual lengths of blocks: computing one costs as much as the checksum of 30 KiB.
static POWERS_OF_TWO: [Shift; 21] = {
    let mut shifts = [Shift { factor: 0 }; 21];
    let mut power = 0;
    while power < shifts.len() {
        shifts[power] = Shift::by(1 << power);
        power += 1;
    }
    shifts
};

/// The effect of `length` further bytes on a checksum: [`Shift::combine`] computes the checksum of a concatenation from
/// those of its two pieces, as zlib's `crc32_combine` does. Bytes whose checksum is known (frames, ranges checked on
/// several threads) need not be read again for the checksum of the whole. Creating one costs about a microsecond, using
/// it one or two nanoseconds: keep it while the length stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// x to the power 8 · length - 33, modulo the polynomial; [`instruction::multiply`] multiplies by the missing x³³.
    factor: u32,
}

impl Shift {
    /// The shift for a second piece of `length` bytes. O(log(length)).
    pub const fn by(length: u64) -> Shift {
        // Reduced before the multiplication, which could overflow, and with PERIOD added: lengths below 5 bytes would
        // give a negative power.
        let power = (length % PERIOD * 8 + PERIOD - 33) % PERIOD;
        Shift {
            factor: power_of_x(power),
        }
    }

    /// The checksum of a concatenation from the checksums of its pieces; the second has this shift's length.
    #[inline]
    pub fn combine(self, first: u32, second: u32) -> u32 {
        let shifted = if instruction::is_supported() {
            instruction::multiply(first, self.factor)
        } else {
            multiply(multiply(first, self.factor), power_of_x(33))
        };
        shifted ^ second
    }
}

/// x to the power `power`, modulo the polynomial, by repeated squaring.
const fn power_of_x(power: u64) -> u32 {
    let (mut result, mut square, mut rest) = (ONE, ONE >> 1, power);
    while rest > 0 {
        if rest & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        rest >>= 1;
    }
    result
}

/// The product of two polynomials modulo that of CRC-32C, one bit at a time.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut b, mut power) = (0, b, 0);
    while power < 32 {
        if a & (ONE >> power) != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (POLYNOMIAL * (b & 1));
        power += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// One bit at a time, from the definition.
    fn bitwise(bytes: &[u8]) -> u32 {
        let mut state = u32::MAX;
        for &byte in bytes {
            state ^= u32::from(byte);
            for _ in 0..8 {
                let carry = state & 1;
                state = (state >> 1) ^ (0x82f6_3b78 * carry);
            }
        }
        !state
    }

    #[test]
    fn published_vectors() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn every_length_equals_the_bitwise_definition() {
        let mut rng = Rng::from_seed(1);
        let bytes: Vec<u8> = (0..1_500).map(|_| rng.word() as u8).collect();
        for length in 0..bytes.len() {
            let (here, expected) = (&bytes[..length], bitwise(&bytes[..length]));
            assert_eq!(crc32c(here), expected, "{length}");
            if instruction::is_supported() {
                assert_eq!(instruction::crc32c(0, here), expected, "{length}");
            }
        }
        for start in 0..40 {
            let here = &bytes[start..start + 37];
            assert_eq!(crc32c(here), bitwise(here), "{start}");
        }
    }

    #[test]
    fn pieces_combine_to_the_whole_at_every_length() {
        let mut rng = Rng::from_seed(2);
        let bytes: Vec<u8> = (0..5_000).map(|_| rng.word() as u8).collect();
        for length in (0..200).chain([1_023, 1_024, 2_048, 4_095, 4_096, 4_999, 5_000]) {
            let (first, second) = bytes.split_at(bytes.len() - length);
            let shift = Shift::by(length as u64);
            let combined = shift.combine(crc32c(first), crc32c(second));
            assert_eq!(combined, bitwise(&bytes), "{length}");
            assert_eq!(crc32c_more(crc32c(first), second), combined, "{length}");
        }
    }

    #[test]
    fn the_instructions_multiply_as_the_definition_does() {
        let x33 = power_of_x(33);
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let (a, b) = (rng.word() as u32, rng.word() as u32);
            assert_eq!(multiply(a, b), multiply(b, a), "seed {seed}");
            if instruction::is_supported() {
                let expected = multiply(multiply(a, b), x33);
                assert_eq!(instruction::multiply(a, b), expected, "seed {seed}");
            }
        }
        assert_eq!(power_of_x(PERIOD), ONE);
    }
}
