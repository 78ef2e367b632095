//! The writer of a recording.

use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::batch::{Batch, MESSAGE_LENGTH_MAX};
use crate::catalog::{Boundary, CatalogError, CatalogEvent, CatalogLog, EventKind, Recording};
use crate::recording::durable_mark::MarkWriter;
use crate::recording::{Durability, WriterProgress, WriterState, create_segment};
use crate::segment::{SEGMENT_BLOCK_LENGTH, SegmentHeader, SegmentName};
use crate::{BatchError, BatchHeader, Position, RecordingId};
use seatrial_blocks::block::{self, BlockHeader, Defect};
use seatrial_blocks::{RecordingTag, crc32c};
use seatrial_machine::Medium;
use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State shared by an archive and its writers. The folder's lock is released when the last of them is dropped.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) folder: ArchiveFolder,
    state: Mutex<State>,
    _lock: Box<dyn Any + Send + Sync>,
}

/// The part of [`Shared`] behind the mutex.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) log: CatalogLog,
    /// Progress of all writers created since the archive was opened.
    pub(crate) writers: BTreeMap<RecordingId, Arc<WriterProgress>>,
}

impl Shared {
    pub(crate) fn new(
        folder: ArchiveFolder,
        log: CatalogLog,
        lock: Box<dyn Any + Send + Sync>,
    ) -> Shared {
        Shared {
            folder,
            state: Mutex::new(State {
                log,
                writers: BTreeMap::new(),
            }),
            _lock: lock,
        }
    }

    /// Locks the state. A panic while it was locked is ignored: the log poisons itself after a failure, and the map is
    /// consistent after every statement.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an append failed, or was incomplete.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A storage call failed. Earlier blocks stay; the writer accepts no more messages.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An earlier write or sync failed, so the contents of the medium are unknown. Drop the writer and extend the
    /// recording.
    #[error("{path} is no longer usable: {reason}")]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// A message is too long. Earlier messages of the same call were appended only if they filled whole blocks.
    #[error("a message of {length} bytes is over the maximum of {MESSAGE_LENGTH_MAX}")]
    MessageLength {
        /// Its length in bytes.
        length: usize,
    },
    /// Nothing was appended: the positions of the recording are exhausted.
    #[error("no room for another block after position {position}")]
    Positions {
        /// End of the recording.
        position: Position,
    },
    /// Nothing was appended: the block is not valid.
    #[error("block copied from position {position}: {defect}")]
    Block {
        /// Its position in the source.
        position: Position,
        /// The reason.
        defect: Defect,
    },
    /// Nothing was appended: the block is not a batch.
    #[error("block copied from position {position}: {cause}")]
    Batch {
        /// Its position in the source.
        position: Position,
        /// The reason.
        cause: BatchError,
    },
    /// Nothing was appended: the block is not the next one.
    #[error("block copied from position {position}: expected {field} {expected}, found {found}")]
    Next {
        /// Its position in the source.
        position: Position,
        /// The field that differs.
        field: &'static str,
        /// The value that would continue the recording.
        expected: u64,
        /// The block's value.
        found: u64,
    },
    /// The end of the recording could not be written to the catalog. It is determined when the archive is opened again.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Position of the first message's frame; without messages, the position that one would get.
    pub first: Position,
    /// End of the recording.
    pub end: Position,
    /// Number of the first message; the others follow.
    pub first_message: u64,
    /// End of the durable messages.
    pub durable: Position,
}

/// Appends messages to one recording. Each call writes one block, or a few if the messages do not fit one; each block is
/// one checksum and one write call. Owns the last segment's file; when that is full, it is synced and the next one begun.
/// After a failed write or sync it accepts no more messages, because the contents of the medium are unknown.
///
/// It can be moved to another thread than the archive's. Writes and syncs block the caller, so a thread that must not wait
/// fills a [`Batch`] and sends it to the thread that owns the writer.
///
/// Dropping it without [`Writer::stop`] leaves the recording open: its end is determined when it is extended, or when the
/// archive is opened again.
///
/// ```
/// use seatrial_archive::{Archive, Batch, Durability, RecordingOptions};
/// use seatrial_sim::MemoryStorage;
/// use std::{path::Path, sync::Arc};
///
/// let (mut archive, _) = Archive::open(Arc::new(MemoryStorage::new()), Path::new("recordings"), 0)?;
/// let group = Durability::Group { milliseconds: 2, bytes: 1 << 20 };
/// let mut writer = archive.start(&RecordingOptions { durability: group, ..Default::default() }, 0)?;
/// let progress = writer.progress(); // for readers in other threads
///
/// let mut batch = Batch::default(); // allocated once, used again
/// batch.push(0, b"a message");
/// batch.push_checksummed(0, b"one with a checksum of its own");
/// let appended = writer.append_block(&mut batch, 1_000)?;
/// assert_eq!(progress.written(), appended.end);
/// assert!(appended.durable < appended.end, "it waits for others, 2 ms at most");
/// let due = writer.sync_at().expect("something waits");
/// writer.tick(due)?;
/// assert_eq!(progress.durable(), appended.end);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    id: RecordingId,
    tag: Option<RecordingTag>,
    durability: Durability,
    segment_length: u64,
    /// The segment being written: file, name and start position.
    medium: Arc<dyn Medium>,
    file: String,
    start: Position,
    /// The boundary at which the next block is written.
    end: Boundary,
    durable: Position,
    /// Time of the oldest write that is not durable.
    waiting_since: Option<u64>,
    /// The block of [`Writer::append_batch`], allocated at its first use.
    batch: Option<Batch>,
    /// A copied block with this recording's tag; allocated once.
    copied: Vec<u8>,
    mark: Option<MarkWriter>,
    progress: Arc<WriterProgress>,
    failure: Option<String>,
}

impl Writer {
    /// A writer that continues at `end`, in the segment that starts at `start`; everything before `end` is durable.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        recording: &Recording,
        medium: Arc<dyn Medium>,
        start: Position,
        end: Boundary,
    ) -> Writer {
        assert!(start <= end.position, "the end is in the segment");
        Writer {
            shared: Arc::clone(shared),
            id: recording.id,
            tag: recording.tag,
            durability: recording.durability,
            segment_length: recording.segment_length,
            medium,
            file: segment_file(recording.id, start),
            start,
            end,
            durable: end.position,
            waiting_since: None,
            batch: None,
            copied: Vec::new(),
            mark: Some(MarkWriter::new(recording)),
            progress: Arc::new(WriterProgress::new(end)),
            failure: None,
        }
    }

    /// The recording's number.
    pub fn recording(&self) -> RecordingId {
        self.id
    }

    /// The end of the recording: the position of the next block.
    pub fn end(&self) -> Position {
        self.end.position
    }

    /// The number of the next message.
    pub fn next_message(&self) -> u64 {
        self.end.message
    }

    /// The end of the messages that survive a power failure.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// The writer's progress, for readers in other threads.
    pub fn progress(&self) -> Arc<WriterProgress> {
        Arc::clone(&self.progress)
    }

    /// Appends messages in blocks of up to [`crate::BATCH_LENGTH`] bytes, without checksums of their own. `now` is the time
    /// in nanoseconds since 1970; if it is before the last one, the last one is used.
    ///
    /// If it fails part way, earlier blocks are written.
    pub fn append_batch<'m>(
        &mut self,
        messages: impl IntoIterator<Item = &'m [u8]>,
        now: u64,
    ) -> Result<Appended, AppendError> {
        let mut batch = self.batch.take().unwrap_or_default();
        batch.clear();
        let appended = self.append_messages(&mut batch, messages, now);
        self.batch = Some(batch);
        appended
    }

    fn append_messages<'m>(
        &mut self,
        batch: &mut Batch,
        messages: impl IntoIterator<Item = &'m [u8]>,
        now: u64,
    ) -> Result<Appended, AppendError> {
        self.check()?;
        let mut first = None;
        for message in messages {
            if batch.push(0, message) {
                continue;
            }
            let length = message.len();
            if length > MESSAGE_LENGTH_MAX {
                return Err(AppendError::MessageLength { length });
            }
            if !batch.is_empty() {
                let (position, number) = self.write_block(batch, now)?;
                first.get_or_insert((position, number));
                batch.clear();
            }
            if !batch.push(0, message) {
                let mut long = Batch::for_message(length);
                long.push(0, message);
                let (position, number) = self.write_block(&mut long, now)?;
                first.get_or_insert((position, number));
            }
        }
        if !batch.is_empty() {
            let (position, number) = self.write_block(batch, now)?;
            first.get_or_insert((position, number));
        }
        self.appended(first, now)
    }

    /// Appends the messages of `batch` as one block, with one write, and clears it.
    pub fn append_block(&mut self, batch: &mut Batch, now: u64) -> Result<Appended, AppendError> {
        self.check()?;
        if batch.is_empty() {
            return self.appended(None, now);
        }
        let first = self.write_block(batch, now)?;
        batch.clear();
        self.appended(Some(first), now)
    }

    /// Appends a batch block of another archive's recording, so that both have the same positions. The block gets this
    /// recording's tag and is otherwise unchanged: a copy is a recording of its own.
    ///
    /// `position` is the block's position in the source. It must be the end of this recording, or one segment's first block
    /// after it, which is then written first. Everything is checked before anything is written. A block without the flag
    /// *unordered* is written after a sync, so that the flag holds here too.
    pub fn append_copied(
        &mut self,
        position: Position,
        bytes: &[u8],
        now: u64,
    ) -> Result<Appended, AppendError> {
        self.check()?;
        let begin = position == self.end.position.plus(SEGMENT_BLOCK_LENGTH);
        let (block, header) = self.check_copied(position, bytes, begin)?;
        if begin {
            self.begin_segment(header.time)?;
        }
        if block.is_ordered() {
            self.sync()?;
        }
        let first = position.plus(crate::BATCH_FRAMES_OFFSET as u64);
        let mut copied = std::mem::take(&mut self.copied);
        copied.clear();
        copied.extend_from_slice(&block.with_tag(self.tag).encode());
        copied.extend_from_slice(&bytes[block::HEADER_LENGTH..]);
        let written = self.write(&copied, header.time, header.messages, now);
        self.copied = copied;
        written?;
        self.appended(Some((first, header.first_message)), now)
    }

    /// Checks that `bytes` are a valid batch block and the next one.
    fn check_copied(
        &self,
        position: Position,
        bytes: &[u8],
        begin: bool,
    ) -> Result<(BlockHeader, BatchHeader), AppendError> {
        let defect = |defect| AppendError::Block { position, defect };
        let there = bytes.len() as u64;
        let needed = block::HEADER_LENGTH as u64;
        let (head, rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| defect(Defect::Short { needed, there }))?;
        let header = BlockHeader::decode(head).map_err(defect)?;
        let needed = header.block_length();
        if needed != there {
            return Err(defect(Defect::Short { needed, there }));
        }
        let (payload, padding) = rest.split_at(header.payload_length as usize);
        let (stored, computed) = (header.payload_checksum, crc32c(payload));
        if stored != computed {
            return Err(defect(Defect::PayloadChecksum { stored, computed }));
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err(defect(Defect::Padding));
        }
        let (batch, _) = BatchHeader::decode(header.kind, payload)
            .map_err(|cause| AppendError::Batch { position, cause })?;
        let end = self.end;
        let steps = u64::from(begin);
        let here = end.position.plus(steps * SEGMENT_BLOCK_LENGTH);
        for (field, expected, found) in [
            ("position", here.0, position.0),
            (
                "number",
                end.sequence.saturating_add(steps),
                header.sequence,
            ),
            ("first message", end.message, batch.first_message),
            ("time, not above,", end.time.min(batch.time), end.time),
        ] {
            if expected != found {
                return Err(AppendError::Next {
                    position,
                    field,
                    expected,
                    found,
                });
            }
        }
        Ok((header, batch))
    }

    /// Writes a batch; returns position and number of its first message.
    fn write_block(&mut self, batch: &mut Batch, now: u64) -> Result<(Position, u64), AppendError> {
        let length = batch.block_length() as u64;
        let offset = self.end.position.since(self.start);
        let time = now.max(self.end.time);
        if offset > SEGMENT_BLOCK_LENGTH && offset.saturating_add(length) > self.segment_length {
            self.begin_segment(time)?;
        }
        let is_durable = self.durable == self.end.position;
        let flags = if is_durable {
            0
        } else {
            block::flags::UNORDERED
        };
        let first = (
            self.end.position.plus(crate::BATCH_FRAMES_OFFSET as u64),
            self.end.message,
        );
        let messages = batch.messages();
        let block = batch.seal(self.tag, self.end.sequence, flags, time, self.end.message);
        self.write(block, time, messages, now)?;
        Ok(first)
    }

    /// Writes a block at the end.
    fn write(
        &mut self,
        block: &[u8],
        time: u64,
        messages: u32,
        now: u64,
    ) -> Result<(), AppendError> {
        let position = self.end.position;
        let length = block.len() as u64;
        let end = (self.end)
            .after_block(length, messages, time)
            .ok_or(AppendError::Positions { position })?;
        let offset = position.since(self.start);
        let folder = &self.shared.folder;
        assert!(offset >= SEGMENT_BLOCK_LENGTH, "never over the first block");
        let written = folder.write(&self.file, &*self.medium, offset, block);
        self.carry_out(written)?;
        self.end = end;
        self.waiting_since.get_or_insert(now);
        self.progress.set_end(self.end);
        Ok(())
    }

    /// Ends the current segment and begins the next one. Syncs first, so that an invalid block in any segment but the last
    /// is known to be damage.
    fn begin_segment(&mut self, time: u64) -> Result<(), AppendError> {
        self.sync()?;
        let position = self.end.position;
        let end = (self.end)
            .after_block(SEGMENT_BLOCK_LENGTH, 0, time)
            .ok_or(AppendError::Positions { position })?;
        let header = SegmentHeader {
            recording: self.id,
            start: position,
            first_message: self.end.message,
            segment_length: self.segment_length,
            time,
        };
        let created = create_segment(&self.shared.folder, &header, self.end.sequence, self.tag);
        self.medium = self.carry_out(created)?;
        self.file = segment_file(self.id, position);
        self.start = position;
        self.end = end;
        self.durable = self.end.position;
        self.progress.set_end(self.end);
        self.progress.set_durable(self.durable);
        Ok(())
    }

    /// Syncs as the durability level requires after an append, and returns the append's result.
    fn appended(
        &mut self,
        first: Option<(Position, u64)>,
        now: u64,
    ) -> Result<Appended, AppendError> {
        match self.durability {
            Durability::None => {}
            Durability::Group { bytes, .. } => {
                let waiting = self.end.position.since(self.durable);
                if waiting >= bytes {
                    self.sync()?;
                } else {
                    self.tick(now)?;
                }
            }
            Durability::Batch => self.sync()?,
        }
        assert!(self.durable <= self.end.position);
        let next = self.end.position.plus(crate::BATCH_FRAMES_OFFSET as u64);
        let (first, first_message) = first.unwrap_or((next, self.end.message));
        Ok(Appended {
            first,
            end: self.end.position,
            first_message,
            durable: self.durable,
        })
    }

    /// Makes all appended messages durable.
    pub fn sync(&mut self) -> Result<(), AppendError> {
        if self.make_durable()?
            && let Some(mark) = &mut self.mark
        {
            mark.write(&self.shared.folder, self.end);
        }
        Ok(())
    }

    /// Syncs what was appended since the last sync; false if there was nothing.
    fn make_durable(&mut self) -> Result<bool, AppendError> {
        self.check()?;
        let has_news = self.durable < self.end.position;
        if has_news {
            let synced = self.shared.folder.sync_file(&self.file, &*self.medium);
            self.carry_out(synced)?;
            self.durable = self.end.position;
            self.progress.set_durable(self.durable);
        }
        self.waiting_since = None;
        Ok(has_news)
    }

    /// The time at which [`Writer::tick`] has to be called, in nanoseconds since 1970; `None` if nothing waits for a sync.
    pub fn sync_at(&self) -> Option<u64> {
        let Durability::Group { milliseconds, .. } = self.durability else {
            return None;
        };
        let since = self.waiting_since?;
        Some(since.saturating_add(u64::from(milliseconds) * 1_000_000))
    }

    /// Syncs if the time of [`Writer::sync_at`] has come.
    pub fn tick(&mut self, now: u64) -> Result<(), AppendError> {
        match self.sync_at() {
            Some(at) if at <= now => self.sync(),
            _ => Ok(()),
        }
    }

    /// Stops the recording: makes everything durable and writes its end to the catalog. It can be extended later.
    pub fn stop(mut self, now: u64) -> Result<Appended, AppendError> {
        self.make_durable()?;
        let event = CatalogEvent {
            recording: self.id,
            time: now,
            kind: EventKind::Stopped { end: self.end },
        };
        self.shared.state().log.append(&[event])?;
        if let Some(mark) = self.mark.take() {
            mark.end(&self.shared.folder);
        }
        self.progress.stop();
        self.appended(None, now)
    }

    /// Fails if an earlier write or sync failed.
    fn check(&self) -> Result<(), AppendError> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(AppendError::Poisoned {
                path: self.shared.folder.path(&self.file),
                reason: format!("an earlier call failed: {reason}"),
            }),
        }
    }

    /// Records a failure: no later call succeeds.
    fn carry_out<T>(&mut self, result: Result<T, StorageError>) -> Result<T, AppendError> {
        result.map_err(|error| {
            self.failure = Some(error.to_string());
            self.progress.set_state(if error.is_sync() {
                WriterState::Lost
            } else {
                WriterState::Abandoned
            });
            error.into()
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.progress.state() == WriterState::Recording {
            self.progress.set_state(WriterState::Abandoned);
        }
    }
}

fn segment_file(recording: RecordingId, start: Position) -> String {
    SegmentName { recording, start }.file()
}
