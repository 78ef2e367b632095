//! Records of a replica's log. Byte map in `docs/formats/volume.md`.

use crate::block_context::{BlockSlot, split_slots};
use crate::geometry::{BlockNumber, BlockSpan, Geometry, VolumeId};
use crate::volume_message::{FlushOrder, MapName, name};
use seatrial_blocks::BlockKind;
use seatrial_machine::{FieldReader, MessageError};

/// The kind of the log's blocks.
pub(crate) const REGION_LOG: BlockKind = BlockKind(48);

/// A generation that was granted, and to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The generation; 0: none.
    pub(crate) generation: u32,
    /// The upstairs; 0: unknown, because the record is lost.
    pub(crate) upstairs: u128,
}

/// A record.
#[derive(Debug)]
pub(crate) enum RegionRecord<'a> {
    /// The region. The first record of a log, and of what is left of it after its head was freed.
    Region(Geometry),
    /// A generation is granted.
    Grant(Grant),
    /// Slots of consecutive blocks, back to back.
    Data {
        /// Of the volume, or of a snapshot that is being copied.
        map: MapName,
        /// The flush that will contain them.
        flush: u64,
        /// The blocks.
        span: BlockSpan,
        /// Their slots.
        slots: Vec<BlockSlot<'a>>,
        /// Offset of the first slot in the payload.
        at: usize,
    },
    /// A slot was moved from an older position, in all maps that have it there.
    Moved {
        /// The block.
        block: BlockNumber,
        /// The old position.
        from: u64,
        /// The slot.
        slot: BlockSlot<'a>,
        /// Its offset in the payload.
        at: usize,
    },
    /// A flush of a generation.
    Flush(u32, FlushOrder),
    /// A copy of a snapshot begins.
    BeginSnapshot(MapName, u64),
    /// A copy of a snapshot is whole.
    EndSnapshot(MapName),
    /// A snapshot that the other replicas do not have is gone.
    DropSnapshot(MapName),
}

const REGION: u8 = 1;
const GRANT: u8 = 2;
const DATA: u8 = 3;
const MOVED: u8 = 4;
const FLUSH: u8 = 5;
const BEGIN_SNAPSHOT: u8 = 6;
const END_SNAPSHOT: u8 = 7;
const DROP_SNAPSHOT: u8 = 8;

pub(crate) fn put_region(out: &mut Vec<u8>, geometry: &Geometry) {
    out.push(REGION);
    out.extend_from_slice(&geometry.volume.0.to_le_bytes());
    out.extend_from_slice(&geometry.block_length.to_le_bytes());
    out.extend_from_slice(&geometry.blocks.to_le_bytes());
}

pub(crate) fn put_grant(out: &mut Vec<u8>, grant: Grant) {
    out.push(GRANT);
    out.extend_from_slice(&grant.generation.to_le_bytes());
    out.extend_from_slice(&grant.upstairs.to_le_bytes());
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

/// The head of a data record; the slots follow.
pub(crate) fn put_data(out: &mut Vec<u8>, map: &str, flush: u64, span: BlockSpan) {
    out.push(DATA);
    put_name(out, map);
    out.extend_from_slice(&flush.to_le_bytes());
    out.extend_from_slice(&span.first.0.to_le_bytes());
    out.extend_from_slice(&span.count.to_le_bytes());
}

pub(crate) fn put_moved(out: &mut Vec<u8>, block: BlockNumber, from: u64, slot: &[u8]) {
    out.push(MOVED);
    out.extend_from_slice(&block.0.to_le_bytes());
    out.extend_from_slice(&from.to_le_bytes());
    out.extend_from_slice(slot);
}

pub(crate) fn put_flush(out: &mut Vec<u8>, generation: u32, order: &FlushOrder) {
    out.push(FLUSH);
    out.extend_from_slice(&generation.to_le_bytes());
    order.encode(out);
}

pub(crate) fn put_begin_snapshot(out: &mut Vec<u8>, name: &str, flush: u64) {
    out.push(BEGIN_SNAPSHOT);
    put_name(out, name);
    out.extend_from_slice(&flush.to_le_bytes());
}

pub(crate) fn put_end_snapshot(out: &mut Vec<u8>, name: &str) {
    out.push(END_SNAPSHOT);
    put_name(out, name);
}

pub(crate) fn put_drop_snapshot(out: &mut Vec<u8>, name: &str) {
    out.push(DROP_SNAPSHOT);
    put_name(out, name);
}

/// Decodes the records of a block's payload.
pub(crate) fn read_records(
    payload: &[u8],
    block_length: u32,
) -> Result<Vec<RegionRecord<'_>>, MessageError> {
    let mut fields = FieldReader::new(payload);
    let mut records = Vec::new();
    while fields.offset() < payload.len() {
        let kind = fields.byte("kind")?;
        records.push(match kind {
            REGION => {
                let low = u128::from(fields.long("volume")?);
                let high = u128::from(fields.long("volume")?);
                RegionRecord::Region(Geometry {
                    volume: VolumeId(high << 64 | low),
                    block_length: fields.word("block length")?,
                    blocks: fields.long("blocks")?,
                })
            }
            GRANT => {
                let generation = fields.word("generation")?;
                let low = u128::from(fields.long("upstairs")?);
                let high = u128::from(fields.long("upstairs")?);
                RegionRecord::Grant(Grant {
                    generation,
                    upstairs: high << 64 | low,
                })
            }
            DATA => read_data(&mut fields, payload, block_length)?,
            MOVED => {
                let block = BlockNumber(fields.long("block")?);
                let from = fields.long("old position")?;
                let at = fields.offset();
                let slot = read_slot(&mut fields, payload, block_length)?;
                RegionRecord::Moved {
                    block,
                    from,
                    slot,
                    at,
                }
            }
            FLUSH => {
                let generation = fields.word("generation")?;
                RegionRecord::Flush(generation, FlushOrder::decode(&mut fields)?)
            }
            BEGIN_SNAPSHOT => {
                let name = name(&mut fields)?;
                RegionRecord::BeginSnapshot(name, fields.long("flush")?)
            }
            END_SNAPSHOT => RegionRecord::EndSnapshot(name(&mut fields)?),
            DROP_SNAPSHOT => RegionRecord::DropSnapshot(name(&mut fields)?),
            other => return Err(fields.never("kind", 1, u64::from(other))),
        });
    }
    Ok(records)
}

fn read_data<'a>(
    fields: &mut FieldReader<'a>,
    payload: &'a [u8],
    block_length: u32,
) -> Result<RegionRecord<'a>, MessageError> {
    let map = name(fields)?;
    let flush = fields.long("flush")?;
    let span = BlockSpan {
        first: BlockNumber(fields.long("first block")?),
        count: fields.word("count")?,
    };
    let at = fields.offset();
    let mut slots = Vec::new();
    for _ in 0..span.count {
        slots.push(read_slot(fields, payload, block_length)?);
    }
    Ok(RegionRecord::Data {
        map,
        flush,
        span,
        slots,
        at,
    })
}

fn read_slot<'a>(
    fields: &mut FieldReader<'a>,
    payload: &'a [u8],
    block_length: u32,
) -> Result<BlockSlot<'a>, MessageError> {
    let rest = &payload[fields.offset()..];
    let length = crate::BlockContext::decode(rest).map(|it| it.slot_length(block_length));
    let Some(length) = length else {
        return Err(fields.never("slot", 0, 0));
    };
    let bytes = fields.bytes("slot", length)?;
    let slots = split_slots(bytes, 1, block_length);
    let slot = slots.and_then(|mut it| it.pop());
    slot.ok_or_else(|| fields.never("slot", 0, 0))
}
