//! The dependencies between transactions that registers tell.

use super::registers::{INITIAL, Read, Registers, Write};
use crate::txn::anomaly::{Cyclic, Variant};
use crate::txn::explain::Reasons;
use crate::txn::graph::{Edges, Graph, RW, WR, WW};
use crate::txn::transactions::NONE;
use std::collections::BTreeSet;

impl Registers<'_> {
    /// The graph of all dependencies that the wanted kinds of cycles are made of.
    pub(super) fn graph(&self, wanted: &BTreeSet<Cyclic>) -> Graph {
        let mut edges = Edges::new(self.transactions.len());
        let mut writers: Vec<_> = self
            .writes
            .iter()
            .filter(|write| self.is_committed(write))
            .map(|write| (write.key, write.transaction))
            .collect();
        writers.sort_unstable();
        writers.dedup();
        for group in self
            .reads
            .chunk_by(|a, b| (a.key, a.version) == (b.key, b.version))
        {
            self.link_version(group, &writers, &mut edges);
        }
        let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
        if wants(Variant::Process) {
            self.transactions.link_processes(&self.happened, &mut edges);
        }
        if wants(Variant::Realtime) {
            self.transactions.link_realtime(&self.happened, &mut edges);
        }
        edges.into_graph()
    }

    /// The edges that come from reads of one version. `writers` are (key, writer) of all keys.
    fn link_version(&self, reads: &[Read], writers: &[(u32, u32)], edges: &mut Edges) {
        let (key, version) = (reads[0].key, reads[0].version);
        let mut readers: Vec<_> = reads.iter().map(|read| read.transaction).collect();
        readers.dedup();
        let write = self.writes.get(version as usize);
        let committed = write.filter(|write| self.is_committed(write));
        if let Some(write) = committed {
            for &reader in &readers {
                edges.link(write.transaction, reader, WR);
            }
        }
        if version == INITIAL {
            let first = writers.partition_point(|writer| writer.0 < key);
            let end = writers.partition_point(|writer| writer.0 <= key);
            let all: Vec<_> = writers[first..end]
                .iter()
                .map(|&(_, writer)| writer)
                .collect();
            edges.link_all(&readers, &all, RW);
        } else if version != NONE && self.writes_follow_reads {
            let updates = reads.iter().filter(|read| read.update != NONE);
            let mut updaters: Vec<_> = updates.map(|read| read.transaction).collect();
            updaters.dedup();
            if let Some(write) = committed {
                for &updater in &updaters {
                    edges.link(write.transaction, updater, WW);
                }
            }
            edges.link_all(&readers, &updaters, RW);
        }
    }

    /// What the history leaves open, for people: writes of transactions that did not read the key before.
    pub(super) fn undecided(&self) -> Vec<String> {
        let mut updates: Vec<_> = self.reads.iter().map(|read| read.update).collect();
        updates.sort_unstable();
        let is_blind = |number: u32, write: &Write| {
            let known = self.writes_follow_reads && updates.binary_search(&number).is_ok();
            write.is_final && self.is_committed(write) && !known
        };
        let numbered = self.writes.iter().zip(0..);
        let blind = numbered.filter(|&(write, number)| is_blind(number, write));
        let mut keys: Vec<_> = blind.map(|(write, _)| write.key).collect();
        keys.sort_unstable();
        let several = keys.chunk_by(|a, b| a == b).filter(|same| same.len() > 1);
        let (keys, writes) = several.fold((0, 0), |(keys, writes), same| {
            (keys + 1, writes + same.len())
        });
        if keys == 0 {
            return Vec::new();
        }
        vec![format!(
            "the order of {writes} blind writes to {keys} keys: cycles that need it were not looked for"
        )]
    }

    /// What a transaction read from others, key by key.
    fn reads_of(&self, number: u32) -> impl Iterator<Item = &Read> {
        let mut keys = self.transactions.mop_keys(number).to_vec();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().flat_map(move |key| {
            let first = self.reads.partition_point(|read| read.key < key);
            let end = self.reads.partition_point(|read| read.key <= key);
            let same = self.reads[first..end].iter();
            same.filter(move |read| read.transaction == number)
        })
    }

    /// A transaction's last write to a key.
    fn final_write(&self, number: u32, key: u32) -> Option<&Write> {
        let mops = self.transactions.keyed_mops(number);
        let values = mops.filter_map(|(of, mop)| match mop {
            seatrial_history::Mop::Write { value, .. } if of == key => Some(*value),
            _ => None,
        });
        let last = values.last()?;
        self.writes.get(self.find(key, last) as usize)
    }
}

impl Reasons for Registers<'_> {
    fn reason(&self, from: (u32, &str), to: (u32, &str), kind: u8) -> String {
        let ((earlier, a), (later, b)) = (from, to);
        let name = |key| self.transactions.keys.key(key);
        let value = |version| {
            let write = self.writes.get(version as usize);
            write.map_or("nil".into(), |write| write.value.to_string())
        };
        let by = |read: &&Read, writer| {
            let write = self.writes.get(read.version as usize);
            write.is_some_and(|write| write.transaction == writer)
        };
        let found = match kind {
            WW => {
                let mut updates = self.reads_of(later).filter(|read| by(read, earlier));
                let update = updates.find(|read| read.update != NONE);
                update.map(|read| {
                    let (one, two) = (value(read.version), value(read.update));
                    let key = name(read.key);
                    format!(
                        "{b} read {a}'s write of {one} to key {key} and overwrote it with {two}"
                    )
                })
            }
            WR => {
                let mut reads = self.reads_of(later).filter(|read| by(read, earlier));
                reads.next().map(|read| {
                    let (version, key) = (value(read.version), name(read.key));
                    format!("{b} read {a}'s write of {version} to key {key}")
                })
            }
            _ => {
                let pairs = self.reads_of(earlier).filter_map(|read| {
                    let write = self.final_write(later, read.key)?;
                    let mut theirs = self.reads_of(later);
                    let follows =
                        theirs.any(|other| (other.key, other.version) == (read.key, read.version));
                    (read.version == INITIAL || follows).then_some((read, write))
                });
                pairs.min_by_key(|(read, _)| read.version == INITIAL).map(|(read, write)| {
                    let (version, key, next) = (value(read.version), name(read.key), write.value);
                    if read.version == INITIAL {
                        format!("{a} read the initial (nil) state of key {key}, before {b} wrote {next}")
                    } else {
                        format!(
                            "{a} read {version} of key {key}, which {b} read too and overwrote with {next}"
                        )
                    }
                })
            }
        };
        found.unwrap_or_else(|| format!("{a} and {b} depend on each other"))
    }
}
