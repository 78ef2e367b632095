//! Recordings are shortened, moved and removed.

use super::{alike, archive, archive_json, feed, lines, replays};
use crate::{Scratch, error, stdout};
use serde_json::Value;
use std::fs;

/// A recording of many segments.
fn recorded(scratch: &Scratch) -> String {
    let folder = scratch.path("a");
    feed(
        0,
        &[
            "record",
            &folder,
            "--label",
            "log",
            "--segment-length",
            "4096",
        ],
        &lines(0, 20_000),
    );
    folder
}

/// How many files of segments are there.
fn segments(folder: &str) -> usize {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".segment"))
        .count()
}

#[test]
fn truncate_cuts_the_end_off_and_the_recording_can_be_extended() {
    let scratch = Scratch::new("archive-truncate");
    let folder = recorded(&scratch);
    let object = archive(
        0,
        &[
            "replay",
            &folder,
            "log",
            "--from-message",
            "12345",
            "--count",
            "1",
            "--output",
            "json",
        ],
    );
    let object: Value = serde_json::from_slice(&object.stdout).unwrap();
    let position = object["position"].to_string();
    archive(0, &["truncate", &folder, "log", "--to", &position]);
    replays(&[&folder, "log"], &lines(0, 12_345));
    feed(0, &["record", &folder, "--extend", "log"], b"instead\n");
    let replayed = stdout(&archive(0, &["replay", &folder, "log"]));
    assert_eq!(replayed.lines().last(), Some("instead"));
    assert_eq!(replayed.lines().count(), 12_346);
    archive(0, &["verify", &folder]);
}

#[test]
fn purge_and_detach_take_old_segments_away() {
    let scratch = Scratch::new("archive-purge");
    let folder = recorded(&scratch);
    let all = segments(&folder);
    assert!(all >= 2, "{all}");
    let whole = archive_json(&["describe", &folder, "log"]);
    let end = whole["end"].to_string();
    // The last segment stays, however far one wants to purge.
    let answer = archive_json(&["detach", &folder, "log", "--before", &end]);
    let start = answer["start"].as_u64().unwrap();
    assert!(start > 0);
    assert_eq!(segments(&folder), all, "their files stay");
    let first = archive_json(&["describe", &folder, "log"])["first_message"]
        .as_u64()
        .unwrap();
    let rest = archive(0, &["replay", &folder, "log"]).stdout;
    alike(&rest, &lines(first, 20_000 - first));
    error(
        &["archive", "replay", &folder, "log", "--from", "0"],
        &["position 0", "before the start"],
    );
    let files = archive_json(&["describe", &folder, "log"])["files"].clone();
    let (mut next, mut detached) = (0, 0);
    for file in files.as_array().unwrap() {
        assert_eq!(file["start"], next, "{files:#}");
        assert_eq!(file["problem"], Value::Null, "{files:#}");
        let is_detached = next < start;
        assert_eq!(
            file["state"],
            if is_detached { "detached" } else { "attached" }
        );
        detached += u64::from(is_detached);
        next += file["length"].as_u64().unwrap();
    }
    assert_eq!(
        (files.as_array().unwrap().len(), next.to_string()),
        (all, end)
    );
    let text = stdout(&archive(0, &["describe", &folder, "log"]));
    assert_eq!(
        text.matches(" detached ").count() as u64,
        detached,
        "{text}"
    );
    let attached = archive_json(&["attach", &folder, "log"]);
    assert_eq!(attached["start"], 0);
    replays(&[&folder, "log"], &lines(0, 20_000));
    archive(
        0,
        &["purge", &folder, "log", "--before", &start.to_string()],
    );
    assert!(segments(&folder) < all);
    replays(&[&folder, "log"], &rest);
    archive(0, &["verify", &folder]);
}

#[test]
fn recordings_are_found_labelled_deleted_and_compacted() {
    let scratch = Scratch::new("archive-manage");
    let folder = scratch.path("a");
    for label in ["alpha", "beta", "alpha"] {
        feed(0, &["record", &folder, "--label", label], b"1\n");
    }
    let table = stdout(&archive(0, &["list", &folder]));
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.starts_with("ID  LABEL"), "{table}");
    let numbers = |words: &[&str]| {
        let listed = archive_json(&[&["list", &folder], words].concat());
        let recordings = listed["recordings"].as_array().unwrap().clone();
        recordings
            .iter()
            .map(|entry| entry["recording"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(&[]), [1, 2, 3]);
    assert_eq!(numbers(&["--label", "alpha"]), [1, 3]);
    assert_eq!(numbers(&["--at", "2020-01-01"]), [0; 0]);
    let year = ["--since", "2020-01-01", "--until", "2020-12-31"];
    assert_eq!(numbers(&year), [0; 0]);
    assert_eq!(numbers(&["--until", "2020-01-01"]), [0; 0]);
    assert_eq!(numbers(&["--until", "2500-01-01"]), [1, 2, 3]);
    assert_eq!(numbers(&["--since", "1h", "--until", "0s"]), [1, 2, 3]);
    let backwards = ["archive", "list", &folder, "--since", "1h", "--until", "2h"];
    error(&backwards, &["--since is after --until"]);
    assert_eq!(numbers(&["--position", "1"]), [1, 2, 3]);
    assert_eq!(
        archive_json(&["describe", &folder, "alpha"])["recording"],
        3,
        "the newest"
    );
    archive(0, &["label", &folder, "alpha", "gamma"]);
    assert_eq!(
        archive_json(&["describe", &folder, "gamma"])["recording"],
        3
    );
    archive(0, &["delete", &folder, "beta"]);
    assert_eq!(numbers(&[]), [1, 3]);
    assert_eq!(segments(&folder), 2);
    archive(0, &["compact", &folder]);
    assert_eq!(numbers(&[]), [1, 3]);
    feed(0, &["record", &folder, "--label", "delta"], b"1\n");
    assert_eq!(numbers(&[]), [1, 3, 4], "a number is never given out twice");
    error(&["archive", "delete", &folder, "beta"], &["beta"]);
}
