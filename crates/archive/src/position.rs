//! Which recording, and where in it.

use std::fmt;

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
