//! PRAM and causal memory: does each session have an order of all writes that explains its own reads?

use crate::happens_before::{
    CausalClocks, ExplainedEdge, KeyWriters, OrderReason, SessionOrder, shortest_path,
};
use seatrial_cycles::Csr;
use seatrial_history::FixedMap;
use std::collections::BTreeMap;

/// Steps of all views together, about one for each read and each session that it is compared with; beyond, the verdict is
/// unknown.
const STEPS_MAX: u64 = 20_000_000_000;

/// Decides for each session whether there is an order of all writes and its own reads in which each of these returns the last
/// write of its key, and which follows a known order of operations: that of sessions (PRAM: Lipton and Sandberg 1988), or that
/// of sessions and reads, closed (causal memory: Ahamad and others 1995, CM of Bouajjani and others 2017).
///
/// The decision is a saturation (Bouajjani and others 2017, bad patterns WriteHBInitRead and CyclicHB): a write *w'* that
/// comes before a read of another version of its key comes before the write *w* of that version. The least relation closed
/// under this rule has no cycle if and only if there is such an order.
///
/// Loop: the reads of a session are visited in its order. Of each other session a *prefix* is in view: the operations that come
/// before the current read. A read extends the prefixes by its write (and what that write knew). The last write of its key in
/// each prefix comes before the write that it returned; earlier ones follow by the order of sessions, and those that an
/// earlier read of the key met, by the version that it returned, so only prefixes that grew since then are looked at. If *w* had
/// come into view at an earlier read than *w'*, then *w'* belongs into view with *w*, and the session is visited once more.
/// Edges that agree with one common topological order (a linearization, if there is one) cannot be part of a cycle; only a
/// session with another edge gets a graph of its own.
///
/// Time O(n log n) for PRAM and O(n·k) for causal memory, with k sessions, where views need no second visit and no graph; each
/// graph takes O(n), each visit repeats its session. Memory O(n), and the clocks of causal memory.
pub(crate) struct SessionViews<'p> {
    program: &'p SessionOrder<'p>,
    writers: KeyWriters,
    /// By operation: its place in the topological order of sessions and reads; empty if that is cyclic.
    ranks: Vec<u32>,
    /// For causal memory.
    clocks: Option<CausalClocks>,
    steps: u64,
}

/// Why a session has no order.
pub(crate) struct ViewViolation {
    pub(crate) session: u32,
    /// A cycle of operations: the last one comes before the first one.
    pub(crate) cycle: Vec<ExplainedEdge>,
}

/// The bound that ended the decision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ViewBound(pub(crate) &'static str);

/// The view of one session at the read that is visited.
struct SessionView {
    /// By session: operations in view.
    known: Vec<u32>,
    /// By session: (operations in view, place of the read that brought them), rising.
    growth: Vec<Vec<(u32, u32)>>,
    /// Sessions whose prefix grew, in order.
    log: Vec<u32>,
    /// By key: the writer that the last read returned, and the length of the log then.
    last_reads: FixedMap<u32, (u32, usize)>,
    /// By write, as (session, place): writes that must be in view with it.
    together: BTreeMap<(u32, u32), Vec<u32>>,
    /// Pairs of writes in order, and the read that forces it.
    forced: Vec<(u32, u32, u32)>,
    /// Reads of the initial state with a write of the key in view.
    initial: Vec<(u32, u32)>,
    /// Sessions with a prefix in view, to clear them.
    touched: Vec<u32>,
}

impl SessionView {
    fn new(sessions: usize) -> SessionView {
        SessionView {
            known: vec![0; sessions],
            growth: vec![Vec::new(); sessions],
            log: Vec::new(),
            last_reads: FixedMap::default(),
            together: BTreeMap::new(),
            forced: Vec::new(),
            initial: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Empties the view, except for the writes that belong together.
    fn restart(&mut self) {
        for session in self.touched.drain(..) {
            self.known[session as usize] = 0;
            self.growth[session as usize].clear();
        }
        self.log.clear();
        self.last_reads.clear();
        self.forced.clear();
        self.initial.clear();
    }

    /// The place of the read that brought this operation of another session into view.
    fn since(&self, session: u32, place: u32) -> Option<u32> {
        let growth = &self.growth[session as usize];
        let at = growth.partition_point(|&(known, _)| known <= place);
        growth.get(at).map(|&(_, since)| since)
    }
}

impl<'p> SessionViews<'p> {
    /// For PRAM (`clocks` is `None`) or causal memory; `order` is a topological order of sessions and reads, empty if there is
    /// none.
    pub(crate) fn new(
        program: &'p SessionOrder<'p>,
        order: &[u32],
        clocks: Option<CausalClocks>,
    ) -> SessionViews<'p> {
        let mut ranks = vec![0; order.len()];
        for (rank, &action) in order.iter().enumerate() {
            ranks[action as usize] = rank as u32;
        }
        assert!(
            clocks.is_none() || !ranks.is_empty() || program.history.actions.is_empty(),
            "clocks need an order"
        );
        SessionViews {
            program,
            writers: KeyWriters::new(program),
            ranks,
            clocks,
            steps: 0,
        }
    }

    /// Calls `take` for each session that has no order; the error is the bound that was reached.
    pub(crate) fn decide(mut self, mut take: impl FnMut(ViewViolation)) -> Result<(), ViewBound> {
        let mut view = SessionView::new(self.program.sessions.row_count());
        for session in self.program.sessions.row_numbers() {
            view.together.clear();
            loop {
                view.restart();
                self.visit(session, &mut view);
                if self.steps > STEPS_MAX {
                    return Err(ViewBound("too many steps"));
                }
                if !self.bring_together(session, &mut view) {
                    break;
                }
            }
            if let Some(cycle) = self.cycle(session, &view) {
                take(ViewViolation { session, cycle });
            }
        }
        Ok(())
    }

    /// Visits the reads of a session.
    fn visit(&mut self, session: u32, view: &mut SessionView) {
        let program = self.program;
        for (&number, place) in program.sessions.row(session).iter().zip(0..) {
            // What belongs together with an own write comes into view with it.
            self.extend_by_own(session, place, view);
            let action = &program.history.actions[number as usize];
            if action.read().is_none() {
                continue;
            }
            let Some(source) = program.history.source(number) else {
                self.visit_initial(number, place, view);
                continue;
            };
            self.bring(source, session, place, view);
            self.force(number, source, place, view);
        }
    }

    fn extend_by_own(&mut self, session: u32, place: u32, view: &mut SessionView) {
        let Some(together) = view.together.get(&(session, place)) else {
            return;
        };
        for write in together.clone() {
            self.bring(write, session, place, view);
        }
    }

    /// Brings a write into view, with what comes before it and what belongs together with that.
    fn bring(&mut self, write: u32, own: u32, at: u32, view: &mut SessionView) {
        let mut pending = vec![write];
        while let Some(write) = pending.pop() {
            let (session, place) = (
                self.program.session(write),
                self.program.places[write as usize],
            );
            if session != own && view.known[session as usize] > place {
                continue;
            }
            self.grow(session, place + 1, own, at, view, &mut pending);
            if let Some(clocks) = &self.clocks {
                let row = clocks.row(write).to_vec();
                self.steps += row.len() as u64;
                for (session, known) in (0..).zip(row) {
                    self.grow(session, known, own, at, view, &mut pending);
                }
            }
        }
    }

    /// Extends the prefix of a session to `known` operations.
    fn grow(
        &mut self,
        session: u32,
        known: u32,
        own: u32,
        at: u32,
        view: &mut SessionView,
        pending: &mut Vec<u32>,
    ) {
        let before = view.known[session as usize];
        if session == own || before >= known {
            // An operation of its own that came later is found as a cycle in the end.
            return;
        }
        self.steps += 1;
        if before == 0 {
            view.touched.push(session);
        }
        view.known[session as usize] = known;
        view.growth[session as usize].push((known, at));
        view.log.push(session);
        if !view.together.is_empty() {
            let range = view.together.range((session, before)..(session, known));
            pending.extend(range.flat_map(|(_, writes)| writes));
        }
    }

    /// A read of the initial state: no write of the key may be in view.
    fn visit_initial(&mut self, read: u32, place: u32, view: &mut SessionView) {
        let action = &self.program.history.actions[read as usize];
        for &group in self.writers.groups(action.key) {
            self.steps += 1;
            let known = if group.0 == action.session {
                place
            } else {
                view.known[group.0 as usize]
            };
            if let Some(write) = self.writers.last(action.key, group, known) {
                view.initial.push((read, write));
                return;
            }
        }
    }

    /// The writes of the key in view come before the one that was read.
    fn force(&mut self, read: u32, source: u32, place: u32, view: &mut SessionView) {
        let action = self.program.history.actions[read as usize];
        let (key, own) = (action.key, action.session);
        let earlier = view.last_reads.insert(key, (source, view.log.len()));
        let since = earlier.map_or(0, |(_, since)| since);
        if let Some((last, _)) = earlier.filter(|&(last, _)| last != source) {
            view.forced.push((last, source, read));
        }
        let groups = self.writers.groups(key);
        let force = |group: (u32, u32, u32), view: &mut SessionView| {
            let known = if group.0 == own {
                place
            } else {
                view.known[group.0 as usize]
            };
            if let Some(write) = self.writers.last(key, group, known)
                && write != source
            {
                view.forced.push((write, source, read));
            }
        };
        if groups.len() <= view.log.len() - since {
            self.steps += groups.len() as u64;
            for &group in groups {
                force(group, view);
            }
            return;
        }
        self.steps += (view.log.len() - since) as u64;
        let grown = view.log[since..].to_vec();
        for session in grown.into_iter().chain([own]) {
            if let Some(group) = self.writers.group(key, session) {
                force(group, view);
            }
        }
    }

    /// Adds the writes that must have come into view earlier, because a write that comes later did; false if there are none.
    fn bring_together(&self, own: u32, view: &mut SessionView) -> bool {
        let program = self.program;
        // Of the session's own operations all before a read are in view.
        let since = |write: u32| {
            let (session, place) = (program.session(write), program.places[write as usize]);
            if session == own {
                return Some(place);
            }
            view.since(session, place)
        };
        let mut new = Vec::new();
        for &(before, after, _) in &view.forced {
            let (Some(first), Some(second)) = (since(before), since(after)) else {
                continue;
            };
            // An own write cannot come into view earlier: that is a cycle.
            if first > second && program.session(before) != own {
                new.push((after, before));
            }
        }
        let mut is_new = false;
        for (after, before) in new {
            let at = (program.session(after), program.places[after as usize]);
            let together = view.together.entry(at).or_default();
            if !together.contains(&before) {
                together.push(before);
                is_new = true;
            }
        }
        is_new
    }

    /// A cycle in the view of a session, if there is one.
    fn cycle(&mut self, session: u32, view: &SessionView) -> Option<Vec<ExplainedEdge>> {
        let agrees = |&(before, after, _): &(u32, u32, u32)| {
            let ranks = &self.ranks;
            !ranks.is_empty() && ranks[before as usize] < ranks[after as usize]
        };
        let is_causal = self.clocks.is_some();
        // Without a common order, reads of the session may come before what they returned.
        if view.initial.is_empty() && !self.ranks.is_empty() && view.forced.iter().all(agrees) {
            return None;
        }
        self.steps += self.program.history.actions.len() as u64;
        ViewGraph::new(self.program, session, view, is_causal).cycle(view)
    }
}

/// The relation of one session's view as a graph.
struct ViewGraph<'p> {
    program: &'p SessionOrder<'p>,
    session: u32,
    is_causal: bool,
    /// By operation: the forced successors, and the reads that force them.
    forced: Csr<(u32, u32)>,
}

impl<'p> ViewGraph<'p> {
    fn new(
        program: &'p SessionOrder<'p>,
        session: u32,
        view: &SessionView,
        is_causal: bool,
    ) -> ViewGraph<'p> {
        let forced = view.forced.iter();
        let forced = forced.map(|&(before, after, read)| (before, (after, read)));
        ViewGraph {
            program,
            session,
            is_causal,
            forced: Csr::group(program.history.actions.len(), forced),
        }
    }

    /// Calls `take` for each edge from an operation.
    fn each_edge(&self, from: u32, take: &mut dyn FnMut(u32, OrderReason)) {
        if let Some(next) = self.program.after(from) {
            take(next, OrderReason::Process);
        }
        for &reader in self.program.readers_of(from) {
            if self.is_causal || self.program.session(reader) == self.session {
                take(reader, OrderReason::Reads);
            }
        }
        for &(after, read) in self.forced.row(from) {
            take(after, OrderReason::Seen(read));
        }
    }

    /// A cycle, as short as one through its first edge can be.
    fn cycle(&self, view: &SessionView) -> Option<Vec<ExplainedEdge>> {
        if let Some(&(read, write)) = view.initial.first() {
            // The write is in view because of edges of this graph.
            let path = self.path(write, read);
            debug_assert!(path.is_some(), "a write is in view for no reason");
            let mut cycle = path.unwrap_or_else(|| vec![(write, OrderReason::Seen(read), read)]);
            cycle.push((read, OrderReason::Initial, write));
            return Some(cycle);
        }
        let count = self.program.history.actions.len();
        let mut waits = vec![0u32; count];
        for from in 0..count as u32 {
            self.each_edge(from, &mut |to, _| waits[to as usize] += 1);
        }
        let mut ready: Vec<u32> = (0..count as u32)
            .filter(|&action| waits[action as usize] == 0)
            .collect();
        while let Some(from) = ready.pop() {
            self.each_edge(from, &mut |to, _| {
                waits[to as usize] -= 1;
                if waits[to as usize] == 0 {
                    ready.push(to);
                }
            });
        }
        let is_left = |action: u32| waits[action as usize] > 0;
        let edges = view.forced.iter().copied();
        for (before, after, read) in edges.filter(|&(one, other, _)| is_left(one) && is_left(other))
        {
            if let Some(mut cycle) = self.path(after, before) {
                cycle.push((before, OrderReason::Seen(read), after));
                return Some(cycle);
            }
        }
        // A cycle of sessions and reads alone.
        let start = (0..count as u32).filter(|&action| is_left(action));
        for start in start {
            let Some(before) = self.program.history.source(start) else {
                continue;
            };
            if let Some(mut cycle) = self.path(start, before) {
                cycle.push((before, OrderReason::Reads, start));
                return Some(cycle);
            }
        }
        None
    }

    fn path(&self, from: u32, to: u32) -> Option<Vec<ExplainedEdge>> {
        shortest_path(from, to, |at, take| self.each_edge(at, take))
    }
}
