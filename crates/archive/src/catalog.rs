//! Which recordings an archive holds: events, and what they add up to. Byte map in `docs/formats/archive.md`.

mod event;
mod log;
mod mark;

pub use event::{Event, EventError, EventKind};
pub use log::CatalogError;
pub(crate) use log::{
    CATALOG, CATALOG_DAMAGED, CATALOG_NEW, CatalogLog, encode_events, read, read_folder,
};
pub(crate) use mark::{CatalogMark, clear as clear_mark};

use crate::recording::Durability;
use crate::{Position, RecordingId, RecordingTag};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The longest label of a recording and name of a source, in bytes.
pub const LABEL_LENGTH_MAX: usize = 1 << 10;
/// The most recordings an archive holds at a time.
pub const RECORDINGS_MAX: usize = 1_000_000;

/// A place between two blocks of a recording: what is before it is told apart from what comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Where the next block goes.
    pub position: Position,
    /// The number of the next message.
    pub message: u64,
    /// The number of the next block.
    pub sequence: u64,
    /// No batch before is younger, and none behind older: nanoseconds since 1970.
    pub time: u64,
}

impl Boundary {
    /// The place behind a block of `length` bytes that goes here; nothing when there are not so many positions or numbers.
    pub fn after_block(&self, length: u64, messages: u32, time: u64) -> Option<Boundary> {
        let position = self.position.0.checked_add(length)?;
        // The last position itself is kept free: it is where sums saturate.
        (position < u64::MAX).then_some(Boundary {
            position: Position(position),
            message: self.message.checked_add(u64::from(messages))?,
            sequence: self.sequence.checked_add(1)?,
            time,
        })
    }
}

/// Where a recording was copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The other archive, as whoever copied calls it.
    pub archive: String,
    /// The recording's number there.
    pub recording: RecordingId,
}

/// What is known of one recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Its number.
    pub id: RecordingId,
    /// What its blocks are known by; nothing when it was begun before there were tags.
    pub tag: Option<RecordingTag>,
    /// Its name; several may have the same.
    pub label: String,
    /// The length after which a segment is followed by the next one, in bytes.
    pub segment_length: u64,
    /// What an append waits for.
    pub durability: Durability,
    /// Where it starts; moved by purging, detaching and attaching.
    pub start: Boundary,
    /// Where it ends. While it is being recorded: at least here.
    pub end: Boundary,
    /// When it was started: nanoseconds since 1970.
    pub started: u64,
    /// When it was stopped for the last time; nothing while it is being recorded.
    pub stopped: Option<u64>,
    /// Where it was copied from, if it was.
    pub source: Option<Source>,
}

impl Recording {
    /// Messages from start to end.
    pub fn messages(&self) -> u64 {
        self.end.message.saturating_sub(self.start.message)
    }

    /// Bytes from start to end, headers included.
    pub fn bytes(&self) -> u64 {
        self.end.position.since(self.start.position)
    }
}

/// Which recordings are meant: those that meet every condition that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The label contains this.
    pub label: Option<String>,
    /// Something was recorded in this span of nanoseconds since 1970: it was begun before the span's end and goes on to
    /// its start or beyond.
    pub time: Option<RangeInclusive<u64>>,
    /// This position lies between start (inclusive) and end (exclusive).
    pub position: Option<Position>,
    /// The lowest number.
    pub from: RecordingId,
    /// How many at most, in the order of their numbers.
    pub count_max: usize,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter {
            label: None,
            time: None,
            position: None,
            from: RecordingId(0),
            count_max: usize::MAX,
        }
    }
}

impl Filter {
    /// Does the recording meet all conditions but `count_max`?
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

/// An event that does not follow from the ones before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// A number that was given out before, or that no segment's name has room for.
    #[error("recording {recording} cannot be started: the next number is {next}")]
    Number {
        /// The number.
        recording: RecordingId,
        /// The lowest one that may be given out.
        next: RecordingId,
    },
    /// There is no such recording.
    #[error("there is no recording {recording}")]
    Unknown {
        /// The number.
        recording: RecordingId,
    },
    /// It is being recorded, and the event is for stopped ones, or the other way round.
    #[error("recording {recording} is {}", if *.live { "being recorded" } else { "stopped" })]
    State {
        /// The number.
        recording: RecordingId,
        /// Is it being recorded?
        live: bool,
    },
    /// A start behind the end, an end before the start, or an extension from elsewhere than the end.
    #[error("recording {recording} lies from {start} to {end}, the event is for {found}")]
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

/// All recordings of an archive: its events added up. A value, so that readers keep theirs while the archive goes on.
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

    /// The recordings that meet the conditions, in the order of their numbers.
    pub fn list(&self, filter: &Filter) -> impl Iterator<Item = &Recording> {
        self.recordings_from(filter.from)
            .filter(|recording| filter.matches(recording))
            .take(filter.count_max)
    }

    /// The recording with this number.
    pub fn recording(&self, id: RecordingId) -> Option<&Recording> {
        self.recordings.get(&id)
    }

    /// How many recordings there are.
    pub fn len(&self) -> usize {
        self.recordings.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.recordings.is_empty()
    }

    /// The lowest number that was never given out.
    pub fn next(&self) -> RecordingId {
        self.next
    }

    /// Takes a recording over that was made again.
    pub(crate) fn insert(&mut self, recording: Recording) {
        self.pass_over(recording.id);
        self.recordings.insert(recording.id, recording);
    }

    /// Never gives out `id` and the numbers below it.
    pub(crate) fn pass_over(&mut self, id: RecordingId) {
        self.next = self.next.max(RecordingId(id.0.saturating_add(1)));
    }

    /// The recordings that the events are about.
    fn part(&self, events: &[Event]) -> Catalog {
        let known = |event: &Event| self.recordings.get(&event.recording).cloned();
        Catalog {
            recordings: (events.iter().filter_map(known))
                .map(|recording| (recording.id, recording))
                .collect(),
            next: self.next,
        }
    }

    /// Takes over the recordings that the events are about.
    fn replace_part(&mut self, events: &[Event], mut part: Catalog) {
        for id in events.iter().map(|event| event.recording) {
            self.recordings.remove(&id);
        }
        self.recordings.append(&mut part.recordings);
        self.next = part.next;
    }

    /// For what is known of a live recording beyond its events.
    pub(crate) fn recording_mut(&mut self, id: RecordingId) -> Option<&mut Recording> {
        self.recordings.get_mut(&id)
    }

    /// Adds one event. An error changes nothing.
    pub fn apply(&mut self, event: &Event) -> Result<(), FoldError> {
        let id = event.recording;
        match &event.kind {
            EventKind::Started { .. } => return self.start(event),
            EventKind::Deleted => return self.delete(id),
            _ => {}
        }
        let recording = self
            .recordings
            .get_mut(&id)
            .ok_or(FoldError::Unknown { recording: id })?;
        recording.apply(event)
    }

    fn start(&mut self, event: &Event) -> Result<(), FoldError> {
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
            return Err(FoldError::Number {
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

    /// A number that was never given out may be deleted too: a compacted catalog keeps the highest one so.
    fn delete(&mut self, id: RecordingId) -> Result<(), FoldError> {
        match self.recordings.get(&id) {
            None if id < self.next => Err(FoldError::Unknown { recording: id }),
            _ => {
                self.recordings.remove(&id);
                self.pass_over(id);
                Ok(())
            }
        }
    }

    /// The fewest events that add up to this catalog.
    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for recording in self.recordings.values() {
            recording.push_events(&mut events);
        }
        let last = RecordingId(self.next.0 - 1);
        if last.0 > 0 && !self.recordings.contains_key(&last) {
            events.push(Event {
                recording: last,
                time: 0,
                kind: EventKind::Deleted,
            });
        }
        events
    }
}

impl Recording {
    /// Adds an event that concerns this recording alone.
    fn apply(&mut self, event: &Event) -> Result<(), FoldError> {
        let live = self.stopped.is_none();
        let state = FoldError::State {
            recording: self.id,
            live,
        };
        let range = |found: Boundary| FoldError::Range {
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
                // The end of one that was never stopped is not known here.
                let is_behind = !live && end.position > self.end.position;
                if end.position < self.start.position || is_behind {
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

    /// The fewest events that add up to this recording.
    fn push_events(&self, events: &mut Vec<Event>) {
        let mut push = |time, kind| {
            events.push(Event {
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
