//! One request of a client as requests of a guest, one after the other.

use crate::handshake::NbdSession;
use crate::nbd_request::{FLAG_FUA, FLAG_NO_HOLE, NbdCommand, NbdRequest};
use crate::reply::{NbdReply, ReplyForm};
use seatrial_volume::{BlockNumber, BlockSpan, GuestReply, GuestRequest, REQUEST_LENGTH_MAX};
use std::ops::Range;

/// What a change writes.
#[derive(Debug)]
enum NewBytes {
    /// This payload.
    Payload(Vec<u8>),
    /// Zeros that occupy space.
    Zeros,
    /// Zeros without space.
    Holes,
}

/// The work of a request.
#[derive(Debug)]
enum StepKind {
    /// Reads the blocks from the position on, and keeps their bytes.
    Read { bytes: Vec<u8> },
    /// Writes the bytes from the position on.
    Change {
        new: NewBytes,
        /// Part of the block at the position that changes, and the block's bytes once they are read.
        edge: Option<(Range<usize>, Vec<u8>)>,
    },
    /// Asks for the extents of one range.
    Extents { extents: Vec<(u32, bool)> },
    /// Flushes.
    Flush,
    /// Does nothing.
    Nothing,
}

/// A request under way. At most one request of a guest is outstanding, so its driver's queue needs one place for it.
///
/// A change of whole blocks is one request up to [`REQUEST_LENGTH_MAX`] bytes. A block that changes in part is read and
/// written back; [`NbdRequests`](crate::NbdRequests) keeps other changes of it out meanwhile.
#[derive(Debug)]
pub(super) struct RequestSteps {
    form: ReplyForm,
    kind: StepKind,
    /// The snapshot that is read.
    snapshot: Option<String>,
    block_length: u64,
    /// Byte of the volume at which the next step begins.
    position: u64,
    /// The byte after the last one.
    end: u64,
    /// The blocks that change.
    pub(super) changed: Range<u64>,
    /// Does a block change in part?
    pub(super) is_partial: bool,
}

impl RequestSteps {
    /// The steps of a request that was [checked](crate::NbdHeader::check).
    pub(super) fn new(
        request: NbdRequest,
        command: NbdCommand,
        session: &NbdSession,
        block_length: u64,
    ) -> RequestSteps {
        let NbdRequest { header, payload } = request;
        // The range of a flush is not checked: it has no meaning.
        let mut start = header.offset;
        let mut end = header.offset.saturating_add(u64::from(header.length));
        let whole = |start: u64, end: u64| {
            let first = start.next_multiple_of(block_length);
            (first, (end - end % block_length).max(first))
        };
        let change = |new| StepKind::Change { new, edge: None };
        let kind = match command {
            NbdCommand::Read => {
                start -= start % block_length;
                end = end.next_multiple_of(block_length);
                StepKind::Read { bytes: Vec::new() }
            }
            NbdCommand::Write => change(NewBytes::Payload(payload)),
            NbdCommand::WriteZeroes if header.flags & FLAG_NO_HOLE != 0 => change(NewBytes::Zeros),
            NbdCommand::WriteZeroes => change(NewBytes::Holes),
            NbdCommand::Trim => {
                // Bytes of blocks that are needed in part stay.
                (start, end) = whole(start, end);
                change(NewBytes::Holes)
            }
            NbdCommand::BlockStatus => {
                start -= start % block_length;
                end = end
                    .next_multiple_of(block_length)
                    .min(start + REQUEST_LENGTH_MAX as u64);
                StepKind::Extents {
                    extents: Vec::new(),
                }
            }
            NbdCommand::Flush => {
                (start, end) = (0, 1);
                StepKind::Flush
            }
            NbdCommand::Cache | NbdCommand::Disconnect => StepKind::Nothing,
        };
        let is_change = matches!(kind, StepKind::Change { .. }) && start < end;
        let changed = if is_change {
            start / block_length..end.div_ceil(block_length)
        } else {
            0..0
        };
        let is_aligned = start % block_length == 0 && end % block_length == 0;
        RequestSteps {
            form: ReplyForm {
                header,
                is_structured: session.is_structured,
            },
            kind,
            snapshot: session.snapshot.clone(),
            block_length,
            position: start,
            end,
            changed,
            is_partial: is_change && !is_aligned,
        }
    }

    pub(super) const fn form(&self) -> ReplyForm {
        self.form
    }

    /// Must these changes happen one after the other? Changes of whole blocks need no order.
    pub(super) fn excludes(&self, other: &RequestSteps) -> bool {
        (self.is_partial || other.is_partial)
            && self.changed.start < other.changed.end
            && other.changed.start < self.changed.end
    }

    const fn is_durable(&self) -> bool {
        self.form.header.flags & FLAG_FUA != 0
    }

    /// The whole blocks from the position on that one request may have.
    fn span(&self) -> BlockSpan {
        let most = REQUEST_LENGTH_MAX as u64 / self.block_length;
        let left = (self.end - self.position) / self.block_length;
        BlockSpan {
            first: BlockNumber(self.position / self.block_length),
            count: left.min(most) as u32,
        }
    }

    /// The next request of a guest; `None`: all are done.
    pub(super) fn next(&mut self) -> Option<GuestRequest> {
        if self.position >= self.end {
            return None;
        }
        let (span, fua) = (self.span(), self.is_durable());
        let first = BlockNumber(self.position / self.block_length);
        let snapshot = self.snapshot.clone();
        match &mut self.kind {
            StepKind::Read { .. } => Some(match snapshot {
                Some(name) => GuestRequest::ReadSnapshot(name, span),
                None => GuestRequest::Read(span),
            }),
            StepKind::Extents { .. } => Some(match snapshot {
                Some(name) => GuestRequest::SnapshotExtents(name, span),
                None => GuestRequest::Extents(span),
            }),
            StepKind::Flush => Some(GuestRequest::Flush),
            StepKind::Nothing => None,
            StepKind::Change { new, edge } => {
                if let Some((range, bytes)) = edge {
                    // The block was read: change it. `on_reply` moves the position.
                    match new {
                        NewBytes::Payload(payload) => {
                            let start = (self.position - self.form.header.offset) as usize;
                            let source = &payload[start..start + range.len()];
                            bytes[range.clone()].copy_from_slice(source);
                        }
                        NewBytes::Zeros | NewBytes::Holes => bytes[range.clone()].fill(0),
                    }
                    let bytes = std::mem::take(bytes);
                    return Some(GuestRequest::Write { first, bytes, fua });
                }
                let within = self.position % self.block_length;
                if within > 0 || span.count == 0 {
                    return Some(GuestRequest::Read(BlockSpan { first, count: 1 }));
                }
                let length = span.count as usize * self.block_length as usize;
                let bytes = match new {
                    NewBytes::Holes => return Some(GuestRequest::Trim { range: span, fua }),
                    NewBytes::Zeros => vec![0; length],
                    NewBytes::Payload(payload) if payload.len() == length => {
                        std::mem::take(payload)
                    }
                    NewBytes::Payload(payload) => {
                        let start = (self.position - self.form.header.offset) as usize;
                        payload[start..start + length].to_vec()
                    }
                };
                Some(GuestRequest::Write { first, bytes, fua })
            }
        }
    }

    /// Takes the reply to the last request. Fails, with a text, if the request failed or the reply does not fit it.
    pub(super) fn on_reply(&mut self, reply: GuestReply) -> Result<(), &'static str> {
        const UNFIT: &str = "the volume replied to another request";
        let span = self.span();
        let length = span.count as usize * self.block_length as usize;
        let within = (self.position % self.block_length) as usize;
        match (&mut self.kind, reply) {
            (StepKind::Read { bytes }, GuestReply::Bytes(more)) if more.len() == length => {
                if bytes.is_empty() {
                    *bytes = more;
                } else {
                    bytes.extend_from_slice(&more);
                }
                self.position += length as u64;
            }
            (StepKind::Extents { extents }, GuestReply::Extents(found)) => {
                *extents = found;
                self.position = self.end;
            }
            (StepKind::Flush, GuestReply::Done) => self.position = self.end,
            (StepKind::Change { edge, .. }, GuestReply::Bytes(bytes))
                if edge.is_none() && bytes.len() as u64 == self.block_length =>
            {
                let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
                let until = bytes.len().min(within.saturating_add(left));
                *edge = Some((within..until, bytes));
            }
            (StepKind::Change { edge, .. }, GuestReply::Done) => {
                self.position += match edge.take() {
                    Some((range, _)) => range.len() as u64,
                    None => length as u64,
                };
            }
            _ => return Err(UNFIT),
        }
        Ok(())
    }

    /// The reply, after [`RequestSteps::next`] has returned `None`.
    pub(super) fn finish(self) -> NbdReply {
        let header = self.form.header;
        let within = header.offset % self.block_length;
        match self.kind {
            StepKind::Read { mut bytes } => {
                bytes.truncate(within as usize + header.length as usize);
                bytes.drain(..within as usize);
                self.form.data(bytes)
            }
            StepKind::Extents { extents } => {
                let clipped = clip(&extents, self.block_length, within, header.length);
                self.form.extents(&clipped)
            }
            StepKind::Change { .. } | StepKind::Flush | StepKind::Nothing => self.form.done(),
        }
    }
}

/// Extents in bytes from runs of blocks: without the first `skip` bytes and after `length` bytes.
fn clip(runs: &[(u32, bool)], block_length: u64, skip: u64, length: u32) -> Vec<(u32, bool)> {
    let (mut skip, mut left) = (skip, u64::from(length));
    let mut extents: Vec<(u32, bool)> = Vec::new();
    for (count, has_data) in runs {
        let bytes = u64::from(*count) * block_length;
        let skipped = skip.min(bytes);
        skip -= skipped;
        let bytes = (bytes - skipped).min(left);
        left -= bytes;
        match extents.last_mut() {
            // Neighbours differ.
            Some((length, is_same)) if is_same == has_data => *length += bytes as u32,
            _ if bytes > 0 => extents.push((bytes as u32, *has_data)),
            _ => {}
        }
    }
    extents
}
