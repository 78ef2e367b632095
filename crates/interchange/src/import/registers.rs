//! Reads transactions on registers and lists in the formats of other isolation checkers.
//!
//! These formats say which session ran which transactions in which order, what each read and wrote, and, some of them,
//! which were aborted. Except for the timestamps of the database that one of them has, none says *when*: a transaction
//! has no place in real time. A reader hands transactions to a [`TransactionSink`]: a history in memory is one
//! ([`super::Operations`] makes it), a checker's columns may be another, without operations in between.
//!
//! ```
//! use seatrial_history::{Stamps, TransactionSink};
//! use seatrial_interchange::import::registers::TransactionReader;
//! use seatrial_interchange::import::{Format, Options};
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
//! let mut reader = TransactionReader::open("a.txt", &text[..], Format::Plume, Options::default());
//! while reader.advance(&mut counts)? {}
//! assert_eq!((counts.transactions, counts.unborn), (2, 1));
//! # Ok::<(), seatrial_interchange::import::ImportError>(())
//! ```

mod assembly;
mod awdit;
mod bytes;
mod cobra;
mod collector;
mod dbcop;
mod dbcop_json;
mod draft;
mod json;
mod line;
mod plume;
#[cfg(test)]
mod tests;
mod timekiller;
mod veristrong;

pub(super) use collector::RegisterOperations;

use super::stream::READ_LENGTH;
use super::{Format, ImportError, Options, Place};
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

/// What is wrong, and where.
#[derive(Debug)]
struct Fault {
    place: Place,
    problem: String,
}

/// The parser of one format.
enum Parser {
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

/// Reads a file of one of the formats that carry transactions without times, in constant memory.
pub struct TransactionReader<R> {
    name: String,
    input: Bytes<R>,
    parser: Parser,
    /// Where the transaction begins that was handed over last.
    place: Place,
    /// What follows the input.
    sessions: Option<Sessions<R>>,
    /// Bytes of inputs before.
    passed: u64,
    read_length: usize,
}

impl<R: Read> TransactionReader<R> {
    /// A reader of `input`. `name` is for errors. A format that is no list of transactions is an error of the first
    /// [`TransactionReader::advance`].
    pub fn open(name: &str, input: R, format: Format, options: Options) -> TransactionReader<R> {
        TransactionReader::with_window(name, input, format, options, READ_LENGTH)
    }

    /// The same with reads of this length.
    pub(super) fn with_window(
        name: &str,
        input: R,
        format: Format,
        options: Options,
        read_length: usize,
    ) -> TransactionReader<R> {
        let initial = options.initial;
        let parser = match format {
            Format::Plume => Parser::Plume(Plume::new(initial)),
            Format::Awdit => Parser::Awdit(Awdit::new(initial)),
            Format::VeriStrong => Parser::VeriStrong(VeriStrong::new()),
            Format::Dbcop => Parser::Dbcop(Dbcop::new(initial)),
            Format::DbcopJson => Parser::DbcopJson(DbcopJson::new(initial)),
            Format::TimeKiller => Parser::TimeKiller(TimeKiller::new(initial)),
            Format::Cobra => Parser::Cobra(Cobra::new()),
            Format::Edn | Format::Json | Format::Porcupine => Parser::None,
        };
        let binary = matches!(format, Format::Dbcop | Format::Cobra);
        TransactionReader {
            name: name.to_owned(),
            input: Bytes::new(input, read_length, binary),
            parser,
            place: if binary { Place::Byte(0) } else { Place::START },
            sessions: None,
            passed: 0,
            read_length,
        }
    }

    /// A reader of sessions that have a file each ([`Format::Cobra`]), which are opened one after another; each comes
    /// with its name.
    pub fn of_sessions(
        name: &str,
        sessions: impl Iterator<Item = (String, io::Result<R>)> + 'static,
        options: Options,
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

    /// Hands the next transaction to `sink`, or some of them; false when there is none.
    pub fn advance<S: TransactionSink + ?Sized>(
        &mut self,
        sink: &mut S,
    ) -> Result<bool, ImportError> {
        loop {
            let (input, place) = (&mut self.input, &mut self.place);
            let result = match &mut self.parser {
                Parser::Plume(plume) => plume.advance(input, sink, place),
                Parser::Awdit(awdit) => awdit.advance(input, sink, place),
                Parser::VeriStrong(veristrong) => veristrong.advance(input, sink, place),
                Parser::Dbcop(dbcop) => dbcop.advance(input, sink, place),
                Parser::DbcopJson(dbcop) => dbcop.advance(input, sink, place),
                Parser::TimeKiller(timekiller) => timekiller.advance(input, sink, place),
                Parser::Cobra(cobra) => cobra.advance(input, sink, place),
                Parser::None => Err(Fault {
                    place: Place::START,
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

    /// Turns to the file of the next session, if there is one.
    fn next_session(&mut self) -> Result<bool, ImportError> {
        let Some((name, input)) = self.sessions.as_mut().and_then(Iterator::next) else {
            return Ok(false);
        };
        let input = input.map_err(|error| unreadable(&name, &cannot(&error)))?;
        self.passed += self.input.passed();
        self.input = Bytes::new(input, self.read_length, true);
        self.name = name;
        if let Parser::Cobra(cobra) = &mut self.parser {
            cobra.next_session();
        }
        Ok(true)
    }

    /// Bytes that the transactions so far have taken, with those that are still put together.
    pub fn bytes(&self) -> u64 {
        self.passed + self.input.passed()
    }

    /// An error at the transaction that was handed over last.
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
        place: Place::Byte(0),
        problem: problem.to_owned(),
    }
}

fn cannot(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Tells which of these formats a file has, from its first bytes.
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

/// Where a state that nobody wrote is a value like others: which one it is, and what becomes of writes of it.
#[derive(Clone, Copy)]
struct Initial {
    value: Option<i64>,
}

impl Initial {
    /// What a read saw; `None` is the initial state.
    #[inline]
    fn seen(self, value: i64) -> Option<i64> {
        (Some(value) != self.value).then_some(value)
    }

    /// Is a write to be handed on? One of the initial value is not: when it is done by the file's `first` transaction it
    /// says what is known, otherwise reads of it could mean two things.
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
