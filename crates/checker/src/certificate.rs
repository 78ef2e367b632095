//! What proves a verdict about transactions, in either direction.

use crate::Finding;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The version of the document that [`Certificate::to_json`] makes.
const VERSION: u64 = 1;

/// A proof of a verdict that anybody can replay without a checker: [`crate::verify`] does.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// The level that the history was held to.
    pub model: String,
    /// What proves the verdict.
    pub proof: Proof,
}

/// The proof itself. A transaction's place is the position in the history, from 0, of its invocation (of its completion
/// when that alone was recorded).
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// Valid: carried out one after another in this order, transactions see what they saw.
    Serial(Vec<u64>),
    /// Valid: each place stands here twice, first where the transaction takes its snapshot, then where it commits.
    Snapshots(Vec<u64>),
    /// Valid: committing in this order, transactions read and overwrite only what was committed before.
    Commits(Vec<u64>),
    /// Valid: versions of a register come in the order in which their transactions stand here, and nobody sees an overwrite of
    /// what he read.
    Visible(Vec<u64>),
    /// Invalid: no order explains what these transactions read of registers.
    Core(Vec<u64>),
    /// Invalid: these findings, of which each is reason enough.
    Findings(Vec<Evidence>),
}

/// An anomaly with the operations that show it, by index.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Its name.
    pub anomaly: String,
    /// The operations, in the order of [`Finding::operations`].
    pub operations: Vec<u64>,
    /// The edges of a cycle: from, to, relation.
    pub steps: Vec<(u64, u64, String)>,
}

/// A document that is no certificate; the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no certificate: {0}")]
pub struct CertificateError(String);

impl From<&Finding> for Evidence {
    fn from(finding: &Finding) -> Evidence {
        let steps = finding.steps.iter();
        Evidence {
            anomaly: finding.anomaly.to_owned(),
            operations: finding.operations.clone(),
            steps: steps
                .map(|step| (step.from, step.to, step.relation.to_owned()))
                .collect(),
        }
    }
}

impl Certificate {
    /// Does it prove that the history is valid?
    pub fn is_valid(&self) -> bool {
        !matches!(self.proof, Proof::Findings(_) | Proof::Core(_))
    }

    /// The document: `{"certificate": 1, "model", "valid", "proof": "serial" | "snapshots" | "commits" | "visible" |
    /// "core" | "findings"}` and, as the proof says, `"order": [places]`, `"core": [places]` or `"findings": [{"anomaly",
    /// "operations", "steps": [[from, to, relation]]}]`.
    pub fn to_json(&self) -> Json {
        let (name, field, content) = match &self.proof {
            Proof::Serial(order) => ("serial", "order", json!(order)),
            Proof::Snapshots(order) => ("snapshots", "order", json!(order)),
            Proof::Commits(order) => ("commits", "order", json!(order)),
            Proof::Visible(order) => ("visible", "order", json!(order)),
            Proof::Core(places) => ("core", "core", json!(places)),
            Proof::Findings(findings) => {
                let findings = findings.iter().map(|one| {
                    json!({"anomaly": one.anomaly, "operations": one.operations, "steps": one.steps})
                });
                ("findings", "findings", findings.collect())
            }
        };
        json!({
            "certificate": VERSION,
            "model": self.model,
            "valid": self.is_valid(),
            "proof": name,
            field: content,
        })
    }

    /// Writes that document on one line, an order place by place, so that it is never held a second time.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (name, order) = match &self.proof {
            Proof::Serial(order) => ("serial", order),
            Proof::Snapshots(order) => ("snapshots", order),
            Proof::Commits(order) => ("commits", order),
            _ => return writeln!(out, "{}", self.to_json()),
        };
        let model = Json::from(self.model.as_str());
        write!(
            out,
            "{{\"certificate\":{VERSION},\"model\":{model},\"valid\":true,\"proof\":\"{name}\",\"order\":["
        )?;
        let mut text = String::new();
        for (at, places) in order.chunks(4_096).enumerate() {
            text.clear();
            for (number, place) in places.iter().enumerate() {
                let comma = if at + number > 0 { "," } else { "" };
                // Writing to a text does not fail.
                let _ = write!(text, "{comma}{place}");
            }
            out.write_all(text.as_bytes())?;
        }
        out.write_all(b"]}\n")
    }

    /// The certificate of such a document.
    pub fn from_json(document: &Json) -> Result<Certificate, CertificateError> {
        let error = |reason: &str| CertificateError(reason.to_owned());
        if document["certificate"] != VERSION {
            return Err(error("`certificate` is not 1"));
        }
        let model = document["model"].as_str();
        let model = model.ok_or_else(|| error("`model` is no text"))?.to_owned();
        let order =
            || numbers(&document["order"]).ok_or_else(|| error("`order` is no list of places"));
        let proof = match document["proof"].as_str() {
            Some("serial") => Proof::Serial(order()?),
            Some("snapshots") => Proof::Snapshots(order()?),
            Some("commits") => Proof::Commits(order()?),
            Some("visible") => Proof::Visible(order()?),
            Some("core") => {
                let places = numbers(&document["core"]);
                Proof::Core(places.ok_or_else(|| error("`core` is no list of places"))?)
            }
            Some("findings") => {
                let findings = document["findings"].as_array();
                let findings = findings.ok_or_else(|| error("`findings` is no list"))?;
                let findings: Option<_> = findings.iter().map(evidence).collect();
                Proof::Findings(findings.ok_or_else(|| error("a finding is incomplete"))?)
            }
            _ => {
                return Err(error(
                    "`proof` is none of serial, snapshots, commits, visible, core, findings",
                ));
            }
        };
        Ok(Certificate { model, proof })
    }
}

fn numbers(list: &Json) -> Option<Vec<u64>> {
    list.as_array()?.iter().map(Json::as_u64).collect()
}

fn evidence(finding: &Json) -> Option<Evidence> {
    let steps = finding["steps"].as_array()?.iter().map(|step| {
        let relation = step[2].as_str()?.to_owned();
        Some((step[0].as_u64()?, step[1].as_u64()?, relation))
    });
    Some(Evidence {
        anomaly: finding["anomaly"].as_str()?.to_owned(),
        operations: numbers(&finding["operations"])?,
        steps: steps.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_back() {
        let evidence = Evidence {
            anomaly: "G1c".into(),
            operations: vec![3, 4],
            steps: vec![(3, 4, "wr".into()), (4, 3, "wr".into())],
        };
        for proof in [
            Proof::Serial(vec![2, 0, 1]),
            Proof::Snapshots(vec![0, 0]),
            Proof::Commits(vec![]),
            Proof::Visible(vec![4]),
            Proof::Core(vec![1, 2]),
            Proof::Findings(vec![evidence]),
        ] {
            let model = "serializable".to_owned();
            let certificate = Certificate { model, proof };
            let document = certificate.to_json();
            let mut written = Vec::new();
            certificate.write(&mut written).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), format!("{document}\n"));
            assert_eq!(Certificate::from_json(&document), Ok(certificate));
            for field in ["certificate", "model", "proof", "order", "core", "findings"] {
                let mut broken = document.clone();
                if broken[field] != Json::Null {
                    broken[field] = json!({"what": 1});
                    assert!(Certificate::from_json(&broken).is_err(), "{broken}");
                }
            }
        }
    }
}
