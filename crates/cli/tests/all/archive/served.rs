//! An archive behind a server: the same verbs, with the same answers.

use super::copy::follow;
use super::{PATIENCE, Running, alike, archive, archive_json, feed, lines, replays};
use crate::{Scratch, error};

/// A server and its address.
fn serve(folder: &str, listen: &str) -> (Running, String) {
    let mut server = Running::start(&["serve", folder, "--listen", listen]);
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
    let mut writer = Running::start(&["record", &tcp, "--label", "live", "--acknowledge"]);
    let acknowledged = writer.lines();
    writer.write(&lines(0, 3));
    acknowledged.recv_timeout(PATIENCE).unwrap();
    let mut reader = Running::start(&["replay", &tcp, "live", "--follow"]);
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
    let mut writer = Running::start(&["record", &tcp, "--label", "log", "--acknowledge"]);
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
fn a_copy_over_tcp_goes_on_after_kills() {
    let scratch = Scratch::new("archive-served-copy");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let (_server, tcp) = serve(&from, "127.0.0.1:0");
    follow(&tcp, &tcp, &to);
    archive(0, &["checksum", &from, "--against", &to]);
}
