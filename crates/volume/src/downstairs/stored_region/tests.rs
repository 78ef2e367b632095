//! Folders that are intact, damaged in every way that a check names, and different.

use super::*;
use crate::downstairs::map_file::{ReplayStart, WriteMap};
use crate::downstairs::region_jobs::{HeadRead, ReadHead};
use crate::downstairs::region_log::RegionLog;
use crate::downstairs::region_record::{
    Grant, put_data, put_flush, put_grant, put_moved, put_region,
};
use crate::downstairs::zone_use::{FreeZones, ZoneUse};
use crate::geometry::{BlockSpan, VolumeId};
use crate::lineage::LineageEntry;
use crate::volume_message::FlushOrder;
use seatrial_machine::{Job, LogWriter, OpenLog, Output, Rng};
use seatrial_sim::MemoryStorage;
use std::path::Path;
use std::sync::Arc;

const SEGMENT: u64 = 1 << 20;
const GEOMETRY: Geometry = Geometry {
    volume: VolumeId(9),
    block_length: 512,
    blocks: 200,
};

fn keys() -> KeyRing {
    KeyRing::new(GEOMETRY.volume, &[7; 32])
}

fn version(generation: u32, counter: u64) -> BlockVersion {
    BlockVersion {
        generation,
        counter,
    }
}

/// A replica's folder that is written by hand.
struct Folder {
    storage: MemoryStorage,
    data: DataFolder,
    writer: LogWriter,
    log: RegionLog,
    flush: u64,
}

impl Folder {
    fn new() -> Folder {
        let storage = MemoryStorage::new();
        let data = DataFolder::open(Arc::new(storage.clone()), Path::new("replica")).unwrap();
        let writer =
            LogWriter::open(data.storage(), data.path(), OpenLog::new(LogName::MAIN, 0)).unwrap();
        let mut folder = Folder {
            storage,
            data,
            writer,
            log: RegionLog::new(0, 0),
            flush: 0,
        };
        folder.append(|bytes| put_region(bytes, &GEOMETRY));
        let grant = Grant {
            generation: 1,
            upstairs: 5,
        };
        folder.append(|bytes| put_grant(bytes, grant));
        folder
    }

    /// Appends records; returns the position of their payload.
    fn append(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let at = self.log.payload_position();
        let mut bytes = RegionLog::begin(0);
        put(&mut bytes);
        let mut out: Vec<Output<()>> = Vec::new();
        self.log.push(bytes, true, &mut out);
        for output in out {
            if let Output::Append { bytes, ticket, .. } = output {
                self.writer.append(&bytes).unwrap();
                self.writer.sync().unwrap();
                self.log.reported(ticket);
            }
        }
        at
    }

    /// Writes a block; returns the position of its slot.
    fn write(&mut self, block: u64, version: BlockVersion, bytes: &[u8]) -> u64 {
        self.write_sealed(BlockNumber(block), BlockNumber(block), version, bytes)
    }

    fn write_sealed(
        &mut self,
        block: BlockNumber,
        sealed_for: BlockNumber,
        version: BlockVersion,
        bytes: &[u8],
    ) -> u64 {
        let mut slot = Vec::new();
        keys().seal(&mut slot, sealed_for, version, bytes);
        let span = BlockSpan {
            first: block,
            count: 1,
        };
        let flush = self.flush + 1;
        let mut head = 0;
        let at = self.append(|out| {
            let start = out.len();
            put_data(out, "", flush, span);
            head = (out.len() - start) as u64;
            out.extend_from_slice(&slot);
        });
        at + head
    }

    fn flush(&mut self) {
        self.flush += 1;
        let lineage = Lineage::default().continued(LineageEntry {
            generation: 1,
            start: 1,
            base: 0,
        });
        let order = FlushOrder {
            flush: self.flush,
            is_complete: true,
            lineage: Some(lineage),
            ..FlushOrder::default()
        };
        self.append(|bytes| put_flush(bytes, 1, &order));
    }

    fn open(&self) -> StoredRegion {
        StoredRegion::open(&self.data, &GEOMETRY, SEGMENT).unwrap()
    }

    fn problems(&self, keys: Option<&KeyRing>) -> Vec<(u64, &'static str)> {
        let check = self.open().verify(keys).unwrap();
        assert_eq!(check.damaged, Vec::<String>::new());
        assert_eq!(check.defect_count, check.defects.len() as u64);
        let defects = check.defects.iter();
        defects.map(|it| (it.block.0, it.problem)).collect()
    }

    /// Writes a map file of the state, without these records of the log.
    fn write_map(&self, region: Region) {
        let from = ReplayStart {
            position: self.log.position(),
            sequence: self.log.sequence(),
        };
        let write = WriteMap {
            data: self.data.clone(),
            region,
            from,
        };
        let written = Box::new(write).run();
        assert_eq!(
            *written.downcast::<Result<(), String>>().unwrap(),
            Ok(()),
            "the map file"
        );
    }
}

#[test]
fn an_intact_folder_has_no_defect() {
    let mut folder = Folder::new();
    folder.write(3, version(1, 1), &[1; 512]);
    folder.write(3, version(1, 2), &[2; 512]);
    folder.write(150, version(1, 3), &[]);
    folder.flush();
    let region = folder.open();
    assert!(region.report().damaged.is_empty());
    assert_eq!(region.generation(), 1);
    let (mark, lineage) = region.mark();
    assert_eq!(
        (mark.generation, mark.flush, lineage.entries().len()),
        (1, 1, 1)
    );
    let block = region.block("", BlockNumber(3)).unwrap();
    assert_eq!(
        (block.version, block.content),
        (version(1, 2), BlockContent::Data)
    );
    let zeros = region.block("", BlockNumber(150)).unwrap();
    assert_eq!(zeros.content, BlockContent::Zeros);
    let absent = region.block("", BlockNumber(199)).unwrap();
    assert_eq!(
        (absent.content, absent.position),
        (BlockContent::Absent, None)
    );
    assert_eq!(region.block("", BlockNumber(200)), None);
    assert_eq!(region.block("snapshot", BlockNumber(0)), None);
    let check = region.verify(Some(&keys())).unwrap();
    assert!(check.is_intact(), "{check:?}");
    assert_eq!((check.slots, check.records), (2, 6));
    let mut lines = Vec::new();
    region
        .records(&mut |_, text| lines.push(text.to_string()))
        .unwrap();
    assert_eq!(
        lines[2],
        "blocks 3 to 4, versions 1.1 to 1.1, before flush 1"
    );
    assert_eq!(lines[5], "flush 1 of generation 1");
}

#[test]
fn each_defect_is_named() {
    let mut folder = Folder::new();
    folder.write(1, version(1, 1), &[1; 512]);
    // Another block's slot: also its checksum is of another number.
    folder.write_sealed(BlockNumber(2), BlockNumber(1), version(1, 2), &[2; 512]);
    folder.flush();
    assert_eq!(
        folder.problems(Some(&keys())),
        [(2, "the checksum does not fit")]
    );
    let wrong = KeyRing::new(GEOMETRY.volume, &[8; 32]);
    assert_eq!(
        folder.problems(Some(&wrong)),
        [
            (1, "it was not sealed with this key for this block"),
            (2, "the checksum does not fit")
        ]
    );
    assert_eq!(
        folder.problems(None),
        [(2, "the checksum does not fit")],
        "without keys"
    );
}

#[test]
fn a_map_file_that_is_not_the_logs_is_found() {
    let mut folder = Folder::new();
    folder.write(1, version(1, 1), &[1; 512]);
    folder.write(4, version(1, 2), &[4; 512]);
    let old = folder.open().region;
    folder.write(1, version(1, 3), &[2; 512]);
    let mut region = folder.open().region;
    folder.flush();
    // The state before the last write, as of now.
    folder.write_map(old);
    assert_eq!(
        folder.problems(Some(&keys())),
        [(1, "the map does not have this newer slot")]
    );
    let data = RegionRecord::Moved {
        block: BlockNumber(4),
        from: region.live.get(BlockNumber(4)).position().unwrap(),
        slot: BlockSlot {
            context: crate::BlockContext {
                version: version(1, 2),
                content: BlockContent::Data,
                ..crate::BlockContext::ABSENT
            },
            bytes: &[0; 552],
        },
        at: 7,
    };
    region.apply(&data, 1 << 30);
    folder.flush();
    folder.write_map(region);
    assert_eq!(
        folder.problems(None),
        [(4, "the slot is not in the log")],
        "nothing is at that place"
    );
}

#[test]
fn a_moved_slot_is_the_newest() {
    let mut folder = Folder::new();
    let from = folder.write(1, version(1, 1), &[1; 512]);
    let mut slot = Vec::new();
    keys().seal(&mut slot, BlockNumber(1), version(1, 1), &[1; 512]);
    folder.append(|bytes| put_moved(bytes, BlockNumber(1), from, &slot));
    folder.flush();
    assert_eq!(folder.problems(Some(&keys())), []);
    let check = folder.open().verify(None).unwrap();
    assert_eq!(check.slots, 1, "the old place is not in use");
}

/// A slot of a log: block, position, bytes.
type LogSlot = (u64, u64, Vec<u8>);

/// The slots of a log's head, read a piece at a time.
fn read_head(data: &DataFolder, end: u64, reuses: bool) -> Vec<LogSlot> {
    read_pieces(data, end, reuses, |from| {
        (FreeZones::default(), (from + 3_000).min(end))
    })
}

/// The same, in these pieces.
fn read_pieces(
    data: &DataFolder,
    end: u64,
    reuses: bool,
    piece: impl Fn(u64) -> (FreeZones, u64),
) -> Vec<LogSlot> {
    let (mut next, mut earlier, mut slots) = (0, None, Vec::new());
    while next < end {
        let (free, to) = piece(next);
        let job = ReadHead {
            data: data.clone(),
            earlier: earlier.take(),
            from: next,
            to,
            free,
            block_length: GEOMETRY.block_length,
        };
        let read = Box::new(job).run().downcast::<std::io::Result<HeadRead>>();
        let read = read.unwrap().unwrap();
        assert!(read.next > next, "at {next}");
        next = read.next;
        for slot in &read.slots {
            slots.push((slot.block.0, slot.position, read.bytes(slot).to_vec()));
        }
        earlier = Some(read).filter(|_| reuses);
    }
    slots
}

/// Writes sixty slots, with some longer blocks between them.
fn write_sixty(folder: &mut Folder) -> Vec<LogSlot> {
    let mut written = Vec::new();
    for counter in 1..=60 {
        let block = counter % 7;
        let bytes = vec![counter as u8; 512];
        let at = folder.write(block, version(1, counter), &bytes);
        let mut slot = Vec::new();
        keys().seal(&mut slot, BlockNumber(block), version(1, counter), &bytes);
        written.push((block, at, slot));
        if counter % 9 == 0 {
            // A longer block, which needs a longer buffer.
            folder.append(|bytes| (0..300).for_each(|_| put_grant(bytes, Grant::default())));
        }
    }
    written
}

/// The folder after a bit of its log was flipped.
fn with_flipped_bit(folder: &Folder, position: u64) -> DataFolder {
    let mut tree = folder.storage.files();
    let mut bytes = tree.get("replica/log").unwrap().to_vec();
    bytes[position as usize] ^= 1;
    tree.insert("replica/log", bytes);
    let storage = MemoryStorage::from_files(&tree);
    DataFolder::open(Arc::new(storage), Path::new("replica")).unwrap()
}

#[test]
fn a_head_is_the_same_in_pieces_that_share_their_memory() {
    let mut folder = Folder::new();
    let mut written = write_sixty(&mut folder);
    let end = folder.log.durable();
    assert_eq!(read_head(&folder.data, end, false), written);
    assert_eq!(read_head(&folder.data, end, true), written);

    // A damaged block is passed over, by both alike.
    let data = with_flipped_bit(&folder, written[30].1 + 100);
    written.remove(30);
    assert_eq!(read_head(&data, end, false), written);
    assert_eq!(read_head(&data, end, true), written);
}

#[test]
fn a_head_is_read_without_what_is_free() {
    let mut folder = Folder::new();
    let written = write_sixty(&mut folder);
    let end = folder.log.durable();
    let mut rng = Rng::from_seed(1);
    for round in 0..40 {
        let mut zones = ZoneUse::new(64 * 700);
        let (used, free): (Vec<LogSlot>, Vec<LogSlot>) =
            written.iter().cloned().partition(|_| rng.below(10) == 0);
        for (_, position, bytes) in &used {
            zones.add(*position, bytes.len() as u64);
        }
        // Also if what is free is damaged.
        let data = with_flipped_bit(&folder, free[rng.index(free.len())].1 + 100);
        let read = read_pieces(&data, end, round % 2 == 0, |from| {
            zones.free_zones((from, end), 2_000, 20)
        });
        assert!(used.iter().all(|it| read.contains(it)), "{used:?}");
        assert!(read.iter().all(|it| written.contains(it)), "{read:?}");
        assert!(read.len() < 3 * used.len() + 3, "{}", read.len());
    }
}

#[test]
fn a_flipped_bit_is_damage() {
    let mut folder = Folder::new();
    let at = folder.write(1, version(1, 1), &[1; 512]);
    folder.write(2, version(1, 2), &[1; 512]);
    folder.flush();
    let data = with_flipped_bit(&folder, at + 100);
    let region = StoredRegion::open(&data, &GEOMETRY, SEGMENT).unwrap();
    let check = region.verify(Some(&keys())).unwrap();
    assert!(!check.is_intact());
    assert_eq!(check.damaged.len(), 1, "once: {check:?}");
    assert!(check.damaged[0].starts_with("log: "), "{check:?}");
    assert_eq!(check.slots, 1);
}

#[test]
fn replicas_differ_where_they_should_not() {
    let mut folders = [Folder::new(), Folder::new(), Folder::new()];
    for folder in &mut folders {
        folder.write(1, version(1, 1), &[1; 512]);
        folder.write(70, version(1, 2), &[2; 512]);
    }
    folders[2].write(199, version(1, 3), &[]);
    for folder in &mut folders {
        folder.flush();
    }
    // Chunk 1 is changed after the flush, on one of them.
    folders[0].write(71, version(1, 4), &[2; 512]);
    let regions: Vec<StoredRegion> = folders.iter().map(Folder::open).collect();
    let all: Vec<&StoredRegion> = regions.iter().collect();
    let difference = StoredRegion::compare(&all);
    assert_eq!(
        difference,
        RegionDifference {
            common_flush: 1,
            differing: vec![BlockNumber(199)],
            differing_count: 1,
            later_count: 1,
            equal_count: 198,
        }
    );
    let same = StoredRegion::compare(&all[..1]);
    assert_eq!((same.equal_count, same.differing_count), (200, 0));
}
