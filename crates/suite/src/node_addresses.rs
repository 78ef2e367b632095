//! Nodes and their addresses on the command line.

use seatrial_machine::NodeId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Parses the other nodes of a system and their addresses, such as `n2=127.0.0.1:7002,n3=[::1]:7003`, as `option` of the node
/// `own` has them. The error names the option and the part that is wrong.
pub fn parse_node_addresses(
    option: &str,
    text: &str,
    own: NodeId,
) -> Result<BTreeMap<NodeId, SocketAddr>, String> {
    let mut nodes = BTreeMap::new();
    for one in text.split(',') {
        let parsed = one.split_once('=').and_then(|(name, address)| {
            let number: u16 = name.strip_prefix('n').unwrap_or(name).parse().ok()?;
            let address = address.parse().ok()?;
            (number > 0).then(|| (NodeId::server(number.into()), address))
        });
        let (node, address) = parsed.ok_or_else(|| {
            format!(
                "--{option} takes nodes and addresses such as n2=127.0.0.1:7002,n3=…, not {one:?}"
            )
        })?;
        if node == own {
            return Err(format!("--{option}: {node} is this node itself"));
        }
        if nodes.insert(node, address).is_some() {
            return Err(format!("--{option}: {node} is given twice"));
        }
    }
    Ok(nodes)
}
