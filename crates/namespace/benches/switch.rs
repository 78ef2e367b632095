//! A network of five nodes: time until it is ready, effect of a cut, round trips, and one TCP flow. `docs/measures` has results.
//!
//! Runs as root (netns) and as any user that may make user namespaces (userns).

use seatrial_machine::{Link, NodeId};
use seatrial_namespace::{NodeNetwork, NodeNetworkOptions, best_kind, enter};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const NODES: u32 = 5;
const PORT: u16 = 7_000;
/// Bytes of the flow.
const FLOW: usize = 1 << 30;

fn main() {
    let (kind, reasons) = best_kind();
    println!("network: {kind} {}", reasons.join("; "));
    if !kind.has_whole_addresses() {
        return;
    }
    enter(kind).expect("the trial succeeded");
    let began = Instant::now();
    let network = NodeNetwork::open(kind, NodeNetworkOptions::default()).expect("a switch");
    let nodes: Vec<NodeId> = (1..=NODES).map(NodeId::server).collect();
    for &node in &nodes {
        network.add_node(node).expect("a node");
    }
    println!("{NODES} nodes ready: {:?}", began.elapsed());
    let listeners = nodes.iter().map(|&node| {
        let space = network.node_space(node).expect("a node that was added");
        space
            .run(|| TcpListener::bind(("0.0.0.0", PORT)))
            .expect("a free port")
    });
    for listener in listeners {
        std::thread::spawn(move || serve(&listener));
    }
    cuts(&network, &nodes);
    round_trips(&network, nodes[0]);
    flow(&network, nodes[0], nodes[1]);
}

/// Sends back bytes until a connection sends a megabyte at once, then only swallows.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || -> io::Result<()> {
            let mut stream = stream;
            stream.set_nodelay(true)?;
            let mut buffer = vec![0; 256 * 1024];
            loop {
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    1 => stream.write_all(&buffer[..1])?,
                    _ => {}
                }
            }
        });
    }
}

/// Time of a call that cuts all links between all nodes; nothing passes after it returns.
fn cuts(network: &NodeNetwork, nodes: &[NodeId]) {
    let pairs = nodes
        .iter()
        .flat_map(|&from| nodes.iter().map(move |&to| Link { from, to }));
    let links: Vec<Link> = pairs.filter(|link| link.from != link.to).collect();
    let mut times: Vec<Duration> = (0..1_000)
        .map(|_| {
            let began = Instant::now();
            network.cut(&links);
            let time = began.elapsed();
            network.heal();
            time
        })
        .collect();
    times.sort();
    println!(
        "cut of {} links: median {:?}, longest {:?}",
        links.len(),
        times[500],
        times[999]
    );
}

fn round_trips(network: &NodeNetwork, node: NodeId) {
    let address = network
        .address(NodeId::client(0), node)
        .expect("an address");
    let mut stream = TcpStream::connect((address, PORT)).expect("a connection");
    stream.set_nodelay(true).expect("an option of sockets");
    let mut times: Vec<Duration> = (0..2_000)
        .map(|_| {
            let began = Instant::now();
            stream.write_all(&[1]).expect("a whole link");
            stream.read_exact(&mut [0]).expect("a whole link");
            began.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "round trip of a client: median {:?}, 99 % {:?}",
        times[1_000], times[1_980]
    );
}

fn flow(network: &NodeNetwork, from: NodeId, to: NodeId) {
    let address = SocketAddr::from((network.address(from, to).expect("an address"), PORT));
    let space = network.node_space(from).expect("a node that was added");
    let mut stream = space
        .run(|| TcpStream::connect(address))
        .expect("a connection");
    let piece = vec![7; 256 * 1024];
    let link = Link { from, to };
    let cpu = cpu_seconds();
    let began = Instant::now();
    for _ in 0..FLOW / piece.len() {
        stream.write_all(&piece).expect("a whole link");
    }
    while network.meter(&[link]).passed_bytes < FLOW as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let seconds = began.elapsed().as_secs_f64();
    let gigabits = FLOW as f64 * 8.0 / 1e9;
    let cpu = cpu_seconds() - cpu;
    println!(
        "one TCP flow: {:.2} Gbit/s; {:.2} Gbit per second of this process's CPU",
        gigabits / seconds,
        gigabits / cpu
    );
}

/// User and system time of this process: sender, switch and receiver.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}
