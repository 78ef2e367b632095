//! A recording as a line of a table, as text, as JSON.
//! (`docs/formats/archive-json.md`).

use crate::moment;
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_archive::{Durability, Position, Recording, SegmentName};
use seatrial_archive_service::SegmentDescription;
use seatrial_machine::thousands;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Default limit of a group commit's delay, in milliseconds …
const GROUP_MILLISECONDS: u32 = 20;
/// … and is no longer than this, in bytes.
const GROUP_BYTES: u64 = 8 << 20;

/// One recording.
#[derive(Clone, Debug)]
pub(crate) struct RecordingEntry(pub(crate) Recording);

impl RecordingEntry {
    /// As JSON.
    pub(crate) fn json(&self) -> Value {
        let Recording {
            id,
            // Over a network it is not known.
            tag: _,
            label,
            segment_length,
            durability,
            start,
            end,
            started,
            stopped,
            source,
        } = &self.0;
        json!({
            "recording": id.0,
            "label": label,
            "state": self.state(),
            "started": moment::show(*started),
            "stopped": stopped.map(moment::show),
            "start": start.position.0,
            "end": end.position.0,
            "bytes": self.0.bytes(),
            "first_message": start.message,
            "next_message": end.message,
            "messages": self.0.messages(),
            "segment_length": segment_length,
            "durability": durability_json(*durability),
            "source": source.as_ref().map(|source| json!({
                "archive": source.archive,
                "recording": source.recording.0,
            })),
        })
    }

    /// Is it being recorded (or was when its process ended), or not?
    pub(crate) fn state(&self) -> &'static str {
        if self.0.stopped.is_some() {
            "stopped"
        } else {
            "recording"
        }
    }

    /// Over several lines.
    pub(crate) fn text(&self) -> String {
        let recording = &self.0;
        let mut text = format!("recording {}", recording.id);
        let mut line = |name: &str, value: String| {
            let _ = write!(text, "\n  {name:<15} {value}");
        };
        line("label", recording.label.clone());
        line("state", self.state().to_owned());
        line("started", moment::show(recording.started));
        if let Some(stopped) = recording.stopped {
            line("stopped", moment::show(stopped));
        }
        let (start, end) = (&recording.start, &recording.end);
        line(
            "positions",
            format!("{} to {}", start.position, end.position),
        );
        line("bytes", thousands(recording.bytes()));
        line(
            "messages",
            format!(
                "{} (numbers {} to {})",
                thousands(recording.messages()),
                start.message,
                end.message
            ),
        );
        line("segment length", thousands(recording.segment_length));
        line("durability", durability_text(recording.durability));
        if let Some(source) = &recording.source {
            line(
                "copied from",
                format!("recording {} of {}", source.recording, source.archive),
            );
        }
        text
    }
}

impl RecordingEntry {
    fn file(&self, segment: &SegmentDescription) -> String {
        let start = Position(segment.start);
        let recording = self.0.id;
        SegmentName { recording, start }.file()
    }

    /// Its files as JSON.
    pub(crate) fn files_json(&self, files: &[SegmentDescription]) -> Value {
        let file = |segment: &SegmentDescription| {
            json!({
                "file": self.file(segment),
                "state": state(segment),
                "start": segment.start,
                "length": segment.length,
                "first_message": segment.first_message,
                "problem": segment.problem,
            })
        };
        files.iter().map(file).collect()
    }

    /// Its files as a table.
    pub(crate) fn files_text(&self, files: &[SegmentDescription]) -> String {
        if files.is_empty() {
            return "  no files".to_owned();
        }
        let head = ["FILE", "STATE", "START", "BYTES", "FIRST MESSAGE", "CHECK"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(files.iter().map(|segment| {
            let first = segment.first_message;
            [
                self.file(segment),
                state(segment).to_owned(),
                segment.start.to_string(),
                thousands(segment.length),
                first.map_or("?".to_owned(), |first| first.to_string()),
                segment.problem.clone().unwrap_or("ok".to_owned()),
            ]
        }));
        columns(&rows, |column| (2..=4).contains(&column))
    }
}

/// Do readers see the file?
fn state(segment: &SegmentDescription) -> &'static str {
    if segment.is_detached {
        "detached"
    } else {
        "attached"
    }
}

/// Recordings as a table; where copies came from, if there are any.
pub(crate) fn table(entries: &[RecordingEntry]) -> String {
    let head = [
        "ID", "LABEL", "STATE", "STARTED", "MESSAGES", "BYTES", "START", "END",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let has_copies = entries.iter().any(|entry| entry.0.source.is_some());
    if has_copies {
        rows[0].push("COPY OF".to_owned());
    }
    for entry in entries {
        let recording = &entry.0;
        let mut row = vec![
            recording.id.to_string(),
            recording.label.replace(char::is_control, "?"),
            entry.state().to_owned(),
            moment::show_seconds(recording.started),
            thousands(recording.messages()),
            thousands(recording.bytes()),
            recording.start.position.to_string(),
            recording.end.position.to_string(),
        ];
        if has_copies {
            row.push(recording.source.as_ref().map_or(String::new(), |source| {
                let archive = source.archive.replace(char::is_control, "?");
                format!("{} of {archive}", source.recording)
            }));
        }
        rows.push(row);
    }
    columns(&rows, |column| !matches!(column, 1..=3 | 8))
}

/// Cells under each other; those of some columns end at the right.
pub(crate) fn columns(rows: &[impl AsRef<[String]>], right: impl Fn(usize) -> bool) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let count = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut lines = Vec::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.as_ref().iter().enumerate() {
            let width = widths[column];
            let _ = if right(column) {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

/// What a user types: `none`, `batch`, `group`, `group:MS` or `group:MS:BYTES`.
pub(crate) fn parse_durability(text: &str) -> Result<Durability> {
    let wrong = || {
        format!(
            "{text:?} is no durability; there are: none, group, group:MS, group:MS:BYTES, batch"
        )
    };
    let mut parts = text.split(':');
    let level = parts.next().unwrap_or_default();
    let numbers: Vec<u64> = parts
        .map(|part| part.parse().with_context(wrong))
        .collect::<Result<_>>()?;
    Ok(match (level, &numbers[..]) {
        ("none", []) => Durability::None,
        ("batch", []) => Durability::Batch,
        ("group", []) => Durability::Group {
            milliseconds: GROUP_MILLISECONDS,
            bytes: GROUP_BYTES,
        },
        ("group", [milliseconds, rest @ ..]) if rest.len() <= 1 => {
            let milliseconds = u32::try_from(*milliseconds).with_context(wrong)?;
            ensure!(
                milliseconds > 0,
                "{}: a group takes at least one millisecond",
                wrong()
            );
            Durability::Group {
                milliseconds,
                bytes: rest.first().copied().unwrap_or(GROUP_BYTES),
            }
        }
        _ => bail!(wrong()),
    })
}

/// As it is typed.
pub(crate) fn durability_text(durability: Durability) -> String {
    match durability {
        Durability::None => "none".to_owned(),
        Durability::Batch => "batch".to_owned(),
        Durability::Group {
            milliseconds,
            bytes,
        } => format!("group:{milliseconds}:{bytes}"),
    }
}

fn durability_json(durability: Durability) -> Value {
    match durability {
        Durability::None => json!({"level": "none"}),
        Durability::Batch => json!({"level": "batch"}),
        Durability::Group {
            milliseconds,
            bytes,
        } => {
            json!({"level": "group", "milliseconds": milliseconds, "bytes": bytes})
        }
    }
}
