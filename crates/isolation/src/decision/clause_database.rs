//! Conflict-driven clause learning over pairs of version blocks.

use seatrial_cycles::dense_id;
use std::collections::{BTreeSet, BinaryHeap};

dense_id! {
    /// A clause, by its place in the database.
    pub(super) ClauseId
}

/// Above all levels: the level of a literal that is not false.
const NEVER_FALSE: u32 = u32::MAX;

/// Why a clause holds.
#[derive(Debug)]
enum ClauseOrigin {
    /// At least one literal is true: otherwise there would be a cycle through these transactions.
    Cycle(Vec<u32>),
    /// It follows from these clauses.
    Learned(Vec<ClauseId>),
}

/// A disjunction. The first two literals are watched.
#[derive(Debug)]
struct Clause {
    literals: Vec<u32>,
    origin: ClauseOrigin,
}

/// The state of a variable.
#[derive(Clone, Copy)]
struct SearchVariable {
    level: u32,
    /// The clause that implied it; `None` for a decision.
    reason: Option<ClauseId>,
    activity: f64,
}

/// Above this, all activities are scaled down, so that they stay finite.
const ACTIVITY_MAX: f64 = 1e100;

/// The propositional half of the search: conflict-driven clause learning (Marques-Silva and Sakallah 1999, with the watched
/// literals of Moskewicz and others 2001). Variable v has the literals 2 v (true) and 2 v + 1 (false). Clauses are never
/// deleted, and each keeps its origin, so that an unsatisfiable set can be traced back to transactions.
pub(super) struct ClauseDatabase {
    all: Vec<Clause>,
    /// By literal: the clauses that watch it.
    watches: Vec<Vec<ClauseId>>,
    /// By literal: is it true?
    is_true: Vec<bool>,
    variables: Vec<SearchVariable>,
    /// Literals in the order in which they became true.
    pub(super) trail: Vec<u32>,
    /// By level: the index of its decision in the trail.
    levels: Vec<u32>,
    /// Number of literals of the trail that were propagated.
    propagated: usize,
    /// Variables of conflicts by activity; may contain decided ones, which are skipped when they are taken out.
    hot: BinaryHeap<(u64, u32)>,
    increment: f64,
    /// Number of literals looked at so far.
    pub(super) steps: u64,
}

/// The result of a conflict.
pub(super) enum ConflictResult {
    /// The trail was cut to this length, and one implied literal follows.
    Back(usize),
    /// This clause is false at level 0, so the clauses are unsatisfiable.
    Unsatisfiable(ClauseId),
}

impl Default for ClauseDatabase {
    fn default() -> ClauseDatabase {
        ClauseDatabase {
            all: Vec::new(),
            watches: Vec::new(),
            is_true: Vec::new(),
            variables: Vec::new(),
            trail: Vec::new(),
            levels: Vec::new(),
            propagated: 0,
            hot: BinaryHeap::new(),
            increment: 1.0,
            steps: 0,
        }
    }
}

/// The negation of a literal.
pub(super) fn negated(literal: u32) -> u32 {
    literal ^ 1
}

impl ClauseDatabase {
    /// Adds a variable.
    pub(super) fn variable(&mut self) -> u32 {
        self.variables.push(SearchVariable {
            level: 0,
            reason: None,
            activity: 0.0,
        });
        self.watches.extend([Vec::new(), Vec::new()]);
        self.is_true.extend([false, false]);
        self.variables.len() as u32 - 1
    }

    /// Number of variables.
    pub(super) fn len(&self) -> usize {
        self.variables.len()
    }

    /// Is this literal true?
    pub(super) fn holds(&self, literal: u32) -> bool {
        self.is_true[literal as usize]
    }

    /// Is this variable neither true nor false?
    pub(super) fn is_open(&self, variable: u32) -> bool {
        !self.holds(2 * variable) && !self.holds(2 * variable + 1)
    }

    /// The current level: the number of decisions.
    pub(super) fn level(&self) -> u32 {
        self.levels.len() as u32
    }

    /// Number of clauses.
    pub(super) fn clause_count(&self) -> usize {
        self.all.len()
    }

    /// Adds the clause that one of these literals is true, because otherwise there is a cycle through `transactions`.
    pub(super) fn cycle(&mut self, literals: Vec<u32>, transactions: Vec<u32>) -> ClauseId {
        self.add(literals, ClauseOrigin::Cycle(transactions))
    }

    fn add(&mut self, mut literals: Vec<u32>, origin: ClauseOrigin) -> ClauseId {
        let number = ClauseId::new(self.all.len() as u32);
        // The first two literals are watched: they must be open, or the ones that became false last.
        literals.sort_by_key(|&literal| std::cmp::Reverse(self.age(literal)));
        for &literal in literals.iter().take(2) {
            self.watches[literal as usize].push(number);
        }
        self.steps += literals.len() as u64;
        self.all.push(Clause { literals, origin });
        number
    }

    /// The level at which a literal became false; above all levels if it did not.
    fn age(&self, literal: u32) -> u32 {
        if self.holds(negated(literal)) {
            self.variables[literal as usize / 2].level
        } else {
            NEVER_FALSE
        }
    }

    /// The open literals of a clause; `None` if it is true already.
    pub(super) fn open(&self, clause: ClauseId) -> Option<Vec<u32>> {
        let literals = &self.all[clause.index()].literals;
        let mut open = Vec::new();
        for &literal in literals {
            if self.holds(literal) {
                return None;
            }
            if self.is_open(literal / 2) {
                open.push(literal);
            }
        }
        Some(open)
    }

    /// Makes a literal true, implied by a clause or, on a new level, as a decision.
    pub(super) fn set(&mut self, literal: u32, reason: Option<ClauseId>) {
        if reason.is_none() {
            self.levels.push(self.trail.len() as u32);
        }
        let level = self.level();
        let variable = &mut self.variables[literal as usize / 2];
        variable.level = level;
        variable.reason = reason;
        self.is_true[literal as usize] = true;
        self.trail.push(literal);
    }

    /// Unit propagation. Returns a clause that is false, if there is one.
    pub(super) fn propagate(&mut self) -> Option<ClauseId> {
        while let Some(&literal) = self.trail.get(self.propagated) {
            self.propagated += 1;
            let lost = negated(literal);
            let mut watching = std::mem::take(&mut self.watches[lost as usize]);
            let mut conflict = None;
            watching.retain(|&clause| {
                if conflict.is_some() {
                    return true;
                }
                match self.visit(clause, lost) {
                    Visit::Moved => false,
                    Visit::Stays => true,
                    Visit::Implies(literal) => {
                        self.set(literal, Some(clause));
                        true
                    }
                    Visit::Conflict => {
                        conflict = Some(clause);
                        true
                    }
                }
            });
            let added = std::mem::replace(&mut self.watches[lost as usize], watching);
            self.watches[lost as usize].extend(added);
            if conflict.is_some() {
                return conflict;
            }
        }
        None
    }

    fn visit(&mut self, clause: ClauseId, lost: u32) -> Visit {
        let Clause { literals, .. } = &mut self.all[clause.index()];
        self.steps += 1;
        if literals.len() > 1 && literals[0] == lost {
            literals.swap(0, 1);
        }
        let first = literals[0];
        if self.is_true[first as usize] {
            return Visit::Stays;
        }
        for place in 2..literals.len() {
            self.steps += 1;
            let other = literals[place];
            if !self.is_true[negated(other) as usize] {
                literals.swap(1, place);
                self.watches[other as usize].push(clause);
                return Visit::Moved;
            }
        }
        if self.is_true[negated(first) as usize] {
            Visit::Conflict
        } else {
            Visit::Implies(first)
        }
    }

    /// Undoes all decisions above this level.
    fn back(&mut self, level: u32) {
        let Some(&length) = self.levels.get(level as usize) else {
            return;
        };
        for &literal in &self.trail[length as usize..] {
            self.is_true[literal as usize] = false;
            let variable = literal / 2;
            let activity = self.variables[variable as usize].activity;
            if activity > 0.0 {
                self.hot.push((activity.to_bits(), variable));
            }
        }
        self.trail.truncate(length as usize);
        self.levels.truncate(level as usize);
        self.propagated = self.propagated.min(length as usize);
    }

    /// Learns from a clause that is false: derives the clause of the first unique implication point, undoes decisions down
    /// to the level at which that clause implies a literal, and makes that literal true.
    pub(super) fn learn(&mut self, conflict: ClauseId) -> ConflictResult {
        let literals = &self.all[conflict.index()].literals;
        let levels = literals
            .iter()
            .map(|&literal| self.variables[literal as usize / 2].level);
        let level = levels.max().unwrap_or(0);
        if level == 0 {
            return ConflictResult::Unsatisfiable(conflict);
        }
        self.back(level);
        let (literals, clauses) = self.resolve(conflict, level);
        let back = literals[1..].iter();
        let back = back.map(|&literal| self.variables[literal as usize / 2].level);
        let back = back.max().unwrap_or(0);
        self.back(back);
        let (asserted, length) = (literals[0], self.trail.len());
        let clause = self.add(literals, ClauseOrigin::Learned(clauses));
        self.set(asserted, Some(clause));
        self.increment *= 1.05;
        if self.increment > ACTIVITY_MAX {
            self.calm();
        }
        ConflictResult::Back(length)
    }

    /// Derives the learned clause, its only literal of this level first, and the clauses from which it follows.
    fn resolve(&mut self, conflict: ClauseId, level: u32) -> (Vec<u32>, Vec<ClauseId>) {
        let mut seen = BTreeSet::new();
        // The first literal is known last: any literal holds its place, which is overwritten at the end.
        let (mut learned, mut clauses) = (vec![0], Vec::new());
        let (mut clause, mut pivot) = (conflict, None);
        let (mut pending, mut place) = (0_u32, self.trail.len());
        loop {
            clauses.push(clause);
            for at in 0..self.all[clause.index()].literals.len() {
                let literal = self.all[clause.index()].literals[at];
                let variable = literal / 2;
                if pivot == Some(literal) || !seen.insert(variable) {
                    continue;
                }
                self.steps += 1;
                self.heat(variable);
                let SearchVariable {
                    level: own, reason, ..
                } = self.variables[variable as usize];
                if own == level {
                    pending += 1;
                } else if own > 0 {
                    learned.push(literal);
                } else {
                    clauses.extend(reason);
                }
            }
            // The last literal of this level that took part is the unique implication point.
            loop {
                place -= 1;
                if seen.contains(&(self.trail[place] / 2)) {
                    break;
                }
            }
            let implied = self.trail[place];
            pivot = Some(implied);
            pending -= 1;
            if pending == 0 {
                learned[0] = negated(implied);
                assert!(
                    !learned.iter().any(|&literal| self.holds(literal)),
                    "a learned clause is false before its first literal is made true"
                );
                return (learned, clauses);
            }
            // The decision of the level comes first in the trail, so it is the last one that could be pending.
            let reason = self.variables[implied as usize / 2].reason;
            clause = reason.expect("a literal before the last pending one is implied");
        }
    }

    /// Raises the activity of a variable in a conflict.
    pub(super) fn heat(&mut self, variable: u32) {
        let activity = &mut self.variables[variable as usize].activity;
        *activity += self.increment;
        self.hot.push((activity.to_bits(), variable));
    }

    fn calm(&mut self) {
        self.increment /= ACTIVITY_MAX;
        self.hot.clear();
        for (number, variable) in self.variables.iter_mut().enumerate() {
            variable.activity /= ACTIVITY_MAX;
            if variable.activity > 0.0 {
                self.hot.push((variable.activity.to_bits(), number as u32));
            }
        }
    }

    /// The open variable with the highest activity; `None` if none of those in conflicts is open.
    pub(super) fn hottest(&mut self) -> Option<u32> {
        while let Some((_, variable)) = self.hot.pop() {
            if self.is_open(variable) {
                return Some(variable);
            }
        }
        None
    }

    /// The origins of a clause: transactions of cycles, and the variables of all clauses on the way.
    pub(super) fn core(&self, clause: ClauseId) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let (mut transactions, mut variables) = (BTreeSet::new(), BTreeSet::new());
        let mut seen = BTreeSet::from([clause]);
        let mut waiting = vec![clause];
        while let Some(clause) = waiting.pop() {
            let Clause { literals, origin } = &self.all[clause.index()];
            let mut further = Vec::new();
            match origin {
                ClauseOrigin::Cycle(nodes) => transactions.extend(nodes),
                ClauseOrigin::Learned(clauses) => further.extend(clauses),
            }
            for &literal in literals {
                let variable = literal / 2;
                variables.insert(variable);
                let SearchVariable { level, reason, .. } = self.variables[variable as usize];
                if level == 0 && !self.is_open(variable) {
                    further.extend(reason);
                }
            }
            waiting.extend(further.into_iter().filter(|&clause| seen.insert(clause)));
        }
        (transactions, variables)
    }
}

/// The effect on a clause when a literal that it watches becomes false.
enum Visit {
    /// It watches another literal.
    Moved,
    /// It is true.
    Stays,
    /// This literal is implied.
    Implies(u32),
    /// It is false.
    Conflict,
}
