//! Reading a recording: from any place, to its end or on into what is being recorded.
//!
//! A [`Cursor`] lends one checked block after the other, at the pace of whoever asks. It takes no lock, so any number of
//! them read beside one writer, in its process ([`Bound::Live`]) or in another ([`Bound::Follow`]).

mod extent;
mod frames;
mod replay;
mod seek;
mod source;

pub(crate) use extent::Extent;
use extent::Mark;
pub use frames::{Message, Messages};
pub(crate) use replay::{Chain, Checker};
pub use replay::{ContentError, Fault, ReplayBlock};
pub(crate) use seek::{Steps, segments};
pub(crate) use source::{First, Source, View};

use crate::block::{BlockHeader, Defect, HEADER_LENGTH};
use crate::catalog::CatalogError;
use crate::recording::Progress;
use crate::segment::{SEGMENT_BLOCK_LENGTH, SEGMENT_LENGTH_MAX, SegmentName};
use crate::walk::{WalkError, Walker};
use crate::{BatchHeader, Position, RecordingId};
use replay::Trim;
use seatrial_machine::Storage;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The first message that is there.
    Start,
    /// The first message at or behind this position.
    Position(Position),
    /// The first message in a batch written at this time or later, in nanoseconds since 1970.
    Time(u64),
    /// The message with this number.
    Message(u64),
    /// What comes after all that is there when the cursor is opened.
    End,
}

impl From<Position> for Origin {
    fn from(position: Position) -> Origin {
        Origin::Position(position)
    }
}

/// Where a replay ends.
#[derive(Clone, Debug)]
pub enum Bound {
    /// Before the first message at or behind this position, which may not have been recorded yet.
    To(Position),
    /// Where the recording ends when the cursor is opened.
    End,
    /// Nowhere: goes on into what the writer in this process appends.
    Live(Arc<Progress>),
    /// Nowhere: goes on into what another process appends, by looking at the files again.
    Follow,
}

/// Why [`Cursor::next_block`] had nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The bound is reached: there will be nothing more.
    Reached,
    /// All that was recorded so far has been read, and more may come.
    Live,
    /// All was read and the recording was stopped here: more comes only if it is extended.
    Stopped,
}

/// Why a recording cannot be read there.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// There is no archive.
    #[error("{folder} holds no archive")]
    NoArchive {
        /// The folder.
        folder: PathBuf,
    },
    /// The catalog cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Not in the catalog.
    #[error("the archive has no recording {recording}")]
    NoRecording {
        /// What was asked for.
        recording: RecordingId,
    },
    /// The recording does not reach back to there.
    #[error("recording {recording} begins at {start}, position {from} was asked for")]
    BeforeStart {
        /// The recording.
        recording: RecordingId,
        /// Where it begins.
        start: Position,
        /// What was asked for.
        from: Position,
    },
    /// The recording does not reach back to there.
    #[error("recording {recording} begins with message {first}, number {asked} was asked for")]
    BeforeFirst {
        /// The recording.
        recording: RecordingId,
        /// Its first message.
        first: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The recording has not got there.
    #[error("recording {recording} ends at {end}, position {from} was asked for")]
    BehindEnd {
        /// The recording.
        recording: RecordingId,
        /// Where it ends.
        end: Position,
        /// What was asked for.
        from: Position,
    },
    /// The recording was deleted under the reader.
    #[error("recording {recording} was deleted; its reader was at {position}")]
    Deleted {
        /// The recording.
        recording: RecordingId,
        /// How far it was read.
        position: Position,
    },
    /// The segments that come next were purged or detached under the reader.
    #[error("recording {recording} begins at {start} now; its reader was at {position}")]
    Purged {
        /// The recording.
        recording: RecordingId,
        /// Where it begins now.
        start: Position,
        /// How far it was read.
        position: Position,
    },
    /// The recording was truncated to a position before that of the reader.
    #[error("recording {recording} was truncated; its reader was at {position}")]
    Truncated {
        /// The recording.
        recording: RecordingId,
        /// How far it was read.
        position: Position,
    },
    /// A segment that the catalog knows of is not there.
    #[error("{path} is not there; position {position} should be in it")]
    Missing {
        /// The file.
        path: PathBuf,
        /// How far the recording was read.
        position: Position,
    },
    /// The operating system refused.
    #[error("cannot {action} {path} at {offset}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The recording is damaged here.
    #[error("{path} is damaged at {offset} (position {position}): {fault}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// The same as a position of the recording.
        position: Position,
        /// What is wrong, with expected and found values.
        fault: Fault,
    },
}

/// A place in a recording, and what is needed to go on from there. It owns one open segment (a view of its file, or one
/// buffer) and the place of the next block; a block is lent until the next call. Every block is checked before it is
/// lent: its checksum, that it continues the one before (block number, message number, time), the bounds and padding of
/// its frames, and the frames' own checksums.
///
/// An error changes nothing, so the next call tries again. A block that is not yet whole at the live end is not an
/// error: there is nothing yet. If segments are truncated, purged or deleted under it, it lends the old bytes of the files
/// that it has open, or says what happened.
///
/// Its downside: to begin in the middle of a segment it steps over the headers of the blocks before, one read of
/// 4 KiB for each that is longer than that.
///
/// Files of which bytes may still be cut off by a recovery (the last segment when another process writes it) are
/// read, not mapped, so that a cut is never a signal.
#[derive(Debug)]
pub struct Cursor {
    storage: Arc<dyn Storage>,
    folder: PathBuf,
    recording: RecordingId,
    bound: Bound,
    /// Messages at or behind it are not lent.
    until: Position,
    /// What of the recording the catalog said when it was looked at last.
    extent: Extent,
    /// By what a change of the catalog is seen.
    mark: Mark,
    /// Messages before it are not lent.
    origin: Origin,
    /// The open segment; none before the first one is there.
    source: Option<Source>,
    /// Bytes of its file when they were last counted.
    length: u64,
    /// Where the next block starts.
    position: Position,
    /// What it has to continue; unknown before the first segment is there.
    chain: Option<Chain>,
    /// The block before: offset and header. By it a segment that was replaced is told from the one that is open.
    last: Option<(u64, BlockHeader)>,
    /// A tail that was found torn: its offset and the file's length then.
    torn: Option<(u64, u64)>,
    pause: Pause,
    checker: Checker,
}

/// A block that was checked and is about to be lent.
struct Found {
    offset: u64,
    length: usize,
    sequence: u64,
    batch: BatchHeader,
}

/// What is at the place of the next block.
enum Look {
    Block(Found),
    /// The file ends here, or the writer has not promised more.
    End,
    /// Not whole yet.
    Partial,
}

impl Cursor {
    /// Opens recording `recording` of the archive in `folder`. `from` is a [`Position`] or another [`Origin`].
    pub fn open(
        storage: Arc<dyn Storage>,
        folder: &Path,
        recording: RecordingId,
        from: impl Into<Origin>,
        bound: Bound,
    ) -> Result<Cursor, CursorError> {
        // In this order: what changes in between is looked at again.
        let mark = Extent::mark(&*storage, folder)?;
        let extent = Extent::read(&*storage, folder, recording)?
            .ok_or(CursorError::NoRecording { recording })?;
        let mut cursor = Cursor {
            position: extent.start,
            storage,
            folder: folder.to_owned(),
            recording,
            until: match bound {
                Bound::To(position) => position,
                Bound::End | Bound::Live(_) | Bound::Follow => Position(u64::MAX),
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
            checker: Checker::new(true),
        };
        cursor.seek(from.into())?;
        Ok(cursor)
    }

    /// Leaves out the frames' own checksums: that of the block covers every bit of them too.
    #[must_use]
    pub fn without_frame_checksums(mut self) -> Cursor {
        self.checker = Checker::new(false);
        self
    }

    /// The next block with messages of the range; nothing at its end, and at the live end, when more may come later:
    /// [`Cursor::pause`] says which.
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

    /// Frees the memory that reading ahead has taken; the next block is read again.
    pub fn release_buffer(&mut self) {
        if let Some(source) = &mut self.source {
            source.view.release();
        }
    }

    /// Why there was no block the last time.
    pub fn pause(&self) -> Pause {
        self.pause
    }

    /// A cursor opened from here lends what this one has not: no message is missed and none comes twice.
    pub fn position(&self) -> Position {
        let next = match self.origin {
            Origin::Position(position) => position.max(self.position),
            _ => self.position,
        };
        next.min(self.until)
    }

    /// Which recording.
    pub fn recording(&self) -> RecordingId {
        self.recording
    }

    /// Steps over the next block of which messages are asked for.
    fn advance(&mut self) -> Result<Option<(Found, Trim)>, CursorError> {
        loop {
            if self.position >= self.until {
                self.pause = Pause::Reached;
                return Ok(None);
            }
            match self.look()? {
                Look::Block(found) => {
                    self.check_end(&found)?;
                    let trim = self.trim(&found)?;
                    self.step(&found);
                    if trim.messages > 0 {
                        return Ok(Some((found, trim)));
                    }
                }
                Look::Partial => {
                    self.pause = self.open_end();
                    return Ok(None);
                }
                Look::End => {
                    if !self.step_on()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The last block of a stopped recording has to lead to the end that the catalog says.
    fn check_end(&self, found: &Found) -> Result<(), CursorError> {
        let after = self.position.plus(found.length as u64);
        if self.extent.stop() != Some(after) || matches!(self.bound, Bound::Live(_)) {
            return Ok(());
        }
        let after = Chain::after(found.sequence, &found.batch);
        let checked = self.extent.check_end(&after);
        checked.map_err(|fault| self.damage(found.offset, fault))
    }

    /// The next block is behind this one.
    fn step(&mut self, found: &Found) {
        self.position = self.position.plus(found.length as u64);
        self.chain = Some(Chain::after(found.sequence, &found.batch));
    }

    /// Everything before it was whole once.
    fn promised(&self) -> Position {
        match &self.bound {
            Bound::Live(progress) => progress.written(),
            _ => self.extent.promised,
        }
    }

    /// What there is to say when nothing more is there, though the bound is not reached.
    fn open_end(&self) -> Pause {
        match self.bound {
            Bound::End => Pause::Reached,
            _ => Pause::Live,
        }
    }

    /// Checks what is at the place of the next block.
    fn look(&mut self) -> Result<Look, CursorError> {
        let promised = self.promised();
        if matches!(self.bound, Bound::Live(_)) && self.position >= promised {
            return Ok(Look::End);
        }
        let Some(source) = &mut self.source else {
            return Ok(Look::End);
        };
        let offset = self.position.since(source.name.start);
        if offset + HEADER_LENGTH as u64 > self.length {
            self.length = source.view.length();
        }
        if offset >= self.length {
            return Ok(Look::End);
        }
        let fault = match self.check(offset)? {
            Ok(found) => return Ok(Look::Block(found)),
            Err(fault) => fault,
        };
        self.judge(offset, fault, promised)
    }

    /// Checks the block at `offset` of the open segment.
    fn check(&mut self, offset: u64) -> Result<Result<Found, Fault>, CursorError> {
        let (Some(source), Some(chain)) = (&mut self.source, &self.chain) else {
            return Ok(Err(Fault::Block(Defect::Short {
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
                Err(defect) => return Ok(Err(Fault::Block(defect))),
            };
            let length = header.block_length() as usize;
            let block = source.view.bytes(offset, length, self.length)?;
            let batch = match self.checker.check(&header, &block[HEADER_LENGTH..], chain) {
                Ok(batch) => batch,
                Err(fault) => return Ok(Err(fault)),
            };
            self.last = Some((offset, header));
            Ok(Ok(Found {
                offset,
                length,
                sequence: header.sequence,
                batch,
            }))
        });
        match checked {
            // The file was cut off after it was measured.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.length = source.view.length().min(self.length);
                let there = self.length.saturating_sub(offset);
                Ok(Err(Fault::Block(Defect::Short {
                    needed: there + 1,
                    there,
                })))
            }
            checked => checked.map_err(|error| system("read", &source.path, offset, error)),
        }
    }

    /// Damage, or only a block that is being written? `fault` is what is wrong at `offset`.
    fn judge(
        &mut self,
        offset: u64,
        fault: Fault,
        promised: Position,
    ) -> Result<Look, CursorError> {
        let Fault::Block(defect) = fault else {
            return Err(self.damage(offset, fault));
        };
        // No writer leaves a block of another recording.
        if self.position < promised || matches!(defect, Defect::Recording { .. }) {
            return Err(self.damage(offset, fault));
        }
        if self.torn == Some((offset, self.length)) {
            return Ok(Look::Partial);
        }
        let name = self.source.as_ref().map(|source| source.name);
        let is_followed = match name {
            Some(name) => self.is_behind(name)?,
            None => false,
        };
        let is_evidence = is_followed
            || !matches!(defect, Defect::Short { .. }) && self.is_newer_behind(offset)?;
        // What was being written a moment ago is whole now, if something newer is there.
        if let Some(source) = &mut self.source {
            source.view.forget(offset);
        }
        match self.check(offset)? {
            Ok(found) => Ok(Look::Block(found)),
            Err(fault) if is_evidence => Err(self.damage(offset, fault)),
            Err(_) => {
                if let Some(source) = &mut self.source {
                    source.view.forget(offset);
                }
                self.torn = Some((offset, self.length));
                Ok(Look::Partial)
            }
        }
    }

    /// Is there a newer block behind `offset`?
    fn is_newer_behind(&self, offset: u64) -> Result<bool, CursorError> {
        let (Some(source), Some(chain)) = (&self.source, &self.chain) else {
            return Ok(false);
        };
        let walker = Walker::new(source.view.disk(), offset).expecting(chain.sequence);
        let mut walker = walker.of_recording(self.extent.tag);
        match walker.next_block() {
            Ok(_) => Ok(false),
            // Newer blocks are whole though nothing was synced between: recovery does not cut them, so they are no tail.
            Err(WalkError::Torn(torn)) => Ok(torn.unordered > 0),
            Err(WalkError::Damaged(_) | WalkError::Version { .. }) => Ok(true),
            Err(WalkError::Fault {
                offset,
                source: error,
            }) => Err(system("read", &source.path, offset, error)),
        }
    }

    /// What of a checked block is asked for.
    fn trim(&mut self, found: &Found) -> Result<Trim, CursorError> {
        let Some(source) = &mut self.source else {
            return Ok(Trim::NONE);
        };
        let start = source.name.start.plus(found.offset);
        let end = start.plus(found.length as u64);
        let all = Trim::all(found.length, &found.batch);
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
        let trim = Trim::offsets(bytes, from as usize, to as usize);
        let trim = match self.origin {
            Origin::Time(time) if found.batch.time < time => return Ok(Trim::NONE),
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

    /// Goes on to the next segment; false when there is none yet, and then [`Cursor::pause`] says why.
    fn step_on(&mut self) -> Result<bool, CursorError> {
        if let Bound::Live(progress) = &self.bound {
            // In this order: what was written before the stop is read before the stop is told.
            let stopped = progress.is_stopped();
            if self.position >= progress.written() {
                self.pause = if stopped { Pause::Stopped } else { Pause::Live };
                return Ok(false);
            }
        }
        match self.enter_next()? {
            Entered::Yes => Ok(true),
            Entered::Partly => {
                self.pause = self.open_end();
                Ok(false)
            }
            Entered::Missing(path) if self.position < self.promised() => {
                Err(self.gone(Some(path))?)
            }
            Entered::Missing(path) => {
                let name = SegmentName {
                    recording: self.recording,
                    start: self.position,
                };
                if !self.is_behind(name)? {
                    return self.rest();
                }
                // A later segment is there. What comes before it was written first, so it has to be there by now.
                match self.enter_next()? {
                    Entered::Yes => Ok(true),
                    Entered::Partly | Entered::Missing(_) => Err(self.gone(Some(path))?),
                }
            }
        }
    }

    /// Goes on in the open segment, if it has grown since it was looked at, or else to the one that starts at its end.
    fn enter_next(&mut self) -> Result<Entered, CursorError> {
        if let Some(source) = &self.source {
            self.length = source.view.length();
            if self.position.since(source.name.start) < self.length {
                return Ok(Entered::Yes);
            }
        }
        if self.look_again()? {
            return Ok(Entered::Yes);
        }
        self.enter(self.position)
    }

    /// Opens the segment that starts at `start` and checks its first block.
    fn enter(&mut self, start: Position) -> Result<Entered, CursorError> {
        let name = SegmentName {
            recording: self.recording,
            start,
        };
        let mut source = match Source::open(&*self.storage, &self.folder, name, self.extent.tag) {
            Ok(source) => source,
            Err((path, error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Entered::Missing(path));
            }
            Err((path, error)) => return Err(system("open", &path, 0, error)),
        };
        let mut length = source.view.length();
        let mut read = source.first(self.chain.as_ref(), length);
        let is_last = !self.is_behind(name)?;
        // A batch is written only once the first block is durable.
        let is_begun = |read: &io::Result<Result<First, Fault>>, length: u64| match read {
            Ok(Err(Fault::Block(Defect::Sequence { .. } | Defect::Recording { .. }))) => false,
            Ok(Err(Fault::Block(_))) => length <= SEGMENT_BLOCK_LENGTH,
            _ => false,
        };
        if matches!(read, Ok(Err(Fault::Block(_)))) && start >= self.promised() {
            // What was being written a moment ago is whole now, if something newer is there.
            source.view.forget(0);
            length = source.view.length();
            read = source.first(self.chain.as_ref(), length);
            if is_last && is_begun(&read, length) {
                return Ok(Entered::Partly);
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
        Ok(Entered::Yes)
    }

    /// How many bytes of a segment nobody will cut off; in a live one of this process, with those that are still to come.
    fn settled(&self, first: &First, length: u64, is_last: bool) -> u64 {
        match &self.bound {
            Bound::Live(_) => length.max(first.segment.segment_length.min(SEGMENT_LENGTH_MAX)),
            _ => self.extent.settled(first.segment.start, length, is_last),
        }
    }

    /// After the last block of a segment: does the next one, which is there, continue it?
    pub(crate) fn check_next(&mut self) -> Result<(), CursorError> {
        match self.enter_next()? {
            Entered::Yes => Ok(()),
            Entered::Partly => Err(self.damage(
                0,
                Fault::Block(Defect::Short {
                    needed: SEGMENT_BLOCK_LENGTH,
                    there: 0,
                }),
            )),
            Entered::Missing(path) => Err(self.gone(Some(path))?),
        }
    }

    /// Is there a segment behind the one with this name?
    fn is_behind(&self, name: SegmentName) -> Result<bool, CursorError> {
        let names = segments(&*self.storage, &self.folder, self.recording)?;
        Ok(names.last().is_some_and(|last| *last > name))
    }

    /// Nothing more is there and nothing more was promised: looks at the catalog. True when there may be more by now.
    fn rest(&mut self) -> Result<bool, CursorError> {
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
            // It was stopped further on, after the file was looked at.
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Is the open segment, as far as it was read, still the file of its name? One that was truncated elsewhere and extended
    /// again has another file, which is gone on with: true when there is more in it.
    fn look_again(&mut self) -> Result<bool, CursorError> {
        let (Some(source), Some((offset, last))) = (&mut self.source, &self.last) else {
            return Ok(false);
        };
        let now = match Source::open(&*self.storage, &self.folder, source.name, self.extent.tag) {
            Ok(now) => now,
            // Purged behind the reader, which only matters if it needs more.
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

    /// Why what should come next is not there; `missing` is the file that was looked for.
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

    /// The open segment is damaged at `offset`.
    fn damage(&self, offset: u64, fault: Fault) -> CursorError {
        let (path, start) = match &self.source {
            Some(source) => (source.path.as_path(), source.name.start),
            None => (self.folder.as_path(), self.position),
        };
        damage(path, start, offset, fault)
    }
}

/// What came of going on to a segment.
enum Entered {
    Yes,
    /// Its first block is being written.
    Partly,
    /// There is no such file.
    Missing(PathBuf),
}

/// Damage of the segment at `path`, which starts at `start`.
fn damage(path: &Path, start: Position, offset: u64, fault: Fault) -> CursorError {
    CursorError::Damaged {
        path: path.to_owned(),
        offset,
        position: start.plus(offset),
        fault,
    }
}

/// A failure of the operating system.
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
