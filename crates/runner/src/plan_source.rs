//! Plans as text: TOML to [`PlanEntry`]s, and errors with file, line and column.
//!
//! The meaning of a plan belongs to [`seatrial_plan`].

mod toml;

use seatrial_plan::document::{PlanEntry, TEXT_LENGTH_MAX};
use seatrial_plan::{Plan, Problem, Vocabulary};
use thiserror::Error;

/// The text of a plan, in TOML 1.1, and its origin.
#[derive(Clone, Copy, Debug)]
pub struct PlanSource<'t> {
    /// The file's name, for error messages.
    pub file: &'t str,
    /// Its content.
    pub text: &'t str,
}

/// An error in a plan, with its position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct PlanError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The error, and the path within the document.
    pub problem: Problem,
}

impl PlanSource<'_> {
    /// Parses the text as a document.
    pub fn document(&self) -> Result<PlanEntry, PlanError> {
        if self.text.len() > TEXT_LENGTH_MAX {
            let length = self.text.len();
            return Err(self.error(syntax(
                0,
                format!("the plan has {length} bytes, more than {TEXT_LENGTH_MAX}"),
            )));
        }
        // No TOML document begins with these. Plans were once written in JSON, too.
        let begin = self.text.len() - self.text.trim_start().len();
        if self.text[begin..].starts_with('{') {
            return Err(self.error(syntax(
                begin,
                "a plan is written in TOML, and this looks like JSON: write `name = value` in place of `\"name\": value`, \
                 without the outer braces",
            )));
        }
        toml::document(self.text).map_err(|problem| self.error(problem))
    }

    /// Parses and checks the text as a plan.
    pub fn plan(&self, vocabulary: &Vocabulary<'_>) -> Result<Plan, PlanError> {
        let document = self.document()?;
        Plan::decode(&document, vocabulary).map_err(|problem| self.error(problem))
    }

    /// Adds file, line and column to a problem.
    pub fn error(&self, problem: Problem) -> PlanError {
        let before = self.text.get(..problem.at).unwrap_or(self.text);
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        PlanError {
            file: self.file.to_owned(),
            line: 1 + before.bytes().filter(|byte| *byte == b'\n').count(),
            column: 1 + before[begin..].chars().count(),
            problem,
        }
    }
}

/// An error of the TOML syntax.
fn syntax(at: usize, reason: impl Into<String>) -> Problem {
    Problem {
        at,
        path: String::new(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests;
