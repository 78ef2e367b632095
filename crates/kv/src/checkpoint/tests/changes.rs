//! Tests of files of changes.

use super::*;
use crate::state::StateSnapshot;

/// A checkpoint, as a replica has it after writing or reading its file.
struct Checkpoint {
    head: CheckpointHead,
    state: StoreState,
    mark: CheckpointMark,
}

impl Checkpoint {
    fn snapshot(&self) -> StateSnapshot {
        self.state.snapshot()
    }

    fn base(&self) -> (u64, CheckpointMark) {
        (self.head.index, self.mark)
    }
}

fn head_at(index: u64) -> CheckpointHead {
    CheckpointHead { index, ..head() }
}

/// The file of a whole state.
fn whole(state: &StoreState, index: u64) -> (Vec<u8>, Checkpoint) {
    let mut writer = CheckpointWriter::new(state.snapshot(), head_at(index));
    let bytes = writer.next(usize::MAX).unwrap();
    let checkpoint = Checkpoint {
        head: head_at(index),
        state: state.clone(),
        mark: writer.finish(),
    };
    (bytes, checkpoint)
}

/// The file of the changes from `base` to a state at `index`.
fn changes(
    base: &Checkpoint,
    state: &StoreState,
    index: u64,
    rng: &mut Rng,
) -> (Vec<u8>, CheckpointMark) {
    let (snapshot, older) = (state.snapshot(), base.snapshot());
    let mut writer = CheckpointWriter::of_changes(snapshot, head_at(index), older, base.base());
    let mut file = Vec::new();
    while let Some(bytes) = writer.next(rng.index(1 << 20)) {
        file.extend_from_slice(&bytes);
    }
    (file, writer.finish())
}

fn apply(base: &Checkpoint, bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let mut reader = CheckpointReader::of_changes(&base.head, &base.state, base.mark);
    reader.push(bytes)?;
    let (head, state, mark) = reader.finish()?;
    Ok(Checkpoint { head, state, mark })
}

fn refusal_of_changes(base: &Checkpoint, bytes: &[u8]) -> CheckpointError {
    match apply(base, bytes) {
        Ok(_) => panic!("the file is accepted"),
        Err(error) => error,
    }
}

/// Some random changes: writes, deletes, appends of short and long elements.
fn evolve(state: &mut StoreState, rng: &mut Rng, steps: u64, keys: u64, length_max: usize) {
    for _ in 0..steps {
        let key = rng.below(keys).to_be_bytes()[rng.index(7)..].to_vec();
        if rng.chance(0.3) {
            let mut delete = Transaction::new();
            delete.delete(&key).unwrap();
            execute(state, &delete);
        } else {
            change(state, rng, &key, length_max);
        }
    }
    converse(state, rng, 3);
}

#[test]
fn a_base_and_its_changes_are_the_state() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let (keys, length_max) = *rng.pick(&[(3, 50), (200, 100), (3_000, 300), (60, 100_000)]);
        let mut state = random_state(&mut rng, keys, length_max);
        let (bytes, mut base) = whole(&state, 1);
        let (head, restored, mark) = read(&bytes).unwrap();
        // The replica that follows by files alone: it shares no node with the one that executes.
        let mut follower = Checkpoint {
            head,
            state: restored,
            mark,
        };
        for index in 2..8 {
            let steps = rng.below(40);
            evolve(&mut state, &mut rng, steps, keys * 2, length_max);
            let (bytes, mark) = changes(&base, &state, index, &mut rng);
            let next = apply(&follower, &bytes).unwrap();
            assert_eq!((&next.head, next.mark), (&head_at(index), mark));
            assert_equal(&next.state, &state);
            assert_eq!(whole(&next.state, index).0, whole(&state, index).0);
            let again = changes(&follower, &next.state, index, &mut rng);
            assert!(again == (bytes, mark), "the same file without shared nodes");
            let state = state.clone();
            let head = head_at(index);
            base = Checkpoint { head, state, mark };
            follower = next;
        }
    }
}

#[test]
fn changed_keys_are_those_of_a_comparison() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let mut state = random_state(&mut rng, 20 * seed, 40);
        let older = state.snapshot();
        let steps = rng.below(200);
        evolve(&mut state, &mut rng, steps, 40 * seed + 1, 40);
        let newer = state.snapshot();
        let keys = newer.items().changed_keys(older.items());
        let all = newer.items().after(None).chain(older.items().after(None));
        let mut expected: Vec<&[u8]> = all
            .map(|(key, _)| key)
            .filter(|key| newer.items().get(key) != older.items().get(key))
            .collect();
        expected.sort_unstable();
        expected.dedup();
        assert!(
            keys.iter().map(|key| key.as_slice()).eq(expected),
            "seed {seed}"
        );
    }
}

#[test]
fn few_changes_make_a_small_file() {
    let mut state = StoreState::default();
    let mut rng = Rng::from_seed(1);
    for key in 0..4_000_u32 {
        let mut write = Transaction::new();
        write.write(&key.to_be_bytes(), &[7; 1_000]).unwrap();
        execute(&mut state, &write);
    }
    for _ in 0..3_000 {
        let mut append = Transaction::new();
        append.append(b"list", &[1; 100]).unwrap();
        execute(&mut state, &append);
    }
    let base = whole(&state, 1).1;
    let mut transaction = Transaction::new();
    transaction
        .write(&7_u32.to_be_bytes(), &[8; 1_000])
        .unwrap();
    // The same value again is no change.
    transaction
        .write(&8_u32.to_be_bytes(), &[7; 1_000])
        .unwrap();
    transaction.delete(&9_u32.to_be_bytes()).unwrap();
    transaction.append(b"list", b"new").unwrap();
    execute(&mut state, &transaction);
    let (bytes, mark) = changes(&base, &state, 2, &mut rng);
    assert_eq!(mark.length, bytes.len() as u64);
    assert!(bytes.len() < 1_500, "{}", bytes.len());
    assert_equal(&apply(&base, &bytes).unwrap().state, &state);
    let (nothing, _) = changes(&base, &base.state, 2, &mut rng);
    assert_eq!(split(&nothing).len(), 2, "header and root");
    assert_equal(&apply(&base, &nothing).unwrap().state, &base.state);
}

/// A base and the file of changes of every kind.
fn small_change() -> (Checkpoint, Vec<u8>) {
    let mut state = small_state();
    let base = whole(&state, 1).1;
    let mut transaction = Transaction::new();
    transaction.write(b"a", b"other").unwrap();
    transaction.append(b"b", b"3").unwrap();
    transaction.delete(b"c").unwrap();
    transaction.append(b"d", b"4").unwrap();
    execute(&mut state, &transaction);
    let bytes = changes(&base, &state, 2, &mut Rng::from_seed(1)).0;
    (base, bytes)
}

#[test]
fn the_bytes_of_changes_are_the_documented_ones() {
    let (base, bytes) = small_change();
    let blocks = split(&bytes);
    let kinds: Vec<u16> = blocks.iter().map(|(kind, _)| kind.0).collect();
    assert_eq!(kinds, [44, 41, 42, 43]);
    let long = |number: u64| number.to_le_bytes();
    let word = |number: u32| number.to_le_bytes();
    let delta = [
        &long(1)[..],
        &base.mark.digest,
        &long(4),
        b"membersschedule",
    ]
    .concat();
    assert_eq!(blocks[0].1[72..], delta);
    let slice = [
        b"\x01\0a\x01\x05\0\0\0other".to_vec(),
        [
            b"\x01\0b\x05",
            &word(1)[..],
            &word(5),
            &word(1),
            &word(5),
            &word(1),
            b"3",
        ]
        .concat(),
        b"\x01\0c\x04".to_vec(),
        [
            b"\x01\0d\x02",
            &word(1)[..],
            &word(5),
            &word(1),
            &word(5),
            &word(1),
            b"4",
        ]
        .concat(),
    ];
    assert_eq!(blocks[1].1, slice.concat());
}

#[test]
fn changes_of_another_checkpoint_are_refused() {
    let (base, bytes) = small_change();
    let blocks = split(&bytes);
    assert!(apply(&base, &seal(&blocks, false)).is_ok());
    let forgeries: [(usize, usize, &[u8], &str); 13] = [
        (0, 16, &[9], "another cluster"),
        (0, 24, &[0], "the past"),
        (0, 40, &[2], "the changed state has 3 keys"),
        (0, 48, &[0], "the changed state has"),
        (0, 72, &[2], "another checkpoint"),
        (0, 80, &[0, 0, 0, 0], "another checkpoint"),
        (0, 96, &[3], "more than the 3 keys"),
        (0, 96, &[5], "before it is full"),
        // The value that the register has.
        (1, 8, b"value", "changes nothing"),
        (1, 16, &[2], "the changed state has"),
        (1, 40, b"x", "a removed key that is not there"),
        (1, 45, &[4], "a removed key that is not there"),
        (1, 45, &[5], "elements for a list that is not there"),
    ];
    let mut other = Vec::new();
    for (block, place, bytes, expected) in forgeries {
        let mut forged = blocks.clone();
        forged[block].1[place..][..bytes.len()].copy_from_slice(bytes);
        let error = refusal_of_changes(&base, &seal(&forged, false));
        if !error.problem.contains(expected) {
            other.push(format!("{block} {place} {expected}: {error}"));
        }
    }
    assert!(other.is_empty(), "{other:#?}");
    // Files of one kind for readers of the other.
    assert!(refusal(&bytes).problem.contains("kind 44, expected 40"));
    let file = whole(&base.state, 1).0;
    let error = refusal_of_changes(&base, &file);
    assert!(error.problem.contains("kind 40, expected 44"), "{error}");
    // Changes in the slices of a whole state.
    for (record, key) in [(REMOVED, b"d"), (APPENDED, b"b")] {
        let mut forged = split(&file);
        let rest = if record == REMOVED {
            Vec::new()
        } else {
            vec![0; 16]
        };
        forged[1].1 = [&[1, 0], &key[..], &[record], &rest].concat();
        assert!(read(&seal(&forged, false)).is_err());
    }
}

/// Whatever a reader accepts is exactly the file that a writer makes of the two states.
#[test]
fn mutated_changes_are_refused_or_are_those_of_another_state() {
    let (base, bytes) = small_change();
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..6_000 {
        let mut rng = Rng::from_seed(seed);
        let mut blocks = split(&bytes);
        mutate(&mut blocks, &mut rng);
        let forged = seal(&blocks, false);
        let Ok(found) = apply(&base, &forged) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        let (snapshot, older) = (found.snapshot(), base.snapshot());
        let mut writer = CheckpointWriter::of_changes(snapshot, found.head, older, base.base());
        assert_eq!(writer.next(usize::MAX).unwrap(), forged, "seed {seed}");
        assert_eq!(writer.finish(), found.mark, "seed {seed}");
    }
    assert!(
        accepted > 300 && refused > 3_000,
        "{accepted} and {refused}"
    );
}

#[test]
fn every_flipped_bit_of_changes_is_found() {
    let (base, bytes) = small_change();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << bit;
            refusal_of_changes(&base, &damaged);
        }
    }
    for length in 0..bytes.len() {
        refusal_of_changes(&base, &bytes[..length]);
    }
}

#[test]
fn a_long_list_that_grows_is_appended_over_slices() {
    let mut state = StoreState::default();
    let mut rng = Rng::from_seed(4);
    let grow = |state: &mut StoreState, rng: &mut Rng, count| {
        for index in 0..count {
            let mut append = Transaction::new();
            append
                .append(b"list", &vec![index as u8; rng.index(2_000)])
                .unwrap();
            execute(state, &append);
        }
    };
    grow(&mut state, &mut rng, 300);
    let base = whole(&state, 1).1;
    grow(&mut state, &mut rng, 700);
    let (bytes, _) = changes(&base, &state, 2, &mut rng);
    let slices = split(&bytes)
        .iter()
        .filter(|(kind, _)| *kind == SLICE)
        .count();
    assert!(slices >= 3, "{slices}");
    assert!(bytes.len() as u64 > state.size() * 6 / 10);
    assert!((bytes.len() as u64) < state.size() * 8 / 10);
    assert_equal(&apply(&base, &bytes).unwrap().state, &state);
}

#[test]
fn a_comparison_reads_changes_with_their_base() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let (keys, length_max) = *rng.pick(&[(3, 50), (200, 100), (2_000, 300), (40, 60_000)]);
        let mut state = random_state(&mut rng, keys, length_max);
        let (base_bytes, base) = whole(&state, 1);
        evolve(&mut state, &mut rng, 60, keys * 2, length_max);
        let (bytes, mark) = changes(&base, &state, 2, &mut rng);
        assert_eq!(changes_since(&bytes), Ok(Some(1)));
        assert_eq!(changes_since(&base_bytes), Ok(None));
        let chain = CheckpointFiles {
            file: &bytes,
            base: Some(&base_bytes),
        };
        let (again, _) = whole(&state, 2);
        let equal = compare(chain, alone(&again));
        assert_eq!((equal.keys, equal.sessions), (0, false));
        assert_eq!(
            (equal.first.digest, equal.first.keys),
            (mark.digest, equal.second.keys)
        );
        // Against its own base it has the changed keys.
        let mut found = Vec::new();
        let result = diff_checkpoints(chain, alone(&base_bytes), |key, _| {
            found.push(key.to_vec());
        });
        let changed = state.snapshot().items().changed_keys(base.state.items());
        let changed = changed.iter().map(|key| key.as_slice().to_vec());
        assert_eq!(found, changed.collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(result.unwrap().keys, found.len() as u64);
        // Another base is refused.
        let (other, _) = whole(&state, 1);
        let wrong = CheckpointFiles {
            file: &bytes,
            base: Some(&other),
        };
        let refused = diff_checkpoints(wrong, chain, |_, _| {});
        assert!(refused.is_err() || other == base_bytes);
    }
}

#[test]
fn a_chain_is_read_with_any_cuts() {
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed);
        let mut state = random_state(&mut rng, 100, 400);
        let (mut bytes, base) = whole(&state, 1);
        let length = bytes.len();
        let has_changes = rng.chance(0.8);
        if has_changes {
            evolve(&mut state, &mut rng, 40, 200, 400);
            bytes.extend(changes(&base, &state, 2, &mut rng).0);
        }
        let mut reader = ChainReader::new();
        let (mut at, mut of_whole) = (0, 0);
        while at < bytes.len() {
            let most = *rng.pick(&[10, 1_000, 100_000]);
            let cut = 1 + rng.index(most.min(bytes.len() - at));
            of_whole += reader.push(&bytes[at..at + cut]).unwrap();
            at += cut;
        }
        assert_eq!(of_whole, length);
        let (whole, newest) = reader.finish().unwrap();
        assert_equal(&newest.state, &state);
        assert_eq!(whole.is_some(), has_changes);
        if let Some(whole) = whole {
            assert_eq!(whole.mark, base.mark);
            assert_equal(&whole.state, &base.state);
        }
    }
}
