//! Processor time to seal, check and open a block: `cargo bench -p seatrial-volume --bench blocks`.
//!
//! `seal` and `open` are those of the volume: AES-256-GCM-SIV, context and checksum. `gcm` is what AES-256-GCM with a counted
//! nonce would take in place of `seal`, by the crate `ring`, with the same bytes authenticated and the same checksum. The last
//! rows are a write of 1 MiB, which is 256 blocks.
//!
//! Times are those that this thread ran, so other processes on the machine matter little. Without `--bench` (as under
//! `cargo test`) each is measured once.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use seatrial_blocks::{crc32c, crc32c_more};
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

/// AES-256-GCM with a counted nonce: the alternative to the volume's way (decision 0090).
struct CountedGcm {
    key: LessSafeKey,
    counter: u64,
}

impl CountedGcm {
    fn new() -> CountedGcm {
        let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("a key has 32 bytes");
        CountedGcm {
            key: LessSafeKey::new(key),
            counter: 0,
        }
    }

    /// Appends a slot: room for a context with the tag, and the encrypted bytes.
    fn seal(&mut self, out: &mut Vec<u8>, block: BlockNumber, bytes: &[u8]) {
        self.counter += 1;
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.counter.to_le_bytes());
        let mut associated = [0; 27];
        associated[16..24].copy_from_slice(&block.0.to_le_bytes());
        let start = out.len();
        out.resize(start + CONTEXT_LENGTH, 0);
        out.extend_from_slice(bytes);
        let (context, data) = out[start..].split_at_mut(CONTEXT_LENGTH);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(associated), data);
        let tag = sealed.expect("a block is short");
        context[16..32].copy_from_slice(tag.as_ref());
        let checksum = crc32c_more(crc32c(&context[..32]), data);
        context[32..36].copy_from_slice(&checksum.to_le_bytes());
    }
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
        let (mut gcm, mut other) = (
            CountedGcm::new(),
            Vec::with_capacity(CONTEXT_LENGTH + length),
        );
        measure("gcm", length, || {
            other.clear();
            gcm.seal(&mut other, block, black_box(&bytes));
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
    measure_long(&keys);
}

/// A write of 1 MiB.
fn measure_long(keys: &KeyRing) {
    let (block_length, count) = (4_096, 256);
    let bytes = vec![0x5a; block_length * count];
    let mut slots = Vec::with_capacity((CONTEXT_LENGTH + block_length) * count);
    let mut version = BlockVersion {
        generation: 1,
        counter: 1,
    };
    measure("seal", bytes.len(), || {
        slots.clear();
        for (number, block) in (0..).zip(bytes.chunks(block_length)) {
            version.counter += 1;
            keys.seal(&mut slots, BlockNumber(number), version, black_box(block));
        }
    });
    let mut gcm = CountedGcm::new();
    measure("gcm", bytes.len(), || {
        slots.clear();
        for (number, block) in (0..).zip(bytes.chunks(block_length)) {
            gcm.seal(&mut slots, BlockNumber(number), black_box(block));
        }
    });
}
