//! Where a run keeps its history: as EDN text, one operation a line, until the test file takes its place.

use seatrial_history::import::{self, Format, Options};
use seatrial_history::{History, Op};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Appends operations to a text file.
pub(crate) struct HistoryWriter {
    file: BufWriter<File>,
}

/// Bytes that wait for a flush.
const BUFFER_LENGTH: usize = 1 << 20;

impl HistoryWriter {
    /// A new file; one that exists is an error.
    pub(crate) fn create(path: &Path) -> io::Result<HistoryWriter> {
        let file = File::create_new(path)?;
        Ok(HistoryWriter {
            file: BufWriter::with_capacity(BUFFER_LENGTH, file),
        })
    }

    pub(crate) fn push(&mut self, op: &Op) -> io::Result<()> {
        writeln!(self.file, "{op}")
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    pub(crate) fn seal(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

/// Reads such a file again. Values of single keys are told from lists by `keyed`.
pub(crate) fn read(path: &Path, keyed: bool) -> Result<History, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let name = path.display().to_string();
    import::read(&name, &bytes, Format::Edn, Options { keyed }).map_err(|error| error.to_string())
}
