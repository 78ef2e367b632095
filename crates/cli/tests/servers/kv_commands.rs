//! `seatrial kv`: its commands against nodes as processes.

use super::process::{PATIENCE, Server, binary, free_addresses, run};
use super::scratch::Scratch;
use crate::spoken;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a command of the store printed, and its exit status.
struct Said {
    status: i32,
    out: String,
    error: String,
}

fn said(output: &std::process::Output) -> Said {
    let said = Said {
        status: output.status.code().unwrap(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(!said.error.contains("panicked"), "{}", said.error);
    said
}

/// `seatrial kv` with these words at these servers.
fn kv(servers: &str, words: &[&str]) -> Said {
    let words = [&["kv"], words, &["--server", servers]].concat();
    said(&run(&words))
}

/// The same with something on standard input.
fn kv_with_input(servers: &str, words: &[&str], input: &[u8]) -> Said {
    let mut command = Command::new(binary());
    command
        .arg("kv")
        .args(words)
        .args(["--server", servers])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spoken::spawn(&mut command);
    child.stdin.take().unwrap().write_all(input).unwrap();
    said(&child.wait_with_output().unwrap())
}

/// Asserts exit status and output; `error` is part of standard error.
fn assert_said(said: &Said, status: i32, out: &str, error: &str) {
    let shown = format!("{} {:?} {:?}", said.status, said.out, said.error);
    assert_eq!(said.status, status, "{shown}");
    assert_eq!(said.out, out, "{shown}");
    assert!(said.error.contains(error), "{shown}");
}

fn node(data: &str) -> Server {
    Server::start(&["node", "kv", "--listen", "127.0.0.1:0", "--data", data])
}

#[test]
fn each_command_has_its_answer_and_exit_status() {
    let scratch = Scratch::new("kv-commands");
    let server = node(&scratch.path("data"));
    let at = &server.address.to_string();
    let gives = |words: &[&str], status, out: &str, error: &str| {
        assert_said(&kv(at, words), status, out, error);
    };
    gives(&["get", "a"], 1, "", "absent");
    gives(&["put", "a", "1"], 0, "ok\n", "");
    gives(&["get", "a"], 0, "1\n", "");
    gives(
        &["put", "a", "3", "--expect", "2"],
        1,
        "",
        "not executed: compare-failed (operation 0)",
    );
    gives(&["put", "a", "3", "--expect", "1"], 0, "ok\n", "");
    gives(&["put", "a", "4", "--absent"], 1, "", "compare-failed");
    gives(&["append", "list", "x"], 0, "ok\n", "");
    gives(&["append", "list", "-5"], 0, "ok\n", "");
    gives(&["get", "list"], 0, "x\n-5\n", "");
    gives(&["append", "a", "x"], 1, "", "wrong-kind");
    gives(&["put", "00ff", "ff", "--hex"], 0, "ok\n", "");
    gives(&["get", "00ff", "--hex"], 0, "ff\n", "");
    gives(
        &["scan"],
        0,
        "\\u0000\\xff\t\\xff\na\t3\nlist\t[x, -5]\n",
        "",
    );
    gives(&["scan", "a", "b"], 0, "a\t3\n", "");
    gives(&["scan", "a", "--limit", "1"], 0, "a\t3\n(more keys)\n", "");
    let json =
        "{\"outcome\":\"committed\",\"answers\":[{\"kind\":\"register\",\"value\":\"3\"}]}\n";
    gives(&["get", "a", "--json"], 0, json, "");
    gives(&["delete", "a"], 0, "ok\n", "");
    gives(&["delete", "a"], 0, "ok\n", "");
    gives(&["get", "a"], 1, "", "absent");
}

#[test]
fn values_and_transactions_come_from_files_and_standard_input() {
    let scratch = Scratch::new("kv-inputs");
    let server = node(&scratch.path("data"));
    let at = &server.address.to_string();
    let gives = |words: &[&str], status, out: &str, error: &str| {
        assert_said(&kv(at, words), status, out, error);
    };
    let file = scratch.file("value", "from a file\n");
    gives(&["put", "f", "--file", &file], 0, "ok\n", "");
    assert_said(
        &kv_with_input(at, &["put", "g", "-"], b"input"),
        0,
        "ok\n",
        "",
    );
    let text = b"# both or neither\ncas g input \"new value\"\nread g\nread absent\nappend list y\nscan f - 2\n";
    let out = "ok\nnew value\nabsent\nok\nf\tfrom a file\n\ng\tnew value\n(more keys)\n";
    assert_said(&kv_with_input(at, &["txn"], text), 0, out, "");
    let refused = kv_with_input(at, &["txn", "-"], b"write h 1\ncas g input other\n");
    assert_said(&refused, 1, "", "compare-failed (operation 1)");
    gives(&["get", "h"], 1, "", "absent");
    assert_refused(&gives, at, &file, &scratch.path("nothing"));
}

/// Bad input is refused with the reason.
/// Runs a command with these arguments and compares its status and what it says.
type Gives<'a> = dyn Fn(&[&str], i32, &str, &str) + 'a;

fn assert_refused(gives: &Gives<'_>, at: &str, file: &str, nothing: &str) {
    let wrong = kv_with_input(at, &["txn"], b"read a\nreed b\n");
    assert_said(&wrong, 254, "", "line 2: an operation is read KEY");
    gives(&["put", "k"], 254, "", "the value is missing");
    gives(
        &["get", "0g", "--hex"],
        254,
        "",
        "key is not hexadecimal: \"0g\"",
    );
    gives(
        &["get", &"k".repeat(1_025)],
        254,
        "",
        "key of 1025 bytes, at most 1024 are allowed",
    );
    gives(
        &["scan", "--limit", "1001"],
        254,
        "",
        "--limit takes a whole number from 1 to 1000",
    );
    gives(
        &["put", "k", "v", "--file", file],
        254,
        "",
        "give a value or --file, not both",
    );
    gives(
        &["put", "k", "--file", nothing],
        254,
        "",
        "nothing: No such file",
    );
    assert_said(
        &kv("nowhere", &["get", "a"]),
        254,
        "",
        "is no address and port such as",
    );
}

#[test]
fn servers_are_tried_in_turn_and_need_the_key() {
    let scratch = Scratch::new("kv-servers");
    let key = scratch.file("key", "0123456789abcdef0123456789abcdef\n");
    let data = scratch.path("data");
    let words = [
        "node",
        "kv",
        "--listen",
        "127.0.0.1:0",
        "--data",
        &data,
        "--key-file",
        &key,
    ];
    let server = Server::start(&words);
    let live = server.address.to_string();
    let dead = free_addresses(1)[0].to_string();
    let both = format!("{dead},{live}");
    let with_key =
        |servers: &str, words: &[&str]| kv(servers, &[words, &["--key-file", &key]].concat());
    assert_said(&with_key(&both, &["put", "a", "1"]), 0, "ok\n", "");
    assert_said(&with_key(&both, &["get", "a"]), 0, "1\n", "");
    assert_said(
        &with_key(&dead, &["get", "a"]),
        254,
        "",
        &format!("no server: {dead}: "),
    );
    assert_said(
        &kv(&live, &["get", "a"]),
        254,
        "",
        "a key is needed (--key-file)",
    );
    let status = with_key(&both, &["status"]);
    assert_eq!(status.status, 1, "{}", status.error);
    let lines: Vec<&str> = status.out.lines().collect();
    assert!(
        lines[0].starts_with(&format!("{dead}  no answer: ")),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("n1 of cluster 1: leader, term 1, leader n1, members n1; log "),
        "{lines:?}"
    );
    assert!(lines[1].contains("; 1 keys, "), "{lines:?}");
    assert_said(
        &with_key(&dead, &["status", "--timeout", "1"]),
        254,
        &with_key(&dead, &["status"]).out,
        "no server answered",
    );
}

#[test]
fn three_nodes_serve_at_any_address_and_without_one_of_them() {
    let scratch = Scratch::new("kv-three");
    let addresses = free_addresses(3);
    let mut servers: Vec<Server> = (0..3)
        .map(|own| {
            let peers: Vec<String> = (0..3)
                .filter(|peer| *peer != own)
                .map(|peer| format!("n{}={}", peer + 1, addresses[peer]))
                .collect();
            let (number, listen) = ((own + 1).to_string(), addresses[own].to_string());
            let data = scratch.path(&format!("n{number}"));
            let words = [
                "node", "kv", "--node", &number, "--listen", &listen, "--data", &data,
            ];
            Server::start(&[&words[..], &["--peers", &peers.join(",")]].concat())
        })
        .collect();
    let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    assert_said(&kv(&all.join(","), &["put", "a", "1"]), 0, "ok\n", "");
    for address in &all {
        assert_said(&kv(address, &["get", "a"]), 0, "1\n", "");
    }
    let status = kv(&all.join(","), &["status", "--json"]);
    assert_eq!(status.status, 0, "{}", status.error);
    assert_eq!(
        status.out.matches("\"role\":\"leader\"").count(),
        1,
        "{}",
        status.out
    );
    assert_eq!(
        status
            .out
            .matches("\"voters\":[\"n1\",\"n2\",\"n3\"]")
            .count(),
        3,
        "{}",
        status.out
    );
    // A node less is no obstacle, whichever it is; two less are one: nothing is executed, and the command says so.
    drop(servers.remove(0));
    let began = Instant::now();
    assert_said(
        &kv(&all.join(","), &["put", "a", "2", "--timeout", "30"]),
        0,
        "ok\n",
        "",
    );
    assert!(began.elapsed() < PATIENCE);
    drop(servers.remove(0));
    let last = kv(&all[2], &["put", "a", "3", "--timeout", "1"]);
    assert_said(&last, 254, "", "no session in 1s");
    let status = kv(&all[2], &["status"]);
    assert!(
        status.status == 0 && status.out.contains("n3 of cluster 1"),
        "{}",
        status.out
    );
}
