//! Runs the interpreter in real time.

use crate::progress::{Board, Phase};
use crate::recorder::{Gone, Recorder};
use crate::stop::{Stop, Urgency};
use crate::timer::Timer;
use crate::{Death, Nodes};
use seatrial_generator::{Event, Failure, Generator, Interpreter, Step, Thread};
use seatrial_history::{Extra, Op, Symbol, Value};
use seatrial_machine::{Input, Machine, Output, Ticket, Time};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender};

/// Owns the interpreter for the time of a test: hands out the operations that it wants done, feeds it what workers
/// answer, and gives what it records to the [`Recorder`].
///
/// Its loop: wait for a completion, the interpreter's next wake or the next round, whichever is first; feed all
/// completions that are there; wake; then carry out all steps. It is one task of a thread of its own, so that it keeps time
/// even if all others are busy. Clients that never block are the other tasks of that thread: then an operation is handed over
/// without waking a thread, and while one completion is fed, others gather. Its downside: all operations of a test pass
/// through this one thread.
pub(crate) struct Driver {
    pub(crate) interpreter: Interpreter<Box<dyn Generator>>,
    /// When the test began.
    pub(crate) began: Instant,
    /// The client workers by thread, then the nemesis.
    pub(crate) desks: Vec<Desk>,
    /// What workers answer.
    pub(crate) completions: Receiver<(Thread, Op)>,
    pub(crate) recorder: Recorder,
    pub(crate) timer: Timer,
    pub(crate) nodes: Arc<dyn Nodes>,
    pub(crate) board: Arc<Board>,
    pub(crate) stop: Stop,
}

/// A worker as the driver sees it.
pub(crate) struct Desk {
    /// Where its operations go; room for one. A worker whose inbox is full is stuck: the interpreter gives its
    /// operations up when they time out.
    pub(crate) inbox: Sender<Op>,
    /// The fields that its recorded operations get.
    pub(crate) label: Extra,
}

/// The field that names the node which an operation went to.
const NODE: Symbol = Symbol::new("node");

impl Desk {
    /// The desk of a worker that talks to `node`, if to any.
    pub(crate) fn new(inbox: Sender<Op>, node: Option<String>) -> Desk {
        let label = node.map_or(Extra::NONE, |node| Extra::new(&[(NODE, Value::text(node))]));
        Desk { inbox, label }
    }
}

/// How a test came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The generator had nothing more to do.
    Completed,
    /// It was asked to stop, and what was under way completed.
    Stopped,
    /// It was asked to stop at once.
    Aborted,
}

/// What the driver leaves behind.
pub(crate) struct Drive {
    pub(crate) ended: Ended,
    pub(crate) recorder: Recorder,
    pub(crate) deaths: Vec<Death>,
    /// A mistake of the generator.
    pub(crate) failure: Option<Box<Failure>>,
}

/// How often the driver looks at what does not announce itself: stop requests and dead nodes.
const ROUND_INTERVAL: Duration = Duration::from_millis(50);
/// Completions fed before steps are carried out.
const BATCH_LENGTH_MAX: usize = 64;

/// The state of one drive.
struct Loop {
    driver: Driver,
    out: Vec<Output<Step>>,
    /// Completions that were taken out of the queue; empty between rounds of the loop.
    batch: Vec<(Thread, Op)>,
    done: bool,
    urgency: Urgency,
    next_round: Instant,
    deaths: Vec<Death>,
    failure: Option<Box<Failure>>,
}

impl Driver {
    /// Drives until the interpreter is done, or the history cannot be written (its recorder says why).
    pub(crate) async fn drive(self) -> Drive {
        let mut this = Loop {
            next_round: self.began,
            driver: self,
            out: Vec::new(),
            batch: Vec::with_capacity(BATCH_LENGTH_MAX),
            done: false,
            urgency: Urgency::None,
            deaths: Vec::new(),
            failure: None,
        };
        let _ = this.go().await;
        Drive {
            ended: match this.urgency {
                Urgency::None => Ended::Completed,
                Urgency::Drain => Ended::Stopped,
                Urgency::Abort => Ended::Aborted,
            },
            recorder: this.driver.recorder,
            deaths: this.deaths,
            failure: this.failure,
        }
    }
}

impl Loop {
    async fn go(&mut self) -> Result<(), Gone> {
        while !self.done {
            let now = Instant::now();
            if now >= self.next_round {
                self.next_round = now + ROUND_INTERVAL;
                self.round();
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

    /// When the interpreter wants to be woken.
    fn wake_time(&self) -> Option<Instant> {
        let wake = self.driver.interpreter.wake_at()?;
        Some(self.driver.began + wake.since(Time::ZERO))
    }

    /// Waits for the next thing to happen; feeds the completions that are there.
    async fn wait(&mut self) {
        let deadlines = [self.wake_time(), self.driver.recorder.due()];
        let deadline = deadlines
            .into_iter()
            .flatten()
            .fold(self.next_round, Instant::min);
        if deadline <= Instant::now() {
            // The clients of this thread have their turn however much is due.
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
            self.turn(Input::Request(Ticket(0), Event::Completed(thread, op)));
        }
        self.batch = batch;
    }

    fn turn(&mut self, input: Input<Event>) {
        let now = Time::ZERO + self.driver.began.elapsed();
        self.driver.interpreter.turn(now, input, &mut self.out);
        if cfg!(debug_assertions) {
            self.driver.interpreter.check_invariants();
        }
    }

    /// Carries out what the interpreter wants, in order.
    fn carry_out(&mut self, now: Instant) -> Result<(), Gone> {
        for output in self.out.drain(..) {
            let Output::Reply(ticket, step) = output else {
                unreachable!("an interpreter has no network, no log and no jobs");
            };
            let driver = &mut self.driver;
            match step {
                Step::Record(op) => driver.record(ticket, op, now)?,
                Step::Invoke(thread, op) => driver.invoke(thread, op),
                Step::Log(value) => driver.board.say(value.to_string()),
                Step::Failed(failure) => self.failure = Some(failure),
                Step::Done => self.done = true,
            }
        }
        Ok(())
    }

    /// Looks at what does not announce itself.
    fn round(&mut self) {
        let deaths = self.driver.nodes.take_deaths();
        self.driver.board.count_deaths(deaths.len() as u64);
        self.deaths.extend(deaths);
        let urgency = self.driver.stop.urgency();
        if urgency > self.urgency {
            self.driver.board.set_phase(Phase::Draining);
            // Told once, the interpreter drains; told twice, it waits no longer.
            self.turn(Input::Request(Ticket(0), Event::Stop));
            if urgency == Urgency::Abort {
                self.turn(Input::Request(Ticket(0), Event::Stop));
            }
            self.urgency = urgency;
        }
    }
}

impl Driver {
    fn invoke(&self, thread: Thread, op: Op) {
        let desk = &self.desks[self.slot(thread.0.into())];
        let _ = desk.inbox.try_send(op);
    }

    /// Records an operation of the thread that the ticket names, with that thread's label.
    fn record(&mut self, ticket: Ticket, mut op: Op, now: Instant) -> Result<(), Gone> {
        if op.process.is_client() {
            self.board.count(op.kind);
        }
        let label = &self.desks[self.slot(ticket.0)].label;
        if op.extra.is_empty() {
            op.extra = label.clone();
        } else if op.extra.get(NODE.as_str()).is_none() {
            for (name, value) in label.iter() {
                op.extra = op.extra.with(*name, value.clone());
            }
        }
        self.recorder.push(op, now)
    }

    /// Where a thread's desk stands; the nemesis has the last.
    fn slot(&self, thread: u64) -> usize {
        (thread as usize).min(self.desks.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoNodes;
    use crate::recorder::{Journal, WriteError};
    use seatrial_generator::{InterpreterOptions, operation};
    use seatrial_history::OpType;
    use seatrial_machine::Rng;
    use std::sync::Mutex;
    use std::thread;

    /// Keeps operations in memory; fails when there are too many.
    struct Memory(Arc<Mutex<Vec<Op>>>, usize);

    impl Journal for Memory {
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

    /// Drives a generator with two workers that answer at once, the second one only if it is not `stuck`.
    fn drive(
        generator: Box<dyn Generator>,
        room: usize,
        stuck: bool,
        patience: Option<Duration>,
        stop: Stop,
    ) -> (Drive, Arc<Mutex<Vec<Op>>>) {
        let (answers, completions) = tokio::sync::mpsc::channel(8);
        let mut desks = Vec::new();
        for number in 0..3 {
            let (inbox, mut orders) = tokio::sync::mpsc::channel::<Op>(1);
            desks.push(Desk::new(inbox, Some(format!("n{number}"))));
            let answers = answers.clone();
            thread::spawn(move || {
                while let Some(op) = orders.blocking_recv() {
                    if stuck && number == 1 {
                        thread::sleep(Duration::from_millis(700));
                    }
                    let done = op.complete(OpType::Ok, Value::Nil).with("x", Value::Nil);
                    if answers.blocking_send((Thread(number), done)).is_err() {
                        return;
                    }
                }
            });
        }
        let ops = Arc::default();
        let journal = Memory(Arc::clone(&ops), room);
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
                desks,
                completions,
                recorder: Recorder::start(Box::new(journal)).unwrap(),
                timer: Timer::new().unwrap(),
                nodes: Arc::new(NoNodes),
                board: Arc::default(),
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
    fn a_worker_that_is_stuck_stalls_nobody_else() {
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
    fn stops_are_obeyed() {
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
