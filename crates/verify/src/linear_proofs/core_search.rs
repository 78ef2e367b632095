//! The refutation of a core: no order explains the results of its operations.

use super::linear_model::{EndOfCollection, LinearModel, ObjectState, OperationEffect as Effect};
use super::operation_table::{NEVER, OperationTable, OperationValue, RowOutcome};
use super::outside_writes::OutsideWrites;
use crate::certificate::{Certificate, LinearCore};
use crate::verifier::Unproven;
use std::collections::{BTreeMap, BTreeSet};

/// Words of memory that the visited configurations may take together.
const KEPT_MAX: u64 = 1 << 25;

/// An operation of a core.
pub(super) struct CoreMember {
    pub(super) effect: Effect,
    pub(super) call: u32,
    /// [`NEVER`] if it need not take effect.
    pub(super) ret: u32,
}

/// A configuration, but for the time that it was reached at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CoreConfiguration {
    /// All members before this one are done.
    low: u32,
    /// Those after it that are done.
    later: Vec<u32>,
    state: ObjectState,
    /// How many removals of unknown outcome took an element, at each end.
    removals: [u32; 2],
}

/// Checks that these operations of one object have no linearization, whatever the others did.
///
/// The history is cut at `until`. That is sound: up to the last operation that completed by then, a linearization of the
/// whole has only operations that were invoked by then. What the core does not name is not taken to be absent:
///
/// - *Collections.* A linearization stays one if all operations on some elements are left out (the other elements keep
///   their order, and an empty collection stays empty), or peeks. So the core must name every operation of the object that
///   adds or removes one of its elements; removals of unknown outcome may take effect without being named.
/// - *Registers and mutexes.* Each operation that is not named may take effect any number of times between its invocation
///   and its completion ([`OutsideWrites`]), which only allows more.
/// - *Counters, and texts with appends.* The core must name everything but reads.
pub(super) fn refute(
    table: &OperationTable,
    model: LinearModel,
    core: &LinearCore,
    steps_max: u64,
) -> Result<(), Unproven> {
    let search = CoreSearch::new(table, model, core)?;
    search.run(steps_max)
}

/// The places that a core of this object, cut and elements must name.
pub(super) fn required(
    table: &OperationTable,
    model: LinearModel,
    core: &LinearCore,
) -> Result<Vec<u64>, String> {
    let mut search = CoreSearch::empty(table, model);
    let (key, until, elements) = search.scope(core)?;
    let mut missing = Vec::new();
    search.gather((key, until), &BTreeSet::new(), &elements, &mut missing)?;
    missing.dedup();
    Ok(missing)
}

struct CoreSearch<'a> {
    table: &'a OperationTable,
    model: LinearModel,
    /// By invocation.
    members: Vec<CoreMember>,
    /// By end of the collection: invocations of removals of unknown outcome, ascending.
    removals: [Vec<u32>; 2],
    outside: OutsideWrites,
}

/// Which operations of the object a core must name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CoreKind {
    /// Those on its elements.
    Elements,
    /// All but reads.
    Updates,
    Nothing,
}

impl CoreKind {
    /// Of a map's key: without appends.
    fn of(model: LinearModel) -> CoreKind {
        match model {
            LinearModel::Counter => CoreKind::Updates,
            model if model.is_collection() => CoreKind::Elements,
            _ => CoreKind::Nothing,
        }
    }
}

impl<'a> CoreSearch<'a> {
    fn new(
        table: &'a OperationTable,
        model: LinearModel,
        core: &LinearCore,
    ) -> Result<CoreSearch<'a>, String> {
        if core.places.len() > Certificate::CORE_MAX {
            let most = Certificate::CORE_MAX;
            return Err(format!("more than {most} operations are not replayed"));
        }
        let named: BTreeSet<u64> = core.places.iter().copied().collect();
        if named.len() < core.places.len() {
            return Err("the core names an operation twice".into());
        }
        let mut search = CoreSearch::empty(table, model);
        let (key, until, elements) = search.scope(core)?;
        let mut missing = Vec::new();
        let found = search.gather((key, until), &named, &elements, &mut missing)?;
        if let Some(place) = missing.first() {
            return Err(format!("the core must name the operation at {place}"));
        }
        if let Some(place) = named.difference(&found).next() {
            return Err(format!(
                "the operation at {place} is none of the core's object"
            ));
        }
        search.members.sort_by_key(|member| member.call);
        search.outside.end(&search.members, table.value_of("\"\""));
        assert!(
            search.removals.iter().all(|calls| calls.is_sorted()),
            "rows are in order"
        );
        Ok(search)
    }

    fn empty(table: &'a OperationTable, model: LinearModel) -> CoreSearch<'a> {
        CoreSearch {
            table,
            model,
            members: Vec::new(),
            removals: [Vec::new(), Vec::new()],
            outside: OutsideWrites::default(),
        }
    }

    /// The key, the cut, the elements.
    fn scope(&self, core: &LinearCore) -> Result<(u32, u64, BTreeSet<OperationValue>), String> {
        let Some(key) = self.table.key(core.key.as_deref()) else {
            return Err("there is no key of the core's name".into());
        };
        let mut elements = BTreeSet::new();
        for text in &core.elements {
            let element = self.table.value_of(text);
            elements.insert(element.ok_or_else(|| format!("there is no element {text}"))?);
        }
        // Later positions are none.
        Ok((key, core.until.min(u64::from(NEVER) - 1), elements))
    }

    /// Finds the members, and the places that must be named and are not; returns those of all that are named.
    fn gather(
        &mut self,
        (key, until): (u32, u64),
        named: &BTreeSet<u64>,
        elements: &BTreeSet<OperationValue>,
        missing: &mut Vec<u64>,
    ) -> Result<BTreeSet<u64>, String> {
        let (table, model) = (self.table, self.model);
        let rows = table.rows().iter().filter(|row| {
            row.key == key && row.outcome != RowOutcome::Failed && u64::from(row.call()) <= until
        });
        let mut kind = CoreKind::of(model);
        for row in rows.clone() {
            if let Effect::Append(_) = model.effect(table, row)? {
                kind = CoreKind::Updates;
            }
        }
        let mut found = BTreeSet::new();
        for row in rows {
            let effect = model.effect(table, row)?;
            let is_named = named.contains(&u64::from(row.place));
            if is_named {
                found.insert(u64::from(row.place));
            }
            let (is_observer, element) = match effect {
                Effect::Nothing => continue,
                Effect::Take(end, None) => {
                    self.removals[end as usize].push(row.call());
                    continue;
                }
                Effect::Put(_, element) | Effect::Take(_, Some(element)) => {
                    (element == OperationValue::Nil, element)
                }
                Effect::Peek(_, element) => (true, element),
                Effect::Read(_) | Effect::ReadAbsent => (true, OperationValue::Nil),
                _ => (false, OperationValue::Nil),
            };
            if element != OperationValue::Nil && !elements.contains(&element) {
                // A drain that is named has rows of other elements, too.
                if is_named && table.function(row) != "drain" {
                    let place = row.place;
                    return Err(format!(
                        "the operation at {place} is on no element of the core"
                    ));
                }
                continue;
            }
            if !is_named && !is_observer && kind != CoreKind::Nothing {
                missing.push(u64::from(row.place));
                continue;
            }
            let is_cut = u64::from(row.ret()) > until;
            let ret = if is_cut { NEVER } else { row.ret() };
            let call = row.call();
            match is_named {
                // Observations that need not take place say nothing.
                true if is_observer && ret == NEVER => {}
                true => self.members.push(CoreMember { effect, call, ret }),
                false if is_observer => {}
                // Its own completion, also after the cut.
                false => self.outside.add(effect, call, row.ret()),
            }
        }
        Ok(found)
    }

    /// Looks for an order, depth first; there must be none.
    fn run(&self, steps_max: u64) -> Result<(), Unproven> {
        let mut seen: BTreeMap<CoreConfiguration, u32> = BTreeMap::new();
        let start = CoreConfiguration {
            low: 0,
            later: Vec::new(),
            state: ObjectState::new(self.model),
            removals: [0; 2],
        };
        let mut stack = vec![(start, 0)];
        let (mut steps, mut kept) = (0, 0);
        while let Some((configuration, now)) = stack.pop() {
            let size = configuration.state.size() + configuration.later.len() as u64 + 8;
            steps += size;
            // An earlier time allows more.
            if seen.get(&configuration).is_some_and(|&known| known <= now) {
                continue;
            }
            kept += size;
            seen.insert(configuration.clone(), now);
            if steps > steps_max || kept > KEPT_MAX {
                return Err(Unproven::Unsettled {
                    steps: steps.min(steps_max),
                });
            }
            let Some(limit) = self.limit(&configuration) else {
                return Err("the operations of the core have an order".to_owned().into());
            };
            let first = stack.len();
            self.expand(&configuration, now, limit, &mut stack);
            steps += size * (stack.len() - first) as u64;
        }
        Ok(())
    }

    /// The members that are not done.
    fn open<'c>(
        &'c self,
        configuration: &'c CoreConfiguration,
    ) -> impl Iterator<Item = (u32, &'c CoreMember)> {
        let low = configuration.low;
        let mut later = configuration.later.iter().copied().peekable();
        let members = (low..).zip(&self.members[low as usize..]);
        members.filter(move |&(number, _)| later.next_if_eq(&number).is_none())
    }

    /// The first completion of a member that must still take effect: none may be invoked later that takes effect before it.
    fn limit(&self, configuration: &CoreConfiguration) -> Option<u32> {
        let open = self.open(configuration).map(|(_, member)| member.ret);
        open.min().filter(|&ret| ret != NEVER)
    }

    fn expand(
        &self,
        configuration: &CoreConfiguration,
        now: u32,
        limit: u32,
        stack: &mut Vec<(CoreConfiguration, u32)>,
    ) {
        let open = self.open(configuration);
        let open: Vec<_> = open
            .take_while(|(_, member)| member.call <= limit)
            .collect();
        // A possible observation can take place at once if that delays nothing.
        let is_at_once = |member: &CoreMember| member.call <= now || self.outside.is_empty();
        let observation = open.iter().find(|(_, member)| {
            let is_observer = matches!(
                member.effect,
                Effect::Read(_)
                    | Effect::ReadAbsent
                    | Effect::Peek(..)
                    | Effect::Take(_, Some(OperationValue::Nil))
            );
            is_observer
                && is_at_once(member)
                && configuration.state.clone().apply(self.table, member.effect)
        });
        if let Some(&(number, member)) = observation {
            let next = done(configuration, number, configuration.state.clone());
            stack.push((next, now.max(member.call)));
            return;
        }
        for &(number, member) in &open {
            // Of equal operations the one that completes first.
            let is_later = open.iter().any(|&(other, it)| {
                it.effect == member.effect
                    && is_at_once(it)
                    && (it.ret, other) < (member.ret, number)
            });
            let mut state = configuration.state.clone();
            if !is_later && state.apply(self.table, member.effect) {
                let next = done(configuration, number, state);
                stack.push((next, now.max(member.call)));
            }
        }
        for end in [EndOfCollection::Front, EndOfCollection::Back] {
            let used = configuration.removals[end as usize];
            let call = self.removals[end as usize].get(used as usize);
            if call.is_some_and(|&call| call <= limit) {
                self.expand_removal(configuration, end, now, stack);
            }
        }
        if self.outside.is_empty() {
            return;
        }
        let value = match configuration.state {
            ObjectState::Value(value) => value,
            // A map's key without appends is a register that nothing compares with.
            _ => OperationValue::Nil,
        };
        for (value, then) in self.outside.moves(value, now, limit) {
            let mut next = configuration.clone();
            let write = match self.model {
                LinearModel::KeyValue => Effect::Replace(value),
                _ => Effect::Write(value),
            };
            next.state.apply(self.table, write);
            stack.push((next, then));
        }
    }

    /// A removal of unknown outcome takes an element.
    fn expand_removal(
        &self,
        configuration: &CoreConfiguration,
        end: EndOfCollection,
        now: u32,
        stack: &mut Vec<(CoreConfiguration, u32)>,
    ) {
        let mut elements = configuration.state.elements();
        if self.model != LinearModel::Bag {
            elements = vec![configuration.state.next(end)];
        }
        for element in elements {
            let mut next = configuration.clone();
            next.removals[end as usize] += 1;
            if element != OperationValue::Nil
                && next
                    .state
                    .apply(self.table, Effect::Take(end, Some(element)))
            {
                stack.push((next, now));
            }
        }
    }
}

/// The configuration after a member.
fn done(configuration: &CoreConfiguration, number: u32, state: ObjectState) -> CoreConfiguration {
    let mut next = CoreConfiguration {
        state,
        ..configuration.clone()
    };
    let place = next.later.partition_point(|&other| other < number);
    next.later.insert(place, number);
    let passed = next.later.iter().zip(next.low..);
    let passed = passed.take_while(|&(&done, low)| done == low).count();
    next.later.drain(..passed);
    next.low += passed as u32;
    next
}
