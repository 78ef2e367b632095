//! A network of their own for the nodes of one test.

use crate::address_plan::{self, BENCH};
use crate::enter::unshare_network;
use crate::link_meter::Meter;
use crate::netlink::{CableEnd, Netlink};
use crate::network_kind::NetworkKind;
use crate::node_space::NodeSpace;
use crate::packet_capture::PacketCapture;
use crate::packet_socket::PacketSocket;
use crate::switch::Switch;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use seatrial_machine::{Disturbance, Link, NodeId, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A network of their own for the nodes of one test.
///
/// ```text
///  bench's namespace          switch's namespace               node's namespace
///  clients, readiness         no addresses, no routes          processes of n1
///  seatrial0 10.0.0.254 ───── bench   [packet socket] ┐
///            10.128.c.254     n1      [packet socket] ┼─ thread "switch" of this process
///                             n2      [packet socket] ┘
///                             n1 ───────────────────────────── eth0 10.0.0.1
/// ```
///
/// Every endpoint has a cable (veth pair) to a namespace in which nothing but the switch reads them: what it does not forward
/// does not arrive. There is no ARP, since the switch knows all addresses, and only IPv4 to an endpoint is forwarded. Namespaces
/// have no names: each lives as long as a process in it or a descriptor of this process, so nothing is left when this process
/// dies, however it dies.
///
/// The kernel takes a connection for a node only if the node listens, and a cut loses packets instead of holding them: TCP sends
/// them again after 0.2 s, 0.4 s, … so connections need a moment after a cut has healed, as on any network.
#[derive(Clone, Debug)]
pub struct NodeNetwork {
    shared: Arc<NetworkShared>,
}

/// How to open a network.
#[derive(Clone, Debug, Default)]
pub struct NodeNetworkOptions {
    /// Seed of losses, jitter and order.
    pub seed: u64,
    /// The file for packets and its longest length in bytes; `None`: packets are not written.
    pub capture: Option<(PathBuf, u64)>,
    /// The file with the names of nodes, which they see as `/etc/hosts`; `None`: they see the machine's.
    pub hosts: Option<PathBuf>,
}

#[derive(Debug)]
struct NetworkShared {
    kind: NetworkKind,
    switch: Switch,
    /// The namespace of the switch's cable ends.
    switch_space: Namespace,
    /// Requests about the bench's own namespace.
    bench: Netlink,
    hosts: Option<PathBuf>,
    endpoints: Mutex<Endpoints>,
}

#[derive(Debug, Default)]
struct Endpoints {
    nodes: BTreeMap<NodeId, Arc<NodeSpace>>,
    clients: BTreeSet<NodeId>,
}

/// A network namespace, and requests about it.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) descriptor: OwnedFd,
    netlink: Netlink,
}

/// Index of the one cable of the bench and of each node; high, since some kernels fill new namespaces with tunnels.
const INDEX: u32 = 1_000;

/// Sets both ends of a cable up, and waits until it carries packets.
fn cable_up(ends: [(&Netlink, u32); 2]) -> io::Result<()> {
    for (netlink, index) in ends {
        netlink.cable_up(index)?;
    }
    for (netlink, index) in ends {
        netlink.until_operational(index)?;
    }
    Ok(())
}

impl NodeNetwork {
    /// Opens a network without nodes. The calling thread must be in the bench's namespace (see [`enter`](crate::enter())).
    pub fn open(kind: NetworkKind, options: NodeNetworkOptions) -> io::Result<NodeNetwork> {
        let bench = Netlink::open()?;
        let bench_space = File::open("/proc/thread-self/ns/net")?;
        let switch_space = Namespace::new()?;
        let here = CableEnd {
            name: "bench",
            index: INDEX,
            mac: switch_mac(BENCH),
        };
        let there = CableEnd {
            name: "seatrial0",
            index: INDEX,
            mac: address_plan::mac(BENCH),
        };
        switch_space
            .netlink
            .add_cable(here, there, bench_space.as_fd())?;
        cable_up([(&switch_space.netlink, INDEX), (&bench, INDEX)])?;
        bench.add_address(INDEX, BENCH, address_plan::PREFIX_LENGTH)?;
        let socket = switch_space.packet_socket(INDEX)?;
        let capture = match &options.capture {
            Some((path, limit)) => PacketCapture::create(path, *limit)?,
            None => PacketCapture::none(),
        };
        let rng = Rng::from_seed(options.seed).fork("switch");
        let network = NodeNetwork {
            shared: Arc::new(NetworkShared {
                kind,
                switch: Switch::start(socket, rng, capture)?,
                switch_space,
                bench,
                hosts: options.hosts,
                endpoints: Mutex::default(),
            }),
        };
        network.write_hosts(&network.endpoints())?;
        Ok(network)
    }

    /// The kind of this network.
    pub fn kind(&self) -> NetworkKind {
        self.shared.kind
    }

    /// Gives a node a namespace, an address and a cable. Does nothing if it has them.
    pub fn add_node(&self, node: NodeId) -> io::Result<()> {
        check_endpoint(node)?;
        let mut endpoints = self.endpoints();
        if endpoints.nodes.contains_key(&node) {
            return Ok(());
        }
        let shared = &self.shared;
        let space = Namespace::new()?;
        let address = address_plan::node_address(node);
        let name = node.to_string();
        let index = INDEX + node.number();
        let here = CableEnd {
            name: &name,
            index,
            mac: switch_mac(address),
        };
        let there = CableEnd {
            name: "eth0",
            index: INDEX,
            mac: address_plan::mac(address),
        };
        let switch_space = &shared.switch_space;
        switch_space
            .netlink
            .add_cable(here, there, space.descriptor.as_fd())?;
        cable_up([(&switch_space.netlink, index), (&space.netlink, INDEX)])?;
        space
            .netlink
            .add_address(INDEX, address, address_plan::PREFIX_LENGTH)?;
        let socket = switch_space.packet_socket(index)?;
        shared.switch.add_node(node, socket);
        let space = NodeSpace::new(&name, space.descriptor, shared.hosts.as_deref())?;
        endpoints.nodes.insert(node, Arc::new(space));
        self.write_hosts(&endpoints)
    }

    /// The namespaces in which a node's processes run; `None` if it was not added.
    pub fn node_space(&self, node: NodeId) -> Option<Arc<NodeSpace>> {
        self.endpoints().nodes.get(&node).cloned()
    }

    /// The address at which `from` reaches all ports of a node. The first call for a client gives the client its addresses.
    pub fn address(&self, from: NodeId, node: NodeId) -> io::Result<Ipv4Addr> {
        check_endpoint(from)?;
        check_endpoint(node)?;
        if !from.is_client() {
            return Ok(address_plan::node_address(node));
        }
        self.add_client(from)?;
        Ok(address_plan::alias(from, node))
    }

    /// The address from which a client connects to nodes' own addresses, for example after it was redirected. Traffic from other
    /// addresses of the bench belongs to no client, and faults do not affect it.
    pub fn source(&self, client: NodeId) -> io::Result<Ipv4Addr> {
        check_endpoint(client)?;
        self.add_client(client)?;
        Ok(address_plan::bound_address(client))
    }

    fn add_client(&self, client: NodeId) -> io::Result<()> {
        let mut endpoints = self.endpoints();
        if !endpoints.clients.insert(client) {
            return Ok(());
        }
        // The first address of a network is the source of connections into it.
        for address in [
            address_plan::client_address(client),
            address_plan::bound_address(client),
        ] {
            let prefix_length = address_plan::CLIENT_PREFIX_LENGTH;
            let bench = &self.shared.bench;
            bench.add_address(INDEX, address, prefix_length)?;
        }
        Ok(())
    }

    /// Cuts these links until [`NodeNetwork::heal`]: every packet is lost from the return of this call on.
    pub fn cut(&self, links: &[Link]) {
        self.shared.switch.cut(links);
    }

    /// Disturbs these links until [`NodeNetwork::calm`].
    pub fn disturb(&self, links: &[Link], how: Disturbance) {
        self.shared.switch.disturb(links, how);
    }

    /// Resets the TCP connections that use one of these links at both ends; returns their number.
    pub fn reset(&self, links: &[Link]) -> u64 {
        self.shared.switch.reset(links)
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        self.shared.switch.heal();
    }

    /// Ends all disturbances, and delivers delayed packets.
    pub fn calm(&self) {
        self.shared.switch.calm();
    }

    /// Traffic of these links since the network was opened, and the effects of faults on it.
    pub fn meter(&self, links: &[Link]) -> Meter {
        self.shared.switch.meter(links)
    }

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        self.shared
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the names of all nodes. In place: nodes that run see the same file.
    fn write_hosts(&self, endpoints: &Endpoints) -> io::Result<()> {
        let Some(path) = &self.shared.hosts else {
            return Ok(());
        };
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
        for node in endpoints.nodes.keys() {
            let _ = writeln!(text, "{} {node}", address_plan::node_address(*node));
        }
        fs::write(path, text)
    }
}

impl Namespace {
    /// A new network namespace whose loopback interface is up.
    fn new() -> io::Result<Namespace> {
        in_thread(|| {
            unshare_network()?;
            let netlink = Netlink::open()?;
            netlink.loopback_up()?;
            Ok(Namespace {
                descriptor: File::open(Path::new("/proc/thread-self/ns/net"))?.into(),
                netlink,
            })
        })
    }

    /// A packet socket of the interface with this index.
    fn packet_socket(&self, index: u32) -> io::Result<PacketSocket> {
        in_network(&self.descriptor, || PacketSocket::open(index))
    }
}

/// Runs `body` in a thread inside this network namespace.
pub(crate) fn in_network<T: Send>(
    namespace: &OwnedFd,
    body: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    in_thread(|| {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), network)?;
        body()
    })
}

/// Runs `body` in a thread of its own, whose namespace it may change.
fn in_thread<T: Send>(body: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, body)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread ended early")))
    })
}

/// The hardware address of the switch's end of a cable.
fn switch_mac(address: Ipv4Addr) -> [u8; 6] {
    let mut mac = address_plan::mac(address);
    mac[1] = 1;
    mac
}

fn check_endpoint(endpoint: NodeId) -> io::Result<()> {
    if address_plan::has_address(endpoint) {
        return Ok(());
    }
    let (nodes, clients) = (address_plan::NODES_MAX, address_plan::CLIENTS_MAX);
    let text = format!(
        "{endpoint} has no address: namespaces hold nodes n1 to n{nodes} and {clients} clients"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
