//! The text of Plume and PolySI: a line `r(KEY,VALUE,SESSION,TRANSACTION)` or `w(…)` for each operation.
//!
//! All four are decimal numbers of 64 bits with sign; a session is not negative. Operations of a transaction stand in
//! program order, transactions of a session in the order of their first lines. Transaction `-1` is every aborted one:
//! consecutive lines of one session are read as one transaction. Value 0 is the initial state.

use super::bytes::Bytes;
use super::draft::DraftAccessKind;
use super::line::{LineFault, LineParser};
use super::transaction_assembly::TransactionAssembly;
use super::{Initial, InputFault};
use crate::import::SourcePosition;
use crate::import::transaction_row::integer;
use seatrial_history::TransactionSink;
use std::io::Read;

/// The initial value of a register.
const INITIAL: i64 = 0;
/// The transaction of all that was aborted.
const ABORTED: i64 = -1;
/// Longest line, with blanks.
const LINE_LENGTH_MAX: usize = 4_096;
/// Longest line as programs write it: four numbers of 20 digits.
const PLAIN_LENGTH_MAX: usize = 96;

/// Reads such a text: a fast path for lines as programs write them, and a careful one for all others, which reports errors.
///
/// Lines of one transaction are mostly adjacent: the end of a line (session and transaction) is compared with that of the
/// previous line, and parsed only when they differ.
pub(super) struct Plume {
    assembly: TransactionAssembly,
    initial: Initial,
    end: LineEnd,
}

/// A parsed line.
struct PlumeLine {
    access: PlumeAccess,
    session: u64,
    transaction: i64,
}

/// The access of a line.
#[derive(Clone, Copy)]
struct PlumeAccess {
    writes: bool,
    key: i64,
    value: i64,
}

/// The end of the line before, from the comma in front of the session to the newline, when it is one of at most 16 bytes.
#[derive(Default)]
struct LineEnd {
    bytes: u128,
    /// Selects the bits of the end.
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

    /// Does `rest` begin with the kept end?
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
            assembly: TransactionAssembly::new(),
            initial: Initial { value },
            end: LineEnd::default(),
        }
    }

    /// Passes the next transaction to `sink`.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut SourcePosition,
    ) -> Result<bool, InputFault> {
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
        *place = self.assembly.emit(sink)?;
        Ok(true)
    }

    /// Takes the first line of `text`, if it is in the usual spelling; returns its length with the newline.
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
        let operation = PlumeLine {
            access,
            session,
            transaction,
        };
        self.take(&operation, line)?;
        Ok(Some(at + length))
    }

    fn take(&mut self, operation: &PlumeLine, line: u64) -> Result<(), String> {
        let id = (operation.transaction != ABORTED).then_some(operation.transaction);
        self.assembly.select(operation.session, id, line)?;
        self.add(operation.access)
    }

    /// Adds to the transaction of the line before.
    #[inline]
    fn add(&mut self, access: PlumeAccess) -> Result<(), String> {
        let PlumeAccess { writes, key, value } = access;
        let kind = match (writes, self.initial.seen(value)) {
            (false, Some(_)) => DraftAccessKind::Read,
            (false, None) => DraftAccessKind::ReadInitial,
            (true, Some(_)) => DraftAccessKind::Write,
            (true, None) => {
                self.initial.writes(value, self.assembly.is_first())?;
                return Ok(());
            }
        };
        self.assembly.add(kind, key, value)
    }

    /// Reads a line in any spelling, and reports its errors.
    fn careful<R: Read>(&mut self, input: &mut Bytes<R>) -> Result<(), InputFault> {
        let (length, ends) = input.line_length(LINE_LENGTH_MAX)?;
        if !ends && input.ended() {
            // A part of a line before a read error is not a line.
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

/// Does a text begin in this format?
pub(super) fn is_plume(text: &[u8]) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n');
    lines
        .find_map(|line| operation(line).transpose())
        .is_some_and(|first| first.is_ok())
}

/// The access of a line without blanks, and the expected offset of the comma before its session; `None`: use the careful path.
#[inline]
fn access(text: &[u8]) -> Option<(PlumeAccess, usize)> {
    let writes = match text {
        [b'r', b'(', ..] => false,
        [b'w', b'(', ..] => true,
        _ => return None,
    };
    let (key, at) = integer(text, 2)?;
    let (value, at) = integer(text, comma(text, at)?)?;
    Some((PlumeAccess { writes, key, value }, at))
}

/// Session and transaction from the comma in front of them, and the length up to the newline and with it.
#[inline]
fn owner(text: &[u8]) -> Option<(u64, i64, usize)> {
    let (session, at) = integer(text, comma(text, 0)?)?;
    let (transaction, at) = integer(text, comma(text, at)?)?;
    let session = u64::try_from(session).ok()?;
    (text.get(at..at + 2) == Some(b")\n")).then_some((session, transaction, at + 2))
}

/// The offset after a comma.
#[inline]
fn comma(text: &[u8], at: usize) -> Option<usize> {
    (text.get(at) == Some(&b',')).then_some(at + 1)
}

/// Parses a line; `None` for a blank one.
fn operation(text: &[u8]) -> Result<Option<PlumeLine>, LineFault> {
    let mut line = LineParser::new(text);
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
    Ok(Some(PlumeLine {
        access: PlumeAccess { writes, key, value },
        session,
        transaction,
    }))
}
