//! Logs of a machine: append-only byte sequences in segment files, read by position, truncated at the head.

use crate::storage::{DIRECT_UNIT, DirectWrites};
use crate::{DataFolder, Disk, Medium, Storage};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of a log and of its files: 1 to 32 characters out of `a-z`, `0-9` and `_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogName(&'static str);

/// Maximum length of a name.
const NAME_LENGTH_MAX: usize = 32;

impl LogName {
    /// The log of a machine with only one.
    pub const MAIN: LogName = LogName::new("log");

    /// Panics if the name is not valid; at compile time, for a constant.
    pub const fn new(name: &'static str) -> LogName {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty() && bytes.len() <= NAME_LENGTH_MAX);
        let mut place = 0;
        while place < bytes.len() {
            let byte = bytes[place];
            assert!(byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            place += 1;
        }
        LogName(name)
    }

    /// The name as text.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Path of a file that waits to become a segment.
    fn spare(self, folder: &Path, number: usize) -> PathBuf {
        folder.join(format!("{}.spare-{number}", self.0))
    }

    /// Path of the segment that starts at this position.
    fn segment(self, folder: &Path, start: u64) -> PathBuf {
        match start {
            0 => folder.join(self.0),
            _ => folder.join(format!("{}-{start:016x}", self.0)),
        }
    }

    /// Is this the name of a segment of the log?
    pub fn is_segment(self, file: &str) -> bool {
        self.start_of(file).is_some()
    }

    /// Is this the name of a file that waits to become a segment of the log?
    pub fn is_spare(self, file: &str) -> bool {
        let rest = file.strip_prefix(self.0);
        rest.is_some_and(|rest| rest.starts_with(".spare-"))
    }

    /// The start of the segment in this file; `None` if it is not a file of this log.
    fn start_of(self, file: &str) -> Option<u64> {
        let rest = file.strip_prefix(self.0)?;
        if rest.is_empty() {
            return Some(0);
        }
        let digits = rest.strip_prefix('-').filter(|it| it.len() == 16)?;
        let start = u64::from_str_radix(digits, 16).ok()?;
        // Each position has one spelling: no sign, no capitals, and position 0 no digits at all.
        (start > 0 && format!("{start:016x}") == digits).then_some(start)
    }
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A log that a machine appends to, one of [`Booted::logs`](crate::Booted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLog {
    /// Its name.
    pub name: LogName,
    /// Its end: the driver truncates the log there, and makes the truncation and the rest durable before the machine's first
    /// turn.
    pub end: u64,
    /// A segment of at least this many bytes is followed by a new one.
    pub segment_length: u64,
    /// Maximum number of removed segments whose files are kept and written over as new ones. If it is not 0, the last segment
    /// may have zeros and old bytes after its end, so the log's blocks must have increasing numbers by which recovery
    /// distinguishes them (those of `seatrial_blocks` do).
    pub spares_max: usize,
    /// Appends that are written past the system's page cache. Whole units are for a log whose appends are synced one by one and
    /// hardly ever read, all of a multiple of [`DIRECT_UNIT`] bytes: they never write a sector again that has durable bytes.
    pub direct: DirectWrites,
}

/// Default length of a segment, in bytes.
pub const SEGMENT_LENGTH: u64 = 64 << 20;

impl OpenLog {
    /// With segments of [`SEGMENT_LENGTH`].
    pub const fn new(name: LogName, end: u64) -> OpenLog {
        OpenLog {
            name,
            end,
            segment_length: SEGMENT_LENGTH,
            spares_max: 0,
            direct: DirectWrites::Never,
        }
    }
}

/// Maximum number of zeros that are written after the end of a log that reuses segments.
const AHEAD_MAX: u64 = 1 << 20;

/// One file of a log.
#[derive(Clone, Debug)]
struct LogSegment {
    start: u64,
    length: u64,
    path: PathBuf,
    medium: Arc<dyn Medium>,
}

impl LogSegment {
    const fn end(&self) -> u64 {
        self.start + self.length
    }
}

/// A log as it can be read: a [`Disk`] whose offsets are positions of the log, from [`LogView::start`] to its length. Nothing is
/// held in memory but the list of its segments, each of which is an open file.
///
/// It is a view of the files at the moment of [`LogView::open`]. Bytes that were appended and are not durable yet may be in it.
#[derive(Clone, Debug)]
pub struct LogView {
    name: LogName,
    segments: Vec<LogSegment>,
}

impl LogView {
    /// Opens the segments of a log in a folder; a log without files is empty. Overlapping segments are an error. A missing
    /// segment is detected by the read that needs it.
    pub fn open(storage: &dyn Storage, folder: &Path, name: LogName) -> io::Result<LogView> {
        LogView::open_with(storage, folder, name, |path| storage.open(path))
    }

    /// Opens a log to read pieces that are far from each other ([`Storage::open_scattered`]).
    pub fn open_scattered(
        storage: &dyn Storage,
        folder: &Path,
        name: LogName,
    ) -> io::Result<LogView> {
        LogView::open_with(storage, folder, name, |path| storage.open_scattered(path))
    }

    /// Opens a log that is written directly ([`OpenLog::direct`]) to read it once: long reads go past the system's page cache,
    /// which does not have it.
    pub fn open_direct(storage: &dyn Storage, folder: &Path, name: LogName) -> io::Result<LogView> {
        LogView::open_with(storage, folder, name, |path| {
            storage.open_direct(path, DirectWrites::WholeUnits)
        })
    }

    fn open_with(
        storage: &dyn Storage,
        folder: &Path,
        name: LogName,
        open: impl Fn(&Path) -> io::Result<Arc<dyn Medium>>,
    ) -> io::Result<LogView> {
        let files = storage.list(folder)?;
        let mut starts: Vec<u64> = files.iter().filter_map(|it| name.start_of(it)).collect();
        starts.sort_unstable();
        let mut segments: Vec<LogSegment> = Vec::with_capacity(starts.len());
        for start in starts {
            let path = name.segment(folder, start);
            let medium = match open(&path) {
                Ok(medium) => medium,
                // The head was truncated meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound && segments.is_empty() => {
                    continue;
                }
                Err(error) => return Err(in_file(&path, &error)),
            };
            let length = medium.len();
            if let Some(last) = segments.last().filter(|last| last.end() > start) {
                let (before, end) = (last.path.display(), last.end());
                let text =
                    format!("{before} ends at {end}, after the start of the next segment, {start}");
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            segments.push(LogSegment {
                start,
                length,
                path,
                medium,
            });
        }
        Ok(LogView { name, segments })
    }

    /// The first position of the log: everything before it was truncated.
    pub fn start(&self) -> u64 {
        self.segments.first().map_or(0, |it| it.start)
    }

    fn unreadable(&self, kind: ErrorKind, offset: u64, what: &str) -> io::Error {
        let (name, start, end) = (self.name, self.start(), self.len());
        let text =
            format!("log {name} has no bytes at {offset}: {what} (it is from {start} to {end})");
        io::Error::new(kind, text)
    }
}

impl Disk for LogView {
    fn len(&self) -> u64 {
        self.segments.last().map_or(0, LogSegment::end)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let next = self.segments.partition_point(|it| it.start <= at);
            let Some(segment) = next.checked_sub(1).map(|last| &self.segments[last]) else {
                return Err(self.unreadable(ErrorKind::NotFound, at, "truncated"));
            };
            let there = segment.end().saturating_sub(at).min(rest.len() as u64) as usize;
            if there == 0 {
                let is_end = next == self.segments.len();
                let (kind, what) = if is_end {
                    (ErrorKind::UnexpectedEof, "after its end")
                } else {
                    (ErrorKind::InvalidData, "a segment is missing")
                };
                return Err(self.unreadable(kind, at, what));
            }
            let (part, following) = rest.split_at_mut(there);
            let read = segment.medium.read_at(at - segment.start, part);
            read.map_err(|error| in_file(&segment.path, &error))?;
            (at, rest) = (at + there as u64, following);
        }
        Ok(())
    }
}

/// Reads a log that is being appended to, for jobs: by position, without a view of its end. Segments are opened when they are
/// first needed and stay open until [`LogReader::forget`] is called.
#[derive(Debug)]
pub struct LogReader {
    data: DataFolder,
    name: LogName,
    /// The open segments, by their first position.
    segments: Mutex<BTreeMap<u64, Arc<dyn Medium>>>,
    /// What is before this position may be gone, its files written over.
    freed: AtomicU64,
}

impl LogReader {
    /// A reader of a log of this folder.
    pub fn new(data: DataFolder, name: LogName) -> LogReader {
        LogReader {
            data,
            name,
            segments: Mutex::default(),
            freed: AtomicU64::new(0),
        }
    }

    /// Reads bytes that the driver has reported as written, and that lie in one append.
    pub fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read(position, buffer)?;
        // After the read: the file may have become another segment meanwhile, and the bytes those of another position.
        if position < self.freed.load(Ordering::Acquire) {
            return Err(freed());
        }
        Ok(())
    }

    fn read(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        if let Some((start, medium)) = self.segment(position)
            && medium.read_at(position - start, buffer).is_ok()
        {
            return Ok(());
        }
        // A segment that was begun since, or is not open yet.
        self.refresh()?;
        let (start, medium) = self.segment(position).ok_or_else(freed)?;
        medium.read_at(position - start, buffer)
    }

    /// Nothing before this position is read any more; to be called before the driver frees it. Closes all segments: an open one
    /// that is freed may become another segment.
    pub fn forget(&self, position: u64) {
        self.freed.fetch_max(position, Ordering::Release);
        self.lock().clear();
    }

    fn segment(&self, position: u64) -> Option<(u64, Arc<dyn Medium>)> {
        let segments = self.lock();
        let (start, medium) = segments.range(..=position).next_back()?;
        Some((*start, Arc::clone(medium)))
    }

    fn refresh(&self) -> io::Result<()> {
        let log = self.data.log(self.name)?;
        let opened = log.segments.into_iter();
        *self.lock() = opened.map(|it| (it.start, it.medium)).collect();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Medium>>> {
        // No statement under the lock can panic half-way, so a poisoned lock is harmless.
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a segment to append to, after creating it if it is new.
fn open_segment(
    storage: &dyn Storage,
    path: &Path,
    is_new: bool,
    direct: DirectWrites,
) -> io::Result<Arc<dyn Medium>> {
    let opened = match (is_new, direct) {
        (true, DirectWrites::Never) => storage.create(path),
        (false, DirectWrites::Never) => storage.open_write(path),
        (true, _) => storage
            .create(path)
            .and_then(|_| storage.open_direct(path, direct)),
        (false, _) => storage.open_direct(path, direct),
    };
    opened.map_err(|error| in_file(path, &error))
}

fn freed() -> io::Error {
    io::Error::new(ErrorKind::NotFound, "this part of the log was freed")
}

/// Adds the file to an error.
pub(crate) fn in_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Appends to a log, for a driver: `host` and `sim` carry [`Output::Append`] and [`Output::TruncateHead`] out with it, over
/// their own [`Storage`].
///
/// Files: the segment from position 0 has the log's name, every other one the name, `-` and its first position in 16
/// hexadecimal digits. A new segment begins when the one before it is full and synced, and its name is made durable before
/// anything is written to it, so only the end of the last segment can be torn. Segments are removed from the oldest on, each
/// removal made durable before the next, so the remaining segments never have a gap. An append is never split.
///
/// With [`OpenLog::spares_max`] the file of a removed segment is kept, as `log.spare-0` and so on, and becomes the next new
/// segment: a sync of bytes that replace others has no metadata to write, and on journaling file systems takes a fraction of
/// the time of one after a file grew. Such a file has the old bytes until they are written over; before the next segment begins
/// they are cut off, so they can only follow the end of the log. A file that grows all the same, by short appends, grows by
/// zeros for many of them at a time.
///
/// A failed call leaves the log in an unknown state: every later call fails too.
///
/// [`Output::Append`]: crate::Output::Append
/// [`Output::TruncateHead`]: crate::Output::TruncateHead
#[derive(Debug)]
pub struct LogWriter {
    storage: Arc<dyn Storage>,
    folder: PathBuf,
    name: LogName,
    segment_length: u64,
    /// Starts of the segments, oldest first; never empty.
    starts: VecDeque<u64>,
    /// The last segment, and its length.
    medium: Arc<dyn Medium>,
    length: u64,
    /// Bytes of the last segment's file: old ones and zeros follow `length`.
    file_length: u64,
    /// Numbers of the spare files; at most `spares_max`.
    spares: Vec<usize>,
    spares_max: usize,
    direct: DirectWrites,
    is_synced: bool,
    has_failed: bool,
}

impl LogWriter {
    /// Opens a log and truncates it at its end; creates it if it is missing. Durable when this returns.
    pub fn open(storage: &Arc<dyn Storage>, folder: &Path, log: OpenLog) -> io::Result<LogWriter> {
        let (name, end) = (log.name, log.end);
        let found = LogView::open(&**storage, folder, name)?;
        if !(found.start()..=found.len()).contains(&end) {
            return Err(found.unreadable(
                ErrorKind::InvalidInput,
                end,
                "its boot returned this end",
            ));
        }
        let mut starts: VecDeque<u64> = found.segments.iter().map(|it| it.start).collect();
        // Newest first, so that a crash leaves no gap.
        while let Some(&last) = starts.back().filter(|&&last| last > end) {
            storage.remove(&name.segment(folder, last))?;
            storage.sync_folder(folder)?;
            starts.pop_back();
        }
        let start = starts.back().copied().unwrap_or(0);
        let path = name.segment(folder, start);
        let is_new = starts.is_empty();
        if is_new {
            starts.push_back(0);
        }
        let medium = open_segment(&**storage, &path, is_new, log.direct)?;
        // A process that was killed may have created the file without syncing its name.
        storage.sync_folder(folder)?;
        let length = end - start;
        let there = medium.len();
        let cut = if there > length {
            medium.set_len(length)
        } else {
            Ok(())
        };
        // A process that was killed may have written these bytes without syncing them, and replies will depend on them from now
        // on. An empty file has none to lose.
        let synced = cut.and_then(|()| if there > 0 { medium.sync() } else { Ok(()) });
        synced.map_err(|error| in_file(&path, &error))?;
        let files = storage.list(folder)?;
        let is_spare = |number: &usize| {
            let path = name.spare(folder, *number);
            files.iter().any(|file| path.ends_with(file))
        };
        let spares: Vec<usize> = (0..log.spares_max).filter(is_spare).collect();
        Ok(LogWriter {
            storage: Arc::clone(storage),
            folder: folder.to_owned(),
            name,
            segment_length: log.segment_length.max(1),
            starts,
            medium,
            length,
            file_length: length,
            spares,
            spares_max: log.spares_max,
            direct: log.direct,
            is_synced: true,
            has_failed: false,
        })
    }

    /// The first position of the log.
    pub fn start(&self) -> u64 {
        self.starts.front().copied().unwrap_or(0)
    }

    /// The position after the last byte.
    pub fn end(&self) -> u64 {
        self.last_start() + self.length
    }

    /// The name.
    pub const fn name(&self) -> LogName {
        self.name
    }

    /// Path of the last segment.
    pub fn path(&self) -> PathBuf {
        self.name.segment(&self.folder, self.last_start())
    }

    fn last_start(&self) -> u64 {
        self.starts.back().copied().unwrap_or(0)
    }

    /// Appends bytes; they are durable once [`LogWriter::sync`] has returned.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.append_all(&[bytes])
    }

    /// Appends each of these, in as few writes as their storage can: one for all that are in the same segment.
    pub fn append_all(&mut self, appends: &[&[u8]]) -> io::Result<()> {
        self.usable()?;
        let appended = self.write(appends);
        self.has_failed = appended.is_err();
        appended
    }

    fn write(&mut self, mut appends: &[&[u8]]) -> io::Result<()> {
        while !appends.is_empty() {
            if self.length >= self.segment_length {
                self.roll()?;
            }
            let (count, bytes) = self.room(appends);
            let (now, later) = appends.split_at(count);
            self.medium.write_all_at(self.length, now)?;
            self.length += bytes;
            self.is_synced = false;
            if self.length > self.file_length {
                self.file_length = self.length;
                self.write_ahead(bytes)?;
            }
            appends = later;
        }
        Ok(())
    }

    /// The number of the appends that belong to the last segment, which is not full, and their bytes.
    fn room(&self, appends: &[&[u8]]) -> (usize, u64) {
        let (mut count, mut bytes) = (0, 0);
        for &append in appends {
            if self.length + bytes >= self.segment_length {
                break;
            }
            count += 1;
            bytes += append.len() as u64;
        }
        assert!(count > 0 || appends.is_empty(), "the last segment is full");
        (count, bytes)
    }

    /// Writes zeros after the end, if a file that grew will probably grow by many more appends of this length: the same sync
    /// makes them durable, and the next syncs have no metadata to write.
    fn write_ahead(&mut self, appended: u64) -> io::Result<()> {
        let ahead = (self.segment_length / 4).min(AHEAD_MAX);
        let end = (self.length + ahead).min(self.segment_length);
        if self.spares_max > 0 && appended <= ahead / 4 && end > self.length {
            let mut zeros = (end - self.length) as usize;
            if self.direct == DirectWrites::WholeUnits {
                zeros = zeros.next_multiple_of(DIRECT_UNIT);
            }
            self.medium.write_at(self.length, &vec![0; zeros])?;
            self.file_length = self.length + zeros as u64;
        }
        Ok(())
    }

    /// Begins a new segment. The previous one is complete and durable before: recovery searches for torn bytes in the last one
    /// only.
    fn roll(&mut self) -> io::Result<()> {
        let has_old_bytes = self.cut_old_bytes()?;
        if has_old_bytes || !self.is_synced {
            self.medium.sync()?;
        }
        let start = self.end();
        let path = self.name.segment(&self.folder, start);
        let spare = self.spares.pop();
        if let Some(spare) = spare {
            let spare = self.name.spare(&self.folder, spare);
            self.storage.rename(&spare, &path)?;
        }
        self.medium = open_segment(&*self.storage, &path, spare.is_none(), self.direct)?;
        self.storage.sync_folder(&self.folder)?;
        self.starts.push_back(start);
        (self.length, self.is_synced) = (0, true);
        self.file_length = self.medium.len();
        Ok(())
    }

    /// Cuts off what the file of the last segment had before it was reused. False: there is nothing.
    fn cut_old_bytes(&mut self) -> io::Result<bool> {
        let has_old_bytes = self.file_length > self.length;
        if has_old_bytes {
            self.medium.set_len(self.length)?;
            self.file_length = self.length;
        }
        Ok(has_old_bytes)
    }

    /// Ends an orderly life: the files have nothing after the end of the log, so that the next start finds nothing to cut off.
    pub fn close(mut self) -> io::Result<()> {
        self.usable()?;
        self.cut_old_bytes().map(|_| ())
    }

    /// Makes all appended bytes durable. A failure is final.
    pub fn sync(&mut self) -> io::Result<()> {
        self.usable()?;
        let synced = self.medium.sync();
        self.has_failed = synced.is_err();
        self.is_synced = synced.is_ok();
        synced
    }

    /// Removes the segments that end before `position`, but never the last one; returns the new start. With
    /// [`OpenLog::spares_max`] the files of some stay, as spares.
    pub fn truncate_head(&mut self, position: u64) -> io::Result<u64> {
        self.usable()?;
        while self.starts.get(1).is_some_and(|&next| next <= position) {
            let oldest = self.name.segment(&self.folder, self.start());
            let removed = match self.free_spare() {
                Some(number) => {
                    let spare = self.name.spare(&self.folder, number);
                    let renamed = self.storage.rename(&oldest, &spare);
                    self.spares.push(number);
                    renamed
                }
                None => self.storage.remove(&oldest),
            };
            let removed = removed.and_then(|()| self.storage.sync_folder(&self.folder));
            self.has_failed = removed.is_err();
            removed?;
            self.starts.pop_front();
        }
        Ok(self.start())
    }

    /// The number of a spare file that is missing; `None`: there are enough.
    fn free_spare(&self) -> Option<usize> {
        (0..self.spares_max).find(|number| !self.spares.contains(number))
    }

    fn usable(&self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other(
                "an earlier write or sync of this log failed",
            ));
        }
        Ok(())
    }
}
