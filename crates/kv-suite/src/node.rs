//! The process of one node.

use crate::checkpoint_options::CheckpointOptions;
use crate::node_cluster::NodeCluster;
use crate::processes::PROTOCOL;
use crate::{LOG, MEMORY, read_key, store_bug};
use seatrial_host::{Booted, HostLimits, PeerOptions, ServeOptions, serve, terminated};
use seatrial_kv::{BootReport, Replica, ReplicaOptions, WIRE_LENGTH_MAX};
use seatrial_machine::{DataFolder, LogName, OpenLog};
use seatrial_suite::{NodeSetup, OptionValues, SuiteError};

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
    if !keeps_log {
        report(format_args!(
            "--{LOG} none: a crash or a stop loses all writes after the newest checkpoint"
        ));
    }
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
        key: read_key(setup.options)?,
        peers: PeerOptions {
            cluster: Some(cluster.cluster()),
            ..PeerOptions::default()
        },
        clock: setup.clock.map(ToOwned::to_owned),
    };
    let boot = |data: &DataFolder| {
        let mut options = ReplicaOptions::new(cluster.node, cluster.voters.iter().copied());
        options.cluster = cluster.cluster;
        options.seed = seed();
        options.bug = bug;
        options.replies_bytes_max = memory / 8;
        options.keeps_log = keeps_log;
        checkpoints.apply(&mut options);
        let (machine, found) = Replica::boot(data, options).map_err(|error| error.to_string())?;
        report_start(report, &cluster, &found);
        // The journal's blocks are numbered, so old bytes after its end are never taken for new ones.
        let log = OpenLog {
            reuses_segments: true,
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
    for damage in &found.damaged {
        report(format_args!("an older checkpoint was taken: {damage}"));
    }
    if let Some(torn) = &found.recovery.torn {
        report(format_args!("cut off: {torn}"));
    }
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

/// A seed for election timeouts, which must differ between the nodes.
fn seed() -> u64 {
    std::time::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_nanos() as u64
        ^ u64::from(std::process::id()) << 32
}
