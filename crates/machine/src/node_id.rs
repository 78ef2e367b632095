//! Endpoints of the network.

use std::fmt;

/// An endpoint: a server (`n1`, `n2`, …) or a client of the test (`c0`, `c1`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// Set on the ids of clients, so that servers sort first.
const CLIENT: u32 = 1 << 31;

impl NodeId {
    /// The server with this number, counted from 1.
    pub const fn server(number: u32) -> NodeId {
        assert!(number < CLIENT);
        NodeId(number)
    }

    /// The client with this number, counted from 0.
    pub const fn client(number: u32) -> NodeId {
        assert!(number < CLIENT);
        NodeId(number | CLIENT)
    }

    /// Is this a client of the test rather than a node of the system?
    pub const fn is_client(self) -> bool {
        self.0 & CLIENT != 0
    }

    /// The number within its kind.
    pub const fn number(self) -> u32 {
        self.0 & !CLIENT
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_client() { 'c' } else { 'n' };
        write!(f, "{kind}{}", self.number())
    }
}
