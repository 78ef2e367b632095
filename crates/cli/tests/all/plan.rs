//! Plans from files, as their writers meet them.

use crate::{Scratch, error, json, run, stderr, stdout};
use std::fs;
use std::path::Path;

/// Three phases, short: load, a mix under faults, final reads.
const SHORT: &str = "
name = 'short'
[test]
concurrency = 6
checkers = ['cas-register']
timeout = '1s'
[[phases]]
name = 'load'
sequential_keys = { f = 'write', value = { counter = 'writes' } }
keys = 5
[[phases]]
name = 'mix'
rate = 400
time_limit = '3s'
faults = { kinds = ['kill', 'pause', 'partition'], interval = '0.4s' }
mix = [
  { weight = 70, f = 'read', key = { uniform = 5 }, repeat = true },
  { weight = 30, f = 'write', key = { uniform = 5 }, value = { counter = 'writes' }, repeat = true },
]
[[phases]]
name = 'final reads'
each_thread = { sequential_keys = { f = 'read' }, keys = 5 }
";

fn examples() -> Vec<String> {
    let listed = stdout(&run(0, &["plan", "example"]));
    let names = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn a_plan_with_faults_is_carried_out_for_real() {
    let scratch = Scratch::new("plan-test");
    let file = scratch.path("short.toml");
    fs::write(&file, SHORT).unwrap();
    let out = scratch.path("run");
    let output = run(
        0,
        &[
            "test", "kv", "--plan", &file, "--seed", "7", "--out", &out, "--json",
        ],
    );
    let results = json(&output);
    assert_eq!(results["valid"], true, "{results:#}");
    let history = Path::new(&out).join("history.sea").display().to_string();
    // A later check knows the checkers from the file.
    let again = json(&run(0, &["check", "--json", &history]));
    assert_eq!(again["counts"], results["counts"]);
    let attributes = stdout(&run(0, &["show", "--attributes", &history]));
    assert!(
        attributes.contains("final reads") && attributes.contains("cas-register"),
        "{attributes}"
    );
    let listing = stdout(&run(0, &["show", "--edn", &history]));
    let operations: Vec<&str> = listing.lines().collect();
    let client = |line: &&&str| !line.contains(":process :nemesis");
    let begun = |line: &&&str| line.contains(":type :invoke");
    let invoked: Vec<&str> = operations
        .iter()
        .filter(client)
        .filter(begun)
        .copied()
        .collect();
    // The load comes first, one write a key; the final reads last, five a client.
    for (key, line) in invoked.iter().take(5).enumerate() {
        assert!(
            line.contains(":f :write") && line.contains(&format!("[{key} {}]", key + 1)),
            "{line}"
        );
    }
    assert!(
        invoked
            .iter()
            .rev()
            .take(30)
            .all(|line| line.contains(":f :read"))
    );
    let faults = operations
        .iter()
        .filter(|line| line.contains(":process :nemesis"))
        .count();
    assert!(faults >= 6, "{faults}");
    // All is mended before the last phase.
    let last_fault = operations
        .iter()
        .rposition(|line| line.contains(":process :nemesis"));
    let read = operations.len() - 60;
    assert!(
        last_fault.unwrap() < read,
        "{last_fault:?} of {}",
        operations.len()
    );
    let reads = invoked
        .iter()
        .filter(|line| line.contains(":f :read"))
        .count() as f64;
    let share = (reads - 30.0) / (invoked.len() as f64 - 35.0);
    assert!((0.62..0.78).contains(&share), "{share}");
}

#[test]
fn options_go_before_those_of_the_plan() {
    let scratch = Scratch::new("plan-options");
    let file = scratch.path("endless.toml");
    fs::write(
        &file,
        "workload = 'list-append'\nrate = 200\nfaults = ['kill']\n[test]\nops = 1000000\nconcurrency = 3\nseed = '5'\n",
    )
    .unwrap();
    let out = scratch.path("run");
    let words = [
        "test",
        "kv",
        "--plan",
        &file,
        "--ops",
        "50",
        "--faults",
        "none",
        "--concurrency",
        "2",
    ];
    let results = json(&run(0, &[&words[..], &["--out", &out, "--json"]].concat()));
    assert_eq!(results["seed"], "5");
    let attributes = stdout(&run(
        0,
        &["show", "--attributes", &format!("{out}/history.sea")],
    ));
    let attributes: serde_json::Value = serde_json::from_str(&attributes).unwrap();
    assert_eq!(attributes["concurrency"], 2, "{attributes:#}");
    assert_eq!(attributes["faults"], serde_json::json!([]));
    assert_eq!(attributes["workload"], "list-append");
    let listing = stdout(&run(0, &["show", "--edn", &format!("{out}/history.sea")]));
    assert_eq!(listing.matches(":type :invoke").count(), 50);
    assert!(!listing.contains(":nemesis"));
}

#[test]
fn the_simulator_finds_bugs_with_plans_and_replays_them() {
    let scratch = Scratch::new("plan-sim");
    let file = scratch.path("short.toml");
    fs::write(
        &file,
        SHORT
            .replace("rate = 400", "rate = 2000")
            .replace("'3s'", "'0.5s'")
            .replace("'0.4s'", "'30ms'"),
    )
    .unwrap();
    let good = json(&run(
        0,
        &["sim", "kv", "--plan", &file, "--seeds", "8", "--json"],
    ));
    assert_eq!(good["seeds_tried"], 8);
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    let words = [
        "sim",
        "kv",
        "--plan",
        &file,
        "--bug",
        "stale-read",
        "--json",
    ];
    let found = json(&run(1, &[&words[..], &["--out", &first]].concat()));
    let seed = found["seed"].as_str().unwrap();
    assert!(
        found["command"]
            .as_str()
            .unwrap()
            .contains(&format!("--plan {file}"))
    );
    let again = json(&run(
        1,
        &[&words[..], &["--seed", seed, "--out", &second]].concat(),
    ));
    assert_eq!(again["anomalies"], found["anomalies"]);
    let show = |folder: &str| run(0, &["show", "--edn", &format!("{folder}/history.sea")]).stdout;
    assert_eq!(
        show(&first),
        show(&second),
        "the same seed, the same history"
    );
}

#[test]
fn every_example_is_sound() {
    let scratch = Scratch::new("plan-examples");
    let names = examples();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let text = stdout(&run(0, &["plan", "example", &name]));
        let end = if text.starts_with('{') {
            "json"
        } else {
            "toml"
        };
        let file = scratch.path(&format!("{name}.{end}"));
        fs::write(&file, &text).unwrap();
        let checked = stdout(&run(0, &["plan", "check", &file]));
        assert!(
            checked.contains(&name) && !checked.contains("none:") && !checked.contains("note:"),
            "{checked}"
        );
        let shown = stdout(&run(0, &["plan", "show", &file, "--ops", "300"]));
        assert!(shown.lines().count() > 60, "{shown}");
        if name == "queue" {
            error(
                &["plan", "check", &file, "--suite", "kv"],
                &["queue.toml:", "\"enqueue\"", "read, write, cas, txn"],
            );
            continue;
        }
        run(0, &["plan", "check", &file, "--suite", "kv"]);
        let simulated = json(&run(
            0,
            &[
                "sim", "kv", "--plan", &file, "--seeds", "2", "--ops", "400", "--json",
            ],
        ));
        assert_eq!(simulated["valid"], true);
    }
}

#[test]
fn a_plan_is_shown_without_a_system() {
    let scratch = Scratch::new("plan-show");
    let file = scratch.path("short.toml");
    fs::write(&file, SHORT).unwrap();
    let words = [
        "plan",
        "show",
        &file,
        "--threads",
        "2",
        "--ops",
        "8",
        "--seed",
        "3",
    ];
    let shown = stdout(&run(0, &words));
    assert_eq!(
        shown,
        stdout(&run(0, &words)),
        "the same seed, the same schedule"
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 9, "{shown}");
    let columns: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(columns[..2], ["0.000000", "s"]);
    assert!(
        ["0", "1"].contains(&columns[2]) && columns[3..] == ["write", "[0", "1]"],
        "{shown}"
    );
    assert!(lines[8].contains("the first 8 operations"), "{shown}");
    let all = stdout(&run(0, &["plan", "show", &file, "--ops", "100000"]));
    assert!(
        all.contains("the plan ends after") && all.contains("nemesis"),
        "{all}"
    );
    let tree = stdout(&run(0, &["plan", "check", &file]));
    for part in [
        "   short: phases\n     load: sequential keys, 0 to 4\n       write, value counter \"writes\"\n",
        "     mix: mix, every 2.5ms on average, for 3s, faults kill, pause, partition every 400ms\n       70 × read, key uniform of 5, repeated endlessly\n",
        " test: 6 clients, clients give up after 1s\n checkers: cas-register\n",
    ] {
        assert!(tree.contains(part), "{tree}");
    }
}

#[test]
fn errors_name_their_position() {
    let scratch = Scratch::new("plan-errors");
    let file = scratch.path("plan.toml");
    let wrong = |text: &str, parts: &[&str]| {
        fs::write(&file, text).unwrap();
        for words in [
            &["plan", "check", &file, "--suite", "kv"][..],
            &[
                "test",
                "kv",
                "--plan",
                &file,
                "--out",
                &scratch.path("never"),
            ],
            &["sim", "kv", "--plan", &file],
        ] {
            error(words, parts);
        }
        assert!(
            !Path::new(&scratch.path("never")).exists(),
            "nothing was begun"
        );
    };
    wrong(
        "[[phases]]\nf = 'read'\nkey = 1\nlimt = 3",
        &["plan.toml:4:1: phases[0]: ", "did you mean \"limit\"?"],
    );
    wrong(
        "f = 'raed'",
        &["plan.toml:1:5: f: ", "did you mean \"read\"?"],
    );
    wrong(
        "workload = 'adya'",
        &["plan.toml:1:12: workload: ", "list-append"],
    );
    wrong(
        "f = 'read'\nkey = 1\n[test]\ncheckers = ['linear']",
        &["plan.toml:4:13: test.checkers[0]: ", "cas-register"],
    );
    wrong(
        "workload = 'list-append'\n[test]\nmodel = 'causal-ish'",
        &["plan.toml:3:9: test.model: ", "strict-serializable"],
    );
    wrong("f = 'read", &["plan.toml:1:", "not TOML"]);
}

#[test]
fn plans_and_options_that_do_not_go_together_are_clear_errors() {
    let scratch = Scratch::new("plan-usage");
    let file = scratch.path("plan.toml");
    fs::write(&file, "f = 'read'\nkey = 1").unwrap();
    for words in [
        &["test", "kv", "--plan", &file][..],
        &["sim", "kv", "--plan", &file],
    ] {
        error(words, &["plan.toml:1:1: test.checkers: no checkers"]);
        error(&[words, &["--keys", "3"]].concat(), &["--keys 3", "--plan"]);
    }
    assert!(
        stdout(&run(0, &["plan", "check", &file]))
            .contains("checkers: none: test.checkers is missing")
    );
    fs::write(&file, "f = 'read'\nkey = 1\nrepeat = true").unwrap();
    let noted = stdout(&run(0, &["plan", "check", &file]));
    assert!(
        noted.contains("plan.toml:1:1: the plan never ends"),
        "{noted}"
    );
    fs::write(&file, "workload = 'register'\n[test]\nnodes = 4").unwrap();
    error(
        &["test", "kv", "--plan", &file],
        &["plan.toml:3:9: test.nodes: kv runs on 1, 3, 5 or 7 nodes"],
    );
    error(
        &["test", "kv", "--plan", &file, "--workload", "register"],
        &["--workload", "--plan"],
    );
    error(
        &["plan", "check", &scratch.path("missing.toml")],
        &["missing.toml", "No such file"],
    );
    error(&["plan", "check", &scratch.path("")], &[&scratch.path("")]);
    error(
        &["plan", "check", &file, "--suite", "xy"],
        &["unknown suite `xy`", "kv"],
    );
    error(&["plan", "example", "nonsense"], &["nonsense", "phases"]);
    error(
        &["plan", "show", &file, "--threads", "20000"],
        &["--threads", "10000"],
    );
    error(&["plan", "show", &file, "--latency=-1"], &["--latency"]);
    fs::write(&file, [0xff, 0xfe]).unwrap();
    error(&["plan", "check", &file], &["plan.toml", "UTF-8"]);
    fs::write(&file, " ".repeat(2 << 20)).unwrap();
    error(
        &["plan", "check", &file],
        &["plan.toml", "longer than 1048576"],
    );
    // A generator that makes a mistake while it runs says which.
    fs::write(
        &file,
        "reserve = [{ threads = 5, f = 'a' }]\ndefault = { f = 'b' }",
    )
    .unwrap();
    error(
        &["plan", "show", &file, "--threads", "3"],
        &["reserve needs 5 threads"],
    );
    let output = stderr(&run(254, &["plan", "check", "-"]));
    assert!(
        output.contains("standard input:1:1: the node has no kind"),
        "{output}"
    );
}

#[test]
fn a_plan_has_workloads_of_every_data_type() {
    let scratch = Scratch::new("plan-types");
    for (workload, checker) in [
        ("set", "set-full"),
        ("counter", "counter"),
        ("monotonic", "monotonic"),
        ("lock", "lock"),
        ("log", "log"),
    ] {
        let file = scratch.path(&format!("{workload}.toml"));
        let text = format!(
            "[test]
checkers = ['{checker}']
[[phases]]
workload = '{workload}'
keys = 2
rate = 2000
limit = 300
faults = {{ kinds = ['kill:one', 'pause'], interval = '20ms', schedule = 'one-at-a-time' }}
[[phases]]
last_of = '{workload}'
"
        );
        fs::write(&file, text).unwrap();
        let out = scratch.path(workload);
        let words = [
            "sim", "kv", "--plan", &file, "--seeds", "20", "--json", "--out", &out,
        ];
        let results = json(&run(0, &words));
        assert_eq!(results["valid"], true, "{workload}: {results:#}");
        assert!(
            results["seeds_unknown"].as_u64().unwrap() < 20,
            "{workload}: {results:#}"
        );
    }
}

/// A register of nil, 0 and 1 as a table.
const TABLED: &str = "
mix = [
  { f = 'read', key = { uniform = 3 }, repeat = true },
  { f = 'write', key = { uniform = 3 }, value = { int = [0, 1] }, repeat = true },
]
limit = 300
[test]
concurrency = 3
checkers = ['table-model']
[model]
initial = 'empty'
rows = [
  { state = '*', operation = 'write', argument = 0, next = 'zero' },
  { state = '*', operation = 'write', argument = 1, next = 'one' },
  { state = 'empty', operation = 'read', result = { nil = true }, next = 'same' },
  { state = 'zero', operation = 'read', result = 0, next = 'same' },
  { state = 'one', operation = 'read', result = 1, next = 'same' },
]
";

#[test]
fn a_table_of_a_plan_is_checked_in_the_run_and_from_its_file() {
    let scratch = Scratch::new("plan-table");
    let file = scratch.path("table.toml");
    let tested = |text: &str, code, out: &str| {
        fs::write(&file, text).unwrap();
        let out = scratch.path(out);
        run(
            code,
            &[
                "test", "kv", "--plan", &file, "--seed", "3", "--out", &out, "--json",
            ],
        );
        let history = format!("{out}/history.sea");
        json(&run(code, &["check", "--json", &history]))
    };
    let valid = tested(TABLED, 0, "valid");
    assert_eq!(valid["valid"], true, "{valid:#}");
    // A register that does not change when 1 is written.
    let other = TABLED.replace("argument = 1, next = 'one'", "argument = 1, next = 'zero'");
    let invalid = tested(&other, 1, "invalid");
    assert_eq!(invalid["valid"], false, "{invalid:#}");
    for (old, new, expected) in [
        (
            "next = 'zero'",
            "next = 'zro'",
            ":13:60: model.rows[0].next: unknown state \"zro\": no row has it as its `state`",
        ),
        (
            "argument = 1",
            "argument = 0",
            ":14:60: model.rows[1].next: contradicts rows[0]: in state \"empty\" the same `write` \
             leads to \"zero\" there, and to \"one\" here",
        ),
        (
            "initial = 'empty'",
            "initial = 'emty'",
            ":11:11: model.initial: unknown state \"emty\": no row has it as its `state`",
        ),
        ("[model]", "[nemo]", ": unknown key \"nemo\""),
    ] {
        fs::write(&file, TABLED.replacen(old, new, 1)).unwrap();
        error(&["plan", "check", &file], &[expected]);
    }
    let (before, _) = TABLED.split_once("[model]").unwrap();
    fs::write(&file, before).unwrap();
    let expected = ":9:13: test.checkers[0]: the checker `table-model` needs the table [model]";
    error(&["plan", "check", &file], &[expected]);
}
