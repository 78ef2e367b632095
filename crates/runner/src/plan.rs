//! Plans as text: TOML and JSON down to the same [`Entry`]s, and messages that name file, line and column.
//!
//! What a plan means is told by [`seatrial_generator::plan`].

mod json;
mod toml;

use seatrial_generator::plan::document::{Entry, TEXT_LENGTH_MAX};
use seatrial_generator::plan::{Plan, Problem, Vocabulary};
use std::path::Path;
use thiserror::Error;

/// How a plan is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// TOML 1.1.
    Toml,
    /// JSON.
    Json,
}

impl Syntax {
    /// By the name of the file: JSON when it ends with `.json`, else TOML.
    pub fn of(path: &Path) -> Syntax {
        let json = path
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("json"));
        if json { Syntax::Json } else { Syntax::Toml }
    }
}

/// The text of a plan and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct PlanSource<'t> {
    /// The file's name, for messages.
    pub file: &'t str,
    /// What is in it.
    pub text: &'t str,
    /// How it is written.
    pub syntax: Syntax,
}

/// What is wrong with a plan, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct PlanError {
    /// The file.
    pub file: String,
    /// From 1 on.
    pub line: usize,
    /// In characters, from 1 on.
    pub column: usize,
    /// What is wrong, and the path within the document.
    pub problem: Problem,
}

impl PlanSource<'_> {
    /// The text as a document.
    pub fn document(&self) -> Result<Entry, PlanError> {
        if self.text.len() > TEXT_LENGTH_MAX {
            let length = self.text.len();
            return Err(self.error(syntax(
                0,
                format!("the plan has {length} bytes, more than {TEXT_LENGTH_MAX}"),
            )));
        }
        let document = match self.syntax {
            Syntax::Toml => toml::document(self.text),
            Syntax::Json => json::document(self.text),
        };
        document.map_err(|problem| self.error(problem))
    }

    /// The text as a plan.
    pub fn plan(&self, vocabulary: &Vocabulary<'_>) -> Result<Plan, PlanError> {
        let document = self.document()?;
        Plan::decode(&document, vocabulary).map_err(|problem| self.error(problem))
    }

    /// A problem with its place.
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

/// A problem of the language, not of the plan.
fn syntax(at: usize, reason: impl Into<String>) -> Problem {
    Problem {
        at,
        path: String::new(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests;
