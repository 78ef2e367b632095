//! Requests that look at versions first: writes of unwritten blocks, and which blocks hold data.

use crate::block_context::BlockVersion;
use crate::geometry::{BlockNumber, BlockSpan};
use crate::guest::GuestReply;
use crate::upstairs::questions::Asker;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_message::MapName;
use seatrial_machine::{Ticket, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A request that waits for versions.
#[derive(Debug)]
struct Looking {
    ticket: Ticket,
    span: BlockSpan,
    /// The bytes to write where nothing was written; `None`: the guest asks which blocks hold data.
    bytes: Option<Vec<u8>>,
    /// Name of the snapshot; empty: the volume.
    map: MapName,
    /// A replica must have carried out this item.
    after: u64,
    /// Blocks that were looked at, and what they hold.
    seen: Vec<(BlockVersion, bool)>,
    /// Is a question under way?
    is_asked: bool,
}

/// Blocks that a question asks for at once.
const PIECE: u32 = 4_096;

/// These requests. Writes to their blocks wait until they are done.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    open: BTreeMap<u64, Looking>,
    /// Blocks that a sweep writes again.
    held: BTreeMap<u64, BlockSpan>,
    last: u64,
}

impl RangeLocks {
    /// Is one of these blocks locked?
    pub(crate) fn overlaps(&self, span: BlockSpan) -> bool {
        let mut writing = self.open.values().filter(|it| it.bytes.is_some());
        let mut held = self.held.values();
        held.any(|it| it.overlaps(span)) || writing.any(|it| it.span.overlaps(span))
    }

    /// Locks blocks; returns the number of the lock.
    pub(crate) fn hold(&mut self, span: BlockSpan) -> u64 {
        self.last += 1;
        self.held.insert(self.last, span);
        self.last
    }

    /// Ends a lock.
    pub(crate) fn release(&mut self, lock: Option<u64>) {
        if let Some(lock) = lock {
            self.held.remove(&lock);
        }
    }

    /// Gives up all requests; returns their tickets.
    pub(crate) fn give_up(&mut self) -> Vec<Ticket> {
        self.held.clear();
        let open = std::mem::take(&mut self.open);
        open.into_values().map(|it| it.ticket).collect()
    }
}

impl Upstairs {
    pub(super) fn begin_unwritten(
        &mut self,
        now: Time,
        ticket: Ticket,
        span: BlockSpan,
        bytes: Vec<u8>,
        out: &mut Outputs,
    ) {
        self.look(now, ticket, (span, ""), Some(bytes), out);
    }

    pub(super) fn begin_extents(
        &mut self,
        now: Time,
        ticket: Ticket,
        span: BlockSpan,
        map: &str,
        out: &mut Outputs,
    ) {
        self.look(now, ticket, (span, map), None, out);
    }

    fn look(
        &mut self,
        now: Time,
        ticket: Ticket,
        (span, map): (BlockSpan, &str),
        bytes: Option<Vec<u8>>,
        out: &mut Outputs,
    ) {
        self.locks.last += 1;
        let id = self.locks.last;
        let looking = Looking {
            ticket,
            span,
            bytes,
            map: map.to_owned(),
            after: if map.is_empty() {
                self.items.last_write(span)
            } else {
                0
            },
            seen: Vec::new(),
            is_asked: false,
        };
        self.locks.open.insert(id, looking);
        self.retry_versions(now, id, out);
    }

    /// Asks a replica for the next versions, if one is ready; a tick tries again.
    pub(super) fn retry_versions(&mut self, now: Time, id: u64, out: &mut Outputs) {
        let Some(looking) = self.locks.open.get_mut(&id) else {
            return;
        };
        looking.is_asked = false;
        let at = looking.seen.len() as u32;
        let largest =
            (crate::READ_LENGTH_MAX as u32 / self.options.geometry.block_length).min(PIECE);
        let piece = BlockSpan {
            first: BlockNumber(looking.span.first.0 + u64::from(at)),
            count: largest.min(looking.span.count - at),
        };
        let (after, map) = (looking.after, looking.map.clone());
        if self.has_quorum()
            && let Some(mirror) = self.reader_of(after, &BTreeSet::new())
        {
            if let Some(looking) = self.locks.open.get_mut(&id) {
                looking.is_asked = true;
            }
            let what = (vec![piece], map);
            self.ask_versions(now, mirror, Asker::Versions(id), what, out);
        }
    }

    /// Asks for what could not be asked before.
    pub(super) fn retry_all_versions(&mut self, now: Time, out: &mut Outputs) {
        let open = self.locks.open.iter();
        let ids: Vec<u64> = open
            .filter(|(_, it)| !it.is_asked)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.retry_versions(now, id, out);
        }
    }

    pub(super) fn have_versions(
        &mut self,
        now: Time,
        id: u64,
        versions: &[(BlockVersion, bool)],
        out: &mut Outputs,
    ) {
        let Some(looking) = self.locks.open.get_mut(&id) else {
            return;
        };
        let left = looking.span.count as usize - looking.seen.len();
        looking.seen.extend(versions.iter().take(left));
        if versions.is_empty() || looking.seen.len() < looking.span.count as usize {
            self.retry_versions(now, id, out);
            return;
        }
        let Some(looking) = self.locks.open.remove(&id) else {
            return;
        };
        let has_parent = self.options.parent.is_some();
        let reply = match looking.bytes {
            None => GuestReply::Extents(extents(&looking.seen, has_parent)),
            Some(bytes) => {
                self.write_absent(now, looking.span, &looking.seen, &bytes, out);
                GuestReply::Done
            }
        };
        self.reply(looking.ticket, reply, out);
        self.admit_writes(now, out);
    }

    /// Writes the runs of blocks that were never written.
    fn write_absent(
        &mut self,
        now: Time,
        span: BlockSpan,
        seen: &[(BlockVersion, bool)],
        bytes: &[u8],
        out: &mut Outputs,
    ) {
        let length = self.options.geometry.block_length as usize;
        let mut at = 0;
        while at < seen.len() {
            let is_absent = |it: &&(BlockVersion, bool)| it.0 == BlockVersion::ABSENT;
            let run = seen[at..].iter().take_while(is_absent).count();
            if run > 0 {
                let part = BlockSpan {
                    first: BlockNumber(span.first.0 + at as u64),
                    count: run as u32,
                };
                let bytes = bytes[at * length..(at + run) * length].to_vec();
                self.write(now, part, bytes, out);
            }
            at += run.max(1);
        }
    }
}

/// Runs of blocks with and without data. What was never written may have data of the parent.
fn extents(seen: &[(BlockVersion, bool)], has_parent: bool) -> Vec<(u32, bool)> {
    let mut runs: Vec<(u32, bool)> = Vec::new();
    for (version, has_data) in seen {
        let has_data = *has_data || has_parent && *version == BlockVersion::ABSENT;
        match runs.last_mut() {
            Some((count, data)) if *data == has_data => *count += 1,
            _ => runs.push((1, has_data)),
        }
    }
    runs
}
