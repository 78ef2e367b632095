//! Dependency edges between transactions, from the version orders of lists.

use super::list_table::ListId;
use super::lists::OrderedLists;
use seatrial_cycles::Txn;
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
        let table = &self.table;
        let nodes = || Txn::all(table.len()).filter(|&number| self.happened(number));
        let transactions = &table.transactions;
        if orders.process {
            let nodes = nodes().map(|number| {
                let process = transactions.process(number).get();
                (process, number.get(), transactions.is_ok(number))
            });
            edges.link_processes(nodes);
        }
        if orders.realtime {
            let begun = nodes().filter_map(|number| {
                let position = transactions.invocation(number)?;
                Some((position.get(), number.get()))
            });
            let ended = table.reads.transactions().iter().filter_map(|&number| {
                let position = transactions.completion(number)?;
                Some((position.get(), number.get()))
            });
            edges.link_realtime(begun, ended);
        }
    }

    /// *ww*: each append comes after the previous one in its list.
    fn link_writes<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        for at in ListId::all(self.table.lists.len()) {
            let mut last: Option<Txn> = None;
            for number in self.committed_versions(at) {
                if let Some(last) = last {
                    edges.link_txns(last, number, WW);
                }
                last = Some(number);
            }
        }
    }

    /// *wr* and *rw*: each read comes after the last append that it returned and before the first append that it did not. Returns
    /// (list, reader) of reads after which only unread appends come.
    fn link_reads<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) -> Vec<(ListId, Txn)> {
        let mut tails = Vec::new();
        let mut has_unseen = vec![false; self.table.lists.len()];
        for &(at, _) in &self.unseen {
            has_unseen[at.index()] = true;
        }
        for (reader, read) in self.table.each_read() {
            let (at, length) = read;
            if !self.is_regular(read) {
                // Its position in the version order is unknown, but its last element is known.
                let last = self.table.elements(read).last();
                let writer = last.and_then(|&element| self.writer(at, element));
                if let Some(writer) = writer.and_then(|writer| self.committed(writer)) {
                    edges.link_txns(writer, reader, WR);
                }
                continue;
            }
            let (writer, next) = self.neighbours(at, length);
            if writer == Some(reader) {
                // It read its own append: later versions come after that by *ww*.
                continue;
            }
            if let Some(writer) = writer {
                edges.link_txns(writer, reader, WR);
            }
            if let Some(next) = next {
                edges.link_txns(reader, next, RW);
            } else if has_unseen[at.index()] {
                tails.push((at, reader));
            }
        }
        tails
    }

    /// Unread appends come after all versions of their list that were read, in unknown order. `tails` are the reads of the whole
    /// list, as (list, reader).
    fn link_unseen<S: EdgeSink>(&self, mut tails: Vec<(ListId, Txn)>, edges: &mut EdgeBuilder<S>) {
        tails.sort_unstable();
        tails.dedup();
        let mut tails = &tails[..];
        for group in self.unseen.chunk_by(|a, b| a.0 == b.0) {
            let at = group[0].0;
            let writers: Vec<_> = group.iter().map(|&(_, writer)| writer.get()).collect();
            if let Some(last) = self.committed_versions(at).next_back() {
                for &writer in &writers {
                    edges.link(last.get(), writer, WW);
                }
            }
            debug_assert!(
                writers.is_sorted_by(|one, next| one < next),
                "a writer of unread appends to a list is linked once"
            );
            // Both are sorted by list, so the reads of earlier lists are passed for good.
            tails = &tails[tails.partition_point(|tail| tail.0 < at)..];
            let here = &tails[..tails.partition_point(|tail| tail.0 == at)];
            let readers: Vec<_> = here.iter().map(|&(_, reader)| reader.get()).collect();
            edges.link_all(&readers, &writers, RW);
        }
    }
}
