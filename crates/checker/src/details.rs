//! Details of a verdict: the figures of each family of checkers, and what other programs read of them.
//!
//! In `results.json` the details are one object: the members of [`Figures`] and, where they are known, `holds`,
//! `core_is_least`, `unproven` and `certificate`; `null` when there is nothing of all that.

use crate::Anomaly;
use crate::availability::AvailabilityFigures;
use crate::clock_offsets::ClockFigures;
use crate::divergence::DivergenceFigures;
use crate::exceptions::ExceptionFigures;
use crate::log_pattern::LogFilePatternFigures;
use crate::op_color_plot::OpColorFigures;
use crate::stats::Counts;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Further results of one checker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Figures of the checker's own.
    pub figures: Figures,
    /// The strongest models that the history was shown to satisfy although the one that was checked does not hold; empty when
    /// none was shown to, `None` when the checker did not look for all anomalies.
    pub holds: Option<Vec<&'static str>>,
    /// Is no proper subset of the unsatisfiable core unsatisfiable, too? `None` without a core.
    pub core_is_least: Option<bool>,
    /// Why the checker made no certificate.
    pub unproven: Option<String>,
    /// What the independent verifier says about the certificate; `None` before it was asked.
    pub certificate: Option<CertificateStatus>,
}

/// Figures of a checker, by family.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// None.
    #[default]
    Nothing,
    /// Completions by outcome and function.
    Operations(OperationFigures),
    /// Exceptions and errors by class.
    Exceptions(ExceptionFigures),
    /// Successes over time.
    Availability(Box<AvailabilityFigures>),
    /// Operations over time, in groups.
    OpColors(Box<OpColorFigures>),
    /// Offsets of clocks over time.
    ClockOffsets(ClockFigures),
    /// States of nodes.
    Divergence(DivergenceFigures),
    /// Lines of logs that match an expression.
    LogFilePattern(LogFilePatternFigures),
    /// A search for linearizations.
    Linearizability(LinearizabilityFigures),
    /// Counts and lists of a data type.
    DataType(DataTypeFigures),
    /// Reads of list elements, looked at one by one.
    ElementReads(ElementReadFigures),
    /// A dependency graph of transactions.
    Dependencies(Box<DependencyFigures>),
    /// An order of commits, inferred.
    CommitOrder(CommitOrderFigures),
    /// An order of versions and commits, searched for.
    OrderSearch(OrderSearchFigures),
    /// A replay at timestamps.
    Replay(ReplayFigures),
    /// Those of a checker outside of this workspace.
    Other(Json),
}

/// Figures of [`Stats`](crate::Stats).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationFigures {
    /// All completions.
    #[serde(flatten)]
    pub counts: Counts,
    /// Completions of each function.
    pub by_function: BTreeMap<&'static str, Counts>,
}

/// Figures of a search for linearizations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinearizabilityFigures {
    /// Independent objects of the history; one when there are no keys.
    pub objects: u64,
    /// Operations that may have taken effect.
    pub operations: u64,
    /// Operations of unknown outcome.
    pub unknown: u64,
    /// Objects that a monitor decided, without a search: their values are unique.
    pub by_monitor: u64,
    /// The monitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<&'static str>,
    /// Why the first of the others was searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_reason: Option<String>,
    /// Configurations that the searches visited.
    pub configurations: u64,
    /// Most configurations of one object.
    pub configurations_max: u64,
    /// Findings that are kept.
    pub findings_max: usize,
    /// Counts of keys, when objects have keys.
    #[serde(flatten)]
    pub by_key: Option<KeyFigures>,
}

/// Keys of a search for linearizations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyFigures {
    /// All keys.
    pub keys: u64,
    /// Keys that were searched.
    pub keys_checked: u64,
    /// Keys that are not linearizable.
    pub keys_invalid: u64,
    /// The first of the keys that are not linearizable.
    pub results: BTreeMap<String, KeyResult>,
}

/// The result of one key that did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyResult {
    /// With these anomalies.
    Invalid(BTreeSet<Anomaly>),
    /// For this reason.
    Unknown(String),
}

/// Figures of a data type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataTypeFigures {
    /// Counts by name, of all keys together.
    #[serde(flatten)]
    pub counts: BTreeMap<&'static str, u64>,
    /// Findings of one anomaly that are kept.
    pub findings_max: usize,
    /// Keys about which the history says nothing.
    pub silent_keys: u64,
    /// Keys that did not pass, when there are keys.
    #[serde(flatten)]
    pub by_key: Option<DataTypeKeys>,
    /// Elements by name of the list, as intervals.
    pub lists: BTreeMap<&'static str, Vec<String>>,
    /// Figures that are no sums, by name.
    #[serde(flatten)]
    pub others: BTreeMap<&'static str, Json>,
}

/// Keys of a data type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataTypeKeys {
    /// Keys with an anomaly.
    pub keys_invalid: u64,
    /// Keys whose verdict is unknown.
    pub keys_unknown: u64,
    /// The first of both.
    pub results: BTreeMap<String, KeyResult>,
}

/// Figures of a checker that looks at reads of list elements one by one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ElementReadFigures {
    /// Transactions by outcome.
    #[serde(flatten)]
    pub transactions: TransactionCounts,
    /// Keys.
    pub keys: usize,
    /// Elements that were appended.
    pub elements: u64,
    /// Findings of one anomaly that are kept.
    pub findings_max: usize,
}

/// Transactions by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TransactionCounts {
    /// All.
    pub transactions: usize,
    /// Committed.
    pub ok: usize,
    /// Aborted.
    pub fail: usize,
    /// Of unknown outcome.
    pub info: usize,
}

/// Figures of a dependency graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DependencyFigures {
    /// Transactions by outcome.
    #[serde(flatten)]
    pub transactions: TransactionCounts,
    /// Keys.
    pub keys: usize,
    /// Dependencies; `None` when an order was found without making the graph.
    pub edges: Option<usize>,
    /// Strongly connected components of more than one transaction.
    pub components: usize,
    /// Transactions of the largest.
    pub largest_component: usize,
    /// Was each component searched for all cycles that the level forbids?
    pub search_complete: bool,
    /// Findings of one anomaly that are kept.
    pub findings_max: usize,
    /// Anomalies that the level allows.
    pub tolerated: BTreeMap<Anomaly, u64>,
    /// Pieces of lists that were checked one after another.
    #[serde(flatten)]
    pub windows: Option<WindowFigures>,
    /// From where the order of register versions was inferred.
    #[serde(flatten)]
    pub inference: Option<InferenceFigures>,
}

/// Pieces in which a long history of lists was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowFigures {
    /// Windows.
    pub windows: usize,
    /// Transactions of the largest.
    pub largest_window: usize,
    /// Keys that were used again after they had been closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_keys: Option<usize>,
}

/// Sources of version orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InferenceFigures {
    /// Names of the sources in use.
    pub inferred_from: Vec<&'static str>,
    /// By source: keys for which it was discarded, as it contradicts others.
    pub discarded: BTreeMap<&'static str, u64>,
}

/// Transactions on registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterFigures {
    /// Transactions by outcome.
    #[serde(flatten)]
    pub transactions: TransactionCounts,
    /// Sessions.
    pub sessions: usize,
    /// Keys.
    pub keys: usize,
    /// Reads and writes.
    pub events: usize,
    /// Findings of one anomaly that are kept.
    pub findings_max: usize,
}

/// Figures of an inferred order of commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitOrderFigures {
    /// What was checked.
    #[serde(flatten)]
    pub registers: RegisterFigures,
    /// Pairs of transactions whose order is known.
    pub edges: usize,
    /// How many of these pairs the model forces.
    pub forced: usize,
}

/// Figures of a search for an order of versions and commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrderSearchFigures {
    /// What was checked.
    #[serde(flatten)]
    pub registers: RegisterFigures,
    /// Events that the first guess got wrong, at most.
    pub unsettled: u64,
    /// Pairs of versions that the search had to order.
    pub pairs: u64,
    /// Conflicts and other clauses that the search learned.
    pub clauses: u64,
    /// Edges and literals that the search looked at.
    pub steps: u64,
}

/// Figures of a replay at timestamps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayFigures {
    /// Transactions.
    pub transactions: usize,
    /// Reads and writes.
    pub operations: usize,
    /// The order of the replay.
    pub order: &'static str,
}

/// What the independent verifier says about a verdict's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateStatus {
    /// The certificate in `file` holds.
    Holds {
        /// Its name in the folder of the run.
        file: String,
    },
    /// The verifier reached a limit before the end of the certificate in `file`.
    Unsettled {
        /// Its name in the folder of the run.
        file: String,
        /// Which limit.
        reason: String,
    },
    /// The certificate does not hold, which is a bug of seatrial; it is not kept.
    Refused {
        /// What does not hold.
        reason: String,
    },
    /// There is no certificate.
    Missing {
        /// Why.
        reason: String,
    },
}

impl CertificateStatus {
    /// Why there is no certificate to keep, if there is none.
    pub fn left_out(&self) -> Option<&str> {
        match self {
            CertificateStatus::Refused { reason } | CertificateStatus::Missing { reason } => {
                Some(reason)
            }
            CertificateStatus::Holds { .. } | CertificateStatus::Unsettled { .. } => None,
        }
    }
}

/// `{"file", "holds": true}`, `{"file", "holds": null, "reason"}`, `{"holds": false, "left_out"}` or `{"left_out"}`.
impl Serialize for CertificateStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self {
            CertificateStatus::Holds { file } => json!({"file": file, "holds": true}),
            CertificateStatus::Unsettled { file, reason } => {
                json!({"file": file, "holds": null, "reason": reason})
            }
            CertificateStatus::Refused { reason } => json!({"holds": false, "left_out": reason}),
            CertificateStatus::Missing { reason } => json!({"left_out": reason}),
        };
        written.serialize(serializer)
    }
}

/// `{"valid": false, "anomalies"}` or `{"valid": "unknown", "reason"}`.
impl Serialize for KeyResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self {
            KeyResult::Invalid(anomalies) => json!({"valid": false, "anomalies": anomalies}),
            KeyResult::Unknown(reason) => json!({"valid": "unknown", "reason": reason}),
        };
        written.serialize(serializer)
    }
}

impl TransactionCounts {
    /// Counts of `transactions`, of which `ok` committed and `fail` aborted.
    ///
    /// # Panics
    /// If more completed than there are.
    pub fn new(transactions: usize, ok: usize, fail: usize) -> TransactionCounts {
        assert!(
            ok + fail <= transactions,
            "{ok} committed and {fail} aborted of {transactions}"
        );
        TransactionCounts {
            transactions,
            ok,
            fail,
            info: transactions - ok - fail,
        }
    }
}

impl Details {
    /// The details that have these figures only.
    pub fn of(figures: Figures) -> Details {
        Details {
            figures,
            ..Details::default()
        }
    }

    /// The figures of a dependency graph, if the checker made one.
    pub fn dependencies(&self) -> Option<&DependencyFigures> {
        match &self.figures {
            Figures::Dependencies(figures) => Some(figures),
            _ => None,
        }
    }

    /// Is there nothing in them?
    pub fn is_empty(&self) -> bool {
        *self == Details::default()
    }

    /// As they are written in `results.json`.
    pub fn to_json(&self) -> Json {
        if self.is_empty() {
            return Json::Null;
        }
        // None of these types has a key that is not a string, which is all that could fail.
        let figures = serde_json::to_value(&self.figures).unwrap_or_default();
        let mut members = match figures {
            Json::Object(members) => members,
            Json::Null => Map::new(),
            other => return other,
        };
        let mut add = |name: &str, value: Json| members.insert(name.to_owned(), value);
        if let Some(holds) = &self.holds {
            add("holds", json!(holds));
        }
        if let Some(is_least) = self.core_is_least {
            add("core_is_least", is_least.into());
        }
        if let Some(unproven) = &self.unproven {
            add("unproven", json!(unproven));
        }
        if let Some(certificate) = &self.certificate {
            add("certificate", json!(certificate));
        }
        Json::Object(members)
    }
}

/// The figures of a checker outside of this workspace.
impl From<Json> for Details {
    fn from(figures: Json) -> Details {
        Details::of(match figures {
            Json::Null => Figures::Nothing,
            figures => Figures::Other(figures),
        })
    }
}

impl Serialize for Details {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

/// As in `results.json`; on several lines with `{:#}`.
impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_json(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FINDINGS_MAX;

    #[test]
    fn details_are_written_as_one_object() {
        assert_eq!(Details::default().to_json(), Json::Null);
        let mut details = Details {
            unproven: Some("too long".to_owned()),
            ..Details::default()
        };
        assert_eq!(details.to_json(), json!({"unproven": "too long"}));
        details.figures = Figures::Linearizability(LinearizabilityFigures {
            objects: 1,
            operations: 7,
            unknown: 0,
            by_monitor: 0,
            monitor: None,
            search_reason: None,
            configurations: 9,
            configurations_max: 100,
            findings_max: FINDINGS_MAX,
            by_key: Some(KeyFigures {
                keys: 1,
                keys_checked: 1,
                keys_invalid: 1,
                results: [("3".to_owned(), KeyResult::Invalid(["lost"].into()))].into(),
            }),
        });
        details.certificate = Some(CertificateStatus::Unsettled {
            file: "c.json".to_owned(),
            reason: "steps".to_owned(),
        });
        let written = json!({
            "objects": 1,
            "operations": 7,
            "unknown": 0,
            "by_monitor": 0,
            "configurations": 9,
            "configurations_max": 100,
            "findings_max": 8,
            "keys": 1,
            "keys_checked": 1,
            "keys_invalid": 1,
            "results": {"3": {"valid": false, "anomalies": ["lost"]}},
            "unproven": "too long",
            "certificate": {"file": "c.json", "holds": null, "reason": "steps"},
        });
        assert_eq!(details.to_json(), written);
        assert_eq!(serde_json::to_value(&details).unwrap(), written);
        assert_eq!(details.to_string(), written.to_string());
    }

    #[test]
    fn figures_of_a_foreign_checker_are_written_as_they_are() {
        assert!(Details::from(Json::Null).is_empty());
        let mut details = Details::from(json!({"pages": 3}));
        details.holds = Some(Vec::new());
        assert_eq!(details.to_json(), json!({"pages": 3, "holds": []}));
        assert_eq!(Details::from(json!(5)).to_json(), json!(5));
    }
}
