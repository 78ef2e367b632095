//! Transactions one below the other, with an arrow for each dependency.

use super::anomaly_section::Participant;
use super::cycle::class;
use super::drawing_frame::DrawingFrame;
use crate::escape::Escaped;
use crate::wording::{count, thousands};
use seatrial_checker::{Component, Dependency};
use seatrial_history::History;
use std::fmt::{self, Write};

/// Rows of a drawing.
const ROWS_MAX: usize = 40;
/// Height of a row, and of the box in it.
const ROW: f64 = 48.0;
const BOX_HEIGHT: f64 = 36.0;
const BOX_WIDTH: f64 = 400.0;
/// Characters of an operation's value in its box.
const VALUE_LENGTH_MAX: usize = 56;
/// Room between a box and the first lane, and between lanes.
const FIRST_LANE: f64 = 30.0;
const LANE: f64 = 11.0;
/// Room for the legend above and the hint below.
const TOP: f64 = 30.0;
const BOTTOM: f64 = 10.0;
/// Radius of an arrow's corners, length and half the width of its head.
const CORNER: f64 = 5.0;
const HEAD: (f64, f64) = (8.0, 3.5);
/// Least distance between two arrows that begin at one box, for their names to be written.
const NAME_HEIGHT: f64 = 9.0;

/// One arrow between rows.
struct Arrow<'a> {
    from: usize,
    to: usize,
    relation: &'a str,
    lane: usize,
}

impl Arrow<'_> {
    fn leads_down(&self) -> bool {
        self.from < self.to
    }

    fn rows(&self) -> (usize, usize) {
        (self.from.min(self.to), self.from.max(self.to))
    }
}

/// Draws a component: time goes down; what leads down is drawn on the right, what leads back up on the left, so every
/// cycle has an arrow on the left.
pub(super) fn draw(
    history: &History,
    component: &Component,
    frame: DrawingFrame,
    out: &mut String,
) -> fmt::Result {
    let shown = component.operations.len().min(ROWS_MAX) as u64;
    let mut title = format!(
        "A component of {}",
        count(component.transactions, "transaction")
    );
    if shown < component.transactions {
        let _ = write!(title, ", {} of them shown", thousands(shown));
    }
    if component.left_out > 0 {
        let left_out = count(component.left_out, "arrow");
        let _ = write!(title, "; {left_out} left out");
    }
    rows(
        history,
        &component.operations,
        &component.dependencies,
        &title,
        frame,
        out,
    )
}

/// Draws operations in this order and the dependencies between them. Nothing for less than two operations.
pub(super) fn rows(
    history: &History,
    operations: &[u64],
    dependencies: &[Dependency],
    title: &str,
    frame: DrawingFrame,
    out: &mut String,
) -> fmt::Result {
    let operations = &operations[..operations.len().min(ROWS_MAX)];
    if operations.len() < 2 {
        return Ok(());
    }
    let row = |index: u64| operations.iter().position(|operation| *operation == index);
    let arrows = dependencies.iter().filter_map(|dependency| {
        let (from, to) = (row(dependency.from)?, row(dependency.to)?);
        let relation = dependency.relation;
        (from != to).then_some(Arrow {
            from,
            to,
            relation,
            lane: 0,
        })
    });
    let mut arrows: Vec<Arrow<'_>> = arrows.collect();
    let left = lanes(&mut arrows, false);
    let right = lanes(&mut arrows, true);
    let margin = |lanes: usize| FIRST_LANE + LANE * lanes as f64 + 8.0;
    let box_x = margin(left);
    let width = box_x + BOX_WIDTH + margin(right);
    let height = TOP + ROW * operations.len() as f64 + BOTTOM;
    frame.open("component", (width, height), title, out)?;
    legend(&arrows, title, box_x, out)?;
    for (number, arrow) in arrows.iter().enumerate() {
        draw_arrow(&arrows, number, arrow, box_x, out)?;
    }
    for (row, index) in operations.iter().enumerate() {
        operation(history, *index, (box_x, top(row)), out)?;
    }
    frame.close(out)
}

/// The upper edge of a row's box.
fn top(row: usize) -> f64 {
    TOP + ROW * row as f64 + (ROW - BOX_HEIGHT) / 2.0
}

/// Gives each arrow of one side a lane, short ones near the boxes, so that no two that pass by one another share one;
/// how many lanes there are.
fn lanes(arrows: &mut [Arrow<'_>], down: bool) -> usize {
    let mut order: Vec<usize> = (0..arrows.len())
        .filter(|&number| arrows[number].leads_down() == down)
        .collect();
    order.sort_by_key(|&number| {
        let (first, last) = arrows[number].rows();
        (last - first, first)
    });
    let mut taken: Vec<Vec<(usize, usize)>> = Vec::new();
    for number in order {
        let (first, last) = arrows[number].rows();
        let is_free =
            |lane: &Vec<(usize, usize)>| lane.iter().all(|&(a, b)| last <= a || b <= first);
        let lane = taken.iter().position(is_free).unwrap_or_else(|| {
            taken.push(Vec::new());
            taken.len() - 1
        });
        taken[lane].push((first, last));
        arrows[number].lane = lane;
    }
    taken.len()
}

/// Where an arrow leaves or meets a box, from the box's upper edge: what comes from above or leads up, in the upper
/// half, the rest in the lower one; each in its own place. Also the distance between places.
fn port(arrows: &[Arrow<'_>], number: usize, begins: bool) -> (f64, f64) {
    let own = &arrows[number];
    let end = |arrow: &Arrow<'_>| if begins { arrow.from } else { arrow.to };
    let same = |other: &&(usize, &Arrow<'_>)| {
        other.1.leads_down() == own.leads_down() && end(other.1) == end(own)
    };
    let all: Vec<_> = arrows.iter().enumerate().collect();
    let mut beside: Vec<_> = all.iter().filter(same).collect();
    // Nearer lanes turn off nearer to the middle, so that they do not cross.
    beside.sort_by_key(|(_, arrow)| arrow.lane);
    let at = beside
        .iter()
        .position(|(other, _)| *other == number)
        .unwrap_or(0);
    let step = BOX_HEIGHT / 2.0 / (beside.len() + 1) as f64;
    let upper = own.leads_down() != begins;
    let from_middle = step * (at + 1) as f64;
    let middle = BOX_HEIGHT / 2.0;
    (
        if upper {
            middle - from_middle
        } else {
            middle + from_middle
        },
        step,
    )
}

fn draw_arrow(
    arrows: &[Arrow<'_>],
    number: usize,
    arrow: &Arrow<'_>,
    box_x: f64,
    out: &mut String,
) -> fmt::Result {
    let down = arrow.leads_down();
    let (side, edge) = if down {
        (1.0, box_x + BOX_WIDTH)
    } else {
        (-1.0, box_x)
    };
    let (begin, room) = port(arrows, number, true);
    let begin = top(arrow.from) + begin;
    let end = top(arrow.to) + port(arrows, number, false).0;
    let lane = edge + side * (FIRST_LANE + LANE * arrow.lane as f64);
    let turn = if down { CORNER } else { -CORNER };
    let (near, neck, tip) = (
        lane - side * CORNER,
        edge + side * (HEAD.0 + 1.0),
        edge + side,
    );
    write!(
        out,
        "<g class=\"edge {}\"><title>{}</title><path d=\"M{edge:.1} {begin:.1}H{near:.1}Q{lane:.1} {begin:.1} {lane:.1} {:.1}\
         V{:.1}Q{lane:.1} {end:.1} {near:.1} {end:.1}H{neck:.1}\"/>\
         <polygon points=\"{tip:.1},{end:.1} {neck:.1},{:.1} {neck:.1},{:.1}\"/>",
        class(arrow.relation),
        Escaped(arrow.relation),
        begin + turn,
        end - turn,
        end - HEAD.1,
        end + HEAD.1,
    )?;
    if room >= NAME_HEIGHT {
        let anchor = if down { "start" } else { "end" };
        write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            edge + side * 4.0,
            begin - 2.0,
            Escaped(short(arrow.relation)),
        )?;
    }
    out.write_str("</g>\n")
}

/// A relation's name where there is little room.
fn short(relation: &str) -> &str {
    match relation {
        "process" => "proc",
        "realtime" => "time",
        other => other,
    }
}

/// The title, and the colour of each relation.
fn legend(arrows: &[Arrow<'_>], title: &str, x: f64, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"12\" class=\"title\">{}</text>",
        Escaped(title)
    )?;
    let mut at = x;
    for relation in ["ww", "wr", "rw", "process", "realtime"] {
        if arrows.iter().any(|arrow| arrow.relation == relation) {
            let class = class(relation);
            writeln!(
                out,
                "<g class=\"edge {class}\"><path d=\"M{at:.1} 24H{:.1}\"/><text x=\"{:.1}\" y=\"27.5\">{relation}</text></g>",
                at + 22.0,
                at + 27.0,
            )?;
            at += 44.0 + 7.0 * relation.len() as f64;
        }
    }
    if arrows.iter().any(|arrow| !arrow.leads_down()) {
        writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"27.5\" class=\"hint\">as they began, downwards; on the left what leads back</text>"
        )?;
    }
    Ok(())
}

/// One operation as a box.
fn operation(history: &History, index: u64, (x, y): (f64, f64), out: &mut String) -> fmt::Result {
    let part = Participant::find(history, index);
    let op = part.as_ref().and_then(Participant::last);
    let kind = op.map_or("info", |op| op.kind.name());
    let process = op.map_or_else(String::new, |op| {
        format!(" · process {} · {kind}", op.process)
    });
    let label = |characters_max| {
        let label = part.as_ref().map(|part| part.label(characters_max));
        label.unwrap_or_default()
    };
    writeln!(
        out,
        "<g class=\"node {kind}\"><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BOX_WIDTH}\" \
         height=\"{BOX_HEIGHT}\" rx=\"6\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"name\">op {}{}</text>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        Escaped(label(400)),
        x + 9.0,
        y + 14.0,
        thousands(index),
        Escaped(process),
        x + 9.0,
        y + 29.0,
        Escaped(label(VALUE_LENGTH_MAX)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(ends: &[(usize, usize)]) -> Vec<Arrow<'static>> {
        let arrow = |&(from, to)| Arrow {
            from,
            to,
            relation: "ww",
            lane: 0,
        };
        ends.iter().map(arrow).collect()
    }

    #[test]
    fn arrows_that_pass_by_one_another_have_lanes_of_their_own() {
        let mut all = arrows(&[(0, 3), (0, 1), (1, 3), (2, 4), (3, 0)]);
        assert_eq!(lanes(&mut all, true), 3);
        assert_eq!(lanes(&mut all, false), 1);
        let of: Vec<_> = all.iter().map(|arrow| arrow.lane).collect();
        // The shortest nearest: 0→1 and 1→3 share one, 2→4 passes by 1→3, 0→3 by all.
        assert_eq!(of, [2, 0, 0, 1, 0]);
    }

    #[test]
    fn arrows_meet_boxes_in_places_of_their_own() {
        let mut all = arrows(&[(0, 1), (0, 2), (1, 2), (2, 1)]);
        lanes(&mut all, true);
        let mut places: Vec<_> = (0..3).map(|number| port(&all, number, true).0).collect();
        assert!(
            places[0] < places[1],
            "the nearer lane nearer to the middle"
        );
        places.truncate(2);
        assert!(
            places
                .iter()
                .all(|place| *place > BOX_HEIGHT / 2.0 && *place < BOX_HEIGHT)
        );
        let incoming = [port(&all, 1, false).0, port(&all, 2, false).0];
        assert!(
            incoming
                .iter()
                .all(|place| *place > 0.0 && *place < BOX_HEIGHT / 2.0)
        );
        assert!((incoming[0] - incoming[1]).abs() > 1.0);
        assert!(port(&all, 3, false).0 > BOX_HEIGHT / 2.0, "from below");
    }
}
