//! What has been judged so far.

use super::definite::Definite;
use super::edges::Orders;
use super::lists::Lists;
use super::proof::{self, Kind};
use super::reads::{Suspect, Suspects};
use super::replay::{Replayed, replay};
use super::stage::Stage;
use super::table::{List, NONE, Table, outcome};
use super::unread::Doubts;
use super::{Dependencies, ListAppend};
use crate::txn::anomaly::{Cyclic, NO_ORDER, Variant};
use crate::txn::components::{Arcs as _, visit};
use crate::txn::decision::{Decided, Witness};
use crate::txn::dense::Map;
use crate::txn::findings::{FINDINGS_MAX, Tally};
use crate::txn::level::Level;
use crate::txn::linked::inside;
use crate::txn::rows::{Rows, TooManyEdges};
use crate::txn::search::{Found, SKETCHES_MAX, Sketch};
use crate::txn::{Bound, cyclic};
use crate::{Anomaly, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Judges the parts of a history one after another, and keeps what was found.
///
/// A part is all that is known and was not let go. Of that, a transaction is settled when nobody names a key any more that
/// it touched: then everything is known of it, and all that leads to it. What no unsettled transaction leads to (at any
/// distance, real time and sessions included, as far as the level has them) can be on no cycle with anything that
/// comes later, so its cycles are told, and it is let go; what leads out of it does not matter any more. So every
/// transaction is judged once, with all that it could be on a cycle with, and the verdict is that of the whole history:
/// for all levels, wherever the parts begin and end. (For levels without real time this is Cobra's rule, Tan et al., OSDI
/// 2020, where keys that are closed take the place of fences.)
///
/// Its downside: it takes keys that are given up after a while; the oldest one in use holds back everything after it.
pub(super) struct Record {
    judge: ListAppend,
    pub(super) counts: BTreeMap<Anomaly, u64>,
    /// The first of each kind, in terms of the part that they were found in.
    pub(super) kept: BTreeMap<Anomaly, Vec<Kept>>,
    /// The largest components, likewise.
    pub(super) sketches: Vec<(usize, Sketch)>,
    /// What must be known of each such part.
    pub(super) stages: Vec<Stage>,
    pub(super) tally: Tally,
    pub(super) keys: usize,
    pub(super) edges: usize,
    /// Keys with unread appends of which neither the graph nor a search says in what order they are, and those appends.
    pub(super) undecided: (usize, usize),
    /// Keys whose unread appends the order of components does not settle, whatever a search says.
    pub(super) doubtful: usize,
    /// Places of transactions that no order of unread appends explains.
    pub(super) core: Option<Vec<u64>>,
    pub(super) found: Found,
    /// Parts so far.
    pub(super) windows: usize,
    /// Most transactions of one.
    pub(super) largest_window: usize,
    /// Do reads of a list contradict each other?
    pub(super) is_torn: bool,
    /// What proves the level so far; `None` once a part had cycles that the level allows and no order of another kind.
    pub(super) proof: Option<&'static str>,
    /// The positions of the transactions that were let go, in an order that proves the level; `None` when nobody asked for
    /// it, or when there is none.
    pub(super) order: Option<Vec<u32>>,
}

/// What was found, in terms of a part of the history.
pub(super) struct Kept {
    /// The number of what is known of that part.
    pub(super) stage: usize,
    pub(super) suspect: Suspect,
    /// Can nothing that is still to come take it back?
    pub(super) is_definite: bool,
}

/// What need not be known any more.
pub(super) struct Judged {
    /// By transaction: is it gone?
    pub(super) gone: Vec<bool>,
    /// By transaction: did it take place?
    pub(super) happened: Vec<bool>,
    /// By list: does it go?
    pub(super) leaving: Vec<bool>,
}

/// The graph of the transactions of some lists, as far as it is needed to see what is on cycles.
struct Graph<'a> {
    lists: &'a Lists,
    wanted: BTreeSet<Cyclic>,
    /// The orders that cycles are looked for in.
    all: Orders,
    rows: Rows,
}

impl Graph<'_> {
    fn new(lists: &Lists, level: Level) -> Result<Graph<'_>, TooManyEdges> {
        let wanted = cyclic(level);
        let all = orders(&wanted);
        let orders = Orders {
            process: all.process && !(all.realtime && is_told(all, lists)),
            ..all
        };
        let rows = Rows::new(lists.table.len(), &Dependencies { lists, orders })?;
        Ok(Graph {
            lists,
            wanted,
            all,
            rows,
        })
    }

    /// The cycles inside of these components, of which the suspects are told; what else is to be said of them.
    fn cycles(self, components: &[Vec<u32>], bound: Bound, suspects: &mut Suspects) -> Found {
        let (lists, orders, nodes) = (self.lists, self.all, self.rows.len());
        drop(self.rows);
        let dependencies = Dependencies { lists, orders };
        let count = lists.table.len();
        let mut found = inside(count, nodes, &dependencies, components, &self.wanted, bound);
        for (kind, cycle) in found.cycles.drain(..) {
            suspects.add(kind.name(), || Suspect::Cycle(cycle));
        }
        found
    }
}

/// A part of a history whose dependency graph has cycles.
struct Part<'a> {
    lists: &'a Lists,
    /// Those that are judged now.
    components: &'a [Vec<u32>],
    /// By node: the number of its component, edges lead to the same or to a higher one. Empty where nobody asks.
    ranks: &'a [u32],
}

/// Numbers of the components of all nodes in topological order.
fn ranks(rows: &Rows) -> Vec<u32> {
    let nodes = rows.len() as u32;
    let mut ranks = vec![0; rows.len()];
    let mut next = nodes;
    visit(rows, 0..nodes, |members| {
        // Components come after those that they reach.
        next -= 1;
        for &node in members {
            ranks[node as usize] = next;
        }
    });
    ranks
}

/// The orders that these cycles are looked for in.
fn orders(wanted: &BTreeSet<Cyclic>) -> Orders {
    let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
    Orders {
        process: wants(Variant::Process),
        realtime: wants(Variant::Realtime),
    }
}

/// Does real time tell the order of each process, if that matters? What one did before ended before, if it is known when it
/// began.
fn is_told(all: Orders, lists: &Lists) -> bool {
    !all.process || !lists.table.invocations.contains(&NONE)
}

impl Record {
    /// Nothing was judged yet. With `certify`, orders are kept.
    pub(super) fn new(judge: ListAppend, certify: bool) -> Record {
        Record {
            judge,
            counts: BTreeMap::new(),
            kept: BTreeMap::new(),
            sketches: Vec::new(),
            stages: Vec::new(),
            tally: Tally {
                transactions: 0,
                ok: 0,
                fail: 0,
            },
            keys: 0,
            edges: 0,
            undecided: (0, 0),
            doubtful: 0,
            core: None,
            found: Found::nothing(),
            windows: 0,
            largest_window: 0,
            is_torn: false,
            proof: Some(Verdict::SERIAL_ORDER),
            order: certify.then(Vec::new),
        }
    }

    /// The level that is asked for.
    pub(super) fn level(&self) -> Level {
        self.judge.level
    }

    /// Judges what can be judged of these lists, of which some are now closing; at last, everything.
    pub(super) fn judge(
        &mut self,
        lists: &mut Lists,
        closing: &[bool],
        is_last: bool,
    ) -> Result<Judged, TooManyEdges> {
        let mut suspects = Suspects::default();
        lists.tell(closing, &mut suspects);
        let closed = lists.table.lists.iter().zip(closing);
        let mut closed = closed.filter(|(_, closing)| **closing);
        self.is_torn |= closed.any(|(list, _)| list.conflict.is_some());
        if self.is_torn {
            // Tolerated perhaps, but nothing can be replayed.
            self.order = None;
        }
        let gone = self.cycles(lists, closing, is_last, &mut suspects)?;
        let sketches = std::mem::take(&mut self.found.sketches);
        self.keep(lists, suspects, sketches);
        self.count(&lists.table, &gone);
        // Only now it is known which unknown transactions took place that appended to them.
        let leaving = lists.table.leaving(&gone, closing);
        let named = lists.table.lists.iter().zip(&leaving);
        let is_new = |list: &List| !list.again.is_some_and(|again| again.is_counted);
        let new = named.filter(|(list, leaving)| **leaving && is_new(list));
        self.keys += new.count();
        self.windows += 1;
        self.largest_window = self.largest_window.max(lists.table.len());
        let happened = lists.take_happened();
        Ok(Judged {
            gone,
            happened,
            leaving,
        })
    }

    /// An order of all that took place, if there is one that keeps real time; then no graph need be made. A level without
    /// real time lets more go by its graph, so it is only asked here when nothing stays.
    fn replayed(&self, lists: &Lists, unsettled: &[bool], is_last: bool) -> Option<Replayed> {
        let all = orders(&cyclic(self.judge.level));
        let applies = (is_last || all.realtime) && is_told(all, lists);
        applies.then(|| replay(lists, unsettled, self.order.is_some()))?
    }

    /// Adds all cycles among what is gone, which is the answer.
    fn cycles(
        &mut self,
        lists: &Lists,
        closing: &[bool],
        is_last: bool,
        suspects: &mut Suspects,
    ) -> Result<Vec<bool>, TooManyEdges> {
        let level = self.judge.level;
        let count = lists.table.len();
        let unsettled = if is_last {
            Vec::new()
        } else {
            lists.unsettled(closing)
        };
        if let Some(replayed) = self.replayed(lists, &unsettled, is_last) {
            let Replayed { order, gone, edges } = replayed;
            self.edges += edges;
            self.place(lists, &order, |number| gone[number as usize]);
            return Ok(gone);
        }
        let graph = Graph::new(lists, level)?;
        let rows = &graph.rows;
        let peeled = rows.peel();
        let mut components = rows.components(&peeled, count as u32);
        let order = peeled.order;
        drop(peeled.before);
        let stays = if is_last {
            Vec::new()
        } else {
            let from = unsettled
                .iter()
                .zip(0..)
                .filter(|(unsettled, _)| **unsettled);
            rows.reached(from.map(|(_, number)| number))
        };
        let is_gone = |node: u32| !stays.get(node as usize).copied().unwrap_or(false);
        components.retain(|members| is_gone(members[0]));
        self.edges += if is_last {
            rows.edge_count()
        } else {
            let nodes = (0..rows.len() as u32).filter(|&node| is_gone(node));
            nodes.map(|node| rows.degree(node)).sum()
        };
        if components.is_empty() {
            self.place(lists, &order, is_gone);
            return Ok((0..count as u32).map(is_gone).collect());
        }
        drop(order);
        let ranks = if self.needs_events() {
            ranks(rows)
        } else {
            Vec::new()
        };
        let found = graph.cycles(&components, self.judge.bound, suspects);
        self.found.components += found.components;
        self.found.largest = self.found.largest.max(found.largest);
        self.found.complete &= found.complete;
        self.found.sketches = found.sketches;
        let part = Part {
            lists,
            components: &components,
            ranks: &ranks,
        };
        self.settle(&part, is_gone, suspects);
        Ok((0..count as u32).map(is_gone).collect())
    }

    /// Must an order of snapshots and commits be made of a part with cycles?
    fn needs_events(&self) -> bool {
        let level = self.judge.level;
        let is_complete = proof::is_absence_of_cycles(level);
        proof::kind(level) == Kind::Snapshots && (self.order.is_some() || !is_complete)
    }

    /// Looks for what proves the level for a part whose dependency graph has cycles; notes what is undecided.
    fn settle(&mut self, part: &Part<'_>, is_gone: impl Fn(u32) -> bool, suspects: &mut Suspects) {
        let (level, lists) = (self.judge.level, part.lists);
        let doubts = lists.doubts(part.components);
        self.doubtful += doubts.lists.len();
        let forbidden = level.forbidden();
        let mut counts = self.counts.keys().chain(suspects.counts.keys());
        let is_refuted = counts.any(|anomaly| forbidden.contains(anomaly));
        let has_others = !self.counts.is_empty() || !suspects.counts.is_empty();
        let proof = match proof::kind(level) {
            _ if is_refuted || self.core.is_some() => None,
            Kind::Serial => None,
            Kind::Commits(_) => proof::commits(level, lists).map(|order| {
                self.place(lists, &order, is_gone);
                Verdict::COMMIT_ORDER
            }),
            Kind::Snapshots if has_others => {
                let is_known = doubts.lists.is_empty() && proof::is_absence_of_cycles(level);
                is_known.then_some(Verdict::COMPLETE_GRAPH)
            }
            Kind::Snapshots => self.prove_snapshots(part, &doubts, is_gone, suspects),
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

    /// What proves a level of snapshots for such a part: nothing where the order of unread appends has no answer.
    fn prove_snapshots(
        &mut self,
        part: &Part<'_>,
        doubts: &Doubts,
        is_gone: impl Fn(u32) -> bool,
        suspects: &mut Suspects,
    ) -> Option<&'static str> {
        let (level, lists) = (self.judge.level, part.lists);
        let is_complete = proof::is_absence_of_cycles(level);
        // By transaction of a component with several unread appends to a list: its place among those.
        let mut places: Map<u32, u32> = Map::default();
        let components = doubts.components.iter();
        for &component in components.filter(|_| is_complete) {
            let members = &part.components[component];
            match lists.decide(members, level, self.judge.bound.search_steps_max) {
                Decided::Holds(witness) => {
                    let (Witness::Serial(order)
                    | Witness::Snapshots(order)
                    | Witness::Visible(order)) = witness;
                    // Of a transaction that stands there twice, the second time.
                    places.extend(order.into_iter().zip(0..));
                }
                Decided::Fails(core) if level != Level::ConsistentView => {
                    let places = core.iter().map(|&one| u64::from(lists.table.place(one)));
                    self.core = Some(places.collect());
                    suspects.add(NO_ORDER, || lists.without_order(core));
                    return None;
                }
                Decided::Fails(_) | Decided::Open => {
                    self.undecided.0 += doubts.lists.len();
                    self.undecided.1 += doubts.appends;
                    return None;
                }
            }
        }
        if self.needs_events() {
            let rank = |one: u32| {
                let place = places.get(&one).copied();
                let place = place.unwrap_or(lists.table.completions[one as usize]);
                is_gone(one).then(|| (part.ranks[one as usize], place))
            };
            if let Some(order) = lists.snapshots(level, rank) {
                self.place_events(lists, &order, is_gone);
                return Some(Verdict::SNAPSHOT_ORDER);
            }
            if !doubts.lists.is_empty() && !is_complete {
                self.undecided.0 += doubts.lists.len();
                self.undecided.1 += doubts.appends;
            }
        }
        is_complete.then_some(Verdict::COMPLETE_GRAPH)
    }

    /// Everything that can be said of these lists as they are, whatever has been judged before.
    pub(super) fn look(&self, lists: &Lists) -> Result<Suspects, TooManyEdges> {
        let mut suspects = Suspects::default();
        let open: Vec<_> = lists
            .table
            .lists
            .iter()
            .map(|list| !list.is_closed)
            .collect();
        lists.tell(&open, &mut suspects);
        if self.replayed(lists, &[], true).is_some() {
            return Ok(suspects);
        }
        let graph = Graph::new(lists, self.judge.level)?;
        let rows = &graph.rows;
        let components = rows.components(&rows.peel(), lists.table.len() as u32);
        graph.cycles(&components, self.judge.bound, &mut suspects);
        Ok(suspects)
    }

    /// Notes that an order in which no edge leads back has these transactions, and perhaps others that stay.
    fn place(&mut self, lists: &Lists, order: &[u32], is_gone: impl Fn(u32) -> bool) {
        let times = match proof::kind(self.judge.level) {
            Kind::Snapshots => 2,
            Kind::Serial | Kind::Commits(_) => 1,
        };
        let Some(known) = &mut self.order else {
            return;
        };
        let count = lists.table.len() as u32;
        for &number in order {
            if number < count && is_gone(number) && lists.happened(number) {
                known.extend(std::iter::repeat_n(lists.table.place(number), times));
            }
        }
    }

    /// The same of an order of snapshots and commits.
    fn place_events(&mut self, lists: &Lists, order: &[u32], is_gone: impl Fn(u32) -> bool) {
        let Some(known) = &mut self.order else {
            return;
        };
        let count = lists.table.len() as u32;
        for &event in order.iter().filter(|&&event| event < 2 * count) {
            let number = event % count;
            if is_gone(number) && lists.happened(number) {
                known.push(lists.table.place(number));
            }
        }
    }

    /// Counts what was found, and keeps the first of each kind, and the largest components, with what must be known to tell
    /// of them.
    fn keep(&mut self, lists: &Lists, suspects: Suspects, sketches: Vec<Sketch>) {
        let definite = Definite::new(self.judge.level);
        let mut transactions = BTreeSet::new();
        let mut named = Vec::new();
        for (anomaly, suspects) in suspects.kept {
            let kept = self.kept.entry(anomaly).or_default();
            for suspect in suspects.into_iter().take(FINDINGS_MAX - kept.len()) {
                transactions.extend(suspect.transactions());
                named.extend(suspect.list());
                kept.push(Kept {
                    stage: self.stages.len(),
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
                transactions.extend(sketch.nodes.iter().copied());
                known.insert(at, (self.stages.len(), sketch));
                known.truncate(SKETCHES_MAX);
            }
        }
        if !transactions.is_empty() {
            self.stages.push(Stage::new(lists, transactions, named));
        }
    }

    fn count(&mut self, table: &Table, gone: &[bool]) {
        for (&outcome, _) in table.outcomes.iter().zip(gone).filter(|(_, gone)| **gone) {
            self.tally.transactions += 1;
            self.tally.ok += usize::from(outcome == outcome::OK);
            self.tally.fail += usize::from(outcome == outcome::FAIL);
        }
    }

    /// What the history leaves open at a level for which nothing proves that it holds, in words.
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

    /// Leaves out that there is no order if anything else is wrong: it is only looked for where nothing is, and what is wrong may
    /// have been found later.
    pub(super) fn drop_without_order(&mut self) {
        let forbidden = self.judge.level.forbidden();
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

    /// What proves the level, if `tolerated` anomalies need no cycle and are allowed.
    pub(super) fn proof(&self, has_tolerated: bool) -> Option<&'static str> {
        let level = self.judge.level;
        let proof = self
            .proof
            .filter(|_| !self.is_torn && self.found.complete)?;
        if !has_tolerated {
            return Some(proof);
        }
        // A transaction that contradicts itself is not explained by any order of transactions.
        if matches!(proof::kind(level), Kind::Commits(_)) {
            return Some(Verdict::COMMIT_ORDER);
        }
        proof::is_absence_of_cycles(level).then_some(Verdict::COMPLETE_GRAPH)
    }
}
