//! Integers of variable length: LEB128, 7 bits per byte, lowest first.
//!
//! Checkers and the verifier share this encoding of packed columns: it decides no verdict.

/// Appends a number: one byte if it is below 128, at most ten.
#[inline]
pub fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads the number at `at` and advances `at` past it. Panics when `bytes` ends inside a number.
#[inline]
pub fn take(bytes: &[u8], at: &mut usize) -> u64 {
    let byte = bytes[*at];
    *at += 1;
    // Most numbers are small: one byte needs no loop.
    let mut value = u64::from(byte & 0x7f);
    if byte < 0x80 {
        return value;
    }
    let mut shift = 7;
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

/// Maps signed numbers near zero to small unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(code: u64) -> i64 {
    (code >> 1).cast_signed() ^ -(code & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_lengths_are_read_back() {
        let edges = (0..64).flat_map(|bit| [1_u64 << bit, (1_u64 << bit) - 1]);
        let all: Vec<u64> = edges.chain([u64::MAX]).collect();
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for &one in &all {
            put(&mut bytes, one);
            ends.push(bytes.len());
        }
        let mut at = 0;
        for (&one, &end) in all.iter().zip(&ends) {
            assert_eq!((take(&bytes, &mut at), at), (one, end));
            for signed in [one.cast_signed(), one.wrapping_neg().cast_signed()] {
                assert_eq!(unzigzag(zigzag(signed)), signed);
            }
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }
}
