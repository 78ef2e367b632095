//! `seatrial bench volume`: the processes of a volume on this machine, measured over NBD.

use crate::control_socket::ask_attached;
use crate::nbd_client::{ClientCommand, NbdClient};
use crate::nbd_server::NbdAddress;
use crate::ownership_bench::{TwinFigures, TwinRun, measure_twin};
use crate::volume_bench::{
    BenchCost, BenchWorkload, CSV, CSV_HEAD, DEPTH, HEAD, LENGTHS, TIME, WORKLOADS, measure, runs,
    write_csv,
};
use crate::volume_file::{VolumeFile, parse_size};
use crate::volume_tools::{INLINE, make_volume};
use seatrial_host::random_bytes;
use seatrial_suite::{ProcessUsage, SuiteError, SuiteTool, ToolExit, ToolOption, ToolSetup};
use seatrial_volume::{Geometry, VolumeId};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE: ToolOption = ToolOption {
    name: "size",
    value_name: Some("SIZE"),
    about: "Size of the volume",
    default: Some("512MiB"),
};
const REPLICAS: ToolOption = ToolOption {
    name: "replicas",
    value_name: Some("N"),
    about: "Number of replicas, 1 to 5",
    default: Some("3"),
};
const DATA: ToolOption = ToolOption {
    name: "data",
    value_name: Some("DIR"),
    about: "Folder for the volume, which must be on the disk to measure; removed at the end",
    default: Some("a temporary one"),
};

const TWINS: ToolOption = ToolOption {
    name: "twins",
    value_name: None,
    about: "Measure twins inside this process: one owner or a shared lock, encryption in its turn or beside it",
    default: None,
};

const NOTES: &str = "Starts replicas and an attach as processes of this machine, writes the whole volume once, then measures each workload \
with each length. CPU is that of attach and of all replicas together, in microseconds for one operation, and of it the part of each kind \
of thread: of attach its machine with its sockets, and encryption; of the replicas their machines with their sockets, their logs, and \
reads. Memory is the most that attach held. On one machine they share its processors and its disk.\n\
--twins has no processes, sockets or disks: random writes to machines that threads of this process drive, either one thread that owns the \
machine of the volume, or all threads that have an input for it, behind a lock.\n\
Example: seatrial bench volume --time 3 --workloads random-write,random-read\n\
Exit status: 0 measured, 254 error (usage, input, a process ended).";

/// `seatrial bench volume`.
pub(crate) static BENCH_VOLUME: SuiteTool = SuiteTool {
    name: "volume",
    about: "Measure a volume with its replicas on this machine",
    arguments: &[],
    options: &[&[
        WORKLOADS, LENGTHS, DEPTH, TIME, SIZE, REPLICAS, INLINE, DATA, TWINS, CSV,
    ]],
    notes: NOTES,
    run: bench_volume,
};

/// How long processes may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// The processes of a volume; killed, and their folder removed, when dropped.
struct BenchProcesses {
    file: VolumeFile,
    owner: Child,
    replicas: Vec<Child>,
}

impl Drop for BenchProcesses {
    fn drop(&mut self) {
        for child in self.replicas.iter_mut().chain([&mut self.owner]) {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
        if let Err(error) = std::fs::remove_dir_all(&self.file.folder) {
            tracing::warn!("{}: {error}", self.file.folder.display());
        }
    }
}

impl BenchProcesses {
    fn start(file: VolumeFile, inline: &str) -> Result<BenchProcesses, SuiteError> {
        make_volume(&file)?;
        let socket = format!("unix:{}", socket_of(&file.folder).display());
        let words = ["--nbd", &socket, "--inline", inline];
        let owner = spawn(&file.folder, "attach", &words)?;
        let mut processes = BenchProcesses {
            owner,
            replicas: Vec::new(),
            file,
        };
        for number in 1..=processes.file.replicas.len() {
            let folder = &processes.file.folder;
            let replica = spawn(folder, "downstairs", &["--node", &number.to_string()])?;
            processes.replicas.push(replica);
        }
        Ok(processes)
    }

    /// Waits until guests can use the volume and every replica has everything.
    fn await_active(&mut self) -> Result<(), SuiteError> {
        let since = Instant::now();
        loop {
            let status = ask_attached(&self.file, "status").unwrap_or_default();
            let replicas = status["replicas"].as_array();
            let is_whole = replicas.is_some_and(|all| all.iter().all(|it| it["state"] == "active"));
            if status["active"] == true && is_whole {
                return Ok(());
            }
            let has_ended = self.owner.try_wait()?.is_some();
            if has_ended || since.elapsed() > PATIENCE {
                let logs = self.file.folder.join("attach.log");
                let said = std::fs::read_to_string(logs).unwrap_or_default();
                return Err(
                    format!("the volume did not become active: {}", said.trim_end()).into(),
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Processor time of the owner, and of all replicas, since their starts.
    fn cpu(&self) -> [ThreadTimes; 2] {
        let replicas = self.replicas.iter().map(ThreadTimes::of);
        let replicas = replicas.reduce(ThreadTimes::plus).unwrap_or_default();
        [ThreadTimes::of(&self.owner), replicas]
    }

    /// Most memory that the owner held, in bytes.
    fn memory(&self) -> u64 {
        ProcessUsage::of(self.owner.id()).unwrap_or_default().memory
    }
}

fn socket_of(folder: &Path) -> PathBuf {
    folder.join("nbd")
}

/// Starts a command of the volume in a folder; what it reports goes to a file there.
fn spawn(folder: &Path, command: &str, words: &[&str]) -> Result<Child, SuiteError> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join(format!("{command}.log")))?;
    let child = Command::new(std::env::current_exe()?)
        .args(["volume", command])
        .arg(folder)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    Ok(child)
}

/// Processor time of a process by its threads. Zeros where there is no `/proc`.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadTimes {
    /// All of it, also of threads that have ended; resolution 10 ms.
    all: Duration,
    /// The thread that drives the machine, with its sockets.
    machine: Duration,
    /// The thread that writes the log.
    log: Duration,
    /// Threads of jobs: encryption, reads.
    jobs: Duration,
}

impl ThreadTimes {
    fn of(child: &Child) -> ThreadTimes {
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let mut times = ThreadTimes {
            all: ProcessUsage::of(child.id()).unwrap_or_default().cpu,
            ..ThreadTimes::default()
        };
        let main = child.id().to_string();
        let threads = std::fs::read_dir(folder.join("task")).into_iter().flatten();
        for thread in threads.flatten() {
            let ran = read(thread.path().join("schedstat"));
            let ran = ran.split_whitespace().next().and_then(|it| it.parse().ok());
            let ran = Duration::from_nanos(ran.unwrap_or(0));
            let part = if thread.file_name() == *main {
                &mut times.machine
            } else if read(thread.path().join("comm")).starts_with("disk ") {
                &mut times.log
            } else {
                &mut times.jobs
            };
            *part += ran;
        }
        times
    }

    fn plus(self, other: ThreadTimes) -> ThreadTimes {
        ThreadTimes {
            all: self.all + other.all,
            machine: self.machine + other.machine,
            log: self.log + other.log,
            jobs: self.jobs + other.jobs,
        }
    }

    fn since(self, before: ThreadTimes) -> ThreadTimes {
        ThreadTimes {
            all: self.all.saturating_sub(before.all),
            machine: self.machine.saturating_sub(before.machine),
            log: self.log.saturating_sub(before.log),
            jobs: self.jobs.saturating_sub(before.jobs),
        }
    }
}

/// The volume to measure, with addresses that are free now.
fn described(setup: &ToolSetup<'_>) -> Result<VolumeFile, SuiteError> {
    let size = setup.text(SIZE.name)?.unwrap_or("512MiB");
    let bytes = parse_size(size).filter(|it| it.is_multiple_of(4_096));
    let bytes = bytes.ok_or_else(|| format!("--size takes a size such as 512MiB, not {size}"))?;
    let count = setup.values.number(REPLICAS.name, 1..=5, 3)? as usize;
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)))
        .collect::<io::Result<_>>()?;
    let addresses = listeners.iter().map(TcpListener::local_addr);
    let replicas = addresses.collect::<io::Result<Vec<SocketAddr>>>()?;
    let temporary = || {
        let name = format!("seatrial-bench-volume-{}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let folder = setup.values.path(DATA.name).map(Path::to_owned);
    let folder = folder.unwrap_or_else(temporary);
    if folder.exists() {
        // It is removed at the end, so it must not be somebody's.
        return Err(format!("{}: the folder exists already", folder.display()).into());
    }
    let file = VolumeFile {
        folder,
        geometry: Geometry {
            volume: VolumeId(u128::from_le_bytes(random_bytes()?)),
            block_length: 4_096,
            blocks: bytes / 4_096,
        },
        quorum: count / 2 + 1,
        replicas,
        needs_tls: false,
        key_check: None,
        parent: None,
    };
    file.geometry.check()?;
    file.check()?;
    Ok(file)
}

/// Writes every block once, so that no read is one of a block that was never written.
fn fill(client: &mut NbdClient) -> io::Result<()> {
    let payload: Vec<u8> = (0..1 << 20).map(|place: u32| (place >> 3) as u8).collect();
    let mut offset = 0;
    while offset < client.bytes {
        let length = (client.bytes - offset).min(1 << 20);
        let part = &payload[..length as usize];
        client.add(ClientCommand::Write, 0, offset, length as u32, part);
        client.send()?;
        client.reply()?;
        offset += length;
    }
    client.flush()
}

fn bench_volume(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    if setup.has(TWINS.name) {
        return bench_twins(setup);
    }
    let runs = runs(setup, true, "4KiB,1MiB,4MiB")?;
    let inline = setup.text(INLINE.name)?.unwrap_or("8KiB");
    let mut processes = BenchProcesses::start(described(setup)?, inline)?;
    processes.await_active()?;
    let address = NbdAddress::Unix(socket_of(&processes.file.folder));
    let failed = |error: io::Error| format!("{address}: {error}");
    fill(&mut NbdClient::connect(&address).map_err(failed)?).map_err(failed)?;
    let mut text = CSV_HEAD.to_owned();
    (setup.print)(format_args!("{HEAD}{}", BenchCost::HEAD));
    for run in runs {
        let mut client = NbdClient::connect(&address).map_err(failed)?;
        let before = processes.cpu();
        let mut figures = measure(&mut client, run).map_err(failed)?;
        let after = processes.cpu();
        let [owner, replicas] = [0, 1].map(|at| after[at].since(before[at]));
        figures.cost = Some(BenchCost {
            owner: owner.all,
            replicas: replicas.all,
            parts: [
                owner.machine,
                owner.jobs,
                replicas.machine,
                replicas.log,
                replicas.jobs,
            ],
            owner_memory: processes.memory(),
        });
        (setup.print)(format_args!("{}", figures.line()));
        text.push_str(&figures.csv());
    }
    write_csv(setup, &text)?;
    Ok(ToolExit::Done)
}

/// Measures the twins with each length.
fn bench_twins(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let writes = runs(setup, true, "4KiB,1MiB,4MiB")?.into_iter();
    let writes = writes.filter(|it| it.workload == BenchWorkload::RandomWrite);
    (setup.print)(format_args!("{}", TwinFigures::HEAD));
    for run in writes {
        if !run.length.is_multiple_of(4_096) {
            return Err(format!("{} bytes are no whole blocks of 4096", run.length).into());
        }
        for (is_shared, is_inline) in [(false, true), (false, false), (true, true), (true, false)] {
            let figures = measure_twin(TwinRun {
                is_shared,
                is_inline,
                length: run.length,
                depth: run.depth,
                time: run.time,
            })?;
            (setup.print)(format_args!("{}", figures.line()));
        }
    }
    Ok(ToolExit::Done)
}
