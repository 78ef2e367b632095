//! Judging a test file chunk by chunk.

use super::word;
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::color;
use crate::load::not_ended;
use crate::losses::Losses;
use crate::output::say;
use crate::resources::Resources;
use anyhow::Result;
use seatrial_checker::{Streaming, Validity, Verdict};
use seatrial_history::{Folder, TestFile};
use seatrial_report::{Counts, Report, Summary, results_json, text};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The checkers that were asked for, if each of them needs no whole history and nobody wants the page, which does.
pub(super) fn wanted(arguments: &CheckArguments) -> Option<Vec<Streaming>> {
    let names = arguments.checker.as_ref()?;
    let checkers: Option<Vec<_>> = names.iter().map(|name| Streaming::by_name(name)).collect();
    let is_plain = arguments.report.is_none() && arguments.model.is_none();
    checkers.filter(|checkers| is_plain && !checkers.is_empty())
}

/// Judges the test file at `path` and shows the verdict unless it goes into a document. All checkers share one pass.
pub(super) fn check(
    path: &Path,
    checkers: &[Streaming],
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let file = Arc::new(TestFile::open(path)?);
    let mut verdicts = judge(&file, checkers, arguments.threads())?;
    let attributes = file.attributes()?;
    let losses = Losses::told_by(&attributes);
    if let Some(losses) = &losses {
        losses.weaken(&mut verdicts);
    }
    let summary = summary(&file, &verdicts)?;
    let mut report = Report::counted(&attributes, summary, &verdicts).checked_in(began.elapsed());
    let warning = losses.as_ref().map(Losses::warning);
    for warning in warning.into_iter().chain(not_ended(&file, path)) {
        report = report.warn(warning);
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
    if !arguments.output.json {
        if arguments.output.quiet {
            say!("{}: {}", path.display(), word(&document["valid"]));
        } else {
            if arguments.files.len() > 1 {
                say!(" {}", path.display());
            }
            say!("{}", text(&report, color()).trim_end());
        }
    }
    let all = verdicts.into_iter().map(|verdict| verdict.valid);
    Ok((
        Exit::from(&all.fold(Validity::Valid, Validity::and)),
        document,
    ))
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

/// What the verdicts counted on their way, and the time between the first and the last operation.
fn summary(file: &TestFile, verdicts: &[Verdict]) -> Result<Summary> {
    let count = |name: &str| {
        let counts = verdicts
            .iter()
            .find_map(|verdict| verdict.details[name].as_u64());
        counts.unwrap_or_default()
    };
    let first = file
        .chunk_summary(0)?
        .map_or(0, |chunk| chunk.time_min.max(0));
    let last = file.chunk_count().saturating_sub(1);
    let last = file.chunk_summary(last)?.map_or(0, |chunk| chunk.time_max);
    Ok(Summary {
        total: Counts {
            ok: count("ok"),
            fail: count("fail"),
            info: count("info"),
        },
        seconds: (last.saturating_sub(first)).max(0) as f64 / 1e9,
        ..Summary::default()
    })
}
