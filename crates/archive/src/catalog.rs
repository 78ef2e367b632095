//! The catalog: the recordings of an archive, folded from its events. Byte map in `docs/formats/archive.md`.

mod catalog_event;
mod catalog_log;
mod catalog_mark;

pub use catalog_event::{CatalogEvent, EventError, EventKind};
pub use catalog_log::CatalogError;
pub(crate) use catalog_log::{
    CATALOG, CATALOG_DAMAGED, CATALOG_NEW, CatalogLog, encode_events, read, read_folder,
};
pub(crate) use catalog_mark::{CatalogMark, clear as clear_mark};

use crate::recording::Durability;
use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The maximum length in bytes of a recording's label and of a source's name.
pub const LABEL_LENGTH_MAX: usize = 1 << 10;
/// The maximum number of recordings in an archive at a time.
pub const RECORDINGS_MAX: usize = 1_000_000;

/// A boundary between two blocks of a recording: position, message number, block number and time of what follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Position of the next block.
    pub position: Position,
    /// Number of the next message.
    pub message: u64,
    /// Number of the next block.
    pub sequence: u64,
    /// Nanoseconds since 1970; no earlier batch has a later time, no later batch an earlier one.
    pub time: u64,
}

impl Boundary {
    /// The boundary after a block of `length` bytes at this one; `None` if positions or numbers are exhausted.
    pub fn after_block(&self, length: u64, messages: u32, time: u64) -> Option<Boundary> {
        let position = self.position.0.checked_add(length)?;
        assert!(time >= self.time, "times of a recording never decrease");
        // The last position is never used: sums saturate there.
        (position < u64::MAX).then_some(Boundary {
            position: Position(position),
            message: self.message.checked_add(u64::from(messages))?,
            sequence: self.sequence.checked_add(1)?,
            time,
        })
    }
}

/// The recording that another one was copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the other archive, chosen by the copying program.
    pub archive: String,
    /// The recording's number there.
    pub recording: RecordingId,
}

/// The catalog's entry of one recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Its number.
    pub id: RecordingId,
    /// The tag in its blocks; `None` if it was started before the format had tags.
    pub tag: Option<RecordingTag>,
    /// Its label; not unique.
    pub label: String,
    /// Length in bytes from which on a segment is followed by the next one.
    pub segment_length: u64,
    /// What an append waits for.
    pub durability: Durability,
    /// Its start; changed by purge, detach and attach.
    pub start: Boundary,
    /// Its end; a lower bound while it is being recorded.
    pub end: Boundary,
    /// Time of its start, in nanoseconds since 1970.
    pub started: u64,
    /// Time of its last stop; `None` while it is being recorded.
    pub stopped: Option<u64>,
    /// Its source, if it is a copy.
    pub source: Option<Source>,
}

impl Recording {
    /// Number of messages from start to end.
    pub fn messages(&self) -> u64 {
        self.end.message.saturating_sub(self.start.message)
    }

    /// Number of bytes from start to end, headers included.
    pub fn bytes(&self) -> u64 {
        self.end.position.since(self.start.position)
    }
}

/// Selects the recordings that meet every condition that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingFilter {
    /// The label contains this.
    pub label: Option<String>,
    /// The recording's span of time overlaps this one, in nanoseconds since 1970.
    pub time: Option<RangeInclusive<u64>>,
    /// This position lies between start (inclusive) and end (exclusive).
    pub position: Option<Position>,
    /// The number is at least this.
    pub from: RecordingId,
    /// Maximum number of results, in the order of recording numbers.
    pub count_max: usize,
}

impl Default for RecordingFilter {
    fn default() -> RecordingFilter {
        RecordingFilter {
            label: None,
            time: None,
            position: None,
            from: RecordingId(0),
            count_max: usize::MAX,
        }
    }
}

impl RecordingFilter {
    /// Does the recording meet all conditions? `count_max` is the caller's matter.
    pub fn matches(&self, recording: &Recording) -> bool {
        let label = self.label.as_ref();
        let (start, end) = (&recording.start, &recording.end);
        recording.id >= self.from
            && label.is_none_or(|part| recording.label.contains(part.as_str()))
            && (self.time.as_ref())
                .is_none_or(|span| start.time <= *span.end() && *span.start() <= end.time)
            && (self.position).is_none_or(|at| start.position <= at && at < end.position)
    }
}

/// Why an event cannot follow the earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventOrderError {
    /// A number that was used before, or is too long for a segment's name.
    #[error("recording {recording} cannot be started: the next number is {next}")]
    Number {
        /// The number.
        recording: RecordingId,
        /// The lowest number never used.
        next: RecordingId,
    },
    /// There is no such recording.
    #[error("there is no recording {recording}")]
    Unknown {
        /// The number.
        recording: RecordingId,
    },
    /// An event for stopped recordings, but this one is live; or the reverse.
    #[error("recording {recording} is {}", if *.live { "being recorded" } else { "stopped" })]
    State {
        /// The number.
        recording: RecordingId,
        /// Is it being recorded?
        live: bool,
    },
    /// A start after the end, an end before the start, or an extension at a position that is not the end.
    #[error("recording {recording} spans {start} to {end}, the event is for position {found}")]
    Range {
        /// The number.
        recording: RecordingId,
        /// Its start.
        start: Position,
        /// Its end.
        end: Position,
        /// The event's position.
        found: Position,
    },
}

/// All recordings of an archive: the fold of its events. A value, so a reader's copy does not change with the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    recordings: BTreeMap<RecordingId, Recording>,
    next: RecordingId,
}

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog {
            recordings: BTreeMap::new(),
            next: RecordingId(1),
        }
    }
}

impl Catalog {
    /// All recordings in the order of their numbers.
    pub fn recordings(&self) -> impl Iterator<Item = &Recording> {
        self.recordings.values()
    }

    /// The recordings with this number and above.
    pub(crate) fn recordings_from(&self, from: RecordingId) -> impl Iterator<Item = &Recording> {
        self.recordings
            .range(from..)
            .map(|(_, recording)| recording)
    }

    /// The recordings that match the filter, in the order of their numbers.
    pub fn list(&self, filter: &RecordingFilter) -> impl Iterator<Item = &Recording> {
        self.recordings_from(filter.from)
            .filter(|recording| filter.matches(recording))
            .take(filter.count_max)
    }

    /// The recording with this number.
    pub fn recording(&self, id: RecordingId) -> Option<&Recording> {
        self.recordings.get(&id)
    }

    /// Number of recordings.
    pub fn len(&self) -> usize {
        self.recordings.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.recordings.is_empty()
    }

    /// The lowest number never used.
    pub fn next(&self) -> RecordingId {
        self.next
    }

    /// Inserts a recording that a repair has rebuilt.
    pub(crate) fn insert(&mut self, recording: Recording) {
        self.pass_over(recording.id);
        self.recordings.insert(recording.id, recording);
    }

    /// Marks `id` and all lower numbers as used.
    pub(crate) fn pass_over(&mut self, id: RecordingId) {
        self.next = self.next.max(RecordingId(id.0.saturating_add(1)));
    }

    /// A catalog of only the recordings that the events concern: a scratch copy to apply them to, so that an invalid event
    /// changes nothing.
    fn part(&self, events: &[CatalogEvent]) -> Catalog {
        let known = |event: &CatalogEvent| self.recordings.get(&event.recording).cloned();
        Catalog {
            recordings: (events.iter().filter_map(known))
                .map(|recording| (recording.id, recording))
                .collect(),
            next: self.next,
        }
    }

    /// Replaces the recordings that the events concern by those of `part`.
    fn replace_part(&mut self, events: &[CatalogEvent], mut part: Catalog) {
        for id in events.iter().map(|event| event.recording) {
            self.recordings.remove(&id);
        }
        assert!(part.next >= self.next, "numbers are never used again");
        self.recordings.append(&mut part.recordings);
        self.next = part.next;
    }

    /// Mutable access, for facts about a live recording that are not in its events.
    pub(crate) fn recording_mut(&mut self, id: RecordingId) -> Option<&mut Recording> {
        self.recordings.get_mut(&id)
    }

    /// Applies one event. An error changes nothing.
    pub fn apply(&mut self, event: &CatalogEvent) -> Result<(), EventOrderError> {
        let id = event.recording;
        match &event.kind {
            EventKind::Started { .. } => return self.start(event),
            EventKind::Deleted => return self.delete(id),
            _ => {}
        }
        let recording = self
            .recordings
            .get_mut(&id)
            .ok_or(EventOrderError::Unknown { recording: id })?;
        recording.apply(event)
    }

    fn start(&mut self, event: &CatalogEvent) -> Result<(), EventOrderError> {
        let EventKind::Started {
            tag,
            start,
            segment_length,
            durability,
            ref label,
        } = event.kind
        else {
            return Ok(());
        };
        let id = event.recording;
        if id < self.next || id > RecordingId::MAX {
            return Err(EventOrderError::Number {
                recording: id,
                next: self.next,
            });
        }
        self.pass_over(id);
        let recording = Recording {
            id,
            tag,
            label: label.clone(),
            segment_length,
            durability,
            start,
            end: start,
            started: event.time,
            stopped: None,
            source: None,
        };
        self.recordings.insert(id, recording);
        Ok(())
    }

    /// Deletes a recording. A number that was never used may be deleted too: a compacted catalog records the highest used
    /// number that way.
    fn delete(&mut self, id: RecordingId) -> Result<(), EventOrderError> {
        match self.recordings.get(&id) {
            None if id < self.next => Err(EventOrderError::Unknown { recording: id }),
            _ => {
                self.recordings.remove(&id);
                self.pass_over(id);
                Ok(())
            }
        }
    }

    /// The shortest sequence of events that folds to this catalog.
    pub fn events(&self) -> Vec<CatalogEvent> {
        let mut events = Vec::new();
        for recording in self.recordings.values() {
            recording.push_events(&mut events);
        }
        let last = RecordingId(self.next.0 - 1);
        if last.0 > 0 && !self.recordings.contains_key(&last) {
            events.push(CatalogEvent {
                recording: last,
                time: 0,
                kind: EventKind::Deleted,
            });
        }
        events
    }
}

impl Recording {
    /// Applies an event that concerns this recording alone.
    fn apply(&mut self, event: &CatalogEvent) -> Result<(), EventOrderError> {
        let live = self.stopped.is_none();
        let state = EventOrderError::State {
            recording: self.id,
            live,
        };
        let range = |found: Boundary| EventOrderError::Range {
            recording: self.id,
            start: self.start.position,
            end: self.end.position,
            found: found.position,
        };
        match &event.kind {
            EventKind::Started { .. } | EventKind::Deleted => {}
            EventKind::Extended { .. } if live => return Err(state),
            EventKind::Stopped { .. } if !live => return Err(state),
            EventKind::Extended { end } => {
                if *end != self.end {
                    return Err(range(*end));
                }
                self.stopped = None;
            }
            EventKind::Stopped { end } => {
                if end.position < self.end.position {
                    return Err(range(*end));
                }
                self.end = *end;
                self.stopped = Some(event.time);
            }
            EventKind::Truncated { end } => {
                // The end of a live recording is unknown here, so only a stopped one bounds the new end.
                let is_past_end = !live && end.position > self.end.position;
                if end.position < self.start.position || is_past_end {
                    return Err(range(*end));
                }
                self.end = *end;
                self.stopped.get_or_insert(event.time);
            }
            EventKind::StartMoved { start, .. } => {
                // The end of a live recording is known to its writer only.
                if start.position > self.end.position && !live {
                    return Err(range(*start));
                }
                self.start = *start;
                if self.end.position < start.position {
                    self.end = *start;
                }
            }
            EventKind::Labelled { label } => self.label.clone_from(label),
            EventKind::CopiedFrom { source } => self.source = Some(source.clone()),
        }
        Ok(())
    }

    /// Appends the shortest sequence of events that folds to this recording.
    fn push_events(&self, events: &mut Vec<CatalogEvent>) {
        let mut push = |time, kind| {
            events.push(CatalogEvent {
                recording: self.id,
                time,
                kind,
            });
        };
        let started = EventKind::Started {
            tag: self.tag,
            start: self.start,
            segment_length: self.segment_length,
            durability: self.durability,
            label: self.label.clone(),
        };
        push(self.started, started);
        if let Some(source) = &self.source {
            let source = source.clone();
            push(self.started, EventKind::CopiedFrom { source });
        }
        let end = self.end;
        match self.stopped {
            Some(time) => push(time, EventKind::Stopped { end }),
            None if end != self.start => {
                push(end.time, EventKind::Stopped { end });
                push(end.time, EventKind::Extended { end });
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
