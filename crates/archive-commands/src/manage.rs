//! `seatrial archive truncate`, `purge`, `detach`, `attach`, `delete`, `label` and `compact`.

use crate::archive_arguments::{
    BeforeArguments, LabelArguments, PlaceArguments, RecordingArguments, TruncateArguments,
};
use crate::archive_place::ArchivePlace;
use crate::entry::RecordingEntry;
use crate::local;
use crate::moment;
use crate::remote;
use anyhow::{Context as _, Result};
use seatrial_archive::{Archive, ArchiveError};
use seatrial_archive::{Position, RecordingId};
use seatrial_archive_service::ArchiveOperation;
use seatrial_terminal::{Exit, say};
use serde_json::json;

/// Something done to a recording.
enum Change<'a> {
    Truncate(Position),
    Purge(Position),
    Detach(Position),
    Attach,
    Delete,
    Label(&'a str),
}

impl Change<'_> {
    /// For the line that says it is done.
    fn done(&self) -> &'static str {
        match self {
            Change::Truncate(_) => "truncated",
            Change::Purge(_) => "purged",
            Change::Detach(_) => "detached",
            Change::Attach => "attached",
            Change::Delete => "deleted",
            Change::Label(_) => "labelled",
        }
    }

    /// As a server is asked for it.
    fn operation(&self, recording: u64) -> ArchiveOperation {
        match self {
            Change::Truncate(position) => ArchiveOperation::Truncate {
                recording,
                position: position.0,
            },
            Change::Purge(before) => ArchiveOperation::Purge {
                recording,
                before: before.0,
            },
            Change::Detach(before) => ArchiveOperation::Detach {
                recording,
                before: before.0,
            },
            Change::Attach => ArchiveOperation::Attach { recording },
            Change::Delete => ArchiveOperation::Delete { recording },
            Change::Label(label) => ArchiveOperation::Relabel {
                recording,
                label: (*label).to_owned(),
            },
        }
    }

    fn carry_out(&self, archive: &mut Archive, id: RecordingId) -> Result<(), ArchiveError> {
        let now = moment::now();
        match self {
            Change::Truncate(position) => archive.truncate(id, *position, now).map(drop),
            Change::Purge(before) => archive.purge(id, *before, now).map(drop),
            Change::Detach(before) => archive.detach(id, *before, now).map(drop),
            Change::Attach => archive.attach(id, now).map(drop),
            Change::Delete => archive.delete(id, now).map(drop),
            Change::Label(label) => archive.relabel(id, label, now).map(drop),
        }
    }
}

/// Carries `truncate` out.
pub(crate) fn truncate(arguments: &TruncateArguments) -> Result<Exit> {
    change(
        &arguments.recording,
        &Change::Truncate(Position(arguments.to)),
    )
}

/// Carries `purge` out.
pub(crate) fn purge(arguments: &BeforeArguments) -> Result<Exit> {
    change(
        &arguments.recording,
        &Change::Purge(Position(arguments.before)),
    )
}

/// Carries `detach` out.
pub(crate) fn detach(arguments: &BeforeArguments) -> Result<Exit> {
    change(
        &arguments.recording,
        &Change::Detach(Position(arguments.before)),
    )
}

/// Carries `attach` out.
pub(crate) fn attach(arguments: &RecordingArguments) -> Result<Exit> {
    change(arguments, &Change::Attach)
}

/// Carries `delete` out.
pub(crate) fn delete(arguments: &RecordingArguments) -> Result<Exit> {
    change(arguments, &Change::Delete)
}

/// Carries `label` out.
pub(crate) fn label(arguments: &LabelArguments) -> Result<Exit> {
    change(&arguments.recording, &Change::Label(&arguments.label))
}

fn change(arguments: &RecordingArguments, change: &Change<'_>) -> Result<Exit> {
    let place = ArchivePlace::parse(&arguments.place.archive)?;
    let (id, after) = match &place {
        ArchivePlace::Folder(path) => {
            let mut archive = local::open_existing(path)?;
            let id = local::find(&archive.catalog(), &arguments.recording, path)?.id;
            let done = change.carry_out(&mut archive, id);
            done.with_context(|| place.to_string())?;
            (
                id,
                archive.catalog().recording(id).cloned().map(RecordingEntry),
            )
        }
        ArchivePlace::Server(address) => {
            let mut remote = remote::connect(*address)?;
            let number = remote::find(&mut remote, &arguments.recording, *address)?.recording;
            let done = remote.ask(change.operation(number));
            done.with_context(|| place.to_string())?;
            let after = match change {
                Change::Delete => None,
                _ => Some(remote::entry(&remote.describe(number)?)),
            };
            (RecordingId(number), after)
        }
    };
    match (after, arguments.place.json) {
        (Some(entry), true) => say!("{:#}", entry.json()),
        (None, true) => say!("{}", json!({"recording": id.0, "deleted": true})),
        (Some(entry), false) => say!(
            "recording {id}: {}; positions {} to {}, label {:?}",
            change.done(),
            entry.0.start.position,
            entry.0.end.position,
            entry.0.label
        ),
        (None, false) => say!("recording {id}: {}", change.done()),
    }
    Ok(Exit::Valid)
}

/// Carries `compact` out.
pub(crate) fn compact(arguments: &PlaceArguments) -> Result<Exit> {
    let place = ArchivePlace::parse(&arguments.archive)?;
    let lengths = match &place {
        ArchivePlace::Folder(path) => {
            let compacted = local::open_existing(path)?.compact();
            Some(compacted.with_context(|| place.to_string())?)
        }
        ArchivePlace::Server(address) => {
            let done = remote::connect(*address)?.ask(ArchiveOperation::Compact);
            done.with_context(|| place.to_string())?;
            None
        }
    };
    let (before, after) = lengths.unzip();
    if arguments.json {
        say!(
            "{}",
            json!({"archive": place.to_string(), "before": before, "after": after})
        );
    } else if let Some((before, after)) = lengths {
        say!("{place}: the catalog has {after} bytes now, {before} before");
    } else {
        say!("{place}: compacted");
    }
    Ok(Exit::Valid)
}
