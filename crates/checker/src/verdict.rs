//! What checkers answer.

use crate::Certificate;
use seatrial_history::History;
use serde::Serialize;
use std::collections::BTreeMap;

/// Did the system keep its promises?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Nothing in the history contradicts the model.
    Valid,
    /// An anomaly was found.
    Invalid,
    /// A limit was reached, or the history says too little; the reason in one line.
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
    /// What these verdicts say together; valid when there is none.
    pub fn of(verdicts: &[Verdict]) -> Validity {
        let all = verdicts.iter().map(|verdict| verdict.valid.clone());
        all.fold(Validity::Valid, Validity::and)
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

/// The name of an anomaly, as the field writes it: `G0`, `G1a`, `G-single-realtime`, `internal`, `nonlinearizable`, …
pub type Anomaly = &'static str;

/// One anomaly, explained so that a person can check it by hand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub anomaly: Anomaly,
    /// The whole story in words, one or a few lines, naming operations by index.
    pub summary: String,
    /// Indices of the operations that take part (completions where there are some), each once.
    pub operations: Vec<u64>,
    /// A cycle or a chain, step by step; empty when the summary says it all.
    pub steps: Vec<Step>,
}

/// One edge of an explanation: `from` must come before `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Index of the earlier operation's completion (its invocation, if it never completed).
    pub from: u64,
    /// Index of the later operation.
    pub to: u64,
    /// The kind of dependency: `ww`, `wr`, `rw`, `process`, `realtime`.
    pub relation: &'static str,
    /// Why, in words: "T2 observed T1's append of 1 to key 5".
    pub reason: String,
}

/// A strongly connected part of a dependency graph: each of its transactions comes before each other, so no order has
/// them all. Of a large one only some are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Component {
    /// Transactions of the whole component.
    pub transactions: u64,
    /// Indices of the operations that are told (as in [`Finding::operations`]), in the order of the transactions: those of
    /// its findings, and as many of their neighbours as fit.
    pub operations: Vec<u64>,
    /// How these depend on one another; at most one from one operation to another. Real time and the order of a process
    /// only where a cycle that was found takes them.
    pub dependencies: Vec<Dependency>,
    /// Dependencies between these that are not told.
    pub left_out: u64,
}

/// `from` must come before `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// Index of the earlier operation, as in [`Step`].
    pub from: u64,
    /// Index of the later operation.
    pub to: u64,
    /// `ww`, `wr`, `rw`, `process` or `realtime`.
    pub relation: &'static str,
}

/// The answer of one checker.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The checker's name: `stats`, `register`, `list-append`, …
    pub checker: &'static str,
    /// The answer.
    pub valid: Validity,
    /// Why it is unknown, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What establishes a valid verdict on transactions: a witness (`serial order`, `snapshot order`, `commit order`,
    /// `visibility order`) or the name of a complete method. A checker of transactions never answers valid without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<&'static str>,
    /// Questions that the check left open, in words. No anomaly and open questions: the validity is unknown, unless the
    /// caller asks for Jepsen's meaning ([`Verdict::accept_undecided`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<String>,
    /// The model that was asked for: `linearizable`, `strict-serializable`, …; `None` when the checker has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many of each anomaly were found (not only those kept as findings).
    pub anomalies: BTreeMap<Anomaly, u64>,
    /// The weakest models that the history rules out.
    pub not: Vec<&'static str>,
    /// Stronger models that are ruled out with them.
    pub also_not: Vec<&'static str>,
    /// Explained anomalies, the most telling first, capped per anomaly.
    pub findings: Vec<Finding>,
    /// The largest components of the dependency graph of transactions, as far as a picture can show them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Component>,
    /// Further figures of this checker: counts, rates, examples.
    pub details: serde_json::Value,
}

impl Verdict {
    /// Proof: transactions one after another, in an order that explains every read.
    pub const SERIAL_ORDER: &'static str = "serial order";
    /// Proof: an order of snapshots and commits that explains every read.
    pub const SNAPSHOT_ORDER: &'static str = "snapshot order";
    /// Proof: an order of commits, with reads only of what was committed before.
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
            details: serde_json::Value::Null,
        }
    }

    /// The same, but the answer is unknown for this reason.
    #[must_use]
    pub fn unknown(mut self, reason: impl Into<String>) -> Verdict {
        let reason = reason.into();
        self.reason = Some(reason.clone());
        self.valid = Validity::Unknown(reason);
        self
    }

    /// The same, but no anomaly was found and these questions were not decided: the validity is unknown.
    ///
    /// # Panics
    /// Without any question: then the verdict is valid and needs a proof.
    #[must_use]
    pub fn no_anomaly_found(mut self, undecided: Vec<String>) -> Verdict {
        assert!(!undecided.is_empty(), "an open question has words");
        assert!(self.anomalies.is_empty(), "an anomaly was found");
        let reason = format!("no anomaly found; not decided: {}", undecided.join("; "));
        self.undecided = undecided;
        self.proof = None;
        self.unknown(reason)
    }

    /// Jepsen's meaning of valid: no anomaly was found, whatever was left undecided. Other unknown verdicts stay.
    pub fn accept_undecided(&mut self) {
        if matches!(self.valid, Validity::Unknown(_)) && !self.undecided.is_empty() {
            self.valid = Validity::Valid;
            self.reason = None;
        }
    }
}

/// Judges a history.
pub trait Checker: Send + Sync {
    /// The name by which `--checker` and the results know it.
    fn name(&self) -> &'static str;

    /// Judges. Total: a history that makes no sense to this checker gives [`Validity::Unknown`] with the reason.
    fn check(&self, history: &History) -> Verdict;

    /// From now on only the verdict is wanted: a checker that searches independent keys one after another stops at the first
    /// that is broken, and says in the verdict's reason how many it checked. Others stay as they are.
    fn stop_at_first(&mut self) {}

    /// Judges and proves the verdict, if this checker can prove any: the certificate is missing where this verdict has none.
    fn certify(&self, _history: &History) -> Option<(Verdict, Option<Certificate>)> {
        None
    }

    /// The verdict, when `known` was reached while the history was written: as it is, unless this checker makes more of it now
    /// that all of the history is at hand.
    fn conclude(&self, known: Verdict, _history: &History) -> Verdict {
        known
    }
}
