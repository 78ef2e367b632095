//! Certificates of registers: each verdict's holds, each that was tampered with does not.

use crate::registers::{any_inference, any_order, disturbed};
use crate::stores::{STORES, printed, random_history};
use crate::transactions::registers;
use seatrial_checker::{Checker, Validity, Verdict, certify};
use seatrial_cycles::Level;
use seatrial_farm::{all_histories, histories, least};
use seatrial_history::{History, OpType};
use seatrial_inference::RwRegister;
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, CycleEdge, Evidence, Proof, Versions, verify};
use std::collections::BTreeMap;

/// All reasons in a finding.
fn reasons(finding: &mut Evidence) -> Vec<&mut Versions> {
    let edges = finding.steps.iter_mut();
    let edges = edges.filter_map(|edge: &mut CycleEdge| edge.versions.as_mut());
    edges.chain(finding.versions.as_mut()).collect()
}

/// Something wrong with the reasons of a finding.
fn with_another_reason(finding: &mut Evidence, rng: &mut Rng) -> &'static str {
    let mut reasons = reasons(finding);
    if reasons.is_empty() {
        finding.anomaly = "G9".into();
        return "anomaly";
    }
    let at = rng.index(reasons.len());
    let reason = &mut *reasons[at];
    let at = rng.index(reason.steps.len());
    let step = &mut reason.steps[at];
    match rng.below(5) {
        0 => {
            step.to = step.to.map_or(Some(77), |_| None);
            "value"
        }
        1 => {
            reason.key = "77".into();
            "key"
        }
        2 if step.rule != "initial-state" => {
            step.operations.reverse();
            if step.operations.len() < 2 {
                step.operations.clear();
            }
            "operations"
        }
        3 => {
            step.rule = "linear-keys".into();
            "rule"
        }
        _ => {
            reason.steps.clear();
            "steps"
        }
    }
}

/// What is done to a certificate, and what that is called.
fn tampered(certificate: &Certificate, rng: &mut Rng) -> (Certificate, &'static str) {
    let mut other = certificate.clone();
    let what = match &mut other.proof {
        Proof::Serial(order)
        | Proof::Snapshots(order)
        | Proof::Visible(order)
        | Proof::Commits(order) => {
            if !order.is_empty() {
                order.remove(rng.index(order.len()));
            }
            "order"
        }
        Proof::Findings(findings) => {
            let at = rng.index(findings.len());
            let finding = &mut findings[at];
            match rng.below(4) {
                0 if !finding.steps.is_empty() => {
                    finding.steps.pop();
                    "cycle"
                }
                1 => {
                    let is_read = ["G1a", "G1b"].contains(&finding.anomaly.as_str());
                    finding.anomaly = if is_read { "internal" } else { "G1a" }.into();
                    "anomaly"
                }
                2 => {
                    other.model = "read-uncommitted".into();
                    "model"
                }
                _ => with_another_reason(finding, rng),
            }
        }
        // Nothing of the least core can be left out.
        Proof::Core(core) => {
            core.remove(rng.index(core.len()));
            "core"
        }
        _ => panic!("of data types"),
    };
    (other, what)
}

/// Is a missing transaction of this order undetectable, or is the weaker model violated too?
fn is_excused(history: &History, certificate: &Certificate, what: &str) -> bool {
    let unknown = |place: &u64| {
        let completion = history.completion(*place as usize);
        completion.is_none_or(|op| op.kind == OpType::Info)
    };
    match &certificate.proof {
        Proof::Serial(order)
        | Proof::Snapshots(order)
        | Proof::Visible(order)
        | Proof::Commits(order) => order.is_empty() || order.iter().any(unknown),
        Proof::Findings(findings) => {
            let weakest = Level::ReadUncommitted.forbidden();
            let mut all = findings.iter();
            what == "model" && all.all(|one| weakest.contains(one.anomaly.as_str()))
        }
        _ => false,
    }
}

/// What came of many histories.
#[derive(Default)]
struct Farm {
    /// By level and verdict.
    proven: BTreeMap<(Level, bool), u64>,
    /// By rule: steps of versions that took it.
    rules: BTreeMap<String, u32>,
    /// By what was done: certificates that were refused for it.
    refused: BTreeMap<&'static str, u32>,
    /// By anomaly: findings without evidence.
    bare: BTreeMap<String, u64>,
    /// Invalid verdicts without a certificate.
    unproven: u64,
    wrong: Vec<String>,
}

impl Farm {
    fn check(&mut self, seed: u64, levels: &[Level]) {
        let mut rng = Rng::from_seed(seed ^ 0x9f00);
        let store = STORES[seed as usize % STORES.len()];
        let length = 2 + rng.below(6);
        let mut history = registers(&random_history(store, length, &mut rng));
        if rng.chance(0.4) {
            history = disturbed(&history, &mut rng);
        }
        let inference = any_inference(&mut rng);
        let level = *rng.pick(levels);
        let mut checker = RwRegister::new(level).with_inference(inference);
        if rng.chance(0.2) {
            checker = checker.with_order(any_order(&history, &mut rng));
        }
        let (verdict, certificate) = certify(&checker, &history).unwrap();
        assert_eq!(verdict.valid, checker.check(&history).valid, "seed {seed}");
        let Some(certificate) = certificate else {
            let is_said = verdict.details.unproven.is_some() || !verdict.undecided.is_empty();
            assert!(is_said, "seed {seed} {verdict:?}");
            self.unproven += u64::from(verdict.valid == Validity::Invalid);
            return;
        };
        assert_eq!(certificate.is_valid(), verdict.valid == Validity::Valid);
        let read = Certificate::from_text(certificate.to_json().to_string().as_bytes());
        assert_eq!(read.as_ref(), Ok(&certificate));
        let context = format!(
            "seed {seed} {store:?} {level:?} {inference:?}\n{}\n{:#}",
            printed(&history),
            certificate.to_json()
        );
        if let Err(reason) = verify(&history, &certificate) {
            self.wrong.push(format!("{reason}: {context}"));
            return;
        }
        self.count_bare(&verdict, &certificate);
        let is_valid = certificate.is_valid();
        *self.proven.entry((level, is_valid)).or_default() += 1;
        self.count_rules(&certificate);
        let (other, what) = tampered(&certificate, &mut rng);
        if !is_excused(&history, &certificate, what) {
            *self.refused.entry(what).or_default() += 1;
            if verify(&history, &other).is_ok() {
                self.wrong.push(format!("{what} {context}"));
            }
        }
    }

    /// Notes findings that the certificate has no evidence for.
    fn count_bare(&mut self, verdict: &Verdict, certificate: &Certificate) {
        let Proof::Findings(evidence) = &certificate.proof else {
            return;
        };
        let evidence = evidence.iter();
        for finding in &verdict.findings {
            if !evidence.clone().any(|one| one.anomaly == finding.anomaly) {
                *self.bare.entry(finding.anomaly.to_owned()).or_default() += 1;
            }
        }
    }

    fn count_rules(&mut self, certificate: &Certificate) {
        let Proof::Findings(findings) = &mut certificate.clone().proof else {
            return;
        };
        let steps = findings.iter_mut().flat_map(reasons);
        for step in steps.flat_map(|versions| &versions.steps) {
            let is_chained = !(step.above.is_empty() && step.below.is_empty());
            let chained = is_chained.then_some("rmw-keys");
            for rule in [step.rule.as_str()].into_iter().chain(chained) {
                *self.rules.entry(rule.to_owned()).or_default() += 1;
            }
        }
    }
}

#[test]
fn verdicts_about_registers_come_with_certificates_that_hold() {
    let levels: Vec<_> = Level::all().collect();
    let mut farm = Farm::default();
    for seed in 0..all_histories(12_000) {
        farm.check(seed, &levels);
    }
    let Farm {
        proven,
        rules,
        refused,
        bare,
        unproven,
        wrong,
    } = farm;
    let shown: Vec<_> = wrong.iter().take(4).map(String::as_str).collect();
    assert!(
        shown.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        shown.join("\n")
    );
    let count = |level, is_valid| proven.get(&(level, is_valid)).copied().unwrap_or(0);
    for level in [
        Level::ReadCommitted,
        Level::SnapshotIsolation,
        Level::StrictSerializable,
    ] {
        let is_seen = count(level, true) > 20 && count(level, false) > 20;
        assert!(is_seen, "{proven:?}");
    }
    assert_eq!(rules.len(), 6, "{rules:?}");
    let kinds = [
        "order",
        "core",
        "cycle",
        "anomaly",
        "model",
        "value",
        "key",
        "operations",
        "rule",
        "steps",
    ];
    let is_refused = |kind: &&str| refused.get(*kind) > Some(&5);
    assert!(kinds.iter().all(is_refused), "{refused:?}");
    let all: u64 = proven.values().sum();
    println!(
        "{proven:?}, {unproven} invalid ones without a certificate; refused: {refused:?}; without evidence: {bare:?}"
    );
    assert!(unproven * 1_000 < all, "{unproven} of {all}");
    let without: u64 = bare.values().sum();
    assert!(without * 1_000 < all, "{bare:?}");
}

/// Bytes that are no certificate, or another one, are refused without a panic, whatever they say.
#[test]
fn damaged_certificates_are_refused_or_checked() {
    let (mut read, mut refused, mut held) = (0, 0, 0);
    for seed in 0..histories(4_000) {
        let mut rng = Rng::from_seed(seed ^ 0xf022);
        let store = STORES[seed as usize % STORES.len()];
        let history = registers(&random_history(store, 5, &mut rng));
        let inference = any_inference(&mut rng);
        let checker = RwRegister::new(Level::StrictSerializable).with_inference(inference);
        let Ok((_, Some(certificate))) = certify(&checker, &history) else {
            continue;
        };
        let mut text = certificate.to_json().to_string().into_bytes();
        for _ in 0..=rng.below(3) {
            if text.is_empty() {
                break;
            }
            let at = rng.index(text.len());
            match rng.below(4) {
                0 => text[at] = rng.below(256) as u8,
                1 => drop(text.remove(at)),
                2 => text.insert(at, *rng.pick(b"0123456789,[]{}\"-nul")),
                _ => text.truncate(at),
            }
        }
        match Certificate::from_text(&text) {
            Ok(other) => {
                read += 1;
                held += u64::from(verify(&history, &other).is_ok());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        read > least(100) && refused > least(100) && held < read,
        "{read} {refused} {held}"
    );
}

#[test]
fn one_transaction_in_two_roles_proves_nothing() {
    let text = b"{:index 0, :time 0, :type :invoke, :process 0, :f :txn, :value [[:r 0 nil] [:w 0 1]]}
{:index 1, :time 1, :type :ok, :process 0, :f :txn, :value [[:r 0 nil] [:w 0 1]]}
{:index 2, :time 2, :type :invoke, :process 0, :f :txn, :value [[:r 0 nil] [:w 0 2] [:r 0 nil] [:w 0 3]]}
{:index 3, :time 3, :type :ok, :process 0, :f :txn, :value [[:r 0 1] [:w 0 2] [:r 0 2] [:w 0 3]]}";
    let options = seatrial_interchange::import::ImportOptions::default();
    let format = seatrial_interchange::import::Format::Edn;
    let history = seatrial_interchange::import::read("a", text, format, options).unwrap();
    for (anomaly, operation) in [("G1b", 3), ("lost-update", 1)] {
        let document = serde_json::json!({
            "certificate": 2,
            "model": "serializable",
            "valid": false,
            "proof": "findings",
            "findings": [{"anomaly": anomaly, "operations": [operation, operation], "steps": []}],
        });
        let certificate = Certificate::from_json(&document).unwrap();
        let refused = verify(&history, &certificate).unwrap_err();
        assert!(
            refused.to_string().contains("a transaction twice"),
            "{refused}"
        );
    }
}
