//! JSON as a document. Lists and tables are read here, because `serde_json` does not tell where a value stood; texts and
//! numbers are read by it.

use super::syntax;
use seatrial_generator::plan::Problem;
use seatrial_generator::plan::document::{DEPTH_MAX, Entry, Name, Shape};
use std::collections::BTreeSet;

/// The document that a text says.
pub(super) fn document(text: &str) -> Result<Entry, Problem> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
    };
    let entry = reader.entry()?;
    match reader.peek() {
        None => Ok(entry),
        Some(_) => Err(reader.problem("nothing may follow the document")),
    }
}

/// A cursor over the text. Recursive descent with a bound.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn problem(&self, reason: &str) -> Problem {
        let found = self.text[self.at..].chars().next();
        let found = found.map_or_else(|| "the end".to_owned(), |found| format!("{found:?}"));
        syntax(self.at, format!("this is not JSON: {reason}, not {found}"))
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn entry(&mut self) -> Result<Entry, Problem> {
        let first = self.peek();
        let at = self.at;
        let shape = match first {
            Some(b'{') => self.nested(at, Self::table)?,
            Some(b'[') => self.nested(at, Self::list)?,
            Some(b'"') => Shape::Text(self.text()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Entry { at, shape })
    }

    fn nested(
        &mut self,
        at: usize,
        read: impl FnOnce(&mut Self) -> Result<Shape, Problem>,
    ) -> Result<Shape, Problem> {
        if self.depth > DEPTH_MAX {
            return Err(syntax(
                at,
                format!("more than {DEPTH_MAX} lists and tables inside of each other"),
            ));
        }
        self.depth += 1;
        self.at += 1;
        let shape = read(self)?;
        self.depth -= 1;
        Ok(shape)
    }

    fn list(&mut self) -> Result<Shape, Problem> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Shape::List(items));
        }
        loop {
            items.push(self.entry()?);
            if self.ends(b']')? {
                return Ok(Shape::List(items));
            }
        }
    }

    fn table(&mut self) -> Result<Shape, Problem> {
        let mut fields = Vec::new();
        let mut names = BTreeSet::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Shape::Table(fields));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.problem("a name in quotes is expected"));
            }
            let at = self.at;
            let name = self.text()?;
            if !names.insert(name.clone()) {
                return Err(syntax(at, format!("{name:?} is there twice")));
            }
            if self.peek() != Some(b':') {
                return Err(self.problem("`:` is expected"));
            }
            self.at += 1;
            let entry = self.entry()?;
            fields.push((Name { at, text: name }, entry));
            if self.ends(b'}')? {
                return Ok(Shape::Table(fields));
            }
        }
    }

    /// Is this the bracket at the end? Else a comma is read.
    fn ends(&mut self, bracket: u8) -> Result<bool, Problem> {
        let next = self.peek();
        if next == Some(bracket) || next == Some(b',') {
            self.at += 1;
            return Ok(next == Some(bracket));
        }
        let expected = format!("`,` or `{}` is expected", char::from(bracket));
        Err(self.problem(&expected))
    }

    /// A text in quotes.
    fn text(&mut self) -> Result<String, Problem> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                None => return Err(syntax(self.at, "this is not JSON: this text has no end")),
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
            }
        }
        let slice = &self.text[self.at..=end];
        let text = serde_json::from_str(slice).map_err(|_| {
            syntax(
                self.at,
                "this is not JSON: this text has a wrong escape or a control character",
            )
        })?;
        self.at = end + 1;
        Ok(text)
    }

    /// Letters, digits and what numbers are made of.
    fn token(&self) -> &'t str {
        let rest = &self.text[self.at..];
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
        &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())]
    }

    fn number(&mut self) -> Result<Shape, Problem> {
        let token = self.token();
        let Ok(number) = serde_json::from_str::<serde_json::Number>(token) else {
            return Err(syntax(self.at, "this is not JSON: a number is expected"));
        };
        let is_whole = !token.contains(['.', 'e', 'E']);
        let shape = match number.as_i64() {
            Some(whole) if is_whole => Shape::Int(whole),
            _ if is_whole => {
                let reason =
                    "a whole number must be from -9223372036854775808 to 9223372036854775807";
                return Err(syntax(self.at, reason));
            }
            _ => Shape::Float(number.as_f64().unwrap_or(f64::NAN)),
        };
        self.at += token.len();
        Ok(shape)
    }

    fn word(&mut self) -> Result<Shape, Problem> {
        let shape = match self.token() {
            "true" => Shape::Bool(true),
            "false" => Shape::Bool(false),
            "null" => Shape::Null,
            _ => return Err(self.problem("a value is expected")),
        };
        self.at += self.token().len();
        Ok(shape)
    }
}
