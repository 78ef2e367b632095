//! Typed access to the values of a document, with problems that name path, position, expected and found value.

use super::document::{EntryName, PlanEntry, PlanValue};
use seatrial_machine::nearest;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A problem of a plan, with its position, and the expected and found value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", Prefix(path))]
pub struct Problem {
    /// Byte offset in the text.
    pub at: usize,
    /// The path in the document: `phases[1].mix[0].weight`; empty for the document itself.
    pub path: String,
    /// The problem, with the expected value.
    pub reason: String,
}

/// Displays a path before a message.
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

/// A result with a [`Problem`].
pub type Result<T> = std::result::Result<T, Problem>;

/// A value that is being read, and its path.
#[derive(Clone, Debug)]
pub struct Field<'e> {
    /// The value.
    pub entry: &'e PlanEntry,
    /// Its path in the document: `phases[1].mix[0].weight`.
    pub path: String,
}

/// Maximum duration in a plan: a year.
const DURATION_MAX: Duration = Duration::from_hours(365 * 24);

/// Units of time, in nanoseconds.
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
    pub const fn root(entry: &'e PlanEntry) -> Field<'e> {
        Field {
            entry,
            path: String::new(),
        }
    }

    /// A problem at this value.
    pub fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem {
            at: self.entry.at,
            path: self.path.clone(),
            reason: reason.into(),
        }
    }

    /// The problem that this value is not the expected one.
    pub fn wrong(&self, expected: &str) -> Problem {
        self.problem(format!("must be {expected}, not {}", self.entry))
    }

    /// A text.
    pub fn text(&self, expected: &str) -> Result<&'e str> {
        match &self.entry.value {
            PlanValue::Text(text) => Ok(text),
            _ => Err(self.wrong(expected)),
        }
    }

    /// A truth value.
    pub fn flag(&self) -> Result<bool> {
        match self.entry.value {
            PlanValue::Bool(flag) => Ok(flag),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// A whole number within these bounds.
    pub fn whole(&self, range: RangeInclusive<i64>) -> Result<i64> {
        let (least, most) = (range.start(), range.end());
        match self.entry.value {
            PlanValue::Int(number) if range.contains(&number) => Ok(number),
            _ if *most == i64::MAX && *least == i64::MIN => Err(self.wrong("a whole number")),
            _ if *most == i64::MAX => {
                Err(self.wrong(&format!("a whole number, {least} or greater")))
            }
            _ => Err(self.wrong(&format!("a whole number from {least} to {most}"))),
        }
    }

    /// A count: a whole number without a maximum.
    pub fn count(&self) -> Result<u64> {
        self.whole(0..=i64::MAX).map(i64::cast_unsigned)
    }

    /// A number above 0 and up to `most`.
    pub fn positive(&self, most: f64) -> Result<f64> {
        let number = match self.entry.value {
            PlanValue::Int(number) => number as f64,
            PlanValue::Float(number) => number,
            _ => f64::NAN,
        };
        if number > 0.0 && number <= most {
            Ok(number)
        } else {
            Err(self.wrong(&format!("a number above 0 and up to {most}")))
        }
    }

    /// A time: seconds, or text with a unit.
    pub fn duration(&self) -> Result<Duration> {
        const EXPECTED: &str =
            "a time such as \"10s\", \"1.5m\" or \"250ms\", or a number of seconds, up to a year";
        let nanoseconds = match &self.entry.value {
            PlanValue::Int(seconds) => *seconds as f64 * 1e9,
            PlanValue::Float(seconds) => seconds * 1e9,
            PlanValue::Text(text) => nanoseconds_of(text).unwrap_or(f64::NAN),
            _ => f64::NAN,
        };
        if nanoseconds >= 0.0 && nanoseconds <= DURATION_MAX.as_nanos() as f64 {
            Ok(Duration::from_nanos(nanoseconds.round() as u64))
        } else {
            Err(self.wrong(EXPECTED))
        }
    }

    /// A time above 0.
    pub fn interval(&self) -> Result<Duration> {
        let duration = self.duration()?;
        if duration.is_zero() {
            return Err(self.wrong("a time above 0"));
        }
        Ok(duration)
    }

    /// The items of a list.
    pub fn items(&self, expected: &str) -> Result<Vec<Field<'e>>> {
        let PlanValue::List(items) = &self.entry.value else {
            return Err(self.wrong(expected));
        };
        let item = |(index, entry)| Field {
            entry,
            path: format!("{}[{index}]", self.path),
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// A table.
    pub fn table(&self, expected: &str) -> Result<TableReader<'e>> {
        let PlanValue::Table(fields) = &self.entry.value else {
            return Err(self.wrong(expected));
        };
        Ok(TableReader {
            field: self.clone(),
            entries: fields,
            known: Vec::new(),
        })
    }

    /// One of the `known` texts; `what` names them in messages.
    pub fn one_of(&self, what: &str, known: &[&'static str]) -> Result<&'static str> {
        let text = self.text(&format!("{what}: {}", known.join(", ")))?;
        match known.iter().find(|name| **name == text) {
            Some(name) => Ok(name),
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

/// Reads a table. The keys that were read are its known keys: [`TableReader::finish`] rejects all others.
#[derive(Debug)]
pub struct TableReader<'e> {
    /// The table.
    pub field: Field<'e>,
    entries: &'e [(EntryName, PlanEntry)],
    known: Vec<&'static str>,
}

impl<'e> TableReader<'e> {
    /// The value of a key, if the table has it.
    pub fn take(&mut self, key: &'static str) -> Option<Field<'e>> {
        self.known.push(key);
        let (_, entry) = self.entries.iter().find(|(name, _)| name.text == key)?;
        Some(Field {
            entry,
            path: self.path_of(key),
        })
    }

    /// The value of a required key.
    pub fn require(&mut self, key: &'static str, expected: &str) -> Result<Field<'e>> {
        self.take(key).ok_or_else(|| {
            self.field
                .problem(format!("missing key `{key}`: {expected}"))
        })
    }

    /// Reads the value of a key, if the table has it.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Field<'e>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.take(key).map(|field| read(&field)).transpose()
    }

    /// All names with their values, for tables with free names.
    pub fn entries(&self) -> impl Iterator<Item = (&'e str, Field<'e>)> {
        let path = self.field.path.clone();
        self.entries.iter().map(move |(name, entry)| {
            let short: String = name.text.chars().take(64).collect();
            let path = format!("{path}.{short}");
            (name.text.as_str(), Field { entry, path })
        })
    }

    /// A problem for the first unknown key.
    pub fn unknown_key(&self) -> Option<Problem> {
        let known = |name: &EntryName| self.known.iter().any(|key| *key == name.text);
        let (name, _) = self.entries.iter().find(|(name, _)| !known(name))?;
        Some(Problem {
            at: name.at,
            path: self.field.path.clone(),
            reason: unknown("key", &name.text, &self.known),
        })
    }

    /// Fails if the table has an unknown key.
    pub fn finish(self) -> Result<()> {
        self.unknown_key().map_or(Ok(()), Err)
    }

    fn path_of(&self, key: &str) -> String {
        if self.field.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.field.path)
        }
    }
}

/// The message for an unknown name, with the nearest known one, or all of them if they are few.
pub fn unknown(what: &str, text: &str, known: &[&'static str]) -> String {
    /// Maximum number of known names that are listed.
    const LISTED_MAX: usize = 16;
    /// Maximum number of characters of the unknown name that are shown.
    const LENGTH_MAX: usize = 40;
    let short: String = text.chars().take(LENGTH_MAX).collect();
    let message = format!("unknown {what} {short:?}");
    let near = nearest(&short, known.iter().copied());
    match near {
        Some(name) => format!("{message}; did you mean {name:?}?"),
        None if known.len() <= LISTED_MAX => format!("{message} (available: {})", known.join(", ")),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let read = |value| {
            Field::root(&PlanEntry { at: 0, value })
                .duration()
                .map(|duration| duration.as_nanos())
                .ok()
        };
        let text = |text: &str| read(PlanValue::Text(text.into()));
        assert_eq!(text("10s"), Some(10_000_000_000));
        assert_eq!(text("1.5m"), Some(90_000_000_000));
        assert_eq!(text("250 ms"), Some(250_000_000));
        assert_eq!(text("10ns"), Some(10));
        assert_eq!(text("0s"), Some(0));
        assert_eq!(read(PlanValue::Int(2)), Some(2_000_000_000));
        assert_eq!(read(PlanValue::Float(0.5)), Some(500_000_000));
        for wrong in [
            "", "s", "10", "10 sec", "-1s", "9000h", "1e300s", "nan s", "10s5",
        ] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
        assert_eq!(read(PlanValue::Int(-1)), None);
        assert_eq!(read(PlanValue::Float(f64::NAN)), None);
        assert_eq!(read(PlanValue::Bool(true)), None);
    }
}
