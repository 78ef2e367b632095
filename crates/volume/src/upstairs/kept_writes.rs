//! Writes that a replica which is away lacks, kept for its return.

use crate::block_context::split_slots;
use crate::geometry::{BlockNumber, BlockSpan};
use crate::upstairs::repair_batch::spans_of;
use crate::volume_message::SPANS_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A write that the stream no longer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptWrite {
    /// Its number in the stream.
    pub(crate) id: u64,
    /// The flush before it.
    pub(crate) flush: u64,
    pub(crate) span: BlockSpan,
    /// Sealed.
    pub(crate) slots: Arc<Vec<u8>>,
    /// Bytes that it is counted with.
    pub(crate) bytes: usize,
}

/// Slots for one message, and the number of the first write after them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeptPiece {
    pub(crate) spans: Vec<BlockSpan>,
    pub(crate) slots: Vec<u8>,
    pub(crate) next: u64,
}

/// The writes of this activation that some replica may lack, oldest first.
///
/// A write comes here when the stream drops it. It is kept as long as there is a replica that has everything up to a flush of
/// this activation which was not after the write: when that replica is back, it gets what is here, and nothing has to be compared
/// or read. If all that such a replica lacks has no room, nothing is kept for it, since a part would not spare the comparison.
///
/// Memory: at most `bytes_max`; while all replicas take part, what the slowest one has not flushed. Cost of a write: a place in a
/// queue, no copy.
#[derive(Debug)]
pub(crate) struct KeptWrites {
    writes: VecDeque<KeptWrite>,
    bytes: usize,
    bytes_max: usize,
    /// The flush before the last write that is not here any more, nor in the stream.
    missing: Option<u64>,
}

impl KeptWrites {
    pub(crate) const fn new(bytes_max: usize) -> KeptWrites {
        KeptWrites {
            writes: VecDeque::new(),
            bytes: 0,
            bytes_max,
            missing: None,
        }
    }

    /// Bytes of all writes, and their bound.
    pub(crate) const fn bytes(&self) -> (usize, usize) {
        (self.bytes, self.bytes_max)
    }

    /// Is every write after this flush here or in the stream?
    pub(crate) fn has_all_after(&self, flush: u64) -> bool {
        self.missing.is_none_or(|missing| missing < flush)
    }

    /// Takes a write that the stream dropped, if a replica lacks what follows flush `from`. `is_read`: a repair reads what is
    /// here, so it stays.
    pub(crate) fn add(&mut self, write: KeptWrite, from: Option<u64>, is_read: bool) {
        assert!(
            self.writes.back().is_none_or(|it| it.id < write.id),
            "writes leave the stream in its order"
        );
        let is_lacking = from.is_some_and(|from| from <= write.flush);
        let has_room = self.bytes + write.bytes <= self.bytes_max;
        if is_lacking && has_room {
            self.bytes += write.bytes;
            self.writes.push_back(write);
            return;
        }
        self.missing = Some(write.flush);
        if is_lacking && !is_read {
            self.drop_all();
        }
    }

    /// Drops what no replica lacks: all before flush `from`; none: everything.
    pub(crate) fn release(&mut self, from: Option<u64>) {
        let is_had = |it: &mut KeptWrite| from.is_none_or(|from| it.flush < from);
        while let Some(dropped) = self.writes.pop_front_if(is_had) {
            self.bytes -= dropped.bytes;
            self.missing = self.missing.max(Some(dropped.flush));
        }
        if self.writes.is_empty() {
            // What an outage needed is not held after it.
            self.writes = VecDeque::new();
        }
    }

    fn drop_all(&mut self) {
        self.writes = VecDeque::new();
        self.bytes = 0;
    }

    /// Forgets everything: another activation begins.
    pub(crate) fn clear(&mut self) {
        self.drop_all();
        self.missing = None;
    }

    /// Number of the first write after this flush; none: `end`.
    pub(crate) fn first_after(&self, flush: u64, end: u64) -> u64 {
        let at = self.writes.partition_point(|it| it.flush < flush);
        self.writes.get(at).map_or(end, |it| it.id)
    }

    /// The slots of the writes from number `from` on and before `end`: of as many writes as have `blocks_max` blocks, but at
    /// least one. Of a block that several of them write, the newest.
    pub(crate) fn piece(
        &self,
        from: u64,
        end: u64,
        blocks_max: u32,
        block_length: u32,
    ) -> Option<KeptPiece> {
        let at = self.writes.partition_point(|it| it.id < from);
        let mut blocks: BTreeMap<BlockNumber, &[u8]> = BTreeMap::new();
        let most = (blocks_max as usize).min(SPANS_MAX);
        let mut next = None;
        for write in self.writes.range(at..).take_while(|it| it.id < end) {
            if next.is_some() && blocks.len() + write.span.count as usize > most {
                break;
            }
            next = Some(write.id + 1);
            let slots = split_slots(&write.slots, write.span.count, block_length);
            let slots = slots.expect("the upstairs sealed a slot for each block");
            blocks.extend(write.span.blocks().zip(slots.iter().map(|it| it.bytes)));
        }
        let next = next?;
        let newest: Vec<&[u8]> = blocks.values().copied().collect();
        Some(KeptPiece {
            spans: spans_of(blocks.into_keys()),
            slots: newest.concat(),
            next,
        })
    }

    /// Number of writes from this one on and before `end`.
    pub(crate) fn left(&self, from: u64, end: u64) -> u64 {
        let at = |id| self.writes.partition_point(|it| it.id < id);
        at(end).saturating_sub(at(from)) as u64
    }

    /// After every turn, so without a look at each write.
    pub(crate) fn check(&self) {
        assert!(
            self.bytes <= self.bytes_max,
            "{} of {} bytes",
            self.bytes,
            self.bytes_max
        );
        assert_eq!(
            self.writes.is_empty(),
            self.bytes == 0,
            "{} bytes",
            self.bytes
        );
        if let (Some(first), Some(last)) = (self.writes.front(), self.writes.back()) {
            assert!(
                first.id <= last.id && first.flush <= last.flush,
                "write {} of flush {}, then {} of {}",
                first.id,
                first.flush,
                last.id,
                last.flush
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_context::BlockVersion;
    use crate::geometry::block_count;
    use crate::seal::KeyRing;
    use crate::upstairs::seal_jobs::{BytesPart, SealBlocks};
    use seatrial_machine::{Rng, Time};

    const BLOCK_LENGTH: u32 = 512;

    /// A write of zeros, as the upstairs seals it: its slots are contexts.
    fn write(id: u64, flush: u64, first: u64, count: u32) -> KeptWrite {
        let span = BlockSpan {
            first: BlockNumber(first),
            count,
        };
        let job = SealBlocks {
            keys: KeyRing::new(crate::VolumeId(1), &[7; crate::KEY_LENGTH]),
            id,
            span,
            version: BlockVersion {
                generation: 1,
                counter: id * 100,
            },
            bytes: BytesPart::default(),
            block_length: BLOCK_LENGTH,
            begun: Time::ZERO,
        };
        let slots = Arc::new(job.seal().slots);
        KeptWrite {
            bytes: slots.len(),
            id,
            flush,
            span,
            slots,
        }
    }

    /// The newest version of each block in the writes, one by one.
    fn newest(writes: &[KeptWrite]) -> BTreeMap<BlockNumber, Vec<u8>> {
        let mut blocks = BTreeMap::new();
        for write in writes {
            let slots = split_slots(&write.slots, write.span.count, BLOCK_LENGTH).expect("slots");
            let slots = slots.iter().map(|it| it.bytes.to_vec());
            blocks.extend(write.span.blocks().zip(slots));
        }
        blocks
    }

    /// A replica that was away gets the newest version of each block that was written meanwhile, or nothing is kept for it.
    #[test]
    fn what_is_kept_is_all_that_a_replica_lacks() {
        let (mut rng, mut kept_runs, mut dropped_runs) = (Rng::from_seed(1), 0, 0);
        for _ in 0..300 {
            let mut kept = KeptWrites::new((40 * crate::CONTEXT_LENGTH) << rng.below(6));
            // It has everything up to this flush.
            let mark = 3 + rng.below(3);
            let mut lacks = Vec::new();
            let count = 1 + rng.below(60);
            for id in 1..=count {
                let flush = id / 4;
                let (first, blocks) = (rng.below(50), 1 + rng.below(9) as u32);
                let one = write(id, flush, first, blocks);
                if flush >= mark {
                    lacks.push(one.clone());
                }
                let from = kept.has_all_after(mark).then_some(mark);
                kept.add(one, from, false);
                kept.check();
                let bytes = kept.writes.iter().map(|it| it.bytes).sum();
                assert_eq!(kept.bytes, bytes);
                assert!(kept.writes.iter().is_sorted_by_key(|it| (it.id, it.flush)));
            }
            if !kept.has_all_after(mark) {
                assert_eq!(kept.bytes().0, 0, "a part of it spares nothing");
                dropped_runs += 1;
                continue;
            }
            kept_runs += 1;
            let (mut found, mut next) = (BTreeMap::new(), kept.first_after(mark, count + 1));
            while let Some(piece) = kept.piece(next, count + 1, 8, BLOCK_LENGTH) {
                assert!(piece.next > next, "it gets on");
                next = piece.next;
                let slots =
                    split_slots(&piece.slots, block_count(&piece.spans) as u32, BLOCK_LENGTH);
                let blocks = piece.spans.iter().flat_map(|it| it.blocks());
                let bytes = slots
                    .expect("slots")
                    .into_iter()
                    .map(|it| it.bytes.to_vec());
                found.extend(blocks.zip(bytes));
            }
            assert_eq!(found, newest(&lacks));
            kept.release(None);
            assert_eq!(kept.bytes().0, 0);
            assert!(!kept.has_all_after(mark) || lacks.is_empty());
        }
        assert!(
            kept_runs > 50 && dropped_runs > 50,
            "{kept_runs}, {dropped_runs}"
        );
    }

    #[test]
    fn a_replica_that_lacks_an_earlier_write_gets_nothing_from_here() {
        let mut kept = KeptWrites::new(1 << 20);
        kept.add(write(1, 0, 0, 1), None, false);
        assert!(
            !kept.has_all_after(0),
            "the write after flush 0 was dropped"
        );
        assert!(kept.has_all_after(1));
        kept.add(write(2, 1, 0, 1), Some(1), false);
        kept.add(write(3, 2, 0, 1), Some(1), false);
        assert!(kept.has_all_after(1));
        kept.release(Some(2));
        assert!(!kept.has_all_after(1) && kept.has_all_after(2));
        assert_eq!((kept.first_after(2, 9), kept.left(0, 9)), (3, 1));
    }

    /// What has no room while a repair reads is dropped alone: the repair has all that it needs.
    #[test]
    fn what_a_repair_reads_stays() {
        let one = write(1, 1, 0, 1);
        let mut kept = KeptWrites::new(one.bytes);
        kept.add(one, Some(1), true);
        kept.add(write(2, 1, 1, 1), Some(1), true);
        assert_eq!(kept.left(1, 3), 1);
        assert!(!kept.has_all_after(1), "another replica is compared");
        kept.add(write(3, 1, 1, 1), Some(1), false);
        assert_eq!(kept.left(1, 4), 0);
    }
}
