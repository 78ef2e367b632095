//! Files that are read while they are written, and writers that are killed.
#![expect(
    clippy::disallowed_types,
    reason = "a test starts and kills processes that write files, and asks the clock how old their operations are"
)]

use super::Codec;
use super::tests::{ops, scratch, small};
use super::{HistoryWriter, TestFile, WriterOptions};
use crate::{Op, Process, Value};
use seatrial_machine::Rng;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where the child writes; without it the child's test does nothing.
const PATH: &str = "SEATRIAL_KILLED_WRITER";
/// The driver's interval between flushes, as in the runner.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

fn op(index: u64, time: Duration) -> Op {
    Op {
        index,
        time: time.as_nanos() as i64,
        ..Op::invoke(
            Process::Client(index % 7),
            "write",
            Value::Int(index as i64),
        )
    }
}

/// Not a test by itself: the process that [`a_killed_writer_loses_nothing_acknowledged`] kills.
#[test]
fn writer_that_is_killed() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let options = WriterOptions {
        codec: Codec::Lz4,
        chunk_length: 500,
    };
    let mut writer = HistoryWriter::create_with(&PathBuf::from(path), &json!({}), options).unwrap();
    let mut out = std::io::stdout();
    let (began, mut flushed) = (Instant::now(), Instant::now());
    for index in 0.. {
        if flushed.elapsed() >= FLUSH_INTERVAL || index % 97 == 0 {
            writer.flush().unwrap();
            flushed = Instant::now();
            writeln!(out, "\nwritten {index}").unwrap();
        }
        let time = began.elapsed();
        writer.push(&op(index, time)).unwrap();
        if (index + 1) % 500 == 0 {
            writeln!(out, "\nwritten {}", index + 1).unwrap();
        }
        writeln!(out, "\npushed {index} {}", time.as_nanos()).unwrap();
        if index % 64 == 0 {
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// What the child said before it died: operations written, time of the last one pushed.
fn said(out: impl std::io::Read) -> (u64, u64) {
    let (mut written, mut pushed) = (0, 0);
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["written", count] => written = count.parse().unwrap(),
            ["pushed", _, time] => pushed = time.parse().unwrap_or(pushed),
            _ => {}
        }
    }
    (written, pushed)
}

fn kill_a_writer(path: &Path, after: Duration) -> (u64, u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::live_tests::writer_that_is_killed",
            "--nocapture",
        ])
        .env(PATH, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let heard = thread::spawn(move || said(&mut out));
    let began = Instant::now();
    while !path.exists() && began.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    heard.join().unwrap()
}

#[test]
fn a_killed_writer_loses_nothing_acknowledged() {
    let mut rng = Rng::from_seed(60);
    let mut most = 0;
    for round in 0..40 {
        let scratch = scratch();
        // Later writers live longer, for machines that have much else to do.
        let after = Duration::from_micros(rng.below(30_000) << (round / 10));
        let (written, pushed) = kill_a_writer(&scratch, after);
        most = most.max(written);
        if written == 0 {
            // Killed before it had promised anything.
            continue;
        }
        let file = TestFile::open(&scratch).unwrap_or_else(|error| panic!("{round}: {error}"));
        assert!(
            file.len() >= written,
            "{round}: {} of {written}",
            file.len()
        );
        let history = file.history().unwrap();
        for (index, found) in history.iter().enumerate() {
            let time = Duration::from_nanos(found.time as u64);
            assert_eq!(*found, op(index as u64, time), "{round}");
        }
        // Whatever is lost is younger than 100 ms: the first lost operation came after the last one that is there.
        let last = history.ops().last().map_or(0, |op| op.time as u64);
        assert!(pushed.saturating_sub(last) < 100_000_000, "{round}");
        // It can be continued; a kill in the middle of a write leaves a torn end.
        if let Some(repaired) = TestFile::repair(&scratch).unwrap() {
            std::fs::remove_file(repaired.kept).unwrap();
        }
        TestFile::append_results(&scratch, &json!({"valid": true})).unwrap();
        let file = TestFile::open(&scratch).unwrap();
        assert_eq!(file.history().unwrap().ops(), history.ops());
        assert_eq!(
            (file.validity().unwrap(), file.tail()),
            (Some(json!(true)), None)
        );
    }
    assert!(most > 500, "no writer lived long enough: {most}");
}

/// Tells the readers that the writer is through, or has failed.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn readers_see_a_growing_prefix_while_a_test_writes() {
    let scratch = scratch();
    let ops = ops(61, 7 * 520);
    let mut writer = HistoryWriter::create_with(&scratch, &json!({}), small(Codec::Lz4)).unwrap();
    let (handed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let opened: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (handed, done, path, ops) = (&handed, &done, &scratch, &ops);
                scope.spawn(move || {
                    let mut opened = 0;
                    let mut followed = TestFile::open(path).unwrap();
                    loop {
                        let is_last = done.load(Ordering::Acquire);
                        let least = handed.load(Ordering::Acquire);
                        let file = if reader == 0 {
                            followed.refresh().unwrap();
                            &followed
                        } else {
                            followed = TestFile::open(path).unwrap();
                            &followed
                        };
                        assert!(file.len() >= least, "{} of {least}", file.len());
                        let history = file.history().unwrap();
                        assert_eq!(history.len() as u64, file.len());
                        assert_eq!(history.ops(), &ops[..history.len()]);
                        for number in 1..=file.analyses() {
                            let results = file.results_of(number).unwrap();
                            assert_eq!(results, Some(json!({"valid": true, "number": number})));
                        }
                        opened += 1;
                        if is_last {
                            assert_eq!((history.len(), file.analyses()), (ops.len(), 20));
                            return opened;
                        }
                    }
                })
            })
            .collect();
        let guard = Done(&done);
        for (place, op) in ops.iter().enumerate() {
            writer.push(op).unwrap();
            if place % 5 == 0 {
                writer.flush().unwrap();
                handed.store(place as u64 + 1, Ordering::Release);
            }
            if place % 40 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        writer.seal().unwrap();
        for number in 1..=20 {
            let results = json!({"valid": true, "number": number});
            TestFile::append_results(&scratch, &results).unwrap();
        }
        drop(guard);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum()
    });
    assert!(opened > 30, "{opened}");
}
