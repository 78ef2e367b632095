//! A history as aligned text, like Jepsen's `history.txt`.

use crate::wording::{brief, one_line};
use seatrial_history::{History, Op};
use std::fmt;

/// Widths of the columns that are aligned, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingColumns {
    index: usize,
    process: usize,
    function: usize,
    node: usize,
}

/// Widest column; a longer name pushes its own line only.
const WIDTH_MAX: usize = 16;
/// Width of the time in seconds, `12345.678901`.
const TIME_WIDTH: usize = 12;

impl ListingColumns {
    /// Columns wide enough for these operations.
    pub fn of<'a>(ops: impl IntoIterator<Item = &'a Op>) -> ListingColumns {
        let mut columns = ListingColumns {
            index: 1,
            process: 1,
            function: 1,
            node: 0,
        };
        for op in ops {
            let widen =
                |width: &mut usize, length: usize| *width = length.min(WIDTH_MAX).max(*width);
            widen(&mut columns.index, decimal_length(op.index));
            widen(&mut columns.function, op.f.as_str().chars().count());
            let process = match op.process {
                seatrial_history::Process::Client(number) => decimal_length(number),
                seatrial_history::Process::Named(name) => name.as_str().chars().count() + 1,
            };
            widen(&mut columns.process, process);
            if let Some(node) = node(op) {
                widen(&mut columns.node, node.chars().count());
            }
        }
        columns
    }

    /// One operation as one line, without a newline: index, seconds, process, type, f, node, value, other fields.
    pub fn line(&self, op: &Op) -> String {
        let mut line = Line { columns: *self, op }.to_string();
        line.truncate(line.trim_end().len());
        one_line(&line).into_owned()
    }

    /// The same, cut after this many characters.
    pub(crate) fn brief_line(&self, op: &Op, characters_max: usize) -> String {
        let line = brief(Line { columns: *self, op }, characters_max);
        one_line(line.trim_end()).into_owned()
    }
}

/// Prints one operation in columns.
struct Line<'a> {
    columns: ListingColumns,
    op: &'a Op,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, line: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { columns, op } = self;
        write!(line, "{:>width$}  ", op.index, width = columns.index)?;
        if op.time < 0 {
            write!(line, "{:>TIME_WIDTH$}  ", "-")?;
        } else {
            let microseconds = op.time / 1_000;
            let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
            write!(line, "{:>TIME_WIDTH$}  ", format!("{seconds}.{rest:06}"))?;
        }
        // Formatted first: a width does not reach through an implementation of Display.
        let process = op.process.to_string();
        write!(line, "{process:>width$}  ", width = columns.process)?;
        write!(line, "{:<6}  ", op.kind.name())?;
        write!(
            line,
            "{:<width$}  ",
            op.f.as_str(),
            width = columns.function
        )?;
        if columns.node > 0 {
            write!(
                line,
                "{:<width$}  ",
                node(op).unwrap_or_default(),
                width = columns.node
            )?;
        }
        write!(line, "{}", op.value)?;
        let others = op
            .extra
            .iter()
            .filter(|(name, _)| *name != "node" || node(op).is_none());
        for (name, value) in others {
            write!(line, "  :{name} {value}")?;
        }
        Ok(())
    }
}

/// The node of an operation, when it is plain text.
fn node(op: &Op) -> Option<&str> {
    match op.extra.get("node") {
        Some(seatrial_history::Value::Text(text)) => Some(text),
        _ => None,
    }
}

fn decimal_length(number: u64) -> usize {
    number
        .checked_ilog10()
        .map_or(1, |digits| digits as usize + 1)
}

/// A whole history, one operation a line.
pub fn listing(history: &History) -> String {
    let columns = ListingColumns::of(history);
    let mut text = String::new();
    for op in history {
        text.push_str(&columns.line(op));
        text.push('\n');
    }
    text
}
