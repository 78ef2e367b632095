//! Figures of checkers over time, as line charts without a script.

use crate::escape::Escaped;
use crate::report::Report;
use crate::wording::shortened;
use seatrial_checker::{AvailabilityFigures, Figures, Verdict};
use std::fmt::{self, Write};

/// Width and height of a chart, and of what its labels take at the left and below.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 70.0;
const BELOW: f64 = 26.0;
/// Lines in a chart; further ones are only counted.
const LINES_MAX: usize = 12;
/// Colours of lines, by their names in the palette; then again with another dash.
const COLORS: [&str; 6] = ["ok", "fail", "info", "partition", "pause", "other"];
const DASHES: [&str; 2] = ["none", "6 3"];

/// A line of a chart: its name, and points in seconds and in the chart's unit.
struct ChartLine {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A chart of some lines.
struct LineChart {
    id: &'static str,
    title: &'static str,
    note: String,
    unit: &'static str,
    lines: Vec<ChartLine>,
    /// The vertical range that is drawn at least.
    range: (f64, f64),
}

/// The charts of all verdicts that have figures over time; nothing without.
pub(super) fn section(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let charts = report.verdicts.iter().filter_map(chart_of);
    let charts: Vec<LineChart> = charts.collect();
    if charts.is_empty() {
        return Ok(());
    }
    page.write_str("<section id=\"over-time\"><h2>Over time</h2>\n")?;
    for chart in &charts {
        chart.draw(page)?;
    }
    page.write_str("</section>\n")
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The chart of a verdict's figures.
fn chart_of(verdict: &Verdict) -> Option<LineChart> {
    match &verdict.details.figures {
        Figures::ClockOffsets(figures) => {
            let lines = figures.clock_offsets.iter();
            let lines = lines.map(|(node, points)| ChartLine {
                name: node.clone(),
                points: points
                    .iter()
                    .map(|&(time, offset)| (seconds(time), offset))
                    .collect(),
            });
            let lines: Vec<ChartLine> = lines.collect();
            (!lines.is_empty()).then(|| LineChart {
                id: "clock-offsets",
                title: "Clock offsets",
                note: "Seconds by which each node's clock was ahead.".to_owned(),
                unit: " s",
                lines,
                range: (0.0, 0.0),
            })
        }
        Figures::Availability(figures) => availability(figures),
        Figures::DataType(figures) => {
            let points = figures.others.get("unseen_over_time")?.as_array()?;
            let points = points.iter().filter_map(|point| {
                let time = seconds(point["time"].as_i64()?);
                Some((time, point["unseen"].as_i64()? as f64))
            });
            let points: Vec<(f64, f64)> = points.collect();
            (!points.is_empty()).then(|| LineChart {
                id: "unseen",
                title: "Unseen messages",
                note: "Messages that were acknowledged and not polled so far.".to_owned(),
                unit: "",
                lines: vec![ChartLine {
                    name: "unseen".to_owned(),
                    points,
                }],
                range: (0.0, 1.0),
            })
        }
        _ => None,
    }
}

fn availability(figures: &AvailabilityFigures) -> Option<LineChart> {
    let points = |windows: &[(u64, u64)]| {
        let windows = windows.iter().enumerate();
        let windows = windows.filter(|(_, (count, _))| *count > 0);
        let points = windows.map(|(place, &(count, ok))| {
            let middle = (place as f64 + 0.5) * seconds(figures.window);
            (seconds(figures.begin) + middle, ok as f64 / count as f64)
        });
        points.collect::<Vec<_>>()
    };
    let mut lines = vec![ChartLine {
        name: "all".to_owned(),
        points: points(&figures.all.windows),
    }];
    if figures.by_function.len() > 1 {
        lines.extend(figures.by_function.iter().map(|(f, one)| ChartLine {
            name: (*f).to_owned(),
            points: points(&one.windows),
        }));
    }
    let longest = figures.all.longest_unavailable?;
    let (begin, end) = (seconds(longest.begin), seconds(longest.end));
    Some(LineChart {
        id: "availability",
        title: "Availability",
        note: format!(
            "Share of operations that succeeded. The longest time without success: {:.3} s, from {begin:.3} s on.",
            end - begin
        ),
        unit: "",
        lines,
        range: (0.0, 1.0),
    })
}

/// The least step of 1, 2 or 5 times a power of ten that divides a range into few parts.
fn step(range: f64, parts: f64) -> f64 {
    let least = (range / parts).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    let mut steps = factors.map(|factor| factor * power);
    steps.find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// The multiples of a step in a range.
fn ticks((low, high): (f64, f64), parts: f64) -> Vec<f64> {
    let step = step(high - low, parts);
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).clamp(0.0, 2.0 * parts) as u32;
    (0..=count)
        .map(|number| (first + f64::from(number)) * step)
        .collect()
}

/// A number with the digits that its step needs.
fn label(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    // No minus before a zero.
    format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
}

impl LineChart {
    /// The least range with all these values; never empty.
    fn bounds(&self, of: fn(&(f64, f64)) -> f64, range: (f64, f64)) -> (f64, f64) {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let (low, high) = points.map(of).fold(range, |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if high - low > 1e-9 {
            (low, high)
        } else {
            (low - 0.5, high + 0.5)
        }
    }

    fn draw(&self, page: &mut String) -> fmt::Result {
        let all = self.lines.iter().flat_map(|line| &line.points);
        let first = all.map(|point| point.0).fold(f64::INFINITY, f64::min);
        let x_range = self.bounds(|point| point.0, (first, first));
        let y_range = self.bounds(|point| point.1, self.range);
        let x = |value: f64| {
            LEFT + (value - x_range.0) / (x_range.1 - x_range.0) * (WIDTH - LEFT - 10.0)
        };
        let y = |value: f64| {
            let share = (value - y_range.0) / (y_range.1 - y_range.0);
            HEIGHT - BELOW - share * (HEIGHT - BELOW - 8.0)
        };
        writeln!(
            page,
            "<figure class=\"chart\" id=\"{}\"><figcaption><b>{}</b> <span class=\"note\">{}</span></figcaption>\n\
             <svg class=\"lines\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            self.id,
            self.title,
            Escaped(&self.note),
            self.title
        )?;
        for value in ticks(y_range, 4.0) {
            let at = y(value);
            write!(
                page,
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 class=\"side\">{}{}</text>",
                LEFT - 6.0,
                at + 4.0,
                label(value),
                self.unit
            )?;
        }
        for value in ticks(x_range, 8.0) {
            write!(
                page,
                "<text x=\"{:.1}\" y=\"{:.1}\" class=\"foot\">{} s</text>",
                x(value),
                HEIGHT - 8.0,
                label(value)
            )?;
        }
        for (number, line) in self.lines.iter().take(LINES_MAX).enumerate() {
            let style = style(number);
            let points = line.points.iter();
            let points = points.map(|&(time, value)| format!("{:.1},{:.1}", x(time), y(value)));
            let points: Vec<String> = points.collect();
            write!(page, "<polyline {style} points=\"{}\"/>", points.join(" "))?;
            if let [point] = line.points[..] {
                let (x, y) = (x(point.0), y(point.1));
                write!(
                    page,
                    "<circle {style} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
                )?;
            }
        }
        page.write_str("</svg>\n<p class=\"keys\">")?;
        for (number, line) in self.lines.iter().take(LINES_MAX).enumerate() {
            write!(
                page,
                "<span><svg viewBox=\"0 0 26 8\"><line {} x1=\"0\" x2=\"26\" y1=\"4\" y2=\"4\"/></svg> {}</span> ",
                style(number),
                Escaped(shortened(&line.name, 60))
            )?;
        }
        if self.lines.len() > LINES_MAX {
            write!(page, "and {} more", self.lines.len() - LINES_MAX)?;
        }
        page.write_str("</p></figure>\n")
    }
}

/// Colour and dash of a line.
fn style(number: usize) -> String {
    let color = COLORS[number % COLORS.len()];
    let dash = DASHES[number / COLORS.len() % DASHES.len()];
    format!("style=\"stroke:var(--{color});stroke-dasharray:{dash}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_checker::{ClockFigures, Details, Overview};
    use serde_json::json;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 1.0), 4.0), [0.0, 0.5, 1.0]);
        assert_eq!(ticks((-2.0, 2.0), 4.0), [-2.0, -1.0, 0.0, 1.0, 2.0]);
        let found = ticks((3.0, 3.001), 4.0);
        assert!(found.iter().all(|tick| (3.0..=3.001).contains(tick)));
        assert_eq!(label(-0.000_000_1), "0");
        assert_eq!(label(0.1 + 0.2), "0.3");
    }

    #[test]
    fn clocks_are_drawn_with_a_line_for_each_node() {
        let mut verdict = Verdict::valid("clock-plot");
        let points = [
            ("n1", vec![(0, 0.0), (9_000_000_000, -2.5)]),
            ("<n2>", vec![(5, 1.0)]),
        ];
        let points = points.map(|(node, points)| (node.to_owned(), points));
        verdict.details = Details::of(Figures::ClockOffsets(ClockFigures {
            clock_offsets: points.into(),
            worst: Some(-2.5),
        }));
        let (attributes, overview) = (json!({}), Overview::default());
        let verdicts = [verdict];
        let report = Report::new(&attributes, &overview, &verdicts);
        let mut page = String::new();
        section(&report, &mut page).unwrap();
        assert_eq!(page.matches("<polyline").count(), 2);
        assert_eq!(page.matches("<circle").count(), 1);
        assert!(
            page.contains("&lt;n2&gt;") && page.contains(">-2 s<"),
            "{page}"
        );
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        let nothing = [Verdict::valid("stats")];
        let mut page = String::new();
        section(&Report::new(&attributes, &overview, &nothing), &mut page).unwrap();
        assert_eq!(page, "");
    }
}
