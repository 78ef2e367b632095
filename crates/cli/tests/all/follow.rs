//! Test files that are checked while they are written.

use super::{Scratch, command, error, json, run, spoken, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use seatrial_history::{HistoryWriter, Key, Mop, Observed, Op, OpType, Process, Value};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A process that follows.
struct Follower {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Follower {
    fn begin(words: &[&str]) -> Follower {
        let words = [&["check", "--follow"], words].concat();
        let mut command = command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spoken::spawn(&mut command);
        let said = BufReader::new(child.stderr.take().unwrap());
        Follower { child, said }
    }

    /// Reads what it says until it says this.
    fn says(&mut self, words: &str) {
        let mut all = String::new();
        while !all.lines().any(|line| line.contains(words)) {
            assert!(
                self.said.read_line(&mut all).unwrap() > 0,
                "never said {words:?}:\n{all}"
            );
        }
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    fn end(mut self, status: i32) -> Output {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = self.child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", stdout(&output));
        output
    }
}

/// Writes transactions, one after another.
struct Writer {
    writer: HistoryWriter,
    index: u64,
}

impl Writer {
    fn create(path: &str, workload: &str) -> Writer {
        let attributes = json!({"suite": "kv", "workload": workload});
        let writer = HistoryWriter::create(path.as_ref(), &attributes).unwrap();
        Writer { writer, index: 0 }
    }

    fn push(&mut self, op: Op) {
        let time = self.index as i64 * 1_000_000;
        let index = self.index;
        self.writer.push(&Op { index, time, ..op }).unwrap();
        self.index += 1;
    }

    /// Reads this of key 1 and appends the next element.
    fn append(&mut self, process: u64, seen: i64, element: i64) {
        let key = Key::Int(1);
        let mops = |observed| {
            let read = Mop::Read {
                key: key.clone(),
                observed,
            };
            let key = key.clone();
            Value::Txn([read, Mop::Append { key, element }].into())
        };
        let op = Op::invoke(Process::Client(process), "txn", mops(Observed::Nil));
        self.push(op.clone());
        let seen = Observed::List((1..=seen).collect());
        self.push(op.complete(OpType::Ok, mops(seen)));
    }

    /// Compare-and-sets from each of seven values to each other one, at once. All succeed, so they lead back to the first value,
    /// and a read of another one afterwards has no order: to know that, a search tries all their subsets. That is far above the
    /// limits of the online checker.
    fn push_busy(&mut self) {
        let value = |value| Value::Keyed(Key::Int(0), Value::into(value));
        let op = |process, f, argument| Op::invoke(Process::Client(process), f, value(argument));
        let write = op(0, "write", Value::Int(0));
        self.push(write.clone());
        self.push(write.complete(OpType::Ok, write.value.clone()));
        let pairs = (0..7).flat_map(|from| (0..7).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| from != to).zip(1..);
        let sets: Vec<Op> = pairs
            .map(|((from, to), process)| op(process, "cas", Value::Cas(from, to)))
            .collect();
        for set in &sets {
            self.push(set.clone());
        }
        for set in sets {
            self.push(set.complete(OpType::Ok, set.value.clone()));
        }
        let read = op(0, "read", Value::Nil);
        self.push(read.clone());
        self.push(read.complete(OpType::Ok, value(Value::Int(1))));
    }

    /// Writes this, or reads it.
    fn register(&mut self, f: &'static str, value: i64) {
        let argument = if f == "read" {
            Value::Nil
        } else {
            Value::Int(value)
        };
        let op = Op::invoke(Process::Client(0), f, argument);
        self.push(op.clone());
        self.push(op.complete(OpType::Ok, Value::Int(value)));
    }
}

#[test]
fn a_violation_is_reported_while_the_test_is_running() {
    let scratch = Scratch::new("follow");
    let sea = scratch.path("a.sea");
    let mut follower = Follower::begin(&["--json", "--verbose", &sea]);
    follower.says("waiting for");
    follower.interrupt();
    assert!(follower.end(254).stdout.is_empty());
    let mut follower = Follower::begin(&[&sea]);
    follower.says("waiting for");
    let mut writer = Writer::create(&sea, "list-append");
    for element in 1..=500 {
        writer.append(element as u64 % 3, element - 1, element);
    }
    writer.writer.flush().unwrap();
    follower.says("1,000 events, 0 behind   list-append: ");
    // The 500th is lost.
    writer.append(3, 499, 501);
    writer.writer.flush().unwrap();
    follower.says("read key 1 as [");
    follower.says("found ");
    // Nobody has ended the test.
    for element in 502..=600 {
        writer.append(1, 499, element);
    }
    writer.writer.seal().unwrap();
    let output = follower.end(1);
    let answer = stdout(&output);
    assert!(answer.contains("not strict-serializable"), "{answer}");
    // The usual verdict.
    let usual = json(&run(
        1,
        &["check", "--json", "--checker", "list-append", &sea],
    ));
    let followed = json(&run(1, &["check", "--json", "--follow", &sea]));
    for member in [
        "valid",
        "anomalies",
        "findings",
        "not",
        "operations",
        "counts",
    ] {
        assert_eq!(usual[member], followed[member], "{member}");
    }
}

#[test]
fn registers_are_followed() {
    let scratch = Scratch::new("follow-registers");
    let sea = scratch.path("a.sea");
    let mut writer = Writer::create(&sea, "register");
    for value in 1..=100 {
        writer.register("write", value);
        writer.register("read", value);
    }
    writer.writer.flush().unwrap();
    let mut follower = Follower::begin(&[&sea]);
    follower.says("cas-register: 200 checked in 0 windows, 0 held   nothing found");
    writer.register("read", 99);
    writer.writer.flush().unwrap();
    follower.says("cannot be linearized");
    follower.says("when it must take place it is 100");
    writer.writer.seal().unwrap();
    let answer = stdout(&follower.end(1));
    assert!(answer.contains("read 99"), "{answer}");
}

#[test]
fn following_ends_when_a_person_wants_or_the_writer_is_gone() {
    let scratch = Scratch::new("follow-ends");
    let sea = scratch.path("a.sea");
    let mut writer = Writer::create(&sea, "list-append");
    for element in 1..=100 {
        writer.append(0, element - 1, element);
    }
    writer.writer.flush().unwrap();
    let mut follower = Follower::begin(&[&sea]);
    follower.says("200 events, 0 behind");
    follower.interrupt();
    let answer = stdout(&follower.end(2));
    assert!(
        answer.contains("interrupted: the first 0 transactions hold")
            || answer.contains("interrupted: nothing was decided"),
        "{answer}"
    );
    let follower = Follower::begin(&[&sea]);
    // Killed: the file is never sealed.
    drop(writer);
    let answer = stdout(&follower.end(2));
    assert!(answer.contains("never sealed"), "{answer}");
}

#[test]
fn a_long_search_in_the_end_is_interrupted() {
    let scratch = Scratch::new("follow-search");
    let sea = scratch.path("busy.sea");
    let mut writer = Writer::create(&sea, "register");
    writer.push_busy();
    writer.writer.seal().unwrap();
    let mut follower = Follower::begin(&[&sea]);
    follower.says("checked as a whole in the end");
    follower.interrupt();
    let answer = stdout(&follower.end(2));
    assert!(answer.contains("checked as a whole"), "{answer}");
}

#[test]
fn reported_violations_stand_when_the_final_search_is_interrupted() {
    let scratch = Scratch::new("follow-definite");
    let sea = scratch.path("definite.sea");
    let mut writer = Writer::create(&sea, "register");
    // A key without other operations.
    let value = |value| Value::Keyed(Key::Int(-1), Value::into(value));
    let read = Op::invoke(Process::Client(1_000), "read", value(Value::Nil));
    writer.push(read.clone());
    writer.push(read.complete(OpType::Ok, value(Value::Int(1))));
    writer.push_busy();
    writer.writer.seal().unwrap();
    let mut follower = Follower::begin(&[&sea]);
    follower.says("(cas-register):");
    follower.says("checked as a whole in the end");
    follower.interrupt();
    let answer = stdout(&follower.end(1));
    assert!(answer.contains("nonlinearizable"), "{answer}");
}

#[test]
fn what_cannot_be_followed_says_so() {
    let scratch = Scratch::new("follow-not");
    let (sea, text) = (scratch.path("a.sea"), scratch.path("a.edn"));
    let words = ["generate", "list-append", "--ops", "100", "-q", "-o"];
    run(0, &[&words[..], &[&sea]].concat());
    // Any checker follows; most answer in the end.
    let both = ["check", "--follow", "--checker", "list-append,g1", &sea];
    assert!(stdout(&run(0, &both)).contains('✓'));
    let message = ["unknown model `atomic`"];
    error(&["check", "--follow", "--model", "atomic", &sea], &message);
    error(
        &["check", "--follow", &sea, &sea],
        &["--follow takes one history"],
    );
    fs::write(
        &text,
        "{:process 0 :type :invoke :f :read :value nil}\n".repeat(400),
    )
    .unwrap();
    error(&["check", "--follow", &text], &["a.edn"]);
    let answer = run(0, &["check", "--follow", &sea]);
    assert!(stdout(&answer).contains('✓'), "{}", stderr(&answer));
}

#[test]
fn planted_bugs_end_a_real_test_early() {
    let scratch = Scratch::new("stop-on-violation");
    for (workload, bug) in [
        ("list-append", "stale-read"),
        ("list-append", "lost-append"),
        ("list-append", "dirty-abort"),
        ("cas-register", "stale-read"),
    ] {
        let out = scratch.path(&format!("{workload}-{bug}"));
        // Far longer than any test may take: it ends because of what was seen.
        let words = [
            "test",
            "kv",
            "--time",
            "36000",
            "--stop-on-violation",
            "--json",
        ];
        let planted = ["--workload", workload, "--bug", bug, "--out", &out];
        let results = json(&run(1, &[&words[..], &planted].concat()));
        assert_eq!(results["valid"], false, "{workload} {bug}");
        let seen = &results["seen_early"];
        assert_eq!(seen["stopped"], true, "{workload} {bug}: {results:#}");
        assert_eq!(seen["checker"], workload);
        let proof = &results["checkers"][workload]["details"]["certificate"];
        assert_eq!(proof["holds"], true, "{bug}: {proof}");
        // In the end it may go by another name, because more is known of what it is a part of.
        assert!(!results["findings"].as_array().unwrap().is_empty());
    }
}

#[test]
fn checkers_that_decide_at_the_end_stop_a_test_too() {
    let scratch = Scratch::new("stop-on-violation-set");
    let out = scratch.path("run");
    let words = [
        "test",
        "kv",
        "--time",
        "36000",
        "--workload",
        "set",
        "--bug",
        "stale-read",
        "--stop-on-violation",
        "--json",
        "--out",
        &out,
    ];
    let results = json(&run(1, &words));
    let seen = &results["seen_early"];
    assert_eq!(seen["stopped"], true, "{results:#}");
    assert_eq!(seen["checker"], "set-full");
}
