//! `seatrial archive list` and `describe`.

use super::entry::{self, Entry};
use super::folder;
use super::moment;
use super::place::Place;
use crate::args::{ListArguments, RecordingArguments};
use crate::exit::Exit;
use crate::output::say;
use anyhow::Result;
use seatrial_archive::{Filter, Position};
use serde_json::json;

/// Carries `list` out.
pub(super) fn list(arguments: &ListArguments) -> Result<Exit> {
    let place = Place::parse(&arguments.place.archive)?;
    let at = arguments
        .at
        .as_ref()
        .map(|text| moment::parse(text, moment::now()))
        .transpose()?;
    let filter = Filter {
        label: arguments.label.clone(),
        time: at.map(|at| at..=at),
        position: arguments.position.map(Position),
        ..Filter::default()
    };
    let catalog = folder::view(place.folder()?)?;
    let entries: Vec<Entry> = catalog.list(&filter).cloned().map(Entry).collect();
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
    let path = place.folder()?;
    let entry = Entry(folder::find(&folder::view(path)?, &arguments.recording, path)?.clone());
    if arguments.place.json {
        say!("{:#}", entry.json());
    } else {
        say!("{}", entry.text());
    }
    Ok(Exit::Valid)
}
