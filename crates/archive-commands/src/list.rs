//! `seatrial archive list` and `describe`.

use crate::archive_arguments::{ListArguments, RecordingArguments};
use crate::archive_place::ArchivePlace;
use crate::entry::{self, RecordingEntry};
use crate::local;
use crate::moment;
use crate::remote;
use anyhow::{Context as _, Result, ensure};
use seatrial_archive::{Archive, Position, RecordingFilter};
use seatrial_archive_service::{LabelFilter, ListFilter, SegmentDescription};
use seatrial_blocks::file::ReadFiles;
use seatrial_terminal::{Exit, complain, say};
use serde_json::json;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Carries `list` out.
pub(crate) fn list(arguments: &ListArguments) -> Result<Exit> {
    let place = ArchivePlace::parse(&arguments.place.archive)?;
    let span = span(arguments)?;
    let mut is_whole = true;
    let entries: Vec<RecordingEntry> = match &place {
        ArchivePlace::Folder(path) => {
            let look = local::look(path)?;
            for (id, problem) in &look.problems {
                complain!("recording {id}: {problem}");
                is_whole = false;
            }
            let filter = RecordingFilter {
                label: arguments.label.clone(),
                time: Some(span),
                position: arguments.position.map(Position),
                ..RecordingFilter::default()
            };
            look.catalog
                .list(&filter)
                .cloned()
                .map(RecordingEntry)
                .collect()
        }
        ArchivePlace::Server(address) => {
            let label = arguments.label.clone().map(LabelFilter::Contains);
            let filter = ListFilter {
                label: label.unwrap_or_default(),
                time_from: *span.start(),
                time_to: *span.end(),
                position: arguments.position,
            };
            let found = remote::connect(*address)?.list(&filter);
            let found = found.with_context(|| place.to_string())?;
            found.iter().map(remote::entry).collect()
        }
    };
    if arguments.place.json {
        let recordings: Vec<_> = entries.iter().map(RecordingEntry::json).collect();
        say!(
            "{:#}",
            json!({"archive": place.to_string(), "recordings": recordings})
        );
    } else if entries.is_empty() {
        complain!("no recordings");
    } else {
        say!("{}", entry::table(&entries));
    }
    Ok(if is_whole { Exit::Valid } else { Exit::Invalid })
}

/// The span of time of which something must be recorded.
fn span(arguments: &ListArguments) -> Result<RangeInclusive<u64>> {
    let now = moment::now();
    let moment = |text: &Option<String>| match text {
        Some(text) => moment::parse(text, now).map(Some),
        None => Ok(None),
    };
    let at = moment(&arguments.at)?;
    let since = at.or(moment(&arguments.since)?).unwrap_or(0);
    let until = at.or(moment(&arguments.until)?).unwrap_or(u64::MAX);
    ensure!(since <= until, "--since is after --until");
    Ok(since..=until)
}

/// Carries `describe` out.
pub(crate) fn describe(arguments: &RecordingArguments) -> Result<Exit> {
    let place = ArchivePlace::parse(&arguments.place.archive)?;
    let wanted = &arguments.recording;
    let mut is_whole = true;
    let (entry, files) = match &place {
        ArchivePlace::Folder(path) => {
            let look = local::look(path)?;
            let recording = local::find(&look.catalog, wanted, path)?;
            for (id, problem) in &look.problems {
                if *id == recording.id {
                    complain!("recording {id}: {problem}");
                    is_whole = false;
                }
            }
            let files = Archive::view_segments(Arc::new(ReadFiles), path, recording);
            let files = files.with_context(|| place.to_string())?;
            let files = files.into_iter().map(SegmentDescription::from).collect();
            (RecordingEntry(recording.clone()), files)
        }
        ArchivePlace::Server(address) => {
            let mut remote = remote::connect(*address)?;
            let found = remote::find(&mut remote, wanted, *address)?;
            let files = remote.segments(found.recording);
            (
                remote::entry(&found),
                files.with_context(|| place.to_string())?,
            )
        }
    };
    let files: Vec<SegmentDescription> = files;
    is_whole &= files.iter().all(|file| file.problem.is_none());
    if arguments.place.json {
        let mut json = entry.json();
        json["files"] = entry.files_json(&files);
        say!("{json:#}");
    } else {
        say!("{}", entry.text());
        say!("{}", entry.files_text(&files));
    }
    Ok(if is_whole { Exit::Valid } else { Exit::Invalid })
}
