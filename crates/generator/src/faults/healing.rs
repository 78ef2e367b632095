//! The end of all faults.

use super::FaultOptions;
use super::membership::{Change, Membership, view_of};
use super::operation::fault_operation;
use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, Template, Thread, Tree};
use seatrial_history::Op;
use seatrial_machine::{Fault, FaultKind, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Mends everything that the options can break, whatever was broken: links, disks, paused nodes, clocks, dead nodes, in
/// this order; then it asks for the members and lets those join that are missing, until all are there or it has asked a
/// hundred times.
#[derive(Debug)]
pub struct Healing {
    queue: VecDeque<Fault>,
    membership: Option<Membership>,
    /// Questions about the members that are left.
    questions: u32,
    /// Pause before the next question.
    pause: Duration,
    /// What comes next, and does it ask about the members or change them?
    drawn: Option<(Template, bool)>,
    due: Time,
    /// The time of the last answer of `next`.
    candidate: Time,
    /// A question or a change of the members is under way.
    awaits: bool,
    /// Were all members there when the nodes were asked last?
    is_whole: bool,
}

/// Questions about the members before those that are missing are given up.
const QUESTIONS_MAX: u32 = 100;

impl Healing {
    pub(super) fn new(options: &FaultOptions) -> Healing {
        let changes_members = options.kinds.contains(&FaultKind::Membership);
        let membership = changes_members && options.servers.len() > 1;
        Healing {
            queue: faults(options).into(),
            membership: membership.then(|| Membership::new(&options.servers)),
            questions: QUESTIONS_MAX,
            pause: options.interval / 4,
            drawn: None,
            due: Time::ZERO,
            candidate: Time::ZERO,
            awaits: false,
            is_whole: false,
        }
    }

    /// The next step; `None` when all is done.
    fn draw(&mut self) -> Option<Fault> {
        if let Some(fault) = self.queue.pop_front() {
            return Some(fault);
        }
        let membership = self.membership.as_mut()?;
        loop {
            match membership.mending() {
                Change::Make(fault) => {
                    self.is_whole = false;
                    return Some(fault);
                }
                Change::Ask if self.questions == 0 => return None,
                Change::Ask => {
                    self.questions -= 1;
                    return Some(Fault::View);
                }
                Change::NotYet => self.due = self.candidate + self.pause,
                // A change that was under way before the healing may still come; so look twice.
                Change::Nothing if !self.is_whole => {
                    self.is_whole = true;
                    self.due = self.candidate + self.pause;
                }
                Change::Nothing => return None,
            }
        }
    }
}

/// What mends all that these options can break, but for the members.
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
        if self.awaits {
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
        self.awaits = drawn.is_some_and(|(_, is_of_members)| is_of_members);
    }

    fn update(&mut self, context: &Context, event: &Op) {
        // The invocation of a nemesis has the type of its completion; but then its thread is busy.
        if !self.awaits || event.process.is_client() || !context.is_free(Thread::NEMESIS) {
            return;
        }
        self.awaits = false;
        if let Some(membership) = &mut self.membership {
            match (event.f.as_str(), view_of(&event.value)) {
                ("view", Some(view)) => membership.see(&view),
                // Nobody answers; that is not waited for as long.
                ("view", None) => {
                    self.questions = self.questions.saturating_sub(9);
                    self.due = context.time() + self.pause;
                }
                ("join" | "leave", _) if event.extra.get("error").is_some() => membership.refused(),
                _ => {}
            }
        }
    }

    fn tree(&self) -> Tree {
        Tree::leaf("healing")
    }
}
