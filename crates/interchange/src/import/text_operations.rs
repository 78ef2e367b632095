//! Reads the operations of a text through a window.

use super::edn::SyntaxFault;
use super::json::JsonOperations;
use super::operation_builder::{EdnOperations, KeyPlace, OperationDraft};
use super::sequence::ProcessSequence;
use super::transaction_row::{Dialect, TransactionRow};
use super::{DETECTION_LENGTH, Format, ImportError, ImportOptions, SourcePosition, porcupine};
use seatrial_history::chunk::{Assembly, Unstorable};
use seatrial_history::{Op, Symbol};
use std::io::{ErrorKind, Read};

/// Bytes that are read at a time, at least.
pub(super) const READ_LENGTH: usize = 256 << 10;
/// A rest of a window shorter than `READ_LENGTH / REST_PART` is not parsed before more was read.
const REST_PART: usize = 64;
/// Longest operation in bytes, with the blanks and comments before it.
const OPERATION_LENGTH_MAX: usize = 64 << 20;

/// What a parser found at a place in a text whose end may be missing.
pub(super) enum Parsed {
    /// An operation and the offset after it.
    Operation(OperationDraft, usize),
    /// Nothing more in this text.
    End,
    /// The text ends inside the bracket around the history, which opened at this offset.
    Unclosed(usize),
}

/// The parser of one format.
enum TextParser {
    Edn(EdnOperations),
    Json(JsonOperations),
    Log,
}

/// A window over a text. It owns the input and the unconsumed part of the text, and moves forward only.
struct TextWindow<R> {
    input: R,
    text: String,
    /// First bytes of a character that is not complete yet.
    split: Vec<u8>,
    /// Offset in the text at which the next operation is parsed.
    at: usize,
    /// Bytes before the text.
    passed: u64,
    /// Line, from 1, and column, from 1, of the text's first character.
    line: u64,
    column: u64,
    /// Nothing more to read.
    ended: bool,
    /// The error that ended reading, unless it was the end of the file.
    failure: Option<String>,
    /// Bytes that are read at a time, at least.
    read_length: usize,
}

/// The operations of a text in EDN or JSON, or of a log, one after another, in constant memory.
///
/// Its loop: a transaction in its usual spelling is read as a [`TransactionRow`]. For everything else a parser parses the next
/// operation in the window. When it finds none or an error, and the input has not ended, the window grows and both try
/// again; so an error is reported only at the end of the text, or when an operation would be longer than 64 MiB.
pub(super) struct TextOperations<R> {
    name: String,
    window: TextWindow<R>,
    parser: TextParser,
    /// Line and column where the bracket around the history opened.
    opened: (u64, u64),
    count: u64,
    indexed: bool,
    previous: Option<u64>,
    /// Warning about the first index that did not rise; later operations are numbered by position.
    unordered: Option<String>,
    sequence: ProcessSequence,
    /// Offset in the window of the operation that was returned last.
    current: usize,
    row: TransactionRow,
    /// Is the fast path for transactions on?
    is_quick: bool,
    /// The function of rows: `txn`.
    f: Symbol,
}

/// The result of one attempt to read an operation.
enum Attempt {
    Operation(Op),
    /// Nothing more.
    End,
    /// The window grew; try again.
    Grown,
}

/// Why the next operation cannot be added to a chunk.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    /// The text is malformed.
    #[error(transparent)]
    Text(#[from] ImportError),
    /// The operation that was read last exceeds a limit of chunks.
    #[error(transparent)]
    Operation(#[from] Unstorable),
}

impl TextParser {
    /// The dialect of the fast path; `None` where it cannot be used.
    fn dialect(&self) -> Option<Dialect> {
        match self {
            TextParser::Edn(operations) => operations.is_plain().then_some(Dialect::Edn),
            TextParser::Json(operations) => operations.is_plain().then_some(Dialect::Json),
            TextParser::Log => None,
        }
    }

    /// Offset of the bracket around the history, in the window of the first operation.
    fn opened(&self) -> usize {
        match self {
            TextParser::Edn(operations) => operations.opened(),
            TextParser::Json(operations) => operations.opened(),
            TextParser::Log => 0,
        }
    }
}

impl<R: Read> TextWindow<R> {
    /// Reads more; the consumed part is dropped.
    fn grow(&mut self) {
        let consumed = std::mem::take(&mut self.at);
        (self.line, self.column) = self.place(consumed);
        self.passed += consumed as u64;
        // Read into the same allocation: the rest is short, or its length doubles, so copying it is cheap.
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.drain(..consumed);
        // A window without a complete operation doubles: parsing a long operation again and again stays linear.
        let wanted = self.read_length.max(bytes.len());
        bytes.append(&mut self.split);
        let is_first = self.passed == 0 && bytes.is_empty();
        self.fill(&mut bytes, wanted);
        if is_first && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
            self.passed = 3;
        }
        self.text = String::from_utf8(bytes).unwrap_or_else(|error| {
            let fault = error.utf8_error();
            if fault.error_len().is_some() || self.ended {
                self.fail("not UTF-8 text".to_owned());
            }
            let mut bytes = error.into_bytes();
            self.split = bytes.split_off(fault.valid_up_to());
            String::from_utf8(bytes).unwrap_or_default()
        });
    }

    /// Reads up to `wanted` bytes.
    fn fill(&mut self, bytes: &mut Vec<u8>, wanted: usize) {
        let mut filled = bytes.len();
        bytes.resize(filled + wanted, 0);
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.fail(format!("cannot be read: {error}"));
                    break;
                }
            }
        }
        bytes.truncate(filled);
    }

    fn fail(&mut self, reason: String) {
        self.ended = true;
        self.failure.get_or_insert(reason);
    }

    /// Line and column of a byte of the window.
    fn place(&self, at: usize) -> (u64, u64) {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let characters = |bytes: &[u8]| {
            let first = |byte: &&u8| **byte & 0xc0 != 0x80;
            bytes.iter().filter(first).count() as u64
        };
        match before.iter().rposition(|&byte| byte == b'\n') {
            None => (self.line, self.column + characters(before)),
            Some(newline) => {
                let lines = line_ends(before);
                let column = 1 + characters(&before[newline + 1..]);
                (self.line + lines, column)
            }
        }
    }
}

/// The number of line ends. Counts of pieces fit a byte, without checks of overflow, so that the loop is vectorized.
fn line_ends(bytes: &[u8]) -> u64 {
    let ends = |piece: &[u8]| {
        let one = |count: u8, &byte: &u8| count.wrapping_add(u8::from(byte == b'\n'));
        u64::from(piece.iter().fold(0, one))
    };
    let (pieces, rest) = bytes.as_chunks::<128>();
    pieces.iter().map(|piece| ends(piece)).sum::<u64>() + ends(rest)
}

impl<R: Read> TextOperations<R> {
    /// The operations of `input`, read in pieces of `read_length` bytes, at least 4: a byte order mark is in the first piece.
    /// `name` is for errors.
    pub(super) fn open(
        name: &str,
        input: R,
        format: Format,
        options: ImportOptions,
        read_length: usize,
    ) -> TextOperations<R> {
        let mut window = TextWindow {
            input,
            text: String::new(),
            split: Vec::new(),
            at: 0,
            passed: 0,
            line: 1,
            column: 1,
            ended: false,
            failure: None,
            read_length,
        };
        window.grow();
        let parser = match format {
            Format::Edn => TextParser::Edn(EdnOperations::new(options.keys())),
            Format::Json => TextParser::Json(JsonOperations::new(options.keys())),
            _ => {
                let length = window.text.floor_char_boundary(DETECTION_LENGTH);
                let first = &window.text[..length];
                if first.contains(porcupine::MARK) || porcupine::is_table(first) {
                    TextParser::Log
                } else {
                    TextParser::Edn(EdnOperations::new(KeyPlace::Field))
                }
            }
        };
        TextOperations {
            name: name.to_owned(),
            window,
            parser,
            opened: (1, 1),
            count: 0,
            indexed: false,
            previous: None,
            unordered: None,
            sequence: ProcessSequence::default(),
            current: 0,
            row: TransactionRow::default(),
            is_quick: true,
            f: Symbol::new("txn"),
        }
    }

    /// Turns the fast path off, for tests that compare both paths.
    #[cfg(test)]
    pub(super) fn slow(&mut self) {
        self.is_quick = false;
    }

    /// Bytes consumed so far.
    pub(super) fn bytes(&self) -> u64 {
        self.window.passed + self.window.at as u64
    }

    /// A warning about indices that do not rise.
    pub(super) fn warning(&self) -> Option<&str> {
        self.unordered.as_deref()
    }

    /// An error at the operation that was returned last.
    pub(super) fn error(&self, problem: impl Into<String>) -> ImportError {
        error_at(&self.name, self.window.place(self.current), problem.into())
    }

    /// The next operation; `None` at the end.
    pub(super) fn read(&mut self) -> Result<Option<Op>, ImportError> {
        loop {
            if let Some(index) = self.quick() {
                return Ok(Some(self.row.op(index, self.f)));
            }
            match self.general()? {
                Attempt::Operation(op) => return Ok(Some(op)),
                Attempt::End => return Ok(None),
                Attempt::Grown => {}
            }
        }
    }

    /// Adds the next operation to chunks; false at the end.
    pub(super) fn read_into(&mut self, assembly: &mut Assembly) -> Result<bool, Unread> {
        loop {
            if let Some(index) = self.quick() {
                if self.row.is_small() {
                    let head = self.row.head(index, self.f);
                    assembly.push_parts(&head, self.row.parts());
                } else {
                    assembly.add(&self.row.op(index, self.f))?;
                }
                return Ok(true);
            }
            match self.general()? {
                Attempt::Operation(op) => {
                    assembly.add(&op)?;
                    return Ok(true);
                }
                Attempt::End => return Ok(false),
                Attempt::Grown => {}
            }
        }
    }

    /// Reads the next operation as a row and returns its index; `None` when it is not in its usual spelling or not all in the
    /// window.
    fn quick(&mut self) -> Option<u64> {
        // The first operation is the parser's: brackets and headers come before it.
        if self.count == 0 || !self.is_quick {
            return None;
        }
        let dialect = self.parser.dialect()?;
        let text = self.window.text.as_bytes();
        let between = |byte: &u8| matches!(byte, b'\n' | b' ' | b',' | b'\r' | b'\t');
        let blanks = text.get(self.window.at..)?.iter();
        let at = self.window.at + blanks.take_while(|&byte| between(byte)).count();
        let end = self.row.read(text, at, dialect)?;
        let (client, kind) = (self.row.client, self.row.kind);
        if !self.sequence.permits(client, kind) {
            return None;
        }
        let index = self.follow(self.row.index)?;
        self.sequence.follow(index, client, kind);
        self.current = at;
        self.window.at = end;
        Some(index)
    }

    /// The index of an operation, by position when it has none; `None` when its index is invalid, which
    /// [`TextOperations::number`] reports.
    fn follow(&mut self, index: Option<u64>) -> Option<u64> {
        if index.is_some() != self.indexed {
            return None;
        }
        let index = index.unwrap_or(self.count);
        if self.unordered.is_some() || self.previous.is_some_and(|previous| index <= previous) {
            return None;
        }
        self.sequence.index(self.previous.replace(index), index);
        self.count += 1;
        Some(index)
    }

    /// One attempt of the parser.
    fn general(&mut self) -> Result<Attempt, ImportError> {
        let (text, at) = (&self.window.text, self.window.at);
        if !self.window.ended && text.len() - at < self.window.read_length / REST_PART {
            // Most likely an incomplete operation: moving these few bytes costs less than parsing it twice.
            self.window.grow();
            return Ok(Attempt::Grown);
        }
        let step = match &mut self.parser {
            TextParser::Edn(operations) => operations.next(text, at),
            TextParser::Json(operations) => operations.next(text, at),
            TextParser::Log => porcupine::next(text, at, self.window.ended),
        };
        match step {
            Ok(Parsed::Operation(draft, end)) => {
                if self.count == 0 {
                    self.opened = self.window.place(self.parser.opened());
                }
                self.current = draft.at;
                let op = self.number(draft).map_err(|problem| self.error(problem))?;
                self.window.at = end;
                Ok(Attempt::Operation(op))
            }
            _ if !self.window.ended => {
                if let Err(fault) = step
                    && text.len() - at > OPERATION_LENGTH_MAX
                {
                    return Err(self.located(fault));
                }
                self.window.grow();
                Ok(Attempt::Grown)
            }
            _ if self.window.failure.is_some() => {
                let problem = self.window.failure.take().unwrap_or_default();
                let end = self.window.text.len();
                Err(self.located(SyntaxFault::new(end, problem)))
            }
            Err(fault) => Err(self.located(fault)),
            Ok(Parsed::Unclosed(at)) => {
                let first = self.count == 0;
                let place = if first {
                    self.window.place(at)
                } else {
                    self.opened
                };
                let problem = "this bracket is never closed".to_owned();
                Err(error_at(&self.name, place, problem))
            }
            Ok(Parsed::End) if self.count == 0 => {
                let problem = "no operation found".to_owned();
                Err(error_at(&self.name, (1, 1), problem))
            }
            Ok(Parsed::End) => Ok(Attempt::End),
        }
    }

    fn located(&self, fault: SyntaxFault) -> ImportError {
        error_at(&self.name, self.window.place(fault.at), fault.problem)
    }

    /// Completes an operation: its index (by position unless it has a rising one) and its process.
    fn number(&mut self, draft: OperationDraft) -> Result<Op, String> {
        let OperationDraft {
            mut op,
            indexed,
            has_process,
            ..
        } = draft;
        if self.count == 0 {
            self.indexed = indexed;
        } else if self.indexed != indexed {
            let problem = if indexed {
                "this operation has an :index, those before it have none"
            } else {
                "this operation has no :index, those before it have one"
            };
            return Err(problem.to_owned());
        }
        if !self.indexed {
            op.index = self.count;
        } else if let Some(previous) = self.previous
            && (op.index <= previous || self.unordered.is_some())
        {
            if self.unordered.is_none() {
                let problem = format!("index {} follows index {previous}", op.index);
                let place = self.error(problem);
                self.unordered = Some(format!(
                    "{place}: from here on operations are numbered by their position"
                ));
            }
            op.index = previous + 1;
        }
        self.sequence
            .index(self.previous.replace(op.index), op.index);
        self.sequence.take(&mut op, has_process)?;
        self.count += 1;
        Ok(op)
    }
}

/// An error at a line and column.
pub(super) fn error_at(name: &str, (line, column): (u64, u64), problem: String) -> ImportError {
    ImportError {
        file: name.to_owned(),
        place: SourcePosition::Text {
            line: line as usize,
            column: column as usize,
        },
        problem,
    }
}
