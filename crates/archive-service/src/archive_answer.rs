//! Answers of the server.

use crate::archive_operation::{decode_durability, encode_durability};
use crate::message::{LABEL_LENGTH_MAX, TEXT_LENGTH_MAX};
use crate::text_fields::put_text;
use seatrial_archive::Durability;
use seatrial_archive::{Boundary, Source};
use seatrial_archive::{Position, RecordingId};
use seatrial_machine::{FieldReader, MessageError};
use std::fmt;

/// Why a request was refused, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// The request does not decode or has invalid values.
    Malformed = 1,
    /// The server does not support the client's version of the protocol.
    WrongVersion = 2,
    /// A limit of the server is reached; the text names it. Try again later.
    Overloaded = 3,
    /// There is no such recording.
    UnknownRecording = 4,
    /// The recording is being recorded, by this client or by another.
    Recording = 5,
    /// The session holds no claim on the recording (any more).
    NoClaim = 6,
    /// The recording has no such position, message or time.
    OutOfRange = 7,
    /// The recording has different messages with these numbers.
    Conflict = 8,
    /// The disk failed. Unconfirmed messages may or may not be recorded.
    Disk = 9,
    /// Recorded data is damaged or missing.
    Damaged = 10,
    /// The operation is not allowed in this state.
    NotAllowed = 11,
    /// The batch is too long, or does not match its header.
    WrongBatch = 12,
}

impl RefusalCode {
    const ALL: [RefusalCode; 12] = [
        RefusalCode::Malformed,
        RefusalCode::WrongVersion,
        RefusalCode::Overloaded,
        RefusalCode::UnknownRecording,
        RefusalCode::Recording,
        RefusalCode::NoClaim,
        RefusalCode::OutOfRange,
        RefusalCode::Conflict,
        RefusalCode::Disk,
        RefusalCode::Damaged,
        RefusalCode::NotAllowed,
        RefusalCode::WrongBatch,
    ];

    /// The name of the code in texts.
    pub const fn name(self) -> &'static str {
        match self {
            RefusalCode::Malformed => "malformed",
            RefusalCode::WrongVersion => "wrong-version",
            RefusalCode::Overloaded => "overloaded",
            RefusalCode::UnknownRecording => "unknown-recording",
            RefusalCode::Recording => "recording",
            RefusalCode::NoClaim => "no-claim",
            RefusalCode::OutOfRange => "out-of-range",
            RefusalCode::Conflict => "conflict",
            RefusalCode::Disk => "disk",
            RefusalCode::Damaged => "damaged",
            RefusalCode::NotAllowed => "not-allowed",
            RefusalCode::WrongBatch => "wrong-batch",
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.text)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// A refusal with this text.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Refusal {
        Refusal {
            code,
            text: text.into(),
        }
    }

    pub(crate) fn code_byte(&self) -> u8 {
        self.code as u8
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.text, TEXT_LENGTH_MAX);
    }

    /// Decodes the text of the refusal with this code; `None` for code 0.
    pub(crate) fn decode(
        code: u8,
        reader: &mut FieldReader<'_>,
    ) -> Result<Option<Refusal>, MessageError> {
        if code == 0 {
            return Ok(None);
        }
        let known = RefusalCode::ALL.get(usize::from(code) - 1);
        let code = *known.ok_or(MessageError::Value {
            field: "code",
            offset: 1,
            value: u64::from(code),
        })?;
        let text = reader.text("text", TEXT_LENGTH_MAX)?.to_owned();
        Ok(Some(Refusal { code, text }))
    }
}

/// The description of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingDescription {
    /// Its number.
    pub recording: u64,
    /// Is it being recorded now?
    pub is_recording: bool,
    /// When its messages are made durable.
    pub durability: Durability,
    /// Length in bytes from which on a new segment is begun.
    pub segment_length: u64,
    /// When it was started: nanoseconds since 1970.
    pub started_at: u64,
    /// When it was stopped; `None` while it is being recorded.
    pub stopped_at: Option<u64>,
    /// Where it starts.
    pub start: Boundary,
    /// Where it ends now.
    pub end: Boundary,
    /// What it is a copy of.
    pub source: Option<Source>,
    /// Its label.
    pub label: String,
}

/// Appends the source of a copy; a name above the maximum length is truncated.
pub(crate) fn encode_source(source: Option<&Source>, out: &mut Vec<u8>) {
    let recording = source.map_or(0, |source| source.recording.0);
    out.extend_from_slice(&recording.to_le_bytes());
    put_text(
        out,
        source.map_or("", |source| &source.archive),
        LABEL_LENGTH_MAX,
    );
}

/// Decodes the source of a copy; `None` with the number 0.
pub(crate) fn decode_source(reader: &mut FieldReader<'_>) -> Result<Option<Source>, MessageError> {
    let recording = RecordingId(reader.long("source")?);
    let archive = reader.text("source", LABEL_LENGTH_MAX)?.to_owned();
    if recording.0 == 0 && !archive.is_empty() {
        return Err(reader.never("source", archive.len(), 0));
    }
    Ok((recording.0 != 0).then_some(Source { archive, recording }))
}

/// A file of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDescription {
    /// The position of its first byte.
    pub start: u64,
    /// Its current length in bytes.
    pub length: u64,
    /// Does it lie before the start of its recording?
    pub is_detached: bool,
    /// The number of its first message; `None` when its first block is damaged.
    pub first_message: Option<u64>,
    /// Damage that its first block, its length or its neighbours show.
    pub problem: Option<String>,
}

impl SegmentDescription {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.push(u8::from(self.is_detached));
        out.extend_from_slice(&self.first_message.unwrap_or(u64::MAX).to_le_bytes());
        put_text(out, self.problem.as_deref().unwrap_or(""), TEXT_LENGTH_MAX);
    }

    fn decode(reader: &mut FieldReader<'_>) -> Result<SegmentDescription, MessageError> {
        Ok(SegmentDescription {
            start: reader.long("start")?,
            length: reader.long("length")?,
            is_detached: reader.truth("detached")?,
            first_message: Some(reader.long("first message")?).filter(|&it| it != u64::MAX),
            problem: Some(reader.text("problem", TEXT_LENGTH_MAX)?.to_owned())
                .filter(|text| !text.is_empty()),
        })
    }
}

pub(crate) fn encode_boundary(boundary: &Boundary, out: &mut Vec<u8>) {
    let position = boundary.position.0;
    for field in [position, boundary.message, boundary.sequence, boundary.time] {
        out.extend_from_slice(&field.to_le_bytes());
    }
}

pub(crate) fn decode_boundary(reader: &mut FieldReader<'_>) -> Result<Boundary, MessageError> {
    Ok(Boundary {
        position: Position(reader.long("position")?),
        message: reader.long("message")?,
        sequence: reader.long("block")?,
        time: reader.long("time")?,
    })
}

impl RecordingDescription {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.recording.to_le_bytes());
        out.push(u8::from(self.is_recording));
        encode_durability(self.durability, out);
        for field in [
            self.segment_length,
            self.started_at,
            self.stopped_at.unwrap_or(u64::MAX),
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        encode_boundary(&self.start, out);
        encode_boundary(&self.end, out);
        encode_source(self.source.as_ref(), out);
        put_text(out, &self.label, LABEL_LENGTH_MAX);
    }

    fn decode(reader: &mut FieldReader<'_>) -> Result<RecordingDescription, MessageError> {
        Ok(RecordingDescription {
            recording: reader.long("recording")?,
            is_recording: reader.truth("recording now")?,
            durability: decode_durability(reader)?,
            segment_length: reader.long("segment length")?,
            started_at: reader.long("started at")?,
            stopped_at: Some(reader.long("stopped at")?).filter(|&time| time != u64::MAX),
            start: decode_boundary(reader)?,
            end: decode_boundary(reader)?,
            source: decode_source(reader)?,
            label: reader.text("label", LABEL_LENGTH_MAX)?.to_owned(),
        })
    }
}

/// A recording that a session may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The claim's number.
    pub claim: u64,
    /// The recording.
    pub recording: u64,
    /// The number that its next message gets.
    pub next_message: u64,
    /// Its end.
    pub position: u64,
    /// When its messages are made durable.
    pub durability: Durability,
}

/// Declares [`Health`] with its fields in the order in which they are sent.
macro_rules! health {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters of the server.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Health {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Health {
            fn encode(&self, out: &mut Vec<u8>) {
                $(out.extend_from_slice(&self.$field.to_le_bytes());)*
            }

            fn decode(reader: &mut FieldReader<'_>) -> Result<Health, MessageError> {
                Ok(Health {
                    $($field: reader.long(stringify!($field))?,)*
                })
            }
        }
    };
}

health! {
    /// Nanoseconds since it was started.
    uptime_ns,
    /// Sessions.
    sessions,
    /// Replays that are open.
    replays,
    /// Recordings that are being recorded.
    recordings,
    /// Messages recorded since it was started.
    messages_recorded,
    /// Bytes of frames recorded since it was started.
    bytes_recorded,
    /// Bytes of blocks replayed since it was started.
    bytes_replayed,
    /// Syncs since it was started.
    syncs,
    /// Bytes of replays in flight: sent, without credit since.
    replay_bytes,
    /// Bytes of frames that wait to be written.
    record_bytes,
}

/// The answer to a request that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveAnswer {
    /// No result.
    Done,
    /// Recordings, by number.
    List {
        /// The recordings found.
        recordings: Vec<RecordingDescription>,
        /// Are there more after the last one?
        has_more: bool,
    },
    /// One recording.
    Description(RecordingDescription),
    /// The session may write.
    Claimed(Claimed),
    /// A position: the end after a stop, flush or truncation, the start after a purge, detach or attach.
    Position(u64),
    /// The replay has begun.
    ReplayBegun {
        /// The position to resume from if the connection is lost before the first block.
        position: u64,
        /// The position of its end; `None` when that is not known.
        end: Option<u64>,
        /// The window that is granted.
        window_bytes: u32,
    },
    /// Counters of the server.
    Health(Health),
    /// Files of a recording, in order.
    Segments {
        /// The recordings found.
        segments: Vec<SegmentDescription>,
        /// Are there more after the last one?
        has_more: bool,
    },
}

impl ArchiveAnswer {
    /// Appends the answer as sent.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ArchiveAnswer::Done => out.push(0),
            ArchiveAnswer::List {
                recordings,
                has_more,
            } => {
                out.push(1);
                out.extend_from_slice(&(recordings.len() as u32).to_le_bytes());
                out.push(u8::from(*has_more));
                for recording in recordings {
                    recording.encode(out);
                }
            }
            ArchiveAnswer::Description(description) => {
                out.push(2);
                description.encode(out);
            }
            ArchiveAnswer::Claimed(claimed) => {
                out.push(3);
                for field in [
                    claimed.claim,
                    claimed.recording,
                    claimed.next_message,
                    claimed.position,
                ] {
                    out.extend_from_slice(&field.to_le_bytes());
                }
                encode_durability(claimed.durability, out);
            }
            ArchiveAnswer::Position(position) => {
                out.push(4);
                out.extend_from_slice(&position.to_le_bytes());
            }
            ArchiveAnswer::ReplayBegun {
                position,
                end,
                window_bytes,
            } => {
                out.push(5);
                out.extend_from_slice(&position.to_le_bytes());
                out.extend_from_slice(&end.unwrap_or(u64::MAX).to_le_bytes());
                out.extend_from_slice(&window_bytes.to_le_bytes());
            }
            ArchiveAnswer::Health(health) => {
                out.push(6);
                health.encode(out);
            }
            ArchiveAnswer::Segments { segments, has_more } => {
                out.push(7);
                out.extend_from_slice(&(segments.len() as u32).to_le_bytes());
                out.push(u8::from(*has_more));
                for segment in segments {
                    segment.encode(out);
                }
            }
        }
    }

    /// The answer that comes next.
    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> Result<ArchiveAnswer, MessageError> {
        Ok(match reader.byte("answer")? {
            0 => ArchiveAnswer::Done,
            1 => {
                let count = reader.word("count")?;
                let has_more = reader.truth("more")?;
                let mut recordings = Vec::new();
                for _ in 0..count {
                    recordings.push(RecordingDescription::decode(reader)?);
                }
                ArchiveAnswer::List {
                    recordings,
                    has_more,
                }
            }
            2 => ArchiveAnswer::Description(RecordingDescription::decode(reader)?),
            3 => ArchiveAnswer::Claimed(Claimed {
                claim: reader.long("claim")?,
                recording: reader.long("recording")?,
                next_message: reader.long("next message")?,
                position: reader.long("position")?,
                durability: decode_durability(reader)?,
            }),
            4 => ArchiveAnswer::Position(reader.long("position")?),
            5 => ArchiveAnswer::ReplayBegun {
                position: reader.long("position")?,
                end: Some(reader.long("end")?).filter(|&end| end != u64::MAX),
                window_bytes: reader.word("window")?,
            },
            6 => ArchiveAnswer::Health(Health::decode(reader)?),
            7 => {
                let count = reader.word("count")?;
                let has_more = reader.truth("more")?;
                let mut segments = Vec::new();
                for _ in 0..count {
                    segments.push(SegmentDescription::decode(reader)?);
                }
                ArchiveAnswer::Segments { segments, has_more }
            }
            other => return Err(reader.never("answer", 1, u64::from(other))),
        })
    }
}
