//! Chunks against the operations that went in, and against forged bytes.

use super::{Chunk, Encoder, measure};
use crate::{Extra, Key, Mop, Observed, Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// A value of any shape.
fn any_value(rng: &mut Rng, depth: u32) -> Value {
    let nested = [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16];
    let shape = if depth == 0 {
        rng.below(17)
    } else {
        *rng.pick(&nested)
    };
    match shape {
        0 => Value::Nil,
        1 => Value::Bool(rng.chance(0.5)),
        2 => Value::Int(rng.word() as i64 >> rng.below(64)),
        3 => Value::Float(rng.unit()),
        4 => Value::text(*rng.pick(&["", "n1", "größer", "a longer text"])),
        5 => Value::Word(Symbol::new(["timeout", "none"][rng.index(2)])),
        6 if depth < 3 => Value::List(
            (0..rng.below(4))
                .map(|_| any_value(rng, depth + 1))
                .collect(),
        ),
        7 if depth < 3 => Value::Map(
            (0..rng.below(3))
                .map(|_| (any_value(rng, depth + 1), any_value(rng, depth + 1)))
                .collect(),
        ),
        8 => Value::Cas(rng.below(5) as i64, -3),
        9 => Value::Txn((0..rng.below(5)).map(|_| any_mop(rng)).collect()),
        10 => Value::Keyed(any_key(rng), Arc::new(any_value(rng, depth))),
        11 => Value::Set([Value::Int(1), Value::Txn([any_mop(rng)].into())].into()),
        12 => Value::transfer(rng.below(9) as i64, -1, rng.below(1 << 20) as i64),
        13 => {
            let accounts: Vec<(i64, i64)> = (0..rng.below(5) as i64).map(|of| (of, -of)).collect();
            Value::balances(&accounts)
        }
        14 => {
            let pairs = (0..rng.below(5) as i64).map(|of| Value::integers(&[of, i64::MAX]));
            let other = rng.chance(0.3).then(|| Value::integers(&[1]));
            Value::List(pairs.chain(other).collect())
        }
        15 => Value::integers(&(0..rng.below(20) as i64).collect::<Vec<_>>()),
        16 => {
            let first = rng.below(2) as i64;
            Value::integer_set(&(first..first + rng.below(20) as i64).collect::<Vec<_>>())
        }
        _ => Value::Int(7),
    }
}

fn any_key(rng: &mut Rng) -> Key {
    match rng.below(6) {
        0 => Key::Word(Symbol::new("x")),
        1 => Key::Text("key".into()),
        number => Key::Int(number as i64),
    }
}

fn any_mop(rng: &mut Rng) -> Mop {
    let key = any_key(rng);
    let length = rng.below(9) as i64;
    match rng.below(6) {
        0 => Mop::Append {
            key,
            element: length,
        },
        1 => Mop::Write {
            key,
            value: i64::MIN + length,
        },
        2 => Mop::Read {
            key,
            observed: Observed::Nil,
        },
        3 => Mop::Read {
            key,
            observed: Observed::Register(length),
        },
        4 => Mop::Read {
            key,
            observed: Observed::List((length..2 * length).collect()),
        },
        _ => Mop::Read {
            key,
            observed: Observed::List((0..length).collect()),
        },
    }
}

fn any_ops(rng: &mut Rng, count: u64) -> Vec<Op> {
    let (mut index, mut time) = (rng.below(1 << 40), -1);
    let gaps = if rng.chance(0.5) { 1 } else { 3 };
    (0..count)
        .map(|_| {
            index += 1 + rng.below(gaps);
            time += rng.below(1_000_000) as i64;
            let kinds = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];
            let process = match rng.below(8) {
                0 => Process::NEMESIS,
                number => Process::Client(number << rng.below(30)),
            };
            let fields = [
                (Symbol::new("node"), Value::text("n1")),
                (Symbol::new("error"), any_value(rng, 1)),
            ];
            Op {
                index,
                time,
                kind: *rng.pick(&kinds),
                process,
                f: Symbol::new(["read", "txn"][rng.index(2)]),
                value: any_value(rng, 0),
                extra: Extra::new(&fields[..rng.index(3)]),
            }
        })
        .collect()
}

/// The distance to the invocation that the operation at this place is given.
fn pair(place: usize, op: &Op) -> u64 {
    if op.kind == OpType::Invoke {
        0
    } else {
        place as u64 % 3
    }
}

fn encoded(ops: &[Op], first: u64) -> Vec<u8> {
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    write(&mut encoder, ops, first, &mut bytes);
    bytes
}

fn write(encoder: &mut Encoder, ops: &[Op], first: u64, bytes: &mut Vec<u8>) {
    for (place, op) in ops.iter().enumerate() {
        measure(op).unwrap();
        encoder.push(op, pair(place, op));
    }
    encoder.write(first, bytes);
}

#[test]
fn operations_of_every_shape_come_back() {
    for seed in 0..500 {
        let mut rng = Rng::from_seed(seed);
        let count = 1 + rng.below(60);
        let ops = any_ops(&mut rng, count);
        let chunk = Chunk::from_bytes(&encoded(&ops, 77)).unwrap();
        let read: Vec<Op> = chunk.ops().collect();
        // Equality is blind to order in sets and to compact forms; what is stored is not.
        let (read, written) = (format!("{read:?}"), format!("{ops:?}"));
        assert!(read == written, "seed {seed}: {read}, not {written}");
        assert_eq!(chunk.first_position(), 77);
        for (place, op) in ops.iter().enumerate() {
            assert_eq!(chunk.place(op.index), Some(place), "seed {seed}");
            assert_eq!(
                chunk.pairs()[place],
                pair(place, op).cast_signed(),
                "seed {seed}"
            );
        }
        assert_eq!(chunk.place(ops[0].index - 1), None);
        let times = ops.iter().map(|op| op.time);
        let header = chunk.header();
        let (low, high) = (times.clone().min(), times.max());
        assert_eq!((Some(header.time_min), Some(header.time_max)), (low, high));
    }
}

#[test]
fn reads_share_the_longest_list_of_their_key() {
    let read = |elements: &[i64]| {
        let observed = Observed::List(elements.into());
        let mops = [Mop::Read {
            key: Key::Int(5),
            observed,
        }];
        Op::invoke(Process::Client(1), "txn", Value::Txn(mops.into()))
    };
    let lists: [&[i64]; 5] = [&[1, 2], &[], &[1, 2, 3, 4], &[1, 9], &[1]];
    let mut ops: Vec<Op> = lists.iter().map(|list| read(list)).collect();
    ops.iter_mut()
        .enumerate()
        .for_each(|(index, op)| op.index = index as u64);
    let chunk = Chunk::from_bytes(&encoded(&ops, 0)).unwrap();
    assert_eq!(chunk.list(0), [1, 2, 3, 4]);
    assert_eq!(chunk.ops().collect::<Vec<_>>(), ops);
}

/// The micro-operations of an operation, put together from raw columns.
fn from_raw_columns(chunk: &Chunk, place: usize) -> Vec<Mop> {
    use super::mop_tag;
    let starts = chunk.mop_starts();
    let numbers = starts[place] as usize..starts[place + 1] as usize;
    let mops = numbers.map(|number| {
        let (id, argument) = (chunk.mop_keys()[number], chunk.mop_arguments()[number]);
        let key = chunk.key(id).clone();
        let list = |elements: &[i64]| Observed::List(elements.into());
        let observed = match chunk.mop_tags()[number] {
            mop_tag::APPEND => {
                let element = argument;
                return Mop::Append { key, element };
            }
            mop_tag::WRITE => {
                let value = argument;
                return Mop::Write { key, value };
            }
            mop_tag::READ_REGISTER => Observed::Register(argument),
            mop_tag::READ_PREFIX => list(&chunk.list(id)[..argument as usize]),
            mop_tag::READ_BRANCH => list(chunk.reference(argument)),
            _ => Observed::Nil,
        };
        Mop::Read { key, observed }
    });
    mops.collect()
}

#[test]
fn raw_columns_say_what_the_operations_say() {
    let mut transactions = 0;
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let ops = any_ops(&mut rng, 30);
        let chunk = Chunk::from_bytes(&encoded(&ops, 0)).unwrap();
        for (place, op) in ops.iter().enumerate() {
            let value = match &op.value {
                Value::Keyed(_, value) => value,
                value => value,
            };
            if let Value::Txn(mops) = value
                && !chunk.mop_starts().is_empty()
            {
                assert_eq!(
                    from_raw_columns(&chunk, place),
                    **mops,
                    "seed {seed}, {place}"
                );
                transactions += mops.len();
            }
        }
    }
    assert!(transactions > 500, "{transactions}");
}

#[test]
fn an_encoder_can_be_used_again() {
    let mut rng = Rng::from_seed(3);
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    for _ in 0..5 {
        let ops = any_ops(&mut rng, 20);
        bytes.clear();
        write(&mut encoder, &ops, 3, &mut bytes);
        assert_eq!(bytes, encoded(&ops, 3));
    }
}

/// Decodes, and reads every operation if that worked.
fn fuzz_one(bytes: &[u8]) -> bool {
    let Ok(chunk) = Chunk::from_bytes(bytes) else {
        return false;
    };
    for place in 0..chunk.len() {
        let op = chunk.op(place);
        let _ = (op.to_string(), chunk.value(place), chunk.place(op.index));
        let _ = (chunk.invocation(place), chunk.extra(place).count());
    }
    let mops = chunk.mop_keys().iter().zip(chunk.mop_arguments());
    for ((&key, &argument), &tag) in mops.zip(chunk.mop_tags()) {
        match tag {
            super::mop_tag::READ_PREFIX => _ = &chunk.list(key)[..argument as usize],
            super::mop_tag::READ_BRANCH => _ = chunk.reference(argument),
            _ => {}
        }
    }
    true
}

#[test]
fn arbitrary_bytes_are_errors_or_operations() {
    let mut readable = 0;
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let count = 1 + rng.below(12);
        let mut bytes = encoded(&any_ops(&mut rng, count), 0);
        for _ in 0..=rng.below(3) {
            let at = rng.index(bytes.len());
            bytes[at] = *rng.pick(&[0, 1, 2, 8, 127, 255, rng.clone().word() as u8]);
        }
        if rng.chance(0.2) {
            bytes.truncate(rng.index(bytes.len()));
        }
        readable += u32::from(fuzz_one(&bytes));
    }
    assert!(
        (1_000..19_000).contains(&readable),
        "{readable} of 20,000 readable"
    );
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let bytes: Vec<u8> = (0..rng.below(300)).map(|_| rng.word() as u8).collect();
        fuzz_one(&bytes);
    }
}

/// Each byte of each column's descriptor, and the first and last of its values, replaced by others.
#[test]
fn every_field_of_every_column_may_be_wrong() {
    let (mut readable, mut refused) = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let count = 2 + rng.below(20);
        let bytes = encoded(&any_ops(&mut rng, count), rng.below(3));
        let columns = usize::from(u16::from_le_bytes([bytes[60], bytes[61]]));
        let mut values_at = 64 + 16 * columns;
        let mut places: Vec<usize> = (0..64 + 16 * columns).collect();
        for column in 0..columns {
            let descriptor = &bytes[64 + 16 * column..];
            let count = u32::from_le_bytes(descriptor[4..8].try_into().unwrap());
            let length = count as usize * usize::from(descriptor[1]);
            if length > 0 {
                places.extend([values_at, values_at + length - 1]);
            }
            values_at += length;
        }
        assert_eq!(values_at, bytes.len());
        for place in places {
            for other in [
                0,
                1,
                0x7f,
                0x80,
                0xff,
                bytes[place] ^ 1,
                bytes[place].wrapping_add(1),
            ] {
                let mut bytes = bytes.clone();
                bytes[place] = other;
                if fuzz_one(&bytes) {
                    readable += 1;
                } else {
                    refused += 1;
                }
            }
        }
    }
    assert!(
        readable > 10_000 && refused > 50_000,
        "{readable}, {refused}"
    );
}

/// One template with four million fields, used by every one of 65,536 operations, is 262 billion fields in less
/// than five megabytes: it must be refused before anybody counts to that.
#[test]
fn many_fields_times_many_operations_are_refused_at_once() {
    let chunk = hostile_fields(4_000_000, 65_536);
    assert!(chunk.len() < 5_000_000);
    let error = Chunk::from_bytes(&chunk).unwrap_err();
    assert!(error.problem.contains("field value"), "{error}");
}

/// A chunk whose only template has this many fields, all the same, and whose column of their values is too short.
fn hostile_fields(fields: usize, operations: usize) -> Vec<u8> {
    use super::column_writer::ChunkColumnWriter;
    use super::layout::column;
    use seatrial_blocks::packed::IntegerSlice;
    let (zeros, no_ids) = (vec![0; fields.max(operations)], vec![0_u32; operations]);
    let counts = [fields as u32];
    let steps = vec![1_i64; operations - 1];
    let mut columns = ChunkColumnWriter::default();
    columns.put(column::TEMPLATE, IntegerSlice::Ids(&no_ids));
    columns.put(column::PROCESS, IntegerSlice::Ids(&no_ids));
    columns.put(column::INDEX_STEP, IntegerSlice::Integers(&steps));
    columns.put(column::TIME_STEP, IntegerSlice::Integers(&steps));
    columns.put(column::PAIR, IntegerSlice::Ids(&no_ids));
    columns.put(column::KEY, IntegerSlice::Ids(&no_ids));
    columns.put(column::TEMPLATE_TYPE, IntegerSlice::Bytes(&[0]));
    columns.put(column::TEMPLATE_SHAPE, IntegerSlice::Bytes(&[0]));
    columns.put(column::TEMPLATE_F, IntegerSlice::Bytes(&[0]));
    columns.put(column::TEMPLATE_FIELD_COUNT, IntegerSlice::Ids(&counts));
    columns.put(
        column::TEMPLATE_FIELD,
        IntegerSlice::Bytes(&zeros[..fields]),
    );
    columns.put(
        column::FIELD_VALUE,
        IntegerSlice::Bytes(&zeros[..operations]),
    );
    columns.put(column::FIELD_NAME, IntegerSlice::Bytes(&[0]));
    columns.put(column::ENTRY_TAGS, IntegerSlice::Bytes(&[1]));
    columns.put(column::ENTRY_INTEGERS, IntegerSlice::Bytes(&[0]));
    columns.put(column::ENTRY_TAPE_TAG, IntegerSlice::Bytes(&[0]));
    columns.put(column::WORD_LENGTH, IntegerSlice::Bytes(&[1]));
    columns.put(column::WORD_BYTES, IntegerSlice::Bytes(b"f"));
    columns.put(column::PROCESS_KIND, IntegerSlice::Bytes(&[0]));
    columns.put(column::PROCESS_NUMBER, IntegerSlice::Bytes(&[0]));
    let mut bytes = Vec::new();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend((operations as u32).to_le_bytes());
    bytes.extend([0; 32]);
    bytes.extend((operations as i64 - 1).to_le_bytes());
    bytes.extend([0; 12]);
    bytes.extend((columns.count() as u16).to_le_bytes());
    bytes.extend([0; 2]);
    columns.write(&mut bytes);
    bytes
}
