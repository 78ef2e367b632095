//! Loss of power at every point of what a writer does: a recording disk keeps the trace, and every state that a medium may
//! be in after a crash there (`docs/formats/block.md`, "What is assumed of media") is opened.

use super::Codec;
use super::TestFile;
use super::append::{OMITTED, Step};
use super::pack::repack_on;
use super::storage::{Medium, Storage};
use super::tests::{Scratch, ops, small, written};
use super::writer::{HistoryWriter, append_results_on};
use crate::Op;
use crate::chunk::ChunkHeader;
use seatrial_archive::root::{PAGE_LENGTH, Slot};
use seatrial_archive::{FileError, Walker};
use seatrial_machine::{Disk, Rng};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const SECTOR_LENGTH: usize = 512;
const PAGE: usize = 4_096;

/// What a writer asked of the disk, or was told.
#[derive(Clone, Debug)]
enum Event {
    /// A file got its name.
    Create(PathBuf),
    /// Bytes went to a place.
    Write(PathBuf, u64, Vec<u8>),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    SyncFolder,
    /// A call returned: this is durable from here on.
    Promise(Promise),
}

/// What a file must hold.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    operations: u64,
    analyses: u64,
    complete: bool,
    /// The copy has its name.
    named: bool,
}

type Trace = Arc<Mutex<Vec<Event>>>;

/// A file in memory whose changes are recorded.
#[derive(Debug)]
struct Recorded {
    path: PathBuf,
    bytes: Vec<u8>,
    trace: Trace,
}

impl Recorded {
    fn note(&self, event: Event) {
        self.trace.lock().unwrap().push(event);
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
        self.note(Event::Write(
            self.path.clone(),
            offset as u64,
            bytes.to_vec(),
        ));
    }
}

impl Disk for Recorded {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes.read_at(offset, buffer)
    }
}

impl Medium for Recorded {
    fn append(&mut self, blocks: &[u8]) -> Result<(), FileError> {
        self.write(self.bytes.len(), blocks);
        Ok(())
    }

    fn write_slot(&mut self, slot: &Slot) -> Result<(), FileError> {
        self.write(slot.offset as usize, &slot.bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FileError> {
        self.note(Event::Sync(self.path.clone()));
        Ok(())
    }

    /// The trace of a file that is cut begins behind the cut, which is synced.
    fn cut(&mut self, end: u64) -> Result<(), FileError> {
        self.bytes.truncate(end as usize);
        self.trace.lock().unwrap().clear();
        self.note(Event::Create(self.path.clone()));
        let bytes = self.bytes.clone();
        self.note(Event::Write(self.path.clone(), 0, bytes));
        self.sync()
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes recorded files.
struct World(Trace);

impl Storage for World {
    fn create(&self, path: &Path) -> Result<Box<dyn Medium>, FileError> {
        let mut trace = self.0.lock().unwrap();
        // As the real one does.
        trace.extend([Event::Create(path.to_owned()), Event::SyncFolder]);
        Ok(Box::new(Recorded {
            path: path.to_owned(),
            bytes: Vec::new(),
            trace: Arc::clone(&self.0),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        let event = Event::Rename(from.to_owned(), to.to_owned());
        self.0.lock().unwrap().push(event);
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> Result<(), FileError> {
        self.0.lock().unwrap().push(Event::SyncFolder);
        Ok(())
    }

    fn remove(&self, _: &Path) -> Result<(), FileError> {
        Ok(())
    }
}

/// A file while the trace is played.
#[derive(Clone, Debug, Default)]
struct Played {
    durable: Vec<u8>,
    /// Writes since the last sync.
    pending: Vec<(usize, Vec<u8>)>,
}

impl Played {
    fn sync(&mut self) {
        for (offset, bytes) in self.pending.drain(..) {
            put(&mut self.durable, offset, &bytes);
        }
    }

    /// What the medium may hold after a crash. `choice` picks which unsynced writes are lost (its lowest bits) and, if
    /// it is drawn, tears some of the others.
    fn crashed(&self, whole: Option<u64>, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        // Writes may reach the medium in any order, so each has its own fate.
        let favour = rng.below(4);
        for (number, (offset, new)) in self.pending.iter().enumerate() {
            let fate = match whole {
                Some(mask) => 4 * (mask >> number & 1),
                None if rng.below(4) < favour => 4,
                None => rng.below(6),
            };
            match fate {
                0 => {}
                1..=3 => tear(&mut bytes, *offset, new, fate, rng),
                _ => put(&mut bytes, *offset, new),
            }
        }
        // The file's length may have been lost as well.
        if whole.is_none() && rng.chance(0.1) {
            let lost = bytes.len() - self.durable.len().min(bytes.len());
            let cut = rng.index(lost + 1);
            bytes.truncate(bytes.len() - cut);
        }
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    let end = offset + new.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset..end].copy_from_slice(new);
}

/// Writes a part: some sectors, some pages, or a prefix; the rest is old, zero or random.
fn tear(bytes: &mut Vec<u8>, offset: usize, new: &[u8], how: u64, rng: &mut Rng) {
    let end = offset + new.len();
    bytes.resize(bytes.len().max(end), 0);
    let unit = if how == 1 { SECTOR_LENGTH } else { PAGE };
    let rest = rng.below(3);
    let prefix = rng.index(new.len() + 1);
    let mut at = offset;
    while at < end {
        let next = (at / unit * unit + unit).min(end);
        let arrives = if how == 3 {
            at - offset < prefix
        } else {
            rng.chance(0.5)
        };
        let part: Range<usize> = at..next;
        if arrives {
            bytes[part.clone()].copy_from_slice(&new[at - offset..next - offset]);
        } else if rest == 1 {
            bytes[part].fill(0);
        } else if rest == 2 {
            bytes[part].fill_with(|| rng.word() as u8);
        }
        at = next;
    }
}

/// Plays a trace and opens what may be left at each point of it.
struct Explorer<'a> {
    ops: &'a [Op],
    /// Where the file is looked for.
    path: &'a Path,
    /// The points at which the power is lost.
    points: Range<usize>,
    /// States per point.
    samples: u64,
    rng: Rng,
    opened: u64,
}

impl Explorer<'_> {
    fn explore(&mut self, trace: &[Event]) -> Result<(), String> {
        let mut files: BTreeMap<PathBuf, Played> = BTreeMap::new();
        // Renames that are not durable yet.
        let mut renames: Vec<(PathBuf, PathBuf)> = Vec::new();
        let mut promise = Promise::default();
        for (point, event) in trace.iter().enumerate() {
            match event {
                Event::Create(path) => drop(files.insert(path.clone(), Played::default())),
                Event::Write(path, offset, bytes) => {
                    let write = (*offset as usize, bytes.clone());
                    files.get_mut(path).unwrap().pending.push(write);
                }
                Event::Sync(path) => {
                    let file = files.get_mut(path).unwrap();
                    file.sync();
                    promise.operations = promise.operations.max(operations(&file.durable));
                }
                Event::Rename(from, to) => renames.push((from.clone(), to.clone())),
                Event::SyncFolder => {
                    for (from, to) in renames.drain(..) {
                        let file = files.remove(&from).unwrap();
                        files.insert(to, file);
                    }
                }
                Event::Promise(told) => {
                    promise.analyses = promise.analyses.max(told.analyses);
                    promise.operations = promise.operations.max(told.operations);
                    promise.complete |= told.complete;
                    promise.named |= told.named;
                }
            }
            let is_lost_here = self.points.contains(&point);
            let samples = if is_lost_here { self.samples } else { 0 };
            for sample in 0..samples {
                let renamed = sample % 2 == 0;
                let moved = renames.iter().find(|(_, to)| renamed && to == self.path);
                let path = moved.map_or(self.path, |(from, _)| from);
                let Some(file) = files.get(path) else {
                    if promise.named {
                        return Err(format!("event {point}: the copy has lost its name"));
                    }
                    continue;
                };
                let whole = (file.pending.len() < 2).then_some(sample);
                let whole = whole.filter(|&mask| mask >> file.pending.len() == 0);
                let state = file.crashed(whole, &mut self.rng);
                let opened = self.open(state, promise);
                opened.map_err(|reason| format!("event {point}: {reason}"))?;
            }
        }
        Ok(())
    }

    /// Opens a state and holds it to what was promised.
    fn open(&mut self, state: Vec<u8>, promise: Promise) -> Result<(), String> {
        self.opened += 1;
        // Before the first call returned there may be nothing at all.
        let is_begun = promise.operations > 0 || promise.analyses > 0 || promise.named;
        let file = match TestFile::on(Box::new(state), Path::new("crashed")) {
            Ok(file) => file,
            Err(_) if !is_begun => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let history = file.history().map_err(|error| error.to_string())?;
        let found = history.len();
        if (found as u64) < promise.operations {
            return Err(format!("{found} of {} operations", promise.operations));
        }
        if history.ops() != &self.ops[..found] {
            return Err("wrong operations".into());
        }
        if promise.complete && !file.is_complete() {
            return Err("the seal is lost".into());
        }
        if file.is_complete() && found != self.ops.len() {
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
            let payload = super::block::expand(&block.header, block.payload).unwrap();
            let (header, _) = ChunkHeader::read(&payload).unwrap();
            most = header.first_position + u64::from(header.operations);
        }
    }
    most
}

/// The trace of a whole test: operations, flushes, now and then a sync, a seal, results.
fn test(ops: &[Op], seed: u64) -> Vec<Event> {
    let trace = Trace::default();
    let path = Path::new("history.sea");
    let note = |promise| trace.lock().unwrap().push(Event::Promise(promise));
    let world = World(Arc::clone(&trace));
    let mut rng = Rng::from_seed(seed);
    let options = small(Codec::Lz4);
    let mut writer =
        HistoryWriter::create_on(&world, path, &json!({"name": "x"}), options).unwrap();
    for (place, op) in ops.iter().enumerate() {
        writer.push(op).unwrap();
        if rng.chance(0.2) {
            writer.flush().unwrap();
        }
        if rng.chance(0.01) {
            writer.sync().unwrap();
            let operations = place as u64 + 1;
            note(Promise {
                operations,
                ..Promise::default()
            });
        }
    }
    writer.seal().unwrap();
    let operations = ops.len() as u64;
    note(Promise {
        operations,
        complete: true,
        ..Promise::default()
    });
    take(&trace)
}

fn take(trace: &Trace) -> Vec<Event> {
    std::mem::take(&mut *trace.lock().unwrap())
}

/// The trace of two analyses that are appended to these bytes.
fn analyses(bytes: Vec<u8>, complete: bool) -> Vec<Event> {
    let mut all = Vec::new();
    let mut bytes = bytes;
    for number in 1..=2 {
        let trace = Trace::default();
        let path = PathBuf::from("history.sea");
        let recorded = Recorded {
            path,
            bytes: bytes.clone(),
            trace: Arc::clone(&trace),
        };
        append_results_on(Box::new(recorded), &results_of(number)).unwrap();
        let events = take(&trace);
        let mut played = Played::default();
        for event in &events {
            if let Event::Write(_, offset, new) = event {
                played.pending.push((*offset as usize, new.clone()));
            }
        }
        played.sync();
        bytes = played.durable;
        // The second one goes on where the first ended.
        let known = if number == 1 { 0 } else { 3 };
        all.extend(events.into_iter().skip(known));
        let analyses = number;
        all.push(Event::Promise(Promise {
            analyses,
            complete,
            ..Promise::default()
        }));
    }
    all
}

fn explorer(ops: &[Op], seed: u64, samples: u64) -> Explorer<'_> {
    Explorer {
        ops,
        path: Path::new("history.sea"),
        points: 0..usize::MAX,
        samples,
        rng: Rng::from_seed(seed),
        opened: 0,
    }
}

/// All that a test does with its file, under loss of power.
fn explore_test(seed: u64, count: u64, samples: u64) -> Result<u64, String> {
    let ops = ops(seed, count);
    let mut explorer = explorer(&ops, seed, samples);
    explorer.explore(&test(&ops, seed))?;
    Ok(explorer.opened)
}

/// The last steps of a test.
fn explore_seal(seed: u64) -> Result<u64, String> {
    let ops = ops(seed, 40);
    let mut explorer = explorer(&ops, seed, 50);
    let events = test(&ops, seed);
    explorer.points = events.len() - 12..events.len();
    explorer.explore(&events)?;
    Ok(explorer.opened)
}

/// The end of a test of more than 256 chunks: a directory block, a root on the way.
fn explore_long_test() -> Result<u64, String> {
    let ops = ops(6, 7 * 260);
    let mut explorer = explorer(&ops, 6, 20);
    let events = test(&ops, 6);
    let is_slot = |event: &Event| matches!(event, Event::Write(.., bytes) if bytes.len() == 40);
    let mut slots = (0..events.len()).filter(|&point| is_slot(&events[point]));
    // The first one is of the file's creation.
    let slot = slots.nth(1).unwrap();
    explorer.points = slot - 6..slot + 4;
    explorer.explore(&events)?;
    Ok(explorer.opened)
}

/// Analyses of sealed and of crashed files, under loss of power.
fn explore_analyses(seed: u64) -> Result<u64, String> {
    let ops = ops(seed, 120);
    let mut explorer = explorer(&ops, seed, 6);
    // The bytes that are there in the beginning are durable.
    explorer.points.start = 3;
    let events = test(&ops, seed);
    let mut played = Played::default();
    for (point, event) in events.iter().enumerate() {
        match event {
            Event::Write(_, offset, bytes) => {
                played.pending.push((*offset as usize, bytes.clone()));
            }
            Event::Sync(_) => played.sync(),
            _ => {}
        }
        let is_last = point + 1 == events.len();
        if is_last || (point > 12 && point % 9 == 0) {
            let state = played.crashed(None, &mut explorer.rng);
            let file = TestFile::on(Box::new(state.clone()), Path::new("crashed"));
            let complete = file.map_err(|error| error.to_string())?.is_complete();
            explorer.explore(&analyses(state, complete))?;
        }
    }
    Ok(explorer.opened)
}

/// A compact copy that takes its place under loss of power.
fn explore_repack(seed: u64) -> Result<u64, String> {
    let (old, new) = (
        Scratch::new(&format!("power-{seed}")),
        Scratch::new(&format!("power-copy-{seed}")),
    );
    let ops = ops(seed, 7 * 20);
    written(&old.0, &ops, small(Codec::None));
    let trace = Trace::default();
    repack_on(&World(Arc::clone(&trace)), &old.0, &new.0, Codec::Lz4).unwrap();
    let promise = Promise {
        operations: ops.len() as u64,
        complete: true,
        named: true,
        ..Promise::default()
    };
    let mut events = take(&trace);
    events.push(Event::Promise(promise));
    let mut explorer = explorer(&ops, seed, 12);
    explorer.path = &new.0;
    explorer.explore(&events)?;
    Ok(explorer.opened)
}

#[test]
fn after_a_loss_of_power_a_file_opens_with_all_that_was_synced() {
    let mut opened = 0;
    for seed in 0..6 {
        opened += explore_test(seed, 150, 14).unwrap_or_else(|it| panic!("seed {seed}: {it}"));
    }
    opened += explore_long_test().unwrap_or_else(|it| panic!("{it}"));
    assert!(opened > 5_000, "{opened} states");
}

#[test]
fn after_a_loss_of_power_older_results_are_there() {
    let mut opened = 0;
    for seed in 20..25 {
        opened += explore_analyses(seed).unwrap_or_else(|it| panic!("seed {seed}: {it}"));
    }
    assert!(opened > 2_000, "{opened} states");
}

#[test]
fn after_a_loss_of_power_a_copy_is_whole_or_not_there() {
    for seed in 30..34 {
        let opened = explore_repack(seed).unwrap_or_else(|it| panic!("seed {seed}: {it}"));
        assert!(opened > 10, "{opened} states");
    }
}

/// Leaves a step out while `explore` runs.
fn without(step: Step, explore: impl FnOnce() -> Result<u64, String>) -> String {
    OMITTED.set(Some(step));
    let found = explore();
    OMITTED.set(None);
    found.expect_err("a step was left out, and nothing was lost")
}

#[test]
fn steps_that_are_left_out_are_found() {
    let found = without(Step::SyncData, || {
        (0..10).try_fold(0, |_, seed| explore_seal(seed))
    });
    assert!(found.contains("chunk"), "{found}");
    let found = without(Step::SyncRoot, || explore_analyses(20));
    assert!(
        found.contains("root") || found.contains("analyses"),
        "{found}"
    );
    let found = without(Step::SyncFolder, || explore_repack(30));
    assert!(found.contains("lost its name"), "{found}");
    let found = without(Step::FlagOrder, || explore_test(1, 150, 8));
    assert!(found.contains("damage"), "{found}");
}
