//! Incomplete histories: which parts are missing, and what a verdict about the rest is worth.
//!
//! A checker reads the recorded operations as if they were complete. Afterwards [`MissingPart::apply`] withdraws the results
//! that the missing part may contradict, as the [`Robustness`] of the checker says: an anomaly that the missing part may
//! explain, and a valid verdict about more than was read.
//! [`check_source`](crate::check_source) does so with what the history's provenance says; the crate `check` does so with what it
//! learns while it reads a file, too.

use crate::{Anomaly, Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_history::{Provenance, REPAIRED, SALVAGED, Salvaged};

/// Gaps that are listed one by one in a message.
const LISTED_MAX: usize = 3;

/// Where operations are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingExtent {
    /// At the end only: the run was killed or lost power. What is there is a prefix of the history.
    End,
    /// At the end only, and some of it was written and cannot be read: what is there is a prefix of what was recorded.
    DamagedEnd,
    /// Anywhere.
    Anywhere,
}

/// A part of the history that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPart {
    extent: MissingExtent,
    /// What is missing and why, in words.
    description: String,
}

/// The results of a checker that hold although operations of the history are missing. Each checker declares its own
/// ([`Checker::robustness`](crate::Checker::robustness)).
///
/// Without the end, a contradiction within the prefix holds, but a loss does not: what was added, enqueued or sent may have
/// been read in the missing part. With a gap anywhere, the missing part may also contain the write of a value that was read, the
/// release of a lock, the transfer between two accounts: only contradictions between recorded operations hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Robustness {
    /// Does a valid verdict hold of a prefix of the history? Not if the checker looks at the final state.
    pub is_valid_on_prefix: bool,
    /// The anomalies that the missing end may explain.
    pub explained_by_end: &'static [Anomaly],
    /// The anomalies that hold with a gap anywhere.
    pub certain: CertainAnomalies,
    /// Is a verdict invalid only by an anomaly that the isolation level of its model forbids? Otherwise by any anomaly.
    pub is_broken_by_level: bool,
}

/// The anomalies that no missing operation can explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertainAnomalies {
    /// These.
    Only(&'static [Anomaly]),
    /// All except these.
    AllExcept(&'static [Anomaly]),
}

impl Robustness {
    /// The default: everything holds of a prefix, no anomaly holds with a gap anywhere.
    pub const OF_PREFIX: Robustness = Robustness {
        is_valid_on_prefix: true,
        explained_by_end: &[],
        certain: CertainAnomalies::Only(&[]),
        is_broken_by_level: false,
    };

    /// Checkers of the final state: the missing end may explain that an element is lost.
    pub const OF_FINAL_STATE: Robustness = Robustness {
        is_valid_on_prefix: false,
        explained_by_end: &["lost"],
        ..Robustness::OF_PREFIX
    };

    /// Checkers of transactions: a gap explains only the read of a value whose write is missing.
    pub const OF_TRANSACTIONS: Robustness = Robustness {
        certain: CertainAnomalies::AllExcept(&["garbage-read"]),
        ..Robustness::OF_PREFIX
    };

    /// Does this anomaly hold, whatever the missing part contains?
    fn holds(&self, anomaly: Anomaly, extent: MissingExtent) -> bool {
        match (extent, self.certain) {
            (MissingExtent::End | MissingExtent::DamagedEnd, _) => {
                !self.explained_by_end.contains(&anomaly)
            }
            (MissingExtent::Anywhere, CertainAnomalies::Only(certain)) => {
                certain.contains(&anomaly)
            }
            (MissingExtent::Anywhere, CertainAnomalies::AllExcept(others)) => {
                !others.contains(&anomaly)
            }
        }
    }
}

impl Default for Robustness {
    fn default() -> Robustness {
        Robustness::OF_PREFIX
    }
}

impl MissingPart {
    /// The end of the history is missing, for the reason in `description`.
    pub fn end(description: impl Into<String>) -> MissingPart {
        MissingPart {
            extent: MissingExtent::End,
            description: description.into(),
        }
    }

    /// The end of the history was recorded, but cannot be read. An anomaly in the rest stands as with [`MissingPart::end`]; a
    /// valid verdict says nothing about what was recorded.
    pub fn damaged_end(description: impl Into<String>) -> MissingPart {
        MissingPart {
            extent: MissingExtent::DamagedEnd,
            description: description.into(),
        }
    }

    /// Operations are missing anywhere in the history.
    pub fn anywhere(description: impl Into<String>) -> MissingPart {
        MissingPart {
            extent: MissingExtent::Anywhere,
            description: description.into(),
        }
    }

    /// What the provenance of a history says is missing: it was written from a damaged one, or its writer never sealed it.
    pub fn of_provenance(provenance: &Provenance) -> Option<MissingPart> {
        of_salvage(provenance).or_else(|| {
            provenance
                .is_unended()
                .then(|| MissingPart::of_unsealed(provenance))
        })
    }

    /// What a damaged test file lacks; `orphans` completions were left out because their invocations are missing.
    pub fn of_salvaged(salvaged: &Salvaged, orphans: usize) -> Option<MissingPart> {
        let gaps = salvaged.missing();
        let mut listed: Vec<String> = gaps
            .iter()
            .take(LISTED_MAX)
            .map(ToString::to_string)
            .collect();
        if gaps.len() > LISTED_MAX {
            listed.push(format!("{} more", count_gaps(gaps.len() - LISTED_MAX)));
        }
        let orphans = match orphans {
            0 => String::new(),
            1 => "; 1 completion without its invocation was left out".to_owned(),
            n => format!("; {n} completions without their invocations were left out"),
        };
        let description = format!("{}{orphans}", listed.join(", "));
        (!gaps.is_empty()).then(|| MissingPart::anywhere(description))
    }

    /// The missing end of a history whose file was never sealed and ends with a complete block. Bytes that a repair cut off had
    /// been recorded; without a repair, the writer's buffer is assumed lost.
    pub fn of_unsealed(provenance: &Provenance) -> MissingPart {
        MissingPart::damaged_end(describe_repairs(provenance).unwrap_or_else(|| {
            "the test file was never sealed, and what its writer had in memory is lost".to_owned()
        }))
    }

    /// What is missing and why, in words.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// A warning for people.
    pub fn warning(&self) -> String {
        format!(
            "operations of this history are missing: {}",
            self.description
        )
    }

    /// Withdraws what these verdicts cannot claim; returns their joint validity. Applying it twice changes nothing.
    pub fn apply(&self, verdicts: &mut [Verdict]) -> Validity {
        for verdict in verdicts.iter_mut() {
            self.apply_to(verdict);
        }
        Validity::of(verdicts)
    }

    fn apply_to(&self, verdict: &mut Verdict) {
        match verdict.valid {
            Validity::Unknown(_) => return,
            Validity::Valid
                if self.extent == MissingExtent::End && verdict.robustness.is_valid_on_prefix =>
            {
                return;
            }
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
                    // The models may have been ruled out by an anomaly that was just removed.
                    verdict.not.clear();
                    verdict.also_not.clear();
                    return;
                }
            }
        }
        let missing = match self.extent {
            MissingExtent::End | MissingExtent::DamagedEnd => {
                format!("the end of the history is missing ({})", self.description)
            }
            MissingExtent::Anywhere => format!("operations are missing ({})", self.description),
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
            .filter(|name| !verdict.robustness.holds(name, self.extent))
            .collect()
    }
}

/// What a history lacks that was salvaged from a damaged file.
fn of_salvage(provenance: &Provenance) -> Option<MissingPart> {
    let gaps = provenance.members().0.get(SALVAGED)?["missing"]
        .as_array()?
        .len();
    let description = format!("{}, see `seatrial show --attributes`", count_gaps(gaps));
    (gaps > 0).then(|| MissingPart::anywhere(description))
}

/// The number of gaps, with its noun.
fn count_gaps(gaps: usize) -> String {
    match gaps {
        1 => "1 gap".to_owned(),
        n => format!("{n} gaps"),
    }
}

/// What repairs cut off the file that this history was in; `None` without a repair.
pub fn describe_repairs(provenance: &Provenance) -> Option<String> {
    let repairs = provenance.members().0.get(REPAIRED)?.as_array()?;
    let cut = repairs.iter().map(|repair| {
        let (bytes, offset) = (&repair["bytes"], &repair["offset"]);
        let reason = repair["reason"].as_str().unwrap_or("not known");
        format!("a repair cut {bytes} bytes off at {offset}: {reason}")
    });
    let cut: Vec<String> = cut.collect();
    (!cut.is_empty()).then(|| cut.join("; "))
}

/// Do the other anomalies violate the model by themselves?
fn is_forbidden(verdict: &Verdict, explained: &[Anomaly]) -> bool {
    let mut others = verdict
        .anomalies
        .keys()
        .filter(|name| !explained.contains(name));
    if verdict.robustness.is_broken_by_level {
        let level = verdict.model.as_deref().and_then(Level::by_name);
        let forbidden = level.map(Level::forbidden).unwrap_or_default();
        others.any(|name| forbidden.contains(name))
    } else {
        others.next().is_some()
    }
}

/// Withdraws valid verdicts on a history whose attributes are lost: the checkers and models of the test are unknown, and the
/// inferred ones may be weaker.
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

/// Withdraws verdicts on a history in which no operation completed `ok`: there is nothing to check.
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
mod tests;
