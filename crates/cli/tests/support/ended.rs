//! Programs of a test that have to end.

use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Several times what any program of a test takes.
pub(crate) const LIMIT: Duration = Duration::from_mins(10);

/// Runs a program with empty input and collects what it prints. One that does not end is killed, so that the test fails with
/// what was printed so far: without, a test that hangs would say nothing until its runner is ended.
pub(crate) fn output(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let (ended, has_ended) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if has_ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            kill(process);
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    watch.join().unwrap();
    output
}

/// Kills what has not ended in time.
pub(crate) fn kill(process: u32) {
    eprintln!("process {process} did not end within {LIMIT:?}");
    let _ = Command::new("kill")
        .args(["-KILL", &process.to_string()])
        .status();
}
