//! The binary as its users meet it: exit status, what it prints, what it leaves behind.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

#[path = "all/archive.rs"]
mod archive;
#[path = "all/archive_socket.rs"]
mod archive_socket;
#[path = "all/bundled_workloads.rs"]
mod bundled_workloads;
#[path = "all/causes.rs"]
mod causes;
#[path = "all/damage.rs"]
mod damage;
#[path = "all/decision.rs"]
mod decision;
#[path = "support/ended.rs"]
mod ended;
#[path = "all/findings.rs"]
mod findings;
#[path = "all/follow.rs"]
mod follow;
#[path = "all/foreign.rs"]
mod foreign;
#[path = "all/generate.rs"]
mod generate;
#[path = "all/interchange.rs"]
mod interchange;
#[path = "all/interrupt.rs"]
mod interrupt;
#[path = "all/isolation.rs"]
mod isolation;
#[path = "all/keyed.rs"]
mod keyed;
#[path = "all/plan.rs"]
mod plan;
#[path = "all/proofs.rs"]
mod proofs;
#[path = "all/prove.rs"]
mod prove;
#[path = "all/routes.rs"]
mod routes;
#[path = "all/salvage.rs"]
mod salvage;
#[path = "support/scratch.rs"]
mod scratch;
#[path = "support/spoken.rs"]
mod spoken;
#[path = "all/stream.rs"]
mod stream;
#[path = "all/truncated.rs"]
mod truncated;
#[path = "all/windows.rs"]
mod windows;

use scratch::Scratch;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seatrial"));
    command.args(words).env("NO_COLOR", "1");
    command
}

/// Runs the binary and expects this exit status.
fn run(status: i32, words: &[&str]) -> Output {
    let output = ended::output(&mut command(words));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{words:?}\n{}\n{}",
        stdout(&output),
        stderr(&output)
    );
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs that end with an error: its exit status, and these words in its message.
fn error(words: &[&str], message: &[&str]) {
    let output = run(254, words);
    let text = stderr(&output);
    for part in message {
        assert!(
            text.contains(part),
            "{words:?} does not say {part:?}:\n{text}"
        );
    }
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn a_real_test_is_valid_and_its_run_can_be_checked_again() {
    let scratch = Scratch::new("test");
    std::thread::scope(|scope| {
        for workload in ["register", "cas-register", "list-append", "rw-register"] {
            let scratch = &scratch;
            scope.spawn(move || a_run_can_be_checked_again(scratch, workload));
        }
    });
}

fn a_run_can_be_checked_again(scratch: &Scratch, workload: &str) {
    let out = scratch.path(workload);
    let words = [
        "test",
        "kv",
        "--time",
        "4",
        "--interval",
        "0.4",
        "--workload",
        workload,
    ];
    let output = run(0, &[&words[..], &["--out", &out, "--json"]].concat());
    let results = json(&output);
    assert_eq!(results["valid"], true, "{results:#}");
    assert!(
        results["counts"]["ok"].as_u64().unwrap() > 100,
        "{results:#}"
    );
    let folder = Path::new(&out);
    for file in ["history.sea", "results.json", "report.html", "n1.log"] {
        assert!(folder.join(file).metadata().unwrap().len() > 0, "{file}");
    }
    let history = folder.join("history.sea").display().to_string();
    let again = json(&run(0, &["check", "--json", &history]));
    assert_eq!(again["counts"], results["counts"]);
    let listing = stdout(&run(0, &["show", &history]));
    assert!(
        listing.contains("n1") && listing.contains("nemesis"),
        "nodes and faults"
    );
    // A second run must not overwrite the first.
    error(
        &["test", "kv", "--time", "1", "--out", &out],
        &[&out, "--out"],
    );
}

#[test]
fn the_simulator_finds_every_planted_bug_and_replays_it() {
    let scratch = Scratch::new("sim");
    for bug in [
        "ack-before-append",
        "stale-read",
        "lost-append",
        "dirty-abort",
    ] {
        let (first, second) = (scratch.path(bug), scratch.path(&format!("{bug}-again")));
        let found = json(&run(
            1,
            &["sim", "kv", "--bug", bug, "--json", "--out", &first],
        ));
        assert_eq!(found["valid"], false);
        let seed = found["seed"].as_str().unwrap();
        let again = [
            "sim", "kv", "--bug", bug, "--seed", seed, "--json", "--out", &second,
        ];
        let again = json(&run(1, &again));
        assert_eq!(again["anomalies"], found["anomalies"]);
        let show = |folder: &str| {
            let history = Path::new(folder).join("history.sea").display().to_string();
            run(0, &["show", "--edn", &history]).stdout
        };
        assert_eq!(
            show(&first),
            show(&second),
            "{bug}: the same seed, the same history"
        );
    }
}

#[test]
fn the_simulator_finds_nothing_where_nothing_is_planted() {
    let scratch = Scratch::new("clean");
    let results = json(&run(
        0,
        &[
            "sim",
            "kv",
            "--seeds",
            "60",
            "--json",
            "--out",
            &scratch.path("x"),
        ],
    ));
    assert_eq!(results["seeds_tried"], 60);
    assert!(
        results["seeds_unknown"].as_u64().unwrap() < 6,
        "{results:#}"
    );
}

#[test]
fn wrong_words_and_wrong_files_are_clear_errors() {
    let scratch = Scratch::new("errors");
    error(&["frobnicate"], &["frobnicate"]);
    error(&["test", "no-such-suite"], &["no-such-suite", "kv"]);
    error(
        &["sim", "kv", "--bug", "nonsense"],
        &["nonsense", "stale-read"],
    );
    error(
        &["sim", "kv", "--workload", "nonsense"],
        &["nonsense", "list-append"],
    );
    error(
        &["sim", "kv", "--faults", "earthquake"],
        &["earthquake", "partition"],
    );
    error(
        &["test", "kv", "--model", "nonsense"],
        &["nonsense", "strict-serializable"],
    );
    error(&["test", "kv", "--time=-1"], &["--time"]);
    error(&["test", "kv", "--seed", "xyz"], &["hexadecimal"]);
    error(
        &["check", &scratch.path("missing.edn")],
        &["missing.edn", "No such file"],
    );
    let broken = scratch.path("broken.edn");
    fs::write(&broken, "{:index 0, :type :invoke,\n :f :read, :process").unwrap();
    error(&["check", &broken], &["broken.edn:1:1", "never closed"]);
    let noise = scratch.path("noise.bin");
    fs::write(&noise, [0xff; 100]).unwrap();
    error(&["check", &noise], &["noise.bin", "--format"]);
    error(&["show", &scratch.path("")], &[&scratch.path("")]);
    error(&["node", "kv", "--bug", "nonsense"], &["nonsense"]);
}

#[test]
fn unknown_faults_are_refused_with_the_available_ones() {
    let faults = |words: &str, message: &[&str]| error(&["sim", "kv", "--faults", words], message);
    faults("kill:bridge", &["kill", "bridge", "minority-third"]);
    let alone = ["sim", "kv", "--nodes", "1", "--faults", "membership"];
    error(&alone, &["membership", "2 nodes", "found 1"]);
    faults("partition:majorities-ring", &["4 nodes"]);
    let order = ["test", "kv", "--fault-schedule", "often"];
    error(&order, &["often", "one-at-a-time"]);
}

#[test]
fn clocks_disks_and_packets_of_real_nodes_are_broken_and_mended() {
    let scratch = Scratch::new("faults");
    let out = scratch.path("run");
    let results = json(&run(
        0,
        &[
            "test",
            "kv",
            // Its last reads follow the healing.
            "--workload",
            "set",
            "--faults",
            "clock,disk,packet,pause",
            "--fault-schedule",
            "one-at-a-time",
            "--fault-interval",
            "0.3",
            "--time",
            "12",
            "--timeout",
            "0.5",
            "--rate",
            "200",
            "--seed",
            "18",
            "--json",
            "--out",
            &out,
        ],
    ));
    assert_eq!(results["valid"], true, "{results:#}");
    let history = Path::new(&out).join("history.sea").display().to_string();
    let text = stdout(&run(0, &["show", "--edn", &history]));
    let bit = |name: &str| {
        let f = format!(":f :{name},");
        let of = text.lines().filter(|line| line.contains(&f));
        of.filter(|line| !line.contains(":error")).count() >= 2
    };
    assert!(bit("skew") || bit("strobe"), "{text}");
    assert!(bit("no-space") && bit("mend-disk"), "{text}");
    assert!(bit("calm"), "{text}");
    // The healing is there, and clients are served after it.
    let healed = text.rfind(":f :restart").unwrap();
    assert!(text[healed..].contains(":type :ok"));
}

#[test]
fn a_node_that_cannot_start_is_shown_with_its_last_words() {
    let scratch = Scratch::new("start");
    // What the node takes for its log is a folder.
    fs::create_dir_all(Path::new(&scratch.path("run")).join("n1/log")).unwrap();
    let words = ["test", "kv", "--time", "1", "--out", &scratch.path("run")];
    error(&words, &["n1", "n1.log", "Is a directory"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.11:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let scratch = Scratch::new("port");
    error(
        &[
            "test",
            "kv",
            "--time",
            "1",
            "--port",
            &port,
            "--out",
            &scratch.path("run"),
        ],
        &[&port, "in use"],
    );
    let listen = format!("127.0.0.11:{port}");
    error(
        &[
            "node",
            "kv",
            "--listen",
            &listen,
            "--data",
            &scratch.path("data"),
        ],
        &[&listen],
    );
}
