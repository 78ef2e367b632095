//! Identifiers that nobody gets twice.

use super::element::Element;
use super::judge::{Event, Judge};
use super::outcome::Outcome;
use crate::{Checker, Verdict};
use seatrial_history::{History, OpType, Value};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Every `generate` that succeeds gives a value that no other gave: Jepsen's `unique-ids`.
///
/// Anomaly: `duplicated`, once for each value that was given more than once. The details tell the lowest and the highest
/// one. Its downside: it remembers every identifier.
#[derive(Clone, Copy, Debug, Default)]
pub struct UniqueIds;

/// What is known of one source of identifiers.
#[derive(Default)]
pub(crate) struct State {
    attempts: u64,
    given: BTreeMap<Element, Given>,
    /// The first success without an identifier.
    empty: Option<u64>,
}

#[derive(Clone, Copy)]
struct Given {
    count: u64,
    first: u64,
    last: u64,
}

impl Judge for UniqueIds {
    type State = State;
    const NAME: &'static str = "unique-ids";
    const FUNCTIONS: &'static [&'static str] = &["generate"];

    fn take(&self, state: &mut State, event: &Event<'_>) {
        let index = event.index;
        match (event.kind, event.value) {
            (OpType::Invoke, _) => state.attempts += 1,
            (OpType::Ok, Value::Nil) => state.empty = state.empty.or(Some(index)),
            (OpType::Ok, value) => {
                let given = state.given.entry(value.into()).or_insert(Given {
                    count: 0,
                    first: index,
                    last: index,
                });
                given.count += 1;
                given.last = index;
            }
            _ => {}
        }
    }

    fn finish(&self, state: State, outcome: &mut Outcome) {
        let State {
            attempts,
            given,
            empty,
        } = state;
        outcome.count("attempts", attempts);
        outcome.count("acknowledged", given.values().map(|one| one.count).sum());
        let twice = given.iter().filter(|(_, one)| one.count > 1);
        let mut twice: Vec<(&Element, &Given)> = twice.collect();
        outcome.list("duplicated", twice.iter().map(|one| one.0));
        // The most frequent first.
        twice.sort_by_key(|(_, one)| Reverse(one.count));
        for (identifier, one) in twice {
            outcome.anomaly("duplicated", || {
                let summary = format!(
                    "{identifier} was given {} times: first by op {}, last by op {}.",
                    one.count, one.first, one.last
                );
                (vec![one.first, one.last], summary)
            });
        }
        let ends = given.first_key_value().zip(given.last_key_value());
        if let Some(((lowest, _), (highest, _))) = ends {
            outcome.figure("range", json!([lowest.to_string(), highest.to_string()]));
        }
        if let Some(index) = empty {
            outcome.unknown(format!("op {index} succeeded without an identifier"));
        } else if given.is_empty() {
            outcome.silent("no identifier was ever given");
        }
    }
}

impl Checker for UniqueIds {
    fn name(&self) -> &'static str {
        UniqueIds::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
