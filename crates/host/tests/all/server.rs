//! A toy machine as a server on real sockets and files.

use crate::wire::{PATIENCE, PROTOCOL, open, receive, send};
use seatrial_host::{Booted, HostError, HostLimits, PeerOptions, ServeOptions, serve};
use seatrial_machine::{
    Computed, DataFolder, Disk, Input, Job, LogName, Machine, NodeId, Output, Ticket, Time,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;

const MESSAGE_LENGTH_MAX: usize = 1 << 20;

/// Counts requests `+`, one byte of log each, and replies when that is durable. `b` asks for a mebibyte, `p` for
/// a job, which panics.
#[derive(Default)]
struct RequestCounter {
    count: u64,
    waiting: Vec<(Ticket, NodeId)>,
}

struct Panics;

impl Job for Panics {
    fn run(self: Box<Self>) -> Computed {
        panic!("a job that panics");
    }
}

impl Machine for RequestCounter {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        let send = |to, message: Vec<u8>| Output::Send { to, message };
        match input {
            Input::Message { from, bytes } => match bytes.as_slice() {
                b"+" => {
                    self.count += 1;
                    self.waiting.push((Ticket(self.count), from));
                    out.push(Output::Append {
                        log: LogName::MAIN,
                        bytes: vec![b'+'],
                        ticket: Ticket(self.count),
                    });
                }
                b"b" => out.push(send(from, vec![7; MESSAGE_LENGTH_MAX])),
                b"p" => out.push(Output::Compute(Box::new(Panics), Ticket(0))),
                _ => {}
            },
            Input::Appended(done) => {
                while let Some((ticket, from)) = self.waiting.first().copied()
                    && ticket <= done
                {
                    self.waiting.remove(0);
                    out.push(send(from, ticket.0.to_le_bytes().to_vec()));
                }
            }
            Input::Wake | Input::Computed(..) | Input::FileDone(..) | Input::Request(..) => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

fn boot(data: &DataFolder) -> Booted<RequestCounter> {
    let count = data.log(LogName::MAIN).unwrap().len();
    let machine = RequestCounter {
        count,
        ..RequestCounter::default()
    };
    Booted::with_log(machine, count)
}

fn options(data: &Path) -> ServeOptions {
    ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: data.to_owned(),
        message_length_max: 64,
        limits: HostLimits {
            send_patience: Duration::from_millis(500),
            ..HostLimits::default()
        },
        protocol: PROTOCOL,
        http: None,
        tls: None,
        key: None,
        peers: PeerOptions::default(),
        clock: None,
    }
}

/// A server on a thread of its own.
struct CounterServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), HostError>>,
}

impl CounterServer {
    fn start(data: &Path) -> CounterServer {
        let options = options(data);
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = mpsc::channel();
        let thread = thread::spawn(move || {
            let ready = move |address| ready.send(address).unwrap();
            serve(&options, |disk| Ok(boot(disk)), ready, async {
                let _ = stopped.await; // a test that failed drops the other end
            })
        });
        let address = address.recv_timeout(PATIENCE).unwrap();
        CounterServer {
            address,
            stop,
            thread,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        open(&stream, None).unwrap();
        stream
    }

    fn stop(self) -> Result<(), HostError> {
        let _ = self.stop.send(()); // it may have ended already
        self.thread.join().unwrap()
    }
}

fn ask(stream: &TcpStream, message: &[u8]) -> u64 {
    send(stream, message);
    u64::from_le_bytes(receive(stream).unwrap().try_into().unwrap())
}

/// The server has ended the connection: no byte comes any more, and not because none was sent in time.
fn assert_closed(mut stream: &TcpStream) {
    match stream.read(&mut [0; 1]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn many_requests_at_once_are_all_answered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let server = CounterServer::start(folder.path());
    let stream = server.connect();
    for _ in 0..5_000 {
        send(&stream, b"+");
    }
    for count in 1..=5_000_u64 {
        assert_eq!(receive(&stream).unwrap(), count.to_le_bytes());
    }
    server.stop().unwrap();
}

#[test]
fn a_job_that_panics_takes_its_server_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = CounterServer::start(folder.path());
    let stream = server.connect();
    send(&stream, b"p");
    assert!(server.thread.join().is_err());
    assert_closed(&stream);
}

#[test]
fn who_does_not_read_is_disconnected_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = CounterServer::start(folder.path());
    let deaf = server.connect();
    for _ in 0..120 {
        if (&deaf).write_all(&[1, 0, 0, 0, b'b']).is_err() {
            break; // disconnected already
        }
        thread::sleep(Duration::from_millis(2)); // a batch of its own for each
    }
    let other = server.connect();
    assert_eq!(ask(&other, b"+"), 1);
    // In time the server drops what waits: only what the kernel holds still comes.
    thread::sleep(Duration::from_millis(1_200));
    let mut got = 0;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match (&deaf).read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                break;
            }
        }
    }
    assert!(got < 32 << 20, "{got} bytes");
    assert_eq!(ask(&other, b"+"), 2);
    server.stop().unwrap();
}

#[test]
fn a_full_disk_ends_the_server_and_nothing_is_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("log")).unwrap();
    let server = CounterServer::start(folder.path());
    let stream = server.connect();
    send(&stream, b"+");
    assert_closed(&stream);
    let error = server.stop().unwrap_err().to_string();
    let expected = format!(
        "{} cannot be written: No space left",
        folder.path().join("log").display()
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_folder_is_made_with_its_parents_and_free_again_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("made/when/missing");
    for count in 1..=3 {
        let server = CounterServer::start(&data);
        assert_eq!(ask(&server.connect(), b"+"), count);
        server.stop().unwrap();
    }
}
