//! All that a report is made from.

use seatrial_cause::{CauseSearch, CauseSubject, Causes, FaultWindow, fault_windows};
use seatrial_checker::{Anomaly, Component, Counts, Finding, Overview, Validity, Verdict};
use seatrial_history::{ChunkSource, History, SourceError};
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The primaries of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Failovers {
    /// How often another node became primary.
    pub count: u64,
    /// Faults that affected a primary.
    pub affected: u64,
    /// Seconds since the test began, and the primaries from then on.
    pub changes: Vec<(f64, Vec<String>)>,
}

/// What a run was, what happened in it, and what the checkers say. Borrows the overview of the history and the verdicts, and
/// nothing of the history itself: a page reads its [`Drawing`](crate::Drawing) from the history's chunks. Every form of a
/// report ([`text`](crate::text()), [`results_json`](crate::results_json), [`html`](crate::html)) reads from here, so
/// they cannot disagree.
///
/// Of the attributes it knows `name`, `suite`, `workload`, `model`, `seed` (text or number), `bug`, `nodes` (names, or
/// how many), `faults` (list of kinds), `seconds` (of load), `started` (text), `version`, `command` (how to run it
/// again) and `options` (an object, shown as it is). None of them is needed; others are shown as they are.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The attributes of the test.
    pub attributes: &'a Json,
    /// What happened, in numbers.
    pub overview: &'a Overview,
    /// What each checker says.
    pub verdicts: &'a [Verdict],
    /// How the clients' operations ended.
    pub counts: Counts,
    /// The same by function.
    pub by_function: BTreeMap<&'static str, Counts>,
    /// When the system was subject to faults.
    pub faults: Vec<FaultWindow>,
    /// Which nodes led, and how often that changed, if the nodes reported it.
    pub failovers: Option<Failovers>,
    /// What happened around each finding, if that was searched.
    pub causes: Causes,
    /// What a reader should know before trusting the verdict: a fault without effect, a node that did not come back.
    pub warnings: Vec<String>,
    /// The run's folder, when it has one.
    pub folder: Option<String>,
    /// Names of the files in it.
    pub files: Vec<String>,
    /// How long the checkers took.
    pub checked_in: Option<Duration>,
    /// Which checkers were chosen and why, when that was a choice.
    pub chosen: Option<String>,
    /// What limited the number of operations per second, if it is known.
    pub limit: Option<String>,
}

impl<'a> Report<'a> {
    /// The report of a history with these attributes and verdicts. Warns of faults that never took effect, and when
    /// there was nothing to check.
    pub fn new(
        attributes: &'a Json,
        overview: &'a Overview,
        verdicts: &'a [Verdict],
    ) -> Report<'a> {
        let (counts, by_function) = overview.counts();
        let mut report = Report {
            attributes,
            overview,
            verdicts,
            counts,
            by_function,
            faults: fault_windows(&History::from_ops(overview.nemesis().to_vec())),
            failovers: None,
            causes: Causes::default(),
            warnings: Vec::new(),
            folder: None,
            files: Vec::new(),
            checked_in: None,
            chosen: None,
            limit: None,
        };
        report.warnings = report.idle_faults();
        if report.counts.ok == 0 && verdicts.is_empty() {
            let warning = "no operation took place, so there is nothing to check";
            report.warnings.push(warning.to_owned());
        }
        report
    }

    /// Adds a warning, unless the report has it already.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
        self
    }

    /// Begins the search for the causes of its findings. Reads nothing if there are none; else two rounds.
    pub fn search_causes(&self, source: &dyn ChunkSource) -> Result<CauseSearch, SourceError> {
        let findings = self.findings().map(|(_, finding)| CauseSubject {
            operations: &finding.operations,
        });
        let findings: Vec<CauseSubject<'_>> = findings.take(Causes::FINDINGS_MAX).collect();
        CauseSearch::begin(&findings, &self.faults, self.attributes, source)
    }

    /// Says which nodes led during the test.
    #[must_use]
    pub fn with_failovers(mut self, failovers: Option<Failovers>) -> Self {
        self.failovers = failovers;
        self
    }

    /// Adds what happened around each finding.
    #[must_use]
    pub fn with_causes(mut self, causes: Causes) -> Self {
        self.causes = causes;
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

    /// Says what limited the number of operations per second.
    #[must_use]
    pub fn limited(mut self, limit: impl Into<String>) -> Self {
        self.limit = Some(limit.into());
        self
    }

    /// Says which checkers were chosen, and why: `list-append: asked for`.
    #[must_use]
    pub fn chosen(mut self, why: Option<String>) -> Self {
        self.chosen = why;
        self
    }

    /// The validity of all verdicts together; unknown when there is none.
    pub fn validity(&self) -> Validity {
        if self.verdicts.is_empty() {
            return Validity::Unknown("no checker ran on this history".to_owned());
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

    /// How many of each anomaly were found. What two checkers found of the same name is the same: it counts once.
    pub fn anomalies(&self) -> BTreeMap<Anomaly, u64> {
        let mut all: BTreeMap<Anomaly, u64> = BTreeMap::new();
        for (anomaly, number) in self.verdicts.iter().flat_map(|verdict| &verdict.anomalies) {
            let most = all.entry(*anomaly).or_default();
            *most = (*most).max(*number);
        }
        all
    }

    /// All explained anomalies, each with the name of the first checker that found it. What two checkers explain of the same
    /// operations is one anomaly; what one checker lists is listed as it is.
    pub fn findings(&self) -> impl Iterator<Item = (&'static str, &'a Finding)> {
        let verdicts = self.verdicts.iter().enumerate();
        let all = verdicts.flat_map(|(at, verdict)| {
            let findings = verdict.findings.iter();
            findings.map(move |finding| (at, verdict.checker, finding))
        });
        let mut first: BTreeMap<(Anomaly, &[u64]), usize> = BTreeMap::new();
        all.filter_map(move |(at, checker, finding)| {
            let same = (finding.anomaly, finding.operations.as_slice());
            (*first.entry(same).or_insert(at) == at).then_some((checker, finding))
        })
    }

    /// The largest components of the dependency graphs.
    pub fn components(&self) -> impl Iterator<Item = &'a Component> {
        self.verdicts.iter().flat_map(|verdict| &verdict.components)
    }

    /// The models that hold: the one that was asked for, if it is proven, else what the checkers say still holds (`holds` of
    /// their details).
    pub fn holds(&self) -> Vec<&'a str> {
        let mut all = Vec::new();
        for verdict in self.verdicts {
            if let Some(model) = &verdict.model
                && verdict.valid == Validity::Valid
                && verdict.proof.is_some()
            {
                all.push(model.as_str());
            }
            all.extend(verdict.details.holds.iter().flatten().copied());
        }
        let mut seen = BTreeSet::new();
        all.retain(|model| seen.insert(*model));
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

    /// The assumptions of invalid verdicts beyond the history and the model, in words.
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
        let effective = self.faults.iter().filter(|fault| fault.error.is_none());
        effective.count() as u64
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

    /// One line for each kind of fault that was tried and never took effect.
    fn idle_faults(&self) -> Vec<String> {
        let mut tried: BTreeMap<&str, (u64, Option<&str>)> = BTreeMap::new();
        for fault in &self.faults {
            let (effective, error) = tried.entry(fault.name).or_default();
            *effective += u64::from(fault.error.is_none());
            *error = error.or(fault.error.as_deref());
        }
        let idle = tried
            .into_iter()
            .filter(|(_, (effective, _))| *effective == 0);
        idle.map(|(name, (_, error))| {
            format!("{name} never took effect: {}", error.unwrap_or_default())
        })
        .collect()
    }
}
