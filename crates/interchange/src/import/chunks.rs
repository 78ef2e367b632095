//! Operations of a file as chunks of columns.

use super::text_operations::Unread;
use super::{FileOperations, ImportError};
use seatrial_history::Chunk;
use seatrial_history::chunk::{Assembly, Unstorable};
use std::io::Read;

/// The operations of a file of any format, chunk by chunk, in constant memory and without a file of their own.
///
/// It owns the reader and one [`Assembly`]. Transactions in their usual spelling go from the text into
/// columns without becoming an [`Op`](seatrial_history::Op); everything else is read as by [`FileOperations`].
pub struct TextChunks<R> {
    operations: FileOperations<R>,
    assembly: Assembly,
}

/// Why the next chunk cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ChunkReadError {
    /// The text is malformed.
    #[error(transparent)]
    Text(#[from] ImportError),
    /// An operation exceeds a limit of chunks.
    #[error("{place}")]
    Operation {
        /// Its place.
        place: ImportError,
        /// The exceeded limit.
        source: Unstorable,
    },
}

impl<R: Read> TextChunks<R> {
    /// Chunks of at most `length_max` operations.
    pub(super) fn new(operations: FileOperations<R>, length_max: usize) -> TextChunks<R> {
        let assembly = Assembly::new(length_max);
        TextChunks {
            operations,
            assembly,
        }
    }

    /// Reads the next chunk; `None` at the end and after an error.
    pub fn read(&mut self) -> Result<Option<&Chunk>, ChunkReadError> {
        self.fill()?;
        Ok(self.assembly.rest())
    }

    /// Reads the next chunk into `chunk`, whose memory is reused; false at the end.
    pub fn read_into(&mut self, chunk: &mut Chunk) -> Result<bool, ChunkReadError> {
        self.fill()?;
        Ok(self.assembly.swap_rest(chunk))
    }

    /// Reads until a chunk is full or the text ends.
    fn fill(&mut self) -> Result<(), ChunkReadError> {
        while !self.assembly.is_full() {
            match self.operations.read_into(&mut self.assembly) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // The chunk under construction is dropped: after an error nothing is returned.
                    self.assembly = Assembly::new(1);
                    return Err(self.read_error(error));
                }
            }
        }
        Ok(())
    }

    /// Bytes of the text that were read so far.
    pub fn bytes(&self) -> u64 {
        self.operations.bytes()
    }

    /// A warning about indices that do not rise; complete once the text was read.
    pub fn warning(&self) -> Option<&str> {
        self.operations.warning()
    }

    fn read_error(&self, error: Unread) -> ChunkReadError {
        match error {
            Unread::Text(error) => error.into(),
            Unread::Operation(source) => {
                let place = self.operations.error("this operation cannot be taken over");
                ChunkReadError::Operation { place, source }
            }
        }
    }
}
