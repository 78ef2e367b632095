//! The service over loopback: `cargo bench -p seatrial --bench service [-- FOLDER]`. Without the argument `--bench`
//! (under `cargo test --benches`) everything runs for a moment.
//!
//! A server in a thread of its own, clients with connections of their own. Throughput: one client records messages in
//! batches of about 256 KiB, as many under way as the window takes, until all are confirmed (durability none: written);
//! then one client replays them and touches every message. Latency: each client hands over one message of 128 bytes and
//! waits until it is durable (level batch; what comes for one recording while a sync is under way shares the next one), over and
//! over, beside writers that each write the same bytes and call fdatasync, one after the other and all at once. FOLDER is
//! where the files go, by default a temporary folder; it has to be on a disk for the latencies to mean anything. All is
//! measured in turns, in several rounds; rates are medians, all rounds' times together make the quantiles.

use seatrial_archive::{BATCH_FRAMES_OFFSET, BATCH_LENGTH, Durability};
use seatrial_archive_service::message::{self, MESSAGE_LENGTH_MAX};
use seatrial_archive_service::{
    ArchiveClient, ArchiveClientOptions, ArchiveService, FrameBatch, Played, RemoteArchive,
    ReplayBound, ReplayFrom, ReplayRequest, ServiceOptions, ServiceRequest,
};
use seatrial_blocks::file::Files;
use seatrial_blocks::frame::frame_length;
use seatrial_host::{
    BlockingLink, ConnectOptions, HostLimits, LinkOptions, ListenOptions, PeerOptions, Protocol,
    serve_machine,
};
use seatrial_machine::{NodeId, Storage};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of a message whose way to the disk is timed.
const LENGTH: usize = 128;
/// Bytes of a block with one message, which plain writers write.
const BYTES: usize = BATCH_FRAMES_OFFSET + frame_length(LENGTH);
/// Batches that are sent and not confirmed.
const UNDER_WAY: usize = 16;

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// What is spoken.
const PROTOCOL: Protocol = Protocol {
    name: message::PROTOCOL,
    version: message::VERSION,
    refuse_old: message::refuse_version,
};

type Remote = RemoteArchive<BlockingLink<ArchiveClient>>;

fn connect(address: SocketAddr) -> Remote {
    static SEEDS: AtomicU64 = AtomicU64::new(1);
    let server = NodeId::server(0);
    let seed = now().wrapping_add(SEEDS.fetch_add(1, Ordering::Relaxed) << 48);
    let options = LinkOptions {
        server,
        connect: ConnectOptions::new(PROTOCOL, MESSAGE_LENGTH_MAX),
        reconnect_interval: None,
    };
    let client = ArchiveClient::new(ArchiveClientOptions::new(server, seed));
    let link = BlockingLink::connect(address, client, options).expect("a server");
    RemoteArchive::new(link)
}

/// Runs `work` beside a server of an empty archive.
fn with_server<T>(folder: &Path, work: impl FnOnce(SocketAddr) -> T) -> T {
    let scratch = tempfile::tempdir_in(folder).expect("a folder");
    let path = scratch.path().join("service");
    let (ready, address) = channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let options = ServiceOptions::new(now());
    let opened = ArchiveService::open(Arc::new(Files), &path, options);
    let (service, _) = opened.expect("an empty folder");
    let done = std::thread::scope(|scope| {
        scope.spawn(move || {
            let options = ListenOptions {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                message_length_max: MESSAGE_LENGTH_MAX,
                limits: HostLimits::default(),
                protocol: PROTOCOL,
                http: None,
                tls: None,
                key: None,
                peers: PeerOptions::default(),
            };
            let ready = |address| ready.send(address).expect("the receiver waits");
            let stopped = async {
                let _ = stopped.await;
            };
            serve_machine(options, service, ServiceRequest::Close, ready, stopped)
                .expect("a sound disk");
        });
        let done = work(address.recv().expect("it listens"));
        stop.send(()).expect("it serves");
        done
    });
    scratch.close().expect("it is there");
    done
}

/// Records `bytes` of messages and replays them: messages per second of both.
fn throughput(folder: &Path, length: usize, bytes: usize) -> (f64, f64) {
    with_server(folder, |address| {
        let mut remote = connect(address);
        let claimed = remote.start("bench", 0, Durability::None, false);
        let recording = claimed.expect("space for it").recording;
        let mut batch = FrameBatch::new();
        let message = vec![7; length];
        while batch.length() + frame_length(length) <= BATCH_LENGTH {
            batch.push(0, &message, false);
        }
        let batches = bytes.div_ceil(batch.length());
        let messages = batches as u64 * u64::from(batch.messages());
        let began = Instant::now();
        let mut sent = VecDeque::new();
        for _ in 0..batches {
            if sent.len() >= UNDER_WAY
                && let Some(oldest) = sent.pop_front()
            {
                remote.recorded(oldest).expect("space for it");
            }
            // The copy stands for the filling of the batch, which costs no less.
            sent.push_back(remote.record(recording, batch.clone()));
        }
        for ticket in sent {
            remote.recorded(ticket).expect("space for it");
        }
        let recorded = began.elapsed().as_secs_f64();
        remote.stop(recording).expect("a sound disk");
        let began = Instant::now();
        let request = ReplayRequest {
            recording,
            from: ReplayFrom::Start,
            bound: ReplayBound::End,
            window_bytes: u32::MAX,
            is_eager: false,
        };
        let replay = remote.play(request).expect("it is there");
        let mut seen = 0;
        while let Played::Piece(piece) = remote.next(replay).expect("it is there") {
            for message in piece.messages() {
                assert_eq!(message.payload.first(), Some(&7));
                seen += 1;
            }
        }
        assert_eq!(seen, messages, "all of them");
        let replayed = began.elapsed().as_secs_f64();
        (messages as f64 / recorded, messages as f64 / replayed)
    })
}

/// What writers saw in one round.
struct Round {
    rate: f64,
    times: Vec<Duration>,
}

/// Runs `writers` threads for a while, each with what `begin` makes for it.
fn run<A: FnMut()>(writers: usize, patience: Duration, begin: impl Fn() -> A + Sync) -> Round {
    let started = std::sync::Barrier::new(writers + 1);
    let (times, seconds) = std::thread::scope(|scope| {
        let write = || {
            let mut append = begin();
            started.wait();
            let (clock, mut times) = (Instant::now(), Vec::new());
            while clock.elapsed() < patience {
                let began = Instant::now();
                append();
                times.push(began.elapsed());
            }
            times
        };
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
        started.wait();
        let clock = Instant::now();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        let times: Vec<Duration> = joined.flatten().collect();
        (times, clock.elapsed().as_secs_f64())
    });
    Round {
        rate: times.len() as f64 / seconds,
        times,
    }
}

/// Each writer writes and syncs on its own, with others or after them.
fn plain(folder: &Path, writers: usize, patience: Duration, at_once: bool) -> Round {
    let scratch = tempfile::tempdir_in(folder).expect("a folder");
    let path = scratch.path().join("plain");
    let file = Files.create(&path).expect("a new file");
    let (end, turn) = (AtomicU64::new(0), Mutex::new(()));
    let round = run(writers, patience, || {
        || {
            let _mine = (!at_once).then(|| turn.lock().expect("no panic"));
            let offset = end.fetch_add(BYTES as u64, Ordering::Relaxed);
            file.write_at(offset, &[7; BYTES]).expect("space for it");
            file.sync().expect("a sound disk");
        }
    });
    scratch.close().expect("it is there");
    round
}

/// Each client has a connection and a recording of its own.
fn served(folder: &Path, writers: usize, patience: Duration) -> Round {
    let durability = Durability::Batch;
    with_server(folder, |address| {
        run(writers, patience, || {
            let mut remote = connect(address);
            let claimed = remote.start("bench", 0, durability, false);
            let recording = claimed.expect("space for it").recording;
            move || {
                let mut batch = FrameBatch::new();
                batch.push(0, &[7; LENGTH], false);
                let ticket = remote.record(recording, batch);
                remote.recorded(ticket).expect("a sound disk");
            }
        })
    })
}

/// One client and one recording for all: `writers` messages under way, each a batch of its own.
fn shared(folder: &Path, writers: usize, patience: Duration) -> Round {
    with_server(folder, |address| {
        let mut remote = connect(address);
        let claimed = remote.start("bench", 0, Durability::Batch, false);
        let recording = claimed.expect("space for it").recording;
        let send = move |remote: &mut Remote| {
            let mut batch = FrameBatch::new();
            batch.push(0, &[7; LENGTH], false);
            (Instant::now(), remote.record(recording, batch))
        };
        let (clock, mut times) = (Instant::now(), Vec::new());
        let mut sent: VecDeque<_> = (0..writers).map(|_| send(&mut remote)).collect();
        while let Some((began, ticket)) = sent.pop_front() {
            remote.recorded(ticket).expect("a sound disk");
            times.push(began.elapsed());
            if clock.elapsed() < patience {
                sent.push_back(send(&mut remote));
            }
        }
        Round {
            rate: times.len() as f64 / clock.elapsed().as_secs_f64(),
            times,
        }
    })
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn print(name: &str, writers: usize, rounds: Vec<Round>) {
    let rate = median(rounds.iter().map(|round| round.rate).collect());
    let mut times: Vec<Duration> = rounds.into_iter().flat_map(|round| round.times).collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "| {writers} | {name} | {rate:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    let is_bench = std::env::args().any(|word| word == "--bench");
    let (rounds, patience, bytes) = if is_bench {
        (5, Duration::from_secs(2), 512 << 20)
    } else {
        (1, Duration::from_millis(50), 1 << 20)
    };
    let folder = arguments.next().map_or(std::env::temp_dir(), PathBuf::from);
    println!(
        "| bytes | record, million/s | MB/s | replay, million/s | MB/s |\n| --- | --- | --- | --- | --- |"
    );
    for length in [32, 128, 1_024, 4_096] {
        let seen: Vec<(f64, f64)> = (0..rounds)
            .map(|_| throughput(&folder, length, bytes))
            .collect();
        let (recorded, replayed): (Vec<f64>, Vec<f64>) = seen.into_iter().unzip();
        let (recorded, replayed) = (median(recorded), median(replayed));
        let megabytes = frame_length(length) as f64 / 1e6;
        println!(
            "| {length} | {:.2} | {:.0} | {:.2} | {:.0} |",
            recorded / 1e6,
            recorded * megabytes,
            replayed / 1e6,
            replayed * megabytes
        );
    }
    println!(
        "\n| writers | | appends/s | p50 µs | p99 µs | p99.9 µs | max µs |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for writers in [1, 64] {
        let mut ways = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            ways[0].push(plain(&folder, writers, patience, false));
            ways[1].push(plain(&folder, writers, patience, true));
            ways[2].push(served(&folder, writers, patience));
            ways[3].push(shared(&folder, writers, patience));
        }
        let names = [
            "fdatasync each",
            "fdatasync, all at once",
            "service, a recording each",
            "service, one recording",
        ];
        for (name, rounds) in names.into_iter().zip(ways) {
            print(name, writers, rounds);
        }
    }
}
