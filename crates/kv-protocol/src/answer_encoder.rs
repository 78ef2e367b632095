//! Answers of a committed transaction, as the server encodes them, one per operation.

use crate::answer::{ABSENT, DONE, LIST, RANGE, REGISTER};
use crate::message::{HEADER_LENGTH, MESSAGE_LENGTH_MAX, OPERATIONS_MAX};

/// The reply would exceed the maximum length of a message.
#[derive(Debug)]
pub struct TooLong;

/// Adds "done" to the answers in `out` (which has no header yet).
#[inline]
pub fn put_done(out: &mut Vec<u8>) {
    out.push(DONE);
}

/// Adds "absent".
#[inline]
pub fn put_absent(out: &mut Vec<u8>) {
    out.push(ABSENT);
}

/// Adds a register's value.
#[inline]
pub fn put_register(out: &mut Vec<u8>, value: &[u8]) -> Result<(), TooLong> {
    fits(out, 5 + value.len())?;
    out.push(REGISTER);
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
    Ok(())
}

/// Adds a list of `count` elements, whose encoding of `length` bytes comes in pieces: they are copied as they are.
#[inline]
pub fn put_list<'a>(
    out: &mut Vec<u8>,
    count: u32,
    length: usize,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(), TooLong> {
    fits(out, 9 + length)?;
    out.reserve(9 + length);
    out.push(LIST);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(length as u32).to_le_bytes());
    let start = out.len();
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    debug_assert_eq!(out.len() - start, length);
    Ok(())
}

/// Adds the answer of a scan, key by key. The fields before the keys are filled in by [`RangeEncoder::finish`].
#[derive(Debug)]
pub struct RangeEncoder {
    start: usize,
    count: usize,
    is_cut: bool,
}

impl RangeEncoder {
    /// Bytes of tag, cut, number of keys and length.
    const HEAD: usize = 10;

    /// Begins the answer.
    pub fn begin(out: &mut Vec<u8>) -> Result<RangeEncoder, TooLong> {
        fits(out, RangeEncoder::HEAD)?;
        let start = out.len();
        out.resize(start + RangeEncoder::HEAD, 0);
        Ok(RangeEncoder {
            start,
            count: 0,
            is_cut: false,
        })
    }

    /// Number of keys added.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a key and what `item` puts, or nothing if that does not fit.
    pub fn put(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        item: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        let before = out.len();
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(key);
        item(out).inspect_err(|_| out.truncate(before))?;
        self.count += 1;
        Ok(())
    }

    /// Notes that the range has more keys.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Ends the answer.
    pub fn finish(self, out: &mut [u8]) {
        let length = out.len() - self.start - RangeEncoder::HEAD;
        let head = &mut out[self.start..][..RangeEncoder::HEAD];
        head[0] = RANGE;
        head[1] = u8::from(self.is_cut);
        head[2..6].copy_from_slice(&(self.count as u32).to_le_bytes());
        head[6..10].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

/// Reserves room for a short answer for each operation that a transaction can have.
#[inline]
fn fits(out: &[u8], more: usize) -> Result<(), TooLong> {
    const BODY_LENGTH_MAX: usize = MESSAGE_LENGTH_MAX - HEADER_LENGTH - OPERATIONS_MAX;
    if out.len() + more > BODY_LENGTH_MAX {
        return Err(TooLong);
    }
    Ok(())
}
