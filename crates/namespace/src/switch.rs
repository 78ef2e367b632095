//! The switch: one thread that forwards packets between the endpoints of a test.

#![expect(
    clippy::host_endian_bytes,
    reason = "a counter of the kernel has the order of the machine"
)]

use crate::address_plan::{self, AddressOwner, BENCH};
use crate::ip_frame::{IpFrame, SYN};
use crate::link_meter::Meter;
use crate::packet_capture::PacketCapture;
use crate::packet_socket::{FRAME_LENGTH_MAX, PacketSocket};
use crate::switched_link::{Passage, SwitchedLinks};
use crate::tcp_flows::{SegmentFate, TcpFlows};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use seatrial_machine::{Disturbance, Link, NodeId, Rng};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The switch between the endpoints of a test. Its thread ends when it is dropped.
///
/// Its thread waits for frames on the packet sockets of all ports and for delayed packets that become due. Each frame is handled
/// under the lock that faults take too, so a cut is complete when [`Switch::cut`] returns: no later packet passes, and a delayed
/// one that becomes due is lost. Cost of a frame on a whole link: two system calls, one copy and three look-ups; the kernel
/// hands over segments of up to 64 KiB, so a bulk transfer needs few of them.
#[derive(Debug)]
pub(crate) struct Switch {
    shared: Arc<SwitchShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SwitchShared {
    state: Mutex<SwitchState>,
    /// Wakes the thread: new ports, delayed packets, the end.
    wakeup: OwnedFd,
}

/// A cable that is plugged into the switch.
#[derive(Debug)]
struct Port {
    socket: PacketSocket,
    /// The node at its other end; `None`: the bench with all clients.
    node: Option<NodeId>,
}

#[derive(Debug)]
struct SwitchState {
    ports: Vec<Arc<Port>>,
    node_ports: BTreeMap<NodeId, usize>,
    links: SwitchedLinks,
    flows: TcpFlows,
    capture: PacketCapture,
    delayed: BinaryHeap<DelayedFrame>,
    delayed_bytes: usize,
    /// Number of the next delayed frame.
    next: u64,
    has_ended: bool,
}

/// A packet on a slow link.
#[derive(Debug)]
struct DelayedFrame {
    due: Instant,
    /// Frames that are due at the same time keep their order.
    number: u64,
    link: Link,
    port: usize,
    frame: IpFrame,
}

/// The port of the bench.
const BENCH_PORT: usize = 0;
/// Frames that one port may send before the next port's turn.
const BATCH: usize = 64;
/// Bound of delayed packets; more are lost.
const DELAYED_BYTES_MAX: usize = 64 << 20;
/// Interval at which captured packets are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

impl Ord for DelayedFrame {
    /// The earliest is the greatest.
    fn cmp(&self, other: &DelayedFrame) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for DelayedFrame {
    fn partial_cmp(&self, other: &DelayedFrame) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DelayedFrame {
    fn eq(&self, other: &DelayedFrame) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DelayedFrame {}

impl Switch {
    /// Starts a switch whose first port is the bench's.
    pub(crate) fn start(
        bench: PacketSocket,
        rng: Rng,
        capture: PacketCapture,
    ) -> io::Result<Switch> {
        let port = Port {
            socket: bench,
            node: None,
        };
        let shared = Arc::new(SwitchShared {
            state: Mutex::new(SwitchState {
                ports: vec![Arc::new(port)],
                node_ports: BTreeMap::new(),
                links: SwitchedLinks::new(rng),
                flows: TcpFlows::default(),
                capture,
                delayed: BinaryHeap::new(),
                delayed_bytes: 0,
                next: 0,
                has_ended: false,
            }),
            wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let forwarding = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("switch".into());
        let thread = thread.spawn(move || forwarding.run())?;
        Ok(Switch {
            shared,
            thread: Some(thread),
        })
    }

    /// Plugs a node in.
    pub(crate) fn add_node(&self, node: NodeId, socket: PacketSocket) {
        let mut state = self.shared.state();
        let number = state.ports.len();
        state.ports.push(Arc::new(Port {
            socket,
            node: Some(node),
        }));
        state.node_ports.insert(node, number);
        drop(state);
        self.shared.wake();
    }

    /// Cuts these links until [`Switch::heal`].
    pub(crate) fn cut(&self, links: &[Link]) {
        let mut state = self.shared.state();
        for &link in links {
            state.links.link(link).cut();
        }
    }

    /// Ends all cuts.
    pub(crate) fn heal(&self) {
        self.shared.state().links.heal();
    }

    /// Disturbs these links until [`Switch::calm`].
    pub(crate) fn disturb(&self, links: &[Link], how: Disturbance) {
        let mut state = self.shared.state();
        let now = Instant::now();
        for &link in links {
            state.links.link(link).disturb(how, now);
        }
    }

    /// Ends all disturbances, and delivers what was delayed.
    pub(crate) fn calm(&self) {
        let mut state = self.shared.state();
        state.links.calm();
        state.deliver(None);
    }

    /// Resets the TCP connections that use one of these links; returns their number.
    pub(crate) fn reset(&self, links: &[Link]) -> u64 {
        let mut state = self.shared.state();
        let resets = state.flows.reset(links);
        let count = resets.len() as u64;
        for (link, [to_first, to_second]) in resets {
            let back = Link {
                from: link.to,
                to: link.from,
            };
            state.send_reset(back, to_first);
            state.send_reset(link, to_second);
            for link in [link, back] {
                state.links.link(link).meter.reset_connections += 1;
            }
        }
        count
    }

    /// Traffic of these links, and the effects of faults on it.
    pub(crate) fn meter(&self, links: &[Link]) -> Meter {
        self.shared.state().links.meter(links)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.state().has_ended = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its body does not panic
        }
    }
}

impl SwitchShared {
    fn state(&self) -> MutexGuard<'_, SwitchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only when the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    /// Forwards until the end.
    fn run(&self) {
        let mut buffer = vec![0; FRAME_LENGTH_MAX];
        let mut flushed = Instant::now();
        loop {
            let (ports, due) = {
                let mut state = self.state();
                if state.has_ended {
                    state.capture.flush();
                    return;
                }
                let now = Instant::now();
                state.deliver(Some(now));
                if flushed.elapsed() >= FLUSH_INTERVAL {
                    state.capture.flush();
                    flushed = now;
                }
                (state.ports.clone(), state.delayed.peek().map(|it| it.due))
            };
            let wait = due.map_or(FLUSH_INTERVAL, |due| {
                due.saturating_duration_since(Instant::now())
                    .min(FLUSH_INTERVAL)
            });
            for number in self.wait(&ports, wait) {
                self.receive(number, &ports[number], &mut buffer);
            }
        }
    }

    /// Waits until frames arrive; returns the ports with frames.
    fn wait(&self, ports: &[Arc<Port>], limit: Duration) -> Vec<usize> {
        let sockets = ports.iter().map(|port| port.socket.as_fd());
        let all = sockets.chain([self.wakeup.as_fd()]);
        let mut waiting: Vec<PollFd<'_>> = all
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        if poll(&mut waiting, Some(&limit)).is_err() {
            return Vec::new(); // interrupted
        }
        let is_ready = |entry: &PollFd<'_>| !entry.revents().is_empty();
        if waiting.last().is_some_and(is_ready) {
            let _ = rustix::io::read(&self.wakeup, &mut [0_u8; 8]);
        }
        let ready = waiting[..ports.len()].iter().enumerate();
        let ready = ready.filter(|(_, entry)| is_ready(entry));
        ready.map(|(number, _)| number).collect()
    }

    /// Forwards the frames of one port.
    fn receive(&self, number: usize, port: &Port, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            // An error is the port's state (its cable was pulled), and is over with the next frame.
            let Ok(Some(length)) = port.socket.receive(buffer) else {
                return;
            };
            if let Some(frame) = buffer.get(..length).and_then(IpFrame::parse) {
                self.state().arrive(frame, number, Instant::now());
            }
        }
    }
}

impl SwitchState {
    /// Handles a frame that came from a port.
    fn arrive(&mut self, mut frame: IpFrame, from: usize, now: Instant) {
        let Some((link, to)) = self.direct(&mut frame, from) else {
            return; // to no endpoint: broadcasts, other networks
        };
        self.capture.write(frame.ethernet());
        let Some(link) = link else {
            self.send(to, frame);
            return;
        };
        let tcp = frame.tcp();
        if let Some(tcp) = tcp
            && let SegmentFate::Refused(answer) = self.flows.note(&frame, tcp, link)
        {
            if let Some(answer) = answer.filter(|_| !self.links.link(link).is_cut()) {
                self.send(from, answer);
            }
            return;
        }
        let opens = tcp.is_some_and(|tcp| tcp.flags & SYN != 0);
        if !self.links.link(link).is_disturbed() {
            self.pass(frame, link, to, opens, now);
            return;
        }
        for segment in frame.segments() {
            self.pass(segment, link, to, opens, now);
        }
    }

    /// The link and the port of a frame; replaces an alias by the node's own address. A frame between a node and the bench itself
    /// has no link. `None`: no endpoint has the address, or the sender does not have its own.
    fn direct(&self, frame: &mut IpFrame, from: usize) -> Option<(Option<Link>, usize)> {
        let sender = address_plan::place(frame.source())?;
        let receiver = address_plan::place(frame.destination())?;
        let port_of = |node: NodeId| self.node_ports.get(&node).copied();
        match (self.ports.get(from)?.node, sender, receiver) {
            (None, AddressOwner::Client(client, true), AddressOwner::Alias(other, node))
                if client == other =>
            {
                frame.set_destination(address_plan::node_address(node));
                let link = Link {
                    from: client,
                    to: node,
                };
                Some((Some(link), port_of(node)?))
            }
            (None, AddressOwner::Client(client, false), AddressOwner::Node(node)) => {
                let link = Link {
                    from: client,
                    to: node,
                };
                Some((Some(link), port_of(node)?))
            }
            (None, AddressOwner::Bench, AddressOwner::Node(node)) => Some((None, port_of(node)?)),
            (Some(own), AddressOwner::Node(node), receiver) if own == node => match receiver {
                AddressOwner::Node(to) => Some((Some(Link { from: node, to }), port_of(to)?)),
                AddressOwner::Client(to, _) => Some((Some(Link { from: node, to }), BENCH_PORT)),
                AddressOwner::Bench => Some((None, BENCH_PORT)),
                AddressOwner::Alias(..) => None,
            },
            _ => None,
        }
    }

    /// Lets a packet of a link pass, now or later, once or twice, whole or damaged, or drops it.
    fn pass(&mut self, mut frame: IpFrame, link: Link, port: usize, opens: bool, now: Instant) {
        let state = self.links.link(link);
        let passage = state.pass(frame.length(), opens, now);
        if passage == Passage::Lost {
            return;
        }
        let change = state.change();
        if let Some(draw) = change.flipped {
            frame.flip_bit(draw);
        }
        if change.is_doubled {
            self.pass_on(frame.clone(), link, port, passage);
        }
        self.pass_on(frame, link, port, passage);
    }

    fn pass_on(&mut self, frame: IpFrame, link: Link, port: usize, passage: Passage) {
        match passage {
            Passage::Lost => {}
            Passage::Now => {
                self.links.link(link).meter.passed_bytes += frame.length() as u64;
                self.send(port, frame);
            }
            Passage::At(due) => {
                if self.delayed_bytes + frame.length() > DELAYED_BYTES_MAX {
                    return;
                }
                self.delayed_bytes += frame.length();
                let number = self.next;
                self.next += 1;
                self.delayed.push(DelayedFrame {
                    due,
                    number,
                    link,
                    port,
                    frame,
                });
            }
        }
    }

    /// Delivers the delayed packets that are due by then; `None`: all.
    fn deliver(&mut self, by: Option<Instant>) {
        while let Some(first) = self.delayed.peek()
            && by.is_none_or(|by| first.due <= by)
            && let Some(delayed) = self.delayed.pop()
        {
            let length = delayed.frame.length();
            self.delayed_bytes -= length;
            let link = self.links.link(delayed.link);
            if link.is_cut() {
                link.meter.held_bytes += length as u64;
                continue;
            }
            link.meter.passed_bytes += length as u64;
            self.send(delayed.port, delayed.frame);
        }
    }

    /// Delivers a reset of ours over a link, unless that is cut.
    fn send_reset(&mut self, link: Link, frame: IpFrame) {
        let port = if link.to.is_client() {
            Some(BENCH_PORT)
        } else {
            self.node_ports.get(&link.to).copied()
        };
        if let Some(port) = port.filter(|_| !self.links.link(link).is_cut()) {
            self.capture.write(frame.ethernet());
            self.send(port, frame);
        }
    }

    /// Sends a frame out of a port. A client that connected to an alias gets the alias as the sender's address. What the
    /// kernel has no room for is lost, as on any network.
    fn send(&self, port: usize, mut frame: IpFrame) {
        let Some(port) = self.ports.get(port) else {
            return;
        };
        let receiver: Ipv4Addr = match port.node {
            Some(node) => address_plan::node_address(node),
            None => BENCH,
        };
        let places = [frame.source(), frame.destination()].map(address_plan::place);
        if let [
            Some(AddressOwner::Node(node)),
            Some(AddressOwner::Client(client, true)),
        ] = places
        {
            frame.set_source(address_plan::alias(client, node));
        }
        let sender = address_plan::mac(frame.source());
        frame.set_macs(sender, address_plan::mac(receiver));
        let _ = port.socket.send(frame.bytes());
    }
}
