//! Loss of power at every point of an archive's life and of its recovery, under each level of durability. Missing, late and
//! wrong calls are planted in the traces and must be found.

use crate::model::{Model, live, live_by_chance, recover};
use seatrial_archive::{Archive, Durability};
use seatrial_farm::{least, seeds};
use seatrial_machine::Storage;
use seatrial_sim::crash::{
    CrashFailure, CrashReport, CrashState, DiskOperation, DiskRecorder, DiskTrace, Explorer,
    ExplorerLimits,
};
use std::path::Path;
use std::sync::Arc;

const LEVELS: [Durability; 3] = [
    Durability::None,
    Durability::Group {
        milliseconds: 1,
        bytes: 700,
    },
    Durability::Batch,
];

const LIMITS: ExplorerLimits = ExplorerLimits {
    combinations_max: 256,
    singles_max: 6,
    torn_max: 2,
    samples: 24,
};

/// The trace of a life.
fn trace(durability: Durability, seed: u64) -> DiskTrace<Model> {
    let recorder = DiskRecorder::new();
    let mut on_change = |model: &Model| recorder.acknowledge(model.clone());
    live(&recorder.storage(), durability, seed, &mut on_change).unwrap();
    recorder.trace()
}

/// Number of compactions of a catalog.
fn compactions(trace: &DiskTrace<Model>) -> usize {
    let is_one = |it: &&DiskOperation| matches!(it, DiskOperation::Rename { to, .. } if is_file(to, "catalog"));
    trace.operations().iter().filter(is_one).count()
}

fn check(crash: &CrashState<'_, Model>) -> Result<(), String> {
    let storage: Arc<dyn Storage> = Arc::new(crash.storage());
    let empty = Model::new();
    recover(&storage, crash.acknowledged().last().unwrap_or(&empty))
}

fn explore(trace: &DiskTrace<Model>) -> CrashReport {
    Explorer::new(trace).limits(LIMITS).explore(check)
}

/// At each level of durability, side by side.
#[test]
fn an_archive_survives_every_loss_of_power() {
    std::thread::scope(|scope| {
        for durability in LEVELS {
            scope.spawn(move || it_survives_at(durability));
        }
    });
}

fn it_survives_at(durability: Durability) {
    let mut total: Option<CrashReport> = None;
    for seed in 0..seeds(4) {
        let trace = trace(durability, seed);
        // One was explicit.
        assert!(compactions(&trace) >= 2, "{}", compactions(&trace));
        let report = explore(&trace).assert_holds();
        match &mut total {
            Some(total) => total.add(report),
            None => total = Some(report),
        }
    }
    let total = total.unwrap();
    println!("{durability:?}: {total}");
    assert!(total.distinct > least(1_500), "{total}");
}

#[test]
fn lives_of_chance_survive_every_loss_of_power() {
    let (mut total, mut compacted): (Option<CrashReport>, _) = (None, 0);
    let limits = ExplorerLimits {
        combinations_max: 32,
        singles_max: 3,
        torn_max: 1,
        samples: 6,
    };
    for seed in 0..seeds(30) {
        let recorder = DiskRecorder::new();
        let mut on_change = |model: &Model| recorder.acknowledge(model.clone());
        let durability = LEVELS[seed as usize % 3];
        let lived = live_by_chance(&recorder.storage(), durability, seed, 40, &mut on_change);
        lived.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let trace = recorder.trace();
        compacted += compactions(&trace);
        let report = Explorer::new(&trace)
            .limits(limits)
            .seed(seed)
            .explore(check);
        assert!(report.failure.is_none(), "seed {seed}: {report}");
        match &mut total {
            Some(total) => total.add(report),
            None => total = Some(report),
        }
    }
    let total = total.unwrap();
    println!("by chance: {total}; {compacted} compactions");
    assert!(compacted as u64 > least(30), "{compacted}");
    assert!(total.distinct > least(8_000), "{total}");
}

#[test]
fn a_recovery_that_is_interrupted_is_done_again() {
    let trace = trace(Durability::None, 7);
    let (mut inner, mut turn) = (Vec::new(), 0);
    let limits = ExplorerLimits {
        combinations_max: 8,
        singles_max: 2,
        torn_max: 1,
        samples: 2,
    };
    let report = Explorer::new(&trace).limits(limits).explore(|crash| {
        turn += 1;
        if turn % 5 != 0 {
            return Ok(());
        }
        let second: DiskRecorder<Model> = crash.recorder();
        let model = crash.acknowledged().last().cloned().unwrap_or_default();
        second.acknowledge(model);
        let opened = Archive::open(second.storage(), Path::new(crate::model::FOLDER), 1_000);
        drop(opened.map_err(|error| error.to_string())?);
        let report = Explorer::new(&second.trace()).limits(limits).explore(check);
        let failure = report.failure.clone();
        inner.push(report);
        failure.map_or(Ok(()), |failure| Err(format!("a second crash: {failure}")))
    });
    println!("recovered: {report}");
    report.assert_holds();
    let [points, distinct] = [
        inner.iter().map(|it| it.points as u64).sum::<u64>(),
        inner.iter().map(|it| it.distinct).sum(),
    ];
    println!(
        "interrupted: {} recoveries, {points} points, {distinct} states",
        inner.len()
    );
    assert!(distinct > 1_000, "{distinct}");
}

fn is_sync(operation: &DiskOperation) -> bool {
    matches!(
        operation,
        DiskOperation::Sync { .. } | DiskOperation::SyncFolder { .. }
    )
}

/// The syncs of the trace whose absence does no harm, each left out in turn.
#[test]
fn a_missing_sync_is_found_wherever_it_is() {
    let trace = trace(Durability::Batch, 2);
    let limits = ExplorerLimits {
        combinations_max: 16,
        singles_max: 4,
        torn_max: 1,
        samples: 2,
    };
    let (mut found, mut idle) = (0, Vec::new());
    for (number, operation) in trace.operations().iter().enumerate() {
        if !is_sync(operation) {
            continue;
        }
        // Its purpose shows before the next syncs of the same file compensate for it.
        let points = number..(number + 12).min(trace.operations().len());
        let without = trace.clone().retain(|it, _| it != number);
        let report = Explorer::new(&without)
            .limits(limits)
            .points(points)
            .explore(check);
        match report.failure {
            Some(_) => found += 1,
            None => idle.push(format!("{number}: {operation}")),
        }
    }
    println!("{found} syncs are needed; without these nothing is lost: {idle:#?}");
    assert!(found > 20, "{found}");
}

/// The failure that is found in a trace with a bug.
fn planted(name: &str, trace: &DiskTrace<Model>) -> CrashFailure {
    let report = explore(trace);
    println!("{name}: {report}\n");
    report.expect_failure()
}

fn is_file(path: &Path, end: &str) -> bool {
    path.to_string_lossy().ends_with(end)
}

#[test]
fn planted_bugs_are_found() {
    let trace = trace(Durability::Batch, 3);
    let no_sync_of = |end: &'static str| {
        trace
            .clone()
            .retain(|_, it| !matches!(it, DiskOperation::Sync { path, .. } if is_file(path, end)))
    };
    planted("no sync of segments", &no_sync_of(".segment"));
    planted(
        "no sync of a shortened copy before its rename",
        &no_sync_of(".segment.new"),
    );
    planted("no sync of the catalog", &no_sync_of("catalog"));
    planted(
        "no sync of a compacted catalog before its rename",
        &no_sync_of("catalog.new"),
    );
    let folders = trace
        .clone()
        .retain(|_, it| !matches!(it, DiskOperation::SyncFolder { .. }));
    planted("no sync of folders", &folders);
    // Where a file was created, renamed or removed.
    let place =
        |is: &dyn Fn(&DiskOperation) -> bool| trace.operations().iter().position(is).unwrap();
    let is_new = |path: &Path| is_file(path, "catalog.new");
    let sync = place(&|it| matches!(it, DiskOperation::Sync { path, .. } if is_new(path)));
    let late = place(&|it| matches!(it, DiskOperation::Rename { from, .. } if is_new(from)));
    planted(
        "a rename before the sync of the bytes",
        &trace.clone().delay(sync..sync + 1, late - sync),
    );
}

#[test]
fn an_event_that_is_written_after_its_files_are_changed_is_found() {
    let trace = trace(Durability::Batch, 4);
    // A truncation, a purge and a deletion change or remove files; the event before is one write and one sync,
    // and the write of its mark.
    let all = trace.operations();
    let is_event = |it: usize| {
        let write =
            matches!(&all[it], DiskOperation::Write { path, .. } if is_file(path, "catalog"));
        let sync =
            matches!(&all[it + 1], DiskOperation::Sync { path, .. } if is_file(path, "catalog"));
        write && sync
    };
    // A durable mark has no effect on a stopped recording.
    let changes = |it: usize| match &all[it] {
        DiskOperation::Remove { path, .. } => !is_file(path, ".mark"),
        DiskOperation::Rename { .. } => true,
        _ => false,
    };
    let mut found = 0;
    for event in (0..all.len() - 4).filter(|&it| is_event(it) && changes(it + 3)) {
        let count = (event + 3..all.len()).take_while(|&it| changes(it) || is_folder(&all[it]));
        let late = trace.clone().delay(event..event + 3, count.count());
        planted(&format!("event {event} after {}", all[event + 3]), &late);
        found += 1;
    }
    assert!(found >= 1, "{found}");
}

fn is_folder(operation: &DiskOperation) -> bool {
    matches!(operation, DiskOperation::SyncFolder { .. })
}

#[test]
fn a_checksum_over_too_little_is_found() {
    // A part of a torn write is accepted when no checksum covers it: flip uncovered bytes after the block was made, as a torn
    // sector would.
    let trace = trace(Durability::None, 5);
    let explorer = Explorer::new(&trace).limits(LIMITS);
    let mut torn = 0;
    let report = explorer.explore(|crash| {
        let mut files = crash.files().clone();
        let segment = files
            .iter()
            .find(|(path, bytes)| is_file(path, ".segment") && bytes.len() > 300);
        let Some((path, bytes)) = segment.map(|(path, bytes)| (path.to_owned(), bytes.to_vec()))
        else {
            return Ok(());
        };
        // The recovery accepts a header whose payload is not covered: give it one.
        let mut bytes = bytes;
        let offset = 72;
        bytes[offset + 64] ^= 1;
        let sum =
            seatrial_blocks::crc32c(&bytes[offset + 32..offset + 32 + payload(&bytes, offset)]);
        bytes[offset + 24..offset + 28].copy_from_slice(&sum.to_le_bytes());
        let header = seatrial_blocks::crc32c(&bytes[offset..offset + 28]);
        bytes[offset + 28..offset + 32].copy_from_slice(&header.to_le_bytes());
        files.insert(&path, bytes);
        torn += 1;
        let storage: Arc<dyn Storage> = Arc::new(seatrial_sim::MemoryStorage::from_files(&files));
        recover(
            &storage,
            crash.acknowledged().last().unwrap_or(&Model::new()),
        )
    });
    let failure = report.expect_failure();
    println!("{failure}");
    assert!(torn > 0);
}

/// The payload length of the block at `offset`.
fn payload(bytes: &[u8], offset: usize) -> usize {
    let length = bytes[offset + 8..offset + 12].try_into().unwrap();
    u32::from_le_bytes(length) as usize
}
