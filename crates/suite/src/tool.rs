//! Commands that a suite adds to the program.

use crate::option::OptionValues;
use crate::setup::Report;
use crate::{Suite, SuiteError};

/// A command of a suite: `seatrial SUITE NAME` ([`Suite::tools`]), or `seatrial bench SUITE` ([`Suite::bench`]). The program
/// makes parser, help text and completion from this table, and calls [`SuiteTool::run`] with the values.
#[derive(Clone, Copy, Debug)]
pub struct SuiteTool {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for help texts.
    pub about: &'static str,
    /// Its positional arguments, in order.
    pub arguments: &'static [ToolArgument],
    /// Groups of options.
    pub options: &'static [&'static [ToolOption]],
    /// The end of its help text.
    pub notes: &'static str,
    /// Carries it out.
    pub run: fn(&ToolSetup<'_>) -> Result<ToolExit, SuiteError>,
}

/// A positional argument of a command.
#[derive(Clone, Copy, Debug)]
pub struct ToolArgument {
    /// Its name, under which its value is found.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Must it be given?
    pub is_required: bool,
}

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct ToolOption {
    /// Its name, without leading hyphens.
    pub name: &'static str,
    /// The placeholder of its value; `None`: a switch without a value.
    pub value_name: Option<&'static str>,
    /// One line for the help text, without the default.
    pub about: &'static str,
    /// The default value in the help text, if there is one.
    pub default: Option<&'static str>,
}

/// What a command receives.
#[derive(Clone, Copy, Debug)]
pub struct ToolSetup<'a> {
    /// Arguments and options that were given, by name; a switch has an empty value.
    pub values: &'a OptionValues,
    /// Receives results: one line per call, to standard output.
    pub print: Report,
    /// Receives messages for the user: to standard error.
    pub report: Report,
}

impl ToolSetup<'_> {
    /// Is this switch, option or argument given?
    pub fn has(&self, name: &str) -> bool {
        self.values.get(name).is_some()
    }

    /// The value of this argument or option as text.
    pub fn text(&self, name: &str) -> Result<Option<&str>, SuiteError> {
        let Some(value) = self.values.get(name) else {
            return Ok(None);
        };
        let text = value.to_str();
        let text = text.ok_or_else(|| format!("{name} is not valid UTF-8: {}", value.display()))?;
        Ok(Some(text))
    }
}

/// How a command ended. (An error is a fourth way: bad usage, input or set-up.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolExit {
    /// Exit status 0: done.
    Done,
    /// Exit status 1: a definite no, such as an absent key or a missed target.
    Negative,
    /// Exit status 2: the outcome is unknown.
    Unknown,
}

/// The tool of this suite that `names` call: `[SUITE, NAME]` or `["bench", SUITE]`.
pub fn find_tool(suite: &dyn Suite, names: [&str; 2]) -> Option<&'static SuiteTool> {
    let mut tools = suite.tools().iter();
    match names {
        ["bench", name] if name == suite.name() => suite.bench(),
        [name, tool] if name == suite.name() => tools.find(|known| known.name == tool),
        _ => None,
    }
}
