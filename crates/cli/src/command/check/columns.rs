//! Judging a file of transactions without times, straight into columns.

use super::counted::Counted;
use super::registers;
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::source::Reading;
use crate::times::Promise;
use anyhow::{Context as _, Result, ensure};
use seatrial_checker::by_name;
use seatrial_checker::txn::isolation::{Isolation, Model};
use seatrial_checker::txn::registers::{Builder, Columns, Refusal};
use seatrial_history::Provenance;
use seatrial_history::import::Format;
use seatrial_history::import::registers::TransactionReader;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::path::Path;
use std::time::Instant;

/// The format of a file that needs no operations: transactions without times, if isolation alone is asked for and
/// nobody wants what is made of operations.
pub(super) fn wanted(path: &Path, arguments: &CheckArguments) -> Result<Option<Format>> {
    let names = arguments.checker.as_deref().unwrap_or_default();
    let is_plain = !(arguments.salvage
        || arguments.record
        || arguments.report.is_some()
        || arguments.findings.is_some());
    let is_isolation = matches!(names, [name] if name == Isolation::NAME);
    if !is_plain || !is_isolation || !path.is_file() {
        return Ok(None);
    }
    let format = Reading::by_name(&arguments.format)?.text_format(path)?;
    // Cobra's logs are a folder.
    let is_one = |format: &Format| !format.has_times() && *format != Format::Cobra;
    Ok(format.filter(is_one))
}

/// Judges the file at `path` and shows the verdict unless it goes into a document.
pub(super) fn check(
    path: &Path,
    format: Format,
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let name = path.display().to_string();
    let mut attributes = json!({"name": name, "format": format.name()});
    // No format that is read into columns has times.
    Provenance::default().timeless().add_to(&mut attributes);
    let promise = Promise::of(arguments.model.as_deref(), &attributes);
    let model = promise.model();
    by_name(Isolation::NAME, model).with_context(|| name.clone())?;
    let model = model.and_then(Model::by_name).unwrap_or_default();
    let columns = read(path, format, arguments)?;
    let checker = registers::ordered(Isolation::new(model), arguments)?;
    let mut verdicts = [checker.judge_gathered(columns)];
    promise.weaken(&mut verdicts, arguments.undecided.accept_undecided);
    let [verdict] = verdicts;
    let why = if arguments.checker.is_some() {
        "asked for"
    } else {
        "by the format of the file"
    };
    let counted = Counted {
        path,
        why: Some(why.to_owned()),
        attributes: &attributes,
        verdict,
        warning: promise.warning(),
        seconds: 0.0,
        events: None,
        began,
    };
    Ok(counted.conclude(arguments))
}

/// The columns of the file. What cannot be judged is no error of the file's.
fn read(
    path: &Path,
    format: Format,
    arguments: &CheckArguments,
) -> Result<Result<Columns, Refusal>> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let mut builder = Builder::default();
    let mut reader = TransactionReader::open(&name, file, format, arguments.options());
    while reader.advance(&mut builder)? {}
    ensure!(!builder.is_empty(), "{name}: there is no transaction in it");
    Ok(builder.finish())
}
