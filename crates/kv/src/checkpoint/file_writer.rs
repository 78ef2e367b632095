//! From a snapshot to the bytes of a checkpoint.

use super::format::{
    APPENDED, DeltaHead, FileHead, FileRoot, LIST, LIST_REST, OPAQUE_LENGTH_MAX, REGISTER, REMOVED,
    ROOT, SESSIONS, SLICE, SLICE_LENGTH, payload_length_max,
};
use super::{CheckpointHead, CheckpointMark};
use crate::session_table::SessionEntry;
use crate::state::{Item, StateKey, StateSnapshot, StoredList};
use seatrial_blocks::{BlockKind, HEADER_LENGTH, block};
use twox_hash::XxHash3_128;

/// Writes a checkpoint, some whole blocks at a time, in the order of the file: header, slices, sessions, root. Between two calls
/// it holds the snapshot, its place in it, and 4 bytes per block, so it can move from job to job; a call finds its place in
/// O(log n). Each byte is copied once, then summed twice (CRC-32C, XXH3-128) while it is in the cache.
///
/// Drop it in a job: it may hold the last snapshot.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    snapshot: StateSnapshot,
    head: CheckpointHead,
    /// Instead of all items only these.
    changes: Option<Changes>,
    next: NextBlock,
    /// The last key that was written, completely unless `list` is set.
    key: Option<StateKey>,
    /// The rest of that key's list.
    list: Option<ListCursor>,
    /// The last session that was written.
    session: u64,
    sequence: u64,
    position: u64,
    root: FileRoot,
    checksums: Vec<u32>,
    digest: DigestStream,
}

/// The changes from an older snapshot to the newer one.
#[derive(Debug)]
struct Changes {
    older: StateSnapshot,
    delta: DeltaHead,
    /// All keys that differ, in order; none before the snapshots are compared.
    keys: Vec<StateKey>,
    is_compared: bool,
    /// How many of them are written.
    written: usize,
}

/// The kind of the next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextBlock {
    Header,
    Slice,
    Sessions,
    Root,
    End,
}

/// A place between two elements of a list.
#[derive(Clone, Copy, Debug, Default)]
struct ListCursor {
    /// Number of the chunk of the next element.
    chunk: usize,
    /// Offset of the element in it.
    offset: usize,
    /// Elements before it, and their length.
    written: u32,
    length: usize,
}

impl ListCursor {
    /// The place in a longer list where this one ends.
    fn at_end(list: &StoredList) -> ListCursor {
        let (chunk, offset) = list.end();
        ListCursor {
            chunk,
            offset,
            written: list.count(),
            length: list.length(),
        }
    }
}

/// XXH3-128 of a stream.
pub(super) struct DigestStream(XxHash3_128);

impl DigestStream {
    pub(super) fn new() -> DigestStream {
        DigestStream(XxHash3_128::new())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The digest so far, in the byte order that the algorithm calls canonical.
    pub(super) fn finish(&self) -> [u8; 16] {
        self.0.finish_128().to_be_bytes()
    }
}

/// XXH3-128 of some bytes.
pub(super) fn digest_of(bytes: &[u8]) -> [u8; 16] {
    XxHash3_128::oneshot(bytes).to_be_bytes()
}

impl std::fmt::Debug for DigestStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestStream")
    }
}

impl CheckpointWriter {
    /// Begins the file of a snapshot. Panics if members or schedule are too long.
    pub(crate) fn new(snapshot: StateSnapshot, head: CheckpointHead) -> CheckpointWriter {
        assert!(
            head.members.len() <= OPAQUE_LENGTH_MAX && head.schedule.len() <= OPAQUE_LENGTH_MAX
        );
        CheckpointWriter {
            snapshot,
            head,
            changes: None,
            next: NextBlock::Header,
            key: None,
            list: None,
            session: 0,
            sequence: 0,
            position: 0,
            root: FileRoot::default(),
            checksums: Vec::new(),
            digest: DigestStream::new(),
        }
    }

    /// Begins a file of the changes since an older snapshot, whose checkpoint had this index and mark; sessions are written
    /// whole. The first call of [`CheckpointWriter::next`] compares the snapshots, which takes time and memory (40 bytes per key)
    /// for the changes only.
    pub(crate) fn of_changes(
        snapshot: StateSnapshot,
        head: CheckpointHead,
        older: StateSnapshot,
        (base_index, base): (u64, CheckpointMark),
    ) -> CheckpointWriter {
        let mut writer = CheckpointWriter::new(snapshot, head);
        writer.changes = Some(Changes {
            older,
            delta: DeltaHead {
                base_index,
                base_digest: base.digest,
                records: 0,
            },
            keys: Vec::new(),
            is_compared: false,
            written: 0,
        });
        writer
    }

    /// The last index whose effect the file contains.
    pub(crate) fn index(&self) -> u64 {
        self.head.index
    }

    /// Bytes of the file so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next bytes of the file: whole blocks, at least one, until they are `budget` bytes or more. A block has about 256 KiB,
    /// and up to 1.3 MiB with a long value in it. `None` after the root. The bytes of all calls are the same for any budgets.
    pub(crate) fn next(&mut self, budget: usize) -> Option<Vec<u8>> {
        if self.next == NextBlock::End {
            return None;
        }
        self.compare();
        let left = (self.snapshot.size() as usize).saturating_add(SLICE_LENGTH);
        let mut out = Vec::with_capacity(budget.min(left).saturating_add(SLICE_LENGTH / 8));
        loop {
            let start = block::begin(&mut out);
            let kind = self.write_payload(&mut out, start + HEADER_LENGTH);
            block::finish_plain(&mut out, start, kind, 0, self.sequence);
            self.sequence += 1;
            self.finish_block(kind, &out[start..]);
            if out.len() >= budget || self.next == NextBlock::End {
                return Some(out);
            }
        }
    }

    /// Finds the changes, unless that is done.
    fn compare(&mut self) {
        if let Some(changes) = &mut self.changes
            && !std::mem::replace(&mut changes.is_compared, true)
        {
            changes.keys = self.snapshot.items().changed_keys(changes.older.items());
            changes.delta.records = changes.keys.len() as u64;
            debug_assert!(changes.keys.is_sorted());
        }
    }

    /// Identifies the complete file. Panics before [`CheckpointWriter::next`] has returned `None` or the root.
    pub(crate) fn finish(self) -> CheckpointMark {
        assert_eq!(self.next, NextBlock::End, "the file is not complete");
        CheckpointMark {
            length: self.position,
            digest: self.root.digest,
        }
    }

    /// Appends the payload of the next block, which starts at `start`, and chooses the one after it.
    fn write_payload(&mut self, out: &mut Vec<u8>, start: usize) -> BlockKind {
        let kind = match self.next {
            NextBlock::Header => {
                let head = self.file_head();
                head.encode(out);
                head.kind()
            }
            NextBlock::Slice => {
                self.write_slice(out, start);
                self.root.slices += 1;
                SLICE
            }
            NextBlock::Sessions => {
                self.write_sessions(out, start);
                self.root.session_blocks += 1;
                SESSIONS
            }
            NextBlock::Root => {
                self.root.length = self.position;
                self.root.digest = self.digest.finish();
                self.root.encode(&self.checksums, out);
                ROOT
            }
            NextBlock::End => unreachable!("there is no block after the root"),
        };
        debug_assert!(kind == ROOT || out.len() - start <= payload_length_max(kind));
        self.next = if kind == ROOT {
            NextBlock::End
        } else if self.has_items() {
            NextBlock::Slice
        } else if self
            .snapshot
            .sessions()
            .after(self.session)
            .next()
            .is_some()
        {
            NextBlock::Sessions
        } else {
            NextBlock::Root
        };
        kind
    }

    fn file_head(&self) -> FileHead {
        let (items, sessions) = (self.snapshot.items(), self.snapshot.sessions());
        FileHead {
            head: self.head.clone(),
            keys: items.len() as u64,
            size: items.size(),
            sessions: sessions.len() as u32,
            next_session: sessions.next(),
            clock: sessions.clock(),
            delta: self.changes.as_ref().map(|changes| changes.delta),
        }
    }

    /// Counts a finished block.
    fn finish_block(&mut self, kind: BlockKind, block: &[u8]) {
        self.position += block.len() as u64;
        if kind == ROOT {
            return;
        }
        self.digest.write(block);
        if kind == SLICE || kind == SESSIONS {
            // The checksum of the payload, as it is in the block's header.
            let checksum = [block[24], block[25], block[26], block[27]];
            self.checksums.push(u32::from_le_bytes(checksum));
        }
    }

    /// Is there an item, or a part of one, that is not written?
    fn has_items(&self) -> bool {
        if let Some(changes) = &self.changes {
            return self.list.is_some() || changes.written < changes.keys.len();
        }
        let last = self.key.as_ref().map(StateKey::as_slice);
        self.list.is_some() || self.snapshot.items().after(last).next().is_some()
    }

    /// Appends items until the payload has the length of a slice.
    fn write_slice(&mut self, out: &mut Vec<u8>, start: usize) {
        let items = self.snapshot.items();
        let is_full = |out: &Vec<u8>| out.len() - start >= SLICE_LENGTH;
        if let (Some(place), Some(key)) = (self.list, &self.key) {
            let Some(Item::List(list)) = items.get(key.as_slice()) else {
                unreachable!("a snapshot does not change");
            };
            put_key(out, key.as_slice(), LIST_REST);
            self.list = put_elements(out, list, place, is_full);
        }
        if self.list.is_some() || is_full(out) {
            return;
        }
        if self.changes.is_some() {
            self.write_changes(out, is_full);
            return;
        }
        let last = self.key.take();
        let mut written = None;
        for (key, item) in items.after(last.as_ref().map(StateKey::as_slice)) {
            self.list = put_item(out, key, item, is_full);
            written = Some(key);
            if self.list.is_some() || is_full(out) {
                break;
            }
        }
        self.key = written.map(StateKey::from).or(last);
    }

    /// Appends changes until the slice is full.
    fn write_changes(&mut self, out: &mut Vec<u8>, is_full: impl Fn(&Vec<u8>) -> bool + Copy) {
        let Some(changes) = &mut self.changes else {
            return;
        };
        while let Some(key) = changes.keys.get(changes.written) {
            let bytes = key.as_slice();
            let older = changes.older.items().get(bytes);
            self.list = match (older, self.snapshot.items().get(bytes)) {
                (_, None) => {
                    put_key(out, bytes, REMOVED);
                    None
                }
                (Some(Item::List(older)), Some(Item::List(list))) if list.continues(older) => {
                    put_key(out, bytes, APPENDED);
                    put_list(out, list, ListCursor::at_end(older), is_full)
                }
                (_, Some(item)) => put_item(out, bytes, item, is_full),
            };
            self.key = Some(key.clone());
            changes.written += 1;
            if self.list.is_some() || is_full(out) {
                break;
            }
        }
    }

    /// Appends sessions until the payload has the length of a slice.
    fn write_sessions(&mut self, out: &mut Vec<u8>, start: usize) {
        for (session, entry) in self.snapshot.sessions().after(self.session) {
            put_session(out, session, entry);
            self.session = session;
            if out.len() - start >= SLICE_LENGTH {
                break;
            }
        }
    }
}

fn put_key(out: &mut Vec<u8>, key: &[u8], record: u8) {
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(key);
    out.push(record);
}

/// Appends the record of an item. Returns the place in a list that has more elements than fit into the slice.
fn put_item(
    out: &mut Vec<u8>,
    key: &[u8],
    item: &Item,
    is_full: impl Fn(&Vec<u8>) -> bool,
) -> Option<ListCursor> {
    match item {
        Item::Register(value) => {
            put_key(out, key, REGISTER);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
            None
        }
        Item::List(list) => {
            put_key(out, key, LIST);
            put_list(out, list, ListCursor::default(), is_full)
        }
    }
}

/// Appends number and length of all elements from `place` on, and as many of them as fit.
fn put_list(
    out: &mut Vec<u8>,
    list: &StoredList,
    place: ListCursor,
    is_full: impl Fn(&Vec<u8>) -> bool,
) -> Option<ListCursor> {
    let (count, length) = (list.count() - place.written, list.length() - place.length);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(length as u32).to_le_bytes());
    put_elements(out, list, place, is_full)
}

/// Appends number, length and bytes of the elements from `place` on: at least one, until the slice is full. Returns the place
/// after them, if there are more.
fn put_elements(
    out: &mut Vec<u8>,
    list: &StoredList,
    mut place: ListCursor,
    is_full: impl Fn(&Vec<u8>) -> bool,
) -> Option<ListCursor> {
    let fields = out.len();
    out.extend_from_slice(&[0; 8]);
    let (start, before) = (out.len(), place.written);
    loop {
        let chunk = list.chunk(place.chunk);
        let rest = &chunk[place.offset..];
        let Some(length) = rest.first_chunk() else {
            unreachable!("the count of a list is that of its elements");
        };
        let element = &rest[..4 + u32::from_le_bytes(*length) as usize];
        out.extend_from_slice(element);
        place.written += 1;
        place.offset += element.len();
        place.length += element.len();
        if place.offset == chunk.len() {
            (place.chunk, place.offset) = (place.chunk + 1, 0);
        }
        if place.written == list.count() || is_full(out) {
            break;
        }
    }
    let length = (out.len() - start) as u32;
    out[fields..fields + 4].copy_from_slice(&(place.written - before).to_le_bytes());
    out[fields + 4..start].copy_from_slice(&length.to_le_bytes());
    (place.written < list.count()).then_some(place)
}

fn put_session(out: &mut Vec<u8>, session: u64, entry: &SessionEntry) {
    for long in [session, entry.highest] {
        out.extend_from_slice(&long.to_le_bytes());
    }
    out.extend_from_slice(&entry.received.to_le_bytes());
    for long in [entry.heard.nanoseconds(), entry.acknowledged] {
        out.extend_from_slice(&long.to_le_bytes());
    }
    out.extend_from_slice(&(entry.replies.len() as u32).to_le_bytes());
    for (request, reply) in &entry.replies {
        out.extend_from_slice(&request.to_le_bytes());
        out.extend_from_slice(&(reply.len() as u32).to_le_bytes());
        out.extend_from_slice(reply);
    }
}

#[cfg(test)]
impl CheckpointWriter {
    /// A writer that claims to be at this position of the file.
    pub(super) fn at(mut self, position: u64) -> CheckpointWriter {
        self.position = position;
        self
    }
}
