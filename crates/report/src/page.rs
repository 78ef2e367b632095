//! One page with everything, that needs nothing else.

mod anomaly_section;
mod component;
mod cycle;
mod drawing_frame;
mod files;
mod interval;
mod op_color_drawing;
mod order_drawing;
mod order_picture;
mod over_time;
mod run_section;
mod surroundings;
mod verdict_section;

pub(crate) use anomaly_section::FINDINGS_MAX;
pub use files::{FindingFile, finding_files};
pub use op_color_drawing::{OP_COLOR_FILE, op_color_svg};

use crate::chart::{Charts, FAULTS_MAX, charts};
use crate::drawing::Drawing;
use crate::escape::{Escaped, json_for_script};
use crate::report::Report;
use crate::wording::{count, length, thousands};
use std::fmt::{self, Write};

/// uPlot 1.6.32 by Leon Sorokin (MIT, `assets/uplot/LICENSE`).
const CHART_SCRIPT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const CHART_STYLE: &str = include_str!("../assets/uplot/uPlot.min.css");
const CHART_LICENCE: &str = include_str!("../assets/uplot/LICENSE");
const PAGE_SCRIPT: &str = include_str!("../assets/page.js");
const LINEARIZATION_SCRIPT: &str = include_str!("../assets/linearization.js");
const PAGE_STYLE: &str = concat!(
    include_str!("../assets/palette.css"),
    include_str!("../assets/page.css"),
    include_str!("../assets/picture.css")
);

/// The report as one HTML page: verdict, summary, anomalies with their operations, charts of latency and rate with the
/// faults shaded, and what the run was. It holds its scripts and styles, loads nothing, and its policy forbids it to;
/// text from the history is escaped. Its size is bounded: a long history is drawn from a sample, and says so.
pub fn html(report: &Report<'_>, drawing: &Drawing) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(report, drawing, &mut page);
    page
}

fn write_page(report: &Report<'_>, drawing: &Drawing, page: &mut String) -> fmt::Result {
    let figures = drawing.figures.as_ref();
    let charts = figures.map(|figures| charts(report, figures));
    head(report, page)?;
    verdict_section::section(report, page)?;
    anomaly_section::section(report, &drawing.excerpt.history, page)?;
    chart_section(report, charts.as_ref(), page)?;
    over_time::section(report, page)?;
    op_color_drawing::section(report, page)?;
    run_section::sections(report, &drawing.breakdown, page)?;
    if let Some(charts) = &charts {
        let data = json_for_script(&charts.data);
        writeln!(
            page,
            "<script type=\"application/json\" id=\"figures\">{data}</script>"
        )?;
        writeln!(
            page,
            "<script>/*\n{CHART_LICENCE}*/\n{CHART_SCRIPT}</script>"
        )?;
        writeln!(page, "<script>\n{PAGE_SCRIPT}</script>")?;
    }
    if report
        .findings()
        .any(|(_, finding)| finding.linearization.is_some())
    {
        writeln!(page, "<script>\n{LINEARIZATION_SCRIPT}</script>")?;
    }
    page.push_str("</body>\n</html>\n");
    Ok(())
}

/// The head of the page, with a policy under which it can load nothing.
fn head(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let name = report
        .attribute("suite")
        .or_else(|| report.attribute("name"));
    let name = name.unwrap_or("history");
    let title = match report.seed() {
        Some(seed) => format!("{name} {seed}"),
        None => name.to_owned(),
    };
    writeln!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"seatrial {}\">\n\
         <title>{} {} · seatrial</title>\n<style>\n{CHART_STYLE}\n{PAGE_STYLE}</style>\n</head>\n<body>",
        env!("CARGO_PKG_VERSION"),
        verdict_section::mark(report),
        Escaped(title),
    )
}

/// The charts' places; the script fills them.
fn chart_section(report: &Report<'_>, charts: Option<&Charts>, page: &mut String) -> fmt::Result {
    let Some(charts) = charts else {
        return page.write_str(
            "<section id=\"charts\"><h2>Charts</h2>\n<p>No operation in this history has a time, so there is nothing \
             to draw.</p></section>\n",
        );
    };
    page.write_str(
        "<section id=\"charts\"><h2>Charts</h2>\n<p class=\"hint\">Drag to zoom in on a stretch of time, double-click to \
         see all of it. Shaded over the whole height: faults; in the lower fifth: the time of each finding.</p>\n<div class=\"chips\" id=\"chips\"></div>\n<noscript><p>The charts need \
         JavaScript; everything else on this page does not.</p></noscript>\n",
    )?;
    let has_findings = charts.data["findings"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    if has_findings {
        chart(page, "faults", "Faults and findings", "")?;
    } else if !report.faults.is_empty() {
        chart(page, "faults", "Faults", "")?;
    }
    let shown = if (charts.shown as u64) < charts.completed {
        format!(
            "A sample: {} of {} operations that completed. Failed and unknown ones are kept first, and the fastest and \
             slowest of every moment.",
            thousands(charts.shown as u64),
            thousands(charts.completed)
        )
    } else {
        format!(
            "{} that completed, each where it was invoked.",
            count(charts.shown as u64, "operation")
        )
    };
    chart(page, "latency", "Latency of each operation", &shown)?;
    let window = length(charts.window as f64 / 1e9);
    let note = format!("Of the operations invoked in each {window}.");
    chart(page, "quantiles", "Latency quantiles", &note)?;
    let note = format!("Operations completed, per second, in each {window}.");
    chart(page, "rate", "Rate", &note)?;
    if report.faults.len() > FAULTS_MAX {
        let (shown, all) = (
            thousands(FAULTS_MAX as u64),
            thousands(report.faults.len() as u64),
        );
        writeln!(
            page,
            "<p class=\"hint\">The first {shown} of {all} faults are drawn.</p>"
        )?;
    }
    page.write_str("</section>\n")
}

fn chart(page: &mut String, id: &str, title: &str, note: &str) -> fmt::Result {
    writeln!(
        page,
        "<figure class=\"chart\"><figcaption><b>{title}</b> <span class=\"note\">{note}</span>\
         <span id=\"{id}-choice\"></span></figcaption><div id=\"{id}\"></div></figure>"
    )
}
