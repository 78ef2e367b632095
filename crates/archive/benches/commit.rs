//! From append to durable: `cargo bench -p seatrial-archive --bench commit [-- FOLDER]`. Without the argument `--bench`
//! (under `cargo test --benches`) everything runs for a moment.
//!
//! Writers in threads of their own each append a message of 128 bytes and wait until it is durable, over and over, in three
//! ways: each writes its bytes behind the last ones and calls fdatasync, one after the other (a log without group commit);
//! the same all at once, in any order (the kernel then lets those that come together share a commit of its journal); one
//! `GroupWriter` for all. FOLDER is where the files go, by default a temporary folder; it has to be on a disk for the figures
//! to mean anything. The ways are measured in turns, in several rounds; all rounds' times together make the quantiles,
//! and rates are medians.

#![expect(clippy::disallowed_types, reason = "a bench asks the clock")]

use seatrial_archive::publication::{GroupOptions, GroupWriter};
use seatrial_archive::{Archive, BATCH_FRAMES_OFFSET, Durability, RecordingOptions};
use seatrial_blocks::file::Files;
use seatrial_blocks::frame::frame_length;
use seatrial_machine::Storage;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of a message.
const LENGTH: usize = 128;
/// Bytes of a block with one message, which plain writers write.
const BYTES: usize = BATCH_FRAMES_OFFSET + frame_length(LENGTH);

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// What writers saw in one round.
struct Round {
    rate: f64,
    times: Vec<Duration>,
}

/// Runs `append` in `writers` threads for a while.
fn run(writers: usize, patience: Duration, append: impl Fn() + Sync) -> Round {
    let clock = Instant::now();
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|_| {
                scope.spawn(|| {
                    let mut times = Vec::new();
                    while clock.elapsed() < patience {
                        let began = Instant::now();
                        append();
                        times.push(began.elapsed());
                    }
                    times
                })
            })
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.flatten().collect::<Vec<_>>()
    });
    Round {
        rate: times.len() as f64 / clock.elapsed().as_secs_f64(),
        times,
    }
}

/// Each writer writes and syncs on its own, with others or after them.
fn plain(folder: &Path, writers: usize, patience: Duration, at_once: bool) -> Round {
    let scratch = tempfile::tempdir_in(folder).expect("a folder");
    let path = scratch.path().join("plain");
    let file = Files.create(&path).expect("a new file");
    let (end, turn) = (AtomicU64::new(0), Mutex::new(()));
    let round = run(writers, patience, || {
        let _mine = (!at_once).then(|| turn.lock().expect("no panic"));
        let offset = end.fetch_add(BYTES as u64, Ordering::Relaxed);
        file.write_at(offset, &[7; BYTES]).expect("space for it");
        file.sync().expect("a sound disk");
    });
    scratch.close().expect("it is there");
    round
}

/// All share a group writer.
fn group(folder: &Path, writers: usize, patience: Duration) -> Round {
    let scratch = tempfile::tempdir_in(folder).expect("a folder");
    let path = scratch.path().join("commit");
    let storage: Arc<dyn Storage> = Arc::new(Files);
    let (mut archive, _) = Archive::open(storage, &path, now()).expect("an empty folder");
    let options = RecordingOptions {
        durability: Durability::None,
        ..RecordingOptions::default()
    };
    let writer = archive.start(&options, now()).expect("space for it");
    let group = GroupWriter::new(writer, GroupOptions::default());
    let round = run(writers, patience, || {
        group
            .append_durable(&[7; LENGTH], now())
            .expect("a sound disk");
    });
    drop(group);
    drop(archive);
    scratch.close().expect("it is there");
    round
}

fn print(name: &str, writers: usize, rounds: Vec<Round>) -> f64 {
    let mut rates: Vec<f64> = rounds.iter().map(|round| round.rate).collect();
    rates.sort_by(f64::total_cmp);
    let rate = rates[rates.len() / 2];
    let mut times: Vec<Duration> = rounds.into_iter().flat_map(|round| round.times).collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "{writers:>8}  {name:<18} {rate:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>10.0}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    rate
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    let is_bench = std::env::args().any(|word| word == "--bench");
    let (rounds, patience) = if is_bench {
        (5, Duration::from_secs(2))
    } else {
        (1, Duration::from_millis(50))
    };
    let folder = arguments.next().map_or(std::env::temp_dir(), PathBuf::from);
    println!(
        "{:>8}  {:<18} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "writers", "", "appends/s", "p50 µs", "p99 µs", "p99.9 µs", "max µs"
    );
    for writers in [1, 64] {
        let mut ways = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            ways[0].push(plain(&folder, writers, patience, false));
            ways[1].push(plain(&folder, writers, patience, true));
            ways[2].push(group(&folder, writers, patience));
        }
        let names = ["fdatasync each", "all at once", "group commit"];
        let rates: Vec<f64> = names
            .into_iter()
            .zip(ways)
            .map(|(name, rounds)| print(name, writers, rounds))
            .collect();
        println!(
            "{:>8}  group commit: {:.1} times the rate of fdatasync each, {:.1} times that of all at once",
            "",
            rates[2] / rates[0],
            rates[2] / rates[1]
        );
    }
}
