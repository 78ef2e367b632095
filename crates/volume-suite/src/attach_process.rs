//! The process that owns a volume and serves it over NBD: `seatrial volume attach`.

use crate::control_socket;
use crate::nbd_server::{NbdAddress, NbdLimits, NbdServer, NbdSocket};
use crate::parent_export::ParentExport;
use crate::replica_process::PROTOCOL;
use crate::volume_calls::VolumeCalls;
use crate::volume_file::VolumeFile;
use seatrial_host::{
    Cluster, GuestOptions, PeerLimits, PeerOptions, StatusListener, random_bytes, serve_guest,
    terminated,
};
use seatrial_suite::{Report, SuiteError};
use seatrial_volume::nbd::NbdExport;
use seatrial_volume::{
    Geometry, GuestError, GuestReply, GuestRequest, MirrorStatus, REPLICA_MESSAGE_MAX, SweepKind,
    Upstairs, UpstairsOptions, VolumeStatus,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What the process needs.
pub(crate) struct AttachProcess {
    pub(crate) file: VolumeFile,
    pub(crate) nbd: NbdAddress,
    pub(crate) is_read_only: bool,
    /// Serves the status page.
    pub(crate) http: Option<StatusListener>,
    /// Bytes of writes that are not durable yet; NBD may have as much in flight again, four times.
    pub(crate) memory: usize,
}

/// Why the process ends by itself.
#[derive(Clone, Default)]
struct EndReason {
    reason: Arc<Mutex<Option<String>>>,
    changed: Arc<Notify>,
}

impl EndReason {
    fn end(&self, reason: String) {
        let mut kept = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(reason);
        self.changed.notify_one();
    }

    fn take(&self) -> Option<String> {
        let mut kept = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take()
    }
}

/// Interval of asking whether the volume is still active.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Time without an activation after which the state of the replicas is reported.
const REPORT_AFTER: Duration = Duration::from_secs(2);

impl AttachProcess {
    /// Attaches and serves until SIGTERM or Ctrl-C, or until another upstairs takes the volume over.
    pub(crate) fn run(self, report: Report) -> Result<(), SuiteError> {
        let file = &self.file;
        let nodes = file.nodes();
        let upstairs = u128::from_le_bytes(random_bytes()?).max(1);
        let mut options = UpstairsOptions::new(
            file.geometry,
            file.key()?,
            nodes.keys().copied().collect(),
            upstairs,
        );
        options.quorum = file.quorum;
        options.retained_bytes_max = self.memory;
        if let Some(parent) = file.parent.clone() {
            options.parent = Some(Arc::new(ParentExport::new(parent, file.geometry.bytes())));
        }
        let control = control_socket::path_of(&file.folder);
        let (calls, callers) = VolumeCalls::new::<Upstairs>();
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
                    queue_bytes_max: 4 * self.memory,
                    // A replica that was away for a moment is back a moment later.
                    retry_max: Duration::from_millis(300),
                    ..PeerLimits::default()
                },
                ..PeerOptions::default()
            },
            http: self.http.clone(),
            tls: None,
        };
        let reason = EndReason::default();
        let (ended, signalled) = (reason.clone(), reason.changed.clone());
        let ready = move || {
            let ended = reason.clone();
            tokio::spawn(async move {
                if let Err(error) = self.serve(calls, &control, report).await {
                    ended.end(error.to_string());
                }
            });
        };
        let stop = async {
            tokio::select! {
                () = terminated() => report(format_args!("detaching")),
                () = signalled.notified() => {}
            }
        };
        let machine = Upstairs::new(options);
        serve_guest(
            guest,
            machine,
            GuestRequest::Deactivate,
            callers,
            ready,
            stop,
        )?;
        ended.take().map_or(Ok(()), |reason| Err(reason.into()))
    }

    /// Activates the volume, then serves guests and commands until the volume is lost.
    async fn serve(
        self,
        calls: VolumeCalls,
        control: &std::path::Path,
        report: Report,
    ) -> Result<(), SuiteError> {
        // One upstairs for a folder: a second one would only take the volume from the first.
        let control = control_socket::bind(control).map_err(|error| {
            let shown = control.display();
            format!("{shown}: {error}; is the volume attached by another process?")
        })?;
        activate(&calls, report).await?;
        let Geometry {
            block_length,
            volume,
            ..
        } = self.file.geometry;
        let export = NbdExport {
            name: "volume".to_owned(),
            description: format!("volume {volume}"),
            bytes: self.file.geometry.bytes(),
            block_length,
            is_read_only: self.is_read_only,
            snapshot: None,
        };
        let limits = NbdLimits {
            bytes_max: 4 * self.memory,
            ..NbdLimits::default()
        };
        let nbd = &self.nbd;
        let socket = NbdSocket::bind(nbd)
            .await
            .map_err(|error| format!("cannot listen on {nbd}: {error}"))?;
        let address = socket.address().clone();
        report(format_args!("attached: {address}"));
        let server = NbdServer::new(export, limits, calls.clone());
        tokio::select! {
            () = server.run(socket) => {}
            () = control.serve(&calls, &address, &self.file) => {}
            lost = watch(&calls, &self.file, report) => lost?,
        }
        Ok(())
    }
}

/// Activates the volume; meanwhile reports what the replicas lack.
async fn activate(calls: &VolumeCalls, report: Report) -> Result<(), SuiteError> {
    let begun = Instant::now();
    let mut reported = String::new();
    loop {
        let activated = calls.call(GuestRequest::Activate { generation: None });
        tokio::pin!(activated);
        let reply = loop {
            tokio::select! {
                reply = &mut activated => break reply,
                () = tokio::time::sleep(Duration::from_millis(500)) => {
                    if begun.elapsed() > REPORT_AFTER {
                        report_replicas(calls, report, &mut reported).await;
                    }
                }
            }
        };
        match reply {
            Some(GuestReply::Done) => return Ok(()),
            Some(GuestReply::Failed(error @ GuestError::Deposed { .. })) => {
                return Err(error.into());
            }
            Some(GuestReply::Failed(error)) => {
                let text = format!("not active yet: {error}");
                if text != reported {
                    report(format_args!("{text}"));
                    reported = text;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Some(_) | None => return Err("the volume has ended".into()),
        }
    }
}

/// Reports the state of the replicas, unless that was the last report.
async fn report_replicas(calls: &VolumeCalls, report: Report, reported: &mut String) {
    let Some(GuestReply::Status(status)) = calls.call(GuestRequest::Status).await else {
        return;
    };
    let text = format!("waiting for a quorum: {}", replicas_text(&status));
    if text != *reported {
        report(format_args!("{text}"));
        *reported = text;
    }
}

/// The states of the replicas, on one line.
fn replicas_text(status: &VolumeStatus) -> String {
    let state = |it: &MirrorStatus| {
        if it.reason.is_empty() {
            format!("{} {}", it.node, it.state)
        } else {
            format!("{} {} ({})", it.node, it.state, it.reason)
        }
    };
    let states: Vec<String> = status.replicas.iter().map(state).collect();
    states.join(", ")
}

/// Reports when replicas change their state; activates again when the volume has become inactive. Fails when it cannot be used
/// any more.
async fn watch(calls: &VolumeCalls, file: &VolumeFile, report: Report) -> Result<(), SuiteError> {
    let mut reported = String::new();
    loop {
        let Some(GuestReply::Status(status)) = calls.call(GuestRequest::Status).await else {
            return Err("the volume has ended".into());
        };
        let text = replicas_text(&status);
        if text != reported {
            report(format_args!("{text}"));
            reported = text;
        }
        if !status.is_active {
            activate(calls, report).await?;
        }
        forget_unneeded(&status, file, report)?;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Removes the parent and earlier keys from the volume's files when no block needs them.
fn forget_unneeded(
    status: &VolumeStatus,
    file: &VolumeFile,
    report: Report,
) -> Result<(), SuiteError> {
    for sweep in &status.sweeps {
        if !sweep.is_done || sweep.failed > 0 || !sweep.needed_by.is_empty() {
            continue;
        }
        // As it is now: commands change it.
        let mut now = VolumeFile::read(&file.folder)?;
        match sweep.kind {
            SweepKind::Fill if now.parent.take().is_some() => {
                now.write()?;
                report(format_args!(
                    "all blocks are here: the parent is no longer needed"
                ));
            }
            SweepKind::Rekey if !status.epoch.1 => {
                let mut keys = now.keys()?;
                let newest = keys.split_off(&status.epoch.0);
                // A key that was added meanwhile needs those before it.
                if !keys.is_empty() && newest.len() == 1 {
                    now.write_keys(&newest)?;
                    let epoch = status.epoch.0;
                    report(format_args!(
                        "all blocks have key {epoch}: earlier ones are removed"
                    ));
                }
            }
            SweepKind::Fill | SweepKind::Rekey | SweepKind::Repair => {}
        }
    }
    Ok(())
}
