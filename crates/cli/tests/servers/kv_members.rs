//! `seatrial kv member` at nodes as processes, and processes that are no members.

use super::kv_cluster::{kv, list, start_node, until, until_said};
use super::process::{Server, free_addresses};
use super::scratch::Scratch;

#[test]
fn nodes_join_and_leave_a_cluster_that_serves() {
    let scratch = Scratch::new("kv-members");
    let all = free_addresses(4);
    let founders = ["--voters", "1,2,3"];
    let mut servers: Vec<Server> = (1..=3)
        .map(|number| start_node(&scratch, &all[..3], number, &founders))
        .collect();
    let three = list(&all[..3]);
    let run = |words: &[&str], servers: &str| kv(&[words, &["--server", servers]].concat());
    assert_eq!(run(&["put", "a", "1"], &three).0, 0);
    // A member that is none, and one that is one.
    let (status, text) = run(&["member", "promote", "n4"], &three);
    assert_eq!(status, 1, "{text}");
    let known = format!("n2={}", all[1]);
    let (status, text) = kv(&["member", "add", &known, "--server", &three]);
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("n2 is a member already"), "{text}");
    // The fourth node: started with the founders, added, caught up, promoted.
    servers.push(start_node(&scratch, &all, 4, &founders));
    let fourth = format!("n4={}", all[3]);
    until(
        &["member", "add", &fourth, "--server", &three],
        0,
        "begun at ",
    );
    let last = all[3].to_string();
    until(&["status", "--server", &last], 0, "learners n4");
    until(
        &["member", "promote", "n4", "--server", &three],
        0,
        "begun at ",
    );
    until(&["status", "--server", &last], 0, "members n1 n2 n3 n4;");
    let four = list(&all);
    until(&["put", "b", "2", "--server", &last], 0, "ok");
    // The first leaves; if it leads, it hands the leadership over and the next leader removes it.
    until(
        &["member", "remove", "n1", "--server", &four],
        0,
        "begun at ",
    );
    until(&["status", "--server", &last], 0, "members n2 n3 n4;");
    drop(servers.remove(0));
    // Three members are left, of which one may be lost.
    let rest = list(&all[1..]);
    until(&["put", "c", "3", "--server", &rest], 0, "ok");
    drop(servers.remove(0));
    let two = list(&all[2..]);
    for (key, value) in [("a", "1\n"), ("b", "2\n"), ("c", "3\n")] {
        until(&["get", key, "--server", &two], 0, value);
    }
}

#[test]
fn processes_that_are_no_members_change_nothing() {
    let scratch = Scratch::new("kv-strangers");
    let key = scratch.file("key", "0123456789abcdef0123456789abcdef\n");
    let other_key = scratch.file("other-key", "another key, which is long enough\n");
    let all = free_addresses(4);
    let with_key = ["--voters", "1", "--key-file", &key];
    let node = start_node(&scratch, &all[..2], 1, &with_key);
    let at = all[0].to_string();
    let client = ["--key-file", &key, "--server", &at];
    let put = |value: &str| kv(&[&["put", "a", value], &client[..]].concat());
    assert_eq!(put("1").0, 0);
    let stranger = |number, name: &str, options: &[&str]| {
        let scratch = Scratch::new(name);
        let server = start_node(&scratch, &all, number, options);
        (scratch, server)
    };
    // Another cluster, another key, no key, and a node of which the first has no address.
    let cluster = [&with_key[..], &["--cluster", "2"]].concat();
    let held = stranger(2, "kv-other-cluster", &cluster);
    until_said(
        &node,
        "was refused as a node: n2 belongs to system 2, this is system 1",
    );
    until_said(
        &held.1,
        "it does not accept this node as a member of its system",
    );
    drop(held);
    let held = stranger(
        2,
        "kv-other-key",
        &["--voters", "1", "--key-file", &other_key],
    );
    until_said(&node, "the key is not that of this server");
    until_said(&held.1, "n1 at ");
    drop(held);
    let held = stranger(2, "kv-no-key", &["--voters", "1"]);
    until_said(&node, "a key is needed (--key-file)");
    drop(held);
    let held = stranger(3, "kv-unknown", &with_key);
    until_said(
        &node,
        "was refused as a node: n3 is not a node of this system",
    );
    drop(held);
    // A folder belongs to its cluster.
    assert_eq!(put("2").0, 0);
    let data = scratch.path("n1");
    drop(node);
    let words = ["node", "kv", "--listen", "127.0.0.1:0", "--data", &data];
    for (option, value) in [("--cluster", "9"), ("--node", "7")] {
        let output = super::process::run(&[&words[..], &[option, value]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(254), "{said}");
        let expected = "the folder belongs to node n1 of cluster 1, not to node ";
        assert!(said.contains(expected), "{said}");
    }
    let node = start_node(&scratch, &all[..2], 1, &with_key);
    until(&[&["get", "a"], &client[..]].concat(), 0, "2\n");
    drop(node);
}
