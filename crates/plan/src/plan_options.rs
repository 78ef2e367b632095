//! The table `test` of a plan: options of the whole test.

use super::SERVERS_MAX;
use super::document::PlanValue;
use super::fields::{Field, Problem, Result};
use seatrial_generator::THREADS_MAX;
use std::time::Duration;

/// A value with its position, so that a later check of the value can report a [`Problem`].
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    at: usize,
    path: String,
}

impl<T> Located<T> {
    /// A value at this byte offset and path.
    pub fn new(value: T, at: usize, path: &str) -> Located<T> {
        Located {
            value,
            at,
            path: path.to_owned(),
        }
    }

    /// A problem with this value.
    pub fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem {
            at: self.at,
            path: self.path.clone(),
            reason: reason.into(),
        }
    }
}

/// The table `test` of a plan. Every option is optional; command-line options override the plan.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Seed of the schedule.
    pub seed: Option<u64>,
    /// Number of client threads.
    pub concurrency: Option<u32>,
    /// Number of nodes of the system.
    pub nodes: Option<Located<u32>>,
    /// Time from the first operation to the end of the test.
    pub time: Option<Duration>,
    /// Maximum number of client operations.
    pub ops: Option<u64>,
    /// Operations per second over all clients.
    pub rate: Option<f64>,
    /// Timeout of an operation.
    pub timeout: Option<Duration>,
    /// Consistency model to check.
    pub model: Option<Located<String>>,
    /// Checkers to run.
    pub checkers: Option<Vec<Located<String>>>,
    /// Is an undecided verdict accepted as success?
    pub accept_undecided: Option<Located<bool>>,
    /// Does the first violation end the test?
    pub stop_on_violation: Option<Located<bool>>,
    /// Operations that must be ok for a valid verdict: a number, or a rate as text (`"50/s"`).
    pub min_ok: Option<Located<String>>,
    /// The same of each function.
    pub min_ok_each: Option<u64>,
    /// Regular expressions of log lines that are failures.
    pub log_patterns: Vec<Located<String>>,
}

impl PlanOptions {
    /// Decodes the table `test`.
    pub fn decode(field: &Field<'_>) -> Result<PlanOptions> {
        let mut fields = field.table("a table of options")?;
        let text = |field: &Field<'_>| {
            let text = field.text("a name")?.to_owned();
            Ok(Located::new(text, field.entry.at, &field.path))
        };
        let options = PlanOptions {
            seed: fields.read("seed", seed)?,
            concurrency: fields.read("concurrency", |field| {
                Ok(field.whole(1..=i64::from(THREADS_MAX))? as u32)
            })?,
            nodes: fields.read("nodes", |field| {
                let nodes = field.whole(1..=SERVERS_MAX)? as u32;
                Ok(Located::new(nodes, field.entry.at, &field.path))
            })?,
            time: fields.read("time", Field::interval)?,
            ops: fields.read("ops", Field::count)?,
            rate: fields.read("rate", |field| field.positive(1e9))?,
            timeout: fields.read("timeout", Field::interval)?,
            model: fields.read("model", text)?,
            checkers: fields.read("checkers", |field| {
                let items = field.items("a list of names of checkers")?;
                if items.is_empty() {
                    return Err(field.wrong("a list of at least one name"));
                }
                items.iter().map(text).collect()
            })?,
            accept_undecided: fields.read("accept_undecided", |field| {
                Ok(Located::new(field.flag()?, field.entry.at, &field.path))
            })?,
            stop_on_violation: fields.read("stop_on_violation", |field| {
                Ok(Located::new(field.flag()?, field.entry.at, &field.path))
            })?,
            min_ok: fields.read("min_ok", |field| {
                let value = match &field.entry.value {
                    PlanValue::Text(text) => text.clone(),
                    _ => field.count()?.to_string(),
                };
                Ok(Located::new(value, field.entry.at, &field.path))
            })?,
            min_ok_each: fields.read("min_ok_each", Field::count)?,
            log_patterns: fields
                .read("log_patterns", |field| {
                    let items = field.items("a list of regular expressions")?;
                    items.iter().map(text).collect()
                })?
                .unwrap_or_default(),
        };
        fields.finish()?;
        Ok(options)
    }
}

/// Hexadecimal text, as on the command line.
fn seed(field: &Field<'_>) -> Result<u64> {
    const EXPECTED: &str = "text of up to 16 hexadecimal digits, such as \"91c4\"";
    let text = field.text(EXPECTED)?;
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let seed = plain.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    seed.ok_or_else(|| field.wrong(EXPECTED))
}
