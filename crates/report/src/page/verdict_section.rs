//! The verdict and the figures that fit beside it.

use crate::escape::Escaped;
use crate::report::Report;
use crate::wording::{anomaly_count, count, length, percent, rate, thousands};
use seatrial_checker::Validity;
use std::fmt::{self, Write};

/// The verdict as one sign.
pub(super) fn mark(report: &Report<'_>) -> &'static str {
    match report.validity() {
        Validity::Valid => "✓",
        Validity::Invalid => "✗",
        Validity::Unknown(_) => "?",
    }
}

/// Banner, warnings, figures.
pub(super) fn section(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let model = report.model();
    let (class, headline) = match (report.validity(), model) {
        (Validity::Valid, Some(model)) => ("valid", format!("Valid: {model}")),
        (Validity::Valid, None) => ("valid", "Valid".to_owned()),
        (Validity::Invalid, Some(model)) => ("invalid", format!("Not {model}")),
        (Validity::Invalid, None) => ("invalid", "Invalid".to_owned()),
        (Validity::Unknown(_), _) => ("unknown", "Unknown".to_owned()),
    };
    let mark = mark(report);
    writeln!(
        page,
        "<header class=\"banner {class}\"><p class=\"run\">{}</p>\n<h1><span class=\"mark\" aria-hidden=\"true\">{mark}\
         </span> {}</h1>\n<p>{}</p></header>\n<main>",
        Escaped(run_line(report)),
        Escaped(headline),
        Escaped(explanation(report)),
    )?;
    if !report.warnings.is_empty() {
        page.write_str("<section class=\"warnings\" aria-label=\"Warnings\"><ul>")?;
        for warning in &report.warnings {
            write!(page, "<li>{}</li>", Escaped(warning))?;
        }
        page.write_str("</ul></section>\n")?;
    }
    figures(report, page)
}

/// What the run was, in one line.
fn run_line(report: &Report<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let suite = report
        .attribute("suite")
        .or_else(|| report.attribute("name"));
    parts.extend(suite.map(str::to_owned));
    parts.extend(report.attribute("workload").map(str::to_owned));
    parts.extend(report.seed().map(|seed| format!("seed {seed}")));
    parts.extend(
        report
            .attribute("bug")
            .map(|bug| format!("planted bug {bug}")),
    );
    parts.extend(report.attribute("started").map(str::to_owned));
    parts.join(" · ")
}

/// The verdict in a sentence.
fn explanation(report: &Report<'_>) -> String {
    match report.validity() {
        Validity::Valid if !report.undecided().is_empty() => {
            let open = report.undecided().join("; ");
            format!("No anomaly was found; accepted although this was not decided: {open}.")
        }
        Validity::Valid => match &report.proofs()[..] {
            [] => "Nothing in this history contradicts it.".to_owned(),
            proofs => format!("Proven by: {}.", proofs.join(", ")),
        },
        Validity::Unknown(reason) => reason,
        Validity::Invalid => {
            let anomalies = report.anomalies();
            let found: Vec<String> = anomalies
                .iter()
                .map(|(anomaly, number)| anomaly_count(anomaly, *number))
                .collect();
            let mut text = if found.is_empty() {
                "A checker says no; its details are below.".to_owned()
            } else {
                format!("Found: {}.", found.join(", "))
            };
            let holds = report.holds();
            if !holds.is_empty() {
                let _ = write!(text, " What still holds: {}.", holds.join(", "));
            }
            for caveat in report.caveats() {
                let _ = write!(text, " The {caveat}.");
            }
            text
        }
    }
}

/// The figures of the run.
fn figures(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let counts = report.counts;
    let total = counts.count;
    let mut figures = vec![
        ("operations", thousands(total), ""),
        ("ok", thousands(counts.ok), "ok"),
        ("failed", thousands(counts.fail), "fail"),
        ("unknown", thousands(counts.info), "info"),
    ];
    figures.extend(
        rate(total, report.overview.seconds()).map(|rate| ("operations per second", rate, "")),
    );
    figures.push(("faults", thousands(report.fault_count()), ""));
    let failovers = report.failovers.as_ref();
    figures.extend(failovers.map(|one| ("failovers", thousands(one.count), "")));
    if report.overview.seconds() > 0.0 {
        figures.push(("length", length(report.overview.seconds()), ""));
    }
    figures.extend(
        report
            .node_count()
            .map(|nodes| ("system", count(nodes, "node"), "")),
    );
    let checked_in = report.checked_in.map(|time| length(time.as_secs_f64()));
    figures.extend(checked_in.map(|time| ("checked in", time, "")));
    page.write_str("<dl class=\"figures\" aria-label=\"Summary\">")?;
    for (name, figure, class) in figures {
        let share = match class {
            "ok" => percent(counts.ok, total),
            "fail" => percent(counts.fail, total),
            "info" => percent(counts.info, total),
            _ => String::new(),
        };
        write!(
            page,
            "<div class=\"{class}\"><dt>{name}</dt><dd>{} <small>{}</small></dd></div>",
            Escaped(figure),
            Escaped(share)
        )?;
    }
    page.write_str("</dl>\n")
}
