//! The digest of a state, asked for with the status: computed beside the machine, once for all that ask, equal for equal states.

use crate::node::LocalNode;
use seatrial_kv_protocol::{ReplicaStatus, StatusProbe};
use seatrial_machine::{Input, Machine as _, NodeId, Output, Storage, Ticket, Time};
use seatrial_sim::MemoryStorage;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SERVER: NodeId = NodeId::server(1);

fn start(seed: u64) -> LocalNode {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    LocalNode::start(&storage, Path::new("data"), None, seed).unwrap()
}

/// The request of a probe.
fn request(probe: &mut StatusProbe) -> Vec<u8> {
    let mut out = Vec::new();
    probe.turn(Time::ZERO, Input::Request(Ticket(1), ()), &mut out);
    match out.pop() {
        Some(Output::Send { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

fn ask(node: &mut LocalNode, from: NodeId, bytes: Vec<u8>) {
    let now = node.now;
    node.driver
        .turn(now, Input::Message { from, bytes })
        .unwrap();
}

/// The status that the node has sent to an endpoint, if it has.
fn answer(node: &mut LocalNode, to: NodeId, probe: &mut StatusProbe) -> Option<ReplicaStatus> {
    let place = node.driver.sent.iter().position(|it| it.0 == to)?;
    let (_, bytes) = node.driver.sent.remove(place)?;
    let mut out = Vec::new();
    let from = SERVER;
    probe.turn(Time::ZERO, Input::Message { from, bytes }, &mut out);
    match out.pop() {
        Some(Output::Reply(_, status)) => status,
        other => panic!("{other:?}"),
    }
}

fn probe() -> StatusProbe {
    StatusProbe::new(SERVER, Duration::from_secs(1)).with_digest()
}

fn work(node: &mut LocalNode) -> bool {
    let now = node.now;
    node.driver.work(now).unwrap()
}

#[test]
fn a_digest_is_computed_once_for_all_that_ask() {
    let mut node = start(1);
    node.append(Ticket(1), b"element").unwrap();
    node.sync().unwrap();
    let endpoints = [NodeId::client(7), NodeId::client(8)];
    let mut probes = [probe(), probe()];
    for (endpoint, probe) in endpoints.into_iter().zip(&mut probes) {
        let message = request(probe);
        // Sent again, it waits once.
        ask(&mut node, endpoint, message.clone());
        ask(&mut node, endpoint, message);
        assert_eq!(answer(&mut node, endpoint, probe), None, "before the job");
    }
    assert!(work(&mut node) && !work(&mut node), "one job");
    let expected = node.driver.replica.state_digest();
    assert_eq!(expected.index, node.driver.replica.status().applied);
    for (endpoint, probe) in endpoints.into_iter().zip(&mut probes) {
        let status = answer(&mut node, endpoint, probe).unwrap();
        assert_eq!(status.digest, Some(expected));
        assert_eq!(answer(&mut node, endpoint, probe), None, "one reply");
    }
    // It is known now, until the state changes.
    let message = request(&mut probes[0]);
    ask(&mut node, endpoints[0], message);
    let status = answer(&mut node, endpoints[0], &mut probes[0]).unwrap();
    assert_eq!(status.digest, Some(expected));
    assert!(!work(&mut node));
    node.append(Ticket(2), b"another").unwrap();
    node.sync().unwrap();
    let message = request(&mut probes[0]);
    ask(&mut node, endpoints[0], message);
    assert!(work(&mut node));
    let status = answer(&mut node, endpoints[0], &mut probes[0]).unwrap();
    let later = status.digest.unwrap();
    assert!(later.index > expected.index && later.bytes != expected.bytes);
}

#[test]
fn a_plain_request_has_no_digest_and_starts_no_job() {
    let mut node = start(1);
    let mut probe = StatusProbe::new(SERVER, Duration::from_secs(1));
    let endpoint = NodeId::client(7);
    let message = request(&mut probe);
    ask(&mut node, endpoint, message);
    let status = answer(&mut node, endpoint, &mut probe).unwrap();
    assert_eq!(status.digest, None);
    assert!(!work(&mut node));
}

#[test]
fn equal_commands_make_equal_digests() {
    let digest = |elements: &[&[u8]]| {
        let mut node = start(1);
        for (number, element) in elements.iter().enumerate() {
            node.append(Ticket(number as u64), element).unwrap();
            node.sync().unwrap();
        }
        node.driver.replica.state_digest()
    };
    assert_eq!(digest(&[b"one", b"two"]), digest(&[b"one", b"two"]));
    assert_ne!(digest(&[b"one", b"two"]), digest(&[b"one", b"tow"]));
}
