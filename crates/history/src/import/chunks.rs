//! The operations of a text in chunks.

use super::stream::Unread;
use super::{ImportError, Operations};
use crate::Chunk;
use crate::chunk::{Assembly, Unstorable};
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
        Ok(self.assembly.rest())
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
