//! Reads transactions on registers and lists in the formats of other isolation checkers.
//!
//! These formats contain the transactions of each session in order, their reads and writes, and in some formats which
//! ones aborted. None has times of clients (TimeKiller has the database's timestamps), so transactions of different
//! sessions are not ordered in real time. A reader calls a [`TransactionSink`]: a history ([`super::FileOperations`] builds one)
//! or a checker's columns, without operations in between.
//!
//! ```
//! use seatrial_history::{Stamps, TransactionSink};
//! use seatrial_interchange::import::registers::TransactionReader;
//! use seatrial_interchange::import::{Format, ImportOptions};
//! use seatrial_history::OpType;
//!
//! #[derive(Default)]
//! struct Counts { transactions: u32, unborn: u32 }
//!
//! impl TransactionSink for Counts {
//!     fn begin(&mut self, _session: u64, _stamps: Option<Stamps>) {}
//!     fn read(&mut self, _key: i64, value: Option<i64>) { self.unborn += u32::from(value.is_none()); }
//!     fn write(&mut self, _key: i64, _value: i64) {}
//!     fn append(&mut self, _key: i64, _element: i64) {}
//!     fn read_list(&mut self, _key: i64, _elements: &[i64]) {}
//!     fn end(&mut self, _outcome: OpType) -> Result<(), String> { self.transactions += 1; Ok(()) }
//! }
//!
//! let text = b"w(1,7,0,0)\nr(2,0,0,0)\nr(1,7,1,1)\n";
//! let mut counts = Counts::default();
//! let mut reader = TransactionReader::open("a.txt", &text[..], Format::Plume, ImportOptions::default());
//! while reader.advance(&mut counts)? {}
//! assert_eq!((counts.transactions, counts.unborn), (2, 1));
//! # Ok::<(), seatrial_interchange::import::ImportError>(())
//! ```

mod awdit;
mod bytes;
mod cobra;
mod collector;
mod dbcop;
mod dbcop_json;
mod draft;
mod json_tokens;
mod line;
mod plume;
#[cfg(test)]
mod tests;
mod timekiller;
mod transaction_assembly;
mod veristrong;

pub(super) use collector::RegisterOperations;

use super::text_operations::READ_LENGTH;
use super::{Format, ImportError, ImportOptions, SourcePosition};
use awdit::Awdit;
use bytes::Bytes;
use cobra::Cobra;
use dbcop::Dbcop;
use dbcop_json::DbcopJson;
use plume::Plume;
use seatrial_history::TransactionSink;
use std::io::{self, Read};
use timekiller::TimeKiller;
use veristrong::VeriStrong;

/// A problem and its place.
#[derive(Debug)]
struct InputFault {
    place: SourcePosition,
    problem: String,
}

/// The parser of one format.
enum TransactionParser {
    Plume(Plume),
    Awdit(Awdit),
    VeriStrong(VeriStrong),
    Dbcop(Dbcop),
    DbcopJson(DbcopJson),
    TimeKiller(TimeKiller),
    Cobra(Cobra),
    /// No format of transactions.
    None,
}

/// The inputs of sessions that have a file each, opened one after another.
type Sessions<R> = Box<dyn Iterator<Item = (String, io::Result<R>)>>;

/// Reads transactions of one of these formats, in memory that does not grow with the file (Cobra: 32 bytes per write).
pub struct TransactionReader<R> {
    name: String,
    input: Bytes<R>,
    parser: TransactionParser,
    /// Start of the transaction that was passed to the sink last.
    place: SourcePosition,
    /// Inputs of the sessions after this one.
    sessions: Option<Sessions<R>>,
    /// Bytes of the inputs before this one.
    passed: u64,
    read_length: usize,
}

impl<R: Read> TransactionReader<R> {
    /// A reader of `input`. `name` is for errors. Any other format is an error of the first
    /// [`TransactionReader::advance`].
    pub fn open(
        name: &str,
        input: R,
        format: Format,
        options: ImportOptions,
    ) -> TransactionReader<R> {
        TransactionReader::with_window(name, input, format, options, READ_LENGTH)
    }

    /// [`TransactionReader::open`] with reads of `read_length` bytes.
    pub(super) fn with_window(
        name: &str,
        input: R,
        format: Format,
        options: ImportOptions,
        read_length: usize,
    ) -> TransactionReader<R> {
        let initial = options.initial;
        let parser = match format {
            Format::Plume => TransactionParser::Plume(Plume::new(initial)),
            Format::Awdit => TransactionParser::Awdit(Awdit::new(initial)),
            Format::VeriStrong => TransactionParser::VeriStrong(VeriStrong::new()),
            Format::Dbcop => TransactionParser::Dbcop(Dbcop::new(initial)),
            Format::DbcopJson => TransactionParser::DbcopJson(DbcopJson::new(initial)),
            Format::TimeKiller => TransactionParser::TimeKiller(TimeKiller::new(initial)),
            Format::Cobra => TransactionParser::Cobra(Cobra::new()),
            Format::Edn
            | Format::Json
            | Format::Porcupine
            | Format::Csv
            | Format::PorcupineJson => TransactionParser::None,
        };
        let binary = matches!(format, Format::Dbcop | Format::Cobra);
        TransactionReader {
            name: name.to_owned(),
            input: Bytes::new(input, read_length, binary),
            parser,
            place: if binary {
                SourcePosition::Byte(0)
            } else {
                SourcePosition::START
            },
            sessions: None,
            passed: 0,
            read_length,
        }
    }

    /// A reader of sessions with a file each ([`Format::Cobra`]), opened one after another; the iterator yields
    /// each file's name and input.
    pub fn of_sessions(
        name: &str,
        sessions: impl Iterator<Item = (String, io::Result<R>)> + 'static,
        options: ImportOptions,
    ) -> Result<TransactionReader<R>, ImportError> {
        let mut sessions = sessions;
        let Some((first, input)) = sessions.next() else {
            return Err(unreadable(name, "has no logs of sessions (*.log)"));
        };
        let input = input.map_err(|error| unreadable(&first, &cannot(&error)))?;
        let mut reader = TransactionReader::open(&first, input, Format::Cobra, options);
        reader.sessions = Some(Box::new(sessions));
        Ok(reader)
    }

    /// Passes the next transaction, or several, to `sink`; false at the end.
    pub fn advance<S: TransactionSink + ?Sized>(
        &mut self,
        sink: &mut S,
    ) -> Result<bool, ImportError> {
        loop {
            let (input, place) = (&mut self.input, &mut self.place);
            let result = match &mut self.parser {
                TransactionParser::Plume(plume) => plume.advance(input, sink, place),
                TransactionParser::Awdit(awdit) => awdit.advance(input, sink, place),
                TransactionParser::VeriStrong(veristrong) => veristrong.advance(input, sink, place),
                TransactionParser::Dbcop(dbcop) => dbcop.advance(input, sink, place),
                TransactionParser::DbcopJson(dbcop) => dbcop.advance(input, sink, place),
                TransactionParser::TimeKiller(timekiller) => timekiller.advance(input, sink, place),
                TransactionParser::Cobra(cobra) => cobra.advance(input, sink, place),
                TransactionParser::None => Err(InputFault {
                    place: SourcePosition::START,
                    problem: "this format is no list of transactions without times".to_owned(),
                }),
            };
            let advanced = result.map_err(|fault| ImportError {
                file: self.name.clone(),
                place: fault.place,
                problem: fault.problem,
            })?;
            if advanced || !self.next_session()? {
                return Ok(advanced);
            }
        }
    }

    /// Opens the file of the next session; false when there is none.
    fn next_session(&mut self) -> Result<bool, ImportError> {
        let Some((name, input)) = self.sessions.as_mut().and_then(Iterator::next) else {
            return Ok(false);
        };
        let input = input.map_err(|error| unreadable(&name, &cannot(&error)))?;
        self.passed += self.input.passed();
        self.input = Bytes::new(input, self.read_length, true);
        self.name = name;
        if let TransactionParser::Cobra(cobra) = &mut self.parser {
            cobra.next_session();
        }
        Ok(true)
    }

    /// Bytes consumed so far, including transactions that are not complete yet.
    pub fn bytes(&self) -> u64 {
        self.passed + self.input.passed()
    }

    /// An error at the transaction that was passed to the sink last.
    pub fn error(&self, problem: impl Into<String>) -> ImportError {
        ImportError {
            file: self.name.clone(),
            place: self.place,
            problem: problem.into(),
        }
    }
}

fn unreadable(name: &str, problem: &str) -> ImportError {
    ImportError {
        file: name.to_owned(),
        place: SourcePosition::Byte(0),
        problem: problem.to_owned(),
    }
}

fn cannot(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Detects one of these formats from the first bytes of a file.
pub(super) fn detect(first: &[u8]) -> Option<Format> {
    let formats = [
        (plume::is_plume(first), Format::Plume),
        (awdit::is_awdit(first), Format::Awdit),
        (veristrong::is_veristrong(first), Format::VeriStrong),
        (dbcop_json::is_dbcop_json(first), Format::DbcopJson),
        (timekiller::is_timekiller(first), Format::TimeKiller),
        (cobra::is_cobra(first), Format::Cobra),
        (dbcop::is_dbcop(first), Format::Dbcop),
    ];
    let found = formats.into_iter().find(|(is, _)| *is);
    found.map(|(_, format)| format)
}

/// The value that stands for the initial state in a format without a form for it; `None`: no value does.
#[derive(Clone, Copy)]
struct Initial {
    value: Option<i64>,
}

impl Initial {
    /// The value that a read returned; `None` for the initial state.
    #[inline]
    fn seen(self, value: i64) -> Option<i64> {
        (Some(value) != self.value).then_some(value)
    }

    /// Is a write passed to the sink? A write of the initial value by the file's `first` transaction is redundant and dropped;
    /// a later one is an error, because a read of the value would be ambiguous.
    #[inline]
    fn writes(self, value: i64, first: bool) -> Result<bool, String> {
        if Some(value) != self.value {
            return Ok(true);
        }
        if first {
            return Ok(false);
        }
        Err(format!(
            "a write of {value}, which in this file is the initial state: a read of it could mean both"
        ))
    }
}
