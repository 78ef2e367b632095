//! The points and distributions of the latency charts, and the rates, in bounded memory.

use crate::series::{Functions, TimeWindows};
use seatrial_history::{Fold, OpType};
use seatrial_query as query;
use seatrial_query::Distribution;
use std::collections::{BTreeMap, BTreeSet};

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

/// Latency points on a page.
pub(crate) const POINTS_MAX: usize = 30_000;
/// What share of all points failed operations may take, and unknown ones.
const RARE_SHARE: usize = 6;
/// For how many points there is a slice of time whose two extremes stay.
const SLICE_SHARE: usize = 8;
/// Decides which operations are drawn of too many.
const SEED: u64 = 1;

/// How many points of operations that ended so may be drawn when there are too many, and slices of time among them.
const fn room(kind: OpType) -> usize {
    match kind {
        OpType::Fail | OpType::Info | OpType::Invoke => POINTS_MAX / RARE_SHARE,
        OpType::Ok => POINTS_MAX - 2 * (POINTS_MAX / RARE_SHARE),
    }
}

/// LatencyChart by window and function, and the points that are drawn: two queries over the completed operations whose times
/// are known, in memory that does not grow with the history (a [`Distribution`] for each window and function, some tens of
/// thousands of points).
#[derive(Debug, Default)]
pub(crate) struct LatencyChart {
    /// By window and number of the function.
    pub(crate) by_window: BTreeMap<(usize, u8), Distribution>,
    /// The points that are drawn, by time.
    pub(crate) points: Vec<Point>,
    /// Operations that completed, of which the points are a sample.
    pub(crate) completed: u64,
}

/// The points of operations that ended alike.
struct Sampled {
    count: u64,
    /// As many as may ever be drawn, each as likely as any other, in random order.
    sample: Vec<Point>,
    /// The fastest and the slowest of each slice of time.
    extremes: Vec<Point>,
}

/// Asks for all latencies of a history.
///
/// Operations that failed or stayed unknown are what a reader looks for, so each of these two types may take up to a sixth
/// of the room and is only thinned beyond that. Within a type the time is cut into slices; the fastest and the slowest of
/// every slice stay, the rest is a sample. So no outlier is lost, and density survives roughly.
pub(crate) fn latencies(
    windows: &TimeWindows,
    functions: &Functions,
) -> impl Fold<Output = LatencyChart> {
    let point = |latency: &query::Latency<'_>| Point {
        time: latency.invoked(),
        latency: latency.nanos().max(0).cast_unsigned(),
        kind: latency.kind(),
        function: functions.number(latency.f()),
        operation: latency.index(),
    };
    let slice = |point: &Point| windows.slice(point.time, room(point.kind) / SLICE_SHARE);
    query::latencies()
        // A clock that was set back says nothing.
        .filter(|latency| latency.process().is_client() && latency.nanos() >= 0)
        .map(move |latency| point(&latency))
        .fuse(|points| {
            let by_window = points.group_by(
                |point| (windows.slot(point.time), point.function),
                |points| points.map(|point| point.latency).distribution(),
            );
            let by_kind = points.group_by(
                |point| point.kind,
                |points| {
                    let sample = points.sample(POINTS_MAX, SEED, |point| point.operation);
                    let extremes = points.group_by(slice, |points| {
                        points.fuse(|points| {
                            (
                                points.min_by_key(|point| point.latency),
                                points.max_by_key(|point| point.latency),
                            )
                        })
                    });
                    points.fuse(|points| (points.count(), sample, extremes))
                },
            );
            (by_window, by_kind)
        })
        .post(|(by_window, by_kind)| {
            let by_kind = by_kind
                .into_iter()
                .map(|(kind, (count, sample, extremes))| {
                    let extremes = extremes.into_values();
                    let extremes = extremes.flat_map(|(fastest, slowest)| [fastest, slowest]);
                    let extremes = extremes.flatten().collect();
                    let sampled = Sampled {
                        count,
                        sample,
                        extremes,
                    };
                    (kind, sampled)
                });
            let mut by_kind: BTreeMap<OpType, Sampled> = by_kind.collect();
            LatencyChart {
                by_window,
                completed: by_kind.values().map(|sampled| sampled.count).sum(),
                points: choose(&mut by_kind),
            }
        })
}

/// The points that are drawn, by time: all of them when they fit.
fn choose(by_kind: &mut BTreeMap<OpType, Sampled>) -> Vec<Point> {
    let completed: u64 = by_kind.values().map(|sampled| sampled.count).sum();
    let mut chosen: Vec<Point> = Vec::new();
    for kind in [OpType::Info, OpType::Fail, OpType::Ok] {
        let Some(sampled) = by_kind.remove(&kind) else {
            continue;
        };
        let room = match kind {
            OpType::Ok => POINTS_MAX - chosen.len(),
            _ if completed <= POINTS_MAX as u64 => POINTS_MAX,
            kind => room(kind),
        };
        chosen.extend(sampled.thinned(room));
    }
    chosen.sort_by_key(|point| (point.time, point.operation));
    assert!(chosen.len() <= POINTS_MAX, "{} points", chosen.len());
    chosen
}

impl Sampled {
    /// At most `room` of the points: the extremes, then the sample.
    fn thinned(self, room: usize) -> Vec<Point> {
        if self.count <= room as u64 {
            assert_eq!(self.sample.len() as u64, self.count, "all that fit");
            return self.sample;
        }
        let mut seen = BTreeSet::new();
        let all = self.extremes.into_iter().chain(self.sample);
        all.filter(|point| seen.insert(point.operation))
            .take(room)
            .collect()
    }
}

/// The quantiles that are drawn: half, one in twenty, one in a hundred, the slowest.
pub(crate) const QUANTILES: [f64; 4] = [0.5, 0.95, 0.99, 1.0];

impl LatencyChart {
    /// For each quantile its value in nanoseconds in each window, up to 0.4 % off where there are many; `None` where
    /// nothing was invoked. Of the operations of one function, or of all.
    pub(crate) fn quantiles(
        &self,
        windows: &TimeWindows,
        function: Option<u8>,
    ) -> [Vec<Option<u64>>; 4] {
        let mut slots = vec![Distribution::default(); windows.count];
        for ((slot, of), distribution) in &self.by_window {
            if function.is_none_or(|function| function == *of) {
                slots[*slot].merge(distribution.clone());
            }
        }
        QUANTILES.map(|quantile| {
            let at = |slot: &Distribution| slot.quantile(quantile).map(|value| value as u64);
            slots.iter().map(at).collect()
        })
    }
}

/// How many operations of each function ended so, window by window, without windows of none. An operation counts when it
/// completes.
pub(crate) type Rates = BTreeMap<(u8, OpType), BTreeMap<usize, u64>>;

/// Asks for all rates of a history.
pub(crate) fn rates(windows: &TimeWindows, functions: &Functions) -> impl Fold<Output = Rates> {
    query::clients()
        .filter(|op| op.kind() != OpType::Invoke && op.time() >= 0)
        .group_by(
            |op| (functions.number(op.f()), op.kind()),
            |ops| ops.group_by(|op| windows.slot(op.time()), |ops| ops.count()),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn random_points(rng: &mut Rng, kind: OpType, count_max: usize) -> Vec<Point> {
        let count = rng.index(count_max) + 1;
        let point = |number: usize| Point {
            time: (rng.word() >> (24 + rng.below(40))) as i64,
            latency: rng.word() >> (24 + rng.below(40)),
            kind,
            function: 0,
            operation: number as u64,
        };
        (0..count).map(point).collect()
    }

    fn sampled(points: &[Point], slices: i64) -> Sampled {
        let last = points.iter().map(|point| point.time).max().unwrap_or(0);
        let mut by_slice: BTreeMap<i64, Vec<Point>> = BTreeMap::new();
        for point in points {
            let slice = i128::from(point.time) * i128::from(slices) / (i128::from(last) + 1);
            by_slice.entry(slice as i64).or_default().push(*point);
        }
        let extremes = by_slice.values().flat_map(|points| {
            let fastest = points.iter().min_by_key(|point| point.latency);
            let slowest = points.iter().max_by_key(|point| point.latency);
            [*fastest.unwrap(), *slowest.unwrap()]
        });
        let sample = query::each::<Point>().sample(POINTS_MAX, SEED, |point| point.operation);
        Sampled {
            count: points.len() as u64,
            extremes: extremes.collect(),
            sample: sample.of(points.iter().copied()),
        }
    }

    #[test]
    fn bounded_and_without_losing_outliers() {
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let points = random_points(&mut rng, OpType::Ok, 4_000);
            let room = 48 + rng.index(1_000);
            let kept = sampled(&points, (room / SLICE_SHARE) as i64).thinned(room);
            let expected = points.len().min(room);
            assert_eq!(kept.len(), expected, "seed {seed}: as many as fit");
            let each: BTreeSet<u64> = kept.iter().map(|point| point.operation).collect();
            assert_eq!(each.len(), kept.len(), "seed {seed}: each once");
            let latencies = |of: &[Point]| {
                let all = || of.iter().map(|point| point.latency);
                (all().min(), all().max())
            };
            assert_eq!(
                latencies(&kept),
                latencies(&points),
                "seed {seed}: extremes"
            );
        }
    }

    #[test]
    fn all_at_one_instant() {
        let point = |operation| Point {
            time: 5,
            latency: 7,
            kind: OpType::Ok,
            function: 0,
            operation,
        };
        let points: Vec<Point> = (0..100).map(point).collect();
        assert_eq!(sampled(&points, 1).thinned(10).len(), 10);
    }

    #[test]
    fn failed_and_unknown_ones_have_room_of_their_own() {
        let mut rng = Rng::from_seed(7);
        let mut by_kind = BTreeMap::new();
        for (kind, count) in [
            (OpType::Ok, 90_000),
            (OpType::Fail, 20_000),
            (OpType::Info, 900),
        ] {
            let mut points = random_points(&mut rng, kind, 1);
            points = (0..count)
                .map(|operation| Point {
                    operation,
                    ..points[0]
                })
                .collect();
            by_kind.insert(kind, sampled(&points, 1));
        }
        let chosen = choose(&mut by_kind);
        let of = |kind| chosen.iter().filter(|point| point.kind == kind).count();
        assert_eq!(chosen.len(), POINTS_MAX);
        assert_eq!(of(OpType::Info), 900);
        assert_eq!(of(OpType::Fail), POINTS_MAX / RARE_SHARE);
    }
}
