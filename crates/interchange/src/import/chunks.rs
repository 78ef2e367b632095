//! Reads a text as chunks.

use super::stream::Unread;
use super::{ImportError, Operations};
use seatrial_history::Chunk;
use seatrial_history::chunk::{Assembly, Unstorable};
use std::io::Read;

/// The operations of a file of any format, chunk by chunk, in constant memory and without a file of their own.
///
/// It owns the reader and one [`Assembly`]. Transactions that are written as usual go from the text into
/// columns without becoming operations; everything else is read as [`Operations`] does.
pub struct TextChunks<R> {
    operations: Operations<R>,
    assembly: Assembly,
}

/// Why there is no further chunk.
#[derive(Debug, thiserror::Error)]
pub enum Taken {
    /// The text is wrong.
    #[error(transparent)]
    Text(#[from] ImportError),
    /// An operation is more than a chunk can hold.
    #[error("{place}")]
    Operation {
        /// Where it is.
        place: ImportError,
        /// What it has too much of.
        source: Unstorable,
    },
}

impl<R: Read> TextChunks<R> {
    /// The operations in chunks of at most so many.
    pub(super) fn new(operations: Operations<R>, length_max: usize) -> TextChunks<R> {
        let assembly = Assembly::new(length_max);
        TextChunks {
            operations,
            assembly,
        }
    }

    /// The next chunk; `None` at the end. After an error there is nothing more.
    pub fn read(&mut self) -> Result<Option<&Chunk>, Taken> {
        self.fill()?;
        Ok(self.assembly.rest())
    }

    /// The same, put in the place of `chunk`; false at the end.
    pub fn read_into(&mut self, chunk: &mut Chunk) -> Result<bool, Taken> {
        self.fill()?;
        Ok(self.assembly.swap_rest(chunk))
    }

    /// Reads until there is a chunk.
    fn fill(&mut self) -> Result<(), Taken> {
        while !self.assembly.is_full() {
            match self.operations.read_into(&mut self.assembly) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // What was begun is not handed out.
                    self.assembly = Assembly::new(1);
                    return Err(self.taken(error));
                }
            }
        }
        Ok(())
    }

    /// Bytes of the text that were read so far.
    pub fn bytes(&self) -> u64 {
        self.operations.bytes()
    }

    /// What the text says of its indices, once it was read.
    pub fn warning(&self) -> Option<&str> {
        self.operations.warning()
    }

    fn taken(&self, error: Unread) -> Taken {
        match error {
            Unread::Text(error) => error.into(),
            Unread::Operation(source) => {
                let place = self.operations.error("this operation cannot be taken over");
                Taken::Operation { place, source }
            }
        }
    }
}
