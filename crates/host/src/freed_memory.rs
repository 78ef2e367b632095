//! Memory that is freed and soon needed again.

use std::hint::black_box;

/// The longest allocation that moves glibc's thresholds: 32 MiB (`DEFAULT_MMAP_THRESHOLD_MAX` in its `malloc.c`) with its header.
const LONGEST: usize = (32 << 20) - (64 << 10);

/// Makes this process keep the memory of long messages when they are freed, up to 64 MiB in a row, for the next ones.
///
/// By default glibc gives freed memory at the end of its heap back to the system from 128 KiB on. A server that gets, decrypts
/// and sends a mebibyte at a time would have each of its pages made anew, which costs as much as copying it. The threshold grows
/// when a long allocation, which has a mapping of its own, is freed (mallopt(3), `M_MMAP_THRESHOLD`), so one is: its memory is
/// never touched. With another allocator this has no effect.
pub(crate) fn keep_freed_memory() {
    drop(black_box(Vec::<u8>::with_capacity(LONGEST)));
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Page faults of this thread that needed no disk.
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(") ").unwrap();
        after_name.split(' ').nth(7).unwrap().parse().unwrap()
    }

    /// Fills sixteen messages of 1 MiB; returns the page faults of that.
    fn fill_and_free() -> u64 {
        let before = page_faults();
        let messages: Vec<Vec<u8>> = (1..=16).map(|byte| vec![byte; 1 << 20]).collect();
        assert_eq!(black_box(&messages).len(), 16);
        page_faults() - before
    }

    #[test]
    fn the_memory_of_long_messages_is_used_again() {
        keep_freed_memory();
        let first = fill_and_free();
        let again = fill_and_free();
        assert!(
            first > 1_000,
            "4,096 pages, of which few were there: {first}"
        );
        assert!(again < 600, "{again} of 4,096 pages were made again");
    }
}
