//! The intervals of an anomaly's operations, drawn.

use super::anomaly_section::Participant;
use crate::escape::Escaped;
use crate::wording::{brief, length};
use seatrial_history::{Op, Process};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Operations in a drawing; the first ones.
const OPERATIONS_MAX: usize = 24;
/// Width of the drawing and of the column with the processes' names.
const WIDTH: f64 = 720.0;
const NAMES_WIDTH: f64 = 84.0;
/// Height of a process's row and of its bars.
const ROW_HEIGHT: f64 = 30.0;
const BAR_HEIGHT: f64 = 22.0;
/// Width of a gap that no readable bar needs, relative to one that does.
const NARROW: f64 = 0.15;
/// Width of a character in a bar.
const LETTER_WIDTH: f64 = 6.4;

/// Draws each operation as a bar from its invocation to its completion, a row for each process. Bars begin and end in
/// the order of the history; lengths mean nothing, so that what overlaps and what does not can be seen at any scale.
/// Nothing for less than two operations.
pub(super) fn draw(parts: &[Participant<'_>], page: &mut String) -> fmt::Result {
    let parts = &parts[..parts.len().min(OPERATIONS_MAX)];
    let mut processes: Vec<Process> = Vec::new();
    for op in parts.iter().filter_map(Participant::last) {
        if !processes.contains(&op.process) {
            processes.push(op.process);
        }
    }
    processes.sort();
    if parts.len() < 2 {
        return Ok(());
    }
    let height = ROW_HEIGHT * processes.len() as f64 + 20.0;
    writeln!(
        page,
        "<div><svg class=\"intervals\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"When the {} operations were \
         under way\">",
        parts.len()
    )?;
    for (row, process) in processes.iter().enumerate() {
        let y = ROW_HEIGHT * row as f64;
        let (line, text) = (y + ROW_HEIGHT, y + 19.0);
        write!(
            page,
            "<text x=\"0\" y=\"{text}\" class=\"process\">process {}</text>\
             <line x1=\"0\" x2=\"{WIDTH}\" y1=\"{line}\" y2=\"{line}\"/>",
            Escaped(brief(process, 8))
        )?;
    }
    let places = places(parts);
    let place = |op: &Op| places.get(&op.index).map_or(WIDTH, |place| *place);
    for part in parts {
        let Some(op) = part.last() else { continue };
        let row = processes.partition_point(|process| *process < op.process);
        // Without an invocation it may have begun at any time before; an unknown one may take effect at any later time.
        let begin = part.invocation.map_or(NAMES_WIDTH, place);
        let end = part
            .completion
            .filter(|op| !op.is_info())
            .map_or(WIDTH, place);
        bar(part, op, (begin, end), ROW_HEIGHT * row as f64 + 4.0, page)?;
    }
    let caption = "in the order of events, not to scale; hover for times";
    writeln!(
        page,
        "<text x=\"{WIDTH}\" y=\"{:.1}\" class=\"caption\">{caption}</text></svg></div>",
        height - 5.0
    )
}

/// Where each invocation and completion stands. Most room goes to where a completion follows an invocation: there
/// bars lie; between two completions or two invocations the order hardly matters.
fn places(parts: &[Participant<'_>]) -> BTreeMap<u64, f64> {
    let halves = parts
        .iter()
        .flat_map(|part| [part.invocation, part.completion])
        .flatten();
    let mut events: Vec<(u64, bool)> = halves.map(|op| (op.index, op.is_invoke())).collect();
    events.sort_unstable();
    events.dedup();
    let gap = |pair: &[(u64, bool)]| if pair[0].1 && !pair[1].1 { 1.0 } else { NARROW };
    let total: f64 = events.windows(2).map(gap).sum();
    let step = (WIDTH - NAMES_WIDTH) / (total + NARROW);
    let mut place = NAMES_WIDTH;
    let mut places = BTreeMap::new();
    for (number, (index, _)) in events.iter().enumerate() {
        places.insert(*index, place);
        place += events.get(number..number + 2).map_or(0.0, gap) * step;
    }
    places
}

fn bar(
    part: &Participant<'_>,
    op: &Op,
    (begin, end): (f64, f64),
    y: f64,
    page: &mut String,
) -> fmt::Result {
    let width = (end - begin).max(6.0) - 2.0;
    let room = ((width - 8.0) / LETTER_WIDTH).max(0.0) as usize;
    let label = if room >= 3 {
        part.label(room)
    } else {
        String::new()
    };
    let kind = if part.completion.is_some() {
        op.kind.name()
    } else {
        "info"
    };
    let title = format!("{}, {kind}: {}", times(part), part.label(300));
    writeln!(
        page,
        "<g class=\"bar {kind}\"><title>{}</title><rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{BAR_HEIGHT}\" rx=\"4\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        Escaped(title),
        begin + 1.0,
        begin + 6.0,
        y + 15.0,
        Escaped(label),
    )
}

/// When a part began and how long it took, as far as the history says.
pub(super) fn times(part: &Participant<'_>) -> String {
    let time = |op: Option<&Op>| op.map(|op| op.time).filter(|time| *time >= 0);
    let index = part.last().map_or(0, |op| op.index);
    match (time(part.invocation), time(part.completion)) {
        (Some(begin), Some(end)) => {
            let took = length(end.saturating_sub(begin) as f64 / 1e9);
            format!("op {index} at {:.6} s for {took}", begin as f64 / 1e9)
        }
        (Some(begin), None) => {
            format!("op {index} at {:.6} s, never completed", begin as f64 / 1e9)
        }
        _ => format!("op {index}"),
    }
}
