//! A test without a world: the interpreter in virtual time against a client that is a function.

use seatrial_history::{History, Op, OpType, Value};
use seatrial_machine::{Input, Machine, Output, Rng, Ticket, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::{Event, Failure, Generator, Interpreter, InterpreterOptions, Step, Thread};

/// How a simulated client answers an invocation.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// With this, after so long.
    After(Duration, OpType, Value),
    /// Not at all.
    Never,
}

/// What a client is asked.
type Client = Box<dyn FnMut(&Op) -> Answer + Send>;

/// An answer under way. Answers that are due at the same time arrive in the order in which they were given.
#[derive(Debug)]
struct Arrival {
    time: Time,
    number: u64,
    thread: Thread,
    op: Op,
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Arrival) -> bool {
        self.number == other.number
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Arrival) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Arrival) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// Runs an [`Interpreter`] against a client that is a function of the invocation, in virtual time, on one thread. For
/// golden schedules of generators, for `seatrial generate`, and for measuring the interpreter alone.
///
/// Its downside: like a real test it never ends by itself when its generator is endless, or pending for ever; then say
/// when to stop.
pub struct Simulation<G> {
    interpreter: Interpreter<G>,
    client: Client,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    /// Answers given so far.
    number: u64,
    now: Time,
    /// When to tell the interpreter to stop.
    stop_at: Option<Time>,
    log: Vec<(Time, Value)>,
    failure: Option<Box<Failure>>,
}

/// Messages that are kept of a simulated test; further ones are dropped.
const LOG_MAX: usize = 1_024;

impl<G: Generator> Simulation<G> {
    /// A test that begins when it is run.
    pub fn new(
        interpreter: Interpreter<G>,
        client: impl FnMut(&Op) -> Answer + Send + 'static,
    ) -> Simulation<G> {
        Simulation {
            interpreter,
            client: Box::new(client),
            arrivals: BinaryHeap::new(),
            number: 0,
            now: Time::ZERO,
            stop_at: None,
            log: Vec::new(),
            failure: None,
        }
    }

    /// Every operation succeeds after 10 ns with the value that was asked for.
    pub fn perfect(generator: G, concurrency: u32) -> Simulation<G> {
        let options = InterpreterOptions::new(concurrency, Rng::from_seed(0));
        Simulation::new(Interpreter::new(generator, &options), |op| {
            Answer::After(Duration::from_nanos(10), OpType::Ok, op.value.clone())
        })
    }

    /// The same, but told to stop at this time.
    pub fn stop_at(self, time: Time) -> Simulation<G> {
        Simulation {
            stop_at: Some(time),
            ..self
        }
    }

    /// Runs to the end; the history, or the generator's mistake.
    pub fn run(mut self) -> Result<History, Box<Failure>> {
        let mut ops = Vec::new();
        self.run_with(|op| ops.push(op));
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(History::from_ops(ops)),
        }
    }

    /// Runs to the end, in constant memory; `record` gets each operation of the history.
    pub fn run_with(&mut self, mut record: impl FnMut(Op)) {
        let mut out = Vec::new();
        while !self.interpreter.is_done() {
            let (time, input) = self.next_input();
            self.now = self.now.max(time);
            self.interpreter.turn(self.now, input, &mut out);
            self.interpreter.check_invariants();
            for output in out.drain(..) {
                if let Output::Reply(_, step) = output {
                    self.carry_out(step, &mut record);
                }
            }
        }
    }

    /// The interpreter, to look at.
    pub const fn interpreter(&self) -> &Interpreter<G> {
        &self.interpreter
    }

    /// What the test wanted to show, and when; the first messages only.
    pub fn log(&self) -> &[(Time, Value)] {
        &self.log
    }

    /// The generator's mistake.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    /// What happens next: answers go before waking, as with a real driver.
    fn next_input(&mut self) -> (Time, Input<Event>) {
        let wake = self.interpreter.wake_at().unwrap_or(Time::MAX);
        let arrival = self
            .arrivals
            .peek()
            .map_or(Time::MAX, |Reverse(arrival)| arrival.time);
        if let Some(stop) = self.stop_at
            && stop <= wake.min(arrival)
        {
            self.stop_at = None;
            return (stop, Input::Request(Ticket(0), Event::Stop));
        }
        if arrival <= wake
            && let Some(Reverse(arrival)) = self.arrivals.pop()
        {
            let event = Event::Completed(arrival.thread, arrival.op);
            return (arrival.time, Input::Request(Ticket(arrival.number), event));
        }
        (wake, Input::Wake)
    }

    fn carry_out(&mut self, step: Step, record: &mut impl FnMut(Op)) {
        match step {
            Step::Record(op) => record(op),
            Step::Invoke(thread, op) => {
                if let Answer::After(duration, kind, value) = (self.client)(&op) {
                    self.number += 1;
                    let (time, op) = (self.now + duration, op.complete(kind, value));
                    let arrival = Arrival {
                        time,
                        number: self.number,
                        thread,
                        op,
                    };
                    self.arrivals.push(Reverse(arrival));
                }
            }
            Step::Log(value) if self.log.len() < LOG_MAX => self.log.push((self.now, value)),
            Step::Failed(failure) => self.failure = Some(failure),
            Step::Log(_) | Step::Done => {}
        }
    }
}

impl<G: std::fmt::Debug> std::fmt::Debug for Simulation<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("interpreter", &self.interpreter)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
