//! The network of a test: one userspace TCP proxy per pair of endpoints, or a switch between namespaces.

mod mesh_route;
mod mesh_wire;
mod pump;

use mesh_route::Route;
use mesh_wire::Wire;
use seatrial_machine::{Disturbance, Link, NodeId};
use seatrial_namespace::{NetworkKind, NodeNetwork, NodeSpace};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::runtime::Handle;

pub use seatrial_namespace::Meter;

/// The network of a test. Its faults and meters are the same for both kinds of networks:
///
/// - `local`: every connection runs through a proxy of the mesh. The rest of this comment is about proxies.
/// - `userns`, `netns`: endpoints have addresses of their own, and a switch decides about every packet ([`NodeNetwork`]).
///   A cut drops packets instead of holding them, a lossy link loses them, a reset is sent by the switch to both ends; the
///   kernel accepts connections only for nodes that listen.
///
/// A *route* is a listener on 127.0.0.1 for one ordered pair (endpoint that connects, node that listens); connections to it
/// are forwarded to the node. A *link* is one direction between two endpoints, whichever of them opened the connection: the
/// mesh keeps one state per link, and the routes of both orders obey it.
///
/// - A *cut* link holds everything that arrives, as a network that drops packets between hosts that retransmit: nothing is lost,
///   established connections stall, new ones are not forwarded, ends and resets are held too. A sender blocks once 64 KiB wait
///   in the proxy and the kernel's buffers are full. A connection that is opened and abandoned while the link is cut never
///   reaches the node.
/// - A *slow* link delays everything, in order.
/// - A *lossy* link retransmits packets, as TCP does: later packets of the connection wait, 200 ms for the first loss, twice as
///   long for each further one.
/// - A *reordering* link delays some packets. TCP restores their order, so later packets of the same connection wait;
///   connections overtake each other.
/// - A *throttled* link carries a limited number of bytes per second.
/// - A *reset* breaks connections with RST on both sides, once.
/// - *Healing* delivers everything that was held.
///
/// A test without network faults has a mesh without proxies ([`Mesh::without_proxies`]). A suite whose nodes talk over a network
/// of its own brings a [`LinkControl`] for it ([`Mesh::attach`]); faults of links then go there.
///
/// Its downside: the kernel accepts connections for the proxy, so opening one succeeds at once even if the link is cut or the
/// node is dead; a dead node appears as a reset right afterwards.
#[derive(Clone, Debug)]
pub struct Mesh {
    shared: Arc<MeshShared>,
}

/// Faults of the links of a network that carries the traffic of the nodes instead of proxies: a switch, or a network that a suite
/// simulates. Each method returns when its effect holds.
pub trait LinkControl: Send + Sync + fmt::Debug {
    /// Cuts these links until [`LinkControl::heal`].
    fn cut(&self, links: &[Link]);

    /// Disturbs these links until [`LinkControl::calm`].
    fn disturb(&self, links: &[Link], how: Disturbance);

    /// Resets every open connection that uses one of these links; returns their number. By default there are none.
    fn reset(&self, links: &[Link]) -> u64 {
        let _ = links;
        0
    }

    /// Ends all cuts.
    fn heal(&self);

    /// Ends all disturbances.
    fn calm(&self);

    /// Traffic of these links so far, and the effects of faults on it.
    fn meter(&self, links: &[Link]) -> Meter;
}

impl LinkControl for NodeNetwork {
    fn cut(&self, links: &[Link]) {
        NodeNetwork::cut(self, links);
    }

    fn disturb(&self, links: &[Link], how: Disturbance) {
        NodeNetwork::disturb(self, links, how);
    }

    fn reset(&self, links: &[Link]) -> u64 {
        NodeNetwork::reset(self, links)
    }

    fn heal(&self) {
        NodeNetwork::heal(self);
    }

    fn calm(&self) {
        NodeNetwork::calm(self);
    }

    fn meter(&self, links: &[Link]) -> Meter {
        NodeNetwork::meter(self, links)
    }
}

#[derive(Debug)]
struct MeshShared {
    /// The runtime of the proxies.
    runtime: Handle,
    wiring: Wiring,
    /// The network that a suite carries itself.
    control: OnceLock<Arc<dyn LinkControl>>,
    state: Mutex<MeshState>,
}

/// How endpoints are connected.
#[derive(Debug)]
enum Wiring {
    /// Directly, on loopback: links have no faults.
    Direct,
    /// Through proxies, on loopback.
    Proxies,
    /// Through a switch.
    Switch(NodeNetwork),
}

#[derive(Debug, Default)]
struct MeshState {
    nodes: BTreeMap<NodeId, SocketAddr>,
    wires: BTreeMap<Link, Arc<Wire>>,
    routes: BTreeMap<(NodeId, NodeId), Arc<Route>>,
}

impl MeshState {
    fn wire(&mut self, link: Link) -> Arc<Wire> {
        Arc::clone(self.wires.entry(link).or_default())
    }
}

impl Mesh {
    /// A mesh without nodes, whose proxies run on this runtime.
    pub fn new(runtime: Handle) -> Mesh {
        Mesh::wired(runtime, Wiring::Proxies)
    }

    /// A mesh whose nodes are in this network of namespaces.
    pub fn switched(runtime: Handle, network: NodeNetwork) -> Mesh {
        Mesh::wired(runtime, Wiring::Switch(network))
    }

    /// A mesh in which every route is the node's own address: endpoints are connected directly, and links have no faults.
    pub fn without_proxies(runtime: Handle) -> Mesh {
        Mesh::wired(runtime, Wiring::Direct)
    }

    fn wired(runtime: Handle, wiring: Wiring) -> Mesh {
        Mesh {
            shared: Arc::new(MeshShared {
                runtime,
                wiring,
                control: OnceLock::new(),
                state: Mutex::default(),
            }),
        }
    }

    /// The switch, if endpoints are connected by one.
    fn switch(&self) -> Option<&NodeNetwork> {
        match &self.shared.wiring {
            Wiring::Switch(network) => Some(network),
            Wiring::Direct | Wiring::Proxies => None,
        }
    }

    /// Directs all faults of links to the network that carries the traffic of the nodes. At most once, before the first fault.
    pub fn attach(&self, control: Arc<dyn LinkControl>) {
        let is_first = self.shared.control.set(control).is_ok();
        assert!(is_first, "a mesh has one network");
    }

    /// The network that decides about links, if it is not of proxies.
    fn control(&self) -> Option<&dyn LinkControl> {
        let attached = self.shared.control.get().map(|control| &**control);
        attached.or_else(|| Some(self.switch()?))
    }

    /// Can links have faults?
    pub fn can_break_links(&self) -> bool {
        self.control().is_some() || !matches!(self.shared.wiring, Wiring::Direct)
    }

    /// Do links carry packets or messages one by one? Proxies carry streams of bytes.
    pub fn carries_packets(&self) -> bool {
        self.control().is_some()
    }

    /// How the endpoints are connected.
    pub fn kind(&self) -> NetworkKind {
        self.switch().map_or(NetworkKind::Local, NodeNetwork::kind)
    }

    /// Do faults affect all traffic between two nodes, on every port? Otherwise only connections to addresses that
    /// [`Mesh::route`] returned, and nodes that connect to each other at [`Mesh::ip`] cannot be cut apart.
    pub fn has_whole_addresses(&self) -> bool {
        self.kind().has_whole_addresses()
    }

    /// The address at which `from` reaches all ports of `to`; `None` if `to` is unknown.
    pub fn ip(&self, from: NodeId, to: NodeId) -> Option<IpAddr> {
        let own = self.state().nodes.get(&to).map(SocketAddr::ip)?;
        match self.switch() {
            Some(network) => network.address(from, to).ok().map(IpAddr::V4),
            None => Some(own), // on loopback every endpoint sees the same addresses
        }
    }

    /// The node that announces this IP address: its own one, which in a network of namespaces is not the one at which clients
    /// reach it. `None` if no node has it.
    pub fn node_of(&self, announced: IpAddr) -> Option<NodeId> {
        let state = self.state();
        let mut nodes = state.nodes.iter();
        let found = nodes.find(|(_, address)| address.ip() == announced);
        found.map(|(node, _)| *node)
    }

    /// The address from which a client of a network with whole addresses connects to nodes at addresses that the nodes returned,
    /// so that the client's faults affect these connections; `None` in other networks.
    pub fn source(&self, client: NodeId) -> Option<IpAddr> {
        let address = self.switch()?.source(client);
        address.ok().map(IpAddr::V4)
    }

    /// Gives a node an address of its own, and returns it; `None` on loopback, where the node chooses one.
    pub fn open_node(&self, node: NodeId) -> io::Result<Option<IpAddr>> {
        let Some(network) = self.switch() else {
            return Ok(None);
        };
        network.add_node(node)?;
        let address = network.address(node, node)?;
        Ok(Some(IpAddr::V4(address)))
    }

    /// The namespaces in which a node's processes must run; `None` on loopback.
    pub fn node_space(&self, node: NodeId) -> Option<Arc<NodeSpace>> {
        self.switch()?.node_space(node)
    }

    /// Adds a node that listens on `address`. Routes to it exist only from then on.
    pub fn add_node(&self, node: NodeId, address: SocketAddr) {
        self.state().nodes.insert(node, address);
    }

    /// The address at which `from` reaches `to`: a proxy's, or the node's own in a mesh without proxies. The first call for a
    /// pair opens its proxy. In a network with whole addresses the other ports of that address reach the node too. Fails if
    /// `to` is unknown or no port is free.
    pub fn route(&self, from: NodeId, to: NodeId) -> io::Result<SocketAddr> {
        let mut state = self.state();
        if let Some(route) = state.routes.get(&(from, to)) {
            return Ok(route.address);
        }
        let Some(&target) = state.nodes.get(&to) else {
            let text = format!("{from} cannot reach {to}: unknown node");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        match &self.shared.wiring {
            Wiring::Direct => return Ok(target),
            Wiring::Switch(network) => {
                let address = network.address(from, to)?;
                return Ok(SocketAddr::from((address, target.port())));
            }
            Wiring::Proxies => {}
        }
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let [forward, backward] = Link::both(from, to).map(|link| state.wire(link));
        let route = Arc::new(Route::new(
            listener.local_addr()?,
            target,
            forward,
            backward,
        ));
        let _context = self.shared.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        self.shared
            .runtime
            .spawn(mesh_route::accept(listener, Arc::clone(&route)));
        let address = route.address;
        state.routes.insert((from, to), route);
        Ok(address)
    }

    /// Cuts these links until [`Mesh::heal`].
    pub fn cut(&self, links: &[Link]) {
        if let Some(network) = self.control() {
            return network.cut(links);
        }
        let mut state = self.state();
        for &link in links {
            state.wire(link).cut();
        }
    }

    /// Disturbs these links until [`Mesh::calm`].
    pub fn disturb(&self, links: &[Link], how: Disturbance) {
        if let Some(network) = self.control() {
            return network.disturb(links, how);
        }
        let mut state = self.state();
        for &link in links {
            state.wire(link).disturb(how);
        }
    }

    /// Resets every open connection that uses one of these links; returns their number.
    pub fn reset(&self, links: &[Link]) -> u64 {
        if let Some(network) = self.control() {
            return network.reset(links);
        }
        let state = self.state();
        let uses_links = |(from, to): (NodeId, NodeId)| {
            links.contains(&Link { from, to }) || links.contains(&Link { from: to, to: from })
        };
        let routes = state.routes.iter().filter(|(pair, _)| uses_links(**pair));
        routes.map(|(_, route)| route.reset()).sum()
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        if let Some(network) = self.control() {
            return network.heal();
        }
        for wire in self.state().wires.values() {
            wire.heal();
        }
    }

    /// Ends all disturbances.
    pub fn calm(&self) {
        if let Some(network) = self.control() {
            return network.calm();
        }
        for wire in self.state().wires.values() {
            wire.calm();
        }
    }

    /// Traffic of these links since the mesh was made, and the effects of faults on it.
    pub fn meter(&self, links: &[Link]) -> Meter {
        if let Some(network) = self.control() {
            return network.meter(links);
        }
        let state = self.state();
        let wires = links.iter().filter_map(|link| state.wires.get(link));
        wires.fold(Meter::default(), |sum, wire| sum.plus(wire.meter()))
    }

    /// All pairs of endpoints that have a route.
    pub fn routes(&self) -> Vec<Link> {
        let pairs = self.state().routes.keys().copied().collect::<Vec<_>>();
        pairs
            .into_iter()
            .map(|(from, to)| Link { from, to })
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, MeshState> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
