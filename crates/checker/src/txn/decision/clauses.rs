//! Clauses, what follows from them, and what is learned from conflicts.

use crate::txn::transactions::NONE;
use std::collections::{BTreeSet, BinaryHeap};

/// Why a clause holds.
#[derive(Debug)]
enum Origin {
    /// The literals cannot all be false: there would be a cycle through these transactions.
    Cycle(Vec<u32>),
    /// It follows from these clauses.
    Clauses(Vec<u32>),
}

/// A disjunction. The first two literals are watched.
#[derive(Debug)]
struct Clause {
    literals: Vec<u32>,
    origin: Origin,
}

/// What is known of a variable.
#[derive(Clone, Copy)]
struct Variable {
    level: u32,
    /// The clause that it follows from; [`NONE`] of a decision.
    reason: u32,
    activity: f64,
}

/// Activities above this are made smaller.
const ACTIVITY_MAX: f64 = 1e100;

/// The propositional half of the search: conflict-driven clause learning (Marques-Silva and Sakallah 1999, with the watched
/// literals of Moskewicz and others 2001). Variable v has the literals 2 v (true) and 2 v + 1 (false). Clauses are kept for ever
/// with their origins, so that what makes all impossible can be told.
pub(super) struct Clauses {
    all: Vec<Clause>,
    /// By literal: clauses that watch it.
    watches: Vec<Vec<u32>>,
    /// By literal: is it true?
    is_true: Vec<bool>,
    variables: Vec<Variable>,
    /// Literals in the order in which they became true.
    pub(super) trail: Vec<u32>,
    /// Where each level's decision stands in the trail.
    levels: Vec<u32>,
    /// Literals of the trail whose clauses have been looked at.
    propagated: usize,
    /// Variables of conflicts, by activity; those that are decided already among them.
    hot: BinaryHeap<(u64, u32)>,
    increment: f64,
    /// Literals looked at so far.
    pub(super) steps: u64,
}

/// What became of a conflict.
pub(super) enum Learned {
    /// Back to so many literals of the trail, one more follows.
    Back(usize),
    /// This clause can never hold.
    Impossible(u32),
}

impl Default for Clauses {
    fn default() -> Clauses {
        Clauses {
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

/// The opposite.
pub(super) fn negated(literal: u32) -> u32 {
    literal ^ 1
}

impl Clauses {
    /// One more variable.
    pub(super) fn variable(&mut self) -> u32 {
        self.variables.push(Variable {
            level: 0,
            reason: NONE,
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

    /// Is it true?
    pub(super) fn holds(&self, literal: u32) -> bool {
        self.is_true[literal as usize]
    }

    /// Is it neither true nor false?
    pub(super) fn is_open(&self, variable: u32) -> bool {
        !self.holds(2 * variable) && !self.holds(2 * variable + 1)
    }

    /// The level of decisions.
    pub(super) fn level(&self) -> u32 {
        self.levels.len() as u32
    }

    /// Number of clauses.
    pub(super) fn clause_count(&self) -> usize {
        self.all.len()
    }

    /// Adds the clause that at least one of these literals holds, because of a cycle through `transactions`.
    pub(super) fn cycle(&mut self, literals: Vec<u32>, transactions: Vec<u32>) -> u32 {
        self.add(literals, Origin::Cycle(transactions))
    }

    fn add(&mut self, mut literals: Vec<u32>, origin: Origin) -> u32 {
        let number = self.all.len() as u32;
        // What is open or became false last is watched.
        literals.sort_by_key(|&literal| std::cmp::Reverse(self.age(literal)));
        for &literal in literals.iter().take(2) {
            self.watches[literal as usize].push(number);
        }
        self.steps += literals.len() as u64;
        self.all.push(Clause { literals, origin });
        number
    }

    /// The level at which a literal became false; above all levels while it is not.
    fn age(&self, literal: u32) -> u32 {
        if self.holds(negated(literal)) {
            self.variables[literal as usize / 2].level
        } else {
            NONE
        }
    }

    /// Open literals of a clause; `None` when it holds already.
    pub(super) fn open(&self, clause: u32) -> Option<Vec<u32>> {
        let literals = &self.all[clause as usize].literals;
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

    /// Makes a literal true for a clause or, on a level of its own, for no reason.
    pub(super) fn set(&mut self, literal: u32, reason: Option<u32>) {
        if reason.is_none() {
            self.levels.push(self.trail.len() as u32);
        }
        let level = self.level();
        let variable = &mut self.variables[literal as usize / 2];
        variable.level = level;
        variable.reason = reason.unwrap_or(NONE);
        self.is_true[literal as usize] = true;
        self.trail.push(literal);
    }

    /// Follows what became true through the clauses; the answer is a clause that cannot hold.
    pub(super) fn propagate(&mut self) -> Option<u32> {
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
                    Visit::Follows(literal) => {
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

    fn visit(&mut self, clause: u32, lost: u32) -> Visit {
        let Clause { literals, .. } = &mut self.all[clause as usize];
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
            Visit::Follows(first)
        }
    }

    /// Goes back to this level.
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

    /// Learns from a clause all of whose literals are false: a clause that would have told so earlier (the first unique
    /// implication point), goes back to where it tells something new, and makes that true.
    pub(super) fn learn(&mut self, conflict: u32) -> Learned {
        let literals = &self.all[conflict as usize].literals;
        let levels = literals
            .iter()
            .map(|&literal| self.variables[literal as usize / 2].level);
        let level = levels.max().unwrap_or(0);
        if level == 0 {
            return Learned::Impossible(conflict);
        }
        self.back(level);
        let (literals, clauses) = self.resolve(conflict, level);
        let back = literals[1..].iter();
        let back = back.map(|&literal| self.variables[literal as usize / 2].level);
        let back = back.max().unwrap_or(0);
        self.back(back);
        let (asserted, length) = (literals[0], self.trail.len());
        let clause = self.add(literals, Origin::Clauses(clauses));
        self.set(asserted, Some(clause));
        self.increment *= 1.05;
        if self.increment > ACTIVITY_MAX {
            self.calm();
        }
        Learned::Back(length)
    }

    /// The learned clause, its only literal of this level first, and the clauses that it follows from.
    fn resolve(&mut self, conflict: u32, level: u32) -> (Vec<u32>, Vec<u32>) {
        let mut seen = BTreeSet::new();
        let (mut learned, mut clauses) = (vec![NONE], Vec::new());
        let (mut clause, mut pivot) = (conflict, NONE);
        let (mut pending, mut place) = (0_u32, self.trail.len());
        loop {
            clauses.push(clause);
            for at in 0..self.all[clause as usize].literals.len() {
                let literal = self.all[clause as usize].literals[at];
                let variable = literal / 2;
                if literal == pivot || !seen.insert(variable) {
                    continue;
                }
                self.steps += 1;
                self.heat(variable);
                let Variable {
                    level: own, reason, ..
                } = self.variables[variable as usize];
                if own == level {
                    pending += 1;
                } else if own > 0 {
                    learned.push(literal);
                } else {
                    clauses.push(reason);
                }
            }
            // The last of this level that took part.
            loop {
                place -= 1;
                if seen.contains(&(self.trail[place] / 2)) {
                    break;
                }
            }
            pivot = self.trail[place];
            pending -= 1;
            if pending == 0 {
                learned[0] = negated(pivot);
                return (learned, clauses);
            }
            clause = self.variables[pivot as usize / 2].reason;
        }
    }

    /// A variable takes part in a conflict.
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

    /// The open variable that took most part in conflicts of late, if any is open that took part.
    pub(super) fn hottest(&mut self) -> Option<u32> {
        while let Some((_, variable)) = self.hot.pop() {
            if self.is_open(variable) {
                return Some(variable);
            }
        }
        None
    }

    /// What the clause follows from in the end: transactions of cycles, and variables.
    pub(super) fn core(&self, clause: u32) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let (mut transactions, mut variables) = (BTreeSet::new(), BTreeSet::new());
        let mut seen = BTreeSet::from([clause]);
        let mut waiting = vec![clause];
        while let Some(clause) = waiting.pop() {
            let Clause { literals, origin } = &self.all[clause as usize];
            let mut further = Vec::new();
            match origin {
                Origin::Cycle(nodes) => transactions.extend(nodes),
                Origin::Clauses(clauses) => further.extend(clauses),
            }
            for &literal in literals {
                let variable = literal / 2;
                variables.insert(variable);
                let Variable { level, reason, .. } = self.variables[variable as usize];
                if level == 0 && reason != NONE && !self.is_open(variable) {
                    further.push(reason);
                }
            }
            waiting.extend(
                further
                    .into_iter()
                    .filter(|&clause| clause != NONE && seen.insert(clause)),
            );
        }
        (transactions, variables)
    }
}

/// What a clause says when a literal that it watches is lost.
enum Visit {
    /// It watches another now.
    Moved,
    /// It holds.
    Stays,
    /// Only this literal is left.
    Follows(u32),
    /// None is left.
    Conflict,
}
