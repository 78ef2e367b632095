//! Just-in-time linearization of one register, with all its possible configurations.

use std::collections::{BTreeMap, BTreeSet};

/// Configurations of one object at one completion, at most.
pub(super) const CONFIGURATIONS_MAX: usize = 1 << 13;
/// Operations under way on one object at a time, and operations of unknown outcome that some configurations need, at most each.
const BITS_MAX: u32 = 64;

/// The value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    Nil,
    Int(i64),
    /// A value by its number.
    Word(u32),
}

/// The effect of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CellAction {
    /// Possible only in this state.
    Read(Cell),
    /// Possible always.
    Write(Cell),
    /// Possible only in the first state; leads to the second.
    Cas(Cell, Cell),
}

impl CellAction {
    fn step(self, state: Cell) -> Option<Cell> {
        match self {
            CellAction::Read(value) => (state == value).then_some(state),
            CellAction::Write(value) => Some(value),
            CellAction::Cas(from, to) => (state == from).then_some(to),
        }
    }

    /// The state that it requires.
    fn needs(self) -> Option<Cell> {
        match self {
            CellAction::Read(value) | CellAction::Cas(value, _) => Some(value),
            CellAction::Write(_) => None,
        }
    }

    /// The state that it leads to; `None` for a read.
    fn leads(self) -> Option<Cell> {
        match self {
            CellAction::Read(_) => None,
            CellAction::Write(to) | CellAction::Cas(_, to) => Some(to),
        }
    }
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenOperation {
    /// Position of its invocation.
    pub(super) call: u64,
    /// Position of its completion.
    pub(super) end: u64,
    pub(super) action: CellAction,
}

/// An operation of unknown outcome.
#[derive(Clone, Copy, Debug)]
struct IndeterminateOperation {
    action: CellAction,
    /// Position of its completion `info`, if it has one.
    end: Option<u64>,
    /// Its bit in [`Configuration::used`], once a configuration needs it.
    bit: Option<u32>,
}

/// One possible past: the state, and which operations under way and of unknown outcome have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    state: Cell,
    /// Operations under way that have taken effect.
    done: u64,
    /// Writes under way that may have taken effect or not, whichever is needed: right before another write, where no read could
    /// see them.
    hidden: u64,
    /// Operations of unknown outcome that have taken effect.
    used: u64,
}

impl Configuration {
    /// Can every continuation of the other be a continuation of this one, too?
    fn covers(&self, other: &Configuration) -> bool {
        self.state == other.state
            && self.used & !other.used == 0
            && self.done & !other.done == 0
            && other.hidden & !self.hidden == 0
            && other.done & !self.done & !self.hidden == 0
    }
}

/// An operation that no order can linearize before its completion, and the possible pasts at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refuted {
    /// Invocation and completion.
    pub(super) operation: [u64; 2],
    /// The possible values of the register.
    pub(super) states: Vec<Cell>,
    /// Invocation and completion of operations under way of known outcome.
    pub(super) concurrent: Vec<[u64; 2]>,
    /// Invocation and, if there is one, completion of operations of unknown outcome.
    pub(super) unknown: Vec<(u64, Option<u64>)>,
}

/// Operations of unknown outcome that a counterexample lists.
const UNKNOWN_LISTED_MAX: usize = 8;

/// One register, with all its possible configurations.
///
/// The loop is Lowe's just-in-time linearization ("Testing for Linearizability", 2017, section 5), breadth first: an operation
/// takes effect when a completion requires it, so nothing changes between two completions, and only the operations under way
/// and one small record per configuration are kept. Pruning is that of the search (see `linear::search`): a possible read takes
/// effect at once; of operations with the same action only the one that ends first is tried; one of unknown outcome only when
/// an operation requires the state that it leads to. A write that no read sees is not tried at all: it may have taken effect
/// right before any other write, so when a write takes effect all other writes under way become [`Configuration::hidden`],
/// which stands for all 2^n subsets. Of two configurations one of which covers the other, one is kept.
///
/// Its downside: concurrent compare-and-sets, and concurrent writes each of which has been read, still have one configuration
/// per subset.
pub(super) struct JitLinearizer {
    configurations: Vec<Configuration>,
    /// By bit of [`Configuration::done`].
    open: Vec<OpenOperation>,
    /// The bits in use, and among them those of writes.
    taken: u64,
    writes: u64,
    /// Operations of unknown outcome, by position of the invocation.
    unknown: BTreeMap<u64, IndeterminateOperation>,
    /// Invocations of operations of unknown outcome, by the state that they lead to.
    leading: BTreeMap<Cell, BTreeSet<u64>>,
    /// The bits of [`Configuration::used`] in use.
    needed: u64,
}

/// A configuration that [`JitLinearizer::explore`] has reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Trial {
    configuration: Configuration,
    /// Was the last operation a write on which nothing depends yet? Then another write would hide it.
    bare: bool,
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros());
        word &= word.wrapping_sub(1);
        bit
    })
}

impl JitLinearizer {
    /// A register in this state.
    pub(super) fn new(state: Cell) -> JitLinearizer {
        JitLinearizer {
            configurations: vec![Configuration {
                state,
                done: 0,
                hidden: 0,
                used: 0,
            }],
            open: Vec::new(),
            taken: 0,
            writes: 0,
            unknown: BTreeMap::new(),
            leading: BTreeMap::new(),
            needed: 0,
        }
    }

    /// Is no operation under way?
    pub(super) fn is_quiet(&self) -> bool {
        self.taken == 0
    }

    /// Operations that are kept.
    pub(super) fn held(&self) -> u64 {
        u64::from(self.taken.count_ones()) + self.unknown.len() as u64
    }

    /// Adds an operation that will succeed.
    pub(super) fn begin(&mut self, operation: OpenOperation) -> Result<(), String> {
        let bit = (!self.taken).trailing_zeros();
        if bit >= BITS_MAX {
            return Err(format!("more than {BITS_MAX} operations at a time"));
        }
        self.taken |= 1 << bit;
        if matches!(operation.action, CellAction::Write(_)) {
            self.writes |= 1 << bit;
        }
        match self.open.get_mut(bit as usize) {
            Some(free) => *free = operation,
            None => self.open.push(operation),
        }
        Ok(())
    }

    /// Adds an operation of unknown outcome.
    pub(super) fn begin_unknown(&mut self, call: u64, end: Option<u64>, action: CellAction) {
        if let Some(to) = action.leads() {
            self.leading.entry(to).or_default().insert(call);
            let bit = None;
            self.unknown
                .insert(call, IndeterminateOperation { action, end, bit });
        }
    }

    /// Completes the operation that was invoked at `call`. Returns the counterexample if it cannot have taken effect, and the
    /// number of configurations that were visited.
    pub(super) fn end(&mut self, call: u64) -> Result<(Option<Refuted>, u64), String> {
        let mut taken = bits(self.taken);
        let Some(bit) = taken.find(|&bit| self.open[bit as usize].call == call) else {
            return Ok((None, 0));
        };
        let count = self.configurations.len() as u64;
        if self.taken == 1 << bit && self.step_all(bit) {
            (self.taken, self.writes) = (0, 0);
            return Ok((None, count));
        }
        let (reached, visited) = self.explore(bit)?;
        let count = visited.len() as u64;
        if reached.is_empty() {
            let states = visited.iter().map(|trial| trial.configuration.state);
            let states: BTreeSet<_> = states.collect();
            return Ok((Some(self.refuted(bit, states)), count));
        }
        self.configurations = without_covered(reached);
        assert!(
            !self.configurations.is_empty(),
            "some configuration remains after a completion"
        );
        self.taken &= !(1 << bit);
        self.writes &= !(1 << bit);
        self.settle_unknown();
        Ok((None, count))
    }

    /// The common case: no other operation is under way, and this one is possible in every configuration where it has not taken
    /// effect. Otherwise returns false and changes nothing.
    fn step_all(&mut self, bit: u32) -> bool {
        let action = self.open[bit as usize].action;
        let next = |one: &Configuration| match (one.done, one.hidden) {
            (0, 0) => action.step(one.state),
            (_, 0) => Some(one.state),
            _ => None,
        };
        if !self.configurations.iter().all(|one| next(one).is_some()) {
            return false;
        }
        for one in &mut self.configurations {
            one.state = next(one).unwrap_or(one.state);
            one.done = 0;
        }
        if self.configurations.len() > 1 {
            let all = std::mem::take(&mut self.configurations);
            self.configurations = without_covered(all);
            self.settle_unknown();
        }
        true
    }

    /// Explores until the operation with this bit has taken effect. Returns the configurations where it has, and all that were
    /// visited on the way.
    fn explore(&mut self, bit: u32) -> Result<(Vec<Configuration>, VisitedTrials), String> {
        let (mut reached, mut visited) = (Vec::new(), VisitedTrials::default());
        let start = self.configurations.iter();
        let mut trials: Vec<_> = start
            .map(|&configuration| Trial {
                configuration,
                bare: false,
            })
            .collect();
        while let Some(mut trial) = trials.pop() {
            self.read_all(&mut trial);
            let configuration = &mut trial.configuration;
            let is_done = (configuration.done >> bit) & 1 == 1;
            let is_hidden = (configuration.hidden >> bit) & 1 == 1;
            if is_done || is_hidden {
                let mask = !(1 << bit);
                reached.push(Configuration {
                    done: configuration.done & mask,
                    hidden: configuration.hidden & mask,
                    ..*configuration
                });
            }
            if is_done || !visited.insert(trial) {
                continue;
            }
            if visited.len() + reached.len() > CONFIGURATIONS_MAX {
                return Err(format!(
                    "more than {CONFIGURATIONS_MAX} configurations at a time"
                ));
            }
            self.add_successors(&trial, &mut trials);
            if !self.unknown.is_empty() {
                self.add_unknown_successors(&trial, &mut trials)?;
            }
        }
        Ok((reached, visited))
    }

    /// Linearizes all possible reads: they change no state, so they exclude nothing.
    fn read_all(&self, trial: &mut Trial) {
        let Configuration { state, done, .. } = trial.configuration;
        for bit in bits(self.taken & !done) {
            if self.open[bit as usize].action == CellAction::Read(state) {
                trial.configuration.done |= 1 << bit;
                trial.bare = false;
            }
        }
    }

    /// Adds the successors of a trial by operations of known outcome.
    fn add_successors(&self, trial: &Trial, trials: &mut Vec<Trial>) {
        let Configuration {
            state,
            done,
            hidden,
            used,
        } = trial.configuration;
        let open = self.taken & !done;
        for bit in bits(open) {
            let operation = &self.open[bit as usize];
            if trial.bare && matches!(operation.action, CellAction::Write(_)) {
                continue;
            }
            let Some(next) = operation.action.step(state) else {
                continue;
            };
            let is_first = |at: u32| {
                let other = &self.open[at as usize];
                other.action != operation.action
                    || (hidden >> at) & 1 != (hidden >> bit) & 1
                    || (other.end, other.call) >= (operation.end, operation.call)
            };
            if !bits(open).all(is_first) {
                continue;
            }
            let done = done | 1 << bit;
            let is_write = matches!(operation.action, CellAction::Write(_));
            let hides = if is_write { self.writes } else { 0 };
            trials.push(Trial {
                configuration: Configuration {
                    state: next,
                    done,
                    hidden: (hidden | hides) & !done,
                    used,
                },
                bare: is_write,
            });
        }
    }

    /// Adds the successors by operations of unknown outcome: those that lead, directly or through others, to a state that an open
    /// operation requires.
    fn add_unknown_successors(
        &mut self,
        trial: &Trial,
        trials: &mut Vec<Trial>,
    ) -> Result<(), String> {
        let Configuration {
            state,
            done,
            hidden,
            used,
        } = trial.configuration;
        let open = bits(self.taken & !done);
        let needs = open.filter_map(|bit| self.open[bit as usize].action.needs());
        let mut needed: BTreeSet<Cell> = needs.collect();
        let mut fresh: Vec<_> = needed.iter().copied().collect();
        let mut chosen: BTreeMap<CellAction, u64> = BTreeMap::new();
        while let Some(cell) = fresh.pop() {
            for &call in self.leading.get(&cell).into_iter().flatten() {
                let unknown = &self.unknown[&call];
                if unknown.bit.is_some_and(|bit| (used >> bit) & 1 == 1) {
                    continue;
                }
                if let Some(from) = unknown.action.needs()
                    && needed.insert(from)
                {
                    fresh.push(from);
                }
                let is_blind = matches!(unknown.action, CellAction::Write(_));
                // A write of the current value may still hide other writes.
                let hides = is_blind && self.writes & !done & !hidden != 0;
                let next = unknown.action.step(state);
                let is_new = next.is_some_and(|next| next != state || hides);
                if is_new && !(is_blind && trial.bare) {
                    chosen.entry(unknown.action).or_insert(call);
                }
            }
        }
        for (action, call) in chosen {
            let bit = self.bit_of(call)?;
            let is_write = matches!(action, CellAction::Write(_));
            let hides = if is_write { self.writes & !done } else { 0 };
            trials.extend(action.step(state).map(|state| Trial {
                configuration: Configuration {
                    state,
                    done,
                    hidden: hidden | hides,
                    used: used | 1 << bit,
                },
                bare: true,
            }));
        }
        Ok(())
    }

    /// The bit of an operation of unknown outcome, new if necessary.
    fn bit_of(&mut self, call: u64) -> Result<u32, String> {
        let needed = self.needed;
        let Some(unknown) = self.unknown.get_mut(&call) else {
            return Ok(0);
        };
        if let Some(bit) = unknown.bit {
            return Ok(bit);
        }
        let bit = (!needed).trailing_zeros();
        if bit >= BITS_MAX {
            return Err(format!(
                "more than {BITS_MAX} operations of unknown outcome that may have been needed"
            ));
        }
        unknown.bit = Some(bit);
        self.needed |= 1 << bit;
        Ok(bit)
    }

    /// Removes operations of unknown outcome that took effect in all configurations, and frees the bits of those that did in
    /// none.
    fn settle_unknown(&mut self) {
        if self.needed == 0 {
            return;
        }
        let used = self.configurations.iter().map(|one| one.used);
        let (all, any) = used.fold((u64::MAX, 0), |(all, any), used| (all & used, any | used));
        let settled = self.needed & (all | !any);
        if settled == 0 {
            return;
        }
        for one in &mut self.configurations {
            one.used &= !settled;
        }
        self.needed &= !settled;
        let leading = &mut self.leading;
        self.unknown.retain(|call, unknown| {
            let Some(bit) = unknown.bit.filter(|&bit| (settled >> bit) & 1 == 1) else {
                return true;
            };
            unknown.bit = None;
            if (any >> bit) & 1 == 0 {
                return true;
            }
            if let Some(to) = unknown.action.leads()
                && let Some(calls) = leading.get_mut(&to)
            {
                calls.remove(call);
                if calls.is_empty() {
                    leading.remove(&to);
                }
            }
            false
        });
    }

    fn refuted(&self, bit: u32, states: BTreeSet<Cell>) -> Refuted {
        let both = |bit: u32| {
            let operation = &self.open[bit as usize];
            [operation.call, operation.end]
        };
        let mut concurrent: Vec<_> = bits(self.taken & !(1 << bit)).map(both).collect();
        concurrent.sort_unstable();
        let unknown = self.unknown.iter().take(UNKNOWN_LISTED_MAX);
        Refuted {
            operation: both(bit),
            states: states.into_iter().collect(),
            concurrent,
            unknown: unknown.map(|(&call, one)| (call, one.end)).collect(),
        }
    }
}

/// Configurations that are compared pairwise; of more, only equal ones are removed.
const COMPARED_MAX: usize = 512;

/// Removes configurations that another one covers.
fn without_covered(mut all: Vec<Configuration>) -> Vec<Configuration> {
    if all.len() > COMPARED_MAX {
        all.sort_unstable();
        all.dedup();
        return all;
    }
    let mut kept: Vec<Configuration> = Vec::with_capacity(all.len());
    for one in all {
        if !kept.iter().any(|other| other.covers(&one)) {
            kept.retain(|other| !one.covers(other));
            kept.push(one);
        }
    }
    kept
}

/// Trials that are compared one by one; further ones go to a tree.
const FEW: usize = 32;

/// The visited trials: few in most cases.
#[derive(Default)]
struct VisitedTrials {
    few: Vec<Trial>,
    many: BTreeSet<Trial>,
}

impl VisitedTrials {
    /// Adds a trial; true if it is new.
    fn insert(&mut self, trial: Trial) -> bool {
        if self.few.contains(&trial) || self.many.contains(&trial) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(trial);
        } else {
            self.many.insert(trial);
        }
        true
    }

    fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    fn iter(&self) -> impl Iterator<Item = &Trial> {
        self.few.iter().chain(&self.many)
    }
}
