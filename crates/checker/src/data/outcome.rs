//! What judging came to, key by key, and the verdict that it makes.

use super::element::{Element, intervals};
use super::set_full::quantiles;
use crate::txn::findings::{FINDINGS_MAX, Findings};
use crate::{Anomaly, Validity, Verdict};
use seatrial_history::Key;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// Runs of elements that a list in the details names.
const INTERVALS_MAX: usize = 64;
/// Keys of which the details have lists.
const LISTED_KEYS_MAX: usize = 8;

/// Keys that did not pass and are named in the details; of more, the first.
const RESULTS_MAX: usize = 64;

/// What was found of one key.
#[derive(Default)]
struct KeyResult {
    anomalies: BTreeSet<Anomaly>,
    /// Why the answer is unknown.
    unknown: Option<String>,
}

/// Counts, lists and findings of all keys so far.
#[derive(Default)]
pub(crate) struct Outcome {
    counts: BTreeMap<&'static str, u64>,
    lists: BTreeMap<&'static str, Vec<String>>,
    figures: BTreeMap<&'static str, Json>,
    /// Nanoseconds.
    samples: BTreeMap<&'static str, Vec<i64>>,
    findings: Findings,
    unknown: Option<String>,
    /// Why the first silent key says nothing.
    silence: Option<String>,
    silent_keys: u64,
    keys: u64,
    key: Option<Key>,
    /// Of the present key.
    result: KeyResult,
    keys_invalid: u64,
    keys_unknown: u64,
    /// Of keys that did not pass.
    results: serde_json::Map<String, Json>,
}

impl Outcome {
    /// What comes now is of this key.
    pub(super) fn of_key(&mut self, key: Option<Key>) {
        self.close_key();
        self.key = key;
        self.keys += 1;
    }

    /// Takes down what came of the present key, unless it passed.
    fn close_key(&mut self) {
        let KeyResult { anomalies, unknown } = std::mem::take(&mut self.result);
        let Some(key) = self.key.take() else {
            return;
        };
        let result = match (anomalies.is_empty(), unknown) {
            (false, _) => {
                self.keys_invalid += 1;
                json!({"valid": false, "anomalies": anomalies})
            }
            (true, Some(reason)) => {
                self.keys_unknown += 1;
                json!({"valid": "unknown", "reason": reason})
            }
            (true, None) => return,
        };
        if self.results.len() < RESULTS_MAX {
            self.results.insert(key.to_string(), result);
        }
    }

    fn prefix(&self) -> String {
        let key = self.key.as_ref();
        key.map_or_else(String::new, |key| format!("Key {key}: "))
    }

    /// Adds to the figure called `name`.
    pub(super) fn count(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }

    /// A figure that is no sum; of several keys, the last one's.
    pub(super) fn figure(&mut self, name: &'static str, figure: Json) {
        self.figures.insert(name, figure);
    }

    /// Durations in nanoseconds, of which the quantiles are told.
    pub(super) fn samples(&mut self, name: &'static str, samples: Vec<i64>) {
        self.samples.entry(name).or_default().extend(samples);
    }

    /// Names elements, which must be sorted, and counts them as `count`.
    pub(super) fn list<'e>(
        &mut self,
        name: &'static str,
        sorted: impl ExactSizeIterator<Item = &'e Element>,
    ) {
        let count = sorted.len() as u64;
        self.count(name, count);
        let prefix = self.prefix();
        let lists = self.lists.entry(name).or_default();
        if count > 0 && lists.len() < LISTED_KEYS_MAX {
            lists.push(format!("{prefix}{}", intervals(sorted, INTERVALS_MAX)));
        }
    }

    /// One more anomaly; `tell` says of which operations, and in words, when it is among the first.
    pub(super) fn anomaly(&mut self, anomaly: Anomaly, tell: impl FnOnce() -> (Vec<u64>, String)) {
        let prefix = self.prefix();
        self.result.anomalies.insert(anomaly);
        self.findings.tell(anomaly, || {
            let (operations, summary) = tell();
            (operations, format!("{prefix}{summary}"))
        });
    }

    /// So many more anomalies of one sort, of which the first is told.
    pub(super) fn anomalies(
        &mut self,
        anomaly: Anomaly,
        count: u64,
        tell: impl FnOnce() -> (Vec<u64>, String),
    ) {
        if count > 0 {
            self.anomaly(anomaly, tell);
            self.findings.count(anomaly, count - 1);
        }
    }

    /// The answer is not known for this reason, unless there is an anomaly. The first reason counts.
    pub(super) fn unknown(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        self.result.unknown.get_or_insert_with(|| reason.clone());
        let reason = format!("{}{reason}", self.prefix());
        self.unknown.get_or_insert(reason);
    }

    /// This key says nothing, for this reason. If none says anything, the answer is unknown.
    pub(super) fn silent(&mut self, reason: &str) {
        self.silent_keys += 1;
        self.result.unknown.get_or_insert_with(|| reason.into());
        let reason = format!("{}{reason}", self.prefix());
        self.silence.get_or_insert(reason);
    }

    /// The verdict of all that came.
    pub(super) fn verdict(mut self, checker: &'static str) -> Verdict {
        self.close_key();
        let mut verdict = Verdict::valid(checker);
        let (anomalies, findings) = self.findings.into_parts();
        verdict.anomalies = anomalies;
        verdict.findings = findings;
        verdict.details = json!(self.counts);
        verdict.details["findings_max"] = FINDINGS_MAX.into();
        verdict.details["silent_keys"] = self.silent_keys.into();
        if self.counts.get("keys").is_some_and(|&keys| keys > 0) {
            verdict.details["keys_invalid"] = self.keys_invalid.into();
            verdict.details["keys_unknown"] = self.keys_unknown.into();
            verdict.details["results"] = Json::Object(self.results);
        }
        verdict.details["lists"] = json!(self.lists);
        for (name, figure) in self.figures {
            verdict.details[name] = figure;
        }
        for (name, samples) in self.samples {
            verdict.details[name] = quantiles(samples);
        }
        if !verdict.anomalies.is_empty() {
            verdict.valid = Validity::Invalid;
            return verdict;
        }
        let silence = self.silence.filter(|_| self.silent_keys == self.keys);
        match self.unknown.or(silence) {
            Some(reason) => verdict.unknown(reason),
            None => verdict,
        }
    }
}
