//! The state of a replica: what its log says.

use crate::block_context::BlockVersion;
use crate::downstairs::block_map::{BlockEntry, BlockMap, CHUNK_BLOCKS};
use crate::downstairs::region_record::{Grant, RegionRecord};
use crate::downstairs::zone_use::ZoneUse;
use crate::geometry::{BlockNumber, BlockSpan, Geometry};
use crate::lineage::{Lineage, Mark};
use crate::volume_message::{FlushOrder, MapName};
use std::collections::BTreeMap;

/// A snapshot: the map of a moment.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotMap {
    /// The flush that it belongs to.
    pub(crate) flush: u64,
    /// False while it is being copied from another replica.
    pub(crate) is_whole: bool,
    pub(crate) map: BlockMap,
}

/// The state of a replica. It changes by records of the log only, in their order: those that are written now, and at a start
/// those that are read back.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) geometry: Geometry,
    pub(crate) grant: Grant,
    pub(crate) mark: Mark,
    pub(crate) lineage: Lineage,
    /// The largest flush number that was seen, complete or not.
    pub(crate) flush: u64,
    pub(crate) live: BlockMap,
    /// For each chunk the flush that contains its last change; 0: never changed. May be later than the true one, never earlier.
    pub(crate) changed: Vec<u64>,
    pub(crate) snapshots: BTreeMap<MapName, SnapshotMap>,
    /// Which parts of the log some map has.
    pub(crate) used: ZoneUse,
}

impl Region {
    /// An empty region.
    pub(crate) fn new(geometry: Geometry, segment_length: u64) -> Region {
        let live = BlockMap::new(geometry.blocks);
        Region {
            geometry,
            grant: Grant::default(),
            mark: Mark::default(),
            lineage: Lineage::default(),
            flush: 0,
            changed: vec![0; live.chunks() as usize],
            live,
            snapshots: BTreeMap::new(),
            used: ZoneUse::new(segment_length),
        }
    }

    /// The map of this name; empty: the volume's.
    pub(crate) fn map(&self, name: &str) -> Option<&BlockMap> {
        if name.is_empty() {
            return Some(&self.live);
        }
        self.snapshots.get(name).map(|it| &it.map)
    }

    /// Carries out a record whose payload begins at this position of the log. What does not fit this region has no effect.
    pub(crate) fn apply(&mut self, record: &RegionRecord<'_>, payload_at: u64) {
        match record {
            RegionRecord::Region(_) => {}
            RegionRecord::Grant(grant) => {
                if grant.generation >= self.grant.generation {
                    self.grant = *grant;
                }
            }
            RegionRecord::Data {
                map,
                flush,
                span,
                slots,
                at,
            } => {
                if !self.geometry.contains(*span) {
                    return;
                }
                let mut position = payload_at + *at as u64;
                for (block, slot) in span.blocks().zip(slots) {
                    let context = &slot.context;
                    let entry = BlockEntry::new(position, context.version, context.content);
                    self.put(map, block, entry, *flush);
                    self.saw(context.version);
                    position += slot.bytes.len() as u64;
                }
            }
            RegionRecord::Moved {
                block,
                from,
                slot,
                at,
            } => {
                if block.0 < self.geometry.blocks {
                    let context = &slot.context;
                    let position = payload_at + *at as u64;
                    let entry = BlockEntry::new(position, context.version, context.content);
                    self.moved(*block, *from, entry);
                }
            }
            RegionRecord::Flush(generation, order) => self.flushed(*generation, order),
            RegionRecord::BeginSnapshot(name, flush) => {
                self.drop_snapshot(name);
                let copy = SnapshotMap {
                    flush: *flush,
                    is_whole: false,
                    map: self.live.clone(),
                };
                self.snapshots.insert(name.clone(), copy);
            }
            RegionRecord::DropSnapshot(name) => self.drop_snapshot(name),
            RegionRecord::EndSnapshot(name) => {
                if let Some(snapshot) = self.snapshots.get_mut(name) {
                    snapshot.is_whole = true;
                }
            }
        }
    }

    /// A version implies that its generation was granted, also when the record of that is lost.
    fn saw(&mut self, version: BlockVersion) {
        if version.generation > self.grant.generation {
            self.grant = Grant {
                generation: version.generation,
                upstairs: 0,
            };
        }
    }

    fn put(&mut self, map: &str, block: BlockNumber, entry: BlockEntry, flush: u64) {
        let old = if map.is_empty() {
            let chunk = &mut self.changed[(block.0 / CHUNK_BLOCKS) as usize];
            *chunk = (*chunk).max(flush);
            self.live.set(block, entry)
        } else {
            let Some(copy) = self.snapshots.get_mut(map) else {
                return;
            };
            copy.map.set(block, entry)
        };
        self.add_use(entry);
        self.release(block, old);
    }

    fn add_use(&mut self, entry: BlockEntry) {
        if let Some(position) = entry.position() {
            let length = entry.slot_length(self.geometry.block_length) as u64;
            self.used.add(position, length);
        }
    }

    /// A map does not have this entry any more: its space is free unless another one has it.
    fn release(&mut self, block: BlockNumber, old: BlockEntry) {
        let Some(position) = old.position() else {
            return;
        };
        let is_kept = |map: &BlockMap| map.get(block).position() == Some(position);
        if is_kept(&self.live) || self.snapshots.values().any(|it| is_kept(&it.map)) {
            return;
        }
        let length = old.slot_length(self.geometry.block_length) as u64;
        self.used.remove(position, length);
    }

    /// Does a map have a slot of this block at this position?
    pub(crate) fn is_used(&self, block: BlockNumber, position: u64) -> bool {
        let has = |map: &BlockMap| map.get(block).position() == Some(position);
        block.0 < self.geometry.blocks
            && (has(&self.live) || self.snapshots.values().any(|it| has(&it.map)))
    }

    fn moved(&mut self, block: BlockNumber, from: u64, entry: BlockEntry) {
        let maps = std::iter::once(&mut self.live)
            .chain(self.snapshots.values_mut().map(|it| &mut it.map));
        let mut old = None;
        for map in maps {
            let here = map.get(block);
            if here.position() == Some(from) {
                map.set(block, entry);
                old = Some(here);
            }
        }
        if let Some(old) = old {
            self.add_use(entry);
            self.release(block, old);
        }
    }

    fn flushed(&mut self, generation: u32, order: &FlushOrder) {
        self.flush = self.flush.max(order.flush);
        let mark = Mark {
            generation,
            flush: order.flush,
        };
        // A flush that was done before is sent again after a reconnection, when the blocks may be newer.
        if !order.is_complete || mark <= self.mark {
            return;
        }
        self.mark = mark;
        if let Some(lineage) = &order.lineage {
            self.lineage = lineage.clone();
        }
        if !order.snapshot.is_empty() {
            self.drop_snapshot(&order.snapshot);
            let kept = SnapshotMap {
                flush: order.flush,
                is_whole: true,
                map: self.live.clone(),
            };
            self.snapshots.insert(order.snapshot.clone(), kept);
        }
        self.drop_snapshot(&order.drops);
    }

    fn drop_snapshot(&mut self, name: &str) {
        let Some(dropped) = self.snapshots.remove(name) else {
            return;
        };
        for number in 0..dropped.map.chunks() {
            let Some(chunk) = dropped.map.chunk(number) else {
                continue;
            };
            for (at, entry) in chunk.iter().enumerate() {
                let block = BlockNumber(number * CHUNK_BLOCKS + at as u64);
                self.release(block, *entry);
            }
        }
    }

    /// The chunks from `from` on that were changed after a flush, at most `count`, and where to continue.
    pub(crate) fn changes(&self, since: u64, from: u64, count: usize) -> (Vec<u64>, u64) {
        let mut chunks = Vec::new();
        let start = usize::try_from(from).unwrap_or(usize::MAX);
        for (number, changed) in self.changed.iter().enumerate().skip(start) {
            if *changed <= since {
                continue;
            }
            if chunks.len() == count {
                return (chunks, number as u64);
            }
            chunks.push(number as u64);
        }
        (chunks, u64::MAX)
    }

    /// Bytes of slots that are in use.
    pub(crate) const fn used_bytes(&self) -> u64 {
        self.used.total()
    }

    /// Forgets what the region claims to have: it has to be compared with another one completely.
    pub(crate) fn distrust(&mut self) {
        (self.mark, self.lineage) = (Mark::default(), Lineage::default());
        self.snapshots
            .values_mut()
            .for_each(|it| it.is_whole = false);
        self.changed.fill(self.flush.max(1));
    }
}

/// The blocks of a chunk of a volume.
pub(crate) fn chunk_span(geometry: &Geometry, number: u64) -> BlockSpan {
    let first = number.saturating_mul(CHUNK_BLOCKS).min(geometry.blocks);
    BlockSpan {
        first: BlockNumber(first),
        count: CHUNK_BLOCKS.min(geometry.blocks - first) as u32,
    }
}
