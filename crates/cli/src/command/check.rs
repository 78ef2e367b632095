//! `seatrial check`: histories in, verdicts out.

mod choice;
mod columns;
mod counted;
mod faults;
mod follow;
mod proof;
mod prover;
mod registers;
mod rounds;
mod stream;
mod timestamped;

use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::{Judged, color, judge, write, write_findings};
use crate::load::{Loaded, hint, is_test_file, load, salvage};
use crate::losses;
use crate::output::{complain, say};
use crate::source::resolved;
use crate::times::Promise;
use anyhow::{Context as _, Result, anyhow, ensure};
use choice::Choice;
use seatrial_checker::infer::Shapes;
use seatrial_checker::{UnknownName, Validity, by_name, without_attributes, without_ok};
use seatrial_history::{Op, TestFile, WriteError};
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
    for name in arguments.checker.iter().flatten() {
        if let Err(error @ UnknownName::Checker { .. }) = by_name(name, None) {
            return Err(error.into());
        }
    }
    let mut exit = Exit::Valid;
    let mut documents = Vec::new();
    for path in &arguments.files {
        let file = resolved(path, &arguments.format);
        match check(&file, arguments).map_err(hint) {
            Ok((checked, document)) => {
                exit = exit.worse(checked);
                documents.push(document);
            }
            // The others have verdicts all the same.
            Err(error) if several => {
                complain!("seatrial: {error:#}");
                exit = exit.worse(Exit::Error);
                let file = path.display().to_string();
                documents.push(json!({"file": file, "error": format!("{error:#}")}));
            }
            Err(error) => return Err(error),
        }
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
    ensure!(
        !arguments.record || is_test_file(path),
        "{}: --record appends to test files only",
        path.display()
    );
    if arguments.repair {
        repair(path)?;
    }
    if let Some(certificate) = &arguments.verify {
        return proof::verify(path, certificate, arguments);
    }
    if let Some(certificate) = &arguments.certificate {
        return proof::certify(path, certificate, arguments);
    }
    if arguments.follow {
        return follow::check(path, arguments);
    }
    if let Some(wanted) = stream::wanted(path, arguments)? {
        return stream::check(path, wanted, arguments);
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
    let look = || Ok(Shapes::of(&loaded.history));
    let choice = choice::choose(&loaded.attributes, arguments, &promise, look);
    let choice = choice.and_then(|choice| {
        let model = promise.model();
        let checkers = registers::infer(choice.checkers, &loaded.attributes, model, arguments)?;
        Ok(Choice { checkers, ..choice })
    });
    let mut choice = choice.with_context(|| path.display().to_string())?;
    if !arguments.wants_all_keys() {
        choice
            .checkers
            .iter_mut()
            .for_each(|one| one.stop_at_first());
    }
    let mut judged = judge(&choice.checkers, &loaded.history);
    judged.verdicts.extend(choice.unclear);
    judged.valid = promise.weaken(&mut judged.verdicts, arguments.undecided.accept_undecided);
    weigh(&loaded, &mut judged, arguments);
    let mut report = Report::new(&loaded.attributes, &loaded.history, &judged.verdicts)
        .checked_in(judged.checked_in)
        .chosen(choice.why);
    for warning in loaded.warnings.iter().cloned().chain(promise.warning()) {
        report = report.warn(warning);
    }
    let mut document = results_json(&report);
    if !loaded.missing.is_empty() {
        document["missing"] = losses::json(&loaded.missing);
    }
    if arguments.output.verbose {
        for verdict in &judged.verdicts {
            complain!(
                " {}: {:?} {}",
                verdict.checker,
                verdict.valid,
                verdict.details
            );
        }
    }
    show_one(path, &report, &document, arguments);
    let written = || {
        if arguments.record {
            record(path, &document)?;
        }
        if let Some(page) = &arguments.report {
            write(page, &html(&report))?;
        }
        if let Some(folder) = &arguments.findings {
            write_findings(folder, &report)?;
        }
        Ok(())
    };
    let exit = after_verdict(&judged.valid, written(), &mut document);
    document["file"] = json!(path.display().to_string());
    Ok((exit, document))
}

/// Takes back what the verdicts cannot know, as parts of the history or its attributes are missing.
fn weigh(loaded: &Loaded, judged: &mut Judged, arguments: &CheckArguments) {
    for missing in &loaded.missing {
        judged.valid = missing.weigh(&mut judged.verdicts);
    }
    let is_named = arguments.checker.is_some() && arguments.model.is_some();
    if arguments.salvage && loaded.attributes.is_null() && !is_named {
        judged.valid = without_attributes(&mut judged.verdicts);
    }
    let mut clients = loaded.history.iter().filter(|op| op.process.is_client());
    if !clients.any(Op::is_ok) {
        judged.valid = without_ok(&mut judged.verdicts);
    }
}

/// The exit status after what was asked for besides a verdict was written, or not: the verdict is on the screen by then, so an
/// error stands on standard error and in the document beside it.
fn after_verdict(valid: &Validity, written: Result<()>, document: &mut Json) -> Exit {
    match written {
        Ok(()) => Exit::from(valid),
        Err(error) => {
            complain!("seatrial: {error:#}");
            document["error"] = format!("{error:#}").into();
            Exit::Error
        }
    }
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

/// Cuts a torn end off a test file and names the file that keeps it.
fn repair(path: &Path) -> Result<()> {
    ensure!(
        is_test_file(path),
        "{}: --repair is for test files only",
        path.display()
    );
    if let Some(repaired) = TestFile::repair(path)? {
        complain!(
            "seatrial: {}: {}; cut off, kept in {}",
            path.display(),
            repaired.torn,
            repaired.kept.display()
        );
    }
    Ok(())
}

/// Appends the results to the test file they are of.
fn record(path: &Path, results: &Json) -> Result<()> {
    TestFile::append_results(path, results).map_err(|error| match error {
        WriteError::Torn { .. } => anyhow!(
            "{error}; --repair cuts these bytes off and keeps them in a file beside it, --salvage reads whole blocks among them"
        ),
        error => error.into(),
    })
}

fn word(valid: &Json) -> &str {
    match valid {
        Json::Bool(true) => "valid",
        Json::Bool(false) => "invalid",
        _ => "unknown",
    }
}
