//! Namespaces of the bench itself: entering them, and finding out whether this machine permits them.

use crate::netlink::Netlink;
use crate::network_kind::NetworkKind;
use crate::node_network::{NodeNetwork, NodeNetworkOptions};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, getgid, getuid, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use seatrial_machine::NodeId;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use thiserror::Error;

/// Why a process cannot have namespaces.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// A user namespace changes the whole process, which the kernel permits only while it has one thread.
    #[error("namespaces must be entered before the process has threads (it has {0})")]
    Threads(usize),
    /// A step failed.
    #[error("{step}: {error}")]
    Step {
        /// What was tried.
        step: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A trial of all steps failed; the reason as text.
    #[error("{0}")]
    Trial(String),
}

/// Moves this process into namespaces of its own: network and mounts, and for [`NetworkKind::Userns`] users. Its identity,
/// files and other processes stay as they are; what it mounts and which interfaces it makes ends with it. Does nothing for
/// [`NetworkKind::Local`].
///
/// Must be called while the process has one thread. A first trial in a child process ([`probe`]) makes sure that no half of it
/// is done.
pub fn enter(kind: NetworkKind) -> Result<(), NamespaceError> {
    if kind == NetworkKind::Local {
        return Ok(());
    }
    probe(kind)?;
    enter_unprobed(kind)
}

/// Tries all steps of a network of this kind in a child process: namespaces, the switch, one node.
pub fn probe(kind: NetworkKind) -> Result<(), NamespaceError> {
    if kind == NetworkKind::Local {
        return Ok(());
    }
    one_thread()?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(step("a pipe for the trial"))?;
    let Some(child) = fork().map_err(step("a process for the trial"))? else {
        drop(read);
        let mut write = File::from(write);
        let text = trial(kind).map_or_else(|error| error.to_string(), |()| String::new());
        let _ = write.write_all(text.as_bytes());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .expect("a process may kill itself");
        loop {
            std::thread::park(); // the signal is on its way
        }
    };
    drop(write);
    let mut text = String::new();
    let read = File::from(read).read_to_string(&mut text);
    let interrupted = rustix::io::Errno::INTR;
    while waitpid(Some(child), WaitOptions::empty()).err() == Some(interrupted) {}
    read.map_err(|error| NamespaceError::Step {
        step: "the result of the trial",
        error,
    })?;
    if text.is_empty() {
        return Ok(());
    }
    Err(NamespaceError::Trial(text))
}

/// The best kind of network that this machine permits, with the reasons why better ones do not work.
pub fn best_kind() -> (NetworkKind, Vec<String>) {
    let mut reasons = Vec::new();
    let kinds: &[NetworkKind] = if getuid().is_root() {
        &[NetworkKind::Netns, NetworkKind::Userns]
    } else {
        &[NetworkKind::Userns]
    };
    for &kind in kinds {
        match probe(kind) {
            Ok(()) => return (kind, reasons),
            Err(error) => reasons.push(format!("{kind}: {error}")),
        }
    }
    (NetworkKind::Local, reasons)
}

/// Gives the calling thread, and threads that it starts, a network namespace of its own. For tests that run as root, whose
/// process has threads already.
pub fn enter_thread() -> Result<(), NamespaceError> {
    unshare_network().map_err(step("a network namespace"))?;
    let netlink = Netlink::open().map_err(step("a netlink socket"))?;
    netlink
        .loopback_up()
        .map_err(step("the loopback interface"))
}

/// All steps, with a network of one node.
fn trial(kind: NetworkKind) -> Result<(), NamespaceError> {
    enter_unprobed(kind)?;
    let network = NodeNetwork::open(kind, NodeNetworkOptions::default())
        .map_err(step("a switch between the nodes"))?;
    let node = NodeId::server(1);
    network.add_node(node).map_err(step("a node's network"))
}

fn enter_unprobed(kind: NetworkKind) -> Result<(), NamespaceError> {
    one_thread()?;
    let network_and_mounts = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    if kind == NetworkKind::Userns {
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        unshare(network_and_mounts | UnshareFlags::NEWUSER)
            .map_err(step("a user namespace and a network namespace"))?;
        // The identity stays: servers such as PostgreSQL refuse to run as root.
        let files = [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("{user} {user} 1")),
            ("/proc/self/gid_map", format!("{group} {group} 1")),
        ];
        for (path, text) in files {
            fs::write(path, text).map_err(step("the users of the namespace"))?;
        }
    } else {
        unshare(network_and_mounts).map_err(step("a network namespace"))?;
    }
    // Mounts from outside arrive, those made here stay here.
    let propagation = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    mount_change("/", propagation).map_err(step("mounts of its own"))?;
    let netlink = Netlink::open().map_err(step("a netlink socket"))?;
    netlink
        .loopback_up()
        .map_err(step("the loopback interface"))
}

fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> NamespaceError {
    move |error| NamespaceError::Step {
        step,
        error: error.into(),
    }
}

fn one_thread() -> Result<(), NamespaceError> {
    let threads = fs::read_dir("/proc/self/task").map_err(step("the threads of this process"))?;
    match threads.count() {
        1 => Ok(()),
        count => Err(NamespaceError::Threads(count)),
    }
}

/// Gives the calling thread a network namespace of its own.
pub(crate) fn unshare_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

#[expect(unsafe_code, reason = "there is no safe call for namespaces")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.intersects(UnshareFlags::FILES));
    // SAFETY: only a table of descriptors of one's own breaks the guarantees of safe code, and that is not asked for.
    unsafe { unshare_unsafe(flags) }?;
    Ok(())
}

/// Forks; returns the child's pid, or `None` in the child.
#[expect(
    unsafe_code,
    reason = "the trial must not leave this process half inside"
)]
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the process has one thread (checked by the caller), so no lock is held by another one in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}
