//! Reads the operations of a text through a window.

use super::edn::Fault;
use super::json::JsonOperations;
use super::operation::{Draft, EdnOperations, Keys};
use super::sequence::Sequence;
use super::transaction::{Dialect, Row};
use super::{DETECTION_LENGTH, Format, ImportError, Options, Place, porcupine};
use seatrial_history::chunk::{Assembly, Unstorable};
use seatrial_history::{Op, Symbol};
use std::io::{ErrorKind, Read};

/// Bytes that are read at a time, at least.
pub(super) const READ_LENGTH: usize = 256 << 10;
/// What is left of a window is not parsed when it is less than one of so many parts of a reading.
const REST_PART: usize = 64;
/// Longest operation, with what stands between it and the one before, in bytes.
const OPERATION_LENGTH_MAX: usize = 64 << 20;

/// What a parser finds when it is asked for an operation in a text whose end may be missing.
pub(super) enum Step {
    /// An operation, and where what follows it begins.
    Operation(Draft, usize),
    /// Nothing more in this text.
    End,
    /// The text ends, but the bracket around the history, which opened there, was not closed.
    Unclosed(usize),
}

/// The parser of one format.
enum Parser {
    Edn(EdnOperations),
    Json(JsonOperations),
    Log,
}

/// A part of a text, which moves forward.
struct Window<R> {
    input: R,
    text: String,
    /// First bytes of a character whose others were not read yet.
    split: Vec<u8>,
    /// Where in the text the next operation is looked for.
    at: usize,
    /// Bytes before the text.
    passed: u64,
    /// Line, from 1, and column, from 1, of the text's first character.
    line: u64,
    column: u64,
    /// Nothing more to read.
    ended: bool,
    /// Why not, when this is not the file's end.
    failure: Option<String>,
    /// Bytes that are read at a time, at least.
    read_length: usize,
}

/// The operations of a text in EDN or JSON, or of a log, one after another, in constant memory.
///
/// Its loop: a transaction that is written as usual is read as a [`Row`]. For everything else a parser looks for the next
/// operation in a window of the text. When it finds none, or something wrong, and the text goes on, the window grows and
/// both try again; so an error is told when the text ends, or when an operation would be longer than 64 MiB.
pub(super) struct TextOperations<R> {
    name: String,
    window: Window<R>,
    parser: Parser,
    /// Line and column where the bracket around the history opened.
    opened: (u64, u64),
    count: u64,
    indexed: bool,
    previous: Option<u64>,
    /// Where indices began not to rise; from there on operations are numbered by position.
    unordered: Option<String>,
    sequence: Sequence,
    /// Where in the window the operation begins that was handed out last.
    current: usize,
    row: Row,
    /// Are transactions looked for that are written as usual?
    is_quick: bool,
    /// What rows do.
    f: Symbol,
}

/// What came of an attempt to read an operation.
enum Attempt {
    Operation(Op),
    /// Nothing more.
    End,
    /// It has to be made again.
    Grown,
}

/// Why operations of a text cannot be put into chunks.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    /// The text is wrong.
    #[error(transparent)]
    Text(#[from] ImportError),
    /// The operation that was read last cannot be stored.
    #[error(transparent)]
    Operation(#[from] Unstorable),
}

impl Parser {
    /// How the text is written, while plain operations may follow.
    fn dialect(&self) -> Option<Dialect> {
        match self {
            Parser::Edn(operations) => operations.is_plain().then_some(Dialect::Edn),
            Parser::Json(operations) => operations.is_plain().then_some(Dialect::Json),
            Parser::Log => None,
        }
    }

    /// Where the bracket around the history opened, in the window that had the first operation.
    fn opened(&self) -> usize {
        match self {
            Parser::Edn(operations) => operations.opened(),
            Parser::Json(operations) => operations.opened(),
            Parser::Log => 0,
        }
    }
}

impl<R: Read> Window<R> {
    /// Reads on; what was consumed makes room.
    fn grow(&mut self) {
        let consumed = std::mem::take(&mut self.at);
        (self.line, self.column) = self.place(consumed);
        self.passed += consumed as u64;
        // Read into the same memory; what is there already is short, or doubled.
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.drain(..consumed);
        // A window that found nothing doubles, so that a long operation is not tried over and over.
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

    /// Reads up to so many bytes.
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

/// How many lines end in it. The count of a piece fits a byte, and nothing is checked, so that many bytes are looked at at
/// once.
fn line_ends(bytes: &[u8]) -> u64 {
    let ends = |piece: &[u8]| {
        let one = |count: u8, &byte: &u8| count.wrapping_add(u8::from(byte == b'\n'));
        u64::from(piece.iter().fold(0, one))
    };
    let (pieces, rest) = bytes.as_chunks::<128>();
    pieces.iter().map(|piece| ends(piece)).sum::<u64>() + ends(rest)
}

impl<R: Read> TextOperations<R> {
    /// The operations of `input`, which is read in pieces of this length, at least 4 (a byte order mark is looked for in
    /// the first one). `name` is for errors.
    pub(super) fn open(
        name: &str,
        input: R,
        format: Format,
        options: Options,
        read_length: usize,
    ) -> TextOperations<R> {
        let mut window = Window {
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
            Format::Edn => Parser::Edn(EdnOperations::new(options.keys())),
            Format::Json => Parser::Json(JsonOperations::new(options.keys())),
            _ => {
                let length = window.text.floor_char_boundary(DETECTION_LENGTH);
                let first = &window.text[..length];
                if first.contains(porcupine::MARK) || porcupine::is_table(first) {
                    Parser::Log
                } else {
                    Parser::Edn(EdnOperations::new(Keys::Field))
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
            sequence: Sequence::default(),
            current: 0,
            row: Row::default(),
            is_quick: true,
            f: Symbol::new("txn"),
        }
    }

    /// The same without looking for transactions that are written as usual: a twin for tests.
    #[cfg(test)]
    pub(super) fn slow(&mut self) {
        self.is_quick = false;
    }

    /// Bytes that the operations so far have taken.
    pub(super) fn bytes(&self) -> u64 {
        self.window.passed + self.window.at as u64
    }

    /// What a reader should know: indices that do not rise.
    pub(super) fn warning(&self) -> Option<&str> {
        self.unordered.as_deref()
    }

    /// An error at the operation that was handed out last, for whoever cannot take it.
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

    /// Puts the next operation into chunks. Was there one?
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

    /// Reads the next operation as a row, if it is written as usual and stands in the window; its index.
    fn quick(&mut self) -> Option<u64> {
        // Where a history begins is for the parser.
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

    /// Numbers an operation without an index by position; `None` when something is wrong with the one that it has, which
    /// [`TextOperations::number`] tells.
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
            // Most likely an operation that goes on; read again it costs more than these few bytes moved.
            self.window.grow();
            return Ok(Attempt::Grown);
        }
        let step = match &mut self.parser {
            Parser::Edn(operations) => operations.next(text, at),
            Parser::Json(operations) => operations.next(text, at),
            Parser::Log => porcupine::next(text, at, self.window.ended),
        };
        match step {
            Ok(Step::Operation(draft, end)) => {
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
                Err(self.located(Fault::new(end, problem)))
            }
            Err(fault) => Err(self.located(fault)),
            Ok(Step::Unclosed(at)) => {
                let first = self.count == 0;
                let place = if first {
                    self.window.place(at)
                } else {
                    self.opened
                };
                let problem = "this bracket is never closed".to_owned();
                Err(error_at(&self.name, place, problem))
            }
            Ok(Step::End) if self.count == 0 => {
                let problem = "no operation found".to_owned();
                Err(error_at(&self.name, (1, 1), problem))
            }
            Ok(Step::End) => Ok(Attempt::End),
        }
    }

    fn located(&self, fault: Fault) -> ImportError {
        error_at(&self.name, self.window.place(fault.at), fault.problem)
    }

    /// Numbers an operation by position, unless it carries an index, which must rise, and follows its process.
    fn number(&mut self, draft: Draft) -> Result<Op, String> {
        let Draft {
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
        place: Place::Text {
            line: line as usize,
            column: column as usize,
        },
        problem,
    }
}
