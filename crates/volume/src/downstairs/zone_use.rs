//! Which parts of a replica's log are in use.

use std::collections::BTreeMap;

/// Bytes of slots that some map has, by zone of the log.
#[derive(Clone, Debug)]
pub(crate) struct ZoneUse {
    /// Bytes of a zone.
    zone_length: u64,
    /// The zones with slots in use.
    zones: BTreeMap<u64, u64>,
    /// Their sum, which every turn asks for.
    total: u64,
}

impl ZoneUse {
    /// Nothing in use.
    pub(crate) const fn new(zone_length: u64) -> ZoneUse {
        ZoneUse {
            zone_length,
            zones: BTreeMap::new(),
            total: 0,
        }
    }

    /// A slot at this position is in use.
    pub(crate) fn add(&mut self, position: u64, length: u64) {
        *self.zones.entry(position / self.zone_length).or_default() += length;
        self.total += length;
    }

    /// A slot at this position, which was added, is not in use any more.
    pub(crate) fn remove(&mut self, position: u64, length: u64) {
        let zone = position / self.zone_length;
        let used = self.zones.get_mut(&zone);
        debug_assert!(
            used.as_ref().is_some_and(|it| **it >= length),
            "zone {zone} counts its slots"
        );
        if let Some(used) = used {
            let removed = length.min(*used);
            *used -= removed;
            self.total -= removed;
            if *used == 0 {
                self.zones.remove(&zone);
            }
        }
    }

    /// Where the first zone with slots in use begins; `None`: nothing is in use.
    pub(crate) fn start(&self) -> Option<u64> {
        let first = self.zones.keys().next();
        first.map(|zone| zone * self.zone_length)
    }

    /// Bytes of all slots in use.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }
}
