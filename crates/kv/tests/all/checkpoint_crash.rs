//! A replica that is alone, with checkpoints every few requests and a journal that they free, under loss of power at every point
//! and with one fault in every block: acknowledged elements and their sessions are there, and every start finds the newest
//! checkpoint.

use crate::node::{LocalNode, checkpoint_index};
use seatrial_kv::{Bug, ReplicaOptions};
use seatrial_kv_protocol::Outcome;
use seatrial_machine::{DataFolder, NodeId, Storage, Ticket};
use seatrial_sim::crash::{
    CrashReport, CrashState, DiskOperation, DiskRecorder, DiskTrace, Explorer, ExplorerLimits,
};
use seatrial_sim::single_fault::{FaultRun, SingleFaults};
use seatrial_sim::{FileTree, MemoryStorage};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FOLDER: &str = "data";
const FILES: &str = "data/files";
/// The file of a checkpoint that is being written.
const NEW: &str = "data/files/new-checkpoint";
/// Bytes of commands between checkpoints, and of a segment of the journal.
const CHECKPOINT_BYTES: u64 = 300;
const SEGMENT: u64 = 300;
/// Elements of recoveries begin here.
const LATER: u64 = 1_000_000;

/// Numbers the lives of all nodes of a test: their clients need different tokens.
static LIVES: AtomicU64 = AtomicU64::new(0);

/// An element that was acknowledged, and the message that asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AcknowledgedElement {
    element: u64,
    message: Vec<u8>,
}

/// A node in its folder, and the elements of its list.
struct CheckpointingNode(LocalNode);

impl CheckpointingNode {
    fn start(storage: &Arc<dyn Storage>, bug: Option<Bug>) -> Result<CheckpointingNode, String> {
        let server = NodeId::server(1);
        let mut options = ReplicaOptions::new(server, [server]);
        options.bug = bug;
        options.checkpoint_bytes = CHECKPOINT_BYTES;
        let life = LIVES.fetch_add(1, Ordering::Relaxed);
        LocalNode::start_with(storage, Path::new(FOLDER), options, SEGMENT, life)
            .map(CheckpointingNode)
    }

    /// Asks for an element to be appended.
    fn append(&mut self, element: u64) -> Result<(), String> {
        self.0.append(Ticket(element), &value_of(element))
    }

    /// The elements that are there.
    fn read(&mut self) -> Result<Vec<u64>, String> {
        self.0.list(element_of)
    }

    /// Elements with a reply since the last call.
    fn take_acknowledged(&mut self) -> Vec<AcknowledgedElement> {
        let outcomes = std::mem::take(&mut self.0.outcomes);
        let acknowledged = outcomes.into_iter().map(|(ticket, outcome)| {
            assert!(matches!(outcome, Outcome::Ok(_)), "{outcome:?}");
            AcknowledgedElement {
                element: ticket.0,
                message: self.0.requests[&ticket].clone(),
            }
        });
        acknowledged.collect()
    }
}

fn shared(storage: impl Storage + 'static) -> Arc<dyn Storage> {
    Arc::new(storage)
}

/// The bytes of an element.
fn value_of(element: u64) -> Vec<u8> {
    let mut value = vec![element as u8; 8 + element as usize % 5 * 30];
    value[..8].copy_from_slice(&element.to_le_bytes());
    value
}

/// The element with these bytes.
fn element_of(value: &[u8]) -> Result<u64, String> {
    let head = value.first_chunk().ok_or("an element of a few bytes")?;
    let element = u64::from_le_bytes(*head);
    if value_of(element) == value {
        Ok(element)
    } else {
        Err(format!("{value:?} was never appended"))
    }
}

/// Lives of a store, each killed between two steps of its work: at the end of a life some steps of the log and of a checkpoint
/// are done, others are not. The elements are numbered from `first` on.
fn live(
    storage: &Arc<dyn Storage>,
    bug: Option<Bug>,
    lives: u64,
    first: u64,
    mut acknowledge: impl FnMut(AcknowledgedElement),
) -> Result<(), String> {
    let mut next = first;
    for life in 0..lives {
        let mut node = CheckpointingNode::start(storage, bug)?;
        for round in 0..5 {
            for _ in 0..=round % 3 {
                node.append(next)?;
                next += 1;
                // A file task or a job beside a log that is not synced.
                node.0.driver.work(node.0.now)?;
            }
            node.0.now += Duration::from_secs(1);
            if round < 4 {
                node.0.sync()?;
            } else {
                for _ in 0..2 + 3 * life {
                    node.0.step()?;
                }
            }
            node.take_acknowledged()
                .into_iter()
                .for_each(&mut acknowledge);
        }
        node.append(next)?;
        next += 1;
    }
    Ok(())
}

const LIFETIMES: u64 = 3;

fn trace(bug: Option<Bug>) -> DiskTrace<AcknowledgedElement> {
    let recorder = DiskRecorder::new();
    live(&recorder.storage(), bug, LIFETIMES, 0, |it| {
        recorder.acknowledge(it);
    })
    .unwrap();
    recorder.trace()
}

/// Index of the newest file that has the name of a checkpoint.
fn newest_name(storage: &Arc<dyn Storage>) -> Result<u64, String> {
    let data = DataFolder::open(Arc::clone(storage), Path::new(FOLDER));
    let files = data.and_then(|it| it.files());
    let files = files.map_err(|it| it.to_string())?;
    let indices = files
        .iter()
        .filter_map(|file| checkpoint_index(file.as_str()));
    Ok(indices.max().unwrap_or(0))
}

/// What is in a store: everything acknowledged, once and in order.
fn assert_elements(found: &[u64], acknowledged: &[AcknowledgedElement]) -> Result<(), String> {
    // Elements whose write was lost with a life are not asked for again, so there may be gaps after the acknowledged ones.
    if !found.is_sorted_by(|a, b| a < b) {
        return Err(format!("{found:?} was never asked for in this order"));
    }
    match acknowledged.iter().find(|it| !found.contains(&it.element)) {
        Some(lost) => Err(format!(
            "{} was acknowledged, there is {found:?}",
            lost.element
        )),
        None => Ok(()),
    }
}

/// What recoveries found.
#[derive(Debug, Default)]
struct Loaded {
    /// Starts by the index of their checkpoint; 0: none.
    checkpoints: BTreeMap<u64, u64>,
    /// Replies that were remembered for requests sent again.
    replies: u64,
}

/// Recovers a store from the files that a crash left, repeats old requests, continues with it and starts it again. `bug`: of the
/// recovery.
fn recover(
    crash: &CrashState<'_, AcknowledgedElement>,
    bug: Option<Bug>,
    loaded: &mut Loaded,
) -> Result<(), String> {
    let storage = &shared(crash.storage());
    let newest = newest_name(storage)?;
    let mut node = CheckpointingNode::start(storage, bug)?;
    let report = node.0.driver.report.clone();
    if report.checkpoint != newest || !report.damaged.is_empty() {
        return Err(format!("checkpoint {newest} is there: {report:?}"));
    }
    let found = node.read()?;
    let acknowledged = crash.acknowledged();
    assert_elements(&found, acknowledged)?;
    for asked in acknowledged {
        // All sessions are there, with the replies that a later request of their client has not acknowledged.
        match node.0.repeat(&asked.message)? {
            None => {}
            Some(Outcome::Ok(_)) => loaded.replies += 1,
            Some(other) => return Err(format!("{} was asked again: {other:?}", asked.element)),
        }
    }
    let again = node.read()?;
    if again != found {
        return Err(format!("{again:?} after repetitions, {found:?} before"));
    }
    let later = LATER..LATER + 8;
    for element in later.clone() {
        node.append(element)?;
        node.0.now += Duration::from_secs(1);
        node.0.sync()?;
    }
    drop(node);
    let mut node = CheckpointingNode::start(storage, bug)?;
    if node.0.driver.report.checkpoint <= newest {
        return Err(format!("no checkpoint after {newest}"));
    }
    let again = node.read()?;
    let expected: Vec<u64> = found.into_iter().chain(later).collect();
    if again == expected {
        *loaded.checkpoints.entry(newest).or_default() += 1;
        Ok(())
    } else {
        Err(format!("{again:?} after {expected:?}"))
    }
}

/// Recovery takes milliseconds, and each life begins with some of these operations: fewer states per point than by default.
const LIMITS: ExplorerLimits = ExplorerLimits {
    combinations_max: 64,
    singles_max: 8,
    torn_max: 2,
    samples: 8,
};

fn explore(trace: &DiskTrace<AcknowledgedElement>, bug: Option<Bug>) -> CrashReport {
    Explorer::new(trace)
        .limits(LIMITS)
        .explore(|crash| recover(crash, bug, &mut Loaded::default()))
}

/// Number of operations of a trace that are like this.
fn count(trace: &DiskTrace<AcknowledgedElement>, is_it: impl Fn(&DiskOperation) -> bool) -> usize {
    trace.operations().iter().filter(|it| is_it(it)).count()
}

fn is_log(path: &Path) -> bool {
    path.starts_with(FOLDER) && !path.starts_with(FILES)
}

/// A segment of the journal that was freed and waits to be used again.
fn is_spare(path: &Path) -> bool {
    path.to_string_lossy().contains(".spare-")
}

#[test]
fn acknowledged_commands_survive_every_power_loss_with_checkpoints() {
    let trace = trace(None);
    let made = count(
        &trace,
        |it| matches!(it, DiskOperation::Rename { from, .. } if from == Path::new(NEW)),
    );
    let freed = count(&trace, |it| match it {
        DiskOperation::Remove { path, .. } => is_log(path),
        DiskOperation::Rename { to, .. } => is_spare(to),
        _ => false,
    });
    let changes = count(&trace, |it| match it {
        DiskOperation::Rename { to, .. } => to.to_string_lossy().contains("/changes-"),
        _ => false,
    });
    assert!(changes >= 3, "{changes} files of changes");
    println!(
        "{} operations, {} acknowledgements, {made} checkpoints, {changes} of changes, {freed} segments freed",
        trace.operations().len(),
        trace.acknowledged().len()
    );
    assert!(made >= 6 && freed >= 8, "{made} checkpoints, {freed} freed");
    let mut loaded = Loaded::default();
    let report = Explorer::new(&trace)
        .limits(LIMITS)
        .explore(|crash| recover(crash, None, &mut loaded));
    println!("{report}; {loaded:?}");
    let report = report.assert_holds();
    assert!(report.distinct > 500, "{report}");
    assert!(loaded.replies > 500, "{loaded:?}");
    // Each checkpoint, and none.
    assert!(loaded.checkpoints.len() > made, "{loaded:?}");
}

#[test]
fn planted_bugs_of_checkpoints_are_found() {
    let no_sync = trace(None)
        .retain(|_, it| !matches!(it, DiskOperation::Sync { path, .. } if path == Path::new(NEW)));
    let failure = explore(&no_sync, None).expect_failure();
    println!("a checkpoint is published before it is synced: {failure}\n");
    let missing = failure.vulnerability.to_string();
    assert!(
        missing.contains(NEW) && missing.contains("has to be durable before"),
        "{missing}"
    );
    let no_name = trace(None).retain(
        |_, it| !matches!(it, DiskOperation::SyncFolder { path } if path == Path::new(FILES)),
    );
    let failure = explore(&no_name, None).expect_failure();
    println!("no sync of the folder of checkpoints: {failure}\n");
    let failure = explore(&trace(Some(Bug::PurgePastCheckpoint)), None).expect_failure();
    println!("a journal freed past the checkpoint: {failure}\n");
    let failure = explore(&trace(None), Some(Bug::SessionsNotInCheckpoint)).expect_failure();
    println!("a start without the sessions: {failure}\n");
}

/// A life over these files, and what is in the store at the next start.
fn work_and_read(storage: &Arc<dyn Storage>) -> Result<Vec<u64>, String> {
    let mut acknowledged = Vec::new();
    live(storage, None, 1, 100, |it| acknowledged.push(it))?;
    let found = CheckpointingNode::start(storage, None)?.read()?;
    match acknowledged.iter().find(|it| !found.contains(&it.element)) {
        Some(lost) => Err(format!(
            "data/log: {} was acknowledged and is lost",
            lost.element
        )),
        None => Ok(found),
    }
}

/// Accepts elements in order with all that must be there, or an error that says which file is damaged and where.
///
/// In the journal an error names the log, whose positions are the same in all of its segments; and the newest block with silent
/// rot looks like an interrupted write. A checkpoint that rots on its way to the disk has another name when it is read.
fn check_fault(run: &FaultRun<'_, Vec<u64>>, known: &[AcknowledgedElement]) -> Result<(), String> {
    let is_silent = !run.fault.is_error();
    let is_newest_block = is_silent && is_log(&run.site.path);
    match &run.answer {
        Ok(found) if is_newest_block => assert_elements(found, &[]),
        Ok(found) => assert_elements(found, known),
        Err(text) if is_newest_block && text.contains("is lost") => Ok(()),
        Err(text) => check_error(run, text),
    }
}

fn check_error(run: &FaultRun<'_, Vec<u64>>, text: &str) -> Result<(), String> {
    let is_clear = if is_log(&run.site.path) {
        text.contains("data/log")
    } else {
        ["checkpoint-", "changes-"].iter().any(|name| {
            let is_named = text.contains(&format!(": {name}")) && text.contains(" at ");
            is_named || text.contains(&format!("/{name}"))
        })
    };
    if is_clear {
        return Ok(());
    }
    run.is_clear(text)
}

#[test]
fn one_fault_gives_the_older_checkpoint_with_its_journal_or_an_error() {
    let before = MemoryStorage::new();
    let mut known = Vec::new();
    live(&shared(before.clone()), None, LIFETIMES, 0, |it| {
        known.push(it);
    })
    .unwrap();
    let start = before.files();
    let names = start.iter().map(|it| it.0.display().to_string());
    let names: Vec<String> = names.collect();
    let count = |part: &str| names.iter().filter(|it| it.contains(part)).count();
    let (whole, changes) = (count("/checkpoint-"), count("/changes-"));
    // The third is there when the last life ended between a publication and a removal.
    assert!((2..=3).contains(&whole), "{whole} whole checkpoints");
    assert!((1..=3).contains(&changes), "{changes} files of changes");
    let mut fallbacks = 0;
    for (name, start) in [
        ("an old store", start),
        ("a new store", FileTree::default()),
    ] {
        let is_old = start.iter().next().is_some();
        let report = SingleFaults::new(start).block_length(512).run(
            |storage| work_and_read(&storage),
            |run| {
                check_fault(run, if is_old { &known } else { &[] })?;
                let storage = shared(MemoryStorage::from_files(&run.files));
                let mut node = match CheckpointingNode::start(&storage, None) {
                    // What rotted on its way to the disk is damaged for good.
                    Err(text) if !run.fault.is_error() => return check_error(run, &text),
                    node => node?,
                };
                fallbacks += usize::from(!node.0.driver.report.damaged.is_empty());
                let found = node.read()?;
                let is_log_rot = is_log(&run.site.path) && !run.fault.is_error();
                if is_old && !is_log_rot {
                    assert_elements(&found, &known)?;
                }
                Ok(())
            },
        );
        println!("{name}: {report}; {fallbacks} starts from the older checkpoint");
        let report = report.assert_holds();
        assert!(report.errors > 100, "{report}");
    }
    assert!(fallbacks > 10, "{fallbacks}");
}
