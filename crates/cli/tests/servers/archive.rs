//! `seatrial archive serve` under attack.

use super::process::{Latencies, Server};
use super::scratch::Scratch;
use super::{ATTACK, assert_served, can_attack, wire};
use seatrial_archive::Durability;
use seatrial_archive_service::message::{self, ClientMessage, MESSAGE_LENGTH_MAX, ServerMessage};
use seatrial_archive_service::{
    ArchiveClient, ArchiveClientOptions, ArchiveOperation, FrameBatch, ListFilter, Played,
    RemoteArchive, ReplayBound, ReplayFrom, ReplayRequest,
};
use seatrial_host::{BlockingLink, ConnectOptions, LinkOptions, Protocol};
use seatrial_machine::NodeId;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PROTOCOL: Protocol = Protocol {
    name: message::PROTOCOL,
    version: message::VERSION,
    refuse_old: message::refuse_version,
};

type Remote = RemoteArchive<BlockingLink<ArchiveClient>>;

fn seed() -> u64 {
    static SEEDS: AtomicU64 = AtomicU64::new(1);
    u64::from(std::process::id()) << 32 | SEEDS.fetch_add(1, Ordering::Relaxed)
}

fn remote(address: SocketAddr) -> io::Result<Remote> {
    let server = NodeId::server(0);
    let client = ArchiveClient::new(ArchiveClientOptions::new(server, seed()));
    let options = LinkOptions {
        server,
        connect: ConnectOptions::new(PROTOCOL, MESSAGE_LENGTH_MAX),
        reconnect_interval: Some(Duration::from_millis(20)),
    };
    Ok(RemoteArchive::new(BlockingLink::connect(
        address, client, options,
    )?))
}

/// A recording of 64 MiB.
fn fill(address: SocketAddr) -> u64 {
    let mut remote = remote(address).unwrap();
    let claimed = remote.start("big", 0, Durability::None, false).unwrap();
    let mut batch = FrameBatch::new();
    while batch.length() < 1 << 20 {
        batch.push(0, &[7; 16 << 10], false);
    }
    for _ in 0..64 {
        let ticket = remote.record(claimed.recording, batch.clone());
        remote.recorded(ticket).unwrap();
    }
    remote.stop(claimed.recording).unwrap();
    remote.goodbye().unwrap();
    claimed.recording
}

/// A session of an attacker.
fn session(address: SocketAddr) -> io::Result<(TcpStream, u64)> {
    let stream = wire::open(address, PROTOCOL, None)?;
    let hello = ClientMessage::Hello {
        version: message::VERSION,
        token: seed() | 1 << 63,
        session: 0,
    };
    wire::send(&stream, &hello.encode())?;
    let answer = wire::receive(&stream)?;
    match ServerMessage::decode(&answer) {
        Ok(ServerMessage::Welcome { granted, .. }) => {
            let granted = granted.map_err(io::Error::other)?;
            Ok((stream, granted.session))
        }
        other => Err(io::Error::other(format!("{other:?}"))),
    }
}

/// A session that asks for replays of everything, and says that it takes it.
fn thief(address: SocketAddr, recording: u64, replays: u64) -> io::Result<TcpStream> {
    let (stream, session) = session(address)?;
    for request in 1..=replays {
        let replay = ReplayRequest {
            recording,
            from: ReplayFrom::Start,
            bound: ReplayBound::End,
            window_bytes: 4 << 20,
            is_eager: false,
        };
        let message = ClientMessage::Request {
            session,
            request,
            operation: ArchiveOperation::Replay(replay),
        };
        wire::send(&stream, &message.encode())?;
        for limit in [8 << 20, 64 << 20] {
            let credit = ClientMessage::Credit {
                session,
                replay: request,
                limit,
            };
            wire::send(&stream, &credit.encode())?;
        }
    }
    Ok(stream)
}

/// One client that records, lists and replays until it is stopped.
fn work(address: SocketAddr, big: u64, is_on: &AtomicBool) -> Latencies {
    let mut latencies = Latencies::default();
    let mut remote = remote(address).unwrap();
    let claimed = remote.start("small", 0, Durability::Batch, false).unwrap();
    let mut number = 0_u64;
    while is_on.load(Ordering::Relaxed) {
        let mut batch = FrameBatch::new();
        batch.push(0, &number.to_le_bytes(), false);
        let ticket = remote.record(claimed.recording, batch);
        let place = latencies.measure(|| remote.recorded(ticket)).unwrap();
        assert_eq!(place.first_message, number);
        number += 1;
        let found = latencies.measure(|| remote.list(&ListFilter::default()));
        assert!(found.unwrap().len() >= 2);
        let replay = ReplayRequest {
            recording: big,
            from: ReplayFrom::Message(number % 4_000),
            bound: ReplayBound::End,
            window_bytes: 256 << 10,
            is_eager: false,
        };
        let handle = remote.play(replay).unwrap();
        let piece = latencies.measure(|| remote.next(handle)).unwrap();
        assert!(matches!(piece, Played::Piece(_)), "{piece:?}");
        remote.close(handle).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let end = remote.stop(claimed.recording).unwrap();
    assert!(end > 0, "what was confirmed is there");
    latencies
}

/// New clients, one after the other.
fn visit(address: SocketAddr, is_on: &AtomicBool) -> Latencies {
    let mut latencies = Latencies::default();
    while is_on.load(Ordering::Relaxed) {
        latencies.measure(|| {
            let mut remote = remote(address).unwrap();
            remote.list(&ListFilter::default()).unwrap();
            remote.goodbye().unwrap();
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    latencies
}

/// Everything at once: half messages before and after a hello, sessions that never read, slow ones, floods.
fn attack(address: SocketAddr, big: u64) {
    let mut held: Vec<TcpStream> = Vec::new();
    // 2,000 half messages: before the opening, before the session, within it.
    for number in 0..2_000 {
        let half = || -> io::Result<TcpStream> {
            let (stream, there) = match number % 4 {
                0 => (wire::connect(address)?, 200),
                1 => (wire::open(address, PROTOCOL, None)?, 60 << 10),
                _ => (session(address)?.0, 1 << 20),
            };
            let length = match number % 4 {
                0 => 250,
                1 => 64 << 10,
                _ => MESSAGE_LENGTH_MAX,
            };
            wire::send_half(&stream, length, there)?;
            Ok(stream)
        };
        held.extend(half()); // refused or closed: that is the server's right
    }
    let halves = held.len();
    // 1,024 sessions that ask for replays and never read.
    for number in 0..1_024 {
        held.extend(thief(address, big, 1 + number % 3));
    }
    println!("{halves} half messages, {} sessions", held.len() - halves);
    let slow: Vec<TcpStream> = (0..50)
        .filter_map(|_| thief(address, big, 4).ok())
        .collect();
    wire::pester(address, &slow);
}

#[test]
fn an_archive_under_attack_stays_within_its_bounds_and_serves_others() {
    if !can_attack(4_096) {
        return;
    }
    let _one = ATTACK.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("archive-attack");
    let folder = scratch.path("archive");
    let mut server = Server::start(&["archive", "serve", &folder, "--listen", "127.0.0.1:0"]);
    let address = server.address;
    let big = fill(address);
    let before = server.most_memory();
    let is_on = AtomicBool::new(true);
    let (work, visits) = std::thread::scope(|scope| {
        let work = scope.spawn(|| work(address, big, &is_on));
        let visits = scope.spawn(|| visit(address, &is_on));
        attack(address, big);
        is_on.store(false, Ordering::Relaxed);
        (work.join().unwrap(), visits.join().unwrap())
    });
    let said = assert_served("archive", &mut server, before, [work, visits]);
    assert!(
        said.iter().any(|line| line.contains("was disconnected")),
        "{said:?}"
    );
}
