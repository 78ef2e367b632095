//! A server as a process.

use crate::{ended, spoken};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The binary under test.
pub(crate) fn binary() -> PathBuf {
    let other = std::env::var_os("SEATRIAL_BIN").map(PathBuf::from);
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_seatrial").into())
}

/// Addresses at which nothing listens, at an IP that no other call gets: a port of 127.0.0.1 that was free a moment ago may be
/// another test's by now, or that of an outgoing connection, also while a node of this test is down.
pub(crate) fn free_addresses(count: usize) -> Vec<SocketAddr> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    assert!(call < 1 << 10, "more calls than addresses for one process");
    // 127.1.0.0 to 127.255.0.0: systems under test are in 127.0.
    let process = std::process::id() % (0xfe << 6);
    let ip = Ipv4Addr::from(0x7f01_0000 + (process << 10) + call);
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((ip, 0)).unwrap())
        .collect();
    held.iter().map(|it| it.local_addr().unwrap()).collect()
}

/// Runs the binary to its end.
pub(crate) fn run(words: &[&str]) -> Output {
    let mut command = Command::new(binary());
    ended::output(command.args(words).env("NO_COLOR", "1"))
}

/// A server that runs with an address space of 1 GiB; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    said: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts the binary with these words, which make it listen.
    pub(crate) fn start(words: &[&str]) -> Server {
        Server::start_after("", words)
    }

    /// [`Server::start`] after commands of the shell: limits, environment variables.
    pub(crate) fn start_after(commands: &str, words: &[&str]) -> Server {
        let script = format!("ulimit -v 1048576; {commands} exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script])
            .arg(binary())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = spoken::spawn(&mut command);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut first = Vec::new();
        let address = loop {
            let line = lines.next();
            let line = line.unwrap_or_else(|| panic!("{words:?} ended: {first:#?}"));
            let line = line.unwrap();
            if let Some(address) = line.strip_prefix("listening on ") {
                break address.parse().unwrap();
            }
            first.push(line);
        };
        let said = Arc::new(Mutex::new(first));
        let more = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                more.lock().unwrap().push(line);
            }
        });
        Server {
            child,
            address,
            said,
        }
    }

    /// Most memory that was resident at once, in bytes; `None` where there is no `/proc`.
    pub(crate) fn most_memory(&self) -> Option<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(Path::new(&path)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1_024)
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Kills it (SIGKILL), without waiting for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Is it still there?
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = self.child.try_wait();
            println!("{state:?}, the server's last lines:");
            let said = self.said();
            said.iter()
                .rev()
                .take(40)
                .rev()
                .for_each(|it| println!("  {it}"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long requests took.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Measures one.
    pub(crate) fn measure<T>(&mut self, request: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = request();
        self.0.push(began.elapsed());
        answer
    }

    pub(crate) fn merge(&mut self, mut other: Latencies) {
        self.0.append(&mut other.0);
    }

    pub(crate) fn max(&self) -> Duration {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// Count, half of them, 99 of 100, and the longest.
    pub(crate) fn line(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |part: f64| {
            let index = (sorted.len() as f64 * part) as usize;
            sorted.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3
        };
        format!(
            "{} requests: median {:.2} ms, 99 % {:.2} ms, longest {:.1} ms",
            sorted.len(),
            at(0.5),
            at(0.99),
            self.max().as_secs_f64() * 1e3
        )
    }
}
