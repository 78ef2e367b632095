//! What charts have in common: functions by number, time cut into windows.

use seatrial_checker::Counts;
use seatrial_history::Symbol;
use std::collections::BTreeMap;

/// Functions with a series of their own; the others share one.
const FUNCTIONS_MAX: usize = 8;

/// The functions of a history, the most frequent first, numbered for charts. Rare ones beyond the eighth share the
/// last number, as `others`.
#[derive(Debug)]
pub(crate) struct Functions {
    named: Vec<Symbol>,
    others: bool,
}

impl Functions {
    /// The functions that these counts name.
    pub(crate) fn of(by_function: &BTreeMap<&'static str, Counts>) -> Functions {
        let mut named: Vec<&'static str> = by_function.keys().copied().collect();
        named.sort_by_key(|f| std::cmp::Reverse(by_function[f].count));
        let mut named: Vec<Symbol> = named.into_iter().map(Symbol::new).collect();
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
pub(crate) struct TimeWindows {
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

impl TimeWindows {
    /// Windows from the first to the last of these times, of a length that people like (1, 2 or 5 times a power of ten).
    pub(crate) fn over((first, last): (i64, i64), operations: u64) -> TimeWindows {
        assert!(0 <= first && first <= last, "{first} to {last}");
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
        TimeWindows {
            begin,
            step,
            count,
            last,
        }
    }

    /// The slice of a time when all windows together are cut into `slices` equal ones.
    pub(crate) fn slice(&self, time: i64, slices: usize) -> usize {
        let elapsed = i128::from(time.saturating_sub(self.begin).max(0));
        let length = i128::from(self.last) - i128::from(self.begin) + 1;
        let slice = (elapsed * slices as i128 / length) as usize;
        slice.min(slices.saturating_sub(1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_all_times() {
        let cases: [&[i64]; 5] = [
            &[0],
            &[0, 30_000_000_000],
            &[1_700_000_000_000_000_000, 1_700_000_000_000_000_001],
            &[5, i64::MAX - 1],
            &[0, 999],
        ];
        for times in cases {
            let ends = (times[0], times[times.len() - 1]);
            let windows = TimeWindows::over(ends, 1_000_000);
            assert!(windows.count <= WINDOWS_MAX as usize + 1, "{windows:?}");
            for time in times {
                let slot = windows.slot(*time) as i64;
                let begin = windows.begin + slot * windows.step;
                assert!(
                    begin <= *time && *time - begin < windows.step,
                    "{time} in {windows:?}"
                );
                assert!(windows.slice(*time, 7) < 7);
            }
        }
    }

    #[test]
    fn few_operations_make_wide_windows() {
        let windows = |operations| TimeWindows::over((0, 30_000_000_000), operations).count;
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
        let counts = names.map(|name| (name, Counts::default()));
        let functions = Functions::of(&counts.into());
        assert_eq!(
            functions.names(),
            ["a", "b", "c", "d", "e", "f", "g", "h", "others"]
        );
        assert_eq!(functions.number(Symbol::new("j")), 8);
    }
}
