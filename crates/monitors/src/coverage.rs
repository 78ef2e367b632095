//! Coverage: which instants lie in critical intervals.

use super::NEVER;
use super::value_table::{ObservationSpan, ValueSpan, ValueTable};

/// For each instant the first one, not before it, that is not covered; [`NEVER`] if there is none.
///
/// Grows by [`UncoveredInstants::cover`], a union-find of instants: each points towards the next uncovered one, and paths are
/// halved on the way. O(log n) amortized for each query, next to constant in practice; 4 bytes for each position.
pub(super) struct UncoveredInstants {
    /// `next[instant] == instant` if it is uncovered. The last element stands for all instants after the history.
    next: Vec<u32>,
}

impl UncoveredInstants {
    /// No instant is covered.
    pub(super) fn all(positions: u32) -> UncoveredInstants {
        UncoveredInstants {
            next: (0..=positions).collect(),
        }
    }

    /// The instants that none of these values covers. O(positions): counts intervals that begin and end, then links backwards.
    pub(super) fn outside(spans: &[ValueSpan], positions: u32) -> UncoveredInstants {
        let mut next = vec![0u32; positions as usize + 1];
        // Differences of the number of covering values, which wrap around.
        for span in spans.iter().filter(|span| critical_len(span) > 0) {
            let begin = &mut next[span.first_ret as usize + 1];
            *begin = begin.wrapping_add(1);
            if span.end < positions {
                let end = &mut next[span.end as usize];
                *end = end.wrapping_sub(1);
            }
        }
        let mut depth = 0u32;
        for count in &mut next {
            depth = depth.wrapping_add(*count);
            *count = depth;
        }
        // After the history all that remains can be removed.
        next[positions as usize] = positions;
        for instant in (0..positions as usize).rev() {
            next[instant] = if next[instant] == 0 {
                instant as u32
            } else {
                next[instant + 1]
            };
        }
        UncoveredInstants { next }
    }

    /// Is there an uncovered instant from `call` to `ret`?
    pub(super) fn has_between(&mut self, call: u32, ret: u32) -> bool {
        self.first_from(call) <= ret
    }

    /// The first uncovered instant that is not before this one.
    pub(super) fn first_from(&mut self, instant: u32) -> u32 {
        let mut at = instant;
        loop {
            let next = self.next[at as usize];
            if next == at {
                return at;
            }
            let after = self.next[next as usize];
            self.next[at as usize] = after;
            at = after;
        }
    }

    /// Covers the critical interval of a value.
    pub(super) fn cover(&mut self, span: &ValueSpan) {
        if critical_len(span) == 0 {
            return;
        }
        let after = span.end.min(self.next.len() as u32 - 1);
        let mut at = self.first_from(span.first_ret + 1);
        while at < after {
            self.next[at as usize] = at + 1;
            at = self.first_from(at + 1);
        }
    }
}

/// Instants in the critical interval.
fn critical_len(span: &ValueSpan) -> u32 {
    if span.is_added() && span.first_ret != NEVER {
        span.end.saturating_sub(span.first_ret.saturating_add(1))
    } else {
        0
    }
}

/// The first observation of an empty collection that has no uncovered instant.
///
/// That each has one is necessary, since a covered instant finds a value in the collection. Each file proves that
/// with the rest of its conditions it is also sufficient.
pub(super) fn covered_empty(table: &ValueTable) -> Option<ObservationSpan> {
    if table.empties.is_empty() {
        return None;
    }
    let mut uncovered = UncoveredInstants::outside(&table.spans, table.positions);
    let mut empties = table.empties.iter();
    empties
        .find(|empty| !uncovered.has_between(empty.call, empty.ret))
        .copied()
}

/// Values among `candidates` whose critical intervals cover all instants from `call` to `ret`: the fewest that do. None if
/// some instant is uncovered. O(n log n).
pub(super) fn cover_of(
    candidates: impl Iterator<Item = (u32, ValueSpan)>,
    call: u32,
    ret: u32,
) -> Option<Vec<u32>> {
    let mut sorted: Vec<_> = candidates
        .filter(|(_, span)| critical_len(span) > 0 && span.end > call && span.first_ret < ret)
        .map(|(value, span)| (span.first_ret, span.end, value))
        .collect();
    sorted.sort_unstable();
    let mut sorted = sorted.into_iter().peekable();
    let mut cover = Vec::new();
    let (mut instant, mut furthest) = (call, (0, 0));
    while instant <= ret {
        // Of those that cover the instant, the one that reaches furthest.
        while let Some((_, end, value)) = sorted.next_if(|&(first, _, _)| first < instant) {
            furthest = furthest.max((end, value));
        }
        let (end, value) = furthest;
        if end <= instant {
            return None;
        }
        cover.push(value);
        // The end itself is not covered: the interval is open.
        instant = end;
        if end == NEVER {
            break;
        }
    }
    Some(cover)
}

/// The values that cover an observation of an empty collection.
pub(super) fn cover_of_empty(table: &ValueTable, empty: &ObservationSpan) -> Vec<u32> {
    let spans = table.spans.iter().enumerate();
    let values = spans.map(|(value, span)| (value as u32, *span));
    let cover = cover_of(values, empty.call, empty.ret);
    cover.expect("an observation without uncovered instant is covered")
}
