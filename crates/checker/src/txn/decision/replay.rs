//! A guess of the order of versions by replaying the transactions on a store.

use super::known::Known;
use super::lists::Lists;
use super::promise::Axiom;
use crate::txn::dense::Map;
use crate::txn::transactions::NONE;
use std::collections::BTreeSet;

/// How often the replay may return to before the same write because of a guess.
const FLIPS_MAX: u32 = 1;
/// Steps per node of one round after which it takes back nothing more, and after which the replay ends.
const STEPS_RETURNING: u64 = 20;
const STEPS_MAX: u64 = 40;
/// Rounds at most. Another one begins only as long as the last one ignored fewer needs than this share of those of the one
/// before.
const ROUNDS_MAX: u32 = 4;
const PROGRESS: (u64, u64) = (7, 8);

/// What a replay found.
pub(super) enum Replayed {
    /// Blocks of each key in the order in which they were written, and the place of each node.
    Order { heads: Lists, places: Vec<u32> },
    /// These transactions cannot be explained.
    Refuted(BTreeSet<u32>),
    /// It took too long.
    Stopped,
}

/// Which write came too early if an event needs itself over several needs that are not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// The one whose deadline is furthest after that of the write that was kept waiting: good when deadlines say much.
    Deadline,
    /// The one that took place last: good when nearly everything runs at the same time.
    Latest,
}

/// Why an event waits for another one.
#[derive(Clone, Copy, Debug)]
enum Need {
    /// The other one comes first in what is known.
    Known(u32),
    /// The other one comes first by this edge that was learned.
    Learned { event: u32, edge: u32 },
    /// The other one reads a version that this one would overwrite, or is an unfinished write of the same key. This is a need
    /// only because the transaction `writer` came first, before the transaction of the event that waits.
    Data { event: u32, writer: u32 },
}

impl Need {
    fn event(self) -> u32 {
        match self {
            Need::Known(event) | Need::Learned { event, .. } | Need::Data { event, .. } => event,
        }
    }
}

/// An order of two writers of a key.
struct Edge {
    from: u32,
    to: u32,
    /// Why there is no other way: transactions, and other edges; nothing of a guess.
    reason: Option<(Vec<u32>, Vec<u32>)>,
}

/// Takes the events one by one on a store that has one current version per key.
///
/// Events are taken on demand: the transaction with the earliest deadline first, and before it what it needs: its known
/// predecessors, and readers of the versions that it overwrites. So nothing takes place before it must. If an event needs itself,
/// some write took place too early. Where the cycle has one need that depends on the order of two writers and is known
/// otherwise, the opposite order follows from what is known; it is learned for good, with its reason. Where it has several,
/// the opposite of one is guessed. Either way events are taken back until before that write (Gaschnig 1977). A cycle of what
/// is known and learned for good refutes the history.
///
/// Where neither leads on, a need is ignored, and the result is no more than a guess. So further rounds replay the
/// transactions in the order of the last one, with what was learned for good. Each event is taken a few times per
/// round: linear in practice, and stopped at [`STEPS_MAX`] steps per node otherwise.
pub(super) struct Replay<'a> {
    known: &'a Known<'a>,
    blame: Blame,
    forward: Lists,
    backward: Lists,
    /// By node: how many of its predecessors have not taken place.
    before: Vec<u32>,
    edges: Vec<Edge>,
    /// By node: learned edges to it, and from it.
    learned: Map<u32, Vec<u32>>,
    followers: Map<u32, Vec<u32>>,
    /// Transactions by deadline, the place of each, and the first that may not have taken place.
    roots: Vec<u32>,
    turns: Vec<u32>,
    next: usize,
    /// By node: did it take place, and is it on the stack?
    is_done: Vec<bool>,
    on_stack: Vec<bool>,
    /// By version: how many of its readers have not taken place.
    left: Vec<u32>,
    /// By key: its current version, and the transaction between snapshot and commit that writes it ([`NONE`]).
    current: Vec<u32>,
    held: Vec<u32>,
    /// By version: the one that it replaced.
    replaced: Vec<u32>,
    /// By transaction: are its reads given up?
    is_missed: Vec<bool>,
    /// Nodes in the order in which they took place, and by node its place there if it did.
    trail: Vec<u32>,
    places: Vec<u32>,
    /// By two transactions: how often their order was guessed.
    flips: Map<(u32, u32), u32>,
    /// Needs that were ignored in this round.
    ignored: u64,
    /// Steps of this round.
    steps: u64,
}

impl<'a> Replay<'a> {
    /// A replay of transactions in the order of their deadlines, unless something stands against that.
    pub(super) fn new(known: &'a Known<'a>, deadline: impl Fn(u32) -> (u32, u32)) -> Replay<'a> {
        let nodes = known.nodes() as usize;
        let facts = known.facts;
        let forward = Lists::forward(nodes, known);
        let backward = forward.inverted(nodes);
        let before = (0..nodes as u32).map(|node| backward.of(node).len() as u32);
        let versions = 0..facts.versions() as u32;
        let left = versions.map(|version| known.blocks.readers.of(version).len() as u32);
        let mut roots: Vec<u32> = (0..facts.len()).collect();
        roots.sort_by_key(|&number| deadline(number));
        let mut turns = vec![0; roots.len()];
        for (turn, &root) in roots.iter().enumerate() {
            turns[root as usize] = turn as u32;
        }
        Replay {
            known,
            blame: Blame::Deadline,
            before: before.collect(),
            forward,
            backward,
            edges: Vec::new(),
            learned: Map::default(),
            followers: Map::default(),
            roots,
            turns,
            next: 0,
            is_done: vec![false; nodes],
            on_stack: vec![false; nodes],
            left: left.collect(),
            current: (0..facts.keys).collect(),
            held: vec![NONE; facts.keys as usize],
            replaced: vec![NONE; facts.versions()],
            is_missed: vec![false; facts.len() as usize],
            trail: Vec::with_capacity(nodes),
            places: vec![0; nodes],
            flips: Map::default(),
            ignored: 0,
            steps: 0,
        }
    }

    /// Replays all transactions.
    pub(super) fn run(mut self) -> Replayed {
        let mut best: Option<(u64, Vec<u32>)> = None;
        for _ in 0..ROUNDS_MAX {
            while let Some(&root) = self.roots.get(self.next)
                && !self.is_over(STEPS_MAX)
            {
                let root = self.known.commit(root);
                if self.is_done[root as usize] {
                    self.next += 1;
                } else if let Some(core) = self.demand(root) {
                    return Replayed::Refuted(core);
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
        best.map_or(Replayed::Stopped, |(_, trail)| self.replayed(&trail))
    }

    /// Prepares another round in the order of this one.
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
        self.is_missed.fill(false);
        self.flips.clear();
        (self.blame, self.next) = (Blame::Latest, 0);
        (self.steps, self.ignored) = (0, 0);
    }

    /// The guess that an order of all nodes is.
    fn replayed(&self, trail: &[u32]) -> Replayed {
        let mut places = vec![0_u32; self.is_done.len()];
        for (place, &node) in trail.iter().enumerate() {
            places[node as usize] = place as u32;
        }
        let mut heads = self.known.blocks.heads.clone();
        for key in 0..self.known.facts.keys {
            let place = |head: u32| places[self.known.written(head) as usize];
            heads.of_mut(key).sort_unstable_by_key(|&head| place(head));
        }
        Replayed::Order { heads, places }
    }

    fn is_over(&self, per_node: u64) -> bool {
        self.steps > per_node * (self.is_done.len() as u64 + 100)
    }

    /// Lets an event take place after all that it needs. The answer is why nothing explains the history, if that was found.
    fn demand(&mut self, root: u32) -> Option<BTreeSet<u32>> {
        let mut stack = vec![(root, Need::Known(root))];
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

    /// What an event needs before it can take place.
    fn need(&mut self, node: u32) -> Option<Need> {
        self.steps += 1;
        if self.before[node as usize] > 0 {
            let mut known = self.backward.of(node).iter();
            let at = known.position(|&event| !self.is_done[event as usize]);
            if let Some(at) = at {
                self.steps += at as u64;
                return Some(Need::Known(self.backward.of(node)[at]));
            }
            let mut learned = self.learned.get(&node).into_iter().flatten();
            let is_open = |&&edge: &&u32| {
                let from = self.edges[edge as usize].from;
                !self.is_done[from as usize]
            };
            if let Some(&edge) = learned.find(is_open) {
                let event = self.edges[edge as usize].from;
                return Some(Need::Learned { event, edge });
            }
        }
        let number = self.known.transaction(node)?;
        let (is_snapshot, is_commit) = self.roles(node);
        let is_exclusive = self.known.promise.axiom == Axiom::Snapshot;
        for &version in self.known.facts.writes.of(number) {
            let key = self.known.facts.version_keys[version as usize];
            let writer = self.held[key as usize];
            if is_snapshot && is_exclusive && writer != NONE && writer != number {
                let event = self.known.commit(writer);
                return Some(Need::Data { event, writer });
            }
            let version = self.current[key as usize];
            if is_commit && self.left[version as usize] > 0 {
                let readers = self.known.blocks.readers.of(version);
                let is_pending = |&&reader: &&u32| {
                    let event = self.known.snapshot(reader);
                    let is_ignored = self.is_missed[reader as usize];
                    reader != number && !self.is_done[event as usize] && !is_ignored
                };
                self.steps += readers.len() as u64;
                if let Some(&reader) = readers.iter().find(is_pending) {
                    let event = self.known.snapshot(reader);
                    let writer = self.known.facts.writers[version as usize];
                    return Some(Need::Data { event, writer });
                }
            }
        }
        None
    }

    /// Does the transaction of this event read in it, and does it write in it?
    fn roles(&self, event: u32) -> (bool, bool) {
        let is_single = self.known.promise.axiom.events() == 1;
        let is_commit = event % 2 == 1;
        (is_single || !is_commit, is_single || is_commit)
    }

    /// An event takes place.
    fn take(&mut self, node: u32) {
        self.is_done[node as usize] = true;
        self.places[node as usize] = self.trail.len() as u32;
        self.trail.push(node);
        for &to in self.forward.of(node) {
            self.before[to as usize] -= 1;
        }
        for &edge in self.followers.get(&node).into_iter().flatten() {
            self.before[self.edges[edge as usize].to as usize] -= 1;
        }
        let Some(number) = self.known.transaction(node) else {
            return;
        };
        let facts = self.known.facts;
        let (is_snapshot, is_commit) = self.roles(node);
        if is_snapshot {
            for &version in facts.reads.of(number) {
                self.left[version as usize] -= 1;
            }
        }
        for &version in facts.writes.of(number) {
            let key = facts.version_keys[version as usize] as usize;
            if is_commit {
                self.replaced[version as usize] = self.current[key];
                self.current[key] = version;
                if self.held[key] == number {
                    self.held[key] = NONE;
                }
            } else {
                self.held[key] = number;
            }
        }
    }

    /// Takes the last event back.
    fn untake(&mut self, node: u32) {
        self.is_done[node as usize] = false;
        for &to in self.forward.of(node) {
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
        let facts = self.known.facts;
        let (is_snapshot, is_commit) = self.roles(node);
        if is_snapshot {
            for &version in facts.reads.of(number) {
                self.left[version as usize] += 1;
            }
        }
        for &version in facts.writes.of(number) {
            let key = facts.version_keys[version as usize] as usize;
            if is_commit {
                self.current[key] = self.replaced[version as usize];
            }
            let is_held = is_commit && !is_snapshot;
            self.held[key] = if is_held { number } else { NONE };
        }
    }

    /// The event in which a transaction begins to exclude other writers of its keys.
    fn begin(&self, number: u32) -> u32 {
        match self.known.promise.axiom {
            Axiom::Prefix => self.known.commit(number),
            _ => self.known.snapshot(number),
        }
    }

    /// An event needs one that is below it on the stack: takes back what came too early, or ignores a need. The answer is why
    /// nothing explains the history, if that follows.
    fn turn(&mut self, stack: &[(u32, Need)], closing: Need) -> Option<BTreeSet<u32>> {
        let start = stack
            .iter()
            .position(|&(node, _)| node == closing.event())
            .unwrap_or(0);
        // Each event of the cycle with what it needs of the next one.
        let cycle = &stack[start..];
        let needs = cycle.iter().skip(1).map(|&(_, need)| need).chain([closing]);
        let needs: Vec<(u32, Need)> = cycle.iter().map(|&(node, _)| node).zip(needs).collect();
        self.steps += needs.len() as u64;
        let mut open = needs.iter().filter(|(_, need)| self.is_open(*need));
        let is_returning = !self.is_over(STEPS_RETURNING);
        match (open.next().copied(), open.next()) {
            (None, _) => return Some(self.core(self.reason(&needs))),
            (Some((node, need)), None) => {
                let reason = self.reason(&needs);
                let other = match need {
                    Need::Data { writer, .. } => writer,
                    Need::Known(event) | Need::Learned { event, .. } => {
                        self.known.transaction(event).unwrap_or(NONE)
                    }
                };
                if other == NONE {
                    // Nothing comes before an initial version.
                    return Some(self.core(reason));
                }
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

    /// Does a need depend on something that is not certain?
    fn is_open(&self, need: Need) -> bool {
        match need {
            Need::Known(_) => false,
            Need::Learned { edge, .. } => self.edges[edge as usize].reason.is_none(),
            Need::Data { .. } => true,
        }
    }

    /// The transactions and learned edges of a cycle of needs.
    fn reason(&self, needs: &[(u32, Need)]) -> (Vec<u32>, Vec<u32>) {
        let (mut transactions, mut edges) = (Vec::new(), Vec::new());
        for &(node, need) in needs {
            transactions.extend(self.known.transaction(node));
            match need {
                Need::Known(_) => {}
                Need::Learned { edge, .. } => edges.push(edge),
                Need::Data { writer, .. } => {
                    transactions.extend((writer != NONE).then_some(writer));
                }
            }
        }
        (transactions, edges)
    }

    /// All transactions that a reason comes from.
    fn core(&self, reason: (Vec<u32>, Vec<u32>)) -> BTreeSet<u32> {
        let (transactions, mut waiting) = reason;
        let mut core: BTreeSet<u32> = transactions.into_iter().collect();
        let mut seen: BTreeSet<u32> = waiting.iter().copied().collect();
        while let Some(edge) = waiting.pop() {
            let Edge { from, to, reason } = &self.edges[edge as usize];
            core.extend([*from, *to].map(|event| event / self.known.promise.axiom.events()));
            if let Some((transactions, edges)) = reason {
                core.extend(transactions);
                waiting.extend(edges.iter().filter(|&&edge| seen.insert(edge)));
            }
        }
        core
    }

    /// The need of a cycle to be turned around: the transaction that waited, and the one that came too early.
    fn blamed(&self, needs: &[(u32, Need)]) -> Option<(u32, u32)> {
        let candidates = needs.iter().filter_map(|&(node, need)| {
            let Need::Data { writer, .. } = need else {
                return None;
            };
            let number = self.known.transaction(node)?;
            let is_turned = self.flips.get(&(number, writer)).copied().unwrap_or(0) >= FLIPS_MAX;
            let is_possible = writer != NONE && writer != number && !is_turned;
            is_possible.then_some((number, writer))
        });
        match self.blame {
            Blame::Deadline => candidates.max_by_key(|&(number, writer)| {
                let turn = |number: u32| i64::from(self.turns[number as usize]);
                turn(writer) - turn(number)
            }),
            // The first of those with the same writer.
            Blame::Latest => candidates
                .rev()
                .filter(|&(_, writer)| self.is_done[self.begin(writer) as usize])
                .max_by_key(|&(_, writer)| self.places[self.begin(writer) as usize]),
        }
    }

    /// From now on `writer` comes after `number`; what took place since `writer` began is taken back.
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
        self.edges.push(Edge { from, to, reason });
        self.learned.entry(to).or_default().push(edge);
        self.followers.entry(from).or_default().push(edge);
        self.before[to as usize] += u32::from(!self.is_done[from as usize]);
    }

    /// Takes back a guess.
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

    /// Ignores a need of a cycle: a guess, else that of a reader.
    fn ignore(&mut self, needs: &[(u32, Need)]) {
        self.ignored += 1;
        for &(node, need) in needs {
            if let Need::Learned { event, edge } = need
                && self.edges[edge as usize].reason.is_none()
            {
                self.forget(event, node);
                return;
            }
        }
        for &(node, need) in needs {
            let Need::Data { event, .. } = need else {
                continue;
            };
            let reader = self.known.transaction(event).unwrap_or(0);
            if event == self.known.snapshot(reader) && !self.is_missed[reader as usize] {
                self.is_missed[reader as usize] = true;
            } else {
                // An unfinished writer of the same key.
                self.take(node);
            }
            return;
        }
    }
}
