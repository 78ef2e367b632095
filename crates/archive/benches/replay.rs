//! Rates of replay: `cargo bench -p seatrial-archive --bench replay [-- FOLDER]`. Without the argument `--bench` (under
//! `cargo test --benches`) everything runs once over little. Each figure is the best of several rounds, over processor time
//! of one thread (other work on the machine hardly disturbs it) and over the clock; plain reads of the same files in the same
//! rounds. FOLDER is where the recordings go: a memory file system, or the page cache is measured. Linux only.

#![expect(clippy::disallowed_types, reason = "a bench asks the clock")]

use seatrial_archive::{
    Batch, Bound, Boundary, Cursor, Origin, Position, Progress, RecordingId, SegmentHeader,
    SegmentName, file::Files,
};
use seatrial_machine::{Rng, Storage};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a segment.
const SEGMENT_LENGTH: u64 = 128 << 20;

/// How much to measure.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Bytes of a recording.
    bytes: u64,
}

/// A recording in a folder.
struct Recording {
    folder: PathBuf,
    id: RecordingId,
    end: Position,
    messages: u64,
    files: Vec<PathBuf>,
}

/// Records `effort.bytes` in messages of one length.
fn record(folder: &Path, id: u64, length: usize, checksums: bool, effort: Effort) -> Recording {
    let mut recording = Recording {
        folder: folder.to_owned(),
        id: RecordingId(id),
        end: Position(0),
        messages: 0,
        files: Vec::new(),
    };
    let mut rng = Rng::from_seed(1);
    let message: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
    let mut batch = Batch::default();
    let mut sequence = 0;
    while recording.end.0 < effort.bytes {
        let name = SegmentName {
            recording: recording.id,
            start: recording.end,
        };
        let path = folder.join(name.file());
        let file = Files.create(&path).expect("a new file");
        recording.files.push(path);
        let header = SegmentHeader {
            recording: recording.id,
            start: recording.end,
            first_message: recording.messages,
            segment_length: SEGMENT_LENGTH,
            time: 0,
        };
        let mut bytes = header.block(sequence);
        let mut at = 0;
        while at < SEGMENT_LENGTH.min(effort.bytes) {
            sequence += 1;
            batch.clear();
            while if checksums {
                batch.push_checksummed(0, &message)
            } else {
                batch.push(0, &message)
            } {}
            bytes.extend_from_slice(batch.seal(sequence, 0, 0, recording.messages));
            recording.messages += u64::from(batch.messages());
            file.write_at(at, &bytes).expect("space for it");
            at += bytes.len() as u64;
            bytes.clear();
        }
        sequence += 1;
        recording.end = recording.end.plus(at);
    }
    recording
}

/// Hands every message to a consumer; answers how many there were.
fn replay(recording: &Recording, checksums: bool) -> u64 {
    let progress = Progress::new(Boundary {
        position: recording.end,
        ..Boundary::default()
    });
    progress.stop();
    let bound = Bound::Live(Arc::new(progress));
    let storage: Arc<dyn Storage> = Arc::new(Files);
    let folder = &recording.folder;
    let cursor = Cursor::open(storage, folder, recording.id, Origin::Start, bound);
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
fn read(recording: &Recording) -> u64 {
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

    fn measure(&mut self, recording: &Recording, work: impl FnOnce(&Recording) -> u64) {
        let (began, clock) = (processor_seconds(), Instant::now());
        assert_eq!(work(recording), recording.messages);
        self.processor = self.processor.min(processor_seconds() - began);
        self.wall = self.wall.min(clock.elapsed().as_secs_f64());
    }
}

fn print(name: &str, length: usize, recording: &Recording, seconds: Seconds) {
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
    let plain = record(folder, 1, length, false, effort);
    let checked = record(folder, 2, length, true, effort);
    let mut best = [Seconds::NONE; 4];
    for _ in 0..effort.rounds {
        best[0].measure(&plain, |it| replay(it, true));
        best[1].measure(&checked, |it| replay(it, false));
        best[2].measure(&checked, |it| replay(it, true));
        best[3].measure(&plain, read);
    }
    let names = [
        "replay, frames without checksum",
        "replay, frames' checksums left out",
        "replay, frames' checksums verified",
        "read into a buffer",
    ];
    for (name, best) in names.into_iter().zip(best) {
        print(name, length, &plain, best);
    }
    for path in plain.files.iter().chain(&checked.files) {
        std::fs::remove_file(path).expect("it is there");
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    let is_bench = std::env::args().any(|word| word == "--bench");
    let effort = if is_bench {
        Effort {
            rounds: 7,
            bytes: 512 << 20,
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
    std::fs::create_dir(&folder).expect("a new folder");
    println!(" bytes                                      GiB/s     wall  million/s       wall");
    for length in [32, 128, 1024, 4096] {
        measure(&folder, length, effort);
    }
    std::fs::remove_dir(&folder).expect("empty");
}
