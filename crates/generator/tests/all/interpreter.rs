//! The interpreter as a machine: crashes, time-outs, stopping.

use seatrial_generator::{
    Context, Generator, Interpreter, InterpreterOptions, InterpreterReply, InterpreterRequest,
    Next, SimulatedReply, Simulation, SingleOp, Thread, Threads, any, function, mix, operation,
    sequence, sleep,
};
use seatrial_history::{Op, OpType, Process, Value};
use seatrial_machine::{Input, Machine, Output, Rng, Ticket, Time};
use std::time::Duration;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn options(concurrency: u32) -> InterpreterOptions {
    InterpreterOptions {
        drain_timeout: ms(100),
        ..InterpreterOptions::new(concurrency, Rng::from_seed(1))
    }
}

fn reads() -> Box<dyn Generator> {
    operation("read", Value::Nil).repeat().clients().boxed()
}

/// An interpreter by hand.
struct Bench {
    interpreter: Interpreter,
    now: Time,
}

impl Bench {
    fn new(generator: Box<dyn Generator>, options: &InterpreterOptions) -> Bench {
        Bench {
            interpreter: Interpreter::new(generator, options),
            now: Time::ZERO,
        }
    }

    /// One turn; the steps in short words.
    fn turn(&mut self, input: Input<InterpreterRequest>) -> Vec<String> {
        let mut out = Vec::new();
        self.interpreter.turn(self.now, input, &mut out);
        self.interpreter.check_invariants();
        out.into_iter().map(|output| words(&output)).collect()
    }

    fn wake(&mut self) -> Vec<String> {
        self.turn(Input::Wake)
    }

    fn stop(&mut self) -> Vec<String> {
        self.turn(Input::Request(Ticket(0), InterpreterRequest::Stop))
    }

    fn complete(&mut self, thread: u32, process: u64, kind: OpType) -> Vec<String> {
        let op = Op {
            kind,
            ..Op::invoke(Process::Client(process), "read", Value::Int(7))
        };
        self.turn(Input::Request(
            Ticket(0),
            InterpreterRequest::Completed(Thread(thread), op),
        ))
    }

    fn at(&mut self, milliseconds: u64) -> &mut Bench {
        self.now = Time::from_milliseconds(milliseconds);
        self
    }
}

fn words(output: &Output<InterpreterReply>) -> String {
    let Output::Reply(Ticket(ticket), step) = output else {
        panic!("{output:?}")
    };
    match step {
        InterpreterReply::Record(op) => {
            let error = op
                .extra
                .get("error")
                .map_or(String::new(), |error| format!(" {error}"));
            format!(
                "{}: {} {} {}{error}",
                op.index,
                op.process,
                op.kind.name(),
                op.value
            )
        }
        InterpreterReply::Invoke(thread, op) => {
            assert_eq!(u64::from(thread.0), *ticket);
            format!("invoke {thread} {}", op.process)
        }
        InterpreterReply::Log(value) => format!("log {value}"),
        InterpreterReply::Failed(failure) => format!("failed {}", failure.problem),
        InterpreterReply::Done => "done".into(),
    }
}

#[test]
fn an_invocation_is_recorded_and_then_sent() {
    let mut bench = Bench::new(reads(), &options(1));
    assert_eq!(bench.interpreter.wake_at(), Some(Time::ZERO));
    assert_eq!(bench.wake(), ["0: 0 invoke nil", "invoke 0 0"]);
    assert_eq!(bench.wake(), [""; 0]);
    assert_eq!(bench.interpreter.open_count(), 1);
}

#[test]
fn completions_come_first() {
    let mut bench = Bench::new(reads(), &options(2));
    assert_eq!(bench.wake().len(), 4);
    assert_eq!(bench.at(5).complete(0, 0, OpType::Ok), ["2: 0 ok 7"]);
    assert_eq!(bench.interpreter.wake_at(), Some(bench.now));
    assert_eq!(bench.at(6).complete(1, 1, OpType::Fail), ["3: 1 fail 7"]);
    let mut steps = bench.wake();
    steps.sort();
    assert_eq!(steps.len(), 4, "{steps:?}");
}

#[test]
fn a_crashed_process_gets_a_new_number() {
    let mut bench = Bench::new(reads(), &options(3));
    bench.wake();
    assert_eq!(bench.complete(1, 1, OpType::Info), ["3: 1 info 7"]);
    assert_eq!(bench.wake(), ["4: 4 invoke nil", "invoke 1 4"]);
    assert_eq!(
        bench.complete(1, 1, OpType::Ok),
        [""; 0],
        "the old process is gone"
    );
    assert_eq!(bench.interpreter.late(), 1);
    assert_eq!(bench.complete(1, 4, OpType::Ok), ["5: 4 ok 7"]);
    assert_eq!(bench.wake(), ["6: 4 invoke nil", "invoke 1 4"]);
}

#[test]
fn completions_without_an_open_operation_are_ignored() {
    let mut bench = Bench::new(reads(), &options(2));
    assert_eq!(bench.complete(0, 0, OpType::Ok), [""; 0]);
    bench.wake();
    for (thread, process) in [(0, 1), (2, 0), (77, 0), (u32::MAX, 0), (0, u64::MAX)] {
        assert_eq!(bench.complete(thread, process, OpType::Ok), [""; 0]);
    }
    assert_eq!(bench.interpreter.late(), 6);
    assert_eq!(bench.interpreter.open_count(), 2);
}

#[test]
fn a_client_that_answers_nonsense_crashes() {
    let mut bench = Bench::new(reads(), &options(1));
    bench.wake();
    let steps = bench.complete(0, 0, OpType::Invoke);
    assert_eq!(
        steps,
        ["1: 0 info nil \"the client answered an invocation\""]
    );
    assert_eq!(bench.wake(), ["2: 1 invoke nil", "invoke 0 1"]);
}

#[test]
fn the_nemesis_begins_and_ends_with_info_and_never_crashes() {
    let generator = operation("kill", Value::text("n1"))
        .repeat()
        .nemesis()
        .boxed();
    let mut bench = Bench::new(generator, &options(1));
    assert_eq!(
        bench.wake(),
        ["0: :nemesis info \"n1\"", "invoke nemesis :nemesis"]
    );
    for (index, kind) in [(1, OpType::Ok), (3, OpType::Fail), (5, OpType::Info)] {
        let op = Op {
            kind,
            ..Op::invoke(Process::NEMESIS, "kill", Value::Nil)
        };
        let event = InterpreterRequest::Completed(Thread::NEMESIS, op);
        let steps = bench.turn(Input::Request(Ticket(0), event));
        assert_eq!(steps, [format!("{index}: :nemesis info nil")]);
        assert_eq!(bench.wake().len(), 2);
    }
}

#[test]
fn operations_in_the_future_wait_for_their_time() {
    let generator = operation("a", Value::Nil)
        .repeat()
        .delay(ms(7))
        .clients()
        .boxed();
    let mut bench = Bench::new(generator, &options(2));
    assert_eq!(bench.wake().len(), 2);
    assert_eq!(
        bench.interpreter.wake_at(),
        Some(Time::from_milliseconds(7))
    );
    assert_eq!(bench.at(3).wake(), [""; 0]);
    assert_eq!(bench.at(7).wake().len(), 2);
}

/// Waits for a time without saying so.
struct Later(Time, SingleOp);
impl Generator for Later {
    fn next(&mut self, context: &Context) -> Next {
        if context.time() < self.0 {
            Next::Pending
        } else {
            self.1.next(context)
        }
    }
    fn commit(&mut self) {
        self.1.commit();
    }
    fn update(&mut self, _context: &Context, _event: &Op) {}
}

#[test]
fn a_pending_generator_is_asked_again_after_a_millisecond() {
    let ready = Time::from_milliseconds(3);
    let generator = Later(ready, operation("a", Value::Nil));
    let history = Simulation::perfect(generator, 1).run().unwrap();
    assert_eq!(history.ops()[0].time, 3_000_000);
}

#[test]
fn time_outs_free_the_thread_and_late_answers_are_ignored() {
    let options = InterpreterOptions {
        operation_timeout: Some(ms(10)),
        ..options(2)
    };
    let mut bench = Bench::new(reads(), &options);
    bench.wake();
    bench.at(4).complete(0, 0, OpType::Ok);
    bench.wake();
    let steps = bench.at(10).wake();
    assert_eq!(
        steps,
        ["4: 1 info nil \"timeout\"", "5: 3 invoke nil", "invoke 1 3"]
    );
    assert_eq!(bench.at(11).complete(1, 1, OpType::Ok), [""; 0]);
    assert_eq!(bench.at(14).wake()[0], "6: 0 info nil \"timeout\"");
    assert_eq!(bench.interpreter.late(), 1);
}

#[test]
fn stop_waits_for_open_operations_and_begins_none() {
    let mut bench = Bench::new(reads(), &options(2));
    bench.wake();
    assert_eq!(bench.at(5).stop(), [""; 0]);
    assert!(bench.interpreter.is_draining());
    assert_eq!(bench.at(6).complete(0, 0, OpType::Ok), ["2: 0 ok 7"]);
    assert_eq!(bench.wake(), [""; 0], "nothing begins any more");
    assert_eq!(
        bench.at(7).complete(1, 1, OpType::Ok),
        ["3: 1 ok 7", "done"]
    );
    assert!(bench.interpreter.is_done());
    assert_eq!(bench.interpreter.wake_at(), None);
    assert_eq!(bench.wake(), [""; 0]);
    assert_eq!(bench.stop(), [""; 0]);
    assert_eq!(bench.complete(1, 1, OpType::Ok), [""; 0]);
}

#[test]
fn the_wait_has_an_end() {
    let mut bench = Bench::new(reads(), &options(2));
    bench.wake();
    bench.at(5).stop();
    assert_eq!(
        bench.interpreter.wake_at(),
        Some(Time::from_milliseconds(105))
    );
    let steps = bench.at(105).wake();
    let ended = |index, process| format!("{index}: {process} info nil \"the test ended\"");
    assert_eq!(steps, [ended(2, 0), ended(3, 1), "done".into()]);
    assert_eq!(bench.at(106).complete(1, 1, OpType::Ok), [""; 0]);
    assert_eq!(bench.interpreter.late(), 1);
}

#[test]
fn stopping_twice_waits_no_longer() {
    let mut bench = Bench::new(reads(), &options(1));
    bench.wake();
    bench.stop();
    assert_eq!(bench.stop(), ["1: 0 info nil \"the test ended\"", "done"]);
}

#[test]
fn a_test_that_is_stopped_before_it_begins_is_done() {
    let mut bench = Bench::new(reads(), &options(1));
    assert_eq!(bench.stop(), ["done"]);
}

#[test]
fn a_generator_that_ends_drains_too() {
    let generator = operation("read", Value::Nil).once().clients().boxed();
    let mut bench = Bench::new(generator, &options(1));
    assert_eq!(bench.wake().len(), 2);
    assert!(bench.interpreter.is_draining());
    assert_eq!(
        bench.at(100).wake(),
        ["1: 0 info nil \"the test ended\"", "done"]
    );
}

#[test]
fn an_end_is_noticed_while_every_thread_is_busy() {
    let generator = sequence([
        operation("read", Value::Nil)
            .repeat()
            .time_limit(ms(50))
            .clients()
            .boxed(),
        operation("kill", Value::Nil).nemesis().boxed(),
    ]);
    let client = |op: &Op| match op.process {
        Process::Client(_) => SimulatedReply::Never,
        Process::Named(_) => SimulatedReply::After(ms(1), OpType::Info, Value::Nil),
    };
    let interpreter = Interpreter::new(generator, &options(2));
    let history = Simulation::new(interpreter, client).run().unwrap();
    let kill = history.iter().find(|op| op.f == "kill").unwrap();
    assert!((50_000_000..=60_000_000).contains(&kill.time), "{kill}");
    assert_eq!(history.ops().last().unwrap().time, kill.time + 100_000_000);
}

#[test]
fn a_mistake_ends_the_test_and_keeps_the_history() {
    let wrong = operation("b", Value::Nil).map(|op| Op { time: -1, ..op });
    let generator = sequence([operation("a", Value::Nil).boxed(), wrong.boxed()])
        .clients()
        .boxed();
    let mut bench = Bench::new(generator, &options(2));
    let steps = bench.wake();
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(steps[2].starts_with("failed time goes back"), "{steps:?}");
    assert_eq!(
        bench.complete(0, 0, OpType::Ok).len() + bench.complete(1, 1, OpType::Ok).len(),
        2
    );
    assert!(bench.interpreter.is_done());
}

#[test]
fn sleeping_threads_do_not_hold_up_the_end() {
    let generator = sleep(Duration::from_secs(1_000)).repeat().clients().boxed();
    let mut bench = Bench::new(generator, &options(3));
    assert_eq!(bench.wake(), [""; 0]);
    assert_eq!(bench.at(5).stop(), ["done"]);
}

#[test]
fn time_never_goes_back() {
    let mut bench = Bench::new(reads(), &options(1));
    bench.at(50).wake();
    bench.at(20).complete(0, 0, OpType::Ok);
    let mut out = Vec::new();
    bench.interpreter.turn(Time::ZERO, Input::Wake, &mut out);
    let Output::Reply(_, InterpreterReply::Record(op)) = &out[0] else {
        panic!()
    };
    assert_eq!(op.time, 50_000_000);
}

#[test]
fn a_stalled_client_never_stops_the_others() {
    let client = |op: &Op| match op.process {
        Process::Client(0) => SimulatedReply::Never,
        _ => SimulatedReply::After(ms(1), OpType::Ok, Value::Nil),
    };
    let generator = operation("read", Value::Nil)
        .repeat()
        .limit(1_000)
        .clients();
    let history = Simulation::new(Interpreter::new(generator, &options(3)), client)
        .run()
        .unwrap();
    assert_eq!(history.len(), 2_000);
    assert_eq!(history.iter().filter(|op| op.is_ok()).count(), 999);
}

/// Any input in any state: no panic, and the end comes.
#[test]
fn turns_are_total() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let concurrency = rng.below(5) as u32;
        let mut values = rng.fork("values");
        let writes =
            function(move || Some(operation("w", Value::Int(values.below(9) as i64)))).clients();
        let parts = [
            writes.boxed(),
            sleep(ms(3)).repeat().boxed(),
            operation("x", Value::Nil).repeat().boxed(),
        ];
        let generator = if seed % 2 == 0 {
            any(rng.fork("any"), parts).boxed()
        } else {
            mix(rng.fork("mix"), parts).limit(50).boxed()
        };
        let timeout = rng.chance(0.5).then_some(ms(5));
        let options = InterpreterOptions {
            operation_timeout: timeout,
            ..options(concurrency)
        };
        let mut bench = Bench::new(generator, &options);
        for step in 0..300 {
            bench.at(rng.below(step + 1));
            let thread = if rng.chance(0.2) {
                u32::MAX
            } else {
                rng.below(6) as u32
            };
            let process = match rng.below(4) {
                0 => Process::NEMESIS,
                1 => Process::Named("other".into()),
                _ => Process::Client(rng.below(30)),
            };
            let kinds = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];
            let kind = *rng.pick(&kinds);
            let op = Op {
                kind,
                ..Op::invoke(process, "w", Value::Nil)
            };
            let _ = match rng.below(30) {
                0 if step > 200 => bench.stop(),
                1..=4 => bench.turn(Input::Appended(Ticket(step))),
                5..=17 => bench.wake(),
                _ => bench.turn(Input::Request(
                    Ticket(step),
                    InterpreterRequest::Completed(Thread(thread), op),
                )),
            };
        }
        bench.at(1_000_000).stop();
        bench.stop();
        assert!(bench.interpreter.is_done(), "seed {seed}");
        assert_eq!(bench.interpreter.open_count(), 0);
    }
}

#[test]
fn no_clients_is_a_test_of_the_nemesis() {
    let generator = operation("kill", Value::Nil).repeat_times(3);
    let history = Simulation::perfect(generator, 0).run().unwrap();
    assert_eq!(history.len(), 6);
    assert_eq!(Threads::new(0).thread_of(Process::Client(0)), None);
}
