//! Processor time to seal, check and open a block: `cargo bench -p seatrial-volume`.
//!
//! Times are those that this thread ran, so other processes on the machine matter little. Without `--bench` (as under
//! `cargo test`) each is measured once.

use seatrial_volume::{BlockNumber, BlockVersion, CONTEXT_LENGTH, KeyRing, VolumeId, split_slots};
use std::hint::black_box;

/// Nanoseconds that this thread has run; 0 where the kernel does not say.
fn ran() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// Prints the median of several rounds.
fn measure(name: &str, bytes: usize, mut run: impl FnMut()) {
    let is_bench = std::env::args().any(|it| it == "--bench");
    let (rounds, turns) = if is_bench {
        (9, (64 << 20) / bytes)
    } else {
        (1, 1)
    };
    let mut times = Vec::new();
    for _ in 0..rounds {
        let before = ran();
        (0..turns).for_each(|_| run());
        times.push((ran() - before) as f64 / turns as f64);
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    let rate = bytes as f64 / f64::from(1 << 20) / (median / 1e9);
    println!("{name:<8} {bytes:>6} bytes {median:>9.0} ns {rate:>7.0} MiB/s");
}

fn main() {
    let keys = KeyRing::new(VolumeId(1), &[7; 32]);
    let block = BlockNumber(5);
    for length in [512, 4_096, 32_768] {
        let bytes = vec![0x5a; length];
        let mut version = BlockVersion {
            generation: 1,
            counter: 1,
        };
        let mut slot = Vec::with_capacity(CONTEXT_LENGTH + length);
        measure("seal", length, || {
            version.counter += 1;
            slot.clear();
            keys.seal(&mut slot, block, version, black_box(&bytes));
        });
        let mut plain = Vec::with_capacity(length);
        measure("check", length, || {
            let slots = split_slots(black_box(&slot), 1, length as u32).unwrap_or_default();
            assert!(slots[0].is_intact(block), "it was just sealed");
        });
        measure("open", length, || {
            plain.clear();
            let slots = split_slots(black_box(&slot), 1, length as u32).unwrap_or_default();
            let is_open = keys.open(&mut plain, block, &slots[0], length as u32);
            assert!(is_open && plain.len() == length, "it was just sealed");
        });
    }
}
