//! Durations of a server's work beside its machine's turns, by stage.

use seatrial_machine::{DurationHistogram, LinePart, StatusSheet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Histograms of a server's disk and jobs. A clone is another handle of the same ones; each stage costs a lock per write, sync
/// or job, which takes much longer itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageTimes(Arc<Mutex<StageHistograms>>);

#[derive(Debug, Default)]
struct StageHistograms {
    log_writes: DurationHistogram,
    log_appends: u64,
    log_bytes: u64,
    file_tasks: DurationHistogram,
    jobs: DurationHistogram,
}

impl StageTimes {
    fn lock(&self) -> MutexGuard<'_, StageHistograms> {
        // The histograms are consistent after every statement, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one write and sync of a log, with its number of appends and bytes.
    pub(crate) fn log_written(&self, began: Instant, appends: usize, bytes: usize) {
        let mut stages = self.lock();
        stages.log_writes.add(began.elapsed());
        stages.log_appends += appends as u64;
        stages.log_bytes += bytes as u64;
    }

    /// Counts one file task.
    pub(crate) fn file_task_done(&self, duration: Duration) {
        self.lock().file_tasks.add(duration);
    }

    /// Counts one job.
    pub(crate) fn job_done(&self, duration: Duration) {
        self.lock().jobs.add(duration);
    }

    /// Adds the stages to a sheet.
    pub(crate) fn describe(&self, sheet: &mut StatusSheet) {
        let stages = self.lock();
        let about = "Time of a write and sync of a log";
        sheet.durations("log_write_seconds", about, &stages.log_writes);
        let about = "Appends to logs; the appends of one write share its sync";
        sheet.counter("log_appends_total", about, stages.log_appends);
        sheet.counter(
            "log_written_bytes_total",
            "Bytes written to logs and synced",
            stages.log_bytes,
        );
        let about = "Time of a file task of the machine";
        sheet.durations("file_task_seconds", about, &stages.file_tasks);
        let about = "Time of a job of the machine on another thread";
        sheet.durations("job_seconds", about, &stages.jobs);
        sheet.chart(
            "Log written",
            &[("bytes", "log_written_bytes_total", LinePart::Rate)],
        );
        sheet.chart(
            "Time of a log's write and sync",
            &[
                ("median", "log_write_seconds", LinePart::Quantile(0.5)),
                ("99 %", "log_write_seconds", LinePart::Quantile(0.99)),
            ],
        );
    }
}
