//! A batch of chunks of a repair: what is compared together, and copied piece by piece.

use crate::block_context::{BlockSlot, BlockVersion, split_slots};
use crate::downstairs::chunk_span;
use crate::geometry::{BlockNumber, BlockSpan, Geometry, block_count};
use crate::seal::KeyRing;
use crate::upstairs::live_repair::RepairId;
use seatrial_machine::{Computed, Job};
use std::collections::{BTreeSet, VecDeque};

/// What a batch waits for.
#[derive(Debug)]
pub(crate) enum BatchStep {
    /// The versions of source and target, each of which may have arrived.
    Comparing([Option<Vec<BlockVersion>>; 2]),
    /// The slots of these blocks are read from the source, and opened.
    Reading(Vec<BlockSpan>),
    /// The target has to carry out this message of its stream; then the next piece is read.
    Sent(u64),
}

/// Chunks that a repair compares with one question to each of both replicas. The blocks that differ are read, opened and sent
/// in pieces, each of which has parts of any chunks of the batch. A piece begins when the target has carried out the one before
/// it, so a batch holds the bytes of one piece.
#[derive(Debug)]
pub(crate) struct RepairBatch {
    /// Number of chunks.
    pub(crate) chunks: u64,
    /// Their blocks.
    pub(crate) spans: Vec<BlockSpan>,
    pub(crate) step: BatchStep,
    /// The blocks that are to be copied and were not asked for.
    wanted: VecDeque<BlockSpan>,
    /// Replicas that delivered damaged slots of the piece that is read.
    pub(crate) bad: BTreeSet<usize>,
}

impl RepairBatch {
    /// A batch of these chunks, which increase.
    pub(crate) fn new(geometry: &Geometry, chunks: &[u64]) -> RepairBatch {
        let mut spans = Vec::new();
        for chunk in chunks {
            append(&mut spans, chunk_span(geometry, *chunk));
        }
        RepairBatch {
            chunks: chunks.len() as u64,
            spans,
            step: BatchStep::Comparing([None, None]),
            wanted: VecDeque::new(),
            bad: BTreeSet::new(),
        }
    }

    /// Takes the blocks whose versions, of source and target, make them wanted.
    pub(crate) fn compare(
        &mut self,
        [source, target]: [&[BlockVersion]; 2],
        is_wanted: impl Fn(BlockVersion, BlockVersion) -> bool,
    ) {
        let blocks = block_count(&self.spans);
        assert!(
            source.len() as u64 == blocks && target.len() as u64 == blocks,
            "a version of each of {blocks} blocks"
        );
        let blocks = self.spans.iter().flat_map(|it| it.blocks());
        let pairs = blocks.zip(source.iter().zip(target));
        let wanted = pairs.filter(|(_, (good, here))| is_wanted(**good, **here));
        self.wanted = spans_of(wanted.map(|(block, _)| block)).into();
        self.step = BatchStep::Sent(0);
    }

    /// Was everything read?
    pub(crate) fn is_read(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Takes the next blocks to copy, at most `blocks_max`.
    pub(crate) fn next_piece(&mut self, mut blocks_max: u32) -> Vec<BlockSpan> {
        let mut piece = Vec::new();
        while blocks_max > 0
            && let Some(next) = self.wanted.front_mut()
        {
            let taken = BlockSpan {
                first: next.first,
                count: next.count.min(blocks_max),
            };
            blocks_max -= taken.count;
            next.first.0 += u64::from(taken.count);
            next.count -= taken.count;
            self.wanted.pop_front_if(|it| it.count == 0);
            piece.push(taken);
        }
        piece
    }
}

/// Appends a span; one that continues the last one makes it longer.
fn append(spans: &mut Vec<BlockSpan>, span: BlockSpan) {
    match spans.last_mut() {
        Some(last) if last.end() == span.first.0 => last.count += span.count,
        _ => spans.push(span),
    }
}

/// These blocks, which increase, as spans.
pub(crate) fn spans_of(blocks: impl Iterator<Item = BlockNumber>) -> Vec<BlockSpan> {
    let mut spans = Vec::new();
    for first in blocks {
        append(&mut spans, BlockSpan { first, count: 1 });
    }
    spans
}

/// Opens slots that are to be copied, so that no damage is.
pub(crate) struct VerifySlots {
    pub(crate) keys: KeyRing,
    pub(crate) repair: RepairId,
    pub(crate) batch: u64,
    pub(crate) source: usize,
    pub(crate) spans: Vec<BlockSpan>,
    pub(crate) slots: Vec<u8>,
    pub(crate) block_length: u32,
}

/// Slots of a piece that were opened.
pub(crate) struct VerifiedPiece {
    pub(crate) repair: RepairId,
    pub(crate) batch: u64,
    pub(crate) source: usize,
    pub(crate) spans: Vec<BlockSpan>,
    pub(crate) slots: Vec<u8>,
    /// The blocks that are not intact.
    pub(crate) damaged: Vec<BlockNumber>,
}

impl Job for VerifySlots {
    fn run(self: Box<Self>) -> Computed {
        let damaged = self.damaged();
        Box::new(VerifiedPiece {
            repair: self.repair,
            batch: self.batch,
            source: self.source,
            spans: self.spans,
            slots: self.slots,
            damaged,
        })
    }
}

impl VerifySlots {
    fn damaged(&self) -> Vec<BlockNumber> {
        let blocks = self.spans.iter().flat_map(|it| it.blocks());
        let count = block_count(&self.spans) as u32;
        let Some(slots) = split_slots(&self.slots, count, self.block_length) else {
            return blocks.collect();
        };
        let mut plain = Vec::new();
        let is_damaged = |(block, slot): &(BlockNumber, &BlockSlot<'_>)| {
            plain.clear();
            !self.keys.open(&mut plain, *block, slot, self.block_length)
        };
        let damaged = blocks.zip(&slots).filter(is_damaged);
        damaged.map(|(block, _)| block).collect()
    }
}

impl VerifiedPiece {
    /// The slots that are to be sent, with their blocks: those that are intact or, with `has_damage`, all. `None`: these are no
    /// slots.
    pub(crate) fn take(
        &mut self,
        block_length: u32,
        has_damage: bool,
    ) -> Option<(Vec<BlockSpan>, Vec<u8>)> {
        let count = block_count(&self.spans) as u32;
        let slots = split_slots(&self.slots, count, block_length)?;
        if self.damaged.is_empty() || has_damage {
            drop(slots);
            return Some((
                std::mem::take(&mut self.spans),
                std::mem::take(&mut self.slots),
            ));
        }
        let blocks = self.spans.iter().flat_map(|it| it.blocks());
        let is_intact =
            |(block, _): &(BlockNumber, BlockSlot<'_>)| self.damaged.binary_search(block).is_err();
        let mut bytes = Vec::new();
        let intact = blocks.zip(slots).filter(is_intact).map(|(block, slot)| {
            bytes.extend_from_slice(slot.bytes);
            block
        });
        Some((spans_of(intact), bytes))
    }

    /// The blocks that are not intact.
    pub(crate) fn damaged_spans(&self) -> Vec<BlockSpan> {
        spans_of(self.damaged.iter().copied())
    }
}
