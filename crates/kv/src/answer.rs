//! Answers of a committed transaction, one per operation.

use crate::message::{HEADER_LENGTH, MESSAGE_LENGTH_MAX, MessageError, StoreFields};
use seatrial_machine::FieldReader;

/// Codes of the kinds of answers.
const ABSENT: u8 = 0;
const REGISTER: u8 = 1;
const LIST: u8 = 2;
const DONE: u8 = 3;

/// The answer to one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A read: the key does not exist.
    Absent,
    /// A read: the register's value.
    Register(&'a [u8]),
    /// A read: the list.
    List(List<'a>),
    /// A write, append or compare-and-set: done.
    Done,
}

/// The elements of a list at the time of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> List<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Is there no element?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements, oldest first.
    pub fn iter(&self) -> Elements<'a> {
        Elements {
            cursor: FieldReader::new(self.bytes),
            left: self.count,
        }
    }

    /// A list of exactly `count` elements in `bytes`; an error if they do not fill it.
    fn checked(count: u32, bytes: &'a [u8]) -> Result<List<'a>, MessageError> {
        let mut cursor = FieldReader::new(bytes);
        for _ in 0..count {
            cursor.value()?;
        }
        cursor.end()?;
        Ok(List { count, bytes })
    }
}

impl<'a> IntoIterator for &List<'a> {
    type Item = &'a [u8];
    type IntoIter = Elements<'a>;

    fn into_iter(self) -> Elements<'a> {
        self.iter()
    }
}

/// The elements of a list, oldest first.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    cursor: FieldReader<'a>,
    left: u32,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        self.cursor.value().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left as usize))
    }
}

/// The answers of a committed transaction, in the encoding of the received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    message: Vec<u8>,
    count: u16,
}

impl Answers {
    /// Decodes a reply (header included) that must have exactly `count` answers. Returns the reply on an error.
    pub(crate) fn new(reply: Vec<u8>, count: u16) -> Result<Answers, MessageError> {
        let mut cursor = FieldReader::starting_at(&reply, HEADER_LENGTH);
        for _ in 0..count {
            decode(&mut cursor)?;
        }
        cursor.end()?;
        Ok(Answers {
            message: reply,
            count,
        })
    }

    /// Number of answers.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Was it a transaction without operations?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The answers, in the order of the operations.
    pub fn iter(&self) -> impl Iterator<Item = Answer<'_>> {
        let mut cursor = FieldReader::starting_at(&self.message, HEADER_LENGTH);
        (0..self.count).map_while(move |_| decode(&mut cursor).ok())
    }
}

/// Decodes the next answer.
fn decode<'a>(cursor: &mut FieldReader<'a>) -> Result<Answer<'a>, MessageError> {
    let offset = cursor.offset();
    Ok(match cursor.byte("answer")? {
        ABSENT => Answer::Absent,
        REGISTER => Answer::Register(cursor.value()?),
        LIST => {
            let count = cursor.word("elements")?;
            let length = cursor.word("length of the list")?;
            Answer::List(List::checked(
                count,
                cursor.bytes("list", length as usize)?,
            )?)
        }
        DONE => Answer::Done,
        other => {
            return Err(MessageError::Value {
                field: "answer",
                offset,
                value: u64::from(other),
            });
        }
    })
}

/// The reply would exceed the maximum length of a message.
#[derive(Debug)]
pub(crate) struct TooLong;

/// Adds "done" to the answers in `out` (which has no header yet).
#[inline]
pub(crate) fn put_done(out: &mut Vec<u8>) {
    out.push(DONE);
}

/// Adds "absent".
#[inline]
pub(crate) fn put_absent(out: &mut Vec<u8>) {
    out.push(ABSENT);
}

/// Adds a register's value.
#[inline]
pub(crate) fn put_register(out: &mut Vec<u8>, value: &[u8]) -> Result<(), TooLong> {
    fits(out, 5 + value.len())?;
    out.push(REGISTER);
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
    Ok(())
}

/// Adds a list: its encoded elements are copied as they are.
#[inline]
pub(crate) fn put_list(out: &mut Vec<u8>, count: u32, elements: &[u8]) -> Result<(), TooLong> {
    fits(out, 9 + elements.len())?;
    out.push(LIST);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(elements.len() as u32).to_le_bytes());
    out.extend_from_slice(elements);
    Ok(())
}

/// Reserves room for a short answer for each operation that a transaction can have.
#[inline]
fn fits(out: &[u8], more: usize) -> Result<(), TooLong> {
    const BODY_LENGTH_MAX: usize =
        MESSAGE_LENGTH_MAX - HEADER_LENGTH - crate::message::OPERATIONS_MAX;
    if out.len() + more > BODY_LENGTH_MAX {
        return Err(TooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// A reply with one answer of each kind.
    fn reply() -> Vec<u8> {
        let mut out = vec![0; HEADER_LENGTH];
        put_absent(&mut out);
        put_register(&mut out, b"value").unwrap();
        put_list(&mut out, 2, b"\x01\0\0\0a\x02\0\0\0bc").unwrap();
        put_list(&mut out, 0, b"").unwrap();
        put_done(&mut out);
        out
    }

    #[test]
    fn answers_come_back_in_order() {
        let answers = Answers::new(reply(), 5).unwrap();
        let found: Vec<Answer<'_>> = answers.iter().collect();
        assert_eq!(found[..2], [Answer::Absent, Answer::Register(b"value")]);
        let Answer::List(list) = &found[2] else {
            panic!("{found:?}")
        };
        let elements: Vec<&[u8]> = list.iter().collect();
        assert_eq!(elements, [&b"a"[..], b"bc"]);
        assert!(matches!(&found[3], Answer::List(list) if list.is_empty()));
        assert_eq!(found[4], Answer::Done);
    }

    #[test]
    fn counts_and_lengths_that_do_not_add_up_are_refused() {
        assert!(Answers::new(reply(), 4).is_err());
        assert!(Answers::new(reply(), 6).is_err());
        let mut list = vec![0; HEADER_LENGTH];
        put_list(&mut list, 3, b"\x01\0\0\0a\x02\0\0\0bc").unwrap();
        assert!(Answers::new(list.clone(), 1).is_err());
        list[HEADER_LENGTH + 1] = 1;
        assert!(Answers::new(list, 1).is_err());
    }

    #[test]
    fn mutated_replies_never_panic() {
        for seed in 0..5_000 {
            let mut rng = Rng::from_seed(seed);
            let mut message = reply();
            for _ in 0..=rng.below(3) {
                let at = rng.index(message.len());
                message[at] = *rng.pick(&[0, 1, 2, 3, 255, rng.clone().word() as u8]);
            }
            message.truncate(rng.index(message.len() * 2 + 1));
            if let Ok(answers) = Answers::new(message, 5) {
                assert_eq!(answers.iter().count(), 5, "seed {seed}");
                for answer in answers.iter() {
                    if let Answer::List(list) = answer {
                        assert_eq!(list.iter().count(), list.len(), "seed {seed}");
                    }
                }
            }
        }
    }
}
