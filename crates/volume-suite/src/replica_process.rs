//! The process of one replica: `seatrial volume downstairs`.

use crate::volume_file::VolumeFile;
use seatrial_files::SystemMemory;
use seatrial_host::{
    Cluster, HostLimits, PeerOptions, Protocol, ServeOptions, StatusListener, TlsCredentials,
    serve, terminated,
};
use seatrial_machine::{DataFolder, NodeId};
use seatrial_suite::{Report, SuiteError};
use seatrial_volume::{Downstairs, DownstairsOptions, REPLICA_MESSAGE_MAX};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The protocol of an upstairs and its replicas.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "volume",
    version: 3,
    refuse_old: |_| None,
};

/// What a replica's process needs.
pub(crate) struct ReplicaProcess {
    pub(crate) file: VolumeFile,
    pub(crate) node: NodeId,
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) http: Option<StatusListener>,
    /// Certificates of this replica and of its owners.
    pub(crate) tls: Option<TlsCredentials>,
}

/// Bound of a replica's connections in bytes. One upstairs may ask for as many bytes as its guests have in flight, and all
/// replies may wait for its connection.
const LIMITS_MEMORY: usize = 1 << 30;
/// One part in this many of the memory that is available holds the log in the system's cache: three replicas may share a machine.
const CACHE_DIVISOR: u64 = 4;

impl ReplicaProcess {
    /// Serves until SIGTERM or Ctrl-C.
    pub(crate) fn run(self, report: Report) -> Result<(), SuiteError> {
        let ReplicaProcess {
            file,
            node,
            data,
            listen,
            http,
            tls,
        } = self;
        let within = HostLimits::within(LIMITS_MEMORY);
        let options = ServeOptions {
            listen,
            data,
            message_length_max: REPLICA_MESSAGE_MAX,
            limits: HostLimits {
                receive_bytes_max: 64 << 20,
                connection_send_bytes_max: within.send_bytes_max,
                connection_send_bytes_pause: 64 << 20,
                ..within
            },
            protocol: PROTOCOL,
            key: Some(file.link_key()?),
            peers: PeerOptions {
                cluster: Some(Cluster {
                    id: file.cluster(),
                    node,
                    addresses: BTreeMap::new(),
                }),
                ..PeerOptions::default()
            },
            http,
            tls,
            clock: None,
        };
        let boot = |data: &DataFolder| {
            let mut options = DownstairsOptions::new(file.geometry);
            options.cache_bytes = SystemMemory.available().unwrap_or(u64::MAX) / CACHE_DIVISOR;
            let (booted, found) =
                Downstairs::boot(data, options).map_err(|error| error.to_string())?;
            let volume = file.geometry.volume;
            if found.is_new {
                report(format_args!("{node} of volume {volume}: new and empty"));
            } else {
                let (end, replayed) = (found.end, found.replayed);
                report(format_args!(
                    "{node} of volume {volume}: {end} bytes of log, {replayed} of them read"
                ));
            }
            for damage in &found.damaged {
                report(format_args!("damaged, repaired from the others: {damage}"));
            }
            if let Some(torn) = &found.torn {
                report(format_args!("cut off: {torn}"));
            }
            Ok(booted)
        };
        let ready = |address| report(format_args!("listening on {address}"));
        let stop = async {
            terminated().await;
            report(format_args!("ending"));
        };
        serve(&options, boot, ready, stop)?;
        Ok(())
    }
}
