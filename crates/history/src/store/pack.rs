//! Compact copies of test files.

use super::Codec;
use super::append::Appender;
use super::block_kinds::CHUNK;
use super::directory::DirectoryEntry;
use super::reader::{ChunkBuffer, TestFile};
use super::survey::{FileTail, OpenError};
use super::writer::{CHUNK_LENGTH, WriteError};
use crate::chunk::{CHUNK_BYTES_MAX, Chunk, ChunkHeader, Encoder};
use seatrial_blocks::file::{self, Files};
use seatrial_blocks::{BlockFileError, LogFile};
use seatrial_machine::Storage;
use serde_json::Value as Json;
use std::io;
use std::path::{Path, PathBuf};

/// Chunks of at least this many operations are copied as they are; shorter ones are merged.
const COPIED_LENGTH_MIN: usize = CHUNK_LENGTH / 2;

/// Size of a compact copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of the file before.
    pub length_before: u64,
    /// Bytes of the copy.
    pub length: u64,
    /// Operations.
    pub operations: u64,
}

/// Writes a compact copy of the test file at `path` to `new_path`, with chunks compressed by `codec` ([`Codec::Zstd`] for
/// archiving: a quarter smaller than the file of a running test). Replaced journal blocks are left out and short chunks
/// merged; operations, positions, pairs, attributes and all analyses are the same. Constant memory.
///
/// The copy is written to `new_path` plus `.partial`, synced, then renamed, so that a crash leaves the complete copy or none.
/// `new_path` must not exist, unless it is `path` itself, which the copy then replaces: no process may be writing it, and
/// open readers keep reading the old file until [`TestFile::refresh`]. Of a file that a test is writing, the copy has the
/// contents at the time of the call.
///
/// ```
/// # use seatrial_history::{Codec, HistoryWriter, Op, Process, TestFile, Value, repack};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("history.sea");
/// # let copy = path.with_extension("copy");
/// # let mut writer = HistoryWriter::create(&path, &serde_json::json!({}))?;
/// # writer.push(&Op::invoke(Process::Client(0), "read", Value::Nil))?;
/// # writer.seal()?;
/// let packed = repack(&path, &copy, Codec::Zstd)?;
/// assert_eq!(TestFile::open(&copy)?.len(), packed.operations);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn repack(path: &Path, new_path: &Path, codec: Codec) -> Result<Packed, WriteError> {
    let replaces = is_same(path, new_path);
    // The lock keeps writers off the file that is about to be replaced.
    let _lock = replaces.then(|| LogFile::open(path)).transpose()?;
    repack_on(&Files, path, new_path, codec)
}

/// The same on any storage.
pub(super) fn repack_on(
    storage: &dyn Storage,
    path: &Path,
    new_path: &Path,
    codec: Codec,
) -> Result<Packed, WriteError> {
    let file = TestFile::open_on(storage, path)?;
    if is_same(path, new_path)
        && let Some(FileTail::Torn(torn)) = file.tail()
    {
        // Replacing the file by a copy without these bytes would lose them.
        let path = path.to_owned();
        return Err(WriteError::Torn { path, torn });
    }
    let attributes = file.attributes()?;
    write_beside(storage, path, new_path, &attributes, |packer| {
        packer.set_codec(codec);
        let mut buffer = ChunkBuffer::default();
        for number in 0..file.chunk_count() {
            if file.read_chunk(number, &mut buffer)?.is_some() {
                let distance = |chunk: &Chunk, place: usize| chunk.pairs()[place].cast_unsigned();
                packer.add(&buffer, distance)?;
            }
        }
        packer.finish_chunks()?;
        let heads: Result<Vec<_>, OpenError> = file.heads().collect();
        for (_, head) in heads?.into_iter().rev() {
            let results = file.blocks().results(&head)?;
            packer.results(&results)?;
        }
        packer.set_complete(file.is_complete());
        Ok(())
    })
    .map(|(length, operations)| Packed {
        length_before: file.file_length(),
        length,
        operations,
    })
}

/// Do both names refer to the same file?
fn is_same(path: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    path == other || real(path).is_some_and(|path| real(other) == Some(path))
}

/// Does the name exist, even if it cannot be opened?
fn is_there(storage: &dyn Storage, path: &Path) -> bool {
    let opened = storage.open(path).map_err(|error| error.kind());
    !matches!(opened, Err(io::ErrorKind::NotFound))
}

/// Writes a new test file under a temporary name and renames it to `new_path`; returns its bytes and operations.
pub(super) fn write_beside(
    storage: &dyn Storage,
    path: &Path,
    new_path: &Path,
    attributes: &Json,
    fill: impl FnOnce(&mut Packer) -> Result<(), WriteError>,
) -> Result<(u64, u64), WriteError> {
    if is_there(storage, new_path) && !is_same(path, new_path) {
        return Err(WriteError::File(BlockFileError::System {
            action: "create",
            path: new_path.to_owned(),
            source: io::ErrorKind::AlreadyExists.into(),
        }));
    }
    let mut name = new_path.as_os_str().to_owned();
    name.push(".partial");
    let beside = PathBuf::from(name);
    if LogFile::open_on(storage, &beside).is_ok() {
        // A leftover: a running writer would hold its lock.
        file::remove(storage, &beside)?;
    }
    let written = Packer::create(storage, &beside, attributes).and_then(|mut packer| {
        fill(&mut packer)?;
        packer.finish_chunks()?;
        packer.file.root()?;
        Ok((packer.file.length(), packer.position))
    });
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            // Report why the copy failed rather than why it cannot be removed.
            let _ = file::remove(storage, &beside);
            return Err(error);
        }
    };
    file::rename(storage, &beside, new_path)?;
    file::sync_folder_of(storage, new_path)?;
    Ok(written)
}

/// Writes a new test file from the chunks of another: long chunks are copied as they are, short ones merged.
pub(super) struct Packer {
    file: Appender,
    codec: Codec,
    /// Number of operations so far, including gathered ones.
    position: u64,
    /// Operations of short chunks.
    gathered: Encoder,
    last_index: u64,
    payload: Vec<u8>,
}

impl Packer {
    fn create(storage: &dyn Storage, path: &Path, attributes: &Json) -> Result<Packer, WriteError> {
        Ok(Packer {
            file: Appender::create(LogFile::create_on(storage, path)?, attributes)?,
            codec: Codec::default(),
            position: 0,
            gathered: Encoder::default(),
            last_index: 0,
            payload: Vec::new(),
        })
    }

    /// How chunks are compressed from now on.
    pub(super) fn set_codec(&mut self, codec: Codec) {
        self.codec = codec;
    }

    /// Marks the history as sealed by its writer, or not.
    pub(super) fn set_complete(&mut self, complete: bool) {
        self.file.contents.complete = complete;
    }

    /// Adds the chunk in `buffer`; `distance` is the new pair of each operation, if the chunk moves.
    pub(super) fn add(
        &mut self,
        buffer: &ChunkBuffer,
        distance: impl Fn(&Chunk, usize) -> u64,
    ) -> Result<(), WriteError> {
        let chunk = &buffer.chunk;
        let is_in_place = chunk.first_position() == self.position;
        if is_in_place && chunk.len() >= COPIED_LENGTH_MIN {
            self.finish_chunks()?;
            self.position += chunk.len() as u64;
            return self.write(buffer.payload(), chunk.index(chunk.len() - 1));
        }
        for (place, op) in chunk.ops().enumerate() {
            self.gathered.push(&op, distance(chunk, place));
            self.position += 1;
            self.last_index = op.index;
            let is_full = self.gathered.len() >= CHUNK_LENGTH;
            if is_full || self.gathered.bytes() >= CHUNK_BYTES_MAX {
                self.finish_chunks()?;
            }
        }
        Ok(())
    }

    /// Writes the gathered operations as a chunk.
    pub(super) fn finish_chunks(&mut self) -> Result<(), WriteError> {
        let count = self.gathered.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        self.gathered.write(self.position - count, &mut payload);
        let written = self.write(&payload, self.last_index);
        self.payload = payload;
        written?;
        assert_eq!(
            self.file.contents.operations, self.position,
            "an operation was not copied"
        );
        Ok(())
    }

    fn write(&mut self, payload: &[u8], last_index: u64) -> Result<(), WriteError> {
        let (header, _) = ChunkHeader::read(payload).expect("a chunk that was just read");
        let (offset, length) = self.file.block(CHUNK, 0, payload, self.codec)?;
        self.file.contents.operations += u64::from(header.operations);
        let entry = DirectoryEntry::of_chunk(&header, last_index, offset, length);
        Ok(self.file.add(entry)?)
    }

    /// Adds the results of one analysis, after all chunks.
    pub(super) fn results(&mut self, results: &Json) -> Result<(), WriteError> {
        let valid = results["valid"].to_string();
        Ok(self.file.results(&results.to_string(), &valid)?)
    }
}
