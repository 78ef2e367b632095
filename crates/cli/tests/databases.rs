//! The suites of databases, with real servers: they form in namespaces, are cut, and heal.
//!
//! Tests that need a server or namespaces say so and pass where these are missing, except under `CI=true`.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

#[path = "databases/cut_apart.rs"]
mod cut_apart;
#[path = "support/ended.rs"]
mod ended;
#[path = "databases/kafka_brokers.rs"]
mod kafka_brokers;
#[path = "databases/message_systems.rs"]
mod message_systems;
#[path = "databases/proofs.rs"]
mod proofs;
#[path = "databases/redis_transactions.rs"]
mod redis_transactions;
#[path = "support/scratch.rs"]
mod scratch;
#[path = "databases/sql_schedules.rs"]
mod sql_schedules;
#[path = "databases/sql_systems.rs"]
mod sql_systems;
#[path = "databases/zookeeper_sessions.rs"]
mod zookeeper_sessions;

use scratch::Scratch;
use serde_json::Value as Json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// Two tests at a time: they wait more than they compute, but the servers and clients of more would fill a small machine.
static PLACES: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

fn machine() -> MutexGuard<'static, ()> {
    loop {
        for place in &PLACES {
            match place.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder that servers which run as another user can enter.
fn folder(name: &str) -> Scratch {
    let folder = Scratch::new(name);
    let all_enter = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.folder(), all_enter).unwrap();
    folder
}

/// Runs the binary in this folder.
fn run(folder: &Scratch, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seatrial"));
    command.args(words).env("NO_COLOR", "1");
    ended::output(command.current_dir(folder.folder()))
}

/// What the binary printed on both streams.
fn printed(output: &Output) -> String {
    let [out, errors] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(!errors.contains("panicked"), "{errors}");
    out + &errors
}

/// The operations of the history in `run` that these words of `show` select.
fn operations(folder: &Scratch, words: &[&str]) -> Vec<Json> {
    let output = run(folder, &[&["show", "run", "--json"], words].concat());
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs a test that must be valid in this folder; its results, or nothing if the server is missing.
fn valid(folder: &Scratch, words: &str) -> Option<Json> {
    let words: Vec<&str> = words.split(' ').collect();
    let common = ["test", "--seed", "1", "--out", "run", "--json"];
    let output = run(folder, &[&common[..1], &words, &common[1..]].concat());
    let text = printed(&output);
    if is_missing(&text) {
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{words:?}: {text}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Is a server missing, as this output says? Then the test is skipped; in CI that is an error.
fn is_missing(text: &str) -> bool {
    let is_missing = text.contains("is not installed");
    if is_missing {
        skip(text);
    }
    is_missing
}

/// Skips a test with a reason; in CI that is an error.
fn skip(reason: &str) {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!is_ci, "{reason}");
    eprintln!("skipped: {reason}");
}
