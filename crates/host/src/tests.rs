//! A toy machine on real sockets and a real file.

use crate::opening::{OpeningStep, ServerOpening};
use crate::{
    Booted, ClientOpening, ConnectOptions, HostError, HostLimits, Peer, PeerOptions, Protocol,
    ServeOptions, Session, SessionOptions, serve, wire,
};
use seatrial_machine::{
    Computed, DataFolder, Disk, Input, Job, LogName, Machine, NodeId, Output, Ticket, Time,
};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Counts: `+` appends a byte to the log and answers the count when it is durable, `?` answers the count, `j` answers what
/// a job computes, `w` answers after 30 ms, `!` floods the asker.
struct CommandCounter {
    count: u64,
    tickets: u64,
    waiting: Vec<(Ticket, NodeId, u64)>,
    alarm: Option<(Time, NodeId)>,
}

struct Answer;

impl Job for Answer {
    fn run(self: Box<Self>) -> Computed {
        Box::new(42_u64)
    }
}

impl CommandCounter {
    fn message(&mut self, now: Time, from: NodeId, bytes: &[u8], out: &mut Vec<Output<()>>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        match bytes {
            b"+" => {
                self.count += 1;
                self.waiting.push((ticket, from, self.count));
                out.push(Output::Append {
                    log: LogName::MAIN,
                    bytes: vec![b'+'],
                    ticket,
                });
            }
            b"?" => out.push(answer(from, self.count)),
            b"j" => {
                self.waiting.push((ticket, from, 0));
                out.push(Output::Compute(Box::new(Answer), ticket));
            }
            b"w" => self.alarm = Some((now + Duration::from_millis(30), from)),
            b"!" => out.extend((0..1_000).map(|_| Output::Send {
                to: from,
                message: vec![0; 1 << 20],
            })),
            _ => {}
        }
    }

    fn take(&mut self, ticket: Ticket) -> Option<(NodeId, u64)> {
        let place = self
            .waiting
            .iter()
            .position(|(known, ..)| *known == ticket)?;
        let (_, to, count) = self.waiting.remove(place);
        Some((to, count))
    }
}

fn answer(to: NodeId, count: u64) -> Output<()> {
    Output::Send {
        to,
        message: count.to_le_bytes().to_vec(),
    }
}

impl Machine for CommandCounter {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, now: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Message { from, bytes } => self.message(now, from, &bytes, out),
            Input::Appended(ticket) => out.extend(self.take(ticket).map(|(to, n)| answer(to, n))),
            Input::Computed(ticket, result) => {
                let result = *result.downcast::<u64>().unwrap();
                out.extend(self.take(ticket).map(|(to, _)| answer(to, result)));
            }
            Input::Wake | Input::Request(..) | Input::FileDone(..) => {}
        }
        if let Some((time, to)) = self.alarm
            && time <= now
        {
            self.alarm = None;
            out.push(answer(to, now.since(time).as_millis() as u64));
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.alarm.map(|(time, _)| time)
    }
}

fn boot(data: &DataFolder) -> Result<Booted<CommandCounter>, String> {
    let disk = data.log(LogName::MAIN).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; disk.len() as usize];
    disk.read_at(0, &mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.contains(&b'x') {
        return Err("an x in the log".into());
    }
    // After the counted bytes there may be a torn tail.
    let count = bytes.iter().take_while(|&&byte| byte == b'+').count() as u64;
    let machine = CommandCounter {
        count,
        tickets: 0,
        waiting: Vec::new(),
        alarm: None,
    };
    Ok(Booted::with_log(machine, count))
}

/// A server in a thread.
struct CommandServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), HostError>>,
}

fn options(data: &Path) -> ServeOptions {
    ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: data.to_owned(),
        message_length_max: 1_000,
        limits: HostLimits::default(),
        protocol: PROTOCOL,
        http: None,
        tls: None,
        key: None,
        peers: PeerOptions::default(),
        clock: None,
    }
}

const PROTOCOL: Protocol = Protocol {
    name: "count",
    version: 1,
    refuse_old: |_| None,
};

/// Opens a connection as a client.
fn enter(stream: &mut TcpStream) {
    let mut opening = ClientOpening::new(PROTOCOL, None).unwrap();
    let mut bytes = Vec::new();
    wire::write(&mut bytes, opening.message());
    stream.write_all(&bytes).unwrap();
    assert_eq!(opening.step(&hear_all(stream)), Ok(None));
}

/// Lets a client in.
fn let_in(stream: &mut TcpStream) {
    let opening = hear_all(stream);
    let OpeningStep::Open(Some(answer)) =
        ServerOpening::new(PROTOCOL, None, [0; 32]).step(&opening)
    else {
        panic!("refused");
    };
    let mut bytes = Vec::new();
    wire::write(&mut bytes, &answer);
    stream.write_all(&bytes).unwrap();
}

fn hear_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut prefix = [0; wire::PREFIX_LENGTH];
    stream.read_exact(&mut prefix).unwrap();
    let mut message = vec![0; u32::from_le_bytes(prefix) as usize];
    stream.read_exact(&mut message).unwrap();
    message
}

fn begin(data: &Path) -> CommandServer {
    let options = options(data);
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, address) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let stopped = async {
            let _ = stopped.await;
        };
        serve(
            &options,
            boot,
            |address| ready.send(address).unwrap(),
            stopped,
        )
    });
    CommandServer {
        address: address.recv().unwrap(),
        stop,
        thread,
    }
}

impl CommandServer {
    fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        enter(&mut stream);
        stream
    }

    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

fn ask(stream: &mut TcpStream, message: &[u8]) -> u64 {
    let mut bytes = Vec::new();
    wire::write(&mut bytes, message);
    stream.write_all(&bytes).unwrap();
    hear(stream)
}

fn hear(stream: &mut TcpStream) -> u64 {
    let mut reply = [0; wire::PREFIX_LENGTH + 8];
    stream.read_exact(&mut reply).unwrap();
    u64::from_le_bytes(reply[wire::PREFIX_LENGTH..].try_into().unwrap())
}

#[test]
fn acknowledged_requests_are_in_the_log_and_recovered() {
    let scratch = tempfile::tempdir().unwrap();
    for start in 0..3 {
        let server = begin(scratch.path());
        let mut stream = server.connect();
        assert_eq!(ask(&mut stream, b"?"), start * 5);
        for more in 1..=5 {
            assert_eq!(ask(&mut stream, b"+"), start * 5 + more);
            let durable = fs::metadata(scratch.path().join("log")).unwrap().len();
            assert!(
                durable >= start * 5 + more,
                "answered before it was written"
            );
        }
        server.end();
        // A torn tail is cut at the next start.
        let log = scratch.path().join("log");
        let mut bytes = fs::read(&log).unwrap();
        bytes.extend_from_slice(b"--+");
        fs::write(&log, bytes).unwrap();
    }
}

#[test]
fn many_clients_share_syncs() {
    let scratch = tempfile::tempdir().unwrap();
    let server = begin(scratch.path());
    let mut streams: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    let mut message = Vec::new();
    wire::write(&mut message, b"+");
    for _ in 0..10 {
        for stream in &mut streams {
            stream.write_all(&message).unwrap();
        }
        for stream in &mut streams {
            assert!(hear(stream) <= 200);
        }
    }
    assert_eq!(ask(&mut streams[0], b"?"), 200);
    server.end();
}

#[test]
fn jobs_and_wake_ups_come_back() {
    let scratch = tempfile::tempdir().unwrap();
    let server = begin(scratch.path());
    let mut stream = server.connect();
    assert_eq!(ask(&mut stream, b"j"), 42);
    let began = Instant::now();
    ask(&mut stream, b"w");
    assert!(began.elapsed() >= Duration::from_millis(30));
    server.end();
}

#[test]
fn a_bad_client_harms_no_other() {
    let scratch = tempfile::tempdir().unwrap();
    let server = begin(scratch.path());
    let mut good = server.connect();
    // Ends within a message.
    server.connect().write_all(&[9, 0, 0, 0, 1]).unwrap();
    // Claims too much: is disconnected.
    let mut greedy = server.connect();
    greedy.write_all(&[255; 8]).unwrap();
    let end = greedy.read(&mut [0; 8]);
    assert!(matches!(end, Ok(0)) || end.is_err(), "{end:?}");
    // Asks for a gigabyte and does not read it: is disconnected at the bound.
    let mut deaf = server.connect();
    let mut flood = Vec::new();
    wire::write(&mut flood, b"!");
    deaf.write_all(&flood).unwrap();
    assert_eq!(ask(&mut good, b"+"), 1);
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = deaf.read(&mut buffer) {
        heard += count;
    }
    assert!(heard < 900 << 20, "{heard} bytes");
    assert_eq!(ask(&mut good, b"+"), 2);
    server.end();
}

#[test]
fn unusable_folders_logs_and_ports_are_refused_with_the_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let server = begin(scratch.path());
    let failed = |options: &ServeOptions| serve(options, boot, |_| {}, async {}).unwrap_err();
    let error = failed(&options(scratch.path()));
    assert!(matches!(error, HostError::Locked(_)), "{error}");
    let taken = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let _holder = TcpListener::bind(taken).unwrap();
    let other = tempfile::tempdir().unwrap();
    let error = failed(&ServeOptions {
        listen: taken,
        ..options(other.path())
    });
    assert!(matches!(error, HostError::Listen { .. }), "{error}");
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    server.end();
    fs::write(scratch.path().join("log"), "++x").unwrap();
    let error = failed(&options(scratch.path()));
    assert!(error.to_string().contains("an x in the log"), "{error}");
    fs::remove_dir_all(scratch.path()).unwrap();
    fs::write(scratch.path(), "a file").unwrap();
    let error = failed(&options(scratch.path()));
    assert!(matches!(error, HostError::File { .. }), "{error}");
    fs::remove_file(scratch.path()).unwrap();
}

/// Asks with one message, answers the number that comes back; gives up after 50 ms.
#[derive(Default)]
struct Asker {
    open: Option<(Ticket, Time)>,
}

impl Machine for Asker {
    type Request = Vec<u8>;
    type Reply = Result<u64, &'static str>;

    fn turn(&mut self, now: Time, input: Input<Vec<u8>>, out: &mut Vec<Output<Self::Reply>>) {
        match input {
            Input::Request(ticket, message) => {
                // Only a request without a reply times out soon.
                let is_answered = message.len() == 1;
                let patience = if is_answered { 60_000 } else { 50 };
                self.open = Some((ticket, now + Duration::from_millis(patience)));
                out.push(Output::Send {
                    to: NodeId::server(1),
                    message,
                });
            }
            Input::Message { bytes, .. } => {
                if let (Some((ticket, _)), Ok(bytes)) = (self.open.take(), bytes.try_into()) {
                    out.push(Output::Reply(ticket, Ok(u64::from_le_bytes(bytes))));
                }
            }
            _ => {}
        }
        if let Some((ticket, late)) = self.open
            && late <= now
        {
            self.open = None;
            out.push(Output::Reply(ticket, Err("timeout")));
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.open.map(|(_, late)| late)
    }
}

impl Peer for Asker {
    fn connection_closed(&mut self, out: &mut Vec<Output<Self::Reply>>) {
        if let Some((ticket, _)) = self.open.take() {
            out.push(Output::Reply(ticket, Err("closed")));
        }
    }
}

/// Asks each in turn over one connection.
fn session(address: SocketAddr, messages: &[&[u8]]) -> Vec<Option<Result<u64, &'static str>>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = SessionOptions {
            server: NodeId::server(1),
            connect: ConnectOptions::new(PROTOCOL, 100),
        };
        let mut session = Session::connect(address, Asker::default(), options)
            .await
            .unwrap();
        let mut replies = Vec::new();
        for message in messages {
            replies.push(session.request(message.to_vec()).await);
        }
        replies
    })
}

#[test]
fn a_session_continues_after_a_cancelled_request() {
    let scratch = tempfile::tempdir().unwrap();
    let server = begin(scratch.path());
    let replies = session(server.address, &[b"+", b"no reply to this", b"+", b"?"]);
    assert_eq!(
        replies,
        [Some(Ok(1)), Some(Err("timeout")), Some(Ok(2)), Some(Ok(2))]
    );
    server.end();
}

#[test]
fn a_session_whose_server_is_gone_says_so_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closer = std::thread::spawn(move || let_in(&mut listener.accept().unwrap().0));
    let began = Instant::now();
    let replies = session(address, &[b"+", b"+"]);
    assert_eq!(replies, [Some(Err("closed")), Some(Err("closed"))]);
    assert!(
        began.elapsed() < Duration::from_millis(45),
        "did not wait for the time-out"
    );
    closer.join().unwrap();
}

#[test]
fn a_message_may_arrive_byte_by_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let slow = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let_in(&mut stream);
        let mut bytes = Vec::new();
        wire::write(&mut bytes, &77_u64.to_le_bytes());
        for byte in bytes {
            stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = stream.read(&mut [0; 64]);
    });
    assert_eq!(session(address, &[b"?"]), [Some(Ok(77))]);
    slow.join().unwrap();
}
