//! The catalog's file: a log of events.

use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::catalog::catalog_mark::{self, CatalogMark, MARK, MarkFile};
use crate::catalog::{Catalog, CatalogEvent, EventError, EventOrderError};
use crate::segment::SegmentName;
use seatrial_blocks::block::{self, BlockKind};
use seatrial_blocks::{Torn, WalkError, Walker};
use seatrial_machine::{Disk, Medium, Storage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name.
pub(crate) const CATALOG: &str = "catalog";
/// The name of a compacted catalog before it takes the file's place.
pub(crate) const CATALOG_NEW: &str = "catalog.new";

/// The name under which a repair keeps the damaged catalog.
pub(crate) const CATALOG_DAMAGED: &str = "catalog.damaged";

/// Why a catalog cannot be read or appended to.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A storage call failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The blocks in the file are damaged, or cannot be read.
    #[error("{path}: {cause}")]
    Log {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: WalkError,
    },
    /// A valid block that is not an event.
    #[error("{path} at {offset}: {cause}")]
    Event {
        /// The file.
        path: PathBuf,
        /// Offset of the block.
        offset: u64,
        /// The reason.
        cause: EventError,
    },
    /// The catalog or its last events are missing, although they were durable.
    #[error("{path} has lost events: it ends at {offset}, {reason}")]
    Lost {
        /// The file.
        path: PathBuf,
        /// End of its valid blocks.
        offset: u64,
        /// The evidence that there was more.
        reason: String,
    },
    /// An event that cannot follow the earlier ones.
    #[error("{path} at {offset}: {cause}")]
    Fold {
        /// The file.
        path: PathBuf,
        /// Offset of the block.
        offset: u64,
        /// The reason.
        cause: EventOrderError,
    },
    /// An earlier sync failed, so the contents of the medium are unknown. Open the archive again.
    #[error("{path} is no longer usable: {reason}")]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
}

/// A catalog's file, decoded.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) catalog: Catalog,
    /// The newest event.
    pub(crate) last: Option<CatalogEvent>,
    /// The mark of the newest event.
    mark: Option<CatalogMark>,
    /// End of the file's valid blocks.
    end: u64,
    next_sequence: u64,
    /// An incomplete event at the end: to be cut off, or being written right now.
    pub(crate) torn: Option<Torn>,
}

/// Reads the catalog of a folder, beside the process that writes it. A catalog without the event of `catalog.mark` is
/// damaged, and so is one that is missing or empty although the folder has segments. `None` if there is no archive.
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
            Err(cause) => Err(CatalogError::Storage(StorageError {
                action: "open",
                path: path.clone(),
                offset: None,
                cause,
            })),
        };
        let read = match read {
            // If the catalog was compacted in between, its mark has changed too: read again. Otherwise it has lost events.
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
        // A recording's first event is durable before its first file exists. Files are therefore listed after the catalog
        // was read, and files seen beside an empty catalog may be newer than it: read once more before reporting a loss.
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

/// Does the folder have segments?
fn has_segments(storage: &dyn Storage, folder: &Path) -> Result<bool, StorageError> {
    let files = match storage.list(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => {
            return Err(StorageError {
                action: "list folder",
                path: folder.to_owned(),
                offset: None,
                cause,
            });
        }
    };
    Ok(files.iter().any(|file| SegmentName::parse(file).is_some()))
}

fn lost_beside_segments(path: PathBuf, is_missing: bool) -> CatalogError {
    let what = if is_missing {
        "the file is missing"
    } else {
        "it has no event"
    };
    CatalogError::Lost {
        path,
        offset: 0,
        reason: format!("{what}, but the folder has files of recordings"),
    }
}

/// Reads a catalog and folds its events, which must include the one of `mark`.
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
                let event = match CatalogEvent::decode(block.header.kind, block.payload) {
                    Ok(event) => event,
                    Err(cause) => {
                        return Err(CatalogError::Event {
                            path,
                            offset,
                            cause,
                        });
                    }
                };
                if let Err(cause) = catalog.apply(&event) {
                    return Err(CatalogError::Fold {
                        path,
                        offset,
                        cause,
                    });
                }
                last = Some(event);
            }
            Ok(None) => break,
            Err(WalkError::Torn(found)) => torn = Some(found),
            Err(cause) => return Err(CatalogError::Log { path, cause }),
        }
    }
    if let Some(mark) = mark.filter(|_| !is_marked) {
        return Err(CatalogError::Lost {
            path,
            offset: walker.offset(),
            reason: format!(
                "but {MARK} has event {} ending at {}",
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

/// The catalog's file, open for writing, and the fold of its events. An append is one write and one sync. After a failed
/// sync the contents of the medium are unknown, so every later call fails too; a failed write is cut off again.
#[derive(Debug)]
pub(crate) struct CatalogLog {
    folder: ArchiveFolder,
    medium: Arc<dyn Medium>,
    mark: MarkFile,
    end: u64,
    next_sequence: u64,
    poison: Option<String>,
    pub(crate) catalog: Catalog,
    compaction: Compaction,
    /// The length at which to decide again whether to compact: computing the compacted length costs a pass over all
    /// recordings, so it is not done at each event.
    look_at: u64,
}

/// When a catalog is compacted: at `length_min` bytes or more, and `ratio` times the compacted length or more.
#[derive(Clone, Copy, Debug)]
struct Compaction {
    length_min: u64,
    ratio: u64,
}

impl Compaction {
    /// The length from which on a catalog is compacted that takes `fewest` bytes when compacted.
    fn bound(self, fewest: u64) -> u64 {
        self.length_min.max(self.ratio.saturating_mul(fewest))
    }
}

/// Default minimum length of a catalog to be compacted automatically: 64 KiB.
const COMPACTION_LENGTH_MIN: u64 = 64 << 10;
/// Default ratio to its compacted length at which a catalog is compacted.
const COMPACTION_RATIO: u64 = 4;

impl CatalogLog {
    /// Opens the catalog of a folder, creating it if missing; cuts off a torn tail and syncs the rest. Also returns the
    /// newest event and the torn tail.
    pub(crate) fn open(
        folder: &ArchiveFolder,
    ) -> Result<(CatalogLog, Option<CatalogEvent>, Option<Torn>), CatalogError> {
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

    /// Appends events and makes them durable: they are in effect when this returns. On failure none is in effect for this
    /// archive; after a failed sync, the next open may still find all of them.
    pub(crate) fn append(&mut self, events: &[CatalogEvent]) -> Result<(), CatalogError> {
        self.check()?;
        let mut catalog = self.catalog.part(events);
        for event in events {
            if let Err(cause) = catalog.apply(event) {
                return Err(CatalogError::Fold {
                    path: self.folder.path(CATALOG),
                    offset: self.end,
                    cause,
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

    /// Sets when the catalog is compacted automatically.
    pub(crate) fn compact_when(&mut self, length_min: u64, ratio: u64) {
        self.compaction = Compaction { length_min, ratio };
        self.look_at = length_min;
    }

    /// Compacts a catalog that is too long. Called before an event is appended: the file changes of the previous event are
    /// complete then, so a compacted catalog need not remember which event was the newest. A failure leaves the catalog
    /// long, or poisons the log.
    fn compact_if_long(&mut self) {
        if self.end < self.look_at {
            return;
        }
        let fewest = encode_events(&self.catalog.events()).len() as u64;
        let has_failed = self.end >= self.compaction.bound(fewest) && self.compact().is_err();
        let least = if has_failed { self.end } else { fewest };
        self.look_at = self.compaction.bound(least);
    }

    /// Writes the shortest sequence of events with the same fold to a new file, and renames it over the catalog. Returns
    /// the lengths before and after, in bytes.
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
            .and_then(|()| catalog_mark::clear(&self.folder));
        if let Err(error) = written {
            // If this fails, the next open removes the file.
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
        assert!(bytes.len().is_multiple_of(block::ALIGNMENT), "whole blocks");
        self.medium = medium;
        self.end = bytes.len() as u64;
        self.next_sequence = events.len() as u64;
        Ok((before, self.end))
    }

    /// Records that the files could not be changed as the catalog says; every later call fails.
    pub(crate) fn poison(&mut self, error: StorageError) -> CatalogError {
        self.poison = Some(error.to_string());
        error.into()
    }

    /// Fails if an earlier call failed.
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

/// A whole catalog, to be synced before it is renamed into place.
pub(crate) fn encode_events(events: &[CatalogEvent]) -> Vec<u8> {
    encode(events, 0, 0)
}

/// Encodes one block for each event. All blocks but the first get `later_flags`: unordered if they are appended to a log,
/// because they are written before the first one is durable.
fn encode(events: &[CatalogEvent], sequence: u64, later_flags: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let flags = if index == 0 { 0 } else { later_flags };
        let start = block::begin(&mut out);
        event.encode(&mut out);
        let sequence = sequence + index as u64;
        block::finish_plain(&mut out, start, BlockKind::CATALOG, flags, sequence);
    }
    out
}
