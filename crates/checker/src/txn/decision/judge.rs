//! From facts to a decision.

use super::blocks::{Blocks, Fork};
use super::facts::Facts;
use super::known::{Guessed, Known};
use super::lists::{Lists, Relation};
use super::promise::{Axiom, Follows, Promise};
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
    /// Transactions that the guess got wrong, at most.
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

/// A guess that was not right.
struct Miss {
    windows: Windows,
    heads: Lists,
    /// The components of what is known and guessed, in topological order.
    components: Lists,
    /// Nodes that are on cycles.
    unsettled: u64,
}

/// More nodes than this that the guess got wrong make it worth while to ask for more than was promised. Tests know only small
/// histories.
const UNSETTLED_MANY: u64 = if cfg!(test) { 6 } else { 100 };

/// The witness of a stronger promise, which as a rule is kept if this one is, and leaves the search far less to choose from:
/// with real time besides (the order of sessions, where there are no times), and serializability instead of snapshot
/// isolation. Where there are two to try, each gets little effort before either gets much.
fn of_stronger(known: &Known<'_>, steps_max: u64, effort: &mut Effort) -> Option<Witness> {
    let Promise { axiom, follows } = known.promise;
    let is_timed = known.facts.times.iter().any(|time| time.1 != NONE);
    let follows = follows.max(if is_timed {
        Follows::Time
    } else {
        Follows::Sessions
    });
    let (axioms, shares) = match axiom {
        Axiom::Parallel => return None,
        Axiom::Snapshot => (vec![Axiom::Serializable, axiom], &[64, 8][..]),
        _ => (vec![axiom], &[8][..]),
    };
    let promises = axioms.into_iter().map(|axiom| Promise { axiom, follows });
    let mut open: Vec<Promise> = promises.filter(|&it| it != known.promise).collect();
    for share in shares {
        let mut undecided = Vec::new();
        for promise in open {
            let stronger = Known::new(known.facts, known.blocks, promise);
            let mut more = Effort::default();
            let decision = settle(&stronger, steps_max / share, &mut more);
            effort.steps += more.steps;
            effort.pairs += more.pairs;
            effort.clauses += more.clauses;
            match decision {
                Decision::Holds(witness) => return Some(witness.of(known.promise.axiom)),
                Decision::Open => undecided.push(promise),
                Decision::Fails(_) => {}
            }
        }
        open = undecided;
    }
    None
}

/// Guesses, and searches from the best guess when none is right.
pub(super) fn settle(known: &Known<'_>, steps_max: u64, effort: &mut Effort) -> Decision {
    match guess(known) {
        Ok(order) => Decision::Holds(witness(known, order)),
        Err(miss) => {
            effort.unsettled += miss.unsettled;
            if miss.unsettled > UNSETTLED_MANY
                && let Some(witness) = of_stronger(known, steps_max, effort)
            {
                return Decision::Holds(witness);
            }
            search(known, *miss, steps_max, effort)
        }
    }
}

/// Verifies guesses: all nodes in an order that explains everything, or the guess that was wrong about least.
fn guess(known: &Known<'_>) -> Result<Vec<u32>, Box<Miss>> {
    let mut best: Option<Box<Miss>> = None;
    for windows in Windows::guesses(known) {
        let heads = windows.order(known);
        let components = match verify(known, &heads) {
            // An order of transactions as they become visible says only that versions have one.
            Ok(order) if known.promise.axiom == Axiom::Parallel => single(&order),
            Ok(order) => return Ok(order),
            Err(components) => components,
        };
        let sizes = (0..components.rows()).map(|row| components.of(row).len() as u64);
        let unsettled = sizes.filter(|&size| size > 1).sum();
        if best.as_ref().is_none_or(|best| unsettled < best.unsettled) {
            best = Some(Box::new(Miss {
                windows,
                heads,
                components,
                unsettled,
            }));
        }
    }
    // There always is a guess.
    best.map_or(Ok(Vec::new()), Err)
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
fn topological(graph: &Lists) -> Option<Vec<u32>> {
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
        windows,
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
                if let Err(cycle) = inside(known, &forward, &windows, members, &mut order) {
                    return Decision::Fails(cycle);
                }
            }
        }
    }
    drop((components, windows));
    let mut search = Search::new(known, &order, forward, heads, doubtful);
    let answer = search.run(steps_max.saturating_sub(effort.steps));
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

/// Puts the nodes of a component of the guess in an order that agrees with what is known, by the middles of their
/// windows. The error is a cycle of what is known.
fn inside(
    known: &Known<'_>,
    forward: &Lists,
    windows: &Windows,
    mut members: Vec<u32>,
    order: &mut Vec<u32>,
) -> Result<(), Vec<u32>> {
    members.sort_unstable();
    let relation = Inside {
        forward,
        members: &members,
    };
    let rank = |number: u32| {
        let transaction = known.transaction(members[number as usize]);
        transaction.map_or(0, |number| windows.middle(number))
    };
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
