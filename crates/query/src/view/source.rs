//! Sources of the operations of a view.

use seatrial_history::chunk::{ChunkAddress, ChunkSummary};
use seatrial_history::{Chunk, ChunkBuffer, HistoryError, OpenError, TestFile};
use std::sync::Arc;

/// Why an operation of a view cannot be had. Cheap to clone: all who ask for the same chunk are told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// A chunk, or the directory, cannot be read.
    #[error(transparent)]
    Open(Arc<OpenError>),
    /// An operation of a history in memory, or what a map made of one, fits into no chunk.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The source has fewer chunks than it says.
    #[error("chunk {0} is not there")]
    Gone(u64),
    /// A question got no answer: it panicked, or too many wait.
    #[error("{0}")]
    Fold(String),
    /// The view does not fit in memory; fold over it instead.
    #[error(
        "a view of {operations} operations and more, whose lists have {elements} elements, is too large for memory"
    )]
    TooLarge {
        /// Operations up to where it was given up.
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

/// A history in chunks that stands still, with a directory. Positions, indices and chunk numbers rise together.
pub trait Source: Send + Sync {
    /// Operations.
    fn len(&self) -> u64;

    /// Are there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Chunks.
    fn chunk_count(&self) -> u64;

    /// What is known of the chunk at `place` and of as many of its neighbours as come along for nothing, in order; empty
    /// if there is no such chunk. Best are stretches that are the same or do not overlap: of others that do the first is
    /// kept.
    fn summaries(&self, place: ChunkAddress) -> Result<Vec<ChunkSummary>, ViewError>;

    /// The chunk with this number, read into memory that is used again; `None` behind the last one.
    fn read<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError>;
}

impl Source for TestFile {
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
