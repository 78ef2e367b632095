//! The medium changes what was recorded.

use super::{alike, archive, archive_json, feed, lines, replays};
use crate::{Scratch, command, error, json, run, spoken, stderr, stdout};
use seatrial_machine::Rng;
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Files of segments, in order.
fn segments(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "segment"))
        .collect();
    paths.sort();
    paths
}

fn flip(path: &Path, at: usize, bit: u32) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

fn recorded(scratch: &Scratch) -> String {
    let folder = scratch.path("a");
    for part in 0..10 {
        let to = if part == 0 {
            ["--label", "log"]
        } else {
            ["--extend", "log"]
        };
        feed(
            0,
            &[&["record", &folder][..], &to].concat(),
            &lines(part * 100, 100),
        );
    }
    folder
}

#[test]
fn a_flipped_bit_is_reported_and_truncated_only_on_request() {
    let scratch = Scratch::new("archive-flip");
    let folder = recorded(&scratch);
    let clean = json(&archive(0, &["verify", &folder, "--json"]));
    assert_eq!(clean["clean"], true, "{clean:#}");
    let path = segments(&folder).remove(0);
    let at = fs::metadata(&path).unwrap().len() as usize / 2;
    flip(&path, at, 3);
    let file = path.file_name().unwrap().to_str().unwrap();
    let text = stdout(&archive(1, &["verify", &folder]));
    for part in [file, "position", "checksum is", "the header says"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let report = json(&archive(1, &["verify", &folder, "log", "--json"]));
    assert_eq!(report["clean"], false);
    let damage = &report["recordings"][0]["damage"][0];
    assert!(
        damage["file"].as_str().unwrap().contains(file),
        "{report:#}"
    );
    let (offset, position) = (
        damage["offset"].as_u64().unwrap(),
        damage["position"].as_u64().unwrap(),
    );
    assert!(offset <= at as u64 && position <= at as u64, "{report:#}");
    // Replay prints what is before, and says where it ends and why.
    let replay = run(254, &["archive", "replay", &folder, "log"]);
    assert!(lines(0, 1000).starts_with(&replay.stdout));
    error(&["archive", "replay", &folder, "log"], &[file, "position"]);
    // Nothing was changed so far.
    archive(1, &["verify", &folder]);
    archive(1, &["verify", &folder, "--repair"]);
    archive(0, &["verify", &folder]);
    let rest = archive(0, &["replay", &folder, "log"]).stdout;
    alike(&rest, &replay.stdout);
    let count = stdout(&archive(0, &["replay", &folder, "log"]))
        .lines()
        .count();
    assert!((1..1000).contains(&count), "{count}");
    feed(0, &["record", &folder, "--extend", "log"], b"goes on\n");
    replays(&[&folder, "log"], &[&rest[..], b"goes on\n"].concat());
}

#[test]
fn every_single_bit_is_covered() {
    let scratch = Scratch::new("archive-bits");
    let folder = recorded(&scratch);
    let path = segments(&folder).remove(0);
    let length = fs::metadata(&path).unwrap().len() as usize;
    let mut rng = Rng::from_seed(3);
    for _ in 0..24 {
        let (at, bit) = (rng.index(length), rng.index(8) as u32);
        flip(&path, at, bit);
        let report = json(&archive(1, &["verify", &folder, "--json"]));
        assert_eq!(report["clean"], false, "bit {bit} of byte {at}");
        flip(&path, at, bit);
    }
    archive(0, &["verify", &folder]);
}

#[test]
fn a_missing_or_shortened_file_is_damage_too() {
    let scratch = Scratch::new("archive-missing");
    let folder = recorded(&scratch);
    let path = segments(&folder).remove(0);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    archive(1, &["verify", &folder]);
    fs::remove_file(&path).unwrap();
    let text = stdout(&archive(1, &["verify", &folder]));
    assert!(
        text.contains(path.file_name().unwrap().to_str().unwrap()),
        "{text}"
    );
}

#[test]
fn describe_tells_which_file_is_missing_or_short() {
    let scratch = Scratch::new("archive-files");
    let folder = scratch.path("a");
    let record = [
        "record",
        &folder,
        "--label",
        "log",
        "--segment-length",
        "4096",
    ];
    feed(0, &record, &lines(0, 60_000));
    let problems = || {
        let described = command(&["archive", "describe", &folder, "log", "--json"]).output();
        let described = described.unwrap();
        let files = json(&described)["files"].clone();
        let is_whole = (files.as_array().unwrap().iter()).all(|file| file["problem"].is_null());
        assert_eq!(described.status.code(), Some(i32::from(!is_whole)));
        let files = files.as_array().unwrap().clone();
        let problem = |file: &Value| file["problem"].as_str().map(str::to_owned);
        files.iter().map(problem).collect::<Vec<_>>()
    };
    let paths = segments(&folder);
    assert!(paths.len() >= 3, "{paths:?}");
    assert_eq!(problems(), vec![None; paths.len()]);
    let bytes = fs::read(&paths[1]).unwrap();
    fs::write(&paths[1], &bytes[..bytes.len() - 8]).unwrap();
    let found = problems();
    let problem = found[1].clone().unwrap();
    assert!(problem.contains("the next file starts at"), "{problem}");
    assert_eq!(found.iter().flatten().count(), 1, "{found:?}");
    flip(&paths[1], 50, 1);
    let problem = problems()[1].clone().unwrap();
    assert!(problem.contains("checksum"), "{problem}");
    fs::remove_file(&paths[1]).unwrap();
    assert!(problems()[0].is_some());
    let text = stdout(&archive(1, &["describe", &folder, "log"]));
    assert!(text.contains("the next file starts at"), "{text}");
}

#[test]
fn a_damaged_catalog_is_reported_and_repaired_only_on_request() {
    let scratch = Scratch::new("archive-catalog");
    let folder = scratch.path("a");
    for label in ["one", "two", "three"] {
        feed(0, &["record", &folder, "--label", label], &lines(0, 500));
    }
    let catalog = Path::new(&folder).join("catalog");
    archive(0, &["repair-catalog", &folder]);
    let before = archive_json(&["list", &folder])["recordings"].clone();
    flip(&catalog, 40, 2);
    let damaged = fs::read(&catalog).unwrap();
    for words in [
        &["list", &folder][..],
        &["replay", &folder, "two"],
        &["verify", &folder],
    ] {
        let words = [&["archive"], words].concat();
        error(&words, &["catalog", "checksum", "repair-catalog"]);
    }
    error(
        &["archive", "record", &folder],
        &["catalog", "repair-catalog"],
    );
    assert_eq!(fs::read(&catalog).unwrap(), damaged, "it is not repaired");
    let answer = json(&archive(1, &["repair-catalog", &folder, "--json"]));
    assert_eq!(answer["whole"], false, "{answer:#}");
    assert_eq!(answer["found"], serde_json::json!([1]), "{answer:#}");
    let kept = answer["kept"].as_str().unwrap();
    assert_eq!(fs::read(kept).unwrap(), damaged);
    archive(0, &["repair-catalog", &folder]);
    let after = archive_json(&["list", &folder])["recordings"].clone();
    assert_eq!(after[0]["label"], "", "its label is lost");
    for index in 0..3 {
        for field in ["recording", "start", "end", "messages"] {
            assert_eq!(after[index][field], before[index][field], "{field}");
        }
    }
    for recording in ["1", "two", "three"] {
        replays(&[&folder, recording], &lines(0, 500));
    }
    archive(0, &["verify", &folder]);
    // Without any catalog the files are enough.
    fs::remove_file(&catalog).unwrap();
    error(
        &["archive", "list", &folder],
        &["missing", "repair-catalog"],
    );
    let text = stdout(&archive(1, &["repair-catalog", &folder]));
    assert!(text.contains("recording 3: found by its files"), "{text}");
    replays(&[&folder, "3"], &lines(0, 500));
    let nowhere = scratch.path("nothing");
    error(
        &["archive", "repair-catalog", &nowhere],
        &["there is no archive"],
    );
    assert!(!Path::new(&nowhere).exists());
}

#[test]
fn checksums_tell_equal_recordings_from_different_ones() {
    let scratch = Scratch::new("archive-checksum");
    let (one, two) = (scratch.path("one"), scratch.path("two"));
    for folder in [&one, &two] {
        feed(0, &["record", folder, "--label", "log"], &lines(0, 1000));
    }
    let sum =
        |folder: &str| json(&archive(0, &["checksum", folder, "--json"]))["recordings"][0].clone();
    assert_eq!(
        sum(&one)["checksum"],
        sum(&two)["checksum"],
        "the same messages, however cut into blocks"
    );
    archive(0, &["checksum", &one, "--against", &two]);
    feed(0, &["record", &two, "--extend", "log"], b"one more\n");
    let text = stdout(&archive(1, &["checksum", &one, "--against", &two]));
    assert!(text.contains("differ"), "{text}");
}

/// Two recordings of some segments each.
fn two(scratch: &Scratch) -> String {
    let folder = scratch.path("a");
    for label in ["one", "two"] {
        let words = [
            "record",
            &folder,
            "--label",
            label,
            "--segment-length",
            "4096",
        ];
        feed(0, &words, &lines(0, 60_000));
    }
    folder
}

#[test]
fn a_missing_first_file_is_reported_by_every_verb_that_needs_it() {
    let scratch = Scratch::new("archive-first");
    let folder = two(&scratch);
    let copy = scratch.path("copy");
    let path = segments(&folder).remove(0);
    let file = path.file_name().unwrap().to_str().unwrap();
    fs::remove_file(&path).unwrap();
    for words in [
        &["replay", &folder, "one"][..],
        &["replay", &folder, "one", "--from-message", "3"],
        &["checksum", &folder],
        &["copy", &folder, &copy],
    ] {
        error(&[&["archive"], words].concat(), &[file]);
    }
    assert!(stdout(&archive(1, &["verify", &folder])).contains(file));
    archive(1, &["describe", &folder, "one"]);
    replays(&[&folder, "two"], &lines(0, 60_000));
}

#[test]
fn a_catalog_that_lost_its_end_or_all_is_reported_by_every_verb_and_never_begun_anew() {
    let scratch = Scratch::new("archive-lost");
    let folder = two(&scratch);
    let catalog = Path::new(&folder).join("catalog");
    let whole = fs::read(&catalog).unwrap();
    let files = || {
        segments(&folder)
            .iter()
            .map(|path| fs::read(path).unwrap())
            .collect::<Vec<_>>()
    };
    let before = files();
    // An event of a stop is 88 bytes long; a cut there is one between blocks.
    for length in [0, whole.len() - 88, whole.len() - 1] {
        fs::write(&catalog, &whole[..length]).unwrap();
        for words in [
            &["list", &folder][..],
            &["describe", &folder, "one"],
            &["replay", &folder, "one"],
            &["checksum", &folder],
            &["verify", &folder],
            &["record", &folder, "--extend", "one"],
            &["record", &folder, "--label", "new"],
            &["copy", &folder, &scratch.path("copy")],
        ] {
            error(
                &[&["archive"], words].concat(),
                &["catalog has lost events", "repair-catalog"],
            );
        }
        assert_eq!(fs::read(&catalog).unwrap(), &whole[..length]);
        assert!(files() == before);
    }
    archive(1, &["repair-catalog", &folder]);
    archive(0, &["verify", &folder]);
    replays(&[&folder, "one"], &lines(0, 60_000));
    replays(&[&folder, "2"], &lines(0, 60_000));
    // A file of no recording.
    let stray = Path::new(&folder).join("0000000009-00000000000000000000.segment");
    fs::copy(&segments(&folder)[0], &stray).unwrap();
    let text = stdout(&archive(1, &["verify", &folder]));
    assert!(
        text.contains("0000000009") && text.contains("DAMAGED:"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_shortened_while_it_is_read_is_an_error_and_no_signal() {
    let scratch = Scratch::new("archive-shortened");
    let folder = scratch.path("a");
    feed(
        0,
        &["record", &folder, "--label", "log"],
        &lines(0, 400_000),
    );
    let path = segments(&folder).remove(0);
    let bytes = fs::read(&path).unwrap();
    for _ in 0..10 {
        fs::write(&path, &bytes).unwrap();
        let mut replay = command(&["archive", "replay", &folder, "log"]);
        replay.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spoken::spawn(&mut replay);
        // It waits for its reader somewhere in the file.
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 1_000]).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(5_000).unwrap();
        out.read_to_end(&mut Vec::new()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        assert_eq!(
            output.status.code(),
            Some(254),
            "{:?} {text}",
            output.status
        );
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
}
