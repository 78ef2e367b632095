//! Histories of other projects with known verdicts.
//!
//! The corpus lies in `../shared/corpus` beside the workspace, or in the folder that `SEATRIAL_CORPUS` names; without
//! it the test is skipped, except in continuous integration, where a corpus that was named must be there.

use seatrial_check::by_name;
use seatrial_check::infer::{Guess, Shapes, of_workload};
use seatrial_checker::{Checker, LongFork, Validity, without_ok};
use seatrial_history::History;
use seatrial_interchange::import::registers::TransactionReader;
use seatrial_interchange::import::{self, Format, ImportOptions, JepsenFile};
use seatrial_isolation::registers::ColumnsBuilder;
use seatrial_isolation::{AxiomaticModel, Isolation};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The folder, unless there is none and that is in order.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("SEATRIAL_CORPUS").map(PathBuf::from);
    let strict = named.is_some() && std::env::var("CI").is_ok_and(|ci| ci == "true");
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = named.unwrap_or(beside);
    if folder.join("MANIFEST.tsv").is_file() {
        return Some(folder);
    }
    assert!(
        !strict,
        "SEATRIAL_CORPUS: no MANIFEST.tsv in {}",
        folder.display()
    );
    println!(
        "skipped: no corpus in {} (set SEATRIAL_CORPUS)",
        folder.display()
    );
    None
}

/// Compares one entry's verdict with the expected one; the error has both.
fn check(path: &Path, format: &str, checker: &str, expected: &str) -> Result<(), String> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
    let first = &bytes[..bytes.len().min(4_096)];
    let format = Format::by_name(format).ok_or_else(|| format!("{name}: format {format}?"))?;
    if import::detect(&name, first) != Some(format) {
        return Err(format!("{name}: not detected as {}", format.name()));
    }
    let history = import::read(&name, &bytes, format, ImportOptions::default())
        .map_err(|error| error.to_string())?;
    if checker == "isolation-level" {
        return check_levels(&name, &bytes, format, &history, expected);
    }
    let checker = checker.strip_prefix("linearizable:").unwrap_or(checker);
    let checker = by_name(checker, None).map_err(|error| error.to_string())?;
    let verdict = checker.check(&history);
    let expected = match expected.split_whitespace().next() {
        Some("valid") => Validity::Valid,
        Some("invalid") => Validity::Invalid,
        _ => return Err(format!("{name}: expected verdict {expected}?")),
    };
    if verdict.valid != expected {
        return Err(format!(
            "{name}: {:?}, expected {expected:?}",
            verdict.valid
        ));
    }
    if expected == Validity::Invalid && verdict.findings.is_empty() {
        return Err(format!("{name}: invalid without a finding"));
    }
    Ok(())
}

/// Compares the weak levels of an entry with the expected ones: `holds read-atomic; violates causal`. What holds implies
/// what is weaker. Operations and columns must have equal verdicts.
fn check_levels(
    name: &str,
    bytes: &[u8],
    format: Format,
    history: &History,
    expected: &str,
) -> Result<(), String> {
    let mut builder = ColumnsBuilder::default();
    let mut reader = TransactionReader::open(name, bytes, format, ImportOptions::default());
    while reader
        .advance(&mut builder)
        .map_err(|error| error.to_string())?
    {}
    let columns = builder.finish().map_err(|error| error.to_string())?;
    let level = |level: &str| match level {
        "causal" => Some(AxiomaticModel::Causal),
        "read-atomic" => Some(AxiomaticModel::AxiomaticReadAtomic),
        "read-committed" => Some(AxiomaticModel::AxiomaticReadCommitted),
        _ => None,
    };
    for part in expected.split("; ") {
        let (word, model) = part.split_once(' ').unwrap_or((part, ""));
        let stronger =
            level(model).ok_or_else(|| format!("{name}: expected verdict {expected}?"))?;
        let wanted = match word {
            "holds" => Validity::Valid,
            _ => Validity::Invalid,
        };
        for model in AxiomaticModel::POLYNOMIAL {
            let is_meant = match word {
                "holds" => stronger.implies(model),
                _ => model.implies(stronger),
            };
            if !is_meant {
                continue;
            }
            let checker = Isolation::new(model);
            let verdict = checker.check_columns(&columns);
            let as_operations = checker.check(history);
            let same = (&as_operations.valid, &as_operations.anomalies);
            if verdict.valid != wanted || same != (&verdict.valid, &verdict.anomalies) {
                let summary = verdict.findings.first().map(|it| it.summary.clone());
                return Err(format!("{name}: {model:?} {:?} {summary:?}", verdict.valid));
            }
        }
    }
    Ok(())
}

#[test]
fn known_verdicts_hold() {
    let Some(folder) = folder() else {
        return;
    };
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.tsv")).unwrap();
    let mut failures = Vec::new();
    let mut checked = 0;
    for line in manifest.lines().skip(1).filter(|line| !line.is_empty()) {
        let columns: Vec<_> = line.split('\t').collect();
        let [file, format, checker, expected, ..] = columns[..] else {
            panic!("MANIFEST.tsv: {line}");
        };
        checked += 1;
        failures.extend(check(&folder.join(file), format, checker, expected).err());
    }
    println!("checked {checked}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        checked > 0,
        "the manifest names nothing that can be checked"
    );
}

/// The operations of a file that another program wrote, and the workload that it names.
fn foreign(path: &Path, format: &str) -> (History, Option<String>) {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).unwrap();
    if format == "jepsen-file" {
        let mut file = JepsenFile::open(&name, Cursor::new(bytes)).unwrap();
        let workload = file.attributes().unwrap()["workload"]
            .as_str()
            .map(str::to_owned);
        let ops = file.operations(ImportOptions::default()).unwrap();
        let ops = ops.collect::<Result<Vec<_>, _>>().unwrap();
        return (History::from_ops(ops), workload);
    }
    let format = Format::by_name(format).unwrap();
    let history = import::read(&name, &bytes, format, ImportOptions::default()).unwrap();
    (history, None)
}

/// The checker that the operations ask for, or the name of the workload.
fn inferred(history: &History, workload: Option<&str>) -> &'static str {
    let shapes = Shapes::of(history);
    let named = workload.and_then(of_workload);
    if let Some(name) = named.filter(|name| shapes.refusal(name).is_none()) {
        return name;
    }
    match shapes.guess() {
        Guess::Checker { name, .. } => name,
        Guess::Unclear { reason, .. } => panic!("{reason}"),
    }
}

#[test]
fn files_of_other_programs_come_out_as_those_say() {
    let Some(folder) = folder() else {
        return;
    };
    let table = std::fs::read_to_string(folder.join("FOREIGN.tsv")).unwrap();
    let mut checked = 0;
    for line in table.lines().skip(1).filter(|line| !line.is_empty()) {
        let columns: Vec<_> = line.split('\t').collect();
        let [file, format, checker, expected, ..] = columns[..] else {
            panic!("FOREIGN.tsv: {line}");
        };
        let (history, workload) = foreign(&folder.join(file), format);
        let guessed = checker.starts_with("(inferred");
        let named = checker
            .trim_start_matches("(inferred: ")
            .trim_end_matches(')');
        let (name, model) = match named.split_once(" --model ") {
            Some((name, model)) => (name, Some(model)),
            None => (named, None),
        };
        let verdict = if guessed {
            let found = inferred(&history, workload.as_deref());
            assert!(name == found || name == "(inferred", "{file}: {found}");
            by_name(found, None).unwrap().check(&history)
        } else if let Some(group) = name.strip_prefix("long-fork (group of ") {
            LongFork::new()
                .group(group.parse().unwrap())
                .check(&history)
        } else {
            by_name(name, model).unwrap().check(&history)
        };
        let mut verdicts = [verdict];
        if !history
            .iter()
            .any(|op| op.process.is_client() && op.is_ok())
        {
            without_ok(&mut verdicts);
        }
        let valid = &verdicts[0].valid;
        let is_expected = match expected {
            "valid" => *valid == Validity::Valid,
            "invalid" => *valid == Validity::Invalid,
            _ => matches!(valid, Validity::Unknown(_)),
        };
        assert!(is_expected, "{file}: {valid:?}, expected {expected}");
        checked += 1;
    }
    assert!(checked >= 5, "{checked}");
}
