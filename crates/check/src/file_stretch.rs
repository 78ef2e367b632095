//! A stretch of a test file.

use seatrial_history::chunk::ChunkAddress;
use seatrial_history::{ChunkBuffer, ChunkSource, Op, SourceError, Take, TestFile};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The events of a test file from one position up to another, and to the end of that chunk, as a history whose beginning
/// is missing. Positions are those of the file. A completion whose invocation comes before the stretch is still there,
/// and looks like one of an operation that was carried over from a chunk before.
pub(crate) struct FileStretch {
    file: TestFile,
    range: Range<u64>,
}

impl FileStretch {
    /// These events of the file.
    pub(crate) fn new(file: TestFile, range: Range<u64>) -> FileStretch {
        FileStretch { file, range }
    }

    /// The whole file.
    pub(crate) fn file(&self) -> &TestFile {
        &self.file
    }
}

impl ChunkSource for FileStretch {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        let mut buffer = ChunkBuffer::default();
        let mut position = self.range.start;
        while position < self.range.end {
            let found = self
                .file
                .chunk_summaries(ChunkAddress::Position(position))?;
            let mut found = found.into_iter();
            let Some(summary) = found.find(|one| one.end_position() > position) else {
                break;
            };
            let Some(chunk) = self.file.read_chunk(summary.number, &mut buffer)? else {
                break;
            };
            let before = (position - summary.first_position) as usize;
            let rest = (before > 0).then(|| chunk.after(before));
            let fresh = rest.as_ref().unwrap_or(chunk);
            position = summary.end_position();
            if take(fresh).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, SourceError> {
        self.file.recall(positions)
    }
}
