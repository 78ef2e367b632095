//! Logs of a Jepsen run as in Porcupine's test data: one operation per line, after the logger's name; and Jepsen's `history.txt`,
//! which has these lines without anything before them, their fields between tabs.

use super::edn::{EdnReader, Form, SyntaxFault};
use super::operation_builder::{OperationDraft, kind, value};
use super::text_operations::Parsed;
use seatrial_history::{Extra, Op, Process, Symbol};

/// What comes before an operation in a line of the log.
pub(super) const MARK: &str = "jepsen.util - ";

/// Does a text begin like `history.txt`: a process, a tab, a type?
pub(super) fn is_table(text: &str) -> bool {
    is_row(text.lines().next().unwrap_or_default())
}

fn is_row(line: &str) -> bool {
    let mut fields = line.split('\t').map(str::trim);
    let process = fields.next().unwrap_or_default();
    let is_process = process.starts_with(':') || process.parse::<u64>().is_ok();
    let kinds = [":invoke", ":ok", ":fail", ":info"];
    is_process && fields.next().is_some_and(|kind| kinds.contains(&kind))
}

/// The next operation in log lines such as `INFO  jepsen.util - 3 :invoke :cas [1 2]`, from `at` on; lines of other
/// loggers are passed over. A line without end counts only when the text `ended`.
pub(super) fn next(text: &str, at: usize, ended: bool) -> Result<Parsed, SyntaxFault> {
    let mut start = at;
    while start < text.len() {
        let rest = &text[start..];
        let length = match rest.find('\n') {
            Some(length) => length,
            None if ended => rest.len(),
            None => break,
        };
        let end = start + (length + 1).min(rest.len());
        let line = &rest[..length];
        let mark = line.find(MARK).map(|mark| mark + MARK.len());
        if let Some(from) = mark.or_else(|| is_row(line).then_some(0)) {
            let op = operation(&line[from..])
                .map_err(|fault| SyntaxFault::new(start + from + fault.at, fault.problem))?;
            let draft = OperationDraft {
                op,
                indexed: false,
                has_process: true,
                at: start,
            };
            return Ok(Parsed::Operation(draft, end));
        }
        start = end;
    }
    Ok(Parsed::End)
}

/// An operation from `PROCESS TYPE F VALUE`, perhaps with an error after it.
fn operation(text: &str) -> Result<Op, SyntaxFault> {
    let mut reader = EdnReader::new(text);
    let process = match reader.form()? {
        Form::Int(number) if number >= 0 => Process::Client(number.cast_unsigned()),
        other => match other.name() {
            Some(name) => Process::Named(intern(name)?),
            None => {
                return Err(SyntaxFault::new(
                    0,
                    "a process (a number or a name) is expected",
                ));
            }
        },
    };
    reader.skip_blank()?;
    let kind_at = reader.at();
    let kind = kind(&reader.form()?).map_err(|problem| SyntaxFault::new(kind_at, problem))?;
    reader.skip_blank()?;
    let f_at = reader.at();
    let f = match reader.form()?.name() {
        Some(name) => intern(name)?,
        None => return Err(SyntaxFault::new(f_at, "the name of a function is expected")),
    };
    reader.skip_blank()?;
    let form = match reader.peek() {
        Some(_) => reader.form()?,
        None => Form::Nil,
    };
    reader.skip_blank()?;
    let mut extra = Extra::NONE;
    if reader.peek().is_some() {
        extra = Extra::new(&[(Symbol::new("error"), reader.form()?.into_value())]);
        reader.skip_blank()?;
    }
    if reader.peek().is_some() {
        return Err(SyntaxFault::new(reader.at(), "something follows the error"));
    }
    let value = if process.is_client() {
        value(form, f)
    } else {
        form.into_value()
    };
    Ok(Op {
        index: 0,
        time: -1,
        kind,
        process,
        f,
        value,
        extra,
    })
}

fn intern(name: &str) -> Result<Symbol, SyntaxFault> {
    Symbol::intern(name)
        .ok_or_else(|| SyntaxFault::new(0, "a name too long, or too many distinct names"))
}
