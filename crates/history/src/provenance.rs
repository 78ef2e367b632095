//! Provenance: whether a history has times, is complete, salvaged or repaired.

use crate::{REPAIRED, SALVAGED};
use serde_json::{Map, Value as Json};

/// Attribute: whether the order of operations is that of real time.
const TIMES: &str = "times";
/// Its value if only the order within each process is known.
const NONE: &str = "none";
/// Attribute: whether the values are those of independent keys.
const KEYED: &str = "keyed";
/// Attributes of a test that select the checkers and the model of its history.
const WORKLOAD: &str = "workload";
const CHECKERS: &str = "checkers";
const OPTIONS: &str = "options";
const MODEL: &str = "model";
/// Attribute of a history whose end is missing, and its value.
const END: &str = "end";
const MISSING: &str = "missing";

/// Facts about a history that its operations do not contain and that limit a verdict: whether the order of operations is
/// that of real time, and which operations are missing. Every conversion to another format keeps them. The default
/// provenance means: with times, complete.
///
/// | format | place |
/// | --- | --- |
/// | test file | members of the attributes: `times`, `end`, `salvaged`, `repaired`, `keyed` |
/// | EDN | a comment before the first operation: `;; seatrial {"times":"none"}` |
/// | JSON lines | a first object: `{"seatrial":{"times":"none"}}` |
///
/// The attributes and the EDN comment also keep what selects the checkers of a test (`workload`, `checkers`,
/// `options.model`). The object of JSON lines is no comment to other programs, so it is only written if there is a limit
/// to record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance {
    /// Facts that limit a verdict.
    limits: Map<String, Json>,
    /// Attributes that select checkers and model.
    test: Map<String, Json>,
}

impl Provenance {
    /// Reads the provenance from attributes; other members are ignored.
    pub fn of_attributes(attributes: &Json) -> Provenance {
        let member = |name: &&str| {
            let value = attributes.get(name).filter(|value| !value.is_null())?;
            Some(((*name).to_owned(), value.clone()))
        };
        let limits = [TIMES, END, SALVAGED, REPAIRED, KEYED];
        let mut test: Map<String, Json> = [WORKLOAD, CHECKERS].iter().filter_map(member).collect();
        let model = attributes
            .get(OPTIONS)
            .and_then(|options| options.get(MODEL));
        if let Some(model) = model.filter(|model| model.is_string()) {
            let options = Map::from_iter([(MODEL.to_owned(), model.clone())]);
            test.insert(OPTIONS.to_owned(), options.into());
        }
        Provenance {
            limits: limits.iter().filter_map(member).collect(),
            test,
        }
    }

    /// Writes all members into `attributes`.
    pub fn add_to(&self, attributes: &mut Json) {
        for (name, value) in self.limits.iter().chain(&self.test) {
            attributes[name] = value.clone();
        }
    }

    /// Is the history complete and with times, so that dropping its provenance loses nothing?
    pub fn is_plain(&self) -> bool {
        self.limits.keys().all(|name| name == KEYED)
    }

    /// Is the order of operations meaningful only within each process?
    pub fn is_timeless(&self) -> bool {
        self.limits.get(TIMES).is_some_and(|times| times == NONE)
    }

    /// Marks the order of operations as meaningful only within each process.
    #[must_use]
    pub fn timeless(mut self) -> Provenance {
        self.limits.insert(TIMES.to_owned(), NONE.into());
        self
    }

    /// May operations be missing at the end, because the writer never sealed the history?
    pub fn is_unended(&self) -> bool {
        self.limits.get(END).is_some_and(|end| end == MISSING)
    }

    /// Marks the history as one whose writer never sealed it.
    #[must_use]
    pub fn unended(mut self) -> Provenance {
        self.limits.insert(END.to_owned(), MISSING.into());
        self
    }

    /// Members for attributes: facts that limit a verdict, then those that select checkers and model.
    pub fn members(&self) -> (&Map<String, Json>, &Map<String, Json>) {
        (&self.limits, &self.test)
    }
}

#[cfg(test)]
mod tests;
