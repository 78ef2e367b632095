//! Links: what passes, what a fault does to it, and what the meter says.

use crate::with_network;
use seatrial_machine::{Disturbance, Link, NodeId};
use seatrial_namespace::NodeNetwork;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);
const C3: NodeId = NodeId::client(3);
const C4: NodeId = NodeId::client(4);
const PORT: u16 = 7_000;

const fn link(from: NodeId, to: NodeId) -> Link {
    Link { from, to }
}

/// Adds a node with a server that sends back what it gets, and first the address of its peer as a line.
fn add_echo(network: &NodeNetwork, node: NodeId) {
    network.add_node(node).unwrap();
    let space = network.node_space(node).unwrap();
    let listener = space.run(|| TcpListener::bind(("0.0.0.0", PORT))).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let peer = stream.peer_addr().unwrap().ip();
                let _ = writeln!(stream, "{peer}");
                let mut reader = stream.try_clone().unwrap();
                let _ = io::copy(&mut reader, &mut stream);
            });
        }
    });
}

/// How long a connection over a link that is cut is tried.
const SHORT: Duration = Duration::from_millis(300);

/// A connection whose server has said from where it sees it.
fn connect(address: Ipv4Addr) -> io::Result<(TcpStream, String)> {
    // A busy machine stands still for some 100 ms, and a SYN that was lost then is sent again after a second.
    connect_within(address, Duration::from_secs(5))
}

fn connect_within(address: Ipv4Addr, limit: Duration) -> io::Result<(TcpStream, String)> {
    let address = SocketAddr::from((address, PORT));
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_nodelay(true)?;
    let mut line = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok((stream, String::from_utf8_lossy(&line).trim().to_owned()))
}

fn say(stream: &mut TcpStream, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard)?;
    assert_eq!(heard, text.as_bytes());
    Ok(())
}

#[test]
fn clients_reach_nodes_from_addresses_of_their_own() {
    with_network(|network| {
        add_echo(&network, N1);
        let (mut stream, seen) = connect(network.address(C3, N1).unwrap()).unwrap();
        assert_eq!(seen, "10.128.3.254");
        say(&mut stream, &"0123456789".repeat(50_000)).unwrap();
        assert_eq!(
            connect(network.address(C4, N1).unwrap()).unwrap().1,
            "10.128.4.254"
        );
        let meter = network.meter(&[link(C3, N1)]);
        assert!(meter.passed_bytes > 500_000, "{meter:?}");
        let space = network.node_space(N1).unwrap();
        let own = network.address(N1, N1).unwrap();
        assert_eq!(space.run(|| connect(own)).unwrap().1, "10.0.0.1");
    });
}

#[test]
fn a_cut_takes_effect_at_once_and_on_one_link_only() {
    with_network(|network| {
        add_echo(&network, N1);
        add_echo(&network, N2);
        let to = |client, node| network.address(client, node).unwrap();
        let (mut stream, _) = connect(to(C3, N1)).unwrap();
        let space = network.node_space(N2).unwrap();
        let n1 = to(N2, N1);
        space.run(|| connect(n1)).unwrap();
        network.cut(&[link(C3, N1), link(N2, N1)]);
        assert!(connect_within(to(C3, N1), SHORT).is_err());
        assert!(space.run(|| connect_within(n1, SHORT)).is_err());
        connect(to(C4, N1)).unwrap();
        connect(to(C3, N2)).unwrap();
        let cut = network.meter(&[link(C3, N1)]);
        assert!(cut.held_connections >= 1 && cut.held_bytes >= 40, "{cut:?}");
        assert_eq!(network.meter(&[link(N1, C3)]).held_bytes, 0);
        stream.write_all(b"sent while cut").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        network.heal();
        let mut heard = [0; 14];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"sent while cut", "TCP sends it again");
        connect(to(C3, N1)).unwrap();
    });
}

/// Adds both nodes; a socket of each, at port 9,999.
fn sockets(network: &NodeNetwork) -> [UdpSocket; 2] {
    for node in [N1, N2] {
        network.add_node(node).unwrap();
    }
    [N1, N2].map(|node| {
        let space = network.node_space(node).unwrap();
        space.run(|| UdpSocket::bind(("0.0.0.0", 9_999))).unwrap()
    })
}

/// Lengths of the packets that arrive: of this number, which may take long on a busy machine, and of what comes soon after them.
fn arrive(socket: &UdpSocket, count: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    loop {
        let limit = if lengths.len() < count {
            Duration::from_secs(10)
        } else {
            Duration::from_millis(200)
        };
        socket.set_read_timeout(Some(limit)).unwrap();
        match socket.recv(&mut [0; 16]) {
            Ok(length) => lengths.push(length),
            Err(_) => return lengths,
        }
    }
}

#[test]
fn every_port_and_protocol_is_cut() {
    with_network(|network| {
        let [sender, receiver] = sockets(&network);
        let target = (network.address(N1, N2).unwrap(), 9_999);
        sender.send_to(b"one", target).unwrap();
        assert_eq!(arrive(&receiver, 1), [3]);
        network.cut(&[link(N1, N2)]);
        sender.send_to(b"two", target).unwrap();
        assert_eq!(arrive(&receiver, 0), []);
        assert!(network.meter(&[link(N1, N2)]).held_bytes >= 31);
    });
}

#[test]
fn a_slow_link_delays_and_calm_ends_the_wait() {
    with_network(|network| {
        add_echo(&network, N1);
        let (mut stream, _) = connect(network.address(C3, N1).unwrap()).unwrap();
        let slow = |delay: u64| Disturbance::Slow {
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(5),
        };
        network.disturb(&[link(C3, N1)], slow(40));
        let began = Instant::now();
        say(&mut stream, "hello").unwrap();
        assert!(began.elapsed() >= Duration::from_millis(35));
        network.disturb(&[link(C3, N1)], slow(60_000));
        stream.write_all(b"late").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        network.calm();
        stream.read_exact(&mut [0; 4]).unwrap();
        assert!(network.meter(&[link(C3, N1)]).disturbed_bytes > 80);
    });
}

#[test]
fn transfers_survive_loss_and_disorder() {
    with_network(|network| {
        add_echo(&network, N1);
        let (mut stream, _) = connect(network.address(C3, N1).unwrap()).unwrap();
        let both = [link(C3, N1), link(N1, C3)];
        network.disturb(&both, Disturbance::Lose { percent: 3 });
        let reorder = Disturbance::Reorder {
            percent: 10,
            delay: Duration::from_millis(2),
        };
        network.disturb(&both, reorder);
        say(&mut stream, &"abcdefghij".repeat(20_000)).unwrap();
    });
}

/// A counter of the kernel in this node's network, such as `Udp InCsumErrors`.
fn counter(network: &NodeNetwork, node: NodeId, protocol: &str, name: &str) -> u64 {
    let space = network.node_space(node).unwrap();
    let text = space.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.unwrap();
    let prefix = format!("{protocol}: ");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|found| found == name).unwrap();
    numbers.split(' ').nth(at).unwrap().parse().unwrap()
}

#[test]
fn duplicates_arrive_twice_and_damaged_packets_not_at_all() {
    with_network(|network| {
        let [sender, receiver] = sockets(&network);
        let target = (network.address(N1, N2).unwrap(), 9_999);
        let links = [link(N1, N2)];
        network.disturb(&links, Disturbance::Duplicate { percent: 100 });
        sender.send_to(b"one", target).unwrap();
        assert_eq!(arrive(&receiver, 2), [3, 3]);
        network.disturb(&links, Disturbance::Corrupt { percent: 100 });
        sender.send_to(b"two", target).unwrap();
        let dropped = || counter(&network, N2, "Udp", "InCsumErrors");
        let began = Instant::now();
        while dropped() < 2 && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(arrive(&receiver, 0), []);
        assert_eq!(dropped(), 2, "both copies");
        let meter = network.meter(&links);
        assert_eq!((meter.duplicated_packets, meter.corrupted_packets), (2, 1));
        network.calm();
        sender.send_to(b"three", target).unwrap();
        assert_eq!(arrive(&receiver, 1), [5]);
    });
}

#[test]
fn connections_survive_duplicates_and_damage() {
    with_network(|network| {
        add_echo(&network, N1);
        let (mut stream, _) = connect(network.address(C3, N1).unwrap()).unwrap();
        let both = [link(C3, N1), link(N1, C3)];
        network.disturb(&both, Disturbance::Duplicate { percent: 20 });
        network.disturb(&both, Disturbance::Corrupt { percent: 5 });
        say(&mut stream, &"abcdefghij".repeat(20_000)).unwrap();
        let meter = network.meter(&both);
        assert!(
            meter.duplicated_packets > 0 && meter.corrupted_packets > 0,
            "{meter:?}"
        );
        assert!(counter(&network, N1, "Tcp", "InCsumErrors") > 0);
    });
}

#[test]
fn a_reset_breaks_both_ends_of_idle_and_of_busy_connections() {
    with_network(|network| {
        add_echo(&network, N1);
        let address = network.address(C3, N1).unwrap();
        let (mut idle, _) = connect(address).unwrap();
        let (mut busy, _) = connect(address).unwrap();
        let (mut other, _) = connect(network.address(C4, N1).unwrap()).unwrap();
        say(&mut busy, "hello").unwrap();
        std::thread::sleep(Duration::from_millis(100)); // for acknowledgements that wait
        assert_eq!(network.reset(&[link(N1, C3)]), 2);
        for stream in [&mut idle, &mut busy] {
            let error = stream.read_exact(&mut [0; 1]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        assert_eq!(network.meter(&[link(C3, N1)]).reset_connections, 2);
        assert_eq!(network.reset(&[link(N1, C3)]), 0, "they are broken already");
        say(&mut other, "still").unwrap();
        connect(address).unwrap();
    });
}

#[test]
fn endpoints_without_an_address_are_errors() {
    with_network(|network| {
        let error = network.add_node(NodeId::server(251)).unwrap_err();
        assert!(error.to_string().contains("n251"), "{error}");
        assert!(network.address(NodeId::client(40_000), N1).is_err());
    });
}
