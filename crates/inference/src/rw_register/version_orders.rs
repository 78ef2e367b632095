//! Version orders: what can be inferred of the order of each key's versions.

use super::chains::Chains;
use super::inference::{SourceSet, VersionOrderSource};
use super::key_accesses::KeyAccesses;
use super::zones::{self, Barrier, NEVER, Zone};
use seatrial_cycles::components::components;
use seatrial_cycles::graph::{DependencyGraph, EdgeBuilder, EdgeSink, WW};
use seatrial_cycles::search::shortest_cycle;
use seatrial_cycles::shape::{EdgeSource, ShapeGraph, TooManyEdges};
use seatrial_cycles::{Position, Txn, Version, dense_id};
use seatrial_isolation::decision::OrderRank;
use std::collections::{BTreeMap, BTreeSet};

dense_id! {
    /// A barrier, by its place in [`VersionOrders::barriers`].
    pub(super) BarrierId
}
dense_id! {
    /// The zone of a version of the key in question.
    ZoneId
}

/// Contradictory orders of the versions of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    pub(super) key: u32,
    /// The source that is not used for this key because of it.
    pub(super) source: VersionOrderSource,
    /// The sources of the cycle.
    pub(super) sources: SourceSet,
    /// Versions of which each comes before the next, and the last before the first.
    pub(super) cycle: Vec<Version>,
}

/// The known order of all versions, except that initial states come before all others.
///
/// Most of it is pairs of versions, in a compressed-row table. The order of real time is an interval order, in which many
/// versions may come before many others; where there would be too many pairs it is stored as [`Barrier`]s. So the size is linear
/// in the history, whatever the concurrency.
pub(super) struct VersionOrders<'a> {
    pub(super) accesses: &'a KeyAccesses<'a>,
    /// By transaction: its rank in the given order, if it has one. Empty without an order.
    pub(super) ranks: &'a [Option<OrderRank>],
    sources: SourceSet,
    /// Chains of updates, if updates are assumed to be atomic.
    pub(super) chains: Chains,
    /// The sources of keys for which not all are used.
    accepted: BTreeMap<u32, SourceSet>,
    /// By version: start of its row in `next`.
    starts: Vec<u32>,
    next: Vec<Version>,
    /// Barriers; those of a key are adjacent.
    pub(super) barriers: Vec<Barrier>,
    /// By version: the barrier that has it in its `ins`. Empty without barriers.
    entered: Vec<Option<BarrierId>>,
    /// Uninstalled versions (never written, aborted, intermediate, of unknown outcome) that come after others, sorted.
    pub(super) uninstalled: Vec<Version>,
    pub(super) contradictions: Vec<Contradiction>,
}

impl<'a> VersionOrders<'a> {
    /// Infers version orders from these sources.
    pub(super) fn new(
        accesses: &'a KeyAccesses<'a>,
        sources: SourceSet,
        ranks: &'a [Option<OrderRank>],
    ) -> Result<VersionOrders<'a>, TooManyEdges> {
        let mut orders = VersionOrders {
            accesses,
            ranks,
            chains: if sources.has(VersionOrderSource::Rmw) {
                Chains::new(accesses)
            } else {
                Chains::default()
            },
            sources,
            accepted: BTreeMap::new(),
            starts: Vec::new(),
            next: Vec::new(),
            barriers: Vec::new(),
            entered: Vec::new(),
            uninstalled: Vec::new(),
            contradictions: Vec::new(),
        };
        let mut doubtful = orders.infer();
        let versions = accesses.columns.version_count();
        let rows = ShapeGraph::new(versions, &orders)?;
        for component in rows.components(&rows.peel(), versions as u32) {
            doubtful.push(accesses.columns.key_of(Version::new(component[0])));
        }
        drop(rows);
        if doubtful.is_empty() {
            return Ok(orders);
        }
        doubtful.sort_unstable();
        doubtful.dedup();
        orders.examine_all(doubtful);
        orders.infer();
        Ok(orders)
    }

    /// The sources that are used for a key.
    pub(super) fn sources(&self, key: u32) -> SourceSet {
        self.accepted.get(&key).copied().unwrap_or(self.sources)
    }

    /// The versions that come after a version by a pair.
    pub(super) fn next(&self, version: Version) -> &[Version] {
        let version = version.index();
        &self.next[self.starts[version] as usize..self.starts[version + 1] as usize]
    }

    /// The barrier that has a version in its `ins`.
    pub(super) fn entered(&self, version: Version) -> Option<BarrierId> {
        self.entered.get(version.index()).copied().flatten()
    }

    /// Infers from all sources of all keys; returns the keys of which a source contradicts itself.
    fn infer(&mut self) -> Vec<u32> {
        let columns = self.accesses.columns;
        let mut inferrer = VersionOrderInference::new(self.accesses, self.ranks, &self.chains);
        let mut doubtful = Vec::new();
        for key in 0..columns.key_count() as u32 {
            let sources = self.sources(key);
            inferrer.is_chained = sources.has(VersionOrderSource::Rmw);
            for source in sources.iter() {
                if inferrer.infer_key(key, source).is_some() {
                    doubtful.push(key);
                }
            }
        }
        let VersionOrderInference {
            pairs, barriers, ..
        } = inferrer;
        self.arrange(pairs);
        self.entered = Vec::new();
        if !barriers.is_empty() {
            self.entered = vec![None; columns.version_count()];
            for (id, barrier) in BarrierId::all(barriers.len()).zip(&barriers) {
                for &version in &barrier.ins {
                    self.entered[version.index()] = Some(id);
                }
            }
        }
        self.barriers = barriers;
        let ins = self.barriers.iter().flat_map(|barrier| &barrier.ins);
        let after = self.next.iter().chain(ins).copied();
        let uninstalled = after.filter(|&version| self.accesses.installer(version).is_none());
        self.uninstalled = uninstalled.collect();
        self.uninstalled.sort_unstable();
        self.uninstalled.dedup();
        doubtful
    }

    /// Sorts pairs into rows, each pair once: a counting sort that reuses `starts` for the compressed rows.
    fn arrange(&mut self, pairs: Vec<(Version, Version)>) {
        let versions = self.accesses.columns.version_count();
        let mut starts = vec![0_u32; versions + 2];
        for &(from, _) in &pairs {
            starts[from.index() + 2] += 1;
        }
        for version in 1..starts.len() {
            starts[version] += starts[version - 1];
        }
        let mut next = vec![Version::new(0); pairs.len()];
        for (from, to) in pairs {
            let place = &mut starts[from.index() + 1];
            next[*place as usize] = to;
            *place += 1;
        }
        let mut end = 0;
        for version in 0..versions {
            let range = starts[version] as usize..starts[version + 1] as usize;
            // `starts` is one entry ahead of the rows, so this range was read before its start is overwritten.
            starts[version] = end as u32;
            let row = &mut next[range.clone()];
            row.sort_unstable();
            let mut last = None;
            for at in range {
                if last != Some(next[at]) {
                    last = Some(next[at]);
                    next[end] = next[at];
                    end += 1;
                }
            }
        }
        starts[versions] = end as u32;
        starts.pop();
        next.truncate(end);
        assert!(starts.len() == versions + 1, "each version has a row");
        assert!(
            starts.is_sorted() && starts[versions] as usize == next.len(),
            "the rows follow one another up to the end"
        );
        (self.starts, self.next) = (starts, next);
    }

    /// Determines the sources that agree for each of these keys.
    fn examine_all(&mut self, keys: Vec<u32>) {
        let mut inferrer = VersionOrderInference::new(self.accesses, self.ranks, &self.chains);
        let mut contradictions = Vec::new();
        for key in keys {
            let accepted = self.examine(key, &mut inferrer, &mut contradictions);
            self.accepted.insert(key, accepted);
        }
        self.contradictions = contradictions;
    }

    /// The sources that agree for a key: each is used unless it contradicts the earlier ones.
    fn examine(
        &self,
        key: u32,
        inferrer: &mut VersionOrderInference<'_>,
        contradictions: &mut Vec<Contradiction>,
    ) -> SourceSet {
        let mut accepted = SourceSet::default();
        let mut known = KeyTrial::new(self.accesses, key);
        for source in self.sources.iter() {
            if source == VersionOrderSource::Rmw && !accepted.has(VersionOrderSource::Wfr) {
                continue;
            }
            let sources = accepted.with(source);
            inferrer.is_chained = sources.has(VersionOrderSource::Rmw);
            inferrer.pairs.clear();
            inferrer.barriers.clear();
            let conflict = inferrer.infer_key(key, source);
            let mut trial = known.clone();
            let cycle = if let Some((one, other)) = conflict {
                Some(vec![one, other])
            } else {
                trial.add(inferrer);
                trial.cycle()
            };
            match cycle {
                None => {
                    accepted = sources;
                    known = trial;
                }
                Some(cycle) => contradictions.push(Contradiction {
                    key,
                    source,
                    sources,
                    cycle,
                }),
            }
        }
        accepted
    }
}

/// The graph of all versions.
impl EdgeSource for VersionOrders<'_> {
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        for version in Version::all(self.accesses.columns.version_count()) {
            for &next in self.next(version) {
                edges.link(version.get(), next.get(), WW);
            }
        }
        link_barriers(&self.barriers, edges, Version::get);
    }
}

fn link_barriers<S: EdgeSink>(
    barriers: &[Barrier],
    edges: &mut EdgeBuilder<S>,
    number: impl Fn(Version) -> u32,
) {
    let mut before = None;
    for barrier in barriers {
        let helper = edges.add_helper();
        if let Some(before) = before {
            edges.link(before, helper, WW);
        }
        for &out in &barrier.outs {
            edges.link(number(out), helper, WW);
        }
        for &next in &barrier.ins {
            edges.link(helper, number(next), WW);
        }
        before = barrier.chained.then_some(helper);
    }
}

/// The versions of one key, with their order by the sources that were accepted so far.
#[derive(Clone)]
struct KeyTrial {
    versions: Vec<Version>,
    pairs: Vec<(Version, Version)>,
    barriers: Vec<Barrier>,
}

impl KeyTrial {
    fn new(accesses: &KeyAccesses<'_>, key: u32) -> KeyTrial {
        let met = accesses.of_key(key).iter();
        let mut versions: Vec<_> = met.flat_map(|access| access.versions()).collect();
        versions.sort_unstable();
        versions.dedup();
        KeyTrial {
            versions,
            pairs: Vec::new(),
            barriers: Vec::new(),
        }
    }

    fn add(&mut self, inferrer: &VersionOrderInference<'_>) {
        self.pairs.extend(&inferrer.pairs);
        self.barriers.extend(inferrer.barriers.iter().cloned());
    }

    /// A shortest cycle of one component, if there is any.
    fn cycle(&self) -> Option<Vec<Version>> {
        let number = |version: Version| {
            let place = self.versions.binary_search(&version);
            place.unwrap_or_default() as u32
        };
        let mut edges = EdgeBuilder::new(self.versions.len());
        for &(from, to) in &self.pairs {
            edges.link(number(from), number(to), WW);
        }
        link_barriers(&self.barriers, &mut edges, number);
        let graph: DependencyGraph = edges.into_graph();
        let members = components(&graph, WW).into_iter().next()?;
        let mut numbers = vec![None; graph.node_count()];
        let part = graph.part(&members, &mut numbers);
        let cycle = shortest_cycle(&part, WW)?;
        let names = cycle.iter().map(|&node| members[node as usize]);
        Some(names.map(|node| self.versions[node as usize]).collect())
    }
}

/// Infers version-order edges for one key from one source.
struct VersionOrderInference<'a> {
    accesses: &'a KeyAccesses<'a>,
    ranks: &'a [Option<OrderRank>],
    chains: &'a Chains,
    /// Are the updates of this key assumed to be atomic?
    is_chained: bool,
    pairs: Vec<(Version, Version)>,
    barriers: Vec<Barrier>,
    /// By session: the last version that it accessed of the key in question.
    last: Vec<Option<Version>>,
    /// By version: its zone. All empty between keys.
    places: Vec<Option<ZoneId>>,
    zones: Vec<Zone>,
}

impl<'a> VersionOrderInference<'a> {
    fn new(
        accesses: &'a KeyAccesses<'a>,
        ranks: &'a [Option<OrderRank>],
        chains: &'a Chains,
    ) -> VersionOrderInference<'a> {
        VersionOrderInference {
            accesses,
            ranks,
            chains,
            is_chained: false,
            pairs: Vec::new(),
            barriers: Vec::new(),
            last: Vec::new(),
            places: Vec::new(),
            zones: Vec::new(),
        }
    }

    /// Adds the edges of a source for a key. Returns two versions of which each comes before the other, if this finds any.
    fn infer_key(&mut self, key: u32, source: VersionOrderSource) -> Option<(Version, Version)> {
        let from = self.pairs.len();
        match source {
            VersionOrderSource::Wfr => self.follow_reads(key),
            VersionOrderSource::Rmw => self.follow_first_updates(key),
            VersionOrderSource::Sequential => self.follow_sessions(key),
            VersionOrderSource::Order => self.follow_order(key),
            VersionOrderSource::Linearizable => {
                let conflict = self.follow_time(key);
                if conflict.is_some() {
                    return conflict;
                }
            }
        }
        let columns = self.accesses.columns;
        let mut added = self.pairs[from..].iter();
        let back = added.find(|pair| columns.is_initial(pair.1)).copied();
        if back.is_some() {
            self.pairs.truncate(from);
        }
        // Edges from the initial state are implicit.
        let mut kept = from;
        for at in from..self.pairs.len() {
            if !columns.is_initial(self.pairs[at].0) {
                self.pairs.swap(kept, at);
                kept += 1;
            }
        }
        self.pairs.truncate(kept);
        back
    }

    /// Adds that one version comes before another, if both are known and they differ.
    fn pair(&mut self, from: Option<Version>, to: Option<Version>) {
        let Some((from, to)) = from.zip(to).filter(|(from, to)| from != to) else {
            return;
        };
        let is_between = self.is_chained && self.chains.head(from) != self.chains.head(to);
        self.pairs.push(if is_between {
            (self.chains.tail(from), self.chains.head(to))
        } else {
            (from, to)
        });
    }

    /// An update of the initial state comes before all other versions.
    fn follow_first_updates(&mut self, key: u32) {
        // The initial state has the number of its key.
        let initial = Version::new(key);
        let (first, last) = (self.chains.head(initial), self.chains.tail(initial));
        if last == initial {
            return;
        }
        let accesses = self.accesses.of_key(key).iter();
        let heads = accesses.flat_map(|access| access.versions());
        let heads = heads.map(|version| self.chains.head(version));
        let mut heads: Vec<_> = heads.filter(|&head| head != first).collect();
        heads.sort_unstable();
        heads.dedup();
        self.add_barriers(vec![Barrier {
            outs: vec![last],
            ins: heads,
            chained: false,
        }]);
    }

    fn follow_reads(&mut self, key: u32) {
        let accesses = self.accesses;
        for access in accesses.of_key(key) {
            self.pair(access.read, access.write);
        }
    }

    fn follow_sessions(&mut self, key: u32) {
        let accesses = self.accesses;
        let columns = accesses.columns;
        self.last.resize(columns.session_count(), None);
        let session = |one: Txn| columns.sessions()[one.index()].index();
        for access in accesses.in_turn(key) {
            let session = session(access.transaction);
            self.pair(self.last[session], access.first());
            self.pair(access.read, access.write);
            // A transaction of unknown outcome may take effect later: nothing is known to follow it.
            if accesses.is_ok(access.transaction) {
                self.last[session] = access.last();
            }
        }
        // Only the entries that were used are reset: there are as many sessions as clients, and a key may have few of them.
        for access in accesses.of_key(key) {
            self.last[session(access.transaction)] = None;
        }
        debug_assert!(
            self.last.iter().all(Option::is_none),
            "no session has a version of an earlier key"
        );
    }

    fn follow_order(&mut self, key: u32) {
        let ranks = self.ranks;
        let known = self.accesses.in_turn(key).filter_map(|access| {
            let rank = ranks.get(access.transaction.index()).copied().flatten();
            Some((rank?, access))
        });
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|&(rank, _)| rank);
        let mut last = None;
        for (_, access) in known {
            self.pair(last, access.first());
            self.pair(access.read, access.write);
            last = access.last();
        }
    }

    fn follow_time(&mut self, key: u32) -> Option<(Version, Version)> {
        let accesses = self.accesses;
        let columns = accesses.columns;
        if self.places.is_empty() {
            self.places = vec![None; columns.version_count()];
        }
        self.zones.clear();
        let mut initial = 0;
        for access in accesses.of_key(key) {
            let transaction = access.transaction.get();
            // Unknown times are those that order nothing: an end after everything, a beginning before everything.
            let ended = columns.ended(transaction).map_or(NEVER, Position::get);
            let begun = columns.begun(transaction).map_or(0, Position::get);
            for version in access.versions() {
                if columns.is_initial(version) {
                    initial = initial.max(begun);
                    continue;
                }
                if let Some(zone) = self.places[version.index()] {
                    let zone = &mut self.zones[zone.index()];
                    zone.ended = zone.ended.min(ended);
                    zone.begun = zone.begun.max(begun);
                } else {
                    let zone = ZoneId::new(self.zones.len() as u32);
                    self.places[version.index()] = Some(zone);
                    self.zones.push(Zone {
                        version,
                        ended,
                        begun,
                    });
                }
            }
        }
        for zone in &self.zones {
            self.places[zone.version.index()] = None;
        }
        if self.is_chained {
            let conflict = self.join_zones(key, &mut initial);
            if conflict.is_some() {
                return conflict;
            }
        }
        let first = self.zones.iter().min_by_key(|zone| zone.ended);
        if let Some(zone) = first.filter(|zone| zone.ended < initial) {
            return Some((Version::new(key), zone.version));
        }
        if let Some(conflict) = zones::conflict(&mut self.zones) {
            return Some(conflict);
        }
        let mut barriers = zones::barriers(&self.zones);
        if self.is_chained {
            for out in barriers.iter_mut().flat_map(|barrier| &mut barrier.outs) {
                *out = self.chains.tail(*out);
            }
        }
        self.add_barriers(barriers);
        None
    }

    /// Joins the zones of each chain. Within a chain, later versions must not come before earlier ones. The chain of the initial
    /// state has no zone, but the last invocation that accessed any of its versions.
    fn join_zones(&mut self, key: u32, initial: &mut u32) -> Option<(Version, Version)> {
        let chains = self.chains;
        let zones: BTreeMap<Version, Zone> =
            self.zones.drain(..).map(|it| (it.version, it)).collect();
        let heads: BTreeSet<Version> = zones.keys().map(|&version| chains.head(version)).collect();
        let mut conflict = None;
        for head in heads {
            let is_first = head == Version::new(key);
            let members = chains
                .members(head)
                .filter_map(|version| zones.get(&version));
            let mut whole = Zone {
                version: head,
                ended: NEVER,
                begun: if is_first { *initial } else { 0 },
            };
            let mut latest = head;
            for zone in members {
                if zone.ended < whole.begun {
                    conflict.get_or_insert((zone.version, latest));
                }
                whole.ended = whole.ended.min(zone.ended);
                if zone.begun > whole.begun {
                    (whole.begun, latest) = (zone.begun, zone.version);
                }
            }
            if is_first {
                *initial = whole.begun;
            } else {
                self.zones.push(whole);
            }
        }
        conflict
    }

    /// Adds the barriers of a key; those that replace few pairs are added as pairs.
    fn add_barriers(&mut self, barriers: Vec<Barrier>) {
        let mut is_chained = false;
        for barrier in barriers {
            let (outs, ins) = (barrier.outs.len(), barrier.ins.len());
            let is_open = is_chained || barrier.chained;
            is_chained = barrier.chained;
            if is_open || outs * ins > 2 * (outs + ins) {
                self.barriers.push(barrier);
                continue;
            }
            for &from in &barrier.outs {
                for &to in &barrier.ins {
                    self.pair(Some(from), Some(to));
                }
            }
        }
        assert!(!is_chained, "the last barrier of a key is chained to none");
    }
}
