//! Wrong files, missing programs, nodes that are not ready, clients that fail.

use crate::scratch::Scratch;
use crate::{beginning, checker, expect, has, json};
use std::fs;
use std::net::TcpListener;

/// A file with a node that does nothing, and a client.
fn file(changes: &[(&str, &str)]) -> Scratch {
    let mut text = "[system]\nname = 'mine'\ncommand = ['sleep', '600']\nready = { command = ['true'] }\nfaults = []\n\
[client]\ncommand = ['sh', '{home}/client.sh']\nworkloads = ['register']\n"
        .to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let folder = Scratch::new("bad-system");
    fs::write(folder.path("mine.toml"), text).unwrap();
    fs::write(folder.path("client.sh"), "exit 3\n").unwrap();
    folder
}

fn fails(changes: &[(&str, &str)], message: &str) {
    let folder = file(changes);
    let text = expect(
        254,
        &folder,
        &["test", "mine.toml", "--time", "1", "--out", "run"],
    );
    assert!(text.contains(message), "{message}:\n{text}");
}

#[test]
fn wrong_files_are_errors_with_line_and_column() {
    fails(
        &[("'600'", "'{adress}'")],
        "mine.toml:3:23: system.command[1]: unknown word `{adress}`",
    );
    fails(
        &[("faults", "fautls")],
        "mine.toml:5:1: system: unknown key \"fautls\"; did you mean \"faults\"?",
    );
    fails(
        &[("faults = []", "faults = ['kil']")],
        "mine.toml:5:11: system.faults[0]: unknown fault \"kil\"; did you mean \"kill\"?",
    );
    fails(
        &[("['register']", "['registr']")],
        "mine.toml:8:14: client.workloads[0]: unknown workload",
    );
    fails(
        &[("'mine'", "'Mine'")],
        "mine.toml:2:8: system.name: must be a name of up to 64 lower-case letters",
    );
    fails(&[("'mine'", "'kv'")], "\"kv\" is a suite of this program");
    fails(&[("{home}", "{address}")], "has no value here");
    fails(
        &[("['true']", "[]")],
        "system.ready.command: must be a list of a program",
    );
    fails(&[("[client]", "[[client]]")], "client: must be a table");
    fails(
        &[("workloads = ['register']", "")],
        "missing key `workloads`",
    );
    fails(
        &[("faults = []", "stop = { signal = 'TERM' }")],
        "unknown signal \"TERM\"",
    );
    let folder = Scratch::new("bad-system");
    let text = expect(254, &folder, &["test", "absent.toml"]);
    assert!(text.contains("absent.toml: No such file"), "{text}");
    let text = expect(254, &folder, &["test", "my-redis"]);
    assert!(
        text.contains("unknown suite `my-redis`") && text.contains("seatrial init"),
        "{text}"
    );
}

#[test]
fn a_file_is_checked_without_its_programs() {
    let folder = file(&[("'sleep'", "'no-such-server'")]);
    let text = expect(0, &folder, &["plan", "check", "mine.toml"]);
    assert!(
        text.contains("system: 1 node; workloads: register"),
        "{text}"
    );
    assert!(text.contains("cas-register"), "its checker: {text}");
    let wrong = [
        (
            ("'600'", "'{adress}'"),
            "mine.toml:3:23: system.command[1]: unknown word `{adress}` (available: name",
        ),
        (
            ("'register'", "'regster'"),
            "mine.toml:8:14: client.workloads[0]: unknown workload \"regster\"",
        ),
        (
            ("faults = []", "faults = ['kil']"),
            "mine.toml:5:11: system.faults[0]: unknown fault \"kil\"",
        ),
        (
            ("faults = []", "state = 'tcp'"),
            "mine.toml:5:9: system.state: a connection has no text",
        ),
        (
            ("faults = []", "failures = ['(']"),
            "mine.toml:5:13: system.failures[0]: ",
        ),
    ];
    for (change, message) in wrong {
        let folder = file(&[change]);
        let text = expect(254, &folder, &["plan", "check", "mine.toml"]);
        assert!(text.contains(message), "{message}:\n{text}");
    }
    // A plan in the file is checked with the words of its system.
    let folder = file(&[]);
    let text = fs::read_to_string(folder.path("mine.toml")).unwrap();
    let plan = |words: &str| format!("{text}[[phases]]\n{words}\n[test]\ncheckers = ['stats']\n");
    fs::write(folder.path("mine.toml"), plan("workload = 'register'")).unwrap();
    let shown = expect(0, &folder, &["plan", "check", "mine.toml"]);
    assert!(shown.contains("checkers: stats"), "{shown}");
    fs::write(folder.path("mine.toml"), plan("workload = 'set'")).unwrap();
    let shown = expect(254, &folder, &["plan", "check", "mine.toml"]);
    assert!(
        shown.contains("mine.toml:10:12: ") && shown.contains("unknown workload \"set\""),
        "{shown}"
    );
    let other = ["plan", "check", "mine.toml", "--suite", "kv"];
    let text = expect(254, &folder, &other);
    assert!(text.contains("describes a system of its own"), "{text}");
}

#[test]
fn missing_programs_are_named_with_the_remedy() {
    let install = "'mine'\ninstall = 'apt-get install my-server'";
    fails(
        &[("'mine'", install), ("'sleep'", "'my-server'")],
        "mine.toml:4:11: system.command: \"my-server\": no such program in PATH; install it: apt-get install my-server",
    );
    fails(
        &[("'sh', '{home}/client.sh'", "'./my-client'")],
        "mine.toml:7:11: client.command: \"./my-client\": no such program",
    );
}

#[test]
fn nodes_that_do_not_start_end_the_test_with_their_log() {
    fails(
        &[
            (
                "['sleep', '600']",
                "'echo cannot open the database; exit 7'",
            ),
            ("['true']", "['false']"), // it is not ready before it ends
        ],
        "n1 exited (exit status: 7) before it was ready; the last lines of",
    );
    fails(
        &[
            (
                "['sleep', '600']",
                "'echo waiting for a quorum; exec sleep 600'",
            ),
            (
                "ready = { command = ['true'] }",
                "ready = { command = 'echo 0 members', pattern = '3 members' }\nready_time = '1s'",
            ),
        ],
        "no line of the answer matches \"3 members\": 0 members; the last lines of",
    );
    fails(
        &[("faults = []", "setup = [\"echo no space left; exit 1\"]")],
        "n1: setup: `sh -c echo no space left; exit 1` failed",
    );
    let taken = TcpListener::bind("127.0.0.11:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = file(&[]);
    let text = expect(
        254,
        &folder,
        &["test", "mine.toml", "--port", &port, "--out", "run"],
    );
    assert!(text.contains(&format!("port {port} is in use")), "{text}");
}

#[test]
fn clients_that_do_not_greet_end_the_test_before_it_begins() {
    fails(&[], "did not greet: the client ended (exit status: 3)");
    for (script, message) in [
        (
            "echo hello, world; cat >/dev/null",
            "expected a line with a JSON object, got \"hello, world\"",
        ),
        (
            "echo '{\"type\":\"hello\",\"protocol\":2}'; cat >/dev/null",
            "expected version 1 of the client protocol, got 2",
        ),
        (
            "echo no token >&2; exit 1",
            "the end of its standard error: no token",
        ),
    ] {
        let folder = file(&[]);
        fs::write(folder.path("client.sh"), script).unwrap();
        let text = expect(
            254,
            &folder,
            &["test", "mine.toml", "--time", "1", "--out", "run"],
        );
        assert!(text.contains(message), "{message}:\n{text}");
    }
}

/// A client in Python that answers correctly, but for each 25th operation.
fn faulty(fault: &str) -> Scratch {
    let folder = beginning(
        "blank",
        &[(
            "command = [\"python3\", \"{folder}/client.py\"]",
            "command = [\"python3\", \"{home}/faulty.py\"]",
        )],
    );
    let program = format!(
        r#"
import json, os, sys, time
# A process that is started again knows what the last one wrote.
values = json.load(open("values.json")) if os.path.exists("values.json") else {{}}
def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    m = json.loads(line)
    if m["type"] == "hello":
        say(type="hello", protocol=1)
    elif m["type"] == "open":
        say(type="opened", worker=m["worker"])
    elif m["type"] == "invoke":
        i = m["id"]
        if i % 25 == 24:
            sys.stderr.write("operation %d fails\n" % i)
            sys.stderr.flush()
            {fault}
        if m["f"] == "write":
            values[str(m["key"])] = m["value"]
            json.dump(values, open("values.json", "w"))
            say(type="ok", id=i)
        else:
            say(type="ok", id=i, value=values.get(str(m["key"])))
"#
    );
    fs::write(folder.path("faulty.py"), program).unwrap();
    folder
}

/// Runs a test of 60 operations with one client at a time; returns results and listing. They take 1 to 3 s, and longer where
/// Python starts slowly.
fn outcome(folder: &Scratch, status: i32) -> (serde_json::Value, String) {
    let words = [
        "test",
        "my-system.toml",
        "--faults",
        "none",
        "--ops",
        "60",
        "--time",
        "30",
        "--concurrency",
        "1",
        "--timeout",
        "0.5",
        "--out",
        "run",
        "--json",
    ];
    let results = json(status, folder, &words);
    let listing = expect(0, folder, &["show", "run/history.sea"]);
    (results, listing)
}

#[test]
fn breaches_of_the_protocol_make_a_verdict_unknown() {
    if !has(&["python3"]) {
        return;
    }
    for (fault, message) in [
        (
            "say(type=\"ok\", id=i, value=\"x\"); continue",
            "as its value, got",
        ),
        (
            "say(type=\"ok\", id=i + 1000, value=1)",
            "which was never invoked",
        ),
        ("say(type=\"ok\", id=i - 1, value=1)", "was answered twice"),
        (
            "say(type=\"okay\", id=i); continue",
            "expected `type` to be hello",
        ),
    ] {
        let folder = faulty(fault);
        let (results, listing) = outcome(&folder, 2);
        let reason = checker(&results, "client-protocol").to_string();
        assert!(reason.contains(message), "{fault}: {reason}\n{listing}");
        assert!(listing.contains("client_fault"), "{fault}: {listing}");
        let again = json(2, &folder, &["check", "run/history.sea", "--json"]);
        assert_ne!(
            checker(&again, "client-protocol")["valid"],
            true,
            "{again:#}"
        );
    }
}

#[test]
fn clients_that_hang_or_die_cost_their_operations_only() {
    if !has(&["python3"]) {
        return;
    }
    for (fault, message) in [
        (
            "sys.exit(9)",
            "the client ended (exit status: 9); the end of its standard error: operation",
        ),
        (
            "time.sleep(600)",
            "no answer within 1 s (the deadline was 0.5 s); the end of its standard error: operation",
        ),
    ] {
        let folder = faulty(fault);
        let (results, listing) = outcome(&folder, 0);
        assert!(listing.contains(message), "{message}:\n{listing}");
        assert!(!listing.contains("client_fault"), "{listing}");
        assert!(
            results["counts"]["ok"].as_u64().unwrap() > 20,
            "it was started again: {results:#}"
        );
        assert_eq!(checker(&results, "client-protocol")["valid"], true);
    }
}
