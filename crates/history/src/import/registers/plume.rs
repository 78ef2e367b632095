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
use super::{Fault, Initial, TransactionSink};
use crate::import::Place;
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
pub(super) struct Plume {
    assembly: Assembly,
    initial: Initial,
}

/// What a line says.
struct Operation {
    writes: bool,
    key: i64,
    value: i64,
    session: u64,
    transaction: i64,
}

impl Plume {
    pub(super) fn new(initial: Option<i64>) -> Plume {
        let value = Some(initial.unwrap_or(INITIAL));
        Plume {
            assembly: Assembly::new(),
            initial: Initial { value },
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
            let window = input.at_least(PLAIN_LENGTH_MAX);
            if window.is_empty() {
                input.finish()?;
                if !self.assembly.finish() {
                    return Ok(false);
                }
                break;
            }
            if let Some((operation, length)) = plain(window) {
                let line = input.line;
                self.take(&operation, line)
                    .map_err(|problem| input.fault(0, problem))?;
                input.consume(length);
                input.line += 1;
            } else {
                self.careful(input)?;
            }
        }
        *place = self.assembly.hand_over(sink)?;
        Ok(true)
    }

    #[inline]
    fn take(&mut self, operation: &Operation, line: u64) -> Result<(), String> {
        let &Operation {
            writes, key, value, ..
        } = operation;
        let id = (operation.transaction != ABORTED).then_some(operation.transaction);
        self.assembly.turn_to(operation.session, id, line)?;
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

/// A number of at most 18 digits, and where what follows it begins.
#[inline]
fn number(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let negative = *text.get(at)? == b'-';
    let start = at + usize::from(negative);
    let mut number: i64 = 0;
    let mut end = start;
    while let Some(byte) = text.get(end) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
        end += 1;
    }
    let plain = (1..=18).contains(&(end - start));
    plain.then_some((if negative { -number } else { number }, end))
}

/// A line without blanks and its length with the newline; `None` for whoever looks closer.
#[inline]
fn plain(text: &[u8]) -> Option<(Operation, usize)> {
    let writes = match text {
        [b'r', b'(', ..] => false,
        [b'w', b'(', ..] => true,
        _ => return None,
    };
    let comma = |at: usize| (text.get(at) == Some(&b',')).then_some(at + 1);
    let (key, at) = number(text, 2)?;
    let (value, at) = number(text, comma(at)?)?;
    let (session, at) = number(text, comma(at)?)?;
    let (transaction, at) = number(text, comma(at)?)?;
    if text.get(at..at + 2) != Some(b")\n") {
        return None;
    }
    let operation = Operation {
        writes,
        key,
        value,
        session: u64::try_from(session).ok()?,
        transaction,
    };
    Some((operation, at + 2))
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
        writes,
        key,
        value,
        session,
        transaction,
    }))
}
