//! Child processes that never outlive this process.

use crate::OrdinaryUser;
use crate::process_tree::{ProcessEntry, descendants};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use seatrial_namespace::{NodeInit, NodeSpace};
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
/// All processes that descend from the child belong to it: a pause is complete when all their threads have stopped, and a
/// kill reaches those that left the process group. In namespaces an init process does both with one system call
/// ([`NodeInit`]), and the child is its attendant. On loopback the processes are listed until the list is stable.
///
/// Its downside on loopback: the parent-death signal is not inherited. A process that a node forks dies whenever the runner
/// ends the node, but survives a SIGKILL of the runner; and one whose parent ended is no descendant any more.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// The init process of a child in namespaces.
    init: Option<NodeInit>,
    /// True once the pid may belong to another process.
    reaped: Arc<Mutex<bool>>,
    /// The exit status, once the process has ended and was reaped.
    ended: watch::Receiver<Option<ExitStatus>>,
}

/// Time limit for the effect of a signal.
const SIGNAL_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which the state in `/proc` is polled.
const STATE_INTERVAL: Duration = Duration::from_millis(1);
/// The longest time that a child continues during a pause.
const RELEASE_MAX: Duration = Duration::from_millis(64);

impl Child {
    /// Starts `command` in a process group of its own.
    pub fn spawn(command: Command) -> io::Result<Child> {
        Child::spawn_inside(command, None, None)
    }

    /// Starts `command` in a process group of its own, inside these namespaces, as this user.
    pub(crate) fn spawn_inside(
        mut command: Command,
        space: Option<&NodeSpace>,
        user: Option<&OrdinaryUser>,
    ) -> io::Result<Child> {
        let init = space.map(|space| {
            let user = user.map(OrdinaryUser::of_program);
            space.enclose(&mut command, user)
        });
        let init = init.transpose()?;
        if let (None, Some(user)) = (&init, user) {
            user.run(&mut command);
        }
        let mut child = fork(ForkRequest {
            command,
            arms_signal: init.is_none(), // the attendant does that itself
        })?;
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
        Ok(Child {
            pid,
            init,
            reaped,
            ended,
        })
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

    /// Asks it to end, as Ctrl-C does; false if it has ended.
    pub fn interrupt(&self) -> io::Result<bool> {
        self.signal(Signal::INT)
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

    /// All its processes that have not ended. In namespaces the attendant and init are none of them.
    pub(crate) fn processes(&self) -> io::Result<Vec<ProcessEntry>> {
        let mut all = descendants(self.id())?;
        if self.init.is_some() {
            // Init is the attendant's only child, and started before its own children.
            let init = all
                .iter()
                .position(|process| process.is_child_of(self.id()));
            if let Some(at) = init {
                all.remove(at);
            }
        } else {
            all.extend(ProcessEntry::read(self.id()).filter(ProcessEntry::is_running));
        }
        Ok(all)
    }

    /// Kills all its processes and waits until the process was reaped.
    pub async fn kill(&self) -> io::Result<ExitStatus> {
        if let Some(init) = &self.init {
            init.kill()?;
            if let Ok(status) = timeout(SIGNAL_LIMIT, self.end()).await {
                return Ok(status);
            }
        }
        self.kill_all()?;
        timeout(SIGNAL_LIMIT, self.end())
            .await
            .map_err(|_| late(self.id(), "die of SIGKILL"))
    }

    /// Sends SIGKILL to all its processes.
    fn kill_all(&self) -> io::Result<()> {
        if self.status().is_some() {
            return Ok(());
        }
        let others = self.processes().unwrap_or_default();
        self.signal(Signal::KILL)?;
        for process in others {
            process.signal(Signal::KILL)?;
        }
        Ok(())
    }

    /// Sends `signal`, and SIGCONT in case the process is paused; kills all its processes after `limit`.
    pub(crate) async fn stop(&self, signal: Signal, limit: Duration) -> io::Result<ExitStatus> {
        if let Some(init) = &self.init {
            init.signal(signal)?;
            init.resume()?;
        } else {
            self.signal(signal)?;
            self.signal(Signal::CONT)?;
        }
        match timeout(limit, self.end()).await {
            Ok(status) => Ok(status),
            Err(_) => self.kill().await,
        }
    }

    /// Pauses all its processes (SIGSTOP), and waits until all their threads have stopped; returns the number of processes.
    ///
    /// A thread in `vfork` stops only when its child has executed a program, which a stopped child never does. So stopped
    /// children of processes that have not stopped continue for a while, a longer one each time.
    pub(crate) async fn pause(&self) -> io::Result<usize> {
        let deadline = Instant::now() + SIGNAL_LIMIT;
        let mut before = Vec::new();
        let mut release = STATE_INTERVAL;
        self.stop_all(&[])?;
        loop {
            self.check_running()?;
            let processes = self.processes()?;
            let (stopped, running): (Vec<&ProcessEntry>, Vec<&ProcessEntry>) =
                processes.iter().partition(|process| process.is_stopped());
            // A process that was forked before its parent stopped is found by the next listing.
            if running.is_empty() && processes == before {
                return Ok(processes.len());
            }
            if Instant::now() >= deadline {
                return Err(late(self.id(), "stop"));
            }
            let mut is_released = false;
            for child in stopped {
                if running.iter().any(|parent| child.is_child_of(parent.pid)) {
                    is_released |= child.signal(Signal::CONT)?;
                }
            }
            if is_released {
                sleep(release).await;
                release = (release * 2).min(RELEASE_MAX);
            }
            self.stop_all(&running)?;
            before = processes;
            sleep(STATE_INTERVAL).await;
        }
    }

    /// Sends SIGSTOP to all its processes: in namespaces with one system call, otherwise to its group and to `others`.
    fn stop_all(&self, others: &[&ProcessEntry]) -> io::Result<()> {
        if let Some(init) = &self.init {
            return init.pause();
        }
        self.signal(Signal::STOP)?;
        for process in others {
            process.signal(Signal::STOP)?;
        }
        Ok(())
    }

    /// Resumes all its processes (SIGCONT), and waits until none is stopped any more.
    pub(crate) async fn resume(&self) -> io::Result<()> {
        if let Some(init) = &self.init {
            init.resume()?;
        } else {
            self.signal(Signal::CONT)?;
            for process in self.processes()? {
                process.signal(Signal::CONT)?;
            }
        }
        let deadline = Instant::now() + SIGNAL_LIMIT;
        while self.is_stopped()? {
            self.check_running()?;
            if Instant::now() >= deadline {
                return Err(late(self.id(), "resume"));
            }
            sleep(STATE_INTERVAL).await;
        }
        Ok(())
    }

    /// Fails if the process has ended.
    fn check_running(&self) -> io::Result<()> {
        if self.status().is_none() {
            return Ok(());
        }
        let text = format!("process {} exited meanwhile", self.id());
        Err(io::Error::other(text))
    }

    /// Are all threads of all its processes stopped, according to `/proc`?
    pub(crate) fn is_stopped(&self) -> io::Result<bool> {
        let processes = self.processes()?;
        Ok(!processes.is_empty() && processes.iter().all(ProcessEntry::is_stopped))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.kill_all();
    }
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

/// What the forking thread starts.
struct ForkRequest {
    command: Command,
    /// Must the child arm the parent-death signal?
    arms_signal: bool,
}

/// A request to the forking thread, and the channel for its result.
type ForkMessage = (ForkRequest, mpsc::Sender<io::Result<std::process::Child>>);

/// Forks on the one thread that outlives every child.
fn fork(request: ForkRequest) -> io::Result<std::process::Child> {
    static FORKER: OnceLock<mpsc::Sender<ForkMessage>> = OnceLock::new();
    let forker = FORKER.get_or_init(|| {
        let (requests, inbox) = mpsc::channel::<ForkMessage>();
        // If the thread cannot be started, sending the request below fails.
        let _ = thread::Builder::new().name("fork".into()).spawn(move || {
            for (request, answer) in inbox {
                let _ = answer.send(fork_here(request));
            }
        });
        requests
    });
    let gone = |_| io::Error::other("the thread that starts processes could not be started");
    let (answer, child) = mpsc::channel();
    forker
        .send((request, answer))
        .map_err(|_| gone(mpsc::RecvError))?;
    child.recv().map_err(gone)?
}

#[expect(
    unsafe_code,
    reason = "the parent-death signal must be set between fork and exec"
)]
fn fork_here(request: ForkRequest) -> io::Result<std::process::Child> {
    let ForkRequest {
        mut command,
        arms_signal,
    } = request;
    let runner = rustix::process::getpid();
    command.process_group(0);
    if !arms_signal {
        return command.spawn();
    }
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
    use std::fs;
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
            let process = ProcessEntry::read(grandchild.parse().unwrap());
            // An orphaned zombie counts as dead.
            if !process.is_some_and(|process| process.is_running()) {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("process {grandchild} outlived its group");
    }

    #[tokio::test]
    async fn processes_that_left_the_group_stop_and_die_too() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "setsid sh -c 'sleep 60; :' & setsid sleep 60 & wait"])
            .stdin(Stdio::null());
        let child = Child::spawn(command).unwrap();
        while child.processes().unwrap().len() < 4 {
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(child.pause().await.unwrap(), 4);
        let all = child.processes().unwrap();
        assert!(all.iter().all(ProcessEntry::is_stopped));
        child.resume().await.unwrap();
        assert!(all.iter().all(|process| !process.is_stopped()));
        child.pause().await.unwrap();
        child.kill().await.unwrap();
        while all.iter().any(ProcessEntry::is_running) {
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// A process in `vfork` whose child opens a pipe before it executes `sleep`, which blocks until the test writes.
    async fn in_vfork(pipe: &std::path::Path) -> Child {
        let mut made = Command::new("mkfifo");
        assert!(made.arg(pipe).status().unwrap().success());
        let script = "import os, sys\n\
            opened = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)\n\
            child = os.posix_spawn('/bin/sleep', ['sleep', '60'], {}, file_actions=[opened])\n\
            os.waitpid(child, 0)";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(pipe).stdin(Stdio::null());
        let child = Child::spawn(command).unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        while child.processes().unwrap().len() < 2
            || !fs::read_to_string(&stat).unwrap().contains(") D ")
        {
            sleep(Duration::from_millis(2)).await;
        }
        child
    }

    #[tokio::test]
    async fn a_process_that_is_in_vfork_is_paused_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let child = in_vfork(&pipe).await;
        let (paused, ()) = tokio::join!(child.pause(), async {
            sleep(Duration::from_millis(200)).await;
            assert!(!child.is_stopped().unwrap());
            // It blocks until the child reads.
            thread::spawn(move || fs::File::create(pipe));
        });
        assert_eq!(paused.unwrap(), 2);
        assert!(child.is_stopped().unwrap());
        child.resume().await.unwrap();
        child.kill().await.unwrap();
    }

    #[tokio::test]
    async fn what_left_the_group_dies_with_the_handle() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 60 & wait"]);
        command.stdin(Stdio::null());
        let child = Child::spawn(command).unwrap();
        while child.processes().unwrap().len() < 2 {
            sleep(Duration::from_millis(2)).await;
        }
        child.pause().await.unwrap();
        let all = child.processes().unwrap();
        drop(child);
        let deadline = Instant::now() + SIGNAL_LIMIT;
        while all.iter().any(ProcessEntry::is_running) {
            assert!(Instant::now() < deadline, "{all:?}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_an_error() {
        let error = Child::spawn(Command::new("/nowhere/server")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
