//! Iterates over the operations of a file of any format.

use super::registers::{RegisterOperations, TransactionReader};
use super::text_operations::{READ_LENGTH, TextOperations, Unread, error_at};
use super::timed_rows::RowOperations;
use super::{DETECTION_LENGTH, Format, ImportError, ImportOptions, TextChunks, detect};
use seatrial_history::chunk::Assembly;
use seatrial_history::{Op, Provenance};
use std::io::{self, Read};

/// The operations of a file of any format, in constant memory: an iterator, which ends after an error.
pub struct FileOperations<R> {
    format: Format,
    provenance: Provenance,
    kind: FormatReader<PeekedInput<R>>,
    done: bool,
}

enum FormatReader<R> {
    Text(Box<TextOperations<R>>),
    Rows(Box<RowOperations<R>>),
    Registers(Box<RegisterOperations<R>>),
}

/// An input whose first bytes were read for detection: yields them again, then the rest of the input or its error.
pub(super) struct PeekedInput<R> {
    first: Vec<u8>,
    at: usize,
    /// The error that ended the first read.
    failure: Option<io::Error>,
    input: R,
}

impl<R: Read> PeekedInput<R> {
    pub(super) fn new(mut input: R) -> PeekedInput<R> {
        let mut first = Vec::new();
        let limit = DETECTION_LENGTH as u64;
        let read = input.by_ref().take(limit).read_to_end(&mut first);
        PeekedInput {
            first,
            at: 0,
            failure: read.err(),
            input,
        }
    }
}

impl<R: Read> Read for PeekedInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.first[self.at..];
        if !rest.is_empty() {
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            self.at += length;
            return Ok(length);
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None => self.input.read(buffer),
        }
    }
}

impl<R: Read> FileOperations<R> {
    /// The operations of `input`. Without a `format` it is detected from the name and the first bytes. `name` is for errors.
    pub fn open(
        name: &str,
        input: R,
        format: Option<Format>,
        options: ImportOptions,
    ) -> Result<FileOperations<R>, ImportError> {
        FileOperations::with_window(name, input, format, options, READ_LENGTH)
    }

    /// [`FileOperations::open`] with reads of `read_length` bytes, at least 4.
    pub(super) fn with_window(
        name: &str,
        input: R,
        format: Option<Format>,
        options: ImportOptions,
        read_length: usize,
    ) -> Result<FileOperations<R>, ImportError> {
        let mut input = PeekedInput::new(input);
        let provenance = crate::header::take(&mut input.first);
        let Some(format) = format.or_else(|| detect(name, &input.first)) else {
            let problem = match &input.failure {
                Some(error) => format!("cannot be read: {error}"),
                None => "not a history in a format that is known".to_owned(),
            };
            return Err(error_at(name, (1, 1), problem));
        };
        let kind = if matches!(format, Format::Csv | Format::PorcupineJson) {
            FormatReader::Rows(Box::new(RowOperations::open(name, input, format)))
        } else if format.has_times() {
            let text = TextOperations::open(name, input, format, options, read_length);
            FormatReader::Text(Box::new(text))
        } else {
            let reader = TransactionReader::with_window(name, input, format, options, read_length);
            FormatReader::Registers(Box::new(RegisterOperations::new(reader)))
        };
        let provenance = if format.has_times() {
            provenance
        } else {
            provenance.timeless()
        };
        Ok(FileOperations {
            format,
            provenance,
            kind,
            done: false,
        })
    }

    /// The operations of sessions with a file each ([`Format::Cobra`]), opened one after another; the iterator yields
    /// each file's name and input.
    pub fn of_sessions(
        name: &str,
        sessions: impl Iterator<Item = (String, io::Result<R>)> + 'static,
        options: ImportOptions,
    ) -> Result<FileOperations<R>, ImportError>
    where
        R: 'static,
    {
        let sessions = sessions.map(|(name, input)| (name, input.map(PeekedInput::new)));
        let reader = TransactionReader::of_sessions(name, sessions, options)?;
        Ok(FileOperations {
            format: Format::Cobra,
            provenance: Provenance::default().timeless(),
            kind: FormatReader::Registers(Box::new(RegisterOperations::new(reader))),
            done: false,
        })
    }

    /// The operations in chunks of at most `length_max`.
    pub fn into_chunks(self, length_max: usize) -> TextChunks<R> {
        TextChunks::new(self, length_max)
    }

    /// Adds the next operation to chunks; false at the end and after an error.
    pub(super) fn read_into(&mut self, assembly: &mut Assembly) -> Result<bool, Unread> {
        if self.done {
            return Ok(false);
        }
        let read = match &mut self.kind {
            FormatReader::Text(text) => text.read_into(assembly),
            FormatReader::Rows(rows) => added(rows.read(), assembly),
            FormatReader::Registers(registers) => added(registers.read(), assembly),
        };
        self.done = !matches!(read, Ok(true));
        read
    }

    /// Without the fast path for transactions.
    #[cfg(test)]
    pub(super) fn slow(mut self) -> FileOperations<R> {
        if let FormatReader::Text(text) = &mut self.kind {
            text.slow();
        }
        self
    }

    /// Provenance from the header of the text; timeless for formats without times.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The format that was given or detected.
    pub fn format(&self) -> Format {
        self.format
    }

    /// A warning about the operations so far: indices that do not rise.
    pub fn warning(&self) -> Option<&str> {
        match &self.kind {
            FormatReader::Text(text) => text.warning(),
            FormatReader::Rows(_) | FormatReader::Registers(_) => None,
        }
    }

    /// Bytes consumed so far.
    pub fn bytes(&self) -> u64 {
        match &self.kind {
            FormatReader::Text(text) => text.bytes(),
            FormatReader::Rows(rows) => rows.bytes(),
            FormatReader::Registers(registers) => registers.bytes(),
        }
    }

    /// An error at the operation that was returned last, for a caller that rejects it.
    pub fn error(&self, problem: impl Into<String>) -> ImportError {
        match &self.kind {
            FormatReader::Text(text) => text.error(problem),
            FormatReader::Rows(rows) => rows.error(problem),
            FormatReader::Registers(registers) => registers.error(problem),
        }
    }
}

/// Adds an operation that was read to chunks; false when there was none.
fn added(read: Result<Option<Op>, ImportError>, assembly: &mut Assembly) -> Result<bool, Unread> {
    match read? {
        Some(op) => assembly.add(&op).map(|()| true).map_err(Unread::from),
        None => Ok(false),
    }
}

impl<R: Read> Iterator for FileOperations<R> {
    type Item = Result<Op, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let result = match &mut self.kind {
            FormatReader::Text(text) => text.read(),
            FormatReader::Rows(rows) => rows.read(),
            FormatReader::Registers(registers) => registers.read(),
        };
        self.done = !matches!(result, Ok(Some(_)));
        result.transpose()
    }
}
