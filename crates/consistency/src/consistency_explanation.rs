//! Violations of consistency models in words.

use crate::causal_reads::OverwrittenRead;
use crate::consistency_model::shown_time;
use crate::happens_before::{ExplainedEdge, OrderReason, SessionOrder};
use crate::real_time_reads::RealTimeViolation;
use crate::register_history::{NONE, RegisterHistory};
use crate::session_guarantees::SessionViolation;
use crate::session_views::ViewViolation;
use crate::value_clusters::WriteCluster;
use seatrial_checker::{Anomaly, Finding, FindingStep};
use std::fmt::Write as _;

/// A read that missed an earlier write of its own process.
pub(crate) const MISSED_OWN_WRITE: Anomaly = "missed-own-write";
/// A process that read an older version after a newer one.
pub(crate) const BACKWARD_READ: Anomaly = "backward-read";
/// No order of writes explains what one process read.
pub(crate) const SESSION_ORDER_VIOLATION: Anomaly = "session-order-violation";
/// No causal order explains a read.
pub(crate) const CAUSAL_VIOLATION: Anomaly = "causal-violation";
/// A cycle of processes and reads.
pub(crate) const CYCLIC_CAUSALITY: Anomaly = "cyclic-causality";
/// The search found no sequential order.
pub(crate) const NONSEQUENTIAL: Anomaly = "nonsequential";

/// A read that returned a value before any write of it began.
pub(crate) const EARLY_READ: Anomaly = "early-read";
/// A read of a version that is too old.
pub(crate) const STALE_READ: Anomaly = "stale-read";

/// Operations that a finding lists.
const LISTED_MAX: usize = 8;

/// The name of a read without a writer.
pub(crate) fn unfounded_name(is_aborted: bool) -> Anomaly {
    if is_aborted {
        "aborted-read"
    } else {
        "garbage-read"
    }
}

/// A finding about these operations, each once.
fn finding(
    history: &RegisterHistory,
    anomaly: Anomaly,
    summary: String,
    of: impl IntoIterator<Item = u32>,
) -> Finding {
    let mut operations: Vec<u64> = Vec::new();
    for action in of {
        let index = history.actions[action as usize].index;
        if !operations.contains(&index) {
            operations.push(index);
        }
    }
    Finding {
        anomaly,
        summary,
        operations,
        steps: Vec::new(),
        linearization: None,
    }
}

/// A read of a value that no operation wrote that took effect.
pub(crate) fn unfounded(history: &RegisterHistory, read: u32, anomaly: Anomaly) -> Finding {
    let action = &history.actions[read as usize];
    let value = action.read().map(|version| history.value(version));
    let why = if anomaly == unfounded_name(true) {
        "only a failed operation wrote it"
    } else {
        "no operation wrote it"
    };
    let summary = format!(
        "{} returned {}{}, and {why}.",
        history.origin(read),
        value.unwrap_or_default(),
        history.of_key(action.key)
    );
    finding(history, anomaly, capitalize(summary), [read])
}

fn capitalize(text: String) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().collect::<String>() + letters.as_str(),
        None => text,
    }
}

/// A violation of read your writes or of monotonic reads.
pub(crate) fn session(program: &SessionOrder<'_>, violation: SessionViolation) -> Finding {
    let history = program.history;
    let process = |read: u32| {
        let action = &history.actions[read as usize];
        history.processes[action.session as usize]
    };
    let value = |read: u32| {
        let version = history.actions[read as usize].read();
        version.map_or_else(String::new, |version| history.value(version))
    };
    let index = |action: u32| history.actions[action as usize].index;
    let of_key = |read: u32| history.of_key(history.actions[read as usize].key);
    match violation {
        SessionViolation::InitialAfterWrite { write, read } => {
            let summary = format!(
                "Process {} read nil{} in op {}, after {}.",
                process(read),
                of_key(read),
                index(read),
                history.shown(write)
            );
            finding(history, MISSED_OWN_WRITE, summary, [write, read])
        }
        SessionViolation::OwnWritesSwapped { first, second } => {
            let summary = format!(
                "Process {} read its own write of {}{} in op {}, and its own write of {} in op {}: each time it had made \
                 both writes, so each must be the newer one.",
                process(first),
                value(first),
                of_key(first),
                index(first),
                value(second),
                index(second)
            );
            let writes = [first, second].map(|read| history.source(read));
            let all = writes.into_iter().flatten().chain([first, second]);
            finding(history, MISSED_OWN_WRITE, summary, all)
        }
        SessionViolation::Returned {
            first,
            between,
            second,
        } => {
            let summary = format!(
                "Process {} read {}{} in op {}, then {} in op {}, then {} again in op {}.",
                process(first),
                value(first),
                of_key(first),
                index(first),
                value(between),
                index(between),
                value(second),
                index(second)
            );
            finding(history, BACKWARD_READ, summary, [first, between, second])
        }
        SessionViolation::ReturnedToInitial { between, second } => {
            let summary = format!(
                "Process {} read {}{} in op {}, and nothing in op {}.",
                process(second),
                value(between),
                of_key(between),
                index(between),
                index(second)
            );
            finding(history, BACKWARD_READ, summary, [between, second])
        }
    }
}

/// A read that is not causally consistent.
pub(crate) fn overwritten(program: &SessionOrder<'_>, it: OverwrittenRead) -> Finding {
    let history = program.history;
    let mut edges = Vec::new();
    let summary = match it.source {
        Some(source) => {
            edges.extend(program.path(source, it.overwrite));
            format!(
                "{} returned an overwritten value: {} causally precedes {}, which causally precedes the read.",
                history.shown(it.read),
                history.shown(source),
                history.shown(it.overwrite)
            )
        }
        None => format!(
            "{} returned the initial state, and {} causally precedes it.",
            history.shown(it.read),
            history.shown(it.overwrite)
        ),
    };
    edges.extend(program.path(it.overwrite, it.read));
    with_steps(program, CAUSAL_VIOLATION, capitalize(summary), &edges)
}

/// A session that has no order of all writes and its own reads.
pub(crate) fn view(
    program: &SessionOrder<'_>,
    anomaly: Anomaly,
    violation: &ViewViolation,
) -> Finding {
    let process = program.history.processes[violation.session as usize];
    let known = if anomaly == CAUSAL_VIOLATION {
        "causality"
    } else {
        "the order of each process"
    };
    let summary = format!(
        "No order of all writes that follows {known} explains the reads of process {process}: \
         each of these comes before the next, and the last one before the first."
    );
    with_steps(program, anomaly, summary, &violation.cycle)
}

/// A cycle of processes and reads.
pub(crate) fn cyclic_causality(program: &SessionOrder<'_>, cycle: &[u32]) -> Finding {
    let summary = "Each of these operations precedes the next, and the last one the first: \
                   a value was read before what it depends on was done.";
    let edges = program.explain_cycle(cycle);
    with_steps(program, CYCLIC_CAUSALITY, summary.to_owned(), &edges)
}

/// No sequential order was found.
pub(crate) fn no_order(history: &RegisterHistory, length: usize, stuck: &[u32]) -> Finding {
    let all = history.actions.len();
    let mut summary = format!(
        "No order of the {all} operations explains all reads. The longest order that works has {length} of them; none of \
         these can come next:"
    );
    for &action in stuck.iter().take(LISTED_MAX) {
        let _ = write!(summary, "\n  {}", history.shown(action));
    }
    let more = stuck.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        let _ = write!(summary, "\n  and {more} more");
    }
    let listed = stuck.iter().copied().take(LISTED_MAX);
    finding(history, NONSEQUENTIAL, summary, listed)
}

/// The name of a violation of a regular or safe register.
pub(crate) fn real_time_name(violation: RealTimeViolation) -> Anomaly {
    match violation {
        RealTimeViolation::Early { .. } => EARLY_READ,
        RealTimeViolation::Overwritten { .. } => STALE_READ,
    }
}

/// A violation of a regular or safe register.
pub(crate) fn real_time(history: &RegisterHistory, violation: RealTimeViolation) -> Finding {
    match violation {
        RealTimeViolation::Early { read } => {
            let version = history.actions[read as usize].read();
            let writer = version.map(|version| history.versions[version as usize].writer);
            let writer = writer.filter(|&writer| writer != NONE);
            let summary = match writer {
                Some(writer) => format!(
                    "{} ended before {} began.",
                    history.shown(read),
                    history.shown(writer)
                ),
                None => format!(
                    "{} returned a value that nothing wrote.",
                    history.shown(read)
                ),
            };
            let all = writer.into_iter().chain([read]);
            finding(history, EARLY_READ, capitalize(summary), all)
        }
        RealTimeViolation::Overwritten {
            read,
            source,
            overwrite,
        } => {
            let since = source.map_or_else(String::new, |source| {
                format!(" began after {} had ended, and", history.shown(source))
            });
            let summary = format!(
                "{} returned an old value: {}{since} ended before the read began.",
                history.shown(read),
                history.shown(overwrite)
            );
            let all = source.into_iter().chain([overwrite, read]);
            finding(history, STALE_READ, capitalize(summary), all)
        }
    }
}

/// A read of a version that is certainly at least this many versions old.
pub(crate) fn stale_by_versions(history: &RegisterHistory, read: u32, age: usize) -> Finding {
    let action = &history.actions[read as usize];
    let source = history.source(read);
    let since = source.map_or(0, |source| history.actions[source as usize].ret);
    let is_newer = |number: &u32| {
        let write = &history.actions[*number as usize];
        write.key == action.key
            && write.written().is_some()
            && (source.is_none() || write.call > since)
            && write.ret < action.call
    };
    let newer = (0..history.actions.len() as u32).filter(is_newer);
    let newer: Vec<u32> = newer.take(LISTED_MAX).collect();
    let from = source.map_or_else(
        || "the initial state".to_owned(),
        |source| format!("the version of {}", history.shown(source)),
    );
    let mut summary = format!(
        "{} returned {from}, at least the {} newest: {} newer writes had ended before the read began:",
        history.shown(read),
        ordinal(age),
        age - 1
    );
    for &write in &newer {
        let _ = write!(summary, "\n  {}", history.shown(write));
    }
    let all = source.into_iter().chain(newer).chain([read]);
    finding(history, STALE_READ, capitalize(summary), all)
}

/// `2nd`, `3rd`, `11th`.
fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Operations without an order in which reads return one of the last versions.
pub(crate) fn no_fresh_order(
    history: &RegisterHistory,
    core: &[WriteCluster],
    versions: usize,
) -> Finding {
    let all = core.iter().flat_map(|cluster| {
        let writer = Some(cluster.writer).filter(|&writer| writer != NONE);
        writer.into_iter().chain(cluster.reads.iter().copied())
    });
    let mut all: Vec<u32> = all.collect();
    all.sort_unstable();
    let last = if versions == 1 {
        "the last write".to_owned()
    } else {
        format!("one of the last {versions} writes")
    };
    let mut summary = format!(
        "These {} operations alone have no order in which each read returns {last} before it:",
        all.len()
    );
    for &action in all.iter().take(2 * LISTED_MAX) {
        let _ = write!(summary, "\n  {}", history.shown(action));
    }
    let more = all.len().saturating_sub(2 * LISTED_MAX);
    if more > 0 {
        let _ = write!(summary, "\n  and {more} more");
    }
    finding(
        history,
        STALE_READ,
        summary,
        all.into_iter().take(2 * LISTED_MAX),
    )
}

/// Two values that are each seen before the other, unless reads begin earlier.
pub(crate) fn stale_by_time(
    history: &RegisterHistory,
    pair: [&WriteCluster; 2],
    delta: i64,
) -> Finding {
    let mut all = Vec::new();
    let mut texts = Vec::new();
    for cluster in pair {
        let value = history.value(cluster.version);
        let by_call = |&&read: &&u32| history.actions[read as usize].call;
        let last = cluster.reads.iter().max_by_key(by_call).copied();
        let end = cluster
            .reads
            .iter()
            .min_by_key(|&&read| history.actions[read as usize].ret);
        let writer = Some(cluster.writer).filter(|&writer| writer != NONE);
        let written = writer.map_or_else(
            || "the initial state".to_owned(),
            |writer| history.shown(writer),
        );
        let read = last.map_or_else(String::new, |last| {
            format!(", last returned by {}", history.shown(last))
        });
        texts.push(format!("{value}: {written}{read}"));
        all.extend(writer.into_iter().chain(end.copied()).chain(last));
    }
    let key = history.of_key(history.versions[pair[0].version as usize].key);
    let summary = format!(
        "Two values{key} were each seen before the other; reads must begin at least {} earlier to explain them:\n  {}",
        shown_time(delta),
        texts.join("\n  ")
    );
    finding(history, STALE_READ, summary, all)
}

/// A finding with the edges of a path or a cycle.
fn with_steps(
    program: &SessionOrder<'_>,
    anomaly: Anomaly,
    mut summary: String,
    edges: &[ExplainedEdge],
) -> Finding {
    let history = program.history;
    let mut steps = Vec::new();
    for &(from, reason, to) in edges {
        let (relation, text) = words(history, from, reason, to);
        let _ = write!(summary, "\n  {text}");
        steps.push(FindingStep {
            from: history.actions[from as usize].index,
            to: history.actions[to as usize].index,
            relation,
            reason: text,
        });
    }
    let of = edges.iter().flat_map(|&(from, _, to)| [from, to]);
    let of: Vec<u32> = of.collect();
    Finding {
        steps,
        ..finding(history, anomaly, summary, of)
    }
}

/// The kind of an edge, and the edge in words.
fn words(
    history: &RegisterHistory,
    from: u32,
    reason: OrderReason,
    to: u32,
) -> (&'static str, String) {
    let (one, other) = (history.shown(from), history.shown(to));
    match reason {
        OrderReason::Process => ("process", format!("{one}, then {other}")),
        OrderReason::Reads => ("wr", format!("{one}, whose value is returned by {other}")),
        OrderReason::Initial => ("rw", format!("{one}, before every write such as {other}")),
        OrderReason::Seen(read) => {
            let process = history.processes[history.actions[read as usize].session as usize];
            let index = history.actions[read as usize].index;
            let text = format!(
                "{one}, before {other}: process {process} must have seen the former when it returned the latter in op {index}"
            );
            ("ww", text)
        }
    }
}
