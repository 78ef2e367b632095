//! Recording ids, positions in a recording, and the derivation of tags.

use seatrial_blocks::RecordingTag;
use std::fmt;
use std::path::Path;

/// Number of a recording in its archive: from 1, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingId(pub u64);

impl RecordingId {
    /// The highest number that fits the ten digits of a segment's name.
    pub const MAX: RecordingId = RecordingId(9_999_999_999);
}

impl fmt::Display for RecordingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The tag of a recording in `folder` that is started at `now`, in nanoseconds since 1970.
pub(crate) fn tag_of(folder: &Path, recording: RecordingId, now: u64) -> RecordingTag {
    // The finalizer of SplitMix64 (Steele, Lea, Flood, 2014) after each part, so that every bit of a part changes half of
    // the bits of the result on average.
    let mix = |before: u64, part: u64| {
        let mut word = (before ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    let name = folder.as_os_str().as_encoded_bytes();
    let folder = name
        .iter()
        .fold(0, |word, byte| mix(word, u64::from(*byte)));
    RecordingTag((mix(mix(folder, recording.0), now) >> 32) as u32)
}

/// Position of a byte in a recording: the start position of its segment plus the offset in that file. It never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The position `bytes` after this one, saturating at the last position.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Position {
        Position(self.0.saturating_add(bytes))
    }

    /// Bytes from `start` to this position; 0 if it is before `start`.
    pub const fn since(self, start: Position) -> u64 {
        self.0.saturating_sub(start.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn tags_differ_by_folder_number_and_time_and_are_the_same_again() {
        let mut seen = BTreeSet::new();
        for folder in ["a", "b", "a/b", ""] {
            for recording in 1..40 {
                for now in [0, 1, 1_763_800_000_000_000_000] {
                    let of = || tag_of(Path::new(folder), RecordingId(recording), now);
                    assert_eq!(of(), of());
                    seen.insert(of());
                }
            }
        }
        assert_eq!(seen.len(), 4 * 39 * 3);
    }
}
