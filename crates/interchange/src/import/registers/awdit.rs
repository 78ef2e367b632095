//! The text of AWDIT's tests: a line `r KEY VALUE` or `w KEY VALUE` for each operation, a line of `-` after a
//! transaction, a line of `=` after a session.
//!
//! No initial state is implied: a read of an unwritten value is an anomaly, unless
//! [`ImportOptions::initial`](super::super::ImportOptions) names an initial value. Transactions without operations are dropped.

use super::bytes::Bytes;
use super::line::{LineFault, LineParser};
use super::{Initial, InputFault};
use crate::import::SourcePosition;
use seatrial_history::OpType;
use seatrial_history::TransactionSink;
use std::io::Read;

/// Longest line.
const LINE_LENGTH_MAX: usize = 4_096;

/// Reads such a text.
pub(super) struct Awdit {
    session: u64,
    /// Transactions so far.
    count: u64,
    initial: Initial,
}

/// A parsed line.
enum AwditLine {
    Blank,
    Operation { writes: bool, key: i64, value: i64 },
    TransactionEnd,
    SessionEnd,
}

impl Awdit {
    pub(super) fn new(initial: Option<i64>) -> Awdit {
        Awdit {
            session: 0,
            count: 0,
            initial: Initial { value: initial },
        }
    }

    /// Passes the next transaction to `sink`.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut SourcePosition,
    ) -> Result<bool, InputFault> {
        let mut begun = false;
        loop {
            let (length, ends) = input.line_length(LINE_LENGTH_MAX)?;
            if !ends {
                input.finish()?;
            }
            let over = !ends && length == 0;
            let read = item(&input.rest()[..length]);
            let item = read.map_err(|(at, problem)| input.fault(at, problem))?;
            let line = input.line;
            match item {
                AwditLine::Operation { writes, key, value } => {
                    if !begun {
                        begun = true;
                        *place = SourcePosition::line(line);
                        sink.begin(self.session, None);
                    }
                    self.operation(sink, writes, key, value)
                        .map_err(|problem| input.fault(0, problem))?;
                }
                AwditLine::SessionEnd => self.session += 1,
                AwditLine::TransactionEnd | AwditLine::Blank => {}
            }
            input.consume(length + usize::from(ends));
            input.line += u64::from(ends);
            let closes = matches!(item, AwditLine::TransactionEnd | AwditLine::SessionEnd);
            if begun && (closes || over) {
                self.count += 1;
                let place = *place;
                sink.end(OpType::Ok)
                    .map_err(|problem| InputFault { place, problem })?;
                return Ok(true);
            }
            if over {
                return Ok(false);
            }
        }
    }

    fn operation<S: TransactionSink + ?Sized>(
        &self,
        sink: &mut S,
        writes: bool,
        key: i64,
        value: i64,
    ) -> Result<(), String> {
        if !writes {
            sink.read(key, self.initial.seen(value));
        } else if self.initial.writes(value, self.count == 0)? {
            sink.write(key, value);
        }
        Ok(())
    }
}

/// Does a text begin in this format?
pub(super) fn is_awdit(text: &[u8]) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n');
    let first = lines.find_map(|line| match item(line) {
        Ok(AwditLine::Blank) => None,
        Ok(AwditLine::Operation { .. }) => Some(true),
        Ok(_) | Err(_) => Some(false),
    });
    first == Some(true)
}

/// Parses a line.
fn item(text: &[u8]) -> Result<AwditLine, LineFault> {
    let mut line = LineParser::new(text);
    if line.is_over() {
        return Ok(AwditLine::Blank);
    }
    let first = line.peek();
    match first {
        Some(rule @ (b'-' | b'=')) => {
            while line.peek() == Some(rule) {
                line.expect(rule)?;
            }
        }
        Some(letter @ (b'r' | b'w')) => {
            line.expect(letter)?;
            if !matches!(line.peek(), Some(b' ' | b'\t')) {
                return line.fault("a blank");
            }
            line.skip_blank();
            let key = line.int("a key")?;
            line.skip_blank();
            let value = line.int("a value")?;
            if !line.is_over() {
                return line.fault("the end of the line");
            }
            let writes = letter == b'w';
            return Ok(AwditLine::Operation { writes, key, value });
        }
        _ => return line.fault("`r KEY VALUE`, `w KEY VALUE`, `---` or `===`"),
    }
    if !line.is_over() {
        return line.fault("the end of the line");
    }
    Ok(match first {
        Some(b'-') => AwditLine::TransactionEnd,
        _ => AwditLine::SessionEnd,
    })
}
