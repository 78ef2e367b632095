//! Answers of a committed transaction, one per operation, as its client reads them.

use crate::message::{HEADER_LENGTH, MessageError, StoreFields};
use seatrial_machine::FieldReader;

/// Codes of the kinds of answers.
pub(crate) const ABSENT: u8 = 0;
pub(crate) const REGISTER: u8 = 1;
pub(crate) const LIST: u8 = 2;
pub(crate) const DONE: u8 = 3;
pub(crate) const RANGE: u8 = 4;

/// The answer to one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A read: the key does not exist.
    Absent,
    /// A read: the register's value.
    Register(&'a [u8]),
    /// A read: the list.
    List(List<'a>),
    /// A write, append, compare-and-set or delete: done.
    Done,
    /// A scan: the keys that exist, and what they hold.
    Range(KeyRange<'a>),
}

/// Keys in order and their items, as one scan found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    is_cut: bool,
    count: u32,
    bytes: &'a [u8],
}

impl<'a> KeyRange<'a> {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Is there no key?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Has the range more keys after the last one here? The limit was reached, or the next item did not fit into the message.
    /// The scan continues at the last key with a zero byte appended.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The keys in ascending order, each with an [`Answer::Register`] or [`Answer::List`].
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Answer<'a>)> + use<'a> {
        let mut cursor = FieldReader::new(self.bytes);
        (0..self.count).map_while(move |_| decode_pair(&mut cursor).ok())
    }

    /// A range of exactly `count` ascending keys in `bytes`.
    fn checked(is_cut: bool, count: u32, bytes: &'a [u8]) -> Result<KeyRange<'a>, MessageError> {
        let mut cursor = FieldReader::new(bytes);
        let mut last: Option<&[u8]> = None;
        for _ in 0..count {
            let (key, _) = decode_pair(&mut cursor)?;
            if last.is_some_and(|last| last >= key) {
                return Err(cursor.never("key of a range", 0, 0));
            }
            last = Some(key);
        }
        cursor.end()?;
        if is_cut && count == 0 {
            return Err(cursor.never("cut of an empty range", 0, 1));
        }
        Ok(KeyRange {
            is_cut,
            count,
            bytes,
        })
    }
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
    /// Decodes a reply (header included) that must have exactly `count` answers.
    pub fn new(reply: Vec<u8>, count: u16) -> Result<Answers, MessageError> {
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
        DONE => Answer::Done,
        RANGE => {
            let is_cut = cursor.truth("cut of the range")?;
            let count = cursor.word("keys")?;
            let length = cursor.word("length of the range")?;
            let bytes = cursor.bytes("range", length as usize)?;
            Answer::Range(KeyRange::checked(is_cut, count, bytes)?)
        }
        tag => decode_item(tag, offset, cursor)?,
    })
}

/// Decodes a register or list after its tag, which is at `offset`.
fn decode_item<'a>(
    tag: u8,
    offset: usize,
    cursor: &mut FieldReader<'a>,
) -> Result<Answer<'a>, MessageError> {
    Ok(match tag {
        REGISTER => Answer::Register(cursor.value()?),
        LIST => {
            let count = cursor.word("elements")?;
            let length = cursor.word("length of the list")?;
            Answer::List(List::checked(
                count,
                cursor.bytes("list", length as usize)?,
            )?)
        }
        other => {
            return Err(MessageError::Value {
                field: "answer",
                offset,
                value: u64::from(other),
            });
        }
    })
}

/// Decodes the next key of a range and its item.
fn decode_pair<'a>(cursor: &mut FieldReader<'a>) -> Result<(&'a [u8], Answer<'a>), MessageError> {
    let key = cursor.key()?;
    let offset = cursor.offset();
    let tag = cursor.byte("answer")?;
    Ok((key, decode_item(tag, offset, cursor)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer_encoder::{
        RangeEncoder, TooLong, put_absent, put_done, put_list, put_register,
    };
    use seatrial_machine::Rng;

    /// A reply with one answer of each kind.
    fn reply() -> Vec<u8> {
        let mut out = vec![0; HEADER_LENGTH];
        put_absent(&mut out);
        put_register(&mut out, b"value").unwrap();
        put_elements(&mut out, 2, b"\x01\0\0\0a\x02\0\0\0bc");
        put_elements(&mut out, 0, b"");
        put_done(&mut out);
        put_range(&mut out, &[b"", b"key", b"keys"]);
        put_range(&mut out, &[]);
        out
    }

    fn put_elements(out: &mut Vec<u8>, count: u32, bytes: &[u8]) {
        put_list(out, count, bytes.len(), bytes.chunks(3)).unwrap();
    }

    /// A range of these keys; the first is a list, the others are registers. Cut if there is a key.
    fn put_range(out: &mut Vec<u8>, keys: &[&[u8]]) {
        let mut range = RangeEncoder::begin(out).unwrap();
        for (index, key) in keys.iter().enumerate() {
            let put = range.put(out, key, |out| match index {
                0 => put_list(out, 1, 4, std::iter::once(&[0; 4][..])),
                _ => put_register(out, b"value"),
            });
            put.unwrap();
            assert!(range.put(out, b"zzz", |_| Err(TooLong)).is_err());
            range.cut();
        }
        range.finish(out);
    }

    #[test]
    fn answers_come_back_in_order() {
        let answers = Answers::new(reply(), 7).unwrap();
        let found: Vec<Answer<'_>> = answers.iter().collect();
        assert_eq!(found[..2], [Answer::Absent, Answer::Register(b"value")]);
        let Answer::List(list) = &found[2] else {
            panic!("{found:?}")
        };
        let elements: Vec<&[u8]> = list.iter().collect();
        assert_eq!(elements, [&b"a"[..], b"bc"]);
        assert!(matches!(&found[3], Answer::List(list) if list.is_empty()));
        assert_eq!(found[4], Answer::Done);
        let Answer::Range(range) = &found[5] else {
            panic!("{found:?}")
        };
        let pairs: Vec<(&[u8], Answer<'_>)> = range.iter().collect();
        assert!(range.is_cut() && pairs.len() == range.len());
        assert!(matches!(&pairs[0], (b"", Answer::List(list)) if list.iter().eq([b""])));
        assert_eq!(pairs[1], (&b"key"[..], Answer::Register(b"value")));
        assert_eq!(pairs[2], (&b"keys"[..], Answer::Register(b"value")));
        assert!(matches!(&found[6], Answer::Range(range) if range.is_empty() && !range.is_cut()));
    }

    #[test]
    fn ranges_with_keys_out_of_order_are_refused() {
        for keys in [&[&b"b"[..], b"a"], &[&b"a"[..], b"a"]] {
            let mut reply = vec![0; HEADER_LENGTH];
            put_range(&mut reply, keys);
            assert!(Answers::new(reply, 1).is_err());
        }
    }

    #[test]
    fn counts_and_lengths_that_do_not_add_up_are_refused() {
        assert!(Answers::new(reply(), 5).is_err());
        assert!(Answers::new(reply(), 8).is_err());
        let mut list = vec![0; HEADER_LENGTH];
        put_elements(&mut list, 3, b"\x01\0\0\0a\x02\0\0\0bc");
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
            if let Ok(answers) = Answers::new(message, 7) {
                assert_eq!(answers.iter().count(), 7, "seed {seed}");
                for answer in answers.iter() {
                    match answer {
                        Answer::List(list) => {
                            assert_eq!(list.iter().count(), list.len(), "seed {seed}");
                        }
                        Answer::Range(range) => {
                            assert_eq!(range.iter().count(), range.len(), "seed {seed}");
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
