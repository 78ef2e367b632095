//! Judging a test file chunk by chunk.

use super::choice::{because, inferred};
use super::faults::WithFaults;
use super::{after_verdict, record, registers, show_one};
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::write_findings;
use crate::load::{is_test_file, not_ended, unended};
use crate::losses;
use crate::output::complain;
use crate::resources::Resources;
use crate::times::Promise;
use anyhow::Result;
use seatrial_checker::infer::Shapes;
use seatrial_checker::{Missing, Streaming, Validity, Verdict, for_workload, without_ok};
use seatrial_history::{ChunkBuffer, Folder, History, Op, TestFile, View};
use seatrial_report::{Counts, Report, Summary, results_json};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

/// Checkers that need no history in memory, and why these.
pub(super) struct Wanted {
    pub(super) checkers: Vec<Streaming>,
    why: String,
}

/// The checkers that were asked for, or those of the test file's workload or operations, if each of them needs no whole
/// history and no page is asked for, which does. A file of any size is checked so: in memory as operations it would take
/// some hundred bytes each.
pub(super) fn wanted(path: &Path, arguments: &CheckArguments) -> Result<Option<Wanted>> {
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
    let asked = arguments.model.is_some();
    let judge = |name: &str| {
        let checker = Streaming::by_name(name)?.with_inference(inference);
        match promise.model() {
            // Counts have no model, and go with every checker.
            Some(model) if asked && name != "stats" => checker.with_model(model),
            Some(model) => checker.with_model(model).or(Some(checker)),
            None => Some(checker),
        }
    };
    let wanted = |names: &[&str], why: &str| {
        let checkers: Option<Vec<Streaming>> = names.iter().map(|name| judge(name)).collect();
        let is_known = arguments.infer.is_empty() || names.contains(&"rw-register");
        let checkers = checkers.filter(|checkers| is_known && !checkers.is_empty());
        checkers.map(|checkers| Wanted {
            checkers,
            why: because(names.iter().copied(), why),
        })
    };
    if let Some(names) = &arguments.checker {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Ok(wanted(&names, "asked for"));
    }
    // A plan says who checks; timestamps have a checker of their own.
    if attributes["checkers"].is_array() || attributes["format"] == "timekiller" {
        return Ok(None);
    }
    if let Some(workload) = attributes["workload"].as_str()
        && let Some(names) = names_of(workload)
        && attributes["format"] != "jepsen"
    {
        let why = format!("by workload `{workload}` of the file");
        return Ok(wanted(names, &why));
    }
    if for_workload(attributes["workload"].as_str().unwrap_or_default(), None).is_ok() {
        return Ok(None);
    }
    let guess = inferred(&attributes, !arguments.infer.is_empty(), || shapes(&file))?;
    Ok(guess.ok().and_then(|(name, why)| wanted(&[name], &why)))
}

/// The checkers of a workload of Seatrial's own that need no history in memory; of other workloads `None`. A lock has
/// models of its own, which are for the checker that takes models.
fn names_of(workload: &str) -> Option<&'static [&'static str]> {
    Some(match workload {
        "list-append" => &["stats", "list-append"],
        "rw-register" => &["stats", "rw-register"],
        "set" => &["stats", "set-full"],
        "queue" => &["stats", "queue", "total-queue"],
        "unique-ids" => &["stats", "unique-ids"],
        "counter" => &["stats", "counter"],
        "bank" => &["stats", "bank"],
        "long-fork" => &["stats", "long-fork"],
        _ => return None,
    })
}

/// What the operations of a file look like, chunk by chunk.
fn shapes(file: &TestFile) -> Result<Shapes> {
    let mut shapes = Shapes::default();
    let mut buffer = ChunkBuffer::default();
    for number in 0..file.chunk_count() {
        let chunk = file.read_chunk(number, &mut buffer)?;
        for op in chunk.into_iter().flat_map(|chunk| chunk.ops()) {
            shapes.take(&op);
        }
    }
    Ok(shapes)
}

/// Judges the test file at `path` and shows the verdict unless it goes into a document. All checkers share one pass.
pub(super) fn check(
    path: &Path,
    wanted: Wanted,
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let file = Arc::new(TestFile::open(path)?);
    let (verdicts, nemesis) = judge(&file, &wanted.checkers, arguments.threads())?;
    let passed = Passed {
        summary: summary(&file, &verdicts)?,
        nemesis,
        why: Some(wanted.why),
        began,
    };
    conclude(path, &file, verdicts, passed, arguments)
}

/// What is known of a history that was not taken into memory, besides the verdicts.
pub(super) struct Passed {
    pub(super) summary: Summary,
    /// The operations of the nemesis.
    pub(super) nemesis: History,
    /// Why these checkers were chosen.
    pub(super) why: Option<String>,
    pub(super) began: Instant,
}

/// Shows verdicts on a test file that was not taken into memory, unless they go into a document.
pub(super) fn conclude(
    path: &Path,
    file: &Arc<TestFile>,
    mut verdicts: Vec<Verdict>,
    passed: Passed,
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let attributes = file.attributes()?;
    let promise = Promise::of(arguments.model.as_deref(), &attributes);
    promise.weaken(&mut verdicts, arguments.undecided.accept_undecided);
    let lost = losses::of_attributes(&attributes);
    let warning = lost.as_ref().map(losses::warning);
    let missing: Vec<Missing> = lost.into_iter().chain(unended(file)).collect();
    for one in &missing {
        one.weigh(&mut verdicts);
    }
    if verdicts.iter().any(|verdict| verdict.details["ok"] == 0) {
        without_ok(&mut verdicts);
    }
    let began = passed.began;
    let mut report = Report::counted(&attributes, passed.summary, &verdicts)
        .with_faults(&passed.nemesis)
        .checked_in(began.elapsed())
        .chosen(passed.why);
    let warnings = warning.into_iter().chain(promise.warning());
    for warning in warnings.chain(not_ended(file, path)) {
        report = report.warn(warning);
    }
    let mut document = results_json(&report);
    if !missing.is_empty() {
        document["missing"] = losses::json(&missing);
    }
    if arguments.output.verbose {
        for verdict in &verdicts {
            complain!(
                " {}: {:?} {}",
                verdict.checker,
                verdict.valid,
                verdict.details
            );
        }
        complain!(" {}", Resources::since(began));
    }
    show_one(path, &report, &document, arguments);
    let written = || {
        if arguments.record {
            record(path, &document)?;
        }
        if let Some(folder) = &arguments.findings {
            let parts = taking_part(file, &verdicts)?;
            write_findings(folder, &Report::new(&attributes, &parts, &verdicts))?;
        }
        Ok(())
    };
    let exit = after_verdict(&Validity::of(&verdicts), written(), &mut document);
    document["file"] = json!(path.display().to_string());
    Ok((exit, document))
}

/// Runs all checkers side by side; their verdicts, and the operations of the nemesis.
fn judge(
    file: &Arc<TestFile>,
    checkers: &[Streaming],
    threads: usize,
) -> Result<(Vec<Verdict>, History)> {
    let file = Arc::new(WithFaults::new(file.clone()));
    let folder = Folder::new(file.clone(), threads);
    let verdicts: Vec<_> = std::thread::scope(|scope| {
        let judges = checkers.iter().map(|checker| {
            let folder = folder.clone();
            let judge = move || checker.judge(&folder);
            let thread = Builder::new().spawn_scoped(scope, judge);
            (checker, thread)
        });
        let judges: Vec<_> = judges.collect();
        let verdicts = judges.into_iter().map(|(checker, thread)| match thread {
            // A panic is a bug of ours, wherever it happened.
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system gives no thread.
            Err(_) => checker.judge(&folder),
        });
        verdicts.collect()
    });
    let mut all = Vec::new();
    for verdict in verdicts {
        all.push(verdict?);
    }
    Ok((all, file.faults()?))
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
        events: file.len(),
        seconds: (last.saturating_sub(first)).max(0) as f64 / 1e9,
        ..Summary::default()
    })
}
