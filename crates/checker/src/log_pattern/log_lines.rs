//! The lines of a log that arrives in pieces.

use std::borrow::Cow;

/// Bytes of a line that are handed over at once; the rest of a longer one follows as a line of the same number.
const LINE_MAX: usize = 64 * 1024;

/// Puts the lines of logs together from pieces of any length. Memory: one line of at most 64 KiB.
#[derive(Debug, Default)]
pub struct LogLines {
    /// The number of the last line.
    line: u64,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl LogLines {
    /// Hands every line that is complete to `take`: its number from 1, and its text without its end. Bytes that are not UTF-8
    /// become replacement characters.
    pub fn push(&mut self, bytes: &[u8], take: &mut dyn FnMut(u64, Cow<'_, str>)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut piece = piece;
            while self.rest.len() + piece.len() > LINE_MAX {
                let (head, tail) = piece.split_at(LINE_MAX - self.rest.len());
                self.rest.extend_from_slice(head);
                let number = self.line;
                self.end_line(take);
                // The rest of the line has its number.
                self.line = number;
                piece = tail;
            }
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line(take);
            }
        }
        debug_assert!(self.rest.len() <= LINE_MAX, "a line without end is cut");
    }

    /// Hands over the last line if it has no end, and begins another log.
    pub fn end(&mut self, take: &mut dyn FnMut(u64, Cow<'_, str>)) {
        self.end_line(take);
        self.line = 0;
    }

    fn end_line(&mut self, take: &mut dyn FnMut(u64, Cow<'_, str>)) {
        if self.rest.is_empty() {
            return;
        }
        self.line += 1;
        let bytes = self.rest.strip_suffix(b"\n").unwrap_or(&self.rest);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        take(self.line, String::from_utf8_lossy(bytes));
        self.rest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let (mut lines, mut found) = (LogLines::default(), Vec::new());
        for _ in 0..100 {
            lines.push(&[b'a'; 10_000], &mut |number, line| {
                found.push((number, line.len()));
            });
            assert!(lines.rest.len() <= LINE_MAX);
        }
        lines.push(b"x\nb", &mut |number, line| {
            found.push((number, line.len()));
        });
        lines.end(&mut |number, line| found.push((number, line.len())));
        let long = found.iter().filter(|(number, _)| *number == 1);
        assert_eq!(long.map(|(_, length)| length).sum::<usize>(), 1_000_001);
        assert_eq!(found.last(), Some(&(2, 1)));
        lines.push(b"c\r\n", &mut |number, line| {
            assert_eq!((number, &*line), (1, "c"));
        });
    }
}
