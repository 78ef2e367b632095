//! Nodes that talk to each other by their ids, on real sockets.

use crate::wire::{PATIENCE, PROTOCOL, open, receive, send};
use seatrial_host::{
    Cluster, HostCounts, HostError, HostLimits, HostMetrics, ListenOptions, PeerLimits,
    PeerOptions, SecretKey, serve_machine,
};
use seatrial_machine::{Input, Machine, NodeId, Output, Time};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);
const N3: NodeId = NodeId::server(3);
const N9: NodeId = NodeId::server(9);

/// Passes on what a client sends: the first byte is a node, the rest is for it. `L` instead makes the client a listener,
/// which is sent what comes from nodes, the sender's number first; `@`, a node and a port say where a node is, port 0
/// nowhere; `*` and a node: a message for it that is longer than messages may be.
#[derive(Default)]
struct Relay {
    listeners: Vec<NodeId>,
}

impl Machine for Relay {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        let (from, bytes) = match input {
            Input::Message { from, bytes } => (from, bytes),
            Input::Request(ticket, ()) => {
                out.push(Output::Reply(ticket, ()));
                return;
            }
            _ => return,
        };
        let node = |byte: u8| NodeId::server(u32::from(byte));
        match *bytes {
            _ if !from.is_client() => {
                let message = [&[from.number() as u8], &bytes[..]].concat();
                let all = self.listeners.iter();
                out.extend(all.map(|&to| Output::Send {
                    to,
                    message: message.clone(),
                }));
            }
            [b'L'] => {
                out.push(Output::Admit(from));
                self.listeners.push(from);
                out.push(Output::Send {
                    to: from,
                    message: b"L".to_vec(),
                });
            }
            [b'@', to, low, high] => {
                let port = u16::from_le_bytes([low, high]);
                out.push(Output::Address {
                    node: node(to),
                    address: (port > 0).then(|| SocketAddr::from(([127, 0, 0, 1], port))),
                });
            }
            [b'*', to] => out.push(Output::Send {
                to: node(to),
                message: vec![0; LENGTH_MAX + 1],
            }),
            [to, ..] => out.push(Output::Send {
                to: node(to),
                message: bytes[1..].to_vec(),
            }),
            [] => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

/// The longest message.
const LENGTH_MAX: usize = 1 << 20;

/// Addresses that are free now.
fn addresses<const N: usize>() -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|it| it.local_addr().unwrap())
}

/// A node on a thread of its own.
struct PeerNode {
    address: SocketAddr,
    metrics: HostMetrics,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

struct Setup {
    cluster: Cluster,
    listen: SocketAddr,
    limits: PeerLimits,
    key: Option<SecretKey>,
}

/// Node `node` of those at `all`, n1 first.
fn setup(node: NodeId, all: &[SocketAddr]) -> Setup {
    let nodes = (1..).map(NodeId::server).zip(all.iter().copied());
    let nodes: BTreeMap<NodeId, SocketAddr> = nodes.collect();
    Setup {
        listen: nodes[&node],
        cluster: Cluster {
            id: 77,
            node,
            addresses: nodes,
        },
        limits: PeerLimits::default(),
        key: None,
    }
}

impl Setup {
    fn options(self, metrics: HostMetrics) -> ListenOptions {
        ListenOptions {
            listen: self.listen,
            message_length_max: LENGTH_MAX,
            limits: HostLimits::default(),
            protocol: PROTOCOL,
            http: None,
            tls: None,
            key: self.key,
            peers: PeerOptions {
                cluster: Some(self.cluster),
                limits: self.limits,
                metrics,
            },
        }
    }

    /// Serves on this thread until the node ends by itself.
    fn serve(self) -> Result<(), HostError> {
        let options = self.options(HostMetrics::default());
        serve_machine(
            options,
            Relay::default(),
            (),
            |_| (),
            std::future::pending(),
        )
    }

    fn start(self) -> PeerNode {
        let metrics = HostMetrics::default();
        let options = self.options(metrics.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = mpsc::channel();
        let thread = thread::spawn(move || {
            let ready = move |address| ready.send(address).unwrap();
            let stopped = async {
                let _ = stopped.await; // a test that failed drops the other end
            };
            serve_machine(options, Relay::default(), (), ready, stopped).unwrap();
        });
        let address = address.recv_timeout(PATIENCE).unwrap();
        PeerNode {
            address,
            metrics,
            stop,
            thread,
        }
    }
}

impl PeerNode {
    fn connect(&self, key: Option<SecretKey>) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        open(&stream, key).unwrap();
        stream
    }

    /// A client that hears what nodes send to this one.
    fn listener(&self) -> TcpStream {
        let stream = self.connect(None);
        send(&stream, b"L");
        assert_eq!(receive(&stream).unwrap(), b"L");
        stream
    }

    fn send(&self, to: NodeId, text: &[u8]) {
        let message = [&[to.number() as u8], text].concat();
        send(&self.connect(None), &message);
    }

    /// Waits until the numbers are as they should be.
    fn until(&self, what: &str, is_so: impl Fn(&HostCounts) -> bool) -> HostCounts {
        let began = Instant::now();
        loop {
            let counts = self.metrics.counts();
            if is_so(&counts) {
                return counts;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {counts:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn stop(self) {
        let _ = self.stop.send(());
        self.thread.join().unwrap();
    }
}

#[test]
fn messages_go_to_nodes_by_id_in_any_order_of_start() {
    let all = addresses::<3>();
    let n1 = setup(N1, &all).start();
    let heard = n1.listener();
    // n2 does not listen yet; the message is queued until it does.
    n1.send(N2, b"early");
    n1.until("it waits", |it| it.peers[&N2].queued_bytes == 5);
    let n2 = setup(N2, &all).start();
    let heard_2 = n2.listener();
    n1.send(N2, b"later");
    let mut texts = vec![receive(&heard_2).unwrap()];
    while texts.last().is_none_or(|it| it != b"\x01later") {
        texts.push(receive(&heard_2).unwrap());
    }
    // The first may have come before there was a listener.
    assert!(texts.len() == 1 || texts[0] == b"\x01early");
    let n3 = setup(N3, &all).start();
    for (node, text) in [(&n2, b"from 2"), (&n3, b"from 3"), (&n1, b"from 1")] {
        node.send(N1, text);
        let (number, heard) = (text[5] - b'0', receive(&heard).unwrap());
        assert_eq!((heard[0], &heard[1..]), (number, &text[..]));
    }
    n1.send(N9, b"unknown");
    let counts = n1.until("counted", |it| it.unknown_node == 1);
    assert!(counts.peers[&N2].is_connected);
    assert_eq!((counts.peers[&N2].sent, counts.peers[&N3].received), (2, 1));
    let text = counts.to_string();
    assert!(
        text.contains("n2 connected: 2 sent, 1 received, 0 dropped"),
        "{text}"
    );
    assert!(text.contains("1 for unknown nodes"), "{text}");
    for node in [n1, n2, n3] {
        node.stop();
    }
}

#[test]
fn a_restarted_node_is_dialled_again_and_lost_messages_are_counted() {
    let all = addresses::<2>();
    let mut first = setup(N1, &all);
    first.limits.queue_bytes_max = 1_000;
    first.limits.message_age_max = Duration::from_millis(300);
    let n1 = first.start();
    for life in 1..=3 {
        let n2 = setup(N2, &all).start();
        n1.until("connected", |it| {
            it.peers[&N2].is_connected && it.peers[&N2].connections == life
        });
        let heard = n2.listener();
        n1.send(N2, b"again");
        assert_eq!(receive(&heard).unwrap(), b"\x01again");
        n2.stop();
        n1.until("gone", |it| !it.peers[&N2].is_connected);
        let before = n1.metrics.counts().peers[&N2].clone();
        for _ in 0..5 {
            n1.send(N2, &[7; 400]);
        }
        let counts = n1.until("full", |it| {
            it.peers[&N2].dropped_full == before.dropped_full + 3
        });
        assert_eq!(counts.peers[&N2].queued_bytes, 800);
        assert!(counts.peers[&N2].last_error.is_some());
        thread::sleep(Duration::from_millis(400));
    }
    let n2 = setup(N2, &all).start();
    let counts = n1.until("old ones are dropped", |it| it.peers[&N2].dropped_old == 6);
    let peer = &counts.peers[&N2];
    assert_eq!((peer.sent, peer.dropped_full, peer.queued_bytes), (3, 9, 0));
    n1.stop();
    n2.stop();
}

#[test]
fn nodes_of_another_system_or_another_name_or_without_the_key_are_refused() {
    let key = |text: &[u8]| SecretKey::new(text);
    let refused = |change: fn(&mut Setup), reason: &str| {
        let all = addresses::<2>();
        let mut first = setup(N1, &all);
        first.key = key(b"a key that both of them know");
        let mut second = setup(N2, &all);
        second.key = first.key.clone();
        change(&mut second);
        let (n1, n2) = (first.start(), second.start());
        let error = |it: &HostCounts| it.peers[&N2].last_error.clone().unwrap_or_default();
        n1.until(reason, |it| error(it).contains(reason));
        assert!(!n1.metrics.counts().peers[&N2].is_connected);
        assert_eq!(n1.metrics.counts().peers[&N2].connections, 0);
        n1.stop();
        n2.stop();
    };
    let foreign = "it does not accept this node as a member of its system";
    refused(|it| it.cluster.id = 78, foreign);
    refused(|it| it.cluster.node = N3, foreign);
    refused(
        |it| it.cluster.addresses.retain(|node, _| *node != N1),
        foreign,
    );
    refused(
        |it| it.key = SecretKey::new(b"another key that no node knows"),
        "the key is not that",
    );
}

#[test]
fn a_client_that_says_it_is_a_node_is_none() {
    let all = addresses::<2>();
    let n1 = setup(N1, &all).start();
    let heard = n1.listener();
    // Greetings of n2 for another system, of an unknown node, of no version: the connection ends.
    let mut greeting = [0; 32];
    greeting[..8].copy_from_slice(b"seatpeer");
    (greeting[8], greeting[12], greeting[16], greeting[24]) = (1, 2, 1, 77);
    for (place, value) in [(24, 1), (12, 7), (8, 9), (16, 2)] {
        let mut wrong = greeting;
        wrong[place] = value;
        let stream = n1.connect(None);
        send(&stream, &wrong);
        assert!(receive(&stream).is_err(), "byte {place}");
    }
    // The right one is answered, and the newest connection is the node's.
    let [one, two] = [(); 2].map(|()| {
        let stream = n1.connect(None);
        send(&stream, &greeting);
        assert_eq!(receive(&stream).unwrap()[9], 1);
        stream
    });
    assert!(receive(&one).is_err());
    send(&two, b"hello");
    assert_eq!(receive(&heard).unwrap(), b"\x02hello");
    assert_eq!(n1.metrics.counts().peers[&N2].received, 1);
    n1.stop();
}

#[test]
fn a_machine_may_say_where_nodes_are() {
    let all = addresses::<2>();
    let mut first = setup(N1, &all);
    first.cluster.addresses.remove(&N2);
    let n1 = first.start();
    let n2 = setup(N2, &all).start();
    let heard = n2.listener();
    n1.send(N2, b"lost");
    n1.until("unknown", |it| it.unknown_node == 1);
    let is_at = |port: u16| {
        let [low, high] = port.to_le_bytes();
        send(&n1.connect(None), &[b'@', 2, low, high]);
    };
    is_at(all[1].port());
    n1.until("connected", |it| {
        it.peers.get(&N2).is_some_and(|it| it.is_connected)
    });
    n1.send(N2, b"found");
    assert_eq!(receive(&heard).unwrap(), b"\x01found");
    is_at(0);
    n2.until("gone", |it| !it.peers[&N1].is_connected);
    n1.send(N2, b"lost again");
    n1.until("unknown again", |it| it.unknown_node == 2);
    n1.stop();
    n2.stop();
}

#[test]
fn a_message_that_is_too_long_costs_no_other_and_no_connection() {
    let all = addresses::<2>();
    let (n1, n2) = (setup(N1, &all).start(), setup(N2, &all).start());
    let heard = n2.listener();
    n1.send(N2, b"before");
    assert_eq!(receive(&heard).unwrap(), b"\x01before");
    send(&n1.connect(None), b"*\x02");
    n1.until("it is dropped", |it| it.peers[&N2].dropped_long == 1);
    n1.send(N2, b"after");
    assert_eq!(receive(&heard).unwrap(), b"\x01after");
    let counts = n1.metrics.counts();
    assert_eq!(
        (counts.peers[&N2].connections, counts.peers[&N2].sent),
        (1, 2)
    );
    n1.stop();
    n2.stop();
}

#[test]
fn a_message_to_itself_comes_back_and_long_ones_pass() {
    let all = addresses::<2>();
    let (n1, n2) = (setup(N1, &all).start(), setup(N2, &all).start());
    let heard = n1.listener();
    n1.send(N1, b"me");
    assert_eq!(receive(&heard).unwrap(), b"\x01me");
    let heard = n2.listener();
    let client = n1.connect(None);
    send(&client, b"L");
    assert_eq!(receive(&client).unwrap(), b"L");
    for number in 0..20_u8 {
        send(&client, &[&[2], &vec![number; 500_000][..]].concat());
    }
    for number in 0..20 {
        let message = receive(&heard).unwrap();
        assert_eq!(
            (message.len(), message[0], message[1]),
            (500_001, 1, number)
        );
    }
    n1.stop();
    n2.stop();
}

/// A greeting of n2 to n1, of a process with this number.
fn greeting_of(process: u8) -> [u8; 32] {
    let mut greeting = [0; 32];
    greeting[..8].copy_from_slice(b"seatpeer");
    (greeting[8], greeting[12], greeting[16], greeting[24]) = (1, 2, 1, 77);
    greeting[20] = process;
    greeting
}

#[test]
fn a_second_process_of_a_node_is_refused_while_the_first_one_answers() {
    let all = addresses::<2>();
    let mut setup = setup(N1, &all);
    setup.limits.twin_patience = Duration::from_secs(5);
    let n1 = setup.start();
    let heard = n1.listener();
    let greet = |process| {
        let stream = n1.connect(None);
        send(&stream, &greeting_of(process));
        let kind = receive(&stream).unwrap()[9];
        (stream, kind)
    };
    let (first, kind) = greet(5);
    assert_eq!(kind, 1);
    // The same process again: its earlier connection is over.
    let (again, kind) = greet(5);
    assert_eq!(kind, 1);
    assert!(receive(&first).is_err());
    for _ in 0..3 {
        let (second, kind) = greet(6);
        assert_eq!(kind, 2);
        assert!(receive(&second).is_err());
        let probe = receive(&again).unwrap();
        assert_eq!((probe.len(), probe[9]), (32, 3));
        let mut alive = greeting_of(5);
        alive[9] = 4;
        send(&again, &alive);
        send(&again, b"hello");
        // The reply to the probe is not for the machine.
        assert_eq!(receive(&heard).unwrap(), b"\x02hello");
    }
    // The first process answers no more: after a second the other one has the number.
    assert_eq!(greet(6).1, 2);
    let began = Instant::now();
    assert_eq!(greet(6).1, 2);
    let (second, _) = loop {
        let (stream, kind) = greet(6);
        if kind == 1 {
            break (stream, kind);
        }
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    };
    assert!(began.elapsed() > Duration::from_millis(900));
    send(&second, b"me");
    assert_eq!(receive(&heard).unwrap(), b"\x02me");
    n1.stop();
}

#[test]
fn a_second_process_of_a_node_ends_with_the_reason() {
    let all = addresses::<3>();
    let n1 = setup(N1, &all[..2]).start();
    let n2 = setup(N2, &all[..2]).start();
    let heard = n1.listener();
    n2.until("connected", |it| {
        it.peers.get(&N1).is_some_and(|it| it.is_connected)
    });
    let mut twin = setup(N2, &all[..2]);
    twin.listen = all[2];
    twin.limits.twin_patience = Duration::from_secs(2);
    let error = twin.serve().unwrap_err().to_string();
    assert!(
        error.starts_with("another process runs as n2 and is connected to n1 at "),
        "{error}"
    );
    // The first one is still connected.
    n2.send(N1, b"first");
    assert_eq!(receive(&heard).unwrap(), b"\x02first");
    n1.stop();
    n2.stop();
}
