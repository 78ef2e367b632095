//! The log of a Jepsen run as Porcupine's test data keep it: one operation per line, after the logger's name.

use super::edn::{Fault, Form, Reader};
use super::operation::{Draft, kind, value};
use crate::{Extra, Op, Process, Symbol};

/// What comes before an operation in a line of the log.
pub(super) const MARK: &str = "jepsen.util - ";

/// Reads operations from log lines such as `INFO  jepsen.util - 3 :invoke :cas [1 2]`. Lines of other loggers are
/// passed over.
pub(super) struct Operations<'a> {
    text: &'a str,
    /// Where the next line begins, in bytes.
    at: usize,
}

impl<'a> Operations<'a> {
    pub(super) fn new(text: &'a str) -> Operations<'a> {
        Operations { text, at: 0 }
    }

    /// The next operation; `None` at the end of the log.
    pub(super) fn next(&mut self) -> Result<Option<Draft>, Fault> {
        while self.at < self.text.len() {
            let start = self.at;
            let rest = &self.text[start..];
            let length = rest.find('\n').unwrap_or(rest.len());
            self.at = start + (length + 1).min(rest.len());
            let line = &rest[..length];
            if let Some(mark) = line.find(MARK) {
                let from = mark + MARK.len();
                return operation(&line[from..])
                    .map(|op| {
                        Some(Draft {
                            op,
                            indexed: false,
                            at: start,
                        })
                    })
                    .map_err(|fault| Fault::new(start + from + fault.at, fault.problem));
            }
        }
        Ok(None)
    }
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
