//! From facts to a decision.

use super::blocks::{Blocks, Fork};
use super::facts::Facts;
use super::known::{Guessed, Known};
use super::lists::{Lists, Relation};
use super::mend::Mend;
use super::promise::{Axiom, Follows, Promise};
use super::replay::{Replay, Replayed};
use super::solve::{Answer, Search};
use super::zones::{Windows, ranked};
use crate::txn::components::visit;
use crate::txn::transactions::NONE;
use std::collections::BTreeSet;

/// What was decided of facts.
#[derive(Debug)]
pub(super) enum Decision {
    /// This order explains all.
    Holds(Witness),
    /// These transactions (sorted) cannot be explained. Not the least of them, but few.
    Fails(Vec<u32>),
    /// The search was stopped at its bound.
    Open,
}

/// An order that explains all reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::txn) enum Witness {
    /// Transactions one after another.
    Serial(Vec<u32>),
    /// Each transaction twice: its snapshot, then its commit.
    Snapshots(Vec<u32>),
    /// Transactions, each after what it sees; versions of a key are in this order.
    Visible(Vec<u32>),
}

impl Witness {
    /// The same as a witness of an axiom that asks for no more.
    fn of(self, axiom: Axiom) -> Witness {
        match self {
            // Whoever runs alone takes a snapshot and commits.
            Witness::Serial(order) if axiom != Axiom::Serializable => {
                Witness::Snapshots(order.iter().flat_map(|&one| [one, one]).collect())
            }
            other => other,
        }
    }

    /// Transactions in the order in which they commit.
    pub(super) fn commits(&self) -> Vec<u32> {
        match self {
            Witness::Serial(order) | Witness::Visible(order) => order.clone(),
            Witness::Snapshots(order) => {
                let mut seen = vec![false; order.len()];
                let is_second = |&&one: &&u32| std::mem::replace(&mut seen[one as usize], true);
                order.iter().filter(is_second).copied().collect()
            }
        }
    }

    /// The same with other names of transactions.
    pub(super) fn renamed(mut self, names: &[u32]) -> Witness {
        let (Witness::Serial(order) | Witness::Snapshots(order) | Witness::Visible(order)) =
            &mut self;
        for number in order {
            *number = names[*number as usize];
        }
        self
    }
}

/// How much work a decision was.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::txn) struct Effort {
    /// Edges and literals that the search looked at.
    pub(in crate::txn) steps: u64,
    /// Events that the first guess got wrong, at most.
    pub(in crate::txn) unsettled: u64,
    /// Pairs of versions that the search had to order.
    pub(in crate::txn) pairs: u64,
    /// Conflicts and other clauses that it learned.
    pub(in crate::txn) clauses: u64,
}

/// Decides whether these facts keep the promise; stops a search after so many steps.
pub(super) fn decide(
    facts: &Facts,
    promise: Promise,
    steps_max: u64,
    effort: &mut Effort,
) -> Decision {
    let blocks = match Blocks::new(facts, promise.axiom.is_chained()) {
        Ok(blocks) => blocks,
        Err(Fork {
            version,
            one,
            other,
        }) => {
            let writer = facts.writers[version as usize];
            let core: BTreeSet<u32> = [one, other, writer].into();
            return Decision::Fails(core.into_iter().filter(|&one| one != NONE).collect());
        }
    };
    if promise.axiom == Axiom::Parallel {
        return super::parallel::decide(facts, &blocks, promise, steps_max, effort);
    }
    let known = Known::new(facts, &blocks, promise);
    settle(&known, steps_max, effort)
}

/// What became of guesses.
enum Guess {
    /// All nodes in an order that explains everything.
    Right(Vec<u32>),
    /// None was right; this one was wrong about least.
    Wrong(Box<Miss>),
    /// No order explains these transactions.
    Refuted(BTreeSet<u32>),
}

/// Steps of a search from a guess that is wrong about few events, before anything is inferred.
const QUICK_STEPS_MAX: u64 = 10_000_000;

/// A witness that is found quickly: a guess that explains all, or the end of a short search from one that was wrong about few
/// events. Linear but for that.
pub(super) fn guessed(facts: &Facts, promise: Promise) -> Option<Witness> {
    let blocks = Blocks::new(facts, promise.axiom.is_chained()).ok()?;
    let known = Known::new(facts, &blocks, promise);
    let mut effort = Effort::default();
    match guess(&known, &mut effort) {
        Guess::Right(order) => Some(witness(&known, order)),
        Guess::Wrong(miss) if miss.unsettled <= UNSETTLED_MANY => {
            match search(&known, *miss, QUICK_STEPS_MAX, &mut effort) {
                Decision::Holds(witness) => Some(witness),
                Decision::Fails(_) | Decision::Open => None,
            }
        }
        Guess::Refuted(_) | Guess::Wrong(_) => None,
    }
}

/// A guess that was not right.
#[derive(Clone)]
pub(super) struct Miss {
    /// By node: its rank in the order that was guessed.
    pub(super) ranks: Vec<u64>,
    pub(super) heads: Lists,
    /// The components of what is known and guessed, in topological order.
    pub(super) components: Lists,
    /// Nodes that are on cycles.
    unsettled: u64,
}

/// More nodes than this that the guess got wrong make it worth while to ask for more than was promised. Tests know only small
/// histories.
const UNSETTLED_MANY: u64 = if cfg!(test) { 2 } else { 100 };

/// Parts of the bound that searches get in turn, the last one all that is left.
const SHARES: [u64; 3] = [64, 8, 1];

/// Stronger promises, which as a rule are kept if this one is, and leave far less to choose from: with real time besides
/// (the order of sessions, where there are no times), serializability instead of snapshot isolation, and that instead of
/// prefix consistency.
fn stronger(known: &Known<'_>) -> Vec<Promise> {
    let Promise { axiom, follows } = known.promise;
    let is_timed = known.facts.times.iter().any(|time| time.1 != NONE);
    let follows = follows.max(if is_timed {
        Follows::Time
    } else {
        Follows::Sessions
    });
    let axioms = match axiom {
        Axiom::Parallel => return Vec::new(),
        Axiom::Snapshot => vec![Axiom::Serializable, axiom],
        Axiom::Prefix => vec![Axiom::Snapshot, axiom],
        Axiom::Serializable => vec![axiom],
    };
    let promises = axioms.into_iter().map(|axiom| Promise { axiom, follows });
    promises.filter(|&it| it != known.promise).collect()
}

/// Guesses, and searches from the best guess when none is right. If that was far off, the promise and stronger ones are
/// searched in turn, each with little effort before any gets much: a witness of a stronger one is one of this.
pub(super) fn settle(known: &Known<'_>, steps_max: u64, effort: &mut Effort) -> Decision {
    let miss = match guess(known, effort) {
        Guess::Right(order) => return Decision::Holds(witness(known, order)),
        Guess::Refuted(core) => return Decision::Fails(core.into_iter().collect()),
        Guess::Wrong(miss) => miss,
    };
    if miss.unsettled <= UNSETTLED_MANY {
        return search(known, *miss, steps_max, effort);
    }
    let miss = match mend(known, miss, steps_max) {
        Ok(order) => return Decision::Holds(witness(known, order)),
        Err(miss) => miss,
    };
    let mut others = stronger(known);
    for share in SHARES {
        let bound = (steps_max / share).min(steps_max.saturating_sub(effort.steps));
        let is_last = share == 1;
        let decision = search(known, miss.as_ref().clone(), bound, effort);
        if is_last || !matches!(decision, Decision::Open) {
            return decision;
        }
        let mut open = Vec::new();
        for promise in others {
            let other = Known::new(known.facts, known.blocks, promise);
            let decision = match guess(&other, &mut Effort::default()) {
                Guess::Right(order) => Decision::Holds(witness(&other, order)),
                Guess::Refuted(_) => continue,
                Guess::Wrong(miss) => match mend(&other, miss, steps_max / share) {
                    Ok(order) => Decision::Holds(witness(&other, order)),
                    Err(miss) => search(&other, *miss, steps_max / share, effort),
                },
            };
            match decision {
                Decision::Holds(witness) => {
                    return Decision::Holds(witness.of(known.promise.axiom));
                }
                Decision::Open => open.push(promise),
                Decision::Fails(_) => {}
            }
        }
        others = open;
    }
    Decision::Open
}

/// Searches from the guess that versions are in the order in which their writers stand here.
pub(super) fn settle_from(
    known: &Known<'_>,
    commits: &[u32],
    steps_max: u64,
    effort: &mut Effort,
) -> Decision {
    let mut ranks = vec![0_u64; known.nodes() as usize];
    for (place, &number) in commits.iter().enumerate() {
        ranks[known.commit(number) as usize] = place as u64;
    }
    let mut heads = known.blocks.heads.clone();
    for key in 0..known.facts.keys {
        let rank = |&head: &u32| ranks[known.written(head) as usize];
        heads.of_mut(key).sort_unstable_by_key(rank);
    }
    let mut best = None;
    match attempt(known, heads, |node| ranks[node as usize], &mut best) {
        Some(order) => Decision::Holds(witness(known, order)),
        None => match best {
            Some(miss) => search(known, *miss, steps_max, effort),
            None => Decision::Open,
        },
    }
}

/// Steps around a component within which transactions are looked at when it is mended, at most.
const MEND_DEPTH_MAX: u32 = 6;

/// Mends a guess component by component, with more and more around those that are left: all nodes in an order that explains
/// everything, or else the best guess.
fn mend(known: &Known<'_>, miss: Box<Miss>, steps_max: u64) -> Result<Vec<u32>, Box<Miss>> {
    if known.promise.axiom == Axiom::Parallel {
        return Err(miss);
    }
    let mut steps = steps_max;
    let mut best = miss;
    for depth in 1..=MEND_DEPTH_MAX {
        let heads = Mend::new(known, &best, &mut steps).run(depth);
        let ranks = best.ranks.clone();
        let mut better = Some(best);
        if let Some(order) = attempt(known, heads, |node| ranks[node as usize], &mut better) {
            return Ok(order);
        }
        best = better.expect("it is exchanged for a better one only");
        if steps == 0 {
            break;
        }
    }
    Err(best)
}

/// Verifies guesses. If those from windows alone are far off, transactions are replayed.
fn guess(known: &Known<'_>, effort: &mut Effort) -> Guess {
    let mut best: Option<Box<Miss>> = None;
    let windows = Windows::guesses(known);
    for windows in &windows {
        let heads = windows.order(known);
        let rank = |node: u32| known.transaction(node).map_or(0, |one| windows.middle(one));
        if let Some(order) = attempt(known, heads, rank, &mut best) {
            return Guess::Right(order);
        }
    }
    effort.unsettled += best.as_ref().map_or(0, |best| best.unsettled);
    if known.promise.axiom == Axiom::Parallel {
        return best.map_or(Guess::Right(Vec::new()), Guess::Wrong);
    }
    for windows in &windows {
        if best
            .as_ref()
            .is_some_and(|best| best.unsettled <= UNSETTLED_MANY)
        {
            break;
        }
        match Replay::new(known, |number| windows.deadline(number)).run() {
            Replayed::Refuted(core) => return Guess::Refuted(core),
            Replayed::Stopped => {}
            Replayed::Order { heads, places } => {
                let rank = |node: u32| u64::from(places[node as usize]);
                if let Some(order) = attempt(known, heads, rank, &mut best) {
                    return Guess::Right(order);
                }
            }
        }
    }
    // There always is a guess.
    best.map_or(Guess::Right(Vec::new()), Guess::Wrong)
}

/// Verifies one guess: all nodes in an order that explains everything, or else it may be the best so far.
fn attempt(
    known: &Known<'_>,
    heads: Lists,
    rank: impl Fn(u32) -> u64,
    best: &mut Option<Box<Miss>>,
) -> Option<Vec<u32>> {
    let components = match verify(known, &heads) {
        // An order of transactions as they become visible says only that versions have one.
        Ok(order) if known.promise.axiom == Axiom::Parallel => single(&order),
        Ok(order) => return Some(order),
        Err(components) => components,
    };
    let sizes = (0..components.rows()).map(|row| components.of(row).len() as u64);
    let unsettled = sizes.filter(|&size| size > 1).sum();
    if best.as_ref().is_none_or(|best| unsettled < best.unsettled) {
        *best = Some(Box::new(Miss {
            ranks: (0..known.nodes()).map(rank).collect(),
            heads,
            components,
            unsettled,
        }));
    }
    None
}

/// The witness that an order of events is.
fn witness(known: &Known<'_>, mut order: Vec<u32>) -> Witness {
    order.retain(|&node| node < known.events());
    match known.promise.axiom {
        Axiom::Serializable => return Witness::Serial(order),
        Axiom::Parallel => return Witness::Visible(order),
        Axiom::Snapshot | Axiom::Prefix => {}
    }
    for event in &mut order {
        *event /= 2;
    }
    Witness::Snapshots(order)
}

/// Looks whether an order of blocks agrees with all that is known; all nodes in an order that says so. It holds whatever it was
/// guessed from, if there is no cycle. Else the components of what is known and guessed, in topological order.
fn verify(known: &Known<'_>, heads: &Lists) -> Result<Vec<u32>, Lists> {
    let graph = Lists::forward(known.nodes() as usize, &Guessed::new(known, heads));
    if let Some(order) = topological(&graph) {
        return Ok(order);
    }
    // Found after all that they reach.
    let (mut ends, mut members) = (Vec::new(), Vec::new());
    visit(&graph, 0..known.nodes(), |component| {
        members.extend_from_slice(component);
        ends.push(members.len());
    });
    let mut components = Lists::default();
    for (place, &end) in ends.iter().enumerate().rev() {
        let start = place.checked_sub(1).map_or(0, |before| ends[before]);
        members[start..end]
            .iter()
            .for_each(|&node| components.push(node));
        components.end();
    }
    Err(components)
}

/// Each node by itself.
fn single(order: &[u32]) -> Lists {
    let mut components = Lists::default();
    for &node in order {
        components.push(node);
        components.end();
    }
    components
}

/// All nodes in an order in which no edge leads back (Kahn 1962); `None` when there is a cycle.
pub(super) fn topological(graph: &Lists) -> Option<Vec<u32>> {
    let mut before = vec![0_u32; graph.rows() as usize];
    graph.tell(&mut |_, to| before[to as usize] += 1);
    let free = (0..graph.rows()).filter(|&node| before[node as usize] == 0);
    let mut order = Vec::with_capacity(before.len());
    order.extend(free);
    let mut next = 0;
    while let Some(&node) = order.get(next) {
        next += 1;
        for &to in graph.of(node) {
            let count = &mut before[to as usize];
            *count -= 1;
            if *count == 0 {
                order.push(to);
            }
        }
    }
    (order.len() == before.len()).then_some(order)
}

fn search(known: &Known<'_>, miss: Miss, steps_max: u64, effort: &mut Effort) -> Decision {
    let Miss {
        ranks,
        heads,
        components,
        ..
    } = miss;
    let forward = Lists::forward(known.nodes() as usize, known);
    let mut order = Vec::with_capacity(known.nodes() as usize);
    let mut doubtful = Vec::new();
    for row in 0..components.rows() {
        match components.of(row) {
            &[node] => order.push(node),
            members => {
                let members = members.to_vec();
                let numbers = members.iter().filter_map(|&node| known.transaction(node));
                doubtful.extend(numbers);
                if let Err(cycle) = inside(known, &forward, &ranks, members, &mut order) {
                    return Decision::Fails(cycle);
                }
            }
        }
    }
    drop((components, ranks));
    let mut search = Search::new(known, &order, forward, heads, doubtful);
    let answer = search.run(steps_max);
    effort.steps += search.steps();
    effort.pairs += search.pairs() as u64;
    effort.clauses += search.clauses() as u64;
    match answer {
        Answer::Order(order) => Decision::Holds(witness(known, order)),
        Answer::Core(core) => Decision::Fails(core.into_iter().collect()),
        Answer::Stopped => Decision::Open,
    }
}

/// The edges between some nodes, those renumbered by position.
struct Inside<'a> {
    forward: &'a Lists,
    members: &'a [u32],
}

impl Relation for Inside<'_> {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        for (number, &node) in self.members.iter().enumerate() {
            for to in self.forward.of(node) {
                if let Ok(to) = self.members.binary_search(to) {
                    take(number as u32, to as u32);
                }
            }
        }
    }
}

/// Puts the nodes of a component of the guess in an order that agrees with what is known, by their ranks in the guess.
/// The error is a cycle of what is known.
fn inside(
    known: &Known<'_>,
    forward: &Lists,
    ranks: &[u64],
    mut members: Vec<u32>,
    order: &mut Vec<u32>,
) -> Result<(), Vec<u32>> {
    members.sort_unstable();
    let relation = Inside {
        forward,
        members: &members,
    };
    let rank = |number: u32| ranks[members[number as usize] as usize];
    let ranked = ranked(members.len() as u32, &relation, rank);
    if ranked.len() == members.len() {
        order.extend(ranked.into_iter().map(|number| members[number as usize]));
        return Ok(());
    }
    let graph = Lists::forward(members.len(), &relation);
    let cycle = shortest(&graph).into_iter();
    let cycle = cycle.filter_map(|number| known.transaction(members[number as usize]));
    let cycle: BTreeSet<u32> = cycle.collect();
    Err(cycle.into_iter().collect())
}

/// Nodes from which a cycle is looked for at most.
const ROOTS_MAX: usize = 256;

/// The nodes of a short cycle of a graph that has one: the shortest through any of the first nodes that are on cycles.
fn shortest(graph: &Lists) -> Vec<u32> {
    let mut roots = Vec::new();
    visit(graph, 0..graph.rows(), |members| {
        let is_loop = |&node: &u32| graph.of(node).contains(&node);
        if members.len() > 1 || members.iter().any(is_loop) {
            roots.extend(members.iter().take(ROOTS_MAX));
        }
    });
    roots.truncate(ROOTS_MAX);
    let mut best: Vec<u32> = Vec::new();
    let mut origins = vec![NONE; graph.rows() as usize];
    for root in roots {
        let mut waiting = vec![root];
        let mut next = 0;
        'walk: while let Some(&node) = waiting.get(next) {
            next += 1;
            for &to in graph.of(node) {
                if to == root {
                    let back = |&node: &u32| (node != root).then(|| origins[node as usize]);
                    let cycle: Vec<u32> = std::iter::successors(Some(node), back).collect();
                    if best.is_empty() || cycle.len() < best.len() {
                        best = cycle;
                    }
                    break 'walk;
                }
                if origins[to as usize] == NONE {
                    origins[to as usize] = node;
                    waiting.push(to);
                }
            }
        }
        for node in waiting {
            origins[node as usize] = NONE;
        }
    }
    best
}
