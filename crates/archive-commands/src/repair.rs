//! `seatrial archive repair-catalog`: rebuilds a damaged or lost catalog.

use crate::archive_arguments::RepairCatalogArguments;
use crate::archive_place::ArchivePlace;
use crate::entry::{self, RecordingEntry};
use crate::local;
use anyhow::{Context as _, Result, ensure};
use seatrial_archive::{Archive, RecordingId};
use seatrial_blocks::file::ReadFiles;
use seatrial_terminal::{Exit, say};
use serde_json::{Value, json};
use std::sync::Arc;

/// Carries the verb out.
pub(crate) fn run(arguments: &RepairCatalogArguments) -> Result<Exit> {
    let place = ArchivePlace::parse(&arguments.archive)?;
    let path = place.folder()?;
    ensure!(
        local::has_catalog(path) || local::has_segments(path),
        "{place}: there is no archive"
    );
    let repair = Archive::repair_catalog(Arc::new(ReadFiles), path);
    let repair = repair.with_context(|| place.to_string())?;
    // Opening finds the ends of recordings whose end is lost from the catalog.
    let archive = local::open(path)?;
    let entries: Vec<RecordingEntry> = archive
        .catalog()
        .recordings()
        .cloned()
        .map(RecordingEntry)
        .collect();
    let is_whole = repair.kept.is_none();
    let numbers = |ids: &[RecordingId]| ids.iter().map(|id| id.0).collect::<Vec<u64>>();
    if arguments.json {
        let recordings: Vec<Value> = entries.iter().map(RecordingEntry::json).collect();
        say!(
            "{:#}",
            json!({
                "archive": place.to_string(),
                "whole": is_whole,
                "damage": repair.damages,
                "found": numbers(&repair.found),
                "dropped": numbers(&repair.dropped),
                "kept": repair.kept.as_ref().map(|path| path.display().to_string()),
                "recordings": recordings,
            })
        );
    } else {
        for damage in &repair.damages {
            say!("catalog: {damage}");
        }
        for id in &repair.found {
            say!("recording {id}: found by its files; its label is lost");
        }
        for id in &repair.dropped {
            say!("recording {id}: none of its files is usable");
        }
        match &repair.kept {
            Some(kept) => say!(
                "the catalog was rebuilt; the damaged one is kept in {}",
                kept.display()
            ),
            None => say!("the catalog is intact and was not changed"),
        }
        if !entries.is_empty() {
            say!("{}", entry::table(&entries));
        }
    }
    Ok(if is_whole { Exit::Valid } else { Exit::Invalid })
}
