//! Certificates that name many transactions of which there is no order.

use seatrial_checker::{Validity, certify};
use seatrial_history::{
    ChunkBuffer, Chunks, History, Key, Mop, Observed, Op, OpType, Process, Value,
};
use seatrial_isolation::{AxiomaticModel, Isolation};
use seatrial_verify::{Certificate, Proof, Unproven, Verifier, verify};
use std::sync::Arc;

/// Transactions of a client each, which read and write registers.
#[derive(Default)]
struct Puzzle {
    transactions: Vec<Vec<Mop>>,
    keys: i64,
}

impl Puzzle {
    fn key(&mut self) -> i64 {
        self.keys += 1;
        self.keys
    }

    fn add(&mut self) -> usize {
        self.transactions.push(Vec::new());
        self.transactions.len() - 1
    }

    fn writer(&mut self, key: i64, value: i64) -> usize {
        let number = self.add();
        let key = Key::Int(key);
        self.transactions[number].push(Mop::Write { key, value });
        number
    }

    fn read(&mut self, number: usize, key: i64, value: i64) {
        self.transactions[number].push(Mop::Read {
            key: Key::Int(key),
            observed: Observed::Register(value),
        });
    }

    /// `to` reads a write of `from`, across this number of other transactions.
    fn lead(&mut self, from: usize, to: usize, length: usize) {
        let mut at = from;
        for step in 0..=length {
            let next = if step == length { to } else { self.add() };
            let key = self.key();
            let write = Mop::Write {
                key: Key::Int(key),
                value: 1,
            };
            self.transactions[at].push(write);
            self.read(next, key, 1);
            at = next;
        }
    }

    /// All of them at the same time.
    fn history(&self) -> Arc<History> {
        let unread = |mop: &Mop| match mop {
            Mop::Read { key, .. } => Mop::Read {
                key: key.clone(),
                observed: Observed::Nil,
            },
            write => write.clone(),
        };
        let begun = |(client, mops): (usize, &Vec<Mop>)| {
            let value = Value::Txn(mops.iter().map(unread).collect());
            Op::invoke(Process::Client(client as u64), "txn", value)
        };
        let all = || self.transactions.iter().enumerate();
        let begun: Vec<Op> = all().map(begun).collect();
        let ended = all().zip(&begun).map(|((_, mops), op)| {
            let value = Value::Txn(mops.iter().cloned().collect());
            op.complete(OpType::Ok, value)
        });
        let ended: Vec<Op> = ended.collect();
        Arc::new(History::from_unindexed([begun, ended].concat()))
    }
}

/// Each reads from the one before, and the first from the last.
fn circle(length: usize) -> Puzzle {
    let mut puzzle = Puzzle::default();
    let first = puzzle.add();
    puzzle.lead(first, first, length - 1);
    puzzle
}

/// Two versions of each of two keys. Neither order of any two is impossible by itself, and no two orders go together.
fn riddle(length: usize) -> Puzzle {
    let mut puzzle = Puzzle::default();
    let keys = [puzzle.key(), puzzle.key()];
    let writers = keys.map(|key| [1, 2].map(|value| puzzle.writer(key, value)));
    for one in [0, 1] {
        for other in [0, 1] {
            let versions = [[1, 2][one], [1, 2][other]];
            // If the version `one` of the first key and the version `other` of the second are the earlier ones, who reads them
            // comes before the writers of the later ones.
            let readers = [0, 1].map(|at: usize| {
                let reader = puzzle.add();
                puzzle.read(reader, keys[at], versions[at]);
                reader
            });
            let later = [writers[0][1 - one], writers[1][1 - other]];
            puzzle.lead(later[0], readers[1], length);
            puzzle.lead(later[1], readers[0], length);
        }
    }
    puzzle
}

fn certificate_of(history: &Arc<History>, model: AxiomaticModel) -> Certificate {
    let (verdict, certificate) = certify(&Isolation::new(model), history.as_ref()).unwrap();
    assert_eq!(verdict.valid, Validity::Invalid, "{verdict:#?}");
    certificate.unwrap()
}

/// The certificate holds; without any one of these members it does not.
fn ensure_least(
    history: &History,
    certificate: &Certificate,
    left_out: impl Iterator<Item = usize>,
) {
    assert_eq!(verify(history, certificate), Ok(()));
    for at in left_out {
        let mut other = certificate.clone();
        let Proof::Core(core) = &mut other.proof else {
            panic!("{certificate:?}");
        };
        core.remove(at);
        let answer = verify(history, &other);
        assert!(answer.is_err(), "{at} is not needed");
    }
}

#[test]
fn circles_of_many_transactions_are_replayed() {
    for (length, model) in [
        (61, AxiomaticModel::Serializable),
        (200, AxiomaticModel::Prefix),
        (300, AxiomaticModel::ParallelSnapshotIsolation),
        (700, AxiomaticModel::SnapshotIsolation),
    ] {
        let history = circle(length).history();
        let certificate = certificate_of(&history, model);
        let Proof::Core(core) = &certificate.proof else {
            panic!("{certificate:?}");
        };
        assert_eq!(core.len(), length);
        ensure_least(&history, &certificate, (0..length).step_by(length / 20));
    }
    let history = circle(4_097).history();
    let all = Proof::Core((0..4_097).collect());
    let answer = verify(&history, &Certificate::new("serializable", all));
    assert!(answer.unwrap_err().to_string().contains("more than 4096"));
}

#[test]
fn cores_in_which_both_orders_must_be_tried_are_replayed() {
    for length in [0, 3, 20] {
        let history = riddle(length).history();
        let count = history.len() / 2;
        assert_eq!(count, 12 + 8 * length);
        let all = Proof::Core((0..count as u64).collect());
        let whole = Certificate::new("serializable", all);
        ensure_least(&history, &whole, (0..count).step_by(1 + length / 5));
        let found = certificate_of(&history, AxiomaticModel::Serializable);
        assert_eq!(found.proof, whole.proof);
        // A long fork: those in parallel may see versions in different orders.
        let model = "parallel-snapshot-isolation".into();
        let answer = verify(&history, &Certificate { model, ..whole });
        assert!(
            answer
                .unwrap_err()
                .to_string()
                .contains("there is an order")
        );
    }
}

#[test]
fn a_core_that_takes_too_long_is_left_open() {
    let history = riddle(3).history();
    let certificate = certificate_of(&history, AxiomaticModel::Serializable);
    let verified = |steps| {
        let verifier = Verifier::read(&*history).unwrap().with_bound(steps);
        verifier.verify(&certificate)
    };
    assert_eq!(verified(100), Err(Unproven::Unsettled { steps: 100 }));
    assert_eq!(verified(10_000_000), Ok(()));
}

/// A transaction of a client by itself.
fn alone(client: u64, mops: &[Mop]) -> [Op; 2] {
    let value = Value::Txn(mops.iter().cloned().collect());
    let begun = Op::invoke(Process::Client(client), "txn", value.clone());
    [begun.clone(), begun.complete(OpType::Ok, value)]
}

#[test]
fn keys_and_clients_of_any_name_are_distinguished() {
    let integers = [-1, 0, 1, (1 << 24) - 1, 1 << 24, 1 << 40, i64::MAX];
    let mut keys: Vec<Key> = integers.into_iter().map(Key::Int).collect();
    keys.push(Key::Word("x".into()));
    keys.push(Key::Text("x".into()));
    let clients = [0, 1, (1 << 24) - 1, 1 << 24, 1 << 40, u64::MAX];
    let mut ops = Vec::new();
    for (value, key) in (1_i64..).zip(&keys) {
        let (key, client) = (key.clone(), clients[value as usize % clients.len()]);
        ops.extend(alone(client, &[Mop::Write { key, value }]));
    }
    for (value, key) in (1_i64..).zip(&keys) {
        let read = |value| Mop::Read {
            key: key.clone(),
            observed: Observed::Register(value),
        };
        ops.extend(alone(value.cast_unsigned(), &[read(value)]));
    }
    let history = History::from_unindexed(ops);
    let count = 2 * keys.len() as u64;
    let order: Vec<u64> = (0..count).map(|number| 2 * number).collect();
    let serial = |order| Certificate::new("strict-serializable", Proof::Serial(order));
    assert_eq!(verify(&history, &serial(order.clone())), Ok(()));
    // A read of a key before its write, or a missing write, is refused with the key.
    for (at, key) in keys.iter().enumerate() {
        let mut other = order.clone();
        other.remove(at);
        let refusal = verify(&history, &serial(other)).unwrap_err().to_string();
        assert!(refusal.contains(&format!("of key {key}")), "{refusal}");
    }
}

#[test]
fn a_history_without_its_beginning_is_refused() {
    let key = Key::Int(1);
    let all = (0..16_384).map(|client| {
        alone(
            client,
            &[Mop::Append {
                key: key.clone(),
                element: 1,
            }],
        )
    });
    let (begun, ended): (Vec<Op>, Vec<Op>) = all.map(|[begun, ended]| (begun, ended)).unzip();
    let history = History::from_unindexed([begun, ended].concat());
    let mut buffer = ChunkBuffer::default();
    let mut verifier = Verifier::default();
    verifier.take(history.read_chunk(1, &mut buffer).unwrap().unwrap());
    let refusal = verifier.verify(&Certificate::new("serializable", Proof::Serial(vec![])));
    assert!(
        refusal
            .unwrap_err()
            .to_string()
            .contains("completes what never began")
    );
}
