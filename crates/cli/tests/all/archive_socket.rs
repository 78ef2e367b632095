//! The archive's service on real sockets and files: clients that live through a restart of the server, and copies.

use crate::Scratch;
use crate::archive::{PATIENCE, RunningProgram, alike, lines};
use seatrial_archive::{Archive, Cursor, CursorBound, Durability, Origin, Pause, RecordingId};
use seatrial_archive_service::message::{self, MESSAGE_LENGTH_MAX};
use seatrial_archive_service::{
    ArchiveClient, ArchiveClientOptions, ArchiveService, CopySource, CopyTarget, FrameBatch,
    ListFilter, Played, PushTarget, RemoteArchive, RemoteError, ReplayBound, ReplayEnd, ReplayFrom,
    ReplayRequest, ServiceOptions, ServiceRequest, copy_remote,
};
use seatrial_blocks::BlockHeader;
use seatrial_blocks::file::Files;
use seatrial_host::{
    BlockingLink, ConnectOptions, HostLimits, LinkOptions, ListenOptions, PeerOptions, Protocol,
    serve_machine,
};
use seatrial_machine::NodeId;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// What is spoken.
const PROTOCOL: Protocol = Protocol {
    name: message::PROTOCOL,
    version: message::VERSION,
    refuse_old: message::refuse_version,
};

const MESSAGES: u64 = 20_000;
const BATCH: u64 = 20;
/// Batches that a client keeps under way.
const PIPELINE: usize = 50;

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_nanos() as u64
}

/// A server in a thread.
struct ArchiveServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ArchiveServer {
    fn start(folder: &Path, listen: SocketAddr) -> ArchiveServer {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = channel();
        let folder = folder.to_owned();
        let thread = std::thread::spawn(move || {
            let options = ServiceOptions::new(now());
            let opened = ArchiveService::open(Arc::new(Files), &folder, options);
            let (service, _) = opened.unwrap();
            let options = ListenOptions {
                listen,
                message_length_max: MESSAGE_LENGTH_MAX,
                limits: HostLimits::default(),
                protocol: PROTOCOL,
                http: None,
                tls: None,
                key: None,
                peers: PeerOptions::default(),
            };
            let ready = |address| ready.send(address).unwrap();
            let stopped = async {
                let _ = stopped.await;
            };
            serve_machine(options, service, ServiceRequest::Close, ready, stopped).unwrap();
        });
        ArchiveServer {
            address: address.recv().unwrap(),
            stop,
            thread,
        }
    }

    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn connect(address: SocketAddr) -> RemoteArchive<BlockingLink<ArchiveClient>> {
    let server = NodeId::server(1);
    let client = ArchiveClient::new(ArchiveClientOptions::new(server, now()));
    let options = LinkOptions {
        server,
        connect: ConnectOptions::new(PROTOCOL, MESSAGE_LENGTH_MAX),
        reconnect_interval: Some(Duration::from_millis(20)),
    };
    RemoteArchive::new(BlockingLink::connect(address, client, options).unwrap())
}

fn message(label: &str, number: u64) -> Vec<u8> {
    format!("{label} {number} {}", "x".repeat(number as usize % 200)).into_bytes()
}

/// Records messages with the numbers from `first` on, each once, and answers with the recording.
fn record(address: SocketAddr, label: &str, first: u64) -> u64 {
    let mut remote = connect(address);
    let durability = Durability::Group {
        milliseconds: 5,
        bytes: 1 << 20,
    };
    let claimed = remote.start(label, 1 << 20, durability, true).unwrap();
    assert_eq!(claimed.next_message, first);
    let mut under_way = std::collections::VecDeque::new();
    for begin in (first..first + MESSAGES).step_by(BATCH as usize) {
        let mut batch = FrameBatch::new();
        for number in begin..begin + BATCH {
            batch.push(number as u32 % 8, &message(label, number), number % 2 == 0);
        }
        under_way.push_back((begin, remote.record(claimed.recording, batch)));
        while under_way.len() >= PIPELINE
            || (begin + BATCH == first + MESSAGES && !under_way.is_empty())
        {
            let (begin, ticket) = under_way.pop_front().unwrap();
            assert_eq!(remote.recorded(ticket).unwrap().first_message, begin);
        }
    }
    remote.flush(claimed.recording).unwrap();
    match remote.stop(claimed.recording) {
        // The server ended after it got the request and before it answered: a recording ends with its session, too.
        Ok(_) | Err(RemoteError::Unknown) => {}
        Err(error) => panic!("{error}"),
    }
    remote.goodbye().unwrap();
    claimed.recording
}

/// Replays a recording from its start, and checks `count` messages.
fn replay(address: SocketAddr, recording: u64, label: &str, bound: ReplayBound, count: u64) {
    let mut remote = connect(address);
    let request = ReplayRequest {
        recording,
        from: ReplayFrom::Start,
        bound,
        window_bytes: 1 << 20,
        is_eager: false,
    };
    let handle = remote.play(request).unwrap();
    let mut next = 0;
    while next < count || bound == ReplayBound::End {
        match remote.next(handle).unwrap() {
            Played::Piece(piece) => {
                for found in piece.messages() {
                    assert_eq!(found.number, next);
                    assert_eq!(found.flags, next as u32 % 8);
                    assert_eq!(found.payload, message(label, next));
                    next += 1;
                }
            }
            Played::Ended(ReplayEnd::Complete { .. }) => break,
            Played::Ended(end) => panic!("{end:?}"),
        }
    }
    assert_eq!(next, count);
}

#[test]
fn clients_live_through_a_restart_of_the_server() {
    let scratch = Scratch::new("archive-socket");
    let folder = scratch.folder().join("archive");
    let server = ArchiveServer::start(&folder, "127.0.0.1:0".parse().unwrap());
    let address = server.address;
    std::thread::scope(|scope| {
        let recorders: Vec<_> = ["one", "two"]
            .map(|label| scope.spawn(move || record(address, label, 0)))
            .into();
        // Its recording is there as soon as its list says so; the tail is live from then on.
        let tail = scope.spawn(move || {
            let mut remote = connect(address);
            let found = loop {
                let found = remote.list(&ListFilter::default()).unwrap();
                match found.into_iter().find(|it| it.label == "one") {
                    Some(found) => break found.recording,
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            };
            replay(address, found, "one", ReplayBound::Follow, MESSAGES);
        });
        std::thread::sleep(Duration::from_millis(150));
        server.end();
        let server = ArchiveServer::start(&folder, address);
        let recordings: Vec<u64> = recorders.into_iter().map(|it| it.join().unwrap()).collect();
        tail.join().unwrap();
        for (recording, label) in recordings.iter().zip(["one", "two"]) {
            replay(address, *recording, label, ReplayBound::End, MESSAGES);
        }
        let health = connect(address).health().unwrap();
        assert!(
            health.bytes_replayed > 0 && health.recordings == 0,
            "{health:?}"
        );
        server.end();
    });
}

/// Copies a recording, and answers how many messages that brought.
fn copy(address: SocketAddr, folder: &Path, recording: u64) -> u64 {
    let mut remote = connect(address);
    let source = CopySource::remote("served", &remote.describe(recording).unwrap());
    let (mut archive, _) = Archive::open(Arc::new(Files), folder, now()).unwrap();
    let target = CopyTarget::begin(Arc::new(Files), folder, &mut archive, &source, now());
    let mut target = target.unwrap();
    let copied = copy_remote(
        &mut remote,
        &mut target,
        recording,
        ReplayBound::End,
        now,
        |_| true,
    );
    copied.unwrap();
    let messages = target.messages();
    target.stop(now()).unwrap();
    messages
}

/// The blocks of a recording without its tag.
fn blocks(folder: &Path) -> Vec<(u64, Vec<u8>)> {
    let (id, origin) = (RecordingId(1), Origin::Start);
    let mut cursor = Cursor::open(Arc::new(Files), folder, id, origin, CursorBound::End).unwrap();
    let mut found = Vec::new();
    while let Some(block) = cursor.next_block().unwrap() {
        let (bytes, position) = block.stored();
        let header = BlockHeader::decode(bytes.first_chunk().unwrap()).unwrap();
        assert!(header.tag().is_some());
        let mut bytes = bytes.to_vec();
        bytes[..32].copy_from_slice(&header.with_tag(None).encode());
        found.push((position.0, bytes));
    }
    found
}

#[test]
fn a_copy_resumes_where_it_ended_and_has_the_same_blocks() {
    let scratch = Scratch::new("archive-socket-copy");
    let (folder, copies) = (
        scratch.folder().join("archive"),
        scratch.folder().join("copies"),
    );
    let server = ArchiveServer::start(&folder, "127.0.0.1:0".parse().unwrap());
    let recording = record(server.address, "log", 0);
    assert_eq!(copy(server.address, &copies, recording), MESSAGES);
    assert_eq!(copy(server.address, &copies, recording), 0, "nothing new");
    record(server.address, "log", MESSAGES);
    assert_eq!(copy(server.address, &copies, recording), MESSAGES);
    server.end();
    assert_eq!(blocks(&folder), blocks(&copies));
}

/// Pushes a recording from a folder to a server; answers how many messages that brought.
fn push(folder: &Path, address: SocketAddr) -> u64 {
    let catalog = Archive::view(Arc::new(Files), folder).unwrap();
    let source = CopySource::folder("folder", catalog.recording(RecordingId(1)).unwrap());
    let mut remote = connect(address);
    let mut target = PushTarget::begin(&mut remote, &source).unwrap();
    let (id, bound) = (RecordingId(1), CursorBound::End);
    let cursor = Cursor::open(Arc::new(Files), folder, id, target.from(), bound);
    let mut cursor = cursor.unwrap();
    while let Some(block) = cursor.next_block().unwrap() {
        let (bytes, position) = block.stored();
        target.append(&mut remote, position, bytes).unwrap();
    }
    target.settle(&mut remote).unwrap();
    assert_eq!(target.end(), source.end.position);
    let messages = target.messages();
    target.stop(&mut remote).unwrap();
    remote.goodbye().unwrap();
    messages
}

#[test]
fn a_pushed_copy_resumes_where_it_ended_and_has_the_same_blocks() {
    let scratch = Scratch::new("archive-socket-push");
    let (folder, copies) = (
        scratch.folder().join("archive"),
        scratch.folder().join("copies"),
    );
    let any = "127.0.0.1:0".parse().unwrap();
    let (source, server) = (
        ArchiveServer::start(&folder, any),
        ArchiveServer::start(&copies, any),
    );
    record(source.address, "log", 0);
    assert_eq!(push(&folder, server.address), MESSAGES);
    assert_eq!(push(&folder, server.address), 0, "nothing new");
    record(source.address, "log", MESSAGES);
    assert_eq!(push(&folder, server.address), MESSAGES);
    source.end();
    server.end();
    assert_eq!(blocks(&folder), blocks(&copies));
}

/// Reads on from where the cursor is, until this number of messages has come.
fn follow(cursor: &mut Cursor, seen: &mut Vec<u8>, count: u64) {
    let until = Instant::now() + Duration::from_mins(1);
    let mut last = None;
    while last < Some(count - 1) {
        let Some(block) = cursor.next_block().unwrap() else {
            assert!(Instant::now() < until, "{last:?} of {count} messages");
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        for message in block.messages() {
            seen.extend_from_slice(message.payload);
            seen.push(b'\n');
        }
        last = Some(block.first_message() + block.messages().count() as u64 - 1);
    }
}

#[test]
fn a_cursor_follows_what_other_processes_record() {
    let scratch = Scratch::new("archive-socket-follow");
    let folder = scratch.path("archive");
    let (mut seen, mut written, mut cursor) = (Vec::new(), 0, None);
    for round in 0..4 {
        let to = if round == 0 { "--label" } else { "--extend" };
        let words = ["record", &folder, to, "log", "--acknowledge"];
        let mut writer = RunningProgram::start(&words);
        let acknowledged = writer.lines();
        let first = written;
        for _ in 0..3 {
            writer.write(&lines(written, 20_000));
            written += 20_000;
            let expected = format!("written {} ", written - first);
            while !acknowledged
                .recv_timeout(PATIENCE)
                .unwrap()
                .starts_with(&expected)
            {}
            let cursor = cursor.get_or_insert_with(|| {
                let (id, origin) = (RecordingId(1), Origin::Start);
                let folder = Path::new(&folder);
                Cursor::open(Arc::new(Files), folder, id, origin, CursorBound::Follow).unwrap()
            });
            follow(cursor, &mut seen, written);
            assert_eq!(cursor.pause(), Pause::Live, "what comes next is waited for");
        }
        if round % 2 == 0 {
            writer.kill();
        } else {
            assert_eq!(writer.output().status.code(), Some(0));
        }
    }
    alike(&seen, &lines(0, written));
}

#[test]
fn record_and_replay_rates_are_reported() {
    let scratch = Scratch::new("archive-socket-rate");
    let folder = scratch.folder().join("archive");
    let server = ArchiveServer::start(&folder, "127.0.0.1:0".parse().unwrap());
    let mut remote = connect(server.address);
    let claimed = remote.start("rate", 0, Durability::None, false).unwrap();
    let batches: u64 = 200;
    let mut batch = FrameBatch::new();
    while batch.length() < 256 << 10 {
        batch.push(0, &[7; 120], false);
    }
    let bytes = batches as f64 * batch.length() as f64;
    let began = Instant::now();
    let mut tickets = std::collections::VecDeque::new();
    for _ in 0..batches {
        tickets.push_back(remote.record(claimed.recording, batch.clone()));
        if tickets.len() >= 16 {
            remote.recorded(tickets.pop_front().unwrap()).unwrap();
        }
    }
    for ticket in tickets {
        remote.recorded(ticket).unwrap();
    }
    let recorded = began.elapsed().as_secs_f64();
    let position = remote.stop(claimed.recording).unwrap();
    let began = Instant::now();
    let request = ReplayRequest {
        recording: claimed.recording,
        from: ReplayFrom::Start,
        bound: ReplayBound::End,
        window_bytes: 4 << 20,
        is_eager: false,
    };
    let handle = remote.play(request).unwrap();
    let mut messages = 0;
    let end = loop {
        match remote.next(handle).unwrap() {
            Played::Piece(piece) => messages += piece.messages().count() as u64,
            Played::Ended(end) => break end,
        }
    };
    let replayed = began.elapsed().as_secs_f64();
    assert_eq!(end, ReplayEnd::Complete { position });
    assert_eq!(messages, batches * u64::from(batch.messages()));
    println!(
        "record {:.0} MB/s ({:.2} million messages of 120 bytes/s), replay {:.0} MB/s",
        bytes / 1e6 / recorded,
        messages as f64 / 1e6 / recorded,
        bytes / 1e6 / replayed
    );
    server.end();
}
