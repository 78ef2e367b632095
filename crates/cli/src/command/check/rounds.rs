//! Judging transactions in a text, which is read from its beginning as often as need be.

use super::choice;
use super::counted::Counted;
use super::prover::Prover;
use super::stream::named;
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::write_findings;
use crate::source::{Reading, SAMPLE_LENGTH, Source};
use crate::times::{Promise, mark_completions};
use anyhow::{Context as _, Result, bail};
use seatrial_checker::infer::Shapes;
use seatrial_checker::txn::Rounds;
use seatrial_checker::txn::isolation::Isolation;
use seatrial_checker::{Verdict, by_name};
use seatrial_history::import::{Format, Options};
use seatrial_history::{Chunk, History, Op, OpType};
use seatrial_report::Report;
use serde_json::Value as Json;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Operations of a chunk.
const CHUNK_LENGTH: usize = 16_384;
/// Texts from so many bytes on are judged chunk by chunk without being asked.
const LENGTH_MIN: u64 = 32 << 20;

/// Checkers of transactions that need no history in memory.
const CHECKERS: [&str; 3] = ["list-append", "rw-register", Isolation::NAME];

/// The operations of a text in chunks.
pub(super) struct Text {
    path: PathBuf,
    reading: Reading,
    options: Options,
    /// What it says of itself, and its first operations, once these were read.
    start: OnceCell<(Json, Vec<Op>)>,
    /// The first and the last time in it, and how many events it has, once it was read.
    times: Cell<(i64, i64)>,
    events: Cell<u64>,
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
            start: OnceCell::new(),
            times: Cell::default(),
            events: Cell::default(),
        }))
    }

    /// Is it so long that memory matters?
    fn is_large(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() >= LENGTH_MIN)
    }

    /// Its attributes and first operations, which are read once.
    fn start(&self) -> Result<&(Json, Vec<Op>)> {
        if let Some(start) = self.start.get() {
            return Ok(start);
        }
        let mut source = Source::open(&self.path, self.reading, self.options)?;
        let mut attributes = source.attributes()?;
        let mut ops = Vec::new();
        let read = source.for_each(|op, _| {
            ops.push(op);
            if ops.len() == SAMPLE_LENGTH {
                bail!(Enough);
            }
            Ok(())
        });
        match read {
            Err(error) if !error.chain().any(|cause| cause.is::<Enough>()) => return Err(error),
            _ => mark_completions(&mut attributes, &ops),
        }
        Ok(self.start.get_or_init(|| (attributes, ops)))
    }

    /// What its first operations look like.
    pub(super) fn sample(&self) -> Result<History> {
        Ok(History::from_ops(self.start()?.1.clone()))
    }

    /// What the text says of itself. Where its first operations are completions only, so are the others, and when they
    /// began is not known.
    pub(super) fn attributes(&self) -> Result<Json> {
        Ok(self.start()?.0.clone())
    }

    /// The operations of these indices with the other halves of them, as a history of their own, for which the text is read once
    /// more. What is open at the end of a chunk is carried along.
    fn taking_part(&self, named: &BTreeSet<u64>) -> Result<History> {
        let mut shown = Shown {
            named,
            ops: BTreeMap::new(),
            open: BTreeMap::new(),
            awaited: BTreeSet::new(),
        };
        if !named.is_empty() {
            self.round(&mut |chunk| {
                shown.take(chunk);
                ControlFlow::Continue(())
            })?;
        }
        Ok(History::from_ops(shown.ops.into_values().collect()))
    }

    /// Seconds between the first and the last operation.
    fn seconds(&self) -> f64 {
        let (first, last) = self.times.get();
        last.saturating_sub(first).max(0) as f64 / 1e9
    }
}

impl Rounds for Text {
    type Error = anyhow::Error;

    fn round(&self, take: &mut dyn FnMut(&Chunk) -> ControlFlow<()>) -> Result<()> {
        let source = Source::open(&self.path, self.reading, self.options)?;
        let chunks = source.into_chunks(CHUNK_LENGTH);
        let mut chunks = chunks.context("what was a text is none any more")?;
        let mut times: Option<(i64, i64)> = None;
        let mut events = 0;
        while let Some(chunk) = chunks.read()? {
            events += chunk.len() as u64;
            if let Some((first, last)) = known_times(chunk) {
                let (before, after) = times.unwrap_or((first, last));
                times = Some((before.min(first), after.max(last)));
            }
            if take(chunk).is_break() {
                break;
            }
        }
        self.times.set(times.unwrap_or_default());
        self.events.set(self.events.get().max(events));
        Ok(())
    }
}

/// What is shown of a history, as its chunks come by.
struct Shown<'a> {
    /// Indices of what is wanted.
    named: &'a BTreeSet<u64>,
    /// What is wanted, and the other halves of it, by position.
    ops: BTreeMap<u64, Op>,
    /// Invocations of earlier chunks without a completion so far.
    open: BTreeMap<u64, Op>,
    /// Positions of invocations that are wanted, whose completions are not known yet.
    awaited: BTreeSet<u64>,
}

impl Shown<'_> {
    fn take(&mut self, chunk: &Chunk) {
        let first = chunk.first_position();
        let mut is_open = vec![false; chunk.len()];
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, (&kind, &process)) in kinds.enumerate() {
            let is_client = chunk.processes()[process as usize].is_client();
            is_open[place] = kind == OpType::Invoke && is_client;
            let position = first + place as u64;
            let invocation = chunk.invocation(place);
            let at = invocation.and_then(|begun| begun.checked_sub(first));
            if let Some(at) = at {
                is_open[at as usize] = false;
            }
            // What was open before.
            let carried = invocation.and_then(|begun| self.open.remove(&begun));
            let is_awaited = invocation.is_some_and(|begun| self.awaited.remove(&begun));
            if !is_awaited && !self.named.contains(&chunk.index(place)) {
                continue;
            }
            match invocation {
                Some(begun) => {
                    let op = carried.or_else(|| Some(chunk.op(at? as usize)));
                    self.ops.extend(op.map(|op| (begun, op)));
                }
                None => _ = self.awaited.insert(position),
            }
            self.ops.insert(position, chunk.op(place));
        }
        for (place, _) in is_open.iter().enumerate().filter(|(_, is_open)| **is_open) {
            self.open.insert(first + place as u64, chunk.op(place));
        }
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

/// The text at `path`, if its transactions are judged chunk by chunk: because that was asked for, or because it is long and full
/// of them.
pub(super) fn wanted(path: &Path, arguments: &CheckArguments) -> Result<Option<Text>> {
    let needs_all = arguments.salvage || arguments.record || arguments.report.is_some();
    let asked = match arguments.checker.as_deref() {
        None => None,
        Some([name]) if CHECKERS.contains(&name.as_str()) => Some(name.as_str()),
        Some(_) => return Ok(None),
    };
    if needs_all {
        return Ok(None);
    }
    let Some(text) = Text::of(path, arguments)? else {
        return Ok(None);
    };
    let attributes = text.attributes()?;
    let name = match asked {
        Some(name) => Some(name),
        // There are other checkers for a database's timestamps.
        None if attributes["format"] == Format::TimeKiller.name() || !text.is_large() => None,
        None => guessed(&text, &attributes, arguments)?.map(|(name, _)| name),
    };
    let promise = Promise::of(arguments.model.as_deref(), &attributes);
    let is_known = |name: &str| CHECKERS.contains(&name) && by_name(name, promise.model()).is_ok();
    Ok(name.is_some_and(is_known).then_some(text))
}

/// The checker that the first operations of a long text are for, and why. Checkers of transactions refuse what does not
/// fit of the others.
fn guessed(
    text: &Text,
    attributes: &Json,
    arguments: &CheckArguments,
) -> Result<Option<(&'static str, String)>> {
    let infers = !arguments.infer.is_empty() || arguments.transaction_order.is_some();
    let look = || Ok(Shapes::of(&text.sample()?));
    Ok(choice::inferred(attributes, infers, look)?.ok())
}

/// Judges the text at `path` and shows the verdict unless it goes into a document.
pub(super) fn check(path: &Path, text: &Text, arguments: &CheckArguments) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let attributes = text.attributes()?;
    let promise = Promise::of(arguments.model.as_deref(), &attributes);
    let prover = Prover::new(arguments, &attributes, || text.sample());
    let prover = prover.with_context(|| path.display().to_string())?;
    let mut verdicts = [prover.judge_text(text)?];
    promise.weaken(&mut verdicts, arguments.undecided.accept_undecided);
    let [verdict] = verdicts;
    let why = if arguments.checker.is_some() {
        Some("asked for".to_owned())
    } else {
        guessed(text, &attributes, arguments)?.map(|(_, why)| why)
    };
    let counted = Counted {
        path,
        why,
        attributes: &attributes,
        verdict,
        warning: promise.warning(),
        seconds: text.seconds(),
        events: Some(text.events.get()),
        began,
    };
    let findings = |verdicts: &[Verdict]| {
        if let Some(folder) = &arguments.findings {
            let parts = text.taking_part(&named(verdicts))?;
            write_findings(folder, &Report::new(&attributes, &parts, verdicts))?;
        }
        Ok(())
    };
    Ok(counted.conclude_and(arguments, findings))
}
