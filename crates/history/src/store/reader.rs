//! Reads a test file lazily: only the blocks that are needed.

use super::block_kinds::{ATTRIBUTES, CHUNK, DIRECTORY, JOURNAL};
use super::directory::{DirectoryEntry, read_block as read_directory};
use super::documents::{Analysis, FileBlocks, ResultsHead};
use super::survey::{
    FileTail, OpenError, ReadableDisk, SurveyedFile, read_block, resume, survey, walk,
};
use super::torn_tail::{RepairedFile, repair};
use super::writer::{WriteError, append_results};
use crate::chunk::{Chunk, ChunkAddress, ChunkSummary};
use crate::history::UNPAIRED;
use crate::{History, Op, Take};
use seatrial_blocks::block::read_at;
use seatrial_blocks::codec::expand_taking;
use seatrial_blocks::file::ReadFile;
use seatrial_blocks::root::PAGE_LENGTH;
use seatrial_machine::{Disk, Storage};
use serde_json::Value as Json;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A test file open for reading: an immutable view of its contents at the time of opening, also while a test is writing it.
///
/// It holds the root, and reads directory and chunks on demand. Everything is validated when it is read. Nothing is cached:
/// each call reads and decodes what it needs.
#[derive(Debug)]
pub struct TestFile {
    /// Number of the file among those that this process opened.
    number: u64,
    /// Device and inode of the file.
    identity: Option<(u64, u64)>,
    path: PathBuf,
    disk: Box<dyn ReadableDisk>,
    found: SurveyedFile,
}

/// Device and inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn length_of(path: &Path) -> Option<u64> {
    Some(std::fs::metadata(path).ok()?.len())
}

/// Most operations of a history in memory.
const HISTORY_OPERATIONS_MAX: usize = u32::MAX as usize - 1;
/// Most list elements of a history in memory: 8 GiB.
const HISTORY_ELEMENTS_MAX: u64 = 1 << 30;

/// Memory for reading chunk after chunk, about 2 MB.
#[derive(Debug, Default)]
pub struct ChunkBuffer {
    pub(crate) scratch: ReadScratch,
    /// The chunk that was read last.
    pub chunk: Chunk,
    nodes: NodeCache,
}

/// Memory that is needed only while a chunk is read.
#[derive(Debug, Default)]
pub(crate) struct ReadScratch {
    stored: Vec<u8>,
    payload: Vec<u8>,
}

impl ChunkBuffer {
    /// The chunk that was read last.
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// The encoded bytes of the chunk that was read last.
    pub(super) fn payload(&self) -> &[u8] {
        self.chunk.bytes()
    }
}

impl FileBlocks<'_> {
    /// Reads the chunk of `entry`, with this number and first position.
    pub(super) fn chunk(
        &self,
        (number, position): (u64, u64),
        entry: &DirectoryEntry,
        buffer: &mut ChunkBuffer,
    ) -> Result<(), OpenError> {
        let wrong = |reason: String| OpenError::Chunk {
            path: self.path.to_owned(),
            chunk: number,
            offset: entry.offset,
            first: entry.indices.0,
            last: entry.indices.1,
            reason,
        };
        let ReadScratch { stored, payload } = &mut buffer.scratch;
        let header = read_at(self.disk, entry.offset, stored).map_err(wrong)?;
        if !matches!(header.kind, CHUNK | JOURNAL) {
            return Err(wrong("there is no chunk".into()));
        }
        expand_taking(&header, stored, payload).map_err(wrong)?;
        let chunk = &mut buffer.chunk;
        let read = chunk.read_owned(payload);
        read.map_err(|error| wrong(error.to_string()))?;
        let is_the_one = chunk.len() as u64 == entry.operations
            && chunk.first_position() == position
            && (chunk.index(0), chunk.index(chunk.len() - 1)) == entry.indices;
        if !is_the_one {
            return Err(wrong(
                "is not the chunk that the directory describes".into(),
            ));
        }
        Ok(())
    }
}

/// Totals of the directory before one of its entries.
#[derive(Clone, Copy, Default)]
struct Before {
    chunks: u64,
    operations: u64,
    /// Where the block of the last entry ends.
    end: u64,
}

impl Before {
    /// Skips the entries for which `is_before` holds, and returns the first other one.
    fn pass(
        &mut self,
        entries: &[DirectoryEntry],
        is_before: impl Fn(&Before, &DirectoryEntry) -> bool,
    ) -> Option<DirectoryEntry> {
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

/// The directory nodes that were read last, one per level. Part of each reader's buffer, so that threads share nothing.
#[derive(Debug, Default)]
pub(super) struct NodeCache(Vec<CachedNode>);

#[derive(Debug, Default)]
struct CachedNode {
    /// File number and offset.
    place: (u64, u64),
    entries: Vec<DirectoryEntry>,
}

/// Numbers the files that are opened, for [`NodeCache`].
static FILES: AtomicU64 = AtomicU64::new(1);

/// Attempts to open a file that changes meanwhile.
const OPEN_ATTEMPTS_MAX: u32 = 4;

/// A history that is being loaded into memory, with the pairs from its chunks.
#[derive(Default)]
pub(super) struct Gathered {
    ops: Vec<Op>,
    pairs: Vec<u32>,
    /// Runs of operations without gap: first position, place in `ops`.
    runs: Vec<(u64, usize)>,
    /// Completions whose invocation is missing.
    orphans: Vec<usize>,
    elements: u64,
}

impl Gathered {
    /// Adds the operations of a chunk of the file at `path`, which has `operations` in all.
    pub(super) fn add(
        &mut self,
        chunk: &Chunk,
        path: &Path,
        operations: u64,
    ) -> Result<(), OpenError> {
        self.elements += chunk.elements_read();
        let is_too_large = self.elements > HISTORY_ELEMENTS_MAX
            || self.ops.len() + chunk.len() > HISTORY_OPERATIONS_MAX;
        if is_too_large {
            return Err(OpenError::TooLarge {
                path: path.to_owned(),
                operations,
                elements: self.elements,
            });
        }
        let (position, first) = (chunk.first_position(), self.ops.len());
        let next = self.runs.last();
        let next = next.map(|&(start, place)| start + (first - place) as u64);
        if next != Some(position) {
            self.runs.push((position, first));
        }
        self.ops.extend(chunk.ops());
        self.pairs.resize(self.ops.len(), UNPAIRED);
        for place in 0..chunk.len() {
            let Some(invocation) = chunk.invocation(place) else {
                continue;
            };
            match self.place(invocation) {
                Some(other) if self.pairs[other] == UNPAIRED => {
                    self.pairs[other] = (first + place) as u32;
                    self.pairs[first + place] = other as u32;
                }
                Some(_) => {}
                None => self.orphans.push(first + place),
            }
        }
        assert_eq!(self.pairs.len(), self.ops.len());
        debug_assert!(
            self.orphans.is_sorted_by(|one, next| one < next),
            "a completion is an orphan twice"
        );
        Ok(())
    }

    /// The place of the operation at a position, if it is loaded.
    fn place(&self, position: u64) -> Option<usize> {
        let after = self.runs.partition_point(|&(start, _)| start <= position);
        let (start, place) = *self.runs.get(after.checked_sub(1)?)?;
        let end = self.runs.get(after).map_or(self.ops.len(), |run| run.1);
        let found = place + usize::try_from(position - start).ok()?;
        (found < end).then_some(found)
    }

    pub(super) fn history(self) -> History {
        History::with_pairs(self.ops, self.pairs)
    }

    /// The history without completions whose invocation is missing, and the number of these.
    pub(super) fn without_orphans(mut self) -> (History, usize) {
        let mut orphans = self.orphans.iter().copied().peekable();
        let mut moved = Vec::with_capacity(self.ops.len());
        let mut kept = 0;
        for place in 0..self.ops.len() {
            let is_orphan = orphans.next_if_eq(&place).is_some();
            moved.push(if is_orphan { UNPAIRED } else { kept });
            kept += u32::from(!is_orphan);
        }
        let mut place = 0;
        self.ops.retain(|_| {
            place += 1;
            moved[place - 1] != UNPAIRED
        });
        let pairs = self.pairs.iter().zip(&moved);
        let pairs = pairs.filter(|&(_, &place)| place != UNPAIRED);
        let pairs = pairs.map(|(&other, _)| match moved.get(other as usize) {
            Some(&place) => place,
            None => UNPAIRED,
        });
        let history = History::with_pairs(self.ops, pairs.collect());
        assert_eq!(history.len(), kept as usize);
        (history, self.orphans.len())
    }
}

impl Before {
    /// The summary of the chunk of `entry`; then skips the entry.
    fn summary(&mut self, entry: &DirectoryEntry) -> ChunkSummary {
        let summary = ChunkSummary {
            number: self.chunks,
            first_position: self.operations,
            operations: entry.operations,
            first_index: entry.indices.0,
            last_index: entry.indices.1,
            time_min: entry.times.0,
            time_max: entry.times.1,
            ok: entry.counts[0],
            fail: entry.counts[1],
            info: entry.counts[2],
        };
        self.pass(std::slice::from_ref(entry), |_, _| true);
        summary
    }
}

impl TestFile {
    /// Opens `path`: reads the first page, the newest root, and the blocks after it.
    pub fn open(path: &Path) -> Result<TestFile, OpenError> {
        let mut attempts = 1;
        loop {
            let disk = ReadFile::open(path)?;
            let length = disk.len();
            match TestFile::on(Box::new(disk), path) {
                // The file changed while it was read: another process repaired it or appended to it.
                Err(_) if attempts < OPEN_ATTEMPTS_MAX && length_of(path) != Some(length) => {
                    attempts += 1;
                }
                result => return result,
            }
        }
    }

    /// [`TestFile::open`] on any storage, without a concurrent writer.
    pub(super) fn open_on(storage: &dyn Storage, path: &Path) -> Result<TestFile, OpenError> {
        TestFile::on(Box::new(ReadFile::open_on(storage, path)?), path)
    }

    /// Opens the file on `disk`; `path` is its name in errors.
    pub(super) fn on(disk: Box<dyn ReadableDisk>, path: &Path) -> Result<TestFile, OpenError> {
        let found = survey(&*disk, path)?;
        Ok(TestFile {
            number: FILES.fetch_add(1, Ordering::Relaxed),
            identity: identity(path),
            path: path.to_owned(),
            disk,
            found,
        })
    }

    /// Updates the view with blocks that were appended since it was opened or refreshed, reading only these; returns whether
    /// there were any. Chunk numbers and positions are stable, except that a chunk replaces the short ones (journal blocks) at
    /// the end.
    ///
    /// A file that was replaced (by [`repack`](crate::repack)) is opened again.
    pub fn refresh(&mut self) -> Result<bool, OpenError> {
        let disk = ReadFile::open(&self.path)?;
        let is_same = identity(&self.path) == self.identity && disk.len() >= self.found.end;
        if is_same && disk.len() == self.disk.len() && self.found.tail.is_none() {
            return Ok(false);
        }
        let before = (self.found.end, self.found.sequence);
        let resumed = is_same.then(|| resume(&disk, &self.path, self.found.clone()));
        if let Some(Ok(found)) = resumed {
            self.found = found;
            self.disk = Box::new(disk);
            return Ok((self.found.end, self.found.sequence) != before);
        }
        *self = TestFile::open(&self.path)?;
        Ok(true)
    }

    /// Appends the results of one more analysis to the file at `path`, which no process may be writing. Their member `valid` can
    /// be read without the rest ([`TestFile::validity`]). Fails if the file has a torn end ([`TestFile::repair`]): this call
    /// never shortens a file.
    pub fn append_results(path: &Path, results: &Json) -> Result<(), WriteError> {
        append_results(path, results)
    }

    /// Removes a torn end from the file at `path`, which no process may be writing, after copying the removed bytes to a second
    /// file. `None` if the file has no torn end. The only call that ever shortens a test file.
    pub fn repair(path: &Path) -> Result<Option<RepairedFile>, WriteError> {
        repair(path)
    }

    /// Number of operations.
    pub const fn len(&self) -> u64 {
        self.found.contents.operations
    }

    /// Is there no operation?
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Did its writer seal it? If not, the test is still running or was killed.
    pub const fn is_complete(&self) -> bool {
        self.found.contents.complete
    }

    /// The end of the file, if it is not a root.
    pub const fn tail(&self) -> Option<FileTail> {
        self.found.tail
    }

    /// Number of analyses with results.
    pub const fn analyses(&self) -> u64 {
        self.found.contents.analyses
    }

    /// Chunks in the history.
    pub fn chunk_count(&self) -> u64 {
        let entries = self.found.contents.levels.iter().flatten();
        entries.map(|entry| u64::from(entry.chunks)).sum()
    }

    /// The attributes: name, options and start of the test.
    pub fn attributes(&self) -> Result<Json, OpenError> {
        if self.found.contents.attributes.offset == 0 {
            return Err(OpenError::Empty(self.path.clone()));
        }
        let attributes = self.found.contents.attributes;
        self.blocks().json(attributes, ATTRIBUTES)
    }

    /// The member `valid` of the newest results, without reading the rest of them; `None` when there are none.
    pub fn validity(&self) -> Result<Option<Json>, OpenError> {
        let newest = self.heads().next().transpose()?;
        let valid = newest.map(|(offset, head)| self.blocks().parse(offset, &head.validity));
        valid.transpose()
    }

    /// Number and validity of each analysis, the newest first, without reading their results.
    pub fn validities(&self) -> impl Iterator<Item = Result<Analysis, OpenError>> {
        self.heads().map(|head| {
            let (offset, head) = head?;
            let valid = self.blocks().parse(offset, &head.validity)?;
            let number = head.number;
            Ok(Analysis { number, valid })
        })
    }

    /// The newest results; `None` when there are none.
    pub fn results(&self) -> Result<Option<Json>, OpenError> {
        let newest = self.heads().next().transpose()?;
        let results = newest.map(|(_, head)| self.blocks().results(&head));
        results.transpose()
    }

    /// The results of analysis `number`, from 1 to [`TestFile::analyses`]; `None` if it does not exist.
    pub fn results_of(&self, number: u64) -> Result<Option<Json>, OpenError> {
        for head in self.heads() {
            let (_, head) = head?;
            if head.number <= number {
                let is_it = head.number == number;
                let results = is_it.then(|| self.blocks().results(&head));
                return results.transpose();
            }
        }
        Ok(None)
    }

    /// The heads of all results, the newest first.
    pub(super) fn heads(&self) -> impl Iterator<Item = Result<(u64, ResultsHead), OpenError>> {
        let blocks = self.blocks();
        let newest = self.found.contents.results;
        blocks.heads(newest)
    }

    pub(super) fn blocks(&self) -> FileBlocks<'_> {
        FileBlocks {
            disk: &*self.disk,
            path: &self.path,
        }
    }

    fn wrong(&self, offset: u64, reason: String) -> OpenError {
        OpenError::Block {
            path: self.path.clone(),
            offset,
            reason,
        }
    }

    /// Finds the first chunk for which `is_before` is false. `is_before` is also called for entries of many chunks, with the
    /// totals before them.
    fn find(
        &self,
        nodes: &mut NodeCache,
        is_before: impl Fn(&Before, &DirectoryEntry) -> bool,
    ) -> Result<Option<(Before, DirectoryEntry)>, OpenError> {
        let mut before = Before::default();
        for (level, entries) in self.found.contents.levels.iter().enumerate().rev() {
            let Some(mut entry) = before.pass(entries, &is_before) else {
                continue;
            };
            for below in (0..level as u32).rev() {
                if entry.chunks == 1 {
                    break;
                }
                let entries = self.node(&before, &entry, below, nodes)?;
                let Some(next) = before.pass(entries, &is_before) else {
                    let reason = "its entries do not add up to what is said of it".into();
                    return Err(self.wrong(entry.offset, reason));
                };
                entry = next;
            }
            return Ok(Some((before, entry)));
        }
        Ok(None)
    }

    /// The entries of the directory block of `entry`, cached if it was the last one read at its level.
    fn node<'a>(
        &self,
        before: &Before,
        entry: &DirectoryEntry,
        level: u32,
        nodes: &'a mut NodeCache,
    ) -> Result<&'a [DirectoryEntry], OpenError> {
        let (level, place) = (level as usize, (self.number, entry.offset));
        if nodes.0.len() <= level {
            nodes.0.resize_with(level + 1, CachedNode::default);
        }
        let node = &mut nodes.0[level];
        if node.place != place {
            node.entries = self.read_node(before, entry, level as u32)?;
            node.place = place;
        }
        Ok(&node.entries)
    }

    /// Reads a node of the directory. If it is damaged, rebuilds it from the chunks before it.
    fn read_node(
        &self,
        before: &Before,
        entry: &DirectoryEntry,
        level: u32,
    ) -> Result<Vec<DirectoryEntry>, OpenError> {
        let read = read_block(&*self.disk, &self.path, entry.offset, DIRECTORY);
        let damage = match read {
            Ok((_, payload)) => match read_directory(&payload, level) {
                Ok(entries) => return Ok(entries),
                Err(reason) => self.wrong(entry.offset, reason),
            },
            Err(error) => error,
        };
        let from = before.end.max(PAGE_LENGTH as u64);
        let stretch = (from, entry.offset);
        let walked = walk(&*self.disk, &self.path, stretch, before.operations)?;
        let is_whole = !walked.is_empty()
            && DirectoryEntry::over(&walked, entry.offset, entry.length) == *entry;
        if is_whole { Ok(walked) } else { Err(damage) }
    }

    /// The chunk with this number, from 0; `None` past the last one.
    pub fn chunk(&self, number: u64) -> Result<Option<Chunk>, OpenError> {
        let mut buffer = ChunkBuffer::default();
        let is_there = self.read_chunk(number, &mut buffer)?.is_some();
        Ok(is_there.then_some(buffer.chunk))
    }

    /// [`TestFile::chunk`] into reused memory: several times as fast for a pass over all chunks.
    pub fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, OpenError> {
        let is_before = |before: &Before, entry: &DirectoryEntry| {
            before.chunks + u64::from(entry.chunks) <= number
        };
        let found = self.find(&mut buffer.nodes, is_before)?;
        let Some((before, entry)) = found else {
            return Ok(None);
        };
        self.decode(&before, &entry, buffer)?;
        Ok(Some(&buffer.chunk))
    }

    /// The operation with this index; `None` if there is none.
    pub fn operation(&self, index: u64) -> Result<Option<Op>, OpenError> {
        let mut buffer = ChunkBuffer::default();
        let found = self.find(&mut buffer.nodes, |_, entry| entry.indices.1 < index)?;
        let Some((before, entry)) = found else {
            return Ok(None);
        };
        self.decode(&before, &entry, &mut buffer)?;
        let chunk = &buffer.chunk;
        Ok(chunk.place(index).map(|place| chunk.op(place)))
    }

    /// The summary of the chunk with this number, from 0; `None` past the last one. Reads only the directory.
    pub fn chunk_summary(&self, number: u64) -> Result<Option<ChunkSummary>, OpenError> {
        let stretch = self.chunk_summaries(ChunkAddress::Chunk(number))?;
        Ok(stretch.into_iter().find(|summary| summary.number == number))
    }

    /// The summaries of the chunk at `place` and of its neighbours in the same directory block, up to 256 or as many as are in
    /// none yet; empty if there is no such chunk. Reads only the directory.
    pub fn chunk_summaries(&self, place: ChunkAddress) -> Result<Vec<ChunkSummary>, OpenError> {
        let is_before = |before: &Before, entry: &DirectoryEntry| match place {
            ChunkAddress::Chunk(number) => before.chunks + u64::from(entry.chunks) <= number,
            ChunkAddress::Position(at) => before.operations.saturating_add(entry.operations) <= at,
            ChunkAddress::Index(index) => entry.indices.1 < index,
        };
        let (mut before, mut nodes) = (Before::default(), NodeCache::default());
        for (level, entries) in self.found.contents.levels.iter().enumerate().rev() {
            let mut start = before;
            let Some(mut entry) = before.pass(entries, is_before) else {
                continue;
            };
            let mut stretch = &entries[..];
            let mut lowest = level as u32;
            for below in (0..level as u32).rev() {
                if entry.chunks == 1 {
                    break;
                }
                start = before;
                let entries = self.node(&before, &entry, below, &mut nodes)?;
                let Some(next) = before.pass(entries, is_before) else {
                    let reason = "its entries do not add up to what is said of it".into();
                    return Err(self.wrong(entry.offset, reason));
                };
                entry = next;
                lowest = below;
            }
            if lowest < level as u32 {
                stretch = &nodes.0[lowest as usize].entries;
            }
            return Ok(stretch.iter().map(|entry| start.summary(entry)).collect());
        }
        Ok(Vec::new())
    }

    /// Calls `take` with the operations from `position` on, chunk by chunk, up to the chunk at which it breaks, or to the end of
    /// what the file was when it was last looked at. A long chunk repeats the short ones that were written before it: each
    /// operation is passed once.
    pub fn round_from(
        &self,
        mut position: u64,
        buffer: &mut ChunkBuffer,
        take: &mut Take<'_>,
    ) -> Result<(), OpenError> {
        while position < self.len() {
            let first = position;
            let found = self.chunk_summaries(ChunkAddress::Position(first))?;
            for summary in found.iter().filter(|one| one.end_position() > first) {
                let Some(chunk) = self.read_chunk(summary.number, buffer)? else {
                    return Ok(());
                };
                let known = position.saturating_sub(summary.first_position) as usize;
                let rest = (known > 0).then(|| chunk.after(known));
                position = summary.end_position();
                if take(rest.as_ref().unwrap_or(chunk)).is_break() {
                    return Ok(());
                }
            }
            if position == first {
                break;
            }
        }
        Ok(())
    }

    fn decode(
        &self,
        before: &Before,
        entry: &DirectoryEntry,
        buffer: &mut ChunkBuffer,
    ) -> Result<(), OpenError> {
        let place = (before.chunks, before.operations);
        self.blocks().chunk(place, entry, buffer)
    }

    /// Iterates over all chunks in order, decoding each on demand.
    pub fn chunks(&self) -> impl Iterator<Item = Result<Chunk, OpenError>> {
        (0..self.chunk_count()).map_while(|number| self.chunk(number).transpose())
    }

    /// Loads the whole history into memory: about 100 bytes per operation, plus its values. Lists are not shared in memory, so a
    /// small file may be too large for this.
    pub fn history(&self) -> Result<History, OpenError> {
        let mut gathered = Gathered::default();
        let mut buffer = ChunkBuffer::default();
        for number in 0..self.chunk_count() {
            if let Some(chunk) = self.read_chunk(number, &mut buffer)? {
                gathered.add(chunk, &self.path, self.len())?;
            }
        }
        Ok(gathered.history())
    }

    /// Bytes of the file when it was opened.
    pub fn file_length(&self) -> u64 {
        self.disk.len()
    }
}
