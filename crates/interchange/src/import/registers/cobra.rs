//! Cobra's logs: a folder with a file `*.log` for each session. Numbers are big-endian, 64 bits with sign, after a tag
//! of one byte:
//!
//! | tag | what follows |
//! | --- | --- |
//! | `S` | a transaction begins: its id |
//! | `C` | it was committed: its id |
//! | `W` | it wrote: id of the write, hash of the key, hash of the value |
//! | `R` | it read: id of the writing transaction, id of the write, hash of the key, hash of the value |
//!
//! The value of a key is the id of the write, which Cobra makes unique. A read that names another transaction than the
//! writer of that write, in any session's log, is an error: one of the logs is wrong. The ids 0xbebeebee
//! (from before the run) and 0xdeadbeef (nothing) are the initial state. What Cobra's own garbage collector reads and
//! writes (0x23332333, 0x66666666) is omitted. A transaction without `C` at the end of a log has an unknown outcome. A
//! last byte 0xff, which some logs have, is ignored.

use super::InputFault;
use super::bytes::Bytes;
use crate::import::SourcePosition;
use seatrial_history::FixedMap;
use seatrial_history::OpType;
use seatrial_history::TransactionSink;
use std::io::Read;

/// The transaction and write id of the state before the run.
const INITIAL: i64 = 0xbebe_ebee;
/// The write id of an absent value.
const NULL: i64 = 0xdead_beef;
/// The write id of a deleted key.
const DELETED: i64 = 0xabcd_efab;
/// Writes of the garbage collector.
const COLLECTOR: [i64; 2] = [0x2333_2333, 0x6666_6666];

/// Reads such logs.
///
/// It keeps the transaction of every write, about 32 bytes each.
pub(super) struct Cobra {
    session: u64,
    writers: FixedMap<i64, WriteOrigin>,
}

/// The transaction of a write.
#[derive(Clone, Copy)]
struct WriteOrigin {
    transaction: i64,
    /// Is the write in that transaction's log, or known from a read only?
    is_logged: bool,
}

impl Cobra {
    pub(super) fn new() -> Cobra {
        Cobra {
            session: 0,
            writers: FixedMap::default(),
        }
    }

    /// Notes a write of a transaction's log.
    fn wrote(&mut self, write: i64, transaction: i64) -> Result<(), String> {
        let logged = WriteOrigin {
            transaction,
            is_logged: true,
        };
        match self.writers.insert(write, logged) {
            Some(before) if !before.is_logged && before.transaction != transaction => Err(format!(
                "write {write} is of transaction {transaction}; an earlier read names transaction {}",
                before.transaction
            )),
            _ => Ok(()),
        }
    }

    /// Notes a read, which names the transaction of the write.
    fn read(&mut self, write: i64, transaction: i64) -> Result<(), String> {
        if write == DELETED {
            return Err(
                "a read of a deleted key does not name the deleting transaction".to_owned(),
            );
        }
        let origin = WriteOrigin {
            transaction,
            is_logged: false,
        };
        let known = *self.writers.entry(write).or_insert(origin);
        if known.transaction == transaction {
            return Ok(());
        }
        let other = known.transaction;
        let because = if known.is_logged {
            format!("the writer is transaction {other}")
        } else {
            format!("another read names transaction {other}")
        };
        Err(format!(
            "a read of write {write} names transaction {transaction}; {because}"
        ))
    }

    /// Begins the log of the next session.
    pub(super) fn next_session(&mut self) {
        self.session += 1;
    }

    /// Passes the next transaction to `sink`.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut SourcePosition,
    ) -> Result<bool, InputFault> {
        let begins = SourcePosition::Byte(input.passed());
        match tag(input)? {
            None => return Ok(false),
            Some(b'S') => {}
            Some(0xff) if input.at_least(2).len() == 1 => {
                input.consume(1);
                input.finish()?;
                return Ok(false);
            }
            Some(other) => return Err(unexpected(input, other, "`S` (a transaction begins)")),
        }
        *place = begins;
        let refused = |problem| InputFault {
            place: begins,
            problem,
        };
        let [id] = numbers(input, "the beginning of a transaction")?;
        sink.begin(self.session, None);
        loop {
            let at = SourcePosition::Byte(input.passed());
            let wrong = |problem| InputFault { place: at, problem };
            match tag(input)? {
                None => {
                    sink.end(OpType::Info).map_err(refused)?;
                    return Ok(true);
                }
                Some(b'W') => {
                    let [write, key, _] = numbers(input, "a write")?;
                    if write == INITIAL || write == NULL {
                        let problem = "a write with the id of the initial state";
                        return Err(wrong(problem.to_owned()));
                    }
                    if !COLLECTOR.contains(&write) {
                        self.wrote(write, id).map_err(wrong)?;
                        sink.write(key, write);
                    }
                }
                Some(b'R') => {
                    let [writer, write, key, _] = numbers(input, "a read")?;
                    match write {
                        INITIAL | NULL => sink.read(key, None),
                        _ if COLLECTOR.contains(&write) => {}
                        _ => {
                            self.read(write, writer).map_err(wrong)?;
                            sink.read(key, Some(write));
                        }
                    }
                }
                Some(b'C') => {
                    let [committed] = numbers(input, "a commit")?;
                    if committed != id {
                        let problem = format!("transaction {committed} is committed within {id}");
                        return Err(wrong(problem));
                    }
                    sink.end(OpType::Ok).map_err(refused)?;
                    return Ok(true);
                }
                Some(other) => return Err(unexpected(input, other, "`R`, `W` or `C`")),
            }
        }
    }
}

/// The tag of the next record, not consumed; `None` at the end.
fn tag<R: Read>(input: &mut Bytes<R>) -> Result<Option<u8>, InputFault> {
    let tag = input.at_least(1).first().copied();
    if tag.is_none() {
        input.finish()?;
    }
    Ok(tag)
}

fn unexpected<R: Read>(input: &Bytes<R>, tag: u8, expected: &str) -> InputFault {
    let found = match tag {
        0x21..=0x7e => format!("`{}`", char::from(tag)),
        _ => format!("{tag:#04x}"),
    };
    InputFault {
        place: SourcePosition::Byte(input.passed()),
        problem: format!("{expected} is expected, found {found}"),
    }
}

/// The numbers of a record, after its tag.
fn numbers<R: Read, const N: usize>(
    input: &mut Bytes<R>,
    what: &str,
) -> Result<[i64; N], InputFault> {
    let length = 1 + 8 * N;
    let found = input.at_least(length).len();
    if found < length {
        let place = SourcePosition::Byte(input.passed());
        input.finish()?;
        return Err(InputFault {
            place,
            problem: format!("{what} takes {length} bytes, {found} are left"),
        });
    }
    let bytes = input.consumed(length);
    let mut numbers = [0; N];
    let (words, _) = bytes[1..].as_chunks::<8>();
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = i64::from_be_bytes(*word);
    }
    Ok(numbers)
}

/// Does a log begin in this format?
pub(super) fn is_cobra(first: &[u8]) -> bool {
    let Some((b'S', rest)) = first.split_first() else {
        return false;
    };
    // A text would be read as very large ids.
    let binary = rest.iter().take(8).any(|byte| !(0x20..0x7f).contains(byte));
    binary && rest.len() > 8 && matches!(rest[8], b'R' | b'W' | b'C')
}
