//! Nodes of one cluster as processes, and commands of the store at them.

use super::process::{PATIENCE, Server, run};
use super::scratch::Scratch;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Starts node `number` (from 1) of those at these addresses, with further options.
pub(crate) fn start_node(
    scratch: &Scratch,
    all: &[SocketAddr],
    number: usize,
    more: &[&str],
) -> Server {
    let others = (1..=all.len()).filter(|it| *it != number);
    let peers: Vec<String> = others.map(|it| format!("n{it}={}", all[it - 1])).collect();
    let (name, listen) = (number.to_string(), all[number - 1].to_string());
    let data = scratch.path(&format!("n{name}"));
    let words = [
        "node", "kv", "--node", &name, "--listen", &listen, "--data", &data,
    ];
    Server::start(&[&words[..], &["--peers", &peers.join(",")], more].concat())
}

/// The addresses as an option.
pub(crate) fn list(all: &[SocketAddr]) -> String {
    let all: Vec<String> = all.iter().map(SocketAddr::to_string).collect();
    all.join(",")
}

/// Exit status and all text of `seatrial kv` with these words.
pub(crate) fn kv(words: &[&str]) -> (i32, String) {
    let output = run(&[&["kv"], words].concat());
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap(), text)
}

/// Runs a command until its exit status is the expected one and its text contains this; the text.
pub(crate) fn until(words: &[&str], status: i32, part: &str) -> String {
    let began = Instant::now();
    loop {
        let (found, text) = kv(words);
        if found == status && text.contains(part) {
            return text;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{words:?}: {found} {text}, expected: {status} {part}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until a server has said this.
pub(crate) fn until_said(server: &Server, part: &str) {
    let began = Instant::now();
    while !server.said().iter().any(|line| line.contains(part)) {
        let said = server.said();
        assert!(began.elapsed() < PATIENCE, "{said:?}, expected: {part}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
