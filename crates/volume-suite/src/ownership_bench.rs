//! Twins of a volume inside this process, for measurements only: a thread that owns the machine, and threads that share it.

use seatrial_machine::{DataFolder, Input, Job, Machine, NodeId, Output, Rng, Ticket, Time};
use seatrial_sim::MemoryStorage;
use seatrial_suite::SuiteError;
use seatrial_volume::{
    BlockNumber, Downstairs, DownstairsOptions, Geometry, GuestReply, GuestRequest, KeyRing,
    Upstairs, UpstairsOptions, VolumeId,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What a twin does: random writes of one length by a closed loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwinRun {
    /// Do the threads that have an input share the machine behind a lock? Else one thread owns it.
    pub(crate) is_shared: bool,
    /// Is everything encrypted in the turn of the machine? Else by two other threads.
    pub(crate) is_inline: bool,
    pub(crate) length: u32,
    pub(crate) depth: usize,
    pub(crate) time: Duration,
}

/// What a twin did.
#[derive(Clone, Debug)]
pub(crate) struct TwinFigures {
    pub(crate) run: TwinRun,
    operations: u64,
    elapsed: Duration,
    /// Processor time by the name of threads.
    cpu: BTreeMap<&'static str, Duration>,
    /// How often the lock was taken.
    locked: u64,
}

/// The replicas of a twin.
const REPLICAS: u32 = 3;
/// The owner, as the replicas know it.
const OWNER: NodeId = NodeId::server(9);
/// The volume of a twin.
const GEOMETRY: Geometry = Geometry {
    volume: VolumeId(1),
    block_length: 4_096,
    blocks: 32_768,
};
/// Interval of looking whether the measurement has ended, and of the machine's ticks.
const INTERVAL: Duration = Duration::from_millis(20);
/// A twin that does not answer for this long is broken.
const PATIENCE: Duration = Duration::from_secs(20);
/// Names of the threads, at most 15 bytes.
const THREADS: [&str; 5] = [
    "twin owner",
    "twin receiver",
    "twin jobs",
    "twin guest",
    "twin replica",
];

impl TwinFigures {
    /// The columns of [`TwinFigures::line`].
    pub(crate) const HEAD: &'static str = "ownership    encryption    bytes     ops/s     MiB/s  CPU us/op  machine  encrypt    guest  replicas  locks/op";

    fn per_operation(&self, names: &[&str]) -> f64 {
        let all = names.iter().filter_map(|name| self.cpu.get(name));
        let seconds = all.sum::<Duration>().as_secs_f64();
        seconds * 1e6 / self.operations.max(1) as f64
    }

    pub(crate) fn line(&self) -> String {
        let rate = self.operations as f64 / self.elapsed.as_secs_f64();
        let mebibytes = rate * f64::from(self.run.length) / f64::from(1 << 20);
        let ownership = if self.run.is_shared {
            "shared lock"
        } else {
            "one owner"
        };
        let encryption = if self.run.is_inline {
            "in the turn"
        } else {
            "beside"
        };
        format!(
            "{ownership:<12} {encryption:<11} {:>7} {rate:>9.0} {mebibytes:>9.1} {:>10.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>9.1}",
            self.run.length,
            self.per_operation(&THREADS),
            self.per_operation(&["twin owner", "twin receiver"]),
            self.per_operation(&["twin jobs"]),
            self.per_operation(&["twin guest"]),
            self.per_operation(&["twin replica"]),
            self.locked as f64 / self.operations.max(1) as f64,
        )
    }
}

/// A job of the machine.
type TwinJob = (Box<dyn Job>, Ticket);

/// Where the outputs of the machine go. The queues are bounded by the depth of the loop and by the memory of the machine.
struct TwinWays {
    begun: Instant,
    replicas: Vec<Sender<Vec<u8>>>,
    jobs: Sender<TwinJob>,
    replies: Sender<GuestReply>,
    has_ended: AtomicBool,
    locked: AtomicU64,
}

impl TwinWays {
    fn now(&self) -> Time {
        Time::ZERO + self.begun.elapsed()
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn send(&self, to: NodeId, message: Vec<u8>) {
        if let Some(replica) = self.replicas.get(to.number() as usize - 1) {
            let _ = replica.send(message);
        }
    }

    /// Sends what the machine pushed; threads that have ended get nothing.
    fn carry_out(&self, outputs: impl Iterator<Item = Output<GuestReply>>) {
        for output in outputs {
            match output {
                Output::Send { to, message } => self.send(to, message),
                Output::SendShared { to, head, shared } => {
                    self.send(to, [&head[..], &shared].concat());
                }
                Output::Compute(job, ticket) => {
                    let _ = self.jobs.send((job, ticket));
                }
                Output::Reply(_, reply) => {
                    let _ = self.replies.send(reply);
                }
                _ => {} // an owner has no files and no connections of its own
            }
        }
    }
}

/// How an input reaches the machine.
#[derive(Clone)]
enum TwinEntrance {
    /// A queue of the thread that owns it.
    Queue(Sender<Input<GuestRequest>>),
    /// The caller takes the lock and gives the machine its turn.
    Lock(Arc<Mutex<Upstairs>>, Arc<TwinWays>),
}

impl TwinEntrance {
    fn give(&self, input: Input<GuestRequest>) {
        match self {
            TwinEntrance::Queue(queue) => {
                let _ = queue.send(input); // its thread has ended
            }
            TwinEntrance::Lock(machine, ways) => {
                let mut out = Vec::new();
                let mut locked = machine.lock().unwrap_or_else(PoisonError::into_inner);
                locked.turn(ways.now(), input, &mut out);
                drop(locked);
                ways.locked.fetch_add(1, Ordering::Relaxed);
                ways.carry_out(out.into_iter());
            }
        }
    }
}

/// Gives the machine its turns until the measurement has ended.
fn own(mut machine: Upstairs, inputs: &Receiver<Input<GuestRequest>>, ways: &TwinWays) {
    let mut out = Vec::new();
    while !ways.has_ended() {
        let input = match inputs.recv_timeout(INTERVAL) {
            Ok(input) => input,
            Err(RecvTimeoutError::Timeout) => Input::Wake,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        machine.turn(ways.now(), input, &mut out);
        ways.carry_out(out.drain(..));
    }
}

/// Gives a replica its turns. Its log is never written: every append is durable at once.
fn replicate(
    mut replica: Downstairs,
    inbox: &Receiver<Vec<u8>>,
    ways: &TwinWays,
    answer: impl Fn(Vec<u8>),
) {
    let (mut inputs, mut out) = (VecDeque::from([Input::Wake]), Vec::new());
    while !ways.has_ended() {
        while let Some(input) = inputs.pop_front() {
            replica.turn(ways.now(), input, &mut out);
            for output in out.drain(..) {
                match output {
                    Output::Send { message, .. } => answer(message),
                    Output::Append { ticket, .. } | Output::Write { ticket, .. } => {
                        inputs.push_back(Input::Appended(ticket));
                    }
                    Output::Compute(job, ticket) => {
                        inputs.push_back(Input::Computed(ticket, job.run()));
                    }
                    _ => {} // it frees nothing here
                }
            }
        }
        let is_due = replica.wake_at().is_some();
        let received = if is_due {
            inbox.try_recv().ok()
        } else {
            inbox.recv_timeout(INTERVAL).ok()
        };
        match received {
            Some(bytes) => inputs.push_back(Input::Message { from: OWNER, bytes }),
            None if is_due => inputs.push_back(Input::Wake),
            None => {}
        }
    }
}

fn spawn(
    name: &'static str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SuiteError> {
    assert!(THREADS.contains(&name), "its time is counted");
    Ok(thread::Builder::new().name(name.to_owned()).spawn(run)?)
}

/// The threads of a twin, and what its guest uses.
struct TwinThreads {
    entrance: TwinEntrance,
    ways: Arc<TwinWays>,
    replies: Receiver<GuestReply>,
    threads: Vec<JoinHandle<()>>,
}

impl TwinThreads {
    fn start(run: TwinRun) -> Result<TwinThreads, SuiteError> {
        let (replicas, inboxes): (Vec<_>, Vec<_>) = (0..REPLICAS).map(|_| channel()).unzip();
        let (jobs, work) = channel();
        let (sender, replies) = channel();
        let ways = Arc::new(TwinWays {
            begun: Instant::now(),
            replicas,
            jobs,
            replies: sender,
            has_ended: AtomicBool::new(false),
            locked: AtomicU64::new(0),
        });
        let nodes = (1..=REPLICAS).map(NodeId::server).collect();
        let keys = KeyRing::new(GEOMETRY.volume, &[5; 32]);
        let mut options = UpstairsOptions::new(GEOMETRY, keys, nodes, 1);
        options.inline_bytes_max = if run.is_inline { usize::MAX >> 1 } else { 0 };
        let machine = Upstairs::new(options);
        let mut threads = Vec::new();
        let entrance = if run.is_shared {
            let entrance = TwinEntrance::Lock(Arc::new(Mutex::new(machine)), Arc::clone(&ways));
            let (ticking, until) = (entrance.clone(), Arc::clone(&ways));
            threads.push(spawn("twin receiver", move || {
                while !until.has_ended() {
                    thread::sleep(INTERVAL);
                    ticking.give(Input::Wake);
                }
            })?);
            entrance
        } else {
            let (queue, inputs) = channel();
            let owned = Arc::clone(&ways);
            threads.push(spawn("twin owner", move || own(machine, &inputs, &owned))?);
            TwinEntrance::Queue(queue)
        };
        let mut twin = TwinThreads {
            entrance,
            ways,
            replies,
            threads,
        };
        for (node, inbox) in (1..).map(NodeId::server).zip(inboxes) {
            twin.start_replica(node, inbox)?;
        }
        let work = Arc::new(Mutex::new(work));
        for _ in 0..2 {
            twin.start_jobs(Arc::clone(&work))?;
        }
        Ok(twin)
    }

    fn start_replica(&mut self, node: NodeId, inbox: Receiver<Vec<u8>>) -> Result<(), SuiteError> {
        let data = DataFolder::open(Arc::new(MemoryStorage::new()), Path::new("/replica"))?;
        let options = DownstairsOptions {
            // Neither map files nor cleaning: there is no log to read.
            map_interval: 1 << 50,
            log_slack: 1 << 50,
            ..DownstairsOptions::new(GEOMETRY)
        };
        let (booted, _) = Downstairs::boot(&data, options)?;
        let (ways, entrance) = (Arc::clone(&self.ways), self.entrance.clone());
        let message = move |bytes| Input::Message { from: node, bytes };
        if !matches!(entrance, TwinEntrance::Lock(..)) {
            let answer = move |bytes| entrance.give(message(bytes));
            let run = move || replicate(booted.machine, &inbox, &ways, answer);
            self.threads.push(spawn("twin replica", run)?);
            return Ok(());
        }
        // As a task for each connection: a replica does not wait for the lock.
        let (answers, received) = channel();
        let until = Arc::clone(&self.ways);
        self.threads.push(spawn("twin receiver", move || {
            while !until.has_ended() {
                if let Ok(bytes) = received.recv_timeout(INTERVAL) {
                    entrance.give(message(bytes));
                }
            }
        })?);
        let answer = move |bytes| {
            let _ = answers.send(bytes); // the measurement has ended
        };
        let run = move || replicate(booted.machine, &inbox, &ways, answer);
        self.threads.push(spawn("twin replica", run)?);
        Ok(())
    }

    fn start_jobs(&mut self, work: Arc<Mutex<Receiver<TwinJob>>>) -> Result<(), SuiteError> {
        let (ways, entrance) = (Arc::clone(&self.ways), self.entrance.clone());
        let run = move || {
            while !ways.has_ended() {
                let locked = work.lock().unwrap_or_else(PoisonError::into_inner);
                let next = locked.recv_timeout(INTERVAL);
                drop(locked);
                if let Ok((job, ticket)) = next {
                    entrance.give(Input::Computed(ticket, job.run()));
                }
            }
        };
        self.threads.push(spawn("twin jobs", run)?);
        Ok(())
    }

    /// The replies to one request; each request has one.
    fn reply(&self) -> Result<(), SuiteError> {
        match self.replies.recv_timeout(PATIENCE) {
            Ok(GuestReply::Failed(error)) => Err(error.into()),
            Ok(_) => Ok(()),
            Err(_) => Err("a twin does not answer".into()),
        }
    }
}

impl Drop for TwinThreads {
    fn drop(&mut self) {
        self.ways.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // its panic was printed
        }
    }
}

/// Measures a twin.
pub(crate) fn measure_twin(run: TwinRun) -> Result<TwinFigures, SuiteError> {
    let guest = thread::Builder::new().name("twin guest".to_owned());
    let measured = guest.spawn(move || guest_loop(run))?;
    let measured = measured.join();
    measured.unwrap_or_else(|_| Err("the guest of a twin has panicked".into()))
}

fn guest_loop(run: TwinRun) -> Result<TwinFigures, SuiteError> {
    let twin = TwinThreads::start(run)?;
    let request = Input::Request(Ticket(1), GuestRequest::Activate { generation: None });
    twin.entrance.give(request);
    twin.reply()?;
    let mut rng = Rng::from_seed(1);
    let places = GEOMETRY.bytes() / u64::from(run.length);
    let blocks = u64::from(run.length / GEOMETRY.block_length);
    let payload: Vec<u8> = (0..run.length).map(|place| (place >> 3) as u8).collect();
    let mut tickets = 1;
    let mut write = || {
        tickets += 1;
        let first = BlockNumber(rng.below(places) * blocks);
        let bytes = payload.clone();
        let request = GuestRequest::Write {
            first,
            bytes,
            fua: false,
        };
        twin.entrance.give(Input::Request(Ticket(tickets), request));
    };
    let (begun, before, locked) = (
        Instant::now(),
        thread_times(),
        twin.ways.locked.load(Ordering::Relaxed),
    );
    (0..run.depth).for_each(|_| write());
    let (mut operations, mut under_way) = (0, run.depth);
    while under_way > 0 {
        twin.reply()?;
        operations += 1;
        if begun.elapsed() < run.time {
            write();
        } else {
            under_way -= 1;
        }
    }
    twin.entrance
        .give(Input::Request(Ticket(0), GuestRequest::Flush));
    twin.reply()?;
    let (elapsed, after) = (begun.elapsed(), thread_times());
    let spent = |name: &'static str| {
        let of = |times: &BTreeMap<&str, Duration>| times.get(name).copied().unwrap_or_default();
        (name, of(&after).saturating_sub(of(&before)))
    };
    Ok(TwinFigures {
        run,
        operations,
        elapsed,
        cpu: THREADS.into_iter().map(spent).collect(),
        locked: twin.ways.locked.load(Ordering::Relaxed) - locked,
    })
}

/// Processor time of the threads of this process that have these names; empty where there is no `/proc`.
fn thread_times() -> BTreeMap<&'static str, Duration> {
    let mut times = BTreeMap::new();
    for folder in std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let read =
            |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let name = read("comm");
        let Some(name) = THREADS.into_iter().find(|it| *it == name.trim_end()) else {
            continue;
        };
        let ran = read("schedstat");
        let ran = ran.split_whitespace().next().and_then(|it| it.parse().ok());
        *times.entry(name).or_default() += Duration::from_nanos(ran.unwrap_or(0));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All four twins write, and what they wrote is durable at the end.
    #[test]
    fn every_twin_serves_its_guest() {
        for (is_shared, is_inline) in [(false, false), (false, true), (true, false), (true, true)] {
            let figures = measure_twin(TwinRun {
                is_shared,
                is_inline,
                length: 16_384,
                depth: 4,
                time: Duration::from_millis(100),
            });
            let figures = figures.unwrap();
            assert!(figures.operations >= 4, "{figures:?}");
            assert_eq!(figures.locked > 0, is_shared, "{figures:?}");
            assert!(figures.line().contains("16384"));
        }
    }
}
