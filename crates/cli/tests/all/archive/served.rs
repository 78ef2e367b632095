//! An archive behind a server: the same verbs, with the same answers.

use super::copy::{follow, wait_for};
use super::{PATIENCE, RunningProgram, alike, archive, archive_json, feed, lines, replays};
use crate::{Scratch, error, stderr, stdout};

/// A server and its address.
fn serve(folder: &str, listen: &str) -> (RunningProgram, String) {
    let mut server = RunningProgram::start(&["serve", folder, "--listen", listen]);
    let said = server.errors();
    loop {
        let line = said.recv_timeout(PATIENCE).unwrap();
        if let Some(address) = line.strip_prefix("listening on ") {
            // What it says later must not fill the pipe.
            std::thread::spawn(move || said.iter().for_each(drop));
            return (server, format!("tcp://{address}"));
        }
    }
}

/// The verbs that change recordings, and what they refuse.
fn changes(tcp: &str) {
    let position = archive_json(&["describe", tcp, "log"])["end"].to_string();
    error(&["archive", "replay", tcp, "nothing"], &["nothing", tcp]);
    error(
        &["archive", "truncate", tcp, "log", "--to", "99999999"],
        &["99999999"],
    );
    error(&["archive", "delete", tcp, "7"], &["7"]);
    archive(0, &["truncate", tcp, "log", "--to", &position]);
    archive(0, &["label", tcp, "other", "renamed"]);
    archive(0, &["delete", tcp, "renamed"]);
    archive(0, &["compact", tcp]);
    assert_eq!(
        archive_json(&["list", tcp])["recordings"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_server_answers_as_its_folder_does() {
    let scratch = Scratch::new("archive-served");
    let folder = scratch.path("a");
    let (server, tcp) = serve(&folder, "127.0.0.1:0");
    let long = lines(0, 60_000);
    feed(
        0,
        &[
            "record",
            &tcp,
            "--label",
            "log",
            "--segment-length",
            "65536",
        ],
        &long,
    );
    feed(0, &["record", &tcp, "--extend", "log"], &lines(60_000, 10));
    feed(
        0,
        &["record", &tcp, "--label", "other", "--durability", "batch"],
        b"1\n",
    );
    // Readers of the folder are not kept out by the server.
    for place in [&tcp, &folder] {
        replays(&[place, "log"], &lines(0, 60_010));
        replays(
            &[place, "log", "--from-message", "60000"],
            &lines(60_000, 10),
        );
        replays(
            &[place, "1", "--from-message", "5", "--count", "2"],
            &lines(5, 2),
        );
        replays(
            &[place, "log", "--from-time", "2020-01-01", "--count", "1"],
            &lines(0, 1),
        );
    }
    for words in [
        &["describe", "log"][..],
        &["list"],
        &["list", "--label", "oth"],
    ] {
        let answer = |place: &str| {
            let mut answer = archive_json(&[&words[..1], &[place], &words[1..]].concat());
            answer.as_object_mut().unwrap().remove("archive");
            answer
        };
        assert_eq!(answer(&tcp), answer(&folder), "{words:?}");
    }
    let json = ["log", "--output", "json"];
    let of = |place: &str| archive(0, &[&["replay", place][..], &json].concat()).stdout;
    alike(&of(&tcp), &of(&folder));
    changes(&tcp);
    server.interrupt();
    assert_eq!(server.output().status.code(), Some(0));
    archive(0, &["verify", &folder]);
}

#[test]
fn a_follower_over_tcp_sees_what_comes_and_ends_with_ctrl_c() {
    let scratch = Scratch::new("archive-served-follow");
    let folder = scratch.path("a");
    let (_server, tcp) = serve(&folder, "127.0.0.1:0");
    let mut writer = RunningProgram::start(&["record", &tcp, "--label", "live", "--acknowledge"]);
    let acknowledged = writer.lines();
    writer.write(&lines(0, 3));
    acknowledged.recv_timeout(PATIENCE).unwrap();
    let mut reader = RunningProgram::start(&["replay", &tcp, "live", "--follow"]);
    let seen = reader.lines();
    for number in 0..3 {
        assert_eq!(
            seen.recv_timeout(PATIENCE).unwrap(),
            format!("line {number}")
        );
    }
    writer.write(&lines(3, 5_000));
    for number in 3..5_003 {
        assert_eq!(
            seen.recv_timeout(PATIENCE).unwrap(),
            format!("line {number}")
        );
    }
    assert_eq!(writer.output().status.code(), Some(0));
    reader.interrupt();
    assert_eq!(reader.output().status.code(), Some(0));
}

#[test]
fn a_recorder_survives_a_kill_of_its_server() {
    let scratch = Scratch::new("archive-served-kill");
    let folder = scratch.path("a");
    let (server, tcp) = serve(&folder, "127.0.0.1:0");
    let address = tcp.strip_prefix("tcp://").unwrap().to_owned();
    let mut writer = RunningProgram::start(&["record", &tcp, "--label", "log", "--acknowledge"]);
    let acknowledged = writer.lines();
    writer.write(&lines(0, 1_000));
    while !acknowledged
        .recv_timeout(PATIENCE)
        .unwrap()
        .starts_with("written 1000 ")
    {}
    server.kill();
    drop(server);
    writer.write(&lines(1_000, 1_000));
    let (server, _) = serve(&folder, &address);
    writer.write(&lines(2_000, 1_000));
    assert_eq!(writer.output().status.code(), Some(0));
    replays(&[&tcp, "log"], &lines(0, 3_000));
    server.interrupt();
    assert_eq!(server.output().status.code(), Some(0));
    replays(&[&folder, "log"], &lines(0, 3_000));
    archive(0, &["verify", &folder]);
}

#[test]
fn a_copy_over_tcp_resumes_after_kills() {
    let scratch = Scratch::new("archive-served-copy");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let (_server, tcp) = serve(&from, "127.0.0.1:0");
    follow(&tcp, &tcp, &to);
    archive(0, &["checksum", &from, "--against", &to]);
}

/// The positions of all messages.
fn positions(place: &str) -> Vec<u64> {
    let replayed = archive(0, &["replay", place, "log", "--output", "json"]).stdout;
    let lines = replayed
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let object = |line| serde_json::from_slice::<serde_json::Value>(line).unwrap();
    lines
        .map(|line| object(line)["position"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_copy_into_a_running_server_resumes_after_kills() {
    let scratch = Scratch::new("archive-pushed");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let (_server, tcp) = serve(&to, "127.0.0.1:0");
    follow(&from, &from, &tcp);
    assert_eq!(positions(&from), positions(&to));
    archive(0, &["checksum", &from, "--against", &to]);
    archive(0, &["verify", &to]);
    // Folder and server describe it equally, with its source and files.
    for words in [&["describe", "log"][..], &["list"]] {
        let answer = |place: &str| {
            let mut answer = archive_json(&[&words[..1], &[place], &words[1..]].concat());
            answer.as_object_mut().unwrap().remove("archive");
            answer
        };
        assert_eq!(answer(&tcp), answer(&to), "{words:?}");
    }
    let described = archive_json(&["describe", &tcp, "log"]);
    assert_eq!(described["source"]["recording"], 1, "{described:#}");
    let source = described["source"]["archive"].as_str().unwrap();
    let text = stdout(&archive(0, &["list", &tcp]));
    assert!(text.contains(&format!("1 of {source}")), "{text}");
    let text = stdout(&archive(0, &["describe", &tcp, "log"]));
    assert!(text.contains(&format!("recording 1 of {source}")), "{text}");
}

#[test]
fn a_copy_from_server_to_server_survives_a_kill_of_the_destination() {
    let scratch = Scratch::new("archive-pushed-kill");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let (_source, source) = serve(&from, "127.0.0.1:0");
    let (server, tcp) = serve(&to, "127.0.0.1:0");
    let address = tcp.strip_prefix("tcp://").unwrap().to_owned();
    let mut writer = RunningProgram::start(&["record", &source, "--label", "log", "--acknowledge"]);
    let acknowledged = writer.lines();
    writer.write(&lines(0, 5_000));
    acknowledged.recv_timeout(PATIENCE).unwrap();
    let copy = RunningProgram::start(&["copy", &source, &tcp, "--follow"]);
    wait_for(&tcp, "log", "line 4999");
    server.kill();
    drop(server);
    writer.write(&lines(5_000, 5_000));
    let (_server, _) = serve(&to, &address);
    wait_for(&tcp, "log", "line 9999");
    writer.write(&lines(10_000, 5_000));
    assert_eq!(writer.output().status.code(), Some(0));
    wait_for(&tcp, "log", "line 14999");
    copy.interrupt();
    let output = copy.output();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let again = archive_json(&["copy", &source, &tcp]);
    assert_eq!(again["recordings"][0]["messages"], 0, "{again:#}");
    assert_eq!(positions(&from), positions(&to));
    archive(0, &["checksum", &from, "--against", &to]);
    archive(0, &["verify", &to]);
}

#[test]
fn a_source_that_was_recorded_anew_is_not_copied_over_the_old() {
    let scratch = Scratch::new("archive-pushed-differs");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let (_server, tcp) = serve(&to, "127.0.0.1:0");
    feed(0, &["record", &from, "--label", "log"], &lines(0, 100));
    let end = archive_json(&["describe", &from, "log"])["end"].to_string();
    feed(0, &["record", &from, "--extend", "log"], &lines(100, 100));
    archive(0, &["copy", &from, &tcp]);
    // Shorter than the copy; then as long, with other messages at the end.
    archive(0, &["truncate", &from, "log", "--to", &end]);
    error(
        &["archive", "copy", &from, &tcp],
        &["differs", "the source ends there"],
    );
    feed(0, &["record", &from, "--extend", "log"], &lines(500, 100));
    error(&["archive", "copy", &from, &tcp], &["the copy differs at"]);
    replays(&[&tcp, "log"], &lines(0, 200));
    // The server takes other copies as before.
    let other = scratch.path("other");
    feed(0, &["record", &other, "--label", "log"], &lines(0, 10));
    archive(0, &["copy", &other, &tcp]);
    replays(&[&tcp, "2"], &lines(0, 10));
}
