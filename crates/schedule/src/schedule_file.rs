//! Files of schedules (`docs/formats/schedule.md`): read, checked, with errors at line and column.

use seatrial_plan::Problem;
use seatrial_plan::document::{PlanValue, TEXT_LENGTH_MAX};
use seatrial_plan::fields::{Field, TableReader};
use seatrial_runner::{PlanError, PlanSource};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use thiserror::Error;

/// A file of schedules.
#[derive(Clone, Debug)]
pub struct ScheduleFile {
    /// What they are, in a few words.
    pub title: String,
    /// Where they were published.
    pub source: Option<String>,
    /// The schedules, with different names.
    pub schedules: Vec<Schedule>,
    /// What was published about levels of systems.
    pub published: Vec<PublishedLevel>,
}

/// Statements of a few sessions in a fixed order.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Its name: lower case, with hyphens.
    pub name: String,
    /// The anomaly that it probes for, as the literature names it.
    pub anomaly: String,
    /// What happens if the anomaly occurs, in a sentence.
    pub about: String,
    /// Statements before the first step, of a session of their own.
    pub setup: Vec<String>,
    /// The steps.
    pub steps: Vec<ScheduleStep>,
    /// A query after the last step, whose rows are called `final`.
    pub finally: Option<String>,
    /// The anomaly has occurred if one of these holds.
    pub occurs: Vec<Occurrence>,
}

/// One statement of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleStep {
    /// The session.
    pub session: String,
    /// A name for its rows.
    pub label: Option<String>,
    /// The statement.
    pub sql: String,
}

/// What must all hold if an anomaly has occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occurrence {
    /// These sessions have committed.
    pub commits: Vec<String>,
    /// The rows with these labels are these, as text.
    pub shows: Vec<(String, Vec<Vec<String>>)>,
}

/// What was published about a level of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedLevel {
    /// The suite.
    pub system: String,
    /// The level, as the suite names it.
    pub level: String,
    /// The system and its version as published.
    pub tested: String,
    /// The anomalies that occur; the others do not occur.
    pub occurs: Vec<String>,
    /// The anomalies that occur in transactions that write, and not in those that only read.
    pub occurs_with_writes: Vec<String>,
}

/// An error of a file of schedules.
#[derive(Debug, Error)]
pub enum ScheduleFileError {
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// What the file says is wrong.
    #[error(transparent)]
    Content(#[from] PlanError),
}

type Decoded<T> = Result<T, Problem>;

/// Most sessions of a schedule.
const SESSIONS_MAX: usize = 16;
/// Most steps of a schedule.
const STEPS_MAX: usize = 1_000;
/// The label of the rows after the last step.
pub(crate) const FINAL: &str = "final";

impl ScheduleFile {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<ScheduleFile, ScheduleFileError> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = fs::File::open(path).and_then(|file| {
            file.take(TEXT_LENGTH_MAX as u64 + 1)
                .read_to_string(&mut text)
        });
        match read {
            Ok(_) => ScheduleFile::from_text(&name, &text),
            Err(error) => Err(ScheduleFileError::File {
                path: name,
                reason: error.to_string(),
            }),
        }
    }

    /// The file with this text; `name` is that of the file in messages.
    pub fn from_text(name: &str, text: &str) -> Result<ScheduleFile, ScheduleFileError> {
        let source = PlanSource { file: name, text };
        let document = source.document()?;
        let decoded = decode(&Field::root(&document));
        Ok(decoded.map_err(|problem| source.error(problem))?)
    }

    /// The schedules of [Hermitage](https://github.com/ept/hermitage), with what it published about PostgreSQL and InnoDB.
    pub fn hermitage() -> ScheduleFile {
        let text = include_str!("../schedules/hermitage.toml");
        ScheduleFile::from_text("hermitage.toml", text).expect("the bundled file is sound")
    }
}

fn decode(root: &Field<'_>) -> Decoded<ScheduleFile> {
    let mut table = root.table("a table")?;
    let title = table.require("title", "what the schedules are")?;
    let title = title.text("a text")?.to_owned();
    let source = table.read("source", |field| field.text("a text").map(str::to_owned))?;
    let setup = table.read("setup", texts)?.unwrap_or_default();
    let mut schedules: Vec<Schedule> = Vec::new();
    let fields = table.require("schedule", "the schedules, as [[schedule]]")?;
    for field in fields.items("tables [[schedule]]")? {
        let schedule = decode_schedule(&field, &setup)?;
        if schedules.iter().any(|other| other.name == schedule.name) {
            return Err(field.problem(format!("two schedules are called {:?}", schedule.name)));
        }
        schedules.push(schedule);
    }
    let mut published = Vec::new();
    if let Some(fields) = table.take("published") {
        for field in fields.items("tables [[published]]")? {
            published.push(decode_published(&field, &schedules)?);
        }
    }
    table.finish()?;
    Ok(ScheduleFile {
        title,
        source,
        schedules,
        published,
    })
}

fn decode_schedule(field: &Field<'_>, setup: &[String]) -> Decoded<Schedule> {
    let mut table = field.table("a table")?;
    let text = |table: &mut TableReader<'_>, key, expected| {
        let field = table.require(key, expected)?;
        field.text("a text").map(str::to_owned)
    };
    let name_field = table.require("name", "lower case, digits, hyphens")?;
    let name = name_field.text("a text")?.to_owned();
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 40 || !name.chars().all(is_plain) {
        return Err(name_field.wrong("lower case letters, digits and hyphens, 40 at most"));
    }
    let anomaly = text(&mut table, "anomaly", "the anomaly that it probes for")?;
    let about = text(&mut table, "about", "what happens if the anomaly occurs")?;
    let own_setup = table.read("setup", texts)?;
    let finally = table.read(FINAL, |field| field.text("a query").map(str::to_owned))?;
    let steps = decode_steps(&table.require("steps", "a list of texts \"SESSION: STATEMENT\"")?)?;
    let mut schedule = Schedule {
        name,
        anomaly,
        about,
        setup: own_setup.unwrap_or_else(|| setup.to_vec()),
        steps,
        finally,
        occurs: Vec::new(),
    };
    let occurs = table.require("occurs", "a list of tables with commits and shows")?;
    for item in occurs.items("a list of tables")? {
        schedule.occurs.push(decode_occurrence(&item, &schedule)?);
    }
    if schedule.occurs.is_empty() {
        return Err(occurs.wrong("at least one table"));
    }
    table.finish()?;
    Ok(schedule)
}

fn decode_steps(field: &Field<'_>) -> Decoded<Vec<ScheduleStep>> {
    let mut steps: Vec<ScheduleStep> = Vec::new();
    let items = field.items("a list of texts \"SESSION: STATEMENT\"")?;
    if items.is_empty() || items.len() > STEPS_MAX {
        return Err(field.wrong(&format!("a list of 1 to {STEPS_MAX} steps")));
    }
    for item in items {
        let step = parse_step(item.text("a text")?)
            .ok_or_else(|| item.wrong("SESSION: STATEMENT, or SESSION LABEL: STATEMENT"))?;
        let is_taken = |label: &String| {
            label == FINAL
                || steps
                    .iter()
                    .any(|other| other.label.as_ref() == Some(label))
        };
        if let Some(label) = step.label.as_ref().filter(|label| is_taken(label)) {
            return Err(item.problem(format!("the label {label:?} is taken")));
        }
        steps.push(step);
        let sessions = sessions(&steps).len();
        if sessions > SESSIONS_MAX {
            return Err(item.problem(format!("a schedule has {SESSIONS_MAX} sessions at most")));
        }
    }
    Ok(steps)
}

/// `T1: begin`, `T1 first: select …`.
fn parse_step(text: &str) -> Option<ScheduleStep> {
    let (head, sql) = text.split_once(':')?;
    let mut words = head.split_whitespace();
    let session = words.next()?.to_owned();
    let label = words.next().map(str::to_owned);
    let is_name = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let sql = sql.trim().trim_end_matches(';').to_owned();
    let is_sound = words.next().is_none()
        && is_name(&session)
        && label.as_ref().is_none_or(is_name)
        && !sql.is_empty();
    is_sound.then_some(ScheduleStep {
        session,
        label,
        sql,
    })
}

/// The sessions in the order of their first steps.
pub(crate) fn sessions(steps: &[ScheduleStep]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for step in steps {
        if !names.contains(&step.session) {
            names.push(step.session.clone());
        }
    }
    names
}

fn decode_occurrence(field: &Field<'_>, schedule: &Schedule) -> Decoded<Occurrence> {
    let mut table = field.table("a table with commits and shows")?;
    let mut occurrence = Occurrence::default();
    if let Some(list) = table.take("commits") {
        for item in list.items("a list of sessions")? {
            let session = item.text("a session")?;
            let mut commits = schedule.steps.iter();
            if !commits.any(|step| step.session == session && step.sql == "commit") {
                return Err(item.problem(format!("the session {session:?} has no step `commit`")));
            }
            occurrence.commits.push(session.to_owned());
        }
    }
    if let Some(shown) = table.take("shows") {
        for (label, rows) in shown.table("a table of labels and rows")?.entries() {
            let mut steps = schedule.steps.iter();
            let is_known = steps.any(|step| step.label.as_deref() == Some(label))
                || (label == FINAL && schedule.finally.is_some());
            if !is_known {
                return Err(rows.problem(format!("no step has the label {label:?}")));
            }
            occurrence
                .shows
                .push((label.to_owned(), decode_rows(&rows)?));
        }
    }
    if occurrence == Occurrence::default() {
        return Err(field.wrong("a table with commits or shows"));
    }
    table.finish()?;
    Ok(occurrence)
}

fn decode_rows(field: &Field<'_>) -> Decoded<Vec<Vec<String>>> {
    let rows = field.items("a list of rows")?;
    let row = |row: Field<'_>| {
        let values = row.items("a row: a list of numbers and texts")?;
        values.iter().map(decode_value).collect()
    };
    rows.into_iter().map(row).collect()
}

fn decode_value(field: &Field<'_>) -> Decoded<String> {
    match &field.entry.value {
        PlanValue::Int(number) => Ok(number.to_string()),
        PlanValue::Text(text) => Ok(text.clone()),
        _ => Err(field.wrong("a whole number or a text")),
    }
}

fn decode_published(field: &Field<'_>, schedules: &[Schedule]) -> Decoded<PublishedLevel> {
    let mut table = field.table("a table")?;
    let text = |table: &mut TableReader<'_>, key| {
        let field = table.require(key, "a text")?;
        field.text("a text").map(str::to_owned)
    };
    let system = text(&mut table, "system")?;
    let level = text(&mut table, "level")?;
    let tested = text(&mut table, "tested")?;
    let anomalies = |field: &Field<'_>| {
        let items = field.items("a list of anomalies")?.into_iter();
        let anomaly = |item: Field<'_>| {
            let name = item.text("an anomaly")?;
            if schedules.iter().any(|schedule| schedule.anomaly == name) {
                return Ok(name.to_owned());
            }
            Err(item.problem(format!("no schedule has the anomaly {name:?}")))
        };
        items.map(anomaly).collect::<Decoded<Vec<String>>>()
    };
    let occurs = anomalies(&table.require("occurs", "a list of anomalies")?)?;
    let occurs_with_writes = table.read("occurs_with_writes", anomalies)?;
    table.finish()?;
    Ok(PublishedLevel {
        system,
        level,
        tested,
        occurs,
        occurs_with_writes: occurs_with_writes.unwrap_or_default(),
    })
}

fn texts(field: &Field<'_>) -> Decoded<Vec<String>> {
    let items = field.items("a list of statements")?;
    let text = |item: Field<'_>| item.text("a statement").map(str::to_owned);
    items.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests;
