//! The explanation why a few transactions have no order.

use super::constraints::Constraints;
use super::order_model::{Axiom, OrderModel, RespectedOrder};
use crate::explain::shape;
use crate::registers::Columns;
use seatrial_checker::{Anomaly, Finding, FindingStep};
use seatrial_cycles::graph::{PROCESS, REALTIME, RW, WR, WW, relation};
use seatrial_cycles::{NONE, Txn, Version, dense_id};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Largest core for which an argument is given, in transactions; a larger one is only listed.
const ARGUED_MAX: usize = 32;
/// Number of transactions that are listed.
const SHOWN_MAX: usize = 64;
/// Number of reads and writes of a transaction that are shown in any case.
const EVENTS_MAX: usize = 6;
/// Number of case distinctions after which the rest is left out.
const CASES_MAX: usize = 12;

dense_id! {
    /// A derived order, by its place in [`ArgumentState::derived`].
    DerivationId
}

/// One event comes before another.
#[derive(Clone, Debug)]
struct ExplainedEdge {
    from: u32,
    to: u32,
    /// The kind of dependency; 0 between the two events of a transaction.
    kind: u8,
    /// For a `ww` or `rw` edge: the two versions, in order; for a `wr` edge, twice the version that was read.
    versions: Option<(Version, Version)>,
    /// For a `ww` or `rw` edge: the derivation of that order; `None` if it is evident.
    because: Option<DerivationId>,
}

/// The order of two versions, derived by contradiction.
#[derive(Clone, Debug)]
struct DerivedOrder {
    first: u32,
    second: u32,
    /// The cycle that the opposite order would make.
    cycle: Vec<ExplainedEdge>,
}

/// The edges and orders of versions that are known at some point of the argument.
#[derive(Clone, Default)]
struct ArgumentState {
    edges: Vec<ExplainedEdge>,
    derived: Vec<DerivedOrder>,
    ordered: BTreeSet<(u32, u32)>,
}

/// How an argument ends.
enum ArgumentEnd {
    /// With this cycle.
    Cycle(Vec<ExplainedEdge>),
    /// With a case distinction in which both cases fail.
    Cases,
    /// Beyond what is written.
    Unwritten,
}

/// Writes the finding of a core: the transactions, then an argument by derived orders of versions, case distinctions and a
/// final cycle.
pub(super) struct CoreExplanation<'a> {
    constraints: &'a Constraints,
    columns: &'a Columns,
    model: OrderModel,
    /// By transaction: its number in the columns.
    names: &'a [u32],
    /// By version: that of the columns; `None` for an initial state.
    versions: Vec<Option<Version>>,
    readers: Vec<Vec<u32>>,
    cases: usize,
    text: String,
}

impl<'a> CoreExplanation<'a> {
    /// An explanation for these transactions, whose numbers in the columns are `names`.
    pub(super) fn new(
        constraints: &'a Constraints,
        names: &'a [u32],
        columns: &'a Columns,
        model: OrderModel,
    ) -> CoreExplanation<'a> {
        assert_eq!(
            names.len(),
            constraints.len() as usize,
            "a name for each transaction"
        );
        let mut readers = vec![Vec::new(); constraints.versions()];
        for number in 0..constraints.len() {
            for &version in constraints.reads.row(number) {
                readers[version as usize].push(number);
            }
        }
        let mut explanation = CoreExplanation {
            constraints,
            columns,
            model,
            names,
            versions: vec![None; constraints.versions()],
            readers,
            cases: 0,
            text: String::new(),
        };
        explanation.name_versions();
        explanation
    }

    /// Finds the columns' numbers of versions: the final writes of a transaction, in their order.
    fn name_versions(&mut self) {
        for number in 0..self.constraints.len() {
            let events = self.columns.events(self.names[number as usize]).iter();
            let finals = events.filter(|event| event.is_final_write());
            for (&version, event) in self.constraints.writes.row(number).iter().zip(finals) {
                self.versions[version as usize] = Some(event.version());
            }
        }
    }

    /// The finding, with this anomaly. `property` completes "cannot be …".
    pub(super) fn finding(mut self, property: &str, is_least: bool, anomaly: Anomaly) -> Finding {
        let count = self.constraints.len() as usize;
        let least = match (count, is_least) {
            (1, _) => "This transaction",
            (_, true) => "These transactions, of which none can be left out,",
            (_, false) => "These transactions",
        };
        let _ = write!(self.text, "{least} cannot be {property}. Let:");
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
            if let ArgumentEnd::Cycle(cycle) = self.argue(self.evident(), 1) {
                let cycle: Vec<ExplainedEdge> =
                    cycle.into_iter().filter(|edge| edge.kind != 0).collect();
                steps = cycle.iter().map(|edge| self.step(edge)).collect();
                let nodes: Vec<u32> = cycle
                    .iter()
                    .map(|edge| self.transaction(edge.from))
                    .collect();
                let kinds: Vec<u8> = cycle.iter().map(|edge| edge.kind).collect();
                let written = |number| {
                    let versions = self.constraints.writes.row(number).iter();
                    versions
                        .map(|&version| self.constraints.version_keys[version as usize])
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
            linearization: None,
        }
    }

    /// A transaction on one line; of a long one only its accesses to keys that others of the core access as well.
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
        number * self.model.axiom.events()
    }

    fn commit(&self, number: u32) -> u32 {
        (number + 1) * self.model.axiom.events() - 1
    }

    fn transaction(&self, event: u32) -> u32 {
        event / self.model.axiom.events()
    }

    /// The edges that need no argument: session order, real time, reads, and initial states before other versions.
    fn evident(&self) -> ArgumentState {
        let mut known = ArgumentState::default();
        let constraints = self.constraints;
        let mut link = |from, to, kind| {
            known.edges.push(ExplainedEdge {
                from,
                to,
                kind,
                versions: None,
                because: None,
            });
        };
        for number in 0..constraints.len() {
            if self.model.axiom.events() == 2 {
                link(self.snapshot(number), self.commit(number), 0);
            }
            for other in 0..constraints.len() {
                let (one, next) = (other as usize, number as usize);
                let session =
                    other < number && constraints.sessions[one] == constraints.sessions[next];
                let time = constraints.times[one].1 != NONE
                    && constraints.times[next].0 != NONE
                    && constraints.times[one].1 < constraints.times[next].0;
                if self.model.follows != RespectedOrder::Nothing
                    && session
                    && constraints.completed[one]
                {
                    link(self.commit(other), self.snapshot(number), PROCESS);
                } else if self.model.follows == RespectedOrder::Time && time {
                    link(self.commit(other), self.snapshot(number), REALTIME);
                }
            }
        }
        for (version, readers) in Version::all(self.readers.len()).zip(&self.readers) {
            let Some(writer) = constraints.writer(version.get()).map(Txn::get) else {
                continue;
            };
            for &reader in readers {
                known.edges.push(ExplainedEdge {
                    from: self.commit(writer),
                    to: self.snapshot(reader),
                    kind: WR,
                    versions: Some((version, version)),
                    because: None,
                });
            }
        }
        for (one, other) in self.pairs() {
            if constraints.is_initial(one) {
                self.order(&mut known, one, other, None);
            }
        }
        known
    }

    /// All pairs of versions of a key.
    fn pairs(&self) -> Vec<(u32, u32)> {
        let all = 0..self.constraints.versions() as u32;
        let keys = &self.constraints.version_keys;
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
    fn edges(&self, first: u32, second: u32, because: Option<DerivationId>) -> Vec<ExplainedEdge> {
        let constraints = self.constraints;
        let next = constraints.writer_of_written(second).get();
        let mut edges = Vec::new();
        let mut link = |from, to, kind| {
            edges.push(ExplainedEdge {
                from,
                to,
                kind,
                versions: Some((Version::new(first), Version::new(second))),
                because,
            });
        };
        if let Some(writer) = constraints.writer(first).map(Txn::get) {
            let to = match self.model.axiom {
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

    fn order(
        &self,
        known: &mut ArgumentState,
        first: u32,
        second: u32,
        because: Option<DerivationId>,
    ) {
        known.edges.extend(self.edges(first, second, because));
        known.ordered.insert((first, second));
    }

    /// A shortest path over edges; empty if it begins where it ends.
    fn path(&self, edges: &[&ExplainedEdge], from: u32, to: u32) -> Option<Vec<ExplainedEdge>> {
        if from == to {
            return Some(Vec::new());
        }
        let mut origins: BTreeMap<u32, &ExplainedEdge> = BTreeMap::new();
        let mut waiting = vec![from];
        let mut next = 0;
        while let Some(&node) = waiting.get(next) {
            next += 1;
            for edge in edges.iter().filter(|edge| edge.from == node) {
                // Under parallel snapshot isolation the reader of a version need not come before its overwrite.
                if self.model.axiom == Axiom::Parallel && edge.kind == RW {
                    continue;
                }
                if edge.to != from && !origins.contains_key(&edge.to) {
                    origins.insert(edge.to, edge);
                    waiting.push(edge.to);
                }
            }
            if origins.contains_key(&to) {
                let mut path = Vec::new();
                let mut node = to;
                while node != from {
                    let edge = origins[&node];
                    path.push(edge.clone());
                    node = edge.from;
                }
                path.reverse();
                return Some(path);
            }
        }
        None
    }

    /// A shortest cycle through one of `through`, over these edges and `edges`.
    fn cycle(
        &self,
        edges: &[ExplainedEdge],
        through: &[ExplainedEdge],
    ) -> Option<Vec<ExplainedEdge>> {
        let all: Vec<&ExplainedEdge> = edges.iter().chain(through).collect();
        let cycles = through.iter().filter_map(|edge| {
            let mut cycle = vec![edge.clone()];
            cycle.extend(self.path(&all, edge.to, edge.from)?);
            Some(cycle)
        });
        cycles.min_by_key(Vec::len)
    }

    /// Derives orders of versions until a cycle is known or nothing more follows; then distinguishes cases.
    fn argue(&mut self, mut known: ArgumentState, depth: usize) -> ArgumentEnd {
        loop {
            let edges = std::mem::take(&mut known.edges);
            let cycle = self.cycle(&[], &edges);
            known.edges = edges;
            if let Some(cycle) = cycle {
                self.conclude(&known, &cycle, depth);
                return ArgumentEnd::Cycle(cycle);
            }
            let open = self.pairs().into_iter().filter(|&(one, other)| {
                !known.ordered.contains(&(one, other)) && !known.ordered.contains(&(other, one))
            });
            let open: Vec<_> = open.collect();
            let mut is_new = false;
            for &(one, other) in &open {
                for (first, second) in [(one, other), (other, one)] {
                    let opposite = self.edges(second, first, None);
                    if let Some(cycle) = self.cycle(&known.edges, &opposite) {
                        let derivation = DerivationId::new(known.derived.len() as u32);
                        known.derived.push(DerivedOrder {
                            first,
                            second,
                            cycle,
                        });
                        self.order(&mut known, first, second, Some(derivation));
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
                return ArgumentEnd::Unwritten;
            };
            self.cases += 1;
            for (first, second) in [(one, other), (other, one)] {
                let text = format!("Suppose {}:", self.versions(first, second));
                self.line(depth, &text);
                let mut case = known.clone();
                self.order(&mut case, first, second, None);
                self.argue(case, depth + 1);
            }
            return ArgumentEnd::Cases;
        }
    }

    fn line(&mut self, depth: usize, text: &str) {
        let _ = write!(self.text, "\n{}- {text}", "  ".repeat(depth));
    }

    /// Writes a cycle, and before it the derivations on which it depends.
    fn conclude(&mut self, known: &ArgumentState, cycle: &[ExplainedEdge], depth: usize) {
        let mut needed = BTreeSet::new();
        let mut waiting: Vec<DerivationId> = cycle.iter().filter_map(|edge| edge.because).collect();
        while let Some(number) = waiting.pop() {
            if needed.insert(number) {
                let cycle = &known.derived[number.index()].cycle;
                waiting.extend(cycle.iter().filter_map(|edge| edge.because));
            }
        }
        for number in needed {
            let DerivedOrder {
                first,
                second,
                cycle,
            } = &known.derived[number.index()];
            let text = format!(
                "{}, for else {}: a contradiction.",
                self.versions(*first, *second),
                self.cycle_text(cycle)
            );
            self.line(depth, &text);
        }
        let text = format!("{}: a contradiction!", self.cycle_text(cycle));
        self.line(depth, &text);
    }

    /// "x = 1 of T1 comes before x = 2 of T2".
    fn versions(&self, first: u32, second: u32) -> String {
        let key = self.columns.key(self.key(second));
        let writer = self.constraints.writer_of_written(second).get();
        let before = match self.constraints.writer(first) {
            None => "the initial state".to_owned(),
            Some(writer) => format!("{} of T{}", self.value(first), writer.get() + 1),
        };
        format!(
            "of key {key}, {before} comes before {} of T{}",
            self.value(second),
            writer + 1
        )
    }

    fn key(&self, version: u32) -> u32 {
        // An initial state has the number of its key, here as in the columns.
        let written = self.versions[version as usize];
        written.map_or(version, |written| self.columns.key_of(written))
    }

    fn value(&self, version: u32) -> String {
        match self.versions[version as usize] {
            None => "nil".into(),
            Some(version) => self.columns.shown_value(version),
        }
    }

    /// "T1 < T2 (…), T2 < T1 (…)".
    fn cycle_text(&self, cycle: &[ExplainedEdge]) -> String {
        let edges = cycle.iter().filter(|edge| edge.kind != 0).map(|edge| {
            let (from, to) = (
                self.transaction(edge.from) + 1,
                self.transaction(edge.to) + 1,
            );
            format!("T{from} < T{to} ({})", self.reason(edge))
        });
        edges.collect::<Vec<_>>().join(", ")
    }

    /// Why the first event comes before the second.
    fn reason(&self, edge: &ExplainedEdge) -> String {
        let (from, to) = (
            self.transaction(edge.from) + 1,
            self.transaction(edge.to) + 1,
        );
        let versions = || edge.versions.expect("an edge of the data has versions");
        let (first, second) = match edge.kind {
            PROCESS => return format!("T{from} came before T{to} in their session"),
            REALTIME => return format!("T{from} had completed when T{to} was invoked"),
            _ => versions(),
        };
        let (first, second) = (first.get(), second.get());
        match edge.kind {
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

    fn step(&self, edge: &ExplainedEdge) -> FindingStep {
        let index = |event: u32| {
            self.columns
                .index(self.names[self.transaction(event) as usize])
        };
        FindingStep {
            from: index(edge.from),
            to: index(edge.to),
            relation: relation(edge.kind),
            reason: self.reason(edge),
        }
    }
}
