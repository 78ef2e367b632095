//! Recordings are copied from archive to archive.

use super::{PATIENCE, RunningProgram, archive, archive_json, feed, lines, replays};
use crate::{Scratch, error, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_copy_is_identical_and_resumes_where_it_ended() {
    let scratch = Scratch::new("archive-copy");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    feed(
        0,
        &[
            "record",
            &from,
            "--label",
            "log",
            "--segment-length",
            "65536",
        ],
        &lines(0, 10_000),
    );
    feed(0, &["record", &from, "--label", "other"], b"1\n");
    let copied = archive_json(&["copy", &from, &to]);
    assert_eq!(copied["recordings"][0]["messages"], 10_000);
    archive(0, &["checksum", &from, "--against", &to]);
    feed(
        0,
        &["record", &from, "--extend", "log"],
        &lines(10_000, 500),
    );
    archive(1, &["checksum", &from, "--against", &to]);
    let copied = archive_json(&["copy", &from, &to]);
    assert_eq!(copied["recordings"][0]["messages"], 500, "only what is new");
    archive(0, &["checksum", &from, "--against", &to]);
    archive(0, &["verify", &to]);
    // Positions are equal, so a reader may continue in either.
    for part in [["--output", "json"], ["--output", "framed"]] {
        let words = |folder| [&["replay", folder, "log"][..], &part].concat();
        assert_eq!(
            archive(0, &words(&from)).stdout,
            archive(0, &words(&to)).stdout
        );
    }
    let described = archive_json(&["describe", &to, "log"]);
    assert_eq!(described["source"]["recording"], 1);
    error(&["archive", "copy", &from, &from], &["into itself"]);
    error(
        &["archive", "copy", &scratch.path("nothing"), &to],
        &["nothing"],
    );
    error(
        &["archive", "copy", &from, &to, "--recording", "none"],
        &["none"],
    );
}

/// Waits until a copy holds a message.
pub(super) fn wait_for(folder: &str, label: &str, line: &str) {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if folder.starts_with("tcp://") || Path::new(folder).join("catalog").exists() {
            let listed = archive_json(&["list", folder, "--label", label]);
            if listed["recordings"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
            {
                let text = stdout(&archive(0, &["replay", folder, label]));
                if text.lines().last() == Some(line) {
                    return;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{line:?} did not reach {folder}");
}

/// A copy follows a recording, is killed, and resumes.
pub(super) fn follow(from: &str, source: &str, to: &str) {
    let mut writer = RunningProgram::start(&["record", from, "--label", "log", "--acknowledge"]);
    let acknowledged = writer.lines();
    writer.write(b"first\n");
    acknowledged.recv_timeout(PATIENCE).unwrap();
    let mut sent = 0;
    for round in 0..4 {
        let copy = RunningProgram::start(&["copy", source, to, "--follow"]);
        writer.write(&lines(sent, 5_000));
        sent += 5_000;
        wait_for(to, "log", &format!("line {}", sent - 1));
        if round % 2 == 0 {
            copy.kill();
        } else {
            copy.interrupt();
            assert_eq!(copy.output().status.code(), Some(0));
        }
        writer.write(&lines(sent, 5_000));
        sent += 5_000;
    }
    assert_eq!(writer.output().status.code(), Some(0));
    archive(0, &["copy", source, to]);
    let expected = [b"first\n".to_vec(), lines(0, sent)].concat();
    replays(&[to, "log"], &expected);
    if !to.starts_with("tcp://") {
        archive(0, &["verify", to]);
    }
    assert_eq!(
        archive_json(&["list", to])["recordings"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_copy_follows_and_survives_kills() {
    let scratch = Scratch::new("archive-copy-follow");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    follow(&from, &from, &to);
}
