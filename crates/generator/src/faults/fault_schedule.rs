//! The schedule of faults: when each package has its turn.

use super::fault_operation::fault_operation;
use super::membership::membership_of;
use super::package::{PackageTurn, Packages};
use super::{FaultOptions, FaultOrder, Membership};
use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, SingleOp, Thread, Tree};
use seatrial_history::Op;
use seatrial_machine::{Fault, FaultKind, Rng, Time};
use std::collections::VecDeque;

/// Draws faults at random times, in the [order](FaultOrder) of the options. It owns one stream, or one for each kind, and
/// always proposes the operation of the stream that is due first.
///
/// It tracks the faults that it requested, not their effects. Only membership and primaries are queried, by the operation
/// `view`, whenever a decision needs them. An operation that failed is not retried before it is drawn again.
#[derive(Debug)]
pub struct FaultSchedule {
    packages: Packages,
    /// One stream, or one for each kind.
    streams: Vec<FaultStream>,
    /// The stream whose operation was returned last.
    chosen: usize,
    /// The time of the operation returned last.
    candidate: Time,
    /// Is a query or a change of the membership open? No decision is made before it completes.
    is_waiting: bool,
}

/// A stream of faults with gaps of its own.
#[derive(Debug)]
struct FaultStream {
    kinds: Vec<FaultKind>,
    rng: Rng,
    /// The operations of the current turn, one right after another.
    queue: VecDeque<Fault>,
    /// The first of them as an operation; kept until it is committed.
    drawn: Option<SingleOp>,
    /// No operation before this time.
    due: Option<Time>,
    turn: Turn,
    /// The kind whose turn continues after a query of the nodes.
    resumes: Option<FaultKind>,
}

/// The action of a stream's next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Inject or heal, at random.
    InjectOrHeal,
    /// Inject a fault of any kind; then heal it.
    Inject,
    /// Heal all faults of this kind.
    Heal(FaultKind),
}

/// Turns in a row that may yield nothing; after these the schedule is exhausted.
const IDLE_TURNS_MAX: u32 = 64;

impl FaultSchedule {
    pub(super) fn new(options: FaultOptions, rng: Rng) -> FaultSchedule {
        let packages = Packages::new(options);
        let options = packages.options();
        let stream = |kinds: Vec<FaultKind>, rng, turn| FaultStream {
            kinds,
            rng,
            queue: VecDeque::new(),
            drawn: None,
            due: None,
            turn,
            resumes: None,
        };
        let kinds = options.kinds.clone();
        let mut streams = match options.order {
            FaultOrder::Mix => vec![stream(kinds, rng, Turn::InjectOrHeal)],
            FaultOrder::OneAtATime => vec![stream(kinds, rng, Turn::Inject)],
            FaultOrder::Interval => {
                // A fork by name: another kind in the list does not change this stream.
                let one =
                    |kind: FaultKind| stream(vec![kind], rng.fork(kind.name()), Turn::InjectOrHeal);
                kinds.into_iter().map(one).collect()
            }
        };
        streams.retain(|stream| !stream.kinds.is_empty());
        FaultSchedule {
            packages,
            streams,
            chosen: 0,
            candidate: Time::ZERO,
            is_waiting: false,
        }
    }

    /// Draws the operation of the stream that is due first, and returns the stream's index; `None` when no fault is
    /// possible.
    fn draw(&mut self, now: Time) -> Option<usize> {
        let interval = self.packages.options().interval;
        for stream in &mut self.streams {
            // The first fault waits too, so that the history begins with a healthy system.
            if stream.due.is_none() {
                stream.due = Some(now + stream.rng.duration_below(interval * 2));
            }
        }
        for _ in 0..IDLE_TURNS_MAX {
            let (first, stream) = self
                .streams
                .iter_mut()
                .enumerate()
                .min_by_key(|(_, stream)| stream.due)?;
            if stream.queue.is_empty() {
                stream.take_turn(&mut self.packages);
            }
            if let Some(fault) = stream.queue.front() {
                stream.drawn.get_or_insert_with(|| fault_operation(fault));
                return Some(first);
            }
            let gap = stream.rng.duration_below(interval * 2);
            stream.due = stream.due.map(|due| due.max(now) + gap);
        }
        None
    }
}

impl FaultStream {
    /// Decides the operations of the next turn.
    fn take_turn(&mut self, packages: &mut Packages) {
        let rng = &mut self.rng;
        if let Turn::Heal(kind) = self.turn {
            let turn = packages.heal(kind, true, rng);
            if turn != PackageTurn::Nothing {
                return self.enqueue(kind, turn);
            }
            // The fault needed no healing, or is healed by now.
            self.turn = Turn::Inject;
        }
        let resumed = self.resumes.take();
        let kind = resumed.unwrap_or_else(|| *rng.pick(&self.kinds));
        if self.turn == Turn::InjectOrHeal {
            let turn = packages.inject_or_heal(kind, rng);
            return self.enqueue(kind, turn);
        }
        let turn = packages.inject(kind, rng);
        self.enqueue(kind, turn);
        if self.resumes.is_none() && !self.queue.is_empty() {
            self.turn = Turn::Heal(kind);
        }
    }

    /// Queues the operations of a turn. A lone query does not end the turn of its kind.
    fn enqueue(&mut self, kind: FaultKind, turn: PackageTurn) {
        debug_assert!(self.queue.is_empty(), "a turn before the end of the last");
        if let PackageTurn::Faults(faults) = turn {
            debug_assert!(!faults.is_empty());
            self.resumes = (faults[..] == [Fault::View]).then_some(kind);
            self.queue = faults.into();
        }
    }
}

impl Generator for FaultSchedule {
    fn next(&mut self, context: &Context) -> Next {
        if self.is_waiting {
            return Next::Pending;
        }
        let Some(first) = self.draw(context.time()) else {
            return Next::Exhausted;
        };
        self.chosen = first;
        let stream = &mut self.streams[first];
        let mut next = stream.drawn.next(context);
        if let Next::Op(op) = &mut next {
            not_before(op, stream.due.unwrap_or(Time::ZERO));
            self.candidate = time_of(op);
        }
        next
    }

    fn commit(&mut self) {
        let interval = self.packages.options().interval;
        let stream = &mut self.streams[self.chosen];
        stream.drawn = None;
        let fault = stream.queue.pop_front();
        self.is_waiting = fault
            .as_ref()
            .is_some_and(|fault| fault.kind() == FaultKind::Membership);
        // No gap within a turn, nor after a query: the decision follows as soon as its answer is known.
        if stream.queue.is_empty() && fault != Some(Fault::View) {
            stream.due = Some(self.candidate + stream.rng.duration_below(interval * 2));
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        // Invocations and completions of the nemesis have the same type; at an invocation its thread is busy.
        if !self.is_waiting || event.process.is_client() || !context.is_free(Thread::NEMESIS) {
            return;
        }
        self.is_waiting = false;
        match (event.f.as_str(), membership_of(&event.value)) {
            ("view", Some(membership)) => self.packages.on_membership(&membership),
            // No node answered: no primary and no member is known, and the next query waits for a gap.
            ("view", None) => {
                self.packages.on_membership(&Membership::default());
                let interval = self.packages.options().interval;
                let stream = &mut self.streams[self.chosen];
                stream.due = Some(context.time() + stream.rng.duration_below(interval * 2));
            }
            ("join" | "leave", _) if event.extra.get("error").is_some() => {
                self.packages.on_refused();
            }
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
