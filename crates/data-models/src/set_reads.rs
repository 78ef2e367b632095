//! Sets that are read as a whole.

use super::set_elements::decide_elements;
use super::set_model::{SetAction, SetOperation};
use seatrial_history::FixedMap;
use seatrial_linear::{ModelCall, MonitorDecision, Refutation, ValueNumbers};

/// The completion of an operation of unknown outcome.
const PENDING: u32 = ModelCall::NEVER;

/// Operations that reads of the whole set may stand for, where elements are decided one by one.
const DERIVED_MAX: usize = 4_000_000;

/// Decides a set of which some operations read all elements, where that takes no search: if nothing is removed. Refutes others
/// if one element alone has no order.
pub(super) fn decide_reads(
    calls: &[ModelCall<SetOperation>],
    values: &ValueNumbers,
) -> MonitorDecision<SetOperation> {
    let decided = GrowingSet::new(calls, values).map(|mut set| set.decide());
    match decided {
        Ok(Ok(())) => MonitorDecision::Linearizable,
        Ok(Err(refutation)) => MonitorDecision::Refuted(refutation),
        Err(reason) => refute_elements(calls, values).unwrap_or(MonitorDecision::Search(reason)),
    }
}

/// The operations on one element of a set that only grows.
#[derive(Clone, Copy)]
struct ElementAddition {
    /// The operation that adds it: the one that found it absent, else the one that was invoked first; [`PENDING`] if there is
    /// none.
    adder: u32,
    /// Did the adder find it absent?
    is_first: bool,
    /// It is added no earlier: the invocation of the adder, or a later one of an operation that found it absent.
    call: u32,
    latest: u32,
    /// Of the operations that find it, or leave it there, the one that completed first, and its completion.
    ret: u32,
    earliest: u32,
}

/// A set that only grows, with reads of all elements: decided exactly, in O(n) for the operations and the elements read, and a
/// sort of the reads.
///
/// The states that reads saw must form a chain by inclusion. An element is added between two neighbours of the chain, so the
/// elements of each gap are a *batch*: the order is that of batches and states, and is free within a batch. With each element
/// added as early as possible, at the greatest invocation of what comes before (and of what finds the element absent), each
/// operation that needs the element, and each read, must complete no earlier. That suffices: an operation that finds the element
/// absent fits just before its addition, and one that finds it there at any time after.
struct GrowingSet<'a> {
    calls: &'a [ModelCall<SetOperation>],
    values: &'a ValueNumbers,
    elements: FixedMap<u32, ElementAddition>,
    /// Nothing can take place earlier from here on: an invocation, and its operation.
    now: (u32, u32),
}

type GrowthRefutation = Refutation<SetOperation>;

impl<'a> GrowingSet<'a> {
    /// The error is why the set must be searched.
    fn new(
        calls: &'a [ModelCall<SetOperation>],
        values: &'a ValueNumbers,
    ) -> Result<GrowingSet<'a>, String> {
        let mut elements: FixedMap<u32, ElementAddition> = FixedMap::default();
        for (place, call) in (0..).zip(calls) {
            let SetOperation::One(action, element) = call.operation else {
                continue;
            };
            let one = elements.entry(element).or_insert(ElementAddition {
                adder: PENDING,
                is_first: false,
                call: 0,
                latest: place,
                ret: PENDING,
                earliest: place,
            });
            if matches!(action, SetAction::Remove | SetAction::Discard) {
                return Err("it is read as a whole, and elements are removed".into());
            }
            if action == SetAction::Add && one.is_first {
                return Err(format!("{} is added more than once", values.value(element)));
            }
            if action == SetAction::Add || action == SetAction::Put && one.adder == PENDING {
                (one.adder, one.is_first) = (place, action == SetAction::Add);
            }
            let is_absent = action == SetAction::Absent;
            if is_absent && call.call >= one.call {
                (one.call, one.latest) = (call.call, place);
            }
            if !is_absent && call.ret < one.ret {
                (one.ret, one.earliest) = (call.ret, place);
            }
        }
        for one in elements.values_mut().filter(|one| one.adder != PENDING) {
            let call = calls[one.adder as usize].call;
            if call >= one.call {
                (one.call, one.latest) = (call, one.adder);
            }
        }
        Ok(GrowingSet {
            calls,
            values,
            elements,
            now: (0, 0),
        })
    }

    fn decide(&mut self) -> Result<(), GrowthRefutation> {
        let mut reads: Vec<(&[u32], u32)> = Vec::new();
        for (place, call) in (0..).zip(self.calls) {
            if let (SetOperation::Read(elements), true) = (&call.operation, call.is_certain()) {
                reads.push((elements, place));
            }
        }
        reads.sort_by_key(|&(elements, place)| (elements.len(), place));
        let (mut before, mut before_place): (&[u32], u32) = (&[], 0);
        for &(elements, place) in &reads {
            let mut batch = elements.to_vec();
            batch.retain(|element| before.binary_search(element).is_err());
            if batch.len() != elements.len() - before.len() {
                let missing = before
                    .iter()
                    .find(|one| elements.binary_search(one).is_err());
                let missing =
                    missing.map_or(String::new(), |&one| self.values.value(one).to_string());
                let reason = format!(
                    "It lacks {missing}, which another read returned that lacks elements of it: \
                     neither state can follow from the other."
                );
                return Err(self.refuted(&[place, before_place], reason));
            }
            self.add(&batch, Some(place))?;
            let read = &self.calls[place as usize];
            if read.ret < self.now.0 {
                let reason =
                    "The state that it returned needs an operation that was invoked after its end.";
                return Err(self.refuted(&[place, self.now.1], reason.into()));
            }
            self.now = self.now.max((read.call, place));
            (before, before_place) = (elements, place);
        }
        // Elements that no read saw are added last, those that something needs.
        let mut rest: Vec<u32> = self.elements.keys().copied().collect();
        rest.retain(|element| {
            self.elements[element].ret != PENDING && before.binary_search(element).is_err()
        });
        rest.sort_unstable();
        self.add(&rest, None)
    }

    /// Adds the elements of a batch, of which this read has the state.
    fn add(&mut self, batch: &[u32], read: Option<u32>) -> Result<(), GrowthRefutation> {
        let mut after = self.now;
        for &element in batch {
            let one = self.elements.get(&element).copied();
            let one = one.filter(|one| one.adder != PENDING);
            let shown = || self.values.value(element);
            let Some(one) = one else {
                let found = self.elements.get(&element).map(|one| one.earliest);
                let place = read.or(found).unwrap_or_default();
                let reason = format!("Nothing adds {}, which it found.", shown());
                return Err(self.refuted(&[place], reason));
            };
            let added = self.now.max((one.call, one.latest));
            if one.ret < added.0 {
                let reason = format!(
                    "By what reads found, {} is added after it was invoked; but an operation that needs the \
                     element, or adds it, had completed before.",
                    shown()
                );
                return Err(self.refuted(&[added.1, one.earliest], reason));
            }
            after = after.max(added);
        }
        self.now = after;
        Ok(())
    }

    fn refuted(&self, places: &[u32], reason: String) -> GrowthRefutation {
        let calls = places
            .iter()
            .map(|&place| self.calls[place as usize].clone());
        Refutation {
            calls: calls.collect(),
            reason: Some(reason),
        }
    }
}

/// Decides each element alone: a read of the whole set says of each whether it was there. Only a refutation counts.
fn refute_elements(
    calls: &[ModelCall<SetOperation>],
    values: &ValueNumbers,
) -> Option<MonitorDecision<SetOperation>> {
    let mut known: Vec<u32> = Vec::new();
    let mut reads = 0;
    for call in calls {
        match &call.operation {
            SetOperation::One(_, element) => known.push(*element),
            SetOperation::Read(elements) => {
                reads += 1;
                known.extend_from_slice(elements);
            }
        }
    }
    known.sort_unstable();
    known.dedup();
    if reads * known.len() > DERIVED_MAX {
        return None;
    }
    let mut derived = Vec::new();
    for call in calls {
        let SetOperation::Read(elements) = &call.operation else {
            derived.push(call.clone());
            continue;
        };
        let mut rest = &elements[..];
        for &element in &known {
            let action = match rest.split_first() {
                Some((&first, others)) if first == element => {
                    rest = others;
                    SetAction::Present
                }
                _ => SetAction::Absent,
            };
            derived.push(ModelCall {
                operation: SetOperation::One(action, element),
                ..*call
            });
        }
    }
    match decide_elements(&derived, values) {
        refuted @ MonitorDecision::Refuted(_) => Some(refuted),
        _ => None,
    }
}
