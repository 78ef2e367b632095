//! One machine as a server.

use crate::clock::{self, ServerClock};
use crate::disk::{DiskThread, LogFile};
use crate::key::Key;
use crate::limits::{HostLimits, files_max};
use crate::net::{Arrival, Connections, INBOX_MAX, listen};
use crate::notice::Report;
use crate::opening::Protocol;
use seatrial_machine::{Computed, Disk, Input, Machine, Output, Ticket, Time};
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder of the log; made when missing.
    pub data: PathBuf,
    /// Longest message in bytes; a connection that sends a longer one is closed.
    pub message_length_max: usize,
    /// What connections may cost.
    pub limits: HostLimits,
    /// Where notices about connections go.
    pub report: Report,
    /// What is spoken.
    pub protocol: Protocol,
    /// What clients have to know; `None`: nothing.
    pub key: Option<Key>,
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
    /// Where notices about connections go.
    pub report: Report,
    /// What is spoken.
    pub protocol: Protocol,
    /// What clients have to know; `None`: nothing.
    pub key: Option<Key>,
}

/// What was made of a log.
#[derive(Debug)]
pub struct Booted<M> {
    /// The machine, before its first turn.
    pub machine: M,
    /// Where its log ends; what is behind is cut off.
    pub log_end: u64,
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

/// What came of a job: its result, or its panic.
type JobResult = std::thread::Result<Computed>;

/// Threads that run jobs; further jobs wait for one.
const JOB_THREADS_MAX: usize = 4;

/// Connections that were accepted and are not taken in yet.
const ACCEPTED_MAX: usize = 256;
/// Connections that the system may accept before the server has heard of them: in a flood, others are not to be told
/// to try again in a second.
const BACKLOG: u32 = 4_096;

/// Inputs that one batch of turns takes at most before the outputs are carried out.
const BATCH_MAX: usize = 128;

/// Serves one machine until `stop` is done: opens the log, lets `boot` make the machine of it, listens, tells `ready` the
/// address, and works. Blocks the calling thread, which alone turns the machine. When it returns, what was appended is
/// written and the folder is free for another process.
pub fn serve<M: Machine>(
    options: &ServeOptions,
    boot: impl FnOnce(&dyn Disk) -> Result<Booted<M>, String>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let runtime = runtime()?;
    let mut log = LogFile::open(&options.data)?;
    let booted = boot(&log).map_err(|reason| HostError::Boot {
        path: options.data.clone(),
        reason,
    })?;
    log.truncate(booted.log_end)?;
    let listen = ListenOptions {
        listen: options.listen,
        message_length_max: options.message_length_max,
        limits: options.limits,
        report: options.report,
        protocol: options.protocol,
        key: options.key.clone(),
    };
    runtime.block_on(work(
        listen,
        ServerClock::new(options.clock.clone()),
        booted.machine,
        |done| DiskThread::start(log, done).map(Some),
        None,
        ready,
        stop,
    ))
}

/// Serves one machine that keeps its files by itself and never asks for [`Output::Append`]. When `stop` is done, the machine
/// is given the request `closing` and served on until it has answered that, 10 s at most. Blocks the calling thread, which
/// alone turns the machine; its jobs run on up to four others.
///
/// Panics when the machine asks for an append.
pub fn serve_machine<M: Machine>(
    options: ListenOptions,
    machine: M,
    closing: M::Request,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let runtime = runtime()?;
    let no_disk = |_| Ok(None);
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

/// Tells a server that appends are durable, or that they never will be.
type Durable = Box<dyn FnMut(Result<Vec<Ticket>, HostError>) + Send>;

/// Listens, and serves until `stop` is done.
async fn work<M: Machine>(
    options: ListenOptions,
    clock: ServerClock,
    machine: M,
    disk: impl FnOnce(Durable) -> Result<Option<DiskThread>, HostError>,
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
    tokio::spawn(listen(listener, accepted, options.report));
    let (inbox, messages) = mpsc::channel(INBOX_MAX);
    let (done, durable) = mpsc::unbounded_channel();
    let disk = disk(Box::new(move |result| {
        let _ = done.send(result); // the server has ended
    }))?;
    let (finished, jobs) = mpsc::unbounded_channel();
    let limits = options.limits.within_files(files_max());
    let connections = Connections::new(inbox, limits, &options);
    let server = Server {
        machine,
        clock,
        connections,
        report: options.report,
        disk,
        finished,
        out: Vec::new(),
        is_closed: false,
    };
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
    jobs: mpsc::UnboundedReceiver<(Ticket, JobResult)>,
}

/// Owns the machine. Its loop: wait for anything, drain the inbox up to a bound, give the machine a turn for each input,
/// then hand the sends over once per connection.
///
/// Its downside: one machine, one core.
struct Server<M: Machine> {
    machine: M,
    clock: ServerClock,
    connections: Connections,
    report: Report,
    /// `None` for a machine without a log.
    disk: Option<DiskThread>,
    finished: mpsc::UnboundedSender<(Ticket, JobResult)>,
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
                    (self.report)(format_args!("gave up closing after {CLOSING_MAX:?}"));
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
                Some((ticket, result)) = sources.jobs.recv() => match result {
                    Ok(result) => self.turn(Input::Computed(ticket, result)),
                    // A job that panics is a bug of the machine, and the machine waits for it.
                    Err(panic) => resume_unwind(panic),
                },
                count = sources.messages.recv_many(&mut batch, BATCH_MAX), if batch.is_empty() => {
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
                if let Some(bytes) = self.connections.admits(from, bytes, held) {
                    self.turn(Input::Message { from, bytes });
                }
            }
            Arrival::Drained(from) => {
                while let Some(bytes) = self.connections.next_held(from) {
                    self.turn(Input::Message { from, bytes });
                }
            }
            Arrival::Closed(id, reason) => self.connections.ended(id, reason.as_ref()),
            Arrival::Written(id, reason) => self.connections.written(id, reason.as_ref()),
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
                Output::Admit(id) => self.connections.admit(id),
                Output::Close(id) => self.connections.close(id),
                Output::Append(bytes, ticket) => match &self.disk {
                    Some(disk) => disk.append(bytes, ticket),
                    None => panic!("a machine without a log appends {} bytes", bytes.len()),
                },
                Output::Compute(job, ticket) => {
                    let finished = self.finished.clone();
                    tokio::task::spawn_blocking(move || {
                        let result = catch_unwind(AssertUnwindSafe(|| job.run()));
                        let _ = finished.send((ticket, result)); // the server has ended
                    });
                }
                // A server has no other local callers.
                Output::Reply(ticket, _) => self.is_closed |= ticket == CLOSING,
            }
        }
    }
}
