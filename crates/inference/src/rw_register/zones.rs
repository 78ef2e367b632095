//! Zones: the version order of one linearizable key.
//!
//! A version's zone lies between the first completion and the last invocation of transactions that accessed it (Gibbons and
//! Korach, "Testing Shared Memories", 1997). One version comes before another if the first completion that accessed it is before
//! the last invocation that accessed the other.

use seatrial_cycles::Version;

/// After all positions: the end of a zone if no transaction that accessed the version completed.
pub(super) const NEVER: u32 = u32::MAX;

/// The zone of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) version: Version,
    /// The first completion of a transaction that accessed it; [`NEVER`] if none completed.
    pub(super) ended: u32,
    /// The last invocation of a transaction that accessed it; 0, before which nothing ends, if none was recorded.
    pub(super) begun: u32,
}

impl Zone {
    /// Does this version come before another?
    pub(super) fn is_before(self, other: Zone) -> bool {
        self.ended < other.begun
    }

    /// Is it a forward zone: did one access end before another began, so that the version was certainly current in between?
    fn is_forward(self) -> bool {
        self.ended < self.begun
    }
}

/// Two versions of which each comes before the other, if there are any. Sorts the zones.
pub(super) fn conflict(zones: &mut [Zone]) -> Option<(Version, Version)> {
    zones.sort_unstable_by_key(|zone| (!zone.is_forward(), zone.ended, zone.version));
    let forward = zones.partition_point(|zone| zone.is_forward());
    let (forward, others) = zones.split_at(forward);
    for pair in forward.windows(2) {
        if pair[1].is_before(pair[0]) {
            return Some((pair[0].version, pair[1].version));
        }
    }
    for other in others {
        // Forward zones do not overlap, so only the last one that starts before it can contain it.
        let earlier = forward.partition_point(|zone| zone.is_before(*other));
        if let Some(zone) = earlier.checked_sub(1).map(|at| forward[at])
            && other.is_before(zone)
        {
            return Some((zone.version, other.version));
        }
    }
    None
}

/// An order between groups of versions: all `outs` come before all `ins`, and if it is `chained`, before those of the next
/// barrier, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Barrier {
    pub(super) outs: Vec<Version>,
    pub(super) ins: Vec<Version>,
    pub(super) chained: bool,
}

/// An event of a version, when zones are turned into a sequence of barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ZoneEvent {
    Out,
    OwnIn,
    OwnOut,
    In,
}

/// The order of versions without conflict (their zones as [`conflict`] left them), as barriers: each version is once in
/// `ins` and once in `outs` at most, and comes before exactly the versions that paths from its `outs` lead to.
///
/// Within a forward zone, the events of other versions belong to versions that come before it (they end) or after it (they
/// begin), so the events are reordered: those end, it begins, it ends, those begin. Then no version begins after it ended, and
/// an order of events is an order of versions.
pub(super) fn barriers(zones: &[Zone]) -> Vec<Barrier> {
    let forward = &zones[..zones.partition_point(|zone| zone.is_forward())];
    let mut events: Vec<(u32, ZoneEvent, Version)> = Vec::with_capacity(2 * zones.len());
    // The only forward zone that can contain a position: the last one that starts before it.
    let holder = |position: u32| {
        let earlier = forward.partition_point(|zone| zone.ended <= position);
        earlier.checked_sub(1).map(|at| forward[at])
    };
    for zone in zones {
        if zone.is_forward() {
            events.push((zone.ended, ZoneEvent::OwnIn, zone.version));
            events.push((zone.ended, ZoneEvent::OwnOut, zone.version));
            continue;
        }
        if zone.begun > 0 {
            let held = holder(zone.begun).filter(|other| zone.begun <= other.begun);
            let position = held.map_or(zone.begun, |other| other.ended);
            events.push((position, ZoneEvent::In, zone.version));
        }
        if zone.ended != NEVER {
            let held = holder(zone.ended).filter(|other| zone.ended < other.begun);
            let position = held.map_or(zone.ended, |other| other.ended);
            events.push((position, ZoneEvent::Out, zone.version));
        }
    }
    // At one position: versions end, then the forward zone there begins and ends, then versions begin.
    events.sort_unstable();
    debug_assert!(
        events.len() <= 2 * zones.len(),
        "a version enters once and leaves once"
    );
    let mut barriers = gather(&events);
    chain(&mut barriers);
    barriers
}

fn gather(events: &[(u32, ZoneEvent, Version)]) -> Vec<Barrier> {
    let mut barriers: Vec<Barrier> = Vec::new();
    let mut outs = Vec::new();
    for &(_, event, version) in events {
        if matches!(event, ZoneEvent::Out | ZoneEvent::OwnOut) {
            outs.push(version);
            continue;
        }
        if !outs.is_empty() {
            let outs = std::mem::take(&mut outs);
            barriers.push(Barrier {
                outs,
                ..Barrier::default()
            });
        }
        if let Some(barrier) = barriers.last_mut() {
            barrier.ins.push(version);
        }
    }
    barriers
}

/// Chains adjacent barriers that have no version in common, which would pass the order on.
fn chain(barriers: &mut [Barrier]) {
    for at in 1..barriers.len() {
        let (earlier, later) = barriers.split_at_mut(at);
        let (last, next) = (&mut earlier[at - 1], &later[0]);
        last.ins.sort_unstable();
        let mut both = next.outs.iter();
        last.chained = !both.any(|out| last.ins.binary_search(out).is_ok());
    }
    for barrier in barriers {
        barrier.ins.sort_unstable();
        barrier.outs.sort_unstable();
        debug_assert!(
            barrier
                .ins
                .iter()
                .all(|version| barrier.outs.binary_search(version).is_err()),
            "no version comes before itself"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// What comes before what, by definition, and closed.
    fn closed(zones: &[Zone]) -> Vec<Vec<bool>> {
        let before = |a: &Zone, b: &Zone| a.version != b.version && a.ended < b.begun;
        let row = |a| zones.iter().map(|b| before(a, b)).collect();
        let mut order: Vec<Vec<bool>> = zones.iter().map(row).collect();
        for middle in 0..zones.len() {
            for from in 0..zones.len() {
                for to in 0..zones.len() {
                    order[from][to] |= order[from][middle] && order[middle][to];
                }
            }
        }
        order
    }

    /// What paths over barriers and versions lead to.
    fn reached(barriers: &[Barrier], from: Version) -> Vec<Version> {
        let mut seen = Vec::new();
        let mut waiting = vec![from];
        while let Some(version) = waiting.pop() {
            let out = |barrier: &Barrier| barrier.outs.contains(&version);
            let Some(mut at) = barriers.iter().position(out) else {
                continue;
            };
            loop {
                for &next in &barriers[at].ins {
                    if !seen.contains(&next) {
                        seen.push(next);
                        waiting.push(next);
                    }
                }
                if !barriers[at].chained {
                    break;
                }
                at += 1;
            }
        }
        seen.sort_unstable();
        seen
    }

    #[test]
    fn barriers_are_the_order_of_zones() {
        let (mut conflicts, mut orders, mut pairs) = (0, 0, 0);
        for seed in 0..40_000 {
            let mut rng = Rng::from_seed(seed);
            let count = 1 + rng.below(7) as u32;
            let positions = 2 + rng.below(20);
            // Positions of invocations are even, those of completions odd.
            let mut zones: Vec<_> = (0..count)
                .map(|version| Zone {
                    version: Version::new(version),
                    ended: if rng.chance(0.1) {
                        NEVER
                    } else {
                        2 * rng.below(positions) as u32 + 1
                    },
                    begun: if rng.chance(0.1) {
                        0
                    } else {
                        2 * rng.below(positions) as u32
                    },
                })
                .collect();
            let order = closed(&zones);
            let is_cyclic = (0..count as usize).any(|version| order[version][version]);
            let original = zones.clone();
            if let Some((one, other)) = conflict(&mut zones) {
                let [one, other] = [one, other].map(|version| original[version.index()]);
                assert!(one != other && one.is_before(other) && other.is_before(one));
                assert!(is_cyclic, "seed {seed}");
                conflicts += 1;
                continue;
            }
            assert!(!is_cyclic, "seed {seed} {original:?}");
            let barriers = barriers(&zones);
            let all = || Version::all(count as usize);
            for from in all() {
                let expected = all().filter(|&to| order[from.index()][to.index()]);
                let expected: Vec<_> = expected.collect();
                pairs += expected.len();
                assert_eq!(
                    reached(&barriers, from),
                    expected,
                    "seed {seed} {original:?}"
                );
            }
            let met: Vec<_> = barriers.iter().flat_map(|barrier| &barrier.ins).collect();
            assert!(all().all(|one| met.iter().filter(|&&&other| other == one).count() <= 1));
            orders += 1;
        }
        assert!(
            conflicts > 1_000 && orders > 1_000 && pairs > 10_000,
            "{conflicts} {orders} {pairs}"
        );
    }
}
