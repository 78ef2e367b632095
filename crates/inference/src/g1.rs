//! Checker `g1`: the anomalies of list-append that need no graph, in one pass over a history of any size.
//!
//! Reading order: `element_bits` (six bits per element), `internal_reads` (one transaction by itself), `scan` (the pass),
//! `retries` and `read_witnesses` (further passes, only when there is something to explain).

mod element_bits;
mod internal_reads;
mod read_witnesses;
mod retries;
mod scan;

pub(super) use internal_reads::{InternalReadChecker, MicroOperation};
pub(super) use scan::MicroOperations;

use element_bits::{ElementBits, KeyBits};
use read_witnesses::{
    AnomalousRead, AnomalousReads, OperationTexts, ReaderFold, UnresolvedFold, WriterFold,
};
use retries::{Attempts, RetryFold};
use scan::{ElementScan, ScanState};
use seatrial_checker::{
    Aims, Anomaly, Checker, Details, ElementReadFigures, FINDINGS_MAX, Figures, Finding,
    FoldChecker, OnlineChecker, Robustness, Validity, Verdict, check_source,
};
use seatrial_cycles::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL};
use seatrial_cycles::boundary;
use seatrial_history::{ChunkSource, History, Key, SourceError};
use std::collections::BTreeMap;

/// Finds aborted reads (G1a), intermediate reads (G1b), reads of elements that were never appended, and transactions with
/// internal contradictions (internal, future read).
///
/// One pass over the chunks of a history, in parallel, with a few bits of memory per element; further passes only if there is
/// something to explain. So it checks histories that do not fit in memory. Its downside: it does not search for cycles; a history
/// that is valid here need not be serializable. (Elle takes two maps of failed and intermediate writes and one more pass:
/// `elle.list-append/g1a-cases`, `g1b-cases`.)
#[derive(Clone, Copy, Debug, Default)]
pub struct G1;

impl Checker for G1 {
    fn name(&self) -> &'static str {
        "g1"
    }

    fn robustness(&self) -> Robustness {
        Robustness::OF_TRANSACTIONS
    }

    fn check(&self, history: &History) -> Verdict {
        let checked = check_source(self, history, &Aims::default());
        checked.map_or_else(
            |error| Verdict::valid("g1").unknown(error.to_string()),
            |checked| checked.verdict,
        )
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        let end = |part, source: &dyn ChunkSource| Ok(verdict(part, source)?.into());
        Box::new(FoldChecker::with_end("g1", ElementScan, end))
    }
}

fn verdict(mut part: ScanState, source: &dyn ChunkSource) -> Result<Verdict, SourceError> {
    let mut verdict = Verdict::valid("g1");
    if let Some((index, reason)) = part.refused {
        return Ok(verdict.unknown(format!("op {index}: {reason}")));
    }
    if !part.unresolved.is_empty() {
        let invocations = std::mem::take(&mut part.unresolved).into_iter().collect();
        for (key, bits) in source.fold(&UnresolvedFold { invocations })? {
            part.keys.entry(key).or_default().join(bits);
        }
    }
    let mut attempts = BTreeMap::new();
    if part.has_repeated {
        let keys = part.keys.iter().filter(|(_, bits)| bits.has_repeated());
        let keys = keys.map(|(key, bits)| (key.clone(), bits.clone()));
        let keys = keys.collect();
        attempts = source.fold(&RetryFold { keys })?;
        if let Err((key, element)) = retries::settle(&mut part.keys, &attempts) {
            return Ok(verdict.unknown(format!(
                "[:append {key} {element}] occurs twice: elements must be unique for each key, but for attempts that failed"
            )));
        }
    }
    verdict.details = Details::of(Figures::ElementReads(ElementReadFigures {
        transactions: part.tally.counts(),
        keys: part.keys.len(),
        elements: part.keys.values().map(ElementBits::written).sum(),
        findings_max: FINDINGS_MAX,
    }));
    explain(source, part, &attempts, &mut verdict)?;
    if !verdict.anomalies.is_empty() {
        verdict.valid = Validity::Invalid;
        let boundary = boundary(verdict.anomalies.keys().copied());
        verdict.not = boundary.not;
        verdict.also_not = boundary.also_not;
    }
    Ok(verdict)
}

/// Adds the findings, explained.
fn explain(
    source: &dyn ChunkSource,
    part: ScanState,
    attempts: &BTreeMap<(Key, i64), Attempts>,
    verdict: &mut Verdict,
) -> Result<(), SourceError> {
    let suspects = part.keys.into_iter().filter(|(_, bits)| bits.is_suspect());
    let keys: KeyBits = suspects.collect();
    let own = [
        (INTERNAL, part.tally.internal, part.internal),
        (FUTURE_READ, part.tally.future, part.future),
    ];
    if keys.is_empty() && own.iter().all(|(_, count, _)| *count == 0) {
        return Ok(());
    }
    let reads = if keys.is_empty() {
        AnomalousReads::new()
    } else {
        source.fold(&ReaderFold { keys })?
    };
    let kept = || reads.values().flat_map(|(_, kept)| kept);
    let lines = source.fold(&WriterFold {
        appends: kept()
            .map(|read| {
                let append = (read.key.clone(), read.element);
                let attempt = attempts.get(&append).map(|attempt| attempt.position);
                (append, attempt)
            })
            .collect(),
        indices: own.iter().flat_map(|(_, _, kept)| kept).copied().collect(),
    })?;
    for (anomaly, count, kept) in own {
        let findings = kept
            .into_iter()
            .map(|index| contradiction(anomaly, index, &lines));
        add(verdict, anomaly, count, findings);
    }
    for anomaly in [G1A, G1B, GARBAGE_READ] {
        let (count, kept) = reads
            .get(anomaly)
            .map_or((0, &[][..]), |(n, kept)| (*n, kept));
        let findings = kept.iter().map(|read| finding(anomaly, read, &lines));
        add(verdict, anomaly, count, findings);
    }
    Ok(())
}

fn add(
    verdict: &mut Verdict,
    anomaly: Anomaly,
    count: u64,
    findings: impl Iterator<Item = Finding>,
) {
    if count > 0 {
        verdict.anomalies.insert(anomaly, count);
        verdict.findings.extend(findings);
    }
}

/// The finding of a transaction with an internal contradiction.
fn contradiction(anomaly: Anomaly, index: u64, lines: &OperationTexts) -> Finding {
    let shown = lines.operations.get(&index).map_or("", String::as_str);
    let what = if anomaly == INTERNAL {
        "One of its reads contradicts what it read or appended before."
    } else {
        "One of its reads observes what it appends only later."
    };
    Finding {
        anomaly,
        summary: format!("{shown}\n{what}"),
        operations: vec![index],
        steps: Vec::new(),
        linearization: None,
    }
}

/// The finding of an aborted, intermediate or garbage read.
fn finding(anomaly: Anomaly, read: &AnomalousRead, lines: &OperationTexts) -> Finding {
    let AnomalousRead {
        key,
        element,
        index,
        reader,
    } = read;
    let writer = lines.writers.get(&(key.clone(), *element));
    let shown = writer.map_or("", |(_, text)| text);
    let summary = match anomaly {
        G1A => format!(
            "{reader}\nobserved element {element} of key {key}, whose append was aborted:\n{shown}"
        ),
        G1B => format!(
            "{reader}\nobserved key {key} as it was in the middle of another transaction, which appended more after \
             {element}:\n{shown}"
        ),
        _ => format!(
            "{reader}\nobserved element {element} of key {key}, which no operation appended."
        ),
    };
    let mut operations = vec![*index];
    operations.extend(
        writer
            .map(|(index, _)| *index)
            .filter(|writer| writer != index),
    );
    Finding {
        anomaly,
        summary,
        operations,
        steps: Vec::new(),
        linearization: None,
    }
}

#[cfg(test)]
mod tests;
