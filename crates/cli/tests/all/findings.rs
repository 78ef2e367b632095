//! Findings in words and pictures: `seatrial check --findings`.

use crate::{Scratch, error, run};
use std::fs;
use std::path::Path;

/// The names of all files below a folder, sorted.
fn names(folder: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut waiting = vec![Path::new(folder).to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() {
                waiting.push(entry);
            } else {
                let name = entry.strip_prefix(folder).unwrap();
                names.push(name.display().to_string());
            }
        }
    }
    names.sort();
    names
}

#[test]
fn findings_are_reported_and_drawn() {
    let scratch = Scratch::new("findings");
    let (sea, edn) = (scratch.path("a.sea"), scratch.path("a.edn"));
    let generate = [
        "generate",
        "list-append",
        "--ops",
        "4000",
        "--isolation",
        "read-committed",
        "-q",
        "-o",
        &sea,
    ];
    run(0, &generate);
    run(0, &["export", &sea, "-o", &edn]);
    let (one, two) = (scratch.path("one"), scratch.path("two"));
    let model = ["--model", "serializable", "--checker", "list-append"];
    // Chunk by chunk, and from the whole history: the same files.
    run(
        1,
        &[&["check", &sea, "--findings", &one], &model[..]].concat(),
    );
    run(
        1,
        &[&["check", &edn, "--findings", &two], &model[..]].concat(),
    );
    let files = names(&one);
    assert_eq!(files, names(&two));
    for name in &files {
        let read = |folder: &str| fs::read_to_string(Path::new(folder).join(name)).unwrap();
        assert_eq!(read(&one), read(&two), "{name}");
    }
    for expected in ["G-single.txt", "G-single/1.svg", "components/1.svg"] {
        assert!(files.iter().any(|name| name == expected), "{files:?}");
    }
    let story = fs::read_to_string(Path::new(&one).join("G-single.txt")).unwrap();
    assert!(story.contains("G-single #1 (list-append)"), "{story}");
    assert!(story.contains("a contradiction!"), "{story}");
    let picture = fs::read_to_string(Path::new(&one).join("components/1.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("class=\"edge rw\"") && picture.contains(":append"));
    // Nothing is overwritten, and nothing is left where nothing was found.
    error(
        &["check", &sea, "--model", "serializable", "--findings", &one],
        &[&one, "empty folder"],
    );
    let three = scratch.path("three");
    run(
        0,
        &[
            "check",
            &sea,
            "--model",
            "read-committed",
            "--findings",
            &three,
        ],
    );
    assert!(!Path::new(&three).exists());
}
