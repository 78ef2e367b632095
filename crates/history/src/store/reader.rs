//! Reading a test file, no more of it than is asked for.

use super::block::{
    ATTRIBUTES, CHUNK, DIRECTORY, JOURNAL, PART_LENGTH_MAX, RESULTS, RESULTS_PART, expand,
    expand_into,
};
use super::directory::{Contents, Document, Entry, read_block as read_directory};
use super::file::{OpenError, Tail, read_block, read_stored, survey, walk};
use super::writer::{WriteError, append_results};
use crate::chunk::Chunk;
use crate::{History, Op};
use seatrial_archive::Walker;
use seatrial_archive::file::ReadFile;
use seatrial_archive::root::PAGE_LENGTH;
use seatrial_machine::Disk;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// A test file open for reading: an immutable view of what was in it when it was opened, also while a test still
/// writes it.
///
/// It holds the root and touches directory and chunks only when asked. Everything read is checked. Its downside: nothing
/// is cached, each call reads and decodes what it needs.
#[derive(Debug)]
pub struct TestFile {
    path: PathBuf,
    disk: ReadFile,
    contents: Contents,
    tail: Option<Tail>,
}

/// Most operations of a history in memory.
const HISTORY_OPERATIONS_MAX: usize = u32::MAX as usize - 1;
/// Most list elements of a history in memory: 8 GiB.
const HISTORY_ELEMENTS_MAX: u64 = 1 << 30;

/// Memory for reading chunk after chunk: kept from one to the next, about 2 MB.
#[derive(Debug, Default)]
pub struct ChunkBuffer {
    stored: Vec<u8>,
    payload: Vec<u8>,
    pub(crate) chunk: Chunk,
}

/// What the directory has before a place in it.
#[derive(Clone, Copy, Default)]
struct Before {
    chunks: u64,
    operations: u64,
    /// Where the block of the last entry ends.
    end: u64,
}

impl Before {
    /// Steps over the entries that are before what is looked for, to the first that is not.
    fn pass(
        &mut self,
        entries: &[Entry],
        is_before: impl Fn(&Before, &Entry) -> bool,
    ) -> Option<Entry> {
        for entry in entries {
            if !is_before(self, entry) {
                return Some(*entry);
            }
            self.chunks += u64::from(entry.chunks);
            self.operations = self.operations.saturating_add(entry.operations);
            self.end = entry.offset.saturating_add(u64::from(entry.length));
        }
        None
    }
}

/// Bytes of a results head before its validity.
const HEAD_LENGTH: usize = 16 + Document::LENGTH;

impl TestFile {
    /// Opens `path`. Reads the first page, the newest root, and what was written behind it.
    pub fn open(path: &Path) -> Result<TestFile, OpenError> {
        let disk = ReadFile::open(path)?;
        let found = survey(&disk, path)?;
        Ok(TestFile {
            path: path.to_owned(),
            disk,
            contents: found.contents,
            tail: found.tail,
        })
    }

    /// Appends the results of one more analysis to the file at `path`, which nobody may be writing. Their member `valid` can
    /// be read without the rest ([`TestFile::validity`]).
    pub fn append_results(path: &Path, results: &Json) -> Result<(), WriteError> {
        append_results(path, results)
    }

    /// Operations in the history.
    pub const fn len(&self) -> u64 {
        self.contents.operations
    }

    /// Is there no operation?
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Did its writer seal it? If not, the test is still running or was killed.
    pub const fn is_complete(&self) -> bool {
        self.contents.complete
    }

    /// How the file ends, if not with a root.
    pub const fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// How many analyses have left results.
    pub const fn analyses(&self) -> u64 {
        self.contents.analyses
    }

    /// Chunks in the history.
    pub fn chunk_count(&self) -> u64 {
        let entries = self.contents.levels.iter().flatten();
        entries.map(|entry| u64::from(entry.chunks)).sum()
    }

    /// What the test was.
    pub fn attributes(&self) -> Result<Json, OpenError> {
        if self.contents.attributes.offset == 0 {
            return Err(OpenError::Empty(self.path.clone()));
        }
        self.document(self.contents.attributes, ATTRIBUTES)
    }

    /// The member `valid` of the newest results; `None` when there are none.
    pub fn validity(&self) -> Result<Option<Json>, OpenError> {
        let Some((_, text)) = self.results_head()? else {
            return Ok(None);
        };
        let parsed = serde_json::from_slice(&text);
        parsed
            .map(Some)
            .map_err(|error| self.wrong(self.contents.results, error.to_string()))
    }

    /// The newest results; `None` when there are none.
    pub fn results(&self) -> Result<Option<Json>, OpenError> {
        match self.results_head()? {
            Some((document, _)) => self.document(document, RESULTS_PART).map(Some),
            None => Ok(None),
        }
    }

    fn results_head(&self) -> Result<Option<(Document, Vec<u8>)>, OpenError> {
        let offset = self.contents.results;
        if offset == 0 {
            return Ok(None);
        }
        let (_, mut payload) = read_block(&self.disk, &self.path, offset, RESULTS)?;
        if payload.len() < HEAD_LENGTH {
            let reason = format!("a results head of {} bytes", payload.len());
            return Err(self.wrong(offset, reason));
        }
        let validity = payload.split_off(HEAD_LENGTH);
        Ok(Some((Document::read(&payload[16..]), validity)))
    }

    fn wrong(&self, offset: u64, reason: String) -> OpenError {
        OpenError::Block {
            path: self.path.clone(),
            offset,
            reason,
        }
    }

    /// Reads a document; its memory grows with what is there, not with what it claims.
    fn document(
        &self,
        document: Document,
        kind: seatrial_archive::BlockKind,
    ) -> Result<Json, OpenError> {
        let mut text = Vec::new();
        let mut walker = Walker::new(&self.disk, document.offset);
        for _ in 0..document.parts {
            let block = walker.next_block();
            let block = block.map_err(|source| OpenError::Damaged {
                path: self.path.clone(),
                source,
            })?;
            let Some(block) = block.filter(|block| block.header.kind == kind) else {
                return Err(self.wrong(document.offset, "a part of the document is missing".into()));
            };
            let part = expand(&block.header, block.payload);
            let part = part.map_err(|reason| self.wrong(block.offset, reason))?;
            if part.len() > PART_LENGTH_MAX {
                return Err(self.wrong(block.offset, format!("a part of {} bytes", part.len())));
            }
            text.extend_from_slice(&part);
        }
        if text.len() as u64 != document.length {
            let reason = format!(
                "a document of {} bytes, not {}",
                text.len(),
                document.length
            );
            return Err(self.wrong(document.offset, reason));
        }
        serde_json::from_slice(&text)
            .map_err(|error| self.wrong(document.offset, format!("not JSON: {error}")))
    }

    /// The first chunk for which `is_before` is false. `is_before` is asked of entries over many chunks too, with what is
    /// before them.
    fn find(
        &self,
        is_before: impl Fn(&Before, &Entry) -> bool,
    ) -> Result<Option<(Before, Entry)>, OpenError> {
        let mut before = Before::default();
        for (level, entries) in self.contents.levels.iter().enumerate().rev() {
            let Some(mut entry) = before.pass(entries, &is_before) else {
                continue;
            };
            for below in (0..level as u32).rev() {
                if entry.chunks == 1 {
                    break;
                }
                let entries = self.node(&before, &entry, below)?;
                let Some(next) = before.pass(&entries, &is_before) else {
                    let reason = "its entries do not add up to what is said of it".into();
                    return Err(self.wrong(entry.offset, reason));
                };
                entry = next;
            }
            return Ok(Some((before, entry)));
        }
        Ok(None)
    }

    /// The entries of the directory block that `entry` describes; if it is damaged, those of the chunks in front of it.
    fn node(&self, before: &Before, entry: &Entry, level: u32) -> Result<Vec<Entry>, OpenError> {
        let read = read_block(&self.disk, &self.path, entry.offset, DIRECTORY);
        let damage = match read {
            Ok((_, payload)) => match read_directory(&payload, level) {
                Ok(entries) => return Ok(entries),
                Err(reason) => self.wrong(entry.offset, reason),
            },
            Err(error) => error,
        };
        let from = before.end.max(PAGE_LENGTH as u64);
        let stretch = (from, entry.offset);
        let walked = walk(&self.disk, &self.path, stretch, before.operations)?;
        let is_whole =
            !walked.is_empty() && Entry::over(&walked, entry.offset, entry.length) == *entry;
        if is_whole { Ok(walked) } else { Err(damage) }
    }

    /// The chunk with this number, from 0; `None` behind the last one.
    pub fn chunk(&self, number: u64) -> Result<Option<Chunk>, OpenError> {
        let mut buffer = ChunkBuffer::default();
        let is_there = self.read_chunk(number, &mut buffer)?.is_some();
        Ok(is_there.then_some(buffer.chunk))
    }

    /// The same, into memory that is used again: several times as fast for those who go through all chunks.
    pub fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, OpenError> {
        let found = self.find(|before, entry| before.chunks + u64::from(entry.chunks) <= number)?;
        let Some((before, entry)) = found else {
            return Ok(None);
        };
        self.decode(&before, &entry, buffer)?;
        Ok(Some(&buffer.chunk))
    }

    /// The operation with this index; `None` when there is none.
    pub fn operation(&self, index: u64) -> Result<Option<Op>, OpenError> {
        let Some((before, entry)) = self.find(|_, entry| entry.indices.1 < index)? else {
            return Ok(None);
        };
        let mut buffer = ChunkBuffer::default();
        self.decode(&before, &entry, &mut buffer)?;
        let chunk = &buffer.chunk;
        Ok(chunk.place(index).map(|place| chunk.op(place)))
    }

    fn decode(
        &self,
        before: &Before,
        entry: &Entry,
        buffer: &mut ChunkBuffer,
    ) -> Result<(), OpenError> {
        let wrong = |reason: String| OpenError::Chunk {
            path: self.path.clone(),
            chunk: before.chunks,
            offset: entry.offset,
            first: entry.indices.0,
            last: entry.indices.1,
            reason,
        };
        let header = read_stored(&self.disk, entry.offset, &mut buffer.stored).map_err(wrong)?;
        if !matches!(header.kind, CHUNK | JOURNAL) {
            return Err(wrong("there is no chunk".into()));
        }
        expand_into(&header, &buffer.stored, &mut buffer.payload).map_err(wrong)?;
        let chunk = &mut buffer.chunk;
        let read = chunk.read(&buffer.payload);
        read.map_err(|error| wrong(error.to_string()))?;
        let is_the_one = chunk.len() as u64 == entry.operations
            && chunk.first_position() == before.operations
            && (chunk.index(0), chunk.index(chunk.len() - 1)) == entry.indices;
        if !is_the_one {
            return Err(wrong(
                "is not the chunk that the directory describes".into(),
            ));
        }
        Ok(())
    }

    /// All chunks in order, each decoded when it is asked for.
    pub fn chunks(&self) -> impl Iterator<Item = Result<Chunk, OpenError>> {
        (0..self.chunk_count()).map_while(|number| self.chunk(number).transpose())
    }

    /// The whole history in memory, about 100 bytes per operation and what its values take. Lists share nothing there,
    /// so a file may be too large for this that is small on disk.
    pub fn history(&self) -> Result<History, OpenError> {
        let mut ops = Vec::new();
        let mut buffer = ChunkBuffer::default();
        let mut elements = 0;
        for number in 0..self.chunk_count() {
            if let Some(chunk) = self.read_chunk(number, &mut buffer)? {
                elements += chunk.elements_read();
                let is_too_large = elements > HISTORY_ELEMENTS_MAX
                    || ops.len() + chunk.len() > HISTORY_OPERATIONS_MAX;
                if is_too_large {
                    return Err(OpenError::TooLarge {
                        path: self.path.clone(),
                        operations: self.len(),
                        elements,
                    });
                }
                ops.extend(chunk.ops());
            }
        }
        Ok(History::from_ops(ops))
    }

    /// Bytes of the file when it was opened.
    pub fn file_length(&self) -> u64 {
        self.disk.len()
    }
}
