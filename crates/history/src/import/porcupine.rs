//! The log of a Jepsen run as Porcupine's test data keep it: one operation per line, after the logger's name.

use super::edn::{Fault, Form, Reader};
use super::operation::{Draft, kind, value};
use super::stream::Step;
use crate::{Extra, Op, Process, Symbol};

/// What comes before an operation in a line of the log.
pub(super) const MARK: &str = "jepsen.util - ";

/// The next operation in log lines such as `INFO  jepsen.util - 3 :invoke :cas [1 2]`, from `at` on; lines of other
/// loggers are passed over. A line without end counts only when the text `ended`.
pub(super) fn next(text: &str, at: usize, ended: bool) -> Result<Step, Fault> {
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
        if let Some(mark) = line.find(MARK) {
            let from = mark + MARK.len();
            let op = operation(&line[from..])
                .map_err(|fault| Fault::new(start + from + fault.at, fault.problem))?;
            let indexed = false;
            let draft = Draft {
                op,
                indexed,
                at: start,
            };
            return Ok(Step::Operation(draft, end));
        }
        start = end;
    }
    Ok(Step::End)
}

/// An operation from `PROCESS TYPE F VALUE`.
fn operation(text: &str) -> Result<Op, Fault> {
    let mut reader = Reader::new(text);
    let process = match reader.form()? {
        Form::Int(number) if number >= 0 => Process::Client(number.cast_unsigned()),
        other => match other.name() {
            Some(name) => Process::Named(intern(name)?),
            None => return Err(Fault::new(0, "a process (a number or a name) is expected")),
        },
    };
    reader.skip_blank()?;
    let kind_at = reader.at();
    let kind = kind(&reader.form()?).map_err(|problem| Fault::new(kind_at, problem))?;
    reader.skip_blank()?;
    let f_at = reader.at();
    let f = match reader.form()?.name() {
        Some(name) => intern(name)?,
        None => return Err(Fault::new(f_at, "the name of a function is expected")),
    };
    reader.skip_blank()?;
    let form = match reader.peek() {
        Some(_) => reader.form()?,
        None => Form::Nil,
    };
    reader.skip_blank()?;
    if reader.peek().is_some() {
        return Err(Fault::new(reader.at(), "something follows the value"));
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
        extra: Extra::NONE,
    })
}

fn intern(name: &str) -> Result<Symbol, Fault> {
    Symbol::intern(name).ok_or_else(|| Fault::new(0, "a name too long, or too many distinct names"))
}
