//! Elements that more than one operation appends.

use super::marks::{FAILED, INTERMEDIATE, Keys, REPEATED};
use super::witness::appends;
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Finds for each element that is marked as repeated the one append that did not fail.
///
/// A failed append has no effect, so what a read saw of such an element is of the other one. Which attempt failed is known
/// at its completion, so the chunks are taken in order. Memory in proportion to the repeated elements.
pub(super) struct Retries {
    /// The marks of keys with repeated elements.
    pub(super) keys: Keys,
}

/// An append of an operation.
type Append = (Key, i64);

/// The appends of one element that did not fail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    pub(super) count: u32,
    /// Where the last one was invoked; its completion, when that alone was recorded.
    pub(super) position: u64,
    /// Did its transaction append more to the key after it?
    pub(super) is_intermediate: bool,
}

/// What is known of some chunks.
#[derive(Default)]
pub(super) struct Known {
    attempts: BTreeMap<Append, Attempts>,
    /// By position of an invocation without a completion so far: its repeated appends, and is each intermediate?
    open: BTreeMap<u64, Vec<(Append, bool)>>,
}

impl Known {
    fn count(&mut self, position: u64, appends: Vec<(Append, bool)>) {
        for (append, is_intermediate) in appends {
            let attempts = self.attempts.entry(append).or_default();
            *attempts = Attempts {
                count: attempts.count + 1,
                position,
                is_intermediate,
            };
        }
    }
}

impl Retries {
    /// The repeated appends of the operation at `place`.
    fn repeated(&self, chunk: &Chunk, place: usize) -> Vec<(Append, bool)> {
        let all: Vec<(u32, i64)> = appends(chunk, place).collect();
        let each = all.iter().enumerate().filter_map(|(at, &(id, element))| {
            let key = chunk.key(id);
            let is_repeated = self.keys.get(key)?.is(element, REPEATED);
            let is_intermediate = all[at + 1..].iter().any(|later| later.0 == id);
            is_repeated.then(|| ((key.clone(), element), is_intermediate))
        });
        each.collect()
    }
}

impl Fold for Retries {
    type Accumulator = Known;
    type Output = BTreeMap<Append, Attempts>;

    fn name(&self) -> String {
        "g1: retried appends".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Known {
        Known::default()
    }

    fn reduce(&self, known: &mut Known, chunk: &Chunk) -> ControlFlow<()> {
        for (place, &kind) in chunk.kinds().iter().enumerate() {
            if !chunk.process(place).is_client() {
                continue;
            }
            let position = chunk.first_position() + place as u64;
            match (kind, chunk.invocation(place)) {
                (OpType::Invoke, _) => {
                    let repeated = self.repeated(chunk, place);
                    if !repeated.is_empty() {
                        known.open.insert(position, repeated);
                    }
                }
                (_, Some(invocation)) => {
                    let repeated = known.open.remove(&invocation).unwrap_or_default();
                    if kind != OpType::Fail {
                        known.count(invocation, repeated);
                    }
                }
                (OpType::Ok, None) => known.count(position, self.repeated(chunk, place)),
                (OpType::Fail | OpType::Info, None) => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut Known, _: Known) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, mut known: Known) -> BTreeMap<Append, Attempts> {
        for (position, repeated) in std::mem::take(&mut known.open) {
            known.count(position, repeated);
        }
        known.attempts
    }
}

/// Gives the repeated elements the marks of the append that did not fail. The error is an element with more than one.
pub(super) fn settle(keys: &mut Keys, attempts: &BTreeMap<Append, Attempts>) -> Result<(), Append> {
    for (append, attempts) in attempts {
        if attempts.count > 1 {
            return Err(append.clone());
        }
        let (key, element) = append;
        let marks = keys.entry(key.clone()).or_default();
        marks.clear(*element, FAILED);
        marks.clear(*element, INTERMEDIATE);
        if attempts.is_intermediate {
            marks.mark(*element, INTERMEDIATE);
        }
    }
    Ok(())
}
