//! The shapes of answers, which bound what the decoder of `kafka-protocol` allocates.
//!
//! That decoder reserves room for as many elements as a list claims to have, before it reads the first. So an answer is walked
//! here first: every length must be covered by bytes that are there. The versions of all messages are those of before Kafka's
//! compact encoding, in which a length has a fixed size.

/// A part of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerPart {
    /// Numbers of this many bytes together.
    Bytes(usize),
    /// A text after its length in two bytes; -1 if it is null.
    Text,
    /// Bytes after their length in four bytes; -1 if they are null.
    Data,
    /// Elements of these parts, after their count in four bytes; -1 if the list is null.
    List(&'static [AnswerPart]),
}

/// Checks that the answer has these parts and nothing else. The error says what is missing or left over.
pub(crate) fn check_shape(parts: &[AnswerPart], answer: &[u8]) -> Result<(), String> {
    let rest = walk(parts, answer)?;
    if rest.is_empty() {
        Ok(())
    } else {
        Err(format!("an answer with {} bytes after its end", rest.len()))
    }
}

/// The bytes after these parts. Each element of a list has at least one byte, so it takes time in proportion to the bytes.
fn walk<'a>(parts: &[AnswerPart], mut rest: &'a [u8]) -> Result<&'a [u8], String> {
    for part in parts {
        rest = match part {
            AnswerPart::Bytes(length) => skip(rest, *length)?,
            AnswerPart::Text => {
                let (length, after) = split::<2>(rest)?;
                skip_counted(after, i16::from_be_bytes(length).into())?
            }
            AnswerPart::Data => {
                let (length, after) = split::<4>(rest)?;
                skip_counted(after, i32::from_be_bytes(length))?
            }
            AnswerPart::List(element) => {
                assert!(!element.is_empty(), "an element has a part");
                let (count, mut after) = split::<4>(rest)?;
                let count = i32::from_be_bytes(count);
                if count < -1 {
                    return Err(format!("a list of {count} elements"));
                }
                for _ in 0..count {
                    after = walk(element, after)?;
                }
                after
            }
        };
    }
    Ok(rest)
}

fn split<const COUNT: usize>(rest: &[u8]) -> Result<([u8; COUNT], &[u8]), String> {
    let (bytes, after) = rest
        .split_first_chunk()
        .ok_or_else(|| truncated(COUNT, rest.len()))?;
    Ok((*bytes, after))
}

/// Skips a text or bytes of this length; -1 stands for none.
fn skip_counted(rest: &[u8], length: i32) -> Result<&[u8], String> {
    match usize::try_from(length) {
        Ok(length) => skip(rest, length),
        Err(_) if length == -1 => Ok(rest),
        Err(_) => Err(format!("a length of {length} bytes")),
    }
}

fn skip(rest: &[u8], length: usize) -> Result<&[u8], String> {
    rest.get(length..)
        .ok_or_else(|| truncated(length, rest.len()))
}

fn truncated(expected: usize, found: usize) -> String {
    format!("a truncated answer: {expected} bytes expected, {found} found")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: &[AnswerPart] = &[
        AnswerPart::Bytes(2),
        AnswerPart::List(&[AnswerPart::Text, AnswerPart::Data]),
    ];

    #[test]
    fn answers_have_the_bytes_that_their_lengths_claim() {
        let good = b"\x00\x07\x00\x00\x00\x02\x00\x01a\x00\x00\x00\x02bc\xff\xff\xff\xff\xff\xff";
        assert_eq!(check_shape(SHAPE, good), Ok(()));
        for length in 0..good.len() {
            assert!(check_shape(SHAPE, &good[..length]).is_err(), "{length}");
        }
        let longer = [&good[..], b"x"].concat();
        let error = check_shape(SHAPE, &longer).unwrap_err();
        assert_eq!(error, "an answer with 1 bytes after its end");
        let null = b"\x00\x07\xff\xff\xff\xff";
        assert_eq!(check_shape(SHAPE, null), Ok(()));
    }

    #[test]
    fn claims_without_bytes_are_errors() {
        let claims = check_shape(SHAPE, b"\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff");
        assert!(claims.unwrap_err().starts_with("a truncated answer"));
        let negative = check_shape(SHAPE, b"\x00\x00\xff\xff\xff\xfe");
        assert_eq!(negative.unwrap_err(), "a list of -2 elements");
        let text = check_shape(SHAPE, b"\x00\x00\x00\x00\x00\x01\xff\xfe");
        assert_eq!(text.unwrap_err(), "a length of -2 bytes");
    }
}
