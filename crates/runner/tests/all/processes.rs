//! Nodes as processes: start, kill, pause, damage, and no process outlives a test.

use crate::roles::{command, nodes};
use seatrial_machine::{DiskTrouble, Fault, Link, NodeId, Rng};
use seatrial_runner::{InjectionResult, Mesh, NodeError, NodeLimits, Nodes, ProcessNodes};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

const N1: NodeId = NodeId::server(1);
const C0: NodeId = NodeId::client(0);
/// Long enough that what has not happened by then is not under way.
const QUIET: Duration = Duration::from_millis(200);

/// One client of the register, through the mesh.
struct Line(BufReader<TcpStream>);

impl Line {
    async fn open(mesh: &Mesh) -> Line {
        let address = mesh.route(C0, N1).unwrap();
        Line(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    async fn say(&mut self, text: &str) -> io::Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{text}\n").as_bytes())
            .await?;
        self.hear().await
    }

    async fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim().into()),
        }
    }
}

async fn started(count: u32) -> (ProcessNodes, Mesh, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mesh = Mesh::new(Handle::current());
    let nodes = nodes("register", count);
    nodes.prepare(folder.path(), &mesh).await.unwrap();
    for &node in nodes.ids() {
        let effect = nodes.start(node).await.unwrap();
        assert!(matches!(effect, InjectionResult::Done(_)), "{effect:?}");
    }
    nodes.formed().await.unwrap();
    (nodes, mesh, folder)
}

async fn inject(nodes: &ProcessNodes, fault: Fault) -> Result<InjectionResult, NodeError> {
    nodes.inject(&fault, Rng::from_seed(1)).await
}

fn happened(effect: Result<InjectionResult, NodeError>) {
    let effect = effect.unwrap();
    assert!(matches!(effect, InjectionResult::Done(_)), "{effect:?}");
}

fn did_not_happen(effect: Result<InjectionResult, NodeError>) {
    let effect = effect.unwrap();
    assert!(matches!(effect, InjectionResult::Nothing(_)), "{effect:?}");
}

#[tokio::test]
async fn a_kill_is_seen_by_clients_and_a_restart_keeps_the_data() {
    let (nodes, mesh, folder) = started(2).await;
    let mut line = Line::open(&mesh).await;
    assert_eq!(line.say("w 5").await.unwrap(), "ok");
    happened(inject(&nodes, Fault::Kill(N1)).await);
    line.say("r").await.unwrap_err();
    did_not_happen(inject(&nodes, Fault::Kill(N1)).await);
    did_not_happen(inject(&nodes, Fault::Pause(N1)).await);
    happened(nodes.start(N1).await);
    did_not_happen(nodes.start(N1).await);
    let mut line = Line::open(&mesh).await;
    assert_eq!(line.say("r").await.unwrap(), "5");
    for &node in nodes.ids() {
        nodes.stop(node).await.unwrap();
    }
    assert!(nodes.take_deaths().is_empty(), "no node died by itself");
    let log = fs::read_to_string(folder.path().join("n1.log")).unwrap();
    assert_eq!(log.matches("ready").count(), 2, "{log}");
}

#[tokio::test]
async fn a_pause_stalls_clients_until_the_end_of_it() {
    let (nodes, mesh, _folder) = started(1).await;
    let mut line = Line::open(&mesh).await;
    happened(inject(&nodes, Fault::Pause(N1)).await);
    did_not_happen(inject(&nodes, Fault::Pause(N1)).await);
    assert!(timeout(QUIET, line.say("r")).await.is_err());
    happened(inject(&nodes, Fault::Resume(N1)).await);
    did_not_happen(inject(&nodes, Fault::Resume(N1)).await);
    assert_eq!(line.hear().await.unwrap(), "0");
    happened(inject(&nodes, Fault::Pause(N1)).await);
    happened(inject(&nodes, Fault::Kill(N1)).await);
}

#[tokio::test]
async fn a_cut_stalls_clients_until_it_heals() {
    let (nodes, mesh, folder) = started(1).await;
    let mut line = Line::open(&mesh).await;
    line.say("r").await.unwrap();
    let links = Link::both(C0, N1);
    mesh.cut(&links);
    assert!(timeout(QUIET, line.say("w 9")).await.is_err());
    assert_eq!(
        fs::read_to_string(folder.path().join("n1/value")).unwrap(),
        "0"
    );
    assert_eq!(mesh.meter(&links).held_bytes, 4);
    mesh.heal();
    assert_eq!(line.hear().await.unwrap(), "ok");
    nodes.stop(N1).await.unwrap();
}

#[tokio::test]
async fn a_node_that_exits_on_its_own_is_noted() {
    let (nodes, mesh, __folder) = started(1).await;
    Line::open(&mesh).await.say("die").await.unwrap_err();
    let mut deaths = Vec::new();
    while deaths.is_empty() {
        sleep(Duration::from_millis(5)).await;
        deaths = nodes.take_deaths();
    }
    assert_eq!(deaths.len(), 1);
    assert_eq!(deaths[0].node, N1);
    assert!(deaths[0].status.contains('7'), "{}", deaths[0].status);
    assert!(
        deaths[0].log_tail.contains("a bug of mine"),
        "{}",
        deaths[0].log_tail
    );
    did_not_happen(inject(&nodes, Fault::Kill(N1)).await);
    assert!(nodes.take_deaths().is_empty(), "noted once");
}

/// Starts one node in a role and returns the error.
async fn start_error(nodes: &ProcessNodes, folder: &Path) -> NodeError {
    let mesh = Mesh::new(Handle::current());
    match nodes.prepare(folder, &mesh).await {
        Ok(()) => nodes.start(N1).await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_node_that_does_not_start_shows_its_log() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let error = start_error(&nodes("broken", 1), folder).await;
    assert!(matches!(error, NodeError::Ended { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("status: 3") && text.contains("my configuration"),
        "{text}"
    );
    assert!(text.contains("n1.log"), "{text}");
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_an_error_and_is_ended() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let nodes = nodes("mute", 1).with_limits(NodeLimits {
        ready: Duration::from_millis(500),
        stop: Duration::from_millis(500),
    });
    let error = start_error(&nodes, folder).await;
    assert!(matches!(error, NodeError::Silent { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("0.5 s") && text.contains("refused"), "{text}");
    assert!(text.contains("I do not speak"), "{text}");
    did_not_happen(inject(&nodes, Fault::Kill(N1)).await);
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let taken = TcpListener::bind("127.0.0.11:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = start_error(&nodes("register", 1).with_ports(Some(port), 1), folder).await;
    assert!(matches!(error, NodeError::PortInUse { .. }), "{error}");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}

#[tokio::test]
async fn the_port_of_a_killed_node_goes_to_no_other_test() {
    let (nodes, _mesh, folder) = started(1).await;
    let port = nodes.place(N1).unwrap().address.port();
    happened(inject(&nodes, Fault::Kill(N1)).await);
    let other = crate::roles::nodes("register", 1).with_ports(Some(port), 1);
    let mesh = Mesh::new(Handle::current());
    let refused = other.prepare(folder.path(), &mesh).await.unwrap_err();
    assert!(matches!(refused, NodeError::PortInUse { .. }), "{refused}");
    drop(nodes);
    // A process that another test is starting has the reservation too, until it executes its program.
    let began = Instant::now();
    while let Err(error) = other.prepare(folder.path(), &mesh).await {
        assert!(matches!(error, NodeError::PortInUse { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(5), "{error}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// What another program answers at the port of a node that has ended must not count as this system's.
#[tokio::test]
async fn a_node_that_ended_before_the_test_is_an_error() {
    let (nodes, mesh, _folder) = started(1).await;
    Line::open(&mesh).await.say("die").await.unwrap_err();
    let address = nodes.place(N1).unwrap().address;
    let _stranger = loop {
        // Until the node's own listener is gone.
        match TcpListener::bind(address) {
            Ok(listener) => break listener,
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    };
    let error = loop {
        match nodes.formed().await {
            Ok(()) => sleep(Duration::from_millis(5)).await, // its end is not yet known
            Err(error) => break error,
        }
    };
    assert!(matches!(error, NodeError::Ended { .. }), "{error}");
    assert!(nodes.take_deaths().len() <= 1, "it is reported once");
}

#[tokio::test]
async fn rot_changes_bits_on_the_disk() {
    let (nodes, _mesh, folder) = started(1).await;
    happened(inject(&nodes, Fault::Kill(N1)).await);
    let path = folder.path().join("n1/value");
    let before = vec![0; 1000];
    fs::write(&path, &before).unwrap();
    happened(inject(&nodes, Fault::BitRot { node: N1, bits: 5 }).await);
    let after = fs::read(&path).unwrap();
    let wrong: u32 = after.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!((after.len(), wrong), (1000, 5));
    fs::remove_file(&path).unwrap();
    did_not_happen(inject(&nodes, Fault::BitRot { node: N1, bits: 5 }).await);
}

#[test]
fn nothing_is_left_of_a_killed_bench() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let mut bench = command("bench", folder).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let pids = loop {
        if let Ok(pids) = fs::read_to_string(folder.join("pids")) {
            break pids;
        }
        assert!(
            Instant::now() < deadline,
            "the bench did not start its nodes"
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    let alive = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    };
    let pids: Vec<&str> = pids.lines().collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| alive(pid)), "all nodes run");
    bench.kill().unwrap();
    bench.wait().unwrap();
    while pids.iter().any(|pid| alive(pid)) {
        assert!(Instant::now() < deadline, "a node outlived the bench");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn files_are_cut_and_put_back_while_a_node_is_down() {
    let (nodes, mesh, _folder) = started(1).await;
    let mut line = Line::open(&mesh).await;
    assert_eq!(line.say("w 5").await.unwrap(), "ok");
    did_not_happen(inject(&nodes, Fault::Restore(N1)).await);
    happened(inject(&nodes, Fault::Snapshot(N1)).await);
    assert_eq!(line.say("w 678").await.unwrap(), "ok");
    did_not_happen(inject(&nodes, Fault::Truncate { node: N1, bytes: 1 }).await);
    happened(inject(&nodes, Fault::Kill(N1)).await);
    happened(inject(&nodes, Fault::Truncate { node: N1, bytes: 1 }).await);
    happened(nodes.start(N1).await);
    let mut line = Line::open(&mesh).await;
    assert_eq!(line.say("r").await.unwrap(), "67");
    did_not_happen(inject(&nodes, Fault::Restore(N1)).await);
    happened(inject(&nodes, Fault::Kill(N1)).await);
    happened(inject(&nodes, Fault::Restore(N1)).await);
    happened(nodes.start(N1).await);
    let mut line = Line::open(&mesh).await;
    assert_eq!(line.say("r").await.unwrap(), "5");
    nodes.stop(N1).await.unwrap();
}

#[tokio::test]
async fn what_a_program_or_the_kernel_does_not_offer_is_said() {
    let (nodes, _mesh, _folder) = started(1).await;
    let disk = |trouble| Fault::Disk { node: N1, trouble };
    did_not_happen(inject(&nodes, Fault::right_clock(N1)).await);
    did_not_happen(inject(&nodes, disk(DiskTrouble::WriteErrors)).await);
    did_not_happen(inject(&nodes, Fault::MendDisk(N1)).await);
    did_not_happen(inject(&nodes, Fault::LoseUnsynced(N1)).await);
    happened(inject(&nodes, disk(DiskTrouble::NoSpace)).await);
    happened(inject(&nodes, Fault::MendDisk(N1)).await);
    for fault in [Fault::Join(N1), Fault::Leave(N1)] {
        let refused = inject(&nodes, fault).await;
        assert!(matches!(refused, Err(NodeError::NoMembership)));
    }
    nodes.view().await.unwrap_err();
    nodes.stop(N1).await.unwrap();
}
