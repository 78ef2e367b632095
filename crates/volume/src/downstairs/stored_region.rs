//! A replica's folder without its process: what it holds, whether it is intact, and where it differs from others.

use crate::block_context::{BlockContent, BlockSlot, BlockVersion};
use crate::downstairs::block_map::CHUNK_BLOCKS;
use crate::downstairs::chunk_span;
use crate::downstairs::region::Region;
use crate::downstairs::region_record::{REGION_LOG, RegionRecord, read_records};
use crate::downstairs::region_recovery::{ReadRegion, RegionError, RegionReport, read_region};
use crate::geometry::{BlockNumber, Geometry};
use crate::lineage::{Lineage, Mark};
use crate::seal::KeyRing;
use seatrial_blocks::{HEADER_LENGTH, WalkError, Walker};
use seatrial_machine::{DataFolder, LogName, LogView};
use std::fmt;

/// The contents of a replica's folder, which no process may change meanwhile.
///
/// Opening reads the newest map file and the log after it, as a replica's start does, and changes nothing. Memory: 24 bytes for
/// each written block.
#[derive(Debug)]
pub struct StoredRegion {
    log: LogView,
    region: Region,
    report: RegionReport,
}

/// A stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// Its version.
    pub version: BlockVersion,
    /// What it holds.
    pub content: BlockContent,
    /// Position of its slot in the log; `None`: it was never written.
    pub position: Option<u64>,
}

/// A snapshot of a stored region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// Its name.
    pub name: String,
    /// The flush that it belongs to.
    pub flush: u64,
    /// False: the replica was copying it from another one.
    pub is_whole: bool,
}

/// A block whose slot is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDefect {
    /// The block.
    pub block: BlockNumber,
    /// Where its slot is, or should be.
    pub position: u64,
    /// What is wrong.
    pub problem: &'static str,
}

impl fmt::Display for BlockDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockDefect {
            block,
            position,
            problem,
        } = self;
        write!(f, "block {} at {position} of the log: {problem}", block.0)
    }
}

/// Most defects that a check keeps; the others are counted.
pub const DEFECTS_MAX: usize = 1_000;

/// Result of [`StoredRegion::verify`].
#[derive(Clone, Debug, Default)]
pub struct RegionCheck {
    /// Bytes and records of the log.
    pub log_bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Slots that are in use and were checked.
    pub slots: u64,
    /// Damaged parts of the log, and of map files.
    pub damaged: Vec<String>,
    /// The first [`DEFECTS_MAX`] defective blocks.
    pub defects: Vec<BlockDefect>,
    /// Number of all of them.
    pub defect_count: u64,
}

impl RegionCheck {
    /// Is the folder intact?
    pub fn is_intact(&self) -> bool {
        self.damaged.is_empty() && self.defect_count == 0
    }

    fn add(&mut self, block: BlockNumber, position: u64, problem: &'static str) {
        self.defect_count += 1;
        if self.defects.len() < DEFECTS_MAX {
            self.defects.push(BlockDefect {
                block,
                position,
                problem,
            });
        }
    }
}

/// Result of [`StoredRegion::compare`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionDifference {
    /// The last flush that all of them have, of one history; 0: none.
    pub common_flush: u64,
    /// Blocks that nothing has changed since then, and that differ: the first [`DEFECTS_MAX`].
    pub differing: Vec<BlockNumber>,
    /// Number of all of them.
    pub differing_count: u64,
    /// Blocks that differ, and may: they were changed after the common flush.
    pub later_count: u64,
    /// Blocks that are equal.
    pub equal_count: u64,
}

impl StoredRegion {
    /// Opens a folder that holds a volume of this shape.
    pub fn open(
        data: &DataFolder,
        geometry: &Geometry,
        segment_length: u64,
    ) -> Result<StoredRegion, RegionError> {
        let ReadRegion { region, report, .. } = read_region(data, geometry, segment_length)?;
        Ok(StoredRegion {
            log: data.log(LogName::MAIN)?,
            region,
            report,
        })
    }

    /// What opening found.
    pub const fn report(&self) -> &RegionReport {
        &self.report
    }

    /// The generation that was granted; 0: none.
    pub const fn generation(&self) -> u32 {
        self.region.grant.generation
    }

    /// The largest flush number that was seen.
    pub const fn flush(&self) -> u64 {
        self.region.flush
    }

    /// What it has, and of which history.
    pub const fn mark(&self) -> (Mark, &Lineage) {
        (self.region.mark, &self.region.lineage)
    }

    /// Bytes of slots in use.
    pub fn used_bytes(&self) -> u64 {
        self.region.used_bytes()
    }

    /// First position and end of the log.
    pub fn log_range(&self) -> (u64, u64) {
        (self.log.start(), self.report.end)
    }

    /// The snapshots, by name.
    pub fn snapshots(&self) -> Vec<StoredSnapshot> {
        let snapshots = self.region.snapshots.iter();
        let stored = snapshots.map(|(name, it)| StoredSnapshot {
            name: name.clone(),
            flush: it.flush,
            is_whole: it.is_whole,
        });
        stored.collect()
    }

    /// A block of the volume (no name) or of a snapshot; `None`: there is no such snapshot or block.
    pub fn block(&self, map: &str, block: BlockNumber) -> Option<StoredBlock> {
        let map = self.region.map(map)?;
        if block.0 >= self.region.geometry.blocks {
            return None;
        }
        let entry = map.get(block);
        let position = entry.position();
        let content = match (position, entry.has_data()) {
            (None, _) => BlockContent::Absent,
            (Some(_), true) => BlockContent::Data,
            (Some(_), false) => BlockContent::Zeros,
        };
        Some(StoredBlock {
            version: entry.version,
            content,
            position,
        })
    }

    /// Calls `each` with the position and a description of every record of the log; returns the damaged parts, which are left
    /// out.
    pub fn records(
        &self,
        each: &mut dyn FnMut(u64, &dyn fmt::Display),
    ) -> Result<Vec<String>, RegionError> {
        self.walk(&mut |payload_at, record| each(payload_at, &RecordText(record)))
    }

    /// Checks everything: the checksum of each block of the log; that each slot in use is there, is of its block and of the
    /// version that the map has, and that its checksum fits; that the map has the newest slot of each block; and, with the keys,
    /// that each slot was sealed with one of them. One pass over the log; memory: 16 bytes for each block.
    pub fn verify(&self, keys: Option<&KeyRing>) -> Result<RegionCheck, RegionError> {
        let blocks = self.region.geometry.blocks;
        let mut check = RegionCheck {
            log_bytes: self.report.end.saturating_sub(self.log.start()),
            ..RegionCheck::default()
        };
        // Positions of the slots in use that were found.
        let mut found: Vec<u64> = Vec::new();
        // The last slot of each block in the log; 0: unknown, its first record may have been freed.
        let mut last = vec![0; usize::try_from(blocks).unwrap_or(usize::MAX)];
        let mut plain = Vec::new();
        let damaged = self.walk(&mut |payload_at, record| {
            check.records += 1;
            for (block, position, slot) in slots_of(record, payload_at) {
                if block.0 >= blocks {
                    continue;
                }
                let newest = &mut last[block.0 as usize];
                match record {
                    RegionRecord::Data { map, .. } if map.is_empty() => *newest = position,
                    // A move of the newest one; of an unknown one it may be the move of a snapshot's.
                    RegionRecord::Moved { from, .. }
                        if *newest == *from
                            || (*newest == 0
                                && self.region.live.get(block).position() == Some(position)) =>
                    {
                        *newest = position;
                    }
                    _ => {}
                }
                if self.region.is_used(block, position) {
                    found.push(position);
                    if let Some(problem) = self.problem(block, position, slot, keys, &mut plain) {
                        check.add(block, position, problem);
                    }
                }
            }
        })?;
        check.slots = found.len() as u64;
        check.damaged.clone_from(&self.report.damaged);
        // The start reads the end of the log, so what is damaged there was reported already.
        let is_new = |text: &String| !self.report.damaged.contains(text);
        check.damaged.extend(damaged.into_iter().filter(is_new));
        found.sort_unstable();
        self.find_missing(&found, &last, &mut check);
        Ok(check)
    }

    /// Adds the slots in use that are not in the log, and the blocks whose newest slot is not in use.
    fn find_missing(&self, found: &[u64], last: &[u64], check: &mut RegionCheck) {
        let snapshots = self.region.snapshots.values().map(|it| &it.map);
        let maps = std::iter::once(&self.region.live).chain(snapshots);
        for (number, map) in maps.enumerate() {
            for chunk in (0..map.chunks()).filter(|it| map.chunk(*it).is_some()) {
                for block in chunk_span(&self.region.geometry, chunk).blocks() {
                    let Some(position) = map.get(block).position() else {
                        continue;
                    };
                    let newest = last[block.0 as usize];
                    if found.binary_search(&position).is_err() {
                        check.add(block, position, "the slot is not in the log");
                    } else if number == 0 && newest != 0 && newest != position {
                        check.add(block, newest, "the map does not have this newer slot");
                    }
                }
            }
        }
    }

    /// What is wrong with a slot in use.
    fn problem(
        &self,
        block: BlockNumber,
        position: u64,
        slot: &BlockSlot<'_>,
        keys: Option<&KeyRing>,
        plain: &mut Vec<u8>,
    ) -> Option<&'static str> {
        let snapshots = self.region.snapshots.values().map(|it| &it.map);
        let mut maps = std::iter::once(&self.region.live).chain(snapshots);
        let is_other = maps.any(|map| {
            let entry = map.get(block);
            entry.position() == Some(position) && entry.version != slot.context.version
        });
        if is_other {
            return Some("the slot has another version than the map");
        }
        if !slot.is_intact(block) {
            return Some("the checksum does not fit");
        }
        plain.clear();
        let block_length = self.region.geometry.block_length;
        match keys {
            Some(keys) if !keys.open(plain, block, slot, block_length) => {
                Some("it was not sealed with this key for this block")
            }
            _ => None,
        }
    }

    /// Walks over the whole log; returns its damaged parts, which are left out.
    fn walk(
        &self,
        each: &mut dyn FnMut(u64, &RegionRecord<'_>),
    ) -> Result<Vec<String>, RegionError> {
        let mut damaged = Vec::new();
        let mut walker = Walker::new(&self.log, self.log.start());
        loop {
            let block = match walker.next_block() {
                Ok(Some(block)) => block,
                Ok(None) | Err(WalkError::Torn(_)) => return Ok(damaged),
                Err(WalkError::Damaged(damage)) => {
                    damaged.push(format!("log: {damage}"));
                    walker = Walker::new(&self.log, damage.newer_offset)
                        .expecting(damage.newer_sequence);
                    continue;
                }
                Err(WalkError::Fault { offset, cause }) => {
                    return Err(RegionError::Read { offset, cause });
                }
                Err(WalkError::Version { offset, version }) => {
                    return Err(RegionError::Version { offset, version });
                }
            };
            if block.header.kind != REGION_LOG {
                continue;
            }
            let offset = block.offset;
            let records = read_records(block.payload, self.region.geometry.block_length)
                .map_err(|problem| RegionError::Record { offset, problem })?;
            for record in &records {
                each(offset + HEADER_LENGTH as u64, record);
            }
        }
    }

    /// Compares replicas of one volume, block by block: blocks that are equal have the same version and content, and so the same
    /// bytes if each replica is intact. Of blocks that were changed after the last flush that all have, equality is not expected.
    ///
    /// Panics if the regions have different numbers of blocks.
    pub fn compare(regions: &[&StoredRegion]) -> RegionDifference {
        let Some((first, others)) = regions.split_first() else {
            return RegionDifference::default();
        };
        let geometry = first.region.geometry;
        let is_same = |it: &&StoredRegion| it.region.geometry == geometry;
        assert!(others.iter().all(is_same), "replicas of one volume");
        let mut common_flush = first.region.mark.flush;
        for (at, one) in regions.iter().enumerate() {
            for other in &regions[at + 1..] {
                let ((mark, lineage), (other_mark, other_lineage)) = (one.mark(), other.mark());
                let both = lineage.common_flush(mark, other_lineage, other_mark);
                common_flush = common_flush.min(both);
            }
        }
        let mut difference = RegionDifference {
            common_flush,
            ..RegionDifference::default()
        };
        for chunk in 0..geometry.blocks.div_ceil(CHUNK_BLOCKS) {
            let is_settled = |it: &&StoredRegion| it.region.changed[chunk as usize] <= common_flush;
            let is_settled = regions.iter().all(is_settled);
            for block in chunk_span(&geometry, chunk).blocks() {
                difference.add(first, others, block, is_settled);
            }
        }
        difference
    }
}

impl RegionDifference {
    fn add(
        &mut self,
        first: &StoredRegion,
        others: &[&StoredRegion],
        block: BlockNumber,
        is_settled: bool,
    ) {
        let key = |it: &StoredRegion| {
            let entry = it.region.live.get(block);
            (entry.version, entry.has_data())
        };
        let is_equal = others.iter().all(|it| key(it) == key(first));
        match (is_equal, is_settled) {
            (true, _) => self.equal_count += 1,
            (false, false) => self.later_count += 1,
            (false, true) => {
                self.differing_count += 1;
                if self.differing.len() < DEFECTS_MAX {
                    self.differing.push(block);
                }
            }
        }
    }
}

/// The slots of a record: block, position in the log, slot.
fn slots_of<'r>(
    record: &'r RegionRecord<'r>,
    payload_at: u64,
) -> Vec<(BlockNumber, u64, &'r BlockSlot<'r>)> {
    match record {
        RegionRecord::Data {
            span, slots, at, ..
        } => {
            let mut position = payload_at + *at as u64;
            let place = |(block, slot): (BlockNumber, &'r BlockSlot<'r>)| {
                let here = position;
                position += slot.bytes.len() as u64;
                (block, here, slot)
            };
            span.blocks().zip(slots).map(place).collect()
        }
        RegionRecord::Moved {
            block, slot, at, ..
        } => vec![(*block, payload_at + *at as u64, slot)],
        _ => Vec::new(),
    }
}

/// A record on one line.
struct RecordText<'r>(&'r RegionRecord<'r>);

impl fmt::Display for RecordText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RegionRecord::Region(geometry) => write!(
                f,
                "region of volume {}: {} blocks of {} bytes",
                geometry.volume, geometry.blocks, geometry.block_length
            ),
            RegionRecord::Grant(grant) => {
                write!(
                    f,
                    "generation {} to {:032x}",
                    grant.generation, grant.upstairs
                )
            }
            RegionRecord::Data {
                map,
                flush,
                span,
                slots,
                ..
            } => {
                let versions = slots.iter().map(|it| it.context.version);
                let (low, high) = (versions.clone().min(), versions.max());
                write!(f, "{span}")?;
                if !map.is_empty() {
                    write!(f, " of snapshot {map}")?;
                }
                if let (Some(low), Some(high)) = (low, high) {
                    let (from, to) = (low.generation, high.generation);
                    write!(
                        f,
                        ", versions {from}.{} to {to}.{}",
                        low.counter, high.counter
                    )?;
                }
                write!(f, ", before flush {flush}")
            }
            RegionRecord::Moved { block, from, .. } => {
                write!(f, "block {} moved from {from}", block.0)
            }
            RegionRecord::Flush(generation, order) => {
                let kind = if order.is_complete { "" } else { " (partial)" };
                write!(f, "flush {} of generation {generation}{kind}", order.flush)?;
                if !order.snapshot.is_empty() {
                    write!(f, ", snapshot {}", order.snapshot)?;
                }
                if !order.drops.is_empty() {
                    write!(f, ", drops snapshot {}", order.drops)?;
                }
                Ok(())
            }
            RegionRecord::BeginSnapshot(name, flush) => {
                write!(f, "copy of snapshot {name} of flush {flush} begins")
            }
            RegionRecord::EndSnapshot(name) => write!(f, "copy of snapshot {name} is whole"),
            RegionRecord::DropSnapshot(name) => write!(f, "snapshot {name} dropped"),
        }
    }
}

#[cfg(test)]
mod tests;
