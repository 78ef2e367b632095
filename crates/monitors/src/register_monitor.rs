//! Registers whose values are written once: linearizability by zones, without a search.

use crate::NEVER;
use std::collections::BTreeSet;

/// What an operation does to a register. Values are numbered densely; the initial value is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// The register has this value.
    Read(u32),
    /// It has this value from now on.
    Write(u32),
    /// It has the first value, and from now on the second.
    Cas(u32, u32),
    /// Anything else: the monitor does not apply.
    Other,
}

/// An operation on a register, in the caller's own form: no copy is made of a history.
pub trait ZoneCall {
    /// What it does.
    fn action(&self) -> ZoneAction;

    /// Position of its invocation; less than [`NEVER`].
    fn call(&self) -> u32;

    /// Position of its completion; [`NEVER`] if its outcome is unknown.
    fn ret(&self) -> u32;
}

/// What the zones of one object say. Entries are numbered as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneVerdict {
    /// There is an order.
    Linearizable,
    /// These operations alone are not linearizable: with each read and compare-and-set, they have the write of its value.
    Refuted(Vec<u32>),
    /// The method does not apply: this value is written twice, or the operations are not those of a register.
    NotApplicable(Option<u32>),
}

/// No operation, no cluster.
const NONE: u32 = u32::MAX;

/// The operations on one value: what writes it, what reads it, and what replaces it.
#[derive(Clone, Copy, Debug)]
struct ValueCluster {
    value: u32,
    /// The write, or the compare-and-set to this value; [`NONE`] for the initial value.
    writer: u32,
    /// The successful compare-and-set from this value; [`NONE`] if there is none.
    successor: u32,
    /// The read with the earliest completion, and the one with the latest invocation; [`NONE`] without reads.
    first_read: u32,
    last_read: u32,
}

/// A chain of clusters, each made by a compare-and-set from the one before: one block in every linearization. Times are positions
/// plus one.
#[derive(Clone, Copy, Debug)]
struct ClusterChain {
    /// The first completion, and its operation.
    ended: u32,
    first: u32,
    /// The last invocation, and its operation.
    begun: u32,
    last: u32,
    /// Its first cluster.
    head: u32,
}

/// The monitor of registers with unique values (Gibbons and Korach, "Testing Shared Memories", 1997, for reads and writes).
///
/// In a linearization, the operations on one value are next to one another: its write, then its reads. A compare-and-set ends the
/// block of one value and begins that of the next, so blocks that compare-and-sets connect form a *chain*, which is again one
/// block. Within a chain the order is given, so its operations fit if each can take place at the latest invocation so far,
/// before its completion. ClusterChain A must come before chain B if some operation of A completed before some operation of B
/// was invoked: if A's first completion (`ended`) is before B's last invocation (`begun`). There is an order unless two chains
/// must each come before the other: in a cycle of such relations each `begun` is above the `ended` before it, so the `ended`
/// would have to rise all the way round. Two chains are in conflict if their forward zones (`ended` before `begun`) overlap, or
/// if a backward zone lies in a forward one.
///
/// Operations of unknown outcome must be those on whose effect others depend, so they took effect,
/// at any time after their invocation.
///
/// Cost: O(n log n) time for sorting the chains, 4 bytes for each value of the history and 40 for each value of the object.
#[derive(Debug, Default)]
pub struct RegisterZones {
    /// By value: its cluster, [`NONE`] if the object does not have it. Cleared after each object.
    numbers: Vec<u32>,
    clusters: Vec<ValueCluster>,
}

impl RegisterZones {
    /// Room for values below `count`.
    pub fn new(count: usize) -> RegisterZones {
        RegisterZones {
            numbers: vec![NONE; count],
            clusters: Vec::new(),
        }
    }

    /// Decides one object whose initial value is 0.
    pub fn check<C: ZoneCall>(&mut self, entries: &[C]) -> ZoneVerdict {
        self.check_and(entries, |_| ()).0
    }

    /// Decides one object; of a linearizable one also returns the entries in the order of a linearization.
    pub fn check_with_order<C: ZoneCall>(
        &mut self,
        entries: &[C],
    ) -> (ZoneVerdict, Option<Vec<u32>>) {
        self.check_and(entries, |zones| zones.linearization(entries))
    }

    fn check_and<C: ZoneCall, T>(
        &mut self,
        entries: &[C],
        then: impl FnOnce(&RegisterZones) -> T,
    ) -> (ZoneVerdict, Option<T>) {
        let verdict = self.decide(entries);
        let is_linearizable = verdict == ZoneVerdict::Linearizable;
        let result = is_linearizable.then(|| then(self));
        for cluster in self.clusters.drain(..) {
            self.numbers[cluster.value as usize] = NONE;
        }
        (verdict, result)
    }

    /// The entries of a linearizable object in order: chain after chain, in each the writer of a value, then its reads by
    /// invocation. O(n log n).
    ///
    /// Chains are sorted by the lesser of `ended` and `begun`; of equal ones a backward zone comes first. If A must come
    /// before B (`ended` of A before `begun` of B), it does: let B be backward, then its key is its `begun`, and that of A is
    /// at most its own `ended`, which is less. Let B be forward, with its `ended` as the key. If A is forward as well, the
    /// two do not overlap, so B's `ended` is not before A's `begun`, which is after A's key. If A is backward, it does not
    /// lie in B, so its `begun`, which is its key, is not after B's `ended`.
    fn linearization<C: ZoneCall>(&self, entries: &[C]) -> Vec<u32> {
        let chains = self.chains(entries);
        let mut chains = chains.expect("a linearizable object has no chain that is impossible");
        chains.sort_unstable_by_key(|chain| {
            let is_forward = chain.ended < chain.begun;
            (chain.ended.min(chain.begun), is_forward, chain.head)
        });
        let reads = self.reads(entries);
        let mut order = Vec::with_capacity(entries.len());
        for chain in &chains {
            let mut at = chain.head as usize;
            loop {
                let writer = self.clusters[at].writer;
                order.extend((writer != NONE).then_some(writer));
                order.extend(&reads[at]);
                let Some(next) = self.next(entries, at) else {
                    break;
                };
                at = next;
            }
        }
        assert!(
            order.len() == entries.len(),
            "each operation is in one cluster"
        );
        order
    }

    /// By cluster: its reads, by invocation.
    fn reads<C: ZoneCall>(&self, entries: &[C]) -> Vec<Vec<u32>> {
        let mut reads = vec![Vec::new(); self.clusters.len()];
        for (number, entry) in (0..).zip(entries) {
            let value = match entry.action() {
                ZoneAction::Read(value) => value,
                ZoneAction::Cas(from, to) if from == to => from,
                _ => continue,
            };
            reads[self.numbers[value as usize] as usize].push(number);
        }
        reads
    }

    fn decide<C: ZoneCall>(&mut self, entries: &[C]) -> ZoneVerdict {
        self.cluster(0);
        if let Err(value) = self.add_writers(entries) {
            return ZoneVerdict::NotApplicable(value);
        }
        if let Err(core) = self.add_readers(entries) {
            return ZoneVerdict::Refuted(core);
        }
        match self.chains(entries) {
            Ok(chains) => self.order(entries, chains),
            Err(core) => ZoneVerdict::Refuted(core),
        }
    }

    /// The cluster of a value, new if necessary.
    fn cluster(&mut self, value: u32) -> &mut ValueCluster {
        let number = &mut self.numbers[value as usize];
        if *number == NONE {
            *number = self.clusters.len() as u32;
            self.clusters.push(ValueCluster {
                value,
                writer: NONE,
                successor: NONE,
                first_read: NONE,
                last_read: NONE,
            });
        }
        &mut self.clusters[*number as usize]
    }

    /// Finds the writer of each value. The error is a value with two.
    fn add_writers<C: ZoneCall>(&mut self, entries: &[C]) -> Result<(), Option<u32>> {
        for (number, entry) in (0..).zip(entries) {
            let value = match entry.action() {
                ZoneAction::Write(value) => value,
                ZoneAction::Cas(from, to) if from != to => to,
                ZoneAction::Read(_) | ZoneAction::Cas(..) => continue,
                ZoneAction::Other => return Err(None),
            };
            let cluster = self.cluster(value);
            if cluster.writer != NONE || value == 0 {
                return Err(Some(value));
            }
            cluster.writer = number;
        }
        Ok(())
    }

    /// Finds the readers of each value. The error is an operation on a value that nothing wrote, or two compare-and-sets from
    /// one.
    fn add_readers<C: ZoneCall>(&mut self, entries: &[C]) -> Result<(), Vec<u32>> {
        // All are added first: what shows that an operation of unknown outcome took effect may come later.
        let mut refuted: Option<Vec<u32>> = None;
        for (number, entry) in (0..).zip(entries) {
            let (value, is_read) = match entry.action() {
                ZoneAction::Read(value) => (value, true),
                // It changes nothing.
                ZoneAction::Cas(from, to) => (from, from == to),
                _ => continue,
            };
            let cluster = self.cluster(value);
            if cluster.writer == NONE && value != 0 {
                refuted.get_or_insert_with(|| vec![number]);
            }
            if !is_read {
                let other = std::mem::replace(&mut cluster.successor, number);
                if other != NONE {
                    refuted.get_or_insert_with(|| vec![other, number]);
                }
                continue;
            }
            let earliest = cluster.first_read;
            if earliest == NONE || entry.ret() < entries[earliest as usize].ret() {
                cluster.first_read = number;
            }
            let latest = cluster.last_read;
            if latest == NONE || entry.call() > entries[latest as usize].call() {
                cluster.last_read = number;
            }
        }
        refuted.map_or(Ok(()), |refuted| Err(self.closure(entries, &refuted)))
    }

    /// The chains, each possible by itself. The error is a chain that is not.
    fn chains<C: ZoneCall>(&self, entries: &[C]) -> Result<Vec<ClusterChain>, Vec<u32>> {
        let mut chains = Vec::new();
        let mut reached = 0;
        for (number, cluster) in (0..).zip(&self.clusters) {
            // The first of a chain is the initial value, or was written by a write.
            let is_head = cluster.value == 0
                || matches!(
                    entries[cluster.writer as usize].action(),
                    ZoneAction::Write(_)
                );
            if is_head {
                let (chain, length) = self.chain(entries, number)?;
                chains.push(chain);
                reached += length;
            }
        }
        if reached < self.clusters.len() {
            return Err(self.closure(entries, &self.ring(entries)));
        }
        Ok(chains)
    }

    /// The chain that begins with this cluster, and its length.
    fn chain<C: ZoneCall>(
        &self,
        entries: &[C],
        head: u32,
    ) -> Result<(ClusterChain, usize), Vec<u32>> {
        let is_initial = self.clusters[head as usize].value == 0;
        let mut chain = ClusterChain {
            // The initial value was written before everything.
            ended: if is_initial { 0 } else { NEVER },
            first: NONE,
            begun: 0,
            last: NONE,
            head,
        };
        // The latest invocation so far: nothing can take place before it.
        let mut now = 0;
        let mut latest = NONE;
        let mut at = head as usize;
        let mut length = 0;
        loop {
            let cluster = self.clusters[at];
            length += 1;
            let writer = (cluster.writer != NONE).then_some((cluster.writer, cluster.writer));
            let reads =
                (cluster.first_read != NONE).then_some((cluster.first_read, cluster.last_read));
            for (first, last) in writer.into_iter().chain(reads) {
                // Times from 1: the initial value was written at 0.
                let ret = entries[first as usize].ret().saturating_add(1);
                let call = entries[last as usize].call() + 1;
                // A write must be invoked before it completes, reads before the earliest of them does.
                if ret < now {
                    return Err(self.closure(entries, &[latest, first]));
                }
                if call > now {
                    (now, latest) = (call, last);
                }
                if ret < chain.ended {
                    (chain.ended, chain.first) = (ret, first);
                }
                if call > chain.begun {
                    (chain.begun, chain.last) = (call, last);
                }
            }
            let Some(next) = self.next(entries, at) else {
                break;
            };
            at = next;
        }
        debug_assert!(now == chain.begun, "the latest invocation is the last one");
        Ok((chain, length))
    }

    /// A ring of compare-and-sets, each from the value of the one before: none of them can be first.
    fn ring<C: ZoneCall>(&self, entries: &[C]) -> Vec<u32> {
        let mut is_reached = vec![false; self.clusters.len()];
        for head in 0..self.clusters.len() {
            let cluster = self.clusters[head];
            let is_head = cluster.value == 0
                || matches!(
                    entries[cluster.writer as usize].action(),
                    ZoneAction::Write(_)
                );
            let mut at = head;
            if !is_head {
                continue;
            }
            is_reached[at] = true;
            while let Some(next) = self.next(entries, at) {
                is_reached[next] = true;
                at = next;
            }
        }
        let Some(start) = is_reached.iter().position(|reached| !reached) else {
            return Vec::new();
        };
        let mut ring = Vec::new();
        let mut at = start;
        while let Some(next) = self.next(entries, at) {
            ring.push(self.clusters[at].successor);
            at = next;
            if at == start {
                break;
            }
        }
        ring.sort_unstable();
        ring
    }

    /// The cluster after this one in its chain.
    fn next<C: ZoneCall>(&self, entries: &[C], at: usize) -> Option<usize> {
        let successor = self.clusters[at].successor;
        let entry = entries.get(successor as usize)?;
        match entry.action() {
            ZoneAction::Cas(_, to) => Some(self.numbers[to as usize] as usize),
            _ => None,
        }
    }

    /// Looks for two chains that must each come before the other.
    fn order<C: ZoneCall>(&self, entries: &[C], mut chains: Vec<ClusterChain>) -> ZoneVerdict {
        let is_forward = |chain: &ClusterChain| chain.ended < chain.begun;
        chains.sort_unstable_by_key(|chain| (!is_forward(chain), chain.ended, chain.head));
        let forward = chains.partition_point(is_forward);
        let (forward, others) = chains.split_at(forward);
        let conflict = |a: &ClusterChain, b: &ClusterChain| {
            let ends = [a.first, a.last, b.first, b.last].into_iter();
            let ends: Vec<u32> = ends.filter(|&entry| entry != NONE).collect();
            ZoneVerdict::Refuted(self.closure(entries, &ends))
        };
        // Forward zones that do not overlap are in order both by begin and by end.
        for pair in forward.windows(2) {
            if pair[1].ended < pair[0].begun {
                return conflict(&pair[0], &pair[1]);
            }
        }
        for other in others {
            // Only the last forward zone that begins before it can contain it.
            let earlier = forward.partition_point(|zone| zone.ended < other.begun);
            if let Some(zone) = earlier.checked_sub(1).map(|at| &forward[at])
                && other.ended < zone.begun
            {
                return conflict(zone, other);
            }
        }
        ZoneVerdict::Linearizable
    }

    /// These operations as a history that could have been observed: with the writers that they depend on, to the heads of their
    /// chains, and for each operation of unknown outcome with those that show its effect.
    fn closure<C: ZoneCall>(&self, entries: &[C], of: &[u32]) -> Vec<u32> {
        let mut core: BTreeSet<u32> = BTreeSet::new();
        for &entry in of {
            let mut at = entry;
            // A writer that is there has its own writers there, too.
            while core.insert(at) {
                let writer = match entries[at as usize].action() {
                    ZoneAction::Read(value) | ZoneAction::Cas(value, _) => self.get(value).writer,
                    _ => NONE,
                };
                if writer == NONE {
                    break;
                }
                at = writer;
            }
        }
        let uncertain = core.iter().copied();
        let uncertain = uncertain.filter(|&entry| entries[entry as usize].ret() == NEVER);
        for mut at in uncertain.collect::<Vec<u32>>() {
            // Its value was read, or a compare-and-set needs it that is required, or that is needed in turn.
            while let ZoneAction::Write(value) | ZoneAction::Cas(_, value) =
                entries[at as usize].action()
            {
                let ValueCluster {
                    first_read,
                    successor,
                    ..
                } = *self.get(value);
                if first_read != NONE {
                    core.insert(first_read);
                    break;
                }
                let is_new = successor != NONE && core.insert(successor);
                if !is_new || entries[successor as usize].ret() != NEVER {
                    break;
                }
                at = successor;
            }
        }
        core.into_iter().collect()
    }

    fn get(&self, value: u32) -> &ValueCluster {
        &self.clusters[self.numbers[value as usize] as usize]
    }
}
