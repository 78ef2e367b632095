//! The search for causes: rounds over the history, then the logs.

use crate::FaultWindow;
use crate::finding_cause::{Causes, FindingCause, OperationRecord};
use crate::log_search::{LogSearch, LogSpan, distance};
use crate::nearest::Nearest;
use crate::short_text::{brief, error_text, one_line};
use seatrial_history::{
    Chunk, ChunkSource, FixedMap, History, Op, OpType, OpView, Provenance, SourceError, Value,
};
use seatrial_query::{ChunkSubjects, ExcerptFold, SubjectSet};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Longest label of an operation in characters.
const LABEL_LENGTH_MAX: usize = 160;

/// A finding whose cause is searched.
#[derive(Clone, Copy, Debug)]
pub struct CauseSubject<'a> {
    /// Indices of its operations, as in [`Finding::operations`](seatrial_checker::Finding::operations).
    pub operations: &'a [u64],
}

/// The search for the causes of findings.
///
/// 1. [`CauseSearch::begin`] reads the operations that the findings name (one round), which gives each a span of time and keys;
///    then the other operations on these keys in these spans (a round that ends after the last span).
/// 2. [`CauseSearch::begin_log`] and [`CauseSearch::push_log`] take the nodes' logs.
/// 3. [`CauseSearch::finish`] returns the causes.
///
/// Without findings nothing is read. Memory: the lists of [`FindingCause`] for at most [`Causes::FINDINGS_MAX`] findings, and the
/// open invocations.
#[derive(Debug)]
pub struct CauseSearch {
    causes: Vec<Option<FindingCause>>,
    /// The number of the finding of each span of the logs.
    numbers: Vec<usize>,
    logs: LogSearch,
}

impl CauseSearch {
    /// Reads the history around these findings. Of the attributes it needs `started_ns`, without which logs cannot be placed.
    pub fn begin(
        findings: &[CauseSubject<'_>],
        faults: &[FaultWindow],
        attributes: &Json,
        source: &dyn ChunkSource,
    ) -> Result<CauseSearch, SourceError> {
        let findings = &findings[..findings.len().min(Causes::FINDINGS_MAX)];
        let is_timeless = Provenance::of_attributes(attributes).is_timeless();
        let named = findings.iter().flat_map(|finding| finding.operations);
        let excerpts = ExcerptFold::of(named.copied());
        let mut found = Vec::new();
        if !excerpts.is_empty() && !is_timeless {
            let excerpt = source.fold(&excerpts)?;
            let all = findings.iter().enumerate();
            found.extend(all.filter_map(|(number, one)| Surroundings::new(number, one, &excerpt)));
            add_subjects(&mut found, &excerpt);
            add_others(&mut found, source)?;
        }
        let mut causes: Vec<Option<FindingCause>> = findings.iter().map(|_| None).collect();
        let (mut numbers, mut spans) = (Vec::new(), Vec::new());
        for around in found {
            let (number, span, mut cause) = around.finish();
            add_faults(&mut cause, faults);
            let mut moments = moments(&cause);
            moments.sort_unstable();
            numbers.push(number);
            spans.push(LogSpan { span, moments });
            causes[number] = Some(cause);
        }
        let started = attributes.get("started_ns").and_then(Json::as_i64);
        Ok(CauseSearch {
            causes,
            numbers,
            logs: LogSearch::new(started, spans),
        })
    }

    /// Is there a finding whose time is known, so that logs are of use?
    pub fn wants_logs(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Begins the next log, of this node and with this name.
    pub fn begin_log(&mut self, node: &str, file: &str) {
        self.logs.begin(node, file);
    }

    /// The next bytes of the log.
    pub fn push_log(&mut self, bytes: &[u8]) {
        self.logs.push(bytes);
    }

    /// The causes.
    pub fn finish(self) -> Causes {
        let mut causes = self.causes;
        let (lines, notes) = self.logs.finish();
        for (number, (lines, left_out)) in self.numbers.into_iter().zip(lines) {
            if let Some(cause) = &mut causes[number] {
                cause.log_lines = lines;
                cause.log_lines_left_out = left_out;
            }
        }
        Causes { causes, notes }
    }
}

/// When something happened in a cause: the ends of its operations and faults.
fn moments(cause: &FindingCause) -> Vec<i64> {
    let operations = cause.operations.iter();
    let operations = operations.flat_map(|one| [one.begin, one.end]);
    let faults = cause.faults.iter();
    let faults = faults.flat_map(|fault| [Some(fault.begin), fault.end]);
    operations.chain(faults).flatten().collect()
}

/// A finding while its surroundings are read.
struct Surroundings {
    number: usize,
    cause: FindingCause,
    /// The span with its margin.
    span: (i64, i64),
    /// The ends of its operations, sorted.
    moments: Vec<i64>,
    /// Indices of its operations, both halves.
    own: BTreeSet<u64>,
    subjects: SubjectSet,
    others: Nearest<OperationRecord>,
}

impl Surroundings {
    /// `None` if no operation of the finding has a time.
    fn new(number: usize, finding: &CauseSubject<'_>, excerpt: &History) -> Option<Surroundings> {
        let mut own = BTreeSet::new();
        let mut operations = Vec::new();
        for index in finding.operations {
            let Some(position) = excerpt.position(*index) else {
                continue;
            };
            let op = &excerpt.ops()[position];
            let other = excerpt.pair(position).map(|other| &excerpt.ops()[other]);
            let (invocation, completion) = if op.is_invoke() {
                (Some(op), other)
            } else {
                (other, Some(op))
            };
            let halves = [invocation, completion].into_iter().flatten();
            if halves.fold(false, |is_new, op| own.insert(op.index) | is_new) {
                operations.push(record(invocation, completion)?);
            }
        }
        let ends = operations.iter().flat_map(|one| [one.begin, one.end]);
        let mut moments: Vec<i64> = ends.flatten().collect();
        moments.sort_unstable();
        let (begin, end) = (*moments.first()?, *moments.last()?);
        let left_out = operations
            .len()
            .saturating_sub(FindingCause::OPERATIONS_MAX);
        operations.truncate(FindingCause::OPERATIONS_MAX);
        operations.sort_by_key(|one| (one.end.or(one.begin), one.operation));
        Some(Surroundings {
            number,
            cause: FindingCause {
                begin,
                end,
                operations,
                operations_left_out: left_out as u64,
                ..FindingCause::default()
            },
            span: (
                begin.saturating_sub(FindingCause::MARGIN),
                end.saturating_add(FindingCause::MARGIN),
            ),
            moments,
            own,
            subjects: SubjectSet::default(),
            others: Nearest::new(FindingCause::OTHERS_MAX),
        })
    }

    /// Takes an operation that completes with this view, if it is another one on the same keys.
    fn take(&mut self, view: OpView<'_>, invocation: Option<i64>) {
        let end = view.time();
        let begin = invocation.unwrap_or(end);
        if end < self.span.0 || begin > self.span.1 || self.own.contains(&view.index()) {
            return;
        }
        let rank = distance(&self.moments, begin).min(distance(&self.moments, end));
        self.others.add(rank, || OperationRecord {
            begin: invocation,
            ..record(None, Some(&view.op()))
                .unwrap_or_else(|| unreachable!("an operation is given"))
        });
    }

    fn finish(self) -> (usize, (i64, i64), FindingCause) {
        let mut cause = self.cause;
        cause.keys = self.subjects.iter().take(FindingCause::KEYS_MAX).collect();
        let (mut others, left_out) = self.others.into_parts();
        others.sort_by_key(|one| (one.end, one.operation));
        cause.others = others;
        cause.others_left_out = left_out;
        (self.number, self.span, cause)
    }
}

/// The record of an operation, of which at least one half must be given.
fn record(invocation: Option<&Op>, completion: Option<&Op>) -> Option<OperationRecord> {
    let op = completion.or(invocation)?;
    let time = |op: Option<&Op>| op.map(|op| op.time).filter(|time| *time >= 0);
    let node = [completion, invocation].into_iter().flatten();
    let mut node = node.filter_map(|op| op.extra.get("node"));
    let label = match &op.value {
        Value::Txn(_) => brief(&op.value, LABEL_LENGTH_MAX),
        Value::Nil => brief(op.f, LABEL_LENGTH_MAX),
        value => brief(format_args!("{} {value}", op.f), LABEL_LENGTH_MAX),
    };
    Some(OperationRecord {
        operation: op.index,
        process: op.process.to_string(),
        node: node.next().map(error_text),
        kind: completion.map_or(OpType::Info, |op| op.kind),
        label: one_line(&label).into_owned(),
        begin: time(invocation),
        end: time(completion),
    })
}

/// Adds the keys of each finding's operations.
fn add_subjects(found: &mut [Surroundings], excerpt: &History) {
    // A history in memory is a source that cannot fail.
    let _ = excerpt.round(&mut |chunk| {
        for view in chunk.views() {
            for around in found.iter_mut() {
                if around.own.contains(&view.index())
                    && around.subjects.len() < FindingCause::KEYS_MAX
                {
                    around.subjects.insert_all(view);
                }
            }
        }
        ControlFlow::Continue(())
    });
}

/// Adds the other operations on the keys of each finding, up to the end of the last span.
fn add_others(found: &mut [Surroundings], source: &dyn ChunkSource) -> Result<(), SourceError> {
    let wanted = found.iter().filter(|around| !around.subjects.is_empty());
    let Some(last) = wanted.map(|around| around.span.1).max() else {
        return Ok(());
    };
    // Times of invocations of earlier chunks that have not completed, by position.
    let mut open: FixedMap<u64, i64> = FixedMap::default();
    source.round(&mut |chunk| {
        let header = chunk.header();
        for around in found.iter_mut() {
            let is_near = header.time_max >= around.span.0 && header.time_min <= around.span.1;
            if is_near && !around.subjects.is_empty() {
                look(around, chunk, &open);
            }
        }
        carry(chunk, &mut open);
        if header.time_min > last {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
}

/// Adds the completions of one chunk that concern the finding.
fn look(around: &mut Surroundings, chunk: &Chunk, open: &FixedMap<u64, i64>) {
    let first = chunk.first_position();
    let subjects = std::mem::take(&mut around.subjects);
    let prepared = ChunkSubjects::new(&subjects, chunk);
    let (from, to) = around.span;
    for view in chunk.views() {
        let is_end = view.kind() != OpType::Invoke && view.process().is_client();
        if !is_end || view.time() < from {
            continue;
        }
        let begun = view.invocation();
        let begin = begun.and_then(|position| match position.checked_sub(first) {
            Some(place) => Some(chunk.times()[place as usize]),
            None => open.get(&position).copied(),
        });
        let begin = begin.filter(|time| *time >= 0);
        if begin.unwrap_or(view.time()) <= to && prepared.concern(view) {
            around.take(view, begin);
        }
    }
    around.subjects = subjects;
}

/// Remembers the invocations of a chunk that do not complete in it, and forgets those that do.
fn carry(chunk: &Chunk, open: &mut FixedMap<u64, i64>) {
    let first = chunk.first_position();
    let mut is_done = vec![false; chunk.len()];
    for view in chunk.views() {
        if let Some(position) = view.invocation() {
            match position.checked_sub(first) {
                Some(place) => is_done[place as usize] = true,
                None => _ = open.remove(&position),
            }
        }
    }
    for view in chunk.views() {
        let is_open = view.kind() == OpType::Invoke && view.process().is_client();
        if is_open && !is_done[view.place()] {
            open.insert(view.position(), view.time());
        }
    }
}

/// Adds the faults that took effect within the span and its margin, the nearest ones.
fn add_faults(cause: &mut FindingCause, faults: &[FaultWindow]) {
    let from = cause.begin.saturating_sub(FindingCause::MARGIN);
    let to = cause.end.saturating_add(FindingCause::MARGIN);
    let mut moments = moments(cause);
    moments.sort_unstable();
    let mut nearest = Nearest::new(FindingCause::FAULTS_MAX);
    for fault in faults.iter().filter(|fault| fault.error.is_none()) {
        let end = if fault.instant {
            Some(fault.begin)
        } else {
            fault.end
        };
        if fault.begin > to || end.is_some_and(|end| end < from) {
            continue;
        }
        let end_distance = end.map_or(i64::MAX, |end| distance(&moments, end));
        let rank = distance(&moments, fault.begin).min(end_distance);
        nearest.add(rank, || fault.clone());
    }
    let (mut found, left_out) = nearest.into_parts();
    found.sort_by_key(|fault| (fault.begin, fault.operation));
    cause.faults = found;
    cause.faults_left_out = left_out;
}

#[cfg(test)]
mod tests;
