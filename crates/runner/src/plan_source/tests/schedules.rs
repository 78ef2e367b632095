//! Each word of a plan does what the combinator of that name does: the same schedule, to the nanosecond.

use super::{built, environment, plan, rng, root, same, schedule};
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{
    FaultOptions, FaultOrder, FaultTarget, Generator, KeyDistribution, SingleOp, TestPhasesOptions,
    any, concurrent_keys, cycle, cycle_times, each_process, each_thread, fault_operation,
    fault_package, flip_flop, log, mix, operation, phases, reserve, sequence, sequential_keys,
    shortest_any, sleep, test_phases, weighted_mix,
};
use seatrial_history::{Key, Process, Value};
use seatrial_machine::{Fault, FaultKind, NodeId, Time};
use seatrial_plan::{KINDS, MODIFIERS};
use std::time::Duration;

const fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

fn op(f: &'static str) -> SingleOp {
    operation(f, Value::Nil)
}

/// `f` 1, `f` 2, …: what `counter = true` counts.
fn numbers(f: &'static str) -> impl Generator {
    sequence((1_i64..).map(move |number| operation(f, Value::Int(number))))
}

/// The same in a plan.
fn counted(f: &str) -> String {
    format!("f = '{f}', value = {{ counter = true }}, repeat = true")
}

fn package(
    kinds: &[FaultKind],
    interval: Duration,
    place: &seatrial_machine::Rng,
) -> seatrial_generator::FaultPackage {
    let (servers, clients) = (environment().servers, environment().clients);
    let options = FaultOptions::new(kinds, servers, clients, interval);
    fault_package(options, place.fork("faults"))
}

#[test]
fn operations() {
    same("f = 'read'", op("read").clients());
    same(
        "f = 'write'\nvalue = 3",
        operation("write", Value::Int(3)).clients(),
    );
    same(
        "f = 'write'\nprocess = 1\nat = '15ns'\nvalue = 'x'\nfields = { abort = true, why = 'a test' }",
        operation("write", Value::text("x"))
            .by(Process::Client(1))
            .at(Time::from_nanoseconds(15))
            .with("abort", Value::Bool(true))
            .with("why", Value::text("a test"))
            .clients(),
    );
    let keyed = Value::Keyed(Key::Int(4), Value::Cas(1, 2).into());
    same(
        "f = 'cas'\nkey = 4\nvalue = { cas = [1, 2] }",
        operation("cas", keyed).clients(),
    );
}

#[test]
fn sequences() {
    same(
        "sequence = [{ f = 'a' }, { sequence = [{ f = 'b' }, { f = 'c' }] }, { nothing = true }, { f = 'd' }]",
        sequence([op("a"), op("b"), op("c"), op("d")]).clients(),
    );
    same(
        &format!(
            "[[phases]]\n f = 'a'\n repeat = 5\n[[phases]]\n of = {{ {} }}\n limit = 4",
            counted("b")
        ),
        phases([
            op("a").repeat_times(5).boxed(),
            numbers("b").limit(4).boxed(),
        ])
        .clients(),
    );
    same(
        "sequence = [{ f = 'a' }, { f = 'b', synchronize = true }]",
        op("a").then(op("b")).clients(),
    );
}

#[test]
fn repetitions() {
    same("f = 'a'\nrepeat = 7", op("a").repeat_times(7).clients());
    same(
        "f = 'a'\nrepeat = true\nlimit = 7",
        op("a").repeat().limit(7).clients(),
    );
    same("f = 'a'\nrepeat = false", op("a").clients());
    same(
        "f = 'a'\nrepeat = true\nonce = true",
        op("a").repeat().once().clients(),
    );
    // The state of a node does not advance, but an operation is drawn anew.
    let first = || sequence([operation("a", Value::Int(1)), op("b")]);
    same(
        "sequence = [{ f = 'a', value = { counter = true } }, { f = 'b' }]\nrepeat = 4",
        first().repeat_times(4).clients(),
    );
    same(
        "sequence = [{ f = 'a', value = { counter = true } }, { f = 'b' }]\nrepeat = true\nlimit = 4",
        first().repeat().limit(4).clients(),
    );
    same(
        "sequence = [{ f = 'a', value = { counter = true } }, { f = 'b' }]\ncycle = 4",
        cycle(4, first).clients(),
    );
    same(
        "sequence = [{ f = 'a', value = { counter = true } }, { f = 'b' }]\ncycle = true\nlimit = 9",
        cycle(9, first).limit(9).clients(),
    );
    same(
        &format!("{}\nlimit = 5", counted("a").replace(", ", "\n")),
        numbers("a").limit(5).clients(),
    );
}

#[test]
fn choices() {
    let (a, b) = (counted("a"), counted("b"));
    same(
        &format!("mix = [{{ {a} }}, {{ {b} }}]\nlimit = 50"),
        mix(
            root().fork("mix"),
            [numbers("a").boxed(), numbers("b").boxed()],
        )
        .limit(50)
        .clients(),
    );
    same(
        &format!("mix = [{{ weight = 70, {a} }}, {{ weight = 30, {b} }}]\nlimit = 50"),
        weighted_mix(
            root().fork("mix"),
            [(70, numbers("a").boxed()), (30, numbers("b").boxed())],
        )
        .limit(50)
        .clients(),
    );
    same(
        &format!("any = [{{ {a}, delay = '7ns' }}, {{ {b}, delay = '11ns' }}]\nlimit = 50"),
        any(
            root().fork("any"),
            [
                numbers("a").delay(ns(7)).boxed(),
                numbers("b").delay(ns(11)).boxed(),
            ],
        )
        .limit(50)
        .clients(),
    );
    same(
        &format!("shortest_any = [{{ {a}, limit = 6 }}, {{ {b} }}]"),
        shortest_any(
            root().fork("any"),
            [numbers("a").limit(6).boxed(), numbers("b").boxed()],
        )
        .clients(),
    );
    same(
        &format!("flip_flop = [{{ {a} }}, {{ {b}, limit = 5 }}]"),
        flip_flop(numbers("a"), numbers("b").limit(5)).clients(),
    );
}

#[test]
fn weights_are_kept() {
    let plan = "mix = [{ weight = 70, f = 'a', repeat = true }, { weight = 30, f = 'b', repeat = true }]\nlimit = 10_000";
    let lines = schedule(built(plan));
    let of = |f: &str| {
        lines
            .iter()
            .filter(|line| line.contains("invoke") && line.contains(f))
            .count()
    };
    let (a, b) = (of(" a "), of(" b "));
    assert_eq!(a + b, 10_000);
    assert!((6_800..7_200).contains(&a), "{a}");
    // One that has ended leaves its share to the others.
    let plan = "mix = [{ weight = 9, f = 'a', repeat = 5 }, { weight = 1, f = 'b', repeat = 5 }]";
    assert_eq!(
        schedule(built(plan))
            .iter()
            .filter(|line| line.contains("invoke"))
            .count(),
        10
    );
}

#[test]
fn threads() {
    let (a, b) = (counted("a"), counted("b"));
    same(
        &format!("reserve = [{{ threads = 1, {a} }}]\ndefault = {{ {b} }}\nlimit = 30"),
        reserve(
            root().fork("reserve"),
            [(1, numbers("a").boxed())],
            numbers("b").boxed(),
        )
        .limit(30)
        .clients(),
    );
    same(
        &format!("each_thread = {{ {a}, limit = 4 }}"),
        each_thread(|_| numbers("a").limit(4)).clients(),
    );
    same(
        &format!("each_process = {{ {a}, limit = 4 }}\nlimit = 40"),
        each_process(|_| numbers("a").limit(4)).limit(40).clients(),
    );
    same(
        &format!("of = {{ {a} }}\non = [1, 2]\nlimit = 20"),
        numbers("a")
            .limit(20)
            .on_threads(|thread| thread.0 == 1 || thread.0 == 2),
    );
    same(
        "f = 'a'\nrepeat = 9\non = 'clients'",
        op("a").repeat_times(9).clients(),
    );
    same("f = 'kill'\non = 'nemesis'", op("kill").nemesis());
    same(
        "process_limit = 5\nf = 'a'\nrepeat = true",
        op("a").repeat().process_limit(5).clients(),
    );
    same(
        "concurrency_limit = 2\nf = 'a'\nrepeat = true\nlimit = 20",
        op("a").repeat().concurrency_limit(2).limit(20).clients(),
    );
}

#[test]
fn times() {
    let a = counted("a").replace(", ", "\n");
    same(
        &format!("{a}\nstagger = '5ns'\nlimit = 30"),
        numbers("a")
            .limit(30)
            .stagger(root().fork("stagger"), ns(5))
            .clients(),
    );
    same(
        &format!("{a}\nrate = 1_000_000\nlimit = 30"),
        numbers("a")
            .limit(30)
            .stagger(root().fork("stagger"), ns(1_000))
            .clients(),
    );
    same(
        &format!("{a}\ndelay = '30ns'\nlimit = 9"),
        numbers("a").limit(9).delay(ns(30)).clients(),
    );
    same(
        &format!("{a}\ndelay_til = '25ns'\nlimit = 9"),
        numbers("a").limit(9).delay_til(ns(25)).clients(),
    );
    same(
        &format!("{a}\ntime_limit = '95ns'"),
        numbers("a").time_limit(ns(95)).clients(),
    );
    same(
        "phases = [{ f = 'a' }, { sleep = '40ns' }, { log = 'so far' }, { f = 'b' }]",
        phases([
            op("a").clients().boxed(),
            sleep(ns(40)).boxed(),
            log("so far").boxed(),
            op("b").clients().boxed(),
        ]),
    );
    let (a, b) = (counted("a"), counted("b"));
    same(
        &format!("cycle_times = [{{ for = '50ns', {a} }}, {{ for = '30ns', {b} }}]\nlimit = 40"),
        cycle_times([
            (ns(50), numbers("a").boxed()),
            (ns(30), numbers("b").boxed()),
        ])
        .limit(40)
        .clients(),
    );
}

#[test]
fn sieves() {
    let (a, b) = (counted("a"), counted("b"));
    same(
        &format!("mix = [{{ {a} }}, {{ {b} }}]\nf_map = {{ a = 'c' }}\nlimit = 20"),
        mix(
            root().fork("mix"),
            [numbers("c").boxed(), numbers("b").boxed()],
        )
        .limit(20)
        .clients(),
    );
    let mixed = || {
        mix(
            root().fork("mix"),
            [numbers("a").boxed(), numbers("b").boxed()],
        )
    };
    same(
        &format!("mix = [{{ {a} }}, {{ {b} }}]\nonly = ['a']\nlimit = 20"),
        mixed().filter(|op| op.f == "a").limit(20).clients(),
    );
    same(
        &format!("mix = [{{ {a} }}, {{ {b} }}]\nexcept = ['a']\nlimit = 20"),
        mixed().filter(|op| op.f != "a").limit(20).clients(),
    );
    same(
        "f = 'a'\nrepeat = true\nuntil_ok = true",
        op("a").repeat().until_ok().clients(),
    );
}

#[test]
fn independent_keys() {
    let a = counted("a");
    same(
        &format!("sequential_keys = {{ {a}, limit = 5 }}\nkeys = 3"),
        sequential_keys((0..3).map(Key::Int), |_| numbers("a").limit(5)).clients(),
    );
    same(
        &format!("sequential_keys = {{ {a}, limit = 5 }}\nkeys = ['x', 7]"),
        sequential_keys([Key::Text("x".into()), Key::Int(7)], |_| {
            numbers("a").limit(5)
        })
        .clients(),
    );
    same(
        &format!(
            "concurrent_keys = {{ {a}, limit = 5 }}\nkeys = {{ from = 10, to = 13 }}\nthreads_per_key = 2"
        ),
        concurrent_keys(2, (10..=13).map(Key::Int), |_| numbers("a").limit(5)),
    );
    same(
        &format!("concurrent_keys = {{ {a}, limit = 5 }}\nthreads_per_key = 1\nlimit = 60"),
        concurrent_keys(1, (0..).map(Key::Int), |_| numbers("a").limit(5)).limit(60),
    );
}

#[test]
fn faults() {
    let a = counted("a");
    let kill = || fault_operation(&Fault::Kill(NodeId::server(2)));
    let restart = || fault_operation(&Fault::Restart(NodeId::server(2)));
    let heal = || package(&[FaultKind::Kill], ns(1), &rng()).healing.nemesis();
    same(
        &format!(
            "any = [{{ {a}, limit = 20 }}, {{ sequence = [{{ fault = 'kill', node = 'n2' }}, {{ fault = 'restart', node = 'n2' }}], delay = '40ns' }}]"
        ),
        phases([
            any(
                root().fork("any"),
                [
                    numbers("a").limit(20).clients().boxed(),
                    sequence([kill(), restart()])
                        .delay(ns(40))
                        .nemesis()
                        .boxed(),
                ],
            )
            .boxed(),
            heal().boxed(),
        ]),
    );
    // Faults alone know no end and mend nothing by themselves; a plan always does.
    let kinds = [FaultKind::Kill, FaultKind::Partition];
    same(
        "faults = { kinds = ['kill', 'partition'], interval = '10ms' }\nlimit = 6",
        phases([
            package(&kinds, Duration::from_millis(10), &root())
                .faults
                .limit(6)
                .nemesis()
                .boxed(),
            package(&kinds, ns(1), &root()).healing.nemesis().boxed(),
        ]),
    );
    let cuts = vec![FaultTarget::Bridge, FaultTarget::Halves];
    for (order, name) in [
        (FaultOrder::Interval, "interval"),
        (FaultOrder::OneAtATime, "one-at-a-time"),
    ] {
        let (servers, clients) = (environment().servers, environment().clients);
        let options = FaultOptions {
            order,
            targets: [
                (FaultKind::Kill, vec![FaultTarget::Majority]),
                (FaultKind::Partition, cuts.clone()),
            ]
            .into(),
            ..FaultOptions::new(kinds, servers, clients, Duration::from_millis(10))
        };
        let faults = fault_package(options, root().fork("faults")).faults;
        same(
            &format!(
                "faults = {{ kinds = ['kill:majority', 'partition:bridge+halves'], interval = '10ms', schedule = '{name}' }}\nlimit = 8",
            ),
            phases([
                faults.limit(8).nemesis().boxed(),
                package(&kinds, ns(1), &root()).healing.nemesis().boxed(),
            ]),
        );
    }
    same(
        "heal = ['pause']",
        package(&[FaultKind::Pause], ns(1), &root())
            .healing
            .nemesis(),
    );
}

#[test]
fn faults_beside_a_node() {
    let a = counted("a");
    let kinds = [FaultKind::Kill, FaultKind::Partition];
    let options = TestPhasesOptions {
        duration: Duration::MAX,
        recovery: Duration::ZERO,
    };
    same(
        &format!(
            "faults = {{ kinds = ['kill', 'partition'], interval = '20ms' }}\nof = {{ {a}, stagger = '1ms', limit = 300 }}"
        ),
        test_phases(
            numbers("a")
                .limit(300)
                .stagger(root().fork("0").fork("stagger"), Duration::from_millis(1)),
            Some(package(&kinds, Duration::from_millis(20), &root())),
            options,
        ),
    );
    let options = TestPhasesOptions {
        duration: Duration::from_millis(100),
        recovery: Duration::from_millis(50),
    };
    same(
        &format!(
            "of = {{ {a}, stagger = '1ms' }}\nfaults = {{ kinds = ['kill'], interval = '20ms', for = '100ms', recovery = '50ms' }}"
        ),
        test_phases(
            numbers("a").stagger(root().fork("0").fork("stagger"), Duration::from_millis(1)),
            Some(package(
                &[FaultKind::Kill],
                Duration::from_millis(20),
                &root(),
            )),
            options,
        ),
    );
}

#[test]
fn single_faults_say_what_they_break() {
    let lines = schedule(built(
        "sequence = [
            { fault = 'pause', node = 'n1' }, { fault = 'resume', node = 'n1' },
            { fault = 'cut', links = [['n1', 'n2'], ['c0', 'n1']] }, { fault = 'heal' },
            { fault = 'reset', links = [['n1', 'n2']] },
            { fault = 'slow', links = [['n1', 'n2']], latency = '20ms', jitter = '5ms' },
            { fault = 'skew', node = 'n3', offset_ms = -1500, rate_ppm = 10 },
            { fault = 'bit-rot', node = 'n3', bits = 4 },
        ]",
    ));
    let begun: Vec<&str> = lines
        .iter()
        .step_by(2)
        .take(8)
        .filter_map(|line| line.split_once(":nemesis info "))
        .map(|(_, rest)| rest)
        .collect();
    assert_eq!(
        begun,
        [
            r#"pause "n1""#,
            r#"resume "n1""#,
            r#"cut [["n1" "n2"] ["c0" "n1"]]"#,
            "heal nil",
            r#"reset [["n1" "n2"]]"#,
            r#"slow {:links [["n1" "n2"]], :delay-ns 20000000, :jitter-ns 5000000}"#,
            r#"skew {:node "n3", :offset-ns -1500000000, :rate-ppm 10}"#,
            r#"bit-rot {:node "n3", :bits 4}"#,
        ]
    );
}

#[test]
fn named_workloads() {
    for name in ["bank", "counter", "total-queue", "list-append", "register"] {
        let made = super::workload(name, &root().fork("workload"));
        same(
            &format!("workload = '{name}'\nlimit = 40"),
            made.generator.limit(40).clients(),
        );
    }
    let last = super::workload("total-queue", &root().fork("workload"))
        .last
        .unwrap();
    same("last_of = 'total-queue'", last.clients());
    let options = WorkloadOptions {
        key_count: Some(3),
        distribution: KeyDistribution::by_name("zipf:0.5"),
        writes_per_key: Some(9),
        transaction_length: Some(1..=2),
    };
    let made = Workload::new("list-append", &root().fork("workload"), &options).unwrap();
    same(
        "workload = 'list-append'
         keys = 3
         distribution = 'zipf:0.5'
         writes_per_key = 9
         txn_length = [1, 2]
         limit = 90",
        made.generator.limit(90).clients(),
    );
}

#[test]
fn operations_never_run_on_the_nemesis_nor_faults_on_clients() {
    let lines = schedule(built(
        "phases = [
            { f = 'load', repeat = 10 },
            { any = [{ f = 'work', repeat = 30 }, { sequence = [{ fault = 'heal' }, { sleep = '1ns' }, { fault = 'heal' }] }] },
            { each_thread = { f = 'final' } },
        ]",
    ));
    for line in &lines {
        let is_fault = line.contains(" heal ");
        assert_eq!(line.contains(":nemesis"), is_fault, "{line}");
    }
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains("invoke final"))
            .count(),
        3
    );
    assert_eq!(
        lines.iter().filter(|line| line.contains(" heal ")).count(),
        6
    );
}

#[test]
fn the_nemesis_changes_nothing_for_the_clients() {
    let text = "[[phases]]
        faults = { kinds = ['kill', 'pause'], interval = '20ms' }
        of = { rate = 1000, time_limit = '0.5s', mix = [{ f = 'read', repeat = true }, { f = 'write', value = { int = [0, 9] }, repeat = true }] }";
    let clients = |lines: Vec<String>| -> Vec<String> {
        lines
            .into_iter()
            .filter(|line| !line.contains(":nemesis"))
            .collect()
    };
    let with = schedule(built(text));
    let without = super::PlanEnvironment {
        kinds: Some(Vec::new()),
        ..environment()
    };
    let without = schedule(plan(text).generator(without));
    assert!(with.len() > without.len() && without.len() > 600);
    assert_eq!(clients(with), clients(without));
}

#[test]
fn whatever_cuts_a_test_short_everything_is_mended() {
    let text = "faults = { kinds = ['kill'], interval = '5ms' }\nof = { f = 'read', rate = 1000, repeat = true }";
    let mut limits = super::PlanLimits {
        time: Some(Duration::from_millis(200)),
        ..super::PlanLimits::default()
    };
    let run = |limits| {
        schedule(plan(text).generator(super::PlanEnvironment {
            limits,
            ..environment()
        }))
    };
    let mended = |lines: &[String]| {
        let last: Vec<&String> = lines.iter().rev().step_by(2).take(3).collect();
        last.iter()
            .all(|line| line.contains(":nemesis info restart"))
    };
    let lines = run(limits);
    assert!(lines.len() > 300 && mended(&lines), "{lines:#?}");
    limits.time = None;
    limits.ops = Some(120);
    let lines = run(limits);
    assert_eq!(
        lines.iter().filter(|line| line.contains("invoke")).count(),
        120
    );
    assert!(mended(&lines));
    limits.interval = Some(Duration::from_millis(10));
    let lines = run(limits);
    let end: u64 = lines
        .last()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((800_000_000..1_600_000_000).contains(&end), "{end}");
}

/// Every word has been used above, so every word has a golden twin.
#[test]
fn no_word_is_forgotten() {
    let tests = include_str!("schedules.rs");
    for word in KINDS.iter().chain(&MODIFIERS) {
        assert!(
            tests.contains(&format!("{word} = ")) || tests.contains(&format!("[[{word}]]")),
            "{word}"
        );
    }
}
