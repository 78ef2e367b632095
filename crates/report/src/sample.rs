//! Fewer points that tell the same story.

use crate::latency::Point;
use seatrial_history::OpType;

/// What share of all points failed operations may take, and unknown ones.
const RARE_SHARE: usize = 6;
/// For how many points there is a slice of time whose two extremes stay.
const SLICE_SHARE: usize = 8;

/// Which of `points` (sorted by time) to show so that at most `points_max` are: positions in rising order. All of
/// them when they fit.
///
/// Operations that failed or stayed unknown are the story, so each of these two types may take up to a sixth of the
/// room and is only thinned beyond that. Within a type the time is cut into slices; the fastest and the slowest of
/// every slice stay, the rest is thinned evenly. So no outlier is lost, and density survives roughly.
pub(crate) fn sample(points: &[Point], points_max: usize) -> Vec<usize> {
    if points.len() <= points_max {
        return (0..points.len()).collect();
    }
    let of_type = |kind: OpType| -> Vec<usize> {
        let all = points.iter().enumerate();
        all.filter(|(_, point)| point.kind == kind)
            .map(|(position, _)| position)
            .collect()
    };
    let mut kept = Vec::with_capacity(points_max);
    for kind in [OpType::Info, OpType::Fail] {
        kept.extend(thin(points, &of_type(kind), points_max / RARE_SHARE));
    }
    kept.extend(thin(points, &of_type(OpType::Ok), points_max - kept.len()));
    kept.sort_unstable();
    kept
}

/// At most `room` of `positions`: the extremes of `room / 8` slices of time, then every so many of the others.
fn thin(points: &[Point], positions: &[usize], room: usize) -> Vec<usize> {
    if positions.len() <= room {
        return positions.to_vec();
    }
    let mut kept = extremes(points, positions, room / SLICE_SHARE);
    debug_assert!(kept.len() <= room);
    let rest: Vec<usize> = positions
        .iter()
        .copied()
        .filter(|position| kept.binary_search(position).is_err())
        .collect();
    let room = room - kept.len();
    kept.extend((0..room).map(|number| rest[number * rest.len() / room]));
    kept
}

/// The fastest and the slowest point of each of `slices` equal slices of time, sorted, each once.
fn extremes(points: &[Point], positions: &[usize], slices: usize) -> Vec<usize> {
    let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
        return Vec::new();
    };
    if slices == 0 {
        return Vec::new();
    }
    let begin = i128::from(points[*first].time);
    let length = i128::from(points[*last].time) - begin + 1;
    let mut found: Vec<Option<(usize, usize)>> = vec![None; slices];
    for &position in positions {
        let elapsed = i128::from(points[position].time) - begin;
        let slice = (elapsed * slices as i128 / length) as usize;
        let (fastest, slowest) = found[slice].get_or_insert((position, position));
        let latency = points[position].latency;
        if latency < points[*fastest].latency {
            *fastest = position;
        }
        if latency > points[*slowest].latency {
            *slowest = position;
        }
    }
    let mut kept: Vec<usize> = found
        .into_iter()
        .flatten()
        .flat_map(|(fastest, slowest)| [fastest, slowest])
        .collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn random_points(rng: &mut Rng) -> Vec<Point> {
        let count = rng.index(4_000);
        let (fail, info) = (rng.unit().powi(3), rng.unit().powi(3));
        let mut points: Vec<Point> = (0..count)
            .map(|number| {
                let drawn = (rng.chance(info), rng.chance(fail));
                let kind = match drawn {
                    (true, _) => OpType::Info,
                    (false, true) => OpType::Fail,
                    (false, false) => OpType::Ok,
                };
                Point {
                    time: (rng.word() >> (24 + rng.below(40))) as i64,
                    latency: rng.word() >> (24 + rng.below(40)),
                    kind,
                    function: 0,
                    operation: number as u64,
                }
            })
            .collect();
        points.sort_by_key(|point| point.time);
        points
    }

    #[test]
    fn bounded_and_without_losing_outliers() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let points = random_points(&mut rng);
            let points_max = 48 + rng.index(1_000);
            let kept = sample(&points, points_max);
            assert!(
                kept.is_sorted_by(|a, b| a < b),
                "seed {seed}: each once, in order"
            );
            assert_eq!(
                kept.len().min(points_max),
                kept.len(),
                "seed {seed}: the bound"
            );
            if points.len() <= points_max {
                assert_eq!(kept.len(), points.len(), "seed {seed}: all that fit");
                continue;
            }
            for kind in [OpType::Ok, OpType::Fail, OpType::Info] {
                let of = |position: &usize| points[*position].kind == kind;
                let all: Vec<usize> = (0..points.len()).filter(of).collect();
                let shown: Vec<usize> = kept.iter().copied().filter(of).collect();
                let latency = |position: &usize| points[*position].latency;
                let slowest = |of: &[usize]| of.iter().map(latency).max();
                let fastest = |of: &[usize]| of.iter().map(latency).min();
                assert_eq!(
                    slowest(&all),
                    slowest(&shown),
                    "seed {seed}: the slowest {kind:?}"
                );
                assert_eq!(
                    fastest(&all),
                    fastest(&shown),
                    "seed {seed}: the fastest {kind:?}"
                );
                if kind != OpType::Ok && all.len() <= points_max / RARE_SHARE {
                    assert_eq!(all, shown, "seed {seed}: every {kind:?}");
                }
            }
        }
    }

    #[test]
    fn all_at_one_instant() {
        let point = Point {
            time: 5,
            latency: 7,
            kind: OpType::Ok,
            function: 0,
            operation: 0,
        };
        assert_eq!(sample(&[point; 100], 10).len(), 10);
        assert_eq!(sample(&[], 10), [0_usize; 0]);
    }
}
