//! Locks.

mod alternation;
mod owners;
#[cfg(test)]
mod tests;

use super::data_type::{DataType, OperationEvent};
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Checker, OnlineChecker, Verdict};
use alternation::Alternation;
use owners::Owners;
use seatrial_history::{History, OpType};

/// The rules of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Acquisitions and releases alternate, by any process: Knossos's `mutex`.
    Mutex,
    /// Only the owner releases it, and no process acquires it twice.
    #[default]
    OwnerAware,
    /// Owner-aware, but the owner may acquire it again, up to a depth, and must release it as often.
    Reentrant,
    /// Owner-aware, and acquisitions come with fences (tokens), each larger than all before.
    Fenced,
    /// Reentrant and fenced: an acquisition by the owner has the fence of its hold, or none.
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
/// With owners no search is needed: an owner certainly holds the lock from the completion of the acquisition to the invocation
/// of the release that ends it, so there is an order exactly when these times are disjoint (the zones of Gibbons and Korach,
/// 1997, with an acquisition and its release as one block) and each owner by itself obeys the rules. Fences are then compared
/// in that order. Without owners (`mutex`) operations of the same kind are interchangeable: an operation that must take effect
/// out of turn needs an open operation of the opposite kind just before it, the one that completes first, and which one that
/// is becomes known as they complete.
///
/// The owner is the process, or the field `:client` of an operation's value; the fence the field `:fence`, or the value
/// when it is an integer; none or -1: the acquisition has none. An operation of unknown outcome may or may not have taken
/// effect: such an acquisition is ignored, such a release ends the hold. What a named client does after it crashed is ignored,
/// and the verdict is then unknown unless there is an anomaly.
///
/// Anomalies: `double-acquire` (it was acquired while another owner, or the same, certainly held it; once for each
/// acquisition), `unheld-release`, `too-deep` (acquired more often than reentrance allows), `stale-fence`; without owners
/// `nonlinearizable`, once for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    discipline: Discipline,
    depth_max: u32,
}

/// Reentrant locks allow two acquisitions, as in Jepsen's tests of Hazelcast.
impl Default for Lock {
    fn default() -> Lock {
        Lock::new(Discipline::default())
    }
}

impl Lock {
    /// A checker of these rules.
    pub const fn new(discipline: Discipline) -> Lock {
        Lock {
            discipline,
            depth_max: 2,
        }
    }

    /// With this many acquisitions by one owner of a reentrant lock before the first release.
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

/// The state of one lock.
#[derive(Default)]
pub(crate) struct LockState {
    acquired: u64,
    released: u64,
    owners: Owners,
    alternation: Alternation,
}

impl DataType for Lock {
    type State = LockState;
    const NAME: &'static str = "lock";
    const FUNCTIONS: &'static [&'static str] = &["acquire", "release"];

    fn model(&self) -> Option<&'static str> {
        Some(self.discipline.name())
    }

    fn apply(&self, state: &mut LockState, event: &OperationEvent<'_>) {
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
            state.alternation.apply(event, is_acquisition);
        } else {
            state.owners.apply(*self, event, is_acquisition);
        }
    }

    fn finish(&self, state: LockState, builder: &mut VerdictBuilder) {
        builder.count("acquired", state.acquired);
        builder.count("released", state.released);
        state.alternation.finish(builder);
        state.owners.finish(builder);
        if state.acquired + state.released == 0 {
            builder.no_evidence("the lock was never acquired");
        }
    }
}

impl Checker for Lock {
    fn name(&self) -> &'static str {
        Lock::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
