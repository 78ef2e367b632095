//! Loss of power at every point of the trace of a writer: every state that a medium may be in after a crash there
//! (`docs/formats/block.md`, "Assumptions about media") is opened.

use super::Codec;
use super::TestFile;
use super::pack::repack_on;
use super::tests::{ops, small};
use super::torn_tail::repair_on;
use super::writer::{HistoryWriter, append_results_on};
use crate::Op;
use crate::chunk::ChunkHeader;
use seatrial_blocks::block::{HEADER_LENGTH, flags};
use seatrial_blocks::root::PAGE_LENGTH;
use seatrial_blocks::{Walker, crc32c};
use seatrial_machine::Rng;
use seatrial_sim::FileTree;
use seatrial_sim::crash::{
    Choice, CrashFailure, CrashReport, CrashState, DiskOperation, DiskRecorder, DiskTrace,
    Explorer, ExplorerLimits,
};
use serde_json::json;
use std::path::Path;

const FILE: &str = "history.sea";
const COPY: &str = "copy.sea";

/// What a file must hold.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    operations: u64,
    analyses: u64,
    complete: bool,
    /// The copy has its name.
    named: bool,
}

/// Everything that was promised, together.
fn sum(promises: &[Promise]) -> Promise {
    let mut sum = Promise::default();
    for promise in promises {
        sum.operations = sum.operations.max(promise.operations);
        sum.analyses = sum.analyses.max(promise.analyses);
        sum.complete |= promise.complete;
        sum.named |= promise.named;
    }
    sum
}

/// Opens what a crash left and holds it to what was promised.
fn check(crash: &CrashState<'_, Promise>, path: &str, ops: &[Op]) -> Result<(), String> {
    hold(crash.files(), path, sum(crash.acknowledged()), ops)
}

fn hold(files: &FileTree, path: &str, promise: Promise, ops: &[Op]) -> Result<(), String> {
    // Before the first call returned there may be nothing at all.
    let is_begun = promise.operations > 0 || promise.analyses > 0 || promise.named;
    let Some(bytes) = files.get(path) else {
        return if is_begun {
            Err(format!("{path} has lost its name"))
        } else {
            Ok(())
        };
    };
    let file = match TestFile::on(Box::new(bytes.to_vec()), Path::new("crashed")) {
        Ok(file) => file,
        Err(_) if !is_begun => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let history = file.history().map_err(|error| error.to_string())?;
    let found = history.len();
    if (found as u64) < promise.operations {
        return Err(format!("{found} of {} operations", promise.operations));
    }
    if history.ops() != &ops[..found] {
        return Err("wrong operations".into());
    }
    if promise.complete && !file.is_complete() {
        return Err("the seal is lost".into());
    }
    if file.is_complete() && found != ops.len() {
        return Err("sealed without all operations".into());
    }
    if file.analyses() < promise.analyses {
        let found = file.analyses();
        return Err(format!("{found} of {} analyses", promise.analyses));
    }
    for number in 1..=file.analyses() {
        let results = file.results_of(number).map_err(|error| error.to_string())?;
        if results != Some(results_of(number)) {
            return Err(format!("results of analysis {number} are {results:?}"));
        }
    }
    Ok(())
}

fn results_of(number: u64) -> serde_json::Value {
    json!({"valid": number.is_multiple_of(2), "text": "why ".repeat(300), "number": number})
}

/// Operations in the whole blocks of a file.
fn operations(bytes: &[u8]) -> u64 {
    let mut most = 0;
    if bytes.len() < PAGE_LENGTH {
        return 0;
    }
    let mut walker = Walker::new(&bytes, PAGE_LENGTH as u64);
    while let Ok(Some(block)) = walker.next_block() {
        if matches!(block.header.kind.0, 17 | 18) {
            let payload = seatrial_blocks::codec::expand(&block.header, block.payload).unwrap();
            let (header, _) = ChunkHeader::read(&payload).unwrap();
            most = header.first_position + u64::from(header.operations);
        }
    }
    most
}

/// The trace of a whole test: operations, flushes, now and then a sync, a seal. What was in the file at any sync, asked for or
/// not, is promised from there on.
fn test(ops: &[Op], seed: u64) -> DiskTrace<Promise> {
    let recorder = DiskRecorder::new();
    let storage = recorder.storage();
    let mut rng = Rng::from_seed(seed);
    let (attributes, options) = (json!({"name": "x"}), small(Codec::Lz4));
    let path = Path::new(FILE);
    let mut writer = HistoryWriter::create_on(&*storage, path, &attributes, options).unwrap();
    for (place, op) in ops.iter().enumerate() {
        writer.push(op).unwrap();
        if rng.chance(0.2) {
            writer.flush().unwrap();
        }
        if rng.chance(0.01) {
            writer.sync().unwrap();
            let operations = place as u64 + 1;
            recorder.acknowledge(Promise {
                operations,
                ..Promise::default()
            });
        }
    }
    writer.seal().unwrap();
    let operations = ops.len() as u64;
    recorder.acknowledge(Promise {
        operations,
        complete: true,
        ..Promise::default()
    });
    let mut trace = recorder.trace();
    for point in 1..=trace.operations().len() {
        if matches!(trace.operations()[point - 1], DiskOperation::Sync { .. }) {
            promise_all(&mut trace, point);
        }
    }
    trace
}

/// Promises the operations that are in the file at a point.
fn promise_all(trace: &mut DiskTrace<Promise>, point: usize) {
    let crash = trace.crash(point, &Choice::default());
    let operations = operations(crash.files().get(FILE).unwrap_or_default());
    trace.acknowledge(
        point,
        Promise {
            operations,
            ..Promise::default()
        },
    );
}

/// Two analyses that are appended to what a crash left, each under loss of power.
fn explore_analyses_of<P>(crash: &CrashState<'_, P>, ops: &[Op]) -> CrashReport {
    let bytes = crash.files().get(FILE).unwrap().to_vec();
    let file = TestFile::on(Box::new(bytes), Path::new("crashed")).unwrap();
    let complete = file.is_complete();
    let recorder = crash.recorder();
    repair_on(&*recorder.storage(), Path::new(FILE)).unwrap();
    for analyses in 1..=2 {
        append_results_on(&*recorder.storage(), Path::new(FILE), &results_of(analyses)).unwrap();
        recorder.acknowledge(Promise {
            analyses,
            complete,
            ..Promise::default()
        });
    }
    explore(&recorder.trace(), ops, FILE)
}

/// States per point: each costs a history.
const LIMITS: ExplorerLimits = ExplorerLimits {
    combinations_max: 16,
    singles_max: 2,
    torn_max: 1,
    samples: 8,
};

fn explore(trace: &DiskTrace<Promise>, ops: &[Op], path: &str) -> CrashReport {
    let explorer = Explorer::new(trace).limits(LIMITS);
    explorer.explore(|crash| check(crash, path, ops))
}

/// Analyses of sealed and of crashed files, under loss of power.
fn explore_analyses(seed: u64) -> CrashReport {
    let ops = ops(seed, 120);
    let trace = test(&ops, seed);
    let end = trace.operations().len();
    let mut total: Option<CrashReport> = None;
    for point in (21..end).step_by(9).chain([end]) {
        // A state of this point, another for each.
        let mut number = 0;
        let explorer = Explorer::new(&trace).limits(LIMITS).seed(seed);
        explorer.points(point..point + 1).explore(|crash| {
            number += 1;
            if number % 8 == point % 8 {
                let report = explore_analyses_of(crash, &ops);
                match &mut total {
                    Some(total) => total.add(report),
                    None => total = Some(report),
                }
            }
            Ok::<(), String>(())
        });
    }
    total.expect("some points")
}

/// The storage with a sealed test file of these operations.
fn sealed(ops: &[Op]) -> FileTree {
    let recorder = DiskRecorder::<()>::new();
    let (storage, path) = (recorder.storage(), Path::new(FILE));
    let options = small(Codec::None);
    let mut writer = HistoryWriter::create_on(&*storage, path, &json!({}), options).unwrap();
    for op in ops {
        writer.push(op).unwrap();
    }
    writer.seal().unwrap();
    recorder
        .trace()
        .crash(usize::MAX, &Choice::default())
        .files()
        .clone()
}

/// A compact copy that takes its name, which may be that of the file itself.
fn repacked(seed: u64, name: &str) -> (Vec<Op>, DiskTrace<Promise>) {
    let ops = ops(seed, 7 * 20);
    let recorder = DiskRecorder::over(&sealed(&ops));
    let storage = recorder.storage();
    repack_on(&*storage, Path::new(FILE), Path::new(name), Codec::Lz4).unwrap();
    recorder.acknowledge(Promise {
        operations: ops.len() as u64,
        complete: true,
        named: true,
        ..Promise::default()
    });
    (ops, recorder.trace())
}

/// The copy is there if that was promised, and the old file or all of the copy is there in any case.
fn explore_copy(trace: &DiskTrace<Promise>, ops: &[Op], name: &str) -> CrashReport {
    Explorer::new(trace).limits(LIMITS).explore(|crash| {
        check(crash, name, ops)?;
        let old = Promise {
            operations: ops.len() as u64,
            complete: true,
            ..Promise::default()
        };
        hold(crash.files(), FILE, old, ops)
    })
}

#[test]
fn after_a_loss_of_power_a_file_opens_with_all_that_was_synced() {
    let mut states = 0;
    for seed in 0..6 {
        let ops = ops(seed, 150);
        let report = explore(&test(&ops, seed), &ops, FILE).assert_holds();
        println!("a test, seed {seed}: {report}");
        states += report.distinct;
    }
    assert!(states > 5_000, "{states} states");
}

#[test]
fn after_a_loss_of_power_a_long_file_opens_with_all_that_was_synced() {
    // More than 256 chunks: a directory block, a root on the way.
    let ops = ops(6, 7 * 260);
    let trace = test(&ops, 6);
    let is_slot =
        |it: &DiskOperation| matches!(it, DiskOperation::Write { bytes, .. } if bytes.len() == 40);
    let mut slots = (0..trace.operations().len()).filter(|&it| is_slot(&trace.operations()[it]));
    // The first one is of the file's creation.
    let slot = slots.nth(1).unwrap();
    let explorer = Explorer::new(&trace).points(slot - 6..slot + 4);
    let report = explorer
        .limits(LIMITS)
        .explore(|crash| check(crash, FILE, &ops));
    println!("a long test: {}", report.assert_holds());
}

#[test]
fn after_a_loss_of_power_older_results_are_there() {
    let mut states = 0;
    for seed in 20..25 {
        let report = explore_analyses(seed).assert_holds();
        println!("analyses, seed {seed}: {report}");
        states += report.distinct;
    }
    assert!(states > 2_000, "{states} states");
}

#[test]
fn after_a_loss_of_power_a_copy_is_whole_or_not_there() {
    for (seed, name) in [(30, COPY), (31, COPY), (32, FILE), (33, FILE)] {
        let (ops, trace) = repacked(seed, name);
        let report = explore_copy(&trace, &ops, name).assert_holds();
        println!("a copy as {name}: {report}");
        assert!(report.distinct > 50, "{report}");
    }
}

fn is_sync(operation: &DiskOperation) -> bool {
    matches!(operation, DiskOperation::Sync { .. })
}

/// The failure that is found when the syncs that `omits` says are left out of a test.
fn without(omits: impl Fn(&[DiskOperation], usize) -> bool) -> CrashFailure {
    let seeds = (0..10).map(|seed| {
        let ops = ops(seed, 40);
        let trace = test(&ops, seed);
        let all = trace.operations().to_vec();
        let trace = trace.retain(|number, _| !omits(&all, number));
        explore(&trace, &ops, FILE)
    });
    let mut found = seeds.filter_map(|report| report.failure);
    found
        .next()
        .expect("a sync was left out, and nothing was lost")
}

#[test]
fn a_missing_sync_is_found() {
    // Of what a root names, which is before the root.
    let is_root = |it: &DiskOperation| match it {
        DiskOperation::Write { bytes, .. } => bytes.len() > 6 && bytes[4..6] == [1, 0],
        _ => false,
    };
    let data = without(|all, it| is_sync(&all[it]) && all.get(it + 1).is_some_and(is_root));
    println!("{data}\n");
    // Of the root, before the slot that names it.
    let root = without(|all, it| is_sync(&all[it]) && it > 0 && is_root(&all[it - 1]));
    println!("{root}\n");
    assert!(
        root.vulnerability
            .to_string()
            .contains("has to be durable before")
    );
    // Of the folder, after the file was created.
    let folder = without(|all, it| matches!(all[it], DiskOperation::SyncFolder { .. }));
    println!("{folder}\n");
    assert!(
        folder
            .vulnerability
            .to_string()
            .starts_with("create of history.sea")
    );
}

#[test]
fn a_missing_sync_of_the_folder_of_a_copy_is_found() {
    let (ops, trace) = repacked(30, COPY);
    let mut folders = 0;
    let trace = trace.retain(|_, it| {
        folders += u32::from(matches!(it, DiskOperation::SyncFolder { .. }));
        !matches!(it, DiskOperation::SyncFolder { .. }) || folders < 2
    });
    let failure = explore(&trace, &ops, COPY).expect_failure();
    println!("{failure}");
    assert!(failure.reason.contains("lost its name"));
}

#[test]
fn a_copy_that_is_renamed_before_it_is_synced_is_found() {
    let (ops, trace) = repacked(32, FILE);
    let rename = trace.operations().iter();
    let rename = rename
        .clone()
        .position(|it| matches!(it, DiskOperation::Rename { .. }))
        .unwrap();
    let trace = trace.retain(|number, it| !is_sync(it) || number > rename);
    let failure = explore_copy(&trace, &ops, FILE).expect_failure();
    println!("{failure}");
    let text = failure.vulnerability.to_string();
    assert!(
        text.ends_with(&format!(
            "rename of history.sea.partial to history.sea (operation {})",
            failure.point - 1
        )),
        "{text}"
    );
}

#[test]
fn blocks_with_a_wrong_sync_mark_are_found() {
    let ops = ops(1, 150);
    let trace = test(&ops, 1).change(|_, operation| {
        if let DiskOperation::Write { bytes, .. } = operation
            && bytes.len() >= HEADER_LENGTH
            && bytes[..3] == [0x5e, 0xa1, 0xb1]
        {
            let mut changed = bytes.to_vec();
            changed[6] &= !(flags::UNORDERED as u8);
            let sum = crc32c(&changed[..28]);
            changed[28..32].copy_from_slice(&sum.to_le_bytes());
            *bytes = changed.into();
        }
    });
    let failure = explore(&trace, &ops, FILE).expect_failure();
    println!("{failure}");
    assert!(failure.reason.contains("damage"), "{failure}");
    let text = failure.vulnerability.to_string();
    assert!(
        text.contains(" has to be durable before write of "),
        "{text}"
    );
}
