//! A run of blocks of one file, checked by one thread.

use super::{VerifyDamage, VerifyFault};
use crate::cursor::{Chain, Checker, First, View};
use crate::segment::SegmentName;
use crate::{Fault, HEADER_LENGTH};
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is being verified.
#[derive(Debug)]
pub(super) struct Segment {
    /// Which of the recordings to verify it belongs to.
    pub(super) recording: usize,
    pub(super) name: SegmentName,
    pub(super) path: PathBuf,
    /// Bytes that are to be verified.
    pub(super) length: u64,
    /// The open file, its buffer empty; nothing if it cannot be opened.
    pub(super) view: Option<View>,
}

impl Segment {
    /// Something is wrong with `length` bytes at `offset`.
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

/// Blocks back to back whose headers were checked.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) segment: Arc<Segment>,
    /// The offset of the first one.
    pub(super) from: u64,
    /// The offset behind the last one.
    pub(super) to: u64,
    /// The first one's number.
    pub(super) sequence: u64,
}

impl Range {
    pub(super) fn length(&self) -> u64 {
        self.to - self.from
    }
}

/// Something that is wrong, and the number of the block that belongs there, if it is known.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) sequence: Option<u64>,
    pub(super) damage: VerifyDamage,
}

/// What was found in a range.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) range: Range,
    /// What its first block would continue; nothing if that is damaged.
    pub(super) first: Option<Chain>,
    /// What would continue its last block; nothing if that is damaged.
    pub(super) next: Option<Chain>,
    pub(super) blocks: u64,
    pub(super) messages: u64,
    /// The offset behind the last valid block.
    pub(super) valid: u64,
    pub(super) found: Vec<Found>,
}

impl Piece {
    /// Nothing of it checked yet.
    fn new(range: Range) -> Piece {
        Piece {
            first: None,
            next: None,
            blocks: 0,
            messages: 0,
            valid: range.from,
            found: Vec::new(),
            range,
        }
    }

    /// The first block of a segment.
    pub(super) fn first(segment: &Arc<Segment>, first: &First) -> Piece {
        let (sequence, next) = (first.block.sequence, first.next());
        let to = first.block.block_length();
        Piece {
            first: Some(Chain { sequence, ..next }),
            next: Some(next),
            valid: to,
            ..Piece::new(Range {
                segment: Arc::clone(segment),
                from: 0,
                to,
                sequence,
            })
        }
    }
}

/// What a thread checks with, from range to range.
#[derive(Debug)]
pub(super) struct Desk {
    checker: Checker,
    open: Option<(Arc<Segment>, View)>,
}

impl Desk {
    pub(super) fn new(checksums: bool) -> Desk {
        Desk {
            checker: Checker::new(checksums),
            open: None,
        }
    }
}

/// Checks the blocks of a range.
pub(super) fn check(desk: &mut Desk, range: Range) -> Piece {
    let mut piece = Piece::new(range);
    let segment = Arc::clone(&piece.range.segment);
    let Some(own) = &segment.view else {
        return piece;
    };
    let view = match desk.open.take() {
        Some((open, view)) if Arc::ptr_eq(&open, &segment) => view,
        _ => own.again(),
    };
    let (_, view) = desk.open.insert((Arc::clone(&segment), view));
    let (mut at, mut sequence) = (piece.range.from, piece.range.sequence);
    while at < piece.range.to {
        let chain = piece.next.unwrap_or(Chain {
            sequence,
            message: None,
            time: 0,
        });
        let length = match block(view, &mut desk.checker, at, &chain, piece.range.to) {
            Ok((length, first, next)) => {
                if at == piece.range.from {
                    piece.first = Some(first);
                }
                piece.blocks += 1;
                let messages = next.message.zip(first.message);
                piece.messages += messages.map_or(0, |(next, first)| next.wrapping_sub(first));
                piece.valid = at + length;
                piece.next = Some(next);
                length
            }
            Err((length, fault)) => {
                piece.found.push(Found {
                    sequence: Some(sequence),
                    damage: segment.damage(at, length, fault),
                });
                piece.next = None;
                length
            }
        };
        at += length;
        sequence = sequence.wrapping_add(1);
    }
    piece
}

/// Checks one block; its length, what it continues and what continues it; or how much cannot be believed, and why.
fn block(
    view: &mut View,
    checker: &mut Checker,
    at: u64,
    chain: &Chain,
    to: u64,
) -> Result<(u64, Chain, Chain), (u64, VerifyFault)> {
    let unreadable = |error: std::io::Error| VerifyFault::unreadable(&error);
    let header = view.header(at, Some(chain.sequence), to);
    let header = match header.map_err(|error| (to - at, unreadable(error)))? {
        Ok(header) => header,
        // It was whole a moment ago.
        Err(defect) => return Err((to - at, Fault::Block(defect).into())),
    };
    let length = header.block_length();
    let bytes = view.bytes(at, length as usize, to);
    let bytes = bytes.map_err(|error| (length, unreadable(error)))?;
    let batch = checker
        .check(&header, &bytes[HEADER_LENGTH..], chain)
        .map_err(|fault| (length, fault.into()))?;
    let first = Chain {
        sequence: header.sequence,
        message: Some(batch.first_message),
        time: batch.time,
    };
    Ok((length, first, Chain::after(header.sequence, &batch)))
}
