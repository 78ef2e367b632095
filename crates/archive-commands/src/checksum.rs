//! `seatrial archive checksum`: what the messages of recordings are, in one number, and whether two archives have the same.

use crate::archive_arguments::ChecksumArguments;
use crate::archive_place::ArchivePlace;
use crate::entry::columns;
use crate::local;
use anyhow::{Context as _, Result};
use seatrial_archive::{Catalog, Digest, Recording, digest};
use seatrial_blocks::file::ReadFiles;
use seatrial_machine::{Storage, counted, thousands};
use seatrial_terminal::{Exit, say};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A folder and what is in it.
struct Side<'a> {
    place: &'a ArchivePlace,
    path: &'a Path,
    catalog: Catalog,
}

impl<'a> Side<'a> {
    fn new(place: &'a ArchivePlace) -> Result<Side<'a>> {
        let path = place.folder()?;
        let catalog = local::view(path)?;
        Ok(Side {
            place,
            path,
            catalog,
        })
    }

    fn digest(&self, recording: &Recording, numbers: Range<u64>) -> Result<Digest> {
        let storage: Arc<dyn Storage> = Arc::new(ReadFiles);
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        digest(&storage, self.path, recording.id, numbers, threads, &|_| {})
            .with_context(|| self.place.to_string())
    }

    /// The recording here that a copy was made from, or that is a copy of it, or else has the same number.
    fn counterpart(&self, other: &Side<'_>, recording: &Recording) -> Option<&Recording> {
        let name = |side: &Side<'_>| {
            side.path
                .canonicalize()
                .map(|path| path.display().to_string())
        };
        let (here, there) = (name(self).ok(), name(other).ok());
        let is_from = |copy: &Recording, archive: &Option<String>, original: &Recording| {
            copy.source.as_ref().is_some_and(|source| {
                Some(&source.archive) == archive.as_ref() && source.recording == original.id
            })
        };
        self.catalog
            .recordings()
            .find(|one| is_from(one, &there, recording) || is_from(recording, &here, one))
            .or_else(|| self.catalog.recording(recording.id))
    }
}

/// Carries the verb out.
pub(crate) fn run(arguments: &ChecksumArguments) -> Result<Exit> {
    let place = ArchivePlace::parse(&arguments.place.archive)?;
    let here = Side::new(&place)?;
    let recordings: Vec<&Recording> = match &arguments.recording {
        Some(wanted) => vec![local::find(&here.catalog, wanted, here.path)?],
        None => here.catalog.recordings().collect(),
    };
    match &arguments.against {
        None => print(arguments, &here, &recordings),
        Some(other) => {
            let other = ArchivePlace::parse(other)?;
            compare(arguments, &here, &Side::new(&other)?, &recordings)
        }
    }
}

fn hexadecimal(digest: &Digest) -> String {
    format!("{:08x}", digest.checksum)
}

/// A line for each recording.
fn print(
    arguments: &ChecksumArguments,
    here: &Side<'_>,
    recordings: &[&Recording],
) -> Result<Exit> {
    let head = ["ID", "LABEL", "MESSAGES", "CHECKSUM"].map(str::to_owned);
    let (mut rows, mut values) = (vec![head], Vec::new());
    for recording in recordings {
        let digest = here.digest(recording, 0..u64::MAX)?;
        rows.push([
            recording.id.to_string(),
            recording.label.replace(char::is_control, "?"),
            thousands(digest.messages),
            hexadecimal(&digest),
        ]);
        values.push(json!({
            "recording": recording.id.0,
            "label": recording.label,
            "messages": digest.messages,
            "checksum": hexadecimal(&digest),
        }));
    }
    if arguments.place.json {
        say!(
            "{:#}",
            json!({"archive": here.place.to_string(), "recordings": values})
        );
    } else {
        say!("{}", columns(&rows, |column| column == 0 || column == 2));
    }
    Ok(Exit::Valid)
}

/// Compares the messages of each recording with those of the other archive.
fn compare(
    arguments: &ChecksumArguments,
    here: &Side<'_>,
    there: &Side<'_>,
    recordings: &[&Recording],
) -> Result<Exit> {
    let (mut values, mut all_alike) = (Vec::new(), true);
    for recording in recordings {
        let (id, label) = (recording.id, &recording.label);
        let mine = here.digest(recording, 0..u64::MAX)?;
        let other = there.counterpart(here, recording);
        let theirs = other
            .map(|other| there.digest(other, 0..u64::MAX))
            .transpose()?;
        let is_alike = theirs.is_some_and(|theirs| {
            theirs == mine
                && other.is_some_and(|other| other.start.message == recording.start.message)
        });
        all_alike &= is_alike;
        let difference = match other {
            None => format!("there is none in {}", there.place),
            Some(_) if is_alike => format!("alike, {}", counted(mine.messages, "message")),
            Some(other) => difference(here, there, recording, other)?,
        };
        if !arguments.place.json {
            say!("recording {id} ({label:?}): {difference}");
        }
        let value =
            |digest: &Digest| json!({"messages": digest.messages, "checksum": hexadecimal(digest)});
        values.push(json!({
            "recording": id.0,
            "label": label,
            "alike": is_alike,
            "here": value(&mine),
            "there": theirs.as_ref().map_or(Value::Null, value),
            "difference": (!is_alike).then_some(difference),
        }));
    }
    if arguments.place.json {
        let (archive, against) = (here.place.to_string(), there.place.to_string());
        say!(
            "{:#}",
            json!({
                "archive": archive, "against": against, "alike": all_alike, "recordings": values,
            })
        );
    }
    Ok(if all_alike {
        Exit::Valid
    } else {
        Exit::Invalid
    })
}

/// How two recordings differ: in what both have, or only in what one of them lacks.
fn difference(
    here: &Side<'_>,
    there: &Side<'_>,
    mine: &Recording,
    theirs: &Recording,
) -> Result<String> {
    let range = |recording: &Recording| {
        format!(
            "messages {} to {}",
            recording.start.message, recording.end.message
        )
    };
    let common =
        mine.start.message.max(theirs.start.message)..mine.end.message.min(theirs.end.message);
    let both = if common.is_empty() {
        "no message is in both".to_owned()
    } else {
        let same = here.digest(mine, common.clone())? == there.digest(theirs, common.clone())?;
        let verdict = if same { "are alike" } else { "DIFFER" };
        format!(
            "messages {} to {}, which are in both, {verdict}",
            common.start, common.end
        )
    };
    Ok(format!(
        "they differ: {} here, {} there; {both}",
        range(mine),
        range(theirs)
    ))
}
