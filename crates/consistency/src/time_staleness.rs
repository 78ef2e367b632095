//! Staleness by time: by how much must reads begin earlier for the history to be linearizable?

use crate::register_history::RegisterHistory;
use crate::value_clusters::WriteCluster;

/// A write and the reads of its value, by time in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct TimedZone {
    /// The first completion.
    low: i64,
    /// The invocation of the write.
    write_call: i64,
    /// The last invocation of a read; `i64::MIN` without reads.
    read_call: i64,
    /// That read, if there is one.
    read: Option<u32>,
    cluster: u32,
}

impl TimedZone {
    /// The last invocation when reads begin `earlier`.
    fn high(&self, earlier: i64) -> i64 {
        self.write_call.max(self.read_call.saturating_sub(earlier))
    }

    fn is_forward(&self, earlier: i64) -> bool {
        self.high(earlier) > self.low
    }
}

/// The staleness of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeStaleness {
    /// Nanoseconds by which reads must begin earlier, at least.
    pub(crate) delta: i64,
    /// Two clusters that contradict each other with any less; `None` if the delta is 0.
    pub(crate) conflict: Option<(u32, u32)>,
}

/// The least Δ for which the history of a key is linearizable once each read begins Δ earlier (Δ-atomicity: Golab, Li and Shah
/// 2011). Times are those of the operations, so clocks of one machine are assumed; operations at the same time are concurrent.
///
/// A write and the reads of its value form a zone from their first completion to their last invocation; two zones contradict
/// each other if and only if each begins before the other ends (Gibbons and Korach 1997). Earlier reads only shorten zones, so
/// the least Δ is found by bisection: O(n log n log T) for a duration of T nanoseconds, O(n log n) if the history is
/// linearizable. Memory O(n).
pub(crate) fn time_staleness(
    history: &RegisterHistory,
    clusters: &[WriteCluster],
) -> TimeStaleness {
    let zones = clusters.iter().zip(0..);
    let zones = zones.map(|(cluster, number)| zone(history, cluster, number));
    let mut zones: Vec<TimedZone> = zones.collect();
    zones.sort_by_key(|zone| (zone.low, zone.cluster));
    let Some(mut conflict) = first_conflict(&zones, 0) else {
        return TimeStaleness {
            delta: 0,
            conflict: None,
        };
    };
    let latest = zones.iter().map(|zone| zone.read_call).max();
    let first = zones
        .iter()
        .map(|zone| zone.low)
        .filter(|&low| low > i64::MIN);
    let longest = latest.unwrap_or(0).saturating_sub(first.min().unwrap_or(0));
    let (mut fails, mut holds) = (0, longest.max(1));
    debug_assert!(
        first_conflict(&zones, holds).is_none(),
        "no read begins after a completion"
    );
    while holds - fails > 1 {
        let middle = fails.midpoint(holds);
        match first_conflict(&zones, middle) {
            Some(found) => (fails, conflict) = (middle, found),
            None => holds = middle,
        }
    }
    TimeStaleness {
        delta: holds,
        conflict: Some(conflict),
    }
}

fn zone(history: &RegisterHistory, cluster: &WriteCluster, number: u32) -> TimedZone {
    let writer = history.times.get(cluster.writer as usize);
    let is_certain = history
        .actions
        .get(cluster.writer as usize)
        .is_some_and(|writer| writer.is_certain());
    let mut zone = TimedZone {
        low: match writer {
            Some(&(_, end)) if is_certain => end,
            Some(_) => i64::MAX,
            // The initial state.
            None => i64::MIN,
        },
        write_call: writer.map_or(i64::MIN, |&(call, _)| call),
        read_call: i64::MIN,
        read: None,
        cluster: number,
    };
    for &read in &cluster.reads {
        let (call, end) = history.times[read as usize];
        if writer.is_some() {
            zone.low = zone.low.min(end);
        }
        if call > zone.read_call {
            (zone.read_call, zone.read) = (call, Some(read));
        }
    }
    zone
}

/// Two clusters that contradict each other when reads begin `earlier`; `zones` are sorted by their first completion.
fn first_conflict(zones: &[TimedZone], earlier: i64) -> Option<(u32, u32)> {
    let forward = zones.iter().filter(|zone| zone.is_forward(earlier));
    let forward: Vec<&TimedZone> = forward.collect();
    // Intervals that do not overlap are in order both by begin and by end.
    for pair in forward.windows(2) {
        if pair[0].high(earlier) > pair[1].low {
            return Some((pair[0].cluster, pair[1].cluster));
        }
    }
    for zone in zones.iter().filter(|zone| !zone.is_forward(earlier)) {
        let high = zone.high(earlier);
        let before = forward.partition_point(|it| it.low < high);
        if let Some(interval) = before.checked_sub(1).map(|at| forward[at])
            && zone.low < interval.high(earlier)
        {
            return Some((interval.cluster, zone.cluster));
        }
    }
    None
}
