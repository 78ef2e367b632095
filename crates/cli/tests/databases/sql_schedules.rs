//! `seatrial schedule`: anomalies by levels, files of one's own, wrong input.

use crate::{folder, is_missing, machine, printed, run};
use serde_json::Value as Json;
use std::fs;

const MINE: &str = r#"
title = "mine"
setup = ["drop table if exists t", "create table t (v int)"]

[[schedule]]
name = "dirty-read"
anomaly = "G1a"
about = "T2 reads what T1 takes back"
steps = [
  "T1: begin",
  "T1: insert into t values (1)",
  "T2: begin",
  "T2 seen: select v from t",
  "T2: commit",
  "T1: rollback",
]
final = "select v from t"
occurs = [{ commits = ["T2"], shows = { seen = [[1]], final = [] } }]
"#;

/// The results of the schedules, by system and level.
fn results(words: &[&str]) -> Option<(Json, i32)> {
    let folder = folder("schedule");
    fs::write(folder.folder().join("mine.toml"), MINE).unwrap();
    let output = run(&folder, &[&["schedule", "--json"], words].concat());
    let text = printed(&output);
    if is_missing(&text) {
        return None;
    }
    let status = output.status.code().unwrap();
    assert!(status < 3, "{text}");
    // Data are removed; the log stays.
    let series = fs::read_dir(folder.folder().join("runs/schedule")).unwrap();
    for series in series.flatten() {
        for server in fs::read_dir(series.path()).unwrap().flatten() {
            assert!(!server.path().join("n1").exists());
            assert!(server.path().join("n1.log").exists());
        }
    }
    Some((serde_json::from_slice(&output.stdout).unwrap(), status))
}

#[test]
fn levels_are_as_published() {
    let _one = machine();
    let words = ["p4", "g2-item", "--system", "postgres,mariadb"];
    let Some((document, status)) = results(&words) else {
        return;
    };
    assert_eq!(status, 1);
    assert_eq!(document["differences"].as_array().unwrap().len(), 0);
    let levels = document["levels"].as_array().unwrap();
    let cell = |system: &str, level: &str, schedule: &str| {
        let mut levels = levels.iter();
        let row = levels.find(|row| row["system"] == system && row["level"] == level);
        row.unwrap()["schedules"][schedule]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(cell("postgres", "read-committed", "p4"), "occurs");
    assert_eq!(cell("postgres", "repeatable-read", "p4"), "aborts");
    assert_eq!(cell("postgres", "repeatable-read", "g2-item"), "occurs");
    assert_eq!(cell("postgres", "serializable", "g2-item"), "aborts");
    assert_eq!(cell("mariadb", "repeatable-read", "p4"), "occurs");
    let snapshot = "repeatable-read, innodb-snapshot-isolation";
    assert_eq!(cell("mariadb", snapshot, "p4"), "aborts");
    assert_eq!(cell("mariadb", "serializable", "g2-item"), "aborts");
}

#[test]
fn a_file_of_ones_own_runs_on_sqlite() {
    let _one = machine();
    let words = ["--file", "mine.toml", "--system", "sqlite"];
    let (document, status) = results(&words).unwrap();
    assert_eq!(status, 1);
    let found: Vec<&str> = document["levels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["schedules"]["dirty-read"].as_str().unwrap())
        .collect();
    // In a shared cache T2 waits for what T1 has written, and continues when it is taken back; WAL has a snapshot of before.
    assert_eq!(found, ["occurs", "waits", "versions", "versions", "waits"]);
    let serializable = [&words[..], &["--isolation", "serializable"]].concat();
    let (_, status) = results(&serializable).unwrap();
    assert_eq!(status, 0);
}

#[test]
fn wrong_input_is_said_with_status_254() {
    let folder = folder("schedule-wrong");
    fs::write(
        folder.folder().join("wrong.toml"),
        MINE.replace("T2 seen", "T2 saw"),
    )
    .unwrap();
    fs::write(
        folder.folder().join("sql.toml"),
        MINE.replace("create table t (v int)", "create tabel t (v int)"),
    )
    .unwrap();
    for (words, expected) in [
        (&["p5"][..], "unknown schedule `p5`"),
        (&["--system", "oracle"], "unknown system `oracle`"),
        (
            &["--system", "sqlite", "--isolation", "chaos"],
            "unknown isolation level `chaos`",
        ),
        (&["--file", "none.toml"], "none.toml: No such file"),
        (
            &["--file", "wrong.toml"],
            "wrong.toml:18:48: schedule[0].occurs[0].shows.seen: ",
        ),
        (
            &["--file", "sql.toml", "--system", "sqlite"],
            "sqlite, read-uncommitted, dirty-read: create tabel t (v int): near \"tabel\"",
        ),
        (&["--out", "."], ". already exists"),
    ] {
        let output = run(&folder, &[&["schedule"], words].concat());
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(254), "{text}");
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
