//! A set that is read repeatedly.

use super::data_type::{DataType, OperationEvent, StartedOperation};
use super::element::Element;
use super::element_map::ElementMap;
use super::verdict_builder::{VerdictBuilder, WORST_MAX};
use crate::{Aims, CertainAnomalies, Checker, OnlineChecker, Robustness, Verdict};
use seatrial_history::{History, OpType, Value};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// When an element that was added must be visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// In every read that begins after its addition succeeded, or after another read with it completed.
    #[default]
    Linearizable,
    /// Eventually, and in every later read.
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
/// An element is *known* once its `add` succeeded, or a `read` with it completed. It is *stable* when the last read with it
/// began after the last read without it; *lost* when the last read without it began after every read with it, and after the
/// element was known; else *never read*. A stable element is *stale* when a read without it began after it was known. (Jepsen
/// calls it stale from a millisecond on; here the order of the operations decides.)
///
/// The details have the quantiles of the times that elements took to become stable or lost, and the stale elements that took
/// longest (`worst_stale`).
///
/// Anomalies: `lost`; `stale` when visibility is to be linearizable; `duplicated` (a read has an element twice); and,
/// which Jepsen ignores, `unexpected` (a read has an element whose addition was never invoked) and `aborted-read` (a read has
/// an element all of whose additions failed). Without a stable element the verdict is unknown.
///
/// A read costs one comparison with the read before, at the speed of memory, and the elements between what both have in common
/// at their beginning and end. A read with a duplicate, with what was not added or with what is no integer costs time in
/// proportion to all elements of the set, and so does the next one.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetFull {
    visibility: Visibility,
}

impl SetFull {
    /// A checker that requires this visibility.
    pub const fn new(visibility: Visibility) -> SetFull {
        SetFull { visibility }
    }
}

/// Index and time of an invocation or completion.
#[derive(Clone, Copy, Debug)]
struct OperationTime {
    index: u64,
    time: i64,
}

impl From<&StartedOperation> for OperationTime {
    fn from(started: &StartedOperation) -> OperationTime {
        OperationTime {
            index: started.index,
            time: started.time,
        }
    }
}

/// The reads of one element so far.
#[derive(Clone, Copy, Debug, Default)]
struct ElementReads {
    known: Option<OperationTime>,
    /// Invocation of the latest read with it, of the first `since` reads.
    present: Option<OperationTime>,
    /// Invocation of the latest read without it, of the first `since` reads.
    absent: Option<OperationTime>,
    /// Index of the first completion that read it.
    reader: Option<u64>,
    /// Additions that were invoked, and those that failed.
    attempts: u64,
    failures: u64,
    /// Did the last read have it? Then all reads after the first `since` had it, otherwise none of them.
    is_there: bool,
    since: u64,
    /// Numbers of the last read that had it in its changed part, and of the last read that changed a part that had it before.
    found: u64,
    changed: u64,
}

/// The state of one set.
#[derive(Default)]
pub(crate) struct SetFullState {
    followed: ElementMap<ElementReads>,
    reads: u64,
    latest: LatestReads,
    /// The last read: exactly the elements that are there, each once. `None`: it had something else than such integers.
    last: Option<Vec<i64>>,
    /// By element: its most occurrences in one read, and the first such read.
    duplicated: BTreeMap<Element, (usize, u64)>,
    /// Elements without an earlier addition, with the first read of each.
    unexpected: BTreeMap<Element, u64>,
    /// The first read whose value is not a set.
    refused: Option<u64>,
}

/// Which of the reads from one on began last, for every one: reads are numbered by their completions.
#[derive(Default)]
struct LatestReads {
    /// Numbers and invocations of the reads that began after all later ones; numbers increase, indices decrease.
    reads: Vec<(u64, OperationTime)>,
}

impl LatestReads {
    fn push(&mut self, number: u64, began: OperationTime) {
        let is_later = |last: &mut (u64, OperationTime)| last.1.index <= began.index;
        while self.reads.pop_if(is_later).is_some() {}
        self.reads.push((number, began));
    }

    /// The invocation of the one that began last, of the reads with higher numbers.
    fn after(&self, number: u64) -> Option<OperationTime> {
        let place = self.reads.partition_point(|one| one.0 <= number);
        self.reads.get(place).map(|one| one.1)
    }
}

impl ElementReads {
    /// Adds the first `reads` reads, since which it is there or not.
    fn settle(&mut self, reads: u64, latest: &LatestReads) {
        debug_assert!(self.since <= reads);
        let began = latest.after(self.since);
        self.since = reads;
        let slot = if self.is_there {
            &mut self.present
        } else {
            &mut self.absent
        };
        if let Some(began) = began
            && slot.is_none_or(|slot| slot.index < began.index)
        {
            *slot = Some(began);
        }
    }

    /// A read differs from the one before: it has the element, or no more. `latest` has the reads before it.
    fn flip(&mut self, reads_before: u64, latest: &LatestReads, completed: OperationTime) {
        self.settle(reads_before, latest);
        self.is_there = !self.is_there;
        if self.is_there {
            self.known.get_or_insert(completed);
            self.reader.get_or_insert(completed.index);
        }
    }
}

impl SetFullState {
    fn followed(&mut self, element: &Element) -> &mut ElementReads {
        let absent = ElementReads {
            since: self.reads,
            ..ElementReads::default()
        };
        self.followed.entry(element, absent)
    }

    fn read(&mut self, event: &OperationEvent<'_>, began: OperationTime) {
        self.reads += 1;
        let completed = OperationTime {
            index: event.index,
            time: event.time,
        };
        let mut last = self.last.take();
        let is_done = integers(event).is_some_and(|read| {
            let is_done = match &last {
                Some(last) => self.read_changes(last, &read, completed),
                None => self.mark_all(&read, completed),
            };
            if is_done {
                // The memory of the last read becomes that of this one.
                let kept = last.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(&read);
                self.last = last.take();
            }
            is_done
        });
        if !is_done {
            if !self.mark_sorted(event) {
                self.reads -= 1;
                self.last = last;
                self.refused = self.refused.or(Some(event.index));
                return;
            }
            self.flip_all(completed);
        }
        self.latest.push(self.reads, began);
    }

    /// Compares a read with the last one, and flips what changed. False if it is not a set of integers that were added; then
    /// some of those that it has are flipped already.
    fn read_changes(&mut self, last: &[i64], read: &[i64], completed: OperationTime) -> bool {
        let (gone, new) = changed_parts(last, read);
        let number = self.reads;
        for &integer in gone {
            if let Some(one) = self.one(integer) {
                one.changed = number;
            }
        }
        for &integer in new {
            let Some(at) = self.followed.number_of(integer) else {
                return false;
            };
            let one = &mut self.followed.values_mut()[at as usize];
            // Twice in the changed part, or once there and once in what both reads have.
            if one.found == number || one.is_there && one.changed != number {
                return false;
            }
            one.found = number;
            if !one.is_there {
                one.flip(number - 1, &self.latest, completed);
                one.changed = number;
            }
        }
        for &integer in gone {
            if let Some(at) = self.followed.number_of(integer) {
                let one = &mut self.followed.values_mut()[at as usize];
                if one.found != number {
                    one.flip(number - 1, &self.latest, completed);
                }
            }
        }
        true
    }

    fn one(&mut self, integer: i64) -> Option<&mut ElementReads> {
        let number = self.followed.number_of(integer)?;
        Some(&mut self.followed.values_mut()[number as usize])
    }

    /// Flips every element for which it is not as the marks of this read are.
    fn flip_all(&mut self, completed: OperationTime) {
        let number = self.reads;
        for one in self.followed.values_mut() {
            debug_assert!(one.found <= number, "no element is in a later read");
            if one.is_there != (one.found == number) {
                one.flip(number - 1, &self.latest, completed);
            }
        }
    }

    /// Adds all reads to every element.
    fn settle_all(&mut self) {
        for one in self.followed.values_mut() {
            one.settle(self.reads, &self.latest);
        }
    }

    /// Compares a read with every element. False if it is not a set of integers that were added; then nothing is flipped.
    fn mark_all(&mut self, read: &[i64], completed: OperationTime) -> bool {
        let number = self.reads;
        let is_set = read.iter().all(|integer| {
            let one = self.one(*integer);
            one.is_some_and(|one| std::mem::replace(&mut one.found, number) != number)
        });
        if is_set {
            self.flip_all(completed);
        }
        is_set
    }

    /// Marks the elements of any read, and notes what it has twice and what was not added. False for what is no set.
    fn mark_sorted(&mut self, event: &OperationEvent<'_>) -> bool {
        let Some(mut read) = event.elements() else {
            return false;
        };
        read.sort_unstable();
        for same in read.chunk_by(|one, other| one == other) {
            let element = &same[0];
            if same.len() > 1 {
                let most = self.duplicated.entry(element.clone()).or_default();
                if most.0 < same.len() {
                    *most = (same.len(), event.index);
                }
            }
            let reads = self.reads;
            if let Some(one) = self.followed.get_mut(element) {
                one.found = reads;
            } else {
                let first = self.unexpected.entry(element.clone());
                first.or_insert(event.index);
            }
        }
        true
    }
}

/// The integers of a read; `None` if it has something else.
fn integers<'a>(event: &'a OperationEvent<'_>) -> Option<Cow<'a, [i64]>> {
    if let Some(integers) = event.integers {
        return Some(Cow::Borrowed(integers));
    }
    let (Value::List(items) | Value::Set(items)) = event.value else {
        return None;
    };
    let integers: Option<Vec<i64>> = items.iter().map(Value::as_int).collect();
    integers.map(Cow::Owned)
}

/// Both without what they have in common at their beginning and end.
fn changed_parts<'a>(one: &'a [i64], other: &'a [i64]) -> (&'a [i64], &'a [i64]) {
    let shorter = one.len().min(other.len());
    let start = equal_length(&one[..shorter], &other[..shorter]);
    let (one, other) = (&one[start..], &other[start..]);
    let pairs = one.iter().rev().zip(other.iter().rev());
    let end = pairs.take_while(|(one, other)| one == other).count();
    (&one[..one.len() - end], &other[..other.len() - end])
}

/// Number of elements that two lists of one length have in common at their beginning.
fn equal_length(one: &[i64], other: &[i64]) -> usize {
    // Blocks are compared as memory, many elements at a time.
    const BLOCK: usize = 256;
    let blocks = one.chunks(BLOCK).zip(other.chunks(BLOCK));
    let equal = blocks.take_while(|(one, other)| one == other).count() * BLOCK;
    let start = equal.min(one.len());
    let rest = one[start..].iter().zip(&other[start..]);
    start + rest.take_while(|(one, other)| one == other).count()
}

/// The state of an element at the end of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FinalState {
    Stable,
    Lost,
    NeverRead,
}

impl ElementReads {
    fn final_state(&self) -> FinalState {
        // Reads are compared by index plus one, so that 0 stands for no read.
        let of = |moment: Option<OperationTime>| moment.map_or(0, |moment| moment.index + 1);
        let (present, absent, known) = (of(self.present), of(self.absent), of(self.known));
        if present > absent {
            FinalState::Stable
        } else if known > 0 && absent > present && absent > known {
            FinalState::Lost
        } else {
            FinalState::NeverRead
        }
    }

    /// Was it missing from a read that began after it was known?
    fn is_stale(&self) -> bool {
        let both = self.absent.zip(self.known);
        both.is_some_and(|(absent, known)| absent.index > known.index)
    }

    /// Nanoseconds from when it was known until just after `last`.
    fn latency(&self, last: Option<OperationTime>) -> i64 {
        let known = self.known.map_or(0, |known| known.time);
        let end = last.map_or(0, |last| last.time.saturating_add(1));
        end.saturating_sub(known).max(0)
    }
}

impl DataType for SetFull {
    type State = SetFullState;
    const NAME: &'static str = "set-full";
    const FUNCTIONS: &'static [&'static str] = &["add", "read"];
    const INTEGER_READS: &'static [&'static str] = &["read"];

    fn model(&self) -> Option<&'static str> {
        Some(self.visibility.name())
    }

    fn apply(&self, state: &mut SetFullState, event: &OperationEvent<'_>) {
        match (event.kind, event.f == "add") {
            (OpType::Invoke, true) => {
                state.followed(&event.value.into()).attempts += 1;
            }
            (kind @ (OpType::Ok | OpType::Fail), true) => {
                let one = state.followed(&event.argument().into());
                if kind == OpType::Fail {
                    one.failures += 1;
                } else {
                    one.attempts = one.attempts.max(1);
                    one.known.get_or_insert(OperationTime {
                        index: event.index,
                        time: event.time,
                    });
                }
            }
            (OpType::Ok, false)
                if event.integers.is_some() || !matches!(event.value, Value::Nil) =>
            {
                if let Some(began) = event.invocation {
                    state.read(event, began.into());
                }
            }
            _ => {}
        }
    }

    fn finish(&self, mut state: SetFullState, builder: &mut VerdictBuilder) {
        state.settle_all();
        builder.count("reads", state.reads);
        builder.count("attempts", state.followed.len() as u64);
        let mut results = ResultsByState::default();
        let followed = state.followed.sorted();
        for (element, one) in followed.iter().map(|one| (&one.0, one.1)) {
            results.add(element, one);
            if self.visibility == Visibility::Linearizable
                && one.final_state() == FinalState::Stable
                && one.is_stale()
            {
                builder.anomaly("stale", || stale(element, one));
            }
            if let Some(reader) = one.reader.filter(|_| one.attempts == one.failures) {
                builder.anomaly("aborted-read", || {
                    let summary =
                        format!("Op {reader} read {element}, of which every addition failed.");
                    (vec![reader], summary)
                });
            }
        }
        for &(element, one) in &results.lost {
            builder.anomaly("lost", || lost(element, one));
        }
        for (element, (times, index)) in &state.duplicated {
            builder.anomaly("duplicated", || {
                (
                    vec![*index],
                    format!("Op {index} read {element} {times} times."),
                )
            });
        }
        let never = |element: &&Element| !state.followed.contains(element);
        let unexpected: Vec<&Element> = state.unexpected.keys().filter(never).collect();
        for element in &unexpected {
            let index = state.unexpected[*element];
            builder.anomaly("unexpected", || {
                let summary =
                    format!("Op {index} read {element}, which no operation tried to add.");
                (vec![index], summary)
            });
        }
        builder.list("unexpected", unexpected.into_iter());
        builder.list("duplicated", state.duplicated.keys());
        let is_empty = results.stable == 0;
        results.report(builder);
        if let Some(index) = state.refused {
            builder.unknown(format!("op {index}: the read saw no set"));
        } else if is_empty {
            builder.no_evidence("no element was ever read for good");
        }
    }
}

fn stale(element: &Element, one: &ElementReads) -> (Vec<u64>, String) {
    let [known, absent] = [one.known, one.absent].map(|moment| moment.map_or(0, |at| at.index));
    let summary = format!(
        "{element} was there as of op {known}, but a read that began later (op {absent}) does not have it."
    );
    (vec![known, absent], summary)
}

fn lost(element: &Element, one: &ElementReads) -> (Vec<u64>, String) {
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

/// Elements by their state at the end.
#[derive(Default)]
struct ResultsByState<'a> {
    stable: u64,
    lost: Vec<(&'a Element, &'a ElementReads)>,
    never: Vec<&'a Element>,
    stale: Vec<&'a Element>,
    /// The stale ones with the longest latencies, in nanoseconds.
    worst_stale: Vec<(i64, &'a Element, &'a ElementReads)>,
    stable_latencies: Vec<i64>,
    lost_latencies: Vec<i64>,
}

impl<'a> ResultsByState<'a> {
    fn add(&mut self, element: &'a Element, one: &'a ElementReads) {
        match one.final_state() {
            FinalState::Stable => {
                self.stable += 1;
                let latency = one.absent.map_or(0, |_| one.latency(one.absent));
                self.stable_latencies.push(latency);
                if one.is_stale() {
                    self.stale.push(element);
                    let worst = &mut self.worst_stale;
                    let place = worst.partition_point(|other| other.0 >= latency);
                    worst.insert(place, (latency, element, one));
                    worst.truncate(WORST_MAX);
                }
            }
            FinalState::Lost => {
                self.lost.push((element, one));
                self.lost_latencies
                    .push(one.present.map_or(0, |_| one.latency(one.present)));
            }
            FinalState::NeverRead => self.never.push(element),
        }
    }

    fn report(self, builder: &mut VerdictBuilder) {
        builder.count("stable", self.stable);
        builder.list("lost", self.lost.iter().map(|one| one.0));
        builder.list("never_read", self.never.into_iter());
        builder.list("stale", self.stale.into_iter());
        let worst = self.worst_stale.into_iter();
        let worst = worst.map(|(latency, element, one)| {
            let index = |moment: Option<OperationTime>| moment.map(|moment| moment.index);
            let about = json!({
                "element": element.to_string(),
                "outcome": "stable",
                "stable_latency_ms": latency / 1_000_000,
                "known": index(one.known),
                "last_absent": index(one.absent),
            });
            (latency, about)
        });
        builder.worst("worst_stale", worst.collect());
        builder.samples("stable_latencies_ms", self.stable_latencies);
        builder.samples("lost_latencies_ms", self.lost_latencies);
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

    fn robustness(&self) -> Robustness {
        Robustness {
            // An element may become visible later; a linearizable set shows it at once.
            explained_by_end: match self.visibility {
                Visibility::Linearizable => &[],
                Visibility::Eventual => &["lost"],
            },
            certain: CertainAnomalies::Only(&["duplicated"]),
            ..Robustness::OF_PREFIX
        }
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}

#[cfg(test)]
mod tests;
