//! Schedules of the combinators that are needed less often.

use super::{check, imperfect, mistake, ns, numbers, op, rng};
use expect_test::expect;
use seatrial_generator::{
    Context, Generator, Simulation, SingleOp, any, cycle_times, each_process, function,
    function_of, operation, promise, sequence, sequential_keys, shortest_any,
};
use seatrial_history::{Key, Value};
use seatrial_machine::Time;
use std::time::Duration;

#[test]
fn shortest_any_ends_with_the_first_that_ends() {
    let short = numbers("short").limit(2).delay(ns(15));
    let long = numbers("long").limit(9).delay(ns(10));
    check(
        shortest_any(rng("shortest"), [short.boxed(), long.boxed()]),
        expect![[r#"
            0 :nemesis short 0
            0 1 long 0
            10 0 long 1
            15 1 short 1
        "#]],
    );
}

#[test]
fn cycle_times_rotates_by_the_clock_and_keeps_states() {
    let writes = numbers("write").delay(ns(10)).boxed();
    let reads = numbers("read").delay(ns(20)).boxed();
    check(
        cycle_times([(ns(30), writes), (ns(50), reads)]).limit(14),
        expect![[r#"
            0 :nemesis write 0
            10 :nemesis write 1
            20 :nemesis write 2
            30 :nemesis read 0
            50 :nemesis read 1
            70 :nemesis read 2
            80 :nemesis write 3
            90 :nemesis write 4
            100 :nemesis write 5
            110 :nemesis read 3
            130 :nemesis read 4
            150 :nemesis read 5
            160 :nemesis write 6
            170 :nemesis write 7
        "#]],
    );
    let ends = cycle_times([
        (ns(10), numbers("a").delay(ns(4)).boxed()),
        (ns(10), numbers("b").limit(2).delay(ns(4)).boxed()),
    ]);
    check(
        ends,
        expect![[r#"
        0 :nemesis a 0
        4 1 a 1
        8 0 a 2
        10 :nemesis b 0
        14 1 b 1
    "#]],
    );
    check(
        cycle_times([(ns(0), numbers("never")), (ns(5), numbers("a"))]).limit(2),
        expect![[r#"
            0 :nemesis a 0
            0 1 a 1
        "#]],
    );
    check(
        cycle_times(Vec::<(Duration, SingleOp)>::new()),
        expect![[""]],
    );
}

#[test]
fn delay_til_aligns_operations() {
    check(
        numbers("a").delay_til(ns(100)).limit(7),
        expect![[r#"
        0 :nemesis a 0
        0 1 a 1
        0 0 a 2
        100 1 a 3
        100 :nemesis a 4
        100 0 a 5
        200 0 a 6
    "#]],
    );
}

#[test]
fn cache_answers_the_same_until_it_is_old() {
    let mut asked = 0;
    let slow = function_of(move |context: &Context| {
        asked += 1;
        let time = Time::from_nanoseconds(context.time().nanoseconds() + 30);
        Some(operation("a", Value::Int(asked)).at(time))
    });
    check(
        slow.cache(ns(50)).limit(3),
        expect![[r#"
        30 :nemesis a 1
        60 1 a 2
        90 0 a 3
    "#]],
    );
}

#[test]
fn concurrency_limit_leaves_the_rest_waiting() {
    check(
        any(
            rng("concurrency"),
            [
                numbers("few").concurrency_limit(1).limit(3).boxed(),
                numbers("many").limit(4).boxed(),
            ],
        ),
        expect![[r#"
            0 :nemesis many 0
            0 1 few 0
            0 0 many 1
            10 1 many 2
            10 :nemesis many 3
            10 0 few 1
            20 0 few 2
        "#]],
    );
    check(numbers("none").concurrency_limit(0), expect![[""]]);
}

#[test]
fn f_map_renames() {
    let ops = sequence([op("start"), op("stop"), op("other")]);
    check(
        ops.f_map([("start", "kill"), ("stop", "restart")]),
        expect![[r#"
            0 :nemesis kill
            0 1 restart
            0 0 other
        "#]],
    );
}

#[test]
fn on_update_reacts_to_events() {
    let reads = numbers("read").boxed();
    let reacting = reads.on_update(|generator, context, event| {
        if event.is_ok() && event.value == Value::Int(2) {
            *generator = operation("saw", event.value.clone()).boxed();
        } else {
            generator.update(context, event);
        }
    });
    check(
        reacting.clients(),
        expect![[r#"
        0 1 read 0
        0 0 read 1
        10 0 read 2
        10 1 read 3
        20 0 saw 2
    "#]],
    );
}

#[test]
fn trace_shows_answers_and_events() {
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = lines.clone();
    let traced = numbers("a").limit(1).trace(move |context, what| {
        let line = format!("{} {what}", context.time().nanoseconds());
        let mut kept = kept.lock().unwrap();
        if kept.last() != Some(&line) {
            kept.push(line);
        }
    });
    Simulation::perfect(traced, 1).run().unwrap();
    expect![[r#"
        0 answered {:index 0, :time 0, :type :info, :process :nemesis, :f :a, :value 0}
        0 received {:index 0, :time 0, :type :info, :process :nemesis, :f :a, :value 0}
        0 answered exhausted
        10 received {:index 1, :time 10, :type :info, :process :nemesis, :f :a, :value 0}
    "#]]
    .assert_eq(&(lines.lock().unwrap().join("\n") + "\n"));
}

#[test]
fn friendly_exceptions_show_generator_and_context() {
    let broken = function(|| -> Option<SingleOp> { panic!("no values left") });
    let text = mistake(broken.friendly_exceptions());
    expect![[r#"
        invalid generator: panic in next: no values left (at 0 ns, 3 of 3 threads free)
        generator:
        function
    "#]]
    .assert_eq(&text);
    let broken = numbers("a").on_update(|_, _, event| panic!("cannot bear {}", event.f));
    let text = mistake(broken.friendly_exceptions());
    expect![[r#"
        invalid generator: panic in update: cannot bear a (at 0 ns, 2 of 3 threads free)
        generator:
        on-update
          sequence, now in
            a 0
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_promise_is_pending_until_it_is_kept() {
    let (given, promised) = promise();
    let mut given = Some(given);
    let numbers = numbers("before").limit(3).map(move |op| {
        if op.value == Value::Int(2)
            && let Some(given) = given.take()
        {
            given.deliver(sequence([operation("promised", Value::Int(7))]));
        }
        op
    });
    check(
        any(rng("promise"), [numbers.boxed(), promised.boxed()]),
        expect![[r#"
            0 :nemesis before 0
            0 1 before 1
            0 0 before 2
            10 1 promised 7
        "#]],
    );
    let (given, promised) = promise::<SingleOp>();
    drop(given);
    check(promised, expect![[""]]);
}

#[test]
fn each_process_begins_anew_after_a_crash() {
    let ops = each_process(|process| {
        sequence(
            (0..2).map(move |number| operation("a", Value::text(format!("{process}-{number}")))),
        )
    });
    expect![[r#"
        0 0 a "0-0" invoke
        0 1 a "1-0" invoke
        10 0 a "0-0" fail
        10 1 a "1-0" fail
        10 0 a "0-1" invoke
        10 1 a "1-1" invoke
        20 0 a "0-1" info
        20 1 a "1-1" info
        20 2 a "2-0" invoke
        20 3 a "3-0" invoke
        30 2 a "2-0" ok
        30 3 a "3-0" ok
        30 2 a "2-1" invoke
        30 3 a "3-1" invoke
        40 2 a "2-1" fail
        40 3 a "3-1" fail
    "#]]
    .assert_eq(&imperfect(ops.clients().limit(8)));
    check(
        each_process(|_| numbers("a").limit(2)),
        expect![[r#"
        0 :nemesis a 0
        0 1 a 0
        0 0 a 0
        10 1 a 1
        10 :nemesis a 1
        10 0 a 1
    "#]],
    );
}

#[test]
fn sequential_keys_follow_one_another() {
    let ops = sequential_keys((1..=3).map(Key::Int), |key| {
        let name = if *key == Key::Int(2) { "write" } else { "read" };
        numbers(name).limit(2)
    });
    check(
        ops,
        expect![[r#"
        0 :nemesis read [1 0]
        0 1 read [1 1]
        0 0 write [2 0]
        10 1 write [2 1]
        10 :nemesis read [3 0]
        10 0 read [3 1]
    "#]],
    );
    let empty = sequential_keys((0..).map(Key::Int), |_| None::<SingleOp>);
    assert!(mistake(empty).contains("10000 keys in a row had no operation"));
}
