//! Cuts, zeroed blocks and flipped bits of test files against the verbs that read and write them: the same answer as without the
//! damage, or the damage with file and offset, never a better verdict.

use super::salvage::{ops, write};
use super::{Scratch, command, error, run, stderr, stdout};
use seatrial_history::TestFile;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Output;

/// Bytes of a block of the file system.
const BLOCK: usize = 4_096;
const OPERATIONS: u64 = 150;

/// An invalid history whose only anomaly is at its end.
fn invalid(path: &str, is_sealed: bool) -> Vec<u8> {
    let writer = write(path, &ops(OPERATIONS, Some(OPERATIONS - 3)));
    if is_sealed {
        writer.seal().unwrap();
        TestFile::append_results(Path::new(path), &json!({"valid": false})).unwrap();
    } else {
        drop(writer);
    }
    fs::read(path).unwrap()
}

/// Offset, length and kind of each block.
fn blocks(bytes: &[u8]) -> Vec<(usize, usize, u16)> {
    let disk = bytes.to_vec();
    let mut walker = seatrial_blocks::Walker::new(&disk, BLOCK as u64);
    let mut blocks = Vec::new();
    while let Some((offset, header)) = walker.next_header().unwrap() {
        let length = header.block_length() as usize;
        blocks.push((offset as usize, length, header.kind.0));
    }
    blocks
}

/// Every damage: a cut and a zeroed range at each block of the file system and at each root.
fn damages(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let places = (0..bytes.len()).step_by(BLOCK);
    let mut places: Vec<(usize, usize)> = places.map(|at| (at, BLOCK)).collect();
    // What is cut at its end are the last 4 KiB.
    places.push((bytes.len() - BLOCK, BLOCK));
    let roots = blocks(bytes).into_iter().filter(|block| block.2 == 1);
    places.extend(roots.map(|(offset, length, _)| (offset, length)));
    let mut all = Vec::new();
    for (at, length) in places {
        all.push((format!("cut at {at}"), bytes[..at].to_vec()));
        let mut zeroed = bytes.to_vec();
        let end = (at + length).min(bytes.len());
        zeroed[at..end].fill(0);
        all.push((format!("zeroes from {at} to {end}"), zeroed));
    }
    all
}

/// Are the file and a place in it named?
fn is_named(output: &Output, file: &str) -> bool {
    let text = format!("{}\n{}", stderr(output), stdout(output));
    let mut behind = text.split(file).skip(1);
    behind.any(|behind| behind.contains(|letter: char| letter.is_ascii_digit()))
}

#[test]
fn no_damage_makes_a_verdict_better() {
    let scratch = Scratch::new("damage");
    for is_sealed in [true, false] {
        let (whole, file) = (scratch.path("whole.sea"), scratch.path("hurt.sea"));
        let bytes = invalid(&whole, is_sealed);
        assert!(bytes.len() > 3 * BLOCK, "{}", bytes.len());
        let shown = stdout(&run(0, &["show", "--edn", &whole]));
        run(1, &["check", &whole]);
        fs::remove_file(&whole).unwrap();
        for (what, damaged) in damages(&bytes) {
            let starts: Vec<usize> = blocks(&bytes).into_iter().map(|block| block.0).collect();
            if !is_sealed && starts.contains(&damaged.len()) {
                // A writer that was killed leaves the same bytes.
                continue;
            }
            let _ = fs::remove_file(&file);
            fs::write(&file, &damaged).unwrap();
            for options in [&["--quiet"][..], &["--quiet", "--salvage"]] {
                let output = command(&[&["check"], options, &[&file]].concat())
                    .output()
                    .unwrap();
                let said = format!("{what} {options:?}\n{}{}", stdout(&output), stderr(&output));
                match output.status.code() {
                    Some(1 | 2) => {}
                    Some(254) => assert!(is_named(&output, &file), "{said}"),
                    other => panic!("{other:?}: {said}"),
                }
            }
            for options in [&["--edn"][..], &["--edn", "--salvage"]] {
                let output = command(&[&["show"], options, &[&file]].concat())
                    .output()
                    .unwrap();
                let said = format!("{what} {options:?}\n{}", stderr(&output));
                match output.status.code() {
                    Some(0) if stdout(&output) == shown => {}
                    Some(0) => assert!(!output.stderr.is_empty(), "{said}"),
                    Some(254) => assert!(is_named(&output, &file), "{said}"),
                    other => panic!("{other:?}: {said}"),
                }
            }
        }
    }
}

#[test]
fn an_end_of_zeroes_is_damage_with_salvage_too() {
    let scratch = Scratch::new("damage-end");
    let file = scratch.path("hurt.sea");
    let mut bytes = invalid(&file, true);
    let mut roots = blocks(&bytes).into_iter().filter(|block| block.2 == 1);
    let newest = roots.next_back().unwrap().0;
    let (whole, end) = (bytes.clone(), bytes.len());
    bytes[end - BLOCK..].fill(0);
    fs::remove_file(&file).unwrap();
    fs::write(&file, &bytes).unwrap();
    let place = format!("{newest}");
    error(
        &["check", &file],
        &[&file, "newest root", &place, "--salvage"],
    );
    let said = stdout(&run(1, &["check", "--salvage", &file]));
    assert!(said.contains("missing"), "{said}");
    // Without the chunk of the anomaly nothing contradicts anything, and yet it is not valid.
    let mut chunks = blocks(&whole).into_iter().filter(|block| block.2 == 17);
    bytes[chunks.next_back().unwrap().0..].fill(0);
    fs::write(&file, &bytes).unwrap();
    error(&["check", &file], &[&file, "newest root", &place]);
    let said = stdout(&run(2, &["check", "--salvage", &file]));
    assert!(said.contains("missing"), "{said}");
}

#[test]
fn a_recorded_verdict_never_shortens_a_file() {
    let scratch = Scratch::new("damage-record");
    let file = scratch.path("hurt.sea");
    for is_sealed in [false, true] {
        let bytes = invalid(&file, is_sealed);
        let mut refused = 0;
        for (offset, length, _) in blocks(&bytes) {
            for at in [offset + 1, offset + 40, offset + length - 1] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                fs::remove_file(&file).unwrap();
                fs::write(&file, &damaged).unwrap();
                let output = command(&["check", "--record", "--quiet", &file])
                    .output()
                    .unwrap();
                let left = fs::read(&file).unwrap();
                let said = format!("byte {at}\n{}{}", stdout(&output), stderr(&output));
                if output.status.code() == Some(254) {
                    refused += 1;
                    assert!(left == damaged, "{said}");
                    assert!(is_named(&output, &file), "{said}");
                } else {
                    // Roots that nothing needs any more, older results, dead journal blocks.
                    assert_eq!(output.status.code(), Some(1), "{said}");
                    assert!(left.len() > damaged.len(), "{said}");
                    assert!(left[BLOCK..].starts_with(&damaged[BLOCK..]), "{said}");
                }
            }
        }
        assert!(refused > 3 * OPERATIONS as usize / 10, "{refused}");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn only_a_repair_cuts_and_it_keeps_what_it_cuts() {
    let scratch = Scratch::new("damage-repair");
    let file = scratch.path("hurt.sea");
    let bytes = invalid(&file, false);
    let third = blocks(&bytes)[2 + 3].0;
    let mut damaged = bytes.clone();
    damaged[third + 40] ^= 1;
    fs::remove_file(&file).unwrap();
    fs::write(&file, &damaged).unwrap();
    let place = format!("at {third}");
    // Not valid, though nothing in front of the damage is wrong.
    let output = run(2, &["check", &file]);
    let said = stdout(&output);
    assert!(
        said.contains(&place) && said.contains("--salvage"),
        "{said}"
    );
    error(&["check", "--record", &file], &[&file, &place, "--repair"]);
    assert!(fs::read(&file).unwrap() == damaged);
    // What was cut off was recorded: nothing in front of it makes the history valid, then or later.
    let output = run(2, &["check", "--record", "--repair", &file]);
    let cut = format!(
        "a repair cut {} bytes off at {third}",
        damaged.len() - third
    );
    assert!(stdout(&output).contains(&cut), "{}", stdout(&output));
    let again = run(2, &["check", &file]);
    assert!(stdout(&again).contains(&cut), "{}", stdout(&again));
    let kept = format!("{file}.cut-{third}");
    assert!(stderr(&output).contains(&kept), "{}", stderr(&output));
    assert!(fs::read(&kept).unwrap() == damaged[third..]);
    let file = TestFile::open(Path::new(&file)).unwrap();
    assert_eq!((file.len(), file.analyses()), (30, 1));
}

#[test]
fn the_rest_of_a_damaged_file_is_salvaged_into_a_new_file() {
    let scratch = Scratch::new("damage-copy");
    let (file, copy) = (scratch.path("hurt.sea"), scratch.path("left.sea"));
    let bytes = invalid(&file, true);
    let whole = TestFile::open(Path::new(&file)).unwrap().len();
    let third = blocks(&bytes)[2 + 3].0;
    let mut damaged = bytes.clone();
    damaged[third + 40] ^= 1;
    fs::remove_file(&file).unwrap();
    fs::write(&file, &damaged).unwrap();
    error(&["import", &file, "--out", &copy], &[&file, "--salvage"]);
    let output = run(0, &["import", "--salvage", &file, "--out", &copy]);
    assert!(
        stderr(&output).contains(&third.to_string()),
        "{}",
        stderr(&output)
    );
    assert!(
        fs::read(&file).unwrap() == damaged,
        "the damaged file is evidence"
    );
    // The copy is whole, and says what it lacks.
    let left = TestFile::open(Path::new(&copy)).unwrap();
    let salvaged = TestFile::salvage(Path::new(&file)).unwrap();
    assert_eq!(left.len(), salvaged.len());
    assert!(left.len() < whole && left.is_complete());
    let attributes = left.attributes().unwrap();
    assert_eq!(
        attributes["salvaged"]["missing"].as_array().unwrap().len(),
        1
    );
    let said = |name: &str, flag: Option<&str>| {
        let mut words = vec!["check", name];
        words.extend(flag);
        stdout(&run(1, &words)).contains("operations of this history are missing")
    };
    assert!(said(&copy, None) && said(&file, Some("--salvage")));
    // The same operations for other programs.
    let text = scratch.path("left.jsonl");
    run(0, &["export", "--salvage", &file, "--out", &text]);
    let lines = fs::read_to_string(&text).unwrap();
    // Before them stands what is missing.
    assert!(lines.starts_with("{\"seatrial\":{\"salvaged\":"), "{lines}");
    assert_eq!(lines.lines().count() as u64, left.len() + 1);
}
