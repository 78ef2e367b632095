//! What happens to recordings, as bytes.

use crate::block::BlockKind;
use crate::catalog::{Boundary, LABEL_LENGTH_MAX, Source};
use crate::recording::Durability;
use crate::{Position, RecordingId, RecordingTag};

/// Bytes that every event has: code, recording, time.
const COMMON_LENGTH: usize = 24;

/// One entry of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The recording that it concerns.
    pub recording: RecordingId,
    /// When it happened: nanoseconds since 1970.
    pub time: u64,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a recording. What an event implies for files is done once it is durable. Offsets of the fields:
/// `docs/formats/archive.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Code 9, without a tag code 1: there is a new recording, and it is being recorded. Its first segment is created.
    Started {
        /// What its blocks are known by; nothing when it was begun before there were tags.
        tag: Option<RecordingTag>,
        /// Where its first segment begins.
        start: Boundary,
        /// The length after which the next segment is begun, in bytes.
        segment_length: u64,
        /// What an append waits for.
        durability: Durability,
        /// Its name.
        label: String,
    },
    /// Code 2: a stopped recording is being recorded again.
    Extended {
        /// Where it goes on: its end.
        end: Boundary,
    },
    /// Code 3: it is no longer being recorded; everything before the end is durable.
    Stopped {
        /// Its end.
        end: Boundary,
    },
    /// Code 4: its last part is gone. A shortened copy takes the place of the segment with the new end; later segments
    /// are removed.
    Truncated {
        /// Its new end.
        end: Boundary,
    },
    /// Code 5: it starts elsewhere: purged, detached or attached.
    StartMoved {
        /// Where it starts now: the beginning of a segment.
        start: Boundary,
        /// The segments before it are removed. The same event without this says that they were.
        purge: bool,
    },
    /// Code 6: it is gone, and so are its segments.
    Deleted,
    /// Code 7: it has another name.
    Labelled {
        /// The name.
        label: String,
    },
    /// Code 8: it is a copy of another archive's recording.
    CopiedFrom {
        /// Of which.
        source: Source,
    },
}

/// Bytes that are not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Another kind of block.
    #[error("a block of kind {found} where an event (kind 5) belongs")]
    Kind {
        /// The kind that is there.
        found: u16,
    },
    /// An event that this program does not know.
    #[error("event {found} is not known to this program")]
    Code {
        /// Its code.
        found: u8,
    },
    /// Too few bytes for this event, or too many.
    #[error("event {code} holds {found} bytes, not what belongs to it")]
    Length {
        /// Its code.
        code: u8,
        /// Bytes of the event.
        found: usize,
    },
    /// A field has a value that is never written.
    #[error("event {code}: {field} is {found}")]
    Field {
        /// Its code.
        code: u8,
        /// The field.
        field: &'static str,
        /// What is there.
        found: u64,
    },
    /// A label or name that is no text.
    #[error("event {code}: a name that is not UTF-8 or longer than {LABEL_LENGTH_MAX} bytes")]
    Text {
        /// Its code.
        code: u8,
    },
}

impl EventKind {
    fn code(&self) -> u8 {
        match self {
            EventKind::Started { tag: None, .. } => 1,
            EventKind::Extended { .. } => 2,
            EventKind::Stopped { .. } => 3,
            EventKind::Truncated { .. } => 4,
            EventKind::StartMoved { .. } => 5,
            EventKind::Deleted => 6,
            EventKind::Labelled { .. } => 7,
            EventKind::CopiedFrom { .. } => 8,
            EventKind::Started { tag: Some(_), .. } => 9,
        }
    }
}

impl Event {
    /// The payload of its block, appended to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.kind.code()));
        put(out, self.recording.0);
        put(out, self.time);
        match &self.kind {
            EventKind::Started {
                tag,
                start,
                segment_length,
                durability,
                label,
            } => {
                put_boundary(out, start);
                put(out, *segment_length);
                put_durability(out, *durability);
                if let Some(RecordingTag(tag)) = tag {
                    put(out, u64::from(*tag));
                }
                out.extend_from_slice(label.as_bytes());
            }
            EventKind::Extended { end }
            | EventKind::Stopped { end }
            | EventKind::Truncated { end } => put_boundary(out, end),
            EventKind::StartMoved { start, purge } => {
                put_boundary(out, start);
                put(out, u64::from(*purge));
            }
            EventKind::Deleted => {}
            EventKind::Labelled { label } => out.extend_from_slice(label.as_bytes()),
            EventKind::CopiedFrom { source } => {
                put(out, source.recording.0);
                out.extend_from_slice(source.archive.as_bytes());
            }
        }
    }

    /// Reads the payload of a block of `kind`.
    pub fn decode(kind: BlockKind, payload: &[u8]) -> Result<Event, EventError> {
        if kind != BlockKind::CATALOG {
            return Err(EventError::Kind { found: kind.0 });
        }
        let code = payload.first().copied().unwrap_or(0);
        let mut fields = Fields {
            code,
            length: payload.len(),
            rest: payload,
        };
        if payload.len() < COMMON_LENGTH {
            return Err(fields.length_error());
        }
        let first = fields.word()?;
        if first >> 8 != 0 {
            return Err(fields.field_error("the reserved part of the first word", first >> 8));
        }
        let (recording, time) = (RecordingId(fields.word()?), fields.word()?);
        if recording.0 == 0 || recording > RecordingId::MAX {
            return Err(fields.field_error("recording", recording.0));
        }
        let kind = fields.kind()?;
        if !fields.rest.is_empty() {
            return Err(fields.length_error());
        }
        Ok(Event {
            recording,
            time,
            kind,
        })
    }
}

fn put(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put_boundary(out: &mut Vec<u8>, boundary: &Boundary) {
    put(out, boundary.position.0);
    put(out, boundary.message);
    put(out, boundary.sequence);
    put(out, boundary.time);
}

fn put_durability(out: &mut Vec<u8>, durability: Durability) {
    let (code, milliseconds, bytes) = match durability {
        Durability::None => (0, 0, 0),
        Durability::Group {
            milliseconds,
            bytes,
        } => (1, milliseconds, bytes),
        Durability::Batch => (2, 0, 0),
    };
    put(out, code | u64::from(milliseconds) << 32);
    put(out, bytes);
}

/// What is left of an event's bytes.
struct Fields<'a> {
    code: u8,
    length: usize,
    rest: &'a [u8],
}

impl Fields<'_> {
    fn length_error(&self) -> EventError {
        EventError::Length {
            code: self.code,
            found: self.length,
        }
    }

    fn field_error(&self, field: &'static str, found: u64) -> EventError {
        EventError::Field {
            code: self.code,
            field,
            found,
        }
    }

    fn word(&mut self) -> Result<u64, EventError> {
        let (word, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.length_error())?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn boundary(&mut self) -> Result<Boundary, EventError> {
        Ok(Boundary {
            position: Position(self.word()?),
            message: self.word()?,
            sequence: self.word()?,
            time: self.word()?,
        })
    }

    fn durability(&mut self) -> Result<Durability, EventError> {
        let (first, bytes) = (self.word()?, self.word()?);
        let milliseconds = (first >> 32) as u32;
        match (first as u32, milliseconds, bytes) {
            (0, 0, 0) => Ok(Durability::None),
            (1, ..) => Ok(Durability::Group {
                milliseconds,
                bytes,
            }),
            (2, 0, 0) => Ok(Durability::Batch),
            _ => Err(self.field_error("durability", first)),
        }
    }

    fn tag(&mut self) -> Result<RecordingTag, EventError> {
        let word = self.word()?;
        let tag = u32::try_from(word).map_err(|_| self.field_error("tag", word))?;
        Ok(RecordingTag(tag))
    }

    /// Everything that is left.
    fn text(&mut self) -> Result<String, EventError> {
        let bytes = std::mem::take(&mut self.rest);
        let text = std::str::from_utf8(bytes).ok();
        text.filter(|text| text.len() <= LABEL_LENGTH_MAX)
            .map(str::to_owned)
            .ok_or(EventError::Text { code: self.code })
    }

    fn kind(&mut self) -> Result<EventKind, EventError> {
        Ok(match self.code {
            1 | 9 => EventKind::Started {
                start: self.boundary()?,
                segment_length: self.word()?,
                durability: self.durability()?,
                tag: match self.code {
                    9 => Some(self.tag()?),
                    _ => None,
                },
                label: self.text()?,
            },
            2 => EventKind::Extended {
                end: self.boundary()?,
            },
            3 => EventKind::Stopped {
                end: self.boundary()?,
            },
            4 => EventKind::Truncated {
                end: self.boundary()?,
            },
            5 => EventKind::StartMoved {
                start: self.boundary()?,
                purge: match self.word()? {
                    0 => false,
                    1 => true,
                    found => return Err(self.field_error("purge", found)),
                },
            },
            6 => EventKind::Deleted,
            7 => EventKind::Labelled {
                label: self.text()?,
            },
            8 => EventKind::CopiedFrom {
                source: Source {
                    recording: RecordingId(self.word()?),
                    archive: self.text()?,
                },
            },
            found => return Err(EventError::Code { found }),
        })
    }
}
