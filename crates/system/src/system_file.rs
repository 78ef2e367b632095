//! Files that describe a system: read, checked, with errors at line and column.

use crate::definition::SystemDefinition;
use crate::system_decoder::decode;
use seatrial_plan::document::{EntryName, PlanEntry, PlanValue, TEXT_LENGTH_MAX};
use seatrial_plan::{PlanOptions, Problem, SYSTEM_TABLES};
use seatrial_runner::{PlanError, PlanSource};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A file that describes a system.
#[derive(Clone, Debug)]
pub struct SystemFile {
    name: String,
    text: String,
    home: PathBuf,
    definition: SystemDefinition,
    options: PlanOptions,
    has_plan: bool,
}

/// An error of a file that describes a system.
#[derive(Debug, Error)]
pub enum SystemFileError {
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// What the file says is wrong.
    #[error(transparent)]
    Content(#[from] PlanError),
}

/// Words of a plan that say nothing about what the clients do.
const WITHOUT_OPERATIONS: [&str; 4] = ["description", "name", "test", "model"];

impl SystemFile {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<SystemFile, SystemFileError> {
        let name = path.display().to_string();
        let failed = |reason: String| SystemFileError::File {
            path: name.clone(),
            reason,
        };
        let file = fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut text = String::new();
        let limited = file
            .take(TEXT_LENGTH_MAX as u64 + 1)
            .read_to_string(&mut text);
        limited.map_err(|error| failed(error.to_string()))?;
        let home = fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
        let home = home.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(SystemFile::from_text(name, text, home)?)
    }

    /// The same for a file that may be a mere plan: `None` if it has neither of the tables `system` and `client`, is no TOML,
    /// or is standard input (`-`).
    pub fn open_if_described(path: &Path) -> Result<Option<SystemFile>, SystemFileError> {
        let text = match fs::metadata(path) {
            Ok(found) if found.len() <= TEXT_LENGTH_MAX as u64 => fs::read_to_string(path),
            _ => return Ok(None), // who reads the plan says what is wrong
        };
        let text = text.unwrap_or_default();
        let source = PlanSource {
            file: "",
            text: &text,
        };
        let is_described = source.document().is_ok_and(|document| {
            names(&document).any(|name| SYSTEM_TABLES.contains(&name.text.as_str()))
        });
        is_described.then(|| SystemFile::open(path)).transpose()
    }

    /// The file with this text, in the folder `home`.
    pub fn from_text(name: String, text: String, home: PathBuf) -> Result<SystemFile, PlanError> {
        let source = PlanSource {
            file: &name,
            text: &text,
        };
        let document = source.document()?;
        let definition = decode(&document, &text).map_err(|problem| source.error(problem))?;
        let options = options_of(&document).map_err(|problem| source.error(problem))?;
        let has_plan = names(&document).any(|name| {
            let name = name.text.as_str();
            !SYSTEM_TABLES.contains(&name) && !WITHOUT_OPERATIONS.contains(&name)
        });
        Ok(SystemFile {
            home,
            definition,
            options: options.unwrap_or_default(),
            has_plan,
            name,
            text,
        })
    }

    /// The name of the system.
    pub fn system_name(&self) -> &str {
        &self.definition.name
    }

    /// The system.
    pub(crate) fn definition(&self) -> &SystemDefinition {
        &self.definition
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder that it is in.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The table `test`.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Does it say what the clients do, as a plan does?
    pub fn has_plan(&self) -> bool {
        self.has_plan
    }

    /// A problem with file, line and column.
    pub fn error(&self, problem: Problem) -> PlanError {
        let source = PlanSource {
            file: &self.name,
            text: &self.text,
        };
        source.error(problem)
    }
}

fn names(document: &PlanEntry) -> impl Iterator<Item = &EntryName> {
    let entries = match &document.value {
        PlanValue::Table(entries) => entries.as_slice(),
        _ => &[],
    };
    entries.iter().map(|(name, _)| name)
}

fn options_of(document: &PlanEntry) -> Result<Option<PlanOptions>, Problem> {
    use seatrial_plan::fields::Field;
    let mut reader = Field::root(document).table("a table")?;
    reader.read("test", PlanOptions::decode)
}
