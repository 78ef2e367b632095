//! Typed access to the values of a document, with problems that name path, position, expected and found value.

use super::document::{Entry, Name, Shape};
use seatrial_machine::nearest;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A problem of a plan: where, and what was expected and found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", Prefix(path))]
pub struct Problem {
    /// Byte offset in the text.
    pub at: usize,
    /// The place in the document: `phases[1].mix[0].weight`; empty for the document itself.
    pub path: String,
    /// The problem, with the expected value.
    pub reason: String,
}

/// A path in front of a message.
struct Prefix<'a>(&'a str);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "{}: ", self.0)
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// A value that is being read, and its path.
#[derive(Clone, Debug)]
pub(super) struct Field<'e> {
    pub(super) entry: &'e Entry,
    pub(super) path: String,
}

/// Maximum duration in a plan: a year.
const DURATION_MAX: Duration = Duration::from_hours(365 * 24);

/// Names of times, and how many nanoseconds each is.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("min", 60e9),
    ("h", 3_600e9),
];

impl<'e> Field<'e> {
    /// The document itself.
    pub(super) const fn root(entry: &'e Entry) -> Field<'e> {
        Field {
            entry,
            path: String::new(),
        }
    }

    pub(super) fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem {
            at: self.entry.at,
            path: self.path.clone(),
            reason: reason.into(),
        }
    }

    /// The problem that this value is not the expected one.
    pub(super) fn wrong(&self, expected: &str) -> Problem {
        self.problem(format!("must be {expected}, not {}", self.entry))
    }

    pub(super) fn text(&self, expected: &str) -> Result<&'e str> {
        match &self.entry.shape {
            Shape::Text(text) => Ok(text),
            _ => Err(self.wrong(expected)),
        }
    }

    pub(super) fn flag(&self) -> Result<bool> {
        match self.entry.shape {
            Shape::Bool(flag) => Ok(flag),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// A whole number within these bounds.
    pub(super) fn whole(&self, range: RangeInclusive<i64>) -> Result<i64> {
        let (least, most) = (range.start(), range.end());
        match self.entry.shape {
            Shape::Int(number) if range.contains(&number) => Ok(number),
            _ if *most == i64::MAX && *least == i64::MIN => Err(self.wrong("a whole number")),
            _ if *most == i64::MAX => {
                Err(self.wrong(&format!("a whole number, {least} or greater")))
            }
            _ => Err(self.wrong(&format!("a whole number from {least} to {most}"))),
        }
    }

    /// A count: a whole number without a maximum.
    pub(super) fn count(&self) -> Result<u64> {
        self.whole(0..=i64::MAX).map(i64::cast_unsigned)
    }

    /// A number above 0 and up to `most`.
    pub(super) fn positive(&self, most: f64) -> Result<f64> {
        let number = match self.entry.shape {
            Shape::Int(number) => number as f64,
            Shape::Float(number) => number,
            _ => f64::NAN,
        };
        if number > 0.0 && number <= most {
            Ok(number)
        } else {
            Err(self.wrong(&format!("a number above 0 and up to {most}")))
        }
    }

    /// A time: seconds, or text with a unit.
    pub(super) fn duration(&self) -> Result<Duration> {
        const EXPECTED: &str =
            "a time such as \"10s\", \"1.5m\" or \"250ms\", or a number of seconds, up to a year";
        let nanoseconds = match &self.entry.shape {
            Shape::Int(seconds) => *seconds as f64 * 1e9,
            Shape::Float(seconds) => seconds * 1e9,
            Shape::Text(text) => nanoseconds_of(text).unwrap_or(f64::NAN),
            _ => f64::NAN,
        };
        if nanoseconds >= 0.0 && nanoseconds <= DURATION_MAX.as_nanos() as f64 {
            Ok(Duration::from_nanos(nanoseconds.round() as u64))
        } else {
            Err(self.wrong(EXPECTED))
        }
    }

    /// A time above 0.
    pub(super) fn interval(&self) -> Result<Duration> {
        let duration = self.duration()?;
        if duration.is_zero() {
            return Err(self.wrong("a time above 0"));
        }
        Ok(duration)
    }

    /// The items of a list.
    pub(super) fn items(&self, expected: &str) -> Result<Vec<Field<'e>>> {
        let Shape::List(items) = &self.entry.shape else {
            return Err(self.wrong(expected));
        };
        let item = |(index, entry)| Field {
            entry,
            path: format!("{}[{index}]", self.path),
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(super) fn table(&self, expected: &str) -> Result<Fields<'e>> {
        let Shape::Table(fields) = &self.entry.shape else {
            return Err(self.wrong(expected));
        };
        Ok(Fields {
            field: self.clone(),
            entries: fields,
            known: Vec::new(),
        })
    }

    /// One of these words.
    pub(super) fn one_of(&self, what: &str, known: &[&'static str]) -> Result<&'static str> {
        let text = self.text(&format!("{what}: {}", known.join(", ")))?;
        match known.iter().find(|word| **word == text) {
            Some(word) => Ok(word),
            None => Err(self.problem(unknown(what, text, known))),
        }
    }
}

/// The nanoseconds of a text with a number and a unit.
fn nanoseconds_of(text: &str) -> Option<f64> {
    let begin = text.find(|c: char| c.is_alphabetic())?;
    let (number, unit) = text.split_at(begin);
    let (_, nanoseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = number.trim_end().parse().ok()?;
    Some(number * nanoseconds)
}

/// A table that is being read. Every word that the reader asks for is known from then on.
pub(super) struct Fields<'e> {
    pub(super) field: Field<'e>,
    entries: &'e [(Name, Entry)],
    known: Vec<&'static str>,
}

impl<'e> Fields<'e> {
    /// The value of this word, if it is there.
    pub(super) fn take(&mut self, word: &'static str) -> Option<Field<'e>> {
        self.known.push(word);
        let (_, entry) = self.entries.iter().find(|(name, _)| name.text == word)?;
        Some(Field {
            entry,
            path: self.path_of(word),
        })
    }

    /// The value of a word that must be there.
    pub(super) fn need(&mut self, word: &'static str, expected: &str) -> Result<Field<'e>> {
        self.take(word).ok_or_else(|| {
            self.field
                .problem(format!("`{word}` is missing: {expected}"))
        })
    }

    /// Reads the value of this word, if it is there.
    pub(super) fn read<T>(
        &mut self,
        word: &'static str,
        read: impl FnOnce(&Field<'e>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.take(word).map(|field| read(&field)).transpose()
    }

    /// All names with their values: for tables whose names are free.
    pub(super) fn free(&self) -> impl Iterator<Item = (&'e str, Field<'e>)> {
        let path = self.field.path.clone();
        self.entries.iter().map(move |(name, entry)| {
            let short: String = name.text.chars().take(64).collect();
            let path = format!("{path}.{short}");
            (name.text.as_str(), Field { entry, path })
        })
    }

    /// The first word that no reader has asked for.
    pub(super) fn stranger(&self) -> Option<Problem> {
        let known = |name: &Name| self.known.iter().any(|word| *word == name.text);
        let (name, _) = self.entries.iter().find(|(name, _)| !known(name))?;
        Some(Problem {
            at: name.at,
            path: self.field.path.clone(),
            reason: unknown("word", &name.text, &self.known),
        })
    }

    /// Fails if the table contains a word that no reader has asked for.
    pub(super) fn finish(self) -> Result<()> {
        self.stranger().map_or(Ok(()), Err)
    }

    fn path_of(&self, word: &str) -> String {
        if self.field.path.is_empty() {
            word.to_owned()
        } else {
            format!("{}.{word}", self.field.path)
        }
    }
}

/// That a word is not known, with the nearest one that is, or all if there are few.
pub(super) fn unknown(what: &str, text: &str, known: &[&'static str]) -> String {
    /// More words than this are not listed.
    const LISTED_MAX: usize = 16;
    /// A longer word is not a misspelling of a known one.
    const LENGTH_MAX: usize = 40;
    let short: String = text.chars().take(LENGTH_MAX).collect();
    let said = format!("there is no {what} {short:?} here");
    let near = nearest(&short, known.iter().copied());
    match near {
        Some(word) => format!("{said}; did you mean {word:?}?"),
        None if known.len() <= LISTED_MAX => format!("{said}; known are {}", known.join(", ")),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let read = |shape| {
            Field::root(&Entry { at: 0, shape })
                .duration()
                .map(|duration| duration.as_nanos())
                .ok()
        };
        let text = |text: &str| read(Shape::Text(text.into()));
        assert_eq!(text("10s"), Some(10_000_000_000));
        assert_eq!(text("1.5m"), Some(90_000_000_000));
        assert_eq!(text("250 ms"), Some(250_000_000));
        assert_eq!(text("10ns"), Some(10));
        assert_eq!(text("0s"), Some(0));
        assert_eq!(read(Shape::Int(2)), Some(2_000_000_000));
        assert_eq!(read(Shape::Float(0.5)), Some(500_000_000));
        for wrong in [
            "", "s", "10", "10 sec", "-1s", "9000h", "1e300s", "nan s", "10s5",
        ] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
        assert_eq!(read(Shape::Int(-1)), None);
        assert_eq!(read(Shape::Float(f64::NAN)), None);
        assert_eq!(read(Shape::Bool(true)), None);
    }
}
