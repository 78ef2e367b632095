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
use seatrial_archive::service::{LabelFilter, ListFilter};
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
    let entry = match &place {
        Place::Folder(path) => Entry(folder::find(&folder::view(path)?, wanted, path)?.clone()),
        Place::Server(address) => remote::entry(&remote::find(
            &mut remote::connect(*address)?,
            wanted,
            *address,
        )?),
    };
    if arguments.place.json {
        say!("{:#}", entry.json());
    } else {
        say!("{}", entry.text());
    }
    Ok(Exit::Valid)
}
