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

use crate::{Checker, Validity, Verdict};
use entry::{Entry, Object};
use explain::NONLINEARIZABLE;
use search::{Outcome, Search};
use seatrial_history::{History, Key};

/// Findings that are kept; the count of objects that failed is exact.
const FINDINGS_MAX: usize = 8;

/// Keys that failed and are named in the details; of more, the first.
const RESULTS_MAX: usize = 64;

/// Judges one data type, each key on its own (linearizability is local: Herlihy and Wing 1990, theorem 1).
///
/// Operations of unknown outcome (`info`, or never completed) may take place at any time after their invocation, or
/// never. Failed operations did not take place; a failed `cas` says nothing about the state.
#[derive(Clone, Copy, Debug)]
pub struct Linearizable {
    model: Model,
    bound: Bound,
}

impl Linearizable {
    /// The checker of this model, with the default bound.
    pub fn new(model: Model) -> Linearizable {
        Linearizable {
            model,
            bound: Bound::default(),
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> Linearizable {
        Linearizable { bound, ..self }
    }

    /// Judges the objects one after another and adds what they say to the verdict.
    fn judge(&self, history: &History, objects: &mut [Object], verdict: &mut Verdict) {
        let mut reason: Option<String> = None;
        let mut failures: u64 = 0;
        let mut configurations = 0;
        let mut keys = serde_json::Map::new();
        for object in objects.iter_mut() {
            let search = Search::new(&object.entries, &mut object.values, self.bound);
            let (outcome, visited) = search.run();
            configurations += visited;
            match outcome {
                Outcome::Linearizable => {}
                Outcome::Stuck(stuck) => {
                    failures += 1;
                    if let Some(key) = object.key.as_ref().filter(|_| keys.len() < RESULTS_MAX) {
                        let result =
                            serde_json::json!({"valid": false, "anomalies": [NONLINEARIZABLE]});
                        keys.insert(key.to_string(), result);
                    }
                    if verdict.findings.len() < FINDINGS_MAX {
                        let finding = explain::finding(history, self.model, object, &stuck);
                        verdict.findings.push(finding);
                    }
                }
                Outcome::Exhausted { bound, linearized } => {
                    let of = required(&object.entries);
                    reason.get_or_insert_with(|| {
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
        verdict.details = serde_json::json!({
            "objects": objects.len(),
            "operations": objects.iter().map(|object| object.entries.len()).sum::<usize>(),
            "unknown": objects.iter().map(|object| object.entries.len() - required(&object.entries)).sum::<usize>(),
            "configurations": configurations,
            "configurations_max": self.bound.configurations_max,
            "findings_max": FINDINGS_MAX,
        });
        let keyed = objects.iter().filter(|object| object.key.is_some()).count();
        if keyed > 0 {
            verdict.details["keys"] = keyed.into();
            verdict.details["keys_invalid"] = failures.into();
            verdict.details["results"] = keys.into();
        }
        if failures > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies.insert(NONLINEARIZABLE, failures);
            verdict.not = vec!["linearizable"];
        } else if let Some(reason) = reason {
            verdict.reason = Some(reason.clone());
            verdict.valid = Validity::Unknown(reason);
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
        match entry::objects(history, self.model) {
            Ok(mut objects) => self.judge(history, &mut objects, &mut verdict),
            Err(reason) => return verdict.unknown(reason),
        }
        verdict
    }
}

#[cfg(test)]
mod tests;
