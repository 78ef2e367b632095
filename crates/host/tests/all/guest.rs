//! Local callers of a machine, and guests, which use nodes without being one.

use crate::wire::{PATIENCE, PROTOCOL};
use seatrial_host::{
    Booted, Cluster, GuestOptions, HostCounts, HostLimits, HostMetrics, ListenOptions,
    LocalCallers, PeerOptions, SecretKey, ServeOptions, serve_guest, serve_machine,
    serve_with_callers,
};
use seatrial_machine::{Input, LogName, Machine, NodeId, Output, Ticket, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Instant;
use tokio::sync::{mpsc as async_mpsc, oneshot};

/// Sends every message back, its length first.
struct Echo;

impl Machine for Echo {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Message { from, bytes } => {
                assert!(from.is_client(), "{from} is a guest");
                let length = (bytes.len() as u64).to_le_bytes();
                let message = [&length, &bytes[..]].concat();
                out.push(Output::Send { to: from, message });
            }
            Input::Request(ticket, ()) => out.push(Output::Reply(ticket, ())),
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

/// Asks a node on behalf of a caller; replies with the node's reply. An empty request closes.
#[derive(Default)]
struct Asker {
    /// Requests of a node, which replies in order.
    asked: BTreeMap<NodeId, Vec<Ticket>>,
}

impl Machine for Asker {
    type Request = (NodeId, Vec<u8>);
    type Reply = Vec<u8>;

    fn turn(&mut self, _: Time, input: Input<Self::Request>, out: &mut Vec<Output<Vec<u8>>>) {
        match input {
            Input::Request(ticket, (_, bytes)) if bytes.is_empty() => {
                out.push(Output::Reply(ticket, bytes));
            }
            Input::Request(ticket, (to, message)) => {
                self.asked.entry(to).or_default().push(ticket);
                out.push(Output::Send { to, message });
            }
            Input::Message { from, bytes } => {
                let ticket = self.asked.get_mut(&from).unwrap().remove(0);
                out.push(Output::Reply(ticket, bytes));
            }
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

/// A server on a thread of its own.
struct GuestServer {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl GuestServer {
    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn echo(node: NodeId, key: Option<&str>) -> (SocketAddr, GuestServer) {
    let options = ListenOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        message_length_max: 8 << 20,
        limits: HostLimits::default(),
        protocol: PROTOCOL,
        http: None,
        tls: None,
        key: key.map(|it| SecretKey::new(it.as_bytes()).unwrap()),
        peers: peers(5, node, BTreeMap::new(), HostMetrics::default()),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, address) = mpsc::channel();
    let thread = thread::spawn(move || {
        let ready = move |address| ready.send(address).unwrap();
        serve_machine(options, Echo, (), ready, async {
            let _ = stopped.await;
        })
        .unwrap();
    });
    (
        address.recv_timeout(PATIENCE).unwrap(),
        GuestServer { stop, thread },
    )
}

fn peers(
    id: u64,
    node: NodeId,
    addresses: BTreeMap<NodeId, SocketAddr>,
    metrics: HostMetrics,
) -> PeerOptions {
    PeerOptions {
        cluster: Some(Cluster {
            id,
            node,
            addresses,
        }),
        metrics,
        ..PeerOptions::default()
    }
}

type Requests = async_mpsc::Sender<(Ticket, (NodeId, Vec<u8>))>;
type Replies = mpsc::Receiver<(Ticket, Vec<u8>)>;

fn guest(
    nodes: BTreeMap<NodeId, SocketAddr>,
    cluster: u64,
    key: Option<&str>,
) -> (Requests, Replies, HostMetrics, GuestServer) {
    let metrics = HostMetrics::default();
    let options = GuestOptions {
        message_length_max: 8 << 20,
        protocol: PROTOCOL,
        http: None,
        tls: None,
        key: key.map(|it| SecretKey::new(it.as_bytes()).unwrap()),
        peers: peers(cluster, Cluster::GUEST, nodes, metrics.clone()),
    };
    let (requests, receiver) = async_mpsc::channel(16);
    let (sender, replies) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        let callers = LocalCallers {
            requests: receiver,
            reply: Box::new(move |ticket, reply| {
                let _ = sender.send((ticket, reply)); // the test has ended
            }),
        };
        let closing = (Cluster::GUEST, Vec::new());
        serve_guest(options, Asker::default(), closing, callers, || (), async {
            let _ = stopped.await;
        })
        .unwrap();
    });
    (requests, replies, metrics, GuestServer { stop, thread })
}

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);

#[test]
fn guests_get_the_replies_of_nodes_that_do_not_know_them() {
    const KEY: Option<&str> = Some("a key of thirty-two bytes or more");
    let (first, one) = echo(N1, KEY);
    let (second, two) = echo(N2, KEY);
    let nodes = BTreeMap::from([(N1, first), (N2, second)]);
    let guests = [(); 2].map(|()| guest(nodes.clone(), 5, KEY));
    for (requests, ..) in &guests {
        for number in 0..200_u64 {
            let to = if number % 3 == 0 { N2 } else { N1 };
            let bytes = vec![number as u8; 1 + number as usize * 1_000];
            requests
                .blocking_send((Ticket(number), (to, bytes)))
                .unwrap();
        }
    }
    for (_, replies, metrics, _) in &guests {
        let mut seen = BTreeSet::new();
        while seen.len() < 200 {
            let (Ticket(number), bytes) = replies.recv_timeout(PATIENCE).unwrap();
            assert_eq!(bytes.len(), 8 + 1 + number as usize * 1_000);
            assert!(bytes[8..].iter().all(|&byte| byte == number as u8));
            assert!(seen.insert(number), "{number} twice");
        }
        assert_eq!(metrics.counts().peers[&N1].received, 133);
    }
    for (.., running) in guests {
        running.end();
    }
    one.end();
    two.end();
}

#[test]
fn a_guest_of_another_system_is_refused() {
    let (address, node) = echo(N1, None);
    for (number, cluster) in [(N1, 6), (N2, 5)] {
        let (requests, replies, metrics, running) =
            guest(BTreeMap::from([(number, address)]), cluster, None);
        requests
            .blocking_send((Ticket(1), (number, b"x".to_vec())))
            .unwrap();
        let begin = Instant::now();
        let refused = |counts: HostCounts| counts.peers.get(&number)?.last_error.clone();
        while refused(metrics.counts()).is_none() {
            assert!(begin.elapsed() < PATIENCE);
            thread::yield_now();
        }
        assert!(replies.try_recv().is_err());
        running.end();
    }
    node.end();
}

/// Appends what a caller gives it and replies with the number of bytes when they are durable.
#[derive(Default)]
struct Journal {
    length: u64,
    waiting: BTreeMap<Ticket, u64>,
}

impl Machine for Journal {
    type Request = Vec<u8>;
    type Reply = u64;

    fn turn(&mut self, _: Time, input: Input<Vec<u8>>, out: &mut Vec<Output<u64>>) {
        match input {
            Input::Request(ticket, bytes) => {
                self.length += bytes.len() as u64;
                self.waiting.insert(ticket, self.length);
                out.push(Output::Append {
                    log: LogName::MAIN,
                    bytes,
                    ticket,
                });
            }
            Input::Appended(ticket) => {
                let length = self.waiting.remove(&ticket).unwrap();
                out.push(Output::Reply(ticket, length));
            }
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

#[test]
fn local_callers_use_a_machine_with_a_log() {
    let scratch = tempfile::tempdir().unwrap();
    let options = ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: scratch.path().to_owned(),
        message_length_max: 1_000,
        limits: HostLimits::default(),
        protocol: PROTOCOL,
        http: None,
        tls: None,
        key: None,
        peers: PeerOptions::default(),
        clock: None,
    };
    let (requests, receiver) = async_mpsc::channel(4);
    let (sender, replies) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        let callers = LocalCallers {
            requests: receiver,
            reply: Box::new(move |ticket, reply| sender.send((ticket, reply)).unwrap()),
        };
        let boot = |_: &_| Ok(Booted::with_log(Journal::default(), 0));
        let stop = async {
            let _ = stopped.await;
        };
        serve_with_callers(&options, boot, callers, |_| (), stop).unwrap();
    });
    for number in 1..=100 {
        requests
            .blocking_send((Ticket(number), b"ab".to_vec()))
            .unwrap();
    }
    for number in 1..=100 {
        let reply = replies.recv_timeout(PATIENCE).unwrap();
        assert_eq!(reply, (Ticket(number), 2 * number));
    }
    drop(requests); // the server continues without callers
    stop.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(
        std::fs::metadata(scratch.path().join("log")).unwrap().len(),
        200
    );
}
