//! Writing a test file.

use super::PURPOSE;
use super::block::{
    self, ATTRIBUTES, CHUNK, CONTINUES, Codec, DIRECTORY, JOURNAL, PART_LENGTH_MAX, RESULTS,
    RESULTS_PART,
};
use super::directory::{Contents, Document, ENTRIES_MAX, Entry, write_level};
use super::file::{Found, OpenError, survey};
use crate::Op;
use crate::chunk::{CHUNK_BYTES_MAX, ChunkHeader, Encoder, Unstorable, measure};
use crate::pair::OpenInvocations;
use seatrial_archive::block::flags;
use seatrial_archive::root::{RootSlots, first_page};
use seatrial_archive::{BlockKind, FileError, LogFile};
use seatrial_machine::Disk;
use serde_json::Value as Json;
use std::path::Path;

/// Operations of a full chunk.
pub(super) const CHUNK_LENGTH: usize = 16_384;
/// A flush with at least so many new operations seals the open chunk instead of journaling them.
const JOURNAL_LENGTH_MAX: usize = 4_096;

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
            codec: Codec::Lz4,
            chunk_length: CHUNK_LENGTH,
        }
    }
}

/// Why an operation or a result cannot be written. What was written before stays readable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system does not take it: no space, no permission, a broken disk.
    #[error(transparent)]
    File(#[from] FileError),
    /// The operation does not fit the format.
    #[error("operation {index} cannot be stored: {reason}")]
    Operation {
        /// Its index.
        index: u64,
        /// Why.
        reason: Unstorable,
    },
    /// Indices must rise.
    #[error("operation {index} comes after operation {last}")]
    Order {
        /// The index that does not rise.
        index: u64,
        /// The one before.
        last: u64,
    },
    /// Results were to be appended to a file that cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Writes the history of one test while it runs, in constant memory.
///
/// Its loop: operations gather in the open chunk; a full one is compressed and appended with one write. The driver
/// calls [`HistoryWriter::flush`] at least every 100 ms: then a kill of the process loses nothing that came before. The last
/// call is [`HistoryWriter::seal`]; a file without it opens as well, its reader finds the end by walking.
///
/// Its downside: a power failure may lose what was not synced, that is everything since the last root; call
/// [`HistoryWriter::sync`] to bound that.
pub struct HistoryWriter {
    file: Appender,
    options: WriterOptions,
    encoder: Encoder,
    /// Operations of the open chunk that are in no journal block yet, with the distance to their invocations; the rest
    /// of them is not kept when there are more than a journal block may have.
    recent: Vec<(Op, u64)>,
    /// Operations since the last flush.
    unflushed: usize,
    journal: Encoder,
    /// Operations so far.
    position: u64,
    last_index: Option<u64>,
    open: OpenInvocations,
    payload: Vec<u8>,
    /// Was it sealed?
    finished: bool,
}

/// Appends blocks and roots to a file.
struct Appender {
    log: LogFile,
    contents: Contents,
    sequence: u64,
    slots: RootSlots,
    /// Is everything in the file durable?
    synced: bool,
    /// Why nothing can be written any more.
    failure: Option<String>,
    out: Vec<u8>,
}

impl Appender {
    /// Fails if an earlier write or sync did: nobody knows what the medium holds.
    fn check(&self) -> Result<(), FileError> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(FileError::Poisoned {
                path: self.log.path().to_owned(),
                reason: reason.clone(),
            }),
        }
    }

    /// Remembers a failure for ever.
    fn keep(&mut self, result: Result<(), FileError>) -> Result<(), FileError> {
        if let Err(error) = &result {
            self.failure.get_or_insert_with(|| error.to_string());
        }
        result
    }

    /// Appends one block; where it starts and how long it is.
    fn block(
        &mut self,
        kind: BlockKind,
        extra_flags: u16,
        payload: &[u8],
        codec: Codec,
    ) -> Result<(u64, u32), FileError> {
        self.check()?;
        let order = if self.synced { 0 } else { flags::UNORDERED };
        self.out.clear();
        block::write(
            &mut self.out,
            kind,
            order | extra_flags,
            self.sequence,
            payload,
            codec,
        );
        let offset = self.log.len();
        let appended = self.log.append(&self.out);
        self.keep(appended)?;
        self.sequence += 1;
        self.synced = false;
        Ok((offset, self.out.len() as u32))
    }

    fn sync(&mut self) -> Result<(), FileError> {
        self.check()?;
        if !self.synced {
            let synced = self.log.sync();
            self.keep(synced)?;
            self.synced = true;
        }
        Ok(())
    }

    /// Appends a document in parts.
    fn document(&mut self, kind: BlockKind, json: &Json) -> Result<Document, FileError> {
        let text = json.to_string();
        let mut document = Document {
            length: text.len() as u64,
            ..Document::default()
        };
        for part in text.as_bytes().chunks(PART_LENGTH_MAX) {
            let flags = if document.parts == 0 { 0 } else { CONTINUES };
            let (offset, _) = self.block(kind, flags, part, Codec::Lz4)?;
            if document.parts == 0 {
                document.offset = offset;
            }
            document.parts += 1;
        }
        Ok(document)
    }

    /// Adds a chunk to the directory.
    fn add(&mut self, entry: Entry) -> Result<(), FileError> {
        if self.contents.levels.is_empty() {
            self.contents.levels.push(Vec::new());
        }
        self.contents.levels[0].push(entry);
        if self.contents.levels[0].len() >= ENTRIES_MAX {
            self.carry()?;
            self.root()?;
        }
        Ok(())
    }

    /// Writes full levels as directory blocks.
    fn carry(&mut self) -> Result<(), FileError> {
        let mut level = 0;
        while level < self.contents.levels.len() {
            while self.contents.levels[level].len() >= ENTRIES_MAX {
                let entries: Vec<Entry> =
                    self.contents.levels[level].drain(..ENTRIES_MAX).collect();
                let mut payload = Vec::new();
                write_level(level as u32, &entries, &mut payload);
                let (offset, length) = self.block(DIRECTORY, 0, &payload, Codec::None)?;
                if self.contents.levels.len() == level + 1 {
                    self.contents.levels.push(Vec::new());
                }
                self.contents.levels[level + 1].push(Entry::over(&entries, offset, length));
            }
            level += 1;
        }
        Ok(())
    }

    /// Makes everything durable and names it in a root.
    fn root(&mut self) -> Result<(), FileError> {
        self.sync()?;
        let mut payload = Vec::new();
        self.contents.write(&mut payload);
        let sequence = self.sequence;
        let (offset, _) = self.block(BlockKind::ROOT, 0, &payload, Codec::None)?;
        self.sync()?;
        let slot = self.slots.next(offset, sequence);
        let written = self.log.write_slot(&slot);
        self.keep(written)
    }
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
        assert!((1..=crate::chunk::OPERATIONS_MAX).contains(&options.chunk_length));
        let mut log = LogFile::create(path)?;
        log.append(&first_page(PURPOSE))?;
        let mut file = Appender {
            log,
            contents: Contents::default(),
            sequence: 0,
            slots: RootSlots::new(),
            synced: false,
            failure: None,
            out: Vec::new(),
        };
        file.contents.attributes = file.document(ATTRIBUTES, attributes)?;
        file.root()?;
        Ok(HistoryWriter {
            file,
            options,
            encoder: Encoder::default(),
            recent: Vec::new(),
            unflushed: 0,
            journal: Encoder::default(),
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

    /// Was nothing recorded yet?
    pub fn is_empty(&self) -> bool {
        self.position == 0
    }

    /// Takes one operation. In memory only, unless it completes a chunk; see [`HistoryWriter::flush`].
    pub fn push(&mut self, op: &Op) -> Result<(), WriteError> {
        if let Some(last) = self.last_index.filter(|&last| op.index <= last) {
            return Err(WriteError::Order {
                index: op.index,
                last,
            });
        }
        self.file.check()?;
        measure(op).map_err(|reason| WriteError::Operation {
            index: op.index,
            reason,
        })?;
        let invocation = self.open.follow(self.position, op);
        let pair = invocation.map_or(0, |invocation| self.position - invocation);
        self.encoder.push(op, pair);
        self.unflushed += 1;
        if self.unflushed <= JOURNAL_LENGTH_MAX {
            self.recent.push((op.clone(), pair));
        }
        self.position += 1;
        self.last_index = Some(op.index);
        let full = self.encoder.len() >= self.options.chunk_length;
        if full || self.encoder.bytes() >= CHUNK_BYTES_MAX {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Hands everything so far to the operating system, so that a kill of this process loses none of it.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.file.check()?;
        if self.unflushed == 0 {
            return Ok(());
        }
        if self.unflushed >= JOURNAL_LENGTH_MAX {
            return self.write_chunk();
        }
        let first = self.position - self.unflushed as u64;
        for (op, pair) in self.recent.drain(..) {
            self.journal.push(&op, pair);
        }
        // Whatever becomes of the write, these operations have had theirs.
        self.unflushed = 0;
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

    /// Writes the rest and the root that says that the history is complete.
    pub fn seal(mut self) -> Result<(), WriteError> {
        self.write_chunk()?;
        self.finished = true;
        self.file.contents.complete = true;
        Ok(self.file.root()?)
    }

    /// Writes the open chunk, which takes the place of the journal blocks since the one before.
    fn write_chunk(&mut self) -> Result<(), WriteError> {
        let count = self.encoder.len() as u64;
        self.recent.clear();
        self.unflushed = 0;
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
        self.file
            .add(Entry::of_chunk(&header, last_index, written.0, written.1))?;
        Ok(())
    }
}

#[cfg(test)]
impl HistoryWriter {
    /// As if the disk had refused the last write.
    pub(super) fn fail_from_now_on(&mut self) {
        self.file.failure = Some("a test says so".to_owned());
    }
}

/// A writer that is given up keeps what it has: the operations go to the journal.
impl Drop for HistoryWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left to be told of an error, and without this the file is readable all the same.
            let _ = self.flush();
        }
    }
}

/// Appends the results of one more analysis to a file that nobody is writing.
pub(super) fn append_results(path: &Path, results: &Json) -> Result<(), WriteError> {
    let mut log = LogFile::open(path)?;
    let Found {
        contents,
        end,
        sequence,
        slots,
        ..
    } = survey(&log, path)?;
    // Also makes durable what a killed writer had left unsynced.
    log.cut(end)?;
    let mut file = Appender {
        log,
        contents,
        sequence,
        slots,
        synced: true,
        failure: None,
        out: Vec::new(),
    };
    file.carry()?;
    let document = file.document(RESULTS_PART, results)?;
    let mut head = Vec::new();
    head.extend(file.contents.results.to_le_bytes());
    head.extend((file.contents.analyses + 1).to_le_bytes());
    document.write(&mut head);
    head.extend(results["valid"].to_string().into_bytes());
    let (offset, _) = file.block(RESULTS, 0, &head, Codec::None)?;
    file.contents.results = offset;
    file.contents.analyses += 1;
    Ok(file.root()?)
}
