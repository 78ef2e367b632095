//! Cores of objects without linearization: few operations that the verifier refutes.

use crate::model::{Action, Model, Taken};
use crate::object::{NEVER, ObjectOperation};
use crate::proof_draft::{RecordedPlaces, RefutedObject};
use crate::values::{NumberedValues, StateId};
use seatrial_history::Key;
use seatrial_verify::{Certificate, CoreVerifier, LinearCore};
use std::collections::BTreeSet;

/// Steps of the verifier for one trial: tens of milliseconds.
const TRIAL_STEPS: u64 = 20_000_000;
/// Parts of the first window of operations that is tried.
const WINDOW_MIN: usize = 16;

/// A part of a core that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CorePart {
    /// An element of a collection, with all operations that add or remove it.
    Element(StateId),
    /// An operation by its place; a peek with its element.
    Operation(u64, Option<StateId>),
}

/// A core of this object which the verifier refutes, and not without any of its parts. The error is why there is none.
///
/// It begins with what a monitor named. A search names nothing: then windows of the operations that completed last before
/// the point that no order can pass are tried, each twice as large as the one before. What is not needed is left out, half
/// of the parts, a quarter, and so on to single ones. The verifier itself answers each trial, so it will accept the result.
///
/// Cost: O(log n) trials for the window, O(k log k) to reduce k parts, each O(n) and the verifier's search.
pub(crate) fn minimal_core(
    model: Model,
    object: &RefutedObject,
    values: &NumberedValues,
    places: &RecordedPlaces,
    verifier: &mut CoreVerifier,
) -> Result<LinearCore, String> {
    let mut minimizer = CoreMinimizer {
        model,
        key: object.key.as_ref().map(Key::to_string),
        until: u64::from(object.until),
        values,
        verifier,
        is_unsettled: false,
    };
    let named = object.core.iter();
    let named: Vec<&ObjectOperation> = named
        .map(|&number| &object.entries[number as usize])
        .collect();
    let mut parts = parts_of(&named, places);
    if parts.is_empty() || !minimizer.is_refuted(&parts) {
        parts = minimizer.windows(object, places)?;
    }
    let parts = without_needless(parts, |parts| minimizer.is_refuted(parts));
    minimizer.core(&parts)
}

/// The parts that remain when chunks that are not needed are left out: halves, quarters, and so on to single parts.
pub(crate) fn without_needless<T: Clone>(
    mut parts: Vec<T>,
    mut is_enough: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut size = parts.len() / 2;
    while size > 0 {
        let mut first = 0;
        while first < parts.len() {
            let mut less = parts.clone();
            less.drain(first..(first + size).min(parts.len()));
            if is_enough(&less) {
                parts = less;
            } else {
                first += size;
            }
        }
        size /= 2;
    }
    parts
}

struct CoreMinimizer<'a> {
    model: Model,
    key: Option<String>,
    until: u64,
    values: &'a NumberedValues,
    verifier: &'a mut CoreVerifier,
    /// Did the verifier reach its bound in a trial?
    is_unsettled: bool,
}

impl CoreMinimizer<'_> {
    /// The parts of the first window of operations that is refuted.
    fn windows(
        &mut self,
        object: &RefutedObject,
        places: &RecordedPlaces,
    ) -> Result<Vec<CorePart>, String> {
        let ends = object.entries.iter().map(|entry| entry.ret);
        let last = ends.filter(|&ret| ret != NEVER).max().unwrap_or(NEVER - 1);
        let mut entries: Vec<&ObjectOperation> = object.entries.iter().collect();
        for until in BTreeSet::from([object.until, last]) {
            self.until = u64::from(until);
            // Those of unknown outcome count from their invocation on.
            entries.sort_by_key(|entry| {
                let end = if entry.ret == NEVER {
                    entry.call
                } else {
                    entry.ret
                };
                (end > until, until.abs_diff(end))
            });
            let mut width = WINDOW_MIN;
            loop {
                let width_now = width.min(entries.len());
                let parts = parts_of(&entries[..width_now], places);
                if parts.len() > Certificate::CORE_MAX {
                    break;
                }
                if self.is_refuted(&parts) {
                    return Ok(parts);
                }
                if width_now == entries.len() {
                    break;
                }
                width *= 2;
            }
        }
        Err(match self.core(&[]) {
            Err(reason) => reason,
            Ok(_) if self.is_unsettled => {
                "the verifier does not settle a core of its operations within its bound".to_owned()
            }
            Ok(_) => format!(
                "no core of at most {} operations was found that the verifier refutes",
                Certificate::CORE_MAX
            ),
        })
    }

    /// Does the verifier refute these parts?
    fn is_refuted(&mut self, parts: &[CorePart]) -> bool {
        let Ok(core) = self.core(parts) else {
            return false;
        };
        match self.verifier.refute(&core, TRIAL_STEPS) {
            Ok(()) => true,
            Err(seatrial_verify::Unproven::Unsettled { .. }) => {
                self.is_unsettled = true;
                false
            }
            Err(seatrial_verify::Unproven::Refuted(_)) => false,
        }
    }

    /// The core of these parts. The error is that it has too many operations.
    fn core(&mut self, parts: &[CorePart]) -> Result<LinearCore, String> {
        let elements = parts.iter().filter_map(|part| match part {
            CorePart::Element(element) => Some(*element),
            CorePart::Operation(..) => None,
        });
        let elements: BTreeSet<StateId> = elements.collect();
        let mut core = LinearCore {
            data_type: self.model.name().to_owned(),
            key: self.key.clone(),
            until: self.until,
            elements: elements
                .iter()
                .map(|&element| self.values.get(element).to_string())
                .collect(),
            places: Vec::new(),
        };
        let required = self
            .verifier
            .required(&core)
            .map_err(|error| error.to_string())?;
        let mut all: BTreeSet<u64> = required.into_iter().collect();
        for part in parts {
            match part {
                // A peek says nothing without its element.
                CorePart::Operation(_, Some(element)) if !elements.contains(element) => {}
                CorePart::Operation(place, _) if *place <= self.until => _ = all.insert(*place),
                _ => {}
            }
        }
        if all.len() > Certificate::CORE_MAX {
            return Err(format!(
                "its core has {} operations; at most {} are written",
                all.len(),
                Certificate::CORE_MAX
            ));
        }
        core.places = all.into_iter().collect();
        Ok(core)
    }
}

/// The parts that these operations are, each once.
fn parts_of(entries: &[&ObjectOperation], places: &RecordedPlaces) -> Vec<CorePart> {
    let mut parts = Vec::new();
    let mut elements = BTreeSet::new();
    for entry in entries {
        let place = places.place(entry);
        match entry.action {
            Action::Put(_, element)
            | Action::Take(_, Taken::Element(element))
            | Action::TakeAny(element, _) => {
                if elements.insert(element) {
                    parts.push(CorePart::Element(element));
                }
            }
            Action::Peek(_, Taken::Element(element)) => {
                if elements.insert(element) {
                    parts.push(CorePart::Element(element));
                }
                parts.push(CorePart::Operation(place, Some(element)));
            }
            // The verifier counts all removals of unknown outcome, and asks for the updates of sums and texts (`core`).
            Action::Take(_, Taken::Unknown)
            | Action::Peek(_, Taken::Unknown)
            | Action::Increment(_)
            | Action::Append(_) => {}
            _ => parts.push(CorePart::Operation(place, None)),
        }
    }
    parts
}
