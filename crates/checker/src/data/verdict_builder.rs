//! The verdict of a data type, built key by key.

use super::element::{Element, intervals};
use super::set_full::quantiles;
use crate::{
    Anomaly, DataTypeFigures, DataTypeKeys, Details, Figures, KeyResult, Validity, Verdict,
};
use crate::{FINDINGS_MAX, Findings};
use seatrial_history::Key;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// Intervals of elements in one list of the details.
const INTERVALS_MAX: usize = 64;
/// Keys that have lists in the details.
const LISTED_KEYS_MAX: usize = 8;

/// Longest durations of one name in the details.
pub(super) const WORST_MAX: usize = 8;

/// Keys in the details that did not pass; of more, the first.
const RESULTS_MAX: usize = 64;

/// What was found for one key.
#[derive(Default)]
struct KeyFindings {
    anomalies: BTreeSet<Anomaly>,
    /// Why the verdict is unknown.
    unknown: Option<String>,
}

/// Counts, lists and findings of all keys so far. A data type reports to it, key after key; [`VerdictBuilder::build`] makes the
/// verdict.
#[derive(Default)]
pub(crate) struct VerdictBuilder {
    counts: BTreeMap<&'static str, u64>,
    lists: BTreeMap<&'static str, Vec<String>>,
    figures: BTreeMap<&'static str, Json>,
    /// Nanoseconds.
    samples: BTreeMap<&'static str, Vec<i64>>,
    /// The largest of each name, with what it is about.
    worst: BTreeMap<&'static str, Vec<(i64, Json)>>,
    findings: Findings,
    unknown: Option<String>,
    /// Why the first key without evidence has none.
    silence: Option<String>,
    silent_keys: u64,
    keys: u64,
    key: Option<Key>,
    /// Of the current key.
    result: KeyFindings,
    keys_invalid: u64,
    keys_unknown: u64,
    /// Of keys that did not pass.
    results: BTreeMap<String, KeyResult>,
}

impl VerdictBuilder {
    /// Starts the next key.
    pub(super) fn start_key(&mut self, key: Option<Key>) {
        self.close_key();
        self.key = key;
        self.keys += 1;
    }

    /// Stores the result of the current key, unless it passed.
    fn close_key(&mut self) {
        let KeyFindings { anomalies, unknown } = std::mem::take(&mut self.result);
        let Some(key) = self.key.take() else {
            return;
        };
        let result = match (anomalies.is_empty(), unknown) {
            (false, _) => {
                self.keys_invalid += 1;
                KeyResult::Invalid(anomalies)
            }
            (true, Some(reason)) => {
                self.keys_unknown += 1;
                KeyResult::Unknown(reason)
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

    /// Sets a figure that is not a sum; the last key's remains.
    pub(super) fn figure(&mut self, name: &'static str, figure: Json) {
        self.figures.insert(name, figure);
    }

    /// Adds durations in nanoseconds, each described by an object; the details have the [`WORST_MAX`] longest of all keys.
    pub(super) fn worst(&mut self, name: &'static str, samples: Vec<(i64, Json)>) {
        let key = self.key.as_ref().map(Key::to_string);
        let samples = samples.into_iter().map(|(duration, mut about)| {
            if let (Some(key), Json::Object(members)) = (&key, &mut about) {
                members.insert("key".to_owned(), key.clone().into());
            }
            (duration, about)
        });
        let worst = self.worst.entry(name).or_default();
        worst.extend(samples);
        worst.sort_by_key(|one| std::cmp::Reverse(one.0));
        worst.truncate(WORST_MAX);
    }

    /// Adds durations in nanoseconds; the details have their quantiles.
    pub(super) fn samples(&mut self, name: &'static str, samples: Vec<i64>) {
        self.samples.entry(name).or_default().extend(samples);
    }

    /// Lists elements, which must be sorted, and adds their number to the count of the same name.
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

    /// Adds an anomaly. `explain` returns its operations and its description; it is called for the first few only.
    pub(super) fn anomaly(
        &mut self,
        anomaly: Anomaly,
        explain: impl FnOnce() -> (Vec<u64>, String),
    ) {
        let prefix = self.prefix();
        self.result.anomalies.insert(anomaly);
        self.findings.explain(anomaly, || {
            let (operations, summary) = explain();
            (operations, format!("{prefix}{summary}"))
        });
    }

    /// Adds `count` anomalies of one name, of which the first is explained.
    pub(super) fn anomalies(
        &mut self,
        anomaly: Anomaly,
        count: u64,
        explain: impl FnOnce() -> (Vec<u64>, String),
    ) {
        if count > 0 {
            self.anomaly(anomaly, explain);
            self.findings.count(anomaly, count - 1);
        }
    }

    /// Makes the verdict unknown for this reason, unless there is an anomaly. The first reason is kept.
    pub(super) fn unknown(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        self.result.unknown.get_or_insert_with(|| reason.clone());
        let reason = format!("{}{reason}", self.prefix());
        self.unknown.get_or_insert(reason);
    }

    /// The history has no evidence about the current key, for this reason. If it has none about any key, the verdict is unknown.
    pub(super) fn no_evidence(&mut self, reason: &str) {
        self.silent_keys += 1;
        self.result.unknown.get_or_insert_with(|| reason.into());
        let reason = format!("{}{reason}", self.prefix());
        self.silence.get_or_insert(reason);
    }

    /// The verdict on all keys.
    pub(super) fn build(mut self, checker: &'static str) -> Verdict {
        self.close_key();
        assert!(
            self.keys_invalid + self.keys_unknown <= self.keys,
            "{} keys are invalid and {} unknown, of {}",
            self.keys_invalid,
            self.keys_unknown,
            self.keys
        );
        assert!(self.silent_keys <= self.keys, "a key is silent once");
        let mut verdict = Verdict::valid(checker);
        let (anomalies, findings) = self.findings.into_parts();
        verdict.anomalies = anomalies;
        verdict.findings = findings;
        let is_keyed = self.counts.get("keys").is_some_and(|&keys| keys > 0);
        let by_key = is_keyed.then_some(DataTypeKeys {
            keys_invalid: self.keys_invalid,
            keys_unknown: self.keys_unknown,
            results: self.results,
        });
        let samples = self.samples.into_iter();
        let mut others = self.figures;
        others.extend(samples.map(|(name, samples)| (name, quantiles(samples))));
        let worst = self.worst.into_iter();
        others.extend(worst.map(|(name, all)| {
            let all = all.into_iter().map(|(_, about)| about);
            (name, all.collect())
        }));
        verdict.details = Details::of(Figures::DataType(DataTypeFigures {
            counts: self.counts,
            findings_max: FINDINGS_MAX,
            silent_keys: self.silent_keys,
            by_key,
            lists: self.lists,
            others,
        }));
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
