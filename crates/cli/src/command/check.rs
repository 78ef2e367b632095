//! `seatrial check`: histories in, verdicts out.

mod columns;
mod counted;
mod follow;
mod proof;
mod prover;
mod registers;
mod rounds;
mod stream;
mod timestamped;

use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::{color, judge, write, write_findings};
use crate::load::{Loaded, hint, is_test_file, load, salvage};
use crate::output::say;
use crate::times::{self, Promise};
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_checker::{Checker, UnknownName, by_name, for_workload};
use seatrial_history::{History, Mop, TestFile, Value};
use seatrial_report::{Report, html, results_json, text};
use serde_json::{Value as Json, json};
use std::path::Path;

/// Carries the verb out.
pub(crate) fn run(arguments: &CheckArguments) -> Result<Exit> {
    let several = arguments.files.len() > 1;
    ensure!(
        !(several && (arguments.report.is_some() || arguments.findings.is_some())),
        "--report and --findings take one history"
    );
    ensure!(
        !(several && (arguments.certificate.is_some() || arguments.verify.is_some())),
        "a certificate is of one history"
    );
    ensure!(
        !(several && arguments.follow),
        "--follow takes one test file"
    );
    let mut exit = Exit::Valid;
    let mut documents = Vec::new();
    for path in &arguments.files {
        let (checked, document) = check(path, arguments).map_err(hint)?;
        exit = exit.worse(checked);
        documents.push(document);
    }
    if arguments.output.json {
        let document = match documents.pop() {
            Some(document) if !several => document,
            last => Json::Array(documents.into_iter().chain(last).collect()),
        };
        say!("{document:#}");
    }
    Ok(exit)
}

/// Judges one file and shows the verdict unless it goes into a document.
fn check(path: &Path, arguments: &CheckArguments) -> Result<(Exit, Json)> {
    if let Some(certificate) = &arguments.verify {
        return proof::verify(path, certificate, arguments);
    }
    if let Some(certificate) = &arguments.certificate {
        return proof::certify(path, certificate, arguments);
    }
    if arguments.follow {
        return follow::check(path, arguments);
    }
    if let Some(checkers) = stream::wanted(path, arguments)? {
        return stream::check(path, &checkers, arguments);
    }
    if let Some(promise) = timestamped::wanted(path, arguments)? {
        return timestamped::check(path, promise, arguments);
    }
    if let Some(format) = columns::wanted(path, arguments)? {
        return columns::check(path, format, arguments);
    }
    if let Some(text) = rounds::wanted(path, arguments)? {
        return rounds::check(path, &text, arguments);
    }
    check_whole(path, arguments)
}

/// Judges one file as a history in memory.
fn check_whole(path: &Path, arguments: &CheckArguments) -> Result<(Exit, Json)> {
    // A register has no lists for values: whoever asks for registers means tuples.
    let names = arguments.checker.as_deref().unwrap_or_default();
    let mut options = arguments.options();
    options.keyed |= names.iter().any(|name| name == "register");
    let loaded = if arguments.salvage {
        salvage(path, &arguments.format, true)?
    } else {
        load(path, &arguments.format, options)?
    };
    let promise = Promise::of(arguments.model.as_deref(), &loaded.attributes);
    let checkers = checkers(&loaded, arguments, &promise).and_then(|checkers| {
        let model = promise.model();
        registers::infer(checkers, &loaded.attributes, model, arguments)
    });
    let checkers = checkers.with_context(|| path.display().to_string())?;
    let mut judged = judge(&checkers, &loaded.history);
    judged.valid = promise.weaken(&mut judged.verdicts);
    if let Some(losses) = &loaded.losses {
        judged.valid = losses.weaken(&mut judged.verdicts);
    }
    let mut report = Report::new(&loaded.attributes, &loaded.history, &judged.verdicts)
        .checked_in(judged.checked_in);
    for warning in loaded.warnings.iter().cloned().chain(promise.warning()) {
        report = report.warn(warning);
    }
    if let Some(page) = &arguments.report {
        write(page, &html(&report))?;
    }
    if let Some(folder) = &arguments.findings {
        write_findings(folder, &report)?;
    }
    let mut document = results_json(&report);
    if let Some(losses) = &loaded.losses {
        document["missing"] = losses.json();
    }
    if arguments.record {
        record(path, &document)?;
    }
    document["file"] = json!(path.display().to_string());
    if arguments.output.verbose {
        for verdict in &judged.verdicts {
            eprintln!(
                " {}: {:?} {}",
                verdict.checker, verdict.valid, verdict.details
            );
        }
    }
    show_one(path, &report, &document, arguments);
    Ok((Exit::from(&judged.valid), document))
}

/// Shows what was found in one file, unless it goes into a document.
fn show_one(path: &Path, report: &Report<'_>, document: &Json, arguments: &CheckArguments) {
    if arguments.output.json {
        return;
    }
    if arguments.output.quiet {
        say!("{}: {}", path.display(), word(&document["valid"]));
        return;
    }
    if arguments.files.len() > 1 {
        say!(" {}", path.display());
    }
    say!("{}", text(report, color()).trim_end());
}

/// Appends the results to the test file they are of.
fn record(path: &Path, results: &Json) -> Result<()> {
    ensure!(
        is_test_file(path),
        "{}: --record appends to test files only",
        path.display()
    );
    Ok(TestFile::append_results(path, results)?)
}

fn word(valid: &Json) -> &str {
    match valid {
        Json::Bool(true) => "valid",
        Json::Bool(false) => "invalid",
        _ => "unknown",
    }
}

/// The checkers: those asked for, else those of the file's workload, else what its operations look like.
fn checkers(
    loaded: &Loaded,
    arguments: &CheckArguments,
    promise: &Promise,
) -> Result<Vec<Box<dyn Checker>>> {
    let model = promise.model();
    // A model that nobody asked for is for those that have it; timestamps have their own.
    let named = |name: &str, model: Option<&str>| match by_name(name, model) {
        _ if name == "timestamps" => by_name(name, arguments.model.as_deref()),
        Err(UnknownName::NoModels { .. } | UnknownName::Model { .. })
            if arguments.model.is_none() =>
        {
            by_name(name, None)
        }
        found => found,
    };
    if let Some(names) = &arguments.checker {
        let checkers = names.iter().map(|name| named(name, model));
        return Ok(checkers.collect::<Result<_, _>>()?);
    }
    // A plan may say who judges.
    if let Some(names) = loaded.attributes["checkers"].as_array() {
        let model = model.or_else(|| loaded.attributes["options"]["model"].as_str());
        let names = names.iter().filter_map(Json::as_str);
        let checkers = names.map(|name| match by_name(name, model) {
            Err(UnknownName::NoModels { .. }) if arguments.model.is_none() => by_name(name, None),
            found => found,
        });
        return Ok(checkers.collect::<Result<_, _>>()?);
    }
    if let Some(workload) = loaded.attributes["workload"].as_str() {
        return Ok(for_workload(workload, model)?);
    }
    let is_stamped = loaded.attributes["format"] == "timekiller";
    if is_stamped && let Ok(timestamps) = by_name("timestamps", arguments.model.as_deref()) {
        return Ok(vec![timestamps]);
    }
    let infers = !arguments.infer.is_empty() || arguments.transaction_order.is_some();
    match workload_of(&loaded.history) {
        // Without times little can be inferred, but everything decided.
        Some("rw-register") if times::is_timeless(&loaded.attributes) && !infers => {
            Ok(vec![named("isolation", model)?])
        }
        Some(name) => Ok(vec![named(name, model)?]),
        None => bail!("its operations fit no checker that is known; name one with --checker"),
    }
}

/// What the operations of a foreign history look like.
fn workload_of(history: &History) -> Option<&'static str> {
    let clients = history.iter().filter(|op| op.process.is_client());
    let mut guess = None;
    for op in clients {
        let value = match &op.value {
            Value::Keyed(_, value) => value,
            value => value,
        };
        match (op.f.as_str(), value) {
            (_, Value::Txn(mops)) => {
                let writes = mops.iter().find_map(|mop| match mop {
                    Mop::Append { .. } => Some("list-append"),
                    Mop::Write { .. } => Some("rw-register"),
                    Mop::Read { .. } => None,
                });
                if writes.is_some() {
                    return writes;
                }
                guess = Some("list-append");
            }
            ("cas", _) => return Some("cas-register"),
            ("acquire" | "release", _) => return Some("mutex"),
            ("get" | "put" | "append", _) => return Some("kv-map"),
            ("enqueue" | "dequeue" | "drain", _) => return Some("total-queue"),
            ("generate", _) => return Some("unique-ids"),
            ("transfer", _) => return Some("bank"),
            // A set or a counter; what is read tells.
            ("read", Value::List(_) | Value::Set(_)) if guess == Some("counter") => {
                return Some("set-full");
            }
            ("add", _) => guess = Some("counter"),
            ("read", _) if guess == Some("counter") => {}
            ("read" | "write", _) => guess = Some("cas-register"),
            _ => {}
        }
    }
    guess
}
