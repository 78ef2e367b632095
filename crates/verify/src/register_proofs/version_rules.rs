//! The order of a register's versions: each step is looked up in the operations, by the rules that a certificate names.

use super::NamedTransaction;
use crate::certificate::{Certificate, VersionStep, Versions};
use crate::models::is_committed;
use crate::transaction_table::{RegisterState, TransactionTable};
use std::collections::BTreeMap;

/// The rules that a certificate assumes about registers.
pub(super) struct VersionRules<'a> {
    names: Vec<&'a str>,
    /// Numbers of operations in a given order.
    order: BTreeMap<u64, i64>,
}

/// The key of these versions, which one of these transactions accesses.
pub(super) fn key_of(
    table: &TransactionTable,
    versions: &Versions,
    all: &[NamedTransaction<'_>],
) -> Result<u32, String> {
    let events = all.iter().flat_map(|one| one.events);
    let mut keys = events.map(|event| event.key);
    let found = keys.find(|&key| table.name(key).to_string() == versions.key);
    found.ok_or_else(|| format!("none of the operations touches key {}", versions.key))
}

/// The first and the last of several consecutive versions.
type VersionEnds = (Option<i64>, Option<i64>);

impl<'a> VersionRules<'a> {
    pub(super) fn new(certificate: &'a Certificate) -> VersionRules<'a> {
        let mut names: Vec<&str> = vec!["initial-state"];
        if is_committed(&certificate.model) {
            // No other source of a version order exists for these models.
            names.push("wfr-keys");
        }
        names.extend(certificate.assumptions.iter().map(String::as_str));
        VersionRules {
            names,
            order: certificate.transaction_order.iter().copied().collect(),
        }
    }

    /// Checks that each version comes before the next. Returns the first and the last.
    pub(super) fn path<'b>(
        &self,
        table: &TransactionTable,
        versions: &Versions,
        one: impl Fn(u64) -> Result<NamedTransaction<'b>, String>,
    ) -> Result<VersionEnds, String> {
        let steps = &versions.steps;
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Err("it names no versions".into());
        };
        for (at, step) in steps.iter().enumerate() {
            if at > 0 && steps[at - 1].to != step.from {
                return Err("a version is not where the one before ended".into());
            }
            if !self.step(table, versions, step, &one)? {
                let show = |value: Option<i64>| value.map_or("nil".into(), |it| it.to_string());
                let (from, to) = (show(step.from), show(step.to));
                let (rule, key) = (&step.rule, &versions.key);
                return Err(format!(
                    "{rule} does not say that {from} comes before {to} in key {key}"
                ));
            }
        }
        Ok((first.from, last.to))
    }

    /// Checks that these versions form a cycle by rules that belong to this anomaly.
    pub(super) fn contradiction<'b>(
        &self,
        table: &TransactionTable,
        anomaly: &str,
        versions: &Versions,
        one: impl Fn(u64) -> Result<NamedTransaction<'b>, String>,
    ) -> Result<(), String> {
        let rank = |rule: &str| match rule {
            "initial-state" | "wfr-keys" | "cyclic-versions" => 0,
            "rmw-keys" | "cyclic-versions-rmw" => 1,
            "sequential-keys" | "cyclic-versions-process" => 2,
            "linearizable-keys" | "cyclic-versions-realtime" => 3,
            _ => 4,
        };
        if !anomaly.starts_with("cyclic-versions") {
            return Err("versions in a circle are another anomaly".into());
        }
        let needs = |step: &VersionStep| {
            let is_chained = !(step.above.is_empty() && step.below.is_empty());
            rank(&step.rule).max(u8::from(is_chained))
        };
        if versions.steps.iter().map(needs).max() > Some(rank(anomaly)) {
            return Err("it takes more for granted than its name says".into());
        }
        let (first, last) = self.path(table, versions, one)?;
        if first == last {
            Ok(())
        } else {
            Err("the versions do not go round in a circle".into())
        }
    }

    fn step<'b>(
        &self,
        table: &TransactionTable,
        versions: &Versions,
        step: &VersionStep,
        one: &impl Fn(u64) -> Result<NamedTransaction<'b>, String>,
    ) -> Result<bool, String> {
        let named = |rule: &str| {
            let is_named = self.names.contains(&rule);
            is_named
                .then_some(())
                .ok_or_else(|| format!("it does not say that it takes {rule} for granted"))
        };
        named(&step.rule)?;
        let all = |indices: &[u64]| -> Result<Vec<NamedTransaction<'b>>, String> {
            indices.iter().map(|&index| one(index)).collect()
        };
        let [met, above, below] = [&step.operations, &step.above, &step.below].map(|it| all(it));
        let (met, above, below) = (met?, above?, below?);
        if !met
            .iter()
            .chain(&above)
            .chain(&below)
            .all(|one| one.happened)
        {
            return Ok(false);
        }
        // All versions from the rule's earlier one back to `from`, and from the rule's later one on to `to`.
        let (mut earlier, mut later) = (vec![step.from], vec![step.to]);
        if !(above.is_empty() && below.is_empty()) {
            named("rmw-keys")?;
            let key = key_of(table, versions, &[&above[..], &below[..]].concat())?;
            for update in above.iter().rev() {
                let written = earlier[earlier.len() - 1];
                let read = written.and_then(|written| update.updated(key, written));
                let Some(RegisterState(read)) = read else {
                    return Ok(false);
                };
                earlier.push(read);
            }
            for update in &below {
                let Some(written) = update.updates(key, later[later.len() - 1]) else {
                    return Ok(false);
                };
                later.push(Some(written));
            }
        }
        if earlier.iter().any(|version| later.contains(version)) {
            return Ok(false);
        }
        let (x, y) = (earlier[earlier.len() - 1], later[later.len() - 1]);
        if step.rule == "initial-state" {
            return Ok(x.is_none() && met.is_empty());
        }
        let key = key_of(table, versions, &met)?;
        Ok(self.holds(&step.rule, key, &met, (x, y)))
    }

    /// Do these operations show that the first version comes before the second by this rule?
    fn holds(
        &self,
        rule: &str,
        key: u32,
        met: &[NamedTransaction<'_>],
        (x, y): VersionEnds,
    ) -> bool {
        match (rule, met) {
            // Within one transaction.
            ("wfr-keys", [one]) => one.updates(key, x).is_some_and(|it| Some(it) == y),
            ("sequential-keys" | "transaction-order", [one]) => one.meets_in_turn(key, (x, y)),
            (_, [one, other]) => {
                let is_met = one.meets(key, x).is_some() && other.meets(key, y).is_some();
                let is_before = match rule {
                    "sequential-keys" => one.row.is_run_before(other.row),
                    "linearizable-keys" => one.row.is_over_before(other.row),
                    "transaction-order" => {
                        let number = |one: &NamedTransaction<'_>| self.order.get(&one.row.index);
                        let both = number(one).zip(number(other));
                        both.is_some_and(|(one, other)| one < other)
                    }
                    _ => false,
                };
                is_met && is_before
            }
            _ => false,
        }
    }
}
