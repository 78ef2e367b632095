//! Repairs a test file that ends in an incomplete block.

use super::append::Appender;
use super::block_kinds::ATTRIBUTES;
use super::documents::FileBlocks;
use super::survey::{FileTail, OpenError, SurveyedFile, survey};
use super::writer::WriteError;
use seatrial_blocks::file::Files;
use seatrial_blocks::{BlockFileError, LogFile, Torn};
use seatrial_machine::{Disk, Storage};
use serde_json::{Value as Json, json};
use std::io;
use std::path::{Path, PathBuf};

/// The member of the attributes that lists what was cut off a repaired file.
pub const REPAIRED: &str = "repaired";

/// Bytes copied at a time.
const COPY_LENGTH: u64 = 1 << 20;
/// Most repairs of one file at one offset.
const NAMES_MAX: u32 = 1_000;

/// What a repair removed from a test file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedFile {
    /// The file's new end, the number of removed bytes, and what was wrong with them.
    pub torn: Torn,
    /// The file that holds the removed bytes.
    pub kept: PathBuf,
}

/// Cuts a torn end off the file at `path` on any storage; `None` if the file has none.
///
/// The removed bytes are durable in a second file before the first of them is removed, so a crash at any point loses none;
/// repeating the call after such a crash makes one more copy. The member [`REPAIRED`] of the attributes records what was
/// cut off, which the file itself no longer shows.
pub(super) fn repair_on(
    storage: &dyn Storage,
    path: &Path,
) -> Result<Option<RepairedFile>, WriteError> {
    let log = LogFile::open_on(storage, path)?;
    let found = survey(&log, path)?;
    let Some(FileTail::Torn(torn)) = found.tail else {
        return Ok(None);
    };
    assert_eq!(
        found.end, torn.offset,
        "a log ends where its torn tail begins"
    );
    // Read everything that is needed before the file is changed.
    let attributes = attributes(&log, path, &found)?;
    let kept = keep(storage, &log, torn.offset)?;
    let mut file = Appender::cut(log, found)?;
    if let Some(mut attributes) = attributes {
        let name = kept.file_name().map(|name| name.to_string_lossy());
        let repair = json!({
            "offset": torn.offset,
            "bytes": torn.length,
            "reason": torn.defect.to_string(),
            "kept": name,
        });
        match &mut attributes[REPAIRED] {
            Json::Array(repairs) => repairs.push(repair),
            place => *place = json!([repair]),
        }
        file.set_attributes(&attributes)?;
    }
    Ok(Some(RepairedFile { torn, kept }))
}

/// The attributes of a file; `None` if it has none, or they are no object.
fn attributes(log: &LogFile, path: &Path, found: &SurveyedFile) -> Result<Option<Json>, OpenError> {
    let document = found.contents.attributes;
    if document.offset == 0 {
        return Ok(None);
    }
    let blocks = FileBlocks { disk: log, path };
    let attributes = blocks.json(document, ATTRIBUTES)?;
    Ok(Some(attributes).filter(Json::is_object))
}

/// Copies what `log` holds from `offset` on into a new file beside it, durably; the file's name.
fn keep(storage: &dyn Storage, log: &LogFile, offset: u64) -> Result<PathBuf, BlockFileError> {
    let (mut copy, name) = create_beside(storage, log.path(), offset)?;
    let mut at = offset;
    let mut bytes = Vec::new();
    while at < log.len() {
        bytes.resize((log.len() - at).min(COPY_LENGTH) as usize, 0);
        log.read_at(at, &mut bytes)
            .map_err(|source| BlockFileError::System {
                action: "read",
                path: log.path().to_owned(),
                source,
            })?;
        copy.append(&bytes)?;
        at += bytes.len() as u64;
    }
    copy.sync()?;
    assert_eq!(
        copy.len(),
        log.len() - offset,
        "a copy of all removed bytes"
    );
    Ok(name)
}

/// A new file `NAME.cut-OFFSET`, or with one more number if that name is taken.
fn create_beside(
    storage: &dyn Storage,
    path: &Path,
    offset: u64,
) -> Result<(LogFile, PathBuf), BlockFileError> {
    for number in 1.. {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".cut-{offset}"));
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let name = PathBuf::from(name);
        match LogFile::create_on(storage, &name) {
            Err(BlockFileError::System { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists && number < NAMES_MAX => {}
            created => return Ok((created?, name)),
        }
    }
    unreachable!("the last name returns")
}

/// [`repair_on`] for a real file.
pub(super) fn repair(path: &Path) -> Result<Option<RepairedFile>, WriteError> {
    repair_on(&Files, path)
}
