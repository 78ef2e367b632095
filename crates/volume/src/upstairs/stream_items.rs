//! What is sent to every replica, in order, and kept until no replica can need it again.

use crate::geometry::BlockSpan;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A write or a flush.
#[derive(Debug)]
pub(crate) struct StreamItem {
    /// Number in the order of all items, from 1.
    pub(crate) id: u64,
    /// The flush before it.
    pub(crate) flush: u64,
    pub(crate) kind: ItemKind,
    /// Bytes that it is counted with.
    bytes: usize,
    is_ready: bool,
}

impl StreamItem {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[derive(Debug)]
pub(crate) enum ItemKind {
    /// Slots; none until they are sealed.
    Write {
        span: BlockSpan,
        slots: Arc<Vec<u8>>,
    },
    /// A flush, with the name of a snapshot and of one that is dropped.
    Flush {
        flush: u64,
        snapshot: String,
        drops: String,
    },
}

/// The items, oldest first.
///
/// An item is sent when it and all before it are sealed, so all replicas get one order, and a write that is quickly encrypted
/// never overtakes another. It is dropped when a flush after it is durable on a quorum and all replicas in session have carried
/// it out: until then it is sent to every replica that comes back. What is dropped may be kept for one that is away
/// (`kept_writes`).
#[derive(Debug)]
pub(crate) struct StreamItems {
    items: VecDeque<StreamItem>,
    /// Id of the next item.
    next: u64,
    /// Id of the next item to send.
    unsent: u64,
    bytes: usize,
    /// Writes that some replica may not have carried out: first block and id → end.
    recent: BTreeMap<(u64, u64), u64>,
    /// The longest of them, in blocks.
    longest: u64,
}

impl Default for StreamItems {
    fn default() -> StreamItems {
        StreamItems {
            items: VecDeque::new(),
            next: 1,
            unsent: 1,
            bytes: 0,
            recent: BTreeMap::new(),
            longest: 0,
        }
    }
}

impl StreamItems {
    pub(crate) fn get(&self, id: u64) -> &StreamItem {
        let first = self.next - self.items.len() as u64;
        &self.items[(id - first) as usize]
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut StreamItem> {
        let first = self.next - self.items.len() as u64;
        let at = usize::try_from(id.checked_sub(first)?).ok()?;
        self.items.get_mut(at)
    }

    /// Bytes of all items.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Id of the last item.
    pub(crate) const fn last(&self) -> u64 {
        self.next - 1
    }

    /// Id of the first item that was not sent.
    pub(crate) const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Id of the oldest item.
    pub(crate) fn first(&self) -> u64 {
        self.next - self.items.len() as u64
    }

    /// Adds an item; returns its id. A write has no slots yet.
    pub(crate) fn push(&mut self, kind: ItemKind, flush: u64, bytes: usize) -> u64 {
        let id = self.next;
        self.next += 1;
        self.bytes += bytes;
        if let ItemKind::Write { span, .. } = &kind {
            self.recent.insert((span.first.0, id), span.end());
            self.longest = self.longest.max(u64::from(span.count));
        }
        let is_ready = matches!(kind, ItemKind::Flush { .. });
        self.items.push_back(StreamItem {
            id,
            flush,
            kind,
            bytes,
            is_ready,
        });
        id
    }

    /// A write is sealed.
    pub(crate) fn sealed(&mut self, id: u64, sealed: Vec<u8>) {
        if let Some(item) = self.get_mut(id)
            && let ItemKind::Write { slots, .. } = &mut item.kind
        {
            *slots = Arc::new(sealed);
            item.is_ready = true;
        }
    }

    /// Takes the id of the next item to send, if it is ready. `any`: whichever is ready (a planted bug).
    pub(crate) fn next_to_send(&mut self) -> Option<u64> {
        let id = self.unsent;
        let is_ready = id < self.next && self.get(id).is_ready;
        is_ready.then(|| {
            self.unsent += 1;
            id
        })
    }

    /// The last write to any of these blocks that some replica may not have carried out; 0: none.
    pub(crate) fn last_write(&self, span: BlockSpan) -> u64 {
        let from = span.first.0.saturating_sub(self.longest);
        let near = self.recent.range((from, 0)..(span.end(), 0));
        let overlapping = near.filter(|(_, end)| **end > span.first.0);
        overlapping.map(|((_, id), _)| *id).max().unwrap_or(0)
    }

    /// All replicas in session have carried out the items up to `applied`, and those up to `flushed` are durable on a quorum.
    /// Takes the oldest item if that is true of it.
    pub(crate) fn pop_done(&mut self, applied: u64, flushed: u64) -> Option<StreamItem> {
        let is_done = |it: &mut StreamItem| it.id <= applied && it.id <= flushed;
        let item = self.items.pop_front_if(is_done)?;
        self.bytes -= item.bytes;
        if let ItemKind::Write { span, .. } = item.kind {
            self.recent.remove(&(span.first.0, item.id));
        }
        if self.recent.is_empty() {
            self.longest = 0;
        }
        Some(item)
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.recent.clear();
        (self.bytes, self.longest, self.unsent) = (0, 0, self.next);
    }

    pub(crate) fn check(&self) {
        let first = self.first();
        assert!(
            first <= self.unsent && self.unsent <= self.next,
            "items from {first} to {}, the next to send is {}",
            self.next,
            self.unsent
        );
        assert!(
            self.items.front().is_none_or(|it| it.id == first),
            "ids have no gap"
        );
    }
}
