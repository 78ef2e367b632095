//! Operations on the further data types that have no linearization.

use super::further_types::{EffectReader, FurtherEffect, FurtherState, FurtherType, SetChange};
use super::operation_table::{NEVER, OperationTable, RowOutcome};
use crate::certificate::{Certificate, LinearCore};
use crate::verifier::Unproven;
use std::collections::{BTreeMap, BTreeSet};

use FurtherEffect as Effect;

/// Words of memory that the configurations may take together.
const KEPT_MAX: u64 = 1 << 25;

/// Checks that these operations of one object have no linearization, whatever the others did.
///
/// The history is cut at `until`: a linearization of the whole has, up to the last operation that completed by then, only
/// operations that were invoked by then. What the core does not name is not taken to be absent:
///
/// - An operation that it does not name may take effect any number of times between its invocation and its completion, which
///   only allows more. One that changes nothing is left out.
/// - *Sets and registers.* All operations are projected to the elements, or registers, of the core: a linearization of the
///   whole is one of each projection.
/// - *Logs.* Unless the core names all appends, any values may be appended between its operations. So of the log there are
///   known only a least length, and the values at offsets that the core names.
///
/// Loop: the configurations after each event (the state, and which open operations of the core took effect) are closed under
/// the steps of what is open; at a completion of the core those remain in which it took effect. None may remain in the end.
pub(super) fn refute(
    table: &OperationTable,
    kind: &FurtherType,
    core: &LinearCore,
    steps_max: u64,
) -> Result<(), Unproven> {
    if core.places.len() > Certificate::CORE_MAX {
        let most = Certificate::CORE_MAX;
        return Err(format!("more than {most} operations are not replayed").into());
    }
    let part = FurtherCorePart::gather(table, kind, core)?;
    let mut frontier = Frontier {
        kind,
        part: &part,
        configurations: BTreeSet::from([(Vec::new(), part.initial.clone())]),
        open: Vec::new(),
        outside: BTreeMap::new(),
        is_closed: false,
        steps: 0,
        steps_max,
    };
    for &(_, is_return, member) in &part.events {
        if frontier.event(is_return, member)? {
            return Ok(());
        }
    }
    Err("the operations of the core have an order".to_owned().into())
}

/// The operations of the core and those beside them.
struct FurtherCorePart {
    initial: FurtherState,
    /// Those of the core first.
    effects: Vec<Effect>,
    /// Number of operations of the core.
    named: usize,
    /// Position, whether it is a completion, number of the effect. At equal positions invocations come first.
    events: Vec<(u32, bool, usize)>,
    /// Of a log: what the core says about the values at offsets.
    mentions: BTreeMap<u32, BTreeSet<u32>>,
}

impl FurtherCorePart {
    fn gather(
        table: &OperationTable,
        kind: &FurtherType,
        core: &LinearCore,
    ) -> Result<FurtherCorePart, String> {
        let Some(key) = table.key(core.key.as_deref()) else {
            return Err("there is no key of the core's name".into());
        };
        let until = core.until.min(u64::from(NEVER) - 1);
        let mut reader = EffectReader::new(table, kind);
        let elements = core.elements.iter().map(|text| reader.number_of_text(text));
        let elements: BTreeSet<u32> = elements.collect();
        let places: BTreeSet<u64> = core.places.iter().copied().collect();
        if places.len() < core.places.len() {
            return Err("the core names an operation twice".into());
        }
        let mut found = BTreeSet::new();
        let (mut named, mut outside) = (Vec::new(), Vec::new());
        for row in table.rows() {
            let place = u64::from(row.place);
            let is_member = row.key == key && row.outcome != RowOutcome::Failed;
            if !is_member || u64::from(row.call()) > until {
                continue;
            }
            let effect = projected(reader.effect(row)?, &elements);
            let is_cut = u64::from(row.ret()) > until;
            let ret = if is_cut { NEVER } else { row.ret() };
            let member = (effect, row.call(), ret);
            if places.contains(&place) {
                found.insert(place);
                named.push(member);
            } else {
                outside.push(member);
            }
        }
        if let Some(place) = places.difference(&found).next() {
            return Err(format!(
                "the operation at {place} is none of the core's object"
            ));
        }
        // Observations that need not take place say nothing.
        named.retain(|(effect, _, ret)| *ret != NEVER || !is_observer(effect));
        outside.retain(|(effect, ..)| !is_observer(effect));
        let initial = match kind {
            FurtherType::AppendLog if !outside.is_empty() => {
                outside.clear();
                FurtherState::PartOfLog(0, BTreeMap::new())
            }
            kind => kind.initial(),
        };
        let mut part = FurtherCorePart {
            initial,
            named: named.len(),
            mentions: BTreeMap::new(),
            effects: Vec::new(),
            events: Vec::new(),
        };
        for (effect, call, ret) in named.into_iter().chain(outside) {
            let number = part.effects.len();
            part.events.push((call, false, number));
            if ret != NEVER {
                part.events.push((ret, true, number));
            }
            part.mention(&effect);
            part.effects.push(effect);
        }
        part.events.sort_unstable();
        Ok(part)
    }

    /// Notes what an operation on a log says about values at offsets.
    fn mention(&mut self, effect: &Effect) {
        let mut add = |offset: u32, value: u32| {
            self.mentions.entry(offset).or_default().insert(value);
        };
        match effect {
            Effect::Append(value, Some(offset)) | Effect::ReadAt(offset, Some(value)) => {
                add(*offset, *value);
            }
            Effect::ReadLog(values) => {
                for (offset, &value) in (0..).zip(values) {
                    add(offset, value);
                }
            }
            _ => {}
        }
    }

    /// The least offset, from `length` on, of which the core says nothing or that it has this value.
    fn offset(&self, length: u32, value: u32) -> u32 {
        let mut offset = length;
        for (&mentioned, values) in self.mentions.range(length..) {
            if mentioned > offset || values.contains(&value) {
                break;
            }
            offset += 1;
        }
        offset
    }

    /// Applies an effect to what is known of a log.
    fn apply_to_log(
        &self,
        length: &mut u32,
        known: &mut BTreeMap<u32, u32>,
        effect: &Effect,
    ) -> bool {
        let mut holds = |offset: u32, value: u32| *known.entry(offset).or_insert(value) == value;
        match effect {
            Effect::Append(value, offset) => {
                let offset = offset.unwrap_or_else(|| self.offset(*length, *value));
                let is_after = offset >= *length;
                *length = offset.saturating_add(1);
                is_after && holds(offset, *value)
            }
            Effect::ReadAt(offset, None) => *length <= *offset,
            Effect::ReadAt(offset, Some(value)) => {
                *length = offset.saturating_add(1).max(*length);
                holds(*offset, *value)
            }
            Effect::ReadLog(values) => {
                let is_long_enough = *length as usize <= values.len();
                *length = values.len() as u32;
                is_long_enough
                    && (0..)
                        .zip(values)
                        .all(|(offset, &value)| holds(offset, value))
            }
            _ => false,
        }
    }
}

/// Does it change no state?
fn is_observer(effect: &Effect) -> bool {
    match effect {
        Effect::Nothing
        | Effect::ReadSet(_)
        | Effect::ReadAt(..)
        | Effect::ReadLog(_)
        | Effect::Set(SetChange::Present | SetChange::Absent, _) => true,
        Effect::Registers(accesses) => accesses.iter().all(|&(_, _, is_write)| !is_write),
        _ => false,
    }
}

/// What an operation does to these elements of a set, or registers.
fn projected(effect: Effect, elements: &BTreeSet<u32>) -> Effect {
    match effect {
        Effect::Set(_, element) if !elements.contains(&element) => Effect::Nothing,
        Effect::ReadSet(all) => Effect::ReadSet(all.intersection(elements).copied().collect()),
        Effect::Registers(mut accesses) => {
            accesses.retain(|(register, ..)| elements.contains(register));
            Effect::Registers(accesses)
        }
        effect => effect,
    }
}

/// The open operations of the core that took effect, and the state.
type FurtherConfiguration = (Vec<usize>, FurtherState);

struct Frontier<'a> {
    kind: &'a FurtherType,
    part: &'a FurtherCorePart,
    configurations: BTreeSet<FurtherConfiguration>,
    /// Operations of the core that are open, ascending.
    open: Vec<usize>,
    /// The effects of other open operations, and how many have each.
    outside: BTreeMap<&'a Effect, u32>,
    /// Are the configurations closed under the steps of what is open?
    is_closed: bool,
    steps: u64,
    steps_max: u64,
}

impl Frontier<'_> {
    /// The next event. True if no configuration remains.
    fn event(&mut self, is_return: bool, member: usize) -> Result<bool, Unproven> {
        let effect = &self.part.effects[member];
        let is_named = member < self.part.named;
        if !is_return {
            if is_named {
                let place = self.open.partition_point(|&open| open < member);
                self.open.insert(place, member);
                self.is_closed = false;
            } else {
                let count = self.outside.entry(effect).or_default();
                *count += 1;
                self.is_closed &= *count > 1;
            }
            return Ok(false);
        }
        self.close()?;
        if !is_named {
            if let Some(count) = self.outside.get_mut(effect) {
                *count -= 1;
                if *count == 0 {
                    self.outside.remove(effect);
                }
            }
            return Ok(false);
        }
        self.open.retain(|&open| open != member);
        let all = std::mem::take(&mut self.configurations);
        for (mut done, state) in all {
            if let Ok(place) = done.binary_search(&member) {
                done.remove(place);
                self.configurations.insert((done, state));
            }
        }
        Ok(self.configurations.is_empty())
    }

    /// Adds all configurations to which steps of what is open lead.
    fn close(&mut self) -> Result<(), Unproven> {
        if self.is_closed {
            return Ok(());
        }
        let mut left: Vec<FurtherConfiguration> = self.configurations.iter().cloned().collect();
        while let Some((done, state)) = left.pop() {
            let mut nexts = Vec::new();
            for &member in &self.open {
                if let Err(place) = done.binary_search(&member)
                    && let Some(next) = self.step(&state, &self.part.effects[member])
                {
                    let mut done = done.clone();
                    done.insert(place, member);
                    nexts.push((done, next));
                }
            }
            for effect in self.outside.keys() {
                if let Some(next) = self.step(&state, effect) {
                    nexts.push((done.clone(), next));
                }
            }
            self.steps += 1 + (self.open.len() + self.outside.len()) as u64;
            for next in nexts {
                if self.configurations.insert(next.clone()) {
                    left.push(next);
                }
            }
            let kept = self.configurations.len() as u64 * (self.open.len() as u64 + 8);
            if self.steps > self.steps_max || kept > KEPT_MAX {
                let steps = self.steps.min(self.steps_max);
                return Err(Unproven::Unsettled { steps });
            }
        }
        self.is_closed = true;
        Ok(())
    }

    /// The state after an effect, if it is possible.
    fn step(&self, state: &FurtherState, effect: &Effect) -> Option<FurtherState> {
        let mut next = state.clone();
        let is_possible = match &mut next {
            FurtherState::PartOfLog(length, known) => self.part.apply_to_log(length, known, effect),
            next => self.kind.apply(next, effect),
        };
        is_possible.then_some(next)
    }
}
