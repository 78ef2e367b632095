//! Messages between an upstairs and its replicas. Byte map in `docs/formats/volume.md`.
//!
//! Messages may be lost, repeated and reordered. A [`StreamMessage`] has a number and is carried out in order; everything else
//! is a question that may be asked again.

use crate::block_context::BlockVersion;
use crate::geometry::{BlockNumber, BlockSpan, Geometry, VolumeId};
use crate::lineage::{Lineage, LineageEntry, Mark};
use seatrial_machine::{FieldReader, MessageError};

/// Longest name of a snapshot in bytes.
pub(crate) const SNAPSHOT_NAME_MAX: usize = 64;
/// Most chunks in one reply to [`ToReplica::Changes`].
pub(crate) const CHANGES_MAX: usize = 4_096;
/// Most spans in one message.
pub(crate) const SPANS_MAX: usize = 4_096;
/// Most blocks that [`ToReplica::Versions`] may ask for.
pub(crate) const VERSIONS_MAX: u64 = 4_096;

/// The map of blocks that a message is about: the name of a snapshot, or empty for the volume itself.
pub type MapName = String;

/// Numbers a session of an upstairs with a replica: 40 random bits of the upstairs' start, then a count. Within a start each
/// one is larger than those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNumber(pub u64);

/// A message of an upstairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToReplica<'a> {
    /// Begins a session. Generation 0 only asks for the largest one.
    Attach {
        /// The volume, and its shape.
        geometry: Geometry,
        /// The generation.
        generation: u32,
        /// Identifies the upstairs: a random number of its start.
        upstairs: u128,
        /// The new session.
        session: SessionNumber,
        /// Has a quorum granted it the generation? Then no other upstairs can be active in it.
        has_quorum: bool,
    },
    /// A numbered message of the session.
    Stream(SessionNumber, u64, StreamMessage<'a>),
    /// Asks for slots of blocks.
    Read {
        /// The session.
        session: SessionNumber,
        /// Repeated in the reply.
        id: u64,
        /// The blocks, in increasing order.
        spans: Vec<BlockSpan>,
        /// Of the volume or a snapshot.
        map: MapName,
    },
    /// Asks for the versions of blocks.
    Versions {
        /// The session.
        session: SessionNumber,
        /// Repeated in the reply.
        id: u64,
        /// The blocks, in increasing order.
        spans: Vec<BlockSpan>,
        /// Of the volume or a snapshot.
        map: MapName,
    },
    /// Asks for the chunks that were changed after a flush.
    Changes {
        /// The session.
        session: SessionNumber,
        /// Repeated in the reply.
        id: u64,
        /// The flush.
        since: u64,
        /// The first chunk of interest.
        from: u64,
    },
    /// Asks for an [`FromReplica::Acked`].
    Ping(SessionNumber),
}

/// A message that changes a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamMessage<'a> {
    /// Slots of blocks.
    Write {
        /// Why they are written.
        purpose: WritePurpose,
        /// Of the volume or a snapshot that is being copied.
        map: MapName,
        /// The last flush of the upstairs.
        flush: u64,
        /// The first generation of the upstairs: [`WritePurpose::Repair`] replaces what older ones wrote.
        since: u32,
        /// The blocks, in increasing order.
        spans: Vec<BlockSpan>,
        /// Their slots.
        slots: &'a [u8],
    },
    /// Makes everything before it durable.
    Flush(FlushOrder),
    /// Begins to copy a snapshot that the replica lacks: from now on it has the blocks of the volume.
    BeginSnapshot {
        /// Its name.
        name: MapName,
        /// The flush that it belongs to.
        flush: u64,
    },
    /// The copy of a snapshot is whole.
    EndSnapshot {
        /// Its name.
        name: MapName,
    },
    /// Removes a snapshot that the others do not have.
    DropSnapshot {
        /// Its name.
        name: MapName,
    },
}

/// Why slots are written: decides which of two versions stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePurpose {
    /// A guest wrote them: the newer version stays.
    Guest,
    /// They are those of a replica that has everything. They replace what an earlier upstairs wrote, whichever is newer; what
    /// this one wrote stays if it is newer.
    Repair,
    /// The replica could not deliver them intact: they replace the same or an older version.
    Heal,
}

/// A flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushOrder {
    /// Its number.
    pub flush: u64,
    /// Does the replica have everything up to here? Then it remembers the flush as its [`Mark`].
    pub is_complete: bool,
    /// The history of the volume, for a replica whose own may differ.
    pub lineage: Option<Lineage>,
    /// Keep the state under this name; empty: no.
    pub snapshot: MapName,
    /// Remove this snapshot; empty: none.
    pub drops: MapName,
}

/// A message of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromReplica<'a> {
    /// The session has begun; what the reply says is durable.
    Attached {
        /// The session.
        session: SessionNumber,
        /// What it has.
        mark: Mark,
        /// The history of what it has.
        lineage: Lineage,
        /// The largest flush number that it has seen.
        flush: u64,
        /// Its snapshots, and the flush that each belongs to; without those that are being copied.
        snapshots: Vec<(MapName, u64)>,
    },
    /// No session.
    Refused {
        /// The session that was asked for, or used.
        session: SessionNumber,
        /// Why.
        reason: RefusalReason,
        /// The largest generation that the replica has granted.
        promised: u32,
    },
    /// All stream messages up to `applied` are carried out, and all flushes up to `flushed` are durable.
    Acked {
        /// The session.
        session: SessionNumber,
        /// Number of a stream message.
        applied: u64,
        /// Number of a flush; 0: none of this session.
        flushed: u64,
    },
    /// Slots; the reply to [`ToReplica::Read`].
    Slots {
        /// The session.
        session: SessionNumber,
        /// See [`ToReplica::Read`].
        id: u64,
        /// One slot a block.
        slots: &'a [u8],
    },
    /// The reply to [`ToReplica::Versions`].
    Versions {
        /// The session.
        session: SessionNumber,
        /// See [`ToReplica::Versions`].
        id: u64,
        /// One version a block, and whether it has bytes.
        versions: Vec<(BlockVersion, bool)>,
    },
    /// The reply to [`ToReplica::Changes`].
    Changes {
        /// The session.
        session: SessionNumber,
        /// See [`ToReplica::Changes`].
        id: u64,
        /// Where to ask further; `u64::MAX`: this is all.
        next: u64,
        /// Numbers of chunks, increasing.
        chunks: Vec<u64>,
    },
    /// A read or a question failed.
    Failed {
        /// The session.
        session: SessionNumber,
        /// Of the question.
        id: u64,
    },
}

/// Why a replica refuses a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// It has granted this generation or a larger one to another upstairs.
    Generation,
    /// It holds another volume.
    Volume,
    /// It holds this volume in another shape.
    Shape,
    /// It has no such session, because it or the upstairs began another one.
    Session,
}

const ATTACH: u8 = 1;
const WRITE: u8 = 2;
const FLUSH: u8 = 3;
const BEGIN_SNAPSHOT: u8 = 4;
const END_SNAPSHOT: u8 = 5;
const DROP_SNAPSHOT: u8 = 10;
const READ: u8 = 6;
const VERSIONS: u8 = 7;
const CHANGES: u8 = 8;
const PING: u8 = 9;
const ATTACHED: u8 = 65;
const REFUSED: u8 = 66;
const ACKED: u8 = 67;
const SLOTS: u8 = 68;
const VERSIONS_REPLY: u8 = 69;
const CHANGES_REPLY: u8 = 70;
const FAILED: u8 = 71;

/// Bytes before the slots of a write. They make its head as long as the head of the log's block that the replica makes of a write
/// with one span: it writes the one over the other, and copies no slot.
const HEADROOM: [u8; 7] = [0; 7];

fn headroom(fields: &mut FieldReader<'_>) -> Result<(), MessageError> {
    let (offset, bytes) = (fields.offset(), fields.bytes("headroom", HEADROOM.len())?);
    match bytes.iter().find(|byte| **byte != 0) {
        Some(byte) => Err(fields.never("headroom", fields.offset() - offset, u64::from(*byte))),
        None => Ok(()),
    }
}

/// Writes fields one after the other.
struct MessageWriter(Vec<u8>);

impl MessageWriter {
    fn new(kind: u8, capacity: usize) -> MessageWriter {
        let mut bytes = Vec::with_capacity(capacity + 64);
        bytes.push(kind);
        MessageWriter(bytes)
    }

    fn byte(mut self, value: u8) -> MessageWriter {
        self.0.push(value);
        self
    }

    fn word(mut self, value: u32) -> MessageWriter {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn long(mut self, value: u64) -> MessageWriter {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn wide(mut self, value: u128) -> MessageWriter {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn name(mut self, name: &str) -> MessageWriter {
        debug_assert!(
            name.len() <= SNAPSHOT_NAME_MAX,
            "names are checked when a snapshot is made"
        );
        self.0.push(name.len() as u8);
        self.0.extend_from_slice(name.as_bytes());
        self
    }

    fn version(self, (version, has_data): &(BlockVersion, bool)) -> MessageWriter {
        let numbers = self.word(version.generation).long(version.counter);
        numbers.byte(u8::from(*has_data))
    }

    fn spans(self, spans: &[BlockSpan]) -> MessageWriter {
        debug_assert!(
            (1..=SPANS_MAX).contains(&spans.len()),
            "{} spans in a message",
            spans.len()
        );
        let message = self.word(spans.len() as u32);
        let each = spans.iter();
        each.fold(message, |it, span| it.long(span.first.0).word(span.count))
    }

    fn lineage(mut self, lineage: &Lineage) -> MessageWriter {
        self.0.push(lineage.entries().len() as u8);
        for entry in lineage.entries() {
            self = self
                .word(entry.generation)
                .long(entry.start)
                .long(entry.base);
        }
        self
    }
}

impl ToReplica<'_> {
    /// The message as sent.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToReplica::Attach {
                geometry,
                generation,
                upstairs,
                session,
                has_quorum,
            } => MessageWriter::new(ATTACH, 64)
                .long(session.0)
                .wide(geometry.volume.0)
                .word(geometry.block_length)
                .long(geometry.blocks)
                .word(*generation)
                .wide(*upstairs)
                .byte(u8::from(*has_quorum)),
            ToReplica::Stream(session, number, message) => message.write(*session, *number),
            ToReplica::Read {
                session,
                id,
                spans,
                map,
            } => MessageWriter::new(READ, 32 + 12 * spans.len())
                .long(session.0)
                .long(*id)
                .spans(spans)
                .name(map),
            ToReplica::Versions {
                session,
                id,
                spans,
                map,
            } => MessageWriter::new(VERSIONS, 32 + 12 * spans.len())
                .long(session.0)
                .long(*id)
                .spans(spans)
                .name(map),
            ToReplica::Changes {
                session,
                id,
                since,
                from,
            } => MessageWriter::new(CHANGES, 32)
                .long(session.0)
                .long(*id)
                .long(*since)
                .long(*from),
            ToReplica::Ping(session) => MessageWriter::new(PING, 8).long(session.0),
        }
        .0
    }

    /// Decodes a message; it borrows the slots.
    pub fn decode(bytes: &[u8]) -> Result<ToReplica<'_>, MessageError> {
        let mut fields = FieldReader::new(bytes);
        let kind = fields.byte("kind")?;
        let session = SessionNumber(fields.long("session")?);
        let message = match kind {
            ATTACH => ToReplica::Attach {
                geometry: Geometry {
                    volume: VolumeId(wide(&mut fields, "volume")?),
                    block_length: fields.word("block length")?,
                    blocks: fields.long("blocks")?,
                },
                generation: fields.word("generation")?,
                upstairs: wide(&mut fields, "upstairs")?,
                session,
                has_quorum: fields.truth("has a quorum")?,
            },
            WRITE | FLUSH | BEGIN_SNAPSHOT | END_SNAPSHOT | DROP_SNAPSHOT => {
                let number = fields.long("number")?;
                ToReplica::Stream(session, number, StreamMessage::read(kind, &mut fields)?)
            }
            READ => ToReplica::Read {
                session,
                id: fields.long("id")?,
                spans: spans(&mut fields)?,
                map: name(&mut fields)?,
            },
            VERSIONS => ToReplica::Versions {
                session,
                id: fields.long("id")?,
                spans: spans(&mut fields)?,
                map: name(&mut fields)?,
            },
            CHANGES => ToReplica::Changes {
                session,
                id: fields.long("id")?,
                since: fields.long("since")?,
                from: fields.long("from")?,
            },
            PING => ToReplica::Ping(session),
            other => return Err(FieldReader::new(bytes).never("kind", 0, u64::from(other))),
        };
        fields.end()?;
        Ok(message)
    }
}

impl StreamMessage<'_> {
    fn write(&self, session: SessionNumber, number: u64) -> MessageWriter {
        let begin = |kind, capacity| {
            MessageWriter::new(kind, capacity)
                .long(session.0)
                .long(number)
        };
        match self {
            StreamMessage::Write {
                purpose,
                map,
                flush,
                since,
                spans,
                slots,
            } => {
                let mut message = begin(WRITE, slots.len() + 12 * spans.len())
                    .byte(*purpose as u8)
                    .name(map)
                    .long(*flush)
                    .word(*since)
                    .spans(spans);
                message.0.extend_from_slice(&HEADROOM);
                message.0.extend_from_slice(slots);
                message
            }
            StreamMessage::Flush(order) => begin(FLUSH, 64).order(order),
            StreamMessage::BeginSnapshot { name, flush } => {
                begin(BEGIN_SNAPSHOT, 64).name(name).long(*flush)
            }
            StreamMessage::EndSnapshot { name } => begin(END_SNAPSHOT, 64).name(name),
            StreamMessage::DropSnapshot { name } => begin(DROP_SNAPSHOT, 64).name(name),
        }
    }

    fn read<'a>(kind: u8, fields: &mut FieldReader<'a>) -> Result<StreamMessage<'a>, MessageError> {
        Ok(match kind {
            WRITE => {
                let purpose = match fields.byte("purpose")? {
                    0 => WritePurpose::Guest,
                    1 => WritePurpose::Repair,
                    2 => WritePurpose::Heal,
                    other => return Err(fields.never("purpose", 1, u64::from(other))),
                };
                StreamMessage::Write {
                    purpose,
                    map: name(fields)?,
                    flush: fields.long("flush")?,
                    since: fields.word("since")?,
                    spans: spans(fields)?,
                    slots: {
                        headroom(fields)?;
                        fields.rest()
                    },
                }
            }
            FLUSH => StreamMessage::Flush(order(fields)?),
            BEGIN_SNAPSHOT => StreamMessage::BeginSnapshot {
                name: name(fields)?,
                flush: fields.long("flush")?,
            },
            DROP_SNAPSHOT => StreamMessage::DropSnapshot {
                name: name(fields)?,
            },
            _ => StreamMessage::EndSnapshot {
                name: name(fields)?,
            },
        })
    }
}

impl MessageWriter {
    /// A flush, as in messages and in a replica's log.
    fn order(self, order: &FlushOrder) -> MessageWriter {
        let flags = u8::from(order.is_complete) | u8::from(order.lineage.is_some()) << 1;
        let message = self
            .long(order.flush)
            .byte(flags)
            .name(&order.snapshot)
            .name(&order.drops);
        match &order.lineage {
            Some(lineage) => message.lineage(lineage),
            None => message,
        }
    }
}

impl FlushOrder {
    /// The order as a replica's log has it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let message = MessageWriter(std::mem::take(out)).order(self);
        *out = message.0;
    }

    /// Decodes an order.
    pub(crate) fn decode(fields: &mut FieldReader<'_>) -> Result<FlushOrder, MessageError> {
        order(fields)
    }
}

fn order(fields: &mut FieldReader<'_>) -> Result<FlushOrder, MessageError> {
    let flush = fields.long("flush")?;
    let flags = fields.byte("flags")?;
    if flags > 3 {
        return Err(fields.never("flags", 1, u64::from(flags)));
    }
    Ok(FlushOrder {
        flush,
        is_complete: flags & 1 != 0,
        snapshot: name(fields)?,
        drops: name(fields)?,
        lineage: if flags & 2 != 0 {
            Some(lineage(fields)?)
        } else {
            None
        },
    })
}

impl FromReplica<'_> {
    /// The message as sent.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            FromReplica::Attached {
                session,
                mark,
                lineage,
                flush,
                snapshots,
            } => {
                let message = MessageWriter::new(ATTACHED, 128)
                    .long(session.0)
                    .word(mark.generation)
                    .long(mark.flush)
                    .lineage(lineage)
                    .long(*flush)
                    .word(snapshots.len() as u32);
                let each = snapshots.iter();
                each.fold(message, |it, (name, flush)| it.name(name).long(*flush))
            }
            FromReplica::Refused {
                session,
                reason,
                promised,
            } => {
                let message = MessageWriter::new(REFUSED, 16).long(session.0);
                message.byte(*reason as u8).word(*promised)
            }
            FromReplica::Acked {
                session,
                applied,
                flushed,
            } => {
                let message = MessageWriter::new(ACKED, 32).long(session.0);
                message.long(*applied).long(*flushed)
            }
            FromReplica::Slots { session, id, slots } => {
                let mut message = slots_reply(*session, *id, slots.len());
                message.extend_from_slice(slots);
                return message;
            }
            FromReplica::Versions {
                session,
                id,
                versions,
            } => {
                let message = MessageWriter::new(VERSIONS_REPLY, 32 + 13 * versions.len());
                let message = message.long(session.0).long(*id);
                versions.iter().fold(message, MessageWriter::version)
            }
            FromReplica::Changes {
                session,
                id,
                next,
                chunks,
            } => {
                let message = MessageWriter::new(CHANGES_REPLY, 32 + 8 * chunks.len())
                    .long(session.0)
                    .long(*id)
                    .long(*next);
                chunks.iter().fold(message, |it, chunk| it.long(*chunk))
            }
            FromReplica::Failed { session, id } => {
                let message = MessageWriter::new(FAILED, 16);
                message.long(session.0).long(*id)
            }
        }
        .0
    }

    /// Decodes a message; it borrows the slots.
    pub fn decode(bytes: &[u8]) -> Result<FromReplica<'_>, MessageError> {
        let mut fields = FieldReader::new(bytes);
        let kind = fields.byte("kind")?;
        let session = SessionNumber(fields.long("session")?);
        let message = match kind {
            ATTACHED => read_attached(session, &mut fields)?,
            REFUSED => FromReplica::Refused {
                session,
                reason: match fields.byte("reason")? {
                    0 => RefusalReason::Generation,
                    1 => RefusalReason::Volume,
                    2 => RefusalReason::Shape,
                    3 => RefusalReason::Session,
                    other => return Err(fields.never("reason", 1, u64::from(other))),
                },
                promised: fields.word("promised")?,
            },
            ACKED => FromReplica::Acked {
                session,
                applied: fields.long("applied")?,
                flushed: fields.long("flushed")?,
            },
            SLOTS => FromReplica::Slots {
                session,
                id: fields.long("id")?,
                slots: fields.rest(),
            },
            VERSIONS_REPLY => {
                let id = fields.long("id")?;
                let mut versions = Vec::new();
                while fields.offset() < bytes.len() {
                    let version = BlockVersion {
                        generation: fields.word("generation")?,
                        counter: fields.long("counter")?,
                    };
                    versions.push((version, fields.truth("has data")?));
                }
                FromReplica::Versions {
                    session,
                    id,
                    versions,
                }
            }
            CHANGES_REPLY => {
                let (id, next) = (fields.long("id")?, fields.long("next")?);
                let mut chunks = Vec::new();
                while fields.offset() < bytes.len() {
                    chunks.push(fields.long("chunk")?);
                }
                FromReplica::Changes {
                    session,
                    id,
                    next,
                    chunks,
                }
            }
            FAILED => FromReplica::Failed {
                session,
                id: fields.long("id")?,
            },
            other => return Err(FieldReader::new(bytes).never("kind", 0, u64::from(other))),
        };
        fields.end()?;
        Ok(message)
    }
}

/// The beginning of a [`FromReplica::Slots`]: a job appends the slots.
pub(crate) fn slots_reply(session: SessionNumber, id: u64, capacity: usize) -> Vec<u8> {
    MessageWriter::new(SLOTS, capacity)
        .long(session.0)
        .long(id)
        .0
}

fn read_attached<'a>(
    session: SessionNumber,
    fields: &mut FieldReader<'a>,
) -> Result<FromReplica<'a>, MessageError> {
    let mark = Mark {
        generation: fields.word("generation")?,
        flush: fields.long("flush")?,
    };
    let lineage = lineage(fields)?;
    let flush = fields.long("largest flush")?;
    let count = fields.word("snapshots")?;
    let mut snapshots = Vec::new();
    for _ in 0..count {
        snapshots.push((name(fields)?, fields.long("flush of a snapshot")?));
    }
    Ok(FromReplica::Attached {
        session,
        mark,
        lineage,
        flush,
        snapshots,
    })
}

fn wide(fields: &mut FieldReader<'_>, field: &'static str) -> Result<u128, MessageError> {
    let low = fields.long(field)?;
    let high = fields.long(field)?;
    Ok(u128::from(high) << 64 | u128::from(low))
}

/// Reads spans: at least one, each after the one before it.
fn spans(fields: &mut FieldReader<'_>) -> Result<Vec<BlockSpan>, MessageError> {
    let count = fields.word("number of spans")?;
    if !(1..=SPANS_MAX as u32).contains(&count) {
        return Err(fields.never("number of spans", 4, u64::from(count)));
    }
    let mut spans: Vec<BlockSpan> = Vec::new();
    for _ in 0..count {
        let span = BlockSpan {
            first: BlockNumber(fields.long("first block")?),
            count: fields.word("count")?,
        };
        let is_after = |last: &BlockSpan| last.end() <= span.first.0;
        if span.count == 0 || !spans.last().is_none_or(is_after) {
            return Err(fields.never("span", 12, span.first.0));
        }
        spans.push(span);
    }
    Ok(spans)
}

/// Reads a name: letters, digits, `-`, `_` and `.`.
pub(crate) fn name(fields: &mut FieldReader<'_>) -> Result<MapName, MessageError> {
    let length = fields.byte("length of a name")?;
    let bytes = fields.bytes("name", usize::from(length))?;
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_empty() || is_name(text) => Ok(text.to_owned()),
        _ => Err(fields.never("name", usize::from(length), u64::from(length))),
    }
}

/// May a snapshot have this name?
pub fn is_name(text: &str) -> bool {
    (1..=SNAPSHOT_NAME_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn lineage(fields: &mut FieldReader<'_>) -> Result<Lineage, MessageError> {
    let count = fields.byte("entries of a lineage")?;
    let mut entries = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        entries.push(LineageEntry {
            generation: fields.word("generation")?,
            start: fields.long("start")?,
            base: fields.long("base")?,
        });
    }
    Lineage::from_entries(entries).ok_or_else(|| fields.never("lineage", 0, u64::from(count)))
}
