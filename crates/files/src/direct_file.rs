//! Files whose writes go past the page cache.

use crate::direct_reads::DirectReads;
use crate::real::RealFile;
use seatrial_machine::{DIRECT_UNIT, DirectWrites, Disk, Mapped, Medium};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of a direct write is aligned to this: no less than the blocks of any disk.
const MEMORY_ALIGNMENT: usize = 4_096;
/// Bytes of one direct read; longer ones are several.
pub(crate) const LENGTH_MAX: usize = 1 << 20;
/// The same of a write: a log has several blocks to write when the disk is late, and waits for it once.
const WRITE_LENGTH_MAX: usize = 4 << 20;
/// Shorter reads are ordinary ones.
const READ_LENGTH_MIN: usize = 64 << 10;
/// Shorter writes are not long ([`DirectWrites::Long`]).
const LONG_LENGTH_MIN: usize = 256 << 10;
/// A page of the cache. A direct write and an ordinary one beside it have none in common: the kernel would have to write the
/// page before the direct one, and to read it again after it.
const PAGE: usize = 4_096;

const _: () = assert!(LENGTH_MAX.is_multiple_of(DIRECT_UNIT));
const _: () = assert!(WRITE_LENGTH_MAX.is_multiple_of(DIRECT_UNIT));

/// A file with two descriptors: long reads and the writes that are to be direct go through `direct`, past the page cache;
/// everything else through `ordinary`. The kernel keeps both in agreement: it drops the cached pages of a direct write, and
/// writes cached ones before a direct read.
///
/// A disk with larger sectors, or a file system without direct writes, refuses them; from the first refusal on all writes and
/// reads are ordinary ones. Cost of a direct one: one copy, from or to aligned memory.
#[derive(Debug)]
pub(crate) struct DirectFile {
    ordinary: RealFile,
    direct: Arc<File>,
    writes: DirectWrites,
    /// `None` once a direct write or read was refused.
    memory: Mutex<Option<DirectMemory>>,
}

/// What direct writes and reads need.
#[derive(Debug, Default)]
struct DirectMemory {
    written: AlignedBuffer,
    reads: DirectReads,
}

/// Memory for one direct write or read.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer(Vec<u8>);

impl AlignedBuffer {
    /// `length` bytes at an aligned address.
    pub(crate) fn bytes(&mut self, length: usize) -> &mut [u8] {
        let needed = length + MEMORY_ALIGNMENT;
        if self.0.len() < needed {
            self.0 = vec![0; needed];
        }
        // Memory that cannot be aligned is still right: its writes are refused.
        let start = self.0.as_ptr().align_offset(MEMORY_ALIGNMENT);
        let start = start.min(MEMORY_ALIGNMENT);
        &mut self.0[start..start + length]
    }
}

impl DirectFile {
    /// Opens a second descriptor of this file. On a file system or a system without direct writes, the file itself.
    pub(crate) fn open(
        path: &Path,
        ordinary: RealFile,
        writes: DirectWrites,
    ) -> io::Result<Arc<dyn Medium>> {
        match open_direct(path) {
            Ok(direct) => Ok(Arc::new(DirectFile {
                ordinary,
                direct: Arc::new(direct),
                writes,
                memory: Mutex::new(Some(DirectMemory::default())),
            })),
            Err(error) if is_refusal(&error) => Ok(Arc::new(ordinary)),
            Err(error) => Err(error),
        }
    }

    /// Does something directly. False: that is refused, and nothing or a part of it was done, or it returned false.
    fn directly(
        &self,
        act: impl FnOnce(&mut DirectMemory) -> io::Result<bool>,
    ) -> io::Result<bool> {
        // A poisoned lock is harmless: the memory is filled before each use.
        let mut held = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(memory) = held.as_mut() else {
            return Ok(false);
        };
        match act(memory) {
            // Also the rest of a write that a full disk ended inside a sector: the ordinary one then reports the disk.
            Err(error) if is_refusal(&error) => {
                *held = None;
                Ok(false)
            }
            done => done,
        }
    }

    /// Writes these bytes of the parts, of which the first one is to be at `offset`.
    fn write_directly(
        &self,
        offset: u64,
        parts: &[&[u8]],
        bytes: &Range<usize>,
    ) -> io::Result<bool> {
        self.directly(|memory| {
            let mut at = bytes.start;
            while at < bytes.end {
                let length = (bytes.end - at).min(WRITE_LENGTH_MAX);
                let aligned = memory.written.bytes(length);
                copy(parts, at..at + length, aligned);
                self.direct.write_all_at(aligned, offset + at as u64)?;
                at += length;
            }
            Ok(true)
        })
    }

    fn write_ordinarily(
        &self,
        offset: u64,
        parts: &[&[u8]],
        bytes: &Range<usize>,
    ) -> io::Result<()> {
        let mut at = offset + bytes.start as u64;
        for piece in pieces(parts, bytes.clone()) {
            self.ordinary.write_at(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The bytes of a write that are to be written directly; all before and after them are not.
    fn direct_part(&self, offset: u64, length: usize) -> Range<usize> {
        let is_whole = |number: u64| number.is_multiple_of(DIRECT_UNIT as u64);
        match self.writes {
            DirectWrites::WholeUnits if is_whole(offset) && is_whole(length as u64) => 0..length,
            DirectWrites::Long if length >= LONG_LENGTH_MIN => {
                let page = PAGE as u64;
                let end = offset + length as u64;
                let pages = offset.next_multiple_of(page)..end - end % page;
                (pages.start - offset) as usize..(pages.end - offset) as usize
            }
            DirectWrites::Never | DirectWrites::WholeUnits | DirectWrites::Long => 0..0,
        }
    }

    /// What was read ahead is not what the file has any more.
    fn changes(&self) {
        if let Some(memory) = &mut *self.memory.lock().unwrap_or_else(PoisonError::into_inner) {
            memory.reads.forget();
        }
    }
}

/// Copies these bytes of all parts.
fn copy(parts: &[&[u8]], bytes: Range<usize>, to: &mut [u8]) {
    let mut filled = 0;
    for piece in pieces(parts, bytes) {
        to[filled..filled + piece.len()].copy_from_slice(piece);
        filled += piece.len();
    }
    assert_eq!(filled, to.len(), "the parts have these bytes");
}

/// The pieces of these bytes of all parts, one after the other; none of them is empty.
fn pieces<'a>(parts: &[&'a [u8]], bytes: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
    let mut start = 0;
    parts.iter().filter_map(move |&part| {
        let from = bytes.start.saturating_sub(start).min(part.len());
        let to = bytes.end.saturating_sub(start).min(part.len());
        start += part.len();
        (from < to).then(|| &part[from..to])
    })
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(flag).open(path)
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::Unsupported
    )
}

impl Disk for DirectFile {
    fn len(&self) -> u64 {
        self.ordinary.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.len() >= READ_LENGTH_MIN
            && self.directly(|memory| memory.reads.read(&self.direct, offset, buffer))?
        {
            return Ok(());
        }
        self.ordinary.read_at(offset, buffer)
    }
}

impl Medium for DirectFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(offset, &[bytes])
    }

    fn write_all_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.changes();
        let length = parts.iter().map(|&it| it.len()).sum();
        let direct = self.direct_part(offset, length);
        self.write_ordinarily(offset, parts, &(0..direct.start))?;
        if !direct.is_empty() && !self.write_directly(offset, parts, &direct)? {
            self.write_ordinarily(offset, parts, &direct)?;
        }
        self.write_ordinarily(offset, parts, &(direct.end..length))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.changes();
        self.ordinary.set_len(length)
    }

    /// Of both descriptors: they are of one file.
    fn sync(&self) -> io::Result<()> {
        self.ordinary.sync()
    }

    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        self.ordinary.map(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Files;
    use seatrial_machine::{LogName, LogView, LogWriter, OpenLog, Rng, Storage, Stream};

    const WRITES: [DirectWrites; 3] = [
        DirectWrites::Never,
        DirectWrites::WholeUnits,
        DirectWrites::Long,
    ];
    use std::io::Read;

    fn is_direct(file: &DirectFile) -> bool {
        file.memory.lock().unwrap().is_some()
    }

    /// Offsets and lengths that a direct write or read takes and that it does not take; also after a refusal.
    #[test]
    fn every_write_arrives() {
        for writes in WRITES {
            every_write_arrives_with(writes);
        }
    }

    fn every_write_arrives_with(writes: DirectWrites) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a");
        Files.create(&path).unwrap();
        let file = DirectFile {
            ordinary: RealFile::open(&path).unwrap(),
            // A file system without direct writes opens it as well, or refuses it here.
            direct: Arc::new(open_direct(&path).unwrap_or_else(|_| {
                let mut options = File::options();
                options.read(true).write(true).open(&path).unwrap()
            })),
            writes,
            memory: Mutex::new(Some(DirectMemory::default())),
        };
        let mut rng = Rng::from_seed(1);
        let mut expected: Vec<u8> = Vec::new();
        for round in 0..400 {
            let length = [512, 513, 4_096, 8_192 + 512, 3 << 20, 1, 0][rng.index(7)];
            let word = rng.word() as usize;
            let bytes: Vec<u8> = (0..length).map(|at: usize| (word ^ at) as u8).collect();
            let offset = rng.below(64) * 512 + [0, 0, 0, 100][rng.index(4)];
            if round == 300 {
                *file.memory.lock().unwrap() = None;
            }
            file.write_at(offset, &bytes).unwrap();
            let end = if bytes.is_empty() {
                0
            } else {
                offset as usize + length
            };
            expected.resize(end.max(expected.len()), 0);
            if !bytes.is_empty() {
                expected[offset as usize..end].copy_from_slice(&bytes);
            }
            assert!(
                std::fs::read(&path).unwrap() == expected,
                "{offset} + {length}"
            );
            let from = rng.index(expected.len() + 1);
            let mut found = vec![0; rng.index(expected.len() - from + 1)];
            file.read_at(from as u64, &mut found).unwrap();
            let length = found.len();
            assert!(expected[from..].starts_with(&found), "{from} + {length}");
            let mut longer = vec![0; expected.len() - from + 1];
            let past = file.read_at(from as u64, &mut longer).unwrap_err();
            assert_eq!(past.kind(), ErrorKind::UnexpectedEof);
        }
        assert!(!is_direct(&file));
        file.sync().unwrap();
    }

    #[test]
    fn the_whole_pages_of_a_long_write_are_direct() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a");
        Files.create(&path).unwrap();
        let file = DirectFile {
            ordinary: RealFile::open(&path).unwrap(),
            direct: Arc::new(File::open(&path).unwrap()),
            writes: DirectWrites::Long,
            memory: Mutex::default(),
        };
        let mut rng = Rng::from_seed(2);
        for _ in 0..1_000 {
            let offset = rng.below(3 * PAGE as u64);
            let length = LONG_LENGTH_MIN + rng.index(3 * PAGE);
            let part = file.direct_part(offset, length);
            let pages = [offset + part.start as u64, offset + part.end as u64];
            assert!(pages.iter().all(|it| it.is_multiple_of(PAGE as u64)));
            assert!(part.start < PAGE && part.end <= length && length - part.end < PAGE);
        }
        assert!(file.direct_part(0, LONG_LENGTH_MIN - 1).is_empty());
    }

    /// Aligned and other appends, restarts and removed segments, with and without direct writes; and the same one by one, to an
    /// ordinary log.
    #[test]
    fn a_direct_log_has_the_bytes_of_an_ordinary_one() {
        let [never, whole, long] = WRITES;
        for (direct, unit) in [(never, 1), (whole, 1), (whole, 512), (long, 500)] {
            let scratch = tempfile::tempdir().unwrap();
            let folders = ["log", "twin"].map(|it| scratch.path().join(it));
            let storage: Arc<dyn Storage> = Arc::new(Files);
            let open = |twin: usize, end| {
                let log = OpenLog {
                    segment_length: 3 << 20,
                    spares_max: 1,
                    direct: [direct, never][twin],
                    ..OpenLog::new(LogName::MAIN, end)
                };
                LogWriter::open(&storage, &folders[twin], log).unwrap()
            };
            for folder in &folders {
                Files.create_folder(folder).unwrap();
            }
            let mut rng = Rng::from_seed(5);
            let mut expected: Vec<u8> = Vec::new();
            let mut logs = [open(0, 0), open(1, 0)];
            for step in 0..120 {
                let length = unit * [1, 7, 8, 200, 600, 4_300][rng.index(6)];
                let word = rng.word() as u8;
                let bytes: Vec<u8> = (0..length).map(|at: usize| word ^ at as u8).collect();
                // Several appends at once, also into the next segment.
                let part = (bytes.len() / [1, 2, 5][rng.index(3)]).max(1);
                let appends: Vec<&[u8]> = bytes.chunks(part).collect();
                logs[0].append_all(&appends).unwrap();
                for append in appends {
                    logs[1].append(append).unwrap();
                }
                expected.extend_from_slice(&bytes);
                for log in &mut logs {
                    log.sync().unwrap();
                    if step % 20 == 19 {
                        log.truncate_head(log.end() / 2).unwrap();
                    }
                }
                if step % 7 == 6 {
                    let end = logs[0].end();
                    for log in logs {
                        log.close().unwrap();
                    }
                    logs = [open(0, end), open(1, end)];
                }
            }
            let (start, end) = (logs[0].start(), logs[0].end());
            for log in logs {
                log.close().unwrap();
            }
            let names = folders.each_ref().map(|it| Files.list(it).unwrap());
            assert_eq!(names[0], names[1], "the same segments");
            let found = if direct == whole {
                LogView::open_direct(&Files, &folders[0], LogName::MAIN).unwrap()
            } else {
                LogView::open(&Files, &folders[0], LogName::MAIN).unwrap()
            };
            assert_eq!((found.start(), found.len()), (start, end));
            let mut bytes = Vec::new();
            Stream::new(&found, start).read_to_end(&mut bytes).unwrap();
            assert!(bytes == expected[start as usize..]);
        }
    }
}
