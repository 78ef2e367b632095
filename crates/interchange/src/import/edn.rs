//! A reader of EDN (extensible data notation), the text form of Clojure data.

use seatrial_history::{Symbol, Value};
use std::borrow::Cow;

/// Collections, tags and discards that may be open at once: the bound of the reader's recursion.
const DEPTH_MAX: u32 = 64;

/// A problem in a text and its byte offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxFault {
    /// Offset in bytes from the start of the text.
    pub(super) at: usize,
    /// The problem.
    pub(super) problem: String,
}

impl SyntaxFault {
    /// A fault at the byte `at`.
    pub(super) fn new(at: usize, problem: impl Into<String>) -> SyntaxFault {
        let problem = problem.into();
        SyntaxFault { at, problem }
    }
}

/// One EDN value; lists and vectors are the same here.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Strings, characters, and numbers that fit neither 64 bits nor a float.
    Text(Cow<'a, str>),
    Keyword(&'a str),
    Symbol(&'a str),
    /// A sequence of nothing but integers, at least one: by far the most common, at 8 bytes an element.
    Ints(Vec<i64>),
    List(Vec<Form<'a>>),
    Set(Vec<Form<'a>>),
    Map(Vec<(Form<'a>, Form<'a>)>),
    Tagged(&'a str, Box<Form<'a>>),
}

/// A cursor over EDN text. Recursive descent with a depth bound; forms borrow their names and plain strings.
pub(super) struct EdnReader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

/// Does this byte end a number, a symbol or a keyword?
fn is_delimiter(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'"' | b';')
}

/// White space of EDN; commas count.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r' | b',' | 0x0b | 0x0c)
}

impl<'a> EdnReader<'a> {
    /// A reader at the start of `text`.
    pub(super) fn new(text: &'a str) -> EdnReader<'a> {
        EdnReader::starting(text, 0)
    }

    /// A reader at a place in `text`, between two forms.
    pub(super) fn starting(text: &'a str, at: usize) -> EdnReader<'a> {
        EdnReader { text, at, depth: 0 }
    }

    /// Byte offset of the next byte.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next byte, not consumed.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes one byte, which must be ASCII.
    pub(super) fn bump(&mut self) {
        self.at += 1;
    }

    fn fault(&self, problem: impl Into<String>) -> SyntaxFault {
        SyntaxFault::new(self.at, problem)
    }

    /// Passes white space, comments, and discarded forms (`#_ form`).
    pub(super) fn skip_blank(&mut self) -> Result<(), SyntaxFault> {
        let bytes = self.text.as_bytes();
        loop {
            match self.peek() {
                Some(byte) if is_blank(byte) => self.at += 1,
                Some(b';') => {
                    let line = &bytes[self.at..];
                    let end = memchr::memchr(b'\n', line);
                    self.at += end.unwrap_or(line.len());
                }
                Some(b'#') if bytes.get(self.at + 1) == Some(&b'_') => {
                    self.at += 2;
                    self.nested(|reader| reader.form().map(drop))?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Runs `read` one level deeper.
    pub(super) fn nested<T>(
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

    /// The next form.
    pub(super) fn form(&mut self) -> Result<Form<'a>, SyntaxFault> {
        self.skip_blank()?;
        match self.peek() {
            None => Err(self.fault("the text ends where a value is expected")),
            Some(b'[') => self.sequence(b']'),
            Some(b'(') => self.sequence(b')'),
            Some(b'{') => self.map(),
            Some(b'"') => self.string().map(Form::Text),
            Some(b'#') => self.dispatch(),
            Some(b'\\') => self.character(),
            Some(b'^') => self.metadata(),
            Some(byte @ (b')' | b']' | b'}')) => {
                Err(self.fault(format!("`{}` closes nothing", char::from(byte))))
            }
            Some(_) => self.atom(),
        }
    }

    /// A list or vector, from its opening bracket to `close`.
    fn sequence(&mut self, close: u8) -> Result<Form<'a>, SyntaxFault> {
        let opened = self.at;
        self.bump();
        self.nested(|reader| {
            let mut ints = Vec::new();
            while reader.more(close, opened)? {
                match reader.form()? {
                    Form::Int(number) => ints.push(number),
                    other => {
                        let mut forms: Vec<_> = ints.into_iter().map(Form::Int).collect();
                        forms.push(other);
                        reader.rest(&mut forms, close, opened)?;
                        return Ok(Form::List(forms));
                    }
                }
            }
            let empty = ints.is_empty();
            Ok(if empty {
                Form::List(Vec::new())
            } else {
                Form::Ints(ints)
            })
        })
    }

    /// The remaining elements of a sequence.
    fn rest(
        &mut self,
        forms: &mut Vec<Form<'a>>,
        close: u8,
        opened: usize,
    ) -> Result<(), SyntaxFault> {
        while self.more(close, opened)? {
            forms.push(self.form()?);
        }
        Ok(())
    }

    /// Is there another element before `close`? Consumes `close` when there is not.
    pub(super) fn more(&mut self, close: u8, opened: usize) -> Result<bool, SyntaxFault> {
        self.skip_blank()?;
        match self.peek() {
            Some(byte) if byte == close => {
                self.bump();
                Ok(false)
            }
            Some(_) => Ok(true),
            None => Err(SyntaxFault::new(opened, "this bracket is never closed")),
        }
    }

    fn map(&mut self) -> Result<Form<'a>, SyntaxFault> {
        let opened = self.at;
        self.bump();
        self.nested(|reader| {
            let mut pairs = Vec::new();
            while reader.more(b'}', opened)? {
                let key = reader.form()?;
                if !reader.more(b'}', opened)? {
                    return Err(SyntaxFault::new(
                        opened,
                        "this map has a key without a value",
                    ));
                }
                pairs.push((key, reader.form()?));
            }
            Ok(Form::Map(pairs))
        })
    }

    /// A string, from its opening quote. Borrowed when it has no escapes.
    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxFault> {
        let opened = self.at;
        self.bump();
        let mut owned = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\')) else {
                return Err(SyntaxFault::new(opened, "this string is never closed"));
            };
            let plain = &rest[..length];
            self.at += length;
            if self.peek() == Some(b'"') {
                self.bump();
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

    /// An escape in a string, from its backslash.
    fn escape(&mut self) -> Result<char, SyntaxFault> {
        let start = self.at;
        self.bump();
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
            '0'..='7' => return self.octal(character),
            'u' => return self.hexadecimal(start),
            '"' | '\\' | '\'' | '/' => character,
            other => {
                return Err(SyntaxFault::new(
                    start,
                    format!("unknown escape `\\{other}`"),
                ));
            }
        })
    }

    /// The rest of an octal escape (`\0` to `\377`).
    fn octal(&mut self, first: char) -> Result<char, SyntaxFault> {
        let mut code = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let digit = self
                .peek()
                .and_then(|byte| char::from(byte).to_digit(8))
                .filter(|digit| code * 8 + digit <= 0o377);
            let Some(digit) = digit else { break };
            code = code * 8 + digit;
            self.bump();
        }
        char::from_u32(code).ok_or_else(|| self.fault("not a character"))
    }

    /// Four hexadecimal digits of a `\u` escape; a surrogate pair is two of them.
    pub(super) fn hexadecimal(&mut self, start: usize) -> Result<char, SyntaxFault> {
        let high = self.four_digits(start)?;
        if (0xd800..0xdc00).contains(&high) && self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            let low = self.four_digits(start)?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                return char::from_u32(code)
                    .ok_or_else(|| SyntaxFault::new(start, "not a character"));
            }
            return Err(SyntaxFault::new(start, "half of a surrogate pair"));
        }
        // A lone surrogate is legal in Java strings and nowhere else.
        Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_digits(&mut self, start: usize) -> Result<u32, SyntaxFault> {
        let digits = self.text.get(self.at..self.at + 4);
        let code = digits
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| SyntaxFault::new(start, "`\\u` needs four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }

    /// What begins with `#`: a set, a tag, a special number, a printed regular expression.
    fn dispatch(&mut self) -> Result<Form<'a>, SyntaxFault> {
        let start = self.at;
        self.bump();
        match self.peek() {
            Some(b'{') => {
                self.bump();
                self.nested(|reader| {
                    let mut forms = Vec::new();
                    reader.rest(&mut forms, b'}', start)?;
                    Ok(Form::Set(forms))
                })
            }
            Some(b'"') => self.string().map(Form::Text),
            Some(b'#') => {
                self.bump();
                match self.token() {
                    "Inf" => Ok(Form::Float(f64::INFINITY)),
                    "-Inf" => Ok(Form::Float(f64::NEG_INFINITY)),
                    "NaN" => Ok(Form::Float(f64::NAN)),
                    other => Err(SyntaxFault::new(
                        start,
                        format!("unknown number `##{other}`"),
                    )),
                }
            }
            _ => {
                let tag = self.token();
                if tag.is_empty() {
                    return Err(SyntaxFault::new(start, "`#` without a tag"));
                }
                let form = self.nested(EdnReader::form)?;
                Ok(Form::Tagged(tag, Box::new(form)))
            }
        }
    }

    /// Passes a tag that precedes a map, from its `#`.
    pub(super) fn tag(&mut self) -> Result<(), SyntaxFault> {
        self.bump();
        if self.token().is_empty() {
            return Err(self.fault("`#` without a tag"));
        }
        Ok(())
    }

    /// A form with metadata (`^meta form`): the metadata is dropped.
    fn metadata(&mut self) -> Result<Form<'a>, SyntaxFault> {
        self.bump();
        self.nested(|reader| {
            reader.form()?;
            reader.form()
        })
    }

    /// A character literal: `\a`, `\newline`, `\u0041`.
    fn character(&mut self) -> Result<Form<'a>, SyntaxFault> {
        let start = self.at;
        self.bump();
        let Some(first) = self.text[self.at..].chars().next() else {
            return Err(SyntaxFault::new(start, "the text ends inside a character"));
        };
        self.at += first.len_utf8();
        self.token();
        let name = &self.text[start + 1..self.at];
        let code = name.strip_prefix(['u', 'o']).filter(|_| name.len() > 1);
        let radix = if first == 'u' { 16 } else { 8 };
        let character = match name {
            "newline" => '\n',
            "space" => ' ',
            "tab" => '\t',
            "return" => '\r',
            "backspace" => '\u{8}',
            "formfeed" => '\u{c}',
            _ if name.len() == first.len_utf8() => first,
            _ => code
                .and_then(|digits| u32::from_str_radix(digits, radix).ok())
                .and_then(char::from_u32)
                .ok_or_else(|| SyntaxFault::new(start, format!("unknown character `\\{name}`")))?,
        };
        Ok(Form::Text(Cow::Owned(character.into())))
    }

    /// Everything up to the next delimiter.
    fn token(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.bytes().position(is_delimiter).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// A number, keyword or symbol.
    fn atom(&mut self) -> Result<Form<'a>, SyntaxFault> {
        let start = self.at;
        let token = self.token();
        let (first, rest) = token.as_bytes().split_at(1.min(token.len()));
        match (first, rest.first()) {
            ([b'0'..=b'9'], _) | (b"+" | b"-", Some(b'0'..=b'9')) => number(token)
                .ok_or_else(|| SyntaxFault::new(start, format!("bad number `{token}`"))),
            (b":", Some(_)) => Ok(Form::Keyword(token[1..].trim_start_matches(':'))),
            _ => match token {
                "nil" => Ok(Form::Nil),
                "true" => Ok(Form::Bool(true)),
                "false" => Ok(Form::Bool(false)),
                "" | ":" => Err(SyntaxFault::new(start, "a value is expected")),
                _ => Ok(Form::Symbol(token)),
            },
        }
    }
}

/// A number: integer (`N` suffix allowed), float (`M` suffix allowed), or, kept as text, ratios and integers past 64
/// bits.
fn number(token: &str) -> Option<Form<'_>> {
    let body = token.strip_prefix('+').unwrap_or(token);
    let whole = body.strip_suffix('N').unwrap_or(body);
    if let Ok(number) = whole.parse::<i64>() {
        return Some(Form::Int(number));
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = whole.strip_prefix('-').unwrap_or(whole);
    let text = || Some(Form::Text(Cow::Borrowed(token)));
    if digits(unsigned) {
        return text();
    }
    if let Some((above, below)) = unsigned.split_once('/') {
        return if digits(above) && digits(below) {
            text()
        } else {
            None
        };
    }
    if let Some(hexadecimal) = unsigned.strip_prefix("0x") {
        let sign = if whole.starts_with('-') { -1 } else { 1 };
        let value = u32::from_str_radix(hexadecimal, 16).ok()?;
        return Some(Form::Int(sign * i64::from(value)));
    }
    let plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let float = body.strip_suffix('M').unwrap_or(body);
    let float = float
        .bytes()
        .all(plain)
        .then(|| float.parse::<f64>().ok())?;
    float.map(Form::Float)
}

impl Form<'_> {
    /// The name of a keyword, symbol or string.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Form::Keyword(name) | Form::Symbol(name) => Some(name),
            Form::Text(name) => Some(name),
            _ => None,
        }
    }

    /// The value as it stands, without interpretation; tags are dropped.
    pub(super) fn into_value(self) -> Value {
        match self {
            Form::Nil => Value::Nil,
            Form::Bool(truth) => Value::Bool(truth),
            Form::Int(number) => Value::Int(number),
            Form::Float(number) => Value::Float(number),
            Form::Text(text) => Value::text(text),
            Form::Keyword(name) | Form::Symbol(name) => {
                Symbol::intern(name).map_or_else(|| Value::text(name), Value::Word)
            }
            Form::Ints(items) => Value::List(items.into_iter().map(Value::Int).collect()),
            Form::List(items) => Value::List(items.into_iter().map(Form::into_value).collect()),
            Form::Set(items) => Value::Set(items.into_iter().map(Form::into_value).collect()),
            Form::Map(pairs) => {
                let pairs = pairs.into_iter();
                let pairs = pairs.map(|(key, value)| (key.into_value(), value.into_value()));
                Value::Map(pairs.collect())
            }
            Form::Tagged(_, form) => form.into_value(),
        }
    }
}
