//! A reader of Fressian, the binary form of Clojure data that Jepsen stores (fressian.org; the codes are those of
//! `org.fressian.impl.Codes`).

use super::edn::{Form, SyntaxFault};
use chrono::DateTime;
use seatrial_history::Symbol;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Values that may be open at once.
const DEPTH_MAX: u32 = 64;
/// Values that a block may decode to, in addition to [`BUDGET_PER_BYTE`] per byte: a cached value may be referenced again
/// and again, also from inside another cached value, so that output grows exponentially with input.
const BUDGET: u64 = 1 << 20;
/// Values that one byte may decode to.
const BUDGET_PER_BYTE: u64 = 16;
/// Bytes of the largest whole number.
const NUMBER_LENGTH_MAX: usize = 1_024;
/// Names cached for comparison.
const NAMES_MAX: usize = 64;

/// The tag of an operation since version 1 of Jepsen's files, and its components.
const OPERATION: (&str, u32) = ("jepsen.history.Op", 7);

/// A value that owns everything.
pub(super) type Datum = Form<'static>;

/// Codes outside of ranges.
mod code {
    pub(super) const LONG_ARRAY: u8 = 0xb0;
    pub(super) const OBJECT_ARRAY: u8 = 0xb5;
    pub(super) const MAP: u8 = 0xc0;
    pub(super) const SET: u8 = 0xc1;
    pub(super) const UUID: u8 = 0xc3;
    pub(super) const REGEX: u8 = 0xc4;
    pub(super) const URI: u8 = 0xc5;
    pub(super) const BIGINT: u8 = 0xc6;
    pub(super) const BIGDEC: u8 = 0xc7;
    pub(super) const INST: u8 = 0xc8;
    pub(super) const SYM: u8 = 0xc9;
    pub(super) const KEY: u8 = 0xca;
    pub(super) const GET_CACHE: u8 = 0xcc;
    pub(super) const PUT_CACHE: u8 = 0xcd;
    pub(super) const PRECACHE: u8 = 0xce;
    pub(super) const FOOTER: u8 = 0xcf;
    pub(super) const BYTES_PACKED: u8 = 0xd0;
    pub(super) const BYTES: u8 = 0xd9;
    pub(super) const STRING_PACKED: u8 = 0xda;
    pub(super) const STRING: u8 = 0xe3;
    pub(super) const LIST_PACKED: u8 = 0xe4;
    pub(super) const LIST: u8 = 0xec;
    pub(super) const CLOSED_LIST: u8 = 0xed;
    pub(super) const OPEN_LIST: u8 = 0xee;
    pub(super) const STRUCT_TYPE: u8 = 0xef;
    pub(super) const STRUCT: u8 = 0xf0;
    pub(super) const TRUE: u8 = 0xf5;
    pub(super) const FALSE: u8 = 0xf6;
    pub(super) const NULL: u8 = 0xf7;
    pub(super) const INT: u8 = 0xf8;
    pub(super) const FLOAT: u8 = 0xf9;
    pub(super) const DOUBLE: u8 = 0xfa;
    pub(super) const DOUBLE_0: u8 = 0xfb;
    pub(super) const DOUBLE_1: u8 = 0xfc;
    pub(super) const END_COLLECTION: u8 = 0xfd;
    pub(super) const RESET_CACHES: u8 = 0xfe;
}

/// A kind of tagged value.
#[derive(Clone, Debug)]
struct Struct {
    tag: String,
    /// Number of values that follow.
    components: u32,
}

impl Struct {
    /// Is this Jepsen's operation?
    fn is_operation(&self) -> bool {
        (&*self.tag, self.components) == OPERATION
    }
}

/// A value with the number of values in it.
type Cached = (Datum, u64);

/// A cursor over consecutive Fressian values that share their caches. Recursive descent with a bound on the depth and on the
/// number of values; nothing is allocated because the input claims a length.
///
/// Its downside: a cached value is copied at each reference.
pub(super) struct Fressian<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    /// Cached values; `None` while one is being read.
    objects: Vec<Option<Cached>>,
    structs: Vec<Struct>,
    /// Values that may still be decoded.
    budget: u64,
    /// Names seen so far.
    names: Vec<Symbol>,
}

type Result<T> = std::result::Result<T, SyntaxFault>;

impl<'a> Fressian<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Fressian<'a> {
        Fressian {
            bytes,
            at: 0,
            depth: 0,
            objects: Vec::new(),
            structs: Vec::new(),
            budget: BUDGET + BUDGET_PER_BYTE * bytes.len() as u64,
            names: Vec::new(),
        }
    }

    /// Byte offset of the next value.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn fault(&self, problem: impl Into<String>) -> SyntaxFault {
        SyntaxFault::new(self.at, problem)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.peek();
        let byte = byte.ok_or_else(|| self.fault("the data end inside a value"))?;
        self.at += 1;
        Ok(byte)
    }

    /// The next `count` bytes; an error when fewer are left.
    fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let there = self.bytes.len() - self.at;
        let Some(count) = usize::try_from(count).ok().filter(|&count| count <= there) else {
            return Err(self.fault(format!("{count} bytes are announced, {there} are left")));
        };
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    /// The next bytes as an unsigned number, the highest first.
    fn raw(&mut self, count: u64) -> Result<u64> {
        let bytes = self.take(count)?;
        Ok(bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Is another value there? Passes footers.
    pub(super) fn more(&mut self) -> Result<bool> {
        while self.peek() == Some(code::FOOTER) {
            self.at += 1;
            self.footer()?;
        }
        Ok(self.at < self.bytes.len())
    }

    /// A footer after its first byte: the rest of its mark, a length, and a checksum, which Jepsen turns off.
    fn footer(&mut self) -> Result<()> {
        if self.raw(3)? != 0x00cf_cfcf {
            return Err(self.fault("half of a footer"));
        }
        self.take(8)?;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.objects.clear();
        self.structs.clear();
    }

    /// The next value; `None` for an operation, whose components follow.
    pub(super) fn unless_operation(&mut self) -> Result<Option<Datum>> {
        match self.peek() {
            Some(first @ (0xa0..=0xaf | code::STRUCT | code::STRUCT_TYPE)) => {
                self.at += 1;
                let kind = self.structure(first)?;
                if kind.is_operation() {
                    return Ok(None);
                }
                self.components(&kind).map(Some)
            }
            _ => self.value().map(Some),
        }
    }

    /// The next value.
    pub(super) fn value(&mut self) -> Result<Datum> {
        self.weighed().map(|(value, _)| value)
    }

    /// The next value and how many values are in it.
    fn weighed(&mut self) -> Result<Cached> {
        if self.depth == DEPTH_MAX {
            return Err(self.fault(format!("more than {DEPTH_MAX} levels of nesting")));
        }
        self.depth += 1;
        let before = self.budget;
        let value = self.any();
        self.depth -= 1;
        Ok((value?, before - self.budget))
    }

    /// Subtracts decoded values from the budget.
    fn spend(&mut self, count: u64) -> Result<()> {
        match self.budget.checked_sub(count) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(self.fault("more values come out of the caches than the data can hold")),
        }
    }

    fn any(&mut self) -> Result<Datum> {
        self.spend(1)?;
        let start = self.at;
        let first = self.byte()?;
        if let Some(number) = self.packed(first)? {
            return Ok(Form::Int(number));
        }
        Ok(match first {
            0x80..=0x9f => return self.cached(i64::from(first - 0x80)),
            0xa0..=0xaf | code::STRUCT | code::STRUCT_TYPE => {
                let kind = self.structure(first)?;
                return self.components(&kind);
            }
            code::LONG_ARRAY..=code::OBJECT_ARRAY => {
                let count = self.count()?;
                return self.list(Some(count));
            }
            code::MAP..=code::KEY => return self.composite(first),
            code::GET_CACHE => {
                let place = self.int()?;
                return self.cached(place);
            }
            code::PUT_CACHE | code::PRECACHE => return self.put(),
            code::FOOTER => {
                self.footer()?;
                self.value()?
            }
            code::BYTES_PACKED..=code::BYTES => {
                let bytes = self.chunked(first, code::BYTES_PACKED)?;
                self.spend(bytes.len() as u64)?;
                let signed = bytes.iter().map(|&byte| i64::from(byte.cast_signed()));
                ints_or_empty(signed.collect())
            }
            code::STRING_PACKED..=code::STRING => {
                let bytes = self.chunked(first, code::STRING_PACKED)?;
                self.spend(bytes.len() as u64 / 16)?;
                let text = text(&bytes).map_err(|problem| SyntaxFault::new(start, problem))?;
                Form::Text(Cow::Owned(text))
            }
            code::LIST_PACKED..=0xeb => {
                return self.list(Some(u64::from(first - code::LIST_PACKED)));
            }
            code::LIST => {
                let count = self.count()?;
                return self.list(Some(count));
            }
            code::CLOSED_LIST | code::OPEN_LIST => return self.list(None),
            code::TRUE => Form::Bool(true),
            code::FALSE => Form::Bool(false),
            code::NULL => Form::Nil,
            code::FLOAT => Form::Float(f64::from(f32::from_bits(self.raw(4)? as u32))),
            code::DOUBLE => Form::Float(f64::from_bits(self.raw(8)?)),
            code::DOUBLE_0 => Form::Float(0.0),
            code::DOUBLE_1 => Form::Float(1.0),
            code::RESET_CACHES => {
                self.forget();
                self.value()?
            }
            code::END_COLLECTION => {
                return Err(SyntaxFault::new(start, "a list ends that did not begin"));
            }
            other => {
                return Err(SyntaxFault::new(
                    start,
                    format!("unknown code {other:#04x}"),
                ));
            }
        })
    }

    /// A whole number, when this code begins one.
    fn packed(&mut self, first: u8) -> Result<Option<i64>> {
        let (zero, rest) = match first {
            0xff => return Ok(Some(-1)),
            0x00..=0x3f => return Ok(Some(i64::from(first))),
            0x40..=0x5f => (0x50, 1),
            0x60..=0x6f => (0x68, 2),
            0x70..=0x73 => (0x72, 3),
            0x74..=0x77 => (0x76, 4),
            0x78..=0x7b => (0x7a, 5),
            0x7c..=0x7f => (0x7e, 6),
            code::INT => return Ok(Some(self.raw(8)?.cast_signed())),
            _ => return Ok(None),
        };
        let high = i64::from(first) - zero;
        let low = self.raw(rest)?.cast_signed();
        Ok(Some((high << (8 * rest)) | low))
    }

    /// A whole number.
    fn int(&mut self) -> Result<i64> {
        let start = self.at;
        let first = self.byte()?;
        let number = self.packed(first)?;
        number.ok_or_else(|| {
            SyntaxFault::new(
                start,
                format!("a whole number is expected, not {first:#04x}"),
            )
        })
    }

    /// A length or count.
    fn count(&mut self) -> Result<u64> {
        let start = self.at;
        let count = self.int()?;
        u64::try_from(count).map_err(|_| SyntaxFault::new(start, format!("a length of {count}")))
    }

    /// A value that later references may name.
    fn put(&mut self) -> Result<Datum> {
        let place = self.objects.len();
        self.objects.push(None);
        let (value, weight) = self.weighed()?;
        // The caches may have been reset inside.
        if let Some(slot) = self.objects.get_mut(place) {
            *slot = Some((value.clone(), weight));
        }
        Ok(value)
    }

    fn cached(&mut self, place: i64) -> Result<Datum> {
        let at = self.at - 1;
        let found = usize::try_from(place).ok();
        let found = found.and_then(|place| self.objects.get(place));
        let (value, weight) = match found {
            Some(Some((value, weight))) => (value.clone(), *weight),
            Some(None) => return Err(SyntaxFault::new(at, "a value that is part of itself")),
            None => {
                let count = self.objects.len();
                let problem = format!("cached value {place} of {count}");
                return Err(SyntaxFault::new(at, problem));
            }
        };
        self.spend(weight)?;
        Ok(value)
    }

    /// The kind of a tagged value, after its first code.
    fn structure(&mut self, first: u8) -> Result<Struct> {
        let start = self.at - 1;
        let place = match first {
            code::STRUCT_TYPE => {
                let Form::Text(tag) = self.value()? else {
                    return Err(SyntaxFault::new(start, "the tag of a structure is no text"));
                };
                let components = self.count()?;
                let components = u32::try_from(components)
                    .map_err(|_| SyntaxFault::new(start, "a structure of too many components"))?;
                let tag = tag.into_owned();
                let kind = Struct { tag, components };
                self.structs.push(kind.clone());
                return Ok(kind);
            }
            code::STRUCT => self.int()?,
            packed => i64::from(packed - 0xa0),
        };
        let found = usize::try_from(place).ok();
        let found = found.and_then(|place| self.structs.get(place));
        found.cloned().ok_or_else(|| {
            let count = self.structs.len();
            SyntaxFault::new(start, format!("structure {place} of {count}"))
        })
    }

    /// `count` values, or those up to the end of the collection.
    fn list(&mut self, count: Option<u64>) -> Result<Datum> {
        let mut ints = Vec::new();
        let mut forms = Vec::new();
        let mut left = count;
        loop {
            match &mut left {
                Some(0) => break,
                Some(left) => *left -= 1,
                // An open list may end with the data.
                None if self.peek().is_none() => break,
                None if self.peek() == Some(code::END_COLLECTION) => {
                    self.at += 1;
                    break;
                }
                None => {}
            }
            match self.value()? {
                Form::Int(number) if forms.is_empty() => ints.push(number),
                other => {
                    forms.extend(ints.drain(..).map(Form::Int));
                    forms.push(other);
                }
            }
        }
        Ok(if forms.is_empty() {
            ints_or_empty(ints)
        } else {
            Form::List(forms)
        })
    }

    /// Bytes or a string, in one piece or in chunks, after the first code. `packed` is the first code of its kind: eight short
    /// lengths, then the code of a chunk that others follow, then that of the last.
    fn chunked(&mut self, first: u8, packed: u8) -> Result<Cow<'a, [u8]>> {
        let (chunk, last) = (packed + 8, packed + 9);
        let mut code = first;
        let mut whole = Vec::new();
        loop {
            let length = if code < chunk {
                u64::from(code - packed)
            } else {
                self.count()?
            };
            let bytes = self.take(length)?;
            if code != chunk {
                if whole.is_empty() {
                    return Ok(Cow::Borrowed(bytes));
                }
                whole.extend_from_slice(bytes);
                return Ok(Cow::Owned(whole));
            }
            whole.extend_from_slice(bytes);
            code = self.byte()?;
            if !(packed..=last).contains(&code) {
                return Err(SyntaxFault::new(self.at - 1, "a chunk without a last one"));
            }
        }
    }

    fn symbol(&mut self, name: &str) -> Option<Symbol> {
        if let Some(symbol) = self.names.iter().find(|known| **known == name) {
            return Some(*symbol);
        }
        let symbol = Symbol::intern(name)?;
        if self.names.len() < NAMES_MAX {
            self.names.push(symbol);
        }
        Some(symbol)
    }

    /// Composite values with codes of their own.
    fn composite(&mut self, first: u8) -> Result<Datum> {
        let start = self.at - 1;
        let wrong = |what: &str| SyntaxFault::new(start, format!("this is no {what}"));
        Ok(match first {
            code::MAP => map(self.value()?).ok_or_else(|| wrong("map"))?,
            code::SET => set(self.value()?).ok_or_else(|| wrong("set"))?,
            code::UUID => uuid(&self.value()?).ok_or_else(|| wrong("UUID"))?,
            code::REGEX | code::URI => self.value()?,
            code::BIGINT => {
                let Form::Ints(bytes) = self.value()? else {
                    return Err(wrong("number"));
                };
                whole(&bytes).map_or_else(|| Err(wrong("number")), |number| Ok(number.datum()))?
            }
            code::BIGDEC => {
                let (Form::Ints(bytes), scale) = (self.value()?, self.int()?) else {
                    return Err(wrong("number"));
                };
                let digits = whole(&bytes).ok_or_else(|| wrong("number"))?.text();
                let number = format!("{digits}e{}", scale.saturating_neg());
                number.parse().map_or_else(|_| Form::Nil, Form::Float)
            }
            code::INST => Form::Text(Cow::Owned(instant(self.int()?))),
            code::SYM | code::KEY => {
                let (space, name) = (self.value()?, self.value()?);
                let Form::Text(name) = name else {
                    return Err(wrong("name"));
                };
                let name = match space {
                    Form::Text(space) => Cow::Owned(format!("{space}/{name}")),
                    _ => name,
                };
                match self.symbol(&name) {
                    Some(symbol) if first == code::KEY => Form::Keyword(symbol.as_str()),
                    Some(symbol) => Form::Symbol(symbol.as_str()),
                    None => Form::Text(name),
                }
            }
            other => {
                return Err(SyntaxFault::new(
                    start,
                    format!("unknown code {other:#04x}"),
                ));
            }
        })
    }

    /// A tagged value, after its kind. Known tags of data.fressian and of Jepsen are converted; of others the enclosed value or
    /// values remain.
    fn components(&mut self, kind: &Struct) -> Result<Datum> {
        let start = self.at;
        let mut components = Vec::new();
        for _ in 0..kind.components {
            components.push(self.value()?);
        }
        let wrong = || SyntaxFault::new(start, format!("this is no {}", kind.tag));
        if kind.is_operation() {
            return operation(components).ok_or_else(wrong);
        }
        let text = |text: String| Form::Text(Cow::Owned(text));
        Ok(match (&*kind.tag, &mut components[..]) {
            ("char", [Form::Int(code)]) => {
                let character = u32::try_from(*code).ok().and_then(char::from_u32);
                text(character.unwrap_or(char::REPLACEMENT_CHARACTER).into())
            }
            ("ratio", [above, below]) => text(format!(
                "{}/{}",
                std::mem::replace(above, Form::Nil).into_value(),
                std::mem::replace(below, Form::Nil).into_value()
            )),
            ("bigint", [Form::Ints(bytes)]) => whole(bytes).ok_or_else(wrong)?.datum(),
            ("record", [_, fields]) => std::mem::replace(fields, Form::Nil),
            ("persistent-hash-set" | "persistent-sorted-set", [list]) => {
                set(std::mem::replace(list, Form::Nil)).ok_or_else(wrong)?
            }
            ("block-ref", [id @ Form::Int(_)]) => {
                Form::Tagged("block-ref", Box::new(std::mem::replace(id, Form::Nil)))
            }
            (_, [one]) => std::mem::replace(one, Form::Nil),
            _ => Form::List(components),
        })
    }
}

fn ints_or_empty(ints: Vec<i64>) -> Datum {
    if ints.is_empty() {
        Form::List(Vec::new())
    } else {
        Form::Ints(ints)
    }
}

/// The elements of a list. Clojure's `seq` of an empty collection is nil, which Jepsen writes.
fn elements(list: Datum) -> Option<Vec<Datum>> {
    match list {
        Form::Nil => Some(Vec::new()),
        Form::List(forms) => Some(forms),
        Form::Ints(ints) => Some(ints.into_iter().map(Form::Int).collect()),
        _ => None,
    }
}

/// A map from the list of its keys and values.
fn map(list: Datum) -> Option<Datum> {
    let forms = elements(list)?;
    if forms.len() % 2 == 1 {
        return None;
    }
    let mut pairs = Vec::with_capacity(forms.len() / 2);
    let mut forms = forms.into_iter();
    while let (Some(key), Some(value)) = (forms.next(), forms.next()) {
        pairs.push((key, value));
    }
    Some(Form::Map(pairs))
}

fn set(list: Datum) -> Option<Datum> {
    elements(list).map(Form::Set)
}

/// An operation inside another value, as the map that Jepsen prints.
fn operation(components: Vec<Datum>) -> Option<Datum> {
    let names = ["index", "time", "type", "process", "f", "value"];
    let mut components = components.into_iter();
    let mut pairs: Vec<(Datum, Datum)> = names
        .into_iter()
        .zip(components.by_ref())
        .map(|(name, value)| (Form::Keyword(name), value))
        .collect();
    match components.next()? {
        Form::Map(extra) => pairs.extend(extra),
        Form::Nil => {}
        _ => return None,
    }
    Some(Form::Map(pairs))
}

fn uuid(bytes: &Datum) -> Option<Datum> {
    let Form::Ints(bytes) = bytes else {
        return None;
    };
    if bytes.len() != 16 {
        return None;
    }
    let mut text = String::new();
    for (number, byte) in bytes.iter().enumerate() {
        if matches!(number, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let digit = |four: i64| char::from_digit(four as u32 & 15, 16).unwrap_or('0');
        text.extend([digit(byte >> 4), digit(*byte)]);
    }
    Some(Form::Text(Cow::Owned(text)))
}

/// A whole number of any size.
struct BigInteger {
    negative: bool,
    /// Digits to the base of a thousand millions, the lowest first.
    digits: Vec<u32>,
}

/// The number of these bytes in two's complement, the highest first.
fn whole(bytes: &[i64]) -> Option<BigInteger> {
    const BASE: u64 = 1_000_000_000;
    if bytes.len() > NUMBER_LENGTH_MAX {
        return None;
    }
    let negative = bytes.first().is_some_and(|&byte| byte < 0);
    let mut digits: Vec<u32> = vec![0];
    let mut add = |factor: u64, byte: u64| {
        let mut carry = byte;
        for digit in &mut digits {
            let sum = u64::from(*digit) * factor + carry;
            *digit = (sum % BASE) as u32;
            carry = sum / BASE;
        }
        if carry > 0 {
            digits.push(carry as u32);
        }
    };
    for &byte in bytes {
        let byte = if negative { !byte } else { byte };
        add(256, byte.cast_unsigned() & 0xff);
    }
    if negative {
        add(1, 1);
    }
    Some(BigInteger { negative, digits })
}

impl BigInteger {
    fn text(&self) -> String {
        let mut text = String::from(if self.negative { "-" } else { "" });
        for (number, digit) in self.digits.iter().rev().enumerate() {
            if number == 0 {
                text += &digit.to_string();
            } else {
                let _ = write!(text, "{digit:09}");
            }
        }
        text
    }

    /// A number if it fits, otherwise its text.
    fn datum(&self) -> Datum {
        let text = self.text();
        text.parse().map_or(Form::Text(Cow::Owned(text)), Form::Int)
    }
}

/// A string of Fressian: each unit of UTF-16 in one to three bytes.
fn text(bytes: &[u8]) -> std::result::Result<String, String> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Ok(text.to_owned());
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().map(|&byte| u16::from(byte));
    while let Some(first) = rest.next() {
        let mut next = || match rest.next() {
            Some(byte) if byte & 0xc0 == 0x80 => Ok(byte & 0x3f),
            _ => Err("a string with half of a character".to_owned()),
        };
        units.push(match first >> 4 {
            0..=7 => first,
            12 | 13 => (first & 0x1f) << 6 | next()?,
            14 => (first & 0x0f) << 12 | next()? << 6 | next()?,
            _ => return Err("a string with a byte that begins no character".to_owned()),
        });
    }
    Ok(String::from_utf16_lossy(&units))
}

/// Milliseconds since 1970 as Clojure prints them. The calendar ends in 262,000 years; later instants
/// are printed as milliseconds.
fn instant(milliseconds: i64) -> String {
    let time = DateTime::from_timestamp_millis(milliseconds);
    let shown = time.map(|time| time.format("%Y-%m-%dT%H:%M:%S%.3f-00:00").to_string());
    shown.unwrap_or_else(|| format!("{milliseconds} ms since 1970"))
}

#[cfg(test)]
mod tests;
