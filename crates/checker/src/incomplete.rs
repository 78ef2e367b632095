//! What verdicts are worth when a part of the history is missing.

use crate::txn::Level;
use crate::{Anomaly, Validity, Verdict};

/// Where operations are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// At the end only: the run was killed or lost power. What is there is a prefix of the history.
    End,
    /// At the end only, and some of it was written and cannot be read: what is there is a prefix of what was recorded.
    DamagedEnd,
    /// Anywhere.
    Anywhere,
}

/// A part of the history that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    gap: Gap,
    /// What is missing and why, in words.
    what: String,
}

/// Does this anomaly of this checker stand whatever the missing part holds?
///
/// Without the end, what contradicts itself in the prefix stands, but a loss is none yet: what was added, enqueued or sent
/// may have come out in the part that is missing. With a gap anywhere, the missing part may also hold the write of what was
/// read, the release of a lock, the transfer between two accounts: then only contradictions between operations that are
/// there stand.
fn stands(verdict: &Verdict, anomaly: Anomaly, gap: Gap) -> bool {
    let checker = verdict.checker;
    if gap != Gap::Anywhere {
        return match checker {
            "set" | "total-queue" | "monotonic" => anomaly != "lost",
            // Eventually it may be visible, but not at once.
            "set-full" => anomaly != "lost" || verdict.model.as_deref() == Some("linearizable"),
            // Consumers that subscribe, which may come later, are allowed to pass over messages.
            "log" => !matches!(
                anomaly,
                "lost-write" | "unseen" | "poll-skip" | "nonmonotonic-poll"
            ),
            _ => true,
        };
    }
    match checker {
        "g1" | "list-append" | "rw-register" => anomaly != "garbage-read",
        "unique-ids" | "set-full" => anomaly == "duplicated",
        "long-fork" => anomaly == "long-fork",
        "log" => matches!(anomaly, "inconsistent-offsets" | "duplicate"),
        "monotonic" => matches!(
            anomaly,
            "duplicated" | "timestamp-disorder" | "value-disorder"
        ),
        // A register may have been written by what is missing, a lock released, a message taken.
        _ => false,
    }
}

/// Does a verdict without anomaly say something of a prefix? Not of what is only seen at the end.
fn holds_of_prefix(checker: &str) -> bool {
    !matches!(checker, "set" | "total-queue" | "monotonic" | "log")
}

impl Missing {
    /// The end of the history is missing: the words say why.
    pub fn end(what: impl Into<String>) -> Missing {
        Missing {
            gap: Gap::End,
            what: what.into(),
        }
    }

    /// The end of the history was recorded, but cannot be read: the words say why. An anomaly in the rest stands as with
    /// [`Missing::end`]; a verdict without anomaly says nothing of what was recorded.
    pub fn damaged_end(what: impl Into<String>) -> Missing {
        Missing {
            gap: Gap::DamagedEnd,
            what: what.into(),
        }
    }

    /// Operations are missing anywhere: the words say which.
    pub fn anywhere(what: impl Into<String>) -> Missing {
        Missing {
            gap: Gap::Anywhere,
            what: what.into(),
        }
    }

    /// What is missing, in words.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Takes back what these verdicts cannot know; all together.
    pub fn weigh(&self, verdicts: &mut [Verdict]) -> Validity {
        for verdict in verdicts.iter_mut() {
            self.weigh_one(verdict);
        }
        Validity::of(verdicts)
    }

    fn weigh_one(&self, verdict: &mut Verdict) {
        match verdict.valid {
            Validity::Unknown(_) => return,
            Validity::Valid if self.gap == Gap::End && holds_of_prefix(verdict.checker) => return,
            Validity::Valid => {}
            Validity::Invalid => {
                let explained = self.explained(verdict);
                if explained.is_empty() {
                    return;
                }
                if is_forbidden(verdict, &explained) {
                    verdict
                        .anomalies
                        .retain(|name, _| !explained.contains(name));
                    let stays = |name: Anomaly| !explained.contains(&name);
                    verdict.findings.retain(|finding| stays(finding.anomaly));
                    // They may have been ruled out by what was removed.
                    verdict.not.clear();
                    verdict.also_not.clear();
                    return;
                }
            }
        }
        let missing = match self.gap {
            Gap::End | Gap::DamagedEnd => {
                format!("the end of the history is missing ({})", self.what)
            }
            Gap::Anywhere => format!("operations are missing ({})", self.what),
        };
        let found = match verdict.valid {
            Validity::Invalid => "they may explain what was found",
            _ => "the rest contradicts nothing",
        };
        let reason = format!("{missing}; {found}");
        verdict.reason = Some(reason.clone());
        verdict.valid = Validity::Unknown(reason);
        verdict.proof = None;
        verdict.not.clear();
        verdict.also_not.clear();
    }

    /// The anomalies of the verdict that the missing part may explain.
    fn explained(&self, verdict: &Verdict) -> Vec<Anomaly> {
        let found = verdict.anomalies.keys().copied();
        found
            .filter(|name| !stands(verdict, name, self.gap))
            .collect()
    }
}

/// Do the other anomalies break the model by themselves?
fn is_forbidden(verdict: &Verdict, explained: &[Anomaly]) -> bool {
    let mut others = verdict
        .anomalies
        .keys()
        .filter(|name| !explained.contains(name));
    match verdict.checker {
        "list-append" | "rw-register" => {
            let level = verdict.model.as_deref().and_then(Level::by_name);
            let forbidden = level.map(Level::forbidden).unwrap_or_default();
            others.any(|name| forbidden.contains(name))
        }
        _ => others.next().is_some(),
    }
}

/// Takes back verdicts without anomaly on a history whose attributes are lost: which checkers and models the test asked for
/// is unknown, and those that were guessed may ask for less.
pub fn without_attributes(verdicts: &mut [Verdict]) -> Validity {
    for verdict in verdicts.iter_mut() {
        if verdict.valid == Validity::Valid {
            let reason = "the attributes of the test are lost, so its checkers and models are guessed; \
                          --checker and --model name them";
            verdict.proof = None;
            verdict.reason = Some(reason.to_owned());
            verdict.valid = Validity::Unknown(reason.to_owned());
        }
    }
    Validity::of(verdicts)
}

/// Takes back verdicts on a history of which no operation is known to have taken place: there is nothing to check.
pub fn without_ok(verdicts: &mut [Verdict]) -> Validity {
    for verdict in verdicts.iter_mut() {
        let reason = "no operation completed ok: there is nothing to check".to_owned();
        verdict.anomalies.clear();
        verdict.findings.clear();
        verdict.components.clear();
        verdict.undecided.clear();
        verdict.not.clear();
        verdict.also_not.clear();
        verdict.proof = None;
        verdict.reason = Some(reason.clone());
        verdict.valid = Validity::Unknown(reason);
    }
    Validity::of(verdicts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighed(gap: Gap, checker: &'static str, model: &str, anomalies: &[Anomaly]) -> Verdict {
        let missing = Missing {
            gap,
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
        let together = missing.weigh(&mut verdicts);
        let [verdict] = verdicts;
        assert_eq!(together, verdict.valid);
        verdict
    }

    fn is_unknown(verdict: &Verdict) -> bool {
        match &verdict.valid {
            Validity::Unknown(reason) => reason.contains("7 operations"),
            _ => false,
        }
    }

    #[test]
    fn with_gaps_valid_becomes_unknown_and_certain_anomalies_stay() {
        let weighed = |checker, model, anomalies| weighed(Gap::Anywhere, checker, model, anomalies);
        assert!(is_unknown(&weighed("list-append", "serializable", &[])));
        assert!(is_unknown(&weighed("stats", "", &["no-ok"])));
        let register = weighed("register", "linearizable", &["nonlinearizable"]);
        assert!(is_unknown(&register));
        let garbage = weighed("list-append", "serializable", &["garbage-read"]);
        assert!(is_unknown(&garbage) && garbage.not.is_empty());
        // What the model permits does not make a history invalid.
        let permitted = ["garbage-read", "G-single"];
        let weak = weighed("list-append", "read-committed", &permitted);
        assert!(is_unknown(&weak));
        let both = weighed("list-append", "serializable", &permitted);
        assert_eq!(both.valid, Validity::Invalid);
        assert_eq!(both.anomalies.len(), 1);
        assert!(both.not.is_empty());
        let plain = weighed("rw-register", "read-committed", &["G1a"]);
        assert_eq!((plain.valid, plain.not.len()), (Validity::Invalid, 1));
        let ids = weighed("unique-ids", "", &["duplicated"]);
        assert_eq!(ids.valid, Validity::Invalid);
    }

    #[test]
    fn without_the_end_only_losses_are_taken_back() {
        let visible = weighed(Gap::End, "set-full", "linearizable", &["lost"]);
        assert_eq!(visible.valid, Validity::Invalid);
        let weighed = |checker, anomalies| weighed(Gap::End, checker, "", anomalies);
        for checker in ["total-queue", "set", "set-full"] {
            assert!(is_unknown(&weighed(checker, &["lost"])), "{checker}");
            let both = weighed(checker, &["lost", "unexpected"]);
            assert_eq!(both.valid, Validity::Invalid, "{checker}");
            assert_eq!(both.anomalies.len(), 1, "{checker}");
        }
        assert!(is_unknown(&weighed("log", &["lost-write", "unseen"])));
        assert!(is_unknown(&weighed("total-queue", &[])));
        assert_eq!(weighed("cas-register", &[]).valid, Validity::Valid);
        let register = weighed("cas-register", &["nonlinearizable"]);
        assert_eq!((register.valid, register.not.len()), (Validity::Invalid, 1));
    }

    #[test]
    fn with_a_damaged_end_no_verdict_is_valid() {
        let weighed = |checker, anomalies| weighed(Gap::DamagedEnd, checker, "", anomalies);
        assert!(is_unknown(&weighed("cas-register", &[])));
        assert!(is_unknown(&weighed("set", &["lost"])));
        let register = weighed("cas-register", &["nonlinearizable"]);
        assert_eq!((register.valid, register.not.len()), (Validity::Invalid, 1));
    }

    #[test]
    fn without_attributes_no_guessed_model_passes() {
        let mut broken = Verdict::valid("g1");
        broken.valid = Validity::Invalid;
        let mut verdicts = [Verdict::valid("list-append"), broken];
        assert_eq!(without_attributes(&mut verdicts), Validity::Invalid);
        assert!(matches!(verdicts[0].valid, Validity::Unknown(_)));
    }

    #[test]
    fn nothing_is_known_of_a_history_in_which_nothing_took_place() {
        let mut verdicts = [Verdict::valid("stats"), Verdict::valid("list-append")];
        assert!(matches!(without_ok(&mut verdicts), Validity::Unknown(_)));
        for verdict in verdicts {
            let reason = verdict.reason.unwrap();
            assert_eq!(
                reason,
                "no operation completed ok: there is nothing to check"
            );
        }
    }
}
