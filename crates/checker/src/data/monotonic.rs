//! A table whose numbers must grow with their timestamps.

use super::data_type::{DataType, OperationEvent};
use super::element::Element;
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Anomaly, CertainAnomalies, Checker, OnlineChecker, Robustness, Verdict};
use seatrial_history::{History, OpType, Symbol, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Which rows must have numbers in the order of their timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agreement {
    /// All rows.
    #[default]
    Linearizable,
    /// The rows of each process.
    Sequential,
}

impl Agreement {
    /// All of them, the strictest first.
    pub const ALL: [Agreement; 2] = [Agreement::Linearizable, Agreement::Sequential];

    /// The name that `--model` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Agreement::Linearizable => "linearizable",
            Agreement::Sequential => "sequential",
        }
    }
}

/// Every `add` inserts a row with a number larger than all before it and the system's timestamp, and the last `read`
/// gives all rows in the order of their timestamps: Jepsen's `monotonic` (of its tests of CockroachDB).
///
/// Rows are maps with `:val` and `:sts` (an integer, or decimal digits as text), and perhaps `:proc`, or lists of these
/// two or three. Anomalies, of the last read: `lost` (a row whose addition had succeeded before the read began is not
/// there), `revived` (it has the row of an addition that failed and said which), `duplicated`, `timestamp-disorder` and
/// `value-disorder`, once for each pair of neighbours: timestamps may not fall, numbers must rise, among all rows or
/// among those of each process. (Jepsen asks whether the numbers rise per process by a field that its rows do not have, and
/// says that a history without read is wrong; here it is unknown.)
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic {
    agreement: Agreement,
}

impl Monotonic {
    /// A checker that requires this agreement.
    pub const fn new(agreement: Agreement) -> Monotonic {
        Monotonic { agreement }
    }
}

/// The state of one table.
#[derive(Default)]
pub(crate) struct MonotonicState {
    /// By number: index of the first completion `ok`, `fail` or `info` of its addition.
    added: BTreeMap<i64, u64>,
    failed: BTreeMap<i64, u64>,
    unsure: BTreeMap<i64, u64>,
    /// The last successful read: indices of its invocation and completion, and its value; `None`: integers, which are no rows.
    read: Option<(u64, u64, Option<Value>)>,
}

/// A decimal timestamp of any length: digits before and after the point, without leading and trailing zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowTimestamp {
    is_negative: bool,
    whole: String,
    fraction: String,
}

impl RowTimestamp {
    fn read(value: &Value) -> Option<RowTimestamp> {
        let text = match value {
            Value::Int(number) => number.to_string(),
            Value::Text(text) => text.to_string(),
            _ => return None,
        };
        let digits = text.strip_prefix('-');
        let (whole, fraction) = digits
            .unwrap_or(&text)
            .split_once('.')
            .unwrap_or((digits.unwrap_or(&text), ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (!whole.is_empty() && are_digits(whole) && are_digits(fraction)).then(|| RowTimestamp {
            is_negative: digits.is_some(),
            whole: whole.trim_start_matches('0').into(),
            fraction: fraction.trim_end_matches('0').into(),
        })
    }
}

impl PartialOrd for RowTimestamp {
    fn partial_cmp(&self, other: &RowTimestamp) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RowTimestamp {
    fn cmp(&self, other: &RowTimestamp) -> Ordering {
        let size = |stamp: &RowTimestamp| {
            (
                stamp.whole.len(),
                stamp.whole.clone(),
                stamp.fraction.clone(),
            )
        };
        match (self.is_negative, other.is_negative) {
            (false, false) => size(self).cmp(&size(other)),
            (true, true) => size(other).cmp(&size(self)),
            (mine, theirs) => theirs.cmp(&mine),
        }
    }
}

/// A row of the table.
struct TableRow {
    number: i64,
    stamp: RowTimestamp,
    process: Option<Element>,
}

/// A field of a row, by name in a map, by position in a list.
fn field<'v>(value: &'v Value, names: &[&str], place: usize) -> Option<&'v Value> {
    match value {
        Value::Map(pairs) => {
            let is_named = |word: &Symbol| names.iter().any(|name| *word == **name);
            let named = |key: &Value| matches!(key, Value::Word(word) if is_named(word));
            pairs
                .iter()
                .find(|(key, _)| named(key))
                .map(|(_, field)| field)
        }
        Value::List(fields) => fields.get(place),
        _ => None,
    }
}

/// The number of a row.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Cas(number, _) => Some(*number),
        row => field(row, &["val"], 0)?.as_int(),
    }
}

impl TableRow {
    fn read(value: &Value) -> Option<TableRow> {
        let stamp = match value {
            Value::Cas(_, stamp) => RowTimestamp::read(&Value::Int(*stamp)),
            row => RowTimestamp::read(field(row, &["sts"], 1)?),
        };
        let process = field(value, &["proc", "process"], 2);
        Some(TableRow {
            number: number(value)?,
            stamp: stamp?,
            process: process.map(Element::from),
        })
    }
}

/// The rows of a read.
fn rows(value: &Value) -> Option<Vec<TableRow>> {
    match value {
        Value::List(rows) => rows.iter().map(TableRow::read).collect(),
        Value::Txn(mops) if mops.is_empty() => Some(Vec::new()),
        _ => None,
    }
}

impl DataType for Monotonic {
    type State = MonotonicState;
    const NAME: &'static str = "monotonic";
    const FUNCTIONS: &'static [&'static str] = &["add", "read"];
    const INTEGER_READS: &'static [&'static str] = &["read"];

    fn model(&self) -> Option<&'static str> {
        Some(self.agreement.name())
    }

    fn apply(&self, state: &mut MonotonicState, event: &OperationEvent<'_>) {
        if event.f == "read" {
            if event.kind == OpType::Ok {
                let read = match event.integers {
                    Some([]) if !event.is_set => Some(Value::List([].into())),
                    Some(_) => None,
                    None => Some(event.value.clone()),
                };
                state.read = Some((event.started(), event.index, read));
            }
            return;
        }
        let known = match event.kind {
            OpType::Invoke => return,
            OpType::Ok => &mut state.added,
            OpType::Fail => &mut state.failed,
            OpType::Info => &mut state.unsure,
        };
        if let Some(number) = number(event.value) {
            known.entry(number).or_insert(event.index);
        }
    }

    fn finish(&self, state: MonotonicState, builder: &mut VerdictBuilder) {
        builder.count("acknowledged", state.added.len() as u64);
        let Some((began, index, value)) = state.read.clone() else {
            return builder.no_evidence("the rows were never read");
        };
        let Some(rows) = value.as_ref().and_then(rows) else {
            return builder.unknown(format!("op {index}: the read gave no rows"));
        };
        builder.count("rows", rows.len() as u64);
        state.compare(began, index, &rows, builder);
        let all: Vec<&TableRow> = rows.iter().collect();
        disorder(&all, "timestamp-disorder", index, builder, |one, next| {
            one.stamp <= next.stamp
        });
        let rises = |one: &TableRow, next: &TableRow| one.number < next.number;
        if self.agreement == Agreement::Linearizable {
            return disorder(&all, "value-disorder", index, builder, rises);
        }
        let mut processes: BTreeMap<&Element, Vec<&TableRow>> = BTreeMap::new();
        for row in &rows {
            if let Some(process) = &row.process {
                processes.entry(process).or_default().push(row);
            }
        }
        for rows in processes.values() {
            disorder(rows, "value-disorder", index, builder, rises);
        }
    }
}

impl MonotonicState {
    /// Compares the read that began at `began` with the additions: duplicated, lost and revived rows.
    fn compare(&self, began: u64, index: u64, rows: &[TableRow], builder: &mut VerdictBuilder) {
        let mut read: BTreeMap<i64, u64> = BTreeMap::new();
        for row in rows {
            *read.entry(row.number).or_default() += 1;
        }
        for (&number, &times) in read.iter().filter(|(_, times)| **times > 1) {
            builder.anomaly("duplicated", || {
                (
                    vec![index],
                    format!("Op {index} read {number} {times} times."),
                )
            });
        }
        for (&number, &added) in &self.added {
            if added < began && !read.contains_key(&number) {
                builder.anomaly("lost", || {
                    let summary = format!(
                        "Op {added} added {number}, but the last read (op {index}) does not have it."
                    );
                    (vec![added, index], summary)
                });
            }
        }
        for (&number, &failed) in &self.failed {
            if read.contains_key(&number) {
                builder.anomaly("revived", || {
                    let summary = format!(
                        "The addition of {number} failed (op {failed}), but the last read (op {index}) has it."
                    );
                    (vec![failed, index], summary)
                });
            }
        }
        let recovered = self
            .unsure
            .keys()
            .filter(|number| read.contains_key(number));
        let recovered: Vec<Element> = recovered.map(|&number| Element::Int(number)).collect();
        builder.list("recovered", recovered.iter());
    }
}

/// Reports adjacent rows that are not in order.
fn disorder(
    rows: &[&TableRow],
    anomaly: Anomaly,
    index: u64,
    builder: &mut VerdictBuilder,
    is_ordered: impl Fn(&TableRow, &TableRow) -> bool,
) {
    for pair in rows.windows(2).filter(|pair| !is_ordered(pair[0], pair[1])) {
        builder.anomaly(anomaly, || {
            let show = |row: &TableRow| {
                let RowTimestamp {
                    is_negative,
                    whole,
                    fraction,
                } = &row.stamp;
                let sign = if *is_negative { "-" } else { "" };
                let point = if fraction.is_empty() { "" } else { "." };
                format!("{} (at {sign}{whole}{point}{fraction})", row.number)
            };
            let summary = format!(
                "Op {index} read {} before {}.",
                show(pair[0]),
                show(pair[1])
            );
            (vec![index], summary)
        });
    }
}

impl Checker for Monotonic {
    fn name(&self) -> &'static str {
        Monotonic::NAME
    }

    fn robustness(&self) -> Robustness {
        Robustness {
            certain: CertainAnomalies::Only(&[
                "duplicated",
                "timestamp-disorder",
                "value-disorder",
            ]),
            ..Robustness::OF_FINAL_STATE
        }
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
