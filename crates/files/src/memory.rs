//! Free memory of the machine, for caches and limits.

use std::fs::read_to_string;
use std::path::Path;

/// One part in this many of all memory stays free.
const RESERVE_DIVISOR: u64 = 8;

/// The memory that Linux leaves to this process: available memory of the machine, and the rest of the limit of its control
/// group (version 2), less an eighth of the total. If neither can be read there is no limit.
///
/// Each call reads four small files of the kernel, which takes some tens of microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemMemory;

/// Bytes in all, and bytes that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

impl SystemMemory {
    /// The number of bytes that a cache which now holds `held` bytes may hold from now on.
    pub fn bytes_max(self, held: u64) -> u64 {
        allowed(held, memories())
    }

    /// The number of bytes that are available now, in the machine and in the control group; `None` if neither can be read.
    pub fn available(self) -> Option<u64> {
        let known = memories().into_iter().flatten();
        known.map(|memory| memory.available).min()
    }
}

/// The memory of the machine, and that of the control group.
fn memories() -> [Option<Memory>; 2] {
    let machine = read_to_string("/proc/meminfo").ok();
    [machine.and_then(|text| of_machine(&text)), of_group()]
}

/// The bytes that may be held, given the bytes held now.
fn allowed(held: u64, memories: [Option<Memory>; 2]) -> u64 {
    let allowed = memories.into_iter().flatten().map(|memory| {
        let free = held.saturating_add(memory.available);
        free.saturating_sub(memory.total / RESERVE_DIVISOR)
    });
    allowed.min().unwrap_or(u64::MAX)
}

/// Reads `/proc/meminfo`.
fn of_machine(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes = line.trim().strip_suffix("kB")?.trim();
        kibibytes.parse::<u64>().ok()?.checked_mul(1_024)
    };
    Some(Memory {
        total: field("MemTotal:")?,
        available: field("MemAvailable:")?,
    })
}

/// Reads what the control group of this process says.
fn of_group() -> Option<Memory> {
    let group = read_to_string("/proc/self/cgroup").ok()?;
    let group = group.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(group);
    let file = |name: &str| read_to_string(folder.join(name)).ok();
    let limit = file("memory.max")?;
    let (used, statistics) = (file("memory.current")?, file("memory.stat")?);
    of_limit(&limit, &used, &statistics)
}

fn of_limit(limit: &str, used: &str, statistics: &str) -> Option<Memory> {
    // "max": there is no limit.
    let total: u64 = limit.trim().parse().ok()?;
    let used: u64 = used.trim().parse().ok()?;
    let cached = statistics
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file "));
    let cached = cached.and_then(|bytes| bytes.trim().parse().ok());
    let used = used.saturating_sub(cached.unwrap_or(0));
    Some(Memory {
        total,
        available: total.saturating_sub(used),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let text = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    500 kB\n";
        let machine = of_machine(text).unwrap();
        assert_eq!((machine.total, machine.available), (1_024_000, 512_000));
        assert_eq!(of_machine("MemTotal: 5 kB\nMemAvailable: many kB"), None);
        assert_eq!(of_limit("max\n", "7\n", ""), None);
        let group = of_limit("800\n", "700\n", "anon 5\ninactive_file 300\n").unwrap();
        assert_eq!((group.total, group.available), (800, 400));
        assert_eq!(of_limit("800", "900", "").unwrap().available, 0);
    }

    #[test]
    fn an_eighth_is_left_alone() {
        let memory = |total, available| Some(Memory { total, available });
        assert_eq!(allowed(50, [None, None]), u64::MAX);
        assert_eq!(allowed(50, [memory(800, 300), None]), 250);
        assert_eq!(allowed(50, [memory(800, 300), memory(80, 10)]), 50);
        assert_eq!(allowed(5, [memory(800, 20), memory(80, 80)]), 0);
    }

    #[test]
    fn this_machine_answers() {
        let all = SystemMemory.bytes_max(1 << 50);
        assert!(all >= (1 << 50) - (1 << 46), "{all}");
        // Available now is less than a pebibyte, and more than nothing.
        let available = SystemMemory.available();
        assert!(
            available.is_none_or(|bytes| (1..1 << 50).contains(&bytes)),
            "{available:?}"
        );
    }
}
