//! The network of a test: one userspace TCP proxy per pair of endpoints.

mod connection;
mod pump;
mod wire;

use connection::Route;
use seatrial_machine::{Disturbance, Link, NodeId};
use seatrial_namespace::NetworkKind;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use wire::Wire;

pub use wire::Meter;

/// The network of a test: every connection runs through a proxy of the mesh. A *route* is a listener on 127.0.0.1 for one ordered
/// pair (endpoint that connects, node that listens); connections to it are forwarded to the node. A *link* is one direction
/// between two endpoints, whichever of them opened the connection: the mesh keeps one state per link, and the routes of both
/// orders obey it.
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
/// A test without network faults has a mesh without proxies ([`Mesh::without_proxies`]).
///
/// Its downside: the kernel accepts connections for the proxy, so opening one succeeds at once even if the link is cut or the
/// node is dead; a dead node appears as a reset right afterwards.
#[derive(Clone, Debug)]
pub struct Mesh {
    shared: Arc<MeshShared>,
}

#[derive(Debug)]
struct MeshShared {
    /// The runtime of the proxies.
    runtime: Handle,
    /// Are endpoints connected through proxies?
    has_proxies: bool,
    state: Mutex<MeshState>,
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
        Mesh {
            shared: Arc::new(MeshShared {
                runtime,
                has_proxies: true,
                state: Mutex::default(),
            }),
        }
    }

    /// A mesh in which every route is the node's own address: endpoints are connected directly, and links have no faults.
    pub fn without_proxies(runtime: Handle) -> Mesh {
        Mesh {
            shared: Arc::new(MeshShared {
                runtime,
                has_proxies: false,
                state: Mutex::default(),
            }),
        }
    }

    /// Do endpoints connect through proxies, so that links can have faults?
    pub fn has_proxies(&self) -> bool {
        self.shared.has_proxies
    }

    /// How the endpoints are connected.
    pub fn kind(&self) -> NetworkKind {
        NetworkKind::Local
    }

    /// Do faults affect all traffic between two nodes, on every port? Otherwise only connections to addresses that
    /// [`Mesh::route`] returned, and nodes that connect to each other at [`Mesh::ip`] cannot be cut apart.
    pub fn has_whole_addresses(&self) -> bool {
        self.kind().has_whole_addresses()
    }

    /// The address at which `from` reaches all ports of `to`; `None` if `to` is unknown.
    pub fn ip(&self, from: NodeId, to: NodeId) -> Option<IpAddr> {
        let _ = from; // on loopback every endpoint sees the same addresses
        self.state().nodes.get(&to).map(SocketAddr::ip)
    }

    /// Adds a node that listens on `address`. Routes to it exist only from then on.
    pub fn add_node(&self, node: NodeId, address: SocketAddr) {
        self.state().nodes.insert(node, address);
    }

    /// The address at which `from` reaches `to`: a proxy's, or the node's own in a mesh without proxies. The first call for a
    /// pair opens its proxy. Fails if `to` is unknown or no port is free.
    pub fn route(&self, from: NodeId, to: NodeId) -> io::Result<SocketAddr> {
        let mut state = self.state();
        if let Some(route) = state.routes.get(&(from, to)) {
            return Ok(route.address);
        }
        let Some(&target) = state.nodes.get(&to) else {
            let text = format!("{from} cannot reach {to}: unknown node");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        if !self.shared.has_proxies {
            return Ok(target);
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
            .spawn(connection::accept(listener, Arc::clone(&route)));
        let address = route.address;
        state.routes.insert((from, to), route);
        Ok(address)
    }

    /// Cuts these links until [`Mesh::heal`].
    pub fn cut(&self, links: &[Link]) {
        let mut state = self.state();
        for &link in links {
            state.wire(link).cut();
        }
    }

    /// Disturbs these links until [`Mesh::calm`].
    pub fn disturb(&self, links: &[Link], how: Disturbance) {
        let mut state = self.state();
        for &link in links {
            state.wire(link).disturb(how);
        }
    }

    /// Resets every open connection that uses one of these links; returns their number.
    pub fn reset(&self, links: &[Link]) -> u64 {
        let state = self.state();
        let uses_links = |(from, to): (NodeId, NodeId)| {
            links.contains(&Link { from, to }) || links.contains(&Link { from: to, to: from })
        };
        let routes = state.routes.iter().filter(|(pair, _)| uses_links(**pair));
        routes.map(|(_, route)| route.reset()).sum()
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        for wire in self.state().wires.values() {
            wire.heal();
        }
    }

    /// Ends all disturbances.
    pub fn calm(&self) {
        for wire in self.state().wires.values() {
            wire.calm();
        }
    }

    /// Traffic of these links since the mesh was made, and the effects of faults on it.
    pub fn meter(&self, links: &[Link]) -> Meter {
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
