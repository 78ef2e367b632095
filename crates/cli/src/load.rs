//! A history from whatever file a person names.

use crate::source::{Reading, Source};
use anyhow::Result;
use seatrial_history::{History, OpenError, Tail, TestFile};
use serde_json::Value as Json;
use std::io::Read;
use std::path::Path;

/// A history and what its file says about it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) history: History,
    /// Attributes of the test; of a foreign file only its name.
    pub(crate) attributes: Json,
    /// What a reader should know about the file: a torn end, a run that is still going on.
    pub(crate) warnings: Vec<String>,
}

/// The first bytes of a test file.
const MAGIC: &[u8; 8] = b"SEATRIAL";

/// Loads the history in `path`. With `keyed`, values `[key value]` of EDN belong to independent keys.
pub(crate) fn load(path: &Path, format: &str, keyed: bool) -> Result<Loaded> {
    let reading = Reading::by_name(format)?;
    if reading == Reading::Sea || (reading == Reading::Auto && is_test_file(path)) {
        return test_file(path);
    }
    let mut source = Source::open(path, reading, keyed)?;
    Ok(Loaded {
        attributes: source.attributes()?,
        history: source.history()?,
        warnings: source.warnings,
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
    let mut warnings = Vec::new();
    if !file.is_complete() {
        let how = match file.tail() {
            Some(Tail::Torn(torn)) => format!(" (it ends in a {torn})"),
            _ => String::new(),
        };
        warnings.push(format!(
            "this test has not come to its end: it is still running, or was killed{how}"
        ));
    }
    Ok(Loaded {
        history: file.history().map_err(chunk_by_chunk)?,
        attributes: file.attributes()?,
        warnings,
    })
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
