//! What this process has used so far.

use std::time::{Duration, Instant};

/// Time and memory of this process since its start, by the system's count.
#[derive(Debug)]
pub(crate) struct Resources {
    wall: Duration,
    /// Processor time of all threads; resolution 10 ms.
    cpu: Option<Duration>,
    /// Most memory that was resident at once, in bytes.
    memory: Option<u64>,
}

/// Clock ticks per second in `/proc`, fixed by the Linux interface for user programs.
const TICKS_PER_SECOND: u64 = 100;

impl Resources {
    /// What was used until now; `began` is when the process began. Only wall time where there is no `/proc`.
    pub(crate) fn since(began: Instant) -> Resources {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Resources {
            wall: began.elapsed(),
            cpu: cpu(&stat),
            memory: memory(&status),
        }
    }
}

/// User and system time: the 14th and 15th field; the second may contain spaces, but ends with the last parenthesis.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// Memory of this process that is resident now, in bytes; `None` where there is no `/proc`.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "VmRSS:")
}

fn memory(status: &str) -> Option<u64> {
    field(status, "VmHWM:")
}

/// A field of `/proc/self/status` in bytes.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

impl std::fmt::Display for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} s", self.wall.as_secs_f64())?;
        if let Some(cpu) = self.cpu {
            write!(f, ", {:.2} s of processor time", cpu.as_secs_f64())?;
        }
        if let Some(bytes) = self.memory {
            write!(f, ", at most {:.1} MB of memory", bytes as f64 / 1e6)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let stat = "17 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0";
        assert_eq!(cpu(stat), Some(Duration::from_millis(1_750)));
        assert_eq!(cpu("17 (a"), None);
        assert_eq!(memory("VmPeak:\t 9 kB\nVmHWM:\t  12 kB\n"), Some(12_288));
        assert_eq!(memory("VmHWM: many"), None);
        assert!(resident().is_none_or(|bytes| bytes > 100_000));
    }
}
