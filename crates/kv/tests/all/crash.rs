//! The store's log, written and synced as a host does, under loss of power at every point and with one fault in every block:
//! acknowledged elements are there, and no element is there that was not requested.

use crate::node::LocalNode;
use seatrial_kv::Bug;
use seatrial_kv_protocol::Outcome;
use seatrial_machine::{Storage, Ticket};
use seatrial_sim::crash::{
    CrashReport, CrashState, DiskOperation, DiskRecorder, DiskTrace, Explorer, ExplorerLimits,
};
use seatrial_sim::single_fault::SingleFaults;
use seatrial_sim::{FileTree, MemoryStorage};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FOLDER: &str = "data";
const LOG: &str = "data/log";

/// Numbers the lives of all nodes of a test: their clients need different tokens.
static LIVES: AtomicU64 = AtomicU64::new(0);

/// A node in its folder, and the elements of its list.
struct CrashNode(LocalNode);

impl CrashNode {
    fn start(storage: &Arc<dyn Storage>, bug: Option<Bug>) -> Result<CrashNode, String> {
        let life = LIVES.fetch_add(1, Ordering::Relaxed);
        LocalNode::start(storage, Path::new(FOLDER), bug, life).map(CrashNode)
    }

    /// Asks for an element to be appended.
    fn append(&mut self, element: u64) -> Result<(), String> {
        let length = 8 + element as usize % 5 * 300;
        let mut value = vec![element as u8; length];
        value[..8].copy_from_slice(&element.to_le_bytes());
        self.0.append(Ticket(element), &value)
    }

    /// The elements that are there.
    fn read(&mut self) -> Result<Vec<u64>, String> {
        self.0.list(element_of)
    }
}

fn shared(storage: impl Storage + 'static) -> Arc<dyn Storage> {
    Arc::new(storage)
}

/// Which element it is, if it is one.
fn element_of(value: &[u8]) -> Result<u64, String> {
    let head = value.first_chunk().ok_or("an element of a few bytes")?;
    let element = u64::from_le_bytes(*head);
    let is_whole = value.len() == 8 + element as usize % 5 * 300;
    if is_whole && value[8..].iter().all(|&byte| byte == element as u8) {
        Ok(element)
    } else {
        Err(format!("{value:?} was never appended"))
    }
}

/// Three lives of a store, each killed in the middle of a write; durable elements are acknowledged. The elements are numbered
/// from `first` on; how many were asked for.
fn live(
    storage: &Arc<dyn Storage>,
    bug: Option<Bug>,
    first: u64,
    mut acknowledge: impl FnMut(u64),
) -> Result<u64, String> {
    let mut next = first;
    for life in 0..3 {
        let mut node = CrashNode::start(storage, bug)?;
        for round in 0..4 {
            for _ in 0..=round {
                node.append(next)?;
                next += 1;
            }
            node.0.now += Duration::from_secs(1);
            node.0.wake()?;
            for (ticket, outcome) in node.0.outcomes.drain(..) {
                assert!(matches!(outcome, Outcome::Ok(_)), "{outcome:?}");
                acknowledge(ticket.0);
            }
            // The last life ends with a write under way.
            if (life, round) != (2, 3) {
                node.0.sync()?;
            }
            for (ticket, outcome) in node.0.outcomes.drain(..) {
                assert!(matches!(outcome, Outcome::Ok(_)), "{outcome:?}");
                acknowledge(ticket.0);
            }
        }
        node.append(next)?;
        next += 1;
    }
    Ok(next)
}

fn trace(bug: Option<Bug>) -> DiskTrace<u64> {
    let recorder = DiskRecorder::new();
    live(&recorder.storage(), bug, 0, |element| {
        recorder.acknowledge(element);
    })
    .unwrap();
    recorder.trace()
}

/// Recovers a store from the files that a crash left, twice, and continues with it.
fn recover(storage: &Arc<dyn Storage>, acknowledged: Option<u64>) -> Result<(), String> {
    let mut node = CrashNode::start(storage, None)?;
    let found = node.read()?;
    // Elements whose write was lost with a life are not asked for again, so there may be gaps after the acknowledged ones.
    let is_rising = found.is_sorted_by(|a, b| a < b);
    if !is_rising {
        return Err(format!("{found:?} was never asked for in this order"));
    }
    if let Some(newest) = acknowledged.filter(|newest| !found.contains(newest)) {
        return Err(format!("{newest} was acknowledged, there is {found:?}"));
    }
    node.append(1_000_000)?;
    node.0.sync()?;
    drop(node);
    let again = CrashNode::start(storage, None)?.read()?;
    let expected: Vec<u64> = found.into_iter().chain([1_000_000]).collect();
    if again == expected {
        Ok(())
    } else {
        Err(format!("{again:?} after {expected:?}"))
    }
}

fn check(crash: &CrashState<'_, u64>) -> Result<(), String> {
    // Acknowledged elements have distinct numbers: all of them must be there.
    let storage = shared(crash.storage());
    let mut node = CrashNode::start(&shared(crash.storage()), None)?;
    let found = node.read()?;
    if let Some(lost) = crash.acknowledged().iter().find(|it| !found.contains(it)) {
        return Err(format!("{lost} was acknowledged, there is {found:?}"));
    }
    recover(&storage, crash.acknowledged().last().copied())
}

fn explore(trace: &DiskTrace<u64>) -> CrashReport {
    Explorer::new(trace).explore(check)
}

#[test]
fn acknowledged_commands_survive_every_power_loss() {
    let report = explore(&trace(None)).assert_holds();
    println!("{report}");
    assert!(report.distinct > 300, "{report}");
}

#[test]
fn a_start_that_is_interrupted_is_done_again() {
    let trace = trace(None);
    let limits = ExplorerLimits {
        samples: 4,
        ..ExplorerLimits::few()
    };
    let (mut states, mut cuts) = (0, 0);
    let report = Explorer::new(&trace).limits(limits).explore(|crash| {
        let second = crash.recorder();
        for element in crash.acknowledged() {
            second.acknowledge(*element);
        }
        // Continues for two more lives, killed again, over the torn blocks.
        let storage = second.storage();
        live(&storage, None, 500, |element| second.acknowledge(element))?;
        let trace = second.trace();
        let is_cut = |it: &DiskOperation| matches!(it, DiskOperation::SetLength { .. });
        cuts += u64::from(trace.operations().iter().any(is_cut));
        let report = Explorer::new(&trace)
            .limits(limits)
            .points(0..9)
            .explore(check);
        states += report.distinct;
        report.failure.map_or(Ok(()), |it| Err(it.to_string()))
    });
    println!("{report}; of the starts after it {states} states, {cuts} with a cut");
    report.assert_holds();
    assert!(states > 1_000 && cuts > 10, "{states} states, {cuts} cuts");
}

#[test]
fn planted_bugs_are_found() {
    let is_log = |path: &Path| path == Path::new(LOG);
    let no_sync =
        trace(None).retain(|_, it| !matches!(it, DiskOperation::Sync { path, .. } if is_log(path)));
    let failure = explore(&no_sync).expect_failure();
    println!("no sync: {failure}\n");
    assert!(
        failure
            .vulnerability
            .to_string()
            .contains("has to be durable before")
    );
    let mut folders = 0;
    let no_name = trace(None).retain(|_, it| {
        let is_folder =
            matches!(it, DiskOperation::SyncFolder { path } if path == Path::new(FOLDER));
        folders += u32::from(is_folder);
        !is_folder
    });
    let failure = explore(&no_name).expect_failure();
    println!("no sync of the folder: {failure}\n");
    assert!(
        failure
            .vulnerability
            .to_string()
            .starts_with("create of data/log")
    );
    // Each start makes the name of the journal durable, and that of the folder of files with the journal's mark.
    assert_eq!(folders, 6);
    let failure = explore(&trace(Some(Bug::AckBeforeAppend))).expect_failure();
    println!("an answer before the append: {failure}\n");
    // Its blocks claim that the ones before them are durable, or acknowledged elements are lost: whichever comes first.
    let is_lost = failure.reason.contains("was acknowledged") || failure.reason.contains("damage");
    assert!(is_lost, "{failure}");
}

/// A process that was killed leaves blocks that can be read and are not durable. The next one has to make them so before it
/// appends: its first block says that everything before was durable.
#[test]
fn a_start_that_does_not_sync_what_it_found_is_found() {
    let trace = trace(None);
    let all = trace.operations().to_vec();
    let is_start = |it: usize| matches!(all[it], DiskOperation::SyncFolder { .. });
    let mut starts = 0;
    let without = trace.retain(|it, operation| {
        let is_omitted = matches!(operation, DiskOperation::Sync { .. }) && is_start(it - 1);
        starts += u32::from(is_omitted);
        !is_omitted
    });
    assert_eq!(starts, 2, "the first start finds nothing");
    let failure = explore(&without).expect_failure();
    println!("{failure}");
    assert!(failure.reason.contains("damage"), "{failure}");
}

#[test]
fn a_torn_log_is_cut_under_loss_of_power() {
    let storage = MemoryStorage::new();
    live(&shared(storage.clone()), None, 0, |_| {}).unwrap();
    let mut tree = storage.files();
    let mut torn = tree.get(LOG).unwrap().to_vec();
    torn.truncate(torn.len() - 100);
    tree.insert(LOG, torn);
    let recorder = DiskRecorder::over(&tree);
    let acknowledge = |element| recorder.acknowledge(element);
    live(&recorder.storage(), None, 100, acknowledge).unwrap();
    let trace = recorder.trace();
    let is_cut = |it: &DiskOperation| matches!(it, DiskOperation::SetLength { .. });
    assert!(trace.operations().iter().any(is_cut));
    println!("{}", explore(&trace).assert_holds());
}

#[test]
fn one_fault_gives_the_right_list_or_an_error() {
    let before = MemoryStorage::new();
    let mut known = 0;
    live(&shared(before.clone()), None, 0, |element| {
        known = known.max(element);
    })
    .unwrap();
    let program = |storage: Arc<dyn Storage>| {
        let mut acknowledged = Vec::new();
        live(&storage, None, 100, |element| acknowledged.push(element))?;
        let found = CrashNode::start(&storage, None)?.read()?;
        match acknowledged.iter().find(|it| !found.contains(it)) {
            Some(lost) => Err(format!("{LOG}: {lost} was acknowledged and is lost")),
            None => Ok(found),
        }
    };
    for (name, start) in [
        ("an old log", before.files()),
        ("a new log", FileTree::default()),
    ] {
        let is_old = start.get(LOG).is_some();
        let report = SingleFaults::new(start)
            .block_length(512)
            .run(program, |run| {
                let is_silent = !run.fault.is_error();
                match &run.answer {
                    // Rot of the newest block looks like an interrupted write: the two cannot be distinguished.
                    Ok(found) if is_silent && found.iter().all(|it| run.expected.contains(it)) => {}
                    Err(text) if is_silent && text.contains("is lost") => {}
                    _ => run.is_honest()?,
                }
                if is_silent {
                    return Ok(());
                }
                let mut node =
                    CrashNode::start(&shared(MemoryStorage::from_files(&run.files)), None)?;
                let found = node.read()?;
                match (0..=known).find(|it| is_old && !found.contains(it)) {
                    Some(lost) => Err(format!("{lost} was there before, now {found:?}")),
                    None => Ok(()),
                }
            });
        println!("{name}: {report}");
        let report = report.assert_holds();
        assert!(report.errors > 100, "{report}");
    }
}
