//! What a node finds or gets that it should not: files of another cluster, damaged links of checkpoints, a full disk, clocks that
//! jump, requests over the bounds. Each is named or refused, and nothing is lost.

use crate::node::LocalNode;
use seatrial_kv::{BootReport, ReplicaOptions};
use seatrial_kv_protocol::message::{MESSAGE_LENGTH_MAX, MessageHeader, MessageKind};
use seatrial_kv_protocol::{Outcome, Transaction};
use seatrial_machine::{Input, NodeId, SEGMENT_LENGTH, Storage, Ticket, Time};
use seatrial_sim::{FileTree, MemoryStorage};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Numbers the lives of all nodes: their clients need different tokens.
static LIVES: AtomicU64 = AtomicU64::new(1 << 32);

fn start(storage: &MemoryStorage, cluster: u64) -> Result<LocalNode, String> {
    let server = NodeId::server(1);
    let mut options = ReplicaOptions::new(server, [server]);
    options.cluster = cluster;
    options.checkpoint_bytes = 1_000;
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let life = LIVES.fetch_add(1, Ordering::Relaxed);
    LocalNode::start_with(&storage, Path::new("data"), options, SEGMENT_LENGTH, life)
}

fn append(node: &mut LocalNode, elements: std::ops::Range<u64>) {
    for element in elements {
        node.append(Ticket(element), &element.to_le_bytes())
            .unwrap();
        node.sync().unwrap();
        node.outcomes.clear();
    }
}

fn list(node: &mut LocalNode) -> Vec<u64> {
    let element = |value: &[u8]| {
        let bytes = value.try_into().map_err(|_| "another length".to_owned())?;
        Ok(u64::from_le_bytes(bytes))
    };
    node.list(element).unwrap()
}

/// Elements of a list, and a value that makes files of changes worth their while.
fn filled(cluster: u64, elements: u64) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let mut node = start(&storage, cluster).unwrap();
    let mut large = Transaction::new();
    large.write(b"large", &vec![7; 100_000]).unwrap();
    assert!(matches!(node.answer(large), Ok(Outcome::Ok(_))));
    append(&mut node, 0..elements);
    storage
}

/// The files of checkpoints.
fn checkpoints(files: &FileTree) -> Vec<PathBuf> {
    let paths = files.iter().map(|it| it.0.to_owned());
    paths
        .filter(|path| {
            let path = path.to_string_lossy();
            path.contains("/checkpoint-") || path.contains("/changes-")
        })
        .collect()
}

#[test]
fn any_damaged_link_costs_a_longer_replay_and_no_data() {
    let mut seen = (0, 0);
    for elements in (60..400).step_by(13) {
        let files = filled(1, elements).files();
        let paths = checkpoints(&files);
        for path in &paths {
            for removes in [true, false] {
                let mut damaged = files.clone();
                let bytes = damaged.remove(path).unwrap();
                if !removes {
                    let mut bytes = bytes.to_vec();
                    let place = bytes.len() / 2;
                    bytes[place] ^= 1;
                    damaged.insert(path, bytes);
                }
                let storage = MemoryStorage::from_files(&damaged);
                let mut node = start(&storage, 1).unwrap();
                let report: BootReport = node.driver.report.clone();
                let name = path.file_name().unwrap().to_str().unwrap();
                let is_named = report.damaged.iter().any(|it| it.contains(name));
                // The newest of two chains is looked at; a removed file that nothing refers to leaves no trace.
                seen.0 += u64::from(is_named);
                seen.1 += u64::from(name.starts_with("changes-"));
                assert_eq!(list(&mut node), (0..elements).collect::<Vec<_>>(), "{name}");
                append(&mut node, elements..elements + 40);
                drop(node);
                let mut node = start(&storage, 1).unwrap();
                let expected: Vec<u64> = (0..elements + 40).collect();
                assert_eq!(list(&mut node), expected, "{name}");
            }
        }
    }
    assert!(seen.0 > 20 && seen.1 > 20, "{seen:?}");
}

#[test]
fn a_checkpoint_of_another_cluster_is_named_and_not_read() {
    let others = filled(2, 100).files();
    let own = filled(1, 300).files();
    let paths = checkpoints(&others);
    let foreign = paths
        .iter()
        .filter(|it| it.to_string_lossy().contains("/checkpoint-"));
    for path in foreign {
        // Beside newer ones of its own cluster it is not looked at; under a later index it is refused.
        let mut files = own.clone();
        let bytes = others.get(path).unwrap().to_vec();
        let later = PathBuf::from(format!("data/files/checkpoint-{:020}", 1_000_000));
        files.insert(&later, bytes.clone());
        let mut node = start(&MemoryStorage::from_files(&files), 1).unwrap();
        let damaged = node.driver.report.damaged.join("; ");
        let reason = "checkpoint-00000000000001000000: of cluster 2, not 1";
        assert!(damaged.contains(reason), "{damaged}");
        assert_eq!(list(&mut node), (0..300).collect::<Vec<_>>());
        // Alone it is no reason to begin with an empty store: the journal has everything.
        let mut files = own.clone();
        for path in checkpoints(&own) {
            files.remove(&path);
        }
        files.insert(&later, bytes);
        let mut node = start(&MemoryStorage::from_files(&files), 1).unwrap();
        assert!(node.driver.report.damaged[0].contains(reason));
        assert_eq!(list(&mut node), (0..300).collect::<Vec<_>>());
    }
    let error = start(&MemoryStorage::from_files(&own), 2).err().unwrap();
    let reason = "the folder belongs to node n1 of cluster 1, not to node n1 of cluster 2";
    assert!(error.contains(reason), "{error}");
}

#[test]
fn a_full_disk_is_named_and_what_was_acknowledged_stays() {
    let (mut given_up, mut ended) = (0, 0);
    for room in (200..40_000).step_by(397).chain([120_000]) {
        let storage = filled(1, 10);
        let mut node = start(&storage, 1).unwrap();
        storage.set_room(Some(room));
        let (mut acknowledged, mut error) = (10, String::new());
        for element in 10..200_u64 {
            let asked = node.append(Ticket(element), &element.to_le_bytes());
            if let Err(text) = asked.and_then(|()| node.sync()) {
                error = text;
                break;
            }
            let outcomes = std::mem::take(&mut node.outcomes);
            assert!(outcomes.iter().all(|it| matches!(it.1, Outcome::Ok(_))));
            acknowledged += outcomes.len() as u64;
        }
        // A checkpoint is given up with the reason; without room for the journal the node ends with it.
        let status = node.driver.replica.status().checkpoints;
        given_up += u64::from(status.failed > 0);
        ended += u64::from(!error.is_empty());
        if status.failed > 0 {
            let error = status.last_error.unwrap_or_default();
            assert!(error.contains("space"), "{error}");
        }
        assert!(
            error.is_empty() || error.starts_with("data/log at "),
            "{error}"
        );
        drop(node);
        storage.set_room(None);
        let mut node = start(&storage, 1).unwrap();
        let found = list(&mut node);
        assert!(found.len() as u64 >= acknowledged, "{room}: {acknowledged}");
        let count = found.len() as u64;
        append(&mut node, 1_000..1_080);
        assert!(node.driver.replica.status().checkpoints.made > 0);
        drop(node);
        let expected: Vec<u64> = (0..count).chain(1_000..1_080).collect();
        assert_eq!(list(&mut start(&storage, 1).unwrap()), expected);
    }
    assert!(given_up > 5 && ended > 5, "{given_up}, {ended}");
}

#[test]
fn clocks_that_jump_change_no_result() {
    let storage = MemoryStorage::new();
    let mut node = start(&storage, 1).unwrap();
    let seconds = [1, 50, 49, 20, 0, 90, 3, 100, 2];
    for (round, second) in seconds.into_iter().enumerate() {
        node.now = Time::ZERO + Duration::from_secs(second);
        let first = round as u64 * 10;
        append(&mut node, first..first + 10);
    }
    let expected: Vec<u64> = (0..seconds.len() as u64 * 10).collect();
    assert_eq!(list(&mut node), expected);
    drop(node);
    assert_eq!(list(&mut start(&storage, 1).unwrap()), expected);
}

#[test]
fn requests_over_the_bounds_are_refused_or_dropped() {
    let storage = MemoryStorage::new();
    let mut node = start(&storage, 1).unwrap();
    append(&mut node, 0..3);
    let request = |count: u16, body: usize| {
        let header = MessageHeader {
            kind: MessageKind::Request,
            code: 0,
            count,
            detail: 0,
            first: 2,
            second: 1_000,
        };
        let mut bytes = header.encode().to_vec();
        bytes.resize(bytes.len() + body, 0xff);
        bytes
    };
    let stranger = NodeId::client(77);
    for bytes in [
        request(u16::MAX, 0),
        request(1, 0),
        request(1, 100),
        request(1, MESSAGE_LENGTH_MAX),
        request(u16::MAX, MESSAGE_LENGTH_MAX * 2),
        vec![0xff; 64],
        Vec::new(),
    ] {
        let is_request = MessageHeader::decode(&bytes).is_ok();
        let input = Input::Message {
            from: stranger,
            bytes,
        };
        node.driver.turn(node.now, input).unwrap();
        let replies: Vec<_> = node.driver.sent.drain(..).collect();
        let expected = usize::from(is_request);
        assert_eq!(replies.len(), expected, "one refusal, or nothing");
        for (to, reply) in replies {
            let header = MessageHeader::decode(&reply).unwrap();
            assert_eq!((to, header.kind), (stranger, MessageKind::Reply));
            assert_ne!(header.code, 0, "it is not committed");
        }
    }
    assert_eq!(list(&mut node), [0, 1, 2]);
}
