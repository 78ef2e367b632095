//! Servers and clients that share a key, or do not.

use super::process::{Server, run};
use super::scratch::Scratch;

const KEY: &str = "0123456789abcdef0123456789abcdef\n";

/// Ends with this exit status, and says this on standard error.
fn ends(status: i32, words: &[&str], text: &str) {
    let output = run(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{words:?}\n{said}");
    assert!(
        said.contains(text),
        "{words:?} does not say {text:?}:\n{said}"
    );
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn an_archive_talks_only_to_who_knows_its_key() {
    let scratch = Scratch::new("archive-key");
    let (folder, input) = (scratch.path("archive"), scratch.file("input", "one\ntwo\n"));
    let key = scratch.file("key", KEY);
    let other = scratch.file("other", "another key, long enough\n");
    let short = scratch.file("short", "short\n");
    let listen = ["--listen", "127.0.0.1:0"];
    let serve = ["archive", "serve", &folder, "--key-file", &key];
    let server = Server::start(&[&serve[..], &listen].concat());
    let tcp = format!("tcp://{}", server.address);
    let with = |key: &str, words: &[&str], status, text: &str| {
        let words = [&["archive"], words, &["--key-file", key]].concat();
        ends(status, &words, text);
    };
    let record = ["record", &tcp, "--label", "x", "--file", &input];
    with(&key, &record, 0, "recording 1");
    with(&key, &["list", &tcp], 0, "");
    let copies = scratch.path("copies");
    with(&key, &["copy", &tcp, &copies], 0, "");
    let wrong = "refused by the server: the key is not that of this server";
    with(&other, &["list", &tcp], 254, wrong);
    let missing = "refused by the server: a key is needed (--key-file)";
    ends(254, &["archive", "list", &tcp], missing);
    ends(254, &["archive", "replay", &tcp, "x"], missing);
    let length = "a key has 16 to 4096 bytes";
    with(&short, &["list", &tcp], 254, length);
    with(&scratch.path("nothing"), &["list", &tcp], 254, "nothing");
    let said = server.said();
    assert!(
        said.iter()
            .any(|line| line.contains("was refused: the key is not")),
        "{said:?}"
    );
    drop(server);
    // A client that expects a key does not talk to a server that has none.
    let server = Server::start(&[&["archive", "serve", &folder], &listen[..]].concat());
    let tcp = format!("tcp://{}", server.address);
    with(&key, &["list", &tcp], 254, "the server has no key");
    ends(0, &["archive", "list", &tcp], "");
    // Nor does it take one server for another.
    let data = scratch.path("data");
    let node = Server::start(&[&["node", "kv", "--data", &data], &listen[..]].concat());
    let tcp = format!("tcp://{}", node.address);
    ends(
        254,
        &["archive", "list", &tcp],
        "unsupported protocol archive 2 (expected kv 3)",
    );
}

#[test]
fn a_test_runs_with_a_key() {
    let scratch = Scratch::new("kv-key");
    let (out, key) = (scratch.path("run"), scratch.file("key", KEY));
    let words = [
        "test",
        "kv",
        "--time",
        "2",
        "--faults",
        "none",
        "--out",
        &out,
        "--key-file",
        &key,
    ];
    ends(0, &words, "");
}
