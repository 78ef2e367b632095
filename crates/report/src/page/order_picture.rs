//! The longest order that works, laid out: bars of operations, points of the order, and where it ends.

use super::anomaly_section::Participant;
use super::interval::times;
use crate::wording::{brief, one_line, shortened};
use seatrial_checker::{LinearizationPoint, LinearizationWitness};
use seatrial_history::{History, Op, Process, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Room for a character of a label or of a state, in pixels.
const LETTER_WIDTH: f64 = 6.4;
/// Least distance of two events, and of two points of the order.
const EVENT_GAP: f64 = 5.0;
const POINT_GAP: f64 = 22.0;
/// Characters of a label and of a state that have room in the picture; the rest is in a tip.
const LABEL_ROOM: usize = 13;
const STATE_ROOM: usize = 12;
/// Characters of a label and of a state that are in the page.
const LABEL_LENGTH_MAX: usize = 60;
const STATE_LENGTH_MAX: usize = 60;

/// Operations that suffice are not marked if they are more, unless none of them can be left out.
const MARKED_MAX: usize = 50;

/// A picture of operations that are not linearizable, in pixels from left to right; its height is chosen where it is drawn.
///
/// Events are in the order of the history. Each has as much room as the labels of the bars and the states of the order need, so
/// that a stretch of the picture as wide as a window is readable, however long the history is. Distances mean nothing.
pub(super) struct LinearizationPicture {
    /// Names of the processes, a row for each.
    pub(super) rows: Vec<String>,
    /// Operations in the order of their invocations.
    pub(super) bars: Vec<OperationBar>,
    /// Points of the order, from left to right.
    pub(super) points: Vec<OrderPoint>,
    /// The state before the first point.
    pub(super) before: String,
    /// Where the operation that cannot be placed completes.
    pub(super) end: f64,
    pub(super) width: f64,
    /// Times of events, from left to right.
    pub(super) times: Vec<(f64, String)>,
    /// Why no order passes the end, in a few words.
    pub(super) reason: String,
    /// Operations of the order that are not in the picture.
    pub(super) left_out: u64,
}

/// An operation from its invocation to its completion.
pub(super) struct OperationBar {
    pub(super) row: usize,
    pub(super) begin: f64,
    /// The width of the picture if the operation is of unknown outcome.
    pub(super) end: f64,
    /// `ok`, `fail` or `info`.
    pub(super) class: &'static str,
    /// Is this the operation that cannot be placed?
    pub(super) is_unplaced: bool,
    /// Is it one of those that suffice for the contradiction?
    pub(super) is_essential: bool,
    pub(super) label: String,
    /// Index and times.
    pub(super) times: String,
}

/// A point of the order: an operation takes effect.
pub(super) struct OrderPoint {
    /// Number of its bar.
    pub(super) bar: usize,
    pub(super) x: f64,
    /// The state after it.
    pub(super) state: String,
}

/// An operation of the picture while it is laid out.
struct PicturePart<'a> {
    participant: Participant<'a>,
    /// Index of its invocation; 0 if the history has none.
    begin: u64,
    /// Index of its completion; `u64::MAX` if its outcome is unknown.
    end: u64,
}

impl LinearizationPicture {
    /// The picture of the last `points_max` points of a witness. `None` if the history does not have the operation that cannot be
    /// placed.
    pub(super) fn new(
        history: &History,
        witness: &LinearizationWitness,
        points_max: usize,
    ) -> Option<LinearizationPicture> {
        let order = &witness.order;
        let skipped = order.len().saturating_sub(points_max);
        let before = skipped
            .checked_sub(1)
            .map_or(&witness.before, |last| &order[last].state);
        let order = &order[skipped..];
        let essential = witness.essential.iter().flat_map(|one| &one.operations);
        let mut essential: BTreeSet<u64> = essential.copied().collect();
        if witness
            .essential
            .as_ref()
            .is_some_and(|one| !one.is_minimal)
            && essential.len() > MARKED_MAX
        {
            // Most of what a bound left is not needed.
            essential.clear();
        }
        let parts = parts(history, witness, order);
        let numbers: BTreeMap<u64, usize> =
            parts.iter().map(|(index, _)| *index).zip(0..).collect();
        let unplaced = *numbers.get(&witness.operation)?;
        let points = order
            .iter()
            .filter_map(|point| Some((*numbers.get(&point.operation)?, &*point.state)));
        let points: Vec<(usize, &str)> = points.collect();
        let bare: Vec<&PicturePart<'_>> = parts.iter().map(|(_, part)| part).collect();
        let places = EventPlaces::new(&bare, &points, bare[unplaced].end);
        let processes: BTreeSet<Process> = bare.iter().filter_map(|part| part.process()).collect();
        let rows: BTreeMap<Process, usize> = processes.iter().copied().zip(0..).collect();
        let bars = parts.iter().enumerate().map(|(number, (index, part))| {
            let row = part.process().and_then(|process| rows.get(&process));
            OperationBar {
                row: row.copied().unwrap_or_default(),
                begin: places.x(part.begin, 0.0),
                end: places.x(part.end, places.width),
                class: part.class(),
                is_unplaced: number == unplaced,
                is_essential: essential.contains(index),
                label: label(&part.participant, LABEL_LENGTH_MAX),
                times: times(&part.participant),
            }
        });
        Some(LinearizationPicture {
            rows: processes.iter().map(|process| brief(process, 12)).collect(),
            bars: bars.collect(),
            before: shown(before),
            end: places.x(bare[unplaced].end, places.width),
            width: places.width,
            times: event_times(&bare, &places),
            reason: reason(witness),
            left_out: witness.left_out + skipped as u64,
            points: points
                .iter()
                .zip(&places.points)
                .map(|(&(bar, state), &x)| OrderPoint {
                    bar,
                    x,
                    state: shown(state),
                })
                .collect(),
        })
    }

    /// The stretch that is shown first, in a picture of this width: all of it where it fits with bars a little narrower, else as
    /// much before the end as there is room for.
    pub(super) fn window(&self, width: f64) -> (f64, f64) {
        if self.width <= width * 1.4 {
            return (0.0, self.width);
        }
        let end = (self.end + width * 0.08).min(self.width);
        ((end - width * 1.1).max(0.0), end)
    }

    /// The rows that have something to show in this stretch: an operation that begins, ends or takes effect there or spans it.
    /// One of unknown outcome spans the rest of the history, so it counts only where it begins or takes effect, or if it is
    /// essential.
    pub(super) fn rows_within(&self, (begin, end): (f64, f64)) -> Vec<usize> {
        let mut points: BTreeMap<usize, f64> = BTreeMap::new();
        points.extend(self.points.iter().map(|point| (point.bar, point.x)));
        let within = |x: f64| begin <= x && x <= end;
        let numbered = self.bars.iter().enumerate();
        let shown = numbered.filter(|(number, bar)| {
            let is_marked = bar.is_essential || bar.is_unplaced;
            let point = points.get(number);
            let begins = within(bar.begin) || point.is_some_and(|&x| within(x));
            let is_under_way = bar.begin <= end && bar.end >= begin;
            is_under_way && (begins || is_marked || bar.class != "info")
        });
        let rows: BTreeSet<usize> = shown.map(|(_, bar)| bar.row).collect();
        rows.into_iter().collect()
    }
}

impl PicturePart<'_> {
    fn process(&self) -> Option<Process> {
        self.participant.last().map(|op| op.process)
    }

    fn class(&self) -> &'static str {
        let completion = self.participant.completion;
        completion.map_or("info", |op| op.kind.name())
    }
}

/// The operations of this order, the essential and the concurrent ones, by their indices in the witness, as they begin.
fn parts<'a>(
    history: &'a History,
    witness: &LinearizationWitness,
    order: &[LinearizationPoint],
) -> Vec<(u64, PicturePart<'a>)> {
    let essential = witness.essential.iter().flat_map(|one| &one.operations);
    let others = witness.concurrent.iter().chain(essential).copied();
    let points = order.iter().map(|point| point.operation);
    let indices: BTreeSet<u64> = points.chain(others).chain([witness.operation]).collect();
    let found = indices
        .into_iter()
        .filter_map(|index| Some((index, part(history, index)?)));
    let mut parts: Vec<(u64, PicturePart<'_>)> = found.collect();
    parts.sort_by_key(|(_, part)| part.begin);
    parts
}

/// The operation with this index.
fn part(history: &History, index: u64) -> Option<PicturePart<'_>> {
    let participant = Participant::find(history, index)?;
    let completion = participant.completion.filter(|op| !op.is_info());
    Some(PicturePart {
        begin: participant.invocation.map_or(0, |op| op.index),
        end: completion.map_or(u64::MAX, |op| op.index),
        participant,
    })
}

/// The function and its value without the key, which is the same for all operations of the picture.
fn label(participant: &Participant<'_>, characters_max: usize) -> String {
    match participant.last() {
        Some(Op {
            f,
            value: Value::Keyed(_, value),
            ..
        }) => one_line(&brief(format_args!("{f} {value}"), characters_max)).into_owned(),
        _ => participant.label(characters_max),
    }
}

/// A state on one line.
fn shown(state: &str) -> String {
    one_line(&shortened(state, STATE_LENGTH_MAX)).into_owned()
}

/// Why no order passes the end.
fn reason(witness: &LinearizationWitness) -> String {
    let more = match witness.states_left_out {
        0 => String::new(),
        more => format!(" or one of {more} others"),
    };
    let states: Vec<String> = witness.states.iter().map(|one| shown(one)).collect();
    match &states[..] {
        [] => "no operation leads to the state that it needs".to_owned(),
        states => format!("impossible in {}{more}", states.join(" or ")),
    }
}

/// Where events and points are.
struct EventPlaces {
    /// By index of an invocation or completion.
    events: BTreeMap<u64, f64>,
    points: Vec<f64>,
    width: f64,
}

impl EventPlaces {
    /// Places the events of these operations from left to right, and each point (the number of its operation, the state after it)
    /// between the latest invocation before it and the earliest completion after it.
    fn new(parts: &[&PicturePart<'_>], points: &[(usize, &str)], break_at: u64) -> EventPlaces {
        let begins = parts
            .iter()
            .enumerate()
            .map(|(number, part)| (part.begin, number));
        let ends = parts.iter().enumerate();
        let ends = ends.filter(|(_, part)| part.end != u64::MAX);
        let ends = ends.map(|(number, part)| (part.end, number));
        let events: BTreeMap<u64, usize> = begins.chain(ends).collect();
        let order: Vec<u64> = events.keys().copied().collect();
        let slots = slots(parts, points, break_at, &order);
        let mut places = EventPlaces {
            events: BTreeMap::new(),
            points: Vec::new(),
            width: 0.0,
        };
        let mut x = EVENT_GAP;
        let mut next = 0;
        for (slot, (&index, &number)) in events.iter().enumerate() {
            let part = parts[number];
            if part.end == index {
                // The bar has room for its label.
                let room = label(&part.participant, LABEL_ROOM).chars().count() as f64;
                let begin = places.x(part.begin, 0.0);
                x = x.max(begin + room * LETTER_WIDTH + 10.0);
            }
            places.events.insert(index, x);
            x += EVENT_GAP;
            while next < points.len() && slots[next] <= slot {
                x += EVENT_GAP;
                places.points.push(x);
                let state = points[next].1.chars().take(STATE_ROOM).count() as f64;
                x += (state * LETTER_WIDTH + 8.0).max(POINT_GAP) - EVENT_GAP;
                next += 1;
            }
        }
        // An open end fades out.
        places.width = x + 40.0;
        assert!(
            places.points.len() == points.len(),
            "each point has a place"
        );
        assert!(places.points.is_sorted(), "points are in their order");
        places
    }

    /// The place of an event, or `other`.
    fn x(&self, index: u64, other: f64) -> f64 {
        self.events.get(&index).copied().unwrap_or(other)
    }
}

/// By point: the number of the event after which it is. A point is after the invocations of its operation and of all operations
/// earlier in the order, and before the completions of all later ones and the break; of these events the middle is taken, which
/// keeps the points in order.
fn slots(
    parts: &[&PicturePart<'_>],
    points: &[(usize, &str)],
    break_at: u64,
    order: &[u64],
) -> Vec<usize> {
    let number = |index: u64| order.partition_point(|&event| event < index);
    let last = number(break_at).saturating_sub(1);
    let mut latest = vec![last; points.len()];
    let mut bound = last;
    for (place, &(bar, _)) in points.iter().enumerate().rev() {
        bound = bound.min(number(parts[bar].end).saturating_sub(1));
        latest[place] = bound;
    }
    let mut earliest = 0;
    let middle = points.iter().zip(latest).map(|(&(bar, _), latest)| {
        earliest = earliest.max(number(parts[bar].begin));
        // A witness whose order contradicts the history has no place; it is shown where it can be.
        earliest.midpoint(latest.max(earliest))
    });
    let mut slots: Vec<usize> = middle.collect();
    for place in 1..slots.len() {
        slots[place] = slots[place].max(slots[place - 1]);
    }
    slots
}

/// Times of some events, at least as far apart as their text is long.
fn event_times(parts: &[&PicturePart<'_>], places: &EventPlaces) -> Vec<(f64, String)> {
    let halves = parts.iter().flat_map(|part| {
        let Participant {
            invocation,
            completion,
        } = &part.participant;
        [*invocation, completion.filter(|op| !op.is_info())]
    });
    let mut timed: Vec<(f64, i64)> = halves
        .flatten()
        .filter(|op| op.time >= 0)
        .filter_map(|op: &Op| Some((*places.events.get(&op.index)?, op.time)))
        .collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = 0.0;
    let mut times = Vec::new();
    for (x, time) in timed {
        if x >= free {
            times.push((x, format!("{:.4} s", time as f64 / 1e9)));
            free = x + 150.0;
        }
    }
    times
}
