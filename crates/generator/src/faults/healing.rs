//! Healing of all faults at the end of a test.

use super::FaultOptions;
use super::fault_operation::fault_operation;
use super::membership::{MembershipPlanner, MembershipStep, membership_of};
use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, SingleOp, Thread, Tree};
use seatrial_history::Op;
use seatrial_machine::{Fault, FaultKind, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Heals every fault that the options allow, whether it was injected or not: links first, then for each node its disk,
/// pause, clock and process. Then it queries the membership and lets missing nodes join, until all nodes are members or
/// after `QUERIES_MAX` queries.
#[derive(Debug)]
pub struct Healing {
    queue: VecDeque<Fault>,
    /// `None` when the options do not change the membership.
    membership: Option<MembershipPlanner>,
    /// Membership queries left.
    queries: u32,
    /// Pause before the next query.
    pause: Duration,
    /// The next operation, and whether it queries or changes the membership.
    drawn: Option<(SingleOp, bool)>,
    due: Time,
    /// The time of the operation returned last.
    candidate: Time,
    /// Is a query or a change of the membership open?
    is_waiting: bool,
    /// Were all nodes members in the last report?
    is_whole: bool,
}

/// Membership queries before missing nodes are given up.
const QUERIES_MAX: u32 = 100;

impl Healing {
    pub(super) fn new(options: &FaultOptions) -> Healing {
        let changes_members = options.kinds.contains(&FaultKind::Membership);
        let membership = changes_members && options.servers.len() > 1;
        Healing {
            queue: faults(options).into(),
            membership: membership.then(|| MembershipPlanner::new(&options.servers)),
            queries: QUERIES_MAX,
            pause: options.interval / 4,
            drawn: None,
            due: Time::ZERO,
            candidate: Time::ZERO,
            is_waiting: false,
            is_whole: false,
        }
    }

    /// The next operation; `None` when healing is done.
    fn draw(&mut self) -> Option<Fault> {
        if let Some(fault) = self.queue.pop_front() {
            return Some(fault);
        }
        let membership = self.membership.as_mut()?;
        loop {
            match membership.restore() {
                MembershipStep::Request(fault) => {
                    self.is_whole = false;
                    return Some(fault);
                }
                MembershipStep::Query if self.queries == 0 => return None,
                MembershipStep::Query => {
                    self.queries -= 1;
                    return Some(Fault::View);
                }
                // The report was taken, so the next round of this loop queries.
                MembershipStep::NotYet => self.due = self.candidate + self.pause,
                // A change requested before healing may still take effect, so two reports in a row must be whole.
                MembershipStep::Nothing if !self.is_whole => {
                    self.is_whole = true;
                    self.due = self.candidate + self.pause;
                }
                MembershipStep::Nothing => return None,
            }
        }
    }
}

/// The operations that heal all faults that these options allow, except those of the membership.
fn faults(options: &FaultOptions) -> Vec<Fault> {
    let has = |kind| options.kinds.contains(&kind);
    let mut healing = Vec::new();
    if has(FaultKind::Partition) {
        healing.push(Fault::Heal);
    }
    if has(FaultKind::Packet) {
        healing.push(Fault::Calm);
    }
    for &node in &options.servers {
        if has(FaultKind::Disk) {
            healing.push(Fault::MendDisk(node));
        }
        if has(FaultKind::Pause) {
            healing.push(Fault::Resume(node));
        }
        if has(FaultKind::Clock) {
            healing.push(Fault::right_clock(node));
        }
        if has(FaultKind::Kill) || has(FaultKind::Disk) || has(FaultKind::Corruption) {
            healing.push(Fault::Restart(node));
        }
    }
    healing
}

impl Generator for Healing {
    fn next(&mut self, context: &Context) -> Next {
        if self.is_waiting {
            return Next::Pending;
        }
        if self.drawn.is_none() {
            match self.draw() {
                Some(fault) => {
                    let is_of_members = fault.kind() == FaultKind::Membership;
                    self.drawn = Some((fault_operation(&fault), is_of_members));
                }
                None => return Next::Exhausted,
            }
        }
        let Some((drawn, _)) = &mut self.drawn else {
            return Next::Exhausted;
        };
        let mut next = drawn.next(context);
        if let Next::Op(op) = &mut next {
            not_before(op, self.due);
            self.candidate = time_of(op);
        }
        next
    }

    fn commit(&mut self) {
        let drawn = self.drawn.take();
        self.is_waiting = drawn.is_some_and(|(_, is_of_members)| is_of_members);
    }

    fn update(&mut self, context: &Context, event: &Op) {
        // Invocations and completions of the nemesis have the same type; at an invocation its thread is busy.
        if !self.is_waiting || event.process.is_client() || !context.is_free(Thread::NEMESIS) {
            return;
        }
        self.is_waiting = false;
        if let Some(planner) = &mut self.membership {
            match (event.f.as_str(), membership_of(&event.value)) {
                ("view", Some(membership)) => planner.on_membership(&membership),
                // No node answered. Such a query counts ten times, so a dead system ends healing early.
                ("view", None) => {
                    self.queries = self.queries.saturating_sub(9);
                    self.due = context.time() + self.pause;
                }
                ("join" | "leave", _) if event.extra.get("error").is_some() => planner.on_refused(),
                _ => {}
            }
        }
    }

    fn tree(&self) -> Tree {
        Tree::leaf("healing")
    }
}
