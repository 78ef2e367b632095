//! Windows: checks them one after another and keeps the results.

use super::definite::Definite;
use super::list_edges::OrderKinds;
use super::list_proof::{self, OrderProofKind};
use super::list_table::{AppendList, ListTable};
use super::lists::OrderedLists;
use super::read_anomalies::{Suspect, Suspects};
use super::strict_order::{StrictOrder, strict_order};
use super::unread::UndecidedAppends;
use super::witness_context::WitnessContext;
use super::{ListAppend, ListDependencies};
use crate::graph_verdict::TransactionTally;
use seatrial_checker::FINDINGS_MAX;
use seatrial_checker::{Anomaly, Verdict};
use seatrial_cycles::anomaly::{CycleKind, CycleVariant, NO_ORDER};
use seatrial_cycles::components::{Adjacency as _, visit};
use seatrial_cycles::cycles::find_cycles_within;
use seatrial_cycles::search::{ComponentSketch, CycleReport, SKETCHES_MAX};
use seatrial_cycles::shape::{ShapeGraph, TooManyEdges};
use seatrial_cycles::{Level, Position, SearchBound, Txn, forbidden_cycles};
use seatrial_history::{FixedMap, OpType};
use seatrial_isolation::decision::{GivenDecision, OrderWitness};
use std::collections::{BTreeMap, BTreeSet};

/// Checks a history window by window, and keeps the results.
///
/// A window is the transactions in memory. A transaction is settled when all keys that it accessed are closed: then all its
/// dependencies are known, and all edges that lead to it. A transaction that no unsettled one leads to (at any distance, by real
/// time and sessions too, as far as the level has them) can be on no cycle with a later one, so its cycles are reported, and it
/// is freed; edges that lead out of it no longer matter. So every transaction is checked once, with all transactions that it
/// could be on a cycle with, and the verdict is that of the whole history: for all levels, wherever windows begin and end. (For
/// levels without real time this is Cobra's rule, Tan et al., OSDI 2020, with closed keys in the place of fences.)
///
/// Its downside: it needs keys that fall out of use; the oldest key in use keeps every later transaction in memory.
pub(super) struct WindowRecord {
    checker: ListAppend,
    pub(super) counts: BTreeMap<Anomaly, u64>,
    /// The first of each anomaly, in numbers of their window.
    pub(super) kept: BTreeMap<Anomaly, Vec<KeptSuspect>>,
    /// The largest components, each with the number of its context.
    pub(super) sketches: Vec<(usize, ComponentSketch)>,
    /// The contexts of these suspects and components.
    pub(super) contexts: Vec<WitnessContext>,
    pub(super) tally: TransactionTally,
    pub(super) keys: usize,
    pub(super) edges: usize,
    /// Keys with unread appends whose order neither the graph nor a search decides, and the number of these appends.
    pub(super) undecided: (usize, usize),
    /// Keys whose unread appends the order of components does not order, whatever a search decides.
    pub(super) doubtful: usize,
    /// Positions of transactions that no order of unread appends explains.
    pub(super) core: Option<Vec<u64>>,
    pub(super) found: CycleReport,
    /// Windows so far.
    pub(super) windows: usize,
    /// Transactions of the largest.
    pub(super) largest_window: usize,
    /// Are there contradictory reads of a list?
    pub(super) is_torn: bool,
    /// The proof of the level so far; `None` once a window had cycles that the level allows and no order of another kind.
    pub(super) proof: Option<&'static str>,
    /// Positions of the freed transactions, in an order that proves the level; `None` if it is not wanted, or if there is none.
    pub(super) order: Option<Vec<Position>>,
}

/// A suspect in numbers of its window.
pub(super) struct KeptSuspect {
    /// The number of its context.
    pub(super) context: usize,
    pub(super) suspect: Suspect,
    /// Can no later operation explain it?
    pub(super) is_definite: bool,
}

/// The result of a window: what can be freed.
pub(super) struct WindowResult {
    /// By transaction: is it decided?
    pub(super) gone: Vec<bool>,
    /// By transaction: did it take effect?
    pub(super) happened: Vec<bool>,
    /// By list: can it be freed?
    pub(super) leaving: Vec<bool>,
}

/// The dependency graph of a window, without the kinds of its edges.
struct ListGraph<'a> {
    lists: &'a OrderedLists,
    wanted: BTreeSet<CycleKind>,
    /// The orders of the cycles that are searched for.
    all: OrderKinds,
    rows: ShapeGraph,
}

impl ListGraph<'_> {
    fn new(lists: &OrderedLists, level: Level) -> Result<ListGraph<'_>, TooManyEdges> {
        let wanted = forbidden_cycles(level);
        let all = orders(&wanted);
        let orders = OrderKinds {
            process: all.process && !(all.realtime && includes_processes(all, lists)),
            ..all
        };
        let rows = ShapeGraph::new(lists.table.len(), &ListDependencies { lists, orders })?;
        Ok(ListGraph {
            lists,
            wanted,
            all,
            rows,
        })
    }

    /// Finds the cycles inside of these components, adds them to the suspects, and returns the rest of the report.
    fn cycles(
        self,
        components: &[Vec<u32>],
        bound: SearchBound,
        suspects: &mut Suspects,
    ) -> CycleReport {
        let (lists, orders, nodes) = (self.lists, self.all, self.rows.node_count());
        drop(self.rows);
        let dependencies = ListDependencies { lists, orders };
        let count = lists.table.len();
        let mut found =
            find_cycles_within(count, nodes, &dependencies, components, &self.wanted, bound);
        for (kind, cycle) in found.cycles.drain(..) {
            suspects.add(kind.name(), || Suspect::Cycle(cycle));
        }
        found
    }
}

/// A window whose dependency graph has cycles.
struct CyclicWindow<'a> {
    lists: &'a OrderedLists,
    /// Components that are decided now.
    components: &'a [Vec<u32>],
    /// By node: the rank of its component; edges lead to the same or to a higher rank. Empty if it is not needed.
    ranks: &'a [u32],
}

/// The ranks of the components of all nodes, in topological order.
fn ranks(rows: &ShapeGraph) -> Vec<u32> {
    let nodes = rows.node_count() as u32;
    let mut ranks = vec![0; rows.node_count()];
    let mut next = nodes;
    visit(rows, 0..nodes, |members| {
        // The traversal visits components after those that they reach.
        next -= 1;
        for &node in members {
            ranks[node as usize] = next;
        }
    });
    assert!(next <= nodes, "each component has a rank of its own");
    ranks
}

/// The transactions among these nodes; helper nodes come after all of them.
fn transactions_of(nodes: &[u32], count: usize) -> impl Iterator<Item = Txn> {
    let nodes = nodes.iter().filter(move |&&node| (node as usize) < count);
    nodes.map(|&node| Txn::new(node))
}

/// The orders of the cycles that are searched for.
fn orders(wanted: &BTreeSet<CycleKind>) -> OrderKinds {
    let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
    OrderKinds {
        process: wants(CycleVariant::Process),
        realtime: wants(CycleVariant::Realtime),
    }
}

/// Does real time include the order of each process, if that is needed? It does if the invocation of each transaction is known.
fn includes_processes(all: OrderKinds, lists: &OrderedLists) -> bool {
    !all.process || !lists.table.transactions.invocations().contains(&None)
}

impl WindowRecord {
    /// No windows yet. With `certify`, orders are kept.
    pub(super) fn new(checker: ListAppend, certify: bool) -> WindowRecord {
        WindowRecord {
            checker,
            counts: BTreeMap::new(),
            kept: BTreeMap::new(),
            sketches: Vec::new(),
            contexts: Vec::new(),
            tally: TransactionTally {
                transactions: 0,
                ok: 0,
                fail: 0,
            },
            keys: 0,
            edges: 0,
            undecided: (0, 0),
            doubtful: 0,
            core: None,
            found: CycleReport::nothing(),
            windows: 0,
            largest_window: 0,
            is_torn: false,
            proof: Some(Verdict::SERIAL_ORDER),
            order: certify.then(Vec::new),
        }
    }

    /// The level that is checked.
    pub(super) fn level(&self) -> Level {
        self.checker.level
    }

    /// Decides the transactions of these lists that can be decided, where some lists are now closing; all if `is_last`.
    pub(super) fn check_window(
        &mut self,
        lists: &mut OrderedLists,
        closing: &[bool],
        is_last: bool,
    ) -> Result<WindowResult, TooManyEdges> {
        let mut suspects = Suspects::default();
        lists.find_direct(closing, &mut suspects);
        let closed = lists.table.lists.iter().zip(closing);
        let mut closed = closed.filter(|(_, closing)| **closing);
        self.is_torn |= closed.any(|(list, _)| list.conflict.is_some());
        if self.is_torn {
            // The level may tolerate it, but no order can be replayed.
            self.order = None;
        }
        let gone = self.cycles(lists, closing, is_last, &mut suspects)?;
        let sketches = std::mem::take(&mut self.found.sketches);
        self.keep(lists, suspects, sketches);
        self.count(&lists.table, &gone);
        // A key counts once its list leaves: only then it is known which transactions of unknown outcome took effect.
        let leaving = lists.table.leaving(&gone, closing);
        let named = lists.table.lists.iter().zip(&leaving);
        let is_new = |list: &AppendList| !list.again.is_some_and(|again| again.is_counted);
        let new = named.filter(|(list, leaving)| **leaving && is_new(list));
        self.keys += new.count();
        self.windows += 1;
        self.largest_window = self.largest_window.max(lists.table.len());
        let happened = lists.take_happened();
        assert!(
            gone.len() == lists.table.len() && happened.len() == gone.len(),
            "one answer for each transaction"
        );
        assert!(
            !is_last || gone.iter().all(|&gone| gone),
            "the last window frees all"
        );
        Ok(WindowResult {
            gone,
            happened,
            leaving,
        })
    }

    /// An order of all transactions that respects real time, if there is one; then no graph is needed. For a level without real
    /// time the graph can free more transactions, so this is tried only if nothing stays.
    fn strict_order(
        &self,
        lists: &OrderedLists,
        unsettled: &[bool],
        is_last: bool,
    ) -> Option<StrictOrder> {
        let all = orders(&forbidden_cycles(self.checker.level));
        let applies = (is_last || all.realtime) && includes_processes(all, lists);
        applies.then(|| strict_order(lists, unsettled, self.order.is_some()))?
    }

    /// Adds all cycles among decided transactions; returns by transaction whether it is decided.
    fn cycles(
        &mut self,
        lists: &OrderedLists,
        closing: &[bool],
        is_last: bool,
        suspects: &mut Suspects,
    ) -> Result<Vec<bool>, TooManyEdges> {
        let level = self.checker.level;
        let count = lists.table.len();
        let unsettled = if is_last {
            Vec::new()
        } else {
            lists.unsettled(closing)
        };
        if let Some(replayed) = self.strict_order(lists, &unsettled, is_last) {
            let StrictOrder { order, gone, edges } = replayed;
            self.edges += edges;
            self.append_order(lists, order, |number| gone[number.index()]);
            return Ok(gone);
        }
        let graph = ListGraph::new(lists, level)?;
        let rows = &graph.rows;
        let peeled = rows.peel();
        let mut components = rows.components(&peeled, count as u32);
        let order = peeled.order;
        drop(peeled.in_degrees);
        let stays = if is_last {
            Vec::new()
        } else {
            let from = unsettled
                .iter()
                .zip(0..)
                .filter(|(unsettled, _)| **unsettled);
            rows.reached(from.map(|(_, number)| number))
        };
        let is_gone_node = |node: u32| !stays.get(node as usize).copied().unwrap_or(false);
        let is_gone = |number: Txn| is_gone_node(number.get());
        components.retain(|members| is_gone_node(members[0]));
        self.edges += if is_last {
            rows.edge_count()
        } else {
            let nodes = (0..rows.node_count() as u32).filter(|&node| is_gone_node(node));
            nodes.map(|node| rows.degree(node)).sum()
        };
        if components.is_empty() {
            self.append_order(lists, transactions_of(&order, count), is_gone);
            return Ok(Txn::all(count).map(is_gone).collect());
        }
        drop(order);
        let ranks = if self.needs_events() {
            ranks(rows)
        } else {
            Vec::new()
        };
        let found = graph.cycles(&components, self.checker.bound, suspects);
        self.found.components += found.components;
        self.found.largest = self.found.largest.max(found.largest);
        self.found.complete &= found.complete;
        self.found.sketches = found.sketches;
        let part = CyclicWindow {
            lists,
            components: &components,
            ranks: &ranks,
        };
        self.settle(&part, is_gone, suspects);
        Ok(Txn::all(count).map(is_gone).collect())
    }

    /// Is an order of snapshots and commits needed for a window with cycles?
    fn needs_events(&self) -> bool {
        let level = self.checker.level;
        let is_complete = list_proof::is_absence_of_cycles(level);
        list_proof::kind(level) == OrderProofKind::Snapshots
            && (self.order.is_some() || !is_complete)
    }

    /// Searches for a proof of the level for a window whose dependency graph has cycles; notes what is undecided.
    fn settle(
        &mut self,
        part: &CyclicWindow<'_>,
        is_gone: impl Fn(Txn) -> bool,
        suspects: &mut Suspects,
    ) {
        let (level, lists) = (self.checker.level, part.lists);
        let undecided = lists.undecided_appends(part.components);
        self.doubtful += undecided.lists.len();
        let forbidden = level.forbidden();
        let mut counts = self.counts.keys().chain(suspects.counts.keys());
        let is_refuted = counts.any(|anomaly| forbidden.contains(anomaly));
        let has_others = !self.counts.is_empty() || !suspects.counts.is_empty();
        let proof = match list_proof::kind(level) {
            _ if is_refuted || self.core.is_some() => None,
            OrderProofKind::Serial => None,
            OrderProofKind::Commits(_) => list_proof::commits(level, lists).map(|order| {
                self.append_order(lists, transactions_of(&order, lists.table.len()), is_gone);
                Verdict::COMMIT_ORDER
            }),
            OrderProofKind::Snapshots if has_others => {
                let is_known =
                    undecided.lists.is_empty() && list_proof::is_absence_of_cycles(level);
                is_known.then_some(Verdict::COMPLETE_GRAPH)
            }
            OrderProofKind::Snapshots => self.prove_snapshots(part, &undecided, is_gone, suspects),
        };
        if proof != Some(Verdict::SNAPSHOT_ORDER) && proof != Some(Verdict::COMMIT_ORDER) {
            self.order = None;
        }
        self.proof = match (self.proof, proof) {
            (None, _) | (_, None) => None,
            (Some(Verdict::COMPLETE_GRAPH), _) => Some(Verdict::COMPLETE_GRAPH),
            (_, proof) => proof,
        };
    }

    /// The proof of a snapshot level for such a window; `None` if the order of unread appends is not decided.
    fn prove_snapshots(
        &mut self,
        part: &CyclicWindow<'_>,
        undecided: &UndecidedAppends,
        is_gone: impl Fn(Txn) -> bool,
        suspects: &mut Suspects,
    ) -> Option<&'static str> {
        let (level, lists) = (self.checker.level, part.lists);
        let is_complete = list_proof::is_absence_of_cycles(level);
        // By transaction of a component with several unread appends to a list: its position in the witness order.
        let mut places: FixedMap<Txn, u32> = FixedMap::default();
        let components = undecided.components.iter();
        for &component in components.filter(|_| is_complete) {
            let members = &part.components[component];
            match lists.decide(members, level, self.checker.bound.search_steps_max) {
                GivenDecision::Holds(witness) => {
                    let (OrderWitness::Serial(order)
                    | OrderWitness::Snapshots(order)
                    | OrderWitness::Visible(order)) = witness;
                    // An order of snapshots has each transaction twice; the second time, its commit, remains.
                    places.extend(order.into_iter().map(Txn::new).zip(0..));
                }
                GivenDecision::Fails(core) if level != Level::ConsistentView => {
                    let core: Vec<Txn> = core.into_iter().map(Txn::new).collect();
                    let position =
                        |&one: &Txn| u64::from(lists.table.transactions.recorded(one).get());
                    let places = core.iter().map(position);
                    self.core = Some(places.collect());
                    suspects.add(NO_ORDER, || lists.without_order(core));
                    return None;
                }
                GivenDecision::Fails(_) | GivenDecision::Open => {
                    self.undecided.0 += undecided.lists.len();
                    self.undecided.1 += undecided.appends;
                    return None;
                }
            }
        }
        if self.needs_events() {
            let rank = |one: Txn| {
                // One without a completion comes last, as nothing had to come after it.
                let ended = || {
                    let completion = lists.table.transactions.completion(one);
                    completion.map_or(u32::MAX, Position::get)
                };
                let place = places.get(&one).copied().unwrap_or_else(ended);
                is_gone(one).then(|| (part.ranks[one.index()], place))
            };
            if let Some(order) = lists.snapshots(level, rank) {
                self.append_events(lists, &order, is_gone);
                return Some(Verdict::SNAPSHOT_ORDER);
            }
            if !undecided.lists.is_empty() && !is_complete {
                self.undecided.0 += undecided.lists.len();
                self.undecided.1 += undecided.appends;
            }
        }
        is_complete.then_some(Verdict::COMPLETE_GRAPH)
    }

    /// All suspects of these lists as they are, independent of earlier windows.
    pub(super) fn search(&self, lists: &OrderedLists) -> Result<Suspects, TooManyEdges> {
        let mut suspects = Suspects::default();
        let open: Vec<_> = lists
            .table
            .lists
            .iter()
            .map(|list| !list.is_closed)
            .collect();
        lists.find_direct(&open, &mut suspects);
        if self.strict_order(lists, &[], true).is_some() {
            return Ok(suspects);
        }
        let graph = ListGraph::new(lists, self.checker.level)?;
        let rows = &graph.rows;
        let components = rows.components(&rows.peel(), lists.table.len() as u32);
        graph.cycles(&components, self.checker.bound, &mut suspects);
        Ok(suspects)
    }

    /// Appends the decided transactions of an order without back edges to the certificate's order.
    fn append_order(
        &mut self,
        lists: &OrderedLists,
        order: impl IntoIterator<Item = Txn>,
        is_gone: impl Fn(Txn) -> bool,
    ) {
        let times = match list_proof::kind(self.checker.level) {
            OrderProofKind::Snapshots => 2,
            OrderProofKind::Serial | OrderProofKind::Commits(_) => 1,
        };
        let Some(known) = &mut self.order else {
            return;
        };
        for number in order {
            if is_gone(number) && lists.happened(number) {
                known.extend(std::iter::repeat_n(
                    lists.table.transactions.recorded(number),
                    times,
                ));
            }
        }
    }

    /// Appends the decided transactions of an order of snapshots and commits.
    fn append_events(
        &mut self,
        lists: &OrderedLists,
        order: &[u32],
        is_gone: impl Fn(Txn) -> bool,
    ) {
        let Some(known) = &mut self.order else {
            return;
        };
        let count = lists.table.len() as u32;
        for &event in order.iter().filter(|&&event| event < 2 * count) {
            let number = Txn::new(event % count);
            if is_gone(number) && lists.happened(number) {
                known.push(lists.table.transactions.recorded(number));
            }
        }
    }

    /// Counts suspects, and keeps the first of each anomaly and the largest components, with the context that explains them.
    fn keep(&mut self, lists: &OrderedLists, suspects: Suspects, sketches: Vec<ComponentSketch>) {
        let definite = Definite::new(self.checker.level);
        let mut transactions = BTreeSet::new();
        let mut named = Vec::new();
        for (anomaly, suspects) in suspects.kept {
            let kept = self.kept.entry(anomaly).or_default();
            for suspect in suspects.into_iter().take(FINDINGS_MAX - kept.len()) {
                transactions.extend(suspect.transactions());
                named.extend(suspect.list());
                kept.push(KeptSuspect {
                    context: self.contexts.len(),
                    is_definite: definite.is(anomaly, &suspect, lists),
                    suspect,
                });
            }
        }
        for (anomaly, count) in suspects.counts {
            *self.counts.entry(anomaly).or_default() += count;
        }
        for sketch in sketches {
            let known = &mut self.sketches;
            let at = known.partition_point(|(_, other)| other.size >= sketch.size);
            if at < SKETCHES_MAX {
                transactions.extend(sketch.nodes.iter().copied().map(Txn::new));
                known.insert(at, (self.contexts.len(), sketch));
                known.truncate(SKETCHES_MAX);
            }
        }
        assert!(
            self.kept.values().all(|kept| kept.len() <= FINDINGS_MAX),
            "only the first of each anomaly are kept"
        );
        assert!(
            self.sketches.len() <= SKETCHES_MAX
                && self
                    .sketches
                    .is_sorted_by(|(_, a), (_, b)| a.size >= b.size),
            "only the largest components are kept, the largest first"
        );
        if !transactions.is_empty() {
            self.contexts
                .push(WitnessContext::new(lists, transactions, named));
        }
    }

    fn count(&mut self, table: &ListTable, gone: &[bool]) {
        let outcomes = table.transactions.outcomes().iter().zip(gone);
        for (&outcome, _) in outcomes.filter(|(_, gone)| **gone) {
            self.tally.transactions += 1;
            self.tally.ok += usize::from(outcome == OpType::Ok);
            self.tally.fail += usize::from(outcome == OpType::Fail);
        }
    }

    /// Questions that are open if there is no proof of the level, in words.
    pub(super) fn open_questions(&self) -> Vec<String> {
        let mut questions = Vec::new();
        if self.is_torn {
            questions
                .push("the order of appends to keys whose reads contradict each other".to_owned());
        }
        if let (keys @ 1.., appends) = self.undecided {
            questions.push(format!(
                "the order of {appends} appends to {keys} {} that no read shows",
                if keys == 1 { "key" } else { "keys" }
            ));
        }
        questions
    }

    /// Removes `no-order` if there is another violation: it is only searched for where there is none, and the other one may have
    /// been found later.
    pub(super) fn drop_without_order(&mut self) {
        let forbidden = self.checker.level.forbidden();
        if self
            .counts
            .keys()
            .any(|anomaly| forbidden.contains(anomaly))
        {
            self.counts.remove(NO_ORDER);
            self.kept.remove(NO_ORDER);
            self.core = None;
        }
    }

    /// The proof of the level. `has_tolerated`: are there anomalies without cycles that the level allows?
    pub(super) fn proof(&self, has_tolerated: bool) -> Option<&'static str> {
        let level = self.checker.level;
        let proof = self
            .proof
            .filter(|_| !self.is_torn && self.found.complete)?;
        if !has_tolerated {
            return Some(proof);
        }
        // No serial or snapshot order explains a transaction with an internal contradiction.
        if matches!(list_proof::kind(level), OrderProofKind::Commits(_)) {
            return Some(Verdict::COMMIT_ORDER);
        }
        list_proof::is_absence_of_cycles(level).then_some(Verdict::COMPLETE_GRAPH)
    }
}
