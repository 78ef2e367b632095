//! Findings that are shown one after another.

use crate::finding_test::{FindingTestError, FindingTestRun};
use crate::published_finding::{FindingTest, PublishedFinding, Reproduction, Seen};
use serde_json::{Value as Json, json};
use std::fmt;
use std::path::PathBuf;

/// Runs the tests of findings one after another, and tells what is done line by line.
pub struct Series<'a> {
    /// The program `seatrial`.
    pub program: PathBuf,
    /// Parent of all run folders.
    pub folder: PathBuf,
    /// How often each test runs.
    pub times: u32,
    /// Takes a line.
    pub tell: &'a dyn Fn(&str),
    /// Was the program asked to end?
    pub is_interrupted: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Series<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Series")
            .field("folder", &self.folder)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

impl Series<'_> {
    /// Shows one finding; answers with its row of the JSON document and the worst agreement of its tests.
    pub fn show(&self, proof: &PublishedFinding) -> Result<(Json, Reproduction), FindingTestError> {
        (self.tell)(&format!("{}: {}", proof.name, proof.claim));
        (self.tell)(&format!("  source: {}", proof.source));
        let mut row = json!({"name": proof.name, "claim": proof.claim, "source": proof.source});
        let mut worst = Reproduction::AsPublished;
        for (kind, trial) in [("hit", &proof.hit), ("control", &proof.control)] {
            let (tests, agreement) = self.repeat(proof.name, kind, trial)?;
            row[kind] = json!({"setting": trial.setting, "words": trial.words, "expected": trial.expected.to_string(), "tests": tests});
            worst = worst.max(agreement);
        }
        let agreed = worst == Reproduction::AsPublished;
        row["as_published"] = json!(agreed);
        (self.tell)(match worst {
            Reproduction::AsPublished => "  ✓ as published",
            Reproduction::Unknown => "  ? not decided",
            Reproduction::Different => "  ✗ not as published",
        });
        Ok((row, worst))
    }

    /// Runs one test as often as was asked for.
    fn repeat(
        &self,
        name: &str,
        kind: &str,
        trial: &FindingTest,
    ) -> Result<(Vec<Json>, Reproduction), FindingTestError> {
        let mut tests = Vec::new();
        let (mut agreed, mut worst) = (0, Reproduction::AsPublished);
        for number in 1..=self.times {
            let folder = self.folder.join(format!("{name}-{kind}-{number}"));
            let test = FindingTestRun {
                trial,
                program: &self.program,
                folder: &folder,
            };
            if number == 1 {
                (self.tell)(&format!("  {kind}: {}: {}", trial.setting, test.command()));
                (self.tell)(&format!("    expected: {}", trial.expected));
            }
            let seen = match test.run(self.is_interrupted) {
                Err(FindingTestError::Interrupted) => {
                    return Ok((tests, worst.max(Reproduction::Unknown)));
                }
                other => other?,
            };
            let agreement = trial.expected.compare(&seen);
            worst = worst.max(agreement);
            agreed += u32::from(agreement == Reproduction::AsPublished);
            (self.tell)(&format!(
                "    seen:     {seen}   {}/",
                seen.folder.display()
            ));
            tests.push(as_json(&seen, agreement));
        }
        if self.times > 1 {
            (self.tell)(&format!("    {agreed} of {} as expected", self.times));
        }
        Ok((tests, worst))
    }
}

fn as_json(seen: &Seen, agreement: Reproduction) -> Json {
    json!({
        "valid": seen.valid,
        "anomalies": seen.anomalies,
        "operations": seen.operations,
        "seconds": seen.time.as_secs_f64(),
        "folder": seen.folder,
        "as_expected": agreement == Reproduction::AsPublished,
    })
}
