//! When each package has its turn.

use super::membership::view_of;
use super::operation::fault_operation;
use super::package::{Packages, Strike};
use super::{FaultOptions, FaultOrder, View};
use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, Template, Thread, Tree};
use seatrial_history::Op;
use seatrial_machine::{Fault, FaultKind, Rng, Time};
use std::collections::VecDeque;

/// Draws faults at random times, in the order that the options ask for. It remembers what it asked for, not what became of
/// it; only who belongs to the system and who leads is asked (the operation `view`), as often as it is needed.
///
/// Its downside: an operation that failed is not tried again before it is drawn again.
#[derive(Debug)]
pub struct FaultSchedule {
    packages: Packages,
    /// One, or one for each kind.
    lanes: Vec<Lane>,
    /// The lane whose operation was answered last.
    winner: usize,
    /// The time of the operation that was answered last.
    candidate: Time,
    /// The nodes were asked, or the members change; nothing is decided before that is answered.
    awaits: bool,
}

/// A stream of faults with gaps of its own.
#[derive(Debug)]
struct Lane {
    kinds: Vec<FaultKind>,
    rng: Rng,
    /// What comes next, one right after the other.
    queue: VecDeque<Fault>,
    /// The first of them as an operation.
    drawn: Option<Template>,
    /// Nothing before this time.
    due: Option<Time>,
    turn: Turn,
    /// The kind for which the nodes were asked something: its turn goes on.
    asked: Option<FaultKind>,
}

/// What a lane does in its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Break or mend, as is drawn.
    Either,
    /// Break something of any kind, and then mend it.
    Break,
    /// Mend all of this kind.
    Mend(FaultKind),
}

/// Turns in a row in which nothing can be done; then there is nothing to be done at all.
const IDLE_TURNS_MAX: u32 = 64;

impl FaultSchedule {
    pub(super) fn new(options: FaultOptions, rng: Rng) -> FaultSchedule {
        let packages = Packages::new(options);
        let options = packages.options();
        let lane = |kinds: Vec<FaultKind>, rng, turn| Lane {
            kinds,
            rng,
            queue: VecDeque::new(),
            drawn: None,
            due: None,
            turn,
            asked: None,
        };
        let kinds = options.kinds.clone();
        let mut lanes = match options.order {
            FaultOrder::Mix => vec![lane(kinds, rng, Turn::Either)],
            FaultOrder::OneAtATime => vec![lane(kinds, rng, Turn::Break)],
            FaultOrder::Interval => {
                let one = |kind: FaultKind| lane(vec![kind], rng.fork(kind.name()), Turn::Either);
                kinds.into_iter().map(one).collect()
            }
        };
        lanes.retain(|lane| !lane.kinds.is_empty());
        FaultSchedule {
            packages,
            lanes,
            winner: 0,
            candidate: Time::ZERO,
            awaits: false,
        }
    }

    /// Fills the lane that is due first, and returns it; `None` when there is nothing to break.
    fn draw(&mut self, now: Time) -> Option<usize> {
        let interval = self.packages.options().interval;
        for lane in &mut self.lanes {
            // The first fault waits too: the system is to be seen whole first.
            if lane.due.is_none() {
                lane.due = Some(now + lane.rng.duration_below(interval * 2));
            }
        }
        for _ in 0..IDLE_TURNS_MAX {
            let (first, lane) = self
                .lanes
                .iter_mut()
                .enumerate()
                .min_by_key(|(_, lane)| lane.due)?;
            if lane.queue.is_empty() {
                lane.take_turn(&mut self.packages);
            }
            if let Some(fault) = lane.queue.front() {
                lane.drawn.get_or_insert_with(|| fault_operation(fault));
                return Some(first);
            }
            let gap = lane.rng.duration_below(interval * 2);
            lane.due = lane.due.map(|due| due.max(now) + gap);
        }
        None
    }
}

impl Lane {
    /// Decides what comes next.
    fn take_turn(&mut self, packages: &mut Packages) {
        let rng = &mut self.rng;
        if let Turn::Mend(kind) = self.turn {
            let strike = packages.mending(kind, true, rng);
            if strike != Strike::Nothing {
                return self.prepare(kind, strike);
            }
            // It was over at once, or all is mended by now: the next one.
            self.turn = Turn::Break;
        }
        let kind = self.asked.take().unwrap_or_else(|| *rng.pick(&self.kinds));
        if self.turn == Turn::Either {
            let strike = packages.either(kind, rng);
            return self.prepare(kind, strike);
        }
        let strike = packages.breaking(kind, rng);
        self.prepare(kind, strike);
        if self.asked.is_none() && !self.queue.is_empty() {
            self.turn = Turn::Mend(kind);
        }
    }

    /// Notes what comes next; a question is no fault yet.
    fn prepare(&mut self, kind: FaultKind, strike: Strike) {
        if let Strike::Faults(faults) = strike {
            self.asked = (faults[..] == [Fault::View]).then_some(kind);
            self.queue = faults.into();
        }
    }
}

impl Generator for FaultSchedule {
    fn next(&mut self, context: &Context) -> Next {
        if self.awaits {
            return Next::Pending;
        }
        let Some(first) = self.draw(context.time()) else {
            return Next::Exhausted;
        };
        self.winner = first;
        let lane = &mut self.lanes[first];
        let mut next = lane.drawn.next(context);
        if let Next::Op(op) = &mut next {
            not_before(op, lane.due.unwrap_or(Time::ZERO));
            self.candidate = time_of(op);
        }
        next
    }

    fn commit(&mut self) {
        let interval = self.packages.options().interval;
        let lane = &mut self.lanes[self.winner];
        lane.drawn = None;
        let fault = lane.queue.pop_front();
        self.awaits = fault
            .as_ref()
            .is_some_and(|fault| fault.kind() == FaultKind::Membership);
        // The rest of a strike follows at once, and what was asked for is decided as soon as it is known.
        if lane.queue.is_empty() && fault != Some(Fault::View) {
            lane.due = Some(self.candidate + lane.rng.duration_below(interval * 2));
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        // The invocation of a nemesis has the type of its completion; but then its thread is busy.
        if !self.awaits || event.process.is_client() || !context.is_free(Thread::NEMESIS) {
            return;
        }
        self.awaits = false;
        match (event.f.as_str(), view_of(&event.value)) {
            ("view", Some(view)) => self.packages.see(&view),
            // Nobody answered: nobody leads, and nobody is seen. The next question has to wait.
            ("view", None) => {
                self.packages.see(&View::default());
                let interval = self.packages.options().interval;
                let lane = &mut self.lanes[self.winner];
                lane.due = Some(context.time() + lane.rng.duration_below(interval * 2));
            }
            ("join" | "leave", _) if event.extra.get("error").is_some() => self.packages.refused(),
            _ => {}
        }
    }

    fn tree(&self) -> Tree {
        let options = self.packages.options();
        let kinds: Vec<&str> = options.kinds.iter().map(|kind| kind.name()).collect();
        Tree::leaf(format!(
            "faults {} every {:?}, {}",
            kinds.join(" "),
            options.interval,
            options.order
        ))
    }
}
