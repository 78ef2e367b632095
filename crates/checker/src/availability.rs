//! When operations succeeded, and when none did.

use crate::{Aims, Checker, Details, Figures, FoldChecker, OnlineChecker, Verdict, check_source};
use seatrial_history::chunk::Token;
use seatrial_history::{Chunk, FixedMap, Fold, History, OpType, Order};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Share of operations that succeeded, over time, by function and by node, and the longest time in which none did. Always
/// valid; unknown without a completion that has a time.
///
/// The node of an operation is the extra field `node` of its completion. Completions of clients count; an invocation without
/// completion does not. Memory: `WINDOWS_MAX` windows for each function, whatever the length of the history, and the first
/// `NODES_MAX` nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Availability;

/// Windows of equal length into which the time is divided, at most; half of it at least, when there are as many events.
const WINDOWS_MAX: usize = 128;
/// Length of a window at first, in nanoseconds. It doubles.
const WINDOW_MIN: i64 = 1 << 20;
/// Nodes and functions that are distinguished.
const NODES_MAX: usize = 1_000;

/// Completions, and those of them that are `ok`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OutcomeShare {
    /// Completions.
    pub count: u64,
    /// Completions `ok`.
    pub ok_count: u64,
    /// Their share; `None` without completions.
    pub ok_fraction: Option<f64>,
}

/// A time in which no operation succeeded, in nanoseconds since the test began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnavailableTime {
    /// The last success before it, or the first completion.
    pub begin: i64,
    /// The first success after it, or the last completion.
    pub end: i64,
}

impl UnavailableTime {
    fn length(&self) -> i64 {
        self.end.saturating_sub(self.begin)
    }
}

/// Availability of one function, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FunctionAvailability {
    /// Over the whole time.
    #[serde(flatten)]
    pub share: OutcomeShare,
    /// The longest time without success; `None` without completions.
    pub longest_unavailable: Option<UnavailableTime>,
    /// Share of the time in windows in which some operation completed and none succeeded.
    pub unavailable_windows: u64,
    /// By window, from the first on: completions and successes.
    pub windows: Vec<(u64, u64)>,
}

/// Figures of [`Availability`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AvailabilityFigures {
    /// Length of a window in nanoseconds.
    pub window: i64,
    /// Begin of the first window in nanoseconds since the test began.
    pub begin: i64,
    /// All functions together.
    #[serde(flatten)]
    pub all: FunctionAvailability,
    /// By function.
    pub by_function: BTreeMap<&'static str, FunctionAvailability>,
    /// By node, where completions name one.
    pub by_node: BTreeMap<String, OutcomeShare>,
}

/// The completions of one function so far.
#[derive(Clone, Debug, Default)]
struct Successes {
    count: u64,
    ok_count: u64,
    first: i64,
    last: i64,
    last_ok: i64,
    longest: UnavailableTime,
    windows: Vec<(u64, u64)>,
}

impl Successes {
    fn add(&mut self, time: i64, is_ok: bool, window: usize) {
        if self.count == 0 {
            (self.first, self.last, self.last_ok) = (time, time, time);
            self.longest = UnavailableTime {
                begin: time,
                end: time,
            };
        }
        self.count += 1;
        // Times may go back by a little; what is earlier than the last success is no end.
        self.last = self.last.max(time);
        if window >= self.windows.len() {
            self.windows.resize(window + 1, (0, 0));
        }
        self.windows[window].0 += 1;
        if is_ok {
            self.windows[window].1 += 1;
            self.ok_count += 1;
            self.extend(time);
            self.last_ok = self.last_ok.max(time);
        }
    }

    /// Takes the time from the last success to `end` into account.
    fn extend(&mut self, end: i64) {
        let gap = UnavailableTime {
            begin: self.last_ok,
            end,
        };
        if self.longest.length() < gap.length() {
            self.longest = gap;
        }
    }

    /// Windows of double length.
    fn halve(&mut self) {
        let pairs = self.windows.chunks(2);
        let sum = |pair: &[(u64, u64)]| {
            let counts = pair.iter().map(|one| one.0).sum();
            (counts, pair.iter().map(|one| one.1).sum())
        };
        self.windows = pairs.map(sum).collect();
    }

    fn into_figures(mut self) -> FunctionAvailability {
        if self.count > 0 {
            self.extend(self.last);
        }
        let windows = self.windows.iter();
        let without = windows.filter(|(count, ok)| *count > 0 && *ok == 0);
        FunctionAvailability {
            share: share(self.count, self.ok_count),
            longest_unavailable: (self.count > 0).then_some(self.longest),
            unavailable_windows: without.count() as u64,
            windows: self.windows,
        }
    }
}

fn share(count: u64, ok_count: u64) -> OutcomeShare {
    let ok_fraction = (count > 0).then(|| ok_count as f64 / count as f64);
    OutcomeShare {
        count,
        ok_count,
        ok_fraction,
    }
}

/// The completions so far.
#[derive(Default)]
struct AvailabilityCounts {
    /// Time of the first completion: where the first window begins.
    begin: Option<i64>,
    window: i64,
    all: Successes,
    by_function: BTreeMap<&'static str, Successes>,
    by_node: FixedMap<String, (u64, u64)>,
}

impl AvailabilityCounts {
    /// The window of a time. When there are too many, all become twice as long.
    fn window(&mut self, time: i64) -> usize {
        let begin = *self.begin.get_or_insert(time);
        self.window = self.window.max(WINDOW_MIN);
        loop {
            let place = time.saturating_sub(begin).max(0) / self.window;
            if let Ok(place) = usize::try_from(place)
                && place < WINDOWS_MAX
            {
                return place;
            }
            self.window = self.window.saturating_mul(2);
            self.all.halve();
            self.by_function.values_mut().for_each(Successes::halve);
        }
    }
}

/// The fold of [`Availability`].
struct AvailabilityFold;

impl Fold for AvailabilityFold {
    type Accumulator = AvailabilityCounts;
    type Output = Verdict;

    fn name(&self) -> String {
        "availability".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> AvailabilityCounts {
        AvailabilityCounts::default()
    }

    fn reduce(&self, counts: &mut AvailabilityCounts, chunk: &Chunk) -> ControlFlow<()> {
        let is_client = chunk.processes().iter().map(|one| one.is_client());
        let is_client: Vec<bool> = is_client.collect();
        // Taken out of the tree for the length of a chunk, so that an operation costs no search.
        let mut functions: Vec<(&'static str, Successes)> = Vec::new();
        let fs = chunk.template_fs().map(|f| f.as_str());
        let of_template: Vec<Option<usize>> = fs
            .map(|f| {
                if let Some(known) = functions.iter().position(|one| one.0 == f) {
                    return Some(known);
                }
                let is_known = counts.by_function.contains_key(f);
                if !is_known && counts.by_function.len() + functions.len() >= NODES_MAX {
                    return None;
                }
                functions.push((f, counts.by_function.remove(f).unwrap_or_default()));
                Some(functions.len() - 1)
            })
            .collect();
        let columns = chunk.kinds().iter().zip(chunk.process_ids());
        let columns = columns.zip(chunk.times()).zip(chunk.template_ids());
        let has_extra = chunk.has_extra();
        for (place, (((kind, process), time), template)) in columns.enumerate() {
            if *kind == OpType::Invoke || !is_client[*process as usize] {
                continue;
            }
            let is_ok = *kind == OpType::Ok;
            if has_extra {
                counts.node(chunk, place, is_ok);
            }
            // A negative time is unknown.
            if *time < 0 {
                continue;
            }
            let before = counts.window;
            let window = counts.window(*time);
            let mut length = before.max(WINDOW_MIN);
            while length < counts.window {
                for one in &mut functions {
                    one.1.halve();
                }
                length *= 2;
            }
            counts.all.add(*time, is_ok, window);
            if let Some(number) = of_template[*template as usize] {
                functions[number].1.add(*time, is_ok, window);
            }
        }
        let seen = functions.into_iter().filter(|(_, one)| one.count > 0);
        counts.by_function.extend(seen);
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut AvailabilityCounts, _: AvailabilityCounts) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, counts: AvailabilityCounts) -> Verdict {
        let verdict = Verdict::valid("availability");
        let is_empty = counts.all.count == 0;
        let by_function = counts.by_function.into_iter();
        let by_node = counts.by_node.into_iter();
        let figures = AvailabilityFigures {
            window: counts.window,
            begin: counts.begin.unwrap_or_default(),
            all: counts.all.into_figures(),
            by_function: by_function
                .map(|(f, one)| (f, one.into_figures()))
                .collect(),
            by_node: by_node
                .map(|(node, (count, ok))| (node, share(count, ok)))
                .collect(),
        };
        let mut verdict = if is_empty {
            verdict.unknown("no client operation completed at a known time")
        } else {
            verdict
        };
        verdict.details = Details::of(Figures::Availability(Box::new(figures)));
        verdict
    }
}

impl AvailabilityCounts {
    /// Counts the completion at `place` for the node that it names.
    fn node(&mut self, chunk: &Chunk, place: usize, is_ok: bool) {
        let mut extra = chunk.extra(place);
        let Some((_, mut tape)) = extra.find(|(name, _)| *name == "node") else {
            return;
        };
        let node = match tape.next() {
            Some(Token::Text(node)) => node,
            Some(Token::Word(node)) => node.as_str(),
            _ => return,
        };
        if let Some(counts) = self.by_node.get_mut(node) {
            counts.0 += 1;
            counts.1 += u64::from(is_ok);
        } else if self.by_node.len() < NODES_MAX {
            self.by_node.insert(node.to_owned(), (1, u64::from(is_ok)));
        }
    }
}

impl Checker for Availability {
    fn name(&self) -> &'static str {
        "availability"
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(self.name()).unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new("availability", AvailabilityFold))
    }
}

#[cfg(test)]
mod tests;
