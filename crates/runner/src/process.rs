//! Nodes as local processes.

use crate::child::Child;
use crate::node_ports::{NodePorts, check_free};
use crate::node_power::NodePower;
use crate::{
    BoxFuture, ClientError, Death, InjectionResult, Mesh, NetworkKind, NodeError, NodeState, Nodes,
    OrdinaryUser, damage, node_log,
};
use rustix::process::{Pid, Resource, Signal, getrlimit, prlimit};
use seatrial_generator::Membership;
use seatrial_host::ClockOrder;
use seatrial_machine::{DiskTrouble, Fault, NodeId, Rng};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How to start a node of a system as a local process, and how to find out that it is ready. A suite implements this.
pub trait System: Send + Sync {
    /// The command that starts the node. It must listen on `place.address` and keep its data in `place.folder`, from which it
    /// recovers when it is started again. Its output goes to the node's log.
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError>;

    /// The user that the nodes run as; `None`, the default: this process's own. The command must not change its user itself:
    /// that would be too early for a node in namespaces.
    fn user(&self) -> Option<&OrdinaryUser> {
        None
    }

    /// Standard input and output of a new process of the node, if they are its connection to others; called for each start. By
    /// default (`None`) the input is empty, and the output goes to the node's log with the errors.
    fn streams(&self, _place: &NodePlace) -> Result<Option<NodeStreams>, ClientError> {
        Ok(None)
    }

    /// The file from which the node reads clock faults ([`ClockOrder`](seatrial_host::ClockOrder)), outside its folder; `None` if
    /// its program does not support them.
    fn clock_file(&self, _place: &NodePlace) -> Option<PathBuf> {
        None
    }

    /// Checks whether the node is ready to serve; repeated until it returns `Ok` or the limit is reached. By default a node is
    /// ready when it accepts a connection.
    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            tokio::net::TcpStream::connect(place.address).await?;
            Ok(())
        })
    }

    /// Checks whether the nodes, all ready, have formed a system, for example elected a leader; repeated like `ready`.
    fn formed<'a>(&'a self, _places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The signal that asks a node to stop in good order: SIGTERM by default. SIGKILL follows at the limit.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    /// Do the nodes report their states ([`System::state`])?
    fn reports_states(&self) -> bool {
        false
    }

    /// The state of a node at the end of a test, for the checker `divergence`. Ask the node at `place.address`. An error: not
    /// known this time.
    fn state<'a>(
        &'a self,
        _place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The name of the nodes with which the state of this one is compared ([`Nodes::state_group`]); `None`, the default: all.
    fn state_group(&self, _node: NodeId) -> Option<String> {
        None
    }

    /// Commits something that no client reads, so that a node that is behind catches up ([`Nodes::catch_up`]).
    fn catch_up<'a>(&'a self, _places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How nodes join and leave the system; `None`, the default: they do not.
    fn members(&self) -> Option<&dyn SystemMembers> {
        None
    }
}

/// Standard input and output of a node's process.
#[derive(Debug)]
pub struct NodeStreams {
    /// What it reads.
    pub input: Stdio,
    /// Where it writes.
    pub output: Stdio,
}

/// The members of a [`System`] that nodes can join and leave.
pub trait SystemMembers: Send + Sync {
    /// The members and the primaries as the nodes report them; nodes that do not answer are left out. An error: none answers.
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>>;

    /// Carries out [`Fault::Join`] or [`Fault::Leave`], and returns when that has taken effect, with a description; an error when
    /// it has not after a while. It may take effect later all the same. By default members do not change.
    fn change<'a>(
        &'a self,
        _places: &'a [NodePlace],
        _change: &'a Fault,
    ) -> BoxFuture<'a, Result<String, ClientError>> {
        Box::pin(async { Err("this suite changes no members".into()) })
    }
}

/// Address, folder and network of one node.
#[derive(Clone, Debug)]
pub struct NodePlace {
    /// The node.
    pub node: NodeId,
    /// The address that it listens on. Only the mesh connects to it; clients and other nodes use routes of the mesh.
    pub address: SocketAddr,
    /// Its folder for durable data, which exists and survives kills.
    pub folder: PathBuf,
    /// All nodes of the system, this one included.
    pub nodes: Vec<NodeId>,
    /// The network.
    pub mesh: Mesh,
}

impl NodePlace {
    /// The node's own IP address: all its ports belong to this node.
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// The address of another port of its own, this number above the first. An error if there is none: `--port` is too high.
    pub fn own_port(&self, above: u16) -> Result<SocketAddr, ClientError> {
        let port = self.address.port().checked_add(above);
        let port =
            port.ok_or_else(|| format!("--port must leave {above} ports above it to each node"))?;
        Ok(SocketAddr::new(self.ip(), port))
    }

    /// The IP address of another node, usable with any port; `None` if it is unknown. Faults affect this traffic only if
    /// [`Mesh::has_whole_addresses`].
    pub fn ip_of(&self, node: NodeId) -> Option<IpAddr> {
        self.mesh.ip(self.node, node)
    }

    /// The address at which this node reaches another: a proxy, whose link faults can cut.
    pub fn address_of(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.mesh.route(self.node, node)
    }
}

/// Time limits of nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// From the start of a process until it is ready, and until all nodes have formed a system.
    pub ready: Duration,
    /// From SIGTERM to SIGKILL.
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

/// Local processes, one per node. Node `n1` listens on 127.0.0.11, `n2` on 127.0.0.12 and so on, at a port that no other test
/// gets before this value is dropped; in namespaces on 10.0.0.1, 10.0.0.2 and so on, at port 7000 unless another is asked for. It
/// keeps its data in `n1/` and writes its log to `n1.log` of the run folder. No process outlives the runner.
pub struct ProcessNodes {
    system: Arc<dyn System>,
    ids: Vec<NodeId>,
    limits: NodeLimits,
    /// The first port of every node; `None`: a free one is chosen.
    port: Option<u16>,
    /// Number of ports of each node, in a row.
    ports_in_a_row: u16,
    /// The kind of file system that each node has for itself; `None`: they share that of the run folder.
    disks: Option<&'static str>,
    /// Set by `prepare`, unless each node has a network of its own.
    ports: OnceLock<NodePorts>,
    /// Set by `prepare`.
    slots: OnceLock<Vec<NodeSlot>>,
    deaths: Arc<Mutex<Vec<Death>>>,
}

/// A node and its process.
#[derive(Debug)]
struct NodeSlot {
    place: NodePlace,
    log: PathBuf,
    process: Mutex<Option<Arc<NodeProcess>>>,
    /// Is its disk full, by a fault?
    is_full: AtomicBool,
    /// Its own file system, which can lose its power.
    power: Option<NodePower>,
    /// Number of clock faults so far.
    clock_orders: AtomicU64,
}

/// One process of a node, from its start until it is replaced.
#[derive(Debug)]
struct NodeProcess {
    child: Child,
    /// Is its end expected (the runner ends it), or reported already? An unexpected end is reported once, as a [`Death`].
    is_end_known: AtomicBool,
    /// Offset of its part of the log.
    log_offset: u64,
}

/// Pause between two readiness checks.
const READY_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit of one readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a process to set its clock.
const CLOCK_LIMIT: Duration = Duration::from_secs(10);
/// Port of nodes that have an address of their own, unless another is asked for.
const PORT: u16 = 7_000;

impl ProcessNodes {
    /// `count` nodes of this system, `n1` to `n<count>`.
    pub fn new(system: Arc<dyn System>, count: u32) -> ProcessNodes {
        ProcessNodes {
            system,
            ids: (1..=count).map(NodeId::server).collect(),
            limits: NodeLimits::default(),
            port: None,
            ports_in_a_row: 1,
            ports: OnceLock::new(),
            disks: None,
            slots: OnceLock::new(),
            deaths: Arc::default(),
        }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: NodeLimits) -> ProcessNodes {
        self.limits = limits;
        self
    }

    /// The same, but every node has `in_a_row` ports of its own address, at which no other test listens: `first` and those that
    /// follow, or free ones if no port is asked for. [`NodePlace::address`] has the first.
    #[must_use]
    pub fn with_ports(mut self, first: Option<u16>, in_a_row: u16) -> ProcessNodes {
        self.port = first;
        self.ports_in_a_row = in_a_row;
        self
    }

    /// The same, but each node keeps its data on a file system of its own, `ext4` or `xfs` on a loop device: the fault
    /// [`Fault::LoseUnsynced`] can then be injected. All are synced when the system has formed. Needs root; not for nodes in
    /// namespaces, which keep a file system that was mounted when they began.
    #[must_use]
    pub fn with_disks(mut self, kind: &'static str) -> ProcessNodes {
        self.disks = Some(kind);
        self
    }

    /// Address, folder and network of a node; `None` before [`Nodes::prepare`].
    pub fn place(&self, node: NodeId) -> Option<&NodePlace> {
        self.slot(node).ok().map(|slot| &slot.place)
    }

    fn slots(&self) -> &[NodeSlot] {
        self.slots.get().map_or(&[], Vec::as_slice)
    }

    fn places(&self) -> Vec<NodePlace> {
        self.slots().iter().map(|slot| slot.place.clone()).collect()
    }

    async fn change_members(&self, change: &Fault) -> Result<InjectionResult, NodeError> {
        let members = self.system.members().ok_or(NodeError::NoMembership)?;
        let places = self.places();
        let changed = members.change(&places, change).await;
        changed
            .map(InjectionResult::done)
            .map_err(|error| NodeError::Members(error.to_string()))
    }

    fn slot(&self, node: NodeId) -> Result<&NodeSlot, NodeError> {
        let mut slots = self.slots().iter();
        slots
            .find(|slot| slot.place.node == node)
            .ok_or(NodeError::Unknown(node))
    }

    /// Reserves an address for each node.
    fn reserve_addresses(&self) -> Result<Vec<SocketAddr>, NodeError> {
        let ports = NodePorts::reserve(&self.ids, self.port, self.ports_in_a_row)?;
        let first = ports.first();
        assert!(self.ports.set(ports).is_ok(), "nodes are prepared once");
        let address = |&node: &NodeId| SocketAddr::new(NodePorts::address(node), first);
        Ok(self.ids.iter().map(address).collect())
    }

    /// Has the mesh give each node an address of its own.
    fn open_addresses(&self, mesh: &Mesh) -> Result<Vec<SocketAddr>, NodeError> {
        let port = self.port.unwrap_or(PORT);
        NodePorts::check_room(port, self.ports_in_a_row)?;
        let open = |&node: &NodeId| {
            let ip = mesh
                .open_node(node)
                .map_err(|error| NodeError::Address { node, error })?;
            let ip = ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            Ok(SocketAddr::new(ip, port))
        };
        self.ids.iter().map(open).collect()
    }

    fn prepare_here(&self, folder: &Path, mesh: &Mesh) -> Result<(), NodeError> {
        let addresses = if mesh.has_whole_addresses() {
            self.open_addresses(mesh)?
        } else {
            self.reserve_addresses()?
        };
        let mut slots = Vec::new();
        for (&node, address) in self.ids.iter().zip(addresses) {
            let data = folder.join(node.to_string());
            fs::create_dir_all(&data).map_err(|error| NodeError::File {
                path: data.clone(),
                error,
            })?;
            let power = match self.disks {
                Some(kind) => {
                    Some(
                        NodePower::new(kind, &data).map_err(|error| NodeError::File {
                            path: data.clone(),
                            error,
                        })?,
                    )
                }
                None => None,
            };
            mesh.add_node(node, address);
            slots.push(NodeSlot {
                place: NodePlace {
                    node,
                    address,
                    folder: data,
                    nodes: self.ids.clone(),
                    mesh: mesh.clone(),
                },
                log: folder.join(format!("{node}.log")),
                process: Mutex::new(None),
                is_full: AtomicBool::new(false),
                power,
                clock_orders: AtomicU64::new(0),
            });
        }
        assert!(self.slots.set(slots).is_ok(), "nodes are prepared once");
        Ok(())
    }

    /// Starts the process and a task that waits for its end.
    fn launch(&self, slot: &NodeSlot) -> Result<Arc<NodeProcess>, NodeError> {
        let node = slot.place.node;
        let space = slot.place.mesh.node_space(node);
        if space.is_none() {
            check_free(node, slot.place.address)?;
        }
        if let Some(user) = self.system.user()
            && slot.place.mesh.kind() == NetworkKind::Userns
        {
            let error = user.missing_in_namespace().into();
            return Err(NodeError::Command { node, error });
        }
        let command = self.system.command(&slot.place);
        let mut command = command.map_err(|error| NodeError::Command { node, error })?;
        let file_error = |error| NodeError::File {
            path: slot.log.clone(),
            error,
        };
        let note = format!("{node} starts on {}", slot.place.address);
        let (log, log_offset) = node_log::open(&slot.log, &note).map_err(file_error)?;
        let streams = self.system.streams(&slot.place);
        match streams.map_err(|error| NodeError::Command { node, error })? {
            Some(NodeStreams { input, output }) => command.stdin(input).stdout(output),
            None => command
                .stdin(Stdio::null())
                .stdout(log.try_clone().map_err(file_error)?),
        };
        command.stderr(log);
        let program = command.get_program().to_string_lossy().into_owned();
        let user = self.system.user();
        let child = Child::spawn_inside(command, space.as_deref(), user);
        let child = child.map_err(|error| NodeError::Program {
            node,
            program,
            error,
        })?;
        let process = Arc::new(NodeProcess {
            child,
            is_end_known: AtomicBool::new(false),
            log_offset,
        });
        tokio::spawn(watch(
            Arc::clone(&process),
            node,
            slot.log.clone(),
            Arc::clone(&self.deaths),
        ));
        *slot.process() = Some(Arc::clone(&process));
        if slot.is_full.load(Ordering::Relaxed) {
            slot.limit(&process)
                .map_err(|error| signal_error(node, "limited", error))?;
        }
        Ok(process)
    }

    /// Waits until the node is ready; fails when it ends or at the time limit.
    async fn wait_until_ready(
        &self,
        slot: &NodeSlot,
        process: &NodeProcess,
    ) -> Result<(), NodeError> {
        let (node, log) = (slot.place.node, &slot.log);
        let ask = until(self.limits.ready, || self.system.ready(&slot.place));
        let silent = tokio::select! {
            biased;
            answer = ask => match answer {
                Ok(()) if process.child.status().is_none() => return Ok(()),
                Ok(()) => None, // something else answered at its port
                Err(reason) => Some(reason),
            },
            _ = process.child.end() => None,
        };
        let Some(reason) = silent else {
            return Err(slot.ended(process).await);
        };
        process.is_end_known.store(true, Ordering::Relaxed); // the error below reports it
        let _ = process.child.kill().await; // its status says nothing: it was still running
        Err(NodeError::Silent {
            node,
            limit: self.limits.ready,
            reason,
            log: log.clone(),
            log_tail: node_log::tail(log, process.log_offset),
        })
    }

    async fn start_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        let slot = self.slot(node)?;
        if slot.alive().is_some() {
            return Ok(InjectionResult::nothing(format!(
                "{node} was already running"
            )));
        }
        if let Some(power) = &slot.power {
            let restored = power.restore().await;
            restored.map_err(|error| slot.file_error(error))?;
        }
        let process = self.launch(slot)?;
        self.wait_until_ready(slot, &process).await?;
        let pid = process.child.id();
        Ok(InjectionResult::done(format!(
            "started {node} as process {pid}"
        )))
    }

    async fn kill_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        let slot = self.slot(node)?;
        let Some(process) = slot.alive() else {
            return Ok(InjectionResult::nothing(format!("{node} was not running")));
        };
        let is_reported = process.is_end_known.swap(true, Ordering::Relaxed);
        let status = process.child.kill().await;
        let status = status.map_err(|error| signal_error(node, "killed", error))?;
        let pid = process.child.id();
        if status.signal() == Some(9) {
            return Ok(InjectionResult::done(format!(
                "killed process {pid} of {node} with SIGKILL"
            )));
        }
        if !is_reported {
            note_death(&self.deaths, node, &process, &slot.log, status);
        }
        let how = status_text(status);
        Ok(InjectionResult::nothing(format!(
            "{node} exited by itself before it was killed ({how})"
        )))
    }

    /// Ends the node, then cuts the power of its disk. In the other order a sync that meets the cut may return success for bytes
    /// that it did not write (seen on ext4 of Linux 6.18), which a machine without power does not report.
    async fn lose_unsynced_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        let slot = self.slot(node)?;
        let Some(power) = &slot.power else {
            return Ok(InjectionResult::unsupported(&Fault::LoseUnsynced(node)));
        };
        let killed = self.kill_here(node).await?;
        let is_cut = power.cut().await;
        if is_cut.map_err(|error| slot.file_error(error))? {
            let how = match killed {
                InjectionResult::Done(text) | InjectionResult::Nothing(text) => text,
            };
            let text = format!("cut the power of the disk of {node}: {how}");
            return Ok(InjectionResult::done(text));
        }
        Ok(InjectionResult::nothing(format!("{node} had no power")))
    }

    async fn pause_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        let Some(process) = self.slot(node)?.alive() else {
            return Ok(InjectionResult::nothing(format!("{node} was not running")));
        };
        if process.child.is_stopped().unwrap_or(false) {
            return Ok(InjectionResult::nothing(format!(
                "{node} was already paused"
            )));
        }
        match process.child.pause().await {
            Ok(1) => Ok(InjectionResult::done(format!(
                "paused process {} of {node}",
                process.child.id()
            ))),
            Ok(count) => Ok(InjectionResult::done(format!(
                "paused {count} processes of {node}"
            ))),
            Err(error) => Err(signal_error(node, "paused", error)),
        }
    }

    async fn resume_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        let Some(process) = self.slot(node)?.alive() else {
            return Ok(InjectionResult::nothing(format!("{node} was not running")));
        };
        if !process.child.is_stopped().unwrap_or(false) {
            return Ok(InjectionResult::nothing(format!("{node} was not paused")));
        }
        match process.child.resume().await {
            Ok(()) => Ok(InjectionResult::done(format!(
                "resumed process {} of {node}",
                process.child.id()
            ))),
            Err(error) => Err(signal_error(node, "resumed", error)),
        }
    }

    async fn stop_here(&self, node: NodeId) -> Result<(), NodeError> {
        let Some(process) = self.slot(node)?.alive() else {
            return Ok(());
        };
        process.is_end_known.store(true, Ordering::Relaxed);
        match process
            .child
            .stop(self.system.stop_signal(), self.limits.stop)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => Err(signal_error(node, "stopped", error)),
        }
    }

    /// Damages the files of a node; without effect if `when_down` and the node is running.
    fn damage(
        &self,
        node: NodeId,
        when_down: bool,
        act: impl FnOnce(&NodeSlot) -> io::Result<InjectionResult>,
    ) -> Result<InjectionResult, NodeError> {
        let slot = self.slot(node)?;
        if when_down && slot.alive().is_some() {
            let reason = format!("{node} is running; this fault needs a node that is down");
            return Ok(InjectionResult::nothing(reason));
        }
        act(slot).map_err(|error| NodeError::File {
            path: slot.place.folder.clone(),
            error,
        })
    }

    fn rot_here(
        &self,
        node: NodeId,
        bits: u32,
        rng: &mut Rng,
    ) -> Result<InjectionResult, NodeError> {
        self.damage(node, false, |slot| {
            let total = damage::rot(&slot.place.folder, bits, rng)?;
            Ok(match total {
                0 => InjectionResult::nothing(format!("{node} has no files")),
                _ => InjectionResult::done(format!(
                    "flipped {bits} bits in {total} bytes of files of {node}"
                )),
            })
        })
    }

    fn truncate_here(&self, node: NodeId, bytes: u64) -> Result<InjectionResult, NodeError> {
        self.damage(node, true, |slot| {
            let cut = damage::truncate(&slot.place.folder, bytes)?;
            Ok(match cut {
                None => InjectionResult::nothing(format!("{node} has no files")),
                Some((path, cut)) => InjectionResult::done(format!(
                    "truncated the last {cut} bytes of {}",
                    path.display()
                )),
            })
        })
    }

    fn snapshot_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        self.damage(node, false, |slot| {
            let bytes = damage::copy(&slot.place.folder, &slot.snapshot())?;
            Ok(InjectionResult::done(format!(
                "saved a snapshot of {node}, {bytes} bytes"
            )))
        })
    }

    fn restore_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        self.damage(node, true, |slot| {
            if !slot.snapshot().exists() {
                return Ok(InjectionResult::nothing(format!("{node} has no snapshot")));
            }
            let bytes = damage::copy(&slot.snapshot(), &slot.place.folder)?;
            Ok(InjectionResult::done(format!(
                "restored the snapshot of {node}, {bytes} bytes"
            )))
        })
    }

    /// Simulates a full disk by a limit on the length of the node's files, or removes the limit. Other faults of disks need root.
    /// An end of the process while the limit holds is expected.
    fn trouble_here(
        &self,
        node: NodeId,
        trouble: Option<DiskTrouble>,
    ) -> Result<InjectionResult, NodeError> {
        let slot = self.slot(node)?;
        let is_full = trouble == Some(DiskTrouble::NoSpace);
        if let Some(trouble) = trouble.filter(|_| !is_full) {
            let fault = Fault::Disk { node, trouble };
            let reason = format!("{} of real processes needs root", fault.name());
            return Ok(InjectionResult::nothing(reason));
        }
        let was_full = slot.is_full.swap(is_full, Ordering::Relaxed);
        if !is_full && !was_full {
            return Ok(InjectionResult::nothing(format!(
                "the disk of {node} was not full"
            )));
        }
        let what = if is_full {
            format!("disk full: files of {node} cannot grow")
        } else {
            format!("files of {node} can grow again")
        };
        let Some(process) = slot.alive() else {
            return Ok(InjectionResult::done(format!(
                "{what} (from its next start)"
            )));
        };
        slot.limit(&process)
            .map_err(|error| signal_error(node, "limited", error))?;
        Ok(InjectionResult::done(what))
    }

    async fn mend_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        let slot = self.slot(node)?;
        if let Some(power) = &slot.power {
            let restored = power.restore().await;
            if restored.map_err(|error| slot.file_error(error))? {
                let text = format!("the disk of {node} has power again");
                return Ok(InjectionResult::done(text));
            }
        }
        self.trouble_here(node, None)
    }

    async fn set_clock_here(
        &self,
        node: NodeId,
        order: ClockOrder,
    ) -> Result<InjectionResult, NodeError> {
        let slot = self.slot(node)?;
        let Some(file) = self.system.clock_file(&slot.place) else {
            let reason = format!("the program of {node} does not support clock faults");
            return Ok(InjectionResult::nothing(reason));
        };
        let number = slot.clock_orders.fetch_add(1, Ordering::Relaxed) + 1;
        order
            .write(&file, number)
            .map_err(|error| NodeError::File {
                path: file.clone(),
                error,
            })?;
        let Some(process) = slot.alive() else {
            return Ok(InjectionResult::nothing(format!("{node} was not running")));
        };
        if process.child.is_stopped().unwrap_or(false) {
            return Ok(InjectionResult::nothing(format!(
                "{node} is paused; the clock changes when it resumes"
            )));
        }
        let deadline = Instant::now() + CLOCK_LIMIT;
        while Instant::now() < deadline {
            if let Some((obeyed, shown)) = ClockOrder::obeyed(&file)
                && obeyed == number
            // an older number: not read yet
            {
                return Ok(InjectionResult::done(format!(
                    "set the clock of {node} to {shown}"
                )));
            }
            sleep(READY_INTERVAL / 4).await;
        }
        Ok(InjectionResult::nothing(format!(
            "{node} did not set its clock within {CLOCK_LIMIT:?}"
        )))
    }
}

impl NodeSlot {
    fn process(&self) -> std::sync::MutexGuard<'_, Option<Arc<NodeProcess>>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_error(&self, error: io::Error) -> NodeError {
        NodeError::File {
            path: self.place.folder.clone(),
            error,
        }
    }

    /// Folder of its snapshot.
    fn snapshot(&self) -> PathBuf {
        self.place.folder.with_added_extension("snapshot")
    }

    /// Sets the process's limit on file lengths: the longest present length if the disk is full, otherwise none. The limit
    /// (RLIMIT_FSIZE) may kill the process with SIGXFSZ, so its end is expected from then on.
    fn limit(&self, process: &NodeProcess) -> io::Result<()> {
        let mut limit = getrlimit(Resource::Fsize); // the limit that children of the runner inherit
        if self.is_full.load(Ordering::Relaxed) {
            let log = fs::metadata(&self.log).map_or(0, |metadata| metadata.len());
            let longest = damage::longest(&self.place.folder)?.max(log);
            limit.current = Some(
                limit
                    .maximum
                    .map_or(longest, |maximum| maximum.min(longest)),
            );
            process.is_end_known.store(true, Ordering::Relaxed);
        } else {
            limit.current = limit.maximum;
            process.is_end_known.store(false, Ordering::Relaxed);
        }
        for entry in process.child.processes()? {
            match prlimit(Pid::from_raw(entry.pid), Resource::Fsize, limit) {
                Ok(_) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The error of a process that ended by itself before the test began.
    async fn ended(&self, process: &NodeProcess) -> NodeError {
        process.is_end_known.store(true, Ordering::Relaxed); // this error reports it
        let status = process.child.kill().await;
        NodeError::Ended {
            node: self.place.node,
            status: status.map_or_else(|error| error.to_string(), status_text),
            log: self.log.clone(),
            log_tail: node_log::tail(&self.log, process.log_offset),
        }
    }

    /// The process of this node, if it runs.
    fn alive(&self) -> Option<Arc<NodeProcess>> {
        let process = self.process().clone()?;
        process.child.status().is_none().then_some(process)
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

    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<InjectionResult, NodeError>> {
        Box::pin(self.start_here(node))
    }

    fn formed(&self) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(async {
            let places = self.places();
            let limit = self.limits.ready;
            let formed = until(limit, || self.system.formed(&places)).await;
            formed.map_err(|reason| NodeError::NotFormed { limit, reason })?;
            // The system may have formed without a node, and something else may answer at its port: what was said there would be
            // held against this system.
            for slot in self.slots() {
                let process = slot.process().clone();
                if let Some(process) = process.filter(|it| it.child.status().is_some()) {
                    return Err(slot.ended(&process).await);
                }
            }
            // What a system writes once, such as its configuration, would be lost as a whole at the first cut: then nothing
            // could be read.
            for slot in self.slots() {
                if let Some(power) = &slot.power {
                    let synced = power.sync().await;
                    synced.map_err(|error| slot.file_error(error))?;
                }
            }
            Ok(())
        })
    }

    fn inject<'a>(
        &'a self,
        fault: &'a Fault,
        mut rng: Rng,
    ) -> BoxFuture<'a, Result<InjectionResult, NodeError>> {
        Box::pin(async move {
            match fault {
                Fault::Kill(node) => self.kill_here(*node).await,
                Fault::Pause(node) => self.pause_here(*node).await,
                Fault::Resume(node) => self.resume_here(*node).await,
                Fault::Skew { node, .. } | Fault::Strobe { node, .. } => {
                    let order = ClockOrder::from_fault(fault);
                    let order = order.expect("skew and strobe are clock orders");
                    self.set_clock_here(*node, order).await
                }
                Fault::Disk { node, trouble } => self.trouble_here(*node, Some(*trouble)),
                Fault::MendDisk(node) => self.mend_here(*node).await,
                Fault::LoseUnsynced(node) => self.lose_unsynced_here(*node).await,
                Fault::BitRot { node, bits } => self.rot_here(*node, *bits, &mut rng),
                Fault::Truncate { node, bytes } => self.truncate_here(*node, *bytes),
                Fault::Snapshot(node) => self.snapshot_here(*node),
                Fault::Restore(node) => self.restore_here(*node),
                Fault::Join(_) | Fault::Leave(_) => self.change_members(fault).await,
                // Faults of links never arrive here.
                _ => Ok(InjectionResult::unsupported(fault)),
            }
        })
    }

    fn view(&self) -> BoxFuture<'_, Result<Membership, NodeError>> {
        Box::pin(async {
            let members = self.system.members().ok_or(NodeError::NoMembership)?;
            let places = self.places();
            let view = members.view(&places).await;
            view.map_err(|error| NodeError::Members(error.to_string()))
        })
    }

    fn reports_states(&self) -> bool {
        self.system.reports_states()
    }

    fn state(&self, node: NodeId) -> BoxFuture<'_, Result<Option<NodeState>, NodeError>> {
        Box::pin(async move {
            let places = self.places();
            let place = places.iter().find(|place| place.node == node);
            let place = place.ok_or(NodeError::Unknown(node))?;
            let state = self.system.state(place).await;
            state.map_err(|error| NodeError::Members(error.to_string()))
        })
    }

    fn state_group(&self, node: NodeId) -> Option<String> {
        self.system.state_group(node)
    }

    fn catch_up(&self) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(async {
            let committed = self.system.catch_up(&self.places()).await;
            committed.map_err(|error| NodeError::Members(error.to_string()))
        })
    }

    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(self.stop_here(node))
    }

    fn take_deaths(&self) -> Vec<Death> {
        std::mem::take(&mut *self.deaths.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Repeats `ask` until it returns `Ok`; returns its last error at `limit`.
async fn until<'a>(
    limit: Duration,
    ask: impl Fn() -> BoxFuture<'a, Result<(), ClientError>>,
) -> Result<(), String> {
    let mut reason = String::from("no check was made");
    let asking = async {
        loop {
            match timeout(READY_TIMEOUT, ask()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => reason = error.to_string(),
                Err(_) => reason = "timed out".into(),
            }
            sleep(READY_INTERVAL).await;
        }
    };
    if timeout(limit, asking).await.is_ok() {
        return Ok(());
    }
    Err(reason)
}

/// The task that waits for the end of a process, and reports it unless it is expected.
async fn watch(
    process: Arc<NodeProcess>,
    node: NodeId,
    log: PathBuf,
    deaths: Arc<Mutex<Vec<Death>>>,
) {
    let status = process.child.end().await;
    if !process.is_end_known.swap(true, Ordering::Relaxed) {
        note_death(&deaths, node, &process, &log, status);
    }
}

fn note_death(
    deaths: &Mutex<Vec<Death>>,
    node: NodeId,
    process: &NodeProcess,
    log: &Path,
    status: ExitStatus,
) {
    let death = Death {
        node,
        at: Instant::now(),
        status: status_text(status),
        log_tail: node_log::tail(log, process.log_offset),
    };
    let mut deaths = deaths.lock().unwrap_or_else(PoisonError::into_inner);
    deaths.push(death);
}

/// An exit status as text: `exit status: 1`, `signal: 9 (SIGKILL)`.
fn status_text(status: ExitStatus) -> String {
    status.to_string()
}

fn signal_error(node: NodeId, verb: &'static str, error: io::Error) -> NodeError {
    NodeError::Signal { node, verb, error }
}
