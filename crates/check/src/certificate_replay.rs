//! Certificates of verdicts, replayed by the independent verifier before they are believed.

use crate::check_loop::{CheckAnswer, SharedSource};
use crate::registry::proves;
use seatrial_checker::{CertificateStatus, Validity, Verdict};
use seatrial_history::{ChunkSource, SourceError};
use seatrial_verify::{Certificate, Unproven, Verifier};

/// Replays the certificate and sets its [`CertificateStatus`] in the verdict's details. Returns the certificate if it is to be
/// kept.
///
/// A certificate that is refused is a bug of ours, in the checker or in the verifier: it is left out (`holds` is false), and a
/// valid verdict becomes unknown, since nothing supports it. Findings stand: a reader can check them. The history is read once
/// more where there is a certificate.
pub fn replay(
    verdict: &mut Verdict,
    certificate: Option<Certificate>,
    source: &dyn ChunkSource,
    file: &str,
) -> Result<Option<Certificate>, SourceError> {
    let Some(mut certificate) = certificate else {
        let unproven = verdict.details.unproven.as_deref();
        let reason = unproven.or(verdict.reason.as_deref());
        let reason = reason
            .unwrap_or("nothing simple proves this verdict")
            .to_owned();
        verdict.details.certificate = Some(CertificateStatus::Missing { reason });
        return Ok(None);
    };
    let verifier = Verifier::read_for(source, &certificate)?;
    certificate.history = Some(verifier.fingerprint());
    let file = file.to_owned();
    verdict.details.certificate = Some(match verifier.verify(&certificate) {
        Ok(()) => CertificateStatus::Holds { file },
        Err(Unproven::Refuted(reason)) => {
            refuse(verdict, &reason);
            return Ok(None);
        }
        Err(unsettled) => CertificateStatus::Unsettled {
            file,
            reason: unsettled.to_string(),
        },
    });
    Ok(Some(certificate))
}

/// Replays the certificates of an answer: those to keep, each with the name of its file, `certificate.json` for the first and
/// `certificate-CHECKER.json` for others. Each takes one more round of the history.
pub fn prove(
    answer: &mut CheckAnswer,
    source: &SharedSource,
) -> Result<Vec<(String, Certificate)>, SourceError> {
    let mut kept: Vec<(String, Certificate)> = Vec::new();
    for number in 0..answer.verdicts.len() {
        let checker = answer.verdicts[number].checker;
        if !proves(checker) {
            continue;
        }
        let file = match kept.len() {
            0 => "certificate.json".to_owned(),
            _ => format!("certificate-{checker}.json"),
        };
        let certificate = answer.take_certificate(number);
        let verdict = &mut answer.verdicts[number];
        let proof = replay(verdict, certificate, &**source, &file)?;
        kept.extend(proof.map(|proof| (file, proof)));
    }
    assert!(
        kept.iter().all(|(_, proof)| proof.history.is_some()),
        "a certificate that was replayed names its history"
    );
    Ok(kept)
}

/// The certificate of this verdict was refused.
fn refuse(verdict: &mut Verdict, reason: &str) {
    verdict.details.certificate = Some(CertificateStatus::Refused {
        reason: format!("it was refused, which is a bug of seatrial: {reason}"),
    });
    if verdict.valid == Validity::Invalid {
        return;
    }
    let reason = format!(
        "the certificate of this verdict ({:?}) does not hold, which is a bug of seatrial: {reason}",
        verdict.valid
    );
    verdict.proof = None;
    *verdict = verdict.clone().unknown(reason);
    assert!(
        verdict.valid != Validity::Valid,
        "a verdict without support is valid"
    );
}

/// Was a certificate refused that this verdict rests on?
pub fn is_refuted(verdict: &Verdict) -> bool {
    matches!(
        verdict.details.certificate,
        Some(CertificateStatus::Refused { .. })
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{History, Op, OpType, Process, Value};
    use seatrial_verify::{Evidence, Proof};
    use serde_json::json;

    fn verdict(validity: Validity) -> Verdict {
        let mut verdict = Verdict::valid("list-append");
        verdict.valid = validity;
        verdict
    }

    #[test]
    fn a_refused_certificate_supports_nothing() {
        let ops = [OpType::Invoke, OpType::Ok].map(|kind| Op {
            kind,
            ..Op::invoke(Process::Client(1), "txn", Value::Txn(Vec::new().into()))
        });
        let history = History::from_unindexed(ops.to_vec());
        let replay = |verdict: &mut Verdict, certificate| {
            replay(verdict, certificate, &history, "c.json").unwrap()
        };
        let order =
            |places: &[u64]| Certificate::new("serializable", Proof::Serial(places.to_vec()));
        let mut sound = verdict(Validity::Valid);
        assert!(replay(&mut sound, Some(order(&[0]))).is_some());
        assert_eq!(
            sound.details.to_json()["certificate"],
            json!({"file": "c.json", "holds": true})
        );
        assert_eq!(sound.valid, Validity::Valid);
        let mut liar = verdict(Validity::Valid);
        assert!(replay(&mut liar, Some(order(&[0, 0]))).is_none());
        assert!(matches!(&liar.valid, Validity::Unknown(reason) if reason.contains("a bug")));
        assert!(is_refuted(&liar) && !is_refuted(&sound));
        // Findings stand without a proof.
        let evidence = Evidence {
            anomaly: "G1a".into(),
            operations: vec![1, 1],
            steps: Vec::new(),
            versions: None,
        };
        let forged = Certificate::new("serializable", Proof::Findings(vec![evidence]));
        let mut found = verdict(Validity::Invalid);
        assert!(replay(&mut found, Some(forged)).is_none());
        assert_eq!(found.valid, Validity::Invalid);
        assert!(is_refuted(&found));
        let mut open = verdict(Validity::Valid);
        open.details.unproven = Some("too long".to_owned());
        assert!(replay(&mut open, None).is_none());
        let status = &open.details.to_json()["certificate"];
        assert_eq!(*status, json!({"left_out": "too long"}));
    }
}
