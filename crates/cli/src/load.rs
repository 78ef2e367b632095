//! A history in memory, from any supported file.

use crate::source::{HistorySource, Reading};
use anyhow::Result;
use seatrial_blocks::root::RootError;
use seatrial_checker::{MissingPart, describe_repairs};
use seatrial_history::{FileTail, History, OpenError, Provenance, Salvaged, TestFile};
use seatrial_interchange::import::ImportOptions;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// A history in memory, to be shown.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) history: History,
    /// What a reader should know about the file: a torn end, a run that is still going on.
    pub(crate) warnings: Vec<String>,
}

/// The first bytes of a test file.
const MAGIC: &[u8; 8] = b"SEATRIAL";

/// Loads the history in `path`. Values `[key value]` of foreign files belong to independent keys when the options or all of
/// these values say so.
pub(crate) fn load(path: &Path, format: &str, options: ImportOptions) -> Result<Loaded> {
    let reading = Reading::by_name(format)?;
    if reading == Reading::Sea || (reading == Reading::Auto && is_test_file(path)) {
        return test_file(path);
    }
    let mut source = HistorySource::open(path, reading, options)?;
    whole(&mut source)
}

/// All of a foreign history.
fn whole(source: &mut HistorySource) -> Result<Loaded> {
    let history = source.history()?;
    let warnings = std::mem::take(&mut source.warnings);
    Ok(Loaded { history, warnings })
}

/// Does the file begin like a test file? Errors are reported by the full read later.
pub(crate) fn is_test_file(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    let file = std::fs::File::open(path);
    file.and_then(|mut file| file.read_exact(&mut first))
        .is_ok()
        && first == *MAGIC
}

/// The history of a test file, also of one that is still written or whose writer was killed.
fn test_file(path: &Path) -> Result<Loaded> {
    let file = TestFile::open(path)?;
    let lost = MissingPart::of_provenance(&Provenance::of_attributes(&file.attributes()?));
    let mut warnings: Vec<String> = lost.iter().map(MissingPart::warning).collect();
    warnings.extend(not_ended(&file, path));
    Ok(Loaded {
        history: file.history().map_err(chunk_by_chunk)?,
        warnings,
    })
}

/// The missing end of a test whose file was never sealed. If it ends in bytes that are no whole block, more was recorded than
/// can be read.
pub(crate) fn unended(file: &TestFile) -> Option<MissingPart> {
    if file.is_complete() {
        return None;
    }
    Some(match file.tail() {
        Some(FileTail::Torn(torn)) => MissingPart::damaged_end(format!("{torn}")),
        Some(FileTail::Open) | None => {
            let attributes = file.attributes().unwrap_or_default();
            MissingPart::of_unsealed(&Provenance::of_attributes(&attributes))
        }
    })
}

/// Names bytes at the end of the file that are no whole block.
fn torn_end(file: &TestFile, path: &Path) -> Option<String> {
    let Some(FileTail::Torn(torn)) = file.tail() else {
        return None;
    };
    let remedy = match torn.unordered {
        0 => String::new(),
        1 => "; --salvage reads the whole block after it".to_owned(),
        many => format!("; --salvage reads the {many} whole blocks after it"),
    };
    Some(format!("{}: {torn}{remedy}", path.display()))
}

/// Says so of a test that has not come to its end.
pub(crate) fn not_ended(file: &TestFile, path: &Path) -> Option<String> {
    let torn = torn_end(file, path);
    if file.is_complete() {
        return torn;
    }
    let repaired = || describe_repairs(&Provenance::of_attributes(&file.attributes().ok()?));
    let how = torn.or_else(repaired);
    let how = how.map_or_else(String::new, |how| format!(" ({how})"));
    let written = std::fs::metadata(path).and_then(|it| it.modified()).ok();
    let age = written.and_then(|at| at.elapsed().ok());
    let age = age.map_or_else(String::new, |age| {
        format!("; last written {:.1} s ago", age.as_secs_f64())
    });
    Some(format!(
        "this test has not come to its end: it is still running, or was killed{how}{age}"
    ))
}

/// What is left of a damaged test file, or of a text up to its first error.
pub(crate) fn salvage(path: &Path, format: &str) -> Result<Loaded> {
    let reading = Reading::by_name(format)?;
    if reading != Reading::Sea && !(reading == Reading::Auto && is_test_file(path)) {
        let mut source = HistorySource::open(path, reading, ImportOptions::default())?;
        source.salvage = true;
        return whole(&mut source);
    }
    let salvaged = TestFile::salvage(path)?;
    let lost = MissingPart::of_salvaged(&salvaged, 0);
    let mut warnings: Vec<String> = lost.iter().map(MissingPart::warning).collect();
    warnings.extend(damages(&salvaged));
    if salvaged.attributes().is_none() {
        warnings.push("the attributes of the test are lost".to_owned());
    }
    Ok(Loaded {
        history: salvaged.history()?,
        warnings,
    })
}

/// The damaged ranges of a test file, one message each.
pub(crate) fn damages(salvaged: &Salvaged) -> Vec<String> {
    let damaged = salvaged.damaged().iter().map(|damaged| {
        let (from, to) = (damaged.bytes.start, damaged.bytes.end);
        format!("bytes {from} to {to} are damaged: {}", damaged.reason)
    });
    damaged.collect()
}

/// Says of the error of a damaged test file what can still be done.
pub(crate) fn hint(error: anyhow::Error) -> anyhow::Error {
    let cause = error.chain().find_map(|cause| {
        let shared = || cause.downcast_ref::<Arc<OpenError>>();
        let plain = cause.downcast_ref::<OpenError>();
        plain.or_else(|| shared().map(AsRef::as_ref))
    });
    let is_damage = match cause {
        Some(OpenError::Root { cause, .. }) => !matches!(
            cause,
            RootError::Foreign | RootError::Purpose { .. } | RootError::Version { .. }
        ),
        Some(
            OpenError::Damaged { .. }
            | OpenError::Block { .. }
            | OpenError::Chunk { .. }
            | OpenError::Shortened { .. },
        ) => true,
        _ => false,
    };
    if is_damage {
        return anyhow::anyhow!("{error:#}; what is left of it can be read with --salvage");
    }
    error
}

/// The error, with what can still be done.
fn chunk_by_chunk(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::TooLarge { .. } => {
            anyhow::anyhow!("{error}; `seatrial check --checker stats,g1` checks it chunk by chunk")
        }
        error => error.into(),
    }
}
