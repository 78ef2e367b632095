//! The text of AWDIT's tests: a line `r KEY VALUE` or `w KEY VALUE` for each operation, a line of `-` after a
//! transaction, a line of `=` after a session.
//!
//! No initial state is implied: a value that nobody wrote is one out of thin air, unless whoever reads names an initial
//! value. Transactions without operations are none.

use super::bytes::Bytes;
use super::line::{Line, LineFault};
use super::{Fault, Initial};
use crate::import::Place;
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

/// What a line says.
enum Item {
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

    /// Hands over the next transaction.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut Place,
    ) -> Result<bool, Fault> {
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
                Item::Operation { writes, key, value } => {
                    if !begun {
                        begun = true;
                        *place = Place::line(line);
                        sink.begin(self.session, None);
                    }
                    self.operation(sink, writes, key, value)
                        .map_err(|problem| input.fault(0, problem))?;
                }
                Item::SessionEnd => self.session += 1,
                Item::TransactionEnd | Item::Blank => {}
            }
            input.consume(length + usize::from(ends));
            input.line += u64::from(ends);
            let closes = matches!(item, Item::TransactionEnd | Item::SessionEnd);
            if begun && (closes || over) {
                self.count += 1;
                let place = *place;
                sink.end(OpType::Ok)
                    .map_err(|problem| Fault { place, problem })?;
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

/// Does a text begin so?
pub(super) fn is_awdit(text: &[u8]) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n');
    let first = lines.find_map(|line| match item(line) {
        Ok(Item::Blank) => None,
        Ok(Item::Operation { .. }) => Some(true),
        Ok(_) | Err(_) => Some(false),
    });
    first == Some(true)
}

/// What a line says.
fn item(text: &[u8]) -> Result<Item, LineFault> {
    let mut line = Line::new(text);
    if line.is_over() {
        return Ok(Item::Blank);
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
            return Ok(Item::Operation { writes, key, value });
        }
        _ => return line.fault("`r KEY VALUE`, `w KEY VALUE`, `---` or `===`"),
    }
    if !line.is_over() {
        return line.fault("the end of the line");
    }
    Ok(match first {
        Some(b'-') => Item::TransactionEnd,
        _ => Item::SessionEnd,
    })
}
