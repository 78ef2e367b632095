//! One test of the program, as a process of its own.

use crate::published_finding::Seen;
use seatrial_runner::{Child, log_tail};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often the process and the interruption are looked at.
const STEP: Duration = Duration::from_millis(20);

/// Why a test showed nothing.
#[derive(Debug, thiserror::Error)]
pub enum FindingTestError {
    /// A file or the process.
    #[error("{}: {error}", path.display())]
    Io {
        /// Of the file or the program.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// It could not be set up, or failed.
    #[error("{command}: {reason}\n{text}")]
    Failed {
        /// What was run.
        command: String,
        /// How it ended.
        reason: String,
        /// Its last lines.
        text: String,
    },
    /// The user ended it; the test has ended in good order.
    #[error("interrupted")]
    Interrupted,
}

/// One run of a [`FindingTest`](crate::FindingTest): the program `seatrial` with its words, in a folder of its own.
///
/// The process is in a group of its own and ends with this one. An interruption is passed on once: the test then mends its
/// faults, ends its servers, and checks what there is.
#[derive(Debug)]
pub struct FindingTestRun<'a> {
    /// The words after `seatrial test`.
    pub words: &'a [&'a str],
    /// The program.
    pub program: &'a Path,
    /// The run folder; it must not exist. Beside it is what the test prints, `FOLDER.log`.
    pub folder: &'a Path,
}

impl FindingTestRun<'_> {
    /// The command as a user would type it.
    pub fn command(&self) -> String {
        format!("seatrial test {}", self.words.join(" "))
    }

    /// Runs it to its end.
    pub fn run(&self, is_interrupted: impl Fn() -> bool) -> Result<Seen, FindingTestError> {
        let began = Instant::now();
        let printed = self.folder.with_added_extension("log");
        if let Some(parent) = self.folder.parent() {
            fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        }
        let log = File::create(&printed).map_err(|error| failed(&printed, error))?;
        let both = log.try_clone().map_err(|error| failed(&printed, error))?;
        let mut command = Command::new(self.program);
        command.arg("test").args(self.words);
        command.arg("--out").arg(self.folder);
        command.stdin(Stdio::null()).stdout(log).stderr(both);
        let child = Child::spawn(command).map_err(|error| failed(self.program, error))?;
        let mut was_interrupted = false;
        let status = loop {
            if let Some(status) = child.status() {
                break status;
            }
            if !was_interrupted && is_interrupted() {
                was_interrupted = true;
                let passed_on = child.interrupt();
                passed_on.map_err(|error| failed(self.program, error))?;
            }
            std::thread::sleep(STEP);
        };
        if was_interrupted {
            return Err(FindingTestError::Interrupted);
        }
        let failed_by = |reason: String| FindingTestError::Failed {
            command: self.command(),
            reason,
            text: log_tail(&printed, 0),
        };
        if !matches!(status.code(), Some(0..=2)) {
            return Err(failed_by(status.to_string()));
        }
        let results = fs::read(self.folder.join("results.json"));
        let results = results.map_err(|error| failed_by(format!("results.json: {error}")))?;
        let results = serde_json::from_slice(&results);
        let results: Json = results.map_err(|error| failed_by(format!("results.json: {error}")))?;
        Ok(seen(&results, began.elapsed(), self.folder))
    }
}

/// What `results.json` of a run says.
fn seen(results: &Json, time: Duration, folder: &Path) -> Seen {
    let anomalies = results["anomalies"].as_object().into_iter().flatten();
    let counted = anomalies.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(1)));
    Seen {
        valid: results["valid"].as_bool(),
        anomalies: counted.collect::<BTreeMap<_, _>>(),
        operations: results["operations"].as_u64().unwrap_or(0),
        time,
        folder: folder.to_owned(),
    }
}

fn failed(path: &Path, error: io::Error) -> FindingTestError {
    FindingTestError::Io {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Runs a script in the program's place.
    fn run(
        script: &str,
        is_interrupted: bool,
    ) -> (tempfile::TempDir, Result<Seen, FindingTestError>) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let run = FindingTestRun {
            words: &["mine", "--time", "1"],
            program: &program,
            folder: &folder.path().join("runs/hit"),
        };
        let found = run.run(|| is_interrupted);
        (folder, found)
    }

    #[test]
    fn results_are_read_and_words_passed_on() {
        let script = r#"echo "$@"; mkdir -p "$6" || exit 9
echo '{"valid": false, "operations": 12, "anomalies": {"lost": 3}}' > "$6/results.json"; exit 1"#;
        let (folder, seen) = run(script, false);
        let seen = seen.unwrap();
        assert_eq!((seen.valid, seen.operations), (Some(false), 12));
        assert_eq!(seen.anomalies, BTreeMap::from([("lost".to_owned(), 3)]));
        let log = fs::read_to_string(folder.path().join("runs/hit.log")).unwrap();
        assert!(log.starts_with("test mine --time 1 --out "), "{log}");
    }

    #[test]
    fn a_test_that_cannot_run_is_shown_with_its_last_lines() {
        let (_folder, found) = run("echo no such server >&2; exit 254", false);
        let text = found.unwrap_err().to_string();
        assert!(
            text.starts_with("seatrial test mine --time 1: exit status: 254"),
            "{text}"
        );
        assert!(text.ends_with("\n    no such server"), "{text}");
        let (_folder, found) = run("exit 0", false);
        let text = found.unwrap_err().to_string();
        assert!(text.contains("results.json: No such file"), "{text}");
    }

    #[test]
    fn an_interruption_is_passed_on_and_waited_for() {
        // It ends by itself where the tests were started with SIGINT ignored (`cargo test &` in a script): a shell cannot trap a
        // signal that it was started without.
        let script = r"trap 'sleep 0.1; exit 2' INT; for step in $(seq 500); do sleep 0.02; done";
        // The first look may come before the script has its trap: then it just ends.
        let (_folder, found) = run(script, true);
        assert!(
            matches!(found, Err(FindingTestError::Interrupted)),
            "{found:?}"
        );
    }
}
