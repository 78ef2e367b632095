//! What a verdict is worth when operations of the history are missing.

use seatrial_checker::txn::Level;
use seatrial_checker::{Anomaly, Validity, Verdict};
use seatrial_history::{SALVAGED, Salvaged};
use serde_json::{Value as Json, json};

/// The one anomaly of transactions that missing operations explain: whoever wrote what was read may be among them. All others
/// are contradictions between operations that are there, and more operations do not take them back.
const EXPLAINED: Anomaly = "garbage-read";

/// Most gaps that are named one by one.
const NAMED_MAX: usize = 3;

/// Operations that a history lacks.
#[derive(Debug)]
pub(crate) struct Losses {
    /// In words.
    what: String,
}

impl Losses {
    /// What a damaged file lacks; `orphans` completions were left out because their invocations are missing.
    pub(crate) fn of(salvaged: &Salvaged, orphans: usize) -> Option<Losses> {
        let missing = salvaged.missing();
        let mut named: Vec<String> = missing
            .iter()
            .take(NAMED_MAX)
            .map(ToString::to_string)
            .collect();
        if missing.len() > NAMED_MAX {
            named.push(format!("{} more gaps", missing.len() - NAMED_MAX));
        }
        let orphans = match orphans {
            0 => String::new(),
            1 => "; 1 completion without its invocation was left out".to_owned(),
            many => format!("; {many} completions without their invocations were left out"),
        };
        let what = format!("{}{orphans}", named.join(", "));
        (!missing.is_empty()).then_some(Losses { what })
    }

    /// What a file lacks that was salvaged from another.
    pub(crate) fn told_by(attributes: &Json) -> Option<Losses> {
        let gaps = attributes[SALVAGED]["missing"].as_array()?.len();
        let what = format!("{gaps} gaps, see `seatrial show --attributes`");
        (gaps > 0).then_some(Losses { what })
    }

    /// A sentence for people.
    pub(crate) fn warning(&self) -> String {
        format!("operations of this history are missing: {}", self.what)
    }

    /// Takes back what these verdicts cannot know; all together.
    pub(crate) fn weaken(&self, verdicts: &mut [Verdict]) -> Validity {
        for verdict in verdicts.iter_mut() {
            self.weaken_one(verdict);
        }
        Validity::of(verdicts)
    }

    fn weaken_one(&self, verdict: &mut Verdict) {
        if matches!(verdict.valid, Validity::Unknown(_)) {
            return;
        }
        if verdict.valid == Validity::Invalid && is_certain(verdict) {
            if verdict.anomalies.remove(EXPLAINED).is_some() {
                verdict
                    .findings
                    .retain(|finding| finding.anomaly != EXPLAINED);
                // They may have been ruled out by what was removed.
                verdict.not.clear();
                verdict.also_not.clear();
            }
            return;
        }
        let found = match verdict.valid {
            Validity::Invalid => "they may explain what was found",
            _ => "the rest contradicts nothing",
        };
        let reason = format!("operations are missing ({}); {found}", self.what);
        verdict.reason = Some(reason.clone());
        verdict.valid = Validity::Unknown(reason);
        verdict.not.clear();
        verdict.also_not.clear();
    }

    /// For the document of `--json`.
    pub(crate) fn json(&self) -> Json {
        json!(self.what)
    }
}

/// Is there an anomaly that the model forbids and no missing operation explains?
fn is_certain(verdict: &Verdict) -> bool {
    let mut found = verdict.anomalies.keys().filter(|&&name| name != EXPLAINED);
    match verdict.checker {
        "g1" => found.next().is_some(),
        "list-append" | "rw-register" => {
            let level = verdict.model.as_deref().and_then(Level::by_name);
            let forbidden = level.map(Level::forbidden).unwrap_or_default();
            found.any(|name| forbidden.contains(name))
        }
        // A register may have been written by what is missing, a lock released, a message taken.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weakened(checker: &'static str, model: &str, anomalies: &[Anomaly]) -> Verdict {
        let losses = Losses {
            what: "7 operations".to_owned(),
        };
        let mut verdict = Verdict::valid(checker);
        verdict.model = Some(model.to_owned());
        verdict.anomalies = anomalies.iter().map(|&name| (name, 1)).collect();
        if !anomalies.is_empty() {
            verdict.valid = Validity::Invalid;
            verdict.not = vec!["read-uncommitted"];
        }
        let mut verdicts = [verdict];
        let together = losses.weaken(&mut verdicts);
        let [verdict] = verdicts;
        assert_eq!(together, verdict.valid);
        verdict
    }

    #[test]
    fn valid_becomes_unknown_and_certain_anomalies_stay() {
        let unknown = |verdict: &Verdict| match &verdict.valid {
            Validity::Unknown(reason) => reason.contains("7 operations"),
            _ => false,
        };
        assert!(unknown(&weakened("list-append", "serializable", &[])));
        assert!(unknown(&weakened("stats", "", &["no-ok"])));
        assert!(unknown(&weakened(
            "register",
            "linearizable",
            &["nonlinearizable"]
        )));
        let garbage = weakened("list-append", "serializable", &["garbage-read"]);
        assert!(unknown(&garbage) && garbage.not.is_empty());
        // What the model permits does not make a history invalid.
        let permitted = ["garbage-read", "G-single"];
        assert!(unknown(&weakened(
            "list-append",
            "read-committed",
            &permitted
        )));
        let both = weakened("list-append", "serializable", &permitted);
        assert_eq!(both.valid, Validity::Invalid);
        assert_eq!(both.anomalies.len(), 1);
        assert!(both.not.is_empty());
        let plain = weakened("rw-register", "read-committed", &["G1a"]);
        assert_eq!((plain.valid, plain.not.len()), (Validity::Invalid, 1));
    }
}
