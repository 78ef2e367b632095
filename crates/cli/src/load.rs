//! A history from whatever file a person names.

use crate::independent;
use crate::losses;
use crate::source::{Reading, Source};
use crate::times;
use anyhow::Result;
use seatrial_archive::root::RootError;
use seatrial_checker::Missing;
use seatrial_history::import::Options;
use seatrial_history::{History, OpenError, Tail, TestFile};
use serde_json::Value as Json;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// A history and what its file says about it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) history: History,
    /// Attributes of the test; of a foreign file only its name.
    pub(crate) attributes: Json,
    /// What a reader should know about the file: a torn end, a run that is still going on.
    pub(crate) warnings: Vec<String>,
    /// Parts that are missing.
    pub(crate) missing: Vec<Missing>,
}

/// The first bytes of a test file.
const MAGIC: &[u8; 8] = b"SEATRIAL";

/// Loads the history in `path`. Values `[key value]` of foreign files belong to independent keys when the options or all of
/// these values say so.
pub(crate) fn load(path: &Path, format: &str, options: Options) -> Result<Loaded> {
    let reading = Reading::by_name(format)?;
    if reading == Reading::Sea || (reading == Reading::Auto && is_test_file(path)) {
        return test_file(path);
    }
    let mut source = Source::open(path, reading, options)?;
    whole(&mut source)
}

/// All of a foreign history.
fn whole(source: &mut Source) -> Result<Loaded> {
    let mut attributes = source.attributes()?;
    let history = independent::keyed(source.history()?);
    times::mark_completions(&mut attributes, history.ops());
    let mut missing = std::mem::take(&mut source.missing);
    let mut warnings = std::mem::take(&mut source.warnings);
    if missing.is_empty() {
        let lost = losses::of_attributes(&attributes);
        warnings.extend(lost.as_ref().map(losses::warning));
        missing.extend(lost.or_else(|| losses::of_end(&history)));
    }
    Ok(Loaded {
        history,
        attributes,
        warnings,
        missing,
    })
}

/// Does the file begin like a test file? Whatever cannot be read is told by who reads all of it.
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
    let attributes = file.attributes()?;
    let mut missing: Vec<Missing> = losses::of_attributes(&attributes).into_iter().collect();
    let mut warnings: Vec<String> = missing.iter().map(losses::warning).collect();
    missing.extend(unended(&file));
    warnings.extend(not_ended(&file, path));
    Ok(Loaded {
        history: file.history().map_err(chunk_by_chunk)?,
        attributes,
        warnings,
        missing,
    })
}

/// The missing end of a test whose file was never sealed. If it ends in bytes that are no whole block, more was recorded than
/// can be read.
pub(crate) fn unended(file: &TestFile) -> Option<Missing> {
    if file.is_complete() {
        return None;
    }
    Some(match file.tail() {
        Some(Tail::Torn(torn)) => Missing::damaged_end(format!("{torn}")),
        Some(Tail::Open) | None => losses::of_unsealed(&file.attributes().unwrap_or_default()),
    })
}

/// Names bytes at the end of the file that are no whole block.
fn torn_end(file: &TestFile, path: &Path) -> Option<String> {
    let Some(Tail::Torn(torn)) = file.tail() else {
        return None;
    };
    let behind = match torn.unordered {
        0 => String::new(),
        1 => "; --salvage reads the whole block after it".to_owned(),
        many => format!("; --salvage reads the {many} whole blocks after it"),
    };
    Some(format!("{}: {torn}{behind}", path.display()))
}

/// Says so of a test that has not come to its end.
pub(crate) fn not_ended(file: &TestFile, path: &Path) -> Option<String> {
    let torn = torn_end(file, path);
    if file.is_complete() {
        return torn;
    }
    let repaired = || losses::of_repairs(&file.attributes().ok()?);
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

/// What is left of a damaged test file. `judges` leaves out what no checker could take for a history: completions whose
/// invocations are missing.
pub(crate) fn salvage(path: &Path, format: &str, judges: bool) -> Result<Loaded> {
    let reading = Reading::by_name(format)?;
    if reading != Reading::Sea && !(reading == Reading::Auto && is_test_file(path)) {
        let mut source = Source::open(path, reading, Options::default())?;
        source.salvage = true;
        return whole(&mut source);
    }
    let salvaged = TestFile::salvage(path)?;
    let (history, orphans) = if judges {
        salvaged.history_to_judge()?
    } else {
        (salvaged.history()?, 0)
    };
    let attributes = salvaged.attributes().cloned().unwrap_or_default();
    let lost = losses::of_salvaged(&salvaged, orphans);
    let lost = lost.or_else(|| losses::of_attributes(&attributes));
    let mut warnings: Vec<String> = lost.iter().map(losses::warning).collect();
    let end = || losses::of_unsealed(&attributes);
    let missing = lost.or_else(|| (!salvaged.is_complete()).then(end));
    warnings.extend(losses::damages(&salvaged));
    if salvaged.attributes().is_none() {
        warnings.push("the attributes of the test are lost".to_owned());
    }
    Ok(Loaded {
        history,
        attributes,
        warnings,
        missing: missing.into_iter().collect(),
    })
}

/// Says of the error of a damaged test file what can still be done.
pub(crate) fn hint(error: anyhow::Error) -> anyhow::Error {
    let cause = error.chain().find_map(|cause| {
        let shared = || cause.downcast_ref::<Arc<OpenError>>();
        let plain = cause.downcast_ref::<OpenError>();
        plain.or_else(|| shared().map(AsRef::as_ref))
    });
    let is_damage = match cause {
        Some(OpenError::Root { source, .. }) => !matches!(
            source,
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
            anyhow::anyhow!("{error}; `seatrial check --checker stats,g1` judges it chunk by chunk")
        }
        error => error.into(),
    }
}
