//! The socket over which commands reach the process that has a volume attached.
//!
//! A Unix socket in the volume's folder, for this user only. A request is one line of words, the reply one line of JSON: an
//! object with `error` if the request failed.

use crate::nbd_server::NbdAddress;
use crate::volume_calls::VolumeCalls;
use crate::volume_file::VolumeFile;
use seatrial_machine::NodeId;
use seatrial_suite::SuiteError;
use seatrial_volume::{
    GuestReply, GuestRequest, MirrorStatus, StageStatus, SweepStatus, VolumeStatus,
};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

/// Name of the socket.
pub(crate) const CONTROL_NAME: &str = "control";

/// Longest request in bytes.
const LINE_MAX: u64 = 1_024;
/// Longest reply in bytes.
const REPLY_MAX: u64 = 1 << 20;
/// Time limit of reading a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of a reply: a snapshot waits for every replica.
const REPLY_PATIENCE: Duration = Duration::from_mins(1);

/// The socket of a volume's folder.
pub(crate) fn path_of(folder: &Path) -> PathBuf {
    folder.join(CONTROL_NAME)
}

/// A listening control socket; its file is removed with it.
pub(crate) struct ControlListener {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // the folder may be gone
    }
}

/// Listens; the file of a process that was killed is replaced.
pub(crate) fn bind(path: &Path) -> io::Result<ControlListener> {
    crate::nbd_server::remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(ControlListener {
        listener,
        path: path.to_owned(),
    })
}

impl ControlListener {
    /// Serves commands for ever; `nbd` is where NBD clients attach.
    pub(crate) async fn serve(&self, calls: &VolumeCalls, nbd: &NbdAddress, file: &VolumeFile) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (calls, nbd, file) = (calls.clone(), nbd.clone(), file.clone());
            tokio::spawn(async move {
                if let Err(error) = serve_command(stream, &calls, &nbd, &file).await {
                    tracing::debug!("a command was not served: {error}");
                }
            });
        }
    }
}

/// Reads one request and writes its reply.
async fn serve_command(
    mut stream: tokio::net::UnixStream,
    calls: &VolumeCalls,
    nbd: &NbdAddress,
    file: &VolumeFile,
) -> io::Result<()> {
    let mut line = String::new();
    let (reading, mut writing) = stream.split();
    let mut reading = tokio::io::BufReader::new(reading.take(LINE_MAX));
    tokio::time::timeout(PATIENCE, reading.read_line(&mut line)).await??;
    let reply = tokio::time::timeout(REPLY_PATIENCE, execute(calls, nbd, file, line.trim())).await;
    let reply = reply.unwrap_or_else(|_| json!({ "error": "timed out" }));
    let text = format!("{reply}\n");
    tokio::time::timeout(PATIENCE, writing.write_all(text.as_bytes())).await?
}

/// Carries out one request.
async fn execute(calls: &VolumeCalls, nbd: &NbdAddress, file: &VolumeFile, line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    let request = match words[..] {
        ["status"] => Some(GuestRequest::Status),
        ["flush"] => Some(GuestRequest::Flush),
        ["repair"] => Some(GuestRequest::Repair),
        ["rotate"] => match newest_key(file) {
            Ok(request) => Some(request),
            Err(error) => return json!({ "error": error.to_string() }),
        },
        ["snapshot", name] => Some(GuestRequest::Snapshot(name.to_owned())),
        ["drop-snapshot", name] => Some(GuestRequest::DropSnapshot(name.to_owned())),
        ["replace", node, address] => parse_node(node)
            .zip(address.parse().ok())
            .map(|(replica, address)| GuestRequest::Replace { replica, address }),
        _ => None,
    };
    let Some(request) = request else {
        return json!({ "error": format!("unknown request {line:?}") });
    };
    match calls.call(request).await {
        Some(GuestReply::Status(status)) => status_json(&status, nbd),
        Some(GuestReply::Failed(error)) => json!({ "error": error.to_string() }),
        Some(_) => json!({}),
        None => json!({ "error": "the volume has ended" }),
    }
}

/// The request that adds the newest key of the file.
fn newest_key(file: &VolumeFile) -> Result<GuestRequest, SuiteError> {
    let (epoch, key) = VolumeFile::read(&file.folder)?
        .keys()?
        .pop_last()
        .ok_or("there is no key")?;
    Ok(GuestRequest::AddKey { epoch, key })
}

/// Parses `n2` or `2`.
pub(crate) fn parse_node(text: &str) -> Option<NodeId> {
    let number: u16 = text.strip_prefix('n').unwrap_or(text).parse().ok()?;
    (number > 0).then(|| NodeId::server(number.into()))
}

fn status_json(status: &VolumeStatus, nbd: &NbdAddress) -> Value {
    let [reads, writes, flushes, trims] = status.done;
    let [bytes_read, bytes_written] = status.bytes;
    let replicas: Vec<Value> = status.replicas.iter().map(replica_json).collect();
    json!({
        "active": status.is_active,
        "generation": status.generation,
        "flush": status.flush,
        "retained_bytes": status.retained_bytes,
        "requests": status.requests,
        "reads": reads,
        "writes": writes,
        "flushes": flushes,
        "trims": trims,
        "bytes_read": bytes_read,
        "bytes_written": bytes_written,
        "replies": status.replies,
        "failed": status.failed,
        "nbd": nbd.option_text(),
        "replicas": replicas,
        "snapshots": status.snapshots,
        "key": status.epoch.0,
        "earlier_keys": status.epoch.1,
        "stages": status.stages.iter().map(stage_json).collect::<Vec<Value>>(),
        "sweeps": status.sweeps.iter().map(sweep_json).collect::<Vec<Value>>(),
    })
}

/// Durations in microseconds.
fn stage_json(stage: &StageStatus) -> Value {
    let micros = |it: Duration| it.as_secs_f64() * 1e6;
    json!({
        "name": stage.name,
        "count": stage.count,
        "p50_us": micros(stage.p50),
        "p99_us": micros(stage.p99),
        "max_us": micros(stage.max),
    })
}

fn sweep_json(sweep: &SweepStatus) -> Value {
    json!({
        "kind": sweep.kind.name(),
        "looked": sweep.looked,
        "blocks": sweep.blocks,
        "changed": sweep.changed,
        "failed": sweep.failed,
        "done": sweep.is_done,
        "needed_by": sweep.needed_by,
        "reason": sweep.reason,
    })
}

fn replica_json(replica: &MirrorStatus) -> Value {
    let [repairs, repaired_blocks] = replica.repairs;
    json!({
        "node": replica.node.to_string(),
        "state": replica.state.name(),
        "reason": replica.reason,
        "unacknowledged": replica.unacknowledged,
        "repairs": repairs,
        "replays": replica.replays,
        "repaired_blocks": repaired_blocks,
        "chunks_left": replica.chunks_left,
        "writes_left": replica.writes_left,
        "resent": replica.resent,
        "damaged": replica.damaged,
    })
}

/// Sends a request to the process that has a volume attached.
pub(crate) fn ask_attached(file: &VolumeFile, line: &str) -> Result<Value, SuiteError> {
    let shown = file.folder.display();
    ask_if_attached(file, line)?.ok_or_else(|| {
        format!(
            "{shown}: the volume is not attached by a process of this machine; `seatrial volume attach` does that"
        )
        .into()
    })
}

/// Sends a request to the process that has a volume attached; `None`: there is none on this machine.
pub(crate) fn ask_if_attached(file: &VolumeFile, line: &str) -> Result<Option<Value>, SuiteError> {
    let shown = file.folder.display();
    Ok(ask(&file.folder, line).map_err(|error| format!("{shown}: {error}"))?)
}

/// Sends a request to the process that has the volume of a folder attached; `None`: there is none.
fn ask(folder: &Path, line: &str) -> io::Result<Option<Value>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let mut stream = match UnixStream::connect(path_of(folder)) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(REPLY_PATIENCE + PATIENCE))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut reply = String::new();
    BufReader::new(stream.take(REPLY_MAX)).read_line(&mut reply)?;
    serde_json::from_str(&reply)
        .map(Some)
        .map_err(|error| io::Error::other(format!("its reply is not JSON: {error}")))
}
