//! The direct anomalies of list-append in one pass over a history of any size.

mod marks;
mod own;
mod retries;
mod scan;
mod witness;

pub(super) use own::{Done, Own};
pub(super) use scan::{Columns, mops};

use super::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL};
use super::findings::FINDINGS_MAX;
use super::level::boundary;
use super::passes::{InTurn, Passes};
use crate::{Anomaly, Checker, Finding, Validity, Verdict};
use marks::{Keys, Marks};
use retries::{Attempts, Retries};
use scan::{Part, Scan};
use seatrial_history::{Chunks, FoldError, Folder, History, Key};
use serde_json::json;
use std::collections::BTreeMap;
use witness::{Lines, Read, Readers, Reads, Shown, Unresolved};

/// Looks for what needs no graph: aborted reads (G1a), intermediate reads (G1b), reads of elements that nobody
/// appended, and transactions that contradict themselves (internal, future read).
///
/// One pass over the chunks of a history, side by side, in some bits of memory per element; further passes only when
/// there is something to explain. So it judges histories that do not fit in memory. Its downside: it says nothing about
/// cycles; a history that is valid here may still be anything but serializable. Idea and rates of the marks: a
/// prototype, whose pass took two maps of failed and intermediate writes and one more pass in Elle
/// (`elle.list-append/g1a-cases`, `g1b-cases`).
#[derive(Clone, Copy, Debug, Default)]
pub struct G1;

impl G1 {
    /// Judges the folder's history. The error is that of a chunk that cannot be read.
    pub fn judge<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        verdict(folder)
    }
}

impl Checker for G1 {
    fn name(&self) -> &'static str {
        "g1"
    }

    fn check(&self, history: &History) -> Verdict {
        let judged = verdict(&InTurn(history));
        judged.unwrap_or_else(|error| Verdict::valid("g1").unknown(error.to_string()))
    }
}

fn verdict<P: Passes>(passes: &P) -> Result<Verdict, P::Error> {
    let mut part = passes.pass(Scan)?;
    let mut verdict = Verdict::valid("g1");
    if let Some((index, reason)) = part.refused {
        return Ok(verdict.unknown(format!("op {index}: {reason}")));
    }
    if !part.unresolved.is_empty() {
        let invocations = std::mem::take(&mut part.unresolved).into_iter().collect();
        for (key, marks) in passes.pass(Unresolved { invocations })? {
            part.keys.entry(key).or_default().join(marks);
        }
    }
    let mut attempts = BTreeMap::new();
    if part.has_repeated {
        let keys = part.keys.iter().filter(|(_, marks)| marks.has_repeated());
        let keys = keys.map(|(key, marks)| (key.clone(), marks.clone()));
        let keys = keys.collect();
        attempts = passes.pass(Retries { keys })?;
        if let Err((key, element)) = retries::settle(&mut part.keys, &attempts) {
            return Ok(verdict.unknown(format!(
                "[:append {key} {element}] occurs twice: elements must be unique for each key, but for attempts that failed"
            )));
        }
    }
    verdict.details = json!({
        "transactions": part.tally.transactions,
        "ok": part.tally.ok,
        "fail": part.tally.fail,
        "info": part.tally.transactions - part.tally.ok.min(part.tally.transactions)
            - part.tally.fail.min(part.tally.transactions - part.tally.ok),
        "keys": part.keys.len(),
        "elements": part.keys.values().map(Marks::written).sum::<u64>(),
        "findings_max": FINDINGS_MAX,
    });
    explain(passes, part, &attempts, &mut verdict)?;
    if !verdict.anomalies.is_empty() {
        verdict.valid = Validity::Invalid;
        let boundary = boundary(verdict.anomalies.keys().copied());
        verdict.not = boundary.not;
        verdict.also_not = boundary.also_not;
    }
    Ok(verdict)
}

/// Adds what was found, in words.
fn explain<P: Passes>(
    passes: &P,
    part: Part,
    attempts: &BTreeMap<(Key, i64), Attempts>,
    verdict: &mut Verdict,
) -> Result<(), P::Error> {
    let suspects = part
        .keys
        .into_iter()
        .filter(|(_, marks)| marks.is_suspect());
    let keys: Keys = suspects.collect();
    let own = [
        (INTERNAL, part.tally.internal, part.internal),
        (FUTURE_READ, part.tally.future, part.future),
    ];
    if keys.is_empty() && own.iter().all(|(_, count, _)| *count == 0) {
        return Ok(());
    }
    let reads = if keys.is_empty() {
        Reads::new()
    } else {
        passes.pass(Readers { keys })?
    };
    let kept = || reads.values().flat_map(|(_, kept)| kept);
    let lines = passes.pass(Shown {
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

/// A transaction that contradicts itself.
fn contradiction(anomaly: Anomaly, index: u64, lines: &Lines) -> Finding {
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
    }
}

/// A read of what it should not have seen.
fn finding(anomaly: Anomaly, read: &Read, lines: &Lines) -> Finding {
    let Read {
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
            "{reader}\nobserved element {element} of key {key}, which nobody ever appended."
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
    }
}

#[cfg(test)]
mod tests;
