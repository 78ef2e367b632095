//! A stretch of a test file.

use seatrial_history::{ChunkBuffer, ChunkSource, Op, SourceError, Take, TestFile};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

/// The events of a test file from one position up to another, and to the end of that chunk, as a history whose beginning
/// is missing. Positions are those of the file. A completion whose invocation comes before the stretch is still there,
/// and looks like one of an operation that was carried over from a chunk before.
pub(crate) struct FileStretch<'f> {
    /// The whole file.
    pub(crate) file: &'f TestFile,
    /// Positions of the events.
    pub(crate) range: Range<u64>,
}

impl ChunkSource for FileStretch<'_> {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        let mut buffer = ChunkBuffer::default();
        self.file
            .round_from(self.range.start, &mut buffer, &mut |chunk| {
                let end = chunk.first_position() + chunk.len() as u64;
                match take(chunk) {
                    ControlFlow::Continue(()) if end < self.range.end => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            })?;
        Ok(())
    }

    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, SourceError> {
        self.file.recall(positions)
    }
}
