//! Decoding of message fields, each checked against the received bytes.

use crate::counted;
use std::error::Error;
use std::fmt;

/// Bytes that are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The message ends inside a field.
    Short {
        /// The field.
        field: &'static str,
        /// Its offset.
        offset: usize,
        /// Length of the message.
        length: usize,
    },
    /// A field has a value that is never sent.
    Value {
        /// The field.
        field: &'static str,
        /// Its offset.
        offset: usize,
        /// Its value.
        value: u64,
    },
    /// Bytes follow the last field.
    Trailing {
        /// Offset of the end.
        offset: usize,
        /// Number of further bytes.
        count: usize,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::Short {
                field,
                offset,
                length,
            } => write!(
                f,
                "message ends at {length}, inside the {field} that starts at {offset}"
            ),
            MessageError::Value {
                field,
                offset,
                value,
            } => write!(f, "{field} at {offset} is {value}, which is never sent"),
            MessageError::Trailing { offset, count } => {
                write!(
                    f,
                    "{} past the end at {offset}",
                    counted(*count as u64, "byte")
                )
            }
        }
    }
}

impl Error for MessageError {}

/// Decodes the fields of a message, in order. It never panics and allocates nothing, whatever lengths the bytes claim.
#[derive(Clone, Debug)]
pub struct FieldReader<'a> {
    message: &'a [u8],
    offset: usize,
}

impl<'a> FieldReader<'a> {
    /// Starts at the beginning of `message`.
    pub fn new(message: &'a [u8]) -> FieldReader<'a> {
        FieldReader { message, offset: 0 }
    }

    /// Starts at `offset`; past the end every field is cut.
    pub fn starting_at(message: &'a [u8], offset: usize) -> FieldReader<'a> {
        FieldReader { message, offset }
    }

    /// Offset of the next field.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The error for the field of `width` bytes that was just read: its value is not a valid one.
    pub fn never(&self, field: &'static str, width: usize, value: u64) -> MessageError {
        MessageError::Value {
            field,
            offset: self.offset.saturating_sub(width),
            value,
        }
    }

    /// The next `length` bytes.
    #[inline]
    pub fn bytes(&mut self, field: &'static str, length: usize) -> Result<&'a [u8], MessageError> {
        let rest = self.message.get(self.offset..).unwrap_or(&[]);
        let found = rest.get(..length).ok_or(MessageError::Short {
            field,
            offset: self.offset,
            length: self.message.len(),
        })?;
        self.offset += length;
        Ok(found)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], MessageError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    /// A number of 1 byte.
    #[inline]
    pub fn byte(&mut self, field: &'static str) -> Result<u8, MessageError> {
        self.array(field).map(u8::from_le_bytes)
    }

    /// A number of 2 bytes, little-endian.
    #[inline]
    pub fn half(&mut self, field: &'static str) -> Result<u16, MessageError> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// A number of 4 bytes, little-endian.
    #[inline]
    pub fn word(&mut self, field: &'static str) -> Result<u32, MessageError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// A number of 8 bytes, little-endian.
    #[inline]
    pub fn long(&mut self, field: &'static str) -> Result<u64, MessageError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A boolean: 0 or 1.
    pub fn truth(&mut self, field: &'static str) -> Result<bool, MessageError> {
        match self.byte(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.never(field, 1, u64::from(other))),
        }
    }

    /// `length` bytes that must be zero.
    pub fn zeros(&mut self, length: usize) -> Result<(), MessageError> {
        for _ in 0..length {
            let byte = self.byte("zero")?;
            if byte != 0 {
                return Err(self.never("zero", 1, u64::from(byte)));
            }
        }
        Ok(())
    }

    /// Text: length (2 bytes, at most `length_max`) and UTF-8.
    pub fn text(
        &mut self,
        field: &'static str,
        length_max: usize,
    ) -> Result<&'a str, MessageError> {
        let length = usize::from(self.half(field)?);
        if length > length_max {
            return Err(self.never(field, 2, length as u64));
        }
        let offset = self.offset;
        let bytes = self.bytes(field, length)?;
        std::str::from_utf8(bytes).map_err(|error| MessageError::Value {
            field,
            offset: offset + error.valid_up_to(),
            value: u64::from(bytes[error.valid_up_to()]),
        })
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.message.get(self.offset..).unwrap_or(&[]);
        self.offset = self.message.len();
        rest
    }

    /// Fails if bytes remain.
    pub fn end(&self) -> Result<(), MessageError> {
        match self.message.len().saturating_sub(self.offset) {
            0 => Ok(()),
            count => Err(MessageError::Trailing {
                offset: self.offset,
                count,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn fields_come_in_order_and_errors_name_their_position() {
        let bytes = [
            1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 0, b'h', b'i', 9,
        ];
        let mut reader = FieldReader::new(&bytes);
        assert_eq!(reader.byte("a"), Ok(1));
        assert_eq!(reader.half("b"), Ok(2));
        assert_eq!(reader.word("c"), Ok(3));
        assert_eq!(reader.long("d"), Ok(4));
        assert_eq!(reader.truth("e"), Ok(true));
        assert_eq!(reader.zeros(2), Ok(()));
        assert_eq!(reader.text("f", 2), Ok("hi"));
        assert_eq!(reader.offset(), 22);
        let trailing = reader.end().unwrap_err();
        assert_eq!(trailing.to_string(), "1 byte past the end at 22");
        let truth = reader.truth("g").unwrap_err();
        assert_eq!(truth.to_string(), "g at 22 is 9, which is never sent");
        assert_eq!(reader.end(), Ok(()));
        let short = reader.half("h").unwrap_err();
        let text = "message ends at 23, inside the h that starts at 23";
        assert_eq!(short.to_string(), text);
        let long = FieldReader::starting_at(&bytes, 18)
            .text("i", 1)
            .unwrap_err();
        assert_eq!(long.to_string(), "i at 18 is 2, which is never sent");
        assert_eq!(FieldReader::starting_at(&bytes, 99).rest(), b"");
        let latin = FieldReader::new(&[2, 0, b'a', 0xff])
            .text("j", 9)
            .unwrap_err();
        assert_eq!(latin.to_string(), "j at 3 is 255, which is never sent");
    }

    #[test]
    fn any_order_of_any_bytes_ends() {
        let mut rng = Rng::from_seed(1);
        for _ in 0..5_000 {
            let bytes: Vec<u8> = (0..rng.index(40)).map(|_| rng.below(4) as u8).collect();
            let mut reader = FieldReader::starting_at(&bytes, rng.index(50));
            let start = reader.offset();
            for _ in 0..20 {
                let before = reader.offset();
                let is_read = match rng.below(7) {
                    0 => reader.byte("x").is_ok(),
                    1 => reader.half("x").is_ok(),
                    2 => reader.word("x").is_ok(),
                    3 => reader.truth("x").is_ok(),
                    4 => reader.text("x", 3).is_ok(),
                    5 => reader.zeros(2).is_ok(),
                    _ => reader.bytes("x", 3).is_ok(),
                };
                assert!(reader.offset() > before || !is_read);
            }
            assert!(reader.offset() <= bytes.len().max(start));
        }
    }
}
