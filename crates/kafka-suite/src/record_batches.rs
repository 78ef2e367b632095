//! The messages in the records of a fetch.
//!
//! A broker returns whole batches, the first of which may begin before the offset that was asked for, and the last of which may
//! be cut off. `kafka-protocol` checks the checksum and the header of each; records are read here, because its decoder reserves
//! room for as many records and headers as are claimed, and adds offsets without a check.

use bytes::Bytes;
use kafka_protocol::records::{BatchDecodeInfo, Compression, RecordBatchDecoder};

/// A message of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionMessage {
    pub(crate) offset: i64,
    /// Which log or set it belongs to.
    pub(crate) key: Bytes,
    pub(crate) number: i64,
}

/// What a fetch returned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchedRecords {
    pub(crate) messages: Vec<PartitionMessage>,
    /// The offset after the last whole batch; `None` if there is no batch.
    pub(crate) next: Option<i64>,
}

/// Bytes before those that the length of a batch counts: its first offset and that length.
const BATCH_PREFIX: usize = 12;
/// Bytes of a batch before its records.
const BATCH_HEADER: usize = 61;
/// Where a batch has the difference between its last offset and its first one.
const LAST_OFFSET_DELTA: usize = 23;

/// The messages from this offset on.
pub(crate) fn messages(mut records: Bytes, from: i64) -> Result<FetchedRecords, String> {
    let mut found = FetchedRecords::default();
    while let Some(batch) = next_batch(&mut records)? {
        let infos = RecordBatchDecoder::decode_batch_info(&mut batch.clone());
        let infos = infos.map_err(|error| format!("a damaged batch: {error:#}"))?;
        let [info] = &infos[..] else {
            return Err("a batch of an unknown version".into());
        };
        if info.compression != Compression::None {
            return Err(format!("a batch with compression {:?}", info.compression));
        }
        let delta = batch.get(LAST_OFFSET_DELTA..LAST_OFFSET_DELTA + 4);
        let delta = delta.and_then(|bytes| bytes.try_into().ok());
        let delta = i32::from_be_bytes(delta.ok_or("a batch without its last offset")?);
        let next = info.min_offset.checked_add(i64::from(delta) + 1);
        found.next = Some(next.ok_or("a batch with offsets that are too large")?);
        // Those of transactions, which no client of ours begins.
        if !info.control {
            let all = batch.get(BATCH_HEADER..).unwrap_or_default();
            found.take(all, info, from)?;
        }
    }
    Ok(found)
}

/// Splits the next whole batch off; `None` if there is none any more.
fn next_batch(records: &mut Bytes) -> Result<Option<Bytes>, String> {
    let Some(length) = records.get(8..BATCH_PREFIX) else {
        return Ok(None);
    };
    let length = length.try_into().map(i32::from_be_bytes);
    let length = length.ok().and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or("a batch of negative length")? + BATCH_PREFIX;
    if length > records.len() {
        return Ok(None);
    }
    if length < BATCH_HEADER {
        return Err(format!("a batch of {length} bytes"));
    }
    Ok(Some(records.split_to(length)))
}

impl FetchedRecords {
    /// Reads the records of a batch.
    fn take(&mut self, all: &[u8], info: &BatchDecodeInfo, from: i64) -> Result<(), String> {
        let mut rest = all;
        for _ in 0..info.record_count {
            let length = variable(&mut rest)?;
            let mut record = part(&mut rest, length)?;
            let record = message(&mut record, info.min_offset)?;
            if record.offset >= from {
                self.messages.push(record);
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(format!("{} bytes after the last record", rest.len()))
        }
    }
}

/// Reads one record, but for its headers: attributes, the differences of its time and its offset, key, value.
fn message(record: &mut &[u8], first: i64) -> Result<PartitionMessage, String> {
    part(record, 1)?;
    variable(record)?;
    let offset = first.checked_add(variable(record)?);
    let offset = offset.ok_or("a record whose offset is too large")?;
    let length = variable(record)?;
    // No key, -1, is that of no log.
    let key = part(record, length.max(0))?;
    let length = variable(record)?;
    let value = part(record, length.max(0))?;
    let number = std::str::from_utf8(value).ok();
    let number = number.and_then(|text| text.parse().ok());
    Ok(PartitionMessage {
        offset,
        key: Bytes::copy_from_slice(key),
        number: number.ok_or_else(|| format!("record {offset} has no number"))?,
    })
}

/// The next bytes.
fn part<'a>(rest: &mut &'a [u8], length: i64) -> Result<&'a [u8], String> {
    let length = usize::try_from(length).map_err(|_| format!("a length of {length} bytes"))?;
    let Some((first, after)) = rest.split_at_checked(length) else {
        return Err(format!(
            "a truncated record: {length} bytes expected, {} found",
            rest.len()
        ));
    };
    *rest = after;
    Ok(first)
}

/// Bytes of the longest integer of variable length.
const VARIABLE_BYTES: u32 = 10;

/// The next integer of variable length, in zigzag encoding.
fn variable(rest: &mut &[u8]) -> Result<i64, String> {
    let mut value = 0_u64;
    for place in 0..VARIABLE_BYTES {
        let byte = part(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err("an integer of more than ten bytes".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    const INFO: BatchDecodeInfo = BatchDecodeInfo {
        record_count: 1,
        timestamp_type: kafka_protocol::records::TimestampType::Creation,
        min_offset: 40,
        min_timestamp: 0,
        base_sequence: -1,
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 0,
        producer_id: -1,
        producer_epoch: -1,
        compression: Compression::None,
        version: 2,
    };
    /// Two records: key `1`, number 12, at the first offset; key `2`, number -3, at the second one.
    const RECORDS: &[u8] = b"\x12\0\0\0\x021\x0412\0\x12\0\0\x02\x022\x04-3\0";

    fn taken(records: &[u8], info: &BatchDecodeInfo, from: i64) -> Result<Vec<i64>, String> {
        let mut found = FetchedRecords::default();
        found.take(records, info, from)?;
        Ok(found.messages.iter().map(|one| one.number).collect())
    }

    #[test]
    fn records_from_an_offset_on_are_taken() {
        let two = BatchDecodeInfo {
            record_count: 2,
            ..INFO
        };
        assert_eq!(taken(RECORDS, &two, 0), Ok(vec![12, -3]));
        assert_eq!(taken(RECORDS, &two, 41), Ok(vec![-3]));
        let error = taken(RECORDS, &INFO, 0).unwrap_err();
        assert_eq!(error, "10 bytes after the last record");
    }

    #[test]
    fn records_that_are_not_there_are_errors() {
        let more = BatchDecodeInfo {
            record_count: i32::MAX,
            ..INFO
        };
        assert!(
            taken(RECORDS, &more, 0)
                .unwrap_err()
                .starts_with("a truncated record")
        );
        let late = BatchDecodeInfo {
            record_count: 2,
            min_offset: i64::MAX,
            ..INFO
        };
        let error = taken(RECORDS, &late, 0).unwrap_err();
        assert_eq!(error, "a record whose offset is too large");
        let error = variable(&mut &[0xff; 11][..]).unwrap_err();
        assert_eq!(error, "an integer of more than ten bytes");
        assert_eq!(variable(&mut &b"\xd8\x04"[..]), Ok(300));
        assert_eq!(variable(&mut &b"\x03"[..]), Ok(-2));
    }

    #[test]
    fn damaged_records_are_errors() {
        let mut rng = Rng::from_seed(3);
        for _ in 0..50_000 {
            let mut damaged = RECORDS.to_vec();
            for _ in 0..=rng.below(3) {
                let place = rng.below(damaged.len() as u64) as usize;
                damaged[place] = rng.below(256) as u8;
            }
            let info = BatchDecodeInfo {
                record_count: rng.below(4) as i32,
                min_offset: if rng.below(2) == 0 { 0 } else { i64::MAX - 1 },
                ..INFO
            };
            let found = taken(&damaged, &info, 0);
            assert!(found.is_err() || found.is_ok_and(|found| found.len() <= 3));
        }
    }
}
