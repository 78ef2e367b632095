//! Parses a line of numbers.

/// Reads words and numbers of a line. Errors are the byte where something is wrong, from 0, and what.
pub(super) struct LineParser<'a> {
    text: &'a [u8],
    at: usize,
}

/// The byte offset in a line and the problem there.
pub(super) type LineFault = (usize, String);

impl<'a> LineParser<'a> {
    /// A line without its newline; a carriage return at its end is none of it.
    pub(super) fn new(text: &'a [u8]) -> LineParser<'a> {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        LineParser { text, at: 0 }
    }

    /// Passes spaces and tabs.
    pub(super) fn skip_blank(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// Where the next byte is.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next byte, not consumed.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Does nothing but blanks follow?
    pub(super) fn is_over(&mut self) -> bool {
        self.skip_blank();
        self.at == self.text.len()
    }

    /// A fault at the next byte.
    pub(super) fn fault<T>(&self, expected: &str) -> Result<T, LineFault> {
        let found = match self.peek() {
            None => "the line ends".to_owned(),
            Some(byte) if byte.is_ascii_graphic() => format!("found `{}`", char::from(byte)),
            Some(byte) => format!("found byte {byte:#04x}"),
        };
        Err((self.at, format!("{expected} is expected, {found}")))
    }

    /// Passes a byte that must come next.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), LineFault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        self.fault(&format!("`{}`", char::from(byte)))
    }

    /// A number of 64 bits with sign.
    pub(super) fn int(&mut self, what: &str) -> Result<i64, LineFault> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let mut number: i64 = 0;
        let mut digits = false;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            digits = true;
            let digit = i64::from(byte - b'0');
            let digit = if negative { -digit } else { digit };
            let next = number
                .checked_mul(10)
                .and_then(|number| number.checked_add(digit));
            number = next.ok_or_else(|| (start, format!("{what} does not fit in 64 bits")))?;
            self.at += 1;
        }
        if !digits {
            return self.fault(&format!("{what} (a number)"));
        }
        Ok(number)
    }

    /// A number that is not negative.
    pub(super) fn natural(&mut self, what: &str) -> Result<u64, LineFault> {
        let start = self.at;
        let number = self.int(what)?;
        u64::try_from(number).map_err(|_| (start, format!("{what} {number} is negative")))
    }
}
