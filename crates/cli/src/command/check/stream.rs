//! Judging a test file chunk by chunk.

use super::{registers, show_one};
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::write_findings;
use crate::load::{is_test_file, not_ended};
use crate::losses::Losses;
use crate::resources::Resources;
use crate::times::Promise;
use anyhow::Result;
use seatrial_checker::txn::Level;
use seatrial_checker::{Streaming, Validity, Verdict};
use seatrial_history::{Folder, History, Op, TestFile, View};
use seatrial_report::{Counts, Report, Summary, results_json};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Operations from which on a history of transactions is judged chunk by chunk without being asked: in memory
/// as operations it would take some hundred bytes each.
const OPERATIONS_MIN: u64 = 1 << 18;

/// The checkers that were asked for, or those of the test file's workload when it is large, if each of them needs no whole
/// history and nobody wants the page, which does.
pub(super) fn wanted(path: &Path, arguments: &CheckArguments) -> Result<Option<Vec<Streaming>>> {
    let is_test = matches!(arguments.format.as_str(), "auto" | "sea") && is_test_file(path);
    if !is_test || arguments.salvage || arguments.report.is_some() {
        return Ok(None);
    }
    if arguments.transaction_order.is_some() {
        return Ok(None);
    }
    let file = TestFile::open(path)?;
    let attributes = file.attributes()?;
    let inference = registers::inference(&attributes, arguments)?;
    let promise = Promise::of(arguments.model.as_deref(), &attributes);
    if let Some(names) = &arguments.checker {
        let checkers = names.iter().map(|name| {
            let checker = Streaming::by_name(name)?.with_inference(inference);
            match (promise.model(), &arguments.model) {
                (Some(model), Some(_)) => checker.with_model(model),
                (Some(model), None) => checker.with_model(model).or(Some(checker)),
                (None, _) => Some(checker),
            }
        });
        let checkers: Option<Vec<_>> = checkers.collect();
        let checkers = checkers.filter(|checkers| !checkers.is_empty());
        return Ok(checkers.filter(|_| arguments.infer.is_empty() || infers(names)));
    }
    let workload = attributes["workload"].clone();
    let is_large = file.len() >= OPERATIONS_MIN;
    if !is_large || !arguments.infer.is_empty() && workload != "rw-register" {
        return Ok(None);
    }
    let level = match promise.model() {
        Some(model) => Level::by_name(model),
        None => Some(Level::default()),
    };
    let judge = |level| match workload.as_str()? {
        "list-append" => Some(Streaming::ListAppend(level)),
        "rw-register" => Some(Streaming::RwRegister(level, inference)),
        _ => None,
    };
    Ok(level
        .and_then(judge)
        .map(|judge| vec![Streaming::Stats, judge]))
}

/// Is there a checker among these for what it is to infer?
fn infers(names: &[String]) -> bool {
    names.iter().any(|name| name == "rw-register")
}

/// Judges the test file at `path` and shows the verdict unless it goes into a document. All checkers share one pass.
pub(super) fn check(
    path: &Path,
    checkers: &[Streaming],
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let file = Arc::new(TestFile::open(path)?);
    let verdicts = judge(&file, checkers, arguments.threads())?;
    let summary = summary(&file, &verdicts)?;
    conclude(path, &file, verdicts, (summary, began), arguments)
}

/// Shows verdicts on a test file that was not taken into memory, unless they go into a document.
pub(super) fn conclude(
    path: &Path,
    file: &Arc<TestFile>,
    mut verdicts: Vec<Verdict>,
    (summary, began): (Summary, Instant),
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let attributes = file.attributes()?;
    let promise = Promise::of(arguments.model.as_deref(), &attributes);
    promise.weaken(&mut verdicts);
    let losses = Losses::told_by(&attributes);
    if let Some(losses) = &losses {
        losses.weaken(&mut verdicts);
    }
    let mut report = Report::counted(&attributes, summary, &verdicts).checked_in(began.elapsed());
    let warning = losses.as_ref().map(Losses::warning);
    let warnings = warning.into_iter().chain(promise.warning());
    for warning in warnings.chain(not_ended(file, path)) {
        report = report.warn(warning);
    }
    if let Some(folder) = &arguments.findings {
        let parts = taking_part(file, &verdicts)?;
        write_findings(folder, &Report::new(&attributes, &parts, &verdicts))?;
    }
    let mut document = results_json(&report);
    if let Some(losses) = &losses {
        document["missing"] = losses.json();
    }
    if arguments.record {
        super::record(path, &document)?;
    }
    document["file"] = json!(path.display().to_string());
    if arguments.output.verbose {
        for verdict in &verdicts {
            eprintln!(
                " {}: {:?} {}",
                verdict.checker, verdict.valid, verdict.details
            );
        }
        eprintln!(" {}", Resources::since(began));
    }
    show_one(path, &report, &document, arguments);
    Ok((Exit::from(&Validity::of(&verdicts)), document))
}

/// Lets all judge side by side.
fn judge(file: &Arc<TestFile>, checkers: &[Streaming], threads: usize) -> Result<Vec<Verdict>> {
    let folder = Folder::new(file.clone(), threads);
    let verdicts: Vec<_> = std::thread::scope(|scope| {
        let judges = checkers.iter().map(|checker| {
            let folder = folder.clone();
            scope.spawn(move || checker.judge(&folder))
        });
        let judges: Vec<_> = judges.collect();
        let joined = judges.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.collect()
    });
    let mut all = Vec::new();
    for verdict in verdicts {
        // A panic is a bug of ours, wherever it happened.
        let verdict = verdict.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        all.push(verdict?);
    }
    Ok(all)
}

/// The indices of the operations that findings and components name.
pub(super) fn named(verdicts: &[Verdict]) -> BTreeSet<u64> {
    let found = verdicts.iter().flat_map(|verdict| &verdict.findings);
    let found = found.flat_map(|finding| &finding.operations);
    let components = verdicts.iter().flat_map(|verdict| &verdict.components);
    let components = components.flat_map(|component| &component.operations);
    found.chain(components).copied().collect()
}

/// The operations that take part in what was found, as a history of their own.
fn taking_part(file: &Arc<TestFile>, verdicts: &[Verdict]) -> Result<History> {
    let view = View::of_file(file.clone());
    let mut ops: BTreeMap<u64, Op> = BTreeMap::new();
    for index in named(verdicts) {
        for op in [
            view.get(index)?,
            view.invocation(index)?,
            view.completion(index)?,
        ] {
            let op = op.map(|op| op.op().into_owned());
            ops.extend(op.map(|op| (op.index, op)));
        }
    }
    Ok(History::from_ops(ops.into_values().collect()))
}

/// What the verdicts counted on their way, and the time between the first and the last operation.
fn summary(file: &TestFile, verdicts: &[Verdict]) -> Result<Summary> {
    let count = |name: &str| {
        let counts = verdicts
            .iter()
            .find_map(|verdict| verdict.details[name].as_u64());
        counts.unwrap_or_default()
    };
    let total = Counts {
        ok: count("ok"),
        fail: count("fail"),
        info: count("info"),
    };
    counted(file, total)
}

/// These counts, and the time between the first and the last operation.
pub(super) fn counted(file: &TestFile, total: Counts) -> Result<Summary> {
    let first = file
        .chunk_summary(0)?
        .map_or(0, |chunk| chunk.time_min.max(0));
    let last = file.chunk_count().saturating_sub(1);
    let last = file.chunk_summary(last)?.map_or(0, |chunk| chunk.time_max);
    Ok(Summary {
        total,
        seconds: (last.saturating_sub(first)).max(0) as f64 / 1e9,
        ..Summary::default()
    })
}
