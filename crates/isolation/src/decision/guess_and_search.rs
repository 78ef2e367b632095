//! From constraints to a decision: guesses, and searches from the best one.

use super::clause_search::{ClauseSearch, SearchAnswer};
use super::constraints::Constraints;
use super::guess_repair::GuessRepair;
use super::known_order::{GuessedOrder, KnownOrder};
use super::order_model::{Axiom, OrderModel, RespectedOrder};
use super::relation::{Relation, successors};
use super::replay_guess::{GuessReplay, ReplayResult};
use super::version_blocks::{UpdateFork, VersionBlocks};
use super::version_zones::{TransactionWindows, ranked};
use seatrial_cycles::components::visit;
use seatrial_cycles::graph::GraphNode;
use seatrial_cycles::{Csr, NONE, Txn};
use std::collections::BTreeSet;

/// The decision about constraints.
#[derive(Debug)]
pub(super) enum OrderDecision {
    /// This order explains all.
    Holds(OrderWitness),
    /// No order explains these transactions (sorted). Few, but not minimal.
    Fails(Vec<u32>),
    /// The search reached its bound.
    Open,
}

/// An order that explains all reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderWitness {
    /// Transactions one after another.
    Serial(Vec<u32>),
    /// Each transaction twice: its snapshot, then its commit.
    Snapshots(Vec<u32>),
    /// Transactions, each after those that it sees; versions of a key are in this order.
    Visible(Vec<u32>),
}

impl OrderWitness {
    /// The same order as a witness of a weaker axiom.
    fn into_witness_of(self, axiom: Axiom) -> OrderWitness {
        match self {
            // A transaction that runs alone takes its snapshot and commits at once.
            OrderWitness::Serial(order) if axiom != Axiom::Serializable => {
                OrderWitness::Snapshots(order.iter().flat_map(|&one| [one, one]).collect())
            }
            other => other,
        }
    }

    /// Transactions in the order in which they commit.
    pub fn commits(&self) -> Vec<u32> {
        match self {
            OrderWitness::Serial(order) | OrderWitness::Visible(order) => order.clone(),
            OrderWitness::Snapshots(order) => {
                let mut seen = vec![false; order.len()];
                let is_second = |&&one: &&u32| std::mem::replace(&mut seen[one as usize], true);
                order.iter().filter(is_second).copied().collect()
            }
        }
    }

    /// The same with `names[number]` for each transaction.
    pub fn renamed(mut self, names: &[u32]) -> OrderWitness {
        let (OrderWitness::Serial(order)
        | OrderWitness::Snapshots(order)
        | OrderWitness::Visible(order)) = &mut self;
        for number in order {
            *number = names[*number as usize];
        }
        self
    }
}

/// The effort of a decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchEffort {
    /// Edges and literals that searches looked at.
    pub steps: u64,
    /// Upper bound for the events that the first guess got wrong.
    pub unsettled: u64,
    /// Pairs of versions that searches had to order.
    pub pairs: u64,
    /// Conflicts and other clauses that searches learned.
    pub clauses: u64,
}

/// Decides whether an order explains these constraints under a model; a search is stopped after `steps_max` steps.
pub(super) fn decide(
    constraints: &Constraints,
    model: OrderModel,
    steps_max: u64,
    effort: &mut SearchEffort,
) -> OrderDecision {
    let blocks = match VersionBlocks::new(constraints, model.axiom.is_chained()) {
        Ok(blocks) => blocks,
        Err(UpdateFork {
            version,
            one,
            other,
        }) => {
            // Sorted, each once; an initial state has no writer.
            let writer = constraints.writer(version);
            let core: BTreeSet<Txn> = [one, other].into_iter().chain(writer).collect();
            return OrderDecision::Fails(core.into_iter().map(Txn::get).collect());
        }
    };
    if model.axiom == Axiom::Parallel {
        return super::parallel_snapshot::decide(constraints, &blocks, model, steps_max, effort);
    }
    let known = KnownOrder::new(constraints, &blocks, model);
    settle(&known, steps_max, effort)
}

/// The result of guesses.
enum GuessResult {
    /// All nodes in an order that explains everything.
    Right(Vec<u32>),
    /// No guess was right; this one has the fewest wrong events.
    Wrong(Box<WrongGuess>),
    /// No order explains these transactions.
    Refuted(BTreeSet<u32>),
}

/// Steps of a quick search from a guess that is wrong about few events.
const QUICK_STEPS_MAX: u64 = 10_000_000;

/// A witness that is found quickly: by a right guess, or by a short search from a guess that is wrong about few events.
/// Otherwise linear.
pub(super) fn guessed(constraints: &Constraints, model: OrderModel) -> Option<OrderWitness> {
    let blocks = VersionBlocks::new(constraints, model.axiom.is_chained()).ok()?;
    let known = KnownOrder::new(constraints, &blocks, model);
    let mut effort = SearchEffort::default();
    match guess(&known, &mut effort) {
        GuessResult::Right(order) => Some(witness(&known, order)),
        GuessResult::Wrong(miss) if miss.unsettled <= UNSETTLED_MANY => {
            match search(&known, *miss, QUICK_STEPS_MAX, &mut effort) {
                OrderDecision::Holds(witness) => Some(witness),
                OrderDecision::Fails(_) | OrderDecision::Open => None,
            }
        }
        GuessResult::Refuted(_) | GuessResult::Wrong(_) => None,
    }
}

/// A guess that is wrong.
#[derive(Clone)]
pub(super) struct WrongGuess {
    /// By node: its rank in the guessed order.
    pub(super) ranks: Vec<u64>,
    pub(super) heads: Csr<u32>,
    /// The strongly connected components of known and guessed edges, in topological order.
    pub(super) components: Csr<u32>,
    /// Number of nodes on cycles.
    unsettled: u64,
}

/// If a guess is wrong about more nodes than this, stronger models are tried as well. Small in tests, whose histories are
/// small.
const UNSETTLED_MANY: u64 = if cfg!(test) { 2 } else { 100 };

/// Fractions of the bound (one over these) for the searches in turn; the last one takes all that is left.
const SHARES: [u64; 3] = [64, 8, 1];

/// Stronger models, which a history that keeps this one keeps as a rule, and which leave far fewer choices: with real time
/// (session order where there are no times), serializability instead of snapshot isolation, and either instead of prefix
/// consistency.
fn stronger(known: &KnownOrder<'_>) -> Vec<OrderModel> {
    let OrderModel { axiom, follows } = known.model;
    let is_timed = known.constraints.times.iter().any(|time| time.1 != NONE);
    let follows = follows.max(if is_timed {
        RespectedOrder::Time
    } else {
        RespectedOrder::Sessions
    });
    let axioms = match axiom {
        Axiom::Parallel => return Vec::new(),
        Axiom::Snapshot => vec![Axiom::Serializable, axiom],
        Axiom::Prefix => vec![Axiom::Snapshot, axiom],
        Axiom::Serializable => vec![axiom],
    };
    let models = axioms
        .into_iter()
        .map(|axiom| OrderModel { axiom, follows });
    models.filter(|&it| it != known.model).collect()
}

/// Guesses, and searches from the best guess if none is right. If that was far off, this model and stronger ones are searched
/// in turn, each with a small bound before any gets a large one: a witness of a stronger model is one of this model.
pub(super) fn settle(
    known: &KnownOrder<'_>,
    steps_max: u64,
    effort: &mut SearchEffort,
) -> OrderDecision {
    let miss = match guess(known, effort) {
        GuessResult::Right(order) => return OrderDecision::Holds(witness(known, order)),
        GuessResult::Refuted(core) => return OrderDecision::Fails(core.into_iter().collect()),
        GuessResult::Wrong(miss) => miss,
    };
    if miss.unsettled <= UNSETTLED_MANY {
        return search(known, *miss, steps_max, effort);
    }
    let miss = match repair(known, miss, steps_max) {
        Ok(order) => return OrderDecision::Holds(witness(known, order)),
        Err(miss) => miss,
    };
    let mut others = stronger(known);
    for share in SHARES {
        let bound = (steps_max / share).min(steps_max.saturating_sub(effort.steps));
        let is_last = share == 1;
        let decision = search(known, miss.as_ref().clone(), bound, effort);
        if is_last || !matches!(decision, OrderDecision::Open) {
            return decision;
        }
        let mut open = Vec::new();
        for model in others {
            let other = KnownOrder::new(known.constraints, known.blocks, model);
            let decision = match guess(&other, &mut SearchEffort::default()) {
                GuessResult::Right(order) => OrderDecision::Holds(witness(&other, order)),
                GuessResult::Refuted(_) => continue,
                GuessResult::Wrong(miss) => match repair(&other, miss, steps_max / share) {
                    Ok(order) => OrderDecision::Holds(witness(&other, order)),
                    Err(miss) => search(&other, *miss, steps_max / share, effort),
                },
            };
            match decision {
                OrderDecision::Holds(witness) => {
                    return OrderDecision::Holds(witness.into_witness_of(known.model.axiom));
                }
                OrderDecision::Open => open.push(model),
                OrderDecision::Fails(_) => {}
            }
        }
        others = open;
    }
    OrderDecision::Open
}

/// Searches from the guess that versions are in the order of their writers in `commits`.
pub(super) fn settle_from(
    known: &KnownOrder<'_>,
    commits: &[u32],
    steps_max: u64,
    effort: &mut SearchEffort,
) -> OrderDecision {
    let mut ranks = vec![0_u64; known.nodes() as usize];
    for (place, &number) in commits.iter().enumerate() {
        ranks[known.commit(number) as usize] = place as u64;
    }
    let mut heads = known.blocks.heads.clone();
    for key in 0..known.constraints.keys {
        let rank = |&head: &u32| ranks[known.written(head) as usize];
        heads.row_mut(key).sort_unstable_by_key(rank);
    }
    let mut best = None;
    match attempt(known, heads, |node| ranks[node as usize], &mut best) {
        Some(order) => OrderDecision::Holds(witness(known, order)),
        None => match best {
            Some(miss) => search(known, *miss, steps_max, effort),
            None => OrderDecision::Open,
        },
    }
}

/// Largest distance from a component to transactions that belong to its region.
const REPAIR_DEPTH_MAX: u32 = 6;

/// Repairs a guess component by component, with larger and larger regions around those that are left. Returns all nodes in
/// an order that explains everything, otherwise the best guess.
fn repair(
    known: &KnownOrder<'_>,
    miss: Box<WrongGuess>,
    steps_max: u64,
) -> Result<Vec<u32>, Box<WrongGuess>> {
    if known.model.axiom == Axiom::Parallel {
        return Err(miss);
    }
    let mut steps = steps_max;
    let mut best = miss;
    for depth in 1..=REPAIR_DEPTH_MAX {
        let heads = GuessRepair::new(known, &best, &mut steps).run(depth);
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

/// Makes and verifies guesses. If those from windows alone are far off, transactions are replayed.
fn guess(known: &KnownOrder<'_>, effort: &mut SearchEffort) -> GuessResult {
    let mut best: Option<Box<WrongGuess>> = None;
    let windows = TransactionWindows::guesses(known);
    for windows in &windows {
        let heads = windows.order(known);
        let rank = |node: u32| known.transaction(node).map_or(0, |one| windows.middle(one));
        if let Some(order) = attempt(known, heads, rank, &mut best) {
            return GuessResult::Right(order);
        }
    }
    effort.unsettled += best.as_ref().map_or(0, |best| best.unsettled);
    if known.model.axiom == Axiom::Parallel {
        return best.map_or(GuessResult::Right(Vec::new()), GuessResult::Wrong);
    }
    for windows in &windows {
        if best
            .as_ref()
            .is_some_and(|best| best.unsettled <= UNSETTLED_MANY)
        {
            break;
        }
        match GuessReplay::new(known, |number| windows.deadline(number)).run() {
            ReplayResult::Refuted(core) => return GuessResult::Refuted(core),
            ReplayResult::Stopped => {}
            ReplayResult::Order { heads, places } => {
                let rank = |node: u32| u64::from(places[node as usize]);
                if let Some(order) = attempt(known, heads, rank, &mut best) {
                    return GuessResult::Right(order);
                }
            }
        }
    }
    // There is always at least one guess.
    best.map_or(GuessResult::Right(Vec::new()), GuessResult::Wrong)
}

/// Verifies one guess. Returns all nodes in an order that explains everything; otherwise keeps the guess if it is the best.
fn attempt(
    known: &KnownOrder<'_>,
    heads: Csr<u32>,
    rank: impl Fn(u32) -> u64,
    best: &mut Option<Box<WrongGuess>>,
) -> Option<Vec<u32>> {
    let components = match verify(known, &heads) {
        // An order in which transactions become visible shows only that versions have an order, not that reads are right.
        Ok(order) if known.model.axiom == Axiom::Parallel => single(&order),
        Ok(order) => return Some(order),
        Err(components) => components,
    };
    let sizes = components
        .row_numbers()
        .map(|row| components.row(row).len() as u64);
    let unsettled = sizes.filter(|&size| size > 1).sum();
    if best.as_ref().is_none_or(|best| unsettled < best.unsettled) {
        *best = Some(Box::new(WrongGuess {
            ranks: (0..known.nodes()).map(rank).collect(),
            heads,
            components,
            unsettled,
        }));
    }
    None
}

/// The witness for an order of nodes.
fn witness(known: &KnownOrder<'_>, mut order: Vec<u32>) -> OrderWitness {
    order.retain(|&node| node < known.events());
    assert_eq!(
        order.len(),
        known.events() as usize,
        "a witness has each event once"
    );
    match known.model.axiom {
        Axiom::Serializable => return OrderWitness::Serial(order),
        Axiom::Parallel => return OrderWitness::Visible(order),
        Axiom::Snapshot | Axiom::Prefix => {}
    }
    for event in &mut order {
        *event /= 2;
    }
    OrderWitness::Snapshots(order)
}

/// Verifies an order of blocks: if it has no cycle with the known edges, it explains all reads, wherever it came from.
/// Returns all nodes in topological order, otherwise the strongly connected components in topological order. Linear.
fn verify(known: &KnownOrder<'_>, heads: &Csr<u32>) -> Result<Vec<u32>, Csr<u32>> {
    let graph = successors(known.nodes() as usize, &GuessedOrder::new(known, heads));
    if let Some(order) = topological(&graph) {
        return Ok(order);
    }
    // Each component is found after all that it reaches, so they are collected and put into reverse order.
    let (mut ends, mut members) = (Vec::new(), Vec::new());
    visit(&graph, 0..known.nodes(), |component| {
        members.extend_from_slice(component);
        ends.push(members.len());
    });
    let mut components = Csr::default();
    for (place, &end) in ends.iter().enumerate().rev() {
        let start = place.checked_sub(1).map_or(0, |before| ends[before]);
        members[start..end]
            .iter()
            .for_each(|&node| components.push(node));
        components.end_row();
    }
    assert_eq!(components.item_count(), known.nodes() as usize);
    Err(components)
}

/// Each node as a component of its own.
fn single(order: &[u32]) -> Csr<u32> {
    let mut components = Csr::default();
    for &node in order {
        components.push(node);
        components.end_row();
    }
    components
}

/// All nodes in topological order (Kahn 1962); `None` if there is a cycle.
pub(super) fn topological(graph: &Csr<u32>) -> Option<Vec<u32>> {
    let mut before = vec![0_u32; graph.row_count()];
    graph.emit(&mut |_, to| before[to as usize] += 1);
    let free = graph
        .row_numbers()
        .filter(|&node| before[node as usize] == 0);
    let mut order = Vec::with_capacity(before.len());
    order.extend(free);
    let mut next = 0;
    while let Some(&node) = order.get(next) {
        next += 1;
        for &to in graph.row(node) {
            let count = &mut before[to as usize];
            *count -= 1;
            if *count == 0 {
                order.push(to);
            }
        }
    }
    assert!(order.len() <= before.len(), "a node is in the order twice");
    (order.len() == before.len()).then_some(order)
}

fn search(
    known: &KnownOrder<'_>,
    miss: WrongGuess,
    steps_max: u64,
    effort: &mut SearchEffort,
) -> OrderDecision {
    let WrongGuess {
        ranks,
        heads,
        components,
        ..
    } = miss;
    let forward = successors(known.nodes() as usize, known);
    let mut order = Vec::with_capacity(known.nodes() as usize);
    let mut doubtful = Vec::new();
    for row in components.row_numbers() {
        match components.row(row) {
            &[node] => order.push(node),
            members => {
                let members = members.to_vec();
                let numbers = members.iter().filter_map(|&node| known.transaction(node));
                doubtful.extend(numbers);
                if let Err(cycle) = inside(known, &forward, &ranks, members, &mut order) {
                    return OrderDecision::Fails(cycle);
                }
            }
        }
    }
    assert_eq!(order.len(), known.nodes() as usize);
    drop((components, ranks));
    let mut search = ClauseSearch::new(known, &order, forward, heads, doubtful);
    let answer = search.run(steps_max);
    effort.steps += search.steps();
    effort.pairs += search.pairs() as u64;
    effort.clauses += search.clauses() as u64;
    match answer {
        SearchAnswer::Order(order) => OrderDecision::Holds(witness(known, order)),
        SearchAnswer::Core(core) => OrderDecision::Fails(core.into_iter().collect()),
        SearchAnswer::Stopped => OrderDecision::Open,
    }
}

/// The edges between some nodes, which are renumbered by index.
struct InsideComponent<'a> {
    forward: &'a Csr<u32>,
    members: &'a [u32],
}

impl Relation for InsideComponent<'_> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for (number, &node) in self.members.iter().enumerate() {
            for to in self.forward.row(node) {
                if let Ok(to) = self.members.binary_search(to) {
                    take(number as u32, to as u32);
                }
            }
        }
    }
}

/// Appends the nodes of a component of the guess in an order that agrees with the known edges, otherwise by their ranks. The
/// error is a cycle of known edges.
fn inside(
    known: &KnownOrder<'_>,
    forward: &Csr<u32>,
    ranks: &[u64],
    mut members: Vec<u32>,
    order: &mut Vec<u32>,
) -> Result<(), Vec<u32>> {
    members.sort_unstable();
    let relation = InsideComponent {
        forward,
        members: &members,
    };
    let rank = |number: u32| ranks[members[number as usize] as usize];
    let ranked = ranked(members.len() as u32, &relation, rank);
    if ranked.len() == members.len() {
        order.extend(ranked.into_iter().map(|number| members[number as usize]));
        return Ok(());
    }
    let graph = successors(members.len(), &relation);
    let cycle = shortest(&graph).into_iter();
    let cycle = cycle.filter_map(|number| known.transaction(members[number as usize]));
    let cycle: BTreeSet<u32> = cycle.collect();
    Err(cycle.into_iter().collect())
}

/// Number of nodes through which a short cycle is searched for.
const ROOTS_MAX: usize = 256;

/// The nodes of a short cycle of a graph that has one: the shortest through one of the first nodes on cycles.
fn shortest(graph: &Csr<u32>) -> Vec<u32> {
    let mut roots = Vec::new();
    visit(graph, graph.row_numbers(), |members| {
        let is_loop = |&node: &u32| graph.row(node).contains(&node);
        if members.len() > 1 || members.iter().any(is_loop) {
            roots.extend(members.iter().take(ROOTS_MAX));
        }
    });
    roots.truncate(ROOTS_MAX);
    let mut best: Vec<u32> = Vec::new();
    // By node: the one from which the walk reached it. Only the entries of a walk are cleared after it.
    let mut origins: Vec<Option<GraphNode>> = vec![None; graph.row_count()];
    for root in roots {
        let mut waiting = vec![root];
        let mut next = 0;
        'walk: while let Some(&node) = waiting.get(next) {
            next += 1;
            for &to in graph.row(node) {
                if to == root {
                    let back = |&node: &u32| {
                        let origin = origins[node as usize].filter(|_| node != root)?;
                        Some(origin.get())
                    };
                    let cycle: Vec<u32> = std::iter::successors(Some(node), back).collect();
                    if best.is_empty() || cycle.len() < best.len() {
                        best = cycle;
                    }
                    break 'walk;
                }
                if origins[to as usize].is_none() {
                    origins[to as usize] = Some(GraphNode::new(node));
                    waiting.push(to);
                }
            }
        }
        for node in waiting {
            origins[node as usize] = None;
        }
    }
    best
}
