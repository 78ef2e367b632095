//! Sequential consistency and causal convergence: models that the crate `isolation` decides for transactions, here of one
//! operation each.

use crate::register_history::{RegisterEffect, RegisterHistory};
use seatrial_checker::{Finding, Verdict};
use seatrial_cycles::Position;
use seatrial_history::{FixedMap, Key, OpType, Symbol, Value};
use seatrial_isolation::registers::{Columns, ColumnsBuilder, ColumnsError};
use seatrial_isolation::{AxiomaticModel, Isolation};
use std::collections::BTreeSet;

/// Values that are no integers get numbers from this one on: no workload writes such integers.
const NUMBERED_FROM: i64 = i64::MIN + 1;

/// A history as transactions of one operation each. Each read must have a source.
pub(crate) struct SingleOperations<'h> {
    history: &'h RegisterHistory,
    /// Texts of the numbers that stand for other values.
    texts: Vec<(String, String)>,
}

impl<'h> SingleOperations<'h> {
    pub(crate) fn new(history: &'h RegisterHistory) -> SingleOperations<'h> {
        SingleOperations {
            history,
            texts: Vec::new(),
        }
    }

    /// The verdict for a model of transactions; its findings name the operations of the history.
    pub(crate) fn check(mut self, model: AxiomaticModel) -> Verdict {
        let columns = self.columns();
        let mut verdict = Isolation::new(model).check_gathered(columns);
        for finding in &mut verdict.findings {
            self.rename(finding);
        }
        verdict
    }

    fn columns(&mut self) -> Result<Columns, ColumnsError> {
        let history = self.history;
        let mut builder = ColumnsBuilder::default();
        for &(position, index) in &history.indices {
            builder.number_from(position, index);
        }
        let plain = Key::Word(Symbol::new("register"));
        let keys = history.keys.iter();
        let keys = keys.map(|key| builder.key(key.as_ref().unwrap_or(&plain)));
        let keys: Vec<_> = keys.collect();
        let is_taken = taken_processes(history);
        let mut numbers: FixedMap<u32, i64> = FixedMap::default();
        let mut is_used = vec![false; history.versions.len()];
        let mut fresh = NUMBERED_FROM;
        for action in &history.actions {
            let begun = Some(Position::new(action.call));
            let session = if is_taken[action.session as usize] {
                u64::MAX - u64::from(action.session)
            } else {
                history.processes[action.session as usize]
            };
            let transaction = builder.open(session, begun);
            builder.fill(transaction);
            let key = keys[action.key as usize];
            let mut number = |version: u32, texts: &mut Vec<(String, String)>| {
                let value = &history.versions[version as usize].value;
                match value {
                    Value::Nil => None,
                    Value::Int(value) => Some(*value),
                    other => Some(*numbers.entry(version).or_insert_with(|| {
                        fresh += 1;
                        texts.push((fresh.to_string(), other.to_string()));
                        fresh
                    })),
                }
            };
            if let Some(version) = action.read() {
                let value = number(version, &mut self.texts);
                builder.read_key(key, value);
            }
            if let Some(version) = action.written() {
                // A value that several operations wrote was not read: they may have any different numbers.
                let is_again = std::mem::replace(&mut is_used[version as usize], true);
                let value = number(version, &mut self.texts).filter(|_| !is_again);
                let value = value.unwrap_or_else(|| {
                    fresh += 1;
                    self.texts.push((fresh.to_string(), history.value(version)));
                    fresh
                });
                builder.write_key(key, value);
            }
            // One of unknown outcome was read from, so it took effect; without an end, it may have at any time.
            let is_compare = matches!(action.access, RegisterEffect::CompareAndSet(..));
            let outcome = if action.is_certain() || is_compare {
                OpType::Ok
            } else {
                OpType::Info
            };
            let ended = action.is_certain().then(|| Position::new(action.ret));
            builder.close(outcome, ended);
        }
        builder.finish()
    }

    /// Puts values in the place of the numbers that stand for them.
    fn rename(&self, finding: &mut Finding) {
        for (number, text) in &self.texts {
            if finding.summary.contains(number.as_str()) {
                finding.summary = finding.summary.replace(number.as_str(), text);
            }
            for step in &mut finding.steps {
                if step.reason.contains(number.as_str()) {
                    step.reason = step.reason.replace(number.as_str(), text);
                }
            }
        }
    }
}

/// By session: does an earlier session have the same process? Then it is one operation of unknown outcome.
fn taken_processes(history: &RegisterHistory) -> Vec<bool> {
    let mut seen = BTreeSet::new();
    let processes = history.processes.iter();
    processes.map(|process| !seen.insert(*process)).collect()
}
