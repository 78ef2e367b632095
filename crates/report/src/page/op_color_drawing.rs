//! The picture of a checker `op-color-plot`: every operation as a point in time.

use crate::escape::Escaped;
use crate::report::Report;
use crate::wording::{shortened, thousands};
use seatrial_checker::{Figures, OpColorFigures};
use std::fmt::{self, Write};

/// Width and height of the picture, and of its margins.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 34.0;
const BELOW: f64 = 26.0;
/// Faults that are shaded; the first ones.
const FAULTS_MAX: usize = 200;
/// Jepsen's colours of outcomes.
const OUTCOMES: [(&str, &str); 3] = [("ok", "#81bffc"), ("info", "#ffa400"), ("fail", "#ff1e90")];
/// Colours of other groups, in their order.
const COLORS: [&str; 12] = [
    "#2f6fd6", "#d07c00", "#c2277c", "#2c8a4b", "#7a4fc2", "#0e8a9a", "#a65628", "#6b7280",
    "#e06666", "#5b9b00", "#b59a00", "#444444",
];

/// The name of the file with the picture, as Jepsen's.
pub const OP_COLOR_FILE: &str = "op-color-plot.svg";

/// The picture as a file of its own; `None` if no checker `op-color-plot` ran, or no operation has a time.
pub fn op_color_svg(report: &Report<'_>) -> Option<String> {
    let figures = figures_of(report)?;
    let mut file = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ = OpColorDrawing::new(figures).draw(report, &mut file);
    file.push('\n');
    Some(file)
}

/// The picture on the page; nothing without such a checker.
pub(super) fn section(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let Some(figures) = figures_of(report) else {
        return Ok(());
    };
    let how = match figures.points {
        Some(_) => "Each point is an operation at the time of its invocation",
        None => {
            "Each column is a window of time, its parts are operations by the time of their invocation"
        }
    };
    write!(
        page,
        "<section id=\"op-color-plot\"><h2>Operations by {}</h2>\n<figure class=\"chart\"><figcaption class=\"note\">{how}; the \
         height is the rate. Shaded: faults.</figcaption>\n",
        Escaped(figures.group)
    )?;
    OpColorDrawing::new(figures).draw(report, page)?;
    page.write_str("\n</figure></section>\n")
}

fn figures_of<'a>(report: &Report<'a>) -> Option<&'a OpColorFigures> {
    let mut all = report.verdicts.iter();
    all.find_map(|verdict| match &verdict.details.figures {
        Figures::OpColors(figures) if !figures.windows.is_empty() => Some(&**figures),
        _ => None,
    })
}

/// The scales of the picture: nanoseconds to the right, operations per window upwards.
struct OpColorDrawing<'a> {
    figures: &'a OpColorFigures,
    /// Nanoseconds that are drawn.
    length: f64,
    /// Operations of the fullest window.
    most: f64,
}

impl<'a> OpColorDrawing<'a> {
    fn new(figures: &'a OpColorFigures) -> OpColorDrawing<'a> {
        let sums = figures.windows.iter().map(|one| one.iter().sum::<u64>());
        OpColorDrawing {
            figures,
            length: (figures.window as f64) * figures.windows.len() as f64,
            most: sums.max().unwrap_or(0).max(1) as f64,
        }
    }

    fn x(&self, time: i64) -> f64 {
        let share = time.saturating_sub(self.figures.begin) as f64 / self.length;
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, operations: f64) -> f64 {
        HEIGHT - BELOW - operations / self.most * (HEIGHT - BELOW - TOP)
    }

    fn color(&self, group: usize) -> &'static str {
        let name = &self.figures.groups[group];
        let outcome = OUTCOMES.iter().find(|(outcome, _)| outcome == name);
        outcome.map_or(COLORS[group % COLORS.len()], |(_, color)| color)
    }

    fn draw(&self, report: &Report<'_>, out: &mut String) -> fmt::Result {
        write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\" role=\"img\" aria-label=\"Operations by {}\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             fill=\"#ffffff\"/>",
            Escaped(self.figures.group)
        )?;
        self.draw_faults(report, out)?;
        self.draw_axes(out)?;
        match &self.figures.points {
            Some(points) => self.draw_points(points, out)?,
            None => self.draw_windows(out)?,
        }
        self.draw_keys(out)?;
        out.write_str("</svg>")
    }

    fn draw_faults(&self, report: &Report<'_>, out: &mut String) -> fmt::Result {
        let effective = report.faults.iter().filter(|fault| fault.error.is_none());
        for fault in effective.take(FAULTS_MAX) {
            let end = self.figures.begin.saturating_add(self.length as i64);
            let (x, until) = (self.x(fault.begin), self.x(fault.end.unwrap_or(end)));
            write!(
                out,
                "\n<rect x=\"{x:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#808080\" \
                 fill-opacity=\".15\"><title>{} {}</title></rect>",
                (until - x).max(1.0),
                HEIGHT - BELOW - TOP,
                Escaped(fault.name),
                Escaped(shortened(&fault.target, 80))
            )?;
        }
        Ok(())
    }

    fn draw_axes(&self, out: &mut String) -> fmt::Result {
        let per_second = self.most / (self.figures.window as f64 / 1e9);
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let (y, rate) = (self.y(share * self.most), (share * per_second).round());
            write!(
                out,
                "\n<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/><text x=\"{:.1}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{}/s</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                thousands(rate as u64)
            )?;
        }
        for part in 0..=6 {
            let share = f64::from(part) / 6.0;
            let seconds = (self.figures.begin as f64 + share * self.length) / 1e9;
            let x = LEFT + share * (WIDTH - LEFT - RIGHT);
            let anchor = if part == 6 { "end" } else { "middle" };
            write!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{seconds:.2} s</text>",
                HEIGHT - 8.0
            )?;
        }
        Ok(())
    }

    /// One path for each group: a point is a line without length and with a round end. Points of a window are piled up group by
    /// group.
    fn draw_points(&self, points: &[(i64, usize)], out: &mut String) -> fmt::Result {
        let mut sorted = points.to_vec();
        let window = |time: i64| time.saturating_sub(self.figures.begin) / self.figures.window;
        sorted.sort_by_key(|&(time, group)| (window(time), group, time));
        let mut paths = vec![String::new(); self.figures.groups.len()];
        let (mut last, mut height) = (None, 0.0);
        for (time, group) in sorted {
            if last != Some(window(time)) {
                (last, height) = (Some(window(time)), 0.0);
            }
            write!(paths[group], "M{:.1} {:.1}h0", self.x(time), self.y(height))?;
            height += 1.0;
        }
        // Few points are larger.
        let size = if points.len() < 2_000 { 4.0 } else { 2.2 };
        for (group, path) in paths
            .iter()
            .enumerate()
            .filter(|(_, path)| !path.is_empty())
        {
            let color = self.color(group);
            write!(
                out,
                "\n<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{size}\" stroke-linecap=\"round\"/>"
            )?;
        }
        Ok(())
    }

    /// A column for each window, the groups on top of one another.
    fn draw_windows(&self, out: &mut String) -> fmt::Result {
        for (place, counts) in self.figures.windows.iter().enumerate() {
            let begin = self.figures.window.saturating_mul(place as i64);
            let begin = self.figures.begin.saturating_add(begin);
            let (x, until) = (
                self.x(begin),
                self.x(begin.saturating_add(self.figures.window)),
            );
            let mut height = 0.0;
            for (group, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let top = self.y(height + count as f64);
                write!(
                    out,
                    "\n<rect x=\"{x:.2}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"/>",
                    until - x,
                    self.y(height) - top,
                    self.color(group)
                )?;
                height += count as f64;
            }
        }
        Ok(())
    }

    fn draw_keys(&self, out: &mut String) -> fmt::Result {
        let mut x = LEFT;
        for (group, name) in self.figures.groups.iter().enumerate() {
            let counts = self.figures.windows.iter().map(|window| window[group]);
            let all: u64 = counts.sum();
            let text = format!("{} {}", shortened(name, 16), thousands(all));
            write!(
                out,
                "\n<rect x=\"{x:.1}\" y=\"10\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.1}\" y=\"19\">{}</text>",
                self.color(group),
                x + 14.0,
                Escaped(&text)
            )?;
            x += 24.0 + 7.0 * text.chars().count() as f64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_checker::{Checker as _, OpColorPlot, Overview, Verdict};
    use seatrial_history::{History, Op, OpType, Process, Value};
    use serde_json::json;

    fn history(count: i64) -> History {
        let ops = (0..count).flat_map(|number| {
            let op = Op::invoke(Process::Client(0), "read", Value::Nil);
            let kind = [OpType::Ok, OpType::Ok, OpType::Fail, OpType::Info][number as usize % 4];
            let done = op.complete(kind, Value::Nil);
            let time = number * 1_000_000;
            [Op { time, ..op }, Op { time, ..done }]
        });
        History::from_unindexed(ops.collect())
    }

    fn picture(count: i64) -> String {
        let history = history(count);
        let verdicts = [OpColorPlot::default().check(&history)];
        let (attributes, overview) = (json!({}), Overview::of(&history).unwrap());
        let report = Report::new(&attributes, &overview, &verdicts);
        let mut page = String::new();
        section(&report, &mut page).unwrap();
        let file = op_color_svg(&report).unwrap();
        let drawn = file.split_once('\n').unwrap().1.trim_end();
        assert!(page.contains(drawn), "page and file show the same picture");
        let numbers = file.replace("info", "");
        assert!(
            !numbers.contains("NaN") && !numbers.contains("inf"),
            "{file}"
        );
        file
    }

    #[test]
    fn every_operation_is_a_point_in_the_colour_of_its_outcome() {
        let file = picture(400);
        assert_eq!(file.matches("h0").count(), 400);
        let of = |color: &str| {
            let mut paths = file.split("<path ").skip(1);
            let path = paths.find(|path| path.contains(color)).unwrap();
            path.matches("h0").count()
        };
        assert_eq!(
            [of("#81bffc"), of("#ff1e90"), of("#ffa400")],
            [200, 100, 100]
        );
        assert!(file.contains(">ok 200</text>"), "{file}");
    }

    #[test]
    fn a_long_history_is_drawn_in_windows() {
        let file = picture(20_000);
        assert_eq!(file.matches("<path").count(), 0);
        assert!(file.matches("<rect").count() > 256 * 3);
        assert!(file.len() < 300_000, "{}", file.len());
    }

    #[test]
    fn without_the_checker_there_is_no_picture() {
        let (attributes, overview) = (json!({}), Overview::default());
        let verdicts = [
            Verdict::valid("stats"),
            OpColorPlot::default().check(&History::default()),
        ];
        let report = Report::new(&attributes, &overview, &verdicts);
        let mut page = String::new();
        section(&report, &mut page).unwrap();
        assert_eq!((page.as_str(), op_color_svg(&report)), ("", None));
    }
}
