//! Judging a file of transactions with the database's timestamps without making operations of them.

use super::counted::Counted;
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::source::Reading;
use anyhow::{Context as _, Result};
use seatrial_checker::txn::{Promise, Timestamped, Timestamps};
use seatrial_history::import::Format;
use seatrial_history::import::registers::TransactionReader;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::path::Path;
use std::time::Instant;

/// What the timestamps of the file are held to, when it has some and nothing else is asked for.
pub(super) fn wanted(path: &Path, arguments: &CheckArguments) -> Result<Option<Promise>> {
    let names = arguments.checker.as_deref().unwrap_or_default();
    let others = names.iter().any(|name| name != "timestamps");
    let whole = arguments.report.is_some() || arguments.findings.is_some() || arguments.record;
    if others || whole || arguments.salvage || !path.is_file() {
        return Ok(None);
    }
    let reading = Reading::by_name(&arguments.format)?;
    if reading.text_format(path)? != Some(Format::TimeKiller) {
        return Ok(None);
    }
    Ok(match arguments.model.as_deref() {
        None => Some(Promise::default()),
        // A model that timestamps say nothing about is for other checkers.
        Some(name) => Promise::ALL.into_iter().find(|one| one.name() == name),
    })
}

/// Judges the file at `path` and shows the verdict unless it goes into a document.
pub(super) fn check(
    path: &Path,
    promise: Promise,
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let mut reader = TransactionReader::open(&name, file, Format::TimeKiller, arguments.options());
    let mut gathered = Timestamped::default();
    while reader.advance(&mut gathered)? {}
    let mut verdict = Timestamps::new(promise).judge(&gathered);
    // Such files tell of nothing else.
    verdict.details["ok"] = gathered.len().into();
    let why = if arguments.checker.is_some() {
        "asked for"
    } else {
        "by the format of the file"
    };
    let counted = Counted {
        path,
        why: Some(why.to_owned()),
        attributes: &json!({"name": name, "format": Format::TimeKiller.name()}),
        verdict,
        warning: None,
        seconds: 0.0,
        events: None,
        began,
    };
    Ok(counted.conclude(arguments))
}
