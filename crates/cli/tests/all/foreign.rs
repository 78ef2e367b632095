//! Files as other programs write them, the choice of a checker, and histories of which a part is missing.

use super::{Scratch, error, json, run, stderr, stdout};
use seatrial_history::{HistoryWriter, Op, OpType, Process, Value};
use std::fs;
use std::path::Path;

const APPEND: &str =
    "{:index 0, :type :invoke, :process 0, :f :txn, :value [[:append :x 1] [:r :x]]}
{:index 1, :type :ok, :process 0, :f :txn, :value [[:append :x 1] [:r :x [1]]]}
";

const BANK: &str = "{:type :invoke, :process 0, :f :read, :value nil}
{:type :ok, :process 0, :f :read, :value {0 5, 1 5}}
{:type :invoke, :process 0, :f :read, :value nil}
{:type :ok, :process 0, :f :read, :value {0 4, 1 6}}
";

#[test]
fn the_checker_is_named_and_why() {
    let scratch = Scratch::new("choice");
    let (append, bank) = (scratch.path("a.edn"), scratch.path("b.edn"));
    fs::write(&append, APPEND).unwrap();
    fs::write(&bank, BANK).unwrap();
    let because = "list-append: inferred from the operations (:append micro-operations)";
    let screen = stdout(&run(0, &["check", &append]));
    assert!(screen.contains(because), "{screen}");
    assert_eq!(
        json(&run(0, &["check", "--json", &append]))["chosen"],
        because
    );
    let asked = json(&run(
        0,
        &["check", "--json", "--checker", "list-append", &append],
    ));
    assert_eq!(asked["chosen"], "list-append: asked for");
    // A register cannot be read as a map, so it is not one that is broken.
    let screen = stdout(&run(2, &["check", &bank]));
    assert!(screen.contains("name it with --checker bank"), "{screen}");
    run(0, &["check", "--checker", "bank", &bank]);
    let sea = scratch.path("a.sea");
    run(0, &["import", &append, "-o", &sea]);
    assert_eq!(json(&run(0, &["check", "--json", &sea]))["chosen"], because);
    error(
        &["check", "--checker", "bnak", &bank],
        &["did you mean `bank`?"],
    );
    error(
        &["check", "--format", "edm", &bank],
        &["unknown format `edm`; did you mean `edn`?"],
    );
}

#[test]
fn each_of_several_files_is_checked_and_a_bad_one_is_reported() {
    let scratch = Scratch::new("several");
    let (good, bad) = (scratch.path("good.edn"), scratch.path("bad.edn"));
    fs::write(&good, APPEND).unwrap();
    let twice = APPEND.replace(":type :ok", ":type :invoke");
    fs::write(&bad, twice).unwrap();
    let output = run(254, &["check", "-q", &bad, &good]);
    assert!(stdout(&output).contains("good.edn: valid"), "{output:?}");
    let error = stderr(&output);
    assert!(
        error.contains(
            "bad.edn:2:1: operation 1: process 0 invokes while its operation 0 is running"
        ),
        "{error}"
    );
    let documents = json(&run(254, &["check", "--json", &bad, &good]));
    assert!(
        documents[0]["error"]
            .as_str()
            .unwrap()
            .contains("operation 1")
    );
    assert_eq!(documents[1]["valid"], true);
}

#[test]
fn folders_of_runs_are_read() {
    let scratch = Scratch::new("store");
    let run_folder = Path::new(&scratch.path("store")).join("etcd/20260101T000000");
    fs::create_dir_all(&run_folder).unwrap();
    fs::write(run_folder.join("history.edn"), APPEND).unwrap();
    fs::write(run_folder.join("jepsen.log"), "INFO  jepsen.core - hello\n").unwrap();
    let test = run_folder.parent().unwrap();
    std::os::unix::fs::symlink("20260101T000000", test.join("latest")).unwrap();
    for folder in [&run_folder, &test.join("latest"), test] {
        let folder = folder.display().to_string();
        run(0, &["check", &folder]);
        assert!(stdout(&run(0, &["show", &folder])).contains(":append"));
    }
    fs::remove_file(run_folder.join("history.edn")).unwrap();
    let name = run_folder.display().to_string();
    error(
        &["check", &name],
        &["the folder of a run without its history"],
    );
    // Jepsen's table.
    let rows = "0\t:invoke\t:write\t1\n0\t:ok\t:write\t1\n1\t:invoke\t:read\tnil\n:nemesis\t:info\t:start\tnil\n\
                1\t:info\t:read\tnil\t:timeout\n";
    fs::write(run_folder.join("history.txt"), rows).unwrap();
    let shown = stdout(&run(0, &["show", "--edn", &name]));
    assert!(
        shown.contains(":process 1, :f :read, :value nil, :error :timeout"),
        "{shown}"
    );
    // Our own, with the logs of its nodes.
    let ours = Path::new(&scratch.path("ours")).to_owned();
    fs::create_dir_all(&ours).unwrap();
    fs::write(ours.join("n1.log"), "a node's log\n").unwrap();
    let edn = scratch.path("a.edn");
    fs::write(&edn, APPEND).unwrap();
    let sea = ours.join("history.sea").display().to_string();
    run(0, &["import", &edn, "-o", &sea]);
    run(0, &["check", &ours.display().to_string()]);
}

/// As elle's own tests have them: nothing says when these began.
#[test]
fn completions_alone_say_nothing_of_real_time() {
    let scratch = Scratch::new("completions");
    let path = scratch.path("a.edn");
    let ok = |process, mops| format!("{{:type :ok, :process {process}, :value [{mops}]}}\n");
    fs::write(
        &path,
        ok(0, "[:append :x 1]") + &ok(1, "[:r :x []]") + &ok(2, "[:r :x [1]]"),
    )
    .unwrap();
    for words in [
        &["check", "--json", &path][..],
        &["check", "--json", "--checker", "list-append", &path],
    ] {
        let document = json(&run(0, words));
        assert_eq!(document["model"], "strong-session-serializable");
    }
    // What is imported from it says no more.
    let sea = scratch.path("a.sea");
    run(0, &["import", &path, "-o", &sea]);
    let document = json(&run(0, &["check", "--json", &sea]));
    assert_eq!(document["model"], "strong-session-serializable");
    assert_eq!(
        (&document["operations"], &document["events"]),
        (&3.into(), &3.into())
    );
    let strict = ["check", "--json", "--model", "strict-serializable", &sea];
    assert_eq!(json(&run(2, &strict))["valid"], "unknown");
    // A history with invocations keeps its times.
    fs::write(&path, APPEND).unwrap();
    run(0, &["import", "--force", &path, "-o", &sea]);
    let document = json(&run(0, &["check", "--json", &sea]));
    assert_eq!(document["model"], "strict-serializable");
}

/// A checker that refuses a history counts no operations.
#[test]
fn a_refused_history_is_not_called_empty() {
    let scratch = Scratch::new("refused");
    let edn = scratch.path("a.edn");
    fs::write(&edn, APPEND).unwrap();
    let shown = stdout(&run(2, &["check", "--checker", "isolation", &edn]));
    assert!(
        shown.contains(" 1 operation ") && !shown.contains("0 operations"),
        "{shown}"
    );
    let document = json(&run(
        2,
        &["check", "--json", "--checker", "isolation", &edn],
    ));
    assert_eq!(document["events"], 2);
}

#[test]
fn a_history_in_which_nothing_took_place_is_unknown() {
    let scratch = Scratch::new("nothing");
    let (edn, sea) = (scratch.path("a.edn"), scratch.path("a.sea"));
    fs::write(&edn, APPEND.replace(":type :ok", ":type :info")).unwrap();
    run(0, &["import", &edn, "-o", &sea]);
    for file in [&edn, &sea] {
        let document = json(&run(2, &["check", "--json", file]));
        let reason = "no operation completed ok: there is nothing to check";
        assert_eq!(document["reason"], reason);
    }
}

/// Enqueues that were acknowledged, and one dequeue that found nothing.
fn queue() -> Vec<Op> {
    let mut ops = Vec::new();
    let mut push = |op: Op, kind, value: Value| {
        let done = op.complete(kind, value);
        ops.extend([op, done]);
    };
    for element in 0..5 {
        let op = Op::invoke(Process::Client(0), "enqueue", Value::Int(element));
        push(op, OpType::Ok, Value::Int(element));
    }
    let dequeue = Op::invoke(Process::Client(1), "dequeue", Value::Nil);
    push(dequeue.clone(), OpType::Ok, Value::Int(0));
    push(dequeue, OpType::Fail, Value::Nil);
    for (index, op) in ops.iter_mut().enumerate() {
        op.index = index as u64;
        op.time = index as i64;
    }
    ops
}

#[test]
fn a_killed_run_is_not_accused_of_what_it_did_not_come_to() {
    let scratch = Scratch::new("unfinished");
    let attributes = serde_json::json!({"workload": "queue"});
    for (name, is_sealed, status) in [("killed.sea", false, 2), ("whole.sea", true, 1)] {
        let path = scratch.path(name);
        let mut writer = HistoryWriter::create(Path::new(&path), &attributes).unwrap();
        for op in queue() {
            writer.push(&op).unwrap();
        }
        if is_sealed {
            writer.seal().unwrap();
        } else {
            writer.sync().unwrap();
            drop(writer);
        }
        for more in [&[][..], &["--report", &scratch.path("page.html")]] {
            let words = [&["check", "--json", &path][..], more].concat();
            let document = json(&run(status, &words));
            if !is_sealed {
                let reason = document["reason"].as_str().unwrap();
                assert!(
                    reason.contains("the end of the history is missing"),
                    "{reason}"
                );
            }
        }
    }
}

#[test]
fn a_text_that_breaks_off_is_salvaged() {
    let scratch = Scratch::new("cut");
    let path = scratch.path("a.edn");
    let whole = format!("[{APPEND}]");
    fs::write(&path, &whole[..whole.len() - 12]).unwrap();
    error(&["check", &path], &["never closed"]);
    let output = run(
        2,
        &["check", "--salvage", "--checker", "list-append", &path],
    );
    assert!(
        stdout(&output).contains("no operation completed ok"),
        "{output:?}"
    );
}
