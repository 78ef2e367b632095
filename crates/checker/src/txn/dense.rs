//! Dense numbers in place of keys and values.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// A hash map whose order and speed are the same in every run.
pub(crate) type Map<K, V> = HashMap<K, V, Mix>;

/// Multiply-and-fold hashing of a few integers. Not for hostile keys: an adversary could slow a checker down, as he
/// could with any large history.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix(u64);

impl BuildHasher for Mix {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        *self
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.cast_unsigned() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_i64(&mut self, word: i64) {
        self.write_u64(word.cast_unsigned());
    }
}
