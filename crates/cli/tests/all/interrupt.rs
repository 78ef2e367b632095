//! Tests that end early: by Ctrl-C, by a kill, or because no node answers.

use super::{Scratch, command, json, run, stderr, stdout};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use seatrial_history::{OpType, TestFile};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on the busiest machine; far less than what a test that hangs would.
const PATIENCE: Duration = Duration::from_mins(1);

/// A test of `kv`, and its folder.
struct Test {
    child: Child,
    folder: PathBuf,
}

impl Test {
    /// Begins one; returns when clients have been at work.
    fn begin(folder: &str, words: &[&str]) -> Test {
        let words = [&["test", "kv", "--out", folder], words].concat();
        let mut command = command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let test = Test {
            child: command.spawn().unwrap(),
            folder: folder.into(),
        };
        let history = test.folder.join("history.sea");
        wait_until("clients are at work", || {
            history.metadata().is_ok_and(|file| file.len() > 32_768)
        });
        test
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The processes of its nodes.
    fn nodes(&self) -> Vec<Pid> {
        let folder = self.folder.display().to_string();
        let mine = |entry: &fs::DirEntry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains("node kv") && line.contains(&folder)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten().filter(mine);
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    }

    /// Its node does not do anything any more, but is there.
    fn freeze(&self) {
        for node in self.nodes() {
            kill_process(node, Signal::STOP).unwrap();
        }
    }

    /// Waits for a line on standard error.
    fn says(&mut self, words: &str) {
        let lines = BufReader::new(self.child.stderr.as_mut().unwrap()).lines();
        let found = lines.map_while(Result::ok).any(|line| line.contains(words));
        assert!(found, "never said {words:?}");
    }

    /// Waits for the end: nothing is left behind but a sound history.
    fn end(mut self, status: i32) -> Output {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.nodes(), [], "orphans");
        let history = self.history();
        let output = self.child.wait_with_output().unwrap();
        let (said, complained) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(status), "{said}\n{complained}");
        sound(&history);
        output
    }

    fn history(&self) -> String {
        self.folder.join("history.sea").display().to_string()
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every operation is whole: it began, and it ended with `ok`, `fail` or `info`.
fn sound(history: &str) {
    let history = TestFile::open(Path::new(history))
        .unwrap()
        .history()
        .unwrap();
    assert!(history.len() > 100, "{}", history.len());
    // The state of a node is one operation, not two.
    let operations = history.iter().enumerate();
    for (position, op) in operations.filter(|(_, op)| op.f != *"node-state") {
        let pair = history.pair(position);
        assert!(pair.is_some(), "half an operation: {op}");
        assert_eq!(
            op.is_invoke(),
            op.process.is_client() && pair > Some(position),
            "{op}"
        );
    }
}

/// How many client operations ended so.
fn count(history: &str, kind: OpType) -> usize {
    let history = TestFile::open(Path::new(history))
        .unwrap()
        .history()
        .unwrap();
    history
        .iter()
        .filter(|op| op.process.is_client() && op.kind == kind)
        .count()
}

#[test]
fn ctrl_c_ends_a_test_early_and_checks_its_history() {
    let scratch = Scratch::new("interrupt");
    let out = scratch.path("run");
    let words = ["--time", "600", "--interval", "0.3", "--timeout", "1"];
    let mut test = Test::begin(&out, &words);
    test.signal(Signal::INT);
    test.says("once more");
    let output = test.end(0);
    assert!(stdout(&output).contains('✓'), "{}", stdout(&output));
    assert!(Path::new(&out).join("report.html").exists());
    assert!(Path::new(&out).join("results.json").exists());
}

#[test]
fn a_terminal_that_goes_away_and_sigquit_end_a_test_like_sigterm() {
    for (name, signal) in [
        ("hup", Signal::HUP),
        ("quit", Signal::QUIT),
        ("term", Signal::TERM),
    ] {
        let scratch = Scratch::new(&format!("interrupt-{name}"));
        let out = scratch.path("run");
        let words = ["--time", "600", "--faults", "none", "--timeout", "1"];
        let mut test = Test::begin(&out, &words);
        test.signal(signal);
        test.says("once more");
        let said = stdout(&test.end(0));
        assert!(said.contains("cut short after"), "{name}: {said}");
        let results = fs::read_to_string(Path::new(&out).join("results.json")).unwrap();
        assert!(results.contains("cut short after"), "{name}: {results}");
    }
}

/// Runs the binary under `ulimit` as a user whom limits bind (the superuser is exempt from that of threads).
fn limited(limit: &str, user: bool, words: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_seatrial");
    let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    let mut command = if user {
        let mut command = std::process::Command::new("setpriv");
        // The plain shell of some systems has no limit of threads.
        command.args(["--reuid=65533", "--regid=65533", "--clear-groups", "bash"]);
        command
    } else {
        std::process::Command::new("sh")
    };
    command
        .args(["-c", &script, binary])
        .args(words)
        .env("NO_COLOR", "1");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(
            began.elapsed() < PATIENCE,
            "ulimit {limit}: {words:?} does not end"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn without_descriptors_there_is_an_error_and_no_panic() {
    let scratch = Scratch::new("limits");
    let file = history(&scratch);
    let mut refused = 0;
    for count in [3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32] {
        let out = scratch.path(&format!("run-{count}"));
        let test = [
            "test", "kv", "--time", "1", "--faults", "none", "--quiet", "--out", &out,
        ];
        for words in [&test[..], &["check", "--quiet", &file]] {
            let output = limited(&format!("-n {count}"), false, words);
            let said = stderr(&output);
            assert!(!said.contains("panicked"), "-n {count} {words:?}: {said}");
            let code = output.status.code();
            // 2: no client could connect; 127: not even the program could be loaded.
            assert!(
                matches!(code, Some(0 | 2 | 254 | 127)),
                "-n {count} {words:?}: {code:?} {said}"
            );
            refused += u32::from(code == Some(254));
        }
    }
    assert!(refused > 2, "{refused}");
}

/// A short history in this folder.
fn history(scratch: &Scratch) -> String {
    let file = scratch.path("history.sea");
    run(
        0,
        &[
            "generate",
            "list-append",
            "--events",
            "2000",
            "--quiet",
            "-o",
            &file,
        ],
    );
    file
}

/// Can limits of threads be tried in this folder? Only the superuser can become another user, and only where that user can
/// run the binary.
fn can_limit_threads(scratch: &Scratch) -> bool {
    let probe = "exec \"$0\" --version";
    let can_switch = std::process::Command::new("setpriv")
        .args(["--reuid=65533", "--regid=65533", "--clear-groups", "bash"])
        .args(["-c", probe, env!("CARGO_BIN_EXE_seatrial")])
        .output()
        .is_ok_and(|output| output.status.success());
    fs::set_permissions(
        scratch.folder(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    can_switch
}

#[test]
fn without_threads_checkers_work_and_others_say_so() {
    let scratch = Scratch::new("threads");
    if !can_limit_threads(&scratch) {
        return;
    }
    let file = history(&scratch);
    let archive = scratch.path("archive");
    run(
        0,
        &[
            "archive", "record", &archive, "--label", "history", "--file", &file,
        ],
    );
    for count in 1..6 {
        let made = scratch.path(&format!("made-{count}.sea"));
        let certificate = scratch.path(&format!("certificate-{count}.json"));
        let page = scratch.path("page.html");
        let lines = scratch.path("lines.jsonl");
        for words in [
            format!("check --quiet {file}"),
            format!("check --quiet --certificate {certificate} {file}"),
            format!("check --quiet --report {page} {file}"),
            format!("show {file} --count 1"),
            format!("export --to jsonl --force -o {lines} {file}"),
            format!("archive verify {archive}"),
            format!("archive checksum {archive}"),
            format!("generate list-append --events 2000 --quiet -o {made}"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let whole = words[0] != "generate";
            let words = &words[..];
            let output = limited(&format!("-u {count}"), true, words);
            let (code, said) = (output.status.code(), stderr(&output));
            assert!(!said.contains("panicked"), "-u {count} {words:?}: {said}");
            let refused = code == Some(254) && said.contains("thread");
            assert!(
                code == Some(0) || !whole && refused,
                "-u {count} {words:?}: {code:?} {said}"
            );
        }
    }
}

#[test]
fn a_test_without_threads_is_an_error_and_no_panic() {
    let scratch = Scratch::new("test-threads");
    if !can_limit_threads(&scratch) {
        return;
    }
    for count in [1, 2, 4, 8] {
        let out = scratch.path(&format!("threads-{count}"));
        let test = [
            "test", "kv", "--time", "1", "--faults", "none", "--quiet", "--out", &out,
        ];
        let output = limited(&format!("-u {count}"), true, &test);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(254), "-u {count}: {said}");
        assert!(
            said.contains("thread") && !said.contains("panicked"),
            "-u {count}: {said}"
        );
    }
}

#[test]
fn ctrl_c_during_the_check_keeps_the_history() {
    let scratch = Scratch::new("interrupt-judging");
    let out = scratch.path("run");
    let words = ["--time", "600", "--faults", "none", "--timeout", "1"];
    let mut test = Test::begin(&out, &words);
    // The results are never read, so the check does not end.
    let results = Path::new(&out).join("results.json");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &results, FileType::Fifo, mode, 0).unwrap();
    test.signal(Signal::INT);
    test.says("once more");
    let history = test.history();
    wait_until("the history is sealed", || {
        TestFile::open(Path::new(&history)).is_ok_and(|file| file.is_complete())
    });
    let began = Instant::now();
    while test.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "does not end");
        test.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = test.end(2);
    let said = stderr(&output);
    assert!(
        said.contains("not checked; the history is") && said.contains(&history),
        "{said}"
    );
    assert!(!Path::new(&out).join("report.html").exists());
    run(0, &["check", "--json", &history]);
}

#[test]
fn ctrl_c_twice_abandons_open_operations() {
    let scratch = Scratch::new("interrupt-twice");
    let words = ["--time", "600", "--faults", "none", "--timeout", "600"];
    let mut test = Test::begin(&scratch.path("run"), &words);
    // From now on no node answers: without the second request it would wait for half an hour.
    test.freeze();
    test.signal(Signal::INT);
    test.says("once more");
    test.signal(Signal::INT);
    let history = test.history();
    test.end(2);
    let given_up = count(&history, OpType::Info);
    assert!((1..=10).contains(&given_up), "{given_up}");
    // No node reported its state.
    run(2, &["check", "--json", &history]);
}

#[test]
fn a_system_that_never_answers_ends_the_test_in_time() {
    let scratch = Scratch::new("silence");
    let words = ["--time", "8", "--faults", "none", "--timeout", "0.5"];
    let test = Test::begin(&scratch.path("run"), &words);
    test.freeze();
    let history = test.history();
    // What was answered before is right, and no node says what it has now.
    test.end(2);
    assert!(
        count(&history, OpType::Info) >= 10,
        "one for each client at least"
    );
}

#[test]
fn a_killed_bench_leaves_no_process_and_a_history_that_can_be_checked() {
    let scratch = Scratch::new("killed");
    let mut test = Test::begin(&scratch.path("run"), &["--time", "600", "--faults", "none"]);
    test.signal(Signal::KILL);
    test.child.wait().unwrap();
    wait_until("its node is gone", || test.nodes().is_empty());
    let results = json(&run(2, &["check", "--json", &test.history()]));
    assert!(
        results["counts"]["ok"].as_u64().unwrap() > 100,
        "{results:#}"
    );
}
