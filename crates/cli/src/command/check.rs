//! `seatrial check`: histories in, verdicts out.
//!
//! One road for all: [`Opened`] is the history, wherever it is; [`question`] decides checkers and models;
//! [`seatrial_check::check`] runs them; [`Ending`] settles, shows and writes. Only `--verify` checks nothing.

mod certificate_check;
mod ending;
mod follow;

use crate::args::CheckArguments;
use crate::guard::{Guard, Limits};
use crate::load::{hint, is_test_file};
use crate::node_logs::compiled;
use crate::opened::{Opened, of_source};
use crate::plan_file::state_planned_table;
use crate::source::resolved;
use crate::suites::Suites;
use anyhow::{Context as _, Result, ensure};
use ending::Ending;
use seatrial_check::infer::Shapes;
use seatrial_check::{
    CHECKERS, CheckAnswer, CheckOptions, CheckQuestion, Request, by_name, entry, needs_shapes,
    proves, question, references,
};
use seatrial_checker::Aims;
use seatrial_history::{Provenance, TestFile};
use seatrial_terminal::{Exit, Interrupt, complain, say};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::time::Instant;

/// Carries the verb out.
pub(crate) fn run(arguments: &CheckArguments, suites: &Suites) -> Result<Exit> {
    let several = arguments.files.len() > 1;
    for (is_given, option) in [
        (arguments.report.is_some(), "--report"),
        (arguments.findings.is_some(), "--findings"),
        (arguments.junit.is_some(), "--junit"),
        (arguments.certificate.is_some(), "--certificate"),
        (arguments.verify.is_some(), "--verify"),
        (arguments.follow, "--follow"),
    ] {
        ensure!(!(several && is_given), "{option} takes one history");
    }
    for name in arguments.checker.iter().flatten() {
        by_name(name, None)?;
    }
    compiled(&arguments.log_pattern)?;
    arguments.minimum.minimum()?;
    let common = Common {
        request: arguments.request(suites.known())?,
        limits: arguments.limits()?,
        // Without signals a check cannot be interrupted in good order, and is all the same one.
        interrupt: Interrupt::listen(|| {}).ok(),
    };
    let mut exit = Exit::Valid;
    let mut documents = Vec::new();
    for path in &arguments.files {
        let file = resolved(path, &arguments.format);
        match check(&file, arguments, &common).map_err(hint) {
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

/// What all files of one command share.
struct Common {
    request: Request,
    limits: Limits,
    interrupt: Option<Interrupt>,
}

impl Common {
    /// A guard of a check of a history with this many events, 0 when not known.
    fn guard(&self, length: u64, arguments: &CheckArguments) -> Guard<'_> {
        let is_quiet = arguments.output.quiet || arguments.output.json;
        Guard::new(self.limits, self.interrupt.as_ref(), length, is_quiet)
    }
}

/// Checks one file and shows the verdict unless it goes into a document.
fn check(path: &Path, arguments: &CheckArguments, common: &Common) -> Result<(Exit, Json)> {
    ensure!(
        !arguments.record || is_test_file(path),
        "{}: --record appends to test files only",
        path.display()
    );
    if arguments.repair {
        repair(path)?;
    }
    if let Some(certificate) = &arguments.verify {
        return certificate_check::verify(path, certificate, arguments);
    }
    if arguments.follow {
        return follow::check(path, arguments, common);
    }
    let began = Instant::now();
    let mut opened = Opened::open(path, arguments.opening()?)?;
    let guard = common.guard(opened.event_count(), arguments);
    let asked = ask(path, &opened, &common.request, arguments, &guard);
    guard.clear();
    let (question, answer) = asked?;
    opened.take_notes(&answer.overview);
    let ending = Ending {
        path,
        opened: &opened,
        question,
        answer,
        began,
        arguments,
    };
    ending.conclude()
}

/// The checkers for this history, and what they answer.
///
/// Where checkers are inferred from the operations, the first chunk says which to begin with; the whole history, which is looked
/// at while they run, has the last word. When it says otherwise, the round was in vain and there is another one.
fn ask(
    path: &Path,
    opened: &Opened,
    request: &Request,
    arguments: &CheckArguments,
    guard: &Guard<'_>,
) -> Result<(CheckQuestion, CheckAnswer)> {
    let attributes = &opened.attributes;
    let question = |shapes: Option<&Shapes>| {
        let asked = question(request, attributes, shapes);
        let mut asked = asked.with_context(|| path.display().to_string())?;
        state_planned_table(&mut asked, request, attributes)?;
        anyhow::Ok(asked)
    };
    let options = CheckOptions {
        aims: Aims {
            certify: arguments.certificate.is_some(),
            early: false,
            provenance: Provenance::of_attributes(attributes),
            ..Aims::default()
        },
        threads: arguments.threads(),
    };
    let run = |question: &CheckQuestion, shapes: Option<&mut Shapes>| {
        let checkers = references(&question.checkers);
        let answer = seatrial_check::check(&checkers, &opened.source, &options, guard, shapes);
        answer.map_err(of_source)
    };
    if !needs_shapes(request, attributes) {
        let question = question(None)?;
        ensure_proving(&question, arguments)?;
        let answer = run(&question, None)?;
        return Ok((question, answer));
    }
    let mut known = opened.shapes.clone();
    loop {
        let first = question(Some(&known))?;
        ensure_proving(&first, arguments)?;
        let mut all = Shapes::default();
        let mut answer = run(&first, Some(&mut all))?;
        let last = question(Some(&all))?;
        if answer.stopped.is_some() || first.names() == last.names() {
            answer.verdicts.extend(last.unclear.clone());
            return Ok((last, answer));
        }
        known = all;
    }
}

/// Refuses `--certificate` where no checker proves its verdict.
fn ensure_proving(question: &CheckQuestion, arguments: &CheckArguments) -> Result<()> {
    let names = question.names();
    if arguments.certificate.is_none() || names.is_empty() || names.iter().any(|name| proves(name))
    {
        return Ok(());
    }
    let mut why = names.iter().filter_map(|name| entry(name)?.proves.err());
    let proving = CHECKERS.iter().filter(|entry| entry.proves.is_ok());
    let proving: Vec<&str> = proving.map(|entry| entry.name).collect();
    anyhow::bail!(
        "--certificate has no effect on {}: {}; {} prove their verdicts",
        names.join(", "),
        why.next_back().unwrap_or("it has no proof"),
        proving.join(", ")
    );
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
