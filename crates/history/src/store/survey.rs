//! Opens a test file for writer and reader: finds its newest root and live contents.

use super::PURPOSE;
use super::block_kinds::{ATTRIBUTES, CHUNK, CONTINUES, JOURNAL, RESULTS, long};
use super::directory::{DirectoryEntry, Document, RootContents};
use crate::chunk::Chunk;
use seatrial_blocks::block::read_at;
use seatrial_blocks::codec::{expand, expand_into};
use seatrial_blocks::root::{self, PAGE_LENGTH, RootSlots};
use seatrial_blocks::{Block, BlockFileError, BlockHeader, BlockKind, Torn, WalkError, Walker};
use seatrial_machine::{Disk, counted};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// Why a test file, or a part of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system cannot open or read the file.
    #[error(transparent)]
    File(#[from] BlockFileError),
    /// It is not a test file.
    #[error("{}: {cause}", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: root::RootError,
    },
    /// A block is damaged, or the system cannot read it.
    #[error("{}: {cause}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What and where.
        cause: WalkError,
    },
    /// A block with a valid checksum has invalid contents.
    #[error("{}: block at {offset}: {reason}", path.display())]
    Block {
        /// The file.
        path: PathBuf,
        /// Where the block starts.
        offset: u64,
        /// Why.
        reason: String,
    },
    /// A chunk cannot be read; the others can.
    #[error(
        "{}: chunk {chunk} at {offset} (operations {first} to {last}): {reason}",
        path.display()
    )]
    Chunk {
        /// The file.
        path: PathBuf,
        /// Which chunk, from 0.
        chunk: u64,
        /// Where its block starts.
        offset: u64,
        /// Index of its first operation.
        first: u64,
        /// Index of its last one.
        last: u64,
        /// Why.
        reason: String,
    },
    /// The file has lost its end: its first page, which is written after each root, names a root past the end.
    #[error(
        "{}: ends at {length}, but its newest root was at {root}",
        path.display()
    )]
    Shortened {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        length: u64,
        /// Where its newest root was.
        root: u64,
    },
    /// The history does not fit in memory; fold over the file instead.
    #[error(
        "{}: a history of {operations} operations, whose lists have {elements} elements and more, is too large for \
         memory",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Operations in the file.
        operations: u64,
        /// List elements loaded when the limit was reached.
        elements: u64,
    },
    /// The file ends before its attributes: its writer stopped right after creating it.
    #[error("{}: ends before its attributes", .0.display())]
    Empty(PathBuf),
}

/// End of a file that does not end with a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTail {
    /// At the end of a block: its writer was killed, or is still running.
    Open,
    /// In the middle of a write.
    Torn(Torn),
}

/// The live contents of a file, and its end.
#[derive(Clone, Debug)]
pub(super) struct SurveyedFile {
    pub(super) contents: RootContents,
    /// Offset and sequence number of the next block.
    pub(super) end: u64,
    pub(super) sequence: u64,
    pub(super) slots: RootSlots,
    /// `None` if the file ends with its newest root.
    pub(super) tail: Option<FileTail>,
    /// Number of journal blocks among the last entries, which the next chunk replaces.
    pub(super) journal: usize,
}

/// A readable disk: a file, or bytes in memory.
pub(super) trait ReadableDisk: Disk + Debug + Send + Sync {}

impl<D: Disk + Debug + Send + Sync> ReadableDisk for D {}

/// Collects the live contents from the blocks after a root.
struct Survey<'a> {
    path: &'a Path,
    contents: RootContents,
    /// Does a further root replace the contents found so far?
    follows_roots: bool,
    /// Journal blocks since the last chunk.
    journal: Vec<DirectoryEntry>,
    /// Operations in chunks.
    sealed: u64,
    /// Operations in the journal.
    journaled: u64,
    payload: Vec<u8>,
    chunk: Chunk,
}

/// Finds the live contents of a file: reads the newest root, then walks the blocks after it.
pub(super) fn survey(disk: &dyn Disk, path: &Path) -> Result<SurveyedFile, OpenError> {
    let wrong = |cause| OpenError::Root {
        path: path.to_owned(),
        cause,
    };
    let hint = root::hint(disk, PURPOSE).map_err(wrong)?;
    if let Some((root, _)) = hint.filter(|(root, _)| *root >= disk.len()) {
        return Err(OpenError::Shortened {
            path: path.to_owned(),
            length: disk.len(),
            root,
        });
    }
    let found = root::newest(disk, PURPOSE).map_err(wrong)?;
    if let Some((offset, sequence)) = hint
        && found.is_none_or(|root| root.header.sequence < sequence)
    {
        return Err(hinted_root_lost(disk, path, offset));
    }
    let mut start = SurveyedFile {
        contents: RootContents::default(),
        end: PAGE_LENGTH as u64,
        sequence: 0,
        slots: RootSlots::new(),
        tail: None,
        journal: 0,
    };
    if let Some(root) = found {
        let payload = read_block(disk, path, root.offset, BlockKind::ROOT)?.1;
        start.contents = RootContents::read(&payload).map_err(|reason| OpenError::Block {
            path: path.to_owned(),
            offset: root.offset,
            reason,
        })?;
        start.end = root.offset + root.header.block_length();
        start.sequence = root.header.sequence.wrapping_add(1);
        start.slots = root.slots;
    }
    resume(disk, path, start)
}

/// The error about the root at `offset`, which the first page names and which is not valid. A slot is written only after its
/// root is durable, so falling back to an older root would silently drop everything after that.
fn hinted_root_lost(disk: &dyn Disk, path: &Path, offset: u64) -> OpenError {
    let reason = match read_block(disk, path, offset, BlockKind::ROOT) {
        Err(OpenError::Block { reason, .. }) => reason,
        Err(error) => return error,
        Ok((header, _)) => format!("has sequence number {}", header.sequence),
    };
    OpenError::Block {
        path: path.to_owned(),
        offset,
        reason: format!("the newest root, which the first page names, is not whole: {reason}"),
    }
}

/// Continues an earlier survey at the end of the file that it found.
pub(super) fn resume(
    disk: &dyn Disk,
    path: &Path,
    before: SurveyedFile,
) -> Result<SurveyedFile, OpenError> {
    let mut walker = Walker::new(disk, before.end).expecting(before.sequence);
    let mut survey = Survey::new(path, before.contents, before.journal);
    survey.follows_roots = true;
    // The torn end of the earlier survey may have been completed or cut off since.
    let mut tail = before.tail.filter(|tail| *tail == FileTail::Open);
    loop {
        match walker.next_block() {
            Ok(Some(block)) => {
                let is_root = block.header.kind == BlockKind::ROOT;
                tail = (!is_root).then_some(FileTail::Open);
                survey.block(&block)?;
            }
            Ok(None) => break,
            Err(WalkError::Torn(torn)) => {
                tail = Some(FileTail::Torn(torn));
                break;
            }
            Err(cause) => {
                return Err(OpenError::Damaged {
                    path: path.to_owned(),
                    cause,
                });
            }
        }
    }
    let (end, sequence) = (walker.offset(), walker.next_sequence());
    let journal = survey.journal.len();
    Ok(SurveyedFile {
        contents: survey.finish(),
        end,
        sequence,
        slots: before.slots,
        tail,
        journal,
    })
}

/// Finds the entries of all chunks between two offsets by walking the blocks; `position` operations precede them.
pub(super) fn walk(
    disk: &dyn Disk,
    path: &Path,
    (from, to): (u64, u64),
    position: u64,
) -> Result<Vec<DirectoryEntry>, OpenError> {
    let contents = RootContents {
        operations: position,
        ..RootContents::default()
    };
    let mut survey = Survey::new(path, contents, 0);
    let mut walker = Walker::new(disk, from);
    while walker.offset() < to {
        match walker.next_block() {
            Ok(Some(block)) => survey.block(&block)?,
            Ok(None) => break,
            Err(cause) => {
                return Err(OpenError::Damaged {
                    path: path.to_owned(),
                    cause,
                });
            }
        }
    }
    Ok(survey
        .finish()
        .levels
        .into_iter()
        .next()
        .unwrap_or_default())
}

/// Reads the block at `offset`, which must be of this kind; returns its header and expanded payload.
pub(super) fn read_block(
    disk: &dyn Disk,
    path: &Path,
    offset: u64,
    kind: BlockKind,
) -> Result<(BlockHeader, Vec<u8>), OpenError> {
    let wrong = |reason: String| OpenError::Block {
        path: path.to_owned(),
        offset,
        reason,
    };
    let mut stored = Vec::new();
    let header = read_at(disk, offset, &mut stored).map_err(wrong)?;
    if header.kind != kind {
        return Err(wrong(format!(
            "is of kind {}, not {}",
            header.kind.0, kind.0
        )));
    }
    let payload = expand(&header, &stored).map_err(wrong)?;
    Ok((header, payload))
}

impl<'a> Survey<'a> {
    /// Continues after `contents`, whose last `journal` entries are journal blocks.
    fn new(path: &'a Path, mut contents: RootContents, journal: usize) -> Survey<'a> {
        let lowest = contents.levels.first_mut();
        let journal = lowest.map_or_else(Vec::new, |entries| {
            entries.split_off(entries.len().saturating_sub(journal))
        });
        let journaled = journal.iter().map(|entry| entry.operations).sum();
        Survey {
            path,
            sealed: contents.operations - journaled,
            contents,
            follows_roots: false,
            journal,
            journaled,
            payload: Vec::new(),
            chunk: Chunk::default(),
        }
    }

    fn block(&mut self, block: &Block<'_>) -> Result<(), OpenError> {
        match block.header.kind {
            ATTRIBUTES => self.attributes(block),
            RESULTS => {
                self.contents.results = block.offset;
                self.contents.analyses = if block.payload.len() < 16 {
                    self.contents.analyses
                } else {
                    long(block.payload, 8)
                };
            }
            CHUNK => {
                let entry = self.entry(block, self.sealed)?;
                self.sealed += entry.operations;
                if self.contents.levels.is_empty() {
                    self.contents.levels.push(Vec::new());
                }
                self.contents.levels[0].push(entry);
                self.journal.clear();
                self.journaled = 0;
            }
            JOURNAL => {
                let entry = self.entry(block, self.sealed + self.journaled)?;
                self.journaled += entry.operations;
                self.journal.push(entry);
            }
            BlockKind::ROOT if self.follows_roots => self.root(block)?,
            // Directory blocks repeat entries that are still in memory; other kinds belong to later versions.
            _ => {}
        }
        Ok(())
    }

    /// A root that was written while the file was followed: it replaces the entries found so far, which it must add up to.
    fn root(&mut self, block: &Block<'_>) -> Result<(), OpenError> {
        let operations = self.sealed + self.journaled;
        let contents = expand(&block.header, block.payload)
            .and_then(|payload| RootContents::read(&payload))
            .and_then(|contents| match contents.operations {
                found if found == operations => Ok(contents),
                found => Err(format!(
                    "names {}, there are {operations}",
                    counted(found, "operation")
                )),
            });
        self.contents = contents.map_err(|reason| self.wrong(block, reason))?;
        self.journal.clear();
        (self.sealed, self.journaled) = (operations, 0);
        Ok(())
    }

    fn wrong(&self, block: &Block<'_>, reason: String) -> OpenError {
        OpenError::Block {
            path: self.path.to_owned(),
            offset: block.offset,
            reason,
        }
    }

    fn attributes(&mut self, block: &Block<'_>) {
        let document = &mut self.contents.attributes;
        if block.header.flags & CONTINUES == 0 {
            *document = Document {
                offset: block.offset,
                ..Document::default()
            };
        }
        document.parts += 1;
        document.length += u64::from(block.header.uncompressed_length);
    }

    /// The entry of a chunk or journal block, whose first position must be `position`.
    fn entry(&mut self, block: &Block<'_>, position: u64) -> Result<DirectoryEntry, OpenError> {
        let read = expand_into(&block.header, block.payload, &mut self.payload);
        let read = read.and_then(|()| {
            let read = self.chunk.read(&self.payload);
            read.map_err(|error| error.to_string())
        });
        let chunk = &self.chunk;
        let read = read.and_then(|()| match chunk.first_position() {
            first if first == position => Ok(()),
            first => Err(format!("begins with operation {first}, not {position}")),
        });
        read.map_err(|reason| self.wrong(block, reason))?;
        let last = chunk.index(chunk.len() - 1);
        let length = block.header.block_length() as u32;
        Ok(DirectoryEntry::of_chunk(
            chunk.header(),
            last,
            block.offset,
            length,
        ))
    }

    fn finish(mut self) -> RootContents {
        if !self.journal.is_empty() {
            if self.contents.levels.is_empty() {
                self.contents.levels.push(Vec::new());
            }
            self.contents.levels[0].append(&mut self.journal);
        }
        self.contents.operations = self.sealed + self.journaled;
        self.contents
    }
}
