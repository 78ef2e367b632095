use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const NODE: NodeId = NodeId::server(1);
const CLIENT: NodeId = NodeId::client(0);
const THERE: Link = Link {
    from: CLIENT,
    to: NODE,
};
const BACK: Link = Link {
    from: NODE,
    to: CLIENT,
};
/// Long enough that what has not happened by then is not under way.
const QUIET: Duration = Duration::from_millis(150);

/// A mesh with one node that sends back what it gets, and the number of bytes that reached it.
async fn echo() -> (Mesh, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mesh = Mesh::new(Handle::current());
    mesh.add_node(NODE, listener.local_addr().unwrap());
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(length) = stream.read(&mut buffer).await {
                    counter.fetch_add(length as u64, Ordering::Relaxed);
                    if length == 0 || stream.write_all(&buffer[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (mesh, seen)
}

async fn connect(mesh: &Mesh) -> TcpStream {
    let address = mesh.route(CLIENT, NODE).unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// Sends `text` and reads as much again.
async fn say(stream: &mut TcpStream, text: &str) -> io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    hear(stream, text.len()).await
}

async fn hear(stream: &mut TcpStream, length: usize) -> io::Result<String> {
    let mut buffer = vec![0; length];
    stream.read_exact(&mut buffer).await?;
    Ok(String::from_utf8(buffer).unwrap())
}

#[tokio::test]
async fn whole_links_pass_everything() {
    let (mesh, _) = echo().await;
    let mut stream = connect(&mesh).await;
    assert_eq!(say(&mut stream, "hello").await.unwrap(), "hello");
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut read, mut write) = stream.split();
    let mut heard = vec![0; sent.len()];
    let (wrote, got) = tokio::join!(write.write_all(&sent), read.read_exact(&mut heard));
    wrote.unwrap();
    got.unwrap();
    assert!(heard == sent, "bytes were changed on the way");
    write.shutdown().await.unwrap();
    assert_eq!(read.read(&mut [0]).await.unwrap(), 0, "the end passes too");
    let meter = mesh.meter(&[THERE]);
    assert_eq!(meter.passed_bytes, 3_000_005);
    assert_eq!((meter.held_bytes, meter.held_connections), (0, 0));
}

#[tokio::test]
async fn a_cut_stalls_both_ways_and_healing_lets_through() {
    for link in [THERE, BACK] {
        let (mesh, seen) = echo().await;
        let mut stream = connect(&mesh).await;
        say(&mut stream, "before").await.unwrap();
        mesh.cut(&[link]);
        let stalled = timeout(QUIET, say(&mut stream, "during")).await;
        assert!(stalled.is_err(), "{link:?} lets bytes through");
        let arrived = if link == THERE { 6 } else { 12 };
        assert_eq!(seen.load(Ordering::Relaxed), arrived, "{link:?}");
        assert_eq!(mesh.meter(&[link]).held_bytes, 6, "{link:?}");
        mesh.heal();
        assert_eq!(hear(&mut stream, 6).await.unwrap(), "during");
        assert_eq!(say(&mut stream, "after").await.unwrap(), "after");
    }
}

#[tokio::test]
async fn a_cut_stalls_new_connections() {
    for link in [THERE, BACK] {
        let (mesh, seen) = echo().await;
        mesh.cut(&[link]);
        let mut stream = connect(&mesh).await;
        assert!(timeout(QUIET, say(&mut stream, "hello")).await.is_err());
        let mut given_up = connect(&mesh).await;
        given_up.write_all(b"never mind").await.unwrap();
        drop(given_up);
        sleep(QUIET).await;
        assert_eq!(mesh.meter(&[link]).held_connections, 2, "{link:?}");
        let mut late = connect(&mesh).await;
        late.write_all(b"never mind either").await.unwrap();
        while mesh.meter(&[link]).held_connections < 3 {
            sleep(Duration::from_millis(1)).await;
        }
        drop(late);
        sleep(Duration::from_millis(2)).await; // for the news to reach the proxy
        mesh.heal();
        assert_eq!(hear(&mut stream, 5).await.unwrap(), "hello");
        sleep(QUIET).await;
        assert_eq!(seen.load(Ordering::Relaxed), 5, "given up means given up");
    }
}

#[tokio::test]
async fn a_cut_pushes_back_on_the_sender() {
    let (mesh, seen) = echo().await;
    let mut stream = connect(&mesh).await;
    say(&mut stream, "hello").await.unwrap();
    mesh.cut(&[THERE]);
    let flood = vec![7; 64 << 20];
    assert!(timeout(QUIET, stream.write_all(&flood)).await.is_err());
    let held = mesh.meter(&[THERE]).held_bytes;
    assert!(
        (1..=96 * 1024).contains(&held),
        "the proxy holds {held} bytes"
    );
    assert_eq!(seen.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn slow_links_delay_and_keep_the_order() {
    let (mesh, _) = echo().await;
    let mut stream = connect(&mesh).await;
    say(&mut stream, "hello").await.unwrap();
    let (delay, jitter) = (Duration::from_millis(40), Duration::from_millis(20));
    mesh.disturb(&[THERE], Disturbance::Slow { delay, jitter });
    let began = Instant::now();
    say(&mut stream, "hello").await.unwrap();
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(20), "{took:?}");
    let text: String = (0..200).map(|n| n.to_string() + ",").collect();
    for piece in text.as_bytes().chunks(7) {
        stream.write_all(piece).await.unwrap();
        sleep(Duration::from_micros(300)).await;
    }
    assert_eq!(hear(&mut stream, text.len()).await.unwrap(), text);
    assert!(mesh.meter(&[THERE]).disturbed_bytes >= text.len() as u64);
    let delay = Duration::from_mins(1);
    let jitter = Duration::ZERO;
    mesh.disturb(&[THERE], Disturbance::Slow { delay, jitter });
    stream.write_all(b"late").await.unwrap();
    sleep(QUIET).await;
    mesh.calm();
    let heard = timeout(Duration::from_secs(30), hear(&mut stream, 4)).await;
    assert_eq!(
        heard.unwrap().unwrap(),
        "late",
        "healing does not wait for the old delay"
    );
}

#[tokio::test]
async fn a_reset_breaks_connections_once() {
    let (mesh, _) = echo().await;
    let mut stream = connect(&mesh).await;
    say(&mut stream, "hello").await.unwrap();
    assert_eq!(mesh.reset(&[BACK]), 1);
    let error = hear(&mut stream, 1).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(mesh.meter(&[THERE]).reset_connections, 1);
    let mut stream = connect(&mesh).await;
    assert_eq!(say(&mut stream, "again").await.unwrap(), "again");
    let other = NodeId::client(9);
    let elsewhere = Link {
        from: other,
        to: NODE,
    };
    assert_eq!(mesh.reset(&[elsewhere]), 0);
    assert_eq!(say(&mut stream, "still").await.unwrap(), "still");
}

#[tokio::test]
async fn a_dead_node_looks_dead_unless_the_link_is_cut() {
    let (mesh, _) = echo().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    mesh.add_node(NODE, closed.local_addr().unwrap());
    drop(closed);
    let mut stream = connect(&mesh).await;
    let error = hear(&mut stream, 1).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    mesh.cut(&[BACK]);
    let mut stream = connect(&mesh).await;
    assert!(timeout(QUIET, hear(&mut stream, 1)).await.is_err());
    mesh.heal();
    let error = hear(&mut stream, 1).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_unknown_node_is_an_error() {
    let (mesh, _) = echo().await;
    let error = mesh.route(CLIENT, NodeId::server(7)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("n7"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_small_exchanges_per_second() {
    let (mesh, _) = echo().await;
    let began = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let mut stream = connect(&mesh).await;
        stream.set_nodelay(true).unwrap();
        tasks.push(tokio::spawn(async move {
            for _ in 0..500 {
                say(&mut stream, "0123456789").await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    // Here about 20,000 per second on an idle machine; the floor only catches a proxy that waits for timers.
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn what_tcp_mends_arrives_late_and_in_order() {
    let (mesh, _) = echo().await;
    let mut stream = connect(&mesh).await;
    say(&mut stream, "hello").await.unwrap();
    let held = Duration::from_millis(300);
    let text = "0123456789".repeat(30);
    for (how, at_least) in [
        (Disturbance::Lose { percent: 100 }, Duration::from_secs(3)),
        (
            Disturbance::Reorder {
                percent: 100,
                delay: held,
            },
            held,
        ),
        (
            Disturbance::Throttle {
                bytes_per_second: 1_000,
            },
            Duration::from_millis(300),
        ),
    ] {
        let before = mesh.meter(&[THERE]);
        mesh.disturb(&[THERE], how);
        let began = Instant::now();
        assert_eq!(say(&mut stream, &text).await.unwrap(), text);
        let took = began.elapsed();
        assert!(took >= at_least, "{how:?}: {took:?}");
        let disturbed = mesh.meter(&[THERE]).since(before).disturbed_bytes;
        assert_eq!(disturbed, 300, "{how:?}");
        mesh.calm();
    }
    assert_eq!(say(&mut stream, "calm").await.unwrap(), "calm");
}

#[tokio::test]
async fn a_flapping_link_holds_what_comes_while_it_is_down() {
    let (mesh, _) = echo().await;
    let mut stream = connect(&mesh).await;
    assert_eq!(say(&mut stream, "a").await.unwrap(), "a");
    let period = Duration::from_millis(300);
    let before = Instant::now();
    mesh.disturb(&[THERE], Disturbance::Flap { period });
    let disturbed = Instant::now();
    assert_eq!(say(&mut stream, "b").await.unwrap(), "b");
    assert!(before.elapsed() >= period, "it passed a link that is down");
    let passed = Instant::now();
    assert_eq!(say(&mut stream, "c").await.unwrap(), "c");
    // Unless this machine slept through the whole phase, the link worked just now.
    if passed < disturbed + period + period / 2 {
        assert!(passed.elapsed() < period, "held although the link works");
    }
    tokio::time::sleep_until((before + 2 * period).into()).await;
    let again = Instant::now();
    if again < disturbed + 2 * period + period / 2 {
        assert_eq!(say(&mut stream, "d").await.unwrap(), "d");
        assert!(again.elapsed() >= period / 3, "the link is down again");
    }
    assert!(mesh.meter(&[THERE]).disturbed_bytes >= 2);
    mesh.calm();
    let calm = Instant::now();
    assert_eq!(say(&mut stream, "e").await.unwrap(), "e");
    assert!(calm.elapsed() < period);
}

/// Records what it is asked.
#[derive(Debug, Default)]
struct RecordedFaults(Mutex<Vec<String>>);

impl RecordedFaults {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

impl LinkControl for RecordedFaults {
    fn cut(&self, links: &[Link]) {
        self.note(format!("cut {}", links.len()));
    }

    fn disturb(&self, links: &[Link], how: Disturbance) {
        self.note(format!("disturb {} {how:?}", links.len()));
    }

    fn heal(&self) {
        self.note("heal".into());
    }

    fn calm(&self) {
        self.note("calm".into());
    }

    fn meter(&self, links: &[Link]) -> Meter {
        Meter {
            held_bytes: links.len() as u64,
            ..Meter::default()
        }
    }
}

#[tokio::test]
async fn an_attached_network_gets_the_faults() {
    let mesh = Mesh::without_proxies(Handle::current());
    assert!(!mesh.can_break_links());
    let network = Arc::new(RecordedFaults::default());
    mesh.attach(Arc::clone(&network) as Arc<dyn LinkControl>);
    assert!(mesh.can_break_links());
    let links = Link::both(NodeId::server(1), NodeId::server(2));
    mesh.cut(&links);
    mesh.heal();
    mesh.disturb(&links[..1], Disturbance::Lose { percent: 5 });
    mesh.calm();
    assert_eq!(mesh.reset(&links), 0);
    assert_eq!(mesh.meter(&links).held_bytes, 2);
    assert_eq!(
        *network.0.lock().unwrap(),
        ["cut 2", "heal", "disturb 1 Lose { percent: 5 }", "calm"]
    );
}
