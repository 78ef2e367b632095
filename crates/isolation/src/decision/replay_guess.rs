//! A guess of the version order, by replaying transactions on a store.

use super::known_order::KnownOrder;
use super::order_model::Axiom;
use super::relation::{predecessors, successors};
use seatrial_cycles::{Csr, Txn};
use seatrial_history::FixedMap;
use std::collections::BTreeSet;

/// How often the replay may return to the same write because of a guess.
const FLIPS_MAX: u32 = 1;
/// Steps per node of one round: after the first number nothing more is undone, after the second the replay stops.
const STEPS_RETURNING: u64 = 20;
const STEPS_MAX: u64 = 40;
/// Largest number of rounds. Another round follows only if the last one ignored less than this fraction of the needs that
/// the one before ignored.
const ROUNDS_MAX: u32 = 4;
const PROGRESS: (u64, u64) = (7, 8);

/// The result of a replay.
pub(super) enum ReplayResult {
    /// Blocks of each key in the order in which they were written, and the place of each node.
    Order { heads: Csr<u32>, places: Vec<u32> },
    /// No order explains these transactions.
    Refuted(BTreeSet<u32>),
    /// The replay reached its bound.
    Stopped,
}

/// Which write came too early, if an event waits for itself over several needs that are not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlameRule {
    /// The one with the latest deadline compared with that of the waiting write: good if deadlines are precise.
    Deadline,
    /// The one that took place last: good if nearly everything is concurrent.
    Latest,
}

/// The reason why an event waits for another one.
#[derive(Clone, Copy, Debug)]
enum EventNeed {
    /// The other one comes first by a known edge.
    KnownOrder(u32),
    /// The other one comes first by this learned edge.
    LearnedOrder { event: u32, edge: u32 },
    /// The other one reads a version that this one would overwrite, or is an unfinished write of the same key. That depends
    /// on `writer` having come before the transaction of the waiting event; without a writer, on the initial state, which does.
    Data { event: u32, writer: Option<Txn> },
}

impl EventNeed {
    fn event(self) -> u32 {
        match self {
            EventNeed::KnownOrder(event)
            | EventNeed::LearnedOrder { event, .. }
            | EventNeed::Data { event, .. } => event,
        }
    }
}

/// A learned order of two writers of a key.
struct LearnedEdge {
    from: u32,
    to: u32,
    /// The transactions and learned edges from which it follows; `None` for a guess.
    reason: Option<(Vec<u32>, Vec<u32>)>,
}

/// Executes the events one by one on a store with one current version per key.
///
/// Events are executed on demand: the transaction with the earliest deadline first, and before it what it needs: its known
/// predecessors, and readers of the versions that it overwrites. So nothing is executed before it must be. If an event needs
/// itself, some write came too early. If only one need on that cycle depends on the order of two writers, the opposite order
/// follows from known edges, and is learned for good with its reason. If several do, the opposite of one is guessed. In both
/// cases events are undone back to that write (backjumping, Gaschnig 1977). A cycle without guesses refutes the history.
///
/// Where neither helps, a need is ignored, and the result is only a guess. Further rounds then replay the transactions in
/// the order of the last round, with the learned edges. Each event is executed a few times per round: linear in practice,
/// and stopped at [`STEPS_MAX`] steps per node.
pub(super) struct GuessReplay<'a> {
    known: &'a KnownOrder<'a>,
    blame: BlameRule,
    forward: Csr<u32>,
    backward: Csr<u32>,
    /// By node: the number of its predecessors that were not executed.
    before: Vec<u32>,
    edges: Vec<LearnedEdge>,
    /// By node: learned edges to it, and from it.
    learned: FixedMap<u32, Vec<u32>>,
    followers: FixedMap<u32, Vec<u32>>,
    /// Transactions by deadline; by transaction its index there; and the first that may not have been executed.
    roots: Vec<u32>,
    turns: Vec<u32>,
    next: usize,
    /// By node: was it executed, and is it on the stack?
    is_done: Vec<bool>,
    on_stack: Vec<bool>,
    /// By version: the number of its readers that were not executed.
    left: Vec<u32>,
    /// By key: its current version, and the transaction between snapshot and commit that writes it, if any.
    current: Vec<u32>,
    held: Vec<Option<Txn>>,
    /// By version, once it is committed: the version that it replaced.
    replaced: Vec<u32>,
    /// By transaction: are its reads ignored?
    is_missed: Vec<bool>,
    /// Nodes in the order in which they were executed; by node: its index there if it was.
    trail: Vec<u32>,
    places: Vec<u32>,
    /// By two transactions: how often their order was guessed.
    flips: FixedMap<(u32, u32), u32>,
    /// Number of needs that were ignored in this round.
    ignored: u64,
    /// Number of steps of this round.
    steps: u64,
}

impl<'a> GuessReplay<'a> {
    /// A replay of transactions in the order of their deadlines, as far as needs allow.
    pub(super) fn new(
        known: &'a KnownOrder<'a>,
        deadline: impl Fn(u32) -> (u32, u32),
    ) -> GuessReplay<'a> {
        let nodes = known.nodes() as usize;
        let constraints = known.constraints;
        let forward = successors(nodes, known);
        let backward = predecessors(nodes, &forward);
        let before = (0..nodes as u32).map(|node| backward.row(node).len() as u32);
        let versions = 0..constraints.versions() as u32;
        let left = versions.map(|version| known.blocks.readers.row(version).len() as u32);
        let mut roots: Vec<u32> = (0..constraints.len()).collect();
        roots.sort_by_key(|&number| deadline(number));
        let mut turns = vec![0; roots.len()];
        for (turn, &root) in roots.iter().enumerate() {
            turns[root as usize] = turn as u32;
        }
        GuessReplay {
            known,
            blame: BlameRule::Deadline,
            before: before.collect(),
            forward,
            backward,
            edges: Vec::new(),
            learned: FixedMap::default(),
            followers: FixedMap::default(),
            roots,
            turns,
            next: 0,
            is_done: vec![false; nodes],
            on_stack: vec![false; nodes],
            left: left.collect(),
            current: (0..constraints.keys).collect(),
            held: vec![None; constraints.keys as usize],
            replaced: vec![0; constraints.versions()],
            is_missed: vec![false; constraints.len() as usize],
            trail: Vec::with_capacity(nodes),
            places: vec![0; nodes],
            flips: FixedMap::default(),
            ignored: 0,
            steps: 0,
        }
    }

    /// Replays all transactions.
    pub(super) fn run(mut self) -> ReplayResult {
        let mut best: Option<(u64, Vec<u32>)> = None;
        for _ in 0..ROUNDS_MAX {
            while let Some(&root) = self.roots.get(self.next)
                && !self.is_over(STEPS_MAX)
            {
                let root = self.known.commit(root);
                if self.is_done[root as usize] {
                    self.next += 1;
                } else if let Some(core) = self.demand(root) {
                    return ReplayResult::Refuted(core);
                }
            }
            if self.next < self.roots.len() {
                break;
            }
            let before = best.as_ref().map(|best| best.0);
            if before.is_none_or(|before| self.ignored < before) {
                best = Some((self.ignored, self.trail.clone()));
            }
            let (share, whole) = PROGRESS;
            let is_slow = before.is_some_and(|before| self.ignored * whole > before * share);
            if self.ignored == 0 || is_slow {
                break;
            }
            self.again();
        }
        best.map_or(ReplayResult::Stopped, |(_, trail)| self.replayed(&trail))
    }

    /// Prepares another round, in the order of this one.
    fn again(&mut self) {
        for (place, &node) in self.trail.iter().enumerate() {
            if let Some(number) = self.known.transaction(node) {
                self.turns[number as usize] = place as u32;
            }
        }
        while let Some(node) = self.trail.pop() {
            self.untake(node);
        }
        let turns = &self.turns;
        self.roots
            .sort_unstable_by_key(|&number| turns[number as usize]);
        for (turn, &root) in self.roots.iter().enumerate() {
            self.turns[root as usize] = turn as u32;
        }
        for edge in 0..self.edges.len() {
            if self.edges[edge].reason.is_none() {
                self.forget(self.edges[edge].from, self.edges[edge].to);
            }
        }
        assert!(
            !self.is_done.contains(&true),
            "a new round begins before all events"
        );
        self.is_missed.fill(false);
        self.flips.clear();
        (self.blame, self.next) = (BlameRule::Latest, 0);
        (self.steps, self.ignored) = (0, 0);
    }

    /// The guess that an order of all nodes implies.
    fn replayed(&self, trail: &[u32]) -> ReplayResult {
        // Nodes that stand for edges are executed only if an event needs them, so some may be missing.
        assert!(
            trail.len() <= self.is_done.len(),
            "a node was executed twice"
        );
        let mut places = vec![0_u32; self.is_done.len()];
        for (place, &node) in trail.iter().enumerate() {
            places[node as usize] = place as u32;
        }
        let mut heads = self.known.blocks.heads.clone();
        for key in 0..self.known.constraints.keys {
            let place = |head: u32| places[self.known.written(head) as usize];
            heads.row_mut(key).sort_unstable_by_key(|&head| place(head));
        }
        ReplayResult::Order { heads, places }
    }

    fn is_over(&self, per_node: u64) -> bool {
        self.steps > per_node * (self.is_done.len() as u64 + 100)
    }

    /// Executes an event after everything that it needs. Returns the transactions without an order, if it found such.
    fn demand(&mut self, root: u32) -> Option<BTreeSet<u32>> {
        let mut stack = vec![(root, EventNeed::KnownOrder(root))];
        self.on_stack[root as usize] = true;
        while let Some(&(node, _)) = stack.last() {
            let is_done = self.is_done[node as usize];
            let need = if is_done { None } else { self.need(node) };
            let Some(need) = need else {
                if !is_done {
                    self.take(node);
                }
                self.on_stack[node as usize] = false;
                stack.pop();
                continue;
            };
            let event = need.event();
            if !self.on_stack[event as usize] {
                self.on_stack[event as usize] = true;
                stack.push((event, need));
                continue;
            }
            let found = self.turn(&stack, need);
            for (node, _) in stack.drain(..) {
                self.on_stack[node as usize] = false;
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// An event that must be executed before this one, if there is one.
    fn need(&mut self, node: u32) -> Option<EventNeed> {
        self.steps += 1;
        if self.before[node as usize] > 0 {
            let mut known = self.backward.row(node).iter();
            let at = known.position(|&event| !self.is_done[event as usize]);
            if let Some(at) = at {
                self.steps += at as u64;
                return Some(EventNeed::KnownOrder(self.backward.row(node)[at]));
            }
            let mut learned = self.learned.get(&node).into_iter().flatten();
            let is_open = |&&edge: &&u32| {
                let from = self.edges[edge as usize].from;
                !self.is_done[from as usize]
            };
            if let Some(&edge) = learned.find(is_open) {
                let event = self.edges[edge as usize].from;
                return Some(EventNeed::LearnedOrder { event, edge });
            }
        }
        let number = self.known.transaction(node)?;
        let (is_snapshot, is_commit) = self.roles(node);
        let is_exclusive = self.known.model.axiom == Axiom::Snapshot;
        for &version in self.known.constraints.writes.row(number) {
            let key = self.known.constraints.version_keys[version as usize];
            let writer = self.held[key as usize].filter(|writer| writer.get() != number);
            if let (true, true, Some(holder)) = (is_snapshot, is_exclusive, writer) {
                let event = self.known.commit(holder.get());
                return Some(EventNeed::Data { event, writer });
            }
            let version = self.current[key as usize];
            if is_commit && self.left[version as usize] > 0 {
                let readers = self.known.blocks.readers.row(version);
                let is_pending = |&&reader: &&u32| {
                    let event = self.known.snapshot(reader);
                    let is_ignored = self.is_missed[reader as usize];
                    reader != number && !self.is_done[event as usize] && !is_ignored
                };
                self.steps += readers.len() as u64;
                if let Some(&reader) = readers.iter().find(is_pending) {
                    let event = self.known.snapshot(reader);
                    let writer = self.known.constraints.writer(version);
                    return Some(EventNeed::Data { event, writer });
                }
            }
        }
        None
    }

    /// Does the transaction of this event read in it, and does it write in it?
    fn roles(&self, event: u32) -> (bool, bool) {
        let is_single = self.known.model.axiom.events() == 1;
        let is_commit = event % 2 == 1;
        (is_single || !is_commit, is_single || is_commit)
    }

    /// Executes an event.
    fn take(&mut self, node: u32) {
        self.is_done[node as usize] = true;
        self.places[node as usize] = self.trail.len() as u32;
        self.trail.push(node);
        for &to in self.forward.row(node) {
            self.before[to as usize] -= 1;
        }
        for &edge in self.followers.get(&node).into_iter().flatten() {
            self.before[self.edges[edge as usize].to as usize] -= 1;
        }
        let Some(number) = self.known.transaction(node) else {
            return;
        };
        let constraints = self.known.constraints;
        let (is_snapshot, is_commit) = self.roles(node);
        if is_snapshot {
            for &version in constraints.reads.row(number) {
                self.left[version as usize] -= 1;
            }
        }
        for &version in constraints.writes.row(number) {
            let key = constraints.version_keys[version as usize] as usize;
            if is_commit {
                self.replaced[version as usize] = self.current[key];
                self.current[key] = version;
                if self.held[key] == Some(Txn::new(number)) {
                    self.held[key] = None;
                }
            } else {
                self.held[key] = Some(Txn::new(number));
            }
        }
    }

    /// Undoes the last event.
    fn untake(&mut self, node: u32) {
        self.is_done[node as usize] = false;
        for &to in self.forward.row(node) {
            self.before[to as usize] += 1;
        }
        for &edge in self.followers.get(&node).into_iter().flatten() {
            self.before[self.edges[edge as usize].to as usize] += 1;
        }
        self.steps += 1;
        let Some(number) = self.known.transaction(node) else {
            return;
        };
        self.next = self.next.min(self.turns[number as usize] as usize);
        let constraints = self.known.constraints;
        let (is_snapshot, is_commit) = self.roles(node);
        if is_snapshot {
            for &version in constraints.reads.row(number) {
                self.left[version as usize] += 1;
            }
        }
        for &version in constraints.writes.row(number) {
            let key = constraints.version_keys[version as usize] as usize;
            if is_commit {
                self.current[key] = self.replaced[version as usize];
            }
            let is_held = is_commit && !is_snapshot;
            self.held[key] = is_held.then(|| Txn::new(number));
        }
    }

    /// The event in which a transaction begins to exclude other writers of its keys.
    fn begin(&self, number: u32) -> u32 {
        match self.known.model.axiom {
            Axiom::Prefix => self.known.commit(number),
            _ => self.known.snapshot(number),
        }
    }

    /// Resolves the cycle of an event that needs one below it on the stack: undoes the write that came too early, or ignores
    /// a need. Returns the transactions without an order, if that follows.
    fn turn(&mut self, stack: &[(u32, EventNeed)], closing: EventNeed) -> Option<BTreeSet<u32>> {
        let start = stack
            .iter()
            .position(|&(node, _)| node == closing.event())
            .unwrap_or(0);
        // Each event of the cycle with its need of the next one.
        let cycle = &stack[start..];
        let needs = cycle.iter().skip(1).map(|&(_, need)| need).chain([closing]);
        let needs: Vec<(u32, EventNeed)> = cycle.iter().map(|&(node, _)| node).zip(needs).collect();
        self.steps += needs.len() as u64;
        let mut open = needs.iter().filter(|(_, need)| self.is_open(*need));
        let is_returning = !self.is_over(STEPS_RETURNING);
        match (open.next().copied(), open.next()) {
            (None, _) => return Some(self.core(self.reason(&needs))),
            (Some((node, need)), None) => {
                let reason = self.reason(&needs);
                let other = match need {
                    EventNeed::Data { writer, .. } => writer.map(Txn::get),
                    EventNeed::KnownOrder(event) | EventNeed::LearnedOrder { event, .. } => {
                        self.known.transaction(event)
                    }
                };
                let Some(other) = other else {
                    // An initial version comes before all others, so nothing can be reversed.
                    return Some(self.core(reason));
                };
                if let (true, Some(number)) = (is_returning, self.known.transaction(node)) {
                    self.learn(number, other, Some(reason));
                    return None;
                }
            }
            _ => {}
        }
        if let (true, Some((number, writer))) = (is_returning, self.blamed(&needs)) {
            *self.flips.entry((number, writer)).or_insert(0) += 1;
            self.learn(number, writer, None);
            return None;
        }
        self.ignore(&needs);
        None
    }

    /// Does this need depend on something that is not certain?
    fn is_open(&self, need: EventNeed) -> bool {
        match need {
            EventNeed::KnownOrder(_) => false,
            EventNeed::LearnedOrder { edge, .. } => self.edges[edge as usize].reason.is_none(),
            EventNeed::Data { .. } => true,
        }
    }

    /// The transactions and learned edges of a cycle of needs.
    fn reason(&self, needs: &[(u32, EventNeed)]) -> (Vec<u32>, Vec<u32>) {
        let (mut transactions, mut edges) = (Vec::new(), Vec::new());
        for &(node, need) in needs {
            transactions.extend(self.known.transaction(node));
            match need {
                EventNeed::KnownOrder(_) => {}
                EventNeed::LearnedOrder { edge, .. } => edges.push(edge),
                EventNeed::Data { writer, .. } => {
                    transactions.extend(writer.map(Txn::get));
                }
            }
        }
        (transactions, edges)
    }

    /// All transactions on which a reason depends.
    fn core(&self, reason: (Vec<u32>, Vec<u32>)) -> BTreeSet<u32> {
        let (transactions, mut waiting) = reason;
        let mut core: BTreeSet<u32> = transactions.into_iter().collect();
        let mut seen: BTreeSet<u32> = waiting.iter().copied().collect();
        while let Some(edge) = waiting.pop() {
            let LearnedEdge { from, to, reason } = &self.edges[edge as usize];
            core.extend([*from, *to].map(|event| event / self.known.model.axiom.events()));
            if let Some((transactions, edges)) = reason {
                core.extend(transactions);
                waiting.extend(edges.iter().filter(|&&edge| seen.insert(edge)));
            }
        }
        core
    }

    /// The need of a cycle to be reversed: the waiting transaction, and the one that came too early.
    fn blamed(&self, needs: &[(u32, EventNeed)]) -> Option<(u32, u32)> {
        let candidates = needs.iter().filter_map(|&(node, need)| {
            let EventNeed::Data {
                writer: Some(writer),
                ..
            } = need
            else {
                return None;
            };
            let writer = writer.get();
            let number = self.known.transaction(node)?;
            let is_turned = self.flips.get(&(number, writer)).copied().unwrap_or(0) >= FLIPS_MAX;
            let is_possible = writer != number && !is_turned;
            is_possible.then_some((number, writer))
        });
        match self.blame {
            BlameRule::Deadline => candidates.max_by_key(|&(number, writer)| {
                let turn = |number: u32| i64::from(self.turns[number as usize]);
                turn(writer) - turn(number)
            }),
            // Among those with the same writer, the first.
            BlameRule::Latest => candidates
                .rev()
                .filter(|&(_, writer)| self.is_done[self.begin(writer) as usize])
                .max_by_key(|&(_, writer)| self.places[self.begin(writer) as usize]),
        }
    }

    /// Learns that `writer` comes after `number`, and undoes everything from the begin of `writer` on.
    fn learn(&mut self, number: u32, writer: u32, reason: Option<(Vec<u32>, Vec<u32>)>) {
        let (from, to) = (self.known.commit(number), self.begin(writer));
        if self.is_done[to as usize] {
            while let Some(node) = self.trail.pop() {
                self.untake(node);
                if node == to {
                    break;
                }
            }
        }
        self.forget(self.known.commit(writer), self.begin(number));
        let edge = self.edges.len() as u32;
        self.edges.push(LearnedEdge { from, to, reason });
        self.learned.entry(to).or_default().push(edge);
        self.followers.entry(from).or_default().push(edge);
        self.before[to as usize] += u32::from(!self.is_done[from as usize]);
    }

    /// Removes a guessed edge.
    fn forget(&mut self, from: u32, to: u32) {
        let Some(all) = self.learned.get_mut(&to) else {
            return;
        };
        let is_guess = |&edge: &u32| {
            let edge = &self.edges[edge as usize];
            edge.from == from && edge.reason.is_none()
        };
        if let Some(at) = all.iter().position(is_guess) {
            let edge = all.swap_remove(at);
            if let Some(all) = self.followers.get_mut(&from) {
                all.retain(|&other| other != edge);
            }
            self.before[to as usize] -= u32::from(!self.is_done[from as usize]);
        }
    }

    /// Ignores a need of a cycle: a guess if there is one, otherwise that of a reader.
    fn ignore(&mut self, needs: &[(u32, EventNeed)]) {
        self.ignored += 1;
        for &(node, need) in needs {
            if let EventNeed::LearnedOrder { event, edge } = need
                && self.edges[edge as usize].reason.is_none()
            {
                self.forget(event, node);
                return;
            }
        }
        for &(node, need) in needs {
            let EventNeed::Data { event, .. } = need else {
                continue;
            };
            let reader = self.known.transaction(event).unwrap_or(0);
            if event == self.known.snapshot(reader) && !self.is_missed[reader as usize] {
                self.is_missed[reader as usize] = true;
            } else {
                // The need is an unfinished writer of the same key.
                self.take(node);
            }
            return;
        }
    }
}
