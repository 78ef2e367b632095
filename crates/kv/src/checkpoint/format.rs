//! The blocks of a checkpoint: kinds, bounds, and the header's fields.

use super::CheckpointHead;
use crate::session_table::{SESSION_REPLIES_LENGTH_MAX, SESSIONS_MAX};
use seatrial_blocks::BlockKind;
use seatrial_kv_protocol::message::{
    KEY_LENGTH_MAX, LIST_LENGTH_MAX, MessageError, VALUE_LENGTH_MAX, WINDOW,
};
use seatrial_machine::{FieldReader, Time};

/// The first block of a file of a whole state: head and counts.
pub(super) const HEADER: BlockKind = BlockKind(40);
/// Keys and items, in the order of the keys.
pub(super) const SLICE: BlockKind = BlockKind(41);
/// Sessions, in the order of their ids.
pub(super) const SESSIONS: BlockKind = BlockKind(42);
/// The last block: what all others were.
pub(super) const ROOT: BlockKind = BlockKind(43);

/// The first block of a file of changes: head, counts and base.
pub(super) const DELTA: BlockKind = BlockKind(44);

/// The version of the format that is written and read.
pub(super) const FORMAT_VERSION: u32 = 1;
/// A slice or block of sessions ends with the first record, or element of a list, that brings its payload to this length.
pub(super) const SLICE_LENGTH: usize = 256 << 10;
/// Bound of the members and of the schedule.
pub(crate) const OPAQUE_LENGTH_MAX: usize = 64 << 10;

/// Record of a register.
pub(super) const REGISTER: u8 = 1;
/// Record of a list, or of its first part.
pub(super) const LIST: u8 = 2;
/// Record of a further part of a list; the first record of its slice.
pub(super) const LIST_REST: u8 = 3;
/// Record of a key that is removed; in files of changes.
pub(super) const REMOVED: u8 = 4;
/// Record of elements that are appended to a list; in files of changes.
pub(super) const APPENDED: u8 = 5;

/// Bytes of the fields of a header that have a fixed length.
const HEADER_FIELDS_LENGTH: usize = 4 * 4 + 7 * 8;
/// Bytes of the fields that a file of changes has besides.
const DELTA_FIELDS_LENGTH: usize = 8 + 16 + 8;
/// Bytes of a root without checksums.
pub(super) const ROOT_FIELDS_LENGTH: usize = 3 * 8 + 16;
/// Bytes of a session without replies.
const SESSION_FIELDS_LENGTH: usize = 5 * 8 + 16 + 4;

/// The longest payload of a block of this kind, but for the root: bounds what a reader holds before it has checked the block.
pub(super) const fn payload_length_max(kind: BlockKind) -> usize {
    match kind {
        HEADER => HEADER_FIELDS_LENGTH + 2 * OPAQUE_LENGTH_MAX,
        DELTA => HEADER_FIELDS_LENGTH + DELTA_FIELDS_LENGTH + 2 * OPAQUE_LENGTH_MAX,
        // One record, or the head of a list and one element, may follow the last byte below the bound.
        SLICE => SLICE_LENGTH + 32 + KEY_LENGTH_MAX + VALUE_LENGTH_MAX,
        SESSIONS => {
            SLICE_LENGTH + SESSION_FIELDS_LENGTH + SESSION_REPLIES_LENGTH_MAX + WINDOW as usize * 12
        }
        _ => 0,
    }
}

// Everything that a state can hold has its place.
const _: () = assert!(LIST_LENGTH_MAX <= u32::MAX as usize);
const _: () = assert!(payload_length_max(SLICE) <= seatrial_blocks::PAYLOAD_LENGTH_MAX);
const _: () = assert!(payload_length_max(SESSIONS) <= seatrial_blocks::PAYLOAD_LENGTH_MAX);

/// The contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileHead {
    /// The caller's part.
    pub(super) head: CheckpointHead,
    /// Number of keys.
    pub(super) keys: u64,
    /// Bytes of all keys, values and encoded lists.
    pub(super) size: u64,
    /// Number of sessions.
    pub(super) sessions: u32,
    /// Id of the next session.
    pub(super) next_session: u64,
    /// The latest time of a command.
    pub(super) clock: Time,
    /// What the file changes, if it does not hold the whole state.
    pub(super) delta: Option<DeltaHead>,
}

/// What a file of changes says about itself besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeltaHead {
    /// Index of the checkpoint that it changes.
    pub(super) base_index: u64,
    /// Digest of the file of that checkpoint, whole or of changes.
    pub(super) base_digest: [u8; 16],
    /// Number of keys that change.
    pub(super) records: u64,
}

impl FileHead {
    /// The kind of the block that holds it.
    pub(super) fn kind(&self) -> BlockKind {
        if self.delta.is_some() { DELTA } else { HEADER }
    }

    /// Number of keys with records in the slices.
    pub(super) fn records(&self) -> u64 {
        self.delta.map_or(self.keys, |delta| delta.records)
    }

    /// Appends the payload of a header.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let head = &self.head;
        for word in [
            FORMAT_VERSION,
            head.members.len() as u32,
            head.schedule.len() as u32,
            self.sessions,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for long in [
            head.cluster,
            head.index,
            head.term,
            self.keys,
            self.size,
            self.next_session,
            self.clock.nanoseconds(),
        ] {
            out.extend_from_slice(&long.to_le_bytes());
        }
        if let Some(delta) = &self.delta {
            out.extend_from_slice(&delta.base_index.to_le_bytes());
            out.extend_from_slice(&delta.base_digest);
            out.extend_from_slice(&delta.records.to_le_bytes());
        }
        out.extend_from_slice(&head.members);
        out.extend_from_slice(&head.schedule);
    }

    /// Decodes the payload of a header of this kind.
    pub(super) fn decode(kind: BlockKind, payload: &[u8]) -> Result<FileHead, MessageError> {
        let mut cursor = FieldReader::new(payload);
        let version = cursor.word("format version")?;
        if version != FORMAT_VERSION {
            return Err(cursor.never("format version", 4, u64::from(version)));
        }
        let members = opaque_length(&mut cursor, "length of the members")?;
        let schedule = opaque_length(&mut cursor, "length of the schedule")?;
        let sessions = cursor.word("number of sessions")?;
        if sessions as usize > SESSIONS_MAX {
            return Err(cursor.never("number of sessions", 4, u64::from(sessions)));
        }
        let (cluster, index, term) = (
            cursor.long("cluster")?,
            cursor.long("index")?,
            cursor.long("term")?,
        );
        let (keys, size) = (cursor.long("number of keys")?, cursor.long("size")?);
        let next_session = cursor.long("next session")?;
        if next_session == 0 {
            return Err(cursor.never("next session", 8, 0));
        }
        let clock = Time::from_nanoseconds(cursor.long("clock")?);
        let delta = match kind {
            DELTA => Some(DeltaHead::decode(&mut cursor)?),
            _ => None,
        };
        let head = CheckpointHead {
            cluster,
            index,
            term,
            members: cursor.bytes("members", members)?.to_vec(),
            schedule: cursor.bytes("schedule", schedule)?.to_vec(),
        };
        cursor.end()?;
        Ok(FileHead {
            head,
            keys,
            size,
            sessions,
            next_session,
            clock,
            delta,
        })
    }
}

impl DeltaHead {
    fn decode(cursor: &mut FieldReader<'_>) -> Result<DeltaHead, MessageError> {
        let base_index = cursor.long("index of the base")?;
        let mut base_digest = [0; 16];
        base_digest.copy_from_slice(cursor.bytes("digest of the base", 16)?);
        Ok(DeltaHead {
            base_index,
            base_digest,
            records: cursor.long("number of changed keys")?,
        })
    }
}

fn opaque_length(cursor: &mut FieldReader<'_>, field: &'static str) -> Result<usize, MessageError> {
    let length = cursor.word(field)?;
    if length as usize > OPAQUE_LENGTH_MAX {
        return Err(cursor.never(field, 4, u64::from(length)));
    }
    Ok(length as usize)
}

/// The contents of a root, before its checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileRoot {
    /// Number of slices.
    pub(super) slices: u64,
    /// Number of blocks of sessions.
    pub(super) session_blocks: u64,
    /// Bytes of the file before the root.
    pub(super) length: u64,
    /// XXH3-128 of those bytes.
    pub(super) digest: [u8; 16],
}

impl FileRoot {
    /// Appends the payload of a root. `checksums` are those of the payloads of all slices and blocks of sessions, in order.
    pub(super) fn encode(&self, checksums: &[u32], out: &mut Vec<u8>) {
        for long in [self.slices, self.session_blocks, self.length] {
            out.extend_from_slice(&long.to_le_bytes());
        }
        out.extend_from_slice(&self.digest);
        for checksum in checksums {
            out.extend_from_slice(&checksum.to_le_bytes());
        }
    }
}
