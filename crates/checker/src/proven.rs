//! Verdicts that are proven on the spot.

use crate::{Certificate, Checker, Unproven, Validity, Verdict, Verifier};
use seatrial_history::History;
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};

/// Certificates by the name of the file that they belong in.
#[derive(Debug, Default)]
pub struct Proofs(Mutex<Vec<(String, Certificate)>>);

impl Proofs {
    /// All that came together so far; none are left.
    pub fn take(&self) -> Vec<(String, Certificate)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut all)
    }

    /// Keeps one more under a name of its own.
    fn add(&self, checker: &str, certificate: Certificate) -> String {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = if all.is_empty() {
            "certificate.json".to_owned()
        } else {
            format!("certificate-{checker}.json")
        };
        all.push((name.clone(), certificate));
        name
    }
}

/// Judges like another checker; when that can prove its verdicts, the proof is kept, and replayed by the independent verifier.
///
/// What came of it stands in the verdict's details: `certificate` is `{"file", "holds"}`, or `{"left_out": reason}`. A
/// certificate that does not hold is a bug of ours, in the checker or in the verifier: it is left out (`holds` is false), and a
/// verdict that nothing else supports becomes unknown. Findings do not: whoever reads them can check them.
/// Of a certificate that the verifier gave up on nobody knows whether it holds, so `holds` is null.
/// Judging takes about twice as long, so it is for histories of tests; past [`Proven::OPERATIONS_MAX`] nothing is proven.
pub struct Proven {
    checker: Box<dyn Checker>,
    proofs: Arc<Proofs>,
}

impl Proven {
    /// Operations of the longest history whose verdict is proven on the spot.
    pub const OPERATIONS_MAX: usize = 1 << 20;

    /// The same checkers, proving what they can; the proofs go to `proofs`.
    pub fn all(checkers: Vec<Box<dyn Checker>>, proofs: &Arc<Proofs>) -> Vec<Box<dyn Checker>> {
        let proven = checkers.into_iter().map(|checker| -> Box<dyn Checker> {
            let proofs = Arc::clone(proofs);
            Box::new(Proven { checker, proofs })
        });
        proven.collect()
    }

    fn can_prove(&self) -> bool {
        self.checker.certify(&History::default()).is_some()
    }

    /// The verdict with what replaying its certificate came to. Findings stand by themselves: a certificate of theirs that is
    /// refused is left out.
    fn replayed(
        &self,
        history: &History,
        mut verdict: Verdict,
        mut certificate: Certificate,
    ) -> Verdict {
        let verifier = Verifier::read(history);
        let Ok(verifier) = verifier.inspect_err(|error| {
            verdict.details["certificate"] = json!({"left_out": error.to_string()});
        }) else {
            return verdict;
        };
        certificate.history = Some(verifier.fingerprint());
        let answer = verifier.verify(&certificate);
        if let Err(Unproven::Refuted(reason)) = answer {
            let told = format!("it was refused, which is a bug of seatrial: {reason}");
            verdict.details["certificate"] = json!({"holds": false, "left_out": told});
            if verdict.valid == Validity::Invalid {
                return verdict;
            }
            let reason = format!(
                "the certificate of this verdict ({:?}) does not hold, which is a bug of seatrial: {reason}",
                verdict.valid
            );
            verdict.proof = None;
            return verdict.unknown(reason);
        }
        let file = self.proofs.add(self.checker.name(), certificate);
        verdict.details["certificate"] = match answer {
            Ok(()) => json!({"file": file, "holds": true}),
            Err(unsettled) => {
                json!({"file": file, "holds": null, "reason": unsettled.to_string()})
            }
        };
        verdict
    }

    /// A verdict on too long a history.
    fn unproven(&self, mut verdict: Verdict) -> Verdict {
        if self.can_prove() {
            let reason = format!("more than {} events", Proven::OPERATIONS_MAX);
            verdict.details["certificate"] = json!({"left_out": reason});
        }
        verdict
    }

    /// Was a certificate refused that this verdict rests on?
    pub fn is_refuted(verdict: &Verdict) -> bool {
        verdict.details["certificate"]["holds"] == false
    }
}

impl Checker for Proven {
    fn name(&self) -> &'static str {
        self.checker.name()
    }

    fn check(&self, history: &History) -> Verdict {
        let is_short = history.len() <= Proven::OPERATIONS_MAX;
        let certified = is_short.then(|| self.checker.certify(history));
        let (mut verdict, certificate) = match certified {
            Some(Some(certified)) => certified,
            Some(None) => return self.checker.check(history),
            None => return self.unproven(self.checker.check(history)),
        };
        let Some(certificate) = certificate else {
            let unproven = verdict.details["unproven"].as_str();
            let reason = unproven.unwrap_or("nothing simple proves this verdict");
            verdict.details["certificate"] = json!({"left_out": reason});
            return verdict;
        };
        self.replayed(history, verdict, certificate)
    }

    /// Judges once more, for the proof.
    fn conclude(&self, known: Verdict, history: &History) -> Verdict {
        if history.len() > Proven::OPERATIONS_MAX {
            self.unproven(known)
        } else if self.can_prove() {
            self.check(history)
        } else {
            known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::{Level, ListAppend};
    use crate::{Evidence, Proof, Stats, Validity};
    use seatrial_history::{Op, OpType, Process, Value};

    /// Says that everything is wrong, or valid, and has no proof.
    struct Liar {
        is_valid: bool,
    }

    impl Checker for Liar {
        fn name(&self) -> &'static str {
            "liar"
        }
        fn check(&self, _: &History) -> Verdict {
            Verdict::valid("liar")
        }
        fn certify(&self, history: &History) -> Option<(Verdict, Option<Certificate>)> {
            let mut verdict = self.check(history);
            let proof = if self.is_valid {
                Proof::Serial(vec![0, 0])
            } else {
                verdict.valid = Validity::Invalid;
                Proof::Findings(vec![Evidence {
                    anomaly: "G1a".into(),
                    operations: vec![1, 1],
                    steps: Vec::new(),
                    versions: None,
                }])
            };
            Some((verdict, Some(Certificate::new("serializable", proof))))
        }
    }

    #[test]
    fn a_proof_that_does_not_hold_is_left_out_and_supports_nothing() {
        let ops = [OpType::Invoke, OpType::Ok].map(|kind| Op {
            kind,
            ..Op::invoke(Process::Client(1), "txn", Value::Txn(Vec::new().into()))
        });
        let history = History::from_unindexed(ops.to_vec());
        let proofs = Arc::new(Proofs::default());
        let checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(Stats),
            Box::new(ListAppend::new(Level::Serializable)),
            Box::new(ListAppend::new(Level::CursorStability)),
            Box::new(Liar { is_valid: false }),
            Box::new(Liar { is_valid: true }),
        ];
        let proven = Proven::all(checkers, &proofs);
        let verdicts: Vec<_> = proven.iter().map(|one| one.check(&history)).collect();
        assert_eq!(verdicts[0].details["certificate"], json!(null));
        let held = json!({"file": "certificate.json", "holds": true});
        assert_eq!(verdicts[1].details["certificate"], held);
        assert_eq!(verdicts[1].valid, Validity::Valid);
        let held = json!({"file": "certificate-list-append.json", "holds": true});
        assert_eq!(verdicts[2].details["certificate"], held);
        assert_eq!(verdicts[2].valid, Validity::Valid);
        // What it found stands, whatever its proof is worth; what it did not find does not.
        assert_eq!(verdicts[3].valid, Validity::Invalid);
        let told = &verdicts[3].details["certificate"]["left_out"];
        assert!(told.as_str().unwrap().contains("a bug"), "{told}");
        assert!(
            matches!(&verdicts[4].valid, Validity::Unknown(reason) if reason.contains("a bug"))
        );
        assert!(Proven::is_refuted(&verdicts[4]));
        assert!(Proven::is_refuted(&verdicts[3]) && !Proven::is_refuted(&verdicts[1]));
        let names: Vec<_> = proofs.take().into_iter().map(|proof| proof.0).collect();
        assert_eq!(names, ["certificate.json", "certificate-list-append.json"]);
        assert!(proofs.take().is_empty());
    }
}
