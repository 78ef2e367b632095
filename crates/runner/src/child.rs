//! Child processes that never outlive this process.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// A child with a process group of its own, killed by the kernel when this process (the runner) dies in any way.
///
/// Two threads belong to it. All children are forked by one thread that lives as long as the runner, because the parent-death
/// signal fires when the *thread* that forked ends. A second thread per child waits for its end; it reaps only while it holds
/// `reaped`, and every signal is sent under the same lock, so that no signal reaches another process that was given the pid of a
/// dead child.
///
/// Its downside: the parent-death signal is not inherited. A process that a node forks dies with the node's process group
/// whenever the runner ends the node, but survives a SIGKILL of the runner.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// True once the pid may belong to another process.
    reaped: Arc<Mutex<bool>>,
    /// The exit status, once the process has ended and was reaped.
    ended: watch::Receiver<Option<ExitStatus>>,
}

/// Time limit for the effect of a signal.
const SIGNAL_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which the state in `/proc` is polled.
const STATE_INTERVAL: Duration = Duration::from_millis(1);

impl Child {
    /// Starts `command` in a process group of its own.
    pub fn spawn(command: Command) -> io::Result<Child> {
        let mut child = fork(command)?;
        let pid = Pid::from_child(&child);
        let reaped = Arc::new(Mutex::new(false));
        let (report, ended) = watch::channel(None);
        let gate = Arc::clone(&reaped);
        thread::Builder::new()
            .name(format!("wait-{}", pid.as_raw_nonzero()))
            .spawn(move || {
                wait_for_end(pid);
                let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
                // The unreaped leader still reserves the group's id, so this kills the rest of the group and no other.
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                let status = child.wait().unwrap_or_default();
                *gate = true;
                let _ = report.send(Some(status));
            })
            .inspect_err(|_| {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            })?;
        Ok(Child { pid, reaped, ended })
    }

    /// The pid.
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its exit status; `None` while it runs.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Waits until it has ended and was reaped; returns its exit status.
    pub async fn end(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(status) => status.unwrap_or_default(),
            Err(_) => ExitStatus::default(),
        }
    }

    /// Sends `signal` to the whole process group; false if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if *reaped {
            return Ok(false);
        }
        match rustix::process::kill_process_group(self.pid, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the process group and waits until the process was reaped.
    pub async fn kill(&self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL)?;
        timeout(SIGNAL_LIMIT, self.end())
            .await
            .map_err(|_| late(self.id(), "die of SIGKILL"))
    }

    /// Sends `signal`, and SIGCONT in case the process is paused; kills the process group after `limit`.
    pub(crate) async fn stop(&self, signal: Signal, limit: Duration) -> io::Result<ExitStatus> {
        self.signal(signal)?;
        self.signal(Signal::CONT)?;
        match timeout(limit, self.end()).await {
            Ok(status) => Ok(status),
            Err(_) => self.kill().await,
        }
    }

    /// Pauses the process (SIGSTOP) and waits until all of its threads have stopped.
    pub(crate) async fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        self.wait_for_state("stop", true).await
    }

    /// Resumes a paused process (SIGCONT) and waits until one of its threads runs.
    pub(crate) async fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)?;
        self.wait_for_state("resume", false).await
    }

    async fn wait_for_state(&self, verb: &str, stopped: bool) -> io::Result<()> {
        let deadline = Instant::now() + SIGNAL_LIMIT;
        while self.is_stopped()? != stopped {
            if self.status().is_some() {
                return Err(io::Error::other(format!(
                    "process {} exited meanwhile",
                    self.id()
                )));
            }
            if Instant::now() >= deadline {
                return Err(late(self.id(), verb));
            }
            sleep(STATE_INTERVAL).await;
        }
        Ok(())
    }

    /// Are all threads of the process stopped, according to `/proc`?
    pub(crate) fn is_stopped(&self) -> io::Result<bool> {
        let mut threads = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.id()))? {
            let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else {
                continue; // that thread has ended
            };
            if state(&stat) != Some('T') {
                return Ok(false);
            }
            threads += 1;
        }
        Ok(threads > 0)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
    }
}

/// The state letter of a `/proc/…/stat` line. It follows the name, which is in parentheses and may contain any byte, also `)`.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn late(pid: i32, verb: &str) -> io::Error {
    let seconds = SIGNAL_LIMIT.as_secs();
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("process {pid} did not {verb} within {seconds} s"),
    )
}

/// Returns when the process has ended, without reaping it.
fn wait_for_end(pid: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let interrupted = rustix::io::Errno::INTR;
    while rustix::process::waitid(WaitId::Pid(pid), options).err() == Some(interrupted) {}
}

/// A request to the forking thread: the command, and the channel for its result.
type ForkRequest = (Command, mpsc::Sender<io::Result<std::process::Child>>);

/// Forks on the one thread that outlives every child.
fn fork(command: Command) -> io::Result<std::process::Child> {
    static FORKER: OnceLock<mpsc::Sender<ForkRequest>> = OnceLock::new();
    let forker = FORKER.get_or_init(|| {
        let (requests, inbox) = mpsc::channel::<ForkRequest>();
        // If the thread cannot be started, sending the request below fails.
        let _ = thread::Builder::new().name("fork".into()).spawn(move || {
            for (command, answer) in inbox {
                let _ = answer.send(fork_here(command));
            }
        });
        requests
    });
    let gone = |_| io::Error::other("the thread that starts processes could not be started");
    let (answer, child) = mpsc::channel();
    forker
        .send((command, answer))
        .map_err(|_| gone(mpsc::RecvError))?;
    child.recv().map_err(gone)?
}

#[expect(
    unsafe_code,
    reason = "the parent-death signal must be set between fork and exec"
)]
fn fork_here(mut command: Command) -> io::Result<std::process::Child> {
    let runner = rustix::process::getpid();
    command.process_group(0);
    // SAFETY: the closure makes two system calls and allocates nothing, so it may run between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() == Some(runner) {
                Ok(())
            } else {
                Err(rustix::io::Errno::SRCH.into()) // the runner died before the signal was armed
            }
        });
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn sleeper(seconds: u32) -> Command {
        let mut command = Command::new("sleep");
        command.arg(seconds.to_string()).stdin(Stdio::null());
        command
    }

    #[tokio::test]
    async fn killed_means_gone() {
        let child = Child::spawn(sleeper(60)).unwrap();
        assert_eq!(child.status(), None);
        let status = child.kill().await.unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
        assert!(!fs::exists(format!("/proc/{}", child.id())).unwrap());
        assert!(
            !child.signal(Signal::KILL).unwrap(),
            "no signal after the end"
        );
    }

    #[tokio::test]
    async fn paused_children_stop_resume_and_die() {
        let child = Child::spawn(sleeper(60)).unwrap();
        child.pause().await.unwrap();
        assert!(child.is_stopped().unwrap());
        child.resume().await.unwrap();
        assert!(!child.is_stopped().unwrap());
        child.pause().await.unwrap();
        let status = child
            .stop(Signal::TERM, Duration::from_secs(5))
            .await
            .unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(15)
        );
    }

    #[tokio::test]
    async fn the_whole_group_goes() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdin(Stdio::null());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        command.stdout(fs::File::create(&path).unwrap());
        let child = Child::spawn(command).unwrap();
        let grandchild = loop {
            let text = fs::read_to_string(&path).unwrap();
            if text.ends_with('\n') {
                break text.trim().to_owned();
            }
            sleep(Duration::from_millis(5)).await;
        };
        child.kill().await.unwrap();
        for _ in 0..1000 {
            let stat = fs::read_to_string(format!("/proc/{grandchild}/stat"));
            // An orphaned zombie counts as dead.
            if stat.map_or(true, |stat| state(&stat) == Some('Z')) {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("process {grandchild} outlived its group");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_an_error() {
        let error = Child::spawn(Command::new("/nowhere/server")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn names_with_parentheses_do_not_hide_the_state() {
        assert_eq!(state("7 (a) T (b) S 1 2"), Some('S'));
        assert_eq!(state(""), None);
    }
}
