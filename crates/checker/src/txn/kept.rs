//! Some of the dependencies of a graph.

use super::graph::{Edges, Sink};
use super::rows::Linked;

/// These dependencies between so many transactions but for some kinds.
pub(super) struct Only<L> {
    pub(super) dependencies: L,
    pub(super) transactions: usize,
    /// The kinds that do not count.
    pub(super) without: u8,
}

/// Hands on what counts.
struct Kept<'a, S> {
    outer: &'a mut Edges<S>,
    without: u8,
}

impl<S: Sink> Sink for Kept<'_, S> {
    fn node(&mut self) {
        self.outer.helper();
    }

    fn take(&mut self, from: u32, to: u32, kind: u8) {
        if kind & self.without == 0 {
            self.outer.link(from, to, kind);
        }
    }
}

impl<L: Linked> Linked for Only<L> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        let without = self.without;
        let outer = edges;
        let mut kept = Edges::into(self.transactions, Kept { outer, without });
        self.dependencies.link(&mut kept);
    }
}
