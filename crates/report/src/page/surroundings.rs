//! What happened around a finding, on the page.

use crate::cause_text::{TimelineKind, left_out, moment, sentences, timeline};
use crate::escape::Escaped;
use crate::wording::shortened;
use seatrial_cause::FindingCause;
use std::fmt::{self, Write};

/// Longest text of an event in characters.
const EVENT_LENGTH_MAX: usize = 300;

/// The cause of a finding: a few sentences, a link that chooses its time in the charts, and a table of events in the order of
/// time, closed at first.
pub(super) fn section(cause: &FindingCause, page: &mut String) -> fmt::Result {
    page.write_str("<ul class=\"cause\">")?;
    for sentence in sentences(cause) {
        write!(page, "<li>{}</li>", Escaped(sentence))?;
    }
    writeln!(
        page,
        "<li><a href=\"#charts\" data-begin=\"{}\" data-end=\"{}\">show this time in the charts</a></li></ul>",
        cause.begin as f64 / 1e9,
        cause.end as f64 / 1e9,
    )?;
    writeln!(
        page,
        "<details class=\"around\"><summary>What happened around it, from {} to {}</summary><table>",
        moment(cause.begin),
        moment(cause.end)
    )?;
    for event in timeline(cause) {
        let (class, what) = match event.kind {
            TimelineKind::Own => ("own", "finding"),
            TimelineKind::Fault => ("fault", "fault"),
            TimelineKind::Other => ("other", "same key"),
            TimelineKind::Log => ("log", "log"),
        };
        writeln!(
            page,
            "<tr class=\"{class}\"><td>{}</td><td>{what}</td><td>{}</td></tr>",
            moment(event.time),
            Escaped(shortened(&event.text, EVENT_LENGTH_MAX))
        )?;
    }
    page.write_str("</table>")?;
    let left_out = left_out(cause);
    if !left_out.is_empty() {
        writeln!(page, "<p class=\"hint\">Left out: {left_out}.</p>")?;
    }
    page.write_str("</details>\n")
}
