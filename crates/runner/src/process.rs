//! Nodes that are processes of this machine.

use crate::child::Child;
use crate::{BoxFuture, ClientError, Death, Effect, Mesh, NodeError, Nodes, damage, log};
use rustix::process::{Pid, Resource, getrlimit, prlimit};
use seatrial_host::ClockOrder;
use seatrial_machine::{DiskTrouble, Fault, NodeId, Rng};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How to start one node of a system as a local process, and how to tell that it works. A suite implements this.
pub trait System: Send + Sync {
    /// The command that starts the node: it must listen on `place.address`, keep its data in `place.folder` and
    /// find what it needs there when it is started again. Its output goes to the node's log.
    fn command(&self, place: &Place) -> Result<Command, ClientError>;

    /// The file in which the node takes orders about its clock ([`ClockOrder`](seatrial_host::ClockOrder)), outside its
    /// folder; none when its program does not do that.
    fn clock_file(&self, _place: &Place) -> Option<PathBuf> {
        None
    }

    /// Asks the node whether it is ready to serve; asked again until it says so or the limit is reached. As a rule a
    /// connection that is accepted is answer enough.
    fn ready<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            tokio::net::TcpStream::connect(place.address).await?;
            Ok(())
        })
    }

    /// Asks whether the nodes, all ready, have found together: "is it formed?"
    fn formed<'a>(&'a self, _places: &'a [Place]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What one node needs to know.
#[derive(Clone, Debug)]
pub struct Place {
    /// Which node it is.
    pub node: NodeId,
    /// Where it listens. Only the mesh connects there; everybody else goes through the mesh.
    pub address: SocketAddr,
    /// Its own folder for durable data, which exists and outlives kills.
    pub folder: PathBuf,
    /// All nodes of the system, this one included.
    pub nodes: Vec<NodeId>,
    /// The network.
    pub mesh: Mesh,
}

impl Place {
    /// Where this node reaches another: a proxy whose link faults can cut.
    pub fn address_of(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.mesh.route(self.node, node)
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// From the start of a process until it answers, and until all have found together.
    pub ready: Duration,
    /// From the request to end until it is ended by force.
    pub stop: Duration,
}

impl Default for NodeLimits {
    fn default() -> NodeLimits {
        NodeLimits {
            ready: Duration::from_secs(15),
            stop: Duration::from_secs(5),
        }
    }
}

/// Real processes, one per node. Node `n1` listens on 127.0.0.11, `n2` on 127.0.0.12 and so on, at a port that was
/// free; it keeps its data in `n1/` and writes its log to `n1.log` of the run folder. No process outlives the bench.
pub struct ProcessNodes {
    system: Arc<dyn System>,
    ids: Vec<NodeId>,
    limits: NodeLimits,
    /// The port of every node; chosen free for each when `None`.
    port: Option<u16>,
    /// Set by `prepare`.
    posts: OnceLock<Vec<Post>>,
    deaths: Arc<Mutex<Vec<Death>>>,
}

/// A node and its process.
#[derive(Debug)]
struct Post {
    place: Place,
    log: PathBuf,
    running: Mutex<Option<Arc<Running>>>,
    /// Is there no room on its disk?
    is_full: AtomicBool,
    /// Orders to its clock so far.
    clock_orders: AtomicU64,
}

/// One process of a node, from its start to the next.
#[derive(Debug)]
struct Running {
    child: Child,
    /// Has the bench told it to end, or noted that it ended by itself?
    told: AtomicBool,
    /// Where its part of the log begins.
    log_offset: u64,
}

/// Pause between two questions whether a node is ready.
const READY_INTERVAL: Duration = Duration::from_millis(20);
/// How long one such question may take.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a process may take to set its clock.
const CLOCK_LIMIT: Duration = Duration::from_secs(10);
/// Added to a node's number to give the last part of its address.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([127, 0, 0, 10]);

impl ProcessNodes {
    /// `count` nodes of this system, `n1` to `n<count>`.
    pub fn new(system: Arc<dyn System>, count: u32) -> ProcessNodes {
        ProcessNodes {
            system,
            ids: (1..=count).map(NodeId::server).collect(),
            limits: NodeLimits::default(),
            port: None,
            posts: OnceLock::new(),
            deaths: Arc::default(),
        }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: NodeLimits) -> ProcessNodes {
        self.limits = limits;
        self
    }

    /// The same, but every node listens at this port (of its own address).
    #[must_use]
    pub fn with_port(mut self, port: u16) -> ProcessNodes {
        self.port = Some(port);
        self
    }

    /// Where a node listens and keeps its data; `None` before [`Nodes::prepare`].
    pub fn place(&self, node: NodeId) -> Option<&Place> {
        self.post(node).ok().map(|post| &post.place)
    }

    fn posts(&self) -> &[Post] {
        self.posts.get().map_or(&[], Vec::as_slice)
    }

    fn post(&self, node: NodeId) -> Result<&Post, NodeError> {
        let mut posts = self.posts().iter();
        posts
            .find(|post| post.place.node == node)
            .ok_or(NodeError::Unknown(node))
    }

    /// Chooses an address for each node. All are held until the last is chosen, so that no two are the same.
    fn choose_addresses(&self) -> Result<Vec<SocketAddr>, NodeError> {
        let bind = |&node: &NodeId| {
            let ip = Ipv4Addr::from(FIRST_ADDRESS.saturating_add(node.number()));
            let address = SocketAddr::new(IpAddr::V4(ip), self.port.unwrap_or(0));
            listen(node, address)
        };
        let held = self.ids.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let addresses = held.iter().zip(&self.ids).map(|(listener, &node)| {
            listener
                .local_addr()
                .map_err(|error| NodeError::Address { node, error })
        });
        addresses.collect()
    }

    fn prepare_here(&self, folder: &Path, mesh: &Mesh) -> Result<(), NodeError> {
        let addresses = self.choose_addresses()?;
        let mut posts = Vec::new();
        for (&node, address) in self.ids.iter().zip(addresses) {
            let data = folder.join(node.to_string());
            fs::create_dir_all(&data).map_err(|error| NodeError::File {
                path: data.clone(),
                error,
            })?;
            mesh.add_node(node, address);
            posts.push(Post {
                place: Place {
                    node,
                    address,
                    folder: data,
                    nodes: self.ids.clone(),
                    mesh: mesh.clone(),
                },
                log: folder.join(format!("{node}.log")),
                running: Mutex::new(None),
                is_full: AtomicBool::new(false),
                clock_orders: AtomicU64::new(0),
            });
        }
        assert!(self.posts.set(posts).is_ok(), "nodes are prepared once");
        Ok(())
    }

    /// Starts the process and watches for its end.
    fn launch(&self, post: &Post) -> Result<Arc<Running>, NodeError> {
        let node = post.place.node;
        drop(listen(node, post.place.address)?);
        let command = self.system.command(&post.place);
        let mut command = command.map_err(|error| NodeError::Command { node, error })?;
        let file_error = |error| NodeError::File {
            path: post.log.clone(),
            error,
        };
        let note = format!("{node} starts on {}", post.place.address);
        let (log, log_offset) = log::open(&post.log, &note).map_err(file_error)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(file_error)?)
            .stderr(log);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = Child::spawn(command).map_err(|error| NodeError::Program {
            node,
            program,
            error,
        })?;
        let running = Arc::new(Running {
            child,
            told: AtomicBool::new(false),
            log_offset,
        });
        tokio::spawn(watch(
            Arc::clone(&running),
            node,
            post.log.clone(),
            Arc::clone(&self.deaths),
        ));
        *post.running() = Some(Arc::clone(&running));
        if post.is_full.load(Ordering::Relaxed) {
            post.limit(&running)
                .map_err(|error| signal_error(node, "limited", error))?;
        }
        Ok(running)
    }

    /// Waits until the node answers, or has ended, or the limit is reached.
    async fn wait_until_ready(&self, post: &Post, running: &Running) -> Result<(), NodeError> {
        let (node, log) = (post.place.node, &post.log);
        let ask = until(self.limits.ready, || self.system.ready(&post.place));
        let silent = tokio::select! {
            biased;
            answer = ask => match answer {
                Ok(()) => return Ok(()),
                Err(reason) => Some(reason),
            },
            _ = running.child.end() => None,
        };
        running.told.store(true, Ordering::Relaxed); // this error tells of it
        let status = running.child.kill().await;
        let log_tail = log::tail(log, running.log_offset);
        Err(match silent {
            Some(reason) => NodeError::Silent {
                node,
                limit: self.limits.ready,
                reason,
                log: log.clone(),
                log_tail,
            },
            None => NodeError::Ended {
                node,
                status: status.map_or_else(|error| error.to_string(), words),
                log: log.clone(),
                log_tail,
            },
        })
    }

    async fn start_here(&self, node: NodeId) -> Result<Effect, NodeError> {
        let post = self.post(node)?;
        if post.alive().is_some() {
            return Ok(Effect::nothing(format!("{node} was running")));
        }
        let running = self.launch(post)?;
        self.wait_until_ready(post, &running).await?;
        let pid = running.child.id();
        Ok(Effect::done(format!("{node} started as process {pid}")))
    }

    async fn kill_here(&self, node: NodeId) -> Result<Effect, NodeError> {
        let post = self.post(node)?;
        let Some(running) = post.alive() else {
            return Ok(Effect::nothing(format!("{node} was not running")));
        };
        let noted = running.told.swap(true, Ordering::Relaxed);
        let status = running.child.kill().await;
        let status = status.map_err(|error| signal_error(node, "killed", error))?;
        let pid = running.child.id();
        if status.signal() == Some(9) {
            return Ok(Effect::done(format!(
                "process {pid} of {node} died of SIGKILL"
            )));
        }
        if !noted {
            note_death(&self.deaths, node, &running, &post.log, status);
        }
        let how = words(status);
        Ok(Effect::nothing(format!(
            "{node} ended by itself before it was killed ({how})"
        )))
    }

    async fn pause_here(&self, node: NodeId) -> Result<Effect, NodeError> {
        let Some(running) = self.post(node)?.alive() else {
            return Ok(Effect::nothing(format!("{node} was not running")));
        };
        if running.child.is_stopped().unwrap_or(false) {
            return Ok(Effect::nothing(format!("{node} was paused already")));
        }
        match running.child.pause().await {
            Ok(()) => Ok(Effect::done(format!(
                "process {} of {node} stopped",
                running.child.id()
            ))),
            Err(error) => Err(signal_error(node, "paused", error)),
        }
    }

    async fn resume_here(&self, node: NodeId) -> Result<Effect, NodeError> {
        let Some(running) = self.post(node)?.alive() else {
            return Ok(Effect::nothing(format!("{node} was not running")));
        };
        if !running.child.is_stopped().unwrap_or(false) {
            return Ok(Effect::nothing(format!("{node} was not paused")));
        }
        match running.child.resume().await {
            Ok(()) => Ok(Effect::done(format!(
                "process {} of {node} goes on",
                running.child.id()
            ))),
            Err(error) => Err(signal_error(node, "resumed", error)),
        }
    }

    async fn stop_here(&self, node: NodeId) -> Result<(), NodeError> {
        let Some(running) = self.post(node)?.alive() else {
            return Ok(());
        };
        running.told.store(true, Ordering::Relaxed);
        match running.child.stop(self.limits.stop).await {
            Ok(_) => Ok(()),
            Err(error) => Err(signal_error(node, "stopped", error)),
        }
    }

    /// Does something to the files of a node, which may have to be down for it.
    fn damage(
        &self,
        node: NodeId,
        when_down: bool,
        act: impl FnOnce(&Post) -> io::Result<Effect>,
    ) -> Result<Effect, NodeError> {
        let post = self.post(node)?;
        if when_down && post.alive().is_some() {
            let reason = format!("{node} runs; this is done to the files of a node that is down");
            return Ok(Effect::nothing(reason));
        }
        act(post).map_err(|error| NodeError::File {
            path: post.place.folder.clone(),
            error,
        })
    }

    fn rot_here(&self, node: NodeId, bits: u32, rng: &mut Rng) -> Result<Effect, NodeError> {
        self.damage(node, false, |post| {
            let total = damage::rot(&post.place.folder, bits, rng)?;
            Ok(match total {
                0 => Effect::nothing(format!("{node} has nothing on its disk")),
                _ => Effect::done(format!(
                    "{bits} of {total} bytes on the disk of {node} have a wrong bit"
                )),
            })
        })
    }

    fn truncate_here(&self, node: NodeId, bytes: u64) -> Result<Effect, NodeError> {
        self.damage(node, true, |post| {
            let cut = damage::truncate(&post.place.folder, bytes)?;
            Ok(match cut {
                None => Effect::nothing(format!("{node} has nothing on its disk")),
                Some((path, cut)) => Effect::done(format!(
                    "the last {cut} bytes of {} are gone",
                    path.display()
                )),
            })
        })
    }

    fn snapshot_here(&self, node: NodeId) -> Result<Effect, NodeError> {
        self.damage(node, false, |post| {
            let bytes = damage::copy(&post.place.folder, &post.snapshot())?;
            Ok(Effect::done(format!("{bytes} bytes of {node} are kept")))
        })
    }

    fn restore_here(&self, node: NodeId) -> Result<Effect, NodeError> {
        self.damage(node, true, |post| {
            if !post.snapshot().exists() {
                return Ok(Effect::nothing(format!("there is no snapshot of {node}")));
            }
            let bytes = damage::copy(&post.snapshot(), &post.place.folder)?;
            Ok(Effect::done(format!(
                "{node} has {bytes} bytes of an earlier time"
            )))
        })
    }

    /// Lets no file of the node grow, or all again. What it tells of its end after that is no news.
    fn trouble_here(
        &self,
        node: NodeId,
        trouble: Option<DiskTrouble>,
    ) -> Result<Effect, NodeError> {
        let post = self.post(node)?;
        let is_full = trouble == Some(DiskTrouble::NoSpace);
        if let Some(trouble) = trouble.filter(|_| !is_full) {
            let fault = Fault::Disk { node, trouble };
            let reason = format!("{} of real processes needs root", fault.name());
            return Ok(Effect::nothing(reason));
        }
        let was_full = post.is_full.swap(is_full, Ordering::Relaxed);
        if !is_full && !was_full {
            return Ok(Effect::nothing(format!("the disk of {node} had room")));
        }
        let what = if is_full {
            format!("no file of {node} may grow")
        } else {
            format!("the files of {node} may grow again")
        };
        let Some(running) = post.alive() else {
            return Ok(Effect::done(format!("{what} when it runs")));
        };
        post.limit(&running)
            .map_err(|error| signal_error(node, "limited", error))?;
        Ok(Effect::done(what))
    }

    async fn set_clock_here(&self, node: NodeId, order: ClockOrder) -> Result<Effect, NodeError> {
        let post = self.post(node)?;
        let Some(file) = self.system.clock_file(&post.place) else {
            let reason = format!("the program of {node} takes no orders about its clock");
            return Ok(Effect::nothing(reason));
        };
        let number = post.clock_orders.fetch_add(1, Ordering::Relaxed) + 1;
        order
            .write(&file, number)
            .map_err(|error| NodeError::File {
                path: file.clone(),
                error,
            })?;
        let Some(running) = post.alive() else {
            return Ok(Effect::nothing(format!("{node} was not running")));
        };
        if running.child.is_stopped().unwrap_or(false) {
            return Ok(Effect::nothing(format!(
                "{node} is paused and will see it later"
            )));
        }
        let deadline = Instant::now() + CLOCK_LIMIT;
        while Instant::now() < deadline {
            if let Some((obeyed, shown)) = ClockOrder::obeyed(&file)
                && obeyed == number
            {
                return Ok(Effect::done(format!("the clock of {node} shows {shown}")));
            }
            sleep(READY_INTERVAL / 4).await;
        }
        Ok(Effect::nothing(format!("{node} did not set its clock")))
    }
}

impl Post {
    fn running(&self) -> std::sync::MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a copy of its data is kept.
    fn snapshot(&self) -> PathBuf {
        self.place.folder.with_added_extension("snapshot")
    }

    /// Lets no file of the process grow, if the disk is to be full; else all. A process that ends because of it has been
    /// told to, in a way.
    fn limit(&self, running: &Running) -> io::Result<()> {
        let pid = Pid::from_raw(running.child.id());
        let mut limit = getrlimit(Resource::Fsize); // what the bench's children got
        if self.is_full.load(Ordering::Relaxed) {
            let log = fs::metadata(&self.log).map_or(0, |metadata| metadata.len());
            let longest = damage::longest(&self.place.folder)?.max(log);
            limit.current = Some(
                limit
                    .maximum
                    .map_or(longest, |maximum| maximum.min(longest)),
            );
            running.told.store(true, Ordering::Relaxed);
        } else {
            limit.current = limit.maximum;
            running.told.store(false, Ordering::Relaxed);
        }
        prlimit(pid, Resource::Fsize, limit)?;
        Ok(())
    }

    /// The process of this node if it lives.
    fn alive(&self) -> Option<Arc<Running>> {
        let running = self.running().clone()?;
        running.child.status().is_none().then_some(running)
    }
}

impl Nodes for ProcessNodes {
    fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    fn prepare<'a>(
        &'a self,
        folder: &'a Path,
        mesh: &'a Mesh,
    ) -> BoxFuture<'a, Result<(), NodeError>> {
        Box::pin(async move { self.prepare_here(folder, mesh) })
    }

    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        Box::pin(self.start_here(node))
    }

    fn formed(&self) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(async {
            let places: Vec<Place> = self.posts().iter().map(|post| post.place.clone()).collect();
            let limit = self.limits.ready;
            let formed = until(limit, || self.system.formed(&places)).await;
            formed.map_err(|reason| NodeError::NotFormed { limit, reason })
        })
    }

    fn inject<'a>(
        &'a self,
        fault: &'a Fault,
        mut rng: Rng,
    ) -> BoxFuture<'a, Result<Effect, NodeError>> {
        Box::pin(async move {
            match fault {
                Fault::Kill(node) => self.kill_here(*node).await,
                Fault::Pause(node) => self.pause_here(*node).await,
                Fault::Resume(node) => self.resume_here(*node).await,
                Fault::Skew { node, .. } | Fault::Strobe { node, .. } => {
                    let order = ClockOrder::from_fault(fault);
                    let order = order.expect("both are orders to a clock");
                    self.set_clock_here(*node, order).await
                }
                Fault::Disk { node, trouble } => self.trouble_here(*node, Some(*trouble)),
                Fault::MendDisk(node) => self.trouble_here(*node, None),
                Fault::BitRot { node, bits } => self.rot_here(*node, *bits, &mut rng),
                Fault::Truncate { node, bytes } => self.truncate_here(*node, *bytes),
                Fault::Snapshot(node) => self.snapshot_here(*node),
                Fault::Restore(node) => self.restore_here(*node),
                Fault::Join(_) | Fault::Leave(_) => Err(NodeError::NoMembership),
                // Only the process can be taken away, not the power of its machine; and links are the mesh's.
                _ => Ok(Effect::unsupported(fault)),
            }
        })
    }

    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(self.stop_here(node))
    }

    fn take_deaths(&self) -> Vec<Death> {
        std::mem::take(&mut *self.deaths.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Listens where a node will, to see that it can.
fn listen(node: NodeId, address: SocketAddr) -> Result<TcpListener, NodeError> {
    TcpListener::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => NodeError::PortInUse { node, address },
        _ => NodeError::Address { node, error },
    })
}

/// Asks until the answer is yes; the last no when `limit` is reached.
async fn until<'a>(
    limit: Duration,
    ask: impl Fn() -> BoxFuture<'a, Result<(), ClientError>>,
) -> Result<(), String> {
    let mut reason = String::from("not asked");
    let asking = async {
        loop {
            match timeout(READY_TIMEOUT, ask()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => reason = error.to_string(),
                Err(_) => reason = "no answer".into(),
            }
            sleep(READY_INTERVAL).await;
        }
    };
    if timeout(limit, asking).await.is_ok() {
        return Ok(());
    }
    Err(reason)
}

/// Notes the end of a process that nobody told to end.
async fn watch(running: Arc<Running>, node: NodeId, log: PathBuf, deaths: Arc<Mutex<Vec<Death>>>) {
    let status = running.child.end().await;
    if !running.told.swap(true, Ordering::Relaxed) {
        note_death(&deaths, node, &running, &log, status);
    }
}

fn note_death(
    deaths: &Mutex<Vec<Death>>,
    node: NodeId,
    running: &Running,
    log: &Path,
    status: ExitStatus,
) {
    let death = Death {
        node,
        at: Instant::now(),
        status: words(status),
        log_tail: log::tail(log, running.log_offset),
    };
    let mut deaths = deaths.lock().unwrap_or_else(PoisonError::into_inner);
    deaths.push(death);
}

/// An exit status for people: `exit status: 1`, `signal: 9 (SIGKILL)`.
fn words(status: ExitStatus) -> String {
    status.to_string()
}

fn signal_error(node: NodeId, verb: &'static str, error: io::Error) -> NodeError {
    NodeError::Signal { node, verb, error }
}
