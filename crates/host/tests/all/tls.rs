//! Connections with TLS: between clients and servers, between nodes, and those that must fail.

use crate::wire::{PATIENCE, PROTOCOL};
use seatrial_host::{
    Cluster, ConnectOptions, HostLimits, HostMetrics, LinkOptions, ListenOptions, PeerLink,
    PeerOptions, TlsCredentials, TlsError, serve_machine,
};
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Ticket, Time};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);

/// A file of the tests' certificates (`tests/data/tls/make.sh`).
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/tls")
        .join(name)
}

/// A certificate with its key, and the authority that this side trusts.
fn credentials(name: &str, authority: &str) -> TlsCredentials {
    read(&format!("{name}.pem"), &format!("{name}.key"), authority).unwrap()
}

fn read(certificate: &str, key: &str, authority: &str) -> Result<TlsCredentials, TlsError> {
    TlsCredentials::read(&file(certificate), &file(key), &file(authority))
}

/// Sends every message back.
struct Echo;

impl Machine for Echo {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Message { from, bytes } => {
                out.push(Output::Admit(from));
                let (to, message) = (from, bytes);
                out.push(Output::Send { to, message });
            }
            Input::Request(ticket, ()) => out.push(Output::Reply(ticket, ())),
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

/// Sends each request as a message; replies come back in order.
#[derive(Default)]
struct Caller {
    waiting: VecDeque<Ticket>,
}

impl Machine for Caller {
    type Request = Vec<u8>;
    type Reply = Vec<u8>;

    fn turn(&mut self, _: Time, input: Input<Vec<u8>>, out: &mut Vec<Output<Vec<u8>>>) {
        match input {
            Input::Request(ticket, message) => {
                self.waiting.push_back(ticket);
                out.push(Output::Send { to: N1, message });
            }
            Input::Message { bytes, .. } => {
                let ticket = self.waiting.pop_front().unwrap();
                out.push(Output::Reply(ticket, bytes));
            }
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

impl Peer for Caller {
    fn connection_closed(&mut self, _: &mut Vec<Output<Vec<u8>>>) {}
}

/// A server on a thread of its own, which ends when this is dropped.
struct TlsServer {
    address: SocketAddr,
    metrics: HostMetrics,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

fn start(tls: Option<TlsCredentials>) -> TlsServer {
    let any = "127.0.0.1:0".parse().unwrap();
    start_node(any, tls, None)
}

fn start_node(
    listen: SocketAddr,
    tls: Option<TlsCredentials>,
    cluster: Option<Cluster>,
) -> TlsServer {
    let metrics = HostMetrics::default();
    let options = ListenOptions {
        listen,
        message_length_max: 8 << 20,
        limits: HostLimits {
            unadmitted_timeout: Duration::from_secs(2),
            connection_send_bytes_pause: 1 << 20,
            send_patience: Duration::from_secs(3),
            ..HostLimits::default()
        },
        protocol: PROTOCOL,
        http: None,
        tls,
        key: None,
        peers: PeerOptions {
            cluster,
            metrics: metrics.clone(),
            ..PeerOptions::default()
        },
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, address) = mpsc::channel();
    let thread = thread::spawn(move || {
        let ready = move |address| ready.send(address).unwrap();
        let stopped = async {
            let _ = stopped.await; // a test that failed drops the other end
        };
        serve_machine(options, Echo, (), ready, stopped).unwrap();
    });
    TlsServer {
        address: address.recv_timeout(PATIENCE).unwrap(),
        metrics,
        stop: Some(stop),
        thread: Some(thread),
    }
}

/// Runs a client with these credentials.
fn with_client<R>(
    address: SocketAddr,
    tls: Option<TlsCredentials>,
    work: impl AsyncFnOnce(io::Result<PeerLink<Caller>>) -> R,
) -> R {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let options = LinkOptions {
        server: N1,
        connect: ConnectOptions {
            tls,
            ..ConnectOptions::new(PROTOCOL, 8 << 20)
        },
        reconnect_interval: None,
    };
    runtime.block_on(async {
        let link = PeerLink::connect(address, Caller::default(), options).await;
        tokio::time::timeout(PATIENCE, work(link)).await.unwrap()
    })
}

/// Sends a short message and waits for its reply, after which the connection has a session, and may send long ones.
async fn greet(link: &mut PeerLink<Caller>) {
    link.submit(b"hello".to_vec());
    assert_eq!(link.next().await.unwrap().1, b"hello");
}

#[test]
fn messages_of_any_length_pass_in_both_directions() {
    let server = start(Some(credentials("n1", "ca.pem")));
    let client = credentials("client", "ca.pem");
    with_client(server.address, Some(client), async |link| {
        let mut link = link.unwrap();
        greet(&mut link).await;
        // Around the length of a record, and many that wait at once: both sides read while they write.
        let lengths = [0, 1, 100, 16_379, 16_380, 16_384, 16_385, 100_000, 3 << 20];
        let sent: Vec<Vec<u8>> = (0..45_usize)
            .map(|number| vec![number as u8; lengths[number % lengths.len()]])
            .collect();
        for message in &sent {
            link.submit(message.clone());
        }
        for message in &sent {
            let (_, reply) = link.next().await.unwrap();
            assert!(reply == *message, "{} bytes", message.len());
        }
    });
}

#[test]
fn what_is_sent_cannot_be_read_on_the_way() {
    let server = start(Some(credentials("n1", "ca.pem")));
    // A relay that keeps what passes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (between, there) = (listener.local_addr().unwrap(), server.address);
    let relay = thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        let far = TcpStream::connect(there).unwrap();
        let copy = |mut from: TcpStream, mut to: TcpStream| {
            thread::spawn(move || {
                let (mut kept, mut piece) = (Vec::new(), [0; 4_096]);
                while let Ok(count @ 1..) = from.read(&mut piece) {
                    kept.extend_from_slice(&piece[..count]);
                    let _ = to.write_all(&piece[..count]); // the other side has closed
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
                kept
            })
        };
        let out = copy(near.try_clone().unwrap(), far.try_clone().unwrap());
        let back = copy(far, near);
        [out.join().unwrap(), back.join().unwrap()]
    });
    let client = credentials("client", "ca.pem");
    with_client(between, Some(client), async |link| {
        let mut link = link.unwrap();
        link.submit(b"a secret of thirty-two characters".to_vec());
        link.next().await.unwrap();
    });
    for kept in relay.join().unwrap() {
        assert!(kept.len() > 500, "{} bytes", kept.len());
        for text in [&b"secret"[..], b"seatrial"] {
            assert!(!kept.windows(text.len()).any(|it| it == text));
        }
    }
}

/// A connection with these two sides fails with this reason at the client.
fn refuses(server: Option<TlsCredentials>, client: Option<TlsCredentials>, reason: &str) {
    let server = start(server);
    let error = with_client(server.address, client, async |link| match link {
        Ok(_) => panic!("connected, expected: {reason}"),
        Err(error) => error,
    });
    assert!(
        error.to_string().contains(reason),
        "{error}, expected: {reason}"
    );
}

#[test]
fn sides_that_do_not_trust_each_other_say_why() {
    let server = || Some(credentials("n1", "ca.pem"));
    let client = || Some(credentials("client", "ca.pem"));
    let reason = "the server's certificate is not signed by this side's authority (--tls-ca)";
    refuses(
        server(),
        Some(credentials("client", "other-ca.pem")),
        reason,
    );
    let reason = "the server refused the certificate of this side: it is not signed";
    refuses(server(), Some(credentials("stranger", "ca.pem")), reason);
    let expired = || Some(credentials("expired", "ca.pem"));
    refuses(expired(), client(), "the server's certificate has expired");
    refuses(
        server(),
        expired(),
        "the server refused the certificate of this side: it has expired",
    );
    // A client's certificate is not one of a server.
    let reason = "the server's certificate is refused: certificate not valid for name \"seatrial\"";
    refuses(client(), client(), reason);
    refuses(
        server(),
        None,
        "the server demands TLS (--tls-cert, --tls-key, --tls-ca)",
    );
    refuses(
        None,
        client(),
        "the server closed the connection during the TLS handshake",
    );
}

#[test]
fn files_that_are_none_are_refused_with_their_name() {
    for (certificate, key, authority, reason) in [
        ("none.pem", "n1.key", "ca.pem", "none.pem: No such file"),
        ("n1.pem", "none.key", "ca.pem", "none.key: No such file"),
        ("n1.pem", "n1.key", "none.pem", "none.pem: No such file"),
        (
            "n1.pem",
            "n2.key",
            "ca.pem",
            "n2.key: the key does not belong to the certificate in ",
        ),
        (
            "n1.key",
            "n1.key",
            "ca.pem",
            "n1.key: no certificate (expected PEM",
        ),
        (
            "n1.pem",
            "n1.pem",
            "ca.pem",
            "n1.pem: no private key (expected PEM",
        ),
        ("n1.pem", "n1.key", "make.sh", "make.sh: no certificate"),
        ("n1.pem", "n1.key", "", "tls/: Is a directory"),
    ] {
        let error = read(certificate, key, authority).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}, expected: {reason}");
    }
    let n1 = credentials("n1", "ca.pem");
    n1.check_node("n1").unwrap();
    let error = n1.check_node("n2").unwrap_err().to_string();
    assert!(
        error.contains("n1.pem: the certificate is not for n2"),
        "{error}"
    );
    let client = credentials("client", "ca.pem");
    assert!(client.check_node("n1").is_err());
    assert!(!format!("{client:?}").contains("key"), "{client:?}");
}

/// Two nodes with these certificates, that dial each other.
fn pair(first: &str, second: &str) -> [TlsServer; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = listeners.map(|it| it.local_addr().unwrap());
    let all: BTreeMap<NodeId, SocketAddr> = [N1, N2].into_iter().zip(addresses).collect();
    let node = |node: NodeId, certificate: &str| {
        let mut others = all.clone();
        others.remove(&node);
        let cluster = Cluster {
            id: 7,
            node,
            addresses: others,
        };
        start_node(
            all[&node],
            Some(credentials(certificate, "ca.pem")),
            Some(cluster),
        )
    };
    [node(N1, first), node(N2, second)]
}

/// Waits until a server's connection to a node is like this: open, or failed for a reason.
fn until_peer(server: &TlsServer, node: NodeId, reason: Option<&str>) {
    let began = Instant::now();
    loop {
        let counts = server.metrics.counts();
        let peer = counts.peers.get(&node);
        let found = peer.is_some_and(|it| match reason {
            None => it.is_connected,
            Some(reason) => it
                .last_error
                .as_deref()
                .is_some_and(|it| it.contains(reason)),
        });
        if found {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{peer:?}, expected: {reason:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nodes_know_each_other_by_the_names_of_their_certificates() {
    let [one, two] = pair("n1", "n2");
    until_peer(&one, N2, None);
    until_peer(&two, N1, None);
    drop((one, two));
    // What has the certificate of a client, or of another node, is no node.
    for other in ["client", "n3"] {
        let [one, two] = pair("n1", other);
        until_peer(&one, N2, Some("certificate not valid for name \"n2\""));
        until_peer(
            &two,
            N1,
            Some("it does not accept this node as a member of its system"),
        );
        assert!(!two.metrics.counts().peers[&N1].is_connected);
    }
}

#[test]
fn handshakes_that_do_not_end_cost_others_nothing() {
    let server = start(Some(credentials("n1", "ca.pem")));
    // The begin of a record of 16 KiB, then nothing.
    let mut half = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    half.resize(1_000, 0);
    let half: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(&half).unwrap();
            stream
        })
        .collect();
    let garbage = TcpStream::connect(server.address).unwrap();
    (&garbage).write_all(&vec![0xa5; 100_000]).unwrap();
    let client = credentials("client", "ca.pem");
    with_client(server.address, Some(client), async |link| {
        greet(&mut link.unwrap()).await;
    });
    let began = Instant::now();
    for mut stream in half.into_iter().chain([garbage]) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut piece = [0; 256];
        loop {
            match stream.read(&mut piece) {
                Ok(1..) => {}
                Ok(0) => break,
                Err(error) => {
                    assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "it was not closed");
                    break;
                }
            }
        }
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_client_that_never_reads_is_read_no_further_and_closed() {
    const MESSAGES: usize = 64;
    const MESSAGE_LENGTH: usize = 1 << 20;
    let server = start(Some(credentials("n1", "ca.pem")));
    // A relay that passes the handshake and the opening back, and then nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (between, there) = (listener.local_addr().unwrap(), server.address);
    let relay = thread::spawn(move || {
        let mut near = listener.accept().unwrap().0;
        let mut far = TcpStream::connect(there).unwrap();
        let (mut near_back, mut far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let back = thread::spawn(move || {
            let (mut passed, mut piece) = (0, [0; 4_096]);
            while passed < 64 << 10 {
                let Ok(count @ 1..) = far_back.read(&mut piece) else {
                    return;
                };
                near_back.write_all(&piece[..count]).unwrap();
                passed += count;
            }
        });
        let (mut passed, mut piece) = (0, [0; 4_096]);
        while let Ok(count @ 1..) = near.read(&mut piece) {
            if far.write_all(&piece[..count]).is_err() {
                break; // closed by the server
            }
            passed += count;
        }
        back.join().unwrap();
        passed
    });
    let client = credentials("client", "ca.pem");
    with_client(between, Some(client.clone()), async |link| {
        let mut link = link.unwrap();
        greet(&mut link).await;
        for _ in 0..MESSAGES {
            link.submit(vec![7; MESSAGE_LENGTH]);
        }
        // Others are served meanwhile.
        let address = server.address;
        let other = thread::spawn(move || {
            with_client(address, Some(client), async |link| {
                greet(&mut link.unwrap()).await;
            });
        });
        while link.next().await.is_some() {}
        other.join().unwrap();
    });
    // The pause, one message, and the buffers of the kernel for four directions.
    let passed = relay.join().unwrap();
    let expected = MESSAGE_LENGTH..MESSAGES * MESSAGE_LENGTH * 2 / 3;
    assert!(expected.contains(&passed), "{passed} bytes");
}
