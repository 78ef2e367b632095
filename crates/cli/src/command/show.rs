//! `seatrial show`: what a file holds, as text.

use crate::args::ShowArguments;
use crate::exit::Exit;
use crate::load::{hint, load, salvage};
use crate::output::say;
use anyhow::{Context as _, Result};
use seatrial_history::{Op, TestFile};
use seatrial_report::Columns;
use std::io::{self, BufWriter, ErrorKind, Write};

/// Carries the verb out.
pub(crate) fn run(arguments: &ShowArguments) -> Result<Exit> {
    show(arguments).map_err(hint)
}

fn show(arguments: &ShowArguments) -> Result<Exit> {
    if arguments.attributes || arguments.results {
        return show_document(arguments);
    }
    let loaded = if arguments.salvage {
        salvage(&arguments.file, &arguments.format, false)?
    } else {
        load(&arguments.file, &arguments.format, false)?
    };
    for warning in &loaded.warnings {
        eprintln!("seatrial: {warning}");
    }
    let count = arguments.count.map_or(usize::MAX, |count| count as usize);
    let ops = loaded
        .history
        .iter()
        .filter(|op| op.index >= arguments.from)
        .take(count);
    let ops: Vec<&Op> = ops.collect();
    let columns = Columns::of(ops.iter().copied());
    let mut out = BufWriter::new(io::stdout().lock());
    for op in ops {
        let written = if arguments.edn {
            writeln!(out, "{op}")
        } else {
            writeln!(out, "{}", columns.line(op))
        };
        // Whoever reads has seen enough (`| head`).
        if matches!(&written, Err(error) if error.kind() == ErrorKind::BrokenPipe) {
            return Ok(Exit::Valid);
        }
        written?;
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Exit::Valid),
    }
}

/// Attributes or results of a test file, without reading its operations.
fn show_document(arguments: &ShowArguments) -> Result<Exit> {
    let (attributes, results) = if arguments.salvage {
        let file = TestFile::salvage(&arguments.file)?;
        (file.attributes().cloned(), file.results()?)
    } else {
        let file = TestFile::open(&arguments.file)?;
        let attributes = (!arguments.results).then(|| file.attributes());
        let results = arguments.results.then(|| file.results()).transpose()?;
        (attributes.transpose()?, results.flatten())
    };
    let name = arguments.file.display();
    let document = if arguments.results {
        results.with_context(|| format!("{name}: holds no results"))?
    } else {
        attributes.with_context(|| format!("{name}: its attributes are lost"))?
    };
    say!("{document:#}");
    Ok(Exit::Valid)
}
