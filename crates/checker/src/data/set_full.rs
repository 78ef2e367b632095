//! A set that is read again and again.

use super::element::{Element, elements};
use super::judge::{Event, Judge, Started};
use super::outcome::Outcome;
use crate::{Checker, Verdict};
use seatrial_history::{History, OpType, Value};
use serde_json::json;
use std::collections::BTreeMap;

/// When an element that was added must be visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// In every read that begins after its addition succeeded or another read had seen it.
    #[default]
    Linearizable,
    /// At some time, and then for ever.
    Eventual,
}

impl Visibility {
    /// All of them, the strictest first.
    pub const ALL: [Visibility; 2] = [Visibility::Linearizable, Visibility::Eventual];

    /// The name that `--model` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Visibility::Linearizable => "linearizable",
            Visibility::Eventual => "eventual",
        }
    }
}

/// Follows each element of a set through all reads: Jepsen's `set-full`.
///
/// An element is *known* from when its `add` succeeded, or a `read` that has it completed. It is *stable* when the last
/// read that has it began after the last one that has it not; *lost* when the last one that has it not began after every
/// one that has it, and after it was known; else *never read*. A stable element is *stale* when a read that has it not
/// began after it was known. (Jepsen calls it stale from a millisecond on; here the order of the operations decides.)
///
/// Anomalies: `lost`; `stale` when visibility is to be linearizable; `duplicated` (a read has an element twice); and,
/// which Jepsen's passes over, `unexpected` (a read has what nobody ever tried to add) and `aborted-read` (a read has an
/// element of which every addition failed). Without a stable element the answer is unknown. Its downside: a read costs as
/// much as the set has elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetFull {
    visibility: Visibility,
}

impl SetFull {
    /// The checker that demands this.
    pub const fn new(visibility: Visibility) -> SetFull {
        SetFull { visibility }
    }
}

/// Where and when something happened.
#[derive(Clone, Copy, Debug)]
struct Moment {
    index: u64,
    time: i64,
}

impl From<&Started> for Moment {
    fn from(started: &Started) -> Moment {
        Moment {
            index: started.index,
            time: started.time,
        }
    }
}

/// What happened to an element.
#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    known: Option<Moment>,
    /// Invocation of the latest read that has it.
    present: Option<Moment>,
    /// Invocation of the latest read that has it not.
    absent: Option<Moment>,
    /// Index of the first completion that read it.
    reader: Option<u64>,
    /// Additions that were tried, and those that failed.
    attempts: u64,
    failures: u64,
    /// The number of the last read that has it.
    read: u64,
}

/// What is known of one set.
#[derive(Default)]
pub(crate) struct State {
    numbers: BTreeMap<Element, u32>,
    followed: Vec<Followed>,
    reads: u64,
    /// Element, how often, and index of the first read that has it so often.
    duplicated: BTreeMap<Element, (usize, u64)>,
    /// Elements that nobody had tried to add by then, with the first read that has them.
    unexpected: BTreeMap<Element, u64>,
    /// A read of no set.
    refused: Option<u64>,
}

impl State {
    fn number(&mut self, element: Element) -> usize {
        let next = self.followed.len() as u32;
        let number = *self.numbers.entry(element).or_insert(next);
        if number == next {
            self.followed.push(Followed::default());
        }
        number as usize
    }

    fn read(&mut self, event: &Event<'_>, began: Moment) {
        let Some(mut read) = elements(event.value) else {
            self.refused = self.refused.or(Some(event.index));
            return;
        };
        read.sort_unstable();
        self.reads += 1;
        for same in read.chunk_by(|one, other| one == other) {
            let element = &same[0];
            if same.len() > 1 {
                let most = self.duplicated.entry(element.clone()).or_default();
                if most.0 < same.len() {
                    *most = (same.len(), event.index);
                }
            }
            if let Some(&number) = self.numbers.get(element) {
                self.followed[number as usize].read = self.reads;
            } else {
                let first = self.unexpected.entry(element.clone());
                first.or_insert(event.index);
            }
        }
        let completed = Moment {
            index: event.index,
            time: event.time,
        };
        for one in &mut self.followed {
            let is_there = one.read == self.reads;
            let latest = if is_there {
                &mut one.present
            } else {
                &mut one.absent
            };
            if latest.is_none_or(|latest| latest.index < began.index) {
                *latest = Some(began);
            }
            if is_there {
                one.known.get_or_insert(completed);
                one.reader.get_or_insert(completed.index);
            }
        }
    }
}

/// How an element ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stable,
    Lost,
    NeverRead,
}

impl Followed {
    fn fate(&self) -> Fate {
        // Reads are told apart by index; before all of them comes 0.
        let of = |moment: Option<Moment>| moment.map_or(0, |moment| moment.index + 1);
        let (present, absent, known) = (of(self.present), of(self.absent), of(self.known));
        if present > absent {
            Fate::Stable
        } else if known > 0 && absent > present && absent > known {
            Fate::Lost
        } else {
            Fate::NeverRead
        }
    }

    /// Was it missing from a read that began after it was known?
    fn is_stale(&self) -> bool {
        let both = self.absent.zip(self.known);
        both.is_some_and(|(absent, known)| absent.index > known.index)
    }

    /// Nanoseconds from when it was known until the moment after `last`.
    fn latency(&self, last: Option<Moment>) -> i64 {
        let known = self.known.map_or(0, |known| known.time);
        let end = last.map_or(0, |last| last.time.saturating_add(1));
        end.saturating_sub(known).max(0)
    }
}

impl Judge for SetFull {
    type State = State;
    const NAME: &'static str = "set-full";
    const FUNCTIONS: &'static [&'static str] = &["add", "read"];

    fn model(&self) -> Option<&'static str> {
        Some(self.visibility.name())
    }

    fn take(&self, state: &mut State, event: &Event<'_>) {
        match (event.kind, event.f == "add") {
            (OpType::Invoke, true) => {
                let number = state.number(event.value.into());
                state.followed[number].attempts += 1;
            }
            (kind @ (OpType::Ok | OpType::Fail), true) => {
                let number = state.number(event.argument().into());
                let one = &mut state.followed[number];
                if kind == OpType::Fail {
                    one.failures += 1;
                } else {
                    one.attempts = one.attempts.max(1);
                    one.known.get_or_insert(Moment {
                        index: event.index,
                        time: event.time,
                    });
                }
            }
            (OpType::Ok, false) if !matches!(event.value, Value::Nil) => {
                if let Some(began) = event.invocation {
                    state.read(event, began.into());
                }
            }
            _ => {}
        }
    }

    fn finish(&self, state: State, outcome: &mut Outcome) {
        outcome.count("reads", state.reads);
        outcome.count("attempts", state.followed.len() as u64);
        let mut tellings = Tellings::default();
        for (element, &number) in &state.numbers {
            let one = &state.followed[number as usize];
            tellings.add(element, one);
            if self.visibility == Visibility::Linearizable
                && one.fate() == Fate::Stable
                && one.is_stale()
            {
                outcome.anomaly("stale", || stale(element, one));
            }
            if let Some(reader) = one.reader.filter(|_| one.attempts == one.failures) {
                outcome.anomaly("aborted-read", || {
                    let summary =
                        format!("Op {reader} read {element}, of which every addition failed.");
                    (vec![reader], summary)
                });
            }
        }
        for &(element, one) in &tellings.lost {
            outcome.anomaly("lost", || lost(element, one));
        }
        for (element, (times, index)) in &state.duplicated {
            outcome.anomaly("duplicated", || {
                (
                    vec![*index],
                    format!("Op {index} read {element} {times} times."),
                )
            });
        }
        let never = |element: &&Element| !state.numbers.contains_key(element);
        let unexpected: Vec<&Element> = state.unexpected.keys().filter(never).collect();
        for element in &unexpected {
            let index = state.unexpected[*element];
            outcome.anomaly("unexpected", || {
                let summary = format!("Op {index} read {element}, which nobody ever tried to add.");
                (vec![index], summary)
            });
        }
        outcome.list("unexpected", unexpected.into_iter());
        outcome.list("duplicated", state.duplicated.keys());
        let is_empty = tellings.stable == 0;
        tellings.tell(outcome);
        if let Some(index) = state.refused {
            outcome.unknown(format!("op {index}: the read saw no set"));
        } else if is_empty {
            outcome.silent("no element was ever read for good");
        }
    }
}

fn stale(element: &Element, one: &Followed) -> (Vec<u64>, String) {
    let [known, absent] = [one.known, one.absent].map(|moment| moment.map_or(0, |at| at.index));
    let summary = format!(
        "{element} was there as of op {known}, but a read that began later (op {absent}) does not have it."
    );
    (vec![known, absent], summary)
}

fn lost(element: &Element, one: &Followed) -> (Vec<u64>, String) {
    let [known, absent] = [one.known, one.absent].map(|moment| moment.map_or(0, |at| at.index));
    let seen = match one.present {
        Some(present) => format!(
            "was last seen by the read that began with op {}",
            present.index
        ),
        None => "was never read".into(),
    };
    let summary = format!(
        "{element} was there as of op {known}, {seen}, and is missing from the read that began with op {absent}."
    );
    let present = one.present.map(|present| present.index);
    (
        [Some(known), present, Some(absent)]
            .into_iter()
            .flatten()
            .collect(),
        summary,
    )
}

/// Elements by fate.
#[derive(Default)]
struct Tellings<'a> {
    stable: u64,
    lost: Vec<(&'a Element, &'a Followed)>,
    never: Vec<&'a Element>,
    stale: Vec<&'a Element>,
    stable_latencies: Vec<i64>,
    lost_latencies: Vec<i64>,
}

impl<'a> Tellings<'a> {
    fn add(&mut self, element: &'a Element, one: &'a Followed) {
        match one.fate() {
            Fate::Stable => {
                self.stable += 1;
                self.stable_latencies
                    .push(one.absent.map_or(0, |_| one.latency(one.absent)));
                if one.is_stale() {
                    self.stale.push(element);
                }
            }
            Fate::Lost => {
                self.lost.push((element, one));
                self.lost_latencies
                    .push(one.present.map_or(0, |_| one.latency(one.present)));
            }
            Fate::NeverRead => self.never.push(element),
        }
    }

    fn tell(self, outcome: &mut Outcome) {
        outcome.count("stable", self.stable);
        outcome.list("lost", self.lost.iter().map(|one| one.0));
        outcome.list("never_read", self.never.into_iter());
        outcome.list("stale", self.stale.into_iter());
        outcome.samples("stable_latencies_ms", self.stable_latencies);
        outcome.samples("lost_latencies_ms", self.lost_latencies);
    }
}

/// Quantiles 0, 0.5, 0.95, 0.99 and 1 of nanoseconds, in whole milliseconds.
pub(super) fn quantiles(mut samples: Vec<i64>) -> serde_json::Value {
    samples.sort_unstable();
    let last = samples.len().saturating_sub(1);
    let at = |part: f64| {
        let place = (samples.len() as f64 * part) as usize;
        samples
            .get(place.min(last))
            .map(|sample| sample / 1_000_000)
    };
    json!({"0": at(0.0), "0.5": at(0.5), "0.95": at(0.95), "0.99": at(0.99), "1": at(1.0)})
}

impl Checker for SetFull {
    fn name(&self) -> &'static str {
        SetFull::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
