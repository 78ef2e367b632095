//! The document that proves a verdict, valid or invalid.

use seatrial_history::Key;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The version of the document that [`Certificate::to_json`] makes.
const VERSION: u64 = 4;

/// The model of proofs about operations on data types.
pub(crate) const LINEARIZABLE: &str = "linearizable";

/// A proof of a verdict, to be replayed without a checker: [`crate::verify`] does that.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// The model that the history was checked against.
    pub model: String,
    /// The proof of the verdict.
    pub proof: Proof,
    /// The history that it is about, if known (from version 3 on).
    pub history: Option<Fingerprint>,
    /// The sources of the version order of registers, by name: the assumptions of the proof besides the history.
    pub assumptions: Vec<String>,
    /// Numbers of transactions (by index) in a given order, those that the proof uses.
    pub transaction_order: Vec<(u64, i64)>,
}

/// Distinguishes a history from others, but not from one made to collide: the number of its events, and a hash of all
/// that the verifier reads of them. It does not depend on the file format.
///
/// The hash is that of a sequence of 64-bit words: `h = (rotl(h, 5) ^ word) * 0x9e37_79b9_7f4a_7c15`, from 0. The words of
/// each operation of a client, in order, are: its index times 4 plus its type (0 invoke, 1 ok, 2 fail, 3 info); the
/// number of its process; then two words for each write of an invocation, or each micro-operation of a success: the
/// number of the key (in the order of first use, from 0) times 2^40, xor a code; and a value. Code and value are 1 and
/// the element of an append; 2 and the value of a write; 3 and 0 of a read of nothing (or of an empty list); 4 and the
/// value of a read register; 5 + 8 times the length and the last element of a read list. Before its first use a key has
/// words of its own: an integer itself; of other names the number of bytes of the name (of a word without its colon, as
/// in JSON), then the bytes, eight a word, the lowest first.
///
/// Of a history without transactions, the words after that of the process are: the number of the function (from 0, in the
/// order of first use; before its first use its name, like that of a key); 0 without a key, else one more than its number
/// (its name likewise before its first use); and the value: 0 for nil; 1 and an integer; 2 and both integers of a list of
/// two; else 3 and its text, like a name: that of EDN, where words are texts and sets are lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// Number of invocations and completions of all processes.
    pub events: u64,
    /// The hash.
    pub hash: u64,
}

impl Fingerprint {
    pub(crate) fn mix(&mut self, word: u64) {
        let mixed = self.hash.rotate_left(5) ^ word;
        self.hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// A word and a text with the same letters are the same name here, since JSON does not distinguish them.
    pub(crate) fn mix_name(&mut self, key: &Key) {
        let name = match key {
            Key::Int(integer) => return self.mix(integer.cast_unsigned()),
            Key::Word(word) => word.as_str(),
            Key::Text(text) => text,
        };
        self.mix_text(name);
    }

    pub(crate) fn mix_text(&mut self, text: &str) {
        self.mix(text.len() as u64);
        for bytes in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.mix(u64::from_le_bytes(word));
        }
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} events, hash {:016x}", self.events, self.hash)
    }
}

/// `{"events": 12, "hash": "00…"}`: sixteen hexadecimal digits, since not every reader of JSON has 64-bit integers.
impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hash = format!("{:016x}", self.hash);
        let fields = BTreeMap::from([("events", Json::from(self.events)), ("hash", hash.into())]);
        fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fingerprint, D::Error> {
        #[derive(Deserialize)]
        struct FingerprintDocument {
            events: u64,
            hash: String,
        }
        let FingerprintDocument { events, hash } = FingerprintDocument::deserialize(deserializer)?;
        let hash = u64::from_str_radix(&hash, 16).map_err(serde::de::Error::custom)?;
        Ok(Fingerprint { events, hash })
    }
}

/// The proof itself. A transaction's place is the position in the history, from 0, of its invocation (of its completion
/// if only that was recorded).
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// Valid: executed one after another in this order, transactions read what they read in the history.
    Serial(Vec<u64>),
    /// Valid: each place occurs twice, first where the transaction takes its snapshot, then where it commits.
    Snapshots(Vec<u64>),
    /// Valid: committing in this order, transactions read and overwrite only versions that were committed before.
    Commits(Vec<u64>),
    /// Valid: the versions of a register are in the order of their transactions here, and no transaction sees an
    /// overwrite of a version that it read.
    Visible(Vec<u64>),
    /// Invalid: no order explains the reads of registers by these transactions.
    Core(Vec<u64>),
    /// Invalid: these findings, each of which is sufficient.
    Findings(Vec<Evidence>),
    /// Valid: executed one after another in this order, operations return what they returned in the history.
    Linearization(Linearization),
    /// Invalid: no order explains the results of these operations.
    Nonlinearizable(LinearCore),
}

/// The order of linearization points of all objects of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linearization {
    /// The sequential model, by the name of its checker.
    pub data_type: String,
    /// Places of operations. A drain occurs once for each element that it took. Operations of unknown outcome that took no
    /// effect are left out.
    pub order: Vec<u64>,
    /// For each removal of unknown outcome from a bag, and each element of a drain from a bag, in their order: the place of
    /// an addition of the element that it took.
    pub taken: Vec<u64>,
}

/// Operations on one object that have no linearization, in a history that is cut at a position.
///
/// What makes it sound is that the verifier never takes an operation to be absent because the core does not name it:
/// see [`crate::CoreVerifier`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinearCore {
    /// The sequential model, by the name of its checker.
    pub data_type: String,
    /// The key, as EDN writes it; `None` in a history without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The history is cut here: operations invoked after this position are left out, and those that completed after it
    /// need not take effect.
    pub until: u64,
    /// Of collections: the elements that the core is about, as EDN writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<String>,
    /// Places of its operations.
    pub places: Vec<u64>,
}

/// An anomaly with the operations that show it, by index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The name of the anomaly.
    pub anomaly: String,
    /// The operations, in the order of the finding.
    pub operations: Vec<u64>,
    /// The edges of a cycle; empty for other anomalies.
    pub steps: Vec<CycleEdge>,
    /// A cycle of versions of one register, for contradictory version orders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
}

/// An edge of a cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct CycleEdge {
    /// The index of the earlier operation.
    pub from: u64,
    /// The index of the later operation.
    pub to: u64,
    /// `ww`, `wr`, `rw`, `process` or `realtime`.
    pub relation: String,
    /// Why the version that `from` wrote or read comes before the one that `to` wrote, if that was inferred.
    pub versions: Option<Versions>,
}

/// Consecutive versions of a register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Versions {
    /// The key, as EDN writes it.
    pub key: String,
    /// Each version and the next one, with the reason for their order.
    #[serde(rename = "order")]
    pub steps: Vec<VersionStep>,
}

/// Why one version of a register comes before another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionStep {
    /// The earlier value; `None` is the initial state.
    pub from: Option<i64>,
    /// The later one.
    pub to: Option<i64>,
    /// The source: `initial-state`, `wfr-keys`, `sequential-keys`, `linearizable-keys` or `transaction-order`.
    pub rule: String,
    /// The operations that accessed the versions which the source puts in order: one that accessed both, or one that
    /// accessed the earlier and one that accessed the later; none for the initial state.
    pub operations: Vec<u64>,
    /// Updates that lead from the source's earlier version to `from`, each reading what the one before wrote. If updates
    /// are atomic, a version after one version of such a chain comes after the whole chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<u64>,
    /// Updates that lead from `to` to the source's later version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<u64>,
}

/// The reason why a document is not a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no certificate: {0}")]
pub struct CertificateError(String);

impl Certificate {
    /// Does it claim that the history is valid?
    pub fn is_valid(&self) -> bool {
        !matches!(
            self.proof,
            Proof::Findings(_) | Proof::Core(_) | Proof::Nonlinearizable(_)
        )
    }

    /// Does the proof depend on when operations ran? Then it proves nothing about a history without times.
    pub fn rests_on_real_time(&self) -> bool {
        let is_of_session = self.model.starts_with("strong-session-");
        let model = self.model == "strict-serializable"
            || self.model == LINEARIZABLE
            || self.model.starts_with("strong-") && !is_of_session;
        let Proof::Findings(findings) = &self.proof else {
            return model;
        };
        let versions = |versions: &Option<Versions>| {
            let mut steps = versions.iter().flat_map(|versions| &versions.steps);
            steps.any(|step| step.rule == "linearizable-keys")
        };
        findings.iter().any(|finding| {
            let mut steps = finding.steps.iter();
            versions(&finding.versions)
                || steps.any(|step| step.relation == "realtime" || versions(&step.versions))
        })
    }

    /// Size of the largest core that is written and replayed, in transactions or operations.
    pub const CORE_MAX: usize = 4_096;

    /// A certificate without assumptions.
    pub fn new(model: &str, proof: Proof) -> Certificate {
        Certificate {
            model: model.to_owned(),
            proof,
            history: None,
            assumptions: Vec::new(),
            transaction_order: Vec::new(),
        }
    }

    /// The document: `{"certificate": 4, "model", "valid", "proof": "serial" | "snapshots" | "commits" | "visible" |
    /// "core" | "findings" | "linearization" | "nonlinearizable"}` and, depending on the proof, `"order": [places]` (of a
    /// linearization with `"data_type"` and perhaps `"taken": [places]`), `"core": [places]` (of operations as an object
    /// `{"data_type", "key"?, "until", "elements"?, "places"}`) or `"findings":
    /// [{"anomaly", "operations", "steps": [[from, to, relation, versions?]], "versions"?}]`, where `versions` is
    /// `{"key", "order": [{"from", "to", "rule", "operations", "above"?, "below"?}]}`; with `"history": {"events",
    /// "hash"}` if it is known, and `"assumptions": [names]` and `"transaction_order": [[index, number]]` if there are
    /// any.
    pub fn to_json(&self) -> Json {
        let (name, field, content) = match &self.proof {
            Proof::Serial(order) => ("serial", "order", json!(order)),
            Proof::Snapshots(order) => ("snapshots", "order", json!(order)),
            Proof::Commits(order) => ("commits", "order", json!(order)),
            Proof::Visible(order) => ("visible", "order", json!(order)),
            Proof::Core(places) => ("core", "core", json!(places)),
            Proof::Findings(findings) => ("findings", "findings", json!(findings)),
            Proof::Linearization(one) => ("linearization", "order", json!(one.order)),
            Proof::Nonlinearizable(core) => ("nonlinearizable", "core", json!(core)),
        };
        let mut document = json!({
            "certificate": VERSION,
            "model": self.model,
            "valid": self.is_valid(),
            "proof": name,
            field: content,
        });
        if let Proof::Linearization(Linearization {
            data_type, taken, ..
        }) = &self.proof
        {
            document["data_type"] = json!(data_type);
            if !taken.is_empty() {
                document["taken"] = json!(taken);
            }
        }
        if let Some(history) = &self.history {
            document["history"] = json!(history);
        }
        if !self.assumptions.is_empty() {
            document["assumptions"] = json!(self.assumptions);
        }
        if !self.transaction_order.is_empty() {
            document["transaction_order"] = json!(self.transaction_order);
        }
        document
    }

    /// Writes the document on one line, an order place by place, so that its JSON is never in memory as a whole.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (name, order) = match &self.proof {
            Proof::Serial(order) => ("serial", order),
            Proof::Snapshots(order) => ("snapshots", order),
            Proof::Commits(order) => ("commits", order),
            Proof::Visible(order) => ("visible", order),
            Proof::Linearization(one) => ("linearization", &one.order),
            _ => return writeln!(out, "{}", self.to_json()),
        };
        let model = Json::from(self.model.as_str());
        write!(
            out,
            "{{\"certificate\":{VERSION},\"model\":{model},\"valid\":true,\"proof\":\"{name}\",\"order\":["
        )?;
        write_places(order, out)?;
        out.write_all(b"]")?;
        if let Proof::Linearization(one) = &self.proof {
            let data_type = Json::from(one.data_type.as_str());
            write!(out, ",\"data_type\":{data_type}")?;
            if !one.taken.is_empty() {
                out.write_all(b",\"taken\":[")?;
                write_places(&one.taken, out)?;
                out.write_all(b"]")?;
            }
        }
        match &self.history {
            None => out.write_all(b"}\n"),
            Some(history) => writeln!(out, ",\"history\":{}}}", json!(history)),
        }
    }

    /// Reads a certificate from its document.
    pub fn from_json(document: &Json) -> Result<Certificate, CertificateError> {
        let document = CertificateDocument::deserialize(document);
        Certificate::of(document.map_err(|error| CertificateError(error.to_string()))?)
    }

    /// Reads a certificate from JSON text.
    pub fn from_text(text: &[u8]) -> Result<Certificate, CertificateError> {
        let document = serde_json::from_slice(text);
        Certificate::of(document.map_err(|error| CertificateError(error.to_string()))?)
    }

    fn of(document: CertificateDocument) -> Result<Certificate, CertificateError> {
        let error = |reason: &str| CertificateError(reason.to_owned());
        if !(1..=VERSION).contains(&document.certificate) {
            return Err(error("`certificate`, its version, is none of 1, 2, 3, 4"));
        }
        let order = |order: Option<Vec<u64>>| order.ok_or_else(|| error("it has no `order`"));
        let proof = match document.proof.as_str() {
            "serial" => Proof::Serial(order(document.order)?),
            "snapshots" => Proof::Snapshots(order(document.order)?),
            "commits" => Proof::Commits(order(document.order)?),
            "visible" => Proof::Visible(order(document.order)?),
            "core" | "nonlinearizable" => match (&*document.proof, document.core) {
                (_, None) => return Err(error("it has no `core`")),
                ("core", Some(CoreDocument::Transactions(places))) => Proof::Core(places),
                ("nonlinearizable", Some(CoreDocument::Operations(core))) => {
                    Proof::Nonlinearizable(core)
                }
                _ => return Err(error("its `core` is not that of its `proof`")),
            },
            "linearization" => Proof::Linearization(Linearization {
                data_type: document
                    .data_type
                    .ok_or_else(|| error("it has no `data_type`"))?,
                order: order(document.order)?,
                taken: document.taken,
            }),
            "findings" => {
                let findings = document.findings;
                Proof::Findings(findings.ok_or_else(|| error("it has no `findings`"))?)
            }
            _ => {
                return Err(error(
                    "`proof` is none of serial, snapshots, commits, visible, core, findings, linearization, \
                     nonlinearizable",
                ));
            }
        };
        let certificate = Certificate {
            model: document.model,
            proof,
            history: document.history,
            assumptions: document.assumptions,
            transaction_order: document.transaction_order,
        };
        if certificate.is_valid() != document.valid {
            return Err(error("`valid` is not what `proof` proves"));
        }
        Ok(certificate)
    }
}

/// A certificate as JSON has it.
#[derive(Deserialize)]
struct CertificateDocument {
    certificate: u64,
    model: String,
    valid: bool,
    proof: String,
    order: Option<Vec<u64>>,
    core: Option<CoreDocument>,
    findings: Option<Vec<Evidence>>,
    data_type: Option<String>,
    #[serde(default)]
    taken: Vec<u64>,
    history: Option<Fingerprint>,
    #[serde(default)]
    assumptions: Vec<String>,
    #[serde(default)]
    transaction_order: Vec<(u64, i64)>,
}

/// A core as JSON has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum CoreDocument {
    Transactions(Vec<u64>),
    Operations(LinearCore),
}

/// Writes places, separated by commas.
fn write_places(all: &[u64], out: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    for (at, places) in all.chunks(4_096).enumerate() {
        text.clear();
        for (number, place) in places.iter().enumerate() {
            let comma = if at + number > 0 { "," } else { "" };
            // Writing to a `String` does not fail.
            let _ = write!(text, "{comma}{place}");
        }
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// `[from, to, relation]`, and the versions if there are any.
impl Serialize for CycleEdge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.versions {
            None => (self.from, self.to, &self.relation).serialize(serializer),
            Some(versions) => (self.from, self.to, &self.relation, versions).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CycleEdge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CycleEdge, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum EdgeDocument {
            Plain(u64, u64, String),
            Inferred(u64, u64, String, Versions),
        }
        Ok(match EdgeDocument::deserialize(deserializer)? {
            EdgeDocument::Plain(from, to, relation) => CycleEdge {
                from,
                to,
                relation,
                versions: None,
            },
            EdgeDocument::Inferred(from, to, relation, versions) => CycleEdge {
                from,
                to,
                relation,
                versions: Some(versions),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proof of each kind.
    fn proofs() -> Vec<Proof> {
        let edge = |from, to, versions| CycleEdge {
            from,
            to,
            relation: "ww".into(),
            versions,
        };
        let step = VersionStep {
            from: None,
            to: Some(-4),
            rule: "rmw-keys".into(),
            operations: vec![3],
            above: vec![4],
            below: vec![],
        };
        let versions = Versions {
            key: "\"x\"".into(),
            steps: vec![step],
        };
        let evidence = Evidence {
            anomaly: "G1c".into(),
            operations: vec![3, 4],
            steps: vec![edge(3, 4, None), edge(4, 3, Some(versions.clone()))],
            versions: Some(versions),
        };
        vec![
            Proof::Serial(vec![2, 0, 1]),
            Proof::Snapshots(vec![0, 0]),
            Proof::Commits(vec![]),
            Proof::Visible(vec![4]),
            Proof::Core(vec![1, 2]),
            Proof::Findings(vec![evidence]),
            Proof::Linearization(Linearization {
                data_type: "bag".into(),
                order: vec![0, 7, 3],
                taken: vec![0],
            }),
            Proof::Linearization(Linearization {
                data_type: "register".into(),
                ..Linearization::default()
            }),
            Proof::Nonlinearizable(LinearCore {
                data_type: "fifo-queue".into(),
                key: Some("\"x\"".into()),
                until: 9,
                elements: vec!["5".into()],
                places: vec![0, 4],
            }),
            Proof::Nonlinearizable(LinearCore::default()),
        ]
    }

    #[test]
    fn documents_are_read_back() {
        for proof in proofs() {
            let mut certificate = Certificate::new("serializable", proof);
            if !certificate.is_valid() {
                certificate.assumptions = vec!["sequential-keys".into()];
                certificate.transaction_order = vec![(3, -1)];
            }
            if certificate.model.len() % 2 == usize::from(certificate.is_valid()) {
                let (events, hash) = (7, u64::MAX - 3);
                certificate.history = Some(Fingerprint { events, hash });
            }
            let document = certificate.to_json();
            let mut written = Vec::new();
            certificate.write(&mut written).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), format!("{document}\n"));
            let text = document.to_string();
            assert_eq!(
                Certificate::from_text(text.as_bytes()).as_ref(),
                Ok(&certificate)
            );
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
