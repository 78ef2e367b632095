//! The longest order that works, drawn: one stretch of it, and the figures from which a script draws the others.

use super::drawing_frame::DrawingFrame;
use super::order_picture::{LinearizationPicture, OperationBar, OrderPoint};
use crate::escape::{Escaped, json_for_script};
use crate::wording::{count, shortened};
use serde_json::json;
use std::fmt::{self, Write};

/// Width of a drawing, and of its column with the names of processes.
const WIDTH: f64 = 1_080.0;
const NAMES_WIDTH: f64 = 92.0;
/// Above the rows: why no order passes the end, and the states.
const STATES_TOP: f64 = 20.0;
const STATES_HEIGHT: f64 = 20.0;
const ROWS_TOP: f64 = 48.0;
/// Below the rows: times.
const TIMES_HEIGHT: f64 = 20.0;
/// Height of a row; where there are more rows than [`ROWS_HIGH`], the lower one.
const ROW_HEIGHT: f64 = 25.0;
const ROW_HEIGHT_LOW: f64 = 20.0;
const ROWS_HIGH: usize = 14;
/// Width of a character of a label, a state, and a caption.
const LETTER_WIDTH: f64 = 6.4;
const CAPTION_LETTER_WIDTH: f64 = 6.2;
/// An open end of a bar fades out over this width.
const FADE_WIDTH: f64 = 24.0;

/// A stretch of a picture, scaled to the width of a drawing.
struct DrawnWindow<'a> {
    picture: &'a LinearizationPicture,
    begin: f64,
    end: f64,
    /// The rows that are drawn, from the top.
    rows: Vec<usize>,
    row_height: f64,
}

/// Draws the stretch before the end. On a page it is followed by the figures of the whole, with which a script shows any stretch.
pub(super) fn draw(
    picture: &LinearizationPicture,
    frame: DrawingFrame,
    out: &mut String,
) -> fmt::Result {
    let (begin, end) = picture.window(WIDTH - NAMES_WIDTH);
    let rows = picture.rows_within((begin, end));
    let window = DrawnWindow {
        picture,
        begin,
        end,
        row_height: if rows.len() > ROWS_HIGH {
            ROW_HEIGHT_LOW
        } else {
            ROW_HEIGHT
        },
        rows,
    };
    if frame == DrawingFrame::Page {
        out.write_str("<figure class=\"linearization-view\">")?;
    }
    window.draw(frame, out)?;
    if frame == DrawingFrame::Page {
        let figures = json_for_script(&figures(picture, (begin, end)));
        writeln!(
            out,
            "<figcaption class=\"note\">{}</figcaption><script type=\"application/json\">{figures}</script></figure>",
            Escaped(caption(picture)),
        )?;
    }
    Ok(())
}

/// What the marks mean.
fn caption(picture: &LinearizationPicture) -> String {
    let mut text = String::from(
        "In the order of events, not to scale. Ticks, joined by a line: the longest order that works, with the state after each \
         at the top. Red: the operation that cannot be placed. Strong outline: operations that suffice for the contradiction. \
         Open end: outcome unknown.",
    );
    if picture.left_out > 0 {
        let left_out = count(picture.left_out, "earlier operation");
        let _ = write!(text, " Left out: {left_out}.");
    }
    text
}

/// The whole picture for a script; `docs/formats` does not have it, since both are in one page.
fn figures(picture: &LinearizationPicture, window: (f64, f64)) -> serde_json::Value {
    let place = |x: f64| x.round() as i64;
    let bars = picture.bars.iter().map(|bar| {
        let marks = u8::from(bar.is_essential) + 2 * u8::from(bar.is_unplaced);
        json!([
            bar.row,
            place(bar.begin),
            place(bar.end),
            bar.class,
            marks,
            bar.label,
            bar.times
        ])
    });
    let points = picture.points.iter();
    let points = points.map(|point| json!([point.bar, place(point.x), point.state]));
    let times = picture
        .times
        .iter()
        .map(|(x, time)| json!([place(*x), time]));
    json!({
        "rows": picture.rows,
        "bars": bars.collect::<Vec<_>>(),
        "points": points.collect::<Vec<_>>(),
        "times": times.collect::<Vec<_>>(),
        "before": picture.before,
        "end": place(picture.end),
        "width": place(picture.width),
        "reason": picture.reason,
        "window": [place(window.0), place(window.1)],
    })
}

impl DrawnWindow<'_> {
    fn draw(&self, frame: DrawingFrame, out: &mut String) -> fmt::Result {
        let rows_bottom = ROWS_TOP + self.row_height * self.rows.len() as f64;
        let height = rows_bottom + TIMES_HEIGHT;
        let label = format!(
            "{} by process, and the longest order of them that works",
            count(self.picture.bars.len() as u64, "operation")
        );
        frame.open("linearization", (WIDTH, height), &label, out)?;
        self.names(out)?;
        self.times(rows_bottom, out)?;
        for bar in &self.picture.bars {
            self.bar(bar, out)?;
        }
        self.order(out)?;
        // Labels cover ticks, not the other way round.
        for bar in &self.picture.bars {
            self.label(bar, out)?;
        }
        self.states(out)?;
        self.contradiction(rows_bottom, out)?;
        frame.close(out)
    }

    /// From the picture to the drawing.
    fn x(&self, x: f64) -> f64 {
        NAMES_WIDTH + (x - self.begin) / (self.end - self.begin) * (WIDTH - NAMES_WIDTH)
    }

    fn is_within(&self, x: f64) -> bool {
        self.begin <= x && x <= self.end
    }

    /// The top of a row, if it is drawn.
    fn y(&self, row: usize) -> Option<f64> {
        let place = self.rows.binary_search(&row).ok()?;
        Some(ROWS_TOP + self.row_height * place as f64)
    }

    fn names(&self, out: &mut String) -> fmt::Result {
        for &row in &self.rows {
            let Some(y) = self.y(row) else { continue };
            let line = y + self.row_height;
            writeln!(
                out,
                "<text x=\"0\" y=\"{:.1}\" class=\"process\">process {}</text>\
                 <line x1=\"0\" x2=\"{WIDTH}\" y1=\"{line}\" y2=\"{line}\"/>",
                y + self.row_height - 8.0,
                Escaped(&self.picture.rows[row]),
            )?;
        }
        Ok(())
    }

    fn times(&self, y: f64, out: &mut String) -> fmt::Result {
        for (x, time) in &self.picture.times {
            if self.is_within(*x) && self.x(*x) + 60.0 <= WIDTH {
                let (x, bottom) = (self.x(*x), y + 4.0);
                writeln!(
                    out,
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{bottom}\" class=\"time\"/>\
                     <text x=\"{x:.1}\" y=\"{}\" class=\"time\">{}</text>",
                    y + 15.0,
                    Escaped(time),
                )?;
            }
        }
        Ok(())
    }

    /// The top, left and right edge of a bar; `None` if it is outside of the window.
    fn edges(&self, bar: &OperationBar) -> Option<(f64, f64, f64)> {
        let top = self.y(bar.row)? + 3.0;
        if bar.begin > self.end || bar.end < self.begin {
            return None;
        }
        let begin = self.x(bar.begin).max(NAMES_WIDTH - 4.0);
        let end = if bar.class == "info" {
            let least = begin + 8.0;
            (self.x(self.picture.end) + 8.0).clamp(least, (WIDTH - FADE_WIDTH).max(least))
        } else {
            self.x(bar.end).min(WIDTH + 4.0)
        };
        Some((top, begin, end.max(begin + 3.0)))
    }

    fn bar(&self, bar: &OperationBar, out: &mut String) -> fmt::Result {
        let Some((y, begin, end)) = self.edges(bar) else {
            return Ok(());
        };
        let (width, height) = (end - begin, self.row_height - 6.0);
        let unplaced = if bar.is_unplaced { " unplaced" } else { "" };
        let essential = if bar.is_essential { " essential" } else { "" };
        write!(
            out,
            "<g class=\"bar {}{unplaced}{essential}\"><title>{}</title><rect x=\"{begin:.1}\" y=\"{y:.1}\" \
             width=\"{width:.1}\" height=\"{height}\" rx=\"3\"/>",
            bar.class,
            Escaped(format_args!("{}, {}: {}", bar.times, bar.class, bar.label)),
        )?;
        if bar.class == "info" {
            let slice = FADE_WIDTH / 3.0;
            for number in 0..3 {
                write!(
                    out,
                    "<rect class=\"fade{number}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{slice}\" height=\"{height}\"/>",
                    end + slice * f64::from(number),
                )?;
            }
        }
        out.write_str("</g>\n")
    }

    fn label(&self, bar: &OperationBar, out: &mut String) -> fmt::Result {
        let Some((y, begin, end)) = self.edges(bar) else {
            return Ok(());
        };
        let room = ((end - begin - 8.0) / LETTER_WIDTH).max(0.0) as usize;
        if room < 3 {
            return Ok(());
        }
        writeln!(
            out,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            begin + 5.0,
            y + self.row_height - 11.0,
            Escaped(shortened(&bar.label, room)),
        )
    }

    /// The ticks of the order within the window, and the line that joins them.
    fn order(&self, out: &mut String) -> fmt::Result {
        let (mut line, mut ticks) = (String::new(), String::new());
        for point in &self.picture.points {
            let Some(y) = self.y(self.picture.bars[point.bar].row) else {
                continue;
            };
            if !self.is_within(point.x) {
                continue;
            }
            let x = self.x(point.x);
            let (begin, middle) = (
                if line.is_empty() { 'M' } else { 'L' },
                y + self.row_height / 2.0,
            );
            write!(line, "{begin}{x:.1} {middle:.1}")?;
            write!(ticks, "M{x:.1} {:.1}v{}", y + 1.0, self.row_height - 2.0)?;
        }
        if line.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "<path class=\"order\" d=\"{line}\"/><path class=\"tick\" d=\"{ticks}\"/>"
        )
    }

    /// The states at the top, each from its point to the next.
    fn states(&self, out: &mut String) -> fmt::Result {
        let points = &self.picture.points;
        let first = points.first().map_or(self.picture.end, |point| point.x);
        self.state((0.0, first), None, out)?;
        for (number, point) in points.iter().enumerate() {
            let next = points
                .get(number + 1)
                .map_or(self.picture.end, |next| next.x);
            self.state((point.x, next.max(point.x)), Some(point), out)?;
        }
        Ok(())
    }

    /// A state in a stretch, after a point or before the first one.
    fn state(
        &self,
        (begin, end): (f64, f64),
        point: Option<&OrderPoint>,
        out: &mut String,
    ) -> fmt::Result {
        if begin > self.end || end < self.begin {
            return Ok(());
        }
        let left = self.x(begin).max(NAMES_WIDTH - 4.0);
        let width = (self.x(end).min(WIDTH) - left).max(2.0);
        let room = ((width - 5.0) / LETTER_WIDTH).max(0.0) as usize;
        let state = point.map_or(&self.picture.before, |point| &point.state);
        let shown = if room >= state.chars().count().min(2) {
            both_ends(state, room)
        } else {
            String::new()
        };
        let title = match point {
            Some(point) => format!("after {}: {state}", self.picture.bars[point.bar].label),
            None => format!("before: {state}"),
        };
        writeln!(
            out,
            "<g class=\"state\"><title>{}</title><rect x=\"{left:.1}\" y=\"{STATES_TOP}\" width=\"{width:.1}\" \
             height=\"{STATES_HEIGHT}\"/><text x=\"{:.1}\" y=\"{}\">{}</text></g>",
            Escaped(title),
            left + 4.0,
            STATES_TOP + 14.0,
            Escaped(shown),
        )
    }

    /// The line where the operation that cannot be placed completes, and why.
    fn contradiction(&self, bottom: f64, out: &mut String) -> fmt::Result {
        if !self.is_within(self.picture.end) {
            return Ok(());
        }
        let x = self.x(self.picture.end);
        let reason = &self.picture.reason;
        let width = reason.chars().count() as f64 * CAPTION_LETTER_WIDTH;
        // To the left of the line, unless there is more room at its right.
        let (anchor, place) = if width < x || x > WIDTH / 2.0 {
            ("end", x)
        } else {
            ("start", x)
        };
        let room = if anchor == "end" { x } else { WIDTH - x } / CAPTION_LETTER_WIDTH;
        writeln!(
            out,
            "<path class=\"break\" d=\"M{x:.1} {}V{bottom}\"/>\
             <text x=\"{place:.1}\" y=\"13\" class=\"reason {anchor}\"><title>{}</title>✗ {}</text>",
            STATES_TOP - 4.0,
            Escaped(reason),
            Escaped(shortened(reason, (room as usize).saturating_sub(2))),
        )
    }
}

/// At most `room` characters of a text: where it is longer, its beginning and more of its end, at which collections grow.
fn both_ends(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let first = room / 3;
    let last = room.saturating_sub(first + 1);
    let begin = text.chars().take(first);
    let end = text.chars().skip(length - last);
    begin.chain(['…']).chain(end).collect()
}
