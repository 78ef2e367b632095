//! All configurations that one register may be in.

use std::collections::{BTreeMap, BTreeSet};

/// Configurations of one object at one completion, at most.
pub(super) const CONFIGURATIONS_MAX: usize = 1 << 13;
/// Operations under way on one object at a time, and those of unknown outcome that may or may not have been needed, at most.
const BITS_MAX: u32 = 64;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::linear) enum Cell {
    Nil,
    Int(i64),
    /// A value by its number.
    Word(u32),
}

/// What an operation does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Possible only when it holds this.
    Read(Cell),
    /// Possible always.
    Write(Cell),
    /// Possible only when it holds the first; then it holds the second.
    Cas(Cell, Cell),
}

impl Action {
    fn step(self, state: Cell) -> Option<Cell> {
        match self {
            Action::Read(value) => (state == value).then_some(state),
            Action::Write(value) => Some(value),
            Action::Cas(from, to) => (state == from).then_some(to),
        }
    }

    /// What it needs to find.
    fn needs(self) -> Option<Cell> {
        match self {
            Action::Read(value) | Action::Cas(value, _) => Some(value),
            Action::Write(_) => None,
        }
    }

    /// What it leaves, if that may be something else.
    fn leads(self) -> Option<Cell> {
        match self {
            Action::Read(_) => None,
            Action::Write(to) | Action::Cas(_, to) => Some(to),
        }
    }
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// Where it began.
    pub(super) call: u64,
    /// Where it ended.
    pub(super) end: u64,
    pub(super) action: Action,
}

/// An operation of which nobody knows whether it took place, or will.
#[derive(Clone, Copy, Debug)]
struct Unknown {
    action: Action,
    /// Where its client gave it up.
    end: Option<u64>,
    /// Its bit, when some configurations need it and some do not.
    bit: Option<u32>,
}

/// What may have happened: the state, which of the operations under way have taken place, and which of those of unknown
/// outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    state: Cell,
    /// Operations that have taken place.
    done: u64,
    /// Writes that have taken place or not, as it may be needed: where another write took place, they may have done so right
    /// before, and nobody saw it.
    hidden: u64,
    used: u64,
}

impl Configuration {
    /// Does all that may become of the other become of this one too?
    fn covers(&self, other: &Configuration) -> bool {
        self.state == other.state
            && self.used & !other.used == 0
            && self.done & !other.done == 0
            && other.hidden & !self.hidden == 0
            && other.done & !self.done & !self.hidden == 0
    }
}

/// The operation that no order can place in time, and what it met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refuted {
    /// Invocation and completion.
    pub(super) operation: [u64; 2],
    /// What the register may have held.
    pub(super) states: Vec<Cell>,
    /// Beginning and end of what was under way, of a known outcome.
    pub(super) concurrent: Vec<[u64; 2]>,
    /// The same of unknown outcome; they end where their clients gave them up, if these did.
    pub(super) unknown: Vec<(u64, Option<u64>)>,
}

/// Operations of unknown outcome that are named beside what was refuted.
const UNKNOWN_NAMED_MAX: usize = 8;

/// One register, with everything that may have happened to it.
///
/// Its loop is Lowe's just-in-time linearization ("Testing for Linearizability", 2017, section 5), with all
/// configurations side by side instead of one after another: an operation takes place when a completion demands it, so between
/// two completions nothing happens, and what is kept are the operations under way and one small record a configuration. What
/// need not be tried is what the search need not try (see `linear::search`): a read that is possible takes place at
/// once; of operations that do the same only the one that ends first; one of unknown outcome only when something needs just
/// what it leaves. A write that nobody sees need not be tried at all: it may have taken place right before any other, so
/// where a write takes place all others under way become [`Configuration::hidden`], which stands for all 2^n ways. Of two
/// configurations one of which covers the other, one is kept.
///
/// Its downside: compare-and-sets side by side, and writes side by side each of which has been read, still have
/// configurations for each set of them.
pub(super) struct Lane {
    configurations: Vec<Configuration>,
    /// By bit of [`Configuration::done`].
    flights: Vec<Flight>,
    /// The bits in use, and those of writes.
    taken: u64,
    writes: u64,
    /// By where they began.
    unknown: BTreeMap<u64, Unknown>,
    /// By what they leave.
    leading: BTreeMap<Cell, BTreeSet<u64>>,
    /// The bits of [`Configuration::used`] in use.
    needed: u64,
}

/// A configuration on the way to a completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Trial {
    configuration: Configuration,
    /// Was the last operation a write that nothing depended on yet? Then another write would hide it.
    bare: bool,
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros());
        word &= word.wrapping_sub(1);
        bit
    })
}

impl Lane {
    /// A register that holds this.
    pub(super) fn new(state: Cell) -> Lane {
        Lane {
            configurations: vec![Configuration {
                state,
                done: 0,
                hidden: 0,
                used: 0,
            }],
            flights: Vec::new(),
            taken: 0,
            writes: 0,
            unknown: BTreeMap::new(),
            leading: BTreeMap::new(),
            needed: 0,
        }
    }

    /// Is nothing under way?
    pub(super) fn is_quiet(&self) -> bool {
        self.taken == 0
    }

    /// Operations that it holds.
    pub(super) fn held(&self) -> u64 {
        u64::from(self.taken.count_ones()) + self.unknown.len() as u64
    }

    /// An operation begins that will take place.
    pub(super) fn begin(&mut self, flight: Flight) -> Result<(), String> {
        let bit = (!self.taken).trailing_zeros();
        if bit >= BITS_MAX {
            return Err(format!("more than {BITS_MAX} operations at a time"));
        }
        self.taken |= 1 << bit;
        if matches!(flight.action, Action::Write(_)) {
            self.writes |= 1 << bit;
        }
        match self.flights.get_mut(bit as usize) {
            Some(free) => *free = flight,
            None => self.flights.push(flight),
        }
        Ok(())
    }

    /// An operation begins of which nobody will know whether it took place.
    pub(super) fn begin_unknown(&mut self, call: u64, end: Option<u64>, action: Action) {
        if let Some(to) = action.leads() {
            self.leading.entry(to).or_default().insert(call);
            let bit = None;
            self.unknown.insert(call, Unknown { action, end, bit });
        }
    }

    /// The operation that began there ends. What it met when it cannot have taken place; how many configurations were
    /// looked at.
    pub(super) fn end(&mut self, call: u64) -> Result<(Option<Refuted>, u64), String> {
        let mut taken = bits(self.taken);
        let Some(bit) = taken.find(|&bit| self.flights[bit as usize].call == call) else {
            return Ok((None, 0));
        };
        let count = self.configurations.len() as u64;
        if self.taken == 1 << bit && self.step_all(bit) {
            (self.taken, self.writes) = (0, 0);
            return Ok((None, count));
        }
        let (reached, seen) = self.explore(bit)?;
        let count = seen.len() as u64;
        if reached.is_empty() {
            let states = seen.iter().map(|trial| trial.configuration.state);
            let states: BTreeSet<_> = states.collect();
            return Ok((Some(self.refuted(bit, states)), count));
        }
        self.configurations = least(reached);
        self.taken &= !(1 << bit);
        self.writes &= !(1 << bit);
        self.settle_unknown();
        Ok((None, count))
    }

    /// The common case: nothing else is under way, and it is possible wherever it has not taken place. False (and nothing has
    /// changed) when it is not that simple.
    fn step_all(&mut self, bit: u32) -> bool {
        let action = self.flights[bit as usize].action;
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
            self.configurations = least(all);
            self.settle_unknown();
        }
        true
    }

    /// All configurations in which the operation with this bit has just taken place, or had before; and all that were met on the
    /// way.
    fn explore(&mut self, bit: u32) -> Result<(Vec<Configuration>, Seen), String> {
        let (mut reached, mut seen) = (Vec::new(), Seen::default());
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
            if is_done || !seen.insert(trial) {
                continue;
            }
            if seen.len() + reached.len() > CONFIGURATIONS_MAX {
                return Err(format!(
                    "more than {CONFIGURATIONS_MAX} configurations at a time"
                ));
            }
            self.list(&trial, &mut trials);
            if !self.unknown.is_empty() {
                self.list_unknown(&trial, &mut trials)?;
            }
        }
        Ok((reached, seen))
    }

    /// Reads that are possible take place: they change nothing and hinder nobody.
    fn read_all(&self, trial: &mut Trial) {
        let Configuration { state, done, .. } = trial.configuration;
        for bit in bits(self.taken & !done) {
            if self.flights[bit as usize].action == Action::Read(state) {
                trial.configuration.done |= 1 << bit;
                trial.bare = false;
            }
        }
    }

    /// Adds what may come next, of the operations that took place.
    fn list(&self, trial: &Trial, trials: &mut Vec<Trial>) {
        let Configuration {
            state,
            done,
            hidden,
            used,
        } = trial.configuration;
        let open = self.taken & !done;
        for bit in bits(open) {
            let flight = &self.flights[bit as usize];
            if trial.bare && matches!(flight.action, Action::Write(_)) {
                continue;
            }
            let Some(next) = flight.action.step(state) else {
                continue;
            };
            let is_first = |at: u32| {
                let other = &self.flights[at as usize];
                other.action != flight.action
                    || (hidden >> at) & 1 != (hidden >> bit) & 1
                    || (other.end, other.call) >= (flight.end, flight.call)
            };
            if !bits(open).all(is_first) {
                continue;
            }
            let done = done | 1 << bit;
            let is_write = matches!(flight.action, Action::Write(_));
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

    /// The same of those that may have taken place: those that leave what something needs, at one remove or more.
    fn list_unknown(&mut self, trial: &Trial, trials: &mut Vec<Trial>) -> Result<(), String> {
        let Configuration {
            state,
            done,
            hidden,
            used,
        } = trial.configuration;
        let open = bits(self.taken & !done);
        let needs = open.filter_map(|bit| self.flights[bit as usize].action.needs());
        let mut needed: BTreeSet<Cell> = needs.collect();
        let mut fresh: Vec<_> = needed.iter().copied().collect();
        let mut chosen: BTreeMap<Action, u64> = BTreeMap::new();
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
                let is_blind = matches!(unknown.action, Action::Write(_));
                // One that leaves what is there already may still hide others.
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
            let is_write = matches!(action, Action::Write(_));
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

    /// The bit of an operation of unknown outcome, a new one if need be.
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

    /// Forgets those of unknown outcome that took place in all configurations, and the bits of those that did in none.
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
            let flight = &self.flights[bit as usize];
            [flight.call, flight.end]
        };
        let mut concurrent: Vec<_> = bits(self.taken & !(1 << bit)).map(both).collect();
        concurrent.sort_unstable();
        let unknown = self.unknown.iter().take(UNKNOWN_NAMED_MAX);
        Refuted {
            operation: both(bit),
            states: states.into_iter().collect(),
            concurrent,
            unknown: unknown.map(|(&call, one)| (call, one.end)).collect(),
        }
    }
}

/// Configurations that are compared each with each; of more, equal ones are found.
const COMPARED_MAX: usize = 512;

/// Without those that another covers.
fn least(mut all: Vec<Configuration>) -> Vec<Configuration> {
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

/// Trials that are compared one by one; more are sorted.
const FEW: usize = 32;

/// What has been tried: mostly few.
#[derive(Default)]
struct Seen {
    few: Vec<Trial>,
    many: BTreeSet<Trial>,
}

impl Seen {
    /// Adds one; whether it is new.
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
