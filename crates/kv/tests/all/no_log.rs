//! Lives of a node with and without a log, in any order: one with a log loses nothing, one without loses only what came after the
//! newest checkpoint, and the next life continues.

use crate::node::{LocalNode, ReplicaDriver};
use seatrial_kv::ReplicaOptions;
use seatrial_kv_protocol::{AdminRequest, Outcome};
use seatrial_machine::{Input, NodeId, Rng, SEGMENT_LENGTH, Storage, Ticket, Time};
use seatrial_sim::MemoryStorage;
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "data";

fn options(keeps_log: bool) -> ReplicaOptions {
    let server = NodeId::server(1);
    let mut options = ReplicaOptions::new(server, [server]);
    options.checkpoint_bytes = 2_000;
    options.keeps_log = keeps_log;
    options
}

fn element_of(value: &[u8]) -> Result<u64, String> {
    value
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .ok_or_else(|| "a short element".to_owned())
}

#[test]
fn a_life_without_a_log_loses_only_what_came_after_the_newest_checkpoint() {
    let mut rng = Rng::from_seed(11);
    let (mut lost, mut kept, mut next) = (0, 0, 0);
    for run in 0..40 {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        // The list at the end of the last life, and its length when that life's last checkpoint began at the latest.
        let (mut before, mut durable) = (Vec::new(), 0);
        for life in 0..12 {
            let keeps_log = rng.below(2) == 0;
            let seed = run * 100 + life;
            let folder = Path::new(FOLDER);
            let node =
                LocalNode::start_with(&storage, folder, options(keeps_log), SEGMENT_LENGTH, seed);
            let mut node = node.unwrap();
            let list = node.list(element_of).unwrap();
            assert!(before.starts_with(&list), "{before:?} became {list:?}");
            assert!(list.len() >= durable, "{} of {durable}", list.len());
            lost += before.len() - list.len();
            let (start, mut is_checkpointed) = (list.len(), false);
            for _ in 0..rng.below(60) {
                node.append(Ticket(next), &next.to_le_bytes()).unwrap();
                next += 1;
                // Without a log a request is answered at once.
                assert!(keeps_log || node.outcomes.len() == 1);
                if rng.below(3) > 0 {
                    node.sync().unwrap();
                }
                if keeps_log {
                    node.driver.sync_log(node.now).unwrap();
                }
                for (_, outcome) in node.outcomes.drain(..) {
                    assert!(matches!(outcome, Outcome::Ok(_)), "{outcome:?}");
                }
                is_checkpointed |= node.driver.replica.status().checkpoints.made > 0;
            }
            before = node.list(element_of).unwrap();
            node.outcomes.clear();
            durable = if keeps_log { before.len() } else { start };
            kept += u64::from(is_checkpointed && !keeps_log);
        }
    }
    assert!(
        lost > 1_000 && kept > 20,
        "lost {lost}, {kept} lives with checkpoints"
    );
}

#[test]
fn a_node_without_a_log_is_and_stays_alone() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let folder = Path::new(FOLDER);
    let mut several = options(false);
    several.voters = (1..=3).map(NodeId::server).collect();
    let refused = ReplicaDriver::start(&storage, folder, several, SEGMENT_LENGTH);
    let reason = refused.err().unwrap();
    assert!(reason.contains("only member"), "{reason}");

    let node = LocalNode::start_with(&storage, folder, options(false), SEGMENT_LENGTH, 1);
    let mut node = node.unwrap();
    let add = AdminRequest::AddLearner(NodeId::server(2), None);
    let from = NodeId::client(7);
    let bytes = add.into_message();
    node.driver
        .turn(Time::ZERO, Input::Message { from, bytes })
        .unwrap();
    let (to, reply) = node.driver.sent.pop_back().unwrap();
    assert_eq!(to, from);
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.contains("stays the only member"), "{reply}");
}
