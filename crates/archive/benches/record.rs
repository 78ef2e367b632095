//! Rates of recording: `cargo bench -p seatrial-archive --bench record [-- FOLDER [ROUNDS [BYTES]]]`. Without the argument
//! `--bench` (under `cargo test --benches`) everything runs once over little.
//!
//! A publisher thread offers messages one by one, in one burst (a block changes hands when it is full) or without (each message
//! may be fetched by the recorder), the recorder writes in another thread; the time runs from the first offer until the last
//! message is written. Beside it, in the same rounds: the same bytes with plain sequential writes of 256 KiB,
//! from one buffer in the cache. Then the processor time of the two threads per message, and what share of plain writing
//! the busier of them would reach if other work on the machine left both of them a processor. FOLDER is where the
//! recordings go: a memory file system, or the disk is measured. Figures are medians of the rounds, shares are medians of
//! each round's share. Linux only.

#![expect(clippy::disallowed_types, reason = "a bench asks the clock")]

use seatrial_archive::publication::{Recorder, RecorderOptions};
use seatrial_archive::{Archive, BATCH_LENGTH, Durability, RecordingOptions, Writer};
use seatrial_blocks::file::Files;
use seatrial_blocks::frame::frame_length;
use seatrial_machine::{Rng, Storage};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// How much to measure.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Bytes of frames of a recording.
    bytes: usize,
}

/// What a round took, in seconds.
#[derive(Clone, Copy)]
struct Seconds {
    wall: f64,
    /// Processor time of the thread that offers, or writes plainly.
    publisher: f64,
    /// Processor time of the one that writes what was offered.
    recorder: f64,
}

impl Seconds {
    /// What the clock would show if each thread had a processor of its own.
    fn alone(self) -> f64 {
        self.publisher.max(self.recorder)
    }
}

/// Seconds that this thread has run for, as the scheduler counts.
fn processor_seconds() -> f64 {
    // The count is brought up to date when the thread gives way.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split_whitespace().next().expect("three fields");
    nanoseconds.parse::<f64>().expect("a number") / 1e9
}

fn measured(work: impl FnOnce()) -> Seconds {
    let (processor, clock) = (processor_seconds(), Instant::now());
    work();
    let wall = clock.elapsed().as_secs_f64();
    Seconds {
        wall,
        publisher: processor_seconds() - processor,
        recorder: 0.0,
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// An empty archive in a folder of its own.
fn archive(folder: &Path) -> (TempDir, Archive) {
    let scratch = tempfile::tempdir_in(folder).expect("a folder");
    let path = scratch.path().join("archive");
    let storage: Arc<dyn Storage> = Arc::new(Files);
    let (archive, _) = Archive::open(storage, &path, now()).expect("an empty folder");
    (scratch, archive)
}

/// How messages are offered.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    burst: bool,
    checksummed: bool,
}

const WAYS: [Way; 4] = [
    Way {
        name: "record",
        burst: true,
        checksummed: false,
    },
    Way {
        name: "record, CRC-32C in frames",
        burst: true,
        checksummed: true,
    },
    Way {
        name: "no burst",
        burst: false,
        checksummed: false,
    },
    Way {
        name: "no burst, CRC-32C in frames",
        burst: false,
        checksummed: true,
    },
];

/// Offers `count` messages of `length` bytes one by one and waits until the last is written.
fn record(folder: &Path, length: usize, way: Way, count: usize) -> Seconds {
    let (scratch, mut archive) = archive(folder);
    let options = RecordingOptions {
        durability: Durability::None,
        ..RecordingOptions::default()
    };
    let writer = archive.start(&options, now()).expect("space for it");
    let mut rng = Rng::from_seed(1);
    let mut message: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
    let recorder: Recorder<Writer> = Recorder::new(RecorderOptions::default());
    let handle = recorder.handle();
    let seconds = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            recorder.run(now);
            processor_seconds()
        });
        let intake = handle.record(writer).expect("it runs");
        let mut publication = intake.publication().expect("the first");
        publication = publication.checksummed(way.checksummed);
        let mut seconds = measured(|| {
            let numbers = 0..count as u64;
            if way.burst {
                let mut burst = publication.burst();
                for number in numbers {
                    message[..8].copy_from_slice(&number.to_le_bytes());
                    let offered = burst.offer_waiting(black_box(&message));
                    offered.expect("space for it");
                }
            } else {
                for number in numbers {
                    message[..8].copy_from_slice(&number.to_le_bytes());
                    let offered = publication.offer_waiting(black_box(&message));
                    offered.expect("space for it");
                }
            }
            publication.flush().expect("space for it");
        });
        handle.end();
        seconds.recorder = recorder.join().expect("no panic");
        seconds
    });
    drop(archive);
    scratch.close().expect("it is there");
    seconds
}

/// Writes as many bytes from one buffer.
fn write(folder: &Path, bytes: usize) -> Seconds {
    let scratch = tempfile::tempdir_in(folder).expect("a folder");
    let path = scratch.path().join("plain");
    let buffer = vec![1; BATCH_LENGTH];
    let file = Files.create(&path).expect("a new file");
    let seconds = measured(|| {
        for offset in (0..bytes).step_by(buffer.len()) {
            let length = buffer.len().min(bytes - offset);
            file.write_at(offset as u64, &buffer[..length])
                .expect("space for it");
        }
    });
    scratch.close().expect("it is there");
    seconds
}

/// Offers single messages to a recorder with nothing else to do; the time until each is written, sorted.
fn single(folder: &Path, count: usize) -> Vec<Duration> {
    let (scratch, mut archive) = archive(folder);
    let writer = archive
        .start(&RecordingOptions::default(), now())
        .expect("space for it");
    let recorder: Recorder<Writer> = Recorder::new(RecorderOptions::default());
    let handle = recorder.handle();
    let mut times = std::thread::scope(|scope| {
        scope.spawn(|| recorder.run(now));
        let intake = handle.record(writer).expect("it runs");
        let mut publication = intake.publication().expect("the first");
        let times = (0..count).map(|_| {
            std::thread::park_timeout(Duration::from_micros(200));
            let clock = Instant::now();
            let number = publication.offer(&[7; 128]).expect("there is room");
            publication.wait_written(number, None).expect("it is there");
            clock.elapsed()
        });
        let times: Vec<Duration> = times.collect();
        handle.end();
        times
    });
    drop(archive);
    scratch.close().expect("it is there");
    times.sort_unstable();
    times
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One line: rates, shares of plain writing, processor time.
fn compare(folder: &Path, length: usize, effort: Effort) {
    let frame = frame_length(length);
    let count = effort.bytes / frame;
    let bytes = count * frame;
    let rounds: Vec<Vec<Seconds>> = (0..effort.rounds)
        .map(|_| {
            let ways = WAYS.iter().map(|&way| record(folder, length, way, count));
            std::iter::once(write(folder, bytes)).chain(ways).collect()
        })
        .collect();
    let ways = WAYS.iter().map(|way| (way.name, way.checksummed));
    let names = std::iter::once(("plain write", false)).chain(ways);
    for (column, (name, checksummed)) in names.enumerate() {
        let of = |value: &dyn Fn(&Vec<Seconds>) -> f64| median(rounds.iter().map(value).collect());
        let wall = of(&|round| round[column].wall);
        let publisher = of(&|round| round[column].publisher);
        let recorder = of(&|round| round[column].recorder);
        let share = of(&|round| round[0].wall / round[column].wall);
        let alone = of(&|round| round[0].alone() / round[column].alone());
        let cost = of(&|round| round[column].wall / round[column.max(2) - 1].wall - 1.0);
        let each = |seconds: f64| seconds * 1e9 / count as f64;
        println!(
            "{length:>6}  {name:<28} {:>9.2} {:>8.2} {share:>9.2} {:>9.1} {:>9.1} {alone:>9.2} {:>9}",
            count as f64 / wall / 1e6,
            bytes as f64 / wall / 1e9,
            each(publisher),
            each(recorder),
            if checksummed {
                format!("{:+.1} %", cost * 100.0)
            } else {
                String::new()
            },
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let number = |place: usize| arguments.get(place)?.parse::<usize>().ok();
    let is_bench = std::env::args().any(|word| word == "--bench");
    let effort = if is_bench {
        Effort {
            rounds: number(1).unwrap_or(7).max(1),
            bytes: 1 << 30,
        }
    } else {
        Effort {
            rounds: 1,
            bytes: 4 << 20,
        }
    };
    let folder = arguments
        .first()
        .map_or(std::env::temp_dir(), PathBuf::from);
    println!(
        "{:>6}  {:<28} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "bytes",
        "",
        "million/s",
        "GB/s",
        "of plain",
        "offer ns",
        "write ns",
        "of plain",
        "checksum"
    );
    let lengths = number(2).map_or(vec![32, 128, 1_024, 4_096], |length| vec![length.max(8)]);
    for length in lengths {
        compare(&folder, length, effort);
    }
    let count = if is_bench { 5_000 } else { 50 };
    let times = single(&folder, count);
    let at =
        |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1e3;
    println!();
    println!(
        "a single message until it is written, one every 200 µs: p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
