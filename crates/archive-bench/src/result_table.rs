//! The result: medians with their range, ratios, and every iteration.

use super::{MessageCase, ResultRow, Setting, Subject};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// All iterations so far.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<ResultRow>,
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

    fn text(&self) -> String {
        let Spread { median, min, max } = *self;
        format!("{} ({}–{})", millions(median), millions(min), millions(max))
    }
}

impl Table {
    /// Cases in the order in which they were measured first.
    fn cases(&self) -> Vec<MessageCase> {
        let mut cases = Vec::new();
        for row in &self.rows {
            if !cases.contains(&row.case) {
                cases.push(row.case);
            }
        }
        cases
    }

    fn spread(&self, case: MessageCase, subject: Subject) -> Option<Spread> {
        let counted = |row: &&ResultRow| row.case == case && row.subject == subject && !row.warm_up;
        Spread::new(
            self.rows
                .iter()
                .filter(counted)
                .map(|row| row.rate)
                .collect(),
        )
    }

    /// For people: what was recorded, replayed and read, and what a checksum for each message costs.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![
            self.part(
                "Record",
                &[
                    Subject::OursRecord,
                    Subject::AeronRecord,
                    Subject::OursSingle,
                    Subject::PlainWrite,
                ],
            ),
            self.part(
                "Replay",
                &[
                    Subject::OursReplay,
                    Subject::AeronReplay,
                    Subject::OursRecord,
                ],
            ),
            self.part("Verify", &[Subject::OursVerify, Subject::PlainRead]),
        ];
        parts.push(self.cost());
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    /// A line for each case, a column for each subject, and the first one's median by that of each other.
    fn part(&self, title: &str, subjects: &[Subject]) -> String {
        let there = |subject: &Subject| self.rows.iter().any(|row| row.subject == *subject);
        let subjects: Vec<Subject> = subjects.iter().copied().filter(there).collect();
        let Some((first, others)) = subjects.split_first() else {
            return String::new();
        };
        let mut text = format!("{title}, million messages/s: median (min–max)\n\n| |");
        for subject in &subjects {
            let _ = write!(text, " {} |", subject.name());
        }
        for other in others {
            let _ = write!(text, " {} ÷ {} |", first.name(), other.name());
        }
        let columns = 1 + subjects.len() + others.len();
        let _ = write!(text, "\n|{}", " --- |".repeat(columns));
        for case in self.cases() {
            let _ = write!(text, "\n| {case} |");
            let spreads: Vec<Option<Spread>> = subjects
                .iter()
                .map(|subject| self.spread(case, *subject))
                .collect();
            for spread in &spreads {
                let _ = write!(
                    text,
                    " {} |",
                    spread.map_or(String::new(), |spread| spread.text())
                );
            }
            for other in &spreads[1..] {
                let _ = match (spreads[0], other) {
                    (Some(first), Some(other)) => {
                        write!(text, " {:.2} |", first.median / other.median)
                    }
                    _ => write!(text, " |"),
                };
            }
        }
        text
    }

    /// How much of our throughput a checksum for each message takes.
    fn cost(&self) -> String {
        let mut text = String::new();
        for case in self.cases().into_iter().filter(|case| case.checksum) {
            let without = MessageCase {
                checksum: false,
                ..case
            };
            let cost = |subject: Subject| {
                let (with, without) = (self.spread(case, subject)?, self.spread(without, subject)?);
                Some(format!(
                    "{:.0} %",
                    100.0 * (1.0 - with.median / without.median)
                ))
            };
            let (Some(record), Some(replay)) =
                (cost(Subject::OursRecord), cost(Subject::OursReplay))
            else {
                continue;
            };
            if text.is_empty() {
                text.push_str("What a CRC-32C for each message takes of our median rate\n\n| | record | replay |\n| --- | --- | --- |");
            }
            let _ = write!(text, "\n| {} B | {record} | {replay} |", case.payload);
        }
        text
    }

    /// Writes `raw.csv` and `README.md`.
    pub(crate) fn write(&self, folder: &Path, setting: &Setting) -> Result<()> {
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
            "# Archive: record, replay, verify\n\n{}\n\n{} rounds of {} counted iterations each; every iteration is in `raw.csv`.\n\n{}\n",
            machine(),
            self.rows.last().map_or(0, |row| row.round),
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

/// The machine on which it was measured, from `/proc`.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |model| {
        model.trim_start_matches([' ', '\t', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(3).collect();
    format!(
        "{model}, {cores} cores, kernel {}; load at the end (1, 5, 15 minutes): {}.",
        kernel.trim(),
        load.join(", ")
    )
}

/// A rate in millions with three digits.
pub(crate) fn millions(rate: f64) -> String {
    let millions = rate / 1e6;
    match millions {
        100.0.. => format!("{millions:.0}"),
        10.0.. => format!("{millions:.1}"),
        1.0.. => format!("{millions:.2}"),
        _ => format!("{millions:.3}"),
    }
}
