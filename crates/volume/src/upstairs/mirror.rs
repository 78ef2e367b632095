//! A replica as its upstairs sees it.

use crate::geometry::BlockSpan;
use crate::guest::GuestReply;
use crate::lineage::{Lineage, Mark};
use crate::status::MirrorState;
use crate::upstairs::stream_items::{ItemKind, StreamItem, StreamItems};
use crate::volume_message::{
    FlushOrder, MapName, SessionNumber, StreamMessage, ToReplica, WritePurpose,
};
use seatrial_machine::{DurationHistogram, NodeId, Output, Time};
use std::collections::VecDeque;
use std::sync::Arc;

/// Slots that are copied to one replica.
#[derive(Debug)]
pub(crate) struct CopiedSlots {
    pub(crate) purpose: WritePurpose,
    pub(crate) map: MapName,
    pub(crate) flush: u64,
    /// See [`StreamMessage::Write`].
    pub(crate) since: u32,
    pub(crate) spans: Vec<BlockSpan>,
    pub(crate) slots: Arc<Vec<u8>>,
}

/// A numbered message that a replica has not acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    /// An item of the stream of all replicas.
    Item(u64),
    /// A flush of that stream, as this replica gets it.
    Flush(u64, Arc<FlushOrder>),
    /// Slots for this replica alone.
    Copy(Arc<CopiedSlots>),
    /// A copy of a snapshot begins.
    BeginSnapshot(MapName, u64),
    /// A copy of a snapshot is whole.
    EndSnapshot(MapName),
    /// A snapshot that the others do not have is removed.
    DropSnapshot(MapName),
}

/// A message of a replica's stream, kept until it is acknowledged.
#[derive(Debug)]
struct UnacknowledgedMessage {
    number: u64,
    sent: Sent,
    /// When it was sent first.
    since: Time,
}

/// A replica: its state, and the stream of its session.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) node: NodeId,
    pub(crate) state: MirrorState,
    pub(crate) reason: String,
    pub(crate) session: SessionNumber,
    /// When to try to attach, or to ask again.
    pub(crate) attach_at: Time,
    pub(crate) heard_at: Time,
    /// When something was last sent.
    pub(crate) sent_at: Time,
    /// When something was last acknowledged, or sent again.
    pub(crate) progress_at: Time,
    /// What it said when it attached.
    pub(crate) mark: Mark,
    pub(crate) lineage: Lineage,
    pub(crate) flush: u64,
    /// Since when it refuses the generation, and the larger one that it has granted.
    pub(crate) refused: Option<(Time, u32)>,
    pub(crate) snapshots: Vec<(MapName, u64)>,
    /// Was it given the volume's history?
    pub(crate) knows_lineage: bool,
    /// Flushes from this one on were sent to it as complete.
    pub(crate) complete_from: u64,
    /// The last item of the common stream that it carried out.
    pub(crate) applied_item: u64,
    /// The last flush that is durable there.
    pub(crate) flushed: u64,
    next_number: u64,
    unacknowledged: VecDeque<UnacknowledgedMessage>,
    /// Times from sending an item of the common stream to its acknowledgement.
    pub(crate) acks: DurationHistogram,
    /// Repairs, and the blocks that they copied.
    pub(crate) repairs: [u64; 2],
    /// Repairs without a comparison.
    pub(crate) replays: u64,
    pub(crate) resent: u64,
    pub(crate) damaged: u64,
}

/// Bytes that are sent again at once.
const RESEND_BYTES: usize = 1 << 20;

impl Mirror {
    pub(crate) fn new(node: NodeId) -> Mirror {
        Mirror {
            node,
            state: MirrorState::Offline,
            reason: String::new(),
            session: SessionNumber::default(),
            attach_at: Time::ZERO,
            heard_at: Time::ZERO,
            sent_at: Time::ZERO,
            progress_at: Time::ZERO,
            mark: Mark::default(),
            lineage: Lineage::default(),
            flush: 0,
            refused: None,
            snapshots: Vec::new(),
            knows_lineage: false,
            complete_from: u64::MAX,
            applied_item: 0,
            flushed: 0,
            next_number: 1,
            unacknowledged: VecDeque::new(),
            acks: DurationHistogram::default(),
            repairs: [0; 2],
            replays: 0,
            resent: 0,
            damaged: 0,
        }
    }

    /// Does it get every write?
    pub(crate) const fn is_in_session(&self) -> bool {
        matches!(self.state, MirrorState::Active | MirrorState::Repairing)
    }

    /// Numbered messages that it has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Begins an empty stream.
    pub(crate) fn begin_stream(&mut self, applied_item: u64) {
        self.next_number = 1;
        self.unacknowledged.clear();
        self.applied_item = applied_item;
        self.flushed = 0;
    }

    /// Gives a message its number; returns it as sent.
    pub(crate) fn push(
        &mut self,
        now: Time,
        sent: Sent,
        items: &StreamItems,
    ) -> Output<GuestReply> {
        let number = self.next_number;
        self.next_number += 1;
        let (message, _) = self.encode(number, &sent, items);
        if self.unacknowledged.is_empty() {
            self.progress_at = now;
        }
        self.sent_at = now;
        self.unacknowledged.push_back(UnacknowledgedMessage {
            number,
            sent,
            since: now,
        });
        message
    }

    /// Number of the last message.
    pub(crate) const fn last_number(&self) -> u64 {
        self.next_number - 1
    }

    /// Has it carried out a message of this number?
    pub(crate) fn has_applied(&self, number: u64) -> bool {
        self.unacknowledged
            .front()
            .is_none_or(|first| first.number > number)
    }

    /// The replica has carried out everything up to this number.
    pub(crate) fn acknowledged(&mut self, now: Time, applied: u64) {
        while let Some(done) = self.unacknowledged.pop_front_if(|it| it.number <= applied) {
            self.progress_at = now;
            if let Sent::Item(id) | Sent::Flush(id, _) = done.sent {
                self.applied_item = id;
                self.acks.add(now.since(done.since));
            }
        }
    }

    /// The oldest messages without an acknowledgement, to send them again.
    pub(crate) fn again(&mut self, now: Time, items: &StreamItems) -> Vec<Output<GuestReply>> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for UnacknowledgedMessage { number, sent, .. } in &self.unacknowledged {
            let (message, length) = self.encode(*number, sent, items);
            bytes += length;
            messages.push(message);
            if bytes > RESEND_BYTES {
                break;
            }
        }
        (self.progress_at, self.sent_at) = (now, now);
        self.resent += messages.len() as u64;
        messages
    }

    pub(crate) fn check(&self) {
        assert!(
            self.is_in_session() || self.unacknowledged.is_empty(),
            "{} has a stream in state {}",
            self.node,
            self.state
        );
    }

    /// A message as it is sent, and its length. Its slots, with which it ends, are shared by all replicas.
    fn encode(&self, number: u64, sent: &Sent, items: &StreamItems) -> (Output<GuestReply>, usize) {
        let (message, slots) = message_of(sent, items);
        let (to, message) = (self.node, ToReplica::Stream(self.session, number, message));
        let head = message.encode();
        if let Some(slots) = slots {
            let (length, shared) = (head.len() + slots.len(), Arc::clone(slots));
            (Output::SendShared { to, head, shared }, length)
        } else {
            let length = head.len();
            (Output::Send { to, message: head }, length)
        }
    }
}

/// A message without its slots, and the slots, if it has some.
fn message_of<'a>(
    sent: &'a Sent,
    items: &'a StreamItems,
) -> (StreamMessage<'static>, Option<&'a Arc<Vec<u8>>>) {
    let message = match sent {
        Sent::Item(id) => {
            let StreamItem {
                kind: ItemKind::Write { span, slots },
                flush,
                ..
            } = items.get(*id)
            else {
                unreachable!("flushes are sent as such");
            };
            let message = StreamMessage::Write {
                purpose: WritePurpose::Guest,
                map: String::new(),
                flush: *flush,
                since: 0,
                spans: vec![*span],
                slots: &[],
            };
            return (message, Some(slots));
        }
        Sent::Copy(copied) => {
            let message = StreamMessage::Write {
                purpose: copied.purpose,
                map: copied.map.clone(),
                flush: copied.flush,
                since: copied.since,
                spans: copied.spans.clone(),
                slots: &[],
            };
            return (message, Some(&copied.slots));
        }
        Sent::Flush(_, order) => StreamMessage::Flush(FlushOrder::clone(order)),
        Sent::BeginSnapshot(name, flush) => StreamMessage::BeginSnapshot {
            name: name.clone(),
            flush: *flush,
        },
        Sent::EndSnapshot(name) => StreamMessage::EndSnapshot { name: name.clone() },
        Sent::DropSnapshot(name) => StreamMessage::DropSnapshot { name: name.clone() },
    };
    (message, None)
}
