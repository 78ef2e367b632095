use super::*;
use crate::answer::{Answer, Answers};
use crate::message::{HEADER_LENGTH, VALUE_LENGTH_MAX};
use crate::transaction::Transaction;
use seatrial_machine::Rng;

/// The dumb twin: owned values, copied whole before each transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Twin {
    Register(Vec<u8>),
    List(Vec<Vec<u8>>),
}

type Twins = BTreeMap<Vec<u8>, Twin>;

/// Executes on the twin: what each read found, or the failure.
fn execute_twin(
    twins: &mut Twins,
    transaction: &Transaction,
) -> Result<Vec<Option<Twin>>, (u32, Code)> {
    let before = twins.clone();
    let mut reads = Vec::new();
    for (index, operation) in transaction.operations().enumerate() {
        let operation = operation.unwrap();
        let held = twins.get(operation.key()).cloned();
        let key = operation.key().to_vec();
        let failed = match (operation, held) {
            (Operation::Read { .. }, held) => {
                reads.push(held);
                continue;
            }
            (Operation::Append { value, .. }, None | Some(Twin::List(_))) => {
                let twin = twins.entry(key).or_insert(Twin::List(Vec::new()));
                if let Twin::List(list) = twin {
                    list.push(value.to_vec());
                }
                continue;
            }
            (Operation::Write { value, .. }, None | Some(Twin::Register(_))) => {
                twins.insert(key, Twin::Register(value.to_vec()));
                continue;
            }
            (Operation::CompareAndSet { .. }, Some(Twin::List(_))) => Code::WrongKind,
            (
                Operation::CompareAndSet {
                    expected, value, ..
                },
                held,
            ) => {
                let expected = expected.map(|value| Twin::Register(value.to_vec()));
                if expected == held {
                    twins.insert(key, Twin::Register(value.to_vec()));
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
) -> Result<Vec<Option<Twin>>, (u32, Code)> {
    let mut reply = Vec::new();
    state
        .execute(transaction.operations(), batch, &mut reply)
        .map_err(|abort| (abort.operation, abort.code))?;
    reply.splice(0..0, [0; HEADER_LENGTH]);
    let answers = Answers::new(reply, transaction.len() as u16).unwrap();
    let reads = answers.iter().filter_map(|answer| match answer {
        Answer::Absent => Some(None),
        Answer::Register(value) => Some(Some(Twin::Register(value.to_vec()))),
        Answer::List(list) => Some(Some(Twin::List(list.iter().map(<[u8]>::to_vec).collect()))),
        Answer::Done => None,
    });
    Ok(reads.collect())
}

/// Everything in the state.
fn dump(state: &StoreState) -> Twins {
    let mut transaction = Transaction::new();
    for key in state.items.keys() {
        transaction.read(key).unwrap();
    }
    let reads = execute(&mut state.clone(), &transaction, 0).unwrap();
    let keys = state.items.keys().map(|key| key.to_vec());
    keys.zip(reads.into_iter().flatten()).collect()
}

fn random_transaction(rng: &mut Rng) -> Transaction {
    let mut transaction = Transaction::new();
    for _ in 0..rng.below(6) {
        // Keys a to d are mostly registers, e to h mostly lists.
        let letter = rng.below(8) as u8;
        let key = [b'a' + letter];
        let value = vec![b'0' + rng.below(3) as u8; rng.index(3)];
        let is_list = rng.chance(if letter < 4 { 0.03 } else { 0.97 });
        let put = match rng.below(4) {
            0 => transaction.read(&key),
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
fn equals_its_dumb_twin() {
    let (mut commits, mut aborts) = (0, 0);
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let (mut state, mut twins) = (StoreState::default(), Twins::new());
        for step in 0..100 {
            let transaction = random_transaction(&mut rng);
            let expected = execute_twin(&mut twins, &transaction);
            let found = execute(&mut state, &transaction, step);
            assert_eq!(found, expected, "seed {seed}, step {step}: {transaction:?}");
            assert_eq!(
                dump(&state),
                twins,
                "seed {seed}, step {step}: {transaction:?}"
            );
            *(if found.is_ok() {
                &mut commits
            } else {
                &mut aborts
            }) += 1;
        }
    }
    assert!(commits > 2_000 && aborts > 2_000, "{commits} and {aborts}");
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
    assert_eq!(
        effect(&mut state, &Transaction::new()),
        Ok(ExecutionEffect::Read)
    );
}

#[test]
fn a_full_list_and_a_long_answer_abort_without_a_trace() {
    let mut state = StoreState::default();
    let value = vec![7; VALUE_LENGTH_MAX];
    let mut fill = Transaction::new();
    let fits = LIST_LENGTH_MAX / (VALUE_LENGTH_MAX + 4);
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
        assert!(!abort.is_dirty && state.items.is_empty(), "cut at {length}");
    }
    let mut state = StoreState::default();
    let operations = Operations::new(&message, 1);
    let abort = state.execute(operations, 0, &mut Vec::new()).unwrap_err();
    assert_eq!((abort.code, abort.operation), (Code::Malformed, 1));
    assert!(state.items.is_empty());
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
    assert_eq!(dump(&state)[&b"a"[..]], Twin::Register(b"1".to_vec()));
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
    assert_eq!(dump(&state)[&b"a"[..]], Twin::List(left));
}
