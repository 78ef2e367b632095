//! `seatrial archive` as its users meet it.

#[path = "archive/copy.rs"]
mod copy;
#[path = "archive/damage.rs"]
mod damage;
#[path = "archive/killed.rs"]
mod killed;
#[path = "archive/manage.rs"]
mod manage;
#[path = "archive/served.rs"]
mod served;

use crate::{Scratch, command, error, json, run, spoken, stderr, stdout};
use seatrial_machine::Rng;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Runs `seatrial archive` with these bytes as its input, and expects this exit status.
pub(crate) fn feed(status: i32, words: &[&str], input: &[u8]) -> Output {
    let mut child = RunningProgram::start(words);
    let mut pipe = child.input.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = pipe.write_all(&input); // the program may end before it has read all
    });
    let output = child.output();
    writer.join().unwrap();
    assert_eq!(
        output.status.code(),
        Some(status),
        "{words:?}\n{}\n{}",
        stdout(&output),
        stderr(&output)
    );
    output
}

/// Runs `seatrial archive` and expects this exit status.
pub(crate) fn archive(status: i32, words: &[&str]) -> Output {
    run(status, &[&["archive"], words].concat())
}

/// What `seatrial archive` prints with `--json`.
pub(crate) fn archive_json(words: &[&str]) -> Value {
    json(&archive(0, &[words, &["--json"]].concat()))
}

/// Compares bytes without printing all of them.
#[track_caller]
pub(crate) fn alike(found: &[u8], expected: &[u8]) {
    if found != expected {
        let at = found
            .iter()
            .zip(expected)
            .take_while(|(one, other)| one == other)
            .count();
        let part = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 60)]).into_owned()
        };
        panic!(
            "{} bytes, {} expected; they differ at {at}: {:?} where {:?} belongs",
            found.len(),
            expected.len(),
            part(found),
            part(expected)
        );
    }
}

/// What a replay prints is this.
#[track_caller]
pub(crate) fn replays(words: &[&str], expected: &[u8]) {
    alike(&archive(0, &[&["replay"], words].concat()).stdout, expected);
}

/// Distinct lines.
pub(crate) fn lines(from: u64, count: u64) -> Vec<u8> {
    (from..from + count)
        .flat_map(|number| format!("line {number}\n").into_bytes())
        .collect()
}

/// A program that runs meanwhile; killed when dropped.
pub(crate) struct RunningProgram {
    child: Option<Child>,
    pub(crate) input: Option<ChildStdin>,
}

impl RunningProgram {
    pub(crate) fn start(words: &[&str]) -> RunningProgram {
        let mut command = command(&[&["archive"], words].concat());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spoken::spawn(&mut command);
        RunningProgram {
            input: child.stdin.take(),
            child: Some(child),
        }
    }

    /// Its output, line by line, from now on.
    pub(crate) fn lines(&mut self) -> Receiver<String> {
        let out = self.child.as_mut().unwrap().stdout.take().unwrap();
        pass_on(out)
    }

    /// What it says besides.
    pub(crate) fn errors(&mut self) -> Receiver<String> {
        let out = self.child.as_mut().unwrap().stderr.take().unwrap();
        pass_on(out)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// As Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        self.signal("-INT");
    }

    /// As a loss of power does to a process.
    pub(crate) fn kill(&self) {
        self.signal("-KILL");
    }

    fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        let status = std::process::Command::new("kill")
            .args([name, &id])
            .status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end, with its input closed.
    pub(crate) fn output(mut self) -> Output {
        self.input = None;
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn pass_on(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[test]
fn recordings_are_replayed_in_every_form() {
    let scratch = Scratch::new("archive-forms");
    let folder = scratch.path("a");
    let input = b"first\n\nthird \xff\x00 bytes\r\nlast without end";
    let output = feed(0, &["record", &folder, "--label", "text", "--json"], input);
    assert_eq!(json(&output)["messages"], 4);
    let lines = archive(0, &["replay", &folder, "text"]).stdout;
    assert_eq!(lines, [&input[..], b"\n"].concat());
    let raw = archive(0, &["replay", &folder, "1", "--output", "raw"]).stdout;
    assert_eq!(raw, b"firstthird \xff\x00 bytes\rlast without end");
    let framed = archive(0, &["replay", &folder, "text", "-o", "framed"]).stdout;
    assert_eq!(framed[..9], *b"\x05\0\0\0first");
    feed(
        0,
        &[
            "record",
            &folder,
            "--label",
            "framed",
            "--framed",
            "--frame-checksum",
        ],
        &framed,
    );
    replays(&[&folder, "framed"], &lines);
    let objects = stdout(&archive(
        0,
        &["replay", &folder, "text", "--output", "json"],
    ));
    let objects: Vec<Value> = objects
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 4);
    assert_eq!(
        (&objects[0]["text"], &objects[0]["message"]),
        (&"first".into(), &0.into())
    );
    assert_eq!(objects[2]["hex"], "746869726420ff002062797465730d");
    // From each of its positions on there are as many messages as were listed.
    for (index, object) in objects.iter().enumerate() {
        let from = object["position"].to_string();
        let rest = archive(
            0,
            &["replay", &folder, "1", "--from", &from, "--output", "json"],
        );
        assert_eq!(stdout(&rest).lines().count(), 4 - index);
        let before = archive(
            0,
            &["replay", &folder, "1", "--to", &from, "--output", "json"],
        );
        assert_eq!(stdout(&before).lines().count(), index);
    }
}

#[test]
fn a_replay_begins_and_ends_at_the_given_positions() {
    let scratch = Scratch::new("archive-range");
    let folder = scratch.path("a");
    let before = "2020-01-01";
    feed(
        0,
        &[
            "record",
            &folder,
            "--label",
            "n",
            "--segment-length",
            "4096",
        ],
        &lines(0, 5_000),
    );
    let count = |words: &[&str]| {
        let output = archive(0, &[&["replay", &folder, "n"], words].concat());
        let text = stdout(&output);
        (
            text.lines().count(),
            text.lines().next().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(count(&[]), (5_000, "line 0".into()));
    assert_eq!(
        count(&["--from-message", "4321"]),
        (679, "line 4321".into())
    );
    assert_eq!(
        count(&["--from-message", "10", "--count", "3"]),
        (3, "line 10".into())
    );
    assert_eq!(count(&["--from-time", before]), (5_000, "line 0".into()));
    assert_eq!(
        count(&["--from-time", "1h", "--count", "1"]),
        (1, "line 0".into())
    );
    error(
        &["archive", "replay", &folder, "n", "--from-message", "5001"],
        &["5001"],
    );
    error(
        &["archive", "replay", &folder, "n", "--from", "99999999"],
        &["99999999", &folder],
    );
    error(
        &["archive", "replay", &folder, "n", "--from-time", "soon"],
        &["soon", "15m"],
    );
}

#[test]
fn a_recording_is_extended_and_its_numbers_continue() {
    let scratch = Scratch::new("archive-extend");
    let folder = scratch.path("a");
    feed(0, &["record", &folder, "--label", "log"], &lines(0, 100));
    feed(0, &["record", &folder, "--extend", "log"], &lines(100, 50));
    let file = scratch.path("more.txt");
    std::fs::write(&file, lines(150, 7)).unwrap();
    feed(
        0,
        &["record", &folder, "--extend", "1", "--file", &file],
        b"",
    );
    replays(&[&folder, "log"], &lines(0, 157));
    let listed = archive_json(&["list", &folder]);
    assert_eq!(listed["recordings"][0]["messages"], 157);
    assert_eq!(listed["recordings"][0]["state"], "stopped");
}

#[test]
fn a_follower_sees_new_messages_without_a_gap() {
    let scratch = Scratch::new("archive-follow");
    let folder = scratch.path("a");
    let mut writer = RunningProgram::start(&[
        "record",
        &folder,
        "--label",
        "live",
        "--segment-length",
        "65536",
        "--acknowledge",
    ]);
    let acknowledged = writer.lines();
    writer.write(&lines(0, 10));
    acknowledged.recv_timeout(PATIENCE).unwrap();
    let mut reader = RunningProgram::start(&["replay", &folder, "live", "--follow"]);
    let seen = reader.lines();
    for number in 0..10 {
        assert_eq!(
            seen.recv_timeout(PATIENCE).unwrap(),
            format!("line {number}")
        );
    }
    // Several segments, in pieces that end anywhere.
    let (all, mut rng, mut at) = (lines(10, 20_000), Rng::from_seed(5), 0);
    while at < all.len() {
        let end = all.len().min(at + 1 + rng.index(9_000));
        writer.write(&all[at..end]);
        at = end;
    }
    for number in 10..20_010 {
        assert_eq!(
            seen.recv_timeout(PATIENCE).unwrap(),
            format!("line {number}")
        );
    }
    assert_eq!(writer.output().status.code(), Some(0));
    // What is recorded by an extension is seen too.
    feed(
        0,
        &["record", &folder, "--extend", "live"],
        b"after the end\n",
    );
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), "after the end");
    reader.interrupt();
    assert_eq!(reader.output().status.code(), Some(0));
}

#[test]
fn ctrl_c_ends_a_recording_in_good_order() {
    let scratch = Scratch::new("archive-interrupt");
    let folder = scratch.path("a");
    let mut writer = RunningProgram::start(&["record", &folder, "--label", "x", "--acknowledge"]);
    let acknowledged = writer.lines();
    writer.write(b"one\ntwo\nhalf a li");
    while !acknowledged
        .recv_timeout(PATIENCE)
        .unwrap()
        .starts_with("written 2 ")
    {}
    writer.interrupt();
    let last: Vec<String> = acknowledged.iter().collect();
    assert_eq!(writer.output().status.code(), Some(0));
    assert!(
        last.last().is_none_or(|line| line.contains("durable 2 ")),
        "{last:?}"
    );
    replays(&[&folder, "x"], b"one\ntwo\n");
    assert_eq!(
        archive_json(&["describe", &folder, "x"])["state"],
        "stopped"
    );
}

#[test]
fn wrong_input_is_refused_with_the_reason() {
    let scratch = Scratch::new("archive-wrong");
    let (folder, missing) = (scratch.path("a"), scratch.path("missing"));
    feed(0, &["record", &folder, "--label", "x"], b"1\n");
    let wrong = |words: &[&str], message: &[&str]| error(&[&["archive"], words].concat(), message);
    wrong(&["list", &missing], &[&missing]);
    assert!(
        !std::path::Path::new(&missing).exists(),
        "a question makes no archive"
    );
    wrong(&["replay", &missing, "1"], &[&missing]);
    wrong(&["replay", &folder, "7"], &["7", &folder]);
    wrong(&["replay", &folder, "y"], &["\"y\"", &folder]);
    wrong(
        &["replay", &folder, "x", "--output", "xml"],
        &["xml", "framed"],
    );
    wrong(&["describe", &folder, "2"], &["2", &folder]);
    wrong(&["list", "ftp://somewhere"], &["ftp"]);
    wrong(&["list", "tcp://127.0.0.1:1"], &["127.0.0.1:1"]);
    wrong(
        &["record", &folder, "--durability", "sometimes"],
        &["sometimes", "group"],
    );
    wrong(&["record", &folder, "--extend", "nothing"], &["nothing"]);
    wrong(&["record", &folder, "--file", &missing], &[&missing]);
    wrong(
        &["record", &folder, "--label", "y", "--extend", "x"],
        &["--extend"],
    );
    wrong(&["truncate", &folder, "x", "--to", "999999"], &["999999"]);
    let file = scratch.path("file");
    std::fs::write(&file, b"not a folder").unwrap();
    wrong(&["list", &file], &[&file]);
    let broken = feed(
        254,
        &["record", &folder, "--framed"],
        &[1, 0, 0, 0, b'a', 200, 0, 0, 0, 1],
    );
    assert!(stderr(&broken).contains("message 2"), "{}", stderr(&broken));
    let listed = archive_json(&["list", &folder]);
    assert_eq!(
        listed["recordings"][1]["messages"], 1,
        "what came before is recorded: {listed:#}"
    );
}

#[test]
fn two_writers_of_one_archive_keep_out_of_each_others_way() {
    let scratch = Scratch::new("archive-lock");
    let folder = scratch.path("a");
    let mut writer = RunningProgram::start(&["record", &folder, "--label", "x", "--acknowledge"]);
    let acknowledged = writer.lines();
    writer.write(b"1\n");
    acknowledged.recv_timeout(PATIENCE).unwrap();
    let second = feed(254, &["record", &folder, "--label", "y"], b"2\n");
    assert!(stderr(&second).contains(&folder), "{}", stderr(&second));
    // Readers are not kept out.
    replays(&[&folder, "x"], b"1\n");
    assert_eq!(
        archive_json(&["list", &folder])["recordings"][0]["state"],
        "recording"
    );
    assert_eq!(writer.output().status.code(), Some(0));
    feed(0, &["record", &folder, "--label", "y"], b"2\n");
}
