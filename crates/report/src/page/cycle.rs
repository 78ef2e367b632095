//! A cycle of operations as a drawing.

use super::anomaly_section::Participant;
use super::component;
use super::drawing_frame::DrawingFrame;
use crate::escape::Escaped;
use crate::wording::{one_line, shortened, thousands};
use seatrial_checker::{Dependency, FindingStep};
use seatrial_history::History;
use std::f64::consts::PI;
use std::fmt::{self, Write};

/// Operations drawn in a circle; a longer cycle is drawn as rows.
const NODES_MAX: usize = 12;
/// Half the width and height of an operation's box.
const BOX: (f64, f64) = (92.0, 22.0);
/// Characters of an operation's value in its box.
const VALUE_LENGTH_MAX: usize = 26;
/// Length and half the width of an arrow's head.
const HEAD: (f64, f64) = (10.0, 4.5);

type Point = (f64, f64);

/// The class under which the page's style knows a relation.
pub(super) fn class(relation: &str) -> &'static str {
    match relation {
        "ww" => "ww",
        "wr" => "wr",
        "rw" => "rw",
        _ => "order",
    }
}

/// Draws the operations of `steps` in a circle and every step as an arrow. Nothing for less than two operations.
pub(super) fn draw(
    history: &History,
    steps: &[FindingStep],
    frame: DrawingFrame,
    page: &mut String,
) -> fmt::Result {
    let mut nodes: Vec<u64> = Vec::new();
    for index in steps.iter().flat_map(|step| [step.from, step.to]) {
        if !nodes.contains(&index) {
            nodes.push(index);
        }
    }
    if nodes.len() < 2 {
        return Ok(());
    }
    let label = format!("The cycle of {} operations", nodes.len());
    if nodes.len() > NODES_MAX {
        let steps: Vec<_> = steps.iter().map(dependency).collect();
        return component::rows(history, &nodes, &steps, &label, frame, page);
    }
    let (places, size) = places(nodes.len());
    frame.open("cycle", size, &label, page)?;
    let place = |index: u64| {
        let number = nodes.iter().position(|node| *node == index);
        number.map_or((0.0, 0.0), |number| places[number])
    };
    let center = (size.0 / 2.0, size.1 / 2.0);
    for (number, step) in steps.iter().enumerate() {
        let same = |other: &&FindingStep| (other.from, other.to) == (step.from, step.to);
        let earlier = steps[..number].iter().filter(same).count();
        arrow(
            place(step.from),
            place(step.to),
            center,
            earlier,
            step,
            page,
        )?;
    }
    for (index, place) in nodes.iter().zip(&places) {
        operation(history, *index, *place, page)?;
    }
    frame.close(page)
}

fn dependency(step: &FindingStep) -> Dependency {
    Dependency {
        from: step.from,
        to: step.to,
        relation: step.relation,
    }
}

/// Where the boxes stand, and the size of the drawing.
fn places(count: usize) -> (Vec<Point>, Point) {
    let (width, height) = match count {
        2 => (560.0, 170.0),
        3 => (600.0, 270.0),
        _ => (680.0, 120.0 + 62.0 * count as f64),
    };
    let (radius_x, radius_y) = (width / 2.0 - BOX.0 - 6.0, height / 2.0 - BOX.1 - 12.0);
    let place = |number: usize| {
        // Two stand side by side; more begin at the top and go clockwise.
        let begin = if count == 2 { -PI } else { -PI / 2.0 };
        let angle = begin + 2.0 * PI * number as f64 / count as f64;
        (
            width / 2.0 + radius_x * angle.cos(),
            height / 2.0 + radius_y * angle.sin(),
        )
    };
    ((0..count).map(place).collect(), (width, height))
}

/// One step: a curve that bends away from the middle, its relation beside it, its reason on hovering.
fn arrow(
    from: Point,
    to: Point,
    center: Point,
    earlier: usize,
    step: &FindingStep,
    page: &mut String,
) -> fmt::Result {
    let middle = midpoint(from, to);
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let distance = dx.hypot(dy).max(1.0);
    // To the left of the direction; two steps back and forth bend apart by themselves.
    let left = (dy / distance, -dx / distance);
    let away = (middle.0 - center.0) * left.0 + (middle.1 - center.1) * left.1;
    let side = if away < -1.0 { -1.0 } else { 1.0 };
    let bend = side * (distance * 0.16 + 16.0 + 34.0 * earlier as f64).min(120.0);
    let control = (middle.0 + left.0 * bend, middle.1 + left.1 * bend);
    let begin = border(from, control);
    let tip = border(to, control);
    let direction = (tip.0 - control.0, tip.1 - control.1);
    let length = direction.0.hypot(direction.1).max(1.0);
    let unit = (direction.0 / length, direction.1 / length);
    let neck = (tip.0 - unit.0 * HEAD.0, tip.1 - unit.1 * HEAD.0);
    let side = (-unit.1 * HEAD.1, unit.0 * HEAD.1);
    let label = midpoint(midpoint(begin, neck), control);
    let class = class(step.relation);
    write!(
        page,
        "<g class=\"edge {class}\"><title>{}</title><path d=\"M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}\"/>\
         <polygon points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"/>",
        Escaped(one_line(&shortened(&step.reason, 400))),
        begin.0,
        begin.1,
        control.0,
        control.1,
        neck.0,
        neck.1,
        tip.0,
        tip.1,
        neck.0 + side.0,
        neck.1 + side.1,
        neck.0 - side.0,
        neck.1 - side.1,
    )?;
    writeln!(
        page,
        "<text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        label.0,
        label.1 + 4.0,
        Escaped(step.relation)
    )
}

fn midpoint(a: Point, b: Point) -> Point {
    (f64::midpoint(a.0, b.0), f64::midpoint(a.1, b.1))
}

/// Where the line from the middle of a box towards `target` leaves the box, and a little beyond.
fn border(middle: Point, target: Point) -> Point {
    let (dx, dy) = (target.0 - middle.0, target.1 - middle.1);
    let (width, height) = (BOX.0 + 3.0, BOX.1 + 3.0);
    let scale = (width / dx.abs().max(1e-6)).min(height / dy.abs().max(1e-6));
    (
        middle.0 + dx * scale.min(1.0),
        middle.1 + dy * scale.min(1.0),
    )
}

/// One operation as a box.
fn operation(history: &History, index: u64, place: Point, page: &mut String) -> fmt::Result {
    let part = Participant::find(history, index);
    let op = part.as_ref().and_then(Participant::last);
    let kind = op.map_or("info", |op| op.kind.name());
    let label = |characters_max| part.as_ref().map(|part| part.label(characters_max));
    let process = op.map_or_else(String::new, |op| format!(" · process {}", op.process));
    writeln!(
        page,
        "<g class=\"node {kind}\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{}\" rx=\"6\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" class=\"name\">op {}{}</text><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        Escaped(label(400).unwrap_or_default()),
        place.0 - BOX.0,
        place.1 - BOX.1,
        BOX.0 * 2.0,
        BOX.1 * 2.0,
        place.0,
        place.1 - 5.0,
        thousands(index),
        Escaped(process),
        place.0,
        place.1 + 11.0,
        Escaped(label(VALUE_LENGTH_MAX).unwrap_or_default()),
    )
}
