//! The addresses of a test's endpoints.

use seatrial_machine::NodeId;
use std::net::Ipv4Addr;

/// An endpoint of the switch, by its address.
///
/// ```text
///  10.0.0.1 … 10.0.0.250      nodes n1 … n250, all ports
///  10.0.0.254                 the bench itself: readiness checks, never affected by faults
///  10.128.0.254 … 10.255.…    client c0, c1, …: the third and fourth octet less 128·256 are its number
///  10.128.0.253               the same client, for sockets that are bound to it and connect to a node's own address
///  10.128.0.1                 node n1 as client c0 sees it
/// ```
///
/// All clients share one namespace, and a socket that is not bound gets the source address of its route. So each client has a
/// network of 256 addresses in which its own is the source and every node has an alias: which address a client connects to says
/// who it is. The switch replaces the alias by the node's address (and back), so that nodes see ordinary addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressOwner {
    /// A node.
    Node(NodeId),
    /// The bench itself.
    Bench,
    /// A client at its own address; true: it connected to an alias.
    Client(NodeId, bool),
    /// A node's alias: the client that uses it, and the node.
    Alias(NodeId, NodeId),
}

/// Largest number of a node.
pub(crate) const NODES_MAX: u32 = 250;
/// Number of clients.
pub(crate) const CLIENTS_MAX: u32 = 128 * 256;
/// The bench's address.
pub(crate) const BENCH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
/// Length of the network of all addresses.
pub(crate) const PREFIX_LENGTH: u8 = 8;
/// Length of one client's network.
pub(crate) const CLIENT_PREFIX_LENGTH: u8 = 24;

/// Last octet of a client's address for connections to aliases.
const CLIENT_OCTET: u32 = 254;
/// Last octet of a client's address for sockets that are bound to it.
const BOUND_OCTET: u32 = 253;
const CLIENTS_BEGIN: u32 = u32::from_be_bytes([10, 128, 0, 0]);

/// The address of a node.
pub(crate) fn node_address(node: NodeId) -> Ipv4Addr {
    debug_assert!((1..=NODES_MAX).contains(&node.number()));
    Ipv4Addr::new(10, 0, 0, node.number() as u8)
}

/// The source address of a client's connections to aliases.
pub(crate) fn client_address(client: NodeId) -> Ipv4Addr {
    Ipv4Addr::from(CLIENTS_BEGIN + (client.number() << 8) + CLIENT_OCTET)
}

/// The address to which a client binds sockets that connect to nodes' own addresses.
pub(crate) fn bound_address(client: NodeId) -> Ipv4Addr {
    Ipv4Addr::from(CLIENTS_BEGIN + (client.number() << 8) + BOUND_OCTET)
}

/// The address at which a client reaches a node.
pub(crate) fn alias(client: NodeId, node: NodeId) -> Ipv4Addr {
    Ipv4Addr::from(CLIENTS_BEGIN + (client.number() << 8) + node.number())
}

/// The hardware address of the interface with this address.
pub(crate) fn mac(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d] // 2: locally administered
}

/// Whose address this is; `None`: no endpoint's.
pub(crate) fn place(address: Ipv4Addr) -> Option<AddressOwner> {
    if address == BENCH {
        return Some(AddressOwner::Bench);
    }
    let bits = u32::from(address);
    let last = bits & 0xff;
    match address.octets() {
        [10, 0, 0, _] if (1..=NODES_MAX).contains(&last) => {
            Some(AddressOwner::Node(NodeId::server(last)))
        }
        [10, 128..=255, _, _] => {
            let client = NodeId::client((bits - CLIENTS_BEGIN) >> 8);
            match last {
                CLIENT_OCTET => Some(AddressOwner::Client(client, true)),
                BOUND_OCTET => Some(AddressOwner::Client(client, false)),
                1..=NODES_MAX => Some(AddressOwner::Alias(client, NodeId::server(last))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Is there an address for this endpoint?
pub(crate) fn has_address(endpoint: NodeId) -> bool {
    if endpoint.is_client() {
        return endpoint.number() < CLIENTS_MAX;
    }
    (1..=NODES_MAX).contains(&endpoint.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_belongs_to_one_endpoint() {
        for number in [0, 1, 255, 256, 9_999, CLIENTS_MAX - 1] {
            let client = NodeId::client(number);
            assert!(has_address(client));
            for node in [1, 7, NODES_MAX].map(NodeId::server) {
                assert_eq!(
                    place(alias(client, node)),
                    Some(AddressOwner::Alias(client, node))
                );
                assert_eq!(place(node_address(node)), Some(AddressOwner::Node(node)));
            }
            let bound = place(bound_address(client));
            assert_eq!(bound, Some(AddressOwner::Client(client, false)));
            let own = place(client_address(client));
            assert_eq!(own, Some(AddressOwner::Client(client, true)));
        }
        assert_eq!(place(BENCH), Some(AddressOwner::Bench));
        for other in [
            [10, 0, 0, 0],
            [10, 0, 0, 251],
            [10, 1, 0, 1],
            [10, 128, 0, 255],
            [127, 0, 0, 1],
        ] {
            assert_eq!(place(Ipv4Addr::from(other)), None, "{other:?}");
        }
        assert!(!has_address(NodeId::server(0)) && !has_address(NodeId::server(251)));
        assert!(!has_address(NodeId::client(CLIENTS_MAX)));
    }
}
