//! Which parts of a replica's log are in use.

use std::collections::BTreeMap;
use std::ops::Range;

/// Zones of a segment, at least; a long one has more.
const SEGMENT_ZONES: u64 = 64;
/// Bytes of the longest zone: what a long write appends has a dozen or more, and nearly all are free when it is overwritten.
const ZONE_LENGTH_MAX: u64 = 64 << 10;
/// Zones that are stored together.
const GROUP_ZONES: u64 = 512;

/// Bytes of slots that some map has, by zone of the log: where its head can be freed, and what need not be read to move the rest.
///
/// A slot is counted in the zone in which it begins. Memory: 4 KiB for each group of 512 zones (32 MiB of log) with slots in use.
#[derive(Clone, Debug)]
pub(crate) struct ZoneUse {
    /// Bytes of a zone.
    zone_length: u64,
    /// The groups with slots in use.
    groups: BTreeMap<u64, ZoneGroup>,
    /// Bytes of all of them, which every turn asks for.
    total: u64,
}

#[derive(Clone, Debug)]
struct ZoneGroup {
    total: u64,
    zones: Box<[u64; GROUP_ZONES as usize]>,
}

/// Zones of a piece of the log that had no slots in use at some time; of other zones nothing is known.
///
/// It stays true: nothing is appended to such a piece any more, and a slot that no map has is never used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeZones {
    zone_length: u64,
    /// Number of the first zone.
    first: u64,
    is_free: Vec<bool>,
}

impl FreeZones {
    /// Is it certain that no slot in use begins in this range? Empty ranges and those beyond the piece are not.
    pub(crate) fn have(&self, range: Range<u64>) -> bool {
        if self.is_free.is_empty() || range.is_empty() {
            return false;
        }
        let zones = range.start / self.zone_length..range.end.div_ceil(self.zone_length);
        let place = |zone: u64| usize::try_from(zone.checked_sub(self.first)?).ok();
        let (Some(start), Some(end)) = (place(zones.start), place(zones.end)) else {
            return false;
        };
        let zones = self.is_free.get(start..end);
        zones.is_some_and(|zones| zones.iter().all(|is_free| *is_free))
    }
}

impl ZoneUse {
    /// Nothing in use, of a log with segments of this length.
    pub(crate) fn new(segment_length: u64) -> ZoneUse {
        ZoneUse {
            zone_length: (segment_length / SEGMENT_ZONES).clamp(1, ZONE_LENGTH_MAX),
            groups: BTreeMap::new(),
            total: 0,
        }
    }

    /// Number of a position's group, and its zone in that.
    const fn place(&self, position: u64) -> (u64, usize) {
        let zone = position / self.zone_length;
        (zone / GROUP_ZONES, (zone % GROUP_ZONES) as usize)
    }

    /// A slot at this position is in use.
    pub(crate) fn add(&mut self, position: u64, length: u64) {
        let (group, zone) = self.place(position);
        let group = self.groups.entry(group).or_insert_with(|| ZoneGroup {
            total: 0,
            zones: Box::new([0; GROUP_ZONES as usize]),
        });
        group.zones[zone] += length;
        group.total += length;
        self.total += length;
    }

    /// A slot at this position, which was added, is not in use any more.
    pub(crate) fn remove(&mut self, position: u64, length: u64) {
        let (number, zone) = self.place(position);
        let Some(group) = self.groups.get_mut(&number) else {
            debug_assert!(false, "group {number} has the slot at {position}");
            return;
        };
        debug_assert!(group.zones[zone] >= length, "{position} was added");
        let removed = length.min(group.zones[zone]);
        group.zones[zone] -= removed;
        group.total -= removed;
        self.total -= removed;
        if group.total == 0 {
            self.groups.remove(&number);
        }
    }

    /// Where the first zone with slots in use begins; `None`: nothing is in use.
    pub(crate) fn start(&self) -> Option<u64> {
        let (number, group) = self.groups.first_key_value()?;
        let zone = group.zones.iter().position(|used| *used > 0)?;
        Some((number * GROUP_ZONES + zone as u64) * self.zone_length)
    }

    /// The free zones from a position on, and where the piece ends of which they are: before `end`, and as soon as it has
    /// `used_max` bytes of zones that are in use, or `zones_max` zones.
    pub(crate) fn free_zones(
        &self,
        (from, end): (u64, u64),
        used_max: u64,
        zones_max: usize,
    ) -> (FreeZones, u64) {
        let first = from / self.zone_length;
        let (mut is_free, mut used) = (Vec::new(), 0);
        let mut at = first * self.zone_length;
        while at < end && used < used_max && is_free.len() < zones_max {
            let (group, zone) = self.place(at);
            let is_used = self.groups.get(&group).is_some_and(|it| it.zones[zone] > 0);
            is_free.push(!is_used);
            used += u64::from(is_used) * self.zone_length;
            at += self.zone_length;
        }
        let zones = FreeZones {
            zone_length: self.zone_length,
            first,
            is_free,
        };
        (zones, at.min(end))
    }

    /// Bytes of all slots in use.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn zones_are_counted_as_a_list_of_slots_is() {
        let mut rng = Rng::from_seed(1);
        for _ in 0..50 {
            let mut zones = ZoneUse::new(64 * (1 + rng.below(100)));
            let zone_length = zones.zone_length;
            let mut slots: Vec<(u64, u64)> = Vec::new();
            for position in (0..200).map(|at| at * 1_000) {
                if rng.below(3) == 0 {
                    slots.push((position, 1 + rng.below(900)));
                    zones.add(position, slots[slots.len() - 1].1);
                }
            }
            while !slots.is_empty() {
                let total: u64 = slots.iter().map(|it| it.1).sum();
                assert_eq!(zones.total(), total);
                let first = slots
                    .iter()
                    .map(|it| it.0 / zone_length * zone_length)
                    .min();
                assert_eq!(zones.start(), first);
                let from = rng.below(200_000);
                let (free, end) = zones.free_zones((from, 200_000), 10_000, 1_000);
                for _ in 0..20 {
                    let start = rng.below(200_000);
                    let range = start..start + rng.below(3_000);
                    let is_used = slots.iter().any(|it| range.contains(&it.0));
                    assert!(!(is_used && free.have(range.clone())), "{range:?}");
                    // Exact, for whole zones of the piece.
                    let zone = start / zone_length * zone_length;
                    let whole = zone..zone + zone_length;
                    if whole.start >= from && whole.end <= end {
                        let is_used = slots.iter().any(|it| whole.contains(&it.0));
                        assert_eq!(free.have(whole), !is_used);
                    }
                }
                let (position, length) = slots.swap_remove(rng.index(slots.len()));
                zones.remove(position, length);
            }
            assert_eq!((zones.total(), zones.start()), (0, None));
            assert!(zones.groups.is_empty());
        }
    }

    #[test]
    fn a_piece_ends_when_enough_of_it_is_in_use() {
        let mut zones = ZoneUse::new(64 * 100);
        for position in [1_000, 1_150, 5_000, 6_000] {
            zones.add(position, 50);
        }
        let piece =
            |from, used_max, zones_max| zones.free_zones((from, 7_000), used_max, zones_max).1;
        assert_eq!(piece(0, 100, 1_000), 1_100);
        assert_eq!(piece(0, 200, 1_000), 1_200);
        assert_eq!(piece(1_200, 100, 1_000), 5_100);
        assert_eq!(piece(0, 1_000, 1_000), 7_000, "all of it");
        assert_eq!(piece(1_250, 1_000, 10), 2_200, "ten zones from 1,200 on");
        assert!(!FreeZones::default().have(0..10));
    }
}
