//! Messages on their way out.

use crate::moment;
use anyhow::{Result, bail};
use seatrial_machine::unknown_name;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// How messages are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrintFormat {
    /// A line feed after each.
    Lines,
    /// Its length before each: 4 bytes, little-endian.
    Framed,
    /// A JSON object a line.
    Json,
    /// Back to back.
    Raw,
}

impl PrintFormat {
    /// The one with this name.
    pub(crate) fn parse(name: &str) -> Result<PrintFormat> {
        Ok(match name {
            "lines" => PrintFormat::Lines,
            "framed" => PrintFormat::Framed,
            "json" => PrintFormat::Json,
            "raw" => PrintFormat::Raw,
            other => bail!(unknown_name(
                "format",
                other,
                ["lines", "framed", "json", "raw"]
            )),
        })
    }
}

/// A message and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    /// Where its frame starts.
    pub(crate) position: u64,
    /// Its number within the recording.
    pub(crate) number: u64,
    /// When its batch was written.
    pub(crate) time: u64,
    /// The application's flags.
    pub(crate) flags: u8,
    pub(crate) message: &'a [u8],
}

impl Shown<'_> {
    /// As text where it is text, otherwise in hexadecimal.
    fn json(&self) -> Value {
        let mut value = json!({
            "message": self.number,
            "position": self.position,
            "time": moment::show(self.time),
            "flags": self.flags,
        });
        match std::str::from_utf8(self.message) {
            Ok(text) => value["text"] = json!(text),
            Err(_) => value["hex"] = json!(hexadecimal(self.message)),
        }
        value
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Prints messages; buffered, so a caller that waits for more must flush first.
#[derive(Debug)]
pub(crate) struct Printer<W> {
    form: PrintFormat,
    out: W,
}

impl<W: Write> Printer<W> {
    pub(crate) fn new(form: PrintFormat, out: W) -> Printer<W> {
        Printer { form, out }
    }

    /// One message.
    pub(crate) fn print(&mut self, shown: &Shown<'_>) -> io::Result<()> {
        match self.form {
            PrintFormat::Lines => {
                self.out.write_all(shown.message)?;
                self.out.write_all(b"\n")
            }
            PrintFormat::Framed => {
                let length = shown.message.len() as u32;
                self.out.write_all(&length.to_le_bytes())?;
                self.out.write_all(shown.message)
            }
            PrintFormat::Json => writeln!(self.out, "{}", shown.json()),
            PrintFormat::Raw => self.out.write_all(shown.message),
        }
    }

    /// Everything printed so far is seen.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let shown = |message| Shown {
            position: 88,
            number: 1,
            time: 0,
            flags: 2,
            message,
        };
        let printed = |form, message| {
            let mut out = Vec::new();
            Printer::new(form, &mut out).print(&shown(message)).unwrap();
            out
        };
        assert_eq!(printed(PrintFormat::Lines, b"ab"), b"ab\n");
        assert_eq!(printed(PrintFormat::Raw, b"ab"), b"ab");
        assert_eq!(printed(PrintFormat::Framed, b"ab"), b"\x02\0\0\0ab");
        let start = r#"{"message":1,"position":88,"time":"1970-01-01T00:00:00.000000Z","flags":2,"#;
        let text = String::from_utf8(printed(PrintFormat::Json, b"a\"b")).unwrap();
        assert_eq!(text, format!("{start}\"text\":\"a\\\"b\"}}\n"));
        let bytes = String::from_utf8(printed(PrintFormat::Json, b"\xff\x00")).unwrap();
        assert_eq!(bytes, format!("{start}\"hex\":\"ff00\"}}\n"));
    }
}
