//! The ports of nodes that share this machine's loopback addresses with the nodes of other tests.

use crate::NodeError;
use seatrial_machine::NodeId;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::process;
use std::time::UNIX_EPOCH;

/// Added to a node's number, gives its address: 127.0.0.10 + number.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([127, 0, 0, 10]);
/// Ports from which nodes listen unless one is asked for: below those that the kernel gives to connections.
const PORTS_FROM: u16 = 20_000;
/// Number of those ports.
const PORTS: u16 = 10_000;
/// Number of ports between two tries, at least.
const PORT_STEP: u16 = 50;

/// The ports of the nodes of one test: the same row of ports at the address of each, reserved until this value is dropped.
///
/// A free port alone is not enough. Between the moment when it was found free and the moment when a node listens on it, and
/// while a killed node is down, another test may find it free as well: then this test's clients would talk to the other test's
/// node, and a correct system would be accused (seen: two tests of the store shared `n2`). So each port is also reserved, by a
/// listener with a name in the abstract namespace of Unix sockets. Such names are per network namespace, as ports are, belong
/// to all users, and end with the process that holds them, however it ends.
///
/// A test that finds a name taken tries the next row, or fails if it was asked for this port. Programs that are no tests of
/// this kind do not know of names: that a node does not get its port then is seen by its end. Decision 0129.
#[derive(Debug)]
pub(crate) struct NodePorts {
    first: u16,
    /// One for each address and port.
    _names: Vec<UnixListener>,
}

impl NodePorts {
    /// The address of a node.
    pub(crate) fn address(node: NodeId) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(FIRST_ADDRESS.saturating_add(node.number())))
    }

    /// Reserves `in_a_row` ports of each node: those from `first` on, else the first that are free.
    pub(crate) fn reserve(
        nodes: &[NodeId],
        first: Option<u16>,
        in_a_row: u16,
    ) -> Result<NodePorts, NodeError> {
        assert!(in_a_row > 0, "a node has a port");
        if let Some(first) = first {
            return Self::reserve_from(nodes, first, in_a_row);
        }
        let step = in_a_row.next_multiple_of(PORT_STEP);
        let rows = PORTS / step;
        // Where to begin: tests in sequence do not meet the late clients of the last one, those side by side rarely search.
        let since = UNIX_EPOCH.elapsed().unwrap_or_default();
        let start = since.subsec_micros().wrapping_add(process::id());
        for number in 0..rows {
            let row = (start.wrapping_add(u32::from(number)) % u32::from(rows)) as u16;
            match Self::reserve_from(nodes, PORTS_FROM + row * step, in_a_row) {
                Err(NodeError::PortInUse { .. }) => {}
                other => return other,
            }
        }
        Err(NodeError::NoPorts {
            in_a_row,
            first: PORTS_FROM,
        })
    }

    /// An error if the last port is before the end of the row.
    pub(crate) fn check_room(first: u16, in_a_row: u16) -> Result<(), NodeError> {
        match first.checked_add(in_a_row - 1) {
            Some(_) => Ok(()),
            None => Err(NodeError::PortTooHigh { first, in_a_row }),
        }
    }

    fn reserve_from(nodes: &[NodeId], first: u16, in_a_row: u16) -> Result<NodePorts, NodeError> {
        Self::check_room(first, in_a_row)?;
        let mut names = Vec::new();
        for &node in nodes {
            for port in first..=first + (in_a_row - 1) {
                let address = SocketAddr::new(Self::address(node), port);
                names.push(reserve_name(node, address)?);
                check_free(node, address)?;
            }
        }
        Ok(NodePorts {
            first,
            _names: names,
        })
    }

    /// The first port of each node.
    pub(crate) fn first(&self) -> u16 {
        self.first
    }
}

fn reserve_name(node: NodeId, address: SocketAddr) -> Result<UnixListener, NodeError> {
    let name = format!("seatrial {address}");
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name);
    let listener = name.and_then(|name| UnixListener::bind_addr(&name));
    listener.map_err(|error| address_error(node, address, error))
}

/// Listens on a node's address for a moment, to find out that it is free.
pub(crate) fn check_free(node: NodeId, address: SocketAddr) -> Result<(), NodeError> {
    let listener = TcpListener::bind(address);
    listener
        .map(drop)
        .map_err(|error| address_error(node, address, error))
}

fn address_error(node: NodeId, address: SocketAddr, error: io::Error) -> NodeError {
    match error.kind() {
        io::ErrorKind::AddrInUse => NodeError::PortInUse { node, address },
        _ => NodeError::Address { node, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;
    use std::time::{Duration, Instant};

    /// Two nodes with addresses that nothing else here uses.
    fn pair(number: u32) -> [NodeId; 2] {
        [number, number + 1].map(NodeId::server)
    }

    /// Reserves ports that were just given back. A process that another test is starting has the reservation too, until it
    /// executes its program.
    fn reserve_again(nodes: &[NodeId], first: u16) -> NodePorts {
        let began = Instant::now();
        loop {
            match NodePorts::reserve(nodes, Some(first), 3) {
                Err(NodeError::PortInUse { .. }) if began.elapsed() < Duration::from_secs(5) => {
                    thread::sleep(Duration::from_millis(5));
                }
                reserved => return reserved.unwrap(),
            }
        }
    }

    #[test]
    fn two_tests_never_have_the_same_port() {
        // Many, so that two begin at the same row; none listens, as between the choice of a port and the start of its node.
        let nodes = pair(200);
        let tests: Vec<NodePorts> = (0..100)
            .map(|_| NodePorts::reserve(&nodes, None, 3).unwrap())
            .collect();
        let firsts: BTreeSet<u16> = tests.iter().map(NodePorts::first).collect();
        assert_eq!(firsts.len(), tests.len());
        let first = tests[0].first();
        let refused = NodePorts::reserve(&nodes[1..], Some(first + 2), 1).unwrap_err();
        let NodeError::PortInUse { node, address } = refused else {
            panic!("{refused}")
        };
        assert_eq!((node, address.port()), (nodes[1], first + 2));
        drop(tests);
        assert_eq!(reserve_again(&nodes, first).first(), first);
    }

    #[test]
    fn ports_in_use_are_passed_over() {
        let nodes = pair(210);
        let first = NodePorts::reserve(&nodes, None, 3).unwrap().first();
        let held = TcpListener::bind((NodePorts::address(nodes[1]), first + 2)).unwrap();
        let refused = NodePorts::reserve(&nodes, Some(first), 3);
        assert!(matches!(refused, Err(NodeError::PortInUse { .. })));
        drop(held);
        reserve_again(&nodes, first);
    }

    #[test]
    fn ports_beyond_the_last_are_refused() {
        let nodes = pair(220);
        let refused = NodePorts::reserve(&nodes, Some(65_534), 3).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "port 65534 leaves no room for 3 ports of a node, choose a lower one"
        );
        let refused = NodePorts::reserve(&nodes, None, 10_001).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no 10001 ports in a row are free from port 20000 on"
        );
        NodePorts::reserve(&nodes[..1], Some(65_533), 3).unwrap();
    }
}
