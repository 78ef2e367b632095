use super::*;
use seatrial_kv_protocol::message::{HEADER_LENGTH, LIST_LENGTH_MAX, VALUE_LENGTH_MAX};
use seatrial_kv_protocol::{Answer, Answers, Transaction};
use seatrial_machine::Rng;

/// The dumb twin: owned values, copied whole before each transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TwinValue {
    Register(Vec<u8>),
    List(Vec<Vec<u8>>),
}

type Twins = BTreeMap<Vec<u8>, TwinValue>;

/// What a read or scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Absent,
    Item(TwinValue),
    /// Keys and items, and whether the range has more.
    Range(Vec<(Vec<u8>, TwinValue)>, bool),
}

/// Executes on the twin: what each read found, or the failure.
fn execute_twin(twins: &mut Twins, transaction: &Transaction) -> Result<Vec<Found>, (u32, Code)> {
    let before = twins.clone();
    let mut reads = Vec::new();
    for (index, operation) in transaction.operations().enumerate() {
        let operation = operation.unwrap();
        let held = twins.get(operation.key()).cloned();
        let key = operation.key().to_vec();
        let failed = match (operation, held) {
            (Operation::Read { .. }, held) => {
                reads.push(held.map_or(Found::Absent, Found::Item));
                continue;
            }
            (Operation::Scan { from, to, limit }, _) => {
                let is_in = |key: &[u8]| from <= key && to.is_none_or(|to| key < to);
                let inside = twins.iter().filter(|(key, _)| is_in(key));
                let count = inside.clone().count();
                let first = inside
                    .take(limit.into())
                    .map(|(key, it)| (key.clone(), it.clone()));
                reads.push(Found::Range(first.collect(), count > limit.into()));
                continue;
            }
            (Operation::At { .. }, _) => Code::Malformed,
            (Operation::Delete { .. }, _) => {
                twins.remove(&key);
                continue;
            }
            (Operation::Append { value, .. }, None | Some(TwinValue::List(_))) => {
                let twin = twins.entry(key).or_insert(TwinValue::List(Vec::new()));
                if let TwinValue::List(list) = twin {
                    list.push(value.to_vec());
                }
                continue;
            }
            (Operation::Write { value, .. }, None | Some(TwinValue::Register(_))) => {
                twins.insert(key, TwinValue::Register(value.to_vec()));
                continue;
            }
            (Operation::CompareAndSet { .. }, Some(TwinValue::List(_))) => Code::WrongKind,
            (
                Operation::CompareAndSet {
                    expected, value, ..
                },
                held,
            ) => {
                let expected = expected.map(|value| TwinValue::Register(value.to_vec()));
                if expected == held {
                    twins.insert(key, TwinValue::Register(value.to_vec()));
                    continue;
                }
                Code::CompareFailed
            }
            _ => Code::WrongKind,
        };
        *twins = before;
        return Err((index as u32, failed));
    }
    Ok(reads)
}

/// Executes on the state, in the twin's words.
fn execute(
    state: &mut StoreState,
    transaction: &Transaction,
    batch: u64,
) -> Result<Vec<Found>, (u32, Code)> {
    let mut reply = Vec::new();
    state
        .execute(transaction.operations(), batch, &mut reply)
        .map_err(|abort| (abort.operation, abort.code))?;
    reply.splice(0..0, [0; HEADER_LENGTH]);
    let answers = Answers::new(reply, transaction.len() as u16).unwrap();
    let reads = answers.iter().filter_map(|answer| match answer {
        Answer::Absent => Some(Found::Absent),
        Answer::Done => None,
        Answer::Range(range) => {
            let pairs = range.iter().map(|(key, item)| (key.to_vec(), twin(&item)));
            Some(Found::Range(pairs.collect(), range.is_cut()))
        }
        item => Some(Found::Item(twin(&item))),
    });
    Ok(reads.collect())
}

fn twin(item: &Answer<'_>) -> TwinValue {
    match item {
        Answer::Register(value) => TwinValue::Register(value.to_vec()),
        Answer::List(list) => TwinValue::List(list.iter().map(<[u8]>::to_vec).collect()),
        other => panic!("{other:?}"),
    }
}

/// Everything in the items.
fn dump(items: &StateItems) -> Twins {
    items.check_size();
    let mut keys = Vec::new();
    for (key, _) in items.after(None) {
        let mut answer = vec![0; HEADER_LENGTH];
        items.read(key, &mut answer).unwrap();
        let answers = Answers::new(answer, 1).unwrap();
        keys.push((key.to_vec(), twin(&answers.iter().next().unwrap())));
    }
    assert!(keys.is_sorted_by(|a, b| a.0 < b.0) && keys.len() == items.len());
    keys.into_iter().collect()
}

fn random_transaction(rng: &mut Rng) -> Transaction {
    let mut transaction = Transaction::new();
    for _ in 0..rng.below(6) {
        // Keys a to d are mostly registers, e to h mostly lists.
        let letter = rng.below(8) as u8;
        let key = [b'a' + letter];
        let value = vec![b'0' + rng.below(3) as u8; rng.index(3)];
        let is_list = rng.chance(if letter < 4 { 0.03 } else { 0.97 });
        let put = match rng.below(5) {
            0 => transaction.read(&key),
            4 if rng.chance(0.6) => transaction.delete(&key),
            4 => {
                let to = [b'a' + rng.below(9) as u8];
                let to = rng.chance(0.7).then_some(to.as_slice());
                transaction.scan(&key, to, 1 + rng.index(4))
            }
            1 if !is_list && rng.chance(0.5) => transaction.compare_and_set(&key, None, &value),
            1 if !is_list => transaction.compare_and_set(&key, Some(b"1"), &value),
            _ if is_list => transaction.append(&key, &value),
            _ => transaction.write(&key, &value),
        };
        put.unwrap();
    }
    transaction
}

#[test]
fn equals_its_dumb_twin_and_so_does_every_snapshot() {
    let (mut commits, mut aborts, mut operations) = (0, 0, 0);
    for seed in 0..450 {
        let mut rng = Rng::from_seed(seed);
        let (mut state, mut twins) = (StoreState::default(), Twins::new());
        let mut held: Vec<(StateSnapshot, Twins)> = Vec::new();
        for step in 0..100 {
            let transaction = random_transaction(&mut rng);
            operations += transaction.len();
            let expected = execute_twin(&mut twins, &transaction);
            let found = execute(&mut state, &transaction, step);
            assert_eq!(found, expected, "seed {seed}, step {step}: {transaction:?}");
            assert_eq!(
                dump(&state.items),
                twins,
                "seed {seed}, step {step}: {transaction:?}"
            );
            *(if found.is_ok() {
                &mut commits
            } else {
                &mut aborts
            }) += 1;
            // Several snapshots are alive at once, and end in any order.
            if rng.chance(0.1) {
                held.push((state.snapshot(), twins.clone()));
            }
            if held.len() > 4 {
                let (snapshot, then) = held.swap_remove(rng.index(held.len()));
                assert_eq!(dump(snapshot.items()), then, "seed {seed}, step {step}");
            }
        }
        for (snapshot, then) in held {
            assert_eq!(dump(snapshot.items()), then, "seed {seed}");
        }
    }
    assert!(commits > 4_000 && aborts > 4_000, "{commits} and {aborts}");
    assert!(operations >= 100_000, "{operations}");
}

/// Many keys of many lengths, so that the tree has several levels, nodes split and merge, and lists have several chunks.
#[test]
fn a_large_state_equals_its_twin_under_snapshots() {
    let mut rng = Rng::from_seed(7);
    let (mut state, mut twins) = (StoreState::default(), Twins::new());
    let mut held: Vec<(StateSnapshot, Twins)> = Vec::new();
    for step in 0..60_000_u64 {
        let number = rng.below(3_000);
        // Lengths around the border between keys in place and shared ones.
        let key = format!("{number:0width$}", width = 28 + number as usize % 5).into_bytes();
        let mut transaction = Transaction::new();
        let put = match (rng.below(10), number % 100) {
            (0..=3, _) => transaction.delete(&key),
            (_, 0) => transaction.append(&key, &vec![step as u8; rng.index(3_000)]),
            _ => transaction.write(&key, &step.to_le_bytes()),
        };
        put.unwrap();
        if rng.chance(0.01) {
            transaction.scan(&key, None, 50).unwrap();
        }
        let expected = execute_twin_in_place(&mut twins, &transaction);
        assert_eq!(
            execute(&mut state, &transaction, step),
            expected,
            "step {step}"
        );
        if step % 5_000 == 0 {
            held.push((state.snapshot(), twins.clone()));
        }
    }
    assert!(twins.len() > 1_000, "{}", twins.len());
    assert_eq!(dump(&state.items), twins);
    for (snapshot, then) in held {
        assert_eq!(dump(snapshot.items()), then);
        assert_eq!(snapshot.size(), snapshot.items().size());
    }
}

/// [`execute_twin`] of a transaction that does not fail: on these keys alone.
fn execute_twin_in_place(
    twins: &mut Twins,
    transaction: &Transaction,
) -> Result<Vec<Found>, (u32, Code)> {
    if transaction.operations().flatten().any(|it| it.is_read()) {
        return execute_twin(twins, transaction);
    }
    let keys = transaction
        .operations()
        .flatten()
        .map(|it| it.key().to_vec());
    let mut few: Twins = keys
        .filter_map(|key| twins.remove(&key).map(|twin| (key, twin)))
        .collect();
    let found = execute_twin(&mut few, transaction);
    twins.extend(few);
    found
}

#[test]
fn a_snapshot_is_read_and_dropped_on_another_thread() {
    let mut state = StoreState::default();
    let mut transaction = Transaction::new();
    transaction.write(b"a", b"1").unwrap();
    execute(&mut state, &transaction, 0).unwrap();
    let snapshot = state.snapshot();
    std::thread::scope(|scope| {
        scope.spawn(move || assert_eq!(dump(snapshot.items()).len(), 1));
    });
}

#[test]
fn a_scan_stops_at_what_fits_into_the_reply() {
    let mut state = StoreState::default();
    let value = vec![7; VALUE_LENGTH_MAX];
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        let mut write = Transaction::new();
        write.write(key, &value).unwrap();
        execute(&mut state, &write, 0).unwrap();
    }
    let mut scan = Transaction::new();
    scan.scan(b"", None, 5).unwrap();
    let found = execute(&mut state, &scan, 0).unwrap();
    let [Found::Range(pairs, true)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(pairs.len(), 3);
    // What is left of the reply holds no item.
    scan.scan(b"a", None, 1).unwrap();
    let error = execute(&mut state, &scan, 0).unwrap_err();
    assert_eq!(error, (1, Code::AnswerTooLong));
    let mut empty = Transaction::new();
    empty.scan(b"b", Some(b"a"), 1).unwrap();
    empty.scan(b"a", Some(b"a"), 1).unwrap();
    let nothing = Found::Range(Vec::new(), false);
    assert_eq!(
        execute(&mut state, &empty, 0),
        Ok(vec![nothing.clone(), nothing])
    );
}

#[test]
fn says_whether_anything_changed() {
    let mut state = StoreState::default();
    let effect = |state: &mut StoreState, transaction: &Transaction| {
        state.execute(transaction.operations(), 0, &mut Vec::new())
    };
    let mut read = Transaction::new();
    read.read(b"a").unwrap();
    assert_eq!(effect(&mut state, &read), Ok(ExecutionEffect::Read));
    let mut write = read.clone();
    write.write(b"a", b"").unwrap();
    assert_eq!(effect(&mut state, &write), Ok(ExecutionEffect::Change));
    let mut delete = Transaction::new();
    delete.delete(b"a").unwrap();
    assert_eq!(effect(&mut state, &delete), Ok(ExecutionEffect::Change));
    assert_eq!(effect(&mut state, &delete), Ok(ExecutionEffect::Read));
    assert_eq!(
        effect(&mut state, &Transaction::new()),
        Ok(ExecutionEffect::Read)
    );
}

#[test]
fn a_full_list_and_a_long_answer_abort_without_a_trace() {
    let mut state = StoreState::default();
    let value = vec![7; 64 << 10];
    let mut fill = Transaction::new();
    let fits = LIST_LENGTH_MAX / (value.len() + 4);
    for _ in 0..fits {
        fill.append(b"a", &value).unwrap();
    }
    execute(&mut state, &fill, 0).unwrap();
    let mut over = Transaction::new();
    over.write(b"b", b"1").unwrap();
    over.append(b"a", &value).unwrap();
    assert_eq!(execute(&mut state, &over, 1), Err((1, Code::ListFull)));
    let mut long = Transaction::new();
    long.write(b"b", b"1").unwrap();
    for _ in 0..5 {
        long.read(b"a").unwrap();
    }
    let error = execute(&mut state, &long, 1).unwrap_err();
    assert_eq!(error, (5, Code::AnswerTooLong));
    assert_eq!(state.items.len(), 1);
    let mut first = Transaction::new();
    first.append(b"c", &vec![7; LIST_LENGTH_MAX - 3]).unwrap();
    assert_eq!(execute(&mut state, &first, 1), Err((0, Code::ListFull)));
    assert_eq!(state.items.len(), 1);
}

#[test]
fn malformed_operations_take_back_what_came_before_them() {
    let mut transaction = Transaction::new();
    transaction.append(b"a", b"1").unwrap();
    transaction.append(b"a", b"2").unwrap();
    let message = transaction.into_message(1, 1);
    for length in HEADER_LENGTH..message.len() {
        let mut state = StoreState::default();
        let operations = Operations::new(&message[..length], 2);
        let abort = state.execute(operations, 0, &mut Vec::new()).unwrap_err();
        assert_eq!(abort.code, Code::Malformed, "cut at {length}");
        assert!(!abort.is_dirty && state.items.len() == 0, "cut at {length}");
    }
    let mut state = StoreState::default();
    let operations = Operations::new(&message, 1);
    let abort = state.execute(operations, 0, &mut Vec::new()).unwrap_err();
    assert_eq!((abort.code, abort.operation), (Code::Malformed, 1));
    assert!(state.items.len() == 0);
}

#[test]
fn the_planted_dirty_abort_leaves_an_effect() {
    let mut state = StoreState::new(Planted {
        dirty_abort: true,
        lost_append: None,
    });
    let mut transaction = Transaction::new();
    transaction.write(b"a", b"1").unwrap();
    transaction.compare_and_set(b"b", Some(b"x"), b"y").unwrap();
    let abort = state
        .execute(transaction.operations(), 0, &mut Vec::new())
        .unwrap_err();
    assert!(abort.is_dirty);
    assert_eq!(
        dump(&state.items)[&b"a"[..]],
        TwinValue::Register(b"1".to_vec())
    );
}

#[test]
fn the_planted_lost_append_overwrites_within_a_batch_only() {
    let mut state = StoreState::new(Planted {
        dirty_abort: false,
        lost_append: Some(BTreeMap::new()),
    });
    let append = |state: &mut StoreState, value: &[u8], batch| {
        let mut transaction = Transaction::new();
        transaction.append(b"a", value).unwrap();
        execute(state, &transaction, batch).unwrap();
    };
    for (value, batch) in [(b"1", 0), (b"2", 1), (b"3", 1), (b"4", 2)] {
        append(&mut state, value, batch);
    }
    let left = [b"1", b"3", b"4"].map(|value| value.to_vec()).to_vec();
    assert_eq!(dump(&state.items)[&b"a"[..]], TwinValue::List(left));
}
