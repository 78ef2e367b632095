//! A crash state that was not recovered, made plain and put in words.

use super::choice::{Choice, Fate, Tear, name_of};
use super::explorer::Crash;
use super::recorder::{Operation, Trace};
use super::replay::Replay;
use seatrial_machine::counted;
use std::fmt;

/// What a program relies on without having made sure of it (ALICE's word), read off the plainest state that it does not
/// recover. Operations are given by number and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vulnerability {
    /// The first was lost and the second was not: a sync is missing between them.
    Order {
        /// What has to be durable first.
        first: String,
        /// What may only be durable then.
        then: String,
    },
    /// An operation was there in part, and recovery took the part for the whole.
    Atomic {
        /// The operation.
        operation: String,
    },
    /// It was lost after it had been promised: a sync is missing between it and the promise.
    Promised {
        /// What has to be durable.
        operation: String,
        /// The number of the promise, from 0.
        promise: usize,
    },
    /// Nothing was lost, and what was promised is not there.
    Early {
        /// The number of the promise, from 0.
        promise: usize,
        /// The last operation before it; none at the beginning.
        after: Option<String>,
    },
    /// Nothing was lost, and what is there between these two is not recovered.
    Between {
        /// The last operation that was done; none at the beginning.
        before: Option<String>,
        /// The next one; none at the end.
        after: Option<String>,
    },
    /// Nothing simpler than this: these operations were lost.
    Combination {
        /// The operations.
        operations: Vec<String>,
    },
}

impl fmt::Display for Vulnerability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Vulnerability::Order { first, then } => {
                write!(f, "{first} has to be durable before {then}")
            }
            Vulnerability::Atomic { operation } => {
                write!(
                    f,
                    "{operation} is not atomic: a part of it is taken for the whole"
                )
            }
            Vulnerability::Promised { operation, promise } => {
                write!(f, "{operation} has to be durable before promise {promise}")
            }
            Vulnerability::Early { promise, after } => {
                let after = after.as_deref().unwrap_or("nothing at all");
                write!(f, "promise {promise} was made too early, after {after}")
            }
            Vulnerability::Between { before, after } => {
                let [before, after] =
                    [before, after].map(|it| it.as_deref().unwrap_or("nothing at all"));
                write!(
                    f,
                    "a crash between {before} and {after} is not recovered from"
                )
            }
            Vulnerability::Combination { operations } => {
                write!(
                    f,
                    "none of these is enough alone: {}",
                    operations.join("; ")
                )
            }
        }
    }
}

/// A state that was not recovered as it should be. [`Trace::crash`] builds it again from `point` and `choice`.
#[derive(Clone, Debug)]
pub struct CrashFailure {
    /// The crash came after so many operations.
    pub point: usize,
    /// What was lost: no part of it can be left out without the failure going away.
    pub choice: Choice,
    /// What the check said.
    pub reason: String,
    /// What the program relies on.
    pub vulnerability: Vulnerability,
    /// Promises made before the crash.
    pub promised: usize,
    /// The last operation before the crash; none at the beginning.
    pub after: Option<String>,
    /// What was lost, one line each.
    pub lost: Vec<String>,
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.reason)?;
        match &self.after {
            Some(after) => write!(f, "  crash at point {}, after {after}", self.point)?,
            None => write!(f, "  crash before the first operation")?,
        }
        writeln!(f, "; {}", counted(self.promised as u64, "earlier promise"))?;
        if self.lost.is_empty() {
            writeln!(f, "  nothing was lost")?;
        }
        for line in &self.lost {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  {}", self.vulnerability)
    }
}

/// Searches for the plainest choice of a point that fails.
struct Minimiser<'a, 'b, P, F> {
    trace: &'a Trace<P>,
    replay: &'b Replay<'a>,
    promised: usize,
    fails: F,
}

impl<P, F: FnMut(&Crash<'_, P>) -> Option<String>> Minimiser<'_, '_, P, F> {
    fn fails(&mut self, choice: &Choice, promised: usize) -> Option<String> {
        (self.fails)(&self.trace.crash_at(self.replay, choice, promised))
    }

    /// Restores what can be restored, and turns torn writes into lost ones.
    fn minimise(&mut self, mut choice: Choice, mut reason: String) -> (Choice, String) {
        loop {
            let mut smaller: Vec<Choice> = Vec::new();
            for file in choice.lengths.keys() {
                let mut less = choice.clone();
                less.lengths.remove(file);
                smaller.push(less);
            }
            for (number, fate) in &choice.fates {
                let mut less = choice.clone();
                less.fates.remove(number);
                smaller.push(less);
                if *fate != Fate::Lost {
                    let mut plainer = choice.clone();
                    plainer.fates.insert(*number, Fate::Lost);
                    smaller.push(plainer);
                }
            }
            let found = smaller.into_iter().find_map(|less| {
                let reason = self.fails(&less, self.promised)?;
                Some((less, reason))
            });
            match found {
                Some(found) => (choice, reason) = found,
                None => return (choice, reason),
            }
        }
    }

    /// Names the operation that has to be durable before another, or before a promise.
    fn vulnerability(&mut self, choice: &Choice) -> Vulnerability {
        let name = |number: usize| {
            let operation = self.trace.operations.get(number)?;
            Some(format!("{operation} (operation {number})"))
        };
        let mut lost: Vec<String> = choice.fates.keys().filter_map(|&it| name(it)).collect();
        for file in choice.lengths.keys() {
            lost.push(format!(
                "the length of {}",
                name_of(&self.trace.operations, *file)
            ));
        }
        let point = self.replay.point;
        let Some(first) = lost.first().cloned() else {
            let before = point.checked_sub(1).and_then(name);
            let is_new = |it: &usize| self.trace.promised_after[*it] == point;
            if let Some(promise) = self.first_promise(choice).filter(is_new) {
                return Vulnerability::Early {
                    promise,
                    after: before,
                };
            }
            return Vulnerability::Between {
                before,
                after: name(point),
            };
        };
        let torn = |fate: &&Fate| matches!(fate, Fate::Torn(Tear { .. }) | Fate::Half);
        if choice.fates.values().find(torn).is_some() && lost.len() == 1 {
            return Vulnerability::Atomic { operation: first };
        }
        // What must be there for it to fail?
        let pending = self.replay.pending();
        let mut less = choice.clone();
        let mut kept: Vec<usize> = pending.data.iter().chain(&pending.names).copied().collect();
        kept.retain(|number| !choice.fates.contains_key(number));
        kept.sort_unstable();
        for number in kept.into_iter().rev() {
            less.fates.insert(number, Fate::Lost);
            if self.fails(&less, self.promised).is_none() {
                return Vulnerability::Order {
                    first,
                    then: name(number).unwrap_or_default(),
                };
            }
        }
        for (file, lengths) in &pending.lengths {
            less.lengths.entry(*file).or_insert(lengths[0]);
        }
        if lost.len() == 1 && self.fails(&less, self.promised).is_none() {
            // It takes the length that came without the bytes.
            return Vulnerability::Atomic { operation: first };
        }
        match self.first_promise(&less) {
            Some(promise) => Vulnerability::Promised {
                operation: first,
                promise,
            },
            None => Vulnerability::Combination { operations: lost },
        }
    }

    /// The promise without which the choice is recovered from.
    fn first_promise(&mut self, choice: &Choice) -> Option<usize> {
        let mut promised = self.promised;
        while promised > 0 && self.fails(choice, promised - 1).is_some() {
            promised -= 1;
        }
        promised.checked_sub(1)
    }
}

/// Makes a failure plain and puts it in words.
pub(super) fn explain<P>(
    trace: &Trace<P>,
    replay: &Replay<'_>,
    choice: Choice,
    reason: String,
    fails: impl FnMut(&Crash<'_, P>) -> Option<String>,
) -> CrashFailure {
    let promised = trace.promised_by(replay.point);
    let mut minimiser = Minimiser {
        trace,
        replay,
        promised,
        fails,
    };
    let (choice, reason) = minimiser.minimise(choice, reason);
    let vulnerability = minimiser.vulnerability(&choice);
    let operations: &[Operation] = &trace.operations;
    let after = replay.point.checked_sub(1);
    CrashFailure {
        point: replay.point,
        reason,
        vulnerability,
        promised,
        after: after.map(|number| format!("{} (operation {number})", operations[number])),
        lost: choice.words(operations),
        choice,
    }
}
