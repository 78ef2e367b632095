//! The server: one machine, its connections, its disk and its clock.

use crate::freed_memory::keep_freed_memory;
use crate::host_limits::{HostLimits, files_max};
use crate::key::SecretKey;
use crate::machine_disk::{self, Durable, LogTask, MachineDisk};
use crate::net::{Connections, INBOX_MAX, NetworkInput, listen};
use crate::opening::Protocol;
use crate::peer::PeerOptions;
use crate::server_clock::{self, ServerClock};
use crate::stage_times::StageTimes;
use crate::status_server::{self, StatusListener, StatusThread};
use crate::tls::TlsCredentials;
use seatrial_machine::{
    Booted, Computed, DataFolder, DurationHistogram, FileResult, Input, Job, LinePart, Machine,
    Output, StatusSheet, Ticket, Time, WORK_MAX,
};
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Folder of the machine's logs and files; created if missing.
    pub data: PathBuf,
    /// Maximum length of a message, in bytes; a connection that sends a longer one is closed.
    pub message_length_max: usize,
    /// Bounds of the memory and number of connections.
    pub limits: HostLimits,
    /// The protocol.
    pub protocol: Protocol,
    /// The key that clients must prove; `None`: no key is needed.
    pub key: Option<SecretKey>,
    /// Certificates of this server and of all others; `None`: connections are not encrypted.
    pub tls: Option<TlsCredentials>,
    /// The other nodes of the system.
    pub peers: PeerOptions,
    /// Where the server shows its status; `None`: nowhere.
    pub http: Option<StatusListener>,
    /// The file from which clock faults are read ([`ClockOrder`](crate::ClockOrder)); `None`: the clock is right.
    pub clock: Option<PathBuf>,
}

/// Options of a server without logs and files.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Address to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Maximum length of a message, in bytes; a connection that sends a longer one is closed.
    pub message_length_max: usize,
    /// Bounds of the memory and number of connections.
    pub limits: HostLimits,
    /// The protocol.
    pub protocol: Protocol,
    /// The key that clients must prove; `None`: no key is needed.
    pub key: Option<SecretKey>,
    /// Certificates of this server and of all others; `None`: connections are not encrypted.
    pub tls: Option<TlsCredentials>,
    /// The other nodes of the system.
    pub peers: PeerOptions,
    /// Where the server shows its status; `None`: nowhere.
    pub http: Option<StatusListener>,
}

/// Options of a server that accepts no connections: a client of its nodes, see [`serve_guest`].
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// Maximum length of a message, in bytes.
    pub message_length_max: usize,
    /// The protocol.
    pub protocol: Protocol,
    /// The key that both sides of a connection must prove; `None`: no key is needed.
    pub key: Option<SecretKey>,
    /// Certificates of this server and of all others; `None`: connections are not encrypted.
    pub tls: Option<TlsCredentials>,
    /// The nodes. The cluster's own node is [`Cluster::GUEST`](crate::Cluster::GUEST).
    pub peers: PeerOptions,
    /// Where the server shows its status; `None`: nowhere.
    pub http: Option<StatusListener>,
}

/// The local callers of a served machine: other tasks or threads of this process.
pub struct LocalCallers<M: Machine> {
    /// Their requests; the capacity of the channel bounds them. `Ticket(u64::MAX)` belongs to the server.
    pub requests: mpsc::Receiver<(Ticket, M::Request)>,
    /// Called with every reply, on the machine's thread, in the order in which the machine pushed them. Must not block.
    pub reply: ReplySink<M::Reply>,
}

/// Takes the replies to local requests.
pub type ReplySink<P> = Box<dyn FnMut(Ticket, P)>;

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A folder or file cannot be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process uses the data folder.
    #[error("another process uses the data folder {}", .0.display())]
    Locked(PathBuf),
    /// The machine cannot start from its log.
    #[error("{}: {reason}", path.display())]
    Boot {
        /// The data folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error; `AddrInUse`: the port is in use.
        error: io::Error,
    },
    /// A log could not be written or synced. No append was acknowledged that was not durable before.
    #[error("{} cannot be written: {error}", path.display())]
    Append {
        /// The log.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The system refuses a thread.
    #[error("no thread for the disk: {0}")]
    Thread(io::Error),
    /// The machine stopped itself ([`Output::Stop`]).
    #[error("the machine stopped: {0}")]
    Stopped(String),
    /// Another process has the number of this node, and is connected to the other nodes.
    #[error("{0}")]
    Twin(String),
    /// The runtime cannot be created.
    #[error("no runtime: {0}")]
    Runtime(io::Error),
}

/// Result of work outside of the machine.
enum Finished {
    /// A job's result, or its panic.
    Job(Ticket, std::thread::Result<Computed>),
    /// A file task's result, or its panic.
    File(Ticket, std::thread::Result<FileResult>),
}

/// Number of job threads; further jobs and file tasks wait.
const JOB_THREADS_MAX: usize = 4;

/// Maximum number of accepted connections that the server has not yet taken in.
const ACCEPTED_MAX: usize = 256;
/// Connections that the kernel accepts before the server does. Large, so that in a flood other clients are not delayed by a
/// dropped SYN, which is retransmitted after a second.
const BACKLOG: u32 = 4_096;

/// Maximum number of inputs before the outputs are carried out.
const BATCH_MAX: usize = 128;

/// Serves one machine until `stop` is done: opens its folder, builds the machine with `boot`, opens the logs that it lists,
/// listens, passes the address to `ready`, and runs. Blocks the calling thread, which alone gives the machine its turns. When it
/// returns, all appends are written and the folder is unlocked.
pub fn serve<M: Machine>(
    options: &ServeOptions,
    boot: impl FnOnce(&DataFolder) -> Result<Booted<M>, String>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    serve_local(options, boot, None, ready, stop)
}

/// As [`serve`], for a machine that local callers use as well.
pub fn serve_with_callers<M: Machine>(
    options: &ServeOptions,
    boot: impl FnOnce(&DataFolder) -> Result<Booted<M>, String>,
    callers: LocalCallers<M>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    serve_local(options, boot, Some(callers), ready, stop)
}

fn serve_local<M: Machine>(
    options: &ServeOptions,
    boot: impl FnOnce(&DataFolder) -> Result<Booted<M>, String>,
    callers: Option<LocalCallers<M>>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let runtime = runtime()?;
    let folder = machine_disk::open(&options.data)?;
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
        tls: options.tls.clone(),
        peers: options.peers.clone(),
        http: options.http.clone(),
    };
    runtime.block_on(work(
        listen,
        ServerClock::new(options.clock.clone()),
        machine,
        |done, stages| MachineDisk::open(folder, &logs, &done, stages),
        LocalRequests::of(None, callers),
        Entrance::listen(ready),
        stop,
    ))
}

/// Serves one machine that manages its own files: it never returns [`Output::Append`] or [`Output::File`]. When `stop` is done,
/// the machine gets the request `closing` and is served until it has replied to it, 10 s at most. Blocks the calling thread,
/// which alone gives the machine its turns; its jobs run on up to four others.
///
/// Panics if the machine returns one of these outputs.
pub fn serve_machine<M: Machine>(
    options: ListenOptions,
    machine: M,
    closing: M::Request,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let runtime = runtime()?;
    let no_disk = |_, _: &StageTimes| Ok(MachineDisk::none());
    let clock = ServerClock::new(None);
    let local = LocalRequests::of(Some(closing), None);
    let entrance = Entrance::listen(ready);
    runtime.block_on(work(
        options, clock, machine, no_disk, local, entrance, stop,
    ))
}

/// Serves one machine to local callers alone: it dials nodes and accepts no connection. `ready` is called inside the runtime, so
/// it can spawn tasks, which share the calling thread with the machine. Otherwise as [`serve_machine`].
pub fn serve_guest<M: Machine>(
    options: GuestOptions,
    machine: M,
    closing: M::Request,
    callers: LocalCallers<M>,
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let runtime = runtime()?;
    let options = ListenOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)), // not used
        message_length_max: options.message_length_max,
        limits: HostLimits::default(),
        protocol: options.protocol,
        key: options.key,
        tls: options.tls,
        peers: options.peers,
        http: options.http,
    };
    let no_disk = |_, _: &StageTimes| Ok(MachineDisk::none());
    let clock = ServerClock::new(None);
    let local = LocalRequests::of(Some(closing), Some(callers));
    let entrance: Entrance<fn(SocketAddr), _> = Entrance::Closed(ready);
    runtime.block_on(work(
        options, clock, machine, no_disk, local, entrance, stop,
    ))
}

/// How connections get in, and what is called when they can.
enum Entrance<L, C> {
    /// The server listens; gets its address.
    Listen(L),
    /// It does not listen.
    Closed(C),
}

impl<L: FnOnce(SocketAddr)> Entrance<L, fn()> {
    const fn listen(ready: L) -> Self {
        Entrance::Listen(ready)
    }
}

/// Where the requests that are no messages come from.
struct LocalRequests<M: Machine> {
    /// The request to close.
    closing: Option<M::Request>,
    callers: Option<mpsc::Receiver<(Ticket, M::Request)>>,
    reply: Option<ReplySink<M::Reply>>,
}

impl<M: Machine> LocalRequests<M> {
    fn of(closing: Option<M::Request>, callers: Option<LocalCallers<M>>) -> LocalRequests<M> {
        let (callers, reply) = callers.map(|it| (it.requests, it.reply)).unzip();
        LocalRequests {
            closing,
            callers,
            reply,
        }
    }
}

/// A runtime that polls sockets and the clock on the calling thread, and runs jobs on others.
fn runtime() -> Result<Runtime, HostError> {
    keep_freed_memory();
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
    disk: impl FnOnce(Durable, &StageTimes) -> Result<MachineDisk, HostError>,
    local: LocalRequests<M>,
    entrance: Entrance<impl FnOnce(SocketAddr), impl FnOnce()>,
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let listener = match &entrance {
        Entrance::Listen(_) => Some(bind(options.listen)?),
        Entrance::Closed(_) => None,
    };
    let (accepted, arrivals) = mpsc::channel(ACCEPTED_MAX);
    let (inbox, messages) = mpsc::channel(INBOX_MAX);
    let (done, durable) = mpsc::unbounded_channel();
    let stages = StageTimes::default();
    let done: Durable = Arc::new(move |result| {
        let _ = done.send(result); // the server has ended
    });
    let disk = disk(done, &stages)?;
    let (finished, jobs) = mpsc::unbounded_channel();
    let limits = match &options.tls {
        Some(_) => options.limits.with_tls(),
        None => options.limits,
    };
    let limits = limits.within_files(files_max());
    let connections = Connections::new(inbox, limits, &options);
    let status = options.http.as_ref().map(StatusThread::start).transpose()?;
    let server = MachineServer {
        machine,
        clock,
        connections,
        disk,
        finished,
        jobs: 0,
        turns: status.as_ref().map(|_| Box::default()),
        status,
        stages,
        out: Vec::new(),
        is_closed: false,
        reply: local.reply,
        stopped: None,
    };
    if let Some((listener, address)) = listener {
        tokio::spawn(listen(listener, accepted));
        tracing::info!("serving at {address}");
        if let Entrance::Listen(ready) = entrance {
            ready(address);
        }
    } else if let Entrance::Closed(ready) = entrance {
        ready();
    }
    let sources = Sources {
        arrivals,
        messages,
        callers: local.callers,
        durable,
        jobs,
    };
    server.run(sources, local.closing, stop).await
}

/// Listens on an address, also if a server that has just ended used it. Returns the address with its port.
fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), HostError> {
    let bound = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let local = listener.local_addr()?;
        Ok((listener, local))
    };
    bound().map_err(|error| HostError::Listen { address, error })
}

/// Sources of inputs. Those from the disk and from jobs are bounded by the machine's work under way.
struct Sources<R> {
    arrivals: mpsc::Receiver<TcpStream>,
    messages: mpsc::Receiver<NetworkInput>,
    /// `None`: there are no local callers, or all have ended.
    callers: Option<mpsc::Receiver<(Ticket, R)>>,
    durable: mpsc::UnboundedReceiver<Result<Vec<Ticket>, HostError>>,
    jobs: mpsc::UnboundedReceiver<Finished>,
}

/// Receives requests of local callers, up to [`BATCH_MAX`]; pending without callers. Returns 0 when all have ended.
async fn receive_calls<R>(
    callers: &mut Option<mpsc::Receiver<(Ticket, R)>>,
    calls: &mut Vec<(Ticket, R)>,
) -> usize {
    match callers {
        Some(callers) => callers.recv_many(calls, BATCH_MAX).await,
        None => pending().await,
    }
}

/// Owns the machine. Its loop: wait for an input, drain the inbox up to a bound, give the machine a turn per input, then hand
/// over the gathered messages, once per connection.
///
/// Its downside: one machine uses one core.
struct MachineServer<M: Machine> {
    machine: M,
    clock: ServerClock,
    connections: Connections,
    disk: MachineDisk,
    finished: mpsc::UnboundedSender<Finished>,
    /// Number of jobs under way.
    jobs: usize,
    /// Replies to requests for the status, if that is wanted.
    status: Option<StatusThread>,
    /// Durations of turns with their outputs, if the status is wanted: a clock is read twice per turn.
    turns: Option<Box<DurationHistogram>>,
    stages: StageTimes,
    /// Reused by every turn.
    out: Vec<Output<M::Reply>>,
    /// Has the machine replied to the request to close?
    is_closed: bool,
    /// Takes the replies to local callers.
    reply: Option<ReplySink<M::Reply>>,
    /// Why the server ends: the machine stopped itself, or another process has the node's number.
    stopped: Option<HostError>,
}

/// Ticket of the request to close; local callers do not use it.
const CLOSING: Ticket = Ticket(u64::MAX);
/// Time limit for a machine to close.
const CLOSING_MAX: Duration = Duration::from_secs(10);

impl<M: Machine> MachineServer<M> {
    async fn run(
        mut self,
        mut sources: Sources<M::Request>,
        mut closing: Option<M::Request>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), HostError> {
        let mut stop = std::pin::pin!(stop);
        let mut is_stopping = false;
        let mut deadline = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let (mut batch, mut calls) = (Vec::with_capacity(BATCH_MAX), Vec::new());
        let mut was_due = false;
        let mut description = status_server::ticks();
        self.turn(Input::Wake);
        while !self.is_closed {
            if let Some(error) = self.stopped.take() {
                return Err(error);
            }
            let wake = self.machine.wake_at();
            let is_due = wake.is_some_and(|due| self.clock.until(due).is_zero());
            // Once in a row: a machine that is due at every moment must not keep the other sources from their turns.
            if is_due && !std::mem::replace(&mut was_due, true) {
                self.drain(&mut sources);
                self.turn(Input::Wake);
                continue;
            }
            was_due = false;
            self.connections.flush();
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
                    tracing::error!("the machine did not close within {CLOSING_MAX:?}");
                    return Ok(());
                }
                Some(stream) = sources.arrivals.recv() => {
                    self.accept_all(stream, &mut sources.arrivals);
                }
                Some(result) = sources.durable.recv() => self.appended(&result?),
                Some(finished) = sources.jobs.recv() => self.finish(finished),
                count = sources.messages.recv_many(&mut batch, BATCH_MAX),
                    if batch.is_empty() && self.has_room() => {
                    debug_assert!(count > 0, "the server holds a sender");
                    for arrival in batch.drain(..) {
                        self.arrive(arrival);
                    }
                }
                count = receive_calls(&mut sources.callers, &mut calls), if self.has_room() => {
                    if count == 0 {
                        sources.callers = None; // all have ended
                    }
                    self.turns(&mut calls);
                }
                () = self.sleep_until(wake) => self.turn(Input::Wake),
                _ = description.tick(), if self.status.is_some() => self.describe(),
                () = tokio::time::sleep(server_clock::INTERVAL), if self.clock.is_adjustable() => {
                    self.clock.obey(false);
                }
            }
        }
        Ok(())
    }

    /// Reports durable appends to the machine.
    fn appended(&mut self, tickets: &[Ticket]) {
        for ticket in tickets {
            self.turn(Input::Appended(*ticket));
        }
    }

    /// Takes in a new connection, and others that wait.
    fn accept_all(&mut self, first: TcpStream, arrivals: &mut mpsc::Receiver<TcpStream>) {
        self.connections.accept(first);
        for _ in 1..ACCEPTED_MAX {
            let Ok(stream) = arrivals.try_recv() else {
                break;
            };
            self.connections.accept(stream);
        }
    }

    /// Gives the machine requests of local callers.
    fn turns(&mut self, calls: &mut Vec<(Ticket, M::Request)>) {
        for (ticket, request) in calls.drain(..) {
            self.turn(Input::Request(ticket, request));
        }
    }

    /// Gives the machine what has arrived already, so that a due wake-up handles all of it at once: a timer takes a millisecond
    /// to fire.
    fn drain(&mut self, sources: &mut Sources<M::Request>) {
        for _ in 0..BATCH_MAX {
            if !self.has_room() {
                return;
            }
            let Ok(arrival) = sources.messages.try_recv() else {
                return;
            };
            self.arrive(arrival);
        }
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

    fn arrive(&mut self, arrival: NetworkInput) {
        match arrival {
            NetworkInput::Message(from, bytes, held) => {
                if let Some((from, bytes)) = self.connections.admits(from, bytes, held) {
                    self.turn(Input::Message { from, bytes });
                }
            }
            NetworkInput::Own(from, bytes) => self.turn(Input::Message { from, bytes }),
            NetworkInput::Answer(from, bytes, held) => {
                self.turn(Input::Message { from, bytes });
                drop(held);
            }
            NetworkInput::Drained(from) => {
                while let Some(bytes) = self.connections.next_held(from) {
                    self.turn(Input::Message { from, bytes });
                }
            }
            NetworkInput::Closed(id, reason) => self.connections.ended(id, reason.as_ref()),
            NetworkInput::Written(id, reason) => self.connections.written(id, reason.as_ref()),
            NetworkInput::Twin(reason) => self.stopped = Some(HostError::Twin(reason)),
        }
    }

    /// May the machine get messages, which may begin more work?
    fn has_room(&self) -> bool {
        self.jobs + self.disk.files.len() < WORK_MAX
    }

    /// Gives the machine the result of work outside of it.
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
            // A panic of a job is a bug of the machine: it is propagated, because the machine would wait for the result for
            // ever.
            Finished::Job(_, Err(panic)) | Finished::File(_, Err(panic)) => resume_unwind(panic),
        }
    }

    /// Starts the file tasks that wait for no other.
    fn start_files(&mut self) {
        while let Some((ticket, task, folder)) = self.disk.start_file() {
            let (finished, stages) = (self.finished.clone(), self.stages.clone());
            tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                let result = catch_unwind(AssertUnwindSafe(|| folder.run(task)));
                stages.file_task_done(began.elapsed());
                let _ = finished.send(Finished::File(ticket, result)); // the server has ended
            });
        }
    }

    /// Gives the machine a turn and carries out its outputs; messages are gathered.
    fn turn(&mut self, input: Input<M::Request>) {
        if self.stopped.is_some() {
            return;
        }
        let began = self.turns.is_some().then(Instant::now);
        let now = self.clock.now();
        self.machine.turn(now, input, &mut self.out);
        self.machine.check_invariants();
        for output in self.out.drain(..) {
            match output {
                Output::Send { to, message } => self.connections.send(to, message),
                Output::SendShared { to, head, shared } => {
                    self.connections.send_shared(to, head, shared);
                }
                Output::Address { node, address } => self.connections.set_address(node, address),
                Output::Admit(id) => self.connections.admit(id),
                Output::Close(id) => self.connections.close(id),
                Output::Append { log, bytes, ticket } => {
                    self.disk.log(log, LogTask::Append(bytes, ticket));
                }
                Output::Write { log, bytes, ticket } => {
                    self.disk.log(log, LogTask::Write(bytes, ticket));
                }
                Output::TruncateHead { log, position } => {
                    self.disk.log(log, LogTask::TruncateHead(position));
                }
                Output::File(task, ticket) => self.disk.files.push(ticket, task),
                Output::Compute(job, ticket) => {
                    self.jobs += 1;
                    start_job(job, ticket, self.finished.clone(), self.stages.clone());
                }
                Output::Reply(CLOSING, _) => self.is_closed = true,
                Output::Reply(ticket, reply) => {
                    if let Some(take) = &mut self.reply {
                        take(ticket, reply);
                    }
                }
                Output::Stop(reason) => {
                    self.stopped = Some(HostError::Stopped(reason));
                    break;
                }
            }
        }
        self.start_files();
        if let Some((turns, began)) = self.turns.as_mut().zip(began) {
            turns.add(began.elapsed());
        }
    }

    /// Describes the machine and this server for the status.
    fn describe(&mut self) {
        let Some(status) = &self.status else {
            return;
        };
        let mut sheet = StatusSheet::default();
        self.machine.describe(self.clock.now(), &mut sheet);
        if let Some(turns) = &self.turns {
            sheet.durations("turn_seconds", "Time of a turn with its outputs", turns);
            sheet.chart(
                "Time spent on turns",
                &[("of one core", "turn_seconds", LinePart::Share)],
            );
        }
        let jobs = self.jobs as f64;
        sheet.gauge("jobs", "Jobs of the machine under way", jobs);
        let files = self.disk.files.len() as f64;
        sheet.gauge("file_tasks", "File tasks of the machine under way", files);
        self.stages.describe(&mut sheet);
        self.connections.describe(&mut sheet);
        status_server::describe_process(&mut sheet);
        status.board.update(sheet);
    }
}

/// Runs a job on another thread.
fn start_job(
    job: Box<dyn Job>,
    ticket: Ticket,
    finished: mpsc::UnboundedSender<Finished>,
    stages: StageTimes,
) {
    tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| job.run()));
        stages.job_done(began.elapsed());
        let _ = finished.send(Finished::Job(ticket, result)); // the server has ended
    });
}
