//! Processes of nodes: they start inside, stop together, and end together.

use crate::with_network;
use seatrial_machine::NodeId;
use seatrial_namespace::{NodeInit, NodeNetwork, ProgramUser};
use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const N1: NodeId = NodeId::server(1);

/// Starts a shell script as the program of a node.
fn start(network: &NodeNetwork, script: &str) -> (Child, NodeInit) {
    network.add_node(N1).unwrap();
    let space = network.node_space(N1).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped());
    let init = space.enclose(&mut command, None).unwrap();
    (command.spawn().unwrap(), init)
}

/// Waits until `done` is true.
fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// States of all processes whose command line contains `marker`.
fn states(marker: &str) -> Vec<char> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let states = processes.filter_map(|entry| {
        let path = entry.path();
        let line = fs::read(path.join("cmdline")).ok()?;
        if !String::from_utf8_lossy(&line).contains(marker) {
            return None;
        }
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    });
    states.collect()
}

#[test]
fn a_program_sees_its_own_network_and_processes() {
    with_network(|network| {
        let script = "hostname; cat /proc/net/fib_trie | grep -c 10.0.0.1; echo $$";
        let (mut child, _init) = start(&network, script);
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "n1");
        assert_ne!(lines[1], "0", "{text}");
        assert_eq!(lines[2], "2", "pid 2 of its namespace");
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn the_exit_of_the_program_is_the_exit_of_the_child() {
    with_network(|network| {
        let (mut child, _init) = start(&network, "exit 7");
        assert_eq!(child.wait().unwrap().code(), Some(7));
        let (mut child, _init) = start(&network, "kill -6 $$");
        assert_eq!(child.wait().unwrap().signal(), Some(6));
        let (mut child, init) = start(
            &network,
            "trap 'exit 3' TERM; echo; while :; do sleep 0.01; done",
        );
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        init.terminate().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
    });
}

#[test]
fn a_missing_program_is_an_error_of_the_start() {
    with_network(|network| {
        network.add_node(N1).unwrap();
        let space = network.node_space(N1).unwrap();
        let mut command = Command::new("/nowhere/server");
        let _init = space.enclose(&mut command, None).unwrap();
        let error = command.spawn().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    });
}

#[test]
fn a_program_runs_as_another_user_than_its_init() {
    with_network(|network| {
        network.add_node(N1).unwrap();
        let space = network.node_space(N1).unwrap();
        let mut command = Command::new("sh");
        let script = "id -u; id -g; id -G; sleep 765432 & wait";
        command.args(["-c", script]).stdout(Stdio::piped());
        let (uid, gid) = (65_533, 65_532);
        let user = ProgramUser { uid, gid };
        let init = space.enclose(&mut command, Some(user)).unwrap();
        let mut child = command.spawn().unwrap();
        let mut text = [0; 18];
        child.stdout.take().unwrap().read_exact(&mut text).unwrap();
        assert_eq!(&text, b"65533\n65532\n65532\n");
        // Init, which is root, still reaches every process of the node.
        let sleepers = || states("sleep\u{0}765432");
        wait_for("it sleeps", || sleepers() == ['S']);
        init.pause().unwrap();
        wait_for("it stops", || sleepers() == ['T']);
        init.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(sleepers(), []);
    });
}

#[test]
fn processes_that_left_their_group_stop_and_die_with_the_node() {
    with_network(|network| {
        let script = "setsid sleep 987654 & setsid sh -c 'sleep 987654 & wait' & wait";
        let (mut child, init) = start(&network, script);
        let sleepers = || states("sleep\u{0}987654");
        wait_for("three start", || sleepers().len() == 2);
        init.pause().unwrap();
        wait_for("all stop", || sleepers() == ['T', 'T']);
        init.resume().unwrap();
        wait_for("all continue", || !sleepers().contains(&'T'));
        init.pause().unwrap();
        init.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(sleepers(), [], "none is left when the child has ended");
    });
}

#[test]
fn a_lost_bench_ends_its_nodes() {
    with_network(|network| {
        let (mut child, init) = start(&network, "setsid sleep 876543 & sleep 876543");
        wait_for("both start", || states("876543").len() >= 3);
        drop(init); // as the kernel does for a process that dies
        child.wait().unwrap();
        assert_eq!(states("sleep\u{0}876543"), []);
    });
}
