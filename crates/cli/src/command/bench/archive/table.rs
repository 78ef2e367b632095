//! The result: medians with their range, ratios, and every iteration.

use super::{Case, Row, Setting, Subject};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// All iterations so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
}

/// Median and range of messages a second.
#[derive(Clone, Copy, Debug)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn new(mut rates: Vec<f64>) -> Option<Spread> {
        rates.sort_by(f64::total_cmp);
        Some(Spread {
            median: *rates.get(rates.len() / 2)?,
            min: *rates.first()?,
            max: *rates.last()?,
        })
    }
}

impl Table {
    /// Cases in the order in which they were measured first.
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for row in &self.rows {
            if !cases.contains(&row.case) {
                cases.push(row.case);
            }
        }
        cases
    }

    fn spread(&self, case: Case, subject: Subject) -> Option<Spread> {
        let counted = |row: &&Row| row.case == case && row.subject == subject && !row.warm_up;
        Spread::new(
            self.rows
                .iter()
                .filter(counted)
                .map(|row| row.rate)
                .collect(),
        )
    }

    /// For people: a line for each case, a column for each subject.
    pub(super) fn text(&self) -> String {
        let subjects: Vec<Subject> = Subject::ALL
            .into_iter()
            .filter(|subject| self.rows.iter().any(|row| row.subject == *subject))
            .collect();
        let mut text = String::from("| million messages/s: median (min–max) |");
        for subject in &subjects {
            let _ = write!(text, " {} |", subject.name());
        }
        text.push_str("\n| --- |");
        text.push_str(&" --- |".repeat(subjects.len()));
        for case in self.cases() {
            let _ = write!(text, "\n| {case} |");
            for subject in &subjects {
                let _ = match self.spread(case, *subject) {
                    Some(Spread { median, min, max }) => write!(
                        text,
                        " {} ({}–{}) |",
                        millions(median),
                        millions(min),
                        millions(max)
                    ),
                    None => write!(text, " |"),
                };
            }
        }
        text
    }

    /// Writes `raw.csv` and `README.md`.
    pub(super) fn write(&self, folder: &Path, setting: &Setting) -> Result<()> {
        let mut raw =
            String::from("round,payload,checksum,messages,subject,warm_up,messages_per_second\n");
        for row in &self.rows {
            let checksum = if row.case.checksum { "crc32c" } else { "none" };
            let _ = writeln!(
                raw,
                "{},{},{checksum},{},{},{},{:.0}",
                row.round,
                row.case.payload,
                row.case.messages,
                row.subject.name(),
                row.warm_up,
                row.rate
            );
        }
        let readme = format!(
            "# Archive: record and replay\n\n{} counted iterations a round; every one is in `raw.csv`.\n\n{}\n",
            setting.iterations,
            self.text()
        );
        for (name, text) in [("raw.csv", raw), ("README.md", readme)] {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// A rate in millions with three digits.
pub(super) fn millions(rate: f64) -> String {
    let millions = rate / 1e6;
    match millions {
        100.0.. => format!("{millions:.0}"),
        10.0.. => format!("{millions:.1}"),
        1.0.. => format!("{millions:.2}"),
        _ => format!("{millions:.3}"),
    }
}
