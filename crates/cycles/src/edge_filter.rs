//! A source of edges without some kinds of edges.

use crate::graph::{EdgeBuilder, EdgeSink};
use crate::shape::EdgeSource;

/// The edges of a source except those of some kinds.
pub struct EdgeFilter<L> {
    /// The source of all edges.
    pub source: L,
    /// Number of transactions; nodes after these are helpers.
    pub transactions: usize,
    /// The kinds that are left out, as bits.
    pub excluded: u8,
}

/// Passes on all edges but those of excluded kinds.
struct FilteringSink<'a, S> {
    outer: &'a mut EdgeBuilder<S>,
    excluded: u8,
}

impl<S: EdgeSink> EdgeSink for FilteringSink<'_, S> {
    fn add_node(&mut self) {
        self.outer.add_helper();
    }

    fn add_edge(&mut self, from: u32, to: u32, kind: u8) {
        if kind & self.excluded == 0 {
            self.outer.link(from, to, kind);
        }
    }
}

impl<L: EdgeSource> EdgeSource for EdgeFilter<L> {
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        let excluded = self.excluded;
        let outer = edges;
        // The inner builder numbers helpers as the outer one does, since it begins after the same transactions and
        // every helper is passed on.
        let filter = FilteringSink { outer, excluded };
        self.source
            .emit_edges(&mut EdgeBuilder::with_sink(self.transactions, filter));
    }
}
