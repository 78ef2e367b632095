//! Options of a suite's own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A command that accepts options of suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `seatrial test`.
    Test,
    /// `seatrial sim`.
    Sim,
    /// `seatrial node`.
    Node,
}

/// One option of a suite: `--NAME VALUE`.
#[derive(Clone, Copy, Debug)]
pub struct SuiteOption {
    /// Its name, without leading hyphens.
    pub name: &'static str,
    /// The placeholder of its value in help texts, such as `FILE`.
    pub value_name: &'static str,
    /// One line for the help text, without the default.
    pub about: &'static str,
    /// The default value in the help text, if there is one.
    pub default: Option<&'static str>,
    /// The commands that accept it.
    pub verbs: &'static [Verb],
}

/// The options of a suite given on the command line. An option that is not given has no entry, even if it has a default.
#[derive(Clone, Debug, Default)]
pub struct OptionValues(BTreeMap<&'static str, OsString>);

impl OptionValues {
    /// Adds an option that was given.
    pub fn insert(&mut self, name: &'static str, value: OsString) {
        self.0.insert(name, value);
    }

    /// The value of the option `name`.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }

    /// The value of the option `name` as a path.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.get(name).map(Path::new)
    }

    /// The value of the option `name` as a whole number in this range; `default` when it is not given.
    pub fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, String> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        let number = value.to_str().and_then(|text| text.parse().ok());
        let number = number.filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            let shown = value.display();
            format!("--{name} takes a whole number from {low} to {high}, not {shown}")
        })
    }

    /// The value of the option `name`, one of `choices`; the first of them when it is not given.
    pub fn one_of(
        &self,
        name: &str,
        choices: &'static [&'static str],
    ) -> Result<&'static str, String> {
        assert!(!choices.is_empty(), "--{name} has a value to choose");
        let Some(value) = self.get(name) else {
            return Ok(choices[0]);
        };
        let found = choices.iter().find(|choice| value == **choice);
        found.copied().ok_or_else(|| {
            let (known, shown) = (choices.join(", "), value.display());
            format!("--{name} takes one of {known}, not {shown}")
        })
    }

    /// All options with their values, by name.
    pub fn words(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (*name, value.as_os_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_in_a_range_or_choices() {
        let mut values = OptionValues::default();
        assert_eq!(values.number("memory", 64..=1_000, 256), Ok(256));
        values.insert("memory", "64".into());
        assert_eq!(values.number("memory", 64..=1_000, 256), Ok(64));
        for wrong in ["63", "1001", "-1", "", "6x"] {
            values.insert("memory", wrong.into());
            let error = values.number("memory", 64..=1_000, 256).unwrap_err();
            let expected = format!("--memory takes a whole number from 64 to 1000, not {wrong}");
            assert_eq!(error, expected);
        }
        let choices = &["always", "never"];
        assert_eq!(values.one_of("sync", choices), Ok("always"));
        values.insert("sync", "never".into());
        assert_eq!(values.one_of("sync", choices), Ok("never"));
        values.insert("sync", "nver".into());
        let error = values.one_of("sync", choices).unwrap_err();
        assert_eq!(error, "--sync takes one of always, never, not nver");
        assert_eq!(values.path("other"), None);
        assert_eq!(values.path("memory"), Some(Path::new("6x")));
    }
}
