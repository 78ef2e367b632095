//! Why a few transactions cannot be explained, in words.

use super::facts::Facts;
use super::promise::{Axiom, Follows, Promise};
use crate::txn::explain::shape;
use crate::txn::graph::{PROCESS, REALTIME, RW, WR, WW, relation};
use crate::txn::registers::Columns;
use crate::txn::transactions::NONE;
use crate::{Anomaly, Finding, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Transactions of a core that is argued for; a larger one is only shown.
const ARGUED_MAX: usize = 32;
/// Transactions that are shown.
const SHOWN_MAX: usize = 64;
/// Reads and writes of a transaction that are shown whatever they are.
const EVENTS_MAX: usize = 6;
/// Cases that are told apart before the rest is left to whoever reads.
const CASES_MAX: usize = 12;

/// One transaction comes before another.
#[derive(Clone, Debug)]
struct Edge {
    from: u32,
    to: u32,
    /// The kind of dependency; 0 between the two events of a transaction.
    kind: u8,
    /// Of a `ww` or `rw`: the two versions, in order.
    versions: (u32, u32),
    /// Of a `ww` or `rw`: which derivation it needs; [`NONE`] when it is evident.
    because: u32,
}

/// A fact about the order of two versions that follows from what is excluded.
#[derive(Clone, Debug)]
struct Derived {
    first: u32,
    second: u32,
    /// The cycle that the opposite would make.
    cycle: Vec<Edge>,
}

/// What is known while the story goes on.
#[derive(Clone, Default)]
struct Knowledge {
    edges: Vec<Edge>,
    derived: Vec<Derived>,
    ordered: BTreeSet<(u32, u32)>,
}

/// How the story ends.
enum End {
    /// With a cycle.
    Cycle(Vec<Edge>),
    /// Neither order of two versions is possible.
    Cases,
    /// Somewhere beyond what is told.
    Untold,
}

/// Makes the finding of a core.
pub(super) struct Story<'a> {
    facts: &'a Facts,
    columns: &'a Columns,
    promise: Promise,
    /// By transaction: its number in the columns.
    names: &'a [u32],
    /// By version: its number in the columns.
    versions: Vec<u32>,
    readers: Vec<Vec<u32>>,
    cases: usize,
    text: String,
}

impl<'a> Story<'a> {
    /// About these transactions, whose numbers in the columns are `names`.
    pub(super) fn new(
        facts: &'a Facts,
        names: &'a [u32],
        columns: &'a Columns,
        promise: Promise,
    ) -> Story<'a> {
        let mut readers = vec![Vec::new(); facts.versions()];
        for number in 0..facts.len() {
            for &version in facts.reads.of(number) {
                readers[version as usize].push(number);
            }
        }
        let mut story = Story {
            facts,
            columns,
            promise,
            names,
            versions: vec![NONE; facts.versions()],
            readers,
            cases: 0,
            text: String::new(),
        };
        story.name_versions();
        story
    }

    /// Finds the versions of these facts in the columns: those that a transaction wrote, in their order.
    fn name_versions(&mut self) {
        for number in 0..self.facts.len() {
            let events = self.columns.events(self.names[number as usize]).iter();
            let finals = events.filter(|event| event.is_final_write());
            for (&version, event) in self.facts.writes.of(number).iter().zip(finals) {
                self.versions[version as usize] = event.version();
            }
        }
    }

    /// The finding, of this anomaly.
    pub(super) fn tell(mut self, model: &str, is_least: bool, anomaly: Anomaly) -> Finding {
        let count = self.facts.len() as usize;
        let least = match (count, is_least) {
            (1, _) => "This transaction",
            (_, true) => "These transactions, of which none can be left out,",
            (_, false) => "These transactions",
        };
        let _ = write!(self.text, "{least} cannot be {model}. Let:");
        for number in 0..count.min(SHOWN_MAX) {
            let shown = self.shown(number);
            let _ = write!(self.text, "\n  T{} = {shown}", number + 1);
        }
        if count > SHOWN_MAX {
            let _ = write!(self.text, "\n  … {} more", count - SHOWN_MAX);
        }
        let mut steps = Vec::new();
        if count <= ARGUED_MAX {
            self.text.push_str("\nThen:");
            if let End::Cycle(cycle) = self.argue(self.evident(), 1) {
                let cycle: Vec<Edge> = cycle.into_iter().filter(|edge| edge.kind != 0).collect();
                steps = cycle.iter().map(|edge| self.step(edge)).collect();
                let nodes: Vec<u32> = cycle
                    .iter()
                    .map(|edge| self.transaction(edge.from))
                    .collect();
                let kinds: Vec<u8> = cycle.iter().map(|edge| edge.kind).collect();
                let written = |number| {
                    let versions = self.facts.writes.of(number).iter();
                    versions
                        .map(|&version| self.facts.version_keys[version as usize])
                        .collect()
                };
                if let Some(shape) = shape::<u32>(&nodes, &kinds, written) {
                    let _ = write!(self.text, "\n{shape}");
                }
            }
        }
        let operations = self
            .names
            .iter()
            .map(|&name| self.columns.index(name))
            .collect();
        Finding {
            anomaly,
            summary: self.text,
            operations,
            steps,
        }
    }

    /// A transaction on one line; of a long one what it did with keys that others of the core wrote or read as well.
    fn shown(&self, number: usize) -> String {
        let name = self.names[number];
        let events = self.columns.events(name);
        if events.len() <= EVENTS_MAX {
            return self.columns.shown(name);
        }
        let is_shared = |key: u32| {
            let others = self.names.iter().filter(|&&other| other != name);
            let mut events = others.flat_map(|&other| self.columns.events(other));
            events.any(|event| event.key() == key)
        };
        let shown = events.iter().filter(|event| is_shared(event.key()));
        let shown: Vec<_> = shown
            .map(|&event| self.columns.shown_event(event))
            .collect();
        let left = events.len() - shown.len();
        let name = self.columns.name(name);
        format!("{name}: [{} … and {left} more]", shown.join(" "))
    }

    fn snapshot(&self, number: u32) -> u32 {
        number * self.promise.axiom.events()
    }

    fn commit(&self, number: u32) -> u32 {
        (number + 1) * self.promise.axiom.events() - 1
    }

    fn transaction(&self, event: u32) -> u32 {
        event / self.promise.axiom.events()
    }

    /// What needs no argument: session order, real time, reads after what they saw, initial states before all else.
    fn evident(&self) -> Knowledge {
        let mut known = Knowledge::default();
        let facts = self.facts;
        let mut link = |from, to, kind| {
            known.edges.push(Edge {
                from,
                to,
                kind,
                versions: (NONE, NONE),
                because: NONE,
            });
        };
        for number in 0..facts.len() {
            if self.promise.axiom.events() == 2 {
                link(self.snapshot(number), self.commit(number), 0);
            }
            for other in 0..facts.len() {
                let (one, next) = (other as usize, number as usize);
                let session = other < number && facts.sessions[one] == facts.sessions[next];
                let time = facts.times[one].1 != NONE
                    && facts.times[next].0 != NONE
                    && facts.times[one].1 < facts.times[next].0;
                if self.promise.follows != Follows::Nothing && session && facts.completed[one] {
                    link(self.commit(other), self.snapshot(number), PROCESS);
                } else if self.promise.follows == Follows::Time && time {
                    link(self.commit(other), self.snapshot(number), REALTIME);
                }
            }
        }
        for (version, readers) in self.readers.iter().enumerate() {
            let writer = facts.writers[version];
            for &reader in readers.iter().filter(|_| writer != NONE) {
                known.edges.push(Edge {
                    from: self.commit(writer),
                    to: self.snapshot(reader),
                    kind: WR,
                    versions: (version as u32, version as u32),
                    because: NONE,
                });
            }
        }
        for (one, other) in self.pairs() {
            if facts.is_initial(one) {
                self.order(&mut known, one, other, NONE);
            }
        }
        known
    }

    /// All pairs of versions of a key.
    fn pairs(&self) -> Vec<(u32, u32)> {
        let all = 0..self.facts.versions() as u32;
        let keys = &self.facts.version_keys;
        let mut by_key: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for version in all {
            by_key
                .entry(keys[version as usize])
                .or_default()
                .push(version);
        }
        let mut pairs = Vec::new();
        for versions in by_key.values() {
            for (at, &one) in versions.iter().enumerate() {
                pairs.extend(versions[at + 1..].iter().map(|&other| (one, other)));
            }
        }
        pairs
    }

    /// The edges that say that one version comes before another.
    fn edges(&self, first: u32, second: u32, because: u32) -> Vec<Edge> {
        let facts = self.facts;
        let next = facts.writers[second as usize];
        let mut edges = Vec::new();
        let mut link = |from, to, kind| {
            edges.push(Edge {
                from,
                to,
                kind,
                versions: (first, second),
                because,
            });
        };
        let writer = facts.writers[first as usize];
        if writer != NONE {
            let to = match self.promise.axiom {
                Axiom::Snapshot => self.snapshot(next),
                _ => self.commit(next),
            };
            link(self.commit(writer), to, WW);
        }
        for &reader in &self.readers[first as usize] {
            if reader != next {
                link(self.snapshot(reader), self.commit(next), RW);
            }
        }
        edges
    }

    fn order(&self, known: &mut Knowledge, first: u32, second: u32, because: u32) {
        known.edges.extend(self.edges(first, second, because));
        known.ordered.insert((first, second));
    }

    /// A shortest way over edges, numbered from 0 and then those of `more`; empty when it is no way at all.
    fn way(&self, edges: &[&Edge], from: u32, to: u32) -> Option<Vec<Edge>> {
        if from == to {
            return Some(Vec::new());
        }
        let mut origins: BTreeMap<u32, &Edge> = BTreeMap::new();
        let mut waiting = vec![from];
        let mut next = 0;
        while let Some(&node) = waiting.get(next) {
            next += 1;
            for edge in edges.iter().filter(|edge| edge.from == node) {
                // Whoever did not see an overwrite need not come before it.
                if self.promise.axiom == Axiom::Parallel && edge.kind == RW {
                    continue;
                }
                if edge.to != from && !origins.contains_key(&edge.to) {
                    origins.insert(edge.to, edge);
                    waiting.push(edge.to);
                }
            }
            if origins.contains_key(&to) {
                let mut way = Vec::new();
                let mut node = to;
                while node != from {
                    let edge = origins[&node];
                    way.push(edge.clone());
                    node = edge.from;
                }
                way.reverse();
                return Some(way);
            }
        }
        None
    }

    /// A shortest cycle through one of `through` over these and `edges`.
    fn cycle(&self, edges: &[Edge], through: &[Edge]) -> Option<Vec<Edge>> {
        let all: Vec<&Edge> = edges.iter().chain(through).collect();
        let cycles = through.iter().filter_map(|edge| {
            let mut cycle = vec![edge.clone()];
            cycle.extend(self.way(&all, edge.to, edge.from)?);
            Some(cycle)
        });
        cycles.min_by_key(Vec::len)
    }

    /// Draws conclusions until nothing is possible any more.
    fn argue(&mut self, mut known: Knowledge, depth: usize) -> End {
        loop {
            let edges = std::mem::take(&mut known.edges);
            let cycle = self.cycle(&[], &edges);
            known.edges = edges;
            if let Some(cycle) = cycle {
                self.conclude(&known, &cycle, depth);
                return End::Cycle(cycle);
            }
            let open = self.pairs().into_iter().filter(|&(one, other)| {
                !known.ordered.contains(&(one, other)) && !known.ordered.contains(&(other, one))
            });
            let open: Vec<_> = open.collect();
            let mut is_new = false;
            for &(one, other) in &open {
                for (first, second) in [(one, other), (other, one)] {
                    let opposite = self.edges(second, first, NONE);
                    if let Some(cycle) = self.cycle(&known.edges, &opposite) {
                        let number = known.derived.len() as u32;
                        known.derived.push(Derived {
                            first,
                            second,
                            cycle,
                        });
                        self.order(&mut known, first, second, number);
                        is_new = true;
                        break;
                    }
                }
                if is_new {
                    break;
                }
            }
            if is_new {
                continue;
            }
            let Some(&(one, other)) = open.first().filter(|_| self.cases < CASES_MAX) else {
                self.line(
                    depth,
                    "… and so on: every further order of versions fails as well.",
                );
                return End::Untold;
            };
            self.cases += 1;
            for (first, second) in [(one, other), (other, one)] {
                let text = format!("Suppose {}:", self.versions(first, second));
                self.line(depth, &text);
                let mut case = known.clone();
                self.order(&mut case, first, second, NONE);
                self.argue(case, depth + 1);
            }
            return End::Cases;
        }
    }

    fn line(&mut self, depth: usize, text: &str) {
        let _ = write!(self.text, "\n{}- {text}", "  ".repeat(depth));
    }

    /// Tells a cycle, and before it what it needs.
    fn conclude(&mut self, known: &Knowledge, cycle: &[Edge], depth: usize) {
        let mut needed = BTreeSet::new();
        let mut waiting: Vec<u32> = cycle.iter().map(|edge| edge.because).collect();
        while let Some(number) = waiting.pop() {
            if number != NONE && needed.insert(number) {
                let cycle = &known.derived[number as usize].cycle;
                waiting.extend(cycle.iter().map(|edge| edge.because));
            }
        }
        for number in needed {
            let Derived {
                first,
                second,
                cycle,
            } = &known.derived[number as usize];
            let text = format!(
                "{}, for else {}: a contradiction.",
                self.versions(*first, *second),
                self.told(cycle)
            );
            self.line(depth, &text);
        }
        let text = format!("{}: a contradiction!", self.told(cycle));
        self.line(depth, &text);
    }

    /// "x = 1 of T1 comes before x = 2 of T2".
    fn versions(&self, first: u32, second: u32) -> String {
        let key = self.columns.key(self.key(second));
        let writer = self.facts.writers[second as usize];
        let before = match self.facts.writers[first as usize] {
            NONE => "the initial state".to_owned(),
            writer => format!("{} of T{}", self.value(first), writer + 1),
        };
        format!(
            "of key {key}, {before} comes before {} of T{}",
            self.value(second),
            writer + 1
        )
    }

    fn key(&self, version: u32) -> u32 {
        self.columns.key_of(self.versions[version as usize])
    }

    fn value(&self, version: u32) -> String {
        match self.versions[version as usize] {
            NONE => "nil".into(),
            version => self.columns.shown_value(version),
        }
    }

    /// "T1 < T2 (…), T2 < T1 (…)".
    fn told(&self, cycle: &[Edge]) -> String {
        let told = cycle.iter().filter(|edge| edge.kind != 0).map(|edge| {
            let (from, to) = (
                self.transaction(edge.from) + 1,
                self.transaction(edge.to) + 1,
            );
            format!("T{from} < T{to} ({})", self.reason(edge))
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// Why the one comes before the other.
    fn reason(&self, edge: &Edge) -> String {
        let (from, to) = (
            self.transaction(edge.from) + 1,
            self.transaction(edge.to) + 1,
        );
        let (first, second) = edge.versions;
        match edge.kind {
            PROCESS => format!("T{from} came before T{to} in their session"),
            REALTIME => format!("T{from} had completed when T{to} was invoked"),
            WR => format!(
                "T{to} read {} of key {} from T{from}",
                self.value(first),
                self.columns.key(self.key(first))
            ),
            WW => format!(
                "T{to} overwrote {} of key {} with {}",
                self.value(first),
                self.columns.key(self.key(second)),
                self.value(second)
            ),
            _ => format!(
                "T{from} read {} of key {} and not yet {} of T{to}",
                self.value(first),
                self.columns.key(self.key(second)),
                self.value(second)
            ),
        }
    }

    fn step(&self, edge: &Edge) -> Step {
        let index = |event: u32| {
            self.columns
                .index(self.names[self.transaction(event) as usize])
        };
        Step {
            from: index(edge.from),
            to: index(edge.to),
            relation: relation(edge.kind),
            reason: self.reason(edge),
        }
    }
}
