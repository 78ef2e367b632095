//! Staleness by versions: does each read return one of the last *k* writes?

use crate::register_history::RegisterHistory;
use crate::value_clusters::WriteCluster;
use std::collections::BTreeSet;

/// The answer to one question about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StalenessAnswer {
    /// There is such an order.
    Holds,
    /// There is none.
    Fails,
    /// The search reached its bound.
    Open,
}

/// Steps of all searches of one question about a key: this number, and [`STEPS_PER_WRITE`] for each write.
const STEPS_MAX: u64 = 20_000_000;
const STEPS_PER_WRITE: u64 = 64;
/// Steps of the first search from one last write, doubled until one of them ends.
const STEPS_FIRST: u64 = 64;
/// Longer parts of an order are not remembered when they failed.
const REMEMBERED_MAX: usize = 256;

/// Decides *k*-atomicity of one key (Aiyer, Alvisi and Bazzi 2005; Golab, Li and Shah 2011): is there an order of all operations
/// that follows real time in which each read returns one of the *k* last writes before it? With *k* = 1 this is
/// linearizability.
///
/// The order is built from its end, as by the algorithm LBT of Golab, Li and Shah (2011) for *k* = 2. The next write *w* is one
/// with no remaining write after its end. Remaining reads that begin after the end of *w* come after it, so their writes must be
/// among the next *k* - 1: they are *due*. When nothing is due, the writes so far and their reads are done for good: removing
/// them keeps the rest *k*-atomic if the whole is, and an order of the rest continues theirs. So a search never goes back behind
/// such a point. For *k* = 2 each write in between is forced; for larger *k* it is chosen, with failed sets remembered. A last
/// write whose search fails late is not allowed to delay another that succeeds early: all of them get the same number of steps,
/// which doubles.
///
/// Time O(n log n + c·n) for *k* ≤ 2 with at most *c* concurrent writes; for larger *k* no polynomial algorithm is known, so
/// there is a bound. Memory O(n).
pub(crate) struct VersionOrder<'c> {
    clusters: &'c [WriteCluster],
    k: usize,
    /// Clusters by the invocation of their write, by their first completion, by the invocation of their last read: the latest
    /// first, those that are done for good left out.
    by_call: LinkedOrder,
    by_end: LinkedOrder,
    by_read: LinkedOrder,
    /// By cluster: position of the last invocation of a read plus one; 0 without reads.
    last_reads: Vec<u32>,
    /// By cluster: is it placed?
    is_placed: Vec<bool>,
    left: usize,
    steps: u64,
}

/// Clusters in an order from which some are taken out.
struct LinkedOrder {
    /// By cluster, and the head at last: the next cluster, and the one before.
    next: Vec<u32>,
    previous: Vec<u32>,
}

impl LinkedOrder {
    /// The clusters from the largest key to the smallest one.
    fn new(count: usize, key: impl Fn(u32) -> u32) -> LinkedOrder {
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_by_key(|&it| std::cmp::Reverse(key(it)));
        let head = count as u32;
        let (mut next, mut previous) = (vec![head; count + 1], vec![head; count + 1]);
        let mut last = head;
        for it in order {
            next[last as usize] = it;
            previous[it as usize] = last;
            last = it;
        }
        next[last as usize] = head;
        previous[count] = last;
        LinkedOrder { next, previous }
    }

    /// The cluster after this one (after the head, the first one); `None` at the end.
    fn after(&self, it: u32) -> Option<u32> {
        let next = self.next[it as usize];
        (next != self.head()).then_some(next)
    }

    fn head(&self) -> u32 {
        (self.next.len() - 1) as u32
    }

    fn remove(&mut self, it: u32) {
        let (next, previous) = (self.next[it as usize], self.previous[it as usize]);
        self.next[previous as usize] = next;
        self.previous[next as usize] = previous;
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.after(self.head()), |&it| self.after(it))
    }
}

/// One write of an order that is built, with what is due after it.
struct PlacedWrite {
    cluster: u32,
    /// Clusters that must come soon, and within how many writes.
    due: Vec<(u32, usize)>,
    /// The last cluster in the order of reads that was looked at, and one in the order of invocations before which all are
    /// placed: an order may be long, and is not gone through again for each write.
    read_at: u32,
    call_at: u32,
    /// Writes to try next, the last one first.
    choices: Vec<u32>,
}

/// Sets of writes that were tried without success, with what was due then.
type FailedSets = BTreeSet<(Vec<u32>, Vec<(u32, usize)>)>;

impl<'c> VersionOrder<'c> {
    pub(crate) fn new(history: &RegisterHistory, clusters: &'c [WriteCluster], k: usize) -> Self {
        assert!(k > 0, "a read returns a version");
        let last_reads = clusters.iter().map(|cluster| {
            let reads = cluster.reads.iter();
            let calls = reads.map(|&read| history.actions[read as usize].call + 1);
            calls.max().unwrap_or(0)
        });
        let last_reads: Vec<u32> = last_reads.collect();
        let count = clusters.len();
        VersionOrder {
            by_call: LinkedOrder::new(count, |it| clusters[it as usize].call),
            by_end: LinkedOrder::new(count, |it| clusters[it as usize].end),
            by_read: LinkedOrder::new(count, |it| last_reads[it as usize]),
            is_placed: vec![false; count],
            left: count,
            clusters,
            k,
            last_reads,
            steps: 0,
        }
    }

    /// Is there an order?
    pub(crate) fn decide(&mut self) -> StalenessAnswer {
        let steps_max = STEPS_MAX + STEPS_PER_WRITE * self.clusters.len() as u64;
        while self.left > 0 {
            let mut starts = self.candidates(self.by_call.head());
            let mut limit = STEPS_FIRST;
            let mut failed = BTreeSet::new();
            let found = 'found: loop {
                let mut open = Vec::new();
                for start in starts {
                    let mut steps = limit;
                    match self.search(start, &mut steps, &mut failed) {
                        Some(true) => break 'found true,
                        Some(false) => {}
                        None => open.push(start),
                    }
                    self.steps += limit - steps;
                    if self.steps > steps_max {
                        return StalenessAnswer::Open;
                    }
                }
                if open.is_empty() {
                    break false;
                }
                starts = open;
                limit *= 2;
            };
            if !found {
                return StalenessAnswer::Fails;
            }
        }
        StalenessAnswer::Holds
    }

    /// The clusters that are not done, the latest first; after a failure these alone fail.
    pub(crate) fn remaining(&self) -> Vec<WriteCluster> {
        let left = self.by_call.iter();
        left.map(|it| self.clusters[it as usize].clone()).collect()
    }

    /// The first cluster from `at` on, in the order of invocations, that is not placed.
    fn latest(&self, at: u32) -> Option<u32> {
        let mut next = self.by_call.after(at);
        while let Some(it) = next.filter(|&it| self.is_placed[it as usize]) {
            next = self.by_call.after(it);
        }
        next
    }

    /// The writes that are not placed and after whose end no other one begins, the latest first. All before `call_at` are
    /// placed.
    fn candidates(&self, call_at: u32) -> Vec<u32> {
        let Some(latest) = self.latest(call_at) else {
            return Vec::new();
        };
        let call = self.clusters[latest as usize].call;
        let late = self.by_end.iter();
        let late = late.take_while(|&it| self.clusters[it as usize].end >= call);
        let mut candidates: Vec<u32> = late.filter(|&it| !self.is_placed[it as usize]).collect();
        candidates.sort_by_key(|&it| std::cmp::Reverse(self.clusters[it as usize].call));
        candidates
    }

    /// Places a write after the last one, with what is due then; `None` if that cannot be.
    fn place(&self, cluster: u32, last: Option<&PlacedWrite>) -> Option<PlacedWrite> {
        let end = self.clusters[cluster as usize].end;
        let mut call_at = last.map_or(self.by_call.head(), |last| last.call_at);
        let mut latest = self.latest(call_at);
        if let Some(latest) = latest {
            call_at = self.by_call.previous[latest as usize];
        }
        if latest == Some(cluster) {
            latest = self.latest(cluster);
        }
        if latest.is_some_and(|it| self.clusters[it as usize].call > end) {
            return None;
        }
        let due = last.map_or(&[][..], |last| &last.due);
        let others = due.iter().filter(|(other, _)| *other != cluster);
        let mut after: Vec<_> = others.map(|&(other, within)| (other, within - 1)).collect();
        let mut read_at = last.map_or(self.by_read.head(), |last| last.read_at);
        while let Some(other) = self.by_read.after(read_at)
            && self.last_reads[other as usize] > end
        {
            let is_known = after.iter().any(|&(known, _)| known == other);
            if other != cluster && !self.is_placed[other as usize] && !is_known {
                after.push((other, self.k - 1));
                if after.len() >= self.k {
                    return None;
                }
            }
            read_at = other;
        }
        after.sort_unstable_by_key(|&(other, within)| (within, other));
        let fits = |(place, &(_, within)): (usize, &(u32, usize))| within > place;
        after.iter().enumerate().all(fits).then_some(PlacedWrite {
            cluster,
            due: after,
            read_at,
            call_at,
            choices: Vec::new(),
        })
    }

    /// Searches for writes from `start` on after which nothing is due, and places them for good. `None` if the steps do not
    /// suffice.
    fn search(&mut self, start: u32, steps: &mut u64, failed: &mut FailedSets) -> Option<bool> {
        let mut placed: Vec<PlacedWrite> = Vec::new();
        let mut choice = Some(start);
        let result = loop {
            if let Some(cluster) = choice.take() {
                if *steps == 0 {
                    break None;
                }
                *steps -= 1;
                if let Some(next) = self.place(cluster, placed.last()) {
                    self.is_placed[cluster as usize] = true;
                    placed.push(next);
                    if self.finish(&placed) {
                        return Some(true);
                    }
                    let is_new = self.k <= 2 || !failed.contains(&placed_set(&placed));
                    let last = placed.last_mut().expect("one was placed");
                    if is_new {
                        last.choices = self.choices(last);
                    }
                }
            }
            let Some(last) = placed.last_mut() else {
                break Some(false);
            };
            choice = last.choices.pop();
            if choice.is_none() {
                if self.k > 2 && placed.len() <= REMEMBERED_MAX {
                    failed.insert(placed_set(&placed));
                }
                let last = placed.pop().expect("it is the last");
                self.is_placed[last.cluster as usize] = false;
            }
        };
        for write in placed {
            self.is_placed[write.cluster as usize] = false;
        }
        result
    }

    /// Takes these writes out for good if nothing is due after them.
    fn finish(&mut self, placed: &[PlacedWrite]) -> bool {
        if placed.last().is_some_and(|last| !last.due.is_empty()) {
            return false;
        }
        for write in placed {
            self.by_call.remove(write.cluster);
            self.by_end.remove(write.cluster);
            self.by_read.remove(write.cluster);
        }
        self.left -= placed.len();
        true
    }

    /// The writes that can come next, the best one last.
    fn choices(&self, last: &PlacedWrite) -> Vec<u32> {
        let mut due = last.due.iter().enumerate();
        // Without room, only a write that is due can come.
        let is_tight = due.any(|(place, &(_, within))| within == place + 1);
        let mut choices = Vec::new();
        if !is_tight {
            choices = self.candidates(last.call_at);
            choices.retain(|&it| last.due.iter().all(|&(other, _)| other != it));
            choices.reverse();
        }
        choices.extend(last.due.iter().rev().map(|&(other, _)| other));
        choices
    }
}

/// What a search depends on: the writes that are placed, and what is due.
fn placed_set(placed: &[PlacedWrite]) -> (Vec<u32>, Vec<(u32, usize)>) {
    let mut clusters: Vec<u32> = placed.iter().map(|it| it.cluster).collect();
    clusters.sort_unstable();
    let due = placed.last().map_or_else(Vec::new, |it| it.due.clone());
    (clusters, due)
}

/// The read that certainly returns the oldest version: at least this many writes of its key come between its write and it, since
/// they begin after the one ends and end before the other begins. O(n log n).
pub(crate) fn certain_staleness(
    history: &RegisterHistory,
    clusters: &[WriteCluster],
) -> Option<(usize, u32)> {
    // Writes by end, counted by the rank of their invocation, as reads come by invocation.
    let mut calls: Vec<u32> = clusters.iter().map(|it| it.call).collect();
    calls.sort_unstable();
    let mut by_end: Vec<(u32, u32)> = clusters.iter().map(|it| (it.end, it.call)).collect();
    by_end.sort_unstable();
    let reads = clusters.iter().flat_map(|cluster| {
        let reads = cluster.reads.iter();
        reads.map(|&read| (history.actions[read as usize].call + 1, cluster.end, read))
    });
    let mut reads: Vec<(u32, u32, u32)> = reads.collect();
    reads.sort_unstable();
    let mut counts = vec![0u32; calls.len() + 1];
    let mut ended = by_end.into_iter().peekable();
    let mut total = 0;
    let mut stalest = None;
    for (call, end, read) in reads {
        while let Some((_, begun)) = ended.next_if(|&(it, _)| it < call) {
            let mut at = calls.partition_point(|&it| it < begun) + 1;
            total += 1;
            while at < counts.len() {
                counts[at] += 1;
                at += at & at.wrapping_neg();
            }
        }
        let mut at = calls.partition_point(|&it| it <= end);
        let mut earlier = 0;
        while at > 0 {
            earlier += counts[at];
            at -= at & at.wrapping_neg();
        }
        let between = (total - earlier) as usize;
        if stalest.is_none_or(|(most, _)| between > most) {
            stalest = Some((between, read));
        }
    }
    stalest
}

/// Clusters that alone have no order, of some that have none, the latest first. If there are few of them, none can be left out.
pub(crate) fn unordered_core(
    history: &RegisterHistory,
    clusters: Vec<WriteCluster>,
    k: usize,
) -> Vec<WriteCluster> {
    let fails = |part: &[WriteCluster]| {
        VersionOrder::new(history, part, k).decide() == StalenessAnswer::Fails
    };
    let mut core = clusters;
    // The failure is among the latest ones as a rule.
    let mut length = WINDOW_FIRST;
    while length < core.len() {
        if fails(&core[..length]) {
            core.truncate(length);
            break;
        }
        length *= 2;
    }
    // Without the clusters before the failure, then without those after it.
    for _ in 0..2 {
        let (mut holds, mut broken) = (0, core.len());
        while broken - holds > 1 {
            let middle = holds.midpoint(broken);
            if fails(&core[..middle]) {
                broken = middle;
            } else {
                holds = middle;
            }
        }
        core.truncate(broken);
        core.reverse();
    }
    core.reverse();
    let mut at = 0;
    while at < core.len() && core.len() <= CORE_MAX {
        let cluster = core.remove(at);
        if !fails(&core) {
            core.insert(at, cluster);
            at += 1;
        }
    }
    core.reverse();
    core
}

/// Clusters that are looked at first for a core.
const WINDOW_FIRST: usize = 64;
/// Larger cores are not reduced one by one.
const CORE_MAX: usize = 200;
