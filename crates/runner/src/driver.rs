//! The driver: runs the interpreter in real time.

use crate::history_recorder::{HistoryRecorder, WriterEnded};
use crate::progress::{Phase, ProgressState};
use crate::stop::{Stop, Urgency};
use crate::timer::Timer;
use crate::{Death, Nodes};
use seatrial_generator::{
    Generator, GeneratorFailure, Interpreter, InterpreterReply, InterpreterRequest, Thread,
};
use seatrial_history::{Extra, Op, Symbol, Value};
use seatrial_machine::{Input, Machine, Output, Ticket, Time};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender};

/// Owns the interpreter during a test: sends its invocations to the workers, feeds it their completions, and pushes its records
/// to the [`HistoryRecorder`].
///
/// Its loop: wait for a completion, the interpreter's next wake-up or the next poll, whichever is first; feed all completions
/// that have arrived; wake the interpreter; then carry out all its steps. It is one task of a thread of its own, so that it
/// keeps time even if all other threads are busy. Clients that never block are the other tasks of that thread: an operation is
/// then handed over without waking a thread, and completions gather while one is fed. Its downside: all operations of a test
/// pass through this one thread.
pub(crate) struct Driver {
    pub(crate) interpreter: Interpreter<Box<dyn Generator>>,
    /// Zero of the history's timestamps.
    pub(crate) began: Instant,
    /// Channels to the client workers, by thread, then to the nemesis.
    pub(crate) channels: Vec<WorkerChannel>,
    /// Completions of all workers and of the nemesis.
    pub(crate) completions: Receiver<(Thread, Op)>,
    pub(crate) recorder: HistoryRecorder,
    pub(crate) timer: Timer,
    pub(crate) nodes: Arc<dyn Nodes>,
    pub(crate) progress: Arc<ProgressState>,
    pub(crate) stop: Stop,
}

/// The driver's side of one worker.
pub(crate) struct WorkerChannel {
    /// Sends it operations; has room for one. A worker whose inbox is full is stuck: the interpreter abandons its operations when
    /// they time out.
    pub(crate) inbox: Sender<Op>,
    /// Fields that are added to its recorded operations.
    pub(crate) label: Extra,
}

/// The field that names the node that an operation was sent to.
const NODE: Symbol = Symbol::new("node");

impl WorkerChannel {
    /// The channel to a worker whose client is connected to `node`; `None` for a test without nodes, and for the nemesis.
    pub(crate) fn new(inbox: Sender<Op>, node: Option<String>) -> WorkerChannel {
        let label = node.map_or(Extra::NONE, |node| Extra::new(&[(NODE, Value::text(node))]));
        WorkerChannel { inbox, label }
    }
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The generator had no more operations.
    Completed,
    /// A stop was requested; operations under way completed.
    Stopped,
    /// An immediate stop was requested.
    Aborted,
}

/// The driver's result.
pub(crate) struct DriveResult {
    pub(crate) ended: Ended,
    pub(crate) recorder: HistoryRecorder,
    pub(crate) deaths: Vec<Death>,
    /// Operations that were recorded: the index of the next one.
    pub(crate) recorded: u64,
    /// An invalid operation or a panic of the generator.
    pub(crate) failure: Option<Box<GeneratorFailure>>,
}

/// Interval at which the driver polls for stop requests and dead nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of completions fed before steps are carried out.
const BATCH_LENGTH_MAX: usize = 64;

/// The loop's state.
struct DriveLoop {
    driver: Driver,
    out: Vec<Output<InterpreterReply>>,
    /// Completions taken out of the channel; empty between iterations.
    batch: Vec<(Thread, Op)>,
    done: bool,
    urgency: Urgency,
    next_poll: Instant,
    deaths: Vec<Death>,
    failure: Option<Box<GeneratorFailure>>,
}

impl Driver {
    /// Runs until the interpreter is done, or the history cannot be written ([`HistoryRecorder::finish`] returns the reason).
    pub(crate) async fn drive(self) -> DriveResult {
        debug_assert!(
            !self.channels.is_empty(),
            "the nemesis has a channel in every test"
        );
        let mut this = DriveLoop {
            next_poll: self.began,
            driver: self,
            out: Vec::new(),
            batch: Vec::with_capacity(BATCH_LENGTH_MAX),
            done: false,
            urgency: Urgency::None,
            deaths: Vec::new(),
            failure: None,
        };
        let _ = this.run().await; // the recorder returns the error when it is finished
        DriveResult {
            ended: match this.urgency {
                Urgency::None => Ended::Completed,
                Urgency::Drain => Ended::Stopped,
                Urgency::Abort => Ended::Aborted,
            },
            recorded: this.driver.interpreter.recorded(),
            recorder: this.driver.recorder,
            deaths: this.deaths,
            failure: this.failure,
        }
    }
}

impl DriveLoop {
    async fn run(&mut self) -> Result<(), WriterEnded> {
        while !self.done {
            let now = Instant::now();
            if now >= self.next_poll {
                self.next_poll = now + POLL_INTERVAL;
                self.poll();
            }
            if self.wake_time().is_some_and(|wake| wake <= now) {
                self.turn(Input::Wake);
            }
            self.carry_out(now)?;
            if self.driver.recorder.due().is_some_and(|due| due <= now) {
                self.driver.recorder.hand_over()?;
            }
            if !self.done {
                self.wait().await;
            }
        }
        Ok(())
    }

    /// When the interpreter must be woken.
    fn wake_time(&self) -> Option<Instant> {
        let wake = self.driver.interpreter.wake_at()?;
        Some(self.driver.began + wake.since(Time::ZERO))
    }

    /// Waits for the first completion or deadline; feeds all completions that have arrived.
    async fn wait(&mut self) {
        let deadlines = [self.wake_time(), self.driver.recorder.due()];
        let deadline = deadlines
            .into_iter()
            .flatten()
            .fold(self.next_poll, Instant::min);
        if deadline <= Instant::now() {
            // Even a driver that is late lets the clients on its thread run once per iteration.
            tokio::task::yield_now().await;
        }
        let driver = &mut self.driver;
        tokio::select! {
            biased;
            _ = driver.completions.recv_many(&mut self.batch, BATCH_LENGTH_MAX) => {}
            () = driver.timer.sleep_until(deadline) => {}
        }
        let mut batch = std::mem::take(&mut self.batch);
        for (thread, op) in batch.drain(..) {
            self.turn(Input::Request(
                Ticket(0),
                InterpreterRequest::Completed(thread, op),
            ));
        }
        self.batch = batch;
    }

    fn turn(&mut self, input: Input<InterpreterRequest>) {
        let now = Time::ZERO + self.driver.began.elapsed();
        self.driver.interpreter.turn(now, input, &mut self.out);
        if cfg!(debug_assertions) {
            self.driver.interpreter.check_invariants();
        }
    }

    /// Carries out the interpreter's steps, in order.
    fn carry_out(&mut self, now: Instant) -> Result<(), WriterEnded> {
        for output in self.out.drain(..) {
            let Output::Reply(ticket, step) = output else {
                unreachable!("an interpreter has no network, no log and no jobs");
            };
            let driver = &mut self.driver;
            match step {
                InterpreterReply::Record(op) => driver.record(ticket, op, now)?,
                InterpreterReply::Invoke(thread, op) => driver.invoke(thread, op),
                InterpreterReply::Log(value) => driver.progress.push_message(value.to_string()),
                InterpreterReply::Failed(failure) => self.failure = Some(failure),
                InterpreterReply::Done => self.done = true,
            }
        }
        Ok(())
    }

    /// Polls for nodes that died and for stop requests.
    fn poll(&mut self) {
        let deaths = self.driver.nodes.take_deaths();
        self.driver.progress.count_deaths(deaths.len() as u64);
        self.deaths.extend(deaths);
        let urgency = self.driver.stop.urgency();
        if urgency > self.urgency {
            self.driver.progress.set_phase(Phase::Draining);
            // The first stop event makes the interpreter drain, the second one ends it.
            self.turn(Input::Request(Ticket(0), InterpreterRequest::Stop));
            if urgency == Urgency::Abort {
                self.turn(Input::Request(Ticket(0), InterpreterRequest::Stop));
            }
            self.urgency = urgency;
        }
    }
}

impl Driver {
    fn invoke(&self, thread: Thread, op: Op) {
        let channel = &self.channels[self.channel_index(thread.0.into())];
        // Full only if the worker is stuck in an abandoned operation: this one will time out as well. Waiting here would stop
        // every other worker.
        let _ = channel.inbox.try_send(op);
    }

    /// Records an operation of the thread that the ticket names, with that thread's label.
    fn record(&mut self, ticket: Ticket, mut op: Op, now: Instant) -> Result<(), WriterEnded> {
        if op.process.is_client() {
            self.progress.count(op.kind);
        }
        let label = &self.channels[self.channel_index(ticket.0)].label;
        if op.extra.is_empty() {
            op.extra = label.clone();
        } else if op.extra.get(NODE.as_str()).is_none() {
            for (name, value) in label.iter() {
                op.extra = op.extra.with(*name, value.clone());
            }
        }
        self.recorder.push(op, now)
    }

    /// Index of a thread's channel. The nemesis has the last one: its thread number is above all of clients, so it is clamped.
    fn channel_index(&self, thread: u64) -> usize {
        (thread as usize).min(self.channels.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoNodes;
    use crate::history_recorder::{Journal, WriteError};
    use seatrial_generator::{InterpreterOptions, operation};
    use seatrial_history::OpType;
    use seatrial_machine::Rng;
    use std::sync::Mutex;
    use std::thread;

    /// A journal in memory; it fails after a number of operations.
    struct MemoryJournal(Arc<Mutex<Vec<Op>>>, usize);

    impl Journal for MemoryJournal {
        fn push(&mut self, op: &Op) -> Result<(), WriteError> {
            let mut ops = self.0.lock().unwrap();
            if ops.len() == self.1 {
                return Err("full".into());
            }
            ops.push(op.clone());
            Ok(())
        }

        fn flush(&mut self) -> Result<(), WriteError> {
            Ok(())
        }

        fn sync(&mut self) -> Result<(), WriteError> {
            Ok(())
        }

        fn seal(self: Box<Self>) -> Result<(), WriteError> {
            Ok(())
        }
    }

    /// Drives a generator with two workers that answer at once; the second one is slow if `stuck`.
    fn drive(
        generator: Box<dyn Generator>,
        room: usize,
        stuck: bool,
        patience: Option<Duration>,
        stop: Stop,
    ) -> (DriveResult, Arc<Mutex<Vec<Op>>>) {
        let (completed, completions) = tokio::sync::mpsc::channel(8);
        let mut channels = Vec::new();
        for number in 0..3 {
            let (inbox, mut operations) = tokio::sync::mpsc::channel::<Op>(1);
            channels.push(WorkerChannel::new(inbox, Some(format!("n{number}"))));
            let completed = completed.clone();
            thread::spawn(move || {
                while let Some(op) = operations.blocking_recv() {
                    if stuck && number == 1 {
                        thread::sleep(Duration::from_millis(700));
                    }
                    let done = op.complete(OpType::Ok, Value::Nil).with("x", Value::Nil);
                    if completed.blocking_send((Thread(number), done)).is_err() {
                        return;
                    }
                }
            });
        }
        let ops = Arc::default();
        let journal = MemoryJournal(Arc::clone(&ops), room);
        let options = InterpreterOptions {
            operation_timeout: patience,
            ..InterpreterOptions::new(2, Rng::from_seed(1))
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let drive = runtime.block_on(async {
            let driver = Driver {
                interpreter: Interpreter::new(generator, &options),
                began: Instant::now(),
                channels,
                completions,
                recorder: HistoryRecorder::start(Box::new(journal)).unwrap(),
                timer: Timer::new().unwrap(),
                nodes: Arc::new(NoNodes),
                progress: Arc::default(),
                stop,
            };
            driver.drive().await
        });
        (drive, ops)
    }

    fn reads() -> Box<dyn Generator> {
        operation("read", Value::Nil).repeat().clients().boxed()
    }

    #[test]
    fn every_operation_names_its_node() {
        let (drive, ops) = drive(
            reads().limit(1000).boxed(),
            usize::MAX,
            false,
            None,
            Stop::new(),
        );
        assert_eq!(drive.ended, Ended::Completed);
        drive.recorder.finish().unwrap();
        let ops = ops.lock().unwrap();
        assert_eq!(ops.len(), 2000);
        for op in ops.iter() {
            let node = format!("n{}", op.process);
            assert_eq!(op.extra.get("node"), Some(&Value::text(node)), "{op}");
            assert_eq!(op.extra.get("x").is_some(), !op.is_invoke(), "{op}");
        }
    }

    #[test]
    fn a_full_disk_ends_the_test() {
        let (drive, ops) = drive(reads(), 5000, false, None, Stop::new());
        assert_eq!(drive.recorder.finish().unwrap_err(), "full");
        assert_eq!(ops.lock().unwrap().len(), 5000);
    }

    #[test]
    fn a_stuck_worker_stalls_no_other() {
        let generator = reads().time_limit(Duration::from_millis(500)).boxed();
        let patience = Some(Duration::from_millis(100));
        let (drive, ops) = drive(generator, usize::MAX, true, patience, Stop::new());
        drive.recorder.finish().unwrap();
        let ops = ops.lock().unwrap();
        let stuck = |op: &&Op| op.is_info();
        assert!(
            (4..=6).contains(&ops.iter().filter(stuck).count()),
            "{ops:?}"
        );
        assert!(ops.iter().filter(|op| op.is_ok()).count() > 1000);
    }

    #[test]
    fn stop_requests_end_the_drive() {
        let cases = [
            (1, Ended::Stopped, 600..5000),
            (2, Ended::Aborted, 100..600),
        ];
        for (requests, ended, milliseconds) in cases {
            let stop = Stop::new();
            let handle = stop.clone();
            let stopper = thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                for _ in 0..requests {
                    handle.request();
                }
            });
            let began = Instant::now();
            let (drive, _) = drive(reads(), usize::MAX, true, None, stop);
            let took = began.elapsed().as_millis();
            assert!(milliseconds.contains(&took), "{ended:?} took {took} ms");
            stopper.join().unwrap();
            assert_eq!(drive.ended, ended);
            drive.recorder.finish().unwrap();
        }
    }
}
