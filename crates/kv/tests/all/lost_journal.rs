//! Journals that are lost on a minority of the nodes: bits that flip, tails and segments that are missing, files that are gone.

use crate::world::Run;
use seatrial_kv::Bug;
use seatrial_machine::{DataFolder, FaultKind, NodeId, Rng};
use seatrial_sim::explore;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Which nodes lose their journals, shared with the function that starts them.
#[derive(Clone, Debug)]
pub(crate) struct JournalDamage(Arc<Mutex<DamagePlan>>);

#[derive(Debug)]
struct DamagePlan {
    rng: Rng,
    /// Nodes whose journals are damaged before their next start.
    due: BTreeSet<NodeId>,
    /// Nodes without a journal that have not rejoined.
    open: BTreeSet<NodeId>,
    /// Journals lost so far.
    lost: u64,
}

impl JournalDamage {
    pub(crate) fn new(rng: Rng) -> JournalDamage {
        JournalDamage(Arc::new(Mutex::new(DamagePlan {
            rng,
            due: BTreeSet::new(),
            open: BTreeSet::new(),
            lost: 0,
        })))
    }

    fn with<R>(&self, then: impl FnOnce(&mut DamagePlan) -> R) -> R {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The journal of this node will be lost before its next start.
    pub(crate) fn plan(&self, node: NodeId) {
        self.with(|plan| {
            plan.due.insert(node);
            plan.open.insert(node);
        });
    }

    /// Number of nodes without a journal.
    pub(crate) fn settle(&self, has_journal: impl Fn(NodeId) -> bool) -> usize {
        self.with(|plan| {
            let due = &plan.due;
            plan.open
                .retain(|node| due.contains(node) || !has_journal(*node));
            plan.open.len()
        })
    }

    /// Journals lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.with(|plan| plan.lost)
    }

    /// Damages the journal of a node that starts, if that is planned.
    pub(crate) fn before_start(&self, node: NodeId, data: &DataFolder) {
        self.with(|plan| {
            if plan.due.remove(&node) && damage(data, &mut plan.rng).is_some() {
                plan.lost += 1;
            }
        });
    }
}

/// Start and name of the segments of a journal, in order.
fn segments(data: &DataFolder) -> Vec<(u64, String)> {
    let names = data.storage().list(data.path()).unwrap();
    let start = |name: &str| match name.strip_prefix("log-") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => (name == "log").then_some(0),
    };
    let found = names
        .into_iter()
        .filter_map(|name| Some((start(&name)?, name)));
    let mut found: Vec<(u64, String)> = found.collect();
    found.sort_unstable();
    found
}

/// The position up to which the journal is known to be durable: damage before it cannot be an interrupted write.
fn durable_end(data: &DataFolder) -> Option<u64> {
    let path = data.files_path().join("journal-mark");
    let file = data.storage().open(&path).ok()?;
    let mut fields = [0; 16];
    file.read_at(24, &mut fields).ok()?;
    let (end, is_lost) = fields.split_at(8);
    (is_lost == [0; 8]).then(|| u64::from_le_bytes(end.try_into().unwrap()))
}

/// Damages a journal in one of many ways. `None`: there is none yet.
fn damage(data: &DataFolder, rng: &mut Rng) -> Option<()> {
    let segments = segments(data);
    let first = segments.first()?.0;
    let end = durable_end(data).filter(|end| *end > first)?;
    let (storage, folder) = (data.storage(), data.path());
    let position = first + rng.below(end - first);
    let at = segments.partition_point(|it| it.0 <= position) - 1;
    let remove = |segments: &[(u64, String)]| {
        for (_, name) in segments {
            storage.remove(&folder.join(name)).unwrap();
        }
    };
    let open = |name: &str| storage.open_write(&folder.join(name)).unwrap();
    match rng.below(5) {
        0 => {
            let file = open(&segments[at].1);
            let mut byte = [0];
            file.read_at(position - segments[at].0, &mut byte).ok()?;
            byte[0] ^= 1 << rng.below(8);
            file.write_at(position - segments[at].0, &byte).unwrap();
            file.sync().unwrap();
        }
        1 => {
            remove(&segments[at + 1..]);
            let file = open(&segments[at].1);
            file.set_len(position - segments[at].0).unwrap();
            file.sync().unwrap();
        }
        2 => remove(&segments),
        3 if segments.len() > 2 => remove(&segments[1..2]),
        // Without a checkpoint such a folder would be that of a new node.
        4 if data
            .files()
            .unwrap()
            .iter()
            .any(|it| it.as_str().starts_with("checkpoint-")) =>
        {
            remove(&segments);
            let mark = data.files_path().join("journal-mark");
            storage.remove(&mark).unwrap();
            storage.sync_folder(&data.files_path()).unwrap();
        }
        _ => {
            let mark = storage.open_write(&data.files_path().join("journal-mark"));
            let mark = mark.unwrap();
            mark.write_at(30, &[77]).unwrap();
            mark.sync().unwrap();
        }
    }
    storage.sync_folder(folder).unwrap();
    Some(())
}

/// A run in which nodes that are killed lose their journals, in storms of elections when the seed says so.
fn run(seed: u64, servers: u32, bug: Option<Bug>) -> Run {
    let mut run = Run::new(seed, servers, bug);
    run.loses_journals = true;
    run.fault_spread = 4 + seed % 4;
    if seed.is_multiple_of(2) {
        run.kinds = vec![FaultKind::Kill, FaultKind::Kill, FaultKind::Partition];
    }
    run
}

fn check_seeds(servers: u32, seeds: u64) {
    let mut lost = 0;
    let exploration = explore(0..seeds, |seed| {
        let mut run = run(seed, servers, None);
        let checked = run.check();
        lost += run.damage.lost();
        checked
    });
    println!("{servers} nodes: {lost} journals lost");
    assert_eq!(exploration.failure, None, "{servers} nodes");
    assert!(lost > seeds, "{lost} journals lost");
}

#[test]
fn three_nodes_replace_lost_journals() {
    check_seeds(3, seatrial_farm::seeds(120));
}

#[test]
fn five_nodes_replace_lost_journals() {
    check_seeds(5, seatrial_farm::seeds(50));
}

#[test]
fn a_node_that_votes_without_its_journal_is_found() {
    let bug = Some(Bug::DamagedVotes);
    let found = explore(0..200, |seed| run(seed, 3, bug).check());
    println!("{found:?}");
    let (seed, reason) = found.failure.expect("the bug is found");
    assert_eq!(
        run(seed, 3, bug).check(),
        Err(reason),
        "the seed replays it"
    );
    assert_eq!(run(seed, 3, None).check(), Ok(()), "it is the bug");
}
