//! dbcop's binary histories (OOPSLA 2019), which PolySI, VeriStrong and AWDIT read as well: bincode 1, so
//! little-endian numbers of fixed width.
//!
//! | size | what |
//! | --- | --- |
//! | 8 each | id, and the numbers of nodes, variables, transactions and events of the generator: ignored |
//! | 8 + n, three times | texts: information, start and end (RFC 3339): ignored |
//! | 8 | number of sessions |
//! | 8 | of each: number of transactions |
//! | 8 | of each of these: number of events |
//! | 18 | of each of these: 1 is it a write, 8 variable, 8 value, 1 did it succeed |
//! | 1 | after a transaction's events: was it committed |
//!
//! Value 0 is the initial state. A failed read is dropped; failed writes of a committed transaction become an aborted
//! transaction after it.

use super::bytes::Bytes;
use super::draft::{DraftAccessKind, TransactionDraft};
use super::{Initial, InputFault};
use crate::import::SourcePosition;
use seatrial_history::OpType;
use seatrial_history::TransactionSink;
use std::io::Read;

/// The initial value of a variable.
const INITIAL: i64 = 0;
/// Numbers and texts at the beginning.
const NUMBERS: usize = 5;
const TEXTS: usize = 3;
/// Length of an event.
const EVENT_LENGTH: usize = 18;
/// Longest text that a file may have to be recognised.
const TEXT_LENGTH_MAX: u64 = 1 << 20;

/// Reads such a file.
pub(super) struct Dbcop {
    initial: Initial,
    /// Sessions that are still to come; `None` before the header.
    sessions: Option<u64>,
    /// Transactions of the session that are still to come.
    transactions: u64,
    /// The session, from 0.
    session: u64,
    /// Transactions so far.
    count: u64,
    /// Writes that failed in a transaction that did not.
    failed: TransactionDraft,
}

struct DbcopEvent {
    writes: bool,
    key: i64,
    value: i64,
    succeeded: bool,
}

/// A fault at the next byte.
fn fault<R: Read>(input: &Bytes<R>, problem: impl Into<String>) -> InputFault {
    InputFault {
        place: SourcePosition::Byte(input.passed()),
        problem: problem.into(),
    }
}

/// Passes exactly `length` bytes, which `what` takes.
fn take<'a, R: Read>(
    input: &'a mut Bytes<R>,
    length: usize,
    what: &str,
) -> Result<&'a [u8], InputFault> {
    let found = input.at_least(length).len();
    if found < length {
        input.finish()?;
        let problem = format!("{what} takes {length} bytes, {found} are left");
        return Err(fault(input, problem));
    }
    Ok(input.consumed(length))
}

fn word<R: Read>(input: &mut Bytes<R>, what: &str) -> Result<u64, InputFault> {
    let bytes = take(input, 8, what)?;
    Ok(bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// A truth value; `before` is how many bytes ago it stood.
fn truth<R: Read>(input: &Bytes<R>, byte: u8, before: u64, what: &str) -> Result<bool, InputFault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(InputFault {
            place: SourcePosition::Byte(input.passed() - before),
            problem: format!("{what} is {byte}, neither 0 nor 1"),
        }),
    }
}

impl Dbcop {
    pub(super) fn new(initial: Option<i64>) -> Dbcop {
        Dbcop {
            initial: Initial {
                value: Some(initial.unwrap_or(INITIAL)),
            },
            sessions: None,
            transactions: 0,
            session: 0,
            count: 0,
            failed: TransactionDraft::default(),
        }
    }

    /// Hands over the next transaction.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut SourcePosition,
    ) -> Result<bool, InputFault> {
        let mut sessions = match self.sessions {
            Some(sessions) => sessions,
            None => header(input)?,
        };
        while self.transactions == 0 {
            let Some(left) = sessions.checked_sub(1) else {
                self.sessions = Some(0);
                if input.at_least(1).is_empty() {
                    input.finish()?;
                    return Ok(false);
                }
                return Err(fault(input, "something follows the last session"));
            };
            self.session += u64::from(self.sessions.is_some());
            sessions = left;
            self.sessions = Some(left);
            self.transactions = word(input, "the number of a session's transactions")?;
        }
        self.transactions -= 1;
        *place = SourcePosition::Byte(input.passed());
        self.transaction(input, sink)?;
        self.count += 1;
        Ok(true)
    }

    fn transaction<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
    ) -> Result<(), InputFault> {
        let place = SourcePosition::Byte(input.passed());
        let refused = |problem| InputFault { place, problem };
        let events = word(input, "the number of a transaction's events")?;
        sink.begin(self.session, None);
        for _ in 0..events {
            let at = input.passed();
            let event = event(input)?;
            let wrong = |problem| InputFault {
                place: SourcePosition::Byte(at),
                problem,
            };
            if !event.writes {
                if event.succeeded {
                    sink.read(event.key, self.initial.seen(event.value));
                }
                continue;
            }
            let writes = self.initial.writes(event.value, self.count == 0);
            if !writes.map_err(wrong)? {
                continue;
            }
            if event.succeeded {
                sink.write(event.key, event.value);
            } else {
                self.failed
                    .add(DraftAccessKind::Write, event.key, event.value)
                    .map_err(wrong)?;
            }
        }
        let committed = take(input, 1, "the end of a transaction")?[0];
        let committed = truth(input, committed, 1, "whether a transaction was committed")?;
        if !committed {
            self.failed.emit(sink);
            self.failed.clear();
            return sink.end(OpType::Fail).map_err(refused);
        }
        sink.end(OpType::Ok).map_err(refused)?;
        if self.failed.len() > 0 {
            sink.begin(self.session, None);
            self.failed.emit(sink);
            self.failed.clear();
            sink.end(OpType::Fail).map_err(refused)?;
        }
        Ok(())
    }
}

/// Passes what stands before the sessions; their number.
fn header<R: Read>(input: &mut Bytes<R>) -> Result<u64, InputFault> {
    for _ in 0..NUMBERS {
        word(input, "a number of the header")?;
    }
    for _ in 0..TEXTS {
        let at = input.passed();
        let length = word(input, "the length of a text")?;
        let mut left = length;
        while left > 0 {
            let found = input.at_least(1).len() as u64;
            if found == 0 {
                input.finish()?;
                return Err(InputFault {
                    place: SourcePosition::Byte(at),
                    problem: format!("a text has {length} bytes, the file ends before"),
                });
            }
            let length = found.min(left);
            input.consume(length as usize);
            left -= length;
        }
    }
    word(input, "the number of sessions")
}

fn event<R: Read>(input: &mut Bytes<R>) -> Result<DbcopEvent, InputFault> {
    let bytes = take(input, EVENT_LENGTH, "an event")?;
    let bytes: [u8; EVENT_LENGTH] = *bytes.first_chunk().unwrap_or(&[0; EVENT_LENGTH]);
    let number = |at: usize| {
        let bytes = bytes[at..].first_chunk();
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let (writes, succeeded) = (bytes[0], bytes[EVENT_LENGTH - 1]);
    let (variable, value) = (number(1), number(9));
    let narrow = |number: u64, before: u64, what: &str| {
        i64::try_from(number).map_err(|_| InputFault {
            place: SourcePosition::Byte(input.passed() - before),
            problem: format!("{what} {number} does not fit in 63 bits"),
        })
    };
    Ok(DbcopEvent {
        writes: truth(input, writes, 18, "whether an event is a write")?,
        key: narrow(variable, 17, "variable")?,
        value: narrow(value, 9, "value")?,
        succeeded: truth(input, succeeded, 1, "whether an event succeeded")?,
    })
}

/// Does a file begin so? Three texts, of which the second and third look like points of time.
pub(super) fn is_dbcop(first: &[u8]) -> bool {
    let mut rest = first.get(8 * NUMBERS..).unwrap_or_default();
    let mut times = 0;
    for text in 0..TEXTS {
        let Some((length, after)) = rest.split_first_chunk() else {
            return false;
        };
        let length = u64::from_le_bytes(*length);
        let Some(bytes) = usize::try_from(length)
            .ok()
            .and_then(|length| after.get(..length))
        else {
            // It continues after the known part of the file.
            return times > 0 && length <= TEXT_LENGTH_MAX;
        };
        if text > 0 {
            let like_time = |text: &[u8]| {
                text.len() >= 10 && text[4] == b'-' && text[..4].iter().all(u8::is_ascii_digit)
            };
            if !like_time(bytes) {
                return false;
            }
            times += 1;
        }
        rest = &after[bytes.len()..];
    }
    true
}
