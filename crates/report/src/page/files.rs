//! Findings as files: explanations as text, cycles, orders and components as pictures.

use super::drawing_frame::DrawingFrame;
use super::{anomaly_section, component, cycle, order_drawing};
use crate::cause_text::{TimelineKind, left_out, moment, timeline};
use crate::excerpt::Excerpt;
use crate::report::Report;
use crate::wording::{anomaly_count, thousands};
use seatrial_cause::FindingCause;
use seatrial_checker::Finding;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Points of the order in the picture of a file, which shows its end.
const POINTS_MAX: usize = 100;

/// One file of findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingFile {
    /// Its name, with a folder before it or without: `G-single.txt`, `G-single/1.svg`, `components/1.svg`.
    pub name: String,
    /// UTF-8 text.
    pub contents: String,
}

/// All findings of a report as files, as Elle lays them out: `ANOMALY.txt` with all that are explained, one after
/// another, `ANOMALY/N.svg` with the cycle of the N-th (or the longest order that works), and `components/N.svg` with the
/// N-th largest component. None when nothing was found. The pictures show the operations of the excerpt.
pub fn finding_files(report: &Report<'_>, excerpt: &Excerpt) -> Vec<FindingFile> {
    let mut files = Vec::new();
    let mut explanations: BTreeMap<&str, (String, usize)> = BTreeMap::new();
    for (at, (checker, finding)) in report.findings().enumerate() {
        let (explanation, number) = explanations.entry(finding.anomaly).or_default();
        *number += 1;
        // Writing to a string cannot fail.
        let _ = explain(checker, finding, *number, explanation);
        if let Some(cause) = report.causes.of(at) {
            let _ = surroundings(cause, explanation);
        }
        let mut picture = String::new();
        let _ = cycle::draw(
            &excerpt.history,
            &finding.steps,
            DrawingFrame::File,
            &mut picture,
        );
        if let Some(order) = anomaly_section::picture(&excerpt.history, finding, POINTS_MAX) {
            let _ = order_drawing::draw(&order, DrawingFrame::File, &mut picture);
        }
        if !picture.is_empty() {
            files.push(FindingFile {
                name: format!("{}/{number}.svg", file_name(finding.anomaly)),
                contents: picture,
            });
        }
    }
    let counts = report.anomalies();
    for (anomaly, (explanation, number)) in explanations {
        let found = counts.get(anomaly).copied().unwrap_or(number as u64);
        let mut contents = anomaly_count(anomaly, found);
        if found > number as u64 {
            let _ = write!(contents, ", {} of them explained", thousands(number as u64));
        }
        contents.push('\n');
        contents.push_str(&explanation);
        for note in report.causes.notes() {
            let _ = writeln!(contents, "\nLogs: {note}.");
        }
        files.push(FindingFile {
            name: format!("{}.txt", file_name(anomaly)),
            contents,
        });
    }
    for (number, component) in report.components().enumerate() {
        let mut contents = String::new();
        let _ = component::draw(
            &excerpt.history,
            component,
            DrawingFrame::File,
            &mut contents,
        );
        if !contents.is_empty() {
            files.push(FindingFile {
                name: format!("components/{}.svg", number + 1),
                contents,
            });
        }
    }
    files
}

fn explain(checker: &str, finding: &Finding, number: usize, out: &mut String) -> fmt::Result {
    let Finding {
        anomaly, summary, ..
    } = finding;
    writeln!(
        out,
        "\n{anomaly} #{number} ({checker})\n{}",
        summary.trim_end()
    )
}

/// What happened around a finding, in the order of time. Operations of the finding are marked with `>`, faults with `!`.
fn surroundings(cause: &FindingCause, out: &mut String) -> fmt::Result {
    let (begin, end) = (moment(cause.begin), moment(cause.end));
    writeln!(out, "\nAround it, from {begin} to {end}:")?;
    for event in timeline(cause) {
        let mark = match event.kind {
            TimelineKind::Own => '>',
            TimelineKind::Fault => '!',
            TimelineKind::Other | TimelineKind::Log => ' ',
        };
        writeln!(out, "{:>14}  {mark} {}", moment(event.time), event.text)?;
    }
    let left_out = left_out(cause);
    if !left_out.is_empty() {
        writeln!(out, "{:>14}    left out: {left_out}", "")?;
    }
    Ok(())
}

/// The file name of an anomaly: letters, digits and dashes only, although no checker's name has anything else.
fn file_name(anomaly: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '-'
        }
    };
    anomaly.chars().map(letter).collect()
}
