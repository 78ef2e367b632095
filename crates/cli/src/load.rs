//! A history from whatever file a person names.

use anyhow::{Context as _, Result, bail};
use seatrial_history::import::{self, Format, Options};
use seatrial_history::{History, Tail, TestFile};
use serde_json::{Value as Json, json};
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

/// The formats that `--format` takes.
const FORMATS: &str = "auto, sea, edn, jepsen, porcupine";

/// The first bytes of a test file.
const MAGIC: &[u8; 8] = b"SEATRIAL";

/// Largest foreign file; it is read as a whole.
const LENGTH_MAX: u64 = 4 << 30;

/// Loads the history in `path`. With `keyed`, values `[key value]` of EDN belong to independent keys.
pub(crate) fn load(path: &Path, format: &str, keyed: bool) -> Result<Loaded> {
    let name = path.display().to_string();
    let wanted = match format {
        "auto" | "sea" => None,
        other => Some(
            Format::by_name(other)
                .with_context(|| format!("there is no format {other:?}; there are {FORMATS}"))?,
        ),
    };
    if format == "sea" || (format == "auto" && is_test_file(path)) {
        return test_file(path);
    }
    let bytes = read(path).with_context(|| name.clone())?;
    let Some(format) = wanted.or_else(|| import::detect(&name, &bytes)) else {
        bail!("{name}: not a history in a format that is known; --format takes {FORMATS}");
    };
    let history = import::read(&name, &bytes, format, Options { keyed })?;
    Ok(Loaded {
        history,
        attributes: json!({"name": name, "format": format.name()}),
        warnings: Vec::new(),
    })
}

/// Does the file begin like a test file? Whatever cannot be read is told by who reads all of it.
fn is_test_file(path: &Path) -> bool {
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
        history: file.history()?,
        attributes: file.attributes()?,
        warnings,
    })
}

/// The bytes of a file, or of standard input for `-`.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(LENGTH_MAX)
            .read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::File::open(path)?
        .take(LENGTH_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
