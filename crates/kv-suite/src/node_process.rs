//! The process of one node.

use crate::checkpoint_options::CheckpointOptions;
use crate::credentials::Credentials;
use crate::node_cluster::NodeCluster;
use crate::processes::PROTOCOL;
use crate::{HTTP, LOG, LOG_BLOCKS, MEMORY, PAST_STATES, store_bug};
use seatrial_host::{
    Booted, HostLimits, PeerOptions, ServeOptions, StatusListener, serve, terminated,
};
use seatrial_kv::{BootReport, Bug, Replica, ReplicaOptions, WIRE_LENGTH_MAX};
use seatrial_kv_protocol::PAST_STATES_MAX;
use seatrial_machine::{DataFolder, DirectWrites, LogName, NodeId, OpenLog};
use seatrial_suite::{NodeSetup, OptionValues, SuiteError};
use std::net::{Ipv4Addr, SocketAddr};

/// Maximum number of states that stay readable.
const STATES_MAX: u64 = PAST_STATES_MAX as u64;
/// Most files of freed segments of a journal that are kept to be written over. Its blocks are numbered, so old bytes after its
/// end are never taken for new ones.
pub(crate) const JOURNAL_SPARES: usize = 2;

/// Serves until SIGTERM or Ctrl-C.
pub(crate) fn run(setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
    let report = setup.report;
    let bug = store_bug(setup.bug);
    if let Some(bug) = bug {
        report(format_args!("planted bug: {bug}"));
    }
    let mebibytes = setup
        .options
        .number(MEMORY, 64..=u64::from(u32::MAX), 256)?;
    let memory = usize::try_from(mebibytes << 20).unwrap_or(usize::MAX);
    let checkpoints = CheckpointOptions::read(setup.options)?;
    let cluster = NodeCluster::read(setup.options)?;
    let keeps_log = keeps_log(setup.options)?;
    let past_states = setup.options.number(PAST_STATES, 0..=STATES_MAX, 0)? as usize;
    let log_blocks = setup.options.number(LOG_BLOCKS, 1..=64, 1)? as usize;
    if !keeps_log {
        report(format_args!(
            "--{LOG} none: a crash or a stop loses all writes after the newest checkpoint"
        ));
    }
    let Credentials { key, tls } = node_credentials(setup, cluster.node)?;
    let options = ServeOptions {
        listen: setup.listen,
        data: setup.data.to_owned(),
        message_length_max: WIRE_LENGTH_MAX,
        limits: HostLimits {
            // Large, because clients send one request and wait: a client that does not read its replies sends no further
            // request.
            connection_send_bytes_pause: 1 << 20,
            ..HostLimits::within(memory)
        },
        protocol: PROTOCOL,
        key,
        peers: PeerOptions {
            cluster: Some(cluster.cluster()),
            ..PeerOptions::default()
        },
        http: status_listener(setup, &format!("kv {}", cluster.node))?,
        tls,
        clock: setup.clock.map(ToOwned::to_owned),
    };
    let boot = |data: &DataFolder| {
        let mut options = replica_options(&cluster, bug);
        options.replies_bytes_max = memory / 8;
        options.keeps_log = keeps_log;
        options.past_states = past_states;
        options.log_blocks = log_blocks;
        checkpoints.apply(&mut options);
        let (machine, found) = Replica::boot(data, options).map_err(|error| error.to_string())?;
        report_start(report, &cluster, &found);
        let log = OpenLog {
            spares_max: JOURNAL_SPARES,
            direct: DirectWrites::WholeUnits,
            ..OpenLog::new(LogName::MAIN, found.recovery.end)
        };
        Ok(Booted {
            machine,
            logs: vec![log],
        })
    };
    let ready = |address| report(format_args!("listening on {address}"));
    let stop = async {
        terminated().await;
        report(format_args!("ending"));
    };
    serve(&options, boot, ready, stop)?;
    Ok(())
}

/// The options of a replica that starts now; the rest is as it is without options.
fn replica_options(cluster: &NodeCluster, bug: Option<Bug>) -> ReplicaOptions {
    let seed = seed();
    ReplicaOptions {
        cluster: cluster.cluster,
        seed,
        incarnation: seed,
        bug,
        ..ReplicaOptions::new(cluster.node, cluster.voters.iter().copied())
    }
}

/// Reports what was found in the folder.
fn report_start(report: fn(std::fmt::Arguments<'_>), cluster: &NodeCluster, found: &BootReport) {
    report(format_args!(
        "{} of cluster {}, start {}: checkpoint {}, {} entries from {} bytes of journal",
        cluster.node,
        cluster.cluster,
        found.start,
        found.checkpoint,
        found.entries,
        found.recovery.end
    ));
    if let Some(problem) = &found.lost {
        report(format_args!(
            "the journal is lost: {problem}; {} is silent until the leader lets it rejoin",
            cluster.node
        ));
    }
    for damage in &found.damaged {
        report(format_args!("an older checkpoint was taken: {damage}"));
    }
    if let Some(torn) = &found.recovery.torn {
        report(format_args!("cut off: {torn}"));
    }
}

/// Key and certificates. A certificate without this node's names is refused here: others would refuse it later.
fn node_credentials(setup: &NodeSetup<'_>, node: NodeId) -> Result<Credentials, SuiteError> {
    let credentials = Credentials::read(setup.options)?;
    if let Some(tls) = &credentials.tls {
        tls.check_node(&node.to_string())?;
    }
    Ok(credentials)
}

/// The option `--log`.
fn keeps_log(options: &OptionValues) -> Result<bool, SuiteError> {
    match options.get(LOG).map(|mode| mode.to_string_lossy()) {
        None => Ok(true),
        Some(mode) if mode == "synced" => Ok(true),
        Some(mode) if mode == "none" => Ok(false),
        Some(mode) => Err(format!("--{LOG} takes synced or none, not {mode}").into()),
    }
}

/// Listens for requests for the status, if an address is given.
fn status_listener(
    setup: &NodeSetup<'_>,
    title: &str,
) -> Result<Option<StatusListener>, SuiteError> {
    let Some(text) = setup.options.get(HTTP) else {
        return Ok(None);
    };
    let address = status_address(&text.to_string_lossy())?;
    let listener = StatusListener::bind(address, title)?;
    (setup.report)(format_args!(
        "status page at http://{}/",
        listener.address()
    ));
    Ok(Some(listener))
}

/// The address that `--http` names. A port alone is one of this machine only: others are reached by no oversight.
fn status_address(text: &str) -> Result<SocketAddr, SuiteError> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        format!(
            "--{HTTP} takes a port, or an address and port such as 127.0.0.1:9400, not {text:?}"
        )
        .into()
    })
}

/// A seed for election timeouts, which must differ between the nodes.
fn seed() -> u64 {
    std::time::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_nanos() as u64
        ^ u64::from(std::process::id()) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        let shown = |text| status_address(text).map(|it| it.to_string());
        assert_eq!(shown("9400").unwrap(), "127.0.0.1:9400");
        assert_eq!(shown("0.0.0.0:9400").unwrap(), "0.0.0.0:9400");
        assert_eq!(shown("[::1]:0").unwrap(), "[::1]:0");
        for wrong in ["", "here", "localhost", "70000", "127.0.0.1"] {
            let error = shown(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("not {wrong:?}")), "{error}");
        }
    }
}
