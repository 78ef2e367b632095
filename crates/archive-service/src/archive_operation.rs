//! Operations that a client may request.

use crate::archive_answer::{decode_boundary, decode_source, encode_boundary, encode_source};
use crate::message::LABEL_LENGTH_MAX;
use crate::text_fields::put_text;
use seatrial_archive::Durability;
use seatrial_archive::{Boundary, Source};
use seatrial_machine::{FieldReader, MessageError};

/// A condition on labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelFilter {
    /// Any.
    #[default]
    Any,
    /// This one.
    Is(String),
    /// One that contains this.
    Contains(String),
}

/// Selects the recordings that meet every condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFilter {
    /// The label.
    pub label: LabelFilter,
    /// Start of a span that overlaps the recording's, in nanoseconds since 1970.
    pub time_from: u64,
    /// End of that span.
    pub time_to: u64,
    /// A position that the recording contains.
    pub position: Option<u64>,
}

impl Default for ListFilter {
    /// Everything.
    fn default() -> ListFilter {
        ListFilter {
            label: LabelFilter::Any,
            time_from: 0,
            time_to: u64::MAX,
            position: None,
        }
    }
}

/// The beginning of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayFrom {
    /// The first message of the recording.
    Start,
    /// The first message at or after this position.
    Position(u64),
    /// The message with this number.
    Message(u64),
    /// The first batch written at this time (nanoseconds since 1970) or later.
    Time(u64),
    /// The end of the recording when the replay begins.
    End,
}

/// The end of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayBound {
    /// Before the first message at or after this position; waits for messages that are not recorded yet.
    Position(u64),
    /// The end of the recording when the replay begins.
    End,
    /// The end of the recording when it is stopped.
    Live,
    /// None: waits for the recording to be extended.
    Follow,
}

/// The request of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// The recording.
    pub recording: u64,
    /// The beginning of the replay.
    pub from: ReplayFrom,
    /// The end of the replay.
    pub bound: ReplayBound,
    /// Maximum number of bytes in flight to the client.
    pub window_bytes: u32,
    /// Are written messages replayed before they are durable? If not, a recording with a durability level above `None` is
    /// replayed up to its durable end.
    pub is_eager: bool,
}

/// The request of a copy. If the archive has a copy of this source already, that one is resumed with its own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// The source of the copy.
    pub source: Source,
    /// Its label.
    pub label: String,
    /// Length in bytes from which on the source begins a new segment.
    pub segment_length: u64,
    /// When its messages are made durable.
    pub durability: Durability,
    /// Start of the source.
    pub start: Boundary,
}

impl CopyRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_source(Some(&self.source), out);
        put_text(out, &self.label, LABEL_LENGTH_MAX);
        out.extend_from_slice(&self.segment_length.to_le_bytes());
        encode_durability(self.durability, out);
        encode_boundary(&self.start, out);
    }

    fn decode(reader: &mut FieldReader<'_>) -> Result<CopyRequest, MessageError> {
        let source = decode_source(reader)?;
        Ok(CopyRequest {
            source: source.ok_or_else(|| reader.never("source", 10, 0))?,
            label: reader.text("label", LABEL_LENGTH_MAX)?.to_owned(),
            segment_length: reader.long("segment length")?,
            durability: decode_durability(reader)?,
            start: decode_boundary(reader)?,
        })
    }
}

/// A request's operation. Positions, recordings and message numbers are those of `docs/formats/archive.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveOperation {
    /// Lists recordings, in the order of their numbers.
    List {
        /// Only those with higher numbers.
        after: u64,
        /// At most this number; the server may return fewer, and whether there are more.
        count_max: u32,
        /// Conditions on the recordings.
        filter: ListFilter,
    },
    /// Describes a recording.
    Describe {
        /// The recording.
        recording: u64,
    },
    /// Begins a recording, and claims it for this session.
    Start {
        /// Its label.
        label: String,
        /// Length in bytes from which on a new segment is begun; 0: the server's default.
        segment_length: u64,
        /// When its messages are made durable.
        durability: Durability,
        /// Extend the newest recording with this label instead, if there is one?
        is_resumed: bool,
    },
    /// Extends a stopped recording, and claims it for this session. If this session has claimed it already, returns that claim.
    Extend {
        /// The recording.
        recording: u64,
    },
    /// Stops a recording that this session has claimed; it is durable after that.
    Stop {
        /// The recording.
        recording: u64,
    },
    /// Makes everything written so far durable.
    Flush {
        /// The recording.
        recording: u64,
    },
    /// Truncates a stopped recording.
    Truncate {
        /// The recording.
        recording: u64,
        /// Its new end.
        position: u64,
    },
    /// Removes the segments that end at or before a position.
    Purge {
        /// The recording.
        recording: u64,
        /// The position.
        before: u64,
    },
    /// Like purge, but keeps the files.
    Detach {
        /// The recording.
        recording: u64,
        /// The position.
        before: u64,
    },
    /// Adds the segments before the start whose files exist (again).
    Attach {
        /// The recording.
        recording: u64,
    },
    /// Deletes a stopped recording.
    Delete {
        /// The recording.
        recording: u64,
    },
    /// Changes the label of a recording.
    Relabel {
        /// The recording.
        recording: u64,
        /// The new label.
        label: String,
    },
    /// Rewrites the catalog without events that no longer have an effect.
    Compact,
    /// Returns the counters of the server.
    Health,
    /// Begins a replay. It has the number of the request.
    Replay(ReplayRequest),
    /// Begins a copy of another archive's recording, or resumes an existing one, and claims it for this session.
    Copy(CopyRequest),
    /// Lists the segment files of a recording.
    Segments {
        /// The recording.
        recording: u64,
        /// Only segments that start at or after this position.
        from: u64,
        /// At most this number; the server may return fewer, and whether there are more.
        count_max: u32,
    },
}

/// The codes of operations.
mod code {
    pub(super) const LIST: u8 = 1;
    pub(super) const DESCRIBE: u8 = 2;
    pub(super) const START: u8 = 3;
    pub(super) const EXTEND: u8 = 4;
    pub(super) const STOP: u8 = 5;
    pub(super) const FLUSH: u8 = 6;
    pub(super) const TRUNCATE: u8 = 7;
    pub(super) const PURGE: u8 = 8;
    pub(super) const DETACH: u8 = 9;
    pub(super) const ATTACH: u8 = 10;
    pub(super) const DELETE: u8 = 11;
    pub(super) const RELABEL: u8 = 12;
    pub(super) const COMPACT: u8 = 13;
    pub(super) const HEALTH: u8 = 14;
    pub(super) const REPLAY: u8 = 15;
    pub(super) const SEGMENTS: u8 = 16;
    pub(super) const COPY: u8 = 17;
}

/// The encoding of an absent position.
const NONE: u64 = u64::MAX;

pub(crate) fn encode_durability(durability: Durability, out: &mut Vec<u8>) {
    let (kind, milliseconds, bytes) = match durability {
        Durability::None => (0, 0, 0),
        Durability::Group {
            milliseconds,
            bytes,
        } => (1, milliseconds, bytes),
        Durability::Batch => (2, 0, 0),
    };
    out.push(kind);
    out.extend_from_slice(&u32::to_le_bytes(milliseconds));
    out.extend_from_slice(&u64::to_le_bytes(bytes));
}

pub(crate) fn decode_durability(reader: &mut FieldReader<'_>) -> Result<Durability, MessageError> {
    let kind = reader.byte("durability")?;
    if kind == 1 {
        return Ok(Durability::Group {
            milliseconds: reader.word("milliseconds")?,
            bytes: reader.long("bytes")?,
        });
    }
    let durability = match kind {
        0 => Durability::None,
        2 => Durability::Batch,
        other => return Err(reader.never("durability", 1, u64::from(other))),
    };
    reader.zeros(12)?;
    Ok(durability)
}
impl ListFilter {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, label) = match &self.label {
            LabelFilter::Any => (0, ""),
            LabelFilter::Is(label) => (1, label.as_str()),
            LabelFilter::Contains(part) => (2, part.as_str()),
        };
        out.push(kind);
        put_text(out, label, LABEL_LENGTH_MAX);
        out.extend_from_slice(&self.time_from.to_le_bytes());
        out.extend_from_slice(&self.time_to.to_le_bytes());
        out.extend_from_slice(&self.position.unwrap_or(NONE).to_le_bytes());
    }

    fn decode(reader: &mut FieldReader<'_>) -> Result<ListFilter, MessageError> {
        let kind = reader.byte("label filter")?;
        let label = reader.text("label", LABEL_LENGTH_MAX)?;
        let label = match kind {
            0 if label.is_empty() => LabelFilter::Any,
            1 => LabelFilter::Is(label.to_owned()),
            2 => LabelFilter::Contains(label.to_owned()),
            other => return Err(reader.never("label filter", 1, u64::from(other))),
        };
        Ok(ListFilter {
            label,
            time_from: reader.long("time from")?,
            time_to: reader.long("time to")?,
            position: Some(reader.long("position")?).filter(|&position| position != NONE),
        })
    }
}

impl ReplayRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        let (from, place) = match self.from {
            ReplayFrom::Start => (0, 0),
            ReplayFrom::Position(position) => (1, position),
            ReplayFrom::Message(number) => (2, number),
            ReplayFrom::Time(time) => (3, time),
            ReplayFrom::End => (4, 0),
        };
        let (bound, end) = match self.bound {
            ReplayBound::Position(position) => (0, position),
            ReplayBound::End => (1, 0),
            ReplayBound::Live => (2, 0),
            ReplayBound::Follow => (3, 0),
        };
        out.extend_from_slice(&self.recording.to_le_bytes());
        out.push(from);
        out.extend_from_slice(&u64::to_le_bytes(place));
        out.push(bound);
        out.extend_from_slice(&u64::to_le_bytes(end));
        out.extend_from_slice(&self.window_bytes.to_le_bytes());
        out.push(u8::from(self.is_eager));
    }

    fn decode(reader: &mut FieldReader<'_>) -> Result<ReplayRequest, MessageError> {
        let recording = reader.long("recording")?;
        let from = match reader.byte("from")? {
            1 => ReplayFrom::Position(reader.long("from position")?),
            2 => ReplayFrom::Message(reader.long("from message")?),
            3 => ReplayFrom::Time(reader.long("from time")?),
            kind @ (0 | 4) => {
                reader.zeros(8)?;
                if kind == 0 {
                    ReplayFrom::Start
                } else {
                    ReplayFrom::End
                }
            }
            other => return Err(reader.never("from", 1, u64::from(other))),
        };
        let bound = match reader.byte("bound")? {
            0 => ReplayBound::Position(reader.long("bound position")?),
            kind @ 1..=3 => {
                reader.zeros(8)?;
                match kind {
                    1 => ReplayBound::End,
                    2 => ReplayBound::Live,
                    _ => ReplayBound::Follow,
                }
            }
            other => return Err(reader.never("bound", 1, u64::from(other))),
        };
        Ok(ReplayRequest {
            recording,
            from,
            bound,
            window_bytes: reader.word("window")?,
            is_eager: reader.truth("eager")?,
        })
    }
}

/// Appends an operation on a recording.
fn put_recording(out: &mut Vec<u8>, code: u8, recording: u64) {
    out.push(code);
    out.extend_from_slice(&recording.to_le_bytes());
}

/// Appends an operation on a recording and a position in it.
fn put_position(out: &mut Vec<u8>, code: u8, recording: u64, position: u64) {
    put_recording(out, code, recording);
    out.extend_from_slice(&position.to_le_bytes());
}

impl ArchiveOperation {
    /// Appends the encoded operation. Labels above the maximum length are truncated.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ArchiveOperation::List {
                after,
                count_max,
                filter,
            } => {
                put_recording(out, code::LIST, *after);
                out.extend_from_slice(&count_max.to_le_bytes());
                filter.encode(out);
            }
            ArchiveOperation::Describe { recording } => {
                put_recording(out, code::DESCRIBE, *recording);
            }
            ArchiveOperation::Start {
                label,
                segment_length,
                durability,
                is_resumed,
            } => {
                out.push(code::START);
                put_text(out, label, LABEL_LENGTH_MAX);
                out.extend_from_slice(&segment_length.to_le_bytes());
                encode_durability(*durability, out);
                out.push(u8::from(*is_resumed));
            }
            ArchiveOperation::Extend { recording } => put_recording(out, code::EXTEND, *recording),
            ArchiveOperation::Stop { recording } => put_recording(out, code::STOP, *recording),
            ArchiveOperation::Flush { recording } => put_recording(out, code::FLUSH, *recording),
            ArchiveOperation::Truncate {
                recording,
                position,
            } => put_position(out, code::TRUNCATE, *recording, *position),
            ArchiveOperation::Purge { recording, before } => {
                put_position(out, code::PURGE, *recording, *before);
            }
            ArchiveOperation::Detach { recording, before } => {
                put_position(out, code::DETACH, *recording, *before);
            }
            ArchiveOperation::Attach { recording } => put_recording(out, code::ATTACH, *recording),
            ArchiveOperation::Delete { recording } => put_recording(out, code::DELETE, *recording),
            ArchiveOperation::Relabel { recording, label } => {
                put_recording(out, code::RELABEL, *recording);
                put_text(out, label, LABEL_LENGTH_MAX);
            }
            ArchiveOperation::Compact => out.push(code::COMPACT),
            ArchiveOperation::Health => out.push(code::HEALTH),
            ArchiveOperation::Replay(replay) => {
                out.push(code::REPLAY);
                replay.encode(out);
            }
            ArchiveOperation::Copy(copy) => {
                out.push(code::COPY);
                copy.encode(out);
            }
            ArchiveOperation::Segments {
                recording,
                from,
                count_max,
            } => {
                put_position(out, code::SEGMENTS, *recording, *from);
                out.extend_from_slice(&count_max.to_le_bytes());
            }
        }
    }

    /// Decodes the next operation.
    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> Result<ArchiveOperation, MessageError> {
        let code = reader.byte("operation")?;
        match code {
            code::START => {
                return Ok(ArchiveOperation::Start {
                    label: reader.text("label", LABEL_LENGTH_MAX)?.to_owned(),
                    segment_length: reader.long("segment length")?,
                    durability: decode_durability(reader)?,
                    is_resumed: reader.truth("resumed")?,
                });
            }
            code::COMPACT => return Ok(ArchiveOperation::Compact),
            code::HEALTH => return Ok(ArchiveOperation::Health),
            code::COPY => return Ok(ArchiveOperation::Copy(CopyRequest::decode(reader)?)),
            code::REPLAY => return Ok(ArchiveOperation::Replay(ReplayRequest::decode(reader)?)),
            code::LIST..=code::RELABEL | code::SEGMENTS => {}
            other => return Err(reader.never("operation", 1, u64::from(other))),
        }
        let recording = reader.long("recording")?;
        Ok(match code {
            code::LIST => ArchiveOperation::List {
                after: recording,
                count_max: reader.word("count")?,
                filter: ListFilter::decode(reader)?,
            },
            code::DESCRIBE => ArchiveOperation::Describe { recording },
            code::EXTEND => ArchiveOperation::Extend { recording },
            code::STOP => ArchiveOperation::Stop { recording },
            code::FLUSH => ArchiveOperation::Flush { recording },
            code::TRUNCATE => ArchiveOperation::Truncate {
                recording,
                position: reader.long("position")?,
            },
            code::PURGE => ArchiveOperation::Purge {
                recording,
                before: reader.long("position")?,
            },
            code::DETACH => ArchiveOperation::Detach {
                recording,
                before: reader.long("position")?,
            },
            code::ATTACH => ArchiveOperation::Attach { recording },
            code::DELETE => ArchiveOperation::Delete { recording },
            code::SEGMENTS => ArchiveOperation::Segments {
                recording,
                from: reader.long("position")?,
                count_max: reader.word("count")?,
            },
            _ => ArchiveOperation::Relabel {
                recording,
                label: reader.text("label", LABEL_LENGTH_MAX)?.to_owned(),
            },
        })
    }
}
