//! Transactions that append to lists and read them.
//!
//! A read of a list tells the order of all appends before it, so version orders need no guessing (Kingsbury and
//! Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", 2020).

mod edges;
mod gather;
mod lists;
mod proof;
mod reads;
mod scene;
mod table;

use super::anomaly::{Cyclic, Variant};
use super::components::Arcs as _;
use super::findings::{Findings, Summary, Tally, verdict};
use super::graph::{Edges, Graph, Sink};
use super::level::Level;
use super::passes::{InTurn, Passes};
use super::rows::{Inside, Linked, Rows, TooManyEdges};
use super::search::{Found, search};
use super::{Bound, cyclic, explain};
use crate::{Certificate, Checker, Component, Finding, Verdict};
use edges::Orders;
use gather::Gather;
use lists::Lists;
use reads::{Suspect, Suspects};
use scene::Scene;
use seatrial_history::{Chunks, FoldError, Folder, History};
use std::collections::{BTreeMap, BTreeSet};
use table::{NONE, Refusal, Table, outcome};

/// Judges transactions of appends (`[:append k e]`) and reads (`[:r k [..]]`); no element may be appended twice to a
/// key.
///
/// The order of a key's versions is that of its longest read; what nobody read comes after it. From that follow, for
/// every transaction that took place (successful, or unknown with an effect that was seen), the edges *ww* (wrote the
/// next version), *wr* (read what was written) and *rw* (overwrote what was read), and, as the level demands, the
/// order of each process and real time. A cycle contradicts the level.
///
/// One pass over the chunks verifies that reads are prefixes of one another and keeps their lengths; the graph is
/// looked at once as a whole, without the kinds of its edges, and everything else happens inside components. About 150
/// bytes a transaction. Only what is found is read a second time, to be told.
///
/// Its downside: appends that no read orders among themselves are not ordered, so an anomaly that only they would
/// show stays unseen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListAppend {
    level: Level,
    bound: Bound,
}

impl ListAppend {
    /// The checker of this level.
    pub fn new(level: Level) -> ListAppend {
        ListAppend {
            level,
            bound: Bound::default(),
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> ListAppend {
        ListAppend { bound, ..self }
    }

    /// Judges the folder's history. The error is that of a chunk that cannot be read.
    pub fn judge<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        let (verdict, _) = self.verdict(folder, false)?;
        Ok(verdict)
    }

    /// The same with what proves it; without for an unknown verdict, and for a valid one at a level that no simple order
    /// proves.
    pub fn certify<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<(Verdict, Option<Certificate>), FoldError<C::Error>> {
        self.verdict(folder, true)
    }

    fn verdict<P: Passes>(
        &self,
        passes: &P,
        certify: bool,
    ) -> Result<(Verdict, Option<Certificate>), P::Error> {
        let mut table = passes.pass(Gather)?;
        if let Some(refusal) = table.refusal.take() {
            let reason = refused(passes, table, refusal)?;
            return Ok((self.unknown(reason), None));
        }
        let lists = Lists::new(table, self.level);
        let mut suspects = Suspects::default();
        lists.tell(&mut suspects);
        let Ok((found, edges)) = self.cycles(&lists) else {
            let reason = "more than 2^32 dependencies".to_owned();
            return Ok((self.unknown(reason), None));
        };
        for (kind, cycle) in &found.cycles {
            suspects.add(kind.name(), || Suspect::Cycle(cycle.clone()));
        }
        let summary = Summary {
            checker: self.name(),
            level: self.level,
            tally: tally(&lists.table),
            keys: lists.table.lists.len(),
            edges,
            found: &found,
            undecided: lists.undecided(),
        };
        let (findings, components) = told(passes, &lists, suspects, &found)?;
        let verdict = Verdict {
            components,
            ..verdict(findings, &summary)
        };
        let certificate = if certify {
            self.certificate(&lists, &verdict)
        } else {
            None
        };
        Ok((verdict, certificate))
    }

    /// All cycles that the level forbids, and the number of dependencies.
    fn cycles(&self, lists: &Lists) -> Result<(Found, usize), TooManyEdges> {
        let wanted = cyclic(self.level);
        let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
        let all = Orders {
            process: wants(Variant::Process),
            realtime: wants(Variant::Realtime),
        };
        // What a process did before ended before, if it is known when it began.
        let is_told = !lists.table.invocations.contains(&NONE);
        let orders = Orders {
            process: all.process && !(all.realtime && is_told),
            ..all
        };
        let transactions = lists.table.len();
        let rows = Rows::new(transactions, &Dependencies { lists, orders })?;
        let components = rows.components(transactions as u32);
        let (nodes, edges) = (rows.len(), rows.edge_count());
        drop(rows);
        let dependencies = Dependencies { lists, orders: all };
        let found = inside(&dependencies, nodes, &components, &wanted, self.bound);
        Ok((found, edges))
    }

    fn unknown(&self, reason: String) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        verdict.model = Some(self.level.name().to_owned());
        verdict.unknown(reason)
    }
}

/// The dependencies that lists tell, with these orders besides.
struct Dependencies<'a> {
    lists: &'a Lists,
    orders: Orders,
}

impl Linked for Dependencies<'_> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        self.lists.link(self.orders, edges);
    }
}

/// The cycles inside the components of a graph of so many nodes.
fn inside(
    dependencies: &Dependencies<'_>,
    nodes: usize,
    components: &[Vec<u32>],
    wanted: &BTreeSet<Cyclic>,
    bound: Bound,
) -> Found {
    let transactions = dependencies.lists.table.len();
    if components.is_empty() {
        let none = Graph::from_edges(0, 0, &[]);
        return search(&none, wanted, bound.search_steps_max);
    }
    let (inside, names) = Inside::new(nodes, components);
    let mut edges = Edges::into(transactions, inside);
    dependencies.link(&mut edges);
    let own = names.partition_point(|&node| (node as usize) < transactions);
    let graph = edges.into_sink().graph(own as u32, names.len() as u32);
    let mut found = search(&graph, wanted, bound.search_steps_max);
    for (_, cycle) in &mut found.cycles {
        let known = std::mem::take(&mut cycle.nodes);
        cycle.nodes = known.iter().map(|&node| names[node as usize]).collect();
    }
    for sketch in &mut found.sketches {
        sketch.renumber(&names);
    }
    found
}

fn tally(table: &Table) -> Tally {
    let ok = table.ended.len();
    let known = table.outcomes.iter().filter(|&&one| one != outcome::INFO);
    Tally {
        transactions: table.len(),
        ok,
        fail: known.count() - ok,
    }
}

/// Why the history cannot be judged, in words.
fn refused<P: Passes>(passes: &P, table: Table, refusal: Refusal) -> Result<String, P::Error> {
    Ok(match refusal {
        Refusal::Operation(index, reason) => format!("op {index}: {reason}"),
        Refusal::Size(reason) => reason.into(),
        Refusal::Twice(key, element, transactions) => {
            let lists = Lists::new(table, Level::ReadUncommitted);
            let scene = Scene::new(passes, &lists, transactions.into_iter())?;
            scene.twice(&key.to_string(), element, transactions)
        }
    })
}

/// What was found, in words, and the largest components.
fn told<P: Passes>(
    passes: &P,
    lists: &Lists,
    suspects: Suspects,
    found: &Found,
) -> Result<(Findings, Vec<Component>), P::Error> {
    let kept = suspects.kept.values().flatten();
    let sketched = found
        .sketches
        .iter()
        .flat_map(|sketch| sketch.nodes.clone());
    let transactions = kept.flat_map(Suspect::transactions).chain(sketched);
    let scene = Scene::new(passes, lists, transactions)?;
    let mut findings: BTreeMap<_, Vec<Finding>> = BTreeMap::new();
    for (anomaly, kept) in &suspects.kept {
        let told = kept.iter().map(|suspect| scene.finding(anomaly, suspect));
        findings.insert(*anomaly, told.collect());
    }
    let components = found.sketches.iter();
    let components = components.map(|sketch| explain::component(&scene, sketch));
    let components = components.collect();
    Ok((Findings::of(suspects.counts, findings), components))
}

impl Checker for ListAppend {
    fn name(&self) -> &'static str {
        "list-append"
    }

    fn check(&self, history: &History) -> Verdict {
        match self.verdict(&InTurn(history), false) {
            Ok((verdict, _)) => verdict,
            Err(error) => self.unknown(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
