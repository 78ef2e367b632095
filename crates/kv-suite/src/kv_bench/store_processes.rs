//! Processes of a store under load: this store's nodes, Redis, etcd. Killed at the end.

use crate::credentials::Credentials;
use crate::tools::StoreSession;
use seatrial_suite::{ProcessUsage, SuiteError};
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How this store's nodes are started.
#[derive(Clone, Debug)]
pub(crate) struct NodeProgram {
    pub(crate) binary: PathBuf,
    /// Further options of `node kv`.
    pub(crate) options: Vec<String>,
    /// A shared library to preload.
    pub(crate) preload: Option<PathBuf>,
}

/// One process: how it is started, and its present life.
struct StoreProcess {
    command: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    /// What its earlier lives used.
    past: ProcessUsage,
}

/// The processes of one store, in a folder of their own, which is removed at the end.
pub(crate) struct StoreProcesses {
    processes: Vec<StoreProcess>,
    addresses: Vec<SocketAddr>,
    folder: PathBuf,
    /// The process that [`StoreProcesses::kill`] has killed.
    killed: Option<usize>,
}

/// Time within which a store must listen.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// What Redis does with its log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RedisLog {
    /// There is none.
    None,
    /// It is synced before a reply, and only grows.
    Synced,
    /// It is synced before a reply, and rewritten when it has doubled, as by default: what checkpoints are here.
    Rewritten,
}

impl StoreProcesses {
    /// Starts nodes of this store.
    pub(crate) fn kv(
        program: &NodeProgram,
        nodes: usize,
        folder: &Path,
    ) -> Result<StoreProcesses, SuiteError> {
        let addresses = free_addresses(nodes)?;
        let binary = program.binary.display().to_string();
        let command = |own: usize| {
            let peers: Vec<String> = (0..nodes)
                .filter(|peer| *peer != own)
                .map(|peer| format!("n{}={}", peer + 1, addresses[peer]))
                .collect();
            let number = (own + 1).to_string();
            let data = folder.join(format!("n{number}")).display().to_string();
            let listen = addresses[own].to_string();
            let mut words = Vec::new();
            if let Some(library) = &program.preload {
                let variable = format!("LD_PRELOAD={}", library.display());
                words.extend(["env".to_owned(), variable]);
            }
            words.extend([binary.clone(), "node".into(), "kv".into()]);
            for (name, value) in [
                ("--node", number),
                ("--listen", listen),
                ("--data", data),
                ("--peers", peers.join(",")),
            ] {
                if !value.is_empty() {
                    words.extend([name.to_owned(), value]);
                }
            }
            words.extend(program.options.iter().cloned());
            words
        };
        let commands = (0..nodes).map(command).collect();
        StoreProcesses::start(commands, addresses, folder)
    }

    /// Starts a Redis without snapshots.
    pub(crate) fn redis(log: RedisLog, folder: &Path) -> Result<StoreProcesses, SuiteError> {
        let addresses = free_addresses(1)?;
        let port = addresses[0].port();
        let (appends, rewrite) = match log {
            RedisLog::None => ("no", 0),
            RedisLog::Synced => ("yes", 0),
            RedisLog::Rewritten => ("yes", 100),
        };
        let folder_name = folder.display();
        let text = format!(
            "redis-server --bind 127.0.0.1 --port {port} --dir {folder_name} --save  --appendonly {appends} \
             --appendfsync always --auto-aof-rewrite-percentage {rewrite}"
        );
        let command = text.split(' ').map(ToOwned::to_owned).collect();
        StoreProcesses::start(vec![command], addresses, folder)
    }

    /// Starts nodes of etcd.
    pub(crate) fn etcd(nodes: usize, folder: &Path) -> Result<StoreProcesses, SuiteError> {
        let addresses = free_addresses(2 * nodes)?;
        let (clients, peers) = addresses.split_at(nodes);
        let name = |index: usize| format!("n{}=http://{}", index + 1, peers[index]);
        let cluster: Vec<String> = (0..nodes).map(name).collect();
        let cluster = cluster.join(",");
        let command = |own: usize| {
            let (client, peer) = (clients[own], peers[own]);
            let number = own + 1;
            let data = folder.join(format!("n{number}"));
            let text = format!(
                "etcd --name n{number} --data-dir {} --listen-client-urls http://{client} --advertise-client-urls \
                 http://{client} --listen-peer-urls http://{peer} --initial-advertise-peer-urls http://{peer} \
                 --initial-cluster {cluster} --quota-backend-bytes 8589934592 --auto-compaction-mode revision \
                 --auto-compaction-retention 1000 --logger zap --log-level error",
                data.display()
            );
            text.split(' ').map(ToOwned::to_owned).collect()
        };
        let commands = (0..nodes).map(command).collect();
        StoreProcesses::start(commands, clients.to_vec(), folder)
    }

    fn start(
        commands: Vec<Vec<String>>,
        addresses: Vec<SocketAddr>,
        folder: &Path,
    ) -> Result<StoreProcesses, SuiteError> {
        std::fs::create_dir_all(folder)?;
        let processes = commands.into_iter().enumerate();
        let mut store = StoreProcesses {
            processes: processes
                .map(|(index, command)| StoreProcess {
                    command,
                    log: folder.join(format!("process-{}.log", index + 1)),
                    child: None,
                    past: ProcessUsage::default(),
                })
                .collect(),
            addresses,
            folder: folder.to_owned(),
            killed: None,
        };
        for process in &mut store.processes {
            process.start()?;
        }
        store.wait_until_they_listen()?;
        Ok(store)
    }

    fn wait_until_they_listen(&mut self) -> Result<(), SuiteError> {
        let began = Instant::now();
        for (process, address) in self.processes.iter_mut().zip(&self.addresses) {
            while TcpStream::connect(address).is_err() {
                let name = process.command[0].clone();
                if let Some(child) = &mut process.child
                    && let Some(status) = child.try_wait()?
                {
                    let log = std::fs::read_to_string(&process.log).unwrap_or_default();
                    return Err(format!("{name} ended ({status}): {}", log.trim()).into());
                }
                if began.elapsed() > START_TIMEOUT {
                    return Err(format!("{name} does not listen on {address}").into());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Where clients connect.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// What all processes have used: time in sum, and the sum of each one's most memory.
    pub(crate) fn usage(&self) -> ProcessUsage {
        let mut sum = ProcessUsage::default();
        for process in &self.processes {
            let usage = process.usage();
            sum.cpu += usage.cpu;
            sum.memory += usage.memory;
        }
        sum
    }

    /// Kills the node that leads, or one that does not.
    pub(crate) fn kill(&mut self, leads: bool) -> Result<String, SuiteError> {
        let (servers, timeout) = (self.addresses(), Duration::from_secs(1));
        let session = StoreSession {
            servers: servers.clone(),
            credentials: Credentials::default(),
            timeout,
        };
        // Not on this thread, which runs the load.
        let find = move || session.first_with_role(leads);
        let found = std::thread::spawn(find).join();
        let found = found.map_err(|_| "the search for a leader failed")??;
        let index = servers.iter().position(|address| *address == found);
        let index = index.ok_or("no such node")?;
        self.processes[index].kill();
        self.killed = Some(index);
        let what = if leads { "leader" } else { "follower" };
        Ok(format!("kill -9 of the {what} n{}", index + 1))
    }

    /// Starts the killed node again.
    pub(crate) fn restart(&mut self) -> Result<String, SuiteError> {
        let index = self.killed.take().ok_or("no node was killed")?;
        self.processes[index].start()?;
        Ok(format!("start of n{}", index + 1))
    }
}

impl Drop for StoreProcesses {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(StoreProcess::kill);
        let _ = std::fs::remove_dir_all(&self.folder); // what stays is in a folder that the user named, or the system's
    }
}

impl StoreProcess {
    fn start(&mut self) -> Result<(), SuiteError> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        let child =
            child.map_err(|error| format!("{} cannot be started: {error}", self.command[0]))?;
        self.child = Some(child);
        Ok(())
    }

    fn usage(&self) -> ProcessUsage {
        let id = self.child.as_ref().map(Child::id);
        let now = id.and_then(ProcessUsage::of).unwrap_or_default();
        ProcessUsage {
            cpu: self.past.cpu + now.cpu,
            memory: self.past.memory.max(now.memory),
        }
    }

    fn kill(&mut self) {
        self.past = self.usage();
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Addresses at which nothing listens at the moment.
fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, SuiteError> {
    let listeners: Result<Vec<TcpListener>, _> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect();
    let addresses: Result<_, _> = listeners?.iter().map(TcpListener::local_addr).collect();
    Ok(addresses?)
}
