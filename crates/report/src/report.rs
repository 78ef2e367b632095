//! All that a report is made from.

use crate::fault::{FaultWindow, fault_windows};
use crate::summary::Summary;
use seatrial_checker::{Anomaly, Component, Finding, Validity, Verdict};
use seatrial_history::History;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

/// What a run was, what happened in it, and what the checkers say. Borrows the history and the verdicts; counts once,
/// when it is made. Every form of a report ([`text`](crate::text()),
/// [`results_json`](crate::results_json)) reads from here, so they cannot disagree.
///
/// Of the attributes it knows `name`, `suite`, `workload`, `model`, `seed` (text or number), `bug`, `nodes` (names, or
/// how many), `faults` (list of kinds), `seconds` (of load), `started` (text), `version`, `command` (how to run it
/// again) and `options` (an object, shown as it is). None of them is needed; others are shown as they are.
#[derive(Debug)]
pub struct Report<'a> {
    /// The attributes of the test.
    pub attributes: &'a Json,
    /// What happened.
    pub history: &'a History,
    /// What each checker says.
    pub verdicts: &'a [Verdict],
    /// Counts of the history.
    pub summary: Summary,
    /// When the system was broken.
    pub faults: Vec<FaultWindow>,
    /// What a reader should know before trusting the verdict: a fault that never bit, a node that did not come back.
    pub warnings: Vec<String>,
    /// The run's folder, when it has one.
    pub folder: Option<String>,
    /// Names of the files in it.
    pub files: Vec<String>,
    /// How long the checkers took.
    pub checked_in: Option<Duration>,
    /// Which checkers were chosen and why, when that was a choice.
    pub chosen: Option<String>,
}

impl<'a> Report<'a> {
    /// The report of a history with these attributes and verdicts. Warns of faults that never bit, and when no
    /// operation took place.
    pub fn new(attributes: &'a Json, history: &'a History, verdicts: &'a [Verdict]) -> Report<'a> {
        let faults = fault_windows(history);
        let mut report = Report {
            attributes,
            history,
            verdicts,
            summary: Summary::of(history),
            warnings: Vec::new(),
            folder: None,
            files: Vec::new(),
            checked_in: None,
            chosen: None,
            faults,
        };
        report.warnings = report.idle_faults();
        if report.summary.total.ok == 0 {
            let warning = "no operation took place, so there is nothing to judge";
            report.warnings.push(warning.to_owned());
        }
        report
    }

    /// The report of a history that was judged chunk by chunk: with these counts, but without anything that needs
    /// the history itself, so for [`text`](crate::text()) and [`results_json`](crate::results_json) only.
    pub fn counted(attributes: &'a Json, summary: Summary, verdicts: &'a [Verdict]) -> Report<'a> {
        static NOTHING: LazyLock<History> = LazyLock::new(History::default);
        let mut report = Report::new(attributes, &NOTHING, verdicts);
        report.warnings.clear();
        report.summary = summary;
        report
    }

    /// Says in the report what a reader should know before trusting the verdict.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
        self
    }

    /// Names the folder of the run and the files in it.
    #[must_use]
    pub fn in_folder(
        mut self,
        folder: impl Into<String>,
        files: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.folder = Some(folder.into());
        self.files = files.into_iter().map(Into::into).collect();
        self
    }

    /// Says how long the checkers took.
    #[must_use]
    pub fn checked_in(mut self, time: Duration) -> Self {
        self.checked_in = Some(time);
        self
    }

    /// Says which checkers were chosen, and why: `list-append: asked for`.
    #[must_use]
    pub fn chosen(mut self, why: Option<String>) -> Self {
        self.chosen = why;
        self
    }

    /// Takes the faults of a history that is not here from the operations of its nemesis, and warns of those that never
    /// bit.
    #[must_use]
    pub fn with_faults(mut self, nemesis: &History) -> Self {
        self.faults = fault_windows(nemesis);
        self.warnings.extend(self.idle_faults());
        self
    }

    /// The validity of all verdicts together; unknown when there is none.
    pub fn validity(&self) -> Validity {
        if self.verdicts.is_empty() {
            return Validity::Unknown("no checker judged this history".to_owned());
        }
        Validity::of(self.verdicts)
    }

    /// The model that was asked for: the attribute, or what the first checker with a model says.
    pub fn model(&self) -> Option<&str> {
        let asked = self
            .verdicts
            .iter()
            .find_map(|verdict| verdict.model.as_deref());
        asked.or_else(|| self.attribute("model"))
    }

    /// How many of each anomaly were found, over all checkers.
    pub fn anomalies(&self) -> BTreeMap<Anomaly, u64> {
        let mut all = BTreeMap::new();
        for (anomaly, number) in self.verdicts.iter().flat_map(|verdict| &verdict.anomalies) {
            *all.entry(*anomaly).or_default() += number;
        }
        all
    }

    /// All explained anomalies, each with the name of its checker.
    pub fn findings(&self) -> impl Iterator<Item = (&'static str, &'a Finding)> {
        let verdicts = self.verdicts.iter();
        verdicts.flat_map(|verdict| {
            verdict
                .findings
                .iter()
                .map(|finding| (verdict.checker, finding))
        })
    }

    /// The largest components of the dependency graphs.
    pub fn components(&self) -> impl Iterator<Item = &'a Component> {
        self.verdicts.iter().flat_map(|verdict| &verdict.components)
    }

    /// What still holds although the model asked for does not, as the checkers say (`holds` of their details).
    pub fn holds(&self) -> Vec<&'a str> {
        let mut all = Vec::new();
        for verdict in self.verdicts {
            match &verdict.details["holds"] {
                Json::String(model) => all.push(model.as_str()),
                Json::Array(models) => all.extend(models.iter().filter_map(Json::as_str)),
                _ => {}
            }
        }
        all
    }

    /// What establishes a valid verdict on transactions, by the names that the checkers give it.
    pub fn proofs(&self) -> Vec<&'static str> {
        let mut proofs = Vec::new();
        for proof in self.verdicts.iter().filter_map(|verdict| verdict.proof) {
            if !proofs.contains(&proof) {
                proofs.push(proof);
            }
        }
        proofs
    }

    /// What invalid verdicts rest on besides the history and the model, in words.
    pub fn caveats(&self) -> impl Iterator<Item = &'a str> {
        let verdicts = self.verdicts.iter();
        let invalid = verdicts.filter(|verdict| verdict.valid == Validity::Invalid);
        invalid.filter_map(|verdict| verdict.reason.as_deref())
    }

    /// Questions that checkers left open, in words.
    pub fn undecided(&self) -> Vec<&'a str> {
        let all = self.verdicts.iter().flat_map(|verdict| &verdict.undecided);
        all.map(String::as_str).collect()
    }

    /// Faults that took effect.
    pub fn fault_count(&self) -> u64 {
        let bit = self.faults.iter().filter(|fault| fault.error.is_none());
        bit.count() as u64
    }

    /// An attribute that is text.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.get(name).and_then(Json::as_str)
    }

    /// The seed as people type it.
    pub fn seed(&self) -> Option<String> {
        match self.attributes.get("seed")? {
            Json::String(seed) => Some(seed.clone()),
            Json::Number(seed) => Some(
                seed.as_u64()
                    .map_or_else(|| seed.to_string(), |seed| format!("{seed:x}")),
            ),
            _ => None,
        }
    }

    /// Number of nodes, as the attributes say.
    pub fn node_count(&self) -> Option<u64> {
        match self.attributes.get("nodes")? {
            Json::Array(nodes) => Some(nodes.len() as u64),
            other => other.as_u64(),
        }
    }

    /// The kinds of faults that were asked for; `none` is nothing.
    pub fn fault_kinds(&self) -> Vec<&'a str> {
        match self.attributes.get("faults") {
            Some(Json::Array(kinds)) => kinds
                .iter()
                .filter_map(Json::as_str)
                .filter(|kind| *kind != "none")
                .collect(),
            Some(Json::String(kinds)) if kinds != "none" => vec![kinds],
            _ => Vec::new(),
        }
    }

    /// One line for each kind of fault that was tried and never bit.
    fn idle_faults(&self) -> Vec<String> {
        let mut tried: BTreeMap<&str, (u64, Option<&str>)> = BTreeMap::new();
        for fault in &self.faults {
            let (bit, error) = tried.entry(fault.name).or_default();
            *bit += u64::from(fault.error.is_none());
            *error = error.or(fault.error.as_deref());
        }
        let idle = tried.into_iter().filter(|(_, (bit, _))| *bit == 0);
        idle.map(|(name, (_, error))| {
            format!("{name} never took effect: {}", error.unwrap_or_default())
        })
        .collect()
    }
}
