//! The records of slices and blocks of sessions, with the rules of their order and their ends.

use super::file_parser::{CheckpointSink, PayloadError, field_error};
use super::format::{APPENDED, FileHead, LIST, LIST_REST, REGISTER, REMOVED, SLICE_LENGTH};
use crate::session_table::SessionEntry;
use bytes::Bytes;
use seatrial_kv_protocol::message::{LIST_LENGTH_MAX, MessageError, StoreFields, WINDOW};
use seatrial_machine::{FieldReader, Time};
use std::collections::VecDeque;

/// Place in the items of a file: from slice to slice it keeps the last key, what is missing of its list, and two sums.
#[derive(Debug, Default)]
pub(super) struct SliceParser {
    /// Keys with records so far.
    keys: u64,
    /// Bytes of keys, values and lists so far.
    size: u64,
    /// The last key, if there is one.
    key: Vec<u8>,
    /// What the list of that key misses.
    list: Option<MissingElements>,
}

/// The rest of a list.
#[derive(Clone, Copy, Debug)]
struct MissingElements {
    count: u32,
    length: u32,
}

impl SliceParser {
    /// Are all items of the file read?
    pub(super) fn is_complete(&self, head: &FileHead) -> bool {
        self.keys == head.records() && self.list.is_none()
    }

    /// Reads one slice.
    pub(super) fn read(
        &mut self,
        head: &FileHead,
        payload: &[u8],
        sink: &mut impl CheckpointSink,
    ) -> Result<(), PayloadError> {
        let mut cursor = FieldReader::new(payload);
        while cursor.offset() < payload.len() {
            check_start(cursor.offset())?;
            self.record(head, &mut cursor, sink)?;
        }
        let is_last = self.is_complete(head);
        // The size after changes is known when they are made.
        if is_last && head.delta.is_none() && self.size != head.size {
            let problem = format!(
                "the items have {} bytes, the header says {}",
                self.size, head.size
            );
            return Err((payload.len(), problem));
        }
        check_end(payload.len(), is_last)
    }

    fn record(
        &mut self,
        head: &FileHead,
        cursor: &mut FieldReader<'_>,
        sink: &mut impl CheckpointSink,
    ) -> Result<(), PayloadError> {
        let place = cursor.offset();
        let key = cursor.key().map_err(field_error)?;
        let record = cursor.byte("kind of record").map_err(field_error)?;
        if let Some(missing) = self.list {
            if record != LIST_REST || key != self.key {
                return Err((place, "the rest of a list is missing".into()));
            }
            return self.elements(missing, cursor, sink);
        }
        if self.keys == head.records() {
            let problem = format!("more than the {} keys of the header", head.records());
            return Err((place, problem));
        }
        if self.keys > 0 && self.key.as_slice() >= key {
            return Err((place, "a key that is not above the one before it".into()));
        }
        self.keys += 1;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.size += key.len() as u64;
        match record {
            REGISTER => {
                let value = cursor.value().map_err(field_error)?;
                self.size += value.len() as u64;
                refused(place, sink.register(key, value))
            }
            LIST | APPENDED => {
                let missing = list_head(cursor).map_err(field_error)?;
                self.size += u64::from(missing.length);
                if record == LIST {
                    sink.list(key);
                } else {
                    refused(place, sink.appended(key))?;
                }
                self.elements(missing, cursor, sink)
            }
            REMOVED => refused(place, sink.removed(key)),
            _ => Err((place, format!("a record of kind {record}"))),
        }
    }

    /// Reads a part of a list: all that is missing, or as much as fits into the slice.
    fn elements(
        &mut self,
        missing: MissingElements,
        cursor: &mut FieldReader<'_>,
        sink: &mut impl CheckpointSink,
    ) -> Result<(), PayloadError> {
        let count = cursor.word("elements of a part").map_err(field_error)?;
        let length = cursor.word("length of a part").map_err(field_error)?;
        let place = cursor.offset();
        if count == 0 || count > missing.count || length > missing.length {
            let problem = format!("part of a list with {count} elements in {length} bytes");
            return Err((place, problem));
        }
        for index in 0..count {
            if index > 0 {
                check_start(cursor.offset())?;
            }
            let element = cursor.value().map_err(field_error)?;
            refused(cursor.offset(), sink.element(element))?;
        }
        if cursor.offset() - place != length as usize {
            return Err((place, "the elements of a part have another length".into()));
        }
        let rest = MissingElements {
            count: missing.count - count,
            length: missing.length - length,
        };
        if (rest.count == 0) != (rest.length == 0) {
            return Err((place, "the elements of a list have another length".into()));
        }
        self.list = (rest.count > 0).then_some(rest);
        if self.list.is_none() {
            refused(place, sink.end_list())?;
        } else if cursor.offset() < SLICE_LENGTH {
            return Err((place, "a list is cut before the slice is full".into()));
        }
        Ok(())
    }
}

/// An error of the sink at this place.
fn refused(place: usize, done: Result<(), &'static str>) -> Result<(), PayloadError> {
    done.map_err(|problem| (place, problem.into()))
}

fn list_head(cursor: &mut FieldReader<'_>) -> Result<MissingElements, MessageError> {
    let count = cursor.word("elements of a list")?;
    let length = cursor.word("length of a list")?;
    if length as usize > LIST_LENGTH_MAX {
        return Err(cursor.never("length of a list", 4, u64::from(length)));
    }
    Ok(MissingElements { count, length })
}

/// No record, and no further element of a list, begins after the bound.
pub(super) fn check_start(place: usize) -> Result<(), PayloadError> {
    if place >= SLICE_LENGTH {
        return Err((place, "a slice continues after it is full".into()));
    }
    Ok(())
}

/// Only the last slice or block of sessions ends before it is full, and none is empty.
pub(super) fn check_end(length: usize, is_last: bool) -> Result<(), PayloadError> {
    if length == 0 || (!is_last && length < SLICE_LENGTH) {
        return Err((length, "a slice ends before it is full".into()));
    }
    Ok(())
}

/// Reads one session.
pub(super) fn session(cursor: &mut FieldReader<'_>) -> Result<(u64, SessionEntry), MessageError> {
    let session = cursor.long("session")?;
    let highest = cursor.long("highest request")?;
    let low = cursor.long("received requests")?;
    let received = u128::from(low) | u128::from(cursor.long("received requests")?) << 64;
    let heard = Time::from_nanoseconds(cursor.long("time of the last request")?);
    let acknowledged = cursor.long("acknowledged request")?;
    let count = cursor.word("number of replies")?;
    if u64::from(count) > WINDOW {
        return Err(cursor.never("number of replies", 4, u64::from(count)));
    }
    let mut replies = VecDeque::with_capacity(count as usize);
    let mut replies_length = 0;
    for _ in 0..count {
        let request = cursor.long("request of a reply")?;
        let length = cursor.word("length of a reply")? as usize;
        let reply = cursor.bytes("reply", length)?;
        replies_length += length;
        replies.push_back((request, Bytes::copy_from_slice(reply)));
    }
    let entry = SessionEntry {
        highest,
        received,
        heard,
        acknowledged,
        replies,
        replies_length,
    };
    Ok((session, entry))
}
