//! The writes of one key, each with the reads of its value.

use crate::register_history::{NONE, RegisterHistory};
use seatrial_cycles::Csr;

/// A write with the reads of its value; the initial state is the write before all operations.
#[derive(Clone, Debug)]
pub(crate) struct WriteCluster {
    pub(crate) version: u32,
    /// The write; [`NONE`] for the initial state.
    pub(crate) writer: u32,
    /// Position of the write's invocation plus one, 0 for the initial state.
    pub(crate) call: u32,
    /// The first completion in the cluster, plus one: the write takes effect before it. 0 for the initial state.
    pub(crate) end: u32,
    /// The reads of the value.
    pub(crate) reads: Vec<u32>,
}

/// The clusters of a key; a read that ended before its write began is an error.
pub(crate) fn clusters_of(
    history: &RegisterHistory,
    readers: &Csr<u32>,
    members: &[u32],
    initial: u32,
) -> Result<Vec<WriteCluster>, u32> {
    let mut clusters = vec![WriteCluster {
        version: initial,
        writer: NONE,
        call: 0,
        end: 0,
        reads: readers.row(initial).to_vec(),
    }];
    for &number in members {
        let action = &history.actions[number as usize];
        let Some(version) = action.written() else {
            continue;
        };
        // Of a value that several operations wrote, which nothing read, each is a cluster.
        let reads = readers.row(version).to_vec();
        let mut end = action.ret;
        for &read in &reads {
            let ret = history.actions[read as usize].ret;
            if ret < action.call {
                return Err(read);
            }
            end = end.min(ret);
        }
        assert!(end != NONE, "an operation of unknown outcome was read");
        clusters.push(WriteCluster {
            version,
            writer: number,
            call: action.call + 1,
            end: end + 1,
            reads,
        });
    }
    Ok(clusters)
}
