//! Events of a catalog: what can happen to a recording, encoded and decoded.

use crate::catalog::{Boundary, LABEL_LENGTH_MAX, Source};
use crate::recording::Durability;
use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::BlockKind;

/// Length in bytes of what every event begins with: code, recording, time.
const COMMON_LENGTH: usize = 24;

/// One entry of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEvent {
    /// The recording that it concerns.
    pub recording: RecordingId,
    /// Time of the event, in nanoseconds since 1970.
    pub time: u64,
    /// The change.
    pub kind: EventKind,
}

/// The change of a recording that an event records. Files are changed after the event is durable. Offsets of the
/// fields: `docs/formats/archive.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Code 9, or 1 without a tag: a new recording was started. Its first segment is created.
    Started {
        /// The tag in its blocks; `None` if it was started before the format had tags.
        tag: Option<RecordingTag>,
        /// Start of its first segment.
        start: Boundary,
        /// Length in bytes from which on the next segment is begun.
        segment_length: u64,
        /// What an append waits for.
        durability: Durability,
        /// Its label.
        label: String,
    },
    /// Code 2: recording was resumed.
    Extended {
        /// The end at which it resumes.
        end: Boundary,
    },
    /// Code 3: recording was stopped; everything before the end is durable.
    Stopped {
        /// Its end.
        end: Boundary,
    },
    /// Code 4: the recording was truncated. A shortened copy replaces the segment with the new end; later segments are
    /// removed.
    Truncated {
        /// Its new end.
        end: Boundary,
    },
    /// Code 5: the start was moved by a purge, detach or attach.
    StartMoved {
        /// The new start, the beginning of a segment.
        start: Boundary,
        /// Are the segments before it to be removed? The same event without this flag records that they were.
        purge: bool,
    },
    /// Code 6: the recording was deleted; its segments are removed.
    Deleted,
    /// Code 7: the label was changed.
    Labelled {
        /// The new label.
        label: String,
    },
    /// Code 8: the recording is a copy of another archive's.
    CopiedFrom {
        /// The recording that it is a copy of.
        source: Source,
    },
}

/// Why bytes are not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Another kind of block.
    #[error("expected an event (block kind 5), found block kind {found}")]
    Kind {
        /// The block's kind.
        found: u16,
    },
    /// An event that this program does not know.
    #[error("unknown event code {found}")]
    Code {
        /// Its code.
        found: u8,
    },
    /// Too few bytes for this event, or too many.
    #[error("event {code} has a wrong length of {found} bytes")]
    Length {
        /// Its code.
        code: u8,
        /// Length of the event in bytes.
        found: usize,
    },
    /// A field has a value that is never written.
    #[error("event {code}: invalid {field} {found}")]
    Field {
        /// Its code.
        code: u8,
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// A label or name that is not valid text, or too long.
    #[error("event {code}: label or name is not UTF-8, or longer than {LABEL_LENGTH_MAX} bytes")]
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

impl CatalogEvent {
    /// Appends the payload of the event's block to `out`.
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

    /// Decodes the payload of a block of `kind`.
    pub fn decode(kind: BlockKind, payload: &[u8]) -> Result<CatalogEvent, EventError> {
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
        Ok(CatalogEvent {
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

/// A decoder of an event's fields; owns nothing but the rest of its bytes.
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

    /// The rest of the bytes, as text.
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
