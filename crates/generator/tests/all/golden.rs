//! What each combinator does, as a schedule: time in nanoseconds, process, operation. Clients answer after 10 ns. Where
//! Jepsen's own tests have the same case, the schedules agree in time and operation.

#![expect(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod faults;
mod further;

use expect_test::{Expect, expect};
use seatrial_generator::{
    Context, Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation, SingleOp,
    Thread, any, concurrent_keys, cycle, each_thread, flip_flop, function, function_of, log, mix,
    operation, phases, reserve, sequence, sleep,
};
use seatrial_history::{History, Key, Op, OpType, Process, Value};
use seatrial_machine::{Rng, Time};
use std::collections::BTreeMap;
use std::time::Duration;

const fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

fn rng(name: &str) -> Rng {
    Rng::from_seed(45_100).fork(name)
}

fn op(f: &'static str) -> SingleOp {
    operation(f, Value::Nil)
}

/// `f` 0, `f` 1, …
fn numbers(f: &'static str) -> impl Generator {
    sequence((0_i64..).map(move |number| operation(f, Value::Int(number))))
}

fn line(op: &Op) -> String {
    let value = if op.value == Value::Nil {
        String::new()
    } else {
        format!(" {}", op.value)
    };
    format!("{} {} {}{value}", op.time, op.process, op.f)
}

/// Two clients and the nemesis, every operation succeeds.
#[expect(clippy::needless_pass_by_value, reason = "reads better")]
fn check(generator: impl Generator, expected: Expect) {
    let history = Simulation::perfect(generator, 2)
        .run()
        .expect("no mistakes");
    expected.assert_eq(&invocations(&history));
}

/// Operations as they begin.
fn invocations(history: &History) -> String {
    let begins = |position: usize, op: &Op| {
        op.is_invoke() || history.pair(position).is_none_or(|other| other > position)
    };
    let ops = history
        .iter()
        .enumerate()
        .filter(|&(position, op)| begins(position, op));
    ops.map(|(_, op)| line(op) + "\n").collect()
}

/// All threads in turn answer fail, info, ok, …; everything is shown.
fn imperfect(generator: impl Generator) -> String {
    let mut turns: BTreeMap<u64, usize> = BTreeMap::new();
    let client = move |op: &Op| {
        let thread = match op.process {
            Process::Client(number) => number % 2,
            Process::Named(_) => 2,
        };
        let turn = turns.entry(thread).or_insert(0);
        *turn += 1;
        let kind = [OpType::Fail, OpType::Info, OpType::Ok][(*turn - 1) % 3];
        SimulatedReply::After(ns(10), kind, op.value.clone())
    };
    let options = InterpreterOptions::new(2, rng("imperfect"));
    let history = Simulation::new(Interpreter::new(generator, &options), client)
        .run()
        .expect("no mistakes");
    history
        .iter()
        .map(|op| line(op) + " " + op.kind.name() + "\n")
        .collect()
}

#[test]
fn nothing() {
    check(None::<SingleOp>, expect![[""]]);
    check(sequence(Vec::<SingleOp>::new()), expect![[""]]);
    check(any(rng("any"), Vec::<SingleOp>::new()), expect![[""]]);
    check(mix(rng("mix"), Vec::<SingleOp>::new()), expect![[""]]);
}

#[test]
fn a_template_is_one_operation() {
    check(
        operation("write", Value::Int(2)),
        expect![[r#"
        0 :nemesis write 2
    "#]],
    );
}

#[test]
fn a_template_waits_for_its_process_and_its_time() {
    let one = Process::Client(1);
    let ops = [
        op("a").by(one),
        op("b").by(one),
        op("c").at(Time::from_nanoseconds(15)),
    ];
    check(
        sequence(ops),
        expect![[r#"
        0 1 a
        10 1 b
        15 0 c
    "#]],
    );
    let recorded = Op {
        time: 7,
        ..Op::invoke(Process::NEMESIS, "kill", Value::text("n1"))
    };
    check(
        SingleOp::from(recorded),
        expect![[r#"
        7 :nemesis kill "n1"
    "#]],
    );
}

#[test]
fn repeat_never_advances() {
    check(
        op("a").repeat_times(6),
        expect![[r#"
        0 :nemesis a
        0 1 a
        0 0 a
        10 1 a
        10 :nemesis a
        10 0 a
    "#]],
    );
    check(
        numbers("a").repeat_times(3),
        expect![[r#"
        0 :nemesis a 0
        0 1 a 0
        0 0 a 0
    "#]],
    );
    check(
        op("a").repeat().limit(2),
        expect![[r#"
        0 :nemesis a
        0 1 a
    "#]],
    );
}

#[test]
fn limit_and_once() {
    check(
        numbers("a").limit(2),
        expect![[r#"
        0 :nemesis a 0
        0 1 a 1
    "#]],
    );
    check(
        numbers("a").once(),
        expect![[r#"
        0 :nemesis a 0
    "#]],
    );
    check(numbers("a").limit(0), expect![[""]]);
}

#[test]
fn sequences_nest() {
    let inner = || sequence([op("b"), op("c")]);
    check(
        sequence([op("a").boxed(), inner().boxed(), op("d").boxed()]),
        expect![[r#"
            0 :nemesis a
            0 1 b
            0 0 c
            10 1 d
        "#]],
    );
}

#[test]
fn only_the_head_of_a_sequence_learns_of_events() {
    let retry = op("read").repeat().until_ok();
    let generator = sequence([retry.boxed(), op("done").boxed()]).clients();
    expect![[r#"
        0 0 read invoke
        0 1 read invoke
        10 0 read fail
        10 1 read fail
        10 0 read invoke
        10 1 read invoke
        20 0 read info
        20 1 read info
        20 2 read invoke
        20 3 read invoke
        30 2 read ok
        30 3 read ok
        30 2 done invoke
        40 2 done fail
    "#]]
    .assert_eq(&imperfect(generator));
}

#[test]
fn delay_keeps_at_least_the_interval() {
    // Due at 9 and 12, but every thread is busy until 10.
    check(
        op("write").repeat().delay(ns(3)).limit(5),
        expect![[r#"
        0 :nemesis write
        3 1 write
        6 0 write
        10 :nemesis write
        13 1 write
    "#]],
    );
}

#[test]
fn stagger_spreads_operations() {
    check(
        numbers("a").stagger(rng("stagger"), ns(20)).limit(6),
        expect![[r#"
            0 :nemesis a 0
            13 :nemesis a 1
            42 :nemesis a 2
            69 :nemesis a 3
            90 :nemesis a 4
            118 :nemesis a 5
        "#]],
    );
}

#[test]
fn stagger_has_its_mean() {
    let generator = numbers("a").stagger(rng("stagger"), ns(20)).limit(2_000);
    let history = Simulation::perfect(generator, 4).run().unwrap();
    let mean = history.ops().last().unwrap().time as f64 / 2_000.0;
    assert!((19.0..21.0).contains(&mean), "{mean}");
}

#[test]
fn a_stagger_catches_up_after_delays() {
    // One thread that is busy for 10 ns at a time: two in five operations are due before it is free. Counted from the last
    // one they would be 14 ns apart.
    let generator = numbers("a").stagger(rng("stagger"), ns(12)).limit(4_000);
    let history = Simulation::perfect(generator, 1).run().unwrap();
    let mean = history.ops().last().unwrap().time as f64 / 4_000.0;
    assert!((11.5..12.5).contains(&mean), "{mean}");
}

/// Operations that twenty clients begin in the first 30 seconds at 2,000 a second. Each takes 2 ms, but in each of these
/// stalls (from and to, in milliseconds) all wait for its end.
fn begun_in_spite_of(stalls: &'static [(i64, i64)]) -> f64 {
    const MILLISECOND: i64 = 1_000_000;
    let interval = Duration::from_micros(500);
    let generator = numbers("a")
        .repeat()
        .clients()
        .stagger(rng("rate"), interval)
        .time_limit(Duration::from_secs(30));
    let options = InterpreterOptions::new(20, Rng::from_seed(2));
    let client = |op: &Op| {
        let now = op.time / MILLISECOND;
        let stall = stalls.iter().find(|(from, to)| (*from..*to).contains(&now));
        let end = stall.map_or(0, |(_, to)| to - now);
        let latency = Duration::from_millis(2 + end.unsigned_abs());
        SimulatedReply::After(latency, OpType::Ok, Value::Nil)
    };
    let interpreter = Interpreter::new(generator, &options);
    let history = Simulation::new(interpreter, client).run().unwrap();
    history.iter().filter(|op| op.is_invoke()).count() as f64
}

#[test]
fn a_rate_is_kept_through_stalls_of_less_than_a_second() {
    const ASKED: f64 = 30.0 * 2_000.0;
    let calm = begun_in_spite_of(&[]);
    assert!((calm / ASKED - 1.0).abs() < 0.02, "{calm}");
    let stalled = begun_in_spite_of(&[(1_000, 1_900), (5_000, 5_400), (9_000, 9_950)]);
    assert!((stalled / ASKED - 1.0).abs() < 0.02, "{stalled}");
    // Of three seconds the last is made up for.
    let long = begun_in_spite_of(&[(10_000, 13_000)]);
    assert!((long / (28.0 * 2_000.0) - 1.0).abs() < 0.02, "{long}");
}

#[test]
fn two_staggers_do_not_starve_each_other() {
    let a = op("a").repeat().stagger(rng("a"), Duration::from_secs(3));
    let b = op("b").repeat().stagger(rng("b"), Duration::from_secs(5));
    let generator = any(rng("any"), [a, b]).limit(2_000).clients();
    let history = Simulation::perfect(generator, 2).run().unwrap();
    let seconds = history.ops().last().unwrap().time as f64 / 1e9;
    let mean = |f: &str| {
        let count = history
            .iter()
            .filter(|op| op.is_invoke() && op.f == f)
            .count();
        seconds / count as f64
    };
    assert!((2.8..3.2).contains(&mean("a")), "{}", mean("a"));
    assert!((4.7..5.3).contains(&mean("b")), "{}", mean("b"));
}

#[test]
fn time_limits_begin_with_their_first_operation() {
    let a = op("a").repeat().time_limit(ns(20));
    let b = op("b").repeat().time_limit(ns(10));
    check(
        sequence([a, b]),
        expect![[r#"
        0 :nemesis a
        0 1 a
        0 0 a
        10 1 a
        10 :nemesis a
        10 0 a
        20 0 b
        20 :nemesis b
        20 1 b
    "#]],
    );
    check(op("a").repeat().time_limit(ns(0)), expect![[""]]);
}

#[test]
fn sleep_keeps_one_thread_busy() {
    let generator = sequence([sleep(ns(25)), op("a"), op("b")]).on_threads(|t| t == Thread(1));
    check(
        generator,
        expect![[r#"
        25 1 a
        35 1 b
    "#]],
    );
}

#[test]
fn log_shows_and_records_nothing() {
    let generator = phases([log("first"), op("a"), log("second"), op("b")]);
    let options = InterpreterOptions::new(2, rng("log"));
    let mut simulation = Simulation::new(Interpreter::new(generator, &options), |op: &Op| {
        SimulatedReply::After(ns(10), OpType::Ok, op.value.clone())
    });
    let mut lines = String::new();
    simulation.run_with(|op| lines += &(line(&op) + "\n"));
    for (time, message) in simulation.log() {
        lines += &(time.nanoseconds().to_string() + " " + &message.to_string() + "\n");
    }
    expect![[r#"
        0 0 a
        10 0 a
        10 0 b
        20 0 b
        0 "first"
        10 "second"
    "#]]
    .assert_eq(&lines);
}

#[test]
fn mix_is_random_and_loses_nothing() {
    check(
        mix(
            rng("mix"),
            [op("a").repeat_times(5), op("b").repeat_times(8)],
        ),
        expect![[r#"
            0 :nemesis b
            0 1 b
            0 0 a
            10 1 a
            10 :nemesis a
            10 0 b
            20 0 a
            20 :nemesis a
            20 1 b
            30 1 b
            30 0 b
            30 :nemesis b
            40 :nemesis b
        "#]],
    );
}

#[test]
fn mix_lets_another_go_when_one_must_wait() {
    let a = op("a").repeat_times(2).on_threads(|t| t == Thread(0));
    let b = op("b").repeat_times(2).on_threads(|t| t == Thread(1));
    check(
        mix(rng("mix"), [a, b]),
        expect![[r#"
        0 1 b
        0 0 a
        10 0 a
        10 1 b
    "#]],
    );
}

#[test]
fn any_takes_the_operation_that_is_due_first() {
    let on = |f, thread| {
        op(f)
            .repeat()
            .delay(ns(20))
            .on_threads(move |t| t == Thread(thread))
    };
    check(
        any(rng("any"), [on("a", 0), on("b", 1)]).limit(4),
        expect![[r#"
            0 1 b
            0 0 a
            20 1 b
            20 0 a
        "#]],
    );
}

#[test]
fn flip_flop_alternates_until_one_ends() {
    let pair = sequence([op("read"), op("finalize")]);
    check(
        flip_flop(numbers("write"), pair).limit(10).clients(),
        expect![[r#"
            0 1 write 0
            0 0 read
            10 0 write 1
            10 1 finalize
            20 0 write 2
        "#]],
    );
}

#[test]
fn clients_and_nemesis_keep_to_their_threads() {
    let generator = [
        op("kill").repeat_times(2).nemesis().boxed(),
        numbers("a").clients().boxed(),
    ];
    check(
        any(rng("any"), generator).limit(7),
        expect![[r#"
            0 1 a 0
            0 0 a 1
            0 :nemesis kill
            10 0 a 2
            10 :nemesis kill
            10 1 a 3
            20 0 a 4
        "#]],
    );
}

#[test]
fn reserve_divides_the_threads() {
    let ranges = [(1, numbers("a").boxed()), (1, numbers("b").boxed())];
    check(
        reserve(rng("reserve"), ranges, numbers("c").boxed()).limit(9),
        expect![[r#"
            0 1 b 0
            0 :nemesis c 0
            0 0 a 0
            10 1 b 1
            10 0 a 1
            10 :nemesis c 1
            20 0 a 2
            20 1 b 2
            20 :nemesis c 2
        "#]],
    );
}

#[test]
fn reserve_without_ranges_is_its_default() {
    let ranges: [(u32, Box<dyn Generator>); 0] = [];
    check(
        reserve(rng("reserve"), ranges, numbers("c").boxed()).limit(3),
        expect![[r#"
            0 :nemesis c 0
            0 1 c 1
            0 0 c 2
        "#]],
    );
}

#[test]
fn reserve_says_that_threads_are_missing() {
    let generator = reserve(rng("reserve"), [(3, numbers("a"))], numbers("a"));
    let failure = Simulation::perfect(generator, 2).run().unwrap_err();
    expect![[r#"
        invalid generator: reserve needs 3 threads and one more for its default, found 3
        generator:
        reserve [3]
          sequence, now in
            a 0
          sequence, now in
            a 0"#]]
    .assert_eq(&failure.to_string());
}

#[test]
fn phases_and_then_wait_for_everybody() {
    let generator = phases([
        op("a").repeat_times(2),
        op("b").repeat_times(1),
        op("c").repeat_times(3),
    ]);
    check(
        generator.clients(),
        expect![[r#"
        0 1 a
        0 0 a
        10 0 b
        20 1 c
        20 0 c
        30 1 c
    "#]],
    );
    check(
        op("a")
            .repeat_times(3)
            .then(op("b").repeat_times(2))
            .clients(),
        expect![[r#"
            0 1 a
            0 0 a
            10 0 a
            20 1 b
            20 0 b
        "#]],
    );
}

#[test]
fn synchronize_waits_once() {
    let generator = sequence([op("a").boxed(), numbers("b").limit(5).synchronize().boxed()]);
    check(
        generator,
        expect![[r#"
        0 :nemesis a
        10 :nemesis b 0
        10 1 b 1
        10 0 b 2
        20 1 b 3
        20 :nemesis b 4
    "#]],
    );
}

#[test]
fn each_thread_has_its_own_generator() {
    let generator = each_thread(|thread| {
        let value = Value::text(thread.to_string());
        sequence([operation("a", value.clone()), operation("b", value)])
    });
    check(
        generator,
        expect![[r#"
        0 :nemesis a "nemesis"
        0 1 a "1"
        0 0 a "0"
        10 1 b "1"
        10 :nemesis b "nemesis"
        10 0 b "0"
    "#]],
    );
    check(each_thread(|_| op("a").repeat_times(0)), expect![[""]]);
}

#[test]
fn until_ok_ends_with_the_first_success() {
    let generator = op("read").repeat().until_ok().limit(10).clients();
    expect![[r#"
        0 0 read invoke
        0 1 read invoke
        10 0 read fail
        10 1 read fail
        10 0 read invoke
        10 1 read invoke
        20 0 read info
        20 1 read info
        20 2 read invoke
        20 3 read invoke
        30 2 read ok
        30 3 read ok
    "#]]
    .assert_eq(&imperfect(generator));
}

#[test]
fn map_and_filter() {
    let doubled = numbers("a").map(|op| match op.value {
        Value::Int(number) => Op {
            value: Value::Int(number * 2),
            ..op
        },
        _ => op,
    });
    check(
        doubled.limit(3),
        expect![[r#"
        0 :nemesis a 0
        0 1 a 2
        0 0 a 4
    "#]],
    );
    let even = numbers("a")
        .limit(10)
        .filter(|op| op.value.as_int().unwrap_or(1) % 2 == 0);
    check(
        even,
        expect![[r#"
        0 :nemesis a 0
        0 1 a 2
        0 0 a 4
        10 1 a 6
        10 :nemesis a 8
    "#]],
    );
    let failure = Simulation::perfect(numbers("a").filter(|_| false), 2)
        .run()
        .unwrap_err();
    expect![[r#"
        invalid generator: a filter dropped 10000 operations in a row
        generator:
        filter
          sequence, now in
            a 9999"#]]
    .assert_eq(&failure.to_string());
}

#[test]
fn process_limit_counts_who_could_take_part() {
    let crashing = |generator: Box<dyn Generator>| {
        let options = InterpreterOptions::new(2, rng("crash"));
        let client = |op: &Op| SimulatedReply::After(ns(10), OpType::Info, op.value.clone());
        Simulation::new(Interpreter::new(generator, &options), client)
            .run()
            .unwrap()
    };
    let history = crashing(numbers("a").process_limit(5).clients().boxed());
    expect![[r#"
        0 0 a 0
        0 1 a 1
        10 3 a 2
        10 2 a 3
    "#]]
    .assert_eq(&invocations(&history));
    let history = crashing(numbers("a").process_limit(1).clients().boxed());
    expect![[r#"
        0 0 a 0
    "#]]
    .assert_eq(&invocations(&history));
}

#[test]
fn functions_make_generators() {
    let mut stream = rng("values");
    let random = move || Some(operation("write", Value::Int(stream.below(10) as i64)));
    check(
        function(random).limit(4),
        expect![[r#"
        0 :nemesis write 3
        0 1 write 9
        0 0 write 1
        10 1 write 0
    "#]],
    );
    let mut count = 0;
    let thrice = move || {
        count += 1;
        (count <= 3).then(|| sequence([operation("a", Value::Int(count)), op("b")]))
    };
    check(
        function(thrice),
        expect![[r#"
        0 :nemesis a 1
        0 1 b
        0 0 a 2
        10 1 b
        10 :nemesis a 3
        10 0 b
    "#]],
    );
    let at = |context: &Context| {
        Some(operation(
            "at",
            Value::Int(context.time().nanoseconds() as i64),
        ))
    };
    check(
        function_of(at).delay(ns(10)).limit(3),
        expect![[r#"
        0 :nemesis at 0
        10 :nemesis at 0
        20 :nemesis at 10
    "#]],
    );
    let failure = Simulation::perfect(function(|| Some(None::<SingleOp>)), 2)
        .run()
        .unwrap_err();
    expect![[r#"
        invalid generator: a function returned 10000 empty generators in a row
        generator:
        function
          nothing"#]]
    .assert_eq(&failure.to_string());
}

#[test]
fn cycle_starts_again() {
    let round = || phases([op("a").repeat_times(3), op("b").repeat_times(1)]);
    check(
        cycle(2, round).clients(),
        expect![[r#"
        0 1 a
        0 0 a
        10 0 a
        20 1 b
        30 0 a
        30 1 a
        40 0 a
        50 0 b
    "#]],
    );
}

#[test]
fn concurrent_keys_take_turns() {
    let keys = (0..4).map(Key::Int);
    let generator = concurrent_keys(2, keys, |_| numbers("a").limit(3));
    let history = Simulation::perfect(generator, 5).run().unwrap();
    expect![[r#"
        0 4 a [0 0]
        0 0 a [1 0]
        0 2 a [2 0]
        0 3 a [2 1]
        0 1 a [1 1]
        10 3 a [2 2]
        10 0 a [1 2]
        10 2 a [3 0]
        10 4 a [0 1]
        20 4 a [0 2]
        20 2 a [3 1]
        20 3 a [3 2]
    "#]]
    .assert_eq(&invocations(&history));
}

#[test]
fn a_key_sees_its_own_events_without_the_key() {
    let keys = (0..2).map(Key::Int);
    let generator = concurrent_keys(1, keys, |_| numbers("a").until_ok());
    expect![[r#"
        0 0 a [0 0] invoke
        0 1 a [1 0] invoke
        10 0 a [0 0] fail
        10 1 a [1 0] fail
        10 0 a [0 1] invoke
        10 1 a [1 1] invoke
        20 0 a [0 1] info
        20 1 a [1 1] info
        20 2 a [0 2] invoke
        20 3 a [1 2] invoke
        30 2 a [0 2] ok
        30 3 a [1 2] ok
    "#]]
    .assert_eq(&imperfect(generator));
}

/// The message about the first mistake of a generator.
fn mistake(generator: impl Generator) -> String {
    let failure = Simulation::perfect(generator, 2)
        .run()
        .expect_err("a mistake");
    failure.to_string() + "\n"
}

#[test]
fn mistakes_are_shown_with_the_generator() {
    let wrong = |change: fn(Op) -> Op| mistake(numbers("a").map(change).limit(3).clients());
    let unknown = wrong(|op| Op {
        process: Process::Client(9),
        ..op
    });
    let foreign = wrong(|op| Op {
        process: Process::NEMESIS,
        ..op
    });
    let past = wrong(|op| Op { time: -5, ..op });
    let completion = wrong(|op| Op {
        kind: OpType::Ok,
        ..op
    });
    expect![[r#"
        invalid generator: process 9 is not running: thread 1 runs process 1
        operation: {:index 0, :time 0, :type :invoke, :process 9, :f :a, :value 0}
        generator:
        clients
          limit, 3 more
            map
              sequence, now in
                a 0
        invalid generator: a nemesis operation must begin as info, found invoke
        operation: {:index 0, :time 0, :type :invoke, :process :nemesis, :f :a, :value 0}
        generator:
        clients
          limit, 3 more
            map
              sequence, now in
                a 0
        invalid generator: time goes back: the operation is at -5 ns, now is 0 ns
        operation: {:index 0, :time -5, :type :invoke, :process 1, :f :a, :value 0}
        generator:
        clients
          limit, 3 more
            map
              sequence, now in
                a 0
        invalid generator: a client operation must begin as invoke, found ok
        operation: {:index 0, :time 0, :type :ok, :process 1, :f :a, :value 0}
        generator:
        clients
          limit, 3 more
            map
              sequence, now in
                a 0
    "#]]
    .assert_eq(&(unknown + &foreign + &past + &completion));
}

#[test]
fn busy_threads_and_threads_of_others_are_mistakes() {
    let zero = |op| Op {
        process: Process::Client(0),
        kind: OpType::Invoke,
        ..op
    };
    let busy = mistake(numbers("a").map(zero));
    let nemesis = |op| Op {
        process: Process::NEMESIS,
        ..op
    };
    let foreign = mistake(numbers("a").map(nemesis).validate().clients().limit(1));
    expect![[r#"
        invalid generator: thread 0 is busy
        operation: {:index 0, :time 0, :type :invoke, :process 0, :f :a, :value 1}
        generator:
        map
          sequence, now in
            a 1
        invalid generator: thread nemesis does not belong to this generator
        operation: {:index 0, :time 0, :type :invoke, :process :nemesis, :f :a, :value 0}
        generator:
        map
          sequence, now in
            a 0
    "#]]
    .assert_eq(&(busy + &foreign));
}
