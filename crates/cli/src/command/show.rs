//! `seatrial show`: what a file holds, as text.

use crate::args::ShowArguments;
use crate::exit::Exit;
use crate::load::load;
use anyhow::{Result, bail};
use seatrial_history::Op;
use seatrial_report::Columns;
use serde_json::Value as Json;
use std::io::{self, BufWriter, ErrorKind, Write};

/// Carries the verb out.
pub(crate) fn run(arguments: &ShowArguments) -> Result<Exit> {
    if arguments.attributes || arguments.results {
        return show_document(arguments);
    }
    let loaded = load(&arguments.file, &arguments.format, false)?;
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

/// Attributes or results.
fn show_document(arguments: &ShowArguments) -> Result<Exit> {
    let loaded = load(&arguments.file, &arguments.format, false)?;
    if arguments.results {
        bail!("{}: holds no results", arguments.file.display());
    }
    print(&loaded.attributes);
    Ok(Exit::Valid)
}

fn print(document: &Json) {
    println!("{document:#}");
}
