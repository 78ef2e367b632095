//! The process that owns a volume and serves it over NBD: `seatrial volume attach`.

use crate::control_socket;
use crate::locked_volume::LockedVolume;
use crate::nbd_server::{NbdAddress, NbdLimits, NbdServer, NbdSocket};
use crate::owner_machine::{OwnerSettings, owner_machine};
use crate::volume_calls::VolumeCalls;
use crate::volume_file::VolumeFile;
use seatrial_host::{serve_guest, terminated};
use seatrial_nbd::NbdExport;
use seatrial_suite::{Report, SuiteError};
use seatrial_volume::{
    Geometry, GuestError, GuestReply, GuestRequest, MirrorStatus, SweepKind, Upstairs, VolumeStatus,
};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What the process needs.
pub(crate) struct AttachProcess {
    pub(crate) file: VolumeFile,
    pub(crate) nbd: NbdAddress,
    pub(crate) is_read_only: bool,
    /// NBD may have four times as many bytes in flight as there may be writes that are not durable.
    pub(crate) settings: OwnerSettings,
}

/// Why the process ends with an error.
#[derive(Clone, Default)]
struct EndReason {
    reason: Arc<Mutex<Option<String>>>,
    changed: Arc<Notify>,
    /// Is the volume given up? Then it is not activated again.
    is_detaching: Arc<AtomicBool>,
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
/// Time limit of the last flush, which needs a quorum.
const DETACH_MAX: Duration = Duration::from_secs(10);
/// Time without an activation after which the state of the replicas is reported.
const REPORT_AFTER: Duration = Duration::from_secs(2);

impl AttachProcess {
    /// Attaches and serves until SIGTERM or Ctrl-C, or until another upstairs takes the volume over.
    pub(crate) fn run(self, report: Report) -> Result<(), SuiteError> {
        let (machine, guest) = owner_machine(&self.file, &self.settings)?;
        let control = control_socket::path_of(&self.file.folder);
        let (calls, callers) = VolumeCalls::new::<Upstairs>();
        let reason = EndReason::default();
        let (ended, stopping, detaching) = (reason.clone(), reason.clone(), calls.clone());
        let ready = move || {
            tokio::spawn(async move {
                if let Err(error) = self.serve(calls, &control, &reason, report).await {
                    reason.end(error.to_string());
                }
            });
        };
        let stop = async {
            tokio::select! {
                () = terminated() => {
                    report(format_args!("detaching"));
                    stopping.is_detaching.store(true, Ordering::Relaxed);
                    if let Err(reason) = detach(&detaching).await {
                        stopping.end(reason);
                    }
                }
                () = stopping.changed.notified() => {}
            }
        };
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
        reason: &EndReason,
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
            bytes_max: 4 * self.settings.memory,
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
            lost = watch(&calls, &self.file, reason, report) => lost?,
        }
        Ok(())
    }
}

/// Gives the volume up: the last writes become durable on a quorum first. The error says what may be lost.
async fn detach(calls: &VolumeCalls) -> Result<(), String> {
    let closed = tokio::select! {
        closed = tokio::time::timeout(DETACH_MAX, calls.call(GuestRequest::Deactivate)) => closed,
        // A second signal does not wait.
        () = terminated() => tokio::time::timeout(Duration::ZERO, pending()).await,
    };
    match closed {
        // Without an activation there are no writes.
        Ok(Some(GuestReply::Done | GuestReply::Failed(GuestError::Inactive)) | None) => Ok(()),
        Ok(Some(GuestReply::Failed(error))) => Err(error.to_string()),
        Ok(Some(_)) => unreachable!("a volume that is given up replies with no data"),
        Err(_) => {
            let status = match calls.call(GuestRequest::Status).await {
                Some(GuestReply::Status(status)) => replicas_text(&status),
                _ => String::new(),
            };
            Err(format!(
                "the last writes are not durable on a quorum and may be lost: {status}"
            ))
        }
    }
}

/// Activates the volume; meanwhile reports what the replicas lack.
pub(crate) async fn activate(calls: &VolumeCalls, report: Report) -> Result<(), SuiteError> {
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
async fn watch(
    calls: &VolumeCalls,
    file: &VolumeFile,
    reason: &EndReason,
    report: Report,
) -> Result<(), SuiteError> {
    let mut reported = String::new();
    let mut failed = String::new();
    loop {
        let Some(GuestReply::Status(status)) = calls.call(GuestRequest::Status).await else {
            return Err("the volume has ended".into());
        };
        let text = replicas_text(&status);
        if text != reported {
            report(format_args!("{text}"));
            reported = text;
        }
        if !status.is_active && !reason.is_detaching.load(Ordering::Relaxed) {
            activate(calls, report).await?;
        }
        // A volume is served whether or not its files can be changed.
        let error = forget_unneeded(&status, file, report).err();
        let error = error.map(|it| it.to_string()).unwrap_or_default();
        if !error.is_empty() && error != failed {
            report(format_args!("{error}; it is tried again"));
        }
        failed = error;
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
        // As it is now: commands change it. What a command holds is tried again at the next look.
        let Some(mut now) = LockedVolume::try_open(&file.folder)? else {
            return Ok(());
        };
        match sweep.kind {
            SweepKind::Fill if now.file.parent.take().is_some() => {
                now.write()?;
                report(format_args!(
                    "all blocks are here: the parent is no longer needed"
                ));
            }
            SweepKind::Rekey if !status.epoch.1 => {
                let mut keys = now.file.keys()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_file::{FILE_NAME, KEY_NAME};
    use crate::volume_tools::make_volume;
    use seatrial_volume::{BlockKey, SweepStatus, VolumeId};
    use std::path::Path;

    /// A clone whose last block has been copied, in a new folder.
    fn filled_clone(folder: &Path) -> (VolumeFile, VolumeStatus) {
        let file = VolumeFile {
            folder: folder.to_owned(),
            geometry: Geometry {
                volume: VolumeId(0x1234),
                block_length: 4_096,
                blocks: 64,
            },
            replicas: vec!["127.0.0.1:7501".parse().unwrap()],
            quorum: 1,
            needs_tls: false,
            key_check: None,
            parent: Some((NbdAddress::Unix("/parent/nbd".into()), "volume@s".into())),
        };
        make_volume(&file).unwrap();
        let fill = SweepStatus {
            kind: SweepKind::Fill,
            looked: 64,
            blocks: 64,
            changed: 64,
            failed: 0,
            is_done: true,
            needed_by: Vec::new(),
            reason: String::new(),
        };
        let status = VolumeStatus {
            sweeps: vec![fill],
            ..VolumeStatus::default()
        };
        (VolumeFile::read(folder).unwrap(), status)
    }

    fn forget(status: &VolumeStatus, file: &VolumeFile) -> Result<(), String> {
        forget_unneeded(status, file, |_| {}).map_err(|error| error.to_string())
    }

    /// What CI met: the status is of before `rotate`, the parent is removed after it.
    #[test]
    fn a_parent_is_removed_beside_a_new_key() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, status) = filled_clone(scratch.path());
        let mut rotated = LockedVolume::open(scratch.path()).unwrap();
        let mut keys = rotated.file.keys().unwrap();
        keys.insert(1, BlockKey([1; seatrial_volume::KEY_LENGTH]));
        rotated.file.key_check = Some("of the new key".to_owned());
        // Nothing is changed as long as the command has the lock.
        assert_eq!(forget(&status, &file), Ok(()));
        assert_eq!(VolumeFile::read(scratch.path()).unwrap(), file);
        rotated.write_keys(&keys).unwrap();
        rotated.write().unwrap();
        drop(rotated);
        assert_eq!(forget(&status, &file), Ok(()));
        let now = VolumeFile::read(scratch.path()).unwrap();
        assert_eq!(
            (now.parent, now.key_check.as_deref()),
            (None, Some("of the new key"))
        );
        let text = std::fs::read_to_string(scratch.path().join(KEY_NAME)).unwrap();
        assert_eq!(text.lines().count(), 2, "both keys are needed");
    }

    #[test]
    fn an_error_is_the_same_until_it_is_gone() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, status) = filled_clone(scratch.path());
        let obstacle = scratch.path().join(format!("{FILE_NAME}.partial"));
        std::fs::create_dir(&obstacle).unwrap();
        let error = forget(&status, &file).unwrap_err();
        assert!(error.contains(FILE_NAME), "{error}");
        assert_eq!(forget(&status, &file).unwrap_err(), error);
        assert!(VolumeFile::read(scratch.path()).unwrap().parent.is_some());
        std::fs::remove_dir(&obstacle).unwrap();
        assert_eq!(forget(&status, &file), Ok(()));
        assert!(VolumeFile::read(scratch.path()).unwrap().parent.is_none());
    }
}
