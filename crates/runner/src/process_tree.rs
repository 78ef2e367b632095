//! Trees of processes, as `/proc` shows them.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

/// A process at one time. Its start time tells it from another one that was given the same pid later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessEntry {
    /// The pid.
    pub(crate) pid: i32,
    parent: i32,
    /// Clock ticks from the start of the machine to its own.
    started: u64,
    /// Has it ended, but was not reaped yet?
    has_ended: bool,
}

impl ProcessEntry {
    /// The process with this pid; `None` if there is none.
    pub(crate) fn read(pid: i32) -> Option<ProcessEntry> {
        ProcessEntry::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads a `/proc/…/stat` line. The name, in parentheses, may contain any byte, also `)`.
    fn parse(pid: i32, stat: &str) -> Option<ProcessEntry> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?; // field 22 of the line
        Some(ProcessEntry {
            pid,
            parent,
            started,
            has_ended: matches!(state, "Z" | "X"),
        })
    }

    /// Sends a signal to this process and no other: the signal goes to a descriptor, which is checked after it was opened.
    /// False if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(false);
        };
        let ended = |error| match error {
            rustix::io::Errno::SRCH => Ok(false),
            error => Err(io::Error::from(error)),
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(error) => return ended(error),
        };
        if !self.is_running() {
            return Ok(false);
        }
        pidfd_send_signal(descriptor, signal).map_or_else(ended, |()| Ok(true))
    }

    /// Was this process forked by that one?
    pub(crate) fn is_child_of(&self, pid: i32) -> bool {
        self.parent == pid
    }

    /// Does this process still run?
    pub(crate) fn is_running(&self) -> bool {
        ProcessEntry::read(self.pid)
            .is_some_and(|now| now.started == self.started && !now.has_ended)
    }

    /// Are all threads of the process stopped? True also if it has ended.
    pub(crate) fn is_stopped(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return true;
        };
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat"));
            stat.ok().is_none_or(|stat| is_stopped(&stat))
        })
    }
}

/// Does a `/proc/…/stat` line say that the thread is stopped, or has ended?
fn is_stopped(stat: &str) -> bool {
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't' | 'Z' | 'X'))
}

/// All processes that descend from this one and have not ended, in the order of their pids; without itself. A process whose
/// parent ended belongs to whatever process adopted it.
pub(crate) fn descendants(ancestor: i32) -> io::Result<Vec<ProcessEntry>> {
    let mut children: BTreeMap<i32, Vec<ProcessEntry>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse() else {
            continue; // no process
        };
        if let Some(process) = ProcessEntry::read(pid) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = BTreeSet::new();
    let mut waiting = vec![ancestor];
    while let Some(parent) = waiting.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            waiting.push(process.pid);
            if !process.has_ended {
                found.insert(process);
            }
        }
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_hide_the_fields() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 999 20";
        let entry = ProcessEntry::parse(7, &format!("7 (a) T (b) S 5 {rest}")).unwrap();
        assert_eq!((entry.parent, entry.started), (5, 999));
        assert_eq!(ProcessEntry::parse(7, ""), None);
        assert!(is_stopped("7 (a) S (b) T 1 2") && !is_stopped("7 (a) T (b) S 1 2"));
    }

    #[test]
    fn grandchildren_are_descendants() {
        let script = "sh -c 'sleep 60; :' & sleep 60";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let pid = shell.id() as i32;
        let all = loop {
            let all = descendants(pid).unwrap();
            if all.len() == 3 {
                break all;
            }
        };
        for process in &all {
            assert!(process.signal(Signal::KILL).unwrap());
        }
        shell.wait().unwrap();
        for process in &all {
            while process.is_running() {
                std::thread::yield_now(); // SIGKILL takes effect later than the call returns
            }
            assert!(!process.signal(Signal::KILL).unwrap());
        }
    }
}
