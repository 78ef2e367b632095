//! Histories of other projects with known results, through the program.

use crate::routes;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The folder of the corpus, if there is one: `SEATRIAL_CORPUS`, or `../shared/corpus` beside the workspace.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("SEATRIAL_CORPUS").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    Some(named.unwrap_or(beside)).filter(|folder| folder.join("MANIFEST.tsv").is_file())
}

/// One line of a manifest.
struct CorpusSample {
    file: String,
    format: String,
    checker: String,
    expected: String,
}

/// Checks all samples and prints a table. Is everything as expected?
pub(crate) fn run() -> Result<bool> {
    let Some(folder) = folder() else {
        println!("# samples\n\nskipped: no corpus (set SEATRIAL_CORPUS)\n");
        return Ok(true);
    };
    let Some(program) = routes::program() else {
        println!(
            "# samples\n\nskipped: the program is not built beside this one (cargo build --release --bin seatrial)\n"
        );
        return Ok(true);
    };
    let began = Instant::now();
    let mut samples = Vec::new();
    for manifest in ["MANIFEST.tsv", "FOREIGN.tsv"] {
        let path = folder.join(manifest);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        samples.extend(text.lines().skip(1).filter_map(sample));
    }
    let mut lines = Vec::new();
    let mut wrong = 0;
    for sample in &samples {
        let path = folder.join(&sample.file);
        for (options, expected) in questions(sample) {
            let found = ask(&program, &path, &options)?;
            // Knossos calls a history valid in which no operation completed ok.
            let is_right = found == expected
                || found == "nothing to check" && expected != "invalid"
                || found == "no anomaly found"
                    && expected == "valid"
                    && accepts(&program, &path, &options)?;
            wrong += usize::from(!is_right);
            let mark = if is_right { "" } else { "**differs**" };
            let options = options.join(" ");
            lines.push(format!(
                "| {} | {options} | {expected} | {found} | {mark} |",
                sample.file
            ));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "# samples\n\n{} files, {} questions, {wrong} differ, {seconds:.1} s\n\n| file | options | expected | found | |\n\
         | --- | --- | --- | --- | --- |\n{}\n",
        samples.len(),
        lines.len(),
        lines.join("\n")
    );
    Ok(wrong == 0)
}

fn sample(line: &str) -> Option<CorpusSample> {
    let mut columns = line.split('\t').map(str::to_owned);
    Some(CorpusSample {
        file: columns.next()?,
        format: columns.next()?,
        checker: columns.next()?,
        expected: columns.next()?,
    })
}

/// What to ask of a sample: options of the command line, and the expected answer.
fn questions(sample: &CorpusSample) -> Vec<(Vec<String>, String)> {
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    if sample.checker == "isolation-level" {
        let level = |name: &str| match name {
            "read-atomic" => "axiomatic-read-atomic".to_owned(),
            "read-committed" => "axiomatic-read-committed".to_owned(),
            other => other.to_owned(),
        };
        let parts = sample.expected.split("; ");
        let parts = parts.filter_map(|part| part.split_once(' '));
        let questions = parts.map(|(word, name)| {
            let options = words(&format!("--checker isolation --model {}", level(name)));
            let expected = if word == "holds" { "valid" } else { "invalid" };
            (options, expected.to_owned())
        });
        return questions.collect();
    }
    let expected = words(&sample.expected)
        .into_iter()
        .next()
        .unwrap_or_default();
    let checker = sample.checker.strip_prefix("linearizable:");
    let checker = checker.unwrap_or(&sample.checker);
    // What stands in parentheses is to be inferred, or said for people.
    let is_inferred = checker.starts_with('(') || sample.format == "jepsen-file";
    let named = checker.split(" (").next().unwrap_or_default();
    let mut options = Vec::new();
    if !is_inferred {
        options = words(&format!("--checker {named}"));
    }
    vec![(options, expected)]
}

/// What the program answers.
fn ask(program: &Path, path: &Path, options: &[String]) -> Result<String> {
    let output = Command::new(program)
        .arg("check")
        .args(options)
        .arg(path)
        .output();
    let output = output.context("seatrial check")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(match output.status.code() {
        Some(0) => "valid".to_owned(),
        Some(1) => "invalid".to_owned(),
        Some(2) if text.contains("no operation completed ok") => "nothing to check".to_owned(),
        Some(2) if text.contains("no anomaly found") => "no anomaly found".to_owned(),
        Some(2) => "unknown".to_owned(),
        code => {
            let error = String::from_utf8_lossy(&output.stderr);
            let first = error.lines().next().unwrap_or_default();
            format!("error {code:?}: {first}")
        }
    })
}

/// Is it valid in Jepsen's meaning, where an open question is no objection?
fn accepts(program: &Path, path: &Path, options: &[String]) -> Result<bool> {
    let mut options = options.to_vec();
    options.push("--accept-undecided".to_owned());
    Ok(ask(program, path, &options)? == "valid")
}
