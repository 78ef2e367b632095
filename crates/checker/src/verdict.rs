//! Verdicts, findings, and the trait of a checker.

use crate::{Aims, Details, LinearizationWitness, OnlineChecker, Robustness};
use seatrial_cycles::anomaly::Anomaly;
use seatrial_history::History;
use seatrial_verify::{CycleEdge, Evidence};
use serde::Serialize;
use std::collections::BTreeMap;

/// Does the history satisfy the model?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Nothing in the history contradicts the model.
    Valid,
    /// An anomaly was found.
    Invalid,
    /// A limit was reached, or the history has too little evidence; the reason in one line.
    Unknown(String),
}

/// `true`, `false` or `"unknown"`, as in Jepsen's results.
impl Serialize for Validity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Validity::Valid => serializer.serialize_bool(true),
            Validity::Invalid => serializer.serialize_bool(false),
            Validity::Unknown(_) => serializer.serialize_str("unknown"),
        }
    }
}

impl Validity {
    /// The joint validity of these verdicts; valid if there are none.
    pub fn of(verdicts: &[Verdict]) -> Validity {
        // Among reasons for an unknown outcome, that of a checker with findings comes first: they are shown beside it.
        let (found, clear): (Vec<_>, Vec<_>) =
            verdicts.iter().partition(|one| !one.anomalies.is_empty());
        let all = found.into_iter().chain(clear);
        all.fold(Validity::Valid, |joint, one| joint.and(one.valid.clone()))
    }

    /// The validity of both together: invalid beats unknown beats valid.
    #[must_use]
    pub fn and(self, other: Validity) -> Validity {
        match (self, other) {
            (Validity::Invalid, _) | (_, Validity::Invalid) => Validity::Invalid,
            (Validity::Unknown(reason), _) | (_, Validity::Unknown(reason)) => {
                Validity::Unknown(reason)
            }
            _ => Validity::Valid,
        }
    }
}

/// One anomaly, explained so that a person can check it by hand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub anomaly: Anomaly,
    /// The explanation in one or a few lines, naming operations by index.
    pub summary: String,
    /// Indices of the operations that take part (completions where there are some), each once.
    pub operations: Vec<u64>,
    /// A cycle or a chain of dependencies; empty if the summary is the whole explanation.
    pub steps: Vec<FindingStep>,
    /// Of a violation of linearizability: the longest order that works, and where it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linearization: Option<Box<LinearizationWitness>>,
}

/// One dependency of an explanation: `from` must come before `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FindingStep {
    /// Index of the earlier operation's completion (its invocation, if it never completed).
    pub from: u64,
    /// Index of the later operation.
    pub to: u64,
    /// The kind of dependency: `ww`, `wr`, `rw`, `process`, `realtime`.
    pub relation: &'static str,
    /// Why, in words: "T2 observed T1's append of 1 to key 5".
    pub reason: String,
}

impl From<&Finding> for Evidence {
    fn from(finding: &Finding) -> Evidence {
        let steps = finding.steps.iter();
        Evidence {
            anomaly: finding.anomaly.to_owned(),
            operations: finding.operations.clone(),
            steps: steps.map(CycleEdge::from).collect(),
            versions: None,
        }
    }
}

impl From<&FindingStep> for CycleEdge {
    fn from(step: &FindingStep) -> CycleEdge {
        CycleEdge {
            from: step.from,
            to: step.to,
            relation: step.relation.to_owned(),
            versions: None,
        }
    }
}

/// A strongly connected component of a dependency graph: each of its transactions comes before each other, so no order has
/// all of them. A large component is shown in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Component {
    /// Transactions of the whole component.
    pub transactions: u64,
    /// Indices of the operations that are shown (as in [`Finding::operations`]), in the order of the transactions: those of its
    /// findings, and as many adjacent ones as fit.
    pub operations: Vec<u64>,
    /// Dependencies between these, at most one from one operation to another. Real time and the order of a process only where
    /// they are part of a cycle that was found.
    pub dependencies: Vec<Dependency>,
    /// Number of dependencies between these that are not shown.
    pub left_out: u64,
}

/// A dependency in a [`Component`]: `from` must come before `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// Index of the earlier operation, as in [`FindingStep`].
    pub from: u64,
    /// Index of the later operation.
    pub to: u64,
    /// `ww`, `wr`, `rw`, `process` or `realtime`.
    pub relation: &'static str,
}

/// The result of one checker.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The checker's name: `stats`, `register`, `list-append`, …
    pub checker: &'static str,
    /// Does the history satisfy the model?
    pub valid: Validity,
    /// Why it is unknown, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What establishes a valid verdict on transactions: a witness (`serial order`, `snapshot order`, `commit order`,
    /// `visibility order`) or the name of a complete method. A checker of transactions never answers valid without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<&'static str>,
    /// Questions that the check did not decide, in words. Without anomalies the validity is then unknown, unless the caller
    /// wants Jepsen's meaning ([`Verdict::accept_undecided`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<String>,
    /// The model that was checked: `linearizable`, `strict-serializable`, …; `None` when the checker has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Number of each anomaly (not only those kept as findings).
    pub anomalies: BTreeMap<Anomaly, u64>,
    /// The weakest models that the history rules out.
    pub not: Vec<&'static str>,
    /// Stronger models that are ruled out with them.
    pub also_not: Vec<&'static str>,
    /// Explained anomalies, the strongest evidence first, at most [`FINDINGS_MAX`](crate::FINDINGS_MAX) of each.
    pub findings: Vec<Finding>,
    /// The largest components of the dependency graph of transactions, as far as a figure can show them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Component>,
    /// Further results: counts, rates, examples.
    pub details: Details,
    /// Which of these results hold if operations of the history are missing.
    #[serde(skip)]
    pub robustness: Robustness,
}

impl Verdict {
    /// Proof: a serial order of transactions that explains every read.
    pub const SERIAL_ORDER: &'static str = "serial order";
    /// Proof: an order of snapshots and commits that explains every read.
    pub const SNAPSHOT_ORDER: &'static str = "snapshot order";
    /// Proof: an order of commits in which each read returns a value committed before.
    pub const COMMIT_ORDER: &'static str = "commit order";
    /// Proof: an order in which transactions become visible.
    pub const VISIBILITY_ORDER: &'static str = "visibility order";
    /// Proof: the order of all versions is known and the whole dependency graph was searched (Adya's definition).
    pub const COMPLETE_GRAPH: &'static str = "complete dependency graph";
    /// Proof: every read was replayed at the database's own timestamps.
    pub const TIMESTAMP_REPLAY: &'static str = "replay at the database's timestamps";

    /// A valid verdict without findings.
    pub fn valid(checker: &'static str) -> Verdict {
        Verdict {
            checker,
            valid: Validity::Valid,
            reason: None,
            proof: None,
            undecided: Vec::new(),
            model: None,
            anomalies: BTreeMap::new(),
            not: Vec::new(),
            also_not: Vec::new(),
            findings: Vec::new(),
            components: Vec::new(),
            details: Details::default(),
            robustness: Robustness::default(),
        }
    }

    /// This verdict with unknown validity, for this reason.
    #[must_use]
    pub fn unknown(mut self, reason: impl Into<String>) -> Verdict {
        let reason = reason.into();
        self.reason = Some(reason.clone());
        self.valid = Validity::Unknown(reason);
        self
    }

    /// This verdict with unknown validity: no anomaly was found, and these questions were not decided.
    ///
    /// # Panics
    /// If there are no questions: then the verdict is valid and needs a proof. If there is an anomaly.
    #[must_use]
    pub fn no_anomaly_found(mut self, undecided: Vec<String>) -> Verdict {
        assert!(!undecided.is_empty(), "an open question has words");
        assert!(self.anomalies.is_empty(), "an anomaly was found");
        let reason = format!("no anomaly found; not decided: {}", undecided.join("; "));
        self.undecided = undecided;
        self.proof = None;
        self.unknown(reason)
    }

    /// Applies Jepsen's meaning of valid: no anomaly was found, whatever was not decided. Other unknown verdicts stay.
    pub fn accept_undecided(&mut self) {
        if matches!(self.valid, Validity::Unknown(_)) && !self.undecided.is_empty() {
            self.valid = Validity::Valid;
            self.reason = None;
        }
    }
}

/// A checker: a model with its options, which checks any number of histories.
pub trait Checker: Send + Sync {
    /// Its name in `--checker` and in results.
    fn name(&self) -> &'static str;

    /// Which of its results hold when operations are missing. Drivers set it in the verdicts that they get.
    fn robustness(&self) -> Robustness {
        Robustness::default()
    }

    /// Checks a history in memory. Total: for a history that this checker cannot read the verdict is [`Validity::Unknown`] with
    /// the reason.
    fn check(&self, history: &History) -> Verdict;

    /// Starts to check one history, which is then pushed chunk by chunk.
    fn start(&self, aims: &Aims) -> Box<dyn OnlineChecker>;

    /// Can it check a stretch of a history without what comes before ([`Aims::stretch`](crate::Aims::stretch))? What it finds
    /// must be a violation of the whole history, too, except for these anomalies, which what comes before the stretch may
    /// explain. `None`: it cannot.
    fn open_in_stretches(&self) -> Option<&'static [Anomaly]> {
        None
    }

    /// Makes a checker that searches independent keys one after another stop at the first violation; the verdict's reason then
    /// has the number of keys that were checked. Other checkers ignore it.
    fn stop_at_first(&mut self) {}
}
