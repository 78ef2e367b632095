//! What a message costs the one who writes: `cargo bench -p seatrial-archive --bench append [-- FOLDER]`. Without the argument
//! `--bench` (under `cargo test --benches`) everything runs once over little. Each figure is the best of several rounds,
//! over processor time of one thread, so that other work on the machine hardly disturbs it; plain writes of the same bytes
//! in the same rounds. FOLDER should be on a memory file system. Linux only.

use seatrial_archive::{Archive, Batch, Durability, RecordingOptions};
use seatrial_blocks::file::Files;
use seatrial_machine::{Medium, Rng, Storage};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

/// How much to measure.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Bytes of blocks written in each.
    bytes: u64,
}

/// Processor time of this thread so far.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e9
}

/// The best rounds of one way to write.
#[derive(Default)]
struct Best {
    nanoseconds_per_message: Option<f64>,
    gigabytes_per_second: f64,
}

impl Best {
    /// `work` answers with messages and bytes.
    fn measure(&mut self, work: impl FnOnce() -> (u64, u64)) {
        let began = processor_seconds();
        let (messages, bytes) = work();
        let seconds = processor_seconds() - began;
        let each = seconds * 1e9 / messages as f64;
        let best = self.nanoseconds_per_message.unwrap_or(f64::INFINITY);
        self.nanoseconds_per_message = Some(best.min(each));
        self.gigabytes_per_second = self.gigabytes_per_second.max(bytes as f64 / seconds / 1e9);
    }

    fn print(&self, name: &str, length: usize) {
        let each = self.nanoseconds_per_message.unwrap_or(0.0);
        let rate = self.gigabytes_per_second;
        println!("{length:>6}  {name:<34} {each:>8.1} ns/message {rate:>7.2} GB/s");
    }
}

/// Fills batches and writes them nowhere.
fn fill(message: &[u8], checksums: bool, seals: bool, bytes: u64) -> (u64, u64) {
    let mut batch = Batch::default();
    let (mut messages, mut written) = (0, 0);
    while written < bytes {
        batch.clear();
        if checksums {
            while batch.push_checksummed(0, black_box(message)) {}
        } else {
            while batch.push(0, black_box(message)) {}
        }
        messages += u64::from(batch.messages());
        written += batch.block_length() as u64;
        if seals {
            black_box(batch.seal(None, messages, 0, 0, 0));
        }
        black_box(batch.frames());
    }
    (messages, written)
}

/// Writes the same bytes over and over into files of a segment's length.
fn write_plain(folder: &Path, bytes: u64) -> (u64, u64) {
    let block = vec![7; seatrial_archive::BATCH_LENGTH];
    let path = folder.join("plain");
    let mut written = 0;
    while written < bytes {
        let file: Arc<dyn Medium> = Files.create(&path).expect("space for it");
        let mut offset = 0;
        while offset < seatrial_archive::SEGMENT_LENGTH && written < bytes {
            file.write_at(offset, &block).expect("space for it");
            offset += block.len() as u64;
            written += block.len() as u64;
        }
        Files.remove(&path).expect("it is there");
    }
    (written / block.len() as u64, written)
}

/// Records in a new archive, `messages_per_append` at a time.
fn record(folder: &Path, message: &[u8], messages_per_append: usize, bytes: u64) -> (u64, u64) {
    let (mut archive, _) = Archive::open(Arc::new(Files), folder, 0).expect("a folder of ours");
    let options = RecordingOptions {
        durability: Durability::None,
        ..RecordingOptions::default()
    };
    let mut writer = archive.start(&options, 0).expect("space for it");
    let id = writer.recording();
    while writer.end().0 < bytes {
        let messages = std::iter::repeat_n(black_box(message), messages_per_append);
        writer.append_batch(messages, 0).expect("space for it");
    }
    let (messages, end) = (writer.next_message(), writer.end().0);
    writer.stop(0).expect("space for it");
    archive.delete(id, 0).expect("it is there");
    (messages, end)
}

fn measure(folder: &Path, length: usize, effort: Effort) {
    let mut rng = Rng::from_seed(1);
    let message: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
    let mut best: [Best; 7] = Default::default();
    for _ in 0..effort.rounds {
        best[0].measure(|| fill(&message, false, false, effort.bytes));
        best[1].measure(|| fill(&message, true, false, effort.bytes));
        best[2].measure(|| fill(&message, false, true, effort.bytes));
        best[3].measure(|| write_plain(folder, effort.bytes));
        best[4].measure(|| record(folder, &message, 100_000, effort.bytes));
        best[5].measure(|| record(folder, &message, 100, effort.bytes));
        best[6].measure(|| record(folder, &message, 1, effort.bytes / 8));
    }
    let names = [
        "push",
        "push_checksummed",
        "push, seal",
        "plain writes (of 256 KiB)",
        "append_batch of 100,000",
        "append_batch of 100",
        "append_batch of 1",
    ];
    for (best, name) in best.iter().zip(names) {
        best.print(name, length);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let effort = if arguments.iter().any(|argument| argument == "--bench") {
        Effort {
            rounds: 5,
            bytes: 512 << 20,
        }
    } else {
        Effort {
            rounds: 1,
            bytes: 1 << 20,
        }
    };
    let given = arguments
        .iter()
        .find(|argument| !argument.starts_with("--"));
    let folder = given.map_or_else(std::env::temp_dir, |given| Path::new(given).to_owned());
    let folder = folder.join(format!("seatrial-append-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for files");
    for length in [32, 128, 1_024, 4_096] {
        measure(&folder, length, effort);
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
