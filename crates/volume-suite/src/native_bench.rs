//! Measures a volume by the requests of its own machine, without NBD between: this process owns it meanwhile.

use crate::attach_process::activate;
use crate::owner_machine::{OwnerSettings, owner_machine};
use crate::volume_bench::{BenchRequests, BenchRun, VolumeFigures};
use crate::volume_calls::VolumeCalls;
use crate::volume_file::VolumeFile;
use seatrial_host::serve_guest;
use seatrial_suite::{Report, SuiteError};
use seatrial_volume::{BlockNumber, BlockSpan, Geometry, GuestReply, GuestRequest, Upstairs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Takes the figures of each run.
type TakeFigures = Box<dyn FnMut(VolumeFigures) + Send>;

/// Owns the volume, makes the measurements, and gives it up. Replicas must be there.
pub(crate) fn measure_native(
    file: &VolumeFile,
    settings: &OwnerSettings,
    runs: Vec<BenchRun>,
    report: Report,
    take: TakeFigures,
) -> Result<(), SuiteError> {
    let (machine, guest) = owner_machine(file, settings)?;
    let (calls, callers) = VolumeCalls::new::<Upstairs>();
    let geometry = file.geometry;
    let failure: Arc<Mutex<Option<String>>> = Arc::default();
    let ended = Arc::new(Notify::new());
    let (failed, ending) = (Arc::clone(&failure), Arc::clone(&ended));
    let ready = move || {
        tokio::spawn(async move {
            if let Err(error) = measure_all(&calls, geometry, runs, report, take).await {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(error.to_string());
            }
            ending.notify_one();
        });
    };
    let stop = async { ended.notified().await };
    let closing = GuestRequest::Deactivate;
    serve_guest(guest, machine, closing, callers, ready, stop)?;
    let failure = failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    failure.map_or(Ok(()), |reason| Err(reason.into()))
}

async fn measure_all(
    calls: &VolumeCalls,
    geometry: Geometry,
    runs: Vec<BenchRun>,
    report: Report,
    mut take: TakeFigures,
) -> Result<(), SuiteError> {
    activate(calls, report).await?;
    for run in runs {
        take(measure(calls, geometry, run).await?);
    }
    Ok(())
}

/// One measurement by a closed loop: a request begins when one is done.
async fn measure(
    calls: &VolumeCalls,
    geometry: Geometry,
    run: BenchRun,
) -> Result<VolumeFigures, SuiteError> {
    let mut requests = BenchRequests::new(run, geometry.bytes());
    let mut latencies = Vec::new();
    let mut under_way = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..run.depth {
        under_way.spawn(call(calls.clone(), next(&mut requests, geometry), run));
    }
    while let Some(done) = under_way.join_next().await {
        let since = done??;
        let now = Instant::now();
        latencies.push(now.duration_since(since));
        if now.duration_since(begun) < run.time {
            under_way.spawn(call(calls.clone(), next(&mut requests, geometry), run));
        }
    }
    if run.workload.writes() {
        checked(calls.call(GuestRequest::Flush).await)?;
    }
    Ok(VolumeFigures::new(run, begun.elapsed(), &latencies))
}

/// One request; returns when it began.
async fn call(
    calls: VolumeCalls,
    request: GuestRequest,
    run: BenchRun,
) -> Result<Instant, SuiteError> {
    let begun = Instant::now();
    checked(calls.call(request).await)?;
    if run.workload.flushes() {
        checked(calls.call(GuestRequest::Flush).await)?;
    }
    Ok(begun)
}

fn checked(reply: Option<GuestReply>) -> Result<(), SuiteError> {
    match reply {
        Some(GuestReply::Failed(error)) => Err(error.into()),
        Some(_) => Ok(()),
        None => Err("the volume has ended".into()),
    }
}

/// The next request of a run.
fn next(requests: &mut BenchRequests, geometry: Geometry) -> GuestRequest {
    let length = u64::from(geometry.block_length);
    let first = BlockNumber(requests.next_offset() / length);
    match requests.payload() {
        Some(payload) => GuestRequest::Write {
            first,
            bytes: payload.to_vec(),
            fua: false,
        },
        None => GuestRequest::Read(BlockSpan {
            first,
            count: (u64::from(requests.length()) / length) as u32,
        }),
    }
}
