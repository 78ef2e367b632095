//! Figures of this process by the names that Prometheus' clients use: memory, processor time, open files.

use rustix::time::{ClockId, clock_gettime};
use seatrial_machine::{MetricValue, StatusSheet};

/// Adds them to a sheet, as far as the system knows them.
pub(crate) fn describe(sheet: &mut StatusSheet) {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let spent = spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9;
    let about = "Processor time of this process since its start, in user and system mode";
    let spent = MetricValue::Counter(spent);
    sheet.metric("process_cpu_seconds_total", about, Vec::new(), spent);
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let figure = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(kibibytes) = figure("VmRSS:") {
            let about = "Memory of this process that is resident";
            sheet.gauge(
                "process_resident_memory_bytes",
                about,
                (kibibytes << 10) as f64,
            );
        }
        if let Some(threads) = figure("Threads:") {
            sheet.gauge("process_threads", "Threads of this process", threads as f64);
        }
    }
}
