//! `seatrial node kv` under attack.

use super::process::{Latencies, Server};
use super::scratch::Scratch;
use super::{ATTACK, assert_served, can_attack, wire};
use seatrial_host::Protocol;
use seatrial_kv_protocol::message::{self, MESSAGE_LENGTH_MAX, MessageHeader, MessageKind};
use seatrial_kv_protocol::{Failure, Outcome, Transaction};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: message::PROTOCOL,
    version: message::VERSION,
    refuse_old: message::refuse_version,
};

/// Says hello over a connection; the session that the welcome opens.
pub(super) fn open_session(stream: &TcpStream) -> io::Result<u64> {
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    let hello = MessageHeader {
        kind: MessageKind::Hello,
        code: message::VERSION,
        count: 0,
        detail: 0,
        first: TOKENS.fetch_add(1, Ordering::Relaxed),
        second: 0,
    };
    wire::send(stream, &hello.encode())?;
    let welcome = MessageHeader::decode(&wire::receive(stream)?).map_err(io::Error::other)?;
    if welcome.kind != MessageKind::Welcome || welcome.code != 0 {
        return Err(io::Error::other(format!("{welcome:?}")));
    }
    Ok(welcome.second)
}

/// A session: one connection, one request at a time.
struct Session {
    stream: TcpStream,
    id: u64,
    requests: u64,
}

impl Session {
    fn open(address: SocketAddr) -> io::Result<Session> {
        let stream = wire::open(address, PROTOCOL, None)?;
        let id = open_session(&stream)?;
        Ok(Session {
            stream,
            id,
            requests: 0,
        })
    }

    fn send(&mut self, transaction: Transaction) -> io::Result<()> {
        self.requests += 1;
        let message = transaction.into_message(self.id, self.requests);
        wire::send(&self.stream, &message)
    }

    /// Asks, and asks again while the store is overloaded.
    fn ask(&mut self, transaction: &Transaction) -> io::Result<Outcome> {
        let count = transaction.len() as u16;
        loop {
            self.send(transaction.clone())?;
            let reply = wire::receive(&self.stream)?;
            match Outcome::from_reply(reply, count).map_err(io::Error::other)? {
                Outcome::Failed(Failure::Overloaded) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                outcome => return Ok(outcome),
            }
        }
    }
}

fn read(key: &[u8]) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.read(key).unwrap();
    transaction
}

/// A list of almost 1 MiB.
fn fill(address: SocketAddr) {
    let mut session = Session::open(address).unwrap();
    for _ in 0..15 {
        let mut transaction = Transaction::new();
        transaction.append(b"long", &vec![7; 64 << 10]).unwrap();
        let outcome = session.ask(&transaction).unwrap();
        assert!(matches!(outcome, Outcome::Ok(_)), "{outcome:?}");
    }
}

/// A session that asks for the long list many times.
fn thief(address: SocketAddr) -> io::Result<TcpStream> {
    let mut session = Session::open(address)?;
    for _ in 0..40 {
        session.send(read(b"long"))?;
    }
    Ok(session.stream)
}

fn work(address: SocketAddr, key: &[u8], is_on: &AtomicBool) -> Latencies {
    let mut latencies = Latencies::default();
    let mut session = Session::open(address).unwrap();
    while is_on.load(Ordering::Relaxed) {
        let mut transaction = Transaction::new();
        transaction.write(key, b"value").unwrap();
        transaction.read(key).unwrap();
        let outcome = latencies.measure(|| session.ask(&transaction)).unwrap();
        assert!(matches!(outcome, Outcome::Ok(_)), "{outcome:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    latencies
}

fn visit(address: SocketAddr, is_on: &AtomicBool) -> Latencies {
    let mut latencies = Latencies::default();
    while is_on.load(Ordering::Relaxed) {
        latencies.measure(|| {
            let mut session = Session::open(address).unwrap();
            let outcome = session.ask(&read(b"small")).unwrap();
            assert!(matches!(outcome, Outcome::Ok(_)), "{outcome:?}");
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    latencies
}

fn attack(address: SocketAddr) {
    let mut held: Vec<TcpStream> = Vec::new();
    for number in 0..2_000 {
        let half = || -> io::Result<TcpStream> {
            let (stream, length, there) = match number % 4 {
                0 => (wire::connect(address)?, 250, 200),
                1 => (wire::open(address, PROTOCOL, None)?, 64 << 10, 60 << 10),
                _ => {
                    let session = Session::open(address)?;
                    (session.stream, MESSAGE_LENGTH_MAX, 1 << 20)
                }
            };
            wire::send_half(&stream, length, there)?;
            Ok(stream)
        };
        held.extend(half()); // refused or closed: that is the server's right
    }
    let halves = held.len();
    for _ in 0..1_024 {
        held.extend(thief(address));
    }
    println!("{halves} half messages, {} sessions", held.len() - halves);
    let slow: Vec<TcpStream> = (0..50).filter_map(|_| thief(address).ok()).collect();
    wire::pester(address, &slow);
}

#[test]
fn a_store_under_attack_stays_within_its_bounds_and_serves_others() {
    if !can_attack(4_096) {
        return;
    }
    let _one = ATTACK.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("kv-attack");
    let data = scratch.path("data");
    let words = ["node", "kv", "--listen", "127.0.0.1:0", "--data", &data];
    let mut server = Server::start(&words);
    let address = server.address;
    fill(address);
    let before = server.most_memory();
    let is_on = AtomicBool::new(true);
    let (work, visits) = std::thread::scope(|scope| {
        let work = scope.spawn(|| work(address, b"small", &is_on));
        let visits = scope.spawn(|| visit(address, &is_on));
        attack(address);
        is_on.store(false, Ordering::Relaxed);
        (work.join().unwrap(), visits.join().unwrap())
    });
    assert_served("kv", &mut server, before, [work, visits]);
}
