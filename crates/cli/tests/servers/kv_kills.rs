//! Three `seatrial node kv` with checkpoints, killed (SIGKILL) all at once again and again while clients write through each.

use super::kv::PROTOCOL;
use super::kv::open_session;
use super::process::{PATIENCE, Server, free_addresses};
use super::scratch::Scratch;
use super::wire;
use seatrial_kv_protocol::{Answer, Outcome, Transaction};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rounds: each one ends with the death of all nodes. `SEATRIAL_KILLS` asks for more.
const ROUNDS: u64 = 5;
const NODES: usize = 3;
const CLIENTS: u64 = 6;
/// Bytes of one element, so that a round makes a few checkpoints.
const ELEMENT: usize = 100;
const CHECKPOINT_BYTES: &str = "30000";

/// The cluster: its addresses stay, its processes do not.
struct StoreCluster<'a> {
    scratch: &'a Scratch,
    addresses: Vec<SocketAddr>,
    servers: Vec<Server>,
}

impl StoreCluster<'_> {
    fn start(&mut self) {
        let addresses = &self.addresses;
        let start = |own: usize| {
            let others = (0..NODES).filter(|peer| *peer != own);
            let peers: Vec<String> = others
                .map(|peer| format!("n{}={}", peer + 1, addresses[peer]))
                .collect();
            let (number, listen) = ((own + 1).to_string(), addresses[own].to_string());
            let data = self.scratch.path(&format!("n{number}"));
            let peers = peers.join(",");
            let words = ["node", "kv", "--node", &number, "--listen", &listen];
            let more = ["--data", &data, "--peers", &peers];
            let checkpoints = ["--checkpoint-bytes", CHECKPOINT_BYTES];
            Server::start(&[&words[..], &more, &checkpoints].concat())
        };
        self.servers = (0..NODES).map(start).collect();
    }

    /// All at once: no process waits for the end of another.
    fn kill(&mut self) {
        self.servers.iter_mut().for_each(Server::kill);
        self.servers.clear();
    }

    /// Indices of the checkpoints of a node.
    fn checkpoints(&self, node: usize) -> Vec<u64> {
        let folder = self.scratch.path(&format!("n{}/files", node + 1));
        let files = std::fs::read_dir(folder).into_iter().flatten();
        let names = files.filter_map(|it| it.ok()?.file_name().into_string().ok());
        let mut indices: Vec<u64> = names
            .filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok())
            .collect();
        indices.sort_unstable();
        indices
    }
}

/// A session of the cluster, at one node at a time.
struct ClusterSession<'a> {
    addresses: &'a [SocketAddr],
    /// Index of the node to ask.
    home: usize,
    stream: Option<TcpStream>,
    id: u64,
    requests: u64,
}

/// Longer than a request usually takes on a busy machine; then another node is asked.
const REPLY: Duration = Duration::from_secs(2);
/// Pause of a client between requests: the state stays small enough for hundreds of rounds.
const PAUSE: Duration = Duration::from_millis(2);

impl<'a> ClusterSession<'a> {
    fn new(addresses: &'a [SocketAddr], home: usize) -> ClusterSession<'a> {
        ClusterSession {
            addresses,
            home: home % addresses.len(),
            stream: None,
            id: 0,
            requests: 0,
        }
    }

    /// Connects to the home node; every connection says hello, and the first one opens the session.
    fn connect(&mut self) -> io::Result<TcpStream> {
        let stream = wire::open(self.addresses[self.home], PROTOCOL, None)?;
        stream.set_read_timeout(Some(REPLY))?;
        let session = open_session(&stream)?;
        if self.id == 0 {
            self.id = session;
        }
        Ok(stream)
    }

    fn request_once(&mut self, message: &[u8], count: u16) -> io::Result<Outcome> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        wire::send(&stream, message)?;
        let reply = wire::receive(&stream)?;
        self.stream = Some(stream);
        Outcome::from_reply(reply, count).map_err(io::Error::other)
    }

    /// Sends one request until there is a reply, to the next node after each failure; `None` when `is_on` ends first.
    fn request(&mut self, transaction: Transaction, is_on: &AtomicBool) -> Option<Outcome> {
        while self.id == 0 {
            match self.connect() {
                Ok(stream) => self.stream = Some(stream),
                Err(_) => self.try_next(is_on)?,
            }
        }
        self.requests += 1;
        let count = transaction.len() as u16;
        let message = transaction.into_message(self.id, self.requests);
        loop {
            match self.request_once(&message, count) {
                Ok(outcome) => return Some(outcome),
                Err(_) => self.try_next(is_on)?,
            }
        }
    }

    fn try_next(&mut self, is_on: &AtomicBool) -> Option<()> {
        self.stream = None;
        self.home = (self.home + 1) % self.addresses.len();
        std::thread::sleep(Duration::from_millis(20));
        is_on.load(Ordering::Relaxed).then_some(())
    }
}

fn element(client: u64, number: u64) -> Vec<u8> {
    let mut element = vec![b'.'; ELEMENT];
    element[..8].copy_from_slice(&client.to_le_bytes());
    element[8..16].copy_from_slice(&number.to_le_bytes());
    element
}

/// Client and number of an element.
fn decode(element: &[u8]) -> (u64, u64) {
    let long = |at: usize| u64::from_le_bytes(element[at..at + 8].try_into().unwrap());
    assert_eq!(element.len(), ELEMENT);
    (long(0), long(8))
}

/// What a client knows of a list that it alone appends to.
#[derive(Clone, Debug, Default)]
struct KnownList {
    acknowledged: Vec<u64>,
    /// Appends whose session was lost.
    unknown: u64,
}

/// Lists of a round: one of each client, and one that all share.
fn own_list(round: u64, client: u64) -> String {
    format!("{round}-{client}")
}

fn shared_list(round: u64) -> String {
    format!("{round}-all")
}

/// Appends to the own and the shared list of the round, one transaction after the other, until `is_on` ends. An append without a
/// reply is sent again, in its session, to the next node: it is executed once.
fn write(
    session: &mut ClusterSession<'_>,
    (client, round): (u64, &AtomicU64),
    is_on: &AtomicBool,
) -> BTreeMap<u64, KnownList> {
    let mut known: BTreeMap<u64, KnownList> = BTreeMap::new();
    let mut number = 0;
    while is_on.load(Ordering::Relaxed) {
        number += 1;
        let round = round.load(Ordering::Relaxed);
        let mut transaction = Transaction::new();
        let element = element(client, number);
        let own = own_list(round, client);
        transaction.append(own.as_bytes(), &element).unwrap();
        let shared = shared_list(round);
        transaction.append(shared.as_bytes(), &element).unwrap();
        let known = known.entry(round).or_default();
        match session.request(transaction, is_on) {
            Some(Outcome::Ok(_)) => known.acknowledged.push(number),
            None => known.unknown += 1,
            Some(other) => panic!("client {client}, element {number}: {other:?}"),
        }
        std::thread::sleep(PAUSE);
    }
    known
}

/// The elements of a list.
fn read_list(session: &mut ClusterSession<'_>, key: &str) -> Vec<(u64, u64)> {
    let mut transaction = Transaction::new();
    transaction.read(key.as_bytes()).unwrap();
    let is_on = AtomicBool::new(true);
    let outcome = session.request(transaction, &is_on).unwrap();
    let Outcome::Ok(answers) = outcome else {
        panic!("{key}: {outcome:?}")
    };
    match answers.iter().next() {
        Some(Answer::List(list)) => list.iter().map(decode).collect(),
        _ => Vec::new(),
    }
}

/// Every acknowledged element is there once and in order, in its own list and in the shared one.
fn check_lists(
    session: &mut ClusterSession<'_>,
    rounds: u64,
    known: &[BTreeMap<u64, KnownList>],
) -> u64 {
    let mut acknowledged = 0;
    for round in 0..=rounds {
        let shared = read_list(session, &shared_list(round));
        for (client, lists) in (0..).zip(known) {
            let own = read_list(session, &own_list(round, client));
            let known = lists.get(&round).cloned().unwrap_or_default();
            let numbers: Vec<u64> = own.iter().map(|it| it.1).collect();
            let name = own_list(round, client);
            assert!(own.iter().all(|it| it.0 == client), "{name}: {own:?}");
            assert!(numbers.is_sorted_by(|a, b| a < b), "{name}: {numbers:?}");
            let lost: Vec<&u64> = known
                .acknowledged
                .iter()
                .filter(|it| numbers.binary_search(it).is_err())
                .collect();
            assert!(lost.is_empty(), "{name}: acknowledged and lost: {lost:?}");
            let more = numbers.len() - known.acknowledged.len();
            assert!(more as u64 <= known.unknown, "{name}: {more} more");
            let in_shared: Vec<u64> = shared
                .iter()
                .filter(|it| it.0 == client)
                .map(|it| it.1)
                .collect();
            assert_eq!(in_shared, numbers, "{name}: the shared list");
            acknowledged += known.acknowledged.len() as u64;
        }
    }
    acknowledged
}

/// Ends the clients, also when the test fails.
struct EndClients<'a>(&'a AtomicBool);

impl Drop for EndClients<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn nodes_that_are_killed_together_lose_nothing_acknowledged() {
    let rounds = std::env::var("SEATRIAL_KILLS").map_or(ROUNDS, |it| it.parse().unwrap());
    let scratch = Scratch::new("kv-kills");
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}"); // of the times of kills: what the processes do meanwhile differs in each run
    let mut rng = Rng::from_seed(seed);
    let mut cluster = StoreCluster {
        scratch: &scratch,
        addresses: free_addresses(NODES),
        servers: Vec::new(),
    };
    let addresses = cluster.addresses.clone();
    let is_on = AtomicBool::new(true);
    let (round, served) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let known: Vec<BTreeMap<u64, KnownList>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (addresses, round, is_on) = (&addresses, &round, &is_on);
                scope.spawn(move || {
                    let mut session = ClusterSession::new(addresses, client as usize);
                    write(&mut session, (client, round), is_on)
                })
            })
            .collect();
        let end = EndClients(&is_on);
        for number in 0..rounds {
            cluster.start();
            round.store(number, Ordering::Relaxed);
            // Once the store serves, the kill comes at any moment of the next second.
            let mut session = ClusterSession::new(&addresses, number as usize);
            let began = Instant::now();
            let first = session.request(Transaction::new(), &AtomicBool::new(true));
            assert!(matches!(first, Some(Outcome::Ok(_))), "{first:?}");
            assert!(began.elapsed() < PATIENCE, "the store does not answer");
            served.fetch_add(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(200 + rng.below(1_000)));
            cluster.kill();
        }
        cluster.start();
        round.store(rounds, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(2));
        drop(end);
        clients.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let mut session = ClusterSession::new(&addresses, 0);
    let acknowledged = check_lists(&mut session, rounds, &known);
    let checkpoints: Vec<Vec<u64>> = (0..NODES).map(|it| cluster.checkpoints(it)).collect();
    println!(
        "{rounds} times all nodes killed: {acknowledged} appends acknowledged, none lost; newest checkpoints {checkpoints:?}; \
         {} ms from the start to the first reply; {:.1} s in all",
        served.into_inner() / rounds,
        began.elapsed().as_secs_f64()
    );
    assert!(acknowledged > 20 * rounds, "{acknowledged}");
    // Which nodes get a turn to write in lives of a second is not fixed; that some do is.
    assert!(
        checkpoints.iter().any(|it| it.len() == 2),
        "{checkpoints:?}"
    );
}
