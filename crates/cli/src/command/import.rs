//! `seatrial import`: a foreign history becomes a test file.

use crate::args::ImportArguments;
use crate::exit::Exit;
use crate::meter::Meter;
use crate::output::say;
use crate::place::Place;
use crate::source::Source;
use anyhow::Result;
use seatrial_history::{HistoryWriter, TestFile};

/// Carries the verb out.
pub(crate) fn run(arguments: &ImportArguments) -> Result<Exit> {
    let place = Place::new(&arguments.out, arguments.force)?;
    let mut source = Source::of(&arguments.source)?;
    let events = write(&mut source, &place, arguments.quiet)?;
    place.keep()?;
    source.warn();
    if !arguments.quiet {
        say!(" {events} events   {}", arguments.out.display());
    }
    Ok(Exit::Valid)
}

/// Writes all of `source` as a test file; how many events it has (invocations and completions).
pub(crate) fn write(source: &mut Source, place: &Place, quiet: bool) -> Result<u64> {
    let mut writer = HistoryWriter::create(place.partial(), &source.attributes()?)?;
    let mut meter = Meter::new(source.length, quiet);
    source.for_each(|op, done| {
        meter.step(done);
        Ok(writer.push(&op)?)
    })?;
    writer.seal()?;
    if let Some(results) = source.results()? {
        TestFile::append_results(place.partial(), &results)?;
    }
    Ok(meter.events())
}
