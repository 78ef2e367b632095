//! Replay of a recording from any position, to its end or into a live recording.
//!
//! A [`Cursor`] returns one checked block at a time, at the caller's pace. It takes no lock, so any number of cursors read
//! beside one writer, in its process ([`CursorBound::Live`]) or in another ([`CursorBound::Follow`]).

mod block_check;
mod extent;
mod frames;
mod open_segment;
mod seek;

pub(crate) use block_check::{BlockChecker, ExpectedBlock};
pub use block_check::{BlockDamage, ContentError, ReplayBlock};
use extent::CatalogFingerprint;
pub(crate) use extent::Extent;
pub use frames::{BlockMessages, Message};
pub(crate) use open_segment::{FirstBlock, OpenSegment, SegmentBytes};
pub(crate) use seek::{HeaderReader, segments};

use crate::catalog::CatalogError;
use crate::recording::WriterProgress;
use crate::segment::{SEGMENT_BLOCK_LENGTH, SEGMENT_LENGTH_MAX, SegmentName};
use crate::{BatchHeader, Position, RecordingId};
use block_check::MessageRange;
use seatrial_blocks::block::{BlockHeader, Defect, HEADER_LENGTH};
use seatrial_blocks::{WalkError, Walker};
use seatrial_machine::Storage;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The beginning of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The first message of the recording.
    Start,
    /// The first message at or after this position.
    Position(Position),
    /// The first message in a batch written at this time or later, in nanoseconds since 1970.
    Time(u64),
    /// The message with this number.
    Message(u64),
    /// The end of the recording when the cursor is opened: only new messages.
    End,
}

impl From<Position> for Origin {
    fn from(position: Position) -> Origin {
        Origin::Position(position)
    }
}

/// The end of a replay.
#[derive(Clone, Debug)]
pub enum CursorBound {
    /// Before the first message at or after this position, which may not have been recorded yet.
    To(Position),
    /// The end of the recording when the cursor is opened.
    End,
    /// None: follows what the writer with this progress appends, in this process.
    Live(Arc<WriterProgress>),
    /// None: follows what another process appends, by reading the files again.
    Follow,
}

/// Why [`Cursor::next_block`] returned no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The bound is reached: no block will follow.
    Reached,
    /// All messages recorded so far were read, and more may follow.
    Live,
    /// All messages were read and the recording was stopped here: more follow only if it is extended.
    Stopped,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// The folder has no archive.
    #[error("{folder} is not an archive: it has no catalog")]
    NoArchive {
        /// The folder.
        folder: PathBuf,
    },
    /// The catalog cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The catalog has no such recording.
    #[error("the archive has no recording {recording}")]
    NoRecording {
        /// The requested recording.
        recording: RecordingId,
    },
    /// The requested position is before the recording's start.
    #[error("position {from} is before the start of recording {recording} ({start})")]
    BeforeStart {
        /// The recording.
        recording: RecordingId,
        /// Its start.
        start: Position,
        /// The requested position.
        from: Position,
    },
    /// The requested message is before the recording's first.
    #[error("message {asked} is before the first message of recording {recording} ({first})")]
    BeforeFirst {
        /// The recording.
        recording: RecordingId,
        /// Number of its first message.
        first: u64,
        /// The requested message.
        asked: u64,
    },
    /// The requested position is after the recording's end.
    #[error("position {from} is past the end of recording {recording} ({end})")]
    PastEnd {
        /// The recording.
        recording: RecordingId,
        /// Its end.
        end: Position,
        /// The requested position.
        from: Position,
    },
    /// The recording was deleted while it was read.
    #[error("recording {recording} was deleted; its reader was at {position}")]
    Deleted {
        /// The recording.
        recording: RecordingId,
        /// The reader's position.
        position: Position,
    },
    /// The next segments were purged or detached while the recording was read.
    #[error("recording {recording} now begins at {start}; its reader was at {position}")]
    Purged {
        /// The recording.
        recording: RecordingId,
        /// Its new start.
        start: Position,
        /// The reader's position.
        position: Position,
    },
    /// The recording was truncated before the reader's position.
    #[error("recording {recording} was truncated; its reader was at {position}")]
    Truncated {
        /// The recording.
        recording: RecordingId,
        /// The reader's position.
        position: Position,
    },
    /// A segment is missing, although the catalog's entry includes it.
    #[error("{path} is missing; it should contain position {position}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The reader's position.
        position: Position,
    },
    /// A call of the operating system failed.
    #[error("cannot {action} {path} at {offset}")]
    System {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The recording is damaged at the reader's position.
    #[error("{path} is damaged at {offset} (position {position}): {fault}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// The same place as a position of the recording.
        position: Position,
        /// The reason, with expected and found values.
        fault: BlockDamage,
    },
}

/// Reads one recording. It owns one open segment (a mapped view, or one buffer) and the position of the next block; a
/// block is borrowed until the next call. Every block is checked before it is returned: its checksum, that it continues the
/// previous one (block number, message number, time), bounds and padding of its frames, and the frames' own checksums.
///
/// Its loop ([`Cursor::next_block`]): check the block at the current position; at the end of a file open the next segment;
/// at the end of the recording read the catalog, which may have changed.
///
/// An error changes nothing, so the next call tries again. An incomplete block at the live end is not an error: the cursor
/// pauses. If segments are truncated, purged or deleted while it reads, it returns the old bytes of open files, or an error
/// that names the change.
///
/// Costs: to begin in the middle of a segment it reads the headers of all earlier blocks of the segment, one read of
/// 4 KiB for each block longer than that.
///
/// Files from which a recovery may still cut bytes (the last segment, when another process writes it) are read, not
/// mapped, so that a cut never raises a signal.
#[derive(Debug)]
pub struct Cursor {
    storage: Arc<dyn Storage>,
    folder: PathBuf,
    recording: RecordingId,
    bound: CursorBound,
    /// Messages at or after it are not returned.
    until: Position,
    /// The recording's extent at the last read of the catalog.
    extent: Extent,
    /// Detects changes of the catalog.
    mark: CatalogFingerprint,
    /// Messages before it are not returned; `Start` once it was reached.
    origin: Origin,
    /// The open segment; `None` before the first one exists.
    source: Option<OpenSegment>,
    /// Length of its file when it was last measured.
    length: u64,
    /// Position of the next block.
    position: Position,
    /// What the next block has to match; `None` before the first segment exists.
    chain: Option<ExpectedBlock>,
    /// Offset and header of a block already read: if they have changed in the file of this name, it was replaced.
    last: Option<(u64, BlockHeader)>,
    /// An incomplete tail: its offset, and the file's length then. Checked again only when the file has grown.
    torn: Option<(u64, u64)>,
    pause: Pause,
    checker: BlockChecker,
}

/// A checked block that is about to be returned.
struct FoundBlock {
    offset: u64,
    length: usize,
    sequence: u64,
    batch: BatchHeader,
}

/// What the file has at the next block's position.
enum BlockState {
    /// A valid block.
    Block(FoundBlock),
    /// The end of the file, or of what the writer has written.
    End,
    /// A block that is not complete yet.
    Partial,
}

impl Cursor {
    /// Opens recording `recording` of the archive in `folder`. `from` is a [`Position`] or another [`Origin`].
    pub fn open(
        storage: Arc<dyn Storage>,
        folder: &Path,
        recording: RecordingId,
        from: impl Into<Origin>,
        bound: CursorBound,
    ) -> Result<Cursor, CursorError> {
        // The fingerprint first: if the catalog changes in between, it is read again later.
        let mark = Extent::mark(&*storage, folder)?;
        let extent = Extent::read(&*storage, folder, recording)?
            .ok_or(CursorError::NoRecording { recording })?;
        let mut cursor = Cursor {
            position: extent.start,
            storage,
            folder: folder.to_owned(),
            recording,
            until: match bound {
                CursorBound::To(position) => position,
                CursorBound::End | CursorBound::Live(_) | CursorBound::Follow => Position(u64::MAX),
            },
            bound,
            extent,
            mark,
            origin: Origin::Start,
            source: None,
            length: 0,
            chain: None,
            last: None,
            torn: None,
            pause: Pause::Live,
            checker: BlockChecker::new(true),
        };
        cursor.seek(from.into())?;
        Ok(cursor)
    }

    /// Skips the frames' own checksums: the block's checksum covers every bit of them too.
    #[must_use]
    pub fn without_frame_checksums(mut self) -> Cursor {
        self.checker = BlockChecker::new(false);
        self
    }

    /// The next block with messages of the range. `None` at the end of the range, or at the live end, where more may
    /// follow: [`Cursor::pause`] says which.
    pub fn next_block(&mut self) -> Result<Option<ReplayBlock<'_>>, CursorError> {
        let Some((found, trim)) = self.advance()? else {
            return Ok(None);
        };
        let Some(source) = &mut self.source else {
            return Ok(None);
        };
        let there = found.offset + found.length as u64;
        let bytes = source
            .view
            .bytes(found.offset, found.length, there)
            .map_err(|error| system("read", &source.path, found.offset, error))?;
        Ok(Some(ReplayBlock {
            bytes,
            start: source.name.start.plus(found.offset),
            batch: found.batch,
            sequence: found.sequence,
            trim,
            steady: self.checker.is_steady(),
        }))
    }

    /// Frees the read-ahead buffer; the next block is read again.
    pub fn release_buffer(&mut self) {
        if let Some(source) = &mut self.source {
            source.view.release();
        }
    }

    /// Why the last call returned no block.
    pub fn pause(&self) -> Pause {
        self.pause
    }

    /// The position to resume from: a cursor opened here returns exactly the messages that this one has not.
    pub fn position(&self) -> Position {
        let next = match self.origin {
            Origin::Position(position) => position.max(self.position),
            _ => self.position,
        };
        next.min(self.until)
    }

    /// The recording being read.
    pub fn recording(&self) -> RecordingId {
        self.recording
    }

    /// Steps over the next block that has messages of the range.
    fn advance(&mut self) -> Result<Option<(FoundBlock, MessageRange)>, CursorError> {
        loop {
            if self.position >= self.until {
                self.pause = Pause::Reached;
                return Ok(None);
            }
            match self.look()? {
                BlockState::Block(found) => {
                    self.check_end(&found)?;
                    let trim = self.trim(&found)?;
                    self.step(&found);
                    if trim.messages > 0 {
                        return Ok(Some((found, trim)));
                    }
                }
                BlockState::Partial => {
                    self.pause = self.open_end();
                    return Ok(None);
                }
                BlockState::End => {
                    if !self.next_segment()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Checks that the last block of a stopped recording ends as the catalog says.
    fn check_end(&self, found: &FoundBlock) -> Result<(), CursorError> {
        let after = self.position.plus(found.length as u64);
        if self.extent.stop() != Some(after) || matches!(self.bound, CursorBound::Live(_)) {
            return Ok(());
        }
        let after = ExpectedBlock::after(found.sequence, &found.batch);
        let checked = self.extent.check_end(&after);
        checked.map_err(|fault| self.damage(found.offset, fault))
    }

    /// Moves to the position after a block.
    fn step(&mut self, found: &FoundBlock) {
        assert!(found.length > 0, "each step moves on");
        self.position = self.position.plus(found.length as u64);
        self.chain = Some(ExpectedBlock::after(found.sequence, &found.batch));
    }

    /// A lower bound of the recording's end: everything before it was valid once.
    fn known_end(&self) -> Position {
        match &self.bound {
            CursorBound::Live(progress) => progress.written(),
            _ => self.extent.known_end,
        }
    }

    /// The pause at the end of the files, before the bound.
    fn open_end(&self) -> Pause {
        match self.bound {
            CursorBound::End => Pause::Reached,
            _ => Pause::Live,
        }
    }

    /// Checks the block at the current position.
    fn look(&mut self) -> Result<BlockState, CursorError> {
        let known_end = self.known_end();
        if matches!(self.bound, CursorBound::Live(_)) && self.position >= known_end {
            return Ok(BlockState::End);
        }
        let Some(source) = &mut self.source else {
            return Ok(BlockState::End);
        };
        let offset = self.position.since(source.name.start);
        if offset + HEADER_LENGTH as u64 > self.length {
            self.length = source.view.length();
        }
        if offset >= self.length {
            return Ok(BlockState::End);
        }
        let fault = match self.check(offset)? {
            Ok(found) => return Ok(BlockState::Block(found)),
            Err(fault) => fault,
        };
        self.classify(offset, fault, known_end)
    }

    /// Checks the block at `offset` of the open segment.
    fn check(&mut self, offset: u64) -> Result<Result<FoundBlock, BlockDamage>, CursorError> {
        let (Some(source), Some(chain)) = (&mut self.source, &self.chain) else {
            return Ok(Err(BlockDamage::Block(Defect::Short {
                needed: 0,
                there: 0,
            })));
        };
        let mut header = source
            .view
            .header(offset, Some(chain.sequence), self.length);
        if let Ok(Err(Defect::Short { .. })) = header {
            self.length = source.view.length();
            header = source
                .view
                .header(offset, Some(chain.sequence), self.length);
        }
        let checked = header.and_then(|header| {
            let header = match header {
                Ok(header) => header,
                Err(defect) => return Ok(Err(BlockDamage::Block(defect))),
            };
            let length = header.block_length() as usize;
            let block = source.view.bytes(offset, length, self.length)?;
            let batch = match self.checker.check(&header, &block[HEADER_LENGTH..], chain) {
                Ok(batch) => batch,
                Err(fault) => return Ok(Err(fault)),
            };
            self.last = Some((offset, header));
            Ok(Ok(FoundBlock {
                offset,
                length,
                sequence: header.sequence,
                batch,
            }))
        });
        match checked {
            // The file was shortened after it was measured.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.length = source.view.length().min(self.length);
                let there = self.length.saturating_sub(offset);
                Ok(Err(BlockDamage::Block(Defect::Short {
                    needed: there + 1,
                    there,
                })))
            }
            checked => checked.map_err(|error| system("read", &source.path, offset, error)),
        }
    }

    /// Decides whether the invalid block at `offset` is damage or still being written; `fault` is why it is invalid.
    fn classify(
        &mut self,
        offset: u64,
        fault: BlockDamage,
        known_end: Position,
    ) -> Result<BlockState, CursorError> {
        let BlockDamage::Block(defect) = fault else {
            return Err(self.damage(offset, fault));
        };
        // A block that was valid once is damaged, and an interrupted write cannot leave a block of another recording.
        if self.position < known_end || matches!(defect, Defect::Recording { .. }) {
            return Err(self.damage(offset, fault));
        }
        if self.torn == Some((offset, self.length)) {
            return Ok(BlockState::Partial);
        }
        let name = self.source.as_ref().map(|source| source.name);
        let is_followed = match name {
            Some(name) => self.has_later_segment(name)?,
            None => false,
        };
        let is_evidence = is_followed
            || !matches!(defect, Defect::Short { .. }) && self.has_newer_block(offset)?;
        // Check again, with fresh bytes: if something newer was seen, then a block that was incomplete before is complete
        // now. Only if it is still invalid is it damaged.
        if let Some(source) = &mut self.source {
            source.view.forget(offset);
        }
        match self.check(offset)? {
            Ok(found) => Ok(BlockState::Block(found)),
            Err(fault) if is_evidence => Err(self.damage(offset, fault)),
            Err(_) => {
                if let Some(source) = &mut self.source {
                    source.view.forget(offset);
                }
                self.torn = Some((offset, self.length));
                Ok(BlockState::Partial)
            }
        }
    }

    /// Does a newer block follow the invalid one at `offset` in the open segment?
    fn has_newer_block(&self, offset: u64) -> Result<bool, CursorError> {
        let (Some(source), Some(chain)) = (&self.source, &self.chain) else {
            return Ok(false);
        };
        let walker = Walker::new(source.view.disk(), offset).expecting(chain.sequence);
        let mut walker = walker.of_recording(self.extent.tag);
        match walker.next_block() {
            Ok(_) => Ok(false),
            // Recovery does not cut off valid blocks, also if nothing was synced in between, so this is no torn tail.
            Err(WalkError::Torn(torn)) => Ok(torn.unordered > 0),
            Err(WalkError::Damaged(_) | WalkError::Version { .. }) => Ok(true),
            Err(WalkError::Fault {
                offset,
                cause: error,
            }) => Err(system("read", &source.path, offset, error)),
        }
    }

    /// The messages of a checked block that are in the range.
    fn trim(&mut self, found: &FoundBlock) -> Result<MessageRange, CursorError> {
        let Some(source) = &mut self.source else {
            return Ok(MessageRange::NONE);
        };
        let start = source.name.start.plus(found.offset);
        let end = start.plus(found.length as u64);
        let all = MessageRange::all(found.length, &found.batch);
        if self.origin == Origin::Start && end <= self.until {
            return Ok(all);
        }
        let bytes = source
            .view
            .bytes(found.offset, found.length, self.length)
            .map_err(|error| system("read", &source.path, found.offset, error))?;
        let from = match self.origin {
            Origin::Position(from) => from.since(start).min(found.length as u64),
            _ => 0,
        };
        let to = self.until.since(start).min(found.length as u64);
        let trim = MessageRange::offsets(bytes, from as usize, to as usize);
        let trim = match self.origin {
            Origin::Time(time) if found.batch.time < time => return Ok(MessageRange::NONE),
            Origin::Message(number) if number > found.batch.first_message => {
                let before = number - found.batch.first_message;
                trim.without(bytes, u32::try_from(before).unwrap_or(u32::MAX))
            }
            _ => trim,
        };
        let is_begun = match self.origin {
            Origin::Position(from) => from <= end,
            _ => trim.messages > 0,
        };
        if is_begun {
            self.origin = Origin::Start;
        }
        Ok(trim)
    }

    /// Moves to the next segment; false if there is none yet, with the reason in [`Cursor::pause`].
    fn next_segment(&mut self) -> Result<bool, CursorError> {
        if let CursorBound::Live(progress) = &self.bound {
            // The state first: whatever was written before the stop is then seen, and read before the stop is reported.
            let stopped = progress.is_stopped();
            if self.position >= progress.written() {
                self.pause = if stopped { Pause::Stopped } else { Pause::Live };
                return Ok(false);
            }
        }
        match self.enter_next()? {
            SegmentEntry::Yes => Ok(true),
            SegmentEntry::Partly => {
                self.pause = self.open_end();
                Ok(false)
            }
            SegmentEntry::Missing(path) if self.position < self.known_end() => {
                Err(self.gone(Some(path))?)
            }
            SegmentEntry::Missing(path) => {
                let name = SegmentName {
                    recording: self.recording,
                    start: self.position,
                };
                if !self.has_later_segment(name)? {
                    return self.consult_catalog();
                }
                // A later segment exists. Everything before it was written first, so it must exist by now.
                match self.enter_next()? {
                    SegmentEntry::Yes => Ok(true),
                    SegmentEntry::Partly | SegmentEntry::Missing(_) => Err(self.gone(Some(path))?),
                }
            }
        }
    }

    /// Continues in the open segment if it has grown, else enters the segment that starts at its end.
    fn enter_next(&mut self) -> Result<SegmentEntry, CursorError> {
        if let Some(source) = &self.source {
            self.length = source.view.length();
            if self.position.since(source.name.start) < self.length {
                return Ok(SegmentEntry::Yes);
            }
        }
        if self.reopen()? {
            return Ok(SegmentEntry::Yes);
        }
        self.enter(self.position)
    }

    /// Opens the segment that starts at `start` and checks its first block.
    fn enter(&mut self, start: Position) -> Result<SegmentEntry, CursorError> {
        let name = SegmentName {
            recording: self.recording,
            start,
        };
        let mut source =
            match OpenSegment::open(&*self.storage, &self.folder, name, self.extent.tag) {
                Ok(source) => source,
                Err((path, error)) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(SegmentEntry::Missing(path));
                }
                Err((path, error)) => return Err(system("open", &path, 0, error)),
            };
        let mut length = source.view.length();
        let mut read = source.first(self.chain.as_ref(), length);
        let is_last = !self.has_later_segment(name)?;
        // Is the first block still being written? A batch is written only after the first block is durable, so the file is
        // no longer than that then.
        let is_begun = |read: &io::Result<Result<FirstBlock, BlockDamage>>, length: u64| match read
        {
            Ok(Err(BlockDamage::Block(Defect::Sequence { .. } | Defect::Recording { .. }))) => {
                false
            }
            Ok(Err(BlockDamage::Block(_))) => length <= SEGMENT_BLOCK_LENGTH,
            _ => false,
        };
        if matches!(read, Ok(Err(BlockDamage::Block(_)))) && start >= self.known_end() {
            // Read again: a block that was incomplete before may be complete now.
            source.view.forget(0);
            length = source.view.length();
            read = source.first(self.chain.as_ref(), length);
            if is_last && is_begun(&read, length) {
                return Ok(SegmentEntry::Partly);
            }
        }
        let first = match read {
            Ok(Ok(first)) => match self.extent.check_first(&first) {
                Ok(()) => first,
                Err(fault) => return Err(damage(&source.path, start, 0, fault)),
            },
            Ok(Err(fault)) => return Err(damage(&source.path, start, 0, fault)),
            Err(error) => return Err(system("read", &source.path, 0, error)),
        };
        let settled = self.settled(&first, length, is_last);
        let mapped = source.view.map(settled);
        mapped.map_err(|error| system("map", &source.path, 0, error))?;
        self.length = length;
        self.source = Some(source);
        self.position = start.plus(first.block.block_length());
        self.chain = Some(first.next());
        self.last = Some((0, first.block));
        self.torn = None;
        Ok(SegmentEntry::Yes)
    }

    /// The number of bytes of a segment that no recovery cuts off, and that may be mapped; in a live one of this process,
    /// including those still to be written.
    fn settled(&self, first: &FirstBlock, length: u64, is_last: bool) -> u64 {
        match &self.bound {
            CursorBound::Live(_) => {
                length.max(first.segment.segment_length.min(SEGMENT_LENGTH_MAX))
            }
            _ => self.extent.settled(first.segment.start, length, is_last),
        }
    }

    /// After the last block of a segment: checks that the next segment, which exists, continues it.
    pub(crate) fn check_next(&mut self) -> Result<(), CursorError> {
        match self.enter_next()? {
            SegmentEntry::Yes => Ok(()),
            SegmentEntry::Partly => Err(self.damage(
                0,
                BlockDamage::Block(Defect::Short {
                    needed: SEGMENT_BLOCK_LENGTH,
                    there: 0,
                }),
            )),
            SegmentEntry::Missing(path) => Err(self.gone(Some(path))?),
        }
    }

    /// Is there a segment after the one with this name?
    fn has_later_segment(&self, name: SegmentName) -> Result<bool, CursorError> {
        let names = segments(&*self.storage, &self.folder, self.recording)?;
        Ok(names.last().is_some_and(|last| *last > name))
    }

    /// Reads the catalog at the end of the files, if it has changed. True if more messages may exist now.
    fn consult_catalog(&mut self) -> Result<bool, CursorError> {
        self.pause = self.open_end();
        if self.pause == Pause::Reached {
            return Ok(false);
        }
        let mark = Extent::mark(&*self.storage, &self.folder)?;
        if mark != self.mark {
            let extent = Extent::read(&*self.storage, &self.folder, self.recording)?;
            let Some(extent) = extent else {
                return Err(self.gone(None)?);
            };
            (self.mark, self.extent) = (mark, extent);
        }
        if self.extent.start > self.position {
            return Err(self.gone(None)?);
        }
        match self.extent.stop() {
            Some(stop) if stop < self.position => Err(self.gone(None)?),
            Some(stop) if stop == self.position => {
                self.pause = Pause::Stopped;
                Ok(false)
            }
            // It was stopped at a later position, after the file was measured.
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Opens the file with the open segment's name again. A recording that was truncated after the current position and
    /// extended again has another file with this name, which is then used. True if it is longer than the open one.
    fn reopen(&mut self) -> Result<bool, CursorError> {
        let (Some(source), Some((offset, last))) = (&mut self.source, &self.last) else {
            return Ok(false);
        };
        let now =
            match OpenSegment::open(&*self.storage, &self.folder, source.name, self.extent.tag) {
                Ok(now) => now,
                // Purged after it was opened, which matters only if more of it is needed.
                Err((_, error)) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err((path, error)) => return Err(system("open", &path, 0, error)),
            };
        let mut bytes = [0; HEADER_LENGTH];
        let is_same = match now.view.disk().read_at(*offset, &mut bytes) {
            Ok(()) => bytes == last.encode(),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(system("read", &now.path, *offset, error)),
        };
        if !is_same {
            return Err(self.gone(None)?);
        }
        let length = now.view.length();
        let is_longer = length > self.length;
        if is_longer {
            (self.length, source.view) = (length, now.view);
        }
        Ok(is_longer)
    }

    /// The error for a missing continuation, from what has changed in the catalog; `missing` is the file looked for.
    fn gone(&self, missing: Option<PathBuf>) -> Result<CursorError, CursorError> {
        let (recording, position) = (self.recording, self.position);
        let Some(extent) = Extent::read(&*self.storage, &self.folder, recording)? else {
            return Ok(CursorError::Deleted {
                recording,
                position,
            });
        };
        let start = extent.start;
        Ok(match missing {
            _ if start > position => CursorError::Purged {
                recording,
                start,
                position,
            },
            Some(path) if extent.stop().is_none_or(|stop| stop > position) => {
                CursorError::Missing { path, position }
            }
            _ => CursorError::Truncated {
                recording,
                position,
            },
        })
    }

    /// The error for damage at `offset` of the open segment.
    fn damage(&self, offset: u64, fault: BlockDamage) -> CursorError {
        let (path, start) = match &self.source {
            Some(source) => (source.path.as_path(), source.name.start),
            None => (self.folder.as_path(), self.position),
        };
        damage(path, start, offset, fault)
    }
}

/// The result of entering a segment.
enum SegmentEntry {
    /// It is open.
    Yes,
    /// Its first block is being written.
    Partly,
    /// The file does not exist.
    Missing(PathBuf),
}

/// The error for damage of the segment at `path`, which starts at `start`.
fn damage(path: &Path, start: Position, offset: u64, fault: BlockDamage) -> CursorError {
    CursorError::Damaged {
        path: path.to_owned(),
        offset,
        position: start.plus(offset),
        fault,
    }
}

/// The error of a failed call of the operating system.
fn system(action: &'static str, path: &Path, offset: u64, source: io::Error) -> CursorError {
    CursorError::System {
        action,
        path: path.to_owned(),
        offset,
        source,
    }
}

#[cfg(test)]
mod tests;
