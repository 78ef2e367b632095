//! Lines of logs near findings.

use crate::finding_cause::{FindingCause, LogRecord};
use crate::log_time::LogClock;
use crate::nearest::Nearest;
use crate::short_text::shortened;
use seatrial_checker::LogLines;

/// Longest line that is kept, in characters.
const LINE_LENGTH_MAX: usize = 300;
/// Logs without times that are named.
const UNDATED_MAX: usize = 8;
/// Words of lines that speak of trouble or of a change of roles, in lower case.
const NOTABLE: [&str; 18] = [
    "error",
    "warn",
    "fatal",
    "panic",
    "fail",
    "lost",
    "corrupt",
    "leader",
    "elect",
    "primary",
    "promot",
    "replica",
    "recover",
    "truncat",
    "snapshot",
    "timeout",
    "timed out",
    "partition",
];

/// A stretch of time whose log lines are wanted, and the moments that they are ranked by.
#[derive(Debug)]
pub(crate) struct LogSpan {
    /// The first and the last time.
    pub(crate) span: (i64, i64),
    /// When operations and faults began and ended, sorted.
    pub(crate) moments: Vec<i64>,
}

/// Reads logs once, and keeps for each span the lines nearest to its moments, those that speak of trouble first.
#[derive(Debug)]
pub(crate) struct LogSearch {
    /// `None`: the history does not say when it began, so no line can be placed.
    clock: Option<LogClock>,
    spans: Vec<LogSpan>,
    found: Vec<Nearest<LogRecord>>,
    log: Option<LogUnderSearch>,
    lines: LogLines,
    undated: Vec<String>,
    undated_count: u64,
    logs: u64,
}

/// The log that is read.
#[derive(Debug)]
struct LogUnderSearch {
    node: String,
    file: String,
    /// Had one of its lines a time?
    is_dated: bool,
    /// Had it a line?
    has_lines: bool,
}

impl LogSearch {
    pub(crate) fn new(started: Option<i64>, spans: Vec<LogSpan>) -> LogSearch {
        LogSearch {
            clock: started.map(LogClock::new),
            found: spans
                .iter()
                .map(|_| Nearest::new(FindingCause::LOG_LINES_MAX))
                .collect(),
            spans,
            log: None,
            lines: LogLines::default(),
            undated: Vec::new(),
            undated_count: 0,
            logs: 0,
        }
    }

    /// Begins the next log.
    pub(crate) fn begin(&mut self, node: &str, file: &str) {
        self.end_log();
        self.logs += 1;
        if let Some(clock) = &mut self.clock {
            clock.begin();
        }
        self.log = Some(LogUnderSearch {
            node: node.to_owned(),
            file: file.to_owned(),
            is_dated: false,
            has_lines: false,
        });
    }

    /// The next bytes of the log.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.push(bytes, &mut |number, line| self.take(number, &line));
        self.lines = lines;
    }

    fn end_log(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.end(&mut |number, line| self.take(number, &line));
        self.lines = lines;
        if let Some(log) = self.log.take()
            && log.has_lines
            && !log.is_dated
        {
            self.undated_count += 1;
            if self.undated.len() < UNDATED_MAX {
                self.undated.push(log.file);
            }
        }
    }

    fn take(&mut self, number: u64, line: &str) {
        let (Some(log), Some(clock)) = (&mut self.log, &mut self.clock) else {
            return;
        };
        log.has_lines = true;
        let Some(time) = clock.time_of(line) else {
            return;
        };
        log.is_dated = true;
        for (span, found) in self.spans.iter().zip(&mut self.found) {
            if time < span.span.0 || time > span.span.1 {
                continue;
            }
            let near = distance(&span.moments, time);
            let rank = if is_notable(line) {
                near
            } else {
                // After all lines that speak of trouble.
                near.saturating_add(i64::MAX / 2)
            };
            found.add(rank, || LogRecord {
                node: log.node.clone(),
                file: log.file.clone(),
                number,
                time,
                text: shortened(line, LINE_LENGTH_MAX).into_owned(),
            });
        }
    }

    /// The lines of each span in order with the number of those left out, and notes about the logs.
    pub(crate) fn finish(mut self) -> (Vec<(Vec<LogRecord>, u64)>, Vec<String>) {
        self.end_log();
        let mut notes = Vec::new();
        if self.clock.is_none() && self.logs > 0 {
            let note =
                "the history does not say when it began, so no line of the nodes' logs is shown";
            notes.push(note.to_owned());
        }
        if self.undated_count > 0 {
            let left_out = self.undated_count - self.undated.len() as u64;
            let more = match left_out {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            let names = self.undated.join(", ");
            notes.push(format!(
                "no timestamps that are known in {names}{more}: their lines are left out"
            ));
        }
        let found = self.found.into_iter().map(|nearest| {
            let (mut lines, left_out) = nearest.into_parts();
            lines.sort_by(|one, other| {
                (one.time, &one.file, one.number).cmp(&(other.time, &other.file, other.number))
            });
            (lines, left_out)
        });
        (found.collect(), notes)
    }
}

/// Nanoseconds between a time and the nearest of these moments, which are sorted.
pub(crate) fn distance(moments: &[i64], time: i64) -> i64 {
    let at = moments.partition_point(|moment| *moment < time);
    let near = moments[at.saturating_sub(1)..moments.len().min(at + 1)].iter();
    let away = near.map(|moment| i64::try_from(moment.abs_diff(time)).unwrap_or(i64::MAX));
    away.min().unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// Does the line speak of trouble, or of a change of roles?
fn is_notable(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    NOTABLE.iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn search(
        started: Option<i64>,
        logs: &[(&str, &str)],
    ) -> (Vec<(u64, String)>, u64, Vec<String>) {
        let span = LogSpan {
            span: (0, 60 * SECOND),
            moments: vec![10 * SECOND],
        };
        let mut search = LogSearch::new(started, vec![span]);
        for (node, text) in logs {
            search.begin(node, &format!("{node}.log"));
            for piece in text.as_bytes().chunks(7) {
                search.push(piece);
            }
        }
        let (mut found, notes) = search.finish();
        let (lines, left_out) = found.remove(0);
        let lines = lines.into_iter().map(|line| (line.number, line.text));
        (lines.collect(), left_out, notes)
    }

    #[test]
    fn near_lines_in_order_and_logs_without_times_are_named() {
        let plain = "hello\nworld\n";
        let steps = (0..50).map(|second| format!("1970-01-01T00:00:{second:02}Z step {second}\n"));
        let mut text: String = steps.collect();
        text += "1970-01-01T00:00:55Z ERROR late\n1970-01-01T00:01:30Z after";
        let (lines, left_out, notes) = search(Some(0), &[("n1", &text), ("n2", plain), ("n3", "")]);
        assert_eq!(lines.len(), FindingCause::LOG_LINES_MAX);
        assert_eq!(left_out, 51 - FindingCause::LOG_LINES_MAX as u64);
        assert!(lines.is_sorted_by_key(|line| line.0));
        assert!(lines.iter().any(|line| line.1.ends_with("step 10")));
        assert!(!lines.iter().any(|line| line.1.ends_with("step 49")));
        assert_eq!(lines.last().unwrap().0, 51, "trouble is kept, however far");
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].contains("n2.log") && !notes[0].contains("n3.log"),
            "{notes:?}"
        );
    }

    #[test]
    fn without_a_beginning_no_line_is_placed() {
        let (lines, left_out, notes) = search(None, &[("n1", "1970-01-01T00:00:10Z x\n")]);
        assert_eq!((lines.len(), left_out), (0, 0));
        assert!(notes[0].contains("when it began"), "{notes:?}");
    }

    #[test]
    fn distances() {
        assert_eq!(distance(&[10, 20], 4), 6);
        assert_eq!(distance(&[10, 20], 17), 3);
        assert_eq!(distance(&[10, 20], 29), 9);
        assert_eq!(distance(&[], 29), i64::MAX / 4);
    }
}
