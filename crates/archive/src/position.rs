//! Which recording, and where in it.

use std::fmt;
use std::path::Path;

/// Names a recording of an archive: from 1 on, never given out twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingId(pub u64);

impl RecordingId {
    /// The highest number that a segment's name has room for.
    pub const MAX: RecordingId = RecordingId(9_999_999_999);
}

impl fmt::Display for RecordingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Ties blocks to their recording: a number that the catalog and every block header of the recording have, so that a
/// block or file of another recording is found wherever it turns up. Two recordings have the same one with a
/// probability of 2^-32. It follows from folder, number and time of the start, so that a simulated archive is the same
/// each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingTag(pub u32);

impl RecordingTag {
    /// The tag of a recording that is started now, in nanoseconds since 1970.
    pub fn derive(folder: &Path, recording: RecordingId, now: u64) -> RecordingTag {
        // The finalizer of SplitMix64 after each part: every bit of a part changes half of the bits of the result.
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
}

impl fmt::Display for RecordingTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A byte of a recording: the start position of its segment plus the offset in that file. It never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The position `bytes` behind this one; the last one there is when there are not so many.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Position {
        Position(self.0.saturating_add(bytes))
    }

    /// Bytes from `start` to here; 0 when this is before it.
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
                    let of =
                        || RecordingTag::derive(Path::new(folder), RecordingId(recording), now);
                    assert_eq!(of(), of());
                    seen.insert(of());
                }
            }
        }
        assert_eq!(seen.len(), 4 * 39 * 3);
    }
}
