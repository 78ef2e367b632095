//! Files with the state of a region at a position of its log, so that a start reads only what follows. Byte map in
//! `docs/formats/volume.md`.

use crate::block_context::BlockVersion;
use crate::downstairs::block_map::{BlockEntry, BlockMap, CHUNK_BLOCKS, MapChunk};
use crate::downstairs::region::{Region, SnapshotMap};
use crate::downstairs::region_record::{Grant, RegionRecord, put_grant, put_region, read_records};
use crate::geometry::{BlockNumber, Geometry};
use crate::volume_message::FlushOrder;
use seatrial_blocks::{BlockKind, Walker, block};
use seatrial_machine::{
    Computed, DataFolder, Disk, FieldReader, FileFolder, FileName, FileResult, FileTask, Job,
    MessageError,
};
use std::sync::Arc;

const MAP_HEAD: BlockKind = BlockKind(49);
const MAP_CHUNKS: BlockKind = BlockKind(50);
const MAP_END: BlockKind = BlockKind(51);

/// Chunks in one block of the file.
const CHUNKS_A_BLOCK: usize = 256;
/// Bytes of an entry.
const ENTRY_LENGTH: usize = 20;
/// Beginning of the files' names; the position follows in hexadecimal digits.
const PREFIX: &str = "map-";

/// A position of a log, and the number of the block there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayStart {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
}

/// The name of the file of a position.
pub(crate) fn map_name(position: u64) -> FileName {
    let name = FileName::new(&format!("{PREFIX}{position:016x}"));
    name.expect("letters and digits")
}

/// Positions of the map files in a folder, newest first.
pub(crate) fn map_files(data: &DataFolder) -> std::io::Result<Vec<FileName>> {
    let mut names = data.files()?;
    names.retain(|name| name.as_str().len() == 20 && name.as_str().starts_with(PREFIX));
    names.reverse();
    Ok(names)
}

/// Writes a map file and removes the older ones. What it holds is durable when it is published.
#[derive(Debug)]
pub(crate) struct WriteMap {
    pub(crate) data: DataFolder,
    pub(crate) region: Region,
    pub(crate) from: ReplayStart,
}

impl Job for WriteMap {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.write().map(|_| ()).map_err(|error| error.to_string()))
    }
}

impl WriteMap {
    fn write(&self) -> FileResult {
        let folder = self.data.file_folder();
        let file = FileName::new("map.new").expect("letters");
        folder.run(FileTask::Create { file: file.clone() })?;
        let mut writer = MapWriter {
            folder: &folder,
            file: &file,
            offset: 0,
            sequence: 0,
        };
        writer.put(MAP_HEAD, &head(&self.region, self.from))?;
        let mut count = 0;
        let snapshots = self.region.snapshots.values();
        let maps = std::iter::once(&self.region.live).chain(snapshots.map(|it| &it.map));
        let mut payload = Vec::new();
        let mut gathered = 0;
        for (number, map) in maps.enumerate() {
            for chunk in 0..map.chunks() {
                if !is_listed(&self.region, number, map, chunk) {
                    continue;
                }
                put_chunk(&mut payload, number as u32, chunk, map);
                (count, gathered) = (count + 1, gathered + 1);
                if gathered == CHUNKS_A_BLOCK {
                    writer.put(MAP_CHUNKS, &payload)?;
                    payload.clear();
                    gathered = 0;
                }
            }
        }
        if gathered > 0 {
            writer.put(MAP_CHUNKS, &payload)?;
        }
        writer.put(MAP_END, &u64::to_le_bytes(count))?;
        let to = map_name(self.from.position);
        let published = folder.run(FileTask::Publish {
            file,
            to: to.clone(),
        })?;
        let old = map_files(&self.data).unwrap_or_default();
        for file in old.into_iter().filter(|name| *name < to) {
            folder.run(FileTask::Remove { file })?;
        }
        Ok(published)
    }
}

/// Is a chunk in the file? Those of a snapshot are not if the volume has the same.
fn is_listed(region: &Region, number: usize, map: &BlockMap, chunk: u64) -> bool {
    let here = map.chunk(chunk);
    if number == 0 {
        return here.is_some();
    }
    match (here, region.live.chunk(chunk)) {
        (Some(here), Some(live)) => !Arc::ptr_eq(here, live),
        (here, live) => here.is_some() != live.is_some(),
    }
}

fn head(region: &Region, from: ReplayStart) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_region(&mut bytes, &region.geometry);
    put_grant(&mut bytes, region.grant);
    // The mark and the lineage are those of a flush.
    bytes.extend_from_slice(&from.position.to_le_bytes());
    bytes.extend_from_slice(&from.sequence.to_le_bytes());
    bytes.extend_from_slice(&region.flush.to_le_bytes());
    bytes.extend_from_slice(&region.mark.generation.to_le_bytes());
    let order = FlushOrder {
        flush: region.mark.flush,
        lineage: Some(region.lineage.clone()),
        ..FlushOrder::default()
    };
    order.encode(&mut bytes);
    bytes.extend_from_slice(&(region.snapshots.len() as u32).to_le_bytes());
    for (name, snapshot) in &region.snapshots {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&snapshot.flush.to_le_bytes());
        bytes.push(u8::from(snapshot.is_whole));
    }
    for changed in &region.changed {
        bytes.extend_from_slice(&changed.to_le_bytes());
    }
    bytes
}

fn put_chunk(payload: &mut Vec<u8>, number: u32, chunk: u64, map: &BlockMap) {
    payload.extend_from_slice(&number.to_le_bytes());
    payload.extend_from_slice(&chunk.to_le_bytes());
    let absent = [BlockEntry::ABSENT; CHUNK_BLOCKS as usize];
    let entries = map.chunk(chunk).map_or(&absent, |it| &**it);
    for entry in entries {
        let (place, version) = entry.parts();
        payload.extend_from_slice(&place.to_le_bytes());
        payload.extend_from_slice(&version.generation.to_le_bytes());
        payload.extend_from_slice(&version.counter.to_le_bytes());
    }
}

struct MapWriter<'a> {
    folder: &'a FileFolder,
    file: &'a FileName,
    offset: u64,
    sequence: u64,
}

impl MapWriter<'_> {
    fn put(&mut self, kind: BlockKind, payload: &[u8]) -> FileResult {
        let mut bytes = Vec::with_capacity(payload.len() + 64);
        block::write(
            &mut bytes,
            kind,
            0,
            self.sequence,
            payload,
            payload.len() as u32,
        );
        self.sequence += 1;
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.folder.run(FileTask::Write {
            file: self.file.clone(),
            offset,
            bytes,
        })
    }
}

/// Why a file is no map.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    #[error(transparent)]
    Walk(#[from] seatrial_blocks::WalkError),
    #[error(transparent)]
    Record(#[from] MessageError),
    #[error("{0}")]
    Content(&'static str),
}

/// Reads a map file. Memory: the maps.
pub(crate) fn read_map(
    disk: &dyn Disk,
    segment_length: u64,
) -> Result<(Region, ReplayStart), MapError> {
    let mut walker = Walker::new(disk, 0).expecting(0);
    let head = walker.next_block()?;
    let head = head.filter(|it| it.header.kind == MAP_HEAD);
    let head = head.ok_or(MapError::Content("it does not begin with its head"))?;
    let (mut region, from) = read_head(head.payload, segment_length)?;
    let names: Vec<String> = region.snapshots.keys().cloned().collect();
    let mut listed: Vec<Vec<u64>> = vec![Vec::new(); names.len()];
    let mut count = 0;
    loop {
        let Some(block) = walker.next_block()? else {
            return Err(MapError::Content("it ends before its end block"));
        };
        let mut fields = FieldReader::new(block.payload);
        if block.header.kind == MAP_END {
            if fields.long("count")? != count {
                return Err(MapError::Content("chunks are missing"));
            }
            break;
        }
        while fields.offset() < block.payload.len() {
            let (number, chunk) = (fields.word("map")? as usize, fields.long("chunk")?);
            let entries = read_chunk(&mut fields)?;
            let is_there = if number == 0 {
                region.live.set_chunk(chunk, &entries)
            } else {
                let name = names.get(number - 1);
                let snapshot = name.and_then(|name| region.snapshots.get_mut(name));
                if let Some(chunks) = listed.get_mut(number - 1) {
                    chunks.push(chunk);
                }
                snapshot.is_some_and(|it| it.map.set_chunk(chunk, &entries))
            };
            if !is_there {
                return Err(MapError::Content("a chunk is not in the volume"));
            }
            count += 1;
        }
    }
    share_chunks(&mut region, &names, &listed);
    count_use(&mut region);
    Ok((region, from))
}

/// Chunks of a snapshot that are not in the file are those of the volume.
fn share_chunks(region: &mut Region, names: &[String], listed: &[Vec<u64>]) {
    for (name, listed) in names.iter().zip(listed) {
        let Some(snapshot) = region.snapshots.get_mut(name) else {
            continue;
        };
        let mut map = region.live.clone();
        for chunk in listed {
            if let Some(entries) = snapshot.map.chunk(*chunk) {
                map.set_chunk(*chunk, entries);
            }
        }
        snapshot.map = map;
    }
}

/// Counts the bytes in use of each zone.
fn count_use(region: &mut Region) {
    let maps: Vec<BlockMap> = std::iter::once(&region.live)
        .chain(region.snapshots.values().map(|it| &it.map))
        .cloned()
        .collect();
    for number in 0..region.live.chunks() {
        for at in 0..CHUNK_BLOCKS {
            let block = BlockNumber(number * CHUNK_BLOCKS + at);
            let mut seen: Vec<u64> = Vec::new();
            for map in &maps {
                let Some(chunk) = map.chunk(number) else {
                    continue;
                };
                let entry = chunk[(block.0 % CHUNK_BLOCKS) as usize];
                if let Some(position) = entry.position().filter(|it| !seen.contains(it)) {
                    seen.push(position);
                    let length = entry.slot_length(region.geometry.block_length) as u64;
                    region.used.add(position, length);
                }
            }
        }
    }
}

fn read_head(payload: &[u8], segment_length: u64) -> Result<(Region, ReplayStart), MapError> {
    // The records of the head have fixed lengths.
    let (region_length, grant_length) = (29, 21);
    let fixed = payload.get(..region_length + grant_length);
    let records = read_records(fixed.ok_or(MapError::Content("its head is short"))?, 0)?;
    let (geometry, grant): (Geometry, Grant) = match records[..] {
        [RegionRecord::Region(geometry), RegionRecord::Grant(grant)] => (geometry, grant),
        _ => return Err(MapError::Content("its head has other records")),
    };
    if geometry.check().is_err() {
        return Err(MapError::Content("its volume has no valid shape"));
    }
    // The head has a number for each chunk, so a claimed size reserves no more than what is there.
    if geometry.blocks.div_ceil(CHUNK_BLOCKS) > payload.len() as u64 / 8 {
        return Err(MapError::Content("its head is short"));
    }
    let mut region = Region::new(geometry, segment_length);
    region.grant = grant;
    let mut fields = FieldReader::starting_at(payload, region_length + grant_length);
    let from = ReplayStart {
        position: fields.long("position")?,
        sequence: fields.long("sequence")?,
    };
    region.flush = fields.long("flush")?;
    region.mark.generation = fields.word("generation")?;
    let order = FlushOrder::decode(&mut fields)?;
    region.mark.flush = order.flush;
    region.lineage = order.lineage.unwrap_or_default();
    for _ in 0..fields.word("snapshots")? {
        let name = crate::volume_message::name(&mut fields)?;
        let snapshot = SnapshotMap {
            flush: fields.long("flush")?,
            is_whole: fields.truth("is whole")?,
            map: BlockMap::new(geometry.blocks),
        };
        region.snapshots.insert(name, snapshot);
    }
    for changed in &mut region.changed {
        *changed = fields.long("change")?;
    }
    fields.end()?;
    Ok((region, from))
}

fn read_chunk(fields: &mut FieldReader<'_>) -> Result<MapChunk, MapError> {
    let mut entries = [BlockEntry::ABSENT; CHUNK_BLOCKS as usize];
    const { assert!(ENTRY_LENGTH == 8 + 4 + 8, "the fields below") };
    for entry in &mut entries {
        let place = fields.long("place")?;
        let version = BlockVersion {
            generation: fields.word("generation")?,
            counter: fields.long("counter")?,
        };
        let read = BlockEntry::from_parts(place, version);
        *entry = read.ok_or(MapError::Content("an entry has a place and no version"))?;
    }
    Ok(entries)
}
