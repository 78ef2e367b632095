//! Real clusters, with the configuration that their manuals show: they form, are cut apart, and heal.

use crate::with_network;
use seatrial_machine::{Link, NodeId};
use seatrial_namespace::{NodeInit, NodeNetwork};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A cluster's programs, one per node. They die when it is dropped.
struct NamespaceCluster {
    network: NodeNetwork,
    nodes: Vec<(Child, NodeInit)>,
    folder: tempfile::TempDir,
}

impl NamespaceCluster {
    fn new(network: NodeNetwork, nodes: u32) -> NamespaceCluster {
        for node in 1..=nodes {
            network.add_node(NodeId::server(node)).unwrap();
        }
        NamespaceCluster {
            network,
            nodes: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The folder of the next node.
    fn folder(&self) -> PathBuf {
        let folder = self.folder.path().join((self.nodes.len() + 1).to_string());
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Starts the next node.
    fn start(&mut self, program: &str, arguments: &[&str]) {
        let node = NodeId::server(self.nodes.len() as u32 + 1);
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let space = self.network.node_space(node).unwrap();
        let init = space.enclose(&mut command, None).unwrap();
        self.nodes.push((command.spawn().unwrap(), init));
    }

    /// What a program prints when it runs in the network of a node; an error: it failed, or took more than 5 s.
    fn ask(&self, node: u32, program: &str, arguments: &[&str]) -> Result<String, String> {
        let space = self.network.node_space(NodeId::server(node)).unwrap();
        let mut limited = vec!["5", program];
        limited.extend(arguments);
        let run = || {
            Command::new("timeout")
                .args(&limited)
                .stdin(Stdio::null())
                .output()
        };
        let output = space.run(run).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(text + &String::from_utf8_lossy(&output.stderr))
    }

    /// Asks until the answer contains `wanted`.
    fn wait_for(&self, node: u32, program: &str, arguments: &[&str], wanted: &str) {
        let begin = Instant::now();
        loop {
            let answer = self.ask(node, program, arguments);
            if answer.as_ref().is_ok_and(|text| text.contains(wanted)) {
                return;
            }
            let waited = begin.elapsed();
            assert!(
                waited < Duration::from_mins(1),
                "{arguments:?} at n{node}: {answer:?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// All links between one node and the others.
    fn links_of(&self, node: u32) -> Vec<Link> {
        let node = NodeId::server(node);
        let others = (1..=self.nodes.len() as u32).map(NodeId::server);
        let others = others.filter(|other| *other != node);
        others.flat_map(|other| Link::both(node, other)).collect()
    }

    /// Cuts one node off; after `check` the cut must have met traffic, and heals.
    fn cut_off(&self, node: u32, check: impl FnOnce()) {
        let links = self.links_of(node);
        self.network.cut(&links);
        check();
        assert!(
            self.network.meter(&links).held_bytes > 0,
            "the cut met no traffic"
        );
        self.network.heal();
    }
}

impl Drop for NamespaceCluster {
    fn drop(&mut self) {
        for (child, init) in &mut self.nodes {
            let _ = init.kill();
            let _ = child.wait();
        }
    }
}

/// Are these programs installed? In CI they must be.
fn installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        !found.is_ok_and(|output| output.status.success())
    });
    let Some(program) = missing else {
        return true;
    };
    assert!(
        std::env::var_os("CI").is_none(),
        "{program} is not installed"
    );
    eprintln!("skipped: {program} is not installed");
    false
}

#[test]
fn etcd_works_on_the_majority_side_of_a_cut_only() {
    if !installed(&["etcd", "etcdctl"]) {
        return;
    }
    with_network(|network| {
        let mut cluster = NamespaceCluster::new(network, 3);
        let members = "n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380,n3=http://10.0.0.3:2380";
        for node in 1..=3 {
            let (name, peer) = (format!("n{node}"), format!("http://10.0.0.{node}:2380"));
            let client = format!("http://10.0.0.{node}:2379");
            let urls = [
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ];
            let peers = [
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ];
            let mut arguments = vec!["--name", &name, "--data-dir", "data"];
            arguments.extend(urls);
            arguments.extend(peers);
            arguments.extend(["--initial-cluster", members]);
            arguments.extend(["--heartbeat-interval=50", "--election-timeout=500"]);
            cluster.start("etcd", &arguments);
        }
        let endpoint = |node: u32| format!("--endpoints=http://10.0.0.{node}:2379");
        let put = |node: u32| {
            [
                "put".to_owned(),
                "k".into(),
                "v".into(),
                endpoint(node),
                "--command-timeout=2s".into(),
            ]
        };
        let words = |node: u32| put(node);
        for node in 1..=3 {
            cluster.wait_for(
                node,
                "etcdctl",
                &words(node).each_ref().map(String::as_str),
                "OK",
            );
        }
        cluster.cut_off(1, || {
            cluster.wait_for(2, "etcdctl", &words(2).each_ref().map(String::as_str), "OK");
            let minority = cluster.ask(1, "etcdctl", &words(1).each_ref().map(String::as_str));
            assert!(
                minority.is_err(),
                "a minority of one acknowledged: {minority:?}"
            );
        });
        cluster.wait_for(1, "etcdctl", &words(1).each_ref().map(String::as_str), "OK");
    });
}

#[test]
fn redis_sentinel_fails_over_when_the_primary_is_cut_off() {
    if !installed(&["redis-server", "redis-cli"]) {
        return;
    }
    with_network(|network| {
        let mut cluster = NamespaceCluster::new(network, 6);
        let common = [
            "--port",
            "6379",
            "--protected-mode",
            "no",
            "--save",
            "",
            "--min-replicas-to-write",
            "1",
        ];
        let lag = [
            "--min-replicas-max-lag",
            "1",
            "--repl-ping-replica-period",
            "1",
            "--repl-diskless-sync-delay",
            "0",
        ];
        for node in 1..=3 {
            let mut arguments = [&common[..], &lag[..]].concat();
            if node > 1 {
                arguments.extend(["--replicaof", "10.0.0.1 6379"]);
            }
            cluster.start("redis-server", &arguments);
        }
        // A sentinel that finds a primary without replicas asks again after ten seconds.
        let replicas = "connected_slaves:2";
        cluster.wait_for(1, "redis-cli", &["info", "replication"], replicas);
        for _ in 4..=6 {
            let file = cluster.folder().join("sentinel.conf");
            let text = "port 26379\nprotected-mode no\nsentinel monitor main 10.0.0.1 6379 2\n\
                        sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n";
            fs::write(&file, text).unwrap();
            cluster.start("redis-server", &[&file.display().to_string(), "--sentinel"]);
        }
        // They look for each other every two seconds otherwise, and wait for four of those before they demote a primary; Redis
        // before 7 cannot be asked for more.
        let periods = ["publish-period", "200", "info-period", "200"];
        let often = [&["-p", "26379", "sentinel", "debug"][..], &periods].concat();
        for node in 4..=6 {
            cluster.wait_for(node, "redis-cli", &["-p", "26379", "ping"], "PONG");
            let _ = cluster.ask(node, "redis-cli", &often);
        }
        let sentinel = ["-p", "26379", "sentinel", "master", "main"];
        cluster.wait_for(4, "redis-cli", &sentinel, "num-other-sentinels\n2\n");
        cluster.wait_for(4, "redis-cli", &sentinel, "num-slaves\n2\n");
        cluster.wait_for(1, "redis-cli", &["set", "k", "1"], "OK");
        cluster.cut_off(1, || {
            let address = ["-p", "26379", "sentinel", "get-master-addr-by-name", "main"];
            let begin = Instant::now();
            let primary = loop {
                let answer = cluster.ask(4, "redis-cli", &address).unwrap_or_default();
                match answer.lines().next() {
                    Some(ip) if ip != "10.0.0.1" => break ip.to_owned(),
                    _ => assert!(begin.elapsed() < Duration::from_mins(1), "{answer}"),
                }
                std::thread::sleep(Duration::from_millis(50));
            };
            cluster.wait_for(4, "redis-cli", &["-h", &primary, "set", "k", "2"], "OK");
            cluster.wait_for(1, "redis-cli", &["set", "k", "3"], "NOREPLICAS");
        });
        cluster.wait_for(1, "redis-cli", &["role"], "slave");
        cluster.wait_for(1, "redis-cli", &["get", "k"], "2");
    });
}

#[test]
fn redis_cluster_promotes_a_replica_of_the_master_that_is_cut_off() {
    if !installed(&["redis-server", "redis-cli"]) {
        return;
    }
    with_network(|network| {
        let mut cluster = NamespaceCluster::new(network, 6);
        let arguments = [
            "--port",
            "6379",
            "--protected-mode",
            "no",
            "--save",
            "",
            "--cluster-enabled",
            "yes",
            "--repl-diskless-sync-delay",
            "0",
        ];
        for _ in 1..=6 {
            cluster.start(
                "redis-server",
                &[&arguments[..], &["--cluster-node-timeout", "1000"]].concat(),
            );
        }
        for node in 1..=6 {
            cluster.wait_for(node, "redis-cli", &["ping"], "PONG");
        }
        let nodes: Vec<String> = (1..=6).map(|node| format!("10.0.0.{node}:6379")).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(nodes.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        let space = cluster.network.node_space(NodeId::server(1)).unwrap();
        let output = space
            .run(|| Command::new("redis-cli").args(&create).output())
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        let info = ["cluster", "info"];
        for node in 1..=6 {
            cluster.wait_for(node, "redis-cli", &info, "cluster_state:ok");
        }
        // A replica that never had its master's data is not elected.
        for node in 1..=3 {
            cluster.wait_for(node, "redis-cli", &["info", "replication"], "state=online");
        }
        cluster.cut_off(1, || {
            cluster.wait_for(1, "redis-cli", &info, "cluster_state:fail");
            cluster.wait_for(2, "redis-cli", &info, "cluster_state:ok");
            cluster.wait_for(
                2,
                "redis-cli",
                &["cluster", "nodes"],
                "10.0.0.1:6379@16379 master,fail",
            );
            cluster.wait_for(2, "redis-cli", &["-c", "set", "key", "1"], "OK");
        });
        cluster.wait_for(1, "redis-cli", &info, "cluster_state:ok");
        cluster.wait_for(1, "redis-cli", &["role"], "slave");
    });
}

/// The folder of PostgreSQL's programs, and the user that may run them.
fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    let folder = folders.pop()?;
    let is_user = fs::read_to_string("/etc/passwd")
        .ok()?
        .contains("\npostgres:");
    (folder.join("initdb").exists() && is_user).then_some(folder)
}

/// Makes the user of PostgreSQL the owner of these folders.
fn give_to_postgres(folders: &[&Path]) {
    let status = Command::new("chown").arg("postgres").args(folders).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_pause_of_postgres_stops_the_processes_that_left_its_group() {
    let Some(programs) = postgres() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "postgresql is not installed"
        );
        eprintln!("skipped: postgresql is not installed");
        return;
    };
    with_network(move |network| {
        let mut cluster = NamespaceCluster::new(network, 1);
        let data = cluster.folder().join("data");
        let program = |name: &str| programs.join(name).display().to_string();
        give_to_postgres(&[cluster.folder.path(), &cluster.folder()]);
        let user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
        let data = data.display().to_string();
        let (initdb, server) = (program("initdb"), program("postgres"));
        let initialize = [&user[..], &[&initdb, "-D", &data, "-N", "--auth=trust"]].concat();
        let status = Command::new("setpriv")
            .args(initialize)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        let serve = [&user[..], &[&server, "-D", &data, "-k", "", "-h", "*"]].concat();
        cluster.start("setpriv", &serve);
        let query = [
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-Atc",
            "select 41 + 1",
        ];
        let psql = program("psql");
        cluster.wait_for(1, &psql, &query, "42");
        let before = states(&data);
        assert!(
            before.len() >= 5,
            "the postmaster and its processes: {before:?}"
        );
        cluster.nodes[0].1.pause().unwrap();
        let begin = Instant::now();
        while states(&data).iter().any(|state| *state != 'T') {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "{:?}",
                states(&data)
            );
        }
        assert!(
            cluster.ask(1, &psql, &query).is_err(),
            "it answers while it is paused"
        );
        cluster.nodes[0].1.resume().unwrap();
        cluster.wait_for(1, &psql, &query, "42");
        let (child, init) = &mut cluster.nodes[0];
        init.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(states(&data), []);
    });
}

/// The states of all processes whose working folder is this one, as PostgreSQL's is its data.
fn states(folder: &str) -> Vec<char> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let states = processes.filter_map(|entry| {
        let path = entry.path();
        if fs::read_link(path.join("cwd")).ok()? != Path::new(folder) {
            return None;
        }
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    });
    states.collect()
}
