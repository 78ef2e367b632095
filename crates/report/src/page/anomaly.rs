//! The anomalies, each with the operations that make it.

use super::frame::Frame;
use super::{component, cycle, interval};
use crate::escape::Escaped;
use crate::listing::Columns;
use crate::report::Report;
use crate::wording::{anomaly_count, brief, count, one_line, shortened, thousands};
use seatrial_checker::{Finding, Step};
use seatrial_history::{History, Op, Value};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// Findings on a page.
const FINDINGS_MAX: usize = 60;
/// Components on a page.
const COMPONENTS_MAX: usize = 3;
/// Findings that are open when the page opens.
const OPEN_MAX: usize = 3;
/// Operations listed for one finding.
pub(super) const OPERATIONS_MAX: usize = 24;
/// Steps listed for one finding.
const STEPS_MAX: usize = 40;
/// Longest line of an operation in characters.
const LINE_LENGTH_MAX: usize = 300;
/// Longest headline of a finding in characters.
const HEADLINE_LENGTH_MAX: usize = 240;
/// Longest summary of a finding in characters.
const SUMMARY_LENGTH_MAX: usize = 4_000;

/// What the anomalies mean, for those who do not use the names daily. After Adya, "Weak Consistency" (MIT, 1999), and
/// the names that Elle uses.
const MEANINGS: [(&str, &str); 16] = [
    (
        "G0",
        "Write cycle: transactions overwrote each other in orders that contradict.",
    ),
    (
        "G1a",
        "Aborted read: a transaction saw what a failed transaction wrote.",
    ),
    (
        "G1b",
        "Intermediate read: a transaction saw a state from the middle of another.",
    ),
    (
        "G1c",
        "Circular information flow: transactions saw each other's writes in a circle.",
    ),
    (
        "G-single",
        "Read skew: a cycle in which exactly one transaction missed another's write.",
    ),
    (
        "G-nonadjacent",
        "A cycle in which several transactions missed another's write, never two in a row.",
    ),
    (
        "G2-item",
        "Write skew: a cycle in which transactions missed each other's writes.",
    ),
    (
        "G2",
        "A cycle in which transactions missed each other's writes.",
    ),
    (
        "lost-update",
        "Two transactions read the same version, and both wrote the next.",
    ),
    (
        "internal",
        "A transaction disagrees with its own earlier reads or writes.",
    ),
    (
        "incompatible-order",
        "Two reads show the same elements in orders that cannot both be.",
    ),
    (
        "duplicate-elements",
        "An element appears twice although it was written once.",
    ),
    (
        "dirty-update",
        "A transaction built on the write of a failed transaction.",
    ),
    ("garbage-read", "A read returned what nobody wrote."),
    (
        "cyclic-versions",
        "The versions of one object follow each other in a circle.",
    ),
    (
        "nonlinearizable",
        "No order of the operations, each at one instant between its invocation and its completion, explains what was seen.",
    ),
];

/// The meaning of an anomaly; those with an ending are the same with edges of real time or of one process.
fn meaning(anomaly: &str) -> String {
    let endings = [
        (
            "-realtime",
            " One edge of the cycle is real time: an operation ended before another began.",
        ),
        (
            "-process",
            " One edge of the cycle is the order of operations in one process.",
        ),
        ("", ""),
    ];
    for (ending, more) in endings {
        let Some(name) = anomaly.strip_suffix(ending) else {
            continue;
        };
        if let Some((_, meaning)) = MEANINGS.iter().find(|(known, _)| *known == name) {
            return format!("{meaning}{more}");
        }
    }
    String::new()
}

/// All anomalies; nothing when there are none.
pub(super) fn section(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let anomalies = report.anomalies();
    if anomalies.is_empty() && report.findings().next().is_none() {
        return Ok(());
    }
    page.write_str("<section id=\"anomalies\"><h2>Anomalies</h2>\n<ul class=\"kinds\">")?;
    for (anomaly, number) in &anomalies {
        let count = anomaly_count(anomaly, *number);
        write!(
            page,
            "<li><b>{}</b> {}</li>",
            Escaped(count),
            Escaped(meaning(anomaly))
        )?;
    }
    page.write_str("</ul>\n")?;
    for (number, (checker, finding)) in report.findings().take(FINDINGS_MAX).enumerate() {
        write_finding(report.history, number, checker, finding, page)?;
    }
    let explained = report.findings().count();
    let found: u64 = anomalies.values().sum();
    if explained > FINDINGS_MAX || found > explained as u64 {
        let shown = thousands(explained.min(FINDINGS_MAX) as u64);
        let explained = thousands(explained as u64);
        writeln!(
            page,
            "<p class=\"hint\">Shown: {shown} of {explained} explained anomalies, of {} found. <code>results.json</code> has \
             all that are explained.</p>",
            thousands(found)
        )?;
    }
    components(report, page)?;
    page.write_str("</section>\n")
}

/// The largest components, drawn.
fn components(report: &Report<'_>, page: &mut String) -> fmt::Result {
    for component in report.components().take(COMPONENTS_MAX) {
        writeln!(
            page,
            "<details class=\"finding\"><summary><b>component</b> <span>{} that depend on one another in circles</span>\
             </summary><div class=\"drawings\">",
            count(component.transactions, "transaction")
        )?;
        component::draw(report.history, component, Frame::Page, page)?;
        page.write_str("</div></details>\n")?;
    }
    Ok(())
}

/// One anomaly: in words, drawn, step by step, and the operations as the history has them.
fn write_finding(
    history: &History,
    number: usize,
    checker: &str,
    finding: &Finding,
    page: &mut String,
) -> fmt::Result {
    let open = if number < OPEN_MAX { " open" } else { "" };
    let first_line = finding.summary.lines().next().unwrap_or_default();
    let long = first_line.chars().nth(HEADLINE_LENGTH_MAX).is_some();
    // A story in Elle's words begins by naming its operations: how many there are says more.
    let (headline, told) = if first_line == "Let:" {
        (format!("A cycle of {} operations.", finding.steps.len()), 0)
    } else {
        let told = if long { 0 } else { first_line.len() };
        (first_line.to_owned(), told)
    };
    writeln!(
        page,
        "<details class=\"finding\" id=\"finding-{number}\"{open}><summary><b>{}</b> <span>{}</span></summary>",
        Escaped(finding.anomaly),
        Escaped(shortened(&headline, HEADLINE_LENGTH_MAX)),
    )?;
    // Lines keep their indentation, the first one too.
    let story = finding.summary[told..].trim_end().trim_start_matches('\n');
    if !story.is_empty() {
        let story = shortened(story, SUMMARY_LENGTH_MAX);
        writeln!(page, "<p class=\"story\">{}</p>", Escaped(story))?;
    }
    page.write_str("<div class=\"drawings\">")?;
    cycle::draw(history, &finding.steps, Frame::Page, page)?;
    let operations = operations(history, finding);
    interval::draw(&operations, page)?;
    page.write_str("</div>\n")?;
    steps(number, &finding.steps, page)?;
    listing(number, &operations, page)?;
    if finding.operations.len() > OPERATIONS_MAX {
        let left_out = thousands((finding.operations.len() - OPERATIONS_MAX) as u64);
        writeln!(
            page,
            "<p class=\"hint\">{left_out} more operations take part.</p>"
        )?;
    }
    writeln!(
        page,
        "<p class=\"hint\">Found by the checker {}.</p></details>",
        Escaped(checker)
    )
}

/// An operation that takes part: its invocation and its completion, as far as the history has them.
pub(super) struct Part<'a> {
    pub(super) invocation: Option<&'a Op>,
    pub(super) completion: Option<&'a Op>,
}

impl<'a> Part<'a> {
    /// The operation to which this index belongs.
    pub(super) fn find(history: &'a History, index: u64) -> Option<Part<'a>> {
        let position = history.position(index)?;
        let op = &history.ops()[position];
        let other = history.pair(position).map(|other| &history.ops()[other]);
        let (invocation, completion) = if op.is_invoke() {
            (Some(op), other)
        } else {
            (other, Some(op))
        };
        Some(Part {
            invocation,
            completion,
        })
    }

    /// The half that says most: the completion, if there is one.
    pub(super) fn telling(&self) -> Option<&'a Op> {
        self.completion.or(self.invocation)
    }

    /// What was done, on one line: the transaction, or the function and its value.
    pub(super) fn deed(&self, characters_max: usize) -> String {
        let deed = self
            .telling()
            .map_or_else(String::new, |op| match &op.value {
                Value::Txn(_) => brief(&op.value, characters_max),
                value => brief(format_args!("{} {value}", op.f), characters_max),
            });
        one_line(&deed).into_owned()
    }
}

/// The operations of a finding, each once, in the order in which they began.
fn operations<'a>(history: &'a History, finding: &Finding) -> Vec<Part<'a>> {
    let mut seen = BTreeSet::new();
    let mut parts = Vec::new();
    for index in &finding.operations {
        let Some(part) = Part::find(history, *index) else {
            continue;
        };
        let first = part.invocation.or(part.completion).map(|op| op.index);
        if seen.insert(first) {
            parts.push((first, part));
        }
        if parts.len() == OPERATIONS_MAX {
            break;
        }
    }
    parts.sort_by_key(|(first, _)| *first);
    parts.into_iter().map(|(_, part)| part).collect()
}

fn steps(number: usize, steps: &[Step], page: &mut String) -> fmt::Result {
    if steps.is_empty() {
        return Ok(());
    }
    page.write_str("<ol class=\"steps\">")?;
    for step in steps.iter().take(STEPS_MAX) {
        let Step { from, to, .. } = step;
        write!(
            page,
            "<li><a href=\"#op-{number}-{from}\">op {}</a> <span class=\"relation {}\">{}</span> \
             <a href=\"#op-{number}-{to}\">op {}</a>: {}</li>",
            thousands(*from),
            cycle::class(step.relation),
            Escaped(step.relation),
            thousands(*to),
            Escaped(shortened(&step.reason, LINE_LENGTH_MAX)),
        )?;
    }
    page.write_str("</ol>\n")?;
    if steps.len() > STEPS_MAX {
        let left_out = thousands((steps.len() - STEPS_MAX) as u64);
        writeln!(
            page,
            "<p class=\"hint\">{left_out} more steps close the circle.</p>"
        )?;
    }
    Ok(())
}

/// The operations' lines in the history, in its order.
fn listing(number: usize, parts: &[Part<'_>], page: &mut String) -> fmt::Result {
    let mut ops: Vec<&Op> = parts
        .iter()
        .flat_map(|part| [part.invocation, part.completion])
        .flatten()
        .collect();
    if ops.is_empty() {
        return Ok(());
    }
    ops.sort_by_key(|op| op.index);
    let columns = Columns::of(ops.iter().copied());
    page.write_str("<pre class=\"operations\" tabindex=\"0\">")?;
    for op in ops {
        let line = columns.brief_line(op, LINE_LENGTH_MAX);
        let (index, kind) = (op.index, op.kind.name());
        write!(
            page,
            "<span id=\"op-{number}-{index}\" class=\"{kind}\">{}</span>",
            Escaped(line),
        )?;
    }
    page.write_str("</pre>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_of_names_with_endings() {
        assert!(meaning("G0").starts_with("Write cycle"));
        assert!(meaning("G1c-realtime").ends_with("ended before another began."));
        assert!(meaning("G-single-process").ends_with("in one process."));
        assert_eq!(meaning("something-new"), "");
    }
}
