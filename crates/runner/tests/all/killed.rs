//! A test whose runner is killed: its history is readable and no process is left.

use crate::roles::command;
use crate::run::{read, test};
use seatrial_generator::{Generator, function, operation};
use seatrial_history::{Op, OpType, Value};
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients, TestProgress, run};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a history may miss at most, and some time for a slow machine.
const LOSS_MAX: Duration = Duration::from_millis(100 + 150);

/// Clients that note in a file of their own, at once, what they have done and when.
struct Truthful(Arc<Mutex<File>>);

impl Clients for Truthful {
    fn open<'a>(
        &'a self,
        _slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async { Ok(Box::new(Truthful(Arc::clone(&self.0))) as Box<dyn Client>) })
    }
}

impl Client for Truthful {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async {
            let line = format!("{} {}\n", op.value, now_ms());
            self.0.lock().unwrap().write_all(line.as_bytes())?;
            Ok(op.complete(OpType::Ok, op.value.clone()))
        })
    }
}

fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis()
}

/// Runs a test that does not end, and notes the truth.
pub(crate) fn run_for_ever(folder: &Path) {
    let mut count = 0;
    let writes = function(move || {
        count += 1;
        Some(operation("write", Value::Int(count)))
    });
    let generator = writes.delay(Duration::from_micros(200)).clients();
    let mut test = test(&folder.join("run"), generator.boxed());
    let truth = File::create(folder.join("truth")).unwrap();
    test.clients = Arc::new(Truthful(Arc::new(Mutex::new(truth))));
    run(test, Arc::new(|_: &TestProgress| {})).unwrap();
}

#[test]
fn a_killed_bench_loses_nothing_older_than_a_moment() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let mut bench = command("tester", folder).spawn().unwrap();
    let lines = || {
        let text = fs::read_to_string(folder.join("truth")).unwrap_or_default();
        text.lines().count()
    };
    while lines() < 5000 {
        assert!(bench.try_wait().unwrap().is_none(), "the bench ended");
        thread::sleep(Duration::from_millis(10));
    }
    let killed_ms = now_ms();
    bench.kill().unwrap();
    bench.wait().unwrap();
    let history = read(&folder.join("run"));
    let kept: BTreeSet<String> = history
        .iter()
        .filter(|op| op.is_ok())
        .map(|op| op.value.to_string())
        .collect();
    let truth = fs::read_to_string(folder.join("truth")).unwrap();
    let old_ms = killed_ms - LOSS_MAX.as_millis();
    let mut old = 0;
    for line in truth.lines() {
        let (value, time_ms) = line.split_once(' ').unwrap();
        if time_ms.parse::<u128>().unwrap() < old_ms {
            assert!(kept.contains(value), "the write of {value} is lost");
            old += 1;
        }
    }
    assert!(old > 2000, "only {old} writes were old");
}
