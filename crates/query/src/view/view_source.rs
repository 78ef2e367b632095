//! Sources of the operations of a view.

use seatrial_history::chunk::{ChunkAddress, ChunkSummary};
use seatrial_history::{Chunk, ChunkBuffer, HistoryError, OpenError, TestFile};
use std::sync::Arc;

/// Why an operation of a view cannot be read. Cheap to clone: all readers of a damaged chunk get the same error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// A chunk, or the directory, cannot be read.
    #[error(transparent)]
    Open(Arc<OpenError>),
    /// An operation of a history in memory, or the result of a map, cannot be stored in a chunk.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The source has fewer chunks than it claims.
    #[error("chunk {0} is not there")]
    Gone(u64),
    /// A question has no answer: it panicked, or the folder's queue is full.
    #[error("{0}")]
    Fold(String),
    /// The view does not fit in memory; fold over it instead.
    #[error(
        "a view of {operations} operations and more, whose lists have {elements} elements, is too large for memory"
    )]
    TooLarge {
        /// Operations loaded when the limit was reached.
        operations: u64,
        /// Elements of their lists.
        elements: u64,
    },
}

impl From<OpenError> for ViewError {
    fn from(error: OpenError) -> ViewError {
        ViewError::Open(Arc::new(error))
    }
}

/// An immutable history in chunks, with a directory. Positions, indices and chunk numbers rise together.
pub trait ViewSource: Send + Sync {
    /// Operations.
    fn len(&self) -> u64;

    /// Are there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Chunks.
    fn chunk_count(&self) -> u64;

    /// Summaries of the chunk at `place` and of neighbours that cost nothing extra, in order; empty if there is no such chunk.
    /// The stretches of different calls should be equal or disjoint: of overlapping ones the first is kept.
    fn summaries(&self, place: ChunkAddress) -> Result<Vec<ChunkSummary>, ViewError>;

    /// Reads the chunk with this number into `buffer`, whose memory is reused; `None` past the last one.
    fn read<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError>;
}

impl ViewSource for TestFile {
    fn len(&self) -> u64 {
        TestFile::len(self)
    }

    fn chunk_count(&self) -> u64 {
        TestFile::chunk_count(self)
    }

    fn summaries(&self, place: ChunkAddress) -> Result<Vec<ChunkSummary>, ViewError> {
        Ok(self.chunk_summaries(place)?)
    }

    fn read<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError> {
        Ok(self.read_chunk(number, buffer)?)
    }
}
