//! Cobra's logs: a folder with a file `*.log` for each session. Numbers are big-endian, 64 bits with sign, after a byte
//! that says what follows:
//!
//! | tag | what follows |
//! | --- | --- |
//! | `S` | a transaction begins: its id |
//! | `C` | it was committed: its id |
//! | `W` | it wrote: id of the write, hash of the key, hash of the value |
//! | `R` | it read: id of the writing transaction, id of the write, hash of the key, hash of the value |
//!
//! The value of a key is the id of the write, which Cobra makes unique. A read that names another transaction than the one
//! whose write that is, in whichever log, is an error: what the log says of one of them is wrong. The ids 0xbebeebee
//! (from before the run) and 0xdeadbeef (nothing) are the initial state. What Cobra's own garbage collector reads and
//! writes (0x23332333, 0x66666666) is left out. A transaction without `C` at the end of a log has an unknown end. A last
//! byte 0xff, which some logs have, is passed over.

use super::Fault;
use super::bytes::Bytes;
use crate::import::Place;
use seatrial_history::FixedMap;
use seatrial_history::OpType;
use seatrial_history::TransactionSink;
use std::io::Read;

/// What was there before the run: transaction and write.
const INITIAL: i64 = 0xbebe_ebee;
/// Nothing.
const NULL: i64 = 0xdead_beef;
/// A key that was deleted.
const DELETED: i64 = 0xabcd_efab;
/// Writes of the garbage collector.
const COLLECTOR: [i64; 2] = [0x2333_2333, 0x6666_6666];

/// Reads such logs.
///
/// It remembers of every write whose it is, some 32 bytes each.
pub(super) struct Cobra {
    session: u64,
    writers: FixedMap<i64, Writer>,
}

/// Whose a write is.
#[derive(Clone, Copy)]
struct Writer {
    transaction: i64,
    /// Is it in that transaction's log, or does only a read say so?
    is_logged: bool,
}

impl Cobra {
    pub(super) fn new() -> Cobra {
        Cobra {
            session: 0,
            writers: FixedMap::default(),
        }
    }

    /// This transaction wrote this.
    fn wrote(&mut self, write: i64, transaction: i64) -> Result<(), String> {
        let logged = Writer {
            transaction,
            is_logged: true,
        };
        match self.writers.insert(write, logged) {
            Some(before) if !before.is_logged && before.transaction != transaction => Err(format!(
                "write {write} is transaction {transaction}'s, a read before says {}",
                before.transaction
            )),
            _ => Ok(()),
        }
    }

    /// This was read, and this transaction is said to have written it.
    fn read(&mut self, write: i64, transaction: i64) -> Result<(), String> {
        if write == DELETED {
            return Err("a read of a deleted key: it does not say by whom".to_owned());
        }
        let said = Writer {
            transaction,
            is_logged: false,
        };
        let known = *self.writers.entry(write).or_insert(said);
        if known.transaction == transaction {
            return Ok(());
        }
        let other = known.transaction;
        let because = if known.is_logged {
            format!("it is {other}'s")
        } else {
            format!("another read says {other}")
        };
        Err(format!(
            "a read of write {write} says that it is transaction {transaction}'s, {because}"
        ))
    }

    /// The log of the next session follows.
    pub(super) fn next_session(&mut self) {
        self.session += 1;
    }

    /// Hands over the next transaction.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut Place,
    ) -> Result<bool, Fault> {
        let begins = Place::Byte(input.passed());
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
        let refused = |problem| Fault {
            place: begins,
            problem,
        };
        let [id] = numbers(input, "the beginning of a transaction")?;
        sink.begin(self.session, None);
        loop {
            let at = Place::Byte(input.passed());
            let wrong = |problem| Fault { place: at, problem };
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
fn tag<R: Read>(input: &mut Bytes<R>) -> Result<Option<u8>, Fault> {
    let tag = input.at_least(1).first().copied();
    if tag.is_none() {
        input.finish()?;
    }
    Ok(tag)
}

fn unexpected<R: Read>(input: &Bytes<R>, tag: u8, expected: &str) -> Fault {
    let found = match tag {
        0x21..=0x7e => format!("`{}`", char::from(tag)),
        _ => format!("{tag:#04x}"),
    };
    Fault {
        place: Place::Byte(input.passed()),
        problem: format!("{expected} is expected, found {found}"),
    }
}

/// The numbers of a record, behind its tag.
fn numbers<R: Read, const N: usize>(input: &mut Bytes<R>, what: &str) -> Result<[i64; N], Fault> {
    let length = 1 + 8 * N;
    let found = input.at_least(length).len();
    if found < length {
        let place = Place::Byte(input.passed());
        input.finish()?;
        return Err(Fault {
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

/// Does a log begin so?
pub(super) fn is_cobra(first: &[u8]) -> bool {
    let Some((b'S', rest)) = first.split_first() else {
        return false;
    };
    // An id is no text: it would have to be very large.
    let binary = rest.iter().take(8).any(|byte| !(0x20..0x7f).contains(byte));
    binary && rest.len() > 8 && matches!(rest[8], b'R' | b'W' | b'C')
}
