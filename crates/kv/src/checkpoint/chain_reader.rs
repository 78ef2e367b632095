//! From the bytes of a whole checkpoint, and of the changes since then, to a state.

use super::{CheckpointError, CheckpointHead, CheckpointMark, CheckpointReader};
use crate::state::StoreState;

/// A file that was read.
#[derive(Debug)]
pub(crate) struct ReadCheckpoint {
    pub(crate) head: CheckpointHead,
    pub(crate) state: StoreState,
    pub(crate) mark: CheckpointMark,
}

impl CheckpointReader {
    /// What was read, once the whole file was pushed.
    pub(crate) fn finish_file(self) -> Result<ReadCheckpoint, CheckpointError> {
        let (head, state, mark) = self.finish()?;
        Ok(ReadCheckpoint { head, state, mark })
    }
}

/// Reads the bytes of a whole file, then those of a file of changes, if there are more.
#[derive(Debug)]
pub(crate) struct ChainReader {
    reader: CheckpointReader,
    /// The whole file, once the changes begin.
    whole: Option<ReadCheckpoint>,
}

impl ChainReader {
    /// At the beginning of the whole file.
    pub(crate) fn new() -> ChainReader {
        ChainReader {
            reader: CheckpointReader::new(),
            whole: None,
        }
    }

    /// Takes the next bytes. Returns how many of them are of the whole file; the rest are of the changes. After an error both
    /// files are refused for good.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<usize, CheckpointError> {
        let mut of_whole = 0;
        if self.whole.is_none() {
            of_whole = self.reader.push_to_end(bytes)?;
            if of_whole == bytes.len() {
                return Ok(of_whole);
            }
            let reader = std::mem::replace(&mut self.reader, CheckpointReader::new());
            let whole = reader.finish_file()?;
            self.reader = CheckpointReader::of_changes(&whole.head, &whole.state, whole.mark);
            self.whole = Some(whole);
        }
        self.reader.push(&bytes[of_whole..])?;
        Ok(of_whole)
    }

    /// The whole checkpoint if there are changes, and the newest one.
    pub(crate) fn finish(
        self,
    ) -> Result<(Option<ReadCheckpoint>, ReadCheckpoint), CheckpointError> {
        Ok((self.whole, self.reader.finish_file()?))
    }
}
