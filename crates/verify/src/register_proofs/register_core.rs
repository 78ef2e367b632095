//! The replay of cores: transactions on registers that have no order.

use super::{RegisterConstraints, SourcedRead};
use crate::certificate::Certificate;
use crate::dense_number::TransactionNumber;
use crate::transaction_table::TransactionTable;
use crate::verifier::Unproven;
use std::collections::{BTreeMap, BTreeSet};

/// Words of memory that the open cases may take together.
const KEPT_MAX: usize = 1 << 25;

/// Checks that no version order of these transactions satisfies this axiom and this relation.
///
/// Takes all consequences of the order of any two versions of a key; where both orders are possible, tries both, for so
/// many steps. Exponential at worst in the number of pairs that stay open.
pub(super) fn core(
    constraints: &RegisterConstraints<'_>,
    (axiom, relation): (&str, &str),
    places: &[u64],
    steps_max: u64,
) -> Result<(), Unproven> {
    let members: BTreeSet<u32> = constraints.at_all(places)?.into_iter().collect();
    if members.len() > Certificate::CORE_MAX {
        let most = Certificate::CORE_MAX;
        return Err(format!("more than {most} transactions are not replayed").into());
    }
    let members: Vec<u32> = members.into_iter().collect();
    let mut trial = CoreRefutation::new(constraints, axiom, &members, steps_max);
    let reach = trial.reach(constraints, relation, &members);
    trial.answer(reach)
}

/// Checks that the events of this number of members have no order with these edges in which, for each two members of `open`, one
/// commits before the other takes its snapshot. Events are numbered as in [`EventReach`].
pub(crate) fn refute(
    members: usize,
    edges: &[(usize, usize)],
    open: &[(usize, usize)],
    steps_max: u64,
) -> Result<(), Unproven> {
    let mut trial = CoreRefutation {
        axiom: "snapshot-isolation",
        versions: Vec::new(),
        first: Vec::new(),
        open: Vec::new(),
        steps: 0,
        steps_max,
    };
    for &(one, other) in open {
        let start = trial.versions.len();
        trial
            .versions
            .extend([one, other].map(|writer| CoreVersion {
                writer: Some(writer),
                readers: Vec::new(),
            }));
        trial.open.push((start, start + 1));
    }
    let mut reach = EventReach::new(2 * members);
    assert!(
        edges
            .iter()
            .chain(open)
            .all(|&(one, other)| one.max(other) < 2 * members),
        "an edge leads to an event of no member"
    );
    for &(from, to) in edges {
        trial.steps += reach.link(from, to);
    }
    trial.answer(reach)
}

/// The transitive closure of an order of events. Event 2 m: member m takes its snapshot; 2 m + 1: it commits.
#[derive(Clone)]
struct EventReach {
    /// Number of words in a row.
    width: usize,
    /// By event: a row of bits, one for each event that comes later.
    rows: Vec<u64>,
}

impl EventReach {
    fn new(events: usize) -> EventReach {
        let width = events.div_ceil(64);
        EventReach {
            width,
            rows: vec![0; events * width],
        }
    }

    /// Does the first event come before the second?
    fn has(&self, from: usize, to: usize) -> bool {
        debug_assert!(to / 64 < self.width, "event {to} has no bit");
        self.rows[from * self.width + to / 64] >> (to % 64) & 1 == 1
    }

    /// The same, or are they the same event?
    fn leads(&self, from: usize, to: usize) -> bool {
        from == to || self.has(from, to)
    }

    /// Adds an edge and all that follows from it. Returns the number of words looked at.
    fn link(&mut self, from: usize, to: usize) -> u64 {
        if self.has(from, to) {
            return 1;
        }
        let mut later = self.rows[to * self.width..(to + 1) * self.width].to_vec();
        later[to / 64] |= 1 << (to % 64);
        let events = self.rows.len() / self.width;
        let mut steps = events;
        for event in 0..events {
            if self.leads(event, from) {
                let row = &mut self.rows[event * self.width..(event + 1) * self.width];
                row.iter_mut()
                    .zip(&later)
                    .for_each(|(one, more)| *one |= more);
                steps += self.width;
            }
        }
        steps as u64
    }
}

/// A version of a key: the member that wrote it (none: the initial state), and the members that read it.
struct CoreVersion {
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// Two versions of a key by their numbers, the earlier one first.
type VersionPair = (usize, usize);

/// A case: one choice of orders for some pairs of versions, with the consequences that were taken.
#[derive(Clone)]
struct RefutationCase {
    reach: EventReach,
    /// Pairs of versions that are in neither order yet.
    open: Vec<VersionPair>,
    chosen: Vec<VersionPair>,
}

struct CoreRefutation<'a> {
    axiom: &'a str,
    versions: Vec<CoreVersion>,
    /// Pairs whose order is known from the start: initial states come first.
    first: Vec<VersionPair>,
    open: Vec<VersionPair>,
    steps: u64,
    steps_max: u64,
}

impl<'a> CoreRefutation<'a> {
    fn new(
        constraints: &RegisterConstraints<'_>,
        axiom: &'a str,
        members: &[u32],
        steps_max: u64,
    ) -> CoreRefutation<'a> {
        let mut trial = CoreRefutation {
            axiom,
            versions: Vec::new(),
            first: Vec::new(),
            open: Vec::new(),
            steps: 0,
            steps_max,
        };
        let mut readers: BTreeMap<SourcedRead, Vec<usize>> = BTreeMap::new();
        let mut writers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (member, &number) in members.iter().enumerate() {
            for &read in constraints.reads(number) {
                readers.entry(read).or_default().push(member);
            }
            for &key in constraints.writes(number) {
                writers.entry(key).or_default().push(member);
            }
        }
        for (key, writers) in writers {
            let start = trial.versions.len();
            for writer in std::iter::once(None).chain(writers.into_iter().map(Some)) {
                let source = writer.map(|member| TransactionNumber::new(members[member]));
                let readers = readers
                    .remove(&SourcedRead { key, source })
                    .unwrap_or_default();
                trial.versions.push(CoreVersion { writer, readers });
            }
            for one in start + 1..trial.versions.len() {
                trial.first.push((start, one));
                let others = start + 1..one;
                trial.open.extend(others.map(|other| (other, one)));
            }
        }
        trial
    }

    /// The order of events by reads, sessions, time and initial states.
    fn reach(
        &mut self,
        constraints: &RegisterConstraints<'_>,
        relation: &str,
        members: &[u32],
    ) -> EventReach {
        let mut reach = EventReach::new(2 * members.len());
        let place = |number: u32| members.binary_search(&number).ok();
        // The last members first: as a rule little is known before them, so each edge has few consequences.
        for (member, &number) in members.iter().enumerate().rev() {
            self.steps += reach.link(2 * member, 2 * member + 1);
            let sources = constraints.reads(number).iter();
            let sources = sources.filter_map(|read| place(read.source?.get()));
            let others = (0..members.len()).rev();
            let others = others.filter(|&other| {
                other != member && follows(constraints.table, relation, members[other], number)
            });
            for other in sources.chain(others) {
                self.steps += reach.link(2 * other + 1, 2 * member);
            }
        }
        let first = self.first.iter().flat_map(|&pair| self.edges(pair));
        let steps: u64 = first.map(|(from, to)| reach.link(from, to)).sum();
        self.steps += steps;
        reach
    }

    /// The anti-dependencies of two versions: each reader of the earlier one that does not write the later one, with the
    /// writer of the later one.
    fn missed(&self, (earlier, later): VersionPair) -> impl Iterator<Item = (usize, usize)> {
        let writer = self.versions[later].writer;
        let readers = self.versions[earlier].readers.iter().copied();
        readers.filter_map(move |reader| Some((reader, writer.filter(|&it| it != reader)?)))
    }

    /// The edges between events that the order of two versions means.
    fn edges(&self, (earlier, later): VersionPair) -> impl Iterator<Item = (usize, usize)> {
        let one = self.versions[earlier].writer;
        let other = self.versions[later].writer;
        let is_prefix = self.axiom == "prefix";
        let overwrite = one.zip(other).map(|(one, other)| {
            let to = 2 * other + usize::from(is_prefix);
            (2 * one + 1, to)
        });
        let is_serial = self.axiom == "serializable";
        let is_parallel = self.axiom == "parallel-snapshot-isolation";
        let missed = self.missed((earlier, later));
        let missed = missed.filter(move |_| !is_parallel);
        let missed = missed.map(move |(reader, writer)| {
            if is_serial {
                (2 * reader + 1, 2 * writer)
            } else {
                (2 * reader, 2 * writer + 1)
            }
        });
        overwrite.into_iter().chain(missed)
    }

    /// The answer to the question whether there is no order.
    fn answer(&mut self, reach: EventReach) -> Result<(), Unproven> {
        match self.is_impossible(reach) {
            Some(true) => Ok(()),
            Some(false) => {
                let reason = "there is an order that explains these transactions";
                Err(reason.to_owned().into())
            }
            None => Err(Unproven::Unsettled {
                steps: self.steps_max,
            }),
        }
    }

    /// Is there no order? `None` if that takes too long to decide.
    fn is_impossible(&mut self, reach: EventReach) -> Option<bool> {
        let mut cases = vec![RefutationCase {
            reach,
            open: std::mem::take(&mut self.open),
            chosen: self.first.clone(),
        }];
        while let Some(mut case) = cases.pop() {
            if self.is_settled(&mut case)? {
                continue;
            }
            let Some((one, other)) = case.open.pop() else {
                return Some(false);
            };
            let kept = (cases.len() + 2) * (case.reach.rows.len() + 4 * case.open.len());
            if kept > KEPT_MAX {
                return None;
            }
            let mut twin = case.clone();
            self.steps += kept as u64 / (cases.len() as u64 + 2);
            self.choose(&mut case, (one, other));
            self.choose(&mut twin, (other, one));
            cases.extend([case, twin]);
        }
        Some(true)
    }

    /// Chooses the order of each pair whose opposite is impossible, until no more follows. Is there no order then?
    fn is_settled(&mut self, case: &mut RefutationCase) -> Option<bool> {
        if self.is_broken(case, None) {
            return Some(true);
        }
        loop {
            let mut is_new = false;
            for (one, other) in std::mem::take(&mut case.open) {
                if self.steps > self.steps_max {
                    return None;
                }
                let fails =
                    [(one, other), (other, one)].map(|pair| self.is_broken(case, Some(pair)));
                let chosen = match fails {
                    [true, true] => return Some(true),
                    [true, false] => (other, one),
                    [false, true] => (one, other),
                    [false, false] => {
                        case.open.push((one, other));
                        continue;
                    }
                };
                self.choose(case, chosen);
                is_new = true;
            }
            if !is_new {
                return Some(false);
            }
        }
    }

    fn choose(&mut self, case: &mut RefutationCase, pair: VersionPair) {
        let edges = self.edges(pair);
        let steps: u64 = edges.map(|(from, to)| case.reach.link(from, to)).sum();
        self.steps += steps;
        case.chosen.push(pair);
    }

    /// Is there a cycle, or does a reader see an overwrite, with this pair in order as well? All edges of a pair lead to
    /// the writer of the later version, so a cycle over several of them contains one over a single one.
    fn is_broken(&mut self, case: &RefutationCase, more: Option<VersionPair>) -> bool {
        let reach = &case.reach;
        let edges: Vec<(usize, usize)> =
            more.into_iter().flat_map(|pair| self.edges(pair)).collect();
        self.steps += edges.len() as u64 + 1;
        if edges.iter().any(|&(from, to)| reach.leads(to, from)) {
            return true;
        }
        if more.is_none() {
            let events = reach.rows.len() / reach.width.max(1);
            if (0..events).any(|event| reach.has(event, event)) {
                return true;
            }
        }
        if self.axiom != "parallel-snapshot-isolation" {
            return false;
        }
        self.steps += case.chosen.len() as u64;
        let mut chosen = case.chosen.iter().copied().chain(more);
        chosen.any(|pair| {
            self.missed(pair).any(|(reader, writer)| {
                let (from, to) = (2 * writer + 1, 2 * reader);
                let mut edges = edges.iter();
                reach.has(from, to)
                    || edges.any(|edge| reach.leads(from, edge.0) && reach.leads(edge.1, to))
            })
        })
    }
}

/// Must `one` have committed before `other` begins?
pub(crate) fn follows(table: &TransactionTable, relation: &str, one: u32, other: u32) -> bool {
    let (one, other) = (&table.one(one), &table.one(other));
    !relation.is_empty() && one.is_run_before(other)
        || relation == "realtime" && one.is_over_before(other)
}
