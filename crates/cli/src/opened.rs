//! A history that is about to be checked, wherever it is.

use crate::independent;
use crate::load::{damages, is_test_file, not_ended, unended};
use crate::source::{HistorySource, Reading};
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_check::infer::Shapes;
use seatrial_check::{ChunkReadAhead, Give, SharedSource, round_of};
use seatrial_checker::{MissingPart, Overview};
use seatrial_history::chunk::Assembly;
use seatrial_history::{
    Chunk, ChunkSource, Op, OpType, OpenError, Provenance, SourceError, Take, TestFile,
    TransactionSink,
};
use seatrial_interchange::import::registers::TransactionReader;
use seatrial_interchange::import::{Format, ImportOptions};
use serde_json::Value as Json;
use std::fmt;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Operations of a chunk that is made of a text.
const CHUNK_LENGTH: usize = 16_384;
/// Operations of a text that are looked at before it is read.
const FIRST_LENGTH: usize = 1_024;

/// A history and what is known of it before it is read: the same struct whichever format it has.
pub(crate) struct Opened {
    /// Its chunks.
    pub(crate) source: SharedSource,
    /// What it says of itself, provenance included.
    pub(crate) attributes: Json,
    /// Which parts are missing.
    pub(crate) missing: Vec<MissingPart>,
    /// What a reader should know about the file.
    pub(crate) warnings: Vec<String>,
    /// What its first operations look like.
    pub(crate) shapes: Shapes,
    /// How long it is: events, or bytes of a text; 0 when not known.
    pub(crate) length: u64,
    /// Bytes of a text that were read in this round.
    bytes: Option<Arc<AtomicU64>>,
    /// Are the attributes of the test lost with a part of its file?
    pub(crate) has_lost_attributes: bool,
    /// Was it written by another program, which completes every operation?
    is_foreign: bool,
    /// What comes to light when it is read.
    notes: Arc<Mutex<Notes>>,
}

/// What a text or a damaged file shows only when it is read.
#[derive(Clone, Debug, Default)]
struct Notes {
    missing: Vec<MissingPart>,
    warnings: Vec<String>,
}

/// How a file is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) reading: Reading,
    pub(crate) options: ImportOptions,
    /// Are values `[key value]` those of independent keys, whatever they look like?
    pub(crate) keyed: bool,
    pub(crate) salvage: bool,
    /// Threads that may read ahead.
    pub(crate) threads: usize,
}

impl Opened {
    /// Opens the history at `path`; `-` is standard input, which is read once and kept.
    pub(crate) fn open(path: &Path, opening: Opening) -> Result<Opened> {
        let is_test = opening.reading == Reading::Sea
            || (opening.reading == Reading::Auto && is_test_file(path));
        let mut opened = match (is_test, opening.salvage) {
            (true, true) => Opened::salvaged(path)?,
            (true, false) => Opened::test_file(path, opening.threads)?,
            (false, _) => Opened::foreign(path, opening)?,
        };
        let first = opened.peek()?;
        if first.is_completions_only()
            && !Provenance::of_attributes(&opened.attributes).is_timeless()
            && opened.is_completions_only()?
        {
            Provenance::default()
                .timeless()
                .add_to(&mut opened.attributes);
        }
        let marked = opened.attributes["keyed"].as_bool();
        let is_keyed = || Ok::<_, anyhow::Error>(first.is_tuple && opened.is_keyed()?);
        ensure!(
            !opening.keyed || !first.shapes.has_transactions(),
            "{}: --keyed is for tuples [key value], and these are transactions",
            path.display()
        );
        if opening.keyed || marked.is_none() && is_keyed()? {
            opened.key();
            opened.shapes = opened.peek()?.shapes;
        } else {
            opened.shapes = first.shapes;
        }
        Ok(opened)
    }

    fn test_file(path: &Path, threads: usize) -> Result<Opened> {
        let file = Arc::new(TestFile::open(path)?);
        let mut attributes = file.attributes()?;
        let provenance = Provenance::of_attributes(&attributes);
        let lost = MissingPart::of_provenance(&provenance);
        let mut missing: Vec<MissingPart> = lost.into_iter().collect();
        let mut warnings: Vec<String> = missing.iter().map(MissingPart::warning).collect();
        missing.extend(unended(&file));
        warnings.extend(not_ended(&file, path));
        if !file.is_complete() {
            Provenance::default().unended().add_to(&mut attributes);
        }
        let readers = threads.saturating_sub(1).min(READERS_MAX);
        Ok(Opened {
            source: Arc::new(ChunkReadAhead::new(Arc::clone(&file), readers)),
            attributes,
            missing,
            warnings,
            length: file.len(),
            bytes: None,
            shapes: Shapes::default(),
            has_lost_attributes: false,
            is_foreign: false,
            notes: Arc::default(),
        })
    }
}

/// Threads that decode chunks ahead of the checkers, at most: decoding takes less time than any checker.
const READERS_MAX: usize = 4;

impl Opened {
    /// What is left of a damaged test file, in memory.
    fn salvaged(path: &Path) -> Result<Opened> {
        let salvaged = TestFile::salvage(path)?;
        let (history, orphans) = salvaged.history_to_check()?;
        let attributes = salvaged.attributes().cloned().unwrap_or_default();
        let lost = MissingPart::of_salvaged(&salvaged, orphans);
        let provenance = Provenance::of_attributes(&attributes);
        let lost = lost.or_else(|| MissingPart::of_provenance(&provenance));
        let mut warnings: Vec<String> = lost.iter().map(MissingPart::warning).collect();
        let end = || MissingPart::of_unsealed(&provenance);
        let missing = lost.or_else(|| (!salvaged.is_complete()).then(end));
        warnings.extend(damages(&salvaged));
        let has_lost_attributes = salvaged.attributes().is_none();
        if has_lost_attributes {
            warnings.push("the attributes of the test are lost".to_owned());
        }
        Ok(Opened {
            has_lost_attributes,
            length: history.len() as u64,
            bytes: None,
            source: Arc::new(history),
            attributes,
            missing: missing.into_iter().collect(),
            warnings,
            shapes: Shapes::default(),
            is_foreign: false,
            notes: Arc::default(),
        })
    }

    /// A file of another program: read as often as needed, or once and kept when that is not possible.
    fn foreign(path: &Path, opening: Opening) -> Result<Opened> {
        let mut source = HistorySource::open(path, opening.reading, opening.options)?;
        source.salvage = opening.salvage;
        let attributes = source.attributes()?;
        let mut warnings = std::mem::take(&mut source.warnings);
        let mut missing = std::mem::take(&mut source.missing);
        let lost = MissingPart::of_provenance(&Provenance::of_attributes(&attributes));
        if missing.is_empty() {
            warnings.extend(lost.as_ref().map(MissingPart::warning));
            missing.extend(lost);
        }
        let (notes, bytes): (Arc<Mutex<Notes>>, Arc<AtomicU64>) = Default::default();
        let length = source.length;
        let can_reopen = path.is_file() || path.is_dir();
        let source: SharedSource = if can_reopen {
            Arc::new(Foreign {
                path: path.to_owned(),
                opening,
                notes: Arc::clone(&notes),
                bytes: Arc::clone(&bytes),
            })
        } else {
            Arc::new(KeptChunks::of(source, (&notes, &bytes))?)
        };
        Ok(Opened {
            source,
            attributes,
            missing,
            warnings,
            shapes: Shapes::default(),
            length,
            bytes: Some(bytes),
            has_lost_attributes: false,
            is_foreign: true,
            notes,
        })
    }

    /// Are its values tuples `[key value]` of independent keys (Jepsen's `independent`)? Its text is the same for tuples and
    /// lists: every client invokes tuples then, some of them without a value (`[key nil]`). The first invocation decides for
    /// most histories that they are not; only where it is a tuple, all are looked at.
    fn is_keyed(&self) -> Result<bool> {
        let (mut all, mut bare) = (true, false);
        self.source
            .round(&mut |chunk| {
                for op in invocations(chunk) {
                    all &= independent::is_tuple(&op);
                    bare |= independent::is_bare_tuple(&op);
                }
                if all {
                    return ControlFlow::Continue(());
                }
                ControlFlow::Break(())
            })
            .map_err(of_source)?;
        Ok(all && bare)
    }

    /// From now on its tuples are keyed values.
    fn key(&mut self) {
        self.attributes["keyed"] = true.into();
        self.source = Arc::new(Keyed(Arc::clone(&self.source)));
    }

    /// How many events it has; 0 when that is not known, as of a text.
    pub(crate) fn event_count(&self) -> u64 {
        match self.bytes {
            None => self.length,
            Some(_) => 0,
        }
    }

    /// How much of [`Opened::length`] was read with this many events.
    pub(crate) fn done(&self, events: u64) -> u64 {
        let bytes = self.bytes.as_ref();
        bytes.map_or(events, |bytes| bytes.load(Ordering::Relaxed))
    }

    /// What its first operations show.
    fn peek(&self) -> Result<Peek> {
        let mut peek = Peek::default();
        let first = self.source.first(&mut |chunk| peek.take(chunk));
        first.map_err(of_source)?;
        Ok(peek)
    }

    /// Has the history completions of clients and not one invocation? Then when they began is not known.
    fn is_completions_only(&self) -> Result<bool> {
        let mut peek = Peek::default();
        let round = self.source.round(&mut |chunk| {
            peek.look(chunk);
            if peek.has_invocations {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        round.map_err(of_source)?;
        Ok(peek.is_completions_only())
    }

    /// Adds what was found while reading: parts that were left out, doubts about its indices, and of another program's
    /// history invocations without a completion: it was cut, since such programs complete every operation.
    pub(crate) fn take_notes(&mut self, overview: &Overview) {
        if self.is_foreign && self.missing.is_empty() && overview.open() > 0 {
            let what = match overview.open() {
                1 => "1 invocation has no completion".to_owned(),
                many => format!("{many} invocations have no completion"),
            };
            self.missing.push(MissingPart::end(what));
        }
        self.take_reading_notes();
    }

    /// The same of what only a reader sees.
    pub(crate) fn take_reading_notes(&mut self) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in notes.warnings.drain(..) {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        for missing in notes.missing.drain(..) {
            if !self.missing.contains(&missing) {
                self.missing.push(missing);
            }
        }
    }
}

/// The invocations of clients in a chunk.
fn invocations(chunk: &Chunk) -> impl Iterator<Item = Op> + '_ {
    let views = chunk.views();
    let invoked = views.filter(|view| view.kind() == OpType::Invoke && view.process().is_client());
    invoked.map(|view| view.op())
}

/// What the beginning of a history shows.
#[derive(Default)]
struct Peek {
    /// Is the first invocation a tuple `[key value]`?
    is_tuple: bool,
    has_invocations: bool,
    has_completions: bool,
    shapes: Shapes,
}

impl Peek {
    fn take(&mut self, chunk: &Chunk) {
        self.is_tuple = invocations(chunk)
            .next()
            .is_some_and(|op| independent::is_tuple(&op));
        self.shapes.take_chunk(chunk);
        self.look(chunk);
    }

    fn look(&mut self, chunk: &Chunk) {
        let clients: Vec<bool> = chunk
            .processes()
            .iter()
            .map(|one| one.is_client())
            .collect();
        for (kind, process) in chunk.kinds().iter().zip(chunk.process_ids()) {
            if clients[*process as usize] {
                self.has_invocations |= *kind == OpType::Invoke;
                self.has_completions |= *kind != OpType::Invoke;
            }
        }
    }

    fn is_completions_only(&self) -> bool {
        self.has_completions && !self.has_invocations
    }
}

/// The error of a source as one of ours, its type kept.
pub(crate) fn of_source(error: SourceError) -> anyhow::Error {
    match error.downcast::<OpenError>() {
        // Boxed, an error of a test file could not be recognised by its type.
        Ok(error) => (*error).into(),
        Err(error) => anyhow::Error::from_boxed(error),
    }
}

/// A file of another program, opened anew for each round.
struct Foreign {
    path: PathBuf,
    opening: Opening,
    notes: Arc<Mutex<Notes>>,
    bytes: Arc<AtomicU64>,
}

impl Foreign {
    /// Opens the file and gives its operations in chunks of this length.
    fn produce(&self, length: usize, give: &mut Give<'_>) -> Result<(), SourceError> {
        let opening = self.opening;
        let mut source = HistorySource::open(&self.path, opening.reading, opening.options)?;
        source.salvage = opening.salvage;
        Ok(produce(source, length, (&self.notes, &self.bytes), give)?)
    }
}

impl ChunkSource for Foreign {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        let produce = |give: &mut Give<'_>| self.produce(CHUNK_LENGTH, give);
        round_of(self.opening.threads > 1, produce, take)
    }

    /// Reads fewer operations than a chunk has, in the thread of the caller: a short history costs little more than one reading.
    fn first(&self, look: &mut dyn FnMut(&Chunk)) -> Result<(), SourceError> {
        self.produce(FIRST_LENGTH, &mut |chunk| {
            look(chunk);
            ControlFlow::Break(())
        })
    }

    /// Of a file of transactions without times that is one text.
    fn transactions(&self, sink: &mut dyn TransactionSink) -> Option<Result<(), SourceError>> {
        let opening = self.opening;
        let format = opening.reading.text_format(&self.path).ok().flatten()?;
        if format.has_times() || format == Format::Cobra || opening.salvage || !self.path.is_file()
        {
            return None;
        }
        let name = self.path.display().to_string();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) => return Some(Err(error.into())),
        };
        let mut reader = TransactionReader::open(&name, file, format, opening.options);
        loop {
            match reader.advance(sink) {
                Ok(true) => self.bytes.store(reader.bytes(), Ordering::Relaxed),
                Ok(false) => return Some(Ok(())),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

/// Gives the operations of a foreign history in chunks. What it left out and doubts goes into the notes.
fn produce(
    mut source: HistorySource,
    length: usize,
    (notes, bytes): (&Mutex<Notes>, &AtomicU64),
    give: &mut Give<'_>,
) -> Result<()> {
    let mut chunk = Chunk::default();
    if source.is_text() && !source.salvage {
        let chunks = source.into_chunks(length);
        let mut chunks = chunks.context("what was a text is none any more")?;
        while chunks.read_into(&mut chunk)? {
            bytes.store(chunks.bytes(), Ordering::Relaxed);
            if give(&mut chunk).is_break() {
                return Ok(());
            }
        }
        note(notes, Vec::new(), chunks.warning().map(str::to_owned));
        return Ok(());
    }
    let mut assembly = Assembly::new(length);
    let read = source.for_each(|op, done| {
        bytes.store(done, Ordering::Relaxed);
        if assembly.push_to(&op, &mut chunk)? && give(&mut chunk).is_break() {
            bail!(Enough);
        }
        Ok(())
    });
    match read {
        Err(error) if error.chain().any(|cause| cause.is::<Enough>()) => return Ok(()),
        read => read?,
    }
    note(
        notes,
        std::mem::take(&mut source.missing),
        std::mem::take(&mut source.warnings),
    );
    if assembly.swap_rest(&mut chunk) {
        let _ = give(&mut chunk);
    }
    Ok(())
}

/// Adds to the notes.
fn note(
    notes: &Mutex<Notes>,
    missing: Vec<MissingPart>,
    warnings: impl IntoIterator<Item = String>,
) {
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    notes.missing.extend(missing);
    notes.warnings.extend(warnings);
}

/// Ends a round before the end of the file. Not an error for people.
#[derive(Debug)]
struct Enough;

impl fmt::Display for Enough {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("no more operations are needed")
    }
}

impl std::error::Error for Enough {}

/// A history that can be read only once, kept in chunks.
struct KeptChunks(Vec<Chunk>);

impl KeptChunks {
    fn of(source: HistorySource, notes: (&Mutex<Notes>, &AtomicU64)) -> Result<KeptChunks> {
        let mut chunks = Vec::new();
        produce(source, CHUNK_LENGTH, notes, &mut |chunk| {
            chunks.push(std::mem::take(chunk));
            ControlFlow::Continue(())
        })?;
        Ok(KeptChunks(chunks))
    }
}

impl ChunkSource for KeptChunks {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        for chunk in &self.0 {
            if take(chunk).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A history whose tuples are keyed values.
struct Keyed(SharedSource);

impl ChunkSource for Keyed {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        let mut failure = None;
        let mut assembly = Assembly::new(CHUNK_LENGTH);
        let mut keyed = Chunk::default();
        self.0.round(&mut |chunk| {
            for op in chunk.ops() {
                match assembly.push_to(&independent::keyed_op(op), &mut keyed) {
                    Ok(false) => {}
                    Ok(true) if take(&keyed).is_continue() => {}
                    Ok(true) => return ControlFlow::Break(()),
                    Err(error) => {
                        failure = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            // One chunk becomes one, so that positions are those of the source, and nothing is left at a break.
            if assembly.swap_rest(&mut keyed) && take(&keyed).is_break() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        failure.map_or(Ok(()), |error| Err(error.into()))
    }
}
