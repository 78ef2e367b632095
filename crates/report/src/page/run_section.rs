//! What the run was: counts by function and node, errors, faults, checkers, options, how to look again.

use crate::breakdown::Breakdown;
use crate::escape::{Escaped, relative_link};
use crate::report::Report;
use crate::wording::{percent, shortened, thousands};
use seatrial_checker::{CertificateStatus, Counts, Validity, Verdict};
use serde_json::Value as Json;
use std::fmt::{self, Write};

/// Rows of a table.
const ROWS_MAX: usize = 40;
/// Rows of the table of faults.
const FAULTS_MAX: usize = 200;
/// Longest details of a checker in characters.
const DETAILS_LENGTH_MAX: usize = 4_000;

/// All sections after the charts, and the end of the page's main part.
pub(super) fn sections(
    report: &Report<'_>,
    breakdown: &Breakdown,
    page: &mut String,
) -> fmt::Result {
    if report.counts.count > 0 {
        operations(report, breakdown, page)?;
    }
    faults(report, page)?;
    checkers(report, page)?;
    attributes(report, page)?;
    again(report, page)?;
    page.write_str("</main>\n")
}

/// How operations ended, by function, by node, and why.
fn operations(report: &Report<'_>, breakdown: &Breakdown, page: &mut String) -> fmt::Result {
    page.write_str("<section id=\"operations\"><h2>Operations</h2>\n<div class=\"tables\">")?;
    let functions = report.by_function.iter();
    counts_table("Function", functions.map(|(f, counts)| (*f, counts)), page)?;
    let nodes = breakdown.by_node.iter();
    counts_table(
        "Node",
        nodes.map(|(node, counts)| (node.as_str(), counts)),
        page,
    )?;
    errors(breakdown, page)?;
    page.write_str("</div></section>\n")
}

fn counts_table<'a>(
    title: &str,
    rows: impl ExactSizeIterator<Item = (&'a str, &'a Counts)>,
    page: &mut String,
) -> fmt::Result {
    let all = rows.len();
    if all == 0 {
        return Ok(());
    }
    write!(
        page,
        "<table><thead><tr><th>{title}</th><th class=\"n\">All</th><th class=\"n\">ok</th><th class=\"n\">fail</th>\
         <th class=\"n\">info</th></tr></thead><tbody>"
    )?;
    for (name, counts) in rows.take(ROWS_MAX) {
        write!(page, "<tr><td>{}</td>", Escaped(shortened(name, 60)))?;
        let total = counts.count;
        write!(page, "<td class=\"n\">{}</td>", thousands(total))?;
        for part in [counts.ok, counts.fail, counts.info] {
            let share = percent(part, total);
            write!(
                page,
                "<td class=\"n\" title=\"{}\">{}</td>",
                Escaped(share),
                thousands(part)
            )?;
        }
        page.write_str("</tr>")?;
    }
    if all > ROWS_MAX {
        write!(
            page,
            "<tr><td colspan=\"5\">and {} more</td></tr>",
            thousands((all - ROWS_MAX) as u64)
        )?;
    }
    page.write_str("</tbody></table>\n")
}

fn errors(breakdown: &Breakdown, page: &mut String) -> fmt::Result {
    if breakdown.errors.is_empty() {
        return Ok(());
    }
    page.write_str(
        "<table><thead><tr><th>Why not ok</th><th>Type</th><th class=\"n\">Operations</th></tr></thead><tbody>",
    )?;
    for (kind, error, number) in &breakdown.errors {
        write!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
            Escaped(error),
            kind.name(),
            thousands(*number)
        )?;
    }
    page.write_str("</tbody></table>\n")
}

fn faults(report: &Report<'_>, page: &mut String) -> fmt::Result {
    if report.faults.is_empty() {
        return Ok(());
    }
    let all = thousands(report.faults.len() as u64);
    write!(
        page,
        "<section id=\"fault-list\"><h2>Faults</h2>\n<details><summary>All {all}</summary><table><thead><tr>\
         <th>Fault</th><th>Target</th><th class=\"n\">From (s)</th><th class=\"n\">To (s)</th><th>Remark</th></tr>\
         </thead><tbody>"
    )?;
    for fault in report.faults.iter().take(FAULTS_MAX) {
        let seconds = |time: i64| format!("{:.3}", time as f64 / 1e9);
        let remark = match (&fault.error, fault.instant, fault.end) {
            (Some(error), _, _) => format!("did not take effect: {error}"),
            (None, false, None) => "never mended".to_owned(),
            _ => String::new(),
        };
        write!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            Escaped(fault.name),
            Escaped(&fault.target),
            seconds(fault.begin),
            fault.end.map(seconds).unwrap_or_default(),
            Escaped(remark),
        )?;
    }
    page.write_str("</tbody></table>")?;
    if report.faults.len() > FAULTS_MAX {
        write!(
            page,
            "<p class=\"hint\">The first {FAULTS_MAX} of {all}.</p>"
        )?;
    }
    page.write_str("</details></section>\n")
}

fn checkers(report: &Report<'_>, page: &mut String) -> fmt::Result {
    if report.verdicts.is_empty() {
        return Ok(());
    }
    page.write_str("<section id=\"checkers\"><h2>Checkers</h2>\n")?;
    for verdict in report.verdicts {
        checker(verdict, page)?;
    }
    page.write_str("</section>\n")
}

fn checker(verdict: &Verdict, page: &mut String) -> fmt::Result {
    let (class, word) = match &verdict.valid {
        Validity::Valid => ("valid", "valid".to_owned()),
        Validity::Invalid => ("invalid", "invalid".to_owned()),
        Validity::Unknown(reason) => ("unknown", format!("unknown: {reason}")),
    };
    let model = verdict.model.as_ref().map(|model| format!(" ({model})"));
    write!(
        page,
        "<details><summary><b>{}</b>{} <span class=\"badge {class}\">{}</span></summary>",
        Escaped(verdict.checker),
        Escaped(model.unwrap_or_default()),
        Escaped(word),
    )?;
    for (label, models) in [("Not", &verdict.not), ("so also not", &verdict.also_not)] {
        if !models.is_empty() {
            write!(page, "<p>{label}: {}</p>", Escaped(models.join(", ")))?;
        }
    }
    if let Some(status) = &verdict.details.certificate {
        write!(page, "<p>{}</p>", Escaped(proof(status)))?;
    }
    if verdict.details.is_empty() {
        page.write_str("<p class=\"hint\">No further figures.</p>")?;
    } else {
        let details = format!("{:#}", verdict.details);
        write!(
            page,
            "<pre tabindex=\"0\">{}</pre>",
            Escaped(shortened(&details, DETAILS_LENGTH_MAX))
        )?;
    }
    page.write_str("</details>\n")
}

/// The state of a verdict's proof.
fn proof(status: &CertificateStatus) -> String {
    match status {
        CertificateStatus::Holds { file } => {
            format!("Proven: {file} holds, says the independent verifier.")
        }
        CertificateStatus::Unsettled { file, reason } => {
            format!("Not proven: the independent verifier gave up on {file}: {reason}.")
        }
        CertificateStatus::Refused { reason } | CertificateStatus::Missing { reason } => {
            format!("Not proven: {reason}.")
        }
    }
}

/// The attributes of the test as they were stored; options and other objects unfolded, without what is not set.
fn attributes(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let Json::Object(attributes) = report.attributes else {
        return Ok(());
    };
    if attributes.is_empty() {
        return Ok(());
    }
    page.write_str("<section id=\"run\"><h2>Run</h2>\n<dl class=\"attributes\">")?;
    let mut rows = Vec::new();
    for (name, value) in attributes {
        match value {
            // The names of options stand for themselves.
            Json::Object(fields) => {
                for (field, value) in fields {
                    unfold(field, value, OBJECTS_MAX, &mut rows);
                }
            }
            value => unfold(name, value, OBJECTS_MAX, &mut rows),
        }
    }
    // The command has its place below.
    let rows = rows.iter().filter(|(name, _)| name != "command");
    for (name, value) in rows.take(ROWS_MAX * 2) {
        write!(
            page,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            Escaped(shortened(name, 60)),
            Escaped(shortened(value, 600)),
        )?;
    }
    page.write_str("</dl></section>\n")
}

/// Objects within objects that are unfolded into rows.
const OBJECTS_MAX: usize = 3;

/// Adds a value as rows of a name and a text: none for null and for empty objects, one for each field of an object.
fn unfold(name: &str, value: &Json, objects_left: usize, rows: &mut Vec<(String, String)>) {
    let text = match value {
        Json::Null => return,
        Json::Object(fields) if objects_left > 0 => {
            for (field, value) in fields {
                unfold(&format!("{name} {field}"), value, objects_left - 1, rows);
            }
            return;
        }
        Json::String(text) => text.clone(),
        Json::Array(items) if items.iter().all(Json::is_string) => items
            .iter()
            .filter_map(Json::as_str)
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    };
    rows.push((name.to_owned(), text));
}

/// The files of the run, and the commands that check and run it again.
fn again(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let mut commands: Vec<(&str, String)> = Vec::new();
    let history = report.files.iter().find(|file| is_history(file));
    if let (Some(folder), Some(history)) = (&report.folder, history) {
        let path = shell_word(&format!("{}/{history}", folder.trim_end_matches('/')));
        commands.push(("Check the history again", format!("seatrial check {path}")));
        commands.push(("List its operations", format!("seatrial show {path}")));
    }
    commands.extend(
        report
            .attribute("command")
            .map(|command| ("Run it again", command.to_owned())),
    );
    if commands.is_empty() && report.files.is_empty() {
        return Ok(());
    }
    page.write_str("<section id=\"again\"><h2>Look again</h2>\n<dl class=\"commands\">")?;
    for (label, command) in commands {
        write!(
            page,
            "<div><dt>{label}</dt><dd><code>{}</code></dd></div>",
            Escaped(command)
        )?;
    }
    page.write_str("</dl>\n<ul class=\"files\">")?;
    for file in &report.files {
        match relative_link(file) {
            Some(link) => write!(
                page,
                "<li><a href=\"{}\">{}</a></li>",
                Escaped(link),
                Escaped(file)
            )?,
            None => write!(page, "<li>{}</li>", Escaped(file))?,
        }
    }
    page.write_str("</ul></section>\n")
}

/// Is this the test file?
fn is_history(file: &str) -> bool {
    file.rsplit_once('.').is_some_and(|(_, kind)| kind == "sea")
}

/// A path as one word of a shell.
fn shell_word(path: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/+:=@,".contains(letter);
    if !path.is_empty() && path.chars().all(plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_rows_without_what_is_not_set() {
        let options = serde_json::json!({"keys": null, "limits": {"ops": 5, "rate": null}, "of": ["a", "b"], "none": {}});
        let mut rows = Vec::new();
        unfold("workload", &options, OBJECTS_MAX, &mut rows);
        let row = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            rows,
            [row("workload limits ops", "5"), row("workload of", "a, b")]
        );
    }

    #[test]
    fn paths_as_words_of_a_shell() {
        assert_eq!(
            shell_word("runs/kv/2026-91c4/history.sea"),
            "runs/kv/2026-91c4/history.sea"
        );
        assert_eq!(shell_word("my runs/it's"), "'my runs/it'\\''s'");
    }
}
