//! The states are those of a dumb twin; small programs with known mistakes are caught, without them they hold.

use super::*;
use crate::simulated_storage::{FileTree, folder_of};
use seatrial_machine::{Disk, Medium, Rng, Storage};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Only whole and lost operations, all combinations.
const WHOLE: ExplorerLimits = ExplorerLimits {
    combinations_max: 1 << 20,
    singles_max: 4,
    torn_max: 0,
    samples: 0,
};

/// Files and folders of a state.
type State = (BTreeMap<PathBuf, Vec<u8>>, BTreeSet<PathBuf>);

fn state(tree: &FileTree) -> State {
    let files = tree.iter();
    let files = files.map(|(path, bytes)| (path.to_owned(), bytes.to_vec()));
    (
        files.collect(),
        tree.folders().map(Path::to_owned).collect(),
    )
}

/// Is operation `number` covered by a sync before `point`? By the text of the trait, and nothing cleverer.
fn is_durable(operations: &[DiskOperation], number: usize, point: usize) -> bool {
    let later = &operations[number + 1..point];
    let is_synced = |folder: &Path| {
        (later.iter()).any(|it| matches!(it, DiskOperation::SyncFolder { path } if path == folder))
    };
    match &operations[number] {
        DiskOperation::Write { file, .. } | DiskOperation::SetLength { file, .. } => (later.iter())
            .any(|it| matches!(it, DiskOperation::Sync { file: it, .. } if it == file)),
        DiskOperation::Create { path, .. }
        | DiskOperation::Remove { path, .. }
        | DiskOperation::CreateFolder { path } => is_synced(folder_of(path)),
        DiskOperation::Rename { from, .. } => is_synced(folder_of(from)),
        DiskOperation::Sync { .. } | DiskOperation::SyncFolder { .. } => true,
    }
}

/// The disk of the dumb twin: the program run again, with some operations left out.
#[derive(Default)]
struct CrashTwin {
    names: BTreeMap<PathBuf, u64>,
    folders: BTreeSet<PathBuf>,
    /// By file: its bytes, and its length.
    files: BTreeMap<u64, (Vec<u8>, usize)>,
    /// By file: how long it was since it was synced, and how long it is when nothing is lost.
    lengths: BTreeMap<u64, (BTreeSet<usize>, usize)>,
}

impl CrashTwin {
    fn data(&mut self, operation: &DiskOperation, arrived: bool) {
        match operation {
            DiskOperation::Write {
                file,
                offset,
                bytes,
                ..
            } => {
                let (content, length) = self.files.entry(*file).or_default();
                let end = *offset as usize + bytes.len();
                content.resize(content.len().max(end), 0);
                if arrived {
                    content[*offset as usize..end].copy_from_slice(bytes);
                }
                *length = end.max(*length);
                let (all, now) = self.lengths.entry(*file).or_default();
                all.insert(*now);
                *now = end.max(*now);
                all.insert(*now);
            }
            DiskOperation::SetLength { file, length, .. } => {
                if arrived {
                    let (content, now) = self.files.entry(*file).or_default();
                    content.resize(*length as usize, 0);
                    *now = *length as usize;
                }
                let (all, now) = self.lengths.entry(*file).or_default();
                all.insert(*now);
                *now = *length as usize;
                all.insert(*now);
            }
            DiskOperation::Sync { file, .. } => {
                let (all, now) = self.lengths.entry(*file).or_default();
                *all = [*now].into();
            }
            _ => {}
        }
    }

    fn names(&mut self, operation: &DiskOperation) {
        match operation {
            DiskOperation::Create { path, file } => {
                self.names.insert(path.clone(), *file);
            }
            DiskOperation::Remove { path, .. } => {
                self.names.remove(path);
            }
            DiskOperation::CreateFolder { path } => {
                self.folders.insert(path.clone());
            }
            DiskOperation::Rename { from, to, file } => {
                self.names.insert(to.clone(), *file);
                if self.names.get(from) == Some(file) {
                    self.names.remove(from);
                }
            }
            _ => {}
        }
    }

    /// What can be reached, with every length for every file.
    fn states(self) -> Vec<State> {
        let is_there = |path: &Path| {
            let mut above = path.ancestors().skip(1);
            above.all(|it| it.parent().is_none() || self.folders.contains(it))
        };
        let folders = self.folders.iter().filter(|path| is_there(path));
        let mut variants: Vec<State> = vec![(BTreeMap::new(), folders.cloned().collect())];
        for (path, file) in self.names.iter().filter(|(path, _)| is_there(path)) {
            let (content, length) = self.files.get(file).cloned().unwrap_or_default();
            let mut all = self.lengths.get(file).cloned().unwrap_or_default().0;
            all.insert(length);
            let mut next = Vec::new();
            for variant in &variants {
                for &length in &all {
                    let (mut content, mut variant) = (content.clone(), variant.clone());
                    content.resize(length, 0);
                    variant.0.insert(path.clone(), content);
                    next.push(variant);
                }
            }
            variants = next;
        }
        variants
    }
}

/// All possible crash states of a point: every subset of the operations that are not durable, every length.
/// Renames within one folder only.
fn twin(operations: &[DiskOperation], point: usize) -> BTreeSet<State> {
    let open = (0..point).filter(|&number| !is_durable(operations, number, point));
    let open: Vec<usize> = open.collect();
    let mut states = BTreeSet::new();
    for mask in 0..1_u32 << open.len() {
        let mut twin = CrashTwin::default();
        for (number, operation) in operations[..point].iter().enumerate() {
            let bit = open.iter().position(|&it| it == number);
            let arrived = bit.is_none_or(|bit| mask >> bit & 1 == 1);
            twin.data(operation, arrived);
            if arrived {
                twin.names(operation);
            }
        }
        states.extend(twin.states());
    }
    states
}

/// Does a few random things with a few files.
fn scribble(storage: &dyn Storage, rng: &mut Rng) {
    let names = ["a", "b", "d/c", "d/e"].map(Path::new);
    let mut open: Vec<Arc<dyn Medium>> = Vec::new();
    for _ in 0..rng.below(17) {
        let name = *rng.pick(&names);
        let done = match rng.below(10) {
            0 => storage.create_folder(Path::new("d")),
            1 | 2 => storage.create(name).map(|file| open.push(file)),
            3 => {
                let other = names
                    .iter()
                    .find(|it| **it != name && it.parent() == name.parent());
                storage.rename(name, other.unwrap())
            }
            4 => storage.remove(name),
            5 => storage.sync_folder(folder_of(name)),
            _ if open.is_empty() => Ok(()),
            6 => rng.pick(&open).sync(),
            7 => rng.pick(&open).set_len(rng.below(5)),
            _ => {
                let bytes = [rng.below(3) as u8 + 1; 2];
                rng.pick(&open).write_at(rng.below(4), &bytes)
            }
        };
        // Many names are not there; that is no matter.
        let _ = done;
    }
}

#[test]
fn the_states_are_those_of_the_dumb_twin() {
    let (mut compared, mut largest) = (0, 0);
    for seed in 0..800 {
        let recorder = DiskRecorder::<()>::new();
        scribble(&*recorder.storage(), &mut Rng::from_seed(seed));
        let trace = recorder.trace();
        for point in 0..=trace.operations().len() {
            let mut found = BTreeSet::new();
            let explorer = Explorer::new(&trace).limits(WHOLE).points(point..point + 1);
            let report = explorer.explore(|crash| {
                found.insert(state(crash.files()));
                Ok::<(), String>(())
            });
            assert_eq!(report.exhaustive_points, 1);
            let expected = twin(trace.operations(), point);
            assert_eq!(
                found,
                expected,
                "seed {seed}, point {point}: {:#?}",
                trace.operations()
            );
            assert_eq!(report.distinct, expected.len() as u64, "seed {seed}");
            compared += expected.len();
            largest = largest.max(expected.len());
        }
    }
    assert!(compared > 10_000 && largest > 50, "{compared}, {largest}");
}

#[test]
fn without_loss_the_files_are_those_of_the_program() {
    for seed in 1_000..1_100 {
        let recorder = DiskRecorder::<()>::new();
        let storage = recorder.storage();
        scribble(&*storage, &mut Rng::from_seed(seed));
        let trace = recorder.trace();
        let crash = trace.crash(usize::MAX, &Choice::default());
        for folder in ["", "d"].map(Path::new) {
            let [found, expected] = [crash.storage().list(folder), storage.list(folder)];
            assert_eq!(found.ok(), expected.ok(), "seed {seed}");
        }
        for (path, bytes) in crash.files().iter() {
            let file = storage.open(path).unwrap();
            let mut content = vec![0; file.len() as usize];
            file.read_at(0, &mut content).unwrap();
            assert_eq!(content, **bytes, "seed {seed}");
        }
    }
}

#[test]
fn a_torn_write_is_old_new_zero_or_noise_by_sector_or_page() {
    let recorder = DiskRecorder::<()>::over(&{
        let mut tree = FileTree::default();
        tree.insert("log", vec![1; 9_000]);
        tree
    });
    let file = recorder.storage().open_write(Path::new("log")).unwrap();
    file.write_at(700, &[2; 10_000]).unwrap();
    let trace = recorder.trace();
    let mut kinds = BTreeSet::new();
    let mut lengths = BTreeSet::new();
    for seed in 0..20 {
        Explorer::new(&trace)
            .seed(seed)
            .explore(|crash| {
                let bytes = crash.files().get("log").unwrap();
                lengths.insert(bytes.len());
                if !(9_000..=10_700).contains(&bytes.len()) || bytes[..700] != [1; 700] {
                    return Err("what was not written has changed");
                }
                for sector in bytes[700..].chunk_by(|a, b| a == b) {
                    kinds.insert((sector[0].min(3), sector.len() > 512));
                }
                if let Some(Fate::Torn(tear)) = crash.choice.fates.get(&0) {
                    for edge in 701..bytes.len() {
                        let is_inside = !(edge as u64).is_multiple_of(tear.unit.length());
                        let is_end = edge == 9_000;
                        let is_plain = tear.rest == Rest::Old || tear.rest == Rest::Zero;
                        if is_plain && is_inside && !is_end && bytes[edge] != bytes[edge - 1] {
                            return Err("torn inside a unit");
                        }
                    }
                }
                Ok(())
            })
            .assert_holds();
    }
    assert!(lengths.len() > 5, "{lengths:?}");
    for kind in 0..4 {
        assert!(kinds.contains(&(kind, kind < 3)), "{kinds:?}");
    }
}

/// Parts of the program below that may be left out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mistake {
    None,
    NoSync,
    NoSyncOfFolder,
    NoSyncOfUpperFolder,
    NoChecksum,
    AcknowledgedTooEarly,
    RemoveFirst,
}

/// Appends numbers to a log, each with a check byte, and begins a new log by renaming after every fourth.
fn write_log(recorder: &DiskRecorder<u8>, mistake: Mistake) -> io::Result<()> {
    let storage = recorder.storage();
    let [folder, log, new] = ["data", "data/log", "data/new"].map(Path::new);
    storage.create_folder(folder)?;
    if mistake != Mistake::NoSyncOfUpperFolder {
        storage.sync_folder(Path::new(""))?;
    }
    for number in 1..=8_u8 {
        if number % 4 == 1 {
            let file = storage.create(new)?;
            let all: Vec<u8> = (1..number).flat_map(|it| [it, it ^ 0x55]).collect();
            file.write_at(0, &all)?;
            if mistake != Mistake::NoSync {
                file.sync()?;
            }
            if mistake == Mistake::RemoveFirst && number > 1 {
                storage.remove(log)?;
            }
            storage.rename(new, log)?;
            if mistake != Mistake::NoSyncOfFolder {
                storage.sync_folder(folder)?;
            }
        }
        let file = storage.open_write(log)?;
        if mistake == Mistake::AcknowledgedTooEarly {
            recorder.acknowledge(number);
        }
        let offset = file.len();
        file.write_at(offset, &[number, number ^ 0x55])?;
        file.sync()?;
        recorder.acknowledge(number);
    }
    Ok(())
}

fn read_log(storage: &dyn Storage, mistake: Mistake) -> io::Result<Vec<u8>> {
    let file = match storage.open(Path::new("data/log")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    let is_valid = |pair: &&[u8]| pair.len() == 2 && pair[1] == pair[0] ^ 0x55;
    let entries = bytes.chunks(2);
    if mistake == Mistake::NoChecksum {
        return Ok(entries.map(|entry| entry[0]).collect());
    }
    Ok(entries.take_while(is_valid).map(|entry| entry[0]).collect())
}

fn check_log(crash: &CrashState<'_, u8>, mistake: Mistake) -> Result<(), String> {
    let found = read_log(&crash.storage(), mistake).map_err(|error| error.to_string())?;
    let acknowledged = crash.acknowledged().last().copied().unwrap_or(0);
    if found.len() < usize::from(acknowledged) {
        return Err(format!("{found:?} lacks {acknowledged}"));
    }
    let is_right = found
        .iter()
        .zip(1..)
        .all(|(found, number)| *found == number);
    let wrong = || Err(format!("{found:?} was never written"));
    if is_right { Ok(()) } else { wrong() }
}

fn explore_log(mistake: Mistake) -> CrashReport {
    let recorder = DiskRecorder::new();
    write_log(&recorder, mistake).unwrap();
    Explorer::new(&recorder.trace()).explore(|crash| check_log(crash, mistake))
}

#[test]
fn every_mistake_of_a_small_program_is_found_and_named() {
    println!("{}", explore_log(Mistake::None).assert_holds());
    for (mistake, name) in [
        (
            Mistake::NoSync,
            "has to be durable before rename of data/new to data/log (operation 15)",
        ),
        (
            Mistake::NoSyncOfFolder,
            "has to be durable before acknowledgement 0",
        ),
        (
            Mistake::NoSyncOfUpperFolder,
            "create of folder data (operation 0) has to be durable before acknowledgement 0",
        ),
        (
            Mistake::NoChecksum,
            "write of 2 bytes at 0 to data/log (operation 6) is not atomic",
        ),
        (
            Mistake::AcknowledgedTooEarly,
            "acknowledgement 0 was made too early, after sync of folder",
        ),
        (Mistake::RemoveFirst, "a crash between remove of data/log"),
    ] {
        let report = explore_log(mistake);
        println!("{mistake:?}: {report}\n");
        let failure = report.expect_failure();
        let text = failure.vulnerability.to_string();
        assert!(text.contains(name), "{mistake:?}: {text}");
        assert!(failure.choice.weight() <= 1, "{mistake:?}: {failure}");
    }
}

#[test]
fn a_failure_is_replayed_from_its_point_and_choice() {
    let recorder = DiskRecorder::new();
    write_log(&recorder, Mistake::NoSync).unwrap();
    let trace = recorder.trace();
    let explorer = Explorer::new(&trace);
    let failure = explorer
        .explore(|crash| check_log(crash, Mistake::NoSync))
        .expect_failure();
    let again = trace.crash(failure.point, &failure.choice);
    assert_eq!(check_log(&again, Mistake::NoSync), Err(failure.reason));
    let nothing_lost = trace.crash(failure.point, &Choice::default());
    assert_eq!(check_log(&nothing_lost, Mistake::NoSync), Ok(()));
}

#[test]
fn all_vulnerabilities_are_reported_once() {
    let recorder = DiskRecorder::new();
    write_log(&recorder, Mistake::NoSyncOfFolder).unwrap();
    let trace = recorder.trace();
    let (report, found) =
        Explorer::new(&trace).vulnerabilities(100, |crash| check_log(crash, Mistake::None));
    assert_eq!(report.points, trace.operations().len() + 1);
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    let renames = texts
        .iter()
        .filter(|text| text.starts_with("rename of data/new"))
        .count();
    assert!(renames >= 1 && texts.len() >= 2, "{texts:#?}");
    let mut distinct = texts.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), texts.len());
}

#[test]
fn a_recovery_is_interrupted_by_a_second_crash() {
    let recorder = DiskRecorder::new();
    write_log(&recorder, Mistake::None).unwrap();
    let trace = recorder.trace();
    let mut inner = 0;
    let explorer = Explorer::new(&trace).limits(ExplorerLimits::few());
    let report = explorer.explore(|crash| {
        // A recovery that cuts what it does not believe, and says what it found.
        let second = crash.recorder();
        let found = read_log(&*second.storage(), Mistake::None).map_err(|it| it.to_string())?;
        if let Ok(file) = second.storage().open_write(Path::new("data/log")) {
            file.set_len(found.len() as u64 * 2)
                .and_then(|()| file.sync())
                .unwrap();
        }
        second.acknowledge(found.len());
        let report = Explorer::new(&second.trace()).explore(|crash| {
            let again = read_log(&crash.storage(), Mistake::None).map_err(|it| it.to_string())?;
            if again == found {
                Ok(())
            } else {
                Err(format!("{again:?} after {found:?}"))
            }
        });
        inner += report.distinct;
        report
            .failure
            .map_or(Ok(()), |failure| Err(failure.to_string()))
    });
    report.assert_holds();
    assert!(inner > 100, "{inner}");
}

#[test]
fn a_check_that_panics_has_failed() {
    let recorder = DiskRecorder::<()>::new();
    recorder.storage().create(Path::new("a")).unwrap();
    let failure = Explorer::new(&recorder.trace())
        .explore(|crash| {
            assert!(crash.files().get("a").is_none(), "there is an a");
            Ok::<(), String>(())
        })
        .expect_failure();
    assert_eq!(failure.reason, "the check panicked: there is an a");
    assert_eq!(
        failure.vulnerability.to_string(),
        "a crash between create of a (operation 0) and nothing at all is not recovered from"
    );
}

#[test]
fn a_rename_between_folders_may_leave_both_names() {
    let mut tree = FileTree::default();
    tree.insert("d/a", vec![1]);
    tree.insert_folder("e");
    let recorder = DiskRecorder::<()>::over(&tree);
    let storage = recorder.storage();
    let [d, e] = ["d", "e"].map(Path::new);
    storage.rename(&d.join("a"), &e.join("a")).unwrap();
    let states = || {
        let mut found = BTreeSet::new();
        let trace = recorder.trace();
        let end = trace.operations().len();
        Explorer::new(&trace).points(end..end + 1).explore(|crash| {
            found.insert(["d/a", "e/a"].map(|path| crash.files().get(path).is_some()));
            Ok::<(), String>(())
        });
        found.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(states(), [[false, true], [true, false], [true, true]]);
    storage.sync_folder(e).unwrap();
    assert_eq!(states(), [[false, true], [true, true]]);
    storage.sync_folder(d).unwrap();
    assert_eq!(states(), [[false, true]]);
}

#[test]
fn many_operations_are_sampled_and_the_report_says_so() {
    let recorder = DiskRecorder::<()>::new();
    let file = recorder.storage().create(Path::new("a")).unwrap();
    for number in 0..30 {
        file.write_at(number * 600, &[7; 600]).unwrap();
    }
    let trace = recorder.trace();
    let report = Explorer::new(&trace).explore(|_| Ok::<(), String>(()));
    println!("{report}");
    assert!(report.exhaustive_points < 12, "{report}");
    assert!(report.distinct > 2_000, "{report}");
    assert!(report.to_string().contains("sampled at 2"), "{report}");
    // The same seed, the same states.
    let again = Explorer::new(&trace).explore(|_| Ok::<(), String>(()));
    assert_eq!(
        (again.states, again.distinct),
        (report.states, report.distinct)
    );
}

#[test]
fn each_sync_of_a_correct_program_is_needed() {
    let recorder = DiskRecorder::new();
    write_log(&recorder, Mistake::None).unwrap();
    let trace = recorder.trace();
    let mut needed = 0;
    for (number, operation) in trace.operations().iter().enumerate() {
        let is_sync = matches!(
            operation,
            DiskOperation::Sync { .. } | DiskOperation::SyncFolder { .. }
        );
        if !is_sync {
            continue;
        }
        // The first log is renamed when there is nothing in it.
        let without = trace.clone().retain(|it, _| it != number);
        let report = Explorer::new(&without).explore(|crash| check_log(crash, Mistake::None));
        assert_eq!(
            report.failure.is_some(),
            number != 3,
            "{number}, {operation}"
        );
        needed += 1;
    }
    assert_eq!(needed, 13);
}

#[test]
fn a_call_that_comes_too_late_is_found() {
    let recorder = DiskRecorder::new();
    write_log(&recorder, Mistake::None).unwrap();
    let trace = recorder.trace();
    let is_rename = |it: &DiskOperation| matches!(it, DiskOperation::Rename { .. });
    let rename = trace.operations().iter().rposition(is_rename).unwrap();
    // Moves the sync of the bytes past the rename, then the rename past the next write to the file.
    for (range, count) in [(rename - 1..rename, 1), (rename..rename + 2, 2)] {
        let late = trace.clone().delay(range, count);
        assert_eq!(late.operations().len(), trace.operations().len());
        let report = Explorer::new(&late).explore(|crash| check_log(crash, Mistake::None));
        println!("{}", report.expect_failure());
    }
}
