//! A recording process that is killed at any instant.

use super::{PATIENCE, RunningProgram, archive, archive_json, feed};
use crate::{Scratch, stderr, stdout};
use seatrial_machine::Rng;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 24;

/// The number of written messages in an acknowledgement.
fn written(line: &str) -> u64 {
    let number = line
        .strip_prefix("written ")
        .and_then(|rest| rest.split(' ').next());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{line:?}"))
}

/// Messages of every length that contain their number.
fn message(number: u64) -> Vec<u8> {
    let length = (number * 7919 % 300) as usize;
    format!("{number} {}\n", "x".repeat(length)).into_bytes()
}

#[test]
fn nothing_written_is_lost_by_a_kill_and_the_recording_continues() {
    let scratch = Scratch::new("archive-killed");
    let folder = scratch.path("a");
    let mut rng = Rng::from_seed(11);
    let levels = ["none", "group:5", "batch"];
    for level in levels {
        let options = ["--durability", level, "--segment-length", "131072"];
        feed(
            0,
            &[&["record", &folder, "--label", level][..], &options].concat(),
            b"",
        );
    }
    let (mut counts, mut cuts) = ([0; 3], 0);
    for round in 0..ROUNDS {
        let level = levels[(round % 3) as usize];
        let there = &mut counts[(round % 3) as usize];
        let mut writer =
            RunningProgram::start(&["record", &folder, "--extend", level, "--acknowledge"]);
        let acknowledgements = writer.lines();
        let mut input = writer.input.take().unwrap();
        let first = *there;
        let feeder = std::thread::spawn(move || {
            use std::io::Write as _;
            let mut number = first;
            while input.write_all(&message(number)).is_ok() {
                number += 1;
            }
            number
        });
        let begun = acknowledgements.recv_timeout(PATIENCE).unwrap();
        let until = Instant::now() + Duration::from_micros(rng.below(60_000));
        while Instant::now() < until {
            std::thread::yield_now();
        }
        writer.kill();
        let acknowledged = acknowledgements.iter().last().unwrap_or(begun);
        let offered = feeder.join().unwrap();
        let output = writer.output();
        assert_eq!(output.status.code(), None, "it was killed");
        let expected = *there + written(&acknowledged);
        // Opening the archive for writing recovers it, and prints what it truncated.
        let next = feed(0, &["record", &folder, "--extend", level], b"");
        cuts += u64::from(stderr(&next).contains("truncated"));
        let replayed = stdout(&archive(0, &["replay", &folder, level]));
        let found = replayed.lines().count() as u64;
        assert!(
            found >= expected,
            "round {round}: {expected} were written, {found} are there"
        );
        assert!(
            found <= offered + 1,
            "round {round}: {offered} were offered, {found} are there"
        );
        for (number, line) in (0..).zip(replayed.lines()) {
            assert_eq!(
                format!("{line}\n").as_bytes(),
                message(number),
                "round {round}"
            );
        }
        let described = archive_json(&["describe", &folder, level]);
        assert_eq!(described["messages"], found, "round {round}");
        *there = found;
    }
    archive(0, &["verify", &folder]);
    println!("{counts:?} messages in {ROUNDS} rounds, {cuts} torn ends");
}
