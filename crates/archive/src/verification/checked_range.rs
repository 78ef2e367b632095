//! A range of blocks of one file, checked by one thread.

use super::{VerifyDamage, VerifyFault};
use crate::BlockDamage;
use crate::cursor::{BlockChecker, ExpectedBlock, FirstBlock, SegmentBytes};
use crate::segment::SegmentName;
use seatrial_blocks::HEADER_LENGTH;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is being verified.
#[derive(Debug)]
pub(super) struct VerifiedFile {
    /// Index of its recording in the list to verify.
    pub(super) recording: usize,
    pub(super) name: SegmentName,
    pub(super) path: PathBuf,
    /// Number of bytes to verify.
    pub(super) length: u64,
    /// The open file with an empty buffer; `None` if it cannot be opened.
    pub(super) view: Option<SegmentBytes>,
}

impl VerifiedFile {
    /// The damage of `length` bytes at `offset`.
    pub(super) fn damage(
        &self,
        offset: u64,
        length: u64,
        fault: impl Into<VerifyFault>,
    ) -> VerifyDamage {
        VerifyDamage {
            path: self.path.clone(),
            offset,
            position: self.name.start.plus(offset),
            length,
            fault: fault.into(),
        }
    }
}

/// Consecutive blocks whose headers were checked.
#[derive(Clone, Debug)]
pub(super) struct BlockRange {
    pub(super) segment: Arc<VerifiedFile>,
    /// Offset of the first block.
    pub(super) from: u64,
    /// End of the last block.
    pub(super) to: u64,
    /// Sequence number of the first block.
    pub(super) sequence: u64,
}

impl BlockRange {
    pub(super) fn length(&self) -> u64 {
        self.to - self.from
    }
}

/// Damage, and the expected sequence number of the block there, if it is known.
#[derive(Clone, Debug)]
pub(super) struct FoundDamage {
    pub(super) sequence: Option<u64>,
    pub(super) damage: VerifyDamage,
}

/// The result of checking a range.
#[derive(Debug)]
pub(super) struct CheckedRange {
    pub(super) range: BlockRange,
    /// What the first block was; `None` if it is damaged.
    pub(super) first: Option<ExpectedBlock>,
    /// What the block after the last has to match; `None` if the last is damaged.
    pub(super) next: Option<ExpectedBlock>,
    pub(super) blocks: u64,
    pub(super) messages: u64,
    /// End of the last valid block.
    pub(super) valid: u64,
    pub(super) found: Vec<FoundDamage>,
}

impl CheckedRange {
    /// The result before anything is checked.
    fn new(range: BlockRange) -> CheckedRange {
        CheckedRange {
            first: None,
            next: None,
            blocks: 0,
            messages: 0,
            valid: range.from,
            found: Vec::new(),
            range,
        }
    }

    /// The result for the first block of a segment.
    pub(super) fn first(segment: &Arc<VerifiedFile>, first: &FirstBlock) -> CheckedRange {
        let (sequence, next) = (first.block.sequence, first.next());
        let to = first.block.block_length();
        CheckedRange {
            first: Some(ExpectedBlock { sequence, ..next }),
            next: Some(next),
            valid: to,
            ..CheckedRange::new(BlockRange {
                segment: Arc::clone(segment),
                from: 0,
                to,
                sequence,
            })
        }
    }
}

/// A thread's checking state, kept from range to range: block checker and last open file.
#[derive(Debug)]
pub(super) struct RangeChecker {
    checker: BlockChecker,
    open: Option<(Arc<VerifiedFile>, SegmentBytes)>,
}

impl RangeChecker {
    pub(super) fn new(checksums: bool) -> RangeChecker {
        RangeChecker {
            checker: BlockChecker::new(checksums),
            open: None,
        }
    }
}

/// Checks the blocks of a range.
pub(super) fn check(checker: &mut RangeChecker, range: BlockRange) -> CheckedRange {
    let mut checked = CheckedRange::new(range);
    let segment = Arc::clone(&checked.range.segment);
    let Some(own) = &segment.view else {
        return checked;
    };
    let view = match checker.open.take() {
        Some((open, view)) if Arc::ptr_eq(&open, &segment) => view,
        _ => own.with_own_buffer(),
    };
    let (_, view) = checker.open.insert((Arc::clone(&segment), view));
    let (mut at, mut sequence) = (checked.range.from, checked.range.sequence);
    while at < checked.range.to {
        let chain = checked.next.unwrap_or(ExpectedBlock {
            sequence,
            message: None,
            time: 0,
        });
        let length = match block(view, &mut checker.checker, at, &chain, checked.range.to) {
            Ok((length, first, next)) => {
                if at == checked.range.from {
                    checked.first = Some(first);
                }
                checked.blocks += 1;
                let messages = next.message.zip(first.message);
                checked.messages += messages.map_or(0, |(next, first)| next.wrapping_sub(first));
                checked.valid = at + length;
                checked.next = Some(next);
                length
            }
            Err((length, fault)) => {
                checked.found.push(FoundDamage {
                    sequence: Some(sequence),
                    damage: segment.damage(at, length, fault),
                });
                checked.next = None;
                length
            }
        };
        at += length;
        sequence = sequence.wrapping_add(1);
    }
    checked
}

/// Checks one block. Returns its length, its own numbers and what the next block has to match; or the number of damaged
/// bytes and the reason.
fn block(
    view: &mut SegmentBytes,
    checker: &mut BlockChecker,
    at: u64,
    chain: &ExpectedBlock,
    to: u64,
) -> Result<(u64, ExpectedBlock, ExpectedBlock), (u64, VerifyFault)> {
    let unreadable = |error: std::io::Error| VerifyFault::unreadable(&error);
    let header = view.header(at, Some(chain.sequence), to);
    let header = match header.map_err(|error| (to - at, unreadable(error)))? {
        Ok(header) => header,
        // The header walk found it valid, so the file was changed in between.
        Err(defect) => return Err((to - at, BlockDamage::Block(defect).into())),
    };
    let length = header.block_length();
    let bytes = view.bytes(at, length as usize, to);
    let bytes = bytes.map_err(|error| (length, unreadable(error)))?;
    let batch = checker
        .check(&header, &bytes[HEADER_LENGTH..], chain)
        .map_err(|fault| (length, fault.into()))?;
    let first = ExpectedBlock {
        sequence: header.sequence,
        message: Some(batch.first_message),
        time: batch.time,
    };
    Ok((length, first, ExpectedBlock::after(header.sequence, &batch)))
}
