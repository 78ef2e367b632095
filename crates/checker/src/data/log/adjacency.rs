//! Pairs of messages that came one after the other in a poll or a send.

use seatrial_history::FixedMap;

/// How two messages of a log are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum MessageAdjacency {
    /// The last message that one operation polled, and the first that the next operation of its process polled.
    Polled,
    /// Polled one after the other in one operation.
    PolledInside,
    /// The last message that one operation sent, and the first that the next operation of its process sent.
    Sent,
    /// Sent one after the other in one operation.
    SentInside,
}

/// Occurrences of an adjacent pair: their number, and the operations of the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdjacencyUses {
    pub(super) count: u64,
    pub(super) operations: [u64; 2],
}

/// No message.
const NONE: u32 = u32::MAX;

/// The first message that came after another, in two operations, and how often.
#[derive(Clone, Copy)]
struct Successor {
    next: u32,
    count: u32,
    operations: [u64; 2],
}

/// The same in one operation.
#[derive(Clone, Copy)]
struct InnerSuccessor {
    next: u32,
    count: u32,
    operation: u64,
}

/// All different adjacent pairs of messages.
///
/// In a log without anomalies the same message comes next for every consumer, so the first successor of a message is in a column
/// by message, and only others are in a map: 64 bytes for each message, whatever the number of polls.
#[derive(Default)]
pub(super) struct Adjacencies {
    polled: Vec<Successor>,
    polled_inside: Vec<InnerSuccessor>,
    /// Of both kinds: a message is sent once, and is the last that its operation sent or is not.
    sent: Vec<Successor>,
    others: FixedMap<(MessageAdjacency, u32, u32), AdjacencyUses>,
}

impl Adjacencies {
    /// Makes room for this many messages.
    pub(super) fn reserve(&mut self, messages: usize) {
        if messages <= self.polled.len() {
            return;
        }
        let none = Successor {
            next: NONE,
            count: 0,
            operations: [0; 2],
        };
        let none_inside = InnerSuccessor {
            next: NONE,
            count: 0,
            operation: 0,
        };
        self.polled.resize(messages, none);
        self.polled_inside.resize(messages, none_inside);
        self.sent.resize(messages, none);
    }

    /// Notes that `next` came after `one` in the poll of one operation.
    #[inline]
    pub(super) fn note_inside(&mut self, one: u32, next: u32, operation: u64) {
        if self.polled_inside.len() <= one as usize {
            self.reserve(one as usize + 1);
        }
        let slot = &mut self.polled_inside[one as usize];
        if slot.next == next {
            slot.count = slot.count.saturating_add(1);
        } else if slot.next == NONE {
            *slot = InnerSuccessor {
                next,
                count: 1,
                operation,
            };
        } else {
            let pair = [one, next];
            self.note_other(MessageAdjacency::PolledInside, pair, [operation; 2]);
        }
    }

    /// Notes an adjacent pair in two operations, or in one that sent both.
    pub(super) fn note(&mut self, kind: MessageAdjacency, pair: [u32; 2], operations: [u64; 2]) {
        let [one, next] = pair;
        let slot = match kind {
            MessageAdjacency::PolledInside => return self.note_inside(one, next, operations[0]),
            MessageAdjacency::Polled => &mut self.polled[one as usize],
            MessageAdjacency::Sent | MessageAdjacency::SentInside => &mut self.sent[one as usize],
        };
        let is_same_kind = kind == MessageAdjacency::Polled || kind == sent_kind(slot.operations);
        if slot.next == next && is_same_kind {
            slot.count = slot.count.saturating_add(1);
        } else if slot.next == NONE {
            *slot = Successor {
                next,
                count: 1,
                operations,
            };
        } else {
            self.note_other(kind, pair, operations);
        }
    }

    fn note_other(&mut self, kind: MessageAdjacency, [one, next]: [u32; 2], operations: [u64; 2]) {
        let uses = self.others.entry((kind, one, next));
        let uses = uses.or_insert(AdjacencyUses {
            count: 0,
            operations,
        });
        uses.count += 1;
    }

    /// All pairs: kind, messages, uses. In no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (MessageAdjacency, [u32; 2], AdjacencyUses)> {
        let uses = |count: u32, operations| AdjacencyUses {
            count: count.into(),
            operations,
        };
        let polled = self.polled.iter().zip(0..);
        let polled = polled.map(move |(slot, one)| {
            let uses = uses(slot.count, slot.operations);
            (MessageAdjacency::Polled, [one, slot.next], uses)
        });
        let inside = self.polled_inside.iter().zip(0..);
        let inside = inside.map(move |(slot, one)| {
            let uses = uses(slot.count, [slot.operation; 2]);
            (MessageAdjacency::PolledInside, [one, slot.next], uses)
        });
        let sent = self.sent.iter().zip(0..);
        let sent = sent.map(move |(slot, one)| {
            let uses = uses(slot.count, slot.operations);
            (sent_kind(slot.operations), [one, slot.next], uses)
        });
        let columns = polled.chain(inside).chain(sent);
        let columns = columns.filter(|(_, [_, next], _)| *next != NONE);
        let others = self.others.iter();
        columns.chain(others.map(|(&(kind, one, next), &uses)| (kind, [one, next], uses)))
    }
}

/// One operation sent both messages, or two did.
fn sent_kind([one, next]: [u64; 2]) -> MessageAdjacency {
    if one == next {
        MessageAdjacency::SentInside
    } else {
        MessageAdjacency::Sent
    }
}
