//! The report for continuous integration: JUnit XML.

use crate::cause_text::{moment, sentences, timeline};
use crate::escape::Escaped;
use crate::report::Report;
use crate::wording::{one_line, shortened};
use seatrial_checker::{Validity, Verdict};
use std::fmt::{self, Write};

/// Longest text of a test case, in characters; the rest is in `results.json`.
const TEXT_LENGTH_MAX: usize = 20_000;
/// Longest message of a failure in characters.
const MESSAGE_LENGTH_MAX: usize = 300;

/// The verdicts as JUnit XML: one suite of tests, a test case for each checker. An invalid verdict is a `failure` with the
/// text of its findings, an unknown one an `error` with the reason. Without a checker there is one test case, an `error`.
pub fn junit_xml(report: &Report<'_>) -> String {
    let mut xml = String::new();
    // Writing to a string cannot fail.
    let _ = write_suite(report, &mut xml);
    xml
}

fn write_suite(report: &Report<'_>, xml: &mut String) -> fmt::Result {
    let verdicts = report.verdicts;
    let count =
        |is_it: &dyn Fn(&Validity) -> bool| verdicts.iter().filter(|one| is_it(&one.valid)).count();
    let failures = count(&|valid| *valid == Validity::Invalid);
    let mut errors = count(&|valid| matches!(valid, Validity::Unknown(_)));
    let tests = verdicts.len().max(1);
    errors += usize::from(verdicts.is_empty());
    let seconds = report.checked_in.map_or(0.0, |time| time.as_secs_f64());
    let mut names = ["name", "suite"].into_iter();
    let name = names.find_map(|field| report.attribute(field));
    let name = name.unwrap_or("history");
    let numbers = format!(
        "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\""
    );
    writeln!(xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(xml, "<testsuites {numbers}>")?;
    let suite = Escaped(one_line(name));
    writeln!(
        xml,
        "  <testsuite name=\"{suite}\" {numbers} skipped=\"0\"{}>",
        timestamp(report)
    )?;
    properties(report, xml)?;
    for verdict in verdicts {
        write_case(report, verdict, name, xml)?;
    }
    if verdicts.is_empty() {
        let reason = "no checker ran on this history";
        writeln!(
            xml,
            "    <testcase classname=\"{suite}\" name=\"check\" time=\"0\">\n      \
             <error message=\"{reason}\" type=\"unknown\"/>\n    </testcase>"
        )?;
    }
    if !report.warnings.is_empty() {
        let warnings = report.warnings.join("\n");
        let warnings = shortened(&warnings, TEXT_LENGTH_MAX);
        writeln!(xml, "    <system-err>{}</system-err>", Escaped(warnings))?;
    }
    xml.write_str("  </testsuite>\n</testsuites>\n")
}

/// When the test began, as an attribute; the names of runs have no colons.
fn timestamp(report: &Report<'_>) -> String {
    let started = report
        .attribute("started")
        .and_then(|it| it.split_once('T'));
    started.map_or_else(String::new, |(date, time)| {
        let time = time.replace('-', ":");
        format!(" timestamp=\"{}T{}\"", Escaped(date), Escaped(time))
    })
}

/// Seed, command and folder.
fn properties(report: &Report<'_>, xml: &mut String) -> fmt::Result {
    let command = report.attribute("command").map(str::to_owned);
    let known = [
        ("seed", report.seed()),
        ("command", command),
        ("folder", report.folder.clone()),
    ];
    let known: Vec<_> = known
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    if known.is_empty() {
        return Ok(());
    }
    xml.write_str("    <properties>\n")?;
    for (name, value) in known {
        let value = Escaped(one_line(&value));
        writeln!(xml, "      <property name=\"{name}\" value=\"{value}\"/>")?;
    }
    xml.write_str("    </properties>\n")
}

/// The test case of one checker.
fn write_case(
    report: &Report<'_>,
    verdict: &Verdict,
    suite: &str,
    xml: &mut String,
) -> fmt::Result {
    let (suite, name) = (Escaped(one_line(suite)), Escaped(verdict.checker));
    write!(
        xml,
        "    <testcase classname=\"{suite}\" name=\"{name}\" time=\"0\""
    )?;
    match &verdict.valid {
        Validity::Valid => writeln!(xml, "/>"),
        Validity::Unknown(reason) => {
            let message = one_line(reason);
            let message = Escaped(shortened(&message, MESSAGE_LENGTH_MAX));
            writeln!(
                xml,
                ">\n      <error message=\"{message}\" type=\"unknown\">{}</error>\n    </testcase>",
                Escaped(findings(report, verdict))
            )
        }
        Validity::Invalid => {
            let anomalies = verdict.anomalies.iter();
            let anomalies = anomalies.map(|(anomaly, number)| format!("{number} × {anomaly}"));
            let anomalies = anomalies.collect::<Vec<_>>().join(", ");
            let model = verdict.model.as_deref().unwrap_or("valid");
            let message = format!("not {model}: {anomalies}");
            let message = one_line(&message);
            let message = Escaped(shortened(&message, MESSAGE_LENGTH_MAX));
            let kind = verdict.anomalies.keys().next().copied();
            writeln!(
                xml,
                ">\n      <failure message=\"{message}\" type=\"{}\">{}</failure>\n    </testcase>",
                Escaped(kind.unwrap_or("invalid")),
                Escaped(findings(report, verdict))
            )
        }
    }
}

/// The findings of a checker in words, with what happened around each.
fn findings(report: &Report<'_>, verdict: &Verdict) -> String {
    let mut text = String::new();
    for finding in &verdict.findings {
        let _ = writeln!(text, "{}\n{}", finding.anomaly, finding.summary.trim_end());
        let same = |other: &seatrial_checker::Finding| std::ptr::eq(other, finding);
        let number = report.findings().position(|(_, other)| same(other));
        if let Some(cause) = number.and_then(|number| report.causes.of(number)) {
            for sentence in sentences(cause) {
                let _ = writeln!(text, "  {sentence}");
            }
            for event in timeline(cause) {
                let _ = writeln!(text, "  {:>12}  {}", moment(event.time), event.text);
            }
        }
        text.push('\n');
        if text.len() > TEXT_LENGTH_MAX {
            break;
        }
    }
    shortened(text.trim_end(), TEXT_LENGTH_MAX).into_owned()
}
