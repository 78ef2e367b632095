//! Retried appends: elements that several operations append.

use super::element_bits::{FAILED, INTERMEDIATE, KeyBits, REPEATED};
use super::read_witnesses::appends;
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Finds the one append that did not fail, for each repeated element.
///
/// A failed append has no effect, so a read of such an element is of the other attempt. Which attempt failed is known at its
/// completion, so chunks are read in order. Memory in proportion to the repeated elements.
pub(super) struct RetryFold {
    /// The bits of keys with repeated elements.
    pub(super) keys: KeyBits,
}

/// Key and element of an append.
type KeyElement = (Key, i64);

/// The appends of one element that did not fail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    pub(super) count: u32,
    /// Position of the invocation of the last one, or of its completion if only that was recorded.
    pub(super) position: u64,
    /// Did its transaction append more to the key after it?
    pub(super) is_intermediate: bool,
}

/// The attempts of the chunks so far.
#[derive(Default)]
pub(super) struct RetryState {
    attempts: BTreeMap<KeyElement, Attempts>,
    /// By position of an open invocation: its repeated appends, each with whether it is intermediate.
    open: BTreeMap<u64, Vec<(KeyElement, bool)>>,
}

impl RetryState {
    fn count(&mut self, position: u64, appends: Vec<(KeyElement, bool)>) {
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

impl RetryFold {
    /// The repeated appends of the operation at `place`.
    fn repeated(&self, chunk: &Chunk, place: usize) -> Vec<(KeyElement, bool)> {
        let all: Vec<(u32, i64)> = appends(chunk, place).collect();
        let each = all.iter().enumerate().filter_map(|(at, &(id, element))| {
            let key = chunk.key(id);
            let is_repeated = self.keys.get(key)?.get(element, REPEATED);
            let is_intermediate = all[at + 1..].iter().any(|later| later.0 == id);
            is_repeated.then(|| ((key.clone(), element), is_intermediate))
        });
        each.collect()
    }
}

impl Fold for RetryFold {
    type Accumulator = RetryState;
    type Output = BTreeMap<KeyElement, Attempts>;

    fn name(&self) -> String {
        "g1: retried appends".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> RetryState {
        RetryState::default()
    }

    fn reduce(&self, known: &mut RetryState, chunk: &Chunk) -> ControlFlow<()> {
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

    fn combine(&self, _: &mut RetryState, _: RetryState) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, mut known: RetryState) -> BTreeMap<KeyElement, Attempts> {
        for (position, repeated) in std::mem::take(&mut known.open) {
            known.count(position, repeated);
        }
        assert!(
            known.attempts.values().all(|attempts| attempts.count > 0),
            "an attempt that did not fail was counted"
        );
        known.attempts
    }
}

/// Sets the bits of repeated elements to those of the append that did not fail. The error is an element with several.
pub(super) fn settle(
    keys: &mut KeyBits,
    attempts: &BTreeMap<KeyElement, Attempts>,
) -> Result<(), KeyElement> {
    for (append, attempts) in attempts {
        if attempts.count > 1 {
            return Err(append.clone());
        }
        let (key, element) = append;
        let bits = keys.entry(key.clone()).or_default();
        bits.clear(*element, FAILED);
        bits.clear(*element, INTERMEDIATE);
        if attempts.is_intermediate {
            bits.set(*element, INTERMEDIATE);
        }
    }
    Ok(())
}
