//! The dependencies between transactions that lists tell.

use super::lists::Lists;
use super::table::{NONE, outcome};
use crate::txn::graph::{Edges, RW, Sink, WR, WW};

/// Which orders besides the data matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) process: bool,
    pub(super) realtime: bool,
}

impl Lists {
    /// Tells all dependencies, always in the same order.
    pub(super) fn link<S: Sink>(&self, orders: Orders, edges: &mut Edges<S>) {
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

    /// Each append comes after the one before it in its list.
    fn link_writes<S: Sink>(&self, edges: &mut Edges<S>) {
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

    /// Each read comes after the last append in it and before the first append that is not in it. Returns (list,
    /// reader) of the reads after which only appends come that nobody read.
    fn link_reads<S: Sink>(&self, edges: &mut Edges<S>) -> Vec<(u32, u32)> {
        let mut tails = Vec::new();
        let mut has_unseen = vec![false; self.table.lists.len()];
        for &(at, _) in &self.unseen {
            has_unseen[at as usize] = true;
        }
        for (reader, read) in self.table.each_read() {
            let (at, length) = read;
            if !self.is_regular(read) {
                // Its place in the order is not known, but its last element is.
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
                // It read its own append; what comes after is after that.
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

    /// Appends that nobody read come after everything that was read of their list, in an order that is not known.
    /// `tails` are the reads of all that was read, as (list, reader).
    fn link_unseen<S: Sink>(&self, mut tails: Vec<(u32, u32)>, edges: &mut Edges<S>) {
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
