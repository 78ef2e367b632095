//! Dependency edges between transactions, from the version orders of lists.

use super::lists::OrderedLists;
use super::table::{NONE, outcome};
use seatrial_cycles::graph::{EdgeBuilder, EdgeSink, RW, WR, WW};

/// Orders besides the data that add edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderKinds {
    pub(super) process: bool,
    pub(super) realtime: bool,
}

impl OrderedLists {
    /// Emits all dependencies, in a deterministic order.
    pub(super) fn link<S: EdgeSink>(&self, orders: OrderKinds, edges: &mut EdgeBuilder<S>) {
        self.link_writes(edges);
        let tails = self.link_reads(edges);
        self.link_unseen(tails, edges);
        let nodes = || (0..self.table.len() as u32).filter(|&number| self.happened(number));
        let is_ok = |number: u32| self.table.outcomes[number as usize] == outcome::OK;
        if orders.process {
            let process = |number: u32| self.table.processes[number as usize];
            edges.link_processes(nodes().map(|number| (process(number), number, is_ok(number))));
        }
        if orders.realtime {
            let begun = nodes().map(|number| (self.table.invocations[number as usize], number));
            let begun = begun.filter(|&(position, _)| position != NONE);
            let ended = self.table.ended.iter();
            let ended = ended.map(|&number| (self.table.completions[number as usize], number));
            edges.link_realtime(begun, ended);
        }
    }

    /// *ww*: each append comes after the previous one in its list.
    fn link_writes<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        for at in 0..self.table.lists.len() as u32 {
            let mut last = NONE;
            for number in self.committed_versions(at) {
                if last != NONE {
                    edges.link(last, number, WW);
                }
                last = number;
            }
        }
    }

    /// *wr* and *rw*: each read comes after the last append that it returned and before the first append that it did not. Returns
    /// (list, reader) of reads after which only unread appends come.
    fn link_reads<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) -> Vec<(u32, u32)> {
        let mut tails = Vec::new();
        let mut has_unseen = vec![false; self.table.lists.len()];
        for &(at, _) in &self.unseen {
            has_unseen[at as usize] = true;
        }
        for (reader, read) in self.table.each_read() {
            let (at, length) = read;
            if !self.is_regular(read) {
                // Its position in the version order is unknown, but its last element is known.
                let last = self.table.elements(read).last();
                let writer = last.and_then(|&element| self.writer(at, element));
                if let Some(writer) = writer
                    && self.committed(writer) != NONE
                {
                    edges.link(self.committed(writer), reader, WR);
                }
                continue;
            }
            let (writer, next) = self.neighbours(at, length);
            if writer == reader {
                // It read its own append: later versions come after that by *ww*.
                continue;
            }
            if writer != NONE {
                edges.link(writer, reader, WR);
            }
            if next != NONE {
                edges.link(reader, next, RW);
            } else if has_unseen[at as usize] {
                tails.push((at, reader));
            }
        }
        tails
    }

    /// Unread appends come after all versions of their list that were read, in unknown order. `tails` are the reads of the whole
    /// list, as (list, reader).
    fn link_unseen<S: EdgeSink>(&self, mut tails: Vec<(u32, u32)>, edges: &mut EdgeBuilder<S>) {
        tails.sort_unstable();
        tails.dedup();
        let mut tails = &tails[..];
        for group in self.unseen.chunk_by(|a, b| a.0 == b.0) {
            let at = group[0].0;
            let writers: Vec<_> = group.iter().map(|&(_, writer)| writer).collect();
            if let Some(last) = self.committed_versions(at).next_back() {
                for &writer in &writers {
                    edges.link(last, writer, WW);
                }
            }
            tails = &tails[tails.partition_point(|tail| tail.0 < at)..];
            let here = &tails[..tails.partition_point(|tail| tail.0 == at)];
            let readers: Vec<_> = here.iter().map(|&(_, reader)| reader).collect();
            edges.link_all(&readers, &writers, RW);
        }
    }
}
