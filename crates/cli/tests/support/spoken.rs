//! Programs that a test talks with while they run.

use crate::ended::{LIMIT, kill};
use std::process::{Child, Command};

/// Starts one. If it still runs after the limit it is killed, so that a test that waits for it fails.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let child = command.spawn().unwrap();
    let process = child.id();
    std::thread::spawn(move || {
        std::thread::sleep(LIMIT);
        // If it has ended, its number may belong to a process of others.
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        let parent = format!("PPid:\t{}\n", std::process::id());
        if status.is_ok_and(|status| status.contains(&parent)) {
            kill(process);
        }
    });
    child
}
