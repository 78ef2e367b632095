//! `seatrial show`: what a file holds, as text.

use crate::args::ShowArguments;
use crate::load::{hint, is_test_file, load, not_ended, salvage};
use crate::opened::of_source;
use crate::source::resolved;
use anyhow::{Context as _, Result};
use seatrial_history::{Chunk, ChunkBuffer, ChunkSource as _, Op, OpView, TestFile};
use seatrial_interchange::export::{Layout, check_names, json};
use seatrial_interchange::import::ImportOptions;
use seatrial_query::Selection;
use seatrial_report::ListingColumns;
use seatrial_terminal::{Exit, complain, for_screen, say};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::ops::ControlFlow;

/// Fewer operations than this are taken out of their chunks one by one.
const FEW: u64 = 1_000;

/// Carries the verb out.
pub(crate) fn run(arguments: &ShowArguments) -> Result<Exit> {
    let file = resolved(&arguments.file, &arguments.format);
    let arguments = ShowArguments {
        file,
        ..arguments.clone()
    };
    show(&arguments).map_err(hint)
}

fn show(arguments: &ShowArguments) -> Result<Exit> {
    if arguments.attributes || arguments.results {
        return show_document(arguments);
    }
    let selection = arguments.selected.selection()?;
    let is_plain = !arguments.salvage && matches!(arguments.format.as_str(), "auto" | "sea");
    if is_plain && is_test_file(&arguments.file) {
        return show_chunks(arguments, &selection);
    }
    let loaded = if arguments.salvage {
        salvage(&arguments.file, &arguments.format)?
    } else {
        load(&arguments.file, &arguments.format, ImportOptions::default())?
    };
    for warning in &loaded.warnings {
        complain!("seatrial: {warning}");
    }
    let columns = ListingColumns::of(loaded.history.iter());
    let mut listing = Listing::new(arguments, columns);
    if selection.is_all() {
        listing.add(loaded.history.iter())?;
        return listing.end();
    }
    let mut added = Ok(true);
    let round = loaded.history.round(&mut |chunk| {
        let ops: Vec<Op> = selection.of(chunk).map(OpView::op).collect();
        added = listing.add(&ops);
        match added {
            Ok(true) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    round.map_err(of_source)?;
    added?;
    listing.end()
}

/// Operations of a test file, no more of it than is shown, so of a file of any size. Chunks that lie outside of the selected time
/// are not read.
fn show_chunks(arguments: &ShowArguments, selection: &Selection) -> Result<Exit> {
    let file = TestFile::open(&arguments.file)?;
    if let Some(warning) = not_ended(&file, &arguments.file) {
        complain!("seatrial: {warning}");
    }
    if let Some(count) = arguments.count.filter(|&count| count < FEW) {
        return show_few(&file, arguments, selection, count);
    }
    let ops = |number: u64| -> Result<Vec<Op>> {
        let is_needed = file.chunk_summary(number)?;
        if !is_needed.is_some_and(|chunk| selection.may_select(&chunk)) {
            return Ok(Vec::new());
        }
        let chunk = file.chunk(number)?;
        Ok(chunk.map_or_else(Vec::new, |chunk| selected(selection, &chunk)))
    };
    let chunks = file.chunk_count();
    let first = chunk_from(&file, arguments.from)?;
    // The widest indices are at the end.
    let last = chunks.saturating_sub(1);
    let widest = [ops(first)?, ops(last)?];
    let mut listing = Listing::new(arguments, ListingColumns::of(widest.iter().flatten()));
    for number in first..chunks {
        if !listing.add(&ops(number)?)? {
            break;
        }
    }
    listing.end()
}

/// The selected operations of a chunk.
fn selected(selection: &Selection, chunk: &Chunk) -> Vec<Op> {
    if selection.is_all() {
        return chunk.ops().collect();
    }
    selection.of(chunk).map(OpView::op).collect()
}

/// A few operations: of the chunks that have them, nothing else is decoded.
fn show_few(
    file: &TestFile,
    arguments: &ShowArguments,
    selection: &Selection,
    count: u64,
) -> Result<Exit> {
    let mut ops: Vec<Op> = Vec::new();
    let mut buffer = ChunkBuffer::default();
    for number in chunk_from(file, arguments.from)?..file.chunk_count() {
        if ops.len() as u64 == count {
            break;
        }
        let summary = file.chunk_summary(number)?;
        if summary.is_some_and(|chunk| !selection.may_select(&chunk)) {
            continue;
        }
        let Some(chunk) = file.read_chunk(number, &mut buffer)? else {
            break;
        };
        let left = count as usize - ops.len();
        let views = selection.of(chunk);
        let views = views.filter(|view| view.index() >= arguments.from);
        ops.extend(views.take(left).map(OpView::op));
    }
    let mut listing = Listing::new(arguments, ListingColumns::of(&ops));
    listing.add(&ops)?;
    listing.end()
}

/// The number of the first chunk with an operation of this index or a later one.
fn chunk_from(file: &TestFile, index: u64) -> Result<u64> {
    let (mut low, mut high) = (0, file.chunk_count());
    while low < high {
        let middle = low + (high - low) / 2;
        let summary = file.chunk_summary(middle)?;
        if summary.is_some_and(|chunk| chunk.last_index < index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// How operations are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShownForm {
    Columns,
    Edn,
    Json,
}

/// Operations on their way to standard output.
struct Listing {
    from: u64,
    /// How many may still come.
    left: u64,
    form: ShownForm,
    is_selected: bool,
    /// Was no operation printed?
    is_empty: bool,
    is_terminal: bool,
    columns: ListingColumns,
    out: BufWriter<io::StdoutLock<'static>>,
}

impl Listing {
    fn new(arguments: &ShowArguments, columns: ListingColumns) -> Listing {
        Listing {
            from: arguments.from,
            left: arguments.count.unwrap_or(u64::MAX),
            form: match (arguments.edn, arguments.json) {
                (true, _) => ShownForm::Edn,
                (_, true) => ShownForm::Json,
                _ => ShownForm::Columns,
            },
            is_selected: arguments
                .selected
                .selection()
                .is_ok_and(|all| !all.is_all()),
            is_empty: true,
            is_terminal: io::stdout().is_terminal(),
            columns,
            out: BufWriter::new(io::stdout().lock()),
        }
    }

    /// Prints those that are wanted; is more wanted?
    fn add<'a>(&mut self, ops: impl IntoIterator<Item = &'a Op>) -> Result<bool> {
        for op in ops.into_iter().filter(|op| op.index >= self.from) {
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            self.is_empty = false;
            let text = match self.form {
                ShownForm::Columns => self.columns.line(op),
                ShownForm::Json => json(op).to_string(),
                ShownForm::Edn => {
                    check_names(op, Layout::Edn)?;
                    op.to_string()
                }
            };
            // For another program it stays what it is.
            let shown = if self.is_terminal || self.form == ShownForm::Columns {
                for_screen(&text)
            } else {
                text.as_str().into()
            };
            let written = writeln!(self.out, "{shown}");
            // The reader has closed the pipe (`| head`).
            if matches!(&written, Err(error) if error.kind() == ErrorKind::BrokenPipe) {
                self.left = 0;
                return Ok(false);
            }
            written?;
        }
        Ok(self.left > 0)
    }

    fn end(mut self) -> Result<Exit> {
        if self.is_empty && self.is_selected {
            complain!("seatrial: no operation is selected");
        }
        match self.out.flush() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(Exit::Valid),
        }
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
