//! Copies of truncated bytes of a segment, in files next to it.

use crate::archive_folder::{ArchiveFolder, StorageError};
use seatrial_machine::Medium;
use std::path::PathBuf;

/// The suffix of a segment's name for a copy of what was cut off.
const CUT: &str = ".cut";
/// Bytes copied at a time.
const COPY_LENGTH: usize = 1 << 20;
/// Bytes replaced by zeros where a read fails.
const SECTOR_LENGTH: usize = 4096;

/// A copy of the end of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutCopy {
    /// The file that holds it.
    pub(crate) path: PathBuf,
    /// Its length in bytes.
    pub(crate) length: u64,
    /// Number of these bytes that could not be read; zeros replace them.
    pub(crate) unreadable: u64,
}

/// Copies the bytes after `offset` of a segment to a new file `NAME.cut`, `NAME.cut2`, …, and syncs it. The caller syncs
/// the folder.
pub(crate) fn keep_end(
    folder: &ArchiveFolder,
    file: &str,
    offset: u64,
) -> Result<CutCopy, StorageError> {
    let medium = folder.open(file)?;
    let there = folder.list()?;
    let base = file.to_owned() + CUT;
    let mut to = base.clone();
    let mut number = 1;
    while there.contains(&to) {
        number += 1;
        to = format!("{base}{number}");
    }
    let copy = folder.create(&to)?;
    let mut kept = CutCopy {
        path: folder.path(&to),
        length: medium.len().saturating_sub(offset),
        unreadable: 0,
    };
    let mut buffer = vec![0; COPY_LENGTH];
    let mut done = 0;
    while done < kept.length {
        let count = (kept.length - done).min(COPY_LENGTH as u64) as usize;
        let bytes = &mut buffer[..count];
        if folder.read(file, &*medium, offset + done, bytes).is_err() {
            kept.unreadable += read_sectors(&*medium, offset + done, bytes);
        }
        folder.write(&to, &*copy, done, bytes)?;
        done += count as u64;
    }
    assert_eq!(done, kept.length, "all bytes were copied");
    folder.sync_file(&to, &*copy)?;
    Ok(kept)
}

/// Is there a byte other than zero after `offset`? Unreadable bytes count as such.
pub(crate) fn has_content(medium: &dyn Medium, offset: u64) -> bool {
    let (mut at, length) = (offset, medium.len());
    let mut buffer = vec![0; COPY_LENGTH];
    while at < length {
        let count = (length - at).min(COPY_LENGTH as u64) as usize;
        let bytes = &mut buffer[..count];
        if medium.read_at(at, bytes).is_err() || bytes.iter().any(|byte| *byte != 0) {
            return true;
        }
        at += count as u64;
    }
    false
}

/// Reads sector by sector, with zeros for unreadable ones; returns the number of unreadable bytes.
fn read_sectors(medium: &dyn Medium, at: u64, bytes: &mut [u8]) -> u64 {
    let mut unreadable = 0;
    for (index, sector) in bytes.chunks_mut(SECTOR_LENGTH).enumerate() {
        let offset = at + (index * SECTOR_LENGTH) as u64;
        if medium.read_at(offset, sector).is_err() {
            sector.fill(0);
            unreadable += sector.len() as u64;
        }
    }
    unreadable
}
