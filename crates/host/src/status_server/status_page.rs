//! The status as an HTML page that holds all it needs and refreshes itself.

use super::chart_history::VALUES_MAX;
use super::metrics_text::full_name;
use super::{INTERVAL, StatusView, seconds};
use seatrial_machine::{
    LinePart, MetricValue, StatusChart, StatusLine, StatusMetric, StatusTable, thousands,
};
use std::fmt::{self, Write};
use std::time::Duration;

const STYLE: &str = include_str!("../../assets/status.css");
const SCRIPT: &str = include_str!("../../assets/status.js");

/// A machine that has not described itself for this long is late: its thread is busy or stuck.
const LATE: Duration = Duration::from_secs(5);

/// Width and height of a chart, and the parts of it above and below the lines.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 120.0;
const ABOVE: f64 = 14.0;
const BELOW: f64 = 14.0;
/// Colours of lines in the style.
const COLORS: usize = 4;

/// The page.
pub(super) fn render(view: &StatusView) -> String {
    let mut page = String::with_capacity(64 << 10);
    // Writing to a string cannot fail.
    let _ = document(&mut page, view);
    page
}

fn document(page: &mut String, view: &StatusView) -> fmt::Result {
    let title = escaped(&view.title);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title} · seatrial</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header><h1>{title}</h1><span class=\"quiet\">seatrial {}</span>\
         <span id=\"age\" class=\"age quiet\">{}</span></header>\n",
        env!("CARGO_PKG_VERSION"),
        age(view),
    )?;
    page.write_str("<dl id=\"facts\">")?;
    for (name, text) in &view.sheet.facts {
        let (name, text) = (escaped(name), escaped(text));
        write!(page, "<div><dt>{name}</dt><dd>{text}</dd></div>")?;
    }
    page.write_str("</dl>\n<div id=\"charts\" class=\"charts\">")?;
    let mut first = 0;
    for chart in &view.sheet.charts {
        draw(page, view, chart, first)?;
        first += chart.lines.len();
    }
    page.write_str("</div>\n<div id=\"tables\">")?;
    for shown in &view.sheet.tables {
        table(page, shown)?;
    }
    page.write_str("</div>\n<details><summary>All metrics</summary><div class=\"scroll\">")?;
    page.write_str("<table><tbody id=\"metrics\">")?;
    page.write_str("<tr><th>name</th><th>value</th><th>about</th></tr>\n")?;
    for metric in &view.sheet.metrics {
        metric_row(page, metric)?;
    }
    page.write_str("</tbody></table></div></details>\n")?;
    page.write_str(
        "<p class=\"quiet\"><a href=\"/metrics\">/metrics</a> for Prometheus, \
         <a href=\"/status.json\">/status.json</a></p>\n",
    )?;
    write!(
        page,
        "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Uptime, and how old the description is if that is unusual.
fn age(view: &StatusView) -> String {
    let uptime = format!("up {}", Unit::Seconds.show(seconds(view.uptime)));
    match view.age {
        Some(age) if age < LATE + INTERVAL => uptime,
        None if view.uptime < LATE => uptime,
        age => {
            let age = Unit::Seconds.show(seconds(age.unwrap_or(view.uptime)));
            format!(
                "{uptime} · <span class=\"late\">the machine has not had a turn for {age}</span>"
            )
        }
    }
}

/// A unit of numbers for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Bytes,
    Seconds,
    Ratio,
    PerSecond,
    BytesPerSecond,
}

impl Unit {
    /// The unit of a line, from the name of its metric.
    fn of(line: &StatusLine) -> Unit {
        let metric = line.metric.strip_suffix("_total");
        let unit = Unit::of_metric(metric.unwrap_or(line.metric));
        match (line.part, unit) {
            (LinePart::Level, unit) => unit,
            (LinePart::Quantile(_), _) => Unit::Seconds,
            (LinePart::Share, _) => Unit::Ratio,
            (LinePart::Rate, Unit::Bytes) => Unit::BytesPerSecond,
            // Seconds per second.
            (LinePart::Rate, Unit::Seconds) if metric.is_some() => Unit::Ratio,
            (LinePart::Rate, _) => Unit::PerSecond,
        }
    }

    fn of_metric(name: &str) -> Unit {
        match name.trim_end_matches("_total").rsplit('_').next() {
            Some("bytes") => Unit::Bytes,
            Some("seconds") => Unit::Seconds,
            Some("ratio") => Unit::Ratio,
            _ => Unit::Count,
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Unit::Count => count(value),
            Unit::Bytes => bytes(value),
            Unit::Seconds => time(value),
            Unit::Ratio => format!("{} %", three_digits(value * 100.0)),
            Unit::PerSecond => format!("{}/s", count(value)),
            Unit::BytesPerSecond => format!("{}/s", bytes(value)),
        }
    }
}

fn count(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        thousands(value.round() as u64)
    } else {
        three_digits(value)
    }
}

fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (value.max(1.0).log2() / 10.0) as usize;
    let power = power.min(units.len() - 1);
    let value = value / 1024_f64.powi(power as i32);
    format!("{} {}", three_digits(value), units[power])
}

fn time(value: f64) -> String {
    match value {
        0.0 => "0 s".to_owned(),
        it if it < 0.001 => format!("{} µs", three_digits(it * 1e6)),
        it if it < 1.0 => format!("{} ms", three_digits(it * 1e3)),
        it if it < 120.0 => format!("{} s", three_digits(it)),
        it if it < 7_200.0 => format!("{} min", three_digits(it / 60.0)),
        it if it < 172_800.0 => format!("{} h", three_digits(it / 3_600.0)),
        it => format!("{} d", three_digits(it / 86_400.0)),
    }
}

/// A number with about three digits: `1.25`, `12.5`, `125`, without zeros at the end.
fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        it if it >= 99.95 => 0,
        it if it >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The upper end of an axis: 1, 2 or 5 times a power of ten, or of 1,024 bytes; at least the value.
fn upper_end(value: f64, unit: Unit) -> f64 {
    if value <= 0.0 {
        return match unit {
            Unit::Seconds => 0.001,
            _ => 1.0,
        };
    }
    let is_bytes = matches!(unit, Unit::Bytes | Unit::BytesPerSecond);
    let unit = if is_bytes && value >= 1.0 {
        1024_f64.powi((value.log2() / 10.0) as i32)
    } else {
        1.0
    };
    let power = 10_f64.powf((value / unit).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power * unit >= value);
    step.unwrap_or(10.0) * power * unit
}

/// Draws a chart; `first` is the number of its first line over all charts.
fn draw(page: &mut String, view: &StatusView, chart: &StatusChart, first: usize) -> fmt::Result {
    let unit = chart.lines.first().map_or(Unit::Count, Unit::of);
    let values = (first..first + chart.lines.len()).flat_map(|line| view.history.line(line));
    let highest = values.filter(|it| it.is_finite()).fold(0.0, f64::max);
    let top = upper_end(highest, unit);
    let title = escaped(chart.title);
    write!(page, "<figure><figcaption>{title}</figcaption>")?;
    write!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    )?;
    let bottom = HEIGHT - BELOW;
    for y in [ABOVE, f64::midpoint(ABOVE, bottom), bottom] {
        write!(page, "<path class=\"grid\" d=\"M0 {y}H{WIDTH}\"/>")?;
    }
    write!(
        page,
        "<text x=\"0\" y=\"{}\">{}</text>",
        ABOVE - 3.0,
        unit.show(top)
    )?;
    let span = span_of(view.history.length());
    let ago = Unit::Seconds.show(seconds(INTERVAL) * span as f64);
    let below = HEIGHT - 3.0;
    write!(page, "<text x=\"0\" y=\"{below}\">{ago} ago</text>")?;
    write!(
        page,
        "<text x=\"{WIDTH}\" y=\"{below}\" text-anchor=\"end\">now</text>"
    )?;
    for (number, _) in chart.lines.iter().enumerate() {
        let path = path_of(view.history.line(first + number), top, span);
        let color = number % COLORS;
        write!(page, "<path class=\"c{color}\" d=\"{path}\"/>")?;
    }
    page.write_str("</svg><ul>")?;
    for (number, line) in chart.lines.iter().enumerate() {
        let last = view.history.line(first + number).last();
        let last = last.filter(|it| it.is_finite());
        let last = last.map_or("–".to_owned(), |last| Unit::of(line).show(last));
        let (color, label) = (number % COLORS, escaped(line.label));
        write!(
            page,
            "<li><svg viewBox=\"0 0 14 8\" aria-hidden=\"true\"><path class=\"c{color}\" d=\"M1 4H13\"/></svg>{label} <b>{last}</b></li>"
        )?;
    }
    page.write_str("</ul></figure>\n")
}

/// Number of values for which a chart has room: all that there are, at least those of a minute.
fn span_of(length: usize) -> usize {
    length.clamp(VALUES_MAX / 5, VALUES_MAX)
}

/// The line through at most `span` values, the last one at the right edge; missing values interrupt it.
fn path_of(values: impl Iterator<Item = f64>, top: f64, span: usize) -> String {
    let values: Vec<f64> = values.collect();
    debug_assert!(values.len() <= span, "a chart without room for its values");
    let step = WIDTH / (span - 1) as f64;
    let missing = span - values.len();
    let bottom = HEIGHT - BELOW;
    let mut path = String::new();
    let mut is_drawing = false;
    for (place, value) in values.iter().enumerate() {
        if !value.is_finite() {
            is_drawing = false;
            continue;
        }
        let x = (missing + place) as f64 * step;
        let y = bottom - value / top * (bottom - ABOVE);
        // A first point alone is drawn as a dot, by its round end.
        let command = if is_drawing { 'L' } else { 'M' };
        let _ = write!(path, "{command}{x:.1} {y:.1}"); // to a string: cannot fail
        if !is_drawing {
            path.push_str("h0");
        }
        is_drawing = true;
    }
    path
}

fn table(page: &mut String, table: &StatusTable) -> fmt::Result {
    let title = escaped(table.title);
    write!(page, "<h2>{title}</h2><div class=\"scroll\"><table><tr>")?;
    for column in table.columns {
        write!(page, "<th>{}</th>", escaped(column))?;
    }
    page.write_str("</tr>\n")?;
    for row in &table.rows {
        page.write_str("<tr>")?;
        for cell in row {
            write!(page, "<td>{}</td>", escaped(cell))?;
        }
        page.write_str("</tr>\n")?;
    }
    page.write_str("</table></div>\n")
}

fn metric_row(page: &mut String, metric: &StatusMetric) -> fmt::Result {
    let mut name = full_name(metric.name);
    for (label, value) in &metric.labels {
        write!(name, " {label}={value}")?;
    }
    let unit = Unit::of_metric(metric.name);
    let value = match &metric.value {
        MetricValue::Gauge(value) | MetricValue::Counter(value) => unit.show(*value),
        MetricValue::Durations(durations) if durations.count() == 0 => "none".to_owned(),
        MetricValue::Durations(durations) => {
            let shown = |share| time(seconds(durations.quantile(share)));
            format!(
                "{}: median {}, 99 % {}, longest {}",
                thousands(durations.count()),
                shown(0.5),
                shown(0.99),
                time(seconds(durations.max()))
            )
        }
    };
    let (name, about) = (escaped(&name), escaped(metric.about));
    writeln!(
        page,
        "<tr><td><code>{name}</code></td><td>{value}</td><td>{about}</td></tr>"
    )
}

/// A text as text of the page: no markup, no control characters, none that change the direction of the text around it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                escaped.push('\u{fffd}');
            }
            it if it.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::tests::view_of;
    use super::*;
    use seatrial_machine::StatusSheet;

    #[test]
    fn numbers_are_for_people() {
        for (unit, value, expected) in [
            (Unit::Count, 0.0, "0"),
            (Unit::Count, 0.25, "0.25"),
            (Unit::Count, 1_234_567.4, "1,234,567"),
            (Unit::Bytes, 0.0, "0 B"),
            (Unit::Bytes, 1_023.0, "1023 B"),
            (Unit::Bytes, 1_536.0, "1.5 KiB"),
            (Unit::Bytes, f64::from(1 << 30) * 12.5, "12.5 GiB"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Seconds, 0.000_012_5, "12.5 µs"),
            (Unit::Seconds, 0.125, "125 ms"),
            (Unit::Seconds, 7_199.0, "120 min"),
            (Unit::Ratio, 0.125, "12.5 %"),
            (Unit::PerSecond, 20_000.0, "20,000/s"),
            (Unit::BytesPerSecond, 2048.0, "2 KiB/s"),
        ] {
            assert_eq!(unit.show(value), expected);
        }
    }

    #[test]
    fn axes_end_at_round_numbers_at_or_above_the_values() {
        for (value, unit, expected) in [
            (0.0, Unit::Count, 1.0),
            (1.0, Unit::Count, 1.0),
            (1.1, Unit::Count, 2.0),
            (4_200.0, Unit::PerSecond, 5_000.0),
            (0.003, Unit::Seconds, 0.005),
            (1_100.0, Unit::Bytes, 2_048.0),
            (900.0, Unit::Bytes, 1_000.0),
        ] {
            let end = upper_end(value, unit);
            assert!((end - expected).abs() < 1e-9, "{value} {end}");
        }
    }

    #[test]
    fn lines_are_interrupted_where_values_are_missing() {
        let nan = f64::NAN;
        let path = path_of([1.0, nan, 0.0, 1.0].into_iter(), 1.0, 301);
        assert_eq!(path, "M356.4 14.0h0M358.8 106.0h0L360.0 14.0");
        assert_eq!(path_of([nan].into_iter(), 1.0, 60), "");
    }

    #[test]
    fn text_of_others_is_no_markup() {
        let mut sheet = StatusSheet::default();
        sheet.fact("leader", "<script>alert('1')</script>\u{202e}\u{7}");
        sheet.table("Members", &["node"], vec![vec!["<b>\"&".to_owned()]]);
        let page = render(&view_of(sheet));
        let text = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\u{fffd}\u{fffd}";
        assert!(page.contains(text), "{page}");
        assert!(page.contains("&lt;b&gt;&quot;&amp;"), "{page}");
        assert_eq!(page.matches("<script>").count(), 1);
    }
}
