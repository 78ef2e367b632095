//! Lines of the nodes' logs that match a regular expression.

mod pattern;

use crate::{Details, FINDINGS_MAX, Figures, Finding, Validity, Verdict};
pub use pattern::{Pattern, PatternError};
use serde::Serialize;

/// Name of the checker, and of its anomaly.
const NAME: &str = "log-file-pattern";
const ANOMALY: &str = "log-line";

/// Matching lines that are kept; all are counted.
const MATCHES_MAX: usize = 64;
/// Characters of a line that are kept.
const LINE_LENGTH_MAX: usize = 1_000;
/// Bytes of a line that are searched; the rest of a longer one is searched as a line of its own.
const LINE_MAX: usize = 64 * 1024;

/// Searches logs for a regular expression: Jepsen's `log-file-pattern`. Invalid when a line matches.
///
/// It is fed with the bytes of one log after another, in pieces of any length: the driver opens the files. Bytes that are not
/// UTF-8 are searched as replacement characters. Memory: one line, and the first `MATCHES_MAX` matches.
#[derive(Debug)]
pub struct LogFilePattern {
    pattern: Pattern,
    figures: LogFilePatternFigures,
    /// The log that is read, and its node.
    log: Option<(String, String)>,
    line: u64,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

/// Figures of [`LogFilePattern`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogFilePatternFigures {
    /// The regular expression.
    pub pattern: String,
    /// Logs that were searched.
    pub files: u64,
    /// Lines that were searched.
    pub lines: u64,
    /// Lines that match.
    pub count: u64,
    /// The first of them.
    pub matches: Vec<LogLine>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// The node whose log it is.
    pub node: String,
    /// The log.
    pub file: String,
    /// Its number, from 1.
    pub number: u64,
    /// Its text, shortened.
    pub line: String,
}

impl LogFilePattern {
    /// Searches for this expression.
    pub fn new(pattern: Pattern) -> LogFilePattern {
        LogFilePattern {
            figures: LogFilePatternFigures {
                pattern: pattern.text().to_owned(),
                ..LogFilePatternFigures::default()
            },
            pattern,
            log: None,
            line: 0,
            rest: Vec::new(),
        }
    }

    /// Begins the next log.
    pub fn begin(&mut self, node: &str, file: &str) {
        self.end_line();
        self.log = Some((node.to_owned(), file.to_owned()));
        self.line = 0;
        self.figures.files += 1;
    }

    /// The next bytes of the log.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut piece = piece;
            while self.rest.len() + piece.len() > LINE_MAX {
                let (head, tail) = piece.split_at(LINE_MAX - self.rest.len());
                self.rest.extend_from_slice(head);
                let number = self.line;
                self.end_line();
                // The rest of the line has its number.
                self.line = number;
                piece = tail;
            }
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Searches the line that is complete.
    fn end_line(&mut self) {
        let Some((node, file)) = self.log.as_ref().filter(|_| !self.rest.is_empty()) else {
            return;
        };
        self.line += 1;
        self.figures.lines += 1;
        let bytes = self.rest.strip_suffix(b"\n").unwrap_or(&self.rest);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let line = String::from_utf8_lossy(bytes);
        if self.pattern.is_match(&line) {
            self.figures.count += 1;
            if self.figures.matches.len() < MATCHES_MAX {
                self.figures.matches.push(LogLine {
                    node: node.clone(),
                    file: file.clone(),
                    number: self.line,
                    line: line.chars().take(LINE_LENGTH_MAX).collect(),
                });
            }
        }
        self.rest.clear();
    }

    /// The verdict: unknown when there was no log.
    pub fn finish(mut self) -> Verdict {
        self.end_line();
        let figures = self.figures;
        let mut verdict = Verdict::valid(NAME);
        if figures.count > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies = [(ANOMALY, figures.count)].into();
            let first = figures.matches.iter().take(FINDINGS_MAX);
            let findings = first.map(|one| Finding {
                anomaly: ANOMALY,
                summary: format!("{}:{}: {}", one.file, one.number, one.line),
                operations: Vec::new(),
                steps: Vec::new(),
                linearization: None,
            });
            verdict.findings = findings.collect();
        } else if figures.files == 0 {
            verdict = verdict.unknown("there is no log of a node beside the history");
        }
        verdict.details = Details::of(Figures::LogFilePattern(figures));
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pattern: &str, logs: &[(&str, &[u8])], piece: usize) -> Verdict {
        let mut search = LogFilePattern::new(Pattern::new(pattern).unwrap());
        for (node, bytes) in logs {
            search.begin(node, &format!("{node}.log"));
            bytes.chunks(piece).for_each(|piece| search.push(piece));
        }
        search.finish()
    }

    #[test]
    fn matching_lines_are_found_whatever_the_pieces() {
        let logs: [(&str, &[u8]); 2] = [
            ("n1", b"start\r\npanic: \xff\xfe bad\nfine\n"),
            ("n2", b"\npanic: at the end"),
        ];
        for piece in [1, 2, 7, 1_000] {
            let found = verdict("^panic: .*", &logs, piece);
            assert_eq!(found.valid, Validity::Invalid);
            assert_eq!(found.anomalies["log-line"], 2);
            let Figures::LogFilePattern(figures) = &found.details.figures else {
                panic!("no figures");
            };
            assert_eq!((figures.files, figures.lines), (2, 5));
            let places = figures.matches.iter();
            let places: Vec<_> = places.map(|one| (one.node.as_str(), one.number)).collect();
            assert_eq!(places, [("n1", 2), ("n2", 2)]);
            assert_eq!(found.findings[1].summary, "n2.log:2: panic: at the end");
        }
        assert_eq!(verdict("nothing", &logs, 9).valid, Validity::Valid);
        assert!(matches!(verdict("x", &[], 9).valid, Validity::Unknown(_)));
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let mut search = LogFilePattern::new(Pattern::new("x$").unwrap());
        search.begin("n1", "n1.log");
        for _ in 0..100 {
            search.push(&[b'a'; 10_000]);
            assert!(search.rest.len() <= LINE_MAX);
        }
        search.push(b"x\nb\n");
        let found = search.finish();
        assert_eq!(found.findings.len(), 1);
        assert!(found.findings[0].summary.starts_with("n1.log:1: aaa"));
    }
}
