//! A bench that is killed leaves nothing.

use seatrial_machine::{NodeId, Rng};
use seatrial_namespace::{NetworkKind, NodeNetwork, NodeNetworkOptions, enter_thread};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of kills.
const KILLS: u32 = 50;
/// Number of the nodes' sleeps, which nothing else sleeps for.
const MARKER: &str = "543210.5";

/// What is visible from outside: processes of nodes, interfaces and mounts of this namespace, names of namespaces.
fn visible() -> (usize, Vec<String>, usize, usize) {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let nodes = processes.filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(MARKER)
    });
    let names = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let interfaces =
        names("/sys/class/net").map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut interfaces: Vec<String> = interfaces.collect();
    interfaces.sort();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    (
        nodes.count(),
        interfaces,
        mounts.lines().count(),
        names("/run/netns").count(),
    )
}

/// The bench to be killed: starts nodes again and again. Only run by the test below.
#[test]
#[ignore = "runs until it is killed"]
fn victim() {
    enter_thread().unwrap();
    loop {
        let network = NodeNetwork::open(NetworkKind::Netns, NodeNetworkOptions::default()).unwrap();
        let mut running = Vec::new();
        for node in (1..=3).map(NodeId::server) {
            network.add_node(node).unwrap();
            let mut command = Command::new("sh");
            command
                .args(["-c", "setsid sleep 543210.5 & sleep 543210.5"])
                .stdin(Stdio::null());
            let init = network
                .node_space(node)
                .unwrap()
                .enclose(&mut command, None)
                .unwrap();
            running.push((command.spawn().unwrap(), init));
            std::thread::sleep(Duration::from_millis(3));
        }
        for (mut child, init) in running {
            init.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn fifty_kills_at_random_instants_leave_nothing() {
    let permitted = std::thread::spawn(|| enter_thread().is_ok())
        .join()
        .unwrap();
    if !permitted && std::env::var_os("CI").is_none() {
        eprintln!("skipped: no permission for namespaces");
        return;
    }
    let before = visible();
    let mut rng = Rng::from_seed(50);
    let mut seen = 0;
    for kill in 0..KILLS {
        let program = std::env::current_exe().unwrap();
        let mut bench = Command::new(program)
            .args(["--exact", "leftovers::victim", "--ignored"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Half of them are killed while nodes run, however slow the machine is.
        let begin = Instant::now();
        while kill % 2 == 0 && visible().0 == 0 && begin.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(rng.duration_below(Duration::from_millis(90)));
        seen += visible().0;
        bench.kill().unwrap();
        bench.wait().unwrap();
        let begin = Instant::now();
        while visible() != before {
            let after = visible();
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "kill {kill}: {before:?}, {after:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(seen > 0, "no node ran when its bench was killed");
}
