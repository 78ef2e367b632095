//! Linearizability: does one order of the operations, in which each takes place between its invocation and its
//! completion, explain every result?
//!
//! ```
//! use seatrial_checker::{Checker, Validity};
//! use seatrial_linear::{Linearizable, Model};
//! use seatrial_interchange::import::{self, Format, Options};
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

mod configurations;
mod counterexample;
mod explanation;
mod model;
pub mod monitors;
mod object;
mod online;
mod search;

pub use model::Model;
use online::OnlineObjects;
pub use search::Bound;

use explanation::NONLINEARIZABLE;
use object::{LinearObject, LinearObjects, ObjectOperation};
use search::{Search, SearchResult};
use seatrial_checker::{
    Aims, Checker, Details, Figures, Finding, KeyFigures, KeyResult, LinearizabilityFigures,
    OnlineChecker, Validity, Verdict, WholeHistory,
};
use seatrial_history::{History, Key};
use std::collections::BTreeMap;

/// Findings that are kept; the count of violations is exact.
const FINDINGS_MAX: usize = 8;

/// Keys with a violation that the details name; of more, the first.
const RESULTS_MAX: usize = 64;

/// Checks one data type, each key on its own (linearizability is local: Herlihy and Wing 1990, theorem 1).
///
/// Operations of unknown result (`info`, or never completed) may take effect at any time after their invocation, or never.
/// Failed operations had no effect; a failed `cas` is no evidence about the state.
///
/// Loop: one key after another, in the order of keys. The operations, values and configurations of a key are freed before
/// those of the next are built, so memory is bounded by the history, 4 bytes for each operation, and the largest key.
/// After [`Checker::stop_at_first`] there are two rounds: each key first gets only `CONFIGURATIONS_FIRST`
/// configurations and a few for each operation, which decides all but contended keys; the remaining keys get the whole bound.
/// So a violation is found before the long searches, and no key is searched after it.
#[derive(Clone, Copy, Debug)]
pub struct Linearizable {
    model: Model,
    bound: Bound,
    stops_at_first: bool,
}

/// Configurations of each key's first search, plus [`CONFIGURATIONS_PER_OPERATION`] for each of its operations.
const CONFIGURATIONS_FIRST: u64 = 4_096;

/// A history without contention takes about one configuration for each operation.
const CONFIGURATIONS_PER_OPERATION: u64 = 4;

/// The results of all searches so far.
#[derive(Default)]
struct SearchTally {
    /// LinearObjects that were searched.
    checked: usize,
    operations: usize,
    /// Operations of unknown result.
    unknown: usize,
    configurations: u64,
    failures: u64,
    findings: Vec<Finding>,
    /// Keys with a violation.
    results: BTreeMap<String, KeyResult>,
    /// Why the first object whose search reached its bound is not decided.
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

    /// With another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> Linearizable {
        Linearizable { bound, ..self }
    }

    /// The bound of the first of two searches of an object.
    fn first_bound(&self, object: &LinearObject) -> Bound {
        let few = object.entries.len() as u64 * CONFIGURATIONS_PER_OPERATION;
        Bound {
            configurations_max: self
                .bound
                .configurations_max
                .min(few + CONFIGURATIONS_FIRST),
            ..self.bound
        }
    }

    /// Searches the objects one after another. The error names an operation that the model does not have.
    fn search(
        &self,
        history: &History,
        objects: &LinearObjects<'_>,
    ) -> Result<SearchTally, String> {
        let mut tally = SearchTally::default();
        let mut left: Vec<usize> = Vec::new();
        for number in 0..objects.len() {
            let mut object = objects.object(number)?;
            tally.checked += 1;
            tally.operations += object.entries.len() + object.dropped;
            tally.unknown += object.entries.len() - required(&object.entries) + object.dropped;
            let bound = if self.stops_at_first && objects.len() > 1 {
                self.first_bound(&object)
            } else {
                self.bound
            };
            let result = self.search_object(history, &mut object, bound, &mut tally);
            if matches!(result.0, SearchResult::Exhausted { .. }) && bound != self.bound {
                left.push(number);
            } else {
                tally.note_exhausted(&object, &result);
            }
            if self.stops_at_first && tally.failures > 0 {
                // The keys left for a second search were not decided.
                tally.checked -= left.len();
                return Ok(tally);
            }
        }
        for (searched, &number) in left.iter().enumerate() {
            let mut object = objects.object(number)?;
            let result = self.search_object(history, &mut object, self.bound, &mut tally);
            tally.note_exhausted(&object, &result);
            if tally.failures > 0 {
                tally.checked -= left.len() - searched - 1;
                break;
            }
        }
        assert!(
            tally.checked == objects.len() || tally.failures > 0,
            "{} of {} objects were checked",
            tally.checked,
            objects.len()
        );
        Ok(tally)
    }

    /// Searches one object and adds its result.
    fn search_object(
        &self,
        history: &History,
        object: &mut LinearObject,
        bound: Bound,
        tally: &mut SearchTally,
    ) -> (SearchResult, u64) {
        let search = Search::new(&object.entries, &mut object.values, bound);
        let (result, visited) = search.run();
        assert!(
            visited <= bound.configurations_max.max(1),
            "the search visited {visited} configurations, at most {}",
            bound.configurations_max
        );
        tally.configurations += visited;
        if let SearchResult::NotLinearizable(counterexample) = &result {
            tally.failures += 1;
            if let Some(key) = object
                .key
                .as_ref()
                .filter(|_| tally.results.len() < RESULTS_MAX)
            {
                let result = KeyResult::Invalid([NONLINEARIZABLE].into());
                tally.results.insert(key.to_string(), result);
            }
            if tally.findings.len() < FINDINGS_MAX {
                tally.findings.push(explanation::finding(
                    history,
                    self.model,
                    object,
                    counterexample,
                ));
            }
        }
        (result, visited)
    }

    /// The verdict after these searches.
    fn conclude(&self, objects: &LinearObjects<'_>, tally: SearchTally, verdict: &mut Verdict) {
        // Keys are those of all objects, or of none.
        let is_keyed = objects.len() > 0 && objects.key(0).is_some();
        let by_key = is_keyed.then_some(KeyFigures {
            keys: objects.len() as u64,
            keys_checked: tally.checked as u64,
            keys_invalid: tally.failures,
            results: tally.results,
        });
        verdict.details = Details::of(Figures::Linearizability(LinearizabilityFigures {
            objects: objects.len() as u64,
            operations: tally.operations as u64,
            unknown: tally.unknown as u64,
            configurations: tally.configurations,
            configurations_max: self.bound.configurations_max,
            findings_max: FINDINGS_MAX,
            by_key,
        }));
        if tally.failures > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies.insert(NONLINEARIZABLE, tally.failures);
            verdict.not = vec!["linearizable"];
            verdict.findings = tally.findings;
            if tally.checked < objects.len() {
                let (checked, all) = (tally.checked, objects.len());
                verdict.reason = Some(format!(
                    "checking stopped at the first key that is not linearizable: {checked} of {all} keys \
                     checked; --all-keys checks all"
                ));
            }
        } else if let Some(reason) = tally.exhausted {
            verdict.reason = Some(reason.clone());
            verdict.valid = Validity::Unknown(reason);
        }
    }
}

impl SearchTally {
    /// Keeps the reason of the first object whose search reached its bound.
    fn note_exhausted(&mut self, object: &LinearObject, (result, visited): &(SearchResult, u64)) {
        if let SearchResult::Exhausted { bound, linearized } = result {
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

/// Number of operations that certainly took effect.
fn required(entries: &[ObjectOperation]) -> usize {
    entries.iter().filter(|entry| entry.is_required()).count()
}

impl Checker for Linearizable {
    fn name(&self) -> &'static str {
        self.model.name()
    }

    fn check(&self, history: &History) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        verdict.model = Some("linearizable".into());
        let searched = LinearObjects::new(history, self.model).and_then(|objects| {
            let tally = self.search(history, &objects)?;
            Ok((objects, tally))
        });
        match searched {
            Ok((objects, tally)) => self.conclude(&objects, tally, &mut verdict),
            Err(reason) => return verdict.unknown(reason),
        }
        verdict
    }

    /// Starts an online checker where findings are wanted early, else one that keeps the whole history.
    fn start(&self, aims: &Aims) -> Box<dyn OnlineChecker> {
        if aims.early
            && let Some(objects) = OnlineObjects::new(*self)
        {
            return Box::new(objects);
        }
        Box::new(WholeHistory::new(*self))
    }

    fn stop_at_first(&mut self) {
        self.stops_at_first = true;
    }
}

#[cfg(test)]
mod tests;
