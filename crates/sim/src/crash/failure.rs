//! Minimises a crash state whose check failed, and explains it.

use super::choice::{Choice, Fate, Tear, name_of};
use super::disk_recorder::{DiskOperation, DiskTrace};
use super::explorer::CrashState;
use super::trace_replay::TraceReplay;
use seatrial_machine::counted;
use std::fmt;

/// An unproven assumption of a program about its disk (ALICE's term), derived from the minimal state that it does not recover.
/// Operations are named by number and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vulnerability {
    /// The first operation was lost and the second was not: a sync is missing between them.
    Order {
        /// The operation that must be durable first.
        first: String,
        /// The operation that may only be durable after it.
        then: String,
    },
    /// An operation arrived in part, and recovery read the part as the whole.
    Atomic {
        /// The operation.
        operation: String,
    },
    /// An operation was lost after it had been acknowledged: a sync is missing before the acknowledgement.
    Acknowledged {
        /// The operation that must be durable.
        operation: String,
        /// The number of the acknowledgement, from 0.
        number: usize,
    },
    /// Nothing was lost, and the acknowledged data is not there: the program acknowledged it before writing it.
    Early {
        /// The number of the acknowledgement, from 0.
        number: usize,
        /// The last operation before it; none at the beginning.
        after: Option<String>,
    },
    /// Nothing was lost, and the state between these two operations is not recovered.
    Between {
        /// The last operation before the crash; none at the beginning.
        before: Option<String>,
        /// The next operation; none at the end.
        after: Option<String>,
    },
    /// No simpler explanation: these operations were lost together.
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
            Vulnerability::Acknowledged { operation, number } => {
                write!(
                    f,
                    "{operation} has to be durable before acknowledgement {number}"
                )
            }
            Vulnerability::Early { number, after } => {
                let after = after.as_deref().unwrap_or("nothing at all");
                write!(
                    f,
                    "acknowledgement {number} was made too early, after {after}"
                )
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

/// A state whose check failed. [`DiskTrace::crash`] builds it again from `point` and `choice`.
#[derive(Clone, Debug)]
pub struct CrashFailure {
    /// Number of operations before the crash.
    pub point: usize,
    /// The losses. It is minimal: without any one of them the check passes.
    pub choice: Choice,
    /// The error of the check.
    pub reason: String,
    /// The program's unproven assumption.
    pub vulnerability: Vulnerability,
    /// Number of acknowledgements before the crash.
    pub acknowledged: usize,
    /// The last operation before the crash; none at the beginning.
    pub after: Option<String>,
    /// The losses, one line each.
    pub lost: Vec<String>,
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.reason)?;
        match &self.after {
            Some(after) => write!(f, "  crash at point {}, after {after}", self.point)?,
            None => write!(f, "  crash before the first operation")?,
        }
        writeln!(
            f,
            "; {}",
            counted(self.acknowledged as u64, "earlier acknowledgement")
        )?;
        if self.lost.is_empty() {
            writeln!(f, "  nothing was lost")?;
        }
        for line in &self.lost {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  {}", self.vulnerability)
    }
}

/// Searches for the minimal choice of a point that fails.
struct Minimiser<'a, 'b, P, F> {
    trace: &'a DiskTrace<P>,
    replay: &'b TraceReplay<'a>,
    acknowledged: usize,
    fails: F,
}

impl<P, F: FnMut(&CrashState<'_, P>) -> Option<String>> Minimiser<'_, '_, P, F> {
    fn fails(&mut self, choice: &Choice, acknowledged: usize) -> Option<String> {
        (self.fails)(&self.trace.crash_at(self.replay, choice, acknowledged))
    }

    /// Removes losses one by one, and turns torn writes into lost ones, until each removal makes the check pass.
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
                let reason = self.fails(&less, self.acknowledged)?;
                Some((less, reason))
            });
            match found {
                Some(found) => (choice, reason) = found,
                None => return (choice, reason),
            }
        }
    }

    /// Explains a minimal choice: which operation must be durable before another one, or before an acknowledgement.
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
            let is_new = |it: &usize| self.trace.acknowledged_after[*it] == point;
            if let Some(number) = self.first_acknowledgement(choice).filter(is_new) {
                return Vulnerability::Early {
                    number,
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
        // Lose the kept operations too, newest first, until the check passes: the last one lost is the one that must not be
        // durable before the first.
        let pending = self.replay.pending();
        let mut less = choice.clone();
        let mut kept: Vec<usize> = pending.data.iter().chain(&pending.names).copied().collect();
        kept.retain(|number| !choice.fates.contains_key(number));
        kept.sort_unstable();
        for number in kept.into_iter().rev() {
            less.fates.insert(number, Fate::Lost);
            if self.fails(&less, self.acknowledged).is_none() {
                return Vulnerability::Order {
                    first,
                    then: name(number).unwrap_or_default(),
                };
            }
        }
        for (file, lengths) in &pending.lengths {
            less.lengths.entry(*file).or_insert(lengths[0]);
        }
        if lost.len() == 1 && self.fails(&less, self.acknowledged).is_none() {
            // The failure needs the length without the bytes.
            return Vulnerability::Atomic { operation: first };
        }
        match self.first_acknowledgement(&less) {
            Some(number) => Vulnerability::Acknowledged {
                operation: first,
                number,
            },
            None => Vulnerability::Combination { operations: lost },
        }
    }

    /// The first acknowledgement that makes the check of this choice fail.
    fn first_acknowledgement(&mut self, choice: &Choice) -> Option<usize> {
        let mut acknowledged = self.acknowledged;
        while acknowledged > 0 && self.fails(choice, acknowledged - 1).is_some() {
            acknowledged -= 1;
        }
        acknowledged.checked_sub(1)
    }
}

/// Minimises a failure and explains it.
pub(super) fn explain<P>(
    trace: &DiskTrace<P>,
    replay: &TraceReplay<'_>,
    choice: Choice,
    reason: String,
    fails: impl FnMut(&CrashState<'_, P>) -> Option<String>,
) -> CrashFailure {
    let acknowledged = trace.acknowledged_by(replay.point);
    let mut minimiser = Minimiser {
        trace,
        replay,
        acknowledged,
        fails,
    };
    let (choice, reason) = minimiser.minimise(choice, reason);
    let vulnerability = minimiser.vulnerability(&choice);
    let operations: &[DiskOperation] = &trace.operations;
    let after = replay.point.checked_sub(1);
    CrashFailure {
        point: replay.point,
        reason,
        vulnerability,
        acknowledged,
        after: after.map(|number| format!("{} (operation {number})", operations[number])),
        lost: choice.lines(operations),
        choice,
    }
}
