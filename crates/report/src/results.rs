//! The report for machines.

use crate::report::Report;
use seatrial_cause::FindingCause;
use seatrial_checker::{Finding, Validity, Verdict};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;

/// The version of the document. It changes when a field changes its name or its meaning, not when one is added.
const SCHEMA: u64 = 1;

/// The results of a check as one JSON document, the schema of `docs/formats/results.md`.
pub fn results_json(report: &Report<'_>) -> Json {
    let mut results = Map::new();
    let mut put = |name: &str, value: Json| results.insert(name.to_owned(), value);
    put("schema", json!(SCHEMA));
    let validity = report.validity();
    put("valid", json!(validity));
    if let Validity::Unknown(reason) = &validity {
        put("reason", json!(reason));
    }
    put("model", json!(report.model()));
    put("proof", json!(report.proofs().first()));
    put("undecided", json!(report.undecided()));
    let counts = report.counts;
    put("operations", json!(counts.count));
    put("events", json!(report.overview.events()));
    put(
        "counts",
        json!({"ok": counts.ok, "fail": counts.fail, "info": counts.info}),
    );
    put("faults", json!(report.fault_count()));
    if let Some(failovers) = &report.failovers {
        put("failovers", json!(failovers));
    }
    put("anomalies", json!(report.anomalies()));
    let not = union(report.verdicts, |verdict| &verdict.not);
    let also_not = union(report.verdicts, |verdict| &verdict.also_not);
    put("not", json!(not));
    let stronger: Vec<_> = also_not.difference(&not).collect();
    put("also_not", json!(stronger));
    put("holds", json!(report.holds()));
    let findings = report.findings();
    put(
        "findings",
        findings
            .enumerate()
            .map(|(number, (checker, finding))| {
                finding_json(checker, finding, report.causes.of(number))
            })
            .collect(),
    );
    if !report.causes.notes().is_empty() {
        put("log_notes", json!(report.causes.notes()));
    }
    let checkers = report.verdicts.iter();
    let checkers: Map<String, Json> = checkers
        .map(|verdict| (verdict.checker.to_owned(), verdict_json(verdict)))
        .collect();
    put("checkers", Json::Object(checkers));
    if let Some(chosen) = &report.chosen {
        put("chosen", json!(chosen));
    }
    if let Some(limit) = &report.limit {
        put("limit", json!(limit));
    }
    put("warnings", json!(report.warnings));
    put(
        "seconds",
        json!(report.checked_in.map(|time| time.as_secs_f64())),
    );
    Json::Object(results)
}

/// The models that any verdict names, each once.
fn union(
    verdicts: &[Verdict],
    models: impl Fn(&Verdict) -> &Vec<&'static str>,
) -> BTreeSet<&'static str> {
    verdicts.iter().flat_map(models).copied().collect()
}

/// A finding, the checker that found it, and its cause if that is known.
fn finding_json(checker: &str, finding: &Finding, cause: Option<&FindingCause>) -> Json {
    let mut json = Map::from_iter([("checker".to_owned(), json!(checker))]);
    if let Json::Object(fields) = json!(finding) {
        json.extend(fields);
    }
    if let Some(cause) = cause {
        json.insert("cause".to_owned(), json!(cause));
    }
    Json::Object(json)
}

/// A verdict without its findings, which stand at the top.
fn verdict_json(verdict: &Verdict) -> Json {
    let mut json = json!(verdict);
    if let Some(fields) = json.as_object_mut() {
        fields.shift_remove("checker");
        fields.shift_remove("findings");
    }
    json
}
