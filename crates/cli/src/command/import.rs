//! `seatrial import`: a foreign history becomes a test file.

use crate::args::{ImportArguments, SourceArguments};
use crate::exit::Exit;
use crate::load::is_test_file;
use crate::losses;
use crate::meter::Meter;
use crate::output::{complain, say};
use crate::place::Place;
use crate::source::{Reading, SAMPLE_LENGTH, Source};
use crate::times::mark_completions;
use anyhow::Result;
use seatrial_history::{HistoryWriter, Op, TestFile, salvage_to};

/// Carries the verb out.
pub(crate) fn run(arguments: &ImportArguments) -> Result<Exit> {
    let place = Place::new(&arguments.out, arguments.force)?;
    if arguments.source.salvage && is_test(&arguments.source)? {
        return salvage(arguments, place);
    }
    let mut source = Source::of(&arguments.source)?;
    let events = write(&mut source, &place, arguments.quiet)?;
    place.keep()?;
    source.warn();
    if !arguments.quiet {
        say!(" {events} events   {}", arguments.out.display());
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
    let missing = losses::of_salvaged(&salvaged, 0);
    let missing = missing.iter().map(losses::warning);
    for warning in missing.chain(losses::damages(&salvaged)) {
        complain!("seatrial: {warning}");
    }
    if !arguments.quiet {
        let out = arguments.out.display();
        say!(" {} events   {out}", salvaged.len());
    }
    Ok(Exit::Valid)
}

/// Writes all of `source` as a test file; how many events it has (invocations and completions).
///
/// Attributes are written first, so the first operations wait until these show whether the history has completions only.
pub(crate) fn write(source: &mut Source, place: &Place, quiet: bool) -> Result<u64> {
    let mut attributes = source.attributes()?;
    let is_foreign = source.is_foreign();
    let mut create = |first: &[Op]| -> Result<HistoryWriter> {
        if is_foreign {
            mark_completions(&mut attributes, first);
        }
        let mut writer = HistoryWriter::create(place.partial(), &attributes)?;
        for op in first {
            writer.push(op)?;
        }
        Ok(writer)
    };
    let mut meter = Meter::new(source.length, quiet);
    let mut first: Vec<Op> = Vec::new();
    let mut writer: Option<HistoryWriter> = None;
    source.for_each(|op, done| {
        meter.step(done);
        if let Some(writer) = &mut writer {
            return Ok(writer.push(&op)?);
        }
        first.push(op);
        if first.len() == SAMPLE_LENGTH {
            writer = Some(create(&std::mem::take(&mut first))?);
        }
        Ok(())
    })?;
    let writer = match writer {
        Some(writer) => writer,
        None => create(&first)?,
    };
    writer.seal()?;
    if let Some(results) = source.results()? {
        TestFile::append_results(place.partial(), &results)?;
    }
    Ok(meter.events())
}
