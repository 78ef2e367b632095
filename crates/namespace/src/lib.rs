//! A network of their own for the nodes of a test: each has an address with all its ports, and a switch in this process decides
//! about every packet between them. Needs Linux, and either root or permission for user namespaces.
//!
//! 1. [`enter`] moves the process into namespaces of its own, before it has threads; [`best_kind`] says which kind works here.
//! 2. [`NodeNetwork::open`] makes the switch, [`NodeNetwork::add_node`] a namespace with an address for each node.
//! 3. [`NodeSpace::enclose`] starts a node's program inside: with its own network, processes, mounts and host name. All processes
//!    of the node, also those that leave its process group, are paused and killed together ([`NodeInit`]).
//! 4. [`NodeNetwork::cut`] and its neighbours inject faults into links; [`NodeNetwork::meter`] says what met them.
//!
//! Requests to the kernel are system calls and netlink messages; no program such as `ip` or `nft` is needed.
//!
//! What is absent: no file and no name outlives this process (namespaces are held by descriptors), and no address of the machine
//! is reachable from a node. Nothing here knows a system under test, or what a test is.

mod address_plan;
mod enter;
mod ip_frame;
mod link_meter;
mod netlink;
mod network_kind;
mod node_network;
mod node_space;
mod packet_capture;
mod packet_socket;
mod switch;
mod switched_link;
mod tcp_flows;

pub use enter::{NamespaceError, best_kind, enter, enter_thread, probe};
pub use link_meter::Meter;
pub use network_kind::{NetworkKind, UnknownNetworkKind};
pub use node_network::{NodeNetwork, NodeNetworkOptions};
pub use node_space::{NodeInit, NodeSpace, ProgramUser};
