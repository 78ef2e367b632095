//! `seatrial export`: a history for other programs.

use super::import;
use crate::args::ExportArguments;
use crate::meter::ProgressMeter;
use crate::opened::Opened;
use crate::place::Place;
use crate::source::HistorySource;
use anyhow::{Context as _, Result, bail};
use seatrial_history::Provenance;
use seatrial_interchange::export::registers::{RegisterError, RegisterLayout, RegisterWriter};
use seatrial_interchange::export::{Layout, TextWriter};
use seatrial_machine::{counted, unknown_name};
use seatrial_terminal::{Exit, say};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

/// What a history can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportTarget {
    Text(Layout),
    Registers(RegisterLayout),
    Sea,
    Arrow,
    Parquet,
}

/// Their names.
const TARGETS: &str = "edn, jsonl, json, plume, dbcop, timekiller, sea, arrow, parquet";

impl ExportTarget {
    fn by_name(name: &str) -> Option<ExportTarget> {
        Some(match name {
            "edn" => ExportTarget::Text(Layout::Edn),
            "jsonl" | "ndjson" => ExportTarget::Text(Layout::JsonLines),
            "json" => ExportTarget::Text(Layout::Json),
            "plume" | "polysi" => ExportTarget::Registers(RegisterLayout::Plume),
            "dbcop" | "bincode" => ExportTarget::Registers(RegisterLayout::Dbcop),
            "timekiller" => ExportTarget::Registers(RegisterLayout::TimeKiller),
            "sea" => ExportTarget::Sea,
            "arrow" | "arrows" | "feather" | "ipc" => ExportTarget::Arrow,
            "parquet" => ExportTarget::Parquet,
            _ => return None,
        })
    }

    /// The target that is asked for, or that the name of the output implies; EDN when nothing says otherwise.
    fn of(arguments: &ExportArguments) -> Result<ExportTarget> {
        if let Some(name) = &arguments.to {
            return ExportTarget::by_name(name)
                .with_context(|| unknown_name("format", name, TARGETS.split(", ")));
        }
        let Some(out) = &arguments.out else {
            return Ok(ExportTarget::Text(Layout::Edn));
        };
        let extension = out.extension().and_then(|extension| extension.to_str());
        extension.and_then(ExportTarget::by_name).with_context(|| {
            let out = out.display();
            format!("{out}: its name does not say what to write; --to takes {TARGETS}")
        })
    }
}

/// What is lost in one JSON array.
const NOT_IN_JSON: &str = "one JSON array cannot say that operations of this history are missing, or that it \
                           has no times: read back it is taken for whole, and for ordered in real time; edn, jsonl, and sea \
                           can say it";

/// Carries the verb out.
pub(crate) fn run(arguments: &ExportArguments) -> Result<Exit> {
    let target = ExportTarget::of(arguments)?;
    let Some(out) = &arguments.out else {
        let mut source = HistorySource::of(&arguments.source)?;
        let out = io::stdout().lock();
        let written = match target {
            ExportTarget::Text(layout) => text(&mut source, layout, out, true),
            ExportTarget::Registers(
                layout @ (RegisterLayout::Plume | RegisterLayout::TimeKiller),
            ) => registers(&mut source, layout, out, true),
            _ => bail!("this is no text: name a file for it with -o FILE"),
        };
        source.warn();
        return match written {
            // The reader has closed the pipe (`| head`).
            Err(error) if is_broken_pipe(&error) => Ok(Exit::Valid),
            written => written.map(|_| Exit::Valid),
        };
    };
    let place = Place::new(out, arguments.force)?;
    let mut source = HistorySource::of(&arguments.source)?;
    let events = match target {
        ExportTarget::Text(layout) => {
            let file = create(place.partial())?;
            text(&mut source, layout, file, arguments.quiet)
        }
        ExportTarget::Registers(layout) => {
            let file = create(place.partial())?;
            registers(&mut source, layout, file, arguments.quiet)
        }
        ExportTarget::Sea => {
            let opened = Opened::open(&arguments.source.file, arguments.source.opening()?)?;
            import::write(&opened, source.results()?.as_ref(), &place, arguments.quiet)
        }
        ExportTarget::Arrow | ExportTarget::Parquet => {
            table(&mut source, target, &place, arguments.quiet)
        }
    }?;
    place.keep()?;
    source.warn();
    if !arguments.quiet {
        say!(" {}   {}", counted(events, "event"), out.display());
    }
    Ok(Exit::Valid)
}

fn create(path: &Path) -> Result<File> {
    File::create_new(path).with_context(|| path.display().to_string())
}

/// Writes all of `source` as text; how many events it has.
fn text(source: &mut HistorySource, layout: Layout, out: impl Write, quiet: bool) -> Result<u64> {
    let mut meter = ProgressMeter::new(source.length, quiet);
    let provenance = Provenance::of_attributes(&source.attributes()?);
    let out = BufWriter::with_capacity(1 << 16, out);
    let mut writer = TextWriter::with_provenance(out, layout, &provenance)?;
    if layout == Layout::Json && !provenance.is_plain() {
        source.warnings.push(NOT_IN_JSON.to_owned());
    }
    source.for_each(|op, done| {
        meter.step(done);
        Ok(writer.push(&op)?)
    })?;
    writer.finish()?;
    Ok(meter.events())
}

/// Writes all of `source` as transactions for another checker; how many events it has.
fn registers(
    source: &mut HistorySource,
    layout: RegisterLayout,
    out: impl Write,
    quiet: bool,
) -> Result<u64> {
    let mut meter = ProgressMeter::new(source.length, quiet);
    let mut writer = RegisterWriter::new(BufWriter::with_capacity(1 << 16, out), layout);
    source.for_each(|op, done| {
        meter.step(done);
        Ok(writer.push(&op)?)
    })?;
    writer.finish()?;
    Ok(meter.events())
}

/// Did the reader close the pipe (`| head`)?
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_registers = match error.downcast_ref() {
        Some(RegisterError::Write(cause)) => Some(cause),
        _ => None,
    };
    let cause = of_registers.or_else(|| error.root_cause().downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Writes all of `source` as a table; how many events it has.
#[cfg(feature = "parquet")]
fn table(
    source: &mut HistorySource,
    target: ExportTarget,
    place: &Place,
    quiet: bool,
) -> Result<u64> {
    let target = match target {
        ExportTarget::Arrow => seatrial_columnar::Target::Arrow,
        _ => seatrial_columnar::Target::Parquet,
    };
    let file = BufWriter::with_capacity(1 << 16, create(place.partial())?);
    let attributes = source.attributes()?.to_string();
    let mut writer = seatrial_columnar::ColumnWriter::new(file, target, &attributes)?;
    let mut meter = ProgressMeter::new(source.length, quiet);
    source.for_each(|op, done| {
        meter.step(done);
        Ok(writer.push(&op)?)
    })?;
    Ok(writer.finish()?)
}

/// Arrow and Parquet take minutes to compile, so the default build leaves them out.
#[cfg(not(feature = "parquet"))]
fn table(_: &mut HistorySource, _: ExportTarget, _: &Place, _: bool) -> Result<u64> {
    bail!(
        "this seatrial was built without Arrow and Parquet; build one with them: \
         cargo build --release --features parquet"
    )
}
