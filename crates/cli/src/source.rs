//! Operations one after another, from whatever file a person names.

use crate::load::is_test_file;
use anyhow::{Context as _, Result, bail};
use seatrial_history::import::{self, Format, Operations, Options};
use seatrial_history::{ChunkBuffer, History, Op, TestFile};
use serde_json::{Value as Json, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The formats that `--format` takes.
pub(crate) const FORMATS: &str = "auto, sea, edn, json, jsonl, porcupine";

/// A history that is read operation by operation, in constant memory.
pub(crate) struct Source {
    path: PathBuf,
    kind: Kind,
    /// How much there is in all: bytes of a foreign file, operations of a test file; 0 when not known.
    pub(crate) length: u64,
}

enum Kind {
    Test(TestFile),
    Text(Operations<Box<dyn Read>>),
}

/// How the operations of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Look at it.
    Auto,
    /// Our own test file.
    Sea,
    /// A text.
    Text(Format),
}

impl Reading {
    /// The reading that `--format` names.
    pub(crate) fn by_name(name: &str) -> Result<Reading> {
        Ok(match name {
            "auto" => Reading::Auto,
            "sea" => Reading::Sea,
            _ => match Format::by_name(name) {
                Some(format) => Reading::Text(format),
                None => bail!("there is no format {name:?}; there are {FORMATS}"),
            },
        })
    }
}

impl Source {
    /// Opens the history in `path`; `-` is standard input. With `keyed`, values `[key value]` of foreign files belong to
    /// independent keys.
    pub(crate) fn open(path: &Path, reading: Reading, keyed: bool) -> Result<Source> {
        let name = path.display().to_string();
        let test = reading == Reading::Sea || (reading == Reading::Auto && is_test_file(path));
        let (kind, length) = if test {
            let file = TestFile::open(path)?;
            let length = file.len();
            (Kind::Test(file), length)
        } else {
            let (input, length): (Box<dyn Read>, u64) = if path == Path::new("-") {
                (Box::new(io::stdin().lock()), 0)
            } else {
                let file = File::open(path).with_context(|| name.clone())?;
                let length = file.metadata().with_context(|| name.clone())?.len();
                (Box::new(file), length)
            };
            let format = match reading {
                Reading::Text(format) => Some(format),
                Reading::Auto | Reading::Sea => None,
            };
            let operations = Operations::open(&name, input, format, Options { keyed });
            let known = || format!("--format takes {FORMATS}");
            let operations = match operations {
                Err(error) if format.is_none() => return Err(error).with_context(known),
                operations => operations?,
            };
            (Kind::Text(operations), length)
        };
        let path = path.to_owned();
        Ok(Source { path, kind, length })
    }

    /// Attributes of the test; of a foreign file its name and format.
    pub(crate) fn attributes(&self) -> Result<Json> {
        match &self.kind {
            Kind::Test(file) => Ok(file.attributes()?),
            Kind::Text(operations) => {
                let name = self.path.display().to_string();
                Ok(json!({"name": name, "format": operations.format().name()}))
            }
        }
    }

    /// The newest results, if the file holds any.
    pub(crate) fn results(&self) -> Result<Option<Json>> {
        match &self.kind {
            Kind::Test(file) => Ok(file.results()?),
            Kind::Text(_) => Ok(None),
        }
    }

    /// Hands all operations to `take`, in order, with how much of [`Source::length`] they and those before take. An error
    /// of `take` is told with the place in the file.
    pub(crate) fn for_each(&mut self, mut take: impl FnMut(&Op, u64) -> Result<()>) -> Result<()> {
        match &mut self.kind {
            Kind::Test(file) => {
                let mut buffer = ChunkBuffer::default();
                let mut count = 0;
                for number in 0..file.chunk_count() {
                    let chunk = file.read_chunk(number, &mut buffer)?;
                    for op in chunk.into_iter().flat_map(|chunk| chunk.ops()) {
                        count += 1;
                        take(&op, count)?;
                    }
                }
                Ok(())
            }
            Kind::Text(operations) => {
                while let Some(op) = operations.next().transpose()? {
                    if let Err(error) = take(&op, operations.bytes()) {
                        let place = operations.error("this operation cannot be taken over");
                        return Err(error.context(place));
                    }
                }
                Ok(())
            }
        }
    }

    /// The whole history in memory.
    pub(crate) fn history(&mut self) -> Result<History> {
        match &mut self.kind {
            Kind::Test(file) => Ok(file.history()?),
            Kind::Text(operations) => Ok(import::collect(operations)?),
        }
    }
}
