//! Reading and writing the fields of a message, each checked against what is there.

use crate::service::message::MessageError;

/// Reads fields, in order.
#[derive(Clone, Debug)]
pub(crate) struct FieldReader<'a> {
    message: &'a [u8],
    offset: usize,
}

impl<'a> FieldReader<'a> {
    /// Starts at the beginning of `message`.
    pub(crate) fn new(message: &'a [u8]) -> FieldReader<'a> {
        FieldReader { message, offset: 0 }
    }

    /// The field of `width` bytes that was just read has a value that is never sent.
    pub(crate) fn never(&self, field: &'static str, width: usize, value: u64) -> MessageError {
        MessageError::Value {
            field,
            offset: self.offset - width,
            value,
        }
    }

    /// The next `length` bytes.
    pub(crate) fn bytes(
        &mut self,
        field: &'static str,
        length: usize,
    ) -> Result<&'a [u8], MessageError> {
        let rest = &self.message[self.offset..];
        let found = rest.get(..length).ok_or(MessageError::Short {
            field,
            offset: self.offset,
            length: self.message.len(),
        })?;
        self.offset += length;
        Ok(found)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], MessageError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self, field: &'static str) -> Result<u8, MessageError> {
        self.array(field).map(u8::from_le_bytes)
    }

    pub(crate) fn half(&mut self, field: &'static str) -> Result<u16, MessageError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn word(&mut self, field: &'static str) -> Result<u32, MessageError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self, field: &'static str) -> Result<u64, MessageError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A truth value: 0 or 1.
    pub(crate) fn truth(&mut self, field: &'static str) -> Result<bool, MessageError> {
        match self.byte(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.never(field, 1, u64::from(other))),
        }
    }

    /// `length` bytes that have to be zero.
    pub(crate) fn zeros(&mut self, length: usize) -> Result<(), MessageError> {
        for _ in 0..length {
            let byte = self.byte("zero")?;
            if byte != 0 {
                return Err(self.never("zero", 1, u64::from(byte)));
            }
        }
        Ok(())
    }

    /// Text: length (2 bytes) and UTF-8.
    pub(crate) fn text(
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

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = &self.message[self.offset..];
        self.offset = self.message.len();
        rest
    }

    /// An error unless everything was read.
    pub(crate) fn end(&self) -> Result<(), MessageError> {
        match self.message.len() - self.offset {
            0 => Ok(()),
            count => Err(MessageError::Trailing {
                offset: self.offset,
                count,
            }),
        }
    }
}

/// Appends text with its length; a text that is too long is cut at a character.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, length_max: usize) {
    let mut length = text.len().min(length_max).min(usize::from(u16::MAX));
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..length]);
}
