//! A start with many entries after its checkpoint: they are applied over many turns, and heartbeats leave in between.

use crate::node::{LocalNode, ReplicaDriver};
use seatrial_kv::ReplicaOptions;
use seatrial_kv_protocol::Transaction;
use seatrial_machine::Storage;
use seatrial_machine::{Input, Machine as _, NodeId, SEGMENT_LENGTH, Ticket, Time};
use seatrial_sim::MemoryStorage;
use std::path::Path;
use std::sync::Arc;

const SERVER: NodeId = NodeId::server(1);
/// Values of this many bytes.
const LENGTH: usize = 1_000;
const ENTRIES: u64 = 200;
/// A turn may apply four of them.
const TURN: u64 = 3_500;

fn options(turn_bytes_max: u64) -> ReplicaOptions {
    ReplicaOptions {
        turn_bytes_max,
        ..ReplicaOptions::new(SERVER, [SERVER])
    }
}

/// Entries applied by each turn of a start, up to the last one.
fn replay(storage: &Arc<dyn Storage>, folder: &Path, turn_bytes_max: u64) -> Vec<u64> {
    let options = options(turn_bytes_max);
    let mut driver = ReplicaDriver::start(storage, folder, options, SEGMENT_LENGTH).unwrap();
    let mut applied = Vec::new();
    loop {
        let before = driver.replica.status().applied;
        if driver
            .replica
            .wake_at()
            .is_some_and(|due| due <= Time::ZERO)
        {
            driver.turn(Time::ZERO, Input::Wake).unwrap();
        } else if !driver.work(Time::ZERO).unwrap() && !driver.sync_log(Time::ZERO).unwrap() {
            return applied;
        }
        let now = driver.replica.status().applied;
        if now > before {
            applied.push(now - before);
        }
    }
}

#[test]
fn entries_are_applied_over_many_turns() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let folder = Path::new("/n1");
    let mut node =
        LocalNode::start_with(&storage, folder, options(TURN), SEGMENT_LENGTH, 1).unwrap();
    for number in 0..ENTRIES {
        let mut transaction = Transaction::new();
        let key = (number % 10).to_be_bytes();
        transaction.write(&key, &[number as u8; LENGTH]).unwrap();
        node.ask(Ticket(number), transaction).unwrap();
        node.sync().unwrap();
    }
    let status = node.driver.replica.status();
    drop(node);
    let applied = replay(&storage, folder, TURN);
    // Before the first write are three short entries: of the election, the node's address and the session.
    assert!(applied[0] <= 3 + 4, "{applied:?}");
    assert!(applied[1..].iter().all(|&it| it <= 4), "{applied:?}");
    assert!(applied.len() as u64 >= ENTRIES / 4, "{applied:?}");
    // Without the bound it is one turn: what is tested above is the bound.
    let at_once = replay(&storage, folder, u64::MAX);
    assert!(
        at_once.iter().any(|&entries| entries >= ENTRIES),
        "{at_once:?}"
    );
    let mut node = LocalNode::start_with(&storage, folder, options(1), SEGMENT_LENGTH, 2).unwrap();
    let found = node.driver.replica.status();
    assert_eq!((found.keys, found.bytes), (status.keys, status.bytes));
    let mut transaction = Transaction::new();
    transaction.read(&9_u64.to_be_bytes()).unwrap();
    let outcome = format!("{:?}", node.answer(transaction).unwrap());
    assert!(outcome.contains(&(ENTRIES - 1).to_string()), "{outcome}");
}
