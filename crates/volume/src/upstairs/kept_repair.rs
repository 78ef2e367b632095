//! Repair of a replica that was away for a moment: it gets the writes that were kept for it.

use crate::geometry::block_count;
use crate::upstairs::kept_writes::KeptWrite;
use crate::upstairs::stream_items::{ItemKind, StreamItem};
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use seatrial_machine::Time;

/// What a repair sends of the kept writes, in pieces.
///
/// The target gets every write since its return from the stream, so only those before it are sent, at their own pace. A block's
/// newest version wins at the target, so they may arrive after later ones.
#[derive(Debug)]
pub(crate) struct Replay {
    /// The write that is sent next.
    next: u64,
    /// From this one on the stream has the writes.
    end: u64,
    /// The messages that the target has not carried out, at most the window of a repair.
    sent: Vec<u64>,
}

impl Upstairs {
    /// The writes that a replica lacks, if all of them were kept.
    pub(super) fn replay_for(&self, target: usize) -> Option<Replay> {
        let mark = self.mirrors[target].mark;
        let has_all = if self.has_bug(VolumeBug::ReplayGap) {
            // As if a flush included the writes after it.
            self.kept.has_all_after(mark.flush + 1)
        } else {
            self.kept.has_all_after(mark.flush)
        };
        let is_ours = self.generations.contains(&mark.generation);
        (is_ours && has_all).then(|| {
            let end = self.items.first();
            Replay {
                next: self.kept.first_after(mark.flush, end),
                end,
                sent: Vec::new(),
            }
        })
    }

    /// Number of writes that are left to send to a replica.
    pub(super) fn writes_left(&self, target: usize) -> u64 {
        let replay = self.repairs.get(&target).and_then(|it| it.replay.as_ref());
        replay.map_or(0, |it| self.kept.left(it.next, it.end))
    }

    /// Keeps what the stream dropped, if a replica lacks it.
    pub(super) fn keep(&mut self, item: StreamItem) {
        let bytes = item.bytes();
        let StreamItem {
            id, flush, kind, ..
        } = item;
        let ItemKind::Write { span, slots } = kind else {
            return;
        };
        let write = KeptWrite {
            id,
            flush,
            span,
            slots,
            bytes,
        };
        let (from, is_read) = (self.lacking_from(), self.is_replaying());
        self.kept.add(write, from, is_read);
    }

    /// Drops what was kept and no replica lacks.
    pub(super) fn release_kept(&mut self) {
        if !self.is_replaying() {
            self.kept.release(self.lacking_from());
        }
    }

    /// The first flush after which a replica lacks writes, of the replicas that can get all they lack from what is kept.
    fn lacking_from(&self) -> Option<u64> {
        let marks = self.mirrors.iter().map(|it| it.mark);
        let ours = marks.filter(|it| self.generations.contains(&it.generation));
        ours.map(|it| it.flush)
            .filter(|flush| self.kept.has_all_after(*flush))
            .min()
    }

    fn is_replaying(&self) -> bool {
        self.repairs.values().any(|it| it.replay.is_some())
    }

    /// Sends further kept writes to the target of a repair.
    pub(super) fn copy_kept(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let block_length = self.options.geometry.block_length;
        let blocks_max = (self.options.repair_piece / block_length).max(1);
        let window = self.options.repair_window;
        loop {
            let Some(repair) = self.repairs.get_mut(&target) else {
                return;
            };
            let Some(replay) = &mut repair.replay else {
                return;
            };
            let mirror = &self.mirrors[target];
            replay.sent.retain(|it| !mirror.has_applied(*it));
            if repair.budget <= 0 || replay.sent.len() >= window {
                return;
            }
            let piece = self
                .kept
                .piece(replay.next, replay.end, blocks_max, block_length);
            let Some(piece) = piece else {
                repair.replay = None;
                return;
            };
            replay.next = piece.next;
            replay.sent.push(mirror.last_number() + 1);
            let bytes = block_count(&piece.spans) * u64::from(block_length);
            repair.budget -= bytes as i64;
            self.send_piece(now, target, piece.spans, piece.slots, out);
        }
    }
}
