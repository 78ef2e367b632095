mod changes;

use super::*;
use crate::session_table::{Admission, REPLY_LENGTH_MAX};
use crate::state::{Item, StoreState};
use bytes::Bytes;
use format::{APPENDED, FileRoot, HEADER, REMOVED, ROOT, SESSIONS, SLICE, SLICE_LENGTH};
use seatrial_blocks::{BlockHeader, BlockKind, HEADER_LENGTH, block};
use seatrial_kv_protocol::Transaction;
use seatrial_kv_protocol::message::{KEY_LENGTH_MAX, VALUE_LENGTH_MAX};
use seatrial_machine::{Rng, Time};
use std::collections::BTreeMap;

fn head() -> CheckpointHead {
    CheckpointHead {
        cluster: 0x1112_1314_1516_1718,
        index: 21,
        term: 3,
        members: b"members".to_vec(),
        schedule: b"schedule".to_vec(),
    }
}

/// The whole file, written with random budgets, and its mark.
fn file(state: &StoreState, rng: &mut Rng) -> (Vec<u8>, CheckpointMark) {
    let mut writer = CheckpointWriter::new(state.snapshot(), head());
    let mut file = Vec::new();
    while let Some(bytes) = writer.next(rng.index(1 << 20)) {
        assert!(!bytes.is_empty());
        file.extend_from_slice(&bytes);
        assert_eq!(writer.position(), file.len() as u64);
    }
    let mark = writer.finish();
    assert_eq!(mark.length, file.len() as u64);
    (file, mark)
}

fn read(file: &[u8]) -> Result<(CheckpointHead, StoreState, CheckpointMark), CheckpointError> {
    let mut reader = CheckpointReader::new();
    reader.push(file)?;
    reader.finish()
}

/// Why a file is refused.
fn refusal(file: &[u8]) -> CheckpointError {
    match read(file) {
        Ok(_) => panic!("the file is accepted"),
        Err(error) => error,
    }
}

fn assert_equal(one: &StoreState, other: &StoreState) {
    let (one, other) = (one.snapshot(), other.snapshot());
    assert_eq!(one.items(), other.items());
    assert_eq!(one.sessions(), other.sessions());
}

fn execute(state: &mut StoreState, transaction: &Transaction) {
    let operations = transaction.operations();
    state.execute(operations, 0, &mut Vec::new()).unwrap();
}

/// Writes or appends random contents.
fn change(state: &mut StoreState, rng: &mut Rng, key: &[u8], length_max: usize) {
    let mut transaction = Transaction::new();
    if key.len().is_multiple_of(3) {
        for _ in 0..=rng.index(3) {
            let value = vec![rng.word() as u8; rng.index(length_max / 4)];
            transaction.append(key, &value).unwrap();
        }
    } else {
        let value = vec![rng.word() as u8; rng.index(length_max)];
        transaction.write(key, &value).unwrap();
    }
    // A list may be full.
    let operations = transaction.operations();
    let _ = state.execute(operations, 0, &mut Vec::new());
}

/// Sessions with replies of all kinds.
fn converse(state: &mut StoreState, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let now = Time::from_milliseconds(rng.below(1_000));
        let sessions = state.sessions();
        let Some(session) = sessions.open(now) else {
            continue;
        };
        let mut request = 0;
        for _ in 0..rng.below(12) {
            let jump = if rng.chance(0.1) { 200 } else { 3 };
            request += 1 + rng.below(jump);
            let acknowledged = request - rng.below(4).min(request);
            if sessions.admit(session, request, acknowledged, now) == Admission::First {
                let long = if rng.chance(0.02) {
                    REPLY_LENGTH_MAX
                } else {
                    40
                };
                let reply = vec![rng.word() as u8; rng.index(long)];
                sessions.remember(session, request, Bytes::from(reply));
            }
        }
        if rng.chance(0.1) {
            sessions.close(session);
        }
    }
}

/// A state of about `keys` keys, with values of up to `length_max` bytes.
fn random_state(rng: &mut Rng, keys: u64, length_max: usize) -> StoreState {
    let mut state = StoreState::default();
    for _ in 0..keys {
        let number = rng.below(keys * 2);
        let mut key = number.to_be_bytes()[rng.index(7)..].to_vec();
        if rng.chance(0.05) {
            key.resize(rng.index(KEY_LENGTH_MAX + 1), 9);
        }
        if rng.chance(0.1) {
            let mut transaction = Transaction::new();
            transaction.delete(&key).unwrap();
            execute(&mut state, &transaction);
        }
        change(&mut state, rng, &key, length_max);
    }
    converse(&mut state, rng, 20);
    state
}

#[test]
fn a_state_comes_back_from_its_file_and_has_the_same_file() {
    let shapes = [
        (0, 1),
        (1, 10),
        (300, 100),
        (3_000, 300),
        (400, 20_000),
        (20, 1 << 20),
    ];
    for (seed, (keys, length_max)) in shapes.into_iter().enumerate() {
        for round in 0..6 {
            let mut rng = Rng::from_seed(seed as u64 * 100 + round);
            let state = random_state(&mut rng, keys, length_max);
            let (bytes, mark) = file(&state, &mut rng);
            assert_eq!(file(&state, &mut rng), (bytes.clone(), mark), "any budget");
            let (found, restored, read_mark) = read(&bytes).unwrap();
            assert_eq!((found, read_mark), (head(), mark));
            assert_equal(&restored, &state);
            assert_eq!(file(&restored, &mut rng), (bytes, mark));
        }
    }
}

#[test]
fn the_bytes_are_the_documented_ones() {
    let mut state = StoreState::default();
    let mut transaction = Transaction::new();
    transaction.append(b"list", b"one").unwrap();
    transaction.append(b"list", b"").unwrap();
    transaction.write(b"key", b"value").unwrap();
    execute(&mut state, &transaction);
    let sessions = state.sessions();
    let session = sessions.open(Time::from_nanoseconds(7)).unwrap();
    sessions.admit(session, 2, 1, Time::from_nanoseconds(9));
    sessions.remember(session, 2, Bytes::from_static(b"reply"));
    let (bytes, mark) = file(&state, &mut Rng::from_seed(1));
    let blocks = split(&bytes);
    let kinds: Vec<u16> = blocks.iter().map(|(kind, _)| kind.0).collect();
    assert_eq!(kinds, [40, 41, 42, 43]);
    let long = |number: u64| number.to_le_bytes();
    let word = |number: u32| number.to_le_bytes();
    let header = [
        [word(1), word(7), word(8), word(1)].concat(),
        [long(head().cluster), long(21), long(3), long(2)].concat(),
        // Size: two keys, the value, and two elements of 4 bytes more.
        [long(3 + 4 + 5 + 11), long(2), long(9)].concat(),
        b"membersschedule".to_vec(),
    ];
    assert_eq!(blocks[0].1, header.concat());
    let slice = [
        b"\x03\0key\x01\x05\0\0\0value".to_vec(),
        b"\x04\0list\x02".to_vec(),
        [word(2), word(11), word(2), word(11)].concat(),
        b"\x03\0\0\0one\0\0\0\0".to_vec(),
    ];
    assert_eq!(blocks[1].1, slice.concat());
    let entry = [
        // Ids 0 and 2 were received.
        [long(1), long(2), long(0b101), long(0), long(9), long(1)].concat(),
        [&word(1)[..], &long(2), &word(5), b"reply"].concat(),
    ];
    assert_eq!(blocks[2].1, entry.concat());
    let before = bytes.len() - block::block_length(blocks[3].1.len());
    let root = [
        [long(1), long(1), long(before as u64)].concat(),
        mark.digest.to_vec(),
        blocks[1..3]
            .iter()
            .flat_map(|(_, it)| word(seatrial_blocks::crc32c(it)))
            .collect(),
    ];
    assert_eq!(blocks[3].1, root.concat());
    let digest = twox_hash::XxHash3_128::oneshot(&bytes[..before]);
    assert_eq!(mark.digest, digest.to_be_bytes());
}

#[test]
fn equal_states_have_one_file_whatever_led_to_them() {
    for seed in 0..10 {
        let mut rng = Rng::from_seed(seed);
        let contents: BTreeMap<Vec<u8>, Vec<u8>> = (0..2_000)
            .map(|_| {
                (
                    rng.word().to_le_bytes()[..2 + rng.index(6)].to_vec(),
                    vec![7; rng.index(900)],
                )
            })
            .collect();
        let mut files = Vec::new();
        for _ in 0..2 {
            let mut state = StoreState::default();
            let mut keys: Vec<&Vec<u8>> = contents.keys().collect();
            while !keys.is_empty() {
                let key = keys.swap_remove(rng.index(keys.len()));
                // Detours: other values, other kinds, other keys, a snapshot that comes and goes.
                let snapshot = rng.chance(0.1).then(|| state.snapshot());
                let mut detour = Transaction::new();
                let other = rng.word().to_be_bytes();
                detour.append(&other, b"gone").unwrap();
                detour.delete(&other).unwrap();
                detour.delete(key).unwrap();
                detour.append(key, &vec![1; rng.index(5_000)]).unwrap();
                detour.append(key, b"2").unwrap();
                detour.delete(key).unwrap();
                execute(&mut state, &detour);
                let mut write = Transaction::new();
                if contents[key].len().is_multiple_of(2) {
                    write.write(key, &contents[key]).unwrap();
                } else {
                    for element in contents[key].chunks(100) {
                        write.append(key, element).unwrap();
                    }
                }
                execute(&mut state, &write);
                drop(snapshot);
            }
            files.push(file(&state, &mut rng));
        }
        assert_eq!(files[0], files[1], "seed {seed}");
    }
}

#[test]
fn a_long_list_is_split_over_slices() {
    let mut state = StoreState::default();
    let mut rng = Rng::from_seed(4);
    for key in [b"a", b"b", b"c"] {
        for index in 0..900_u32 {
            let mut append = Transaction::new();
            append
                .append(key, &vec![index as u8; rng.index(2_000)])
                .unwrap();
            execute(&mut state, &append);
        }
    }
    // One element that is longer than a slice, between others.
    let mut append = Transaction::new();
    append.append(b"bb", b"1").unwrap();
    append
        .append(b"bb", &vec![2; VALUE_LENGTH_MAX - 100])
        .unwrap();
    append.append(b"bb", b"3").unwrap();
    execute(&mut state, &append);
    let (bytes, _) = file(&state, &mut rng);
    let blocks = split(&bytes);
    let lengths = blocks
        .iter()
        .filter(|(kind, _)| *kind == SLICE)
        .map(|(_, it)| it.len());
    let lengths: Vec<usize> = lengths.collect();
    assert!(lengths.len() >= 10, "{lengths:?}");
    assert!(
        lengths[..lengths.len() - 1]
            .iter()
            .all(|&it| it >= SLICE_LENGTH)
    );
    let restored = read(&bytes).unwrap().1;
    assert_equal(&restored, &state);
}

#[test]
fn a_file_is_read_with_any_cuts() {
    let mut rng = Rng::from_seed(5);
    let state = random_state(&mut rng, 200, 5_000);
    let (bytes, mark) = file(&state, &mut rng);
    for longest in [1, 3, 40, 5_000, 300_000] {
        let mut reader = CheckpointReader::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + rng.index(longest.min(rest.len())));
            reader.push(now).unwrap();
            reader.push(&[]).unwrap();
            rest = later;
        }
        let (_, restored, found) = reader.finish().unwrap();
        assert_eq!(found, mark);
        assert_equal(&restored, &state);
    }
}

#[test]
fn a_cut_or_continued_file_is_refused_with_its_place() {
    let mut rng = Rng::from_seed(6);
    let state = random_state(&mut rng, 30, 200);
    let (bytes, _) = file(&state, &mut rng);
    for length in 0..bytes.len() {
        let error = refusal(&bytes[..length]);
        assert_eq!(error.offset, length as u64);
        assert_eq!(error.problem, "the file ends before its root");
    }
    for more in [&bytes[..], b"x", &[0; 64]] {
        let longer = [&bytes, more].concat();
        let error = refusal(&longer);
        assert_eq!(error.offset, bytes.len() as u64, "{error}");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let mut rng = Rng::from_seed(7);
    let state = random_state(&mut rng, 12, 60);
    let (bytes, _) = file(&state, &mut rng);
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << bit;
            let error = refusal(&damaged);
            assert!(
                error.offset <= place as u64,
                "{error} for bit {bit} of byte {place}"
            );
        }
    }
    // Of a large file, some.
    let state = random_state(&mut rng, 600, 5_000);
    let (bytes, _) = file(&state, &mut rng);
    for _ in 0..200 {
        let place = rng.index(bytes.len());
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << rng.below(8);
        let error = refusal(&damaged);
        assert!(error.offset <= place as u64, "{error} for byte {place}");
    }
}

#[test]
fn a_refused_file_stays_refused() {
    let (bytes, _) = file(&StoreState::default(), &mut Rng::from_seed(1));
    let mut reader = CheckpointReader::new();
    let error = reader.push(&[1; 40]).unwrap_err();
    assert_eq!(error.offset, 0);
    assert_eq!(reader.push(&bytes), Err(error.clone()));
    assert_eq!(reader.finish().unwrap_err(), error);
}

/// Kind and payload of every block.
fn split(mut file: &[u8]) -> Vec<(BlockKind, Vec<u8>)> {
    let mut blocks = Vec::new();
    while let Some(Ok(header)) = file.first_chunk().map(BlockHeader::decode) {
        let (block, rest) = file.split_at(header.block_length() as usize);
        let payload = block[HEADER_LENGTH..][..header.payload_length as usize].to_vec();
        blocks.push((header.kind, payload));
        file = rest;
    }
    assert!(file.is_empty());
    blocks
}

/// Puts random bytes into the payload of a block other than the root, once or twice.
fn mutate(blocks: &mut [(BlockKind, Vec<u8>)], rng: &mut Rng) {
    for _ in 0..=rng.below(2) {
        let index = rng.index(blocks.len() - 1);
        let payload = &mut blocks[index].1;
        match rng.below(4) {
            0 if !payload.is_empty() => {
                payload.truncate(rng.index(payload.len()));
            }
            1 => {
                let at = rng.index(payload.len() + 1);
                payload.insert(at, rng.word() as u8);
            }
            _ if !payload.is_empty() => {
                let at = rng.index(payload.len());
                payload[at] = *rng.pick(&[0, 1, 2, 3, 5, 255, rng.clone().word() as u8]);
            }
            _ => {}
        }
    }
}

/// The file of these blocks with right checksums, numbers and root (unless `keeps_root`): what only someone who knows the
/// format can forge.
fn seal(blocks: &[(BlockKind, Vec<u8>)], keeps_root: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut checksums = Vec::new();
    let count = |kind| blocks.iter().filter(|it| it.0 == kind).count() as u64;
    for (sequence, (kind, payload)) in blocks.iter().enumerate() {
        let start = block::begin(&mut file);
        if *kind == ROOT && !keeps_root {
            let root = FileRoot {
                slices: count(SLICE),
                session_blocks: count(SESSIONS),
                length: start as u64,
                digest: file_writer::digest_of(&file[..start]),
            };
            root.encode(&checksums, &mut file);
        } else {
            file.extend_from_slice(payload);
        }
        if [SLICE, SESSIONS].contains(kind) {
            checksums.push(seatrial_blocks::crc32c(payload));
        }
        block::finish_plain(&mut file, start, *kind, 0, sequence as u64);
    }
    file
}

/// A small state with one of everything.
fn small_state() -> StoreState {
    let mut state = StoreState::default();
    let mut transaction = Transaction::new();
    transaction.write(b"a", b"value").unwrap();
    transaction.append(b"b", b"one").unwrap();
    transaction.append(b"b", b"two").unwrap();
    transaction.write(b"c", b"").unwrap();
    execute(&mut state, &transaction);
    let sessions = state.sessions();
    for _ in 0..2 {
        let session = sessions.open(Time::from_milliseconds(5)).unwrap();
        for request in 1..=3 {
            sessions.admit(session, request, 1, Time::from_milliseconds(6));
            sessions.remember(session, request, Bytes::from_static(b"reply"));
        }
    }
    state
}

#[test]
fn every_forged_field_is_refused() {
    let state = small_state();
    let blocks = split(&file(&state, &mut Rng::from_seed(1)).0);
    assert!(read(&seal(&blocks, false)).is_ok());
    // Block, place in its payload, bytes, and what is said.
    let forgeries: [(usize, usize, &[u8], &str); 32] = [
        (0, 0, &[2], "format version is 2"),
        (0, 4, &[8], "inside"),
        (0, 4, &[1, 0, 1], "length of the members is 65537"),
        (0, 8, &[1, 0, 1], "length of the schedule is 65537"),
        (0, 8, &[7], "1 bytes after the last field"),
        (0, 12, &[1], "more than the 1 sessions"),
        (0, 12, &[3], "before it is full"),
        (0, 12, &[1, 16], "number of sessions is 4097"),
        (0, 40, &[2], "more than the 2 keys"),
        (0, 40, &[4], "before it is full"),
        (0, 48, &[1], "bytes, the header says"),
        (0, 56, &[2], "order"),
        (0, 56, &[0], "next session is 0"),
        (0, 64, &[0, 0, 0, 0], "future"),
        (1, 0, &[0, 5], "key length is 1280"),
        (1, 2, b"c", "not above the one before it"),
        (1, 3, &[2], "length of a list is"),
        (1, 3, &[3], "record of kind 3"),
        (1, 3, &[0], "record of kind 0"),
        (1, 4, &[0, 0, 32], "value length is 2097152"),
        (1, 17, &[1], "part of a list"),
        (1, 17, &[3], "another length"),
        (1, 21, &[15], "another length"),
        (1, 21, &[0, 0, 32], "length of a list is"),
        (1, 25, &[0], "part of a list with 0"),
        (1, 25, &[1], "another length"),
        (1, 29, &[13], "another length"),
        (1, 33, &[2], "inside its value"),
        (2, 0, &[0], "order"),
        (2, 16, &[0xe], "highest id"),
        (2, 48, &[129], "number of replies is 129"),
        (2, 52, &[9], "out of order"),
    ];
    let mut other = Vec::new();
    for (block, place, bytes, expected) in forgeries {
        let mut forged = blocks.clone();
        let payload = &mut forged[block].1;
        assert_ne!(payload[place..][..bytes.len()], *bytes, "{expected}");
        payload[place..][..bytes.len()].copy_from_slice(bytes);
        let error = refusal(&seal(&forged, false));
        if !error.problem.contains(expected) {
            other.push(format!("{block} {place} {expected}: {error}"));
        }
        let start = blocks[..block]
            .iter()
            .map(|it| block::block_length(it.1.len()) as u64);
        assert!(error.offset >= start.sum::<u64>(), "{expected}: {error}");
    }
    assert!(other.is_empty(), "{other:#?}");
    for place in 0..blocks[3].1.len() {
        let mut forged = blocks.clone();
        forged[3].1[place] ^= 1;
        let error = refusal(&seal(&forged, true));
        assert!(error.problem.starts_with("the root's"), "{error}");
    }
}

#[test]
fn blocks_in_another_order_or_number_are_refused() {
    let mut rng = Rng::from_seed(9);
    let state = random_state(&mut rng, 900, 3_000);
    let blocks = split(&file(&state, &mut rng).0);
    assert!(blocks.len() > 6);
    for index in 0..blocks.len() {
        let mut fewer = blocks.clone();
        fewer.remove(index);
        assert!(read(&seal(&fewer, false)).is_err(), "without {index}");
        let mut twice = blocks.clone();
        twice.insert(index, blocks[index].clone());
        assert!(read(&seal(&twice, false)).is_err(), "{index} twice");
        if index > 0 {
            let mut swapped = blocks.clone();
            swapped.swap(index - 1, index);
            assert!(read(&seal(&swapped, false)).is_err(), "{index} swapped");
        }
        let mut empty = blocks.clone();
        empty.insert(index, (blocks[index].0, Vec::new()));
        assert!(
            read(&seal(&empty, false)).is_err(),
            "an empty block before {index}"
        );
    }
    // The right items in slices with other ends: the last record of a slice in the next one.
    let mut moved = blocks.clone();
    let both = [moved[1].1.clone(), moved[2].1.clone()].concat();
    moved.splice(1..3, [(SLICE, both)]);
    assert!(read(&seal(&moved, false)).is_err());
}

/// Whatever a reader accepts is exactly the file that a writer makes of the state that it read.
#[test]
fn mutated_files_are_refused_or_are_the_file_of_another_state() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..6_000 {
        let mut rng = Rng::from_seed(seed);
        let mut blocks = split(&file(&small_state(), &mut rng).0);
        mutate(&mut blocks, &mut rng);
        let forged = seal(&blocks, false);
        let mut reader = CheckpointReader::new();
        let cut = rng.index(forged.len());
        let done = reader
            .push(&forged[..cut])
            .and_then(|()| reader.push(&forged[cut..]));
        let Ok((head, state, mark)) = done.and_then(|()| reader.finish()) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        let mut writer = CheckpointWriter::new(state.snapshot(), head);
        let again = writer.next(usize::MAX).unwrap();
        assert_eq!(again, forged, "seed {seed}");
        assert_eq!(writer.finish(), mark, "seed {seed}");
    }
    assert!(
        accepted > 300 && refused > 3_000,
        "{accepted} and {refused}"
    );
}

#[test]
fn arbitrary_bytes_never_panic_and_hold_no_memory() {
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = Vec::new();
        for sequence in 0..rng.below(4) {
            let length = rng.index(200);
            let payload: Vec<u8> = (0..length).map(|_| rng.word() as u8 % 5).collect();
            let kind = BlockKind(40 + rng.below(5) as u16);
            let start = block::begin(&mut bytes);
            bytes.extend_from_slice(&payload);
            block::finish_plain(&mut bytes, start, kind, 0, sequence);
        }
        bytes.extend((0..rng.below(50)).map(|_| rng.word() as u8));
        let mut reader = CheckpointReader::new();
        for part in bytes.chunks(1 + rng.index(60)) {
            let _ = reader.push(part);
        }
        let _ = reader.finish();
    }
    // A header that claims a block of 64 MiB is refused before one byte of it is there.
    let claim = BlockHeader {
        kind: HEADER,
        flags: 0,
        payload_length: 64 << 20,
        uncompressed_length: 64 << 20,
        sequence: 0,
        payload_checksum: 0,
    };
    let error = CheckpointReader::new().push(&claim.encode()).unwrap_err();
    assert!(error.problem.contains("never written"), "{error}");
}

#[test]
fn positions_are_not_cut_to_32_bits() {
    let mut rng = Rng::from_seed(2);
    let state = random_state(&mut rng, 50, 5_000);
    let position = (5 << 32) + 8;
    let mut writer = CheckpointWriter::new(state.snapshot(), head()).at(position);
    let bytes = writer.next(usize::MAX).unwrap();
    let mark = writer.finish();
    assert_eq!(mark.length, position + bytes.len() as u64);
    let mut reader = CheckpointReader::new().at(position);
    reader.push(&bytes).unwrap();
    assert_eq!(reader.finish().unwrap().2, mark);
    let error = refusal(&bytes);
    assert!(error.problem.contains("length"), "{error}");
}

/// More than 2^32 bytes through writer and parser: one value of 1 MiB shared by 4,200 keys, so that the state is small in memory.
#[test]
#[ignore = "writes and reads 4.4 GB in memory, a slice at a time; half a minute"]
fn a_state_of_more_than_four_gigabytes_has_its_file() {
    let value: std::sync::Arc<[u8]> = vec![7; VALUE_LENGTH_MAX].into();
    let mut items = crate::state::StateItems::default();
    for key in 0..4_200_u32 {
        items.insert(
            &key.to_be_bytes(),
            Item::Register(std::sync::Arc::clone(&value)),
        );
    }
    let state = StoreState::restore(items, crate::session_table::Sessions::default());
    assert!(state.size() > 1 << 32);
    let mut writer = CheckpointWriter::new(state.snapshot(), head());
    let mut parser = file_parser::CheckpointParser::new(HEADER, CountingSink::default());
    while let Some(bytes) = writer.next(4 << 20) {
        parser.push(&bytes).unwrap();
    }
    let parsed = parser.finish().unwrap();
    let mark = writer.finish();
    assert!(mark.length > state.size());
    assert_eq!(parsed.mark, mark);
    assert_eq!(parsed.sink.bytes, 4_200 << 20);
}

#[derive(Default)]
struct CountingSink {
    bytes: u64,
}

impl file_parser::CheckpointSink for CountingSink {
    fn register(&mut self, _: &[u8], value: &[u8]) -> Result<(), &'static str> {
        self.bytes += value.len() as u64;
        Ok(())
    }

    fn list(&mut self, _: &[u8]) {}

    fn element(&mut self, _: &[u8]) -> Result<(), &'static str> {
        Ok(())
    }

    fn end_list(&mut self) -> Result<(), &'static str> {
        Ok(())
    }
}

#[test]
fn a_writer_moves_between_threads_while_the_state_goes_on() {
    let mut rng = Rng::from_seed(3);
    let mut state = random_state(&mut rng, 500, 3_000);
    let (expected, mark) = file(&state, &mut rng);
    let mut writer = CheckpointWriter::new(state.snapshot(), head());
    let mut bytes = Vec::new();
    loop {
        let (back, slice) = std::thread::scope(|scope| {
            let job = scope.spawn(move || {
                let slice = writer.next(1);
                (writer, slice)
            });
            job.join().unwrap()
        });
        writer = back;
        let Some(slice) = slice else { break };
        bytes.extend(slice);
        for _ in 0..20 {
            let key = rng.word().to_be_bytes();
            let key = &key[rng.index(7)..];
            change(&mut state, &mut rng, key, 100);
        }
    }
    assert_eq!((bytes, writer.finish()), (expected, mark));
    assert_ne!(file(&state, &mut rng).1, mark);
}

#[test]
fn admissions_are_the_same_after_a_checkpoint() {
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed);
        let mut state = random_state(&mut rng, 5, 50);
        let mut restored = read(&file(&state, &mut rng).0).unwrap().1;
        for _ in 0..500 {
            let (session, request) = (rng.below(25), rng.below(300));
            let now = Time::from_milliseconds(rng.below(20_000));
            let (one, other) = (state.sessions(), restored.sessions());
            if rng.chance(0.05) {
                assert_eq!(one.open(now), other.open(now), "seed {seed}");
            }
            let acknowledged = request.saturating_sub(rng.below(100));
            let expected = one.admit(session, request, acknowledged, now);
            assert_eq!(other.admit(session, request, acknowledged, now), expected);
        }
        assert_equal(&state, &restored);
    }
}

/// A file of a whole state.
fn alone(file: &Vec<u8>) -> CheckpointFiles<'_> {
    CheckpointFiles { file, base: None }
}

/// Compares two checkpoints without a different key.
fn compare(one: CheckpointFiles<'_>, other: CheckpointFiles<'_>) -> CheckpointDiff {
    diff_checkpoints(one, other, |_, _| panic!("no key differs")).unwrap()
}

#[test]
fn a_difference_names_each_key_once_in_order() {
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let one = random_state(&mut rng, 1 + 20 * seed, 2_000);
        let mut other = one.clone();
        let mut touched = Vec::new();
        for _ in 0..rng.below(30) {
            let key = rng.below(40 * seed + 2).to_be_bytes()[rng.index(7)..].to_vec();
            if rng.chance(0.3) {
                let mut delete = Transaction::new();
                delete.delete(&key).unwrap();
                execute(&mut other, &delete);
            } else {
                change(&mut other, &mut rng, &key, 2_000);
            }
            touched.push(key);
        }
        touched.sort();
        touched.dedup();
        let (a, b) = (one.snapshot(), other.snapshot());
        let expected: Vec<(Vec<u8>, KeyDifference)> = touched
            .into_iter()
            .filter_map(|key| {
                let difference = match (a.items().get(&key), b.items().get(&key)) {
                    (Some(_), None) => KeyDifference::OnlyFirst,
                    (None, Some(_)) => KeyDifference::OnlySecond,
                    (one, other) if one != other => KeyDifference::Contents,
                    _ => return None,
                };
                Some((key, difference))
            })
            .collect();
        let (one, first) = file(&one, &mut rng);
        let (other, second) = file(&other, &mut rng);
        let mut found = Vec::new();
        let found_key = |key: &[u8], difference| found.push((key.to_vec(), difference));
        let result = diff_checkpoints(alone(&one), alone(&other), found_key).unwrap();
        assert_eq!(found, expected, "seed {seed}");
        assert_eq!(result.keys, expected.len() as u64);
        assert_eq!(
            (result.first.digest, result.second.digest),
            (first.digest, second.digest)
        );
        assert_eq!((result.sessions, result.head), (false, false));
        assert_eq!(first == second, expected.is_empty());
    }
}

#[test]
fn a_difference_of_sessions_is_named_and_damage_names_its_file() {
    let mut rng = Rng::from_seed(1);
    let mut state = small_state();
    let (one, _) = file(&state, &mut rng);
    state.sessions().open(Time::ZERO).unwrap();
    let (other, _) = file(&state, &mut rng);
    let result = compare(alone(&one), alone(&other));
    assert_eq!((result.keys, result.sessions), (0, true));
    let cut = one[..one.len() - 1].to_vec();
    let error = diff_checkpoints(alone(&other), alone(&cut), |_, _| {}).unwrap_err();
    assert!(
        error.to_string().starts_with("second checkpoint: "),
        "{error}"
    );
    // Elements that are cut differently are different lists, and a list is not a register.
    let contents: [&[&[u8]]; 3] = [&[b"ab"], &[b"a", b"b"], &[b"", b"ab"]];
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let files = [a, b].map(|index| {
            let mut state = StoreState::default();
            let mut append = Transaction::new();
            for element in contents[index] {
                append.append(b"key", element).unwrap();
            }
            execute(&mut state, &append);
            file(&state, &mut Rng::from_seed(1)).0
        });
        assert_eq!(
            diff_checkpoints(alone(&files[0]), alone(&files[1]), |_, _| {})
                .unwrap()
                .keys,
            1
        );
    }
}
