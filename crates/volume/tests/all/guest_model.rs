//! What a disk with a volatile write cache may answer, block by block: the dumb twin of the volume.

use std::collections::BTreeMap;

/// The values of one block, in the order in which they were written.
#[derive(Clone, Debug)]
struct BlockHistory {
    values: Vec<u64>,
    /// Values before this one were overwritten durably.
    floor: usize,
    /// Values that a read may return: from here …
    low: usize,
    /// … to here.
    high: usize,
    /// The last value whose write was acknowledged: what a flush makes durable.
    acknowledged: usize,
}

impl Default for BlockHistory {
    fn default() -> BlockHistory {
        BlockHistory {
            values: vec![0],
            floor: 0,
            low: 0,
            high: 0,
            acknowledged: 0,
        }
    }
}

/// All blocks. A block has at most one request at a time.
#[derive(Debug, Default)]
pub(crate) struct GuestModel {
    blocks: BTreeMap<u64, BlockHistory>,
    /// The value of a block that was never written; `None`: 0.
    initial: Option<fn(u64) -> u64>,
}

impl GuestModel {
    fn block(&mut self, block: u64) -> &mut BlockHistory {
        let initial = self.initial;
        self.blocks.entry(block).or_insert_with(|| BlockHistory {
            values: vec![initial.map_or(0, |initial| initial(block))],
            ..BlockHistory::default()
        })
    }

    /// A disk that does not begin with zeros.
    pub(crate) fn with_initial(initial: fn(u64) -> u64) -> GuestModel {
        GuestModel {
            initial: Some(initial),
            ..GuestModel::default()
        }
    }

    /// A write begins: the block may have its value from now on.
    pub(crate) fn begin_write(&mut self, block: u64, value: u64) {
        let history = self.block(block);
        history.values.push(value);
        history.high = history.values.len() - 1;
    }

    /// It is acknowledged: the block has its value.
    pub(crate) fn end_write(&mut self, block: u64) {
        let history = self.block(block);
        history.low = history.values.len() - 1;
        history.acknowledged = history.low;
    }

    /// What a flush that begins now will make durable.
    pub(crate) fn begin_flush(&self) -> Vec<(u64, usize)> {
        let acknowledged = self
            .blocks
            .iter()
            .map(|(block, it)| (*block, it.acknowledged));
        acknowledged.collect()
    }

    pub(crate) fn end_flush(&mut self, flushed: &[(u64, usize)]) {
        for (block, value) in flushed {
            let history = self.block(*block);
            history.floor = history.floor.max(*value);
        }
    }

    /// The upstairs crashes: each block has some value that was not overwritten durably.
    pub(crate) fn crash(&mut self) {
        for history in self.blocks.values_mut() {
            history.low = history.floor;
            history.high = history.values.len() - 1;
            // Which one it is, and so what a flush makes durable, is not known.
            history.acknowledged = history.floor;
        }
    }

    /// A read returned this value. After a crash the first value that is read stays.
    pub(crate) fn read(&mut self, block: u64, value: u64) -> Result<(), String> {
        let history = self.block(block);
        let legal = history.low..=history.high;
        // Zeros are written more than once.
        let mut found = legal.clone().filter(|at| history.values[*at] == value);
        let Some(first) = found.next() else {
            return Err(format!(
                "block {block}: read {value} of {:?}; legal are {legal:?}",
                history.values
            ));
        };
        let last = found.next_back().unwrap_or(first);
        if history.low < history.high {
            // What the activation left is durable.
            history.floor = history.floor.max(first);
        }
        (history.low, history.high) = (first, last);
        history.acknowledged = first;
        if first == last {
            // The lost ones can never come back.
            history.values.truncate(first + 1);
        }
        Ok(())
    }
}
