//! The helpers for Python, Go and JavaScript, and their examples.

use crate::scratch::Scratch;
use crate::{expect, has, json};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Builds a program of the Go module.
fn go(name: &str, folder: &Scratch) -> String {
    let binary = folder.path(name);
    let mut command = Command::new("go");
    command.args(["build", "-o", &binary, &format!("./{name}")]);
    let status = command.current_dir(clients().join("go")).status().unwrap();
    assert!(status.success(), "go build {name}");
    binary
}

/// The findings of a client without a server.
fn keeps_the_protocol(folder: &Scratch, command: &[&str]) {
    let words = [&["client", "check", "--json", "--"], command].concat();
    let found = json(0, folder, &words);
    assert_eq!(found["findings"].as_array().unwrap().len(), 0, "{found:#}");
    let notes = found["notes"].to_string();
    assert!(
        notes.contains("`write`") && notes.contains("0 info"),
        "operations were tried: {notes}"
    );
}

#[test]
fn the_helper_for_python_keeps_the_protocol() {
    if has(&["python3"]) {
        let folder = Scratch::new("helpers");
        let client = clients().join("python/echo.py").display().to_string();
        keeps_the_protocol(&folder, &["python3", &client]);
    }
}

#[test]
fn the_helper_for_javascript_keeps_the_protocol() {
    if has(&["node"]) {
        let folder = Scratch::new("helpers");
        let client = clients().join("javascript/echo.js").display().to_string();
        keeps_the_protocol(&folder, &["node", &client]);
    }
}

#[test]
fn the_helper_for_go_keeps_the_protocol() {
    if has(&["go"]) {
        let folder = Scratch::new("helpers");
        let client = go("echo", &folder);
        keeps_the_protocol(&folder, &[&client]);
    }
}

/// A Redis of this test, killed when it is dropped.
struct Redis(Child, u16);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn redis() -> Redis {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut command = Command::new("redis-server");
    command
        .args(["--port", &port.to_string(), "--save", "", "--dir", "/tmp"])
        .stdout(Stdio::null());
    let redis = Redis(command.spawn().unwrap(), port);
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return redis;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("redis-server does not listen");
}

#[test]
fn the_examples_talk_to_redis() {
    if !has(&["redis-server", "go", "node"]) {
        return;
    }
    let folder = Scratch::new("helpers");
    let redis = redis();
    let address = format!("127.0.0.1:{}", redis.1);
    let go = go("redis", &folder);
    let javascript = clients().join("javascript/redis.js").display().to_string();
    for command in [vec![go.as_str()], vec!["node", &javascript]] {
        let words = [
            "client",
            "check",
            "--workload",
            "cas-register",
            "--address",
            &address,
            "--",
        ];
        let text = expect(0, &folder, &[&words[..], &command].concat());
        assert!(text.contains("the client keeps the protocol"), "{text}");
    }
}

#[test]
fn a_client_that_does_not_is_reported() {
    let folder = Scratch::new("helpers");
    let text = expect(
        1,
        &folder,
        &[
            "client",
            "check",
            "--",
            "sh",
            "-c",
            "echo ready; cat >/dev/null",
        ],
    );
    assert!(
        text.contains("hello: expected a line with a JSON object, got \"ready\""),
        "{text}"
    );
    let text = expect(
        254,
        &folder,
        &["client", "check", "--workload", "sett", "--", "cat"],
    );
    assert!(text.contains("unknown workload `sett`"), "{text}");
}
