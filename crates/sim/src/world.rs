//! The world: owns the nodes and the event queue, and carries out each turn's outputs.

use crate::event_queue::{EventQueue, WorldEvent};
use crate::network::{LostMessages, Network};
use crate::node_work::NodeWork;
use crate::simulated_storage::FileTree;
use crate::trace::EventTrace;
use crate::world_options::WorldOptions;
use seatrial_machine::{
    Booted, Clock, DataFolder, DiskTrouble, Fault, Input, Link, LogName, Machine, NodeId, Output,
    Rng, Ticket, Time, WORK_MAX,
};
use std::io;
use std::time::Duration;

/// Builds the machine of a node from its folder, at its first start and at every restart. An error (a text) leaves the node down
/// and is reported by [`World::take_boot_failures`].
pub type Boot<M> = Box<dyn FnMut(NodeId, &DataFolder) -> Result<Booted<M>, String>>;

/// Notifies a machine, at its local time, that its connection to another endpoint ended, as `host` does for TCP connections.
pub type Closed<M> = fn(&mut M, Time, NodeId, &mut Vec<Output<<M as Machine>::Reply>>);

/// A world of machines, a network, disks and clocks, run in one thread from one seed. `M` is an enum where several kinds of
/// machine live in one world.
///
/// It owns the machines and every source of nondeterminism: the event queue, the network, and one generator of random numbers
/// per concern, forked from the seed, so that a draw of the network does not shift the draws of the disks. Its loop
/// ([`World::step`]): pop the earliest event, give its machine one turn, carry out the outputs by drawing their fate, check the
/// machine's invariants. The same seed and the same calls give the same events.
///
/// Cost: O(log n) per event for n queued events. Its downside: everything is in memory, and a machine that never becomes idle
/// keeps the world running for ever; callers bound their runs by time or steps.
pub struct World<M: Machine> {
    now: Time,
    options: WorldOptions,
    queue: EventQueue<M::Request>,
    network: Network,
    disk_rng: Rng,
    job_rng: Rng,
    clock_rng: Rng,
    nodes: Vec<WorldNode<M>>,
    boot: Boot<M>,
    closed: Option<Closed<M>>,
    boot_failures: Vec<(NodeId, String)>,
    replies: Vec<(NodeId, Ticket, M::Reply)>,
    /// Reused by every turn.
    out: Vec<Output<M::Reply>>,
    turns: u64,
    trace: EventTrace,
}

/// One endpoint: its machine, disk, clock, and work under way.
struct WorldNode<M: Machine> {
    id: NodeId,
    machine: Option<M>,
    /// Number of starts. An event of an earlier incarnation is dropped: its process is dead.
    incarnation: u32,
    paused: bool,
    /// A write to a log failed, or the machine stopped itself: the node crashes after this turn, as `host` ends its process.
    is_failing: bool,
    /// Events that arrived while the node was paused, in order.
    held: Vec<WorldEvent<M::Request>>,
    work: NodeWork,
    clock: Clock,
    /// World time of the queued wake-up, and its number: a wake-up with an older number is void.
    wake: Option<(Time, u32)>,
    wakes: u32,
    /// World time of the latest wake-up that led to a turn, and the number of wake-ups at that time.
    woken: (Time, u32),
}

/// Delay after which a message is offered again to a machine with [`WORK_MAX`] jobs and file tasks under way.
const BUSY_DELAY: Duration = Duration::from_micros(100);

/// Events that a paused node keeps, as kernel buffers do; later messages are lost.
const HELD_MAX: usize = 65_536;

/// A machine that is woken this often at one instant will be woken there for ever: `wake_at` does not advance.
const WAKES_AT_ONE_INSTANT_MAX: u32 = 10_000;

impl<M: Machine> World<M> {
    /// An empty world at time zero.
    pub fn new(
        seed: u64,
        options: WorldOptions,
        boot: impl FnMut(NodeId, &DataFolder) -> Result<Booted<M>, String> + 'static,
    ) -> World<M> {
        let rng = Rng::from_seed(seed);
        World {
            now: Time::ZERO,
            network: Network::new(options.network.clone(), rng.fork("network")),
            options,
            queue: EventQueue::new(),
            disk_rng: rng.fork("disk"),
            job_rng: rng.fork("jobs"),
            clock_rng: rng.fork("clocks"),
            nodes: Vec::new(),
            boot: Box::new(boot),
            closed: None,
            boot_failures: Vec::new(),
            replies: Vec::new(),
            out: Vec::new(),
            turns: 0,
            trace: EventTrace::default(),
        }
    }

    /// Keeps every event as a line of text, for [`World::trace`].
    pub fn keep_trace(&mut self) {
        self.trace.keep();
    }

    /// Enables notices of ended connections: to both ends of a link that is reset, and to each peer that exchanged messages with
    /// a node that is killed. A notice takes the delay of a message and may be lost. Call it before the first event.
    pub fn notify_closed(&mut self, closed: Closed<M>) {
        self.closed = Some(closed);
        self.network.remember_connections();
    }

    /// Puts a new endpoint with an empty disk into the world and starts it.
    pub fn add(&mut self, id: NodeId) {
        assert!(self.find(id).is_none(), "{id} is already in this world");
        let drift = self.options.drift(&mut self.clock_rng);
        self.nodes.push(WorldNode {
            id,
            machine: None,
            incarnation: 0,
            paused: false,
            is_failing: false,
            held: Vec::new(),
            work: NodeWork::new(),
            clock: Clock::new(self.now, drift),
            wake: None,
            wakes: 0,
            woken: (Time::ZERO, 0),
        });
        self.network.add(id, self.nodes.len() - 1);
        self.start(self.nodes.len() - 1);
    }

    /// The world's time. Machines see their own clocks.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Turns of all machines so far.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// When the next event is due.
    pub fn next_time(&self) -> Option<Time> {
        self.queue.next_time()
    }

    /// The machine of a node that is up.
    pub fn machine(&self, id: NodeId) -> Option<&M> {
        self.nodes[self.find(id)?].machine.as_ref()
    }

    /// The durable files of a node: the state after a crash that loses everything else.
    pub fn durable(&self, id: NodeId) -> FileTree {
        self.find(id).map_or_else(FileTree::default, |it| {
            self.nodes[it].work.storage().durable()
        })
    }

    /// The files of a node as its machine sees them.
    pub fn files(&self, id: NodeId) -> FileTree {
        self.find(id).map_or_else(FileTree::default, |it| {
            self.nodes[it].work.storage().files()
        })
    }

    /// Replies since the last call, in order: node, ticket, reply. A request to a node that was killed before it replied has
    /// none.
    pub fn drain_replies(&mut self) -> std::vec::Drain<'_, (NodeId, Ticket, M::Reply)> {
        self.replies.drain(..)
    }

    /// Nodes that could not start since the last call or stopped themselves ([`Output::Stop`]), and why.
    pub fn take_boot_failures(&mut self) -> Vec<(NodeId, String)> {
        std::mem::take(&mut self.boot_failures)
    }

    /// Messages that reached no machine so far, by reason: every loss is counted.
    pub const fn lost_messages(&self) -> LostMessages {
        self.network.lost
    }

    /// Hash of all events so far, in order: equal runs have equal fingerprints.
    pub fn fingerprint(&self) -> u64 {
        self.trace.fingerprint()
    }

    /// The lines kept since [`World::keep_trace`].
    pub fn trace(&self) -> &[String] {
        self.trace.lines()
    }

    /// Sends a local request to a machine, now. False when the node is down: no reply will come.
    pub fn request(&mut self, id: NodeId, ticket: Ticket, request: M::Request) -> bool {
        let Some(index) = self.find(id) else {
            return false;
        };
        let incarnation = self.nodes[index].incarnation;
        if self.nodes[index].machine.is_none() {
            return false;
        }
        self.happen(
            index,
            WorldEvent::Request {
                incarnation,
                ticket,
                request,
            },
        );
        true
    }

    /// Runs the earliest event. False when the queue is empty.
    pub fn step(&mut self) -> bool {
        let Some((time, index, event)) = self.queue.pop() else {
            return false;
        };
        self.now = self.now.max(time);
        self.happen(index, event);
        true
    }

    /// Runs all events that are due until `time`, then sets the clock to it.
    pub fn run_until(&mut self, time: Time) {
        while self.next_time().is_some_and(|next| next <= time) {
            self.step();
        }
        self.now = self.now.max(time);
    }

    /// Injects or ends a fault, now; false when that changes nothing (the node was down already, no link was cut). Endpoints
    /// that this world does not have are ignored, as are faults of the system's membership: the machines of a world have no
    /// operator.
    pub fn apply(&mut self, fault: &Fault) -> bool {
        self.trace.note(self.now, || format!("{fault:?}"));
        match fault {
            Fault::Cut(links) => {
                self.network.cut(links);
                true
            }
            Fault::Disturb { links, how } => {
                self.network.disturb(self.now, links, *how);
                true
            }
            Fault::Reset(links) => {
                let known: Vec<bool> = links.iter().map(|link| self.reset(*link)).collect();
                known.contains(&true)
            }
            Fault::Heal => self.network.heal(self.now, &mut self.queue),
            Fault::Calm => self.network.calm(),
            _ => match fault.node().and_then(|node| self.find(node)) {
                Some(index) => self.apply_to(index, fault),
                None => false,
            },
        }
    }

    /// Injects or ends a fault of one node.
    fn apply_to(&mut self, index: usize, fault: &Fault) -> bool {
        let now = self.now;
        let node = &mut self.nodes[index];
        let is_up = node.machine.is_some();
        match fault {
            Fault::Kill(_) => self.crash_at(index),
            Fault::LoseUnsynced(_) => {
                node.work.lose_power();
                self.crash_at(index);
            }
            Fault::Restart(_) if is_up => return false,
            Fault::Restart(_) => {
                self.start(index);
                return self.nodes[index].machine.is_some();
            }
            Fault::Pause(_) => return is_up && !std::mem::replace(&mut node.paused, is_up),
            Fault::Resume(_) => {
                let was_paused = node.paused;
                self.resume(index);
                return was_paused;
            }
            Fault::Skew {
                offset_ns,
                rate_ppm,
                ..
            } => {
                node.clock.skew(now, *offset_ns, *rate_ppm);
                self.schedule_wake(index);
                return true;
            }
            Fault::Strobe {
                delta,
                period,
                length,
                ..
            } => {
                node.clock.strobe(now, *delta, *period, *length);
                self.schedule_wake(index);
                return true;
            }
            Fault::Disk { trouble, .. } => {
                node.work.storage().set_trouble(Some(*trouble));
                return true;
            }
            Fault::MendDisk(_) => {
                let was_in_trouble = node.work.storage().trouble().is_some();
                node.work.storage().set_trouble(None);
                return was_in_trouble;
            }
            Fault::BitRot { bits, .. } => {
                return node.work.storage().rot(*bits, &mut self.disk_rng);
            }
            Fault::Snapshot(_) => {
                node.work.keep_snapshot();
                return true;
            }
            Fault::Truncate { bytes, .. } => return !is_up && node.work.cut_off(*bytes),
            Fault::Restore(_) => return !is_up && node.work.restore(),
            _ => return false,
        }
        is_up
    }

    /// Ends all faults, for the phase in which a system has to make progress: the network and disks of a quiet world, whole
    /// links, clocks at the right speed, paused nodes resumed, dead nodes started.
    pub fn calm(&mut self) {
        let WorldOptions { network, disk, .. } = WorldOptions::default();
        *self.network.options_mut() = network;
        self.options.disk = disk;
        self.apply(&Fault::Heal);
        self.apply(&Fault::Calm);
        for index in 0..self.nodes.len() {
            let node = self.nodes[index].id;
            self.apply(&Fault::MendDisk(node));
            self.apply(&Fault::Resume(node));
            self.apply(&Fault::right_clock(node));
            self.apply(&Fault::Restart(node));
        }
    }

    fn find(&self, id: NodeId) -> Option<usize> {
        self.network.find(id)
    }

    /// Builds the machine of a node that is down, from its disk. A start that fails while its disk has a fault is not reported
    /// as a boot failure.
    fn start(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        match boot(&mut self.boot, node) {
            Ok(machine) => {
                node.clock.restart(self.now);
                node.machine = Some(machine);
                node.incarnation += 1;
                self.turn(index, Input::Wake);
            }
            Err(_) if is_broken(node.work.storage().trouble()) => {}
            Err(reason) => self.boot_failures.push((node.id, reason)),
        }
    }

    /// Crashes a process: its memory is lost, and with it part or all of the bytes that are not durable.
    fn crash_at(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.machine.take().is_none() {
            return;
        }
        node.paused = false;
        node.held.clear();
        node.wake = None;
        node.is_failing = false;
        node.work.crash(&self.options, &mut self.disk_rng);
        let dead = node.id;
        for peer in 0..self.nodes.len() {
            if self.network.disconnect(dead, self.nodes[peer].id) {
                self.notify(peer, dead);
            }
        }
    }

    /// Ends the connection over a link; both ends are notified. False when this world has no such link.
    fn reset(&mut self, link: Link) -> bool {
        self.network.reset(link, self.now);
        if let (Some(from), Some(to)) = (self.find(link.from), self.find(link.to)) {
            if self.network.disconnect(link.from, link.to) {
                self.notify(to, link.from);
                self.notify(from, link.to);
            }
            return true;
        }
        false
    }

    /// Queues the notice that the connection of the node at `index` to `peer` ended.
    fn notify(&mut self, index: usize, peer: NodeId) {
        let node = &self.nodes[index];
        if let Some(delay) = self.network.notice(peer, node.id) {
            let incarnation = node.incarnation;
            let event = WorldEvent::Closed { incarnation, peer };
            self.queue.push(self.now + delay, index, event);
        }
    }

    fn resume(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if !std::mem::replace(&mut node.paused, false) {
            return;
        }
        for event in std::mem::take(&mut node.held) {
            self.queue.push(self.now, index, event);
        }
    }

    /// Gives one event to a node, or holds or drops it.
    fn happen(&mut self, index: usize, event: WorldEvent<M::Request>) {
        let node = &mut self.nodes[index];
        if event
            .incarnation()
            .is_some_and(|incarnation| incarnation != node.incarnation)
        {
            return;
        }
        if let WorldEvent::Deliver { from, sent, .. } = &event
            && self.network.blocks(*from, node.id, *sent)
        {
            self.network.lost.cut += 1;
            return;
        }
        let is_message = matches!(event, WorldEvent::Deliver { .. });
        if node.paused {
            if node.held.len() < HELD_MAX || !is_message {
                node.held.push(event);
            } else {
                self.network.lost.held_max += 1;
            }
            return;
        }
        if node.machine.is_none() {
            self.network.lost.down += u64::from(is_message);
            return;
        }
        if is_message && node.work.under_way() >= WORK_MAX {
            self.queue.push(self.now + BUSY_DELAY, index, event);
            return;
        }
        self.trace.event(self.now, node.id, &event);
        match event {
            WorldEvent::Deliver { from, bytes, .. } => {
                self.turn(index, Input::Message { from, bytes });
            }
            WorldEvent::Wake { number, .. } => self.wake(index, number),
            WorldEvent::Synced { log, .. } => self.synced(index, log),
            WorldEvent::File { ticket, .. } => self.file_done(index, ticket),
            WorldEvent::Job { number, .. } => self.run_job(index, number),
            WorldEvent::Closed { peer, .. } => {
                if let Some(closed) = self.closed {
                    self.have_turn(index, |machine, now, out| closed(machine, now, peer, out));
                }
            }
            WorldEvent::Computed { ticket, result, .. } => {
                self.turn(index, Input::Computed(ticket, result));
            }
            WorldEvent::Request {
                ticket, request, ..
            } => {
                self.turn(index, Input::Request(ticket, request));
            }
        }
    }

    /// Handles a queued wake-up: void if the machine has scheduled another one since.
    fn wake(&mut self, index: usize, number: u32) {
        let node = &mut self.nodes[index];
        if node.wake.is_none_or(|(_, queued)| queued != number) {
            return;
        }
        node.wake = None;
        let local = node.clock.read(self.now);
        let due = node.machine.as_ref().and_then(Machine::wake_at);
        if due.is_some_and(|due| due <= local) {
            let (instant, count) = node.woken;
            node.woken = (self.now, if instant == self.now { count + 1 } else { 1 });
            assert!(
                node.woken.1 <= WAKES_AT_ONE_INSTANT_MAX,
                "{} was woken {WAKES_AT_ONE_INSTANT_MAX} times at {} and still asks for it",
                node.id,
                self.now
            );
            self.turn(index, Input::Wake);
        } else {
            self.schedule_wake(index);
        }
    }

    /// A sync is done: the appends that it covered are durable.
    fn synced(&mut self, index: usize, log: LogName) {
        let Ok((mut tickets, begins)) = self.nodes[index].work.synced(log) else {
            self.crash_at(index);
            return;
        };
        if begins {
            self.begin_sync(index, log);
        }
        if tickets.len() > 1 && self.disk_rng.chance(self.options.disk.answer_last) {
            tickets.drain(..tickets.len() - 1);
        }
        for ticket in tickets {
            self.turn(index, Input::Appended(ticket));
        }
    }

    /// Starts a sync of what was written to a log.
    fn begin_sync(&mut self, index: usize, log: LogName) {
        let delay = self.sync_delay(index);
        let incarnation = self.nodes[index].incarnation;
        let event = WorldEvent::Synced { incarnation, log };
        self.queue.push(self.now + delay, index, event);
    }

    fn sync_delay(&mut self, index: usize) -> Duration {
        let extra = self.nodes[index].work.extra_delay();
        extra + self.options.disk.sync_delay(&mut self.disk_rng)
    }

    /// Handles the result of a write to a log: begins a sync, or marks the node as failing.
    fn logged(&mut self, index: usize, log: LogName, written: &io::Result<bool>) {
        match written {
            Ok(true) => self.begin_sync(index, log),
            Ok(false) => {}
            Err(_) => self.nodes[index].is_failing = true,
        }
    }

    /// A file task is done or failed; tasks that waited for it may begin.
    fn file_done(&mut self, index: usize, ticket: Ticket) {
        if let Some(result) = self.nodes[index].work.finish_file(ticket) {
            self.start_files(index);
            self.turn(index, Input::FileDone(ticket, result));
        }
    }

    fn start_files(&mut self, index: usize) {
        while let Some((ticket, is_sync)) = self.nodes[index].work.start_file() {
            let delay = if is_sync {
                self.sync_delay(index)
            } else {
                self.options.job_delay(&mut self.job_rng)
            };
            let incarnation = self.nodes[index].incarnation;
            let event = WorldEvent::File {
                incarnation,
                ticket,
            };
            self.queue.push(self.now + delay, index, event);
        }
    }

    /// Runs a job. Its result arrives at once, or later if it synced a slow disk.
    fn run_job(&mut self, index: usize, number: u64) {
        let node = &mut self.nodes[index];
        let Some((ticket, job)) = node.work.take_job(number) else {
            return;
        };
        let syncs_before = node.work.storage().syncs();
        let result = job.run();
        let syncs = node.work.storage().syncs() - syncs_before;
        let late = node.work.extra_delay() * u32::try_from(syncs).unwrap_or(u32::MAX);
        if late.is_zero() {
            self.turn(index, Input::Computed(ticket, result));
            return;
        }
        let event = WorldEvent::Computed {
            incarnation: node.incarnation,
            ticket,
            result,
        };
        self.queue.push(self.now + late, index, event);
    }

    fn turn(&mut self, index: usize, input: Input<M::Request>) {
        self.have_turn(index, |machine, now, out| machine.turn(now, input, out));
    }

    /// Gives a machine one turn and carries out its outputs.
    fn have_turn(
        &mut self,
        index: usize,
        turn: impl FnOnce(&mut M, Time, &mut Vec<Output<M::Reply>>),
    ) {
        let node = &mut self.nodes[index];
        let Some(machine) = &mut node.machine else {
            return;
        };
        let local = node.clock.read(self.now);
        let mut out = std::mem::take(&mut self.out);
        turn(machine, local, &mut out);
        machine.check_invariants();
        self.turns += 1;
        for output in out.drain(..) {
            self.carry_out(index, output);
        }
        self.out = out;
        if std::mem::take(&mut self.nodes[index].is_failing) {
            self.crash_at(index);
        }
        self.schedule_wake(index);
    }

    fn carry_out(&mut self, index: usize, output: Output<M::Reply>) {
        let node = &mut self.nodes[index];
        let (id, incarnation) = (node.id, node.incarnation);
        if node.is_failing {
            return; // the process ends: outputs that it pushed after the failure are dropped
        }
        match output {
            Output::Send { to, message } => {
                self.network
                    .send(self.now, id, to, message, &mut self.queue);
            }
            Output::SendShared { to, head, shared } => {
                let message = [&head[..], &shared].concat();
                self.network
                    .send(self.now, id, to, message, &mut self.queue);
            }
            // Endpoints of this world are addressed by node id; it has no connections to bound.
            Output::Admit(_) | Output::Close(_) | Output::Address { .. } => {}
            Output::Append { log, bytes, ticket } => {
                let written = node.work.append(log, bytes, ticket);
                self.logged(index, log, &written);
            }
            Output::Write { log, bytes, ticket } => {
                let written = node.work.write(log, bytes, ticket);
                self.logged(index, log, &written);
            }
            Output::TruncateHead { log, position } => {
                let written = node.work.truncate_head(log, position);
                self.logged(index, log, &written);
            }
            Output::File(task, ticket) => {
                node.work.push_file(ticket, task);
                self.start_files(index);
            }
            Output::Compute(job, ticket) => {
                let takes = self.options.job_delay(&mut self.job_rng);
                let (number, due) = node.work.push_job(ticket, job, self.now, takes);
                let event = WorldEvent::Job {
                    incarnation,
                    number,
                };
                self.queue.push(due, index, event);
            }
            Output::Reply(ticket, reply) => self.replies.push((id, ticket, reply)),
            Output::Stop(reason) => {
                node.is_failing = true;
                self.boot_failures.push((id, format!("stopped: {reason}")));
            }
        }
    }

    /// Queues the next wake-up of a machine, unless an earlier or equal one is queued: that one will schedule it.
    fn schedule_wake(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some(due) = node.machine.as_ref().and_then(Machine::wake_at) else {
            return;
        };
        let Some(due) = node.clock.world_time(due, self.now) else {
            return;
        };
        if node.wake.is_some_and(|(queued, _)| queued <= due) {
            return;
        }
        node.wakes = node.wakes.wrapping_add(1);
        node.wake = Some((due, node.wakes));
        let event = WorldEvent::Wake {
            incarnation: node.incarnation,
            number: node.wakes,
        };
        self.queue.push(due, index, event);
    }
}

/// Builds a machine from the files of its node.
fn boot<M: Machine>(boot: &mut Boot<M>, node: &mut WorldNode<M>) -> Result<M, String> {
    let text = |error: io::Error| error.to_string();
    let data = node.work.folder().map_err(text)?;
    let Booted { machine, logs } = boot(node.id, &data)?;
    node.work.start(&data, &logs).map_err(text)?;
    Ok(machine)
}

/// Can a start fail because of this disk fault?
fn is_broken(trouble: Option<DiskTrouble>) -> bool {
    trouble.is_some_and(|it| !matches!(it, DiskTrouble::Slow(_)))
}
