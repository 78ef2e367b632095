//! One machine as a server.

use crate::clock::{self, ServerClock};
use crate::disk::{self, Durable, LogTask, MachineDisk};
use crate::key::Key;
use crate::limits::{HostLimits, files_max};
use crate::net::{Arrival, Connections, INBOX_MAX, listen};
use crate::opening::Protocol;
use crate::peer::PeerOptions;
use seatrial_machine::{
    Booted, Computed, DataFolder, FileResult, Input, Job, Machine, Output, Ticket, Time, WORK_MAX,
};
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder of the machine's logs and files; made when missing.
    pub data: PathBuf,
    /// Longest message in bytes; a connection that sends a longer one is closed.
    pub message_length_max: usize,
    /// What connections may cost.
    pub limits: HostLimits,
    /// What is spoken.
    pub protocol: Protocol,
    /// What clients have to know; `None`: nothing.
    pub key: Option<Key>,
    /// The other nodes of its system.
    pub peers: PeerOptions,
    /// The file in which a test orders the machine's clock to be wrong ([`ClockOrder`](crate::ClockOrder)); none, it is
    /// right.
    pub clock: Option<PathBuf>,
}

/// What a server without a log needs to know.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Longest message in bytes; a connection that sends a longer one is closed.
    pub message_length_max: usize,
    /// What connections may cost.
    pub limits: HostLimits,
    /// What is spoken.
    pub protocol: Protocol,
    /// What clients have to know; `None`: nothing.
    pub key: Option<Key>,
    /// The other nodes of its system.
    pub peers: PeerOptions,
}

/// Why a server cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A folder or file cannot be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another process uses the data folder.
    #[error("another process uses the data folder {}", .0.display())]
    Locked(PathBuf),
    /// The log makes no sense to the machine.
    #[error("{}: {reason}", path.display())]
    Boot {
        /// The data folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Nobody can listen there.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says; `AddrInUse`: the port is in use.
        error: io::Error,
    },
    /// The log could not be written or synced. Nothing that was not durable before has been acknowledged.
    #[error("{} cannot be written: {error}", path.display())]
    Append {
        /// The log.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The system gives no thread.
    #[error("no thread for the disk: {0}")]
    Thread(io::Error),
    /// The system gives no runtime.
    #[error("no runtime: {0}")]
    Runtime(io::Error),
}

/// What was done beside the machine.
enum Finished {
    /// A job: its result, or its panic.
    Job(Ticket, std::thread::Result<Computed>),
    /// A task on a file: its answer, or a panic of what carried it out.
    File(Ticket, std::thread::Result<FileResult>),
}

/// Threads that run jobs and tasks on files; further ones wait for one.
const JOB_THREADS_MAX: usize = 4;

/// Connections that were accepted and are not taken in yet.
const ACCEPTED_MAX: usize = 256;
/// Connections that the system may accept before the server has heard of them: in a flood, others are not to be told
/// to try again in a second.
const BACKLOG: u32 = 4_096;

/// Inputs that one batch of turns takes at most before the outputs are carried out.
const BATCH_MAX: usize = 128;

/// Serves one machine until `stop` is done: opens its folder, lets `boot` make the machine of what is there, opens the logs
/// that it names, listens, tells `ready` the address, and works. Blocks the calling thread, which alone turns the machine.
/// When it returns, what was appended is written and the folder is free for another process.
pub fn serve<M: Machine>(
    options: &ServeOptions,
    boot: impl FnOnce(&DataFolder) -> Result<Booted<M>, String>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let runtime = runtime()?;
    let folder = disk::open(&options.data)?;
    let Booted { machine, logs } = boot(&folder.data).map_err(|reason| HostError::Boot {
        path: options.data.clone(),
        reason,
    })?;
    let listen = ListenOptions {
        listen: options.listen,
        message_length_max: options.message_length_max,
        limits: options.limits,
        protocol: options.protocol,
        key: options.key.clone(),
        peers: options.peers.clone(),
    };
    runtime.block_on(work(
        listen,
        ServerClock::new(options.clock.clone()),
        machine,
        |done| MachineDisk::open(folder, &logs, &done),
        None,
        ready,
        stop,
    ))
}

/// Serves one machine that keeps its files by itself: it never asks for [`Output::Append`] or [`Output::File`]. When `stop`
/// is done, the machine is given the request `closing` and served on until it has answered that, 10 s at most. Blocks the
/// calling thread, which alone turns the machine; its jobs run on up to four others.
///
/// Panics when the machine asks for one of these.
pub fn serve_machine<M: Machine>(
    options: ListenOptions,
    machine: M,
    closing: M::Request,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let runtime = runtime()?;
    let no_disk = |_| Ok(MachineDisk::none());
    let clock = ServerClock::new(None);
    let closing = Some(closing);
    runtime.block_on(work(options, clock, machine, no_disk, closing, ready, stop))
}

/// What waits for sockets and the clock in the calling thread, and runs jobs in others.
fn runtime() -> Result<Runtime, HostError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(JOB_THREADS_MAX)
        .build();
    runtime.map_err(HostError::Runtime)
}

/// Listens, and serves until `stop` is done.
async fn work<M: Machine>(
    options: ListenOptions,
    clock: ServerClock,
    machine: M,
    disk: impl FnOnce(Durable) -> Result<MachineDisk, HostError>,
    closing: Option<M::Request>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let failed = |error| HostError::Listen {
        address: options.listen,
        error,
    };
    let listener = bind(options.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (accepted, arrivals) = mpsc::channel(ACCEPTED_MAX);
    tokio::spawn(listen(listener, accepted));
    let (inbox, messages) = mpsc::channel(INBOX_MAX);
    let (done, durable) = mpsc::unbounded_channel();
    let disk = disk(Arc::new(move |result| {
        let _ = done.send(result); // the server has ended
    }))?;
    let (finished, jobs) = mpsc::unbounded_channel();
    let limits = options.limits.within_files(files_max());
    let connections = Connections::new(inbox, limits, &options);
    let server = Server {
        machine,
        clock,
        connections,
        disk,
        finished,
        jobs: 0,
        out: Vec::new(),
        is_closed: false,
    };
    tracing::info!("serving at {address}");
    ready(address);
    let sources = Sources {
        arrivals,
        messages,
        durable,
        jobs,
    };
    server.run(sources, closing, stop).await
}

/// Listens at an address, which may have been used by a server that has just ended.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Where inputs come from. What comes from the disk and from jobs is bounded by what the machine has under way.
struct Sources {
    arrivals: mpsc::Receiver<TcpStream>,
    messages: mpsc::Receiver<Arrival>,
    durable: mpsc::UnboundedReceiver<Result<Vec<Ticket>, HostError>>,
    jobs: mpsc::UnboundedReceiver<Finished>,
}

/// Owns the machine. Its loop: wait for anything, drain the inbox up to a bound, give the machine a turn for each input,
/// then hand the sends over once per connection.
///
/// Its downside: one machine, one core.
struct Server<M: Machine> {
    machine: M,
    clock: ServerClock,
    connections: Connections,
    disk: MachineDisk,
    finished: mpsc::UnboundedSender<Finished>,
    /// Jobs under way.
    jobs: usize,
    /// Reused by every turn.
    out: Vec<Output<M::Reply>>,
    /// Has it answered the request to close?
    is_closed: bool,
}

/// The only local request that a server makes: to close.
const CLOSING: Ticket = Ticket(u64::MAX);
/// How long a machine may take to close.
const CLOSING_MAX: Duration = Duration::from_secs(10);

impl<M: Machine> Server<M> {
    async fn run(
        mut self,
        mut sources: Sources,
        mut closing: Option<M::Request>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), HostError> {
        let mut stop = std::pin::pin!(stop);
        let mut is_stopping = false;
        let mut deadline = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let mut batch = Vec::with_capacity(BATCH_MAX);
        self.turn(Input::Wake);
        while !self.is_closed {
            self.connections.flush();
            let wake = self.machine.wake_at();
            tokio::select! {
                () = &mut stop, if !is_stopping => {
                    let Some(request) = closing.take() else {
                        return Ok(());
                    };
                    is_stopping = true;
                    deadline.set(tokio::time::sleep(CLOSING_MAX));
                    self.turn(Input::Request(CLOSING, request));
                }
                () = &mut deadline, if is_stopping => {
                    tracing::error!("gave up closing after {CLOSING_MAX:?}: the machine did not answer");
                    return Ok(());
                }
                Some(stream) = sources.arrivals.recv() => {
                    self.connections.accept(stream);
                    for _ in 1..ACCEPTED_MAX {
                        let Ok(stream) = sources.arrivals.try_recv() else {
                            break;
                        };
                        self.connections.accept(stream);
                    }
                }
                Some(result) = sources.durable.recv() => {
                    for ticket in result? {
                        self.turn(Input::Appended(ticket));
                    }
                }
                Some(finished) = sources.jobs.recv() => self.finish(finished),
                count = sources.messages.recv_many(&mut batch, BATCH_MAX),
                    if batch.is_empty() && self.has_room() => {
                    debug_assert!(count > 0, "the server holds a sender");
                    for arrival in batch.drain(..) {
                        self.arrive(arrival);
                    }
                }
                () = self.sleep_until(wake) => self.turn(Input::Wake),
                () = tokio::time::sleep(clock::INTERVAL), if self.clock.is_adjustable() => {
                    self.clock.obey(false);
                }
            }
        }
        Ok(())
    }

    async fn sleep_until(&self, wake: Option<Time>) {
        match wake {
            Some(wake) => {
                let wait = self.clock.until(wake).min(Duration::from_hours(1));
                tokio::time::sleep(wait).await;
            }
            None => pending().await,
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Message(from, bytes, held) => {
                if let Some((from, bytes)) = self.connections.admits(from, bytes, held) {
                    self.turn(Input::Message { from, bytes });
                }
            }
            Arrival::Own(from, bytes) => self.turn(Input::Message { from, bytes }),
            Arrival::Drained(from) => {
                while let Some(bytes) = self.connections.next_held(from) {
                    self.turn(Input::Message { from, bytes });
                }
            }
            Arrival::Closed(id, reason) => self.connections.ended(id, reason.as_ref()),
            Arrival::Written(id, reason) => self.connections.written(id, reason.as_ref()),
        }
    }

    /// May the machine be given messages, which may begin more work?
    fn has_room(&self) -> bool {
        self.jobs + self.disk.files.len() < WORK_MAX
    }

    /// Tells the machine what was done beside it.
    fn finish(&mut self, finished: Finished) {
        match finished {
            Finished::Job(ticket, Ok(result)) => {
                self.jobs -= 1;
                self.turn(Input::Computed(ticket, result));
            }
            Finished::File(ticket, Ok(result)) => {
                self.disk.files.finish(ticket);
                self.start_files();
                self.turn(Input::FileDone(ticket, result));
            }
            // A job that panics is a bug of the machine, and the machine waits for it.
            Finished::Job(_, Err(panic)) | Finished::File(_, Err(panic)) => resume_unwind(panic),
        }
    }

    /// Begins the tasks on files that wait for no other.
    fn start_files(&mut self) {
        while let Some((ticket, task, folder)) = self.disk.start_file() {
            let finished = self.finished.clone();
            tokio::task::spawn_blocking(move || {
                let result = catch_unwind(AssertUnwindSafe(|| folder.run(task)));
                let _ = finished.send(Finished::File(ticket, result)); // the server has ended
            });
        }
    }

    /// Gives the machine a turn and carries out what it wants; sends are gathered.
    fn turn(&mut self, input: Input<M::Request>) {
        let now = self.clock.now();
        self.machine.turn(now, input, &mut self.out);
        self.machine.check_invariants();
        for output in self.out.drain(..) {
            match output {
                Output::Send { to, message } => self.connections.send(to, message),
                Output::Address { node, address } => self.connections.set_address(node, address),
                Output::Admit(id) => self.connections.admit(id),
                Output::Close(id) => self.connections.close(id),
                Output::Append { log, bytes, ticket } => {
                    self.disk.log(log, LogTask::Append(bytes, ticket));
                }
                Output::TruncateHead { log, position } => {
                    self.disk.log(log, LogTask::TruncateHead(position));
                }
                Output::File(task, ticket) => self.disk.files.push(ticket, task),
                Output::Compute(job, ticket) => {
                    self.jobs += 1;
                    start_job(job, ticket, self.finished.clone());
                }
                // A server has no other local callers.
                Output::Reply(ticket, _) => self.is_closed |= ticket == CLOSING,
            }
        }
        self.start_files();
    }
}

/// Runs a job on another thread.
fn start_job(job: Box<dyn Job>, ticket: Ticket, finished: mpsc::UnboundedSender<Finished>) {
    tokio::task::spawn_blocking(move || {
        let result = catch_unwind(AssertUnwindSafe(|| job.run()));
        let _ = finished.send(Finished::Job(ticket, result)); // the server has ended
    });
}
