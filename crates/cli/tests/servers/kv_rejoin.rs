//! Three `seatrial node kv`, of which one loses a part of its journal.

use super::process::{PATIENCE, Server, free_addresses, run};
use super::scratch::Scratch;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Three nodes: their folders and addresses stay, their processes do not.
struct Nodes {
    scratch: Scratch,
    addresses: Vec<SocketAddr>,
}

impl Nodes {
    fn new(name: &str) -> Nodes {
        Nodes {
            scratch: Scratch::new(name),
            addresses: free_addresses(3),
        }
    }

    fn start(&self, node: usize) -> Server {
        let others = (1..=3).filter(|peer| *peer != node);
        let peers: Vec<String> = others
            .map(|peer| format!("n{peer}={}", self.addresses[peer - 1]))
            .collect();
        let (number, listen) = (node.to_string(), self.addresses[node - 1].to_string());
        let data = self.data(node);
        let words = ["node", "kv", "--node", &number, "--listen", &listen];
        Server::start(&[&words[..], &["--data", &data, "--peers", &peers.join(",")]].concat())
    }

    fn data(&self, node: usize) -> String {
        self.scratch.path(&format!("n{node}"))
    }

    /// `seatrial kv` at these nodes: its standard output. It must succeed.
    fn kv(&self, nodes: &[usize], words: &[&str]) -> String {
        let servers: Vec<String> = nodes
            .iter()
            .map(|node| self.addresses[node - 1].to_string())
            .collect();
        let output = run(&[&["kv"], words, &["--server", &servers.join(",")]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {text}");
        text
    }

    /// The number in a field of a node's status.
    fn number(&self, node: usize, field: &str) -> u64 {
        let status = self.kv(&[node], &["status", "--json"]);
        let after = status.split_once(&format!("\"{field}\":")).unwrap().1;
        let digits = after.split_once([',', '}']).unwrap().0;
        digits.parse().unwrap()
    }

    /// Waits until `node` has applied what is committed at `other`.
    fn catch_up(&self, node: usize, other: usize) {
        let began = Instant::now();
        let committed = self.number(other, "committed");
        while self.number(node, "applied") < committed {
            assert!(
                began.elapsed() < PATIENCE,
                "{}",
                self.kv(&[node, other], &["status"])
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_node_with_a_damaged_journal_is_silent_and_then_catches_up() {
    let nodes = Nodes::new("kv-rejoin");
    let (first, _second, third) = (nodes.start(1), nodes.start(2), nodes.start(3));
    for value in ["1", "2", "3"] {
        assert_eq!(nodes.kv(&[1, 2, 3], &["put", "a", value]), "ok\n");
    }
    // The third node may have got these in one block, and then another, so the damage is not in the last one, which may be torn.
    nodes.catch_up(3, 1);
    assert_eq!(nodes.kv(&[1, 2, 3], &["put", "b", "1"]), "ok\n");
    nodes.catch_up(3, 1);
    drop(third);
    drop(first);
    let log = format!("{}/log", nodes.data(3));
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    // The log may have zeros after its end: the middle of what was written is what counts.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for byte in &mut bytes[middle.min(end / 2)..][..4] {
        *byte ^= 0x55;
    }
    fs::write(&log, bytes).unwrap();
    // Without a second node that has its journal there is no leader, so it stays silent.
    let third = nodes.start(3);
    let said = third.said().join("\n");
    assert!(said.contains("the journal is lost: "), "{said}");
    std::thread::sleep(Duration::from_secs(3));
    let status = nodes.kv(&[3], &["status"]);
    assert!(status.contains("term 0, leader none"), "{status}");
    assert!(
        status.contains("JOURNAL LOST: silent until a leader lets it rejoin"),
        "{status}"
    );
    let first = nodes.start(1);
    assert_eq!(nodes.kv(&[1, 2], &["put", "a", "4"]), "ok\n");
    nodes.catch_up(3, 2);
    let status = nodes.kv(&[3], &["status"]);
    assert!(!status.contains("JOURNAL LOST"), "{status}");
    // It is a full voter: with it, one of the others may be lost.
    drop(first);
    assert_eq!(nodes.kv(&[2, 3], &["put", "a", "5"]), "ok\n");
    assert_eq!(nodes.kv(&[3], &["get", "a"]), "5\n");
}

#[test]
fn a_single_node_with_a_damaged_journal_refuses_to_start() {
    let scratch = Scratch::new("kv-rejoin-single");
    let data = scratch.path("n1");
    let words = ["node", "kv", "--listen", "127.0.0.1:0", "--data", &data];
    let server = Server::start(&words);
    let address = server.address.to_string();
    for _ in 0..3 {
        let put = run(&["kv", "put", "a", "1", "--server", &address]);
        assert!(put.status.success());
    }
    drop(server);
    let log = format!("{data}/log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[40] ^= 1;
    fs::write(&log, bytes).unwrap();
    let output = run(&words);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{error}");
    assert!(
        error.contains("this cluster has 1: restore the folder from a copy"),
        "{error}"
    );
}
