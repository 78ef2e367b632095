//! The namespaces of a node's processes, and the process that starts and supervises them.

use crate::node_network::in_network;
use libc::{c_char, c_int, c_ulong, pid_t};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::ptr;

/// The namespaces of one node: its network, which lives as long as this value or a process in it, and what each start of its
/// program gets anew (processes, mounts, host name, shared memory).
#[derive(Debug)]
pub struct NodeSpace {
    network: OwnedFd,
    hostname: CString,
    hosts: Option<CString>,
}

/// The handle of a node's init process, which carries out one order after the other.
///
/// ```text
///  bench ─fork─► attendant ─clone─► init (pid 1 of the node) ─clone─► program
///        status ◄───────── status ◄──────── reaps everything
///        orders ──────────────────────────► stop, continue, terminate, kill
/// ```
///
/// The attendant is the child that the bench waits for; it ends as the program ended, and only when no process of the node is
/// left: when init ends, the kernel kills all processes of its namespace and waits for them. Init stops and continues all of
/// them with one system call, which no fork escapes. Both end when the bench dies: the kernel kills the attendant and then
/// init, and init reads the end of its orders.
#[derive(Debug)]
pub struct NodeInit {
    orders: OwnedFd,
}

/// The user that a node's program runs as, in place of the bench's own. The processes that start and supervise the program keep
/// the bench's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramUser {
    /// The number of the user.
    pub uid: u32,
    /// The number of the user's group; the program is in no other group.
    pub gid: u32,
}

/// Orders to init.
const STOP: u8 = b'S';
const CONTINUE: u8 = b'C';
const KILL: u8 = b'K';
/// Added to a signal's number: the order to send it to the program.
const SIGNAL: u8 = 128;

impl NodeInit {
    /// Stops all processes of the node (SIGSTOP).
    pub fn pause(&self) -> io::Result<()> {
        self.order(STOP)
    }

    /// Continues all processes of the node (SIGCONT).
    pub fn resume(&self) -> io::Result<()> {
        self.order(CONTINUE)
    }

    /// Asks the program to end (SIGTERM).
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let number = u8::try_from(signal.as_raw()).unwrap_or_default();
        self.order(SIGNAL.saturating_add(number))
    }

    /// Kills all processes of the node. The attendant ends of SIGKILL when none is left.
    pub fn kill(&self) -> io::Result<()> {
        self.order(KILL)
    }

    /// Sends an order; a node that has ended takes none, which is no error.
    fn order(&self, order: u8) -> io::Result<()> {
        match rustix::io::write(&self.orders, &[order]) {
            Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What the processes between fork and exec need, prepared before the fork: they must not allocate.
struct Enclosure {
    network: OwnedFd,
    orders: OwnedFd,
    hostname: CString,
    hosts: Option<CString>,
    bench: pid_t,
    user: Option<ProgramUser>,
}

impl NodeSpace {
    pub(crate) fn new(
        hostname: &str,
        network: OwnedFd,
        hosts: Option<&Path>,
    ) -> io::Result<NodeSpace> {
        let hosts = hosts.map(std::path::absolute).transpose()?;
        let text = |path: std::path::PathBuf| CString::new(path.as_os_str().as_bytes());
        Ok(NodeSpace {
            network,
            hostname: CString::new(hostname)?,
            hosts: hosts.map(text).transpose()?,
        })
    }

    /// Runs `body` in a thread inside the node's network; sockets that it opens stay there.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        in_network(&self.network, body)
    }

    /// Makes `command` start inside these namespaces, under an init of its own, as `user` if there is one. The command must not
    /// change its user itself: `CommandExt::uid` takes effect before the namespaces are made, which it would forbid.
    #[expect(unsafe_code, reason = "namespaces are entered between fork and exec")]
    pub fn enclose(
        &self,
        command: &mut Command,
        user: Option<ProgramUser>,
    ) -> io::Result<NodeInit> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let enclosure = Enclosure {
            network: self.network.try_clone()?,
            orders: read,
            hostname: self.hostname.clone(),
            hosts: self.hosts.clone(),
            bench: rustix::process::getpid().as_raw_nonzero().get(),
            user,
        };
        // SAFETY: the closure makes system calls only and allocates nothing, so it may run between fork and exec.
        unsafe {
            command.pre_exec(move || enclosure.begin());
        }
        Ok(NodeInit { orders: write })
    }
}

#[expect(
    unsafe_code,
    reason = "processes between fork and exec may only make system calls"
)]
impl Enclosure {
    /// Returns in the program's process, which is then executed; the attendant and init never return.
    fn begin(&self) -> io::Result<()> {
        let mut status: [RawFd; 2] = [-1; 2];
        // SAFETY: system calls on values of this frame.
        unsafe {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if libc::getppid() != self.bench {
                return Err(io::Error::from_raw_os_error(libc::ESRCH)); // the bench died before the signal was armed
            }
            check(libc::pipe2(status.as_mut_ptr(), libc::O_CLOEXEC))?;
        }
        let spaces =
            libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
        let init = clone(spaces)?;
        if init > 0 {
            attend(init, status[0]);
        }
        self.enter()?;
        let program = clone(0)?;
        if program > 0 {
            supervise(program, self.orders.as_raw_fd(), status[1]);
        }
        // SAFETY: a system call without arguments. The program leads its session, as if a shell had started it.
        unsafe { libc::setsid() };
        self.user.map_or(Ok(()), become_user)
    }

    /// What init does first: it joins the node's network and arranges mounts and host name.
    fn enter(&self) -> io::Result<()> {
        let (root, nothing) = (c"/".as_ptr(), ptr::null::<c_char>());
        let propagation = libc::MS_REC | libc::MS_SLAVE;
        let name = &self.hostname;
        // SAFETY: system calls on strings that outlive them.
        unsafe {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            let network = self.network.as_raw_fd();
            check(libc::setns(network, libc::CLONE_NEWNET))?;
            check(libc::sethostname(name.as_ptr(), name.as_bytes().len()))?;
            check(mount(nothing, root, nothing, propagation))?;
            // Refused where parts of /proc are hidden, as in some containers; programs seldom need their own.
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags);
            if let Some(hosts) = &self.hosts {
                let target = c"/etc/hosts".as_ptr();
                mount(hosts.as_ptr(), target, nothing, libc::MS_BIND);
            }
        }
        Ok(())
    }
}

/// Gives up the bench's user and all its groups. The plain system calls: the library's would signal the threads that this process
/// had before it was forked.
#[expect(unsafe_code, reason = "the library's calls are for all threads")]
fn become_user(user: ProgramUser) -> io::Result<()> {
    let (uid, gid) = (user.uid, user.gid);
    // SAFETY: system calls without pointers, except for an empty list.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0, ptr::null::<libc::gid_t>()),
            libc::syscall(libc::SYS_setresgid, gid, gid, gid),
            libc::syscall(libc::SYS_setresuid, uid, uid, uid),
        ]
    };
    if results == [0; 3] {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[expect(unsafe_code, reason = "a system call")]
unsafe fn mount(
    source: *const c_char,
    target: *const c_char,
    kind: *const c_char,
    flags: c_ulong,
) -> c_int {
    // SAFETY: the caller passes strings or null.
    unsafe { libc::mount(source, target, kind, flags, ptr::null()) }
}

fn check(result: c_int) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Forks into new namespaces. The plain system call: the library's fork would take locks.
#[expect(unsafe_code, reason = "the library has no fork with namespaces")]
fn clone(spaces: c_int) -> io::Result<pid_t> {
    let flags = c_ulong::try_from(spaces | libc::SIGCHLD).unwrap_or_default();
    let none: c_ulong = 0;
    // SAFETY: without a stack and without sharing memory this is a fork; the caller has one thread.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as pid_t)
}

/// The attendant: waits for init, and ends as the program ended.
#[expect(unsafe_code, reason = "system calls after a fork")]
fn attend(init: pid_t, status: RawFd) -> ! {
    // SAFETY: system calls on values of this frame; nothing is allocated.
    unsafe {
        block_signals();
        close_others(status, status);
        let mut ignored = 0;
        while libc::waitpid(init, &raw mut ignored, 0) == -1
            && *libc::__errno_location() == libc::EINTR
        {}
        let mut end: c_int = libc::SIGKILL; // if init says nothing, it was killed
        libc::read(status, (&raw mut end).cast(), size_of::<c_int>());
        if libc::WIFEXITED(end) {
            libc::_exit(libc::WEXITSTATUS(end));
        }
        let signal = libc::WTERMSIG(end);
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, ptr::null_mut());
        libc::kill(libc::getpid(), signal);
        libc::_exit(128 + signal);
    }
}

/// Init: reaps all processes of the node, carries out orders, and ends with the program or the bench.
#[expect(unsafe_code, reason = "system calls after a fork")]
fn supervise(program: pid_t, orders: RawFd, status: RawFd) -> ! {
    // SAFETY: system calls on values of this frame; nothing is allocated.
    unsafe {
        block_signals();
        close_others(orders, status);
        let mut children = std::mem::zeroed();
        libc::sigemptyset(&raw mut children);
        libc::sigaddset(&raw mut children, libc::SIGCHLD);
        let deaths = libc::signalfd(-1, &raw const children, libc::SFD_NONBLOCK);
        loop {
            let mut end = 0;
            loop {
                let child = libc::waitpid(-1, &raw mut end, libc::WNOHANG);
                if child <= 0 {
                    break;
                }
                if child == program {
                    finish(status, end);
                }
            }
            let mut waiting = [orders, deaths].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            libc::poll(waiting.as_mut_ptr(), 2, -1);
            let mut information = [0_u8; size_of::<libc::signalfd_siginfo>()];
            libc::read(deaths, information.as_mut_ptr().cast(), information.len());
            if waiting[0].revents != 0 {
                obey(program, orders, status);
            }
        }
    }
}

/// Carries out the next order.
#[expect(unsafe_code, reason = "system calls after a fork")]
unsafe fn obey(program: pid_t, orders: RawFd, status: RawFd) {
    let mut order = 0_u8;
    // SAFETY: system calls on values of this frame.
    unsafe {
        let length = libc::read(orders, (&raw mut order).cast(), 1);
        match order {
            _ if length <= 0 => libc::_exit(0), // the bench has ended
            STOP => libc::kill(-1, libc::SIGSTOP),
            CONTINUE => libc::kill(-1, libc::SIGCONT),
            KILL => finish(status, libc::SIGKILL),
            signal => libc::kill(program, c_int::from(signal.saturating_sub(SIGNAL))),
        };
    }
}

/// Reports how the program ended, and ends: the kernel kills what is left of the node.
#[expect(unsafe_code, reason = "system calls after a fork")]
unsafe fn finish(status: RawFd, end: c_int) -> ! {
    // SAFETY: system calls on values of this frame.
    unsafe {
        libc::write(status, (&raw const end).cast(), size_of::<c_int>());
        libc::_exit(0);
    }
}

/// Blocks all signals; SIGKILL cannot be blocked.
#[expect(unsafe_code, reason = "system calls after a fork")]
unsafe fn block_signals() {
    // SAFETY: system calls on a value of this frame.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigfillset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, ptr::null_mut());
    }
}

/// Closes all descriptors but two, among them the standard library's pipe, whose end would otherwise never be seen.
#[expect(unsafe_code, reason = "system calls after a fork")]
unsafe fn close_others(one: RawFd, other: RawFd) {
    let (low, high) = (one.min(other) as u32, one.max(other) as u32);
    let ranges = [(0, low), (low + 1, high), (high + 1, u32::MAX)];
    for (first, end) in ranges {
        if first < end {
            // SAFETY: a system call without pointers; no descriptor outside the two is used by this process again.
            unsafe {
                let last = if end == u32::MAX { end } else { end - 1 };
                libc::syscall(libc::SYS_close_range, first, last, 0);
            }
        }
    }
}
