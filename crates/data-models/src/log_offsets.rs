//! Logs whose appends have known offsets: decided without a search.

use super::append_log_model::LogOperation;
use seatrial_history::FixedMap;
use seatrial_linear::{ModelCall, MonitorDecision, Refutation, ValueNumbers};

/// The completion of an operation of unknown outcome.
const PENDING: u32 = ModelCall::NEVER;

/// No operation.
const NONE: u32 = u32::MAX;

/// A place of the log.
#[derive(Clone, Copy)]
struct LogSlot {
    /// The append that fills it, and its value; the value may be known from a read alone.
    append: u32,
    value: u32,
    /// The operation from which the value is known.
    source: u32,
    /// It is filled no earlier: an invocation, and its operation.
    from: (u32, u32),
    /// It is filled by then: the first completion of what needs it, and its operation.
    by: (u32, u32),
}

const EMPTY: LogSlot = LogSlot {
    append: NONE,
    value: NONE,
    source: NONE,
    from: (0, NONE),
    by: (PENDING, NONE),
};

/// The numbers of the calls of a linearizable log in the order of a linearization, if each append that took effect is known by
/// its offset. Slots are filled as early as possible; a read stands between the slots that it needs and the first one that it
/// must not find. O(n log n).
pub(super) fn offset_order(calls: &[ModelCall<LogOperation>]) -> Option<Vec<u32>> {
    let mut appends: Vec<(u32, u32)> = Vec::new();
    for (number, call) in (0..).zip(calls) {
        if let LogOperation::Append(_, offset) = call.operation {
            match offset {
                Some(offset) if call.is_certain() => appends.push((offset, number)),
                _ if call.is_certain() => return None,
                _ => {}
            }
        }
    }
    appends.sort_unstable();
    let mut from = vec![0; appends.len()];
    for (place, &(offset, number)) in appends.iter().enumerate() {
        if offset as usize != place {
            return None;
        }
        from[place] = calls[number as usize].call;
    }
    // A slot is filled after the reads that found the log to end before it.
    for call in calls {
        let end = match &call.operation {
            LogOperation::ReadAt(offset, None) => *offset as usize,
            LogOperation::ReadAll(values) => values.len(),
            _ => continue,
        };
        if let Some(from) = from.get_mut(end) {
            *from = call.call.max(*from);
        }
    }
    for place in 1..from.len() {
        from[place] = from[place].max(from[place - 1]);
    }
    // The number of slots that are filled before it, its point, whether it fills the next one.
    let mut order: Vec<(usize, u32, bool, u32)> = Vec::with_capacity(calls.len());
    for (number, call) in (0..).zip(calls.iter()) {
        let filled = |length: usize| length.checked_sub(1).map_or(0, |last| from[last]);
        let begun = from.partition_point(|&point| point < call.call);
        match &call.operation {
            LogOperation::ReadAt(offset, None) => {
                let length = begun.min(*offset as usize);
                order.push((length, call.call, false, number));
            }
            LogOperation::ReadAt(offset, Some(_)) => {
                let length = begun.max(*offset as usize + 1);
                if length > from.len() {
                    return None;
                }
                order.push((length, call.call.max(filled(length)), false, number));
            }
            LogOperation::ReadAll(values) if values.len() <= from.len() => {
                let length = values.len();
                order.push((length, call.call.max(filled(length)), false, number));
            }
            LogOperation::ReadAll(_) => return None,
            LogOperation::Append(..) => {}
        }
    }
    for (place, &(_, number)) in appends.iter().enumerate() {
        order.push((place, from[place], true, number));
    }
    order.sort_unstable_by_key(|&(length, point, fills, _)| (length, fills, point));
    Some(order.into_iter().map(|(.., number)| number).collect())
}

/// Decides a log, if each successful append has an offset that is known: exact, O(n) for the operations and the values read.
///
/// Slots are filled in order. A slot is filled no earlier than the invocation of its append, and of reads that found the log to
/// end before it; and by the first completion of its append and of reads that found it. With each slot filled as early as
/// possible, at the greatest of these invocations so far, each completion must come no earlier. That suffices: a read fits
/// between the slots that it needs and the first one that it must not find.
///
/// Appends of unknown outcome may fill slots of which no value is known. Those slots differ by their deadlines only, the least
/// completion from there on, which rise with the offset; so the appends are dealt out in the order of their invocations.
pub(super) fn decide_offsets(
    calls: &[ModelCall<LogOperation>],
    values: &ValueNumbers,
) -> MonitorDecision<LogOperation> {
    let mut log = LogSlots {
        calls,
        values,
        slots: Vec::new(),
        appends: calls
            .iter()
            .filter(|call| matches!(call.operation, LogOperation::Append(..)))
            .count(),
    };
    match log.decide() {
        Ok(()) => MonitorDecision::Linearizable,
        Err(decision) => decision,
    }
}

struct LogSlots<'a> {
    calls: &'a [ModelCall<LogOperation>],
    values: &'a ValueNumbers,
    slots: Vec<LogSlot>,
    /// Appends of any outcome: the log is never longer.
    appends: usize,
}

type SlotResult<T> = Result<T, MonitorDecision<LogOperation>>;

impl LogSlots<'_> {
    fn decide(&mut self) -> SlotResult<()> {
        for (place, call) in (0..).zip(self.calls) {
            match &call.operation {
                LogOperation::Append(value, Some(at)) => {
                    let slot = self.know(*at, *value, place)?;
                    if slot.append != NONE {
                        let other = slot.append;
                        let reason = format!("Two appends have the offset {at}.");
                        return Err(self.refuted(&[place, other], reason));
                    }
                    slot.append = place;
                    slot.from = slot.from.max((call.call, place));
                    slot.by = slot.by.min((call.ret, place));
                }
                LogOperation::ReadAt(at, Some(value)) if call.is_certain() => {
                    let slot = self.know(*at, *value, place)?;
                    slot.by = slot.by.min((call.ret, place));
                }
                LogOperation::ReadAll(all) if call.is_certain() => {
                    for (at, value) in (0..).zip(all.iter()) {
                        self.know(at, *value, place)?;
                    }
                    if let Some(last) = all.len().checked_sub(1) {
                        let slot = &mut self.slots[last];
                        slot.by = slot.by.min((call.ret, place));
                    }
                }
                _ => {}
            }
        }
        self.note_ends();
        let rest = self.assign_known()?;
        self.fill_gaps(rest)?;
        self.compare()
    }

    /// The slot at an offset, which has this value according to an operation.
    fn know(&mut self, at: u32, value: u32, place: u32) -> SlotResult<&mut LogSlot> {
        if at as usize >= self.appends {
            let reason = format!(
                "There is no offset {at}: the history has {} appends.",
                self.appends
            );
            return Err(self.refuted(&[place], reason));
        }
        if at as usize >= self.slots.len() {
            self.slots.resize(at as usize + 1, EMPTY);
        }
        let known = self.slots[at as usize];
        if known.source != NONE && known.value != value {
            let reason = format!(
                "It has {} at offset {at}, where another operation has {}.",
                self.values.value(value),
                self.values.value(known.value)
            );
            return Err(self.refuted(&[place, known.source], reason));
        }
        let slot = &mut self.slots[at as usize];
        if slot.source == NONE {
            (slot.value, slot.source) = (value, place);
        }
        Ok(slot)
    }

    /// Reads that found the log to end before a slot.
    fn note_ends(&mut self) {
        for (place, call) in (0..).zip(self.calls).filter(|(_, call)| call.is_certain()) {
            let end = match &call.operation {
                LogOperation::ReadAt(at, None) => *at as usize,
                LogOperation::ReadAll(all) => all.len(),
                _ => continue,
            };
            if let Some(slot) = self.slots.get_mut(end) {
                slot.from = slot.from.max((call.call, place));
            }
        }
    }

    /// Finds the appends of slots whose values are known from reads; returns the appends of unknown outcome that are left.
    fn assign_known(&mut self) -> SlotResult<Vec<u32>> {
        // Appends without offset by value; more than one: they cannot be distinguished.
        let mut by_value: FixedMap<u32, (u32, u32)> = FixedMap::default();
        let mut rest = Vec::new();
        for (place, call) in (0..).zip(self.calls) {
            if let LogOperation::Append(value, None) = call.operation {
                rest.push(place);
                let (_, count) = by_value.entry(value).or_insert((place, 0));
                *count += 1;
            }
        }
        for at in 0..self.slots.len() {
            let LogSlot {
                append,
                value,
                source,
                ..
            } = self.slots[at];
            if append != NONE || source == NONE {
                continue;
            }
            match by_value.remove(&value) {
                Some((place, 1)) => {
                    let call = &self.calls[place as usize];
                    let slot = &mut self.slots[at];
                    slot.append = place;
                    slot.from = slot.from.max((call.call, place));
                    slot.by = slot.by.min((call.ret, place));
                }
                Some(_) => {
                    let value = self.values.value(value);
                    return Err(MonitorDecision::Search(format!(
                        "{value} is appended more than once, without offsets"
                    )));
                }
                None => {
                    let value = self.values.value(value);
                    let reason = format!("No append can have put {value} at offset {at}.");
                    return Err(self.refuted(&[source], reason));
                }
            }
        }
        let is_assigned = |place: u32| match self.calls[place as usize].operation {
            LogOperation::Append(value, _) => !by_value.contains_key(&value),
            _ => true,
        };
        rest.retain(|&place| !is_assigned(place));
        if rest
            .iter()
            .any(|&place| self.calls[place as usize].is_certain())
        {
            let reason = "the offset of a successful append is not known";
            return Err(MonitorDecision::Search(reason.into()));
        }
        Ok(rest)
    }

    /// Deals out appends of unknown outcome, in the order of their invocations, to the slots of which nothing is known.
    fn fill_gaps(&mut self, rest: Vec<u32>) -> SlotResult<()> {
        let mut rest = rest.into_iter();
        for at in 0..self.slots.len() {
            if self.slots[at].append != NONE {
                continue;
            }
            let Some(place) = rest.next() else {
                let later = self.slots[at..].iter().find(|slot| slot.source != NONE);
                let source = later.map_or(0, |slot| slot.source);
                let reason = format!("No append can have filled offset {at} before it.");
                return Err(self.refuted(&[source], reason));
            };
            let call = self.calls[place as usize].call;
            let slot = &mut self.slots[at];
            slot.append = place;
            slot.from = slot.from.max((call, place));
        }
        Ok(())
    }

    /// Compares each completion with the greatest invocation so far.
    fn compare(&self) -> SlotResult<()> {
        let mut now = (0, NONE);
        for slot in &self.slots {
            assert!(slot.append != NONE, "each slot has its append");
            now = now.max(slot.from);
            if slot.by.0 < now.0 {
                let reason = "By the offsets another operation must take effect no later, which was invoked after \
                              this one had completed.";
                return Err(self.refuted(&[slot.by.1, now.1], reason.into()));
            }
        }
        Ok(())
    }

    fn refuted(&self, places: &[u32], reason: String) -> MonitorDecision<LogOperation> {
        let calls = places
            .iter()
            .map(|&place| self.calls[place as usize].clone());
        MonitorDecision::Refuted(Refutation {
            calls: calls.collect(),
            reason: Some(reason),
        })
    }
}
