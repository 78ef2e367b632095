//! The dependencies between transactions that lists tell.

use super::lists::{Append, Lists, elements};
use crate::txn::anomaly::{Cyclic, Variant};
use crate::txn::explain::Reasons;
use crate::txn::graph::{Edges, Graph, RW, WR, WW};
use crate::txn::transactions::NONE;
use seatrial_history::Mop;
use std::collections::BTreeSet;

impl Lists<'_> {
    /// The graph of all dependencies that the wanted kinds of cycles are made of.
    pub(super) fn graph(&self, wanted: &BTreeSet<Cyclic>) -> Graph {
        let mut edges = Edges::new(self.transactions.len());
        let (before, after) = self.neighbours();
        self.link_writes(&mut edges);
        let tails = self.link_reads(&before, &after, &mut edges);
        self.link_unseen(tails, &mut edges);
        let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
        if wants(Variant::Process) {
            edges.link_processes(self.transactions, &self.happened);
        }
        if wants(Variant::Realtime) {
            edges.link_realtime(self.transactions, &self.happened);
        }
        edges.into_graph()
    }

    /// A key's committed appends in order.
    fn committed(&self, key: u32) -> impl DoubleEndedIterator<Item = (usize, &Append)> {
        let versions = self.versions(key).iter().enumerate();
        let known = versions.filter(|&(_, &version)| version != NONE);
        let appends = known.map(|(position, &version)| (position, &self.appends[version as usize]));
        appends.filter(|(_, append)| self.is_committed(append))
    }

    /// For each length of a read of each key, the transaction of the last committed append in it and that of the first
    /// one after it. A key's lengths begin at [`Lists::first_length`].
    fn neighbours(&self) -> (Vec<u32>, Vec<u32>) {
        let lengths = self.first_length(self.by_key.len() as u32);
        let (mut before, mut after) = (vec![NONE; lengths], vec![NONE; lengths]);
        for key in 0..self.by_key.len() as u32 {
            let first = self.first_length(key);
            let count = self.versions(key).len();
            for (position, append) in self.committed(key) {
                before[first + position + 1] = append.transaction;
                after[first + position] = append.transaction;
            }
            for at in first + 1..=first + count {
                if before[at] == NONE {
                    before[at] = before[at - 1];
                }
            }
            for at in (first..first + count).rev() {
                if after[at] == NONE {
                    after[at] = after[at + 1];
                }
            }
        }
        (before, after)
    }

    /// Each append comes after the one before it in its list.
    fn link_writes(&self, edges: &mut Edges) {
        for key in 0..self.by_key.len() as u32 {
            let mut last = NONE;
            for (_, append) in self.committed(key) {
                if last != NONE {
                    edges.link(last, append.transaction, WW);
                }
                last = append.transaction;
            }
        }
    }

    /// Each read comes after the last append in it and before the first append that is not in it. Returns (key,
    /// reader) of the reads after which no append with a known place comes.
    fn link_reads(&self, before: &[u32], after: &[u32], edges: &mut Edges) -> Vec<(u32, u32)> {
        let mut tails = Vec::new();
        for read in &self.reads {
            let reader = read.transaction;
            let list = &self.by_key[read.key as usize];
            if read.length > list.agreed {
                // Its place in the order is not known, but its last element is.
                let last = self.elements(read).last();
                let last = last.and_then(|&element| self.find(read.key, element));
                if let Some(append) = last.filter(|append| self.is_committed(append)) {
                    edges.link(append.transaction, reader, WR);
                }
                continue;
            }
            let at = self.first_length(read.key) + read.length as usize;
            let writer = before[at];
            if writer == reader {
                // It read its own append; what comes after is after that.
                continue;
            }
            if writer != NONE {
                edges.link(writer, reader, WR);
            }
            match after[at] {
                NONE if list.conflict.is_none() => tails.push((read.key, reader)),
                NONE => {}
                next => edges.link(reader, next, RW),
            }
        }
        tails
    }

    /// Appends that nobody read come after everything that was read of their key, in an order that is not known.
    /// `tails` are the reads of all that was read, as (key, reader).
    fn link_unseen(&self, mut tails: Vec<(u32, u32)>, edges: &mut Edges) {
        let is_last = |append: &&Append| {
            let in_order = self.by_key[append.key as usize].conflict.is_none();
            !append.is_seen && in_order && self.is_committed(append)
        };
        let unseen = self.appends.iter().filter(is_last);
        let mut unseen: Vec<_> = unseen
            .map(|append| (append.key, append.transaction))
            .collect();
        for pairs in [&mut unseen, &mut tails] {
            pairs.sort_unstable();
            pairs.dedup();
        }
        let mut tails = &tails[..];
        for group in unseen.chunk_by(|a, b| a.0 == b.0) {
            let key = group[0].0;
            let writers: Vec<_> = group.iter().map(|&(_, writer)| writer).collect();
            if let Some((_, last)) = self.committed(key).next_back() {
                for &writer in &writers {
                    edges.link(last.transaction, writer, WW);
                }
            }
            tails = &tails[tails.partition_point(|tail| tail.0 < key)..];
            let here = &tails[..tails.partition_point(|tail| tail.0 == key)];
            let readers: Vec<_> = here.iter().map(|&(_, reader)| reader).collect();
            edges.link_all(&readers, &writers, RW);
        }
    }

    /// What the history leaves open, for people.
    pub(super) fn undecided(&self) -> Vec<String> {
        let is_open = |append: &&Append| !append.is_seen && self.is_committed(append);
        let open: Vec<_> = self
            .appends
            .iter()
            .filter(is_open)
            .map(|append| append.key)
            .collect();
        let mut keys = open.clone();
        keys.sort_unstable();
        // One alone has its place: after all that was read.
        let several = keys.chunk_by(|a, b| a == b).filter(|same| same.len() > 1);
        let (keys, appends) = several.fold((0, 0), |(keys, appends), same| {
            (keys + 1, appends + same.len())
        });
        if keys == 0 {
            return Vec::new();
        }
        vec![format!(
            "the order of {appends} appends to {keys} keys among themselves: nobody read them"
        )]
    }

    /// The elements that a transaction appended to a key.
    fn appended(&self, number: u32) -> impl Iterator<Item = &Append> {
        let mops = self.transactions.keyed_mops(number);
        mops.filter_map(|(key, mop)| match mop {
            Mop::Append { element, .. } => self.find(key, *element),
            _ => None,
        })
    }

    /// The reason of a `ww` edge: the closest pair of appends to one key.
    fn overwrite(&self, from: u32, to: u32) -> Option<(&Append, &Append)> {
        let pairs = self.appended(to).filter_map(|later| {
            let same = self.appended(from).filter(|append| append.key == later.key);
            let earlier = same.filter(|append| append.position < later.position);
            let last = earlier.max_by_key(|append| append.position);
            last.map(|earlier| (earlier, later))
        });
        pairs.min_by_key(|(earlier, later)| later.position - earlier.position)
    }

    /// The reason of an `rw` edge: a read, whether it saw nothing, and the first append of `to` that it does not have.
    fn missed(&self, from: u32, to: u32) -> Option<(bool, &Append)> {
        let mops = self.transactions.keyed_mops(from);
        let reads = mops.filter_map(|(key, mop)| Some((key, elements(mop)?)));
        let agreed = |key: u32| self.by_key[key as usize].agreed as usize;
        let regular = reads.filter(|&(key, seen)| seen.len() <= agreed(key));
        let pairs = regular.filter_map(|(key, seen)| {
            let same = self.appended(to).filter(move |append| append.key == key);
            let missed = same.filter(|append| !seen.contains(&append.element));
            let first = missed.min_by_key(|append| append.position);
            first.map(|append| (seen, append))
        });
        pairs
            .min_by_key(|(seen, append)| i64::from(append.position) - seen.len() as i64)
            .map(|(seen, append)| (seen.is_empty() && append.position == 0, append))
    }
}

impl Reasons for Lists<'_> {
    fn reason(&self, from: (u32, &str), to: (u32, &str), kind: u8) -> String {
        let key = |append: &Append| self.transactions.keys.key(append.key);
        let ((earlier, a), (later, b)) = (from, to);
        match kind {
            WW => self.overwrite(earlier, later).map(|(first, second)| {
                let key = key(second);
                let (one, two) = (first.element, second.element);
                format!("{b} appended {two} after {a} appended {one} to key {key}")
            }),
            WR => {
                let mops = self.transactions.keyed_mops(later);
                let reads = mops.filter_map(|(key, mop)| Some((key, elements(mop)?)));
                let mut seen = reads.filter_map(|(key, seen)| {
                    let theirs = self.appended(earlier).filter(|append| append.key == key);
                    theirs
                        .filter(|append| seen.contains(&append.element))
                        .last()
                });
                seen.next().map(|append| {
                    let (element, key) = (append.element, key(append));
                    format!("{b} observed {a}'s append of {element} to key {key}")
                })
            }
            _ => self.missed(earlier, later).map(|(is_first, append)| {
                let (element, key) = (append.element, key(append));
                if is_first {
                    format!(
                        "{a} observed the initial (nil) state of key {key}, which {b} created by \
                         appending {element}"
                    )
                } else {
                    format!("{a} did not observe {b}'s append of {element} to key {key}")
                }
            }),
        }
        .unwrap_or_else(|| format!("{a} and {b} depend on each other"))
    }
}
