//! `seatrial archive list` and `describe`.

use super::entry::{self, Entry};
use super::folder;
use super::moment;
use super::place::Place;
use super::remote;
use crate::args::{ListArguments, RecordingArguments};
use crate::exit::Exit;
use crate::output::say;
use anyhow::{Context as _, Result};
use seatrial_archive::file::Files;
use seatrial_archive::service::{LabelFilter, ListFilter, SegmentDescription};
use seatrial_archive::{Archive, Filter, Position};
use serde_json::json;
use std::sync::Arc;

/// Carries `list` out.
pub(super) fn list(arguments: &ListArguments) -> Result<Exit> {
    let place = Place::parse(&arguments.place.archive)?;
    let at = arguments
        .at
        .as_ref()
        .map(|text| moment::parse(text, moment::now()))
        .transpose()?;
    let entries: Vec<Entry> = match &place {
        Place::Folder(path) => {
            let filter = Filter {
                label: arguments.label.clone(),
                time: at.map(|at| at..=at),
                position: arguments.position.map(Position),
                ..Filter::default()
            };
            folder::view(path)?
                .list(&filter)
                .cloned()
                .map(Entry)
                .collect()
        }
        Place::Server(address) => {
            let label = arguments.label.clone().map(LabelFilter::Contains);
            let filter = ListFilter {
                label: label.unwrap_or_default(),
                time_from: at.unwrap_or(0),
                time_to: at.unwrap_or(u64::MAX),
                position: arguments.position,
            };
            let found = remote::connect(*address)?.list(&filter);
            let found = found.with_context(|| place.to_string())?;
            found.iter().map(remote::entry).collect()
        }
    };
    if arguments.place.json {
        let recordings: Vec<_> = entries.iter().map(Entry::json).collect();
        say!(
            "{:#}",
            json!({"archive": place.to_string(), "recordings": recordings})
        );
    } else if entries.is_empty() {
        eprintln!("no recordings");
    } else {
        say!("{}", entry::table(&entries));
    }
    Ok(Exit::Valid)
}

/// Carries `describe` out.
pub(super) fn describe(arguments: &RecordingArguments) -> Result<Exit> {
    let place = Place::parse(&arguments.place.archive)?;
    let wanted = &arguments.recording;
    let (entry, files) = match &place {
        Place::Folder(path) => {
            let catalog = folder::view(path)?;
            let recording = folder::find(&catalog, wanted, path)?;
            let files = Archive::view_segments(Arc::new(Files), path, recording);
            let files = files.with_context(|| place.to_string())?;
            let files = files.into_iter().map(SegmentDescription::from).collect();
            (Entry(recording.clone()), files)
        }
        Place::Server(address) => {
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
    if arguments.place.json {
        let mut json = entry.json();
        json["files"] = entry.files_json(&files);
        say!("{json:#}");
    } else {
        say!("{}", entry.text());
        say!("{}", entry.files_text(&files));
    }
    Ok(Exit::Valid)
}
