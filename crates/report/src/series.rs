//! What charts have in common: functions by number, time cut into windows.

use crate::summary::Summary;
use seatrial_history::{History, Op, OpType, Symbol};

/// Functions with a series of their own; the others share one.
const FUNCTIONS_MAX: usize = 8;

/// The functions of a history, the most frequent first, numbered for charts. Rare ones beyond the eighth share the
/// last number, as `others`.
pub(crate) struct Functions {
    named: Vec<Symbol>,
    others: bool,
}

impl Functions {
    /// The functions that a summary counted.
    pub(crate) fn of(summary: &Summary) -> Functions {
        let mut named: Vec<Symbol> = summary.by_function.keys().copied().collect();
        named.sort_by_key(|f| std::cmp::Reverse(summary.by_function[f].total()));
        let others = named.len() > FUNCTIONS_MAX;
        named.truncate(FUNCTIONS_MAX);
        Functions { named, others }
    }

    /// The number of a function.
    pub(crate) fn number(&self, f: Symbol) -> u8 {
        let found = self.named.iter().position(|named| *named == f);
        found.unwrap_or(self.named.len()) as u8
    }

    /// Names in the order of their numbers.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let others = self.others.then_some("others");
        self.named
            .iter()
            .map(|f| f.as_str())
            .chain(others)
            .collect()
    }
}

/// The time of a history, cut into equal windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Windows {
    /// Begin of the first, in nanoseconds since the test began.
    pub(crate) begin: i64,
    /// Length of each in nanoseconds, at least 1.
    pub(crate) step: i64,
    /// How many, at least 1.
    pub(crate) count: usize,
    /// The last time of the history, in nanoseconds since the test began; in the last window.
    pub(crate) last: i64,
}

/// Windows at most; more would be finer than a screen.
const WINDOWS_MAX: i64 = 150;
/// Windows at least, even when little happened in each.
const WINDOWS_MIN: i64 = 12;
/// Operations that a window should hold on average, so that its quantiles mean something.
const OPERATIONS_PER_WINDOW: i64 = 25;

impl Windows {
    /// Windows over all times of a history, of a length that people like (1, 2 or 5 times a power of ten); `None` when
    /// it has no times.
    pub(crate) fn over(history: &History, operations: u64) -> Option<Windows> {
        let times = || history.iter().map(|op| op.time).filter(|time| *time >= 0);
        let (first, last) = (times().min()?, times().max()?);
        // Tests begin at 0; a history whose first operation came late by its own measure begins with it.
        let begin = if first > (last - first).max(1) {
            first
        } else {
            0
        };
        let length = last - begin + 1;
        let operations = i64::try_from(operations).unwrap_or(i64::MAX).max(1);
        let wanted = (operations / OPERATIONS_PER_WINDOW).clamp(WINDOWS_MIN, WINDOWS_MAX);
        let step = pleasant(length / wanted + 1);
        let count = (length as u64).div_ceil(step as u64) as usize;
        Some(Windows {
            begin,
            step,
            count,
            last,
        })
    }

    /// The window of a time; times outside belong to the nearest.
    pub(crate) fn slot(&self, time: i64) -> usize {
        let elapsed = time.saturating_sub(self.begin).max(0);
        ((elapsed / self.step) as usize).min(self.count - 1)
    }

    /// End of the last window, in nanoseconds since the test began.
    pub(crate) fn end(&self) -> i64 {
        self.begin
            .saturating_add(self.step.saturating_mul(self.count as i64))
    }
}

/// The smallest of 1, 2, 5, 10, 20, 50, … that is not below `length`.
fn pleasant(length: i64) -> i64 {
    let mut power = 1_i64;
    loop {
        for factor in [1, 2, 5] {
            match power.checked_mul(factor) {
                Some(step) if step >= length => return step,
                Some(_) => {}
                None => return length.max(1),
            }
        }
        power = power.saturating_mul(10);
    }
}

/// How many operations of one function ended in one way, window by window.
#[derive(Debug, PartialEq)]
pub(crate) struct Rate {
    /// Number of the function.
    pub(crate) function: u8,
    /// How they ended.
    pub(crate) kind: OpType,
    /// Completions in each window.
    pub(crate) counts: Vec<u64>,
}

/// All rates that are not zero everywhere, by function and type. An operation counts when it completes.
pub(crate) fn rates(history: &History, functions: &Functions, windows: &Windows) -> Vec<Rate> {
    let mut rates: Vec<Rate> = Vec::new();
    let completed = |op: &&Op| op.process.is_client() && !op.is_invoke() && op.time >= 0;
    for op in history.iter().filter(completed) {
        let (function, kind) = (functions.number(op.f), op.kind);
        let found = rates
            .iter()
            .position(|rate| (rate.function, rate.kind) == (function, kind));
        let position = found.unwrap_or_else(|| {
            rates.push(Rate {
                function,
                kind,
                counts: vec![0; windows.count],
            });
            rates.len() - 1
        });
        rates[position].counts[windows.slot(op.time)] += 1;
    }
    rates.sort_by_key(|rate| (rate.function, rate.kind));
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{Process, Value};

    fn history(times: &[i64]) -> History {
        let op = |time: &i64| Op {
            time: *time,
            ..Op::invoke(Process::Client(0), "read", Value::Nil)
        };
        History::from_unindexed(times.iter().map(op).collect())
    }

    #[test]
    fn windows_cover_all_times() {
        let cases: [&[i64]; 5] = [
            &[0],
            &[0, 30_000_000_000],
            &[1_700_000_000_000_000_000, 1_700_000_000_000_000_001],
            &[5, i64::MAX - 1],
            &[999, -1, 0],
        ];
        for times in cases {
            let windows = Windows::over(&history(times), 1_000_000).unwrap();
            assert!(windows.count <= WINDOWS_MAX as usize + 1, "{windows:?}");
            for time in times.iter().filter(|time| **time >= 0) {
                let slot = windows.slot(*time) as i64;
                let begin = windows.begin + slot * windows.step;
                assert!(
                    begin <= *time && *time - begin < windows.step,
                    "{time} in {windows:?}"
                );
            }
        }
        assert_eq!(Windows::over(&history(&[-1]), 1), None);
        assert_eq!(Windows::over(&history(&[]), 0), None);
    }

    #[test]
    fn few_operations_make_wide_windows() {
        let history = history(&[0, 30_000_000_000]);
        let windows = |operations| Windows::over(&history, operations).unwrap().count;
        assert_eq!(windows(10), 7);
        assert_eq!(windows(1_000), 31);
        assert_eq!(windows(1_000_000), 61);
    }

    #[test]
    fn pleasant_lengths() {
        assert_eq!(
            [0, 1, 3, 6, 10, 11, 2_001].map(pleasant),
            [1, 1, 5, 10, 10, 20, 5_000]
        );
        assert!(pleasant(i64::MAX) == i64::MAX);
    }

    #[test]
    fn rare_functions_share_a_number() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let ops = names.iter().enumerate().flat_map(|(number, name)| {
            let op = Op::invoke(Process::Client(number as u64), *name, Value::Nil);
            vec![op.clone(), op.complete(OpType::Ok, Value::Nil)]
        });
        let summary = Summary::of(&History::from_unindexed(ops.collect()));
        let functions = Functions::of(&summary);
        assert_eq!(
            functions.names(),
            ["a", "b", "c", "d", "e", "f", "g", "h", "others"]
        );
        assert_eq!(functions.number(Symbol::new("j")), 8);
    }
}
