//! `seatrial node kv --http`: the status of a node as a process, and requests that are none.

use super::process::{PATIENCE, Server, run};
use super::scratch::Scratch;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A node with a status page, and the page's address.
fn node(scratch: &Scratch) -> (Server, SocketAddr) {
    let data = scratch.path("data");
    let words = [
        "node",
        "kv",
        "--listen",
        "127.0.0.1:0",
        "--data",
        &data,
        "--http",
        "0",
    ];
    let server = Server::start(&words);
    let said = server.said();
    let line = said
        .iter()
        .find_map(|line| line.strip_prefix("status page at http://"));
    let address = line.unwrap().trim_end_matches('/').parse().unwrap();
    (server, address)
}

/// Sends bytes and returns all that comes back.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(request); // the node may have had enough
    let mut reply = Vec::new();
    let mut piece = [0; 4_096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        reply.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(reply).unwrap()
}

/// The reply to a GET once it contains this text.
fn get_with(address: SocketAddr, path: &str, text: &str) -> String {
    let began = Instant::now();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
    loop {
        let reply = exchange(address, request.as_bytes());
        if reply.contains(text) {
            assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
            return reply;
        }
        assert!(began.elapsed() < PATIENCE, "no {text} in {reply}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_node_shows_what_it_is_and_does() {
    let scratch = Scratch::new("kv-status-page");
    let (server, status) = node(&scratch);
    let at = server.address.to_string();
    for _ in 0..3 {
        assert!(
            run(&["kv", "put", "a", "12345", "--server", &at])
                .status
                .success()
        );
    }
    assert!(run(&["kv", "get", "a", "--server", &at]).status.success());
    let metrics = get_with(status, "/metrics", "\nseatrial_kv_read_seconds_count 1\n");
    for line in [
        "seatrial_kv_is_leader 1",
        "seatrial_kv_term 1",
        "seatrial_kv_write_seconds_count 3",
        "seatrial_kv_keys 1",
        "seatrial_kv_requests_refused_total 0",
        "seatrial_kv_checkpoint_index 0",
        "# TYPE seatrial_kv_journal_bytes gauge",
        "# TYPE seatrial_log_write_seconds histogram",
        "# TYPE seatrial_messages_dropped_total counter",
        "# TYPE process_resident_memory_bytes gauge",
    ] {
        assert!(
            metrics.contains(&format!("\n{line}\n")),
            "no {line} in {metrics}"
        );
    }
    let page = get_with(status, "/", "<dt>role</dt><dd>leader</dd>");
    for text in [
        "<h1>kv n1</h1>",
        "<figcaption>Latency in this node</figcaption>",
        "<h2>Members</h2>",
    ] {
        assert!(page.contains(text), "no {text} in {page}");
    }
    let json = get_with(status, "/status.json", "\"facts\"");
    assert!(
        json.contains("\"leader\":\"n1\"") && !json.contains("12345"),
        "{json}"
    );
}

#[test]
fn requests_that_are_none_cost_the_node_nothing() {
    let scratch = Scratch::new("kv-status-attack");
    let (server, status) = node(&scratch);
    let at = server.address.to_string();
    // Slow ones, which keep their half request; one that never ends; garbage; and the node's own protocol.
    let slow: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(status).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    let mut endless = b"GET / HTTP/1.1\r\nHost: ".to_vec();
    endless.resize(16 << 20, b'a');
    assert!(!exchange(status, &endless).contains("200 OK"));
    for garbage in [
        &b"\0\0\0\x18seatrial\x01\x01"[..],
        b"\x16\x03\x01\x02\0",
        b"GET\r\n\r\n",
    ] {
        assert!(!exchange(status, garbage).contains("200 OK"));
    }
    let began = Instant::now();
    assert!(
        run(&["kv", "put", "a", "1", "--server", &at])
            .status
            .success()
    );
    get_with(status, "/metrics", "seatrial_kv_keys 1");
    assert!(began.elapsed() < PATIENCE);
    drop(slow);
    let most = server.most_memory();
    assert!(most.is_none_or(|most| most < super::MEMORY_MAX), "{most:?}");
}

#[test]
fn an_address_that_is_none_or_taken_is_refused() {
    let scratch = Scratch::new("kv-status-address");
    let (_server, status) = node(&scratch);
    let data = scratch.path("other");
    for (address, text) in [
        (
            "here",
            "--http takes a port, or an address and port such as 127.0.0.1:9400, not \"here\"",
        ),
        (&status.to_string(), &format!("cannot listen on {status}")),
    ] {
        let output = run(&[
            "node",
            "kv",
            "--listen",
            "127.0.0.1:0",
            "--data",
            &data,
            "--http",
            address,
        ]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(254), "{said}");
        assert!(said.contains(text), "{said}");
    }
}
