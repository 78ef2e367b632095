//! `seatrial import`: a foreign history becomes a test file.

use crate::args::{ImportArguments, SourceArguments};
use crate::load::{damages, is_test_file};
use crate::meter::ProgressMeter;
use crate::opened::{Opened, of_source};
use crate::place::Place;
use crate::source::{HistorySource, Reading};
use anyhow::Result;
use seatrial_checker::MissingPart;
use seatrial_history::{HistoryWriter, TestFile, salvage_to};
use seatrial_machine::counted;
use seatrial_terminal::{Exit, complain, say};
use serde_json::Value as Json;
use std::ops::ControlFlow;

/// Carries the verb out.
pub(crate) fn run(arguments: &ImportArguments) -> Result<Exit> {
    let place = Place::new(&arguments.out, arguments.force)?;
    if arguments.source.salvage && is_test(&arguments.source)? {
        return salvage(arguments, place);
    }
    let path = &arguments.source.file;
    let mut opened = Opened::open(path, arguments.source.opening()?)?;
    let results = if path.is_file() || path.is_dir() {
        HistorySource::of(&arguments.source)?.results()?
    } else {
        None
    };
    let events = write(&opened, results.as_ref(), &place, arguments.quiet)?;
    place.keep()?;
    opened.take_reading_notes();
    for warning in &opened.warnings {
        complain!("seatrial: {warning}");
    }
    if !arguments.quiet {
        say!(
            " {}   {}",
            counted(events, "event"),
            arguments.out.display()
        );
    }
    Ok(Exit::Valid)
}

fn is_test(source: &SourceArguments) -> Result<bool> {
    let reading = Reading::by_name(&source.format)?;
    Ok(reading == Reading::Sea || (reading == Reading::Auto && is_test_file(&source.file)))
}

/// Writes what is left of a damaged test file as a whole one, which says what it lacks. The damaged file stays as it is.
fn salvage(arguments: &ImportArguments, place: Place) -> Result<Exit> {
    let salvaged = salvage_to(&arguments.source.file, place.partial())?;
    place.keep()?;
    let missing = MissingPart::of_salvaged(&salvaged, 0);
    let missing = missing.iter().map(MissingPart::warning);
    for warning in missing.chain(damages(&salvaged)) {
        complain!("seatrial: {warning}");
    }
    if !arguments.quiet {
        let out = arguments.out.display();
        say!(" {}   {out}", counted(salvaged.len(), "event"));
    }
    Ok(Exit::Valid)
}

/// Writes all of a history as a test file; how many events it has (invocations and completions).
///
/// What the history is worth (times, independent keys, missing parts) is known before the first operation is written, and goes
/// into the attributes.
pub(super) fn write(
    opened: &Opened,
    results: Option<&Json>,
    place: &Place,
    quiet: bool,
) -> Result<u64> {
    let mut meter = ProgressMeter::new(opened.length, quiet);
    let mut writer = HistoryWriter::create(place.partial(), &opened.attributes)?;
    let mut failure = None;
    let round = opened.source.round(&mut |chunk| {
        for op in chunk.ops() {
            meter.step(opened.done(meter.events()));
            if let Err(error) = writer.push(&op) {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    round.map_err(of_source)?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    writer.seal()?;
    if let Some(results) = results {
        TestFile::append_results(place.partial(), results)?;
    }
    Ok(meter.events())
}
