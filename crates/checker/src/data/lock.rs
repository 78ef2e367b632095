//! Locks.

mod alternation;
mod owners;
#[cfg(test)]
mod tests;

use super::judge::{Event, Judge};
use super::outcome::Outcome;
use crate::{Checker, Verdict};
use alternation::Alternation;
use owners::Owners;
use seatrial_history::{History, OpType};

/// What a lock promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Acquisitions and releases take turns, whoever does them: Knossos's `mutex`.
    Mutex,
    /// Only who holds it releases it, and nobody acquires it twice.
    #[default]
    OwnerAware,
    /// The same, but who holds it may acquire it again, up to a depth, and releases it as often.
    Reentrant,
    /// Owner-aware, and acquisitions come with fences (tokens), each larger than all before.
    Fenced,
    /// Reentrant, and fenced: an acquisition by who holds it has the fence that he has, or none.
    ReentrantFenced,
}

impl Discipline {
    /// All of them.
    pub const ALL: [Discipline; 5] = [
        Discipline::Mutex,
        Discipline::OwnerAware,
        Discipline::Reentrant,
        Discipline::Fenced,
        Discipline::ReentrantFenced,
    ];

    /// The name that `--model` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Discipline::Mutex => "mutex",
            Discipline::OwnerAware => "owner-aware",
            Discipline::Reentrant => "reentrant",
            Discipline::Fenced => "fenced",
            Discipline::ReentrantFenced => "reentrant-fenced",
        }
    }

    const fn is_fenced(self) -> bool {
        matches!(self, Discipline::Fenced | Discipline::ReentrantFenced)
    }
}

/// Is there one order of all `acquire`s and `release`s, each between its invocation and its completion, in which the lock
/// keeps its discipline? The question of `mutex` (linearizability, by search), for histories of any length, and with
/// owners: the models of Jepsen's tests of Hazelcast.
///
/// With owners no search is needed: who acquired it certainly holds it from the completion of the acquisition to the
/// invocation of the release that ends it, so there is an order exactly when these times are disjoint (the zones of
/// Gibbons and Korach, 1997, with an acquisition and its release as one block) and each owner by itself keeps to the
/// rules. Fences are then compared in that order. Without owners (`mutex`) operations that do the same are
/// interchangeable: one that has to take place goes before its turn with the help of an opposite one that is open and
/// ends first, and which one that was is decided as they complete.
///
/// The owner is the process, or the field `:client` of an operation's value; the fence the field `:fence`, or the value
/// when it is an integer; none or -1: the acquisition has none. An operation of unknown outcome may have taken place or
/// not: such an acquisition harms nobody, such a release ends the hold. What a named client does after it crashed is
/// passed over, and the verdict is then unknown when nothing else is wrong.
///
/// Anomalies: `double-acquire` (it was acquired while another, or its holder himself, certainly held it; once for each
/// acquisition), `unheld-release`, `too-deep` (acquired more often than reentrance allows), `stale-fence`; without owners
/// `nonlinearizable`, once for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    discipline: Discipline,
    depth_max: u32,
}

/// Two acquisitions deep, if at all, as in those tests.
impl Default for Lock {
    fn default() -> Lock {
        Lock::new(Discipline::default())
    }
}

impl Lock {
    /// The checker that demands this.
    pub const fn new(discipline: Discipline) -> Lock {
        Lock {
            discipline,
            depth_max: 2,
        }
    }

    /// The same, where an owner may acquire the lock so often before he releases it, if at all more than once.
    #[must_use]
    pub const fn depth_max(self, depth_max: u32) -> Lock {
        Lock { depth_max, ..self }
    }

    const fn depth(self) -> u32 {
        match self.discipline {
            Discipline::Reentrant | Discipline::ReentrantFenced => self.depth_max,
            _ => 1,
        }
    }
}

/// What is known of one lock.
#[derive(Default)]
pub(crate) struct State {
    acquired: u64,
    released: u64,
    owners: Owners,
    alternation: Alternation,
}

impl Judge for Lock {
    type State = State;
    const NAME: &'static str = "lock";
    const FUNCTIONS: &'static [&'static str] = &["acquire", "release"];

    fn model(&self) -> Option<&'static str> {
        Some(self.discipline.name())
    }

    fn take(&self, state: &mut State, event: &Event<'_>) {
        let is_acquisition = event.f == "acquire";
        if event.kind == OpType::Ok {
            let count = if is_acquisition {
                &mut state.acquired
            } else {
                &mut state.released
            };
            *count += 1;
        }
        if self.discipline == Discipline::Mutex {
            state.alternation.take(event, is_acquisition);
        } else {
            state.owners.take(*self, event, is_acquisition);
        }
    }

    fn finish(&self, state: State, outcome: &mut Outcome) {
        outcome.count("acquired", state.acquired);
        outcome.count("released", state.released);
        state.alternation.finish(outcome);
        state.owners.finish(outcome);
        if state.acquired + state.released == 0 {
            outcome.silent("the lock was never acquired");
        }
    }
}

impl Checker for Lock {
    fn name(&self) -> &'static str {
        Lock::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
