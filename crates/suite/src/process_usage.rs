//! What a process has used, by the count of the system.

use std::path::Path;
use std::time::Duration;

/// Processor time and memory of processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUsage {
    /// User and system time of all threads; resolution 10 ms.
    pub cpu: Duration,
    /// Most memory that was resident at once, in bytes.
    pub memory: u64,
}

/// Clock ticks per second in `/proc`, fixed by the Linux interface for user programs.
const TICKS_PER_SECOND: u64 = 100;

impl ProcessUsage {
    /// Of this process.
    pub fn of_this() -> ProcessUsage {
        ProcessUsage::read("self").unwrap_or_default()
    }

    /// Of the process with this number; `None` where there is no `/proc`, or no such process.
    pub fn of(process: u32) -> Option<ProcessUsage> {
        ProcessUsage::read(&process.to_string())
    }

    fn read(process: &str) -> Option<ProcessUsage> {
        let folder = Path::new("/proc").join(process);
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        // The second field may contain spaces, but ends with the last parenthesis; times are the 14th and 15th.
        let (_, after) = stat.rsplit_once(')')?;
        let ticks = after.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(ProcessUsage {
            cpu: Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND),
            memory: kibibytes << 10,
        })
    }
}
