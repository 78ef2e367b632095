//! The check of findings about registers: reads that are wrong at any level, and cycles with assumptions about versions.

use super::version_rules::{VersionRules, key_of};
use super::{NamedTransaction, is_weak, writer};
use crate::certificate::{Certificate, CycleEdge, Evidence};
use crate::keyed_rows::WrittenValues;
use crate::models::is_committed;
use crate::packed_records::TransactionAccesses;
use crate::transaction_table::{RecordedTransaction, RegisterState, TransactionTable};
use crate::verifier::cycle;
use std::collections::{BTreeMap, BTreeSet};

/// The transactions that findings name, and the writers of all values.
pub(super) struct RegisterFindings<'a> {
    table: &'a TransactionTable,
    /// By index: its number, the transaction, and its micro-operations.
    named: BTreeMap<u64, (u32, RecordedTransaction, TransactionAccesses)>,
    written: WrittenValues,
    /// Transactions of unknown outcome that were read from, if the model takes that for a commit.
    seen: BTreeSet<u32>,
    rules: VersionRules<'a>,
}

impl<'a> RegisterFindings<'a> {
    pub(super) fn new(
        table: &'a TransactionTable,
        certificate: &'a Certificate,
        findings: &[Evidence],
    ) -> RegisterFindings<'a> {
        let named = table
            .by_index(findings.iter().flat_map(indices))
            .into_iter();
        let named = named.map(|(index, number)| {
            let (row, events) = table.get(number);
            (index, (number, row, events))
        });
        let mut faults = RegisterFindings {
            table,
            named: named.collect(),
            written: WrittenValues::new(table, |_| true),
            seen: BTreeSet::new(),
            rules: VersionRules::new(certificate),
        };
        if is_committed(&certificate.model) {
            faults.note_seen();
        }
        faults
    }

    /// Finds the named transactions of unknown outcome that were read from.
    fn note_seen(&mut self) {
        let table = self.table;
        let unknown = self.named.values();
        let unknown = unknown.filter(|(_, one, _)| !one.is_ok() && !one.is_fail());
        let unknown: BTreeSet<u32> = unknown.map(|(number, ..)| *number).collect();
        if unknown.is_empty() {
            return;
        }
        for (_, _, events) in table.each().filter(|(_, one, _)| one.is_ok()) {
            for event in events.iter() {
                if let Some(RegisterState(Some(value))) = event.read()
                    && let Some(writer) = writer(table, &self.written, event.key, value)
                    && unknown.contains(&writer.transaction)
                {
                    self.seen.insert(writer.transaction);
                }
            }
        }
    }

    /// The transaction that this operation completes.
    pub(super) fn one(&self, index: u64) -> Result<NamedTransaction<'_>, String> {
        let found = self.named.get(&index);
        let (number, row, events) =
            found.ok_or_else(|| format!("op {index} completes no transaction"))?;
        Ok(NamedTransaction {
            number: *number,
            row,
            events,
            happened: row.is_ok() || self.seen.contains(number),
        })
    }

    /// Checks that this evidence shows its anomaly.
    pub(super) fn finding(&self, model: &str, finding: &Evidence) -> Result<(), String> {
        let named = |reason: String| format!("{}: {reason}", finding.anomaly);
        if !finding.steps.is_empty() {
            return cycle(finding, |edge| self.precedes(edge)).map_err(named);
        }
        if let Some(versions) = &finding.versions {
            let one = |index| self.one(index);
            let contradiction =
                self.rules
                    .contradiction(self.table, &finding.anomaly, versions, one);
            return contradiction.map_err(named);
        }
        let all = finding.operations.iter();
        let all: Vec<NamedTransaction<'_>> = all
            .map(|&index| self.one(index))
            .collect::<Result<_, _>>()?;
        // The same transaction twice shows nothing: it may read its own intermediate write, and update what it read.
        let distinct: BTreeSet<u32> = all.iter().map(|one| one.number).collect();
        if distinct.len() < all.len() {
            return Err(named("it names a transaction twice".into()));
        }
        let is_written = |key, RegisterState(value): RegisterState| {
            value.is_none_or(|value| writer(self.table, &self.written, key, value).is_some())
        };
        let holds = match (finding.anomaly.as_str(), &all[..]) {
            ("garbage-read", &[one]) => one.reads().any(|(key, state)| !is_written(key, state)),
            ("internal", &[one]) => contradicts_itself(one, !is_weak(model)),
            ("future-read", &[one]) => reads_its_future(one),
            ("G1a", &[reader, writer]) => {
                let mut reads = reader.reads();
                writer.row.is_fail()
                    && reads.any(|(key, RegisterState(value))| {
                        writer.writes(key, value).is_some() && self.is_aborted(key, value)
                    })
            }
            ("G1b", &[reader, writer]) => {
                let mut reads = reader.reads();
                reads.any(|(key, RegisterState(value))| writer.writes(key, value) == Some(false))
            }
            ("lost-update", all) => {
                all.len() > 1 && all.iter().all(|one| one.row.is_ok()) && are_updates(all)
            }
            _ => false,
        };
        if holds && all.first().is_some_and(|one| one.row.is_ok()) {
            Ok(())
        } else {
            Err(named("the operations do not show it".into()))
        }
    }

    /// Did only failed transactions write this value?
    fn is_aborted(&self, key: u32, value: Option<i64>) -> bool {
        let known = value.and_then(|value| writer(self.table, &self.written, key, value));
        known.is_some_and(|known| self.table.one(known.transaction).is_fail())
    }

    /// Did both transactions take place, the first before the second by this edge?
    fn precedes(&self, edge: &CycleEdge) -> Result<bool, String> {
        let (one, other) = (self.one(edge.from)?, self.one(edge.to)?);
        if !one.happened || !other.happened || one.number == other.number {
            return Ok(false);
        }
        Ok(match edge.relation.as_str() {
            "process" => one.row.is_run_before(other.row),
            "realtime" => one.row.is_over_before(other.row),
            "wr" => {
                let mut reads = other.reads();
                other.row.is_ok()
                    && reads.any(|(key, RegisterState(value))| {
                        let known = value.and_then(|it| writer(self.table, &self.written, key, it));
                        known.is_some_and(|known| known.transaction == one.number)
                    })
            }
            relation @ ("ww" | "rw") => {
                let Some(versions) = &edge.versions else {
                    return Err("it does not say why versions are in this order".into());
                };
                let (first, last) = self.rules.path(self.table, versions, |op| self.one(op))?;
                let key = key_of(self.table, versions, &[one, other])?;
                let begins = if relation == "ww" {
                    first.is_some() && one.leaves(key, first)
                } else {
                    one.row.is_ok() && one.meets(key, first).is_some_and(|met| !met.is_write)
                };
                begins && last.is_some() && other.leaves(key, last)
            }
            _ => false,
        })
    }
}

/// The indices of all operations that a finding names.
fn indices(finding: &Evidence) -> Vec<u64> {
    let mut all = finding.operations.clone();
    all.extend(finding.steps.iter().flat_map(|edge| [edge.from, edge.to]));
    let inner = finding
        .steps
        .iter()
        .filter_map(|edge| edge.versions.as_ref());
    for step in inner.chain(&finding.versions).flat_map(|it| &it.steps) {
        all.extend(step.operations.iter().chain(&step.above).chain(&step.below));
    }
    all
}

/// Does it read another value than it wrote (or, if that counts, read) before?
fn contradicts_itself(one: NamedTransaction<'_>, with_reads: bool) -> bool {
    let mut known: BTreeMap<u32, RegisterState> = BTreeMap::new();
    one.events.iter().any(|event| {
        if let Some(value) = event.written() {
            known.insert(event.key, RegisterState(Some(value)));
        }
        let Some(state) = event.read() else {
            return false;
        };
        let before = if with_reads {
            known.insert(event.key, state)
        } else {
            known.get(&event.key).copied()
        };
        before.is_some_and(|before| before != state)
    })
}

fn reads_its_future(one: NamedTransaction<'_>) -> bool {
    one.events.iter().enumerate().any(|(at, event)| {
        let mut later = one.events[at..].iter();
        let written =
            |value| later.any(|later| later.key == event.key && later.written() == Some(value));
        event.read().and_then(|read| read.0).is_some_and(written)
    })
}

/// Did all read the same version of a register before they wrote it?
fn are_updates(all: &[NamedTransaction<'_>]) -> bool {
    let mut reads = all[0].reads();
    reads.any(|(key, RegisterState(value))| all.iter().all(|one| one.updates(key, value).is_some()))
}
