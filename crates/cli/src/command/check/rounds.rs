//! Judging transactions on lists in a text, which is read from its beginning as often as need be.

use super::counted::Counted;
use super::stream::named;
use super::workload_of;
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::write_findings;
use crate::source::{Reading, Source};
use crate::times::Promise;
use anyhow::{Context as _, Result, bail};
use seatrial_checker::txn::{Level, ListAppend, Rounds};
use seatrial_history::import::Options;
use seatrial_history::{Chunk, History, Op};
use seatrial_report::Report;
use serde_json::Value as Json;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Operations of a chunk.
const CHUNK_LENGTH: usize = 16_384;
/// Operations from which it is told what a text is about.
const SAMPLE_LENGTH: usize = 2_048;
/// Texts from so many bytes on are judged in constant memory without being asked.
const LENGTH_MIN: u64 = 32 << 20;

/// The operations of a text in chunks.
pub(super) struct Text {
    path: PathBuf,
    reading: Reading,
    options: Options,
    /// The first and the last time in it, once it was read.
    times: Cell<(i64, i64)>,
}

/// Nobody wants more. Not an error for people.
#[derive(Debug)]
struct Enough;

impl fmt::Display for Enough {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("nobody wants more")
    }
}

impl std::error::Error for Enough {}

impl Text {
    /// The text at `path`, unless it is something else or cannot be read twice.
    pub(super) fn of(path: &Path, arguments: &CheckArguments) -> Result<Option<Text>> {
        let (reading, options) = (Reading::by_name(&arguments.format)?, arguments.options());
        if !path.is_file() || options.keyed || !Source::open(path, reading, options)?.is_text() {
            return Ok(None);
        }
        Ok(Some(Text {
            path: path.to_owned(),
            reading,
            options,
            times: Cell::default(),
        }))
    }

    /// Is it so long that memory matters?
    fn is_large(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() >= LENGTH_MIN)
    }

    /// What its first operations look like.
    pub(super) fn sample(&self) -> Result<History> {
        let mut ops = Vec::new();
        self.each(|op| {
            ops.push(op);
            if ops.len() == SAMPLE_LENGTH {
                bail!(Enough);
            }
            Ok(())
        })?;
        Ok(History::from_ops(ops))
    }

    pub(super) fn attributes(&self) -> Result<Json> {
        Source::open(&self.path, self.reading, self.options)?.attributes()
    }

    /// The operations of these indices with the other halves of them, as a history of their own. The text is read once to find
    /// those, and once more for the operations.
    fn taking_part(&self, named: &BTreeSet<u64>) -> Result<History> {
        // By position: what is shown, and of which of it the completion is not known yet.
        let (mut shown, mut begun) = (BTreeSet::new(), BTreeSet::new());
        let mut ops = Vec::new();
        if named.is_empty() {
            return Ok(History::from_ops(ops));
        }
        self.each_place(|chunk, place, position| {
            if named.contains(&chunk.index(place)) {
                shown.insert(position);
                match chunk.invocation(place) {
                    Some(invocation) => shown.insert(invocation),
                    None => begun.insert(position),
                };
            }
        })?;
        self.each_place(|chunk, place, position| {
            let invocation = chunk.invocation(place);
            let is_end = invocation.is_some_and(|invocation| begun.contains(&invocation));
            if is_end || shown.contains(&position) {
                ops.push(chunk.op(place));
            }
        })?;
        Ok(History::from_ops(ops))
    }

    /// Tells each operation by its chunk, its place in that and its position.
    fn each_place(&self, mut tell: impl FnMut(&Chunk, usize, u64)) -> Result<()> {
        self.round(&mut |chunk| {
            for place in 0..chunk.len() {
                tell(chunk, place, chunk.first_position() + place as u64);
            }
            ControlFlow::Continue(())
        })
    }

    /// Seconds between the first and the last operation.
    fn seconds(&self) -> f64 {
        let (first, last) = self.times.get();
        last.saturating_sub(first).max(0) as f64 / 1e9
    }

    fn each(&self, mut take: impl FnMut(Op) -> Result<()>) -> Result<()> {
        let mut source = Source::open(&self.path, self.reading, self.options)?;
        match source.for_each(|op, _| take(op)) {
            Err(error) if error.chain().any(|cause| cause.is::<Enough>()) => Ok(()),
            done => done,
        }
    }
}

impl Rounds for Text {
    type Error = anyhow::Error;

    fn round(&self, take: &mut dyn FnMut(&Chunk) -> ControlFlow<()>) -> Result<()> {
        let source = Source::open(&self.path, self.reading, self.options)?;
        let chunks = source.into_chunks(CHUNK_LENGTH);
        let mut chunks = chunks.context("what was a text is none any more")?;
        let mut times: Option<(i64, i64)> = None;
        while let Some(chunk) = chunks.read()? {
            if let Some((first, last)) = known_times(chunk) {
                let (before, after) = times.unwrap_or((first, last));
                times = Some((before.min(first), after.max(last)));
            }
            if take(chunk).is_break() {
                break;
            }
        }
        self.times.set(times.unwrap_or_default());
        Ok(())
    }
}

/// The first and the last time that is known in a chunk.
fn known_times(chunk: &Chunk) -> Option<(i64, i64)> {
    let header = chunk.header();
    if header.time_min >= 0 {
        return Some((header.time_min, header.time_max));
    }
    let known = || chunk.times().iter().copied().filter(|&time| time >= 0);
    Some((known().min()?, known().max()?))
}

/// The text at `path`, if it is judged in constant memory: because transactions on lists were asked for, or because it is
/// long and full of them.
pub(super) fn wanted(path: &Path, arguments: &CheckArguments) -> Result<Option<Text>> {
    let needs_all = arguments.salvage
        || arguments.record
        || arguments.report.is_some()
        || !arguments.infer.is_empty()
        || arguments.transaction_order.is_some();
    let names = arguments.checker.as_deref();
    let is_asked = names.is_some_and(|names| names == ["list-append"]);
    let model = arguments.model.as_deref();
    let is_known = model.is_none_or(|model| Level::by_name(model).is_some());
    if needs_all || !is_known || (names.is_some() && !is_asked) {
        return Ok(None);
    }
    let Some(text) = Text::of(path, arguments)? else {
        return Ok(None);
    };
    let is_wanted =
        is_asked || text.is_large() && workload_of(&text.sample()?) == Some("list-append");
    Ok(is_wanted.then_some(text))
}

/// Judges the text at `path` and shows the verdict unless it goes into a document.
pub(super) fn check(path: &Path, text: &Text, arguments: &CheckArguments) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let attributes = text.attributes()?;
    let promise = Promise::of(arguments.model.as_deref(), &attributes);
    let level = promise.model().and_then(Level::by_name).unwrap_or_default();
    let (verdict, _) = ListAppend::new(level).certify_rounds(text, false)?;
    let mut verdicts = [verdict];
    promise.weaken(&mut verdicts);
    if let Some(folder) = &arguments.findings {
        let parts = text.taking_part(&named(&verdicts))?;
        write_findings(folder, &Report::new(&attributes, &parts, &verdicts))?;
    }
    let [verdict] = verdicts;
    let counted = Counted {
        path,
        attributes: &attributes,
        verdict,
        warning: promise.warning(),
        seconds: text.seconds(),
        began,
    };
    Ok(counted.conclude(arguments))
}
