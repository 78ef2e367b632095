//! Causes as data.

use crate::FaultWindow;
use seatrial_history::OpType;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

/// What happened around one finding. All times are nanoseconds since the test began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingCause {
    /// When the first of its operations was invoked.
    pub begin: i64,
    /// When the last of them completed.
    pub end: i64,
    /// The keys of its operations; of elements without keys, these; at most [`FindingCause::KEYS_MAX`].
    pub keys: Vec<String>,
    /// Its operations, in the order of their completions, at most [`FindingCause::OPERATIONS_MAX`].
    pub operations: Vec<OperationRecord>,
    /// The number of its operations that are left out.
    pub operations_left_out: u64,
    /// The faults in force within a second of the finding, in the order in which they began, the nearest
    /// [`FindingCause::FAULTS_MAX`].
    pub faults: Vec<FaultWindow>,
    /// The number of such faults that are left out.
    pub faults_left_out: u64,
    /// Other operations on the same keys, in the order of their completions, the nearest [`FindingCause::OTHERS_MAX`].
    pub others: Vec<OperationRecord>,
    /// The number of such operations that are left out.
    pub others_left_out: u64,
    /// Lines of the nodes' logs, in order; the nearest [`FindingCause::LOG_LINES_MAX`], those that speak of trouble first.
    pub log_lines: Vec<LogRecord>,
    /// The number of lines of that time that are left out.
    pub log_lines_left_out: u64,
}

impl FindingCause {
    /// Keys that are listed.
    pub const KEYS_MAX: usize = 32;
    /// Operations of the finding that are listed.
    pub const OPERATIONS_MAX: usize = 24;
    /// Faults that are listed.
    pub const FAULTS_MAX: usize = 12;
    /// Other operations that are listed.
    pub const OTHERS_MAX: usize = 24;
    /// Lines of logs that are listed.
    pub const LOG_LINES_MAX: usize = 24;
    /// How much before and after the finding's operations faults, operations and log lines are looked for: one second.
    pub const MARGIN: i64 = 1_000_000_000;
}

/// One operation: its invocation and its completion.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationRecord {
    /// Index of its completion; of its invocation, if it never completed.
    pub operation: u64,
    /// The process that invoked it.
    pub process: String,
    /// The node that it was sent to, if the history says so.
    pub node: Option<String>,
    /// How it ended; `info` if it never completed.
    pub kind: OpType,
    /// Function and value, or the transaction, shortened.
    pub label: String,
    /// When it was invoked, if that is known.
    pub begin: Option<i64>,
    /// When it completed.
    pub end: Option<i64>,
}

/// A line of a node's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The node.
    pub node: String,
    /// The file, as seen from the folder of the run.
    pub file: String,
    /// Its number, from 1.
    pub number: u64,
    /// When it was written, by its own clock.
    pub time: i64,
    /// Its text, shortened.
    pub text: String,
}

/// The causes of all findings of a report.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    pub(crate) causes: Vec<Option<FindingCause>>,
    pub(crate) notes: Vec<String>,
}

impl Causes {
    /// Findings whose causes are searched; of later ones nothing is known.
    pub const FINDINGS_MAX: usize = 64;

    /// The cause of the finding with this number, in the order in which they were given; `None` if its operations have no times,
    /// or if it names none.
    pub fn of(&self, finding: usize) -> Option<&FindingCause> {
        self.causes.get(finding)?.as_ref()
    }

    /// What a reader should know of the logs: those that have no times, and why none could be placed.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Nanoseconds as seconds.
fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// As in `docs/formats/results.md`: times in seconds, what is not known left out.
impl Serialize for FindingCause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let faults: Vec<Json> = self.faults.iter().map(fault_json).collect();
        json!({
            "begin": seconds(self.begin),
            "end": seconds(self.end),
            "keys": self.keys,
            "operations": self.operations,
            "operations_left_out": self.operations_left_out,
            "faults": faults,
            "faults_left_out": self.faults_left_out,
            "others": self.others,
            "others_left_out": self.others_left_out,
            "log_lines": self.log_lines,
            "log_lines_left_out": self.log_lines_left_out,
        })
        .serialize(serializer)
    }
}

fn fault_json(fault: &FaultWindow) -> Json {
    let mut json = Map::new();
    json.insert("name".into(), json!(fault.name));
    json.insert("target".into(), json!(fault.target));
    json.insert("operation".into(), json!(fault.operation));
    json.insert("begin".into(), json!(seconds(fault.begin)));
    if let Some(end) = fault.end {
        json.insert("end".into(), json!(seconds(end)));
    }
    Json::Object(json)
}

impl Serialize for OperationRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = Map::new();
        json.insert("operation".into(), json!(self.operation));
        json.insert("process".into(), json!(self.process));
        if let Some(node) = &self.node {
            json.insert("node".into(), json!(node));
        }
        json.insert("type".into(), json!(self.kind.name()));
        json.insert("label".into(), json!(self.label));
        for (name, time) in [("begin", self.begin), ("end", self.end)] {
            if let Some(time) = time {
                json.insert(name.into(), json!(seconds(time)));
            }
        }
        Json::Object(json).serialize(serializer)
    }
}

impl Serialize for LogRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({
            "node": self.node,
            "file": self.file,
            "line": self.number,
            "time": seconds(self.time),
            "text": self.text,
        })
        .serialize(serializer)
    }
}
