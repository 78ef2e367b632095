//! The order of each key's versions, as far as it can be inferred.

use super::chains::Chains;
use super::inference::{Source, Sources};
use super::touches::Touches;
use super::zones::{self, Barrier, Zone};
use crate::txn::components::components;
use crate::txn::graph::{Edges, Graph, Sink, WW};
use crate::txn::registers::NONE;
use crate::txn::rows::{Linked, Rows, TooManyEdges};
use crate::txn::search::shortest_cycle;
use std::collections::{BTreeMap, BTreeSet};

/// Orders of versions that contradict one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    pub(super) key: u32,
    /// What is not used for this key because of it.
    pub(super) source: Source,
    /// What was used to come to it.
    pub(super) sources: Sources,
    /// Versions of which each comes before the next, and the last before the first.
    pub(super) cycle: Vec<u32>,
}

/// What comes before what, without the initial states, which come before everything.
///
/// Most of it are pairs of versions, in rows. The order of real time is one of intervals, in which many versions may
/// come before many others; where pairs would be too many it is told by [`Barrier`]s. So its size is linear in
/// that of the history, whatever the concurrency.
pub(super) struct Orders<'a> {
    pub(super) touches: &'a Touches<'a>,
    /// By transaction its place in the given order; [`NONE`] when it has none.
    pub(super) numbers: &'a [u32],
    sources: Sources,
    /// Chains of updates, if these are taken to be atomic.
    pub(super) chains: Chains,
    /// Keys for which not all sources are used.
    accepted: BTreeMap<u32, Sources>,
    /// By version: where the next ones begin in `next`.
    starts: Vec<u32>,
    next: Vec<u32>,
    /// Those of a key follow one another.
    pub(super) barriers: Vec<Barrier>,
    /// By version: the barrier among whose `ins` it is. Empty without barriers.
    entered: Vec<u32>,
    /// Versions that nobody installed (thin air, aborted, intermediate, of unknown outcome) and that come after
    /// others, sorted.
    pub(super) strangers: Vec<u32>,
    pub(super) contradictions: Vec<Contradiction>,
}

impl<'a> Orders<'a> {
    /// Infers the orders from these sources.
    pub(super) fn new(
        touches: &'a Touches<'a>,
        sources: Sources,
        numbers: &'a [u32],
    ) -> Result<Orders<'a>, TooManyEdges> {
        let mut orders = Orders {
            touches,
            numbers,
            chains: if sources.has(Source::Rmw) {
                Chains::new(touches)
            } else {
                Chains::default()
            },
            sources,
            accepted: BTreeMap::new(),
            starts: Vec::new(),
            next: Vec::new(),
            barriers: Vec::new(),
            entered: Vec::new(),
            strangers: Vec::new(),
            contradictions: Vec::new(),
        };
        let mut doubtful = orders.infer();
        let versions = touches.columns.version_count();
        let rows = Rows::new(versions, &orders)?;
        for component in rows.components(&rows.peel(), versions as u32) {
            doubtful.push(touches.columns.key_of(component[0]));
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
    pub(super) fn sources(&self, key: u32) -> Sources {
        self.accepted.get(&key).copied().unwrap_or(self.sources)
    }

    /// The versions that come after a version, as pairs.
    pub(super) fn next(&self, version: u32) -> &[u32] {
        let version = version as usize;
        &self.next[self.starts[version] as usize..self.starts[version + 1] as usize]
    }

    /// The barrier among whose `ins` a version is; [`NONE`] when there is none.
    pub(super) fn entered(&self, version: u32) -> u32 {
        let barrier = self.entered.get(version as usize);
        barrier.copied().unwrap_or(NONE)
    }

    /// Takes all sources of all keys; the keys of which a source contradicts itself.
    fn infer(&mut self) -> Vec<u32> {
        let columns = self.touches.columns;
        let mut teller = Teller::new(self.touches, self.numbers, &self.chains);
        let mut doubtful = Vec::new();
        for key in 0..columns.key_count() as u32 {
            let sources = self.sources(key);
            teller.is_chained = sources.has(Source::Rmw);
            for source in sources.iter() {
                if teller.tell(key, source).is_some() {
                    doubtful.push(key);
                }
            }
        }
        let Teller {
            pairs, barriers, ..
        } = teller;
        self.arrange(pairs);
        self.entered = Vec::new();
        if !barriers.is_empty() {
            self.entered = vec![NONE; columns.version_count()];
            for (number, barrier) in barriers.iter().enumerate() {
                for &version in &barrier.ins {
                    self.entered[version as usize] = number as u32;
                }
            }
        }
        self.barriers = barriers;
        let ins = self.barriers.iter().flat_map(|barrier| &barrier.ins);
        let after = self.next.iter().chain(ins).copied();
        let strangers = after.filter(|&version| self.touches.installer(version) == NONE);
        self.strangers = strangers.collect();
        self.strangers.sort_unstable();
        self.strangers.dedup();
        doubtful
    }

    /// Puts pairs into rows, each once.
    fn arrange(&mut self, pairs: Vec<(u32, u32)>) {
        let versions = self.touches.columns.version_count();
        let mut starts = vec![0_u32; versions + 2];
        for &(from, _) in &pairs {
            starts[from as usize + 2] += 1;
        }
        for version in 1..starts.len() {
            starts[version] += starts[version - 1];
        }
        let mut next = vec![0; pairs.len()];
        for (from, to) in pairs {
            let place = &mut starts[from as usize + 1];
            next[*place as usize] = to;
            *place += 1;
        }
        let mut end = 0;
        for version in 0..versions {
            let range = starts[version] as usize..starts[version + 1] as usize;
            // The start of the next row is needed to know this one.
            starts[version] = end as u32;
            let row = &mut next[range.clone()];
            row.sort_unstable();
            let mut last = NONE;
            for at in range {
                if next[at] != last {
                    last = next[at];
                    next[end] = last;
                    end += 1;
                }
            }
        }
        starts[versions] = end as u32;
        starts.pop();
        next.truncate(end);
        (self.starts, self.next) = (starts, next);
    }

    /// Finds out which sources agree for each of these keys.
    fn examine_all(&mut self, keys: Vec<u32>) {
        let mut teller = Teller::new(self.touches, self.numbers, &self.chains);
        let mut contradictions = Vec::new();
        for key in keys {
            let accepted = self.examine(key, &mut teller, &mut contradictions);
            self.accepted.insert(key, accepted);
        }
        self.contradictions = contradictions;
    }

    /// Which sources agree for a key: each is used unless it contradicts those before it.
    fn examine(
        &self,
        key: u32,
        teller: &mut Teller<'_>,
        contradictions: &mut Vec<Contradiction>,
    ) -> Sources {
        let mut accepted = Sources::default();
        let mut known = Trial::new(self.touches, key);
        for source in self.sources.iter() {
            if source == Source::Rmw && !accepted.has(Source::Wfr) {
                continue;
            }
            let sources = accepted.with(source);
            teller.is_chained = sources.has(Source::Rmw);
            teller.pairs.clear();
            teller.barriers.clear();
            let conflict = teller.tell(key, source);
            let mut trial = known.clone();
            let cycle = if let Some((one, other)) = conflict {
                Some(vec![one, other])
            } else {
                trial.add(teller);
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
impl Linked for Orders<'_> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        for version in 0..self.touches.columns.version_count() as u32 {
            for &next in self.next(version) {
                edges.link(version, next, WW);
            }
        }
        link_barriers(&self.barriers, edges, |version| version);
    }
}

fn link_barriers<S: Sink>(barriers: &[Barrier], edges: &mut Edges<S>, number: impl Fn(u32) -> u32) {
    let mut before = None;
    for barrier in barriers {
        let helper = edges.helper();
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

/// One key's versions and what is known of their order.
#[derive(Clone)]
struct Trial {
    versions: Vec<u32>,
    pairs: Vec<(u32, u32)>,
    barriers: Vec<Barrier>,
}

impl Trial {
    fn new(touches: &Touches<'_>, key: u32) -> Trial {
        let met = touches.of_key(key).iter();
        let met = met.flat_map(|touch| [touch.read, touch.write]);
        let mut versions: Vec<_> = met.filter(|&version| version != NONE).collect();
        versions.sort_unstable();
        versions.dedup();
        Trial {
            versions,
            pairs: Vec::new(),
            barriers: Vec::new(),
        }
    }

    fn add(&mut self, teller: &Teller<'_>) {
        self.pairs.extend(&teller.pairs);
        self.barriers.extend(teller.barriers.iter().cloned());
    }

    /// A short cycle, if there is any.
    fn cycle(&self) -> Option<Vec<u32>> {
        let number = |version: u32| {
            let place = self.versions.binary_search(&version);
            place.unwrap_or_default() as u32
        };
        let mut edges = Edges::new(self.versions.len());
        for &(from, to) in &self.pairs {
            edges.link(number(from), number(to), WW);
        }
        link_barriers(&self.barriers, &mut edges, number);
        let graph: Graph = edges.into_graph();
        let members = components(&graph, WW).into_iter().next()?;
        let mut numbers = vec![u32::MAX; graph.len()];
        let part = graph.part(&members, &mut numbers);
        let cycle = shortest_cycle(&part, WW)?;
        let names = cycle.iter().map(|&node| members[node as usize]);
        Some(names.map(|node| self.versions[node as usize]).collect())
    }
}

/// Tells the order of versions that one source says of one key.
struct Teller<'a> {
    touches: &'a Touches<'a>,
    numbers: &'a [u32],
    chains: &'a Chains,
    /// Are the updates of this key taken to be atomic?
    is_chained: bool,
    pairs: Vec<(u32, u32)>,
    barriers: Vec<Barrier>,
    /// By session: the last key it touched, and 1, and the version.
    last: Vec<(u32, u32)>,
    /// By version: the place of its zone.
    places: Vec<u32>,
    zones: Vec<Zone>,
}

impl<'a> Teller<'a> {
    fn new(touches: &'a Touches<'a>, numbers: &'a [u32], chains: &'a Chains) -> Teller<'a> {
        Teller {
            touches,
            numbers,
            chains,
            is_chained: false,
            pairs: Vec::new(),
            barriers: Vec::new(),
            last: Vec::new(),
            places: Vec::new(),
            zones: Vec::new(),
        }
    }

    /// Adds what a source says of a key; two versions of which each comes before the other, if that is found here.
    fn tell(&mut self, key: u32, source: Source) -> Option<(u32, u32)> {
        let from = self.pairs.len();
        match source {
            Source::Wfr => self.follow_reads(key),
            Source::Rmw => self.follow_first_updates(key),
            Source::Sequential => self.follow_sessions(key),
            Source::Order => self.follow_order(key),
            Source::Linearizable => {
                let conflict = self.follow_time(key);
                if conflict.is_some() {
                    return conflict;
                }
            }
        }
        let columns = self.touches.columns;
        let mut added = self.pairs[from..].iter();
        let back = added.find(|pair| columns.is_initial(pair.1)).copied();
        if back.is_some() {
            self.pairs.truncate(from);
        }
        // That the initial state comes first is told otherwise.
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

    fn pair(&mut self, from: u32, to: u32) {
        if from == to || from == NONE || to == NONE {
            return;
        }
        let is_between = self.is_chained && self.chains.head(from) != self.chains.head(to);
        self.pairs.push(if is_between {
            (self.chains.tail(from), self.chains.head(to))
        } else {
            (from, to)
        });
    }

    /// What was written on top of the initial state comes before everything else.
    fn follow_first_updates(&mut self, key: u32) {
        let (first, last) = (self.chains.head(key), self.chains.tail(key));
        if last == key {
            return;
        }
        let touches = self.touches.of_key(key).iter();
        let met = touches.flat_map(|touch| [touch.read, touch.write]);
        let heads = met.filter(|&version| version != NONE);
        let heads = heads.map(|version| self.chains.head(version));
        let mut heads: Vec<_> = heads.filter(|&head| head != first).collect();
        heads.sort_unstable();
        heads.dedup();
        self.take(vec![Barrier {
            outs: vec![last],
            ins: heads,
            chained: false,
        }]);
    }

    fn follow_reads(&mut self, key: u32) {
        let touches = self.touches;
        for touch in touches.of_key(key) {
            self.pair(touch.read, touch.write);
        }
    }

    fn follow_sessions(&mut self, key: u32) {
        let touches = self.touches;
        let columns = touches.columns;
        self.last.resize(columns.session_count(), (0, NONE));
        for touch in touches.in_turn(key) {
            let session = columns.sessions()[touch.transaction as usize] as usize;
            let (of, last) = self.last[session];
            if of == key + 1 {
                self.pair(last, touch.first());
            }
            self.pair(touch.read, touch.write);
            // Nothing follows what may still happen.
            if touches.is_ok(touch.transaction) {
                self.last[session] = (key + 1, touch.last());
            }
        }
        // The same key may be told again.
        for touch in touches.of_key(key) {
            let session = columns.sessions()[touch.transaction as usize] as usize;
            self.last[session] = (0, NONE);
        }
    }

    fn follow_order(&mut self, key: u32) {
        let numbers = self.numbers;
        let number = |transaction: u32| numbers.get(transaction as usize).copied();
        let known = self.touches.in_turn(key).filter_map(|touch| {
            let number = number(touch.transaction).filter(|&number| number != NONE);
            Some((number?, touch))
        });
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|&(number, _)| number);
        let mut last = NONE;
        for (_, touch) in known {
            self.pair(last, touch.first());
            self.pair(touch.read, touch.write);
            last = touch.last();
        }
    }

    fn follow_time(&mut self, key: u32) -> Option<(u32, u32)> {
        let touches = self.touches;
        let columns = touches.columns;
        if self.places.is_empty() {
            self.places = vec![NONE; columns.version_count()];
        }
        self.zones.clear();
        let mut initial = 0;
        for touch in touches.of_key(key) {
            let ended = columns.ended(touch.transaction);
            let begun = columns.begun(touch.transaction);
            let begun = if begun == NONE { 0 } else { begun };
            for version in [touch.read, touch.write] {
                if version == NONE {
                    continue;
                }
                if columns.is_initial(version) {
                    initial = initial.max(begun);
                    continue;
                }
                let place = &mut self.places[version as usize];
                if *place == NONE {
                    *place = self.zones.len() as u32;
                    self.zones.push(Zone {
                        version,
                        ended,
                        begun,
                    });
                } else {
                    let zone = &mut self.zones[*place as usize];
                    zone.ended = zone.ended.min(ended);
                    zone.begun = zone.begun.max(begun);
                }
            }
        }
        for zone in &self.zones {
            self.places[zone.version as usize] = NONE;
        }
        if self.is_chained {
            let conflict = self.join_zones(key, &mut initial);
            if conflict.is_some() {
                return conflict;
            }
        }
        let first = self.zones.iter().min_by_key(|zone| zone.ended);
        if let Some(zone) = first.filter(|zone| zone.ended < initial) {
            return Some((key, zone.version));
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
        self.take(barriers);
        None
    }

    /// Makes one zone of those of each chain. Within a chain, later versions must not come before earlier ones; that of the
    /// initial state has no zone, but the last invocation that met any of it.
    fn join_zones(&mut self, key: u32, initial: &mut u32) -> Option<(u32, u32)> {
        let chains = self.chains;
        let zones: BTreeMap<u32, Zone> = self.zones.drain(..).map(|it| (it.version, it)).collect();
        let heads: BTreeSet<u32> = zones.keys().map(|&version| chains.head(version)).collect();
        let mut conflict = None;
        for head in heads {
            let is_first = head == key;
            let members = chains
                .members(head)
                .filter_map(|version| zones.get(&version));
            let mut whole = Zone {
                version: head,
                ended: NONE,
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

    /// Takes a key's barriers, those that stand for few pairs as pairs.
    fn take(&mut self, barriers: Vec<Barrier>) {
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
                    self.pair(from, to);
                }
            }
        }
    }
}
