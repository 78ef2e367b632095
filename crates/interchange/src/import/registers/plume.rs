//! The text of Plume and PolySI: a line `r(KEY,VALUE,SESSION,TRANSACTION)` or `w(…)` for each operation.
//!
//! All four are decimal numbers of 64 bits with sign; a session is not negative. Operations of a transaction stand in
//! program order, transactions of a session in the order of their first lines. Transaction `-1` is every aborted one:
//! lines of one session that follow each other directly are taken for one transaction. Value 0 is the state that nobody
//! wrote.

use super::assembly::Assembly;
use super::bytes::Bytes;
use super::draft::Kind;
use super::line::{Line, LineFault};
use super::{Fault, Initial};
use crate::import::Place;
use crate::import::transaction::integer;
use seatrial_history::TransactionSink;
use std::io::Read;

/// The value of a register that nobody wrote.
const INITIAL: i64 = 0;
/// The transaction of all that was aborted.
const ABORTED: i64 = -1;
/// Longest line, with blanks.
const LINE_LENGTH_MAX: usize = 4_096;
/// Longest line as programs write it: four numbers of 20 digits.
const PLAIN_LENGTH_MAX: usize = 96;

/// Reads such a text: a quick look at a line as programs write it, and a slow one at all others, which knows what is
/// wrong with it.
///
/// Lines of one transaction mostly follow each other: the end of a line is compared with that of the one before, and read only
/// when they differ.
pub(super) struct Plume {
    assembly: Assembly,
    initial: Initial,
    end: LineEnd,
}

/// What a line says.
struct Operation {
    access: Access,
    session: u64,
    transaction: i64,
}

/// What one does in its transaction.
#[derive(Clone, Copy)]
struct Access {
    writes: bool,
    key: i64,
    value: i64,
}

/// The end of the line before, from the comma in front of the session to the newline, when it is one of at most 16 bytes.
#[derive(Default)]
struct LineEnd {
    bytes: u128,
    /// The bits that count.
    mask: u128,
    /// 0: there is none.
    length: usize,
}

impl LineEnd {
    /// Keeps the end of a line; none that is long.
    fn keep(&mut self, end: &[u8]) {
        let mut bytes = [0; 16];
        *self = LineEnd::default();
        if let Some(start) = bytes.get_mut(..end.len()) {
            start.copy_from_slice(end);
            self.bytes = u128::from_le_bytes(bytes);
            self.mask = u128::MAX >> (128 - 8 * end.len());
            self.length = end.len();
        }
    }

    /// Does what is kept stand at the start of `rest`?
    #[inline]
    fn is_at(&self, rest: &[u8]) -> bool {
        let same = |bytes: &[u8; 16]| (u128::from_le_bytes(*bytes) ^ self.bytes) & self.mask == 0;
        self.length > 0 && rest.first_chunk().is_some_and(same)
    }
}

impl Plume {
    pub(super) fn new(initial: Option<i64>) -> Plume {
        let value = Some(initial.unwrap_or(INITIAL));
        Plume {
            assembly: Assembly::new(),
            initial: Initial { value },
            end: LineEnd::default(),
        }
    }

    /// Hands over the next transaction.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut Place,
    ) -> Result<bool, Fault> {
        while !self.assembly.is_ready() {
            let line = input.line;
            let window = input.at_least(PLAIN_LENGTH_MAX);
            if window.is_empty() {
                input.finish()?;
                if !self.assembly.finish() {
                    return Ok(false);
                }
                break;
            }
            match self.quick(window, line) {
                Ok(Some(length)) => {
                    input.consume(length);
                    input.line += 1;
                }
                Ok(None) => self.careful(input)?,
                Err(problem) => return Err(input.fault(0, problem)),
            }
        }
        *place = self.assembly.hand_over(sink)?;
        Ok(true)
    }

    /// Takes the line that `text` begins with, if it is as programs write it; its length with the newline.
    #[inline]
    fn quick(&mut self, text: &[u8], line: u64) -> Result<Option<usize>, String> {
        let Some((access, at)) = access(text) else {
            return Ok(None);
        };
        let rest = &text[at..];
        if self.end.is_at(rest) {
            self.add(access)?;
            return Ok(Some(at + self.end.length));
        }
        let Some((session, transaction, length)) = owner(rest) else {
            return Ok(None);
        };
        self.end.keep(&rest[..length]);
        let operation = Operation {
            access,
            session,
            transaction,
        };
        self.take(&operation, line)?;
        Ok(Some(at + length))
    }

    fn take(&mut self, operation: &Operation, line: u64) -> Result<(), String> {
        let id = (operation.transaction != ABORTED).then_some(operation.transaction);
        self.assembly.turn_to(operation.session, id, line)?;
        self.add(operation.access)
    }

    /// Adds to the transaction of the line before.
    #[inline]
    fn add(&mut self, access: Access) -> Result<(), String> {
        let Access { writes, key, value } = access;
        let kind = match (writes, self.initial.seen(value)) {
            (false, Some(_)) => Kind::Read,
            (false, None) => Kind::ReadInitial,
            (true, Some(_)) => Kind::Write,
            (true, None) => {
                self.initial.writes(value, self.assembly.is_first())?;
                return Ok(());
            }
        };
        self.assembly.add(kind, key, value)
    }

    /// A line that is not as programs write it.
    fn careful<R: Read>(&mut self, input: &mut Bytes<R>) -> Result<(), Fault> {
        let (length, ends) = input.line_length(LINE_LENGTH_MAX)?;
        if !ends && input.ended() {
            // A part of a line that cannot be read on is no line.
            input.finish()?;
        }
        let line = input.line;
        let text = &input.rest()[..length];
        let operation = operation(text).map_err(|(at, problem)| input.fault(at, problem))?;
        if let Some(operation) = operation {
            self.end = LineEnd::default();
            self.take(&operation, line)
                .map_err(|problem| input.fault(0, problem))?;
        }
        input.consume(length + usize::from(ends));
        input.line += 1;
        Ok(())
    }
}

/// Does a text begin so?
pub(super) fn is_plume(text: &[u8]) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n');
    lines
        .find_map(|line| operation(line).transpose())
        .is_some_and(|first| first.is_ok())
}

/// What a line without blanks says that is done, and where its session's comma is expected; `None` for whoever looks closer.
#[inline]
fn access(text: &[u8]) -> Option<(Access, usize)> {
    let writes = match text {
        [b'r', b'(', ..] => false,
        [b'w', b'(', ..] => true,
        _ => return None,
    };
    let (key, at) = integer(text, 2)?;
    let (value, at) = integer(text, comma(text, at)?)?;
    Some((Access { writes, key, value }, at))
}

/// Session and transaction from the comma in front of them, and the length up to the newline and with it.
#[inline]
fn owner(text: &[u8]) -> Option<(u64, i64, usize)> {
    let (session, at) = integer(text, comma(text, 0)?)?;
    let (transaction, at) = integer(text, comma(text, at)?)?;
    let session = u64::try_from(session).ok()?;
    (text.get(at..at + 2) == Some(b")\n")).then_some((session, transaction, at + 2))
}

/// Where what follows a comma begins.
#[inline]
fn comma(text: &[u8], at: usize) -> Option<usize> {
    (text.get(at) == Some(&b',')).then_some(at + 1)
}

/// What a line says; `None` of a blank one.
fn operation(text: &[u8]) -> Result<Option<Operation>, LineFault> {
    let mut line = Line::new(text);
    if line.is_over() {
        return Ok(None);
    }
    let writes = match line.peek() {
        Some(b'r') => false,
        Some(b'w') => true,
        _ => return line.fault("`r(…)` or `w(…)`"),
    };
    let _ = line.expect(if writes { b'w' } else { b'r' });
    line.expect(b'(')?;
    let mut field = |what: &str, close: u8| {
        line.skip_blank();
        let at = line.at();
        let number = line.int(what)?;
        line.skip_blank();
        line.expect(close)?;
        Ok((at, number))
    };
    let (_, key) = field("a key", b',')?;
    let (_, value) = field("a value", b',')?;
    let (at, session) = field("a session", b',')?;
    let (_, transaction) = field("a transaction", b')')?;
    let session =
        u64::try_from(session).map_err(|_| (at, format!("session {session} is negative")))?;
    if !line.is_over() {
        return line.fault("the end of the line");
    }
    Ok(Some(Operation {
        access: Access { writes, key, value },
        session,
        transaction,
    }))
}
