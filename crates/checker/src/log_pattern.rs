//! Lines of the nodes' logs that match a regular expression.

mod log_lines;
mod pattern;

use crate::{Details, FINDINGS_MAX, Figures, Finding, Validity, Verdict};
pub use log_lines::LogLines;
pub use pattern::{Pattern, PatternError};
use serde::Serialize;

/// Name of the checker, and of its anomaly.
const NAME: &str = "log-file-pattern";
const ANOMALY: &str = "log-line";

/// Matching lines that are kept; all are counted.
const MATCHES_MAX: usize = 64;
/// Characters of a line that are kept.
const LINE_LENGTH_MAX: usize = 1_000;

/// Searches logs for regular expressions: Jepsen's `log-file-pattern`. Invalid when a line matches.
///
/// It is fed with the bytes of one log after another, in pieces of any length: the driver opens the files. Bytes that are not
/// UTF-8 are searched as replacement characters. Memory: one line, and the first `MATCHES_MAX` matches.
#[derive(Debug)]
pub struct LogFilePattern {
    patterns: Vec<Pattern>,
    figures: LogFilePatternFigures,
    /// The log that is read, and its node.
    log: Option<(String, String)>,
    lines: LogLines,
}

/// Figures of [`LogFilePattern`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogFilePatternFigures {
    /// The regular expressions, with ` | ` between them.
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
    /// Searches for these expressions; a line matches if one of them does.
    pub fn new(patterns: Vec<Pattern>) -> LogFilePattern {
        let texts: Vec<&str> = patterns.iter().map(Pattern::text).collect();
        LogFilePattern {
            figures: LogFilePatternFigures {
                pattern: texts.join(" | "),
                ..LogFilePatternFigures::default()
            },
            patterns,
            log: None,
            lines: LogLines::default(),
        }
    }

    /// Begins the next log.
    pub fn begin(&mut self, node: &str, file: &str) {
        self.end_log();
        self.log = Some((node.to_owned(), file.to_owned()));
        self.figures.files += 1;
    }

    /// The next bytes of the log.
    pub fn push(&mut self, bytes: &[u8]) {
        let (figures, patterns) = (&mut self.figures, &self.patterns);
        let Some(log) = &self.log else { return };
        self.lines.push(bytes, &mut |number, line| {
            figures.take(patterns, log, number, &line);
        });
    }

    /// Searches the last line, if it has no end.
    fn end_log(&mut self) {
        let (figures, patterns) = (&mut self.figures, &self.patterns);
        let Some(log) = &self.log else { return };
        self.lines.end(&mut |number, line| {
            figures.take(patterns, log, number, &line);
        });
    }

    /// The verdict if a log cannot be read.
    pub fn unread(reason: String) -> Verdict {
        Verdict::valid(NAME).unknown(reason)
    }

    /// The verdict: unknown when there was no log.
    pub fn finish(mut self) -> Verdict {
        self.end_log();
        let figures = self.figures;
        let mut verdict = Verdict::valid(NAME);
        if figures.count > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies = [(ANOMALY, figures.count)].into();
            let first = figures.matches.iter().take(FINDINGS_MAX);
            let findings = first.map(|one| Finding {
                anomaly: ANOMALY,
                summary: format!("{}: {}:{}: {}", one.node, one.file, one.number, one.line),
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

impl LogFilePatternFigures {
    /// Searches one line of the log of this node and file.
    fn take(&mut self, patterns: &[Pattern], log: &(String, String), number: u64, line: &str) {
        self.lines += 1;
        if !patterns.iter().any(|pattern| pattern.is_match(line)) {
            return;
        }
        self.count += 1;
        if self.matches.len() < MATCHES_MAX {
            self.matches.push(LogLine {
                node: log.0.clone(),
                file: log.1.clone(),
                number,
                line: line.chars().take(LINE_LENGTH_MAX).collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pattern: &str, logs: &[(&str, &[u8])], piece: usize) -> Verdict {
        let mut search = LogFilePattern::new(vec![Pattern::new(pattern).unwrap()]);
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
            assert_eq!(found.findings[1].summary, "n2: n2.log:2: panic: at the end");
        }
        assert_eq!(verdict("nothing", &logs, 9).valid, Validity::Valid);
        assert!(matches!(verdict("x", &[], 9).valid, Validity::Unknown(_)));
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let mut search = LogFilePattern::new(vec![Pattern::new("x$").unwrap()]);
        search.begin("n1", "n1.log");
        for _ in 0..100 {
            search.push(&[b'a'; 10_000]);
        }
        search.push(b"x\nb\n");
        let found = search.finish();
        assert_eq!(found.findings.len(), 1);
        assert!(found.findings[0].summary.starts_with("n1: n1.log:1: aaa"));
    }
}
