//! Linearizability: does one order of the operations, in which each takes place between its invocation and its
//! completion, explain every result?
//!
//! ```
//! use seatrial_checker::{Checker, Validity, linear::{Linearizable, Model}};
//! use seatrial_history::import::{self, Format, Options};
//!
//! let text = b"{:process 0, :type :invoke, :f :write, :value 1}
//!              {:process 0, :type :ok, :f :write, :value 1}
//!              {:process 1, :type :invoke, :f :read, :value nil}
//!              {:process 1, :type :ok, :f :read, :value nil}";
//! let history = import::read("run.edn", text, Format::Edn, Options::default())?;
//! let verdict = Linearizable::new(Model::Register).check(&history);
//! assert_eq!(verdict.valid, Validity::Invalid); // the read is stale
//! # Ok::<(), import::ImportError>(())
//! ```

mod entry;
mod explain;
mod model;
mod online;
mod search;
mod stuck;
mod table;

pub use model::Model;
pub(crate) use online::OnlineObjects;
pub use search::Bound;

use crate::{Checker, Finding, Validity, Verdict};
use entry::{Entry, Object, Objects};
use explain::NONLINEARIZABLE;
use search::{Outcome, Search};
use seatrial_history::{History, Key};

/// Findings that are kept; the count of objects that failed is exact.
const FINDINGS_MAX: usize = 8;

/// Keys that failed and are named in the details; of more, the first.
const RESULTS_MAX: usize = 64;

/// Checks one data type, each key on its own (linearizability is local: Herlihy and Wing 1990, theorem 1).
///
/// Operations of unknown outcome (`info`, or never completed) may take place at any time after their invocation, or
/// never. Failed operations did not take place; a failed `cas` says nothing about the state.
///
/// Loop: one key after another, in the order of keys. The operations, values and configurations of a key are freed before
/// those of the next are built, so that memory is bounded by the history, 4 bytes for each operation, and the largest key.
/// With [`Linearizable::stopping_at_first`] there are two rounds: each key first gets only `CONFIGURATIONS_FIRST`
/// configurations and a few for each operation, which decides all but contended keys; the rest gets the whole bound. So a
/// broken key is found before the searches that take long, and none is searched after it.
#[derive(Clone, Copy, Debug)]
pub struct Linearizable {
    model: Model,
    bound: Bound,
    stops_at_first: bool,
}

/// Configurations of each key's first search, besides [`CONFIGURATIONS_PER_OPERATION`] for each of its operations.
const CONFIGURATIONS_FIRST: u64 = 4_096;

/// A history without contention takes about one configuration for each operation.
const CONFIGURATIONS_PER_OPERATION: u64 = 4;

/// What the searches found so far.
#[derive(Default)]
struct Tally {
    /// Objects that were searched.
    checked: usize,
    operations: usize,
    /// Operations of unknown outcome.
    unknown: usize,
    configurations: u64,
    failures: u64,
    findings: Vec<Finding>,
    /// Keys that failed, with the results of each.
    results: serde_json::Map<String, serde_json::Value>,
    /// Why the first object of those at their bound is not decided.
    exhausted: Option<String>,
}

impl Linearizable {
    /// The checker of this model, with the default bound.
    pub fn new(model: Model) -> Linearizable {
        Linearizable {
            model,
            bound: Bound::default(),
            stops_at_first: false,
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> Linearizable {
        Linearizable { bound, ..self }
    }

    /// The same, but no key is searched after the first that is not linearizable.
    #[must_use]
    pub fn stopping_at_first(self) -> Linearizable {
        Linearizable {
            stops_at_first: true,
            ..self
        }
    }

    /// The bound of the first search of an object, when each gets two.
    fn first_bound(&self, object: &Object) -> Bound {
        let few = object.entries.len() as u64 * CONFIGURATIONS_PER_OPERATION;
        Bound {
            configurations_max: self
                .bound
                .configurations_max
                .min(few + CONFIGURATIONS_FIRST),
            ..self.bound
        }
    }

    /// Searches the objects one after another. The error says what is not understood.
    fn search(&self, history: &History, objects: &Objects<'_>) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let mut left: Vec<usize> = Vec::new();
        for number in 0..objects.len() {
            let mut object = objects.object(number)?;
            tally.checked += 1;
            tally.operations += object.entries.len();
            tally.unknown += object.entries.len() - required(&object.entries);
            let bound = if self.stops_at_first && objects.len() > 1 {
                self.first_bound(&object)
            } else {
                self.bound
            };
            let outcome = self.search_one(history, &mut object, bound, &mut tally);
            if matches!(outcome.0, Outcome::Exhausted { .. }) && bound != self.bound {
                left.push(number);
            } else {
                tally.note_exhausted(&object, &outcome);
            }
            if self.stops_at_first && tally.failures > 0 {
                // What is left was not decided.
                tally.checked -= left.len();
                return Ok(tally);
            }
        }
        for (searched, &number) in left.iter().enumerate() {
            let mut object = objects.object(number)?;
            let outcome = self.search_one(history, &mut object, self.bound, &mut tally);
            tally.note_exhausted(&object, &outcome);
            if tally.failures > 0 {
                tally.checked -= left.len() - searched - 1;
                break;
            }
        }
        Ok(tally)
    }

    /// Searches one object and tallies a failure.
    fn search_one(
        &self,
        history: &History,
        object: &mut Object,
        bound: Bound,
        tally: &mut Tally,
    ) -> (Outcome, u64) {
        let search = Search::new(&object.entries, &mut object.values, bound);
        let (outcome, visited) = search.run();
        tally.configurations += visited;
        if let Outcome::Stuck(stuck) = &outcome {
            tally.failures += 1;
            if let Some(key) = object
                .key
                .as_ref()
                .filter(|_| tally.results.len() < RESULTS_MAX)
            {
                let result = serde_json::json!({"valid": false, "anomalies": [NONLINEARIZABLE]});
                tally.results.insert(key.to_string(), result);
            }
            if tally.findings.len() < FINDINGS_MAX {
                tally
                    .findings
                    .push(explain::finding(history, self.model, object, stuck));
            }
        }
        (outcome, visited)
    }

    /// The verdict after these searches.
    fn conclude(&self, objects: &Objects<'_>, tally: Tally, verdict: &mut Verdict) {
        verdict.details = serde_json::json!({
            "objects": objects.len(),
            "operations": tally.operations,
            "unknown": tally.unknown,
            "configurations": tally.configurations,
            "configurations_max": self.bound.configurations_max,
            "findings_max": FINDINGS_MAX,
        });
        // Keys are those of all objects, or of none.
        let is_keyed = objects.len() > 0 && objects.key(0).is_some();
        if is_keyed {
            verdict.details["keys"] = objects.len().into();
            verdict.details["keys_checked"] = tally.checked.into();
            verdict.details["keys_invalid"] = tally.failures.into();
            verdict.details["results"] = tally.results.into();
        }
        if tally.failures > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies.insert(NONLINEARIZABLE, tally.failures);
            verdict.not = vec!["linearizable"];
            verdict.findings = tally.findings;
            if tally.checked < objects.len() {
                let (checked, all) = (tally.checked, objects.len());
                verdict.reason = Some(format!(
                    "checking stopped at the first broken key: {checked} of {all} keys checked; \
                     --all-keys checks all"
                ));
            }
        } else if let Some(reason) = tally.exhausted {
            verdict.reason = Some(reason.clone());
            verdict.valid = Validity::Unknown(reason);
        }
    }
}

impl Tally {
    /// Keeps the reason of the first object whose search ended at a bound.
    fn note_exhausted(&mut self, object: &Object, (outcome, visited): &(Outcome, u64)) {
        if let Outcome::Exhausted { bound, linearized } = outcome {
            let of = required(&object.entries);
            self.exhausted.get_or_insert_with(|| {
                let key = object.key.as_ref().map(Key::to_string);
                let key = key.map_or(String::new(), |key| format!("key {key}: "));
                format!(
                    "{key}the bound on {bound} was reached after {visited} configurations, \
                     with {linearized} of {of} operations linearized"
                )
            });
        }
    }
}

/// Operations that certainly took place.
fn required(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| entry.is_required()).count()
}

impl Checker for Linearizable {
    fn name(&self) -> &'static str {
        self.model.name()
    }

    fn check(&self, history: &History) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        verdict.model = Some("linearizable".into());
        let searched = Objects::new(history, self.model).and_then(|objects| {
            let tally = self.search(history, &objects)?;
            Ok((objects, tally))
        });
        match searched {
            Ok((objects, tally)) => self.conclude(&objects, tally, &mut verdict),
            Err(reason) => return verdict.unknown(reason),
        }
        verdict
    }

    fn stop_at_first(&mut self) {
        self.stops_at_first = true;
    }
}

#[cfg(test)]
mod tests;
