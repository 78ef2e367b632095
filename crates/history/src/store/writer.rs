//! Writes a test file.

use super::Codec;
use super::append::Appender;
use super::block_kinds::{CHUNK, JOURNAL};
use super::directory::DirectoryEntry;
use super::survey::{FileTail, OpenError, SurveyedFile, survey};
use crate::Op;
use crate::chunk::{CHUNK_BYTES_MAX, ChunkHeader, Encoder, Unstorable};
use crate::pair::OpenInvocations;
use seatrial_blocks::file::Files;
use seatrial_blocks::{BlockFileError, LogFile, Torn};
use seatrial_machine::Storage;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// Operations of a full chunk.
pub(super) const CHUNK_LENGTH: usize = 16_384;
/// A flush with at least this many new operations seals the open chunk: journaled, each would be written twice.
const JOURNAL_LENGTH_MAX: usize = 512;

/// How a test file is written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// How chunks are compressed.
    pub codec: Codec,
    /// Operations of a full chunk, at most 65,536.
    pub chunk_length: usize,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            codec: Codec::default(),
            chunk_length: CHUNK_LENGTH,
        }
    }
}

/// Why an operation or a result cannot be written. Everything written before stays readable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system refuses the write: no space, no permission, a broken disk.
    #[error(transparent)]
    File(#[from] BlockFileError),
    /// The operation cannot be represented in the format.
    #[error("operation {index} cannot be stored: {reason}")]
    Operation {
        /// Its index.
        index: u64,
        /// Why.
        reason: Unstorable,
    },
    /// The index does not rise.
    #[error("operation {index} comes after operation {last}")]
    Order {
        /// The index that does not rise.
        index: u64,
        /// The one before.
        last: u64,
    },
    /// The file has a torn end, which appending would remove.
    #[error("{}: {torn}; nothing was written, as that would cut the file", path.display())]
    Torn {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong there.
        torn: Torn,
    },
    /// The file to which results were to be appended cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Writes the history of one test while it runs, in constant memory.
///
/// Loop: operations gather in the open chunk; a full one is compressed and appended with one write. The driver calls
/// [`HistoryWriter::flush`] at least every 100 ms, after which a kill of the process loses nothing that was pushed before.
/// The last call is [`HistoryWriter::seal`]; a reader of an unsealed file finds its end by walking the blocks.
///
/// A power failure may lose everything since the last root; [`HistoryWriter::sync`] bounds that.
pub struct HistoryWriter {
    file: Appender,
    options: WriterOptions,
    encoder: Encoder,
    /// Operations of the open chunk that are in no journal block yet, with the distance to their invocations; at most as many
    /// as a journal block may have, since a flush of more writes the chunk instead.
    recent: Vec<(Op, u64)>,
    /// Operations since the last flush.
    unflushed: usize,
    journal: Encoder,
    /// Upper bound of the bytes of the open chunk; replaced by the encoder's own count when it reaches the limit.
    bytes_max: usize,
    /// Operations so far.
    position: u64,
    last_index: Option<u64>,
    open: OpenInvocations,
    payload: Vec<u8>,
    /// Was it sealed?
    finished: bool,
}

impl HistoryWriter {
    /// Begins a new test file, which must not exist, for a test with these attributes.
    pub fn create(path: &Path, attributes: &Json) -> Result<HistoryWriter, WriteError> {
        HistoryWriter::create_with(path, attributes, WriterOptions::default())
    }

    /// The same with options.
    pub fn create_with(
        path: &Path,
        attributes: &Json,
        options: WriterOptions,
    ) -> Result<HistoryWriter, WriteError> {
        HistoryWriter::create_on(&Files, path, attributes, options)
    }

    /// The same on any storage.
    pub(super) fn create_on(
        storage: &dyn Storage,
        path: &Path,
        attributes: &Json,
        options: WriterOptions,
    ) -> Result<HistoryWriter, WriteError> {
        assert!((1..=crate::chunk::OPERATIONS_MAX).contains(&options.chunk_length));
        let file = Appender::create(LogFile::create_on(storage, path)?, attributes)?;
        Ok(HistoryWriter {
            file,
            options,
            encoder: Encoder::default(),
            recent: Vec::new(),
            unflushed: 0,
            journal: Encoder::default(),
            bytes_max: 0,
            position: 0,
            last_index: None,
            open: OpenInvocations::default(),
            payload: Vec::new(),
            finished: false,
        })
    }

    /// Operations so far.
    pub fn len(&self) -> u64 {
        self.position
    }

    /// Is there no operation yet?
    pub fn is_empty(&self) -> bool {
        self.position == 0
    }

    /// Adds one operation. Writes only if it completes a chunk; see [`HistoryWriter::flush`].
    pub fn push(&mut self, op: &Op) -> Result<(), WriteError> {
        if let Some(last) = self.last_index.filter(|&last| op.index <= last) {
            return Err(WriteError::Order {
                index: op.index,
                last,
            });
        }
        self.file.check()?;
        let (open, position, mut pair) = (&mut self.open, self.position, 0);
        let pushed = self.encoder.measure_and_push(op, || {
            let invocation = open.follow(position, op);
            pair = invocation.map_or(0, |invocation| position - invocation);
            pair
        });
        let bytes = pushed.map_err(|reason| WriteError::Operation {
            index: op.index,
            reason,
        })?;
        self.bytes_max += 2 * bytes + 16;
        self.unflushed += 1;
        if self.unflushed <= JOURNAL_LENGTH_MAX {
            self.recent.push((op.clone(), pair));
        }
        self.position += 1;
        self.last_index = Some(op.index);
        if self.is_full() {
            self.write_chunk()?;
        }
        assert!(
            self.recent.len() <= JOURNAL_LENGTH_MAX,
            "more operations than a journal block may have"
        );
        Ok(())
    }

    /// Does the open chunk take no further operation?
    fn is_full(&mut self) -> bool {
        debug_assert!(self.encoder.bytes() <= self.bytes_max);
        if self.bytes_max >= CHUNK_BYTES_MAX {
            self.bytes_max = self.encoder.bytes();
        }
        self.encoder.len() >= self.options.chunk_length || self.bytes_max >= CHUNK_BYTES_MAX
    }

    /// Writes all operations so far to the operating system: a kill of this process loses none of them.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.file.check()?;
        // Reset before writing: after a failed write the file is poisoned anyway.
        let unflushed = std::mem::take(&mut self.unflushed);
        if unflushed >= JOURNAL_LENGTH_MAX {
            return self.write_chunk();
        }
        if self.recent.is_empty() {
            return Ok(());
        }
        let first = self.position - self.recent.len() as u64;
        for (op, pair) in self.recent.drain(..) {
            self.journal.push(&op, pair);
        }
        self.payload.clear();
        self.journal.write(first, &mut self.payload);
        self.file
            .block(JOURNAL, 0, &self.payload, self.options.codec)?;
        Ok(())
    }

    /// [`HistoryWriter::flush`], and makes it durable: a power failure loses none of it either.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.flush()?;
        Ok(self.file.sync()?)
    }

    /// Writes the rest, and a root that marks the history as complete.
    pub fn seal(mut self) -> Result<(), WriteError> {
        self.write_chunk()?;
        self.finished = true;
        self.file.contents.complete = true;
        Ok(self.file.root()?)
    }

    /// Writes the open chunk, which replaces the journal blocks since the last chunk.
    fn write_chunk(&mut self) -> Result<(), WriteError> {
        let count = self.encoder.len() as u64;
        self.recent.clear();
        self.bytes_max = 0;
        let Some(last_index) = self.last_index.filter(|_| count > 0) else {
            return Ok(());
        };
        self.payload.clear();
        self.encoder.write(self.position - count, &mut self.payload);
        let (header, _) = ChunkHeader::read(&self.payload).expect("a chunk that was just written");
        let written = self
            .file
            .block(CHUNK, 0, &self.payload, self.options.codec)?;
        self.file.contents.operations = self.position;
        self.file.add(DirectoryEntry::of_chunk(
            &header, last_index, written.0, written.1,
        ))?;
        assert_eq!(u64::from(header.operations), count);
        assert!(
            self.encoder.is_empty() && self.recent.is_empty(),
            "an operation is written twice"
        );
        Ok(())
    }
}

#[cfg(test)]
impl HistoryWriter {
    /// Simulates a failed write.
    pub(super) fn fail_from_now_on(&mut self) {
        self.file.fail_from_now_on();
    }
}

/// Dropping an unsealed writer flushes its operations.
impl Drop for HistoryWriter {
    fn drop(&mut self) {
        if !self.finished {
            // An error cannot be reported from here; the file is readable without this flush.
            let _ = self.flush();
        }
    }
}

/// Refuses a file with a torn end, which appending would cut off.
pub(super) fn refuse_torn(found: &SurveyedFile, path: &Path) -> Result<(), WriteError> {
    match found.tail {
        Some(FileTail::Torn(torn)) => Err(WriteError::Torn {
            path: path.to_owned(),
            torn,
        }),
        Some(FileTail::Open) | None => Ok(()),
    }
}

/// Appends the results of one more analysis to a file that no process is writing.
pub(super) fn append_results(path: &Path, results: &Json) -> Result<(), WriteError> {
    append_results_on(&Files, path, results)
}

/// The same on any storage.
pub(super) fn append_results_on(
    storage: &dyn Storage,
    path: &Path,
    results: &Json,
) -> Result<(), WriteError> {
    let log = LogFile::open_on(storage, path)?;
    let found = survey(&log, path)?;
    refuse_torn(&found, path)?;
    let mut file = Appender::resume(log, found)?;
    file.results(&results.to_string(), &results["valid"].to_string())?;
    Ok(file.root()?)
}
