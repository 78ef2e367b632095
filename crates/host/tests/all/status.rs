//! The status page, metrics and JSON of a machine, asked for by clients that mean well and by others.

use crate::wire::{PATIENCE, PROTOCOL, open, receive, send};
use seatrial_host::{HostLimits, ListenOptions, PeerOptions, StatusListener, serve_machine};
use seatrial_machine::{Input, LinePart, Machine, Output, StatusSheet, Time};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Replies to each message and counts them.
#[derive(Default)]
struct Described {
    count: u64,
}

impl Machine for Described {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Message { from, bytes } => {
                self.count += 1;
                out.push(Output::Send {
                    to: from,
                    message: bytes,
                });
            }
            Input::Request(ticket, ()) => out.push(Output::Reply(ticket, ())),
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }

    fn describe(&self, _: Time, sheet: &mut StatusSheet) {
        sheet.fact("role", "<echo>");
        sheet.counter("echoes_total", "Messages sent back", self.count);
        sheet.chart("Echoes", &[("echoes", "echoes_total", LinePart::Rate)]);
        let row = vec!["one".to_owned(), self.count.to_string()];
        sheet.table("Messages", &["name", "count"], vec![row]);
    }
}

/// A server on a thread of its own, which ends when this is dropped.
struct StatusServer {
    address: SocketAddr,
    status: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

fn start() -> StatusServer {
    let any = "127.0.0.1:0".parse().unwrap();
    let http = StatusListener::bind(any, "a test").unwrap();
    let status = http.address();
    let options = ListenOptions {
        listen: any,
        message_length_max: 64,
        limits: HostLimits::default(),
        protocol: PROTOCOL,
        http: Some(http),
        tls: None,
        key: None,
        peers: PeerOptions::default(),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, address) = mpsc::channel();
    let thread = thread::spawn(move || {
        let ready = move |address| ready.send(address).unwrap();
        let stopped = async {
            let _ = stopped.await;
        };
        serve_machine(options, Described::default(), (), ready, stopped).unwrap();
    });
    StatusServer {
        address: address.recv_timeout(PATIENCE).unwrap(),
        status,
        stop: Some(stop),
        thread: Some(thread),
    }
}

/// Sends bytes and returns all that comes back; a reset ends it as well.
fn exchange(status: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(status).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(request); // the server may have had enough
    let mut reply = Vec::new();
    let mut piece = [0; 4_096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        reply.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(reply).unwrap()
}

/// Head and body of the reply to a GET.
fn get(status: SocketAddr, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let reply = exchange(status, request.as_bytes());
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

/// The body at a path, once it contains this text.
fn get_with(status: SocketAddr, path: &str, text: &str) -> String {
    let began = Instant::now();
    loop {
        let (head, body) = get(status, path);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        if body.contains(text) {
            return body;
        }
        assert!(began.elapsed() < PATIENCE, "no {text} in {body}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Sends messages to the machine and waits for its replies.
fn echo(address: SocketAddr, count: usize) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    open(&stream, None).unwrap();
    for _ in 0..count {
        send(&stream, b"hello");
        assert_eq!(receive(&stream).unwrap(), b"hello");
    }
}

#[test]
fn a_machine_is_shown_as_it_describes_itself() {
    let server = start();
    echo(server.address, 7);
    let page = get_with(server.status, "/", "<td>one</td><td>7</td>");
    for text in [
        "<h1>a test</h1>",
        "<dd>&lt;echo&gt;</dd>",
        "<figcaption>Echoes</figcaption>",
        "<h2>Messages</h2>",
        "seatrial_turn_seconds",
    ] {
        assert!(page.contains(text), "no {text} in {page}");
    }
    assert!(!page.contains("src="), "it loads nothing");
    let (head, _) = get(server.status, "/");
    assert!(
        head.contains("content-security-policy: default-src 'none'"),
        "{head}"
    );
    let (head, text) = get(server.status, "/metrics");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(text.contains("\nseatrial_echoes_total 7\n"), "{text}");
    assert_valid_metrics(&text);
    let (_, json) = get(server.status, "/status.json");
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["facts"]["role"], "<echo>");
    assert_eq!(document["tables"][0]["rows"][0][1], "7");
    let metrics = document["metrics"].as_array().unwrap();
    let echoes = metrics
        .iter()
        .find(|it| it["name"] == "seatrial_echoes_total");
    assert_eq!(echoes.unwrap()["value"], 7.0);
    assert!(document["age-seconds"].as_f64().unwrap() < PATIENCE.as_secs_f64());
}

/// Asserts what Prometheus demands of its text format: one head a name, all samples of a name together, buckets that rise to
/// the count.
fn assert_valid_metrics(text: &str) {
    let mut seen = BTreeSet::new();
    let (mut family, mut kind) = ("", "");
    let mut lines = text.lines().peekable();
    let mut bucket = 0.0;
    while let Some(line) = lines.next() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            let (name, about) = head.split_once(' ').unwrap();
            assert!(seen.insert(name), "{name} has two heads");
            assert!(!about.is_empty(), "{line}");
            let next = lines.next().unwrap();
            let shown = next.strip_prefix(&*format!("# TYPE {name} ")).unwrap();
            (family, kind, bucket) = (name, shown, 0.0);
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{next}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let name = sample.split('{').next().unwrap();
        let suffix = name.strip_prefix(family).unwrap();
        match kind {
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
            _ => assert_eq!(suffix, "", "{line}"),
        }
        match suffix {
            "_bucket" => {
                assert!(value >= bucket, "{line}");
                bucket = value;
                let is_last = !lines.peek().unwrap().contains("_bucket");
                assert_eq!(sample.contains("le=\"+Inf\""), is_last, "{line}");
            }
            "_count" => assert!((value - bucket).abs() < 0.5, "{line}"),
            _ => assert!(value.is_finite(), "{line}"),
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn other_requests_are_refused() {
    let server = start();
    let status = server.status;
    for (request, expected) in [
        ("GET /secret HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n",
            "405",
        ),
        ("GET / HTTP/9.9\r\n\r\n", "400"),
        ("\u{16}\u{3}\u{1} no text\r\n\r\n", "400"),
    ] {
        let reply = exchange(status, request.as_bytes());
        let found = reply.split(' ').nth(1);
        assert_eq!(found, Some(expected), "{request:?} {reply:?}");
        assert_eq!(reply.matches("HTTP/1.1").count(), 1, "one a connection");
    }
    let head = exchange(status, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.ends_with("\r\n\r\n") && head.contains("200 OK"),
        "{head}"
    );
    // Neither a long field nor many are read to their end.
    let mut long = b"GET / HTTP/1.1\r\nHost: ".to_vec();
    long.resize(4 << 20, b'a');
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100_000));
    for request in [&long[..], many.as_bytes()] {
        let reply = exchange(status, request);
        assert!(!reply.contains("200 OK"), "{reply}");
    }
    assert!(get(status, "/metrics").0.starts_with("http/1.1 200"));
}

#[test]
fn slow_and_many_clients_hold_neither_the_page_nor_the_machine() {
    let server = start();
    // Each sends half a request and nothing more; there are places for 32.
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(server.status).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    assert!(get(server.status, "/").0.starts_with("http/1.1 200"));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    echo(server.address, 100);
    // One that asks and does not read.
    let mut deaf = TcpStream::connect(server.status).unwrap();
    deaf.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    // The time limit ends all of them.
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut piece = [0; 256];
        while let Ok(1..) = stream.read(&mut piece) {}
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert!(get(server.status, "/metrics").0.starts_with("http/1.1 200"));
}
