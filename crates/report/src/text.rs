//! The last screen of a run.

use crate::cause_text::sentences;
use crate::report::Report;
use crate::wording::{anomaly_count, count, length, one_line, percent, rate, shortened};
use seatrial_checker::Validity;
use std::fmt::Write;

/// Findings explained on the screen; the page has all.
const FINDINGS_MAX: usize = 2;
/// Lines of one finding.
const FINDING_LINES_MAX: usize = 12;
/// Longest line of a finding in characters.
const LINE_LENGTH_MAX: usize = 240;

/// How the terminal shows a stretch of text (SGR codes of ECMA-48).
#[derive(Clone, Copy)]
struct Style(&'static str);

const BOLD: Style = Style("1");
const DIM: Style = Style("2");
const RED: Style = Style("1;31");
const GREEN: Style = Style("1;32");
const YELLOW: Style = Style("1;33");

/// Colours when they are wanted.
struct Painter {
    color: bool,
}

impl Painter {
    fn paint(&self, Style(code): Style, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// The last screen of a run: what it was, how much happened, the verdict with its anomalies, where things are. Ends
/// with a newline. With `color`, for a terminal.
pub fn text(report: &Report<'_>, color: bool) -> String {
    let painter = Painter { color };
    let mut out = String::new();
    let heading = heading(report);
    if !heading.is_empty() {
        line(&mut out, 1, &painter.paint(BOLD, &heading));
    }
    line(&mut out, 1, &counts(report));
    if let Some(limit) = &report.limit {
        line(&mut out, 1, &painter.paint(DIM, &one_line(limit)));
    }
    if let Some(chosen) = &report.chosen {
        line(&mut out, 1, &painter.paint(DIM, &one_line(chosen)));
    }
    let (style, verdict) = verdict(report);
    line(
        &mut out,
        1,
        &(painter.paint(style, &verdict) + &remains(report)),
    );
    findings(&mut out, report);
    let warnings = report.warnings.iter().map(String::as_str);
    for warning in report.caveats().chain(warnings) {
        let warning = format!("! {}", one_line(warning));
        line(&mut out, 1, &painter.paint(YELLOW, &warning));
    }
    if let Some(folder) = &report.folder {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let files = painter.paint(DIM, &one_line(&report.files.join("  ")));
        line(
            &mut out,
            1,
            format!("{}   {files}", one_line(&folder)).trim_end(),
        );
    }
    out
}

/// Appends a line, indented.
fn line(out: &mut String, indent: usize, text: &str) {
    let _ = writeln!(out, "{:indent$}{text}", "");
}

/// What the run was: suite, workload, nodes, faults, length, seed, planted bug; only what is known.
fn heading(report: &Report<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let suite = report
        .attribute("suite")
        .or_else(|| report.attribute("name"));
    parts.extend(suite.map(str::to_owned));
    parts.extend(report.attribute("workload").map(str::to_owned));
    parts.extend(report.node_count().map(|nodes| count(nodes, "node")));
    let network = report.attribute("network");
    parts.extend(network.filter(|kind| *kind != "local").map(str::to_owned));
    let kinds = report.fault_kinds();
    if !kinds.is_empty() {
        parts.push(kinds.join(", "));
    }
    if report.overview.seconds() > 0.0 {
        parts.push(length(report.overview.seconds()));
    }
    parts.extend(report.seed().map(|seed| format!("seed {seed}")));
    parts.extend(report.attribute("bug").map(|bug| format!("bug {bug}")));
    one_line(&parts.join(" · ")).into_owned()
}

/// How many operations, how they ended, how fast, how many faults.
fn counts(report: &Report<'_>) -> String {
    let counts = report.counts;
    let total = counts.count;
    let mut parts = Vec::new();
    if total > 0 {
        let share = |part| percent(part, total);
        let (ok, fail, info) = (share(counts.ok), share(counts.fail), share(counts.info));
        parts.push(count(total, "operation"));
        parts.push(format!("ok {ok}  fail {fail}  info {info}"));
        parts.extend(rate(total, report.overview.seconds()));
    } else if report.overview.events() > 0 {
        // A checker that refuses a history does not count how its operations ended.
        parts.push(count(report.overview.events(), "event"));
    } else {
        parts.push(count(total, "operation"));
    }
    let faults = report.fault_count();
    if faults > 0 || !report.fault_kinds().is_empty() {
        parts.push(count(faults, "fault"));
    }
    let failovers = report.failovers.as_ref();
    parts.extend(failovers.map(|failovers| count(failovers.count, "failover")));
    parts.join("   ")
}

/// The verdict in one line.
fn verdict(report: &Report<'_>) -> (Style, String) {
    let model = report.model().unwrap_or("valid");
    match report.validity() {
        Validity::Valid if !report.undecided().is_empty() => {
            let open = report.undecided().join("; ");
            let accepted = format!("✓ no anomaly found ({model} not proven; not decided: {open})");
            (GREEN, one_line(&accepted).into_owned())
        }
        Validity::Valid => match &report.proofs()[..] {
            [] => (GREEN, format!("✓ {model}")),
            proofs => (GREEN, format!("✓ {model} ({})", proofs.join(", "))),
        },
        Validity::Unknown(reason) if !report.undecided().is_empty() => {
            (YELLOW, format!("? {model}: {}", one_line(&reason)))
        }
        Validity::Unknown(reason) => (YELLOW, format!("? unknown: {}", one_line(&reason))),
        Validity::Invalid => {
            let anomalies: Vec<String> = report
                .anomalies()
                .into_iter()
                .map(|(anomaly, number)| anomaly_count(anomaly, number))
                .collect();
            let separator = if anomalies.is_empty() { "" } else { ": " };
            let anomalies = anomalies.join(", ");
            (RED, format!("✗ not {model}{separator}{anomalies}"))
        }
    }
}

/// The strongest models that an invalid history still satisfies.
fn remains(report: &Report<'_>) -> String {
    let holds = report.holds();
    if report.validity() != Validity::Invalid || holds.is_empty() {
        return String::new();
    }
    format!("   (holds: {})", holds.join(", "))
}

/// The first findings in words.
fn findings(out: &mut String, report: &Report<'_>) {
    let all = report.findings().count();
    for (number, (_, finding)) in report.findings().take(FINDINGS_MAX).enumerate() {
        let mut lines = finding
            .summary
            .lines()
            .filter(|line| !line.trim().is_empty());
        for text in lines.by_ref().take(FINDING_LINES_MAX) {
            line(out, 3, &shortened(&one_line(text), LINE_LENGTH_MAX));
        }
        if lines.next().is_some() {
            line(out, 3, "…");
        }
        let cause = report.causes.of(number);
        for sentence in cause.map(sentences).unwrap_or_default() {
            let text = shortened(&one_line(&sentence), LINE_LENGTH_MAX).into_owned();
            line(out, 5, &text);
        }
    }
    if all > FINDINGS_MAX {
        let more = count((all - FINDINGS_MAX) as u64, "more finding");
        line(out, 3, &format!("… and {more} in the report"));
    }
}
