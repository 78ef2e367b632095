//! The file with the events.

use crate::block::{self, BlockKind};
use crate::catalog::mark::{self, CatalogMark, MARK, MarkFile};
use crate::catalog::{Catalog, Event, EventError, FoldError};
use crate::folder::{Folder, StorageError};
use crate::segment::SegmentName;
use crate::walk::{Torn, WalkError, Walker};
use seatrial_machine::{Disk, Medium, Storage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name.
pub(crate) const CATALOG: &str = "catalog";
/// The name of a compacted catalog before it takes the file's place.
pub(crate) const CATALOG_NEW: &str = "catalog.new";

/// The name of a damaged catalog that was made again.
pub(crate) const CATALOG_DAMAGED: &str = "catalog.damaged";

/// Why a catalog cannot be read or added to.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The storage refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The blocks in the file are damaged, or cannot be read.
    #[error("{path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WalkError,
    },
    /// A whole block that is not an event.
    #[error("{path} at {offset}: {source}")]
    Event {
        /// The file.
        path: PathBuf,
        /// Where the block starts.
        offset: u64,
        /// Why.
        source: EventError,
    },
    /// The catalog, or its end, is missing: events that were in force are.
    #[error("{path} has lost events: it ends at {offset}, {reason}")]
    Lost {
        /// The file.
        path: PathBuf,
        /// Where what is left of it ends.
        offset: u64,
        /// What says that there was more.
        reason: String,
    },
    /// An event that does not follow from those before.
    #[error("{path} at {offset}: {source}")]
    Fold {
        /// The file.
        path: PathBuf,
        /// Where the block starts.
        offset: u64,
        /// Why.
        source: FoldError,
    },
    /// An earlier sync failed, so it is unknown what the medium holds. Open the archive again.
    #[error("{path} is out of use: {reason}")]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
}

/// What a catalog's file holds.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) catalog: Catalog,
    /// The newest event.
    pub(crate) last: Option<Event>,
    /// The mark of the newest event.
    mark: Option<CatalogMark>,
    /// Where the file's blocks end.
    end: u64,
    next_sequence: u64,
    /// What has to be cut off, or is just being written.
    pub(crate) torn: Option<Torn>,
}

/// Reads the catalog of a folder beside the process that writes it. One that does not hold the event of `catalog.mark`, or
/// that is missing or empty beside files of recordings, is damaged. `None` if there is no archive.
pub(crate) fn read_folder(
    storage: &dyn Storage,
    folder: &Path,
) -> Result<Option<Contents>, CatalogError> {
    let path = folder.join(CATALOG);
    let mut mark = CatalogMark::read(storage, folder);
    let mut is_second = false;
    loop {
        let read = match storage.open(&path) {
            Ok(medium) => read(&*medium, path.clone(), mark).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CatalogError::Storage(StorageError {
                action: "open",
                path: path.clone(),
                offset: None,
                source,
            })),
        };
        let read = match read {
            // One that was compacted meanwhile has another mark.
            Err(lost @ CatalogError::Lost { .. }) => {
                let now = CatalogMark::read(storage, folder);
                if now == mark {
                    return Err(lost);
                }
                mark = now;
                continue;
            }
            other => other?,
        };
        // A recording's first event is durable before its first file is there, so these are seen in the other order.
        let is_empty = (read.as_ref()).is_none_or(|contents| contents.last.is_none());
        if !is_empty || !has_segments(storage, folder)? {
            return Ok(read);
        }
        if is_second {
            return Err(lost_beside_segments(path, read.is_none()));
        }
        is_second = true;
    }
}

/// Are there files of recordings?
fn has_segments(storage: &dyn Storage, folder: &Path) -> Result<bool, StorageError> {
    let files = match storage.list(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => {
            return Err(StorageError {
                action: "list folder",
                path: folder.to_owned(),
                offset: None,
                source,
            });
        }
    };
    Ok(files.iter().any(|file| SegmentName::parse(file).is_some()))
}

fn lost_beside_segments(path: PathBuf, is_missing: bool) -> CatalogError {
    let what = if is_missing {
        "there is no such file"
    } else {
        "it holds no event"
    };
    CatalogError::Lost {
        path,
        offset: 0,
        reason: format!("{what}, and files of recordings are beside it"),
    }
}

/// Reads a catalog and adds up its events, of which the one of the mark has to be one.
pub(crate) fn read(
    disk: &dyn Disk,
    path: PathBuf,
    mark: Option<CatalogMark>,
) -> Result<Contents, CatalogError> {
    let mut walker = Walker::new(disk, 0).expecting(0);
    let (mut catalog, mut last, mut torn) = (Catalog::default(), None, None);
    let mut reached = None;
    let mut is_marked = mark.is_none();
    loop {
        match walker.next_block() {
            Ok(Some(block)) => {
                let offset = block.offset;
                let after = CatalogMark::after(offset, &block.header);
                is_marked |= mark == Some(after);
                reached = Some(after);
                let event = match Event::decode(block.header.kind, block.payload) {
                    Ok(event) => event,
                    Err(source) => {
                        return Err(CatalogError::Event {
                            path,
                            offset,
                            source,
                        });
                    }
                };
                if let Err(source) = catalog.apply(&event) {
                    return Err(CatalogError::Fold {
                        path,
                        offset,
                        source,
                    });
                }
                last = Some(event);
            }
            Ok(None) => break,
            Err(WalkError::Torn(found)) => torn = Some(found),
            Err(source) => return Err(CatalogError::Log { path, source }),
        }
    }
    if let Some(mark) = mark.filter(|_| !is_marked) {
        return Err(CatalogError::Lost {
            path,
            offset: walker.offset(),
            reason: format!(
                "and {MARK} says that event {} ended at {}",
                mark.events, mark.length
            ),
        });
    }
    Ok(Contents {
        catalog,
        last,
        mark: reached,
        end: walker.offset(),
        next_sequence: walker.next_sequence(),
        torn,
    })
}

/// The catalog's file, open for writing, beside what its events add up to. After a failed sync nobody knows what the
/// medium holds, so every later call fails too; a failed write is cut off again.
#[derive(Debug)]
pub(crate) struct CatalogLog {
    folder: Folder,
    medium: Arc<dyn Medium>,
    mark: MarkFile,
    end: u64,
    next_sequence: u64,
    poison: Option<String>,
    pub(crate) catalog: Catalog,
    compaction: Compaction,
    /// The length at which it is looked at whether the catalog is too long.
    look_at: u64,
}

/// When a catalog makes itself shorter: when it is at least so long, and so many times as long as it need be.
#[derive(Clone, Copy, Debug)]
struct Compaction {
    length_min: u64,
    ratio: u64,
}

impl Compaction {
    /// The length that is too long when so many bytes would do.
    fn bound(self, fewest: u64) -> u64 {
        self.length_min.max(self.ratio.saturating_mul(fewest))
    }
}

/// A catalog below this length is never compacted unasked: 64 KiB.
const COMPACTION_LENGTH_MIN: u64 = 64 << 10;
/// A catalog is compacted when it is this many times as long as it need be.
const COMPACTION_RATIO: u64 = 4;

impl CatalogLog {
    /// Opens the catalog of a folder, which is made when it is missing, cuts off a torn tail, and makes durable what
    /// stays. Answers with the newest event and what was cut, too.
    pub(crate) fn open(
        folder: &Folder,
    ) -> Result<(CatalogLog, Option<Event>, Option<Torn>), CatalogError> {
        let medium = match folder.open_write(CATALOG) {
            Err(error) if error.is_not_found() => {
                if has_segments(&*folder.storage, &folder.path(""))? {
                    return Err(lost_beside_segments(folder.path(CATALOG), true));
                }
                let medium = folder.create(CATALOG)?;
                folder.sync_file(CATALOG, &*medium)?;
                folder.sync()?;
                medium
            }
            other => other?,
        };
        let marked = CatalogMark::read(&*folder.storage, &folder.path(""));
        let contents = read(&*medium, folder.path(CATALOG), marked)?;
        if contents.last.is_none() && has_segments(&*folder.storage, &folder.path(""))? {
            return Err(lost_beside_segments(folder.path(CATALOG), false));
        }
        if contents.torn.is_some() {
            folder.cut(CATALOG, &*medium, contents.end)?;
        }
        folder.sync_file(CATALOG, &*medium)?;
        let mark = MarkFile::open(folder);
        if let Some(reached) = contents.mark.filter(|_| contents.mark != marked) {
            mark.write(folder, &reached);
        }
        let log = CatalogLog {
            folder: folder.clone(),
            medium,
            mark,
            end: contents.end,
            next_sequence: contents.next_sequence,
            poison: None,
            catalog: contents.catalog,
            compaction: Compaction {
                length_min: COMPACTION_LENGTH_MIN,
                ratio: COMPACTION_RATIO,
            },
            look_at: COMPACTION_LENGTH_MIN,
        };
        Ok((log, contents.last, contents.torn))
    }

    /// Adds events and makes them durable: they are in force when this returns. All or none when it fails, and none may
    /// still be found to be in force by the next one who opens the archive.
    pub(crate) fn append(&mut self, events: &[Event]) -> Result<(), CatalogError> {
        self.check()?;
        let mut catalog = self.catalog.part(events);
        for event in events {
            if let Err(source) = catalog.apply(event) {
                return Err(CatalogError::Fold {
                    path: self.folder.path(CATALOG),
                    offset: self.end,
                    source,
                });
            }
        }
        self.compact_if_long();
        self.check()?;
        let bytes = encode(events, self.next_sequence, block::flags::UNORDERED);
        if let Err(error) = self.folder.write(CATALOG, &*self.medium, self.end, &bytes) {
            let cut = self.folder.cut(CATALOG, &*self.medium, self.end);
            return Err(match cut {
                Ok(()) => error.into(),
                Err(cut) => self.poison(cut),
            });
        }
        if let Err(error) = self.folder.sync_file(CATALOG, &*self.medium) {
            return Err(self.poison(error));
        }
        if let Some(mark) = CatalogMark::of_blocks(self.end, &bytes) {
            self.mark.write(&self.folder, &mark);
        }
        self.end += bytes.len() as u64;
        self.next_sequence += events.len() as u64;
        self.catalog.replace_part(events, catalog);
        Ok(())
    }

    /// Sets when the catalog makes itself shorter.
    pub(crate) fn compact_when(&mut self, length_min: u64, ratio: u64) {
        self.compaction = Compaction { length_min, ratio };
        self.look_at = length_min;
    }

    /// Compacts a catalog that is too long. Only to be called in front of an event: what the one before implies is done then, so
    /// that nobody has to know which it was. When it fails the catalog is merely longer, unless it is out of use
    /// from now on.
    fn compact_if_long(&mut self) {
        if self.end < self.look_at {
            return;
        }
        let fewest = encode_events(&self.catalog.events()).len() as u64;
        let has_failed = self.end >= self.compaction.bound(fewest) && self.compact().is_err();
        let least = if has_failed { self.end } else { fewest };
        self.look_at = self.compaction.bound(least);
    }

    /// Writes the fewest events that add up to the same into a file of their own and puts it in the catalog's place.
    /// Answers with the bytes before and after.
    pub(crate) fn compact(&mut self) -> Result<(u64, u64), CatalogError> {
        self.check()?;
        let events = self.catalog.events();
        let bytes = encode_events(&events);
        self.folder.remove_if_there(CATALOG_NEW)?;
        let medium = self.folder.create(CATALOG_NEW)?;
        let written = self
            .folder
            .write(CATALOG_NEW, &*medium, 0, &bytes)
            .and_then(|()| self.folder.sync_file(CATALOG_NEW, &*medium))
            .and_then(|()| mark::clear(&self.folder));
        if let Err(error) = written {
            // Garbage that the next one removes, if this one cannot.
            let _ = self.folder.remove_if_there(CATALOG_NEW);
            return Err(error.into());
        }
        let placed = self.folder.rename(CATALOG_NEW, CATALOG);
        if let Err(error) = placed.and_then(|()| self.folder.sync()) {
            return Err(self.poison(error));
        }
        if let Some(mark) = CatalogMark::of_blocks(0, &bytes) {
            self.mark.write(&self.folder, &mark);
        }
        let before = self.end;
        self.medium = medium;
        self.end = bytes.len() as u64;
        self.next_sequence = events.len() as u64;
        Ok((before, self.end))
    }

    /// Remembers that what the catalog implies was not carried out.
    pub(crate) fn poison(&mut self, error: StorageError) -> CatalogError {
        self.poison = Some(error.to_string());
        error.into()
    }

    /// Fails if an earlier call did.
    pub(crate) fn check(&self) -> Result<(), CatalogError> {
        match &self.poison {
            None => Ok(()),
            Some(reason) => Err(CatalogError::Poisoned {
                path: self.folder.path(CATALOG),
                reason: format!("an earlier call failed: {reason}"),
            }),
        }
    }
}

/// A whole catalog, to be synced before it is seen.
pub(crate) fn encode_events(events: &[Event]) -> Vec<u8> {
    encode(events, 0, 0)
}

/// One block for each event. Those behind the first have the flags: unordered, unless nobody sees them before all are durable.
fn encode(events: &[Event], sequence: u64, flags_behind: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let flags = if index == 0 { 0 } else { flags_behind };
        let start = block::begin(&mut out);
        event.encode(&mut out);
        let sequence = sequence + index as u64;
        block::finish_plain(&mut out, start, BlockKind::CATALOG, flags, sequence);
    }
    out
}
