//! A network of their own for the nodes of a test.

mod network_kind;

pub use network_kind::{NetworkKind, UnknownNetworkKind};
