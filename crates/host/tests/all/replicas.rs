//! Three replicas as three processes on one machine, killed by SIGKILL and started again from their folders. The machine is the
//! one that `seatrial-sim` runs under every fault of a disk (`crates/sim/tests/all/replica.rs`).

use crate::replica::{LEADER, NODES, Replica, add, list};
use crate::wire::{PATIENCE, PROTOCOL, open, receive, send};
use seatrial_host::{Cluster, HostLimits, PeerOptions, ServeOptions, serve};
use seatrial_machine::{DataFolder, NodeId, Rng};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The environment of a process: number of the node, ports of all, folder.
const VARIABLES: [&str; 3] = ["SEATRIAL_NODE", "SEATRIAL_PORTS", "SEATRIAL_DATA"];

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A node, in the process that [`Nodes::start`] has begun; as a test it does nothing.
#[test]
fn a_node_as_a_process() {
    let values = VARIABLES.map(|name| std::env::var(name).ok());
    let [Some(node), Some(ports), Some(data)] = values else {
        return;
    };
    let node = NodeId::server(node.parse().unwrap());
    let ports = ports.split(',').map(|port| at(port.parse().unwrap()));
    let mut addresses = NODES
        .into_iter()
        .zip(ports)
        .collect::<std::collections::BTreeMap<_, _>>();
    let listen = addresses.remove(&node).unwrap();
    // It ends with the test that began it, however that ends.
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let options = ServeOptions {
        listen,
        data: PathBuf::from(data),
        message_length_max: 1 << 20,
        limits: HostLimits::default(),
        protocol: PROTOCOL,
        http: None,
        tls: None,
        key: None,
        peers: PeerOptions {
            cluster: Some(Cluster {
                id: 1,
                node,
                addresses,
            }),
            ..PeerOptions::default()
        },
        clock: None,
    };
    let boot = |data: &DataFolder| Replica::boot(node, data, None);
    serve(&options, boot, |_| {}, std::future::pending()).unwrap();
}

/// The processes, their ports and their folders.
struct Nodes {
    folder: TempDir,
    ports: [u16; 3],
    processes: [Option<Child>; 3],
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for place in 0..3 {
            self.kill(place);
        }
    }
}

impl Nodes {
    fn new() -> Nodes {
        let folder = tempfile::tempdir().unwrap();
        let listeners = [(); 3].map(|()| TcpListener::bind(at(0)).unwrap());
        let mut nodes = Nodes {
            folder,
            ports: listeners.map(|it| it.local_addr().unwrap().port()),
            processes: [None, None, None],
        };
        for place in 0..3 {
            nodes.start(place);
        }
        nodes
    }

    fn data(&self, place: usize) -> PathBuf {
        self.folder.path().join(NODES[place].to_string())
    }

    fn start(&mut self, place: usize) {
        let ports = self.ports.map(|port| port.to_string()).join(",");
        let data = self.data(place).display().to_string();
        let values = [NODES[place].number().to_string(), ports, data];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["replicas::a_node_as_a_process", "--exact", "--nocapture"]);
        command.envs(VARIABLES.into_iter().zip(values));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.processes[place] = Some(command.spawn().unwrap());
    }

    /// SIGKILL.
    fn kill(&mut self, place: usize) {
        if let Some(mut process) = self.processes[place].take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Nothing, while the node is not there.
    fn connect(&self, place: usize) -> Option<TcpStream> {
        let stream = TcpStream::connect(at(self.ports[place])).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        open(&stream, None).ok()?;
        Some(stream)
    }

    /// Index, digest, checkpoint and numbers of a node.
    fn list(&self, place: usize) -> Option<Vec<u64>> {
        let stream = self.connect(place)?;
        send(&stream, &list());
        let answer = receive(&stream).ok()?;
        let (words, _) = answer[1..].as_chunks::<8>();
        Some(words.iter().map(|it| u64::from_le_bytes(*it)).collect())
    }

    /// Segments of a node's journal.
    fn segments(&self, place: usize) -> Vec<String> {
        let names = fs::read_dir(self.data(place)).unwrap();
        let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut segments: Vec<String> = names.filter(|it| it.starts_with("journal")).collect();
        segments.sort();
        segments
    }
}

/// A client: sends one number after another until the time `until`. Returns the next number, and the acknowledged ones.
fn add_numbers(nodes: &Nodes, from: u64, until: Instant) -> (u64, Vec<u64>) {
    let (mut number, mut answered) = (from, Vec::new());
    while Instant::now() < until {
        let Some(stream) = nodes.connect(0) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        while Instant::now() < until {
            send(&stream, &add(number));
            let is_answered = receive(&stream).is_ok();
            if is_answered {
                answered.push(number);
            }
            number += 1;
            if !is_answered {
                break;
            }
        }
    }
    (number, answered)
}

#[test]
fn three_processes_that_are_killed_lose_nothing_that_was_answered() {
    let mut nodes = Nodes::new();
    let mut rng = Rng::from_seed(7);
    let (mut next, mut answered) = (1, BTreeSet::new());
    for round in 0..12 {
        let until = Instant::now() + Duration::from_millis(250);
        let (after, more) = add_numbers(&nodes, next, until);
        next = after;
        answered.extend(more);
        // All of them, the leader, or any one; a follower stays away so long that it needs a checkpoint.
        let killed = match round % 4 {
            0 => vec![0, 1, 2],
            1 => vec![0],
            2 => vec![1 + rng.index(2)],
            _ => vec![rng.index(3)],
        };
        for place in &killed {
            nodes.kill(*place);
        }
        if round % 4 == 2 {
            let until = Instant::now() + Duration::from_millis(250);
            let (after, more) = add_numbers(&nodes, next, until);
            next = after;
            answered.extend(more);
        }
        for place in killed {
            nodes.start(place);
        }
    }
    let began = Instant::now();
    let lists = loop {
        let (after, more) = add_numbers(&nodes, next, Instant::now() + Duration::from_millis(50));
        next = after;
        answered.extend(more);
        let lists = [0, 1, 2].map(|place| nodes.list(place));
        if let [Some(one), Some(two), Some(three)] = lists
            && one[..2] == two[..2]
            && two[..2] == three[..2]
        {
            break [one, two, three];
        }
        assert!(began.elapsed() < PATIENCE, "they do not come together");
    };
    println!(
        "{} numbers answered, {} in all",
        answered.len(),
        lists[0][0]
    );
    assert!(answered.len() > 200, "{}", answered.len());
    for list in &lists {
        let numbers: BTreeSet<u64> = list[3..].iter().copied().collect();
        assert!(answered.is_subset(&numbers));
        assert_eq!(numbers.len() as u64, list[0]);
        // A checkpoint may be under way.
        assert!(
            list[2] > 0 && list[0] - list[2] < 64,
            "checkpoint {} of {}",
            list[2],
            list[0]
        );
    }
    // The space of the journal's beginning was given back.
    for place in 0..3 {
        let segments = nodes.segments(place);
        assert!(!segments.contains(&"journal".to_owned()), "{segments:?}");
        assert!(segments.len() <= 12, "{segments:?}");
        assert!(nodes.data(place).join("files/checkpoint").exists());
    }
    assert_eq!(LEADER, NODES[0]);
}
