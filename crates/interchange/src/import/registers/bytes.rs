//! A window over a stream of bytes.

use super::{InputFault, SourcePosition};
use std::io::Read;

/// A part of an input, which moves forward.
pub(super) struct Bytes<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where in the buffer the next byte is.
    at: usize,
    /// Bytes before the buffer.
    passed: u64,
    /// Nothing more to read.
    ended: bool,
    /// Why not, when this is not the input's end.
    failure: Option<String>,
    /// Bytes that are read at a time.
    read_length: usize,
    /// Line, from 1; counted by the consumer of lines.
    pub(super) line: u64,
    /// Bytes before the line; for consumers of parts of lines.
    line_start: u64,
    /// Are places bytes, not lines and columns?
    binary: bool,
}

impl<R: Read> Bytes<R> {
    pub(super) fn new(input: R, read_length: usize, binary: bool) -> Bytes<R> {
        Bytes {
            input,
            buffer: Vec::new(),
            at: 0,
            passed: 0,
            ended: false,
            failure: None,
            read_length,
            line: 1,
            line_start: 0,
            binary,
        }
    }

    /// What of the window was not consumed.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// Is what the window holds all that there is?
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Bytes that were consumed.
    pub(super) fn passed(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// Consumes bytes of [`Bytes::rest`].
    #[inline]
    pub(super) fn consume(&mut self, length: usize) {
        self.at += length;
    }

    /// Consumes bytes of [`Bytes::rest`] and gives them.
    #[inline]
    pub(super) fn consumed(&mut self, length: usize) -> &[u8] {
        let start = self.at;
        self.at += length;
        &self.buffer[start..self.at]
    }

    /// Reads on; what was consumed makes room. Did the window grow?
    pub(super) fn fill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let consumed = std::mem::take(&mut self.at);
        self.passed += consumed as u64;
        self.buffer.drain(..consumed);
        // A window that was too small doubles, so that long lines are scanned in linear time.
        let wanted = self.read_length.max(self.buffer.len());
        let mut input = self.input.by_ref().take(wanted as u64);
        match input.read_to_end(&mut self.buffer) {
            Ok(count) => self.ended = count < wanted,
            Err(error) => {
                self.ended = true;
                self.failure = Some(format!("cannot be read: {error}"));
            }
        }
        true
    }

    /// The window with at least `length` bytes, unless there are fewer.
    #[inline]
    pub(super) fn at_least(&mut self, length: usize) -> &[u8] {
        while self.rest().len() < length && self.fill() {}
        self.rest()
    }

    /// The length of the next line without its newline, and whether it has one. A line of more than `length_max` bytes
    /// is a fault.
    pub(super) fn line_length(&mut self, length_max: usize) -> Result<(usize, bool), InputFault> {
        let mut searched = 0;
        loop {
            let rest = self.rest();
            let newline = memchr::memchr(b'\n', &rest[searched..]);
            let length = newline.map_or(rest.len(), |at| searched + at);
            if length > length_max {
                return Err(self.fault(length_max, "this line is too long"));
            }
            if newline.is_some() {
                return Ok((length, true));
            }
            searched = length;
            if !self.fill() {
                return Ok((length, false));
            }
        }
    }

    /// The end of the input was reached: is it the end of the file?
    pub(super) fn finish(&mut self) -> Result<(), InputFault> {
        match self.failure.take() {
            Some(problem) => Err(self.fault(self.rest().len(), problem)),
            None => Ok(()),
        }
    }

    /// A newline was consumed.
    #[inline]
    pub(super) fn newline(&mut self) {
        self.line += 1;
        self.line_start = self.passed();
    }

    /// The place in a text that is consumed in parts of lines.
    pub(super) fn place(&self) -> SourcePosition {
        SourcePosition::Text {
            line: self.line as usize,
            column: (self.passed() - self.line_start) as usize + 1,
        }
    }

    /// A fault `column` bytes after the consumed input, which in a text consists of whole lines.
    pub(super) fn fault(&self, column: usize, problem: impl Into<String>) -> InputFault {
        let place = if self.binary {
            SourcePosition::Byte(self.passed() + column as u64)
        } else {
            SourcePosition::Text {
                line: self.line as usize,
                column: column + 1,
            }
        };
        let problem = problem.into();
        InputFault { place, problem }
    }
}
