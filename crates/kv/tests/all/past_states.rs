//! Reads at an index: the states at the newest checkpoints are what they were, whatever was executed since.

use crate::node::LocalNode;
use seatrial_kv::ReplicaOptions;
use seatrial_kv_protocol::{Answer, Failure, Outcome, Transaction};
use seatrial_machine::{NodeId, SEGMENT_LENGTH, Storage, Ticket};
use seatrial_sim::MemoryStorage;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn start(storage: &Arc<dyn Storage>, seed: u64) -> LocalNode {
    let server = NodeId::server(1);
    let mut options = ReplicaOptions::new(server, [server]);
    options.checkpoint_bytes = 1_000;
    options.past_states = 3;
    LocalNode::start_with(storage, Path::new("data"), options, SEGMENT_LENGTH, seed).unwrap()
}

/// The list at an index, and the failure if there is none.
fn list_at(node: &mut LocalNode, index: u64) -> Result<Vec<Vec<u8>>, Failure> {
    let mut transaction = Transaction::new();
    transaction.at(index).unwrap();
    transaction.read(b"list").unwrap();
    match node.answer(transaction).unwrap() {
        Outcome::Ok(answers) => {
            let answers: Vec<Answer<'_>> = answers.iter().collect();
            assert!(matches!(answers[0], Answer::Done), "{answers:?}");
            let [_, Answer::List(list)] = &answers[..] else {
                panic!("{answers:?}")
            };
            Ok(list.iter().map(<[u8]>::to_vec).collect())
        }
        Outcome::Failed(failure) => Err(failure),
        other @ Outcome::Unknown(_) => panic!("{other:?}"),
    }
}

#[test]
fn states_at_the_newest_checkpoints_stay_readable() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut node = start(&storage, 1);
    // What the list was when an index became readable.
    let mut seen: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    let mut appended = Vec::new();
    for number in 0..400_u64 {
        node.append(Ticket(number), &number.to_le_bytes()).unwrap();
        node.sync().unwrap();
        appended.push(number.to_le_bytes().to_vec());
        let readable = node.driver.replica.status().readable;
        assert!(readable.len() <= 3 && readable.is_sorted());
        for index in readable {
            seen.entry(index).or_insert_with(|| appended.clone());
        }
    }
    assert!(seen.len() > 10, "{} checkpoints", seen.len());
    let readable = node.driver.replica.status().readable;
    assert_eq!(readable.len(), 3);
    for (index, list) in &seen {
        let found = list_at(&mut node, *index);
        if readable.contains(index) {
            assert_eq!(found.as_ref(), Ok(list), "at {index}");
        } else {
            assert_eq!(found, Err(Failure::NoState), "at {index}");
        }
    }
    assert_eq!(list_at(&mut node, 1), Err(Failure::NoState));
    // The newest one is there after a restart.
    drop(node);
    let mut node = start(&storage, 2);
    node.sync().unwrap();
    let newest = *node.driver.replica.status().readable.last().unwrap();
    assert_eq!(list_at(&mut node, newest).as_ref(), Ok(&seen[&newest]));
}

#[test]
fn an_index_goes_with_reads_only_and_comes_first() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut node = start(&storage, 1);
    node.append(Ticket(1), b"element").unwrap();
    node.sync().unwrap();
    let mut late = Transaction::new();
    late.read(b"list").unwrap();
    late.at(1).unwrap();
    let mut writing = Transaction::new();
    writing.at(1).unwrap();
    writing.write(b"register", b"value").unwrap();
    for transaction in [late, writing] {
        let outcome = node.answer(transaction).unwrap();
        assert_eq!(outcome, Outcome::Failed(Failure::Malformed));
    }
}
