//! The network of a test: one userspace TCP proxy per pair of endpoints.

mod connection;
mod pump;
mod wire;

use connection::Route;
use seatrial_machine::{Disturbance, Link, NodeId};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use wire::Wire;

pub use wire::Meter;

/// Every connection of a test runs through the mesh. A *route* is a listener of its own on 127.0.0.1 for one ordered
/// pair (endpoint that connects, node that listens); whoever connects there is connected to the node. A *link* is one
/// direction between two endpoints, whoever opened the connection: the mesh keeps one state per link, and the routes
/// of both orders obey it.
///
/// - A *cut* link holds what arrives, as a network does that drops packets between hosts that retransmit: nothing is
///   lost, established connections stall, new ones are not put through, ends and resets are held as well. Senders
///   feel it once 64 KiB wait in the proxy and the kernel's buffers are full. A connection that was opened and given
///   up again while the link was cut never reaches the node.
/// - A *slow* link delivers everything later, in order.
/// - On a *lossy* link a packet has to be sent again, as TCP does: what follows it on its connection waits, 200 ms for
///   the first loss, twice as long for each further one.
/// - A *reordering* link holds some packets back. TCP puts them in order again, so within a connection what follows waits;
///   connections overtake each other.
/// - A *narrow* link carries so many bytes per second.
/// - A *reset* breaks connections with RST on both sides, once.
/// - *Healing* lets through what waited.
///
/// A test that never breaks the network has a mesh without proxies ([`Mesh::without_proxies`]).
///
/// Its downside: the kernel accepts for the proxy, so opening a connection succeeds at once even if the link is cut
/// or the node is dead; a dead node shows as a reset right after.
#[derive(Clone, Debug)]
pub struct Mesh {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where the proxies run.
    runtime: Handle,
    /// Are endpoints connected through proxies?
    has_proxies: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<NodeId, SocketAddr>,
    wires: BTreeMap<Link, Arc<Wire>>,
    routes: BTreeMap<(NodeId, NodeId), Arc<Route>>,
}

impl State {
    fn wire(&mut self, link: Link) -> Arc<Wire> {
        Arc::clone(self.wires.entry(link).or_default())
    }
}

impl Mesh {
    /// A mesh without nodes, whose proxies run on this runtime.
    pub fn new(runtime: Handle) -> Mesh {
        Mesh {
            shared: Arc::new(Shared {
                runtime,
                has_proxies: true,
                state: Mutex::default(),
            }),
        }
    }

    /// A mesh in which every route is the node's own address: nothing between two endpoints, and no link can be broken.
    pub fn without_proxies(runtime: Handle) -> Mesh {
        Mesh {
            shared: Arc::new(Shared {
                runtime,
                has_proxies: false,
                state: Mutex::default(),
            }),
        }
    }

    /// Can links be broken?
    pub fn has_proxies(&self) -> bool {
        self.shared.has_proxies
    }

    /// Says where `node` itself listens. Routes to it exist only from then on.
    pub fn add_node(&self, node: NodeId, address: SocketAddr) {
        self.state().nodes.insert(node, address);
    }

    /// The address at which `from` reaches `to`: the node's own in a mesh without proxies. Opens the route on first use;
    /// fails when `to` is unknown or no port
    /// is free.
    pub fn route(&self, from: NodeId, to: NodeId) -> io::Result<SocketAddr> {
        let mut state = self.state();
        if let Some(route) = state.routes.get(&(from, to)) {
            return Ok(route.address);
        }
        let Some(&target) = state.nodes.get(&to) else {
            let text = format!("{from} cannot reach {to}: the mesh knows no such node");
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

    /// Lets nothing pass these links until [`Mesh::heal`].
    pub fn cut(&self, links: &[Link]) {
        let mut state = self.state();
        for &link in links {
            state.wire(link).cut();
        }
    }

    /// Disturbs what passes these links until [`Mesh::calm`].
    pub fn disturb(&self, links: &[Link], how: Disturbance) {
        let mut state = self.state();
        for &link in links {
            state.wire(link).disturb(how);
        }
    }

    /// Breaks every open connection that uses one of these links; returns how many there were.
    pub fn reset(&self, links: &[Link]) -> u64 {
        let state = self.state();
        let touched = |(from, to): (NodeId, NodeId)| {
            links.contains(&Link { from, to }) || links.contains(&Link { from: to, to: from })
        };
        let routes = state.routes.iter().filter(|(pair, _)| touched(**pair));
        routes.map(|(_, route)| route.reset()).sum()
    }

    /// Makes all links whole.
    pub fn heal(&self) {
        for wire in self.state().wires.values() {
            wire.heal();
        }
    }

    /// Disturbs no link any more.
    pub fn calm(&self) {
        for wire in self.state().wires.values() {
            wire.calm();
        }
    }

    /// What passed these links since the mesh began, and what faults did to it.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
