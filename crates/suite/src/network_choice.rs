//! `--network`: how the nodes of a test are connected, and the namespaces that this takes.

use crate::{Addressing, Suite, SuiteError};
use seatrial_namespace::{NetworkKind, best_kind, enter};
use seatrial_runner::TestNetwork;

/// The network that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkChoice {
    /// The best one that works, for a test that breaks links and whose suite gains by namespaces; else `local`.
    Auto,
    /// This one, or an error.
    Kind(NetworkKind),
}

/// Parses `--network`: the name of a kind, or `auto`. The error names the kinds.
pub fn parse_network_choice(text: &str) -> Result<NetworkChoice, String> {
    if text == "auto" {
        return Ok(NetworkChoice::Auto);
    }
    let kind = text.parse().map(NetworkChoice::Kind);
    kind.map_err(|error| format!("{error}, or auto"))
}

/// Bytes in a MiB.
const MEBIBYTE: u64 = 1 << 20;

impl NetworkChoice {
    /// Decides for one kind, and moves this process into its namespaces; must be called before the process has threads. An
    /// error if the kind that was asked for does not work here.
    pub fn enter(
        self,
        suite: &dyn Suite,
        breaks_network: bool,
        capture_mebibytes: u64,
    ) -> Result<TestNetwork, SuiteError> {
        if capture_mebibytes > 1 << 20 {
            return Err(
                format!("--capture goes up to 1048576 MiB, not {capture_mebibytes}").into(),
            );
        }
        let (kind, limits) = match self {
            NetworkChoice::Kind(kind) => (kind, Vec::new()),
            NetworkChoice::Auto if !breaks_network || suite.addressing() == Addressing::Proxies => {
                (NetworkKind::Local, Vec::new())
            }
            NetworkChoice::Auto => {
                let (kind, reasons) = best_kind();
                (kind, limits(kind, &reasons, suite))
            }
        };
        enter(kind).map_err(|error| {
            format!(
                "--network {kind} does not work here: {error}; `seatrial doctor` says what does, \
                 --network local always works"
            )
        })?;
        Ok(TestNetwork {
            kind,
            limits,
            capture_bytes: capture_mebibytes * MEBIBYTE,
        })
    }
}

/// What a reader of the verdict must know about a network that was not the best.
fn limits(kind: NetworkKind, reasons: &[String], suite: &dyn Suite) -> Vec<String> {
    if kind.has_whole_addresses() {
        return Vec::new();
    }
    let name = suite.name();
    let limit = match suite.addressing() {
        Addressing::Proxies | Addressing::ProxiesAtLeast => {
            format!("faults of links affect connections of {name}, not packets")
        }
        Addressing::WholeAddresses => format!(
            "connections between the nodes of {name} cannot be cut or disturbed, only those of clients"
        ),
    };
    let reasons = reasons.join("; ");
    vec![format!("network local: {limit} ({reasons})")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kinds_or_auto() {
        assert_eq!(parse_network_choice("auto"), Ok(NetworkChoice::Auto));
        for kind in NetworkKind::ALL {
            assert_eq!(
                parse_network_choice(kind.name()),
                Ok(NetworkChoice::Kind(kind))
            );
        }
        let error = parse_network_choice("docker").unwrap_err();
        assert_eq!(
            error,
            "unknown network `docker` (available: local, userns, netns), or auto"
        );
    }
}
