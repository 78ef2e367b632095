//! The anomalies, each with the operations that make it.

use super::drawing_frame::DrawingFrame;
use super::order_picture::LinearizationPicture;
use super::{component, cycle, interval, order_drawing, surroundings};
use crate::escape::Escaped;
use crate::listing::ListingColumns;
use crate::report::Report;
use crate::wording::{anomaly_count, brief, count, one_line, shortened, thousands};
use seatrial_checker::{Finding, FindingStep};
use seatrial_history::{History, Op, Value};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// Findings on a page.
pub(crate) const FINDINGS_MAX: usize = 60;
/// Components on a page.
const COMPONENTS_MAX: usize = 3;
/// Findings that are open when the page opens.
const OPEN_MAX: usize = 3;
/// Operations listed for one finding.
pub(super) const OPERATIONS_MAX: usize = 24;
/// Steps listed for one finding.
const STEPS_MAX: usize = 40;
/// Points of the orders that the first [`LONG_PICTURES_MAX`] findings and those after them are drawn with: about 100 bytes each.
const POINTS_MAX: usize = 1_000;
const POINTS_MAX_LATER: usize = 100;
const LONG_PICTURES_MAX: usize = 2;
/// Longest line of an operation in characters.
const LINE_LENGTH_MAX: usize = 300;
/// Longest headline of a finding in characters.
const HEADLINE_LENGTH_MAX: usize = 240;
/// Longest summary of a finding in characters.
const SUMMARY_LENGTH_MAX: usize = 4_000;

/// What the anomalies mean. After Adya, "Weak Consistency" (MIT, 1999), and
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
    (
        "garbage-read",
        "A read returned a value that was never written.",
    ),
    (
        "cyclic-versions",
        "The versions of one object follow each other in a circle.",
    ),
    (
        "nonlinearizable",
        "No order of the operations, each at one instant between its invocation and its completion, explains what was seen.",
    ),
];

/// The meaning of an anomaly; a suffix means the same cycle with edges of real time or of one process.
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
pub(super) fn section(report: &Report<'_>, history: &History, page: &mut String) -> fmt::Result {
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
        write_finding(report, history, number, (checker, finding), page)?;
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
    components(report, history, page)?;
    page.write_str("</section>\n")
}

/// The largest components, drawn.
fn components(report: &Report<'_>, history: &History, page: &mut String) -> fmt::Result {
    for component in report.components().take(COMPONENTS_MAX) {
        writeln!(
            page,
            "<details class=\"finding\"><summary><b>component</b> <span>{} that depend on one another in circles</span>\
             </summary><div class=\"drawings\">",
            count(component.transactions, "transaction")
        )?;
        component::draw(history, component, DrawingFrame::Page, page)?;
        page.write_str("</div></details>\n")?;
    }
    Ok(())
}

/// One anomaly: in words, drawn, step by step, and the operations as the history has them.
fn write_finding(
    report: &Report<'_>,
    history: &History,
    number: usize,
    (checker, finding): (&str, &Finding),
    page: &mut String,
) -> fmt::Result {
    let open = if number < OPEN_MAX { " open" } else { "" };
    let first_line = finding.summary.lines().next().unwrap_or_default();
    let long = first_line.chars().nth(HEADLINE_LENGTH_MAX).is_some();
    // An explanation in Elle's format begins by naming its operations: their number says more.
    let (headline, shown) = if first_line == "Let:" {
        (format!("A cycle of {} operations.", finding.steps.len()), 0)
    } else {
        let shown = if long { 0 } else { first_line.len() };
        (first_line.to_owned(), shown)
    };
    writeln!(
        page,
        "<details class=\"finding\" id=\"finding-{number}\"{open}><summary><b>{}</b> <span>{}</span></summary>",
        Escaped(finding.anomaly),
        Escaped(shortened(&headline, HEADLINE_LENGTH_MAX)),
    )?;
    // Lines keep their indentation, the first one too.
    let explanation = finding.summary[shown..].trim_end().trim_start_matches('\n');
    if !explanation.is_empty() {
        let explanation = shortened(explanation, SUMMARY_LENGTH_MAX);
        writeln!(
            page,
            "<p class=\"explanation\">{}</p>",
            Escaped(explanation)
        )?;
    }
    page.write_str("<div class=\"drawings\">")?;
    cycle::draw(history, &finding.steps, DrawingFrame::Page, page)?;
    let operations = operations(history, finding);
    let points_max = if number < LONG_PICTURES_MAX {
        POINTS_MAX
    } else {
        POINTS_MAX_LATER
    };
    match picture(history, finding, points_max) {
        Some(picture) => order_drawing::draw(&picture, DrawingFrame::Page, page)?,
        None => interval::draw(&operations, page)?,
    }
    page.write_str("</div>\n")?;
    steps(number, &finding.steps, page)?;
    if let Some(cause) = report.causes.of(number) {
        surroundings::section(cause, page)?;
    }
    listing(number, &operations, page)?;
    if finding.operations.len() > OPERATIONS_MAX {
        let left_out = (finding.operations.len() - OPERATIONS_MAX) as u64;
        let left_out = count(left_out, "more operation");
        writeln!(page, "<p class=\"hint\">Left out: {left_out}.</p>")?;
    }
    writeln!(
        page,
        "<p class=\"hint\">Found by the checker {}.</p></details>",
        Escaped(checker)
    )
}

/// The picture of an order that works, if a finding has one.
pub(super) fn picture(
    history: &History,
    finding: &Finding,
    points_max: usize,
) -> Option<LinearizationPicture> {
    let witness = finding.linearization.as_ref()?;
    LinearizationPicture::new(history, witness, points_max)
}

/// An operation that takes part: its invocation and its completion, one of which may be missing from the history.
pub(super) struct Participant<'a> {
    pub(super) invocation: Option<&'a Op>,
    pub(super) completion: Option<&'a Op>,
}

impl<'a> Participant<'a> {
    /// The operation to which this index belongs.
    pub(super) fn find(history: &'a History, index: u64) -> Option<Participant<'a>> {
        let position = history.position(index)?;
        let op = &history.ops()[position];
        let other = history.pair(position).map(|other| &history.ops()[other]);
        let (invocation, completion) = if op.is_invoke() {
            (Some(op), other)
        } else {
            (other, Some(op))
        };
        Some(Participant {
            invocation,
            completion,
        })
    }

    /// The completion if there is one, else the invocation.
    pub(super) fn last(&self) -> Option<&'a Op> {
        self.completion.or(self.invocation)
    }

    /// The transaction, or the function and its value, on one line.
    pub(super) fn label(&self, characters_max: usize) -> String {
        let label = self.last().map_or_else(String::new, |op| match &op.value {
            Value::Txn(_) => brief(&op.value, characters_max),
            value => brief(format_args!("{} {value}", op.f), characters_max),
        });
        one_line(&label).into_owned()
    }
}

/// The operations of a finding, each once, in the order in which they began.
fn operations<'a>(history: &'a History, finding: &Finding) -> Vec<Participant<'a>> {
    let mut seen = BTreeSet::new();
    let mut parts = Vec::new();
    for index in &finding.operations {
        let Some(part) = Participant::find(history, *index) else {
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

fn steps(number: usize, steps: &[FindingStep], page: &mut String) -> fmt::Result {
    if steps.is_empty() {
        return Ok(());
    }
    page.write_str("<ol class=\"steps\">")?;
    for step in steps.iter().take(STEPS_MAX) {
        let FindingStep { from, to, .. } = step;
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
        let left_out = count((steps.len() - STEPS_MAX) as u64, "more step");
        writeln!(
            page,
            "<p class=\"hint\">Left out: {left_out} of the cycle.</p>"
        )?;
    }
    Ok(())
}

/// The operations' lines in the history, in its order.
fn listing(number: usize, parts: &[Participant<'_>], page: &mut String) -> fmt::Result {
    let mut ops: Vec<&Op> = parts
        .iter()
        .flat_map(|part| [part.invocation, part.completion])
        .flatten()
        .collect();
    if ops.is_empty() {
        return Ok(());
    }
    ops.sort_by_key(|op| op.index);
    let columns = ListingColumns::of(ops.iter().copied());
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
