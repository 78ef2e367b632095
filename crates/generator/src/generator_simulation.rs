//! Simulation of a generator: the interpreter in virtual time, against a client that is a function.

use seatrial_history::{History, Op, OpType, Value};
use seatrial_machine::{Input, Machine, Output, Rng, Ticket, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::{
    Generator, GeneratorFailure, Interpreter, InterpreterOptions, InterpreterReply,
    InterpreterRequest, Thread,
};

/// The reply of a simulated client to an invocation.
#[derive(Clone, Debug, PartialEq)]
pub enum SimulatedReply {
    /// A completion of this type and value, after this latency.
    After(Duration, OpType, Value),
    /// No completion.
    Never,
}

/// The function that replies to invocations.
type ReplyFunction = Box<dyn FnMut(&Op) -> SimulatedReply + Send>;

/// A completion on its way to the interpreter. Completions that are due at the same time arrive in the order of their
/// invocations.
#[derive(Debug)]
struct Delivery {
    time: Time,
    number: u64,
    thread: Thread,
    op: Op,
}

impl PartialEq for Delivery {
    fn eq(&self, other: &Delivery) -> bool {
        self.number == other.number
    }
}

impl Eq for Delivery {}

impl PartialOrd for Delivery {
    fn partial_cmp(&self, other: &Delivery) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delivery {
    fn cmp(&self, other: &Delivery) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// Runs an [`Interpreter`] against a client that is a function of the invocation, in virtual time, on one thread: for
/// golden schedules of generators, for `seatrial generate`, and for measuring the interpreter alone.
///
/// Like a real test, it does not end by itself when its generator is endless, or pending without end; see
/// [`Simulation::stop_at`].
pub struct Simulation<G> {
    interpreter: Interpreter<G>,
    client: ReplyFunction,
    deliveries: BinaryHeap<Reverse<Delivery>>,
    /// Number of replies so far.
    number: u64,
    now: Time,
    /// When to send [`InterpreterRequest::Stop`].
    stop_at: Option<Time>,
    log: Vec<(Time, Value)>,
    failure: Option<Box<GeneratorFailure>>,
}

/// Log messages kept; further ones are dropped.
const LOG_MAX: usize = 1_024;

impl<G: Generator> Simulation<G> {
    /// A simulation that begins when it is run.
    pub fn new(
        interpreter: Interpreter<G>,
        client: impl FnMut(&Op) -> SimulatedReply + Send + 'static,
    ) -> Simulation<G> {
        Simulation {
            interpreter,
            client: Box::new(client),
            deliveries: BinaryHeap::new(),
            number: 0,
            now: Time::ZERO,
            stop_at: None,
            log: Vec::new(),
            failure: None,
        }
    }

    /// A simulation in which every operation completes with `ok` and the value of its invocation, after 10 ns.
    pub fn perfect(generator: G, concurrency: u32) -> Simulation<G> {
        let options = InterpreterOptions::new(concurrency, Rng::from_seed(0));
        Simulation::new(Interpreter::new(generator, &options), |op| {
            SimulatedReply::After(Duration::from_nanos(10), OpType::Ok, op.value.clone())
        })
    }

    /// Stops the test at this time.
    pub fn stop_at(self, time: Time) -> Simulation<G> {
        Simulation {
            stop_at: Some(time),
            ..self
        }
    }

    /// Runs to the end and returns the history, or the failure of the generator.
    pub fn run(mut self) -> Result<History, Box<GeneratorFailure>> {
        let mut ops = Vec::new();
        self.run_with(|op| ops.push(op));
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(History::from_ops(ops)),
        }
    }

    /// Runs to the end in constant memory; `record` receives each operation of the history.
    pub fn run_with(&mut self, mut record: impl FnMut(Op)) {
        let mut out = Vec::new();
        while !self.interpreter.is_done() {
            let (time, input) = self.next_input();
            self.now = self.now.max(time);
            self.interpreter.turn(self.now, input, &mut out);
            self.interpreter.check_invariants();
            for output in out.drain(..) {
                if let Output::Reply(_, reply) = output {
                    self.carry_out(reply, &mut record);
                }
            }
        }
    }

    /// The interpreter.
    pub const fn interpreter(&self) -> &Interpreter<G> {
        &self.interpreter
    }

    /// The first 1,024 log messages, with their times.
    pub fn log(&self) -> &[(Time, Value)] {
        &self.log
    }

    /// The failure of the generator.
    pub fn failure(&self) -> Option<&GeneratorFailure> {
        self.failure.as_deref()
    }

    /// The next input: of those due at the same time a stop, then completions, then a wake, as with a real driver.
    fn next_input(&mut self) -> (Time, Input<InterpreterRequest>) {
        let wake = self.interpreter.wake_at().unwrap_or(Time::MAX);
        let delivery = self
            .deliveries
            .peek()
            .map_or(Time::MAX, |Reverse(delivery)| delivery.time);
        if let Some(stop) = self.stop_at
            && stop <= wake.min(delivery)
        {
            self.stop_at = None;
            return (stop, Input::Request(Ticket(0), InterpreterRequest::Stop));
        }
        if delivery <= wake
            && let Some(Reverse(delivery)) = self.deliveries.pop()
        {
            let request = InterpreterRequest::Completed(delivery.thread, delivery.op);
            let ticket = Ticket(delivery.number);
            return (delivery.time, Input::Request(ticket, request));
        }
        (wake, Input::Wake)
    }

    fn carry_out(&mut self, reply: InterpreterReply, record: &mut impl FnMut(Op)) {
        match reply {
            InterpreterReply::Record(op) => record(op),
            InterpreterReply::Invoke(thread, op) => {
                if let SimulatedReply::After(duration, kind, value) = (self.client)(&op) {
                    self.number += 1;
                    let (time, op) = (self.now + duration, op.complete(kind, value));
                    let delivery = Delivery {
                        time,
                        number: self.number,
                        thread,
                        op,
                    };
                    self.deliveries.push(Reverse(delivery));
                }
            }
            InterpreterReply::Log(value) if self.log.len() < LOG_MAX => {
                self.log.push((self.now, value));
            }
            InterpreterReply::Failed(failure) => self.failure = Some(failure),
            InterpreterReply::Log(_) | InterpreterReply::Done => {}
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
