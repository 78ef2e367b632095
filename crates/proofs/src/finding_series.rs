//! Findings that are shown one after another.

use crate::finding_test::{FindingTestError, FindingTestRun};
use crate::published_finding::{FindingTest, PublishedFinding, Reproduction, Seen};
use serde_json::{Value as Json, json};
use std::fmt;
use std::path::PathBuf;

/// Runs the tests of findings one after another, and reports each line by line.
pub struct Series<'a> {
    /// The program `seatrial`.
    pub program: PathBuf,
    /// Parent of all run folders.
    pub folder: PathBuf,
    /// How often each test runs.
    pub times: u32,
    /// Takes a line.
    pub report: &'a dyn Fn(&str),
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
        (self.report)(&format!("{}: {}", proof.name, proof.claim));
        (self.report)(&format!("  source: {}", proof.source));
        let mut row = json!({"name": proof.name, "claim": proof.claim, "source": proof.source});
        let mut worst = Reproduction::AsPublished;
        for (kind, test) in [("hit", &proof.hit), ("control", &proof.control)] {
            let (runs, agreement) = self.repeat(proof, kind, test)?;
            row[kind] = json!({"setting": test.setting, "words": proof.words(test), "expected": test.expected.to_string(), "tests": runs});
            worst = worst.max(agreement);
        }
        row["as_published"] = json!(worst == Reproduction::AsPublished);
        (self.report)(match worst {
            Reproduction::AsPublished => "  ✓ as published",
            Reproduction::Unknown => "  ? not decided",
            Reproduction::Different => "  ✗ not as published",
        });
        Ok((row, worst))
    }

    /// Runs one test as often as was asked for.
    fn repeat(
        &self,
        proof: &PublishedFinding,
        kind: &str,
        test: &FindingTest,
    ) -> Result<(Vec<Json>, Reproduction), FindingTestError> {
        let words = proof.words(test);
        let mut runs = Vec::new();
        let (mut agreed, mut worst) = (0, Reproduction::AsPublished);
        for number in 1..=self.times {
            if (self.is_interrupted)() {
                return Ok((runs, worst.max(Reproduction::Unknown)));
            }
            let folder = self.folder.join(format!("{}-{kind}-{number}", proof.name));
            let run = FindingTestRun {
                words: &words,
                program: &self.program,
                folder: &folder,
            };
            if number == 1 {
                (self.report)(&format!("  {kind}: {}: {}", test.setting, run.command()));
                (self.report)(&format!("    expected: {}", test.expected));
            }
            let seen = match run.run(self.is_interrupted) {
                Err(FindingTestError::Interrupted) => {
                    return Ok((runs, worst.max(Reproduction::Unknown)));
                }
                other => other?,
            };
            let agreement = test.expected.compare(&seen);
            worst = worst.max(agreement);
            agreed += u32::from(agreement == Reproduction::AsPublished);
            (self.report)(&format!(
                "    seen:     {seen}   {}/",
                seen.folder.display()
            ));
            runs.push(as_json(&seen, agreement));
        }
        if self.times > 1 {
            (self.report)(&format!("    {agreed} of {} as expected", self.times));
        }
        Ok((runs, worst))
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
