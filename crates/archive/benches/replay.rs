//! Rates of replay: `cargo bench -p seatrial-archive --bench replay [-- FOLDER]`. Without the argument `--bench` (under
//! `cargo test --benches`) everything runs once over little. Each figure is the best of several rounds, over processor time
//! of one thread (other work on the machine hardly disturbs it) and over the clock; plain reads of the same files in the same
//! rounds. FOLDER is where the recordings go: a memory file system, or the page cache is measured. Linux only.

#![expect(clippy::disallowed_types, reason = "a bench asks the clock")]

use seatrial_archive::{
    Archive, Batch, Cursor, CursorBound, Durability, Origin, Position, RecordingId,
    RecordingOptions, VerifyOptions, verify,
};
use seatrial_blocks::file::Files;
use seatrial_machine::{Rng, Storage};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How much to measure.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Bytes of a recording.
    bytes: u64,
}

/// A recording in a folder.
struct Recorded {
    folder: PathBuf,
    id: RecordingId,
    end: Position,
    messages: u64,
    files: Vec<PathBuf>,
}

/// Records `effort.bytes` in messages of one length.
fn record(folder: &Path, length: usize, checksums: bool, effort: Effort) -> Recorded {
    let mut rng = Rng::from_seed(1);
    let message: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
    let opened = Archive::open(Arc::new(Files), folder, 0);
    let (mut archive, _) = opened.expect("a folder of ours");
    let options = RecordingOptions {
        durability: Durability::None,
        ..RecordingOptions::default()
    };
    let mut writer = archive.start(&options, 0).expect("space for it");
    let (mut batch, mut messages) = (Batch::default(), 0);
    while writer.end().0 < effort.bytes {
        batch.clear();
        while if checksums {
            batch.push_checksummed(0, &message)
        } else {
            batch.push(0, &message)
        } {}
        messages += u64::from(batch.messages());
        writer.append_block(&mut batch, 0).expect("space for it");
    }
    let (id, end) = (writer.recording(), writer.end());
    writer.stop(0).expect("space for it");
    let description = archive.describe(id).expect("it is there");
    Recorded {
        folder: folder.to_owned(),
        id,
        end,
        messages,
        files: (description.segments.into_iter())
            .map(|segment| segment.file)
            .collect(),
    }
}

/// Hands every message to a consumer; answers how many there were.
fn replay(recording: &Recorded, checksums: bool) -> u64 {
    let storage: Arc<dyn Storage> = Arc::new(Files);
    let folder = &recording.folder;
    let cursor = Cursor::open(
        storage,
        folder,
        recording.id,
        Origin::Start,
        CursorBound::End,
    );
    let mut cursor = cursor.expect("it is there");
    if !checksums {
        cursor = cursor.without_frame_checksums();
    }
    let (mut count, mut bytes) = (0, 0);
    while let Some(block) = cursor.next_block().expect("sound") {
        for message in block.messages() {
            count += 1;
            bytes += black_box(message).payload.len();
        }
    }
    assert_eq!(cursor.position(), recording.end);
    black_box(bytes);
    count
}

/// Reads every byte into a buffer of 1 MiB.
fn read(recording: &Recorded) -> u64 {
    let mut buffer = vec![0; 1 << 20];
    for path in &recording.files {
        let file = Files.open(path).expect("it is there");
        let (mut at, length) = (0, file.len());
        while at < length {
            let count = (length - at).min(buffer.len() as u64);
            file.read_at(at, &mut buffer[..count as usize])
                .expect("it is there");
            at += count;
        }
        black_box(&buffer);
    }
    recording.messages
}

/// Verifies everything.
fn check(recording: &Recorded, threads: usize) -> u64 {
    let options = VerifyOptions {
        threads,
        checksums: true,
    };
    let ids = [recording.id];
    let reports = verify(&Files, &recording.folder, &ids, options, &|_| ());
    let report = reports.expect("it is there").remove(0);
    assert_eq!(report.damages, []);
    report.messages
}

/// Seconds that this thread has run for, as the scheduler counts.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split_whitespace().next().expect("three fields");
    nanoseconds.parse::<f64>().expect("a number") / 1e9
}

/// What was measured: the least seconds of a round.
#[derive(Clone, Copy)]
struct Seconds {
    processor: f64,
    wall: f64,
}

impl Seconds {
    const NONE: Seconds = Seconds {
        processor: f64::INFINITY,
        wall: f64::INFINITY,
    };

    fn measure(&mut self, recording: &Recorded, work: impl FnOnce(&Recorded) -> u64) {
        let (began, clock) = (processor_seconds(), Instant::now());
        assert_eq!(work(recording), recording.messages);
        self.processor = self.processor.min(processor_seconds() - began);
        self.wall = self.wall.min(clock.elapsed().as_secs_f64());
    }
}

fn print(name: &str, length: usize, recording: &Recorded, seconds: Seconds) {
    let gigabytes = |seconds: f64| recording.end.0 as f64 / f64::from(1 << 30) / seconds;
    let millions = |seconds: f64| recording.messages as f64 / 1e6 / seconds;
    println!(
        "{length:>6}  {name:<34} {:>8.2} {:>8.2} {:>10.2} {:>10.2}",
        gigabytes(seconds.processor),
        gigabytes(seconds.wall),
        millions(seconds.processor),
        millions(seconds.wall),
    );
}

fn measure(folder: &Path, length: usize, effort: Effort) {
    let plain = record(folder, length, false, effort);
    let checked = record(folder, length, true, effort);
    let mut best = [Seconds::NONE; 7];
    for _ in 0..effort.rounds {
        best[0].measure(&plain, |it| replay(it, true));
        best[1].measure(&checked, |it| replay(it, false));
        best[2].measure(&checked, |it| replay(it, true));
        best[3].measure(&plain, read);
        best[4].measure(&plain, |it| check(it, 1));
        best[5].measure(&checked, |it| check(it, 1));
        best[6].measure(&checked, |it| check(it, 2));
    }
    let names = [
        "replay, frames without checksum",
        "replay, frames' checksums left out",
        "replay, frames' checksums verified",
        "read into a buffer",
        "verify",
        "verify, frames with checksum",
        "the same, two threads (see wall)",
    ];
    for (name, best) in names.into_iter().zip(best) {
        print(name, length, &plain, best);
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    let is_bench = std::env::args().any(|word| word == "--bench");
    let effort = if is_bench {
        Effort {
            rounds: 15,
            bytes: 256 << 20,
        }
    } else {
        Effort {
            rounds: 1,
            bytes: 3 << 20,
        }
    };
    let folder = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("seatrial-replay-{}", std::process::id()));
    println!(" bytes                                      GiB/s     wall  million/s       wall");
    for length in [32, 128, 1024, 4096] {
        measure(&folder, length, effort);
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
