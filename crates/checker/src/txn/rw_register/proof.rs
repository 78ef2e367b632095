//! Findings with the operations that justify each step.

use super::inference::{Source, Sources};
use super::orders::{Contradiction, Orders};
use super::reasons::{Ends, Meeting};
use crate::txn::graph::{RW, WW};
use crate::txn::registers::{Event, NONE};
use crate::txn::search::Cycle;
use crate::{Anomaly, Edge, Evidence, Finding, VersionStep, Versions};
use std::collections::BTreeMap;

/// What the rule is called by which nothing comes before the initial state.
const INITIAL: &str = "initial-state";

impl Orders<'_> {
    /// A cycle as evidence (`finding` tells it), if every step of it has a reason that can be shown.
    pub(super) fn cycle_evidence(&self, finding: &Finding, cycle: &Cycle) -> Option<Evidence> {
        let mut evidence = Evidence::from(finding);
        for (at, edge) in evidence.steps.iter_mut().enumerate() {
            let next = (at + 1) % cycle.nodes.len();
            let (from, to) = (cycle.nodes[at], cycle.nodes[next]);
            if let kind @ (WW | RW) = cycle.edges[at] {
                edge.versions = Some(self.edge_versions(from, to, kind)?);
            }
        }
        Some(evidence)
    }

    /// Versions that contradict one another as evidence.
    pub(super) fn contradiction_evidence(
        &self,
        anomaly: Anomaly,
        contradiction: &Contradiction,
    ) -> Option<Evidence> {
        let cycle = &contradiction.cycle;
        let mut steps = Vec::new();
        for (at, &from) in cycle.iter().enumerate() {
            let to = cycle[(at + 1) % cycle.len()];
            steps.extend(self.path(from, to, contradiction.sources)?);
        }
        let operations = steps.iter().flat_map(|step| &step.operations);
        let mut operations: Vec<u64> = operations.copied().collect();
        operations.sort_unstable();
        operations.dedup();
        Some(Evidence {
            anomaly: anomaly.to_owned(),
            operations,
            steps: Vec::new(),
            versions: Some(self.versions(contradiction.key, steps)),
        })
    }

    fn versions(&self, key: u32, steps: Vec<VersionStep>) -> Versions {
        let key = self.touches.columns.key(key).to_string();
        Versions { key, steps }
    }

    /// Why a version that `from` wrote (or read) comes before one that `to` wrote.
    fn edge_versions(&self, from: u32, to: u32, kind: u8) -> Option<Versions> {
        let earlier: Vec<_> = if kind == WW {
            self.writes(from).collect()
        } else {
            self.reads(from).collect()
        };
        earlier.into_iter().find_map(|event| {
            let key = event.key();
            let mut later = self.writes(to).filter(|write| write.key() == key);
            let sources = self.sources(key);
            let steps =
                later.find_map(|write| self.path(event.version(), write.version(), sources))?;
            Some(self.versions(key, steps))
        })
    }

    /// Why a version comes before another of the same key, over versions that nobody installed if need be.
    fn path(&self, from: u32, to: u32, sources: Sources) -> Option<Vec<VersionStep>> {
        if from == to {
            return None;
        }
        let columns = self.touches.columns;
        let key = columns.key_of(from);
        let strangers = self.strangers.iter().copied();
        let strangers = strangers.filter(|&version| columns.key_of(version) == key);
        let mut left: Vec<u32> = strangers.filter(|&it| it != from && it != to).collect();
        let mut reached: Vec<(u32, Vec<VersionStep>)> = vec![(from, Vec::new())];
        let mut next = 0;
        while let Some((at, known)) = reached.get(next).cloned() {
            if let Some(steps) = self.shown(at, to, sources) {
                return Some([known, steps].concat());
            }
            left.retain(|&version| match self.shown(at, version, sources) {
                Some(steps) => {
                    reached.push((version, [&known[..], &steps].concat()));
                    false
                }
                None => true,
            });
            next += 1;
        }
        None
    }

    /// Why a version comes before another, by one of these sources, with what chains of updates make of it.
    fn shown(&self, from: u32, to: u32, sources: Sources) -> Option<Vec<VersionStep>> {
        let columns = self.touches.columns;
        if columns.is_initial(from) {
            return Some(vec![self.step(from, to, INITIAL, Vec::new())]);
        }
        let exact = self.met(&Ends::new(from, to), sources);
        if let Some((source, pairs)) = exact {
            let steps = pairs.into_iter().map(|pair| self.met_step(source, pair));
            return steps.collect();
        }
        if !sources.has(Source::Rmw) {
            return None;
        }
        let updates = self.updates_of(columns.key_of(from));
        if self.chains.head(from) == self.chains.head(to) {
            let path = self.updates_between(from, to, &updates)?;
            return Some(
                path.into_iter()
                    .map(|update| self.update_step(update))
                    .collect(),
            );
        }
        let head = self.chains.head(from);
        if columns.is_initial(head) {
            let above = self.updates_between(head, from, &updates)?;
            let mut step = self.step(from, to, INITIAL, Vec::new());
            step.above = self.indices(&above);
            return Some(vec![step]);
        }
        let ends = Ends::new(from, to).chained(&self.chains);
        let (source, pairs) = self.met(&ends, sources)?;
        let mut at = from;
        let mut steps = Vec::new();
        for (number, &pair) in pairs.iter().enumerate() {
            let end = if number + 1 == pairs.len() {
                to
            } else {
                pair.1.version
            };
            self.lead(at, end, source, pair, &updates, &mut steps)?;
            at = end;
        }
        Some(steps)
    }

    /// Leads from one version to another of other chains: what a source says of two versions of these is true of all of them.
    fn lead(
        &self,
        from: u32,
        to: u32,
        source: Source,
        pair: (Meeting, Meeting),
        updates: &Updates,
        steps: &mut Vec<VersionStep>,
    ) -> Option<()> {
        let (x, y) = (pair.0.version, pair.1.version);
        let mut step = self.met_step(source, pair)?;
        if let Some(path) = self.updates_between(from, x, updates) {
            steps.extend(path.into_iter().map(|update| self.update_step(update)));
        } else {
            step.above = self.indices(&self.updates_between(x, from, updates)?);
            step.from = self.touches.columns.value(from);
        }
        let behind = self.updates_between(y, to, updates);
        if behind.is_none() {
            step.below = self.indices(&self.updates_between(to, y, updates)?);
            step.to = self.touches.columns.value(to);
        }
        steps.push(step);
        let behind = behind.unwrap_or_default().into_iter();
        steps.extend(behind.map(|update| self.update_step(update)));
        Some(())
    }

    fn step(&self, from: u32, to: u32, rule: &str, operations: Vec<u64>) -> VersionStep {
        let columns = self.touches.columns;
        VersionStep {
            from: columns.value(from),
            to: columns.value(to),
            rule: rule.to_owned(),
            operations,
            ..VersionStep::default()
        }
    }

    /// What a source says by two meetings. `None` where a transaction contradicts itself, and met the versions the other way
    /// round only.
    fn met_step(&self, source: Source, (one, other): (Meeting, Meeting)) -> Option<VersionStep> {
        let events = self.touches.columns.events(one.transaction);
        let is_met = |event: &Event, meeting: Meeting| {
            (!event.is_write() || event.is_final_write()) && event.version() == meeting.version
        };
        let first = events.iter().position(|event| is_met(event, one));
        let last = events.iter().rposition(|event| is_met(event, other));
        if one.transaction == other.transaction && first >= last {
            return None;
        }
        let mut operations = self.indices_of([one.transaction, other.transaction]);
        operations.dedup();
        Some(self.step(one.version, other.version, source.name(), operations))
    }

    fn update_step(&self, (transaction, read, write): (u32, u32, u32)) -> VersionStep {
        let operations = self.indices_of([transaction]);
        self.step(read, write, Source::Wfr.name(), operations)
    }

    fn indices_of(&self, transactions: impl IntoIterator<Item = u32>) -> Vec<u64> {
        let columns = self.touches.columns;
        let indices = transactions.into_iter().map(|one| columns.index(one));
        indices.collect()
    }

    fn indices(&self, updates: &[(u32, u32, u32)]) -> Vec<u64> {
        self.indices_of(updates.iter().map(|update| update.0))
    }

    /// Who read a version of a key and wrote the next.
    fn updates_of(&self, key: u32) -> Updates {
        let touches = self.touches.of_key(key).iter();
        let updates = touches.filter(|touch| touch.read != NONE && touch.write != NONE);
        updates
            .map(|touch| ((touch.read, touch.write), touch.transaction))
            .collect()
    }

    /// The updates that lead along a chain from one version to another behind it (or itself): transaction, read, written.
    fn updates_between(
        &self,
        from: u32,
        to: u32,
        updates: &Updates,
    ) -> Option<Vec<(u32, u32, u32)>> {
        let mut path = Vec::new();
        let mut at = from;
        for version in self.chains.members(from).skip(1) {
            if at == to {
                break;
            }
            path.push((*updates.get(&(at, version))?, at, version));
            at = version;
        }
        (at == to).then_some(path)
    }
}

/// By version and the next one: who made an update of it.
type Updates = BTreeMap<(u32, u32), u32>;

/// All steps between versions.
fn steps(findings: &[Evidence]) -> impl Iterator<Item = &VersionStep> {
    let edges = findings.iter().flat_map(|finding| &finding.steps);
    let edges = edges.filter_map(|edge: &Edge| edge.versions.as_ref());
    let findings = findings.iter();
    let versions = findings.filter_map(|finding| finding.versions.as_ref());
    edges.chain(versions).flat_map(|versions| &versions.steps)
}

/// What these findings take for granted besides the history, by name.
pub(super) fn assumptions(findings: &[Evidence]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for step in steps(findings) {
        let is_chained = !(step.above.is_empty() && step.below.is_empty());
        let rule = (step.rule != INITIAL).then_some(step.rule.as_str());
        let rmw = is_chained.then_some(Source::Rmw.name());
        names.extend(rule.into_iter().chain(rmw).map(str::to_owned));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Numbers that a given order has for the operations that these findings name.
pub(super) fn order_of(findings: &[Evidence], order: &BTreeMap<u64, i64>) -> Vec<(u64, i64)> {
    let used = steps(findings).filter(|step| step.rule == Source::Order.name());
    let used = used.flat_map(|step| &step.operations);
    let known: BTreeMap<u64, i64> = used
        .filter_map(|index| Some((*index, *order.get(index)?)))
        .collect();
    known.into_iter().collect()
}
