//! Diagnostics of servers on standard error: a disk that fails, levels, the log file of a test's node.

use super::process::{Server, binary, run};
use super::scratch::Scratch;
use std::process::Command;
use std::time::{Duration, Instant};

/// Waits for a line of the server's standard error with all these texts.
fn wait_for(server: &Server, texts: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let said = server.said();
        if said
            .iter()
            .any(|line| texts.iter().all(|text| line.contains(text)))
        {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no line with {texts:?} in {said:#?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_whose_disk_fails_logs_an_error() {
    let scratch = Scratch::new("log-disk");
    let folder = scratch.path("archive");
    // A file larger than this is an error of the write, as on a full disk; ignored, the signal kills nothing.
    let limit = "trap '' XFSZ; ulimit -f 1024;";
    let words = ["archive", "serve", &folder, "--listen", "127.0.0.1:0"];
    let mut server = Server::start_after(limit, &words);
    let tcp = format!("tcp://{}", server.address);
    let input = scratch.file("input", &"a line of some length\n".repeat(200_000));
    let output = run(&["archive", "record", &tcp, "--label", "x", "--file", &input]);
    assert_eq!(output.status.code(), Some(254), "{output:?}");
    wait_for(&server, &[" ERROR ", "cannot be written"]);
    assert!(server.is_running(), "other recordings go on");
}

#[test]
fn the_level_filters_log_lines() {
    let scratch = Scratch::new("log-level");
    let folder = scratch.path("archive");
    let words = ["archive", "serve", &folder, "--listen", "127.0.0.1:0"];
    let server = Server::start(&words);
    run(&["archive", "list", &format!("tcp://{}", server.address)]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.said(), [""; 0], "nothing is wrong");
    drop(server);
    let server = Server::start_after("export SEATRIAL_LOG=debug;", &words);
    run(&["archive", "list", &format!("tcp://{}", server.address)]);
    wait_for(&server, &[" INFO ", "serving at 127.0.0.1:"]);
    wait_for(&server, &["DEBUG", "connection of"]);
    for verb in ["list", "serve"] {
        let mut command = Command::new(binary());
        command
            .args(["archive", verb, &folder])
            .env("SEATRIAL_LOG", "loud");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(254), "{said}");
        let expected = "seatrial: SEATRIAL_LOG: unknown level `loud` (available: off, error, warn, info, debug, trace)\n";
        assert_eq!(said, expected);
    }
}

#[test]
fn a_nodes_log_file_has_its_diagnostics() {
    let scratch = Scratch::new("log-node");
    let out = scratch.path("run");
    let mut command = Command::new(binary());
    command.args([
        "test",
        "kv",
        "--workload",
        "register",
        "--time",
        "1",
        "--out",
        &out,
    ]);
    let output = command.env("SEATRIAL_LOG", "info").output().unwrap();
    let log = std::fs::read_to_string(format!("{out}/n1.log")).unwrap();
    assert!(log.contains(" INFO "), "{log}\n{output:?}");
    assert!(log.contains("serving at 127.0.0.11:"), "{log}");
}
