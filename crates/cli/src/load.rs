//! A history from whatever file a person names.

use anyhow::{Context as _, Result, bail};
use seatrial_history::History;
use seatrial_history::import::{self, Format, Options};
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
