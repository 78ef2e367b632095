//! Reads JSON token by token through a window.

use super::InputFault;
use super::bytes::Bytes;
use std::io::Read;

/// Levels of nesting in skipped values.
const DEPTH_MAX: usize = 64;
/// Longest text that is compared.
const TEXT_LENGTH_MAX: usize = 4_096;
/// More bytes than a number of 64 bits has, with its sign and what follows it.
const NUMBER_LENGTH_MAX: usize = 24;

/// Takes tokens of JSON from an input. The caller names the token that it expects.
pub(super) struct JsonTokens<'a, R> {
    pub(super) input: &'a mut Bytes<R>,
}

impl<R: Read> JsonTokens<'_, R> {
    /// A fault at the next byte.
    pub(super) fn fault(&self, problem: impl Into<String>) -> InputFault {
        InputFault {
            place: self.input.place(),
            problem: problem.into(),
        }
    }

    /// The next byte that is not blank, not consumed; `None` at the end.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<u8>, InputFault> {
        loop {
            match self.input.at_least(1).first() {
                Some(b'\n') => {
                    self.input.consume(1);
                    self.input.newline();
                }
                Some(b' ' | b'\t' | b'\r') => self.input.consume(1),
                Some(&byte) => return Ok(Some(byte)),
                None => {
                    let place = self.input.place();
                    let unread = self.input.finish();
                    return unread
                        .map(|()| None)
                        .map_err(|unread| InputFault { place, ..unread });
                }
            }
        }
    }

    /// A fault: `expected` instead of the next byte.
    pub(super) fn unexpected(&mut self, expected: &str) -> InputFault {
        let found = match self.peek() {
            Err(fault) => return fault,
            Ok(None) => "the file ends".to_owned(),
            Ok(Some(byte)) if byte.is_ascii_graphic() => format!("found `{}`", char::from(byte)),
            Ok(Some(byte)) => format!("found byte {byte:#04x}"),
        };
        self.fault(format!("{expected} is expected, {found}"))
    }

    /// Passes a byte that must come next.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), InputFault> {
        if self.peek()? == Some(byte) {
            self.input.consume(1);
            return Ok(());
        }
        Err(self.unexpected(&format!("`{}`", char::from(byte))))
    }

    /// Is there another element before `close`? Passes the comma before it, or `close`.
    #[inline]
    pub(super) fn more(&mut self, close: u8, first: &mut bool) -> Result<bool, InputFault> {
        if self.peek()? == Some(close) {
            self.input.consume(1);
            return Ok(false);
        }
        if !std::mem::take(first) {
            if self.peek()? != Some(b',') {
                return Err(self.unexpected(&format!("`,` or `{}`", char::from(close))));
            }
            self.input.consume(1);
        }
        Ok(true)
    }

    /// The name of a member and its colon.
    #[inline]
    pub(super) fn name(&mut self, into: &mut Vec<u8>) -> Result<(), InputFault> {
        self.text(into)?;
        self.expect(b':')
    }

    /// A text of at most 4,096 bytes. Escapes stand for themselves: no name that is known has one.
    #[inline]
    pub(super) fn text(&mut self, into: &mut Vec<u8>) -> Result<(), InputFault> {
        if self.peek()? != Some(b'"') {
            return Err(self.unexpected("a text"));
        }
        let opened = self.input.place();
        self.input.consume(1);
        into.clear();
        loop {
            let rest = self.input.at_least(1);
            let special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n');
            let plain = rest.iter().position(special).unwrap_or(rest.len());
            let found = rest.get(plain).copied();
            into.extend_from_slice(&rest[..plain.min(TEXT_LENGTH_MAX + 1)]);
            self.input.consume(plain);
            if into.len() > TEXT_LENGTH_MAX {
                return Err(InputFault {
                    place: opened,
                    problem: format!("this text has more than {TEXT_LENGTH_MAX} bytes"),
                });
            }
            match found {
                Some(b'"') => {
                    self.input.consume(1);
                    return Ok(());
                }
                Some(b'\\') if self.input.at_least(2).len() >= 2 => {
                    into.extend_from_slice(self.input.consumed(2));
                }
                None if !self.input.at_least(1).is_empty() => {}
                _ => {
                    self.input
                        .finish()
                        .map_err(|unread| self.fault(unread.problem))?;
                    return Err(InputFault {
                        place: opened,
                        problem: "this text is never closed".to_owned(),
                    });
                }
            }
        }
    }

    /// An integer of 64 bits.
    #[inline]
    pub(super) fn int(&mut self, what: &str) -> Result<i64, InputFault> {
        self.peek()?;
        let rest = self.input.at_least(NUMBER_LENGTH_MAX);
        let negative = rest.first() == Some(&b'-');
        let start = usize::from(negative);
        let digits = rest[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        let end = start + digits;
        let goes_on = matches!(rest.get(end), Some(b'.' | b'e' | b'E'));
        if digits == 0 || goes_on {
            return Err(self.unexpected(&format!("{what} (an integer)")));
        }
        let number = if digits <= 18 {
            let digits = rest[start..end].iter();
            let number = digits.fold(0, |number: i64, byte| {
                number
                    .wrapping_mul(10)
                    .wrapping_add(i64::from(byte.wrapping_sub(b'0')))
            });
            Some(if negative { -number } else { number })
        } else {
            let text = str::from_utf8(&rest[..end]).unwrap_or_default();
            text.parse().ok()
        };
        let Some(number) = number else {
            return Err(self.fault(format!("{what} does not fit in 64 bits")));
        };
        self.input.consume(end);
        Ok(number)
    }

    /// Passes `null`, when it comes next.
    #[inline]
    pub(super) fn null(&mut self) -> Result<bool, InputFault> {
        if self.peek()? != Some(b'n') {
            return Ok(false);
        }
        self.word("null").map(|()| true)
    }

    /// A truth value.
    pub(super) fn truth(&mut self) -> Result<bool, InputFault> {
        match self.peek()? {
            Some(b't') => self.word("true").map(|()| true),
            Some(b'f') => self.word("false").map(|()| false),
            _ => Err(self.unexpected("`true` or `false`")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), InputFault> {
        if self.input.at_least(word.len()).starts_with(word.as_bytes()) {
            self.input.consume(word.len());
            return Ok(());
        }
        Err(self.unexpected(&format!("`{word}`")))
    }

    /// Passes any value.
    pub(super) fn skip(&mut self, buffer: &mut Vec<u8>, depth: usize) -> Result<(), InputFault> {
        if depth > DEPTH_MAX {
            return Err(self.fault(format!("more than {DEPTH_MAX} levels of nesting")));
        }
        let mut first = true;
        match self.peek()? {
            Some(b'"') => self.text(buffer),
            Some(b'[') => {
                self.input.consume(1);
                while self.more(b']', &mut first)? {
                    self.skip(buffer, depth + 1)?;
                }
                Ok(())
            }
            Some(b'{') => {
                self.input.consume(1);
                while self.more(b'}', &mut first)? {
                    self.name(buffer)?;
                    self.skip(buffer, depth + 1)?;
                }
                Ok(())
            }
            _ => {
                let rest = self.input.at_least(TEXT_LENGTH_MAX);
                let inside = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(*byte);
                let length = rest.iter().take_while(inside).count();
                if length == 0 {
                    return Err(self.unexpected("a value"));
                }
                self.input.consume(length);
                Ok(())
            }
        }
    }

    /// Nothing but blanks may follow.
    pub(super) fn over(&mut self) -> Result<(), InputFault> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the file")),
        }
    }
}

/// Where in a JSON text the first member's name of its first object stands, without its quotes; that object may be in an
/// array.
pub(super) fn first_name(text: &[u8]) -> Option<&[u8]> {
    let rest = text.trim_ascii_start();
    let rest = rest.strip_prefix(b"[").unwrap_or(rest).trim_ascii_start();
    let rest = rest.strip_prefix(b"{")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let length = rest.iter().position(|&byte| byte == b'"')?;
    Some(&rest[..length])
}
