//! The kinds of networks that a test can have.

use std::fmt;
use std::str::FromStr;

/// How the nodes and clients of a test are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkKind {
    /// Loopback addresses. Faults of links affect only connections through proxies, one port per pair of endpoints.
    #[default]
    Local,
    /// NodeNetwork namespaces inside a user namespace; needs no root. Each node has an address of its own with all its ports.
    Userns,
    /// The same, made by root without a user namespace.
    Netns,
}

impl NetworkKind {
    /// All kinds.
    pub const ALL: [NetworkKind; 3] = [NetworkKind::Local, NetworkKind::Userns, NetworkKind::Netns];

    /// The name, as in `--network` and in histories.
    pub const fn name(self) -> &'static str {
        match self {
            NetworkKind::Local => "local",
            NetworkKind::Userns => "userns",
            NetworkKind::Netns => "netns",
        }
    }

    /// Can faults affect all traffic between two nodes, on every port? Otherwise only connections through proxies.
    pub const fn has_whole_addresses(self) -> bool {
        !matches!(self, NetworkKind::Local)
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A text that names no kind of network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNetworkKind(String);

impl fmt::Display for UnknownNetworkKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NetworkKind::ALL.map(NetworkKind::name).join(", ");
        write!(
            formatter,
            "unknown network `{}` (available: {names})",
            self.0
        )
    }
}

impl std::error::Error for UnknownNetworkKind {}

impl FromStr for NetworkKind {
    type Err = UnknownNetworkKind;

    fn from_str(text: &str) -> Result<NetworkKind, UnknownNetworkKind> {
        let mut all = NetworkKind::ALL.into_iter();
        all.find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownNetworkKind(text.to_owned()))
    }
}
