//! Identifiers that are generated once each.

use super::data_type::{DataType, OperationEvent};
use super::element::Element;
use super::element_map::ElementMap;
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, CertainAnomalies, Checker, OnlineChecker, Robustness, Verdict};
use seatrial_history::{History, OpType, Value};
use serde_json::json;
use std::cmp::Reverse;

/// Every `generate` that succeeds returns a value that no other returned: Jepsen's `unique-ids`.
///
/// Anomaly: `duplicated`, once for each value that was returned more than once. The details have the lowest and the highest
/// identifier. Its downside: it remembers every identifier.
#[derive(Clone, Copy, Debug, Default)]
pub struct UniqueIds;

/// The state of one generator of identifiers.
#[derive(Default)]
pub(crate) struct UniqueIdsState {
    attempts: u64,
    given: ElementMap<IdentifierUses>,
    /// The first success without an identifier.
    empty: Option<u64>,
}

#[derive(Clone, Copy)]
struct IdentifierUses {
    count: u64,
    first: u64,
    last: u64,
}

impl DataType for UniqueIds {
    type State = UniqueIdsState;
    const NAME: &'static str = "unique-ids";
    const FUNCTIONS: &'static [&'static str] = &["generate"];

    fn apply(&self, state: &mut UniqueIdsState, event: &OperationEvent<'_>) {
        let index = event.index;
        match (event.kind, event.value) {
            (OpType::Invoke, _) => state.attempts += 1,
            (OpType::Ok, Value::Nil) => state.empty = state.empty.or(Some(index)),
            (OpType::Ok, value) => {
                let absent = IdentifierUses {
                    count: 0,
                    first: index,
                    last: index,
                };
                let given = state.given.entry(&value.into(), absent);
                given.count += 1;
                given.last = index;
            }
            _ => {}
        }
    }

    fn finish(&self, state: UniqueIdsState, builder: &mut VerdictBuilder) {
        let UniqueIdsState {
            attempts,
            given,
            empty,
        } = state;
        builder.count("attempts", attempts);
        builder.count(
            "acknowledged",
            given.values().iter().map(|one| one.count).sum(),
        );
        debug_assert!(
            given
                .values()
                .iter()
                .all(|one| one.count > 0 && one.first <= one.last),
            "an identifier is there because it was given"
        );
        let given = given.sorted();
        let twice = given.iter().filter(|(_, one)| one.count > 1);
        let twice = twice.map(|(identifier, one)| (identifier, *one));
        let mut twice: Vec<(&Element, &IdentifierUses)> = twice.collect();
        builder.list("duplicated", twice.iter().map(|one| one.0));
        // The most frequent first.
        twice.sort_by_key(|(_, one)| Reverse(one.count));
        for (identifier, one) in twice {
            builder.anomaly("duplicated", || {
                let summary = format!(
                    "{identifier} was given {} times: first by op {}, last by op {}.",
                    one.count, one.first, one.last
                );
                (vec![one.first, one.last], summary)
            });
        }
        let ends = given.first().zip(given.last());
        if let Some(((lowest, _), (highest, _))) = ends {
            builder.figure("range", json!([lowest.to_string(), highest.to_string()]));
        }
        if let Some(index) = empty {
            builder.unknown(format!("op {index} succeeded without an identifier"));
        } else if given.is_empty() {
            builder.no_evidence("no identifier was ever given");
        }
    }
}

impl Checker for UniqueIds {
    fn name(&self) -> &'static str {
        UniqueIds::NAME
    }

    fn robustness(&self) -> Robustness {
        Robustness {
            certain: CertainAnomalies::Only(&["duplicated"]),
            ..Robustness::OF_PREFIX
        }
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
