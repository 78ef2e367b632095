//! A reader of JSON that yields the forms of EDN.

use super::edn::{EdnReader, Form, SyntaxFault};
use super::operation_builder::{
    AfterBlank, Container, KeyPlace, OperationBuilder, OperationDraft, OperationFields,
};
use super::text_operations::Parsed;
use crate::export::integer_name;
use std::borrow::Cow;

/// Arrays and objects that may be open at once.
const DEPTH_MAX: u32 = 64;

/// Finds operations in JSON: an array of objects, or one object after another.
pub(super) struct JsonOperations {
    builder: OperationBuilder,
    container: Container,
}

impl JsonOperations {
    pub(super) fn new(keys: KeyPlace) -> JsonOperations {
        JsonOperations {
            builder: OperationBuilder::new(keys),
            container: Container::default(),
        }
    }

    /// Where the history's bracket opened.
    pub(super) fn opened(&self) -> usize {
        self.container.opened()
    }

    /// May operations follow whose values are plain?
    pub(super) fn is_plain(&self) -> bool {
        self.container.is_open() && self.builder.is_plain()
    }

    /// The next operation in `text` from `at` on. Nothing changes unless there is one.
    pub(super) fn next(&mut self, text: &str, at: usize) -> Result<Parsed, SyntaxFault> {
        // Blanks, commas and the bracket are those of EDN; comments that it allows are not JSON, but do no harm.
        let mut between = EdnReader::starting(text, at);
        let mut container = self.container;
        match container.next(&mut between, &[(b'[', b']')])? {
            AfterBlank::End => return Ok(Parsed::End),
            AfterBlank::Unclosed => return Ok(Parsed::Unclosed(container.opened())),
            AfterBlank::Operation => {}
        }
        let mut json = JsonReader::starting(text, between.at());
        let draft = json.operation(&mut self.builder)?;
        let end = json.at;
        self.container = container;
        Ok(Parsed::Operation(draft, end))
    }
}

/// A cursor over JSON text. Recursive descent with a depth bound; strings without escapes are borrowed.
pub(super) struct JsonReader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> JsonReader<'a> {
    /// A reader at a place in `text`.
    pub(super) fn starting(text: &'a str, at: usize) -> JsonReader<'a> {
        JsonReader { text, at, depth: 0 }
    }

    /// The value that is the whole text; `None` when it is no JSON.
    pub(super) fn whole(text: &'a str) -> Option<Form<'a>> {
        let mut json = JsonReader::starting(text, 0);
        let form = json.form().ok()?;
        json.peek().is_none().then_some(form)
    }

    /// Where it is.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Reads an object from its opening brace; `member` takes each member, or says what is wrong with its value.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&str, Form<'a>) -> Result<(), String>,
    ) -> Result<(), SyntaxFault> {
        self.members(|json, name| {
            json.peek();
            let value_at = json.at;
            let value = json.form()?;
            member(&name, value).map_err(|problem| SyntaxFault::new(value_at, problem))
        })
    }

    fn fault(&self, problem: impl Into<String>) -> SyntaxFault {
        SyntaxFault::new(self.at, problem)
    }

    /// The next byte that is not blank, not consumed.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// One operation: an object.
    fn operation(&mut self, builder: &mut OperationBuilder) -> Result<OperationDraft, SyntaxFault> {
        if self.peek() != Some(b'{') {
            return Err(self.fault("an operation (an object) is expected"));
        }
        let at = self.at;
        let mut fields = OperationFields::default();
        self.members(|json, name| {
            json.peek();
            let value_at = json.at;
            let mut value = json.form()?;
            // Some write keywords with their colon.
            if matches!(&*name, "type" | "f" | "process")
                && let Form::Text(Cow::Borrowed(text)) = &value
                && let Some(word) = text.strip_prefix(':')
            {
                value = Form::Keyword(word);
            }
            builder
                .field(&mut fields, &name, value)
                .map_err(|problem| SyntaxFault::new(value_at, problem))
        })?;
        builder.finish(fields, at)
    }

    /// Reads an object from its opening brace; `member` reads each value.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), SyntaxFault>,
    ) -> Result<(), SyntaxFault> {
        let opened = self.at;
        self.at += 1;
        let mut first = true;
        loop {
            match self.peek() {
                Some(b'}') if first => break,
                Some(b'"') => {}
                Some(_) => return Err(self.fault("the name of a member (a string) is expected")),
                None => return Err(SyntaxFault::new(opened, "this object is never closed")),
            }
            first = false;
            let name = self.string()?;
            if self.peek() != Some(b':') {
                return Err(self.fault(format!("`:` is expected after {name:?}")));
            }
            self.at += 1;
            member(self, name)?;
            match self.peek() {
                Some(b'}') => break,
                Some(b',') => self.at += 1,
                Some(_) => return Err(self.fault("`,` or `}` is expected")),
                None => return Err(SyntaxFault::new(opened, "this object is never closed")),
            }
            // `{"a": 1,}`
            if self.peek() == Some(b'}') {
                return Err(self.fault("the name of a member (a string) is expected"));
            }
        }
        self.at += 1;
        Ok(())
    }

    fn form(&mut self) -> Result<Form<'a>, SyntaxFault> {
        match self.peek() {
            None => Err(self.fault("the text ends where a value is expected")),
            Some(b'"') => self.string().map(Form::Text),
            Some(b'[') => self.nested(JsonReader::array),
            Some(b'{') => self.nested(|json| {
                let mut pairs = Vec::new();
                json.members(|json, name| {
                    pairs.push((member_name(name), json.form()?));
                    Ok(())
                })?;
                Ok(Form::Map(pairs))
            }),
            Some(_) => self.literal(),
        }
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, SyntaxFault>,
    ) -> Result<T, SyntaxFault> {
        if self.depth == DEPTH_MAX {
            return Err(self.fault(format!("more than {DEPTH_MAX} levels of nesting")));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// An array, from its opening bracket.
    fn array(&mut self) -> Result<Form<'a>, SyntaxFault> {
        let opened = self.at;
        self.at += 1;
        let mut ints = Vec::new();
        let mut forms = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Form::List(forms));
        }
        loop {
            match self.form()? {
                Form::Int(number) if forms.is_empty() => ints.push(number),
                other => {
                    forms.extend(ints.drain(..).map(Form::Int));
                    forms.push(other);
                }
            }
            match self.peek() {
                Some(b']') => break,
                Some(b',') => self.at += 1,
                Some(_) => return Err(self.fault("`,` or `]` is expected")),
                None => return Err(SyntaxFault::new(opened, "this array is never closed")),
            }
        }
        self.at += 1;
        Ok(if forms.is_empty() {
            Form::Ints(ints)
        } else {
            Form::List(forms)
        })
    }

    /// A number, a truth value, nothing; also the numbers that JSON does not have and Python writes.
    fn literal(&mut self) -> Result<Form<'a>, SyntaxFault> {
        let rest = &self.text[self.at..];
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = rest.bytes().position(|byte| !inside(byte));
        let word = &rest[..length.unwrap_or(rest.len())];
        let form = match word {
            "null" => Form::Nil,
            "true" => Form::Bool(true),
            "false" => Form::Bool(false),
            "NaN" => Form::Float(f64::NAN),
            "Infinity" => Form::Float(f64::INFINITY),
            "-Infinity" => Form::Float(f64::NEG_INFINITY),
            _ => number(word).ok_or_else(|| match word {
                "" => self.fault("a value is expected"),
                _ => self.fault(format!("bad value `{word}`")),
            })?,
        };
        self.at += word.len();
        Ok(form)
    }

    /// A string, from its opening quote.
    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxFault> {
        let opened = self.at;
        self.at += 1;
        let mut owned = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\')) else {
                return Err(SyntaxFault::new(opened, "this string is never closed"));
            };
            let plain = &rest[..length];
            self.at += length;
            if rest.as_bytes()[length] == b'"' {
                self.at += 1;
                if owned.is_empty() {
                    return Ok(Cow::Borrowed(plain));
                }
                owned.push_str(plain);
                return Ok(Cow::Owned(owned));
            }
            owned.push_str(plain);
            owned.push(self.escape()?);
        }
    }

    /// An escape, from its backslash.
    fn escape(&mut self) -> Result<char, SyntaxFault> {
        let start = self.at;
        self.at += 1;
        let Some(character) = self.text[self.at..].chars().next() else {
            return Err(SyntaxFault::new(start, "the text ends inside an escape"));
        };
        self.at += character.len_utf8();
        Ok(match character {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '"' | '\\' | '/' => character,
            'u' => {
                let mut reader = EdnReader::starting(self.text, self.at);
                let character = reader.hexadecimal(start)?;
                self.at = reader.at();
                character
            }
            other => {
                return Err(SyntaxFault::new(
                    start,
                    format!("unknown escape `\\{other}`"),
                ));
            }
        })
    }
}

/// A member's name: an integer, if it is the decimal form of one, since JSON has no other names; else a keyword, when it can be
/// written as one.
fn member_name(name: Cow<'_, str>) -> Form<'_> {
    if let Some(number) = integer_name(&name) {
        return Form::Int(number);
    }
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*+!?<>=/'$%&".contains(&byte);
    match name {
        Cow::Borrowed(name) if !name.is_empty() && name.bytes().all(word) => Form::Keyword(name),
        name => Form::Text(name),
    }
}

/// A number; integers past 64 bits are kept as text.
fn number(word: &str) -> Option<Form<'_>> {
    if let Ok(number) = word.parse::<i64>() {
        return (!word.starts_with('+')).then_some(Form::Int(number));
    }
    let digits = word.strip_prefix('-').unwrap_or(word);
    if !digits.as_bytes().first()?.is_ascii_digit() {
        return None;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Form::Text(Cow::Borrowed(word)));
    }
    word.parse::<f64>().ok().map(Form::Float)
}
