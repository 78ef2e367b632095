//! Columns against a twin that keeps everything by name.

use super::{Columns, ColumnsBuilder, ColumnsError, ReadFault};
use seatrial_cycles::{Position, Txn};
use seatrial_history::{
    History, HistoryWriter, Key, Mop, Observed, Op, OpType, Process, TestFile, Value, WriterOptions,
};
use seatrial_machine::Rng;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A read or write by name; whose value, `None` for the initial state.
#[derive(Clone, Debug, PartialEq)]
struct SimpleEvent {
    is_write: bool,
    key: Key,
    value: Option<i64>,
}

/// A transaction by name.
#[derive(Clone, Debug, PartialEq)]
struct Simple {
    client: u64,
    outcome: OpType,
    begun: Option<Position>,
    ended: Option<Position>,
    index: u64,
    events: Vec<SimpleEvent>,
}

/// What a transaction asks for and what it returns; `next` is the last value that was written.
fn transaction(
    rng: &mut Rng,
    keys: usize,
    length_max: u64,
    next: &mut i64,
) -> (Vec<Mop>, Vec<Mop>) {
    let (mut asked, mut returned) = (Vec::new(), Vec::new());
    for _ in 0..rng.below(length_max) {
        let key = match rng.index(keys) {
            3 => Key::Word("odd".into()),
            key => Key::Int(key as i64 - 1),
        };
        if rng.chance(0.5) {
            *next += 1;
            let mop = Mop::Write { key, value: *next };
            asked.push(mop.clone());
            returned.push(mop);
        } else {
            let observed = match rng.below(next.cast_unsigned() + 4).cast_signed() {
                0 => Observed::Nil,
                seen => Observed::Register(seen),
            };
            asked.push(Mop::Read {
                key: key.clone(),
                observed: Observed::Nil,
            });
            returned.push(Mop::Read { key, observed });
        }
    }
    (asked, returned)
}

/// Random transactions of clients that write anything once and read anything.
fn random(rng: &mut Rng) -> Vec<Op> {
    let transactions = 1 + rng.index(12);
    let length_max = if rng.chance(0.1) {
        90
    } else {
        1 + rng.below(7)
    };
    let keys = 1 + rng.index(4);
    let (mut next, mut begun) = (0, 0);
    let (mut ops, mut open): (Vec<Op>, Vec<(Op, Op)>) = (Vec::new(), Vec::new());
    let (mut free, mut process) = (vec![5, 7, 8], 9);
    while begun < transactions || !open.is_empty() {
        if rng.chance(0.1) {
            ops.push(Op::invoke(Process::NEMESIS, "kill", Value::Nil));
        }
        if begun < transactions && !free.is_empty() && rng.chance(0.5) {
            begun += 1;
            let client = free.swap_remove(rng.index(free.len()));
            let (asked, returned) = transaction(rng, keys, length_max, &mut next);
            let op = Op::invoke(Process::Client(client), "txn", Value::Txn(asked.into()));
            ops.push(op.clone());
            let kind = *rng.pick(&[
                OpType::Ok,
                OpType::Ok,
                OpType::Ok,
                OpType::Fail,
                OpType::Info,
            ]);
            let value = match kind {
                OpType::Ok => Value::Txn(returned.into()),
                _ if rng.chance(0.5) => Value::Nil,
                _ => op.value.clone(),
            };
            let completion = op.complete(kind, value);
            open.push((op, completion));
        } else if !open.is_empty() {
            let (op, completion) = open.swap_remove(rng.index(open.len()));
            let Process::Client(client) = op.process else {
                continue;
            };
            let is_info = completion.is_info();
            if !is_info || rng.chance(0.5) {
                ops.push(completion);
            }
            free.push(if is_info { process } else { client });
            process += u64::from(is_info);
        }
    }
    let step = 1 + rng.below(3);
    let ops = ops.into_iter().enumerate();
    let indexed = ops.map(|(position, op)| Op {
        index: position as u64 * step,
        ..op
    });
    indexed.collect()
}

fn simple(history: &History) -> Vec<Simple> {
    let mut all = Vec::new();
    for (position, op) in history.iter().enumerate() {
        let Process::Client(client) = op.process else {
            continue;
        };
        if !op.is_invoke() {
            continue;
        }
        let completion = history.pair(position);
        let completed = completion.map(|at| &history.ops()[at]);
        let outcome = completed.map_or(OpType::Info, |op| op.kind);
        let is_ok = outcome == OpType::Ok;
        let source = completed.filter(|_| is_ok).unwrap_or(op);
        let mops = source.value.as_txn().unwrap().iter();
        let events = mops.filter_map(|mop| match mop {
            Mop::Write { key, value } => Some(SimpleEvent {
                is_write: true,
                key: key.clone(),
                value: Some(*value),
            }),
            Mop::Read { key, observed } if is_ok => Some(SimpleEvent {
                is_write: false,
                key: key.clone(),
                value: match observed {
                    Observed::Register(value) => Some(*value),
                    _ => None,
                },
            }),
            _ => None,
        });
        all.push(Simple {
            client,
            outcome,
            begun: Some(Position::new(position as u32)),
            ended: completion
                .filter(|_| is_ok)
                .map(|at| Position::new(at as u32)),
            index: completed.unwrap_or(op).index,
            events: events.collect(),
        });
    }
    all
}

/// What columns say, by name.
fn named(columns: &Columns) -> Vec<Simple> {
    let transaction = |number: u32| Simple {
        client: columns.client(columns.sessions()[number as usize]),
        outcome: columns.outcomes()[number as usize],
        begun: columns.begun(number),
        ended: columns.ended(number),
        index: columns.index(number),
        events: columns
            .events(number)
            .iter()
            .map(|event| {
                assert_eq!(columns.key_of(event.version()), event.key());
                SimpleEvent {
                    is_write: event.is_write(),
                    key: columns.key(event.key()).clone(),
                    value: columns.value(event.version()),
                }
            })
            .collect(),
    };
    (0..columns.len() as u32).map(transaction).collect()
}

/// Who wrote this value of this key, and did he write the key again?
fn writer(all: &[Simple], read: &SimpleEvent) -> Option<(usize, bool)> {
    for (number, one) in all.iter().enumerate() {
        let same = |event: &SimpleEvent| event.is_write && event.key == read.key;
        let wrote = one
            .events
            .iter()
            .position(|event| same(event) && event.value == read.value);
        if let Some(at) = wrote {
            return Some((number, one.events[at + 1..].iter().any(same)));
        }
    }
    None
}

/// What is wrong with reads, from the definitions.
fn faults(all: &[Simple]) -> Vec<(u32, u32, ReadFault)> {
    let mut found = Vec::new();
    for (number, one) in all.iter().enumerate() {
        for (at, read) in one
            .events
            .iter()
            .enumerate()
            .filter(|(_, event)| !event.is_write)
        {
            let own = one.events[..at].iter().rev();
            let own = own.filter(|event| event.is_write && event.key == read.key);
            let fault = match (own.clone().next(), writer(all, read)) {
                (Some(own), _) if own.value == read.value => None,
                (Some(_), _) => Some(ReadFault::Internal),
                (None, _) if read.value.is_none() => None,
                (None, None) => Some(ReadFault::Garbage),
                (None, Some((writer, _))) if writer == number => Some(ReadFault::Future),
                (None, Some((writer, _))) if all[writer].outcome == OpType::Fail => {
                    Some(ReadFault::Aborted)
                }
                (None, Some((_, true))) => Some(ReadFault::Intermediate),
                (None, Some((_, false))) => None,
            };
            found.extend(fault.map(|fault| (number as u32, at as u32, fault)));
        }
    }
    found
}

/// The same history in chunks of a few operations.
fn file(ops: &[Op]) -> Arc<TestFile> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sea");
    let options = WriterOptions {
        chunk_length: 7,
        ..WriterOptions::default()
    };
    let mut writer = HistoryWriter::create_with(&path, &json!({}), options).unwrap();
    for op in ops {
        writer.push(op).unwrap();
    }
    writer.seal().unwrap();
    let file = TestFile::open(&path).unwrap();
    Arc::new(file)
}

fn read_faults(columns: &Columns) -> Vec<(u32, u32, ReadFault)> {
    let mut faults = Vec::new();
    columns.faults(|it| faults.push((it.transaction, it.event, it.fault)));
    faults
}

#[test]
fn columns_say_what_the_history_says() {
    let mut seen = [0; 5];
    for seed in 0..1_500 {
        let mut rng = Rng::from_seed(seed);
        let ops = random(&mut rng);
        let history = History::from_ops(ops.clone());
        let expected = simple(&history);
        let columns = Columns::of(&history).unwrap();
        assert_eq!(named(&columns), expected, "seed {seed}");
        let faults = faults(&expected);
        assert_eq!(read_faults(&columns), faults, "seed {seed}");
        for (number, one) in expected.iter().enumerate() {
            let reads = expected.iter().filter(|one| one.outcome == OpType::Ok);
            let mut reads = reads.flat_map(|one| &one.events).filter(|it| !it.is_write);
            let is_seen = reads.any(|read| {
                read.value.is_some() && writer(&expected, read).is_some_and(|it| it.0 == number)
            });
            let happened = match one.outcome {
                OpType::Ok => true,
                OpType::Info => is_seen,
                _ => false,
            };
            assert_eq!(columns.happened(number as u32), happened, "seed {seed}");
            for (at, event) in one.events.iter().enumerate() {
                let is_same = |other: &SimpleEvent| other.is_write && other.key == event.key;
                let (before, after) = (&one.events[..at], &one.events[at + 1..]);
                let dense = columns.events(number as u32)[at];
                let is_external = !event.is_write && !before.iter().any(is_same);
                let is_final = event.is_write && !after.iter().any(is_same);
                assert_eq!(dense.is_external_read(), is_external, "seed {seed}");
                assert_eq!(dense.is_final_write(), is_final, "seed {seed}");
            }
        }
        for (_, _, fault) in faults {
            seen[fault as usize] += 1;
        }
        if seed % 40 == 0 {
            let chunked = Columns::gather(&*file(&ops)).unwrap().unwrap();
            assert_eq!(named(&chunked), expected, "seed {seed}");
            assert_eq!(read_faults(&chunked), read_faults(&columns), "seed {seed}");
        }
    }
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
}

#[test]
fn events_make_the_same_columns() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let all = simple(&History::from_ops(random(&mut rng)));
        let mut builder = ColumnsBuilder::default();
        for one in &all {
            builder.begin(one.client);
            for event in &one.events {
                let key = match event.key {
                    Key::Int(key) => key,
                    _ => 9,
                };
                match event.value {
                    Some(value) if event.is_write => builder.write(key, value),
                    value => builder.read(key, value),
                }
            }
            builder.end(one.outcome);
        }
        let columns = builder.finish().unwrap();
        assert!(!columns.has_times());
        let events = |all: &[Simple]| -> Vec<_> {
            let events = all.iter().flat_map(|one| &one.events);
            events.map(|event| (event.is_write, event.value)).collect()
        };
        assert_eq!(events(&named(&columns)), events(&all), "seed {seed}");
        assert_eq!(read_faults(&columns), faults(&all), "seed {seed}");
    }
}

#[test]
fn a_value_that_is_written_twice_is_refused_unless_one_write_failed() {
    let columns = |outcomes: [OpType; 2]| {
        let mut builder = ColumnsBuilder::default();
        for outcome in outcomes {
            builder.begin(4);
            builder.write(1, 3);
            builder.end(outcome);
        }
        builder.begin(5);
        builder.read(1, Some(3));
        builder.end(OpType::Ok);
        builder.finish()
    };
    let refusal = columns([OpType::Ok, OpType::Info]).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "transaction 1 of session 4 and transaction 2 of session 4 both write 3 to key 1: values must be unique for \
         each key"
    );
    let writer = |columns: Columns| columns.writer(columns.events(2)[0].version());
    assert_eq!(
        writer(columns([OpType::Fail, OpType::Ok]).unwrap()),
        Some(Txn::new(1))
    );
    assert_eq!(
        writer(columns([OpType::Ok, OpType::Fail]).unwrap()),
        Some(Txn::new(0))
    );
    let both = columns([OpType::Fail, OpType::Fail]).unwrap();
    assert_eq!(read_faults(&both), [(2, 0, ReadFault::Aborted)]);
}

#[test]
fn operations_other_than_register_transactions_are_refused() {
    let refused = |value: Value| {
        let op = Op::invoke(Process::Client(0), "txn", value.clone());
        let ops = vec![op.clone(), op.complete(OpType::Ok, value)];
        let refusal = Columns::of(&History::from_unindexed(ops)).unwrap_err();
        assert!(matches!(refusal, ColumnsError::Operation(_)));
        refusal.to_string()
    };
    assert_eq!(
        refused(Value::Int(1)),
        "op 1: its value is not a transaction"
    );
    let (key, element) = (Key::Int(1), 2);
    assert_eq!(
        refused(Value::Txn([Mop::Append { key, element }].into())),
        "op 1: [:append 1 2] is neither a write of a register nor a read of one"
    );
}

#[test]
fn violations_are_explained_in_words() {
    let mut builder = ColumnsBuilder::default();
    builder.begin(3);
    builder.write(1, 10);
    builder.write(1, 11);
    builder.end(OpType::Ok);
    builder.begin(4);
    builder.read(1, Some(10));
    builder.read(2, None);
    builder.end(OpType::Ok);
    let columns = builder.finish().unwrap();
    let mut summaries = BTreeMap::new();
    columns.faults(|faulty| {
        let finding = columns.finding(faulty);
        summaries.insert(finding.anomaly, (finding.operations, finding.summary));
    });
    let expected = "transaction 1 of session 4 (ok): [[:r 1 10] [:r 2 nil]]\nread key 1 as it was in the middle of \
                    another transaction, which wrote it again after 10:\ntransaction 1 of session 3 (ok): [[:w 1 10] \
                    [:w 1 11]]";
    assert_eq!(summaries["G1b"], (vec![3, 1], expected.to_owned()));
}
