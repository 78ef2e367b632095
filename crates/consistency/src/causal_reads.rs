//! Causal consistency: does each read return a version that nothing overwrote in its causal past?

use crate::happens_before::{CausalClocks, KeyWriters, SessionOrder};

/// A read that returned a version overwritten in its causal past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverwrittenRead {
    pub(crate) read: u32,
    /// The write of the version that it returned; `None` for the initial state.
    pub(crate) source: Option<u32>,
    /// A write of the key between that one and the read.
    pub(crate) overwrite: u32,
}

/// Causal consistency (CC of Bouajjani and others 2017): the operations that causally precede a read have an order that
/// follows causality and ends with the version that the read returned. Calls `take` for each read for which they have none.
///
/// `order` is a topological order of sessions and reads, whose closure is causality. A read has no such order if and only if
/// causality has a write of its key between the write that it read and itself (bad patterns WriteCORead and WriteCOInitRead).
/// Of each session the last write that precedes the read is enough.
///
/// Time O(n·k) for k sessions, and of these only those that write the key count; memory: see [`CausalClocks`]. Returns the
/// clocks, `None` if they do not fit.
pub(crate) fn overwritten_reads(
    program: &SessionOrder<'_>,
    order: &[u32],
    mut take: impl FnMut(OverwrittenRead),
) -> Option<CausalClocks> {
    let writers = KeyWriters::new(program);
    CausalClocks::new(program, order, |clocks, read, known| {
        let key = program.history.actions[read as usize].key;
        let source = program.history.source(read);
        for &group in writers.groups(key) {
            let Some(last) = writers.last(key, group, known[group.0 as usize]) else {
                continue;
            };
            let is_between = match source {
                Some(source) => last != source && clocks.precedes(program, source, last),
                None => true,
            };
            if is_between {
                let overwrite = last;
                return take(OverwrittenRead {
                    read,
                    source,
                    overwrite,
                });
            }
        }
    })
}
