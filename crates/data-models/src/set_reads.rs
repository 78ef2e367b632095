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

/// The numbers of the calls in the order of a linearization, of a set that only grows, is read as a whole, and was found to be
/// linearizable; see [`GrowingSet`]. O(n log n) and the elements read.
pub(super) fn growing_order(calls: &[ModelCall<SetOperation>]) -> Option<Vec<u32>> {
    let (mut reads, adders) = reads_and_adders(calls)?;
    reads.sort_unstable();
    let mut main = GrowthOrder::default();
    let mut batch: Vec<(u32, u32)> = Vec::new();
    for &(_, call, number) in &reads {
        let SetOperation::Read(elements) = &calls[number as usize].operation else {
            continue;
        };
        for element in elements {
            if !main.points.contains_key(element) {
                let (adder, _, point) = adders.get(element)?;
                batch.push((*point, (*adder)?));
                main.points.insert(*element, *point);
            }
        }
        main.push_all(calls, &mut batch);
        main.push(call, number);
    }
    // What no read found is added after all of them.
    for (element, (adder, _, point)) in &adders {
        if let Some(adder) = adder.filter(|_| !main.points.contains_key(element)) {
            batch.push((*point, adder));
        }
    }
    main.push_all(calls, &mut batch);
    let mut order = main.order;
    let placed: Vec<u32> = order.iter().map(|&(.., number)| number).collect();
    let mut is_placed = vec![false; calls.len()];
    for number in placed {
        is_placed[number as usize] = true;
    }
    for (number, call) in (0..).zip(calls) {
        if is_placed[number as usize] || !call.is_certain() {
            continue;
        }
        if let SetOperation::One(action, element) = call.operation {
            let added = main.points.get(&element).copied().unwrap_or(0);
            // One that finds it absent comes first at its point, any other last.
            if action == SetAction::Absent {
                order.push((call.call, 0, number));
            } else {
                order.push((call.call.max(added), u32::MAX, number));
            }
        }
    }
    order.sort_unstable();
    Some(order.into_iter().map(|(.., number)| number).collect())
}

/// By element: its adder, whether that found it absent, and the point from which on it may be added.
type AddersByElement = FixedMap<u32, (Option<u32>, bool, u32)>;

/// Reads of all elements: how many they found, invocation, number.
type SortedReads = Vec<(usize, u32, u32)>;

/// The reads of all elements, and what adds each element. `None` if there is no read, or a removal.
fn reads_and_adders(calls: &[ModelCall<SetOperation>]) -> Option<(SortedReads, AddersByElement)> {
    let mut reads = SortedReads::new();
    let mut adders: AddersByElement = FixedMap::default();
    for (number, call) in (0..).zip(calls) {
        let (action, element) = match &call.operation {
            SetOperation::Read(elements) => {
                reads.push((elements.len(), call.call, number));
                continue;
            }
            SetOperation::One(action, element) => (*action, *element),
        };
        let (adder, is_first, point) = adders.entry(element).or_default();
        match action {
            SetAction::Remove | SetAction::Discard => return None,
            SetAction::Add => (*adder, *is_first) = (Some(number), true),
            SetAction::Put if adder.is_none() => *adder = Some(number),
            SetAction::Absent => *point = call.call.max(*point),
            SetAction::Put | SetAction::Present => {}
        }
    }
    if reads.is_empty() {
        return None;
    }
    for (adder, _, point) in adders.values_mut() {
        let call = adder.map_or(0, |adder| calls[adder as usize].call);
        *point = call.max(*point);
    }
    Some((reads, adders))
}

/// The additions and reads of a growing set in order.
#[derive(Default)]
struct GrowthOrder {
    /// The point, the place from 1 on, and the number of each operation. Points ascend.
    order: Vec<(u32, u32, u32)>,
    /// By element: the point at which it is added.
    points: FixedMap<u32, u32>,
    now: u32,
}

impl GrowthOrder {
    /// Adds an operation that takes effect from this point on.
    fn push(&mut self, point: u32, number: u32) {
        self.now = self.now.max(point);
        self.order
            .push((self.now, self.order.len() as u32 + 1, number));
    }

    /// Adds additions, which may come in any order.
    fn push_all(&mut self, calls: &[ModelCall<SetOperation>], batch: &mut Vec<(u32, u32)>) {
        batch.sort_unstable();
        for (point, adder) in batch.drain(..) {
            self.push(point, adder);
            if let SetOperation::One(_, element) = calls[adder as usize].operation {
                self.points.insert(element, self.now);
            }
        }
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
