//! What every check beside a test has in common: an object decides a prefix of its operations, and forgets it.

use crate::explanation::ViolationExcerpt;
use crate::online_verdict::OnlineMethod;
use seatrial_checker::{Checker, Finding};
use seatrial_history::{Key, Op};
use std::collections::BTreeMap;

/// One object while it is recorded.
///
/// It gets the events of the object in order. It decides the operations that no later one can affect, and forgets them; what it
/// holds does not depend on the length of the history. A violation is definite: every beginning of a linearizable history is
/// linearizable. Where it cannot decide, it returns [`WindowEvent::Whole`], and the whole history is checked at its end.
pub(crate) trait ObjectWindow: Send {
    /// Adds an invocation.
    fn begin(&mut self, position: u64, invocation: &Op) -> WindowEvent;

    /// Drops an invocation that had no effect.
    fn fail(&mut self, call: u64) -> WindowEvent;

    /// Adds the completion of the operation that was invoked at `call`; it did not fail.
    fn complete(&mut self, begun: (u64, &Op), completed: (u64, &Op)) -> WindowEvent;

    /// Counts the operations under way, each with the position of its invocation, as of unknown outcome, and checks what is held:
    /// the history has ended before `next`.
    fn finish(&mut self, next: u64, under_way: &[(u64, Op)]) -> WindowEvent;

    /// Is it time for a check?
    fn is_due(&self) -> bool;

    /// Checks what is held, and forgets what no later operation can contradict. All operations before `next` are known.
    fn check(&mut self, next: u64) -> WindowEvent;

    /// Operations, configurations and parts that are held.
    fn held(&self) -> u64;

    /// Counts of what it decided.
    fn figures(&self) -> WindowCounts;
}

/// Counts of one window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowCounts {
    /// Operations that took effect or may have.
    pub(crate) operations: u64,
    /// Those of unknown outcome among them.
    pub(crate) unknown: u64,
    /// Configurations that were visited.
    pub(crate) configurations: u64,
}

/// A data type whose objects are checked in windows.
pub(crate) trait WindowedType: Send {
    /// The window of one object.
    type Window: ObjectWindow;

    /// The checker of whole histories.
    fn checker(&self) -> &dyn Checker;

    /// The window of an object without operations.
    fn window(&self, key: Option<&Key>) -> Self::Window;

    /// The consistency model, as results write it.
    fn consistency_model(&self) -> String;

    /// How windows are decided.
    fn method(&self) -> OnlineMethod;
}

/// What a window came to.
pub(crate) enum WindowEvent {
    Nothing,
    /// The operations at these positions have no order.
    Conflict(Vec<u64>),
    /// The operations on this element have none.
    ElementConflict(Key),
    /// An operation that no order of all operations so far can have.
    Refuted(Box<WindowRefutation>),
    /// The history must be checked as a whole, for this reason.
    Whole(String),
}

/// An operation that no order can have, in words.
pub(crate) struct WindowRefutation {
    /// The positions that the excerpt numbers, ascending.
    pub(crate) positions: Vec<u64>,
    pub(crate) excerpt: ViolationExcerpt,
}

impl WindowRefutation {
    /// The finding; `ops` are the operations at its positions. `None` if one is missing.
    pub(crate) fn finding(&self, ops: &BTreeMap<u64, Op>) -> Option<Finding> {
        let numbered = (0u64..).zip(&self.positions);
        let named = numbered.filter_map(|(number, at)| Some((number, ops.get(at)?.clone())));
        self.excerpt.finding(&named.collect())
    }
}
