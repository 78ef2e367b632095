//! One fault in one block: a test file that is read, written, continued or copied gives what it holds, or an error that says
//! in which file and where. What a writer reported as durable stays durable when a later call fails.

use super::pack::repack_on;
use super::tests::{ops, small};
use super::writer::append_results_on;
use super::{Codec, FileTail, HistoryWriter, TestFile};
use crate::Op;
use seatrial_machine::Storage;
use seatrial_sim::single_fault::{Access, FaultReport, FaultRun, SingleFaults};
use seatrial_sim::{FileTree, MemoryStorage};
use serde_json::{Value as Json, json};
use std::error::Error;
use std::path::Path;

const FILE: &str = "history.sea";

/// An error with its causes.
fn text(error: impl Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[derive(Debug, PartialEq)]
struct Contents {
    ops: Vec<Op>,
    attributes: Json,
    results: Option<Json>,
    complete: bool,
    is_torn: bool,
}

fn read(storage: &dyn Storage) -> Result<Contents, String> {
    let file = TestFile::open_on(storage, Path::new(FILE)).map_err(text)?;
    Ok(Contents {
        ops: file.history().map_err(text)?.ops().to_vec(),
        attributes: file.attributes().map_err(text)?,
        results: file.results().map_err(text)?,
        complete: file.is_complete(),
        is_torn: matches!(file.tail(), Some(FileTail::Torn(_))),
    })
}

fn write(storage: &dyn Storage, ops: &[Op], synced: &mut usize) -> Result<(), String> {
    let (path, attributes) = (Path::new(FILE), json!({"name": "x".repeat(600)}));
    let options = small(Codec::None);
    let mut writer = HistoryWriter::create_on(storage, path, &attributes, options).map_err(text)?;
    for (place, op) in ops.iter().enumerate() {
        writer.push(op).map_err(text)?;
        if place % 16 == 3 {
            writer.sync().map_err(text)?;
            *synced = place + 1;
        }
    }
    writer.seal().map_err(text)?;
    *synced = ops.len();
    Ok(())
}

fn results() -> Json {
    json!({"valid": true, "text": "because ".repeat(200)})
}

/// A sealed file with results.
fn sealed(ops: &[Op]) -> FileTree {
    let storage = MemoryStorage::new();
    write(&storage, ops, &mut 0).unwrap();
    append_results_on(&storage, Path::new(FILE), &results()).unwrap();
    storage.files()
}

/// A correct answer, or the beginning of the history and a missing end (damage that is indistinguishable from a write that was
/// interrupted).
fn is_right_so_far(run: &FaultRun<'_, Contents>) -> Result<(), String> {
    match &run.answer {
        Ok(found) if is_cut(found) && run.expected.ops.starts_with(&found.ops) => Ok(()),
        Err(text) if !run.fault.is_error() => says_where(text),
        _ => run.is_honest(),
    }
}

/// Does the file say that its end is missing?
fn is_cut(found: &Contents) -> bool {
    found.is_torn || !found.complete
}

/// Damage on the way into a file is reported by the reader, which may know the file by another name.
fn says_where(text: &str) -> Result<(), String> {
    let is_clear = text.contains(FILE) && text.contains(|it: char| it.is_ascii_digit());
    if is_clear {
        Ok(())
    } else {
        Err(format!("the error does not say where: {text}"))
    }
}

fn show(name: &str, report: FaultReport) -> FaultReport {
    let report = report.assert_holds();
    println!("{name}: {report}");
    report
}

#[test]
fn reads_are_right_or_an_error() {
    let ops = ops(70, 60);
    let faults = SingleFaults::new(sealed(&ops)).block_length(512);
    let report = show(
        "reading",
        faults.run(|storage| read(&*storage), is_right_so_far),
    );
    assert!(report.errors > 50, "{report}");
    for text in report.examples.values() {
        println!("  {text}");
    }
}

#[test]
fn synced_operations_survive_a_failed_write() {
    let ops = ops(71, 60);
    let faults = SingleFaults::new(FileTree::default()).block_length(512);
    // The answer is what a reader without faults finds after the writer has ended or given up.
    let report = faults.run(
        |storage| {
            let mut synced = 0;
            let written = write(&*storage, &ops, &mut synced);
            Ok((written, synced))
        },
        |run| {
            let Ok((written, synced)) = &run.answer else {
                return run.is_honest();
            };
            if let Err(text) = written {
                run.is_clear(text)?;
            }
            let is_silent = !run.fault.is_error();
            let after = read(&MemoryStorage::from_files(&run.files));
            match after {
                Ok(found) if !ops.starts_with(&found.ops) => Err("other operations".into()),
                Ok(found) if found.ops.len() >= *synced => Ok(()),
                // Damage on the way into the file is reported as the error that it looks like.
                Ok(found) if is_silent && is_cut(&found) => Ok(()),
                Err(_) if *synced == 0 => Ok(()),
                Err(text) if is_silent => says_where(&text),
                other => Err(format!(
                    "{synced} operations were synced, there is {other:?}"
                )),
            }
        },
    );
    let report = show("writing", report);
    let key = |access| report.examples.keys().any(|it| it.0 == access);
    assert!(report.runs > 100 && !key(Access::Read), "{report}");
}

#[test]
fn results_are_appended_or_an_error_and_the_history_stays() {
    let ops = ops(72, 60);
    let faults = SingleFaults::new(sealed(&ops)).block_length(512);
    let report = faults.run(
        |storage| {
            append_results_on(&*storage, Path::new(FILE), &results()).map_err(text)?;
            read(&*storage)
        },
        |run| {
            is_right_so_far(run)?;
            match read(&MemoryStorage::from_files(&run.files)) {
                Ok(found) if found.ops == ops => Ok(()),
                Ok(found) if is_cut(&found) && ops.starts_with(&found.ops) => Ok(()),
                Err(text) if !run.fault.is_error() => says_where(&text),
                other => Err(format!("the history is now {other:?}")),
            }
        },
    );
    show("appending results", report);
}

#[test]
fn a_copy_is_right_or_an_error_and_the_file_stays() {
    let ops = ops(73, 60);
    let faults = SingleFaults::new(sealed(&ops)).block_length(512);
    let path = Path::new(FILE);
    let report = faults.run(
        |storage| {
            repack_on(&*storage, path, path, Codec::None).map_err(text)?;
            read(&*storage)
        },
        |run| {
            is_right_so_far(run)?;
            match read(&MemoryStorage::from_files(&run.files)) {
                Ok(found) if found.ops == ops && found.results == Some(results()) => Ok(()),
                Ok(found) if is_cut(&found) && ops.starts_with(&found.ops) => Ok(()),
                Err(text) if !run.fault.is_error() => says_where(&text),
                other => Err(format!("the file is now {other:?}")),
            }
        },
    );
    show("repacking", report);
}
