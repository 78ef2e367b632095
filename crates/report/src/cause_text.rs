//! Causes of findings in words.

use crate::wording::{count, length, one_line};
use seatrial_cause::{FaultWindow, FindingCause, OperationRecord};
use seatrial_history::OpType;
use seatrial_machine::{FaultKind, thousands};

/// Faults and operations in the sentences of one cause.
const FAULTS_MAX: usize = 2;
const OPERATIONS_MAX: usize = 2;
/// Names of a fault's target that are listed in words.
const NAMES_MAX: usize = 60;

/// What kind of event stands in a line of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimelineKind {
    /// An operation of the finding.
    Own,
    /// A fault began or ended.
    Fault,
    /// Another operation on the same keys.
    Other,
    /// A line of a node's log.
    Log,
}

/// One line of a timeline.
#[derive(Clone, Debug)]
pub(crate) struct TimelineEntry {
    /// Nanoseconds since the test began.
    pub(crate) time: i64,
    pub(crate) kind: TimelineKind,
    pub(crate) text: String,
}

/// A moment in seconds: `1.067 s`.
pub(crate) fn moment(nanoseconds: i64) -> String {
    format!("{:.3} s", nanoseconds as f64 / 1e9)
}

/// The cause in a few sentences: faults, what became of the operations, and how much more there is.
pub(crate) fn sentences(cause: &FindingCause) -> Vec<String> {
    let mut lines = Vec::new();
    // The faults that the finding's operations were nearest to; one that began later has no part in it.
    let before = cause.faults.iter().filter(|fault| fault.begin <= cause.end);
    let mut faults: Vec<&FaultWindow> = before.collect();
    faults.sort_by_key(|fault| away(cause, fault));
    faults.truncate(FAULTS_MAX);
    faults.sort_by_key(|fault| fault.begin);
    let fault_count = faults.len() as u64;
    lines.extend(faults.into_iter().map(fault_sentence));
    let shown = outermost(&cause.operations);
    lines.extend(shown.into_iter().map(operation_sentence));
    lines.extend(rest(cause, fault_count));
    lines
}

/// How far a fault's begin is from the nearest completion of the finding's operations.
fn away(cause: &FindingCause, fault: &FaultWindow) -> u64 {
    let ends = cause
        .operations
        .iter()
        .filter_map(|one| one.end.or(one.begin));
    let away = ends.map(|end| end.abs_diff(fault.begin));
    away.min().unwrap_or(u64::MAX)
}

/// The first operations and the last one.
fn outermost(operations: &[OperationRecord]) -> Vec<&OperationRecord> {
    let mut shown: Vec<&OperationRecord> = operations.iter().take(OPERATIONS_MAX - 1).collect();
    shown.extend(
        operations
            .last()
            .filter(|_| operations.len() >= OPERATIONS_MAX),
    );
    shown
}

/// How many more faults than these, operations and log lines there are.
fn rest(cause: &FindingCause, shown: u64) -> Option<String> {
    let mut parts = Vec::new();
    let faults = cause.faults.len() as u64 + cause.faults_left_out;
    // Of what was left out, the times are not known here.
    let later = cause.faults.iter().filter(|fault| fault.begin > cause.end);
    let later = later.count() as u64;
    let more = faults.saturating_sub(shown + later);
    if more > 0 {
        parts.push(count(more, "more fault"));
    }
    if later > 0 {
        parts.push(count(later, "later fault"));
    }
    let others = cause.others.len() as u64 + cause.others_left_out;
    if others > 0 {
        let operations = count(others, "other operation");
        parts.push(match &cause.keys[..] {
            [key] => format!("{operations} on {}", one_line(key)),
            keys => format!("{operations} on its {} keys", keys.len()),
        });
    }
    let lines = cause.log_lines.len() as u64 + cause.log_lines_left_out;
    if lines > 0 {
        parts.push(count(lines, "log line"));
    }
    let (begin, end) = (moment(cause.begin), moment(cause.end));
    (!parts.is_empty()).then(|| format!("within 1 s of {begin} to {end}: {}", parts.join(", ")))
}

/// `n1 was killed at 1.070 s, back at 4.281 s`.
pub(crate) fn fault_sentence(fault: &FaultWindow) -> String {
    let begun = format!("{} at {}", fault_begun(fault), moment(fault.begin));
    if fault.instant {
        return begun;
    }
    match fault.end {
        Some(end) => format!("{begun}, {} at {}", ending(fault), moment(end)),
        None => format!("{begun}, until the end"),
    }
}

/// `n1 was killed`.
fn fault_begun(fault: &FaultWindow) -> String {
    let target: String = fault.target.chars().take(NAMES_MAX).collect();
    let be = if fault.names.len() > 1 { "were" } else { "was" };
    let past = match fault.name {
        "kill" => "killed",
        "pause" => "paused",
        "cut" => "cut",
        "reset" => "reset",
        _ if target.is_empty() => return format!("{} began", fault.name),
        name if fault.instant => return format!("{name} {target}"),
        name => return format!("{name} {target} began"),
    };
    if target.is_empty() {
        return format!("a node was {past}");
    }
    format!("{target} {be} {past}")
}

/// How the end of a fault is called.
fn ending(fault: &FaultWindow) -> &'static str {
    match FaultKind::from_name(fault.family) {
        Some(FaultKind::Kill | FaultKind::Membership) => "back",
        Some(FaultKind::Pause) => "resumed",
        Some(FaultKind::Partition) => "healed",
        _ => "ended",
    }
}

/// `write 39 was acknowledged at 1.067 s by n1 (operation 311)`.
fn operation_sentence(operation: &OperationRecord) -> String {
    let OperationRecord { label, .. } = operation;
    let by = operation.node.as_ref();
    let by = by.map_or_else(String::new, |node| format!(" by {node}"));
    let number = format!("(operation {})", operation.operation);
    match (operation.kind, operation.end) {
        (OpType::Ok, Some(end)) => {
            format!("{label} was acknowledged at {}{by} {number}", moment(end))
        }
        (OpType::Fail, Some(end)) => format!("{label} failed at {}{by} {number}", moment(end)),
        (_, Some(end)) => {
            format!(
                "{label} ended at {} with unknown outcome {number}",
                moment(end)
            )
        }
        (_, None) => {
            let begin = operation.begin.map(moment).unwrap_or_default();
            format!("{label} was invoked at {begin} and never completed {number}")
        }
    }
}

/// All that a cause lists, in the order of time.
pub(crate) fn timeline(cause: &FindingCause) -> Vec<TimelineEntry> {
    let mut events: Vec<TimelineEntry> = Vec::new();
    let own = cause.operations.iter().map(|one| (one, TimelineKind::Own));
    let others = cause.others.iter().map(|one| (one, TimelineKind::Other));
    events.extend(own.chain(others).map(|(one, kind)| TimelineEntry {
        time: one.end.or(one.begin).unwrap_or(cause.begin),
        kind,
        text: operation_text(one),
    }));
    for fault in &cause.faults {
        let event = |time, text| TimelineEntry {
            time,
            kind: TimelineKind::Fault,
            text,
        };
        events.push(event(fault.begin, fault_begun(fault)));
        if let Some(end) = fault.end.filter(|_| !fault.instant) {
            let target: String = fault.target.chars().take(NAMES_MAX).collect();
            events.push(event(
                end,
                format!("{target}: {} {}", fault.name, ending(fault)),
            ));
        }
    }
    events.extend(cause.log_lines.iter().map(|line| TimelineEntry {
        time: line.time,
        kind: TimelineKind::Log,
        text: format!("{}:{}: {}", line.file, line.number, one_line(&line.text)),
    }));
    events.sort_by_key(|event| event.time);
    events
}

/// `op 311 by n1, process 3: write 39, ok after 46 ms`.
fn operation_text(operation: &OperationRecord) -> String {
    let OperationRecord {
        operation: index,
        process,
        label,
        kind,
        ..
    } = operation;
    let by = operation.node.as_ref();
    let by = by.map_or_else(String::new, |node| format!(" by {node}"));
    let took = operation.begin.zip(operation.end);
    let took = took.map_or_else(String::new, |(begin, end)| {
        format!(" after {}", length(end.saturating_sub(begin) as f64 / 1e9))
    });
    format!(
        "op {index}{by}, process {process}: {label}, {}{took}",
        kind.name()
    )
}

/// What a cause leaves out, in words; empty if nothing.
pub(crate) fn left_out(cause: &FindingCause) -> String {
    let parts = [
        (cause.operations_left_out, "operation of the finding"),
        (cause.faults_left_out, "fault"),
        (cause.others_left_out, "other operation"),
        (cause.log_lines_left_out, "log line"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts
        .map(|(number, what)| match (number, *what) {
            (1, what) => format!("1 {what}"),
            (many, "operation of the finding") => {
                format!("{} operations of the finding", thousands(*many))
            }
            (many, what) => count(*many, what),
        })
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(name: &'static str, family: &'static str, names: &[&str]) -> FaultWindow {
        FaultWindow {
            name,
            family,
            target: names.join(", "),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            begin: 1_070_000_000,
            end: Some(4_281_000_000),
            operation: 7,
            instant: false,
            error: None,
        }
    }

    #[test]
    fn faults_in_words() {
        let kill = fault("kill", "kill", &["n1"]);
        assert_eq!(
            fault_sentence(&kill),
            "n1 was killed at 1.070 s, back at 4.281 s"
        );
        let pause = FaultWindow {
            end: None,
            ..fault("pause", "pause", &["n1", "n2"])
        };
        assert_eq!(
            fault_sentence(&pause),
            "n1, n2 were paused at 1.070 s, until the end"
        );
        let rot = FaultWindow {
            instant: true,
            ..fault("bit-rot", "corruption", &["n1"])
        };
        assert_eq!(fault_sentence(&rot), "bit-rot n1 at 1.070 s");
        let slow = fault("slow", "packet", &["n1"]);
        assert_eq!(
            fault_sentence(&slow),
            "slow n1 began at 1.070 s, ended at 4.281 s"
        );
    }

    #[test]
    fn operations_in_words() {
        let write = OperationRecord {
            operation: 311,
            process: "3".into(),
            node: Some("n1".into()),
            kind: OpType::Ok,
            label: "write 39".into(),
            begin: Some(1_021_000_000),
            end: Some(1_067_000_000),
        };
        let sentence = "write 39 was acknowledged at 1.067 s by n1 (operation 311)";
        assert_eq!(operation_sentence(&write), sentence);
        assert_eq!(
            operation_text(&write),
            "op 311 by n1, process 3: write 39, ok after 46 ms"
        );
        let open = OperationRecord {
            kind: OpType::Info,
            end: None,
            ..write.clone()
        };
        let sentence = "write 39 was invoked at 1.021 s and never completed (operation 311)";
        assert_eq!(operation_sentence(&open), sentence);
        let cause = FindingCause {
            begin: 1_021_000_000,
            end: 1_067_000_000,
            keys: vec!["39".into()],
            operations: vec![write.clone()],
            faults: vec![FaultWindow {
                begin: 1_060_000_000,
                ..fault("kill", "kill", &["n1"])
            }],
            others: vec![write],
            log_lines_left_out: 31,
            ..FindingCause::default()
        };
        let lines = sentences(&cause);
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[2],
            "within 1 s of 1.021 s to 1.067 s: 1 other operation on 39, 31 log lines"
        );
        // A fault that began after the operations explains nothing: it is only counted.
        let later = FaultWindow {
            begin: 1_900_000_000,
            ..fault("kill", "kill", &["n2"])
        };
        let mut with_later = cause.clone();
        with_later.faults.push(later);
        let lines = sentences(&with_later);
        assert_eq!(
            lines[2],
            "within 1 s of 1.021 s to 1.067 s: 1 later fault, 1 other operation on 39, 31 log lines"
        );
        let times: Vec<i64> = timeline(&cause).iter().map(|event| event.time).collect();
        assert!(times.is_sorted() && times.len() == 4, "{times:?}");
        assert_eq!(left_out(&cause), "31 log lines");
    }
}
