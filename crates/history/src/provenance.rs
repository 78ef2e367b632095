//! Provenance: whether a history has times, is complete, salvaged or repaired.

use crate::{REPAIRED, SALVAGED};
use serde_json::{Map, Value as Json};

/// The attribute of a history that says what the order of its operations means.
const TIMES: &str = "times";
/// Its value where only the order within each process means something.
const NONE: &str = "none";
/// The attribute of a history whose values are, or are not, those of independent keys.
const KEYED: &str = "keyed";
/// What a test says of itself that decides how its history is checked.
const WORKLOAD: &str = "workload";
const CHECKERS: &str = "checkers";
const OPTIONS: &str = "options";
const MODEL: &str = "model";
/// The attribute of a history whose end is missing, and its value.
const END: &str = "end";
const MISSING: &str = "missing";

/// What is known of a history besides its operations, and must not be lost when it is written in another format: whether
/// their order is that of real time, and what is missing of it. A history without any of it has times and is whole.
///
/// A test file has it as members of its attributes (`times`, `end`, `salvaged`, `repaired`, `keyed`); EDN has a comment before
/// the
/// first operation, `;; seatrial {"times":"none"}`, and JSON lines an object, `{"seatrial":{"times":"none"}}`. The comment also
/// has what decides how a test's history is checked (`workload`, `checkers`, `options.model`); the object, which is no comment to
/// other programs, is only written where there is something else to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance {
    /// What the history is worth.
    worth: Map<String, Json>,
    /// How its test is checked.
    test: Map<String, Json>,
}

impl Provenance {
    /// What these attributes say.
    pub fn of_attributes(attributes: &Json) -> Provenance {
        let said = |name: &&str| {
            let said = attributes.get(name).filter(|said| !said.is_null())?;
            Some(((*name).to_owned(), said.clone()))
        };
        let worth = [TIMES, END, SALVAGED, REPAIRED, KEYED];
        let mut test: Map<String, Json> = [WORKLOAD, CHECKERS].iter().filter_map(said).collect();
        let model = attributes
            .get(OPTIONS)
            .and_then(|options| options.get(MODEL));
        if let Some(model) = model.filter(|model| model.is_string()) {
            let options = Map::from_iter([(MODEL.to_owned(), model.clone())]);
            test.insert(OPTIONS.to_owned(), options.into());
        }
        Provenance {
            worth: worth.iter().filter_map(said).collect(),
            test,
        }
    }

    /// Adds it to attributes.
    pub fn add_to(&self, attributes: &mut Json) {
        for (name, said) in self.worth.iter().chain(&self.test) {
            attributes[name] = said.clone();
        }
    }

    /// Is the history whole, with times, so that nothing is lost without this?
    pub fn is_plain(&self) -> bool {
        self.worth.keys().all(|name| name == KEYED)
    }

    /// Does the order of its operations say nothing but within a process?
    pub fn is_timeless(&self) -> bool {
        self.worth.get(TIMES).is_some_and(|times| times == NONE)
    }

    /// The same for operations whose order says nothing but within a process.
    #[must_use]
    pub fn timeless(mut self) -> Provenance {
        self.worth.insert(TIMES.to_owned(), NONE.into());
        self
    }

    /// Is it known that operations may be missing at its end, as its writer never came to one?
    pub fn is_unended(&self) -> bool {
        self.worth.get(END).is_some_and(|end| end == MISSING)
    }

    /// The same for a history whose writer never came to an end.
    #[must_use]
    pub fn unended(mut self) -> Provenance {
        self.worth.insert(END.to_owned(), MISSING.into());
        self
    }

    /// What the history is worth, and how its test is checked, as members of attributes.
    pub fn members(&self) -> (&Map<String, Json>, &Map<String, Json>) {
        (&self.worth, &self.test)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn attributes_say_what_a_history_is_worth_and_how_it_is_tested() {
        let attributes =
            json!({"name": "x", "workload": "queue", "options": {"model": "SI", "rate": 7}});
        let plain = Provenance::of_attributes(&attributes);
        assert!(plain.is_plain() && !plain.is_timeless() && !plain.is_unended());
        let worse = plain.timeless().unended();
        assert!(!worse.is_plain() && worse.is_timeless() && worse.is_unended());
        let mut again = json!({});
        worse.add_to(&mut again);
        let expected = json!({
            "times": "none", "end": "missing", "workload": "queue", "options": {"model": "SI"}
        });
        assert_eq!(again, expected);
        assert_eq!(Provenance::of_attributes(&again), worse);
    }
}
