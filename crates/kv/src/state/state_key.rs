//! Keys of the state: short ones in place, long ones shared.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Keys up to this length are stored in place: cloning one is a copy, comparing one follows no pointer.
const IN_PLACE_MAX: usize = 30;

/// A key, ordered by its bytes. Cloning is cheap at any length: a node of the map is copied with all its keys when a snapshot
/// shares it.
#[derive(Clone)]
pub(crate) enum StateKey {
    /// At most [`IN_PLACE_MAX`] bytes; the rest of the array is zero.
    Short {
        length: u8,
        bytes: [u8; IN_PLACE_MAX],
    },
    /// Longer.
    Long(Arc<[u8]>),
}

// Tag, length and 30 bytes, or tag and pointer: a key takes half a cache line.
const _: () = assert!(size_of::<StateKey>() == 32);

impl StateKey {
    /// The bytes of the key.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            StateKey::Short { length, bytes } => &bytes[..usize::from(*length)],
            StateKey::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for StateKey {
    #[inline]
    fn from(key: &[u8]) -> StateKey {
        if key.len() > IN_PLACE_MAX {
            return StateKey::Long(key.into());
        }
        let mut bytes = [0; IN_PLACE_MAX];
        bytes[..key.len()].copy_from_slice(key);
        let length = key.len() as u8;
        StateKey::Short { length, bytes }
    }
}

impl Borrow<[u8]> for StateKey {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

// By the bytes alone, as `Borrow` demands; deriving would order short before long keys.
impl PartialEq for StateKey {
    fn eq(&self, other: &StateKey) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for StateKey {}

impl PartialOrd for StateKey {
    fn partial_cmp(&self, other: &StateKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StateKey {
    #[inline]
    fn cmp(&self, other: &StateKey) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_slice().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_keep_their_bytes_and_order() {
        let mut keys = Vec::new();
        for length in [0, 1, 29, 30, 31, 32, 1_024] {
            for last in [0, 1, 255] {
                let mut key = vec![7; length];
                if let Some(byte) = key.last_mut() {
                    *byte = last;
                }
                keys.push(key);
            }
        }
        for first in &keys {
            let key = StateKey::from(first.as_slice());
            assert_eq!(key.as_slice(), first);
            for second in &keys {
                let other = StateKey::from(second.as_slice());
                assert_eq!(key.cmp(&other), first.cmp(second), "{key:?} {other:?}");
                assert_eq!(key == other, first == second);
            }
        }
    }
}
