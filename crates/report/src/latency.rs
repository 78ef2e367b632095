//! How long operations took.

use crate::series::{Functions, Windows};
use seatrial_history::{History, OpType};

/// One operation that completed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// When it was invoked, in nanoseconds since the test began.
    pub(crate) time: i64,
    /// Nanoseconds until it completed.
    pub(crate) latency: u64,
    /// How it ended.
    pub(crate) kind: OpType,
    /// Number of its function among [`Functions`].
    pub(crate) function: u8,
    /// Index of its invocation.
    pub(crate) operation: u64,
}

/// The latencies of all completed client operations that have times, sorted by the time of invocation.
pub(crate) fn points(history: &History, functions: &Functions) -> Vec<Point> {
    let mut points = Vec::new();
    for (position, op) in history.iter().enumerate() {
        if !op.process.is_client() || !op.is_invoke() || op.time < 0 {
            continue;
        }
        let Some(completion) = history.completion(position) else {
            continue;
        };
        let latency = completion.time.saturating_sub(op.time);
        if let Ok(latency) = u64::try_from(latency) {
            points.push(Point {
                time: op.time,
                latency,
                kind: completion.kind,
                function: functions.number(op.f),
                operation: op.index,
            });
        }
    }
    points.sort_by_key(|point| point.time);
    points
}

/// The quantiles that are drawn: half, one in twenty, one in a hundred, the slowest.
pub(crate) const QUANTILES: [f64; 4] = [0.5, 0.95, 0.99, 1.0];

/// For each quantile its value in nanoseconds in each window; `None` where nothing was invoked. Of the operations of
/// one function, or of all.
pub(crate) fn quantiles(
    points: &[Point],
    windows: &Windows,
    function: Option<u8>,
) -> [Vec<Option<u64>>; 4] {
    let mut slots: Vec<Vec<u64>> = vec![Vec::new(); windows.count];
    for point in points {
        if function.is_none_or(|function| function == point.function) {
            slots[windows.slot(point.time)].push(point.latency);
        }
    }
    let mut lines = [(); 4].map(|()| Vec::with_capacity(windows.count));
    for slot in &mut slots {
        slot.sort_unstable();
        for (line, quantile) in lines.iter_mut().zip(QUANTILES) {
            line.push(at_quantile(slot, quantile));
        }
    }
    lines
}

/// The smallest value that at least this share of the sorted values does not exceed (nearest rank).
pub(crate) fn at_quantile(sorted: &[u64], quantile: f64) -> Option<u64> {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        let found = QUANTILES.map(|quantile| at_quantile(&hundred, quantile));
        assert_eq!(found, [Some(50), Some(95), Some(99), Some(100)]);
        assert_eq!(at_quantile(&[7], 0.5), Some(7));
        assert_eq!(at_quantile(&[], 0.5), None);
    }
}
