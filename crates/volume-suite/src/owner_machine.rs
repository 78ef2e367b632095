//! The machine that owns a volume, and how the host drives it.

use crate::parent_export::ParentExport;
use crate::replica_process::PROTOCOL;
use crate::volume_file::VolumeFile;
use seatrial_host::{
    Cluster, GuestOptions, PeerLimits, PeerOptions, StatusListener, TlsCredentials, random_bytes,
};
use seatrial_suite::SuiteError;
use seatrial_volume::{REPLICA_MESSAGE_MAX, Upstairs, UpstairsOptions};
use std::sync::Arc;
use std::time::Duration;

/// How a process owns a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerSettings {
    /// Bytes of writes that are not durable yet.
    pub(crate) memory: usize,
    /// Bytes of writes that are kept for a replica that is away.
    pub(crate) repair_memory: usize,
    /// Requests up to this length are encrypted in the machine's thread; `None`: the usual length.
    pub(crate) inline: Option<usize>,
    /// Serves the status page.
    pub(crate) http: Option<StatusListener>,
    /// Certificates of this side and of the replicas.
    pub(crate) tls: Option<TlsCredentials>,
}

/// The machine of a new owner, and the options of its driver.
pub(crate) fn owner_machine(
    file: &VolumeFile,
    settings: &OwnerSettings,
) -> Result<(Upstairs, GuestOptions), SuiteError> {
    let nodes = file.nodes();
    let start = u128::from_le_bytes(random_bytes()?).max(1);
    let replicas = nodes.keys().copied().collect();
    let mut options = UpstairsOptions::new(file.geometry, file.key()?, replicas, start);
    options.quorum = file.quorum;
    options.retained_bytes_max = settings.memory;
    options.kept_bytes_max = settings.repair_memory;
    if let Some(inline) = settings.inline {
        options.inline_bytes_max = inline;
    }
    if let Some(parent) = file.parent.clone() {
        options.parent = Some(Arc::new(ParentExport::new(parent, file.geometry.bytes())));
    }
    let guest = GuestOptions {
        message_length_max: REPLICA_MESSAGE_MAX,
        protocol: PROTOCOL,
        key: Some(file.link_key()?),
        peers: PeerOptions {
            cluster: Some(Cluster {
                id: file.cluster(),
                node: Cluster::GUEST,
                addresses: nodes,
            }),
            limits: PeerLimits {
                // The machine bounds what it sends; a message that is dropped is sent again.
                queue_bytes_max: 4 * settings.memory,
                // A replica that was away for a moment is back a moment later.
                retry_max: Duration::from_millis(300),
                ..PeerLimits::default()
            },
            ..PeerOptions::default()
        },
        http: settings.http.clone(),
        tls: settings.tls.clone(),
    };
    Ok((Upstairs::new(options), guest))
}
