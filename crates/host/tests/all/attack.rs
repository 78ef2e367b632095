//! Clients that mean harm: connections, half messages and answers that are not read have bounds, and others are served.

use crate::wire::{PATIENCE, PROTOCOL, open, receive, send};
use seatrial_host::{HostLimits, ListenOptions, PeerOptions, SecretKey, serve_machine};
use seatrial_machine::{Input, Machine, Output, Time};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const MESSAGE_LENGTH_MAX: usize = 2 << 20;
/// How soon a client is served while others attack: far more than it takes, but less than any patience here.
const SOON: Duration = Duration::from_secs(2);

/// `h` asks for a session, `q` ends it; anything else is sent back, `rN` as N mebibytes in messages of one.
struct Echo;

impl Machine for Echo {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Message { from, bytes } => match bytes.as_slice() {
                b"h" => {
                    out.push(Output::Admit(from));
                    let message = bytes;
                    out.push(Output::Send { to: from, message });
                }
                b"q" => {
                    let message = bytes;
                    out.push(Output::Send { to: from, message });
                    out.push(Output::Close(from));
                }
                [b'r', count] => out.extend((b'0'..*count).map(|_| Output::Send {
                    to: from,
                    message: vec![0; 1 << 20],
                })),
                _ => {
                    let message = bytes;
                    out.push(Output::Send { to: from, message });
                }
            },
            Input::Request(ticket, ()) => out.push(Output::Reply(ticket, ())),
            Input::Wake | Input::Appended(_) | Input::FileDone(..) | Input::Computed(..) => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

/// Small bounds, so that they are reached soon.
fn limits() -> HostLimits {
    HostLimits {
        connections_max: 40,
        unadmitted_max: 10,
        unadmitted_length_max: 1 << 10,
        unadmitted_bytes_max: 64 << 10,
        unadmitted_timeout: PATIENCE,
        receive_bytes_max: 1 << 20,
        receive_patience: PATIENCE,
        receive_rate_min: 1 << 20,
        send_bytes_max: 8 << 20,
        connection_send_bytes_max: 4 << 20,
        connection_send_bytes_pause: 1 << 20,
        send_patience: PATIENCE,
    }
}

struct AttackedServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl AttackedServer {
    fn start(limits: HostLimits) -> AttackedServer {
        AttackedServer::start_with(limits, None)
    }

    fn start_with(limits: HostLimits, key: Option<SecretKey>) -> AttackedServer {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = mpsc::channel();
        let options = ListenOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            message_length_max: MESSAGE_LENGTH_MAX,
            limits,
            protocol: PROTOCOL,
            http: None,
            tls: None,
            key,
            peers: PeerOptions::default(),
        };
        let thread = thread::spawn(move || {
            let ready = move |address| ready.send(address).unwrap();
            let stopped = async {
                let _ = stopped.await; // a test that failed drops the other end
            };
            serve_machine(options, Echo, (), ready, stopped).unwrap();
        });
        AttackedServer {
            address: address.recv_timeout(PATIENCE).unwrap(),
            stop,
            thread,
        }
    }

    /// Open; an error if the server has no place for it.
    fn try_connect(&self) -> io::Result<TcpStream> {
        let stream = self.connect_only();
        open(&stream, None)?;
        Ok(stream)
    }

    /// Open.
    fn connect(&self) -> TcpStream {
        self.try_connect().unwrap()
    }

    /// Nothing was said yet.
    fn connect_only(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// With a session.
    fn enter(&self) -> TcpStream {
        let stream = self.connect();
        assert_eq!(ask(&stream, b"h").unwrap(), b"h");
        stream
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn ask(mut stream: &TcpStream, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = (message.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(message);
    stream.write_all(&bytes)?;
    receive(stream)
}

/// Asks, and is answered soon.
fn is_served(stream: &TcpStream, message: &[u8]) {
    let began = Instant::now();
    assert!(ask(stream, message).unwrap() == message);
    let took = began.elapsed();
    assert!(took < SOON, "{took:?}");
}

/// Does the server end the connection before it says anything else?
fn is_closed(mut stream: &TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

/// Sends the first `there` bytes of a message of `length`.
fn send_half(mut stream: &TcpStream, length: usize, there: usize) -> io::Result<()> {
    stream.write_all(&(length as u32).to_le_bytes())?;
    stream.write_all(&vec![7; there])
}

#[test]
fn before_a_session_messages_are_short_and_time_is_too() {
    let server = AttackedServer::start(HostLimits {
        unadmitted_timeout: Duration::from_millis(300),
        ..limits()
    });
    let long = server.connect();
    send(&long, &vec![1; 1_025]);
    assert!(is_closed(&long, PATIENCE));
    let member = server.enter();
    let message = vec![1; MESSAGE_LENGTH_MAX];
    is_served(&member, &message);
    let silent = server.connect();
    let closed = server.connect_only();
    let half = server.connect();
    send_half(&half, 1_000, 10).unwrap();
    let began = Instant::now();
    for stream in [&silent, &half, &closed] {
        assert!(is_closed(stream, PATIENCE));
    }
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(250) && took < SOON,
        "{took:?}"
    );
    is_served(&member, &message);
    server.stop();
}

#[test]
fn a_machine_may_end_a_connection_after_its_last_words() {
    let server = AttackedServer::start(limits());
    let member = server.enter();
    assert_eq!(ask(&member, b"q").unwrap(), b"q");
    assert!(is_closed(&member, PATIENCE));
    server.stop();
}

#[test]
fn a_flood_of_connections_displaces_only_those_without_a_session() {
    let server = AttackedServer::start(limits());
    let member = server.enter();
    let mut flood: Vec<TcpStream> = (0..100).map(|_| server.connect_only()).collect();
    flood.extend((0..100).map(|_| server.connect()));
    is_served(&member, b"still here");
    is_served(&server.enter(), b"me too");
    let short = Duration::from_millis(1);
    let open = flood.iter().filter(|it| !is_closed(it, short)).count();
    assert!(open <= 10, "{open} of the flood are open");
    server.stop();
}

#[test]
fn sessions_fill_all_places_and_one_more_is_refused() {
    let server = AttackedServer::start(limits());
    let members: Vec<TcpStream> = (0..40).map(|_| server.enter()).collect();
    let refused = server.try_connect().unwrap_err().to_string();
    let expected = "refused by the server: 40 connections are open, try again later";
    assert_eq!(refused, expected);
    for member in &members {
        is_served(member, b"x");
    }
    drop(members);
    // The places are free again, as soon as the server has heard.
    let began = Instant::now();
    while server.try_connect().is_err() {
        assert!(began.elapsed() < PATIENCE);
    }
    server.stop();
}

#[test]
fn half_messages_that_stop_make_room_for_whole_ones() {
    let server = AttackedServer::start(limits());
    let member = server.enter();
    let halves: Vec<TcpStream> = (0..30).map(|_| server.enter()).collect();
    for half in &halves {
        let _ = send_half(half, MESSAGE_LENGTH_MAX, 200 << 10); // closed, if late
    }
    for _ in 0..5 {
        is_served(&member, &vec![3; 1 << 20]);
    }
    let short = Duration::from_millis(1);
    let closed = halves.iter().filter(|it| is_closed(it, short)).count();
    assert!(closed >= 25, "{closed} of 30 were closed");
    server.stop();
}

#[test]
fn unadmitted_connections_do_not_touch_the_memory_of_members() {
    let server = AttackedServer::start(HostLimits {
        unadmitted_max: 35,
        unadmitted_length_max: 64 << 10,
        ..limits()
    });
    let member = server.enter();
    let unadmitted: Vec<TcpStream> = (0..30).map(|_| server.connect()).collect();
    for unadmitted in &unadmitted {
        let _ = send_half(unadmitted, 60 << 10, 50 << 10); // closed, if late
    }
    is_served(&member, &vec![3; 1 << 20]);
    // Nor do they keep others from becoming members.
    let began = Instant::now();
    is_served(&server.enter(), b"in");
    assert!(began.elapsed() < SOON);
    server.stop();
}

#[test]
fn messages_longer_than_all_memory_together_are_received_one_after_the_other() {
    let server = AttackedServer::start(HostLimits {
        send_bytes_max: 64 << 20,
        // Each waits for all others, and the machine may have other work.
        receive_patience: Duration::from_mins(1),
        send_patience: Duration::from_mins(1),
        ..limits()
    });
    thread::scope(|scope| {
        for number in 0..12 {
            let stream = server.enter();
            scope.spawn(move || {
                let message = vec![number; 1_500_000];
                for _ in 0..4 {
                    assert!(ask(&stream, &message).unwrap() == message);
                }
            });
        }
    });
    server.stop();
}

#[test]
fn a_message_that_drips_is_not_waited_for() {
    let server = AttackedServer::start(HostLimits {
        receive_patience: Duration::from_millis(400),
        ..limits()
    });
    let slow = server.enter();
    send_half(&slow, 1_000, 1).unwrap();
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if (&slow).write_all(&[7]).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(350) && took < SOON,
        "{took:?}"
    );
    server.stop();
}

#[test]
fn unread_answers_are_bounded_together() {
    let server = AttackedServer::start(limits());
    let member = server.enter();
    let deaf: Vec<TcpStream> = (0..30).map(|_| server.enter()).collect();
    for _ in 0..6 {
        for stream in &deaf {
            let _ = (&*stream).write_all(&[2, 0, 0, 0, b'r', b'2']); // closed, if late
        }
        is_served(&member, &vec![3; 1 << 20]);
    }
    // 12 MiB were asked for on each; what comes is what the kernel had taken and what was not closed.
    let mut closed = 0;
    for stream in &deaf {
        let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let end = loop {
            match (&*stream).read(&mut buffer) {
                Ok(0) => break io::ErrorKind::UnexpectedEof,
                Ok(count) => got += count,
                Err(error) => break error.kind(),
            }
        };
        closed += usize::from(end != io::ErrorKind::WouldBlock && got < 12 << 20);
    }
    assert!(closed >= 15, "{closed} of 30 were closed");
    is_served(&member, b"x");
    server.stop();
}

#[test]
fn a_member_that_reads_nothing_is_closed_in_time() {
    let server = AttackedServer::start(HostLimits {
        send_bytes_max: 64 << 20,
        connection_send_bytes_max: 64 << 20,
        send_patience: Duration::from_millis(300),
        ..limits()
    });
    let deaf = server.enter();
    for _ in 0..4 {
        (&deaf).write_all(&[2, 0, 0, 0, b'r', b'9']).unwrap();
    }
    let began = Instant::now();
    while (&deaf).write_all(&[1, 0, 0, 0, b'x']).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it is still open");
        thread::sleep(Duration::from_millis(20));
    }
    is_served(&server.enter(), b"x");
    server.stop();
}

#[test]
fn who_does_not_know_the_key_reaches_no_machine() {
    let key = |byte| SecretKey::new(&[byte; 16]);
    let server = AttackedServer::start_with(limits(), key(1));
    let member = server.connect_only();
    open(&member, key(1)).unwrap();
    is_served(&member, b"h");
    let refused = |key| open(&server.connect_only(), key).unwrap_err().to_string();
    let missing = "refused by the server: a key is needed (--key-file)";
    assert_eq!(refused(None), missing);
    let began = Instant::now();
    let wrong = "refused by the server: the key is not that of this server";
    assert_eq!(refused(key(2)), wrong);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(400), "guesses cost time");
    // Messages without an opening, or after half of one, do not reach the machine.
    let eager = server.connect_only();
    send(&eager, b"h");
    assert!(is_closed(&eager, PATIENCE));
    // A flood of guesses takes no place of a member, and a member still gets in.
    let guesses: Vec<TcpStream> = (0..50).map(|_| server.connect_only()).collect();
    for guess in &guesses {
        send(guess, b"seatrial");
    }
    is_served(&member, b"x");
    let another = server.connect_only();
    open(&another, key(1)).unwrap();
    is_served(&another, b"h");
    server.stop();
}
