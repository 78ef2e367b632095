//! The one who writes a recording.

use crate::batch::{Batch, MESSAGE_LENGTH_MAX};
use crate::block::{self, BlockHeader, Defect};
use crate::catalog::{Boundary, CatalogError, CatalogLog, Event, EventKind, Recording};
use crate::folder::{Folder, StorageError};
use crate::recording::mark::MarkWriter;
use crate::recording::{Durability, Progress, WriterState, create_segment};
use crate::segment::{SEGMENT_BLOCK_LENGTH, SegmentHeader, SegmentName};
use crate::{BatchError, BatchHeader, Position, RecordingId, RecordingTag, crc32c};
use seatrial_machine::Medium;
use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an archive and its writers have in common. The lock of the folder is given up when the last of them is dropped.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) folder: Folder,
    state: Mutex<State>,
    _lock: Box<dyn Any + Send + Sync>,
}

/// What is changed by one at a time.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) log: CatalogLog,
    /// How far the writers have got that were made since the archive was opened.
    pub(crate) writers: BTreeMap<RecordingId, Arc<Progress>>,
}

impl Shared {
    pub(crate) fn new(folder: Folder, log: CatalogLog, lock: Box<dyn Any + Send + Sync>) -> Shared {
        Shared {
            folder,
            state: Mutex::new(State {
                log,
                writers: BTreeMap::new(),
            }),
            _lock: lock,
        }
    }

    /// Whoever panicked while holding it: the log checks itself, and the map is whole after every statement.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an append did not happen, or not as a whole.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The storage refused. What was written before stays; the writer takes no more.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An earlier write or sync failed, so it is unknown what the medium holds. Drop the writer and extend the recording.
    #[error("{path} is out of use: {reason}")]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
    /// A message is too long. Of those before it in the same call, only what filled whole blocks was appended.
    #[error("a message of {length} bytes is over the maximum of {MESSAGE_LENGTH_MAX}")]
    MessageLength {
        /// Its length in bytes.
        length: usize,
    },
    /// Nothing was appended: the last position is too near.
    #[error("no positions are left behind {position}")]
    Positions {
        /// Where the recording ends.
        position: Position,
    },
    /// Nothing was appended: the block is not whole.
    #[error("the block copied from {position}: {defect}")]
    Block {
        /// Where it was said to be from.
        position: Position,
        /// What is wrong with it.
        defect: Defect,
    },
    /// Nothing was appended: the block is not a batch.
    #[error("the block copied from {position}: {source}")]
    Batch {
        /// Where it was said to be from.
        position: Position,
        /// What is wrong with it.
        source: BatchError,
    },
    /// Nothing was appended: the block is not the one that comes next.
    #[error("the block copied from {position} has {field} {found}, {expected} belongs here")]
    Next {
        /// Where it was said to be from.
        position: Position,
        /// What of it is compared.
        field: &'static str,
        /// What would go on from here.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// The catalog did not take the end of the recording. It is found when the archive is opened again.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// Where messages went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The position of the first message's frame; where it would be, if there is none.
    pub first: Position,
    /// The end of the recording now.
    pub end: Position,
    /// The number of the first message. The others follow.
    pub first_message: u64,
    /// The end of what is durable now.
    pub durable: Position,
}

/// Appends messages to one recording: each call is one block (or a few, when there is more than fits), each block one
/// checksum and one write. It owns the last segment's file; when that is full it is synced and the next one begun. After a
/// failed write or sync it takes nothing more: nobody knows what the medium holds.
///
/// It may be moved to another thread than the archive. Its downside: writes and syncs block the caller, so a thread that
/// must not wait fills a [`Batch`] and hands it to the one that owns the writer.
///
/// Dropping it without [`Writer::stop`] leaves the recording open: its end is found when it is extended, or when the
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
    /// The file that is being written, its name and where it starts.
    medium: Arc<dyn Medium>,
    file: String,
    start: Position,
    /// Where the next block goes.
    end: Boundary,
    durable: Position,
    /// When the oldest write was made that is not durable.
    waiting_since: Option<u64>,
    /// For messages that come one by one; made when it is first needed.
    batch: Option<Batch>,
    /// A copied block with the tag of this recording; allocated once.
    copied: Vec<u8>,
    mark: Option<MarkWriter>,
    progress: Arc<Progress>,
    failure: Option<String>,
}

impl Writer {
    /// Goes on at `end`, in the segment that starts at `start`; everything before is durable.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        recording: &Recording,
        medium: Arc<dyn Medium>,
        start: Position,
        end: Boundary,
    ) -> Writer {
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
            progress: Arc::new(Progress::new(end)),
            failure: None,
        }
    }

    /// The recording's number.
    pub fn recording(&self) -> RecordingId {
        self.id
    }

    /// Where the next block goes.
    pub fn end(&self) -> Position {
        self.end.position
    }

    /// The number of the next message.
    pub fn next_message(&self) -> u64 {
        self.end.message
    }

    /// The end of what survives a loss of power.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// Appends from now on wait for this. The recording's own level is what the next one gets who extends it.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// How far it has got, for readers in other threads.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Appends messages in blocks of up to [`crate::BATCH_LENGTH`] bytes, without checksums of their own. `now` is the time
    /// in nanoseconds since 1970; one that runs backwards is taken for the last one.
    ///
    /// When it fails in the middle, the blocks before are written.
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

    /// Appends a whole batch block of another archive's recording, so that both have the same positions. It gets the tag
    /// of this recording and stays as it is otherwise: a copy is a recording of its own.
    /// `position` is the block's there: it has to be the end of this recording, or so far behind that a segment's first
    /// block is between them, which is then written here too. Everything is checked before anything is written. A block
    /// that says that all before it was durable when it was written is written when that is so here too, after a sync.
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

    /// Is it a whole batch, and the one that comes next?
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
            .map_err(|source| AppendError::Batch { position, source })?;
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

    /// Writes a batch; answers with position and number of its first message.
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

    /// Writes a whole block at the end.
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
        let written = folder.write(&self.file, &*self.medium, offset, block);
        self.carry_out(written)?;
        self.end = end;
        self.waiting_since.get_or_insert(now);
        self.progress.set_end(self.end);
        Ok(())
    }

    /// Ends the present segment and begins the next one: everything before is durable first, so that a hole in any segment
    /// but the last is known to be damage.
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

    /// What the level of durability wants after an append, and the answer to it.
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
        let next = self.end.position.plus(crate::BATCH_FRAMES_OFFSET as u64);
        let (first, first_message) = first.unwrap_or((next, self.end.message));
        Ok(Appended {
            first,
            end: self.end.position,
            first_message,
            durable: self.durable,
        })
    }

    /// Makes everything that was appended durable.
    pub fn sync(&mut self) -> Result<(), AppendError> {
        if self.make_durable()?
            && let Some(mark) = &mut self.mark
        {
            mark.write(&self.shared.folder, self.end);
        }
        Ok(())
    }

    /// Syncs what was appended since the last time; false when nothing was.
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

    /// When [`Writer::tick`] has to be called, in nanoseconds since 1970; nothing when nothing waits.
    pub fn sync_at(&self) -> Option<u64> {
        let Durability::Group { milliseconds, .. } = self.durability else {
            return None;
        };
        let since = self.waiting_since?;
        Some(since.saturating_add(u64::from(milliseconds) * 1_000_000))
    }

    /// Syncs when the time has come that [`Writer::sync_at`] names.
    pub fn tick(&mut self, now: u64) -> Result<(), AppendError> {
        match self.sync_at() {
            Some(at) if at <= now => self.sync(),
            _ => Ok(()),
        }
    }

    /// Ends the recording: makes everything durable and says so in the catalog. It may be extended later.
    pub fn stop(mut self, now: u64) -> Result<Appended, AppendError> {
        self.make_durable()?;
        let event = Event {
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

    /// Fails if an earlier call did.
    fn check(&self) -> Result<(), AppendError> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(AppendError::Poisoned {
                path: self.shared.folder.path(&self.file),
                reason: format!("an earlier call failed: {reason}"),
            }),
        }
    }

    /// Remembers a failure for ever.
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
