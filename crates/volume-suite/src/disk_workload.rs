//! The workload of a volume, and its operations as requests.

use seatrial_generator::workload::Workload;
use seatrial_generator::{Generator, function, operation};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::Rng;
use seatrial_volume::{BlockNumber, BlockSpan, Geometry, GuestOutcome, GuestReply, GuestRequest};

/// Ranges of blocks in a volatile cache: reads, writes, some of them durable at once, trims, flushes. Checked by `disk`.
/// (Registers do not fit a disk: a read may see a write that is not acknowledged yet and that a crash loses.)
pub(crate) const DISK: &str = "disk";
/// Longest range of one operation, in blocks.
const RANGE_MAX: u64 = 8;
/// Blocks that two of three operations are on.
const HOT_BLOCKS: u64 = 12;

/// The field of an operation that is durable when it succeeds.
const FUA: &str = "fua";

/// A list `[first rest]`.
fn ranged(first: u64, rest: Value) -> Value {
    Value::List([Value::Int(first as i64), rest].into())
}

/// The first block of an operation on `count` blocks.
fn first_block(rng: &mut Rng, blocks: u64, count: u64) -> u64 {
    let limit = if rng.below(3) < 2 { HOT_BLOCKS } else { blocks };
    rng.below(limit.min(blocks - count + 1))
}

/// The workload called `name`, on a volume of this number of blocks.
pub(crate) fn workload(name: &str, rng: &Rng, blocks: u64) -> Option<Workload> {
    (name == DISK).then(|| Workload {
        name: DISK,
        generator: disk(rng.fork(name), blocks),
        last: Some(last_reads(blocks)),
    })
}

fn disk(mut rng: Rng, blocks: u64) -> Box<dyn Generator> {
    let mut value = 0;
    let next = move || {
        let count = 1 + rng.below(RANGE_MAX);
        let first = first_block(&mut rng, blocks, count);
        Some(match rng.below(20) {
            0..9 => operation("read", ranged(first, Value::Int(count as i64))),
            9..16 => {
                let values = (1..=count as i64).map(|it| Value::Int(value + it));
                let op = operation("write", ranged(first, Value::List(values.collect())));
                value += count as i64;
                if rng.below(8) == 0 {
                    op.with(FUA, Value::Bool(true))
                } else {
                    op
                }
            }
            16 => operation("trim", ranged(first, Value::Int(count as i64))),
            _ => operation("flush", Value::Nil),
        })
    };
    function(next).boxed()
}

/// One read of each block.
fn last_reads(blocks: u64) -> Box<dyn Generator> {
    let mut first = 0;
    let next = move || {
        let count = RANGE_MAX.min(blocks.saturating_sub(first));
        let read = operation("read", ranged(first, Value::Int(count as i64)));
        first += RANGE_MAX;
        (count > 0).then_some(read)
    };
    function(next).clients().boxed()
}

/// The bytes of a block with this value: they say of which block they are.
fn block_bytes(block: u64, value: i64, length: u32) -> Vec<u8> {
    let pair = [value.to_le_bytes(), block.to_le_bytes()].concat();
    pair.repeat(length as usize / pair.len())
}

/// The value of a block; a text if it is not whole, or another block.
fn block_value(block: u64, bytes: &[u8]) -> Value {
    let words = bytes.as_chunks::<8>().0;
    let [value, number] = [0, 1].map(|at| words.get(at).map_or(0, |it| u64::from_le_bytes(*it)));
    if bytes.iter().all(|it| *it == 0) {
        return Value::Int(0);
    }
    let expected = block_bytes(number, value as i64, bytes.len() as u32);
    if expected != bytes {
        return Value::text("torn");
    }
    if number != block {
        return Value::text(format!("value {value} of block {number}"));
    }
    Value::Int(value as i64)
}

/// The request of an operation; an error if it has none.
pub(crate) fn request_of(op: &Op, geometry: Geometry) -> Result<GuestRequest, String> {
    if op.f == "flush" {
        return Ok(GuestRequest::Flush);
    }
    let wrong = || {
        format!(
            "{} of {}: not [first values] or [first count]",
            op.f, op.value
        )
    };
    let Value::List(items) = &op.value else {
        return Err(wrong());
    };
    let [Value::Int(first @ 0..), rest] = &items[..] else {
        return Err(wrong());
    };
    let first = BlockNumber(*first as u64);
    let fua = op.extra.get(FUA) == Some(&Value::Bool(true));
    match (op.f.as_str(), rest) {
        ("write", Value::List(values)) => {
            let mut bytes = Vec::new();
            for (block, value) in (first.0..).zip(values.iter()) {
                let value = value.as_int().ok_or_else(wrong)?;
                bytes.extend(block_bytes(block, value, geometry.block_length));
            }
            Ok(GuestRequest::Write { first, bytes, fua })
        }
        ("read" | "trim", Value::Int(count @ 1..)) => {
            let count = u32::try_from(*count).map_err(|_| wrong())?;
            let range = BlockSpan { first, count };
            Ok(match op.f.as_str() {
                "read" => GuestRequest::Read(range),
                _ => GuestRequest::Trim { range, fua },
            })
        }
        _ => Err(wrong()),
    }
}

/// The completion of an operation.
pub(crate) fn completion(op: &Op, outcome: &GuestOutcome, geometry: Geometry) -> Op {
    let is_read = op.f == "read";
    let (done, error) = match outcome {
        GuestOutcome::Done(generation, reply) => {
            let value = match (reply, &op.value) {
                (GuestReply::Bytes(bytes), Value::List(items)) if is_read => {
                    let first = items.first().and_then(Value::as_int).unwrap_or_default() as u64;
                    let blocks = bytes.chunks(geometry.block_length as usize);
                    let values = (first..).zip(blocks).map(|(at, it)| block_value(at, it));
                    ranged(first, Value::List(values.collect()))
                }
                _ => op.value.clone(),
            };
            let done = op.complete(OpType::Ok, value);
            let done = match op.extra.get(FUA) {
                Some(fua) => done.with(FUA, fua.clone()),
                None => done,
            };
            return done.with("generation", Value::Int(i64::from(*generation)));
        }
        GuestOutcome::Failed(error) => (OpType::Fail, error),
        // A read has no effect.
        GuestOutcome::Unknown(error) if is_read => (OpType::Fail, error),
        GuestOutcome::Unknown(error) => (OpType::Info, error),
    };
    let done = op.complete(done, op.value.clone());
    done.with("error", Value::text(error.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_what_they_are() {
        let bytes = block_bytes(7, 12, 512);
        assert_eq!(block_value(7, &bytes), Value::Int(12));
        assert_eq!(block_value(8, &bytes), Value::text("value 12 of block 7"));
        let torn = [&bytes[..256], &block_bytes(7, 13, 256)].concat();
        assert_eq!(block_value(7, &torn), Value::text("torn"));
        assert_eq!(block_value(7, &[0; 512]), Value::Int(0));
    }
}
