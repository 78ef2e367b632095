//! The process of one node of a test: a replica, or the upstairs.

use crate::replica_process::PROTOCOL;
use crate::volume_bug;
use crate::volume_world::GEOMETRY;
use seatrial_host::{
    Booted, Cluster, HostLimits, PeerOptions, ServeOptions, random_bytes, serve, terminated,
};
use seatrial_machine::{DataFolder, NodeId};
use seatrial_suite::{NodeSetup, Report, SuiteError, parse_node_addresses};
use seatrial_volume::{
    Downstairs, DownstairsOptions, GUEST_MESSAGE_MAX, KeyRing, REPLICA_MESSAGE_MAX, Upstairs,
    UpstairsOptions, UpstairsServer, VolumeBug,
};
use std::time::Duration;

/// Number of this node.
pub(crate) const NODE: &str = "node";
/// The other nodes.
pub(crate) const PEERS: &str = "peers";

/// Bound of the memory of a node's connections, in bytes.
const MEMORY: usize = 256 << 20;
/// The key of the volume of tests. It protects nothing: the volume has only numbers.
const TEST_KEY: [u8; 32] = [7; 32];

/// Serves until SIGTERM or Ctrl-C: the largest number of all nodes is the upstairs, the others are replicas.
pub(crate) fn run(setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
    let report = setup.report;
    let bug = volume_bug(setup.bug);
    if let Some(bug) = bug {
        report(format_args!("planted bug: {bug}"));
    }
    let node = setup.options.number(NODE, 1..=u64::from(u16::MAX), 1)?;
    let node = NodeId::server(node as u32);
    let peers = setup.options.get(PEERS).ok_or_else(|| {
        format!("--{PEERS} is missing: a node of a test of a volume knows the others (a volume of your own: seatrial volume create)")
    })?;
    let peers = parse_node_addresses(PEERS, &peers.to_string_lossy(), node)?;
    let is_upstairs = peers.keys().all(|other| *other < node);
    let replicas: Vec<NodeId> = peers.keys().copied().collect();
    let options = ServeOptions {
        listen: setup.listen,
        data: setup.data.to_owned(),
        message_length_max: REPLICA_MESSAGE_MAX.max(GUEST_MESSAGE_MAX),
        limits: HostLimits {
            connection_send_bytes_pause: 4 << 20,
            ..HostLimits::within(MEMORY)
        },
        protocol: PROTOCOL,
        key: None,
        tls: None,
        peers: PeerOptions {
            cluster: Some(Cluster {
                id: 1,
                node,
                addresses: peers,
            }),
            ..PeerOptions::default()
        },
        http: None,
        clock: setup.clock.map(ToOwned::to_owned),
    };
    let ready = |address| report(format_args!("listening on {address}"));
    let stop = async {
        terminated().await;
        report(format_args!("ending"));
    };
    if is_upstairs {
        let start = u128::from_le_bytes(random_bytes()?).max(1);
        let boot = |_: &DataFolder| Ok(Booted::new(upstairs(replicas, start, bug)));
        return Ok(serve(&options, boot, ready, stop)?);
    }
    let boot = |data: &DataFolder| replica(data, node, bug, report);
    serve(&options, boot, ready, stop)?;
    Ok(())
}

fn upstairs(replicas: Vec<NodeId>, start: u128, bug: Option<VolumeBug>) -> UpstairsServer {
    let keys = KeyRing::new(GEOMETRY.volume, &TEST_KEY);
    let options = UpstairsOptions {
        activates: true,
        // Short, so that a test of seconds sees many repairs.
        silence: Duration::from_secs(1),
        bug,
        ..UpstairsOptions::new(GEOMETRY, keys, replicas, start)
    };
    UpstairsServer::new(Upstairs::new(options), start as u64)
}

fn replica(
    data: &DataFolder,
    node: NodeId,
    bug: Option<VolumeBug>,
    report: Report,
) -> Result<Booted<Downstairs>, String> {
    let options = DownstairsOptions {
        // Small, so that the head of the log is cleaned within a test.
        map_interval: 1 << 20,
        log_slack: 2 << 20,
        segment_length: 512 << 10,
        bug,
        ..DownstairsOptions::new(GEOMETRY)
    };
    let (booted, found) = Downstairs::boot(data, options).map_err(|it| it.to_string())?;
    report(format_args!(
        "{node}: {} bytes of log, {} of them read",
        found.end, found.replayed
    ));
    for damage in &found.damaged {
        report(format_args!("damaged, repaired from the others: {damage}"));
    }
    if let Some(torn) = &found.torn {
        report(format_args!("cut off: {torn}"));
    }
    Ok(booted)
}
