//! The operations of a foreign history, one after another.

use crate::args::SourceArguments;
use crate::load::{damages, is_test_file};
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_checker::MissingPart;
use seatrial_history::{
    ChunkBuffer, Chunks, History, Op, Provenance, SALVAGED, Salvaged, TestFile,
};
use seatrial_interchange::import::{
    self, FileOperations, Format, ImportOptions, JepsenFile, TextChunks, is_jepsen,
};
use seatrial_machine::unknown_name;
use seatrial_terminal::complain;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

/// The formats that `--format` takes.
pub(crate) const FORMATS: &str = "auto, sea, edn, json, jsonl, jepsen, porcupine, porcupine-json, csv, plume, awdit, \
                                  dbcop, dbcop-json, cobra, veristrong, timekiller";

/// Bytes at a file's start that its format is detected from.
const DETECTION_LENGTH: u64 = 4_096;

/// A history that is read operation by operation, in constant memory.
pub(crate) struct HistorySource {
    path: PathBuf,
    kind: SourceKind,
    /// How much there is in all: bytes of a text, operations of a test file, chunks of Jepsen's; 0 when not known.
    pub(crate) length: u64,
    options: ImportOptions,
    /// Is what cannot be read left out?
    pub(crate) salvage: bool,
    /// Parts that were left out.
    pub(crate) missing: Vec<MissingPart>,
    /// What a reader should know about the file.
    pub(crate) warnings: Vec<String>,
}

enum SourceKind {
    /// Nothing was opened yet.
    None,
    Test(TestFile),
    /// What is left of a damaged test file.
    Salvaged(Box<Salvaged>),
    Text(FileOperations<Box<dyn Read>>),
    Jepsen(JepsenFile<Box<dyn Seekable>>),
}

/// What Jepsen's binary files are read from.
trait Seekable: Read + Seek {}

impl<T: Read + Seek> Seekable for T {}

/// How the operations of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Look at it.
    Auto,
    /// Our own test file.
    Sea,
    /// Jepsen's `test.jepsen`, or the `history.edn` beside it.
    Jepsen,
    /// A text.
    Text(Format),
}

impl Reading {
    /// The reading that `--format` names.
    pub(crate) fn by_name(name: &str) -> Result<Reading> {
        Ok(match name {
            "auto" => Reading::Auto,
            "sea" => Reading::Sea,
            "jepsen" => Reading::Jepsen,
            _ => match Format::by_name(name) {
                Some(format) => Reading::Text(format),
                None => bail!(unknown_name("format", name, FORMATS.split(", "))),
            },
        })
    }
}

impl Reading {
    /// The format of the file at `path`, if it is a text: the one that was named, else the one detected from its first bytes.
    pub(crate) fn text_format(self, path: &Path) -> Result<Option<Format>> {
        match self {
            Reading::Sea | Reading::Jepsen => Ok(None),
            Reading::Text(format) => Ok(Some(format)),
            Reading::Auto if is_test_file(path) => Ok(None),
            Reading::Auto => {
                let name = path.display().to_string();
                let mut first = Vec::new();
                let file = File::open(path).with_context(|| name.clone())?;
                let read = file.take(DETECTION_LENGTH).read_to_end(&mut first);
                read.with_context(|| name.clone())?;
                Ok(import::detect(&name, &first))
            }
        }
    }
}

/// Links to the newest run in a folder of runs that are followed.
const LATEST_MAX: usize = 3;

/// The history in the folder of a run: of Seatrial, or of Jepsen's store; of a folder of runs, that of the latest one.
/// `None` when the folder is neither.
pub(crate) fn stored(folder: &Path) -> Option<PathBuf> {
    const NAMES: [&str; 4] = ["history.sea", "test.jepsen", "history.edn", "history.jsonl"];
    let mut folder = folder.to_owned();
    for _ in 0..LATEST_MAX {
        let mut files = NAMES.iter().map(|name| folder.join(name));
        if let Some(file) = files.find(|file| file.is_file()) {
            return Some(file);
        }
        // Jepsen's, not that of PolySI and AWDIT.
        let text = folder.join("history.txt");
        if Reading::Auto.text_format(&text).ok().flatten() == Some(Format::Porcupine) {
            return Some(text);
        }
        folder.push("latest");
        if !folder.is_dir() {
            return None;
        }
    }
    None
}

/// The file that a person means by `path`: of a folder with a run, its history.
pub(crate) fn resolved(path: &Path, format: &str) -> PathBuf {
    let file = (format == "auto" && path.is_dir()).then(|| stored(path));
    file.flatten().unwrap_or_else(|| path.to_owned())
}

/// Hands the operations of all chunks to `take`, each with its number from 1.
fn each_op<C: Chunks>(chunks: &C, take: &mut impl FnMut(Op, u64) -> Result<()>) -> Result<()> {
    let mut buffer = ChunkBuffer::default();
    let mut count = 0;
    for number in 0..chunks.chunk_count() {
        let chunk = chunks.read_chunk(number, &mut buffer)?;
        for op in chunk.into_iter().flat_map(|chunk| chunk.ops()) {
            count += 1;
            take(op, count)?;
        }
    }
    Ok(())
}

impl HistorySource {
    /// The history that the command line names.
    pub(crate) fn of(arguments: &SourceArguments) -> Result<HistorySource> {
        let reading = Reading::by_name(&arguments.format)?;
        let is_test =
            reading == Reading::Sea || (reading == Reading::Auto && is_test_file(&arguments.file));
        if arguments.salvage && is_test {
            return HistorySource::salvaged(&arguments.file);
        }
        let mut source = HistorySource::open(&arguments.file, reading, arguments.options())?;
        source.salvage = arguments.salvage;
        Ok(source)
    }

    /// What is left of a damaged test file.
    fn salvaged(path: &Path) -> Result<HistorySource> {
        let salvaged = TestFile::salvage(path)?;
        let missing = MissingPart::of_salvaged(&salvaged, 0);
        let mut warnings: Vec<String> = missing.iter().map(MissingPart::warning).collect();
        warnings.extend(damages(&salvaged));
        Ok(HistorySource {
            path: path.to_owned(),
            length: salvaged.len(),
            kind: SourceKind::Salvaged(Box::new(salvaged)),
            options: ImportOptions::default(),
            salvage: true,
            missing: missing.into_iter().collect(),
            warnings,
        })
    }

    /// Opens the history in `path`; `-` is standard input.
    pub(crate) fn open(
        path: &Path,
        reading: Reading,
        options: ImportOptions,
    ) -> Result<HistorySource> {
        let mut source = HistorySource {
            path: path.to_owned(),
            kind: SourceKind::None,
            length: 0,
            options,
            salvage: false,
            missing: Vec::new(),
            warnings: Vec::new(),
        };
        let test = reading == Reading::Sea || (reading == Reading::Auto && is_test_file(path));
        if test {
            let file = TestFile::open(path)?;
            source.length = file.len();
            source.kind = SourceKind::Test(file);
            return Ok(source);
        }
        if path == Path::new("-") {
            let mut input = io::stdin().lock();
            let mut first = Vec::new();
            input.by_ref().take(8).read_to_end(&mut first)?;
            if is_jepsen(&first) {
                // Its blocks stand in no order.
                input.read_to_end(&mut first)?;
                source.jepsen(Box::new(Cursor::new(first)))?;
            } else {
                let text = Cursor::new(first).chain(input);
                source.text(reading, Box::new(text))?;
            }
            return Ok(source);
        }
        if path.is_dir() {
            if reading == Reading::Auto
                && let Some(file) = stored(path)
            {
                return HistorySource::open(&file, reading, options);
            }
            return source.folder(reading);
        }
        source.file(path, reading)?;
        Ok(source)
    }

    /// Opens a file that is no test file of ours.
    fn file(&mut self, path: &Path, reading: Reading) -> Result<()> {
        let name = || path.display().to_string();
        let mut file = File::open(path).with_context(name)?;
        let mut first = Vec::new();
        file.by_ref()
            .take(8)
            .read_to_end(&mut first)
            .with_context(name)?;
        let binary = matches!(reading, Reading::Auto | Reading::Jepsen);
        if binary && is_jepsen(&first) {
            return self.jepsen(Box::new(BufReader::new(file)));
        }
        self.length = file.metadata().with_context(name)?.len();
        self.text(reading, Box::new(Cursor::new(first).chain(file)))
    }

    /// Opens a folder that is one history: Cobra's logs, or the folder around one file that dbcop, PolySI and AWDIT write.
    fn folder(mut self, reading: Reading) -> Result<HistorySource> {
        let path = self.path.clone();
        for (name, format) in [
            ("history.bincode", Format::Dbcop),
            ("history.txt", Format::Plume),
        ] {
            let file = path.join(name);
            if matches!(reading, Reading::Auto) && file.is_file()
                || reading == Reading::Text(format)
            {
                self.file(&file, Reading::Text(format))?;
                self.path = file;
                return Ok(self);
            }
        }
        let name = path.display().to_string();
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&path).with_context(|| name.clone())? {
            let entry = entry.with_context(|| name.clone())?;
            let log = entry.path();
            if log.extension().is_some_and(|extension| extension == "log") {
                self.length += entry.metadata().with_context(|| name.clone())?.len();
                logs.push(log);
            }
        }
        let is_run = ["jepsen.log", "results.json", "results.edn"];
        let is_run = is_run.iter().any(|file| path.join(file).is_file());
        ensure!(
            !is_run || reading != Reading::Auto,
            "{name}: the folder of a run without its history (history.sea, test.jepsen or history.edn)"
        );
        ensure!(
            !logs.is_empty(),
            "{name}: a folder with neither a run (history.sea, test.jepsen, history.edn) nor logs of Cobra (*.log) nor history.bincode nor history.txt"
        );
        // T2 before T10.
        logs.sort_by_key(|log| (log.as_os_str().len(), log.clone()));
        let logs = logs.into_iter().map(|log| {
            let name = log.display().to_string();
            let file = File::open(log);
            (name, file.map(|file| Box::new(file) as Box<dyn Read>))
        });
        let operations = FileOperations::of_sessions(&name, logs, self.options)?;
        self.kind = SourceKind::Text(operations);
        Ok(self)
    }

    fn jepsen(&mut self, input: Box<dyn Seekable>) -> Result<()> {
        let file = JepsenFile::open(&self.path.display().to_string(), input)?;
        self.warnings.extend_from_slice(file.warnings());
        let old = file.warnings().iter().map(MissingPart::end);
        self.missing.extend(old);
        self.kind = SourceKind::Jepsen(file);
        Ok(())
    }

    fn text(&mut self, reading: Reading, input: Box<dyn Read>) -> Result<()> {
        let format = match reading {
            Reading::Text(format) => Some(format),
            Reading::Jepsen => Some(Format::Edn),
            Reading::Auto | Reading::Sea => None,
        };
        let name = self.path.display().to_string();
        let operations = FileOperations::open(&name, input, format, self.options);
        self.kind = SourceKind::Text(match operations {
            Err(error) if format.is_none() => {
                bail!("{error}; --format takes {FORMATS}");
            }
            operations => operations?,
        });
        Ok(())
    }

    /// Is it a text, which is read from its beginning to its end?
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.kind, SourceKind::Text(_))
    }

    /// The operations of a text in chunks of at most `length_max`; `None` when it is no text.
    pub(crate) fn into_chunks(self, length_max: usize) -> Option<TextChunks<Box<dyn Read>>> {
        match self.kind {
            SourceKind::Text(operations) => Some(operations.into_chunks(length_max)),
            SourceKind::None
            | SourceKind::Test(_)
            | SourceKind::Salvaged(_)
            | SourceKind::Jepsen(_) => None,
        }
    }

    /// Attributes of the test; of a foreign file its name and format.
    pub(crate) fn attributes(&mut self) -> Result<Json> {
        match &mut self.kind {
            SourceKind::None => Ok(Json::Null),
            SourceKind::Test(file) => {
                let mut attributes = file.attributes()?;
                if !file.is_complete() {
                    Provenance::default().unended().add_to(&mut attributes);
                }
                Ok(attributes)
            }
            SourceKind::Salvaged(file) => {
                let attributes = file.attributes().filter(|it| it.is_object()).cloned();
                let mut attributes = attributes.unwrap_or_else(|| json!({}));
                if !file.missing().is_empty() {
                    attributes[SALVAGED] = file.report();
                }
                Ok(attributes)
            }
            SourceKind::Jepsen(file) => Ok(file.attributes()?),
            SourceKind::Text(operations) => {
                let name = self.path.display().to_string();
                let format = operations.format();
                let mut attributes = json!({"name": name, "format": format.name()});
                operations.provenance().add_to(&mut attributes);
                Ok(attributes)
            }
        }
    }

    /// The newest results, if the file holds any.
    pub(crate) fn results(&mut self) -> Result<Option<Json>> {
        match &mut self.kind {
            SourceKind::Test(file) => Ok(file.results()?),
            SourceKind::Salvaged(file) => Ok(file.results()?),
            SourceKind::Jepsen(file) => Ok(file.results()?),
            SourceKind::Text(_) | SourceKind::None => Ok(None),
        }
    }

    /// Hands all operations to `take`, in order, with how much of [`HistorySource::length`] they and those before take. An error
    /// of `take` gets the place in the file.
    pub(crate) fn for_each(&mut self, mut take: impl FnMut(Op, u64) -> Result<()>) -> Result<()> {
        match &mut self.kind {
            SourceKind::None => {}
            SourceKind::Test(file) => each_op(&*file, &mut take)?,
            SourceKind::Salvaged(file) => each_op(&**file, &mut take)?,
            SourceKind::Text(operations) => {
                let mut count = 0;
                while let Some(op) = operations.next() {
                    let op = match op {
                        // What has no operation at all is no history that was damaged.
                        Err(error) if self.salvage && count > 0 => {
                            self.warnings
                                .push(format!("left out: what follows {error}"));
                            self.missing.push(MissingPart::end(error.to_string()));
                            break;
                        }
                        op => op?,
                    };
                    count += 1;
                    if let Err(error) = take(op, operations.bytes()) {
                        let place = operations.error("this operation cannot be taken over");
                        return Err(error.context(place));
                    }
                }
            }
            SourceKind::Jepsen(file) => {
                let mut operations = file.operations(self.options)?;
                self.length = operations.progress().1;
                while let Some(op) = operations.next() {
                    match op {
                        Ok(op) => take(op, operations.progress().0)?,
                        Err(error) if self.salvage => {
                            self.warnings.push(format!("left out: {error}"));
                            self.missing.push(MissingPart::anywhere(error.to_string()));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        self.note_order();
        Ok(())
    }

    /// Takes over what the text says of its indices once it was read.
    fn note_order(&mut self) {
        if let SourceKind::Text(operations) = &self.kind {
            self.warnings
                .extend(operations.warning().map(str::to_owned));
        }
    }

    /// Prints the warnings.
    pub(crate) fn warn(&self) {
        for warning in &self.warnings {
            complain!("seatrial: {warning}");
        }
    }

    /// The whole history in memory.
    pub(crate) fn history(&mut self) -> Result<History> {
        match &mut self.kind {
            SourceKind::Test(file) => Ok(file.history()?),
            SourceKind::Salvaged(file) => Ok(file.history()?),
            SourceKind::Text(operations) if !self.salvage => {
                let history = import::collect(operations)?;
                self.note_order();
                Ok(history)
            }
            SourceKind::Text(_) | SourceKind::Jepsen(_) | SourceKind::None => {
                let mut ops = Vec::new();
                self.for_each(|op, _| {
                    ensure!(
                        ops.len() < u32::MAX as usize - 1,
                        "more operations than a history in memory can have"
                    );
                    ops.push(op);
                    Ok(())
                })?;
                Ok(History::from_ops(ops))
            }
        }
    }
}
