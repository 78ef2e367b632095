//! Evidence: findings with the operations that justify each step.

use super::inference::{SourceSet, VersionOrderSource};
use super::reasons::{OrderedEnds, ReasonAccess};
use super::version_orders::{Contradiction, VersionOrders};
use seatrial_checker::{Anomaly, Finding};
use seatrial_cycles::graph::{RW, WW};
use seatrial_cycles::search::Cycle;
use seatrial_cycles::{Txn, Version};
use seatrial_isolation::registers::RegisterEvent;
use seatrial_verify::{CycleEdge, Evidence, VersionStep, Versions};
use std::collections::BTreeMap;

/// The name of the rule that the initial state comes first.
const INITIAL: &str = "initial-state";

impl VersionOrders<'_> {
    /// The evidence of a cycle (the one in `finding`), if each of its steps has a reason that a certificate can express.
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

    /// The evidence of contradictory version orders.
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
        let key = self.accesses.columns.key(key).to_string();
        Versions { key, steps }
    }

    /// The reason why a version that `from` wrote (or read) comes before one that `to` wrote.
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

    /// The reason why a version comes before another of the same key, through uninstalled versions if necessary.
    fn path(&self, from: Version, to: Version, sources: SourceSet) -> Option<Vec<VersionStep>> {
        if from == to {
            return None;
        }
        let columns = self.accesses.columns;
        let key = columns.key_of(from);
        let uninstalled = self.uninstalled.iter().copied();
        let uninstalled = uninstalled.filter(|&version| columns.key_of(version) == key);
        let mut left: Vec<Version> = uninstalled.filter(|&it| it != from && it != to).collect();
        let mut reached: Vec<(Version, Vec<VersionStep>)> = vec![(from, Vec::new())];
        let mut next = 0;
        while let Some((at, known)) = reached.get(next).cloned() {
            if let Some(steps) = self.step_reason(at, to, sources) {
                return Some([known, steps].concat());
            }
            left.retain(|&version| match self.step_reason(at, version, sources) {
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

    /// The reason why a version comes before another, by one of these sources and by chains of updates.
    fn step_reason(
        &self,
        from: Version,
        to: Version,
        sources: SourceSet,
    ) -> Option<Vec<VersionStep>> {
        let columns = self.accesses.columns;
        if columns.is_initial(from) {
            return Some(vec![self.step(from, to, INITIAL, Vec::new())]);
        }
        let exact = self.met(&OrderedEnds::new(from, to), sources);
        if let Some((source, pairs)) = exact {
            let steps = pairs.into_iter().map(|pair| self.met_step(source, pair));
            return steps.collect();
        }
        if !sources.has(VersionOrderSource::Rmw) {
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
        let ends = OrderedEnds::new(from, to).chained(&self.chains);
        let (source, pairs) = self.met(&ends, sources)?;
        let mut at = from;
        let mut steps = Vec::new();
        for (number, &pair) in pairs.iter().enumerate() {
            let end = if number + 1 == pairs.len() {
                to
            } else {
                pair.1.version
            };
            self.lift_to_chains(at, end, source, pair, &updates, &mut steps)?;
            at = end;
        }
        Some(steps)
    }

    /// Adds the steps from one version to another of another chain: an order of two versions of the chains is one of all of them.
    fn lift_to_chains(
        &self,
        from: Version,
        to: Version,
        source: VersionOrderSource,
        pair: (ReasonAccess, ReasonAccess),
        updates: &Updates,
        steps: &mut Vec<VersionStep>,
    ) -> Option<()> {
        let (x, y) = (pair.0.version, pair.1.version);
        let mut step = self.met_step(source, pair)?;
        if let Some(path) = self.updates_between(from, x, updates) {
            steps.extend(path.into_iter().map(|update| self.update_step(update)));
        } else {
            step.above = self.indices(&self.updates_between(x, from, updates)?);
            step.from = self.accesses.columns.value(from);
        }
        let after = self.updates_between(y, to, updates);
        if after.is_none() {
            step.below = self.indices(&self.updates_between(to, y, updates)?);
            step.to = self.accesses.columns.value(to);
        }
        steps.push(step);
        let after = after.unwrap_or_default().into_iter();
        steps.extend(after.map(|update| self.update_step(update)));
        Some(())
    }

    fn step(&self, from: Version, to: Version, rule: &str, operations: Vec<u64>) -> VersionStep {
        let columns = self.accesses.columns;
        VersionStep {
            from: columns.value(from),
            to: columns.value(to),
            rule: rule.to_owned(),
            operations,
            ..VersionStep::default()
        }
    }

    /// The step of a source by two accesses. `None` for a transaction with an internal contradiction that accessed the versions
    /// in the opposite order only.
    fn met_step(
        &self,
        source: VersionOrderSource,
        (one, other): (ReasonAccess, ReasonAccess),
    ) -> Option<VersionStep> {
        let events = self.accesses.columns.events(one.transaction);
        let is_met = |event: &RegisterEvent, meeting: ReasonAccess| {
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

    fn update_step(&self, (transaction, read, write): (Txn, Version, Version)) -> VersionStep {
        let operations = self.indices_of([transaction.get()]);
        self.step(read, write, VersionOrderSource::Wfr.name(), operations)
    }

    fn indices_of(&self, transactions: impl IntoIterator<Item = u32>) -> Vec<u64> {
        let columns = self.accesses.columns;
        let indices = transactions.into_iter().map(|one| columns.index(one));
        indices.collect()
    }

    fn indices(&self, updates: &[(Txn, Version, Version)]) -> Vec<u64> {
        self.indices_of(updates.iter().map(|update| update.0.get()))
    }

    /// The updates of a key: transactions that read one version and wrote the next.
    fn updates_of(&self, key: u32) -> Updates {
        let accesses = self.accesses.of_key(key).iter();
        let updates = accesses.filter_map(|access| Some((access.update()?, access.transaction)));
        updates.collect()
    }

    /// The updates along a chain from one version to a later one (or itself): transaction, read, written.
    fn updates_between(
        &self,
        from: Version,
        to: Version,
        updates: &Updates,
    ) -> Option<Vec<(Txn, Version, Version)>> {
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

/// By version and successor: the transaction of the update.
type Updates = BTreeMap<(Version, Version), Txn>;

/// All steps between versions.
fn steps(findings: &[Evidence]) -> impl Iterator<Item = &VersionStep> {
    let edges = findings.iter().flat_map(|finding| &finding.steps);
    let edges = edges.filter_map(|edge: &CycleEdge| edge.versions.as_ref());
    let findings = findings.iter();
    let versions = findings.filter_map(|finding| finding.versions.as_ref());
    edges.chain(versions).flat_map(|versions| &versions.steps)
}

/// The assumptions of these findings, by name.
pub(super) fn assumptions(findings: &[Evidence]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for step in steps(findings) {
        let is_chained = !(step.above.is_empty() && step.below.is_empty());
        let rule = (step.rule != INITIAL).then_some(step.rule.as_str());
        let rmw = is_chained.then_some(VersionOrderSource::Rmw.name());
        names.extend(rule.into_iter().chain(rmw).map(str::to_owned));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// The numbers of the operations of these findings in a given order.
pub(super) fn order_of(findings: &[Evidence], order: &BTreeMap<u64, i64>) -> Vec<(u64, i64)> {
    let used = steps(findings).filter(|step| step.rule == VersionOrderSource::Order.name());
    let used = used.flat_map(|step| &step.operations);
    let known: BTreeMap<u64, i64> = used
        .filter_map(|index| Some((*index, *order.get(index)?)))
        .collect();
    known.into_iter().collect()
}
