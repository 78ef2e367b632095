//! One fault in one block: opening, reading, verifying, writing and truncating an archive succeed or report file and offset
//! of the fault. Durable messages remain.

use crate::model::{Contents, FOLDER, Model, compare, error_text, live, read_all, recover};
use seatrial_archive::{Archive, Durability, RecordingId, VerifyOptions, verify};
use seatrial_machine::Storage;
use seatrial_sim::single_fault::{Access, FaultReport, FaultRun, SingleFaults};
use seatrial_sim::{FileTree, MemoryStorage};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// An archive after all operations, and its model.
fn lived(durability: Durability) -> (FileTree, Model) {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let model = live(&storage, durability, 11, &mut |_| {}).unwrap();
    (memory.files(), model)
}

/// The same after it was opened once more, so that all recordings are stopped.
fn settled() -> FileTree {
    let memory = MemoryStorage::from_files(&lived(Durability::Batch).0);
    Archive::open(Arc::new(memory.clone()), Path::new(FOLDER), 2_000_000).unwrap();
    memory.files()
}

type Found = BTreeMap<RecordingId, Contents>;

fn read(storage: &Arc<dyn Storage>) -> Result<Found, String> {
    let catalog = Archive::view(Arc::clone(storage), Path::new(FOLDER)).map_err(error_text)?;
    read_all(storage, &catalog)
}

fn show(name: &str, report: &FaultReport) {
    println!("{name}: {report}");
    for text in report.examples.values() {
        println!("    {text}");
    }
    println!();
}

/// Rot of the newest event of the catalog cannot be distinguished from an event that never took effect. When only the second
/// read of it meets the rot, a cursor is opened at a position from the first read.
fn lacks_newest_event(run: &FaultRun<'_, Found>) -> bool {
    let is_catalog = run.site.path.ends_with("catalog");
    is_catalog && !run.fault.is_error() && run.site.access == Access::Read
}

#[test]
fn reads_are_right_or_an_error() {
    for lends in [false, true] {
        let faults = SingleFaults::new(settled()).block_length(512);
        let faults = if lends { faults.lending() } else { faults };
        let report = faults.run(
            |storage| read(&storage),
            |run| match &run.answer {
                _ if lacks_newest_event(run) => Ok(()),
                _ => run.is_honest(),
            },
        );
        show(if lends { "lent" } else { "read" }, &report);
        let report = report.assert_holds();
        assert!(report.errors > 50, "{report}");
    }
}

/// Rot in the middle or at the end of a recording: a verification by two threads reports it, or it does no harm.
#[test]
fn verified_files_are_whole_or_reported() {
    let tree = settled();
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::from_files(&tree));
    let ids: Vec<RecordingId> = read(&storage).unwrap().into_keys().collect();
    let faults = SingleFaults::new(tree).block_length(512);
    let options = VerifyOptions {
        threads: 1,
        checksums: true,
    };
    let report = faults.run(
        |storage| {
            let reports =
                verify(&*storage, Path::new(FOLDER), &ids, options, &|_| {}).map_err(error_text)?;
            let damages = reports
                .iter()
                .flat_map(|it| it.damages.iter().chain(&it.torn));
            match damages.map(ToString::to_string).next() {
                Some(damage) => Err(damage),
                None => Ok(reports.iter().map(|it| it.messages).collect::<Vec<u64>>()),
            }
        },
        |run| match &run.answer {
            _ if run.site.path.ends_with("catalog") && !run.fault.is_error() => Ok(()),
            _ => run.is_honest(),
        },
    );
    show("verified", &report);
    report.assert_holds();
}

/// Opens the archive of a killed process with a fault, and then without.
#[test]
fn recovery_is_right_or_an_error_and_stays() {
    for durability in [Durability::None, Durability::Batch] {
        let (tree, model) = lived(durability);
        let report = SingleFaults::new(tree).block_length(512).run(
            |storage| {
                let folder = Path::new(FOLDER);
                let opened = Archive::open(Arc::clone(&storage), folder, 3_000_000);
                let (archive, recovered) = opened.map_err(error_text)?;
                if let Some((_, problem)) = recovered.problems.into_iter().next() {
                    return Err(error_text(problem));
                }
                read_all(&storage, &archive.catalog())
            },
            |run| {
                let is_rot = !run.fault.is_error();
                match &run.answer {
                    // The archive of a killed process ends at the first incomplete block.
                    Ok(found) if is_rot => is_beginning(&model, found)?,
                    Err(text) if is_rot && text.contains("recording") => {}
                    _ => run.is_honest()?,
                }
                if is_rot {
                    return Ok(());
                }
                let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::from_files(&run.files));
                recover(&storage, &model)
            },
        );
        show(&format!("recovered, {durability:?}"), &report);
        report.assert_holds();
    }
}

/// Are these recorded messages without a gap, however few?
fn is_beginning(model: &Model, found: &Found) -> Result<(), String> {
    let mut model = model.clone();
    for expected in model.values_mut() {
        expected.durable = 0;
        expected.may_be_absent = true;
        expected.labels = found.values().map(|it| it.label.clone()).collect();
        expected.firsts = (0..=expected.messages.len() as u64).collect();
    }
    compare(&model, found)
}

/// A whole life with a fault: it ends where a call fails, and messages durable by then are there when it is opened again.
#[test]
fn durable_data_survives_a_failed_call() {
    for durability in [Durability::None, Durability::Batch] {
        let promised = std::cell::RefCell::new(Model::new());
        let report = SingleFaults::new(FileTree::default())
            .block_length(512)
            .run(
                |storage| {
                    let mut on_change = |model: &Model| promised.replace(model.clone()).clear();
                    live(&storage, durability, 12, &mut on_change)
                },
                |run| {
                    if let Err(text) = &run.answer {
                        // A file that was renamed since has another name, and an event that was damaged while it was written to
                        // the catalog shows as an unknown recording.
                        let is_rot = !run.fault.is_error() && text.contains("recording");
                        if !is_rot && !text.contains(FOLDER) {
                            run.is_clear(text)?;
                        }
                    }
                    if !run.fault.is_error() {
                        return Ok(());
                    }
                    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::from_files(&run.files));
                    recover(&storage, &promised.borrow())
                },
            );
        show(&format!("a life, {durability:?}"), &report);
        let report = report.assert_holds();
        assert!(report.errors > 300, "{report}");
    }
}
